/*
 * Goal (RTE-2, RTE-3): a primary that dies between two writes of the routing table it stores for its secondaries leaves nothing that anybody
 * believes: reads on the next primary and on secondaries are complete right afterwards. A primary that hangs holds nobody up beyond
 * his deadline.
 *
 * Method: one row per border; the primary of a shard ends there by a failpoint while it refreshes.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { waitFor } from '../lib/server.mjs';

const MAX_TIME_MS_EXPIRED = 50;
const DOCS = 40;

describe('refreshes of a shard of three', () => {
    let cluster;
    let client;
    let secondary; // the same, reading from secondaries
    let shard; // not the primary shard of the database
    let number = 0;

    before(async () => {
        cluster = await startCluster({ members: 3 });
        client = await cluster.client();
        secondary = await cluster.client({ readPreference: 'secondary' });
        [, shard] = cluster.shards;
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    });
    after(() => cluster?.remove());

    const names = (name) => ({ ns: `d.${name}`, coll: client.db('d').collection(name) });
    const flush = (member, ns) => shard.command(member, { _flushRoutingTableCacheUpdates: ns, syncFromConfig: true });

    /* A sharded collection that both shards have stored, with documents on both. */
    async function fill() {
        const { ns, coll } = names(`c${number++}`);
        await cluster.admin({ shardCollection: ns, key: { k: 'hashed' } });
        await coll.insertMany(Array.from({ length: DOCS }, (_, k) => ({ _id: k, k })), { writeConcern: { w: 3 } });
        await flush(await shard.waitForPrimary(), ns);
        return { ns, coll };
    }

    /* The primary ends at the border while it refreshes. */
    async function killAt(border, ns) {
        const primary = await shard.waitForPrimary();
        const command = { configureFailPoint: 'placement.storing', mode: 'alwaysOn', data: { at: border, crash: true } };
        await shard.command(primary, command);
        const outcome = await flush(primary, ns).then(
            () => 'done',
            () => 'failed',
        );
        assert.equal(outcome, 'failed', `nobody comes to ${border}`);
        await waitFor(() => !primary.isRunning(), { what: 'the end of the primary' });
        return primary;
    }

    async function check({ coll }, count = DOCS) {
        const read = (who) => who.db('d').collection(coll.collectionName).find({}, { projection: { _id: 1 } }).toArray();
        const [first, second] = await Promise.all([read(client), read(secondary)]); // at once, whoever is primary
        assert.deepEqual([first.length, second.length], [count, count]);
        await coll.updateMany({}, { $inc: { n: 1 } });
        assert.equal(await coll.countDocuments({ n: { $gte: 1 } }), count);
    }

    async function restart(member, ns) {
        await member.start();
        await shard.waitForSecondaries();
        await flush(await shard.waitForPrimary(), ns);
        await shard.waitForReplication();
        const stored = new Set();
        for (const each of shard.members) {
            const config = (await shard.direct(each)).db('config');
            const entry = await config.collection('cache.collections').findOne({ _id: ns });
            assert.notEqual(entry?.refreshing, true);
            stored.add(JSON.stringify([entry, await config.collection(`cache.chunks.${ns}`).find().sort({ _id: 1 }).toArray()]));
        }
        assert.equal(stored.size, 1, 'all members have stored the same');
    }

    for (const border of ['begun', 'cleared', 'chunk', 'batch', 'chunksWritten', 'done'])
        test(`a kill after a split, at ${border}`, { timeout: 120_000 }, async () => {
            const world = await fill();
            const { uuid } = await client.db('config').collection('collections').findOne({ _id: world.ns });
            const chunks = client.db('config').collection('chunks', { promoteLongs: false });
            const { min, max } = await chunks.findOne({ uuid, shard: 'shard1' });
            await cluster.admin({ split: world.ns, bounds: [min, max] });
            const killed = await killAt(border, world.ns);
            await check(world);
            await restart(killed, world.ns);
            await check(world);
        });

    for (const border of ['begun', 'cleared', 'batch', 'chunksWritten', 'done'])
        test(`a kill after the collection was sharded anew, at ${border}`, { timeout: 120_000 }, async () => {
            const world = await fill();
            const primary = await shard.waitForPrimary();
            /* What is stored is of the generation before, as on a shard that nobody has asked since. */
            await world.coll.drop();
            const arm = { configureFailPoint: 'placement.storing', mode: 'alwaysOn', data: { at: border, crash: true } };
            await shard.command(primary, arm);
            await cluster.admin({ shardCollection: world.ns, key: { k: 'hashed' } }).catch(() => {});
            const outcome = primary.isRunning() && (await flush(primary, world.ns).then(() => 'done', () => 'failed'));
            assert.notEqual(outcome, 'done', `nobody comes to ${border}`);
            await waitFor(() => !primary.isRunning(), { what: 'the end of the primary' });
            await shard.waitForPrimary({ other: primary });
            await cluster.admin({ shardCollection: world.ns, key: { k: 'hashed' } });
            await world.coll.insertMany(Array.from({ length: DOCS }, (_, k) => ({ _id: k, k })), { writeConcern: { w: 2 } });
            await check(world);
            await restart(primary, world.ns);
            await check(world);
        });

    for (const border of ['entryDeleted', 'chunksDropped'])
        test(`a kill after the collection was dropped, at ${border}`, { timeout: 120_000 }, async () => {
            const world = await fill();
            await world.coll.drop();
            const primary = await shard.waitForPrimary();
            const config = (await shard.direct(primary)).db('config');
            if ((await config.collection('cache.collections').findOne({ _id: world.ns })) === null) return; // it knows already
            const killed = await killAt(border, world.ns);
            await check(world, 0);
            await restart(killed, world.ns);
            await check(world, 0);
        });

    test('a primary that hangs holds up no read of a secondary beyond its deadline', { timeout: 120_000 }, async () => {
        const world = await fill();
        const primary = await shard.waitForPrimary();
        const others = shard.members.filter((member) => member !== primary);
        for (const member of others) await member.restart(); // they know nothing, and have to ask
        await shard.waitForSecondaries();
        primary.signal('SIGSTOP');
        try {
            const coll = secondary.db('d').collection(world.coll.collectionName);
            for (let i = 0; i < 3; i++) {
                const start = performance.now();
                await coll.find({}, { maxTimeMS: 1000 }).toArray().catch((error) => {
                    assert.equal(error.code, MAX_TIME_MS_EXPIRED, error.message);
                });
                assert.ok(performance.now() - start < 5000, `${performance.now() - start} ms`);
            }
            await shard.waitForPrimary({ other: primary });
            assert.equal((await coll.find().toArray()).length, DOCS); // by the next primary
        } finally {
            primary.signal('SIGCONT');
        }
        await shard.waitForSecondaries();
        await check(world);
    });
});
