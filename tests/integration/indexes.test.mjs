/* Indexes: kinds, options, conflicts, limits; an index never changes a result. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Decimal128, Double, Int32, Long } from 'mongodb';
import { fails, ids, random, seedOfRun, sortedIds } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();
const create = (c, ...indexes) => node.db.command({ createIndexes: c.collectionName, indexes });

/* ---- create, list, drop ---- */

test('createIndexes reports the number of indexes before and after', async () => {
    const c = await node.collection();
    const first = await create(c, { key: { a: 1 }, name: 'a_1' }, { key: { b: -1 }, name: 'down' });
    assert.deepEqual(
        [first.numIndexesBefore, first.numIndexesAfter, first.createdCollectionAutomatically],
        [1, 3, true],
    );
    const again = await create(c, { key: { a: 1 }, name: 'a_1' });
    assert.deepEqual(
        [again.numIndexesBefore, again.numIndexesAfter, again.note],
        [3, 3, 'all indexes already exist'],
    );
});

test('listIndexes shows each index as it was asked for', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await create(
        c,
        { key: { a: 1, b: -1 }, name: 'ab', unique: true, sparse: true },
        { key: { c: 1 }, name: 'part', partialFilterExpression: { c: { $gt: 5 } }, hidden: true },
    );
    assert.deepEqual(await c.indexes(), [
        { v: 2, key: { _id: 1 }, name: '_id_' },
        { v: 2, key: { a: 1, b: -1 }, name: 'ab', unique: true, sparse: true },
        {
            v: 2,
            key: { c: 1 },
            name: 'part',
            partialFilterExpression: { c: { $gt: 5 } },
            hidden: true,
        },
    ]);
    await fails(node.db.command({ listIndexes: 'missing' }), 26, { name: 'NamespaceNotFound' });
});

test('listIndexes has a cursor', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await create(c, ...'abcdef'.split('').map((f) => ({ key: { [f]: 1 }, name: f })));
    const reply = await node.db.command({
        listIndexes: c.collectionName,
        cursor: { batchSize: 2 },
    });
    assert.equal(reply.cursor.firstBatch.length, 2);
    assert.equal(reply.cursor.ns, `test.${c.collectionName}`);
    assert.equal((await c.listIndexes({ batchSize: 3 }).toArray()).length, 7);
});

test('dropIndexes takes a name, a pattern, a list or "*"', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const drop = (index) => node.db.command({ dropIndexes: c.collectionName, index });
    await create(c, ...'abcde'.split('').map((f) => ({ key: { [f]: 1 }, name: `${f}_1` })));
    assert.equal((await drop('a_1')).nIndexesWas, 6);
    assert.equal((await drop({ b: 1 })).nIndexesWas, 5);
    assert.equal((await drop(['c_1', 'd_1'])).nIndexesWas, 4);
    const all = await drop('*');
    assert.equal(all.nIndexesWas, 2);
    assert.deepEqual(ids(await c.indexes()), [undefined]);
    await create(c, { key: { a: 1 }, name: 'a_1' }, { key: { b: 1 }, name: 'b_1' });
    assert.deepEqual((await drop(['*'])).msg, all.msg);
    assert.equal((await c.indexes()).length, 1);
    await fails(drop('nope'), 27, { name: 'IndexNotFound' });
    await fails(drop({ nope: 1 }), 27);
    await fails(drop('_id_'), 72, { name: 'InvalidOptions' });
    await fails(node.db.command({ dropIndexes: 'missing', index: '*' }), 26);
});

test('an index made on existing documents finds them all', async () => {
    const c = await node.collection(
        Array.from({ length: 5000 }, (_, _id) => ({ _id, a: (_id * 7919) % 5000 })),
    );
    await c.createIndex({ a: 1 });
    const found = await c
        .find({ a: { $gte: 100, $lt: 200 } })
        .hint({ a: 1 })
        .sort({ a: 1 })
        .toArray();
    assert.equal(found.length, 100);
    assert.deepEqual(
        found.map(({ a }) => a),
        Array.from({ length: 100 }, (_, i) => 100 + i),
    );
});

const CONFLICTS = [
    [
        'the same name with other keys',
        [
            { key: { a: 1 }, name: 'x' },
            { key: { b: 1 }, name: 'x' },
        ],
        86,
    ],
    [
        'the same keys with another name',
        [
            { key: { a: 1 }, name: 'x' },
            { key: { a: 1 }, name: 'y' },
        ],
        85,
    ],
    [
        'the same keys with another option',
        [
            { key: { a: 1 }, name: 'x' },
            { key: { a: 1 }, name: 'x', unique: true },
        ],
        86,
    ],
    [
        'the same keys with sparse',
        [
            { key: { a: 1 }, name: 'x' },
            { key: { a: 1 }, name: 'x', sparse: true },
        ],
        86,
    ],
];
for (const [what, [first, second], code] of CONFLICTS) {
    test(`${what} is refused with ${code}`, async () => {
        const c = await node.collection([{ _id: 1 }]);
        await create(c, first);
        await fails(create(c, second), code);
        assert.equal((await c.indexes()).length, 2);
    });
}

const BAD_SPECS = [
    ['no key', { name: 'x' }, 9],
    ['no name', { key: { a: 1 } }, 9],
    ['empty keys', { key: {}, name: 'x' }, 67],
    ['a direction of 0', { key: { a: 0 }, name: 'x' }, 67],
    ['a direction of NaN', { key: { a: NaN }, name: 'x' }, 67],
    ['an unknown kind', { key: { a: 'nonsense' }, name: 'x' }, 67],
    ['an empty path', { key: { '': 1 }, name: 'x' }, 67],
    ['a path with empty parts', { key: { 'a..b': 1 }, name: 'x' }, 67],
    ['a $-path', { key: { $a: 1 }, name: 'x' }, 67],
    ['an unknown option', { key: { a: 1 }, name: 'x', nonsense: 1 }, 197],
    ['a name of "*"', { key: { a: 1 }, name: '*' }, 2],
    [
        'sparse and partial together',
        { key: { a: 1 }, name: 'x', sparse: true, partialFilterExpression: { a: 1 } },
        67,
    ],
    [
        'a partial filter with $ne',
        { key: { a: 1 }, name: 'x', partialFilterExpression: { a: { $ne: 1 } } },
        67,
    ],
    ['a string for unique', { key: { a: 1 }, name: 'x', unique: 'yes' }, 14],
    [
        '33 fields',
        { key: Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`f${i}`, 1])), name: 'x' },
        13103,
    ],
    ['an unknown version', { key: { a: 1 }, name: 'x', v: 9 }, 67],
];
for (const [what, spec, code] of BAD_SPECS) {
    test(`an index with ${what} is refused with ${code}`, async () => {
        const c = await node.collection([{ _id: 1 }]);
        await fails(create(c, spec), code);
        assert.equal((await c.indexes()).length, 1);
    });
}

test('an index of 32 fields is made, the 65th index of a collection is not', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await create(c, {
        key: Object.fromEntries(Array.from({ length: 32 }, (_, i) => [`f${i}`, 1])),
        name: 'wide',
    });
    await create(
        c,
        ...Array.from({ length: 62 }, (_, i) => ({ key: { [`g${i}`]: 1 }, name: `g${i}` })),
    );
    await fails(create(c, { key: { last: 1 }, name: 'last' }), 67);
    assert.equal((await c.indexes()).length, 64);
});

test('of several new indexes all or none are made', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 1 },
    ]);
    await fails(
        create(c, { key: { b: 1 }, name: 'b' }, { key: { a: 1 }, name: 'a', unique: true }),
        11000,
    );
    assert.equal((await c.indexes()).length, 1);
});

test('kinds and options out of scope are refused by name', async () => {
    const c = await node.collection([{ _id: 1 }]);
    for (const kind of ['text', '2d', '2dsphere'])
        await fails(create(c, { key: { a: kind }, name: 'x' }), 238, { message: new RegExp(kind) });
});

/* ---- unique ---- */

test('IDX-1: a unique index refuses the second document, also by update and upsert', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await c.createIndex({ a: 1 }, { unique: true });
    const error = await fails(c.insertOne({ _id: 2, a: 1.0 }), 11000);
    assert.match(error.message, /index: a_1 dup key: { a: 1(\.0)? }/);
    await c.insertOne({ _id: 3, a: 3 });
    await fails(c.updateOne({ _id: 3 }, { $set: { a: 1 } }), 11000);
    await fails(c.updateOne({ _id: 4 }, { $set: { a: 1 } }, { upsert: true }), 11000);
    assert.deepEqual(ids(await c.find().toArray()), [1, 3]);
});

test('IDX-1: a missing field counts as null in a unique index, unless it is sparse', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await c.createIndex({ a: 1 }, { unique: true });
    await fails(c.insertOne({ _id: 2 }), 11000);
    await fails(c.insertOne({ _id: 3, a: null }), 11000);
    await c.createIndex({ b: 1 }, { unique: true, sparse: true });
    await c.insertOne({ _id: 4, a: 4 });
    await c.insertOne({ _id: 5, a: 5 });
    await c.updateOne({ _id: 4 }, { $set: { b: null } });
    await fails(c.updateOne({ _id: 5 }, { $set: { b: null } }), 11000);
});

test('IDX-1: a unique index is not made over duplicates', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 1 },
    ]);
    await fails(c.createIndex({ a: 1 }, { unique: true }), 11000, { name: 'DuplicateKey' });
});

test('IDX-1: a unique multikey index checks each element but not within one document', async () => {
    const c = await node.collection([{ _id: 1, a: [1, 1, 2] }]);
    await c.createIndex({ a: 1 }, { unique: true });
    await fails(c.insertOne({ _id: 2, a: [3, 2] }), 11000);
    await c.insertOne({ _id: 3, a: [3, 4] });
});

test('IDX-1: a compound unique index takes the whole key', async () => {
    const c = await node.collection([
        { _id: 1, a: 1, b: 1 },
        { _id: 2, a: 1, b: 2 },
    ]);
    await c.createIndex({ a: 1, b: -1 }, { unique: true });
    const error = await fails(c.insertOne({ a: 1, b: 2 }), 11000);
    assert.match(error.message, /dup key: { a: 1, b: 2 }/);
});

/* ---- sparse, partial, multikey, hidden ---- */

test('IDX-1: a sparse index is used only when it cannot miss documents', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }, { _id: 2 }, { _id: 3, a: null }]);
    await c.createIndex({ a: 1 }, { sparse: true });
    assert.deepEqual(sortedIds(await c.find({ a: null }).toArray()), [2, 3]);
    assert.deepEqual(sortedIds(await c.find().sort({ a: 1 }).toArray()), [1, 2, 3]);
    assert.deepEqual(sortedIds(await c.find().hint('a_1').toArray()), [1, 3]);
    assert.deepEqual(sortedIds(await c.find({ a: { $gt: 0 } }).toArray()), [1]);
});

test('IDX-1: a partial index is used only for filters it covers', async () => {
    const c = await node.collection(
        Array.from({ length: 20 }, (_, _id) => ({ _id, a: _id, b: _id % 2 })),
    );
    await c.createIndex({ a: 1 }, { partialFilterExpression: { a: { $gte: 10 } } });
    const plan = async (filter) =>
        JSON.stringify((await c.find(filter).explain('queryPlanner')).queryPlanner.winningPlan);
    assert.match(await plan({ a: { $gt: 12 } }), /IXSCAN/);
    assert.match(await plan({ a: 11 }), /IXSCAN/);
    assert.match(await plan({ a: { $gt: 5 } }), /COLLSCAN/);
    assert.equal((await c.find({ a: { $gt: 5 } }).toArray()).length, 14);
    assert.equal((await c.find({ a: { $gt: 12 } }).toArray()).length, 7);
    await c.updateOne({ _id: 0 }, { $set: { a: 100 } });
    assert.deepEqual(ids(await c.find({ a: 100 }).hint('a_1').toArray()), [0]);
    await c.updateOne({ _id: 0 }, { $set: { a: 1 } });
    assert.deepEqual(
        await c
            .find({ a: { $gte: 100 } })
            .hint('a_1')
            .toArray(),
        [],
    );
});

test('IDX-1: a partial unique index binds only the documents in it', async () => {
    const c = await node.collection([
        { _id: 1, a: 1, on: true },
        { _id: 2, a: 1, on: false },
    ]);
    await c.createIndex({ a: 1 }, { unique: true, partialFilterExpression: { on: true } });
    await c.insertOne({ _id: 3, a: 1, on: false });
    await fails(c.insertOne({ _id: 4, a: 1, on: true }), 11000);
    await fails(c.updateOne({ _id: 3 }, { $set: { on: true } }), 11000);
});

test('IDX-1: a multikey index finds each document once', async () => {
    const c = await node.collection([
        { _id: 1, a: [1, 2, 3] },
        { _id: 2, a: 2 },
        { _id: 3, a: [] },
        { _id: 4, a: [[2]] },
    ]);
    await c.createIndex({ a: 1 });
    assert.deepEqual(
        sortedIds(
            await c
                .find({ a: { $gte: 1 } })
                .hint('a_1')
                .toArray(),
        ),
        [1, 2],
    );
    assert.deepEqual(sortedIds(await c.find({ a: [] }).hint('a_1').toArray()), [3]);
    assert.deepEqual(
        sortedIds(
            await c
                .find({ a: [2] })
                .hint('a_1')
                .toArray(),
        ),
        [4],
    );
    assert.equal((await c.find().hint('a_1').toArray()).length, 4);
});

test('an index on a position of an array finds what a scan finds', async () => {
    const c = await node.collection([
        { _id: 1, a: [[4]] },
        { _id: 2, a: [[4, 5], 1] },
        { _id: 3, a: [4] },
        { _id: 4, a: [{ x: 1 }] },
        { _id: 5, a: [] },
        { _id: 6 },
    ]);
    await c.createIndex({ 'a.0': 1 });
    for (const filter of [
        { 'a.0': 4 },
        { 'a.0': { $ne: 4 } },
        { 'a.0': [4] },
        { 'a.0': { $elemMatch: { $gt: 4 } } },
        { a: { $elemMatch: { 0: 4 } } },
        { 'a.0': null },
        { 'a.0': { $exists: false } },
        { 'a.0.0': 4 },
    ]) {
        const ids = async (hint) =>
            (await c.find(filter).hint(hint).toArray()).map(({ _id }) => _id).sort();
        const wanted = await ids({ $natural: 1 });
        assert.ok(wanted.length > 0, JSON.stringify(filter));
        assert.deepEqual(await ids({ 'a.0': 1 }), wanted, JSON.stringify(filter));
    }
    const sorted = async (hint) => {
        const cursor = c.find({ _id: { $in: [1, 2, 3, 4] } }).sort({ 'a.0': 1 });
        return (await (hint ? cursor.hint(hint) : cursor).toArray()).map(({ _id }) => _id);
    };
    assert.deepEqual(await sorted({ $natural: 1 }), [3, 4, 1, 2]);
    assert.deepEqual(await sorted({ 'a.0': 1 }), [3, 4, 1, 2]);
});

test('a position of an array that is also a field of a document in it is refused', async () => {
    const c = await node.collection([{ _id: 1, m: [{ 0: 1 }] }]);
    await fails(c.createIndex({ 'm.0': 1 }), 16746);
    await fails(c.find().sort({ 'm.0': 1 }).toArray(), 16746);
    await c.deleteMany({});
    await c.createIndex({ 'm.0': 1 });
    await fails(c.insertOne({ m: [{ 0: 1 }] }), 16746);
    await c.insertOne({ _id: 2, m: [{ 1: 1 }] });
    await fails(c.updateOne({ _id: 2 }, { $push: { m: { 0: 1 } } }), 16746);
});

test('IDX-1: two arrays in one key are refused with CannotIndexParallelArrays', async () => {
    const c = await node.collection([{ _id: 1, a: [1], b: 1 }]);
    await c.createIndex({ a: 1, b: 1 });
    await fails(c.insertOne({ a: [1], b: [2] }), 171);
    await fails(c.updateOne({ _id: 1 }, { $set: { b: [1] } }), 171);
    await c.insertOne({ _id: 2, a: 1, b: [2] });
    const d = await node.collection([{ _id: 1, a: [1], b: [2] }]);
    await fails(d.createIndex({ a: 1, b: 1 }), 171);
});

test('IDX-1: a hidden index is kept up to date but not used until it is shown again', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await c.createIndex({ a: 1 }, { hidden: true });
    const plan = async () =>
        JSON.stringify((await c.find({ a: 2 }).explain('queryPlanner')).queryPlanner.winningPlan);
    assert.match(await plan(), /COLLSCAN/);
    await fails(c.find({ a: 2 }).hint('a_1').toArray(), 2);
    await c.insertOne({ _id: 2, a: 2 });
    const reply = await node.db.command({
        collMod: c.collectionName,
        index: { name: 'a_1', hidden: false },
    });
    assert.deepEqual([reply.hidden_old, reply.hidden_new], [true, false]);
    assert.match(await plan(), /IXSCAN/);
    assert.deepEqual(ids(await c.find({ a: 2 }).hint('a_1').toArray()), [2]);
});

test('IDX-1: a descending index serves both directions', async () => {
    const c = await node.collection([3, 1, 2].map((_id) => ({ _id, a: _id })));
    await c.createIndex({ a: -1 });
    assert.deepEqual(
        ids(
            await c
                .find({ a: { $gt: 0 } })
                .hint('a_-1')
                .toArray(),
        ),
        [3, 2, 1],
    );
    assert.deepEqual(ids(await c.find().sort({ a: 1 }).hint('a_-1').toArray()), [1, 2, 3]);
});

test('a covered query returns exact types', async () => {
    const values = [
        new Int32(1),
        new Double(1.5),
        Long.fromNumber(2),
        Decimal128.fromString('2.50'),
        new Double(-0),
    ];
    const c = await node.collection(values.map((a, _id) => ({ _id, a })));
    await c.createIndex({ a: 1 });
    const options = { promoteValues: false, projection: { _id: 0, a: 1 } };
    const covered = await c.find({ a: { $lt: 100 } }, { ...options, hint: 'a_1', sort: { a: 1 } }).toArray();
    const fetched = await c
        .find({ a: { $lt: 100 } }, { ...options, hint: { $natural: 1 }, sort: { a: 1 } })
        .toArray();
    assert.deepEqual(
        covered.map(({ a }) => [a._bsontype, a.toString()]),
        fetched.map(({ a }) => [a._bsontype, a.toString()]),
    );
});

test('keys of many kilobytes are indexed and found', async () => {
    const s = 'x'.repeat(100_000);
    const c = await node.collection([
        { _id: 1, s },
        { _id: 2, s: `${s}y` },
    ]);
    await c.createIndex({ s: 1 });
    assert.deepEqual(
        ids(
            await c
                .find({ s: `${s}y` })
                .hint('s_1')
                .toArray(),
        ),
        [2],
    );
});

test('writes during an index build are in the index', async () => {
    const c = await node.collection(Array.from({ length: 20_000 }, (_, _id) => ({ _id, a: _id })));
    let isBuilt = false;
    const building = c.createIndex({ a: 1 }).then(() => (isBuilt = true));
    let next = 20_000;
    while (!isBuilt) {
        await c.insertOne({ _id: next, a: next });
        await c.deleteOne({ _id: next - 20_000 });
        await c.updateOne({ _id: next - 100 }, { $inc: { a: 1_000_000 } });
        next++;
    }
    await building;
    const scan = sortedIds(await c.find().hint({ $natural: 1 }).toArray());
    assert.deepEqual(sortedIds(await c.find().hint('a_1').toArray()), scan);
});

/* ---- an index never changes a result ---- */

test('index scans equal collection scans on random documents and filters', async () => {
    const seed = seedOfRun();
    const rand = random(seed);
    const scalar = () =>
        rand.pick([
            rand.below(6),
            rand.below(6) / 2,
            Long.fromNumber(rand.below(6)),
            'abc'[rand.below(3)],
            null,
            true,
            Decimal128.fromString(String(rand.below(6))),
            new Date(rand.below(4)),
            NaN,
        ]);
    const value = (depth = 0) => {
        const kind = rand.below(10);
        if (kind < 6 || depth > 1) return scalar();
        if (kind < 8) return Array.from({ length: rand.below(4) }, () => value(depth + 1));
        return { x: value(depth + 1), y: scalar() };
    };
    const documents = Array.from({ length: 400 }, (_, _id) => {
        const document = { _id };
        for (const field of ['a', 'b', 'c'])
            if (rand() < 0.8) document[field] = field === 'b' ? scalar() : value();
        return document;
    });
    const c = await node.collection(documents);
    const hints = [];
    for (const key of [
        { a: 1 },
        { a: -1, b: 1 },
        { b: 1, a: 1 },
        { 'a.x': 1 },
        { 'c.x': -1, b: 1 },
        { c: 1 },
    ])
        hints.push(await c.createIndex(key));
    const paths = ['a', 'b', 'c', 'a.x', 'c.x', 'c.y', 'a.0'];
    const leaf = () => {
        const path = rand.pick(paths);
        const op = rand.pick([
            '$eq',
            '$gt',
            '$gte',
            '$lt',
            '$lte',
            '$ne',
            '$in',
            '$nin',
            '$exists',
            '$type',
            '$elemMatch',
            '$size',
            '$not',
        ]);
        switch (op) {
            case '$in':
            case '$nin':
                return { [path]: { [op]: [scalar(), value(), scalar()] } };
            case '$exists':
                return { [path]: { $exists: rand() < 0.5 } };
            case '$type':
                return {
                    [path]: { $type: rand.pick(['number', 'string', 'array', 'object', 'null']) },
                };
            case '$elemMatch':
                return {
                    [path]: { $elemMatch: rand() < 0.5 ? { $gte: scalar() } : { x: scalar() } },
                };
            case '$size':
                return { [path]: { $size: rand.below(4) } };
            case '$not':
                return { [path]: { $not: { $gt: scalar() } } };
            default:
                return { [path]: { [op]: op === '$eq' || op === '$ne' ? value() : scalar() } };
        }
    };
    const filter = (depth = 0) => {
        const kind = rand.below(8);
        if (depth < 2 && kind === 0) return { $or: [filter(depth + 1), filter(depth + 1)] };
        if (depth < 2 && kind === 1) return { $nor: [filter(depth + 1)] };
        if (kind < 5) return { $and: [leaf(), leaf()] };
        return leaf();
    };
    for (let round = 0; round < 250; round++) {
        const query = filter();
        const where = `seed ${seed} round ${round} ${JSON.stringify(query)}`;
        const expected = sortedIds(await c.find(query).hint({ $natural: 1 }).toArray());
        assert.deepEqual(sortedIds(await c.find(query).toArray()), expected, where);
        const hint = rand.pick(hints);
        assert.deepEqual(
            sortedIds(await c.find(query).hint(hint).toArray()),
            expected,
            `${where} hint ${hint}`,
        );
    }
});
