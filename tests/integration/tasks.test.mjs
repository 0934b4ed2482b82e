/*
 * Goal (REP-4): tasks of the primary do what their table says: phases, branches, results, errors,
 * locks, retries, aborts, operators, and what currentOp shows of them. Method: _testPrimaryTask on a set
 * of one member, which steps down and up again by itself; what needs other members, and kills, is in
 * tests/repl/task_kills.test.mjs.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fails, random, seedOfRun } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { explain, waitFor } from '../lib/server.mjs';

const HOST_UNREACHABLE = 6;
const BAD_VALUE = 2;
const NO_SUCH_KEY = 4;
const ILLEGAL_OPERATION = 20;
const MAX_TIME_MS_EXPIRED = 50;
const WRITE_CONFLICT = 112;
const CONFLICTING = 117;
const RESHARD_COLLECTION_ABORTED = 341;
const DATA_CORRUPTION = 301;
const STALE_CONFIG = 13388;
const NOT_WRITABLE_PRIMARY = 10107;
const REPL_STATE_CHANGE = 11602;
const OUT_OF_DISK_SPACE = 14031;
const KEEP = { keepOutcomeMS: 600_000 };

let set = null;
let member = null;
let client = null;
let admin = null;
let marks = null;
let documents = null;
let nextId = 0;

before(async () => {
    set = await startReplicaSet({ members: 1 });
    [member] = set.members;
    client = await set.client({ retryWrites: false, retryReads: false });
    admin = client.db('admin');
    marks = client.db('test').collection('primaryServiceMarks');
    documents = client.db('config').collection('testPrimaryTasks');
});
after(() => set?.remove());

const newId = () => `task ${nextId++}`;
const begin = (id, options = {}) => admin.command({ _testPrimaryTask: id, ...options });
const act = (id, action, options = {}) => admin.command({ _testPrimaryTask: id, action, ...options });
const run = (id, options = {}) => begin(id, { ...options, wait: true });

/* {phase: runs} */
async function marksOf(id) {
    const found = await marks.find({ '_id.task': id }).sort({ '_id.phase': 1 }).toArray();
    return Object.fromEntries(found.map((mark) => [mark._id.phase, mark.runs]));
}

async function rowOf(id) {
    const rows = await admin
        .aggregate([{ $currentOp: {} }, { $match: { service: 'TestService', taskId: id } }])
        .toArray();
    assert.ok(rows.length <= 1, JSON.stringify(rows));
    return rows[0];
}

const waitForRow = (id, wanted) =>
    waitFor(
        async () => {
            const row = await rowOf(id);
            return row !== undefined && wanted(row) ? row : null;
        },
        { timeoutMs: 10_000, what: `the row of ${id}` },
    );
const release = (id) => marks.insertOne({ _id: { task: id, phase: 'release' } });
const isGone = (id) =>
    waitFor(async () => (await documents.countDocuments({ _id: id })) === 0, {
        timeoutMs: 10_000,
        what: 'the removal of the document',
    });

/* A fail-over of a set of one: it is elected again. */
async function stepDownAndUp() {
    await set.command(member, { replSetStepDown: 1, force: true }).catch(() => {});
    await set.waitForPrimary();
}

async function failpoint(name, mode, data) {
    await set.command(member, { configureFailPoint: name, mode, ...(data && { data }) });
}

test('REP-4: phases run in order, the result comes to whoever waits, nothing is left', async () => {
    const id = newId();
    const { result } = await run(id, { steps: 3 });
    assert.equal(Number(result.steps), 3);
    const { term } = await admin.command({ replSetGetStatus: 1 });
    assert.equal(Number(result.term), Number(term));
    assert.deepEqual(await marksOf(id), { first: 1, second: 3, third: 1 });
    assert.equal(await documents.countDocuments({ _id: id }), 0);
    await fails(act(id, 'wait'), NO_SUCH_KEY);
});

test('REP-4: a phase chooses a branch', async () => {
    const id = newId();
    await run(id, { branch: 'detour' });
    assert.deepEqual(await marksOf(id), { detour: 1, first: 1, second: 1, third: 1 });
});

test('REP-4: the same request joins, another one with the same id is refused', async () => {
    const id = newId();
    await begin(id, { hold: true });
    const others = [1, 2, 3].map(() => run(id, { hold: true }));
    await fails(run(id, { hold: true, steps: 2 }), CONFLICTING, { message: /another request/ });
    await release(id);
    await Promise.all(others);
    assert.deepEqual(await marksOf(id), { first: 1, release: undefined, second: 1, third: 1 });
});

test('REP-4: an outcome is kept for its time, over a fail-over too, until it is acknowledged', async () => {
    const good = newId();
    const bad = newId();
    const errors = [{ phase: 'first', code: BAD_VALUE, info: { why: { a: 1 } } }];
    const { result } = await run(good, KEEP);
    await fails(run(bad, { ...KEEP, errors }), BAD_VALUE);
    await stepDownAndUp();
    for (let i = 0; i < 2; i++) {
        assert.deepEqual((await run(good, KEEP)).result, result);
        const error = await fails(run(bad, { ...KEEP, errors }), BAD_VALUE, { message: /wanted by the request, time 1/ });
        assert.deepEqual(error.errorResponse.why, { a: 1 });
    }
    await fails(run(good, { ...KEEP, steps: 9 }), CONFLICTING);
    assert.deepEqual(await marksOf(good), { first: 1, second: 1, third: 1 });
    await act(good, 'acknowledge');
    await act(bad, 'acknowledge');
    await isGone(good);
    await isGone(bad);
    await waitFor(() => fails(act(good, 'wait'), NO_SUCH_KEY).then(() => true, () => false));
    const brief = newId();
    await run(brief, { keepOutcomeMS: 50 });
    await isGone(brief);
});

test('REP-4: an outcome that is acknowledged before its task has quite ended goes, too', async () => {
    const id = newId();
    await failpoint('task.ended', 'alwaysOn', { blockTimeMS: 60_000 });
    try {
        await run(id, KEEP);
        await act(id, 'acknowledge');
    } finally {
        await failpoint('task.ended', 'off');
    }
    await isGone(id);
});

test('REP-4: of the outcomes of a service only so many are kept, the newest', async () => {
    const prefix = newId();
    for (let i = 0; i < 270; i += 10)
        await Promise.all(Array.from({ length: 10 }, (_, k) => run(`${prefix} ${i + k}`, KEEP)));
    const kept = { _id: { $regex: `^${prefix} ` } };
    await waitFor(async () => (await documents.countDocuments(kept)) <= 256, {
        timeoutMs: 20_000,
        what: 'the removal of old outcomes',
    });
    assert.ok((await documents.countDocuments(kept)) > 200);
    assert.equal(await documents.countDocuments({ _id: `${prefix} 269` }), 1);
    assert.equal(await documents.countDocuments({ _id: `${prefix} 0` }), 0);
    for (const { _id } of await documents.find(kept).toArray())
        await act(_id, 'acknowledge');
    await waitFor(async () => (await documents.countDocuments(kept)) === 0, { timeoutMs: 20_000 });
});

test('REP-4: errors are tried again, final, or wait for an operator, by class and by phase', async () => {
    const retried = newId();
    await run(retried, {
        errors: [
            { phase: 'first', code: HOST_UNREACHABLE, times: 3 },
            { phase: 'second', code: WRITE_CONFLICT, times: 2 },
            { phase: 'third', code: BAD_VALUE, times: 2 }, // past the point of no return
        ],
    });
    assert.deepEqual(await marksOf(retried), { first: 1, second: 1, third: 1 });

    const final = newId();
    await fails(run(final, { errors: [{ phase: 'second', code: BAD_VALUE }] }), BAD_VALUE);
    assert.deepEqual(await marksOf(final), { first: 1, undo: 1 });

    /* StaleConfig is tried again, but not in "detour", whose row says so. */
    const errors = (phase) => [{ phase, code: STALE_CONFIG, times: 1 }];
    const stale = newId();
    await run(stale, { branch: 'detour', errors: errors('second') });
    const other = newId();
    await fails(run(other, { branch: 'detour', errors: errors('detour') }), STALE_CONFIG);
    assert.deepEqual(await marksOf(other), { first: 1, undo: 1 });
});

test('REP-4: a task that needs an operator keeps everything and goes on when it is asked to', async () => {
    const id = newId();
    const ns = 'test.manual';
    const locks = [{ name: ns, exclusive: true }];
    const ended = run(id, { locks, block: ns, errors: [{ phase: 'second', code: DATA_CORRUPTION }] });
    const row = await waitForRow(id, ({ needsAttention }) => needsAttention);
    assert.equal(row.error.code, DATA_CORRUPTION);
    assert.equal(row.error.codeName, 'DataCorruptionDetected');
    assert.equal(row.phase, 'second');
    assert.equal(row.waitingFor, 'an operator');
    assert.deepEqual(row.locks, { [ns]: 'X' });
    await member.waitLog(({ id: number, s, attr }) => number === 7300281 && s === 'E' && attr.task.includes(id));
    assert.equal((await documents.findOne({ _id: id })).phase, 'second');
    await fails(run(newId(), { locks }), CONFLICTING);
    await fails(client.db('test').collection('manual').insertOne({}), CONFLICTING, { message: /blocked/ });
    await act(id, 'resume');
    await ended;
    await client.db('test').collection('manual').insertOne({});
    await run(newId(), { locks });
});

test('REP-4: a task that needs an operator is tried again by the next primary', async () => {
    const id = newId();
    await failpoint('task.beforeRun', 'alwaysOn', { at: 'third', errorCode: OUT_OF_DISK_SPACE });
    await begin(id, KEEP);
    await waitForRow(id, ({ needsAttention }) => needsAttention); // the row of "third" says so
    await fails(act(id, 'abort'), ILLEGAL_OPERATION, { message: /point of no return/ });
    await failpoint('task.beforeRun', 'off');
    await stepDownAndUp();
    await run(id, KEEP);
    await act(id, 'acknowledge');
});

test('REP-4: locks are shared or exclusive, refused with the name of the holder, or queued in order', async () => {
    const a = newId();
    const db = [{ name: 'lk' }];
    const coll = (name) => [...db, { name: `lk.${name}`, exclusive: true }];
    await begin(a, { hold: true, locks: coll('a') });
    await run(newId(), { locks: coll('b') });
    await fails(run(newId(), { locks: coll('a') }), CONFLICTING, { message: new RegExp(`"lk.a" is locked by task "${a}"`) });
    await fails(run(newId(), { locks: [{ name: 'lk', exclusive: true }] }), CONFLICTING);

    const whole = newId();
    const behind = newId();
    const order = [];
    const queue = (id, locks) =>
        run(id, { locks, queue: true }).then(() => order.push(id));
    const ends = [queue(whole, [{ name: 'lk', exclusive: true }])];
    const row = await waitForRow(whole, ({ waitingFor }) => waitingFor === 'locks');
    assert.equal(row.blockedOn, 'lk');
    assert.match(row.blockedBy, new RegExp(a));
    assert.equal(await documents.countDocuments({ _id: whole }), 0, 'no document before the locks');
    /* Would fit beside the holder, but not past the one that waits. */
    ends.push(queue(behind, coll('c')));
    await waitForRow(behind, ({ waitingFor }) => waitingFor === 'locks');
    await fails(run(newId(), { locks: coll('d') }), CONFLICTING, { message: new RegExp(whole) });
    /* Gives up by its own deadline, and leaves nothing. */
    const late = newId();
    await fails(run(late, { locks: coll('a'), queue: true, maxTimeMS: 50 }), MAX_TIME_MS_EXPIRED);
    assert.equal(await rowOf(late), undefined);
    assert.equal(await documents.countDocuments({ _id: late }), 0);
    await release(a);
    await Promise.all(ends);
    assert.deepEqual(order, [whole, behind]);
});

test('REP-4: requests that wait for locks with the same id become one task', async () => {
    const holder = newId();
    const id = newId();
    const locks = [{ name: 'same', exclusive: true }];
    await begin(holder, { hold: true, locks });
    const ends = [1, 2, 3].map(() => run(id, { locks, queue: true, ...KEEP }));
    await waitFor(async () => {
        const rows = await admin.aggregate([{ $currentOp: {} }, { $match: { taskId: id } }]).toArray();
        return rows.length === 3;
    });
    await release(holder);
    await Promise.all(ends);
    assert.deepEqual(await marksOf(id), { first: 1, second: 1, third: 1 });
    await act(id, 'acknowledge');
});

test('REP-4: an abort leads to the abort path with its reason, from any open phase', async () => {
    const id = newId();
    const locks = [{ name: 'ab', exclusive: true }];
    const ended = run(id, { hold: true, locks, ...KEEP });
    ended.catch(() => {});
    await waitForRow(id, ({ phase }) => phase === 'second');
    await act(id, 'abort', { code: RESHARD_COLLECTION_ABORTED, reason: 'because' });
    const stored = await documents.findOne({ _id: id });
    assert.equal(stored.task.abort.code, RESHARD_COLLECTION_ABORTED);
    await fails(ended, RESHARD_COLLECTION_ABORTED, { message: /because/ });
    assert.deepEqual(await marksOf(id), { first: 1, undo: 1 });
    await fails(act(id, 'abort'), ILLEGAL_OPERATION, { message: /is over/ });
    await fails(act(newId(), 'abort'), NO_SUCH_KEY);
    await run(newId(), { locks });
    await act(id, 'acknowledge');
});

test('REP-4: an abort interrupts a task that waits before its next try, or for an operator', async () => {
    for (const code of [HOST_UNREACHABLE, DATA_CORRUPTION]) {
        const id = newId();
        const errors = [{ phase: 'second', code, times: 1_000_000 }];
        const ended = run(id, { errors });
        ended.catch(() => {});
        await waitForRow(id, ({ failures }) => failures > 0);
        await act(id, 'abort', { code: 341, reason: 'enough' });
        await fails(ended, 341);
        assert.deepEqual(await marksOf(id), { first: 1, undo: 1 });
    }
});

test('REP-4: an abort or a step-down interrupts a phase that runs', async () => {
    const id = newId();
    const ended = run(id, { sleepMS: 60_000 });
    ended.catch(() => {});
    await waitForRow(id, ({ phase, active }) => phase === 'second' && active);
    await act(id, 'abort', { code: 341 });
    await fails(ended, 341);
    assert.deepEqual(await marksOf(id), { first: 1, undo: 1 });

    const other = newId();
    await begin(other, { sleepMS: 60_000, ...KEEP });
    await waitForRow(other, ({ phase, active }) => phase === 'second' && active);
    await stepDownAndUp();
    await waitForRow(other, ({ phase, active }) => phase === 'second' && active);
    await act(other, 'abort', { code: 341 });
    await fails(run(other, { sleepMS: 60_000, ...KEEP }), 341);
    await act(other, 'acknowledge');
});

test('REP-4: an abort that fails is tried again until it is done', async () => {
    const id = newId();
    await fails(
        run(id, { errors: [{ phase: 'first', code: BAD_VALUE }, { phase: 'undo', code: BAD_VALUE, times: 3 }] }),
        BAD_VALUE,
    );
    assert.deepEqual(await marksOf(id), { undo: 1 });
});

test('REP-4: currentOp shows phase, progress, locks and why a task waits', async () => {
    const id = newId();
    await begin(id, { steps: 5, hold: true, locks: [{ name: 'cur' }, { name: 'cur.x', exclusive: true }] });
    const row = await waitForRow(id, ({ phase, progress }) => phase === 'second' && progress);
    assert.equal(row.type, 'op');
    assert.equal(row.desc, 'TestService');
    assert.deepEqual(row.progress, { done: 0, total: 5, percent: 0 });
    assert.deepEqual(row.locks, { cur: 'S', 'cur.x': 'X' });
    await waitForRow(id, ({ active, waitingFor }) => !active && waitingFor === 'its time');
    const { inprog } = await admin.command({ currentOp: 1, taskId: id });
    assert.equal(inprog.length, 1);
    await release(id);
    await act(id, 'wait').catch(() => {});
    await waitFor(async () => (await rowOf(id)) === undefined);

    const failing = newId();
    await begin(failing, { errors: [{ phase: 'first', code: HOST_UNREACHABLE, times: 5 }] });
    const retrying = await waitForRow(failing, ({ waitingFor }) => waitingFor === 'the time of the next try');
    assert.equal(retrying.error.code, HOST_UNREACHABLE);
    assert.equal(retrying.needsAttention, undefined);
    await act(failing, 'wait').catch(() => {});
});

test('REP-4: whoever waits hears of its own deadline and kill, and of a step-down', async () => {
    const id = newId();
    const locks = [{ name: 'sd', exclusive: true }];
    await begin(id, { hold: true, locks, ...KEEP });
    await fails(act(id, 'wait', { maxTimeMS: 50 }), MAX_TIME_MS_EXPIRED);
    const killed = act(id, 'wait', { comment: 'to be killed' });
    killed.catch(() => {});
    const { opid } = await waitFor(async () => {
        const { inprog } = await admin.command({ currentOp: 1, 'command.comment': 'to be killed', op: 'command' });
        return inprog[0];
    });
    await admin.command({ killOp: 1, op: opid });
    await fails(killed, 11601);
    const queued = newId();
    const waiting = [act(id, 'wait'), run(queued, { locks, queue: true })];
    for (const operation of waiting) operation.catch(() => {});
    await waitForRow(queued, ({ waitingFor }) => waitingFor === 'locks');
    await stepDownAndUp();
    for (const operation of waiting) {
        const { code } = await operation.then(() => assert.fail('no error'), (error) => error);
        assert.ok([REPL_STATE_CHANGE, NOT_WRITABLE_PRIMARY].includes(code), String(code));
    }
    assert.equal(await rowOf(queued), undefined);
    assert.equal(await documents.countDocuments({ _id: queued }), 0);
    await fails(run(newId(), { locks }), CONFLICTING, { message: new RegExp(`by task "${id}"`) });
    await release(id);
    await run(id, { hold: true, locks, ...KEEP });
    await act(id, 'acknowledge');
});

test('REP-4: a step-down does not wait for tasks, not even for one that hangs', async () => {
    const id = newId();
    await failpoint('task.beforeRun', 'alwaysOn', { at: 'second', blockTimeMS: 60_000 });
    await begin(id, KEEP);
    await waitForRow(id, ({ phase }) => phase === 'second');
    const started = Date.now();
    await set.command(member, { replSetStepDown: 1, force: true }).catch(() => {});
    await waitFor(async () => !(await set.hello(member))?.isWritablePrimary, { what: 'step-down' });
    assert.ok(Date.now() - started < 3000, `${Date.now() - started} ms`);
    await failpoint('task.beforeRun', 'off');
    await set.waitForPrimary();
    await run(id, KEEP);
    assert.deepEqual(await marksOf(id), { first: 1, second: 1, third: 1 });
    await act(id, 'acknowledge');
});

test('REP-4: many tasks wait while few threads run them', async () => {
    const ids = Array.from({ length: 40 }, newId);
    await Promise.all(ids.map((id) => begin(id, { hold: true })));
    await Promise.all(ids.map((id) => waitForRow(id, ({ phase }) => phase === 'second')));
    const { inprog } = await admin.command({ currentOp: 1, desc: 'TestService', service: { $exists: true } });
    assert.equal(inprog.length, 40);
    assert.ok(inprog.filter(({ active }) => active).length <= 4);
    await run(newId()); // goes through although forty wait
    await stepDownAndUp();
    await Promise.all(ids.map(release));
    for (const id of ids) {
        await isGone(id);
        assert.equal((await marksOf(id)).third, 1);
    }
});

test('REP-4: what is asked wrongly is refused', async () => {
    await fails(begin(newId(), { locks: [1] }), 14);
    await fails(begin(newId(), { locks: [{ name: '' }] }), BAD_VALUE);
    await fails(act(newId(), 'dance'), BAD_VALUE, { message: /unknown action/ });
    await fails(begin(newId(), { branch: 'x'.repeat(1 << 20) }), 10334);
});

/* Goal: no wake-up is lost and nothing is freed too early between those who wait, tasks that end, step-downs and
 * a stop. Method: few ids and locks, many clients, every operation at random; meaningful with the sanitizers. */
test('REP-4: whatever is asked at random, over step-downs and a stop, everybody gets an answer', async () => {
    const seed = seedOfRun();
    const rand = random(seed);
    const prefix = newId();
    let isOver = false;
    let answers = 0;
    const expected = new Set([4, 20, 46, 50, 91, 117, 189, 341, 10107, 11600, 11601, 11602, BAD_VALUE]);
    const ask = async () => {
        const n = rand.below(12);
        const id = `${prefix} ${n}`;
        const locks = [{ name: 'rnd', exclusive: n % 6 === 0 }, { name: `rnd.${n % 3}`, exclusive: true }];
        const errors = n % 4 === 0 ? [{ phase: 'second', code: n % 8 === 0 ? BAD_VALUE : HOST_UNREACHABLE }] : [];
        const kind = rand.below(10);
        if (kind < 5) await run(id, { locks, errors, steps: n, queue: n % 2 === 0, maxTimeMS: 2000, keepOutcomeMS: 20 * n });
        else if (kind < 7) await act(id, 'abort', { code: 341, maxTimeMS: 2000 });
        else if (kind < 8) await act(id, 'wait', { maxTimeMS: 1 + rand.below(50) });
        else await act(id, kind === 8 ? 'resume' : 'acknowledge');
    };
    const loop = async () => {
        while (!isOver) {
            await ask().catch((error) => {
                const isNetwork = error.code === undefined || /Network|PoolCleared/.test(error.name);
                if (!isNetwork && !expected.has(error.code)) throw error;
            });
            answers++;
        }
    };
    const loops = Promise.all(Array.from({ length: 12 }, loop));
    const enough = async () => {
        const target = answers + 150;
        await Promise.race([
            loops, // fails early
            waitFor(() => answers >= target, { timeoutMs: 30_000, what: 'answers' }),
        ]);
    };
    try {
        for (let i = 0; i < 3; i++) {
            await enough();
            await stepDownAndUp();
        }
        await enough();
        await member.stop(); // with all of them under way; fails unless it ends by itself and well
        await member.start();
        await set.waitForPrimary();
        await enough();
    } catch (error) {
        throw explain(error, `TEST_SEED=${seed} ${member.lastWords()}`);
    } finally {
        isOver = true;
        await loops;
    }
    const left = { _id: { $regex: `^${prefix} ` } };
    await waitFor(
        async () => {
            for (const { _id } of await documents.find(left).toArray())
                await act(_id, 'acknowledge').catch(() => {});
            return (await documents.countDocuments(left)) === 0;
        },
        { timeoutMs: 20_000, what: 'the end of all tasks' },
    );
    await run(newId(), { locks: [{ name: 'rnd', exclusive: true }] });
});

/* Somebody's hands. */
test('REP-4: a document that cannot be understood needs an operator, and the node becomes primary', async () => {
    const strange = { _id: newId(), phase: 'of another version', task: { locks: [{ name: 'st', mode: 'X' }] } };
    await documents.insertOne(strange, { writeConcern: { w: 'majority' } });
    await documents.insertOne({ _id: newId(), phase: 'first', task: { locks: 'none' } });
    const broken = { _id: newId(), phase: 'first', task: { locks: [{ name: 1 }] } };
    await documents.insertOne(broken);
    await stepDownAndUp();
    for (const { _id } of [strange, broken]) {
        await waitForRow(_id, ({ needsAttention }) => needsAttention);
        await act(_id, 'resume'); // cannot help
        assert.ok((await rowOf(_id)).needsAttention);
    }
    await fails(run(newId(), { locks: [{ name: 'st' }] }), CONFLICTING);
    await documents.deleteMany({ _id: { $in: [strange._id, broken._id] } });
    await stepDownAndUp();
    await run(newId(), { locks: [{ name: 'st' }] });
});

test('REP-4: a node whose tasks cannot block again what they block does not become primary', async () => {
    const id = newId();
    await begin(id, { hold: true, ...KEEP });
    await failpoint('task.rebuild', { times: 1 }, { errorCode: BAD_VALUE });
    await set.command(member, { replSetStepDown: 1, force: true }).catch(() => {});
    await member.waitLog(({ id: number, attr }) => number === 7300203 && /could not rebuild/.test(attr.error), 15_000);
    assert.ok(!(await set.hello(member)).isWritablePrimary);
    await set.waitForPrimary(); // after a while it stands again, and the failpoint is used up
    await release(id);
    await run(id, { hold: true, ...KEEP });
    await act(id, 'acknowledge');
});
