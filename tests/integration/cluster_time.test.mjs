/*
 * Goal (SES-6, REP-3): cluster times are signed with keys that all members have, and forged ones are
 * refused. Method: sets of real nodes, asked through bare connections, since drivers choose the
 * $clusterTime they send themselves; proofs are made here a second time from admin.system.keys.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Binary, Long, Timestamp } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { RawConnection } from '../lib/wire.mjs';

const KEY_NOT_FOUND = 211;
const TIME_PROOF_MISMATCH = 204;
const CLUSTER_TIME_FAILS_RATE_LIMITER = 205;

/* One command on one member, with the reply as it is. */
async function ask(member, command) {
    const connection = await RawConnection.open({ host: member.host, port: member.fixedPort });
    try {
        return await connection.command(command);
    } finally {
        connection.close();
    }
}

const ping = (member, $clusterTime) => ask(member, $clusterTime ? { ping: 1, $clusterTime } : { ping: 1 });

async function keysOf(member) {
    const reply = await ask(member, {
        find: 'system.keys',
        sort: { expiresAt: 1 },
        $readPreference: { mode: 'secondaryPreferred' },
    });
    assert.equal(reply.ok, 1, reply.errmsg);
    return reply.cursor.firstBatch;
}

function hashOf(time, key) {
    const block = Buffer.alloc(8);
    block.writeBigUInt64LE(BigInt.asUintN(64, BigInt(time.toString())) | 0xffffn);
    return createHmac('sha1', key.key.buffer).update(block).digest();
}

const signed = (time, key) => ({
    clusterTime: time,
    signature: { hash: new Binary(hashOf(time, key)), keyId: key._id },
});

const later = (time, secs) => new Timestamp({ t: time.getHighBitsUnsigned() + secs, i: 1 });

const timeOf = async (member) => (await ping(member)).$clusterTime.clusterTime;

async function waitForSignature(member) {
    return waitFor(
        async () => {
            const { $clusterTime } = await ping(member);
            const isSigned = $clusterTime && Long.isLong($clusterTime.signature.keyId);
            return isSigned ? $clusterTime : null;
        },
        { timeoutMs: 30_000, what: 'a signed reply' },
    );
}

async function checkSignature(member) {
    const { clusterTime, signature } = await waitForSignature(member);
    const key = (await keysOf(member)).find(({ _id }) => _id.equals(signature.keyId));
    assert.ok(key !== undefined, 'the key is in admin.system.keys');
    assert.equal(signature.hash.toString('hex'), hashOf(clusterTime, key).toString('hex'));
    assert.ok(key.expiresAt.greaterThan(clusterTime), 'the key is not expired');
    return { clusterTime, signature, key };
}

describe('a set of three members', () => {
    let set;
    before(async () => {
        set = await startReplicaSet({ members: 3, args: ['--setParameter', 'enableTestCommands=1'] });
    });
    after(() => set.remove());

    test('SES-6: the primary makes two keys, and every member signs with the first', async () => {
        const ids = [];
        for (const member of set.members) ids.push((await checkSignature(member)).key._id.toString());
        assert.equal(new Set(ids).size, 1);
        const keys = await keysOf(set.members[0]);
        assert.equal(keys.length, 2);
        for (const { purpose, key, expiresAt } of keys) {
            assert.equal(purpose, 'HMAC');
            assert.equal(key.length(), 20);
            assert.ok(expiresAt instanceof Timestamp);
        }
        assert.equal(ids[0], keys[0]._id.toString());
        const days = (a, b) => (a.getHighBitsUnsigned() - b.getHighBitsUnsigned()) / 86_400;
        assert.equal(days(keys[1].expiresAt, keys[0].expiresAt), 90);
    });

    test('SES-6: what one member signed, another accepts and goes on from', async () => {
        for (const member of set.members) {
            const { clusterTime, key } = await checkSignature(member);
            const time = later(clusterTime, 100);
            const reply = await ping(member, signed(time, key));
            assert.equal(reply.ok, 1, reply.errmsg);
            assert.ok(reply.$clusterTime.clusterTime.greaterThanOrEqual(time));
        }
    });

    test('SES-6: forged times are refused and change nothing', async () => {
        for (const member of set.members) {
            const { clusterTime, key } = await checkSignature(member);
            const time = later(clusterTime, 1000);
            const forged = signed(time, key);
            forged.signature.hash = new Binary(Buffer.alloc(20, 1));
            const reply = await ping(member, forged);
            assert.equal(reply.code, TIME_PROOF_MISMATCH, JSON.stringify(reply));
            assert.equal(reply.codeName, 'TimeProofMismatch');
            const other = signed(later(time, 1), key); // of another time
            other.clusterTime = time;
            assert.equal((await ping(member, other)).code, TIME_PROOF_MISMATCH);
            assert.ok((await timeOf(member)).lessThan(time));
        }
    });

    test('SES-6: a key that nobody knows, and one that is expired for that time', async () => {
        const [secondary] = await set.secondaries();
        const { clusterTime, key } = await checkSignature(secondary);
        const time = later(clusterTime, 1000);
        const unknown = signed(time, { ...key, _id: Long.fromString('123456789012345') });
        const reply = await ping(secondary, unknown);
        assert.equal(reply.code, KEY_NOT_FOUND, JSON.stringify(reply));
        assert.equal(reply.codeName, 'KeyNotFound');
        const afterIt = later(key.expiresAt, 1);
        assert.equal((await ping(secondary, signed(afterIt, key))).code, KEY_NOT_FOUND);
    });

    test('SES-6: bounds and forms', async () => {
        const primary = await set.waitForPrimary();
        const { clusterTime, key } = await checkSignature(primary);
        const far = later(clusterTime, 2 * 365 * 86_400);
        assert.equal((await ping(primary, signed(far, key))).code, CLUSTER_TIME_FAILS_RATE_LIMITER);
        assert.equal((await ping(primary, { clusterTime: far })).code, CLUSTER_TIME_FAILS_RATE_LIMITER);
        /* Older ones need no proof; without access control neither do those without signature. */
        const old = new Timestamp({ t: clusterTime.getHighBitsUnsigned() - 1000, i: 1 });
        const bad = { clusterTime: old, signature: { hash: new Binary(Buffer.alloc(20)), keyId: Long.ONE } };
        assert.equal((await ping(primary, bad)).ok, 1);
        const next = later(clusterTime, 50);
        assert.equal((await ping(primary, { clusterTime: next })).ok, 1);
        const dummy = { hash: new Binary(Buffer.alloc(20)), keyId: Long.ZERO };
        assert.equal((await ping(primary, { clusterTime: later(next, 1), signature: dummy })).ok, 1);
        const time = later(next, 100);
        for (const [wrong, code] of [
            [{ clusterTime: 1 }, 14],
            [{ clusterTime: time, signature: 1 }, 14],
            [{ clusterTime: time, signature: { hash: 'x', keyId: key._id } }, 14],
            [{ clusterTime: time, signature: { hash: new Binary(Buffer.alloc(20)) } }, 14],
            [{ clusterTime: time, signature: { hash: new Binary(Buffer.alloc(19)), keyId: key._id } }, 2],
        ])
            assert.equal((await ping(primary, wrong)).code, code, JSON.stringify(wrong));
    });

    test('REP-3: appendOplogNote writes an entry of its own', async () => {
        const primary = await set.waitForPrimary();
        const [secondary] = await set.secondaries();
        const note = (fields) => ({ appendOplogNote: 1, ...fields });
        const reply = await ask(primary, note({ data: { who: 'test' }, writeConcern: { w: 3 } }));
        assert.equal(reply.ok, 1, reply.errmsg);
        const find = { find: 'oplog.rs', filter: { 'o.who': 'test' }, $db: 'local' };
        for (const member of set.members) {
            const { cursor } = await ask(member, find);
            assert.equal(cursor.firstBatch.length, 1);
            const [entry] = cursor.firstBatch;
            assert.equal(entry.op, 'n');
            assert.equal(entry.ns, '');
            assert.deepEqual(entry.o, { who: 'test' });
            assert.ok(entry.ts.equals(reply.operationTime));
        }
        const before = note({ data: {}, maxClusterTime: reply.operationTime });
        assert.equal((await ask(primary, before)).code, 209);
        const afterwards = note({ data: {}, maxClusterTime: later(reply.operationTime, 10) });
        assert.equal((await ask(primary, afterwards)).ok, 1);
        for (const [bad, code] of [
            [note({}), 4],
            [note({ data: 1 }), 14],
            [note({ data: {}, maxClusterTime: 1 }), 14],
            [note({ data: {}, other: 1 }), 40415],
            [{ ...note({ data: {} }), $db: 'test' }, 13],
        ])
            assert.equal((await ask(primary, bad)).code, code, JSON.stringify(bad));
        assert.equal((await ask(secondary, note({ data: {} }))).code, 10107);
    });

    test('REP-3: a secondary gets to a time that no member has written at', async () => {
        for (const level of ['local', 'majority']) {
            const primary = await set.waitForPrimary();
            const [secondary] = await set.secondaries();
            /* Far ahead of all clocks: no periodic write comes up to it. */
            const time = later(await timeOf(primary), 3000);
            const reply = await ask(secondary, {
                find: 'x',
                readConcern: { level, afterClusterTime: time },
                $clusterTime: { clusterTime: time },
                $readPreference: { mode: 'secondary' },
                maxTimeMS: 8000,
            });
            assert.equal(reply.ok, 1, reply.errmsg);
            assert.ok(reply.operationTime.greaterThanOrEqual(time));
            assert.ok((await timeOf(primary)).greaterThanOrEqual(time), 'the primary is there, too');
        }
    });

    test('SES-6: a member without data gets the keys with the data', async () => {
        const [secondary] = await set.secondaries();
        await secondary.stop();
        rmSync(secondary.dbpath, { recursive: true });
        await secondary.start();
        await set.waitForSecondaries();
        const { clusterTime, key } = await checkSignature(secondary);
        assert.equal((await ping(secondary, signed(later(clusterTime, 100), key))).ok, 1);
    });

    test('REP-3: without a primary such a read waits until its time is up', async () => {
        const old = await set.waitForPrimary();
        const [secondary, other] = await set.secondaries();
        await other.stop();
        await old.kill(); // a clean stop would hand the office over
        const time = later(await timeOf(secondary), 3000);
        const reply = await ask(secondary, {
            find: 'x',
            readConcern: { afterClusterTime: time },
            $clusterTime: { clusterTime: time },
            $readPreference: { mode: 'secondary' },
            maxTimeMS: 1500,
        });
        assert.equal(reply.code, 50, JSON.stringify(reply));
        await Promise.all([old.start(), other.start()]);
        await set.waitForSecondaries();
    });

    test('SES-6: after a fail-over the times of the old primary are accepted', async () => {
        const old = await set.waitForPrimary();
        const { clusterTime, key } = await checkSignature(old);
        const time = signed(later(clusterTime, 5000), key); // known to nobody
        await old.kill();
        const primary = await set.waitForPrimary({ other: old });
        assert.equal((await ping(primary, time)).ok, 1);
        assert.ok((await timeOf(primary)).greaterThanOrEqual(time.clusterTime));
        await old.start();
        await set.waitForSecondaries();
        const again = await checkSignature(old);
        assert.equal(again.key._id.toString(), key._id.toString(), 'also after a restart');
    });

    test('SES-6: a primary that dies while it makes keys leaves a set that agrees on them', async () => {
        const primary = await set.waitForPrimary();
        await set.crashAt(primary, 'timeKeys.written');
        const { key } = await checkSignature(primary);
        /* Beyond the first key: the third one is due. */
        const time = later(key.expiresAt, 60);
        await ping(primary, { clusterTime: time }); // the reply may be too late
        await waitFor(() => !primary.isRunning(), { timeoutMs: 30_000, what: 'the crash' });
        const next = await set.waitForPrimary({ other: primary });
        assert.equal((await ping(next, { clusterTime: time })).ok, 1);
        await primary.start();
        await set.waitForSecondaries();
        await waitFor(async () => (await keysOf(next)).length >= 3, { timeoutMs: 30_000, what: 'a third key' });
        await set.waitForReplication();
        const seen = [];
        for (const member of set.members) {
            await waitFor(async () => (await keysOf(member)).length === (await keysOf(next)).length, {
                timeoutMs: 30_000,
                what: 'the keys everywhere',
            });
            seen.push(JSON.stringify(await keysOf(member)));
            if (member === next) {
                const now = await checkSignature(member);
                assert.notEqual(now.key._id.toString(), key._id.toString(), 'another key signs');
            }
        }
        assert.equal(new Set(seen).size, 1);
    });
});

test('SES-6: keys rotate, and what the old ones signed stays good', async () => {
    const set = await startReplicaSet({
        members: 1,
        args: ['--setParameter', 'KeysRotationIntervalSec=1'],
    });
    try {
        const [member] = set.members;
        const first = await checkSignature(member);
        await waitFor(
            async () => {
                const reply = await ask(member, { insert: 'x', documents: [{}], $db: 'rotation' });
                assert.equal(reply.ok, 1);
                const { keyId } = reply.$clusterTime.signature;
                return (await keysOf(member)).length >= 5 && !first.key._id.equals(keyId);
            },
            { timeoutMs: 30_000, what: 'new keys' },
        );
        const keys = await keysOf(member);
        assert.ok(keys.some(({ _id }) => _id.equals(first.key._id)), 'no key is deleted');
        const { clusterTime, signature } = first;
        assert.equal((await ping(member, { clusterTime, signature })).ok, 1);
        await member.stop();
        await member.start();
        await set.waitForPrimary();
        await checkSignature(member);
    } finally {
        await set.remove();
    }
});

test('SES-6: timestamps that members put into documents grow strictly over a fail-over', async () => {
    const set = await startReplicaSet({ members: 3 });
    try {
        const empty = new Timestamp(0n);
        const fields = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`t${i}`, empty]));
        const seen = [];
        for (let round = 0; round < 3; round++) {
            const direct = await set.direct(await set.waitForPrimary());
            const coll = direct.db('test').collection('stamps');
            await coll.insertOne({ _id: round, ...fields }, { writeConcern: { w: 3 } });
            const { _id, ...stamps } = await coll.findOne({ _id: round });
            seen.push(...Object.values(stamps).map((stamp) => stamp.toBigInt()));
            if (round < 2) await set.stepDown({ secs: 1 });
        }
        assert.equal(seen.length, 600);
        for (let i = 1; i < seen.length; i++) assert.ok(seen[i] > seen[i - 1], `${i}`);
    } finally {
        await set.remove();
    }
});
