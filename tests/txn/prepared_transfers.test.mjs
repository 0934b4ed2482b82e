/*
 * Goal (TXN-6, I9): under load, what coordinators decide about prepared transactions is what becomes of
 * them, on all members and for every reader, however often the primary changes between the two phases.
 *
 * Method: coordinators transfer between accounts by raw commands: write, prepare with a majority, decide,
 * and ask again, at whoever is primary, until there is an answer. Readers sum up all the time, members
 * are killed, sleep, step down and come back. In the end the ledger must have what was decided.
 *
 * TXN_PREPARED: rounds of each fault (1). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';
import { NO_SUCH, PreparedTransaction, ask, majority } from './prepared.mjs';
import { Readers } from './readers.mjs';
import { DB, World, pause } from './world.mjs';

const TIMES = Number(process.env.TXN_PREPARED ?? 1);
const FAULTS = ['killPrimary', 'stepDown', 'pausePrimary', 'killSecondary'];
const COORDINATORS = 4;
const ACCOUNTS = 12;
const BALANCE = 100;
const ENOUGH = 15;
const seed = seedOfRun();
const rand = random(seed);
const world = new World();
/* Local and majority reads pass by what is prepared, document by document: one that meets a decision half
 * way shows a part of it. That is what they promise; only snapshots are whole. */
const readers = new Readers(ACCOUNTS * BALANCE, ['a transaction', 'snapshot']);
const outcomes = new Map(); // id of a transfer -> committed or aborted
console.error(`prepared transfers: ${TIMES} of each fault, TEST_SEED=${seed}`);

let hasFailed = false;
let decided = 0;
let nextId = 0;

before(async () => {
    await world.start();
    const client = await world.connect();
    const accounts = Array.from({ length: ACCOUNTS }, (_, _id) => ({ _id, balance: BALANCE }));
    await client.db(DB).collection('accounts').insertMany(accounts, majority);
    await client.db(DB).createCollection('ledger', majority);
    await world.set.closeClients();
    await world.set.waitForReplication();
    readers.start(world);
});
after(async () => {
    await readers.stop().catch(() => {});
    if (world.set !== undefined) await world.discard(hasFailed);
});

/* Writes the transfer into an open transaction; false when that failed, and then nothing happened. */
async function write(primary, transaction, id, random_) {
    const run = async (command, extra = {}) => {
        const reply = await ask(primary, { ...command, ...transaction.identity, ...extra, $db: DB });
        return reply?.ok === 1 ? reply : null;
    };
    if ((await run({ insert: 'ledger', documents: [{ _id: id }] }, { startTransaction: true })) === null) return false;
    const accounts = (await run({ find: 'accounts' }))?.cursor.firstBatch;
    if (accounts === undefined) return false;
    const [from] = accounts.splice(random_.below(accounts.length), 1);
    const amount = Math.min(from.balance, 1 + random_.below(20));
    const add = ({ _id }, n) => run({ update: 'accounts', updates: [{ q: { _id }, u: { $inc: { balance: n } } }] });
    return (await add(from, -amount)) !== null && (await add(random_.pick(accounts), amount)) !== null;
}

/* A commit may be later than its prepare: as late as anything that is known to have happened. */
async function laterTime(prepareTimestamp) {
    const primary = await world.set.findPrimary();
    const note = primary && (await ask(primary, { appendOplogNote: 1, data: { msg: 'later' }, $db: 'admin' }));
    return note?.ok === 1 && note.operationTime.greaterThan(prepareTimestamp) ? note.operationTime : prepareTimestamp;
}

async function transfer(random_) {
    const id = `p${nextId++}`;
    const transaction = new PreparedTransaction();
    outcomes.set(id, 'aborted');
    const primary = await world.set.findPrimary();
    if (primary === null) return pause(50);
    if (!(await write(primary, transaction, id, random_))) {
        await transaction.abort(primary);
        return null;
    }
    const prepared = await transaction.decide(world.set, 'prepare');
    if (prepared.ok !== 1) {
        assert.equal(prepared.code, NO_SUCH, JSON.stringify(prepared));
        return null;
    }
    transaction.prepareTimestamp = prepared.prepareTimestamp;
    if (random_() < 0.2) {
        const reply = await transaction.decide(world.set, 'abort');
        assert.ok(reply.ok === 1 || reply.code === NO_SUCH, JSON.stringify(reply));
    } else {
        outcomes.set(id, 'committed');
        if (random_() < 0.5) transaction.prepareTimestamp = await laterTime(prepared.prepareTimestamp);
        await transaction.mustDecide(world.set, 'commit');
    }
    decided++;
    return null;
}

async function coordinator(random_, state) {
    while (!state.isOver) await transfer(random_);
}

async function checkLedger(where) {
    const client = await world.connect();
    const found = await client.db(DB).collection('ledger').find({}, { readConcern: { level: 'majority' } }).toArray();
    const expected = [...outcomes].filter(([, outcome]) => outcome === 'committed').map(([id]) => id);
    assert.deepEqual(found.map(({ _id }) => _id).sort(), expected.sort(), where);
    await world.set.closeClients();
}

async function someMore() {
    const enough = decided + ENOUGH;
    await waitFor(() => decided >= enough || readers.problems.length > 0, { timeoutMs: 60_000, what: `${ENOUGH} decisions` });
}

for (let i = 0; i < TIMES; i++)
    for (const fault of FAULTS)
        test(`TXN-6: what coordinators decide is what becomes of it, through ${fault} (${i})`, async () => {
            assert.ok(!hasFailed, 'an earlier one failed and left the set as it was');
            const state = { isOver: false };
            const work = Array.from({ length: COORDINATORS }, (_, k) => coordinator(random(seed + 100 * i + k), state));
            const ends = Promise.allSettled(work);
            try {
                await someMore();
                await world[fault](rand);
                await someMore();
                state.isOver = true;
                for (const end of await ends) if (end.status === 'rejected') throw end.reason;
                assert.deepEqual(readers.problems.slice(0, 5), []);
                await world.calm();
                await checkLedger(`seed ${seed}, ${fault} ${i}`);
            } catch (error) {
                hasFailed = state.isOver = true;
                await ends;
                throw error;
            }
        });

test('TXN-6: all members agree about what was prepared and decided', async () => {
    assert.ok(!hasFailed);
    await readers.stop();
    await world.checkAgreement(`seed ${seed}`);
    console.error(`${decided} decisions of ${outcomes.size} transfers, ${JSON.stringify(readers.counts)}`);
});
