/*
 * Goal (I1, I4, I5, I12; DUR-1, DUR-2, REP-1, REP-2): links between members that come and go, beside
 * elections and changes of sync sources, lose no write that a majority acknowledged, and bring none
 * back that was given up. Method: a set of three under load; in each round a random run of cuts,
 * heals, step-ups, step-downs and changes of source, then the ledger and all members must agree.
 *
 * PARTITION_ROUNDS: how many rounds (25). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { isExpected } from './load.mjs';
import { Network } from '../lib/network.mjs';
import { MEMBERS, Victim } from './victim.mjs';

const ROUNDS = Number(process.env.PARTITION_ROUNDS ?? 25);
const STEPS_MAX = 9;
const STEP_MS_MAX = 500;
const seed = seedOfRun();
const rand = random(seed);
const network = new Network(MEMBERS);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const hostOf = ({ host, fixedPort }) => `${host}:${fixedPort}`;
const counts = { cuts: 0, stepUps: 0, stepDowns: 0, sources: 0 };

let victim = null;
after(async () => {
    if (network.obstacle === null) network.heal();
    await victim?.discard(false);
    network.remove();
});

/* Whether it works depends on the moment: nobody to vote, not primary, no such source. */
async function attempt(member, command, what) {
    try {
        await victim.set.command(member, command);
        counts[what]++;
    } catch (error) {
        const refused = [20, 50, 93, 94, 95, 125, 189, 262, 10107, 11602, 13436];
        if (!isExpected(error) && !refused.includes(error.code)) throw error;
    }
}

function pickPair() {
    const from = rand.below(MEMBERS);
    return [from, (from + 1 + rand.below(MEMBERS - 1)) % MEMBERS];
}

const STEPS = [
    () => {
        network.cutPair(...pickPair());
        counts.cuts++;
    },
    () => {
        network.cut(rand.below(MEMBERS));
        counts.cuts++;
    },
    () => network.heal(),
    () => network.healPair(...pickPair()),
    () => attempt(rand.pick(victim.members), { replSetStepUp: 1 }, 'stepUps'),
    async () => {
        const primary = await victim.set.findPrimary();
        const command = { replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true };
        if (primary !== null) await attempt(primary, command, 'stepDowns');
    },
    () => {
        const [member, source] = pickPair().map((i) => victim.members[i]);
        return attempt(member, { replSetSyncFrom: hostOf(source) }, 'sources');
    },
];

async function runRound(where) {
    victim ??= await new Victim(network, seed).start();
    victim.load.start(await victim.connect(), rand.below(2 ** 30), { hasDdl: rand() < 0.3 });
    const acknowledged = victim.load.acknowledged;
    await pause(100);
    try {
        for (let left = 2 + rand.below(STEPS_MAX - 1); left > 0; left--) {
            await rand.pick(STEPS)();
            await pause(rand.below(STEP_MS_MAX));
        }
    } finally {
        network.heal();
    }
    const pids = victim.members.map(({ pid }) => pid);
    await victim.stop(where);
    for (const [i, member] of victim.members.entries())
        assert.ok(member.isRunning() && member.pid === pids[i], `${where}: member ${i} ended`);
    return victim.load.acknowledged - acknowledged;
}

console.error(`partitions: ${ROUNDS} rounds, TEST_SEED=${seed}`);
let total = 0;
for (let round = 0; round < ROUNDS; round++)
    test(
        `DUR-1: members agree with the ledger after partitions and step-downs (round ${round})`,
        { skip: network.obstacle ?? false },
        async () => {
            try {
                total += await runRound(`seed ${seed}, round ${round}`);
            } catch (error) {
                const old = victim;
                victim = null;
                await old?.discard(true);
                throw error;
            }
        },
    );

test('DUR-1: there was something to lose', { skip: network.obstacle ?? false }, () => {
    assert.ok(total > ROUNDS * 3, `${total} writes were acknowledged by a majority`);
    for (const [what, count] of Object.entries(counts))
        assert.ok(count > 0 || ROUNDS < 20, `no ${what}: ${JSON.stringify(counts)}`);
    console.error(`${total} acknowledged writes, ${JSON.stringify(counts)}`);
});
