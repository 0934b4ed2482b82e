/*
 * What a router tells of itself and of the operations of its cluster: serverStatus, currentOp, killOp;
 * and where it once gave other answers than a node although it could give the same.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Double, Int32 } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails, hasShape } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';

let cluster;
let client;
let admin;
let db;

before(async () => {
    cluster = await startCluster({ shards: 2, shardArgs: ['--setParameter', 'orphanCleanupDelaySecs=0'] });
    client = await cluster.client();
    admin = client.db('admin');
    db = client.db('test');
    await admin.command({ enableSharding: 'test', primaryShard: 'shard0' });
    await admin.command({ shardCollection: 'test.spread', key: { _id: 'hashed' } });
    await db.collection('spread').insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id })));
});
after(() => cluster?.remove());

/* Runs `body` while a find of a shard takes ten seconds, or until it is killed; gives its outcome. */
async function whileFindRuns(body) {
    const slow = db
        .collection('spread')
        .aggregate([{ $match: { $expr: { $gt: [{ $size: { $filter: { input: { $range: [0, 2e6] }, cond: { $lt: ['$$this', '$_id'] } } } }, -1] } } }], {
            comment: 'slow',
            maxTimeMS: 60_000,
        })
        .toArray()
        .then(
            () => 0,
            (error) => error.code,
        );
    await body();
    return slow;
}

const slowOps = async (more = {}) =>
    (await admin.command({ currentOp: 1, 'command.comment': 'slow', ...more })).inprog;

describe('serverStatus of a router', () => {
    test('has the sections of a mongos, and none about documents', async () => {
        const status = await admin.command({ serverStatus: 1 });
        hasShape(status, {
            host: 'string',
            version: 'string',
            process: 'string',
            pid: 'number',
            uptime: 'number',
            uptimeMillis: 'number',
            localTime: 'date',
            asserts: { user: 'number' },
            connections: { current: 'number', available: 'number', totalCreated: 'number' },
            network: { bytesIn: 'number', numRequests: 'number' },
            opcounters: { insert: 'number', query: 'number', command: 'number' },
            mem: { resident: 'number' },
            metrics: { commands: { find: { total: 'number' } }, cursor: { open: { total: 'number' } }, mongos: { cursor: { totalOpened: 'number' } } },
            defaultRWConcern: { defaultReadConcernSource: 'string', defaultWriteConcernSource: 'string', localUpdateWallClockTime: 'date' },
            logicalSessionRecordCache: { activeSessionsCount: 'number' },
            shardingStatistics: {
                numHostsTargeted: { find: { allShards: 'number' }, insert: { oneShard: 'number' } },
                catalogCache: { numCollectionEntries: 'number', countFullRefreshesStarted: 'number' },
            },
        });
        assert.equal(status.process, 'mongos');
        for (const section of ['wiredTiger', 'storageEngine', 'locks', 'repl']) assert.ok(!(section in status), section);
    });

    test('counts cursors, and those that gave more than one batch when they end', async () => {
        const counts = async () => Object.values((await admin.command({ serverStatus: 1 })).metrics.mongos.cursor);
        const [many, opened] = await counts();
        const cursor = db.collection('spread').find({}, { batchSize: 20 });
        await cursor.next();
        assert.deepEqual(await counts(), [many, opened + 1]);
        for (let i = 0; i < 30; i++) await cursor.next();
        assert.deepEqual(await counts(), [many, opened + 1]);
        await cursor.close();
        assert.deepEqual(await counts(), [many + 1, opened + 1]);
    });

    test('counts how many shards commands went to', async () => {
        const read = async () => (await admin.command({ serverStatus: 1 })).shardingStatistics.numHostsTargeted;
        const before = await read();
        const coll = db.collection('spread');
        await coll.find().toArray();
        await coll.find({ _id: 1 }).toArray();
        await coll.aggregate([{ $match: { _id: 1 } }]).toArray();
        await coll.updateMany({}, { $set: { a: 1 } });
        await coll.deleteOne({ _id: 99 });
        await coll.insertOne({ _id: 99 });
        await db.collection('plain').insertOne({});
        const after = await read();
        const more = (command, hosts) => after[command][hosts] - before[command][hosts];
        assert.deepEqual(
            [more('find', 'allShards'), more('find', 'oneShard'), more('aggregate', 'oneShard')],
            [1, 1, 1],
        );
        assert.deepEqual([more('update', 'allShards'), more('delete', 'oneShard')], [1, 1]);
        assert.deepEqual([more('insert', 'oneShard'), more('insert', 'unsharded')], [1, 1]);
    });

    test('counts what the cache of routing tables did', async () => {
        const read = async () => (await admin.command({ serverStatus: 1 })).shardingStatistics.catalogCache;
        const before = await read();
        await db.collection(`new_${Date.now()}`).findOne();
        const after = await read();
        assert.ok(after.countFullRefreshesStarted > before.countFullRefreshesStarted);
        assert.ok(after.numCollectionEntries > before.numCollectionEntries);
    });
});

describe('operations of a cluster', () => {
    test('currentOp and $currentOp tell those of all shards', async () => {
        await whileFindRuns(async () => {
            const ops = await waitFor(async () => {
                const found = await slowOps();
                return new Set(found.map(({ shard }) => shard)).size === 2 && found;
            });
            for (const { shard, opid, client_s: peer } of ops) {
                assert.match(opid, new RegExp(`^${shard}:\\d+$`));
                assert.match(peer, /^127\.0\.0\.1:/);
            }
            const counts = await admin
                .aggregate([
                    { $currentOp: { allUsers: true } },
                    { $match: { 'command.comment': 'slow' } },
                    { $group: { _id: '$shard', n: { $sum: 1 } } },
                    { $sort: { _id: 1 } },
                ])
                .toArray();
            assert.deepEqual(counts.map(({ _id }) => _id), ['shard0', 'shard1']);
            for (const { opid } of ops) await admin.command({ killOp: 1, op: opid });
        });
    });

    test('with localOps they are those of the router', async () => {
        await whileFindRuns(async () => {
            const local = await waitFor(async () => {
                const found = await admin
                    .aggregate([{ $currentOp: { localOps: true } }, { $match: { 'command.comment': 'slow' } }])
                    .toArray();
                return found.length === 1 && found[0];
            });
            assert.equal(local.shard, undefined);
            assert.equal(typeof local.opid, 'number');
            await admin.command({ killOp: 1, op: local.opid });
        });
    });

    test('a find that a router is killed for is shown as such until it ends', async () => {
        await admin.command({ configureFailPoint: 'waitInFindBeforeMakingBatch', mode: 'alwaysOn', data: { nss: 'test.spread' } });
        const outcome = db.collection('spread').find({}, { comment: 'held' }).toArray().then(
            () => 0,
            (error) => error.code,
        );
        const ops = () =>
            admin.aggregate([{ $currentOp: { localOps: true } }, { $match: { 'command.comment': 'held', failpointMsg: { $exists: true } } }]).toArray();
        const [{ opid }] = await waitFor(async () => {
            const found = await ops();
            return found.length > 0 && found;
        });
        await admin.command({ killOp: 1, op: opid });
        assert.equal((await ops())[0].killPending, true);
        await admin.command({ configureFailPoint: 'waitInFindBeforeMakingBatch', mode: 'off' });
        assert.equal(await outcome, 11601);
    });

    test('killOp takes the id of an operation of a shard', async () => {
        const code = await whileFindRuns(async () => {
            const ops = await waitFor(async () => {
                const found = await slowOps();
                return found.length === 2 && found;
            });
            for (const { opid, shard } of ops) {
                const reply = await admin.command({ killOp: 1, op: opid });
                assert.equal(reply.shard, shard);
                assert.equal(reply.info, 'attempting to kill op');
            }
        });
        assert.equal(code, 11601);
    });

    test('killOp takes a number for an operation of the router', async () => {
        const code = await whileFindRuns(async () => {
            const { opid } = await waitFor(async () =>
                (await admin.aggregate([{ $currentOp: { localOps: true } }, { $match: { 'command.comment': 'slow' } }]).toArray())[0],
            );
            await admin.command({ killOp: 1, op: opid });
        });
        assert.equal(code, 11601);
    });

    test('killSessions and killAllSessions end operations of shards, too', async () => {
        for (const command of [{ killAllSessions: [] }, { killAllSessionsByPattern: [] }]) {
            const code = await whileFindRuns(async () => {
                await waitFor(async () => (await slowOps()).length === 2);
                await admin.command(command);
                await waitFor(async () => (await slowOps()).length === 0);
            });
            assert.equal(code, 11601);
        }
        await admin.command({ killSessions: [] });
    });

    test('fsync goes to all shards', async () => {
        const reply = await admin.command({ fsync: 1 });
        assert.deepEqual(Object.keys(reply.all).sort(), ['shard0', 'shard1']);
        assert.equal(reply.numFiles, 2);
    });

    test('fsync with lock keeps writers out of all shards and the config server, until fsyncUnlock', async () => {
        await fails(admin.command({ fsyncUnlock: 1 }), 20);
        const reply = await admin.command({ fsync: 1, lock: true });
        assert.deepEqual(Object.keys(reply.all).sort(), ['config', 'shard0', 'shard1']);
        for (const { lockCount } of Object.values(reply.all)) assert.equal(Number(lockCount), 1);
        assert.equal(Number((await admin.command({ fsync: 1, lock: true })).all.shard0.lockCount), 2);
        const write = db.collection('spread').updateMany({}, { $set: { locked: 1 } });
        const waiting = { waitingForLock: true, ns: 'test.spread' };
        await waitFor(async () => (await admin.aggregate([{ $currentOp: {} }, { $match: waiting }]).toArray()).length > 0);
        assert.equal(await db.collection('spread').countDocuments({ locked: 1 }), 0);
        assert.equal(Number((await admin.command({ fsyncUnlock: 1 })).lockCount), 1);
        assert.equal(Number((await admin.command({ fsyncUnlock: 1 })).lockCount), 0);
        assert.equal((await write).modifiedCount, 100);
    });

    test('a lock of fsync that one shard refuses is taken off the others', async () => {
        const shard = cluster.shards[1];
        const data = { failCommands: ['fsync'], errorCode: 8, failInternalCommands: true };
        await shard.command(shard.members[0], { configureFailPoint: 'failCommand', mode: { times: 1 }, data });
        await fails(admin.command({ fsync: 1, lock: true }), 8);
        await fails(admin.command({ fsyncUnlock: 1 }), 20);
        await db.collection('spread').updateMany({}, { $unset: { locked: 1 } });
    });

    test('what is no id is refused', async () => {
        for (const op of ['x', ':1', 'shard0:']) await fails(admin.command({ killOp: 1, op }), 28625);
        await fails(admin.command({ killOp: 1, op: 'shard0:x' }), 28626);
        await fails(admin.command({ killOp: 1, op: 'nobody:1' }), 70);
        await fails(admin.command({ killOp: 1, op: {} }), 14);
        await fails(admin.command({ killOp: 1 }), 4);
        await fails(db.aggregate([{ $currentOp: {} }]).toArray(), 73);
        await fails(admin.aggregate([{ $currentOp: { nonsense: 1 } }]).toArray(), 9);
    });
});

describe('a router gives what a node gives', () => {
    test('a unique index that its shards could not check alone is refused', async () => {
        await fails(db.collection('spread').createIndex({ a: 1 }, { unique: true }), 67);
        await admin.command({ shardCollection: 'test.by_a', key: { a: 1 } });
        await fails(db.collection('by_a').createIndex({ b: 1, a: 1 }, { unique: true }), 67);
        await db.collection('by_a').createIndex({ a: 1, b: 1 }, { unique: true });
        await db.collection('by_a').createIndex({ b: 1 });
        for (const index of [{ name: 'b_1', prepareUnique: true }, { keyPattern: { b: 1 }, prepareUnique: true }])
            await fails(db.command({ collMod: 'by_a', index }), 72);
        await db.command({ collMod: 'by_a', index: { name: 'a_1', prepareUnique: true } });
        await db.collection('by_a').dropIndex('b_1');
        assert.deepEqual(
            (await db.collection('by_a').indexes()).map(({ name }) => name),
            ['_id_', 'a_1', 'a_1_b_1'],
        );
    });

    test('the index of _id is a unique one for a shard key, whatever the types of its numbers', async () => {
        await admin.command({ shardCollection: 'test.by_id', key: { _id: new Double(1) }, unique: true });
        await db.collection('by_k').createIndex({ k: new Double(1) }, { unique: true });
        await admin.command({ shardCollection: 'test.by_k', key: { k: new Int32(1) }, unique: true });
    });

    test('maxTimeMS of a getMore bounds the wait of a tailable cursor, not its life', async () => {
        await db.createCollection('capped', { capped: true, size: 4096 });
        await db.collection('capped').insertOne({ _id: 1 });
        const { cursor } = await db.command({ find: 'capped', tailable: true, awaitData: true });
        for (let i = 0; i < 2; i++) {
            const more = await db.command({ getMore: cursor.id, collection: 'capped', maxTimeMS: 50 });
            assert.deepEqual([more.cursor.nextBatch.length, more.cursor.id.toString()], [0, cursor.id.toString()]);
        }
        const waiting = db.command({ getMore: cursor.id, collection: 'capped', maxTimeMS: 20_000 });
        await db.collection('capped').insertOne({ _id: 2 });
        assert.deepEqual((await waiting).cursor.nextBatch, [{ _id: 2 }]);
    });

    test('unknown fields of commands that write are refused', async () => {
        await fails(db.command({ update: 'spread', updates: [], nope: 1 }), 40415);
        await fails(db.command({ insert: 'spread', documents: [{}], nope: 1 }), 40415);
    });

    test('an empty name of a collection is an invalid namespace, a view cannot be renamed', async () => {
        await fails(db.command({ create: '' }), 73);
        for (const name of ['view', 'view2']) await db.createCollection(name, { viewOn: 'spread', pipeline: [] });
        for (const to of ['other', 'spread', 'view2']) await fails(admin.command({ renameCollection: 'test.view', to: `test.${to}` }), 166);
        await fails(admin.command({ renameCollection: 'test.spread', to: 'test.view' }), 48);
    });

    test('count and distinct of a view are explained, writes to it are not', async () => {
        for (const command of [{ count: 'view', query: { _id: 1 } }, { distinct: 'view', key: '_id' }])
            assert.ok('shards' in (await db.command({ explain: command })) || 'stages' in (await db.command({ explain: command })));
        await fails(db.command({ explain: { delete: 'view', deletes: [{ q: {}, limit: 0 }] } }), 166);
    });

    test('an explained command is left out if the plan and it do not fit a reply', async () => {
        const filter = { x: { $in: Array.from({ length: 800_000 }, (_, i) => i) } };
        const reply = await db.command({ explain: { find: 'whole', filter }, verbosity: 'queryPlanner' });
        assert.equal(reply.queryPlanner.winningPlan.shards.length, 1);
        assert.deepEqual(['command' in reply, 'warning' in reply], [false, true]);
    });

    test('index filters are those of all shards', async () => {
        const query = { a: 1, b: 1 };
        await db.collection('spread').createIndexes([{ key: { a: 1 } }, { key: { b: 1 } }]);
        await db.command({ planCacheSetFilter: 'spread', query, indexes: [{ b: 1 }] });
        const listed = await db.command({ planCacheListFilters: 'spread' });
        assert.deepEqual(listed.filters.map(({ indexes }) => indexes), [[{ b: 1 }]]);
        for (const shard of ['shard0', 'shard1']) assert.deepEqual(listed[shard].filters, listed.filters);
        const plan = await db.collection('spread').find(query).explain('queryPlanner');
        for (const { winningPlan, indexFilterSet } of plan.queryPlanner.winningPlan.shards)
            assert.deepEqual([indexFilterSet, JSON.stringify(winningPlan).includes('"b_1"')], [true, true]);
        await db.command({ planCacheClearFilters: 'spread' });
        assert.deepEqual((await db.command({ planCacheListFilters: 'spread' })).filters, []);
        await db.command({ planCacheClear: 'spread' });
        await fails(db.command({ planCacheSetFilter: 'spread', query, indexes: [] }), 2);
        await db.collection('spread').dropIndexes();
    });

    test('$listLocalSessions lists the sessions of the router, and is explained', async () => {
        const { id } = await admin.command({ startSession: 1 });
        const mine = async (spec) => (await admin.aggregate([{ $listLocalSessions: spec }, { $match: { '_id.id': id.id } }]).toArray()).length;
        assert.deepEqual([await mine({}), await mine({ allUsers: true }), await mine({ users: [{ user: 'a', db: 'b' }] })], [1, 1, 0]);
        const plan = await admin.command({ aggregate: 1, pipeline: [{ $listLocalSessions: {} }], explain: true });
        assert.deepEqual([plan.splitPipeline, plan.mongos.stages], [null, [{ $listLocalSessions: {} }]]);
        await fails(admin.aggregate([{ $listLocalSessions: { nonsense: 1 } }]).toArray(), 40415);
    });

    test('apiStrict refuses unstable stages of sharded and other collections', async () => {
        const version = { apiVersion: '1', apiStrict: true };
        await db.createCollection('stable');
        for (const coll of ['stable', 'spread']) {
            for (const stage of [{ $listSessions: {} }, { $indexStats: {} }, { $planCacheStats: {} }, { $unionWith: { coll: 'stable', pipeline: [{ $indexStats: {} }] } }])
                await fails(db.command({ aggregate: coll, pipeline: [stage], cursor: {}, ...version }), 323);
            const pipeline = [{ $sort: { _id: 1 } }, { $group: { _id: null, n: { $sum: 1 } } }];
            assert.equal((await db.command({ aggregate: coll, pipeline, cursor: {}, ...version })).ok, 1);
        }
        assert.equal((await db.command({ aggregate: 'view', pipeline: [{ $limit: 1 }], cursor: {}, ...version })).cursor.firstBatch.length, 1);
    });

    test('dataSize takes the pattern and the bounds of the shard key, and no others', async () => {
        await admin.command({ shardCollection: 'test.sized', key: { k: 1 } });
        await db.collection('sized').insertMany([{ k: 1 }, { k: 2 }]);
        const size = (more) => admin.command({ dataSize: 'test.sized', ...more });
        const keyPattern = { k: 1 };
        assert.equal((await size({ keyPattern })).numObjects, 2);
        assert.equal((await size({ keyPattern, min: { k: 2 }, max: { k: 9 } })).numObjects, 1);
        assert.equal((await size({ keyPattern: {}, min: {}, max: {} })).numObjects, 2);
        await fails(size({ keyPattern: { x: 1 } }), 2);
        await fails(size({ keyPattern, min: { x: 1 }, max: { x: 2 } }), 2);
        await fails(size({ keyPattern, min: { k: 1, x: 1 }, max: { k: 2, x: 2 } }), 2);
        await db.collection('sized').drop();
    });

    test('a shard key does not become an array, whoever owns the documents', async () => {
        await admin.command({ shardCollection: 'test.single', key: { 'a.b': 1 } });
        const single = db.collection('single');
        await single.insertOne({ a: { b: 1 } });
        for (const update of [{ $set: { 'a.b': [2] } }, { $set: { a: [{ b: 2 }] } }])
            await fails(single.updateOne({ 'a.b': 1 }, update), 54);
        await single.updateOne({ 'a.b': 1 }, { $push: { 'a.c': 1 } });
        await single.drop();
    });

    test('shards forget where collections are by flushRouterConfig, too', async () => {
        const shard = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('admin');
        for (const what of [1, 'test', 'test.spread']) assert.equal((await shard.command({ flushRouterConfig: what })).flushed, true);
    });

    test('failpoints of a router can be waited for', async () => {
        const set = (mode) => admin.command({ configureFailPoint: 'failCommand', mode, ...(mode !== 'off' && { data: { failCommands: ['ping'], errorCode: 8 } }) });
        const { count } = await set('alwaysOn');
        await fails(admin.command({ ping: 1 }), 8);
        await admin.command({ waitForFailPoint: 'failCommand', timesEntered: Number(count) + 1, maxTimeMS: 10_000 });
        await set('off');
    });

    test('what concerns no shard has an operation time, too', async () => {
        const { operationTime, $clusterTime } = await admin.command({ ping: 1 });
        assert.equal(operationTime.compare($clusterTime.clusterTime) <= 0, true);
    });

    test('a name that a sharded collection cannot have is refused before anything is done', async () => {
        for (const [to, code] of [['spread', 20], ['$x', 73], ['system.x', 20]])
            await fails(admin.command({ renameCollection: 'test.spread', to: `test.${to}` }), code);
        assert.equal(await db.collection('spread').countDocuments(), 100);
    });
});

test('serverStatus of a router counts open cursors by how many shards they are on', async () => {
    const open = async () => (await admin.command({ serverStatus: 1 })).metrics.cursor.open;
    const before = await open();
    await db.collection('alone').insertMany(Array.from({ length: 10 }, (_, _id) => ({ _id })));
    const cursors = [];
    for (const name of ['spread', 'alone']) cursors.push((await db.command({ find: name, batchSize: 2 })).cursor.id);
    const now = await open();
    assert.equal(Number(now.multiTarget - before.multiTarget), 1);
    assert.equal(Number(now.singleTarget - before.singleTarget), 1);
    await db.command({ killCursors: 'spread', cursors: [cursors[0]] });
    await db.command({ killCursors: 'alone', cursors: [cursors[1]] });
    assert.equal(Number((await open()).multiTarget), Number(before.multiTarget));
});

test('moveChunk and moveRange take a shard by its name, its set, a member or its address; moveChunk has an old name', async () => {
    const chunks = client.db('config').collection('chunks');
    const { uuid } = await client.db('config').collection('collections').findOne({ _id: 'test.spread' });
    const [chunk] = await chunks.find({ uuid, shard: 'shard0' }).toArray();
    const [first, second] = cluster.shards;
    const names = ({ address }) => [address, address.split('/')[1], address.split('/')[0]];
    const [toSecond, toFirst] = [names(second), names(first)];
    const owner = async () => (await chunks.findOne({ _id: chunk._id })).shard;
    for (const [i, command] of [
        { movechunk: 'test.spread', bounds: [chunk.min, chunk.max] },
        { moveChunk: 'test.spread', bounds: [chunk.min, chunk.max] },
    ].entries()) {
        await admin.command({ ...command, to: toSecond[i] });
        assert.equal(await owner(), 'shard1');
        await admin.command({ moveRange: 'test.spread', min: chunk.min, max: chunk.max, toShard: toFirst[i] });
        assert.equal(await owner(), 'shard0');
    }
    await admin.command({ moveRange: 'test.spread', min: chunk.min, max: chunk.max, toShard: toFirst[2] });
    await fails(admin.command({ moveChunk: 'test.spread', bounds: [chunk.min, chunk.max], to: 'nobody' }), 70);
    await fails(admin.command({ moveChunk: 'test.spread', bounds: [chunk.min, 5], to: 'shard1' }), 14);
    await fails(admin.command({ moveChunk: 'test.spread', bounds: [chunk.min], to: 'shard1' }), 2);
    assert.equal(await db.collection('spread').countDocuments(), 100);
});

test('serverStatus tells what routers and shards know of the config server', async () => {
    await db.collection('spread').findOne();
    const shard = await cluster.shards[0].direct(cluster.shards[0].members[0]);
    for (const node of [admin, shard.db('admin')]) {
        const { sharding } = await node.command({ serverStatus: 1 });
        assert.equal(sharding.configsvrConnectionString, cluster.config.address);
        assert.equal(sharding.lastSeenConfigServerOpTime.ts._bsontype, 'Timestamp');
        assert.equal(Number(sharding.maxChunkSizeInBytes), 128 * 1024 * 1024);
    }
});

test('OPS-3: serverStatus counts statements that concern many documents, on routers and on shards', async () => {
    const shard = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('admin');
    const counts = async () => {
        const found = [];
        for (const node of [admin, shard]) {
            const { query } = (await node.command({ serverStatus: 1 })).metrics;
            found.push(Number(query.updateManyCount), Number(query.deleteManyCount));
            if (node === shard) found.push(Number(query.updateDeleteManyDocumentsTotalCount));
        }
        return found;
    };
    const before = await counts();
    const many = db.collection('many');
    await many.insertMany([{ a: 1 }, { a: 1 }]);
    await many.updateMany({}, { $set: { a: 2 } });
    await many.updateOne({}, { $set: { a: 3 } });
    await many.deleteOne({});
    await many.deleteMany({});
    await many.deleteMany({});
    const grown = (await counts()).map((count, i) => count - before[i]);
    assert.deepEqual(grown.slice(0, 2), [1, 2]);
    const isHere = (await client.db('config').collection('databases').findOne({ _id: db.databaseName })).primary === 'shard0';
    if (isHere) assert.deepEqual(grown.slice(2), [1, 2, 3]);
});

test('OPS-3: serverStatus of a router counts updates by pipelines and with arrayFilters', async () => {
    const counts = async () => {
        const { update, findAndModify } = (await admin.command({ serverStatus: 1 })).metrics.commands;
        return [update.pipeline, update.arrayFilters, findAndModify.pipeline, findAndModify.arrayFilters].map(Number);
    };
    const before = await counts();
    const counted = db.collection('counted');
    await counted.insertOne({ _id: 1, a: [1, 5] });
    const arrayFilters = [{ e: { $gt: 2 } }];
    await counted.updateOne({ _id: 1 }, [{ $set: { b: 1 } }]);
    await counted.updateOne({ _id: 1 }, { $set: { 'a.$[e]': 6 } }, { arrayFilters });
    await counted.findOneAndUpdate({ _id: 1 }, [{ $set: { b: 2 } }]);
    await counted.findOneAndUpdate({ _id: 1 }, { $set: { 'a.$[e]': 7 } }, { arrayFilters });
    assert.deepEqual((await counts()).map((count, i) => count - before[i]), [1, 1, 1, 1]);
});

test('OPS-3: serverStatus of a shard counts moves, what they deleted, and stale requests, by the names of 7.0', async () => {
    const donor = (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('admin');
    const stats = async () => {
        const found = (await donor.command({ serverStatus: 1 })).shardingStatistics;
        return Object.fromEntries(Object.entries(found).map(([name, value]) => [name, Number(value)]));
    };
    await admin.command({ shardCollection: 'test.counts', key: { _id: 1 } });
    const counts = db.collection('counts');
    await counts.insertMany([{ _id: 1 }, { _id: 2 }]);
    const before = await stats();
    for (const name of ['countStaleConfigErrors', 'countDonorMoveChunkLockTimeout', 'countDonorMoveChunkAbortConflictingIndexOperation', 'unfinishedMigrationFromPreviousPrimary'])
        assert.ok(name in before, name);
    await admin.command({ moveRange: 'test.counts', min: { _id: 2 }, toShard: 'shard1' });
    await waitFor(async () => (await stats()).countDocsDeletedByRangeDeleter > before.countDocsDeletedByRangeDeleter);
    const now = await stats();
    assert.equal(now.countDonorMoveChunkStarted, before.countDonorMoveChunkStarted + 1);
    assert.equal(now.countBytesDeletedByRangeDeleter, before.countBytesDeletedByRangeDeleter + 14);
    assert.ok(now.totalDonorMoveChunkTimeMillis > before.totalDonorMoveChunkTimeMillis);
    await counts.drop();
});

test('OPS-3: serverStatus of the config server counts sharded collections', async () => {
    const config = (await cluster.config.direct(cluster.config.members[0])).db('admin');
    const count = async () => Number((await config.command({ serverStatus: 1 })).shardingStatistics.numShardedCollections);
    const before = await count();
    await admin.command({ shardCollection: 'test.oneMore', key: { _id: 1 } });
    assert.equal(await count(), before + 1);
    await db.collection('oneMore').drop();
    assert.equal(await count(), before);
});

test('MET-1: idle cursors of routers are listed, counted, and killed with their session', async () => {
    for (const [name, kind] of [['spread', 'multiTarget'], ['idle', 'singleTarget']]) {
        const coll = db.collection(name);
        if (name === 'idle') await coll.insertMany(Array.from({ length: 10 }, (_, _id) => ({ _id })));
        const open = async () => (await admin.command({ serverStatus: 1 })).metrics.cursor.open;
        const before = await open();
        const session = client.startSession();
        const { cursor } = await db.command({ find: name, batchSize: 2 }, { session });
        await db.command({ getMore: cursor.id, collection: name, batchSize: 3 }, { session });
        const list = (options) =>
            admin.aggregate([{ $currentOp: { localOps: true, ...options } }, { $match: { type: 'idleCursor', 'cursor.cursorId': cursor.id } }]).toArray();
        const [row, ...others] = await list({ idleCursors: true });
        assert.equal(others.length, 0);
        assert.equal(row.ns, `${db.databaseName}.${name}`);
        assert.deepEqual(row.lsid.id.toString('hex'), session.id.id.toString('hex'));
        assert.deepEqual([row.cursor.nDocsReturned, row.cursor.nBatchesReturned].map(Number), [5, 2]);
        assert.equal(row.cursor.originatingCommand.find, name);
        assert.deepEqual(await list({}), []);
        const during = await open();
        assert.deepEqual([Number(during.total) - Number(before.total), Number(during[kind]) - Number(before[kind])], [1, 1]);
        await admin.command({ killSessions: [{ id: session.id.id }] });
        assert.deepEqual(await list({ idleCursors: true }), []);
        await fails(db.command({ getMore: cursor.id, collection: name }, { session }), 43);
        assert.ok(Number((await open()).total) < Number(during.total));
    }
});

test('shardingState tells of a shard which cluster it belongs to', async () => {
    const shard = await cluster.shards[1].direct(cluster.shards[1].members[0]);
    const state = await shard.db('admin').command({ shardingState: 1 });
    const { clusterId } = await client.db('config').collection('version').findOne();
    assert.deepEqual([state.enabled, state.shardName, state.configServer], [true, 'shard1', cluster.config.address]);
    assert.deepEqual(state.clusterId, clusterId);
    const config = await cluster.config.direct(cluster.config.members[0]);
    assert.equal((await config.db('admin').command({ shardingState: 1 })).enabled, false);
});

describe('commands of a mongos that concern no collection', () => {
    test('users, versions and the log are told of, and the log is cleared', async () => {
        assert.deepEqual((await admin.command({ usersInfo: 1 })).users, []);
        assert.equal((await admin.command({ setFeatureCompatibilityVersion: '7.0', confirm: true })).ok, 1);
        await fails(admin.command({ setFeatureCompatibilityVersion: '5.0', confirm: true }), 4926900);
        const { data } = await admin.command({ getDiagnosticData: 1 });
        assert.equal(data.serverStatus.process, 'mongos');
        assert.equal((await admin.command({ clearLog: 'global' })).ok, 1);
        assert.ok((await admin.command({ getLog: 'global' })).totalLinesWritten < 10);
    });

    test('a note goes into the oplogs of all shards', async () => {
        const { raw } = await admin.command({ appendOplogNote: 1, data: { routed: 1 } });
        assert.equal(Object.keys(raw).length, 2);
        for (const shard of cluster.shards) {
            const oplog = (await shard.direct(shard.members[0])).db('local').collection('oplog.rs');
            assert.equal(await oplog.countDocuments({ op: 'n', 'o.routed': 1 }), 1);
        }
        await fails(admin.command({ appendOplogNote: 1 }), 4);
    });

    test('IDX-4: the commit quorum of a build changes on all shards that have the collection', async () => {
        await fails(db.command({ setIndexCommitQuorum: 'spread', indexNames: ['a_1'], commitQuorum: 1 }), 27);
        const primaries = await Promise.all(cluster.shards.map((shard) => shard.direct(shard.members[0])));
        const each = (command) => Promise.all(primaries.map((one) => one.db('admin').command(command)));
        const name = 'hangAfterStartingIndexBuild';
        const set = await each({ configureFailPoint: name, mode: 'alwaysOn' });
        const build = db.collection('spread').createIndex({ a: 1 });
        try {
            for (const [i, one] of primaries.entries())
                await one.db('admin').command({ waitForFailPoint: name, timesEntered: Number(set[i].count) + 1, maxTimeMS: 20_000 });
            const { raw } = await db.command({ setIndexCommitQuorum: 'spread', indexNames: ['a_1'], commitQuorum: 1 });
            assert.deepEqual(Object.values(raw).map(({ ok }) => ok), [1, 1]);
        } finally {
            await each({ configureFailPoint: name, mode: 'off' });
        }
        assert.equal(await build, 'a_1');
    });

    test('NOD-2: shutdown ends the router with code 0', async () => {
        const router = await cluster.addRouter({});
        const other = await router.client();
        await fails(other.db('test').command({ shutdown: 1 }), 13);
        await assert.rejects(other.db('admin').command({ shutdown: 1 }), { name: /Network|ServerError/ });
        assert.deepEqual(await router.waitEnd(), { code: 0, signal: null });
    });

    test('what neither nodes nor routers can do is refused by name, also by the shards', async () => {
        const shard = await cluster.shards[0].direct(cluster.shards[0].members[0]);
        for (const name of ['mapReduce', 'createUser', 'saslStart', 'analyzeShardKey', 'rotateCertificates'])
            for (const one of [client, shard])
                await fails(one.db('admin').command({ [name]: 1 }), 238, { message: new RegExp(`^${name} is not supported: `) });
        await fails(admin.command({ replSetGetStatus: 1 }), 238, { message: /no member of a replica set/ });
        await fails(admin.command({ noSuchCommand: 1 }), 59);
    });
});

test('the database config need not be enabled', async () => {
    assert.equal((await admin.command({ enableSharding: 'config' })).ok, 1);
    await fails(admin.command({ enableSharding: 'local' }), 72);
});

test('a cluster without shards has no operations', async () => {
    const none = await startCluster({ shards: 0 });
    try {
        assert.deepEqual((await none.admin({ currentOp: 1 })).inprog, []);
        const group = [{ $currentOp: {} }, { $group: { _id: null, n: { $sum: 1 } } }];
        assert.deepEqual(await (await none.client()).db('admin').aggregate(group).toArray(), []);
    } finally {
        await none.remove();
    }
});
