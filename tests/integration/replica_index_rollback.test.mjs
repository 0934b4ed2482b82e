/*
 * Goal (IDX-4, IDX-5): a rollback takes index builds back to what the majority knows of them: one
 * that nobody else has heard of is gone with its tables, one whose end nobody has heard of goes on,
 * from where it was if all that it has seen is stable; then the next primary decides. Method: the
 * others are killed while a failpoint holds a build in a phase, the primary writes alone and sleeps
 * until they have elected another one.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const DOCUMENTS = 3000;
const INDEXES = [
    { key: { a: 1 }, name: 'a_1' },
    { key: { u: 1, a: 1 }, name: 'u_1_a_1', unique: true },
];
const NAMES = INDEXES.map(({ name }) => name);

let set = null;
let db = null;
before(async () => {
    set = await startReplicaSet({
        members: 3,
        /* A primary that is alone has time to write before it steps down. */
        settings: { electionTimeoutMillis: 10_000, heartbeatIntervalMillis: 200 },
        args: ['--syncdelay', '1', '--wiredTigerCacheSizeGB', '0.25'],
    });
    db = (await set.client({ retryWrites: true })).db('test');
});
after(() => set?.remove());

async function fill() {
    await db.collection('c').drop().catch(() => {});
    const documents = Array.from({ length: DOCUMENTS }, (_, i) => ({ _id: i, a: i % 97, u: i }));
    await db.collection('c').insertMany(documents, { writeConcern: { w: 3 } });
}

/* The result of a createIndexes that is not waited for: 0 or the code. */
const create = (on, more = {}) =>
    on.command({ createIndexes: 'c', indexes: INDEXES, ...more }).then(
        () => 0,
        (error) => error.code ?? error.message,
    );

const hang = (...args) => set.hang(...args);
const release = (...args) => set.release(...args);

const others = (member) => set.members.filter((other) => other !== member);

/* `alone(db)` is done while nobody hears of it. Comes back when `primary` begins to roll back. */
async function rollBack(primary, alone) {
    await Promise.all(others(primary).map((member) => member.kill()));
    await alone((await set.direct(primary, { retryWrites: false })).db('test'));
    primary.signal('SIGSTOP');
    try {
        await Promise.all(others(primary).map((member) => member.start()));
        await set.waitForSuccessor(primary);
    } finally {
        primary.log.length = 0;
        primary.signal('SIGCONT');
    }
    await primary.waitLog(({ msg }) => msg === 'Rollback begins', 20_000);
}

/* Every kind of write, on documents that were there and on new ones. */
async function writeAlone(alone) {
    const writes = [
        { insert: 'c', documents: [{ _id: 'x', a: [1, 2], u: 'x' }, { _id: 'y', a: 3, u: 'y' }] },
        { update: 'c', updates: [{ q: { _id: { $lt: 50 } }, u: { $inc: { a: 1000 } }, multi: true }] },
        { delete: 'c', deletes: [{ q: { _id: { $gte: DOCUMENTS - 50 } }, limit: 0 }] },
        { update: 'c', updates: [{ q: { _id: 'x' }, u: { $set: { a: [7, 8, 9] } } }] },
    ];
    for (const write of writes) await alone.command({ ...write, writeConcern: { w: 1 } });
}

async function indexesOf(member) {
    const command = { listIndexes: 'c', includeBuildUUIDs: true };
    const reply = await set.command(member, command, 'test');
    return reply.cursor.firstBatch.map(({ name, spec, buildUUID }) => (buildUUID ? `${spec.name}...` : name));
}

/* Tables of builds, and of indexes of this database. */
const tablesOf = (member) =>
    readdirSync(member.dbpath).filter((name) => /^(index|internal)-.*\.wt$/.test(name));

/* A rollback that was interrupted begins anew: its member may have been a secondary for a moment. */
function whyNot(error) {
    if (error.codeName !== 'NotPrimaryOrSecondary') throw error;
    return error.codeName;
}

async function everywhere(expected) {
    await set.waitForSecondaries();
    let seen;
    const isThere = async () => {
        seen = [];
        for (const member of set.members) seen.push(await indexesOf(member).then((names) => names.join(), whyNot));
        return seen.every((names) => names === ['_id_', ...expected].join());
    };
    await waitFor(isThere, { timeoutMs: 30_000, what: `indexes ${expected}` }).catch((error) => {
        throw new Error(`${error.message}: ${JSON.stringify(seen)}`);
    });
    await set.checkCollection('c');
}

const logOf = (member, pattern) => member.log.filter(({ msg }) => pattern.test(msg));

test('a build that only this member knows goes with the rollback, and so do its tables', async () => {
    await fill();
    const primary = await set.waitForPrimary();
    await set.waitForReplication();
    let ended;
    let made = [];
    await rollBack(primary, async (alone) => {
        const tables = tablesOf(primary);
        ended = create(alone);
        await waitFor(async () => (await indexesOf(primary)).length === 3, { timeoutMs: 1000 });
        made = tablesOf(primary).filter((name) => !tables.includes(name));
        await writeAlone(alone);
    });
    assert.notEqual(await ended, 0);
    assert.ok(made.length >= 5, `${made} are made for a build`);
    await everywhere([]);
    await waitFor(() => !tablesOf(primary).some((name) => made.includes(name)), {
        timeoutMs: 10_000,
        what: 'the end of the tables of the build',
    });
    assert.equal(logOf(primary, /^Index build: (resuming|restarting)/).length, 0);
});

/* A scan and a load wait after each slice; the load with locks that a step-down wants. */
for (const [name, blockTimeMS] of [
    ['indexBuild.startEntryWritten', 60_000],
    ['indexBuild.scanning', 60_000],
    ['indexBuild.bulkLoading', 200],
    ['indexBuild.firstDrain', 60_000],
])
    test(`a build goes on after a rollback at ${name}`, async () => {
        await fill();
        const primary = await set.waitForPrimary();
        await set.command(primary, {
            configureFailPoint: 'indexBuild.shortSlices',
            mode: 'alwaysOn',
        });
        const isHanging = await hang(primary, name, blockTimeMS);
        const ended = create(db);
        await isHanging();
        await db.collection('c').updateMany({ _id: { $lt: 300 } }, { $inc: { a: 1 } });
        await set.waitForReplication();
        await rollBack(primary, writeAlone);
        await release(primary, name);
        await primary.waitLog(({ msg }) => msg === 'Rollback done', 20_000);
        const resumed = logOf(primary, /^Index build: (resuming|restarting)/);
        assert.deepEqual(
            resumed.map(({ msg }) => msg),
            ['Index build: resuming'],
            JSON.stringify(logOf(primary, /^Index build/)),
        );
        assert.notEqual(await ended, 0);
        await everywhere(NAMES);
    });

test('a build whose commit is rolled back runs again until the next primary commits it', async () => {
    await fill();
    const primary = await set.waitForPrimary();
    const isHanging = await hang(primary, 'indexBuild.quorumReached');
    const ended = create(db, { commitQuorum: 1 });
    await isHanging();
    await set.waitForReplication();
    await rollBack(primary, async (alone) => {
        await release(primary, 'indexBuild.quorumReached');
        await waitFor(async () => (await indexesOf(primary)).includes('a_1'), { timeoutMs: 1000 });
        await writeAlone(alone);
    });
    await ended;
    await primary.waitLog(({ msg }) => /^Index build: restarting/.test(msg), 20_000);
    await everywhere(NAMES);
});

test('a build whose abort is rolled back runs again until the next primary commits it', async () => {
    await fill();
    const primary = await set.waitForPrimary();
    const [secondary] = await set.secondaries();
    const isHanging = await hang(secondary, 'indexBuild.firstDrain');
    const ended = create(db);
    await isHanging();
    await set.waitForReplication();
    await rollBack(primary, async (alone) => {
        await alone.command({ dropIndexes: 'c', index: NAMES, writeConcern: { w: 1 } });
        await writeAlone(alone);
    });
    assert.notEqual(await ended, 0);
    await primary.waitLog(({ msg }) => /^Index build: restarting/.test(msg), 20_000);
    await everywhere(NAMES);
});

test('a kill in the middle of a rollback leaves a build that begins anew', async () => {
    await fill();
    const primary = await set.waitForPrimary();
    const isHanging = await hang(primary, 'indexBuild.firstDrain');
    const ended = create(db);
    await isHanging();
    await set.waitForReplication();
    await rollBack(primary, async (alone) => {
        await set.crashAt(primary, 'rollback.recoveredToStable');
        await writeAlone(alone);
    });
    /* It may end before it has answered. */
    await release(primary, 'indexBuild.firstDrain').catch(() => {});
    assert.equal((await primary.waitEnd()).code, 137);
    await primary.start();
    await ended;
    await everywhere(NAMES);
    /* From the catalog, or from the oplog if the checkpoint is older. The rollback itself begins
     * anew, too, and may then go on with the build. */
    const [first] = logOf(primary, /^Index build: (resuming|restarting|starting)/);
    assert.doesNotMatch(first.msg, /resuming/);
});
