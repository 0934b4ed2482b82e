/*
 * Goal (RTE-2, RTE-3, RTE-5, RNG-5): secondaries of shards check versions by what their primary has stored for them, show no document
 * that the shard does not own, and obey critical sections. Fail-overs of shards and of the config server go unnoticed.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { waitFor } from '../lib/server.mjs';

describe('shards of three members', () => {
    let cluster;
    let client;
    let secondary; // the same, reading from secondaries
    const ids = (docs) => docs.map(({ _id }) => _id).sort((a, b) => a - b);
    const majority = { writeConcern: { w: 3 } };

    before(async () => {
        cluster = await startCluster({ members: 3 });
        client = await cluster.client();
        secondary = await cluster.client({ readPreference: 'secondary' });
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    });
    after(() => cluster?.remove());

    const onSecondaries = async (shard, run) => {
        const primary = await shard.waitForPrimary();
        for (const member of shard.members.filter((other) => other !== primary))
            await run(await shard.direct(member, { readPreference: 'secondary' }));
    };

    test('RTE-2: an unsharded collection is read on secondaries, which know its database', async () => {
        await client.db('d').collection('plain').insertOne({ _id: 1 }, majority);
        assert.deepEqual(await secondary.db('d').collection('plain').find().toArray(), [{ _id: 1 }]);
        await waitFor(async () => {
            let known = 0;
            await onSecondaries(cluster.shards[0], async (direct) => {
                known += await direct.db('config').collection('cache.databases').countDocuments({ _id: 'd' });
            });
            return known === 2;
        }, { what: 'the stored entry of the database' });
    });

    test('RTE-2: a sharded collection is read on secondaries by what their primary has stored', async () => {
        const coll = client.db('d').collection('c');
        await cluster.admin({ shardCollection: 'd.c', key: { k: 'hashed' } });
        await coll.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i, k: i })), majority);
        const found = await secondary.db('d').collection('c').find().toArray();
        assert.deepEqual(ids(found), Array.from({ length: 200 }, (_, i) => i));
        for (const shard of cluster.shards)
            await onSecondaries(shard, async (direct) => {
                const entry = await direct.db('config').collection('cache.collections').findOne({ _id: 'd.c' });
                if (entry === null) return; // a member that nobody has asked
                assert.equal(entry.refreshing, false);
                assert.equal(await direct.db('config').collection('cache.chunks.d.c').countDocuments(), 4);
            });
    });

    test('MIG-1: a move waits for the write concern that it is throttled by, and fails if there is none such', async () => {
        const coll = client.db('d').collection('throttled');
        await cluster.admin({ shardCollection: 'd.throttled', key: { _id: 1 } });
        await coll.insertMany(Array.from({ length: 20 }, (_, _id) => ({ _id })), majority);
        const owner = async () => (await client.db('config').collection('chunks').findOne({ uuid: (await client.db('config').collection('collections').findOne({ _id: 'd.throttled' })).uuid })).shard;
        const move = (to, writeConcern, more = {}) =>
            cluster.admin({ moveChunk: 'd.throttled', find: { _id: 1 }, to, _secondaryThrottle: true, _waitForDelete: true, writeConcern, ...more });
        for (const [writeConcern, message] of [[{ w: 4, wtimeout: 3000 }, /Not enough data-bearing nodes/], [{ w: 'unknown' }, /unknown/]]) {
            await assert.rejects(move('shard1', writeConcern), { code: 96, message });
            assert.equal(await owner(), 'shard0');
        }
        await assert.rejects(move('shard1', { w: 1 }, { _secondaryThrottle: { w: 4 } }), { code: 96 });
        for (const [to, writeConcern] of [['shard1', { w: 3, wtimeout: 30_000 }], ['shard0', { w: 'majority' }]]) {
            const reply = await move(to, writeConcern);
            assert.equal(reply.writeConcernError, undefined);
            assert.equal(await owner(), to);
        }
        assert.equal(await coll.countDocuments(), 20);
    });

    test('RNG-5: what a shard does not own is shown by none of its members', async () => {
        const [first] = cluster.shards;
        const direct = await first.direct(await first.waitForPrimary());
        const own = ids(await direct.db('d').collection('c').find().toArray());
        const foreign = Array.from({ length: 200 }, (_, i) => i).filter((i) => !own.includes(i)).slice(0, 20);
        /* Orphans: documents of the other shard, put here behind the routers' backs. */
        await direct.db('d').collection('c').insertMany(foreign.map((i) => ({ _id: i, k: i, isOrphan: true })), majority);
        for (const who of [client, secondary]) {
            const coll = who.db('d').collection('c');
            assert.equal(await coll.countDocuments(), 200);
            assert.equal(await coll.countDocuments({ isOrphan: true }), 0);
            assert.deepEqual(await coll.find({ _id: { $in: foreign }, isOrphan: true }).toArray(), []);
            assert.equal((await coll.distinct('isOrphan')).length, 0);
        }
        await client.db('d').collection('c').updateMany({}, { $set: { seen: 1 } });
        assert.equal(await direct.db('d').collection('c').countDocuments({ isOrphan: true, seen: 1 }), 0);
        await direct.db('d').collection('c').deleteMany({ isOrphan: true });
    });

    test('REP-3: secondaries read a sharded collection at a time, also one before a chunk has moved', async () => {
        await cluster.admin({ shardCollection: 'd.timed', key: { k: 1 } });
        const insert = { insert: 'timed', documents: Array.from({ length: 20 }, (_, k) => ({ _id: k, k })) };
        const { operationTime } = await client.db('d').command({ ...insert, ...majority });
        const read = async (command, concern) => {
            const { cursor } = await secondary.db('d').command({ ...command, readConcern: { level: 'snapshot', ...concern } }, { readPreference: 'secondary' });
            return ids(cursor.firstBatch);
        };
        const find = { find: 'timed' };
        const pipeline = { aggregate: 'timed', pipeline: [{ $sort: { _id: 1 } }], cursor: {} };
        const all = Array.from({ length: 20 }, (_, i) => i);
        for (const command of [find, pipeline]) {
            assert.deepEqual(await read(command), all);
            assert.deepEqual(await read(command, { atClusterTime: operationTime }), all);
        }
        await cluster.admin({ split: 'd.timed', middle: { k: 10 } });
        await cluster.admin({ moveChunk: 'd.timed', find: { k: 10 }, to: 'shard1' });
        await client.db('d').command({ delete: 'timed', deletes: [{ q: { k: 15 }, limit: 1 }], ...majority });
        for (const command of [find, pipeline]) {
            assert.deepEqual(await read(command), all.filter((i) => i !== 15));
            assert.deepEqual(await read(command, { atClusterTime: operationTime }), all);
        }
    });

    test('RTE-3: secondaries notice that a collection was dropped and sharded anew', async () => {
        await client.db('d').collection('c').drop();
        await cluster.admin({ shardCollection: 'd.c', key: { other: 1 } });
        await client.db('d').collection('c').insertMany([{ _id: 1, other: 1 }, { _id: 2, other: 2 }], majority);
        assert.deepEqual(ids(await secondary.db('d').collection('c').find().toArray()), [1, 2]);
        await client.db('d').collection('c').drop();
        assert.deepEqual(await secondary.db('d').collection('c').find().toArray(), []);
    });

    test('RTE-5: fail-overs of a shard and of the config server go unnoticed', { timeout: 120_000 }, async () => {
        await cluster.admin({ shardCollection: 'd.f', key: { k: 'hashed' } });
        const coll = client.db('d').collection('f');
        const insert = (from) => coll.insertMany(Array.from({ length: 20 }, (_, i) => ({ _id: from + i, k: from + i })));
        await insert(0);
        const [first] = cluster.shards;
        await first.stepDown();
        await insert(20);
        const primary = await first.waitForPrimary();
        await primary.kill();
        await first.waitForPrimary({ other: primary });
        await insert(40);
        await primary.start();
        assert.equal(await coll.countDocuments(), 60);
        await cluster.admin({ split: 'd.f', find: { k: 1 } });
        assert.equal(await coll.countDocuments(), 60);
    });

    test('DDL-2: a coordinator goes on under the next primary', { timeout: 120_000 }, async () => {
        const [first] = cluster.shards;
        await first.waitForSecondaries();
        const primary = await first.waitForPrimary();
        const reached = await hangAt(first, primary, 'create.participants');
        const outcome = cluster.admin({ shardCollection: 'd.g', key: { k: 'hashed' } }).then(
            (reply) => reply.collectionsharded,
            (error) => error,
        );
        await reached();
        await primary.kill();
        await first.waitForPrimary({ other: primary });
        const done = await outcome;
        if (done !== 'd.g') await cluster.admin({ shardCollection: 'd.g', key: { k: 'hashed' } });
        await client.db('d').collection('g').insertMany([{ k: 1 }, { k: 2 }]);
        assert.equal(await client.db('d').collection('g').countDocuments(), 2);
        await primary.start();
        await first.waitForSecondaries();
        await first.waitForReplication();
        /* The old primary is a secondary now: it is in no section either. */
        assert.equal(await secondary.db('d').collection('g').countDocuments(), 2);
    });

    test('RTE-2, RTE-5: secondaries without a primary serve by what it has stored, and by nothing older', { timeout: 120_000 }, async () => {
        await cluster.admin({ shardCollection: 'd.alone', key: { k: 'hashed' } });
        await client.db('d').collection('alone').insertMany([...Array(20).keys()].map((k) => ({ _id: k, k })), majority);
        await client.db('d').collection('aloneToo').insertOne({ _id: 1 }, majority);
        /* Its section has ended, and nobody has read it since. */
        await client.db('d').collection('outdated').insertOne({ _id: 1, k: 1 }, majority);
        await cluster.admin({ shardCollection: 'd.outdated', key: { _id: 1 } });
        const [first] = cluster.shards;
        await first.waitForSecondaries();
        await first.waitForReplication();
        const primary = await first.waitForPrimary();
        const [rest, last] = first.members.filter((member) => member !== primary);
        await primary.kill();
        await rest.kill();
        try {
            await last.restart(); // knows nothing but what is stored
            const reader = (await cluster.client({ readPreference: 'secondary', serverSelectionTimeoutMS: 60_000 })).db('d');
            const read = (name) => reader.collection(name).find({}, { maxTimeMS: 20_000 }).toArray();
            await waitFor(async () => (await first.hello(last))?.secondary === true, { what: 'the last member' });
            assert.deepEqual(ids(await read('aloneToo')), [1]);
            assert.deepEqual(ids(await read('alone')), [...Array(20).keys()]);
            await assert.rejects(reader.collection('outdated').find({}, { maxTimeMS: 3000 }).toArray());
        } finally {
            await primary.start();
            await rest.start();
        }
        await first.waitForPrimary();
    });

    test('RTE-3: what was stored before a section ended is not gone by', { timeout: 120_000 }, async () => {
        const [first] = cluster.shards;
        await first.waitForSecondaries();
        const stored = async (name) => {
            const direct = await first.direct(await first.waitForPrimary());
            return direct.db('config').collection('cache.collections').findOne({ _id: `d.${name}` });
        };
        await cluster.admin({ shardCollection: 'd.o', key: { k: 1 } });
        assert.equal((await stored('o'))?.outdated, true);
        await client.db('d').collection('o').insertOne({ k: 1 }, majority);
        assert.equal((await stored('o'))?.outdated, undefined);
        assert.equal((await stored('o'))?.refreshing, false);
        await client.db('d').collection('o').drop();
        assert.equal(await stored('o'), null);
    });

    async function hangAt(shard, member, phase) {
        const data = { at: phase, blockTimeMS: 60_000 };
        const { count } = await shard.command(member, { configureFailPoint: 'task.beforeRun', mode: 'alwaysOn', data });
        const wait = { waitForFailPoint: 'task.beforeRun', timesEntered: Number(count) + 1, maxTimeMS: 20_000 };
        return () => shard.command(member, wait);
    }

    test('RNG-3: a range that has moved is deleted when no secondary reads it any more, without the delay', { timeout: 120_000 }, async () => {
        await cluster.admin({ shardCollection: 'd.moved', key: { k: 1 } });
        const documents = Array.from({ length: 1000 }, (_, k) => ({ _id: k, k }));
        await client.db('d').collection('moved').insertMany(documents, { writeConcern: { w: 3 } });
        const { primary } = await client.db('config').collection('databases').findOne({ _id: 'd' });
        const [donor, recipient] = [...cluster.shards].sort(({ name }) => (name === primary ? -1 : 1));
        const direct = await donor.direct(await donor.waitForPrimary());
        const left = () => direct.db('d').collection('moved').countDocuments();
        const cursor = secondary.db('d').collection('moved').find({}, { batchSize: 100 }).sort({ k: 1 });
        assert.equal((await cursor.next()).k, 0);
        await cluster.admin({ moveRange: 'd.moved', min: { k: 0 }, max: { k: 900 }, toShard: recipient.name });
        /* Several heartbeats later, too. */
        await new Promise((resolve) => setTimeout(resolve, 6000));
        assert.equal(await left(), 1000);
        const rest = await cursor.toArray();
        assert.deepEqual(rest.map(({ k }) => k), documents.slice(1).map(({ k }) => k));
        await waitFor(async () => (await left()) === 100, { timeoutMs: 30_000, what: 'the range to be deleted' });
        assert.equal(await secondary.db('d').collection('moved').countDocuments(), 1000);
    });

    test('RNG-3: orphanCleanupKeepsDelay waits for the whole delay', { timeout: 120_000 }, async () => {
        await cluster.admin({ shardCollection: 'd.kept', key: { k: 1 } });
        await client.db('d').collection('kept').insertMany(Array.from({ length: 100 }, (_, k) => ({ _id: k, k })));
        const { primary } = await client.db('config').collection('databases').findOne({ _id: 'd' });
        const [donor, recipient] = [...cluster.shards].sort(({ name }) => (name === primary ? -1 : 1));
        const member = await donor.waitForPrimary();
        await donor.command(member, { setParameter: 1, orphanCleanupKeepsDelay: true });
        await cluster.admin({ moveRange: 'd.kept', min: { k: 0 }, toShard: recipient.name });
        await new Promise((resolve) => setTimeout(resolve, 6000));
        const direct = await donor.direct(member);
        assert.equal(await direct.db('d').collection('kept').countDocuments(), 100);
        await donor.command(member, { setParameter: 1, orphanCleanupKeepsDelay: false });
        await waitFor(async () => (await direct.db('d').collection('kept').countDocuments()) === 0, { timeoutMs: 30_000, what: 'the range to be deleted' });
    });
});
