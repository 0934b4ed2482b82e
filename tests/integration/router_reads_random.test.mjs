/*
 * Goal: no find and no pipeline gives through a router what one node would not give.
 * Method: random ones over random documents, in a collection that is spread over three shards and
 * in one of a plain node; results, or error codes, are compared. SEED chooses others.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { startServer } from '../lib/server.mjs';
import { shardByHand } from '../lib/shard_by_hand.mjs';

const OWNERS = ['shard0', 'shard1', 'shard2'];
const SEED = Number(process.env.SEED ?? 20261117);

let state = SEED;
const below = (n) => {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    return (state >> 8) % n;
};
const pick = (list) => list[below(list.length)];

const value = () =>
    pick([
        below(50), below(50) + 0.5, `s${below(9)}`, null, true, new Date(below(1000)),
        [below(5), below(5)], { x: below(4) }, [], {},
    ]);

const filter = () =>
    pick([
        () => ({ k: { $gt: below(400) } }),
        () => ({ k: below(400) }),
        () => ({ k: { $in: [below(400), below(400)] } }),
        () => ({ a: value() }),
        () => ({ a: { $in: [value(), value()] } }),
        () => ({ b: { $gte: value() } }),
        () => ({ b: { $not: { $lt: below(50) } } }),
        () => ({ c: { $exists: below(2) === 1 } }),
        () => ({ $or: [filter(), filter()] }),
    ])();

/* Ends with _id: no two documents are equal. */
const sort = () => {
    const pattern = {};
    for (let n = below(3); n > 0; n--) pattern[pick(['a', 'b', 'c', 'k', 'a.x'])] = pick([1, -1]);
    return { ...pattern, _id: pick([1, -1]) };
};

const findOptions = () => ({
    sort: sort(),
    ...(below(2) && { limit: below(40) }),
    ...(below(3) === 0 && { skip: below(60) }),
    ...(below(2) && { batchSize: 1 + below(60) }),
    ...(below(4) === 0 && { collation: { locale: 'en', numericOrdering: true } }),
    ...(below(3) === 0 && {
        projection: pick([
            { a: 1 }, { _id: 0, b: 1 }, { c: 0 }, { z: '$a' },
            { a: { $slice: 1 } }, { a: { $elemMatch: { $gt: 2 } } },
        ]),
    }),
});

const stage = () =>
    pick([
        () => ({ $match: filter() }),
        () => ({ $sort: sort() }),
        () => ({ $project: pick([{ a: 1, b: 1, k: 1 }, { c: 0 }, { k: 1, z: { $ifNull: ['$a', 'none'] } }]) }),
        () => ({ $set: { n: { $type: '$a' } } }),
        () => ({ $unwind: { path: pick(['$a', '$b']), preserveNullAndEmptyArrays: below(2) === 1 } }),
        () => ({ $group: { _id: pick(['$a', '$n', { $type: '$b' }, null]), n: { $sum: 1 }, k: { $max: '$k' }, s: { $sum: '$k' } } }),
        () => ({ $unionWith: { coll: 'c', pipeline: [{ $match: filter() }] } }),
        () => ({ $lookup: { from: 'c', localField: 'k', foreignField: '_id', as: 'joined' } }),
        () => ({ $sortByCount: { $type: '$a' } }),
        () => ({ $bucketAuto: { groupBy: '$k', buckets: 3 } }),
        () => ({ $count: 'n' }),
    ])();

const docs = Array.from({ length: 400 }, (_, i) => {
    const doc = { _id: i, k: below(400) };
    for (const field of ['a', 'b', 'c']) if (below(4)) doc[field] = value();
    return doc;
});

let cluster;
let plain;
let node; // the collection of a plain node
let routed; // the same through a router

before(async () => {
    [cluster, plain] = await Promise.all([startCluster({ shards: 3 }), startServer()]);
    node = (await plain.client()).db('random').collection('c');
    routed = (await cluster.client()).db('random').collection('c');
    await shardByHand(cluster, 'random.c', { key: { k: 1 }, points: [{ k: 100 }, { k: 300 }], owners: OWNERS });
    for (const [i, shard] of cluster.shards.entries()) {
        const own = docs.filter(({ k }) => (k < 100 ? 0 : k < 300 ? 1 : 2) === i);
        await (await shard.direct(shard.members[0])).db('random').collection('c').insertMany(own);
    }
    await node.insertMany(docs);
});

after(() => Promise.all([cluster?.remove(), plain?.remove()]));

const outcome = async (cursor) => {
    try {
        return { docs: await cursor.toArray() };
    } catch (error) {
        return { code: error.code ?? String(error) };
    }
};

test(`RTE-6: 300 random finds (seed ${SEED})`, async () => {
    for (let i = 0; i < 300; i++) {
        const [query, options] = [below(3) ? filter() : {}, findOptions()];
        const expected = await outcome(node.find(query, options));
        assert.deepEqual(await outcome(routed.find(query, options)), expected, JSON.stringify([query, options]));
    }
});

test(`RTE-6: 250 random pipelines (seed ${SEED})`, async () => {
    /* In any order, as few of them end with a sort; $lookup does not sort either. */
    const unordered = (result) =>
        result.docs?.map((doc) => {
            doc.joined?.sort?.((a, b) => a._id - b._id);
            return JSON.stringify(doc);
        }).sort() ?? result;
    for (let i = 0; i < 250; i++) {
        const pipeline = Array.from({ length: 1 + below(4) }, stage);
        const options = below(2) ? { batchSize: 1 + below(30) } : {};
        const expected = unordered(await outcome(node.aggregate(pipeline, options)));
        assert.deepEqual(unordered(await outcome(routed.aggregate(pipeline, options))), expected, JSON.stringify(pipeline));
    }
});
