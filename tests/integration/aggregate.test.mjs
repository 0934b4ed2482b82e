/* Aggregation: the stages in scope, cursors, views of errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Decimal128, Double, Int32, Long } from 'mongodb';
import { fails, ids } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

const SALES = [
    { _id: 1, shop: 'a', n: 5, tags: ['x', 'y'] },
    { _id: 2, shop: 'b', n: 1, tags: ['y'] },
    { _id: 3, shop: 'a', n: 7, tags: [] },
    { _id: 4, shop: 'c', n: 2 },
    { _id: 5, shop: 'b', n: 9, tags: null },
];

const PIPELINES = [
    ['stages that change nothing return all', [{ $match: {} }, { $sort: { _id: 1 } }], SALES],
    [
        '$match filters',
        [{ $match: { shop: 'a' } }, { $project: { n: 1 } }, { $sort: { _id: 1 } }],
        [
            { _id: 1, n: 5 },
            { _id: 3, n: 7 },
        ],
    ],
    [
        '$sort, $skip and $limit cut',
        [{ $sort: { n: -1 } }, { $skip: 1 }, { $limit: 2 }, { $project: { _id: 1 } }],
        [{ _id: 3 }, { _id: 1 }],
    ],
    [
        '$project computes, includes and drops',
        [
            { $match: { _id: 1 } },
            { $project: { _id: 0, twice: { $multiply: ['$n', 2] }, shop: 1 } },
        ],
        [{ shop: 'a', twice: 10 }],
    ],
    [
        '$project excludes',
        [{ $match: { _id: 2 } }, { $project: { tags: 0, n: 0 } }],
        [{ _id: 2, shop: 'b' }],
    ],
    [
        '$group sums, averages, finds extremes',
        [
            {
                $group: {
                    _id: '$shop',
                    sum: { $sum: '$n' },
                    avg: { $avg: '$n' },
                    min: { $min: '$n' },
                    max: { $max: '$n' },
                    count: { $sum: 1 },
                },
            },
            { $sort: { _id: 1 } },
        ],
        [
            { _id: 'a', sum: 12, avg: 6, min: 5, max: 7, count: 2 },
            { _id: 'b', sum: 10, avg: 5, min: 1, max: 9, count: 2 },
            { _id: 'c', sum: 2, avg: 2, min: 2, max: 2, count: 1 },
        ],
    ],
    [
        '$group collects first, last, push and sets',
        [
            { $sort: { _id: 1 } },
            {
                $group: {
                    _id: null,
                    first: { $first: '$_id' },
                    last: { $last: '$_id' },
                    all: { $push: '$n' },
                    shops: { $addToSet: '$shop' },
                },
            },
            { $project: { _id: 0, first: 1, last: 1, all: 1 } },
        ],
        [{ first: 1, last: 5, all: [5, 1, 7, 2, 9] }],
    ],
    [
        '$group by a document of expressions',
        [
            { $group: { _id: { s: '$shop', big: { $gt: ['$n', 4] } }, c: { $count: {} } } },
            { $sort: { '_id.s': 1, '_id.big': 1 } },
        ],
        [
            { _id: { s: 'a', big: true }, c: 2 },
            { _id: { s: 'b', big: false }, c: 1 },
            { _id: { s: 'b', big: true }, c: 1 },
            { _id: { s: 'c', big: false }, c: 1 },
        ],
    ],
    [
        '$group of nothing is nothing',
        [{ $match: { _id: 99 } }, { $group: { _id: null, c: { $sum: 1 } } }],
        [],
    ],
    [
        '$unwind yields one document per element',
        [{ $unwind: '$tags' }, { $project: { tags: 1 } }, { $sort: { _id: 1, tags: 1 } }],
        [
            { _id: 1, tags: 'x' },
            { _id: 1, tags: 'y' },
            { _id: 2, tags: 'y' },
        ],
    ],
    [
        '$unwind keeps empty ones when asked, with index',
        [
            {
                $unwind: {
                    path: '$tags',
                    preserveNullAndEmptyArrays: true,
                    includeArrayIndex: 'i',
                },
            },
            { $project: { tags: 1, i: 1 } },
            { $sort: { _id: 1, i: 1 } },
        ],
        [
            { _id: 1, tags: 'x', i: 0 },
            { _id: 1, tags: 'y', i: 1 },
            { _id: 2, tags: 'y', i: 0 },
            { _id: 3, i: null },
            { _id: 4, i: null },
            { _id: 5, tags: null, i: null },
        ],
    ],
    ['$count counts', [{ $match: { n: { $gt: 1 } } }, { $count: 'many' }], [{ many: 4 }]],
    ['$count of nothing gives no document', [{ $match: { _id: 99 } }, { $count: 'many' }], []],
    [
        '$addFields, $unset and $replaceRoot',
        [
            { $match: { _id: 1 } },
            { $addFields: { d: { e: '$n' } } },
            { $unset: 'tags' },
            { $replaceRoot: { newRoot: '$d' } },
        ],
        [{ e: 5 }],
    ],
    [
        '$sortByCount',
        [{ $sortByCount: '$shop' }, { $match: { count: 2 } }, { $sort: { _id: 1 } }],
        [
            { _id: 'a', count: 2 },
            { _id: 'b', count: 2 },
        ],
    ],
    [
        '$limit after $sort takes the top',
        [{ $sort: { n: -1 } }, { $limit: 1 }, { $project: { n: 1 } }],
        [{ _id: 5, n: 9 }],
    ],
    [
        '$cond, $ifNull and $switch decide',
        [
            { $match: { _id: { $in: [1, 4] } } },
            {
                $project: {
                    size: { $cond: [{ $gt: ['$n', 3] }, 'big', 'small'] },
                    tags: { $ifNull: ['$tags', 'none'] },
                },
            },
        ],
        [
            { _id: 1, size: 'big', tags: ['x', 'y'] },
            { _id: 4, size: 'small', tags: 'none' },
        ],
    ],
];
for (const [claim, pipeline, expected] of PIPELINES) {
    test(claim, async () => {
        const c = await node.collection(SALES);
        assert.deepEqual(await c.aggregate(pipeline).toArray(), expected);
    });
}

test('$sum keeps the widest type that is needed', async () => {
    const sum = async (values) => {
        const c = await node.collection(values.map((v, _id) => ({ _id, v })));
        const [{ s }] = await c
            .aggregate([{ $group: { _id: null, s: { $sum: '$v' } } }], { promoteValues: false })
            .toArray();
        return s;
    };
    assert.ok((await sum([new Int32(1), new Int32(2)])) instanceof Int32);
    assert.ok((await sum([new Int32(2 ** 31 - 1), new Int32(1)])) instanceof Long);
    assert.ok((await sum([new Int32(1), new Double(1)])) instanceof Double);
    assert.ok((await sum([new Double(1), Decimal128.fromString('1')])) instanceof Decimal128);
    assert.equal(Number(await sum(['x', null, new Int32(3)])), 3);
});

test('aggregate replies in batches', async () => {
    const c = await node.collection(Array.from({ length: 250 }, (_, _id) => ({ _id })));
    const reply = await node.db.command({
        aggregate: c.collectionName,
        pipeline: [{ $sort: { _id: 1 } }],
        cursor: { batchSize: 10 },
    });
    assert.equal(reply.cursor.firstBatch.length, 10);
    assert.deepEqual(
        ids(await c.aggregate([{ $sort: { _id: 1 } }], { batchSize: 7 }).toArray()),
        Array.from({ length: 250 }, (_, i) => i),
    );
});

test('a $match at the start uses an index', async () => {
    const c = await node.collection(SALES);
    await c.createIndex({ n: 1 });
    const plan = await c.aggregate([{ $match: { n: 7 } }, { $group: { _id: '$shop' } }]).explain();
    assert.match(JSON.stringify(plan), /IXSCAN/);
});

test('a $group beyond its memory goes to disk only when allowed', async () => {
    const c = await node.collection(
        Array.from({ length: 2000 }, (_, _id) => ({ _id, s: 'x'.repeat(1000) })),
    );
    const pipeline = [{ $group: { _id: '$_id', s: { $push: '$s' } } }, { $count: 'n' }];
    await node.admin.command({
        setParameter: 1,
        internalDocumentSourceGroupMaxMemoryBytes: 200_000,
    });
    try {
        await fails(c.aggregate(pipeline, { allowDiskUse: false }).toArray(), 292);
    } finally {
        await node.admin.command({
            setParameter: 1,
            internalDocumentSourceGroupMaxMemoryBytes: 104_857_600,
        });
    }
    assert.deepEqual(await c.aggregate(pipeline).toArray(), [{ n: 2000 }]);
});

const BAD = [
    ['an unknown stage', [{ $nope: 1 }], 40324],
    ['a stage of two fields', [{ $match: {}, $limit: 1 }], 40323],
    ['a stage that is no document', [1], 14],
    ['$limit 0', [{ $limit: 0 }], 15958],
    ['$limit of a string', [{ $limit: 'x' }], 5107201],
    ['a negative $skip', [{ $skip: -1 }], 5107200],
    ['$group without _id', [{ $group: { a: { $sum: 1 } } }], 15955],
    ['$group with an unknown accumulator', [{ $group: { _id: 1, a: { $nope: 1 } } }], 15952],
    ['$group with a field that is no accumulator', [{ $group: { _id: 1, a: 1 } }], 40234],
    ['$unwind without $', [{ $unwind: 'a' }], 28818],
    ['$count with $', [{ $count: '$a' }], 40158],
    ['$count of an empty name', [{ $count: '' }], 40157],
    ['$project of nothing', [{ $project: {} }], 51272],
    ['$sort of nothing', [{ $sort: {} }], 15976],
    ['an unknown expression', [{ $project: { a: { $nope: 1 } } }], 31325],
];
for (const [what, pipeline, code] of BAD) {
    test(`${what} is refused with ${code}`, async () => {
        const c = await node.collection(SALES);
        await fails(c.aggregate(pipeline).toArray(), code);
    });
}

test('aggregate without cursor is refused with FailedToParse', () =>
    fails(node.db.command({ aggregate: 'x', pipeline: [] }), 9));

test('stages out of scope are refused by name', async () => {
    const c = await node.collection(SALES);
    for (const [stage, code] of [
        ['$changeStream', 40573],
        ['$geoNear', 238],
        ['$search', 6047401],
        ['$vectorSearch', 6047401],
    ])
        await fails(c.aggregate([{ [stage]: {} }]).toArray(), code, {
            message: new RegExp(`\\${stage}`),
        });
});

test('a collectionless aggregation needs a stage that makes documents', async () => {
    await fails(node.db.command({ aggregate: 1, pipeline: [{ $match: {} }], cursor: {} }), 73);
});

/* ---- $listCatalog ---- */

test('CAT-2: $listCatalog of a collection shows its catalog entry', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await c.createIndex({ a: 1 }, { sparse: true });
    const entries = await c.aggregate([{ $listCatalog: {} }]).toArray();
    assert.equal(entries.length, 1);
    const [entry] = entries;
    assert.equal(entry.db, 'test');
    assert.equal(entry.name, c.collectionName);
    assert.equal(entry.type, 'collection');
    assert.equal(entry.ns, `test.${c.collectionName}`);
    assert.equal(entry.md.ns, entry.ns);
    assert.ok(entry.md.options.uuid);
    assert.deepEqual(
        entry.md.indexes.map(({ spec }) => spec.name),
        ['_id_', 'a_1'],
    );
    assert.ok(entry.md.indexes.every(({ ready }) => ready === true));
    assert.deepEqual(Object.keys(entry.idxIdent), ['_id_', 'a_1']);
    assert.equal(typeof entry.ident, 'string');
});

test('CAT-2: $listCatalog on admin shows all collections and views', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const view = node.newName('view');
    await node.db.createCollection(view, {
        viewOn: c.collectionName,
        pipeline: [{ $match: { a: 1 } }],
    });
    const entries = await node.admin.aggregate([{ $listCatalog: {} }]).toArray();
    assert.ok(entries.some(({ ns }) => ns === `test.${c.collectionName}`));
    const row = entries.find(({ ns }) => ns === `test.${view}`);
    assert.equal(row.type, 'view');
    assert.equal(row.viewOn, c.collectionName);
    assert.deepEqual(row.pipeline, [{ $match: { a: 1 } }]);
    const one = await node.admin
        .aggregate([
            { $listCatalog: {} },
            { $match: { name: c.collectionName } },
            { $project: { name: 1 } },
        ])
        .toArray();
    assert.deepEqual(one, [{ name: c.collectionName }]);
});

test('CAT-2: $listCatalog without collection is for admin, and must come first', async () => {
    await fails(node.db.aggregate([{ $listCatalog: {} }]).toArray(), 73);
    const c = await node.collection([{ _id: 1 }]);
    await fails(c.aggregate([{ $match: {} }, { $listCatalog: {} }]).toArray(), 40602);
});
