/*
 * Goal (invariants 1, 3 and NOD-2): whatever instant the node is killed at, after the restart every
 * write acknowledged with j: true is there, nothing deleted is back, indexes agree with
 * collections, DDL happened or did not, and no table is left over. Method: concurrent writers keep
 * a ledger while the node is killed at random instants and at each named failpoint; then it is
 * started again on the same directory and compared with ledger and model.
 *
 * CRASH_ROUNDS: how many rounds (60). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { Server } from '../lib/server.mjs';
import { checkConsistency } from './consistency.mjs';
import { Ledger, isConnectionLoss } from './ledger.mjs';
import { World } from './world.mjs';

const ROUNDS = Number(process.env.CRASH_ROUNDS ?? 60);
const seed = seedOfRun();
const rand = random(seed);
console.error(`crash tests: ${ROUNDS} rounds, TEST_SEED=${seed}`);

/* Failpoint and the kind of operation that runs into it; null: the writers do. Builds are those of
 * the collection that the writers write to. */
const FAILPOINTS = [
    ['create.tableCreated', 'create'],
    ['create.catalogCommitted', 'create'],
    ['drop.catalogEntryRemoved', 'drop'],
    ['drop.identDropped', 'drop'],
    ['rename.catalogCommitted', 'rename'],
    ['rename.documentsCopied', 'renameAcross'],
    ['createIndexes.tableCreated', 'createIndexes'],
    ['indexBuild.startEntryWritten', 'build'],
    ['indexBuild.sideTableInstalled', 'build'],
    ['indexBuild.scanning', 'build'],
    ['indexBuild.sorterSpilled', 'build'],
    ['indexBuild.bulkLoading', 'build'],
    ['indexBuild.firstDrain', 'build'],
    ['indexBuild.finalDrainX', 'build'],
    ['indexBuild.commitEntryWritten', 'build'],
    ['indexBuild.commitEntryWritten', 'createIndexes'],
    ['indexBuild.abortEntryWritten', 'failingBuild'],
    ['dropIndexes.catalogEntryRemoved', 'dropIndexes'],
    ['collMod.catalogCommitted', 'collMod'],
    ['dropDatabase.eachCollection', 'dropDatabase'],
    ['checkpoint.before', 'fsync'],
    ['checkpoint.after', 'fsync'],
    ['journal.beforeFlush', null],
    ['journal.afterFlush', null],
];
const FAILPOINT_ROUNDS = ROUNDS >= 3 * FAILPOINTS.length ? 2 : 1; // of each
const RANDOM_ROUNDS = Math.max(0, ROUNDS - FAILPOINT_ROUNDS * FAILPOINTS.length);
const ROUNDS_PER_DIRECTORY = 20;
const HIT_MS_MAX = 8000;

/* One data directory with all that is known about its content. */
class Victim {
    server = new Server({ args: ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '1'] });
    ledger = new Ledger();
    world = new World();

    async start(where) {
        await this.server.start();
        this.client = await this.server.client({
            serverSelectionTimeoutMS: 3000,
            retryWrites: false,
            retryReads: false,
        });
        await this.ledger.check(this.client, where);
        await this.world.check(this.client, where);
        await checkConsistency(this.server, this.client, where);
    }

    /* Kills the node by `kill(client)` while writers and, with isDdl, DDL go on. */
    async crash(kill, isDdl) {
        let isOver = false;
        const work = [this.ledger.write(this.client, rand.below(2 ** 30), () => isOver)];
        if (isDdl) {
            work.push(this.world.run(this.client, rand, () => isOver));
            work.push(Ledger.buildOften(this.client, rand, () => isOver));
        }
        work.push(kill(this.client));
        const end = await this.server.waitEnd();
        isOver = true;
        const failed = (await Promise.allSettled(work)).find(({ status }) => status === 'rejected');
        await this.server.closeClients();
        if (failed !== undefined) throw failed.reason;
        return end;
    }
}

let victim = null;
after(() => discard());

async function discard() {
    const old = victim;
    victim = null;
    await old?.server.closeClients();
    if (old?.server.isRunning()) await old.server.kill();
    await old?.server.remove();
}

/* Makes sure that a node runs that was checked and has something to lose. */
async function prepare(where) {
    if (victim === null) {
        victim = new Victim();
        await victim.start(where);
        await Ledger.prepare(victim.client);
    }
    await victim.world.fill(victim.client, rand);
}

/* A test whose failure does not spoil the next one: it starts with a new directory then. */
function crashTest(name, body) {
    test(name, async () => {
        try {
            await body();
        } catch (error) {
            await discard();
            throw error;
        }
    });
}

/* Arms the failpoint and does what runs into it. Dropped tables go a second or so later. */
async function runInto(client, failpoint, kind) {
    // The writers hit it often: let some pass.
    const mode = kind === null ? { skip: rand.below(20) } : 'alwaysOn';
    const deadline = Date.now() + HIT_MS_MAX;
    try {
        await client
            .db('admin')
            .command({ configureFailPoint: failpoint, mode, data: { crash: true } });
        if (failpoint === 'indexBuild.sorterSpilled')
            await client
                .db('admin')
                .command({ configureFailPoint: 'indexBuild.smallMemory', mode: 'alwaysOn' });
        while (victim.server.isRunning()) {
            assert.ok(Date.now() < deadline, `failpoint ${failpoint} was not hit`);
            if (kind === 'build') await Ledger.build(client, rand, /* isFailing= */ false);
            else if (kind === 'failingBuild') await Ledger.build(client, rand, true);
            else if (kind === 'fsync') await client.db('admin').command({ fsync: 1 });
            else if (kind !== null && !(await victim.world.step(client, rand, kind)))
                await victim.world.renew(client, rand);
            await new Promise((done) => setTimeout(done, 20));
        }
    } catch (error) {
        if (isConnectionLoss(error)) return;
        if (victim.server.isRunning()) victim.server.signal('SIGKILL');
        throw error;
    }
}

for (const [i, [failpoint, kind]] of FAILPOINTS.entries()) {
    crashTest(
        `NOD-2: a crash at ${failpoint} loses nothing and leaves nothing behind`,
        async () => {
            if (i % 6 === 0) await discard(); // a young database has other crashes than an old one
            for (let round = 0; round < FAILPOINT_ROUNDS; round++) {
                const where = `seed ${seed}, ${failpoint}, round ${round}`;
                await prepare(where);
                const end = await victim.crash(
                    (client) => runInto(client, failpoint, kind),
                    /* isDdl= */ false,
                );
                assert.equal(end.code, 137, `${where}: ended with ${end.signal ?? end.code}`);
                await victim.start(where);
            }
        },
    );
}

for (let first = 0; first < RANDOM_ROUNDS; first += ROUNDS_PER_DIRECTORY) {
    const rounds = Math.min(ROUNDS_PER_DIRECTORY, RANDOM_ROUNDS - first);
    crashTest(
        `NOD-2: kills at random instants, rounds ${first} to ${first + rounds - 1}, lose nothing`,
        async () => {
            await discard();
            for (let round = first; round < first + rounds; round++) {
                const where = `seed ${seed}, random round ${round}`;
                await prepare(where);
                const delay = rand() < 0.3 ? rand.below(30) : rand.below(350);
                await victim.crash(async () => {
                    await new Promise((done) => setTimeout(done, delay));
                    victim.server.signal('SIGKILL');
                }, /* isDdl= */ true);
                await victim.start(where);
            }
            assert.ok(victim.ledger.acknowledged > 0);
        },
    );
}

crashTest('NOD-2: after all that a clean stop and start finds everything', async () => {
    const where = `seed ${seed}, clean restart`;
    await prepare(where);
    await victim.server.stop();
    await victim.start(where);
});
