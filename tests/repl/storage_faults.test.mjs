/*
 * Goal: every single call of the storage engine may fail while a member applies a batch, becomes
 * primary or starts after a crash: it goes on or ends with a reason, the next start is fine, members
 * agree, and nothing acknowledged is lost. Method: a first round counts the calls; then one of them
 * fails in each round, spread over all of them (STORAGE_FAULTS=deep: every one).
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import * as faults from '../lib/storage_faults.mjs';

const ARGS = ['--wiredTigerCacheSizeGB', '0.25', '--oplogSize', '990', '--syncdelay', '0'];
const NEVER = 1_000_000;
/* Every so many starts with a fault one without is tried, where not all calls are. */
const CHECKED_STARTS = faults.IS_DEEP ? 1 : 4;
const BUDGET = { timeoutMs: 30_000 };
const STEP_UP_FAILED = /^Could not (take writes as primary|store the own vote)/;
const EXIT_STARTUP = 100;
/* NotWritablePrimary, PrimarySteppedDown, InterruptedDueToReplStateChange */
const STATE_CODES = new Set([10107, 189, 11602]);

/* Numbers of calls to fail: the first, the last and some between. */
function spread(calls, most) {
    const count = faults.IS_DEEP ? calls : Math.min(most, calls);
    if (count < 2) return [1];
    const step = (calls - 1) / (count - 1);
    return Array.from({ length: count }, (_, i) => 1 + Math.round(i * step));
}

/* It ended by itself: that must have been on purpose, with a line that says why. */
async function checkEnd(member, where) {
    const { code, signal } = await member.waitEnd();
    const words = `${where}: ${signal} ${member.lastWords()}`;
    assert.equal(code, faults.EXIT_ABRUPT, words);
    assert.ok(
        member.log.some(({ s, attr }) => s === 'F' && /Input\/output|disk is full|No space/.test(attr?.error)),
        `ended without a reason: ${words}`,
    );
}

describe('a failing call of the storage engine in a replica set', () => {
    let set = null;
    let tried = 0;
    const acknowledged = [];
    before(async () => {
        set = await startReplicaSet({
            members: 3,
            settings: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
            args: ARGS,
        });
    });
    after(() => set?.remove());

    /* One of each kind; acknowledged by the majority. */
    async function writeSome() {
        const n = tried++;
        const client = await set.client();
        const db = client.db('test', { writeConcern: { w: 'majority' } });
        const c = db.collection('c');
        const docs = Array.from({ length: 5 }, (_, i) => ({ _id: n * 5 + i, n, a: i, tags: [i, n] }));
        await c.insertMany(docs);
        await c.updateMany({ n }, { $set: { b: n } });
        await c.deleteOne({ _id: n * 5 });
        await db.createCollection(`made${n}`);
        await db.collection(`made${n}`).createIndex({ x: 1 });
        await db.collection(`made${n}`).insertOne({ x: 1 });
        await db.collection(`made${n}`).drop();
        await set.closeClients();
        acknowledged.push(n);
    }

    /* Again while primaries come and go. */
    const writeSomeAtLast = () =>
        waitFor(() => writeSome().then(() => true, isOfState), { ...BUDGET, what: 'accepted writes' });
    function isOfState(error) {
        const isFine = STATE_CODES.has(error.code) || /^MongoNetwork|PoolCleared/.test(error.name);
        if (!isFine) throw error;
        return false;
    }

    async function checkAll(where) {
        await set.waitForSecondaries(BUDGET);
        await set.checkCollection('c').catch((error) => {
            error.message = `${where}: ${error.message}`;
            throw error;
        });
        const client = await set.client();
        const filter = { n: { $in: acknowledged }, b: { $exists: true } };
        const count = await client.db('test').collection('c').countDocuments(filter);
        assert.equal(count, 4 * acknowledged.length, `${where}: acknowledged documents`);
        await set.closeClients();
    }

    const command = (member, error, call, thread) =>
        faults.arm({ command: (body) => set.command(member, body) }, error, call, thread);
    const off = (member, armed) =>
        faults.disarm({ command: (body) => set.command(member, body) }, armed);

    /* The N-th call fails while `act` runs; resolves to {hasFired, entered}. A member that ended is
     * started again. */
    async function round(member, { error, call, thread }, act) {
        const where = `${error} at call ${call}`;
        const armed = await command(member, error, call, thread);
        await act();
        let outcome = { hasFired: true, entered: call };
        let hasEnded = !member.isRunning();
        if (!hasEnded)
            try {
                outcome = await off(member, armed);
            } catch (failure) {
                if (!(await member.isEnding())) throw failure;
                hasEnded = true;
            }
        const revive = async () => {
            await checkEnd(member, where);
            await member.start();
        };
        if (hasEnded) await revive();
        /* One whose call has failed may answer once more before it ends. */
        await checkAll(where).catch(async (failure) => {
            if (hasEnded || !outcome.hasFired || !(await member.isEnding())) throw failure;
            await revive();
            await checkAll(where);
        });
        return outcome;
    }

    const caughtUp = (member) => async () => {
        await writeSome();
        const primary = await set.waitForPrimary();
        const target = (await set.hello(primary)).lastWrite.opTime.ts;
        const isOver = async () => {
            if (!member.isRunning()) return true;
            const at = (await set.hello(member))?.lastWrite?.opTime?.ts;
            return at !== undefined && at.greaterThanOrEqual(target);
        };
        await waitFor(isOver, { ...BUDGET, what: 'the member has all, or has ended' });
    };

    for (const [error, most] of [['EIO', 6], ['ENOSPC', 3], ['WT_ROLLBACK', 12]])
        test(`${error} while a secondary applies`, async (t) => {
            const primary = await set.waitForPrimary();
            const member = set.members.find((one) => one !== primary);
            const counted = { error, call: NEVER, thread: 'Repl' };
            const { entered } = await round(member, counted, caughtUp(member));
            assert.ok(entered > 10, `only ${entered} calls were seen`);
            t.diagnostic(`${entered} calls`);
            for (const call of spread(entered, most)) {
                await round(member, { ...counted, call }, caughtUp(member));
                if (error === 'WT_ROLLBACK') assert.ok(member.isRunning());
            }
        });

    /* Until it is primary, or the attempt is over. */
    const stepUp = (member) => async () => {
        const from = member.log.length;
        const isOver = async () => {
            await set.command(member, { replSetStepUp: 1 }).catch(() => {});
            return (
                !member.isRunning() ||
                member.log.slice(from).some(({ msg }) => STEP_UP_FAILED.test(msg)) ||
                (await set.hello(member))?.isWritablePrimary
            );
        };
        await waitFor(isOver, { ...BUDGET, what: 'the end of the step-up' });
        await writeSomeAtLast();
    };
    /* The secondary whose turn was longest ago: one that could not write does not stand for a while. */
    const turns = [];
    async function nextCandidate() {
        const primary = await set.waitForPrimary();
        const others = set.members.filter((one) => one !== primary);
        const [member] = others.sort((a, b) => turns.lastIndexOf(a) - turns.lastIndexOf(b));
        turns.push(member);
        return member;
    }

    for (const [error, most] of [['EIO', 5], ['WT_ROLLBACK', 4]])
        test(`${error} while a member becomes primary`, async (t) => {
            const first = await nextCandidate();
            const counted = { error, call: NEVER, thread: 'ReplCoord' };
            const { entered } = await round(first, counted, stepUp(first));
            assert.ok(entered > 5, `only ${entered} calls were seen`);
            t.diagnostic(`${entered} calls`);
            for (const call of spread(entered, most)) {
                const member = await nextCandidate();
                await round(member, { ...counted, call }, stepUp(member));
            }
        });
});

describe('a failing call of the storage engine at a start after a kill', () => {
    let set = null;
    let member = null;
    let written = 0;
    before(async () => {
        set = await startReplicaSet({
            members: 1,
            settings: { electionTimeoutMillis: 500, heartbeatIntervalMillis: 200 },
            args: ARGS,
        });
        [member] = set.members;
    });
    after(() => set?.remove());

    async function write() {
        const client = await set.direct(member);
        const db = client.db('test', { writeConcern: { w: 'majority', j: true } });
        await db.collection('c').insertMany([{ _id: written, a: [written] }, { _id: -written - 1 }]);
        await db.collection('c').updateOne({ _id: written }, { $set: { b: 1 } });
        await db.collection(`made${written % 4}`).drop();
        await db.createCollection(`made${(written + 1) % 4}`);
        await db.collection(`made${(written + 1) % 4}`).createIndex({ x: 1 });
        written++;
        await member.closeClients();
    }

    async function check(where) {
        await set.waitForPrimary();
        const client = await set.direct(member);
        const db = client.db('test');
        assert.equal(await db.collection('c').countDocuments(), 2 * written, where);
        assert.equal(await db.collection('c').countDocuments({ b: 1 }), written, where);
        for (const name of ['c', `made${written % 4}`]) {
            const report = await db.command({ validate: name, full: true });
            assert.ok(report.valid, `${where}: ${name} ${JSON.stringify(report)}`);
        }
        const indexes = await db.collection(`made${written % 4}`).indexes();
        assert.equal(indexes.length, 2, where);
        await member.closeClients();
    }

    /* Resolves to whether it started, and how many calls there were. */
    async function startWithFault(error, call) {
        const { args } = member;
        member.args = [...args, ...faults.atStart(error, call)];
        try {
            await member.start();
        } catch (failure) {
            const { code, signal } = await member.waitEnd();
            const words = `${error} at call ${call}: ${signal} ${failure.message}`;
            assert.ok([EXIT_STARTUP, faults.EXIT_ABRUPT].includes(code), words);
            assert.match(words, /could not|Input\/output error|disk is full|No space left/, words);
            return { isStarted: false };
        } finally {
            member.args = args;
        }
        /* It may end right after, by a call of a thread in the background. */
        const off = { configureFailPoint: 'storage.call', mode: 'off' };
        const reply = await set.command(member, off).catch(async (failure) => {
            if (!(await member.isEnding())) throw failure;
            return { entered: call };
        });
        return { isStarted: true, entered: Number(reply.entered) };
    }

    for (const [error, most] of [['EIO', 18], ['ENOSPC', 4], ['WT_ROLLBACK', 4]])
        test(`${error}: it starts or says why not, and the next start has everything`, async (t) => {
            await write();
            await member.kill();
            const { entered } = await startWithFault(error, NEVER);
            assert.ok(entered > 10, `only ${entered} calls were seen`);
            t.diagnostic(`${entered} calls`);
            await check(`${error}: counting`);
            await member.kill();
            for (const [i, call] of spread(entered, most).entries()) {
                const where = `${error} at call ${call} of ${entered}`;
                const { isStarted } = await startWithFault(error, call);
                if (error === 'WT_ROLLBACK') assert.ok(isStarted, where);
                if (isStarted) {
                    const isCalm = () => check(where).then(() => true, () => !member.isRunning());
                    await waitFor(isCalm, { ...BUDGET, what: `${where}: serving, or ended` });
                    if (!member.isRunning()) await checkEnd(member, where);
                    await member.kill();
                }
                if (i % CHECKED_STARTS !== 0) continue;
                await member.start();
                await check(`${where}, next start`);
                await member.kill();
            }
            await member.start();
            await check(`${error}: at the end`);
            await set.command(member, { fsync: 1 });
        });
});
