/* Update operators through the wire: document, update, result. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Double, Int32, Long, Timestamp } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

const UPDATES = [
    ['$set replaces and adds', { a: 1 }, { $set: { a: 2, b: 3 } }, { a: 2, b: 3 }],
    ['$set makes missing parents', {}, { $set: { 'a.b.c': 1 } }, { a: { b: { c: 1 } } }],
    ['$set pads arrays with null', { a: [1] }, { $set: { 'a.3': 4 } }, { a: [1, null, null, 4] }],
    [
        'new fields come in the order of their names',
        {},
        { $set: { c: 1, a: 1, b: 1 } },
        { a: 1, b: 1, c: 1 },
    ],
    [
        '$unset removes fields and empties array elements',
        { a: 1, b: [1, 2] },
        { $unset: { a: '', 'b.0': '' } },
        { b: [null, 2] },
    ],
    ['$inc adds and creates', { a: 1 }, { $inc: { a: 2, b: -1 } }, { a: 3, b: -1 }],
    ['$mul multiplies and creates 0', { a: 3 }, { $mul: { a: 2, b: 5 } }, { a: 6, b: 0 }],
    ['$min takes the lesser', { a: 5, b: 5 }, { $min: { a: 3, b: 7, c: 1 } }, { a: 3, b: 5, c: 1 }],
    [
        '$max takes the greater',
        { a: 5, b: 5 },
        { $max: { a: 3, b: 7, c: 1 } },
        { a: 5, b: 7, c: 1 },
    ],
    [
        '$min and $max compare across types',
        { a: 5, b: 'x' },
        { $max: { a: 'x' }, $min: { b: 5 } },
        { a: 'x', b: 5 },
    ],
    ['$rename moves a value', { a: 1, b: 2 }, { $rename: { a: 'c' } }, { b: 2, c: 1 }],
    ['$rename overwrites the target', { a: 1, b: 2 }, { $rename: { a: 'b' } }, { b: 1 }],
    ['$rename of a missing field does nothing', { b: 2 }, { $rename: { a: 'c' } }, { b: 2 }],
    ['$bit works on integers', { a: 13 }, { $bit: { a: { and: 10 } } }, { a: 8 }],
    ['$bit or and xor', { a: 3, b: 1 }, { $bit: { a: { xor: 5 }, b: { or: 6 } } }, { a: 6, b: 7 }],
    ['$push appends and creates', { a: [1] }, { $push: { a: 2, b: 3 } }, { a: [1, 2], b: [3] }],
    ['$push $each appends all', { a: [1] }, { $push: { a: { $each: [2, 3] } } }, { a: [1, 2, 3] }],
    [
        '$push $position inserts',
        { a: [1, 4] },
        { $push: { a: { $each: [2, 3], $position: 1 } } },
        { a: [1, 2, 3, 4] },
    ],
    [
        '$push negative $position counts from the end',
        { a: [1, 4] },
        { $push: { a: { $each: [3], $position: -1 } } },
        { a: [1, 3, 4] },
    ],
    [
        '$push $slice keeps the first',
        { a: [1, 2] },
        { $push: { a: { $each: [3], $slice: 2 } } },
        { a: [1, 2] },
    ],
    [
        '$push $slice keeps the last',
        { a: [1, 2] },
        { $push: { a: { $each: [3], $slice: -2 } } },
        { a: [2, 3] },
    ],
    [
        '$push $sort sorts numbers',
        { a: [3, 1] },
        { $push: { a: { $each: [2], $sort: -1 } } },
        { a: [3, 2, 1] },
    ],
    [
        '$push $sort sorts by field',
        { a: [{ x: 2 }] },
        { $push: { a: { $each: [{ x: 1 }], $sort: { x: 1 } } } },
        { a: [{ x: 1 }, { x: 2 }] },
    ],
    ['$addToSet adds once', { a: [1] }, { $addToSet: { a: { $each: [1, 2, 2] } } }, { a: [1, 2] }],
    [
        '$addToSet compares documents with field order',
        { a: [{ x: 1, y: 1 }] },
        { $addToSet: { a: { y: 1, x: 1 } } },
        {
            a: [
                { x: 1, y: 1 },
                { y: 1, x: 1 },
            ],
        },
    ],
    ['$pop removes the last', { a: [1, 2, 3] }, { $pop: { a: 1 } }, { a: [1, 2] }],
    ['$pop -1 removes the first', { a: [1, 2, 3] }, { $pop: { a: -1 } }, { a: [2, 3] }],
    ['$pull removes equal values', { a: [1, 2, 1] }, { $pull: { a: 1 } }, { a: [2] }],
    ['$pull takes conditions', { a: [1, 5, 9] }, { $pull: { a: { $gte: 5 } } }, { a: [1] }],
    [
        '$pull matches fields of documents',
        { a: [{ x: 1, y: 1 }, { x: 2 }] },
        { $pull: { a: { x: 1 } } },
        { a: [{ x: 2 }] },
    ],
    [
        '$pullAll removes all of a list',
        { a: [1, 2, 3, 1] },
        { $pullAll: { a: [1, 3] } },
        { a: [2] },
    ],
    [
        '$setOnInsert is ignored by updates',
        { a: 1 },
        { $setOnInsert: { b: 1 }, $set: { a: 2 } },
        { a: 2 },
    ],
    ['$[] changes all elements', { a: [1, 2] }, { $inc: { 'a.$[]': 10 } }, { a: [11, 12] }],
    [
        '$[] goes into nested arrays',
        { a: [{ b: [1] }, { b: [2, 3] }] },
        { $mul: { 'a.$[].b.$[]': 2 } },
        { a: [{ b: [2] }, { b: [4, 6] }] },
    ],
    [
        'numeric path components name array elements',
        { a: [{ b: 1 }] },
        { $set: { 'a.0.b': 2 } },
        { a: [{ b: 2 }] },
    ],
    [
        'numeric path components name fields of documents',
        { a: {} },
        { $set: { 'a.0': 2 } },
        { a: { 0: 2 } },
    ],
];
for (const [claim, before, update, after] of UPDATES) {
    test(claim, async () => {
        const c = await node.collection([{ _id: 1, ...before }]);
        await c.updateOne({ _id: 1 }, update);
        const found = await c.findOne();
        assert.deepEqual(found, { _id: 1, ...after });
        assert.equal(
            JSON.stringify(found),
            JSON.stringify({ _id: 1, ...after }),
            'order of fields',
        );
    });
}

test('$ stands for the element the filter matched', async () => {
    const c = await node.collection([{ _id: 1, a: [1, 5, 9], b: [{ x: 1 }, { x: 2 }] }]);
    await c.updateOne({ _id: 1, a: { $gt: 4 } }, { $set: { 'a.$': 0 } });
    await c.updateOne({ _id: 1, 'b.x': 2 }, { $set: { 'b.$.y': 1 } });
    assert.deepEqual(await c.findOne(), { _id: 1, a: [1, 0, 9], b: [{ x: 1 }, { x: 2, y: 1 }] });
});

test('array filters choose elements, also of nested arrays', async () => {
    const c = await node.collection([
        {
            _id: 1,
            a: [
                { n: 1, b: [1, 9] },
                { n: 2, b: [9] },
            ],
        },
    ]);
    await c.updateOne(
        { _id: 1 },
        { $set: { 'a.$[x].b.$[y]': 0 } },
        { arrayFilters: [{ 'x.n': 1 }, { y: { $gt: 5 } }] },
    );
    assert.deepEqual((await c.findOne()).a, [
        { n: 1, b: [1, 0] },
        { n: 2, b: [9] },
    ]);
});

test('$currentDate sets dates and timestamps', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const before = Date.now();
    await c.updateOne(
        { _id: 1 },
        { $currentDate: { d: true, e: { $type: 'date' }, t: { $type: 'timestamp' } } },
    );
    const found = await c.findOne();
    for (const date of [found.d, found.e]) assert.ok(Math.abs(date.getTime() - before) < 60_000);
    assert.ok(found.t instanceof Timestamp);
});

test('an int overflow of $inc becomes a long, $mul of int and double a double', async () => {
    const c = await node.collection([{ _id: 1, a: new Int32(2 ** 31 - 1), b: new Int32(3) }]);
    await c.updateOne({ _id: 1 }, { $inc: { a: new Int32(1) }, $mul: { b: new Double(2) } });
    const found = await c.findOne({}, { promoteValues: false });
    assert.ok(found.a instanceof Long);
    assert.ok(found.b instanceof Double);
});

test('an upsert takes equalities of the filter, also nested and from $and', async () => {
    const c = await node.collection();
    await c.updateOne(
        { _id: 1, 'a.b': 2, $and: [{ c: 3 }], d: { $in: [4] }, e: { $gt: 1 } },
        { $set: { f: 5 } },
        { upsert: true },
    );
    assert.deepEqual(await c.findOne(), { _id: 1, a: { b: 2 }, c: 3, d: 4, f: 5 });
});

test('a no-op update modifies nothing', async () => {
    const c = await node.collection([{ _id: 1, a: [1], b: { c: 1 } }]);
    for (const update of [
        { $set: { a: [1] } },
        { $unset: { z: 1 } },
        { $addToSet: { a: 1 } },
        { $pull: { a: 7 } },
        { $max: { 'b.c': 0 } },
        { $inc: { 'b.c': 0 } },
    ]) {
        const result = await c.updateOne({ _id: 1 }, update);
        assert.deepEqual(
            [result.matchedCount, result.modifiedCount],
            [1, 0],
            JSON.stringify(update),
        );
    }
});

const BAD = [
    [{ $push: { a: { $each: 1 } } }, 2],
    [{ $push: { a: { $each: [], $slice: 1.5 } } }, 2],
    [{ $push: { a: { $each: [], $nope: 1 } } }, 2],
    [{ $pop: { a: 2 } }, 9],
    [{ $pullAll: { a: 1 } }, 2],
    [{ $rename: { a: 'a' } }, 2],
    [{ $rename: { a: 1 } }, 2],
    [{ $bit: { n: { nand: 1 } } }, 2],
    [{ $bit: { s: { or: 1 } } }, 2],
    [{ $currentDate: { d: 'x' } }, 2],
    [{ $set: { 'a..b': 1 } }, 56],
    [{ $set: { 'a.$[].b': 1, s: 2 } }, 28],
    [{ $inc: {}, $set: 1 }, 9],
    [{ $addToSet: { n: 1 } }, 2],
    [{ $pull: { n: 1 } }, 2],
    [{ $set: { 's.$[]': 1 } }, 2],
];
for (const [update, code] of BAD) {
    test(`${JSON.stringify(update)} is refused with ${code}`, async () => {
        const c = await node.collection([{ _id: 1, a: [1], n: 1, s: 'x' }]);
        const run = node.db.command({ update: c.collectionName, updates: [{ q: { _id: 1 }, u: update }] });
        const reply = await run.then(
            ({ writeErrors }) => writeErrors?.[0],
            (error) => error,
        );
        assert.equal(reply?.code, code, reply?.errmsg ?? reply?.message);
        assert.deepEqual(await c.findOne(), { _id: 1, a: [1], n: 1, s: 'x' });
    });
}

test('pipelines as updates compute from the document, some stages are refused', async () => {
    const c = await node.collection([{ _id: 1, a: 2, b: 3, c: 4 }]);
    await c.updateOne({ _id: 1 }, [{ $set: { sum: { $add: ['$a', '$b'] } } }, { $unset: 'c' }]);
    assert.deepEqual(await c.findOne(), { _id: 1, a: 2, b: 3, sum: 5 });
    await fails(c.updateOne({ _id: 1 }, [{ $group: { _id: 1 } }]), 72);
});

test('an update pipeline that replaces the root keeps _id', async () => {
    const c = await node.collection([{ _id: 1, t: { u: { v: 1 } } }]);
    await c.updateOne({ _id: 1 }, [
        { $replaceRoot: { newRoot: '$t' } },
        { $addFields: { foo: 1 } },
    ]);
    assert.deepEqual(await c.findOne(), { _id: 1, u: { v: 1 }, foo: 1 });
});
