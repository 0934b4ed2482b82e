/*
 * Goal (MIG-1, MIG-2, RNG-3, RNG-5): ranges move while clients read and write; nothing is lost, doubled, or shown by a shard that does
 * not own it; what is left behind is deleted once nobody reads it.
 *
 * MOVE_ROUNDS: moves under load (12). MOVE_LARGE: size of the largest document (16 MB). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { MaxKey, MinKey, UUID } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails, random, seedOfRun } from '../lib/expect.mjs';
import { KEYS, MoveLoad, checkMovesOver, checkPlaces } from '../lib/move_load.mjs';
import { waitFor } from '../lib/server.mjs';

const LARGE = Number(process.env.MOVE_LARGE ?? 16 * 1024 * 1024);
const ROUNDS = Number(process.env.MOVE_ROUNDS ?? 12);
const seed = seedOfRun();
const rand = random(seed);

let cluster;
let client;
let other;
before(async () => {
    cluster = await startCluster({ routers: 2, cacheGB: 1 });
    client = await cluster.client();
    other = await cluster.client({}, cluster.routers[1]);
    for (const shard of cluster.shards)
        await shard.command(shard.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
});
after(() => cluster?.remove());

const move = (ns, min, toShard, more = {}) => cluster.admin({ moveRange: ns, min, toShard, ...more });
/* False: it is in the way of others for the moment, as a slow machine may find. */
const tryMove = (...how) =>
    move(...how).then(
        () => true,
        (error) => (['ConflictingOperationInProgress', 'OperationFailed', 'ExceededTimeLimit'].includes(error.codeName) ? false : Promise.reject(error)),
    );
const direct = async (shard) => shard.direct(shard.members[0]);
const countOn = async (shard, coll) => (await direct(shard)).db('d').collection(coll).countDocuments();
const chunksOf = async (ns) => {
    const { uuid } = await client.db('config').collection('collections').findOne({ _id: ns });
    return client.db('config').collection('chunks').find({ uuid }, { promoteLongs: false }).sort({ min: 1 }).toArray();
};

async function fill(coll, key, count = 1000) {
    await cluster.admin({ shardCollection: `d.${coll}`, key });
    await client.db('d').collection(coll).insertMany(Array.from({ length: count }, (_, i) => ({ _id: i, k: i, s: `t${i % 7}` })));
}

test('MIG-1: moveRange of a part of a chunk splits it and moves all its documents', async () => {
    await fill('part', { k: 1 });
    await move('d.part', { k: 300 }, 'shard1', { max: { k: 500 }, waitForDelete: true });
    assert.deepEqual(
        (await chunksOf('d.part')).map(({ min, max, shard }) => [min.k, max.k, shard]),
        [
            [new MinKey(), 300, 'shard0'],
            [300, 500, 'shard1'],
            [500, new MaxKey(), 'shard0'],
        ],
    );
    assert.deepEqual([await countOn(cluster.shards[0], 'part'), await countOn(cluster.shards[1], 'part')], [800, 200]);
    const found = await other.db('d').collection('part').find().sort({ k: 1 }).toArray();
    assert.deepEqual(found.map(({ k }) => k), Array.from({ length: 1000 }, (_, i) => i));
    await checkMovesOver(cluster, waitFor);
});

test('MIG-1: after a move both shards read the chunks that have changed, not all of them', async () => {
    await fill('few', { k: 1 });
    for (let k = 10; k < 1000; k += 10) await cluster.admin({ split: 'd.few', middle: { k } });
    await move('d.few', { k: 20 }, 'shard1', { max: { k: 30 } });
    const refreshes = async () => {
        await client.db('d').collection('few').countDocuments(); // by both
        const counts = [];
        for (const shard of cluster.shards) {
            const { shardingStatistics } = await (await direct(shard)).db('admin').command({ serverStatus: 1 });
            counts.push(shardingStatistics.catalogCache);
        }
        return counts;
    };
    const before = await refreshes();
    await move('d.few', { k: 40 }, 'shard1', { max: { k: 50 } });
    for (const [i, after] of (await refreshes()).entries()) {
        assert.equal(after.countFullRefreshesStarted, before[i].countFullRefreshesStarted, `shard${i}`);
        assert.ok(after.countIncrementalRefreshesStarted > before[i].countIncrementalRefreshesStarted, `shard${i}`);
    }
});

test('MIG-1: moveChunk by a document, by bounds, of hashed and compound keys', async () => {
    await fill('hashed', { k: 'hashed' });
    for (const { min, max, shard } of await chunksOf('d.hashed'))
        if (shard === 'shard0') await cluster.admin({ moveChunk: 'd.hashed', bounds: [min, max], to: 'shard1', _waitForDelete: true });
    assert.deepEqual([await countOn(cluster.shards[0], 'hashed'), await countOn(cluster.shards[1], 'hashed')], [0, 1000]);
    assert.equal(await other.db('d').collection('hashed').countDocuments(), 1000);
    await fill('compound', { s: 1, k: 1 });
    await cluster.admin({ split: 'd.compound', middle: { s: 't3', k: new MinKey() } });
    await cluster.admin({ moveChunk: 'd.compound', find: { s: 't5', k: 5 }, to: 'shard1', waitForDelete: true });
    assert.equal(await other.db('d').collection('compound').countDocuments({ s: { $gte: 't3' } }), 1000 - 3 * 143);
    assert.equal(await other.db('d').collection('compound').countDocuments(), 1000);
    await checkMovesOver(cluster, waitFor);
});

test('MIG-2: what cannot be moved is refused, and nothing changes', async () => {
    await fill('refused', { k: 1 }, 10);
    await client.db('d').collection('plain').insertOne({});
    const before_ = await chunksOf('d.refused');
    await fails(() => move('d.refused', { k: 3 }, 'nowhere'), 70);
    await fails(() => move('d.plain', { k: 3 }, 'shard1'), 118);
    await fails(() => move('d.refused', { x: 3 }, 'shard1'), 61);
    await fails(() => cluster.admin({ moveRange: 'd.refused', toShard: 'shard1' }), 72);
    await fails(() => cluster.admin({ moveRange: 'd.refused', toShard: 'shard1', min: { k: 1 }, unknown: 1 }), 40415);
    await fails(() => cluster.admin({ moveChunk: 'd.refused', to: 'shard1', bounds: [{ k: 1 }, { k: 2 }] }), 72);
    await fails(() => cluster.admin({ moveChunk: 'd.refused', to: 'shard1', find: { s: 1 } }), 61);
    await move('d.refused', { k: 3 }, 'shard0'); // is there already
    assert.deepEqual(await chunksOf('d.refused'), before_);
    await checkMovesOver(cluster, waitFor);
});

test('MIG-3: a recipient that hangs does not keep the writers of the donor waiting', { timeout: 180_000 }, async () => {
    await fill('hang', { k: 1 });
    const [donor, recipient] = cluster.shards;
    const hold = { configureFailPoint: 'mig.d.critSecWrites', mode: { times: 1 }, data: { blockTimeMS: 60_000 } };
    const { count } = await donor.command(donor.members[0], hold);
    const moving = tryMove('d.hang', { k: 0 }, 'shard1', { max: { k: 500 } }); // the router may try again, when the time was up
    await donor.command(donor.members[0], { waitForFailPoint: hold.configureFailPoint, timesEntered: Number(count) + 1, maxTimeMS: 60_000 });
    recipient.members[0].signal('SIGSTOP');
    try {
        await donor.command(donor.members[0], { ...hold, mode: 'off' });
        const begun = performance.now();
        await client.db('d').collection('hang').updateOne({ k: 1 }, { $set: { n: 1 } });
        const waited = performance.now() - begun;
        assert.ok(waited > 1000 && waited < 30_000, `a write waited for ${Math.round(waited)} ms`);
    } finally {
        recipient.members[0].signal('SIGCONT');
    }
    await moving;
    await waitFor(() => tryMove('d.hang', { k: 0 }, 'shard1', { max: { k: 500 } }), { timeoutMs: 60_000, what: 'another try' });
    assert.equal(await other.db('d').collection('hang').countDocuments({ n: 1 }), 1);
    assert.equal(await other.db('d').collection('hang').countDocuments(), 1000);
    await checkMovesOver(cluster, waitFor);
});

test('MIG-2: currentOp tells how far a move has come', { timeout: 120_000 }, async () => {
    await cluster.admin({ shardCollection: 'd.shown', key: { k: 1 } });
    const pad = 'x'.repeat(40_000);
    const documents = Array.from({ length: 1000 }, (_, k) => ({ _id: k, k, pad }));
    await client.db('d').collection('shown').insertMany(documents);
    const [, recipient] = cluster.shards;
    const hold = { configureFailPoint: 'mig.r.cloneBatchApplied', mode: { times: 1 }, data: { blockTimeMS: 60_000 } };
    const { count } = await recipient.command(recipient.members[0], hold);
    const moving = move('d.shown', { k: 0 }, 'shard1');
    await recipient.command(recipient.members[0], { waitForFailPoint: hold.configureFailPoint, timesEntered: Number(count) + 1, maxTimeMS: 60_000 });
    const shown = async () => {
        const stages = [{ $currentOp: { allUsers: true } }, { $match: { desc: 'MigrationCoordinators' } }];
        return (await client.db('admin').aggregate(stages).toArray()).find(({ progress }) => progress?.done > 0);
    };
    await waitFor(async () => (await shown()) !== undefined, { timeoutMs: 20_000, what: 'progress of a move' });
    const { phase, progress, shard } = await shown();
    assert.deepEqual([phase, shard, progress.total], ['clone', 'shard0', 1000]);
    assert.ok(progress.done < 1000 && Math.abs(progress.percent - progress.done / 10) < 0.1 && progress.remainingSecs > 0, JSON.stringify(progress));
    await recipient.command(recipient.members[0], { ...hold, mode: 'off' });
    await moving;
});

const failpoint = async (shard, name, mode) => shard.command(shard.members[0], { configureFailPoint: name, mode });

test('MIG-2: a move can be held after each step of the donor and of the recipient, and currentOp shows which', { timeout: 120_000 }, async () => {
    await fill('steps', { k: 1 }, 100);
    const sides = [
        { set: cluster.shards[0], desc: 'MoveChunk', name: 'moveChunkHangAtStep', count: 6 },
        { set: cluster.shards[1], desc: 'migrateThread', name: 'migrateThreadHangAtStep', count: 7 },
    ];
    let min = 0;
    for (const { set, desc, name, count } of sides)
        for (let step = 1; step <= count; step++) {
            await failpoint(set, `${name}${step}`, 'alwaysOn');
            const moved = move('d.steps', { k: min }, 'shard1', { max: { k: ++min } });
            const admin = (await direct(set)).db('admin');
            await waitFor(
                async () => {
                    const ops = await admin.aggregate([{ $currentOp: { allUsers: true } }, { $match: { desc } }]).toArray();
                    return ops.some(({ msg }) => msg === `step ${step} of ${count}`);
                },
                { timeoutMs: 20_000, what: `${desc} to show step ${step}` },
            );
            await failpoint(set, `${name}${step}`, 'off');
            await moved;
        }
    assert.equal(await client.db('d').collection('steps').countDocuments(), 100);
    await checkMovesOver(cluster, waitFor);
    assert.equal(await countOn(cluster.shards[1], 'steps'), min);
});

test('MIG-3: the answer to a commit is lost: the move finds out that it is done', async () => {
    await fill('unheard', { k: 1 }, 100);
    await failpoint(cluster.shards[0], 'migrationCommitNetworkError', { times: 1 });
    await move('d.unheard', { k: 50 }, 'shard1', { max: { k: 60 } });
    assert.deepEqual((await chunksOf('d.unheard')).map(({ shard }) => shard), ['shard0', 'shard1', 'shard0']);
    await checkMovesOver(cluster, waitFor);
    assert.deepEqual([await countOn(cluster.shards[0], 'unheard'), await countOn(cluster.shards[1], 'unheard')], [90, 10]);
});

test('RNG-1: while range deletion is suspended orphans stay, and nobody sees them', async () => {
    const [donor] = cluster.shards;
    await fill('suspended', { k: 1 }, 100);
    const { count } = await failpoint(donor, 'suspendRangeDeletion', 'alwaysOn');
    await move('d.suspended', { k: 0 }, 'shard1', { max: { k: 10 } });
    await donor.command(donor.members[0], { waitForFailPoint: 'suspendRangeDeletion', timesEntered: Number(count) + 1, maxTimeMS: 20_000 });
    const own = (await direct(donor)).db('d').collection('suspended');
    assert.equal(await own.countDocuments({}, { readConcern: { level: 'available' } }), 100);
    assert.equal(await client.db('d').collection('suspended').countDocuments(), 100);
    await failpoint(donor, 'suspendRangeDeletion', 'off');
    await checkMovesOver(cluster, waitFor);
    assert.equal(await own.countDocuments({}, { readConcern: { level: 'available' } }), 90);
});

test('MIG-1: secondaryThrottle has nobody to wait for in sets of one member', async () => {
    await fill('throttled', { k: 1 });
    await move('d.throttled', { k: 0 }, 'shard1', { secondaryThrottle: true });
    assert.equal(await countOn(cluster.shards[1], 'throttled'), 1000);
});

test('RNG-1: orphans are counted until they are deleted', async () => {
    await fill('counted', { k: 1 });
    const [donor] = cluster.shards;
    await donor.command(donor.members[0], { setParameter: 1, disableResumableRangeDeleter: true });
    await client.db('d').collection('counted').deleteMany({ k: { $lt: 10 } });
    await move('d.counted', { k: 0 }, 'shard1', { max: { k: 100 } });
    const orphans = async () => {
        const stages = [{ $collStats: { storageStats: {} } }, { $project: { shard: 1, n: '$storageStats.numOrphanDocs' } }];
        const rows = await client.db('d').collection('counted').aggregate(stages).toArray();
        return Object.fromEntries(rows.map(({ shard, n }) => [shard, n]));
    };
    assert.deepEqual(await orphans(), { shard0: 90, shard1: 0 });
    assert.equal((await client.db('d').command({ collStats: 'counted' })).numOrphanDocs, 90);
    await donor.command(donor.members[0], { setParameter: 1, disableResumableRangeDeleter: false });
    await waitFor(async () => (await orphans()).shard0 === 0, { timeoutMs: 20_000, what: 'orphans to be deleted' });
    assert.equal(await countOn(donor, 'counted'), 900);
});

test('RNG-5: a cursor opened before a move sees what it saw, a new query no orphans; the deleter waits', async () => {
    await fill('cursor', { k: 1 });
    const cursor = client.db('d').collection('cursor').find().sort({ k: 1 }).batchSize(10);
    const seen = [(await cursor.next()).k];
    await move('d.cursor', { k: 0 }, 'shard1');
    assert.equal(await other.db('d').collection('cursor').countDocuments(), 1000);
    assert.equal(await countOn(cluster.shards[0], 'cursor'), 1000, 'nothing is deleted while it is read');
    for await (const { k } of cursor) seen.push(k);
    assert.deepEqual(seen, Array.from({ length: 1000 }, (_, i) => i));
    await checkMovesOver(cluster, waitFor);
    assert.equal(await countOn(cluster.shards[0], 'cursor'), 0);
});

test('RNG-5: a read at an earlier time finds documents where they were then', async () => {
    await fill('past', { k: 1 });
    const { operationTime } = await client.db('d').command({ update: 'past', updates: [{ q: { k: 5 }, u: { $set: { n: 1 } } }] });
    await move('d.past', { k: 0 }, 'shard1', { max: { k: 500 }, waitForDelete: true });
    await client.db('d').collection('past').updateMany({ k: { $gte: 0 } }, { $set: { n: 2 } });
    await client.db('d').collection('past').deleteMany({ k: { $lt: 100 } });
    for (const reader of [client, other]) {
        const then = { readConcern: { level: 'snapshot', atClusterTime: operationTime } };
        const { cursor } = await reader.db('d').command({ find: 'past', batchSize: 2000, sort: { k: 1 }, ...then });
        assert.deepEqual(cursor.firstBatch.map(({ k }) => k), Array.from({ length: 1000 }, (_, i) => i));
        assert.deepEqual(cursor.firstBatch.filter(({ n }) => n !== undefined).map(({ k }) => k), [5]);
    }
    assert.equal(await other.db('d').collection('past').countDocuments({ n: 2 }), 900);
});

test('RNG-1: what a collection has left behind is deleted after it was renamed; cleanupOrphaned waits for that', async () => {
    await fill('old', { k: 1 });
    const [donor] = cluster.shards;
    const setDeleter = (isOff) => donor.command(donor.members[0], { setParameter: 1, disableResumableRangeDeleter: isOff });
    await setDeleter(true);
    await move('d.old', { k: 500 }, 'shard1');
    await client.db('d').collection('old').rename('new');
    assert.equal(await countOn(donor, 'new'), 1000);
    await setDeleter(false);
    await donor.command(donor.members[0], { cleanupOrphaned: 'd.new' });
    await donor.command(donor.members[0], { cleanupOrphaned: 'd.new', startingFromKey: {} });
    const wrong = { cleanupOrphaned: 'd.new', startingFromKey: { other: 1, more: 1 } };
    await assert.rejects(donor.command(donor.members[0], wrong));
    assert.deepEqual([await countOn(donor, 'new'), await countOn(cluster.shards[1], 'new')], [500, 500]);
    assert.equal(await other.db('d').collection('new').countDocuments(), 1000);
    const { shardingStatistics: told } = await donor.command(donor.members[0], { serverStatus: 1 });
    assert.ok(told.countDonorMoveChunkCommitted >= 1 && told.countDocsDeletedByRangeDeleter >= 500, JSON.stringify(told));
});

test('RNG-1: a task that somebody else has written is carried out, by the shard key of its collection', async () => {
    await fill('written', { k: 1 });
    await move('d.written', { k: 500 }, 'shard1', { waitForDelete: true });
    const [donor] = cluster.shards;
    const own = (await direct(donor)).db('d').collection('written');
    await own.insertMany([600, 601, 602].map((k) => ({ _id: k, k })));
    const { uuid } = await client.db('config').collection('collections').findOne({ _id: 'd.written' });
    const tasks = (await direct(donor)).db('config').collection('rangeDeletions');
    const task = (collectionUuid) => ({
        _id: new UUID(),
        nss: 'd.written',
        collectionUuid,
        donorShardId: 'nobody',
        numOrphanDocs: 3,
        range: { min: { k: 600 }, max: { k: 700 } },
        whenToClean: 'now',
    });
    await tasks.insertMany([task(uuid), task(new UUID())]); // the second one is of no collection
    await waitFor(async () => (await tasks.countDocuments()) === 0, { what: 'both to be done' });
    assert.equal(await own.countDocuments(), 500);
    assert.equal(await other.db('d').collection('written').countDocuments(), 1000);
});

test('TTL-1: a shard that receives a range leaves expired documents of it to their owner', async () => {
    await cluster.admin({ shardCollection: 'd.ttl', key: { k: 1 } });
    const coll = client.db('d').collection('ttl');
    await coll.createIndex({ at: 1 }, { expireAfterSeconds: 3600 });
    const old = new Date(Date.now() - 7200_000);
    await coll.insertMany(Array.from({ length: 200 }, (_, k) => ({ _id: k, k, at: k % 2 === 0 ? old : new Date() })));
    for (const shard of cluster.shards) await shard.command(shard.members[0], { setParameter: 1, ttlMonitorSleepSecs: 1 });
    await move('d.ttl', { k: 0 }, 'shard1', { max: { k: 100 } });
    await waitFor(async () => (await other.db('d').collection('ttl').countDocuments()) === 100, {
        timeoutMs: 20_000,
        what: 'expired documents to be deleted, on both shards',
    });
    await checkMovesOver(cluster, waitFor);
});

test('SES-4: a transaction does not miss documents that came to its shard after it began', async () => {
    await fill('txn', { k: 1 });
    await move('d.txn', { k: 900 }, 'shard1');
    const session = client.startSession();
    session.startTransaction();
    const coll = client.db('d').collection('txn');
    assert.equal((await coll.findOne({ k: 950 }, { session })).k, 950);
    await move('d.txn', { k: 0 }, 'shard1', { max: { k: 100 } });
    assert.equal((await coll.findOne({ k: 60 })).k, 60); // so that router and shard know where it is
    await fails(() => coll.findOne({ k: 50 }, { session }), 272, { labels: ['TransientTransactionError'] });
    await session.abortTransaction();
    session.startTransaction();
    assert.equal((await coll.findOne({ k: 950 }, { session })).k, 950);
    assert.equal((await coll.findOne({ k: 50 }, { session })).k, 50);
    await session.commitTransaction();
    await session.endSession();
});

test('MIG-4: a move is given up if the oplog of the donor no longer reaches back to its begin', { timeout: 180_000 }, async () => {
    await fill('late', { k: 1 });
    const [donor, recipient] = cluster.shards;
    const hold = { configureFailPoint: 'mig.r.cloneBatchApplied', mode: { times: 1 }, data: { blockTimeMS: 120_000 } };
    const { count } = await recipient.command(recipient.members[0], hold);
    const moving = move('d.late', { k: 0 }, 'shard1').then(
        () => undefined,
        (error) => error,
    );
    await recipient.command(recipient.members[0], { waitForFailPoint: hold.configureFailPoint, timesEntered: Number(count) + 1, maxTimeMS: 60_000 });
    const entry = async ($natural) => (await (await direct(donor)).db('local').collection('oplog.rs').findOne({}, { sort: { $natural } })).ts;
    const begun = await entry(-1);
    const isTrimmed = async () => (await entry(1)).greaterThan(begun);
    const pad = 'x'.repeat(4_000_000);
    for (let i = 1; i <= 200 && !(await isTrimmed()); i++) {
        await client.db('d').collection('filler').insertOne({ pad });
        if (i % 20 === 0) await donor.command(donor.members[0], { fsync: 1 }); // what recovery needs is kept
    }
    assert.ok(await isTrimmed());
    await client.db('d').collection('filler').drop();
    await recipient.command(recipient.members[0], { ...hold, mode: 'off' });
    const error = await moving;
    assert.match(error.message, /oplog does not reach back/);
    await checkMovesOver(cluster, waitFor);
    assert.deepEqual([await countOn(donor, 'late'), await countOn(recipient, 'late')], [1000, 0]);
    assert.equal(await other.db('d').collection('late').countDocuments(), 1000);
    await move('d.late', { k: 0 }, 'shard1');
});

test('MIG-2: documents of up to 16 MB are cloned, and changed while they move', { timeout: 120_000 }, async () => {
    await cluster.admin({ shardCollection: 'd.large', key: { k: 1 } });
    const coll = client.db('d').collection('large');
    const sizes = [LARGE - 1000, LARGE / 3, 100, LARGE / 2, 2000, LARGE / 5].map(Math.floor);
    for (const [k, size] of sizes.entries()) await coll.insertOne({ _id: k, k, pad: 'a'.repeat(size) });
    const [, recipient] = cluster.shards;
    const hold = { configureFailPoint: 'mig.r.catchup', mode: { times: 1 }, data: { blockTimeMS: 60_000 } };
    const { count } = await recipient.command(recipient.members[0], hold);
    const moving = move('d.large', { k: 0 }, 'shard1', { waitForDelete: true });
    const entered = { waitForFailPoint: 'mig.r.catchup', timesEntered: Number(count) + 1, maxTimeMS: 60_000 };
    await recipient.command(recipient.members[0], entered);
    for (const [k, size] of sizes.entries()) await coll.replaceOne({ k }, { k, pad: 'b'.repeat(size) });
    await coll.deleteOne({ k: 4 });
    await recipient.command(recipient.members[0], { configureFailPoint: 'mig.r.catchup', mode: 'off' });
    await moving;
    const found = await other.db('d').collection('large').find().sort({ k: 1 }).toArray();
    assert.deepEqual(found.map(({ k, pad }) => [k, pad[0], pad.length]), sizes.map((size, k) => [k, 'b', size]).filter(([k]) => k !== 4));
    await checkMovesOver(cluster, waitFor);
});

test('MIG-2: moves under load lose nothing and double nothing', { timeout: 300_000 }, async () => {
    await cluster.admin({ shardCollection: 'd.load', key: { k: 1 } });
    const load = new MoveLoad([client, other], { coll: 'load', rand });
    load.start();
    let moved = 0;
    try {
        for (let round = 0; round < ROUNDS; round++) {
            const from = rand.below(KEYS - 100);
            const rows = await chunksOf('d.load');
            const holds = ({ min, max }) => !(min.k > from) && !(max.k <= from);
            const { shard, max } = rows.find(holds);
            const end = Math.min(from + 50 + rand.below(200), typeof max.k === 'number' ? max.k : KEYS);
            if (await tryMove('d.load', { k: from }, shard === 'shard0' ? 'shard1' : 'shard0', { max: { k: end } })) moved++;
        }
    } finally {
        await load.stop();
    }
    assert.ok(moved >= ROUNDS / 2, `${moved} of ${ROUNDS} moves`);
    await load.check(`seed ${seed}`);
    await checkMovesOver(cluster, waitFor);
    await checkPlaces(cluster, client, 'd.load');
    console.error(`${moved} moves, ${load.writes} writes, ${load.scans} scans`);
});

test('MIG-2: a move is held where its commit was decided, by the name of that place, and refused by that of its commit', async () => {
    await fill('held', { k: 1 });
    const [donor] = cluster.shards;
    const set = (configureFailPoint, mode) => donor.command(donor.members[0], { configureFailPoint, mode });
    const HELD = 'hangBeforeForgettingMigrationAfterCommitDecision';
    const { count } = await set(HELD, 'alwaysOn');
    const moving = move('d.held', { k: 0 }, 'shard1');
    await donor.command(donor.members[0], { waitForFailPoint: HELD, timesEntered: Number(count) + 1, maxTimeMS: 60_000 });
    const coordinators = (await direct(donor)).db('config').collection('migrationCoordinators');
    assert.equal(await coordinators.countDocuments(), 1);
    const task = await (await direct(donor)).db('config').collection('rangeDeletions').findOne({ nss: 'd.held' });
    assert.ok(task === null || !('pending' in task)); // it may be carried out already
    await set(HELD, 'off');
    await moving;
    await set('failMigrationCommit', 'alwaysOn');
    await assert.rejects(move('d.held', { k: -1000 }, 'shard1'));
    await set('failMigrationCommit', 'off');
    await checkMovesOver(cluster, waitFor);
    await client.db('d').collection('held').drop();
});

test('DDL-3: dropping a collection ends its moves', async () => {
    await fill('dropped', { k: 1 });
    const [donor] = cluster.shards;
    const hold = { configureFailPoint: 'mig.d.cloning', mode: 'alwaysOn', data: { blockTimeMS: 300 } };
    await donor.command(donor.members[0], hold);
    const moving = move('d.dropped', { k: 0 }, 'shard1').then(
        () => 'moved',
        (error) => error.codeName ?? error.message,
    );
    await waitFor(async () => (await (await direct(donor)).db('config').collection('migrationCoordinators').countDocuments()) === 1, {
        what: 'the move to begin',
    });
    await client.db('d').collection('dropped').drop();
    await donor.command(donor.members[0], { configureFailPoint: 'mig.d.cloning', mode: 'off' });
    await moving; // however: it depends on where it was
    await checkMovesOver(cluster, waitFor);
    for (const shard of cluster.shards)
        assert.deepEqual(await (await direct(shard)).db('d').listCollections({ name: 'dropped' }).toArray(), []);
    const [result] = await client.db('d').aggregate([{ $documents: [{ ok: 1 }] }]).toArray();
    assert.equal(result.ok, 1);
});
