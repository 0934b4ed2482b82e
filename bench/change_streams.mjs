/*
 * change_streams.mjs - what change streams cost others, and how late their events are.
 *
 *     node bench/change_streams.mjs   [SHERD=build/sherd] [BENCH=build/sherd-bench] [SECONDS_EACH=4]
 *
 * 1. update on a set of one member, without streams, with one on another collection and with one on
 *    the same collection whose $match takes nothing.
 * 2. point-read, without streams and with a thousand that wait on quiet collections.
 * 3. One stream while eight connections insert at full rate: all events come, and how late the
 *    99th of a hundred is after its write's wall time.
 *
 * Rounds alternate, and the best of each counts: neighbours on the machine only ever take away.
 */
import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
process.env.SHERD_BIN ??= process.env.SHERD ?? join(root, 'build/sherd');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const SECONDS = process.env.SECONDS_EACH ?? '4';
const ROUNDS = Number(process.env.ROUNDS ?? 3);
const QUIET_STREAMS = 1000;
const AWAIT_MS = 10_000;
const { MongoClient } = await import(join(root, 'tests/node_modules/mongodb/lib/index.js'));
const { startReplicaSet } = await import(join(root, 'tests/lib/replica_set.mjs'));
const run = promisify(execFile);

const set = await startReplicaSet({ members: 1, args: ['--wiredTigerCacheSizeGB', '2'] });
const port = set.members[0].fixedPort;
const uri = `mongodb://127.0.0.1:${port}/?directConnection=true`;

async function bench(workload) {
    const args = ['--workload', workload, '--connections', '8', '--json', '--docs', '100000'];
    args.push('--seconds', SECONDS, '--uri', `mongodb://127.0.0.1:${port}/bench`);
    const { stdout } = await run(BENCH, args, { maxBuffer: 1 << 24 });
    return JSON.parse(stdout).ops_per_s;
}

/* Keeps `count` streams waiting, each on a connection of its own; returns how to end them. */
async function watch(count, collectionOf, pipeline = []) {
    const client = new MongoClient(uri, { maxPoolSize: count + 5, maxConnecting: 50 });
    await client.connect();
    const state = { done: false };
    const streams = [];
    for (let i = 0; i < count; i++) {
        const stream = client.db('bench').collection(collectionOf(i)).watch(pipeline, { maxAwaitTimeMS: AWAIT_MS });
        streams.push(stream);
    }
    for (const stream of streams)
        (async () => {
            while (!state.done) await stream.tryNext().catch(() => (state.done = true));
        })();
    const admin = client.db('admin');
    while ((await admin.command({ serverStatus: 1 })).changeStreams.waiting < count)
        await new Promise((next) => setTimeout(next, 20));
    return async () => {
        state.done = true;
        await client.close(true);
    };
}

function figure(label, measured, floor, wanted) {
    const value = (measured / floor).toFixed(3);
    const numbers = `${Math.round(measured)} / ${Math.round(floor)}`;
    console.log(`${label.padEnd(58)} ${value.padStart(7)}  (wanted ${wanted})  ${numbers}`);
}

const best = {};
async function measure(label, workload, begin) {
    const end = begin ? await begin() : null;
    best[label] = Math.max(best[label] ?? 0, await bench(workload));
    await end?.();
}
const nothing = [{ $match: { operationType: 'insert', 'documentKey._id': 'none' } }];
for (let round = 0; round < ROUNDS; round++) {
    await measure('update', 'update');
    await measure('update, quiet stream', 'update', () => watch(1, () => 'quiet'));
    await measure('update, stream that takes nothing', 'update', () => watch(1, () => 'docs', nothing));
    await measure('point-read', 'point-read');
    await measure('point-read, many', 'point-read', () => watch(QUIET_STREAMS, (i) => `quiet${i}`));
}
figure('update with a stream elsewhere / without', best['update, quiet stream'], best.update, '>= 0.90');
figure('update with a stream that takes nothing / without', best['update, stream that takes nothing'], best.update, '>= 0.90');
figure(`point-read with ${QUIET_STREAMS} quiet streams / without`, best['point-read, many'], best['point-read'], '>= 0.90');

/* The stream has only what it needs of each event: the client shares the machine. */
const client = new MongoClient(uri);
await client.connect();
const stream = client.db('bench').watch([{ $match: { operationType: 'insert' } }, { $project: { wallTime: 1 } }], {
    maxAwaitTimeMS: 1000,
});
await stream.tryNext();
const state = { done: false };
const lags = [];
const reading = (async () => {
    for (let idle = 0; !(state.done && idle > 2); ) {
        const event = await stream.tryNext();
        if (event) lags.push(Date.now() - event.wallTime.getTime());
        idle = event ? 0 : idle + 1;
    }
})();
const { stdout } = await run(BENCH, [
    '--workload', 'insert1', '--connections', '8', '--json', '--seconds', SECONDS,
    '--uri', `mongodb://127.0.0.1:${port}/bench`,
]);
state.done = true;
await reading;
const written = await client.db('bench').collection('insert1').countDocuments();
lags.sort((a, b) => a - b);
const at = (share) => lags[Math.min(lags.length - 1, Math.floor(lags.length * share))];
console.log(`one stream over insert1 of 8 connections, ${Math.round(JSON.parse(stdout).ops_per_s)} per second:`);
console.log(`    ${lags.length} events of ${written} inserts, lag in ms: median ${at(0.5)}, p99 ${at(0.99)} (wanted < 200), longest ${lags.at(-1)}`);
await client.close();
await set.remove();
