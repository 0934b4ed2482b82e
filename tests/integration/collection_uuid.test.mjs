/*
 * Goal (CAT-7): a client that says by collectionUUID which collection it means is refused if the name has become another one's: by every
 * command that takes one, with what the collection is called now, and nothing changes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Binary, UUID } from 'mongodb';
import { replyOf } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const MISMATCH = 361;
const TYPE_MISMATCH = 14;
const INVALID_UUID = 207;

let db;
let mine;
let other;
const uuidOf = async (name) => (await db.listCollections({ name }).toArray())[0].info.uuid;

const node = useServer(undefined, {
    async prepare(ready) {
        db = ready.db;
        await db.collection('mine').insertOne({ _id: 1, a: 1 });
        await db.collection('mine').createIndex({ a: 1 });
        await db.collection('other').insertOne({ _id: 2 });
        await db.createCollection('view', { viewOn: 'mine', pipeline: [] });
        mine = await uuidOf('mine');
        other = await uuidOf('other');
    },
});

const COMMANDS = {
    find: { find: 'mine' },
    aggregate: { aggregate: 'mine', pipeline: [{ $match: {} }], cursor: {} },
    insert: { insert: 'mine', documents: [{ a: 7 }] },
    update: { update: 'mine', updates: [{ q: { _id: 1 }, u: { $set: { b: 1 } } }] },
    delete: { delete: 'mine', deletes: [{ q: { a: 7 }, limit: 0 }] },
    collMod: { collMod: 'mine', validationLevel: 'moderate' },
    createIndexes: { createIndexes: 'mine', indexes: [{ key: { a: 1 }, name: 'a_1' }] },
    dropIndexes: { dropIndexes: 'mine', index: 'b_1' },
};
const errorOf = (reply) => reply.writeErrors?.[0] ?? reply;

for (const [name, command] of Object.entries(COMMANDS)) {
    test(`${name} takes the right one`, async () => {
        if (name === 'dropIndexes') await db.collection('mine').createIndex({ b: 1 });
        const reply = await replyOf(db, { ...command, collectionUUID: mine });
        assert.equal(reply.ok, 1, reply.errmsg);
        assert.equal(reply.writeErrors, undefined);
    });

    test(`${name} refuses another one, one that is not there, a view, and what is no UUID`, async () => {
        const before = JSON.stringify(await db.collection('mine').find().toArray());
        const missing = new UUID();
        const views = name === 'find' || name === 'aggregate' ? [['view', mine, 'mine']] : [];
        const rows = [['mine', other, 'other'], ['mine', missing, null], ['nobody', mine, 'mine'], ['nobody', missing, null], ...views];
        for (const [coll, uuid, actual] of rows) {
            const error = errorOf(await replyOf(db, { ...command, [name]: coll, collectionUUID: uuid }));
            assert.equal(error.code, MISMATCH, `${coll}: ${JSON.stringify(error)}`);
            assert.deepEqual(
                [error.db, error.collectionUUID.toHexString(), error.expectedCollection, error.actualCollection],
                ['test', uuid.toHexString(), coll, actual],
            );
        }
        assert.equal(errorOf(await replyOf(db, { ...command, collectionUUID: 'text' })).code, TYPE_MISMATCH);
        const short = new Binary(Buffer.alloc(5), Binary.SUBTYPE_UUID);
        assert.equal(errorOf(await replyOf(db, { ...command, collectionUUID: short })).code, INVALID_UUID);
        assert.equal(JSON.stringify(await db.collection('mine').find().toArray()), before);
        assert.equal((await db.listCollections({ name: 'nobody' }).toArray()).length, 0);
    });
}

test('one of another database is not named', async () => {
    await node.client.db('elsewhere').collection('x').insertOne({});
    const [{ info }] = await node.client.db('elsewhere').listCollections({ name: 'x' }).toArray();
    const error = await replyOf(db, { find: 'mine', collectionUUID: info.uuid });
    assert.deepEqual([error.code, error.actualCollection], [MISMATCH, null]);
});

test('renameCollection says which one it means, and which one it may drop', async () => {
    const admin = node.client.db('admin');
    const rename = (options) => replyOf(admin, { renameCollection: 'test.other', to: 'test.mine', ...options });
    for (const [options, actual] of [
        [{ collectionUUID: mine, dropTarget: true }, 'mine'],
        [{ collectionUUID: new UUID(), dropTarget: true }, null],
        [{ dropTarget: other }, 'other'],
        [{ collectionUUID: other, dropTarget: new UUID() }, null],
    ]) {
        const error = await rename(options);
        assert.deepEqual([error.code, error.actualCollection], [MISMATCH, actual], JSON.stringify(options));
    }
    assert.equal((await rename({ collectionUUID: other, dropTarget: mine })).ok, 1);
    assert.deepEqual(await db.collection('mine').find().toArray(), [{ _id: 2 }]);
});

test('drop takes the right one only', async () => {
    assert.equal((await replyOf(db, { drop: 'mine', collectionUUID: mine })).code, MISMATCH);
    assert.equal((await replyOf(db, { drop: 'nobody', collectionUUID: mine })).code, MISMATCH);
    assert.equal((await replyOf(db, { drop: 'mine', collectionUUID: other })).ok, 1);
});

test('aggregations without a collection take none', async () => {
    const admin = node.client.db('admin');
    assert.equal((await replyOf(admin, { aggregate: 1, collectionUUID: mine, pipeline: [{ $currentOp: {} }], cursor: {} })).code, 4928901);
});

test('change streams take none', async () => {
    assert.equal((await replyOf(db, { aggregate: 'mine', collectionUUID: mine, pipeline: [{ $changeStream: {} }], cursor: {} })).code, 4928900);
});
