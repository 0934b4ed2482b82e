/*
 * Goal (MIG-1, MIG-4, DDL-3): a movePrimary whose primaries, of the old or of the new shard, die by kill -9 is completed or taken back by
 * the next primaries; nothing that was acknowledged is lost, nobody sees less than before, all members agree.
 *
 * Method: shards of three members. At each point the primary ends there and stays away until another one has finished the move;
 * meanwhile clients of two routers write documents with ids of their own, and read.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { waitFor } from '../lib/server.mjs';

const SETTLE_MS_MAX = 60_000;
const POINTS = [
    [0, 'movePrimary.clone'],
    [1, 'movePrimary.copyInserted'],
    [0, 'movePrimary.enterCritSec'],
    [1, 'movePrimary.copyInserted'],
    [0, 'movePrimary.commit'],
    [0, 'movePrimary.clean'],
    [0, 'movePrimary.exitCritSec'],
];

describe('movePrimary survives fail-overs', () => {
    let cluster;
    let clients;
    let config;
    let from = 0; // the shard that has the database
    let isOver = false;
    const acknowledged = new Set();
    const coll = (client) => client.db('d').collection('log');

    async function write(client, name) {
        for (let n = 0; !isOver; n++) {
            const _id = `${name} ${n}`;
            try {
                await coll(client).insertOne({ _id, pad: 'x'.repeat(100) }, { writeConcern: { w: 'majority' } });
                acknowledged.add(_id);
            } catch (error) {
                if (error.code === 11000) acknowledged.add(_id); // it was done the first time
            }
        }
    }

    async function read(client) {
        let reads = 0;
        while (!isOver) {
            const least = acknowledged.size;
            const count = await coll(client)
                .find({}, { projection: { _id: 1 }, readConcern: { level: 'majority' }, batchSize: 1_000_000 })
                .toArray()
                .then((docs) => docs.length, () => null);
            if (count === null) continue; // a primary was away
            assert.ok(count >= least, `${count} documents, ${least} were there`);
            reads++;
        }
        return reads;
    }

    async function settle() {
        for (const shard of cluster.shards) {
            const primary = await shard.waitForPrimary();
            const own = (await shard.direct(primary)).db('config');
            await waitFor(async () => (await own.collection('system.sharding_ddl_coordinators').countDocuments()) === 0, {
                timeoutMs: SETTLE_MS_MAX,
                what: `the coordinators of ${shard.name} to end`,
            });
        }
    }

    before(async () => {
        cluster = await startCluster({ routers: 2, members: 3 });
        clients = await Promise.all(cluster.routers.map((router) => cluster.client({}, router)));
        config = clients[0].db('config');
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
        await coll(clients[0]).createIndex({ pad: 1, _id: 1 });
    });
    after(() => cluster?.remove());

    test('MIG-4: at each point, under load', { timeout: 590_000 }, async () => {
        const work = clients.flatMap((client, i) => [write(client, `a${i}`), write(client, `b${i}`), read(client)]);
        const watched = Promise.all(work);
        watched.catch(() => {});
        try {
            for (const [side, point] of POINTS) {
                const to = 1 - from;
                const set = cluster.shards[side === 0 ? from : to];
                const primary = await set.waitForPrimary();
                await set.command(primary, { configureFailPoint: point, mode: { times: 1 }, data: { crash: true } });
                const command = { movePrimary: 'd', to: `shard${to}` };
                const outcome = cluster.admin(command).catch((error) => error);
                await waitFor(() => !primary.isRunning(), { timeoutMs: 30_000, what: `a crash at ${point}` });
                await primary.waitEnd();
                await set.waitForPrimary({ other: primary });
                await outcome;
                await settle();
                await primary.start();
                const { primary: at } = await config.collection('databases').findOne({ _id: 'd' });
                console.log(`# ${point} on ${set.name}: ${at === `shard${to}` ? 'moved' : 'not moved'}, ${acknowledged.size} written`);
                if (at !== `shard${to}`) await cluster.admin(command);
                from = to;
                await settle();
            }
        } finally {
            isOver = true;
        }
        const reads = (await watched).filter((count) => count !== undefined);
        assert.ok(reads.every((count) => count > 0));
        const found = new Set((await coll(clients[1]).find({}, { projection: { _id: 1 } }).toArray()).map(({ _id }) => _id));
        const lost = [...acknowledged].filter((id) => !found.has(id));
        assert.deepEqual(lost, []);
        assert.ok(acknowledged.size > 100, `${acknowledged.size} were written`);
        const { cursor } = await clients[0].db('d').command({ checkMetadataConsistency: 1 });
        assert.deepEqual(cursor.firstBatch, []);
        const [old] = cluster.shards.filter((_, i) => i !== from);
        const left = await (await old.direct(await old.waitForPrimary())).db('d').listCollections().toArray();
        assert.deepEqual(left, []);
    });
});
