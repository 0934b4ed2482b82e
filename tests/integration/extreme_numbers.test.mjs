/*
 * Numbers of any size where a command takes one: they are accepted for what they mean, or refused.
 * Sums and products of them must not overflow; sanitizer builds end at the first that does.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Decimal128, Double, Int32, Long } from 'mongodb';
import { replyOf } from '../lib/expect.mjs';
import { IS_ROUTED } from '../lib/fixture.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { shardCollections, startRouted } from '../lib/routed.mjs';

const MAX = Long.MAX_VALUE;
const MIN = Long.MIN_VALUE;
const EXTREMES = [
    MAX,
    MIN,
    MAX.subtract(1),
    MIN.add(1),
    Long.fromNumber(2 ** 53),
    new Int32(2147483647),
    new Int32(-2147483648),
    new Int32(0),
    new Int32(-1),
    new Double(1e300),
    new Double(-1e300),
    new Double(9.3e18),
    new Double(NaN),
    new Double(Infinity),
    new Double(-Infinity),
    Decimal128.fromString('9.9E+6144'),
    Decimal128.fromString('NaN'),
];
const LARGEST = [MAX, MAX.subtract(1), new Double(1e300)];

let set, client, db;
before(async () => {
    set = await (IS_ROUTED ? startRouted() : startReplicaSet({ members: 1 }));
    client = await set.client();
    db = IS_ROUTED ? shardCollections(client, 'test') : client.db('test');
    const documents = Array.from({ length: 5 }, (_, i) => ({ _id: i, n: i, a: [1, 2, 3] }));
    await db.collection('c').insertMany(documents);
    await db.collection('c').createIndex({ n: 1 });
});
after(() => set.remove());

/* A reply of any kind. What runs for ever is not meant here. */
const run = (command) => replyOf(db, { ...command, maxTimeMS: 2000 });
const idsOf = ({ cursor }) => cursor.firstBatch.map(({ _id }) => _id);

test('skip and limit near the largest number mean all and none', async () => {
    for (const n of LARGEST) {
        const big = n instanceof Double ? MAX : n;
        for (const sort of [undefined, { n: -1 }, { a: 1 }]) {
            const find = { find: 'c', ...(sort && { sort }) };
            assert.equal(idsOf(await run({ ...find, limit: big })).length, 5);
            assert.equal(idsOf(await run({ ...find, limit: big, skip: 2 })).length, 3);
            assert.equal(idsOf(await run({ ...find, limit: big, skip: big })).length, 0);
            assert.equal(idsOf(await run({ ...find, batchSize: big })).length, 5);
        }
        assert.equal((await run({ count: 'c', limit: big, skip: 1 })).n, 4);
        assert.equal((await run({ count: 'c', skip: big })).n, 0);
        const aggregate = async (...pipeline) =>
            idsOf(await run({ aggregate: 'c', pipeline, cursor: { batchSize: big } })).length;
        assert.equal(await aggregate({ $skip: big }, { $limit: big }), 0);
        assert.equal(await aggregate({ $skip: big }, { $skip: big }, { $limit: big }), 0);
        assert.equal(await aggregate({ $sort: { n: 1 } }, { $skip: 1 }, { $limit: big }), 4);
        assert.equal(await aggregate({ $sample: { size: big } }), 5);
    }
    assert.equal((await run({ count: 'c', limit: MIN })).n, 5);
    assert.equal((await run({ count: 'c', query: { n: { $gte: 0 } }, limit: MIN })).n, 5);
});

test('a wtimeout is a number of 32 bits, whose largest does not pass at once', async () => {
    const write = (wtimeout) => run({ insert: 'w', documents: [{}], writeConcern: { w: 'majority', wtimeout } });
    for (const wtimeout of [MAX, MIN, Long.fromString('2147483648'), new Double(1e300)])
        assert.equal((await write(wtimeout)).code, 9);
    for (const wtimeout of [new Int32(2147483647), new Int32(-1), new Double(NaN)]) {
        const reply = await write(wtimeout);
        assert.ok(reply.ok === 1 && reply.writeConcernError === undefined, JSON.stringify(reply));
    }
});

/* Places for a number in commands and in the language. */
const COMMANDS = [
    (n) => ({ find: 'c', skip: n }),
    (n) => ({ find: 'c', limit: n, skip: n, sort: { a: 1 } }),
    (n) => ({ find: 'c', batchSize: n }),
    (n) => ({ find: 'c', projection: { a: { $slice: n } } }),
    (n) => ({ find: 'c', projection: { a: { $slice: [n, n] } } }),
    (n) => ({ find: 'c', filter: { n: { $mod: [n, n] } } }),
    (n) => ({ find: 'c', filter: { a: { $size: n } } }),
    (n) => ({ find: 'c', filter: { n: { $bitsAllSet: n } } }),
    (n) => ({ count: 'c', limit: n, skip: n }),
    (n) => ({ aggregate: 'c', pipeline: [], cursor: { batchSize: n } }),
    (n) => ({ update: 'u', updates: [{ q: {}, u: { $inc: { n } }, upsert: true }] }),
    (n) => ({ update: 'u', updates: [{ q: {}, u: { $mul: { n } }, upsert: true }] }),
    (n) => ({ update: 'u', updates: [{ q: {}, u: { $pop: { a: n } }, upsert: true }] }),
    (n) => ({ update: 'u', updates: [{ q: {}, u: { $bit: { i: { xor: n } } }, upsert: true }] }),
    (n) => ({
        update: 'u',
        updates: [
            {
                q: {},
                u: { $push: { b: { $each: [1, 2], $position: n, $slice: n } } },
                upsert: true,
            },
        ],
    }),
    (n) => ({ createIndexes: 'x', indexes: [{ key: { d: 1 }, name: 'd', expireAfterSeconds: n }] }),
    (n) => ({ collMod: 'c', index: { name: 'n_1', expireAfterSeconds: n } }),
    (n) => ({ create: `capped${Math.random()}`, capped: true, size: n, max: n }),
    (n) => ({ dataSize: 'test.c', estimate: true, scale: n }),
    (n) => ({ collStats: 'c', scale: n }),
    (n) => ({ dbStats: 1, scale: n }),
    (n) => ({ profile: 0, slowms: n, sampleRate: 1 }),
    (n) => ({ killCursors: 'c', cursors: [n] }),
    (n) => ({ getMore: n, collection: 'c', batchSize: n }),
    (n) => ({ insert: 'w', documents: [{}], writeConcern: { w: n, wtimeout: 1 } }),
    (n) => ({ explain: { find: 'c', skip: n, limit: n, sort: { a: 1 } } }),
];
const STAGES = [
    (n) => ({ $skip: n }),
    (n) => ({ $limit: n }),
    (n) => ({ $sample: { size: n } }),
    (n) => ({ $bucketAuto: { groupBy: '$n', buckets: n } }),
    (n) => ({ $bucket: { groupBy: '$n', boundaries: [-1, n], default: 'other' } }),
    (n) => ({
        $graphLookup: {
            from: 'c',
            startWith: '$n',
            connectFromField: 'n',
            connectToField: 'n',
            as: 'x',
            maxDepth: n,
        },
    }),
    (n) => ({ $group: { _id: null, x: { $firstN: { input: '$n', n } } } }),
    (n) => ({ $group: { _id: null, x: { $topN: { output: '$n', sortBy: { n: 1 }, n } } } }),
    (n) => ({ $group: { _id: null, x: { $maxN: { input: '$n', n } } } }),
    (n) => ({ $group: { _id: null, x: { $sum: n }, y: { $avg: n }, z: { $stdDevPop: n } } }),
    ...[
        (n) => ({ $sum: '$n', window: { documents: [n, n] } }),
        (n) => ({ $sum: '$n', window: { documents: ['unbounded', n] } }),
        (n) => ({ $sum: '$n', window: { range: [n, n] } }),
        (n) => ({ $shift: { output: '$n', by: n } }),
        (n) => ({ $expMovingAvg: { input: '$n', N: n } }),
        (n) => ({ $sum: n, window: { documents: [-1, 1] } }),
    ].map((window) => (n) => ({ $setWindowFields: { sortBy: { n: 1 }, output: { w: window(n) } } })),
    (n) => ({ $densify: { field: 'n', range: { step: n, bounds: [n, n] } } }),
    (n) => ({ $fill: { sortBy: { n: 1 }, output: { x: { value: n } } } }),
];
const DATE = new Date(0);
const EXPRESSIONS = [
    (n) => ({ $add: [n, n, 1] }),
    (n) => ({ $add: [DATE, n, n] }),
    (n) => ({ $subtract: [n, MIN] }),
    (n) => ({ $subtract: [DATE, n] }),
    (n) => ({ $multiply: [n, n] }),
    (n) => ({ $divide: [n, -1] }),
    (n) => ({ $mod: [n, -1] }),
    (n) => ({ $abs: n }),
    (n) => ({ $pow: [n, n] }),
    (n) => ({ $round: [n, n] }),
    (n) => ({ $trunc: [12.5, n] }),
    (n) => ({ $range: [n, n, n] }),
    (n) => ({ $range: [0, 10, n] }),
    (n) => ({ $slice: ['$a', n] }),
    (n) => ({ $slice: ['$a', n, n] }),
    (n) => ({ $arrayElemAt: ['$a', n] }),
    (n) => ({ $substrBytes: ['text', n, n] }),
    (n) => ({ $substrCP: ['text', n, n] }),
    (n) => ({ $indexOfArray: ['$a', 1, n, n] }),
    (n) => ({ $indexOfBytes: ['text', 'x', n, n] }),
    (n) => ({ $firstN: { input: '$a', n } }),
    (n) => ({ $bitAnd: [n, n] }),
    (n) => ({ $toInt: n }),
    (n) => ({ $toLong: n }),
    (n) => ({ $toDate: n }),
    (n) => ({ $toString: n }),
    (n) => ({ $toBool: n }),
    (n) => ({ $convert: { input: n, to: 'objectId', onError: null } }),
    ...['year', 'quarter', 'week', 'day', 'hour', 'second', 'millisecond'].flatMap((unit) => [
        (n) => ({ $dateAdd: { startDate: DATE, unit, amount: n } }),
        (n) => ({ $dateSubtract: { startDate: DATE, unit, amount: n } }),
        (n) => ({ $dateTrunc: { date: DATE, unit, binSize: n } }),
        (n) => ({ $dateDiff: { startDate: DATE, endDate: { $toDate: n }, unit } }),
    ]),
    ...['year', 'month', 'day', 'hour', 'minute', 'second', 'millisecond'].map((part) => (n) => ({
        $dateFromParts: { year: 2000, [part]: n },
    })),
    ...['isoWeekYear', 'isoWeek', 'isoDayOfWeek'].map((part) => (n) => ({
        $dateFromParts: { isoWeekYear: 2000, [part]: n },
    })),
    (n) => ({ $dateToParts: { date: { $toDate: n } } }),
    (n) => ({ $dateToString: { date: { $toDate: n } } }),
    (n) => ({ $zip: { inputs: ['$a', [n]] } }),
    (n) => ({ $reduce: { input: '$a', initialValue: n, in: { $add: ['$$value', '$$this'] } } }),
    (n) => ({ $percentile: { input: '$a', p: [n], method: 'approximate' } }),
    (n) => ({ $degreesToRadians: n }),
    (n) => ({ $log: [n, 2] }),
    (n) => ({ $exp: n }),
    (n) => ({ $sqrt: n }),
    (n) => ({ $ceil: n }),
];

test('every number gets an answer', async () => {
    for (const n of EXTREMES) {
        for (const make of COMMANDS) await run(make(n));
        for (const make of STAGES) await run({ aggregate: 'c', pipeline: [make(n)], cursor: {} });
        for (const make of EXPRESSIONS) {
            /* As a constant, and of a document: one is computed while parsing. */
            const [constant, field] = [make(n), make('$big')];
            const pipeline = [{ $limit: 1 }, { $set: { big: n } }, { $project: { x: field } }];
            await run({ aggregate: 'c', pipeline: [{ $project: { x: constant } }], cursor: {} });
            await run({ aggregate: 'c', pipeline, cursor: {} });
        }
    }
    assert.equal((await run({ ping: 1 })).ok, 1);
    for (const member of set.members ?? [set]) assert.equal(member.isRunning(), true);
});
