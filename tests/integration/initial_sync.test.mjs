/*
 * Goal (REP-2): an initial sync goes on after network errors and restarts of its source, copies
 * nothing twice, does not depend on how long the source keeps its oplog, and ends with the same
 * data whatever was written meanwhile. Method: one member of a set is emptied and slowed down by a
 * failpoint while the source is disturbed or written to.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, afterEach, before, test } from 'node:test';
import { Long, Timestamp } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { explain, waitFor } from '../lib/server.mjs';

const SYNC_MS_MAX = 60_000;
const DB = 'copied';
const BATCH = 100;
const DOCS = 4000;

let set = null;
let source = null; // the only member that holds data besides the one that copies
let member = null;
let client = null;
let db = null;

/* Two members with votes would have no primary while one restarts: only the source has one. */
async function startSet(args = [], members = [{ priority: 1 }, { priority: 0, votes: 0 }]) {
    set = await startReplicaSet({
        members,
        settings: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
        args: ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '1', ...args],
    });
    [source] = set.members;
    member = set.members.at(-1);
    client = await set.client();
    db = client.db(DB);
}

async function stopSet() {
    const old = set;
    set = null;
    await old?.remove();
}

/* Starts the member with nothing, so slow that things can happen meanwhile. */
async function resync({ batchMs = 0, batch = BATCH, args = [] } = {}) {
    await member.stop();
    rmSync(member.dbpath, { recursive: true });
    const slow = JSON.stringify({ mode: 'alwaysOn', data: { blockTimeMS: batchMs } });
    const usual = member.args;
    member.args = [...usual, '--setParameter', `collectionClonerBatchSize=${batch}`, ...args];
    if (batchMs > 0)
        member.args.push('--setParameter', `failpoint.initialSync.batchStored=${slow}`);
    try {
        await member.start();
    } finally {
        member.args = usual;
    }
}

const status = async () =>
    (await set.command(member, { replSetGetStatus: 1 }).catch(() => null))?.initialSyncStatus;
const copiedOf = (reply, name) =>
    Number(reply?.databases?.[DB]?.[`${DB}.${name}`]?.documentsCopied ?? 0);
const waitForCopied = (name, count) =>
    waitFor(
        async () => {
            const reply = await status();
            return copiedOf(reply, name) >= count ? reply : null;
        },
        { timeoutMs: SYNC_MS_MAX, what: `${count} documents copied` },
    );
const logged = (msg) => member.log.filter((line) => line.msg === msg);

const assertNoFailure = () =>
    assert.deepEqual(
        logged('Initial sync attempt failed').map(({ attr }) => attr.error),
        [],
    );

async function waitForEnd() {
    const isSecondary = async () => (await set.hello(member))?.secondary;
    try {
        await waitFor(isSecondary, { timeoutMs: SYNC_MS_MAX, what: 'the end of the initial sync' });
    } catch (error) {
        const lines = member.log.slice(-12).map((line) => JSON.stringify(line));
        throw explain(error, [JSON.stringify(await status()), ...lines].join('\n'));
    }
}

async function waitForData() {
    await waitForEnd();
    await set.waitForReplication();
}

/* Same documents, same catalog, sound indexes. */
async function assertEqualData(names = [DB]) {
    for (const name of names) {
        const [one, other] = await Promise.all(
            [source, member].map((of) => set.command(of, { dbHash: 1 }, name)),
        );
        assert.deepEqual(other.collections, one.collections);
        assert.deepEqual(other.uuids, one.uuids);
        const list = async (of) => {
            const rows = await set.command(of, { listCollections: 1, cursor: { batchSize: 1000 } }, name);
            const found = {};
            for (const row of rows.cursor.firstBatch) {
                found[row.name] = { type: row.type, options: row.options };
                if (row.type === 'view') continue;
                const indexes = await set.command(of, { listIndexes: row.name }, name);
                found[row.name].indexes = indexes.cursor.firstBatch
                    .map((index) => JSON.stringify(index))
                    .sort();
                if (of !== member) continue;
                const report = await set.command(of, { validate: row.name, full: true }, name);
                assert.ok(report.valid, `${row.name}: ${report.errors}`);
            }
            return found;
        };
        assert.deepEqual(await list(member), await list(source));
    }
}

async function fill(name, count = DOCS, options) {
    if (options !== undefined) await db.createCollection(name, options);
    const docs = Array.from({ length: count }, (_, i) => ({ _id: i, a: i % 97, pad: 'x'.repeat(50) }));
    await db.collection(name).insertMany(docs);
}

before(() => startSet());
after(stopSet);
afterEach(async () => {
    if (set === null) return;
    for (const name of ['failCommand'])
        await set.command(source, { configureFailPoint: name, mode: 'off' });
});

test('REP-2: all kinds of collections are copied as they are', async () => {
    await fill('plain', 500);
    await fill('clustered', 500, { clusteredIndex: { key: { _id: 1 }, unique: true } });
    await fill('capped', 500, { capped: true, size: 20_000 });
    await db.createCollection('view', { viewOn: 'plain', pipeline: [{ $match: { a: 3 } }] });
    await db.createCollection('checked', { validator: { a: { $gt: 10 } }, validationAction: 'warn' });
    await db.collection('checked').insertOne({ _id: 1, a: 1 });
    await db.collection('plain').createIndexes([
        { key: { a: 1 } },
        { key: { a: 1, _id: -1 }, name: 'u', unique: true },
    ]);
    /* Values that an insert would change. */
    await db.collection('plain').updateOne({ _id: 0 }, { $set: { t: new Timestamp({ t: 0, i: 0 }) } });
    await resync();
    await waitForData();
    await assertEqualData();
    const direct = await set.direct(member);
    const order = async (of) =>
        (await of.db(DB).collection('capped').find().toArray()).map(({ _id }) => _id);
    assert.deepEqual(await order(direct), await order(client), 'insertion order');
    assert.equal(await direct.db(DB).collection('view').countDocuments(), 6);
    assert.equal(await status(), undefined, 'no status without an initial sync');
    await db.dropDatabase();
});

for (const [kind, options] of [
    ['plain', undefined],
    ['clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
    ['capped', { capped: true, size: 50_000_000 }],
])
    test(`REP-2: a ${kind} collection goes on where the connection was cut`, async () => {
        await fill('big', DOCS, options);
        await resync({ batchMs: 50 });
        for (const part of [0.25, 0.5, 0.75]) {
            await waitForCopied('big', DOCS * part);
            await set.command(source, {
                configureFailPoint: 'failCommand',
                mode: { times: 3 },
                data: { failCommands: ['find', 'getMore'], closeConnection: true },
            });
        }
        const last = await waitForCopied('big', DOCS * 0.9);
        assert.ok(last.operationsRetried >= 3, `retried ${last.operationsRetried}`);
        const { documentsToCopy, receivedBatches } = last.databases[DB][`${DB}.big`];
        assert.equal(documentsToCopy, DOCS);
        assert.ok(receivedBatches < (DOCS / BATCH) * 1.5, `${receivedBatches} batches`);
        await waitForData();
        const [done] = logged('Initial sync done');
        assertNoFailure();
        assert.equal(logged('Starting initial sync').length, 1);
        assert.ok(done.attr.retries >= 3);
        await assertEqualData();
        await db.dropDatabase();
    });

test('REP-2: the source restarts in the middle, and the copy goes on', async () => {
    await fill('big');
    await resync({ batchMs: 50 });
    await waitForCopied('big', DOCS / 4);
    await set.closeClients();
    await source.restart();
    await set.waitForPrimary();
    client = await set.client();
    db = client.db(DB);
    await db.collection('big').updateMany({ a: 1 }, { $set: { changed: true } });
    await db.collection('big').deleteMany({ a: 2 });
    await waitForData();
    assertNoFailure();
    const [done] = logged('Initial sync done');
    assert.ok(done.attr.retries >= 1);
    await assertEqualData();
    await db.dropDatabase();
});

test('REP-2: a source that may have lost writes in a crash is copied anew', async () => {
    await fill('big');
    await resync({ batchMs: 50 });
    await waitForCopied('big', DOCS / 4);
    await set.closeClients();
    await source.kill();
    await source.start();
    await set.waitForPrimary();
    client = await set.client();
    db = client.db(DB);
    await waitForData();
    const [failed] = logged('Initial sync attempt failed');
    assert.match(failed.attr.error, /rollback id/);
    await assertEqualData();
    await db.dropDatabase();
});

test('REP-2: a source that is away for too long ends the attempt, and the status tells', async () => {
    await fill('big');
    const args = ['--setParameter', 'initialSyncTransientErrorRetryPeriodSeconds=1'];
    await resync({ batchMs: 50, args });
    await waitForCopied('big', DOCS / 4);
    await set.command(source, {
        configureFailPoint: 'failCommand',
        mode: 'alwaysOn',
        data: { failCommands: ['getMore', 'replSetGetRBID'], closeConnection: true },
    });
    const reply = await waitFor(
        async () => {
            const found = await status();
            return found?.failedInitialSyncAttempts >= 1 ? found : null;
        },
        { timeoutMs: SYNC_MS_MAX, what: 'an attempt that failed' },
    );
    assert.equal(reply.maxFailedInitialSyncAttempts, 10);
    assert.match(reply.initialSyncAttempts[0].status, /away for too long/);
    assert.equal(reply.initialSyncAttempts[0].syncSource, `${source.host}:${source.fixedPort}`);
    await set.command(source, { configureFailPoint: 'failCommand', mode: 'off' });
    await waitForData();
    await assertEqualData();
    await db.dropDatabase();
});

test('REP-2: a node gives up after numInitialSyncAttempts', async () => {
    await fill('big');
    const args = [
        '--setParameter',
        'initialSyncTransientErrorRetryPeriodSeconds=0',
        '--setParameter',
        'numInitialSyncAttempts=2',
    ];
    await set.command(source, {
        configureFailPoint: 'failCommand',
        mode: 'alwaysOn',
        data: { failCommands: ['getMore'], closeConnection: true },
    });
    await resync({ batch: 10, args });
    const { code } = await member.waitEnd();
    assert.equal(code, 14);
    assert.equal(logged('Initial sync attempt failed').length, 2);
    await set.command(source, { configureFailPoint: 'failCommand', mode: 'off' });
    await member.start();
    await waitForData();
    await assertEqualData();
    await db.dropDatabase();
});

/* Writes of all kinds until told to stop. */
function startLoad() {
    let isStopped = false;
    let n = 0;
    const step = async () => {
        const c = db.collection('big');
        n++;
        await c.insertOne({ _id: `new${n}`, a: n });
        await c.updateOne({ _id: n % DOCS }, { $inc: { a: 1 }, $set: { n } });
        await c.replaceOne({ _id: (n * 7) % DOCS }, { replaced: n });
        await c.deleteOne({ _id: (n * 3) % DOCS });
        if (n % 3 === 0) await c.insertOne({ _id: (n * 2) % DOCS, again: n }).catch(() => {});
        await db.collection('log').insertOne({ n, pad: 'y'.repeat(300) });
        if (n % 5 === 0) await db.collection(`made${n}`).insertMany([{ n }, { n: n + 1 }]);
        if (n % 10 === 0) await db.collection(`made${n - 5}`).drop();
        if (n % 15 === 0)
            await db.collection(`made${n}`).rename(`renamed${n}`, { dropTarget: true });
        if (n % 20 === 0) await c.createIndex({ a: 1, n: n % 40 === 0 ? 1 : -1 });
        if (n % 40 === 5) await c.dropIndex('a_1_n_1').catch(() => {});
        if (n % 25 === 0) await db.collection('moving').rename('moved').catch(() => {});
        if (n % 25 === 12) await db.collection('moved').rename('moving').catch(() => {});
    };
    const done = (async () => {
        while (!isStopped) await step();
        return n;
    })();
    return {
        stop() {
            isStopped = true;
            return done;
        },
    };
}

test('REP-2: data are equal after an initial sync under load with outages', async () => {
    await fill('big');
    await fill('moving', 2000);
    await db.createCollection('log', { capped: true, size: 20_000 });
    await db.collection('big').createIndex({ replaced: 1 });
    await resync({ batchMs: 40 });
    const load = startLoad();
    try {
        for (let i = 0; i < 6; i++) {
            await waitFor(() => new Promise((done) => setTimeout(() => done(true), 400)));
            await set.command(source, {
                configureFailPoint: 'failCommand',
                mode: { times: 2 },
                data: { failCommands: ['find', 'getMore', 'listIndexes'], closeConnection: true },
            });
        }
        await waitForEnd();
    } finally {
        assert.ok((await load.stop()) > 50, 'there was load');
    }
    await waitForData();
    assertNoFailure();
    await assertEqualData();
    await db.dropDatabase();
});

test('REP-2: a collection renamed or dropped in the middle of its copy', async () => {
    await fill('big');
    await fill('gone', 1000);
    await resync({ batchMs: 50 });
    await waitForCopied('big', DOCS / 4);
    await db.collection('big').rename('other');
    await db.collection('big').insertOne({ _id: 'another collection' });
    await waitForData();
    assertNoFailure();
    await assertEqualData();
    await resync({ batchMs: 100 });
    await waitForCopied('other', DOCS / 4);
    await db.collection('other').drop();
    await waitForData();
    assertNoFailure();
    await assertEqualData();
    await db.dropDatabase();
});

test('REP-2: replSetSyncFrom begins anew without counting a failure', async () => {
    await fill('big');
    await resync({ batchMs: 50 });
    await waitForCopied('big', DOCS / 4);
    await set.command(member, { replSetSyncFrom: `${source.host}:${source.fixedPort}` });
    await member.waitLog(({ msg }) => msg === 'Initial sync attempt failed', 10_000);
    assert.equal(Number((await status()).failedInitialSyncAttempts), 0);
    await waitForData();
    await assertEqualData();
});

test('REP-2: the source may forget its oplog while the copy is slow', async () => {
    await stopSet();
    await startSet(['--oplogSize', '1']);
    await fill('big', 3000);
    await resync({ batchMs: 150 });
    const { initialSyncOplogStart } = await waitForCopied('big', 300);
    const oldest = async () => {
        const direct = await set.direct(source);
        const [entry] = await direct.db('local').collection('oplog.rs').find().limit(1).toArray();
        return entry.ts;
    };
    await waitFor(
        async () => {
            for (let i = 0; i < 5; i++)
                await db.collection('pad').insertOne({ pad: 'x'.repeat(100_000) });
            return (await oldest()).greaterThan(Long.fromBits(initialSyncOplogStart.low, initialSyncOplogStart.high, true));
        },
        { timeoutMs: SYNC_MS_MAX, what: 'an oplog that has forgotten the begin of the copy' },
    );
    assert.ok(copiedOf(await status(), 'big') < 3000, 'the copy is still under way');
    await waitForData();
    assertNoFailure();
    await assertEqualData();
});

test('REP-2: a source whose data come from elsewhere now is copied anew', async () => {
    await stopSet();
    await startSet([], [{ priority: 1 }, { priority: 0, votes: 0 }, { priority: 0, votes: 0 }]);
    await fill('big');
    await set.waitForReplication();
    const middle = set.members[1];
    const from = JSON.stringify({ mode: 'alwaysOn', data: { blockTimeMS: 2000 } });
    await resync({
        batchMs: 50,
        args: ['--setParameter', `failpoint.initialSync.dropped=${from}`],
    });
    await member.waitLog(({ msg }) => msg === 'Starting initial sync', 10_000);
    await set.command(member, { replSetSyncFrom: `${middle.host}:${middle.fixedPort}` });
    await waitFor(() => logged('Starting initial sync').length === 2, {
        timeoutMs: 20_000,
        what: 'another attempt',
    });
    assert.equal(logged('Starting initial sync')[1].attr.syncSource, `${middle.host}:${middle.fixedPort}`);
    await waitForCopied('big', DOCS / 4);
    await middle.stop();
    rmSync(middle.dbpath, { recursive: true });
    await middle.start();
    await waitFor(
        () => logged('Initial sync attempt failed').some(({ attr }) => /synced anew/.test(attr.error)),
        { timeoutMs: SYNC_MS_MAX, what: 'an attempt that failed' },
    );
    await waitForData();
    await assertEqualData();
});

test('REP-2: a member that is taken out of the set gives up its copy', async () => {
    await stopSet();
    await startSet();
    await fill('big');
    await resync({ batchMs: 50 });
    await waitForCopied('big', DOCS / 4);
    const { config } = await set.command(source, { replSetGetConfig: 1 });
    const [, taken] = config.members;
    const reconfig = (members) =>
        set.command(source, { replSetReconfig: { ...config, version: ++config.version, members } });
    await reconfig([config.members[0]]);
    await member.waitLog(({ msg }) => msg === 'Initial sync attempt failed', 20_000);
    await reconfig([config.members[0], taken]);
    await waitForData();
    assert.equal(logged('Starting initial sync').length, 2);
    await assertEqualData();
});

test('REP-2: an index with the simple collation stays one where the collection has another', async () => {
    await fill('french', 20, { collation: { locale: 'fr' } });
    await db.collection('french').createIndex({ a: 1 }, { collation: { locale: 'simple' } });
    await db.collection('french').createIndex({ pad: 1 });
    await resync();
    await waitForData();
    await assertEqualData();
    const [, simple, french] = await (await set.direct(member)).db(DB).collection('french').indexes();
    assert.equal(simple.collation, undefined);
    assert.equal(french.collation.locale, 'fr');
    await db.collection('french').drop();
});

test('REP-2: a transaction prepared before the window, and committed in it before the copy, is complete', async () => {
    await fill('prepared', 20);
    const begin = async (id) => {
        const session = client.startSession();
        session.startTransaction();
        await db.collection('prepared').insertOne({ _id: id }, { session });
        const ask = (command) => client.db('admin').command(command, { session });
        const { prepareTimestamp } = await ask({ prepareTransaction: 1 });
        return async () => {
            await ask({ commitTransaction: 1, commitTimestamp: prepareTimestamp });
            await session.commitTransaction();
            await session.endSession();
        };
    };
    const commitFirst = await begin('first');
    const commitSecond = await begin('second'); // the window begins with it
    await commitFirst();
    await resync();
    await waitForEnd();
    assertNoFailure();
    await commitSecond();
    await set.waitForReplication();
    await assertEqualData();
    assert.equal(await (await set.direct(member)).db(DB).collection('prepared').countDocuments({}), 22);
    await db.collection('prepared').drop();
});
