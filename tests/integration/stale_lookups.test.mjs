/*
 * Goal (RTE-3): a router that does not know that a collection was sharded, or that its database moved, gives no wrong result for stages that
 * read that collection besides another one; also when the shard that runs them does not know it either.
 *
 * Method: one router changes metadata, the other one has read before and is not told. Members of the shard are restarted or lose their office,
 * so that nothing is in their memory.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';

const STALE_CONFIG = 13388;
const KEYS = 40;
const majority = { writeConcern: { w: 'majority' } };

const STAGES = {
    $lookup: [
        { $lookup: { from: 'f', localField: 'all', foreignField: 'on', as: 'found' } },
        { $project: { _id: 0, ids: '$found._id' } },
    ],
    '$lookup of a pipeline': [
        { $lookup: { from: 'f', pipeline: [{ $match: { on: 1 } }], as: 'found' } },
        { $project: { _id: 0, ids: '$found._id' } },
    ],
    $graphLookup: [
        { $graphLookup: { from: 'f', startWith: '$all', connectFromField: 'none', connectToField: 'on', as: 'found' } },
        { $project: { _id: 0, ids: '$found._id' } },
    ],
    '$lookup in $facet': [
        { $facet: { all: [{ $lookup: { from: 'f', localField: 'all', foreignField: 'on', as: 'found' } }, { $project: { ids: '$found._id' } }] } },
        { $project: { ids: { $first: '$all.ids' } } },
    ],
    $unionWith: [
        { $unionWith: 'f' },
        { $match: { on: 1 } },
        { $group: { _id: null, ids: { $push: '$_id' } } },
    ],
};

describe('two routers, shards of two members', () => {
    let cluster;
    let changer; // the database, through the router that changes metadata
    let stale; // through the other one
    let staleClient;
    let number = 0;

    before(async () => {
        cluster = await startCluster({ members: 2, routers: 2 });
    });
    after(() => cluster?.remove());

    /* A database on shard0 with two collections, both known to the stale router as unsharded. */
    beforeEach(async () => {
        const name = `d${number++}`;
        await cluster.admin({ enableSharding: name, primaryShard: 'shard0' });
        changer = (await cluster.client()).db(name);
        staleClient = await cluster.client({}, cluster.routers[1]);
        stale = staleClient.db(name);
        await changer.collection('l').insertOne({ all: 1 }, majority);
        await changer.collection('f').insertMany(Array.from({ length: KEYS }, (_, _id) => ({ _id, on: 1 })), majority);
        for (const stages of Object.values(STAGES)) assert.deepEqual(await found(stages), keys(0));
    });

    const keys = (from) => Array.from({ length: KEYS }, (_, i) => from + i);
    async function found(stages, options = {}) {
        const [row] = await stale.collection('l').aggregate(stages, options).toArray();
        return row.ids.sort((a, b) => a - b);
    }

    /* Half of `f` moves to shard1, and all keys rise, so that documents which were left behind are wrong as well. */
    async function shardAndMove() {
        const ns = `${changer.databaseName}.f`;
        await cluster.admin({ shardCollection: ns, key: { _id: 1 } });
        await cluster.admin({ split: ns, middle: { _id: KEYS / 2 } });
        await cluster.admin({ moveChunk: ns, find: { _id: KEYS }, to: 'shard1' });
        const coll = changer.collection('f');
        await coll.deleteMany({}, majority);
        await coll.insertMany(keys(10).map((_id) => ({ _id, on: 1 })), majority);
    }

    async function expectAll(options) {
        for (const [name, stages] of Object.entries(STAGES)) assert.deepEqual(await found(stages, options), keys(10), name);
    }

    /* Both members begin anew, one after the other. */
    async function restartShard() {
        const [shard] = cluster.shards;
        for (const member of shard.members) {
            await member.restart();
            await shard.waitForPrimary();
            await shard.waitForSecondaries();
        }
    }

    /* The next one of the router is the first that asks for `f`: each stage gets a shard that knows nothing. */
    const forEachStage = (title, run) => {
        for (const [name, stages] of Object.entries(STAGES)) test(`${name} ${title}`, () => run(stages));
    };

    forEachStage('finds what is on other shards although neither the router nor the shard, which has been restarted, knows of them', async (stages) => {
        await shardAndMove();
        await restartShard();
        assert.deepEqual(await found(stages), keys(10));
    });

    test('after a fail-over all of them find what is on other shards', async () => {
        await shardAndMove();
        await cluster.shards[0].stepDown();
        await expectAll();
    });

    test('on secondaries, restarted or not', async () => {
        const options = { readPreference: 'secondary', readConcern: { level: 'majority' } };
        for (const stages of Object.values(STAGES)) assert.deepEqual(await found(stages, options), keys(0));
        await shardAndMove();
        await expectAll(options);
        await restartShard();
        await cluster.routers[1].restart();
        stale = (await cluster.client({}, cluster.routers[1])).db(changer.databaseName);
        await expectAll(options);
    });

    test('a database that moved is read where it is', async () => {
        await cluster.admin({ movePrimary: changer.databaseName, to: 'shard1' });
        await changer.collection('f').deleteMany({}, majority);
        await changer.collection('f').insertMany(keys(10).map((_id) => ({ _id, on: 1 })), majority);
        await restartShard();
        await expectAll();
    });

    test('a collection that was sharded elsewhere altogether, of which the shard has nothing, is read', async () => {
        await changer.collection('f').drop();
        const ns = `${changer.databaseName}.f`;
        await cluster.admin({ shardCollection: ns, key: { _id: 1 } });
        await cluster.admin({ moveChunk: ns, find: { _id: 1 }, to: 'shard1' });
        await changer.collection('f').insertMany(keys(10).map((_id) => ({ _id, on: 1 })), majority);
        await restartShard();
        await expectAll();
    });

    test('more collections than a request is repeated are looked for at once', async () => {
        const names = Array.from({ length: 15 }, (_, i) => `f${i}`);
        for (const name of names) await changer.collection(name).insertOne({ on: 1 }, majority);
        await restartShard();
        const stages = names.map((from) => ({ $lookup: { from, localField: 'all', foreignField: 'on', as: from } }));
        const [row] = await stale.collection('l').aggregate(stages).toArray();
        for (const name of names) assert.equal(row[name].length, 1, name);
    });

    test('a cursor whose other collection is sharded between two batches fails instead of missing documents', async () => {
        await changer.collection('l').insertMany(Array.from({ length: 300 }, () => ({ all: 1 })), majority);
        const cursor = stale.collection('l').aggregate(STAGES.$lookup, { batchSize: 2 });
        assert.equal((await cursor.next()).ids.length, KEYS);
        assert.equal((await cursor.next()).ids.length, KEYS);
        await shardAndMove();
        await fails(cursor.toArray(), STALE_CONFIG);
    });

    test('$merge does not write into a collection that has been sharded', async () => {
        await shardAndMove();
        await restartShard();
        await stale.collection('l').aggregate([{ $project: { _id: { $literal: 45 }, on: { $literal: 2 } } }, { $merge: 'f' }]).toArray();
        assert.deepEqual(await changer.collection('f').find({ _id: 45 }).toArray(), [{ _id: 45, on: 2 }]);
        assert.equal(await changer.collection('f').countDocuments(), KEYS);
    });
});
