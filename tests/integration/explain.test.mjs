/* explain: the shapes tools read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UUID } from 'mongodb';
import { fails, hasShape } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { startServer } from '../lib/server.mjs';

const node = useServer(
    {},
    {
        prepare: async ({ db }) => {
            await db
                .collection('c')
                .insertMany(Array.from({ length: 50 }, (_, _id) => ({ _id, a: _id % 5, b: _id })));
            await db.collection('c').createIndex({ a: 1, b: -1 });
        },
    },
);
const explain = (command, verbosity) => node.db.command({ explain: command, verbosity });

/* All stages of a plan, outermost first. */
function stages(plan) {
    if (plan === undefined) return [];
    const inner = plan.inputStages ?? (plan.inputStage === undefined ? [] : [plan.inputStage]);
    return [plan.stage, ...inner.flatMap(stages)];
}
const findStage = (plan, name) =>
    plan.stage === name
        ? plan
        : [plan.inputStage, ...(plan.inputStages ?? [])]
              .filter(Boolean)
              .map((inner) => findStage(inner, name))
              .find(Boolean);

test('explain of find names the plan without running it', async () => {
    const reply = await explain({ find: 'c', filter: { a: 2 } }, 'queryPlanner');
    hasShape(reply, {
        explainVersion: 'string',
        command: 'object',
        serverInfo: { host: 'string', port: 'number', version: 'string' },
        serverParameters: 'object',
        ok: 'number',
        queryPlanner: {
            namespace: 'string',
            parsedQuery: 'object',
            winningPlan: { stage: 'string' },
            rejectedPlans: 'array',
        },
    });
    assert.equal(reply.queryPlanner.namespace, 'test.c');
    assert.deepEqual(reply.queryPlanner.parsedQuery, { a: { $eq: 2 } });
    assert.deepEqual(stages(reply.queryPlanner.winningPlan), ['FETCH', 'IXSCAN']);
    assert.ok(!('executionStats' in reply));
});

test('explain of an index scan shows index, direction and bounds', async () => {
    const reply = await explain({ find: 'c', filter: { a: 2, b: { $gt: 10 } } }, 'queryPlanner');
    const scan = findStage(reply.queryPlanner.winningPlan, 'IXSCAN');
    assert.equal(scan.indexName, 'a_1_b_-1');
    assert.deepEqual(scan.keyPattern, { a: 1, b: -1 });
    assert.equal(scan.direction, 'forward');
    assert.deepEqual(scan.indexBounds.a, ['[2, 2]']);
    assert.deepEqual(scan.indexBounds.b, ['[inf.0, 10)']);
    hasShape(scan, {
        isMultiKey: 'boolean',
        isUnique: 'boolean',
        isSparse: 'boolean',
        isPartial: 'boolean',
        indexVersion: 'number',
    });
});

test('executionStats counts keys, documents and results', async () => {
    const { executionStats: stats } = await explain(
        { find: 'c', filter: { a: 2 } },
        'executionStats',
    );
    hasShape(stats, {
        executionSuccess: 'boolean',
        nReturned: 'number',
        executionTimeMillis: 'number',
        totalKeysExamined: 'number',
        totalDocsExamined: 'number',
        executionStages: { stage: 'string', nReturned: 'number' },
    });
    assert.deepEqual(
        [stats.executionSuccess, stats.nReturned, stats.totalKeysExamined, stats.totalDocsExamined],
        [true, 10, 10, 10],
    );
});

test('allPlansExecution is the default and adds allPlansExecution', async () => {
    const reply = await node.db.command({ explain: { find: 'c', filter: { a: 1 } } });
    assert.ok(Array.isArray(reply.executionStats.allPlansExecution));
});

const PLANS = [
    ['a filter without index scans the collection', { filter: { zz: 1 } }, ['COLLSCAN']],
    ['_id is looked up directly', { filter: { _id: 3 } }, ['IDHACK']],
    [
        'a sort an index gives needs no SORT',
        { filter: { a: 1 }, sort: { b: -1 } },
        ['FETCH', 'IXSCAN'],
    ],
    ['a sort without index has SORT', { filter: {}, sort: { zz: 1 } }, ['SORT', 'COLLSCAN']],
    ['limit is a stage on top', { filter: { a: 1 }, limit: 2 }, ['LIMIT', 'FETCH', 'IXSCAN']],
    [
        'projection of whole documents is simple',
        { filter: { zz: 1 }, projection: { a: 1 } },
        ['PROJECTION_SIMPLE', 'COLLSCAN'],
    ],
    ['a missing collection is EOF', { find: 'missing' }, ['EOF']],
];
for (const [claim, more, expected] of PLANS) {
    test(`explain: ${claim}`, async () => {
        const reply = await explain({ find: 'c', ...more }, 'queryPlanner');
        assert.deepEqual(stages(reply.queryPlanner.winningPlan), expected);
    });
}

test('explain refuses what findAndModify itself would refuse', async () => {
    const c = await node.collection([{ _id: 1 }]);
    for (const rest of [{}, { remove: true, update: { $set: { b: 3 } } }, { remove: true, new: true }, { remove: true, upsert: true }, { update: 5 }])
        await fails(node.db.command({ explain: { findAndModify: c.collectionName, ...rest } }), 9);
});

test('explain of count, distinct, delete, update and findAndModify changes nothing', async () => {
    const before = await node.db.collection('c').find().toArray();
    const plan = async (command) =>
        (await explain(command, 'executionStats')).queryPlanner.winningPlan;
    assert.ok(stages(await plan({ count: 'c', query: { a: 1 } })).some((s) => /COUNT/.test(s)));
    assert.ok((await plan({ distinct: 'c', key: 'a' })).stage.length > 0);
    assert.equal(
        (await plan({ delete: 'c', deletes: [{ q: { a: 1 }, limit: 0 }] })).stage,
        'BATCHED_DELETE',
    );
    assert.equal(
        (await plan({ update: 'c', updates: [{ q: { a: 1 }, u: { $set: { z: 1 } } }] })).stage,
        'UPDATE',
    );
    assert.ok(
        (await plan({ findAndModify: 'c', query: { a: 1 }, update: { $set: { z: 1 } } })).stage
            .length > 0,
    );
    assert.deepEqual(await node.db.collection('c').find().toArray(), before);
});

test('explain of aggregate shows the plan, and stages where there are some', async () => {
    const simple = await explain(
        { aggregate: 'c', pipeline: [{ $match: { a: 1 } }], cursor: {} },
        'queryPlanner',
    );
    assert.deepEqual(stages(simple.queryPlanner.winningPlan), ['FETCH', 'IXSCAN']);
    assert.equal(simple.queryPlanner.optimizedPipeline, true);
    const grouped = await explain(
        { aggregate: 'c', pipeline: [{ $match: { a: 1 } }, { $group: { _id: '$b' } }], cursor: {} },
        'queryPlanner',
    );
    assert.ok(grouped.stages[0].$cursor.queryPlanner.winningPlan);
    assert.ok('$group' in grouped.stages[1]);
    const run = await explain(
        { aggregate: 'c', pipeline: [{ $match: { a: 1 } }, { $group: { _id: '$b' } }], cursor: {} },
        'executionStats',
    );
    for (const stage of run.stages)
        for (const name of ['nReturned', 'executionTimeMillisEstimate'])
            assert.ok(name in stage, name);
    assert.ok(Number(run.stages[1].totalOutputDataSizeBytes) > 0);
});

test('explain refuses unknown verbosity and commands it cannot explain', async () => {
    await assert.rejects(
        explain({ find: 'c' }, 'nonsense'),
        ({ code }) => code === 2 || code === 9,
    );
    await fails(explain({ ping: 1 }, 'queryPlanner'), 20);
    await fails(explain({ nope: 1 }, 'queryPlanner'), 59);
});

test('explain tells what a count, an update and a delete would do, and changes nothing', async () => {
    const run = async (command) => (await explain(command, 'executionStats')).executionStats;
    const count = (await run({ count: 'c', query: { a: 2 }, skip: 1, limit: 4 })).executionStages;
    assert.deepEqual([count.stage, count.nCounted, count.nSkipped], ['COUNT', 4, 1]);
    const fast = await run({ count: 'c' });
    assert.deepEqual([fast.executionStages.stage, fast.executionStages.nCounted], ['RECORD_STORE_FAST_COUNT', 50]);
    assert.equal(fast.totalDocsExamined, 0);
    const update = (u, more) => run({ update: 'c', updates: [{ q: { a: 2 }, u, ...more }] });
    const all = (await update({ $set: { a: 2 } }, { multi: true })).executionStages;
    assert.deepEqual([all.stage, all.nMatched, all.nWouldModify, all.nWouldUpsert], ['UPDATE', 10, 0, 0]);
    const one = (await update({ $inc: { z: 1 } })).executionStages;
    assert.deepEqual([one.nMatched, one.nWouldModify], [1, 1]);
    const none = (await run({ update: 'c', updates: [{ q: { a: 99 }, u: { $set: { b: 1 } }, upsert: true }] })).executionStages;
    assert.equal(none.nWouldUpsert, 1);
    const many = (await run({ delete: 'c', deletes: [{ q: { a: 2 }, limit: 0 }] })).executionStages;
    assert.deepEqual([many.stage, many.nWouldDelete], ['BATCHED_DELETE', 10]);
    const missing = await explain({ delete: 'no_such', deletes: [{ q: {}, limit: 0 }] }, 'queryPlanner');
    assert.deepEqual(stages(missing.queryPlanner.winningPlan), ['EOF']);
    assert.equal(await node.db.collection('c').countDocuments({ z: 1 }), 0);
});

test('explain has the hashes of every shape, knows its database and takes no UUID', async () => {
    const { queryPlanner } = await explain({ find: 'c', filter: { nothing: 1 } }, 'queryPlanner');
    assert.match(queryPlanner.queryHash, /^[0-9A-F]{8}$/);
    assert.match(queryPlanner.planCacheKey, /^[0-9A-F]{8}$/);
    const { queryPlanner: whole } = await explain({ aggregate: 'c', pipeline: [{ $match: { a: 1 } }], cursor: {} }, 'queryPlanner');
    assert.equal(whole.optimizedPipeline, true);
    await fails(explain({ find: 'c', $db: 'other' }), 73);
    await fails(explain({ find: new UUID() }), 73);
});

test('hashes of shapes and plans are the same after a restart, and tell shapes and indexes apart', async () => {
    const filters = [{ a: 1 }, { a: { $gt: 1 } }, { b: 1 }, { $expr: { $gt: ['$a', 1] } }, { $or: [{ a: 1 }, { b: 1 }] }];
    const server = await startServer();
    try {
        const connect = async () => (await server.client()).db('test').collection('c');
        const hashes = async (c) => {
            const plans = await Promise.all(filters.map((filter) => c.find(filter).explain('queryPlanner')));
            return plans.map(({ queryPlanner }) => [queryPlanner.queryHash, queryPlanner.planCacheKey]);
        };
        const first = await connect();
        await first.createIndex({ a: 1 });
        const before = await hashes(first);
        assert.equal(new Set(before.map(([shape]) => shape)).size, filters.length);
        await server.restart();
        const again = await connect();
        assert.deepEqual(await hashes(again), before);
        await again.createIndex({ b: 1 });
        const more = await hashes(again);
        assert.deepEqual(more.map(([shape]) => shape), before.map(([shape]) => shape));
        assert.notEqual(more[2][1], before[2][1], 'another index may be used');
    } finally {
        await server.remove();
    }
});

test('an execution that fails is explained as such', async () => {
    const { executionStats } = await explain({ find: 'c', filter: { $expr: { $divide: ['$b', 0] } } }, 'executionStats');
    assert.equal(executionStats.executionSuccess, false);
    assert.equal(executionStats.errorCode, 2);
});

test('QRY-1: a plan whose filter is larger than a reply can hold twice is explained without it', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    await c.createIndex({ a: 1 });
    const $in = Array.from({ length: 700_000 }, (_, i) => i);
    const reply = await c.find({ a: { $in } }).explain('queryPlanner');
    const { winningPlan } = reply.queryPlanner;
    assert.equal(winningPlan.inputStage.indexName, 'a_1');
    assert.equal(winningPlan.filter, undefined);
    assert.match(winningPlan.warning ?? winningPlan.inputStage.warning, /too large/);
});

test('QRY-1: an explained $lookup tells what its pipelines examined, and with which indexes', async () => {
    await node.db.collection('left').insertMany([{ a: 0 }, { a: 1 }, { a: 7 }]);
    await node.db.collection('plain').insertMany(Array.from({ length: 8 }, (_, _id) => ({ _id, k: _id })));
    const statsOf = async (stage, { rest = [], verbosity = 'executionStats' } = {}) => {
        const command = { aggregate: 'left', pipeline: [{ $lookup: { as: 'f', ...stage } }, ...rest], cursor: {} };
        const reply = await explain(command, verbosity);
        const { $lookup: _, nReturned, executionTimeMillisEstimate, ...told } = reply.stages.find((s) => s.$lookup);
        return { nReturned, ...told };
    };
    const examined = (nReturned, totalDocsExamined, totalKeysExamined, collectionScans, indexesUsed) => ({
        nReturned,
        totalDocsExamined,
        totalKeysExamined,
        collectionScans,
        indexesUsed,
    });
    const onK = { from: 'plain', localField: 'a', foreignField: 'k' };
    assert.deepEqual(await statsOf(onK), examined(3, 24, 0, 3, []));
    assert.deepEqual(await statsOf(onK, { rest: [{ $unwind: '$f' }] }), examined(3, 24, 0, 3, []));
    assert.deepEqual(await statsOf({ ...onK, foreignField: '_id' }), examined(3, 3, 3, 0, ['_id_']));
    assert.deepEqual(
        await statsOf({ from: 'c', localField: 'a', foreignField: 'a' }, { verbosity: 'allPlansExecution' }),
        examined(3, 20, 20, 0, ['a_1_b_-1']),
    );
    assert.deepEqual(await statsOf({ ...onK, from: 'none' }), examined(3, 0, 0, 0, []));
    // What a pipeline within it reads counts too; what gives the same for all is read once.
    const inner = { $lookup: { from: 'c', localField: 'k', foreignField: 'a', as: 'g' } };
    assert.deepEqual(
        await statsOf({ from: 'plain', pipeline: [{ $match: { _id: { $lt: 2 } } }, inner] }),
        examined(3, 2 + 20, 2 + 20, 0, ['_id_', 'a_1_b_-1']),
    );
    assert.deepEqual(await statsOf(onK, { verbosity: 'queryPlanner' }), { nReturned: undefined });

    // The server counts the same reads: three documents here, eight there for each of them.
    const counted = async () => (await node.db.admin().command({ serverStatus: 1 })).metrics.queryExecutor;
    const before = await counted();
    await node.db.collection('left').aggregate([{ $lookup: { ...onK, as: 'f' } }]).toArray();
    const after = await counted();
    assert.equal(after.scannedObjects - before.scannedObjects, 27);
    assert.equal(after.scanned - before.scanned, 0);
    assert.equal(after.collectionScans.total - before.collectionScans.total, 4);
});

test('QRY-1: windows and gaps are sorted by a $sort of their own, which an index can serve and a later sort shares', async () => {
    const explained = async (pipeline) => (await explain({ aggregate: 'c', pipeline, cursor: {} }, 'queryPlanner')).stages;
    const output = { sum: { $sum: '$b', window: { documents: ['unbounded', 'current'] } } };
    const window = { $setWindowFields: { partitionBy: '$a', sortBy: { b: -1 }, output } };
    const [cursor, ...others] = await explained([window, { $sort: { a: 1 } }]);
    assert.deepEqual(stages(cursor.$cursor.queryPlanner.winningPlan), ['FETCH', 'IXSCAN']);
    assert.deepEqual(others, [
        { $_internalSetWindowFields: { partitionBy: '$a', sortBy: { b: -1 }, output } },
    ]);

    const computed = await explained([
        { $setWindowFields: { partitionBy: { $mod: ['$a', 2] }, output: { n: { $sum: 1 } } } },
    ]);
    const [key] = Object.keys(computed[1].$addFields);
    assert.deepEqual(computed.slice(1), [
        { $addFields: { [key]: { $mod: ['$a', { $const: 2 }] } } },
        { $sort: { sortKey: { [key]: 1 } } },
        {
            $_internalSetWindowFields: {
                partitionBy: `$${key}`,
                output: { n: { $sum: 1, window: { documents: ['unbounded', 'unbounded'] } } },
            },
        },
        { $project: { [key]: false, _id: true } },
    ]);

    const range = { step: 1, bounds: 'full' };
    const densified = await explained([{ $densify: { field: 'a', range } }, { $sort: { a: 1 } }]);
    assert.deepEqual(densified.slice(1), [
        { $_internalDensify: { field: 'a', partitionByFields: [], range } },
    ]);
});

test('QRY-1: partitions of $densify have a limit of memory of their own', async () => {
    const admin = node.client.db('admin');
    const name = 'internalDocumentSourceDensifyMaxMemoryBytes';
    const pipeline = [
        { $densify: { field: 'b', partitionByFields: ['_id'], range: { step: 1, bounds: 'partition' } } },
    ];
    const { was } = await admin.command({ setParameter: 1, [name]: 1000 });
    await fails(node.db.command({ aggregate: 'c', pipeline, cursor: {} }), 6007200);
    await admin.command({ setParameter: 1, [name]: was });
    assert.equal((await node.db.collection('c').aggregate(pipeline).toArray()).length, 50);
});

test('an explained aggregate takes no read concern but the local one', async () => {
    const aggregate = { aggregate: 'c', pipeline: [], cursor: {} };
    const other = { readConcern: { level: 'available' } };
    for (const command of [
        { aggregate: 'c', pipeline: [], explain: true, ...other },
        { explain: aggregate, ...other },
        { explain: { ...aggregate, ...other } },
    ])
        await fails(node.db.command(command), 72, /read concern/);
    await node.db.command({ explain: aggregate, readConcern: { level: 'local' } });
    await node.db.command({ explain: { find: 'c' }, ...other });
});
