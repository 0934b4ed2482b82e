/* Stages that read other collections: $lookup, $graphLookup, $unionWith, $facet, $documents. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Long } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

async function twoCollections(left, right) {
    return [await node.collection(left), await node.collection(right)];
}

async function looked(collection, stage, ...rest) {
    return collection.aggregate([{ $sort: { _id: 1 } }, { $lookup: stage }, ...rest]).toArray();
}

const foundIds = (documents) => documents.map((d) => d.found.map((f) => f._id).sort());

test('$lookup joins by equality with the rules of the query language', async () => {
    const [left, right] = await twoCollections(
        [
            { _id: 1, a: 1 },
            { _id: 2, a: [1, 2] },
            { _id: 3, a: null },
            { _id: 4 },
            { _id: 5, a: 'x' },
            { _id: 6, a: /x/ },
            { _id: 7, a: [/x/, 2] },
            { _id: 8, a: { b: 1 } },
            { _id: 9, a: [[1, 2]] },
        ],
        [
            { _id: 10, k: 1 },
            { _id: 11, k: [1, 2] },
            { _id: 12, k: null },
            { _id: 13 },
            { _id: 14, k: 'x' },
            { _id: 15, k: /x/ },
            { _id: 16, k: { b: 1 } },
        ],
    );
    const stage = {
        from: right.collectionName,
        localField: 'a',
        foreignField: 'k',
        as: 'found',
    };
    const expected = [
        [10, 11],
        [10, 11],
        [12, 13],
        [12, 13],
        [14],
        [15],
        [11, 15],
        [16],
        [11],
    ];
    assert.deepEqual(foundIds(await looked(left, stage)), expected);
    await right.createIndex({ k: 1 });
    assert.deepEqual(foundIds(await looked(left, stage)), expected, 'with an index');
});

test('$lookup follows dotted paths through arrays on both sides and into `as`', async () => {
    const [left, right] = await twoCollections(
        [{ _id: 1, a: [{ b: 1 }, { b: 2 }, { c: 3 }] }],
        [
            { _id: 1, k: [{ l: 1 }] },
            { _id: 2, k: { l: 2 } },
            { _id: 3, k: { l: 3 } },
        ],
    );
    const [result] = await left
        .aggregate([
            {
                $lookup: {
                    from: right.collectionName,
                    localField: 'a.b',
                    foreignField: 'k.l',
                    as: 'x.found',
                },
            },
        ])
        .toArray();
    assert.deepEqual(result.x.found.map((f) => f._id).sort(), [1, 2]);
});

test('$lookup with let and pipeline is evaluated per document', async () => {
    const [left, right] = await twoCollections(
        [
            { _id: 1, low: 2, high: 4 },
            { _id: 2, low: 5, high: 9 },
            { _id: 3, high: 1 },
        ],
        Array.from({ length: 8 }, (_, i) => ({ _id: i, n: i })),
    );
    const stage = {
        from: right.collectionName,
        let: { low: '$low', high: '$high' },
        pipeline: [
            { $match: { $expr: { $and: [{ $gte: ['$n', '$$low'] }, { $lt: ['$n', '$$high'] }] } } },
            { $project: { sum: { $add: ['$n', '$$high'] } } },
            { $sort: { _id: 1 } },
        ],
        as: 'found',
    };
    const results = await looked(left, stage);
    assert.deepEqual(
        results.map((r) => r.found),
        [
            [
                { _id: 2, sum: 6 },
                { _id: 3, sum: 7 },
            ],
            [
                { _id: 5, sum: 14 },
                { _id: 6, sum: 15 },
                { _id: 7, sum: 16 },
            ],
            [{ _id: 0, sum: 1 }],
        ],
    );
});

test('a variable that is missing stays missing in the sub-pipeline', async () => {
    const [left, right] = await twoCollections([{ _id: 1 }], [{ _id: 1 }]);
    const [result] = await looked(left, {
        from: right.collectionName,
        let: { v: '$nowhere' },
        pipeline: [{ $project: { v: '$$v', t: { $type: '$$v' } } }],
        as: 'found',
    });
    assert.deepEqual(result.found, [{ _id: 1, t: 'missing' }]);
});

test('$lookup takes an equality and a pipeline together, and nests', async () => {
    const [left, right] = await twoCollections(
        [{ _id: 1, k: 1, v: 3 }],
        [
            { _id: 1, k: 1, n: 1 },
            { _id: 2, k: 1, n: 5 },
            { _id: 3, k: 2, n: 9 },
        ],
    );
    const [concise] = await looked(left, {
        from: right.collectionName,
        localField: 'k',
        foreignField: 'k',
        let: { v: '$v' },
        pipeline: [{ $match: { $expr: { $gt: ['$n', '$$v'] } } }],
        as: 'found',
    });
    assert.deepEqual(concise.found, [{ _id: 2, k: 1, n: 5 }]);
    const [nested] = await looked(left, {
        from: right.collectionName,
        let: { v: '$v' },
        pipeline: [
            { $match: { n: 1 } },
            {
                $lookup: {
                    from: right.collectionName,
                    let: { n: '$n' },
                    pipeline: [
                        { $match: { $expr: { $gt: ['$n', { $add: ['$$n', '$$v'] }] } } },
                        { $project: { outer: '$$v', inner: '$$n' } },
                        { $sort: { _id: 1 } },
                    ],
                    as: 'found',
                },
            },
        ],
        as: 'found',
    });
    assert.deepEqual(nested.found[0].found, [
        { _id: 2, outer: 3, inner: 1 },
        { _id: 3, outer: 3, inner: 1 },
    ]);
});

test('an uncorrelated $lookup gives the same to every document', async () => {
    const [left, right] = await twoCollections(
        Array.from({ length: 50 }, (_, i) => ({ _id: i })),
        Array.from({ length: 5 }, (_, i) => ({ _id: i })),
    );
    const results = await looked(left, {
        from: right.collectionName,
        pipeline: [{ $match: { _id: { $gte: 3 } } }, { $sort: { _id: 1 } }],
        as: 'found',
    });
    assert.equal(results.length, 50);
    for (const result of results) assert.deepEqual(result.found, [{ _id: 3 }, { _id: 4 }]);
});

test('$lookup and $unwind of its array give what they give one after the other', async () => {
    const [left, right] = await twoCollections(
        [{ _id: 1, k: 1 }, { _id: 2, k: 2 }, { _id: 3 }],
        [
            { _id: 1, k: 1 },
            { _id: 2, k: 1 },
            { _id: 3, k: 2 },
        ],
    );
    const lookup = {
        from: right.collectionName,
        localField: 'k',
        foreignField: 'k',
        as: 'f',
    };
    for (const preserveNullAndEmptyArrays of [false, true]) {
        const unwind = { path: '$f', preserveNullAndEmptyArrays, includeArrayIndex: 'i' };
        const together = await looked(left, lookup, { $unwind: unwind }, { $sort: { 'f._id': 1 } });
        const apart = await looked(
            left,
            lookup,
            { $addFields: { f: { $concatArrays: ['$f', []] } } },
            { $unwind: unwind },
            { $sort: { 'f._id': 1 } },
        );
        assert.deepEqual(together, apart);
        assert.equal(together.length, preserveNullAndEmptyArrays ? 4 : 3);
    }
    const filtered = await looked(left, lookup, { $unwind: '$f' }, { $match: { 'f._id': 2 } });
    assert.deepEqual(filtered, [{ _id: 1, k: 1, f: { _id: 2, k: 1 } }]);
});

test('views can be looked up, and look up themselves', async () => {
    const [left, right] = await twoCollections(
        [{ _id: 1, k: 1 }],
        [
            { _id: 1, k: 1, ok: true },
            { _id: 2, k: 1, ok: false },
        ],
    );
    const view = node.newName('v');
    await node.db.createCollection(view, {
        viewOn: right.collectionName,
        pipeline: [{ $match: { ok: true } }, { $project: { ok: 0 } }],
    });
    const stage = { from: view, localField: 'k', foreignField: 'k', as: 'found' };
    assert.deepEqual(await looked(left, stage), [{ _id: 1, k: 1, found: [{ _id: 1, k: 1 }] }]);
    const joined = node.newName('v');
    await node.db.createCollection(joined, {
        viewOn: left.collectionName,
        pipeline: [{ $lookup: stage }, { $unwind: '$found' }],
    });
    assert.deepEqual(await node.db.collection(joined).find({ 'found.k': 1 }).toArray(), [
        { _id: 1, k: 1, found: { _id: 1, k: 1 } },
    ]);
});

test('$lookup goes on over many batches, while the collections change', async () => {
    const pad = 'x'.repeat(500);
    const [left, right] = await twoCollections(
        Array.from({ length: 5000 }, (_, i) => ({ _id: i, k: i % 10, pad })),
        Array.from({ length: 10 }, (_, i) => ({ _id: i, k: i })),
    );
    const cursor = left.aggregate(
        [{ $lookup: { from: right.collectionName, localField: 'k', foreignField: '_id', as: 'f' } }],
        { batchSize: 100 },
    );
    let count = 0;
    for await (const document of cursor) {
        assert.equal(document.f[0]._id, document.k);
        if (++count === 2000) await right.insertOne({ _id: -1, k: 1 });
    }
    assert.equal(count, 5000);
});

test('$lookup with wrong arguments is refused', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const cases = [
        [{ from: 'x' }, 9],
        [{ from: 'x', as: 'a' }, 9],
        [{ as: 'a', pipeline: [] }, 9],
        [{ from: { db: 'd', coll: 'c' }, as: 'a', pipeline: [] }, 9],
        [{ from: 'x', as: 'a', localField: 'b' }, 9],
        [{ from: 'x', as: 'a', localField: 'b', foreignField: 'c', let: {} }, 9],
        [{ from: 'x', as: 'a', pipeline: [], other: 1 }, 9],
        [{ from: 'x', as: 'a', pipeline: 1 }, 14],
        [{ from: 'x', as: 'a', pipeline: [{ $out: 'y' }] }, 51047],
        [{ from: 'x', as: 'a', pipeline: [{ $match: { $expr: '$$u' } }] }, 17276],
        [{ from: 'x', as: 'a', let: { UP: 1 }, pipeline: [] }, 9],
        [{ from: 'x', as: 'a', let: { 'a-b': 1 }, pipeline: [] }, 9],
        [{ from: 'x', as: '$a', pipeline: [] }, 16410],
    ];
    for (const [stage, code] of cases)
        await fails(() => c.aggregate([{ $lookup: stage }]).toArray(), code);
});

test('$graphLookup follows references, with depth, restriction and cycles', async () => {
    const people = await node.collection([
        { _id: 1, name: 'a', boss: null },
        { _id: 2, name: 'b', boss: 'a' },
        { _id: 3, name: 'c', boss: 'b' },
        { _id: 4, name: 'd', boss: 'c' },
        { _id: 5, name: 'x', boss: 'y' },
        { _id: 6, name: 'y', boss: 'x' },
    ]);
    const graph = async (id, more = {}) => {
        const [result] = await people
            .aggregate([
                { $match: { _id: id } },
                {
                    $graphLookup: {
                        from: people.collectionName,
                        startWith: '$boss',
                        connectFromField: 'boss',
                        connectToField: 'name',
                        as: 'chain',
                        ...more,
                    },
                },
            ])
            .toArray();
        return result.chain;
    };
    assert.deepEqual(
        (await graph(4, { depthField: 'd' })).map((p) => [p.name, p.d]).sort(),
        [
            ['a', 2],
            ['b', 1],
            ['c', 0],
        ],
    );
    assert.deepEqual((await graph(4, { maxDepth: 0 })).map((p) => p.name), ['c']);
    assert.deepEqual((await graph(4, { maxDepth: 1 })).map((p) => p.name).sort(), ['b', 'c']);
    assert.deepEqual(
        (await graph(4, { restrictSearchWithMatch: { _id: { $gt: 1 } } })).map((p) => p.name).sort(),
        ['b', 'c'],
    );
    assert.deepEqual((await graph(5)).map((p) => p.name).sort(), ['x', 'y']);
    assert.deepEqual(await graph(1), []);
    await people.createIndex({ name: 1 });
    assert.equal((await graph(4)).length, 3);
    await fails(() => graph(1, { maxDepth: -1 }), 40101);
    await fails(() => graph(1, { maxDepth: 'x' }), 40100);
    await fails(() => graph(1, { other: 1 }), 40104);
    await fails(() => graph(1, { restrictSearchWithMatch: 1 }), 40185);
});

test('$graphLookup goes through arrays and large frontiers', async () => {
    const nodes = await node.collection(
        Array.from({ length: 3000 }, (_, i) => ({
            _id: i,
            next: i === 0 ? Array.from({ length: 2998 }, (_, j) => j + 1) : [2999],
        })),
    );
    const [result] = await nodes
        .aggregate([
            { $match: { _id: 0 } },
            {
                $graphLookup: {
                    from: nodes.collectionName,
                    startWith: '$next',
                    connectFromField: 'next',
                    connectToField: '_id',
                    depthField: 'd',
                    as: 'all',
                },
            },
            { $project: { n: { $size: '$all' }, d: { $max: '$all.d' } } },
        ], { promoteLongs: false })
        .toArray();
    assert.equal(Number(result.n), 2999);
    assert.deepEqual(result.d, Long.fromNumber(1));
});

test('$unionWith appends another collection, a pipeline, and documents', async () => {
    const [a, b] = await twoCollections([{ _id: 1 }], [{ _id: 2 }, { _id: 3 }]);
    const union = async (stage) =>
        (await a.aggregate([{ $unionWith: stage }, { $sort: { _id: 1 } }]).toArray()).map((d) => d._id);
    assert.deepEqual(await union(b.collectionName), [1, 2, 3]);
    assert.deepEqual(
        await union({ coll: b.collectionName, pipeline: [{ $match: { _id: 3 } }] }),
        [1, 3],
    );
    assert.deepEqual(await union({ pipeline: [{ $documents: [{ _id: 9 }] }] }), [1, 9]);
    assert.deepEqual(await union('no_such_collection'), [1]);
    assert.deepEqual(
        await union({ coll: b.collectionName, pipeline: [{ $unionWith: a.collectionName }] }),
        [1, 1, 2, 3],
    );
    await fails(() => union({ pipeline: [] }), 9);
    await fails(() => union(1), 9);
    await fails(() => union({ coll: 'x', pipeline: [{ $out: 'y' }] }), 31441);
});

test('$unionWith streams more than one batch', async () => {
    const pad = 'x'.repeat(400);
    const [a, b] = await twoCollections(
        Array.from({ length: 3000 }, (_, i) => ({ _id: i, pad })),
        Array.from({ length: 6000 }, (_, i) => ({ _id: i, pad })),
    );
    const cursor = a.aggregate([{ $unionWith: b.collectionName }, { $project: { pad: 0 } }], {
        batchSize: 700,
    });
    assert.equal((await cursor.toArray()).length, 9000);
});

test('$graphLookup connects null to null only, and unwinds what it finds', async () => {
    const graph = await node.collection([
        { _id: 1, to: null },
        { _id: 2, from: null },
        { _id: 3 },
        { _id: 'a', to: 'x' },
        { _id: 'B', from: 'X' },
        { _id: 'b', from: 'x' },
    ]);
    const stage = (start) => ({
        $graphLookup: {
            from: graph.collectionName,
            startWith: start,
            connectFromField: 'to',
            connectToField: 'from',
            as: 'found',
        },
    });
    const [first] = await graph.aggregate([{ $match: { _id: 1 } }, stage('$to')]).toArray();
    assert.deepEqual(
        first.found.map((d) => d._id),
        [2],
    );
    const both = await graph
        .aggregate([{ $match: { _id: 'a' } }, stage('$to'), { $unwind: '$found' }], {
            collation: { locale: 'en', strength: 2 },
        })
        .toArray();
    assert.deepEqual(both.map((d) => d.found._id).sort(), ['B', 'b']);
});

test('numbers in localField and connectFromField name elements of arrays as well as fields', async () => {
    const [left, right] = await twoCollections(
        [
            { _id: 1, a: [3, 7] },
            { _id: 2, a: { 0: 3 } },
            { _id: 3, a: { '00': 4 } },
            { _id: 4, a: [{ 0: 4 }, 3] },
            { _id: 5, a: [7, [3]] },
        ],
        [
            { _id: 10, k: 3 },
            { _id: 11, k: 4 },
            { _id: 12, k: { 0: 4 } },
        ],
    );
    const expected = {
        'a.0': [[10], [10], [], [11, 12], []],
        'a.00': [[10], [], [11], [12], []],
        'a.1.0': [[], [], [], [], [10]],
    };
    for (const index of [undefined, { k: 1 }]) {
        if (index) await right.createIndex(index);
        for (const [localField, found] of Object.entries(expected)) {
            const lookup = { from: right.collectionName, localField, foreignField: 'k', as: 'found' };
            const documents = await looked(left, lookup, { $project: { found: 1 } });
            assert.deepEqual(foundIds(documents), found, localField);
        }
    }
    const graph = await node.collection([
        { _id: 1, to: [9, 'b'] },
        { _id: 'b', to: ['x', 'c'] },
        { _id: 'c' },
    ]);
    const [reached] = await graph
        .aggregate([
            { $match: { _id: 1 } },
            {
                $graphLookup: {
                    from: graph.collectionName,
                    startWith: 'b',
                    connectFromField: 'to.01',
                    connectToField: '_id',
                    as: 'found',
                },
            },
        ])
        .toArray();
    assert.deepEqual(foundIds([reached]), [['b', 'c']]);
});

test('fields of references are read by paths as others are', async () => {
    const other = await node.collection([{ _id: 'x', n: 1 }]);
    const link = { $ref: other.collectionName, $id: 'x' };
    const collection = await node.collection([{ _id: 1, link, links: [link, link] }]);
    const [read] = await collection
        .aggregate([
            { $project: { id: '$link.$id', ids: '$links.$id', 'link.$ref': 1 } },
            { $lookup: { from: other.collectionName, localField: 'id', foreignField: '_id', as: 'o' } },
        ])
        .toArray();
    assert.equal(read.id, 'x');
    assert.deepEqual(read.ids, ['x', 'x']);
    assert.deepEqual(read.o, [{ _id: 'x', n: 1 }]);
    await fails(() => collection.aggregate([{ $project: { a: '$link.$other' } }]).toArray(), 16410);
});

test('$facet runs pipelines over one input', async () => {
    const c = await node.collection(
        Array.from({ length: 5000 }, (_, i) => ({ _id: i, k: i % 3, pad: 'x'.repeat(300) })),
    );
    const [result] = await c
        .aggregate([
            {
                $facet: {
                    counts: [{ $group: { _id: '$k', n: { $sum: 1 } } }, { $sort: { _id: 1 } }],
                    first: [{ $sort: { _id: 1 } }, { $limit: 2 }, { $project: { _id: 1 } }],
                    early: [{ $sort: { _id: 1 } }, { $limit: 1 }, { $project: { _id: 1 } }],
                    skipped: [{ $sort: { _id: 1 } }, { $skip: 4998 }, { $project: { _id: 1 } }],
                    total: [{ $count: 'n' }],
                    none: [{ $match: { k: 7 } }],
                    joined: [
                        { $match: { _id: 4999 } },
                        {
                            $lookup: {
                                from: c.collectionName,
                                localField: '_id',
                                foreignField: '_id',
                                as: 'j',
                            },
                        },
                        { $project: { j: { $size: '$j' } } },
                    ],
                },
            },
        ])
        .toArray();
    assert.deepEqual(result, {
        counts: [
            { _id: 0, n: 1667 },
            { _id: 1, n: 1667 },
            { _id: 2, n: 1666 },
        ],
        first: [{ _id: 0 }, { _id: 1 }],
        early: [{ _id: 0 }],
        skipped: [{ _id: 4998 }, { _id: 4999 }],
        total: [{ n: 5000 }],
        none: [],
        joined: [{ _id: 4999, j: 1 }],
    });
    const refused = [
        [{}, 40169],
        [1, 40169],
        [{ a: 1 }, 40170],
        [{ a: [1] }, 40171],
        [{ a: [{ $facet: { b: [] } }] }, 40600],
        [{ a: [{ $out: 'x' }] }, 40600],
        [{ 'a.b': [] }, 16412],
    ];
    for (const [stage, code] of refused)
        await fails(() => c.aggregate([{ $facet: stage }]).toArray(), code);
});

test('$documents makes the input of a pipeline of the database', async () => {
    const made = await node.db
        .aggregate([{ $documents: [{ a: 1 }, { a: { $add: [1, 1] } }] }, { $match: { a: 2 } }])
        .toArray();
    assert.deepEqual(made, [{ a: 2 }]);
    const c = await node.collection([{ _id: 1, a: 2 }]);
    const [looked] = await c
        .aggregate([
            {
                $lookup: {
                    localField: 'a',
                    foreignField: 'k',
                    pipeline: [{ $documents: [{ k: 1 }, { k: 2 }] }],
                    as: 'f',
                },
            },
        ])
        .toArray();
    assert.deepEqual(looked.f, [{ k: 2 }]);
    await fails(() => node.db.aggregate([{ $documents: 5 }]).toArray(), 5858203);
    await fails(() => node.db.aggregate([{ $documents: [1] }]).toArray(), 40228);
    await fails(() => c.aggregate([{ $documents: [] }]).toArray(), 73);
});

test('documents that sub-pipelines examine are counted', async () => {
    const [left, right] = await twoCollections(
        [{ _id: 1, k: 1 }],
        Array.from({ length: 40 }, (_, i) => ({ _id: i, k: i })),
    );
    await node.db.command({ profile: 2 });
    try {
        await looked(left, {
            from: right.collectionName,
            localField: 'k',
            foreignField: 'k',
            as: 'found',
        });
    } finally {
        await node.db.command({ profile: 0 });
    }
    const [entry] = await node.db
        .collection('system.profile')
        .find({ ns: `test.${left.collectionName}`, op: 'command' })
        .toArray();
    assert.equal(entry.docsExamined, 41);
});

test('pipelines with sub-pipelines and sinks run beside writers', async () => {
    const [left, right] = await twoCollections(
        Array.from({ length: 2000 }, (_, i) => ({ _id: i, k: i % 50 })),
        Array.from({ length: 50 }, (_, i) => ({ _id: i, k: i, n: 0 })),
    );
    const target = node.newName();
    const join = {
        $lookup: { from: right.collectionName, localField: 'k', foreignField: 'k', as: 'f' },
    };
    const work = [
        () => looked(left, join.$lookup).then((all) => assert.equal(all.length, 2000)),
        () => left.aggregate([join, { $merge: { into: target } }]).toArray(),
        () => left.aggregate([join, { $out: `${target}_out` }]).toArray(),
        () => left.aggregate([join, { $unwind: '$f' }, { $group: { _id: '$f.n' } }]).toArray(),
        () => right.updateMany({}, { $inc: { n: 1 } }),
        () => left.updateMany({ k: 7 }, { $inc: { touched: 1 } }),
    ];
    for (let round = 0; round < 5; round++) await Promise.all(work.map((each) => each()));
    assert.equal(await node.db.collection(target).countDocuments(), 2000);
    assert.equal(await node.db.collection(`${target}_out`).countDocuments(), 2000);
});

test('sub-pipelines and $merge use the collation of the aggregation', async () => {
    const [left, right] = await twoCollections(
        [{ _id: 1, k: 'A' }],
        [
            { _id: 1, k: 'a' },
            { _id: 2, k: 'b' },
        ],
    );
    const lookup = {
        $lookup: { from: right.collectionName, localField: 'k', foreignField: 'k', as: 'f' },
    };
    const collation = { locale: 'en', strength: 2 };
    const [plain] = await left.aggregate([lookup]).toArray();
    assert.deepEqual(plain.f, []);
    const [folded] = await left.aggregate([lookup], { collation }).toArray();
    assert.deepEqual(folded.f, [{ _id: 1, k: 'a' }]);
    const merge = [
        { $project: { _id: 0, k: 1, merged: { $literal: true } } },
        { $merge: { into: right.collectionName, on: 'k', whenMatched: 'merge' } },
    ];
    await right.createIndex({ k: 1 }, { unique: true });
    await fails(() => left.aggregate(merge, { collation }).toArray(), 51183);
    await right.createIndex({ k: 1 }, { unique: true, name: 'folded', collation });
    await left.aggregate(merge, { collation }).toArray();
    assert.deepEqual(await right.findOne({ _id: 1 }), { _id: 1, k: 'A', merged: true });
});

test('a pipeline reads no view of another collation, whether or not there is a document to read it for', async () => {
    const db = node.db;
    const [empty, right] = await twoCollections([], [{ _id: 1, k: 'a' }]);
    const [same, other] = [`${right.collectionName}_same`, `${right.collectionName}_other`];
    await db.createCollection(same, { viewOn: right.collectionName, pipeline: [] });
    await db.createCollection(other, { viewOn: right.collectionName, pipeline: [], collation: { locale: 'fr' } });
    const stages = (from) => [
        { $lookup: { from, localField: 'k', foreignField: 'k', as: 'f' } },
        { $lookup: { from, pipeline: [], as: 'f' } },
        { $graphLookup: { from, startWith: '$k', connectFromField: 'k', connectToField: 'k', as: 'f' } },
        { $unionWith: from },
        { $facet: { inner: [{ $unionWith: from }] } },
    ];
    for (const [from, collation, refused] of [[same, 'simple', other], [other, 'fr', same]]) {
        const options = { collation: { locale: collation } };
        for (const stage of stages(from)) await empty.aggregate([stage], options).toArray();
        for (const stage of stages(refused)) await fails(() => empty.aggregate([stage], options).toArray(), 167);
    }
});
