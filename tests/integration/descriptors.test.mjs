/*
 * Descriptors: many tables and many connections with few of them. A node may refuse a connection;
 * it may not end, and what is stored goes on working.
 *
 * DESCRIPTORS_FULL=1 runs at full scale: 2,000 collections with 1,024 descriptors, 25,000 silent
 * connections with 20,000.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { SHERD_BIN, startServer, waitFor } from '../lib/server.mjs';
import { SilentClients } from '../lib/silent_clients.mjs';

const FULL = process.env.DESCRIPTORS_FULL === '1';

/* A node whose limit of descriptors is `soft`, and at most `hard`. */
const startLimited = (hard, { soft = hard, args = [] } = {}) =>
    startServer({
        bin: '/usr/bin/prlimit',
        leading: [`--nofile=${soft}:${hard}`, SHERD_BIN, 'serve'],
        args,
    });

const openFiles = ({ pid }) => readdirSync(`/proc/${pid}/fd`).length;

const peakMemoryMb = ({ pid }) =>
    Number(readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmHWM:\s*(\d+) kB/)[1]) / 1024;

const connectionsOf = async (client) =>
    (await client.db('admin').command({ serverStatus: 1 })).connections;

test('a node has more collections than descriptors', async (t) => {
    const [limit, count] = FULL ? [1024, 2000] : [160, 80];
    const server = await startLimited(limit);
    try {
        let client = await server.client();
        let most = 0;
        const each = async (what) => {
            for (let i = 0; i < count; i++) {
                await what(client.db('test').collection(`c${i}`), i);
                if (i % 50 === 0) most = Math.max(most, openFiles(server));
            }
        };
        await each((collection, i) => collection.insertOne({ _id: i }));
        await client.db('admin').command({ fsync: 1 });
        await each((collection, i) => collection.updateOne({ _id: i }, { $set: { seen: true } }));
        await client.db('admin').command({ fsync: 1 });
        assert.ok(most < limit, `${most} descriptors`);
        t.diagnostic(`at most ${most} descriptors, peak memory ${peakMemoryMb(server)} MB`);
        await server.kill(); // what was acknowledged before the checkpoint is there
        await server.start();
        client = await server.client();
        await each(async (collection, i) => {
            assert.deepEqual(await collection.findOne(), { _id: i, seen: true });
        });
    } finally {
        await server.remove();
    }
});

test('silent connections cannot take the descriptors of the database', async (t) => {
    const [limit, count, helpers] = FULL ? [20_000, 25_000, 4] : [400, 700, 1];
    const server = await startLimited(limit);
    const silent = [];
    try {
        const client = await server.client({ maxPoolSize: 1 });
        const before = await connectionsOf(client);
        const total = before.current + before.available;
        assert.ok(total <= limit * 0.8, `${total} connections of ${limit} descriptors`);
        for (let i = 0; i < helpers; i++)
            silent.push(new SilentClients(server.port, count / helpers, `127.0.0.${i + 2}`));
        for (const clients of silent) await clients.waitTried(FULL ? 120_000 : 20_000);
        const closed = () => silent.reduce((sum, clients) => sum + clients.closed, 0);
        await waitFor(async () => (await connectionsOf(client)).rejected === closed(), {
            what: 'every refused connection is closed and counted',
        });
        const during = await connectionsOf(client);
        assert.equal(during.available, 0);
        assert.equal(during.current, total);
        assert.equal(during.totalCreated, before.totalCreated + count - during.rejected);
        assert.ok(openFiles(server) < limit);

        /* New tables, a checkpoint and new journal files all need descriptors. */
        const filler = 'x'.repeat(1_000_000);
        for (let i = 0; i < 30; i++) {
            const collection = client.db('test').collection(`c${i}`);
            await collection.insertOne({ _id: 1, filler });
            await collection.createIndex({ a: 1 });
        }
        await client.db('admin').command({ fsync: 1 });
        for (let i = 0; i < 30; i++)
            assert.equal(await client.db('test').collection(`c${i}`).countDocuments({ _id: 1 }), 1);
        t.diagnostic(`${during.current} connections, peak memory ${peakMemoryMb(server)} MB`);

        const refusals = server.log.filter(({ attr }) => /too many open/.test(attr?.event));
        assert.ok(refusals.length >= 1 && refusals.length <= 30, `${refusals.length} log lines`);
        for (const clients of silent) await clients.end();
        await waitFor(async () => (await connectionsOf(client)).available >= total - 10, {
            timeoutMs: 20_000,
            what: 'connections are available again',
        });
        const other = await server.client();
        assert.equal((await other.db('admin').command({ ping: 1 })).ok, 1);
    } finally {
        for (const clients of silent) await clients.end();
        await server.remove();
    }
});

test('the soft limit of descriptors is raised to the hard one', async () => {
    const server = await startLimited(2000, { soft: 300 });
    try {
        const limits = readFileSync(`/proc/${server.pid}/limits`, 'utf8');
        assert.match(limits, /Max open files\s+2000\s+2000/);
        const { current, available } = await connectionsOf(await server.client());
        assert.equal(current + available, 1600);
    } finally {
        await server.remove();
    }
});

test('maxConns limits connections below what descriptors allow', async () => {
    const server = await startLimited(2000, { args: ['--maxConns', '20'] });
    try {
        const { current, available } = await connectionsOf(await server.client());
        assert.equal(current + available, 20);
    } finally {
        await server.remove();
    }
});

test('a member that clients have filled up is reached by other members', async () => {
    const set = await startReplicaSet({
        members: [{ priority: 2 }, { priority: 0 }, { priority: 0 }],
        args: ['--maxConns', '40'],
    });
    const more = [];
    try {
        const primary = await set.waitForPrimary();
        const client = await set.direct(primary, { maxPoolSize: 2 });
        const collection = client.db('test').collection('c');
        await collection.insertOne({ _id: 0 }, { writeConcern: { w: 3 } });
        more.push(new SilentClients(primary.port, 100));
        await more[0].waitTried();
        await waitFor(async () => (await connectionsOf(client)).available === 0);
        /* They have to connect anew, and what they had before is taken by others. */
        const others = set.members.filter((member) => member !== primary);
        for (const member of others) await member.kill();
        more.push(new SilentClients(primary.port, 40));
        await more[1].waitTried();
        for (const member of others) await member.start();
        /* It may have lost its majority for too long. */
        const hello = () => client.db('admin').command({ hello: 1 });
        await waitFor(async () => (await hello()).isWritablePrimary, { timeoutMs: 20_000 });
        await collection.insertOne({ _id: 1 }, { writeConcern: { w: 3, wtimeout: 15_000 } });
        /* Those who say nothing are not kept. */
        const open = () => more.reduce((sum, clients) => sum + clients.open, 0);
        await waitFor(() => open() <= 40, { what: 'no more clients than allowed' });
        assert.ok((await connectionsOf(client)).rejected >= 140 - 40);
    } finally {
        for (const clients of more) await clients.end();
        await set.remove();
    }
});
