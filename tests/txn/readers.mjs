/*
 * readers.mjs - clients of every member that sum up the accounts all the time, in every way in which a
 * snapshot can be read.
 */
import assert from 'node:assert/strict';
import { checkBank } from '../lib/history/bank.mjs';
import { isExpected } from '../repl/load.mjs';
import { isTransient } from './attempt.mjs';
import { DB, pause } from './world.mjs';

/* Snapshots may be gone; after a rollback there is none for a while; what is prepared may be in the way. */
const NOT_NOW = [
    50, // MaxTimeMSExpired
    134, // ReadConcernMajorityNotAvailableYet
    246, // SnapshotUnavailable
];

/* Each: how the accounts are read at once. On the primary inside of a transaction, elsewhere outside. */
const READERS = {
    'a transaction': async (client, collection) => {
        const session = client.startSession();
        try {
            session.startTransaction({ readConcern: { level: 'snapshot' }, readPreference: 'primary' });
            // Twice, with something between: the snapshot does not move.
            const first = await collection.find({}, { session }).toArray();
            await pause(5);
            const second = await collection.find({}, { session }).toArray();
            assert.deepEqual(second, first, 'a transaction saw two states');
            return first;
        } finally {
            await session.abortTransaction().catch(() => {});
            await session.endSession().catch(() => {});
        }
    },
    snapshot: (_, collection) => collection.find({}, { readConcern: { level: 'snapshot' } }).toArray(),
    majority: (_, collection) => collection.find({}, { readConcern: { level: 'majority' } }).toArray(),
    local: (_, collection) => collection.find({}, { readConcern: { level: 'local' } }).toArray(),
};

export class Readers {
    counts = {};
    problems = [];
    #isOver = true;
    #work = [];
    #total;
    #kinds;

    constructor(total, kinds = Object.keys(READERS)) {
        this.#total = total;
        this.#kinds = kinds;
    }

    start(world) {
        this.#isOver = false;
        for (const [i, member] of world.members.entries())
            for (const kind of this.#kinds) this.#work.push(this.#reader(world, i, member, kind));
        for (const work of this.#work) work.catch(() => {});
    }

    async stop() {
        this.#isOver = true;
        const ends = await Promise.allSettled(this.#work);
        this.#work = [];
        for (const end of ends) if (end.status === 'rejected') throw end.reason;
        assert.deepEqual(this.problems.slice(0, 5), []);
    }

    async #reader(world, i, member, kind) {
        let client = null;
        const where = `${kind} on member ${i}`;
        while (!this.#isOver) {
            try {
                client ??= await world.set.direct(member, {
                    serverSelectionTimeoutMS: 500,
                    socketTimeoutMS: 3000,
                    retryReads: false,
                });
                const collection = client.db(DB).collection('accounts');
                const accounts = await READERS[kind](client, collection);
                const role = kind === 'a transaction' ? kind : `${kind} read`;
                this.counts[role] = (this.counts[role] ?? 0) + 1;
                this.problems.push(...checkBank([{ where, accounts }], this.#total));
            } catch (error) {
                // With a member that is killed go the clients of it, in the middle of whatever they do.
                const isClosed = error.name === 'MongoExpiredSessionError';
                const isKnown = isClosed || isExpected(error) || isTransient(error);
                if (!isKnown && !NOT_NOW.includes(error.code)) throw error;
                await client?.close().catch(() => {});
                client = null;
            }
            await pause(15);
        }
        await client?.close().catch(() => {});
    }
}
