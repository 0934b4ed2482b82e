/*
 * Goal (I1, I4, I5, I12, I13; DUR-1 to DUR-3, REP-2): whatever happens to members of a replica set,
 * no write acknowledged by a majority is lost or comes back after its removal, and all members end
 * with the same data, the same oplog and sound indexes. Method: a set of three real processes under
 * load; in each round one fault; then all members must agree with each other and with the ledger.
 *
 * REPL_ROUNDS: how many rounds (25). TEST_SEED: repeat a run. REPL_KINDS: only these, comma
 * separated. REPL_KEEP: a folder for logs and data of a set that failed.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';
import { DB, isExpected } from './load.mjs';
import { Network } from '../lib/network.mjs';
import { HIT_MS_MAX, MEMBERS, Victim } from './victim.mjs';

const ROUNDS = Number(process.env.REPL_ROUNDS ?? 25);
const ROUNDS_PER_SET = 14;
const ROLLBACK_MS_MAX = 60_000;
const KINDS_WANTED = process.env.REPL_KINDS?.split(',');
const seed = seedOfRun();
const rand = random(seed);

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const loadFor = (ms) => pause(ms / 2 + rand.below(ms));

const network = new Network(MEMBERS);
after(() => network.remove());

const pickSecondary = async (victim) => rand.pick(victim.others(await victim.primary()));

/* ---- faults ---- */

async function killPrimary(victim) {
    const primary = await victim.primary();
    await victim.kill(primary);
    await loadFor(1500);
    await victim.restart(primary);
}

async function killSecondary(victim) {
    const secondary = await pickSecondary(victim);
    await victim.kill(secondary);
    await loadFor(500);
    await victim.restart(secondary);
}

async function killTwo(victim) {
    const survivor = rand.pick(victim.members);
    await Promise.all(victim.others(survivor).map((member) => victim.kill(member)));
    await loadFor(500);
    await victim.restartDead();
}

async function killAll(victim) {
    await Promise.all(victim.members.map((member) => victim.kill(member)));
    await victim.restartDead();
}

async function stopAny(victim) {
    const member = rand.pick(victim.members);
    await member.stop();
    await loadFor(600);
    await victim.restart(member);
}

async function stopAll(victim) {
    for (const member of victim.members) await member.stop();
    await victim.restartDead();
}

async function stepDown(victim) {
    const isDone = async () => {
        const primary = await victim.primary();
        const isDown = ({ msg }) => msg === 'Stepping down from primary';
        const before = primary.log.filter(isDown).length;
        await stepDownNow(victim, primary);
        await victim.set.waitForPrimary();
        return primary.log.filter(isDown).length > before;
    };
    await waitFor(isDone, { timeoutMs: HIT_MS_MAX, what: 'a step-down' });
}

/* May fail where nobody has caught up in time, or where the connection goes with it. */
async function stepDownNow(victim, primary) {
    await victim.set
        .command(primary, { replSetStepDown: 5, secondaryCatchUpPeriodSecs: 2 })
        .catch((error) => {
            if (!isExpected(error) && error.code !== 50) throw error;
        });
}

/* A primary that sleeps: what it wrote meanwhile, nobody has. */
async function pausePrimary(victim) {
    const primary = await victim.primary();
    primary.signal('SIGSTOP');
    await pause(200);
    await victim.set.waitForPrimary({ other: primary }).finally(() => primary.signal('SIGCONT'));
}

async function pauseSecondary(victim) {
    const secondary = await pickSecondary(victim);
    secondary.signal('SIGSTOP');
    await loadFor(1500);
    secondary.signal('SIGCONT');
}

/* A client of the primary that is connected, for what has to be done within an election time-out. */
async function connectAlone(victim, primary) {
    const client = await victim.set.direct(primary, { socketTimeoutMS: 2000, retryWrites: false });
    await client.db(DB).command({ ping: 1 });
    return client;
}

/* Writes with w: 1 that the others do not get, after a checkpoint now and then. False when the
 * primary stepped down before. */
async function writeAlone(victim, client) {
    const db = client.db(DB);
    const writeConcern = { w: 1 };
    const name = rand.pick(['a', 'b', 'c']);
    const u = { $inc: { n: 1 }, $push: { tags: 77 } };
    try {
        if (rand() < 0.3) await client.db('admin').command({ fsync: 1 });
        await db.command({ update: name, updates: [{ q: {}, u, multi: true }], writeConcern });
        const deletes = [{ q: { n: { $gt: 900 } }, limit: 0 }];
        await db.command({ delete: name, deletes, writeConcern });
        if (rand() < 0.3) await db.command({ drop: 'b', writeConcern });
        if (rand() < 0.3)
            await db.command({ create: `alone${rand.below(5)}`, writeConcern }).catch(() => {});
        // Last, so that nothing of the above changes them.
        for (let i = 5 + rand.below(20); i > 0; i--)
            await victim.load.insertLocally(db, rand, { isKept: true });
        return true;
    } catch (error) {
        if (!isExpected(error)) throw error;
        return false;
    }
}

/* A primary whose newest entries only it has has to roll back: the others are killed, it writes on,
 * sleeps while they come back and elect another one, and wakes up. `failpoint`: dies there first. */
async function rollBack(victim, failpoint = null) {
    const isDone = () => tryRollBack(victim, failpoint);
    await waitFor(isDone, { timeoutMs: ROLLBACK_MS_MAX, what: 'a primary that writes alone' });
}

/* False when the primary stepped down before it could write alone. */
async function tryRollBack(victim, failpoint) {
    const primary = await victim.primary();
    const others = victim.others(primary);
    const client = await connectAlone(victim, primary);
    await Promise.all(others.map((member) => victim.kill(member)));
    const isWritten = await writeAlone(victim, client);
    if (failpoint !== null && isWritten) await victim.set.crashAt(primary, failpoint);
    primary.signal('SIGSTOP');
    try {
        await Promise.all(others.map((member) => victim.restart(member)));
        await victim.set.waitForSuccessor(primary);
        await loadFor(300);
    } finally {
        primary.signal('SIGCONT');
    }
    victim.isRollbackExact = isWritten && failpoint === null;
    if (isWritten && failpoint !== null) await victim.waitForCrash(primary, failpoint);
    else if (isWritten)
        await primary.waitLog(({ msg }) => msg === 'Rollback done', HIT_MS_MAX);
    return isWritten;
}

/* Cut off from the others, reached by clients. */
async function partition(victim) {
    const isDone = () => tryPartition(victim);
    await waitFor(isDone, { timeoutMs: ROLLBACK_MS_MAX, what: 'a primary that writes alone' });
    victim.isRollbackExact = true;
}

async function tryPartition(victim) {
    const primary = await victim.primary();
    const client = await connectAlone(victim, primary);
    let isWritten = false;
    network.cut(victim.indexOf(primary));
    try {
        isWritten = await writeAlone(victim, client);
        await victim.set.waitForSuccessor(primary);
        await loadFor(600);
    } finally {
        network.heal();
    }
    return isWritten;
}

async function partitionSecondary(victim) {
    network.cut(victim.indexOf(await pickSecondary(victim)));
    await loadFor(1500);
    network.heal();
}

/* A member without data; `failpoint`: dies there first. */
async function resync(victim, failpoint = null) {
    const member = rand() < 0.3 ? await victim.primary() : await pickSecondary(victim);
    await member.stop();
    rmSync(member.dbpath, { recursive: true });
    if (failpoint === null) return victim.restart(member);
    const setting = JSON.stringify({ mode: 'alwaysOn', data: { crash: true } });
    await victim
        .restart(member, '--setParameter', `failpoint.${failpoint}=${setting}`)
        .catch((error) => {
            if (!/before it was ready/.test(error.message)) throw error;
        });
    await victim.waitForCrash(member, failpoint);
}

/* The source of an initial sync dies in the middle of it. */
async function resyncFromMortal(victim) {
    const member = await pickSecondary(victim);
    await member.stop();
    rmSync(member.dbpath, { recursive: true });
    const slow = JSON.stringify({ mode: 'alwaysOn', data: { blockTimeMS: 150 } });
    await victim.restart(member, '--setParameter', `failpoint.initialSync.clonedN=${slow}`);
    const { attr } = await member.waitLog(({ msg }) => msg === 'Starting initial sync', HIT_MS_MAX);
    const source = victim.members.find(
        ({ host, fixedPort }) => attr.syncSource === `${host}:${fixedPort}`,
    );
    await pause(rand.below(600));
    await victim.kill(source);
    await pause(200);
    await victim.restart(source);
}

async function crashVoter(victim) {
    const primary = await victim.primary();
    const voter = rand.pick(victim.others(primary));
    await victim.crashAt(voter, 'repl.lastVoteWritten', async () => {
        await victim.kill(primary);
        await loadFor(1500);
        await victim.restart(primary);
    });
}

async function crashNewPrimary(victim) {
    const primary = await victim.primary();
    const heir = rand.pick(victim.others(primary));
    const { pid } = heir;
    await victim.crashAt(heir, 'repl.newTermNoop', () =>
        waitFor(
            async () => {
                const isGone = () => !heir.isRunning() || heir.pid !== pid;
                if (!isGone())
                    await victim.set.command(heir, { replSetStepUp: 1 }).catch(() => {});
                return isGone();
            },
            { timeoutMs: HIT_MS_MAX, what: 'a new primary that crashes' },
        ),
    );
}

async function crashStepDown(victim) {
    const primary = await victim.primary();
    await victim.crashAt(primary, 'repl.stepdownEnqueued', () => stepDownNow(victim, primary));
}

async function crashAtPoint(victim) {
    const primary = await victim.primary();
    await victim.crashAt(primary, 'oplog.truncatePointNoted', () => pause(0), {
        skip: rand.below(20),
    });
}

const FAULTS = {
    killPrimary,
    killSecondary,
    killTwo,
    killAll,
    stopAny,
    stopAll,
    stepDown,
    pausePrimary,
    pauseSecondary,
    rollBack,
    partition,
    partitionSecondary,
    resync,
    resyncFromMortal,
    crashVoter,
    crashNewPrimary,
    crashStepDown,
    crashAtPoint,
};
for (const step of [
    'started',
    'commonPoint',
    'rbidBumped',
    'recoveredToStable',
    'oplogTruncated',
    'replayed',
])
    FAULTS[`rollback.${step}`] = (victim) => rollBack(victim, `rollback.${step}`);
for (const step of ['flagSet', 'dropped', 'batchStored', 'clonedN', 'applied', 'flagCleared'])
    FAULTS[`initialSync.${step}`] = (victim) => resync(victim, `initialSync.${step}`);

/* ---- rounds ---- */

/* Each kind once in random order, again and again. */
function chooseKinds() {
    const isPossible = (kind) => network.obstacle === null || !kind.startsWith('partition');
    const kinds = KINDS_WANTED ?? Object.keys(FAULTS).filter(isPossible);
    const chosen = [];
    while (chosen.length < ROUNDS) {
        const left = [...kinds];
        while (left.length > 0) chosen.push(left.splice(rand.below(left.length), 1)[0]);
    }
    return chosen.slice(0, ROUNDS);
}

console.error(`replica set faults: ${ROUNDS} rounds, TEST_SEED=${seed}`);
if (network.obstacle !== null) console.error(`no partitions: ${network.obstacle}`);

let victim = null;
let rounds = 0;
after(() => discard(false));

async function discard(hasFailed) {
    const old = victim;
    victim = null;
    await old?.discard(hasFailed);
}

async function runRound(kind, where) {
    if (rounds++ % ROUNDS_PER_SET === 0) await discard(false);
    victim ??= await new Victim(network, seed).start();
    victim.load.start(await victim.connect(), rand.below(2 ** 30), { hasDdl: rand() < 0.5 });
    const { acknowledged } = victim.load;
    await loadFor(300);
    await FAULTS[kind](victim);
    await loadFor(300);
    await victim.stop(where);
    assert.ok(victim.load.acknowledged > acknowledged, `${where}: nothing was acknowledged`);
}

for (const [i, kind] of chooseKinds().entries())
    test(`REP-1: members agree with each other and the ledger after ${kind} (round ${i})`, async () => {
        try {
            await runRound(kind, `seed ${seed}, round ${i}, ${kind}`);
        } catch (error) {
            await discard(true);
            throw error;
        }
    });
