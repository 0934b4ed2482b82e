/* maxTimeMS, killOp, killed sessions and gone clients end long operations. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { startServer, waitFor } from '../lib/server.mjs';
import { RawConnection, msg } from '../lib/wire.mjs';

const DOCUMENTS = 60_000;
const node = useServer(
    {},
    {
        prepare: async ({ db }) => {
            const documents = Array.from({ length: DOCUMENTS }, (_, _id) => ({
                _id,
                s: `${_id}`.repeat(8),
            }));
            await db.collection('big').insertMany(documents);
        },
    },
);
// Hundreds of expressions per document: the whole scan takes far longer than any limit here.
const SLOW = { $or: Array.from({ length: 500 }, (_, i) => ({ s: { $regex: `[g-z]+${i}y` } })) };

const running = async (name) => {
    const { inprog } = await node.admin.command({
        currentOp: 1,
        active: true,
        [`command.${name}`]: { $exists: true },
    });
    return inprog.filter(({ command }) => command?.[name] === 'big' && command.comment === 'slow');
};

test('maxTimeMS ends a long find, count, update, aggregate and distinct', async () => {
    const c = node.db.collection('big');
    const options = { maxTimeMS: 50 };
    const started = Date.now();
    const expected = { name: 'MaxTimeMSExpired' };
    await fails(c.find(SLOW, options).toArray(), 50, expected);
    await fails(node.db.command({ count: 'big', query: SLOW, ...options }), 50, expected);
    await fails(c.updateMany(SLOW, { $set: { a: 1 } }, options), 50);
    await fails(c.deleteMany(SLOW, options), 50);
    await fails(
        c.aggregate([{ $match: SLOW }, { $group: { _id: null } }], options).toArray(),
        50,
        expected,
    );
    await fails(c.distinct('s', SLOW, options), 50, expected);
    await fails(c.findOneAndUpdate(SLOW, { $set: { a: 1 } }, options), 50, expected);
    assert.ok(Date.now() - started < 5000, `${Date.now() - started} ms`);
});

test('maxTimeMS of find holds for its getMores together', async () => {
    const { cursor } = await node.db.command({
        find: 'big',
        filter: { $nor: [SLOW] },
        batchSize: 1,
        maxTimeMS: 300,
    });
    await fails(async () => {
        for (let batch = 0; batch < 20; batch++)
            await node.db.command({ getMore: cursor.id, collection: 'big', batchSize: 500 });
    }, 50);
});

test('killOp ends a long scan with Interrupted', async () => {
    const scan = node.db.command({ find: 'big', filter: SLOW, comment: 'slow' });
    const outcome = fails(scan, 11601, { name: 'Interrupted' });
    const [op] = await waitFor(
        async () => {
            const found = await running('find');
            return found.length > 0 ? found : null;
        },
        { what: 'running find' },
    );
    const started = Date.now();
    await node.admin.command({ killOp: 1, op: op.opid });
    await outcome;
    assert.ok(Date.now() - started < 2000);
});

test('killOp ends a multi update in the middle; what it did stays', async () => {
    const update = node.db.command({
        update: 'big',
        comment: 'slow',
        updates: [{ q: { $nor: [SLOW] }, u: { $set: { touched: 1 } }, multi: true }],
    });
    const settled = update.then(
        (reply) => reply,
        (error) => error,
    );
    const [op] = await waitFor(
        async () => {
            const found = await running('update');
            return found.length > 0 ? found : null;
        },
        { what: 'running update' },
    );
    await node.admin.command({ killOp: 1, op: op.opid });
    const reply = await settled;
    assert.equal(reply.code ?? reply.writeErrors?.[0].code, 11601, JSON.stringify(reply));
    assert.ok((await node.db.collection('big').countDocuments({ touched: 1 })) < DOCUMENTS);
});

test('killSessions ends the operations of a session', async () => {
    const session = node.client.startSession();
    try {
        const outcome = fails(
            node.db.command({ find: 'big', filter: SLOW, comment: 'slow' }, { session }),
            11601,
        );
        await waitFor(async () => (await running('find')).length > 0, { what: 'running find' });
        await node.admin.command({ killSessions: [{ id: session.id.id }] });
        await outcome;
    } finally {
        await session.endSession();
    }
});

test('an operation whose client went away is ended', async () => {
    const raw = await RawConnection.open({ host: '127.0.0.1', port: node.server.port });
    raw.write(msg({ find: 'big', filter: SLOW, comment: 'slow', $db: 'test' }));
    await waitFor(async () => (await running('find')).length > 0, { what: 'running find' });
    raw.close();
    await waitFor(async () => (await running('find')).length === 0, {
        what: 'end of the find',
        timeoutMs: 5000,
    });
});

test('an index build can be ended by killOp and leaves no index', async () => {
    await node.withFailpoint(
        'indexBuild.scanning',
        'alwaysOn',
        { blockTimeMS: 3000 },
        async () => {
            const build = node.db.command({
                createIndexes: 'big',
                indexes: [{ key: { s: 1 }, name: 's_1' }],
                comment: 'slow',
            });
            const settled = build.then(
                (reply) => reply,
                (error) => error,
            );
            const [op] = await waitFor(
                async () => {
                    const found = await running('createIndexes');
                    return found.length > 0 ? found : null;
                },
                { what: 'running build' },
            );
            await node.admin.command({ killOp: 1, op: op.opid });
            const reply = await settled;
            assert.ok([276, 11601].includes(reply.code), JSON.stringify(reply));
        },
    );
    assert.equal((await node.db.collection('big').indexes()).length, 1);
});

test('NOD-2: SIGTERM ends a node that is busy with a long scan', async () => {
    const server = await startServer();
    try {
        const db = (await server.client()).db('test');
        await db
            .collection('big')
            .insertMany(
                Array.from({ length: DOCUMENTS }, (_, _id) => ({ _id, s: `${_id}`.repeat(8) })),
            );
        const scan = db.command({ find: 'big', filter: SLOW }).then(
            () => null,
            (error) => error,
        );
        await waitFor(async () =>
            (await db.admin().command({ currentOp: 1 })).inprog.some(
                ({ command }) => command?.find === 'big',
            ),
        );
        const started = Date.now();
        server.signal('SIGTERM');
        assert.deepEqual(await server.waitEnd(), { code: 0, signal: null });
        assert.ok(Date.now() - started < 10_000);
        const error = await scan;
        assert.ok(
            error === null || [91, 11600].includes(error.code) || /Network/.test(error.name),
            String(error),
        );
    } finally {
        await server.remove();
    }
});

test('a query lets others through after as many documents as internalQueryExecYieldIterations says', async () => {
    const set = (internalQueryExecYieldIterations) => node.admin.command({ setParameter: 1, internalQueryExecYieldIterations });
    const yields = async (comment) => {
        await node.db.collection('big').find({}, { comment, batchSize: 1000, limit: 1000 }).toArray();
        const { numYield } = await node.db.collection('system.profile').findOne({ 'command.comment': comment });
        return Number(numYield);
    };
    await node.db.command({ profile: 2 });
    await set(10);
    const often = await yields('often');
    await set(0);
    const seldom = await yields('seldom');
    await node.db.command({ profile: 0 });
    assert.ok(often >= 90 && often <= 110, `${often}`);
    assert.ok(seldom < often, `${seldom}`);
});
