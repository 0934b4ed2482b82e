/*
 * Goal (MIG-3, RNG-1): a range for which the recipient has no room is given up and says so; nothing is lost, what had come is deleted, and
 * the same move succeeds once there is room. Method: one shard on a small disk of its own.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { Cluster, startShard } from '../lib/cluster.mjs';
import { checkMovesOver } from '../lib/move_load.mjs';
import { waitFor } from '../lib/server.mjs';
import { SmallDisk } from '../lib/small_disk.mjs';

const MB = 1 << 20;
const DOCS = 800; // of 100 KB
const disk = new SmallDisk(512);
const options = { skip: disk.obstacle ?? false, timeout: 180_000 };
let cluster = null;
let coll;
let small;

before(async () => {
    if (disk.obstacle !== null) return;
    cluster = await new Cluster({ shards: 1, cacheGB: 1 }).start();
    small = await startShard('small', { args: ['--syncdelay', '2'], server: { dbpath: disk.path('db') } });
    cluster.shards.push(small);
    await cluster.admin({ addShard: small.address });
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    await cluster.admin({ shardCollection: 'd.c', key: { _id: 1 } });
    await small.command(small.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });
    coll = (await cluster.client()).db('d').collection('c');
    for (let i = 0; i < DOCS; i += 100)
        await coll.insertMany(Array.from({ length: 100 }, (_, k) => ({ _id: i + k, noise: randomBytes(100_000) })));
});
after(async () => {
    await cluster?.remove();
    disk.remove();
});

const move = () => cluster.admin({ moveRange: 'd.c', min: { _id: 0 }, max: { _id: DOCS }, toShard: 'small', forceJumbo: true });
const countOnSmall = async () => (await small.direct(small.members[0])).db('d').collection('c').estimatedDocumentCount();

test('MIG-3: a recipient whose disk fills gives the move up, and says why', options, async () => {
    disk.leave('ballast', 100 * MB);
    await assert.rejects(move(), /disk|room|space/i);
    assert.equal(await coll.countDocuments(), DOCS);
    await coll.updateOne({ _id: 1 }, { $set: { n: 1 } });
    assert.ok(small.members[0].isRunning());
});

test('RNG-1: what had come is deleted, and the move succeeds once there is room', options, async () => {
    disk.free('ballast');
    await waitFor(async () => (await countOnSmall()) === 0, { timeoutMs: 60_000, what: 'an empty shard' });
    await waitFor(() => move().then(() => true, () => false), { timeoutMs: 60_000, what: 'a move' });
    assert.equal(await countOnSmall(), DOCS);
    assert.equal(await coll.countDocuments(), DOCS);
    assert.equal(await coll.countDocuments({ n: 1 }), 1);
    await checkMovesOver(cluster, waitFor);
});
