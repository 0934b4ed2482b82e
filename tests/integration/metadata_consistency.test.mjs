/*
 * Goal (DDL-3): checkMetadataConsistency finds what does not fit together, and nothing else. Method: real processes; each
 * inconsistency is made by hand behind the routers' backs, found, mended, and not found any more.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { MaxKey, MinKey, ObjectId, Timestamp, UUID } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';

describe('checkMetadataConsistency', () => {
    let cluster;
    let client;
    let shards; // clients of the members themselves
    let config;
    const check = async (db = 'admin', what = 1, more = {}) => {
        const { cursor } = await client.db(db).command({ checkMetadataConsistency: what, ...more });
        assert.equal(cursor.id.toString(), '0');
        return cursor.firstBatch;
    };
    const types = async (...args) => (await check(...args)).map(({ type }) => type);
    /* Found by what `args` ask for, in the whole cluster, and not in another database; then mended. */
    const found = async (type, { args = ['d', 1], mend, also = [] }) => {
        const rows = await check(...args);
        assert.deepEqual(rows.map((row) => row.type).sort(), [type, ...also].sort(), JSON.stringify(rows));
        const options = args[2] ?? {};
        assert.deepEqual((await types('admin', 1, options)).sort(), [type, ...also].sort());
        assert.deepEqual(await types('other', 1, options), []);
        const row = rows.find((one) => one.type === type);
        assert.equal(typeof row.description, 'string');
        await mend();
        assert.deepEqual(await check('admin', 1, options), []);
        return row.details;
    };
    const entryOf = (ns) => config.collection('collections').findOne({ _id: ns });

    before(async () => {
        cluster = await startCluster();
        client = await cluster.client();
        shards = await Promise.all(cluster.shards.map((set) => set.direct(set.members[0])));
        config = (await cluster.config.direct(cluster.config.members[0])).db('config');
    });
    after(() => cluster?.remove());

    test('DDL-3: an empty cluster, and databases that do not exist', async () => {
        assert.deepEqual(await check(), []);
        assert.deepEqual(await check('d'), []);
        assert.deepEqual(await check('d', 'c'), []);
        await fails(() => check('config'), 73);
        await fails(() => check('admin', 'c'), 73);
    });

    test('DDL-3: an intact cluster', async () => {
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
        await cluster.admin({ enableSharding: 'other', primaryShard: 'shard1' });
        for (const name of ['ranged', 'once']) await cluster.admin({ shardCollection: `d.${name}`, key: { k: 1 } });
        for (const name of ['hashed', 'gone']) await cluster.admin({ shardCollection: `d.${name}`, key: { k: 'hashed' } });
        await cluster.admin({ renameCollection: 'd.once', to: 'd.renamed' });
        await client.db('d').collection('gone').drop();
        await cluster.admin({ shardCollection: 'other.hashed', key: { a: 1, k: 'hashed' } });
        await client.db('d').collection('hashed').createIndex({ x: 1 });
        await client.db('d').collection('plain').insertOne({ k: 1 });
        await client.db('other').collection('plain').insertOne({ k: 1 });
        await client.db('d').createCollection('view', { viewOn: 'plain', pipeline: [] });
        await cluster.admin({ split: 'd.ranged', middle: { k: 5 } });
        for (let i = 0; i < 2; i++) await client.db('d').collection('hashed').countDocuments({});
        const options = { checkIndexes: true };
        assert.deepEqual(await check('admin', 1, options), []);
        for (const name of ['ranged', 'renamed', 'hashed', 'plain', 'view', 'none']) assert.deepEqual(await check('d', name, options), []);
    });

    test('DDL-3: a collection on a shard where it does not belong', async () => {
        await shards[1].db('d').createCollection('stray');
        const { namespace, shard, localUUID } = await found('MisplacedCollection', {
            mend: () => shards[1].db('d').collection('stray').drop(),
        });
        assert.equal(namespace, 'd.stray');
        assert.equal(shard, 'shard1');
        assert.equal(localUUID._bsontype, 'Binary');
        await shards[1].db('d').createCollection('plain');
        assert.deepEqual(await types('d', 'ranged'), []);
        await found('MisplacedCollection', { args: ['d', 'plain'], mend: () => shards[1].db('d').collection('plain').drop() });
    });

    test('DDL-3: another collection of the same name', async () => {
        await shards[1].db('d').createCollection('ranged');
        const details = await found('CollectionUUIDMismatch', {
            args: ['d', 'ranged'],
            mend: () => shards[1].db('d').collection('ranged').drop(),
        });
        assert.equal(details.namespace, 'd.ranged');
        assert.equal(details.shard, 'shard1');
        assert.equal(details.uuid.toString('hex'), (await entryOf('d.ranged')).uuid.toString('hex'));
        assert.notEqual(details.localUUID.toString('hex'), details.uuid.toString('hex'));
    });

    test('DDL-3: an owner without the collection', async () => {
        const entry = await entryOf('d.renamed');
        const chunk = await config.collection('chunks').findOne({ uuid: entry.uuid });
        await config.collection('chunks').updateOne({ _id: chunk._id }, { $set: { shard: 'shard1', 'history.0.shard': 'shard1' } });
        const details = await found('MissingLocalCollection', {
            args: ['d', 'renamed'],
            mend: () => config.collection('chunks').replaceOne({ _id: chunk._id }, chunk),
        });
        assert.equal(details.namespace, 'd.renamed');
        assert.equal(details.shard, 'shard1');
    });

    test('DDL-3: indexes that are missing, or differ', async () => {
        const here = shards[1].db('d').collection('hashed');
        const withIndexes = ['d', 1, { checkIndexes: true }];
        await here.createIndex({ y: 1 });
        assert.deepEqual(await types('d'), []); // not asked for
        const only = await found('InconsistentIndex', { args: withIndexes, mend: () => here.dropIndex('y_1') });
        assert.equal(only.namespace, 'd.hashed');
        assert.deepEqual(only.info, { missingFromShards: ['shard0'], inconsistentProperties: [], indexName: 'y_1' });
        await here.dropIndex('x_1');
        await here.createIndex({ x: 1 }, { sparse: true });
        const differs = await found('InconsistentIndex', {
            args: withIndexes,
            mend: async () => {
                await here.dropIndex('x_1');
                await here.createIndex({ x: 1 });
            },
        });
        assert.deepEqual(differs.info.missingFromShards, []);
        assert.deepEqual(differs.info.inconsistentProperties, [{ k: 'sparse', v: true }]);
        /* A hidden one does not support the shard key. */
        const hide = (hidden) => shards[1].db('d').command({ collMod: 'hashed', index: { name: 'k_hashed', hidden } });
        await hide(true);
        const key = await found('MissingShardKeyIndex', { mend: () => hide(false) });
        assert.equal(key.namespace, 'd.hashed');
        assert.equal(key.shard, 'shard1');
        assert.deepEqual(key.key, { k: 'hashed' });
    });

    test('DDL-3: options that differ', async () => {
        const set = (shard, validator) => shards[shard].db('d').command({ collMod: 'hashed', validator });
        await set(1, { k: { $exists: true } });
        const details = await found('CollectionOptionsMismatch', { mend: () => Promise.all([set(0, {}), set(1, {})]) });
        assert.equal(details.namespace, 'd.hashed');
        assert.deepEqual(details.options.map((row) => row.shards).flat().sort(), ['shard0', 'shard1']);
    });

    test('DDL-3: a sharded collection without a database', async () => {
        const uuid = new UUID();
        const entry = { _id: 'ghost.c', lastmodEpoch: new ObjectId(), lastmod: new Date(), timestamp: new Timestamp({ t: 1, i: 1 }), uuid, key: { k: 1 }, unique: false };
        await config.collection('collections').insertOne(entry);
        const history = [{ validAfter: entry.timestamp, shard: 'shard0' }];
        const chunk = { uuid, min: { k: new MinKey() }, max: { k: new MaxKey() }, shard: 'shard0', lastmod: new Timestamp({ t: 1, i: 0 }) };
        await config.collection('chunks').insertOne({ ...chunk, onCurrentShardSince: entry.timestamp, history });
        const rows = await check();
        assert.deepEqual(rows.map(({ type }) => type), ['HiddenShardedCollection']);
        assert.equal(rows[0].details.namespace, 'ghost.c');
        assert.equal(rows[0].details.collection._id, 'ghost.c');
        await config.collection('collections').deleteOne({ _id: 'ghost.c' });
        assert.deepEqual(await types(), ['ChunksWithoutCollection']);
        await config.collection('chunks').deleteMany({ uuid });
        assert.deepEqual(await types(), []);
    });

    test('DDL-3: chunks with a gap', async () => {
        const { uuid } = await entryOf('d.ranged');
        const chunk = await config.collection('chunks').findOne({ uuid, 'min.k': 5 });
        await config.collection('chunks').updateOne({ _id: chunk._id }, { $set: { min: { k: 6 } } });
        const details = await found('RoutingTableRangeGap', {
            args: ['d', 'ranged'],
            mend: () => config.collection('chunks').replaceOne({ _id: chunk._id }, chunk),
        });
        assert.equal(details.namespace, 'd.ranged');
    });

    test('DDL-3: sections and coordinators that nobody leads', async () => {
        const sections = shards[1].db('config').collection('collection_critical_sections');
        for (const [_id, args] of [['d.ranged', ['d', 'ranged']], ['d.some', ['d', 1]], ['d', ['d', 'ranged']]]) {
            await sections.insertOne({ _id, reason: { command: 'planted' }, blockReads: false });
            const details = await found('StrayCriticalSection', { args, mend: () => sections.deleteOne({ _id }) });
            assert.equal(details.namespace, _id);
            assert.equal(details.shard, 'shard1');
            assert.equal(details.reason.command, 'planted');
        }
        for (const i of [0, 1]) {
            const coordinators = shards[i].db('config').collection('system.sharding_ddl_coordinators');
            const _id = { namespace: 'd.ranged', operationType: 'dropCollection_V2' };
            await coordinators.insertOne({ _id, phase: 'drop.block' });
            const details = await found('StrayCoordinator', { mend: () => coordinators.deleteOne({ _id }) });
            assert.equal(details.shard, `shard${i}`);
            assert.equal(details.phase, 'drop.block');
            assert.deepEqual(details.coordinator, _id);
        }
    });

    test('DDL-3: cached metadata that the config server never had', async () => {
        const cache = shards[0].db('config').collection('cache.collections');
        const before = await cache.findOne({ _id: 'd.ranged' });
        assert.ok(before !== null);
        const mend = () => cache.replaceOne({ _id: 'd.ranged' }, before);
        for (const changed of [
            { timestamp: new Timestamp({ t: before.timestamp.getHighBits() + 1000, i: 1 }) },
            { uuid: new UUID() },
            { epoch: new ObjectId() },
            { key: { other: 1 } },
        ]) {
            await cache.updateOne({ _id: 'd.ranged' }, { $set: changed, $unset: { outdated: '' } });
            const details = await found('CachedMetadataMismatch', { args: ['d', 'ranged'], mend });
            assert.equal(details.shard, 'shard0');
        }
        /* An older generation, and one that is being written, are as they may be. */
        const older = new Timestamp({ t: before.timestamp.getHighBits() - 1, i: 1 });
        await cache.updateOne({ _id: 'd.ranged' }, { $set: { timestamp: older, epoch: new ObjectId() } });
        assert.deepEqual(await types('d'), []);
        await cache.updateOne({ _id: 'd.ranged' }, { $set: { uuid: new UUID(), refreshing: true } });
        assert.deepEqual(await types('d'), []);
        await mend();
    });

    test('DDL-3: what is under way is not damage', async () => {
        let isOver = false;
        const work = async (name) => {
            const d = client.db('d');
            for (let i = 0; !isOver; i++) {
                await cluster.admin({ shardCollection: `d.${name}`, key: i % 2 ? { k: 1 } : { k: 'hashed' } });
                await d.collection(name).createIndex({ z: 1 });
                await cluster.admin({ renameCollection: `d.${name}`, to: `d.${name}_2` });
                await d.collection(`${name}_2`).drop();
            }
        };
        const workers = ['w0', 'w1'].map(work);
        try {
            for (let i = 0; i < 8; i++) {
                assert.deepEqual(await check('d', 1, { checkIndexes: true }), []);
                assert.deepEqual(await check('d', `w${i % 2}`, { checkIndexes: true }), []);
                assert.deepEqual(await check('admin', 1, { checkIndexes: true }), []);
            }
        } finally {
            isOver = true;
            await Promise.all(workers);
        }
    });

    test('DDL-3: the check waits for an operation on the same name, and that one for the check', async () => {
        const point = (mode, data) => shards[0].db('admin').command({ configureFailPoint: 'task.beforeRun', mode, data });
        await cluster.admin({ shardCollection: 'd.slow', key: { k: 1 } });
        await point('alwaysOn', { at: 'drop.data', blockTimeMS: 60_000 });
        const { count } = await point({ skip: 0 }, { at: 'drop.data', blockTimeMS: 60_000 });
        const drop = client.db('d').collection('slow').drop();
        await shards[0].db('admin').command({ waitForFailPoint: 'task.beforeRun', timesEntered: count + 1, maxTimeMS: 10_000 });
        /* Half of it is done: its section is there, its entry is not. */
        await fails(() => check('d', 1, { maxTimeMS: 700 }), 50);
        await fails(() => check('d', 'slow', { maxTimeMS: 700 }), 50);
        assert.deepEqual(await check('d', 'hashed'), []);
        assert.deepEqual(await check('other'), []);
        const waiting = check('d', 'slow');
        await point('off');
        await drop;
        assert.deepEqual(await waiting, []);
        assert.deepEqual(await check('d'), []);
        /* Nobody has kept a lock. */
        await cluster.admin({ shardCollection: 'd.slow', key: { k: 1 } });
        await client.db('d').collection('slow').drop();
    });

    test('DDL-3: a database that only a shard knows', async () => {
        await shards[1].db('hidden').collection('c').insertOne({});
        const rows = await check();
        assert.deepEqual(rows.map(({ type, details }) => [type, details]), [['HiddenDatabase', { database: 'hidden', shard: 'shard1' }]]);
        await shards[1].db('hidden').dropDatabase();
        assert.deepEqual(await check(), []);
        await client.db('short').collection('c').insertOne({});
        await client.db('short').dropDatabase();
        assert.deepEqual(await check(), []);
        await config.collection('databases').insertOne({ _id: 'lost', primary: 'shard9', version: { uuid: new UUID(), timestamp: new Timestamp({ t: 1, i: 1 }), lastMod: 1 } });
        assert.deepEqual(await types(), ['DatabaseOnUnknownShard']);
        await config.collection('databases').deleteOne({ _id: 'lost' });
        await cluster.admin({ flushRouterConfig: 1 });
        assert.deepEqual(await check(), []);
    });

    test('DDL-3: a step-down takes the locks along', async () => {
        /* One member: it is primary again in a moment, with nothing left of the check. */
        await cluster.admin({ shardCollection: 'd.later', key: { k: 1 } });
        await shards[1].db('d').createCollection('stray'); // so that it looks twice
        const running = check('d').then(
            (rows) => rows.map(({ type }) => type),
            (error) => error.code,
        );
        await shards[0].db('admin').command({ replSetStepDown: 1, force: true });
        const outcome = await running;
        assert.ok(typeof outcome === 'number' || outcome.includes('MisplacedCollection'), `${outcome}`);
        await shards[1].db('d').collection('stray').drop();
        await waitFor(
            async () => {
                const { isWritablePrimary } = await shards[0].db('admin').command({ hello: 1 });
                return isWritablePrimary;
            },
            { timeoutMs: 20_000, what: 'shard0 to have a primary' },
        );
        await client.db('d').collection('later').drop();
        assert.deepEqual(await check('d'), []);
    });

    test('DDL-3: a shard that cannot be asked makes the check fail, not succeed', async () => {
        await cluster.shards[1].members[0].kill();
        await assert.rejects(client.db('d').command({ checkMetadataConsistency: 1, maxTimeMS: 2000 }), (error) => {
            assert.ok(error.code > 0, `${error}`);
            return true;
        });
    });
});
