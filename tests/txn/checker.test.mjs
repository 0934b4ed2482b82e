/*
 * Goal: the checker of histories is right: it accepts what a store with snapshot isolation answers and
 * finds every anomaly by its name. Method: histories of a simulated store; anomalies planted into them
 * as transactions on keys of their own, or woven into transactions that are there; stores with mistakes.
 *
 * CHECKER_HISTORIES: how many valid histories (3000). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { checkBank } from '../lib/history/bank.mjs';
import { checkHistory, describeAnomalies } from '../lib/history/check.mjs';
import { simulate } from '../lib/history/simulate.mjs';

const HISTORIES = Number(process.env.CHECKER_HISTORIES ?? 3000);
const PLANTED = 200; // histories for each kind
const seed = seedOfRun();
console.error(`checker of histories: TEST_SEED=${seed}`);

const kindsOf = ({ anomalies }) => [...new Set(anomalies.map(({ kind }) => kind))].sort();
const options = (final) => ({ final, session: true, realtime: true });

test(`TXN-1: ${HISTORIES} histories of a store with snapshot isolation pass`, () => {
    let [committed, reads, skews] = [0, 0, 0];
    for (let i = 0; i < HISTORIES; i++) {
        const shape = { sessions: 2 + (i % 5), keys: 2 + (i % 7), count: 10 + (i % 50) };
        const { transactions, final } = simulate(seed + i, shape);
        const result = checkHistory(transactions, options(final));
        assert.deepEqual(kindsOf(result), [], `seed ${seed + i}: ${describeAnomalies(result.anomalies)}`);
        committed += result.committed;
        reads += result.reads;
        skews += result.writeSkews;
        // Without the final lists less is known, and nothing else is said.
        if (i % 10 === 0) assert.deepEqual(kindsOf(checkHistory(transactions, options())), []);
    }
    assert.ok(committed > HISTORIES * 5 && reads > HISTORIES * 5, `${committed}, ${reads}`);
    assert.ok(skews > HISTORIES / 20, `write skew is allowed, and happened ${skews} times`);
});

/* ---- planted anomalies ---- */

const A = 'plantedA';
const B = 'plantedB';
const append = (key, value) => ({ append: key, value });
const read = (key, ...list) => ({ read: key, list });

/* Each: what the transactions do, all of them committed unless said otherwise, side by side unless
 * `inOrder`, and how the lists end. Values are those of the keys A and B alone. */
const PLANTS = {
    G0: {
        plant: [{ ops: [append(A, 1), append(B, 1)] }, { ops: [append(A, 2), append(B, 2)] }],
        final: { [A]: [1, 2], [B]: [2, 1] },
    },
    G1a: {
        plant: [{ ops: [append(A, 1)], outcome: 'aborted' }, { ops: [read(A, 1)] }],
        final: { [A]: [] },
        also: ['incompatible order'],
    },
    G1b: {
        plant: [{ ops: [append(A, 1), append(A, 2)] }, { ops: [read(A, 1)] }],
        final: { [A]: [1, 2] },
        also: ['G-single'],
    },
    G1c: {
        plant: [{ ops: [append(A, 1), read(B, 1)] }, { ops: [append(B, 1), read(A, 1)] }],
        final: { [A]: [1], [B]: [1] },
    },
    'lost update': {
        plant: [{ ops: [read(A), append(A, 1)] }, { ops: [read(A), append(A, 2)] }],
        final: { [A]: [1, 2] },
    },
    'G-single': {
        plant: [{ ops: [append(A, 1), append(B, 1)] }, { ops: [read(A), read(B, 1)] }],
        final: { [A]: [1], [B]: [1] },
    },
    /* Two updates, and two readers that see them in different orders: no two rw are neighbours. */
    'G-nonadjacent': {
        plant: [
            { ops: [append(A, 1)] },
            { ops: [append(B, 1)] },
            { ops: [read(A, 1), read(B)] },
            { ops: [read(A), read(B, 1)] },
        ],
        final: { [A]: [1], [B]: [1] },
    },
    duplicate: { plant: [{ ops: [append(A, 1)] }], final: { [A]: [1, 1] } },
    lost: { plant: [{ ops: [append(A, 1)] }, { ops: [append(A, 2)] }], final: { [A]: [1] } },
    'unknown value': { plant: [{ ops: [read(A)] }], final: { [A]: [99] } },
    'incompatible order': {
        plant: [{ ops: [append(A, 1)] }, { ops: [append(A, 2)] }, { ops: [read(A, 2, 1)] }],
        final: { [A]: [1, 2] },
    },
    internal: {
        plant: [{ ops: [append(A, 1)] }, { ops: [read(A), read(A, 1)] }],
        final: { [A]: [1] },
    },
    'G-single in a session': {
        plant: [{ ops: [append(A, 1)] }, { ops: [read(A)] }],
        inOrder: 'same session',
        final: { [A]: [1] },
    },
    'G-single in real time': {
        plant: [{ ops: [append(A, 1)] }, { ops: [read(A)] }],
        inOrder: 'other session',
        final: { [A]: [1] },
    },
    /* Allowed: both overlook each other. */
    'write skew': {
        plant: [{ ops: [read(A), append(B, 1)] }, { ops: [read(B), append(A, 1)] }],
        final: { [A]: [1], [B]: [1] },
        isAllowed: true,
    },
    'an aborted write nobody saw': {
        plant: [{ ops: [append(A, 1)], outcome: 'aborted' }, { ops: [read(A)] }],
        final: { [A]: [] },
        isAllowed: true,
    },
    'an unknown outcome that was a commit': {
        plant: [{ ops: [append(A, 1)], outcome: 'unknown' }, { ops: [read(A, 1)] }],
        final: { [A]: [1] },
        isAllowed: true,
    },
    'an unknown outcome that was an abort': {
        plant: [{ ops: [append(A, 1), read(B, 7)], outcome: 'unknown' }, { ops: [read(A)] }],
        final: { [A]: [] },
        isAllowed: true,
    },
};

/* The planted ones begin at a random instant of the history, in sessions of their own. */
function plantInto({ transactions, final }, { plant, inOrder, final: end }, rand) {
    const at = rand.below(transactions.at(-1).end) + 0.5;
    const planted = plant.map(({ ops, outcome = 'committed' }, i) => ({
        id: `p${i}`,
        session: inOrder === 'same session' ? 'planted' : `planted${i}`,
        outcome,
        begin: inOrder === undefined ? at + i / 1000 : at + i / 100,
        end: inOrder === undefined ? at + 0.4 : at + i / 100 + 0.001,
        ops,
    }));
    const all = [...transactions, ...planted].sort((a, b) => a.begin - b.begin);
    return { transactions: all, final: new Map([...final, ...Object.entries(end)]) };
}

for (const [kind, row] of Object.entries(PLANTS))
    test(`TXN-1: ${kind}, planted into a valid history, is ${row.isAllowed ? 'allowed' : 'found'}`, () => {
        for (let i = 0; i < PLANTED; i++) {
            const rand = random(seed + i);
            const { transactions, final } = plantInto(simulate(seed + i), row, rand);
            const result = checkHistory(transactions, options(final));
            const found = kindsOf(result);
            if (row.isAllowed) {
                assert.deepEqual(found, [], describeAnomalies(result.anomalies));
                continue;
            }
            assert.ok(found.includes(kind), `seed ${seed + i}: ${kind} is not among ${found}`);
            const others = found.filter((other) => other !== kind && !row.also?.includes(other));
            assert.deepEqual(others, [], `seed ${seed + i}: ${describeAnomalies(result.anomalies)}`);
        }
    });

/* Woven into the keys of the history itself: any one read of a committed transaction is changed. */
test('TXN-1: a read that is changed in any way does not pass unnoticed as something new', () => {
    let noticed = 0;
    let changed = 0;
    for (let i = 0; i < PLANTED; i++) {
        const rand = random(seed + i);
        const { transactions, final } = simulate(seed + i, { sessions: 3, keys: 3, count: 40 });
        const reads = transactions
            .filter(({ outcome }) => outcome === 'committed')
            .flatMap(({ ops }) => ops.filter((op) => op.read !== undefined && op.list.length > 1));
        if (reads.length === 0) continue;
        const victim = rand.pick(reads);
        const change = rand.pick([
            (list) => list.slice(1),
            (list) => [list[1], list[0], ...list.slice(2)],
            (list) => [...list, list[0]],
            (list) => [...list, 1_000_000],
        ]);
        victim.list = change(victim.list);
        changed++;
        noticed += checkHistory(transactions, options(final)).anomalies.length > 0;
    }
    assert.ok(changed > PLANTED / 2);
    assert.equal(noticed, changed);
});

/* ---- stores with mistakes ---- */

const MISTAKES = {
    overwrites: ['lost update', 'G-single', 'G-single in real time', 'G1c', 'G0'],
    readsLatest: ['internal', 'G-single', 'lost update'],
    readsDirty: ['G1a', 'G1b', 'incompatible order', 'G-single', 'internal', 'G1c'],
    staleSnapshots: ['G-single in a session', 'G-single in real time'],
    forgets: ['lost'],
    repeats: ['duplicate'],
    halves: ['G-single', 'G1c'],
};

for (const [mistake, expected] of Object.entries(MISTAKES))
    test(`TXN-1: a store that makes the mistake "${mistake}" is found out`, () => {
        const found = new Set();
        let guilty = 0;
        for (let i = 0; i < PLANTED; i++) {
            const { transactions, final } = simulate(seed + i, { count: 60, mistakes: { [mistake]: true } });
            const kinds = kindsOf(checkHistory(transactions, options(final)));
            guilty += kinds.length > 0;
            for (const kind of kinds) found.add(kind);
        }
        assert.ok(guilty > PLANTED / 4, `${guilty} of ${PLANTED}`);
        assert.ok(expected.some((kind) => found.has(kind)), [...found].join());
    });

test('TXN-1: sums of accounts are checked in each snapshot', () => {
    const accounts = (...balances) => balances.map((balance, _id) => ({ _id, balance }));
    const check = (list, total = 10) => checkBank([{ where: 'here', accounts: list }], total);
    assert.deepEqual(check(accounts(4, 6)), []);
    assert.match(check(accounts(4, 5))[0], /sum is 9 of 10/);
    assert.match(check(accounts(-1, 11))[0], /account 0 has -1/);
    assert.match(check([...accounts(5), ...accounts(5)])[0], /twice/);
});

test('TXN-1: a history of 20,000 transactions is checked within seconds', () => {
    const { transactions, final } = simulate(seed, { sessions: 16, keys: 2000, count: 20_000 });
    const begun = performance.now();
    const result = checkHistory(transactions, options(final));
    assert.deepEqual(kindsOf(result), [], describeAnomalies(result.anomalies));
    assert.ok(performance.now() - begun < 20_000, `${performance.now() - begun} ms`);
});
