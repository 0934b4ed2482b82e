/* Buckets, redaction, memory limits, and the options of aggregate. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { startServer } from '../lib/server.mjs';

const node = useServer();
const run = (collection, stages, options) => collection.aggregate(stages, options).toArray();

async function withParameter(name, value, body) {
    const { was } = await node.admin.command({ setParameter: 1, [name]: value });
    try {
        return await body();
    } finally {
        await node.admin.command({ setParameter: 1, [name]: was });
    }
}

test('$bucket and $bucketAuto', async () => {
    const c = await node.collection(Array.from({ length: 100 }, (_, i) => ({ _id: i, n: i })));
    assert.deepEqual(
        await run(c, [{ $bucket: { groupBy: '$n', boundaries: [0, 10, 60], default: 'rest' } }]),
        [
            { _id: 0, count: 10 },
            { _id: 10, count: 50 },
            { _id: 'rest', count: 40 },
        ],
    );
    assert.deepEqual(
        await run(c, [
            { $bucketAuto: { groupBy: '$n', buckets: 3, output: { top: { $max: '$n' } } } },
        ]),
        [
            { _id: { min: 0, max: 33 }, top: 32 },
            { _id: { min: 33, max: 66 }, top: 65 },
            { _id: { min: 66, max: 99 }, top: 99 },
        ],
    );
    await fails(() => run(c, [{ $bucket: { groupBy: '$n', boundaries: [0, 10] } }]), 40066);
});

test('$redact cuts sub-documents', async () => {
    const c = await node.collection([
        { _id: 1, level: 1, a: { level: 5, x: 1 }, b: [{ level: 1 }, { level: 4 }] },
    ]);
    assert.deepEqual(
        await run(c, [
            { $redact: { $cond: [{ $gt: ['$level', 3] }, '$$PRUNE', '$$DESCEND'] } },
        ]),
        [{ _id: 1, level: 1, b: [{ level: 1 }] }],
    );
});

test('$group, $sort and $bucketAuto over their memory limit use the disk or fail with 292', async () => {
    const c = await node.collection(
        Array.from({ length: 20_000 }, (_, i) => ({
            _id: i,
            k: (i * 7919) % 9973,
            s: `text ${(i * 31) % 1000}`,
        })),
    );
    const pipelines = [
        [{ $group: { _id: '$k', n: { $sum: 1 } } }, { $sort: { _id: 1 } }],
        [{ $group: { _id: '$k', all: { $push: '$s' } } }, { $sort: { _id: 1 } }],
        [{ $sort: { s: 1, _id: 1 } }, { $group: { _id: '$s', f: { $first: '$_id' } } }, { $sort: { _id: 1 } }],
        [{ $bucketAuto: { groupBy: '$k', buckets: 10 } }],
    ];
    for (const pipeline of pipelines) {
        const expected = await run(c, pipeline);
        await withParameter('internalDocumentSourceGroupMaxMemoryBytes', 200_000, async () => {
            await withParameter('internalQueryMaxBlockingSortMemoryUsageBytes', 200_000, async () => {
                assert.deepEqual(await run(c, pipeline, { allowDiskUse: true }), expected);
                assert.deepEqual(await run(c, pipeline), expected, 'by default');
                await fails(() => run(c, pipeline, { allowDiskUse: false }), 292, {
                    name: 'QueryExceededMemoryLimitNoDiskUseAllowed',
                });
                await withParameter('allowDiskUseByDefault', false, async () => {
                    await fails(() => run(c, pipeline), 292);
                    assert.deepEqual(await run(c, pipeline, { allowDiskUse: true }), expected);
                });
            });
        });
    }
});

test('explain shows the stages, with executionStats what they did', async () => {
    const c = await node.collection(Array.from({ length: 50 }, (_, i) => ({ _id: i, k: i % 5 })));
    const stages = [
        { $match: { k: { $gt: 0 } } },
        { $group: { _id: '$k', n: { $sum: 1 } } },
        { $lookup: { from: c.collectionName, localField: '_id', foreignField: '_id', as: 'x' } },
        { $sort: { _id: 1 } },
    ];
    const plan = await c.aggregate(stages).explain('queryPlanner');
    assert.deepEqual(
        plan.stages.map((s) => Object.keys(s)[0]),
        ['$cursor', '$group', '$lookup', '$sort'],
    );
    const stats = await c.aggregate(stages).explain('executionStats');
    assert.equal(stats.stages[0].$cursor.executionStats.nReturned, 40);
    assert.deepEqual(
        stats.stages.slice(1).map((s) => Number(s.nReturned)),
        [4, 4, 4],
    );
    assert.equal(stats.stages[1].usedDisk, false);
    const written = await c.aggregate([{ $out: 'never_made' }]).explain('queryPlanner');
    assert.ok(JSON.stringify(written).includes('$out'));
    const names = await node.db.listCollections({ name: 'never_made' }).toArray();
    assert.deepEqual(names, []);
});

test('a sub-pipeline uses the index of its collection', async () => {
    const c = await node.collection([{ _id: 1, k: 3 }]);
    const other = await node.collection(
        Array.from({ length: 5000 }, (_, i) => ({ _id: i, k: i, pad: 'x'.repeat(50) })),
    );
    await other.createIndex({ k: 1 });
    const [joined] = await run(c, [
        {
            $lookup: {
                from: other.collectionName,
                let: { v: '$k' },
                pipeline: [{ $match: { $expr: { $eq: ['$k', '$$v'] } } }],
                as: 'f',
            },
        },
    ]);
    assert.equal(joined.f[0]._id, 3);
    const [{ accesses }] = await run(other, [{ $indexStats: {} }, { $match: { name: 'k_1' } }]);
    assert.equal(Number(accesses.ops), 1);
});

test('aggregate takes batchSize 0, comment, let and maxTimeMS together with sub-pipelines', async () => {
    const c = await node.collection([{ _id: 1 }, { _id: 2 }]);
    const reply = await node.db.command({
        aggregate: c.collectionName,
        pipeline: [
            { $sort: { _id: 1 } },
            { $lookup: { from: c.collectionName, pipeline: [{ $match: { $expr: { $eq: ['$_id', '$$v'] } } }], as: 'f' } },
        ],
        cursor: { batchSize: 0 },
        let: { v: 2 },
        comment: 'hello',
        maxTimeMS: 60_000,
    });
    assert.deepEqual(reply.cursor.firstBatch, []);
    const { cursor } = await node.db.command({
        getMore: reply.cursor.id,
        collection: c.collectionName,
    });
    assert.deepEqual(cursor.nextBatch, [
        { _id: 1, f: [{ _id: 2 }] },
        { _id: 2, f: [{ _id: 2 }] },
    ]);
});

test('a $lookup that takes too long is stopped by maxTimeMS', async () => {
    const c = await node.collection(Array.from({ length: 3000 }, (_, i) => ({ _id: i, k: 1 })));
    const stages = [
        { $lookup: { from: c.collectionName, localField: 'k', foreignField: 'k', as: 'f' } },
        { $group: { _id: { $sum: { $size: '$f' } } } },
    ];
    await fails(() => run(c, stages, { maxTimeMS: 50 }), 50);
});

test('$planCacheStats lists nothing, and only for a collection', async () => {
    const c = await node.collection([{ _id: 1 }]);
    assert.deepEqual(await run(c, [{ $planCacheStats: {} }]), []);
    await fails(() => run(c, [{ $match: {} }, { $planCacheStats: {} }]), 40602);
    await fails(() => run(node.db.collection('missing'), [{ $planCacheStats: {} }]), 50933);
});

test('what an unfinished $out left behind is gone after a restart', async () => {
    const server = await startServer();
    try {
        let db = (await server.client()).db('test');
        await db.createCollection('tmp.agg_out.left');
        await db.collection('kept').insertOne({ _id: 1 });
        await server.restart();
        db = (await server.client()).db('test');
        const list = await db.listCollections({}, { nameOnly: true }).toArray();
        assert.deepEqual(
            list.map((each) => each.name),
            ['kept'],
        );
    } finally {
        await server.remove();
    }
});
