/*
 * ownership.mjs - two collections of which one is owned in part, for tests of what a node owns.
 *
 * The failpoint "testOwnership" (src/catalog/test_ownership.h) makes a node own every third
 * document of collection `a`, by the value of its field k; `b` holds just those, with the same
 * indexes. `fa` and `fb` are likewise, for pipelines that look things up in them.
 */
import assert from 'node:assert/strict';
import { EJSON } from 'bson';
import { random, seedOfRun } from './expect.mjs';
import { makeDocument } from './generate.mjs';
import { INDEXES } from './owned_paths.mjs';
import { plain } from './raw_session.mjs';

export const SEED = seedOfRun();
export const POLICY = { ns: ['test.a', 'test.fa'], paths: ['k'], modulus: 3, remainder: 0 };
export const DOCUMENTS = 420; // more than a plan looks at between two yields
/* Queries yield as often as they can. */
export const FAST_YIELDS = ['--setParameter', 'internalQueryExecYieldPeriodMS=0'];
export const STALE_CONFIG = 13388;
export const QUERY_PLAN_KILLED = 175;

function worth(value) {
    if (typeof value === 'number') return Math.trunc(value);
    return typeof value === 'string' ? Buffer.from(value).reduce((x, y) => x + y, 0) : 0;
}
export const remainderOf = ({ k }) => ((worth(k) % 3) + 3) % 3;
export const isOwned = (document) => remainderOf(document) === 0;

const rand = random(SEED);
const ODD_KEYS = [null, undefined, 'abc', 'abd', '', { x: 1 }, true, 2.5, -4];

/* The _id decides of the first ones, so that rows of the table can name some. */
export const documents = Array.from({ length: DOCUMENTS }, (_, _id) => {
    const later = rand.below(5) === 0 ? rand.pick(ODD_KEYS) : rand.below(120);
    const document = { ...makeDocument(rand, _id), k: _id < 100 ? _id : later };
    if (document.k === undefined) delete document.k;
    return document;
});

const foreign = Array.from({ length: 120 }, (_, _id) => ({
    _id,
    k: rand.below(30),
    n: (_id % 25) - 10,
    next: rand.below(20) - 10,
    many: [rand.below(9), rand.below(9)],
}));

/* Makes the four collections. */
export async function fill(db, options = {}) {
    for (const name of ['a', 'b', 'fa', 'fb']) {
        const isForeign = name.startsWith('f');
        const rows = isForeign ? foreign : documents;
        const c = db.collection(name);
        await c.createIndexes(isForeign ? [{ key: { n: 1 }, name: 'n' }] : INDEXES);
        await c.insertMany(name.endsWith('b') ? rows.filter(isOwned) : rows, options);
    }
}

/* Gives `a` and `b` their documents back. */
export async function refill(db) {
    await db.collection('a').deleteMany({});
    await db.collection('b').deleteMany({});
    await db.collection('a').insertMany(documents);
    await db.collection('b').insertMany(documents.filter(isOwned));
}

/* What rows of owned_paths.mjs take: the collection owned in part, and the other. */
export const sides = (db) => [
    { c: db.collection('a'), f: db.collection('fa'), db, isOwned },
    { c: db.collection('b'), f: db.collection('fb'), db, isOwned },
];

export const text = (value) => EJSON.stringify(value, { relaxed: false });

/* A result as text: of documents in any order unless the order counts. */
export function shown(result, isOrdered = false) {
    if (Array.isArray(result)) {
        const rows = result.map(text);
        return (isOrdered ? rows : rows.sort()).join('\n');
    }
    if (typeof result !== 'object' || result === null) return text(result);
    return text(plain(result));
}

/* Runs the row on both sides; the results must be equal. */
export async function sameOnBoth(db, [name, run, { ordered } = {}]) {
    const [a, b] = sides(db);
    const fromA = await run(a);
    const fromB = await run(b);
    assert.equal(shown(fromA, ordered), shown(fromB, ordered), `${name} (TEST_SEED=${SEED})`);
}

/* For a node of fixture.mjs: runs `body` while the policy is on, with `more` of its data. */
export const owning = (node, body, more = {}) =>
    node.withFailpoint('testOwnership', 'alwaysOn', { ...POLICY, ...more }, body);
/* Changes the policy's data, or with null switches it off. */
export const configure = (node, data) =>
    node.admin.command({
        configureFailPoint: 'testOwnership',
        mode: data === null ? 'off' : 'alwaysOn',
        ...(data !== null && { data }),
    });
