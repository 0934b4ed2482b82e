/*
 * Goal (DOC-1, OPL-1, REP-2): sizes have limits, each of them to the byte, and what passes one is
 * refused before anything is done; so that whatever a primary commits can be fetched, applied and
 * copied by every other member.
 * Method: a table of operations that make something of a given size (a document, an entry of the
 * oplog, a result), each tried at one byte below its limit, at it, and one above, on a node alone and
 * on a set of three. Afterwards a fourth member joins the set, all have the same data, and a
 * write with w: majority is acknowledged.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { BSON } from 'mongodb';
import { replyOf } from '../lib/expect.mjs';
import { freePorts, startReplicaSet } from '../lib/replica_set.mjs';
import { Server, startServer, waitFor } from '../lib/server.mjs';

const MB = 1 << 20;
const DOCUMENT_MAX = 16 * MB;
/* What a reply of 16 MB + 16 KB can carry beside its own fields. */
const CARRIED_MAX = 16 * MB + 16384 - 4096;

const BAD_VALUE = 2;
const TOO_LARGE = 10334;
const UPDATE_TOO_LARGE = 17419;
const UPSERT_TOO_LARGE = 17420;

const sizeOf = (doc) => BSON.calculateObjectSize(doc);
const x = (count) => 'x'.repeat(count);
/* The document with a last string `p` so long that the whole has `size` bytes. */
const sized = (size, doc = {}) => ({ ...doc, p: x(size - sizeOf({ ...doc, p: '' })) });

/* The code of a command's failure or of its first write error; 0: it is done. */
async function codeOf(world, command, db = world.db) {
    const reply = await replyOf(db, command);
    return reply.writeErrors?.[0].code ?? (reply.ok === 1 ? 0 : reply.code);
}

const insert = (world, name, documents, options) =>
    codeOf(world, { insert: name, documents, ordered: false, ...options });
const update = (world, name, q, u, options) =>
    codeOf(world, { update: name, updates: [{ q, u, ...options }] });
const sizeStored = async (world, name, q) =>
    (
        await world.db
            .collection(name)
            .aggregate([{ $match: q }, { $project: { _id: 0, size: { $bsonSize: '$$ROOT' } } }])
            .toArray()
    )[0]?.size ?? null;

/* Bytes of the newest entry of the oplog that matches. */
async function entrySize(world, match) {
    if (!world.isSet) return 256;
    const oplog = world.client.db('local').collection('oplog.rs');
    return (await oplog.findOne(match, { sort: { $natural: -1 }, raw: true })).length;
}

/*
 * A row: `limit` is the largest size that is done, on a set (`isSet`) or alone; null: the sizes of a
 * set are tried, and all are done. `make` prepares a collection of that name and returns a function
 * that tries a size and returns the error's code or 0, and leaves everything as before when it is
 * not 0. `keeps`: the collection stays, to be copied by the member that joins.
 */
const ROWS = [
    {
        what: 'a document that is inserted',
        code: BAD_VALUE,
        keeps: true,
        make: (world, name) => async (size) => {
            const code = await insert(world, name, [sized(size, { _id: size })]);
            assert.equal(await sizeStored(world, name, { _id: size }), code === 0 ? size : null);
            return code;
        },
    },
    {
        what: 'a document among others that are inserted',
        code: BAD_VALUE,
        make: (world, name) => async (size) => {
            const documents = [{ _id: `a${size}` }, sized(size, { _id: size }), { _id: `z${size}` }];
            const code = await codeOf(world, {
                insert: name,
                documents: size > DOCUMENT_MAX - 1 ? documents : documents.slice(1),
                ordered: false,
            });
            assert.equal(await sizeStored(world, name, { _id: size }), code === 0 ? size : null);
            assert.equal(await world.db.collection(name).countDocuments({ _id: `z${size}` }), 1);
            return code;
        },
    },
    {
        what: 'a document that $set makes longer',
        code: UPDATE_TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, p: '' }]);
            return (size) =>
                update(world, name, { _id: 1 }, { $set: { p: sized(size, { _id: 1 }).p } });
        },
    },
    {
        what: 'a document that $push makes longer',
        code: UPDATE_TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, a: [x(9 * MB)] }]);
            return async (size) => {
                const room = size - sizeOf({ _id: 1, a: [x(9 * MB), ''] });
                const code = await update(world, name, { _id: 1 }, { $push: { a: x(room) } });
                if (code === 0) {
                    assert.equal(await sizeStored(world, name, { _id: 1 }), size);
                    await update(world, name, { _id: 1 }, { $pop: { a: 1 } });
                }
                return code;
            };
        },
    },
    {
        what: 'a replacement',
        code: UPDATE_TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1 }]);
            return (size) => update(world, name, { _id: 1 }, sized(size, { _id: 1 }));
        },
    },
    {
        what: 'an upsert by operators',
        code: UPSERT_TOO_LARGE,
        make: (world, name) => (size) =>
            update(
                world,
                name,
                { _id: size },
                { $set: { p: sized(size, { _id: size }).p } },
                { upsert: true },
            ),
    },
    {
        what: 'an upsert by a replacement',
        code: UPSERT_TOO_LARGE,
        make: (world, name) => (size) =>
            update(world, name, { _id: size }, sized(size, { _id: size }), { upsert: true }),
    },
    {
        what: 'an update by a pipeline',
        code: UPDATE_TOO_LARGE,
        keeps: true,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(6 * MB) }]);
            return async (size) => {
                const code = await update(world, name, { _id: 1 }, concatTo(size));
                if (code === 0) assert.equal(await sizeStored(world, name, { _id: 1 }), size);
                return code;
            };
        },
    },
    {
        what: 'an upsert by a pipeline',
        code: UPSERT_TOO_LARGE,
        make: (world, name) => (size) => {
            const room = size - sizeOf({ _id: size, p: '' });
            const half = room >> 1;
            const pipeline = [{ $set: { p: { $concat: [x(half), x(room - half)] } } }];
            return update(world, name, { _id: size }, pipeline, { upsert: true });
        },
    },
    {
        what: 'a findAndModify by a pipeline',
        code: UPDATE_TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(6 * MB) }]);
            return async (size) => {
                const reply = await replyOf(world.db, {
                    findAndModify: name,
                    query: { _id: 1 },
                    update: concatTo(size),
                    new: true,
                });
                if (reply.ok !== 1) return reply.code;
                assert.equal(sizeOf(reply.value), size);
                return 0;
            };
        },
    },
    {
        what: 'a document that $merge changes by a pipeline',
        code: UPDATE_TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(6 * MB) }]);
            return (size) =>
                aggregate(world, name, [
                    { $project: { _id: 1 } },
                    { $merge: { into: name, whenMatched: concatTo(size) } },
                ]);
        },
    },
    {
        what: 'a document that $merge replaces',
        code: BAD_VALUE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(6 * MB) }]);
            return async (size) => {
                const into = { $merge: { into: `${name}.to`, whenMatched: 'replace' } };
                return aggregate(world, name, [...concatTo(size), into]);
            };
        },
    },
    {
        what: 'a document of $out',
        code: BAD_VALUE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(6 * MB) }]);
            return (size) =>
                aggregate(world, name, [...concatTo(size), { $out: `${name}.to` }]);
        },
    },
    {
        what: 'a result of a pipeline',
        limit: CARRIED_MAX,
        code: TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(6 * MB) }]);
            return (size) => aggregate(world, name, concatTo(size), size);
        },
    },
    {
        what: 'a result of $group',
        limit: CARRIED_MAX,
        code: TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(9 * MB) }]);
            return (size) => {
                const room = size - sizeOf({ _id: null, a: [x(9 * MB), ''] });
                return aggregate(
                    world,
                    name,
                    [
                        { $project: { v: ['$h', x(room)] } },
                        { $unwind: '$v' },
                        { $group: { _id: null, a: { $push: '$v' } } },
                    ],
                    size,
                );
            };
        },
    },
    {
        what: 'a result of a projection',
        limit: CARRIED_MAX,
        code: TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: 1, h: x(6 * MB) }]);
            return async (size) => {
                const projection = { h: 1, ...concatTo(size)[0].$set };
                return batchCode(await replyOf(world.db, { find: name, projection }), size);
            };
        },
    },
    {
        what: 'the entry of an insert with a long _id',
        limit: (isSet) => (isSet ? CARRIED_MAX : null),
        code: TOO_LARGE,
        keeps: true,
        make: async (world, name) => {
            await insert(world, name, [{ _id: '', p: '' }]);
            const base = await entrySize(world, { op: 'i', ns: `${world.db.databaseName}.${name}` });
            return async (size) => {
                const _id = `${size}${x(6 * MB)}`;
                const room = size - base - 2 * _id.length;
                const code = await insert(world, name, [{ _id, p: x(room) }]);
                assert.equal((await sizeStored(world, name, { _id })) !== null, code === 0);
                return code;
            };
        },
    },
    {
        what: 'the entry of one of several inserts',
        limit: (isSet) => (isSet ? CARRIED_MAX : null),
        code: TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: '', p: '' }]);
            const base = await entrySize(world, { op: 'i', ns: `${world.db.databaseName}.${name}` });
            return async (size) => {
                const _id = `${size}${x(6 * MB)}`;
                const room = size - base - 2 * _id.length;
                const documents = [{ _id: `a${size}` }, { _id, p: x(room) }, { _id: `z${size}` }];
                const reply = await replyOf(world.db, { insert: name, documents, ordered: false });
                const code = reply.writeErrors?.[0].code ?? 0;
                assert.equal(reply.n, code === 0 ? 3 : 2);
                assert.equal(
                    await world.db.collection(name).countDocuments({ _id: /^[az]/ }),
                    2 * (size - (CARRIED_MAX - 1) + 1),
                );
                return code;
            };
        },
    },
    {
        what: 'the entry of an upsert with a long _id',
        limit: (isSet) => (isSet ? CARRIED_MAX : null),
        code: TOO_LARGE,
        make: async (world, name) => {
            await insert(world, name, [{ _id: '', p: '' }]);
            const base = await entrySize(world, { op: 'i', ns: `${world.db.databaseName}.${name}` });
            return async (size) => {
                const _id = `${size}${x(6 * MB)}`;
                const p = x(size - base - 2 * _id.length);
                const code = await update(world, name, { _id }, { $set: { p } }, { upsert: true });
                assert.equal((await sizeStored(world, name, { _id })) !== null, code === 0);
                return code;
            };
        },
    },
    {
        what: 'the entry of a replacement with a long _id',
        limit: (isSet) => (isSet ? CARRIED_MAX : null),
        code: TOO_LARGE,
        keeps: true,
        make: async (world, name) => {
            await insert(world, name, [{ _id: '', p: '' }, { _id: x(6 * MB), p: '' }]);
            await update(world, name, { _id: '' }, { p: 'y' });
            const ns = `${world.db.databaseName}.${name}`;
            const base = (await entrySize(world, { op: 'u', ns })) - 1;
            return async (size) => {
                const _id = x(6 * MB);
                const room = size - base - 2 * _id.length;
                const before = await sizeStored(world, name, { _id });
                const code = await update(world, name, { _id }, { p: x(room) });
                const now = await sizeStored(world, name, { _id });
                assert.equal(now, code === 0 ? sizeOf({ _id, p: x(room) }) : before);
                return code;
            };
        },
    },
    {
        what: 'the entry of a change of the validator',
        limit: (isSet) => (isSet ? CARRIED_MAX : null),
        code: TOO_LARGE,
        keeps: true,
        make: async (world, name) => {
            const collMod = (value) =>
                codeOf(world, { collMod: name, validator: { a: { $ne: value } } });
            await world.db.createCollection(name, { validator: { a: { $ne: '' } } });
            assert.equal(await collMod('y'), 0);
            const base =
                (await entrySize(world, { op: 'c', 'o.collMod': name })) - 1;
            const old = x(8 * MB);
            return async (size) => {
                assert.equal(await collMod(''), 0);
                assert.equal(await collMod(old), 0);
                const wanted = x(size - base - old.length);
                const code = await collMod(wanted);
                const [{ options }] = await world.db.listCollections({ name }).toArray();
                const length = options.validator.a.$ne.length;
                assert.equal(length, code === 0 ? wanted.length : old.length);
                return code;
            };
        },
    },
    {
        what: 'the entry of a note',
        limit: (isSet) => (isSet ? CARRIED_MAX : null),
        code: TOO_LARGE,
        isForSets: true,
        make: async (world) => {
            const note = (data) =>
                codeOf(world, { appendOplogNote: 1, data: { p: data } }, world.client.db('admin'));
            assert.equal(await note(''), 0);
            const base = await entrySize(world, { op: 'n', 'o.p': '' });
            return (size) => note(x(size - base));
        },
    },
];

/* Stages that make the document {_id: 1, h: 6 MB} `size` bytes long. */
function concatTo(size) {
    const room = size - sizeOf({ _id: 1, h: x(6 * MB), p: '' });
    return [{ $set: { p: { $concat: ['$h', x(room - 6 * MB)] } } }];
}

function batchCode(reply, size) {
    if (reply.ok !== 1) return reply.code;
    assert.equal(reply.cursor.firstBatch.length, 1);
    assert.equal(sizeOf(reply.cursor.firstBatch[0]), size);
    return 0;
}

async function aggregate(world, name, pipeline, size) {
    const reply = await replyOf(world.db, { aggregate: name, pipeline, cursor: {} });
    return size === undefined ? (reply.ok === 1 ? 0 : reply.code) : batchCode(reply, size);
}

function rowTests(world) {
    for (const [i, row] of ROWS.entries()) {
        if (row.isForSets && !world.isSet) continue;
        test(`DOC-1: ${row.what} has its limit`, async () => {
            const name = `row${i}`;
            const limitOf = (isSet) =>
                typeof row.limit === 'function' ? row.limit(isSet) : (row.limit ?? DOCUMENT_MAX);
            const limit = limitOf(world.isSet);
            const around = limit ?? limitOf(true);
            const attempt = await row.make(world, name);
            for (const size of [around - 1, around, around + 1]) {
                const expected = limit === null || size <= limit ? 0 : row.code;
                assert.equal(await attempt(size), expected, `${size - around} bytes from the limit`);
            }
            if (!row.keeps) {
                await world.db.collection(name).drop();
                await world.db.collection(`${name}.to`).drop();
            }
        });
    }
}

/* ---- replies ---- */

function replyTests(world) {
    test('CMD-1: every error of the largest batch is told, the first ones with their texts', async () => {
        const coll = world.db.collection('duplicates');
        const _id = x(60);
        await coll.insertOne({ _id });
        const documents = Array.from({ length: 100_000 }, () => ({ _id }));
        const reply = await world.db.command({
            insert: coll.collectionName,
            documents,
            ordered: false,
        });
        assert.equal(reply.n, 0);
        assert.equal(reply.writeErrors.length, 100_000);
        for (const [i, error] of reply.writeErrors.entries()) {
            assert.equal(error.index, i);
            assert.equal(error.code, 11000);
        }
        const [first] = reply.writeErrors;
        assert.match(first.errmsg, /^E11000 duplicate key error/);
        assert.deepEqual(first.keyValue, { _id });
        assert.equal(reply.writeErrors.at(-1).errmsg, '');
        await coll.drop();
    });

    test('CMD-1: an upsert whose _id the reply could not tell is not done', async () => {
        const coll = world.db.collection('upserts');
        const count = 300;
        const long = x(60_000);
        const reply = await world.db.command({
            update: coll.collectionName,
            ordered: false,
            /* The _id comes from one place, so that the command is smaller than its reply. */
            let: { long },
            updates: Array.from({ length: count }, (_, i) => ({
                q: { n: i },
                u: [{ $set: { _id: { $concat: [`${i}`, '$$long'] } } }],
                upsert: true,
            })),
        });
        assert.equal(reply.n, reply.upserted.length);
        assert.equal(reply.upserted.length + reply.writeErrors.length, count);
        assert.ok(reply.writeErrors.length > 0);
        for (const error of reply.writeErrors) assert.equal(error.code, TOO_LARGE);
        assert.equal(await coll.countDocuments(), reply.n);
        await coll.drop();
    });

    test('CMD-1: details of errors are told as long as they fit, errors always', async () => {
        /* Each error quotes the condition that was not met. */
        const validator = { a: { $lt: x(500_000) } };
        const coll = await world.db.createCollection('invalid', { validator });
        const documents = Array.from({ length: 60 }, (_, _id) => ({ _id, a: 'y' }));
        const command = { insert: 'invalid', documents, ordered: false };
        const { n, writeErrors } = await world.db.command(command);
        assert.equal(n, 0);
        assert.deepEqual(
            writeErrors.map(({ index }) => index),
            [...documents.keys()],
        );
        for (const { code } of writeErrors) assert.equal(code, 121);
        assert.deepEqual(writeErrors[0].errInfo.details.specifiedAs, validator);
        assert.equal(writeErrors.at(-1).errInfo, undefined);
        await coll.drop();
    });

    test('CMD-1: an error that quotes a long key is answered', async () => {
        const coll = world.db.collection('keys');
        await coll.createIndex({ a: 1, 'a.b': 1 }, { unique: true });
        const a = { b: x(5 * MB) };
        assert.equal(await insert(world, 'keys', [{ _id: 1, a }]), 0);
        const reply = await replyOf(world.db, { insert: 'keys', documents: [{ _id: 2, a }] });
        assert.equal(reply.writeErrors[0].code, 11000);
        const wide = { b: x(9 * MB) };
        assert.equal(await insert(world, 'keys', [{ _id: 3, a: wide }]), 0);
        const found = await replyOf(world.db, { insert: 'keys', documents: [{ _id: 4, a: wide }] });
        assert.equal(found.writeErrors[0].code, 11000);
        const changed = await replyOf(world.db, {
            findAndModify: 'keys',
            query: { _id: 1 },
            update: { a: wide },
        });
        assert.equal(changed.code, 11000);
        await coll.drop();
    });

    test('CUR-1: batches have at most 16 MB, and all documents come', async () => {
        const coll = world.db.collection('batches');
        const documents = Array.from({ length: 10 }, (_, _id) => sized(4 * MB, { _id }));
        for (let i = 0; i < 10; i += 3) await coll.insertMany(documents.slice(i, i + 3));
        for (const command of [
            { find: 'batches', sort: { _id: 1 } },
            { aggregate: 'batches', pipeline: [{ $sort: { _id: 1 } }], cursor: {} },
        ]) {
            let { cursor } = await world.db.command(command);
            const seen = [];
            for (;;) {
                const batch = cursor.firstBatch ?? cursor.nextBatch;
                assert.ok(sizeOf(batch) <= DOCUMENT_MAX);
                seen.push(...batch.map(({ _id }) => _id));
                if (cursor.id.toString() === '0') break;
                ({ cursor } = await world.db.command({ getMore: cursor.id, collection: 'batches' }));
            }
            assert.deepEqual(seen, [...documents.keys()]);
        }
        await coll.drop();
    });

    test('AGG-1: what is large in the middle of a pipeline may be small at its end', async () => {
        const coll = world.db.collection('middle');
        await coll.insertOne({ _id: 1, h: x(10 * MB) });
        const pipeline = [
            { $set: { big: { $concat: ['$h', '$h', '$h'] } } },
            { $project: { size: { $bsonSize: '$$ROOT' } } },
        ];
        const [row] = await coll.aggregate(pipeline).toArray();
        assert.ok(row.size > 40 * MB);
        for (const end of [{ $out: 'middle.out' }, { $merge: 'middle.out' }])
            assert.equal(await aggregate(world, 'middle', [pipeline[0], end]), TOO_LARGE);
        assert.equal(await aggregate(world, 'middle', [pipeline[0]]), TOO_LARGE);
        await coll.drop();
        await world.db.collection('middle.out').drop();
    });

    test('CMD-1: distinct has the limit of a document', async () => {
        const coll = world.db.collection('distinct');
        for (let i = 0; i < 3; i++) await coll.insertOne({ _id: i, v: `${i}${x(5 * MB)}` });
        assert.equal((await coll.distinct('v')).length, 3);
        await coll.insertOne({ _id: 3, v: x(2 * MB) });
        const reply = await replyOf(world.db, { distinct: 'distinct', key: 'v' });
        assert.equal(reply.code, 17217);
        await coll.drop();
    });

    test('CAT-2: lists of long definitions come in several batches', async () => {
        const names = ['long1', 'long2', 'long3', 'long4'];
        for (const name of names)
            await world.db.createCollection(name, { validator: { a: { $ne: x(6 * MB) } } });
        const listed = await world.db.listCollections({ name: /^long/ }).toArray();
        assert.deepEqual(listed.map(({ name }) => name).sort(), names);
        for (const { options } of listed) assert.equal(options.validator.a.$ne.length, 6 * MB);
        const reply = await replyOf(world.db, {
            create: 'long5',
            validator: { a: { $ne: x(DOCUMENT_MAX - 100) } },
        });
        assert.equal(reply.code, TOO_LARGE);
        /* Specifications share the entry of their collection. */
        const createIndex = (key) =>
            codeOf(world, {
                createIndexes: 'long1',
                indexes: [
                    { key: { [key]: 1 }, name: key, partialFilterExpression: { a: { $gt: x(6 * MB) } } },
                ],
            });
        assert.equal(await createIndex('b'), 0);
        assert.equal(await createIndex('c'), TOO_LARGE);
        assert.deepEqual(
            (await world.db.collection('long1').indexes()).map(({ name }) => name),
            ['_id_', 'b'],
        );
        await world.db.collection('long1').insertOne({ b: 1 });
    });

    test('VIE-1: views on each other have the limit of one', async () => {
        const stage = [{ $match: { a: { $ne: x(9 * MB) } } }];
        await world.db.collection('viewed').insertOne({ _id: 1 });
        await world.db.createCollection('view1', { viewOn: 'viewed', pipeline: stage });
        assert.equal(await world.db.collection('view1').countDocuments(), 1);
        const over = await replyOf(world.db, { create: 'view2', viewOn: 'view1', pipeline: stage });
        if (over.ok === 1) {
            const reply = await replyOf(world.db, { find: 'view2' });
            assert.equal(reply.code, TOO_LARGE);
            await world.db.collection('view2').drop();
        } else assert.equal(over.code, TOO_LARGE);
    });

    test('CMD-1: explain of a long filter is answered', async () => {
        const filter = { a: { $ne: x(7 * MB) } };
        const reply = await replyOf(world.db, { explain: { find: 'viewed', filter } });
        assert.ok(reply.ok === 1 || reply.code === TOO_LARGE);
        assert.equal((await world.db.command({ ping: 1 })).ok, 1);
    });
}

/* Side by side: most of the time goes by with bytes on their way. */
describe('sizes', { concurrency: 2 }, () => {
    describe('a node alone', { concurrency: 1 }, () => {
        const world = { isSet: false };
        let server;
        before(async () => {
            server = await startServer();
            world.client = await server.client();
            world.db = world.client.db('sizes');
        });
        after(() => server.remove());
        rowTests(world);
        replyTests(world);
    });

    describe('a set of three', { concurrency: 1 }, () => {
        const world = { isSet: true };
        let set;
        before(async () => {
            set = await startReplicaSet({
                args: ['--setParameter', 'enableTestCommands=1'],
            });
            const primary = await set.waitForPrimary();
            world.client = await set.direct(primary);
            world.db = world.client.db('sizes');
        });
        after(() => set.remove());
        rowTests(world);
        replyTests(world);

        test('RTW-1: the image of the longest document is kept for a retry', async () => {
            const client = await set.client();
            const coll = client.db('sizes').collection('images');
            await insert(world, 'images', [sized(DOCUMENT_MAX, { _id: 1, n: 1 })]);
            const image = await coll.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } });
            assert.equal(sizeOf(image), DOCUMENT_MAX);
        });

        test('REP-2: all members have the same, and so has one that joins', async () => {
            await set.waitForReplication();
            const [port] = await freePorts(1);
            const joining = new Server({ port, args: ['--replSet', set.name] });
            set.members.push(joining);
            await joining.start();
            const primary = await set.waitForPrimary();
            const { config } = await set.command(primary, { replSetGetConfig: 1 });
            config.members.push({ _id: 3, host: `${joining.host}:${port}` });
            config.version++;
            await set.command(primary, { replSetReconfig: config });
            await waitFor(async () => (await set.hello(joining))?.secondary, {
                timeoutMs: 60_000,
                what: 'the end of the initial sync',
            });
            await set.waitForReplication();
            const hashes = await Promise.all(
                set.members.map((member) => set.command(member, { dbHash: 1 }, 'sizes')),
            );
            for (const { collections } of hashes)
                assert.deepEqual(collections, hashes[0].collections);
            assert.ok(Object.keys(hashes[0].collections).length >= 5);
            const reply = await world.db.command({
                insert: 'alive',
                documents: [{ _id: 1 }],
                writeConcern: { w: 'majority', wtimeout: 20_000 },
            });
            assert.equal(reply.n, 1);
            assert.equal(reply.writeConcernError, undefined);
            for (const member of set.members)
                assert.equal(
                    member.log.filter(({ msg }) => /^Replication stands still/.test(msg)).length,
                    0,
                );
        });

        test('REP-1: a member that cannot take an entry tells why, and asks less and less often', async () => {
            const primary = await set.waitForPrimary();
            const members = set.members.filter((member) => member !== primary);
            const stuck = ({ msg }) => /^Replication stands still/.test(msg);
            /* All sources refuse, as the wire would an entry that is too large. */
            const refuse = (mode) =>
                Promise.all(
                    set.members.slice(0, 3).map((member) =>
                        set.command(member, {
                            configureFailPoint: 'failCommand',
                            mode,
                            ...(mode !== 'off' && {
                                data: { failCommands: ['getMore'], errorCode: TOO_LARGE, failInternalCommands: true },
                            }),
                        }),
                    ),
                );
            await refuse('alwaysOn');
            try {
                /* Two that do not fit into one batch: the second one needs a getMore. */
                for (const _id of [2, 3])
                    await insert(world, 'alive', [sized(10 * MB, { _id })], { writeConcern: { w: 1 } });
                const [member] = members;
                const isFourth = (line) => stuck(line) && line.attr.attempts === 4;
                await waitFor(() => member.log.some(isFourth), {
                    timeoutMs: 20_000,
                    what: 'four attempts in a row',
                });
                const lines = member.log.filter(stuck);
                const at = lines.findIndex(isFourth);
                const told = lines.slice(at - 3, at + 1);
                assert.deepEqual(
                    told.map(({ attr }) => attr.nextInMillis),
                    [100, 200, 400, 800],
                );
                for (const { s, attr } of told) {
                    assert.equal(s, 'E');
                    assert.equal(attr.codeName, 'BSONObjectTooLarge');
                    assert.ok(attr.error.length > 0);
                }
            } finally {
                await refuse('off');
            }
            const reply = await world.db.command({
                insert: 'alive',
                documents: [{ _id: 4 }],
                writeConcern: { w: set.members.length, wtimeout: 20_000 },
            });
            assert.equal(reply.writeConcernError, undefined);
        });
    });
});
