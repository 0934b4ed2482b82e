/*
 * Goal (MIG-1, MIG-2): what operators see and set of moves: a recipient that would have to build an index refuses, a move that was never
 * committed leaves all versions as they are, serverStatus and config.migrationCoordinators tell what is moving, limits are parameters.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { MaxKey } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { checkMovesOver } from '../lib/move_load.mjs';
import { waitFor } from '../lib/server.mjs';

let cluster;
let client;
before(async () => {
    cluster = await startCluster();
    client = await cluster.client();
    for (const shard of cluster.shards) await shard.command(shard.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
});
after(() => cluster?.remove());

const move = (ns, min, toShard, more = {}) => cluster.admin({ moveRange: ns, min, toShard, ...more });
const direct = async (shard) => shard.direct(shard.members[0]);
const on = (shard, command) => shard.command(shard.members[0], command);

async function fill(coll, count = 100) {
    await cluster.admin({ shardCollection: `d.${coll}`, key: { k: 1 } });
    await client.db('d').collection(coll).insertMany(Array.from({ length: count }, (_, i) => ({ _id: i, k: i })));
}

/* Runs `body` while a failpoint that holds whoever comes there is on, and somebody is there. */
async function held(shard, name, begin, body) {
    const { count } = await on(shard, { configureFailPoint: name, mode: 'alwaysOn' });
    const running = begin();
    try {
        await on(shard, { waitForFailPoint: name, timesEntered: Number(count) + 1, maxTimeMS: 60_000 });
        await body();
    } finally {
        await on(shard, { configureFailPoint: name, mode: 'off' });
        await running;
    }
}

test('MIG-2: a recipient that has documents and lacks an index refuses the move; an empty one gets the index', async () => {
    await fill('missing');
    await client.db('d').collection('missing').createIndex({ x: 1 });
    const [, recipient] = cluster.shards;
    const there = (await direct(recipient)).db('d').collection('missing');
    await move('d.missing', { k: 90 }, 'shard1', { max: { k: 91 }, waitForDelete: true });
    await there.dropIndex('x_1');
    await assert.rejects(move('d.missing', { k: 10 }, 'shard1', { max: { k: 20 } }), (error) => {
        assert.match(error.message, /x_1.*Non-trivial index creation/);
        return error.codeName === 'OperationFailed';
    });
    assert.equal(await client.db('d').collection('missing').countDocuments(), 100);
    await move('d.missing', { k: 90 }, 'shard0', { max: { k: 91 }, waitForDelete: true });
    await waitFor(async () => (await there.countDocuments()) === 0, { what: 'the recipient to be empty' });
    await move('d.missing', { k: 10 }, 'shard1', { max: { k: 20 }, waitForDelete: true });
    assert.ok(await there.indexExists('x_1'));
    await checkMovesOver(cluster, waitFor);
});

test('MIG-2: an index that is being built holds a move up only where the shard has no chunk yet', async () => {
    await fill('building');
    const [, recipient] = cluster.shards;
    const coll = client.db('d').collection('building');
    const there = (await direct(recipient)).db('d').collection('building');
    await move('d.building', { k: 90 }, 'shard1', { waitForDelete: true });
    await on(recipient, { configureFailPoint: 'suspendRangeDeletion', mode: 'alwaysOn' });
    await held(
        recipient,
        'hangIndexBuildBeforeCommit',
        () => coll.createIndex({ x: 1 }),
        async () => {
            await waitFor(async () => (await (await direct(cluster.shards[0])).db('d').collection('building').indexes()).length === 3, { what: 'the donor' });
            await move('d.building', { k: 80 }, 'shard1', { max: { k: 90 } }); // among its own
            for (const k of [80, 90]) await move('d.building', { k }, 'shard0');
            assert.equal(await there.countDocuments(), 20); // which are to be deleted
            await assert.rejects(move('d.building', { k: 10 }, 'shard1', { max: { k: 20 } }), /its build has not ended/);
        },
    );
    await on(recipient, { configureFailPoint: 'suspendRangeDeletion', mode: 'off' });
    await waitFor(() => move('d.building', { k: 10 }, 'shard1', { max: { k: 20 } }).then(() => true, () => false), { what: 'the move' });
    assert.deepEqual([await coll.countDocuments(), await there.indexExists('x_1')], [100, true]);
    await checkMovesOver(cluster, waitFor);
});

test('MIG-2: a move that nobody asked the config server to commit changes no version', async () => {
    await fill('unsent');
    const [donor] = cluster.shards;
    const versions = async () => {
        const { uuid } = await client.db('config').collection('collections').findOne({ _id: 'd.unsent' });
        return client.db('config').collection('chunks').find({ uuid }).project({ lastmod: 1, min: 1, shard: 1 }).toArray();
    };
    const before_ = await versions();
    await on(donor, { configureFailPoint: 'failMigrationCommit', mode: 'alwaysOn' });
    await assert.rejects(move('d.unsent', { k: 50 }, 'shard1'));
    await on(donor, { configureFailPoint: 'failMigrationCommit', mode: 'off' });
    await checkMovesOver(cluster, waitFor);
    assert.deepEqual(await versions(), before_);
    await client.db('d').collection('unsent').insertOne({ k: 70, written: true });
    await move('d.unsent', { k: 50 }, 'shard1', { waitForDelete: true });
    assert.equal(await client.db('d').collection('unsent').countDocuments({ k: { $gte: 50 } }), 51);
});

test('MIG-2: a move whose commit the config server refuses is fenced off, and tells why', async () => {
    await fill('refusing');
    const config = (mode) => on(cluster.config, { configureFailPoint: 'migrateCommitInvalidChunkQuery', mode });
    await config('alwaysOn');
    await assert.rejects(move('d.refusing', { k: 50 }, 'shard1'), { codeName: 'UpdateOperationFailed' });
    await config('off');
    await checkMovesOver(cluster, waitFor);
    assert.equal(await client.db('d').collection('refusing').countDocuments(), 100);
});

test('MIG-2: serverStatus and config.migrationCoordinators tell what is moving, and of retryable writes how many', async () => {
    await fill('seen');
    const [donor, recipient] = cluster.shards;
    const status = async (shard) => (await on(shard, { serverStatus: 1 })).sharding.migrations;
    assert.equal(await status(donor), undefined);
    await held(
        donor,
        'moveChunkHangAtStep5',
        () => move('d.seen', { k: 70 }, 'shard1', { waitForDelete: true }),
        async () => {
            const { sessionOplogEntriesToBeMigratedSoFar: sent, sessionOplogEntriesSkippedSoFarLowerBound: skipped, ...told } = await status(donor);
            const what = { source: 'shard0', destination: 'shard1', chunk: { min: { k: 70 }, max: { k: new MaxKey() } }, collection: 'd.seen' };
            assert.deepEqual(told, { ...what, isDonorShard: true });
            assert.equal(Number(sent), 30);
            assert.ok(Number(skipped) >= 70, `${skipped}`); // other sessions may have written, too
            const { sessionOplogEntriesMigrated: got, ...there } = await status(recipient);
            assert.deepEqual(there, { ...what, isDonorShard: false });
            assert.equal(Number(got), 30);
            const doc = await (await direct(donor)).db('config').collection('migrationCoordinators').findOne({ nss: 'd.seen' });
            assert.deepEqual([doc.donorShardId, doc.recipientShardId, doc.range.min], ['shard0', 'shard1', { k: 70 }]);
            assert.deepEqual(Object.keys(doc.preMigrationChunkVersion).sort(), ['e', 't', 'v']);
        },
    );
    await checkMovesOver(cluster, waitFor);
    for (const shard of cluster.shards) await waitFor(async () => (await status(shard)) === undefined, { what: 'no move to be shown' });
});

test('MIG-3: the changelog tells what a move copied, how long each of its steps took, and how long clients were blocked', async () => {
    await fill('told');
    const pausedMs = 300;
    const [donor, recipient] = cluster.shards;
    const { count } = await on(recipient, { configureFailPoint: 'migrateThreadHangAtStep4', mode: 'alwaysOn' });
    const moved = move('d.told', { k: 40 }, 'shard1', { max: { k: 60 } });
    try {
        await on(recipient, { waitForFailPoint: 'migrateThreadHangAtStep4', timesEntered: Number(count) + 1, maxTimeMS: 60_000 });
        await client.db('d').collection('told').updateMany({ k: { $gte: 40, $lt: 43 } }, { $set: { x: 1 } });
        await new Promise((done) => setTimeout(done, pausedMs)); // is to be seen in the times
    } finally {
        await on(recipient, { configureFailPoint: 'migrateThreadHangAtStep4', mode: 'off' });
        await moved;
    }
    const entry = async (what) => {
        const found = await client.db('config').collection('changelog').find({ what, ns: 'd.told' }).toArray();
        assert.equal(found.length, 1, what);
        return found[0].details;
    };
    const { counts } = await entry('moveChunk.commit');
    assert.equal(Number(counts.cloned), 20);
    assert.ok(Number(counts.clonedBytes) > 20 * 20);
    assert.equal(Number(counts.catchup) + Number(counts.steady), 3);
    const steps = (details, total) => Array.from({ length: total }, (_, i) => Number(details[`step ${i + 1} of ${total}`] ?? NaN));
    const from = await entry('moveChunk.from');
    assert.deepEqual([from.from, from.to, from.note], ['shard0', 'shard1', 'success']);
    assert.ok(steps(from, 6).every((ms) => ms >= 0 && ms < 60_000), JSON.stringify(from));
    assert.ok(steps(from, 6)[3] >= pausedMs, JSON.stringify(from));
    assert.ok(Number(from.criticalSectionTimeMillis) >= Number(from.criticalSectionCommitTimeMillis));
    const to = await entry('moveChunk.to');
    assert.ok(steps(to, 7).slice(0, 6).every((ms) => ms >= 0 && ms < 60_000), JSON.stringify(to));
    assert.ok(steps(to, 7)[4] >= pausedMs, JSON.stringify(to));

    const failed = { configureFailPoint: 'failMigrationCommit', mode: { times: 1 } };
    await on(donor, failed);
    await assert.rejects(move('d.told', { k: 80 }, 'shard1'));
    const last = await client.db('config').collection('changelog').findOne({ what: 'moveChunk.from', 'details.note': 'aborted', ns: 'd.told' });
    assert.match(last.details.errmsg, /a failpoint forbids the commit/);
    await checkMovesOver(cluster, waitFor);
});

test('MIG-2: a recipient gives a move up behind its clone, and another one succeeds', async () => {
    await fill('behind');
    const [, recipient] = cluster.shards;
    await on(recipient, { configureFailPoint: 'failMigrationOnRecipient', mode: 'alwaysOn' });
    await assert.rejects(move('d.behind', { k: 50 }, 'shard1'));
    await on(recipient, { configureFailPoint: 'failMigrationOnRecipient', mode: 'off' });
    await waitFor(() => move('d.behind', { k: 50 }, 'shard1', { waitForDelete: true }).then(() => true, () => false), { what: 'another try' });
    assert.equal(await client.db('d').collection('behind').countDocuments(), 100);
    await checkMovesOver(cluster, waitFor);
});

test('RNG-3: a range with documents that are still to be deleted is not received, for as long as the parameter says', async () => {
    await fill('again');
    const [donor] = cluster.shards;
    await on(donor, { setParameter: 1, receiveChunkWaitForRangeDeleterTimeoutMS: 300 });
    await held(
        donor,
        'hangBeforeDoingDeletion',
        () => move('d.again', { k: 50 }, 'shard1'),
        async () => {
            const begun = performance.now();
            await assert.rejects(move('d.again', { k: 50 }, 'shard0'), /documents.*to be deleted/);
            assert.ok(performance.now() - begun < 9_000);
        },
    );
    await on(donor, { setParameter: 1, receiveChunkWaitForRangeDeleterTimeoutMS: 10_000 });
    await waitFor(() => move('d.again', { k: 50 }, 'shard0').then(() => true, () => false), { what: 'the move back' });
    await checkMovesOver(cluster, waitFor);
});

test('MIG-3: writers hold a move up for as long as the parameter says', async () => {
    await fill('writers');
    const [donor] = cluster.shards;
    await on(donor, { setParameter: 1, migrationLockAcquisitionMaxWaitMS: 100 });
    const node = await direct(donor);
    const session = node.startSession();
    session.startTransaction();
    await node.db('d').collection('writers').updateOne({ k: 1 }, { $set: { x: 1 } }, { session });
    await assert.rejects(move('d.writers', { k: 50 }, 'shard1'), /did not end within 100 ms/);
    await session.abortTransaction();
    await session.endSession();
    await on(donor, { setParameter: 1, migrationLockAcquisitionMaxWaitMS: 500 });
    await waitFor(() => move('d.writers', { k: 50 }, 'shard1').then(() => true, () => false), { what: 'the move' });
    await checkMovesOver(cluster, waitFor);
});
