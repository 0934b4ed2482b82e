/*
 * Collations through the wire: per operation, as the default of a collection, of indexes and views.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails, ids, random, seedOfRun, sortedIds } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();
const ANY_CASE = { locale: 'en', strength: 2 };
const COMPLETE = {
    locale: 'en',
    caseLevel: false,
    caseFirst: 'off',
    strength: 2,
    numericOrdering: false,
    alternate: 'non-ignorable',
    maxVariable: 'punct',
    normalization: false,
    backwards: false,
    version: '57.1',
};
const WORDS = ['apple', 'Apple', 'Banana', 'banana', 'cherry', '10', '9'].map((w, i) => ({
    _id: i,
    w,
    tags: [w, 'x'],
}));

async function fresh(name, options = {}, docs = WORDS) {
    await node.db.collection(name).drop();
    const coll = await node.db.createCollection(name, options);
    await coll.insertMany(docs);
    return coll;
}

test('reads compare strings by the collation of the operation', async () => {
    const coll = await fresh('reads');
    const c = { collation: ANY_CASE };
    const ids = async (filter, options = c) => sortedIds(await coll.find(filter, options).toArray());
    assert.deepEqual(await ids({ w: 'APPLE' }), [0, 1]);
    assert.deepEqual(await ids({ w: 'APPLE' }, {}), []);
    assert.deepEqual(await ids({ w: { $in: ['BANANA', 'x'] } }), [2, 3]);
    assert.deepEqual(await ids({ w: { $nin: ['BANANA', 'APPLE'] } }), [4, 5, 6]);
    assert.deepEqual(await ids({ w: { $gt: 'BANANA' } }), [4]);
    assert.deepEqual(await ids({ tags: 'CHERRY' }), [4]);
    assert.deepEqual(await ids({ tags: { $all: ['CHERRY', 'X'] } }), [4]);
    assert.deepEqual(await ids({ tags: { $elemMatch: { $eq: 'CHERRY' } } }), [4]);
    assert.deepEqual(await ids({ $expr: { $eq: ['$w', 'APPLE'] } }), [0, 1]);
    assert.deepEqual(await ids({ w: /APPLE/ }), [], 'regular expressions know no collation');
    assert.deepEqual(await ids({ w: 'apple' }, { collation: { locale: 'simple' } }), [0]);
    assert.equal(await coll.countDocuments({ w: 'APPLE' }, c), 2);
    assert.equal((await node.db.command({ count: 'reads', query: { w: 'APPLE' }, ...c })).n, 2);
    assert.equal((await coll.distinct('w', {}, c)).length, 5);
    assert.equal((await coll.distinct('w', {})).length, 7);
});

test('sorts follow the collation', async () => {
    const coll = await fresh('sorts');
    const words = async (options) =>
        (await coll.find({}, options).sort({ w: 1, _id: 1 }).toArray()).map((d) => d.w);
    assert.deepEqual(await words({}), ['10', '9', 'Apple', 'Banana', 'apple', 'banana', 'cherry']);
    assert.deepEqual(await words({ collation: { locale: 'en' } }), [
        '10',
        '9',
        'apple',
        'Apple',
        'banana',
        'Banana',
        'cherry',
    ]);
    assert.deepEqual(await words({ collation: { locale: 'en', numericOrdering: true, caseFirst: 'upper' } }), [
        '9',
        '10',
        'Apple',
        'apple',
        'Banana',
        'banana',
        'cherry',
    ]);
});

test('pipelines group, match and sort by the collation', async () => {
    const coll = await fresh('pipelines');
    const groups = await coll
        .aggregate(
            [{ $match: { w: { $lt: 'C' } } }, { $group: { _id: '$w', n: { $sum: 1 } } }, { $sort: { _id: 1 } }],
            { collation: ANY_CASE },
        )
        .toArray();
    assert.deepEqual(
        groups.map((g) => [g._id.toLowerCase(), g.n]),
        [['10', 1], ['9', 1], ['apple', 2], ['banana', 2]],
    );
    const [row] = await coll
        .aggregate([{ $sort: { _id: 1 } }, { $limit: 1 }, { $project: { same: { $eq: ['$w', 'APPLE'] } } }], { collation: ANY_CASE })
        .toArray();
    assert.equal(row.same, true);
});

test('stages on other collections compare by the collation of the pipeline', async () => {
    const words = await node.collection(WORDS);
    const german = await node.collection(WORDS, { collation: { locale: 'de' } });
    const from = german.collectionName;
    const lookup = [
        { $match: { _id: 1 } },
        { $lookup: { from, localField: 'w', foreignField: 'w', as: 'same' } },
    ];
    const found = async (options) =>
        sortedIds((await words.aggregate(lookup, options).toArray())[0].same);
    assert.deepEqual(await found({}), [1], 'not the collation of the other collection');
    assert.deepEqual(await found({ collation: ANY_CASE }), [0, 1]);
    await german.createIndex({ w: 1 }, { collation: ANY_CASE });
    assert.deepEqual(await found({ collation: ANY_CASE }), [0, 1]);
    assert.deepEqual(await found({}), [1]);
    const union = [
        { $match: { w: 'CHERRY' } },
        { $unionWith: { coll: from, pipeline: [{ $match: { w: 'CHERRY' } }] } },
    ];
    assert.equal((await words.aggregate(union, { collation: ANY_CASE }).toArray()).length, 2);
    assert.equal((await words.aggregate(union).toArray()).length, 0);
    const facet = [{ $facet: { n: [{ $match: { w: 'APPLE' } }, { $count: 'n' }] } }];
    const [row] = await words.aggregate(facet, { collation: ANY_CASE }).toArray();
    assert.deepEqual(row, { n: [{ n: 2 }] });
});

test('writes find documents and array elements by the collation', async () => {
    const coll = await fresh('writes');
    const c = { collation: ANY_CASE };
    assert.equal((await coll.updateMany({ w: 'APPLE' }, { $set: { seen: 1 } }, c)).modifiedCount, 2);
    assert.equal((await coll.updateOne({ w: 'APPLE' }, { $set: { seen: 2 } })).matchedCount, 0);
    await coll.updateOne({ _id: 4 }, { $set: { 'tags.$[t]': 'found' } }, { ...c, arrayFilters: [{ t: 'CHERRY' }] });
    assert.deepEqual((await coll.findOne({ _id: 4 })).tags, ['found', 'x']);
    await coll.updateOne({ _id: 4 }, { $pull: { tags: 'X' } }, c);
    assert.deepEqual((await coll.findOne({ _id: 4 })).tags, ['found']);
    await coll.updateOne({ _id: 4 }, { $addToSet: { tags: 'FOUND' } }, c);
    assert.deepEqual((await coll.findOne({ _id: 4 })).tags, ['found']);
    await coll.updateOne({ _id: 4, tags: 'FOUND' }, { $set: { 'tags.$': 'by position' } }, c);
    assert.deepEqual((await coll.findOne({ _id: 4 })).tags, ['by position']);
    const gone = await coll.findOneAndDelete({ w: 'CHERRY' }, { ...c, includeResultMetadata: false });
    assert.equal(gone._id, 4);
    assert.equal((await coll.deleteMany({ w: 'BANANA' }, c)).deletedCount, 2);
    const upserted = await coll.updateOne({ w: 'APPLE' }, { $set: { n: 1 } }, { ...c, upsert: true });
    assert.equal(upserted.upsertedCount, 0);
});

test('a collection passes its collation on to queries and indexes', async () => {
    const coll = await fresh('inherits', { collation: ANY_CASE });
    assert.deepEqual(sortedIds(await coll.find({ w: 'APPLE' }).toArray()), [0, 1]);
    assert.deepEqual(sortedIds(await coll.find({ w: 'APPLE' }, { collation: { locale: 'simple' } }).toArray()), []);
    assert.equal((await coll.updateMany({ w: 'APPLE' }, { $set: { a: 1 } })).modifiedCount, 2);
    assert.equal((await coll.aggregate([{ $match: { w: 'APPLE' } }]).toArray()).length, 2);

    const [info] = await node.db.listCollections({ name: 'inherits' }).toArray();
    assert.deepEqual(info.options.collation, COMPLETE);
    assert.deepEqual(info.idIndex.collation, COMPLETE);
    const [entry] = await coll.aggregate([{ $listCatalog: {} }]).toArray();
    assert.deepEqual(entry.md.options.collation, COMPLETE);
    assert.match(entry.md.indexes[0].sortKeyVersion, /^\d+\./);

    await coll.createIndex({ w: 1 });
    await coll.createIndex({ tags: 1 }, { collation: { locale: 'simple' } });
    await coll.createIndex({ w: 1 }, { name: 'german', collation: { locale: 'de' } });
    const byName = Object.fromEntries((await coll.indexes()).map((i) => [i.name, i]));
    assert.deepEqual(byName.w_1.collation, COMPLETE);
    assert.equal(byName.tags_1.collation, undefined);
    assert.equal(byName.german.collation.locale, 'de');
    assert.deepEqual(sortedIds(await coll.find({ w: 'APPLE' }).toArray()), [0, 1]);
    assert.deepEqual(sortedIds(await coll.find({ w: 'APPLE' }, { hint: 'german' }).toArray()), [0, 1]);
    const { queryPlanner } = await coll.find({ w: 'APPLE' }).explain('queryPlanner');
    assert.deepEqual(queryPlanner.collation, COMPLETE);
    assert.equal(queryPlanner.winningPlan.inputStage.indexName, 'w_1');
    assert.deepEqual(queryPlanner.winningPlan.inputStage.collation, COMPLETE);
    const { valid, nIndexes } = await node.db.command({ validate: 'inherits', full: true });
    assert.deepEqual([valid, nIndexes], [true, 4]);
});

test('identifiers are unique and found under the collection\'s collation', async () => {
    for (const clustered of [false, true]) {
        const options = { collation: ANY_CASE };
        if (clustered) options.clusteredIndex = { key: { _id: 1 }, unique: true };
        const coll = await fresh('identifiers', options, [{ _id: 'One', n: 1 }, { _id: 2 }]);
        await fails(coll.insertOne({ _id: 'ONE' }), 11000, { message: /dup key/ });
        assert.equal((await coll.findOne({ _id: 'one' })).n, 1);
        assert.equal(await coll.findOne({ _id: 'one' }, { collation: { locale: 'simple' } }), null);
        assert.equal((await coll.findOne({ _id: 'One' }, { collation: { locale: 'simple' } })).n, 1);
        assert.equal((await coll.updateOne({ _id: 'oNe' }, { $inc: { n: 1 } })).modifiedCount, 1);
        assert.equal((await coll.updateOne({ _id: 'oNe' }, { $inc: { n: 1 } }, { collation: { locale: 'simple' } })).matchedCount, 0);
        assert.equal((await coll.deleteOne({ _id: 'ONE' })).deletedCount, 1);
    }
});

test('unique indexes count equal strings as duplicates', async () => {
    const coll = await fresh('unique_words', {}, [{ _id: 1, w: 'Apple' }]);
    await coll.createIndex({ w: 1 }, { unique: true, collation: ANY_CASE });
    await coll.createIndex({ w: 1 }, { unique: true, name: 'bytes' });
    const error = await fails(coll.insertOne({ _id: 2, w: 'APPLE' }), 11000, { message: /collation: \{ locale: "en"/ });
    assert.match(error.message, /dup key: \{ w: "0x[0-9a-f]+" \}/);
    await coll.insertOne({ _id: 2, w: 'Pear' });
    await fails(coll.updateOne({ _id: 2 }, { $set: { w: 'apple' } }), 11000);
    await coll.updateOne({ _id: 1 }, { $set: { w: 'aPPLE' } });
    await coll.dropIndex('w_1');
    await coll.insertOne({ _id: 3, w: 'APPLE' });
    await fails(coll.createIndex({ w: 1 }, { unique: true, collation: ANY_CASE }), 11000);
});

test('views have the collation they were made with', async () => {
    await fresh('under_view');
    for (const name of ['plain_view', 'any_case_view']) await node.db.collection(name).drop();
    const plain = await node.db.createCollection('plain_view', { viewOn: 'under_view', pipeline: [] });
    const view = await node.db.createCollection('any_case_view', {
        viewOn: 'under_view',
        pipeline: [{ $match: { w: { $ne: 'CHERRY' } } }],
        collation: ANY_CASE,
    });
    assert.equal(await plain.countDocuments({ w: 'APPLE' }), 0);
    assert.deepEqual(sortedIds(await view.find({ w: 'APPLE' }).toArray()), [0, 1]);
    assert.deepEqual(sortedIds(await view.find({}).toArray()), [0, 1, 2, 3, 5, 6]);
    assert.equal((await view.distinct('w')).length, 4);
    assert.equal((await node.db.command({ count: 'any_case_view', query: { w: 'apple' } })).n, 2);
    assert.deepEqual(sortedIds(await view.find({ w: 'APPLE' }, { collation: COMPLETE }).toArray()), [0, 1]);
    await fails(view.find({}, { collation: { locale: 'fr' } }).toArray(), 167);
    await fails(view.aggregate([], { collation: { locale: 'simple' } }).toArray(), 167);
    await fails(node.db.createCollection('other_view', { viewOn: 'any_case_view', pipeline: [] }), 167);
    const [info] = await node.db.listCollections({ name: 'any_case_view' }).toArray();
    assert.deepEqual(info.options.collation, COMPLETE);
    await node.db.command({ collMod: 'any_case_view', viewOn: 'under_view', pipeline: [] });
    assert.equal(await view.countDocuments({ w: 'CHERRY' }), 1, 'collMod keeps the collation');
});

test('malformed collations are refused everywhere', async () => {
    const coll = await fresh('refused');
    const bad = [
        [{ locale: 'nonsense' }, 2],
        [{ locale: 'en', strength: 9 }, 2],
        [{ strength: 1 }, 40414],
        [{ locale: 'en', blah: 1 }, 40415],
        [{ locale: 1 }, 14],
    ];
    for (const [collation, code] of bad) {
        await fails(coll.find({}, { collation }).toArray(), code);
        await fails(coll.aggregate([], { collation }).toArray(), code);
        await fails(coll.updateOne({}, { $set: { a: 1 } }, { collation }), code);
        await fails(coll.deleteOne({}, { collation }), code);
        await fails(coll.distinct('w', {}, { collation }), code);
        await fails(coll.createIndex({ w: 1 }, { collation }), code);
        await fails(node.db.createCollection('never', { collation }), code);
        await fails(coll.findOneAndDelete({}, { collation }), code);
    }
    assert.equal((await coll.find({}, { collation: {} }).toArray()).length, WORDS.length);
    await fails(coll.createIndex({ _id: 1 }, { collation: { locale: 'fr' } }), 2);
    await fails(node.db.command({ collMod: 'refused', collation: ANY_CASE }), 40415);
});

test('indexes with any collation change no result', async () => {
    /* Goal: whatever index a plan takes, the result is that of a scan.
     * Method: random values, filters, sorts and collations, each asked with and without a scan. */
    const seed = seedOfRun();
    const rand = random(seed);
    const collations = [
        undefined,
        { locale: 'simple' },
        ANY_CASE,
        { locale: 'en', strength: 1 },
        { locale: 'sv', numericOrdering: true },
    ];
    const texts = ['a', 'A', 'á', 'b', 'B', 'z', 'ö', '10', '9', 'ab', 'Ab', '', 'a b', 'a-b'];
    const value = () => {
        const kind = rand.below(8);
        if (kind < 5) return rand.pick(texts);
        if (kind === 5) return rand.below(12);
        if (kind === 6) return [rand.pick(texts), rand.pick(texts), rand.below(3)];
        return { k: rand.pick(texts) };
    };
    for (const collation of [undefined, ANY_CASE]) {
        const coll = await node.collection([], collation && { collation });
        const documents = Array.from({ length: 150 }, (_, i) => ({ _id: i, v: value(), w: rand.pick(texts) }));
        await coll.insertMany(documents);
        await coll.createIndex({ v: 1 });
        await coll.createIndex({ v: 1 }, { name: 'any', collation: { locale: 'en', strength: 1 } });
        await coll.createIndex({ w: -1, v: 1 }, { collation: ANY_CASE });
        await coll.createIndex({ w: 1 }, { name: 'bytes', collation: { locale: 'simple' } });
        const partialFilterExpression = { w: { $gte: 'A', $lte: 'b' } };
        await coll.createIndex(
            { v: 1, w: 1 },
            { partialFilterExpression, collation: { locale: 'simple' } },
        );
        const condition = () => {
            const operand = rand.below(10) === 0 ? null : rand.pick([value(), rand.pick(texts)]);
            const op = rand.pick(['$eq', '$gt', '$gte', '$lt', '$lte', '$ne', '$in', '$regex']);
            if (op === '$in') return { $in: [operand, rand.pick(texts), rand.pick(texts)] };
            if (op === '$regex') return { $regex: `^${rand.pick(['a', 'A', 'b', '1'])}` };
            return { [op]: operand };
        };
        for (let round = 0; round < 250; round++) {
            const filter = {};
            for (const field of ['v', 'w']) if (rand.below(2) === 0) filter[field] = condition();
            const options = { collation: rand.pick(collations) };
            if (options.collation === undefined) delete options.collation;
            const sort = rand.pick([{ _id: 1 }, { v: 1, _id: 1 }, { w: -1, v: 1, _id: 1 }]);
            const ask = async (more) =>
                ids(await coll.find(filter, { ...options, ...more }).sort(sort).toArray());
            const where = `seed ${seed}: ${JSON.stringify({ filter, options, sort })}`;
            const scanned = await ask({ hint: { $natural: 1 } });
            assert.deepEqual(await ask({}), scanned, where);
            const hint = rand.pick(['v_1', 'any', 'w_-1_v_1', 'bytes']);
            assert.deepEqual(await ask({ hint }), scanned, `${where} with ${hint}`);
        }
    }
});

test('collations survive a restart', async () => {
    const coll = await fresh('kept', { collation: ANY_CASE });
    await coll.createIndex({ w: 1 });
    await node.server.restart();
    node.client = await node.server.client();
    node.admin = node.client.db('admin');
    node.db = node.client.db('test');
    const again = node.db.collection('kept');
    assert.deepEqual(sortedIds(await again.find({ w: 'APPLE' }).toArray()), [0, 1]);
    assert.equal((await node.db.command({ validate: 'kept', full: true })).valid, true);
});
