/* Cluster parameters: settings of a whole replica set, or of a sharded cluster, kept in config.clusterParameters. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Long, Timestamp } from 'mongodb';
import { startCluster, startShard } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { startServer, waitFor } from '../lib/server.mjs';

const NAME = 'changeStreamOptions';

describe('cluster parameters of three members', () => {
    let set, client, admin;
    before(async () => {
        set = await startReplicaSet();
        client = await set.client();
        admin = client.db('admin');
    });
    after(async () => await set?.remove());

    const put = async (value) => set.command(await set.waitForPrimary(), { setClusterParameter: { [NAME]: value } });
    const seconds = (expireAfterSeconds) => ({ preAndPostImages: { expireAfterSeconds } });
    const get = async (member, which = NAME) =>
        (await set.command(member, { getClusterParameter: which })).clusterParameters;
    const isEverywhere = (expireAfterSeconds) =>
        waitFor(
            async () => {
                for (const member of set.members) {
                    const [{ preAndPostImages }] = await get(member);
                    if (preAndPostImages.expireAfterSeconds !== expireAfterSeconds) return false;
                }
                return true;
            },
            { timeoutMs: 30_000, what: `${expireAfterSeconds} on all members` },
        );

    test('REP-5: one that was never set has its default on every member', async () => {
        for (const member of set.members) {
            const wanted = [{ _id: NAME, clusterParameterTime: new Timestamp(0n), ...seconds('off') }];
            for (const which of [NAME, [NAME], '*']) assert.deepEqual(await get(member, which), wanted);
        }
    });

    test('REP-5: a change reaches every member, survives restart, fail-over and an initial sync', { timeout: 120_000 }, async () => {
        await put(seconds(100));
        await isEverywhere(100);
        const [{ clusterParameterTime }] = await get(set.members[0]);
        assert.ok(clusterParameterTime.greaterThan(new Timestamp(0n)));
        const stored = await client.db('config').collection('clusterParameters').find({}, { promoteLongs: false }).toArray();
        assert.deepEqual(stored, [{ _id: NAME, clusterParameterTime, preAndPostImages: { expireAfterSeconds: Long.fromNumber(100) } }]);
        await set.stepDown();
        await put(seconds(200));
        await isEverywhere(200);
        const [member] = await set.secondaries();
        await member.stop();
        rmSync(member.dbpath, { recursive: true });
        await member.start();
        await set.waitForSecondaries();
        await isEverywhere(200);
        await put(seconds('off'));
        await isEverywhere('off');
    });

    test('REP-5: what cannot be set is refused and changes nothing', async () => {
        await fails(() => put({}), 2);
        await fails(() => put({ preAndPostImages: {} }), 2);
        await fails(() => put(seconds('unknown')), 2);
        await fails(() => put(seconds(-1)), 2);
        await fails(() => put(seconds(0)), 2);
        await fails(() => put(seconds({})), 14);
        await fails(() => put({ preAndPostImages: 1 }), 14);
        await fails(() => put({ ...seconds(1), other: 1 }), 40415);
        await fails(() => put(5), 20);
        const set1 = { setClusterParameter: { nonexistent: { a: 1 } } };
        await fails(() => admin.command(set1), 20);
        await fails(() => admin.command({ getClusterParameter: 'nonexistent' }), 4);
        await fails(() => admin.command({ getClusterParameter: [NAME, 'nonexistent'] }), 4);
        await fails(() => admin.command({ getClusterParameter: [] }), 2);
        await fails(() => client.db('test').command({ getClusterParameter: NAME }), 13);
        await fails(() => client.db('test').command(set1), 13);
        const [secondary] = await set.secondaries();
        await fails(() => set.command(secondary, { setClusterParameter: { [NAME]: seconds(1) } }), 10107);
        await isEverywhere('off');
    });
});

test('REP-5: a standalone node has no cluster parameters', async () => {
    const server = await startServer();
    try {
        const admin = (await server.client()).db('admin');
        const value = { preAndPostImages: { expireAfterSeconds: 10 } };
        await fails(() => admin.command({ setClusterParameter: { [NAME]: value } }), 20);
        await fails(() => admin.command({ getClusterParameter: NAME }), 20);
    } finally {
        await server.remove();
    }
});

describe('cluster parameters of a sharded cluster', () => {
    let cluster, client, admin;
    before(async () => {
        cluster = await startCluster({ shards: 2, routers: 2 });
        client = await cluster.client();
        admin = client.db('admin');
    });
    after(async () => await cluster?.remove());

    const value = (expireAfterSeconds) => ({ [NAME]: { preAndPostImages: { expireAfterSeconds } } });
    const put = (seconds) => admin.command({ setClusterParameter: value(seconds), maxTimeMS: 60_000 });
    const here = async (set) => (await set.command(await set.waitForPrimary(), { getClusterParameter: NAME })).clusterParameters[0];
    const isOn = async (set, seconds) => Number((await here(set)).preAndPostImages.expireAfterSeconds) === seconds;

    test('one that is set through a router is the same on the config server, on all shards and for all routers', async () => {
        const [unset] = (await admin.command({ getClusterParameter: NAME })).clusterParameters;
        assert.deepEqual(unset.clusterParameterTime, new Timestamp(0n));
        await put(77);
        const wanted = await here(cluster.config);
        assert.equal(Number(wanted.preAndPostImages.expireAfterSeconds), 77);
        for (const shard of cluster.shards) assert.deepEqual(await here(shard), wanted);
        for (const router of cluster.routers)
            for (const which of [NAME, [NAME], '*']) {
                const other = (await cluster.client({}, router)).db('admin');
                assert.deepEqual((await other.command({ getClusterParameter: which })).clusterParameters, [wanted]);
            }
    });

    test('bad ones are refused and change nothing; nodes of a cluster are not for setting them', async () => {
        await fails(() => admin.command({ setClusterParameter: { nonsense: { a: 1 } } }), 20);
        await fails(() => admin.command({ setClusterParameter: { [NAME]: 1 } }), 20);
        await fails(() => admin.command({ setClusterParameter: { ...value(1), other: {} } }), 72);
        await fails(() => put(-5), 2);
        await fails(() => admin.command({ getClusterParameter: 'nonsense' }), 4);
        for (const set of [cluster.config, ...cluster.shards])
            await fails(() => set.command(set.members[0], { setClusterParameter: value(5) }), 238);
        for (const set of [cluster.config, ...cluster.shards]) assert.ok(await isOn(set, 77));
    });

    test('a shard that was away follows, and one that is added has what was set before', { timeout: 120_000 }, async () => {
        const [first, second] = cluster.shards;
        await second.members[0].stop();
        await assert.rejects(put(88), /shard1/); // stored, and known to the other one
        assert.ok(await isOn(cluster.config, 88));
        assert.ok(await isOn(first, 88));
        await second.members[0].start();
        await waitFor(() => isOn(second, 88), { timeoutMs: 60_000, what: 'the shard to follow' });
        const third = await startShard('shard2');
        try {
            await cluster.admin({ addShard: third.address });
            assert.ok(await isOn(third, 88));
            await waitFor(async () => (await cluster.admin({ removeShard: 'shard2' })).state === 'completed', { what: 'the removal' });
        } finally {
            await third.remove();
        }
    });
});
