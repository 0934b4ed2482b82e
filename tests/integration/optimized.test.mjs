/*
 * Pipelines as they are optimized against the same stages held back from each other. Goal: what a
 * rewrite, an index or the find engine does for a pipeline never shows in its result. Method:
 * thousands of generated pipelines over a collection with indexes run as they are and with
 * $_internalInhibitOptimization before each stage. TEST_SEED chooses other inputs.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { EJSON } from 'bson';
import { random } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { Expressions, STAGES, makeDocument, makeFilter, makePipeline } from '../lib/generate.mjs';

const SEED = Number(process.env.TEST_SEED ?? 1);
const PIPELINE_COUNT = 1500;
const DOCUMENT_COUNT = 60;

const HOLD = { $_internalInhibitOptimization: {} };
const held = (pipeline) => pipeline.flatMap((stage) => [HOLD, stage]);

const node = useServer(
    {},
    {
        prepare: async ({ db }) => {
            const rand = random(SEED);
            const documents = Array.from({ length: DOCUMENT_COUNT }, (_, i) => makeDocument(rand, i));
            // Arrays within arrays, and numbers as names: where paths mean different things.
            documents.push(
                { _id: 'a', o: [{ x: 1 }, { x: [2, 3] }], i: [1, [2]], items: [[{ v: 1 }]], b: true },
                { _id: 'b', o: { 0: { x: 1 } }, i: { 0: 4 }, items: { v: [1, 2] }, ns: [[1], []], b: true },
            );
            // A key without arrays, and a second one that tells the documents of a group apart.
            documents.forEach((document, i) => Object.assign(document, i % 7 === 0 ? { w: i } : { t: i % 5, w: i }));
            await db.collection('c').insertMany(documents);
            await db.collection('c').createIndexes(
                [{ i: 1, _id: 1 }, { s: 1, d: -1 }, { t: 1, w: 1 }, { 'o.x': 1 }, { ns: 1 }, { 'items.v': 1, b: 1 }].map((key) => ({ key })),
            );
            await db
                .collection('other')
                .insertMany(Array.from({ length: 12 }, (_, n) => ({ n: n - 6, many: [n, n - 1], o: { x: n } })));
            await db.collection('other').createIndex({ n: 1 });
        },
    },
);

/* Stages that rename, and filters of what they have named. */
const RENAMES = [
    ['$project', (rand) => ({ x: rand.pick(['$i', '$o', '$o.x', '$ns', '$items']), y: '$s', d: 1, o: 1 })],
    ['$addFields', (rand) => ({ x: rand.pick(['$i', '$o', '$d', '$items', '$none']), y: '$$ROOT.o' })],
    ['$project', () => ({ o: '$x', i: '$y', x: '$o', y: '$i' })],
    ['$set', (rand) => ({ i: '$d', d: rand.pick(['$i', '$x']) })],
    ['$group', (rand) => ({ _id: rand.pick(['$x', '$i', '$o']), n: { $sum: 1 } })],
];
const CONDITIONS = (rand) => [
    () => rand.below(9) - 4,
    () => null,
    () => ({ $gt: rand.below(9) - 4 }),
    () => ({ $in: [rand.below(5), null, 'a'] }),
    () => ({ $exists: rand.below(2) === 0 }),
    () => ({ $type: rand.pick(['number', 'object', 'array', 'null', ['string', 'bool']]) }),
    () => ({ $not: { $type: rand.pick(['number', 'null', 'array']) } }),
    () => ({ $ne: rand.below(5) }),
    () => ({ $size: rand.below(3) }),
];
function renamedFilter(rand) {
    const one = () => ({
        [rand.pick(['x', 'y', 'x.x', 'y.x', 'x.v', 'y.y', 'i', 'o.x', '_id'])]: rand.pick(CONDITIONS(rand))(),
    });
    return rand.pick([one, () => ({ ...one(), ...one() }), () => ({ $or: [one(), one()] }), () => ({ $nor: [one()] })])();
}

function makeRenaming(rand) {
    const pipeline = [];
    for (let count = 1 + rand.below(3); count > 0; count--) {
        const [name, maker] = rand.pick(RENAMES);
        pipeline.push({ [name]: maker(rand) });
        if (rand.below(3) === 0) pipeline.push({ $match: renamedFilter(rand) });
    }
    pipeline.push({ $match: renamedFilter(rand) });
    return pipeline;
}

/* The first or last of each group in an order, which an index may give. */
function makeGrouping(rand) {
    const key = rand.pick(['i', 's', 'o.x', 't']);
    const order = rand.pick([1, -1]);
    const pick = rand.pick(['$first', '$last']);
    const filter = rand.below(2) === 0 ? [{ $match: { [key]: rand.pick([{ $gt: -3 }, { $type: 'number' }, 'a']) } }] : [];
    const sort = { $sort: { [key]: order, ...(key === 't' ? { w: order } : { _id: order }) } };
    const picked = key === 't' ? '$w' : '$_id';
    const fields = rand.pick([{ f: { [pick]: picked } }, { f: { [pick]: picked }, g: { [pick]: `$${key}` } }, {}]);
    return [...filter, sort, { $group: { _id: `$${key}`, ...fields } }];
}

async function run(pipeline) {
    try {
        const results = await node.db.collection('c').aggregate(pipeline).toArray();
        return { texts: results.map((result) => EJSON.stringify(result, { relaxed: false })).sort() };
    } catch (error) {
        return { code: error.code ?? error.message };
    }
}

async function compare(makers, count) {
    const rand = random(SEED);
    let equal = 0;
    for (let i = 0; i < count; i++) {
        const pipeline = rand.pick(makers)(rand);
        const [optimized, plain] = [await run(pipeline), await run(held(pipeline))];
        // A document that makes a stage fail may be gone before it gets there, never the other way.
        if (plain.code !== undefined && optimized.code === undefined) continue;
        assert.deepEqual(optimized, plain, inspect(pipeline, { depth: 20 }));
        equal += plain.texts !== undefined;
    }
    assert.ok(equal > count / 2, `only ${equal} of ${count} pipelines gave results`);
}

test('QRY-1: an optimized pipeline gives what its stages give when they are held back', async () => {
    const expressions = new Expressions(random(SEED));
    const filters = [...STAGES, ['$match', (rand) => makeFilter(rand, expressions)]];
    // Limits and the order of values are defined after a sort only, and the index of a plan may be any.
    await compare([(rand) => [{ $sort: { _id: 1 } }, ...makePipeline(rand, expressions, filters)]], PIPELINE_COUNT);
});

test('QRY-1: filters that move past renames find what they find behind them', async () => {
    await compare([makeRenaming], PIPELINE_COUNT);
});

/* Names of all stages of the plan at the beginning of a pipeline. */
async function planOf(pipeline) {
    const reply = await node.db.command({ explain: { aggregate: 'c', pipeline, cursor: {} }, verbosity: 'queryPlanner' });
    const names = [];
    const { queryPlanner } = reply.stages?.[0].$cursor ?? reply;
    for (let stage = queryPlanner.winningPlan; stage !== undefined; stage = stage.inputStage) names.push(stage.stage);
    return names;
}

test('QRY-1: filters behind renames, and groups in the order of an index, use the index', async () => {
    const filters = [{ $gt: 3 }, { $in: [1, 2] }, { $type: 'number' }, { $type: ['int', 'double'] }];
    for (const filter of filters) {
        assert.ok((await planOf([{ $project: { _id: 0, z: '$i' } }, { $match: { z: filter } }])).includes('IXSCAN'));
        assert.ok((await planOf([{ $addFields: { z: '$i' } }, { $match: { z: filter } }])).includes('IXSCAN'));
    }
    const renames = [{ $project: { d: '$i' } }, { $addFields: { e: '$$CURRENT.d' } }, { $project: { f: '$$ROOT.e' } }];
    assert.ok((await planOf([...renames, { $match: { f: { $type: 'int' } } }])).includes('IXSCAN'));
    // A missing key of a group becomes null, which only some conditions do not tell apart.
    assert.ok((await planOf([{ $group: { _id: '$i' } }, { $match: { _id: { $type: 'null' } } }])).includes('COLLSCAN'));
    const first = { $group: { _id: '$t', f: { $first: '$w' } } };
    assert.ok((await planOf([{ $sort: { t: 1, w: 1 } }, first])).includes('DISTINCT_SCAN'));
});

test('QRY-1: groups read from an index are those of all documents', async () => {
    await compare([makeGrouping], PIPELINE_COUNT / 3);
});
