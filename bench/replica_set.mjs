/*
 * replica_set.mjs - a set of three members, and one of one, on this machine.
 *
 *     node bench/replica_set.mjs   [SHERD=build/sherd] [BENCH=build/sherd-bench] [SECONDS_EACH=4]
 *
 * 1. insert1 on the primary of three: w: 1 and w: majority, against the echo floor.
 * 2. The longest time until the secondaries have what the primary had, under the w: 1 load.
 * 3. point-read on a secondary, and insert1 on a set of one, against a standalone node.
 * 4. Catching up: a member is stopped, the primary takes inserts at full speed, the member comes back:
 *    entries it applies per second against the inserts per second.
 * 5. Time without writes over a planned step-down, and over kill -9 with electionTimeoutMillis 2000.
 *
 * The echo floor is measured before and after; the better one counts.
 */
import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
process.env.SHERD_BIN ??= process.env.SHERD ?? join(root, 'build/sherd');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const SECONDS = process.env.SECONDS_EACH ?? '4';
const DOCS = '100000';
const CATCH_UP_MS_MAX = 120_000;
const { Server } = await import(join(root, 'tests/lib/server.mjs'));
const { startReplicaSet } = await import(join(root, 'tests/lib/replica_set.mjs'));
const run = promisify(execFile);
const cache = ['--wiredTigerCacheSizeGB', '2'];

async function bench(workload, { port, options = '', connections = 8, ...more } = {}) {
    const args = ['--workload', workload, '--connections', `${connections}`, '--json'];
    args.push('--seconds', SECONDS, '--uri', `mongodb://127.0.0.1:${port ?? 1}/bench?${options}`);
    for (const [name, value] of Object.entries(more)) args.push(`--${name}`, `${value}`);
    const { stdout } = await run(BENCH, args, { maxBuffer: 1 << 24 });
    return JSON.parse(stdout).ops_per_s;
}

function figure(label, measured, floor, wanted) {
    const value = (measured / floor).toFixed(3);
    const numbers = `${Math.round(measured)} / ${Math.round(floor)}`;
    console.log(`${label.padEnd(58)} ${value.padStart(7)}  (wanted ${wanted})  ${numbers}`);
}

const portOf = (member) => member.fixedPort;

/* The longest time any member took to reach what the primary had just applied, until `stop` says so.
 * (The difference of wall times in replSetGetStatus also counts the pause before the first write.) */
async function watchLag(set, primary, stop) {
    let longest = 0;
    const client = await set.direct(primary);
    const positions = async () => {
        const { members } = await client.db('admin').command({ replSetGetStatus: 1 });
        return members.map(({ optime }) => optime.ts);
    };
    while (!stop.done) {
        const start = Date.now();
        const target = (await positions()).reduce((a, b) => (a.lessThan(b) ? b : a));
        while ((await positions()).some((ts) => ts.lessThan(target))) await sleep(5);
        longest = Math.max(longest, (Date.now() - start) / 1000);
        await sleep(50);
    }
    await client.close();
    return longest;
}

async function gapOver(set, event) {
    const client = await set.client();
    const coll = client.db('gap').collection('x');
    await coll.insertOne({}, { writeConcern: { w: 'majority' } });
    let longest = 0;
    let errors = 0;
    const state = { done: false };
    const writers = Array.from({ length: 4 }, async () => {
        let last = Date.now();
        while (!state.done) {
            try {
                await coll.insertOne({}, { writeConcern: { w: 'majority' } });
            } catch {
                errors++;
                continue;
            }
            longest = Math.max(longest, Date.now() - last);
            last = Date.now();
        }
    });
    await sleep(500);
    longest = 0;
    await event();
    await sleep(6000);
    state.done = true;
    await Promise.all(writers);
    await client.close();
    return { longest, errors };
}

const echoBefore = await bench('echo');
const set = await startReplicaSet({ members: 3, args: cache, server: { testCommands: false } });
const primary = await set.waitForPrimary();
const [secondary] = await set.secondaries();

const stop = { done: false };
const lag = watchLag(set, primary, stop);
const one = await bench('insert1', { port: portOf(primary), options: 'w=1' });
stop.done = true;
const longestLag = await lag;
await set.waitForReplication();
const majority8 = await bench('insert1', { port: portOf(primary), options: 'w=majority' });
const majority64 = await bench('insert1', { port: portOf(primary), options: 'w=majority', connections: 64 });
await set.waitForReplication();
const echo = Math.max(echoBefore, await bench('echo'));
figure('insert1, w: 1, 8 connections / echo', one, echo, '0.20');
figure('insert1, w: majority, 8 connections / echo', majority8, echo, '0.035');
figure('insert1, w: majority, 64 connections / echo', majority64, echo, '0.10');
console.log(`longest lag under the w: 1 load: ${longestLag.toFixed(2)} s (wanted below 1)`);

await bench('point-read', { port: portOf(primary), docs: DOCS });
await set.waitForReplication();
const alone = new Server({ args: cache, testCommands: false });
await alone.start();
await bench('point-read', { port: alone.port, docs: DOCS });
const readAlone = await bench('point-read', { port: alone.port, docs: DOCS });
const readThere = await bench('point-read', {
    port: portOf(secondary),
    options: 'readPreference=secondary',
    docs: DOCS,
});
figure('point-read on a secondary / standalone', readThere, readAlone, '0.85');

await secondary.kill();
const rate = await bench('insert1', { port: portOf(primary), options: 'w=1' });
const behind = rate * Number(SECONDS);
await secondary.start();
const target = (await set.hello(primary)).lastWrite.opTime.ts;
const start = Date.now();
let first = null;
for (;;) {
    const at = (await set.hello(secondary))?.lastWrite?.opTime?.ts;
    if (first === null && at !== undefined) first = Date.now();
    if (at !== undefined && !at.lessThan(target)) break;
    if (Date.now() - start > CATCH_UP_MS_MAX) throw new Error('the member does not catch up');
    await sleep(10);
}
figure('catching up, entries / inserts of the primary', behind / ((Date.now() - start) / 1000), rate, '1.5');

const planned = await gapOver(set, () => set.stepDown());
console.log(`planned step-down: longest wait ${planned.longest} ms, ${planned.errors} errors (wanted 1000, 0)`);
const killed = await gapOver(set, async () => (await set.waitForPrimary()).kill());
console.log(`kill -9 of the primary: longest wait ${killed.longest} ms (wanted 6000)`);
await set.remove();

const single = await startReplicaSet({ members: 1, args: cache, server: { testCommands: false } });
const pairs = [];
for (let i = 0; i < 3; i++) {
    const there = await bench('insert1', { port: portOf(single.members[0]), options: 'w=1' });
    pairs.push([there, await bench('insert1', { port: alone.port })]);
}
pairs.sort((a, b) => a[0] / a[1] - b[0] / b[1]);
figure('insert1 on a set of one / standalone (median of 3)', ...pairs[1], '0.80');
await single.remove();
await alone.remove();
