/* What a single node tells of itself, and commands that only a single node has. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { Binary } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer({ setParameter: { enableTestCommands: 1 } });
const onTest = (command) => node.db.command(command);
const statsOf = async (name, $collStats) => (await node.db.collection(name).aggregate([{ $collStats }]).toArray())[0];

/* What `run` adds to the counts of operations of a collection; the question itself is a read. */
async function counted(name, run) {
    const ops = async () => {
        const { latencyStats } = await statsOf(name, { latencyStats: {} });
        return ['reads', 'writes', 'commands'].map((kind) => latencyStats[kind].ops);
    };
    const before = await ops();
    await run();
    return (await ops()).map((count, i) => count - before[i] - (i === 0 ? 1 : 0));
}

test('MET-1: $collStats counts reads, writes and commands of a collection, also of a view', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    const name = c.collectionName;
    const CASES = [
        [() => c.insertOne({ a: 2 }), [0, 1, 0]],
        [() => c.find({}, { batchSize: 1 }).toArray(), [3, 0, 0]],
        [() => c.findOneAndUpdate({ a: 1 }, { $set: { b: 1 } }), [0, 1, 0]],
        [() => c.createIndex({ a: 1 }), [0, 0, 1]],
        [() => c.find().explain(), [0, 0, 1]],
        [() => onTest({ dataSize: `test.${name}` }), [0, 0, 1]],
        [() => onTest({ ping: name }), [0, 0, 0]],
    ];
    for (const [run, expected] of CASES) assert.deepEqual(await counted(name, run), expected, `${run}`);
    const view = node.newName('v');
    await onTest({ create: view, viewOn: name, pipeline: [] });
    assert.deepEqual(await counted(view, () => node.db.collection(view).find().toArray()), [1, 0, 0]);
    assert.equal((await statsOf(view, { latencyStats: {} })).ns, `test.${view}`);
    for (const option of ['storageStats', 'count', 'queryExecStats']) await fails(statsOf(view, { [option]: {} }), 166);
    const { latencyStats } = await statsOf(name, { latencyStats: { histograms: true } });
    const inBuckets = latencyStats.writes.histogram.reduce((sum, { count }) => sum + Number(count), 0);
    assert.equal(inBuckets, Number(latencyStats.writes.ops));
    const { opLatencies } = await node.admin.command({ serverStatus: 1, opLatencies: { histograms: true } });
    assert.ok(opLatencies.reads.histogram.length > 0 && 'ops' in opLatencies.transactions);
});

test('MET-1: scans of a collection are counted, those that tail apart', async () => {
    const c = await node.collection([{ a: 1 }], { capped: true, size: 4096 });
    await c.find({ a: 1 }).toArray();
    await onTest({ find: c.collectionName, filter: { a: 1 }, tailable: true });
    await c.find({ _id: 1 }).toArray();
    const { queryExecStats } = await statsOf(c.collectionName, { queryExecStats: {} });
    assert.deepEqual(queryExecStats.collectionScans, { total: 2, nonTailable: 1 });
});

test('collStats has the statistics of WiredTiger, with numericOnly without its texts', async () => {
    const c = await node.collection([{ a: 1 }]);
    const { wiredTiger } = await onTest({ collStats: c.collectionName });
    assert.equal(wiredTiger.type, 'file');
    assert.equal(typeof wiredTiger.cache['bytes currently in the cache'], 'number');
    const numeric = await onTest({ collStats: c.collectionName, numericOnly: true });
    assert.ok(!('creationString' in numeric.wiredTiger) && 'cache' in numeric.indexDetails._id_);
});

test('IDX-1: reIndex makes all indexes anew, with what they enforce and that they are multikey', async () => {
    const c = await node.collection(Array.from({ length: 500 }, (_, _id) => ({ _id, a: [_id, -_id - 1], b: _id })));
    await c.createIndex({ a: 1 });
    await c.createIndex({ b: 1 }, { unique: true });
    const reply = await onTest({ reIndex: c.collectionName });
    assert.deepEqual([reply.nIndexesWas, reply.nIndexes], [3, 3]);
    assert.deepEqual(reply.indexes.map(({ name }) => name), ['_id_', 'a_1', 'b_1']);
    assert.equal((await c.find({ a: -7 }).hint('a_1').toArray())[0]._id, 6);
    assert.deepEqual(await c.findOne({ _id: 499 }, { projection: { b: 1 } }), { _id: 499, b: 499 });
    await fails(c.insertOne({ b: 3 }), 11000);
    const { valid, keysPerIndex } = await onTest({ validate: c.collectionName });
    assert.deepEqual([valid, keysPerIndex], [true, { _id_: 500, a_1: 1000, b_1: 500 }]);
    await fails(onTest({ reIndex: 'missing' }), 26);
});

test('compact and emptycapped free what a collection holds', async () => {
    const c = await node.collection(Array.from({ length: 200 }, (_, _id) => ({ _id, s: 'x'.repeat(10000) })));
    await onTest({ emptycapped: c.collectionName });
    assert.equal(await c.countDocuments(), 0);
    assert.ok((await onTest({ compact: c.collectionName })).bytesFreed >= 0);
    await fails(onTest({ compact: 'missing' }), 26);
});

test('filemd5 digests the chunks of a file in their order, and goes on where it stopped', async () => {
    const chunks = node.db.collection('fs.chunks');
    const parts = ['chunk of ', 'a file', '!'];
    const digest = createHash('md5').update(parts.join('')).digest('hex');
    await chunks.insertMany(parts.map((text, n) => ({ files_id: 1, n, data: new Binary(Buffer.from(text)) })).reverse());
    await fails(onTest({ filemd5: 1 }), 291);
    await chunks.createIndex({ files_id: 1, n: 1 });
    assert.deepEqual(await onTest({ filemd5: 1, root: 'fs' }), { numChunks: 3, md5: digest, ok: 1 });
    await chunks.deleteOne({ n: 1 });
    await fails(onTest({ filemd5: 1 }), 10040);
    const { md5state, numChunks } = await onTest({ filemd5: 1, partialOk: true });
    assert.equal(numChunks, 1);
    await chunks.insertOne({ files_id: 1, n: 1, data: new Binary(Buffer.from(parts[1])) });
    const rest = await onTest({ filemd5: 1, partialOk: true, startAt: 1, md5state });
    assert.equal(rest.md5, digest);
});

test('getDiagnosticData has the statistics of several commands', async () => {
    const { data } = await node.admin.command({ getDiagnosticData: 1 });
    assert.deepEqual(Object.keys(data), ['start', 'serverStatus', 'connPoolStats', 'end']);
    assert.ok(data.serverStatus.metrics.document.inserted > 0);
});

test('SES-1: $listSessions tells whose sessions are stored', async () => {
    const { id } = await node.admin.command({ startSession: 1 });
    await node.admin.command({ refreshLogicalSessionCacheNow: 1 });
    const sessions = node.client.db('config').collection('system.sessions');
    const countOf = async (wish) => {
        const rows = await sessions.aggregate([{ $listSessions: wish }]).toArray();
        return rows.filter((row) => row._id.id.equals(id.id)).length;
    };
    const nobody = { user: '', db: '' };
    assert.deepEqual(
        [await countOf({}), await countOf({ allUsers: true }), await countOf({ users: [nobody] })],
        [1, 1, 1],
    );
    assert.equal(await countOf({ users: [{ user: 'u', db: 'admin' }] }), 0);
    await fails(node.db.collection('c').aggregate([{ $listSessions: {} }]).toArray(), 73);
    await fails(sessions.aggregate([{ $match: {} }, { $listSessions: {} }]).toArray(), 40602);
});

test('the Stable API: fields, stages and commands that are not part of it are refused when strict', async () => {
    const c = await node.collection([{ a: 1 }]);
    const coll = c.collectionName;
    const strict = { apiVersion: '1', apiStrict: true };
    const REFUSED = [
        { find: coll, tailable: false },
        { find: coll, min: { a: 1 } },
        { aggregate: coll, pipeline: [], cursor: {}, isMapReduceCommand: false },
        { listCollections: 1, includePendingDrops: false },
        { createIndexes: coll, indexes: [{ key: { a: 'text' }, name: 'a' }] },
        { collMod: coll, index: { name: 'a_1', prepareUnique: true } },
        { insert: 'system.js', documents: [{ _id: 1 }] },
        { buildInfo: 1 },
        { aggregate: coll, pipeline: [{ $lookup: { from: 'd', pipeline: [{ $indexStats: {} }] } }], cursor: {} },
        { aggregate: coll, pipeline: [{ $facet: { f: [{ $collStats: { latencyStats: {} } }] } }], cursor: {} },
        { create: 'v', viewOn: coll, pipeline: [{ $currentOp: {} }] },
    ];
    for (const command of REFUSED) await fails(onTest({ ...command, ...strict }), 323);
    await onTest({ aggregate: coll, pipeline: [{ $collStats: { count: {} } }], cursor: {}, ...strict });
    await onTest({ testDeprecation: 1, ...strict });
    await fails(onTest({ testDeprecation: 1, apiVersion: '1', apiDeprecationErrors: true }), 324);
});

test('IDX-1: an index is known again however its filter and its projection are written', async () => {
    const c = await node.collection([]);
    const all = { '$**': 1 };
    await c.createIndex({ a: 1 }, { name: 'p', partialFilterExpression: { a: { $gt: 0, $lt: 10 }, b: 'x' } });
    const same = { $and: [{ b: 'x' }, { a: { $lt: 10 } }, { a: { $gt: 0 } }] };
    await c.createIndex({ a: 1 }, { name: 'p', partialFilterExpression: same });
    await fails(c.createIndex({ a: 1 }, { name: 'q', partialFilterExpression: same }), 85);
    await c.createIndex(all, { name: 'w', wildcardProjection: { 'a.b': 1, 'a.c': 1 } });
    await c.createIndex(all, { name: 'w', wildcardProjection: { a: { c: 1, b: 1 }, _id: 0 } });
    await fails(c.createIndex(all, { name: 'x', wildcardProjection: { 'a.c': 1, 'a.b': 1 } }), 85);
    await c.createIndex(all, { name: 'y', wildcardProjection: { 'a.c': 1, 'a.b': 1, _id: 1 } });
    await onTest({
        createIndexes: c.collectionName,
        indexes: [{ key: { z: 1 }, name: 'z', what: 1 }],
        ignoreUnknownIndexOptions: true,
    });
    assert.equal((await c.indexes()).length, 5);
});

test('commands count options of updates; a command is counted when it begins', async () => {
    const c = await node.collection([{ _id: 1, a: [5, 10] }]);
    const { commands: before } = (await node.admin.command({ serverStatus: 1 })).metrics;
    await c.updateOne({}, [{ $set: { b: 1 } }]);
    await c.updateOne({}, { $set: { 'a.$[x]': 1 } }, { arrayFilters: [{ x: { $gt: 6 } }] });
    await c.findOneAndUpdate({}, [{ $set: { b: 2 } }]);
    const { commands } = (await node.admin.command({ serverStatus: 1 })).metrics;
    const grown = (command, name) => Number(commands[command][name]) - Number(before[command][name]);
    assert.deepEqual(
        [grown('update', 'pipeline'), grown('update', 'arrayFilters'), grown('findAndModify', 'pipeline')],
        [1, 1, 1],
    );
    assert.equal(grown('serverStatus', 'total'), 1);
});

test('CAP-1: a capped size is kept as it is given, up to a petabyte', async () => {
    const c = await node.collection([], { capped: true, size: 1000 });
    const sizeOf = async () => (await onTest({ collStats: c.collectionName })).maxSize;
    assert.equal(await sizeOf(), 1000);
    await onTest({ collMod: c.collectionName, cappedSize: 777 });
    assert.equal(await sizeOf(), 777);
    for (const cappedSize of [0, -1, 2 ** 50 + 1]) await fails(onTest({ collMod: c.collectionName, cappedSize }), 51024);
});

test('MET-1: the profiler cuts long commands, tells of trials and sorts, also of further batches', async () => {
    const db = node.client.db('profiled');
    const c = db.collection('c');
    await c.insertMany(Array.from({ length: 10 }, (_, i) => ({ a: i, b: i })));
    await db.command({ profile: 2 });
    const newest = async (filter = {}) =>
        (await db.collection('system.profile').find({ ns: 'profiled.c', ...filter }).sort({ $natural: -1 }).toArray())[0];
    await c.find({ s: 'x'.repeat(60000) }, { comment: 'mine' }).toArray();
    const { command } = await newest();
    assert.match(command.$truncated, /filter: { s: "x+\.\.\." }/);
    assert.equal(command.comment, 'mine');
    await c.updateOne({ s: 'x'.repeat(60000) }, { $set: { t: 1 } });
    assert.match((await newest({ op: 'update' })).command.$truncated, /^{ q: { s: "x+\.\.\." }.*multi: false, upsert: false }$/);
    await c.insertOne({ _id: 7 });
    for (const [_id, examined] of [
        [7, 1],
        [8, 0],
    ]) {
        await c.updateOne({ _id }, { $set: { t: 1 } });
        const { keysExamined, docsExamined, planSummary } = await newest({ op: 'update' });
        assert.deepEqual({ keysExamined, docsExamined, planSummary }, { keysExamined: examined, docsExamined: examined, planSummary: 'IDHACK' });
    }
    await c.find({ a: { $gte: 0 } }, { batchSize: 4, comment: 'y'.repeat(50) }).sort({ b: 1 }).toArray();
    assert.equal((await newest({ op: 'getmore' })).hasSortStage, true);
    await c.createIndexes([{ key: { a: 1 } }, { key: { b: 1 } }]);
    await c.find({ a: 3, b: 3 }).toArray();
    assert.equal((await newest({ op: 'query' })).fromMultiPlanner, true);
    await c.find({ a: { $gte: 3 } }, { collation: { locale: 'fr' } }).sort({ a: 1 }).toArray();
    assert.equal((await newest({ op: 'query' })).hasSortStage, undefined, 'numbers have one order in all collations');
    await db.command({ profile: 0 });
    const first = await db.collection('system.profile').findOne();
    assert.equal(first.command.profile, undefined, 'nothing was profiled when it began');
});

test('applyOps runs collMod, but for what only looks', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    const apply = (o) => onTest({ applyOps: [{ op: 'c', ns: 'test.$cmd', o: { collMod: c.collectionName, ...o } }] });
    await c.createIndex({ a: 1 });
    await onTest({ collMod: c.collectionName, index: { name: 'a_1', prepareUnique: true } });
    await fails(apply({ index: { name: 'a_1', unique: true }, dryRun: true }), 72);
    assert.deepEqual((await apply({ index: { name: 'a_1', unique: true } })).results, [true]);
    assert.equal((await c.indexes()).find(({ name }) => name === 'a_1').unique, true);
});

test('MET-1: serverStatus counts collections, indexes by their kinds, and reads by their concern', async () => {
    const read = async () => {
        const { catalogStats, indexStats, readConcernCounters } = await node.admin.command({ serverStatus: 1 });
        return { catalogStats, indexStats, reads: readConcernCounters.nonTransactionOps };
    };
    const before = await read();
    const c = await node.collection([{ a: 1 }], { capped: true, size: 4096 });
    await c.createIndex({ a: 1, b: 1 }, { unique: true });
    await onTest({ create: node.newName('clustered'), clusteredIndex: { key: { _id: 1 }, unique: true } });
    await onTest({ create: node.newName('view'), viewOn: c.collectionName });
    await c.find({ a: 1 }).toArray();
    for (const level of ['local', 'available', 'available'])
        await onTest({ count: c.collectionName, readConcern: { level } });
    const after = await read();
    const grown = (path) => {
        const at = (from) => Number(path.split('.').reduce((value, name) => value[name], from));
        return at(after) - at(before);
    };
    assert.deepEqual(
        ['collections', 'capped', 'clustered', 'views', 'timeseries'].map((kind) => grown(`catalogStats.${kind}`)),
        [2, 1, 1, 1, 0],
    );
    assert.equal(grown('indexStats.count'), 2);
    for (const [feature, count, accesses] of [['id', 1, 0], ['compound', 1, 1], ['unique', 1, 1], ['ttl', 0, 0]])
        assert.deepEqual(
            [grown(`indexStats.features.${feature}.count`), grown(`indexStats.features.${feature}.accesses`)],
            [count, accesses],
            feature,
        );
    assert.deepEqual([grown('reads.none'), grown('reads.local'), grown('reads.available')], [1, 1, 2]);
});

test('OPS-3: $indexStats counts what goes by an index, by _id too', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await c.createIndex({ a: 1 });
    await c.findOne({ _id: 1 });
    await c.updateOne({ _id: 1 }, { $set: { b: 1 } });
    await c.deleteOne({ _id: 7 });
    await c.findOne({ a: 1 });
    const stats = await c.aggregate([{ $indexStats: {} }]).toArray();
    assert.deepEqual(Object.fromEntries(stats.map(({ name, accesses }) => [name, Number(accesses.ops)])), { _id_: 3, a_1: 1 });
});

test('what is of collections alone refuses views, and what is of shards other nodes', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const view = node.newName('view');
    await onTest({ create: view, viewOn: c.collectionName });
    const ns = `test.${view}`;
    for (const command of [
        { dataSize: ns },
        { planCacheClear: view },
        { planCacheClear: view, query: { a: 1 } },
        { planCacheSetFilter: view, query: { a: 1 }, indexes: [{ a: 1 }] },
        { collStats: view },
        { listIndexes: view },
        { splitVector: ns, keyPattern: { _id: 1 }, maxChunkSize: 1 },
    ])
        await fails(onTest(command), 166);
    await fails(node.admin.command({ applyOps: [{ op: 'i', ns, o: { _id: 2 } }] }), 166);
    await fails(node.admin.command({ getShardVersion: ns }), 193);
});
