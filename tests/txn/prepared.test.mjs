/*
 * Goal (TXN-6, I4, I5, I9): a transaction that a majority has prepared stays prepared until somebody
 * decides, whatever becomes of the members; the decision is carried out everywhere; one that was prepared
 * by a minority only goes with a rollback, as if it had never been.
 *
 * Method: transactions are prepared and decided by raw commands on a set of three; between the two comes
 * a fail-over, a restart, an initial sync, a rollback, more writes than the oplog holds, or a kill at
 * each step of preparing and deciding. Then all members must agree with each other and with what was decided.
 *
 * TXN_PREPARED: how often each of them happens (1). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Timestamp } from 'mongodb';
import { random, seedOfRun } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { COMMITTED, NO_SUCH, PreparedTransaction, ask, majority } from './prepared.mjs';
import { DB, World, pause } from './world.mjs';

const TIMES = Number(process.env.TXN_PREPARED ?? 1);
const MAX_TIME = 50;
const INVALID_OPTIONS = 72;
const TYPE_MISMATCH = 14;
const PREPARED = 267;
const NOT_PRIMARY = 10107;
const seed = seedOfRun();
const rand = random(seed);
console.error(`prepared transactions: ${TIMES} times, TEST_SEED=${seed}`);

const world = new World();
let keys = 0;
let hasFailed = false;
const expected = new Map(); // _id -> by

before(async () => {
    await world.start();
    const client = await world.connect();
    await client.db(DB).createCollection('prepared', majority);
    await world.set.closeClients();
});
after(async () => {
    if (world.set !== undefined) await world.discard(hasFailed);
});

const claim = (name, body) =>
    test(`TXN-6: ${name}`, async () => {
        assert.ok(!hasFailed, 'an earlier one failed and left the set as it was');
        try {
            await body();
        } catch (error) {
            hasFailed = true;
            throw error;
        }
    });

/* ---- what all of them do ---- */

/* A document to change, and a transaction that changes it. */
async function begin(primary) {
    const key = ++keys;
    const insert = { insert: 'prepared', documents: [{ _id: `old ${key}`, by: 0 }], ...majority, $db: DB };
    const reply = await ask(primary, insert);
    assert.equal(reply?.ok, 1, JSON.stringify(reply));
    expected.set(`old ${key}`, 0);
    const transaction = await new PreparedTransaction().write(primary, key);
    return Object.assign(transaction, { key });
}

async function prepareOne(primary) {
    return (await begin(primary)).mustPrepare(primary);
}

function noteCommit({ key }) {
    expected.set(`new ${key}`, key);
    expected.set(`old ${key}`, key);
}

const read = async (member, readConcern, extra = {}) =>
    ask(member, {
        find: 'prepared',
        batchSize: 10_000,
        readConcern,
        $readPreference: { mode: 'primaryPreferred' },
        ...extra,
        $db: DB,
    });

/* Every member shows what was decided, and nothing else. */
async function checkContent(where) {
    await world.checkAgreement(where);
    for (const [i, member] of world.members.entries()) {
        const reply = await read(member, { level: 'local' });
        const found = new Map(reply.cursor.firstBatch.map(({ _id, by }) => [_id, by]));
        assert.deepEqual(found, new Map([...expected].filter(([, by]) => by !== undefined)), `${where}, member ${i}`);
    }
}

/* Nobody else may change what is prepared, and nobody sees it. */
async function checkHeld(transaction) {
    const primary = await world.primary();
    const other = new PreparedTransaction();
    const updates = [{ q: { _id: `old ${transaction.key}` }, u: { $set: { by: -1 } } }];
    // A writer waits for the end, as a reader at snapshot does.
    const reply = await ask(primary, {
        update: 'prepared',
        updates,
        ...other.identity,
        startTransaction: true,
        maxTimeMS: 200,
        $db: DB,
    });
    assert.equal(reply?.code, MAX_TIME, JSON.stringify(reply));
    const local = await read(primary, { level: 'local' }, { filter: { _id: `old ${transaction.key}` } });
    assert.equal(local.cursor.firstBatch[0].by, 0, 'what is not decided was seen');
}

/* Two are prepared, `event` happens, one is committed and one aborted. */
async function throughEvent(where, event) {
    const primary = await world.primary();
    const winner = await prepareOne(primary);
    const loser = await prepareOne(primary);
    await event(primary);
    await world.primary();
    await checkHeld(winner);
    await checkHeld(loser);
    await winner.mustDecide(world.set, 'commit');
    noteCommit(winner);
    await loser.mustDecide(world.set, 'abort');
    // Whoever asks again hears the same.
    await winner.mustDecide(world.set, 'commit');
    assert.equal((await loser.decide(world.set, 'commit')).code, NO_SUCH);
    assert.equal((await winner.decide(world.set, 'abort')).code, COMMITTED);
    await checkContent(`seed ${seed}, ${where}`);
}

/* ---- the events ---- */

/* Another primary while the old one is down or asleep. */
async function failOver(primary) {
    await primary.kill();
    await world.set.waitForSuccessor(primary);
}

async function resync(member) {
    await member.stop();
    rmSync(member.dbpath, { recursive: true });
    await world.restart(member);
    await world.set.waitForSecondaries();
    await world.set.waitForReplication();
}

const EVENTS = {
    nothing: async () => {},
    'a kill of the primary, which comes back': async (primary) => {
        await failOver(primary);
        await world.restart(primary);
    },
    'a step-down': () => world.set.stepDown({ secs: 1 }),
    'two step-downs': async () => {
        await world.set.stepDown({ secs: 1 });
        await world.set.stepDown({ secs: 1 });
    },
    'a kill of all members': async () => {
        await Promise.all(world.members.map((member) => member.kill()));
        await world.restartDead();
    },
    'a clean stop of all members': async () => {
        for (const member of world.members) await member.stop();
        await world.restartDead();
    },
    'kills of all members after a checkpoint': async (primary) => {
        for (const member of world.members) await world.set.command(member, { fsync: 1 });
        await ask(primary, { insert: 'other', documents: [{ a: 1 }], ...majority, $db: DB });
        await Promise.all(world.members.map((member) => member.kill()));
        await world.restartDead();
    },
    'an initial sync': (primary) => resync(rand.pick(world.others(primary))),
    'an initial sync of who becomes primary': async (primary) => {
        const [heir] = world.others(primary);
        await resync(heir);
        await waitFor(
            async () => {
                await world.set.command(heir, { replSetStepUp: 1 }).catch(() => {});
                return (await world.set.findPrimary()) === heir;
            },
            { timeoutMs: 20_000, what: 'the new member as primary' },
        );
    },
    'a kill in the middle of an initial sync': async (primary) => {
        const member = rand.pick(world.others(primary));
        await member.stop();
        rmSync(member.dbpath, { recursive: true });
        await world.restart(member);
        await pause(rand.below(400));
        await member.kill();
        await world.restart(member);
        await world.set.waitForSecondaries();
    },
    /* The primary has entries that only it has, beside the prepared ones that all have. */
    'a rollback of other writes': () => rollBack(writeAlone),
};

const writeAlone = (primary) =>
    ask(primary, { insert: 'prepared', documents: [{ _id: `alone ${++keys}`, by: 0 }], writeConcern: { w: 1 }, $db: DB });

/* Null unless it succeeded: the primary may have stepped down. */
const ifOk = (reply) => (reply?.ok === 1 ? reply : null);

async function rollBack(alone) {
    const result = await world.rollBack(async (primary) => ifOk(await alone(primary)));
    await world.set.waitForSecondaries();
    return result;
}

for (let i = 0; i < TIMES; i++)
    for (const [name, event] of Object.entries(EVENTS))
        claim(`prepared transactions outlive ${name} (${i})`, () => throughEvent(name, event));

/* Where the index was marked lies before the history of a member that copied its data later. */
claim('an initial sync marks the index that a prepared transaction made multikey', async () => {
    const primary = await world.primary();
    const must = async (command) => {
        const reply = await ask(primary, { ...command, $db: DB });
        assert.equal(reply?.ok, 1, JSON.stringify(reply));
    };
    await must({ createIndexes: 'lists', indexes: [{ key: { x: 1 }, name: 'x' }], ...majority });
    const transaction = new PreparedTransaction();
    await must({ insert: 'lists', documents: [{ _id: 1, x: [1, 2, 3] }], ...transaction.identity, startTransaction: true });
    await transaction.mustPrepare(primary);
    await must({ insert: 'lists', documents: [{ _id: 2, x: 4 }], ...majority });
    const [member] = world.others(primary);
    await resync(member);
    await transaction.mustDecide(world.set, 'commit');
    await world.set.waitForReplication();
    const found = await ask(member, {
        find: 'lists',
        filter: { x: { $in: [1, 3, 4] } },
        hint: { x: 1 },
        $readPreference: { mode: 'secondaryPreferred' },
        $db: DB,
    });
    assert.deepEqual(
        found.cursor.firstBatch.map(({ _id }) => _id),
        [1, 2],
    );
});

claim('what only a minority prepared is gone after a rollback', async () => {
    let transaction = null;
    await rollBack(async (primary) => {
        transaction = new PreparedTransaction();
        const isWritten = ifOk(await transaction.insert(primary, ++keys)) !== null;
        return isWritten ? transaction.prepare(primary, { w: 1 }) : null;
    });
    transaction.prepareTimestamp = new Timestamp({ t: 1, i: 1 });
    assert.equal((await transaction.decide(world.set, 'commit')).code, NO_SUCH);
    await checkContent('a prepare that was rolled back');
});

for (const verb of ['commit', 'abort'])
    claim(`a decision to ${verb} that is rolled back leaves the transaction prepared`, async () => {
        const transaction = await prepareOne(await world.primary());
        await rollBack((primary) => transaction[verb](primary, { writeConcern: { w: 1 } }));
        await checkHeld(transaction);
        await transaction.mustDecide(world.set, 'commit');
        noteCommit(transaction);
        await checkContent(`a decision to ${verb} that was rolled back`);
    });

/* ---- kills at the steps ---- */

/* failpoint, and what reaches it. */
const KILL_POINTS = {
    'txn.preparedLocal': 'prepare',
    'txn.preparedMajority': 'prepare',
    'txn.committed': 'commit',
    'txn.aborted': 'abort',
};

for (let i = 0; i < TIMES; i++)
    for (const [point, verb] of Object.entries(KILL_POINTS))
        claim(`a coordinator gets its way when the primary dies at ${point} (${i})`, async () => {
            const primary = await world.primary();
            const transaction = await begin(primary);
            if (verb !== 'prepare') await transaction.mustPrepare(primary);
            await world.arm(primary, point);
            await transaction[verb](primary);
            await world.waitForCrash(primary, point);
            await world.primary();
            await world.restart(primary);
            if (verb === 'prepare') {
                // It is prepared, or was never: nothing else.
                const reply = await transaction.decide(world.set, 'prepare');
                if (point === 'txn.preparedMajority') assert.equal(reply.ok, 1, JSON.stringify(reply));
                if (reply.ok === 1) transaction.prepareTimestamp = reply.prepareTimestamp;
                else assert.equal(reply.code, NO_SUCH);
                if (reply.ok === 1) await transaction.mustDecide(world.set, 'commit');
                if (reply.ok === 1) noteCommit(transaction);
            } else if (verb === 'commit') {
                await transaction.mustDecide(world.set, 'commit');
                noteCommit(transaction);
            } else {
                // Gone already, or aborted now.
                const reply = await transaction.decide(world.set, 'abort');
                assert.ok(reply.ok === 1 || reply.code === NO_SUCH, JSON.stringify(reply));
            }
            await checkContent(`${point} ${i}`);
        });

/* ---- rules ---- */

claim('every rule of preparing and deciding has its code', async () => {
    const primary = await world.primary();
    const code = async (reply) => (await reply)?.code;
    const never = new PreparedTransaction();
    assert.equal(await code(never.prepare(primary)), NO_SUCH);
    const { txnNumber: _, ...withoutNumber } = never.identity;
    assert.equal(await code(ask(primary, { prepareTransaction: 1, ...withoutNumber, $db: 'admin' })), INVALID_OPTIONS);

    const plain = await begin(primary);
    plain.prepareTimestamp = new Timestamp({ t: 3, i: 3 });
    assert.equal(await code(plain.commit(primary)), INVALID_OPTIONS, 'a commit timestamp of what is not prepared');

    const one = await prepareOne(primary);
    const again = await one.prepare(primary);
    assert.equal(again.ok, 1, JSON.stringify(again));
    assert.ok(again.prepareTimestamp.equals(one.prepareTimestamp), 'the same timestamp for who asks again');
    assert.equal(await code(ask(primary, { find: 'prepared', ...one.identity, $db: DB })), PREPARED);
    assert.equal(await code(one.commit(primary, { commitTimestamp: undefined })), INVALID_OPTIONS);
    assert.equal(await code(one.commit(primary, { commitTimestamp: 5 })), TYPE_MISMATCH);
    assert.equal(await code(one.commit(primary, { commitTimestamp: new Timestamp({ t: 0, i: 0 }) })), INVALID_OPTIONS);
    const earlier = new Timestamp({ t: one.prepareTimestamp.getHighBits() - 1, i: 1 });
    assert.equal(await code(one.commit(primary, { commitTimestamp: earlier })), INVALID_OPTIONS);
    for (const secondary of world.others(primary)) {
        assert.equal(await code(one.prepare(secondary)), NOT_PRIMARY);
        assert.equal(await code(one.commit(secondary)), NOT_PRIMARY);
        assert.equal(await code(one.abort(secondary)), NOT_PRIMARY);
    }
    await checkHeld(one);
    await one.mustDecide(world.set, 'commit');
    noteCommit(one);
    assert.equal(await code(one.prepare(primary)), COMMITTED);
    await plain.abort(primary);
    await checkContent('rules');
});

claim('who reads at a time that is not decided yet waits for the decision', async () => {
    const primary = await world.primary();
    const transaction = await prepareOne(primary);
    const note = await ask(primary, { appendOplogNote: 1, data: { a: 1 }, ...majority, $db: 'admin' });
    const filter = { _id: `old ${transaction.key}` };
    const after_ = { afterClusterTime: note.operationTime };
    const blocked = await read(primary, { level: 'majority', ...after_ }, { filter, maxTimeMS: 300 });
    assert.equal(blocked?.code, MAX_TIME, JSON.stringify(blocked));
    const waiting = read(primary, { level: 'majority', ...after_ }, { filter });
    await transaction.mustDecide(world.set, 'commit');
    noteCommit(transaction);
    assert.equal((await waiting).cursor.firstBatch[0].by, transaction.key);
});

claim('a prepared transaction has no time limit, an unprepared one has', async () => {
    const primary = await world.primary();
    const { was } = await world.set.command(primary, { setParameter: 1, transactionLifetimeLimitSeconds: 1 });
    try {
        const prepared = await prepareOne(primary);
        const plain = await begin(primary);
        await waitFor(
            async () => (await ask(primary, { find: 'prepared', limit: 1, ...plain.identity, $db: DB })).code === NO_SUCH,
            { timeoutMs: 15_000, what: 'the end of the one that is too old' },
        );
        await checkHeld(prepared);
        await prepared.mustDecide(world.set, 'commit');
        noteCommit(prepared);
    } finally {
        await world.set.command(primary, { setParameter: 1, transactionLifetimeLimitSeconds: was });
    }
    await checkContent('time limits');
});

describe('a small oplog', () => {
    claim('the oplog is kept from the oldest prepared transaction on, and no longer', async () => {
        const set = await startReplicaSet({
            members: 1,
            args: ['--oplogSize', '1', '--syncdelay', '1', '--wiredTigerCacheSizeGB', '0.25'],
        });
        try {
            const [member] = set.members;
            const oldest = async () => {
                const client = await set.direct(member);
                const [entry] = await client.db('local').collection('oplog.rs').find().sort({ $natural: 1 }).limit(1).toArray();
                await client.close();
                return entry.ts;
            };
            const fill = async () => {
                const documents = Array.from({ length: 20 }, () => ({ text: 't'.repeat(50_000) }));
                const reply = await ask(member, { insert: 'filler', documents, $db: DB });
                assert.equal(reply.ok, 1, JSON.stringify(reply));
            };
            await ask(member, { insert: 'prepared', documents: [{ _id: 'old 1', by: 0 }], $db: DB });
            const transaction = await new PreparedTransaction().write(member, 1);
            await transaction.mustPrepare(member);
            for (let i = 0; i < 8; i++) await fill();
            await set.command(member, { fsync: 1 });
            assert.ok((await oldest()).lessThanOrEqual(transaction.prepareTimestamp), 'the entry of a prepared one is gone');
            await member.kill();
            await member.start();
            await set.waitForPrimary();
            await transaction.mustDecide(set, 'commit');
            await waitFor(
                async () => {
                    await fill();
                    return (await oldest()).greaterThan(transaction.prepareTimestamp);
                },
                { timeoutMs: 30_000, what: 'the end of old entries' },
            );
            const found = await ask(member, { find: 'prepared', sort: { _id: 1 }, $db: DB });
            assert.deepEqual(found.cursor.firstBatch, [{ _id: 'new 1', by: 1 }, { _id: 'old 1', by: 1 }]);
            await set.checkCollection('prepared', DB);
        } finally {
            await set.remove();
        }
    });
});
