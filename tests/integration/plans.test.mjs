/* QRY-1, IDX-1: which plan is chosen, and what it examines. That every plan finds the same is proved in
 * src/query/exec/plan_diff_test.c; here is what a user sees of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MaxKey, MinKey } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

let c;
let db;

const node = useServer(
    {},
    {
        prepare: async (node) => {
            db = node.db;
            c = db.collection('c');
            await c.insertMany(
                Array.from({ length: 1000 }, (_, i) => ({
                    _id: i,
                    a: i % 10,
                    b: i % 7,
                    s: `x${i % 50}`,
                    n: i,
                    ...(i % 20 === 0 ? { t: [i % 3, i % 5] } : {}),
                })),
            );
            await c.createIndexes([
                { key: { a: 1 } },
                { key: { a: 1, b: 1 } },
                { key: { b: -1 } },
                { key: { s: 1, n: 1 } },
                { key: { t: 1 } },
            ]);
        },
    },
);

/* Stages from the root down to the first leaf. */
function chain(plan) {
    const names = [];
    for (let stage = plan; stage; stage = stage.inputStage ?? stage.inputStages?.[0]) names.push(stage.stage);
    return names.join(' ');
}

function leaf(plan) {
    let stage = plan;
    while (stage.inputStage ?? stage.inputStages?.[0]) stage = stage.inputStage ?? stage.inputStages[0];
    return stage;
}

async function explained(cursor) {
    const { queryPlanner, executionStats } = await cursor.explain('executionStats');
    return {
        plan: chain(queryPlanner.winningPlan),
        leaf: leaf(queryPlanner.winningPlan),
        rejected: queryPlanner.rejectedPlans.length,
        keys: executionStats.totalKeysExamined,
        docs: executionStats.totalDocsExamined,
        n: executionStats.nReturned,
    };
}

test('QRY-1: of several indexes the one that examines least wins, and the others are shown as rejected', async () => {
    const found = await explained(c.find({ a: 3, b: 2 }));
    assert.equal(found.plan, 'FETCH IXSCAN');
    assert.equal(found.leaf.indexName, 'a_1_b_1');
    assert.equal(found.rejected, 2);
    assert.equal(found.keys, found.n);
    const { executionStats } = await c.find({ a: 3, b: 2 }).explain('allPlansExecution');
    assert.equal(executionStats.allPlansExecution.length, 3);
    assert.ok(executionStats.allPlansExecution.every(({ score }) => score >= 1));
});

test('QRY-1: the branches of an $or use an index each', async () => {
    const found = await explained(c.find({ $or: [{ a: 3 }, { s: 'x5' }] }));
    assert.equal(found.plan, 'FETCH OR IXSCAN');
    assert.equal(found.n, 120);
    assert.equal(found.keys, 120);
    const scan = await explained(c.find({ $or: [{ a: 3 }, { n: 5 }] }));
    assert.equal(scan.plan, 'COLLSCAN', 'one branch without an index makes all of them useless');
    const merged = await explained(c.find({ $or: [{ s: 'x1' }, { s: 'x2' }] }).sort({ n: 1 }));
    assert.equal(merged.plan, 'FETCH SORT_MERGE IXSCAN');
});

test('QRY-1: a list of values in front of the sort is merged, not sorted', async () => {
    const found = await explained(
        c
            .find({ a: { $in: [1, 2, 3] } })
            .sort({ b: -1 })
            .hint('a_1_b_1'),
    );
    assert.equal(found.plan, 'FETCH SORT_MERGE IXSCAN');
    const values = await c
        .find({ a: { $in: [1, 2, 3] } })
        .sort({ b: -1 })
        .hint('a_1_b_1')
        .toArray();
    assert.deepEqual(
        values.map(({ b }) => b),
        values.map(({ b }) => b).toSorted((x, y) => y - x),
    );
});

test('QRY-1: a query whose fields are all in the index fetches no document', async () => {
    const found = await explained(c.find({ a: 3 }, { projection: { _id: 0, a: 1, b: 1 } }));
    assert.equal(found.plan, 'PROJECTION_COVERED IXSCAN');
    assert.equal(found.docs, 0);
    const pipeline = await c.aggregate([{ $match: { a: 3 } }, { $group: { _id: '$b', n: { $sum: 1 } } }]).explain('executionStats');
    assert.equal(pipeline.stages[0].$cursor.executionStats.totalDocsExamined, 0);
    const arrays = await explained(c.find({ t: 1 }, { projection: { _id: 0, t: 1 } }));
    assert.equal(arrays.plan, 'PROJECTION_SIMPLE FETCH IXSCAN', 'keys of arrays do not tell the array');
});

test('QRY-1: a key has null for a missing field, and a query for null looks at the document to show it', async () => {
    const d = db.collection('nulls');
    await d.insertMany([{ _id: 1, x: null }, { _id: 2 }, { _id: 3, x: 5 }]);
    await d.createIndex({ x: 1, _id: 1 });
    const shown = { projection: { _id: 0, x: 1 }, hint: { x: 1, _id: 1 } };
    assert.deepEqual(await d.find({ x: { $lte: 5 } }, shown).toArray(), [{ x: 5 }]);
    assert.deepEqual(await d.find({}, shown).toArray(), [{ x: null }, { x: null }, { x: 5 }]);
    const nulls = await d.find({ x: null }, shown).sort({ x: 1 }).toArray();
    assert.equal(nulls.length, 2);
    assert.ok(nulls.some((doc) => 'x' in doc) && nulls.some((doc) => !('x' in doc)));
    const ids = await explained(d.find({ x: null }, { projection: { _id: 1 } }));
    assert.equal(ids.plan, 'PROJECTION_COVERED IXSCAN');
    assert.equal(ids.n, 2);
    const count = await db.command({ explain: { count: 'nulls', query: { x: null } } });
    assert.equal(chain(count.queryPlanner.winningPlan), 'COUNT OR COUNT_SCAN');
    assert.equal(await d.countDocuments({ x: null }), 2);
    assert.deepEqual(await d.distinct('x'), [null, 5]);
});

test('QRY-1: a $group that needs one document of each group skips the others', async () => {
    const d = db.collection('groups');
    const docs = Array.from({ length: 60 }, (_, _id) => ({ _id, g: _id % 3, v: _id % 20, arr: [_id % 2, 5] }));
    await d.insertMany([...docs, { _id: 60, v: 1 }, { _id: 61, g: null, v: 0 }]);
    const pipelines = [
        [{ $group: { _id: '$g' } }],
        [{ $match: { g: { $gte: 1 } } }, { $group: { _id: '$g' } }],
        [{ $sort: { g: 1, v: 1 } }, { $group: { _id: '$g', v: { $first: '$v' } } }],
        [{ $sort: { g: 1, v: 1 } }, { $group: { _id: '$g', v: { $last: '$v' } } }],
        [{ $sort: { g: -1, v: 1 } }, { $group: { _id: { k: '$g' }, v: { $first: '$v' } } }],
        [{ $sort: { v: 1, g: 1 } }, { $group: { _id: '$g', v: { $first: '$v' } } }],
        [{ $group: { _id: '$arr' } }],
    ];
    const run = async (pipeline) => (await d.aggregate(pipeline).toArray()).map((doc) => JSON.stringify(doc)).toSorted();
    const plain = await Promise.all(pipelines.map(run));
    await d.createIndex({ g: 1, v: 1 });
    await d.createIndex({ arr: 1 });
    assert.deepEqual(await Promise.all(pipelines.map(run)), plain);
    const isDistinct = async (pipeline) => JSON.stringify(await d.aggregate(pipeline).explain()).includes('DISTINCT_SCAN');
    assert.deepEqual(await Promise.all(pipelines.map(isDistinct)), [true, true, true, true, false, false, false]);
    assert.deepEqual(await d.distinct('arr'), [null, 0, 1, 5]);
    assert.deepEqual(await d.distinct('arr', { arr: 0 }), [0, 5]);
});

test('QRY-1: a $project behind the filter belongs to the plan, and a count does not sort', async () => {
    const covered = await c.aggregate([{ $match: { a: 3 } }, { $sort: { b: 1 } }, { $project: { _id: 0, b: 1 } }]).explain();
    assert.equal(chain(covered.queryPlanner.winningPlan), 'PROJECTION_COVERED IXSCAN');
    const computed = [{ $match: { a: 3 } }, { $project: { _id: 0, twice: { $add: ['$b', '$b'] } } }, { $sort: { twice: -1 } }, { $limit: 1 }];
    const most = (await c.find({ a: 3 }).sort({ b: -1 }).limit(1).toArray())[0].b;
    assert.deepEqual(await c.aggregate(computed).toArray(), [{ twice: 2 * most }]);
    const counted = await c.aggregate([{ $sort: { a: -1 } }, { $count: 'n' }]).explain();
    assert.equal(chain(counted.stages[0].$cursor.queryPlanner.winningPlan), 'COUNT_SCAN');
});

test('QRY-1: count and distinct read keys only', async () => {
    const count = await db.command({ explain: { count: 'c', query: { a: { $gt: 5 } } }, verbosity: 'executionStats' });
    assert.equal(chain(count.queryPlanner.winningPlan), 'COUNT COUNT_SCAN');
    assert.equal(count.executionStats.totalDocsExamined, 0);
    assert.equal(await c.countDocuments({ a: { $gt: 5 } }), 400);
    const distinct = await db.command({ explain: { distinct: 'c', key: 's' }, verbosity: 'executionStats' });
    assert.equal(chain(distinct.queryPlanner.winningPlan), 'PROJECTION_COVERED DISTINCT_SCAN');
    assert.equal(distinct.executionStats.totalKeysExamined, 50);
    assert.equal((await c.distinct('s')).length, 50);
    assert.deepEqual(await c.distinct('a', { a: { $gte: 8 } }), [8, 9]);
});

test('QRY-1: the beginning of a regular expression bounds the keys', async () => {
    const found = await explained(c.find({ s: /^x4/ }));
    assert.equal(found.keys, found.n + 1, 'and the one that tells that the first interval is over');
    assert.deepEqual(found.leaf.indexBounds.s, ['["x4", "x5")', '[/^x4/, /^x4/]']);
    const inside = await explained(c.find({ s: /4$/ }));
    assert.equal(inside.plan, 'FETCH IXSCAN');
    assert.equal(inside.docs, inside.n, 'keys are filtered before documents are fetched');
});

test('QRY-1: negations and missing fields have bounds', async () => {
    const ne = await explained(c.find({ b: { $ne: 3 } }).hint({ b: -1 }));
    assert.deepEqual(ne.leaf.indexBounds.b, ['[MaxKey, 3)', '(3, MinKey]']);
    assert.equal(ne.keys, ne.n + 1, 'and one between the intervals');
    const missing = await explained(c.find({ a: { $exists: false } }).hint({ a: 1 }));
    assert.equal(missing.keys, 0);
});

test('QRY-1: a plan is remembered for the shape of its query, until the indexes change', async () => {
    await db.command({ planCacheClear: 'c' });
    const stats = () => c.aggregate([{ $planCacheStats: {} }]).toArray();
    const find = () => c.find({ a: 1, b: 1 }).toArray();
    await find();
    const [first] = await stats();
    assert.equal(first.isActive, false, 'one query may be an exception');
    assert.equal(first.creationExecStats.length, first.candidatePlanScores.length);
    await find();
    assert.equal((await stats())[0].isActive, true);
    await c.find({ a: 2, b: 2 }).toArray();
    const [entry, ...others] = await stats();
    assert.equal(others.length, 0);
    assert.equal(Number(entry.hits), 1);
    assert.equal(entry.cachedPlan.inputStage.indexName, 'a_1_b_1');
    const { queryPlanner } = await c.find({ a: 7, b: 1 }).explain();
    assert.equal(queryPlanner.planCacheKey, entry.planCacheKey);
    await db.command({ planCacheClear: 'c', query: { b: 1 } });
    assert.equal((await stats()).length, 1, 'another shape');
    await db.command({ planCacheClear: 'c', query: { a: 1, b: 1 } });
    assert.equal((await stats()).length, 0);
    await c.find({ a: 1, b: 1 }).toArray();
    assert.equal((await stats()).length, 1);
    await c.createIndex({ n: 1, a: 1 });
    assert.equal((await stats()).length, 0, 'new indexes, new choice');
});

test('QRY-1: a remembered plan that has become bad is tried again', async () => {
    const d = db.collection('turn');
    await d.insertMany(Array.from({ length: 5000 }, (_, i) => ({ x: i, y: i % 2 })));
    await d.createIndexes([{ key: { x: 1 } }, { key: { y: 1 } }]);
    const find = () => d.find({ x: { $gte: 0 }, y: 2 }).toArray();
    const cached = async () => (await d.aggregate([{ $planCacheStats: {} }]).toArray())[0]?.cachedPlan.inputStage.indexName;
    await find();
    assert.equal(await cached(), 'y_1');
    await d.updateMany({}, { $set: { y: 2 } });
    await d.updateMany({}, { $inc: { x: -10_000 } });
    assert.deepEqual(await find(), []); // begins with y_1, which has 5000 keys now, and turns to x_1
    assert.equal(await cached(), 'x_1');
});

test('record ids are shown behind every kind of plan', async () => {
    const clusteredIndex = { key: { _id: 1 }, unique: true };
    await db.createCollection('ids_clustered', { clusteredIndex });
    for (const name of ['ids_numbered', 'ids_clustered']) {
        const d = db.collection(name);
        await d.insertMany(Array.from({ length: 30 }, (_, i) => ({ _id: `k${i}`, a: i % 5, b: -i, t: [i, -i] })));
        await d.createIndexes([{ key: { a: 1, b: 1 } }, { key: { b: 1 } }]);
        const idOf = new Map((await d.find({}, { showRecordId: true }).toArray()).map((doc) => [doc._id, doc.$recordId]));
        assert.equal(new Set([...idOf.values()].map(String)).size, 30);
        const queries = [
            [{}, { sort: { t: 1 } }],
            [{}, { sort: { t: -1 }, limit: 7, skip: 2 }],
            [{ a: { $in: [1, 2] } }, { sort: { b: 1 } }],
            [{ $or: [{ a: 1 }, { b: -2 }] }, { sort: { b: 1 } }],
            [{ $or: [{ a: 1 }, { b: -2 }] }, {}],
            [{ a: 2 }, { sort: { t: 1 }, projection: { t: 1 } }],
            [{ a: 2 }, { sort: { t: 1 }, projection: { b: 0 } }],
            [{ _id: 'k3' }, { projection: { b: 1 } }],
        ];
        for (const [filter, options] of queries) {
            const plain = await d.find(filter, options).toArray();
            const shown = await d.find(filter, { ...options, showRecordId: true }).toArray();
            assert.deepEqual(shown, plain.map((doc) => ({ ...doc, $recordId: idOf.get(doc._id) })), JSON.stringify([filter, options]));
        }
        const [first] = await d.find({}, { sort: { t: 1 }, projection: { b: 1, r: { $meta: 'recordId' } } }).toArray();
        assert.deepEqual(first, { _id: 'k29', b: -29, r: idOf.get('k29') });
    }
});

test('find takes min and max of a hinted index, returnKey and showRecordId', async () => {
    const range = c.find({}).min({ a: 3 }).max({ a: 5 }).hint({ a: 1 });
    assert.equal((await range.toArray()).length, 200);
    await fails(c.find({}).min({ a: 3 }).toArray(), 51173);
    await fails(c.find({}).min({ b: 3 }).hint({ a: 1 }).toArray(), 51174);
    assert.deepEqual(await c.find({ a: 3 }).returnKey(true).hint({ a: 1 }).limit(1).toArray(), [{ a: 3 }]);
    assert.deepEqual(await c.find({ n: { $mod: [7, 1] } }).returnKey(true).hint({ $natural: 1 }).limit(1).toArray(), [{}]);
    assert.deepEqual(await c.find({ a: { $in: [3, 4] }, n: { $gt: 0 } }, { projection: { n: 1 } }).sort({ n: -1 }).returnKey(true).hint({ a: 1 }).limit(1).toArray(), [{ a: 4 }]);
    const [shown] = await c.find({ _id: 0 }).showRecordId(true).toArray();
    assert.equal(Number(shown.$recordId), 1);
});

test('explain of find, count and distinct on a view shows the plan below', async () => {
    await db.createCollection('v', { viewOn: 'c', pipeline: [{ $match: { a: { $gt: 3 } } }] });
    const { queryPlanner } = await db.collection('v').find({ b: 1 }).explain();
    assert.ok(queryPlanner.winningPlan.inputStage.indexName);
    const found = await db
        .collection('v')
        .find({ $expr: { $eq: ['$b', '$$x'] } }, { let: { x: 3 } })
        .toArray();
    assert.ok(found.length > 0 && found.every(({ b }) => b === 3), 'let reaches the pipeline');
});

test('QRY-1: a cursor goes on when an array makes its index multikey', async () => {
    const d = db.collection('turning');
    await d.insertMany(Array.from({ length: 100 }, (_, i) => ({ _id: i, x: i })));
    await d.createIndex({ x: 1 });
    const cursor = d.find({ x: { $gte: 0, $ne: 95 } }, { batchSize: 10 }).hint({ x: 1 });
    const seen = [];
    for (let i = 0; i < 10; i++) seen.push((await cursor.next())._id);
    await d.updateOne({ _id: 50 }, { $set: { x: [50, 60, 70] } });
    await d.updateOne({ _id: 80 }, { $set: { x: [80, 95] } });
    for await (const { _id } of cursor) seen.push(_id);
    const expected = Array.from({ length: 100 }, (_, i) => i).filter((i) => i !== 95 && i !== 80);
    assert.deepEqual(
        seen.toSorted((a, b) => a - b),
        expected,
    );
});

test('QRY-1: an index with arrays gives the order of a sort, unless conditions leave some of their elements out', async () => {
    const d = db.collection('sorted_arrays');
    const values = [[3, 1], 2, [], null, [[4], 0], [7, 'x'], 5, 'w', [2], [null, 9], { k: 1 }, [{ k: [1, 2] }, 6]];
    await d.insertMany(values.map((a, i) => ({ _id: i, a, x: i % 3, e: [{ f: i % 4, g: [i, -i] }, { f: 9 - i, g: 3 }] })));
    await d.insertMany([{ _id: 100, x: 1 }, { _id: 101, x: 2, e: [] }, { _id: 102, x: 0, e: 5 }]);
    const sorts = [{ a: 1 }, { x: 1, a: -1 }, { a: 1, x: 1 }, { 'e.f': 1, 'e.g': -1 }, { 'e.f': -1 }];
    const shown = { k: { $meta: 'sortKey' } };
    const keysOf = async (cursor) => (await cursor.toArray()).map((doc) => doc.k);
    for (const sort of sorts) {
        const name = await d.createIndex(sort);
        for (const sign of [1, -1]) {
            const wanted = Object.fromEntries(Object.entries(sort).map(([path, order]) => [path, order * sign]));
            const find = (filter, hint) => d.find(filter, { sort: wanted, hint, projection: shown });
            const hasSort = async (filter) => JSON.stringify(await find(filter, name).explain('queryPlanner')).includes('"SORT"');
            assert.equal(await hasSort({}), false, JSON.stringify(wanted));
            for (const filter of [{}, { x: { $ne: 1 } }, { a: { $gt: 1 } }, { 'e.f': { $lt: 3 } }, { 'e.g': 3 }])
                assert.deepEqual(await keysOf(find(filter, name)), await keysOf(find(filter, { $natural: 1 })));
        }
        await d.dropIndex(name);
    }
    await d.createIndexes([{ key: { a: 1 } }, { key: { 'e.f': 1, 'e.g': 1 } }, { key: { x: 1, a: 1 } }]);
    const plan = async (cursor) => JSON.stringify((await cursor.explain('queryPlanner')).queryPlanner.winningPlan);
    assert.match(await plan(d.find({ a: { $gt: 2 } }).sort({ a: 1 }).hint({ a: 1 })), /"SORT"/);
    assert.match(await plan(d.find({ 'e.f': 3 }).sort({ 'e.g': 1 }).hint({ 'e.f': 1, 'e.g': 1 })), /"SORT"/);
    assert.doesNotMatch(await plan(d.find({ x: 2 }).sort({ a: 1 })), /"SORT"/);
    const first = [{ $sort: { x: 1, a: 1 } }, { $group: { _id: '$x', a: { $first: '$a' } } }];
    assert.match(JSON.stringify(await d.aggregate(first).explain()), /DISTINCT_SCAN/);
    const last = [{ $sort: { x: -1, a: -1 } }, { $group: { _id: '$x', a: { $last: '$a' } } }];
    assert.doesNotMatch(JSON.stringify(await d.aggregate(last).explain()), /DISTINCT_SCAN/, 'the last by the largest element');
    const grouped = async (pipeline, hint) => (await d.aggregate([...pipeline, { $sort: { _id: 1 } }], { hint }).toArray());
    for (const pipeline of [first, last])
        assert.deepEqual(await grouped(pipeline, { x: 1, a: 1 }), await grouped(pipeline, { $natural: 1 }));
});

test('a remembered plan that needs too much memory for a sort gives way to another, and the trial says which failed', async () => {
    const db = node.client.db('replanned_sorts');
    const c = db.collection('c');
    await c.createIndexes([{ key: { x: 1 } }, { key: { y: 1 } }]);
    await c.insertMany(Array.from({ length: 40 }, (_, y) => ({ x: 7, y })));
    await c.insertOne({ x: 5, y: 1 });
    const set = (internalQueryMaxBlockingSortMemoryUsageBytes, allowDiskUseByDefault) =>
        node.admin.command({ setParameter: 1, internalQueryMaxBlockingSortMemoryUsageBytes, allowDiskUseByDefault });
    const sorted = (x) => c.find({ x }).sort({ y: 1 }).toArray();
    const cached = async () => (await c.aggregate([{ $planCacheStats: {} }]).toArray())[0];
    try {
        await set(400, false);
        for (let i = 0; i < 2; i++) assert.equal((await sorted(5)).length, 1);
        const { isActive, cachedPlan } = await cached();
        assert.deepEqual([isActive, cachedPlan.stage], [true, 'SORT'], 'one document is sorted sooner than forty are looked at');
        await db.command({ profile: 2, slowms: 0 });
        assert.equal((await sorted(7)).length, 40);
        const [row] = await db.collection('system.profile').find({ replanned: true }).toArray();
        assert.match(row.replanReason, /^cached plan returned: QueryExceededMemoryLimitNoDiskUseAllowed: Sort exceeded memory limit of 400 bytes/);
        await node.server.waitLog(({ msg, attr }) => msg === 'Slow query' && attr.replanned && attr.queryHash === row.queryHash && attr.planCacheKey === row.planCacheKey);
        await db.command({ planCacheClear: 'c' });
        assert.equal((await sorted(7)).length, 40);
        const { creationExecStats, candidatePlanScores } = await cached();
        assert.deepEqual(creationExecStats.map(({ failed }) => failed), [undefined, true]);
        assert.equal(candidatePlanScores[1], 0);
    } finally {
        await db.command({ profile: 0, slowms: 100 });
        await set(100 * 1024 * 1024, true);
    }
});

test('parameters say how long plans are tried and how often they let others through', async () => {
    const set = (parameters) => node.admin.command({ setParameter: 1, ...parameters });
    const trials = async () => (await c.find({ a: 3, b: { $gte: 0 } }).explain('allPlansExecution')).executionStats.allPlansExecution;
    const profiled = async (name) => {
        const own = node.client.db(name);
        await own.collection('c').insertMany(Array.from({ length: 500 }, (_, i) => ({ i })));
        await own.command({ profile: 2 });
        await own.collection('c').find({ i: -1 }).toArray();
        await own.command({ profile: 0 });
        return (await own.collection('system.profile').findOne({ op: 'query' })).numYield;
    };
    assert.ok((await trials()).some(({ nReturned }) => nReturned > 90));
    assert.ok((await profiled('knobs_before')) < 100);
    const before = await node.admin.command({
        getParameter: 1,
        internalQueryPlanEvaluationMaxResults: 1,
        internalQueryPlanEvaluationWorks: 1,
        internalQueryExecYieldIterations: 1,
    });
    delete before.ok;
    try {
        await set({ internalQueryPlanEvaluationMaxResults: 7 });
        assert.ok((await trials()).every(({ nReturned }) => nReturned <= 7));
        await set({ internalQueryPlanEvaluationMaxResults: before.internalQueryPlanEvaluationMaxResults });
        await set({ internalQueryPlanEvaluationWorks: 9 });
        assert.ok((await trials()).every(({ totalKeysExamined, totalDocsExamined }) => totalKeysExamined + totalDocsExamined < 25));
        await set({ internalQueryExecYieldIterations: 1 });
        assert.ok((await profiled('knobs_after')) >= 400);
        await fails(set({ internalQueryPlanEvaluationWorks: 0 }), 2);
    } finally {
        for (const [name, value] of Object.entries(before)) await set({ [name]: value });
    }
});

test('MET-1: a plan that was remembered and finds nothing for long is replaced, and the profiler says so', async () => {
    const d = db.collection('replanned');
    await d.insertMany(Array.from({ length: 30000 }, (_, i) => ({ a: i < 50 ? 2 : 1, b: i < 50 ? 7 : i })));
    await d.createIndexes([{ key: { a: 1 } }, { key: { b: 1 } }]);
    const ask = (a, b) => d.find({ a, b: { $gte: b, $lte: b + 1 } }).toArray();
    for (let i = 0; i < 3; i++) assert.equal((await ask(2, 7)).length, 50); // by a and by b alike: the first one is taken
    const rows = () => db.collection('system.profile').find({ ns: `${db.databaseName}.replanned`, replanned: true }).toArray();
    await db.command({ profile: 2 });
    assert.equal((await ask(1, 29990)).length, 2);
    await db.command({ profile: 0 });
    const told = await rows();
    for (const { replanReason, fromMultiPlanner } of told) {
        assert.match(replanReason, /^cached plan was less efficient than expected: no result after \d+ works/);
        assert.equal(fromMultiPlanner, true);
    }
    assert.equal(told.length, 1, 'by a there are 29940 keys before it');
});

test('QRY-1: an index filter decides which indexes a shape may use, also against a hint', async () => {
    const d = db.collection('filtered');
    await d.insertMany(Array.from({ length: 20 }, (_, i) => ({ x: i, y: i % 2 })));
    await d.createIndexes([{ key: { x: 1 } }, { key: { y: 1 } }]);
    const filters = async () => (await db.command({ planCacheListFilters: 'filtered' })).filters;
    const plan = async (cursor) => (await cursor.explain('queryPlanner')).queryPlanner;
    const indexOf = ({ winningPlan }) => winningPlan.inputStage?.indexName ?? winningPlan.stage;
    assert.deepEqual(await filters(), []);
    assert.equal(indexOf(await plan(d.find({ x: 3, y: 1 }))), 'x_1');
    await db.command({ planCacheSetFilter: 'filtered', query: { x: 1, y: 1 }, indexes: [{ y: 1 }] });
    const [shown] = await filters();
    assert.deepEqual(shown, { query: { x: 1, y: 1 }, sort: {}, projection: {}, indexes: [{ y: 1 }] });
    const filtered = await plan(d.find({ x: 3, y: 1 }).hint({ x: 1 }));
    assert.equal(indexOf(filtered), 'y_1');
    assert.equal(filtered.indexFilterSet, true);
    assert.equal((await plan(d.find({ x: 3 }))).indexFilterSet, false, 'another shape');
    await d.createIndex({ z: 1 });
    assert.equal(indexOf(await plan(d.find({ x: 4, y: 0 }))), 'y_1', 'filters outlive changes of indexes');
    assert.equal((await d.find({ x: 4, y: 0 }).toArray()).length, 1);
    await db.command({ planCacheSetFilter: 'filtered', query: { x: 1, y: 1 }, indexes: ['nothing'] });
    assert.equal(indexOf(await plan(d.find({ x: 4, y: 0 }))), 'COLLSCAN');
    await db.command({ planCacheClearFilters: 'filtered', query: { x: 5, y: 5 } });
    assert.equal((await plan(d.find({ x: 4, y: 0 }))).indexFilterSet, false);
    const projection = { y: 1, x: true, _id: 0 };
    await db.command({ planCacheSetFilter: 'filtered', query: { x: 1 }, projection, indexes: [{ z: 1 }] });
    const isFiltered = async (p) => (await plan(d.find({ x: 3 }, { projection: p }))).indexFilterSet;
    assert.equal(await isFiltered({ _id: false, x: 1, y: 5.5 }), true, 'the same projection in other words');
    assert.equal(await isFiltered({ x: 1, y: 1 }), false);
    assert.equal(await isFiltered({ _id: 0 }), false);
    const pipeline = [{ $match: { x: 3 } }, { $group: { _id: '$x', s: { $sum: '$y' } } }];
    const grouped = await db.command({ explain: { aggregate: 'filtered', pipeline, cursor: {} } });
    assert.equal(grouped.stages[0].$cursor.queryPlanner.indexFilterSet, true, 'what a pipeline reads is its projection');
    const collation = { locale: 'fr' };
    await db.createCollection('french', { collation });
    const f = db.collection('french');
    await f.createIndexes([{ key: { x: 1 } }, { key: { x: 1, y: 1 } }]);
    await db.command({ planCacheSetFilter: 'french', query: { x: 1 }, indexes: [{ x: 1, y: 1 }] });
    await db.command({ planCacheSetFilter: 'french', query: { x: 1 }, collation, indexes: [{ x: 1 }] });
    assert.equal(indexOf(await plan(f.find({ x: 3 }))), 'x_1_y_1', 'as it was given');
    assert.equal(indexOf(await plan(f.find({ x: 3 }).collation(collation))), 'x_1');
    await fails(db.command({ planCacheSetFilter: 'filtered', query: { x: 1 }, indexes: [] }), 2);
    await fails(db.command({ planCacheSetFilter: 'no_such', query: { x: 1 }, indexes: [{ x: 1 }] }), 2);
});

test('QRY-1: a scan skips the gaps that later fields of its index leave', async () => {
    const d = db.collection('gaps');
    await d.insertMany(Array.from({ length: 1000 }, (_, i) => ({ x: Math.floor(i / 100), y: i % 100 })));
    await d.createIndexes([{ key: { x: 1, y: -1 } }]);
    for (const direction of [1, -1]) {
        const cursor = d.find({ x: { $gte: 2, $lte: 5 }, y: { $in: [7, 50] } }).sort({ x: direction, y: -direction });
        const { executionStats } = await cursor.explain('executionStats');
        assert.equal(executionStats.nReturned, 8);
        assert.ok(executionStats.totalKeysExamined <= 8 + 13, `${executionStats.totalKeysExamined} keys`);
        const found = await d.find({ x: { $gte: 2, $lte: 5 }, y: { $in: [7, 50] } }).sort({ x: direction, y: -direction }).toArray();
        const expected = [2, 3, 4, 5].flatMap((x) => [[x, 50], [x, 7]]);
        assert.deepEqual(found.map(({ x, y }) => [x, y]), direction === 1 ? expected : expected.reverse());
    }
});

test('QRY-1: an index finds what is beside MinKey and MaxKey as a scan does, arrays too', async () => {
    const ends = db.collection('ends');
    const values = [new MaxKey(), [new MaxKey()], 3, [3], [], new MinKey(), [new MinKey()], undefined];
    await ends.insertMany(values.map((val, _id) => (val === undefined ? { _id } : { _id, val })));
    await ends.createIndex({ val: 1 });
    for (const operator of ['$gt', '$gte', '$lt', '$lte', '$eq', '$ne'])
        for (const end of [new MinKey(), new MaxKey()]) {
            const found = async (hint) => (await ends.find({ val: { [operator]: end } }).hint(hint).toArray()).map(({ _id }) => _id).sort();
            assert.deepEqual(await found({ val: 1 }), await found({ $natural: 1 }), `${operator} ${end._bsontype}`);
        }
});

test('$expr that demands an equality of a field finds it with an index, in every command that has a filter', async () => {
    const filter = { $expr: { $and: [{ $eq: ['$a', 3] }, { $gt: ['$n', 500] }] } };
    const found = await explained(c.find(filter));
    assert.equal(found.plan, 'FETCH IXSCAN');
    assert.equal(found.n, 50);
    assert.ok(found.docs <= 100, String(found.docs));
    assert.deepEqual(await c.find(filter).toArray(), await c.find(filter).hint({ $natural: 1 }).toArray());
    assert.equal(await c.countDocuments(filter), 50);
    const { queryPlanner } = await db.command({ explain: { update: 'c', updates: [{ q: filter, u: { $set: { x: 1 } } }] } });
    assert.match(chain(queryPlanner.winningPlan), /IXSCAN/);
    const negated = await explained(c.find({ $expr: { $ne: ['$a', 3] } }));
    assert.equal(negated.plan, 'COLLSCAN');
});

test('$expr with an order of a field and a constant finds with an index what a scan does', async () => {
    const values = [undefined, null, new MinKey(), NaN, -1, 5, 6.5, Infinity, 'a', 'B', 'c', {}, { b: 3 }, new Date(9), true, new MaxKey()];
    const literals = [...values.slice(1), {}, new Date(3)].map(($literal) => ({ $literal }));
    const docs = values.flatMap((a) => [a === undefined ? {} : { a }, { o: a === undefined ? {} : { a } }, { o: a === undefined ? 1 : a }]);
    const kinds = [{}, { sparse: true }, { collation: { locale: 'en', strength: 2 } }];
    const keys = [{ a: 1 }, { a: -1 }, { 'o.a': 1 }, { a: 1, 'o.a': 1 }];
    const arrays = [{ a: [] }, { a: [5, 'b'] }, { o: [] }, { o: [{ a: 5 }, { a: 'a' }] }];
    const filters = ['$gt', '$gte', '$lt', '$lte'].flatMap((operator) =>
        literals.flatMap((literal) =>
            ['$a', '$o.a'].flatMap((path) => [{ [operator]: [path, literal] }, { $and: [{ [operator]: [literal, path] }, { $gte: ['$_id', 2] }] }])
        )
    );
    const d = db.collection('orders');
    await d.insertMany(docs.map((doc, _id) => ({ ...doc, _id })));
    const found = async ($expr, options) => (await d.find({ $expr }, { ...options, projection: { _id: 1 } }).toArray()).map(({ _id }) => _id);
    for (const hasArrays of [false, true]) {
        if (hasArrays) await d.insertMany(arrays.map((doc, i) => ({ ...doc, _id: docs.length + i })));
        for (const key of keys)
            for (const kind of kinds) {
                await d.createIndex(key, kind);
                for (const filter of filters.filter((_, i) => i % keys.length === keys.indexOf(key))) {
                    const collation = kind.collation;
                    const expected = await found({ $or: [filter] }, { hint: { $natural: 1 }, collation }); // of which nothing follows
                    assert.deepEqual((await found(filter, { collation })).sort((x, y) => x - y), expected, JSON.stringify([key, kind, filter]));
                }
                await d.dropIndexes();
            }
    }
    await d.deleteMany({ _id: { $gte: docs.length } });
    await d.dropIndexes();
    await d.createIndex({ a: 1 });
    const { plan, keys: examined, n } = await explained(d.find({ $expr: { $and: [{ $gt: ['$a', 5] }, { $lte: ['$a', 'B'] }] } }));
    assert.deepEqual([plan, examined, n], ['FETCH IXSCAN', 3, 3]);
    const joined = [{ $lookup: { from: 'orders', let: { low: '$a' }, pipeline: [{ $match: { $expr: { $lt: ['$a', '$$low'] } } }], as: 'x' } }];
    const { stages } = await d.aggregate([{ $match: { a: -1 } }, ...joined]).explain('executionStats');
    assert.deepEqual(stages[1].indexesUsed, ['a_1']);
});

test('stageDebug runs a tree of stages, and refuses what it does not have', async () => {
    const run = async (plan) => (await db.command({ stageDebug: { collection: 'c', plan } })).results.map(({ _id }) => _id);
    const range = (from, to, direction, more) => ({
        args: { keyPattern: { s: 1, n: 1 }, startKey: from, endKey: to, startKeyInclusive: true, endKeyInclusive: false, direction },
        ...more,
    });
    const x1 = { s: 'x1', n: 101 };
    const x2 = { s: 'x2', n: 102 };
    assert.deepEqual(await run({ cscan: { args: { direction: -1 }, filter: { _id: { $lt: 3 } } } }), [2, 1, 0]);
    assert.deepEqual(await run({ ixscan: range(x1, { s: 'x1', n: 301 }, 1) }), [101, 151, 201, 251]);
    assert.deepEqual(await run({ limit: { args: { num: 2, node: { ixscan: range(x1, {}, -1) } } } }), [101, 51]);
    assert.deepEqual(await run({ skip: { args: { num: 3, node: { ixscan: range(x1, { s: 'x1', n: 301 }, 1) } } } }), [251]);
    assert.deepEqual(await run({ ixscan: range(x1, { s: 'x1', n: 301 }, 1, { filter: { n: 201 } }) }), [201]);
    const fetch = { fetch: { args: { node: { ixscan: range(x1, { s: 'x1', n: 301 }, 1) } }, filter: { _id: { $gt: 200 } } } };
    assert.deepEqual(await run(fetch), [201, 251]);
    const both = { nodes: [{ ixscan: range(x2, { s: 'x2', n: 202 }, 1) }, { ixscan: range(x1, { s: 'x1', n: 201 }, 1) }, fetch] };
    assert.deepEqual(await run({ or: { args: both } }), [102, 152, 101, 151, 201, 251]);
    assert.deepEqual(await run({ mergeSort: { args: { ...both, pattern: { n: 1 } } } }), [101, 102, 151, 152, 201, 251]);
    assert.deepEqual(await run({ sort: { args: { node: { or: { args: both } }, pattern: { n: -1 }, limit: 2 } } }), [251, 201]);
    await fails(run({ ixscan: range(x1, {}, 1, { filter: { a: 1 } }) }), 2);
    await fails(run({ andHash: { args: both } }), 238);
    await fails(run({ limit: { args: { num: 1 } } }), 9);
    let deep = { cscan: { args: { direction: 1 } } };
    for (let i = 0; i < 30; i++) deep = { limit: { args: { num: 1, node: deep } } };
    await fails(run(deep), 2);
});
