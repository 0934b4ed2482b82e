/*
 * Goal (DDL-2, DDL-3, RTE-3): collections are sharded, renamed, changed and dropped through routers; other routers notice, and
 * nothing is left behind. Method: real processes; one router is kept stale on purpose.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { MaxKey, MinKey } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';
import { RawSession } from '../lib/raw_session.mjs';
import { waitFor } from '../lib/server.mjs';

const failsWith = (promise, code) =>
    assert.rejects(promise, (error) => {
        assert.equal(error.code, code, `${error.code}: ${error.message}`);
        return true;
    });

describe('sharded collections', () => {
    let cluster;
    let client; // of the first router
    let stale; // of the second one, which changes nothing itself
    const shard = (ns, key, more = {}) => cluster.admin({ shardCollection: ns, key, ...more });
    const entry = (ns) => client.db('config').collection('collections').findOne({ _id: ns });
    const chunks = async (ns) =>
        client.db('config').collection('chunks').find({ uuid: (await entry(ns)).uuid }).sort({ min: 1 }).toArray();
    /* What a shard itself has, orphans included. */
    const direct = async (i) => cluster.shards[i].direct(cluster.shards[i].members[0]);

    before(async () => {
        cluster = await startCluster({ routers: 2 });
        client = await cluster.client();
        stale = await cluster.client({}, cluster.routers[1]);
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    });
    after(async () => {
        /* Nobody may be left in a section, no coordinator unfinished. */
        for (let i = 0; i < 2; i++) {
            const config = (await direct(i)).db('config');
            assert.deepEqual(await config.collection('collection_critical_sections').find().toArray(), []);
            assert.deepEqual(await config.collection('system.sharding_ddl_coordinators').find().toArray(), []);
        }
        await cluster?.remove();
    });

    test('DDL-2: a ranged collection has one chunk, on the primary shard', async () => {
        const reply = await shard('d.ranged', { a: 1, b: 1 });
        assert.equal(reply.collectionsharded, 'd.ranged');
        const rows = await chunks('d.ranged');
        assert.equal(rows.length, 1);
        assert.equal(rows[0].shard, 'shard0');
        assert.deepEqual(rows[0].min, { a: new MinKey(), b: new MinKey() });
        assert.deepEqual(rows[0].max, { a: new MaxKey(), b: new MaxKey() });
        const { key, unique, timestamp, lastmodEpoch } = await entry('d.ranged');
        assert.deepEqual(key, { a: 1, b: 1 });
        assert.equal(unique, false);
        assert.equal(timestamp._bsontype, 'Timestamp');
        assert.equal(lastmodEpoch._bsontype, 'ObjectId');
        assert.ok((await client.db('d').collection('ranged').indexes()).some(({ name }) => name === 'a_1_b_1'));
    });

    test('DDL-2: a hashed collection is spread over all shards, each with its indexes', async () => {
        await client.db('d').collection('hashed').createIndex({ other: 1 });
        await shard('d.hashed', { k: 'hashed' });
        const owners = (await chunks('d.hashed')).map((row) => row.shard);
        assert.deepEqual(owners, ['shard0', 'shard0', 'shard1', 'shard1']);
        for (let i = 0; i < 2; i++) {
            const names = (await (await direct(i)).db('d').collection('hashed').indexes()).map(({ name }) => name);
            assert.deepEqual(names.sort(), ['_id_', 'k_hashed', 'other_1']);
        }
        const uuids = [];
        for (let i = 0; i < 2; i++)
            uuids.push((await (await direct(i)).db('d').listCollections({ name: 'hashed' }).toArray())[0].info.uuid.toString());
        assert.equal(uuids[0], uuids[1]);
    });

    test('DDL-2: the same again is fine, another key is not', async () => {
        const before = await entry('d.hashed');
        await shard('d.hashed', { k: 'hashed' });
        assert.deepEqual(await entry('d.hashed'), before);
        await failsWith(shard('d.hashed', { k: 1 }), 23);
        await failsWith(shard('d.hashed', { other: 1 }), 23);
    });

    test('DDL-2: numInitialChunks, unique, and what does not go together', async () => {
        await shard('d.presplit', { k: 'hashed' }, { numInitialChunks: 10 });
        assert.equal((await chunks('d.presplit')).length, 10);
        await failsWith(shard('d.no1', { k: 1 }, { numInitialChunks: 10 }), 72);
        await failsWith(shard('d.no2', { k: 'hashed' }, { unique: true }), 72);
        await shard('d.unique', { u: 1 }, { unique: true });
        assert.equal((await entry('d.unique')).unique, true);
        const index = (await client.db('d').collection('unique').indexes()).find(({ name }) => name === 'u_1');
        assert.equal(index.unique, true);
    });

    test('DDL-2: bad keys and collections are refused, and nothing changes', async () => {
        const d = client.db('d');
        for (const [key, code] of [
            [{}, 2],
            [{ a: -1 }, 2],
            [{ a: 'text' }, 2],
            [{ a: 'hashed', b: 'hashed' }, 2],
        ])
            await assert.rejects(shard('d.bad', key), (error) => error.code === code || error.code === 67 || error.code === 9 || error.code === 72);
        await d.createCollection('capped', { capped: true, size: 4096 });
        await failsWith(shard('d.capped', { a: 1 }), 72);
        await d.createCollection('view', { viewOn: 'hashed', pipeline: [] });
        await failsWith(shard('d.view', { a: 1 }), 166);
        await d.createCollection('collated', { collation: { locale: 'de' } });
        await failsWith(shard('d.collated', { a: 1 }), 2);
        await shard('d.collated', { a: 1 }, { collation: { locale: 'simple' } });
        await d.collection('full').insertOne({ a: 1 });
        await failsWith(shard('d.full', { a: 1 }), 72);
        await d.collection('full').createIndex({ a: 1 });
        await shard('d.full', { a: 1 });
        await d.collection('other_unique').createIndex({ x: 1 }, { unique: true });
        await failsWith(shard('d.other_unique', { a: 1 }), 72);
        await failsWith(shard('admin.c', { a: 1 }), 20);
        assert.equal(await entry('d.bad'), null);
    });

    test('DDL-2: no option is ignored', async () => {
        const d = client.db('d');
        await failsWith(shard('d.options', { k: 1 }, { timeseries: { timeField: 't' } }), 238);
        await failsWith(shard('d.options', { k: 1 }, { noSuchOption: 1 }), 40415);
        await failsWith(shard('d.options', { k: 1 }, { collation: { locale: 'de' } }), 2);
        await failsWith(cluster.admin({ shardCollection: 'd.options' }), 40414);
        await failsWith(d.command({ drop: 'options', noSuchOption: 1 }), 40415);
        await failsWith(cluster.admin({ renameCollection: 'd.full', to: 'd.x', stayTemp: true }), 238);
        await failsWith(d.command({ convertToCapped: 'full', size: 4096 }), 20);
        await d.collection('small').insertOne({ _id: 1 });
        await d.command({ convertToCapped: 'small', size: 4096 });
        assert.equal((await d.command({ collStats: 'small' })).capped, true);
        await d.collection('small').drop();
        assert.equal(await entry('d.options'), null);
    });

    test('RTE-3: a router that does not know yet is told by the shards', async () => {
        const here = client.db('d').collection('late');
        const there = stale.db('d').collection('late');
        await there.insertOne({ _id: 1, k: 1 }); // routed as unsharded
        assert.equal(await there.countDocuments(), 1);
        await here.createIndex({ k: 1 });
        await shard('d.late', { k: 1 });
        await there.insertOne({ _id: 2, k: 2 });
        assert.deepEqual((await there.find().sort({ _id: 1 }).toArray()).map(({ _id }) => _id), [1, 2]);
        await here.drop();
        assert.deepEqual(await there.find().toArray(), []);
        await there.insertOne({ _id: 3 }); // unsharded again, and here
        assert.deepEqual((await here.find().toArray()).map(({ _id }) => _id), [3]);
    });

    test('DDL-2: dropIndexes and collMod tell what each shard with a part of the collection said', async () => {
        const addresses = cluster.shards.map(({ address }) => address);
        const db = client.db('d');
        await shard('d.raw', { k: 'hashed' });
        await db.collection('raw').createIndexes([{ key: { a: 1 } }, { key: { b: 1 } }]);
        const { raw } = await db.command({ dropIndexes: 'raw', index: 'a_1' });
        assert.deepEqual(Object.keys(raw).sort(), addresses.sort());
        for (const { ok, nIndexesWas } of Object.values(raw)) assert.deepEqual([ok, nIndexesWas], [1, 4]);
        const changed = await db.command({ collMod: 'raw', index: { name: 'b_1', hidden: true } });
        for (const { ok, hidden_new: isHidden } of Object.values(changed.raw)) assert.deepEqual([ok, isHidden], [1, true]);
        await db.collection('plainRaw').createIndex({ a: 1 });
        const plain = await db.command({ dropIndexes: 'plainRaw', index: 'a_1' });
        assert.equal(plain.raw[cluster.shards[0].address].nIndexesWas, 2);
        await db.collection('raw').drop();
    });

    test('DDL-2: createIndexes tells that a write concern could not be met, at the top of its reply', async () => {
        const create = (key) => client.db('d').command({ createIndexes: 'ranged', indexes: [{ key, name: Object.entries(key).flat().join('_') }], writeConcern: { w: 2, wtimeout: 100 } });
        for (const key of [{ wc: 1 }, { a: 1, b: 1 }])
            await assert.rejects(create(key), (error) => error.constructor.name === 'MongoWriteConcernError' && error.code === 100);
    });

    test('RTE-3: a stale router merges into a collection by its newest table', async () => {
        await client.db('d').collection('mergeFrom').insertMany([{ _id: 1 }, { _id: 2 }]);
        await shard('d.mergeInto', { sk: 1, _id: 1 });
        assert.equal(await stale.db('d').collection('mergeInto').countDocuments(), 0);
        await client.db('d').collection('mergeInto').drop();
        await stale.db('d').collection('mergeFrom').aggregate([{ $merge: { into: 'mergeInto' } }]).toArray();
        assert.equal(await client.db('d').collection('mergeInto').countDocuments(), 2);
        /* And the other way round: what it would write by itself would belong to nobody. */
        await client.db('d').collection('mergeInto').drop();
        await shard('d.mergeInto', { _id: 'hashed' });
        await client.db('d').collection('mergeFrom').insertMany([...Array(40).keys()].map((i) => ({ _id: 10 + i })));
        await stale.db('d').collection('mergeFrom').aggregate([{ $merge: { into: 'mergeInto' } }]).toArray();
        assert.equal(await client.db('d').collection('mergeInto').countDocuments(), 42);
    });

    test('RTE-3: a stale router joins all of a collection that was sharded since', async () => {
        const from = client.db('d').collection('joining');
        const other = client.db('d').collection('joined');
        await from.insertMany([{ _id: 1 }, { _id: 2 }]);
        await other.insertMany([{ _id: 1, of: 1 }, { _id: 2, of: 2 }]);
        const join = async (who) => {
            const pipeline = [{ $lookup: { from: 'joined', localField: '_id', foreignField: 'of', as: 'found' } }, { $sort: { _id: 1 } }];
            return (await who.db('d').collection('joining').aggregate(pipeline).toArray()).map(({ found }) => found.length);
        };
        assert.deepEqual(await join(stale), [1, 1]);
        await shard('d.joined', { _id: 1 });
        await cluster.admin({ split: 'd.joined', middle: { _id: 2 } });
        await cluster.admin({ moveChunk: 'd.joined', find: { _id: 2 }, to: 'shard1', _waitForDelete: true });
        assert.deepEqual(await join(stale), [1, 1]);
        assert.deepEqual(await join(client), [1, 1]);
        await other.drop();
        await from.drop();
    });

    test('DDL-2: a drop removes zones also of collections that are not sharded, and what shards have stored', async () => {
        await cluster.admin({ addShardToZone: 'shard0', zone: 'z' });
        const range = (ns) => cluster.admin({ updateZoneKeyRange: ns, min: { x: 0 }, max: { x: 10 }, zone: 'z' });
        const tags = (ns) => client.db('config').collection('tags').countDocuments({ ns });
        await client.db('d').collection('zoned').insertOne({ x: 1 });
        await range('d.zoned');
        await range('d.nowhere');
        assert.deepEqual([await tags('d.zoned'), await tags('d.nowhere')], [1, 1]);
        await client.db('d').command({ drop: 'zoned' });
        await client.db('d').command({ drop: 'nowhere' });
        assert.deepEqual([await tags('d.zoned'), await tags('d.nowhere')], [0, 0]);
        await cluster.admin({ removeShardFromZone: 'shard0', zone: 'z' });
        await shard('d.stored', { k: 'hashed' });
        await client.db('d').collection('stored').insertMany([...Array(20).keys()].map((k) => ({ k })));
        await client.db('d').collection('stored').drop();
        for (let i = 0; i < 2; i++) {
            const config = (await direct(i)).db('config');
            assert.equal(await config.collection('cache.collections').countDocuments({ _id: 'd.stored' }), 0);
            assert.deepEqual(await config.listCollections({ name: 'cache.chunks.d.stored' }).toArray(), []);
        }
    });

    test('DDL-2: createIndexes, collMod and dropIndexes reach all shards', async () => {
        const coll = client.db('d').collection('hashed');
        await coll.createIndex({ fresh: 1 });
        await client.db('d').command({ collMod: 'hashed', index: { name: 'fresh_1', hidden: true } });
        for (let i = 0; i < 2; i++) {
            const indexes = await (await direct(i)).db('d').collection('hashed').indexes();
            assert.equal(indexes.find(({ name }) => name === 'fresh_1')?.hidden, true, `shard${i}`);
        }
        await coll.dropIndex('fresh_1');
        for (let i = 0; i < 2; i++) {
            const indexes = await (await direct(i)).db('d').collection('hashed').indexes();
            assert.equal(indexes.find(({ name }) => name === 'fresh_1'), undefined, `shard${i}`);
        }
        await failsWith(coll.dropIndex('fresh_1'), 27);
    });

    test('DDL-2: the last index of the shard key stays', async () => {
        await shard('d.keyed', { k: 1 });
        const coll = client.db('d').collection('keyed');
        await coll.createIndex({ z: 1 });
        await failsWith(coll.dropIndex('k_1'), 370);
        await failsWith(coll.dropIndex({ k: 1 }), 370);
        await coll.dropIndexes();
        assert.deepEqual((await coll.indexes()).map(({ name }) => name).sort(), ['_id_', 'k_1']);
        await coll.dropIndexes(); // nothing is left to drop
        await coll.createIndex({ k: 1, more: 1 });
        await coll.dropIndex('k_1');
        assert.deepEqual((await coll.indexes()).map(({ name }) => name).sort(), ['_id_', 'k_1_more_1']);
        await coll.drop();
    });

    test('DDL-2: the index of a hashed shard key can be dropped by its name, and made again', async () => {
        await shard('d.hashkey', { k: 'hashed' });
        const coll = client.db('d').collection('hashkey');
        await coll.insertMany([{ k: 1 }, { k: 2 }]);
        await coll.dropIndexes();
        assert.deepEqual((await coll.indexes()).map(({ name }) => name).sort(), ['_id_', 'k_hashed']);
        await coll.dropIndex('k_hashed');
        assert.deepEqual((await coll.indexes()).map(({ name }) => name), ['_id_']);
        assert.equal(await coll.countDocuments({ k: 1 }), 1);
        await coll.createIndex({ k: 'hashed' });
        await coll.drop();
    });

    test('DDL-2: an error of dropIndexes, collMod and createIndexes tells what the shards said', async () => {
        const db = client.db('d');
        const first = cluster.shards[0].address;
        await db.createCollection('unspread');
        for (const [command, code] of [
            [{ dropIndexes: 'unspread', index: 'none' }, 27],
            [{ createIndexes: 'unspread', indexes: [{ key: {}, name: 'x' }] }, 67],
            [{ collMod: 'unspread', index: { name: 'none', hidden: true } }, 27],
            [{ createIndexes: 'ranged', indexes: [{ key: { other: 1 }, name: 'x', unique: true }] }, 67],
        ])
            await assert.rejects(db.command(command), (error) => {
                const { raw } = error.errorResponse;
                assert.deepEqual([error.code, Object.keys(raw), raw[first].ok, raw[first].code], [code, [first], 0, code]);
                return true;
            });
        await db.collection('unspread').drop();
    });

    test('DDL-2: an index with equal values on one shard becomes unique on none', async () => {
        const db = client.db('d');
        await shard('d.doubles', { k: 1 });
        await cluster.admin({ split: 'd.doubles', middle: { k: 2 } });
        await cluster.admin({ moveRange: 'd.doubles', min: { k: 2 }, toShard: 'shard1' });
        const coll = db.collection('doubles');
        await coll.insertMany([{ _id: 1, k: 1 }, { _id: 2, k: 2 }, { _id: 3, k: 2 }]);
        const change = (more) => db.command({ collMod: 'doubles', index: { keyPattern: { k: 1 }, ...more } });
        const flags = async () => {
            const there = await Promise.all([0, 1].map(async (i) => (await direct(i)).db('d').collection('doubles').indexes()));
            return there.map((indexes) => indexes.find(({ name }) => name === 'k_1')).map(({ unique, prepareUnique }) => [unique, prepareUnique]);
        };
        await change({ prepareUnique: true });
        await failsWith(change({ unique: true }), 359);
        assert.deepEqual(await flags(), [[undefined, true], [undefined, true]]);
        await coll.deleteOne({ _id: 3, k: 2 });
        await change({ unique: true });
        assert.deepEqual(await flags(), [[true, undefined], [true, undefined]]);
        await coll.drop();
    });

    test('DDL-2: a collMod that one shard refuses changes the others, fails, and holds nobody up', async () => {
        const db = client.db('d');
        await shard('d.refusing', { k: 'hashed' });
        await db.collection('refusing').createIndex({ a: 1 });
        const other = cluster.shards[1];
        const fail = (mode) =>
            other.command(other.members[0], {
                configureFailPoint: 'failCommand',
                mode,
                ...(mode !== 'off' && { data: { failCommands: ['collMod'], errorCode: 72, failInternalCommands: true } }),
            });
        await fail('alwaysOn');
        const change = (hidden) => db.command({ collMod: 'refusing', index: { name: 'a_1', hidden } });
        await failsWith(change(true), 72);
        await fail('off');
        const hidden = async () => Promise.all([0, 1].map(async (i) => {
            const indexes = await (await direct(i)).db('d').collection('refusing').indexes();
            return indexes.find(({ name }) => name === 'a_1').hidden === true;
        }));
        assert.deepEqual(await hidden(), [true, false]);
        await change(true);
        assert.deepEqual(await hidden(), [true, true]);
        await db.collection('refusing').drop();
    });

    test('RNG-1: a drop takes the tasks that would delete ranges of the collection with it', async () => {
        await shard('d.ranges', { k: 1 });
        const coll = client.db('d').collection('ranges');
        await coll.insertMany([{ k: 1 }, { k: 2 }]);
        const { uuid } = await entry('d.ranges');
        const donor = cluster.shards[0];
        const suspend = (mode) => donor.command(donor.members[0], { configureFailPoint: 'suspendRangeDeletion', mode });
        await suspend('alwaysOn');
        await cluster.admin({ moveRange: 'd.ranges', min: { k: 2 }, toShard: 'shard1' });
        const tasks = (await direct(0)).db('config').collection('rangeDeletions');
        assert.equal(await tasks.countDocuments({ collectionUuid: uuid }), 1);
        await coll.drop();
        assert.equal(await tasks.countDocuments({ collectionUuid: uuid }), 0);
        await suspend('off');
    });

    test('DDL-2: a sharded collection is renamed, as a new generation of the same chunks', async () => {
        const before = await entry('d.hashed');
        const rows = await chunks('d.hashed');
        await client.db('d').collection('hashed').rename('renamed');
        assert.equal(await entry('d.hashed'), null);
        const now = await entry('d.renamed');
        assert.deepEqual(now.uuid, before.uuid);
        assert.notDeepEqual(now.lastmodEpoch, before.lastmodEpoch);
        assert.deepEqual(await chunks('d.renamed'), rows);
        await failsWith(client.db('d').collection('renamed').rename('ranged'), 48);
        await client.db('d').collection('renamed').rename('ranged', { dropTarget: true });
        assert.deepEqual((await entry('d.ranged')).uuid, before.uuid);
        await failsWith(client.db('d').collection('none').rename('other'), 26);
        await failsWith(cluster.admin({ renameCollection: 'd.ranged', to: 'e.ranged' }), 125);
    });

    test('DDL-2: a name with zones, or too long for a sharded collection, is none to rename to', async () => {
        const rename = (to) => cluster.admin({ renameCollection: 'd.ranged', to });
        await cluster.admin({ addShardToZone: 'shard0', zone: 'z' });
        await cluster.admin({ updateZoneKeyRange: 'd.zoned', min: { k: 0 }, max: { k: 1 }, zone: 'z' });
        await failsWith(rename('d.zoned'), 125);
        await cluster.admin({ updateZoneKeyRange: 'd.zoned', min: { k: 0 }, max: { k: 1 }, zone: null });
        await cluster.admin({ removeShardFromZone: 'shard0', zone: 'z' });
        await failsWith(rename(`d.${'x'.repeat(234)}`), 73);
        await rename(`d.${'x'.repeat(233)}`);
        await cluster.admin({ renameCollection: `d.${'x'.repeat(233)}`, to: 'd.ranged' });
    });

    test('DDL-2: drop leaves nothing, on no shard', async () => {
        const { uuid } = await entry('d.ranged');
        assert.equal(await client.db('d').collection('ranged').drop(), true);
        assert.equal(await entry('d.ranged'), null);
        assert.equal(await client.db('config').collection('chunks').countDocuments({ uuid }), 0);
        for (let i = 0; i < 2; i++)
            assert.deepEqual(await (await direct(i)).db('d').listCollections({ name: 'ranged' }).toArray(), []);
        await client.db('d').collection('ranged').drop(); // again is fine
    });

    test('RTE-1: what the config server keeps is not dropped or renamed by clients, nor is the database of that name on any member', async () => {
        const config = client.db('config');
        const admin = client.db('admin');
        await fails(config.command({ drop: 'shards' }), 20);
        await fails(config.command({ drop: 'noSuchCollection' }), 20);
        await fails(config.command({ dropDatabase: 1 }), 20);
        await fails(admin.command({ dropDatabase: 1 }), 20);
        await fails(admin.command({ renameCollection: 'config.shards', to: 'config.old' }), 20);
        await client.db('mine').collection('c').insertOne({ _id: 1 });
        await fails(admin.command({ renameCollection: 'mine.c', to: 'config.shards', dropTarget: true }), 20);
        await fails(admin.command({ renameCollection: 'admin.a', to: 'admin.b' }), 20);
        for (const set of [cluster.config, ...cluster.shards])
            await fails((await set.direct(set.members[0])).db('config').command({ dropDatabase: 1 }), 20);
        assert.equal(await config.collection('shards').countDocuments(), cluster.shards.length);
        assert.equal(await client.db('mine').collection('c').countDocuments(), 1);
        await client.db('mine').dropDatabase();
    });

    test('DDL-2: dropDatabase drops all of it, and the name can be used again', async () => {
        await cluster.admin({ enableSharding: 'gone', primaryShard: 'shard1' });
        await shard('gone.a', { k: 'hashed' });
        await shard('gone.b', { k: 1 });
        await client.db('gone').collection('plain').insertOne({ _id: 1 });
        await stale.db('gone').collection('plain').findOne();
        await client.db('gone').dropDatabase();
        const config = client.db('config');
        assert.equal(await config.collection('databases').findOne({ _id: 'gone' }), null);
        assert.equal(await config.collection('collections').countDocuments({ _id: /^gone\./ }), 0);
        for (let i = 0; i < 2; i++)
            assert.deepEqual(await (await direct(i)).db('gone').listCollections().toArray(), []);
        await cluster.admin({ enableSharding: 'gone', primaryShard: 'shard0' });
        await stale.db('gone').collection('plain').insertOne({ _id: 2 });
        assert.deepEqual(await client.db('gone').collection('plain').find().toArray(), [{ _id: 2 }]);
        assert.deepEqual(await (await direct(1)).db('gone').listCollections().toArray(), []);
    });

    test('CAT-7: shardCollection takes the UUID of the collection that is meant', async () => {
        const db = client.db('meant');
        await cluster.admin({ enableSharding: 'meant', primaryShard: 'shard0' });
        for (const name of ['a', 'b']) await db.collection(name).insertOne({ _id: 1 });
        const uuidOf = async (name) => (await db.listCollections({ name }).toArray())[0].info.uuid;
        const attempt = async (name, collectionUUID) => cluster.admin({ shardCollection: `meant.${name}`, key: { _id: 1 }, collectionUUID });
        for (const name of ['a', 'none']) {
            const error = await attempt(name, await uuidOf('b')).catch((thrown) => thrown);
            assert.equal(error.code, 361);
            assert.deepEqual([error.errorResponse.expectedCollection, error.errorResponse.actualCollection], [name, 'b']);
        }
        assert.equal(await client.db('config').collection('collections').countDocuments({ _id: /^meant/ }), 0);
        await attempt('a', await uuidOf('a'));
        await attempt('a', await uuidOf('a'));
        assert.equal((await attempt('a', await uuidOf('b')).catch((thrown) => thrown)).code, 361);
        await db.dropDatabase();
    });

    test('REP-5: a change stream that would tell half of it is refused', async () => {
        await shard('d.streamed', { k: 'hashed' });
        await failsWith(client.db('d').collection('streamed').watch().tryNext(), 238);
        await failsWith(client.db('d').watch().tryNext(), 238);
        await client.db('d').collection('streamed').drop();
    });

    test('SES-4: a transaction on one shard reads in batches and commits', async () => {
        await shard('d.txn', { k: 1 });
        const coll = client.db('d').collection('txn');
        await coll.insertMany(Array.from({ length: 50 }, (_, i) => ({ _id: i, k: i })));
        const session = client.startSession();
        session.startTransaction();
        const found = await coll.find({}, { session, batchSize: 10 }).toArray();
        assert.equal(found.length, 50);
        await coll.updateOne({ k: 1 }, { $set: { x: 1 } }, { session });
        await session.commitTransaction();
        await session.endSession();
        assert.equal((await coll.findOne({ k: 1 })).x, 1);
    });

    test('SES-4: a shard lets a transaction that was aborted begin again with its number, and no other', async () => {
        const session = new RawSession(cluster.shards[0].members[0]);
        const find = { find: 'txn', filter: { _id: 1 }, autocommit: false };
        const start = { ...find, startTransaction: true };
        const end = (command, number) => session.run({ [command]: 1, autocommit: false }, number, 'admin');
        assert.equal((await session.run(start, 1, 'd')).ok, 1);
        assert.equal((await session.run(start, 1, 'd')).code, 50911);
        await end('abortTransaction', 1);
        assert.equal((await session.run(start, 1, 'd')).ok, 1);
        assert.equal((await session.run(find, 1, 'd')).cursor.firstBatch.length, 1);
        assert.equal((await end('commitTransaction', 1)).ok, 1);
        assert.equal((await session.run(start, 1, 'd')).code, 50911);
        await session.run({ insert: 'plain', documents: [{ _id: 'once' }] }, 2, 'd');
        assert.equal((await session.run(start, 2, 'd')).code, 50911);
        session.close();
    });

    for (const [what, count] of [['an empty', 0], ['a filled', 20]])
        test(`RTE-3: an index of ${what} collection that changed before its build began is built by the new metadata`, async () => {
            const [, second] = cluster.shards;
            const [member] = second.members;
            const coll = client.db('d').collection('indexed');
            const insert = () => (count > 0 ? coll.insertMany(Array.from({ length: count }, (_, k) => ({ k }))) : undefined);
            await shard('d.indexed', { k: 'hashed' });
            await insert();
            const reached = await second.hang(member, 'createIndexes.tableCreated');
            const outcome = coll.createIndex({ x: 1 }); // checked by both shards, begun by the first
            await reached();
            await coll.drop();
            await client.db('d').createCollection('indexed'); // not sharded: the second shard has none of it
            await insert();
            await second.release(member, 'createIndexes.tableCreated');
            assert.equal(await outcome, 'x_1');
            const names = (await coll.indexes()).map(({ name }) => name);
            assert.deepEqual(names, ['_id_', 'x_1']);
            assert.deepEqual(await (await direct(1)).db('d').listCollections({ name: 'indexed' }).toArray(), []);
            await coll.drop();
        });

    test('DDL-3: operations on one name happen one after the other', async () => {
        const results = await Promise.allSettled([
            ...Array.from({ length: 4 }, () => shard('d.race', { k: 'hashed' })),
            ...Array.from({ length: 4 }, () => cluster.admin({ shardCollection: 'd.race', key: { k: 'hashed' } }, cluster.routers[1])),
        ]);
        assert.deepEqual(results.filter(({ status }) => status === 'rejected').map(({ reason }) => reason.message), []);
        const rounds = Array.from({ length: 5 }, (_, i) =>
            Promise.allSettled([client.db('d').collection('race').drop(), shard('d.race', { k: i % 2 ? 1 : 'hashed' })]),
        );
        await Promise.all(rounds);
        await client.db('d').collection('race').drop();
        assert.equal(await entry('d.race'), null);
    });

    test('DDL-4: a shard that is stale builds an index beside the others, not after them', async () => {
        await shard('d.beside', { k: 1 });
        const { primary } = await client.db('config').collection('databases').findOne({ _id: 'd' });
        const [other] = cluster.shards.filter(({ name }) => name !== primary);
        const [own] = cluster.shards.filter(({ name }) => name === primary);
        const coll = client.db('d').collection('beside');
        const deletes = (isOn) => own.command(own.members[0], { setParameter: 1, disableResumableRangeDeleter: !isOn });
        await deletes(false); // it would ask where the collection is
        await cluster.admin({ moveRange: 'd.beside', min: { k: 0 }, toShard: other.name });
        await coll.insertOne({ k: 10 });
        await cluster.admin({ split: 'd.beside', middle: { k: -10 } });
        await cluster.admin({ moveRange: 'd.beside', min: { k: -10 }, max: { k: 0 }, toShard: other.name });
        await coll.find({ k: 10 }).toArray(); // now the other one knows where it all is, and its former owner does not
        const [member] = other.members;
        const reached = await other.hang(member, 'hangIndexBuildBeforeCommit');
        const created = coll.createIndex({ y: 1 });
        try {
            await reached();
            const there = (await own.direct(own.members[0])).db('d').collection('beside');
            await waitFor(() => there.indexExists('y_1'), { what: 'the index of the shard that was stale' });
        } finally {
            await other.release(member, 'hangIndexBuildBeforeCommit');
            await deletes(true);
        }
        assert.equal(await created, 'y_1');
        await coll.drop();
    });

    test('DDL-3: currentOp names the coordinator of an operation, and its collection', async () => {
        const coll = client.db('d').collection('shown');
        await coll.insertOne({ k: 1 });
        const { primary } = await client.db('config').collection('databases').findOne({ _id: 'd' });
        const coordinating = cluster.shards.find(({ name }) => name === primary);
        const [member] = coordinating.members;
        const reached = await coordinating.hang(member, 'hangBeforeRunningCoordinatorInstance');
        const renamed = coll.rename('shown2');
        await reached();
        const stages = [{ $currentOp: { allUsers: true } }, { $match: { desc: 'RenameCollectionCoordinator', 'command.$a': { $exists: false } } }];
        const ops = await client.db('admin').aggregate(stages).toArray();
        assert.deepEqual(ops.map(({ ns, op }) => [ns, op]), [['d.shown', 'command']]);
        await coordinating.release(member, 'hangBeforeRunningCoordinatorInstance');
        await renamed;
        assert.equal(await client.db('d').collection('shown2').countDocuments(), 1);
        await client.db('d').collection('shown2').drop();
    });

    test('SHM-3: a shard reads its placement anew when it is told to; names of the other kind are refused', async () => {
        await shard('d.flushed', { k: 1 });
        await cluster.admin({ split: 'd.flushed', middle: { k: 0 } });
        for (const set of cluster.shards) {
            const on = (command) => set.command(set.members[0], command);
            await on({ _flushRoutingTableCacheUpdates: 'd.flushed' });
            const { metadata } = await on({ getShardVersion: 'd.flushed', fullMetadata: true });
            const { primary } = await client.db('config').collection('databases').findOne({ _id: 'd' });
            if (set.name === primary) assert.equal(metadata.chunks.length, 2);
            await assert.rejects(on({ _flushRoutingTableCacheUpdates: 'd' }), { codeName: 'IllegalOperation' });
            await assert.rejects(on({ _flushDatabaseCacheUpdates: 'd.flushed' }), { codeName: 'IllegalOperation' });
        }
        await client.db('d').collection('flushed').drop();
    });

    test('TXN-4: a transaction on a node of the cluster itself may read the database config, but not write it', async () => {
        for (const set of [cluster.config, ...cluster.shards]) {
            const node = await set.direct(set.members[0]);
            await node.withSession(async (session) => {
                const run = async (work) => {
                    session.startTransaction({ readPreference: 'primary' });
                    try {
                        return await work(node.db('config'));
                    } finally {
                        await session.abortTransaction();
                    }
                };
                assert.deepEqual(await run((config) => config.collection('nothing').find({}, { session }).toArray()), []);
                const refused = { codeName: 'OperationNotSupportedInTransaction' };
                await assert.rejects(run((config) => config.collection('transactions').find({}, { session }).toArray()), refused);
                await assert.rejects(run((config) => config.collection('nothing').insertOne({}, { session })), refused);
            });
        }
        await client.withSession(async (session) => {
            session.startTransaction();
            await assert.rejects(client.db('config').collection('chunks').find({}, { session }).toArray(), {
                codeName: 'OperationNotSupportedInTransaction',
            });
            await session.abortTransaction();
        });
    });
});
