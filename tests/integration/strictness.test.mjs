/* Strict parsing of commands, sessions and transactions on a standalone node, the stable API. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Double, Long, UUID } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { RawConnection, bodySection, int32, msg } from '../lib/wire.mjs';

const node = useServer();
const run = (command, options) => node.db.command(command, options);

/* A connection by hand: drivers put sessions of their own into commands. */
async function withRaw(body) {
    const connection = await RawConnection.open({ host: '127.0.0.1', port: node.server.port });
    try {
        return await body(connection);
    } finally {
        connection.close();
    }
}

test('an unknown command fails with CommandNotFound', () =>
    fails(run({ nonsense: 1 }), 59, {
        name: 'CommandNotFound',
        message: /no such command: 'nonsense'/,
    }));

const ONE_OF_EACH = [
    { find: 'c' },
    { insert: 'c', documents: [{}] },
    { update: 'c', updates: [] },
    { delete: 'c', deletes: [] },
    { aggregate: 'c', pipeline: [], cursor: {} },
    { count: 'c' },
    { distinct: 'c', key: 'a' },
    { findAndModify: 'c', remove: true },
    { create: 'unknownfield' },
    { drop: 'c' },
    { createIndexes: 'c', indexes: [] },
    { dropIndexes: 'c', index: '*' },
    { listIndexes: 'c' },
    { listCollections: 1 },
    { collMod: 'c' },
    { killCursors: 'c', cursors: [] },
    { getMore: Long.ONE, collection: 'c' },
];
for (const command of ONE_OF_EACH) {
    const [name] = Object.keys(command);
    test(`${name} refuses an unknown field with 40415`, () =>
        fails(run({ ...command, nonsense: 1 }), 40415, {
            message: new RegExp(`BSON field '${name}.nonsense' is an unknown field`),
        }));
}

const MISSING = [
    [{ insert: 'c' }, 'documents'],
    [{ update: 'c' }, 'updates'],
    [{ delete: 'c' }, 'deletes'],
    [{ update: 'c', updates: [{ q: {} }] }, 'u'],
    [{ delete: 'c', deletes: [{ q: {} }] }, 'limit'],
    [{ aggregate: 'c', cursor: {} }, 'pipeline'],
    [{ distinct: 'c' }, 'key'],
    [{ createIndexes: 'c' }, 'indexes'],
    [{ dropIndexes: 'c' }, 'index'],
    [{ getMore: Long.ONE }, 'collection'],
    [{ killCursors: 'c' }, 'cursors'],
];
for (const [command, field] of MISSING) {
    test(`${Object.keys(command)[0]} without ${field} fails with 40414`, () =>
        fails(run(command), 40414, {
            message: new RegExp(`${field}' is missing but a required field`),
        }));
}

const WRONG_TYPES = [
    { find: 'c', filter: 1 },
    { find: 'c', sort: 'x' },
    { find: 'c', limit: 'x' },
    { find: 'c', singleBatch: 'x' },
    { find: 'c', projection: [] },
    { insert: 'c', documents: 1 },
    { insert: 'c', documents: [{}], ordered: 'x' },
    { delete: 'c', deletes: [{ q: {}, limit: 1 }], ordered: {} },
    { dropIndexes: 'c', index: 1 },
    { insert: 'c', documents: [1] },
    { update: 'c', updates: {} },
    { update: 'c', updates: [{ q: 1, u: {} }] },
    { delete: 'c', deletes: 'x' },
    { aggregate: 'c', pipeline: {}, cursor: {} },
    { aggregate: 'c', pipeline: [], cursor: 1 },
    { count: 'c', query: 1 },
    { distinct: 'c', key: 5 },
    { create: 'wrongtype', capped: 'x' },
    { createIndexes: 'c', indexes: 5 },
    { getMore: 'x', collection: 'c' },
    { killCursors: 'c', cursors: 5 },
    { find: 'c', maxTimeMS: 'x' },
    { find: 'c', readConcern: 5 },
    { insert: 'c', documents: [{}], writeConcern: 5 },
    { find: 'c', comment: { any: 1 }, skip: {} },
];
for (const command of WRONG_TYPES) {
    test(`${JSON.stringify(command)} fails with TypeMismatch`, () =>
        fails(run(command), 14, { name: 'TypeMismatch' }));
}

test('a field given twice is refused with 40413', () =>
    withRaw(async (connection) => {
        const field = (name, value) =>
            Buffer.concat([Buffer.from([16]), Buffer.from(`${name}\0`), int32(value)]);
        const text = (name, value) =>
            Buffer.concat([
                Buffer.from([2]),
                Buffer.from(`${name}\0`),
                int32(value.length + 1),
                Buffer.from(`${value}\0`),
            ]);
        const inner = [
            text('find', 'c'),
            field('limit', 1),
            field('limit', 2),
            text('$db', 'test'),
            Buffer.from([0]),
        ];
        const size = inner.reduce((sum, part) => sum + part.length, 4);
        const { document: reply } = await connection.roundTrip(
            msg([bodySection(Buffer.concat([int32(size), ...inner]))]),
        );
        assert.equal(reply.ok, 0);
        assert.equal(reply.code, 40413, reply.errmsg);
    }));

const BAD_NAMESPACES = ['', '.x', 'a\0b'];
for (const name of BAD_NAMESPACES) {
    test(`collection name ${JSON.stringify(name)} is refused with InvalidNamespace`, async () => {
        await fails(run({ find: name }), 73, { name: 'InvalidNamespace' });
        await fails(run({ insert: name, documents: [{}] }), 73);
        await fails(run({ count: name }), 73);
    });
}

test('a collection name that is no string is refused', async () => {
    await fails(run({ find: 1 }), 73, { message: /collection name has invalid type/i });
    await fails(run({ insert: 5, documents: [{}] }), 73);
});

test('numbers may be of any numeric type where a number is wanted', async () => {
    await node.db.collection('num').insertMany([{ _id: 1 }, { _id: 2 }]);
    const reply = await run({
        find: 'num',
        limit: new Double(1),
        batchSize: Long.fromNumber(5),
        singleBatch: 1,
    });
    assert.equal(reply.cursor.firstBatch.length, 1);
});

test('maxTimeMS out of range is refused with BadValue', async () => {
    await fails(run({ find: 'c', maxTimeMS: -1 }), 2);
    await fails(run({ find: 'c', maxTimeMS: 2 ** 31 }), 2);
    await fails(run({ find: 'c', maxTimeMS: 1.5 }), 2);
});

test('comment and $-prefixed generic arguments are taken by every command', async () => {
    for (const command of [{ ping: 1 }, { find: 'c' }, { listCollections: 1 }, { count: 'c' }])
        assert.equal((await run({ ...command, comment: { a: 1 } })).ok, 1);
});

/* ---- sessions and transactions ---- */

test('a session id is accepted, a malformed one is not', () =>
    withRaw(async (connection) => {
        assert.equal((await connection.command({ ping: 1, lsid: { id: new UUID() } })).ok, 1);
        for (const lsid of [5, { id: 5 }])
            assert.equal((await connection.command({ ping: 1, lsid })).code, 14);
    }));

test('retryable writes are refused on a standalone node with IllegalOperation', () =>
    fails(
        run({ insert: 'c', documents: [{}], lsid: { id: new UUID() }, txnNumber: Long.ONE }),
        20,
        {
            name: 'IllegalOperation',
            message: /Transaction numbers are only allowed on a replica set member or mongos/,
        },
    ));

test('transactions are refused on a standalone node and change nothing', async () => {
    await node.db.collection('txn').insertOne({ _id: 0 });
    const session = node.client.startSession();
    try {
        session.startTransaction();
        // The driver replaces the server's words when it may have been a retryable write.
        await assert.rejects(
            node.db.collection('txn').insertOne({ _id: 1 }, { session }),
            /Transaction numbers are only allowed|does not support retryable writes/,
        );
        await session.abortTransaction().catch(() => {});
    } finally {
        await session.endSession();
    }
    assert.equal(await node.db.collection('txn').countDocuments(), 1);
    await fails(
        run({
            find: 'c',
            startTransaction: true,
            autocommit: false,
            lsid: { id: new UUID() },
            txnNumber: Long.ONE,
        }),
        20,
    );
});

test('parts of a transaction without the others are refused with InvalidOptions', () =>
    withRaw(async (connection) => {
        const lsid = { id: new UUID() };
        for (const parts of [
            { lsid, autocommit: false },
            { lsid, startTransaction: true },
            { txnNumber: Long.ONE },
        ]) {
            const reply = await connection.command({ find: 'c', ...parts, $db: 'test' });
            assert.equal(reply.code, 72, `${Object.keys(parts)}: ${reply.errmsg}`);
        }
    }));

/* ---- stable API ---- */

test('apiVersion 1 is accepted, others are not', async () => {
    assert.equal((await run({ ping: 1, apiVersion: '1' })).ok, 1);
    await fails(run({ ping: 1, apiVersion: '2' }), 322, { name: 'APIVersionError' });
    await fails(run({ ping: 1, apiStrict: true }), 4886600);
});

test('apiStrict refuses commands outside of version 1 with APIStrictError', async () => {
    await fails(node.admin.command({ serverStatus: 1, apiVersion: '1', apiStrict: true }), 323, {
        name: 'APIStrictError',
    });
    assert.equal((await run({ find: 'c', apiVersion: '1', apiStrict: true })).ok, 1);
});

test('apiStrict refuses stages outside of version 1 with APIStrictError', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const strictly = (database, aggregate, stage) =>
        database.command({
            aggregate,
            pipeline: [stage],
            cursor: {},
            apiVersion: '1',
            apiStrict: true,
        });
    const name = c.collectionName;
    await fails(strictly(node.admin, 1, { $currentOp: {} }), 323, { name: 'APIStrictError' });
    await fails(strictly(node.admin, 1, { $listLocalSessions: {} }), 323);
    await fails(strictly(node.db, name, { $indexStats: {} }), 323);
    await fails(strictly(node.db, name, { $collStats: { storageStats: {} } }), 323);
    const { cursor } = await strictly(node.db, name, { $collStats: { count: {} } });
    assert.equal(cursor.firstBatch.reduce((sum, { count }) => sum + count, 0), 1);
});

test('validateDBMetadata tells what is not in the stable API, and createIndexes refuses it', async () => {
    const db = node.client.db('metadata');
    const strict = { apiVersion: '1', apiStrict: true };
    await db.createCollection('c');
    const create = (options) => db.command({ createIndexes: 'c', indexes: [{ key: { a: 1 }, name: 'a', ...options }], ...strict });
    for (const options of [{ sparse: true }, { background: true }, { storageEngine: {} }, { key: { a: 'text' } }]) await fails(create(options), 323);
    await create({ unique: true });
    await db.collection('c').createIndex({ b: 1 }, { sparse: true });
    await db.createCollection('v', { viewOn: 'c', pipeline: [{ $match: { a: 1 } }] });
    await db.createCollection('w', { viewOn: 'c', pipeline: [{ $indexStats: {} }] });
    const validate = async (command, apiParameters = { version: '1', strict: true }) => {
        const reply = await node.admin.command({ validateDBMetadata: 1, ...command, apiParameters });
        return reply.apiVersionErrors.map(({ ns, code, codeName }) => [ns, code, codeName]).sort();
    };
    const ofSparse = ['metadata.c', 323, 'APIStrictError'];
    const ofView = ['metadata.w', 323, 'APIStrictError'];
    assert.deepEqual(await validate({ db: 'metadata' }), [ofSparse, ofView]);
    assert.deepEqual(await validate({ db: null, collection: 'w' }), [ofView]);
    assert.deepEqual(await validate({ collection: 'v' }), []);
    assert.deepEqual(await validate({ db: 'other' }), []);
    assert.deepEqual(await validate({ db: 'metadata' }, { version: '1' }), []);
    await fails(node.admin.command({ validateDBMetadata: 1 }), 40414);
    await fails(validate({}, { strict: true }), 40414);
    await fails(validate({}, { version: '2' }), 322);
});

test('a driver with the stable API works', async () => {
    const client = await node.server.client({
        serverApi: { version: '1', strict: true, deprecationErrors: true },
    });
    const c = client.db('test').collection('api');
    await c.insertOne({ _id: 1 });
    assert.deepEqual(await c.findOne({ _id: 1 }), { _id: 1 });
    await client.close();
});

test('write concern fields are checked', async () => {
    const insert = (writeConcern) => run({ insert: 'wc', documents: [{}], writeConcern });
    const code = (writeConcern) =>
        insert(writeConcern).then(
            () => 0,
            (error) => error.code,
        );
    assert.ok([9, 40415].includes(await code({ nonsense: 1 })));
    assert.ok([2, 79].includes(await code({ w: 'nonsense' })));
    assert.equal(await code({ w: -1 }), 9);
    assert.ok([2, 9].includes(await code({ w: 51 })));
});

test('null stands for an option that is not given, also where a value has a type', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const options = { filter: null, sort: null, projection: null, hint: null, collation: null, let: null, skip: null, limit: null };
    const { cursor } = await run({ find: c.collectionName, ...options, batchSize: null, singleBatch: null, maxTimeMS: null });
    assert.deepEqual(cursor.firstBatch, [{ _id: 1 }]);
    assert.equal((await run({ count: c.collectionName, query: null, collation: null })).n, 1);
    await fails(run({ distinct: c.collectionName, key: null }), 40414);
    await fails(run({ find: null }), 73);
});

test('commands that read take the UUID of a collection', async () => {
    const c = await node.collection([{ _id: 1, a: 2 }]);
    const { info } = await node.db.listCollections({ name: c.collectionName }).next();
    assert.equal((await run({ count: info.uuid })).n, 1);
    assert.deepEqual((await run({ distinct: info.uuid, key: 'a' })).values, [2]);
    assert.equal((await run({ aggregate: info.uuid, pipeline: [], cursor: {} })).cursor.firstBatch.length, 1);
    await fails(run({ count: new UUID() }), 26);
});

test('hints of the natural order are one direction and stand alone', async () => {
    const c = await node.collection([{ _id: 1 }]);
    for (const hint of [{ $natural: 0 }, { $natural: 'x' }, { $natural: 1, _id: 1 }])
        await fails(run({ find: c.collectionName, hint }), 2);
    await fails(run({ find: c.collectionName, hint: { _id: 1 }, sort: { $natural: 1 } }), 2);
    await fails(run({ count: c.collectionName, hint: 'no_such_index' }), 2);
    await c.createIndex({ s: 1 }, { sparse: true });
    assert.equal((await run({ count: c.collectionName, hint: { s: 1 } })).n, 0);
});
