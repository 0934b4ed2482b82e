/*
 * versions.mjs - whether a change has made a node slower: the same workloads on two builds.
 *
 *     node bench/versions.mjs OLD_SHERD NEW_SHERD [WORKLOAD...]   [BENCH=build/sherd-bench] [SECONDS_EACH=2] [ROUNDS=5]
 *
 * Both run side by side, each with data of its own, and are measured in turns; who comes first changes from round to round. The
 * neighbours of this machine take time from whoever runs just then, so what counts is the processor time that a node spends for an
 * operation, which they cannot take; operations per second stand beside it. Of each the median of the rounds.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const SECONDS = process.env.SECONDS_EACH ?? '2';
const ROUNDS = Number(process.env.ROUNDS ?? 5);
const DOCS = 100_000;
const TICKS_PER_SECOND = 100; // of /proc, on every Linux that is in use
const { startServer } = await import(join(root, 'tests/lib/server.mjs'));
const run = promisify(execFile);

/* How many connections they have in bench/run.sh. */
const WORKLOADS = new Map([
    ...['ping', 'point-read', 'read-mostly', 'update', 'insert1', 'range-scan', 'index-find', 'load'].map((name) => [name, 8]),
    ...['scan', 'sort', 'count', 'group', 'pipeline', 'count-range', 'sort-all'].map((name) => [name, 1]),
]);
const UNBOUNDED = new Set(['insert1', 'load', 'ping']);

const [oldBin, newBin, ...chosen] = process.argv.slice(2);
if (newBin === undefined) {
    console.error('usage: node bench/versions.mjs OLD_SHERD NEW_SHERD [WORKLOAD...]');
    process.exit(2);
}

const median = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1];

function cpuSeconds(pid) {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

async function bench(server, workload, seconds) {
    const args = ['--workload', workload, '--connections', `${WORKLOADS.get(workload)}`, '--json', '--seconds', seconds];
    if (!UNBOUNDED.has(workload)) args.push('--docs', `${DOCS}`);
    args.push('--uri', `mongodb://127.0.0.1:${server.port}/${UNBOUNDED.has(workload) ? workload : 'bench'}`);
    const begun = cpuSeconds(server.pid);
    const { stdout } = await run(BENCH, args, { maxBuffer: 1 << 24 });
    const result = JSON.parse(stdout);
    /* The warm-up is not counted as operations, so the time for each is a little too large, for both alike. */
    return { perSecond: result.ops_per_s, cpuUs: ((cpuSeconds(server.pid) - begun) * 1e6) / (result.ops_per_s * Number(seconds)) };
}

const servers = [];
for (const bin of [oldBin, newBin]) servers.push(await startServer({ bin, args: ['--wiredTigerCacheSizeGB', '2'] }));
console.log(`${'workload'.padEnd(14)} ${'processor time, new / old'.padStart(26)} ${'us per operation'.padStart(22)} ${'per second, new / old'.padStart(24)}`);
for (const workload of chosen.length > 0 ? chosen : WORKLOADS.keys()) {
    const rounds = [[], []];
    for (const server of servers) await bench(server, workload, '0.5'); // makes the data
    for (let i = 0; i < ROUNDS; i++)
        for (const which of i % 2 === 0 ? [0, 1] : [1, 0]) rounds[which].push(await bench(servers[which], workload, SECONDS));
    const [cpu, speed] = ['cpuUs', 'perSecond'].map((what) => rounds.map((ones) => median(ones.map((one) => one[what]))));
    const ratio = ([a, b]) => (b / a).toFixed(3);
    const times = cpu.map((us) => us.toFixed(us < 1000 ? 2 : 0)).join(' / ');
    console.log(`${workload.padEnd(14)} ${ratio(cpu).padStart(26)} ${times.padStart(22)} ${ratio(speed).padStart(24)}`);
}
for (const server of servers) await server.remove();
