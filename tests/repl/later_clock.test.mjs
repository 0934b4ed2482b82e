/*
 * Goal (REP-2): an old primary whose own entries have later timestamps than all that the others have
 * rolls back at once, not when they have caught up with its clock. Method: its clock is an hour
 * ahead, it is cut off and writes alone; the others elect a new one that writes nothing more.
 */
import assert from 'node:assert/strict';
import { Binary, Long, Timestamp } from 'mongodb';
import { after, before, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { Network } from '../lib/network.mjs';

/* Less than a source would have been shunned for as one that is behind. */
const ROLLBACK_MS_MAX = 7000;
const network = new Network(3);
const options = { skip: network.obstacle ?? false };
let set = null;

before(async () => {
    if (network.obstacle !== null) return;
    set = await startReplicaSet({
        members: 3,
        settings: { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 200 },
        server: network.server,
    });
});
after(async () => {
    if (network.obstacle === null) network.heal();
    await set?.remove();
    network.remove();
});

/* The driver tells the time that a session knows. */
async function setForward(client, seconds) {
    const t = Math.floor(Date.now() / 1000) + seconds;
    const signature = { hash: new Binary(Buffer.alloc(20)), keyId: Long.fromNumber(0) };
    const session = client.startSession();
    session.advanceClusterTime({ clusterTime: new Timestamp({ t, i: 1 }), signature });
    await client.db('admin').command({ ping: 1 }, { session });
    await session.endSession();
}

test('entries with later timestamps do not put off a rollback', options, async () => {
    const old = await set.waitForPrimary();
    const direct = await set.direct(old, { retryWrites: false });
    const alone = direct.db('clock').collection('c');
    await alone.insertOne({ _id: 'before' }, { writeConcern: { w: 3 } });
    network.cut(set.members.indexOf(old));
    await setForward(direct, 3600);
    await alone.insertOne({ _id: 'lost' }, { writeConcern: { w: 1 } });
    await set.waitForSuccessor(old);
    old.log.length = 0;
    const healed = Date.now();
    network.heal();
    await old.waitLog(({ msg }) => msg === 'Rollback done', 30_000);
    assert.ok(Date.now() - healed < ROLLBACK_MS_MAX, `${Date.now() - healed} ms`);
    await set.waitForSecondaries();
    await set.checkCollection('c', 'clock');
    const left = (await set.client()).db('clock').collection('c');
    assert.deepEqual(await left.find().toArray(), [{ _id: 'before' }]);
});
