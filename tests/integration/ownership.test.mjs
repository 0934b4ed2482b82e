/*
 * RNG-5: a node neither shows nor changes documents that it does not own.
 *
 * Method: each way of reading and writing (lib/owned_paths.mjs), and random queries and pipelines,
 * must give the same over a collection that is owned in part and over one that holds just that
 * part; the other documents stay as they were, to the bit.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { random } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { Expressions, makeFilter, makePipeline } from '../lib/generate.mjs';
import { COUNTS, FINDS, PIPELINES, SINKS, WRITES, stored } from '../lib/owned_paths.mjs';
import {
    DOCUMENTS,
    FAST_YIELDS,
    POLICY,
    SEED,
    documents,
    fill,
    isOwned,
    owning,
    refill,
    sameOnBoth,
    shown,
    sides,
    text,
} from '../lib/ownership.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const QUERIES = Number(process.env.OWNERSHIP_QUERIES ?? 400);
const rand = random(SEED + 1);
const node = useServer({ args: FAST_YIELDS }, { prepare: ({ db }) => fill(db) });

for (const row of [...FINDS, ...COUNTS, ...PIPELINES, ...SINKS])
    test(`RNG-5: ${row[0]} shows what is owned`, () =>
        owning(node, () => sameOnBoth(node.db, row)));

/* ---- writes ---- */

const others = documents.filter((document) => !isOwned(document)).map(({ _id }) => _id);

/* With the policy off: the others are as they were, the owned ones are those of b. */
async function expectOnlyOwnedChanged(othersBefore, why) {
    const [a, b] = [node.db.collection('a'), node.db.collection('b')];
    assert.deepEqual(await stored(a, { _id: { $in: others } }), othersBefore, why);
    assert.deepEqual(await stored(a, { _id: { $nin: others } }), await stored(b), why);
    for (const name of ['a', 'b'])
        assert.equal((await node.db.command({ validate: name })).valid, true, why);
}

for (const [name, run] of WRITES) {
    test(`RNG-5: ${name} changes what is owned`, async () => {
        await refill(node.db);
        const before = await stored(node.db.collection('a'), { _id: { $in: others } });
        assert.equal(before.length, others.length);
        await owning(node, () => sameOnBoth(node.db, [name, run]));
        await expectOnlyOwnedChanged(before, name);
    });
}

test('RNG-5: writes that meet conflicts all the time change the same', async () => {
    for (const row of WRITES.filter(([name]) => /Many|sorted|bulk/.test(name))) {
        await refill(node.db);
        const before = await stored(node.db.collection('a'), { _id: { $in: others } });
        const often = { activationProbability: 0.1 };
        await owning(node, () =>
            node.withFailpoint('WTWriteConflictException', often, null, () =>
                sameOnBoth(node.db, row),
            ),
        );
        await expectOnlyOwnedChanged(before, row[0]);
    }
});

/* ---- random queries ---- */

async function outcome(run) {
    try {
        return await run();
    } catch (error) {
        if (error.code === undefined) throw error;
        return { code: error.code };
    }
}

/* Compares unless the first failed for a document that is not owned: an expression is evaluated
 * before the filter is asked. Tells whether it compared. */
async function compare(run, isOrdered, why) {
    const [a, b] = sides(node.db);
    const [fromA, fromB] = [await outcome(() => run(a)), await outcome(() => run(b))];
    if (fromA.code !== undefined && fromB.code === undefined) return false;
    assert.equal(shown(fromA, isOrdered), shown(fromB, isOrdered), why);
    return true;
}

const PROJECTIONS = [
    { k: 1 },
    { _id: 0, i: 1 },
    { _id: 0, k: 1, i: 1 },
    { s: 0 },
    { _id: 0, 'o.x': 1 },
];

function randomFind(expressions) {
    const made = makeFilter(rand, expressions);
    const filter =
        rand.below(3) === 0 ? { $and: [made, { k: { $gte: rand.below(60) } }] } : made;
    const options = {};
    if (rand.below(3) > 0)
        options.sort = {
            [rand.pick(['i', 'k', 'd', 's', 'o.x'])]: rand.pick([1, -1]),
            _id: 1,
        };
    if (options.sort && rand.below(2)) options.limit = 1 + rand.below(40);
    if (options.sort && rand.below(3) === 0) options.skip = rand.below(20);
    if (rand.below(3) === 0) options.projection = rand.pick(PROJECTIONS);
    if (rand.below(4) === 0) options.collation = { locale: 'en', strength: 2 };
    if (rand.below(3) === 0) options.batchSize = 1 + rand.below(30);
    return [filter, options];
}

function withoutNulls(value) {
    if (Array.isArray(value)) return value.map(withoutNulls);
    if (value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
    const fields = Object.entries(value).filter(([, field]) => field !== null && field !== undefined);
    return Object.fromEntries(fields.map(([name, field]) => [name, withoutNulls(field)]));
}

test(`RNG-5: ${QUERIES} random queries find what is owned`, async () => {
    await refill(node.db);
    const expressions = new Expressions(rand);
    let compared = 0;
    await owning(node, async () => {
        for (let n = 0; n < QUERIES; n++) {
            const [filter, options] = randomFind(expressions);
            const why = `TEST_SEED=${SEED}, query ${n}: ${text(filter)} ${text(options)}`;
            const isOrdered = options.sort !== undefined;
            // Whether a missing field shows as null depends on the plan: one that reads keys alone cannot know.
            const known = options.projection ? withoutNulls : (docs) => docs;
            const find = async ({ c }) => known(await c.find(filter, options).toArray());
            compared += await compare(find, isOrdered, why);
            if (n % 4 !== 0) continue;
            await compare(({ c }) => c.countDocuments(filter), false, why);
            await compare(async ({ c }) => (await c.distinct('i', filter)).filter((i) => i != null), false, why);
        }
    });
    assert.ok(compared > QUERIES * 0.8, `only ${compared} could be compared`);
});

const FOREIGN = /"(from|coll)":"other"/g;
const hasDates = (value) => /"\d{4}-\d\d-\d\dT/.test(JSON.stringify(value));

test(`RNG-5: ${QUERIES / 2} random pipelines work on what is owned`, async () => {
    const expressions = new Expressions(rand);
    let compared = 0;
    await owning(node, async () => {
        for (let n = 0; n < QUERIES / 2; n++) {
            const made = [
                { $match: makeFilter(rand, expressions, 1) },
                { $sort: { _id: 1 } },
                ...makePipeline(rand, expressions),
            ];
            const isForeign = JSON.stringify(made).match(FOREIGN) !== null;
            if (isForeign && hasDates(made)) continue; // they would not survive the renaming
            const stages = ({ f }) =>
                isForeign
                    ? JSON.parse(
                          JSON.stringify(made).replace(FOREIGN, `"$1":"${f.collectionName}"`),
                      )
                    : made;
            const run = (side) => side.c.aggregate(stages(side)).toArray();
            compared += await compare(
                run,
                true,
                `TEST_SEED=${SEED}, pipeline ${n}: ${text(made)}`,
            );
        }
    });
    assert.ok(compared > QUERIES / 4, `only ${compared} could be compared`);
});

/* ---- secondaries ---- */

test('RNG-5: a secondary shows what is owned, at every read concern', async () => {
    const set = await startReplicaSet({ members: 2, args: FAST_YIELDS });
    try {
        const client = await set.client();
        const w2 = { writeConcern: { w: 2 } };
        await fill(client.db('test'), w2);
        const primary = await set.findPrimary();
        const secondary = set.members.find((member) => member !== primary);
        const direct = await set.direct(secondary);
        const db = direct.db('test', { readPreference: 'secondaryPreferred' });
        const configureFailPoint = 'testOwnership';
        await set.command(secondary, { configureFailPoint, mode: 'alwaysOn', data: POLICY });
        /* Equal keys are in the order of their records, which is the member's own. */
        for (const [name, run, options] of [...FINDS, ...COUNTS, ...PIPELINES])
            if (!options?.natural) await sameOnBoth(db, [name, run]);
        for (const level of ['local', 'majority', 'snapshot', 'available']) {
            const options = { readConcern: { level }, batchSize: 10 };
            await sameOnBoth(db, [level, ({ c }) => c.find({}, options).toArray()]);
        }
        /* What comes by the oplog is applied, owned or not. */
        const a = client.db('test').collection('a');
        await a.updateMany({}, { $set: { z: 'applied' } }, w2);
        await a.deleteOne({ _id: 4 }, w2);
        const hash = async (member) => (await set.command(member, { dbHash: 1 }, 'test')).md5;
        await waitFor(async () => (await hash(primary)) === (await hash(secondary)), {
            what: 'equal hashes',
        });
        await set.command(secondary, { configureFailPoint, mode: 'off' });
        assert.equal(await db.collection('a').countDocuments({ z: 'applied' }), DOCUMENTS - 1);
    } finally {
        await set.remove();
    }
});
