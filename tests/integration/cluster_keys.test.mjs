/*
 * Goal (SES-6): all nodes of a cluster sign cluster times with the keys of its config server, so that what one of them signed is good on
 * the others; and nobody waits for the config server longer than a moment.
 *
 * Method: as cluster_time.test.mjs, by bare connections.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, test } from 'node:test';
import { Binary, ObjectId, Timestamp } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { waitFor } from '../lib/server.mjs';
import { RawConnection } from '../lib/wire.mjs';

const KEY_NOT_FOUND = 211;
const TIME_PROOF_MISMATCH = 204;
const CLUSTER_TIME_FAILS_RATE_LIMITER = 205;
const TYPE_MISMATCH = 14;

let cluster;
let members; // of all sets
let ownKeys; // of the first shard, from before it was one

before(async () => {
    cluster = await startCluster({ members: 2 });
    members = [cluster.config, ...cluster.shards].flatMap((set) => set.members);
    ownKeys = await keysOf(cluster.shards[0].members[0]);
});
after(() => cluster?.remove());

async function ask(member, command) {
    const connection = await RawConnection.open({ host: member.host, port: member.port });
    try {
        return await connection.command(command);
    } finally {
        connection.close();
    }
}

async function keysOf(member) {
    const find = { find: 'system.keys', sort: { expiresAt: 1 }, $readPreference: { mode: 'secondaryPreferred' } };
    return (await ask(member, find)).cursor.firstBatch;
}

const ping = (member, $clusterTime) => ask(member, $clusterTime ? { ping: 1, $clusterTime } : { ping: 1 });
const keyIdOf = async (member) => (await ping(member)).$clusterTime.signature.keyId;

let secondsAhead = 0;

/* A time that no node has seen. */
function laterTime() {
    secondsAhead += 100;
    return new Timestamp({ t: Math.floor(Date.now() / 1000) + secondsAhead, i: 1 });
}

function signed(time, key) {
    const block = Buffer.alloc(8);
    block.writeBigUInt64LE(BigInt.asUintN(64, BigInt(time.toString())) | 0xffffn);
    const hash = createHmac('sha1', key.key.buffer).update(block).digest();
    return { clusterTime: time, signature: { hash: new Binary(hash), keyId: key._id } };
}

async function timed(run) {
    const start = performance.now();
    const result = await run();
    return [result, performance.now() - start];
}

/* Until all of them sign by a key of the config server. */
const allSign = (nodes, keys) =>
    waitFor(
        async () => {
            for (const member of nodes) {
                const id = await keyIdOf(member);
                if (!keys.some(({ _id }) => _id.equals(id))) return false;
            }
            return true;
        },
        { timeoutMs: 30_000, what: 'signatures by keys of the config server' },
    );

test('every member of every shard signs with a key of the config server', async () => {
    const keys = await keysOf(cluster.config.members[0]);
    assert.equal(keys.length, 2);
    await allSign(members, keys);
    assert.ok(!ownKeys.some(({ _id }) => keys.some((key) => key._id.equals(_id))));
});

test('what one node signed the others accept', async () => {
    const [key] = await keysOf(cluster.config.members[0]);
    for (const member of members) {
        const time = laterTime();
        const reply = await ping(member, signed(time, key));
        assert.equal(reply.ok, 1, reply.errmsg);
        const { $clusterTime } = await ping(member);
        assert.ok($clusterTime.clusterTime.greaterThanOrEqual(time));
        for (const other of members) assert.equal((await ping(other, $clusterTime)).ok, 1);
    }
});

test('forged times and keys that nobody has are refused', async () => {
    const [key] = await keysOf(cluster.config.members[0]);
    for (const shard of cluster.shards) {
        const forged = signed(laterTime(), key);
        forged.signature.hash = new Binary(Buffer.alloc(20, 1));
        assert.equal((await ping(shard.members[0], forged)).code, TIME_PROOF_MISMATCH);
        const unknown = signed(laterTime(), { ...key, _id: key._id.add(1) });
        assert.equal((await ping(shard.members[0], unknown)).code, KEY_NOT_FOUND);
    }
});

test('a router signs with a key of the config server, and passes on what others signed', async () => {
    const keys = await keysOf(cluster.config.members[0]);
    const [router] = cluster.routers;
    await ask(router, { listDatabases: 1 });
    await allSign([router], keys);
    for (const from of [router, ...members]) {
        const time = laterTime();
        assert.equal((await ping(from, signed(time, keys[0]))).ok, 1);
        const { $clusterTime } = await ping(from);
        assert.ok($clusterTime.clusterTime.greaterThanOrEqual(time));
        for (const to of [router, ...members]) assert.equal((await ping(to, $clusterTime)).ok, 1);
        assert.ok((await ping(router)).$clusterTime.clusterTime.greaterThanOrEqual(time));
    }
    /* Shards learn of a client's time from the router. */
    const time = laterTime();
    await ask(router, { listDatabases: 1, $clusterTime: signed(time, keys[0]) });
    for (const shard of cluster.shards) {
        const primary = await shard.waitForPrimary();
        assert.ok((await ping(primary)).$clusterTime.clusterTime.greaterThanOrEqual(time));
    }
});

test('a router refuses forged times, unknown keys and times far ahead, and does not pass them on', async () => {
    const [key] = await keysOf(cluster.config.members[0]);
    const [router] = cluster.routers;
    const forged = signed(laterTime(), key);
    forged.signature.hash = new Binary(Buffer.alloc(20, 1));
    assert.equal((await ping(router, forged)).code, TIME_PROOF_MISMATCH);
    const unknown = signed(laterTime(), { ...key, _id: key._id.add(1) });
    assert.equal((await ping(router, unknown)).code, KEY_NOT_FOUND);
    const far = new Timestamp({ t: Math.floor(Date.now() / 1000) + 2 * 365 * 86_400, i: 1 });
    assert.equal((await ping(router, signed(far, key))).code, CLUSTER_TIME_FAILS_RATE_LIMITER);
    assert.equal((await ping(router, { clusterTime: 1 })).code, TYPE_MISMATCH);
    for (const node of [router, ...members])
        assert.ok((await ping(node)).$clusterTime.clusterTime.lessThan(forged.clusterTime));
});

test('a shard accepts what it signed itself before it was one', async () => {
    const reply = await ping(cluster.shards[0].members[0], signed(laterTime(), ownKeys[0]));
    assert.equal(reply.ok, 1, reply.errmsg);
});

test('RTE-4: a shard that has heard of a time of the config server tells it to whom it asks for metadata as of then', async () => {
    const [primary] = cluster.shards[0].members;
    const { clusterTime } = (await ping(cluster.config.members[0])).$clusterTime;
    const $configTime = new Timestamp({ t: clusterTime.getHighBits() + 1, i: 1 });
    const unsharded = { e: ObjectId.createFromHexString('0'.repeat(24)), t: new Timestamp(0n), v: new Timestamp(0n) };
    await ask(primary, { find: 'heard', $db: 'd', shardVersion: unsharded, $configTime }); // refused, if the shard does not know it yet
    const refresh = () => ask(primary, { _flushRoutingTableCacheUpdates: 'd.heard', syncFromConfig: true, $db: 'admin' });
    const { ok, errmsg } = await refresh();
    assert.equal(ok, 1, errmsg);
    /* Nobody signs it: one that cannot be true is not believed, or the shard would wait for it, and tell others. */
    const far = new Timestamp({ t: Math.floor(Date.now() / 1000) + 2 * 365 * 86_400, i: 1 });
    await ask(primary, { find: 'heard', $db: 'd', shardVersion: unsharded, $configTime: far });
    assert.equal((await refresh()).ok, 1);
    assert.ok((await ping(primary)).$clusterTime.clusterTime.lessThan(far));
});

test('without the config server nobody waits: by the keys that are known, and then unsigned', { timeout: 120_000 }, async () => {
    const keys = await keysOf(cluster.config.members[0]);
    const [shard] = cluster.shards;
    const [primary] = shard.members;
    for (const member of cluster.config.members) member.signal('SIGSTOP');
    try {
        assert.equal((await ping(primary, signed(laterTime(), keys[0]))).ok, 1);
        const later = laterTime();
        const unknown = signed(later, { ...keys[0], _id: keys[0]._id.add(1) });
        const [reply, ms] = await timed(() => ping(primary, unknown));
        assert.equal(reply.ok, 1, reply.errmsg); // it may be one that the config server has by now
        assert.ok(ms < 8000, `${ms} ms`);
        assert.ok((await ping(primary)).$clusterTime.clusterTime.lessThan(later), 'and is not believed');
        await shard.stepDown();
        await primary.restart();
        const [router] = cluster.routers;
        const known = signed(laterTime(), keys[0]);
        assert.equal((await ping(router, known)).ok, 1);
        assert.ok((await ping(router)).$clusterTime.clusterTime.greaterThanOrEqual(known.clusterTime));
        const [excused, routerMs] = await timed(() => ping(router, signed(laterTime(), { ...keys[0], _id: keys[0]._id.add(1) })));
        assert.equal(excused.ok, 1, excused.errmsg);
        assert.ok(routerMs < 8000, `${routerMs} ms`);
        const [after, pingMs] = await timed(() => ping(primary));
        assert.ok(pingMs < 2000, `${pingMs} ms`);
        assert.equal(Number(after.$clusterTime?.signature.keyId ?? 0), 0);
        assert.equal(Buffer.compare(after.$clusterTime.signature.hash.buffer, Buffer.alloc(20)), 0);
    } finally {
        for (const member of cluster.config.members) member.signal('SIGCONT');
    }
    await allSign(members, keys);
});
