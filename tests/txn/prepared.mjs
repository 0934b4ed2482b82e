/*
 * prepared.mjs - transactions that are prepared and decided by hand, as a coordinator of several shards
 * would: their sessions outlive members and connections.
 */
import assert from 'node:assert/strict';
import { Long, Timestamp, UUID } from 'mongodb';
import { waitFor } from '../lib/server.mjs';
import { RawConnection } from '../lib/wire.mjs';
import { DB } from './world.mjs';

export const NO_SUCH = 251;
export const COMMITTED = 256;
const DECISION_MS_MAX = 30_000;
/* The member is not the one to ask, or not now. */
const ASK_AGAIN = [91, 189, 10107, 11600, 11602, 13435, 13436];

/* One command on a connection of its own; null when there was no answer. */
export async function ask(member, command) {
    if (!member.isRunning()) return null;
    let wire = null;
    try {
        wire = await RawConnection.open({ host: member.host, port: member.fixedPort || member.port });
        return (await wire.command(command)) ?? null;
    } catch (error) {
        if (error.code === 'ERR_ASSERTION') throw error;
        return null;
    } finally {
        wire?.close();
    }
}

export const majority = { writeConcern: { w: 'majority' } };

export class PreparedTransaction {
    prepareTimestamp = null;

    constructor(number = 1) {
        this.lsid = { id: new UUID() };
        this.number = number;
    }

    get identity() {
        return { lsid: this.lsid, txnNumber: Long.fromNumber(this.number), autocommit: false };
    }

    insert = (member, key) =>
        ask(member, {
            insert: 'prepared',
            documents: [{ _id: `new ${key}`, by: key }],
            ...this.identity,
            startTransaction: true,
            $db: DB,
        });

    /* One insert and one update, so that there is something to see and something to conflict with. */
    async write(member, key) {
        const first = await this.insert(member, key);
        assert.equal(first?.ok, 1, JSON.stringify(first));
        const updates = [{ q: { _id: `old ${key}` }, u: { $set: { by: key } } }];
        const second = await ask(member, { update: 'prepared', updates, ...this.identity, $db: DB });
        assert.equal(second?.nModified, 1, JSON.stringify(second));
        return this;
    }

    prepare = (member, writeConcern = { w: 'majority' }) =>
        ask(member, { prepareTransaction: 1, ...this.identity, writeConcern, $db: 'admin' });

    async mustPrepare(member, writeConcern) {
        const reply = await this.prepare(member, writeConcern);
        assert.equal(reply?.ok, 1, JSON.stringify(reply));
        assert.ok(reply.prepareTimestamp instanceof Timestamp, JSON.stringify(reply));
        this.prepareTimestamp = reply.prepareTimestamp;
        return this;
    }

    commit = (member, extra = {}) =>
        ask(member, {
            commitTransaction: 1,
            ...this.identity,
            ...majority,
            commitTimestamp: this.prepareTimestamp,
            ...extra,
            $db: 'admin',
        });

    abort = (member, extra = {}) =>
        ask(member, { abortTransaction: 1, ...this.identity, ...majority, ...extra, $db: 'admin' });

    /* Asks whoever is primary until there is an answer that counts: it is the last word. */
    async decide(set, verb) {
        return waitFor(
            async () => {
                const primary = await set.findPrimary();
                if (primary === null) return null;
                const reply = await this[verb](primary);
                if (reply === null || reply.writeConcernError !== undefined) return null;
                return reply.ok === 1 || !ASK_AGAIN.includes(reply.code) ? reply : null;
            },
            { timeoutMs: DECISION_MS_MAX, what: `an answer to ${verb}` },
        );
    }

    async mustDecide(set, verb) {
        const reply = await this.decide(set, verb);
        assert.equal(reply.ok, 1, `${verb}: ${JSON.stringify(reply)}`);
    }
}
