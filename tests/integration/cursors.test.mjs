/* Cursors: batches, getMore, killCursors, tailable and awaitData, time-outs, exhaust. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Long } from 'mongodb';
import { fails, ids } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { waitFor } from '../lib/server.mjs';
import { EXHAUST_ALLOWED, MORE_TO_COME, RawConnection, msg } from '../lib/wire.mjs';

const node = useServer({ args: ['--setParameter', 'clientCursorMonitorFrequencySecs=1'] });

const numbered = (count) => Array.from({ length: count }, (_, _id) => ({ _id }));
const find = (c, more) => node.db.command({ find: c.collectionName, sort: { _id: 1 }, ...more });
const getMore = (c, id, more) =>
    node.db.command({ getMore: Long.fromValue(id), collection: c.collectionName, ...more });

test('the first batch holds 101 documents, the next ones all that fit', async () => {
    const c = await node.collection(numbered(500));
    const { cursor } = await find(c);
    assert.equal(cursor.firstBatch.length, 101);
    assert.equal(cursor.ns, `test.${c.collectionName}`);
    const next = await getMore(c, cursor.id);
    assert.equal(next.cursor.nextBatch.length, 399);
    assert.equal(Number(next.cursor.id), 0);
    assert.equal(next.cursor.ns, cursor.ns);
});

test('batchSize bounds each batch and 0 gives an empty first one', async () => {
    const c = await node.collection(numbered(5));
    const { cursor } = await find(c, { batchSize: 0 });
    assert.deepEqual(cursor.firstBatch, []);
    assert.notEqual(Number(cursor.id), 0);
    const second = await getMore(c, cursor.id, { batchSize: 2 });
    assert.deepEqual(ids(second.cursor.nextBatch), [0, 1]);
    const third = await getMore(c, cursor.id, { batchSize: 9 });
    assert.deepEqual(ids(third.cursor.nextBatch), [2, 3, 4]);
    assert.equal(Number(third.cursor.id), 0);
});

test('a batch that ends with the last document of a limit closes the cursor', async () => {
    const c = await node.collection(numbered(10));
    const { cursor } = await find(c, { limit: 4, batchSize: 2 });
    const next = await getMore(c, cursor.id, { batchSize: 2 });
    assert.deepEqual(ids(next.cursor.nextBatch), [2, 3]);
    assert.equal(Number(next.cursor.id), 0);
});

test('singleBatch never leaves a cursor behind', async () => {
    const c = await node.collection(numbered(10));
    const { cursor } = await find(c, { singleBatch: true, batchSize: 3 });
    assert.equal(cursor.firstBatch.length, 3);
    assert.equal(Number(cursor.id), 0);
});

test('a missing collection has no documents and no cursor', async () => {
    const reply = await node.db.command({ find: 'missing' });
    assert.deepEqual(reply.cursor.firstBatch, []);
    assert.equal(Number(reply.cursor.id), 0);
});

test('a batch stays within 16 MB', async () => {
    const c = await node.collection();
    for (let _id = 0; _id < 40; _id++) await c.insertOne({ _id, s: 'x'.repeat(1 << 20) });
    const sizes = [];
    const { cursor } = await find(c);
    sizes.push(cursor.firstBatch.length);
    for (let id = cursor.id; Number(id) !== 0;) {
        const next = await getMore(c, id);
        sizes.push(next.cursor.nextBatch.length);
        id = next.cursor.id;
    }
    assert.equal(
        sizes.reduce((a, b) => a + b),
        40,
    );
    assert.ok(Math.max(...sizes) <= 16, `batches of ${sizes}`);
    await c.drop();
});

test('a document of almost 16 MB fits into a batch of its own', async () => {
    const c = await node.collection();
    await c.insertMany([{ _id: 1 }, { _id: 2, s: 'x'.repeat((16 << 20) - 100) }, { _id: 3 }]);
    assert.deepEqual(ids(await c.find().sort({ _id: 1 }).toArray()), [1, 2, 3]);
    await c.drop();
});

test('getMore of an unknown cursor fails with CursorNotFound', async () => {
    await fails(node.db.command({ getMore: Long.fromNumber(12345), collection: 'c' }), 43, {
        name: 'CursorNotFound',
        message: /cursor id 12345 not found/,
    });
});

test('getMore for another collection than that of the cursor fails with Unauthorized', async () => {
    const c = await node.collection(numbered(10));
    const { cursor } = await find(c, { batchSize: 1 });
    await fails(node.db.command({ getMore: cursor.id, collection: 'other' }), 13);
});

test('killCursors tells killed from unknown cursors', async () => {
    const c = await node.collection(numbered(10));
    const { cursor } = await find(c, { batchSize: 1 });
    const unknown = Long.fromNumber(77);
    const reply = await node.db.command(
        {
            killCursors: c.collectionName,
            cursors: [cursor.id, unknown],
        },
        { promoteLongs: false },
    );
    assert.deepEqual(reply.cursorsKilled.map(String), [String(cursor.id)]);
    assert.deepEqual(reply.cursorsNotFound.map(String), ['77']);
    assert.deepEqual(reply.cursorsAlive, []);
    assert.deepEqual(reply.cursorsUnknown, []);
    await fails(getMore(c, cursor.id), 43);
});

test('a cursor sees each document once although others come and go', async () => {
    const c = await node.collection(numbered(2000));
    const cursor = c.find({ _id: { $lt: 2000 } }).batchSize(50);
    const seen = [];
    for await (const document of cursor) {
        seen.push(document._id);
        if (seen.length % 50 === 0) {
            await c.insertOne({ _id: 10_000 + seen.length });
            await c.deleteOne({ _id: 10_000 + seen.length - 50 });
        }
    }
    assert.equal(seen.length, 2000);
    assert.equal(new Set(seen).size, 2000);
});

test('a cursor ends with an error when its collection is dropped', async () => {
    const c = await node.collection(numbered(300));
    const { cursor } = await find(c, { batchSize: 2, sort: {} });
    await c.drop();
    await fails(getMore(c, cursor.id), 175, { name: 'QueryPlanKilled' });
});

test('arguments out of range are refused', async () => {
    const c = await node.collection(numbered(3));
    for (const field of ['limit', 'skip', 'batchSize'])
        await fails(find(c, { [field]: -1 }), 51024);
});

test('a cursor of a session is found only by that session', async () => {
    const c = await node.collection(numbered(10));
    const session = node.client.startSession();
    const other = node.client.startSession();
    try {
        const opened = await node.db.command({ find: c.collectionName, batchSize: 1 }, { session });
        await assert.rejects(
            node.db.command(
                { getMore: opened.cursor.id, collection: c.collectionName },
                { session: other },
            ),
        );
        const next = await node.db.command(
            { getMore: opened.cursor.id, collection: c.collectionName },
            { session },
        );
        assert.equal(next.cursor.nextBatch.length, 9);
    } finally {
        await session.endSession();
        await other.endSession();
    }
});

/* ---- capped, tailable, awaitData ---- */

const capped = (documents, more) =>
    node.collection(documents, { capped: true, size: 100_000, ...more });

test('CAP-1: a capped collection keeps the newest documents in insertion order', async () => {
    const c = await capped([], { max: 3 });
    await c.insertMany([5, 1, 4, 2, 3].map((_id) => ({ _id })));
    assert.deepEqual(ids(await c.find().toArray()), [4, 2, 3]);
    assert.deepEqual(ids(await c.find().sort({ $natural: -1 }).toArray()), [3, 2, 4]);
});

test('CAP-1: a capped collection stays within its size', async () => {
    const c = await capped([], { size: 65536 });
    for (let i = 0; i < 40; i++)
        await c.insertMany(
            Array.from({ length: 10 }, (_, j) => ({ _id: i * 10 + j, s: 'x'.repeat(1000) })),
        );
    const stats = await node.db.command({ collStats: c.collectionName });
    assert.ok(stats.size <= 65536, `${stats.size} bytes`);
    assert.ok(stats.capped);
    const kept = ids(await c.find().toArray());
    assert.deepEqual(
        kept,
        Array.from({ length: kept.length }, (_, i) => 400 - kept.length + i),
    );
    assert.ok(kept.length >= 55);
});

test('CAP-1: documents of a capped collection may grow and shrink, and the next insert makes room', async () => {
    const c = await capped([], { size: 65536 });
    await c.insertMany(Array.from({ length: 50 }, (_, _id) => ({ _id, s: 'x'.repeat(1000) })));
    assert.equal((await c.updateOne({ _id: 49 }, { $set: { s: 'y'.repeat(30_000) } })).modifiedCount, 1);
    assert.equal((await c.findOneAndReplace({ _id: 48 }, { s: 'z' }, { returnDocument: 'after' })).s, 'z');
    assert.equal(await c.countDocuments(), 50);
    await c.insertOne({ _id: 50 });
    const stats = await node.db.command({ collStats: c.collectionName });
    assert.ok(stats.size <= 65536, `${stats.size} bytes`);
    assert.deepEqual(ids(await c.find().toArray()).slice(-3), [48, 49, 50]);
    assert.equal((await node.db.command({ validate: c.collectionName })).valid, true);
});

test('CAP-1: a tailable cursor stays open at the end and goes on with new documents', async () => {
    const c = await capped([{ _id: 1 }, { _id: 2 }]);
    const { cursor } = await find(c, { tailable: true, sort: {} });
    assert.deepEqual(ids(cursor.firstBatch), [1, 2]);
    assert.notEqual(Number(cursor.id), 0);
    const empty = await getMore(c, cursor.id);
    assert.deepEqual(empty.cursor.nextBatch, []);
    assert.notEqual(Number(empty.cursor.id), 0);
    await c.insertMany([{ _id: 3 }, { _id: 4 }]);
    const more = await getMore(c, cursor.id);
    assert.deepEqual(ids(more.cursor.nextBatch), [3, 4]);
});

test('CAP-1: awaitData returns soon after an insert', async () => {
    const c = await capped([{ _id: 1 }]);
    const { cursor } = await find(c, { tailable: true, awaitData: true, sort: {} });
    const started = Date.now();
    const waiting = getMore(c, cursor.id, { maxTimeMS: 8000 });
    await new Promise((done) => setTimeout(done, 100));
    await c.insertOne({ _id: 2 });
    assert.deepEqual(ids((await waiting).cursor.nextBatch), [2]);
    assert.ok(Date.now() - started < 4000);
});

test('CAP-1: awaitData returns an empty batch after maxTimeMS and stays open', async () => {
    const c = await capped([{ _id: 1 }]);
    const { cursor } = await find(c, { tailable: true, awaitData: true, sort: {} });
    const started = Date.now();
    const reply = await getMore(c, cursor.id, { maxTimeMS: 200 });
    const elapsed = Date.now() - started;
    assert.deepEqual(reply.cursor.nextBatch, []);
    assert.notEqual(Number(reply.cursor.id), 0);
    assert.ok(elapsed >= 150 && elapsed < 3000, `${elapsed} ms`);
});

test('CAP-1: awaitData waits only for documents that match', async () => {
    const c = await capped([{ _id: 1, a: 1 }]);
    const { cursor } = await find(c, {
        filter: { a: 1 },
        tailable: true,
        awaitData: true,
        sort: {},
    });
    const waiting = getMore(c, cursor.id, { maxTimeMS: 500 });
    await c.insertOne({ _id: 2, a: 0 });
    assert.deepEqual((await waiting).cursor.nextBatch, []);
    await c.insertOne({ _id: 3, a: 1 });
    assert.deepEqual(ids((await getMore(c, cursor.id, { maxTimeMS: 500 })).cursor.nextBatch), [3]);
});

test('CAP-1: a tailable cursor that was overtaken ends with CappedPositionLost', async () => {
    const c = await capped([{ _id: 1 }, { _id: 2 }, { _id: 3 }], { max: 3 });
    const { cursor } = await find(c, { tailable: true, sort: {}, batchSize: 1 });
    await c.insertMany([4, 5, 6, 7].map((_id) => ({ _id })));
    await fails(getMore(c, cursor.id), 136, { name: 'CappedPositionLost' });
});

test('CAP-1: a tailable cursor on an empty collection is closed at once', async () => {
    const c = await capped([]);
    const { cursor } = await find(c, { tailable: true, sort: {} });
    assert.equal(Number(cursor.id), 0);
});

test('CAP-1: tailable needs a capped collection, awaitData needs tailable', async () => {
    const c = await node.collection(numbered(3));
    await fails(find(c, { tailable: true, sort: {} }), 2, { message: /non capped/ });
    await fails(find(c, { awaitData: true, sort: {} }), 9);
    const k = await capped([{ _id: 1 }]);
    await fails(find(k, { tailable: true, sort: { _id: 1 } }), 2);
});

test('CAP-1: a driver follows a capped collection', async () => {
    const c = await capped([{ _id: 0 }]);
    const cursor = c.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 500 });
    const seen = [];
    const reader = (async () => {
        for await (const document of cursor) {
            seen.push(document._id);
            if (seen.length === 20) break;
        }
    })();
    for (let _id = 1; _id < 20; _id++) await c.insertOne({ _id });
    await reader;
    assert.deepEqual(
        seen,
        Array.from({ length: 20 }, (_, i) => i),
    );
    await cursor.close();
});

/* ---- time-outs, exhaust ---- */

test('an idle cursor in the middle of a $lookup is closed', async () => {
    const c = await node.collection(numbered(10));
    const pipeline = [{ $lookup: { from: c.collectionName, pipeline: [], as: 'all' } }, { $unwind: '$all' }];
    const { cursor } = await node.db.command({ aggregate: c.collectionName, pipeline, cursor: { batchSize: 2 } });
    assert.deepEqual((await node.db.command({ killCursors: c.collectionName, cursors: [Long.fromValue(cursor.id)] })).cursorsKilled.length, 1);
    assert.equal((await node.admin.command({ ping: 1 })).ok, 1);
});

test('idle cursors are closed after a time, those with noCursorTimeout are not', async () => {
    const c = await node.collection(numbered(10));
    const idle = (await find(c, { batchSize: 1 })).cursor;
    const kept = (await find(c, { batchSize: 1, noCursorTimeout: true })).cursor;
    const open = async () => (await node.admin.command({ serverStatus: 1 })).metrics.cursor;
    assert.ok((await open()).open.noTimeout >= 1);
    const timedOut = Number((await open()).timedOut);
    const wire = await RawConnection.open({ host: '127.0.0.1', port: node.server.port });
    const bare = await wire.command({ find: c.collectionName, batchSize: 1, $db: 'test' });
    await node.admin.command({ setParameter: 1, cursorTimeoutMillis: 100 });
    try {
        await waitFor(async () => Number((await open()).timedOut) > timedOut, { timeoutMs: 8000, what: 'time-out of a cursor without session' });
        const { code } = await wire.command({ getMore: bare.cursor.id, collection: c.collectionName, $db: 'test' });
        assert.equal(code, 43);
        const { total, noTimeout } = (await open()).open;
        assert.ok(Number(total) > Number(noTimeout), 'the cursor of a session waits for the end of that');
        await node.admin.command({ setParameter: 1, enableTimeoutOfInactiveSessionCursors: true });
        const isOver = ({ open: { total, noTimeout } }) => Number(total) === Number(noTimeout);
        await waitFor(async () => isOver(await open()), { timeoutMs: 8000, what: 'time-out' });
    } finally {
        await node.admin.command({ setParameter: 1, cursorTimeoutMillis: 600_000 });
        await node.admin.command({ setParameter: 1, enableTimeoutOfInactiveSessionCursors: false });
        wire.close();
    }
    assert.ok(Number((await open()).timedOut) >= 2);
    await fails(getMore(c, idle.id), 43);
    assert.equal((await getMore(c, kept.id)).cursor.nextBatch.length, 9);
});

test('with exhaustAllowed one getMore streams all batches', async () => {
    const c = await node.collection(numbered(10));
    const raw = await RawConnection.open({ host: '127.0.0.1', port: node.server.port });
    try {
        const opened = await raw.command({
            find: c.collectionName,
            batchSize: 2,
            sort: { _id: 1 },
            $db: 'test',
        });
        const seen = ids(opened.cursor.firstBatch);
        const request = { collection: c.collectionName, batchSize: 3, $db: 'test' };
        raw.write(
            msg(
                { getMore: Long.fromValue(opened.cursor.id), ...request },
                { flags: EXHAUST_ALLOWED },
            ),
        );
        let replies = 0;
        for (;;) {
            const reply = await raw.receive();
            replies++;
            seen.push(...ids(reply.document.cursor.nextBatch));
            if ((reply.flags & MORE_TO_COME) === 0) {
                assert.equal(Number(reply.document.cursor.id), 0);
                break;
            }
        }
        assert.ok(replies >= 3);
        assert.deepEqual(
            seen,
            numbered(10).map(({ _id }) => _id),
        );
        assert.equal((await raw.command({ ping: 1 })).ok, 1);
    } finally {
        raw.close();
    }
});

test('an exhaust stream whose client goes away closes its cursor', async () => {
    const c = await node.collection(numbered(5000));
    const open = async () =>
        Number((await node.admin.command({ serverStatus: 1 })).metrics.cursor.open.total);
    const before = await open();
    const raw = await RawConnection.open({ host: '127.0.0.1', port: node.server.port });
    const opened = await raw.command({ find: c.collectionName, batchSize: 1, $db: 'test' });
    raw.write(
        msg(
            {
                getMore: Long.fromValue(opened.cursor.id),
                collection: c.collectionName,
                batchSize: 1,
                $db: 'test',
            },
            { flags: EXHAUST_ALLOWED },
        ),
    );
    await raw.receive();
    raw.close();
    await waitFor(async () => (await open()) <= before, { what: 'end of the cursor' });
});

test('a getMore has neither a time limit of its own nor another API than its find', async () => {
    const c = await node.collection(numbered(10));
    const { cursor } = await find(c, { batchSize: 2 });
    await fails(getMore(c, cursor.id, { maxTimeMS: 1000 }), 2);
    await fails(getMore(c, cursor.id, { apiVersion: '1' }), 347);
    assert.equal((await getMore(c, cursor.id)).cursor.nextBatch.length, 8);
    const none = await node.db.command({ killCursors: c.collectionName, cursors: [] });
    assert.deepEqual([none.cursorsKilled, none.cursorsNotFound], [[], []]);
});

test('$currentOp lists idle cursors when it is asked to', async () => {
    const c = await node.collection(numbered(10));
    const { cursor } = await find(c, { batchSize: 2 });
    const admin = node.client.db('admin');
    const list = (idleCursors) =>
        admin.aggregate([{ $currentOp: { idleCursors } }, { $match: { 'cursor.cursorId': cursor.id, type: 'idleCursor' } }]).toArray();
    const [row, ...others] = await list(true);
    assert.equal(others.length, 0);
    assert.equal(row.ns, `test.${c.collectionName}`);
    assert.equal(row.planSummary, 'IXSCAN { _id: 1 }');
    assert.equal(Number(row.cursor.nDocsReturned), 2);
    assert.equal(row.cursor.originatingCommand.find, c.collectionName);
    assert.deepEqual(await list(false), []);
});

test('OPS-3: currentOp shows a getMore that runs with its cursor and the command it comes from', async () => {
    const name = node.newName('c');
    const c = await node.db.createCollection(name, { capped: true, size: 4096 });
    await c.insertOne({ _id: 1 });
    const { cursor } = await node.db.command({ find: name, tailable: true, awaitData: true, comment: 'waits' });
    const waiting = node.db.command({ getMore: cursor.id, collection: name, maxTimeMS: 20_000 });
    const admin = node.client.db('admin');
    const shown = () =>
        admin.aggregate([{ $currentOp: {} }, { $match: { op: 'getmore', 'cursor.originatingCommand.comment': 'waits' } }]).toArray();
    await waitFor(async () => (await shown()).length === 1, { what: 'the getMore' });
    const [row] = await shown();
    assert.equal(String(row.cursor.cursorId), String(row.command.getMore)); // behind a router those of the shard
    assert.deepEqual([row.cursor.tailable, row.cursor.awaitData, Number(row.cursor.nDocsReturned)], [true, true, 1]);
    await c.insertOne({ _id: 2 });
    assert.equal((await waiting).cursor.nextBatch.length, 1);
    assert.deepEqual(await shown(), []);
});
