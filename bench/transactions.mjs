/*
 * transactions.mjs - what transactions cost, against the same work outside of them.
 *
 *     node bench/transactions.mjs   [SHERD=build/sherd] [BENCH=build/sherd-bench] [SECONDS_EACH=4]
 *
 * 1. Set of one, w: 1: messages per second of txn-update (two updates by _id and a commit) against single
 *    updates; of txn-read (ten reads by _id at snapshot and a commit) against single reads.
 * 2. Set of three, w: majority: transactions per second against single updates.
 * 3. Two connections that always conflict: the time from the first attempt to the commit.
 *
 * Pairs are measured one after the other, three times; the median ratio counts.
 */
import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
process.env.SHERD_BIN ??= process.env.SHERD ?? join(root, 'build/sherd');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const SECONDS = process.env.SECONDS_EACH ?? '4';
const DOCS = '100000';
const PAIRS = 3;
const { startReplicaSet } = await import(join(root, 'tests/lib/replica_set.mjs'));
const run = promisify(execFile);
const cache = ['--wiredTigerCacheSizeGB', '2'];

async function bench(workload, member, { w, connections = 8 } = {}) {
    const options = w === undefined ? '' : `?w=${w}`;
    const args = ['--workload', workload, '--connections', `${connections}`, '--json', '--docs', DOCS];
    args.push('--seconds', SECONDS, '--uri', `mongodb://127.0.0.1:${member.fixedPort}/bench${options}`);
    const { stdout } = await run(BENCH, args, { maxBuffer: 1 << 24 });
    return JSON.parse(stdout);
}

/* The median of several ratios; each pair as [workload, figure]. */
async function compare(label, wanted, member, options, [top, topFigure], [bottom, bottomFigure]) {
    const pairs = [];
    for (let i = 0; i < PAIRS; i++) {
        const measured = (await bench(top, member, options))[topFigure];
        pairs.push([measured, (await bench(bottom, member, options))[bottomFigure]]);
    }
    pairs.sort((a, b) => a[0] / a[1] - b[0] / b[1]);
    const [measured, floor] = pairs[(PAIRS - 1) / 2];
    const value = (measured / floor).toFixed(3);
    const numbers = `${Math.round(measured)} / ${Math.round(floor)}`;
    console.log(`${label.padEnd(58)} ${value.padStart(7)}  (wanted ${wanted})  ${numbers}`);
}

const update = ['update', 'ops_per_s'];
const single = await startReplicaSet({ members: 1, args: cache, server: { testCommands: false } });
const [alone] = single.members;
await bench('update', alone);
await compare('messages in transactions, w: 1 / single updates', '0.70', alone, { w: 1 }, ['txn-update', 'ops_per_s'], update);
await compare('reads in transactions at snapshot / single reads', '0.85', alone, {}, ['txn-read', 'ops_per_s'], ['point-read', 'ops_per_s']);
const conflict = await bench('txn-conflict', alone, { w: 1, connections: 2 });
const perCommit = (conflict.txn_retries / (conflict.txns_per_s * conflict.seconds)).toFixed(2);
console.log(
    `two connections that always conflict: ${Math.round(conflict.txns_per_s)} commits/s, ${perCommit} retries each, ` +
        `p99 ${(conflict.p99_us / 1000).toFixed(1)} ms, longest ${(conflict.max_us / 1000).toFixed(1)} ms (wanted p99 below 50)`,
);
await single.remove();

const set = await startReplicaSet({ members: 3, args: cache, server: { testCommands: false } });
const primary = await set.waitForPrimary();
await bench('update', primary);
await compare('transactions, w: majority / single majority updates', '0.70', primary, { w: 'majority' }, ['txn-update', 'txns_per_s'], update);
await set.remove();
