/* What transactions do beside reading and writing: the oplog, session rows, locks, time limits, kills. */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Long, Timestamp, UUID } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { RawConnection } from '../lib/wire.mjs';

const TRANSIENT = 'TransientTransactionError';
const NO_SUCH = 251;
const LOCK_TIMEOUT = 24;
const WRITE_CONFLICT = 112;
const MAX_TIME = 50;
const majority = { writeConcern: { w: 'majority' } };

let set, member, client, db, made = 0;
before(async () => {
    set = await startReplicaSet({ members: 1 });
    [member] = set.members;
    client = await set.client();
    db = client.db('test');
});
after(() => set?.remove());

const newCollection = async (documents = []) => {
    const collection = db.collection(`c${++made}`);
    await db.createCollection(collection.collectionName, majority);
    if (documents.length > 0) await collection.insertMany(documents, majority);
    return collection;
};

/* Runs `body(session)` in a transaction and commits it. */
async function inTransaction(body, options = {}) {
    const session = client.startSession();
    try {
        session.startTransaction(options);
        const value = await body(session);
        await session.commitTransaction();
        return value;
    } finally {
        await session.endSession();
    }
}

const oplogSince = (ts) =>
    client.db('local').collection('oplog.rs').find({ ts: { $gt: ts }, op: { $ne: 'n' } }, { promoteLongs: false }).sort({ $natural: 1 }).toArray();
const hexOf = (id) => id.toString('hex').replaceAll('-', '');
const now = async () => (await client.db('admin').command({ hello: 1 })).lastWrite.opTime.ts;

/* A signal reaches the threads of a process one by one. */
const isStopped = (pid) =>
    readdirSync(`/proc/${pid}/task`).every((thread) => /\) T /.test(readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8')));

test('SES-4: currentOp shows a transaction between two statements: since when, how long it worked, and who sent the last one', async () => {
    const c = await newCollection([{ _id: 1 }]);
    const lsid = { id: new UUID() };
    const rest = { lsid, txnNumber: Long.fromNumber(1), autocommit: false };
    const rows = () =>
        client.db('admin').aggregate([{ $currentOp: {} }, { $match: { active: false, 'lsid.id': lsid.id, transaction: { $exists: true } } }]).toArray();
    const wire = await RawConnection.open({ host: member.host, port: member.port });
    await wire.command({ find: c.collectionName, $db: 'test', startTransaction: true, ...rest });
    const [first] = await rows();
    assert.equal(first.appName, undefined);
    assert.match(first.client, /^127/);
    const wide = await RawConnection.open({ host: member.host, port: member.port });
    await wide.command({ hello: 1, $db: 'admin', client: { application: { name: 'second' }, driver: { name: 'd', version: '1' }, os: { type: 'x' } } });
    await wide.command({ find: c.collectionName, $db: 'test', ...rest });
    wide.close();
    const [second] = await rows();
    assert.notEqual(Number(second.connectionId), Number(first.connectionId));
    assert.equal(second.appName, 'second');
    assert.equal(second.clientMetadata.driver.name, 'd');
    const [was, is] = [first.transaction, second.transaction];
    for (const { timeOpenMicros, timeActiveMicros, timeInactiveMicros } of [was, is])
        assert.equal(Number(timeOpenMicros), Number(timeActiveMicros) + Number(timeInactiveMicros));
    assert.ok(Number(is.timeActiveMicros) > Number(was.timeActiveMicros) && Number(was.timeActiveMicros) > 0);
    await wire.command({ abortTransaction: 1, $db: 'admin', ...rest });
    assert.deepEqual(await rows(), []);
    wire.close();
});

test('LCK-1: lockInfo and currentOp name who holds a lock, also between two statements, and who waits for it', async () => {
    const c = await newCollection([{ _id: 1 }]);
    const admin = client.db('admin');
    const session = client.startSession();
    session.startTransaction();
    await c.updateOne({ _id: 1 }, { $set: { a: 1 } }, { session });
    const idle = async () => (await admin.aggregate([{ $currentOp: {} }, { $match: { active: false, 'lsid.id': session.id.id } }]).toArray())[0];
    const { locks, waitingForLock } = await idle();
    assert.deepEqual([locks, waitingForLock], [{ ReplicationStateTransition: 'w', Global: 'w', Database: 'w', Collection: 'w' }, false]);

    const dropped = c.drop();
    const waiting = async () => (await admin.aggregate([{ $currentOp: {} }, { $match: { 'command.drop': c.collectionName, waitingForLock: true } }]).toArray())[0];
    await waitFor(async () => (await waiting()) !== undefined, { what: 'the drop to wait' });
    const op = await waiting();
    assert.equal(op.locks.Collection, 'W');
    const { lockInfo } = await admin.command({ lockInfo: 1 });
    const contended = lockInfo.filter(({ pending }) => pending.length > 0);
    assert.equal(contended.length, 1, JSON.stringify(lockInfo));
    const [{ resourceId, granted, pending }] = contended;
    assert.match(resourceId, /: Collection, /);
    assert.deepEqual(granted.map(({ mode, clientInfo }) => [mode, clientInfo.desc, hexOf(clientInfo.lsid.id)]), [['IX', 'inactive transaction', hexOf(session.id.id)]]);
    assert.deepEqual(pending.map(({ mode, clientInfo }) => [mode, clientInfo.opid]), [['X', op.opid]]);
    const asker = lockInfo.find(({ granted: holders }) => holders.some(({ clientInfo }) => clientInfo.opid === op.opid));
    assert.ok(asker, 'the drop holds locks above the collection');
    await session.commitTransaction();
    await session.endSession();
    await dropped;
    assert.deepEqual((await admin.command({ lockInfo: 1 })).lockInfo.filter(({ pending: left }) => left.length > 0), []);
});

describe('a session whose transaction is prepared', () => {
    const FAILPOINT = 'waitAfterNewStatementBlocksBehindPrepare';
    const ask = async (command) => {
        const wire = await RawConnection.open({ host: member.host, port: member.port });
        const reply = await wire.command({ ...command, $db: command.$db ?? 'test' });
        wire.close();
        return reply;
    };
    const prepare = async () => {
        const c = await newCollection();
        const identity = { lsid: { id: new UUID() }, txnNumber: Long.fromNumber(1), autocommit: false };
        const end = (command) => ask({ ...command, ...identity, ...majority, $db: 'admin' });
        await ask({ insert: c.collectionName, documents: [{ _id: 1 }], startTransaction: true, ...identity });
        const { prepareTimestamp } = await end({ prepareTransaction: 1 });
        return {
            c,
            next: { insert: c.collectionName, documents: [{ _id: 2 }], lsid: identity.lsid, txnNumber: Long.fromNumber(2) },
            commit: () => end({ commitTransaction: 1, commitTimestamp: prepareTimestamp }),
            abort: () => end({ abortTransaction: 1 }),
        };
    };
    const runBehind = async (command, endFirst) => {
        const admin = client.db('admin');
        const { count } = await admin.command({ configureFailPoint: FAILPOINT, mode: 'alwaysOn' });
        const running = ask(command);
        await admin.command({ waitForFailPoint: FAILPOINT, timesEntered: Number(count) + 1, maxTimeMS: 10_000 });
        await admin.command({ configureFailPoint: FAILPOINT, mode: 'off' });
        await endFirst();
        const reply = await running;
        assert.equal(reply.ok, 1, JSON.stringify(reply));
    };
    const idsOf = async (c) => (await c.find().sort({ _id: 1 }).toArray()).map(({ _id }) => _id);

    test('TXN-1: its next transaction waits for the end of the prepared one', async () => {
        const { c, next, commit } = await prepare();
        await runBehind({ ...next, startTransaction: true, autocommit: false }, commit);
        assert.deepEqual(await idsOf(c), [1]);
        const { lsid, txnNumber } = next;
        assert.equal((await ask({ commitTransaction: 1, lsid, txnNumber, autocommit: false, $db: 'admin' })).ok, 1);
        assert.deepEqual(await idsOf(c), [1, 2]);
    });

    test('TXN-1: so does its next retryable write', async () => {
        const { c, next, abort } = await prepare();
        await runBehind(next, abort);
        assert.deepEqual(await idsOf(c), [2]);
    });

    test('TXN-6: that wait has the time limit of the statement', async () => {
        const { c, next, commit } = await prepare();
        const reply = await ask({ ...next, maxTimeMS: 200, startTransaction: true, autocommit: false });
        assert.equal(reply.code, MAX_TIME, JSON.stringify(reply));
        await commit();
        assert.deepEqual(await idsOf(c), [1]);
    });
});

describe('reading and writing', () => {
    test('TXN-1: a transaction sees its own writes, others do not before the commit', async () => {
        const c = await newCollection([{ _id: 1, n: 1 }]);
        await inTransaction(async (session) => {
            await c.insertOne({ _id: 2 }, { session });
            await c.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
            await c.deleteOne({ _id: 2 }, { session });
            await c.insertOne({ _id: 2, again: true }, { session });
            const found = await c.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }, { session, returnDocument: 'after' });
            assert.equal(found.n, 3);
            const own = await c.find({}, { session }).sort({ _id: 1 }).toArray();
            assert.deepEqual(own, [{ _id: 1, n: 3 }, { _id: 2, again: true }]);
            const [{ count }] = await c.aggregate([{ $count: 'count' }], { session }).toArray();
            assert.equal(count, 2);
            assert.deepEqual(await c.distinct('n', {}, { session }), [3]);
            assert.deepEqual(await c.find().toArray(), [{ _id: 1, n: 1 }]);
        });
        assert.equal((await c.findOne({ _id: 1 })).n, 3);
    });

    for (const level of ['local', 'majority', 'snapshot'])
        test(`TXN-1: reads of a transaction at ${level} stay at one point in time`, async () => {
            const c = await newCollection([{ _id: 1, n: 1 }]);
            const other = await newCollection();
            await inTransaction(
                async (session) => {
                    assert.equal((await c.findOne({ _id: 1 }, { session })).n, 1);
                    await c.updateOne({ _id: 1 }, { $set: { n: 2 } }, majority);
                    await other.insertOne({ _id: 1 }, majority);
                    assert.equal((await c.findOne({ _id: 1 }, { session })).n, 1);
                    assert.equal(await other.findOne({}, { session }), null);
                },
                { readConcern: { level } },
            );
        });

    test('TXN-1: a cursor goes on inside its transaction over several batches', async () => {
        const c = await newCollection(Array.from({ length: 500 }, (_, _id) => ({ _id })));
        await inTransaction(async (session) => {
            const cursor = c.find({}, { session, batchSize: 50 });
            await cursor.next();
            await c.deleteMany({ _id: { $gte: 250 } }, majority);
            assert.equal((await cursor.toArray()).length, 499);
        });
    });

    test('TXN-1: a write outside that would be overlooked is a conflict', async () => {
        const c = await newCollection([{ _id: 1, n: 1 }]);
        const session = client.startSession();
        session.startTransaction({ readConcern: { level: 'snapshot' } });
        await c.findOne({ _id: 1 }, { session });
        await c.updateOne({ _id: 1 }, { $inc: { n: 1 } }, majority);
        await fails(c.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session }), WRITE_CONFLICT, { labels: [TRANSIENT] });
        await session.abortTransaction();
        await session.endSession();
    });

    test('TXN-1: two inserts of the same key conflict, also of a unique index', async () => {
        const c = await newCollection();
        await c.createIndex({ u: 1 }, { unique: true });
        for (const [mine, theirs] of [[{ _id: 1 }, { _id: 1 }], [{ _id: 2, u: 5 }, { _id: 3, u: 5 }]]) {
            const [one, two] = [client.startSession(), client.startSession()];
            one.startTransaction();
            two.startTransaction();
            await c.insertOne(mine, { session: one });
            await fails(c.insertOne(theirs, { session: two }), WRITE_CONFLICT, { labels: [TRANSIENT] });
            await one.commitTransaction();
            await two.abortTransaction();
            for (const session of [one, two]) await session.endSession();
        }
        assert.equal(await c.countDocuments(), 2);
        await set.checkCollection(c.collectionName);
    });

    test('TXN-1: an index that becomes multikey inside is so for all after the commit, and not after an abort', async () => {
        const c = await newCollection([{ _id: 1, a: 1 }]);
        await c.createIndex({ a: 1 });
        const session = client.startSession();
        session.startTransaction();
        await c.insertOne({ _id: 2, a: [7, 8] }, { session });
        assert.deepEqual(await c.find({ a: { $gt: 6 } }, { session }).hint({ a: 1 }).toArray(), [{ _id: 2, a: [7, 8] }]);
        await session.abortTransaction();
        await inTransaction((own) => c.insertOne({ _id: 3, a: [5, 6] }, { session: own }));
        await session.endSession();
        assert.deepEqual(await c.find({ a: { $gt: 4 } }).hint({ a: 1 }).toArray(), [{ _id: 3, a: [5, 6] }]);
        await set.checkCollection(c.collectionName);
    });

    test('TXN-1: collections and indexes made inside are there with the commit only', async () => {
        const names = [`made${++made}`, `made${++made}`];
        const session = client.startSession();
        for (const isCommitted of [false, true]) {
            session.startTransaction();
            await db.createCollection(names[0], { session });
            await db.collection(names[0]).createIndex({ a: 1 }, { session });
            await db.collection(names[0]).insertOne({ _id: 1, a: 1 }, { session });
            await db.collection(names[1]).insertOne({ _id: 1 }, { session });
            const shown = await db.listCollections({ name: { $in: names } }).toArray();
            assert.deepEqual(shown, []);
            if (isCommitted) await session.commitTransaction();
            else await session.abortTransaction();
        }
        await session.endSession();
        const shown = await db.listCollections({ name: { $in: names } }, { nameOnly: true }).toArray();
        assert.deepEqual(shown.map(({ name }) => name).sort(), names);
        assert.equal((await db.collection(names[0]).indexes()).length, 2);
        for (const name of names) await set.checkCollection(name);
    });

    test('TXN-1: a read at a given cluster time shows that time', async () => {
        const c = await newCollection([{ _id: 1, n: 1 }]);
        const { operationTime } = await db.command({ update: c.collectionName, updates: [{ q: { _id: 1 }, u: { $set: { n: 2 } } }], ...majority });
        await c.updateOne({ _id: 1 }, { $set: { n: 3 } }, majority);
        const wire = await RawConnection.open({ host: member.host, port: member.port });
        const identity = { lsid: { id: new UUID() }, txnNumber: Long.fromNumber(1), autocommit: false };
        const reply = await wire.command({
            find: c.collectionName,
            ...identity,
            startTransaction: true,
            readConcern: { level: 'snapshot', atClusterTime: operationTime },
            $db: 'test',
        });
        assert.equal(reply.cursor?.firstBatch[0].n, 2, JSON.stringify(reply));
        assert.ok(reply.cursor.atClusterTime?.equals(operationTime) ?? true);
        const later = await wire.command({ update: c.collectionName, updates: [{ q: { _id: 1 }, u: { $set: { n: 9 } } }], ...identity, $db: 'test' });
        assert.equal(later.code, WRITE_CONFLICT, JSON.stringify(later));
        wire.close();
    });
});

describe('profiler', () => {
    const newest = (of, filter) =>
        of.collection('system.profile').find(filter).sort({ $natural: -1 }).limit(20).toArray();

    test('MET-1: each update and delete of a batch is profiled alone, inside of a transaction and outside', async () => {
        const profiled = client.db('profiled');
        const c = profiled.collection('c');
        for (const isInside of [false, true]) {
            await c.deleteMany({});
            await c.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
            await profiled.command({ profile: 2 });
            const session = client.startSession();
            if (isInside) session.startTransaction();
            const run = (command) => profiled.command(command, isInside ? { session } : {});
            const u = { $set: { a: 1 } };
            await run({ update: 'c', updates: [{ q: { _id: 1 }, u }, { q: {}, u, multi: true }, { q: { _id: 9 }, u }] });
            await run({ delete: 'c', deletes: [{ q: { _id: 1 }, limit: 1 }, { q: {}, limit: 0 }] });
            if (isInside) await session.commitTransaction();
            await session.endSession();
            await profiled.command({ profile: 0 });
            const told = (await newest(profiled, { op: { $in: ['update', 'remove'] } })).slice(0, 5).reverse();
            assert.deepEqual(
                told.map(({ op, ns, command, nMatched, nModified, ndeleted }) => ({ op, ns, command, nMatched, nModified, ndeleted })),
                [
                    [{ q: { _id: 1 }, u, multi: false, upsert: false }, 1, 1],
                    [{ q: {}, u, multi: true, upsert: false }, 3, 2],
                    [{ q: { _id: 9 }, u, multi: false, upsert: false }, 0, 0],
                ]
                    .map(([command, nMatched, nModified]) => ({ op: 'update', ns: 'profiled.c', command, nMatched, nModified, ndeleted: undefined }))
                    .concat(
                        [[{ q: { _id: 1 }, limit: 1 }, 1], [{ q: {}, limit: 0 }, 2]].map(([command, ndeleted]) => ({
                            op: 'remove', ns: 'profiled.c', command, nMatched: undefined, nModified: undefined, ndeleted,
                        })),
                    ),
            );
        }
    });

    test('MET-1: what fails in a transaction is profiled with its error, and getMore with its collection', async () => {
        const profiled = client.db('profiled');
        const c = profiled.collection('d');
        await c.insertMany([{ _id: 1 }, { _id: 2 }]);
        await profiled.command({ profile: 2 });
        const session = client.startSession();
        session.startTransaction();
        assert.equal((await c.find({}, { session, batchSize: 1 }).toArray()).length, 2);
        await c.updateOne({ _id: 1 }, { $set: { a: 1 } });
        await fails(c.deleteOne({ _id: 1 }, { session }), WRITE_CONFLICT);
        await session.endSession();
        await c.insertOne({ _id: 3 });
        const again = client.startSession();
        again.startTransaction();
        await c.findOne({}, { session: again });
        await c.insertOne({ _id: 4 });
        await fails(c.insertOne({ _id: 4 }, { session: again }), WRITE_CONFLICT);
        await again.endSession();
        await profiled.command({ profile: 0 });
        const [removal] = await newest(profiled, { op: 'remove', ns: 'profiled.d' });
        assert.equal(removal.errCode, WRITE_CONFLICT);
        assert.equal(removal.ndeleted, 0);
        const [insertion] = await newest(profiled, { op: 'insert', ns: 'profiled.d' });
        assert.equal(insertion.errCode, WRITE_CONFLICT);
        assert.equal(insertion.ninserted, 0);
        const [more] = await newest(profiled, { op: 'getmore', nreturned: 1 });
        assert.equal(more.ns, 'profiled.d');
    });
});

describe('oplog and rows', () => {
    test('TXN-2: a transaction is one applyOps entry with its session, and its row says committed', async () => {
        const c = await newCollection([{ _id: 1, n: 1 }, { _id: 2 }]);
        const start = await now();
        const session = client.startSession();
        session.startTransaction();
        await c.insertOne({ _id: 3 }, { session });
        await c.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
        await c.deleteOne({ _id: 2 }, { session });
        await session.commitTransaction();
        const [entry, ...rest] = await oplogSince(start);
        assert.deepEqual(rest, []);
        assert.deepEqual([entry.op, entry.ns], ['c', 'admin.$cmd']);
        assert.deepEqual(entry.o.applyOps.map(({ op, ns }) => [op, ns]), ['i', 'u', 'd'].map((op) => [op, `test.${c.collectionName}`]));
        assert.equal(hexOf(entry.lsid.id), hexOf(session.id.id));
        assert.ok(Number(entry.txnNumber) > 0);
        assert.ok(entry.prevOpTime.ts.equals(new Timestamp({ t: 0, i: 0 })) && Number(entry.prevOpTime.t) === -1);
        const row = await client.db('config').collection('transactions').findOne({ '_id.id': session.id.id });
        assert.equal(row.state, 'committed');
        assert.ok(row.lastWriteOpTime.ts.equals(entry.ts) && Number(row.txnNum) === Number(entry.txnNumber));
        await session.endSession();
    });

    test('TXN-2: one that is aborted or only reads leaves no entry and no row', async () => {
        const c = await newCollection([{ _id: 1 }]);
        const start = await now();
        // Of a client of its own: sessions are used again, and then have a row.
        const own = await set.client();
        const mine = own.db('test').collection(c.collectionName);
        const session = own.startSession();
        session.startTransaction();
        await mine.insertOne({ _id: 2 }, { session });
        await session.abortTransaction();
        session.startTransaction();
        await mine.findOne({}, { session });
        await session.commitTransaction();
        assert.deepEqual(await oplogSince(start), []);
        assert.equal(await client.db('config').collection('transactions').findOne({ '_id.id': session.id.id }), null);
        await session.endSession();
    });

    test('TXN-5: one larger than an entry is a chain of entries, of which the last one counts', async () => {
        const c = await newCollection();
        const start = await now();
        const text = 't'.repeat(3_000_000);
        await inTransaction(async (session) => {
            for (let _id = 0; _id < 12; _id++) await c.insertOne({ _id, text }, { session });
        }, majority);
        const entries = await oplogSince(start);
        assert.ok(entries.length > 1, `${entries.length}`);
        assert.deepEqual(entries.map(({ o }) => o.partialTxn === true), entries.map((_, i) => i < entries.length - 1));
        assert.equal(Number(entries.at(-1).o.count), 12);
        for (let i = 1; i < entries.length; i++) assert.ok(entries[i].prevOpTime.ts.equals(entries[i - 1].ts));
        assert.equal(await c.countDocuments(), 12);
    });

    test('TXN-2: a commit that is sent again after a kill is answered as before', async () => {
        const alone = await startReplicaSet({ members: 1 });
        try {
            const [node] = alone.members;
            const lsid = { id: new UUID() };
            const identity = { lsid, txnNumber: Long.fromNumber(4), autocommit: false };
            const ask = async (command) => {
                const wire = await RawConnection.open({ host: node.host, port: node.port });
                const reply = await wire.command({ ...command, ...identity });
                wire.close();
                return reply;
            };
            assert.equal((await ask({ insert: 'c', documents: [{ _id: 1 }], startTransaction: true, $db: 'test' })).ok, 1);
            const commit = { commitTransaction: 1, ...majority, $db: 'admin' };
            assert.equal((await ask(commit)).ok, 1);
            await node.kill();
            await node.start();
            await alone.waitForPrimary();
            assert.equal((await ask(commit)).ok, 1);
            assert.equal((await ask({ abortTransaction: 1, $db: 'admin' })).code, 256);
            const found = await (await alone.client()).db('test').collection('c').find().toArray();
            assert.deepEqual(found, [{ _id: 1 }]);
        } finally {
            await alone.remove();
        }
    });
});

describe('locks and limits', () => {
    const setParameter = async (name, value) => (await client.db('admin').command({ setParameter: 1, [name]: value })).was;

    test('TXN-3: dropping a collection waits for transactions that use it', async () => {
        const c = await newCollection([{ _id: 1 }]);
        const session = client.startSession();
        session.startTransaction();
        await c.insertOne({ _id: 2 }, { session });
        await fails(db.command({ drop: c.collectionName, maxTimeMS: 200 }), MAX_TIME);
        let isDropped = false;
        const drop = c.drop().then(() => (isDropped = true));
        await c.insertOne({ _id: 3 }, { session });
        assert.equal(isDropped, false);
        await session.commitTransaction();
        await drop;
        await session.endSession();
    });

    test('TXN-3: a transaction does not wait long for a lock, and is told to try again', async () => {
        const c = await newCollection([{ _id: 1 }]);
        const [one, two] = [client.startSession(), client.startSession()];
        one.startTransaction();
        await c.insertOne({ _id: 2 }, { session: one });
        const drop = c.drop();
        await waitFor(
            async () => {
                const { inprog } = await client.db('admin').command({ currentOp: 1, waitingForLock: true });
                return inprog.some(({ command }) => command?.drop === c.collectionName);
            },
            { timeoutMs: 10_000, what: 'a drop that waits' },
        );
        two.startTransaction();
        await fails(c.insertOne({ _id: 3 }, { session: two }), LOCK_TIMEOUT, { labels: [TRANSIENT] });
        await two.abortTransaction();
        await one.commitTransaction();
        await drop;
        for (const session of [one, two]) await session.endSession();
    });

    test('TXN-3: an index is built while transactions go on, and has what they wrote', async () => {
        const c = await newCollection(Array.from({ length: 200 }, (_, _id) => ({ _id, a: _id })));
        const session = client.startSession();
        session.startTransaction();
        await c.insertOne({ _id: 1000, a: 5 }, { session });
        const build = c.createIndex({ a: 1 });
        await session.commitTransaction();
        await build;
        assert.equal((await c.find({ a: 5 }).hint({ a: 1 }).toArray()).length, 2);
        await session.endSession();
        await set.checkCollection(c.collectionName);
    });

    test('TXN-3: one that is older than the limit is aborted, and its locks are free', async () => {
        const c = await newCollection([{ _id: 1 }]);
        const was = await setParameter('transactionLifetimeLimitSeconds', 1);
        const session = client.startSession();
        try {
            session.startTransaction();
            await c.updateOne({ _id: 1 }, { $set: { n: 1 } }, { session });
            // Outside it waits for the end of the other.
            await c.updateOne({ _id: 1 }, { $set: { n: 2 } }, { maxTimeMS: 20_000 });
            await fails(c.findOne({}, { session }), NO_SUCH, { labels: [TRANSIENT] });
            await session.abortTransaction();
            assert.deepEqual(await c.findOne({ _id: 1 }), { _id: 1, n: 2 });
        } finally {
            await setParameter('transactionLifetimeLimitSeconds', was);
            await session.endSession();
        }
    });

    for (const [how, end] of Object.entries({
        killSessions: (session) => client.db('admin').command({ killSessions: [{ id: session.id.id }] }),
        killAllSessions: () => client.db('admin').command({ killAllSessions: [] }),
    }))
        test(`TXN-3: ${how} ends the transactions of its sessions`, async () => {
            const c = await newCollection([{ _id: 1 }]);
            const session = client.startSession();
            session.startTransaction();
            await c.updateOne({ _id: 1 }, { $set: { n: 1 } }, { session });
            await end(session);
            await c.updateOne({ _id: 1 }, { $set: { n: 2 } }, { maxTimeMS: 10_000 });
            await fails(session.commitTransaction(), NO_SUCH, { labels: [TRANSIENT] });
            await session.endSession();
            assert.equal((await c.findOne()).n, 2);
        });

    test('TXN-3: a document of very many keys does not hold up a time limit, and leaves nothing', async () => {
        const c = await newCollection();
        const indexes = Array.from({ length: 10 }, (_, i) => ({ key: { x: 1, [`f${i}`]: 1 }, name: `i${i}` }));
        await db.command({ createIndexes: c.collectionName, indexes });
        const x = Array.from({ length: 100_000 }, (_, i) => `${i}`.padStart(16, 'x'));
        const insert = { insert: c.collectionName, documents: [{ _id: 1, x }], maxTimeMS: 100 };
        const session = client.startSession();
        session.startTransaction();
        await fails(db.command(insert, { session }), MAX_TIME);
        await session.endSession();
        await fails(db.command(insert), MAX_TIME);
        assert.equal(await c.countDocuments(), 0);
        const { valid } = await db.command({ validate: c.collectionName });
        assert.equal(valid, true);
    });

    test('TXN-3: a connection that is closed leaves its transaction to whoever has the session', async () => {
        const c = await newCollection();
        const identity = { lsid: { id: new UUID() }, txnNumber: Long.fromNumber(1), autocommit: false };
        const ask = async (command) => {
            const wire = await RawConnection.open({ host: member.host, port: member.port });
            const reply = await wire.command({ ...command, ...identity });
            wire.close();
            assert.equal(reply.ok, 1, JSON.stringify(reply));
        };
        await ask({ insert: c.collectionName, documents: [{ _id: 1 }], startTransaction: true, $db: 'test' });
        await ask({ insert: c.collectionName, documents: [{ _id: 2 }], $db: 'test' });
        await ask({ commitTransaction: 1, $db: 'admin' });
        assert.equal(await c.countDocuments(), 2);
    });

    test('TXN-3: two statements of one transaction at the same time come one after the other', async () => {
        const c = await newCollection();
        const identity = { lsid: { id: new UUID() }, txnNumber: Long.fromNumber(1), autocommit: false };
        const wires = await Promise.all([1, 2, 3, 4].map(() => RawConnection.open({ host: member.host, port: member.port })));
        const insert = (wire, _id, extra = {}) =>
            wire.command({ insert: c.collectionName, documents: [{ _id }], ...identity, ...extra, $db: 'test' });
        assert.equal((await insert(wires[0], 0, { startTransaction: true })).ok, 1);
        for (let round = 0; round < 20; round++) {
            const replies = await Promise.all(wires.map((wire, i) => insert(wire, 1 + 4 * round + i)));
            for (const reply of replies) assert.equal(reply.ok, 1, JSON.stringify(reply));
        }
        assert.equal((await wires[0].command({ commitTransaction: 1, ...identity, $db: 'admin' })).ok, 1);
        for (const wire of wires) wire.close();
        assert.equal(await c.countDocuments(), 81);
    });

    test('TXN-3: transactions are counted and shown', async () => {
        const c = await newCollection();
        const stats = async () => (await client.db('admin').command({ serverStatus: 1 })).transactions;
        const before_ = await stats();
        const [one, two] = [client.startSession(), client.startSession()];
        for (const session of [one, two]) {
            session.startTransaction();
            await c.insertOne({ _id: session.id.id.toString('hex') }, { session });
        }
        const during = await stats();
        assert.equal(Number(during.currentOpen) - Number(before_.currentOpen), 2);
        assert.equal(Number(during.totalStarted) - Number(before_.totalStarted), 2);
        const { inprog } = await client.db('admin').command({ currentOp: 1, $all: true });
        const idle = inprog.filter(({ type, lsid }) => type === 'idleSession' && lsid !== undefined);
        assert.ok(idle.some(({ lsid }) => hexOf(lsid.id) === hexOf(one.id.id)), 'an open transaction in currentOp');
        await one.commitTransaction();
        await two.abortTransaction();
        const end = await stats();
        assert.equal(Number(end.totalCommitted) - Number(before_.totalCommitted), 1);
        assert.equal(Number(end.totalAborted) - Number(before_.totalAborted), 1);
        assert.equal(Number(end.currentOpen), Number(before_.currentOpen));
        for (const session of [one, two]) await session.endSession();
    });
});

describe('three members', () => {
    let three;
    before(async () => {
        three = await startReplicaSet({ members: 3, settings: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 } });
    });
    after(() => three?.remove());

    test('TXN-2: a step-down aborts what is open, and the client is told to try again', async () => {
        const own = await three.client({ retryWrites: false });
        const c = own.db('test').collection('open');
        await own.db('test').createCollection('open', majority);
        const session = own.startSession();
        session.startTransaction();
        await c.insertOne({ _id: 1 }, { session });
        await three.stepDown({ secs: 1 });
        const error = await c.insertOne({ _id: 2 }, { session }).then(
            () => assert.fail('a statement after a step-down'),
            (failure) => failure,
        );
        assert.ok(error.hasErrorLabel(TRANSIENT), String(error));
        await session.abortTransaction();
        await session.endSession();
        assert.equal(await c.countDocuments({}), 0);
        await c.insertOne({ _id: 1 }, majority);
        await three.checkCollection('open');
    });

    test('TXN-2: a commit without a majority is unknown until there is one', async () => {
        const own = await three.client({ retryWrites: false });
        const c = own.db('test').collection('waiting');
        await own.db('test').createCollection('waiting', majority);
        await three.waitForReplication();
        const primary = await three.waitForPrimary();
        const others = three.members.filter((other) => other !== primary);
        const session = own.startSession();
        session.startTransaction({ writeConcern: { w: 'majority', wtimeoutMS: 200 } });
        await c.insertOne({ _id: 1 }, { session });
        for (const other of others) other.signal('SIGSTOP');
        try {
            await waitFor(() => others.every(({ pid }) => isStopped(pid)), { timeoutMs: 5000, what: 'stopped members' });
            const error = await session.commitTransaction().then(() => assert.fail('no majority'), (failure) => failure);
            assert.ok(error.hasErrorLabel('UnknownTransactionCommitResult'), String(error));
        } finally {
            for (const other of others) other.signal('SIGCONT');
        }
        await three.waitForPrimary();
        await waitFor(() => session.commitTransaction().then(() => true, () => false), { timeoutMs: 20_000, what: 'a commit' });
        await session.endSession();
        assert.equal(await c.countDocuments({}, { readConcern: { level: 'majority' } }), 1);
        await three.checkCollection('waiting');
    });
});

test('MET-1: opLatencies counts a transaction once it has ended, for as long as it was open', async () => {
    const c = await newCollection([{ _id: 1 }]);
    const latencies = async () => (await db.command({ serverStatus: 1 })).opLatencies.transactions;
    const before = await latencies();
    const begun = Date.now();
    await inTransaction(async (session) => {
        await c.insertOne({ _id: 2 }, { session });
        await waitFor(() => Date.now() - begun > 50, { what: 'the time to pass' });
        assert.equal(Number((await latencies()).ops), Number(before.ops));
    });
    const session = client.startSession();
    session.startTransaction();
    await assert.rejects(c.insertOne({ _id: 1 }, { session }), { code: 11000 });
    const after = await latencies();
    assert.equal(Number(after.ops), Number(before.ops) + 2);
    assert.ok(Number(after.latency) - Number(before.latency) >= 50_000);
    await session.endSession();
});

test('MET-1: serverStatus counts transactions by their read concern, and shows the defaults of the set', async () => {
    const c = await newCollection([{ _id: 1 }]);
    const status = () => db.command({ serverStatus: 1 });
    const before = (await status()).readConcernCounters.transactionOps;
    await inTransaction((session) => c.findOne({}, { session }), { readConcern: { level: 'snapshot' } });
    await inTransaction(async (session) => {
        await c.findOne({}, { session });
        await c.findOne({}, { session });
    });
    const { readConcernCounters, defaultRWConcern } = await status();
    const after = readConcernCounters.transactionOps;
    assert.equal(Number(after.snapshot.withoutClusterTime), Number(before.snapshot.withoutClusterTime) + 1);
    assert.equal(Number(after.none), Number(before.none) + 1);
    assert.deepEqual(defaultRWConcern.defaultReadConcern, { level: 'local' });
    assert.equal(defaultRWConcern.defaultWriteConcern.w, 'majority');
});

test('QRY-1: $$CLUSTER_TIME is the time of the set when an operation began, the same in all of it', async () => {
    const c = await newCollection(Array.from({ length: 200 }, (_, _id) => ({ _id, at: new Timestamp({ t: 1, i: _id }) })));
    const { operationTime: before } = await db.command({ ping: 1 });
    const times = await c
        .aggregate([
            { $set: { t: '$$CLUSTER_TIME', inner: { $type: '$$CLUSTER_TIME.x' } } },
            { $lookup: { from: c.collectionName, pipeline: [{ $limit: 1 }, { $project: { t: '$$CLUSTER_TIME' } }], as: 'other' } },
        ], { batchSize: 10 })
        .toArray();
    const { operationTime: after } = await db.command({ ping: 1 });
    const [{ t }] = times;
    assert.ok(t instanceof Timestamp && t.greaterThanOrEqual(before) && t.lessThanOrEqual(after));
    assert.ok(times.every((row) => row.t.equals(t) && row.other[0].t.equals(t) && row.inner === 'missing'));

    const older = { $lt: ['$at', '$$CLUSTER_TIME'] };
    assert.equal(await c.countDocuments({ $expr: older }), 200);
    assert.equal((await c.find({ $expr: { $lt: ['$at', '$$now'] } }, { let: { now: '$$CLUSTER_TIME' } }).toArray()).length, 200);
    await c.updateOne({ _id: 1, $expr: older }, [{ $set: { seen: '$$CLUSTER_TIME' } }]);
    const shown = await c.findOneAndUpdate(
        { _id: 1 },
        { $set: { a: 1 } },
        { projection: { seen: 1, now: '$$CLUSTER_TIME' }, returnDocument: 'after' },
    );
    assert.ok(shown.seen.greaterThanOrEqual(t) && shown.now.greaterThan(shown.seen));
});
