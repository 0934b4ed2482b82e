/*
 * background.mjs - what the server does on its own account: TTL deletion and background validation.
 *
 *     node bench/background.mjs   [SHERD=build/sherd] [BENCH=build/sherd-bench] [DOCS=1000000]
 *                                 [TTL_DOCS=500000] [ROUNDS=3]
 *
 * 1. TTL: TTL_DOCS expired documents under one TTL index, deleted by the monitor with its defaults;
 *    timed from the first to the last deletion, which the collection's count shows. The floor is
 *    wt-delete: the same number of single-document deletions on WiredTiger alone, one thread.
 * 2. {validate, background: true} of DOCS documents with the _id index and one more. The floor is
 *    wt-scan-all: a walk over as many documents and the keys of two indexes.
 *
 * Each round measures the floor and the server one after the other; all are shown, and the median.
 */
import { execFileSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
process.env.SHERD_BIN ??= process.env.SHERD ?? join(root, 'build/sherd');
const BENCH = process.env.BENCH ?? join(root, 'build/sherd-bench');
const DOCS = Number(process.env.DOCS ?? 1_000_000);
const TTL_DOCS = Number(process.env.TTL_DOCS ?? 500_000);
const ROUNDS = Number(process.env.ROUNDS ?? 3);
const POLL_MS = 5; // against more than a second of deletion
const DELETION_MS_MAX = 120_000;
const { Server } = await import(join(root, 'tests/lib/server.mjs'));

const monitorOff = ['--setParameter', 'ttlMonitorEnabled=false'];
const everySecond = ['--setParameter', 'ttlMonitorSleepSecs=1'];
const server = new Server({ args: ['--wiredTigerCacheSizeGB', '4', ...monitorOff, ...everySecond] });
await server.start();
const uri = `mongodb://127.0.0.1:${server.port}/bench`;
const client = await server.client();
const db = client.db('bench');
const admin = client.db('admin');

function bench(...args) {
    return JSON.parse(execFileSync(BENCH, [...args, '--json'], { encoding: 'utf8' }));
}

function load(docs) {
    bench('--workload', 'load', '--uri', uri, '--docs', `${docs}`, '--seconds', '600');
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const shown = (values) => values.map((value) => Math.round(value)).join(' ');

/* pairs: [measured, floor], both documents per second. */
function report(label, pairs) {
    const ratios = pairs.map(([measured, floor]) => measured / floor);
    console.log(`${label}: ${shown(pairs.map(([measured]) => measured))} documents/s`);
    console.log(`    floor ${shown(pairs.map(([, floor]) => floor))}`);
    console.log(`    share ${ratios.map((r) => r.toFixed(3)).join(' ')}, median ${median(ratios).toFixed(3)}`);
}

/* Milliseconds from the first to the last deletion. */
async function timeDeletion(collection) {
    let begun = performance.now();
    const end = begun + DELETION_MS_MAX;
    for (;;) {
        const count = await collection.estimatedDocumentCount();
        const now = performance.now();
        if (count === 0) return now - begun;
        if (count === TTL_DOCS) begun = now;
        if (now > end) throw new Error(`${count} documents are still there`);
        await sleep(POLL_MS);
    }
}

async function measureTtl() {
    load(TTL_DOCS);
    /* The same documents with a date, in the order of _id, all of them long ago. */
    const stages = [{ $addFields: { at: { $toDate: { $toLong: '$_id' } } } }, { $out: 'expiring' }];
    await db.collection('load').aggregate(stages).toArray();
    const expiring = db.collection('expiring');
    await expiring.createIndex({ at: 1 }, { expireAfterSeconds: 1 });
    const before = (await admin.command({ serverStatus: 1 })).metrics.ttl.deletedDocuments;
    await admin.command({ setParameter: 1, ttlMonitorEnabled: true });
    const ms = await timeDeletion(expiring);
    await admin.command({ setParameter: 1, ttlMonitorEnabled: false });
    await sleep(100); // the counter follows at the end of a turn
    const after = (await admin.command({ serverStatus: 1 })).metrics.ttl.deletedDocuments;
    if (Number(after) - Number(before) !== TTL_DOCS)
        throw new Error(`the monitor deleted ${after - before} documents`);
    return TTL_DOCS / (ms / 1000);
}

async function measureValidate() {
    const begun = performance.now();
    const reply = await db.command({ validate: 'load', background: true });
    const ms = performance.now() - begun;
    if (!reply.valid || reply.nrecords !== DOCS || reply.keysPerIndex.k_1 !== DOCS)
        throw new Error(`validate says ${JSON.stringify(reply)}`);
    return DOCS / (ms / 1000);
}

const ttl = [];
for (let round = 0; round < ROUNDS; round++) {
    const floor = bench('--workload', 'wt-delete', '--docs', `${TTL_DOCS}`, '--seconds', '600');
    ttl.push([await measureTtl(), floor.docs_per_s]);
}
report('ttl/wt-delete', ttl);

load(DOCS);
await db.collection('load').createIndex({ k: 1 });
const validate = [];
for (let round = 0; round < ROUNDS; round++) {
    const floor = bench('--workload', 'wt-scan-all', '--docs', `${DOCS}`, '--seconds', '2');
    validate.push([await measureValidate(), floor.docs_per_s]);
}
report('validate/wt-scan-all', validate);
await server.remove();
