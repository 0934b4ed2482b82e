/*
 * Goal: the config server changes the metadata of sharded collections as a whole or not at all, and answers the
 * same when it is asked again.
 * Method: the internal commands, sent to its primary as routers and shards send them; then its collections are
 * compared with what they must be.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Long, MaxKey, MinKey, ObjectId, Timestamp, UUID } from 'mongodb';
import { startCluster, startConfigServer } from '../lib/cluster.mjs';
import { waitFor } from '../lib/server.mjs';

const MIN = new MinKey();
const MAX = new MaxKey();
const ts = (t, i = 1) => new Timestamp({ t, i });
const version = (major, minor) => new Timestamp({ t: major, i: minor });
const text = (v) => `${v.getHighBits()}|${v.getLowBits()}`;

const failsWith = (promise, code) =>
    assert.rejects(promise, (error) => {
        assert.equal(error.code, code, `${error.code}: ${error.message}`);
        return true;
    });

let names = 0;
/* The request for a new collection whose chunks are cut at these values of x, on shards in turn. */
const creation = (points = [], { shards = ['shard0'], key = { x: 1 } } = {}) => {
    const uuid = new UUID();
    const bounds = [MIN, ...points, MAX];
    const since = ts(1000);
    return {
        _configsvrCommitCreateCollection: `db.c${++names}`,
        uuid,
        key,
        unique: false,
        epoch: new ObjectId(),
        timestamp: ts(2000 + names),
        chunks: bounds.slice(1).map((max, i) => ({
            _id: new ObjectId(),
            uuid,
            min: { x: bounds[i] },
            max: { x: max },
            shard: shards[i % shards.length],
            lastmod: version(1, i),
            onCurrentShardSince: since,
            history: [{ validAfter: since, shard: shards[i % shards.length] }],
        })),
    };
};
const split = (coll, min, max, points, more = {}) => ({
    _configsvrCommitChunkSplit: coll.ns,
    shard: 'shard0',
    collEpoch: coll.epoch,
    collTimestamp: coll.timestamp,
    min: { x: min },
    max: { x: max },
    splitPoints: points.map((x) => ({ x })),
    ...more,
});

describe('the catalog of sharded collections', () => {
    let cluster;
    let member;
    let client;
    let config;

    /* As config_run of a router or shard sends it. */
    const run = (command) =>
        client.db('admin').command({ ...command, writeConcern: { w: 'majority' } });
    const sorted = (coll, sort = { _id: 1 }) => config.collection(coll).find().sort(sort).toArray();
    /* All that the commands here may change. */
    const everything = async () => ({
        collections: await sorted('collections'),
        chunks: await sorted('chunks'),
        tags: await sorted('tags'),
        databases: await sorted('databases'),
        shards: await sorted('shards'),
    });
    const refused = async (command, code) => {
        const before_ = await everything();
        await failsWith(run(command), code);
        assert.deepEqual(await everything(), before_);
    };
    /* Asked again after success: the same answer, and nothing has changed. */
    const again = async (command) => {
        const told = ({ operationTime, $clusterTime, lastCommittedOpTime, ...reply }) => reply;
        const first = told(await run(command));
        const after_ = await everything();
        assert.deepEqual(told(await run(command)), first);
        assert.deepEqual(await everything(), after_);
        return first;
    };
    const connect = async () => {
        client = await cluster.config.direct(member);
        config = client.db('config');
    };
    const restart = async () => {
        await waitFor(() => !member.isRunning(), { timeoutMs: 20_000, what: 'the crash' });
        await member.start();
        await cluster.config.waitForPrimary();
        await connect();
    };
    const setFailPoint = (point, data) =>
        cluster.config.command(member, { configureFailPoint: `configChange.${point}`, mode: 'alwaysOn', data });
    /* With the transaction open. */
    const killBeforeCommit = async (at, command) => {
        await setFailPoint('written', { crash: true, at });
        await assert.rejects(run(command));
        await restart();
    };
    /* When the transaction is on disk, and nothing else has happened. */
    const killAfterCommit = async (at, command) => {
        const { count } = await setFailPoint('committed', { blockTimeMS: 60_000, at });
        const failed = assert.rejects(run(command));
        await cluster.config.command(member, {
            waitForFailPoint: 'configChange.committed',
            timesEntered: Number(count) + 1,
            maxTimeMS: 20_000,
        });
        await config.collection('flushed').insertOne({}, { writeConcern: { w: 'majority', j: true } });
        await member.kill();
        await failed;
        await restart();
    };

    const create = async (...args) => {
        const request = creation(...args);
        await run(request);
        return { ns: request._configsvrCommitCreateCollection, ...request };
    };
    const chunksOf = ({ uuid }) => config.collection('chunks').find({ uuid }).sort({ min: 1 }).toArray();
    const entryOf = ({ ns }) => config.collection('collections').findOne({ _id: ns });
    const merge = (coll, min, max, more = {}) => ({
        _configsvrCommitChunksMerge: coll.ns,
        shard: 'shard0',
        collUUID: coll.uuid,
        chunkRange: { min: { x: min }, max: { x: max } },
        ...more,
    });
    const check = async (scope = '') =>
        (await run({ _configsvrCheckMetadataConsistency: scope })).inconsistencies;

    before(async () => {
        cluster = await startCluster();
        [member] = cluster.config.members;
        await connect();
        await cluster.admin({ enableSharding: 'db', primaryShard: 'shard0' });
        await cluster.admin({ balancerStop: 1 }); // the catalog alone: nobody else is to change it
    });
    after(() => cluster?.remove());

    test('DDL-2: an entry and its chunks are made together, once', async () => {
        const request = { ...creation([0, 10], { shards: ['shard0', 'shard1'] }), unique: true, defaultCollation: { locale: 'fr' } };
        const ns = request._configsvrCommitCreateCollection;
        const { collectionVersion } = await again(request);
        assert.deepEqual(collectionVersion.e, request.epoch);
        assert.ok(collectionVersion.t.equals(request.timestamp));
        assert.equal(text(collectionVersion.v), '1|2');
        const { lastmod, ...entry } = await entryOf({ ns });
        assert.ok(lastmod instanceof Date);
        assert.deepEqual(entry, {
            _id: ns,
            lastmodEpoch: request.epoch,
            timestamp: request.timestamp,
            uuid: request.uuid,
            key: { x: 1 },
            defaultCollation: { locale: 'fr' },
            unique: true,
            noBalance: false,
        });
        assert.deepEqual(await chunksOf(request), request.chunks);
        // The same collection, asked for by somebody who has made other chunks of it meanwhile.
        const other = { ...creation(), _configsvrCommitCreateCollection: ns, uuid: request.uuid };
        other.chunks[0].uuid = request.uuid;
        assert.deepEqual((await run(other)).collectionVersion, collectionVersion);
        assert.deepEqual(await chunksOf(request), request.chunks);
        assert.deepEqual(await check(), []);
    });

    test('DDL-2: what is no sharded collection is refused', async () => {
        const known = await create();
        await refused({ ...creation(), _configsvrCommitCreateCollection: known.ns }, 117);
        const sameUuid = creation();
        sameUuid.uuid = sameUuid.chunks[0].uuid = known.uuid;
        await refused(sameUuid, 117);
        const gap = creation([0, 10]);
        gap.chunks.splice(1, 1);
        await refused(gap, 117);
        const overlap = creation([0]);
        overlap.chunks[0].max.x = 5;
        await refused(overlap, 117);
        await refused({ ...creation(), chunks: [] }, 117);
        const otherUuid = creation();
        otherUuid.chunks[0].uuid = new UUID();
        await refused(otherUuid, 2);
        await refused(creation([], { shards: ['nobody'] }), 70);
        await refused(creation([], { key: { y: 1 } }), 61);
        await refused(creation([], { key: { x: -1 } }), 2);
        await refused({ ...creation(), _configsvrCommitCreateCollection: 'nodot' }, 73);
        await refused({ ...creation(), uuid: 1 }, 14);
        await refused({ ...creation(), epoch: 1 }, 14);
        await failsWith(
            (await cluster.shards[0].direct(cluster.shards[0].members[0])).db('admin').command(creation()),
            20,
        );
    });

    test('DDL-2: chunks that an earlier attempt has left do not remain', async () => {
        const request = creation([5]);
        await config.collection('chunks').insertOne({ ...request.chunks[0], _id: new ObjectId() });
        assert.deepEqual(
            (await check()).map(({ type, details }) => [type, details.collectionUUID.toString()]),
            [['ChunksWithoutCollection', request.uuid.toString()]],
        );
        await run(request);
        assert.deepEqual(await chunksOf(request), request.chunks);
        assert.deepEqual(await check(), []);
    });

    test('DDL-2: a drop takes entry, chunks and zones, and those of nobody else', async () => {
        const kept = await create([1]);
        const coll = await create(Array.from({ length: 1500 }, (_, i) => i));
        await run({ _configsvrAddShardToZone: 'shard0', zone: 'A' });
        const range = { min: { x: 0 }, max: { x: 1 }, zone: 'A' };
        for (const { ns } of [kept, coll]) await run({ _configsvrUpdateZoneKeyRange: ns, ...range });
        const drop = { _configsvrCommitDropCollection: coll.ns, uuid: coll.uuid };
        const before_ = await everything();
        await run({ ...drop, uuid: new UUID() }); // of an earlier collection of that name
        assert.deepEqual(await everything(), before_);
        await again(drop);
        assert.equal(await entryOf(coll), null);
        assert.equal((await chunksOf(coll)).length, 0);
        assert.equal((await chunksOf(kept)).length, 2);
        assert.deepEqual((await sorted('tags')).map(({ ns }) => ns), [kept.ns]);
        assert.equal(await config.collection('changelog').countDocuments({ what: 'dropCollection', ns: coll.ns }), 1);
        await refused({ _configsvrCommitDropCollection: kept.ns, uuid: 'x' }, 14);
        await run({ _configsvrCommitDropCollection: kept.ns, uuid: kept.uuid });
    });

    test('MET-1: a drop that goes in several transactions is logged as slow, with the plan of the last', async () => {
        const coll = await create(Array.from({ length: 1500 }, (_, i) => i));
        await client.db('admin').command({ profile: 0, slowms: -1 });
        await run({ _configsvrCommitDropCollection: coll.ns, uuid: coll.uuid });
        await client.db('admin').command({ profile: 0, slowms: 100 });
        const isOfDrop = ({ id, attr }) => id === 51803 && attr.command?._configsvrCommitDropCollection === coll.ns;
        const { attr } = await member.waitLog(isOfDrop);
        assert.match(attr.planSummary, /^(IXSCAN|IDHACK|COLLSCAN)/);
    });

    test('DDL-2: a rename takes chunks and zones along, in a new generation', async () => {
        const source = await create([1, 2]);
        const target = await create([7]);
        await run({ _configsvrAddShardToZone: 'shard0', zone: 'A' });
        await run({ _configsvrUpdateZoneKeyRange: source.ns, min: { x: 0 }, max: { x: 1 }, zone: 'A' });
        await run({ _configsvrUpdateZoneKeyRange: target.ns, min: { x: 5 }, max: { x: 6 }, zone: 'A' });
        const rename = {
            _configsvrCommitRename: source.ns,
            to: target.ns,
            uuid: source.uuid,
            epoch: new ObjectId(),
            timestamp: ts(9000),
        };
        await refused(rename, 117); // the target is not to be replaced
        await refused({ ...rename, targetUUID: new UUID() }, 117);
        await refused({ ...rename, to: 'db.free', uuid: new UUID() }, 117);
        await refused({ ...rename, _configsvrCommitRename: 'db.none', to: 'db.free' }, 118);
        await refused({ ...rename, to: source.ns }, 20);
        const { lastmod: before_, ...old } = await entryOf(source);
        await again({ ...rename, targetUUID: target.uuid });
        assert.equal(await entryOf(source), null);
        const { lastmod, ...entry } = await entryOf(target);
        assert.ok(lastmod >= before_);
        assert.deepEqual(entry, { ...old, _id: target.ns, lastmodEpoch: rename.epoch, timestamp: rename.timestamp });
        assert.deepEqual(await chunksOf(source), source.chunks);
        assert.deepEqual(await chunksOf(target), []);
        assert.deepEqual((await sorted('tags')).map(({ ns, min }) => [ns, min]), [[target.ns, { x: 0 }]]);
        // Late requests about the old names must not harm what has their uuid now.
        await run({ _configsvrCommitDropCollection: source.ns, uuid: source.uuid });
        assert.deepEqual(await chunksOf(source), source.chunks);
        assert.deepEqual(await check(), []);
        await run({ _configsvrCommitDropCollection: target.ns, uuid: source.uuid });
    });

    test('DDL-2: a database is dropped by its version', async () => {
        const { databaseVersion } = await run({ _configsvrCreateDatabase: 'dropped' });
        const drop = { _configsvrCommitDropDatabase: 'dropped', version: databaseVersion };
        await refused({ ...drop, version: { ...databaseVersion, lastMod: 2 } }, 249);
        await refused({ ...drop, version: 1 }, 14);
        await again(drop);
        assert.equal(await config.collection('databases').countDocuments({ _id: 'dropped' }), 0);
        const created = await run({ _configsvrCreateDatabase: 'dropped' });
        await run(drop); // a late one
        assert.equal(await config.collection('databases').countDocuments({ _id: 'dropped' }), 1);
        await run({ ...drop, version: created.databaseVersion });
        assert.equal(await config.collection('changelog').countDocuments({ what: 'dropDatabase' }), 2);
    });

    test('BAL-2: pieces of a split have the next minor versions', async () => {
        const coll = await create([0], { shards: ['shard0', 'shard1'] });
        await config.collection('chunks').updateOne(
            { uuid: coll.uuid, 'min.x': MIN },
            { $set: { jumbo: true, estimatedDataSizeBytes: 5 } },
        );
        const { shardVersion, collectionVersion } = await again(split(coll, MIN, 0, [-10]));
        assert.deepEqual(shardVersion, collectionVersion);
        assert.equal(text(collectionVersion.v), '1|3');
        assert.deepEqual(collectionVersion.e, coll.epoch);
        const [left, right, other] = await chunksOf(coll);
        const [first, second] = coll.chunks;
        const piece = { ...first, max: { x: -10 }, lastmod: version(1, 2) };
        assert.deepEqual(left, piece);
        assert.notDeepEqual(right._id, first._id);
        assert.deepEqual(right, { ...first, _id: right._id, min: { x: -10 }, lastmod: version(1, 3) });
        assert.deepEqual(other, second);
        const many = await again(split(coll, -10, 0, [-9, -5, -1]));
        assert.equal(text(many.collectionVersion.v), '1|7');
        const ofOther = await again(split(coll, 0, MAX, [4], { shard: 'shard1' }));
        assert.equal(text(ofOther.shardVersion.v), '1|9');
        // The other shard's own version, while the collection's is newer.
        const told = await run(split(coll, -10, 0, [-9, -5, -1]));
        assert.equal(text(told.shardVersion.v), '1|7');
        assert.equal(text(told.collectionVersion.v), '1|9');
        const log = await config.collection('changelog').find({ ns: coll.ns }).sort({ time: 1 }).toArray();
        assert.deepEqual(log.map(({ what }) => what), ['split', 'multi-split', 'split']);
        assert.deepEqual(log[0].details.left, { min: { x: MIN }, max: { x: -10 } });
    });

    test('BAL-2: what cannot be split is refused', async () => {
        const coll = await create([0, 10]);
        await refused(split(coll, 0, 10, [5], { collEpoch: new ObjectId() }), 150);
        await refused(split(coll, 0, 10, [5], { collTimestamp: ts(1) }), 150);
        await refused(split(coll, 0, 10, [5], { shard: 'shard1' }), 2);
        await refused(split(coll, 0, 9, [5]), 2);
        await refused(split(coll, 1, 10, [5]), 2);
        await refused(split(coll, 0, MAX, [5]), 2);
        await refused(split(coll, 0, 10, []), 72);
        await refused(split(coll, 0, 10, [10]), 72);
        await refused(split(coll, 0, 10, [0]), 72);
        await refused(split(coll, 0, 10, [6, 5]), 72);
        await refused(split(coll, 0, 10, [11]), 72);
        await refused({ ...split(coll, 0, 10, [5]), splitPoints: [{ y: 5 }] }, 61);
        await refused({ ...split(coll, 0, 10, [5]), min: { y: 5 } }, 61);
        await refused(split({ ...coll, ns: 'db.none' }, 0, 10, [5]), 118);
        const points = Array.from({ length: 8193 }, (_, i) => i / 1000);
        await refused(split(coll, 0, 10, points), 72);
    });

    test('BAL-2: neighbours of one shard become one chunk', async () => {
        const coll = await create([0, 10, 20, 30]);
        await config.collection('chunks').updateOne({ uuid: coll.uuid, 'min.x': 30 }, {
            $set: { shard: 'shard1', 'history.0.shard': 'shard1' },
        });
        await config.collection('chunks').updateOne({ uuid: coll.uuid, 'min.x': 10 }, {
            $set: {
                onCurrentShardSince: ts(1500),
                history: [{ validAfter: ts(1500), shard: 'shard0' }, { validAfter: ts(10), shard: 'shard1' }],
            },
        });
        const { shardVersion, collectionVersion } = await again(
            merge(coll, 0, 20, { epoch: coll.epoch, timestamp: coll.timestamp }),
        );
        assert.deepEqual(shardVersion, collectionVersion);
        assert.equal(text(collectionVersion.v), '1|5');
        const chunks = await chunksOf(coll);
        assert.equal(chunks.length, 4);
        assert.deepEqual(chunks[1], {
            ...coll.chunks[1],
            max: { x: 20 },
            lastmod: version(1, 5),
            onCurrentShardSince: ts(1500),
            history: [{ validAfter: ts(1500), shard: 'shard0' }],
        });
        await refused(merge(coll, 0, 40), 20);
        await refused(merge(coll, 20, MAX), 20); // two shards
        await refused(merge(coll, MIN, 10), 20); // ends in the middle of one
        await refused(merge(coll, 0, 20, { shard: 'shard1' }), 20);
        await refused(merge(coll, MIN, 20, { collUUID: new UUID() }), 207);
        await refused(merge(coll, MIN, 20, { epoch: new ObjectId() }), 150);
        await refused(merge(coll, MIN, 20, { timestamp: ts(1) }), 150);
        await refused(merge({ ...coll, ns: 'db.none' }, MIN, 20), 118);
        await refused({ ...merge(coll, MIN, 20), chunkRange: { min: { x: 1 } } }, 40414);
        await again(merge(coll, MIN, 30));
        assert.equal((await chunksOf(coll)).length, 2);
        const log = await config.collection('changelog').find({ ns: coll.ns, what: 'merge' }).toArray();
        assert.equal(log.length, 2);
        assert.deepEqual(await check(coll.ns), []);
    });

    test('BAL-2: twenty splits at once have versions of their own, without holes', async () => {
        const points = Array.from({ length: 19 }, (_, i) => (i + 1) * 10);
        const colls = [await create(points), await create(points)];
        const clients = await Promise.all(Array.from({ length: 4 }, () => cluster.config.direct(member)));
        const bounds = [0, ...points, 200];
        const replies = await Promise.all(
            bounds.slice(0, 20).flatMap((low, i) =>
                colls.map((coll, c) => {
                    const min = i === 0 ? MIN : low;
                    const max = i === 19 ? MAX : bounds[i + 1];
                    return clients[(i + c) % 4].db('admin').command(split(coll, min, max, [low + 5]));
                }),
            ),
        );
        assert.equal(new Set(replies.map(({ collectionVersion: { e, v } }) => `${e} ${text(v)}`)).size, 40);
        for (const coll of colls) {
            const chunks = await chunksOf(coll);
            assert.equal(chunks.length, 40);
            assert.deepEqual(
                chunks.map(({ lastmod }) => lastmod.getLowBits()).sort((a, b) => a - b),
                Array.from({ length: 40 }, (_, i) => i + 20),
            );
            assert.deepEqual(await check(coll.ns), []);
        }
    });

    test('DDL-2: a collection that many ask for is made once', async () => {
        const request = creation([0, 1]);
        const clients = await Promise.all(Array.from({ length: 4 }, () => cluster.config.direct(member)));
        const replies = await Promise.all(
            Array.from({ length: 12 }, (_, i) => clients[i % 4].db('admin').command(request)),
        );
        for (const { collectionVersion } of replies) assert.equal(text(collectionVersion.v), '1|2');
        assert.deepEqual(await chunksOf(request), request.chunks);
        const others = Array.from({ length: 8 }, () => ({
            ...creation([5]),
            _configsvrCommitCreateCollection: 'db.raced',
        }));
        const ends = await Promise.allSettled(
            others.map((other, i) => clients[i % 4].db('admin').command(other)),
        );
        assert.equal(ends.filter(({ status }) => status === 'fulfilled').length, 1);
        for (const { reason } of ends) assert.ok(reason === undefined || reason.code === 117, reason?.message);
        assert.deepEqual(await check(), []);
    });

    test('DDL-2: whether chunks may move is noticed by a new minor version', async () => {
        const coll = await create([0]);
        const set = { _configsvrSetAllowMigrations: coll.ns, collectionUUID: coll.uuid, allowMigrations: false };
        const newest = async () => text((await chunksOf(coll)).map(({ lastmod }) => lastmod).sort((a, b) => a.compare(b)).at(-1));
        await refused({ ...set, collectionUUID: new UUID() }, 207);
        await refused({ ...set, _configsvrSetAllowMigrations: 'db.none' }, 118);
        await again(set);
        const entry = await entryOf(coll);
        assert.equal(entry.allowMigrations, false);
        assert.ok(!('permitMigrations' in entry), 'which is for users to say');
        assert.equal(await newest(), '1|2');
        await again({ _configsvrSetAllowMigrations: coll.ns, allowMigrations: true });
        assert.ok(!('allowMigrations' in (await entryOf(coll))));
        assert.ok(!('permitMigrations' in (await entryOf(coll))));
        assert.equal(await newest(), '1|3');
        assert.equal((await chunksOf(coll)).length, 2);
    });

    test('BAL-3: zones have shards and ranges', async () => {
        const admin = cluster.admin.bind(cluster);
        const coll = await create([], { key: { x: 1 } });
        await failsWith(admin({ addShardToZone: 'nobody', zone: 'Z' }), 70);
        await failsWith(admin({ removeShardFromZone: 'nobody', zone: 'Z' }), 70);
        await refused({ _configsvrAddShardToZone: 'shard0', zone: '' }, 2);
        await refused({ _configsvrAddShardToZone: 'shard0', zone: 1 }, 14);
        const zonesOf = async (_id) => (await config.collection('shards').findOne({ _id })).tags;
        await admin({ addShardToZone: 'shard0', zone: 'Z' });
        await admin({ addShardToZone: 'shard0', zone: 'Z' });
        await again({ _configsvrAddShardToZone: 'shard0', zone: 'Y' });
        const zones = (await zonesOf('shard0')).filter((zone) => zone !== 'A');
        assert.deepEqual(zones, ['Z', 'Y']);

        const range = { updateZoneKeyRange: coll.ns, min: { x: 0 }, max: { x: 10 }, zone: 'Z' };
        await failsWith(admin({ ...range, zone: 'none' }), 177);
        await failsWith(admin({ ...range, zone: '' }), 177);
        await failsWith(admin({ ...range, max: { x: 0 } }), 9);
        await failsWith(admin({ ...range, min: { y: 0 }, max: { y: 1 } }), 61);
        await failsWith(admin({ ...range, min: { x: 0, y: 1 }, max: { x: 1, y: 1 } }), 61);
        await failsWith(admin({ ...range, min: {}, max: {} }), 61);
        await failsWith(admin({ ...range, updateZoneKeyRange: 'nodot' }), 73);
        await failsWith(admin({ ...range, zone: 1 }), 14);
        await admin(range);
        await admin(range);
        const tags = config.collection('tags');
        const [tag, ...more] = await tags.find({ ns: coll.ns }).toArray();
        assert.deepEqual(more, []);
        assert.equal(tag._id._bsontype, 'ObjectId');
        delete tag._id;
        assert.deepEqual(tag, { ns: coll.ns, tag: 'Z', min: { x: 0 }, max: { x: 10 } });
        await failsWith(admin({ ...range, zone: 'Y' }), 178);
        for (const [min, max] of [[5, 15], [-5, 1], [2, 3], [MIN, MAX]])
            await failsWith(admin({ ...range, min: { x: min }, max: { x: max } }), 178);
        await admin({ ...range, min: { x: 10 }, max: { x: MAX } });
        await admin({ ...range, min: { x: MIN }, max: { x: 0 }, zone: 'Y' });
        assert.equal(await tags.countDocuments({ ns: coll.ns }), 3);
        assert.deepEqual(await check(coll.ns), []);

        await failsWith(admin({ removeShardFromZone: 'shard0', zone: 'Z' }), 163);
        await admin({ removeShardFromZone: 'shard1', zone: 'Z' }); // it is not there
        await admin({ addShardToZone: 'shard1', zone: 'Z' });
        await admin({ removeShardFromZone: 'shard0', zone: 'Z' });
        await admin({ removeShardFromZone: 'shard0', zone: 'Z' });
        assert.deepEqual(await zonesOf('shard1'), ['Z']);
        await admin({ ...range, zone: null });
        await admin({ ...range, zone: null });
        await admin({ ...range, min: { x: 2 }, max: { x: 3 }, zone: null }); // nobody's
        assert.equal(await tags.countDocuments({ ns: coll.ns }), 2);
        await run({ _configsvrCommitDropCollection: coll.ns, uuid: coll.uuid });
        await admin({ removeShardFromZone: 'shard1', zone: 'Z' });
        await admin({ removeShardFromZone: 'shard0', zone: 'Y' });
    });

    test('BAL-3: bounds of a zone are prefixes of the shard key', async () => {
        const request = creation([], { key: { x: 1, y: 'hashed' } });
        Object.assign(request.chunks[0], { min: { x: MIN, y: MIN }, max: { x: MAX, y: MAX } });
        await run(request);
        const ns = request._configsvrCommitCreateCollection;
        await run({ _configsvrAddShardToZone: 'shard0', zone: 'P' });
        await again({ _configsvrUpdateZoneKeyRange: ns, min: { x: 0 }, max: { x: 5 }, zone: 'P' });
        await refused({ _configsvrUpdateZoneKeyRange: ns, min: { y: Long.ZERO }, max: { y: Long.ONE }, zone: 'P' }, 61);
        await refused({ _configsvrUpdateZoneKeyRange: ns, min: { x: 7, y: 'a' }, max: { x: 8, y: 'b' }, zone: 'P' }, 72);
        const [tag] = await config.collection('tags').find({ ns }).toArray();
        assert.deepEqual([tag.min, tag.max], [{ x: 0, y: MIN }, { x: 5, y: MIN }]);
        await again({ _configsvrUpdateZoneKeyRange: ns, min: { x: 0 }, max: { x: 5 }, zone: null });
        // A collection that is not sharded: as they are given.
        await again({ _configsvrUpdateZoneKeyRange: 'db.later', min: { a: 0 }, max: { a: 5 }, zone: 'P' });
        await refused({ _configsvrUpdateZoneKeyRange: 'db.later', min: { a: 0 }, max: { b: 5 }, zone: 'P' }, 61);
        await again({ _configsvrUpdateZoneKeyRange: 'db.later', min: { a: 0 }, max: { a: 5 }, zone: null });
        assert.equal(await config.collection('tags').countDocuments(), 0);
        await run({ _configsvrRemoveShardFromZone: 'shard0', zone: 'P' });
    });

    test('DDL-3: inconsistencies are found', async () => {
        const types = async (scope) => (await check(scope)).map(({ type }) => type);
        const broken = async (points, change, expected) => {
            const coll = await create(points);
            await change(coll, config.collection('chunks'));
            const found = await check(coll.ns);
            assert.deepEqual(found.map(({ type }) => type), expected);
            for (const { details, description } of found) {
                assert.equal(details.namespace, coll.ns);
                assert.deepEqual(details.collectionUUID, coll.uuid);
                assert.ok(description.length > 0);
            }
            assert.deepEqual(await types('db'), expected);
            assert.deepEqual((await types('')).filter((type) => type !== 'ChunksWithoutCollection'), expected);
            assert.deepEqual(await types('d'), []);
            await config.collection('tags').deleteMany({ ns: coll.ns });
            await config.collection('chunks').deleteMany({ uuid: coll.uuid });
            await config.collection('collections').deleteOne({ _id: coll.ns });
            return found;
        };
        await broken([0], ({ uuid }, chunks) => chunks.deleteMany({ uuid }), ['MissingRoutingTable']);
        const [gap] = await broken([0, 1], ({ uuid }, chunks) => chunks.deleteOne({ uuid, 'min.x': 0 }), ['RoutingTableRangeGap']);
        assert.deepEqual(gap.details.chunkA.max, { x: 0 });
        assert.deepEqual(gap.details.chunkB.min, { x: 1 });
        await broken([0, 5], ({ uuid }, chunks) => chunks.updateOne({ uuid, 'min.x': 0 }, { $set: { 'max.x': 7 } }), ['RoutingTableRangeOverlap']);
        const [low] = await broken([0], ({ uuid }, chunks) => chunks.deleteOne({ uuid, 'min.x': MIN }), ['RoutingTableMissingMinKey']);
        assert.deepEqual(low.details.minKeyObj, { x: 0 });
        assert.deepEqual(low.details.globalMin, { x: MIN });
        await broken([0], ({ uuid }, chunks) => chunks.deleteOne({ uuid, 'min.x': 0 }), ['RoutingTableMissingMaxKey']);
        await broken([0, 5], ({ uuid }, chunks) => chunks.updateOne({ uuid, 'min.x': 0 }, { $set: { min: { y: 0 } } }), ['RoutingTableRangeGap', 'CorruptedChunkShardKey']);
        await broken([], ({ uuid }, chunks) => chunks.updateOne({ uuid }, { $unset: { shard: 1 } }), ['CorruptedChunk']);
        await broken([], ({ ns }) =>
            config.collection('tags').insertMany([
                { ns, tag: 'a', min: { x: 0 }, max: { x: 10 } },
                { ns, tag: 'b', min: { x: 5 }, max: { x: 20 } },
            ]), ['ZonesRangeOverlap']);
        await broken([], ({ ns }) => config.collection('tags').insertOne({ ns, tag: 'a', min: { y: 0 }, max: { y: 10 } }), ['CorruptedZoneShardKey']);
        await config.collection('collections').insertOne({ _id: 'db.corrupted', uuid: 1 });
        assert.deepEqual(await types('db.corrupted'), ['CorruptedCollectionEntry']);
        await config.collection('collections').deleteOne({ _id: 'db.corrupted' });
        assert.deepEqual(await check(), []);
    });

    describe('a kill -9 of the config server', () => {
        test('DDL-2: before the commit of a creation nothing is there, after it everything', async () => {
            const request = creation([0, 1]);
            const before_ = await everything();
            await killBeforeCommit('create', request);
            assert.deepEqual(await everything(), before_);
            await killAfterCommit('create', request);
            assert.deepEqual(await chunksOf(request), request.chunks);
            const { collectionVersion } = await again(request);
            assert.equal(text(collectionVersion.v), '1|2');
        });

        test('DDL-2: a drop is finished by the next request', async () => {
            const coll = await create(Array.from({ length: 1200 }, (_, i) => i));
            const drop = { _configsvrCommitDropCollection: coll.ns, uuid: coll.uuid };
            const before_ = await everything();
            await killBeforeCommit('drop', drop);
            assert.deepEqual(await everything(), before_);
            await killAfterCommit('drop', drop);
            assert.equal(await entryOf(coll), null);
            assert.equal((await chunksOf(coll)).length, 1201);
            await killAfterCommit('removeChunks', drop);
            assert.equal((await chunksOf(coll)).length, 201);
            await again(drop);
            assert.equal((await chunksOf(coll)).length, 0);
        });

        test('DDL-2: a rename is done or not, and finished by the next request', async () => {
            const [source, target] = [await create([1]), await create([2])];
            const rename = {
                _configsvrCommitRename: source.ns,
                to: target.ns,
                uuid: source.uuid,
                targetUUID: target.uuid,
                epoch: new ObjectId(),
                timestamp: ts(9500),
            };
            const before_ = await everything();
            await killBeforeCommit('rename', rename);
            assert.deepEqual(await everything(), before_);
            await killAfterCommit('rename', rename);
            assert.deepEqual((await entryOf(target)).uuid, source.uuid);
            assert.equal((await chunksOf(target)).length, 2);
            await again(rename);
            assert.equal((await chunksOf(target)).length, 0);
            assert.deepEqual(await check(), []);
        });

        test('BAL-2: a split is done or not', async () => {
            const coll = await create();
            const before_ = await everything();
            await killBeforeCommit('split', split(coll, MIN, MAX, [0]));
            assert.deepEqual(await everything(), before_);
            await killAfterCommit('split', split(coll, MIN, MAX, [0]));
            const { shardVersion } = await again(split(coll, MIN, MAX, [0]));
            assert.equal(text(shardVersion.v), '1|2');
            assert.equal((await chunksOf(coll)).length, 2);
        });

        test('BAL-2: a merge is done or not', async () => {
            const coll = await create([0, 1]);
            const before_ = await everything();
            await killBeforeCommit('merge', merge(coll, MIN, MAX));
            assert.deepEqual(await everything(), before_);
            await killAfterCommit('merge', merge(coll, MIN, MAX));
            const { shardVersion } = await again(merge(coll, MIN, MAX));
            assert.equal(text(shardVersion.v), '1|3');
            assert.equal((await chunksOf(coll)).length, 1);
        });

        test('DDL-2: that chunks may not move is in the entry and in a version, or in neither', async () => {
            const coll = await create();
            const set = { _configsvrSetAllowMigrations: coll.ns, allowMigrations: false };
            const before_ = await everything();
            await killBeforeCommit('allowMigrations', set);
            assert.deepEqual(await everything(), before_);
            await killAfterCommit('allowMigrations', set);
            await again(set);
            assert.equal((await entryOf(coll)).allowMigrations, false);
            assert.equal(text((await chunksOf(coll))[0].lastmod), '1|1');
        });
    });

    test('BAL-3: a shard is removed once it has nothing left', async () => {
        const admin = cluster.admin.bind(cluster);
        for (const coll of await sorted('collections'))
            await run({ _configsvrCommitDropCollection: coll._id, uuid: coll.uuid });
        const coll = await create([0, 5], { shards: ['shard0', 'shard1'] });
        await config.collection('chunks').updateOne({ uuid: coll.uuid, shard: 'shard1' }, { $set: { jumbo: true } });
        const { databaseVersion } = await run({ _configsvrCreateDatabase: 'on1', primaryShard: 'shard1' });

        await failsWith(admin({ removeShard: 'nobody' }), 70);
        await run({ _configsvrAddShardToZone: 'shard1', zone: 'only' });
        await run({ _configsvrUpdateZoneKeyRange: coll.ns, min: { x: 0 }, max: { x: 1 }, zone: 'only' });
        await refused({ _configsvrRemoveShard: 'shard1' }, 163);
        await run({ _configsvrUpdateZoneKeyRange: coll.ns, min: { x: 0 }, max: { x: 1 }, zone: null });

        const { state, shard, dbsToMove, msg } = await admin({ removeShard: 'shard1' });
        assert.deepEqual({ state, shard, dbsToMove }, { state: 'started', shard: 'shard1', dbsToMove: ['on1'] });
        assert.equal(msg, 'draining started successfully');
        const shards = config.collection('shards');
        assert.equal((await shards.findOne({ _id: 'shard1' })).draining, true);
        await refused({ _configsvrRemoveShard: 'shard0' }, 20); // the last that is not draining
        const ongoing = await again({ _configsvrRemoveShard: 'shard1' });
        assert.equal(ongoing.state, 'ongoing');
        assert.deepEqual(ongoing.remaining, { chunks: 1, dbs: 1, jumboChunks: 1 });
        assert.deepEqual(ongoing.dbsToMove, ['on1']);

        await run({ _configsvrCommitDropDatabase: 'on1', version: databaseVersion });
        assert.deepEqual((await admin({ removeShard: 'shard1' })).remaining, { chunks: 1, dbs: 0, jumboChunks: 1 });
        await run({ _configsvrCommitDropCollection: coll.ns, uuid: coll.uuid });
        const { topologyTime } = await shards.findOne({ _id: 'shard0' });
        const before_ = await everything();
        await killBeforeCommit('removeShard', { _configsvrRemoveShard: 'shard1' });
        assert.deepEqual(await everything(), before_);
        const done = await admin({ removeShard: 'shard1' });
        assert.deepEqual([done.state, done.shard], ['completed', 'shard1']);
        const [left, ...others] = await sorted('shards');
        assert.deepEqual(others, []);
        assert.ok(left.topologyTime.greaterThan(topologyTime));
        await failsWith(admin({ removeShard: 'shard1' }), 70);
        await failsWith(admin({ removeShard: 'shard0' }), 20);
        const log = await config.collection('changelog').find({ what: /^removeShard/ }).sort({ time: 1 }).toArray();
        assert.deepEqual(log.map(({ what }) => what), ['removeShard.start', 'removeShard']);
        await failsWith(run({ _configsvrCreateDatabase: 'on1', primaryShard: 'shard1' }), 70);
        const { map, hosts } = await admin({ getShardMap: 1 });
        assert.deepEqual(Object.keys(map).sort(), ['config', 'shard0']);
        assert.deepEqual(Object.values(hosts).sort(), ['config', 'shard0']);
        // It may come back.
        assert.equal((await admin({ addShard: cluster.shards[1].address })).shardAdded, 'shard1');
    });
});

describe('a config server of three members', () => {
    let set;
    before(async () => {
        set = await startConfigServer({ members: 3 });
    });
    after(() => set?.remove());

    test('BAL-2: splits that are asked for again, over fail-overs, are made once each', async () => {
        const client = await set.client({ retryWrites: false });
        const config = client.db('config');
        /* Like a shard that goes on until it has an answer. */
        const insist = (command) =>
            waitFor(
                async () => {
                    try {
                        return await client.db('admin').command({ ...command, writeConcern: { w: 'majority' } });
                    } catch (error) {
                        // Nobody may be primary for a while; but a split must not be refused because it was made already.
                        assert.ok(![2, 11000, 117, 150].includes(error.code), `${error.code}: ${error.message}`);
                        return false;
                    }
                },
                { timeoutMs: 40_000, what: 'an answer' },
            );
        await config.collection('shards').insertOne({ _id: 'shard0', host: 'shard0/127.0.0.1:1', state: 1 });
        const version = { uuid: new UUID(), timestamp: ts(1), lastMod: 1 };
        await config.collection('databases').insertOne({ _id: 'db', primary: 'shard0', version });
        const colls = [creation(), creation()].map((request) => ({
            ns: request._configsvrCommitCreateCollection,
            ...request,
        }));
        let isOver = false;
        let splits = 0;
        const work = async ({ ns, ...request }) => {
            await insist(request);
            let last = 0;
            for (let min = MIN; !isOver; min = last++, splits++)
                await insist(split({ ns, ...request }, min, MAX, [last]));
            return last;
        };
        const working = Promise.all(colls.map(work));
        for (let round = 0; round < 2; round++) {
            const reached = splits + 20;
            await waitFor(() => splits >= reached, { timeoutMs: 40_000, what: 'some splits' });
            const primary = await set.waitForPrimary();
            await primary.kill();
            await set.waitForPrimary();
            await primary.start();
        }
        const reached = splits + 20;
        await waitFor(() => splits >= reached, { timeoutMs: 40_000, what: 'some splits more' });
        isOver = true;
        const counts = await working;
        for (const [i, { uuid }] of colls.entries()) {
            const chunks = await config.collection('chunks').find({ uuid }).sort({ min: 1 }).toArray();
            assert.deepEqual(
                chunks.map(({ max }) => max.x),
                [...Array.from({ length: counts[i] }, (_, x) => x), MAX],
            );
            // Each split has made two versions, of which the next split has replaced the second.
            const minors = chunks.map(({ lastmod }) => lastmod.getLowBits());
            assert.deepEqual(minors.slice(0, -1), Array.from({ length: counts[i] }, (_, x) => 2 * x + 1));
            assert.equal(minors.at(-1), 2 * counts[i]);
        }
        assert.deepEqual((await insist({ _configsvrCheckMetadataConsistency: '' })).inconsistencies, []);
    });
});
