/*
 * Goal: connPoolStats tells of the connections from a node to others. Method: a standalone node,
 * which has none, and a set of three, whose members talk to each other.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { startServer, waitFor } from '../lib/server.mjs';

const TOTALS = ['totalInUse', 'totalAvailable', 'totalCreated', 'totalRefreshing', 'totalRefreshed', 'totalWasNeverUsed'];
const OF_HOST = ['inUse', 'available', 'created', 'refreshing', 'refreshed', 'wasNeverUsed'];

describe('connPoolStats', () => {
    let set;
    before(async () => {
        set = await startReplicaSet({ members: 3 });
    });
    after(() => set.remove());

    test('a standalone node has no connections to others', async () => {
        const server = await startServer();
        try {
            const client = await server.client();
            const stats = await client.db('test').command({ connPoolStats: 1 });
            for (const name of TOTALS) assert.equal(stats[name], 0, name);
            assert.deepEqual(stats.hosts, {});
            assert.deepEqual(stats.replicaSets, {});
            assert.equal(stats.numClientConnections, 0);
        } finally {
            await server.remove();
        }
    });

    test('a member keeps connections to the others and uses them again', async () => {
        const [secondary] = await set.secondaries();
        const direct = await set.direct(secondary);
        const stats = () => direct.db('admin').command({ connPoolStats: 1 });
        /* The fetcher has a connection of its own. */
        const isSettled = ({ hosts, numClientConnections }) =>
            Object.keys(hosts).length === 2 && numClientConnections === 1;
        await waitFor(async () => isSettled(await stats()), { timeoutMs: 20_000, what: 'both other members' });
        const first = await stats();
        for (const host of Object.values(first.hosts)) assert.deepEqual(Object.keys(host), OF_HOST);
        const [pool] = Object.values(first.pools);
        assert.equal(pool.poolCreated, first.totalCreated);
        const sum = (name) => Object.values(first.hosts).reduce((all, host) => all + host[name], 0);
        assert.equal(sum('created'), first.totalCreated);
        assert.ok(first.totalCreated >= 2);
        /* Heartbeats and reports go on, on the same connections. */
        const heartbeats = async () =>
            (await direct.db('admin').command({ replSetGetStatus: 1 })).members
                .map(({ lastHeartbeatRecv }) => Number(lastHeartbeatRecv ?? 0))
                .sort()
                .join();
        const before = await heartbeats();
        await waitFor(async () => (await heartbeats()) !== before, { what: 'further heartbeats' });
        assert.ok((await stats()).totalCreated <= first.totalCreated + 2);
        await direct.close();
    });

    test('one connection to each other member is enough when no more are allowed', async () => {
        const narrow = await startReplicaSet({ members: 3, args: ['--setParameter', 'connPoolMaxConnsPerHost=1'] });
        try {
            const primary = await narrow.client();
            for (let i = 0; i < 20; i++)
                await primary.db('test').collection('c').insertOne({ i }, { writeConcern: { w: 3, wtimeoutMS: 20_000 } });
            const [secondary] = await narrow.secondaries();
            const direct = await narrow.direct(secondary);
            const { hosts } = await direct.db('admin').command({ connPoolStats: 1 });
            for (const [name, host] of Object.entries(hosts))
                assert.ok(host.inUse + host.available + host.refreshing <= 1, name);
            await direct.close();
        } finally {
            await narrow.remove();
        }
    });
});
