/*
 * Goal: writes through routers reach the shards that own the documents, each once; replies tell of
 * every statement by its place in the client's batch; transactions that stay on one shard work, and
 * others leave nothing behind.
 * Method: two shards, two routers, collections sharded by hand; what is on each shard is read there.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Long, MongoClient, ObjectId, UUID } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { waitFor } from '../lib/server.mjs';
import { shardByHand } from '../lib/shard_by_hand.mjs';
import { RawConnection, bodySection, msg, sequenceSection } from '../lib/wire.mjs';

const failsWith = (promise, code, check = () => {}) =>
    assert.rejects(promise, (error) => {
        assert.equal(error.code, code, `${error.code}: ${error.message}`);
        check(error);
        return true;
    });

describe('writes through routers over two shards', () => {
    let cluster;
    let client;
    let db;
    const direct = [];
    const wires = []; // to the routers: for what a driver would number itself
    let made = 0;

    before(async () => {
        cluster = await startCluster({ routers: 2 });
        await cluster.admin({ enableSharding: 'test', primaryShard: 'shard0' });
        client = await cluster.client({ retryWrites: false });
        db = client.db('test');
        for (const shard of cluster.shards) direct.push(await shard.direct(shard.members[0]));
        for (const { port } of cluster.routers) wires.push(await RawConnection.open({ host: '127.0.0.1', port }));
    });
    after(async () => {
        for (const wire of wires) wire.close();
        await cluster?.remove();
    });

    /* The reply of a router to a command that is sent as it is. */
    const raw = async (router, command) => wires[router].command({ ...command, $db: command.$db ?? 'test' });
    const works = async (router, command) => {
        const reply = await raw(router, command);
        assert.equal(reply.ok, 1, reply.errmsg);
        return reply;
    };
    const refuses = async (router, command, code) => {
        const reply = await raw(router, command);
        assert.equal(reply.code, code, `${reply.code}: ${reply.errmsg}`);
        return reply;
    };

    /* k below 0 on shard0, from there on shard1. */
    const sharded = async (options = {}) => {
        const name = `c${made++}`;
        await shardByHand(cluster, `test.${name}`, {
            key: { k: 1 },
            points: [{ k: 0 }],
            owners: ['shard0', 'shard1'],
            ...options,
        });
        return db.collection(name);
    };
    const on = (shard, c, filter = {}) =>
        direct[shard].db('test').collection(c.collectionName).find(filter).sort({ _id: 1 }).toArray();
    const ids = async (c) =>
        Promise.all([0, 1].map(async (shard) => (await on(shard, c)).map(({ _id }) => _id)));
    const retryable = (command, lsid, txnNumber) => ({
        ...command,
        lsid: { id: lsid },
        txnNumber: Long.fromNumber(txnNumber),
    });
    const failing = async (shard, data, mode = { times: 1 }) => {
        const { members } = cluster.shards[shard];
        const both = { ...data, failInternalCommands: true };
        await cluster.shards[shard].command(members[0], { configureFailPoint: 'failCommand', mode, data: both });
        return () =>
            cluster.shards[shard].command(members[0], { configureFailPoint: 'failCommand', mode: 'off' });
    };

    for (const ordered of [true, false])
        test(`RTE-6: 10,000 documents go where they belong, ordered: ${ordered}`, async () => {
            const c = await sharded();
            const docs = Array.from({ length: 10_000 }, (_, i) => ({ _id: i, k: (Math.floor(i / 100) % 2 ? 1 : -1) * (i + 1) }));
            const result = await c.insertMany(docs, { ordered });
            assert.equal(result.insertedCount, 10_000);
            const [first, second] = await Promise.all([on(0, c), on(1, c)]);
            assert.deepEqual(first, docs.filter(({ k }) => k < 0));
            assert.deepEqual(second, docs.filter(({ k }) => k >= 0));
        });

    test('RTE-6: documents in the body and in a sequence, missing keys, arrays in keys', async () => {
        const c = await sharded();
        const insert = c.collectionName;
        const reply = await db.command({ insert, documents: [{ _id: 1, k: -5 }, { _id: 2, k: 5 }, { _id: 3 }] });
        assert.equal(reply.n, 3);
        assert.deepEqual(await ids(c), [[1, 3], [2]]);
        for (const [i, update] of [insert, 'sequences'].entries()) {
            const send = async (name, list, rows) =>
                (await wires[0].roundTrip(msg([bodySection({ [name]: update, $db: 'test' }), sequenceSection(list, rows)]))).document;
            const docs = [{ _id: 10, k: 10 }, { _id: 11, k: -11 }];
            assert.equal((await send('insert', 'documents', docs)).n, 2);
            assert.equal((await send('update', 'updates', [{ q: { k: 10 }, u: { $set: { a: 1 } } }])).n, 1);
            assert.equal((await send('delete', 'deletes', [{ q: { k: 10 }, limit: 1 }, { q: { k: -11 }, limit: 1 }])).n, 2);
            assert.deepEqual(await ids(c), [[1, 3], [2]], `round ${i}`);
        }
        const failed = await db.command({ insert, documents: [{ _id: 4, k: 1 }, { _id: 5, k: [1] }, { _id: 6, k: 1 }] });
        assert.deepEqual([failed.n, failed.writeErrors.map(({ index, code }) => [index, code])], [1, [[1, 61]]]);
        await failsWith(c.insertOne({ k: [2] }), 61);
        assert.deepEqual(await ids(c), [[1, 3], [2, 4]]);
        await failsWith(db.command({ insert, documents: [] }), 16);
        await failsWith(db.command({ insert, documents: [{ k: 1 }], noSuchField: 1 }), 40415);
    });

    test('RTE-6: a document without _id gets one where _id is the shard key', async () => {
        const c = await sharded({ key: { _id: 1 }, points: [{ _id: 0 }] });
        const plain = new MongoClient(cluster.routers[0].uri, { forceServerObjectId: true });
        await plain.connect();
        try {
            await plain.db('test').collection(c.collectionName).insertMany([{ a: 1 }, { _id: -1 }, { a: 2 }]);
        } finally {
            await plain.close();
        }
        // Also when it has to be sent again: to the shard of that _id.
        await failing(1, { failCommands: ['insert'], errorCode: 13388 });
        await works(0, { insert: c.collectionName, documents: [{ a: 3 }] });
        const found = await on(1, c);
        assert.deepEqual(found.map(({ a }) => a).sort(), [1, 2, 3]);
        assert.ok(found.every(({ _id }) => _id instanceof ObjectId));
        assert.deepEqual(await on(0, c), [{ _id: -1 }]);
    });

    test('RTE-6: errors are told by their place in the batch', async () => {
        const c = await sharded();
        await c.insertMany([{ _id: 'a', k: -1 }, { _id: 'b', k: 1 }]);
        const documents = [
            { _id: 1, k: -1 },
            { _id: 'b', k: 1 }, // there already
            { _id: 2, k: 2 },
            { _id: 'a', k: -2 }, // there already
            { _id: 3, k: [1] }, // no key
            { _id: 4, k: -4 },
        ];
        const insert = c.collectionName;
        const unordered = await db.command({ insert, documents, ordered: false });
        assert.equal(unordered.n, 3);
        assert.deepEqual(unordered.writeErrors.map(({ index, code }) => [index, code]), [[1, 11000], [3, 11000], [4, 61]]);
        assert.deepEqual(unordered.writeErrors[0].keyValue, { _id: 'b' });
        await c.deleteMany({ _id: { $in: [1, 2, 4] } });
        const ordered = await db.command({ insert, documents });
        assert.equal(ordered.n, 1);
        assert.deepEqual(ordered.writeErrors.map(({ index, code }) => [index, code]), [[1, 11000]]);
        assert.deepEqual(await ids(c), [[1, 'a'], ['b']]);
    });

    test('CAT-7: a write with the UUID of another collection is told its name, also by a shard that has no part of it', async () => {
        const c = await sharded();
        const other = `${c.collectionName}other`;
        await db.collection(other).insertOne({ _id: 1 });
        const [{ info }] = await db.listCollections({ name: other }).toArray();
        const ask = async (command) => (await raw(0, { ...command, collectionUUID: info.uuid })).writeErrors;
        const rows = [
            ...(await ask({ insert: c.collectionName, documents: [{ k: 1 }] })),
            ...(await ask({ insert: c.collectionName, documents: [{ k: 1 }, { k: -1 }], ordered: false })),
            ...(await ask({ update: c.collectionName, updates: [{ q: { k: 1 }, u: { $set: { a: 1 } } }] })),
            ...(await ask({ delete: c.collectionName, deletes: [{ q: { k: 1 }, limit: 1 }] })),
        ];
        assert.deepEqual(rows.map(({ code, actualCollection }) => [code, actualCollection]), Array(5).fill([361, other]));
        const found = await refuses(0, { find: c.collectionName, filter: { k: 1 }, collectionUUID: info.uuid }, 361);
        assert.equal(found.actualCollection, other);
        const nobody = await refuses(0, { find: c.collectionName, filter: { k: 1 }, collectionUUID: new UUID() }, 361);
        assert.equal(nobody.actualCollection, null);
    });

    test('failCommand spares what routers send, unless it is told not to', async () => {
        const c = await sharded();
        const member = cluster.shards[1].members[0];
        const data = { failCommands: ['insert'], errorCode: 8 };
        await cluster.shards[1].command(member, { configureFailPoint: 'failCommand', mode: 'alwaysOn', data });
        await c.insertOne({ k: 1 });
        await failsWith(direct[1].db('test').collection('own').insertOne({}), 8);
        await cluster.shards[1].command(member, { configureFailPoint: 'failCommand', mode: 'off' });
    });

    test('RTE-6: updates and deletes go by the shard key, by _id, or everywhere', async () => {
        const c = await sharded();
        await c.insertMany([-2, -1, 1, 2].map((k) => ({ _id: k, k, n: 0 })));
        assert.equal((await c.updateOne({ k: 1 }, { $inc: { n: 1 } })).modifiedCount, 1);
        assert.equal((await c.updateOne({ _id: -1 }, { $inc: { n: 1 } })).modifiedCount, 1);
        assert.equal((await c.updateOne({ k: { $gt: 1 } }, { $inc: { n: 1 } })).modifiedCount, 1, 'one shard');
        assert.equal((await c.updateOne({ _id: 9 }, { $inc: { n: 1 } })).matchedCount, 0);
        assert.equal((await c.updateMany({}, { $inc: { n: 1 } })).modifiedCount, 4);
        assert.equal((await c.updateMany({ k: { $lt: -1 } }, [{ $set: { n: { $add: ['$n', 10] } } }])).modifiedCount, 1);
        assert.deepEqual((await on(0, c)).map(({ n }) => n), [11, 2]);
        assert.deepEqual((await on(1, c)).map(({ n }) => n), [2, 2]);
        await failsWith(c.updateOne({ n: 2 }, { $set: { n: 3 } }), 72);
        await failsWith(c.updateOne({ $expr: { $eq: ['$n', 2] } }, { $set: { n: 3 } }), 72);
        await failsWith(c.deleteOne({ n: 2 }), 61);
        // A replacement says where it goes if the filter does not.
        assert.equal((await c.replaceOne({ n: 11 }, { k: -2, n: 5 })).modifiedCount, 1);
        assert.equal((await c.replaceOne({ _id: 2 }, { k: 2, n: 6 })).modifiedCount, 1);
        assert.equal((await c.deleteOne({ _id: 2 })).deletedCount, 1);
        assert.equal((await c.deleteOne({ k: -2 })).deletedCount, 1);
        assert.deepEqual(await ids(c), [[-1], [1]]);
        assert.equal((await c.deleteMany({ n: 2 })).deletedCount, 2);
        assert.deepEqual(await ids(c), [[], []]);
    });

    test('RTE-6: hashed and compound keys', async () => {
        const c = await sharded({
            key: { 'a.h': 'hashed', b: 1 },
            points: [{ 'a.h': Long.fromNumber(0), b: 'm' }],
        });
        const docs = Array.from({ length: 200 }, (_, i) => ({ _id: i, a: { h: i }, b: 'x' }));
        assert.equal((await c.insertMany(docs, { ordered: false })).insertedCount, 200);
        const [first, second] = await ids(c);
        assert.ok(first.length > 50 && second.length > 50, `${first.length}, ${second.length}`);
        const operations = docs.map(({ _id }) => ({ updateOne: { filter: { 'a.h': _id, b: 'x' }, update: { $set: { c: 1 } } } }));
        for (const ordered of [true, false])
            assert.equal((await c.bulkWrite(operations, { ordered })).matchedCount, 200);
        await failsWith(c.findOneAndDelete({ 'a.h': { $in: [0, 1, 2, 3, 4, 5, 6, 7, 8] } }), 61);
        assert.equal((await c.findOneAndDelete({ 'a.h': 1, b: 'x' }))._id, 1);
        assert.equal((await c.deleteMany({ 'a.h': { $in: [2, 3, 4] } })).deletedCount, 3);
        assert.equal((await c.deleteMany({ c: 1 })).deletedCount, 196);
    });

    test('RTE-6: upserts need the shard key', async () => {
        const c = await sharded();
        const made_ = await c.updateOne({ k: 7, _id: 'x' }, { $set: { a: 1 } }, { upsert: true });
        assert.equal(made_.upsertedId, 'x');
        assert.equal((await c.replaceOne({ k: -7 }, { _id: 'y', k: -7 }, { upsert: true })).upsertedId, 'y');
        assert.equal((await c.updateOne({ k: null, _id: 'z' }, { $set: { a: 1 } }, { upsert: true })).upsertedId, 'z');
        assert.deepEqual(await ids(c), [['y', 'z'], ['x']]);
        await failsWith(c.updateOne({ _id: 'w' }, { $set: { a: 1 } }, { upsert: true }), 61);
        await failsWith(c.updateOne({ k: { $gt: 5 } }, { $set: { a: 1 } }, { upsert: true }), 61);
        const reply = await db.command({
            update: c.collectionName,
            updates: [
                { q: { k: 1 }, u: { $set: { a: 1 } }, upsert: true },
                { q: { a: 1 }, u: { $set: { b: 1 } }, multi: true },
                { q: { k: -1 }, u: { $set: { a: 1 } }, upsert: true },
                { q: { a: 1 }, u: { $set: { b: 2 } } },
                { q: { k: -3 }, u: { $set: { a: 1 } }, upsert: true },
            ],
            ordered: false,
        });
        assert.equal(reply.n, 3 + 5);
        assert.deepEqual(reply.upserted.map(({ index }) => index), [0, 2, 4]);
        assert.deepEqual(reply.writeErrors.map(({ index, code }) => [index, code]), [[3, 72]]);
    });

    test('RTE-6: text under a collation says nothing about the shard', async () => {
        const collation = { locale: 'en', strength: 2 };
        const c = await sharded({ points: [{ k: 'm' }], collation });
        await c.insertMany([{ _id: 'A', k: 'a' }, { _id: 'Z', k: 'z' }]);
        assert.deepEqual(await ids(c), [['A'], ['Z']]);
        assert.equal((await c.updateMany({ k: 'Z' }, { $set: { n: 1 } })).modifiedCount, 1);
        await failsWith(c.updateOne({ k: 'z' }, { $set: { n: 2 } }), 72);
        assert.equal((await c.updateOne({ k: 'z' }, { $set: { n: 2 } }, { collation: { locale: 'simple' } })).modifiedCount, 1);
        assert.equal((await c.updateOne({ _id: 'z' }, { $set: { n: 3 } })).modifiedCount, 1);
        await failsWith(c.updateOne({ _id: 'Z' }, { $set: { n: 4 } }, { collation: { locale: 'simple' } }), 72);
    });

    test('RTE-6: bulkWrite, ordered and unordered, with options', async () => {
        const c = await sharded();
        for (const ordered of [true, false]) {
            const result = await c.bulkWrite(
                [
                    { insertOne: { document: { _id: 1, k: -1, tags: [1, 2] } } },
                    { insertOne: { document: { _id: 2, k: 1, tags: [1, 2] } } },
                    { updateOne: { filter: { k: -1 }, update: { $set: { 'tags.$[t]': 9 } }, arrayFilters: [{ t: 1 }], hint: { k: 1 } } },
                    { updateMany: { filter: {}, update: { $set: { a: 1 } } } },
                    { replaceOne: { filter: { k: 1 }, replacement: { k: 1 }, upsert: true } },
                    { deleteOne: { filter: { _id: 2 } } },
                    { deleteMany: { filter: {} } },
                ].slice(0, ordered ? 7 : 2),
                { ordered, comment: 'bulk', let: { x: 1 }, bypassDocumentValidation: true, maxTimeMS: 10_000 },
            );
            assert.equal(result.insertedCount, 2);
            if (ordered) assert.deepEqual([result.modifiedCount, result.deletedCount], [1 + 2 + 1, 2]);
        }
        assert.deepEqual(await ids(c), [[1], [2]]);
    });

    test('RTE-6: findAndModify goes by the shard key', async () => {
        const c = await sharded();
        await c.insertMany([{ _id: 1, k: -1 }, { _id: 2, k: 1 }]);
        assert.equal((await c.findOneAndUpdate({ k: 1 }, { $set: { a: 1 } }, { returnDocument: 'after' })).a, 1);
        assert.equal((await c.findOneAndUpdate({ k: -3 }, { $set: { a: 1 } }, { upsert: true, returnDocument: 'after' })).k, -3);
        assert.deepEqual(await c.findOneAndDelete({ k: -1 }), { _id: 1, k: -1 });
        await failsWith(c.findOneAndUpdate({ _id: 2 }, { $set: { a: 2 } }), 61);
        await failsWith(c.findOneAndUpdate({ k: { $gt: -3 } }, { $set: { a: 2 } }), 61);
        await failsWith(c.findOneAndUpdate({ k: { $gt: 0 } }, { $set: { a: 2 } }, { upsert: true }), 61);
        /* One shard has all that it may concern. */
        assert.equal((await c.findOneAndUpdate({ k: { $gt: 0 } }, { $inc: { a: 1 } }, { returnDocument: 'after' })).a, 2);
        assert.equal((await c.findOneAndUpdate({ k: { $gt: 0 } }, { $inc: { a: -1 } }, { returnDocument: 'after' })).a, 1);
        assert.equal(await c.findOneAndDelete({ k: { $in: [] } }), null);
        await failsWith(c.findOneAndUpdate({ _id: 3 }, { $set: { a: 2 } }, { upsert: true }), 61);
        assert.deepEqual((await on(1, c)), [{ _id: 2, k: 1, a: 1 }]);
    });

    test('SES-3: a batch that is sent again, also through another router, is executed once', async () => {
        const c = await sharded();
        const lsid = new UUID();
        await c.insertOne({ _id: 'there', k: 3 });
        const insert = { insert: c.collectionName, documents: [-2, 2, -1, 1].map((k) => ({ _id: k, k, n: 0 })) };
        const update = {
            update: c.collectionName,
            updates: [-2, 2, -1, 1].map((k) => ({ q: { k }, u: { $inc: { n: 1 } } })),
        };
        const byId = { update: c.collectionName, updates: [{ q: { _id: 1 }, u: { $inc: { n: 1 } } }] };
        for (const ordered of [true, false]) {
            const number = ordered ? 1 : 10;
            for (const [i, command] of [insert, update, byId].entries()) {
                const sent = retryable({ ...command, ordered }, lsid, number + i);
                const once = await works(0, sent);
                const twice = await works(1, sent);
                assert.equal(once.n, (command.documents ?? command.updates).length);
                assert.equal(twice.n, once.n);
                assert.deepEqual([...twice.retriedStmtIds].sort(), Array.from({ length: once.n }, (_, k) => k));
            }
            const found = [...(await on(0, c)), ...(await on(1, c, { _id: { $ne: 'there' } }))];
            assert.deepEqual(found.map(({ n }) => n), [1, 1, 2, 1]);
            const remove = { delete: c.collectionName, deletes: [-2, 2, -1, 1].map((k) => ({ q: { k }, limit: 1 })), ordered };
            for (const router of [0, 1])
                assert.equal((await works(router, retryable(remove, lsid, number + 5))).n, 4);
        }
        const modify = { findAndModify: c.collectionName, query: { k: 3 }, update: { $inc: { n: 1 } }, new: true };
        for (const router of [0, 1])
            assert.equal((await works(router, retryable(modify, lsid, 50))).value.n, 1);
        const multi = { update: c.collectionName, updates: [{ q: {}, u: { $inc: { n: 1 } }, multi: true }] };
        const refused = await works(0, retryable(multi, lsid, 51));
        assert.deepEqual(refused.writeErrors.map(({ index, code }) => [index, code]), [[0, 72]]);
        // Ids that the client chose stay with their statements.
        const some = { insert: c.collectionName, documents: [{ _id: 'p', k: -9 }, { _id: 'q', k: 9 }], stmtIds: [7, 3] };
        await works(0, retryable(some, lsid, 52));
        const again = await works(1, retryable(some, lsid, 52));
        assert.deepEqual([...again.retriedStmtIds].sort(), [3, 7]);
    });

    test('SES-3: retryable writes survive a connection that breaks, others fail', async () => {
        const c = await sharded();
        const retrying = (await cluster.client({ retryWrites: true })).db('test').collection(c.collectionName);
        const data = { failCommands: ['insert', 'update'], closeConnection: true };
        await failing(1, data);
        assert.equal((await retrying.insertMany([{ _id: 1, k: 1 }, { _id: 2, k: -1 }])).insertedCount, 2);
        await failing(1, data);
        await assert.rejects(c.insertOne({ _id: 3, k: 3 }));
        await failing(1, data);
        const reply = await db.command({
            insert: c.collectionName,
            documents: [{ _id: 4, k: 4 }, { _id: 5, k: -5 }, { _id: 6, k: 6 }],
            ordered: false,
        });
        assert.equal(reply.n, 1);
        assert.deepEqual(reply.writeErrors.map(({ index }) => index), [0, 2]);
        assert.deepEqual(await ids(c), [[2, 5], [1]]);
    });

    test('RTE-3: what a shard refuses because of old metadata is sent again', async () => {
        const c = await sharded();
        for (const errorCode of [13388, 249]) {
            await failing(1, { failCommands: ['insert'], errorCode });
            await c.insertOne({ _id: errorCode, k: 1 });
            await failing(1, { failCommands: ['insert'], errorCode }, { times: 2 });
            const docs = [1, -1, 2].map((k) => ({ _id: errorCode + k, k }));
            assert.equal((await c.insertMany(docs, { ordered: errorCode === 249 })).insertedCount, 3);
            await failing(1, { failCommands: ['findAndModify'], errorCode });
            assert.equal((await c.findOneAndUpdate({ k: 2 }, { $set: { a: 1 } }))?.k, 2);
        }
        const off = await failing(1, { failCommands: ['insert'], errorCode: 13388 }, 'alwaysOn');
        try {
            const documents = [{ _id: 'x', k: -9 }, { _id: 'y', k: 9 }, { _id: 'z', k: -9 }];
            const insert = c.collectionName;
            const ordered = await db.command({ insert, documents });
            assert.deepEqual([ordered.n, ordered.writeErrors.map(({ index, code }) => [index, code])], [1, [[1, 82]]]);
            const unordered = await db.command({ insert, documents, ordered: false });
            assert.deepEqual(unordered.writeErrors.map(({ index, code }) => [index, code]), [[0, 11000], [1, 82]]);
            assert.equal(unordered.n, 1);
        } finally {
            await off();
        }
        // Several shards: none executes it twice.
        await c.deleteMany({});
        await c.insertMany([{ _id: 1, k: 1, n: 0 }, { _id: 2, k: -1, n: 0 }]);
        await failing(1, { failCommands: ['update'], errorCode: 13388 });
        assert.equal((await c.updateMany({}, { $inc: { n: 1 } })).modifiedCount, 2);
        assert.deepEqual([(await on(0, c))[0].n, (await on(1, c))[0].n], [1, 1]);
        // A collection that is not sharded.
        await failing(0, { failCommands: ['insert'], errorCode: 249 });
        await db.collection('whole').insertMany([{ _id: 1 }, { _id: 2 }]);
        assert.equal((await on(0, { collectionName: 'whole' })).length, 2);
    });

    test('RTE-6: a write concern that fails is told, of several shards in one', async () => {
        const c = await sharded();
        const documents = [{ _id: 1, k: 1 }, { _id: 2, k: -1 }];
        const writeConcernError = { code: 64, errmsg: 'too late', errInfo: { x: 1 } };
        await failing(1, { failCommands: ['insert'], writeConcernError });
        const one = await works(0, { insert: c.collectionName, documents });
        assert.deepEqual([one.n, one.writeConcernError.code, one.writeConcernError.errmsg], [2, 64, 'too late']);
        await failing(0, { failCommands: ['delete'], writeConcernError });
        await failing(1, { failCommands: ['delete'], writeConcernError });
        const both = await works(0, { delete: c.collectionName, deletes: [{ q: {}, limit: 0 }] });
        assert.deepEqual([both.n, both.writeConcernError.code], [2, 64]);
        assert.match(both.writeConcernError.errmsg, /shard0: too late.*shard1: too late/);
        await db.command({ insert: c.collectionName, documents, writeConcern: { w: 'majority', wtimeout: 5000 } });
    });

    test('RTE-6: the largest message that a client may send goes through', async () => {
        // What the router adds to it does not fit into one message any more.
        const c = await sharded();
        const MESSAGE_SIZE_MAX = 48_000_000;
        for (const [name, count] of [['whole', [3, 0]], [c.collectionName, [2, 1]]]) {
            const parts = (padding) => [
                bodySection({ insert: name, $db: 'test' }),
                sequenceSection('documents', [-1, 1, -2].map((k) => ({ _id: `large${k}`, k, text: 'x'.repeat(padding) }))),
            ];
            const room = MESSAGE_SIZE_MAX - msg(parts(0)).length;
            const message = msg(parts(Math.floor(room / 3)));
            assert.ok(message.length > MESSAGE_SIZE_MAX - 3);
            const { document } = await wires[0].roundTrip(message, 30_000);
            assert.equal(document.n, 3, document.errmsg);
            for (const shard of [0, 1]) {
                const found = direct[shard].db('test').collection(name).countDocuments({ _id: /^large/ });
                assert.equal(await found, count[shard]);
            }
        }
    });

    test('RTE-6: unacknowledged writes are done', async () => {
        const c = await sharded();
        const quiet = db.collection(c.collectionName, { writeConcern: { w: 0 } });
        assert.equal((await quiet.insertMany([{ _id: 1, k: 1 }, { _id: 2, k: -1 }], { ordered: false })).acknowledged, false);
        await waitFor(async () => JSON.stringify(await ids(c)) === '[[2],[1]]', { what: 'both are there' });
        await quiet.updateMany({}, { $set: { a: 1 } });
        await waitFor(async () => (await on(1, c))[0].a === 1 && (await on(0, c))[0].a === 1, { what: 'both changed' });
        await db.collection('whole').insertOne({ _id: 'quiet' }, { writeConcern: { w: 0 } });
        await waitFor(async () => (await on(0, { collectionName: 'whole' }, { _id: 'quiet' })).length === 1, { what: 'it is there' });
    });

    test('RTE-6: an update that would move a document is refused by name', async () => {
        const c = await sharded();
        await c.insertOne({ _id: 1, k: 1 });
        const errorCode = 283;
        await failing(1, { failCommands: ['findAndModify'], errorCode });
        const modify = { findAndModify: c.collectionName, query: { k: 1 }, update: { $set: { k: -1 } } };
        await refuses(0, modify, 20);
        await failing(1, { failCommands: ['findAndModify'], errorCode });
        await refuses(0, retryable(modify, new UUID(), 1), 238);
    });

    describe('transactions', () => {
        let c;
        let session;
        before(async () => {
            c = await sharded();
            await db.collection('plain').insertOne({ _id: 0 });
        });

        test('SES-3: a transaction on one shard commits, and aborts', async () => {
            session = client.startSession();
            await session.withTransaction(async () => {
                await c.insertOne({ _id: 1, k: 1 }, { session });
                await c.updateOne({ k: 1 }, { $set: { a: 1 } }, { session });
                await c.insertMany([{ _id: 2, k: 2 }, { _id: 3, k: 3 }], { session });
                assert.equal(await c.findOneAndDelete({ k: 3 }, { session }).then(({ _id }) => _id), 3);
                assert.deepEqual(await on(1, c), [], 'nobody sees it yet');
            });
            assert.deepEqual(await on(1, c), [{ _id: 1, k: 1, a: 1 }, { _id: 2, k: 2 }]);
            session.startTransaction();
            await c.deleteMany({ k: { $gt: 0 } }, { session });
            await session.abortTransaction();
            assert.deepEqual(await ids(c), [[], [1, 2]]);
            await session.endSession();
        });

        test('SES-3: several statements, reads included, of an unsharded collection', async () => {
            await client.withSession((s) =>
                s.withTransaction(async () => {
                    await db.collection('plain').insertOne({ _id: 1 }, { session: s });
                    assert.equal((await db.collection('plain').find({}, { session: s }).toArray()).length, 2);
                    await c.insertOne({ _id: -1, k: -1 }, { session: s });
                }, { readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } }),
            );
            assert.deepEqual((await on(0, { collectionName: 'plain' })).map(({ _id }) => _id), [0, 1]);
            assert.deepEqual((await on(0, c)).map(({ _id }) => _id), [-1]);
        });

        test('SES-3: a transaction that touches a second shard is refused and leaves nothing', async () => {
            const s = client.startSession();
            s.startTransaction();
            await c.insertOne({ _id: 10, k: 10 }, { session: s });
            await failsWith(c.insertOne({ _id: -10, k: -10 }, { session: s }), 238);
            await failsWith(c.insertOne({ _id: 11, k: 11 }, { session: s }), 251, (error) =>
                assert.ok(error.hasErrorLabel('TransientTransactionError')),
            );
            await s.abortTransaction();
            for (const write of [
                () => c.insertMany([{ _id: 10, k: 10 }, { _id: -10, k: -10 }], { session: s }),
                () => c.updateMany({}, { $set: { b: 1 } }, { session: s }),
            ]) {
                s.startTransaction();
                await failsWith(write(), 238);
                await s.abortTransaction();
            }
            await s.endSession();
            assert.deepEqual(await ids(c), [[-1], [1, 2]]);
            // Nothing is locked any more.
            assert.equal((await c.updateMany({}, { $set: { b: 2 } }, { maxTimeMS: 5000 })).modifiedCount, 3);
        });

        test('SES-3: an error ends a transaction; a number is used once', async () => {
            const s = client.startSession();
            s.startTransaction();
            await c.insertOne({ _id: 20, k: 20 }, { session: s });
            await failsWith(c.insertOne({ _id: 1, k: 1 }, { session: s }), 11000);
            await failsWith(c.insertOne({ _id: 21, k: 21 }, { session: s }), 251);
            await failsWith(s.commitTransaction(), 251);
            await s.endSession();
            const lsid = { id: new UUID() };
            const statement = { lsid, txnNumber: Long.fromNumber(5), autocommit: false };
            const insert = { insert: c.collectionName, documents: [{ _id: 22, k: 22 }], ...statement };
            const reply = await works(0, { ...insert, startTransaction: true });
            assert.deepEqual(reply.recoveryToken, { recoveryShardId: 'shard1' });
            await refuses(0, { ...insert, startTransaction: true }, 117);
            await refuses(0, { ...insert, txnNumber: Long.fromNumber(4) }, 225);
            await refuses(0, { ...insert, txnNumber: Long.fromNumber(6) }, 251);
            const end = { ...statement, $db: 'admin' };
            await refuses(0, { abortTransaction: 1, ...end, lsid: { id: new UUID() } }, 251);
            await works(0, { abortTransaction: 1, ...end });
            await refuses(0, { abortTransaction: 1, ...end }, 251);
            const refused = await refuses(0, { commitTransaction: 1, ...end }, 251);
            assert.deepEqual(refused.errorLabels, ['TransientTransactionError']);
            await refuses(0, { commitTransaction: 1, $db: 'admin' }, 125);
            assert.deepEqual(await ids(c), [[-1], [1, 2]]);
        });

        test('SES-3: what a shard says of a conflict comes through, and withTransaction tries again', async () => {
            const [one, two] = [client.startSession(), client.startSession()];
            one.startTransaction();
            await c.updateOne({ k: 1 }, { $inc: { n: 1 } }, { session: one });
            two.startTransaction();
            await failsWith(c.updateOne({ k: 1 }, { $inc: { n: 1 } }, { session: two }), 112, (error) =>
                assert.ok(error.hasErrorLabel('TransientTransactionError')),
            );
            await two.abortTransaction();
            let attempts = 0;
            const retried = two.withTransaction(async () => {
                if (++attempts === 2) await one.commitTransaction();
                await c.updateOne({ k: 1 }, { $inc: { n: 1 } }, { session: two });
            });
            await retried;
            assert.ok(attempts >= 2);
            assert.equal((await on(1, c, { _id: 1 }))[0].n, 2);
            await one.endSession();
            await two.endSession();
        });

        test('SES-3: another router commits by the recovery token, and again', async () => {
            const statement = { lsid: { id: new UUID() }, txnNumber: Long.fromNumber(1), autocommit: false };
            const insert = { insert: c.collectionName, documents: [{ _id: 30, k: 30 }], ...statement };
            const { recoveryToken } = await works(0, { ...insert, startTransaction: true });
            const commit = { commitTransaction: 1, ...statement, $db: 'admin' };
            await refuses(1, commit, 251);
            await works(1, { ...commit, recoveryToken });
            await works(1, { ...commit, recoveryToken });
            await works(1, commit);
            await works(0, commit);
            await refuses(0, { abortTransaction: 1, ...statement, $db: 'admin' }, 256);
            await refuses(0, insert, 256);
            assert.deepEqual(await ids(c), [[-1], [1, 2, 30]]);
        });

        test('SES-3: a connection that breaks inside of a transaction makes it transient', async () => {
            const s = client.startSession();
            s.startTransaction();
            await c.insertOne({ _id: 40, k: 40 }, { session: s });
            await failing(1, { failCommands: ['insert'], closeConnection: true });
            await assert.rejects(c.insertOne({ _id: 41, k: 41 }, { session: s }), (error) =>
                error.hasErrorLabel('TransientTransactionError'),
            );
            await s.abortTransaction();
            await s.withTransaction(() => c.insertOne({ _id: 42, k: 42 }, { session: s }));
            s.startTransaction();
            await c.insertOne({ _id: 43, k: 43 }, { session: s });
            await failing(1, { failCommands: ['commitTransaction'], closeConnection: true });
            await s.commitTransaction();
            await s.endSession();
            assert.deepEqual((await on(1, c, { _id: { $gte: 40 } })).map(({ _id }) => _id), [42, 43]);
        });

        test('SES-3: the first statement that reaches a shard begins the transaction there', async () => {
            const s = client.startSession();
            s.startTransaction({ readConcern: { level: 'majority' } });
            // Refused by the router: no shard has seen it.
            await failsWith(c.insertOne({ _id: 50, k: [1] }, { session: s }), 61);
            await s.abortTransaction();
            s.startTransaction();
            await s.commitTransaction();
            await failing(1, { failCommands: ['insert'], errorCode: 13388 });
            s.startTransaction();
            await c.insertOne({ _id: 51, k: 51 }, { session: s });
            await failing(1, { failCommands: ['insert'], errorCode: 13388 });
            await failsWith(c.insertOne({ _id: 52, k: 52 }, { session: s }), 13388, (error) =>
                assert.ok(error.hasErrorLabel('TransientTransactionError')),
            );
            await s.abortTransaction();
            await refuses(0, {
                insert: c.collectionName,
                documents: [{ k: 1 }],
                lsid: { id: new UUID() },
                txnNumber: Long.fromNumber(1),
                startTransaction: true,
                autocommit: false,
                $readPreference: { mode: 'secondary' },
            }, 72);
            await s.endSession();
            assert.equal((await on(1, c, { _id: { $gte: 50 } })).length, 0);
        });
    });
});
