/*
 * Goal (TXN-2, I1, I4, I5, I9): money moves between accounts by transactions, and no snapshot, on any
 * member at any time, shows another sum; what was acknowledged stays, what was aborted never shows,
 * wherever the primary dies inside a commit.
 *
 * Method: concurrent transfers of two and three documents, some of which delete and insert accounts,
 * tried again by the rules of drivers; each notes itself in a ledger, in the same transaction. Readers
 * sum up all the time. The primary is killed at each step of a commit; then members must agree.
 *
 * TXN_TRANSFERS: how often each step is hit (1). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { checkBank } from '../lib/history/bank.mjs';
import { waitFor } from '../lib/server.mjs';
import { insist } from './attempt.mjs';
import { Readers } from './readers.mjs';
import { DB, World } from './world.mjs';

const TIMES = Number(process.env.TXN_TRANSFERS ?? 1);
const ACCOUNTS = 12;
const BALANCE = 100;
const WRITERS = 4;
const ENOUGH = 25; // commits before and after each kill
const KILL_POINTS = ['txn.oplogWritten', 'txn.storageCommitted', 'txn.txnTableWritten', 'txn.ackSent'];
const seed = seedOfRun();
const rand = random(seed);
const majority = { writeConcern: { w: 'majority' } };

console.error(`transfers: ${TIMES} of each kill point, TEST_SEED=${seed}`);

/* ---- writers ---- */

class Transfers {
    outcomes = new Map(); // id of a transfer -> outcome
    committed = 0;
    #nextId = 0;
    #nextAccount = ACCOUNTS;
    #isOver = true;
    #work = [];

    start(client, run) {
        this.#isOver = false;
        this.accounts = client.db(DB).collection('accounts');
        this.ledger = client.db(DB).collection('ledger');
        for (let i = 0; i < WRITERS; i++) this.#work.push(this.#writer(client, random(seed + 100 * run + i)));
        for (const work of this.#work) work.catch(() => {});
    }

    async stop() {
        this.#isOver = true;
        const ends = await Promise.allSettled(this.#work);
        this.#work = [];
        for (const end of ends) if (end.status === 'rejected') throw end.reason;
    }

    async #writer(client, random_) {
        while (!this.#isOver) {
            const session = client.startSession();
            const id = `t${this.#nextId++}`;
            const wish = { kind: random_(), picks: [random_(), random_(), random_()], amount: 1 + random_.below(20) };
            this.outcomes.set(id, 'unknown');
            try {
                const body = () => this.#transfer(session, id, wish);
                const { outcome } = await insist(session, body, {}, () => this.#isOver);
                this.outcomes.set(id, outcome);
                if (outcome === 'committed') this.committed++;
            } finally {
                await session.endSession().catch(() => {});
            }
        }
    }

    async #transfer(session, id, { kind, picks, amount }) {
        // If an earlier attempt that was called transient took place, this is a duplicate key.
        await this.ledger.insertOne({ _id: id }, { session });
        const all = await this.accounts.find({}, { session }).toArray();
        all.sort((a, b) => (a._id < b._id ? -1 : 1));
        const [from, to, third] = picks.map((pick) => all.splice(Math.floor(pick * all.length), 1)[0]);
        if (kind < 0.2) {
            await this.accounts.deleteOne({ _id: from._id }, { session });
            const account = { _id: this.#nextAccount++, balance: from.balance };
            await this.accounts.insertOne(account, { session });
            return;
        }
        const give = Math.min(amount, from.balance);
        if (kind < 0.6) {
            await this.#add(session, from, -give);
            await this.#add(session, to, give);
            return;
        }
        const part = Math.floor(give / 2);
        await this.#add(session, from, -give);
        await this.#add(session, to, part);
        await this.#add(session, third, give - part);
    }

    async #add(session, { _id }, amount) {
        const { matchedCount } = await this.accounts.updateOne({ _id }, { $inc: { balance: amount } }, { session });
        assert.equal(matchedCount, 1, `account ${_id} was seen and is not there`);
    }

    /* The ledger has what was acknowledged and nothing that was aborted. */
    async check(where) {
        const found = await this.ledger.find({}, { readConcern: { level: 'majority' } }).toArray();
        const ids = new Set(found.map(({ _id }) => _id));
        for (const [id, outcome] of this.outcomes) {
            if (outcome === 'committed') assert.ok(ids.has(id), `${where}: ${id} was acknowledged and is lost`);
            if (outcome === 'aborted') assert.ok(!ids.has(id), `${where}: ${id} was aborted and is there`);
        }
        for (const id of ids) assert.ok(this.outcomes.has(id), `${where}: nobody wrote ${id}`);
    }
}

/* ---- runs ---- */

const readers = new Readers(ACCOUNTS * BALANCE);
let world = null;
let transfers = null;
let committed = 0;
let unknown = 0;
let runs = 0;

after(() => discard(false));

async function makeWorld() {
    world = await new World().start();
    transfers = new Transfers();
    const client = await world.connect();
    const accounts = Array.from({ length: ACCOUNTS }, (_, _id) => ({ _id, balance: BALANCE }));
    await client.db(DB).collection('accounts').insertMany(accounts, majority);
    await client.db(DB).createCollection('ledger', majority);
    await world.set.waitForReplication();
    readers.start(world);
}

/* After a failure the next one begins with a new set. */
async function discard(hasFailed) {
    await readers.stop().catch(() => {});
    readers.problems = [];
    committed += transfers?.committed ?? 0;
    const old = world;
    world = transfers = null;
    await old?.discard(hasFailed);
}

const someMore = () => {
    const enough = transfers.committed + ENOUGH;
    return waitFor(() => transfers.committed >= enough || readers.problems.length > 0, {
        timeoutMs: 60_000,
        what: `${ENOUGH} transfers`,
    });
};

async function runFault(where, fault) {
    if (world === null) await makeWorld();
    try {
        transfers.start(await world.connect(), ++runs);
        await someMore();
        await fault();
        await someMore();
        await transfers.stop();
        assert.deepEqual(readers.problems.slice(0, 5), []);
        await world.calm();
        await transfers.check(`seed ${seed}, ${where}`);
        await world.set.closeClients();
    } catch (error) {
        await transfers.stop().catch(() => {});
        await discard(true);
        throw error;
    }
}

for (let i = 0; i < TIMES; i++) {
    for (const point of KILL_POINTS)
        test(`TXN-2: no sum is ever wrong when the primary dies at ${point} (${i})`, () =>
            runFault(point, async () => {
                const primary = await world.primary();
                await world.arm(primary, point, { skip: 1 + rand.below(20) });
                await world.waitForCrash(primary, point);
                await world.primary();
                await world.restart(primary);
            }));
    for (const fault of ['killPrimary', 'stepDown', 'pausePrimary'])
        test(`TXN-2: no sum is ever wrong through ${fault} (${i})`, () =>
            runFault(fault, () => world[fault](rand)));
}

test('TXN-2: all members end with the same accounts, and every kind of reader saw them', async () => {
    if (world === null) await makeWorld();
    try {
        await readers.stop();
        await world.checkAgreement(`seed ${seed}`);
        const client = await world.connect();
        const accounts = await client.db(DB).collection('accounts').find().toArray();
        assert.deepEqual(checkBank([{ where: 'the end', accounts }], ACCOUNTS * BALANCE), []);
    } finally {
        for (const outcome of transfers.outcomes.values()) unknown += outcome === 'unknown';
        await discard(false);
    }
    console.error(JSON.stringify({ ...readers.counts, committed, unknown }));
    for (const role of ['a transaction', 'snapshot read', 'majority read', 'local read'])
        assert.ok(readers.counts[role] >= 20, JSON.stringify(readers.counts));
});
