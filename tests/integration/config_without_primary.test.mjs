/*
 * Goal (RTE-2, RTE-4, OPS-1): while the config server has no primary, metadata cannot change, and everything else works: routers that run,
 * routers that start, shards that have to read metadata. And how a config server and shards with arbiters come to be.
 *
 * Method: two of three members of the config server are killed; times are bounded, since the usual failure is to wait.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startCluster, startConfigServer, startShard } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';

describe('a config server without a primary', () => {
    let cluster;
    let client;
    before(async () => {
        cluster = await startCluster({ configMembers: 3 });
        client = await cluster.client();
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
        await cluster.admin({ shardCollection: 'd.spread', key: { k: 'hashed' } });
        await client.db('d').collection('spread').insertMany([...Array(20).keys()].map((k) => ({ k })));
        await client.db('d').collection('plain').insertOne({ a: 1 });
    });
    after(() => cluster?.remove());

    const works = async (db) => {
        const before = await db.collection('spread').countDocuments({}, { maxTimeMS: 8000 });
        await db.collection('spread').insertOne({ k: before }, { maxTimeMS: 8000 });
        assert.equal(await db.collection('spread').countDocuments({}, { maxTimeMS: 8000 }), before + 1);
        await db.collection('plain').updateOne({ a: 1 }, { $inc: { n: 1 } });
        assert.equal((await db.collection('plain').find({}, { maxTimeMS: 8000 }).toArray()).length, 1);
    };

    test('routers that run and routers that start serve reads and writes; metadata are read on secondaries', { timeout: 120_000 }, async () => {
        const primary = await cluster.config.waitForPrimary();
        for (const member of cluster.config.members.filter((other) => other !== primary)) await member.kill();
        await waitFor(async () => (await cluster.config.hello(primary))?.secondary === true, { what: 'the end of its term' });
        await works(client.db('d'));
        await cluster.admin({ flushRouterConfig: 1 });
        await works(client.db('d'));
        const late = await cluster.addRouter();
        await works((await cluster.client({}, late)).db('d'));
        const reader = await cluster.client({ readPreference: 'secondary' }, late);
        assert.equal((await reader.db('config').collection('shards').find().toArray()).length, 2);
        for (const member of cluster.config.members) if (member !== primary) await member.start();
        await cluster.config.waitForPrimary();
    });
});

describe('sets that join', () => {
    const OPERATION_FAILED = 96;
    const INCOMPATIBLE = 103;

    test('OPS-1: a config server need not be told in its configuration that it is one', async () => {
        const config = await startConfigServer({ config: {} });
        try {
            const { config: known } = await config.command(config.members[0], { replSetGetConfig: 1 });
            assert.equal(known.configsvr, true);
        } finally {
            await config.remove();
        }
    });

    test('a shard with an arbiter is added, and reconfigured, only if the cluster has a default write concern', { timeout: 120_000 }, async () => {
        const cluster = await startCluster({ shards: 0 });
        const shard = await startShard('arbiters', { members: [{}, {}, { arbiterOnly: true }] });
        try {
            await fails(cluster.admin({ addShard: shard.address }), OPERATION_FAILED);
            const primary = await shard.waitForPrimary();
            const { config } = await shard.command(primary, { replSetGetConfig: 1 });
            const without = { ...config, version: config.version + 1, members: config.members.filter(({ arbiterOnly }) => !arbiterOnly) };
            await fails(shard.command(primary, { replSetReconfig: without }), INCOMPATIBLE);
            await cluster.admin({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 'majority' } });
            await cluster.admin({ addShard: shard.address });
            await (await cluster.client()).db('d').collection('c').insertOne({});
            /* An arbiter, which has no entries, tells what the others have agreed on. */
            const [, , arbiter] = shard.members;
            await waitFor(
                async () => {
                    const { optimes } = await shard.command(arbiter, { replSetGetStatus: 1 });
                    return optimes.lastCommittedOpTime.t >= 1 && optimes.appliedOpTime.ts.equals(optimes.lastCommittedOpTime.ts);
                },
                { what: 'the position of the arbiter' },
            );
            await shard.command(primary, { replSetReconfig: without });
        } finally {
            await Promise.all([cluster.remove(), shard.remove()]);
        }
    });

    test('a set whose default write concern is not that of the cluster is not added', { timeout: 120_000 }, async () => {
        const cluster = await startCluster({ shards: 0 });
        const shard = await startShard('own', { members: 1 });
        try {
            const direct = await shard.direct(shard.members[0]);
            /* As it was set before the set was started as a shard. */
            const own = { _id: 'ReadWriteConcernDefaults', defaultWriteConcern: { w: 1, wtimeout: 0 } };
            await direct.db('config').collection('settings').insertOne(own);
            await fails(cluster.admin({ addShard: shard.address }), OPERATION_FAILED);
            await cluster.admin({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 'majority' } });
            await fails(cluster.admin({ addShard: shard.address }), OPERATION_FAILED);
            await cluster.admin({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 1 } });
            await cluster.admin({ addShard: shard.address });
        } finally {
            await Promise.all([cluster.remove(), shard.remove()]);
        }
    });
});
