/* Administration commands: the shapes that shells, drivers and monitors read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Long, UUID } from 'mongodb';
import { fails, hasShape } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { startServer, waitFor } from '../lib/server.mjs';

const node = useServer();
const admin = (command) => node.admin.command(command);
const onTest = (command) => node.db.command(command);

test('hello describes a standalone node that takes writes', async () => {
    const reply = await admin({ hello: 1 });
    hasShape(reply, {
        isWritablePrimary: 'boolean',
        topologyVersion: { processId: 'ObjectId', counter: 'number' },
        maxBsonObjectSize: 'number',
        maxMessageSizeBytes: 'number',
        maxWriteBatchSize: 'number',
        localTime: 'date',
        logicalSessionTimeoutMinutes: 'number',
        connectionId: 'number',
        minWireVersion: 'number',
        maxWireVersion: 'number',
        readOnly: 'boolean',
        ok: 'number',
    });
    assert.deepEqual(
        [
            reply.isWritablePrimary,
            reply.maxBsonObjectSize,
            reply.maxMessageSizeBytes,
            reply.maxWriteBatchSize,
            reply.logicalSessionTimeoutMinutes,
            reply.minWireVersion,
            reply.maxWireVersion,
            reply.readOnly,
        ],
        [true, 16777216, 48000000, 100000, 30, 0, 21, false],
    );
    assert.ok(!('setName' in reply));
});

test('isMaster and its other spellings still answer, with ismaster', async () => {
    for (const name of ['isMaster', 'ismaster']) {
        const reply = await admin({ [name]: 1 });
        assert.equal(reply.ismaster, true);
        assert.ok(!('isWritablePrimary' in reply));
    }
    assert.equal((await admin({ isMaster: 1, helloOk: true })).helloOk, true);
});

test('hello with topologyVersion and maxAwaitTimeMS waits that long', async () => {
    const { topologyVersion } = await node.admin.command({ hello: 1 }, { promoteValues: false });
    const started = Date.now();
    const reply = await admin({ hello: 1, topologyVersion, maxAwaitTimeMS: 200 });
    assert.ok(Date.now() - started >= 150);
    assert.equal(reply.ok, 1);
    await fails(admin({ hello: 1, maxAwaitTimeMS: 200 }), 31368);
    await fails(admin({ hello: 1, topologyVersion }), 31368);
});

test('buildInfo says 7.0 to clients', async () => {
    const reply = await admin({ buildInfo: 1 });
    hasShape(reply, {
        version: 'string',
        versionArray: 'array',
        gitVersion: 'string',
        bits: 'number',
        debug: 'boolean',
        maxBsonObjectSize: 'number',
        storageEngines: 'array',
        modules: 'array',
    });
    assert.match(reply.version, /^7\.0\.\d+$/);
    assert.deepEqual(reply.versionArray.slice(0, 2), [7, 0]);
    assert.ok(reply.storageEngines.includes('wiredTiger'));
    assert.equal((await onTest({ buildinfo: 1 })).version, reply.version);
});

test('hostInfo describes the machine', async () => {
    hasShape(await admin({ hostInfo: 1 }), {
        system: {
            currentTime: 'date',
            hostname: 'string',
            cpuAddrSize: 'number',
            memSizeMB: 'number',
            memLimitMB: 'number',
            numCores: 'number',
            cpuArch: 'string',
            numaEnabled: 'boolean',
        },
        os: { type: 'string', name: 'string', version: 'string' },
        extra: 'object',
    });
});

test('serverStatus has the sections monitors read', async () => {
    await node.db.collection('status').insertOne({ a: 1 });
    const reply = await admin({ serverStatus: 1 });
    hasShape(reply, {
        host: 'string',
        version: 'string',
        process: 'string',
        pid: 'number',
        uptime: 'number',
        uptimeMillis: 'number',
        uptimeEstimate: 'number',
        localTime: 'date',
        asserts: { regular: 'number', warning: 'number', msg: 'number', user: 'number' },
        connections: {
            current: 'number',
            available: 'number',
            totalCreated: 'number',
            active: 'number',
        },
        globalLock: {
            totalTime: 'number',
            currentQueue: { total: 'number', readers: 'number', writers: 'number' },
            activeClients: { total: 'number', readers: 'number', writers: 'number' },
        },
        locks: 'object',
        network: { bytesIn: 'number', bytesOut: 'number', numRequests: 'number' },
        opcounters: {
            insert: 'number',
            query: 'number',
            update: 'number',
            delete: 'number',
            getmore: 'number',
            command: 'number',
        },
        opLatencies: { reads: 'object', writes: 'object', commands: 'object' },
        mem: { bits: 'number', resident: 'number', virtual: 'number', supported: 'boolean' },
        metrics: {
            cursor: {
                timedOut: 'number',
                open: { noTimeout: 'number', pinned: 'number', total: 'number' },
            },
            commands: 'object',
            document: {
                deleted: 'number',
                inserted: 'number',
                returned: 'number',
                updated: 'number',
            },
        },
        storageEngine: { name: 'string', persistent: 'boolean' },
        wiredTiger: { cache: 'object', transaction: 'object', log: 'object' },
        logicalSessionRecordCache: { activeSessionsCount: 'number' },
        transactions: 'object',
        extra_info: 'object',
        ok: 'number',
    });
    assert.equal(reply.storageEngine.name, 'wiredTiger');
    assert.equal(Number(reply.pid), node.server.pid);
});

test('cursors of a session whose record was removed are closed', async () => {
    const c = await node.collection(Array.from({ length: 10 }, (_, i) => ({ _id: i })));
    const session = node.client.startSession();
    const run = (command) => node.db.command(command, { session });
    const { cursor } = await run({ find: c.collectionName, batchSize: 2 });
    const more = () => run({ getMore: Long.fromBigInt(BigInt(cursor.id)), collection: c.collectionName, batchSize: 2 });
    await admin({ refreshLogicalSessionCacheNow: 1 });
    await more();
    await admin({ refreshLogicalSessionCacheNow: 1 });
    await node.client.db('config').collection('system.sessions').deleteMany({ '_id.id': session.id.id });
    await admin({ refreshLogicalSessionCacheNow: 1 });
    await fails(more(), 43);
    await session.endSession();
});

test('serverStatus leaves out the counters that are not wanted', async () => {
    const metrics = async (wish) => (await admin({ serverStatus: 1, metrics: wish })).metrics;
    const all = await metrics(1);
    assert.ok('deleted' in all.document && 'inserted' in all.document);
    const few = await metrics({ document: { deleted: false, inserted: true }, commands: false });
    assert.ok(!('deleted' in few.document) && 'inserted' in few.document && !('commands' in few) && 'cursor' in few);
    for (const wish of [{ document: 'no' }, { document: { deleted: 'no' } }, { document: { deleted: { x: 1 } } }])
        await fails(metrics(wish), 357);
});

test('serverStatus tells how many plans are remembered', async () => {
    const plans = async () => {
        const { planCacheTotalQueryShapes, planCacheTotalSizeEstimateBytes } = (await admin({ serverStatus: 1 })).metrics.query;
        return [planCacheTotalQueryShapes, planCacheTotalSizeEstimateBytes];
    };
    const c = await node.collection([{ a: 1, b: 1 }]);
    await c.createIndexes([{ key: { a: 1 } }, { key: { b: 1 } }]);
    const [count, bytes] = await plans();
    await c.findOne({ a: 1, b: 1 });
    const [row] = await c.aggregate([{ $planCacheStats: {} }]).toArray();
    assert.deepEqual(await plans(), [count + 1, bytes + row.estimatedSizeBytes]);
    await c.drop();
    await waitFor(async () => (await plans())[0] === count, { what: 'the entries of a dropped collection are gone' });
});

test('serverStatus counts operations and leaves out sections on request', async () => {
    const counters = async () => (await admin({ serverStatus: 1 })).opcounters;
    const before = await counters();
    const c = await node.collection([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    await c.updateOne({ _id: 1 }, { $set: { a: 1 } });
    await c.deleteOne({ _id: 2 });
    await c.findOne();
    const after = await counters();
    assert.deepEqual(
        [
            after.insert - before.insert,
            after.update - before.update,
            after.delete - before.delete,
            after.query - before.query,
        ],
        [3, 1, 1, 1],
    );
    const less = await admin({ serverStatus: 1, metrics: 0, wiredTiger: 0 });
    assert.ok(!('metrics' in less) && !('wiredTiger' in less) && 'network' in less);
});

test('connectionStatus, whatsmyuri, getCmdLineOpts and ping', async () => {
    const status = await admin({ connectionStatus: 1, showPrivileges: true });
    assert.deepEqual(status.authInfo, {
        authenticatedUsers: [],
        authenticatedUserRoles: [],
        authenticatedUserPrivileges: [],
    });
    assert.match((await admin({ whatsmyuri: 1 })).you, /^127\.0\.0\.1:\d+$/);
    const options = await admin({ getCmdLineOpts: 1 });
    assert.ok(options.argv.includes('--dbpath'));
    assert.equal(options.parsed.storage.dbPath, node.server.dbpath);
    assert.equal((await onTest({ ping: 1 })).ok, 1);
});

test('getParameter gives one, several or all parameters, with details on request', async () => {
    assert.equal(
        (await admin({ getParameter: 1, cursorTimeoutMillis: 1 })).cursorTimeoutMillis,
        600000,
    );
    const all = await admin({ getParameter: '*' });
    assert.ok('logLevel' in all && 'syncdelay' in all && Object.keys(all).length > 10);
    const detail = await admin({ getParameter: { showDetails: true }, logLevel: 1 });
    hasShape(detail.logLevel, {
        value: 'number',
        settableAtRuntime: 'boolean',
        settableAtStartup: 'boolean',
    });
    await fails(admin({ getParameter: 1, nonsense: 1 }), 72, {
        name: 'InvalidOptions',
        message: /no option found/,
    });
    const { featureCompatibilityVersion } = await admin({
        getParameter: 1,
        featureCompatibilityVersion: 1,
    });
    assert.equal(featureCompatibilityVersion.version, '7.0');
});

test('setParameter changes a value and says what it was', async () => {
    const reply = await admin({ setParameter: 1, journalCommitInterval: 50 });
    assert.equal(reply.was, 100);
    assert.equal(
        (await admin({ getParameter: 1, journalCommitInterval: 1 })).journalCommitInterval,
        50,
    );
    await admin({ setParameter: 1, journalCommitInterval: 100 });
    await fails(admin({ setParameter: 1, nonsense: 1 }), 72);
    await fails(admin({ setParameter: 1, journalCommitInterval: 5000 }), 2);
    await assert.rejects(admin({ setParameter: 1, journalCommitInterval: 'x' }), ({ code }) =>
        [2, 14].includes(code),
    );
    await fails(admin({ setParameter: 1, enableTestCommands: true }), 20);
    await fails(admin({ setParameter: 1 }), 72);
});

test('getLog gives the recent lines as JSON texts', async () => {
    const names = await admin({ getLog: '*' });
    assert.ok(names.names.includes('global') && names.names.includes('startupWarnings'));
    const reply = await admin({ getLog: 'global' });
    assert.equal(reply.log.length, Math.min(reply.totalLinesWritten, 1024));
    assert.ok(
        reply.log
            .map((line) => JSON.parse(line))
            .some(({ msg }) => msg === 'Waiting for connections'),
    );
    const warnings = await admin({ getLog: 'startupWarnings' });
    assert.ok(warnings.log.every((line) => JSON.parse(line).s === 'W'));
    await fails(admin({ getLog: 'nonsense' }), 96);
});

test('listCommands describes every command', async () => {
    const { commands } = await admin({ listCommands: 1 });
    for (const name of ['find', 'insert', 'aggregate', 'hello', 'shutdown'])
        hasShape(commands[name], {
            help: 'string',
            requiresAuth: 'boolean',
            adminOnly: 'boolean',
            secondaryOk: 'boolean',
        });
    assert.equal(commands.shutdown.adminOnly, true);
    assert.equal(commands.find.adminOnly, false);
    const ofNodes = Object.keys(commands).filter((name) => name.startsWith('_'));
    assert.deepEqual(ofNodes, [], 'commands between nodes are not for clients');
});

test('explain is not deprecated in version 1 of the API', async () => {
    await onTest({ explain: { find: 'c' }, apiVersion: '1', apiDeprecationErrors: true });
});

test('listDatabases gives names and sizes', async () => {
    await node.client
        .db('sized')
        .collection('c')
        .insertOne({ a: 'x'.repeat(1000) });
    const reply = await admin({ listDatabases: 1 });
    hasShape(reply, { databases: 'array', totalSize: 'number', totalSizeMb: 'number' });
    hasShape(
        reply.databases.find(({ name }) => name === 'sized'),
        { name: 'string', sizeOnDisk: 'number', empty: 'boolean' },
    );
    const filtered = await admin({ listDatabases: 1, filter: { name: /^siz/ }, nameOnly: true });
    assert.deepEqual(filtered.databases, [{ name: 'sized' }]);
    await fails(onTest({ listDatabases: 1 }), 13, { message: /admin/ });
});

test('collStats counts documents, bytes and indexes', async () => {
    const c = await node.collection(
        Array.from({ length: 100 }, (_, _id) => ({ _id, s: 'x'.repeat(100) })),
    );
    await c.createIndex({ s: 1 });
    const reply = await onTest({ collStats: c.collectionName });
    hasShape(reply, {
        ns: 'string',
        size: 'number',
        count: 'number',
        avgObjSize: 'number',
        storageSize: 'number',
        freeStorageSize: 'number',
        capped: 'boolean',
        nindexes: 'number',
        totalIndexSize: 'number',
        totalSize: 'number',
        indexSizes: { _id_: 'number', s_1: 'number' },
        scaleFactor: 'number',
    });
    assert.deepEqual(
        [reply.count, reply.nindexes, reply.capped, reply.ns],
        [100, 2, false, `test.${c.collectionName}`],
    );
    assert.equal(reply.size, 100 * reply.avgObjSize);
    const scaled = await onTest({ collStats: c.collectionName, scale: 1024 });
    assert.equal(scaled.size, Math.floor(reply.size / 1024));
    const missing = await onTest({ collStats: 'missing' });
    assert.deepEqual([missing.count, missing.size, missing.nindexes], [0, 0, 0]);
});

test('counts and sizes are right again after a restart of their own', async () => {
    const server = await startServer();
    try {
        const c = (await server.client()).db('t').collection('c');
        await c.insertMany(Array.from({ length: 500 }, (_, _id) => ({ _id })));
        await c.deleteMany({ _id: { $lt: 100 } });
        await server.restart();
        const db = (await server.client()).db('t');
        const stats = await db.command({ collStats: 'c' });
        assert.equal(stats.count, 400);
        assert.equal((await db.command({ count: 'c' })).n, 400);
    } finally {
        await server.remove();
    }
});

test('dbStats adds up a database', async () => {
    const db = node.client.db('summed');
    await db.collection('a').insertMany([{}, {}]);
    await db.collection('b').insertOne({});
    await db.createCollection('v', { viewOn: 'a', pipeline: [] });
    const reply = await db.command({ dbStats: 1 });
    hasShape(reply, {
        db: 'string',
        collections: 'number',
        views: 'number',
        objects: 'number',
        avgObjSize: 'number',
        dataSize: 'number',
        storageSize: 'number',
        indexes: 'number',
        indexSize: 'number',
        totalSize: 'number',
        scaleFactor: 'number',
        fsUsedSize: 'number',
        fsTotalSize: 'number',
    });
    // system.views counts as a collection with an index of its own.
    assert.deepEqual([reply.db, reply.views, reply.objects], ['summed', 1, 4]);
    assert.equal((await node.client.db('nodb').command({ dbStats: 1 })).collections, 0);
});

test('dataSize measures a collection, or a range of it', async () => {
    const c = await node.collection(Array.from({ length: 10 }, (_, _id) => ({ _id })));
    const ns = `test.${c.collectionName}`;
    const all = await onTest({ dataSize: ns });
    hasShape(all, { size: 'number', numObjects: 'number', millis: 'number' });
    assert.equal(all.numObjects, 10);
    const range = { dataSize: ns, min: { _id: 2 }, max: { _id: 5 } };
    for (const keyPattern of [undefined, { _id: 1 }]) {
        const part = await onTest({ ...range, ...(keyPattern && { keyPattern }) });
        assert.deepEqual([part.numObjects, part.size], [3, 3 * (all.size / 10)]);
    }
    await fails(onTest({ dataSize: ns, min: { _id: 2 } }), 2);
    await fails(onTest({ dataSize: ns, keyPattern: { a: 1 }, min: { a: 2 }, max: { a: 5 } }), 96);
});

test('DUR-5: validate finds a healthy collection valid', async () => {
    const c = await node.collection(
        Array.from({ length: 50 }, (_, _id) => ({ _id, a: [_id, -_id] })),
    );
    await c.createIndex({ a: 1 });
    for (const full of [false, true]) {
        const reply = await onTest({ validate: c.collectionName, full });
        hasShape(reply, {
            ns: 'string',
            nInvalidDocuments: 'number',
            nrecords: 'number',
            nIndexes: 'number',
            keysPerIndex: 'object',
            indexDetails: 'object',
            valid: 'boolean',
            repaired: 'boolean',
            warnings: 'array',
            errors: 'array',
            extraIndexEntries: 'array',
            missingIndexEntries: 'array',
            corruptRecords: 'array',
        });
        assert.deepEqual(
            [reply.valid, reply.nrecords, reply.nIndexes, reply.errors],
            [true, 50, 2, []],
        );
        assert.deepEqual(reply.keysPerIndex, { _id_: 50, a_1: 99 });
    }
    const background = await onTest({ validate: c.collectionName, background: true });
    assert.deepEqual([background.valid, background.nrecords], [true, 50]);
    const repair = await onTest({ validate: c.collectionName, repair: true });
    assert.deepEqual([repair.valid, repair.repaired, repair.numRemovedCorruptRecords], [true, false, 0]);
    assert.deepEqual([repair.numDocumentsMovedToLostAndFound, repair.numOutdatedMissingIndexEntry], [0, 0]);
    const metadata = await onTest({ validate: c.collectionName, metadata: true });
    assert.deepEqual([metadata.valid, metadata.nrecords], [true, 0], 'no data is read');
    await fails(onTest({ validate: 'missing' }), 26);
    await fails(onTest({ validate: c.collectionName, background: true, repair: true }), 72);
    await fails(onTest({ validate: c.collectionName, metadata: true, full: true }), 72);
});

test('currentOp shows running operations and killOp takes their ids', async () => {
    const reply = await admin({ currentOp: 1, $all: true });
    assert.ok(Array.isArray(reply.inprog));
    const own = reply.inprog.find(({ command }) => command?.currentOp !== undefined);
    hasShape(own, {
        type: 'string',
        host: 'string',
        desc: 'string',
        connectionId: 'number',
        client: 'string',
        active: 'boolean',
        currentOpTime: 'string',
        opid: 'number',
        op: 'string',
        ns: 'string',
        command: 'object',
    });
    const killed = await admin({ killOp: 1, op: 987654321 });
    assert.equal(killed.info, 'attempting to kill op');
    await fails(admin({ killOp: 1 }), 4);
});

test('fsync flushes, and refuses to lock while that is out of scope', async () => {
    assert.equal((await admin({ fsync: 1 })).ok, 1);
    const lock = await admin({ fsync: 1, lock: true }).catch((error) => error);
    if (lock.ok === 1) await admin({ fsyncUnlock: 1 });
    else assert.equal(lock.code, 238);
    await fails(admin({ fsyncUnlock: 1 }), 20);
});

test('sessions start, refresh and end', async () => {
    const { id, timeoutMinutes } = await admin({ startSession: 1 });
    assert.equal(timeoutMinutes, 30);
    assert.equal(id.id.sub_type, 4);
    for (const command of ['refreshSessions', 'endSessions', 'killSessions'])
        assert.equal((await admin({ [command]: [{ id: id.id }] })).ok, 1, command);
    assert.equal((await admin({ killAllSessions: [] })).ok, 1);
    assert.equal((await admin({ endSessions: [{ id: new UUID() }] })).ok, 1);
    await assert.rejects(admin({ refreshSessions: [{ nonsense: 1 }] }), ({ code }) => code > 0);
});

test('MET-1: the profiler records what it is told to', async () => {
    const db = node.client.db('profiled');
    assert.equal((await db.command({ profile: -1 })).was, 0);
    await db.command({ profile: 2 });
    await db.collection('c').insertOne({ _id: 1 });
    await db.collection('c').find({ _id: 1 }, { comment: 'look' }).toArray();
    await db.collection('c').updateOne({ _id: 1 }, { $set: { a: 1 } }, { comment: 'change' });
    await db.collection('c').deleteOne({ _id: 2 }, { comment: 'remove' });
    for (const _id of [1, 3]) await db.collection('c').updateOne({ _id }, { $set: { a: 2 } }, { upsert: true });
    const was = await db.command({ profile: 0 });
    assert.equal(was.was, 2);
    hasShape(was, { slowms: 'number', sampleRate: 'number' });
    const entries = await db.collection('system.profile').find().toArray();
    const query = entries.find(({ op }) => op === 'query');
    hasShape(query, {
        op: 'string',
        ns: 'string',
        command: 'object',
        keysExamined: 'number',
        docsExamined: 'number',
        nreturned: 'number',
        responseLength: 'number',
        millis: 'number',
        ts: 'date',
        client: 'string',
        planSummary: 'string',
    });
    assert.equal(query.ns, 'profiled.c');
    assert.equal(query.command.comment, 'look');
    for (const [kind, comment] of [['update', 'change'], ['remove', 'remove']])
        assert.equal(entries.find(({ op }) => op === kind).command.comment, comment, kind);
    const upserts = entries.filter(({ upsert }) => upsert);
    assert.deepEqual(upserts.map(({ nUpserted, nMatched, ninserted }) => [nUpserted, nMatched, ninserted]), [[0, 1, undefined], [1, 0, undefined]]);
    assert.ok(entries.some(({ op, ninserted }) => op === 'insert' && ninserted === 1));
    assert.equal(
        (await db.listCollections({ name: 'system.profile' }).toArray())[0].options.capped,
        true,
    );
});

test('top counts collections that a $lookup reads', async () => {
    const c = await node.collection([{ _id: 1 }, { _id: 2 }]);
    const from = await node.collection([{ _id: 1 }]);
    const counted = async () => (await admin({ top: 1 })).totals[`test.${from.collectionName}`].commands.count;
    const before = await counted();
    await c.aggregate([{ $lookup: { from: from.collectionName, localField: '_id', foreignField: '_id', as: 'l' } }]).toArray();
    assert.equal((await counted()) - before, 3, 'once for the command, once for each document that it looks up');
});

test('top counts time by collection', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await c.findOne();
    const { totals } = await admin({ top: 1 });
    const entry = totals[`test.${c.collectionName}`];
    for (const part of [
        'total',
        'readLock',
        'writeLock',
        'queries',
        'getmore',
        'insert',
        'update',
        'remove',
        'commands',
    ])
        hasShape(entry[part], { time: 'number', count: 'number' });
    assert.ok(entry.queries.count >= 1 && entry.insert.count >= 1);
});

test('lockInfo lists locks', async () => {
    assert.ok(Array.isArray((await admin({ lockInfo: 1 })).lockInfo));
});

test('dbHash is equal for equal data and differs otherwise', async () => {
    const [one, two] = ['hash1', 'hash2'].map((name) => node.client.db(name));
    for (const db of [one, two])
        await db.collection('c').insertMany([{ _id: 1, a: 1 }, { _id: 2 }]);
    const hash = (db) => db.command({ dbHash: 1 });
    const first = await hash(one);
    hasShape(first, {
        host: 'string',
        collections: { c: 'string' },
        md5: 'string',
        timeMillis: 'number',
    });
    assert.match(first.md5, /^[0-9a-f]{32}$/);
    assert.equal((await hash(two)).collections.c, first.collections.c);
    await two.collection('c').updateOne({ _id: 1 }, { $set: { a: 2 } });
    assert.notEqual((await hash(two)).collections.c, first.collections.c);
});

test('replica-set commands say that this is no replica set', async () => {
    await fails(admin({ replSetGetStatus: 1 }), 76, { name: 'NoReplicationEnabled' });
    await fails(admin({ replSetInitiate: {} }), 76);
});

test('logRotate without a log file is answered', async () => {
    const reply = await admin({ logRotate: 1 }).catch((error) => error);
    assert.ok(reply.ok === 1 || reply.code > 0);
});

test('shutdown ends the process with code 0 and needs admin', async () => {
    const server = await startServer();
    try {
        const client = await server.client();
        await fails(client.db('test').command({ shutdown: 1 }), 13);
        await client.db('t').collection('c').insertOne({ _id: 1 });
        await client
            .db('admin')
            .command({ shutdown: 1 })
            .catch((error) => assert.match(error.name, /Network|ServerError/));
        assert.deepEqual(await server.waitEnd(), { code: 0, signal: null });
    } finally {
        await server.remove();
    }
});

test('commands that may only run on admin are refused elsewhere', async () => {
    for (const command of [
        { listDatabases: 1 },
        { getParameter: 1, logLevel: 1 },
        { fsync: 1 },
        { top: 1 },
        { getLog: 'global' },
        { replSetGetStatus: 1 },
        { currentOp: 1 },
        { killOp: 1, op: 1 },
        { configureFailPoint: 'failCommand', mode: 'off' },
    ])
        await fails(onTest(command), 13, { name: 'Unauthorized' });
});

test('test commands are unknown unless the server was started with them', async () => {
    const server = await startServer({ testCommands: false });
    try {
        const db = (await server.client()).db('admin');
        await fails(db.command({ configureFailPoint: 'failCommand', mode: 'off' }), 59, {
            name: 'CommandNotFound',
        });
    } finally {
        await server.remove();
    }
});

test('the number of connections goes down again', async () => {
    const current = async () => (await admin({ serverStatus: 1 })).connections.current;
    const before = await current();
    const clients = await Promise.all(Array.from({ length: 10 }, () => node.server.client()));
    await Promise.all(clients.map((client) => client.db('admin').command({ ping: 1 })));
    assert.ok((await current()) >= before + 10);
    await Promise.all(clients.map((client) => client.close()));
    await waitFor(async () => (await current()) <= before + 1, { what: 'closed connections' });
});

test('an unknown cursor id of 64 bits does no harm', () =>
    fails(onTest({ getMore: Long.MAX_VALUE, collection: 'c' }), 43));

test('applyOps runs writes and changes of the catalog, and tells how far it got', async () => {
    const admin = node.client.db('admin');
    const name = node.newName();
    const ns = `test.${name}`;
    const create = { op: 'c', ns: 'test.$cmd', o: { create: name, temp: true } };
    const insert = (o) => ({ op: 'i', ns, o });
    const { applied, results } = await admin.command({ applyOps: [create, { op: 'n', ns: '', o: {} }, insert({ _id: 1, x: 1 })] });
    assert.equal(applied, 3);
    assert.deepEqual(results, [true, true, true]);
    const { options } = await node.db.listCollections({ name }).next();
    assert.equal(options.temp, true);
    const c = node.db.collection(name);
    await c.createIndex({ x: 1 }, { unique: true });
    const err = await fails(admin.command({ applyOps: [insert({ _id: 2, x: 2 }), insert({ _id: 3, x: 1 })] }), 11000);
    assert.deepEqual([err.errorResponse.applied, err.errorResponse.results], [2, [true, false]]);
    const counters = async () => (await admin.command({ serverStatus: 1 })).opcounters;
    const before = await counters();
    await admin.command({ applyOps: [{ op: 'u', ns, o2: { _id: 1 }, o: { _id: 1, x: 9 } }, { op: 'd', ns, o: { _id: 2 } }] });
    const later = await counters();
    for (const kind of ['update', 'delete']) assert.equal(Number(later[kind]), Number(before[kind]) + 1, kind);
    assert.deepEqual(await c.find().toArray(), [{ _id: 1, x: 9 }]);
    await admin.command({ applyOps: [{ op: 'u', ns, o2: { _id: 1 }, o: { $v: 2, diff: { u: { x: 10 }, i: { y: 1 } } } }] });
    assert.deepEqual(await c.find().toArray(), [{ _id: 1, x: 10, y: 1 }]);
    const { info: { uuid: ui } } = await node.db.listCollections({ name }).next();
    await admin.command({ applyOps: [{ op: 'c', ns: 'test.$cmd', ui, o: { create: 'renamed' } }] });
    assert.equal(await node.db.collection('renamed').countDocuments(), 1);
    await fails(admin.command({ applyOps: [{ op: 'c', ns: 'test2.$cmd', ui, o: { create: 'renamed' } }] }), 125);
    await fails(admin.command({ applyOps: [{ op: 'i', ns: 'test.no_such', o: { _id: 1 } }] }), 26);
    await fails(admin.command({ applyOps: [{ op: '?', ns, o: {} }] }), 9);
});

test('MET-1: a filter decides what is profiled and logged, whatever that took', async () => {
    const db = node.client.db('profile_filtered');
    const coll = db.collection('c');
    await coll.insertMany([{ _id: 1 }, { _id: 2 }]);
    const filter = { op: 'query', nreturned: { $gte: 2 }, $expr: { $eq: ['$ns', 'profile_filtered.c'] } };
    const logged = () => node.server.log.filter((line) => line.msg === 'Slow query' && line.attr.ns === 'profile_filtered.c');
    assert.equal((await db.command({ profile: 1, filter, slowms: 100_000 })).filter, undefined);
    await coll.find().toArray();
    await coll.find({ _id: 1 }).toArray();
    await coll.insertOne({ _id: 3 });
    const was = await db.command({ profile: 0 });
    assert.deepEqual([was.was, was.filter, typeof was.note], [1, filter, 'string']);
    const rows = await db.collection('system.profile').find().toArray();
    assert.deepEqual(rows.map((row) => [row.op, row.nreturned]), [['query', 2]]);
    await coll.find({ _id: { $gt: 0 } }).toArray(); // the log is told also at level 0
    await waitFor(() => logged().length === 2, { what: 'both in the log' });
    await node.client.db('elsewhere').collection('c').find().toArray();
    for (const wrong of [5, 'x', [1]]) await fails(() => db.command({ profile: 0, filter: wrong }), 2);
    await fails(() => db.command({ profile: 0, filter: { $foo: 1 } }), 2);
    await fails(() => db.command({ profile: 0, filter: { $or: [{ op: 'query' }, { milis: 1 }] } }), 4910200);
    assert.deepEqual((await db.command({ profile: -1, filter: 'unset', slowms: 100 })).filter, filter);
    assert.equal((await db.command({ profile: -1 })).filter, undefined);
    await coll.find().toArray();
    assert.equal(logged().length, 2);
    await db.command({ profile: -1, filter });
    await db.dropDatabase();
    assert.equal((await db.command({ profile: -1 })).filter, undefined, 'forgotten with the database');
});

test('MET-1: the profiler tells the plans of writes and of further batches, and forgets a dropped database', async () => {
    const db = node.client.db('profiled_plans');
    const c = db.collection('c');
    await c.insertMany(Array.from({ length: 10 }, (_, i) => ({ _id: i, a: i % 2 })));
    await c.createIndex({ a: 1 });
    await db.command({ profile: 2 });
    await c.updateOne({ a: 1 }, { $set: { b: 1 } });
    await c.deleteOne({ a: 1 });
    await c.find({ a: 0 }).batchSize(2).toArray();
    await db.command({ profile: 0 });
    const rows = await db.collection('system.profile').find().toArray();
    const of = (op) => rows.find((row) => row.op === op);
    for (const op of ['update', 'remove', 'query', 'getmore']) {
        const row = of(op);
        assert.equal(row.planSummary, 'IXSCAN { a: 1 }', op);
        assert.ok(row.keysExamined > 0 && row.docsExamined > 0, op);
        assert.equal(typeof row.execStats.stage, 'string', op);
        assert.ok(row.locks.Global !== undefined && Number(row.cpuNanos) > 0, op);
    }
    assert.equal(of('getmore').originatingCommand.find, 'c');
    assert.equal(of('getmore').queryHash, of('query').queryHash);
    const { totals } = await node.client.db('admin').command({ top: 1 });
    assert.ok(totals['profiled_plans.c'].getmore.count > 0);
    await db.command({ profile: 1 });
    await db.dropDatabase();
    assert.equal((await db.command({ profile: -1 })).was, 0);
    assert.equal((await node.client.db('admin').command({ top: 1 })).totals['profiled_plans.c'], undefined);
});

test('OPS-2: fsync with lock keeps writers out, not readers, until as many unlocks', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const lock = () => node.admin.command({ fsync: 1, lock: true });
    const unlock = () => node.admin.command({ fsyncUnlock: 1 });
    await fails(unlock(), 20);
    assert.equal(Number((await lock()).lockCount), 1);
    assert.equal(Number((await lock()).lockCount), 2);
    let isWritten = false;
    const write = c.insertOne({ _id: 2 }).then(() => (isWritten = true));
    const dropped = c.drop().then(
        () => 'dropped',
        (error) => error.codeName,
    );
    const waiting = async (filter) => {
        for (;;) {
            const reply = await node.admin.command({ currentOp: 1, waitingForLock: true, ...filter });
            assert.equal(reply.fsyncLock, true);
            if (reply.inprog.length > 0) return reply.inprog[0];
        }
    };
    assert.equal((await waiting({ 'command.insert': c.collectionName })).locks.Global, 'w');
    const { opid } = await waiting({ 'command.drop': c.collectionName });
    await node.admin.command({ killOp: 1, op: opid });
    assert.equal(await dropped, 'Interrupted');
    assert.deepEqual(await c.find().toArray(), [{ _id: 1 }]);
    assert.equal(Number((await unlock()).lockCount), 1);
    assert.equal(isWritten, false);
    assert.equal(Number((await unlock()).lockCount), 0);
    await write;
    assert.equal((await node.admin.command({ currentOp: 1 })).fsyncLock, undefined);
    assert.equal(await c.countDocuments(), 2);
});

test('CMD-1: _hashBSONElement tells the hash that hashed indexes have of a value', async () => {
    const hash = async (key, seed) => {
        const reply = await node.admin.command({ _hashBSONElement: key, seed }, { promoteLongs: false });
        return reply.out.toString();
    };
    const c = await node.collection([{ _id: 'x' }]);
    await c.createIndex({ _id: 'hashed' });
    const [key] = await c.find({}, { promoteLongs: false }).hint({ _id: 'hashed' }).returnKey(true).toArray();
    assert.equal(await hash('x', 0), key._id.toString());
    assert.notEqual(await hash('x', 1), await hash('x', 0));
    assert.equal(await hash(NaN, 1), await hash(0, 1));
    assert.equal(await hash(2 ** 63, 1), await hash(-Infinity, 1));
    assert.equal(await hash(2 ** 64, 1), await hash(Infinity, 1));
});
