/*
 * Goal: data that were copied from a primary which then lost its newest writes are never served as
 * if they were right: storage cannot go back to before the copy. Method: a member without a vote
 * copies; meanwhile the only other voter with data stops, so that nothing is committed any more, and
 * the primary takes one more write. The copy ends, the primary dies, and the other one, which knows
 * nothing of that write, is elected.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const RECOVERING = 3;
const TIMEOUT = { timeoutMs: 30_000 };
let set = null;

before(async () => {
    set = await startReplicaSet({
        members: [{ priority: 2 }, {}, { arbiterOnly: true }, { priority: 0, votes: 0 }],
        settings: {
            electionTimeoutMillis: 2000,
            heartbeatIntervalMillis: 200,
            chainingAllowed: false, // copies from the primary
        },
    });
});
after(() => set?.remove());

const stateOf = async (member) => (await set.command(member, { replSetGetStatus: 1 })).myState;

test('REP-2: a copy of what was lost afterwards ends in RECOVERING, and says why', async () => {
    const [primary, other, , member] = set.members;
    await waitFor(async () => (await set.hello(primary))?.isWritablePrimary, {
        ...TIMEOUT,
        what: 'the primary of the highest priority',
    });
    const direct = await set.direct(primary);
    const collection = direct.db('lost').collection('c', { writeConcern: { w: 1 } });
    await collection.insertOne({ _id: 'kept' }, { writeConcern: { w: 3 } });
    await member.stop();
    rmSync(member.dbpath, { recursive: true });
    const failpoint = 'initialSync.clonedN';
    const blocked = JSON.stringify({ mode: 'alwaysOn', data: { blockTimeMS: 60_000 } });
    member.args.push('--setParameter', `failpoint.${failpoint}=${blocked}`);
    await member.start();
    await member.waitLog(({ msg }) => msg === 'Starting initial sync');
    await waitFor(async () => {
        const status = await set.command(member, { replSetGetStatus: 1 });
        return (status.initialSyncStatus?.databases?.databasesToClone ?? 0) > 0;
    }, { ...TIMEOUT, what: 'a copy under way' });
    await other.stop();
    await collection.insertOne({ _id: 'lost' });
    member.args.splice(-2);
    await set.command(member, { configureFailPoint: failpoint, mode: 'off' });
    await waitFor(async () => (await set.hello(member))?.secondary, { ...TIMEOUT, what: 'the copy' });
    await primary.kill();
    member.signal('SIGSTOP'); // the other one shall not get that write from it
    await other.start();
    await waitFor(async () => (await set.hello(other))?.isWritablePrimary, {
        ...TIMEOUT,
        what: 'the other as primary',
    });
    member.signal('SIGCONT');

    await waitFor(async () => (await stateOf(member)) === RECOVERING, {
        ...TIMEOUT,
        what: 'RECOVERING',
    });
    assert.ok(member.log.some(({ msg }) => /^Cannot roll back to before the data/.test(msg)));
    await primary.start(); // it rolls back itself
    await waitFor(async () => (await set.hello(primary))?.isWritablePrimary, {
        ...TIMEOUT,
        what: 'the first one as primary again',
    });
    const reader = await set.direct(primary);
    assert.equal(await reader.db('lost').collection('c').countDocuments({ _id: 'lost' }), 0);
    assert.equal(await stateOf(member), RECOVERING);
});

test('REP-2: with an empty directory it is right again', async () => {
    const [primary, , , member] = set.members;
    await member.stop();
    rmSync(member.dbpath, { recursive: true });
    await member.start();
    await waitFor(async () => (await set.hello(member))?.secondary, { ...TIMEOUT, what: 'the copy' });
    const hashes = await Promise.all(
        [primary, member].map(async (of) => (await set.command(of, { dbHash: 1 }, 'lost')).md5),
    );
    assert.equal(hashes[0], hashes[1]);
});
