/*
 * Goal (TXN-1, I9): whatever happens to the members of a set, what transactions with read concern
 * snapshot and write concern majority see is snapshot isolation, and later transactions see what was
 * acknowledged before.
 *
 * Method: short histories of list-append transactions, several at a time, while one fault happens; then
 * the checker of tests/lib/history judges each of them. Outcomes that stay unknown may be either.
 *
 * TXN_HISTORIES: how many (60). TEST_SEED: repeat a run (the faults and what clients wish, not the
 * instants). TXN_FAULTS: only these, comma separated. TXN_KEEP: see world.mjs.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { checkHistory, describeAnomalies } from '../lib/history/check.mjs';
import { Network } from '../lib/network.mjs';
import { attempt } from './attempt.mjs';
import { DB, MEMBERS, World, pause } from './world.mjs';

const HISTORIES = Number(process.env.TXN_HISTORIES ?? 60);
const AT_ONCE = 5;
const ROUNDS = Math.ceil(HISTORIES / AT_ONCE);
const ROUNDS_PER_CHECK = 10;
const SESSIONS = 3;
const KEYS = 4;
const OPS_MAX = 5;
const seed = seedOfRun();
const rand = random(seed);
const network = new Network(MEMBERS);
let world = null;
const total = { committed: 0, unknown: 0, reads: 0, writeSkews: 0, aborted: 0, histories: 0 };

console.error(`histories of transactions: ${HISTORIES}, TEST_SEED=${seed}`);
if (network.obstacle !== null) console.error(`no partitions: ${network.obstacle}`);

after(async () => {
    await discard(false);
    network.remove();
});

async function makeWorld() {
    world = await new World(network).start();
    const client = await world.connect();
    await client.db(DB).createCollection('lists', { writeConcern: { w: 'majority' } });
    await world.set.closeClients();
}

/* After a failure the next round begins with a new set. */
async function discard(hasFailed) {
    const old = world;
    world = null;
    if (hasFailed && network.obstacle === null) network.heal();
    await old?.discard(hasFailed);
}

/* Several sessions of clients on keys of their own. */
class History {
    transactions = [];
    #value = 0;
    #id = 0;

    constructor(name, client) {
        this.name = name;
        this.client = client;
        this.keys = Array.from({ length: KEYS }, (_, i) => `${name}/${i}`);
        this.lists = client.db(DB).collection('lists');
    }

    /* Half of the keys are there, the others come with the first append. */
    prepare = () =>
        this.lists.insertMany(
            this.keys.slice(KEYS / 2).map((_id) => ({ _id, list: [] })),
            { writeConcern: { w: 'majority' } },
        );

    run(random_, state) {
        const work = [];
        for (let i = 0; i < SESSIONS; i++) work.push(this.#session(i, random_(i), state));
        return Promise.all(work);
    }

    async #session(number, random_, state) {
        while (!state.isOver) {
            // After a lost connection the driver drops its session: a new one, and no order with the old.
            const session = this.client.startSession();
            const name = `${number}.${this.#id}`;
            try {
                for (let i = 0; i < 5 && !state.isOver; i++)
                    if ((await this.#transaction(session, name, random_)) !== 'committed') break;
            } finally {
                await session.endSession().catch(() => {});
            }
        }
    }

    async #transaction(session, name, random_) {
        const ops = [];
        const record = { id: this.#id++, session: name, begin: performance.now(), ops };
        const { outcome } = await attempt(session, async () => {
            for (let left = 1 + random_.below(OPS_MAX); left > 0; left--) {
                if (random_() < 0.5) await this.#append(session, random_.pick(this.keys), ops);
                else if (random_() < 0.7) await this.#read(session, [random_.pick(this.keys)], ops);
                else await this.#read(session, this.keys, ops);
            }
        });
        Object.assign(record, { outcome, end: performance.now() });
        this.transactions.push(record);
        if (outcome !== 'committed') await pause(random_.below(30));
        return outcome;
    }

    async #append(session, key, ops) {
        const value = ++this.#value;
        ops.push({ append: key, value });
        await this.lists.updateOne({ _id: key }, { $push: { list: value } }, { session, upsert: true });
    }

    async #read(session, keys, ops) {
        const found = await this.lists.find({ _id: { $in: keys } }, { session }).toArray();
        for (const key of keys)
            ops.push({ read: key, list: found.find(({ _id }) => _id === key)?.list ?? [] });
    }

    async check() {
        const found = await this.lists
            .find({ _id: { $in: this.keys } }, { readConcern: { level: 'majority' } })
            .toArray();
        const final = new Map(this.keys.map((key) => [key, []]));
        for (const { _id, list } of found) final.set(_id, list);
        return checkHistory(this.transactions, { final, session: true, realtime: true });
    }
}

/* Each fault once in random order, again and again. */
function chooseFaults() {
    const kinds = process.env.TXN_FAULTS?.split(',') ?? new World(network).faults;
    const chosen = [];
    while (chosen.length < ROUNDS) {
        const left = [...kinds];
        while (left.length > 0) chosen.push(left.splice(rand.below(left.length), 1)[0]);
    }
    return chosen.slice(0, ROUNDS);
}

async function runRound(fault, round) {
    const where = `seed ${seed}, round ${round}, ${fault}`;
    const client = await world.connect();
    const state = { isOver: false };
    const histories = Array.from({ length: AT_ONCE }, (_, i) => new History(`${round}.${i}`, client));
    for (const history of histories) await history.prepare();
    const work = histories.map((history, i) =>
        history.run((session) => random(seed + 1000 * round + 10 * i + session), state),
    );
    const ends = Promise.allSettled(work);
    try {
        await pause(150);
        await world[fault](rand);
        await pause(150);
    } finally {
        state.isOver = true;
    }
    for (const end of await ends) if (end.status === 'rejected') throw end.reason;
    await world.calm();
    for (const history of histories) {
        const result = await history.check();
        assert.deepEqual(
            result.anomalies.map(({ kind }) => kind),
            [],
            `${where}, ${history.name}: ${describeAnomalies(result.anomalies)}\n` +
                JSON.stringify(history.transactions),
        );
        for (const name of ['committed', 'unknown', 'reads', 'writeSkews']) total[name] += result[name];
        total.aborted += history.transactions.filter(({ outcome }) => outcome === 'aborted').length;
        total.histories++;
    }
    await world.set.closeClients();
    if (round % ROUNDS_PER_CHECK === ROUNDS_PER_CHECK - 1) await world.checkAgreement(where);
}

for (const [round, fault] of chooseFaults().entries())
    test(`TXN-1: ${AT_ONCE} histories are snapshot isolation through ${fault} (round ${round})`, async () => {
        if (world === null) await makeWorld();
        try {
            await runRound(fault, round);
        } catch (error) {
            await discard(true);
            throw error;
        }
    });

test('TXN-1: there was something to check', async () => {
    await world?.checkAgreement('the end');
    console.error(JSON.stringify(total));
    assert.ok(total.committed > 8 * total.histories, JSON.stringify(total));
    assert.ok(total.aborted > 0 && total.reads > total.committed / 2, JSON.stringify(total));
});
