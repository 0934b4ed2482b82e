/*
 * Goal: a config server, shards and routers act as one database. Collections are whole, each on the
 * primary shard of its database; clients notice nothing of that.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { makeRouter, startCluster, startShard } from '../lib/cluster.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const failsWith = (promise, code) =>
    assert.rejects(promise, (error) => {
        assert.equal(error.code, code, `${error.code}: ${error.message}`);
        return true;
    });

describe('a cluster of two shards', () => {
    let cluster;
    let client;
    before(async () => {
        cluster = await startCluster();
        client = await cluster.client();
    });
    after(() => cluster?.remove());

    test('NOD-1: a router says what it is', async () => {
        const hello = await cluster.admin({ hello: 1 });
        assert.equal(hello.msg, 'isdbgrid');
        assert.equal(hello.isWritablePrimary, true);
        assert.equal(hello.setName, undefined);
        assert.equal((await cluster.admin({ isdbgrid: 1 })).isdbgrid, 1);
    });

    test('RTE-1: the catalog of the cluster has the documents and indexes of 7.0', async () => {
        const config = client.db('config');
        const shards = await config.collection('shards').find().sort({ _id: 1 }).toArray();
        assert.deepEqual(
            shards.map(({ _id, host, state }) => ({ _id, host, state })),
            cluster.shards.map(({ name, address }) => ({ _id: name, host: address, state: 1 })),
        );
        assert.ok(shards.every(({ topologyTime }) => topologyTime._bsontype === 'Timestamp'));
        const version = await config.collection('version').findOne();
        assert.equal(version.clusterId._bsontype, 'ObjectId');
        const chunkIndexes = await config.collection('chunks').indexes();
        assert.deepEqual(chunkIndexes.map(({ name }) => name).sort(), [
            '_id_',
            'uuid_1_lastmod_1',
            'uuid_1_min_1',
            'uuid_1_shard_1_min_1',
            'uuid_1_shard_1_onCurrentShardSince_1',
        ]);
        const routers = await waitFor(async () => {
            const rows = await config.collection('mongos').find().toArray();
            return rows.length === 1 && rows;
        }, { what: 'the router has said that it is there' });
        assert.equal(routers[0]._id, `127.0.0.1:${cluster.routers[0].port}`);
        const log = await config.collection('changelog').find({ what: 'addShard' }).toArray();
        assert.equal(log.length, 2);
    });

    test('NOD-1: a shard knows what it is', async () => {
        const [shard] = cluster.shards;
        const direct = await shard.direct(shard.members[0]);
        const identity = await direct.db('admin').collection('system.version').findOne({ _id: 'shardIdentity' });
        assert.equal(identity.shardName, 'shard0');
        assert.equal(identity.configsvrConnectionString, cluster.config.address);
    });

    test('BAL-3: a shard may be added again, and nothing else under its name', async () => {
        const [first, second] = cluster.shards;
        assert.equal((await cluster.admin({ addShard: first.address })).shardAdded, 'shard0');
        assert.equal((await cluster.admin({ addShard: first.address, name: 'shard0' })).shardAdded, 'shard0');
        await failsWith(cluster.admin({ addShard: first.address, name: 'other' }), 20);
        await failsWith(cluster.admin({ addShard: second.address.split('/')[1] }), 20);
        await failsWith(cluster.admin({ addShard: second.address.replace('shard1/', 'other/127.0.0.1:1,') }), 20);
        assert.equal((await cluster.admin({ listShards: 1 })).shards.length, 2);
    });

    test('BAL-3: what is not a shard server is refused', async () => {
        await failsWith(cluster.admin({ addShard: cluster.config.address }), 2);
        await failsWith(cluster.admin({ addShard: cluster.config.address, name: 'other' }), 96);
        await failsWith(cluster.admin({ addShard: 'localhost' }), 96);
        await failsWith(cluster.admin({ addShard: 'set/' }), 9);
        await failsWith(cluster.admin({ addShard: 'set/a:1', maxSize: 1 }), 72);
        await failsWith(cluster.admin({ addShard: 1 }), 14);
        const plain = await startReplicaSet({ name: 'plain', members: 1 });
        try {
            await failsWith(cluster.admin({ addShard: plain.address }), 193);
        } finally {
            await plain.remove();
        }
        assert.equal((await cluster.admin({ listShards: 1 })).shards.length, 2);
    });

    test('DDL-1: a database is made by its first write, on the shard with the least data', async () => {
        const entries = client.db('config').collection('databases');
        assert.deepEqual(await client.db('unwritten').collection('c').find().toArray(), []);
        assert.equal(await entries.countDocuments({ _id: 'unwritten' }), 0);
        const padding = 'x'.repeat(1000);
        await client.db('first').collection('c').insertMany(Array.from({ length: 2000 }, (_, i) => ({ i, padding })));
        const first = await entries.findOne({ _id: 'first' });
        assert.equal(first.version.lastMod, 1);
        assert.equal(first.partitioned, false);
        // Sizes are those of files: as of a checkpoint.
        for (const shard of cluster.shards) await shard.command(shard.members[0], { fsync: 1 });
        await client.db('second').createCollection('c');
        const second = await entries.findOne({ _id: 'second' });
        assert.notEqual(second.primary, first.primary);
        const shard = cluster.shards.find(({ name }) => name === first.primary);
        const direct = await shard.direct(shard.members[0]);
        assert.equal(await direct.db('first').collection('c').countDocuments(), 2000);
    });

    test('DDL-1: enableSharding makes a database where it is told to', async () => {
        await cluster.admin({ enableSharding: 'told', primaryShard: 'shard1' });
        const entry = await client.db('config').collection('databases').findOne({ _id: 'told' });
        assert.equal(entry.primary, 'shard1');
        await cluster.admin({ enableSharding: 'told' });
        await cluster.admin({ enableSharding: 'told', primaryShard: 'shard1' });
        await failsWith(cluster.admin({ enableSharding: 'told', primaryShard: 'shard0' }), 48);
        await failsWith(cluster.admin({ enableSharding: 'TOLD' }), 13297);
        await failsWith(cluster.admin({ enableSharding: 'new', primaryShard: 'nobody' }), 70);
        await failsWith(cluster.admin({ enableSharding: 'a.b' }), 73);
        await failsWith(cluster.admin({ enableSharding: 'admin' }), 72);
        await cluster.admin({ enableSharding: 'config' }); // it always is
    });

    test('DDL-1: many clients make one database once', async () => {
        const name = 'raced';
        const second = await cluster.addRouter();
        const clients = [client, await cluster.client({}, second)];
        await Promise.all(
            Array.from({ length: 20 }, (_, i) =>
                clients[i % 2].db(name).collection('c').insertOne({ _id: i }),
            ),
        );
        assert.equal(await client.db(name).collection('c').countDocuments(), 20);
        assert.equal(await client.db('config').collection('databases').countDocuments({ _id: name }), 1);
    });

    test('RTE-6: documents are written, read and counted through a router', async () => {
        const c = client.db('crud').collection('c');
        const docs = Array.from({ length: 1000 }, (_, i) => ({ _id: i, group: i % 10, tags: [i, -i] }));
        assert.equal((await c.insertMany(docs)).insertedCount, 1000);
        await failsWith(c.insertOne({ _id: 1 }), 11000);
        assert.deepEqual(await c.find({}, { sort: { _id: 1 }, batchSize: 7 }).toArray(), docs);
        assert.equal((await c.find().limit(5).batchSize(2).toArray()).length, 5);
        assert.equal((await c.updateMany({ group: 3 }, { $inc: { n: 1 } })).modifiedCount, 100);
        assert.equal((await c.updateOne({ _id: 'new' }, { $set: { a: 1 } }, { upsert: true })).upsertedId, 'new');
        assert.equal((await c.deleteMany({ group: 4 })).deletedCount, 100);
        assert.equal((await c.findOneAndUpdate({ _id: 3 }, { $set: { b: 1 } }, { returnDocument: 'after' })).b, 1);
        assert.equal(await c.countDocuments({}), 901);
        assert.equal(await c.estimatedDocumentCount(), 901);
        assert.deepEqual((await c.distinct('group')).sort(), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
        const sums = await c.aggregate([{ $match: { group: { $exists: true } } }, { $group: { _id: '$group', n: { $sum: 1 } } }], { batchSize: 2 }).toArray();
        assert.equal(sums.length, 9);
        await c.aggregate([{ $match: { group: 1 } }, { $out: 'copy' }]).toArray();
        assert.equal(await client.db('crud').collection('copy').countDocuments(), 100);
        const result = await c.bulkWrite([
            { insertOne: { document: { _id: 'x' } } },
            { updateOne: { filter: { _id: 'x' }, update: { $set: { y: 1 } } } },
            { deleteOne: { filter: { _id: 'x' } } },
        ]);
        assert.deepEqual([result.insertedCount, result.modifiedCount, result.deletedCount], [1, 1, 1]);
        assert.equal((await c.find({ _id: 1 }).explain()).ok, 1);
    });

    test('DDL-2: collections and indexes are made, changed, listed and dropped through a router', async () => {
        const db = client.db('ddl');
        await db.createCollection('made', { validator: { a: { $type: 'int' } } });
        await failsWith(db.createCollection('made'), 48);
        await failsWith(db.collection('made').insertOne({ a: 'x' }), 121);
        await db.collection('made').createIndex({ a: 1 }, { unique: true });
        assert.deepEqual((await db.collection('made').indexes()).map(({ name }) => name), ['_id_', 'a_1']);
        await db.command({ collMod: 'made', validator: {} });
        await db.collection('made').insertOne({ a: 'x' });
        await db.collection('made').dropIndex('a_1');
        await db.createCollection('view', { viewOn: 'made', pipeline: [{ $project: { _id: 0 } }] });
        assert.deepEqual(await db.collection('view').find().toArray(), [{ a: 'x' }]);
        const names = (await db.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name);
        assert.deepEqual(names.sort(), ['made', 'system.views', 'view']);
        await db.collection('made').drop();
        const list = await cluster.admin({ listDatabases: 1 });
        const row = list.databases.find(({ name }) => name === 'ddl');
        assert.deepEqual(Object.values(row.shards), [row.sizeOnDisk]);
        await db.dropDatabase();
        const left = await cluster.admin({ listDatabases: 1, nameOnly: true });
        assert.ok(!left.databases.some(({ name }) => name === 'ddl'));
        assert.deepEqual(left.databases.filter(({ name }) => name === 'admin' || name === 'local'), [{ name: 'admin' }]);
    });

    test('RTE-6: a cursor that is closed at a router is closed at its shard', async () => {
        const c = client.db('crud').collection('c');
        const open = async () => {
            let count = 0;
            for (const shard of cluster.shards) {
                const status = await shard.command(shard.members[0], { serverStatus: 1 });
                count += Number(status.metrics.cursor.open.total);
            }
            return count;
        };
        const before_ = await open();
        const cursor = c.find().batchSize(2);
        await cursor.next();
        assert.equal(await open(), before_ + 1);
        await cursor.close();
        await waitFor(async () => (await open()) === before_, { what: 'no cursor is left' });
        await failsWith(
            client.db('crud').command({ getMore: (await import('mongodb')).Long.fromNumber(12345), collection: 'c' }),
            43,
        );
    });

    test('BAL-1: whether the balancer may run is kept', async () => {
        assert.equal((await cluster.admin({ balancerStatus: 1 })).mode, 'full');
        await cluster.admin({ balancerStop: 1 });
        assert.equal((await cluster.admin({ balancerStatus: 1 })).mode, 'off');
        const row = await client.db('config').collection('settings').findOne({ _id: 'balancer' });
        assert.deepEqual(row, { _id: 'balancer', mode: 'off', stopped: true });
        await cluster.admin({ balancerStart: 1 });
        assert.equal((await cluster.admin({ balancerStatus: 1 })).mode, 'full');
    });

    test('RTE-6: replies carry the times that later reads need', async () => {
        const session = client.startSession({ causalConsistency: true });
        const c = client.db('crud').collection('times');
        await c.insertOne({ _id: 1 }, { session });
        assert.ok(session.operationTime.greaterThan(0));
        assert.deepEqual(await c.find({}, { session, readPreference: 'nearest' }).toArray(), [{ _id: 1 }]);
        await session.endSession();
    });

    test('what a router cannot do yet is refused by name', async () => {
        for (const name of ['refineCollectionShardKey', 'reshardCollection', 'abortReshardCollection', 'commitReshardCollection'])
            await failsWith(cluster.admin({ [name]: 'x' }), 238);
        await failsWith(client.db('crud').command({ noSuchCommand: 1 }), 59);
        await failsWith(client.db('local').collection('c').find().toArray(), 20);
        await failsWith(client.watch().tryNext(), 238);
    });

    test('RTE-6: a pipeline that writes goes to the primary, and a stream waits where its database will be', async () => {
        const c = client.db('crud').collection('c', { readPreference: 'secondaryPreferred' });
        await c.aggregate([{ $match: { group: 2 } }, { $merge: { into: 'merged' } }]).toArray();
        assert.equal(await client.db('crud').collection('merged').countDocuments(), 100);
        const stream = client.db('later').collection('c').watch();
        try {
            assert.equal(await stream.tryNext(), null);
            await client.db('later').collection('c').insertOne({ _id: 1 });
            assert.deepEqual((await stream.next()).fullDocument, { _id: 1 });
        } finally {
            await stream.close();
        }
    });

    test('BAL-3: a replica set is a shard of one cluster, under one name', async () => {
        const [shard] = cluster.shards;
        const [member] = shard.members;
        const versions = (await shard.direct(member)).db('admin').collection('system.version');
        const identity = await versions.findOne({ _id: 'shardIdentity' });
        const { _id, ...same } = identity;
        await shard.command(member, { _addShard: 1, shardIdentity: same });
        const { ObjectId } = await import('mongodb');
        await failsWith(shard.command(member, { _addShard: 1, shardIdentity: { ...same, clusterId: new ObjectId() } }), 20);
        await failsWith(shard.command(member, { _addShard: 1, shardIdentity: { ...same, shardName: 'x' } }), 20);
        await failsWith(shard.command(member, { _addShard: 1, shardIdentity: {} }), 12);
        await failsWith(versions.deleteOne({ _id: 'shardIdentity' }), 40070);
        assert.deepEqual(await versions.findOne({ _id: 'shardIdentity' }), identity);
    });

    test('DDL-1: a shard that hangs is not chosen for a new database', async () => {
        const [{ members: [member] }] = cluster.shards;
        member.signal('SIGSTOP');
        try {
            await client.db('despite').collection('c').insertOne({ _id: 1 });
        } finally {
            member.signal('SIGCONT');
        }
        const entry = await client.db('config').collection('databases').findOne({ _id: 'despite' });
        assert.equal(entry.primary, 'shard1');
    });

    test('DDL-1: the databases of a replica set come with it, and clashes are refused', async () => {
        const extra = await startShard('extra');
        const clash = await startShard('clash');
        try {
            const direct = await extra.client();
            await direct.db('brought').collection('c').insertOne({ _id: 1 });
            assert.equal((await cluster.admin({ addShard: extra.address })).shardAdded, 'extra');
            assert.deepEqual(await client.db('brought').collection('c').find().toArray(), [{ _id: 1 }]);
            const other = await clash.client();
            await other.db('crud').collection('c').insertOne({ _id: 1 });
            await failsWith(cluster.admin({ addShard: clash.address }), 96);
            assert.equal((await cluster.admin({ listShards: 1 })).shards.length, 3);
        } finally {
            await clash.remove();
            cluster.shards.push(extra);
        }
    });
});

describe('a cluster whose parts come and go', () => {
    let cluster;
    before(async () => {
        cluster = await startCluster({ shards: 1, members: 3 });
    });
    after(() => cluster?.remove());

    test('RTE-5: retryable writes and reads through a router survive a change of the primary', async () => {
        const [shard] = cluster.shards;
        const c = (await cluster.client({ retryWrites: true })).db('test').collection('c');
        await c.insertOne({ _id: -1 });
        const acknowledged = [];
        let isOver = false;
        const writing = (async () => {
            for (let i = 0; !isOver; i++) {
                await c.insertOne({ _id: i }, { writeConcern: { w: 'majority' } });
                acknowledged.push(i);
                assert.notEqual(await c.findOne({ _id: i }), null);
            }
        })();
        for (let i = 0; i < 3; i++) {
            const count = acknowledged.length;
            await waitFor(() => acknowledged.length > count + 20, { timeoutMs: 30_000, what: 'writes' });
            const primary = await shard.waitForPrimary();
            await shard.command(primary, { replSetStepDown: 10, force: true }).catch(() => {});
            await shard.waitForPrimary();
        }
        const count = acknowledged.length;
        await waitFor(() => acknowledged.length > count + 20, { timeoutMs: 30_000, what: 'writes at the end' });
        isOver = true;
        await writing;
        const found = new Set((await c.find().toArray()).map(({ _id }) => _id));
        assert.deepEqual(acknowledged.filter((i) => !found.has(i)), []);
    });

    test('RTE-5: reads go to secondaries if they are asked to', async () => {
        const [shard] = cluster.shards;
        const client = await cluster.client();
        const c = client.db('test').collection('c', { readPreference: 'secondary' });
        const counts = () =>
            Promise.all(
                shard.members.map(async (member) => {
                    const { opcounters } = await shard.command(member, { serverStatus: 1 });
                    return Number(opcounters.query);
                }),
            );
        const primary = await shard.waitForPrimary();
        const before_ = await counts();
        for (let i = 0; i < 20; i++) await c.findOne({});
        const read = (await counts()).map((count, i) => count - before_[i]);
        const ofPrimary = read[shard.members.indexOf(primary)];
        assert.ok(read.reduce((a, b) => a + b) - ofPrimary >= 20, `${read}, primary ${ofPrimary}`);
        await failsWith(
            client.db('test').command({ count: 'c', $readPreference: { mode: 'primary', tags: [{ a: 'b' }] } }),
            2,
        );
    });

    test('NOD-1: a router waits for its config server, and goes on after it was gone', async () => {
        const [member] = cluster.config.members;
        await member.kill();
        const late = makeRouter(cluster.config.address);
        cluster.routers.push(late);
        const starting = late.start();
        const client = await cluster.client();
        // What the router knows it needs not ask for.
        await client.db('test').collection('c').insertOne({ _id: 'while' });
        await member.start();
        await starting;
        await cluster.config.waitForPrimary();
        const other = await cluster.client({}, late);
        await other.db('later').collection('c').insertOne({ _id: 1 });
        assert.deepEqual(await client.db('later').collection('c').find().toArray(), [{ _id: 1 }]);
    });

    for (const point of ['validated', 'identityWritten', 'shardDocWritten'])
        test(`BAL-3: addShard is done or not done after a kill of the config server at ${point}`, async () => {
            const name = `killed${point}`;
            const shard = await startShard(name);
            cluster.shards.push(shard);
            const [member] = cluster.config.members;
            await cluster.config.command(member, {
                configureFailPoint: `addShard.${point}`,
                mode: 'alwaysOn',
                data: { crash: true },
            });
            const failed = cluster.admin({ addShard: shard.address }).catch(() => {});
            await waitFor(() => !member.isRunning(), { timeoutMs: 20_000, what: 'the crash' });
            await member.start();
            await cluster.config.waitForPrimary();
            await failed;
            assert.equal((await cluster.admin({ addShard: shard.address })).shardAdded, name);
            const { shards } = await cluster.admin({ listShards: 1 });
            assert.equal(shards.filter(({ _id }) => _id === name).length, 1);
        });
});
