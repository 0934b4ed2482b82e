/*
 * router.mjs - what a router costs: the same workload through it and directly on a shard.
 *
 *     node bench/router.mjs   [SHERD=build/sherd] [BENCH=build/sherd-bench] [SECONDS_EACH=4]
 *
 * Two shards of one member, one router, 8 connections. Sharded collections are spread by hashes of _id; the range of 100 documents is
 * on one shard of a collection that is sharded by _id. Pairs are measured one after the other, three times; the median ratio counts.
 * Loads are unordered batches of 1,000. The start of a router is measured until it waits for connections, ten times.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
process.env.SHERD_BIN ??= process.env.SHERD ?? join(root, 'build/sherd');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const SECONDS = process.env.SECONDS_EACH ?? '4';
const DOCS = 100_000;
const PAIRS = 3;
const STARTS = 10;
const { makeRouter, startCluster } = await import(join(root, 'tests/lib/cluster.mjs'));
const run = promisify(execFile);

const cluster = await startCluster({ cacheGB: 2 });
const [router] = cluster.routers;
const [direct] = cluster.shards[0].members;

async function bench(workload, server, db, more = []) {
    const args = ['--workload', workload, '--connections', '8', '--json', '--seconds', SECONDS];
    if (workload !== 'insert1' && workload !== 'load') args.push('--docs', `${DOCS}`);
    args.push('--uri', `mongodb://127.0.0.1:${server.port}/${db}?w=1`, ...more);
    const { stdout } = await run(BENCH, args, { maxBuffer: 1 << 24 });
    return JSON.parse(stdout);
}

async function compare(label, wanted, workload, db, more) {
    const figure = workload === 'load' ? 'docs_per_s' : 'ops_per_s';
    const pairs = [];
    for (let i = 0; i < PAIRS; i++) {
        const through = await bench(workload, router, db, more);
        pairs.push([through[figure], (await bench(workload, direct, 'direct'))[figure]]);
    }
    pairs.sort((a, b) => a[0] / a[1] - b[0] / b[1]);
    const [measured, floor] = pairs[(PAIRS - 1) / 2];
    const value = (measured / floor).toFixed(3);
    const numbers = `${Math.round(measured)} / ${Math.round(floor)}`;
    console.log(`${label.padEnd(58)} ${value.padStart(7)}  (wanted ${wanted})  ${numbers}`);
}

const HASHED = ['--shard-by', 'hashed'];
await cluster.admin({ enableSharding: 'hashed', primaryShard: 'shard0' });
await cluster.admin({ enableSharding: 'ranged', primaryShard: 'shard0' });
await cluster.admin({ enableSharding: 'whole', primaryShard: 'shard0' });
await compare('point-read through the router / direct', '0.45', 'point-read', 'hashed', HASHED);
await compare('update through the router / direct', '0.45', 'update', 'hashed', HASHED);
await compare('insert1 through the router / direct', '0.45', 'insert1', 'hashed', HASHED);
await compare('load over two shards / direct to one', '0.80', 'load', 'hashed', HASHED);
await compare('range of 100 documents on one shard / direct', '0.50', 'range-scan', 'ranged', ['--shard-by', 'range']);
await compare('point-read of an unsharded collection / direct', '0.45', 'point-read', 'whole', []);
await compare('update of an unsharded collection / direct', '0.45', 'update', 'whole', []);
const memory = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${router.pid}/status`, 'utf8'))[1];
console.log(`router: ${(Number(memory) / 1024).toFixed(1)} MB at most (wanted 20)`);
const starts = [];
for (let i = 0; i < STARTS; i++) {
    const another = makeRouter(cluster.config.address);
    const begun = performance.now();
    await another.start();
    starts.push(performance.now() - begun);
    await another.remove();
}
starts.sort((a, b) => a - b);
console.log(`start of a router: ${starts[STARTS / 2].toFixed(0)} ms (wanted 100)`);
await cluster.remove();
