/*
 * Goal: reads of sharded collections through a router give what one node with all documents gives.
 * Method: the same documents in a collection of a plain node and, spread over three shards, in
 * collections with a ranged, a compound and a hashed shard key; a table of commands is run on all.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Long, ObjectId, Timestamp } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { RawSession } from '../lib/raw_session.mjs';
import { startServer, waitFor } from '../lib/server.mjs';
import { shardByHand } from '../lib/shard_by_hand.mjs';

const COUNT = 2000;
const OWNERS = ['shard0', 'shard1', 'shard2'];
const WORDS = ['apple', 'Apple', 'banana', 'Banana', 'cherry', 'éclair', 'Eclair'];

const failsWith = (promise, code) =>
    assert.rejects(promise, (error) => {
        assert.equal(error.code, code, `${error.code}: ${error.message}`);
        return true;
    });

/* Shuffled, so that no shard has them in an order of use. */
const docs = Array.from({ length: COUNT }, (_, i) => {
    const k = (i * 7919) % COUNT;
    return {
        _id: k,
        k,
        g: k % 7,
        r: (k * 31) % 1000,
        word: WORDS[k % WORDS.length],
        tags: [k % 3, k % 5, `t${k % 4}`],
        sub: [{ a: k % 11, b: k }, { a: k % 13, b: -k }],
        d: new Date(1_600_000_000_000 + k * 60_000),
        ...(k % 10 === 0 && { rare: k }),
    };
});
const others = Array.from({ length: 40 }, (_, i) => ({ _id: i, g: i % 7, name: `o${i}`, parent: i > 0 ? (i - 1) >> 1 : null }));

const COLLECTIONS = {
    ranged: { key: { k: 1 }, points: [{ k: 600 }, { k: 1300 }], owner: ({ k }) => OWNERS[k < 600 ? 0 : k < 1300 ? 1 : 2] },
    compound: {
        key: { g: 1, k: 1 },
        points: [{ g: 2, k: 1000 }, { g: 5, k: 0 }],
        owner: ({ g, k }) => OWNERS[g < 2 || (g === 2 && k < 1000) ? 0 : g < 5 ? 1 : 2],
    },
};

let cluster;
let client;
let plain;
let node; // collections of the plain node
let routed; // database through the router

const ids = (list) => list.map(({ _id }) => _id);
const text = (value) => JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? String(v) : v));
const sorted = (list) => list.map(text).sort();

before(async () => {
    [cluster, plain] = await Promise.all([startCluster({ shards: 3 }), startServer()]);
    client = await cluster.client();
    node = (await plain.client()).db('reads');
    routed = client.db('reads');
    await cluster.admin({ enableSharding: 'reads', primaryShard: 'shard0' });
    const direct = Object.fromEntries(
        await Promise.all(cluster.shards.map(async (shard) => [shard.name, (await shard.direct(shard.members[0])).db('reads')])),
    );
    const place = (name, list, owner) =>
        Promise.all(
            OWNERS.map((shard) => {
                const own = list.filter((doc) => owner(doc) === shard);
                return own.length > 0 && direct[shard].collection(name).insertMany(own);
            }),
        );
    for (const [name, { key, points, owner }] of Object.entries(COLLECTIONS)) {
        await shardByHand(cluster, `reads.${name}`, { key, points, owners: OWNERS });
        await place(name, docs, owner);
    }
    const third = Long.MAX_VALUE.divide(3);
    await shardByHand(cluster, 'reads.hashed', {
        key: { k: 'hashed' },
        points: [{ k: third.negate() }, { k: third }],
        owners: OWNERS,
    });
    const few = docs.filter(({ k }) => k < 300);
    const hashes = node.aggregate([{ $documents: few.map(({ k }) => ({ k })) }, { $set: { hash: { $toHashedIndexKey: '$k' } } }]);
    const shardOf = new Map();
    for (const { k, hash } of await hashes.toArray()) {
        const value = BigInt(hash);
        const cut = BigInt(third.toString());
        shardOf.set(k, OWNERS[value < -cut ? 0 : value < cut ? 1 : 2]);
    }
    await place('hashed', few, ({ k }) => shardOf.get(k));
    await shardByHand(cluster, 'reads.others_sharded', { key: { _id: 1 }, points: [{ _id: 10 }, { _id: 25 }], owners: OWNERS });
    await place('others_sharded', others, ({ _id }) => OWNERS[_id < 10 ? 0 : _id < 25 ? 1 : 2]);
    await routed.collection('others').insertMany(others);
    const collation = { locale: 'en', strength: 2 };
    await shardByHand(cluster, 'reads.collated', {
        key: { k: 1 },
        points: [{ k: 600 }, { k: 1300 }],
        owners: OWNERS,
        options: { collation },
    });
    await place('collated', docs, COLLECTIONS.ranged.owner);
    await node.createCollection('collated', { collation });
    for (const [name, list] of Object.entries({ all: docs, few, others, others_sharded: others, collated: docs }))
        await node.collection(name).insertMany(list);
    for (const name of ['ranged', 'compound']) {
        await routed.createCollection(`view_${name}`, { viewOn: name, pipeline: [{ $match: { g: { $lt: 4 } } }, { $set: { twice: { $multiply: ['$k', 2] } } }] });
    }
    await node.createCollection('view_all', { viewOn: 'all', pipeline: [{ $match: { g: { $lt: 4 } } }, { $set: { twice: { $multiply: ['$k', 2] } } }] });
});

after(async () => {
    await Promise.all([cluster?.remove(), plain?.remove()]);
});

/* [filter, options]; without a sort the order is not compared. */
const FINDS = [
    [{}, {}],
    [{}, { batchSize: 1, limit: 20, sort: { r: 1, k: -1 } }],
    [{}, { batchSize: 2, sort: { k: 1 } }],
    [{}, { batchSize: 50, sort: { k: -1 } }],
    [{}, { batchSize: 1999 }],
    [{ k: 5 }, {}],
    [{ k: { $gte: 590, $lt: 610 } }, { sort: { k: 1 } }],
    [{ k: { $in: [1, 700, 1999, 4000] } }, { sort: { k: 1 } }],
    [{ g: 2 }, { sort: { r: -1, _id: 1 } }],
    [{ g: { $in: [1, 6] } }, { sort: { word: 1, k: 1 }, limit: 100 }],
    [{ $or: [{ k: 3 }, { k: 1500 }] }, { sort: { k: 1 } }],
    [{ $and: [{ k: 3 }, { k: 4 }] }, {}],
    [{ r: { $lt: 50 } }, { sort: { r: 1, k: 1 }, skip: 10, limit: 15 }],
    [{ r: { $lt: 50 } }, { sort: { r: 1, k: 1 }, skip: 1000, limit: 15 }],
    [{}, { sort: { r: 1, k: 1 }, skip: 1995 }],
    [{}, { sort: { g: 1, r: -1, k: 1 }, projection: { _id: 0, word: 1 } }],
    [{}, { sort: { k: 1 }, projection: { sub: { $slice: 1 }, k: 1 }, limit: 30 }],
    [{ 'sub.a': 3 }, { sort: { k: 1 }, projection: { 'sub.$': 1 } }],
    [{}, { sort: { k: -1 }, projection: { sub: { $elemMatch: { a: { $gt: 9 } } } }, limit: 40 }],
    [{}, { sort: { r: 1, k: 1 }, projection: { _id: 0, key: { $meta: 'sortKey' } }, limit: 10 }],
    [{}, { sort: { k: 1 }, projection: { t: { $multiply: ['$k', '$g'] } }, limit: 10 }],
    [{ tags: 't1' }, { sort: { tags: 1, k: 1 }, limit: 50 }],
    [{}, { sort: { tags: -1, k: 1 }, limit: 50 }],
    [{}, { sort: { 'sub.b': 1, k: 1 }, limit: 50 }],
    [{ rare: { $exists: true } }, { sort: { rare: 1 } }],
    [{}, { sort: { rare: 1, k: 1 }, limit: 1850, skip: 1700 }],
    [{ word: 'apple' }, { sort: { k: 1 } }],
    [{ word: 'apple' }, { sort: { word: 1, k: 1 }, collation: { locale: 'en', strength: 1 } }],
    [{}, { sort: { word: 1, k: 1 }, collation: { locale: 'fr' }, limit: 600, batchSize: 33 }],
    [{ word: { $regex: '^b', $options: 'i' } }, { sort: { k: 1 } }],
    [{ $expr: { $gt: ['$r', '$k'] } }, { sort: { k: 1 }, batchSize: 17 }],
    [{ $expr: { $eq: ['$k', '$$wanted'] } }, { let: { wanted: { $add: [700, 1] } } }],
    [{ d: { $gt: new Date(1_600_000_000_000 + 1000 * 60_000) } }, { sort: { d: 1 }, limit: 5 }],
    [{ k: null }, {}],
    [{}, { sort: { k: 1 }, limit: 7, singleBatch: true, batchSize: 3 }],
    [{ k: { $gt: 1990 } }, { sort: { k: 1 }, hint: { _id: 1 } }],
    [{}, { hint: { _id: 1 }, min: { _id: 100 }, max: { _id: 110 }, sort: { _id: 1 } }],
];

const PIPELINES = [
    [],
    [{ $match: { k: { $lt: 100 } } }, { $count: 'n' }],
    [{ $match: { k: -1 } }, { $count: 'n' }],
    [{ $match: { $and: [{ k: 1 }, { k: 2 }] } }, { $group: { _id: null, n: { $sum: 1 } } }],
    [{ $count: 'n' }],
    [{ $group: { _id: '$g', n: { $sum: 1 }, sum: { $sum: '$r' }, avg: { $avg: '$r' }, min: { $min: '$k' }, max: { $max: '$k' } } }, { $sort: { _id: 1 } }],
    [{ $group: { _id: null, words: { $addToSet: '$word' } } }, { $unwind: '$words' }, { $sort: { words: 1 } }],
    [{ $group: { _id: '$word', dev: { $stdDevPop: '$g' } } }, { $project: { dev: { $round: ['$dev', 9] } } }, { $sort: { _id: 1 } }],
    [{ $sort: { r: 1, k: 1 } }, { $limit: 10 }],
    [{ $sort: { r: -1, k: 1 } }, { $skip: 100 }, { $limit: 10 }, { $project: { r: 1 } }],
    [{ $sort: { k: 1 } }, { $group: { _id: '$g', first: { $first: '$k' }, last: { $last: '$k' } } }, { $sort: { _id: 1 } }],
    [{ $unwind: '$tags' }, { $group: { _id: '$tags', n: { $sum: 1 } } }, { $sort: { _id: 1 } }],
    [{ $sortByCount: '$word' }, { $sort: { count: -1, _id: 1 } }],
    [{ $bucket: { groupBy: '$r', boundaries: [0, 100, 500, 1000], output: { n: { $sum: 1 } } } }],
    [{ $bucketAuto: { groupBy: '$k', buckets: 4 } }],
    [{ $facet: { a: [{ $count: 'n' }], b: [{ $sort: { k: 1 } }, { $limit: 2 }, { $project: { k: 1 } }] } }],
    [{ $match: { g: 3 } }, { $set: { x: { $add: ['$k', 1] } } }, { $unset: ['sub', 'tags'] }, { $sort: { x: 1 } }],
    [{ $setWindowFields: { partitionBy: '$g', sortBy: { k: 1 }, output: { rank: { $rank: {} }, sum: { $sum: '$r', window: { documents: [-1, 1] } } } } }, { $sort: { k: 1 } }, { $limit: 200 }, { $project: { rank: 1, sum: 1 } }],
    [{ $match: { k: { $lt: 50 } } }, { $lookup: { from: 'others', localField: 'g', foreignField: 'g', as: 'o' } }, { $project: { n: { $size: '$o' } } }, { $sort: { _id: 1 } }],
    [{ $match: { k: { $lt: 50 } } }, { $lookup: { from: 'others_sharded', localField: 'g', foreignField: 'g', as: 'o' } }, { $project: { names: { $sortArray: { input: '$o.name', sortBy: 1 } } } }, { $sort: { _id: 1 } }],
    [{ $match: { k: { $lt: 8 } } }, { $lookup: { from: 'others_sharded', let: { g: '$g' }, pipeline: [{ $match: { $expr: { $eq: ['$g', '$$g'] } } }, { $sort: { _id: 1 } }, { $limit: 2 }], as: 'o' } }, { $sort: { _id: 1 } }],
    [{ $match: { k: { $lt: 5 } } }, { $lookup: { pipeline: [{ $documents: [{ x: 1 }, { x: 2 }] }], as: 'o' } }, { $sort: { _id: 1 } }],
    [{ $match: { k: { $lt: 5 } } }, { $graphLookup: { from: 'others_sharded', startWith: '$g', connectFromField: 'parent', connectToField: '_id', as: 'up' } }, { $project: { up: { $sortArray: { input: '$up._id', sortBy: 1 } } } }, { $sort: { _id: 1 } }],
    [{ $match: { k: { $lt: 5 } } }, { $unionWith: 'others_sharded' }, { $group: { _id: null, n: { $sum: 1 } } }],
    [{ $match: { k: { $gt: 1995 } } }, { $unionWith: { coll: 'others', pipeline: [{ $match: { g: 1 } }] } }, { $sort: { _id: 1 } }, { $project: { name: 1, k: 1 } }],
    [{ $replaceWith: { v: '$k' } }, { $sort: { v: -1 } }, { $limit: 3 }],
    [{ $redact: { $cond: [{ $eq: ['$g', 1] }, '$$KEEP', '$$PRUNE'] } }, { $group: { _id: '$g', n: { $sum: 1 } } }],
    [{ $densify: { field: 'k', range: { step: 500, bounds: [0, 1001] } } }, { $match: { k: { $mod: [500, 0] } } }, { $sort: { k: 1 } }, { $project: { k: 1 } }],
    [{ $match: { word: 'apple' } }, { $group: { _id: '$word', n: { $sum: 1 } } }],
    [{ $group: { _id: { g: '$g', w: '$word' }, ks: { $push: '$k' } } }, { $project: { n: { $size: '$ks' } } }, { $sort: { '_id.g': 1, '_id.w': 1 } }],
    [{ $limit: 2000 }, { $match: { g: 1 } }, { $count: 'n' }],
    [{ $sample: { size: 100 } }, { $count: 'n' }],
    [{ $sample: { size: 0 } }],
    [{ $group: { _id: null, p: { $percentile: { input: '$k', p: [0.5], method: 'approximate' } } } }],
    [{ $group: { _id: null, top: { $topN: { n: 3, sortBy: { r: -1, k: 1 }, output: '$k' } } } }],
];

const COUNTS = [
    {},
    { query: { k: 5 } },
    { query: { g: 3 } },
    { query: { r: { $gt: 500 } }, limit: 100 },
    { query: { r: { $gt: 500 } }, limit: 100, skip: 950 },
    { skip: 10 },
    { skip: 1990, limit: 50 },
    { skip: 5000 },
    { limit: -30 },
    { query: { word: 'APPLE' }, collation: { locale: 'en', strength: 2 } },
    { query: { $and: [{ k: 1 }, { k: 2 }] } },
];

const DISTINCTS = [
    ['g', {}],
    ['word', {}],
    ['tags', {}],
    ['sub.a', { g: 2 }],
    ['word', { k: { $lt: 10 } }],
    ['missing', {}],
    ['r', { r: { $lt: 20 } }],
    ['d', { k: { $in: [1, 900, 1800] } }],
];

for (const name of ['ranged', 'compound'])
    describe(`a collection sharded by ${name === 'ranged' ? 'a range' : 'two fields'}`, () => {
        for (const [filter, options] of FINDS)
            test(`RTE-6: find ${text(filter)} ${text(options)}`, async () => {
                const expected = await node.collection('all').find(filter, options).toArray();
                const found = await routed.collection(name).find(filter, options).toArray();
                if (options.sort) assert.deepEqual(found, expected);
                else assert.deepEqual(sorted(found), sorted(expected));
            });
        for (const pipeline of PIPELINES)
            for (const batchSize of [undefined, 3])
                test(`RTE-6: aggregate ${text(pipeline)} by ${batchSize ?? 'default'}`, async () => {
                    const options = batchSize && { batchSize };
                    const expected = await node.collection('all').aggregate(pipeline, options).toArray();
                    const found = await routed.collection(name).aggregate(pipeline, options).toArray();
                    if (pipeline.some((stage) => stage.$sort)) assert.deepEqual(found, expected);
                    else assert.deepEqual(sorted(found), sorted(expected));
                });
        for (const options of COUNTS)
            test(`RTE-6: count ${text(options)}`, async () => {
                const expected = await node.command({ count: 'all', ...options });
                assert.equal((await routed.command({ count: name, ...options })).n, expected.n);
            });
        for (const [key, query] of DISTINCTS)
            test(`RTE-6: distinct ${key} of ${text(query)}`, async () => {
                const expected = await node.command({ distinct: 'all', key, query });
                assert.deepEqual((await routed.command({ distinct: name, key, query })).values, expected.values);
            });
        test('RTE-6: a view of it is read, counted and aggregated', async () => {
            const [here, there] = [routed.collection(`view_${name}`), node.collection('view_all')];
            const sort = { r: 1, k: 1 };
            for (const options of [{ sort, limit: 20 }, { sort, skip: 5, limit: 5, batchSize: 2, projection: { twice: 1 } }])
                assert.deepEqual(await here.find({ g: 1 }, options).toArray(), await there.find({ g: 1 }, options).toArray());
            const pipeline = [{ $group: { _id: '$g', n: { $sum: '$twice' } } }, { $sort: { _id: 1 } }];
            assert.deepEqual(await here.aggregate(pipeline).toArray(), await there.aggregate(pipeline).toArray());
            assert.equal(await here.countDocuments({ g: 2 }), await there.countDocuments({ g: 2 }));
            for (const command of [{ count: 'x', query: { g: 2 }, skip: 3 }, { distinct: 'x', key: 'word' }, { distinct: 'x', key: 'tags', query: { k: 8 } }]) {
                const [first] = Object.keys(command);
                const a = await routed.command({ ...command, [first]: `view_${name}` });
                const b = await node.command({ ...command, [first]: 'view_all' });
                assert.deepEqual([a.n, a.values], [b.n, b.values]);
            }
            await failsWith(here.find({}, { collation: { locale: 'fr' } }).toArray(), 167);
            await failsWith(here.find({}, { showRecordId: true }).toArray(), 168);
        });
    });

describe('other kinds of collections', () => {
    test('RTE-6: a hashed shard key: equality goes to one shard, all else to all', async () => {
        const [here, there] = [routed.collection('hashed'), node.collection('few')];
        for (const [filter, options] of FINDS.filter(([, { sort }]) => sort))
            assert.deepEqual(await here.find(filter, options).toArray(), await there.find(filter, options).toArray());
        for (const k of [0, 7, 42, 100, 299]) assert.deepEqual(ids(await here.find({ k }).toArray()), [k]);
        const { queryPlanner } = await here.find({ k: 42 }).explain('queryPlanner');
        assert.equal(queryPlanner.winningPlan.stage, 'SINGLE_SHARD');
        assert.equal((await here.find({ k: { $gt: 42 } }).explain('queryPlanner')).queryPlanner.winningPlan.shards.length, 3);
        assert.deepEqual((await here.distinct('g')), await there.distinct('g'));
        assert.equal(await here.countDocuments(), 300);
    });

    test('RTE-6: the default collation of a sharded collection counts, and another one if it is asked for', async () => {
        const [here, there] = [routed.collection('collated'), node.collection('collated')];
        const sort = { word: 1, k: 1 };
        for (const options of [{ sort }, { sort, collation: { locale: 'simple' } }, { sort, batchSize: 9, limit: 100 }])
            assert.deepEqual(await here.find({ word: { $in: ['APPLE', 'eclair'] } }, options).toArray(), await there.find({ word: { $in: ['APPLE', 'eclair'] } }, options).toArray());
        const pipeline = [{ $group: { _id: '$word', n: { $sum: 1 } } }, { $project: { _id: { $toLower: '$_id' }, n: 1 } }, { $sort: { _id: 1 } }];
        assert.deepEqual(await here.aggregate(pipeline).toArray(), await there.aggregate(pipeline).toArray());
        const lower = (values) => values.map((value) => value.toLowerCase());
        assert.deepEqual(lower(await here.distinct('word')), lower(await there.distinct('word')));
        assert.equal(await here.countDocuments({ word: 'BANANA' }), await there.countDocuments({ word: 'BANANA' }));
        for (const from of ['others', 'others_sharded']) {
            const joined = [{ $match: { k: { $lt: 3 } } }, { $lookup: { from, pipeline: [{ $match: { name: 'O1' } }], as: 'o' } }, { $sort: { k: 1 } }];
            assert.deepEqual(await here.aggregate(joined).toArray(), await there.aggregate(joined).toArray());
        }
    });

    test('RTE-6: pipelines over an unsharded collection that read a sharded one', async () => {
        const [here, there] = [routed.collection('others'), node.collection('others')];
        const pipelines = (all) => [
            [{ $lookup: { from: all, localField: '_id', foreignField: 'k', as: 'd' } }, { $unwind: '$d' }, { $sort: { _id: 1 } }, { $project: { 'd.r': 1 } }],
            [{ $unionWith: { coll: all, pipeline: [{ $match: { k: { $lt: 100 } } }] } }, { $group: { _id: '$g', n: { $sum: 1 } } }, { $sort: { _id: 1 } }],
            [{ $facet: { a: [{ $match: { g: 1 } }, { $lookup: { from: all, localField: 'g', foreignField: 'k', as: 'd' } }, { $sort: { _id: 1 } }] } }],
        ];
        const expected = pipelines('all');
        for (const [i, pipeline] of pipelines('compound').entries())
            assert.deepEqual(await here.aggregate(pipeline, { batchSize: 4 }).toArray(), await there.aggregate(expected[i]).toArray());
        const inView = [{ $match: { _id: { $lt: 5 } } }, { $lookup: { from: 'view_ranged', localField: '_id', foreignField: 'k', as: 'v' } }, { $sort: { _id: 1 } }];
        const inPlainView = structuredClone(inView);
        inPlainView[1].$lookup.from = 'view_all';
        assert.deepEqual(await here.aggregate(inView).toArray(), await there.aggregate(inPlainView).toArray());
        const made = [{ $documents: [{ g: 3 }, { g: 4 }] }, { $lookup: { from: 'ranged', localField: 'g', foreignField: 'k', as: 'd' } }];
        const plainMade = structuredClone(made);
        plainMade[1].$lookup.from = 'all';
        assert.deepEqual(await routed.aggregate(made).toArray(), await node.aggregate(plainMade).toArray());
    });

    test('RTE-6: the default collation of an unsharded collection counts in what the router does', async () => {
        const collation = { locale: 'en', strength: 2 };
        for (const db of [routed, node]) {
            await db.createCollection('words', { collation });
            await db.collection('words').insertMany(WORDS.map((word, i) => ({ _id: i, word })));
        }
        const grouped = (from) => [{ $lookup: { from, localField: '_id', foreignField: 'k', as: 'd' } }, { $group: { _id: { $toLower: '$word' }, n: { $sum: { $size: '$d' } } } }, { $match: { _id: { $gte: 'APPLE' } } }, { $sort: { _id: 1 } }];
        assert.deepEqual(
            await routed.collection('words').aggregate(grouped('ranged')).toArray(),
            await node.collection('words').aggregate(grouped('all')).toArray(),
        );
    });

    test('RTE-6: stages that tell about a collection run on every owner', async () => {
        const stats = await routed.collection('ranged').aggregate([{ $collStats: { count: {} } }]).toArray();
        assert.deepEqual([stats.length, stats.reduce((sum, { count }) => sum + count, 0)], [3, COUNT]);
        const indexes = await routed.collection('ranged').aggregate([{ $indexStats: {} }]).toArray();
        assert.equal(indexes.filter(({ name }) => name === '_id_').length, 3);
        assert.equal(await routed.collection('ranged').estimatedDocumentCount(), COUNT);
    });
});

describe('where reads go', () => {
    const queries = () =>
        Promise.all(
            cluster.shards.map(async (shard) => {
                const { opcounters } = await shard.command(shard.members[0], { serverStatus: 1 });
                return Number(opcounters.query);
            }),
        );

    for (const [filter, expected] of [
        [{ k: 5 }, [5, 0, 0]],
        [{ k: { $gte: 700, $lt: 800 } }, [0, 5, 0]],
        [{ k: { $gt: 1200 } }, [0, 5, 5]],
        [{ k: { $in: [1, 1999] } }, [5, 0, 5]],
        [{ $or: [{ k: 1 }, { k: 2 }] }, [5, 0, 0]],
        [{ g: 1 }, [5, 5, 5]],
    ])
        test(`RTE-6: a find of ${text(filter)} asks only shards that may have it`, async () => {
            const before_ = await queries();
            for (let i = 0; i < 5; i++) await routed.collection('ranged').find(filter).batchSize(3000).toArray();
            assert.deepEqual((await queries()).map((count, i) => count - before_[i]), expected);
        });

    test('RTE-6: explain shows the shards, their plans and how they are merged', async () => {
        const c = routed.collection('ranged');
        const one = await c.find({ k: 5 }).explain('executionStats');
        assert.equal(one.queryPlanner.mongosPlannerVersion, 1);
        assert.equal(one.queryPlanner.winningPlan.stage, 'SINGLE_SHARD');
        const [shard] = one.queryPlanner.winningPlan.shards;
        assert.equal(shard.shardName, 'shard0');
        assert.equal(shard.connectionString, cluster.shards[0].address);
        assert.equal(shard.namespace, 'reads.ranged');
        assert.equal(shard.winningPlan.inputStage.stage, 'FETCH'); // below SHARDING_FILTER
        assert.equal(shard.winningPlan.inputStage.inputStage.stage, 'IXSCAN');
        assert.equal(one.executionStats.nReturned, 1);
        assert.equal(one.executionStats.executionStages.stage, 'SINGLE_SHARD');
        assert.equal(one.command.find, 'ranged');
        assert.equal(one.serverInfo.port, cluster.routers[0].port);
        const all = await c.find({ g: 1 }).sort({ r: 1 }).skip(2).limit(5).explain('allPlansExecution');
        assert.equal(all.queryPlanner.winningPlan.stage, 'SHARD_MERGE_SORT');
        assert.deepEqual(all.queryPlanner.winningPlan.shards.map(({ shardName }) => shardName).sort(), OWNERS);
        assert.equal(all.executionStats.nReturned, 21);
        assert.equal(all.executionStats.totalDocsExamined, COUNT);
        assert.equal(all.executionStats.allPlansExecution.length, 3);
        assert.equal((await c.find({ g: 1 }).explain('queryPlanner')).queryPlanner.winningPlan.stage, 'SHARD_MERGE');
        for (const command of [{ count: 'ranged', query: { k: 700 } }, { distinct: 'ranged', key: 'g', query: { k: 700 } }]) {
            const { queryPlanner } = await routed.command({ explain: command, verbosity: 'queryPlanner' });
            assert.deepEqual(queryPlanner.winningPlan.shards.map(({ shardName }) => shardName), ['shard1']);
        }
        const write = await routed.command({ explain: { update: 'ranged', updates: [{ q: { k: 1500 }, u: { $set: { x: 1 } } }] }, verbosity: 'queryPlanner' });
        assert.equal(write.queryPlanner.winningPlan.stage, 'SHARD_WRITE');
        assert.deepEqual(write.queryPlanner.winningPlan.shards.map(({ shardName }) => shardName), ['shard2']);
        assert.equal((await routed.collection('others').find({}).explain('queryPlanner')).queryPlanner.winningPlan.stage, 'SINGLE_SHARD');
        await failsWith(routed.command({ explain: { insert: 'ranged', documents: [{}] } }), 20);
        await failsWith(routed.command({ explain: { find: 'ranged', filter: { k: 1 }, nope: 1 } }), 40415);
    });

    test('RTE-6: shards explain by the version of the router: what they do not own is not counted, and a stale router is told', async () => {
        await shardByHand(cluster, 'reads.explained', { key: { k: 1 }, points: [{ k: 10 }], owners: OWNERS.slice(0, 2) });
        const c = routed.collection('explained');
        await c.insertMany([{ _id: 1, k: 1 }, { _id: 2, k: 2 }, { _id: 11, k: 11 }]);
        const there = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('reads').collection('explained');
        await there.insertOne({ _id: 99, k: 99 }); // not its own
        const { queryPlanner, executionStats } = await c.find({ _id: { $gt: 0 } }).explain('executionStats');
        assert.equal(executionStats.nReturned, 3);
        for (const { winningPlan } of queryPlanner.winningPlan.shards) assert.match(JSON.stringify(winningPlan), /SHARDING_FILTER/);
        const group = await c.aggregate([{ $match: { k: { $gt: 0 } } }, { $group: { _id: null, n: { $sum: 1 } } }]).explain('executionStats');
        for (const part of Object.values(group.shards)) assert.match(JSON.stringify(part), /SHARDING_FILTER/);
        await there.deleteOne({ _id: 99 });
    });

    test('RTE-6: a write that is refused for want of the shard key is not explained either', async () => {
        const explain = (command) => routed.command({ explain: command, verbosity: 'queryPlanner' });
        const wide = { k: { $gte: 0 } };
        await failsWith(explain({ findAndModify: 'ranged', query: wide, update: { $set: { x: 1 } } }), 61);
        await failsWith(explain({ delete: 'ranged', deletes: [{ q: wide, limit: 1 }] }), 61);
        await failsWith(explain({ update: 'ranged', updates: [{ q: wide, u: { $set: { x: 1 } } }] }), 72);
        await failsWith(explain({ update: 'ranged', updates: [{ q: wide, u: { $set: { x: 1 } }, upsert: true }] }), 61);
        for (const command of [
            { findAndModify: 'ranged', query: { k: 5 }, remove: true },
            { delete: 'ranged', deletes: [{ q: wide, limit: 0 }] },
            { update: 'ranged', updates: [{ q: { k: 5 }, u: { $set: { x: 1 } }, upsert: true }] },
        ])
            assert.equal((await explain(command)).ok, 1);
    });

    test('RTE-6: explain of a pipeline shows its two parts', async () => {
        const c = routed.collection('ranged');
        const group = await c.aggregate([{ $match: { g: 1 } }, { $group: { _id: '$word', n: { $sum: 1 } } }]).explain('queryPlanner');
        assert.equal(group.mergeType, 'mongos');
        assert.deepEqual(Object.keys(group.splitPipeline), ['shardsPart', 'mergerPart']);
        assert.deepEqual(group.splitPipeline.shardsPart[0], { $match: { g: { $eq: 1 } } });
        const unordered = { compareWholeSortKey: false, tailableMode: 'normal', nss: c.namespace, allowPartialResults: false };
        assert.deepEqual(group.splitPipeline.mergerPart[0], { $mergeCursors: unordered });
        const sorted = await c.aggregate([{ $sort: { word: 1 } }, { $limit: 3 }]).explain('queryPlanner');
        assert.deepEqual(sorted.splitPipeline.shardsPart[0], { $sort: { sortKey: { word: 1 } } });
        assert.deepEqual(sorted.splitPipeline.mergerPart[0], { $mergeCursors: { sort: { word: 1 }, ...unordered } });
        assert.deepEqual(Object.keys(group.shards).sort(), OWNERS);
        assert.ok(group.shards.shard0.host.includes(':'));
        assert.ok(group.shards.shard0.stages ?? group.shards.shard0.queryPlanner);
        const one = await c.aggregate([{ $match: { k: 1 } }, { $group: { _id: '$word' } }]).explain('queryPlanner');
        assert.equal(one.splitPipeline, null);
        assert.deepEqual(Object.keys(one.shards), ['shard0']);
        const whole = await routed.collection('others').aggregate([{ $match: { g: 1 } }]).explain('queryPlanner');
        assert.ok(whole.queryPlanner);
        const view = await routed.collection('view_ranged').find({ k: { $lt: 10 } }).explain('queryPlanner');
        assert.deepEqual(Object.keys(view.shards), ['shard0']);
    });
});

describe('cursors', () => {
    const open = async () => {
        let count = 0;
        for (const shard of cluster.shards) {
            const status = await shard.command(shard.members[0], { serverStatus: 1 });
            count += Number(status.metrics.cursor.open.total);
        }
        return count;
    };

    for (const [what, start] of [
        ['find', () => routed.collection('ranged').find({}, { batchSize: 5 })],
        ['sorted find', () => routed.collection('ranged').find({}, { batchSize: 5, sort: { r: 1 } })],
        ['aggregate', () => routed.collection('ranged').aggregate([{ $sort: { r: 1 } }], { batchSize: 5 })],
    ])
        test(`RTE-6: those of shards are closed with that of a ${what}`, async () => {
            const before_ = await open();
            const cursor = start();
            await cursor.next();
            assert.equal(await open(), before_ + 3);
            await cursor.close();
            await waitFor(async () => (await open()) === before_, { what: 'no cursor is left' });
        });

    test('RTE-6: killCursors, a single batch and a limit leave none on the shards', async () => {
        const before_ = await open();
        const { cursor } = await routed.command({ find: 'ranged', batchSize: 2 });
        assert.equal(cursor.firstBatch.length, 2);
        const killed = await routed.command({ killCursors: 'ranged', cursors: [cursor.id] });
        assert.deepEqual(killed.cursorsKilled.map(String), [String(cursor.id)]);
        await failsWith(routed.command({ getMore: cursor.id, collection: 'ranged' }), 43);
        const single = await routed.command({ find: 'ranged', batchSize: 2, singleBatch: true });
        assert.equal(String(single.cursor.id), '0');
        const limited = await routed.command({ find: 'ranged', limit: 4, sort: { k: 1 } });
        assert.deepEqual([String(limited.cursor.id), ids(limited.cursor.firstBatch)], ['0', [0, 1, 2, 3]]);
        await waitFor(async () => (await open()) === before_, { what: 'no cursor is left' });
    });

    test('RTE-6: a batch of none, then batches of any size', async () => {
        const { cursor } = await routed.command({ find: 'ranged', batchSize: 0, sort: { k: 1 }, limit: 10 });
        assert.equal(cursor.firstBatch.length, 0);
        const found = [];
        let id = cursor.id;
        for (const batchSize of [1, 2, 3, 100]) {
            const { cursor: next } = await routed.command({ getMore: id, collection: 'ranged', batchSize });
            found.push(...ids(next.nextBatch));
            id = next.id;
        }
        assert.deepEqual(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert.equal(String(id), '0');
    });

    test('RTE-6: a cursor that a shard has lost ends with an error, on all shards', async () => {
        const before_ = await open();
        const { cursor } = await routed.command({ find: 'ranged', batchSize: 2, sort: { k: 1 } });
        const [, shard] = cluster.shards;
        const direct = await shard.direct(shard.members[0]);
        await direct.db('admin').command({ killAllSessions: [] });
        await failsWith(routed.command({ getMore: cursor.id, collection: 'ranged', batchSize: 1500 }), 43);
        await failsWith(routed.command({ getMore: cursor.id, collection: 'ranged' }), 43);
        await waitFor(async () => (await open()) === before_, { what: 'no cursor is left' });
    });

    test('RTE-6: large documents come in batches that clients accept', async () => {
        await shardByHand(cluster, 'reads.large', { key: { k: 1 }, points: [{ k: 3 }, { k: 6 }], owners: OWNERS });
        const sizes = [6, 6, 6, 15.9, 1, 6, 6, 6, 15.9].map((megabytes) => Math.floor(megabytes * 1024 * 1024));
        for (const [i, shard] of cluster.shards.entries()) {
            const direct = (await shard.direct(shard.members[0])).db('reads').collection('large');
            for (const k of [3 * i, 3 * i + 1, 3 * i + 2]) await direct.insertOne({ _id: k, k, r: (k * 5) % 9, padding: 'x'.repeat(sizes[k]) });
        }
        const c = routed.collection('large');
        const order = (list) => list.map(({ _id, padding }) => [_id, padding.length]);
        const expected = sizes.map((size, k) => [k, size]);
        assert.deepEqual(order(await c.find().toArray()).sort(([a], [b]) => a - b), expected);
        assert.deepEqual(order(await c.find().sort({ k: 1 }).toArray()), expected);
        assert.deepEqual(order(await c.aggregate([{ $sort: { k: 1 } }, { $set: { more: 1 } }]).toArray()), expected);
        const byRank = expected.toSorted(([a], [b]) => ((a * 5) % 9) - ((b * 5) % 9));
        assert.deepEqual(order(await c.find().sort({ r: 1 }).skip(1).toArray()), byRank.slice(1));
    });

    test('RTE-6: they belong to the session they were opened in', async () => {
        const session = client.startSession();
        const c = routed.collection('ranged').find({}, { session, batchSize: 10, sort: { k: 1 } });
        assert.deepEqual(ids(await c.toArray()).length, COUNT);
        await session.endSession();
    });

    test('REP-3: a snapshot session sees one time on all shards', async () => {
        await shardByHand(cluster, 'reads.moment', { key: { k: 1 }, points: [{ k: 1 }, { k: 2 }], owners: OWNERS });
        const direct = await Promise.all(cluster.shards.map(async (shard) => (await shard.direct(shard.members[0])).db('reads').collection('moment')));
        const majority = { writeConcern: { w: 'majority' } };
        for (const [i, there] of direct.entries()) await there.insertOne({ _id: i, k: i, v: 'old' }, majority);
        const c = routed.collection('moment');
        await c.find().toArray(); // the router learns how late it is
        const session = client.startSession({ snapshot: true });
        assert.deepEqual((await c.find({}, { session, sort: { k: 1 } }).toArray()).map(({ v }) => v), ['old', 'old', 'old']);
        const time = session.snapshotTime;
        assert.equal(time._bsontype, 'Timestamp');
        for (const there of direct) await there.updateMany({}, { $set: { v: 'new' } }, majority);
        assert.deepEqual(await c.aggregate([{ $group: { _id: '$v', n: { $sum: 1 } } }], { session }).toArray(), [{ _id: 'old', n: 3 }]);
        assert.deepEqual(session.snapshotTime, time);
        await session.endSession();
        assert.deepEqual(await c.distinct('v'), ['new']);
        const other = client.startSession({ snapshot: true });
        assert.deepEqual(await c.aggregate([{ $group: { _id: '$v' } }], { session: other }).toArray(), [{ _id: 'new' }]);
        assert.equal(other.snapshotTime._bsontype, 'Timestamp');
        await other.endSession();
    });

    test('REP-3: distinct of a sharded collection is refused at a snapshot and in a transaction, of others not', async () => {
        await shardByHand(cluster, 'reads.values', { key: { k: 1 }, points: [], owners: OWNERS.slice(0, 1) });
        await routed.collection('values').insertOne({ _id: 0, k: 0 });
        await routed.collection('unsharded_values').insertOne({ _id: 0, k: 0 });
        await routed.createCollection('values_view', { viewOn: 'values', pipeline: [] });
        const readConcern = { level: 'snapshot' };
        await failsWith(routed.command({ distinct: 'values', key: 'k', readConcern }), 72);
        assert.deepEqual((await routed.command({ distinct: 'values', key: 'k', readConcern: { level: 'majority' } })).values, [0]);
        for (const name of ['unsharded_values', 'values_view'])
            assert.deepEqual((await routed.command({ distinct: name, key: 'k', readConcern })).values, [0]);
        const session = client.startSession();
        const inTransaction = async (body) => {
            session.startTransaction();
            await body();
            await session.abortTransaction();
        };
        await inTransaction(() => failsWith(routed.collection('values').distinct('k', {}, { session }), 263));
        await inTransaction(async () => assert.deepEqual(await routed.collection('unsharded_values').distinct('k', {}, { session }), [0]));
        await session.endSession();
    });

    test('REP-3: a snapshot whose time the client did not choose is taken anew if a shard has it no more', async () => {
        const { members } = cluster.shards[1];
        const fail = (command, mode, errorCode = 239) =>
            cluster.shards[1].command(members[0], {
                configureFailPoint: 'failCommand',
                mode,
                ...(mode !== 'off' && { data: { failCommands: [command], errorCode, failInternalCommands: true } }),
            });
        const { operationTime: atClusterTime } = await routed.command({ find: 'ranged', limit: 1 });
        const filter = { $expr: { $gte: ['$k', 0] } };
        for (const [name, command] of Object.entries({
            find: { find: 'ranged', filter },
            aggregate: { aggregate: 'ranged', pipeline: [{ $group: { _id: null, n: { $sum: 1 } } }], cursor: {} },
        })) {
            await fail(name, { times: 3 });
            await routed.command({ ...command, readConcern: { level: 'snapshot' } });
            await fail(name, 'alwaysOn');
            for (const readConcern of [{ level: 'snapshot' }, { level: 'snapshot', atClusterTime }])
                await assert.rejects(routed.command({ ...command, readConcern }), { code: 239 });
            await fail(name, 'off');
        }
    });

    test('REP-3: a snapshot over several shards may be after a time', async () => {
        const { operationTime } = await routed.command({ find: 'ranged', limit: 1 });
        const readConcern = { level: 'snapshot', afterClusterTime: operationTime };
        const { cursor } = await routed.command({ find: 'ranged', batchSize: 5, readConcern });
        assert.ok(cursor.firstBatch.length === 5 && cursor.atClusterTime.greaterThanOrEqual(operationTime));
    });

    test('REP-3: each batch of a snapshot over several shards tells its time', async () => {
        for (const command of [{ find: 'ranged', batchSize: 2 }, { aggregate: 'ranged', pipeline: [{ $sort: { k: 1 } }], cursor: { batchSize: 2 } }]) {
            const session = new RawSession(cluster.routers[0]);
            const { cursor } = await session.run({ ...command, readConcern: { level: 'snapshot' } }, undefined, 'reads');
            const more = await session.run({ getMore: Long.fromBigInt(BigInt(cursor.id)), collection: 'ranged', batchSize: 2 }, undefined, 'reads');
            assert.deepEqual(more.cursor.atClusterTime, cursor.atClusterTime);
            assert.equal((await session.run({ getMore: Long.fromBigInt(BigInt(cursor.id)), collection: 'ranged' }, undefined, 'reads')).cursor.atClusterTime._bsontype, 'Timestamp');
            session.close();
        }
    });

    test('REP-3: a pipeline at a time that a shard refuses leaves its time to nobody', async () => {
        await routed.collection('later').insertOne({ _id: 0 });
        const [{ members: [member] }] = cluster.shards;
        const there = (await cluster.shards[0].direct(member, { maxPoolSize: 1 })).db('reads');
        const { operationTime } = await there.command({ ping: 1 });
        await there.collection('later').insertOne({ _id: 'newer' }, { writeConcern: { w: 'majority' } });
        for (let i = 0; i < 30; i++) {
            const readConcern = { level: 'snapshot', atClusterTime: operationTime };
            const shardVersion = { e: new ObjectId(), t: new Timestamp({ t: 1, i: 1 }), v: new Timestamp({ t: 1, i: 0 }) };
            await failsWith(there.command({ aggregate: 'ranged', pipeline: [], cursor: {}, readConcern, shardVersion }), 13388);
            assert.equal(await there.collection('later').countDocuments({ _id: 'newer' }), 1);
        }
    });

    test('QRY-1: $$NOW and $$CLUSTER_TIME are the same on all shards, and in what the router does', async () => {
        const stages = [
            { $group: { _id: { now: '$$NOW', time: '$$CLUSTER_TIME' }, n: { $sum: 1 } } },
            { $set: { now: '$$NOW', time: '$$CLUSTER_TIME' } },
        ];
        const [row, ...more] = await routed.collection('ranged').aggregate(stages).toArray();
        assert.deepEqual(more, []);
        assert.equal(row.n, COUNT);
        assert.ok(row.time.equals(row._id.time) && row.now.getTime() === row._id.now.getTime());
        const { operationTime } = await routed.command({ ping: 1 });
        assert.ok(row.time.lessThanOrEqual(operationTime));
        const shown = await routed
            .collection('ranged')
            .find({ $expr: { $lt: [new Timestamp({ t: 1, i: 1 }), '$$CLUSTER_TIME'] } }, { projection: { t: '$$CLUSTER_TIME' } })
            .toArray();
        assert.equal(shown.length, COUNT);
        assert.ok(shown.every((found) => found.t.equals(shown[0].t)));
    });

    test('RTE-6: natural order, record ids and keys of an index come from several shards', async () => {
        const c = routed.collection('ranged');
        assert.deepEqual(ids(await c.find({}, { sort: { $natural: 1 } }).toArray()).sort((a, b) => a - b), Array.from({ length: COUNT }, (_, i) => i));
        const shown = await c.find({}, { showRecordId: true, sort: { k: 1 }, hint: { k: 1 }, limit: 700 }).toArray();
        assert.deepEqual(ids(shown), Array.from({ length: 700 }, (_, i) => i));
        assert.ok(shown.every((doc) => doc.$recordId !== undefined && doc.$sortKey === undefined));
        const keys = await c.find({}, { returnKey: true, hint: { k: 1 }, sort: { k: -1 }, limit: 800 }).toArray();
        assert.deepEqual(keys, Array.from({ length: 800 }, (_, i) => ({ k: COUNT - 1 - i })));
    });

    test('RTE-6: what cannot be asked of several shards is refused', async () => {
        await failsWith(routed.command({ find: 'ranged', tailable: true }), 2);
        await failsWith(routed.command({ find: 'ranged', awaitData: true, tailable: true }), 2);
        await failsWith(routed.command({ find: 'ranged', $_withSortKey: true, sort: { k: 1 } }), 51089);
        await failsWith(routed.command({ aggregate: 'ranged', pipeline: [], cursor: {}, fromMongos: true }), 51089);
        await failsWith(routed.command({ find: 'ranged', filter: { $nope: 1 } }), 2);
        await failsWith(routed.command({ find: 'ranged', sort: { k: 7 } }), 15975);
        await failsWith(routed.command({ find: 'ranged', limit: Long.MAX_VALUE, skip: 1 }), 15);
        await failsWith(routed.command({ aggregate: 'ranged', pipeline: [{ $nope: 1 }], cursor: {} }), 40324);
        await failsWith(routed.command({ aggregate: 'ranged', pipeline: [{ $_internalAddSortKey: { a: 1 } }], cursor: {} }), 5491300);
        const direct = await cluster.shards[0].direct(cluster.shards[0].members[0]);
        await failsWith(direct.db('reads').command({ find: 'ranged', $_withSortKey: true, sort: { k: 1 } }), 9);
    });

    test('RTE-6: a stage on the router has its memory and no disk', async () => {
        const limit = (bytes) => cluster.admin({ setParameter: 1, internalDocumentSourceGroupMaxMemoryBytes: bytes });
        const pipeline = [{ $group: { _id: '$k', subs: { $push: '$sub' } } }, { $sort: { _id: 1 } }];
        await limit(20_000);
        try {
            for (const allowDiskUse of [true, false])
                await failsWith(routed.collection('compound').aggregate(pipeline, { allowDiskUse }).toArray(), 292);
        } finally {
            await limit(100 * 1024 * 1024);
        }
        assert.equal((await routed.collection('compound').aggregate(pipeline).toArray()).length, COUNT);
    });

    test('RTE-6: a tailable cursor of a capped collection is passed on', async () => {
        await routed.createCollection('capped', { capped: true, size: 10_000 });
        await routed.collection('capped').insertOne({ _id: 1 });
        const cursor = routed.collection('capped').find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 2000 });
        assert.equal((await cursor.next())._id, 1);
        await routed.collection('capped').insertOne({ _id: 2 });
        assert.equal((await cursor.next())._id, 2);
        await cursor.close();
    });

    test('RTE-6: the time limit of a find holds for all shards', async () => {
        await failsWith(
            routed.collection('ranged').find({ $expr: { $gt: [{ $reduce: { input: { $range: [0, 20000] }, initialValue: 0, in: { $add: ['$$value', '$$this'] } } }, -1] } }, { maxTimeMS: 50 }).toArray(),
            50,
        );
    });
});

describe('pipelines that write', () => {
    const result = (db, name) => db.collection(name).find({}, { sort: { _id: 1 } }).toArray();

    test('RTE-7: $out and $merge of a sharded collection into unsharded ones', async () => {
        const pipelines = [
            [{ $match: { g: 1 } }, { $project: { k: 1, word: 1 } }, { $out: 'target' }],
            [{ $match: { k: { $lt: 20 } } }, { $project: { r: 1 } }, { $merge: 'target' }],
            [{ $match: { k: { $lt: 30 } } }, { $project: { x: '$g' } }, { $merge: { into: 'target', whenMatched: 'keepExisting' } }],
            [{ $group: { _id: '$g', n: { $sum: 1 } } }, { $merge: { into: 'target', let: { more: '$n' }, whenMatched: [{ $set: { n: { $add: ['$$more', 1] } } }] } }],
            [{ $match: { k: { $lt: 3 } } }, { $project: { y: 1 } }, { $merge: { into: 'target', whenMatched: 'replace', whenNotMatched: 'discard' } }],
        ];
        for (const pipeline of pipelines) {
            assert.deepEqual(await routed.collection('ranged').aggregate(pipeline).toArray(), []);
            await node.collection('all').aggregate(pipeline).toArray();
            assert.deepEqual(await result(routed, 'target'), await result(node, 'target'));
        }
        await failsWith(routed.collection('ranged').aggregate([{ $merge: { into: 'target', on: 'word' } }]).toArray(), 51183);
        await failsWith(routed.collection('ranged').aggregate([{ $merge: { into: 'target', whenNotMatched: 'fail' } }]).toArray(), 13113);
        const names = (await routed.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name);
        assert.deepEqual(names.filter((name) => name.startsWith('tmp.')), []);
    });

    test('RTE-7: $out and $merge into another database, wherever that is', async () => {
        for (const shard of cluster.shards) {
            const { name } = shard;
            await cluster.admin({ enableSharding: `other_${name}`, primaryShard: name });
            const there = (await cluster.client()).db(`other_${name}`);
            for (const source of ['ranged', 'others']) {
                const first = [{ $match: { _id: { $lt: 20 } } }, { $project: { x: '$_id' } }];
                const all = await routed.collection(source).aggregate([...first, { $sort: { _id: 1 } }]).toArray();
                await routed.collection(source).aggregate([...first, { $out: { db: there.databaseName, coll: 'out' } }]).toArray();
                assert.deepEqual(await result(there, 'out'), all);
                await routed.collection(source).aggregate([...first, { $set: { y: 1 } }, { $merge: { into: { db: there.databaseName, coll: 'out' } } }]).toArray();
                assert.deepEqual(await result(there, 'out'), all.map((doc) => ({ ...doc, y: 1 })));
            }
            await routed.collection('ranged').aggregate([{ $match: { _id: -1 } }, { $out: { db: there.databaseName, coll: 'out' } }]).toArray();
            assert.deepEqual(await result(there, 'out'), []);
            await there.dropDatabase();
        }
        await routed.collection('others').aggregate([{ $limit: 1 }, { $merge: { into: { db: 'made_by_it', coll: 'out' } } }]).toArray();
        const made = (await cluster.client()).db('made_by_it');
        assert.equal((await result(made, 'out')).length, 1);
        await made.dropDatabase();
    });

    test('RTE-7: $merge into a sharded collection puts documents where they belong', async () => {
        await shardByHand(cluster, 'reads.target_sharded', { key: { k: 1 }, points: [{ k: 30 }, { k: 60 }], owners: OWNERS });
        const runs = [
            [[{ $match: { k: { $lt: 90 } } }, { $project: { k: 1, word: 1 } }], {}],
            [[{ $match: { k: { $lt: 50, $gte: 20 } } }, { $project: { k: 1, r: 1 } }], {}],
            [[{ $match: { k: { $lt: 100, $gte: 80 } } }, { $project: { k: 1, g: 1 } }], { whenMatched: 'keepExisting' }],
            [[{ $match: { k: { $lt: 10 } } }, { $project: { k: 1 } }], { whenMatched: 'replace', on: ['_id', 'k'] }],
            [[{ $match: { k: { $lt: 15 } } }, { $project: { k: 1, g: 1 } }], { whenMatched: [{ $set: { sum: { $add: ['$$new.g', '$k'] } } }], whenNotMatched: 'discard' }],
        ];
        for (const [pipeline, { on, ...options }] of runs) {
            await routed.collection('compound').aggregate([...pipeline, { $merge: { into: 'target_sharded', ...(on && { on }), ...options } }]).toArray();
            await node.collection('all').aggregate([...pipeline, { $merge: { into: 'target_sharded', ...options } }]).toArray();
            assert.deepEqual(await result(routed, 'target_sharded'), await result(node, 'target_sharded'));
        }
        const inserted = routed.collection('others').aggregate([{ $project: { k: { $add: ['$_id', 40] }, _id: 0 } }, { $merge: { into: 'target_sharded', whenMatched: 'fail' } }]);
        await inserted.toArray();
        assert.equal(await routed.collection('target_sharded').countDocuments(), 140);
        for (const [i, shard] of cluster.shards.entries()) {
            const direct = await shard.direct(shard.members[0]);
            const misplaced = { $nor: [{ k: { $gte: [-1, 30, 60][i], $lt: [30, 60, 1e9][i] } }] };
            assert.equal(await direct.db('reads').collection('target_sharded').countDocuments(misplaced), 0);
        }
        await failsWith(routed.collection('compound').aggregate([{ $match: { k: 1 } }, { $merge: { into: 'target_sharded', whenMatched: 'fail' } }]).toArray(), 11000);
        await failsWith(routed.collection('compound').aggregate([{ $merge: { into: 'target_sharded', on: 'g' } }]).toArray(), 51183);
        await failsWith(routed.collection('compound').aggregate([{ $out: 'target_sharded' }]).toArray(), 28769);
    });
});

describe('a shard that is gone', () => {
    test('RTE-6: its documents are left out if the client allows that', async () => {
        const [, { members: [member] }] = cluster.shards;
        await member.kill();
        try {
            const c = routed.collection('ranged');
            const reply = await routed.command({ find: 'ranged', filter: {}, sort: { k: 1 }, batchSize: 3000, allowPartialResults: true });
            assert.equal(reply.cursor.partialResultsReturned, true);
            assert.deepEqual(ids(reply.cursor.firstBatch), docs.map(({ k }) => k).filter((k) => k < 600 || k >= 1300).sort((a, b) => a - b));
            assert.deepEqual(ids(await c.find({ k: 5 }).toArray()), [5]);
        } finally {
            await member.start();
        }
    });
});
