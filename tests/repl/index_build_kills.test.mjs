/*
 * Goal (IDX-4, I1, I4, I5, I7): whichever member dies at whichever step of an index build, the build
 * ends on all members, committed or aborted, and they agree: same indexes, same data, nothing that
 * `validate` complains about, no document and no table of the build left. Method: a set of three real
 * processes with writers; a failpoint ends one of them, or holds it while another one is killed.
 *
 * INDEX_KILL_ROUNDS: how many of the cases, at random after those of the votes (8). TEST_SEED: repeat
 * a run.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { isClientClosed, random, seedOfRun } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { isExpected } from './load.mjs';

const ROUNDS = Number(process.env.INDEX_KILL_ROUNDS ?? 8);
const DOCUMENTS = 2000;
const HIT_MS_MAX = 20_000;
const CRASH_CODE = 137;
const NAMESPACE_NOT_FOUND = 26;
const seed = seedOfRun();
const rand = random(seed);

/* [failpoint, whose it is, who dies there] */
const VOTES = [
    ['indexBuild.voteSent', 'secondary', 'secondary'],
    ['indexBuild.voteSent', 'secondary', 'primary'],
    ['indexBuild.votePersisted', 'primary', 'primary'],
    ['indexBuild.votePersisted', 'primary', 'secondary'],
    ['indexBuild.quorumReached', 'primary', 'primary'],
    ['indexBuild.quorumReached', 'primary', 'secondary'],
];
const STEPS = [];
for (const step of [
    'sideTableInstalled',
    'startEntryWritten',
    'scanning',
    'bulkLoading',
    'firstDrain',
    'finalDrainX',
    'commitEntryWritten',
    'abortEntryWritten',
])
    for (const role of ['primary', 'secondary']) STEPS.push([`indexBuild.${step}`, role, role]);

let set = null;
let db = null;
before(async () => {
    console.error(`kills during index builds: ${ROUNDS} rounds, TEST_SEED=${seed}`);
    set = await startReplicaSet({
        members: 3,
        settings: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
        args: ['--syncdelay', '1', '--wiredTigerCacheSizeGB', '0.25'],
    });
    db = (await set.client({ retryWrites: false, retryReads: true })).db('test');
});
after(() => set?.remove());

async function fill() {
    await db.collection('c').drop({ writeConcern: { w: 'majority' } }).catch(() => {});
    const documents = Array.from({ length: DOCUMENTS }, (_, i) => ({ _id: i, a: i % 97, u: i }));
    await db.collection('c').insertMany(documents, { writeConcern: { w: 3 } });
}

/* What the members say while one of them dies is not the subject. */
function startWriter() {
    const writer = { isStopping: false, count: 0 };
    const c = db.collection('c');
    writer.ended = (async () => {
        for (let i = 0; !writer.isStopping; i++) {
            try {
                await c.insertOne({ _id: DOCUMENTS + i, a: [i % 13, i], u: DOCUMENTS + i });
                await c.updateOne({ _id: i % DOCUMENTS }, { $set: { a: [i, i + 1] } });
                if (i % 3 === 0) await c.deleteOne({ _id: (i * 7) % DOCUMENTS });
                writer.count++;
            } catch (error) {
                if (isClientClosed(error)) return;
                if (error.code === 11000 || error.code === NAMESPACE_NOT_FOUND) throw error;
            }
        }
    })();
    return writer;
}

async function end(member, failpoint) {
    const what = `a crash at ${failpoint}`;
    await waitFor(() => !member.isRunning(), { timeoutMs: HIT_MS_MAX, what });
    const { code, signal } = await member.waitEnd();
    assert.equal(code, CRASH_CODE, `ended with ${signal ?? code}: ${member.stderr}`);
}

async function killAt(failpoint, owner, victim) {
    const data = owner === victim ? { crash: true } : { blockTimeMS: 60_000 };
    const { count } = await set.command(owner, {
        configureFailPoint: failpoint,
        mode: 'alwaysOn',
        data,
    });
    const isUnique = failpoint === 'indexBuild.abortEntryWritten';
    if (isUnique) await db.collection('c').insertOne({ _id: 'twice', u: 7 });
    const created = db
        .command({
            createIndexes: 'c',
            indexes: [
                { key: { a: 1 }, name: 'a_1' },
                { key: { u: 1 }, name: 'u_1', unique: isUnique },
            ],
        })
        .catch(() => {});
    if (owner === victim) {
        await end(victim, failpoint);
    } else {
        await set.command(owner, {
            waitForFailPoint: failpoint,
            timesEntered: Number(count) + 1,
            maxTimeMS: HIT_MS_MAX,
        });
        await victim.kill();
        await set.command(owner, { configureFailPoint: failpoint, mode: 'off' });
    }
    await victim.start();
    await created;
}

async function indexesOf(member) {
    const command = { listIndexes: 'c', includeBuildUUIDs: true };
    const reply = await set.command(member, command, 'test');
    return reply.cursor.firstBatch.map(({ name, spec, buildUUID }) => (buildUUID ? `${spec.name}...` : name));
}

async function agree() {
    await set.waitForPrimary();
    await set.waitForSecondaries();
    let seen = [];
    const isOver = async () => {
        seen = [];
        for (const member of set.members) {
            const names = await indexesOf(member).catch((error) => {
                // It has not caught up with the creation of the collection, or has to roll back first.
                if (error.code !== NAMESPACE_NOT_FOUND && !isExpected(error)) throw error;
                return ['...'];
            });
            seen.push(names.join());
        }
        return !seen[0].includes('...') && seen.every((names) => names === seen[0]);
    };
    await waitFor(isOver, { timeoutMs: 30_000, what: 'the end of the build' }).catch((error) => {
        throw new Error(`${error.message}: ${JSON.stringify(seen)}`);
    });
    await set.checkCollection('c');
    return seen[0];
}

const cases = [...VOTES];
const left = [...STEPS];
while (left.length > 0) cases.push(...left.splice(rand.below(left.length), 1));

for (const [failpoint, ownerRole, victimRole] of cases.slice(0, ROUNDS))
    test(`a ${victimRole} that dies at ${failpoint} of a ${ownerRole} leaves members that agree`, async () => {
        await fill();
        const primary = await set.waitForPrimary();
        const secondary = rand.pick(set.members.filter((member) => member !== primary));
        const byRole = { primary, secondary };
        const writer = startWriter();
        await killAt(failpoint, byRole[ownerRole], byRole[victimRole]);
        await waitFor(() => writer.count > 0, { timeoutMs: HIT_MS_MAX, what: 'writes' });
        writer.isStopping = true;
        await writer.ended;
        const names = await agree();
        const isAborted = failpoint === 'indexBuild.abortEntryWritten';
        const isKnown = !/startEntry|sideTable/.test(failpoint) || victimRole === 'secondary';
        if (isAborted || isKnown)
            assert.equal(names, isAborted ? '_id_' : '_id_,a_1,u_1', `seed ${seed}`);
    });

/* They are kept as long as somebody may read at a time when they were used: 10 s. */
test('no temporary table is left of all these builds', async () => {
    const leftOf = ({ dbpath }) =>
        readdirSync(dbpath).filter((name) => name.startsWith('internal-'));
    const isClean = async () => {
        await db.collection('c').insertOne({}); // time goes on for members with writes
        return set.members.every((member) => leftOf(member).length === 0);
    };
    await waitFor(isClean, { timeoutMs: 40_000, what: 'the end of temporary tables' });
});
