/*
 * Goal (BAL-1, BAL-2, BAL-3, MIG-1): the balancer levels collections, obeys zones, empties shards that are to be removed, and goes on
 * after its primary was killed; nothing is lost or doubled meanwhile. What it may not do it does not do, and it tells why.
 *
 * Method: a cluster of three shards with chunks of 1 MB. TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { MaxKey, MinKey } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails, random, seedOfRun } from '../lib/expect.mjs';
import { MoveLoad, checkMovesOver, checkPlaces } from '../lib/move_load.mjs';
import { waitFor } from '../lib/server.mjs';

const MB = 1024 * 1024;
const seed = seedOfRun();
const rand = random(seed);

describe(`the balancer, TEST_SEED=${seed}`, () => {
    let cluster;
    let client;
    let config;
    const admin = (command) => cluster.admin(command);
    const onConfig = (command) => cluster.config.command(cluster.config.members[0], command);
    const setting = (id, fields) => config.collection('settings').updateOne({ _id: id }, { $set: fields }, { upsert: true });
    const status = (ns) => admin({ balancerCollectionStatus: ns });
    const rounds = async () => Number((await admin({ balancerStatus: 1 })).numBalancerRounds);
    const actions = () => config.collection('actionlog').find({ what: 'balancer.round' }).sort({ time: 1 }).toArray();
    const decisions = async () => (await actions()).flatMap(({ details }) => details.decisions ?? []);

    async function chunksOf(ns) {
        const { uuid } = await config.collection('collections').findOne({ _id: ns });
        return config.collection('chunks').find({ uuid }).sort({ min: 1 }).toArray();
    }
    const ownersOf = async (ns) => [...new Set((await chunksOf(ns)).map(({ shard }) => shard))].sort();

    /* Documents of 10 KB on shard0: about so many megabytes. */
    async function fill(coll, megabytes, { key = { k: 1 }, k = (i) => i } = {}) {
        await admin({ shardCollection: `d.${coll}`, key });
        const pad = 'x'.repeat(10_000);
        const docs = Array.from({ length: megabytes * 105 }, (_, i) => ({ _id: i, k: k(i), pad }));
        for (let i = 0; i < docs.length; i += 500) await client.db('d').collection(coll).insertMany(docs.slice(i, i + 500));
        return docs.length;
    }
    const settled = (ns) => waitFor(async () => (await status(ns)).balancerCompliant, { timeoutMs: 120_000, what: `${ns} to be settled` });
    const sizes = async (coll) => {
        const { shards } = await client.db('d').command({ collStats: coll });
        return Object.fromEntries(cluster.shards.map(({ name }) => [name, shards[name]?.size ?? 0]));
    };
    /* Waits until a round that began after this call has ended. */
    async function aRound() {
        const { numBalancerRounds, inBalancerRound } = await admin({ balancerStatus: 1 });
        const wanted = Number(numBalancerRounds) + (inBalancerRound ? 2 : 1);
        await admin({ balancerStart: 1 });
        await waitFor(async () => (await rounds()) >= wanted, { timeoutMs: 60_000, what: 'a round' });
    }

    before(async () => {
        cluster = await startCluster({ shards: 3, routers: 2 });
        client = await cluster.client();
        config = client.db('config');
        for (const shard of cluster.shards)
            await shard.command(shard.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });
        await onConfig({ setParameter: 1, balancerMigrationsThrottlingMs: 50 });
        await onConfig({ configureFailPoint: 'overrideBalanceRoundInterval', mode: 'alwaysOn', data: { intervalMs: 1000 } });
        await admin({ balancerStop: 1 });
        await setting('chunksize', { value: 1 });
        await admin({ enableSharding: 'd', primaryShard: 'shard0' });
    });
    after(() => cluster?.remove());

    test('BAL-1: an imbalance is levelled under load, nothing is lost or doubled', async () => {
        await admin({ shardCollection: 'd.c', key: { k: 1 } });
        const clients = [client, await cluster.client({}, cluster.routers[1])];
        const load = new MoveLoad(clients, { rand, pad: 40_000 });
        load.start({ writers: 6, readers: 0 });
        const bytes = async () => (await client.db('d').command({ collStats: 'c' })).size;
        await waitFor(async () => (await bytes()) > 9 * MB, { timeoutMs: 120_000, what: '9 MB' });
        const { balancerCompliant, firstComplianceViolation, chunkSize, details } = await status('d.c');
        assert.deepEqual([balancerCompliant, firstComplianceViolation, Number(chunkSize)], [false, 'chunksImbalance', 1]);
        assert.deepEqual(details.decisions[0].outcome, 'chosen');
        assert.deepEqual(await ownersOf('d.c'), ['shard0'], 'it is off');
        load.start({ writers: 0, readers: 1 });
        await admin({ balancerStart: 1 });
        await settled('d.c');
        await load.stop();
        await settled('d.c');
        await admin({ balancerStop: 1 });
        await load.check('at the end');
        await checkMovesOver(cluster, waitFor);
        const got = await sizes('c');
        const most = Math.max(...Object.values(got));
        const least = Math.min(...Object.values(got));
        assert.ok(most - least < 4 * MB, JSON.stringify(got));
        assert.deepEqual(await ownersOf('d.c'), ['shard0', 'shard1', 'shard2']);
        await checkPlaces(cluster, client, 'd.c');
        assert.equal((await admin({ checkMetadataConsistency: 1 })).cursor.firstBatch.length, 0);

        // What was done is written down.
        const log = await actions();
        assert.ok(log.length > 0);
        for (const { details: told, ns, shard } of log) {
            assert.deepEqual([ns, shard, told.errorOccurred], ['', 'config', false]);
            assert.ok(told.candidateChunks >= told.chunksMoved && told.executionTimeMillis >= 0, JSON.stringify(told));
        }
        const moved = (await decisions()).filter(({ outcome }) => outcome === 'moved');
        assert.ok(moved.length >= 4 && moved.every(({ ns, reason, from, to }) => ns === 'd.c' && reason === 'chunksImbalance' && from !== to));
        // At most one move of a shard in a round.
        for (const { details: told } of log) {
            const used = told.decisions.filter(({ outcome }) => outcome === 'moved').flatMap(({ from, to }) => [from, to]);
            assert.equal(new Set(used).size, used.length, JSON.stringify(told.decisions));
        }
        const whats = await config.collection('changelog').distinct('what');
        for (const what of ['moveChunk.start', 'moveChunk.commit', 'moveChunk.from']) assert.ok(whats.includes(what), `${whats}`);
        await client.db('d').collection('c').drop();
    });

    test('BAL-1: what is switched off stays where it is: all, one collection, at this time of the day', async () => {
        await fill('off', 4);
        await admin({ balancerStop: 1 });
        assert.deepEqual((await admin({ balancerStatus: 1 })).mode, 'off');
        const hour = new Date().getHours();
        const at = (h) => `${String((h + 24) % 24).padStart(2, '0')}:00`;
        await setting('balancer', { activeWindow: { start: at(hour + 3), stop: at(hour + 5) } });
        await aRound();
        assert.deepEqual(await ownersOf('d.off'), ['shard0'], 'not at this time');
        await config.collection('collections').updateOne({ _id: 'd.off' }, { $set: { noBalance: true } });
        await setting('balancer', { activeWindow: { start: at(hour - 1), stop: at(hour + 3) } });
        await aRound();
        assert.deepEqual(await ownersOf('d.off'), ['shard0'], 'not this collection');
        await config.collection('settings').updateOne({ _id: 'balancer' }, { $unset: { activeWindow: 1 } });
        await config.collection('collections').updateOne({ _id: 'd.off' }, { $set: { noBalance: false } });
        // A chunk size of its own: now it is in order.
        await admin({ configureCollectionBalancing: 'd.off', chunkSize: 2 });
        const { balancerCompliant, chunkSize } = await status('d.off');
        assert.deepEqual([balancerCompliant, Number(chunkSize)], [true, 2]);
        await fails(() => admin({ configureCollectionBalancing: 'd.off', chunkSize: 2000 }), 72);
        await fails(() => admin({ configureCollectionBalancing: 'd.none', chunkSize: 1 }), 118);
        await fails(() => status('d.none'), 118);
        await fails(() => status('d'), 73);
        await aRound();
        assert.deepEqual(await ownersOf('d.off'), ['shard0']);
        await admin({ configureCollectionBalancing: 'd.off', chunkSize: 0 });
        await settled('d.off');
        assert.notDeepEqual(await ownersOf('d.off'), ['shard0']);
        await client.db('d').collection('off').drop();
    });

    test('BAL-1: a setting that the balancer could not read is refused when it is written, others are not', async () => {
        const { options } = (await config.listCollections({ name: 'settings' }).toArray())[0];
        assert.ok(options.validator.$jsonSchema);
        const bad = [
            ['chunksize', { value: 'large' }],
            ['chunksize', { value: 0 }],
            ['chunksize', { value: 2000 }],
            ['balancer', { mode: 'sometimes' }],
            ['balancer', { stopped: 'yes' }],
            ['balancer', { activeWindow: { start: '10:00' } }],
            ['balancer', { _secondaryThrottle: 1 }],
            ['automerge', { enabled: 'no' }],
        ];
        for (const [id, change] of bad) await fails(setting(id, change), 121);
        assert.equal((await config.collection('settings').findOne({ _id: 'chunksize' })).value, 1);
        await setting('balancer', { _secondaryThrottle: { w: 2 } });
        await setting('ofSomebodyElse', { value: 'anything' });
        await config.collection('settings').deleteOne({ _id: 'ofSomebodyElse' });
        await config.collection('settings').updateOne({ _id: 'balancer' }, { $unset: { _secondaryThrottle: 1 } });
    });

    test('BAL-1: zones are obeyed, by the balancer and by moves that users ask for', async () => {
        await fill('zoned', 3);
        const docs = await client.db('d').collection('zoned').countDocuments();
        for (const [shard, zone] of [['shard1', 'one'], ['shard2', 'two']]) await admin({ addShardToZone: shard, zone });
        await admin({ updateZoneKeyRange: 'd.zoned', min: { k: 50 }, max: { k: 100 }, zone: 'one' });
        await admin({ updateZoneKeyRange: 'd.zoned', min: { k: 100 }, max: { k: 120 }, zone: 'two' });
        await aRound();
        await settled('d.zoned');
        const chunks = await chunksOf('d.zoned');
        const isBelow = (a, b) => a instanceof MinKey || b instanceof MaxKey || (!(a instanceof MaxKey) && !(b instanceof MinKey) && a < b);
        for (const { min, max, shard } of chunks) {
            for (const border of [50, 100, 120])
                assert.ok(!(isBelow(min.k, border) && isBelow(border, max.k)), `${border} is inside of a chunk`);
            if (!(min.k instanceof MinKey) && min.k >= 50 && min.k < 100) assert.equal(shard, 'shard1');
            if (!(min.k instanceof MinKey) && min.k >= 100 && min.k < 120) assert.equal(shard, 'shard2');
        }
        await fails(() => admin({ moveRange: 'd.zoned', min: { k: 50 }, max: { k: 60 }, toShard: 'shard0' }), 20, { message: /zone "one"/ });
        await fails(() => admin({ moveRange: 'd.zoned', min: { k: 100 }, toShard: 'shard1' }), 20);
        await fails(() => admin({ moveChunk: 'd.zoned', find: { k: 110 }, to: 'shard0' }), 20);
        await admin({ moveRange: 'd.zoned', min: { k: 10 }, max: { k: 20 }, toShard: 'shard1' });
        assert.equal(await client.db('d').collection('zoned').countDocuments(), docs);
        assert.ok((await decisions()).some(({ ns, reason, outcome }) => ns === 'd.zoned' && reason === 'zoneViolation' && outcome === 'moved'));
        await checkMovesOver(cluster, waitFor);
        await checkPlaces(cluster, client, 'd.zoned');
        await client.db('d').collection('zoned').drop();
        for (const [shard, zone] of [['shard1', 'one'], ['shard2', 'two']]) await admin({ removeShardFromZone: shard, zone });
    });

    test('MIG-1: moveRange with one bound moves about one chunk from there', async () => {
        await admin({ balancerStop: 1 });
        await fill('bound', 5);
        await admin({ moveRange: 'd.bound', max: { k: 400 }, toShard: 'shard1' });
        await admin({ moveRange: 'd.bound', min: { k: 10 }, toShard: 'shard2' });
        const moved = (await chunksOf('d.bound')).filter(({ shard }) => shard !== 'shard0');
        assert.deepEqual(moved.map(({ shard }) => shard), ['shard2', 'shard1']);
        const [above, below] = moved;
        assert.deepEqual([above.min.k, below.max.k], [10, 400]);
        for (const { min, max } of moved) assert.ok(max.k - min.k > 80 && max.k - min.k < 120, `${min.k} to ${max.k}`);
        assert.equal(await client.db('d').collection('bound').countDocuments(), 5 * 105);
        await client.db('d').collection('bound').drop();
    });

    test('BAL-2: a chunk that is too large is marked, left alone, and may be moved by order', async () => {
        const count = await fill('jumbo', 6, { k: () => 5 });
        const jumbo = async () => (await chunksOf('d.jumbo')).find((chunk) => chunk.jumbo === true);
        await admin({ balancerStart: 1 });
        await waitFor(async () => (await jumbo()) !== undefined, { timeoutMs: 60_000, what: 'a jumbo chunk' });
        const marked = await jumbo();
        assert.equal(marked.shard, 'shard0');
        await aRound();
        const told = (await decisions()).filter(({ ns }) => ns === 'd.jumbo');
        assert.ok(told.some(({ outcome }) => outcome === 'jumbo'), JSON.stringify(told));
        assert.ok(told.some(({ outcome, why }) => outcome === 'refused' && /jumbo/.test(why)), JSON.stringify(told));
        await admin({ balancerStop: 1 });
        const { min, max } = marked;
        await fails(() => admin({ moveChunk: 'd.jumbo', bounds: [min, max], to: 'shard1' }), 153);
        await fails(() => admin({ clearJumboFlag: 'd.jumbo' }), 72);
        await fails(() => admin({ clearJumboFlag: 'd.jumbo', bounds: [min, { k: 77 }] }), 72);
        await admin({ clearJumboFlag: 'd.jumbo', find: { k: 5 } });
        assert.equal(await jumbo(), undefined);
        const cleared = (await chunksOf('d.jumbo')).find(({ _id }) => _id.equals(marked._id));
        assert.ok(cleared.lastmod.getHighBits() > marked.lastmod.getHighBits(), 'a new major version');
        await admin({ clearJumboFlag: 'd.jumbo', bounds: [min, max] }); // again
        await admin({ movechunk: 'd.jumbo', bounds: [min, max], to: 'shard1', forceJumbo: true });
        assert.equal(await client.db('d').collection('jumbo').countDocuments(), count);
        await client.db('d').collection('jumbo').drop();
    });

    test('BAL-2: a large chunk with one frequent key is split, and the rest of it moves', async () => {
        await fill('mixed', 6, { k: (i) => (i < 320 ? 5 : i) });
        await admin({ balancerStart: 1 });
        await settled('d.mixed').catch(() => {}); // the frequent key may keep it from being settled
        await waitFor(async () => (await ownersOf('d.mixed')).length > 1, { timeoutMs: 60_000, what: 'a move' });
        await admin({ balancerStop: 1 });
        const ids = new Set();
        for await (const { _id } of client.db('d').collection('mixed').find({}, { projection: { _id: 1 } })) ids.add(_id);
        assert.equal(ids.size, 6 * 105);
        await client.db('d').collection('mixed').drop();
    });

    /* Ranges of ten keys on shards in turn, with so many documents of 10 KB each. */
    async function fragment(coll, counts) {
        await admin({ shardCollection: `d.${coll}`, key: { k: 1 } });
        const c = client.db('d').collection(coll);
        for (const [i, count] of counts.entries()) {
            if (i > 0) await admin({ split: `d.${coll}`, middle: { k: i * 10 } });
            if (i > 0) await admin({ moveChunk: `d.${coll}`, find: { k: i * 10 }, to: `shard${i % 3}` });
            if (count > 0) await c.insertMany(Array.from({ length: count }, (_, j) => ({ _id: i * 1000 + j, k: i * 10 + (j % 10), pad: 'x'.repeat(10_000) })));
        }
    }
    const entryOf = (ns) => config.collection('collections').findOne({ _id: ns });
    const areOneLater = (chunks) => chunks.some(({ shard }, i) => i > 0 && chunks[i - 1].shard === shard);

    test('BAL-2: a collection is defragmented: small chunks join their neighbours, and it is told how far that is', async () => {
        await admin({ balancerStop: 1 });
        await onConfig({ setParameter: 1, chunkDefragmentationThrottlingMS: 0 });
        // Of a wanted size of 1 MB: less than 25 documents are small.
        const counts = [2, 90, 3, 0, 95, 1, 5, 7, 80];
        await fragment('frag', counts);
        const total = counts.reduce((a, b) => a + b);
        await config.collection('collections').updateOne({ _id: 'd.frag' }, { $set: { noBalance: true } });
        assert.equal((await chunksOf('d.frag')).length, counts.length);
        await admin({ configureCollectionBalancing: 'd.frag', defragmentCollection: true });
        const { balancerCompliant, firstComplianceViolation, details } = await status('d.frag');
        assert.deepEqual([balancerCompliant, firstComplianceViolation], [false, 'defragmentingChunks']);
        assert.deepEqual(details, { currentPhase: 'mergeAndMeasureChunks', progress: { remainingChunksToProcess: counts.length } });
        await aRound();
        await settled('d.frag');
        await admin({ balancerStop: 1 });
        const chunks = await chunksOf('d.frag');
        assert.ok(!areOneLater(chunks), JSON.stringify(chunks));
        assert.ok(chunks.length <= 4, `${chunks.length} chunks`);
        assert.ok(chunks.every((chunk) => !('estimatedDataSizeBytes' in chunk)));
        const entry = await entryOf('d.frag');
        assert.ok(!('defragmentCollection' in entry) && !('defragmentationPhase' in entry), JSON.stringify(entry));
        assert.equal(await client.db('d').collection('frag').countDocuments(), total);
        assert.ok((await decisions()).some(({ ns, reason, outcome }) => ns === 'd.frag' && reason === 'defragmentingChunks' && outcome === 'moved'));
        await checkMovesOver(cluster, waitFor);
        await checkPlaces(cluster, client, 'd.frag');
        assert.equal((await admin({ checkMetadataConsistency: 1 })).cursor.firstBatch.length, 0);
        await client.db('d').collection('frag').drop();
    });

    test('BAL-2: a defragmentation that is to stop merges what it has moved, and moves nothing more', async () => {
        await fragment('stop', [1, 60, 1, 60]);
        await admin({ configureCollectionBalancing: 'd.stop', defragmentCollection: false });
        assert.ok(!('defragmentationPhase' in (await entryOf('d.stop'))), 'there was none');
        await admin({ configureCollectionBalancing: 'd.stop', defragmentCollection: true });
        await admin({ configureCollectionBalancing: 'd.stop', defragmentCollection: false });
        const { details } = await status('d.stop');
        assert.deepEqual(details, { currentPhase: 'mergeChunks', progress: { remainingChunksToProcess: 0 } });
        await aRound();
        await settled('d.stop');
        await admin({ balancerStop: 1 });
        assert.equal((await chunksOf('d.stop')).length, 4);
        assert.ok(!('defragmentCollection' in (await entryOf('d.stop'))));
        await client.db('d').collection('stop').drop();
    });

    test('BAL-2: a defragmentation goes on after the config server was killed between any two of its steps', async () => {
        const counts = [2, 90, 3, 1, 95];
        await fragment('kill', counts);
        await admin({ configureCollectionBalancing: 'd.kill', defragmentCollection: true });
        const [member] = cluster.config.members;
        const isOver = async () => !('defragmentationPhase' in (await entryOf('d.kill')));
        const fast = async () => {
            await cluster.config.waitForPrimary();
            await onConfig({ configureFailPoint: 'overrideBalanceRoundInterval', mode: 'alwaysOn', data: { intervalMs: 100 } });
            await onConfig({ setParameter: 1, balancerMigrationsThrottlingMs: 50 });
            await onConfig({ setParameter: 1, chunkDefragmentationThrottlingMS: 0 });
        };
        let kills = 0;
        await fast();
        await admin({ balancerStart: 1 });
        for (let life = 1; life <= 12; life++) {
            // One look is let through, with what follows from it; the next one is the end.
            await cluster.config.crashAt(member, 'afterBuildingNextDefragmentationPhase', { skip: 1 });
            const died = await waitFor(() => !member.isRunning(), { timeoutMs: 8000, what: 'the end' }).then(() => true, () => false);
            if (!died && (await isOver())) break;
            assert.ok(died, 'it neither ended nor was killed');
            await member.start();
            await fast();
            kills++;
        }
        assert.ok(kills >= 3, `${kills} kills`);
        await onConfig({ configureFailPoint: 'afterBuildingNextDefragmentationPhase', mode: 'off' });
        await onConfig({ configureFailPoint: 'overrideBalanceRoundInterval', mode: 'alwaysOn', data: { intervalMs: 1000 } });
        await waitFor(isOver, { timeoutMs: 60_000, what: 'the end' });
        await admin({ balancerStop: 1 });
        const chunks = await chunksOf('d.kill');
        assert.ok(!areOneLater(chunks) && chunks.length <= 2, JSON.stringify(chunks));
        assert.equal(await client.db('d').collection('kill').countDocuments(), counts.reduce((a, b) => a + b));
        await checkMovesOver(cluster, waitFor);
        await client.db('d').collection('kill').drop();
    });

    test('BAL-2: mergeAllChunksOnShard and the auto-merger merge what is old enough, and no more', async () => {
        await admin({ balancerStop: 1 });
        await onConfig({ setParameter: 1, minSnapshotHistoryWindowInSeconds: 1000 });
        await admin({ shardCollection: 'd.merged', key: { k: 1 } });
        for (const k of [10, 20, 30, 40, 50, 60]) await admin({ split: 'd.merged', middle: { k } });
        const count = async () => (await chunksOf('d.merged')).length;
        await admin({ mergeAllChunksOnShard: 'd.merged', shard: 'shard0' });
        assert.equal(await count(), 7, 'too young');
        await onConfig({ setParameter: 1, minSnapshotHistoryWindowInSeconds: 0 });
        await onConfig({ setParameter: 1, transactionLifetimeLimitSeconds: 1 });
        await new Promise((resolve) => setTimeout(resolve, 2500));
        const [, second] = await chunksOf('d.merged');
        await config.collection('chunks').updateOne({ _id: second._id }, { $set: { jumbo: true } });
        await admin({ mergeAllChunksOnShard: 'd.merged', shard: 'shard0', maxNumberOfChunksToMerge: 2 });
        assert.equal(await count(), 6);
        await fails(() => admin({ mergeAllChunksOnShard: 'd.merged', shard: 'nobody' }), 70);
        await fails(() => admin({ mergeAllChunksOnShard: 'd.none', shard: 'shard0' }), 118);
        await fails(() => admin({ mergeAllChunksOnShard: 'd.merged', shard: 'shard0', maxNumberOfChunksToMerge: 1 }), 72);
        await admin({ mergeAllChunksOnShard: 'd.merged', shard: 'shard0' });
        assert.deepEqual(
            (await chunksOf('d.merged')).map(({ min, max }) => [min.k, max.k]),
            [
                [new MinKey(), 10],
                [10, 20],
                [20, new MaxKey()],
            ],
        );
        const log = await config.collection('changelog').find({ what: 'autoMerge', ns: 'd.merged' }).sort({ time: 1 }).toArray();
        assert.deepEqual(log.map(({ details }) => details.numChunks), [2, 4]);

        // By itself.
        await admin({ clearJumboFlag: 'd.merged', find: { k: 15 } });
        await admin({ configureCollectionBalancing: 'd.merged', enableAutoMerger: false });
        await onConfig({ setParameter: 1, autoMergerIntervalSecs: 1 });
        await onConfig({ setParameter: 1, autoMergerThrottlingMS: 0 });
        await aRound();
        await aRound();
        assert.equal(await count(), 3, 'this collection is left alone');
        await setting('automerge', { enabled: false });
        await admin({ configureCollectionBalancing: 'd.merged', enableAutoMerger: true });
        await aRound();
        assert.equal(await count(), 3, 'all are left alone');
        await setting('automerge', { enabled: true });
        await waitFor(async () => (await count()) === 1, { timeoutMs: 30_000, what: 'a merge' });
        await onConfig({ setParameter: 1, autoMergerIntervalSecs: 3600 });
        await admin({ balancerStop: 1 });
    });

    for (const point of ['balancer.chosen', 'balancer.moved'])
        test(`BAL-1: the config primary is killed at ${point}; the next one goes on`, async () => {
            const coll = point.replace('.', '_');
            const count = await fill(coll, 6);
            const [member] = cluster.config.members;
            await cluster.config.crashAt(member, point);
            const asked = admin({ balancerStart: 1 }).catch(() => {}); // waits for a config server
            await waitFor(() => !member.isRunning(), { timeoutMs: 30_000, what: 'the end of the config server' });
            await member.start();
            await asked;
            await cluster.config.waitForPrimary();
            await onConfig({ setParameter: 1, balancerMigrationsThrottlingMs: 50 });
            await waitFor(() => admin({ balancerStart: 1 }).then(() => true, () => false), { timeoutMs: 60_000, what: 'a router that finds it' });
            await settled(`d.${coll}`);
            await admin({ balancerStop: 1 });
            assert.notDeepEqual(await ownersOf(`d.${coll}`), ['shard0']);
            assert.equal(await client.db('d').collection(coll).countDocuments(), count);
            await checkMovesOver(cluster, waitFor);
            await checkPlaces(cluster, client, `d.${coll}`);
            await client.db('d').collection(coll).drop();
        });

    test('BAL-1: a config primary that steps down leaves its moves to the donors; the next one goes on', async () => {
        const count = await fill('stepped', 6);
        const [donor] = cluster.shards;
        const isCloning = await donor.hang(donor.members[0], 'mig.d.cloning');
        await admin({ balancerStart: 1 });
        await isCloning();
        assert.equal((await admin({ balancerStatus: 1 })).inBalancerRound, true);
        const began = Date.now();
        await onConfig({ replSetStepDown: 1, force: true }).catch(() => {}); // it may close the connection
        await cluster.config.waitForPrimary();
        assert.ok(Date.now() - began < 20_000, 'nobody waits for the moves');
        await waitFor(async () => (await admin({ balancerStatus: 1 }).catch(() => ({}))).mode === 'full', { timeoutMs: 30_000, what: 'its status' });
        await donor.command(donor.members[0], { configureFailPoint: 'mig.d.cloning', mode: 'off' });
        await settled('d.stepped');
        await admin({ balancerStop: 1 });
        assert.equal(await client.db('d').collection('stepped').countDocuments(), count);
        await checkMovesOver(cluster, waitFor);
        await checkPlaces(cluster, client, 'd.stepped');
        await client.db('d').collection('stepped').drop();
    });

    test('BAL-3: a shard that is to be removed is emptied, jumbo chunks too, then it goes', async () => {
        const count = await fill('drained', 2);
        await admin({ moveRange: 'd.drained', min: { k: 20 }, max: { k: 60 }, toShard: 'shard2' });
        await admin({ moveRange: 'd.drained', min: { k: 100 }, max: { k: 160 }, toShard: 'shard2' });
        await config.collection('chunks').updateOne({ shard: 'shard2', min: { k: 100 } }, { $set: { jumbo: true } });
        const started = await admin({ removeShard: 'shard2' });
        assert.deepEqual([started.state, started.dbsToMove], ['started', []]);
        const ongoing = await admin({ removeShard: 'shard2' });
        assert.deepEqual([ongoing.state, Number(ongoing.remaining.chunks), Number(ongoing.remaining.jumboChunks)], ['ongoing', 2, 1]);
        assert.equal((await status('d.drained')).firstComplianceViolation, 'draining');
        await fails(() => admin({ moveRange: 'd.drained', min: { k: 0 }, max: { k: 5 }, toShard: 'shard2' }), 70);
        await admin({ balancerStart: 1 });
        const seen = [];
        await waitFor(
            async () => {
                const { state, remaining } = await admin({ removeShard: 'shard2' });
                seen.push(Number(remaining?.chunks ?? 0));
                return state === 'completed';
            },
            { timeoutMs: 120_000, what: 'the end of draining' },
        );
        assert.equal(await config.collection('shards').countDocuments({ _id: 'shard2' }), 0);
        assert.deepEqual(seen, [...seen].sort((a, b) => b - a), 'fewer and fewer');
        assert.equal(await client.db('d').collection('drained').countDocuments(), count);
        assert.ok((await decisions()).some(({ reason, outcome }) => reason === 'draining' && outcome === 'moved'));
        await fails(() => admin({ removeShard: 'shard2' }), 70);
    });
});

describe('the balancer of a config server of three', () => {
    let cluster;
    before(async () => {
        cluster = await startCluster({ configMembers: 3 });
    });
    after(() => cluster?.remove());

    test('BAL-1: another member goes on after a step-down in the middle; all members have written the same', async () => {
        const { config, shards } = cluster;
        const client = await cluster.client();
        for (const shard of shards) await shard.command(shard.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });
        await cluster.admin({ balancerStop: 1 });
        await client.db('config').collection('settings').updateOne({ _id: 'chunksize' }, { $set: { value: 1 } }, { upsert: true });
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
        await cluster.admin({ shardCollection: 'd.c', key: { k: 1 } });
        const pad = 'x'.repeat(10_000);
        const docs = Array.from({ length: 1000 }, (_, i) => ({ _id: i, k: i, pad }));
        await client.db('d').collection('c').insertMany(docs);
        await cluster.admin({ balancerStart: 1 });
        const moved = () => client.db('config').collection('changelog').countDocuments({ what: 'moveChunk.commit' });
        await waitFor(async () => (await moved()) > 0, { timeoutMs: 60_000, what: 'a move' });
        const first = await config.waitForPrimary();
        await config.command(first, { replSetStepDown: 30, force: true }).catch(() => {}); // it may close the connection
        await config.waitForPrimary({ other: first });
        await waitFor(async () => (await cluster.admin({ balancerCollectionStatus: 'd.c' }).catch(() => ({}))).balancerCompliant, {
            timeoutMs: 120_000,
            what: 'the end of balancing',
        });
        await cluster.admin({ balancerStop: 1 });
        assert.equal(await client.db('d').collection('c').countDocuments(), docs.length);
        await checkMovesOver(cluster, waitFor);
        await checkPlaces(cluster, client, 'd.c');
        const NAMES = ['actionlog', 'changelog', 'chunks', 'collections', 'settings', 'shards', 'tags'];
        const hashes = async () =>
            Promise.all(
                config.members.map(async (member) => {
                    const { collections } = await config.command(member, { dbHash: 1 }, 'config');
                    return NAMES.map((name) => collections[name]);
                }),
            );
        await waitFor(async () => new Set((await hashes()).map((h) => JSON.stringify(h))).size === 1, {
            timeoutMs: 30_000,
            what: 'all members to have the same',
        });
    });
});
