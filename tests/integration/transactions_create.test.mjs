/*
 * Goal (SES-4, CAT-4): collections that a transaction creates are its own until it commits; of several that
 * create the same name, and of one outside, the first commit wins and the others fail as a conflict does.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';

const WRITE_CONFLICT = 112;
const OPTIONS = { writeConcern: { w: 'majority' } };
let set;
let client;
let db;

before(async () => {
    set = await startReplicaSet({ members: 3 });
    client = await set.client();
    db = client.db('test');
});
after(() => set?.remove());

async function create(name, by) {
    const session = client.startSession();
    session.startTransaction(OPTIONS);
    await db.createCollection(name, { session });
    await db.command({ createIndexes: name, indexes: [{ key: { x: 1 }, name: 'x_1' }] }, { session });
    await db.collection(name).insertOne({ by, x: 1 }, { session });
    assert.equal((await db.collection(name).findOne({ x: 1 }, { session, hint: 'x_1' })).by, by);
    return session;
}
const names = async () => (await db.listCollections().toArray()).map(({ name }) => name);
const conflicts = (error) => error.code === WRITE_CONFLICT && error.hasErrorLabel('TransientTransactionError');

test('SES-4: of two transactions that create the same collection the first commit wins', async () => {
    const first = await create('same', 'first');
    const second = await create('same', 'second');
    assert.ok(!(await names()).includes('same'), 'nobody sees it before the commit');
    await second.commitTransaction();
    await assert.rejects(first.commitTransaction(), conflicts);
    assert.deepEqual((await db.collection('same').find().toArray()).map(({ by }) => by), ['second']);
    assert.equal((await db.collection('same').indexes()).length, 2);
    await set.waitForReplication();
    await set.checkCollection('same');
    await Promise.all([first.endSession(), second.endSession()]);
});

test('SES-4: a collection can be created outside while a transaction creates it', async () => {
    const session = await create('outside', 'inside');
    await db.createCollection('outside');
    await assert.rejects(session.commitTransaction(), conflicts);
    assert.equal(await db.collection('outside').countDocuments(), 0);
    await session.endSession();
});

test('SES-4: what an aborted transaction created is gone, tables too', async () => {
    const session = await create('gone', 'nobody');
    await session.abortTransaction();
    assert.ok(!(await names()).includes('gone'));
    const again = await create('gone', 'again');
    await again.commitTransaction();
    assert.equal((await db.collection('gone').findOne()).by, 'again');
    await set.waitForReplication();
    await set.checkCollection('gone');
    await Promise.all([session.endSession(), again.endSession()]);
});
