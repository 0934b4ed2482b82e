/*
 * Goal (MIG-1, DDL-2, DDL-3, RTE-3): movePrimary takes a database to another shard: all of its unsharded collections with
 * documents, options, UUIDs and indexes, and its views; not the chunks of its sharded collections. Readers and writers, also of
 * a router that does not know yet, lose nothing and see nothing wrong; a move that cannot be done leaves nothing behind.
 *
 * Method: real processes. What a database has is read through both routers before and after; what shards have, directly.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Long, Timestamp, UUID } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';
import { runShell } from '../lib/mongosh.mjs';
import { makeTempDir, removeTempDir, waitFor } from '../lib/server.mjs';

const ONE_MOVE_MS_MAX = 60_000;

describe('movePrimary', () => {
    let cluster;
    let client;
    let stale; // of the second router, which changes no metadata itself
    let number = 0;
    let db; // a new name for each test, on shard0

    const move = (to, name = db, router) => cluster.admin({ movePrimary: name, to }, router);
    const direct = async (i) => cluster.shards[i].direct(cluster.shards[i].members[0]);
    const entry = (name = db) => client.db('config').collection('databases').findOne({ _id: name });
    const primaryOf = async (name = db) => (await entry(name)).primary;
    const onShard = async (i, name = db) =>
        (await (await direct(i)).db(name).listCollections().toArray())
            .map((row) => row.name)
            .filter((row) => row !== 'system.views')
            .sort();
    const hold = async (i, phase, point = 'task.beforeRun') => {
        const [shard, member] = [cluster.shards[i], cluster.shards[i].members[0]];
        const { count } = await shard.command(member, {
            configureFailPoint: point,
            mode: 'alwaysOn',
            data: { at: phase, blockTimeMS: 60_000 },
        });
        return {
            reached: () =>
                shard.command(member, {
                    waitForFailPoint: point,
                    timesEntered: Number(count) + 1,
                    maxTimeMS: 30_000,
                }),
            release: () => shard.release(member, point),
        };
    };
    const sortedBy = (name) => (a, b) => (a[name] < b[name] ? -1 : 1);

    /* All that a client of a router can see of a database. */
    async function picture(of, name = db) {
        const collections = await of.db(name).listCollections().toArray();
        const rows = [];
        for (const info of collections.sort(sortedBy('name'))) {
            const coll = of.db(name).collection(info.name);
            const docs = await coll.find().toArray();
            if (!info.options.capped) docs.sort((a, b) => (JSON.stringify(a._id) < JSON.stringify(b._id) ? -1 : 1));
            const indexes = info.type === 'view' ? [] : (await coll.indexes()).sort(sortedBy('name'));
            rows.push({ info, docs, indexes });
        }
        return rows;
    }

    async function checkConsistent(name = db) {
        const { cursor } = await client.db(name).command({ checkMetadataConsistency: 1 });
        assert.deepEqual(cursor.firstBatch, []);
    }

    before(async () => {
        cluster = await startCluster({ routers: 2 });
        client = await cluster.client();
        stale = await cluster.client({}, cluster.routers[1]);
    });
    beforeEach(async () => {
        db = `move${number++}`;
        await cluster.admin({ enableSharding: db, primaryShard: 'shard0' });
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

    async function fillAll() {
        const d = client.db(db);
        await d.collection('plain').insertMany(
            Array.from({ length: 3000 }, (_, i) => ({ _id: i, a: i % 7, b: `text ${i}`, tags: [i, i + 1] })),
        );
        await d.collection('plain').createIndexes([
            { key: { a: 1, b: -1 } },
            { key: { b: 1 }, unique: true, name: 'unique_b' },
            { key: { tags: 1 }, sparse: true },
            { key: { a: 'hashed' } },
            { key: { 'more.$**': 1 } },
            { key: { a: 1 }, partialFilterExpression: { a: { $gt: 3 } }, name: 'partial_a' },
            { key: { later: 1 }, expireAfterSeconds: 1_000_000, hidden: true },
        ]);
        await d.createCollection('capped', { capped: true, size: 100_000, max: 50 });
        await d.collection('capped').insertMany(Array.from({ length: 120 }, (_, i) => ({ _id: 1000 - i, n: i })));
        await d.createCollection('collated', {
            collation: { locale: 'en', strength: 2 },
            validator: { name: { $type: 'string' } },
            validationAction: 'error',
        });
        await d.collection('collated').insertMany([{ _id: 'A', name: 'x' }, { _id: 'b', name: 'y' }]);
        await d.createCollection('clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } });
        await d.collection('clustered').insertMany([{ _id: 2 }, { _id: 1 }, { _id: 'z' }]);
        await d.createCollection('empty');
        await d.collection('empty').createIndex({ x: 1 });
        await d.collection('odd ids').insertMany([{ _id: null }, { _id: { a: 1 } }, { _id: new UUID() }, { _id: Long.MAX_VALUE }]);
        await d.createCollection('view', { viewOn: 'plain', pipeline: [{ $match: { a: 3 } }, { $project: { b: 1 } }] });
        await d.createCollection('viewOfView', { viewOn: 'view', pipeline: [{ $limit: 5 }], collation: { locale: 'simple' } });
        await d.collection('split').insertMany(Array.from({ length: 100 }, (_, i) => ({ _id: i, k: i })));
        await d.collection('split').createIndex({ k: 1 });
        await d.collection('split').createIndex({ other: 1 });
        await cluster.admin({ shardCollection: `${db}.split`, key: { k: 1 } });
    }

    test('MIG-1: everything of a database is on the new shard, and nothing of it on the old one', async () => {
        await fillAll();
        const seen = await picture(client);
        const known = await picture(stale);
        assert.deepEqual(known, seen);
        const was = await entry();
        assert.equal((await move('shard1')).ok, 1);
        assert.equal((await move('shard1', db, cluster.routers[1])).ok, 1); // it is there already
        const is = await entry();
        assert.equal(is.primary, 'shard1');
        assert.equal(is.version.lastMod, was.version.lastMod + 1);
        assert.deepEqual(is.version.uuid, was.version.uuid);
        assert.ok(is.version.timestamp.greaterThan(was.version.timestamp));
        assert.deepEqual(await picture(client), seen);
        assert.deepEqual(await picture(stale), seen); // which finds out by itself
        assert.deepEqual(await onShard(0), ['split']);
        assert.deepEqual(await onShard(1), seen.map(({ info }) => info.name).filter((name) => name !== 'system.views'));
        await checkConsistent();
        const logged = await client.db('config').collection('changelog').findOne({ what: 'movePrimary.commit', ns: db });
        assert.equal(logged.details.to, 'shard1');
    });

    test('MIG-1: what moved works: limits, unique keys, validators, views and sharded collections', async () => {
        await fillAll();
        await move('shard1');
        const d = stale.db(db);
        await d.collection('capped').insertOne({ _id: 'new' });
        assert.equal(await d.collection('capped').countDocuments(), 50);
        await fails(d.collection('plain').insertOne({ _id: 'x', b: 'text 5' }), 11000);
        await fails(d.collection('collated').insertOne({ _id: 'c', name: 5 }), 121);
        await fails(d.collection('collated').insertOne({ _id: 'a', name: 'x' }), 11000);
        assert.equal(await d.collection('viewOfView').countDocuments(), 5);
        assert.equal(await d.collection('split').countDocuments(), 100);
        await d.collection('split').dropIndex('other_1');
        await d.command({ collMod: 'split', validationLevel: 'moderate' });
        await d.collection('split').createIndex({ fresh: 1 });
        await cluster.admin({ moveChunk: `${db}.split`, find: { k: 1 }, to: 'shard1' });
        assert.equal(await d.collection('split').countDocuments(), 100);
        await checkConsistent();
        await d.collection('empty').drop();
        await d.collection('plain').rename('renamed');
        await cluster.admin({ shardCollection: `${db}.renamed`, key: { b: 1 } });
        assert.equal(await client.db(db).collection('renamed').countDocuments(), 3000);
        await checkConsistent();
        await d.dropDatabase();
        assert.deepEqual([...(await onShard(0)), ...(await onShard(1))], []);
    });

    test('MIG-1: there and back again, many times; a database without collections, too', async () => {
        await move('shard1');
        assert.equal(await primaryOf(), 'shard1');
        await stale.db(db).collection('c').insertOne({ _id: 0 });
        for (let i = 1; i <= 6; i++) {
            await move(`shard${(i + 1) % 2}`);
            await (i % 2 === 0 ? client : stale).db(db).collection('c').insertOne({ _id: i });
            assert.equal(await stale.db(db).collection('c').countDocuments(), i + 1);
            await checkConsistent();
        }
    });

    test('DDL-2: where it is already there is nothing to do', async () => {
        const was = await entry();
        await move('shard0');
        assert.deepEqual(await entry(), was);
        await cluster.admin({ movePrimary: db, to: cluster.shards[1].address }); // also by its address
        const [member] = cluster.shards[1].members;
        await cluster.admin({ movePrimary: db, to: `127.0.0.1:${member.port}` }); // or that of a member
        assert.equal(await primaryOf(), 'shard1');
    });

    test('DDL-2: bad requests are refused, and change nothing', async () => {
        await fails(move('nobody'), 70);
        await fails(move('shard1', 'none'), 26);
        for (const name of ['admin', 'config', 'local']) await fails(move('shard1', name), 72);
        await fails(move('shard1', 'a.b'), 73);
        await fails(move('shard1', ''), 73);
        await fails(cluster.admin({ movePrimary: db }), 72);
        await fails(cluster.admin({ movePrimary: db, to: '' }), 72);
        await fails(cluster.admin({ movePrimary: 5, to: 'shard1' }), 14);
        await fails(cluster.admin({ movePrimary: db, to: 5 }), 14);
        await fails(client.db(db).command({ movePrimary: db, to: 'shard1' }), 13);
        const version = (await entry()).version;
        const config = await cluster.config.direct(cluster.config.members[0]);
        const commit = (fields) => config.db('admin').command({ _configsvrCommitMovePrimary: db, ...fields });
        await fails(commit({ expectedDatabaseVersion: version, to: 'nobody', writeConcern: { w: 'majority' } }), 70);
        await fails(commit({ expectedDatabaseVersion: { ...version, lastMod: 7 }, to: 'shard1' }), 249);
        await fails(commit({ to: 'shard1' }), 40414);
        await fails(config.db('admin').command({ _shardsvrMovePrimary: db, arguments: { to: 'shard1' } }), 193);
        assert.equal(await primaryOf(), 'shard0');
    });

    test('DDL-2: a collection of that name on the other shard, even an empty one: refused; all is as before', async () => {
        await fillAll();
        const seen = await picture(client);
        const other = (await direct(1)).db(db);
        await other.collection('plain').insertOne({ orphan: 1 });
        await fails(move('shard1'), 48, { message: /plain/ });
        assert.deepEqual(await onShard(1), ['plain']); // it was found before anything was copied
        assert.equal(await other.collection('plain').countDocuments(), 1);
        assert.deepEqual(await picture(stale), seen);
        await client.db(db).collection('plain').insertOne({ _id: 'written', b: 'after' });
        await other.collection('plain').deleteMany({});
        await fails(move('shard1'), 48, { message: /plain/ });
        await other.collection('plain').drop();
        await move('shard1');
        assert.equal(await stale.db(db).collection('plain').countDocuments(), 3001);
        await checkConsistent();
    });

    test('DDL-2: the target begins to be removed in the middle: the config server refuses, and it is undone', async () => {
        await fillAll();
        const seen = await picture(client);
        const point = await hold(0, 'movePrimary.commit');
        const outcome = move('shard1').catch((error) => error);
        await point.reached();
        const config = (await cluster.config.direct(cluster.config.members[0])).db('config').collection('shards');
        await config.updateOne({ _id: 'shard1' }, { $set: { draining: true } });
        await point.release();
        assert.equal((await outcome).code, 70);
        await config.updateOne({ _id: 'shard1' }, { $unset: { draining: 1 } });
        assert.equal(await primaryOf(), 'shard0');
        assert.deepEqual(await onShard(1), ['split']);
        assert.deepEqual(await picture(stale), seen);
        await checkConsistent();
        await move('shard1');
        assert.deepEqual(await picture(stale), seen);
    });

    test('MIG-2: what somebody makes on the old shard itself meanwhile is not left behind: the move is given up', async () => {
        await client.db(db).collection('c').insertOne({ _id: 1 });
        const own = (await direct(0)).db(db);
        const cases = [
            ['movePrimary.clone', () => own.collection('made').insertOne({ _id: 1 })],
            ['movePrimary.catchup', () => own.collection('c').insertOne({ _id: 2 })],
            ['movePrimary.catchup', () => own.collection('c').createIndex({ a: 1 })],
        ];
        for (const [phase, change] of cases) {
            const point = await hold(0, phase);
            const outcome = move('shard1').catch((error) => error);
            await point.reached();
            await change();
            await point.release();
            assert.equal((await outcome).code, 96, phase);
            assert.deepEqual(await onShard(1), []);
        }
        await move('shard1');
        assert.equal(await stale.db(db).collection('made').countDocuments(), 1);
        assert.equal(await stale.db(db).collection('c').countDocuments(), 2);
        assert.equal((await stale.db(db).collection('c').indexes()).length, 2);
    });

    test('MIG-3: while it is copied reads go on and writes wait; near the end reads wait as well', async () => {
        await fillAll();
        const copying = await hold(0, 'movePrimary.clone', 'task.afterRun');
        const outcome = move('shard1');
        await copying.reached();
        for (const of of [client, stale]) {
            assert.equal(await of.db(db).collection('plain').countDocuments(), 3000);
            assert.equal(await of.db(db).collection('viewOfView').countDocuments(), 5);
        }
        /* A sharded collection is not concerned. */
        await stale.db(db).collection('split').updateOne({ k: 5 }, { $set: { touched: true } });
        await stale.db(db).collection('split').updateMany({}, { $set: { all: true } });
        const late = [client, stale].map((of, i) => {
            const write = { done: false };
            write.end = Promise.all([
                of.db(db).collection('plain').insertOne({ _id: `late ${i}`, b: `late ${i}` }),
                of.db(db).collection(`new ${i}`).insertOne({ _id: 1 }),
                of.db(db).collection('empty').createIndex({ [`y${i}`]: 1 }),
                of.db(db).collection('plain').aggregate([{ $match: { _id: i } }, { $out: `out ${i}` }]).toArray(),
                of.db(db).collection('plain').aggregate([{ $match: { _id: i } }, { $merge: `merged ${i}` }]).toArray(),
                of.db(db).createCollection(`view ${i}`, { viewOn: 'plain', pipeline: [] }),
                of.db(db).command({ convertToCapped: 'odd ids', size: 10_000 }),
                of.db(db).collection('collated').drop().catch(() => {}), // the second time it may be gone
            ]).then(() => (write.done = true));
            return write;
        });
        await fails(client.db(db).collection('plain').insertOne({ _id: 'soon' }, { maxTimeMS: 300 }), 50);
        assert.deepEqual(late.map(({ done }) => done), [false, false]);
        assert.deepEqual((await (await direct(0)).db(db).listCollections({ name: /new|out|merged/ }).toArray()).length, 0);
        const committing = await hold(0, 'movePrimary.commit');
        await copying.release();
        await committing.reached();
        await fails(stale.db(db).collection('plain').findOne({}, { maxTimeMS: 300 }), 50);
        const read = stale.db(db).collection('plain').findOne({ _id: 1 });
        await committing.release();
        assert.equal((await outcome).ok, 1);
        assert.equal((await read)._id, 1);
        await Promise.all(late.map(({ end }) => end));
        for (const i of [0, 1]) {
            assert.ok(await client.db(db).collection('plain').findOne({ _id: `late ${i}` }));
            for (const name of [`new ${i}`, `out ${i}`, `merged ${i}`])
                assert.equal(await client.db(db).collection(name).countDocuments(), 1, name);
        }
        assert.equal((await client.db(db).collection('empty').indexes()).length, 4);
        assert.ok(await client.db(db).collection('odd ids').isCapped());
        assert.equal(await client.db(db).collection('split').countDocuments({ all: true }), 100);
        assert.deepEqual(await onShard(0), ['split']);
        await checkConsistent();
    });

    test('DDL-3: the same request joins, another one waits or is refused', async () => {
        await client.db(db).collection('c').insertOne({ _id: 1 });
        const point = await hold(0, 'movePrimary.catchup');
        const first = move('shard1');
        await point.reached();
        const second = move('shard1', db, cluster.routers[1]);
        await fails(move('shard0', db, cluster.routers[1]), 117);
        const later = [
            stale.db(db).collection('c').rename('r'),
            client.db(db).collection('none').drop().catch(() => {}),
            cluster.admin({ shardCollection: `${db}.s`, key: { k: 'hashed' } }, cluster.routers[1]),
        ];
        let isOver = false;
        Promise.all(later).then(() => (isOver = true));
        await new Promise((resolve) => setTimeout(resolve, 500));
        assert.equal(isOver, false);
        await point.release();
        assert.equal((await first).ok, 1);
        assert.equal((await second).ok, 1);
        await Promise.all(later);
        assert.equal((await entry()).version.lastMod, 2);
        assert.equal(await stale.db(db).collection('r').countDocuments(), 1);
        await checkConsistent();
        await Promise.all([move('shard0'), client.db(db).dropDatabase()].map((done) => done.catch(() => {})));
        await stale.db(db).collection('r').insertOne({});
        assert.equal(await client.db(db).collection('r').countDocuments(), 1);
        await checkConsistent();
    });

    test('MIG-1: readers and writers through two routers lose nothing while it moves to and fro', async () => {
        const seconds = Number(process.env.MOVE_SECONDS ?? 6);
        const setup = client.db(db);
        await setup.collection('counters').insertMany(Array.from({ length: 50 }, (_, i) => ({ _id: i, n: 0, twin: 0 })));
        await setup.collection('log').createIndex({ writer: 1, n: 1 }, { unique: true });
        await setup.createCollection('sums', { viewOn: 'counters', pipeline: [{ $group: { _id: 1, n: { $sum: '$n' }, twin: { $sum: '$twin' } } }] });
        const until = Date.now() + seconds * 1000;
        const acknowledged = [];
        const counted = Array(50).fill(0);
        let reads = 0;
        const writer = async (of, name) => {
            for (let n = 0; Date.now() < until; n++) {
                await of.db(db).collection('log').insertOne({ writer: name, n });
                acknowledged.push({ writer: name, n });
                const _id = n % 50;
                const { modifiedCount } = await of.db(db).collection('counters').updateOne({ _id }, { $inc: { n: 1, twin: 1 } });
                counted[_id] += modifiedCount;
                assert.equal(modifiedCount, 1);
            }
        };
        const reader = async (of) => {
            while (Date.now() < until) {
                const before = [...counted];
                const docs = await of.db(db).collection('counters').find().toArray();
                assert.equal(docs.length, 50);
                for (const { _id, n, twin } of docs) {
                    assert.equal(n, twin);
                    assert.ok(n >= before[_id], `counter ${_id}: ${n} < ${before[_id]}`);
                }
                const [sum] = await of.db(db).collection('sums').find().toArray();
                assert.equal(sum.n, sum.twin);
                const seen = acknowledged.length;
                assert.ok((await of.db(db).collection('log').countDocuments()) >= seen);
                const names = await of.db(db).listCollections({}, { nameOnly: true }).toArray();
                assert.equal(names.filter(({ name }) => !name.startsWith('system.')).length, 3);
                reads++;
            }
        };
        let moves = 0;
        const mover = async () => {
            while (Date.now() < until) {
                await move(`shard${++moves % 2}`, db, cluster.routers[moves % 2]);
                await new Promise((resolve) => setTimeout(resolve, 50));
            }
        };
        await Promise.all([
            mover(),
            ...[client, stale].flatMap((of, i) => [writer(of, `a${i}`), writer(of, `b${i}`), reader(of), reader(of)]),
        ]);
        assert.ok(moves >= 3 && reads > 10, `${moves} moves, ${reads} reads`);
        const log = await client.db(db).collection('log').find({}, { projection: { _id: 0 } }).toArray();
        assert.equal(log.length, acknowledged.length);
        const counters = await stale.db(db).collection('counters').find().sort({ _id: 1 }).toArray();
        assert.deepEqual(counters.map(({ n }) => n), counted);
        await checkConsistent();
    });

    test('MIG-1: transactions: one that has written is waited for; one from before the move does not read the copy', async () => {
        await client.db(db).collection('c').insertMany([{ _id: 1 }, { _id: 2 }]);
        const session = client.startSession();
        session.startTransaction();
        await client.db(db).collection('c').insertOne({ _id: 'in txn' }, { session });
        const outcome = move('shard1');
        await new Promise((resolve) => setTimeout(resolve, 300));
        assert.equal(await primaryOf(), 'shard0');
        await session.commitTransaction();
        await outcome;
        assert.equal(await stale.db(db).collection('c').countDocuments(), 3);
        await session.withTransaction(async () => {
            await client.db(db).collection('c').updateOne({ _id: 1 }, { $set: { again: 1 } }, { session });
        });
        await session.endSession();
        assert.equal(await stale.db(db).collection('c').countDocuments({ again: 1 }), 1);
        /* A snapshot of a time when it was elsewhere. */
        const at = (await entry()).version.timestamp;
        const past = { level: 'snapshot', atClusterTime: new Timestamp({ t: at.high, i: at.low - 1 }) };
        await fails(client.db(db).command({ find: 'c', readConcern: past }), 246);
        const now = await client.db(db).command({ find: 'c', readConcern: { level: 'snapshot' } });
        assert.equal(now.cursor.firstBatch.length, 3);
    });

    test('MIG-1: while it is copied nothing expires, neither here nor there; afterwards it does', async () => {
        const all = cluster.shards.map((shard) => [shard, shard.members[0]]);
        for (const [shard, member] of all) await shard.command(member, { setParameter: 1, ttlMonitorSleepSecs: 1 });
        const coll = client.db(db).collection('expiring');
        await coll.createIndex({ at: 1 }, { expireAfterSeconds: 60 });
        await coll.insertMany(Array.from({ length: 20 }, (_, i) => ({ _id: i, at: new Date(Date.now() - 57_000) })));
        const point = await hold(0, 'movePrimary.clone', 'task.afterRun');
        const outcome = move('shard1');
        await point.reached();
        await new Promise((resolve) => setTimeout(resolve, 6000));
        for (const i of [0, 1]) assert.equal(await (await direct(i)).db(db).collection('expiring').countDocuments(), 20, `shard${i}`);
        await point.release();
        await outcome;
        await waitFor(async () => (await stale.db(db).collection('expiring').countDocuments()) === 0, {
            timeoutMs: 20_000,
            what: 'the documents to expire',
        });
    });

    test('MIG-1: a cursor of the old shard ends with an error, not early', async () => {
        await client.db(db).collection('c').insertMany(Array.from({ length: 1000 }, (_, i) => ({ _id: i })));
        const cursor = client.db(db).collection('c').find({}, { batchSize: 10 });
        await cursor.next();
        await move('shard1');
        let count = 1;
        await assert.rejects(async () => {
            for await (const _ of cursor) count++;
        });
        assert.ok(count < 1000);
        assert.equal(await client.db(db).collection('c').find({}, { batchSize: 100 }).toArray().then((docs) => docs.length), 1000);
    });

    test('MIG-1: the oplogs of both shards say that it was a move: no change stream hears of it', async () => {
        await fillAll();
        const streams = await Promise.all(
            [0, 1].map(async (i) => (await direct(i)).db(db).watch([], { showExpandedEvents: true })),
        );
        const events = [];
        for (const stream of streams) stream.on('change', (event) => events.push(event)).on('error', () => {});
        await Promise.all(streams.map((stream) => stream.tryNext?.().catch(() => {})));
        await new Promise((resolve) => setTimeout(resolve, 300));
        await move('shard1');
        await client.db(db).collection('plain').insertOne({ _id: 'seen', b: 'seen' });
        await waitFor(() => events.some(({ documentKey }) => documentKey?._id === 'seen'), { timeoutMs: 10_000, what: 'the event' });
        assert.deepEqual(events.map(({ operationType, ns }) => `${operationType} ${ns?.coll}`), ['insert plain']);
        await Promise.all(streams.map((stream) => stream.close()));
        for (const i of [0, 1]) {
            const filter = { ns: { $regex: `^${db}\\.` }, fromMigrate: { $ne: true }, op: { $in: ['i', 'u', 'd', 'c'] } };
            const found = await (await direct(i)).db('local').collection('oplog.rs').find(filter).toArray();
            if (i === 1) assert.deepEqual(found.map(({ op, o }) => [op, o._id]), [['i', 'seen']]);
            else assert.ok(!found.some(({ op, o }) => op === 'c' && o.drop !== undefined));
        }
    });

    test('MIG-1: some hundred thousand documents with several indexes, in bounded memory', { timeout: 300_000 }, async () => {
        const coll = client.db(db).collection('large');
        const total = Number(process.env.MOVE_DOCS ?? 100_000);
        for (let from = 0; from < total; from += 10_000)
            await coll.insertMany(
                Array.from({ length: 10_000 }, (_, i) => ({ _id: from + i, a: (from + i) % 1000, b: `b${from + i}`, pad: 'x'.repeat(200) })),
            );
        await coll.createIndexes([{ key: { a: 1 } }, { key: { b: 1 }, unique: true }, { key: { a: 1, b: 1 } }]);
        await client.db(db).collection('huge').insertMany(Array.from({ length: 4 }, (_, i) => ({ _id: i, pad: 'y'.repeat(15 << 20) })));
        const began = Date.now();
        await move('shard1');
        const ms = Date.now() - began;
        console.log(`# ${total} documents moved in ${ms} ms`);
        assert.ok(ms < ONE_MOVE_MS_MAX);
        assert.equal(await stale.db(db).collection('large').countDocuments(), total);
        assert.equal(await stale.db(db).collection('large').countDocuments({ a: 77 }), total / 1000);
        assert.equal((await stale.db(db).collection('huge').findOne({ _id: 3 })).pad.length, 15 << 20);
        const { valid, nIndexes } = await (await direct(1)).db(db).command({ validate: 'large', full: true });
        assert.ok(valid && nIndexes === 4);
        await client.db(db).dropDatabase();
    });

    test('DDL-2: by the real shell', async () => {
        await client.db(db).collection('c').insertOne({ _id: 1 });
        const home = makeTempDir();
        const uri = `mongodb://127.0.0.1:${cluster.routers[1].port}/${db}`;
        try {
            const move = `db.adminCommand({ movePrimary: '${db}', to: 'shard1' }).ok + ' ' + db.c.countDocuments()`;
            assert.equal((await runShell({ uri, home }, move)).trim(), '1 1');
        } finally {
            removeTempDir(home);
        }
    });

    /* The last one: there is one shard less afterwards. */
    test('DDL-2: a shard that is being removed gets no database, and gives its own away', async () => {
        await client.db(db).collection('c').insertOne({});
        const other = `${db}other`;
        await cluster.admin({ enableSharding: other, primaryShard: 'shard1' });
        await client.db(other).collection('c').insertOne({});
        const { dbsToMove } = await cluster.admin({ removeShard: 'shard1' });
        assert.ok(dbsToMove.includes(other) && !dbsToMove.includes(db));
        await fails(move('shard1'), 70);
        for (const name of dbsToMove) await move('shard0', name);
        const { state, dbsToMove: left = [] } = await cluster.admin({ removeShard: 'shard1' });
        assert.ok(left.length === 0, state);
        assert.equal(await stale.db(other).collection('c').countDocuments(), 1);
    });
});
