/* QRY-1, KEY-3: a pipeline stays within its memory limit on an input ten times that size, and says so when it
 * may not use the disk. Measured as the growth of the node's peak memory over the run of each pipeline. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { useServer } from '../lib/fixture.mjs';

const MB = 1024 * 1024;
const LIMIT_MB = 16;
const SLACK_MB = 40; // buffers of runs, replies, the engine's cache, what the allocator has not given back
const DOCS = 10 * LIMIT_MB * 1024;

const node = useServer(
    {
        args: [
            '--wiredTigerCacheSizeGB',
            '0.5',
            '--setParameter',
            `internalQueryMaxBlockingSortMemoryUsageBytes=${LIMIT_MB * MB}`,
            '--setParameter',
            `internalDocumentSourceGroupMaxMemoryBytes=${LIMIT_MB * MB}`,
            '--setParameter',
            `internalDocumentSourceSetWindowFieldsMaxMemoryBytes=${LIMIT_MB * MB}`,
        ],
    },
    {
        prepare: async ({ db }) => {
            const pad = 'p'.repeat(960);
            for (let from = 0; from < DOCS; from += 4096)
                await db.collection('big').insertMany(
                    Array.from({ length: 4096 }, (_, i) => ({
                        _id: from + i,
                        r: ((from + i) * 7919) % DOCS,
                        g: (from + i) % 100,
                        pad,
                    })),
                );
            await db.collection('big').countDocuments({ pad: 'none' }); // everything is in the cache
        },
    },
);

function memoryKb(field) {
    const status = readFileSync(`/proc/${node.server.pid}/status`, 'utf8');
    return Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)[1]);
}

/* Builds without sanitizers only: those keep freed memory. */
const isMeasured = !/asan|tsan/.test(process.env.SHERD_BIN ?? '');

async function growthMb(run) {
    writeFileSync(`/proc/${node.server.pid}/clear_refs`, '5'); // the peak starts from now
    const before = memoryKb('VmRSS');
    await run();
    return (memoryKb('VmHWM') - before) / 1024;
}

const PIPELINES = [
    ['$sort', [{ $sort: { r: 1 } }, { $skip: DOCS - 1 }], 1],
    ['$group with as many groups as documents', [{ $group: { _id: '$r', p: { $first: '$pad' } } }, { $count: 'n' }], 1],
    ['$group that keeps values', [{ $group: { _id: '$r', all: { $push: '$pad' } } }, { $count: 'n' }], 1],
    ['$bucketAuto', [{ $bucketAuto: { groupBy: '$r', buckets: 10 } }], 10],
    [
        '$setWindowFields',
        [
            { $setWindowFields: { partitionBy: '$g', sortBy: { r: 1 }, output: { n: { $documentNumber: {} } } } },
            { $match: { n: 1 } },
            { $count: 'n' },
        ],
        1,
    ],
    [
        'a window that looks far ahead',
        [
            { $setWindowFields: { sortBy: { _id: 1 }, output: { later: { $shift: { output: '$r', by: DOCS / 2 } } } } },
            { $match: { $expr: { $eq: ['$later', { $mod: [{ $multiply: [{ $add: ['$_id', DOCS / 2] }, 7919] }, DOCS] }] } } },
            { $count: 'n' },
            { $match: { n: DOCS / 2 } },
        ],
        1,
    ],
];
for (const [name, pipeline, count] of PIPELINES) {
    test(`${name} stays within its memory on ten times as much input`, async () => {
        let found;
        const grown = await growthMb(async () => {
            found = await node.db.collection('big').aggregate(pipeline, { allowDiskUse: true }).toArray();
        });
        assert.equal(found.length, count);
        if (isMeasured) assert.ok(grown < LIMIT_MB + SLACK_MB, `grew by ${grown.toFixed(1)} MB`);
        const refused = node.db.collection('big').aggregate(pipeline, { allowDiskUse: false }).toArray();
        await assert.rejects(refused, ({ code }) => [292, 5643011].includes(code));
    });
}

test('MET-1: what went to the disk is told by explain and by the profiler', async () => {
    const pipeline = [
        { $setWindowFields: { sortBy: { _id: 1 }, output: { later: { $shift: { output: '$r', by: DOCS / 2 } } } } },
        { $count: 'n' },
    ];
    const explained = await node.db.command({
        explain: { aggregate: 'big', pipeline, cursor: {}, allowDiskUse: true },
        verbosity: 'executionStats',
    });
    const window = explained.stages.find((stage) => '$_internalSetWindowFields' in stage);
    assert.equal(window.usedDisk, true);
    assert.ok(window.maxTotalMemoryUsageBytes > LIMIT_MB * MB / 2);
    assert.ok(window.maxFunctionMemoryUsageBytes.later >= 0);
    const grouped = await node.db.command({
        explain: {
            aggregate: 'big',
            pipeline: [{ $group: { _id: '$r', first: { $first: '$pad' }, n: { $sum: 1 } } }],
            cursor: {},
            allowDiskUse: true,
        },
        verbosity: 'executionStats',
    });
    const group = grouped.stages.find((stage) => '$group' in stage);
    assert.equal(group.usedDisk, true);
    assert.ok(group.spills > 0 && group.spilledRecords > 0 && group.spilledRecords <= 3 * DOCS);
    assert.ok(group.spilledDataStorageSize > group.spilledRecords * 960);
    const { first, n } = group.maxAccumulatorMemoryUsageBytes;
    assert.ok(first > n && n > 0 && first + n < LIMIT_MB * MB);
    await node.db.command({ profile: 2 });
    for (const comment of ['windows', 'sort'])
        await node.db
            .collection('big')
            .aggregate(comment === 'sort' ? [{ $sort: { r: 1 } }, { $skip: DOCS - 1 }] : pipeline, { allowDiskUse: true, comment })
            .toArray();
    await node.db.command({ profile: 0 });
    for (const comment of ['windows', 'sort'])
        assert.equal((await node.db.collection('system.profile').findOne({ 'command.comment': comment })).usedDisk, true);
});
