/* Hashed and wildcard indexes, conversion to unique, hidden indexes: what they may be, how they are used. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Long } from 'mongodb';
import { fails, ids } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();
const idsOf = async (cursor) =>
    ids(await cursor.toArray()).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
const create = (c, ...indexes) => node.db.command({ createIndexes: c.collectionName, indexes });
const modify = (c, index, more = {}) =>
    node.db.command({ collMod: c.collectionName, index, ...more });

/* The scan at the bottom of a plan. */
async function scanOf(cursor) {
    let stage = (await cursor.explain('executionStats')).executionStats.executionStages;
    while (stage.inputStage !== undefined) stage = stage.inputStage;
    return stage;
}

async function isValid(c) {
    const report = await node.db.command({ validate: c.collectionName, full: true });
    assert.equal(report.valid, true, JSON.stringify(report.errors));
    return report;
}

/* ---- hashed ---- */

test('a hashed index finds by equality, and nothing else', async () => {
    const c = await node.collection(
        Array.from({ length: 200 }, (_, i) => ({ _id: i, a: i % 50, b: i, s: `t${i % 7}` })),
    );
    await c.insertMany([{ _id: 1000 }, { _id: 1001, a: null }, { _id: 1002, a: 3.5 }]);
    await create(c, { key: { a: 'hashed' }, name: 'h' }, { key: { s: 'hashed', b: -1 }, name: 'sb' });
    const scan = await scanOf(c.find({ a: 7 }));
    assert.deepEqual([scan.stage, scan.indexName, scan.nReturned], ['IXSCAN', 'h', 4]);
    assert.match(scan.indexBounds.a[0], /^\[-?\d+, -?\d+\]$/);
    assert.deepEqual(await idsOf(c.find({ a: { $in: [7, 8] }, b: { $lt: 60 } })), [7, 8, 57, 58]);
    assert.deepEqual(await idsOf(c.find({ a: null })), [1000, 1001]);
    /* 3 and 3.5 have one hash. */
    assert.equal(await c.countDocuments({ a: 3 }), 4);
    assert.deepEqual(await idsOf(c.find({ a: 3.5 })), [1002]);
    assert.equal((await scanOf(c.find({ a: { $gt: 45 } }))).stage, 'COLLSCAN');
    assert.equal((await scanOf(c.find().sort({ a: 1 }))).stage, 'COLLSCAN');
    const compound = await c.find({ s: 't3' }).sort({ b: -1 }).explain();
    assert.ok(!JSON.stringify(compound.queryPlanner.winningPlan).includes('"SORT"'));
    await isValid(c);
});

test('a hashed index has no arrays and is not unique', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await create(c, { key: { a: 'hashed' }, name: 'h' });
    await fails(c.insertOne({ a: [1, 2] }), 16766);
    await fails(c.updateOne({ _id: 1 }, { $set: { a: [] } }), 16766);
    assert.deepEqual(await c.findOne({ a: 1 }), { _id: 1, a: 1 });
    await fails(create(c, { key: { b: 'hashed' }, name: 'u', unique: true }), 16764);
    await fails(create(c, { key: { b: 'hashed', c: 'hashed' }, name: 'two' }), 31303);
    const d = await node.collection([{ a: [1] }]);
    await fails(create(d, { key: { a: 'hashed' }, name: 'h' }), 16766);
    assert.equal((await d.indexes()).length, 1);
});

/* ---- wildcard ---- */

test('a wildcard index finds by any path', async () => {
    const c = await node.collection([
        { _id: 1, a: { b: 5, c: 'x' }, d: 1 },
        { _id: 2, a: { b: 7 }, e: [1, { f: 9 }] },
        { _id: 3, a: 4, d: null },
        { _id: 4, g: {} },
    ]);
    await create(c, { key: { '$**': 1 }, name: 'all' });
    const scan = await scanOf(c.find({ 'a.b': { $gte: 5 } }));
    assert.deepEqual(
        [scan.stage, scan.indexName, scan.keyPattern, scan.keysExamined],
        ['IXSCAN', 'all', { $_path: 1, 'a.b': 1 }, 2],
    );
    assert.deepEqual(scan.indexBounds, { $_path: ['["a.b", "a.b"]'], 'a.b': ['[5, inf.0]'] });
    assert.equal(scan.isMultiKey, false);
    const array = await scanOf(c.find({ 'e.f': 9 }));
    assert.deepEqual(
        [array.stage, array.isMultiKey, array.multiKeyPaths],
        ['IXSCAN', true, { $_path: [], 'e.f': ['e'] }],
    );
    assert.deepEqual(await idsOf(c.find({ 'e.f': 9 })), [2]);
    assert.deepEqual(await idsOf(c.find({ e: 1 })), [2]);
    const exists = await scanOf(c.find({ a: { $exists: true } }));
    assert.deepEqual([exists.stage, exists.nReturned], ['IXSCAN', 3]);
    assert.deepEqual(exists.indexBounds.$_path, ['["a", "a"]', '["a.", "a/")']);
    const sorted = c.find({ 'a.b': { $gt: 1 } }).sort({ 'a.b': -1 });
    assert.ok(!JSON.stringify((await sorted.clone().explain()).queryPlanner).includes('"SORT"'));
    assert.deepEqual((await sorted.toArray()).map((doc) => doc._id), [2, 1]);
    await isValid(c);
});

test('a wildcard index is not used for what it cannot have', async () => {
    const c = await node.collection([{ _id: 1, a: { b: 1 } }, { _id: 2 }, { _id: 3, a: [] }]);
    await create(c, { key: { '$**': 1 }, name: 'all' });
    const filters = [
        { a: null },
        { a: { $ne: null } },
        { a: { $exists: false } },
        { a: { b: 1 } },
        { a: [1] },
        { a: { $gte: {} } },
        { a: { $ne: 3 } },
        { 'a.0.1': 1 },
    ];
    for (const filter of filters) {
        assert.equal((await scanOf(c.find(filter))).stage, 'COLLSCAN', JSON.stringify(filter));
        await fails(c.find(filter).hint('all').toArray(), 291);
    }
    assert.equal((await scanOf(c.find().sort({ a: 1 }))).stage, 'COLLSCAN');
    assert.deepEqual(await idsOf(c.find({ a: { b: 1 } })), [1]);
    const found = [
        [{ a: [] }, [3]],
        [{ a: {} }, []],
        [{ a: { $type: 'object' } }, [1]],
        [{ a: { $type: 'array' } }, [3]],
    ];
    for (const [filter, ids] of found) assert.deepEqual(await idsOf(c.find(filter).hint('all')), ids, JSON.stringify(filter));
});

test('a number in a path finds positions in arrays and names of fields with a wildcard index', async () => {
    const c = await node.collection([
        { _id: 1, a: [{ b: 1 }, { b: 2 }] },
        { _id: 2, a: { 0: { b: 1 } } },
        { _id: 3, a: [{ b: 2 }, { b: 1 }] },
        { _id: 4, a: [[{ b: 1 }]] },
        { _id: 5, a: { b: 1 } },
        { _id: 6, c: [4, 5] },
        { _id: 7, c: [[5], 4] },
        { _id: 8, c: { 0: 5, 1: [] } },
    ]);
    await create(c, { key: { '$**': 1 }, name: 'all' });
    const cases = [
        [{ 'a.0.b': 1 }, [1, 2, 4]],
        [{ 'a.1.b': { $lt: 2 } }, [3]],
        [{ 'c.0': 5 }, [8]],
        [{ 'c.1': { $in: [4, 5] } }, [6, 7]],
        [{ 'c.1': [] }, [8]],
    ];
    for (const [filter, ids] of cases) {
        assert.deepEqual(await idsOf(c.find(filter).hint('all')), ids, JSON.stringify(filter));
        assert.deepEqual(await idsOf(c.find(filter).hint({ $natural: 1 })), ids, JSON.stringify(filter));
    }
    const nine = Array.from({ length: 9 }, () => 'x.0').join('.');
    await fails(c.find({ [nine]: 1 }).hint('all').toArray(), 291);
});

test('a wildcard index keeps to its projection', async () => {
    const c = await node.collection([{ _id: 1, a: { b: 1, c: 2 }, d: 3 }]);
    await create(
        c,
        { key: { 'a.$**': 1 }, name: 'below' },
        { key: { '$**': 1 }, name: 'out', wildcardProjection: { a: 0, _id: 1 } },
    );
    assert.equal((await scanOf(c.find({ 'a.b': 1 }))).indexName, 'below');
    assert.equal((await scanOf(c.find({ d: 3 }))).indexName, 'out');
    assert.equal((await scanOf(c.find({ _id: { $gt: 0 }, d: 3 }).hint('out'))).indexName, 'out');
    assert.deepEqual((await c.indexes())[2].wildcardProjection, { a: 0, _id: 1 });
    await fails(create(c, { key: { '$**': 1 }, name: 'u', unique: true }), 67);
    await fails(create(c, { key: { '$**': 1 }, name: 't', expireAfterSeconds: 5 }), 67);
    await fails(
        create(c, { key: { '$**': 1 }, name: 'm', wildcardProjection: { a: 0, b: 1 } }),
        31253,
    );
});

test('a compound wildcard index is searched by its prefix and a path', async () => {
    const c = await node.collection(
        Array.from({ length: 60 }, (_, i) => ({ _id: i, t: i % 3, p: { x: i, y: -i } })),
    );
    await create(c, { key: { t: 1, 'p.$**': 1 }, name: 'tp' });
    const scan = await scanOf(c.find({ t: 1, 'p.x': { $lt: 10 } }));
    assert.deepEqual(
        [scan.indexName, scan.keyPattern, scan.nReturned, scan.keysExamined],
        ['tp', { t: 1, $_path: 1, 'p.x': 1 }, 3, 3],
    );
    await c.insertOne({ _id: 100, t: 2 }); /* without a path for the wildcard */
    const prefix = await scanOf(c.find({ t: 2 }));
    assert.deepEqual([prefix.indexName, prefix.nReturned], ['tp', 21]);
    await fails(c.insertOne({ t: [1], p: { x: [1] } }), 171);
    await isValid(c);
});

test('updates move the keys of wildcard and hashed indexes', async () => {
    const c = await node.collection([{ _id: 1, a: 1, b: { c: [1, 2] } }]);
    await create(c, { key: { '$**': 1 }, name: 'all' }, { key: { a: 'hashed' }, name: 'h' });
    await c.updateOne({ _id: 1 }, { $set: { a: 2, 'b.c': 5 }, $unset: { z: 1 } });
    assert.equal(await c.countDocuments({ a: 1 }), 0);
    assert.equal((await scanOf(c.find({ 'b.c': 5 }))).isMultiKey, false); /* the array is gone */
    assert.deepEqual(await idsOf(c.find({ a: 2, 'b.c': 5 })), [1]);
    await c.deleteOne({ _id: 1 });
    const report = await isValid(c);
    assert.deepEqual(report.keysPerIndex, { _id_: 0, all: 0, h: 0 });
});

/* ---- options and conflicts ---- */

test('conflicts of options and of keys have their own codes', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await create(c, { key: { a: 1 }, name: 'a' });
    await fails(create(c, { key: { a: 1 }, name: 'b' }), 85);
    await fails(create(c, { key: { a: 1 }, name: 'a', expireAfterSeconds: 5 }), 85);
    await fails(create(c, { key: { b: 1 }, name: 'a' }), 86);
    await fails(create(c, { key: { a: 1 }, name: 'a', sparse: true }), 86);
    await create(c, { key: { a: 1 }, name: 'u', unique: true }); /* may stand beside it */
    const many = Array.from({ length: 61 }, (_, i) => ({ key: { [`f${i}`]: 1 }, name: `f${i}` }));
    await create(c, ...many);
    await fails(create(c, { key: { last: 1 }, name: 'last' }), 67);
    const wide = Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`g${i}`, 1]));
    await fails(create(await node.collection([{}]), { key: wide, name: 'wide' }), 13103);
});

test('a hidden index is kept up but not used', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await create(c, { key: { a: 1 }, name: 'a', unique: true });
    const reply = await modify(c, { name: 'a', hidden: true });
    assert.deepEqual([reply.hidden_old, reply.hidden_new], [false, true]);
    assert.equal((await scanOf(c.find({ a: 1 }))).stage, 'COLLSCAN');
    await fails(c.insertOne({ a: 1 }), 11000);
    await modify(c, { keyPattern: { a: 1 }, hidden: false });
    assert.equal((await scanOf(c.find({ a: 1 }))).stage, 'IXSCAN');
    await fails(modify(c, { name: '_id_', hidden: true }), 2);
    await fails(modify(c, { name: 'none', hidden: true }), 27);
    await fails(modify(c, { name: 'a' }), 72);
});

/* ---- conversion to unique ---- */

test('an index becomes unique in two steps', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 1 },
        { _id: 3, a: 2 },
        { _id: 4, a: 3 },
        { _id: 5, a: 3 },
        { _id: 6, a: 3 },
    ]);
    await create(c, { key: { a: 1 }, name: 'a' });
    await fails(modify(c, { keyPattern: { a: 1 }, unique: true }), 72);
    const prepared = await modify(c, { keyPattern: { a: 1 }, prepareUnique: true });
    assert.deepEqual([prepared.prepareUnique_old, prepared.prepareUnique_new], [false, true]);
    assert.equal((await c.indexes())[1].prepareUnique, true);
    await fails(c.insertOne({ _id: 7, a: 2 }), 11000);
    await c.insertOne({ _id: 8, a: 4 });
    const violations = [{ ids: [1, 2] }, { ids: [4, 5, 6] }];
    for (const more of [{ dryRun: true }, {}]) {
        const error = await modify(c, { keyPattern: { a: 1 }, unique: true }, more).catch((e) => e);
        assert.equal(error.code, 359);
        assert.deepEqual(error.errorResponse.violations, violations);
    }
    await c.deleteMany({ _id: { $in: [1, 4, 5] } });
    const dry = await modify(c, { keyPattern: { a: 1 }, unique: true }, { dryRun: true });
    assert.equal(dry.unique_new, undefined);
    assert.equal((await c.indexes())[1].unique, undefined);
    const converted = await modify(c, { keyPattern: { a: 1 }, unique: true });
    assert.equal(converted.unique_new, true);
    assert.deepEqual((await c.indexes())[1], { v: 2, key: { a: 1 }, name: 'a', unique: true });
    await fails(c.insertOne({ a: 3 }), 11000);
    await fails(modify(c, { keyPattern: { a: 1 }, unique: false }), 2);
    await isValid(c);
});

test('a preparation for unique can be taken back', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await create(c, { key: { a: 1 }, name: 'a' });
    await modify(c, { name: 'a', prepareUnique: true });
    await fails(c.insertOne({ a: 1 }), 11000);
    await modify(c, { name: 'a', prepareUnique: false });
    await c.insertOne({ _id: 2, a: 1 });
    assert.deepEqual(await idsOf(c.find({ a: 1 })), [1, 2]);
    await fails(modify(c, { name: 'a', hidden: true }, { dryRun: true }), 72);
    /* An index that is made so takes what is there already, and no more of it. */
    await create(c, { key: { a: -1 }, name: 'p', prepareUnique: true });
    assert.deepEqual(await idsOf(c.find({ a: 1 }).hint('p')), [1, 2]);
    await fails(c.insertOne({ a: 1 }), 11000);
});

test('long integers hash as what they are', async () => {
    const c = await node.collection([{ _id: 1, a: Long.fromString('9007199254740993') }]);
    await create(c, { key: { a: 'hashed' }, name: 'h' });
    assert.equal(await c.countDocuments({ a: Long.fromString('9007199254740993') }), 1);
    assert.equal(await c.countDocuments({ a: Long.fromString('9007199254740992') }), 0);
});

test('kinds and options of indexes last over a restart', async () => {
    let c = await node.collection([
        { _id: 1, a: 1, b: { c: [1] } },
        { _id: 2, a: 2, b: { d: 5 } },
    ]);
    await create(
        c,
        { key: { a: 'hashed' }, name: 'h' },
        { key: { 'b.$**': 1 }, name: 'w' },
        { key: { p: 1 }, name: 'p' },
        { key: { at: 1 }, name: 't', expireAfterSeconds: 3600 },
    );
    await modify(c, { name: 'p', prepareUnique: true });
    const before = await c.indexes();
    await node.server.restart();
    node.db = (await node.server.client()).db('test');
    c = node.db.collection(c.collectionName);
    assert.deepEqual(await c.indexes(), before);
    assert.equal((await scanOf(c.find({ a: 2 }))).indexName, 'h');
    assert.equal((await scanOf(c.find({ 'b.c': 1 }))).isMultiKey, true);
    assert.equal((await scanOf(c.find({ 'b.d': 5 }))).isMultiKey, false);
    await fails(c.insertOne({ _id: 3, a: 3 }), 11000); /* two documents without p */
    await c.insertOne({ _id: 4, p: 1 });
    await isValid(c);
});

test('hashed and wildcard indexes are built while others write', async () => {
    const make = (i) => ({ _id: i, a: i % 50, s: { x: i % 7, list: [i % 3, { y: i % 5 }] } });
    const c = await node.collection(Array.from({ length: 4000 }, (_, i) => make(i)));
    let isOver = false;
    const write = async (from) => {
        for (let i = from; !isOver; i = (i + 37) % 5000) {
            await c.replaceOne({ _id: i }, { ...make(i * 3), _id: i }, { upsert: true });
            await c.updateOne({ _id: (i * 7) % 5000 }, { $set: { 's.list': i % 4 }, $inc: { a: 1 } });
            await c.deleteOne({ _id: (i * 11) % 5000 });
        }
    };
    const writers = [1, 2, 3].map(write);
    try {
        for (let round = 0; round < 5; round++) {
            await create(
                c,
                { key: { a: 'hashed' }, name: 'h' },
                { key: { '$**': 1 }, name: 'w' },
                { key: { a: 1, 's.$**': -1 }, name: 'cw' },
            );
            if (round < 4) await c.dropIndexes(['h', 'w', 'cw']);
        }
    } finally {
        isOver = true;
        await Promise.all(writers);
    }
    await isValid(c);
    for (const filter of [{ a: 7 }, { 's.x': 3 }, { 's.list.y': 2 }, { a: 3, 's.list': 1 }]) {
        const scanned = await idsOf(c.find(filter).hint({ $natural: 1 }));
        assert.deepEqual(await idsOf(c.find(filter)), scanned, JSON.stringify(filter));
    }
});
