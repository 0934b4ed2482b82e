/* Projection, sort, skip, limit, hint, let, $meta, read concern of find. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Decimal128, Double, Int32, Long, MaxKey, MinKey, ObjectId, Timestamp } from 'mongodb';
import { fails, ids, random, seedOfRun } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

/* ---- projection ---- */

const SOURCE = {
    _id: 1,
    a: 1,
    b: { c: 2, d: 3 },
    e: [
        { f: 1, g: 1 },
        { f: 2, g: 2 },
    ],
    n: [1, 2, 3, 4, 5],
};
const PROJECTIONS = [
    ['inclusion keeps _id', { a: 1 }, { _id: 1, a: 1 }],
    ['inclusion without _id', { a: true, _id: 0 }, { a: 1 }],
    ['exclusion', { b: 0, e: 0, n: 0 }, { _id: 1, a: 1 }],
    ['exclusion of _id alone', { _id: 0 }, { a: 1, b: SOURCE.b, e: SOURCE.e, n: SOURCE.n }],
    ['inclusion of _id alone', { _id: 1 }, { _id: 1 }],
    ['a path', { 'b.c': 1 }, { _id: 1, b: { c: 2 } }],
    ['an excluded path', { 'b.c': 0, e: 0, n: 0 }, { _id: 1, a: 1, b: { d: 3 } }],
    ['a nested specification', { b: { d: 1 } }, { _id: 1, b: { d: 3 } }],
    ['paths through arrays', { 'e.f': 1 }, { _id: 1, e: [{ f: 1 }, { f: 2 }] }],
    ['$slice from the start', { n: { $slice: 2 }, a: 1 }, { _id: 1, a: 1, n: [1, 2] }],
    ['$slice from the end', { n: { $slice: -2 }, a: 1 }, { _id: 1, a: 1, n: [4, 5] }],
    ['$slice with skip', { n: { $slice: [1, 2] }, a: 1 }, { _id: 1, a: 1, n: [2, 3] }],
    ['$elemMatch', { e: { $elemMatch: { f: 2 } } }, { _id: 1, e: [{ f: 2, g: 2 }] }],
    ['$elemMatch without match', { e: { $elemMatch: { f: 9 } } }, { _id: 1 }],
    ['a computed field', { x: { $add: ['$a', 1] } }, { _id: 1, x: 2 }],
    ['a path as value', { x: '$b.c' }, { _id: 1, x: 2 }],
    ['a literal', { x: { $literal: 1 } }, { _id: 1, x: 1 }],
    ['a missing field', { zz: 1 }, { _id: 1 }],
];
for (const [claim, projection, expected] of PROJECTIONS) {
    test(`projection: ${claim}`, async () => {
        const c = await node.collection([SOURCE]);
        assert.deepEqual(await c.findOne({}, { projection }), expected);
    });
}

test('projection: $ keeps the element the filter matched', async () => {
    const c = await node.collection([SOURCE]);
    assert.deepEqual(await c.findOne({ 'e.f': 2 }, { projection: { 'e.$': 1 } }), {
        _id: 1,
        e: [{ f: 2, g: 2 }],
    });
});

test('projection: inclusion keeps the order of the document', async () => {
    const c = await node.collection([{ _id: 1, z: 1, y: 2, x: 3 }]);
    assert.deepEqual(Object.keys(await c.findOne({}, { projection: { x: 1, z: 1 } })), [
        '_id',
        'z',
        'x',
    ]);
});

for (const [projection, code] of [
    [{ a: 1, b: 0 }, 31254],
    [{ a: 0, b: 1 }, 31253],
    [{ a: 1, 'a.b': 1 }, 31249],
    [{ '': 1 }, 40352],
    [{ 'a.': 1 }, 40353],
    [{ 'a.$': 1, 'b.$': 1 }, 31276],
    [{ a: { $slice: 'x' } }, 28667],
    [{ 'n.$': 1 }, 51246],
]) {
    test(`projection: ${JSON.stringify(projection)} is refused with ${code}`, async () => {
        const c = await node.collection([SOURCE]);
        await fails(c.findOne({}, { projection }), code);
    });
}

/* ---- sort, skip, limit ---- */

test('sort follows the BSON order of types', async () => {
    const values = [
        new MinKey(),
        null,
        new Double(NaN),
        new Double(-Infinity),
        new Int32(-1),
        Decimal128.fromString('0.5'),
        Long.fromNumber(3),
        new Double(Infinity),
        '',
        'a',
        { a: 1 },
        Buffer.from([1]),
        new ObjectId(),
        false,
        true,
        new Date(0),
        new Timestamp({ t: 1, i: 0 }),
        /a/,
        new MaxKey(),
    ];
    const order = values.map((_, i) => i);
    const shuffled = order
        .map((i) => ({ _id: i, v: values[i] }))
        .sort((x, y) => ((x._id * 7) % 19) - ((y._id * 7) % 19));
    const c = await node.collection(shuffled);
    for (const index of [false, true]) {
        if (index) await c.createIndex({ v: 1 });
        assert.deepEqual(ids(await c.find().sort({ v: 1 }).toArray()), order);
        assert.deepEqual(ids(await c.find().sort({ v: -1 }).toArray()), [...order].reverse());
    }
});

test('arrays sort by their least element upwards and by their greatest downwards', async () => {
    const c = await node.collection([
        { _id: 1, a: [5, 1] },
        { _id: 2, a: 3 },
        { _id: 3, a: [] },
        { _id: 4, a: [2, 9] },
    ]);
    for (const index of [false, true]) {
        if (index) await c.createIndex({ a: 1 });
        assert.deepEqual(ids(await c.find().sort({ a: 1 }).toArray()), [3, 1, 4, 2]);
        assert.deepEqual(ids(await c.find().sort({ a: -1 }).toArray()), [4, 1, 2, 3]);
    }
});

test('sort by several fields, each with its direction', async () => {
    const c = await node.collection(
        [
            [1, 1],
            [1, 2],
            [2, 1],
            [2, 2],
        ].map(([a, b], _id) => ({ _id, a, b })),
    );
    assert.deepEqual(
        ids(
            await c
                .find()
                .sort([
                    ['a', -1],
                    ['b', 1],
                ])
                .toArray(),
        ),
        [2, 3, 0, 1],
    );
    assert.deepEqual(
        ids(
            await c
                .find()
                .sort([
                    ['b', 1],
                    ['a', -1],
                ])
                .toArray(),
        ),
        [2, 0, 3, 1],
    );
});

test('skip and limit cut the sorted result', async () => {
    const c = await node.collection(Array.from({ length: 20 }, (_, _id) => ({ _id, a: -_id })));
    assert.deepEqual(
        ids(await c.find().sort({ a: 1 }).skip(3).limit(4).toArray()),
        [16, 15, 14, 13],
    );
    assert.deepEqual(ids(await c.find().sort({ a: 1 }).skip(18).limit(5).toArray()), [1, 0]);
    assert.deepEqual(await c.find().skip(100).toArray(), []);
    assert.equal((await c.find().limit(0).toArray()).length, 20);
});

test('a sort beyond its memory fails unless it may use the disk', async () => {
    const documents = Array.from({ length: 300 }, (_, _id) => ({
        _id,
        a: (_id * 37) % 300,
        s: 'x'.repeat(10_000),
    }));
    const c = await node.collection(documents);
    await node.admin.command({
        setParameter: 1,
        internalQueryMaxBlockingSortMemoryUsageBytes: 1_000_000,
    });
    try {
        await fails(c.find().sort({ a: 1 }).allowDiskUse(false).toArray(), 292);
        const sorted = await c
            .find({}, { projection: { a: 1 } })
            .sort({ a: 1 })
            .allowDiskUse()
            .toArray();
        assert.deepEqual(
            sorted.map(({ a }) => a),
            Array.from({ length: 300 }, (_, i) => i),
        );
        assert.equal((await c.find().sort({ a: 1 }).limit(5).toArray()).length, 5);
    } finally {
        await node.admin.command({
            setParameter: 1,
            internalQueryMaxBlockingSortMemoryUsageBytes: 104_857_600,
        });
    }
});

test('random sorts agree with and without index', async () => {
    const seed = seedOfRun();
    const rand = random(seed);
    const value = () =>
        rand.pick([
            rand.below(5),
            rand.below(5) + 0.5,
            'abc'[rand.below(3)],
            null,
            [rand.below(4), rand.below(4)],
            { x: rand.below(3) },
        ]);
    const c = await node.collection(
        Array.from({ length: 300 }, (_, _id) => ({ _id, a: value(), b: value() })),
    );
    const query = (hint, sort) =>
        c
            .find({}, { sort, hint })
            .map(({ _id }) => _id)
            .toArray();
    const sorts = [
        { a: 1, _id: 1 },
        { a: -1, _id: -1 },
    ];
    const scans = [];
    for (const sort of sorts) scans.push(await query({ $natural: 1 }, sort));
    await c.createIndex({ a: 1, _id: 1 });
    for (const [i, sort] of sorts.entries())
        assert.deepEqual(await query({ a: 1, _id: 1 }, sort), scans[i], `seed ${seed}`);
});

for (const sort of [{ a: 2 }, { a: 'x' }, { a: 0 }, { 'a..b': 1 }, { $foo: 1 }]) {
    test(`sort ${JSON.stringify(sort)} is refused`, () =>
        assert.rejects(node.db.command({ find: 'x', sort }), (error) => error.code > 0));
}

/* ---- hint, let, the rest ---- */

test('hint by name, pattern and $natural chooses the plan', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 2 },
    ]);
    await c.createIndex({ a: 1 });
    const stage = async (hint) => {
        const { queryPlanner } = await c.find({ a: 1 }).hint(hint).explain('queryPlanner');
        return JSON.stringify(queryPlanner.winningPlan);
    };
    assert.match(await stage('a_1'), /IXSCAN/);
    assert.match(await stage({ a: 1 }), /IXSCAN/);
    assert.match(await stage({ $natural: 1 }), /COLLSCAN/);
    await fails(c.find().hint('nope').toArray(), 2, { message: /hint/ });
    await fails(c.find().hint({ zz: 1 }).toArray(), 2, { message: /hint/ });
});

test('$natural gives insertion order forwards and backwards', async () => {
    const c = await node.collection([3, 1, 2].map((_id) => ({ _id })));
    assert.deepEqual(ids(await c.find().sort({ $natural: 1 }).toArray()), [3, 1, 2]);
    assert.deepEqual(ids(await c.find().sort({ $natural: -1 }).toArray()), [2, 1, 3]);
    assert.deepEqual(ids(await c.find().hint({ $natural: -1 }).toArray()), [2, 1, 3]);
});

test('a scan of a capped collection fails when what it was at is gone, and leaves no gap', async () => {
    const capped = await node.collection([], { capped: true, size: 100000, max: 5 });
    await capped.insertMany([1, 2, 3, 4, 5].map((_id) => ({ _id })));
    const cursor = capped.find().batchSize(2);
    await cursor.next();
    await capped.insertMany([6, 7, 8, 9].map((_id) => ({ _id })));
    await fails(cursor.toArray(), 136);
});

test('hints and min and max that mean several things are refused', async () => {
    const c = await node.collection([{ a: 1 }]);
    await c.createIndex({ a: 1 }, { name: 'one' });
    await c.createIndex({ a: 1 }, { name: 'two', sparse: true });
    await fails(c.find().hint({ a: 1 }).toArray(), 27);
    await fails(node.db.command({ collMod: c.collectionName, index: { keyPattern: { a: 1 }, hidden: true } }), 181);
    await fails(c.find().min({ a: 1 }).max({ b: 1 }).hint('one').toArray(), 51176);
    for (const max of [1, 2]) await fails(c.find().min({ a: 2 }).max({ a: max }).hint('one').toArray(), 51175);
    await fails(c.find().hint({ $natural: 1 }).sort({ $natural: -1 }).toArray(), 2);
});

test('a variable of let whose value is missing is missing', async () => {
    const c = await node.collection([{ _id: 1, a: null }, { _id: 2 }]);
    const found = c.find({ $expr: { $eq: ['$a', '$$v'] } }, { let: { v: { $getField: { field: 'x', input: {} } } } });
    assert.deepEqual(ids(await found.toArray()), [2]);
});

test('find on a view takes $natural as a hint, and no options that pipelines lack', async () => {
    const c = await node.collection([{ _id: 1, a: [1] }, { _id: 2 }]);
    const view = `${c.collectionName}_view`;
    await node.db.createCollection(view, { viewOn: c.collectionName, pipeline: [] });
    assert.equal((await node.db.collection(view).find().sort({ $natural: 1 }).toArray()).length, 2);
    for (const option of [{ readOnce: true }, { projection: { a: { $elemMatch: { $eq: 1 } } } }])
        await fails(node.db.command({ find: view, ...option }), 168);
});

test('let gives variables to $expr', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 2 },
    ]);
    const found = await c.find({ $expr: { $eq: ['$a', '$$x'] } }, { let: { x: 2 } }).toArray();
    assert.deepEqual(ids(found), [2]);
    await fails(c.find({ $expr: { $eq: ['$a', '$$y'] } }, { let: { x: 2 } }).toArray(), 17276);
});

test('read concerns snapshot and linearizable need a replica set, others do not', async () => {
    const c = await node.collection([{ _id: 1 }]);
    for (const level of ['local', 'available', 'majority'])
        assert.equal((await c.find({}, { readConcern: { level } }).toArray()).length, 1, level);
    for (const level of ['snapshot', 'linearizable'])
        await fails(c.find({}, { readConcern: { level } }).toArray(), 123, {
            name: 'NotAReplicaSet',
        });
    await fails(node.db.command({ find: 'x', readConcern: { level: 'nonsense' } }), 9);
});

test('notablescan refuses collection scans only', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await c.createIndex({ a: 1 });
    await node.admin.command({ setParameter: 1, notablescan: true });
    try {
        await fails(c.find({ b: 1 }).toArray(), 291, { name: 'NoQueryExecutionPlans' });
        assert.equal((await c.find({ a: 1 }).toArray()).length, 1);
        const capped = await node.collection([{ _id: 1 }], { capped: true, size: 4096 });
        await fails(capped.find({}, { tailable: true }).next(), 291);
        for (const db of ['admin', 'config', 'local']) // not of users
            await node.client.db(db).collection('system.version').find({ b: 1 }).toArray();
    } finally {
        await node.admin.command({ setParameter: 1, notablescan: false });
    }
});

test('$meta shows in a pipeline what is known of the documents at its beginning', async () => {
    const c = await node.collection([
        { _id: 1, a: 2, b: 'x' },
        { _id: 2, a: 1, b: 'y' },
    ]);
    const key = { $meta: 'sortKey' };
    const run = (...stages) => c.aggregate(stages).toArray();
    for (const hasIndex of [false, true]) {
        if (hasIndex) await c.createIndex({ a: 1, b: -1 });
        assert.deepEqual(await run({ $match: { a: { $gt: 0 } } }, { $sort: { a: 1, b: -1 } }, { $limit: 1 }, { $addFields: { key } }), [
            { _id: 2, a: 1, b: 'y', key: [1, 'y'] },
        ]);
        assert.deepEqual(await run({ $sort: { a: -1 } }, { $project: { _id: 1, key } }, { $sort: { key: 1 } }, { $match: { key: { $ne: 5 } } }), [
            { _id: 2, key: [1] },
            { _id: 1, key: [2] },
        ]);
        assert.deepEqual(await run({ $match: { a: 1 } }, { $project: { b: 0, key } }), [{ _id: 2, a: 1 }], 'there is none');
    }
    assert.equal((await run({ $match: { _id: 2 } }, { $project: { r: { $meta: 'recordId' } } }))[0].r, 2);
    assert.deepEqual(await run({ $sort: { a: 1 } }, { $group: { _id: '$a' } }, { $sort: { _id: 1 } }), [{ _id: 1 }, { _id: 2 }]);
    await fails(run({ $project: { k: { $meta: 'textScore' } } }), 40218);
    await fails(run({ $addFields: { k: { $add: [1, { $meta: 'textScore' }] } } }), 40218);
});

test('$meta follows documents through the stages of a pipeline', async () => {
    const c = await node.collection([
        { _id: 1, a: 2, n: [10, 20] },
        { _id: 2, a: 1, n: [30] },
    ]);
    await c.createIndex({ a: 1 });
    const key = { $meta: 'sortKey' };
    const r = { $meta: 'recordId' };
    const run = (...stages) => c.aggregate(stages).toArray();
    const cases = [
        ['$unwind', [{ $sort: { a: 1 } }, { $unwind: '$n' }, { $project: { _id: 0, n: 1, key, r } }], [[30, [1], 2], [10, [2], 1], [20, [2], 1]]],
        ['a later $sort', [{ $unwind: '$n' }, { $sort: { n: -1 } }, { $project: { _id: 0, n: 1, key, r } }], [[30, [30], 2], [20, [20], 1], [10, [10], 1]]],
        ['the last of two sorts', [{ $sort: { a: 1 } }, { $limit: 2 }, { $sort: { _id: 1 } }, { $project: { _id: 1, key, r } }], [[1, [1], 1], [2, [2], 2]]],
        ['$replaceRoot and $redact', [{ $sort: { a: -1 } }, { $redact: '$$KEEP' }, { $replaceRoot: { newRoot: { x: key } } }, { $addFields: { r } }], [[[2], 1], [[1], 2]]],
        ['expressions', [{ $sort: { a: 1 } }, { $addFields: { k: { $add: [{ $first: key }, 100] } } }, { $project: { _id: 0, k: 1 } }], [[101], [102]]],
        ['accumulators', [{ $sort: { a: 1 } }, { $group: { _id: null, keys: { $push: key }, ids: { $push: r } } }], [[null, [[1], [2]], [2, 1]]]],
        ['nothing behind $group', [{ $sort: { a: 1 } }, { $group: { _id: '$a' } }, { $sort: { _id: 1 } }, { $project: { _id: 1, r } }], [[1], [2]]],
        ['$facet', [{ $sort: { a: 1 } }, { $facet: { f: [{ $project: { _id: 1, key } }] } }], [[[{ _id: 2, key: [1] }, { _id: 1, key: [2] }]]]],
        ['$lookup', [{ $sort: { a: 1 } }, { $lookup: { from: c.collectionName, localField: '_id', foreignField: '_id', as: 'l' } }, { $project: { _id: 1, key, r } }], [[2, [1], 2], [1, [2], 1]]],
        ['$unionWith', [{ $sort: { a: 1 } }, { $unionWith: c.collectionName }, { $sort: { _id: 1 } }, { $project: { _id: 1, r } }], [[1, 1], [1], [2, 2], [2]]],
        ['$sample', [{ $sample: { size: 5 } }, { $project: { _id: 1, r } }, { $sort: { _id: 1 } }], [[1, 1], [2, 2]]],
    ];
    for (const [what, stages, expected] of cases)
        assert.deepEqual((await run(...stages)).map((row) => Object.values(row)), expected, what);
    const keys = (...stages) => c.aggregate(stages, { hint: { a: 1 } }).toArray();
    assert.deepEqual(await keys({ $project: { _id: 1, k: { $meta: 'indexKey' } } }), [{ _id: 2, k: { a: 1 } }, { _id: 1, k: { a: 2 } }]);
    assert.deepEqual(await keys({ $sort: { n: -1 } }, { $project: { _id: 1, k: { $meta: 'indexKey' } } }), [{ _id: 2, k: { a: 1 } }, { _id: 1, k: { a: 2 } }]);
    assert.deepEqual(await run({ $match: { _id: 1 } }, { $project: { _id: 1, k: { $meta: 'indexKey' } } }), [{ _id: 1 }], 'no index was scanned');
    await fails(run({ $setWindowFields: { output: { s: { $sum: '$a' } } } }, { $project: { r } }), 238);
    await fails(run({ $match: { $expr: { $eq: [r, 1] } } }), 238);
    await c.updateOne({ _id: 1 }, [{ $set: { r } }]);
    assert.equal((await c.findOne({ _id: 1 })).r, undefined, 'of a document to be updated nothing is known');
});

test('$meta shows the sort key and the record id, and refuses what there is not', async () => {
    const c = await node.collection([
        { _id: 1, a: [3, 1], b: 'x' },
        { _id: 2, a: 2, b: 'y' },
    ]);
    const sorted = await c
        .find({}, { projection: { _id: 1, key: { $meta: 'sortKey' } } })
        .sort({ a: 1, b: -1 })
        .toArray();
    assert.deepEqual(sorted, [
        { _id: 1, key: [1, 'x'] },
        { _id: 2, key: [2, 'y'] },
    ]);
    const [row] = await c.find({ _id: 2 }, { projection: { r: { $meta: 'recordId' } } }).toArray();
    assert.deepEqual(row, { _id: 2, a: 2, b: 'y', r: 2 }, 'whole documents, and one field more');
    const project = (projection) => c.find({}, { projection }).toArray();
    await fails(project({ k: { $meta: 'sortKey' } }), 2);
    await fails(project({ k: { $meta: 'textScore' } }), 40218);
    const keys = (options) => c.find({ a: { $gte: 1 } }, { projection: { _id: 1, k: { $meta: 'indexKey' } }, ...options }).toArray();
    assert.deepEqual(await keys({}), [{ _id: 1 }, { _id: 2 }], 'without an index there is no key');
    await c.createIndex({ a: 1 });
    assert.deepEqual(await keys({ hint: 'a_1' }), [{ _id: 1, k: { a: 1 } }, { _id: 2, k: { a: 2 } }]);
    assert.deepEqual(await keys({ hint: 'a_1', sort: { b: -1 } }), [{ _id: 2, k: { a: 2 } }, { _id: 1, k: { a: 1 } }], 'behind a sort, too');
    await fails(project({ k: { $meta: 'nonsense' } }), 17308);
    await fails(
        c
            .find()
            .sort({ k: { $meta: 'textScore' } })
            .toArray(),
        40218,
    );
    await fails(c.findOneAndDelete({}, { projection: { k: { $meta: 'recordId' } } }), 238);
});

test('returnKey shows keys alone, also with showRecordId', async () => {
    const c = await node.collection([{ _id: 1, a: 5 }]);
    const options = { returnKey: true, showRecordId: true };
    assert.deepEqual(await c.find({ _id: { $gt: 0 } }, options).toArray(), [{ _id: 1 }]);
});

/* ---- resume tokens, and collections by their UUID ---- */

const NATURAL = { hint: { $natural: 1 }, $_requestResumeToken: true };

/* Record ids stay numbers of 64 bits. */
const raw = (command) => node.db.command(command, { promoteLongs: false });

async function uuidOf(collection) {
    const [row] = await node.db.listCollections({ name: collection.collectionName }).toArray();
    return row.info.uuid;
}

for (const [kind, options] of [
    ['a collection', undefined],
    ['a clustered one', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
    ['a capped one', { capped: true, size: 100_000 }],
])
    test(`a scan of ${kind} goes on after the token of an earlier one`, async () => {
        const documents = Array.from({ length: 10 }, (_, _id) => ({ _id }));
        const c = await node.collection(documents, options);
        const run = (more) => raw({ find: c.collectionName, ...NATURAL, ...more });
        const { cursor } = await run({ batchSize: 4 });
        assert.deepEqual(ids(cursor.firstBatch), [0, 1, 2, 3]);
        const token = cursor.postBatchResumeToken;
        const rest = (await run({ $_resumeAfter: token })).cursor;
        assert.deepEqual(ids(rest.firstBatch), [4, 5, 6, 7, 8, 9]);
        assert.deepEqual(ids((await run({ $_startAt: token })).cursor.firstBatch), [3, 4, 5, 6, 7, 8, 9]);
        const more = await raw({
            getMore: cursor.id,
            collection: c.collectionName,
            batchSize: 2,
        });
        const next = await run({ $_resumeAfter: more.cursor.postBatchResumeToken });
        assert.deepEqual(ids(next.cursor.firstBatch), [6, 7, 8, 9]);
        assert.deepEqual((await run({ $_resumeAfter: rest.postBatchResumeToken })).cursor.firstBatch, []);
        if (kind === 'a capped one') return;
        await c.deleteOne({ _id: 3 });
        await fails(run({ $_resumeAfter: token }), 211);
        assert.deepEqual(ids((await run({ $_startAt: token })).cursor.firstBatch), [4, 5, 6, 7, 8, 9]);
    });

test('a document that did not fit into a batch is not in its token', async () => {
    const pad = 'x'.repeat(7_000_000);
    const c = await node.collection();
    for (let _id = 0; _id < 5; _id++) await c.insertOne({ _id, pad });
    const seen = [];
    let token;
    for (;;) {
        const { cursor } = await raw({
            find: c.collectionName,
            ...NATURAL,
            ...(token && { $_resumeAfter: token }),
        });
        if (cursor.firstBatch.length === 0) break;
        seen.push(...ids(cursor.firstBatch));
        token = cursor.postBatchResumeToken;
    }
    assert.deepEqual(seen, [0, 1, 2, 3, 4]);
});

test('resume tokens are checked', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const run = (more) => raw({ find: c.collectionName, ...more });
    assert.deepEqual((await run({ filter: { _id: 9 }, ...NATURAL })).cursor.postBatchResumeToken, {
        $recordId: null,
    });
    assert.equal((await run({})).cursor.postBatchResumeToken, undefined);
    await fails(run({ $_requestResumeToken: true }), 2);
    await fails(run({ ...NATURAL, hint: { $natural: -1 } }), 2);
    await fails(run({ ...NATURAL, sort: { a: 1 } }), 2);
    await fails(run({ hint: { $natural: 1 }, $_resumeAfter: { $recordId: Long.ONE } }), 2);
    for (const token of [{}, { a: 1 }, { $recordId: 1.5 }, { $recordId: Long.ZERO }, { $recordId: Long.ONE, b: 1 }])
        await fails(run({ ...NATURAL, $_resumeAfter: token }), 2);
    const bytes = Buffer.from([1, 2, 3]);
    await fails(run({ ...NATURAL, $_resumeAfter: { $recordId: bytes } }), 7738600);
    await fails(run({ ...NATURAL, $_startAt: { $recordId: bytes } }), 7738600);
});

test('find and listIndexes take the UUID of a collection', async () => {
    const c = await node.collection([{ _id: 1 }, { _id: 2 }]);
    const uuid = await uuidOf(c);
    const to = node.newName();
    await c.rename(to);
    const { cursor } = await node.db.command({ find: uuid, batchSize: 1 });
    assert.equal(cursor.ns, `test.${to}`);
    const rest = await node.db.command({ getMore: cursor.id, collection: to });
    assert.deepEqual(ids(rest.cursor.nextBatch), [2]);
    assert.equal((await node.db.command({ listIndexes: uuid })).cursor.firstBatch[0].name, '_id_');
    await fails(node.client.db('other').command({ find: uuid }), 26);
    await node.db.collection(to).drop();
    await fails(node.db.command({ find: uuid }), 26);
    await fails(node.db.command({ listIndexes: uuid }), 26);
    await fails(node.db.command({ find: 1 }), 73);
    await fails(node.db.command({ find: Buffer.from('abc') }), 73);
});
