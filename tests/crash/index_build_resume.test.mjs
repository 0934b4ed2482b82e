/*
 * Goal (IDX-5, NOD-2): a kill while index builds are saved at a clean stop, or made again at the start,
 * loses no write and leaves no table or file; the index is there afterwards when builds are resumed,
 * and is not when they are discarded. Method: writers keep a ledger while a build hangs in a phase;
 * the node is stopped or started into the failpoint, and started again in either mode.
 *
 * TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { Server, waitFor } from '../lib/server.mjs';
import { checkConsistency } from './consistency.mjs';
import { Ledger, LEDGER_COLLECTION, LEDGER_DB } from './ledger.mjs';

const seed = seedOfRun();
const rand = random(seed);
console.error(`crash tests of resumed builds: TEST_SEED=${seed}`);

const OPTIONS = ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '1'];
const RESUME = ['--setParameter', 'resumeIndexBuildsOnStandalone=true'];
const CRASH_CODE = 137;
const CRASH = { mode: 'alwaysOn', data: { crash: true } };
const PHASES = [
    'indexBuild.startEntryWritten',
    'indexBuild.scanning',
    'indexBuild.bulkLoading',
    'indexBuild.firstDrain',
];

async function connect(server) {
    return server.client({ retryWrites: false, retryReads: false });
}

/* Writes until the node is gone, which `stop(client)` makes happen while a build hangs. */
async function stopDuringBuild(server, client, ledger, phase, stop) {
    const admin = client.db('admin');
    let isOver = false;
    const writing = ledger.write(client, rand.below(2 ** 30), () => isOver);
    await waitFor(() => ledger.acknowledged > 100, { timeoutMs: 20_000 });
    await admin.command({
        configureFailPoint: phase,
        mode: 'alwaysOn',
        data: { blockTimeMS: 700 },
    });
    const build = client
        .db(LEDGER_DB)
        .command({
            createIndexes: LEDGER_COLLECTION,
            indexes: [
                { key: { x: 1 }, name: 'x' },
                { key: { pad: 1, u: 1 }, name: 'padU', unique: true },
            ],
        })
        .catch(() => {});
    await admin.command({ waitForFailPoint: phase, timesEntered: 1 });
    await stop(admin);
    const end = await server.waitEnd();
    isOver = true;
    await Promise.allSettled([writing, build]);
    await server.closeClients();
    return end;
}

async function checkAfter(server, ledger, isResuming, where) {
    server.args = [...OPTIONS, ...(isResuming ? RESUME : [])];
    await server.start();
    const client = await connect(server);
    const collection = client.db(LEDGER_DB).collection(LEDGER_COLLECTION);
    await waitFor(
        async () => {
            const stats = await collection.aggregate([{ $indexStats: {} }]).toArray();
            return stats.every(({ building }) => !building);
        },
        { timeoutMs: 20_000, what: `${where}: the end of the build` },
    );
    const names = (await collection.indexes()).map(({ name }) => name);
    assert.equal(names.includes('x'), isResuming, `${where}: ${names}`);
    assert.equal(names.includes('padU'), isResuming, `${where}: ${names}`);
    await ledger.check(client, where);
    await checkConsistency(server, client, where);
    const files = join(server.dbpath, '_tmp');
    assert.deepEqual(existsSync(files) ? readdirSync(files) : [], [], where);
    await server.stop();
}

const POINTS = {
    'indexBuild.resumeInfoWritten': async (server, client, ledger, phase) => {
        const end = await stopDuringBuild(server, client, ledger, phase, async (admin) => {
            await admin.command({ configureFailPoint: 'indexBuild.resumeInfoWritten', ...CRASH });
            server.signal('SIGTERM');
        });
        assert.equal(end.code, CRASH_CODE);
    },
    'indexBuild.resumed': async (server, client, ledger, phase) => {
        const end = await stopDuringBuild(server, client, ledger, phase, () =>
            server.signal('SIGTERM'),
        );
        assert.equal(end.code, 0);
        server.args.push('--setParameter', `failpoint.indexBuild.resumed=${JSON.stringify(CRASH)}`);
        await assert.rejects(server.start(), new RegExp(`ended with ${CRASH_CODE}`));
    },
};

for (const [failpoint, crash] of Object.entries(POINTS)) {
    for (const phase of PHASES) {
        for (const isResuming of [true, false]) {
            const what = isResuming ? 'begins anew' : 'is discarded';
            test(`IDX-5: after a crash at ${failpoint} a build that was at ${phase} ${what}`, async () => {
                const where = `seed ${seed}, ${failpoint}, ${phase}`;
                const server = new Server({ args: [...OPTIONS, ...RESUME] });
                try {
                    await server.start();
                    const ledger = new Ledger();
                    const client = await connect(server);
                    await Ledger.prepare(client);
                    await crash(server, client, ledger, phase);
                    await checkAfter(server, ledger, isResuming, where);
                } finally {
                    await server.remove();
                }
            });
        }
    }
}
