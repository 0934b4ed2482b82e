/*
 * Goal (QRY-1, REP-3): $out and $merge of a pipeline that reads on a secondary write on the primary.
 * Method: a set of three; pipelines are sent to a secondary, what they leave is read on the primary;
 * failures, kills, and a primary that ends meanwhile leave the target alone and no collection behind.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const SECONDARY = { readPreference: 'secondary' };
let set, client, db, secondary;

before(async () => {
    set = await startReplicaSet({ members: 3 });
    client = await set.client();
    db = client.db('far');
    const docs = Array.from({ length: 2500 }, (_, i) => ({ _id: i, k: i % 10, word: i % 2 === 0 ? 'A' : 'a' }));
    await db.collection('source').insertMany(docs, { writeConcern: { w: 3 } });
    secondary = (await set.secondaries())[0];
});
after(() => set.remove());

const run = async (stages, options = {}, db_ = 'far') =>
    (await set.direct(secondary, SECONDARY)).db(db_).command({
        aggregate: 'source',
        pipeline: stages,
        cursor: {},
        $readPreference: { mode: 'secondary' },
        ...options,
    });
const temporaries = async () =>
    (await db.listCollections({ name: /^tmp\./ }).toArray()).map(({ name }) => name);
const target = (name) => db.collection(name);

test('$out replaces its target on the primary, with its indexes kept', async () => {
    await target('out').insertOne({ _id: 'old' });
    await target('out').createIndex({ k: 1 });
    const reply = await run([{ $match: { k: 3 } }, { $out: 'out' }], { writeConcern: { w: 'majority' } });
    assert.deepEqual(reply.cursor.firstBatch, []);
    assert.equal(Number(reply.cursor.id), 0);
    assert.equal(await target('out').countDocuments(), 250);
    assert.deepEqual((await target('out').indexes()).map(({ name }) => name), ['_id_', 'k_1']);
    assert.deepEqual(await temporaries(), []);
});

test('$out of nothing leaves an empty collection', async () => {
    await target('nothing').insertOne({ _id: 1 });
    await run([{ $match: { k: 'none' } }, { $out: 'nothing' }]);
    assert.equal(await target('nothing').countDocuments(), 0);
});

test('$out writes thousands of documents, several of a size that fills a batch', async () => {
    await run([{ $set: { pad: { $concat: Array(10).fill('x'.repeat(400)) } } }, { $out: { db: 'farther', coll: 'many' } }]);
    assert.equal(await client.db('farther').collection('many').countDocuments(), 2500);
});

test('$merge knows let, $$NOW, and the collation of the collection that is read', async () => {
    await target('merged').insertMany([{ _id: 1, n: 10 }, { _id: 2, n: 20 }]);
    await run(
        [
            { $match: { _id: { $lt: 4 } } },
            { $merge: { into: 'merged', whenMatched: [{ $set: { n: { $add: ['$n', '$$by'] }, at: '$$NOW', new: '$$new.k' } }] } },
        ],
        { let: { by: 5 } },
    );
    const docs = await target('merged').find().sort({ _id: 1 }).toArray();
    assert.deepEqual(docs.map(({ _id, n, k, new: fresh }) => [_id, n, k, fresh]), [
        [0, undefined, 0, undefined],
        [1, 15, undefined, 1],
        [2, 25, undefined, 2],
        [3, undefined, 3, undefined],
    ]);
    assert.ok(docs[1].at instanceof Date);

    await db.createCollection('folded', { collation: { locale: 'en', strength: 2 } });
    await target('folded').insertOne({ _id: 'A', n: 1 }, { writeConcern: { w: 3 } });
    await db.createCollection('by_name', { collation: { locale: 'en', strength: 2 } });
    await target('by_name').insertOne({ _id: 'a', n: 0 });
    await run([{ $merge: { into: 'by_name', whenMatched: [{ $set: { n: '$$new.n' } }], whenNotMatched: 'discard' } }], { aggregate: 'folded' });
    assert.deepEqual(await target('by_name').find().toArray(), [{ _id: 'a', n: 1 }]);
});

test('a failure is that of the primary, and nothing is left behind', async () => {
    await target('unique').createIndex({ k: 1 }, { unique: true });
    await target('unique').insertOne({ _id: 'first', k: 5 });
    await fails(() => run([{ $merge: { into: 'unique', whenMatched: 'fail' } }]), 11000);
    await fails(() => run([{ $out: 'unique' }]), 11000);
    await fails(() => run([{ $merge: { into: 'unique', on: 'word' } }]), 51183);
    await fails(() => run([{ $out: 'system.no' }]), 17385);
    await target('strict').insertOne({ _id: 1 });
    await db.command({ collMod: 'strict', validator: { k: { $lt: 3 } } });
    await fails(() => run([{ $merge: 'strict' }]), 121);
    await run([{ $merge: 'strict' }], { bypassDocumentValidation: true });
    assert.equal(await target('strict').countDocuments(), 2500);
    assert.deepEqual(await temporaries(), []);
});

test('a write concern that cannot be met in time is told', async () => {
    await fails(() => run([{ $limit: 1 }, { $merge: 'concern' }], { writeConcern: { w: 4, wtimeout: 100 } }), 64);
});

test('with batchSize 0 the first getMore writes', async () => {
    const member = await set.direct(secondary, SECONDARY);
    const cursor = member.db('far').collection('source').aggregate([{ $limit: 3 }, { $out: 'later' }], { batchSize: 0 });
    assert.equal(await cursor.hasNext(), false);
    await cursor.close();
    assert.equal(await target('later').countDocuments(), 3);
});

test('a read after it, causally on the same secondary, sees what was written', async () => {
    const member = await set.direct(secondary, SECONDARY);
    for (let i = 0; i < 20; i++) {
        const reply = await run([{ $limit: 5 }, { $set: { round: i } }, { $out: 'causal' }]);
        const found = await member.db('far').command({
            count: 'causal',
            query: { round: i },
            readConcern: { level: 'local', afterClusterTime: reply.operationTime },
            $readPreference: { mode: 'secondary' },
        });
        assert.equal(found.n, 5);
    }
});

test('one that is killed leaves the target alone and drops what it gathered', async () => {
    await target('kept').insertOne({ _id: 'kept' });
    const primary = await set.findPrimary();
    await set.hang(primary, 'hangDuringBatchInsert');
    const killed = fails(() => run([{ $out: 'kept' }], { comment: 'to be killed' }), 11601);
    const admin = (await set.direct(secondary, SECONDARY)).db('admin');
    const op = await waitFor(async () => {
        const { inprog } = await admin.command({ currentOp: 1, 'command.comment': 'to be killed' });
        return inprog.length > 0 && (await temporaries()).length > 0 ? inprog[0] : null;
    });
    await admin.command({ killOp: 1, op: op.opid });
    await set.release(primary, 'hangDuringBatchInsert');
    await killed;
    assert.deepEqual(await target('kept').find().toArray(), [{ _id: 'kept' }]);
    await waitFor(async () => (await temporaries()).length === 0);
});

test('a primary that ends meanwhile: the target is left alone, and the next primary drops the rest', async () => {
    await target('other').insertOne({ _id: 'kept' }, { writeConcern: { w: 3 } });
    const primary = await set.findPrimary();
    await set.hang(primary, 'hangDuringBatchInsert');
    const lost = assert.rejects(run([{ $out: 'other' }]));
    await waitFor(async () => (await temporaries()).length > 0);
    await primary.kill();
    await lost;
    await set.waitForPrimary({ other: primary });
    assert.deepEqual(await target('other').find().toArray(), [{ _id: 'kept' }]);
    await waitFor(async () => (await temporaries()).length === 0);
    await primary.restart();
});
