/*
 * index_build.mjs - how fast an index is built, and what a build does to writers.
 *
 *     node bench/index_build.mjs        [SHERD=build/sherd] [BENCH=build/sherd-bench] [DOCS=1000000]
 *
 * 1. createIndexes of one field on DOCS documents against the floor wt-build (the same documents on
 *    WiredTiger alone: scan, sort in memory, bulk load).
 * 2. inserts of 8 connections with and without builds on the same collection, one after the other
 *    without pause, and the longest latencies of both.
 */
import { execFileSync, spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
process.env.SHERD_BIN ??= process.env.SHERD ?? join(root, 'build/sherd');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const DOCS = Number(process.env.DOCS ?? 1_000_000);
const { Server } = await import(join(root, 'tests/lib/server.mjs'));

const server = new Server({ args: ['--wiredTigerCacheSizeGB', '4'] });
await server.start();
const uri = `mongodb://127.0.0.1:${server.port}/bench`;
const client = await server.client();
const db = client.db('bench');

function bench(...args) {
    return JSON.parse(execFileSync(BENCH, [...args, '--json'], { encoding: 'utf8' }));
}

function benchAsync(...args) {
    return new Promise((resolve, reject) => {
        const child = spawn(BENCH, [...args, '--json'], { stdio: ['ignore', 'pipe', 'inherit'] });
        let text = '';
        child.stdout.on('data', (data) => (text += data));
        child.on('exit', (code) => (code === 0 ? resolve(JSON.parse(text)) : reject(code)));
    });
}

/* ---- 1 ---- */
bench('--workload', 'load', '--uri', uri, '--docs', `${DOCS}`, '--seconds', '600');
const times = [];
for (let i = 0; i < 5; i++) {
    const begun = performance.now();
    await db.collection('load').createIndex({ k: 1 });
    times.push(performance.now() - begun);
    await db.collection('load').dropIndex('k_1');
}
const floor = bench('--workload', 'wt-build', '--docs', `${DOCS}`, '--seconds', '4');
const best = DOCS / (Math.min(...times) / 1000);
const median = DOCS / (times.sort((a, b) => a - b)[2] / 1000);
console.log(`build: ${times.map((ms) => ms.toFixed(0)).join(' ')} ms`);
console.log(`floor: ${JSON.stringify(floor)}`);
const floorRate = floor.docs_per_s ?? floor.docs / floor.seconds;
console.log(
    `documents/s: best ${best.toFixed(0)}, median ${median.toFixed(0)}, floor ${floorRate.toFixed(0)}, ` +
        `median share ${(median / floorRate).toFixed(2)}`,
);

/* ---- 2 ---- */
const insert = ['--workload', 'insert1', '--uri', uri, '--connections', '8', '--seconds', '8'];
for (let round = 0; round < 2; round++) {
    const alone = await benchAsync(...insert);
    let isOver = false;
    let builds = 0;
    const together = benchAsync(...insert).finally(() => (isOver = true));
    const collection = db.collection('insert1');
    await new Promise((done) => setTimeout(done, 1000));
    while (!isOver) {
        await collection.createIndex({ k: 1 });
        builds++;
        await collection.dropIndex('k_1');
    }
    const during = await together;
    console.log(`alone:  ${JSON.stringify(alone)}`);
    console.log(`during: ${JSON.stringify(during)} with ${builds} builds`);
}
await server.remove();
