/*
 * Goal (REP-5): a stream whose place the oplog no longer holds says so, when it is opened and when
 * it reads on, and never skips what is gone. Method: a small oplog, and more writes than it holds.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Long } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const HISTORY_LOST = 286;
let set = null;
before(async () => {
    set = await startReplicaSet({
        members: 1,
        args: ['--oplogSize', '1', '--syncdelay', '1', '--wiredTigerCacheSizeGB', '0.25'],
    });
});
after(() => set?.remove());

const codeOf = (promise) => promise.then(() => 0, (error) => error.code);

test('REP-5: a stream whose place was trimmed fails with ChangeStreamHistoryLost', async () => {
    const client = await set.client();
    const db = client.db('history');
    const session = client.startSession();
    const open = (spec) =>
        db.command({ aggregate: 'c', pipeline: [{ $changeStream: spec }], cursor: { batchSize: 0 } }, { session });
    const { cursor } = await open({});
    await db.collection('c').insertOne({ _id: 'first' });
    const more = () =>
        db.command({ getMore: Long.fromBigInt(BigInt(cursor.id.toString())), collection: 'c', batchSize: 1 }, { session });
    let event = null;
    await waitFor(async () => ([event] = (await more()).cursor.nextBatch, event));
    assert.equal(event.documentKey._id, 'first');
    const oldest = async () => (await client.db('local').collection('oplog.rs').find().limit(1).next()).ts;
    await waitFor(
        async () => {
            for (let i = 0; i < 10; i++) await db.collection('other').insertOne({ pad: 'x'.repeat(100_000) });
            return (await oldest()).greaterThan(event.clusterTime);
        },
        { timeoutMs: 60_000, what: 'an oplog that has forgotten' },
    );
    assert.equal(await codeOf(open({ resumeAfter: event._id })), HISTORY_LOST);
    assert.equal(await codeOf(open({ startAtOperationTime: event.clusterTime })), HISTORY_LOST);
    /* The open one had read up to the event only. */
    const error = await more().catch((failure) => failure);
    assert.equal(error.code, HISTORY_LOST);
    assert.ok(error.hasErrorLabel('NonResumableChangeStreamError'));
    assert.equal(await codeOf(open({})), 0);
});
