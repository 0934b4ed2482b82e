/*
 * task_kills.mjs - the cases of task_kills_of_one and task_kills_of_three.
 *
 * Goal (REP-4, I7): whatever the instant at which the primary dies, a task goes on under the next one
 * as its table says: every phase is done, none that does not belong to its path, at most the one that
 * was under way once more; the outcome is the same for whoever asks by the id; locks are free
 * afterwards and the document goes. What a task blocks stays blocked through all of it.
 *
 * Method: one row per border (before a phase, after it, written, stored, removed) and phase; the
 * process is held there by a failpoint and ended by SIGKILL. Of three members another one takes over,
 * one alone starts again.
 */
import assert from 'node:assert/strict';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const ABORTED = 341; // ReshardCollectionAborted
const NO_SUCH_KEY = 4;
const ILLEGAL_OPERATION = 20;
const CONFLICTING = 117;
const HIT_MS_MAX = 20_000;
const KEEP_MS = 600_000;

const STRAIGHT = ['first', 'second', 'third'];
const kinds = {
    straight: { options: {}, path: STRAIGHT },
    detour: { options: { branch: 'detour' }, path: ['detour', ...STRAIGHT] },
    abort: { options: { hold: true }, path: ['first', 'undo'], isAborted: true },
    /* Nobody will ask by the id: the document goes with the end. */
    unkept: { options: {}, path: STRAIGHT, keepOutcomeMS: 0 },
    acknowledged: { options: {}, path: STRAIGHT, isAcknowledged: true },
};

/* [kind, border, phase] */
const CASES = [
    ['straight', 'written', 'first'],
    ['straight', 'stored', 'first'],
    ['straight', 'beforeRun', 'first'],
    ['straight', 'afterRun', 'first'],
    ['straight', 'written', 'second'],
    ['straight', 'stored', 'second'],
    ['straight', 'beforeRun', 'second'],
    ['straight', 'afterRun', 'second'],
    ['straight', 'written', 'third'],
    ['straight', 'stored', 'third'],
    ['straight', 'beforeRun', 'third'],
    ['straight', 'afterRun', 'third'],
    ['straight', 'written', 'done'],
    ['straight', 'stored', 'done'],
    ['detour', 'stored', 'detour'],
    ['detour', 'beforeRun', 'detour'],
    ['detour', 'afterRun', 'detour'],
    ['abort', 'abortWanted', 'second'],
    ['abort', 'written', 'undo'],
    ['abort', 'stored', 'undo'],
    ['abort', 'beforeRun', 'undo'],
    ['abort', 'afterRun', 'undo'],
    ['abort', 'written', 'done'],
    ['abort', 'stored', 'done'],
    ['unkept', 'beforeRemoval', 'done'],
    ['unkept', 'written', 'done'],
    ['unkept', 'removed', 'done'],
    ['acknowledged', 'beforeRemoval', 'done'],
    ['acknowledged', 'removed', 'done'],
];

export class World {
    #nextId = 0;
    #killed = []; // the newest last

    async start(members) {
        this.set = await startReplicaSet({
            members,
            settings: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
            args: ['--wiredTigerCacheSizeGB', '0.25'],
        });
        this.client = await this.set.client({ retryWrites: false, retryReads: true });
        this.marks = this.client.db('test').collection('primaryServiceMarks');
        this.documents = this.client.db('config').collection('testPrimaryTasks');
    }

    newId = () => `task ${this.#nextId++}`;

    command = (command) => this.client.db('admin').command(command);

    /* What a client does that knows its id: asks again until somebody can say. */
    async insist(command) {
        return waitFor(
            async () => {
                try {
                    return { reply: await this.command(command) };
                } catch (error) {
                    const isDecided = error.code !== undefined && !isRetryable(error);
                    return isDecided ? { error } : null;
                }
            },
            { timeoutMs: 30_000, what: `an answer to ${JSON.stringify(command)}` },
        );
    }

    /* A new primary, and the old one back. */
    async failOver(primary) {
        await primary.kill();
        this.#killed.push(primary);
        if (this.set.members.length > 1) {
            /* Who died last is nobody's source for ten seconds: better not the next primary. */
            const heirs = this.set.members.filter((member) => member !== primary);
            heirs.sort((a, b) => this.#killed.lastIndexOf(a) - this.#killed.lastIndexOf(b));
            await this.set.command(heirs[0], { replSetStepUp: 1 }).catch(() => {});
            await this.set.waitForSuccessor(primary);
        }
        await primary.start();
        await this.set.waitForPrimary();
        await this.set.waitForSecondaries();
    }

    async hold(primary, border, phase) {
        const name = `task.${border}`;
        const { count } = await this.set.command(primary, {
            configureFailPoint: name,
            mode: 'alwaysOn',
            data: { at: phase, blockTimeMS: 60_000 },
        });
        return () =>
            this.set.command(primary, {
                waitForFailPoint: name,
                timesEntered: Number(count) + 1,
                maxTimeMS: HIT_MS_MAX,
            });
    }

    phaseOf = async (id) => (await this.documents.findOne({ _id: id }))?.phase;

    async marksOf(id) {
        const found = await this.marks.find({ '_id.task': id }).toArray();
        return new Map(found.map((mark) => [mark._id.phase, mark.runs]));
    }
}

function isRetryable(error) {
    return (
        /Network/.test(error.name) ||
        ['PoolClearedError', 'MongoServerSelectionError'].includes(error.name) ||
        [91, 189, 10107, 11600, 11602, 13435, 13436].includes(error.code)
    );
}

async function killAt(world, kind, border, phase) {
    const { options, path, isAborted, isAcknowledged, keepOutcomeMS = KEEP_MS } = kinds[kind];
    const id = world.newId();
    const locks = [{ name: 'kills' }, { name: `kills.${id}`, exclusive: true }];
    const begin = { _testPrimaryTask: id, ...options, locks, keepOutcomeMS };
    const abort = { _testPrimaryTask: id, action: 'abort', code: ABORTED, reason: 'enough' };
    const primary = await world.set.waitForPrimary();
    /* The driver may still take the one before for the primary, and does not repeat commands. */
    await waitFor(() => world.command({ hello: 1 }).then(({ isWritablePrimary }) => isWritablePrimary, () => false), {
        what: 'the driver to find the primary',
    });
    const reached = await world.hold(primary, border, phase);

    const first = world.command({ ...begin, wait: true }).catch(() => {});
    let second = null;
    if (isAborted) {
        await waitFor(async () => (await world.phaseOf(id)) === 'second', { what: 'phase second' });
        second = world.command(abort).catch(() => {});
    }
    if (isAcknowledged) {
        await world.insist({ ...begin, wait: true }); // it is over, or was not heard of
        second = world.insist({ _testPrimaryTask: id, action: 'acknowledge' });
    }
    await reached();
    await world.failOver(primary);
    await first;
    await second?.catch(() => {});

    await checkOutcome(world, kind, begin, abort);
    await checkEffects(world, id, path);
    /* The same locks are free, and the document goes. */
    const next = await world.insist({ _testPrimaryTask: world.newId(), locks, wait: true });
    assert.equal(next.error, undefined);
    await world.insist({ _testPrimaryTask: id, action: 'acknowledge' });
    await waitFor(async () => (await world.documents.countDocuments({ _id: id })) === 0, {
        timeoutMs: 10_000,
        what: 'the removal of the document',
    });
}

async function checkOutcome(world, kind, begin, abort) {
    const { isAborted, keepOutcomeMS, isAcknowledged } = kinds[kind];
    const wait = { _testPrimaryTask: begin._testPrimaryTask, action: 'wait' };
    if (keepOutcomeMS === 0 || isAcknowledged) {
        /* Over and forgotten, or still known: but nothing else. */
        const { reply, error } = await world.insist(wait);
        assert.ok(reply?.result !== undefined || error?.code === NO_SUCH_KEY, String(error));
        return;
    }
    if (isAborted) {
        /* An abort that was not acknowledged may be lost, and is asked for again. */
        const { error } = await world.insist(abort);
        assert.ok(error === undefined || error.code === ILLEGAL_OPERATION, String(error));
    }
    const { reply, error } = await world.insist({ ...begin, wait: true });
    if (isAborted) {
        assert.equal(error?.code, ABORTED);
        assert.match(error.message, /enough/);
    } else {
        assert.equal(Number(reply?.result.steps), 1, String(error));
    }
}

async function checkEffects(world, id, path) {
    const marks = await waitFor(
        async () => {
            const found = await world.marksOf(id);
            return found.size >= path.length ? found : null;
        },
        { timeoutMs: 10_000, what: 'all marks' },
    );
    assert.deepEqual([...marks.keys()].sort(), [...path].sort());
    const again = [...marks.values()].filter((runs) => runs > 1);
    assert.ok(again.length <= 1 && again.every((runs) => runs === 2), JSON.stringify([...marks]));
}

/* [claim, function of a World] */
export const TESTS = [
    ...CASES.map(([kind, border, phase]) => [
        `REP-4: a task (${kind}) outlives a kill at task.${border} of "${phase}"`,
        (world) => killAt(world, kind, border, phase),
    ]),
    ['REP-4: no write that a task blocks is acknowledged between a fail-over and its release', hammer],
];

/* Writers that never stop. */
class Hammer {
    isStopping = false;
    acknowledged = 0;
    refused = 0;

    constructor(world) {
        const coll = world.client.db('test').collection('hammer');
        const loop = async () => {
            while (!this.isStopping) {
                try {
                    await coll.insertOne({}, { writeConcern: { w: 1 } });
                    this.acknowledged++;
                } catch (error) {
                    if (error.code === CONFLICTING && /blocked/.test(error.message)) this.refused++;
                }
            }
        };
        this.ended = Promise.all(Array.from({ length: 8 }, loop));
    }

    async waitFor(name, count = 50) {
        const enough = this[name] + count;
        await waitFor(() => this[name] >= enough, { timeoutMs: 30_000, what: `${name} writes` });
    }
}

async function hammer(world) {
    const id = world.newId();
    const begin = { _testPrimaryTask: id, hold: true, block: 'test.hammer', keepOutcomeMS: KEEP_MS };
    const writers = new Hammer(world);
    try {
        await writers.waitFor('acknowledged');
        await world.insist(begin);
        await waitFor(async () => (await world.phaseOf(id)) === 'second', { what: 'phase second' });
        const { acknowledged } = writers;
        await writers.waitFor('refused');
        for (const isPlanned of [false, true, false]) {
            if (isPlanned) await world.set.stepDown({ secs: 1, force: true });
            else await world.failOver(await world.set.waitForPrimary());
            await writers.waitFor('refused');
        }
        /* Replies that were under way when the block was seen. */
        assert.ok(writers.acknowledged - acknowledged <= 8, `${writers.acknowledged - acknowledged}`);
        await world.marks.insertOne({ _id: { task: id, phase: 'release' } });
        const { reply } = await world.insist({ ...begin, wait: true });
        assert.ok(Number(reply.result.countAtBlock) > 0);
        assert.equal(Number(reply.result.countAtEnd), Number(reply.result.countAtBlock));
        await writers.waitFor('acknowledged');
    } finally {
        writers.isStopping = true;
        await writers.ended;
    }
}
