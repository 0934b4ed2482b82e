/*
 * Goal (BAL-2, RTE-3): chunks are split and merged through routers; statistics and checks of a collection cover all of its
 * shards; the helpers of the shell work. Method: real processes, the real shell.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Long, MaxKey, MinKey } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';
import { runShell } from '../lib/mongosh.mjs';
import { makeTempDir, removeTempDir } from '../lib/server.mjs';

const CANNOT_SPLIT = 87;
const NAMESPACE_NOT_SHARDED = 118;
const MIN = new MinKey();
const MAX = new MaxKey();

describe('splitVector', () => {
    let cluster;
    let db; // of a shard, as any node
    const vector = (more) => db.admin().command({ splitVector: 's.c', keyPattern: { k: 1 }, ...more });
    const keys = async (more) => (await vector(more)).splitKeys.map(({ k }) => k);

    before(async () => {
        cluster = await startCluster({ shards: 1 });
        db = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('s');
        await db.collection('c').createIndex({ k: 1, other: -1 });
        const pad = 'x'.repeat(1000);
        await db.collection('c').insertMany(Array.from({ length: 1000 }, (_, k) => ({ k, other: -k, pad })));
    });
    after(() => cluster?.remove());

    test('BAL-2: pieces are of half the size, by the average document', async () => {
        /* Of 1050 bytes each. */
        assert.deepEqual(
            await keys({ maxChunkSizeBytes: 2100 * 97 }),
            Array.from({ length: 10 }, (_, i) => 97 * (i + 1)),
        );
        assert.deepEqual(await keys({ maxChunkSize: 1 }), [499, 998]);
        assert.deepEqual(await keys({ maxChunkSize: 64 }), []);
    });

    test('BAL-2: bounds, and limits of objects and points', async () => {
        const size = { maxChunkSizeBytes: 200 * 1024 };
        const inside = await keys({ ...size, min: { k: 500 }, max: { k: 800 } });
        assert.ok(inside.length >= 2 && inside.every((k) => k > 500 && k < 800), `${inside}`);
        assert.deepEqual(await keys({ ...size, min: { k: 500 }, max: { k: 510 } }), []);
        assert.equal((await keys({ ...size, min: { k: MIN }, max: { k: MAX } })).length, (await keys(size)).length);
        assert.equal((await keys({ ...size, maxSplitPoints: 3 })).length, 3);
        assert.deepEqual((await keys({ ...size, maxChunkObjects: 10 })).slice(0, 3), [10, 20, 30]);
        await fails(() => vector({ ...size, min: { k: 1 } }), 2);
        await fails(() => vector({}), 72);
        await fails(() => vector({ ...size, keyPattern: { pad: 1 } }), 27);
        await fails(() => db.admin().command({ splitVector: 's.none', keyPattern: { k: 1 }, ...size }), 26);
    });

    test('BAL-2: force is the key in the middle', async () => {
        assert.deepEqual(await keys({ force: true }), [500]);
        assert.deepEqual(await keys({ force: true, min: { k: 100 }, max: { k: 200 } }), [150]);
        assert.deepEqual(await keys({ force: true, min: { k: 5 }, max: { k: 6 } }), []);
        assert.deepEqual(await keys({ force: true, min: { k: 5000 }, max: { k: MAX } }), []);
    });

    test('BAL-2: a key that is too frequent is never cut, and never told twice', async () => {
        const c = db.collection('frequent');
        await c.createIndex({ k: 1 });
        const pad = 'x'.repeat(1000);
        const documents = [...Array.from({ length: 300 }, () => ({ k: 1 })), ...Array.from({ length: 300 }, () => ({ k: 2 })), { k: 3 }];
        await c.insertMany(documents.map((document) => ({ ...document, pad })));
        const { splitKeys } = await db.admin().command({ splitVector: 's.frequent', keyPattern: { k: 1 }, maxChunkSizeBytes: 20000 });
        assert.deepEqual(splitKeys, [{ k: 2 }, { k: 3 }]);
        await c.deleteMany({ k: { $ne: 1 } });
        const none = await db.admin().command({ splitVector: 's.frequent', keyPattern: { k: 1 }, maxChunkSizeBytes: 20000 });
        assert.deepEqual(none.splitKeys, []);
    });

    test('BAL-2: of a hashed key, hashes', async () => {
        const c = db.collection('hashed');
        await c.createIndex({ k: 'hashed' });
        await c.insertMany(Array.from({ length: 100 }, (_, k) => ({ k })));
        const { splitKeys } = await db
            .admin()
            .command({ splitVector: 's.hashed', keyPattern: { k: 'hashed' }, force: true }, { promoteLongs: false });
        assert.equal(splitKeys.length, 1);
        assert.ok(Long.isLong(splitKeys[0].k), `${splitKeys[0].k}`);
    });
});

describe('chunks through routers', () => {
    let cluster;
    let client;
    let other; // of the second router
    const admin = (command, router) => cluster.admin(command, router);
    const chunks = async (ns) => {
        const { uuid } = await client.db('config').collection('collections').findOne({ _id: ns });
        return client.db('config').collection('chunks').find({ uuid }).sort({ min: 1 }).toArray();
    };
    const points = async (ns) => (await chunks(ns)).slice(1).map(({ min }) => min.k);

    before(async () => {
        cluster = await startCluster({ routers: 2 });
        client = await cluster.client();
        other = await cluster.client({}, cluster.routers[1]);
        await admin({ enableSharding: 'd', primaryShard: 'shard0' });
        /* From now on the second router thinks that they are not sharded. */
        await other.db('d').command({ collStats: 'c' });
        await other.db('d').command({ collStats: 'h' });
        await admin({ shardCollection: 'd.c', key: { k: 1 } });
        await admin({ shardCollection: 'd.h', key: { k: 'hashed' } });
        await client.db('d').collection('plain').insertMany([{ k: 1 }, { k: 2 }, { k: 3 }]);
    });
    after(() => cluster?.remove());

    test('BAL-2: split by middle, bounds and find', async () => {
        await admin({ split: 'd.c', middle: { k: 100 } });
        assert.deepEqual(await points('d.c'), [100]);
        const c = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('d').collection('c');
        await c.insertMany(Array.from({ length: 100 }, (_, k) => ({ _id: k, k })));
        await admin({ split: 'd.c', bounds: [{ k: MIN }, { k: 100 }] });
        assert.deepEqual(await points('d.c'), [50, 100]);
        await admin({ split: 'd.c', find: { k: 60 } });
        assert.deepEqual(await points('d.c'), [50, 75, 100]);
        const rows = await chunks('d.c');
        assert.ok(rows.every(({ shard }) => shard === 'shard0'));
        const versions = rows.map(({ lastmod }) => [lastmod.getHighBits(), lastmod.getLowBits()]);
        assert.ok(versions.every(([major]) => major === 1), `${versions}`);
        assert.equal(new Set(versions.map(String)).size, rows.length);
    });

    test('BAL-2: a stale router splits by the newest table', async () => {
        const shell = cluster.routers[1];
        await admin({ getShardVersion: 'd.c' }, shell);
        await admin({ split: 'd.c', middle: { k: 10 } });
        await admin({ split: 'd.c', middle: { k: 20 } }, shell);
        await admin({ split: 'd.c', middle: { k: 30 } });
        assert.deepEqual(await points('d.c'), [10, 20, 30, 50, 75, 100]);
    });

    test('BAL-2: many at the same time, through two routers', async () => {
        await admin({ shardCollection: 'd.many', key: { k: 1 } });
        await Promise.all(
            Array.from({ length: 12 }, async (_, k) => {
                for (let i = 0; i < 20; i++) {
                    try {
                        return await admin({ split: 'd.many', middle: { k } }, cluster.routers[k % 2]);
                    } catch (error) {
                        /* Given up after some rounds: others were always faster. */
                        assert.ok([2, 150].includes(error.code), `${error.code}: ${error.message}`);
                    }
                }
                throw new Error(`point ${k} did not get through`);
            }),
        );
        assert.deepEqual(await points('d.many'), Array.from({ length: 12 }, (_, k) => k));
        const versions = (await chunks('d.many')).map(({ lastmod }) => lastmod.toString());
        assert.equal(new Set(versions).size, 13);
    });

    test('BAL-2: what cannot be split', async () => {
        await fails(() => admin({ split: 'd.plain', middle: { k: 1 } }), NAMESPACE_NOT_SHARDED);
        await fails(() => admin({ split: 'none.c', middle: { k: 1 } }), NAMESPACE_NOT_SHARDED);
        await fails(() => admin({ split: 'd.c', middle: { k: 100 } }), CANNOT_SPLIT);
        await fails(() => admin({ split: 'd.c', middle: { k: MIN } }), CANNOT_SPLIT);
        await fails(() => admin({ split: 'd.c', middle: { other: 1 } }), 61);
        await fails(() => admin({ split: 'd.c', find: { other: 1 } }), 61);
        await fails(() => admin({ split: 'd.c', bounds: [{ k: 1 }, { k: 2 }] }), 72);
        await fails(() => admin({ split: 'd.c', bounds: [{ k: 1 }] }), 2);
        await fails(() => admin({ split: 'd.c' }), 72);
        await fails(() => admin({ split: 'd.c', find: { k: 1 }, middle: { k: 1 } }), 72);
        await fails(() => admin({ split: 1, middle: { k: 1 } }), 14);
        /* Empty, or of one key. */
        await fails(() => admin({ split: 'd.c', find: { k: 1000 } }), CANNOT_SPLIT);
        await admin({ split: 'd.c', middle: { k: 1 } });
        await admin({ split: 'd.c', middle: { k: 2 } });
        await fails(() => admin({ split: 'd.c', find: { k: 1 } }), CANNOT_SPLIT);
    });

    test('BAL-2: chunks of a hash', async () => {
        const before = await chunks('d.h');
        assert.equal(before.length, 4);
        await admin({ split: 'd.h', middle: { k: Long.fromNumber(123) } });
        assert.equal((await chunks('d.h')).length, 5);
        await fails(() => admin({ split: 'd.h', middle: { k: 'no hash' } }), 72);
        for (let i = 0; i < 2; i++) {
            const shard = (await cluster.shards[i].direct(cluster.shards[i].members[0])).db('d').collection('h');
            await shard.insertMany(Array.from({ length: 200 }, (_, k) => ({ k })));
        }
        await admin({ split: 'd.h', find: { k: 7 } });
        assert.equal((await chunks('d.h')).length, 6);
    });

    test('BAL-2: merges of one shard, refused otherwise', async () => {
        const merge = (ns, min, max) => admin({ mergeChunks: ns, bounds: [min, max] });
        await merge('d.c', { k: 10 }, { k: 50 });
        assert.deepEqual(await points('d.c'), [1, 2, 10, 50, 75, 100]);
        await merge('d.c', { k: 10 }, { k: 50 }); // again is fine
        await merge('d.c', { k: MIN }, { k: MAX });
        assert.deepEqual(await points('d.c'), []);
        await fails(() => merge('d.h', { k: MIN }, { k: MAX }), 20);
        await fails(() => merge('d.c', { k: 1 }, { k: 2 }), 20);
        await fails(() => merge('d.c', { k: 2 }, { k: 1 }), 72);
        await fails(() => merge('d.c', { x: 1 }, { k: 1 }), 61);
        await fails(() => merge('d.plain', { k: 1 }, { k: 2 }), NAMESPACE_NOT_SHARDED);
        await fails(() => admin({ mergeChunks: 'd.c', bounds: { k: 1 } }), 2);
        /* Requests by the old tables go on. */
        assert.equal(await other.db('d').collection('c').countDocuments({ k: 55 }), 1);
    });

    test('RTE-3: versions, as a router knows them, and forgetting them', async () => {
        const before = await admin({ getShardVersion: 'd.c' });
        const [{ lastmod, uuid }] = await chunks('d.c');
        assert.deepEqual(before.version, lastmod);
        const entry = await client.db('config').collection('collections').findOne({ uuid });
        assert.deepEqual(before.versionEpoch, entry.lastmodEpoch);
        assert.deepEqual(before.versionTimestamp, entry.timestamp);
        await fails(() => admin({ getShardVersion: 'd.plain' }), NAMESPACE_NOT_SHARDED);
        const { version } = await client.db('config').collection('databases').findOne({ _id: 'd' });
        assert.deepEqual((await admin({ getDatabaseVersion: 'd' })).dbVersion, version);
        await fails(() => admin({ getDatabaseVersion: 'none' }), 26);
        /* Splits are not told to other routers: they find out when they ask anew. */
        const there = cluster.routers[1];
        const seen = async () => (await admin({ getShardVersion: 'd.c' }, there)).version.toString();
        const first = await seen();
        for (const what of ['d.c', 'd', 1]) {
            const old = await seen();
            await admin({ split: 'd.c', middle: { k: 1000 + [1, 'd', 'd.c'].indexOf(what) } });
            assert.equal(await seen(), old);
            assert.equal((await admin({ flushRouterConfig: what }, there)).flushed, true);
            assert.notEqual(await seen(), old);
        }
        assert.notEqual(await seen(), first);
        await fails(() => admin({ flushRouterConfig: 'a b.c' }, there), 73);
    });

    test('RTE-3: fullMetadata has the chunks: all of them on a router, its own on a shard', async () => {
        const bounds = (rows) => rows.map(({ min, max }) => [min, max]);
        const rows = await chunks('d.h');
        assert.deepEqual((await admin({ getShardVersion: 'd.h', fullMetadata: true })).chunks, bounds(rows));
        assert.equal((await admin({ getShardVersion: 'd.h' })).chunks, undefined);
        await client.db('d').collection('h').countDocuments();
        const shard = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('admin');
        const reply = await shard.command({ getShardVersion: 'd.h', fullMetadata: true });
        const { metadata } = reply;
        assert.deepEqual(metadata.chunks, bounds(rows.filter((row) => row.shard === 'shard0')));
        assert.deepEqual(metadata.shardVersion, reply.global);
        assert.deepEqual(metadata.collVersion, (await admin({ getShardVersion: 'd.h' })).version);
        assert.deepEqual(metadata.keyPattern, { k: 'hashed' });
        assert.deepEqual((await shard.command({ getShardVersion: 'd.none', fullMetadata: true })).metadata, {});
    });

    test('MIG-1: setAllowMigrations forbids moves of a collection, and allows them', async () => {
        await admin({ shardCollection: 'd.kept', key: { k: 1 } });
        const entry = () => client.db('config').collection('collections').findOne({ _id: 'd.kept' });
        const move = () => admin({ moveChunk: 'd.kept', find: { k: 1 }, to: 'shard1' });
        const version = (await admin({ getShardVersion: 'd.kept' })).version;
        await admin({ setAllowMigrations: 'd.kept', allowMigrations: false });
        await admin({ setAllowMigrations: 'd.kept', allowMigrations: false });
        assert.equal((await entry()).permitMigrations, false);
        assert.ok(!('allowMigrations' in (await entry())), 'that is for operations on the collection');
        await admin({ flushRouterConfig: 'd.kept' });
        assert.deepEqual((await admin({ getShardVersion: 'd.kept' })).version, version);
        await fails(move, 117);
        assert.deepEqual((await chunks('d.kept')).map(({ shard }) => shard), ['shard0']);
        await admin({ setAllowMigrations: 'd.kept', allowMigrations: true });
        assert.ok(!('permitMigrations' in (await entry())));
        await move();
        assert.deepEqual((await chunks('d.kept')).map(({ shard }) => shard), ['shard1']);
        await fails(() => admin({ setAllowMigrations: 'd.plain', allowMigrations: true }), NAMESPACE_NOT_SHARDED);
        await fails(() => admin({ setAllowMigrations: 'd.kept' }), 40414);
        await fails(() => client.db('d').command({ setAllowMigrations: 'd.kept', allowMigrations: true }), 13);
    });

    test('MIG-1: moves, splits and deletions by an index that is multikey behind the shard key', async () => {
        const many = client.db('d').collection('lists');
        await many.createIndex({ k: 1, x: 1 });
        await admin({ shardCollection: 'd.lists', key: { k: 1 } });
        await many.insertMany(Array.from({ length: 300 }, (_, k) => ({ _id: k, k, x: [1, 2, 3, k] })));
        assert.deepEqual((await many.indexes()).map(({ name }) => name), ['_id_', 'k_1_x_1']);
        await admin({ split: 'd.lists', find: { k: 1 } });
        assert.deepEqual(await points('d.lists'), [150]);
        await admin({ moveChunk: 'd.lists', find: { k: 1 }, to: 'shard1', _waitForDelete: true });
        assert.equal(await many.countDocuments(), 300);
        assert.deepEqual(await many.distinct('k'), Array.from({ length: 300 }, (_, k) => k));
        const left = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('d').collection('lists');
        assert.equal(await left.countDocuments({}, { hint: { $natural: 1 } }), 150);
        /* As a shard key it may not be: before a collection is sharded its values may be arrays. */
        const plain = client.db('d').collection('arrays');
        await plain.createIndex({ k: 1, x: 1 });
        await plain.insertOne({ k: 1, x: [1, 2] });
        await fails(() => admin({ shardCollection: 'd.arrays', key: { k: 1 } }), 72);
    });

    test('MIG-1: indexes of a collection with a collation have theirs on the other shard, too', async () => {
        const french = await client.db('d').createCollection('french', { collation: { locale: 'fr', strength: 1 } });
        await french.createIndex({ k: 1 }, { collation: { locale: 'simple' } });
        await french.createIndex({ other: 1 });
        await admin({ shardCollection: 'd.french', key: { k: 1 }, collation: { locale: 'simple' } });
        await french.insertMany([{ _id: 1, k: 'a' }, { _id: 2, k: 'A' }]);
        await admin({ moveChunk: 'd.french', find: { k: 'a' }, to: 'shard1', _waitForDelete: true });
        const there = (await cluster.shards[1].direct(cluster.shards[1].members[0])).db('d').collection('french');
        const locales = Object.fromEntries((await there.indexes()).map(({ name, collation }) => [name, collation?.locale]));
        assert.deepEqual(locales, { _id_: 'fr', k_1: undefined, other_1: 'fr' });
        assert.equal(await french.countDocuments(), 2);
    });

    test('RTE-6: $shardedDataDistribution tells how much of each collection is where', async () => {
        const ask = (...more) => client.db('admin').aggregate([{ $shardedDataDistribution: {} }, ...more]).toArray();
        const [many] = await ask({ $match: { ns: 'd.lists' } });
        assert.deepEqual(many.shards.map(({ shardName, numOwnedDocuments, numOrphanedDocs, orphanedSizeBytes }) => [shardName, numOwnedDocuments, numOrphanedDocs, orphanedSizeBytes]), [
            ['shard0', 150, 0, 0],
            ['shard1', 150, 0, 0],
        ]);
        assert.ok(many.shards.every(({ ownedSizeBytes }) => ownedSizeBytes > 150 * 50));
        assert.ok((await ask()).every(({ ns }) => ns !== 'd.plain'));
        assert.deepEqual(await ask({ $match: { ns: 'd.plain' } }), []);
        const run = (db, target, stage) => client.db(db).command({ aggregate: target, pipeline: [{ $shardedDataDistribution: stage }], cursor: {} });
        await fails(() => run('admin', 1, 3), 6789100);
        await fails(() => run('d', 'many', {}), 6789102);
        const node = await cluster.shards[0].direct(cluster.shards[0].members[0]);
        const direct = { aggregate: 1, pipeline: [{ $shardedDataDistribution: {} }], cursor: {} };
        await fails(() => node.db('admin').command(direct), 6789101);
    });

    test('RTE-6: the error of a pipeline names the member that it is from', async () => {
        const divide = client.db('d').collection('lists').aggregate([{ $project: { x: { $divide: ['$k', 0] } } }]);
        const hosts = cluster.shards.map(({ address }) => address.split('/')[1]);
        await fails(() => divide.toArray(), 2, { message: new RegExp(`Error on remote shard (${hosts.join('|')}) :: caused by ::`) });
    });

    test('RTE-6: statistics add up over shards', async () => {
        const d = client.db('d');
        const stats = await d.command({ collStats: 'h' });
        assert.equal(stats.sharded, true);
        assert.deepEqual(Object.keys(stats.shards).sort(), ['shard0', 'shard1']);
        assert.equal(stats.count, 400);
        assert.equal(stats.size, stats.shards.shard0.size + stats.shards.shard1.size);
        assert.equal(stats.nindexes, 2);
        assert.equal(stats.nchunks, 6);
        assert.ok(stats.indexSizes.k_hashed > 0 && stats.totalIndexSize >= stats.indexSizes.k_hashed);
        assert.ok(Math.abs(stats.avgObjSize - stats.size / 400) < 1);
        const plain = await d.command({ collStats: 'plain' });
        assert.equal(plain.sharded, false);
        assert.equal(plain.primary, 'shard0');
        assert.equal(plain.count, 3);
        const size = await other.db('d').command({ dataSize: 'd.h' });
        assert.equal(size.numObjects, 400);
        assert.equal(size.size, stats.size);
        assert.equal((await other.db('d').command({ collStats: 'h' })).count, 400);
        const whole = await d.command({ dbStats: 1 });
        assert.equal(Object.keys(whole.raw).length, 2);
        assert.equal(whole.db, 'd');
        assert.equal(
            whole.objects,
            Object.values(whole.raw).reduce((sum, { objects }) => sum + objects, 0),
        );
        assert.ok(whole.objects >= 503);
        assert.equal((await client.db('none').command({ dbStats: 1 })).objects, 0);
        assert.ok((await client.db('config').command({ dbStats: 1 })).objects > 0);
        const valid = await d.command({ validate: 'h' });
        assert.equal(valid.valid, true);
        assert.deepEqual(
            Object.values(valid.raw).map(({ nrecords }) => nrecords),
            [200, 200],
        );
        await fails(() => d.command({ validate: 'none' }), 26);
    });

    test('BAL-2: what is not there yet is refused by its name', async () => {
        for (const name of ['refineCollectionShardKey', 'reshardCollection', 'splitVector'])
            await fails(() => admin({ [name]: 'd.c' }), 238, { message: new RegExp(name) });
    });

    test('RTE-6: the helpers of the shell', async () => {
        const home = makeTempDir();
        const uri = `mongodb://127.0.0.1:${cluster.routers[0].port}/d`;
        const shell = async (...statements) => (await runShell({ uri, home }, ...statements)).trim();
        const json = async (statement) => JSON.parse(await shell(`EJSON.stringify(${statement})`));
        try {
            await shell(
                `sh.shardCollection('d.shell', { k: 1 })`,
                `for (let k = 0; k < 10; k++) db.shell.insertOne({ k })`,
                `sh.splitAt('d.shell', { k: 100 })`,
                `sh.splitFind('d.shell', { k: 3 })`,
                `sh.disableBalancing('d.shell')`, // else it would be split at the borders of the zone
                `sh.addShardToZone('shard0', 'near')`,
                `sh.updateZoneKeyRange('d.shell', { k: 0 }, { k: 100 }, 'near')`,
            );
            assert.deepEqual(await points('d.shell'), [5, 100]);
            const entry = () => client.db('config').collection('collections').findOne({ _id: 'd.shell' });
            assert.equal((await entry()).noBalance, true);
            assert.equal(await client.db('config').collection('tags').countDocuments({ tag: 'near' }), 1);
            assert.match(await shell('db.shell.getShardDistribution()'), /Shard shard0 at shard0\/[\s\S]*docs: 10,\s+chunks: 3/);
            const text = await shell('sh.status()');
            assert.match(text, /d\.shell/);
            assert.match(text, /chunkMetadata[\s\S]*nChunks: 3/);
            assert.match(text, /near/);
            const results = await shell(
                `sh.enableBalancing('d.shell'); sh.removeRangeFromZone('d.shell', { k: 0 }, { k: 100 }); sh.stopBalancer();` +
                    `print(sh.getBalancerState()); sh.startBalancer(); print(sh.getBalancerState());` +
                    `print(EJSON.stringify(sh.isBalancerRunning())); print(EJSON.stringify(db.shell.getShardVersion()));` +
                    `print(EJSON.stringify(db.plain.stats())); 0`,
            );
            const lines = results.split('\n');
            assert.deepEqual(lines.slice(0, 2), ['false', 'true']);
            assert.ok(['off', 'full'].includes(JSON.parse(lines[2]).mode), lines[2]);
            assert.ok(JSON.parse(lines[3]).versionEpoch, lines[3]);
            assert.equal(JSON.parse(lines[4]).count, 3);
            assert.equal((await entry()).noBalance, false);
            assert.equal(await client.db('config').collection('tags').countDocuments({ tag: 'near' }), 0);
            assert.deepEqual(await json(`db.checkMetadataConsistency().toArray()`), []);
        } finally {
            removeTempDir(home);
        }
    });
});
