/*
 * moves.mjs - what moving a range costs: how fast documents are cloned, how long writes and reads are blocked, how fast what is left
 * behind is deleted.
 *
 *     node bench/moves.mjs   [SHERD=build/sherd] [BENCH=build/sherd-bench] [DOCS=1000000] [SECTIONS=40]
 *
 * Two shards of one member, one router, one machine.
 */
import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
process.env.SHERD_BIN ??= process.env.SHERD ?? join(root, 'build/sherd');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const DOCS = Number(process.env.DOCS ?? 1_000_000);
const SECTIONS = Number(process.env.SECTIONS ?? 40);
const WRITES_PER_S = 2000;
const { startCluster } = await import(join(root, 'tests/lib/cluster.mjs'));

const cluster = await startCluster({ cacheGB: 4 });
const client = await cluster.client();
const [donor, recipient] = cluster.shards;
const told = async (shard) => (await shard.command(shard.members[0], { serverStatus: 1 })).shardingStatistics;
const seconds = (start) => (performance.now() - start) / 1000;
const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
const print = (label, value, wanted) => console.log(`${label.padEnd(64)} ${value.padStart(14)}  (wanted ${wanted})`);

for (const shard of cluster.shards) await shard.command(shard.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });

/* ---- the clone ---- */

const load = ['--workload', 'load', '--connections', '8', '--seconds', '5', '--json'];
const { stdout } = await promisify(execFile)(BENCH, [...load, '--uri', `mongodb://127.0.0.1:${recipient.members[0].port}/direct?w=1`]);
const insertRate = JSON.parse(stdout).docs_per_s;
await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
await cluster.admin({ shardCollection: 'd.c', key: { _id: 1 } }); // so it has the indexes that the other one has
const coll = client.db('d').collection('c');
const pad = 'x'.repeat(230);
for (let k = 0; k < DOCS; k += 10_000)
    await coll.insertMany(
        Array.from({ length: Math.min(10_000, DOCS - k) }, (_, i) => ({ _id: k + i, k: k + i, n: 0, pad })),
        { ordered: false },
    );
await donor.command(donor.members[0], { setParameter: 1, disableResumableRangeDeleter: true });
let start = performance.now();
await cluster.admin({ moveRange: 'd.c', min: { _id: 0 }, max: { _id: DOCS }, toShard: 'shard1', forceJumbo: true });
const moveRate = DOCS / seconds(start);
const cloneRate = (DOCS / Number((await told(recipient)).totalRecipientChunkCloneTimeMillis)) * 1000;
print(`clone of ${DOCS} documents / bulk insert of one node`, (cloneRate / insertRate).toFixed(2), '0.7');
print('the whole move, with the digests of both sides / bulk insert of one node', (moveRate / insertRate).toFixed(2), '');
console.log(`   ${Math.round(cloneRate)}, ${Math.round(moveRate)} / ${Math.round(insertRate)} documents per second`);

/* ---- writers, of another collection ---- */

await cluster.admin({ shardCollection: 'd.s', key: { k: 1 } });
const small = client.db('d').collection('s');
await small.insertMany(Array.from({ length: 20_000 }, (_, k) => ({ _id: k, k, n: 0, pad })));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let isOver = false;
let latencies = [];
const writer = async (of) => {
    while (!isOver) {
        const begun = performance.now();
        await small.updateOne({ k: Math.floor(Math.random() * 20_000) }, { $inc: { n: 1 } });
        latencies.push(performance.now() - begun);
        const rest = (1000 * of) / WRITES_PER_S - (performance.now() - begun);
        if (rest > 1) await pause(rest);
    }
};
const latenciesSoFar = () => {
    const sorted = latencies.sort((a, b) => a - b);
    latencies = [];
    return sorted;
};
const startWriters = () => {
    isOver = false;
    latencies = [];
    return Array.from({ length: 16 }, () => writer(16));
};
const stopWriters = async (writers) => {
    isOver = true;
    await Promise.all(writers);
};

/* ---- deletion of what the move has left behind, throttled and not ---- */

const setDonor = (settings) => donor.command(donor.members[0], { setParameter: 1, ...settings });
let writers = startWriters();
await pause(5000);
const quiet = latenciesSoFar();
await setDonor({ rangeDeleterBatchSize: 128, disableResumableRangeDeleter: false });
await pause(5000);
const throttled = latenciesSoFar();
await setDonor({ disableResumableRangeDeleter: true });
await stopWriters(writers);
const left = DOCS - Number((await told(donor)).countDocsDeletedByRangeDeleter);
start = performance.now();
await setDonor({ rangeDeleterBatchSize: 0, rangeDeleterBatchDelayMS: 0, disableResumableRangeDeleter: false });
await donor.command(donor.members[0], { cleanupOrphaned: 'd.c' });
print('range deletion without throttle, documents per second', `${Math.round(left / seconds(start))}`, '100000');

/* ---- critical sections ---- */

writers = startWriters();
start = performance.now();
await pause(1000);
const sections = [];
let reads = 0;
for (let i = 0; i < SECTIONS; i++) {
    const [from, to] = i % 2 === 0 ? cluster.shards : [...cluster.shards].reverse();
    const before = await told(from);
    await cluster.admin({ moveRange: 'd.s', min: { k: 0 }, max: { k: 10_000 }, toShard: to.name });
    const after = await told(from);
    sections.push(after.lastCriticalSectionTimeMicros / 1000);
    reads += after.totalCriticalSectionCommitTimeMillis - before.totalCriticalSectionCommitTimeMillis;
}
await stopWriters(writers);
const rate = latencies.length / seconds(start);
const moving = latenciesSoFar();
sections.sort((a, b) => a - b);
print(`writes blocked, with ${Math.round(rate)} writes/s going on, p50`, `${at(sections, 0.5).toFixed(1)} ms`, '10 ms');
print('the same, p99', `${at(sections, 0.99).toFixed(1)} ms`, '40 ms');
print('reads blocked, mean', `${(reads / SECTIONS).toFixed(1)} ms`, 'p99 10 ms');
const compare = (label, sorted, wanted) => {
    print(`latency of these writes at p99, ${label} / without`, (at(sorted, 0.99) / at(quiet, 0.99)).toFixed(1), wanted);
    console.log(`   ${at(sorted, 0.99).toFixed(1)} / ${at(quiet, 0.99).toFixed(1)} ms`);
};
compare('during moves', moving, '2.0');
compare('during throttled range deletion', throttled, '1.3');
await cluster.remove();
