/*
 * Random writes keep every index true. Goal: after thousands of updates of all kinds, `validate`
 * finds nothing and each index finds what a scan finds. Method: a collection with indexes of all
 * kinds, a stream of random writes whose failures (duplicates, wrong types) are part of the game,
 * checks on the way and at the end. TEST_SEED repeats a run.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();
const DOCUMENT_COUNT = 200;
const WRITE_COUNT = 3000;
const CHECK_EVERY = 1000;
const TEXTS = ['a', 'A', 'b', 'ä', 'zz', ''];

const INDEXES = [
    { key: { a: 1 }, name: 'single' },
    { key: { a: -1, b: 1 }, name: 'compound' },
    { key: { list: 1 }, name: 'multikey' },
    { key: { 'items.k': 1, 'items.n': -1 }, name: 'nested' },
    { key: { list: 1, a: 1 }, name: 'multikey_compound' },
    { key: { u: 1 }, name: 'unique', unique: true, sparse: true },
    { key: { s: 1 }, name: 'sparse', sparse: true },
    { key: { b: 1, a: 1 }, name: 'partial', partialFilterExpression: { b: { $gt: 0 } } },
    { key: { t: 1, a: 1 }, name: 'collated', collation: { locale: 'en', strength: 1 } },
    { key: { u: 'hashed', b: 1 }, name: 'hashed' },
    { key: { '$**': 1 }, name: 'wildcard' },
];

/* ---- what is written ---- */

function makeValue(rand) {
    return rand.pick([
        () => rand.below(10),
        () => rand.below(40) / 4 - 5,
        () => rand.pick(TEXTS),
        () => null,
        () => new Date(rand.below(1000)),
        () => rand.below(2) === 0,
        () => [rand.below(5), rand.pick(TEXTS)],
        () => ({ k: rand.below(5) }),
    ])();
}
const makeItem = (rand) => ({ k: rand.below(6), n: makeValue(rand) });
const makeList = (rand, make) => Array.from({ length: rand.below(5) }, () => make(rand));

function makeDocument(rand, _id) {
    const document = {
        _id,
        a: rand.below(4) === 0 ? makeValue(rand) : rand.below(10),
        b: rand.below(10) - 4,
        t: rand.pick(TEXTS),
        list: makeList(rand, (r) => r.below(8)),
        items: makeList(rand, makeItem),
        o: { x: makeValue(rand), y: { z: rand.below(5) } },
        u: _id,
    };
    // A document cannot have two arrays along the paths of one index.
    if (Array.isArray(document.a)) document.a = 0;
    for (const name of ['a', 't', 'list', 'items', 'u'])
        if (rand.below(10) === 0) delete document[name];
    if (rand.below(3) === 0) document.s = rand.below(5);
    return document;
}

/* [update, options] of every operator. */
const UPDATES = [
    (rand) => [{ $set: { a: makeValue(rand) } }],
    (rand) => [{ $set: { 'o.x': makeValue(rand), t: rand.pick(TEXTS) } }],
    (rand) => [{ $set: { u: rand.below(DOCUMENT_COUNT * 2) } }],
    (rand) => [{ $set: { [`items.${rand.below(3)}.k`]: rand.below(6) } }],
    (rand) => [{ $unset: { [rand.pick(['a', 'b', 's', 'u', 'list', 'o.x'])]: '' } }],
    (rand) => [{ $inc: { b: rand.below(7) - 3, a: 1 } }],
    (rand) => [{ $mul: { b: rand.pick([2, -1, 0, 1.5]) } }],
    (rand) => [{ $min: { a: makeValue(rand) } }],
    (rand) => [{ $max: { a: makeValue(rand), b: rand.below(8) } }],
    (rand) => [{ $rename: rand.pick([{ a: 's' }, { s: 'a' }, { b: 'o.b' }, { list: 'o.list' }]) }],
    () => [{ $currentDate: { a: true } }],
    (rand) => [{ $bit: { b: { xor: rand.below(8) } } }],
    (rand) => [{ $push: { list: makeValue(rand) } }],
    (rand) => [{ $push: { list: { $each: [3, 1], $sort: 1, $slice: rand.pick([-3, 4]) } } }],
    (rand) => [{ $push: { items: { $each: [makeItem(rand)], $position: 0, $sort: { k: -1 } } } }],
    (rand) => [{ $addToSet: { list: { $each: [rand.below(8), makeValue(rand)] } } }],
    (rand) => [{ $pop: { list: rand.pick([1, -1]) } }],
    (rand) => [{ $pull: { list: { $gte: rand.below(8) }, items: { k: rand.below(6) } } }],
    (rand) => [{ $pullAll: { list: [rand.below(8), rand.below(8)] } }],
    (rand) => [{ $set: { 'items.$[].n': makeValue(rand) } }],
    (rand) => [
        { $inc: { 'items.$[i].k': 1 } },
        { arrayFilters: [{ 'i.k': { $lt: rand.below(6) } }] },
    ],
    (rand) => [
        { $set: { 'list.$[i]': makeValue(rand) } },
        { arrayFilters: [{ i: rand.below(8) }] },
    ],
    (rand) => [[{ $set: { a: { $ifNull: ['$b', 7] }, s: { $size: { $ifNull: ['$list', []] } } } }]],
    (rand) => [[{ $set: { list: { $concatArrays: [{ $ifNull: ['$list', []] }, ['$a']] } } }]],
    () => [[{ $unset: 'o.x' }, { $set: { 'o.y.z': '$b' } }]],
    (rand) => [{ $setOnInsert: { list: [1, 2] }, $set: { b: rand.below(9) } }, { upsert: true }],
];
const FILTERS = [
    (rand) => ({ _id: rand.below(DOCUMENT_COUNT) }),
    (rand) => ({ a: rand.below(10) }),
    (rand) => ({ list: rand.below(8) }),
    (rand) => ({ 'items.k': { $gt: rand.below(6) } }),
    (rand) => ({ t: rand.pick(TEXTS), b: { $gt: rand.below(5) } }),
    (rand) => ({ b: { $lt: rand.below(6) - 4 } }),
    (rand) => ({ u: rand.below(DOCUMENT_COUNT * 2) }),
    (rand) => ({ 'o.x': makeValue(rand) }),
];

async function write(collection, rand) {
    const filter = rand.pick(FILTERS)(rand);
    const [update, options = {}] = rand.pick(UPDATES)(rand);
    const fresh = () => makeDocument(rand, rand.below(DOCUMENT_COUNT * 2));
    const { _id, ...replacement } = fresh();
    return rand.pick([
        () => collection.updateOne(filter, update, options),
        () => collection.updateOne(filter, update, options),
        () => collection.updateMany(filter, update, options),
        () => collection.findOneAndUpdate(filter, update, { sort: { b: 1, _id: 1 }, ...options }),
        () => collection.replaceOne(filter, replacement, { upsert: rand.below(2) === 0 }),
        () => collection.findOneAndReplace(filter, replacement),
        () => collection.updateOne({ ...filter, list: rand.below(8) }, { $set: { 'list.$': 9 } }),
        () => (rand.below(3) === 0 ? collection.deleteOne(filter) : collection.insertOne(fresh())),
        () =>
            collection.bulkWrite(
                [
                    { updateOne: { filter, update, ...options } },
                    { insertOne: { document: fresh() } },
                ],
                { ordered: false },
            ),
    ])();
}

/* ---- what is checked ---- */

/* Filters per index. */
const QUERIES = {
    single: [{ a: { $gte: 3 } }, { a: null }, { a: { $type: 'string' } }],
    compound: [{ a: { $lt: 6 }, b: { $gt: 0 } }, { a: 4 }],
    multikey: [{ list: 3 }, { list: { $gt: 2, $lt: 5 } }, { list: { $size: 2 } }],
    nested: [{ 'items.k': 2 }, { items: { $elemMatch: { k: { $gt: 2 }, n: { $gt: 1 } } } }],
    multikey_compound: [{ list: { $in: [1, 9] }, a: { $gt: 2 } }],
    unique: [{ u: { $gt: 50 } }],
    sparse: [{ s: { $gte: 0 } }, { s: { $exists: true } }],
    partial: [{ b: { $gt: 0 } }, { b: 3, a: { $gt: 1 } }],
    hashed: [{ u: 3 }, { u: { $in: [1, 50] }, b: { $gt: 0 } }, { u: null }],
    wildcard: [{ 'items.k': 2 }, { list: { $gt: 2, $lt: 5 } }, { 'o.y.z': 3 }, { o: { $exists: true } }],
    collated: [{ t: 'a' }, { t: { $gte: 'a', $lt: 'z' } }],
};

async function check(collection, where) {
    const report = await node.db.command({ validate: collection.collectionName, full: true });
    assert.equal(report.valid, true, `${where}: ${JSON.stringify(report)}`);
    assert.deepEqual(report.warnings ?? [], [], where); // a router has none of its own
    for (const { name, collation } of INDEXES) {
        for (const filter of QUERIES[name]) {
            const options = { projection: { _id: 1 }, ...(collation && { collation }) };
            const found = async (hint) =>
                (await collection.find(filter, { ...options, hint }).toArray())
                    .map(({ _id }) => String(_id))
                    .sort();
            const text = `${where}: ${name} ${JSON.stringify(filter)}`;
            assert.deepEqual(await found(name), await found({ $natural: 1 }), text);
        }
    }
}

const EXPECTED_ERRORS = [
    2, // BadValue: $pop, $addToSet and their like on what is no array
    14, // TypeMismatch: arithmetic on what is no number
    28, // PathNotViable
    56, // EmptyFieldName
    11000, // DuplicateKey
    171, // CannotIndexParallelArrays
    28764, // $concatArrays of what is no array
    17124, // $size of what is no array
    16766, // an array under a hashed index
];

test('random updates of all kinds leave all indexes true', async () => {
    const seed = seedOfRun();
    const rand = random(seed);
    const collection = await node.collection();
    await collection.createIndexes(INDEXES);
    for (let _id = 0; _id < DOCUMENT_COUNT; _id++)
        await collection.insertOne(makeDocument(rand, _id)).catch(acceptable);
    let failed = 0;
    const codes = {};
    function acceptable(error) {
        const code = error.code ?? error.writeErrors?.[0]?.code;
        if (code === undefined) throw error;
        codes[code] = (codes[code] ?? 0) + 1;
        failed++;
    }
    for (let i = 1; i <= WRITE_COUNT; i++) {
        await write(collection, rand).catch(acceptable);
        if (i % CHECK_EVERY === 0) await check(collection, `seed ${seed}, write ${i}`);
    }
    const unexpected = Object.keys(codes).filter((code) => !EXPECTED_ERRORS.includes(Number(code)));
    assert.deepEqual(unexpected, [], `seed ${seed}: ${JSON.stringify(codes)}`);
    assert.ok(failed < WRITE_COUNT / 2, `seed ${seed}: ${failed} writes failed`);
    assert.ok((await collection.countDocuments()) > DOCUMENT_COUNT / 4, `seed ${seed}`);
});

test('an update that makes the index it goes by multikey goes on to the end', async () => {
    const collection = await node.collection(
        Array.from({ length: 20 }, (_, _id) => ({ _id, a: _id, b: 1 })),
    );
    await collection.createIndex({ a: 1, b: 1 });
    const update = { $set: { b: [1, 2] }, $inc: { a: 100 } };
    const result = await collection.updateMany({ a: { $gte: 5 } }, update, { hint: 'a_1_b_1' });
    assert.deepEqual([result.matchedCount, result.modifiedCount], [15, 15]);
    assert.equal(await collection.countDocuments({ a: { $gte: 105, $lt: 120 }, b: 2 }), 15);
    const { deletedCount } = await collection.deleteMany({ b: 2, a: { $gt: 0 } });
    assert.equal(deletedCount, 15);
});

test('an update of many changes each document once, whatever plan finds them', async () => {
    const documents = Array.from({ length: 3000 }, (_, i) => ({ _id: i, n: 0, m: i % 7, a: [0, i] }));
    for (const clusteredIndex of [undefined, { key: { _id: 1 }, unique: true }]) {
        const c = await node.collection(documents, clusteredIndex && { clusteredIndex });
        await c.createIndexes([{ key: { n: 1 } }, { key: { m: 1, n: 1 } }, { key: { a: 1 } }]);
        const queries = [
            [{ n: { $gte: 0 } }, { n: 1 }],
            [{ n: { $gte: 0 } }, { $natural: 1 }],
            [{ m: { $gte: 0 }, n: { $gte: 0 } }, { m: 1, n: 1 }],
            [{ a: { $gte: 0 } }, { a: 1 }],
            [{ $or: [{ n: { $gte: 0 } }, { m: { $gte: 0 } }] }, undefined],
        ];
        for (const [filter, hint] of queries) {
            const update = { $inc: { n: 1, m: 1 }, $push: { a: 5000 } };
            const done = await c.updateMany(filter, update, hint && { hint });
            assert.deepEqual([done.matchedCount, done.modifiedCount], [3000, 3000]);
        }
        assert.deepEqual(await c.distinct('n'), [queries.length]);
        assert.equal((await c.deleteMany({ a: { $gte: 0 } }, { hint: { a: 1 } })).deletedCount, 3000);
    }
});
