/*
 * storage_faults.mjs - makes the N-th call of a node's storage engine fail, once (failpoint
 * storage.call), and tells whether an operation came so far.
 */
import assert from 'node:assert/strict';

/* What a client is told: its code, and the message names what could not be done. WT_ROLLBACK is a
 * conflict, which the node tries again by itself. */
export const FAULTS = {
    EIO: { code: 8, message: /could not .+: Input\/output error/ },
    ENOSPC: { code: 14031, message: /could not .+: the disk is full|nearly full/ },
    WT_ROLLBACK: null,
};

const NAME = 'storage.call';
/* How a node may end by itself, and the line that says why. */
export const EXIT_ABRUPT = 14;
export const ABRUPT = /^(Journal flush failed|WiredTiger panicked)/;

/* Deeper sweeps on demand. */
export const IS_DEEP = process.env.STORAGE_FAULTS === 'deep';

/* thread: only calls of threads whose name begins so. */
export const arm = (admin, error, call, thread) =>
    admin.command({
        configureFailPoint: NAME,
        mode: 'alwaysOn',
        data: { call, error, ...(thread && { thread }) },
    });

/* Resolves to {hasFired, entered}: whether the call was reached, and how many there were. */
export async function disarm(admin, { count: before }) {
    const { count, entered } = await admin.command({ configureFailPoint: NAME, mode: 'off' });
    return { hasFired: Number(count) > Number(before), entered: Number(entered) };
}

/* Options of a node whose N-th call fails from its start on. */
export const atStart = (error, call) => [
    '--setParameter',
    `failpoint.${NAME}=${JSON.stringify({ mode: 'alwaysOn', data: { call, error } })}`,
];

/* 1, 2, 3 ... `all`, then every `stride`-th; whoever walks them must end it before `most`. */
export function* callNumbers({ all, stride, most = 5000 }) {
    for (let call = 1; call < most; call += call < all || IS_DEEP ? 1 : stride) yield call;
    assert.fail(`the operation still comes to the failpoint after ${most} calls`);
}

/* The error in a reply: of the command, of one of its writes, or of its write concern. */
export function errorIn(reply) {
    if (reply.ok !== 1) return reply;
    return reply.writeErrors?.[0] ?? reply.writeConcernError ?? null;
}
