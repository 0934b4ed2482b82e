/* $out and $merge: what they leave in their target, also when they fail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

const sorted = (collection) => collection.find().sort({ _id: 1 }).toArray();
const run = (collection, ...stages) => collection.aggregate(stages).toArray();

async function temporaryNames(db = node.db) {
    const list = await db.listCollections({}, { nameOnly: true }).toArray();
    return list.map((c) => c.name).filter((name) => name.startsWith('tmp.agg_out'));
}

test('$out makes a collection and returns nothing', async () => {
    const source = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 2 },
    ]);
    const target = node.db.collection(node.newName());
    const reply = await node.db.command({
        aggregate: source.collectionName,
        pipeline: [{ $match: { a: 2 } }, { $out: target.collectionName }],
        cursor: {},
        writeConcern: { w: 1, j: true },
    });
    assert.deepEqual(reply.cursor.firstBatch, []);
    assert.equal(Number(reply.cursor.id), 0);
    assert.deepEqual(await sorted(target), [{ _id: 2, a: 2 }]);
    assert.deepEqual(await temporaryNames(), []);
});

test('$out replaces the documents of its target and keeps indexes and options', async () => {
    const source = await node.collection(
        Array.from({ length: 3000 }, (_, i) => ({ _id: i, k: i, pad: 'x'.repeat(2000) })),
    );
    const target = await node.collection([{ _id: 'old', k: 0 }], {
        validator: { k: { $lt: 10_000 } },
        validationLevel: 'moderate',
    });
    await target.createIndex({ k: 1 }, { unique: true });
    await run(source, { $out: target.collectionName });
    assert.equal(await target.countDocuments(), 3000);
    assert.deepEqual((await target.indexes()).map((i) => i.name).sort(), ['_id_', 'k_1']);
    const [info] = await node.db.listCollections({ name: target.collectionName }).toArray();
    assert.deepEqual(info.options.validator, { k: { $lt: 10_000 } });
    assert.equal(info.options.temp, undefined);
    await fails(() => target.insertOne({ _id: 'x', k: 5 }), 11000);
});

test('$out works on its own source and into another database', async () => {
    const source = await node.collection([{ _id: 1 }, { _id: 2 }]);
    await run(source, { $match: { _id: 2 } }, { $out: source.collectionName });
    assert.deepEqual(await sorted(source), [{ _id: 2 }]);
    await run(source, { $out: { db: 'other_db', coll: 'made' } });
    assert.deepEqual(await sorted(node.client.db('other_db').collection('made')), [{ _id: 2 }]);
});

test('an $out that fails leaves its target and no temporary collection', async () => {
    const source = await node.collection([
        { _id: 1, k: 1 },
        { _id: 2, k: 1 },
    ]);
    const target = await node.collection([{ _id: 'old', k: 9 }]);
    await target.createIndex({ k: 1 }, { unique: true });
    await fails(() => run(source, { $out: target.collectionName }), 11000);
    assert.deepEqual(await sorted(target), [{ _id: 'old', k: 9 }]);
    await fails(
        () => run(source, { $project: { x: { $divide: [1, 0] } } }, { $out: target.collectionName }),
        2,
    );
    assert.deepEqual(await sorted(target), [{ _id: 'old', k: 9 }]);
    assert.deepEqual(await temporaryNames(), []);
});

test('$out is refused where it cannot be', async () => {
    const source = await node.collection([{ _id: 1 }]);
    const capped = await node.collection([], { capped: true, size: 4096 });
    const view = node.newName('v');
    await node.db.createCollection(view, { viewOn: source.collectionName, pipeline: [] });
    await fails(() => run(source, { $out: capped.collectionName }), 17152);
    await fails(() => run(source, { $out: view }), 166);
    await fails(() => run(source, { $out: 'x' }, { $match: {} }), 40601);
    await fails(() => run(source, { $out: 1 }), 16990);
    await fails(() => run(source, { $out: { coll: 'x' } }), 40414);
    await fails(() => run(source, { $out: { db: 'admin', coll: 'x' } }), 31321);
    await fails(() => run(source, { $out: 'system.x' }), 17385);
    await fails(() => run(source, { $merge: { into: { db: 'admin', coll: 'x' } } }), 31320);
    await fails(() => run(source, { $merge: 'system.x' }), 31319);
    await fails(
        () =>
            node.db.createCollection(node.newName('v'), {
                viewOn: source.collectionName,
                pipeline: [{ $out: 'x' }],
            }),
        167,
    );
    const explained = await source.aggregate([{ $out: 'x' }]).explain('executionStats');
    assert.equal(explained.stages[1].$out.coll, 'x');
    assert.deepEqual(await node.db.listCollections({ name: 'x' }).toArray(), []);
});

const MODES = [
    ['replace', 'insert', [{ _id: 1, b: 2 }, { _id: 2, a: 2 }, { _id: 3, b: 3 }]],
    ['replace', 'discard', [{ _id: 1, b: 2 }, { _id: 2, a: 2 }]],
    ['merge', 'insert', [{ _id: 1, a: 1, b: 2 }, { _id: 2, a: 2 }, { _id: 3, b: 3 }]],
    ['merge', 'discard', [{ _id: 1, a: 1, b: 2 }, { _id: 2, a: 2 }]],
    ['keepExisting', 'insert', [{ _id: 1, a: 1 }, { _id: 2, a: 2 }, { _id: 3, b: 3 }]],
    [
        [{ $set: { c: { $add: ['$a', '$$new.b'] } } }],
        'insert',
        [{ _id: 1, a: 1, c: 3 }, { _id: 2, a: 2 }, { _id: 3, b: 3 }],
    ],
];

for (const [whenMatched, whenNotMatched, expected] of MODES)
    test(`$merge with ${JSON.stringify(whenMatched)} and ${whenNotMatched}`, async () => {
        const source = await node.collection([
            { _id: 1, b: 2 },
            { _id: 3, b: 3 },
        ]);
        const target = await node.collection([
            { _id: 1, a: 1 },
            { _id: 2, a: 2 },
        ]);
        const into = target.collectionName;
        assert.deepEqual(await run(source, { $merge: { into, whenMatched, whenNotMatched } }), []);
        assert.deepEqual(await sorted(target), expected);
    });

test('$merge fails for a match or the lack of one when told to', async () => {
    const source = await node.collection([{ _id: 1 }, { _id: 2 }]);
    const target = await node.collection([{ _id: 2, old: true }]);
    const into = target.collectionName;
    await fails(
        () => run(source, { $sort: { _id: 1 } }, { $merge: { into, whenMatched: 'fail' } }),
        11000,
    );
    assert.deepEqual(await sorted(target), [{ _id: 1 }, { _id: 2, old: true }]);
    await target.deleteOne({ _id: 1 });
    await fails(() => run(source, { $merge: { into, whenNotMatched: 'fail' } }), 13113, {
        name: 'MergeStageNoMatchingDocument',
    });
});

test('$merge identifies documents by other fields with a unique index', async () => {
    const source = await node.collection([
        { _id: 1, a: 1, b: 1, n: 5 },
        { _id: 2, a: 1, b: 2, n: 6 },
    ]);
    const target = await node.collection([{ _id: 'x', a: 1, b: 1, n: 0 }]);
    const into = target.collectionName;
    const stages = [{ $project: { _id: 0 } }, { $merge: { into, on: ['a', 'b'] } }];
    await fails(() => run(source, ...stages), 51183);
    await target.createIndex({ b: 1, a: 1 }, { unique: true });
    await run(source, ...stages);
    const found = await target.find().sort({ b: 1 }).toArray();
    assert.deepEqual(found[0], { _id: 'x', a: 1, b: 1, n: 5 });
    assert.deepEqual([found[1].a, found[1].b, found[1].n], [1, 2, 6]);
    assert.equal(found[1]._id._bsontype, 'ObjectId');
    await fails(() => run(source, { $merge: { into, on: ['a', 'b'] } }), 66);
    await fails(
        () => run(source, { $project: { a: 1 } }, { $merge: { into, on: ['a', 'b'] } }),
        51132,
    );
    await fails(
        () => run(source, { $project: { a: 1, b: ['$b'] } }, { $merge: { into, on: ['a', 'b'] } }),
        51185,
    );
});

test('$merge makes its target, gives ids, and sees variables', async () => {
    const source = await node.collection([{ _id: 1, n: 2 }]);
    const into = node.newName();
    await run(source, { $project: { _id: 0 } }, { $merge: into });
    const [made] = await node.db.collection(into).find().toArray();
    assert.equal(made.n, 2);
    const target = await node.collection([{ _id: 1, n: 10 }]);
    await source
        .aggregate(
            [
                {
                    $merge: {
                        into: { db: 'test', coll: target.collectionName },
                        let: { m: { $multiply: ['$n', 100] } },
                        whenMatched: [{ $set: { n: { $add: ['$n', '$$m', '$$plus'] } } }],
                    },
                },
            ],
            { let: { plus: 5 } },
        )
        .toArray();
    assert.deepEqual(await sorted(target), [{ _id: 1, n: 215 }]);
});

test('$merge goes on after a document that fails, and then reports it', async () => {
    const source = await node.collection([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    const target = await node.collection([
        { _id: 1, old: true },
        { _id: 3, old: true },
    ]);
    const into = target.collectionName;
    const merge = { into, whenMatched: 'replace', whenNotMatched: 'fail' };
    await fails(() => run(source, { $sort: { _id: 1 } }, { $merge: merge }), 13113);
    assert.deepEqual(await sorted(target), [{ _id: 1 }, { _id: 3 }]);
    await fails(() => run(source, { $merge: { into, whenMatched: 'fail' } }), 11000, {
        message: /whenMatched: fail found an existing document/,
    });
    assert.deepEqual(await sorted(target), [{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
});

test('$merge gives an _id that is one of several fields, and $$new beside other variables', async () => {
    const source = await node.collection([{ _id: 1, a: 1 }]);
    const target = await node.collection([{ _id: 1, a: 1 }]);
    const into = target.collectionName;
    await target.createIndex({ _id: 1, a: 1 }, { unique: true });
    await run(source, { $project: { _id: 0 } }, { $merge: { into, on: ['_id', 'a'] } });
    assert.equal(await target.countDocuments({ a: 1 }), 2);
    const whenMatched = [{ $set: { sum: { $add: ['$$new.a', '$$ten'] } } }];
    await run(source, { $merge: { into, let: { ten: 10 }, whenMatched } });
    assert.deepEqual(await target.findOne({ _id: 1 }), { _id: 1, a: 1, sum: 11 });
});

test('validation holds for $out and $merge, unless bypassed', async () => {
    const source = await node.collection([{ _id: 1, n: 'text' }]);
    const target = await node.collection([], { validator: { n: { $type: 'int' } } });
    for (const stage of [{ $out: target.collectionName }, { $merge: target.collectionName }]) {
        await fails(() => run(source, stage), 121);
        await source.aggregate([stage], { bypassDocumentValidation: true }).toArray();
        assert.equal(await target.countDocuments(), 1);
        await target.deleteMany({});
    }
});

test('$merge with wrong arguments is refused', async () => {
    const source = await node.collection([{ _id: 1 }]);
    const cases = [
        [1, 51182],
        [{}, 40414],
        [{ into: 1 }, 51178],
        [{ into: 'x', on: 1 }, 51186],
        [{ into: 'x', on: [] }, 51187],
        [{ into: 'x', on: [1] }, 51134],
        [{ into: 'x', on: ['a', 'a'] }, 31465],
        [{ into: 'x', whenMatched: 'no' }, 2],
        [{ into: 'x', whenNotMatched: 'no' }, 2],
        [{ into: 'x', whenMatched: 'fail', whenNotMatched: 'discard' }, 51181],
        [{ into: 'x', let: { a: 1 } }, 51199],
        [{ into: 'x', let: { new: 1 }, whenMatched: [] }, 51273],
        [{ into: 'x', whenMatched: [{ $match: {} }] }, 72],
        [{ into: 'x', other: 1 }, 40415],
    ];
    for (const [stage, code] of cases) await fails(() => run(source, { $merge: stage }), code);
});

test('many documents go through $merge into the collection they come from', async () => {
    const c = await node.collection(Array.from({ length: 3000 }, (_, i) => ({ _id: i, n: 1 })));
    await run(
        c,
        { $project: { n: { $add: ['$n', 1] } } },
        { $merge: { into: c.collectionName, whenMatched: 'replace', whenNotMatched: 'fail' } },
    );
    assert.equal(await c.countDocuments({ n: 2 }), 3000);
});
