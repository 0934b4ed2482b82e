/*
 * Goal (CST-1, I16): a change stream shows every change that a majority has, once, in the order of the
 * oplog, and none that was rolled back; the changes of a transaction come together and in their order;
 * whoever was cut off goes on where he was, at any member.
 *
 * Method: writers with and without transactions; streams of a collection, a database and the whole set,
 * on the primary and on secondaries, closed at random and resumed by their tokens, while members are
 * killed, step down, sleep or roll back. In the end each stream is compared with the primary's oplog.
 *
 * STREAM_ROUNDS: how many faults (8). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';
import { isExpected } from '../repl/load.mjs';
import { Network } from '../lib/network.mjs';
import { insist } from './attempt.mjs';
import { changesOf } from './oplog_changes.mjs';
import { DB, MEMBERS, World, pause } from './world.mjs';

const ROUNDS = Number(process.env.STREAM_ROUNDS ?? 8);
const COLLECTIONS = ['a', 'b', 'c'];
const WRITERS = 3;
const EVENTS_BETWEEN_CUTS = 40;
const CATCH_UP_MS_MAX = 60_000;
const seed = seedOfRun();
const rand = random(seed);
const network = new Network(MEMBERS);
const world = new World(network);
console.error(`change streams: ${ROUNDS} rounds, TEST_SEED=${seed}`);

let hasFailed = false;
let begin; // operation time from which everything is read
let nextId = 0;
let rollbacks = 0;

before(async () => {
    await world.start();
    const client = await world.connect();
    for (const name of COLLECTIONS)
        await client.db(DB).createCollection(name, { writeConcern: { w: 'majority' } });
    const { operationTime } = await client.db('admin').command({
        appendOplogNote: 1,
        data: { msg: 'begin' },
        writeConcern: { w: 'majority' },
    });
    begin = operationTime;
    await world.set.closeClients();
});
after(async () => {
    if (world.set !== undefined) await world.discard(hasFailed);
    network.remove();
});

/* ---- writers ---- */

/* Each change has a document of its own or one that all share; what becomes of it the oplog tells. */
async function change(db, random_, options) {
    const collection = db.collection(random_.pick(COLLECTIONS));
    const kind = random_();
    const shared = `shared${random_.below(10)}`;
    if (kind < 0.4) await collection.insertOne({ _id: `n${nextId++}`, n: 0 }, options);
    else if (kind < 0.6)
        await collection.updateOne({ _id: shared }, { $inc: { n: 1 }, $set: { at: nextId++ } }, { ...options, upsert: true });
    else if (kind < 0.75) await collection.replaceOne({ _id: shared }, { replaced: nextId++ }, options);
    else if (kind < 0.85) await collection.deleteOne({ _id: shared }, options);
    else {
        const { session, ...concern } = options;
        const documents = [{ _id: `m${nextId++}` }, { _id: `m${nextId++}` }];
        await db.command({ insert: collection.collectionName, documents, ...concern }, { session });
    }
}

async function writer(client, random_, state) {
    const db = client.db(DB);
    while (!state.isOver) {
        try {
            if (random_() < 0.5) {
                const w = random_() < 0.5 ? 1 : 'majority';
                await change(db, random_, { writeConcern: { w } });
            } else {
                const session = client.startSession();
                const count = 1 + random_.below(5);
                const body = async () => {
                    for (let i = 0; i < count; i++) await change(db, random_, { session });
                };
                await insist(session, body, {}, () => state.isOver).finally(() => session.endSession().catch(() => {}));
            }
        } catch (error) {
            // Two upserts of the same document at once: one of them is told so.
            if (!isExpected(error) && error.code !== 11000) throw error;
        }
        await pause(random_.below(15));
    }
}

/* ---- readers ---- */

const WATCHERS = {
    'of a collection': { watch: (client) => [client.db(DB).collection('a')], filter: ({ coll }) => coll === 'a' },
    'of a database': { watch: (client) => [client.db(DB)] },
    'of a database, on secondaries': { watch: (client) => [client.db(DB, { readPreference: 'secondary' })] },
    'of the whole set': {
        watch: (client) => [client, [{ $match: { 'ns.db': DB } }]],
    },
};

class Reader {
    events = [];
    resumes = 0;

    constructor(name, client, random_) {
        this.name = name;
        this.client = client;
        this.random = random_;
    }

    async run(state) {
        let token = null;
        while (!state.isSeen(this)) {
            const [source, pipeline = []] = WATCHERS[this.name].watch(this.client);
            const how = this.random() < 0.5 ? 'resumeAfter' : 'startAfter';
            const from = token === null ? { startAtOperationTime: begin } : { [how]: token };
            const stream = source.watch(pipeline, { ...from, maxAwaitTimeMS: 100, batchSize: 1 + this.random.below(20) });
            try {
                for (let left = 1 + this.random.below(EVENTS_BETWEEN_CUTS); left > 0 && !state.isSeen(this); left--) {
                    const event = await stream.tryNext();
                    // The token of an event, or of a batch without one.
                    if (event === null) {
                        token = stream.resumeToken ?? token;
                        continue;
                    }
                    token = event._id;
                    this.events.push(event);
                }
            } catch (error) {
                if (!isExpected(error) && !error.hasErrorLabel?.('ResumableChangeStreamError')) throw error;
                await pause(20);
            } finally {
                await stream.close().catch(() => {});
            }
            this.resumes++;
        }
    }
}

/* ---- rounds ---- */

/* Null when nothing was written. */
async function writeAlone(primary) {
    const client = await world.set.direct(primary, { socketTimeoutMS: 2000, retryWrites: false });
    const random_ = random(rand.below(2 ** 30));
    let isWritten = null;
    try {
        for (let i = 0; i < 10; i++) {
            await client.db(DB).collection('b').insertOne({ _id: `alone${nextId++}` }, { writeConcern: { w: 1 } });
            isWritten = true;
            await change(client.db(DB), random_, { writeConcern: { w: 1 } });
        }
    } catch (error) {
        if (!isExpected(error) && error.code !== 11000) throw error;
    } finally {
        await client.close();
    }
    return isWritten;
}

/* What the primary writes alone no stream may ever show. */
async function rollBack() {
    await world.rollBack(writeAlone);
    rollbacks++;
}

const describeEvent = ({ operationType, ns, documentKey, clusterTime }) =>
    `${operationType} ${ns.coll} ${documentKey?._id} ${clusterTime}`;

test('CST-1: streams show what a majority has, once and in order, through all faults', async () => {
    const client = await world.connect();
    const watching = await world.connect({ socketTimeoutMS: 6000 });
    const writing = { isOver: false };
    let last = null;
    const reading = {
        isSeen: ({ events }) => last !== null && events.some(({ documentKey }) => documentKey?._id === last),
    };
    const readers = Object.keys(WATCHERS).map((name, i) => new Reader(name, watching, random(seed + 500 + i)));
    const reads = Promise.allSettled(readers.map((reader) => reader.run(reading)));
    const writes = Promise.allSettled(
        Array.from({ length: WRITERS }, (_, i) => writer(client, random(seed + i), writing)),
    );
    try {
        // Sessions that are killed take the streams with them for good, and indexes have no events.
        const isFit = (name) => !['nothing', 'killSessions', 'buildIndexes'].includes(name);
        const faults = [...world.faults.filter(isFit), 'rollBack'];
        for (let i = 0; i < ROUNDS; i++) {
            const fault = faults[i % faults.length];
            await pause(400);
            await (fault === 'rollBack' ? rollBack() : world[fault](rand));
        }
        writing.isOver = true;
        for (const end of await writes) if (end.status === 'rejected') throw end.reason;
        await world.calm();
        await client.db(DB).collection('a').insertOne({ _id: 'the last' }, { writeConcern: { w: 'majority' } });
        last = 'the last';
        await waitFor(() => readers.every((reader) => reading.isSeen(reader)), {
            timeoutMs: CATCH_UP_MS_MAX,
            what: 'the last event in all streams',
        });
        for (const end of await reads) if (end.status === 'rejected') throw end.reason;

        const primary = await world.set.direct(await world.primary());
        const expected = await changesOf(primary, DB, begin);
        assert.ok(expected.length > 20 * ROUNDS, `${expected.length} changes`);
        assert.ok(rollbacks > 0 || ROUNDS < 8, 'nothing was rolled back');
        for (const { name, events } of readers) {
            const wanted = expected.filter(WATCHERS[name].filter ?? (() => true));
            const texts = wanted.map(({ type, coll, id, ts }) => `${type} ${coll} ${id} ${ts}`);
            const found = events.map(describeEvent);
            const at = texts.findIndex((text, i) => text !== found[i]);
            assert.ok(
                at === -1 && found.length === texts.length,
                `seed ${seed}, ${name}: ${found.length} events of ${texts.length}; at ${at}: ` +
                    `${found.slice(Math.max(0, at - 1), at + 4)} instead of ${texts.slice(Math.max(0, at - 1), at + 4)}`,
            );
        }
        console.error(
            `${expected.length} changes, ${rollbacks} rollbacks, resumed ${readers.map(({ resumes }) => resumes)} times, ` +
                `${expected.filter(({ isTransaction }) => isTransaction).length} in transactions`,
        );
        await world.checkAgreement(`seed ${seed}`);
    } catch (error) {
        hasFailed = true;
        writing.isOver = true;
        reading.isSeen = () => true;
        await Promise.all([writes, reads]);
        throw error;
    }
});
