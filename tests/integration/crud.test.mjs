/* Insert, update, delete, findAndModify, count, distinct: results, errors, options. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
    BSON,
    Binary,
    Decimal128,
    Double,
    Int32,
    Long,
    MaxKey,
    MinKey,
    ObjectId,
    Timestamp,
} from 'mongodb';
import { fails, ids } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

/* ---- insert ---- */

test('insert returns how many documents were stored and they are found again', async () => {
    const c = await node.collection();
    const reply = await node.db.command({
        insert: c.collectionName,
        documents: [{ _id: 1 }, { _id: 2 }],
    });
    assert.deepEqual({ n: reply.n, ok: reply.ok }, { n: 2, ok: 1 });
    assert.deepEqual(ids(await c.find().sort({ _id: 1 }).toArray()), [1, 2]);
});

test('insert adds a missing _id as the first field', async () => {
    const c = await node.collection();
    await node.db.command({ insert: c.collectionName, documents: [{ a: 1 }] });
    const [document] = await c.find().toArray();
    assert.deepEqual(Object.keys(document), ['_id', 'a']);
    assert.ok(document._id instanceof ObjectId);
});

test('insert moves _id to the front', async () => {
    const c = await node.collection();
    await node.db.command({ insert: c.collectionName, documents: [{ b: 1, a: 2, _id: 3 }] });
    assert.deepEqual(Object.keys(await c.findOne()), ['_id', 'b', 'a']);
});

test('every BSON type comes back with its type and value', async () => {
    const document = {
        _id: new ObjectId(),
        double: new Double(1),
        string: 'añ\u0000b',
        object: { a: {} },
        array: [[], [1]],
        binary: new Binary(Buffer.from([1, 2]), 128),
        bool: false,
        date: new Date(-1),
        null: null,
        regex: /a"b/im,
        code: new BSON.Code('x', { y: new Int32(1) }),
        int: new Int32(-5),
        timestamp: new Timestamp({ t: 7, i: 9 }),
        long: Long.fromString('9007199254740993'),
        decimal: Decimal128.fromString('1.20E+3'),
        min: new MinKey(),
        max: new MaxKey(),
        symbol: new BSON.BSONSymbol('s'),
        dbref: new BSON.DBRef('c', new ObjectId()),
    };
    const c = await node.collection();
    await c.insertOne(document);
    const raw = await c.findOne({}, { raw: true });
    assert.deepEqual(Buffer.from(raw), Buffer.from(BSON.serialize(document)));
});

test('a top-level empty timestamp is replaced by the time of the server', async () => {
    const c = await node.collection([
        { _id: 1, t: new Timestamp(0n), in: { t: new Timestamp(0n) } },
    ]);
    const found = await c.findOne();
    assert.ok(found.t.t > 1_600_000_000);
    assert.equal(found.in.t.t, 0);
});

test('timestamps of the server grow strictly, whatever writes them', async () => {
    const c = await node.collection([]);
    const empty = new Timestamp(0n);
    const docs = Array.from({ length: 500 }, (_, _id) => ({ _id, a: empty, b: empty }));
    await c.insertMany(docs);
    await c.replaceOne({ _id: 600 }, { a: empty, b: empty }, { upsert: true });
    await c.updateOne({ _id: 601 }, { $currentDate: { a: { $type: 'timestamp' }, b: { $type: 'timestamp' } } }, { upsert: true });
    const seen = (await c.find().sort({ _id: 1 }).toArray()).flatMap(({ a, b }) => [a.toBigInt(), b.toBigInt()]);
    assert.equal(seen.length, 2 * 502);
    for (let i = 1; i < seen.length; i++) assert.ok(seen[i] > seen[i - 1], `${i}: ${seen[i]} after ${seen[i - 1]}`);
});

test('an ordered insert stops at the first error', async () => {
    const c = await node.collection([{ _id: 2 }]);
    const reply = await node.db.command({
        insert: c.collectionName,
        documents: [{ _id: 1 }, { _id: 2 }, { _id: 3 }],
    });
    assert.equal(reply.ok, 1);
    assert.equal(reply.n, 1);
    assert.equal(reply.writeErrors.length, 1);
    const [error] = reply.writeErrors;
    assert.equal(error.index, 1);
    assert.equal(error.code, 11000);
    assert.deepEqual(error.keyPattern, { _id: 1 });
    assert.deepEqual(error.keyValue, { _id: 2 });
    assert.equal(
        error.errmsg,
        `E11000 duplicate key error collection: test.${c.collectionName} ` +
            'index: _id_ dup key: { _id: 2 }',
    );
    assert.equal(await c.countDocuments(), 2);
});

test('an unordered insert goes on after errors and reports each with its index', async () => {
    const c = await node.collection([{ _id: 2 }, { _id: 4 }]);
    const reply = await node.db.command({
        insert: c.collectionName,
        documents: [1, 2, 3, 4, 5].map((_id) => ({ _id })),
        ordered: false,
    });
    assert.equal(reply.n, 3);
    assert.deepEqual(
        reply.writeErrors.map(({ index, code }) => [index, code]),
        [
            [1, 11000],
            [3, 11000],
        ],
    );
    assert.equal(await c.countDocuments(), 5);
});

test('an insert of 0 or more than 100,000 documents fails with InvalidLength', async () => {
    await fails(node.db.command({ insert: 'x', documents: [] }), 16, { name: 'InvalidLength' });
    const many = Array.from({ length: 100_001 }, (_, _id) => ({ _id }));
    await fails(node.db.command({ insert: 'x', documents: many }), 16);
});

test('a batch of 100,000 documents is stored', async () => {
    const c = await node.collection();
    const documents = Array.from({ length: 100_000 }, (_, _id) => ({ _id }));
    const reply = await node.db.command({ insert: c.collectionName, documents });
    assert.equal(reply.n, 100_000);
    assert.equal(await c.countDocuments(), 100_000);
    await c.drop();
});

const BAD_DOCUMENTS = [
    ['an _id that is an array', { _id: [1] }, 53],
    ['an _id that is a regular expression', { _id: /x/ }, 53],
    ['an _id with a $-prefixed field', { _id: { $x: 1 } }, 52],
    ['more than 16 MB', { _id: 1, s: 'x'.repeat(16 * 1024 * 1024) }, 2],
];
for (const [what, document, code] of BAD_DOCUMENTS) {
    test(`a document with ${what} is refused with ${code} and nothing is stored`, async () => {
        const c = await node.collection();
        const reply = await node.db.command({ insert: c.collectionName, documents: [document] });
        assert.equal(reply.n, 0);
        assert.equal(reply.writeErrors[0].code, code, reply.writeErrors[0].errmsg);
        assert.equal(await c.countDocuments(), 0);
    });
}

test('a document of exactly 16 MB is stored and read back', async () => {
    const c = await node.collection();
    const overhead = BSON.calculateObjectSize({ _id: 1, s: '' });
    await c.insertOne({ _id: 1, s: 'x'.repeat(16 * 1024 * 1024 - overhead) });
    const raw = await c.findOne({}, { raw: true });
    assert.equal(raw.length, 16 * 1024 * 1024);
    await c.drop();
});

test('documents may be 180 levels deep, not more', async () => {
    const nested = (depth) => (depth === 1 ? {} : { a: nested(depth - 1) });
    const c = await node.collection();
    await c.insertOne(nested(180));
    await fails(c.insertOne(nested(181)), 15, { name: undefined });
});

test('fields may start with $ or hold dots below the top of an inserted document', async () => {
    const c = await node.collection();
    await c.insertOne({ _id: 1, $a: 1, 'b.c': 2 });
    assert.deepEqual(await c.findOne(), { _id: 1, $a: 1, 'b.c': 2 });
});

test('a write with w: 0 is done although nobody waits for it', async () => {
    const c = await node.collection([], {});
    await c.insertOne({ _id: 1 }, { writeConcern: { w: 0 } });
    while ((await c.countDocuments()) === 0);
});

test('write concerns that need other members are refused on a standalone node', async () => {
    const c = await node.collection();
    const insert = (w) =>
        node.db.command({
            insert: c.collectionName,
            documents: [{}],
            writeConcern: { w },
        });
    await fails(insert(2), 2, { name: 'BadValue', message: /not replicated/ });
    for (const w of [0, 1, 'majority']) assert.equal((await insert(w)).ok, 1);
    assert.equal(
        (
            await node.db.command({
                insert: c.collectionName,
                documents: [{}],
                writeConcern: { w: 1, j: true, wtimeout: 10 },
            })
        ).ok,
        1,
    );
});

/* ---- update ---- */

test('update tells matched and modified apart', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 1 },
    ]);
    const update = (u, multi = false) =>
        node.db.command({
            update: c.collectionName,
            updates: [{ q: { a: 1 }, u, multi }],
        });
    let reply = await update({ $set: { a: 1 } }, true);
    assert.deepEqual([reply.n, reply.nModified], [2, 0]);
    reply = await update({ $set: { b: 1 } });
    assert.deepEqual([reply.n, reply.nModified], [1, 1]);
    reply = await update({ $set: { b: 1 } }, true);
    assert.deepEqual([reply.n, reply.nModified], [2, 1]);
    assert.ok(!('upserted' in reply));
});

test('upsert inserts what the filter and the update say and reports the _id', async () => {
    const c = await node.collection();
    const reply = await node.db.command({
        update: c.collectionName,
        updates: [
            {
                q: { _id: 7, a: 1, b: { $gt: 3 } },
                u: { $set: { c: 1 }, $setOnInsert: { d: 2 } },
                upsert: true,
            },
            { q: { _id: 7 }, u: { $set: { c: 2 }, $setOnInsert: { d: 9 } }, upsert: true },
            { q: { x: 1 }, u: { y: 1 }, upsert: true },
        ],
    });
    assert.equal(reply.n, 3);
    assert.equal(reply.nModified, 1);
    assert.deepEqual(reply.upserted[0], { index: 0, _id: 7 });
    assert.equal(reply.upserted[1].index, 2);
    assert.deepEqual(await c.findOne({ _id: 7 }), { _id: 7, a: 1, c: 2, d: 2 });
    assert.deepEqual(await c.findOne({ y: 1 }), { _id: reply.upserted[1]._id, y: 1 });
});

test('a replacement keeps _id and replaces the rest', async () => {
    const c = await node.collection([{ a: 1, _id: 1, b: 2 }]);
    await c.replaceOne({ _id: 1 }, { z: 1 });
    assert.deepEqual(await c.findOne(), { _id: 1, z: 1 });
});

const BAD_UPDATES = [
    ['a replacement with multi', { q: {}, u: { a: 1 }, multi: true }, 9],
    ['an unknown operator', { q: { _id: 1 }, u: { $foo: { a: 1 } } }, 9],
    ['a mixture of operators and fields', { q: { _id: 1 }, u: { $set: { a: 1 }, b: 1 } }, 9],
    ['a change of _id', { q: { _id: 1 }, u: { $set: { _id: 2 } } }, 66],
    ['a replacement with another _id', { q: { _id: 1 }, u: { _id: 2 } }, 66],
    ['two operators on one path', { q: { _id: 1 }, u: { $set: { a: 1 }, $inc: { a: 1 } } }, 40],
    [
        'two operators on a path and its parent',
        { q: { _id: 1 }, u: { $set: { a: 1 }, $inc: { 'a.b': 1 } } },
        40,
    ],
    ['an empty path', { q: { _id: 1 }, u: { $set: { '': 1 } } }, 56],
    ['$inc of a string field', { q: { _id: 1 }, u: { $inc: { s: 1 } } }, 14],
    ['$inc with a string', { q: { _id: 1 }, u: { $inc: { n: 'x' } } }, 14],
    ['$push to a field that is no array', { q: { _id: 1 }, u: { $push: { n: 1 } } }, 2],
    ['a path through a scalar', { q: { _id: 1 }, u: { $set: { 'n.x': 1 } } }, 28],
    [
        'a positional operator without array in the filter',
        { q: { _id: 1 }, u: { $set: { 'a.$': 1 } } },
        2,
    ],
    [
        'a positional operator whose array the filter enters by offset only',
        { q: { _id: 1, 'a.0': 1 }, u: { $set: { 'a.$': 1 } } },
        2,
    ],
    [
        'an array filter nobody uses',
        { q: { _id: 1 }, u: { $set: { a: 1 } }, arrayFilters: [{ 'x.y': 1 }] },
        9,
    ],
    ['an identifier without array filter', { q: { _id: 1 }, u: { $set: { 'a.$[x]': 1 } } }, 2],
];
for (const [what, statement, code] of BAD_UPDATES) {
    test(`update with ${what} fails with ${code} and changes nothing`, async () => {
        const document = { _id: 1, n: 1, s: 'x', a: [1, 2] };
        const c = await node.collection([document]);
        let error;
        try {
            const reply = await node.db.command({ update: c.collectionName, updates: [statement] });
            error = reply.writeErrors?.[0];
            assert.ok(error, JSON.stringify(reply));
        } catch (thrown) {
            error = thrown;
        }
        assert.equal(error.code, code, error.errmsg ?? error.message);
        assert.deepEqual(await c.find().toArray(), [document]);
    });
}

test('a positional operator means the element that was searched, not one named by its offset', async () => {
    const c = await node.collection([{ _id: 1, a: [0, 1], b: [0] }]);
    await c.updateOne({ _id: 1, a: 1, 'b.0': 0 }, { $set: { 'a.$': 2 } });
    assert.deepEqual(await c.findOne(), { _id: 1, a: [0, 2], b: [0] });
    await c.updateOne({ _id: 1, 'b.0': 0, a: 2 }, { $set: { 'a.$': 3 } });
    assert.deepEqual(await c.findOne(), { _id: 1, a: [0, 3], b: [0] });
});

test('ordered updates stop at the first error, unordered ones go on', async () => {
    for (const [ordered, n] of [
        [true, 1],
        [false, 2],
    ]) {
        const c = await node.collection([{ _id: 1, s: 'x' }, { _id: 2 }, { _id: 3 }]);
        const reply = await node.db.command({
            update: c.collectionName,
            ordered,
            updates: [2, 1, 3].map((_id) => ({ q: { _id }, u: { $inc: { s: 1 } } })),
        });
        assert.equal(reply.n, n);
        assert.deepEqual(
            reply.writeErrors.map(({ index, code }) => [index, code]),
            [[1, 14]],
        );
    }
});

test('constants of a pipeline are values, and no other update has them', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const run = (update) => node.db.command({ update: c.collectionName, updates: [{ q: { _id: 1 }, ...update }] });
    await run({ u: [{ $set: { x: '$$v' } }], c: { v: { $add: [1, 2] } } });
    assert.deepEqual(await c.findOne(), { _id: 1, x: { $add: [1, 2] } });
    await fails(run({ u: { $set: { x: 1 } }, c: {} }), 51198);
});

test('an update of many that fails tells none of what it had done', async () => {
    const c = await node.collection([{ _id: 1, n: 1 }, { _id: 2, n: 'x' }]);
    const updates = [{ q: {}, u: { $inc: { n: 1 } }, multi: true }];
    const reply = await node.db.command({ update: c.collectionName, updates });
    assert.deepEqual([reply.n, reply.nModified, reply.writeErrors[0].code], [0, 0, 14]);
});

test('operators make no field whose name starts with $, but in a new document', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await fails(c.updateOne({ _id: 1 }, { $set: { $x: 1 } }), 52);
    await c.updateOne({ _id: 2 }, { $set: { $x: 1 } }, { upsert: true });
    assert.deepEqual(await c.findOne({ _id: 2 }), { _id: 2, $x: 1 });
});

test('bypassEmptyTsReplacement keeps empty timestamps, as operators and pipelines do', async () => {
    const c = await node.collection();
    const name = c.collectionName;
    const a = new Timestamp({ t: 0, i: 0 });
    await node.db.command({ insert: name, documents: [{ _id: 1, a }], bypassEmptyTsReplacement: true });
    const updates = [
        { q: { _id: 2 }, u: { a }, upsert: true },
        { q: { _id: 3 }, u: { $set: { a } }, upsert: true },
        { q: { _id: 4 }, u: [{ $set: { a } }], upsert: true },
    ];
    await node.db.command({ update: name, updates });
    const kept = await c.find({ a }).sort({ _id: 1 }).toArray();
    assert.deepEqual(ids(kept), [1, 3, 4]);
});

test('what is wrong with the fields of findAndModify is told before it writes', async () => {
    const c = await node.collection([{ _id: 1, a: [1] }]);
    const run = (fields) => c.findOneAndUpdate({ a: 1 }, { $set: { b: 1 } }, { projection: fields, returnDocument: 'after' });
    await fails(run({ 'a.$': 1 }), 2);
    await fails(run({ a: 1, b: 0 }), 31254);
    assert.deepEqual(await c.findOne(), { _id: 1, a: [1] });
});

test('update honours hint, arrayFilters and let', async () => {
    const c = await node.collection([
        { _id: 1, a: 5, l: [1, 5, 9] },
        { _id: 2, a: 6, l: [5] },
    ]);
    await c.createIndex({ a: 1 });
    await c.updateOne(
        { _id: 1, a: 5 },
        { $set: { 'l.$[big]': 0 } },
        {
            hint: { a: 1 },
            arrayFilters: [{ big: { $gte: 5 } }],
        },
    );
    assert.deepEqual((await c.findOne({ _id: 1 })).l, [1, 0, 0]);
    await c.updateMany(
        { $expr: { $eq: ['$a', '$$want'] } },
        { $set: { hit: true } },
        { let: { want: 6 } },
    );
    assert.deepEqual(ids(await c.find({ hit: true }).toArray()), [2]);
    await fails(c.updateOne({ _id: 1, a: 5 }, { $set: { z: 1 } }, { hint: 'none' }), 2);
});

test('an update that makes a document too large fails and leaves it as it was', async () => {
    const c = await node.collection([{ _id: 1, s: 'x'.repeat(10 << 20) }]);
    const error = await fails(c.updateOne({ _id: 1 }, { $set: { t: 'y'.repeat(8 << 20) } }), 17419);
    assert.ok(error.message.length > 0);
    assert.deepEqual(Object.keys(await c.findOne()), ['_id', 's']);
    await c.drop();
});

test('concurrent $inc of one document loses nothing', async () => {
    const c = await node.collection([{ _id: 1, n: 0 }]);
    const increments = Array.from({ length: 200 }, () =>
        c.updateOne({ _id: 1 }, { $inc: { n: 1 } }),
    );
    await Promise.all(increments);
    assert.equal((await c.findOne()).n, 200);
});

test('concurrent upserts of one key make one document', async () => {
    const c = await node.collection([], {});
    await c.createIndex({ k: 1 }, { unique: true });
    const upserts = Array.from({ length: 50 }, () =>
        c.updateOne({ k: 1 }, { $inc: { n: 1 } }, { upsert: true }),
    );
    await Promise.all(upserts);
    assert.deepEqual(await c.find({}, { projection: { _id: 0 } }).toArray(), [{ k: 1, n: 50 }]);
});

/* ---- delete ---- */

test('delete removes one with limit 1 and all with limit 0', async () => {
    const c = await node.collection([1, 2, 3].map((_id) => ({ _id, a: 1 })));
    const remove = (limit) =>
        node.db.command({ delete: c.collectionName, deletes: [{ q: { a: 1 }, limit }] });
    assert.equal((await remove(1)).n, 1);
    assert.equal((await remove(0)).n, 2);
    assert.equal((await remove(0)).n, 0);
});

test('delete refuses other limits with FailedToParse', async () => {
    await fails(node.db.command({ delete: 'x', deletes: [{ q: {}, limit: 2 }] }), 9);
});

test('ordered deletes stop at the first error, unordered ones go on', async () => {
    for (const [ordered, n] of [
        [true, 1],
        [false, 2],
    ]) {
        const c = await node.collection([1, 2, 3].map((_id) => ({ _id })));
        const deletes = [{ _id: 1 }, { _id: { $foo: 1 } }, { _id: 2 }].map((q) => ({
            q,
            limit: 1,
        }));
        const reply = await node.db.command({ delete: c.collectionName, deletes, ordered });
        assert.equal(reply.n, n);
        assert.deepEqual(
            reply.writeErrors.map(({ index, code }) => [index, code]),
            [[1, 2]],
        );
    }
});

test('delete honours hint and let', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 2 },
    ]);
    await c.createIndex({ a: 1 });
    const { deletedCount } = await c.deleteMany(
        { $expr: { $eq: ['$a', '$$x'] } },
        { let: { x: 2 }, hint: 'a_1' },
    );
    assert.equal(deletedCount, 1);
    await fails(c.deleteMany({}, { hint: { zz: 1 } }), 2);
});

/* ---- findAndModify ---- */

test('findAndModify returns the old document, or the new one when asked', async () => {
    const c = await node.collection([{ _id: 1, n: 1 }]);
    const run = (more) =>
        node.db.command({ findAndModify: c.collectionName, query: { _id: 1 }, ...more });
    let reply = await run({ update: { $inc: { n: 1 } } });
    assert.deepEqual(reply.value, { _id: 1, n: 1 });
    assert.deepEqual(reply.lastErrorObject, { n: 1, updatedExisting: true });
    reply = await run({ update: { $inc: { n: 1 } }, new: true });
    assert.deepEqual(reply.value, { _id: 1, n: 3 });
    reply = await run({ remove: true });
    assert.deepEqual(reply.value, { _id: 1, n: 3 });
    assert.deepEqual(reply.lastErrorObject, { n: 1 });
    reply = await run({ remove: true });
    assert.deepEqual([reply.value, reply.lastErrorObject], [null, { n: 0 }]);
    reply = await run({ update: { $set: { n: 1 } } });
    assert.deepEqual(
        [reply.value, reply.lastErrorObject],
        [null, { n: 0, updatedExisting: false }],
    );
});

test('findAndModify upserts and reports it', async () => {
    const c = await node.collection();
    const run = (more) =>
        node.db.command({
            findAndModify: c.collectionName,
            query: { _id: 5 },
            update: { $set: { a: 1 } },
            upsert: true,
            ...more,
        });
    let reply = await run({});
    assert.equal(reply.value, null);
    assert.deepEqual(reply.lastErrorObject, { n: 1, updatedExisting: false, upserted: 5 });
    await c.deleteMany({});
    reply = await run({ new: true });
    assert.deepEqual(reply.value, { _id: 5, a: 1 });
});

test('findAndModify takes the first in sort order and projects', async () => {
    const c = await node.collection([
        { _id: 1, a: 1, b: 1 },
        { _id: 2, a: 2, b: 2 },
    ]);
    const value = await c.findOneAndUpdate(
        {},
        { $set: { hit: 1 } },
        {
            sort: { a: -1 },
            projection: { b: 1, _id: 0 },
            returnDocument: 'after',
        },
    );
    assert.deepEqual(value, { b: 2 });
    assert.deepEqual(ids(await c.find({ hit: 1 }).toArray()), [2]);
});

const BAD_FIND_AND_MODIFY = [
    ['update and remove', { update: { a: 1 }, remove: true }],
    ['new and remove', { new: true, remove: true }],
    ['upsert and remove', { upsert: true, remove: true }],
    ['neither update nor remove', {}],
];
for (const [what, more] of BAD_FIND_AND_MODIFY) {
    test(`findAndModify with ${what} fails with FailedToParse`, () =>
        fails(node.db.command({ findAndModify: 'x', query: {}, ...more }), 9));
}

test('findAndModify with a duplicate key fails with 11000 and keyValue', async () => {
    const c = await node.collection([
        { _id: 1, k: 1 },
        { _id: 2, k: 2 },
    ]);
    await c.createIndex({ k: 1 }, { unique: true });
    const error = await fails(c.findOneAndUpdate({ _id: 2 }, { $set: { k: 1 } }), 11000);
    assert.deepEqual(error.keyValue ?? error.errorResponse.keyValue, { k: 1 });
    assert.deepEqual(error.keyPattern ?? error.errorResponse.keyPattern, { k: 1 });
});

/* ---- count, distinct, bulk ---- */

test('count honours query, skip, limit and hint', async () => {
    const c = await node.collection([1, 2, 3, 4, 5].map((_id) => ({ _id, a: _id })));
    await c.createIndex({ a: 1 });
    const count = async (more) => (await node.db.command({ count: c.collectionName, ...more })).n;
    assert.equal(await count({}), 5);
    assert.equal(await count({ query: { a: { $gt: 2 } } }), 3);
    assert.equal(await count({ query: { a: { $gt: 2 } }, limit: 2 }), 2);
    assert.equal(await count({ query: { a: { $gt: 2 } }, limit: -2 }), 2);
    assert.equal(await count({ skip: 4 }), 1);
    assert.equal(await count({ skip: 9 }), 0);
    assert.equal(await count({ query: { a: 1 }, hint: 'a_1' }), 1);
    assert.equal(await count({ query: { a: 1 }, hint: { a: 1 } }), 1);
    assert.equal((await node.db.command({ count: 'nothere' })).n, 0);
});

test('distinct returns each value once, elements of arrays one by one', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: [1, 2] },
        { _id: 3 },
        { _id: 4, a: null },
        { _id: 5, a: 1.0 },
        { _id: 6, a: [[3]] },
        { _id: 7, b: [{ c: 1 }, { c: 2 }] },
    ]);
    assert.deepEqual(await c.distinct('a'), [null, 1, 2, [3]]);
    assert.deepEqual(await c.distinct('a', { _id: { $lt: 3 } }), [1, 2]);
    assert.deepEqual(await c.distinct('b.c'), [1, 2]);
    assert.deepEqual(await c.distinct('b.1.c'), [2]);
    await c.createIndex({ a: 1 });
    assert.deepEqual(await c.distinct('a', { a: { $gt: 0 } }), [1, 2]);
    assert.deepEqual((await node.db.command({ distinct: 'nothere', key: 'a' })).values, []);
});

test('a driver bulk write counts each kind', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const result = await c.bulkWrite([
        { insertOne: { document: { _id: 2 } } },
        { updateOne: { filter: { _id: 1 }, update: { $set: { a: 1 } } } },
        { updateMany: { filter: {}, update: { $set: { b: 1 } } } },
        { replaceOne: { filter: { _id: 3 }, replacement: { c: 1 }, upsert: true } },
        { deleteOne: { filter: { _id: 2 } } },
    ]);
    assert.deepEqual(
        [
            result.insertedCount,
            result.matchedCount,
            result.modifiedCount,
            result.deletedCount,
            result.upsertedCount,
        ],
        [1, 3, 3, 1, 1],
    );
});

test('a driver bulk write reports its errors in order', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const inserts = [1, 2, 1].map((_id) => ({ insertOne: { document: { _id } } }));
    await assert.rejects(c.bulkWrite(inserts, { ordered: false }), (error) => {
        assert.equal(error.code, 11000);
        assert.deepEqual(
            error.writeErrors.map(({ index }) => index),
            [0, 2],
        );
        assert.equal(error.result.insertedCount, 1);
        return true;
    });
});

test('writes to system collections other than the known ones are refused', async () => {
    await fails(node.db.collection('system.foo').insertOne({}), 73, { name: undefined });
});

test('numbers keep their type through $inc and $mul', async () => {
    const c = await node.collection([
        {
            _id: 1,
            i: new Int32(2147483647),
            l: Long.MAX_VALUE,
            d: 1.5,
            m: Decimal128.fromString('1.5'),
        },
    ]);
    await c.updateOne({ _id: 1 }, { $inc: { i: new Int32(1), d: 1, m: 1 } });
    const found = await c.findOne({}, { promoteValues: false });
    assert.equal(found.i._bsontype, 'Long');
    assert.equal(found.i.toString(), '2147483648');
    assert.equal(found.d._bsontype, 'Double');
    assert.equal(found.m.toString(), '2.5');
    await fails(c.updateOne({ _id: 1 }, { $inc: { l: new Int32(1) } }), 2);
});

test('null is an _id like any other', async () => {
    const c = await node.collection();
    await node.db.command({ insert: c.collectionName, documents: [{ _id: null, a: 1 }] });
    for (const filter of [{ _id: null }, { _id: { $type: 'null' } }, { _id: { $type: 10 } }]) {
        assert.equal(await c.countDocuments(filter), 1, JSON.stringify(filter));
        assert.equal((await c.find(filter).toArray()).length, 1, JSON.stringify(filter));
    }
});
