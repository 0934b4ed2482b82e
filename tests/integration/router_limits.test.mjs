/*
 * Goal (DOC-1, NET-1): documents of the largest size go through a router as through a node; and a router that has no descriptor left
 * answers again as soon as it has some.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { BSON } from 'mongodb';
import { makeRouter, startCluster } from '../lib/cluster.mjs';
import { SHERD_BIN, waitFor } from '../lib/server.mjs';
import { SilentClients } from '../lib/silent_clients.mjs';

const DOCUMENT_MAX = 16 * 1024 * 1024;
const BAD_VALUE = 2;
const UPDATE_TOO_LARGE = 17419;

const sizeOf = (doc) => BSON.calculateObjectSize(doc);
/* The document with a last string `p` so long that the whole has `size` bytes. */
const sized = (size, doc) => ({ ...doc, p: 'x'.repeat(size - sizeOf({ ...doc, p: '' })) });
const failsWith = (promise, code) =>
    assert.rejects(promise, (error) => {
        assert.equal(error.code, code, error.message);
        return true;
    });

describe('limits of a router', () => {
    let cluster;
    let client;

    before(async () => {
        cluster = await startCluster({ cacheGB: 0.5 });
        client = await cluster.client();
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
        await cluster.admin({ shardCollection: 'd.sharded', key: { k: 'hashed' } });
    });
    after(() => cluster?.remove());

    for (const name of ['sharded', 'plain'])
        test(`DOC-1: documents of 16 MB, ${name}`, { timeout: 120_000 }, async () => {
            const coll = client.db('d').collection(name);
            const docs = [0, 1, 2].map((k) => sized(DOCUMENT_MAX, { _id: k, k }));
            for (const doc of docs) await coll.insertOne(doc);
            await failsWith(coll.insertOne(sized(DOCUMENT_MAX + 1, { _id: 9, k: 9 })), BAD_VALUE);
            for (const { k, p } of docs) assert.equal((await coll.findOne({ k })).p.length, p.length);
            const found = await coll.find().toArray(); // of all shards, a batch each
            assert.deepEqual(found.map(({ _id }) => _id).sort(), [0, 1, 2]);
            assert.ok(found.every((doc) => sizeOf(doc) === DOCUMENT_MAX));
            const sorted = await coll.find().sort({ k: -1 }).project({ p: 0 }).toArray();
            assert.deepEqual(sorted.map(({ _id }) => _id), [2, 1, 0]);
            const before = await coll.findOneAndUpdate({ k: 1 }, { $set: { p: 'short' } });
            assert.equal(sizeOf(before), DOCUMENT_MAX);
            await failsWith(coll.updateOne({ k: 2 }, { $set: { more: 1 } }), UPDATE_TOO_LARGE);
            assert.equal((await coll.replaceOne({ k: 1 }, sized(DOCUMENT_MAX, { _id: 1, k: 1 }))).modifiedCount, 1);
            assert.equal((await coll.deleteMany({})).deletedCount, 3);
        });

    test('NET-1: a router without free descriptors answers again when there are some', { timeout: 120_000 }, async () => {
        const router = makeRouter(cluster.config.address, {
            bin: '/usr/bin/prlimit',
            leading: ['--nofile=120:120', SHERD_BIN, 'route'],
        });
        let silent;
        try {
            await router.start();
            const first = await router.client({ maxPoolSize: 1 });
            await cluster.admin({ shardCollection: 'd.counted', key: { k: 'hashed' } });
            const coll = (who) => who.db('d').collection('counted');
            await coll(first).insertMany(Array.from({ length: 20 }, (_, k) => ({ k })));
            silent = new SilentClients(router.port, 300);
            await silent.waitTried(20_000);
            /* Who is in stays in; what it asks may need connections that cannot be made now. */
            const outcomes = await Promise.allSettled(Array.from({ length: 10 }, () => coll(first).countDocuments()));
            for (const { status, value, reason } of outcomes)
                assert.ok(status === 'fulfilled' ? value === 20 : reason.code !== undefined || reason.name.startsWith('Mongo'), String(reason));
            assert.ok(router.isRunning());
            await silent.end();
            silent = undefined;
            const isServing = async () => {
                const fresh = await router.client({ serverSelectionTimeoutMS: 2000 });
                return (await coll(fresh).countDocuments()) === 20;
            };
            await waitFor(() => isServing().catch(() => false), { timeoutMs: 20_000, what: 'a router that answers again' });
            assert.equal((await coll(first).find().toArray()).length, 20);
        } finally {
            await silent?.end();
            await router.remove();
        }
    });

    test('NET-1: the same when the limit falls below what is open, and rises again', { timeout: 120_000 }, async () => {
        const router = await makeRouter(cluster.config.address).start();
        const setLimit = (soft) => execFileSync('prlimit', ['--pid', String(router.pid), `--nofile=${soft}:`]);
        try {
            await cluster.admin({ shardCollection: 'd.starved', key: { k: 'hashed' } });
            const coll = (who) => who.db('d').collection('starved');
            const first = await router.client({ maxPoolSize: 1 });
            await coll(first).insertMany(Array.from({ length: 20 }, (_, k) => ({ k })));
            setLimit(readdirSync(`/proc/${router.pid}/fd`).length);
            assert.equal(await coll(first).countDocuments(), 20); // by the connections that are there
            /* Others come, and wait at the door. */
            const late = router.client({ serverSelectionTimeoutMS: 60_000, connectTimeoutMS: 60_000 });
            const crowd = Array.from({ length: 20 }, () => coll(first).countDocuments());
            const refused = router.client({ serverSelectionTimeoutMS: 1000, connectTimeoutMS: 1000 });
            await assert.rejects(refused.then((who) => coll(who).countDocuments()));
            assert.ok(router.isRunning());
            for (const { status, value } of await Promise.allSettled(crowd)) if (status === 'fulfilled') assert.equal(value, 20);
            setLimit(1024);
            assert.equal(await coll(await late).countDocuments(), 20);
            assert.equal(await coll(first).countDocuments(), 20);
            const many = await router.client({ maxPoolSize: 20 });
            const counts = await Promise.all(Array.from({ length: 20 }, () => coll(many).countDocuments()));
            assert.deepEqual(counts, Array(20).fill(20));
        } finally {
            await router.remove();
        }
    });
});
