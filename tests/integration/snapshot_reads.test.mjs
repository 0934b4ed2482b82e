/* Reads at a time of the past outside of transactions: what existed then, on every member. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Timestamp } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { startServer, waitFor } from '../lib/server.mjs';

const MAJORITY = { w: 'majority' };
const SNAPSHOT_TOO_OLD = 239;

describe('snapshot reads on three members', () => {
    let set, client, db;
    before(async () => {
        /* A long window: the times that tests keep must not fall out of it on a slow machine. */
        set = await startReplicaSet({ args: ['--setParameter', 'minSnapshotHistoryWindowInSeconds=600'] });
        client = await set.client();
        db = client.db('test', { writeConcern: MAJORITY });
    });
    after(async () => await set?.remove());

    const at = (atClusterTime) => ({ level: 'snapshot', atClusterTime });
    const findAt = async (coll, time, extra = {}) =>
        (await db.command({ find: coll, readConcern: at(time), ...extra })).cursor.firstBatch;
    /* A time at which everything written so far exists. */
    const now = async () => (await db.command({ insert: 'clock', documents: [{}], writeConcern: MAJORITY })).operationTime;

    /* A client of one member whose snapshots show everything written so far. */
    async function settled(readPreference) {
        const member = readPreference === 'primary' ? await set.findPrimary() : (await set.secondaries())[0];
        const time = await now();
        const direct = await set.direct(member, { readPreference });
        const isThere = () =>
            direct.db('test').command({ find: 'clock', readConcern: at(time) }, { readPreference })
                .then(() => true, () => false); // refused while the member has not heard of the time
        await waitFor(isThere, { timeoutMs: 20_000, what: 'the time on the member' });
        return direct;
    }

    test('REP-3: a snapshot session sees one time on primary and secondaries', async () => {
        const coll = db.collection('session');
        await coll.insertMany([{ _id: 1, v: 'old' }, { _id: 2, v: 'old' }]);
        for (const readPreference of ['primary', 'secondary']) {
            await coll.updateMany({}, { $set: { v: 'old' } });
            const reader = await settled(readPreference);
            const there = reader.db('test').collection('session');
            const session = reader.startSession({ snapshot: true });
            const options = { session, readPreference };
            assert.deepEqual(await there.distinct('v', {}, options), ['old']);
            const time = session.snapshotTime;
            assert.ok(time instanceof Timestamp);
            await coll.updateMany({}, { $set: { v: 'new' } }, { writeConcern: { w: 3 } });
            assert.equal((await there.findOne({ _id: 1 }, options)).v, 'old');
            assert.equal((await there.aggregate([{ $match: { v: 'old' } }], options).toArray()).length, 2);
            assert.equal(await there.countDocuments({ v: 'new' }, options), 0);
            assert.deepEqual(session.snapshotTime, time);
            await session.endSession();
            assert.equal((await there.findOne({ _id: 1 }, { readPreference })).v, 'new');
        }
    });

    test('REP-3: a cursor keeps its time over all batches, on a secondary too', async () => {
        const coll = db.collection('batches');
        await coll.insertMany(Array.from({ length: 20 }, (_, _id) => ({ _id, v: 'old' })));
        for (const readPreference of ['primary', 'secondary']) {
            await coll.updateMany({}, { $set: { v: 'old' } });
            const reader = await settled(readPreference);
            const there = reader.db('test').collection('batches');
            const session = reader.startSession({ snapshot: true });
            const options = { session, readPreference, batchSize: 3 };
            const cursors = [there.find({}, options), there.aggregate([{ $sort: { _id: 1 } }], options)];
            const seen = [];
            for (const cursor of cursors) seen.push(await cursor.next());
            await coll.updateMany({}, { $set: { v: 'new' } }, { writeConcern: { w: 3 } });
            for (const cursor of cursors) seen.push(...(await cursor.toArray()));
            assert.equal(seen.length, 40);
            assert.ok(seen.every(({ v }) => v === 'old'));
            await session.endSession();
        }
    });

    test('CAT-4: a collection is read as it was: not yet made, dropped, made again, renamed', async () => {
        const before = await now();
        await db.createCollection('form');
        await db.collection('form').insertOne({ _id: 1, v: 'first' });
        const first = await now();
        await db.collection('form').drop();
        const dropped = await now();
        await db.collection('form').insertOne({ _id: 1, v: 'second' });
        const second = await now();
        await client.db('admin').command({ renameCollection: 'test.form', to: 'test.form2' });
        assert.deepEqual(await findAt('form', before), []);
        assert.deepEqual(await findAt('form', first), [{ _id: 1, v: 'first' }]);
        assert.deepEqual(await findAt('form', dropped), []);
        assert.deepEqual(await findAt('form', second), [{ _id: 1, v: 'second' }]);
        assert.deepEqual(await findAt('form2', second), []);
        assert.deepEqual(await findAt('form2', await now()), [{ _id: 1, v: 'second' }]);
        const distinct = await db.command({ distinct: 'form', key: 'v', readConcern: at(first) });
        assert.deepEqual(distinct.values, ['first']);
        assert.deepEqual(distinct.atClusterTime, first);
    });

    test('CAT-4: an index that is younger than the snapshot is not used for it', async () => {
        const coll = db.collection('indexed');
        await coll.insertMany(Array.from({ length: 10 }, (_, _id) => ({ _id, a: _id })));
        const time = await now();
        await coll.createIndex({ a: 1 });
        await coll.updateMany({}, { $inc: { a: 100 } });
        assert.equal((await findAt('indexed', time, { filter: { a: { $lt: 5 } } })).length, 5);
        assert.equal((await findAt('indexed', await now(), { filter: { a: { $lt: 5 } } })).length, 0);
        await fails(() => findAt('indexed', time, { filter: { a: 1 }, hint: { a: 1 } }), 2);
        assert.equal((await findAt('indexed', await now(), { filter: { a: 101 }, hint: { a: 1 } })).length, 1);
    });

    test('REP-3: a cursor at a snapshot goes on after its collection was dropped, or says that it cannot', async () => {
        const coll = db.collection('going');
        await coll.insertMany(Array.from({ length: 9 }, (_, _id) => ({ _id })));
        const { cursor } = await db.command({ find: 'going', batchSize: 2, readConcern: { level: 'snapshot' } });
        await coll.drop();
        await coll.insertOne({ _id: 'other' });
        const more = await db.command({ getMore: cursor.id, collection: 'going' }).catch((error) => error);
        if (more instanceof Error) assert.ok([175, 246].includes(more.code), more.message);
        else assert.deepEqual(more.cursor.nextBatch.map(({ _id }) => _id), [2, 3, 4, 5, 6, 7, 8]);
    });

    test('REP-3: wrong snapshot reads get the errors of MongoDB', async () => {
        const time = await now();
        const snapshot = { level: 'snapshot' };
        await fails(() => db.command({ count: 'session', readConcern: snapshot }), 72);
        await fails(() => db.command({ listCollections: 1, readConcern: snapshot }), 72);
        await fails(() => db.command({ insert: 'session', documents: [{}], readConcern: snapshot }), 72);
        await fails(() => findAt('session', new Timestamp({ t: time.getHighBits() + 1000, i: 1 })), 72);
        await fails(() => findAt('session', new Timestamp({ t: 0, i: 0 })), 72);
        await fails(() => db.command({ find: 'session', readConcern: { level: 'majority', atClusterTime: time } }), 72);
        const both = { ...at(time), afterClusterTime: time };
        await fails(() => db.command({ find: 'session', readConcern: both }), 72);
        await fails(() => findAt('session', new Timestamp({ t: 5, i: 1 })), SNAPSHOT_TOO_OLD);
    });

    test('REP-3: after a restart a snapshot from before it is right or refused', async () => {
        const coll = db.collection('restarted');
        await coll.insertOne({ _id: 1, v: 'old' }, { writeConcern: { w: 3 } });
        const time = await now();
        await coll.drop();
        await coll.insertOne({ _id: 1, v: 'new' }, { writeConcern: { w: 3 } });
        await set.waitForReplication();
        const [member] = await set.secondaries();
        await member.kill();
        await member.start();
        await set.waitForSecondaries();
        await set.waitForReplication();
        const direct = await set.direct(member);
        const read = async (when) =>
            (await direct.db('test').command({ find: 'restarted', readConcern: at(when) },
                { readPreference: 'secondary' })).cursor.firstBatch[0]?.v;
        const seen = await read(time).catch((error) => error.code);
        assert.ok(['old', SNAPSHOT_TOO_OLD, 246].includes(seen), String(seen));
        const latest = await now();
        /* The member may not have heard of that time yet, and refuses it then. */
        const isNew = async () => (await read(latest).catch(() => null)) === 'new';
        await waitFor(isNew, { timeoutMs: 20_000, what: 'the present' });
    });
});

test('REP-3: a standalone node refuses snapshot reads', async () => {
    const server = await startServer();
    try {
        const db = (await server.client()).db('test');
        await fails(() => db.command({ find: 'c', readConcern: { level: 'snapshot' } }), 123);
    } finally {
        await server.remove();
    }
});
