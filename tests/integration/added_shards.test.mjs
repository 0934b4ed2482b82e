/*
 * Goal (RTE-4, RTE-6): what goes to all shards also goes to one that was added a moment ago, whichever router is asked.
 * Method: routers that knew the cluster before a shard was added; ranges move there through another router.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startCluster, startShard } from '../lib/cluster.mjs';

let cluster;
const added = [];
const through = async (i, options = {}) => (await cluster.client(options, cluster.routers[i])).db('d');

const addShard = async () => {
    const name = `added${added.length}`;
    const shard = await startShard(name);
    added.push(shard);
    await cluster.admin({ addShard: shard.address });
    return name;
};

before(async () => {
    cluster = await startCluster({ shards: 1, routers: 3 });
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
});
after(async () => {
    await Promise.all(added.map((shard) => shard.remove()));
    await cluster?.remove();
});

/* Documents 0 to 9 by k; those from `k` on are on the shard `to`. */
const spread = async (name, k, to) => {
    await cluster.admin({ shardCollection: `d.${name}`, key: { k: 1 } });
    await (await through(0)).collection(name).insertMany(Array.from({ length: 10 }, (_, i) => ({ _id: i, k: i })));
    return async () => {
        await cluster.admin({ split: `d.${name}`, middle: { k } });
        await cluster.admin({ moveRange: `d.${name}`, min: { k }, toShard: to });
    };
};

test('RTE-4: a cluster without shards has no documents, and no changes', async () => {
    const empty = await startCluster({ shards: 0, routers: 2 });
    try {
        const [first, second] = await Promise.all(empty.routers.map((router) => empty.client({}, router)));
        const streams = [['d', 'c', {}], ['d', 1, {}], ['admin', 1, { allChangesForCluster: true }]];
        for (const [db, aggregate, options] of streams) {
            const { cursor } = await first.db(db).command({ aggregate, pipeline: [{ $changeStream: options }], cursor: {} });
            assert.deepEqual([cursor.firstBatch, Number(cursor.id)], [[], 0]);
        }
        assert.deepEqual(await first.db('d').collection('c').aggregate([{ $match: {} }]).toArray(), []);
        const shard = await startShard('late');
        added.push(shard);
        await empty.admin({ addShard: shard.address });
        assert.deepEqual(await second.db('nowhere').collection('c').find().toArray(), []); // it is told at once
        assert.deepEqual(await second.db('nowhere').collection('c').aggregate([]).toArray(), []);
    } finally {
        await empty.remove();
    }
});

test('RTE-6: a router that knew no shard at all writes to all of them', async () => {
    const move = await spread('first', 5, await addShard());
    await move();
    const db = await through(1, { retryWrites: false });
    const { matchedCount } = await db.collection('first').updateOne({ _id: 7 }, { $set: { a: 1 } });
    assert.equal(matchedCount, 1);
    assert.equal((await db.collection('first').updateMany({}, { $set: { b: 1 } })).modifiedCount, 10);
    assert.equal((await db.collection('first').deleteMany({ _id: { $gte: 4 } })).deletedCount, 6);
});

test('RTE-6: a router with an old routing table and an old list of shards writes to all of them', async () => {
    for (const retryWrites of [false, true])
        for (const ordered of [false, true]) {
            const name = `old_${retryWrites}_${ordered}`;
            const coll = (await through(2, { retryWrites })).collection(name);
            await cluster.admin({ shardCollection: `d.${name}`, key: { k: 1 } });
            await coll.insertMany(Array.from({ length: 10 }, (_, i) => ({ _id: i, k: i }))); // by a table with one shard
            const to = await addShard();
            await cluster.admin({ split: `d.${name}`, middle: { k: 5 } });
            await cluster.admin({ moveRange: `d.${name}`, min: { k: 5 }, toShard: to });
            const result = await coll.bulkWrite([
                { updateMany: { filter: {}, update: { $inc: { n: 1 } } } },
                { updateMany: { filter: { _id: { $lt: 9 } }, update: { $inc: { n: 1 } } } },
                { updateOne: { filter: { _id: 8 }, update: { $inc: { m: 1 } } } },
            ], { ordered });
            assert.equal(result.modifiedCount, 20);
            const rows = await coll.find().sort({ _id: 1 }).toArray();
            assert.deepEqual(rows.map(({ n, m }) => [n, m]), Array.from({ length: 10 }, (_, i) => [i < 9 ? 2 : 1, i === 8 ? 1 : undefined]));
            assert.equal((await coll.deleteMany({})).deletedCount, 10);
        }
});

test('RTE-4: what asks all shards about a database asks those that were added', async () => {
    const to = await addShard();
    await cluster.admin({ enableSharding: 'elsewhere', primaryShard: to });
    await (await cluster.client()).db('elsewhere').collection('c').insertOne({});
    for (const router of cluster.routers) {
        const client = await cluster.client({}, router);
        const { databases } = await client.db('admin').command({ listDatabases: 1, nameOnly: true });
        assert.ok(databases.some(({ name }) => name === 'elsewhere'));
        assert.equal((await client.db('elsewhere').command({ dbStats: 1 })).objects, 1);
    }
});
