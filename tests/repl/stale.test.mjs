/*
 * Goal: a member that fell off the oplog of all others says so and waits (state RECOVERING), instead
 * of serving old data or dying; with an empty directory it comes back. Method: a small oplog, and
 * more writes than it holds while the member is stopped.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const RECOVERING = 3;
let set = null;
let member = null;

before(async () => {
    set = await startReplicaSet({
        members: [{ priority: 2 }, { priority: 1 }, { priority: 0 }],
        settings: { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 200 },
        args: ['--oplogSize', '1', '--syncdelay', '1', '--wiredTigerCacheSizeGB', '0.25'],
    });
    member = set.members[2];
});
after(() => set?.remove());

async function oldestEntry(of) {
    const client = await set.direct(of);
    try {
        const cursor = client.db('local').collection('oplog.rs').find().limit(1);
        return (await cursor.toArray())[0].ts;
    } finally {
        await of.closeClients();
    }
}

test('REP-2: a member whose next entry nobody has any more goes to RECOVERING and says why', async () => {
    const client = await set.client();
    const collection = client.db('stale').collection('c', { writeConcern: { w: 2 } });
    await collection.insertOne({ _id: 'first' });
    await set.waitForReplication();
    const newest = (await set.hello(member)).lastWrite.opTime.ts;
    await member.stop();
    await waitFor(
        async () => {
            for (let i = 0; i < 10; i++)
                await collection.insertOne({ pad: 'x'.repeat(100_000) });
            const oldest = await Promise.all(set.members.slice(0, 2).map(oldestEntry));
            return oldest.every((ts) => ts.greaterThan(newest));
        },
        { timeoutMs: 60_000, what: 'an oplog that has forgotten' },
    );
    await member.start();
    const status = await waitFor(
        async () => {
            const reply = await set.command(member, { replSetGetStatus: 1 });
            return reply.myState === RECOVERING ? reply : null;
        },
        { timeoutMs: 20_000, what: 'RECOVERING' },
    );
    assert.match(status.members.find(({ self }) => self).infoMessage, /too stale/);
    await member.waitLog(({ msg }) => /Too stale to catch up/.test(msg));
    assert.ok(!member.log.some(({ msg }) => msg === 'Rollback begins'));
    const hello = await set.hello(member);
    assert.equal(hello.secondary, false);
});

test('REP-2: with an empty directory it copies the data and is a secondary again', async () => {
    await member.stop();
    rmSync(member.dbpath, { recursive: true });
    await member.start();
    await set.waitForSecondaries();
    await set.waitForReplication();
    const [one, other] = await Promise.all(
        [set.members[0], member].map((of) => set.command(of, { dbHash: 1 }, 'stale')),
    );
    assert.equal(one.md5, other.md5);
});
