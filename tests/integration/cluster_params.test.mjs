/* Cluster parameters: settings of a whole replica set, kept in config.clusterParameters. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Long, Timestamp } from 'mongodb';
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
