/* DDL: create, drop, rename, collMod, views, validators, capped and clustered collections. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails, ids, sortedIds } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { RawConnection } from '../lib/wire.mjs';

const node = useServer();
const listed = async (name) => (await node.db.listCollections({ name }).toArray())[0];

/* ---- create ---- */

test('CAT-7: create makes an empty collection with an _id index and a uuid', async () => {
    const name = node.newName();
    assert.equal((await node.db.command({ create: name })).ok, 1);
    const entry = await listed(name);
    assert.equal(entry.type, 'collection');
    assert.deepEqual(entry.options, {});
    assert.equal(entry.info.readOnly, false);
    assert.equal(entry.info.uuid.sub_type, 4);
    assert.deepEqual(entry.idIndex, { v: 2, key: { _id: 1 }, name: '_id_' });
});

test('CAT-7: create of an existing collection fails unless it is the same', async () => {
    const name = node.newName();
    await node.db.command({ create: name });
    assert.equal((await node.db.command({ create: name })).ok, 1);
    await fails(node.db.command({ create: name, capped: true, size: 4096 }), 48, {
        name: 'NamespaceExists',
    });
});

test('CAT-7: only in "local" a collection can be without an index on _id', async () => {
    const name = node.newName();
    await fails(node.db.command({ create: name, autoIndexId: false }), 72);
    const local = node.client.db('local');
    await local.command({ create: name, autoIndexId: false });
    const coll = local.collection(name);
    assert.deepEqual(await coll.listIndexes().toArray(), []);
    await coll.insertMany([1, 2, 2, 3].map((_id, at) => ({ _id, at })));
    assert.equal((await coll.updateMany({ _id: 2 }, { $set: { x: 1 } })).modifiedCount, 2);
    const newest = await coll.findOneAndUpdate({}, { $set: { y: 1 } }, { sort: { at: -1 } });
    assert.equal((newest.value ?? newest)._id, 3);
    assert.equal((await coll.deleteMany({ _id: 2 })).deletedCount, 2);
    await fails(coll.createIndex({ _id: 1 }, { sparse: true }), 197);
    await fails(coll.createIndex({ _id: 1 }), 238);
    await coll.deleteMany({});
    await coll.createIndex({ _id: 1 }, { name: 'other' });
    assert.deepEqual(await coll.listIndexes().toArray(), [{ v: 2, key: { _id: 1 }, name: '_id_' }]);
    await coll.drop();
});

test('CAT-7: indexes keep the version that they were made with', async () => {
    const name = node.newName();
    await node.db.command({ create: name, idIndex: { key: { _id: 1 }, name: '_id_', v: 1 } });
    await node.db.collection(name).createIndex({ a: 1 }, { version: 1 });
    const versions = (await node.db.collection(name).listIndexes().toArray()).map(({ v }) => v);
    assert.deepEqual(versions, [1, 1]);
    await fails(
        node.db.collection(name).createIndex({ b: 1 }, { version: 1, collation: { locale: 'fr' } }),
        67,
    );
    await fails(node.db.collection(name).createIndex({ _id: -1 }), 2);
});

const BAD_NAMES = [
    ['an empty name', ''],
    ['a name with $', 'a$b'],
    ['a name that starts with a dot', '.a'],
    ['a name with NUL', 'a\0b'],
    ['a name of 300 bytes', 'x'.repeat(300)],
];
for (const [what, name] of BAD_NAMES) {
    test(`CAT-7: create with ${what} fails with InvalidNamespace`, () =>
        fails(node.db.command({ create: name }), 73, { name: 'InvalidNamespace' }));
}

const BAD_CREATES = [
    ['capped without size', { capped: true }, 72],
    ['size without capped', { size: 4096 }, 72],
    ['max without capped', { max: 5 }, 72],
    ['a pipeline without viewOn', { pipeline: [] }, 72],
    ['viewOn and capped', { viewOn: 'x', capped: true, size: 4096 }, 72],
    ['an unknown validation level', { validationLevel: 'nonsense' }, 2],
    ['a validator that is no filter', { validator: { a: { $nonsense: 1 } } }, 2],
    ['an unknown option', { nonsense: 1 }, 40415],
    ['a capped size of 0', { capped: true, size: 0 }, 51024],
    [
        'a clustered index on another field',
        { clusteredIndex: { key: { a: 1 }, unique: true } },
        197,
    ],
    [
        'a clustered index that is not unique',
        { clusteredIndex: { key: { _id: 1 }, unique: false } },
        5979700,
    ],
    ['a clustered index without unique', { clusteredIndex: { key: { _id: 1 } } }, 40414],
    ['a clustered index without a key', { clusteredIndex: true }, 5979703],
    [
        'a clustered view',
        { viewOn: 'x', clusteredIndex: { key: { _id: 1 }, unique: true } },
        6026500,
    ],
];
for (const [what, options, code] of BAD_CREATES) {
    test(`CAT-7: create with ${what} is refused with ${code} and makes nothing`, async () => {
        const name = node.newName();
        await fails(node.db.command({ create: name, ...options }), code);
        assert.equal(await listed(name), undefined);
    });
}

test('options out of scope are refused by name', async () => {
    for (const [option, value] of [
        ['timeseries', { timeField: 't' }],
        ['encryptedFields', { fields: [] }],
    ])
        await fails(node.db.command({ create: node.newName(), [option]: value }), 238, {
            message: new RegExp(option),
        });
});

test('database names that are no names are refused with InvalidNamespace', async () => {
    // By hand, since drivers refuse some of them themselves.
    const connection = await RawConnection.open({ host: '127.0.0.1', port: node.server.port });
    try {
        for (const $db of ['a b', 'a/b', 'a\\b', 'a"b', 'a.b', 'a$b', 'x'.repeat(64)]) {
            const reply = await connection.command({ create: 'c', $db });
            assert.equal(reply.code, 73, `${JSON.stringify($db)}: ${reply.errmsg}`);
        }
    } finally {
        connection.close();
    }
});

test('a database that differs only in case is refused', async () => {
    await node.client.db('CaseTest').collection('c').insertOne({});
    await fails(node.client.db('casetest').collection('c').insertOne({}), 13297, {
        name: undefined,
    });
});

/* ---- drop ---- */

test('CAT-7: drop removes a collection and says how many indexes it had', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await c.createIndex({ a: 1 });
    const reply = await node.db.command({ drop: c.collectionName });
    assert.equal(reply.nIndexesWas, 2);
    assert.equal(reply.ns, `test.${c.collectionName}`);
    assert.equal(await listed(c.collectionName), undefined);
    assert.equal(await c.countDocuments(), 0);
});

test('CAT-7: drop of a missing collection is no error', async () => {
    assert.equal((await node.db.command({ drop: 'neverthere' })).ok, 1);
});

test('CAT-7: a dropped and re-created collection is empty and has another uuid', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const before = (await listed(c.collectionName)).info.uuid.toString('hex');
    await c.drop();
    await c.insertOne({ _id: 2 });
    assert.notEqual((await listed(c.collectionName)).info.uuid.toString('hex'), before);
    assert.deepEqual(ids(await c.find().toArray()), [2]);
});

test('CAT-7: dropDatabase removes all its collections', async () => {
    const db = node.client.db('todrop');
    for (const name of ['a', 'b', 'c']) await db.collection(name).insertOne({});
    await db.createCollection('v', { viewOn: 'a', pipeline: [] });
    assert.equal((await db.command({ dropDatabase: 1 })).dropped, 'todrop');
    assert.deepEqual(await db.listCollections().toArray(), []);
    const { databases } = await node.admin.command({ listDatabases: 1, nameOnly: true });
    assert.ok(!databases.some(({ name }) => name === 'todrop'));
    assert.equal((await db.command({ dropDatabase: 1 })).ok, 1);
});

/* ---- rename ---- */

const rename = (from, to, more) => node.admin.command({ renameCollection: from, to, ...more });

test('CAT-7: rename keeps documents, indexes and uuid', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await c.createIndex({ a: 1 });
    const uuid = (await listed(c.collectionName)).info.uuid.toString('hex');
    const to = node.newName();
    await rename(`test.${c.collectionName}`, `test.${to}`);
    assert.equal(await listed(c.collectionName), undefined);
    assert.equal((await listed(to)).info.uuid.toString('hex'), uuid);
    assert.deepEqual(ids(await node.db.collection(to).find({ a: 1 }).hint('a_1').toArray()), [1]);
});

test('CAT-7: rename onto an existing collection needs dropTarget', async () => {
    const from = await node.collection([{ _id: 'from' }]);
    const to = await node.collection([{ _id: 'to' }]);
    const names = [`test.${from.collectionName}`, `test.${to.collectionName}`];
    await fails(rename(...names), 48, { name: 'NamespaceExists' });
    await rename(...names, { dropTarget: true });
    assert.deepEqual(ids(await to.find().toArray()), ['from']);
    assert.equal(await listed(from.collectionName), undefined);
});

test('CAT-7: rename to another database copies documents, indexes and options', async () => {
    const c = await node.collection(
        [
            { _id: 1, a: [1, 2] },
            { _id: 2, a: 3 },
        ],
        { validator: { a: { $exists: true } } },
    );
    await c.createIndex({ a: 1 }, { unique: true, name: 'mine' });
    const other = node.client.db('otherdb');
    await other.collection('moved').insertOne({ _id: 'old' });
    await fails(rename(`test.${c.collectionName}`, 'otherdb.moved'), 48);
    await rename(`test.${c.collectionName}`, 'otherdb.moved', { dropTarget: true });
    assert.deepEqual(ids(await other.collection('moved').find().hint('mine').toArray()), [1, 2]);
    assert.deepEqual(
        (await other.collection('moved').indexes()).map(({ name, unique }) => [name, unique]),
        [
            ['_id_', undefined],
            ['mine', true],
        ],
    );
    await fails(other.collection('moved').insertOne({}), 121);
    assert.equal(await listed(c.collectionName), undefined);
    assert.deepEqual(
        (await other.listCollections().toArray()).map(({ name }) => name),
        ['moved'],
    );
});

test('CAT-7: rename errors', async () => {
    await fails(rename('test.missing', 'test.x'), 26, { name: 'NamespaceNotFound' });
    const c = await node.collection([{ _id: 1 }]);
    const ns = `test.${c.collectionName}`;
    await fails(rename(ns, ns), 20, { name: 'IllegalOperation' });
    await fails(rename(ns, 'test.'), 73);
    await fails(rename(ns, 'nodot'), 73);
    await fails(rename(ns, 'test.$x'), 73);
    await fails(node.db.command({ renameCollection: ns, to: 'test.y' }), 13, {
        name: 'Unauthorized',
    });
});

/* ---- collMod, validators ---- */

test('CAT-7: a validator refuses documents with DocumentValidationFailure', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }], { validator: { a: { $gt: 0 } } });
    const error = await fails(c.insertOne({ _id: 2, a: -1 }), 121);
    assert.equal(error.errInfo.failingDocumentId, 2);
    assert.equal(typeof error.errInfo.details, 'object');
    await fails(c.insertOne({}), 121);
    await fails(c.updateOne({ _id: 1 }, { $set: { a: 0 } }), 121);
    await fails(c.replaceOne({ _id: 1 }, { b: 1 }), 121);
    await fails(c.findOneAndUpdate({ _id: 1 }, { $set: { a: 0 } }), 121, {
        name: 'DocumentValidationFailure',
    });
    assert.deepEqual(await c.find().toArray(), [{ _id: 1, a: 1 }]);
});

test('CAT-7: validationAction warn lets documents in and logs them', async () => {
    const c = await node.collection([], { validator: { a: 1 }, validationAction: 'warn' });
    await c.insertOne({ _id: 1, a: 2 });
    assert.equal(await c.countDocuments(), 1);
    await node.server.waitLog(
        (line) =>
            /validation/i.test(line.msg ?? '') && JSON.stringify(line).includes(c.collectionName),
    );
});

test('CAT-7: validationLevel moderate spares documents that were bad before', async () => {
    const c = await node.collection(
        [
            { _id: 1, a: 'bad' },
            { _id: 2, a: 5 },
        ],
        {},
    );
    await node.db.command({
        collMod: c.collectionName,
        validator: { a: { $type: 'number' } },
        validationLevel: 'moderate',
    });
    await c.updateOne({ _id: 1 }, { $set: { b: 1 } });
    await fails(c.updateOne({ _id: 2 }, { $set: { a: 'x' } }), 121);
    await fails(c.insertOne({ a: 'x' }), 121);
    await node.db.command({ collMod: c.collectionName, validationLevel: 'strict' });
    await fails(c.updateOne({ _id: 1 }, { $set: { b: 2 } }), 121);
    await node.db.command({ collMod: c.collectionName, validationLevel: 'off' });
    await c.insertOne({ a: 'x' });
});

test('CAT-7: bypassDocumentValidation passes the validator', async () => {
    const c = await node.collection([], { validator: { a: 1 } });
    await c.insertOne({ _id: 1 }, { bypassDocumentValidation: true });
    await c.updateOne({ _id: 1 }, { $set: { b: 1 } }, { bypassDocumentValidation: true });
    await fails(c.updateOne({ _id: 1 }, { $set: { b: 2 } }), 121);
});

test('CAT-7: listCollections shows the options as given', async () => {
    const options = { validator: { a: 1 }, validationLevel: 'moderate', validationAction: 'warn' };
    const c = await node.collection([], options);
    assert.deepEqual((await listed(c.collectionName)).options, options);
    const k = await node.collection([], { capped: true, size: 8192, max: 10 });
    assert.deepEqual((await listed(k.collectionName)).options, {
        capped: true,
        size: 8192,
        max: 10,
    });
});

test('CAT-7: collMod refuses missing collections and unknown fields', async () => {
    await fails(node.db.command({ collMod: 'missing' }), 26);
    const c = await node.collection([{ _id: 1 }]);
    await fails(node.db.command({ collMod: c.collectionName, nonsense: 1 }), 40415);
    await fails(
        node.db.command({ collMod: c.collectionName, index: { name: 'missing', hidden: true } }),
        27,
    );
    await fails(
        node.db.command({ collMod: c.collectionName, index: { name: '_id_', hidden: true } }),
        2,
    );
});

/* ---- views ---- */

async function makeView(on, pipeline) {
    const name = node.newName('view');
    await node.db.createCollection(name, { viewOn: on, pipeline });
    return node.db.collection(name);
}

test('CAT-7: a view reads its collection through its pipeline', async () => {
    const c = await node.collection([1, 2, 3, 4].map((_id) => ({ _id, a: _id * 10, b: 1 })));
    const v = await makeView(c.collectionName, [
        { $match: { _id: { $gt: 1 } } },
        { $project: { a: 1 } },
    ]);
    assert.deepEqual(
        await v
            .find({ a: { $lt: 40 } })
            .sort({ _id: -1 })
            .toArray(),
        [
            { _id: 3, a: 30 },
            { _id: 2, a: 20 },
        ],
    );
    assert.equal(await v.countDocuments(), 3);
    assert.equal((await node.db.command({ count: v.collectionName })).n, 3);
    assert.deepEqual(await v.aggregate([{ $group: { _id: null, s: { $sum: '$a' } } }]).toArray(), [
        { _id: null, s: 90 },
    ]);
    assert.deepEqual(
        sortedIds(
            await v
                .find({}, { projection: { _id: 1 } })
                .skip(1)
                .limit(1)
                .toArray(),
        ),
        [3],
    );
    assert.deepEqual(await v.distinct('a'), [20, 30, 40]);
});

test('CAT-7: a view of a view reads through both', async () => {
    const c = await node.collection([1, 2, 3, 4].map((_id) => ({ _id })));
    const first = await makeView(c.collectionName, [{ $match: { _id: { $gt: 1 } } }]);
    const second = await makeView(first.collectionName, [{ $match: { _id: { $lt: 4 } } }]);
    assert.deepEqual(sortedIds(await second.find().toArray()), [2, 3]);
});

test('CAT-7: a view is listed as one and holds no indexes', async () => {
    const v = await makeView('nothing', [{ $match: { a: 1 } }]);
    const entry = await listed(v.collectionName);
    assert.equal(entry.type, 'view');
    assert.deepEqual(entry.options, { viewOn: 'nothing', pipeline: [{ $match: { a: 1 } }] });
    assert.equal(entry.info.readOnly, true);
    assert.ok((await node.db.listCollections({ name: 'system.views' }).toArray()).length === 1);
    assert.deepEqual(await v.find().toArray(), []);
});

test('CAT-7: what views cannot do fails with CommandNotSupportedOnView', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const v = await makeView(c.collectionName, []);
    const name = v.collectionName;
    await fails(v.insertOne({}), 166);
    await fails(v.updateOne({}, { $set: { a: 1 } }), 166);
    await fails(v.deleteOne({}), 166);
    await fails(v.createIndex({ a: 1 }), 166);
    await fails(node.db.command({ listIndexes: name }), 166);
    await fails(node.db.command({ collStats: name }), 166);
    await fails(node.db.command({ convertToCapped: name, size: 4096 }), 166);
    await fails(rename(`test.${name}`, 'test.elsewhere'), 166);
    await fails(node.db.command({ findAndModify: name, query: {}, remove: true }), 166);
});

test('CAT-7: collMod changes a view, drop removes it', async () => {
    const c = await node.collection([{ _id: 1 }, { _id: 2 }]);
    const v = await makeView(c.collectionName, []);
    await node.db.command({
        collMod: v.collectionName,
        viewOn: c.collectionName,
        pipeline: [{ $match: { _id: 2 } }],
    });
    assert.deepEqual(ids(await v.find().toArray()), [2]);
    await v.drop();
    assert.equal(await listed(v.collectionName), undefined);
    assert.equal(await c.countDocuments(), 2);
});

test('CAT-7: views in a circle are refused with GraphContainsCycle', async () => {
    const names = [node.newName('ring'), node.newName('ring')];
    await node.db.createCollection(names[0], { viewOn: names[1], pipeline: [] });
    await fails(node.db.createCollection(names[1], { viewOn: names[0], pipeline: [] }), 5);
    const self = node.newName('ring');
    await fails(node.db.createCollection(self, { viewOn: self, pipeline: [] }), 5);
});

test('CAT-7: too many views upon each other fail with ViewDepthLimitExceeded', async () => {
    let on = 'base';
    await assert.rejects(
        async () => {
            for (let i = 0; i < 25; i++) {
                const name = node.newName('tower');
                await node.db.createCollection(name, { viewOn: on, pipeline: [] });
                on = name;
            }
        },
        { code: 165 },
    );
});

test('CAT-7: a pipeline that would open views deeper than is allowed is refused at once', async () => {
    const names = Array.from({ length: 20 }, () => node.newName('wide'));
    for (const [i, name] of names.entries()) {
        const next = names[i + 1] ?? 'base';
        const lookup = { $lookup: { from: next, localField: 'a', foreignField: 'b', as: 'c' } };
        await node.db.createCollection(name, { viewOn: next, pipeline: [lookup, { $facet: { f: [lookup] } }, { $unionWith: next }] });
    }
    const run = (pipeline) => node.db.collection(names[10]).aggregate(pipeline, { maxTimeMS: 10_000 }).toArray();
    await fails(run([{ $unionWith: names[0] }]), 165);
    await fails(run([{ $lookup: { from: names[0], pipeline: [], as: 'x' } }]), 165);
    for (const name of names) await node.db.dropCollection(name);
});

test('CAT-7: collMod of a view takes what a view is made of, and nothing else', async () => {
    const v = await makeView('base', []);
    const change = (more) => node.db.command({ collMod: v.collectionName, viewOn: 'base', ...more });
    await fails(change({ pipeline: {} }), 14);
    await fails(change({ viewOn: 1, pipeline: [] }), 14);
    await fails(change({ pipeline: [], expireAfterSeconds: 1 }), 72);
    await fails(change({ pipeline: [], index: { name: 'x', hidden: true } }), 72);
    assert.equal((await change({ pipeline: [{ $limit: 1 }] })).ok, 1);
});

test('CAT-7: a database whose name has a dollar is not there to be dropped', async () => {
    assert.equal((await node.client.db('$x').command({ dropDatabase: 1 })).ok, 1);
    await fails(node.client.db('$x').command({ create: 'c' }), 73);
});

test('CAT-7: view pipelines that write or do not parse are refused', async () => {
    await fails(
        node.db.createCollection(node.newName(), { viewOn: 'x', pipeline: [{ $nope: 1 }] }),
        40324,
    );
    await assert.rejects(
        node.db.createCollection(node.newName(), { viewOn: 'x', pipeline: [{ $out: 'y' }] }),
    );
    await fails(node.db.createCollection(node.newName(), { viewOn: '', pipeline: [] }), 2);
});

/* ---- capped, clustered ---- */

const applyViewRow = (db, op, o) =>
    node.client.db('admin').command({ applyOps: [{ op, ns: `${db}.system.views`, o }] });

test('CAT-7: a row of system.views that applyOps writes is a view, also beside a collection', async () => {
    const db = node.client.db(node.newName());
    await db.collection('c').insertMany([{ a: 1 }, { a: 2 }]);
    await db.command({ create: 'system.views' });
    const row = { _id: `${db.databaseName}.v`, viewOn: 'c', pipeline: [{ $match: { a: 2 } }] };
    await applyViewRow(db.databaseName, 'i', row);
    assert.equal(await db.collection('v').countDocuments(), 1);
    await applyViewRow(db.databaseName, 'i', { ...row, _id: `${db.databaseName}.c` });
    const names = (await db.listCollections().toArray()).map((entry) => entry.name).sort();
    assert.deepEqual(names, ['c', 'c', 'system.views', 'v']);
    assert.equal(await db.collection('c').countDocuments(), 2);
    await applyViewRow(db.databaseName, 'd', row);
    assert.equal(await db.collection('v').countDocuments(), 0);
    await db.collection('system.views').drop();
    assert.deepEqual((await db.listCollections({ type: 'view' }).toArray()).length, 0);
});

const BAD_VIEWS = [
    ['a pipeline that is no array', { viewOn: 'c', pipeline: {} }],
    ['a stage that is no object', { viewOn: 'c', pipeline: [1] }],
    ['no viewOn', { pipeline: [] }],
    ['an _id that is no string', { _id: 7, viewOn: 'c', pipeline: [] }],
    ['an _id that is no namespace', { _id: 'x', viewOn: 'c', pipeline: [] }],
    ['a field that views do not have', { viewOn: 'c', pipeline: [], x: 1 }],
];
for (const [what, rest] of BAD_VIEWS) {
    test(`CAT-7: with ${what} in system.views only collections can be used`, async () => {
        const db = node.client.db(node.newName());
        await db.collection('c').insertOne({ a: 1 });
        await db.command({ create: 'system.views' });
        const row = { _id: `${db.databaseName}.bad`, ...rest };
        await applyViewRow(db.databaseName, 'i', row);
        const invalid = { name: 'InvalidViewDefinition' };
        await fails(db.command({ listCollections: 1 }), 182, invalid);
        await fails(db.command({ find: 'other' }), 182, invalid);
        await fails(db.command({ create: 'v', viewOn: 'c', pipeline: [] }), 182, invalid);
        assert.equal((await db.listCollections({ type: 'collection' }).toArray()).length, 2);
        assert.equal((await db.collection('c').updateMany({}, { $set: { b: 1 } })).modifiedCount, 1);
        await applyViewRow(db.databaseName, 'd', row);
        assert.equal((await db.listCollections().toArray()).length, 2);
    });
}

test('CAP-1: convertToCapped keeps the newest documents that fit', async () => {
    const c = await node.collection(
        Array.from({ length: 100 }, (_, _id) => ({ _id, s: 'x'.repeat(200) })),
    );
    await c.createIndex({ a: 1 });
    await node.db.command({ convertToCapped: c.collectionName, size: 8192 });
    const kept = ids(await c.find().toArray());
    assert.ok(kept.length > 20 && kept.length < 50, `${kept.length} kept`);
    assert.equal(kept.at(-1), 99);
    assert.equal((await listed(c.collectionName)).options.capped, true);
    await fails(node.db.command({ convertToCapped: 'missing', size: 4096 }), 26);
});

test('CAP-1: cloneCollectionAsCapped copies the newest documents that fit beside their collection', async () => {
    const c = await node.collection(Array.from({ length: 100 }, (_, _id) => ({ _id, s: 'x'.repeat(200) })));
    await c.createIndex({ s: 1 });
    const to = node.newName();
    const clone = (options) => node.db.command({ cloneCollectionAsCapped: c.collectionName, toCollection: to, size: 8192, ...options });
    await fails(clone({ size: 0 }), 72);
    await fails(clone({ cloneCollectionAsCapped: 'missing' }), 26);
    await fails(clone({ toCollection: c.collectionName }), 48);
    await clone();
    const kept = ids(await node.db.collection(to).find().toArray());
    assert.ok(kept.length > 20 && kept.length < 50, `${kept.length} kept`);
    assert.equal(kept.at(-1), 99);
    assert.deepEqual((await listed(to)).options, { capped: true, size: 8192 });
    assert.equal((await node.db.collection(to).indexes()).length, 1);
    assert.equal(await c.countDocuments(), 100);
    await fails(clone(), 48);
    await clone({ toCollection: `${to}.temp`, temp: true });
    assert.deepEqual((await listed(`${to}.temp`)).options, { capped: true, size: 8192, temp: true });
});

test('CAP-1: collMod changes the bounds of a capped collection', async () => {
    const c = await node.collection(
        [1, 2, 3, 4].map((_id) => ({ _id })),
        { capped: true, size: 100_000 },
    );
    await node.db.command({ collMod: c.collectionName, cappedMax: 2 });
    await c.insertOne({ _id: 5 });
    assert.deepEqual(ids(await c.find().toArray()), [4, 5]);
});

const clustered = (documents, more) =>
    node.collection(documents, { clusteredIndex: { key: { _id: 1 }, unique: true, ...more } });

test('CLU-1: a clustered collection stores by _id and returns documents in its order', async () => {
    const c = await clustered([3, 1, 2].map((_id) => ({ _id })));
    assert.deepEqual(ids(await c.find().toArray()), [1, 2, 3]);
    assert.deepEqual(ids(await c.find().sort({ _id: -1 }).toArray()), [3, 2, 1]);
    assert.deepEqual(ids(await c.find().sort({ $natural: -1 }).toArray()), [3, 2, 1]);
    await fails(c.insertOne({ _id: 2 }), 11000);
});

test('CLU-1: ids of all types are kept in order in a clustered collection', async () => {
    const values = [-5, 0, 1.5, 7, 'a', 'ab', 'b', { x: 1 }, true, new Date(5)];
    const c = await clustered([...values].reverse().map((_id) => ({ _id })));
    assert.deepEqual(ids(await c.find().toArray()), values);
});

test('CLU-1: a range of _id reads only that part', async () => {
    const c = await clustered(Array.from({ length: 1000 }, (_, _id) => ({ _id })));
    const { executionStats, queryPlanner } = await c
        .find({ _id: { $gte: 100, $lt: 110 } })
        .explain('executionStats');
    assert.match(JSON.stringify(queryPlanner.winningPlan), /CLUSTERED_IXSCAN/);
    assert.equal(executionStats.nReturned, 10);
    assert.ok(
        executionStats.totalDocsExamined <= 12,
        `${executionStats.totalDocsExamined} examined`,
    );
    assert.deepEqual(ids(await c.find({ _id: { $in: [5, 7, 5000] } }).toArray()), [5, 7]);
});

test('CLU-1: collMod refuses to change the clustered key', async () => {
    const c = await clustered([], { name: 'mine' });
    const change = (index) => node.db.command({ collMod: c.collectionName, index });
    for (const index of [{ name: 'mine' }, { keyPattern: { _id: 1 } }]) await fails(change({ ...index, hidden: true }), 6011800);
    await fails(change({ name: 'other', hidden: true }), 27);
});

test('CLU-1: a hint, min and max on the clustered key read that part of the collection', async () => {
    const c = await clustered(Array.from({ length: 20 }, (_, _id) => ({ _id })), { name: 'mine' });
    for (const hint of [{ _id: 1 }, 'mine']) {
        const found = c.find().hint(hint).min({ _id: 5 }).max({ _id: 8 });
        assert.deepEqual(ids(await found.clone().toArray()), [5, 6, 7]);
        assert.deepEqual(ids(await found.clone().sort({ _id: -1 }).toArray()), [7, 6, 5]);
        assert.deepEqual(ids(await found.clone().filter({ _id: { $gt: 6 } }).toArray()), [7]);
    }
    const bounded = (min, max) => c.find().hint('mine').min(min).max(max).toArray();
    await fails(bounded({ _id: 8 }, { _id: 5 }), 6137401, { name: undefined });
    await fails(bounded({ a: 8 }, { a: 9 }), 51174, { name: undefined });
    await fails(c.find().hint({ _id: -1 }).toArray(), 2);
    await fails(c.find().hint({ $natural: 1 }).min({ _id: 1 }).toArray(), 291);
    const { queryPlanner } = await c.find({ _id: 3 }).hint({ $natural: -1 }).explain();
    const { stage, direction, minRecord, maxRecord } = queryPlanner.winningPlan;
    assert.deepEqual([stage, direction, minRecord, maxRecord], ['CLUSTERED_IXSCAN', 'backward', 3, 3]);
});

test('CLU-1: the order of a clustered collection serves sorts by _id, and no foreign collation', async () => {
    const values = [5, 'B', 'a', 'c', { s: 'A' }];
    const c = await node.collection(
        values.map((_id) => ({ _id })),
        { clusteredIndex: { key: { _id: 1 }, unique: true }, collation: { locale: 'en', strength: 2 } },
    );
    const collation = (await c.indexes())[0].collation;
    assert.equal(collation.strength, 2);
    const simple = { collation: { locale: 'simple' } };
    const read = async (filter, options) =>
        ids(await c.find(filter, options).sort({ _id: 1 }).toArray());
    const sorts = async (filter, options) =>
        JSON.stringify(
            (await c.find(filter, options).sort({ _id: 1 }).explain('queryPlanner')).queryPlanner,
        ).includes('"SORT"');
    assert.deepEqual(await read({}), [5, 'a', 'B', 'c', { s: 'A' }]);
    assert.deepEqual(await read({}, simple), [5, 'B', 'a', 'c', { s: 'A' }]);
    assert.deepEqual(await read({ _id: 'A' }), ['a']);
    assert.deepEqual(await read({ _id: 'A' }, simple), []);
    assert.deepEqual(await read({ _id: { s: 'a' } }, simple), []);
    assert.deepEqual(await read({ _id: { $gt: 'B', $lt: 'b' } }, simple), ['a']);
    assert.deepEqual(await read({ _id: { $in: ['B', 5] } }, simple), [5, 'B']);
    assert.equal(await sorts({}), false);
    assert.equal(await sorts({}, simple), true);
    assert.equal(await sorts({ _id: { $gt: 1 } }, simple), false);
    const text = c.find({}, simple).hint({ _id: 1 }).min({ _id: 'a' });
    await fails(text.toArray(), 6137400, { name: undefined });
});

test('CLU-1: listIndexes and listCollections show the clustered index', async () => {
    const c = await clustered([{ _id: 1 }], { name: 'mine' });
    assert.deepEqual(await c.indexes(), [
        { v: 2, key: { _id: 1 }, name: 'mine', unique: true, clustered: true },
    ]);
    assert.deepEqual((await listed(c.collectionName)).options.clusteredIndex, {
        v: 2,
        key: { _id: 1 },
        name: 'mine',
        unique: true,
    });
    await fails(c.dropIndex('mine'), 5979800, { name: undefined });
    const drop = { dropIndexes: c.collectionName, index: { _id: 1 } };
    await fails(node.db.command(drop), 5979800, { name: undefined });
    const make = (coll, index) =>
        node.db.command({ createIndexes: coll, indexes: [{ ...index, clustered: true, unique: true }] });
    await make(c.collectionName, { key: { _id: 1 }, name: 'mine' });
    assert.equal((await c.indexes()).length, 1);
    const plain = await node.collection([{ _id: 1 }]);
    const refused = [
        [c.collectionName, { key: { a: 1 }, name: 'a' }, 6243700],
        [plain.collectionName, { key: { _id: 1 }, name: '_id_' }, 6243700],
        [`${c.collectionName}_none`, { key: { _id: 1 }, name: '_id_' }, 6100900],
    ];
    for (const [coll, index, code] of refused)
        await fails(make(coll, index), code, { name: undefined });
});

test('CLU-1: secondary indexes, updates and deletes work on a clustered collection', async () => {
    const c = await clustered(
        [
            ['x', 1],
            ['y', 2],
            ['z', 2],
        ].map(([_id, a]) => ({ _id, a })),
    );
    await c.createIndex({ a: 1 });
    assert.deepEqual(ids(await c.find({ a: 2 }).hint('a_1').toArray()), ['y', 'z']);
    await c.updateOne({ _id: 'y' }, { $set: { a: 1, long: 'l'.repeat(1000) } });
    await c.deleteOne({ _id: 'z' });
    assert.deepEqual(ids(await c.find({ a: 1 }).hint('a_1').toArray()), ['x', 'y']);
    assert.deepEqual(ids(await c.find().toArray()), ['x', 'y']);
});

/* ---- lists, restart ---- */

test('listCollections filters and gives names only', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const all = await node.db.command({ listCollections: 1, nameOnly: true });
    const entry = all.cursor.firstBatch.find(({ name }) => name === c.collectionName);
    assert.deepEqual(entry, { name: c.collectionName, type: 'collection' });
    assert.equal(all.cursor.ns, 'test.$cmd.listCollections');
    const filtered = await node.db.command({
        listCollections: 1,
        filter: { name: c.collectionName },
        cursor: { batchSize: 5 },
    });
    assert.equal(filtered.cursor.firstBatch.length, 1);
});

test('CAT-1: everything is there again after a clean restart', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }], { validator: { a: 1 } });
    await c.createIndex({ a: 1 }, { unique: true });
    const v = await makeView(c.collectionName, [{ $match: { a: 1 } }]);
    const strip = (entries) => entries.map((entry) => JSON.stringify(entry)).sort();
    const before = strip(await node.db.listCollections().toArray());
    await node.server.restart();
    node.client = await node.server.client();
    node.admin = node.client.db('admin');
    node.db = node.client.db('test');
    assert.deepEqual(strip(await node.db.listCollections().toArray()), before);
    const again = node.db.collection(c.collectionName);
    assert.deepEqual(await again.find({ a: 1 }).hint('a_1').toArray(), [{ _id: 1, a: 1 }]);
    assert.equal(await node.db.collection(v.collectionName).countDocuments(), 1);
    await fails(again.insertOne({ a: 2 }), 121);
    await fails(again.insertOne({ a: 1 }), 11000);
});
