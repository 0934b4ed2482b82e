/*
 * Pipelines within pipelines, and views that refer to views by them: cycles and depth are refused,
 * what is left can be interrupted, and its memory is bounded.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { startServer, waitFor } from '../lib/server.mjs';

const node = useServer();

const makeView = (name, viewOn, pipeline = [], db = node.db) =>
    db.createCollection(name, { viewOn, pipeline });

/* All the ways in which a pipeline can read another collection. */
const READERS = {
    lookup: (from) => ({ $lookup: { from, pipeline: [], as: 'x' } }),
    'lookup by fields': (from) => ({
        $lookup: { from, localField: 'a', foreignField: 'a', as: 'x' },
    }),
    graphLookup: (from) => ({
        $graphLookup: {
            from,
            startWith: '$a',
            connectFromField: 'a',
            connectToField: 'b',
            as: 'x',
        },
    }),
    unionWith: (from) => ({ $unionWith: from }),
    'unionWith a pipeline': (coll) => ({ $unionWith: { coll, pipeline: [] } }),
    'within a pipeline': (from) => ({
        $lookup: { from: 'none', pipeline: [{ $unionWith: from }], as: 'x' },
    }),
    'within a facet': (from) => ({ $facet: { a: [{ $match: {} }], b: [{ $unionWith: from }] } }),
};

test('CAT-7: views that refer to each other in a circle are refused', async () => {
    for (const [what, read] of Object.entries(READERS)) {
        const [a, b, c] = [node.newName('v'), node.newName('v'), node.newName('v')];
        await fails(makeView(a, 'base', [read(a)]), 5, { name: 'GraphContainsCycle' });
        await makeView(a, 'base', [read(b)]);
        await makeView(b, c);
        await fails(makeView(c, 'base', [read(a)]), 5);
        await fails(makeView(c, a), 5);
        await makeView(c, 'base');
        const modify = { collMod: c, viewOn: 'base', pipeline: [read(a)] };
        await fails(node.db.command(modify), 5, { message: /cycle/i });
        const count = (await node.db.collection(a).find().toArray()).length;
        assert.equal(count, what === 'within a facet' ? 1 : 0);
    }
});

test('CAT-7: views are at most twenty deep, by whatever stages', async () => {
    for (const read of Object.values(READERS)) {
        const names = Array.from({ length: 21 }, () => node.newName('v'));
        for (let i = 0; i < 20; i++)
            await makeView(names[i], 'base', i === 0 ? [] : [read(names[i - 1])]);
        await fails(makeView(names[20], 'base', [read(names[19])]), 165, {
            name: 'ViewDepthLimitExceeded',
        });
        /* A change below makes all above deeper. */
        const below = node.newName('v');
        await makeView(below, 'base');
        const modify = { collMod: names[0], viewOn: 'base', pipeline: [read(below)] };
        await fails(node.db.command(modify), 165);
    }
});

test('AGG-5: pipelines are nested at most twenty deep, through views as well', async () => {
    const nested = (depth) => {
        let pipeline = [];
        for (let i = 0; i < depth; i++) pipeline = [{ $unionWith: { coll: 'none', pipeline } }];
        return pipeline;
    };
    const base = await node.collection([{ _id: 1, a: 1 }]);
    assert.equal((await base.aggregate(nested(20)).toArray()).length, 1);
    await fails(base.aggregate(nested(21)).toArray(), 232, { name: 'MaxSubPipelineDepthExceeded' });
    const view = node.newName('v');
    await makeView(view, base.collectionName, nested(12));
    const over = (depth) => {
        let pipeline = [{ $unionWith: view }];
        for (let i = 1; i < depth; i++)
            pipeline = [{ $unionWith: { coll: 'none', pipeline } }];
        return base.aggregate(pipeline).toArray();
    };
    assert.equal((await over(8)).length, 2);
    await fails(over(9), 232);
    /* With localField and foreignField there is no pipeline in sight. */
    let below = base.collectionName;
    for (let i = 0; i < 19; i++) {
        const name = node.newName('v');
        const lookup = { from: below, localField: 'a', foreignField: 'a', as: 'x' };
        await makeView(name, base.collectionName, [{ $lookup: lookup }]);
        below = name;
    }
    const lookup = { from: below, localField: 'a', foreignField: 'a', as: 'x' };
    assert.equal((await base.aggregate([{ $lookup: lookup }]).toArray()).length, 1);
    const twice = [{ $lookup: { from: 'none', pipeline: [], as: 'y' } }, { $lookup: lookup }];
    const union = { $unionWith: { coll: base.collectionName, pipeline: twice } };
    await fails(base.aggregate([union]).toArray(), 232);
});

test('AGG-5: many stages in nested pipelines are refused, not too much for the stack', async () => {
    const base = await node.collection([{ _id: 1 }]);
    const stages = () => Array.from({ length: 900 }, () => ({ $redact: '$$KEEP' }));
    let pipeline = stages();
    for (let i = 0; i < 10; i++) {
        const inner = pipeline;
        pipeline = [{ $unionWith: { coll: base.collectionName, pipeline: inner } }, ...stages()];
        if (i > 0) await fails(base.aggregate(pipeline).toArray(), 7749501);
        else assert.equal((await base.aggregate(pipeline).toArray()).length, 2);
    }
});

/* Each view reads the next one several times: a tree that grows with the depth, over nothing. */
async function makeTree(db, depth) {
    await makeView('tree0', 'nothing', [], db);
    for (let i = 1; i <= depth; i++) {
        const below = `tree${i - 1}`;
        const lookup = { $lookup: { from: below, pipeline: [], as: 'x' } };
        await makeView(
            `tree${i}`,
            below,
            [
                { $unionWith: below },
                lookup,
                { $facet: { a: [{ $unionWith: below }], b: [lookup, { $unionWith: below }] } },
                { $match: { none: 1 } },
            ],
            db,
        );
    }
    return db.collection(`tree${depth}`);
}

test('CRS-3: a tree of empty views ends by maxTimeMS, killOp and SIGTERM', async () => {
    const server = await startServer();
    try {
        const client = await server.client({ serverSelectionTimeoutMS: 500 });
        const top = await makeTree(client.db('test'), 14);
        const begin = Date.now();
        await fails(top.find().maxTimeMS(200).toArray(), 50);
        assert.ok(Date.now() - begin < 3000, `${Date.now() - begin} ms`);

        const killed = fails(top.aggregate([], { comment: 'kill me' }).toArray(), 11601);
        const admin = client.db('admin');
        const find = async () => {
            const { inprog } = await admin.command({ currentOp: 1, 'command.comment': 'kill me' });
            return inprog[0];
        };
        const { opid } = await waitFor(find, { what: 'the operation' });
        await admin.command({ killOp: 1, op: opid });
        await killed;

        const stopped = top.aggregate([], { comment: 'kill me' }).toArray().catch((e) => e);
        await waitFor(find, { what: 'the operation' });
        const end = Date.now();
        server.signal('SIGTERM');
        const { code } = await server.waitEnd();
        assert.equal(code, 0);
        assert.ok(Date.now() - end < 10_000, `${Date.now() - end} ms`);
        assert.ok((await stopped) instanceof Error);
    } finally {
        await server.remove();
    }
});

test('AGG-5: $facet is bounded as a whole, not per pipeline', async () => {
    const server = await startServer({ args: ['--wiredTigerCacheSizeGB', '0.25'] });
    try {
        const client = await server.client();
        const collection = client.db('test').collection('c');
        const pad = 'x'.repeat(500_000);
        await collection.insertMany(Array.from({ length: 60 }, (_, i) => ({ _id: i, pad })));
        const facets = (pipeline) => {
            const all = Array.from({ length: 20 }, (_, i) => [`f${i}`, pipeline]);
            return collection.aggregate([{ $facet: Object.fromEntries(all) }]);
        };
        await fails(facets([{ $match: {} }]).toArray(), 4031700);
        const peak = readFileSync(`/proc/${server.pid}/status`, 'utf8').match(/VmHWM:\s*(\d+) kB/);
        assert.ok(Number(peak[1]) < 700_000, `${peak[1]} kB at most`);
        /* What each gathers goes to the disk before all together are too much. */
        const numbers = [
            { $project: { n: { $range: [0, 500] } } },
            { $unwind: '$n' },
            { $group: { _id: { i: '$_id', n: '$n' }, text: { $first: 'x'.repeat(300) } } },
            { $count: 'n' },
        ];
        const [counts] = await facets(numbers).toArray();
        assert.equal(counts.f19[0].n, 60 * 500);
    } finally {
        await server.remove();
    }
});
