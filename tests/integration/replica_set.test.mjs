/*
 * Goal (REP-1, REP-3, OPL-1, OPL-2, NOD-2): a replica set as clients see it. Method: sets of one and
 * of three real nodes, asked by the driver: what hello and the status say, what the oplog tells,
 * concerns, fail-over planned and unplanned, bad configurations.
 */
import assert from 'node:assert/strict';
import { rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Long, Timestamp, UUID } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { MORE_TO_COME, RawConnection, msg } from '../lib/wire.mjs';
import { SHERD_BIN, Server, makeTempDir, waitFor } from '../lib/server.mjs';

describe('a set of one member', () => {
    let set, client, db;
    before(async () => {
        set = await startReplicaSet({ members: 1 });
        client = await set.client();
        db = client.db('one');
    });
    after(() => set.remove());

    test('REP-1: hello tells the set', async () => {
        const hello = await client.db('admin').command({ hello: 1 });
        assert.equal(hello.setName, 'rs0');
        assert.equal(hello.isWritablePrimary, true);
        assert.equal(hello.me, hello.primary);
        assert.deepEqual(hello.hosts, [hello.me]);
        assert.equal(hello.setVersion, 1);
        assert.ok(hello.lastWrite.opTime.ts instanceof Timestamp);
    });

    test('REP-1: replies of writes tell their time in the oplog and who was primary', async () => {
        const told = client.db('told'); // entries of the other database are counted below
        const { electionId } = await client.db('admin').command({ hello: 1 });
        const reply = await told.command({ insert: 'c', documents: [{ _id: 1 }] });
        assert.ok(reply.opTime.ts.equals(reply.operationTime));
        assert.equal(Number(reply.opTime.t), 1);
        assert.ok(reply.electionId.equals(electionId));
        // What changes nothing tells a time at which all is there that it may have seen.
        const unchanged = await told.command({ update: 'c', updates: [{ q: { _id: 1 }, u: { $set: { _id: 1 } } }] });
        assert.ok(unchanged.opTime.ts.greaterThanOrEqual(reply.opTime.ts));
        const deleted = await told.command({ delete: 'c', deletes: [{ q: {}, limit: 0 }] });
        assert.ok(deleted.opTime.ts.greaterThan(reply.opTime.ts));
    });

    test('OPL-1: entries have the form that tools know', async () => {
        const coll = db.collection('entries');
        await coll.insertOne({ _id: 1, a: 1 });
        await coll.insertMany([{ _id: 2 }, { _id: 3 }]);
        await coll.updateOne({ _id: 1 }, { $set: { b: 2 } });
        await coll.replaceOne({ _id: 2 }, { c: 'a whole document' });
        await coll.findOneAndReplace({ _id: 2 }, { c: 'a whole document', d: 1 });
        await coll.findOneAndUpdate({ _id: 2 }, [{ $set: { e: 1 } }]);
        await coll.updateOne({ _id: 1 }, { $set: { b: 2 } }); // changes nothing: no entry
        await coll.deleteOne({ _id: 3 });
        await coll.createIndex({ a: 1 });
        await coll.drop();
        const entries = await client
            .db('local')
            .collection('oplog.rs')
            .find({ ns: { $in: ['one.entries', 'one.$cmd'] }, 'o.create': { $ne: 'told' } })
            .toArray();
        const short = entries.map(({ op, o }) => [op, Object.keys(o)[0]].join(' '));
        assert.deepEqual(short.slice(0, 9), [
            'c create',
            'i _id',
            'i _id',
            'i _id',
            'u $v',
            'u _id',
            'u _id',
            'u $v',
            'd _id',
        ]);
        assert.equal(short.at(-1), 'c drop');
        for (const entry of entries) {
            assert.ok(entry.ts instanceof Timestamp);
            assert.ok(Long.isLong(entry.t) || typeof entry.t === 'number');
            assert.equal(Number(entry.v), 2);
            assert.ok(entry.wall instanceof Date);
            assert.ok(entry.ui !== undefined);
        }
        const update = entries.find(({ op }) => op === 'u');
        assert.deepEqual(update.o, { $v: 2, diff: { i: { b: 2 } } });
        assert.deepEqual(update.o2, { _id: 1 });
        const [, whole, again, piped] = entries.filter(({ op }) => op === 'u');
        assert.deepEqual(whole.o, { _id: 2, c: 'a whole document' });
        assert.deepEqual(whole.o2, { _id: 2 });
        assert.deepEqual(again.o, { _id: 2, c: 'a whole document', d: 1 });
        assert.deepEqual(piped.o, { $v: 2, diff: { i: { e: 1 } } });
        for (let i = 1; i < entries.length; i++)
            assert.ok(entries[i].ts.greaterThan(entries[i - 1].ts), 'timestamps rise');
    });

    test('STX-6, STX-7: many inserts have entries of their own, grouped writes have one', async () => {
        const coll = db.collection('grouped');
        await db.createCollection('capped', { capped: true, size: 4096, max: 2 });
        await db.collection('capped').insertMany([{ _id: 1 }, { _id: 2 }]);
        await db.collection('capped').insertOne({ _id: 3 }); // and the oldest goes
        await coll.insertMany(Array.from({ length: 10 }, (_, i) => ({ _id: i })));
        const oplog = client.db('local').collection('oplog.rs');
        assert.equal(await oplog.countDocuments({ ns: 'one.grouped', op: 'i' }), 10);
        const [last] = await oplog.find({ 'o.applyOps': { $exists: true } }).sort({ $natural: -1 }).limit(1).toArray();
        assert.deepEqual(
            last.o.applyOps.map(({ op, o }) => [op, o._id]),
            [
                ['i', 3],
                ['d', 1],
            ],
        );
    });

    test('OPL-2: a tailing reader gets every entry in order, also under concurrent writers', async () => {
        const coll = db.collection('tail');
        await coll.insertOne({ _id: 'first' });
        const oplog = client.db('local').collection('oplog.rs');
        const [start] = await oplog.find({ ns: 'one.tail' }).toArray();
        const cursor = oplog.find(
            { ts: { $gt: start.ts }, ns: 'one.tail', op: 'i' },
            { tailable: true, awaitData: true, maxAwaitTimeMS: 500 },
        );
        const writers = [0, 1, 2, 3].map(async (w) => {
            for (let i = 0; i < 200; i++) await coll.insertOne({ _id: `${w}-${i}` });
        });
        const seen = [];
        while (seen.length < 800) {
            const entry = await cursor.next();
            if (entry !== null) seen.push(entry);
        }
        await Promise.all(writers);
        await cursor.close();
        assert.equal(new Set(seen.map(({ o }) => o._id)).size, 800);
        for (let i = 1; i < seen.length; i++) assert.ok(seen[i].ts.greaterThan(seen[i - 1].ts));
    });

    test('REP-3: reads at a cluster time see that time', async () => {
        const coll = db.collection('times');
        await coll.insertOne({ _id: 1, v: 'old' });
        const { operationTime } = await db.command({ find: 'times' });
        await coll.updateOne({ _id: 1 }, { $set: { v: 'new' } });
        const at = async (readConcern) =>
            (await db.command({ find: 'times', readConcern })).cursor.firstBatch[0].v;
        assert.equal(await at({ level: 'snapshot', atClusterTime: operationTime }), 'old');
        assert.equal(await at({ level: 'majority' }), 'new');
        assert.equal(await at({ level: 'linearizable' }), 'new');
        assert.equal(await at({ level: 'local', afterClusterTime: operationTime }), 'new');
        const future = new Timestamp({ t: operationTime.getHighBits() + 1000, i: 1 });
        await fails(() => at({ level: 'local', afterClusterTime: future }), 72);
        await fails(() => at({ level: 'local', atClusterTime: operationTime }), 72);
    });

    test('REP-3: a cursor keeps the time of its first batch', async () => {
        const coll = db.collection('batches');
        await coll.insertMany(Array.from({ length: 10 }, (_, i) => ({ _id: i, v: 'old' })));
        const readConcern = { level: 'snapshot' };
        const { cursor } = await db.command({ find: 'batches', batchSize: 2, readConcern });
        await coll.updateMany({}, { $set: { v: 'new' } });
        await coll.deleteMany({ _id: { $gt: 7 } });
        const rest = await db.command({ getMore: cursor.id, collection: 'batches' });
        const seen = [...cursor.firstBatch, ...rest.cursor.nextBatch];
        assert.equal(seen.length, 10);
        assert.ok(seen.every(({ v }) => v === 'old'));
    });

    test('REP-3: replies of snapshot reads say at which time they were', async () => {
        const coll = db.collection('told');
        await coll.insertMany(Array.from({ length: 5 }, (_, _id) => ({ _id, v: 'old' })), { writeConcern: { w: 'majority' } });
        const readConcern = { level: 'snapshot' };
        const { cursor } = await db.command({ find: 'told', batchSize: 2, readConcern });
        assert.ok(cursor.atClusterTime instanceof Timestamp);
        const more = await db.command({ getMore: cursor.id, collection: 'told' });
        assert.deepEqual(more.cursor.atClusterTime, cursor.atClusterTime);
        const aggregated = await db.command({ aggregate: 'told', pipeline: [], cursor: {}, readConcern });
        assert.ok(aggregated.cursor.atClusterTime instanceof Timestamp);
        const distinct = await db.command({ distinct: 'told', key: 'v', readConcern });
        assert.ok(distinct.atClusterTime instanceof Timestamp);
        const asked = { level: 'snapshot', atClusterTime: cursor.atClusterTime };
        const again = await db.command({ distinct: 'told', key: 'v', readConcern: asked });
        assert.deepEqual(again.atClusterTime, cursor.atClusterTime);
        const plain = await db.command({ find: 'told', readConcern: { level: 'majority' } });
        assert.equal(plain.cursor.atClusterTime, undefined);

        const session = client.startSession({ snapshot: true });
        try {
            assert.equal((await coll.findOne({ _id: 1 }, { session })).v, 'old');
            await coll.updateMany({}, { $set: { v: 'new' } }, { writeConcern: { w: 'majority' } });
            assert.equal((await coll.findOne({ _id: 1 }, { session })).v, 'old');
            assert.deepEqual(await coll.distinct('v', {}, { session }), ['old']);
            assert.equal((await coll.aggregate([{ $match: { v: 'old' } }], { session }).toArray()).length, 5);
            assert.equal((await coll.findOne({ _id: 1 })).v, 'new');
        } finally {
            await session.endSession();
        }
    });

    test('REP-3: how far back reads at a time may go is a parameter', async () => {
        const admin = client.db('admin');
        const set = (secs) => admin.command({ setParameter: 1, minSnapshotHistoryWindowInSeconds: secs });
        const { was } = await set(3600);
        assert.equal(was, 10);
        const coll = db.collection('history');
        await coll.insertOne({ _id: 1, v: 'old' });
        const { operationTime } = await db.command({ find: 'history' });
        const read = async () => {
            const readConcern = { level: 'snapshot', atClusterTime: operationTime };
            return (await db.command({ find: 'history', readConcern })).cursor.firstBatch[0].v;
        };
        const writeFor = async (ms) => {
            for (const end = Date.now() + ms; Date.now() < end; await sleep(50))
                await coll.updateOne({ _id: 1 }, { $inc: { n: 1 }, $set: { v: 'new' } }, { writeConcern: { w: 'majority' } });
        };
        await writeFor(2500);
        assert.equal(await read(), 'old');
        await set(1);
        await writeFor(500);
        await fails(read, 239, { name: 'SnapshotTooOld' });
        await fails(() => set(-1), 2);
        await set(was);
    });

    test('OPL-2: a reader that begins at the end waits there', async () => {
        const local = client.db('local');
        const { operationTime } = await db.command({ insert: 'waits', documents: [{ _id: 1 }] });
        const { cursor } = await local.command({
            find: 'oplog.rs',
            filter: { ts: { $gt: operationTime } },
            tailable: true,
            awaitData: true,
        });
        assert.notEqual(Number(cursor.id), 0);
        await db.collection('waits').insertOne({ _id: 2 });
        const more = await local.command({ getMore: cursor.id, collection: 'oplog.rs', maxTimeMS: 5000 });
        assert.equal(more.cursor.nextBatch.find(({ ns }) => ns === 'one.waits').o._id, 2);
        await local.command({ killCursors: 'oplog.rs', cursors: [cursor.id] });
    });

    test('REP-3: write concerns that cannot be met are told apart', async () => {
        const coll = db.collection('concerns');
        const result = async (writeConcern) => {
            try {
                await db.command({ insert: 'concerns', documents: [{}], writeConcern });
                return undefined;
            } catch (error) {
                return error.errorResponse.writeConcernError;
            }
        };
        assert.equal(await result({ w: 1 }), undefined);
        assert.equal(await result({ w: 'majority' }), undefined);
        assert.equal(await result({ w: 1, j: true }), undefined);
        const unmet = await result({ w: 2, wtimeout: 100 });
        assert.equal(unmet.code, 100);
        assert.deepEqual(unmet.errInfo.writeConcern, { w: 2, wtimeout: 100, provenance: 'clientSupplied' });
        assert.equal((await result({ w: 'nowhere', wtimeout: 100 })).code, 79);
        assert.equal(await coll.countDocuments({}), 5, 'the writes themselves are done');
    });

    test('REP-3: the default concerns of the set', async () => {
        const admin = client.db('admin');
        const implicit = await admin.command({ getDefaultRWConcern: 1 });
        assert.deepEqual(implicit.defaultWriteConcern, { w: 'majority', wtimeout: 0 });
        assert.equal(implicit.defaultWriteConcernSource, 'implicit');
        assert.equal((await admin.command({ replSetStepUp: 1 })).ok, 1, 'it is the primary already');
        await fails(() => admin.command({ setDefaultRWConcern: 1 }), 2);
        await fails(() => admin.command({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 0 } }), 2);
        await fails(() => admin.command({ setDefaultRWConcern: 1, defaultWriteConcern: { j: true } }), 2);
        for (const malformed of [{ w: -1 }, { w: 51 }, { w: [] }, { w: 1, x: 1 }, { w: 1, wtimeout: Long.fromString('9999999999') }])
            await fails(() => admin.command({ setDefaultRWConcern: 1, defaultWriteConcern: malformed }), 9);
        await fails(() => admin.command({ setDefaultRWConcern: 1, defaultReadConcern: { level: 'snapshot' } }), 2);
        // Empty ones mean none; a write concern stays once it is set.
        await admin.command({ setDefaultRWConcern: 1, defaultReadConcern: {}, defaultWriteConcern: {} });
        await admin.command({ setDefaultRWConcern: 1, defaultReadConcern: { level: 'majority' } });
        const { operationTime } = await db.command({ find: 'defaults' });
        const { optimes } = await admin.command({ replSetGetStatus: 1 });
        assert.ok(operationTime.lessThanOrEqual(optimes.lastCommittedOpTime.ts), 'a majority read');
        await admin.command({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 1 } });
        const set = await admin.command({ getDefaultRWConcern: 1 });
        assert.deepEqual(set.defaultWriteConcern, { w: 1, wtimeout: 0 });
        assert.equal(set.defaultWriteConcernSource, 'global');
        await admin.command({
            setDefaultRWConcern: 1,
            defaultWriteConcern: { w: 2, wtimeout: 50 },
            writeConcern: { w: 1 },
        });
        await fails(() => db.command({ insert: 'defaults', documents: [{}] }), 100);
        await admin.command({
            setDefaultRWConcern: 1,
            defaultWriteConcern: { w: 'majority', wtimeout: 0 },
            writeConcern: { w: 1 },
        });
    });

    test('OPL-2: a scan of the oplog says up to which time it has read, also past what its filter leaves out', async () => {
        const local = client.db('local');
        const coll = db.collection('scanned');
        await coll.insertMany([{ _id: 1 }, { _id: 2 }]);
        const scan = (more) =>
            local.command({ find: 'oplog.rs', hint: { $natural: 1 }, $_requestResumeToken: true, ...more });
        const filter = { ns: 'one.scanned', op: 'i' };
        const first = (await scan({ filter, batchSize: 1 })).cursor;
        const ts = first.postBatchResumeToken.ts;
        assert.deepEqual(ts, first.firstBatch[0].ts);
        const rest = (await scan({ filter: { ...filter, ts: { $gt: ts } } })).cursor;
        assert.deepEqual(rest.firstBatch.map(({ o }) => o._id), [2]);
        assert.ok(rest.postBatchResumeToken.ts.greaterThanOrEqual(rest.firstBatch[0].ts));
        const none = { filter: { ns: 'one.nothing' }, tailable: true, awaitData: true };
        const { cursor } = await scan(none);
        assert.deepEqual(cursor.firstBatch, []);
        assert.ok(cursor.postBatchResumeToken.ts.greaterThanOrEqual(rest.firstBatch[0].ts));
        await coll.insertOne({ _id: 3 });
        const more = await local.command({ getMore: cursor.id, collection: 'oplog.rs', maxTimeMS: 50 });
        assert.deepEqual(more.cursor.nextBatch, []);
        assert.ok(more.cursor.postBatchResumeToken.ts.greaterThan(cursor.postBatchResumeToken.ts));
        await fails(() => scan({ $_resumeAfter: { ts } }), 2);
    });

    test('REP-3: a reply says on request what it has seen, and reads wait for that', async () => {
        const run = (command) => db.command({ ...command, $replData: 1 });
        const { $replData: written } = await run({ insert: 'seen', documents: [{}], writeConcern: { w: 'majority' } });
        const after = (level) => run({ find: 'seen', readConcern: { level, afterOpTime: written.lastOpVisible } });
        for (const level of ['local', 'majority']) {
            const { cursor, $replData: seen } = await after(level);
            assert.equal(cursor.firstBatch.length, 1);
            assert.ok(seen.lastOpVisible.ts.greaterThanOrEqual(written.lastOpVisible.ts));
        }
        assert.equal((await db.command({ find: 'seen' })).$replData, undefined);
        const { ts, t } = written.lastOpVisible;
        const later = { ts: new Timestamp({ t: ts.high + 1000, i: 1 }), t };
        const soon = (readConcern) => db.command({ find: 'seen', maxTimeMS: 50, readConcern });
        await fails(() => soon({ afterOpTime: later }), 50);
        await fails(() => soon({ afterOpTime: { ts, t: Number(t) + 1 } }), 50);
        await fails(() => soon({ afterOpTime: later, afterClusterTime: ts }), 72);
        await fails(() => soon({ level: 'snapshot', afterOpTime: later }), 72);
        await fails(() => soon({ afterOpTime: 1 }), 14);
    });

    test('REP-1: each change of the state wakes clients once', async () => {
        const admin = client.db('admin');
        const before = (await admin.command({ hello: 1 })).topologyVersion;
        await admin.command({ replSetStepDown: 1, force: true, secondaryCatchUpPeriodSecs: 0 });
        await set.waitForPrimary();
        const { topologyVersion: now } = await admin.command({ hello: 1 });
        /* Writes end, it is a secondary; it is elected, the configuration has its term, writes are taken. */
        assert.equal(Number(now.counter) - Number(before.counter), 5);
    });

    test('DUR-2: a restart comes back with all writes, by checkpoint and oplog', async () => {
        const coll = db.collection('durable');
        const [member] = set.members;
        await coll.insertMany(Array.from({ length: 500 }, (_, i) => ({ _id: i, a: [i, i + 1] })));
        await coll.createIndex({ a: 1 });
        await coll.updateMany({ _id: { $lt: 100 } }, { $set: { b: 1 } });
        await coll.deleteMany({ _id: { $gte: 450 } });
        await coll.insertOne({ _id: 'last' }, { writeConcern: { w: 'majority' } });
        await member.kill();
        await member.start();
        await set.waitForPrimary();
        assert.equal(await coll.countDocuments({}), 451);
        assert.equal(await coll.countDocuments({ b: 1 }), 100);
        assert.equal(await coll.countDocuments({ a: 10 }, { hint: { a: 1 } }), 2);
        const { valid } = await db.command({ validate: 'durable', full: true });
        assert.equal(valid, true);
    });

    test('bad input gets the code of MongoDB and changes nothing', async () => {
        const admin = client.db('admin');
        const { config } = await admin.command({ replSetGetConfig: 1 });
        await fails(() => admin.command({ replSetInitiate: config }), 23);
        const change = (edit) => {
            const next = structuredClone({ ...config, version: config.version + 1 });
            next.settings.replicaSetId = config.settings.replicaSetId;
            edit(next);
            return () => admin.command({ replSetReconfig: next });
        };
        await fails(change((c) => c.members.push({ ...c.members[0], _id: 1 })), 93); // same host twice
        await fails(change((c) => (c.members[0].priority = 2000)), 93);
        await fails(change((c) => (c.members[0].nonsense = 1)), 93);
        await fails(change((c) => (c.members = [])), 93);
        await fails(change((c) => (c.version = 0)), 93);
        await fails(change((c) => Object.assign(c.members[0], { buildIndexes: false, priority: 0 })), 93);
        const another = { _id: 1, host: '127.0.0.1:1', votes: 0, priority: 0, buildIndexes: false };
        await fails(change((c) => c.members.push({ ...another, priority: 1, votes: 1 })), 93);
        await fails(change((c) => (c._id = 'other')), 103);
        await fails(change((c) => (c.version = config.version)), 103);
        assert.equal((await admin.command({ replSetGetConfig: 1 })).config.version, config.version);
        await fails(() => admin.command({ replSetStepDown: 1, secondaryCatchUpPeriodSecs: 1 }), 262);
        await fails(() => admin.command({ shutdown: 1, timeoutSecs: 1 }), 262); // nobody takes over
        await fails(() => admin.command({ replSetSyncFrom: 'nowhere:1' }), 95);
    });
});

test('REP-1: a new set does not wait for the election time-out', async () => {
    const set = await startReplicaSet({ settings: { electionTimeoutMillis: 60_000 } });
    await set.waitForPrimary();
    await set.remove();
});

describe('a set of three members', () => {
    let set, client;
    before(async () => {
        set = await startReplicaSet({ members: 3 });
        client = await set.client();
    });
    after(() => set.remove());

    test('REP-1: replSetGetStatus tells of the election: the primary its own, others their vote', async () => {
        await client.db('elected').collection('c').insertOne({}, { writeConcern: { w: 'majority' } });
        const status = await client.db('admin').command({ replSetGetStatus: 1 });
        const won = status.electionCandidateMetrics;
        assert.equal(Number(won.electionTerm), Number(status.term));
        assert.ok(won.wMajorityWriteAvailabilityDate >= won.lastElectionDate);
        assert.equal(status.electionParticipantMetrics, undefined);
    });

    test('REP-1: a reconfiguration leaves a note in the oplog', async () => {
        const admin = client.db('admin');
        const { config } = await admin.command({ replSetGetConfig: 1 });
        config.version++;
        config.members[0].host = ` ${config.members[0].host} `; /* blanks are not meant */
        await admin.command({ replSetReconfig: config });
        const note = { op: 'n', 'o.msg': 'Reconfig set', 'o.version': config.version };
        assert.ok(await client.db('local').collection('oplog.rs').findOne(note));
    });

    test('REP-3: stopReplProducer stops a member from fetching, and dropDatabase waits for a majority', async () => {
        await whileStopped(async () => {
            await client.db('gone').collection('c').insertOne({}, { writeConcern: { w: 1 } });
            const dropped = client.db('gone').command({ dropDatabase: 1, writeConcern: { w: 1, wtimeout: 200 } });
            const failure = await dropped.then(
                (reply) => reply.writeConcernError,
                (error) => error.errorResponse.writeConcernError,
            );
            assert.deepEqual([failure.code, failure.errInfo.wtimeout], [64, true]);
        });
    });

    /* The members other than the primary fetch nothing while `work` runs. */
    async function whileStopped(work) {
        const stopped = [];
        for (const member of await set.secondaries()) stopped.push(await set.direct(member));
        const failpoint = (mode) =>
            Promise.all(stopped.map((c) => c.db('admin').command({ configureFailPoint: 'stopReplProducer', mode })));
        const before = await failpoint('alwaysOn');
        try {
            for (const [i, c] of stopped.entries())
                await c.db('admin').command({ waitForFailPoint: 'stopReplProducer', timesEntered: Number(before[i].count) + 1 });
            return await work();
        } finally {
            await failpoint('off');
            for (const c of stopped) await c.close();
            await set.waitForReplication();
        }
    }

    test('REP-3: a majority read of the oplog ends at the commit point, in both directions', async () => {
        const coll = client.db('committed').collection('c');
        await coll.insertOne({ _id: 0 }, { writeConcern: { w: 3 } });
        const seen = async (level, direction) => {
            const oplog = client.db('local').collection('oplog.rs', { readConcern: { level } });
            const entries = await oplog.find({ ns: 'committed.c' }).sort({ $natural: direction }).toArray();
            return entries.map(({ o }) => o._id).sort();
        };
        await waitFor(async () => (await seen('majority', 1)).length === 1);
        await whileStopped(async () => {
            await coll.insertMany([{ _id: 1 }, { _id: 2 }], { writeConcern: { w: 1 } });
            for (const direction of [1, -1]) {
                assert.deepEqual(await seen('local', direction), [0, 1, 2]);
                assert.deepEqual(await seen('majority', direction), [0]);
            }
            const last = { find: 'oplog.rs', sort: { $natural: -1 }, limit: 1, readConcern: { level: 'majority' } };
            const { cursor } = await client.db('local').command(last);
            assert.notEqual(cursor.firstBatch[0].o._id, 2);
        });
        for (const direction of [1, -1])
            await waitFor(async () => (await seen('majority', direction)).length === 3);
    });

    test('SES-4: "no such transaction" is final only when the write concern of the commit is met', async () => {
        const primary = await set.findPrimary();
        const connection = await RawConnection.open({ port: primary.port, host: '127.0.0.1' });
        const run = async (command) => (await connection.roundTrip(msg({ ...command, $db: command.$db ?? 'admin' }))).document;
        const end = { lsid: { id: new UUID() }, txnNumber: Long.fromNumber(1), autocommit: false };
        const majority = { w: 'majority', wtimeout: 200 };
        await client.db('ended').collection('c').insertOne({}, { writeConcern: { w: 3 } });
        const begun = await run({ insert: 'c', documents: [{}], $db: 'ended', startTransaction: true, ...end });
        assert.equal(begun.ok, 1, begun.errmsg);
        assert.equal((await run({ abortTransaction: 1, ...end })).ok, 1);
        await whileStopped(async () => {
            for (const name of ['commitTransaction', 'abortTransaction']) {
                const late = await run({ [name]: 1, ...end, writeConcern: majority });
                assert.deepEqual([late.code, late.writeConcernError?.code], [251, 64]);
                assert.equal(late.errorLabels, undefined);
                const once = await run({ [name]: 1, ...end, writeConcern: { w: 1 } });
                assert.deepEqual([once.code, once.writeConcernError], [251, undefined]);
                assert.deepEqual(once.errorLabels, ['TransientTransactionError']);
            }
        });
        const sure = await run({ commitTransaction: 1, ...end, writeConcern: { w: 'majority' } });
        assert.deepEqual([sure.code, sure.writeConcernError], [251, undefined]);
        assert.deepEqual(sure.errorLabels, ['TransientTransactionError']);
        connection.socket.destroy();
    });

    test('REP-1: a secondary closes the connection of an unacknowledged write, and counts it', async () => {
        const [secondary] = await set.secondaries();
        const direct = await set.direct(secondary);
        const counted = async () =>
            (await direct.db('admin').command({ serverStatus: 1 })).metrics.repl.network.notPrimaryUnacknowledgedWrites;
        const before = Number(await counted());
        const quiet = { writeConcern: { w: 0 }, $db: 'quiet' };
        const writes = [
            { insert: 'c', documents: [{}] },
            { update: 'c', updates: [{ q: {}, u: { $set: { a: 1 } } }] },
            { delete: 'c', deletes: [{ q: {}, limit: 0 }] },
        ];
        for (const write of writes) {
            const connection = await RawConnection.open({ port: secondary.port, host: '127.0.0.1' });
            connection.write(msg({ ...write, ...quiet }, { flags: MORE_TO_COME }));
            assert.equal(await connection.receive(), null);
        }
        assert.equal(Number(await counted()), before + writes.length);
        /* What fails for other reasons, or only reads, is no sign of a wrong address. */
        const connection = await RawConnection.open({ port: secondary.port, host: '127.0.0.1' });
        connection.write(msg({ insert: 'c', nonsense: 1, ...quiet }, { flags: MORE_TO_COME }));
        connection.write(msg({ find: 'c', $db: 'quiet' }, { flags: MORE_TO_COME }));
        assert.equal((await connection.roundTrip(msg({ ping: 1, $db: 'admin' }))).document.ok, 1);
        connection.socket.destroy();
        assert.equal(Number(await counted()), before + writes.length);
        await direct.close();
    });

    async function everywhere(read) {
        await set.waitForReplication();
        const results = [];
        for (const member of set.members) {
            const direct = await set.direct(member);
            results.push(await read(direct));
            await direct.close();
        }
        return results;
    }

    test('REP-2: all members have the same data, indexes and collections', async () => {
        const db = client.db('same');
        await db.createCollection('a', { collation: { locale: 'en' } });
        await db.createCollection('clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } });
        await db.collection('clustered').insertMany([{ _id: 1 }, { _id: 'two' }]);
        const a = db.collection('a');
        await a.insertMany(Array.from({ length: 300 }, (_, i) => ({ _id: i, tags: [i % 7, 'x'] })));
        await a.createIndex({ tags: 1 });
        await a.createIndex({ u: 1 }, { unique: true, sparse: true });
        await a.updateMany({ _id: { $lt: 50 } }, { $push: { tags: 'y' } });
        await a.deleteMany({ _id: { $gte: 280 } });
        await db.createCollection('view', { viewOn: 'a', pipeline: [{ $match: { tags: 'y' } }] });
        await db.collection('gone').insertOne({});
        await db.collection('gone').drop();
        await db.collection('before').insertOne({ _id: 1 });
        await db.collection('before').rename('after');
        await client.db('dropped').collection('x').insertOne({});
        await client.db('dropped').dropDatabase();
        const found = await everywhere(async (direct) => {
            const there = direct.db('same');
            const { md5 } = await there.command({ dbHash: 1 });
            const { valid } = await there.command({ validate: 'a', full: true });
            const indexes = (await there.collection('a').indexes()).map(({ name }) => name).sort();
            const names = (await there.listCollections().toArray()).map(({ name }) => name).sort();
            const dbs = (await direct.db('admin').command({ listDatabases: 1, nameOnly: true })).databases;
            return {
                md5,
                valid,
                indexes,
                names,
                inView: await there.collection('view').countDocuments(),
                dropped: dbs.some(({ name }) => name === 'dropped'),
            };
        });
        for (const one of found) assert.deepEqual(one, found[0]);
        assert.equal(found[0].valid, true);
        assert.equal(found[0].inView, 50);
        assert.equal(found[0].dropped, false);
        assert.deepEqual(found[0].names, ['a', 'after', 'clustered', 'system.views', 'view']);
    });

    test('REP-3: secondaries serve reads that allow it and refuse the rest', async () => {
        await client.db('reads').collection('x').insertOne({ _id: 1 }, { writeConcern: { w: 3 } });
        const [secondary] = await set.secondaries();
        const direct = await secondary.client();
        const db = direct.db('reads');
        const read = (mode) => db.command({ find: 'x', $readPreference: { mode } });
        assert.equal((await read('secondary')).cursor.firstBatch.length, 1);
        const raw = (command) => db.command(command, { readPreference: 'primary' });
        await fails(() => raw({ insert: 'x', documents: [{}] }), 10107);
        await fails(() => raw({ create: 'y' }), 10107);
        assert.equal((await raw({ explain: { find: 'x' } })).ok, 1);
        await fails(() => raw({ explain: { delete: 'x', deletes: [{ q: {}, limit: 0 }] } }), 10107);
        await fails(
            () => db.command({ find: 'x', readConcern: { level: 'linearizable' } }, { readPreference: 'secondary' }),
            10107,
        );
        await direct.close();
    });

    test('REP-1: the status names all members and how far they are', async () => {
        const status = await client.db('admin').command({ replSetGetStatus: 1 });
        assert.equal(status.members.length, 3);
        assert.deepEqual(status.members.map(({ stateStr }) => stateStr).sort(), [
            'PRIMARY',
            'SECONDARY',
            'SECONDARY',
        ]);
        assert.equal(status.majorityVoteCount, 2);
        for (const member of status.members) assert.equal(member.health, 1);
    });

    test('REP-1: a planned step-down moves the office within a moment', async () => {
        const primary = await set.waitForPrimary();
        const start = Date.now();
        const next = await set.stepDown();
        assert.notEqual(next, primary);
        assert.ok(Date.now() - start < 10_000, `took ${Date.now() - start} ms`);
        await client.db('step').collection('x').insertOne({}, { writeConcern: { w: 'majority' } });
    });

    test('REP-1: a write that does not end does not hold up a step-down', async () => {
        const primary = await set.waitForPrimary();
        const direct = await set.direct(primary);
        const failpoint = (mode) =>
            direct.db('admin').command({ configureFailPoint: 'WTWriteConflictException', mode });
        await client.db('stuck').collection('x').insertOne({ _id: 0, n: 0 });
        await failpoint('alwaysOn');
        const update = { q: { _id: 0 }, u: { $inc: { n: 1 } } };
        const stuck = assert.rejects(
            direct.db('stuck').command({ update: 'x', updates: [update], writeConcern: { w: 1 } }),
            { code: 11602 },
        );
        try {
            await sleep(100);
            assert.notEqual(await set.stepDown(), primary);
            await stuck;
        } finally {
            await failpoint('off');
        }
        assert.ok(primary.log.some(({ id }) => id === 21340), 'it was killed');
        await direct.close();
    });

    test('DUR-1: after kill -9 of the primary majority writes are there and go on', async () => {
        const coll = client.db('kill').collection('x');
        await coll.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i })), {
            writeConcern: { w: 'majority' },
        });
        const primary = await set.waitForPrimary();
        const start = Date.now();
        await primary.kill();
        await set.waitForPrimary({ other: primary });
        const writes = await set.client({ retryWrites: false });
        await waitFor(
            async () => {
                try {
                    await writes.db('kill').collection('x').insertOne({}, { writeConcern: { w: 'majority' } });
                    return true;
                } catch {
                    return false;
                }
            },
            { timeoutMs: 20_000, what: 'a majority write' },
        );
        const tookMs = Date.now() - start;
        console.error(`fail-over after kill -9 with electionTimeoutMillis 2000: ${tookMs} ms`);
        await primary.start();
        await set.waitForSecondaries();
        const counts = await everywhere((direct) => direct.db('kill').collection('x').countDocuments({}));
        assert.ok(counts.every((count) => count === counts[0] && count >= 201), String(counts));
    });

    test('REP-2: a member without data copies them', async () => {
        const [secondary] = await set.secondaries();
        await secondary.stop();
        rmSync(secondary.dbpath, { recursive: true });
        await secondary.start();
        await set.waitForSecondaries();
        const hashes = await everywhere(async (direct) => (await direct.db('same').command({ dbHash: 1 })).md5);
        assert.equal(new Set(hashes).size, 1);
    });
});

for (const isRestarted of [false, true])
    test(`REP-1: a removed member${isRestarted ? ', restarted meanwhile,' : ''} serves when it is added again`, async () => {
        const set = await startReplicaSet({ members: [{ priority: 2 }, {}, {}] });
        try {
            const client = await set.client();
            const admin = client.db('admin');
            const reconfig = async (edit) => {
                const { config } = await admin.command({ replSetGetConfig: 1 }, { promoteLongs: true });
                config.version++;
                edit(config);
                await admin.command({ replSetReconfig: config });
            };
            const member = set.members[2];
            const stateOf = async () => {
                const { ok, myState } = await set
                    .command(member, { replSetGetStatus: 1 })
                    .catch(({ code }) => ({ ok: 0, myState: code }));
                return ok === 1 ? myState : `error ${myState}`;
            };
            let removed;
            const old = await RawConnection.open({ port: member.port, host: '127.0.0.1' });
            await reconfig((config) => ([removed] = config.members.splice(2, 1)));
            assert.equal(await old.receive(20_000), null, 'its clients look for the set anew');
            await waitFor(async () => (await stateOf()) === 'error 93', {
                timeoutMs: 20_000,
                what: 'the removal',
            });
            const coll = client.db('removed').collection('c');
            await coll.insertOne({ _id: 1 }, { writeConcern: { w: 2 } });
            if (isRestarted) await member.restart();
            await reconfig((config) => config.members.push(removed));
            await coll.insertOne({ _id: 2 }, { writeConcern: { w: 3, wtimeoutMS: 30_000 } });
            await waitFor(async () => (await stateOf()) === 2, { timeoutMs: 20_000, what: 'SECONDARY' });
            await set.checkCollection('c', 'removed');
        } finally {
            await set.remove();
        }
    });

test('REP-1: a delayed member is behind by its delay', async () => {
    const set = await startReplicaSet({
        members: [{}, {}, { priority: 0, hidden: true, secondaryDelaySecs: 4 }],
    });
    try {
        const client = await set.client();
        const coll = client.db('late').collection('x');
        const start = Date.now();
        await coll.insertOne({ _id: 1 }, { writeConcern: { w: 2 } });
        const delayed = await set.direct(set.members[2]);
        const there = () => delayed.db('late').collection('x').countDocuments({});
        assert.equal(await there(), 0);
        await waitFor(async () => (await there()) === 1, { timeoutMs: 20_000, what: 'the delay' });
        assert.ok(Date.now() - start >= 4000, `after ${Date.now() - start} ms`);
        await delayed.close();
    } finally {
        await set.remove();
    }
});

test('REP-3: secondaries hear of the commit point at once', async () => {
    /* No other news comes in time: neither heartbeats nor the end of a wait for entries. */
    const set = await startReplicaSet({
        settings: { heartbeatIntervalMillis: 4000, electionTimeoutMillis: 5000 },
    });
    try {
        const client = await set.client();
        const coll = client.db('commit').collection('x');
        await coll.insertOne({}, { writeConcern: { w: 3 } });
        const session = client.startSession(); // each read waits for the write before it
        const start = Date.now();
        for (let i = 0; i < 5; i++) {
            await coll.insertOne({ _id: i }, { session, writeConcern: { w: 1 } });
            const found = await coll.findOne(
                { _id: i },
                { session, readPreference: 'secondary', readConcern: { level: 'majority' } },
            );
            assert.equal(found._id, i);
        }
        assert.ok(Date.now() - start < 3000, `5 reads in ${Date.now() - start} ms`);
        await session.endSession();
    } finally {
        await set.remove();
    }
});

test('REP-3: an oplog reader that knows an old commit point gets an empty batch, else it waits', async () => {
    const set = await startReplicaSet({ members: 1 });
    const [{ host, fixedPort }] = set.members;
    const connection = await RawConnection.open({ host, port: fixedPort });
    try {
        const $db = 'local';
        const find = { find: 'oplog.rs', tailable: true, awaitData: true, term: Long.ONE, $db };
        const readAll = async () => {
            const { cursor } = await connection.command(find);
            return cursor.id;
        };
        const more = async (id, lastKnownCommittedOpTime) => {
            const start = Date.now();
            const reply = await connection.command({
                getMore: id,
                collection: 'oplog.rs',
                maxTimeMS: 1500,
                term: Long.ONE,
                lastKnownCommittedOpTime,
                $db,
            });
            return { reply, ms: Date.now() - start };
        };
        /* The keys of cluster times are written soon after the start. */
        await waitFor(
            async () => Long.isLong((await connection.command({ ping: 1 })).$clusterTime.signature.keyId),
            { timeoutMs: 10_000, what: 'keys' },
        );
        const id = await readAll();
        const none = { ts: new Timestamp({ t: 0, i: 0 }), t: Long.fromInt(-1) };
        /* A young set still writes (keys, collections of its own): read on until it is quiet. What earlier
         * replies on the connection told counts as known, so that a quiet set makes the reader wait. */
        let waited = await more(id, none);
        for (let i = 0; i < 20 && waited.ms < 1400; i++) waited = await more(id, none);
        assert.equal(waited.reply.ok, 1, waited.reply.errmsg);
        assert.equal(waited.reply.cursor.nextBatch.length, 0);
        assert.ok(waited.ms >= 1400, `${waited.ms} ms`);
        const other = await RawConnection.open({ host, port: fixedPort });
        const wait = more(id, none);
        await other.command({ appendOplogNote: 1, data: { news: 1 } });
        const withEntry = await wait;
        assert.equal(withEntry.reply.cursor.nextBatch.length, 1);
        assert.ok(withEntry.ms < 1400);
        /* And now that it is committed: once, and not again. */
        const empty = await more(id, none);
        assert.equal(empty.reply.cursor.nextBatch.length, 0);
        const told = empty.reply.$oplogQueryData.lastOpCommitted;
        assert.ok(told.ts.greaterThanOrEqual(withEntry.reply.cursor.nextBatch[0].ts));
        assert.ok((await more(id, told)).ms >= 1400);
        assert.equal((await more(id, 1)).reply.code, 14);
        other.close();
    } finally {
        connection.close();
        await set.remove();
    }
});

test('the public package mongodb-memory-server-core starts a replica set of it', async () => {
    const { MongoMemoryReplSet } = await import('mongodb-memory-server-core');
    const directory = makeTempDir();
    const binary = join(directory, 'mongod');
    symlinkSync(SHERD_BIN, binary);
    const set = await MongoMemoryReplSet.create({
        binary: { systemBinary: binary, checkMD5: false },
        instanceOpts: [{ storageEngine: 'wiredTiger' }],
        replSet: { count: 1, storageEngine: 'wiredTiger' },
    });
    try {
        const { MongoClient } = await import('mongodb');
        const client = await MongoClient.connect(set.getUri());
        await client.db('memory').collection('x').insertOne({ _id: 1 });
        assert.equal(await client.db('memory').collection('x').countDocuments(), 1);
        await client.close();
    } finally {
        await set.stop();
    }
});

test('the primary writes the version; a member started alone adds nothing to replicated data', async () => {
    const set = await startReplicaSet({ members: [{}, { priority: 0, votes: 0 }] });
    let alone;
    try {
        const client = await set.client();
        const version = [{ _id: 'featureCompatibilityVersion', version: '7.0' }];
        const uuids = [];
        for (const member of set.members) {
            const direct = await member.client();
            const admin = direct.db('admin', { readPreference: 'secondaryPreferred' });
            await waitFor(async () => (await admin.collection('system.version').countDocuments()) === 1);
            assert.deepEqual(await admin.collection('system.version').find().toArray(), version);
            const [{ info }] = await admin.listCollections({ name: 'system.version' }).toArray();
            uuids.push(info.uuid.toString());
            assert.equal(await direct.db('local').collection('startup_log').countDocuments(), 1);
        }
        assert.equal(uuids[0], uuids[1]);
        const [entry] = await client.db('local').collection('oplog.rs').find({ ns: 'admin.system.version' }).toArray();
        assert.equal(entry.op, 'i');

        const member = set.members[1];
        await member.stop();
        alone = await new Server({ dbpath: member.dbpath }).start();
        const direct = await alone.client();
        await direct.db('admin').command({ refreshLogicalSessionCacheNow: 1 });
        assert.deepEqual(await direct.db('config').listCollections({ name: 'system.sessions' }).toArray(), []);
        assert.equal(await direct.db('local').collection('startup_log').countDocuments(), 2);
    } finally {
        await alone?.remove();
        await set.remove();
    }
});

test('a pipeline that writes, opened without a batch, writes with the first getMore and its concern', async () => {
    const set = await startReplicaSet({ members: 2 });
    try {
        const client = await set.client();
        const db = client.db('late');
        await client.db('admin').command({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 1 } });
        await db.collection('a').insertMany([{ _id: 1 }, { _id: 2 }], { writeConcern: { w: 2 } });
        for (const stage of [{ $out: 'b' }, { $merge: 'c' }]) {
            const target = Object.values(stage)[0];
            const open = (w) => db.command({
                aggregate: 'a', pipeline: [stage], cursor: { batchSize: 0 }, writeConcern: { w, wtimeout: 100 },
            });
            const { cursor } = await open(2);
            assert.notEqual(Number(cursor.id), 0);
            assert.equal(await db.collection(target).countDocuments(), 0);
            const done = await db.command({ getMore: Long.fromValue(cursor.id), collection: 'a' });
            assert.equal(Number(done.cursor.id), 0);
            assert.equal(done.writeConcernError, undefined);
            assert.equal(await db.collection(target).countDocuments(), 2);
            const tagged = await open('no such mode');
            const failed = await db.command({ getMore: Long.fromValue(tagged.cursor.id), collection: 'a' }).catch((err) => err);
            assert.equal((failed.result ?? failed).writeConcernError?.code, 79);
        }
    } finally {
        await set.remove();
    }
});

test('what operators look at: oplog, recovery and commitment', async () => {
    const set = await startReplicaSet({ members: 1 });
    try {
        const admin = (await set.client()).db('admin');
        const { oplog } = await admin.command({ serverStatus: 1, oplog: 1 });
        assert.ok(oplog.earliestOptime.lt(oplog.latestOptime));
        const { oplog: unasked, oplogTruncation } = await admin.command({ serverStatus: 1 });
        assert.equal(unasked, undefined);
        assert.equal(oplogTruncation.processingMethod, 'scanning');
        for (const name of ['totalTimeProcessingMicros', 'totalTimeTruncatingMicros', 'truncateCount'])
            assert.ok(Number(oplogTruncation[name]) >= 0, name);
        await admin.command({ fsync: 1 });
        const status = await admin.command({ replSetGetStatus: 1 });
        const { storageEngine } = await admin.command({ serverStatus: 1 });
        assert.ok(storageEngine.oldestRequiredTimestampForCrashRecovery.lte(status.lastStableRecoveryTimestamp));
        await waitFor(async () =>
            (await admin.command({ replSetGetConfig: 1, commitmentStatus: true })).commitmentStatus);
    } finally {
        await set.remove();
    }
});

test('a clean stop loses no write, however shortly before it', async () => {
    const args = ['--setParameter', 'shutdownTimeoutMillisForSignaledShutdown=100'];
    const set = await startReplicaSet({ members: 1, args });
    try {
        const [member] = set.members;
        for (let round = 0; round < 4; round++) {
            const client = await set.client();
            await waitFor(async () => (await client.db('admin').command({ hello: 1 })).isWritablePrimary);
            const coll = client.db('clean').collection('c');
            assert.equal(await coll.countDocuments(), round * 100);
            for (let i = 0; i < 100; i++) await coll.insertOne({ round, i }, { writeConcern: { w: 1, j: false } });
            await member.stop();
            await member.start();
        }
        const client = await set.client();
        assert.equal(await client.db('clean').collection('c').countDocuments(), 400);
    } finally {
        await set.remove();
    }
});

test('a member that belongs to no set yet says so to a read that waits for a majority, and does not wait', async () => {
    const server = await new Server({ args: ['--replSet', 'none'] }).start();
    const local = (await server.client()).db('local');
    for (const level of ['majority', 'snapshot'])
        await fails(() => local.command({ find: 'c', readConcern: { level } }), 94);
    await server.remove();
});

test('a standalone node refuses what needs a set', async () => {
    const server = await new Server().start();
    const client = await server.client();
    await fails(() => client.db('admin').command({ replSetGetStatus: 1 }), 76);
    await fails(() => client.db('admin').command({ replSetInitiate: {} }), 76);
    await client.close();
    await server.remove();
});

describe('a set of two members', () => {
    let set, primary, other, client;
    before(async () => {
        set = await startReplicaSet({ members: [{}, { priority: 0.5 }], settings: { electionTimeoutMillis: 10_000 } });
        primary = await set.waitForPrimary();
        other = set.members.find((member) => member !== primary);
        client = await set.client();
        await client.db('admin').command({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 1 } });
    });
    after(() => set.remove());
    const failpoint = (member, name, mode) => set.command(member, { configureFailPoint: name, mode });

    test('REP-1: an ordinary configuration may follow a forced one before its members have everything', async () => {
        const { config } = await set.command(primary, { replSetGetConfig: 1 });
        const reconfig = (members, force) =>
            set.command(primary, {
                replSetReconfig: { ...config, version: (config.version += 100_000), members },
                ...(force && { force }),
            });
        await failpoint(other, 'stopReplProducer', 'alwaysOn');
        await reconfig(config.members.slice(0, 1), true);
        config.version = Number((await set.command(primary, { replSetGetConfig: 1 })).config.version);
        await client.db('forced').collection('c').insertOne({ _id: 1 }, { writeConcern: { w: 'majority' } });
        await reconfig(config.members, true);
        config.version = Number((await set.command(primary, { replSetGetConfig: 1 })).config.version);
        await reconfig(config.members, false);
        await failpoint(other, 'stopReplProducer', 'off');
        await client.db('forced').collection('c').insertOne({ _id: 2 }, { writeConcern: { w: 2 } });
    });

    test('REP-3: a member without news of its own knows which times were given out', async () => {
        await failpoint(other, 'stopReplProducer', 'alwaysOn');
        const { operationTime } = await set.command(primary, { insert: 'c', documents: [{}] }, 'forced');
        await waitFor(async () => (await set.command(other, { ping: 1 })).$clusterTime.clusterTime.greaterThanOrEqual(operationTime), {
            timeoutMs: 10_000,
            what: 'the time of the write',
        });
        await failpoint(other, 'stopReplProducer', 'off');
    });

    test('REP-1: a member that copies data and has no oplog yet says so to who waits for a time', async () => {
        primary = await set.waitForPrimary();
        other = set.members.find((member) => member !== primary);
        await other.stop();
        rmSync(other.dbpath, { recursive: true });
        other.args.push('--setParameter', 'failpoint.initialSyncHangBeforeCreatingOplog={"mode": "alwaysOn"}');
        await other.start();
        other.args.splice(-2);
        const where = 'initialSyncHangBeforeCreatingOplog';
        await set.command(other, { waitForFailPoint: where, timesEntered: 1, maxTimeMS: 20_000 });
        const readConcern = { afterClusterTime: new Timestamp({ t: 1, i: 1 }) };
        await fails(() => set.command(other, { find: 'c', readConcern }, 'local'), 94);
        await failpoint(other, where, 'off');
        await set.waitForSecondaries();
    });

    test('REP-1: a member whose name is not known when it starts takes part as soon as it is', async () => {
        primary = await set.waitForPrimary();
        other = set.members.find((member) => member !== primary);
        await other.stop();
        other.args.push('--setParameter', 'failpoint.failIsSelfCheck={"mode": "alwaysOn"}');
        await other.start();
        other.args.splice(-2);
        await fails(() => set.command(other, { replSetGetStatus: 1 }), 93);
        await failpoint(other, 'failIsSelfCheck', 'off');
        const secondary = { replSetTest: 1, waitForMemberState: 2, timeoutMillis: 20_000 };
        await set.command(other, secondary);
        await fails(() => set.command(primary, { ...secondary, timeoutMillis: 10 }), 262);
        await client.db('forced').collection('c').insertOne({}, { writeConcern: { w: 2, wtimeoutMS: 20_000 } });
    });

    test('REP-1: the status of a member tells when the term that it voted for began', async () => {
        await set.stepDown({ secs: 3 });
        primary = await set.waitForPrimary();
        other = set.members.find((member) => member !== primary);
        await client.db('forced').collection('c').insertOne({}, { writeConcern: { w: 2 } });
        const { electionParticipantMetrics: vote } = await set.command(other, { replSetGetStatus: 1 });
        assert.ok(vote.newTermStartDate >= vote.lastVoteDate);
        assert.ok(vote.newTermAppliedDate >= vote.newTermStartDate);
    });

    test('REP-3: the modes of write concerns stay while a default that may name one is set', async () => {
        primary = await set.waitForPrimary();
        const { config } = await set.command(primary, { replSetGetConfig: 1 });
        const reconfig = (edit) => {
            config.version = Number(config.version) + 1;
            edit();
            return set.command(primary, { replSetReconfig: config });
        };
        await reconfig(() => {
            config.members.forEach((member) => (member.tags = { place: String(member._id) }));
            config.settings.getLastErrorModes = { both: { place: 2 } };
        });
        const set_ = (w) => set.command(primary, { setDefaultRWConcern: 1, defaultWriteConcern: { w } });
        await fails(() => set_('nowhere'), 79);
        const where = 'hangWhileSettingDefaultRWC';
        const entered = await set.hang(primary, where, 0);
        const setting = set_('both');
        await entered();
        await reconfig(() => (config.settings.catchUpTimeoutMillis = 1000));
        await fails(() => reconfig(() => (config.settings.getLastErrorModes = { all: { place: 2 } })), 117);
        await failpoint(primary, where, 'off');
        await setting;
        await fails(() => reconfig(() => {}), 103);
        await set_(1);
    });

    test('NOD-2: a stop may wait longer for another member than the office would be refused', async () => {
        primary = await set.waitForPrimary();
        await assert.rejects(set.command(primary, { shutdown: 1, timeoutSecs: 300 }));
        primary.signal('SIGTERM'); // who sends it does not know of the command
        assert.deepEqual(await primary.waitEnd(), { code: 0, signal: null });
    });
});

test('REP-1: a member that is elected and does not write yet can be told to step down', async () => {
    const set = await startReplicaSet({ members: [{ priority: 2 }, {}, {}], settings: { electionTimeoutMillis: 10_000 } });
    try {
        const primary = await set.waitForPrimary();
        const others = set.members.filter((member) => member !== primary);
        const [heir] = others;
        await set.waitForReplication();
        const apply = (mode) =>
            Promise.all(others.map((member) => set.command(member, { configureFailPoint: 'rsSyncApplyStop', mode })));
        await apply('alwaysOn');
        const client = await set.client();
        const coll = client.db('draining').collection('c');
        await coll.insertMany([{}, {}, {}], { writeConcern: { w: 1 } });
        const buffered = async () => (await set.command(heir, { serverStatus: 1 })).metrics.repl.buffer.count;
        await waitFor(async () => Number(await buffered()) > 0, { timeoutMs: 20_000, what: 'entries to apply' });
        await set.command(heir, { replSetStepUp: 1 });
        assert.equal((await set.hello(heir)).isWritablePrimary, false);
        await fails(() => set.command(heir, { replSetStepDown: 5 }), 262);
        await set.command(heir, { replSetStepDown: 5, force: true });
        assert.equal((await set.command(heir, { replSetGetStatus: 1 })).myState, 2);
        await apply('off');
        await set.waitForPrimary();
        await coll.insertOne({}, { writeConcern: { w: 3 } });
    } finally {
        await set.remove();
    }
});

test('DUR-3: a member does not undo by itself the writes of a longer time than rollbackTimeLimitSecs', async () => {
    const set = await startReplicaSet({ members: [{ priority: 2 }, {}, {}] });
    try {
        const old = await set.waitForPrimary();
        const others = set.members.filter((member) => member !== old);
        const client = await set.client();
        await client.db('undo').collection('c').insertOne({ _id: 0 }, { writeConcern: { w: 3 } });
        for (const member of others)
            await set.command(member, { configureFailPoint: 'stopReplProducer', mode: 'alwaysOn' });
        const insert = () => set.command(old, { insert: 'c', documents: [{}], writeConcern: { w: 1, j: true } }, 'undo');
        await insert();
        await sleep(2500); // that long is the time of the writes
        await insert();
        await old.kill();
        for (const member of others)
            await set.command(member, { configureFailPoint: 'stopReplProducer', mode: 'off' });
        await set.waitForSuccessor(old);
        old.args.push('--setParameter', 'rollbackTimeLimitSecs=1');
        await old.start();
        await waitFor(async () => (await set.command(old, { replSetGetStatus: 1 })).myState === 3, {
            timeoutMs: 20_000,
            what: 'RECOVERING',
        });
        assert.ok(old.log.some(({ id }) => id === 7300275));
        await old.stop();
        old.args.splice(-2); // a day
        await old.start();
        await set.waitForSecondaries();
        await set.checkCollection('c', 'undo');
    } finally {
        await set.remove();
    }
});
