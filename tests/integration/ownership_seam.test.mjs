/*
 * RNG-5: how a policy of what a node owns is asked: plans, cursors, yields, refusals, and who is
 * exempt. lib/ownership.mjs has the collections; `a` is owned in part.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Long } from 'bson';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { stored } from '../lib/owned_paths.mjs';
import * as ownership from '../lib/ownership.mjs';
import { waitFor } from '../lib/server.mjs';

const { DOCUMENTS, POLICY, QUERY_PLAN_KILLED, STALE_CONFIG } = ownership;
const { documents, isOwned, remainderOf, shown, text } = ownership;
const DUPLICATE_KEY = 11000;
const CURSOR_NOT_FOUND = 43;
const NOT_IMPLEMENTED = 238;

let a;
const node = useServer(
    { args: [...ownership.FAST_YIELDS, '--setParameter', 'ttlMonitorSleepSecs=1'] },
    {
        prepare: async ({ db }) => {
            await ownership.fill(db);
            a = db.collection('a');
        },
    },
);
const owning = (body, more) => ownership.owning(node, body, more);
const configure = (data) => ownership.configure(node, data);

/* ---- plans ---- */

const chain = (stage) =>
    stage ? [stage.stage, ...chain(stage.inputStage ?? stage.inputStages?.[0])] : [];

async function planOf(command) {
    const explained = await node.db.command({ explain: command, verbosity: 'executionStats' });
    return {
        stages: chain(explained.queryPlanner.winningPlan).join(' '),
        stats: explained.executionStats,
    };
}

const only = (name) => ({ _id: 0, [name]: 1 });
const PLANS = [
    [{ find: 'a', filter: { _id: 3 } }, 'SHARDING_FILTER IDHACK'],
    [{ find: 'a' }, 'SHARDING_FILTER COLLSCAN'],
    [{ find: 'a', sort: { t: 1 }, limit: 3 }, 'LIMIT SORT SHARDING_FILTER COLLSCAN'],
    [{ find: 'a', filter: { i: 3 }, hint: 'i', skip: 2 }, 'SKIP SHARDING_FILTER FETCH IXSCAN'],
    [
        { find: 'a', filter: { k: { $gt: 5 } }, projection: only('k'), hint: 'k' },
        'PROJECTION_COVERED SHARDING_FILTER IXSCAN',
    ],
    [
        { find: 'a', filter: { i: 3 }, projection: only('i'), hint: 'i' },
        'PROJECTION_SIMPLE SHARDING_FILTER FETCH IXSCAN',
    ],
    [
        { find: 'a', filter: { i: 3 }, projection: only('i'), hint: 'ik' },
        'PROJECTION_COVERED SHARDING_FILTER IXSCAN',
    ],
    [
        { find: 'a', filter: { $or: [{ i: 3 }, { 'o.x': 4 }] } },
        'SHARDING_FILTER FETCH OR IXSCAN',
    ],
    [
        { find: 'a', filter: { i: { $in: [1, 2] } }, sort: { k: 1 }, hint: 'ik' },
        'SHARDING_FILTER FETCH SORT_MERGE IXSCAN',
    ],
    [{ count: 'a', query: { i: 3 }, hint: 'i' }, 'COUNT SHARDING_FILTER FETCH IXSCAN'],
    [{ count: 'a', query: { k: { $gt: 3 } }, hint: 'k' }, 'COUNT SHARDING_FILTER IXSCAN'],
    [{ count: 'b', query: { i: 3 }, hint: 'i' }, 'COUNT COUNT_SCAN'],
    [{ distinct: 'a', key: 'k' }, 'SHARDING_FILTER PROJECTION_COVERED DISTINCT_SCAN'],
    [{ distinct: 'b', key: 'i' }, 'PROJECTION_COVERED DISTINCT_SCAN'],
    [
        { delete: 'a', deletes: [{ q: { i: 3 }, limit: 0, hint: 'i' }] },
        'BATCHED_DELETE SHARDING_FILTER FETCH IXSCAN',
    ],
];

test('RNG-5: the filter is above the scan and below sort, limit and projection', async () => {
    await owning(async () => {
        for (const [command, want] of PLANS)
            assert.equal((await planOf(command)).stages, want, text(command));
        const { stats } = await planOf({ find: 'a' });
        const skips = documents.filter((document) => !isOwned(document)).length;
        assert.equal(stats.executionStages.chunkSkips, skips);
        assert.equal(stats.nReturned, DOCUMENTS - skips);
    });
    assert.equal((await planOf({ find: 'a' })).stages, 'COLLSCAN');
});

test('RNG-5: keys that do not tell who owns a document do not stand for it', async () => {
    const keys = () => a.find({ i: 3 }, { hint: 'i', returnKey: true }).toArray();
    const all = (await keys()).length;
    await owning(async () => {
        const owned = await keys();
        assert.ok(owned.length > 0 && owned.length < all);
        assert.deepEqual(owned[0], { i: 3 });
    });
});

test('RNG-5: a key of several fields decides, and an index of them covers', async () => {
    const c = node.db.collection('pair');
    await c.createIndexes([
        { key: { x: 1, 'y.z': 1, w: 1 }, name: 'xyw' },
        { key: { w: 1 }, name: 'w' },
    ]);
    const pairs = Array.from({ length: 300 }, (_, w) => ({ x: w % 7, y: { z: (w * 5) % 11 }, w }));
    await c.insertMany(pairs);
    const want = pairs.filter(({ x, y }) => (x + y.z) % 3 === 1).map(({ w }) => w);
    const policy = { ns: ['test.pair'], paths: ['x', 'y.z'], remainder: 1 };
    await owning(async () => {
        for (const hint of ['xyw', 'w', { $natural: 1 }]) {
            const options = { projection: only('w'), sort: { w: 1 }, hint };
            const found = await c.find({}, options).toArray();
            assert.deepEqual(found.map(({ w }) => w), want);
        }
        const { stats } = await planOf({ find: 'pair', projection: only('w'), hint: 'xyw' });
        assert.equal(stats.totalDocsExamined, 0);
        assert.equal(stats.nReturned, want.length);
    }, policy);
});

test('RNG-5: a plan remembered without the filter serves nobody who has it', async () => {
    const filter = { i: { $gt: -4 }, k: { $gt: 10 } };
    const query = (name) => node.db.collection(name).find(filter).project(only('i')).toArray();
    const entries = async () => {
        const rows = await a.aggregate([{ $planCacheStats: {} }]).toArray();
        return new Set(rows.map((entry) => entry.planCacheKey)).size;
    };
    await node.db.command({ planCacheClear: 'a' });
    const unfiltered = shown(await query('a'));
    assert.equal(await entries(), 1);
    await owning(async () => {
        const want = shown(await query('b'));
        for (let i = 0; i < 3; i++) assert.equal(shown(await query('a')), want);
        assert.equal(await entries(), 2);
    });
    assert.equal(shown(await query('a')), unfiltered);
});

/* ---- cursors and yields ---- */

const idsOf = (rows) => rows.map(({ _id }) => _id).sort((x, y) => x - y);
const idsWith = (remainder) => idsOf(documents.filter((d) => remainderOf(d) === remainder));

/* Opens a cursor of a few documents, does something, reads the rest. */
async function interrupted(body, command = { find: 'a', batchSize: 3 }) {
    const { cursor } = await node.db.command(command);
    await body();
    const rows = [...cursor.firstBatch];
    for (let { id } = cursor, left = 1000; Number(id) !== 0 && left > 0; left--) {
        const getMore = Long.fromValue(id);
        const reply = await node.db.command({ getMore, collection: 'a', batchSize: 50 });
        rows.push(...reply.cursor.nextBatch);
        ({ id } = reply.cursor);
    }
    return idsOf(rows);
}

test('RNG-5: a query goes on with the ownership it began with', async () => {
    const cursor = { batchSize: 3 };
    const commands = [
        { find: 'a', ...cursor },
        { find: 'a', sort: { k: 1 }, ...cursor },
        { find: 'a', sort: { t: 1 }, ...cursor },
        { aggregate: 'a', pipeline: [{ $set: { z: 1 } }], cursor },
        { aggregate: 'a', pipeline: [{ $unionWith: 'nothing' }], cursor },
    ];
    for (const command of commands) {
        await owning(async () => {
            const moved = () => configure({ ...POLICY, remainder: 1 });
            assert.deepEqual(await interrupted(moved, command), idsWith(0), text(command));
            assert.deepEqual(idsOf(await a.find().toArray()), idsWith(1), 'a new one does not');
            const rest = await interrupted(() => configure(null), command);
            assert.deepEqual(rest, idsWith(1), 'also when the policy is gone');
        });
    }
});

test('RNG-5: a query that began without a filter goes on without, or not at all', async () => {
    try {
        assert.deepEqual(await interrupted(() => configure(POLICY)), idsOf(documents));
        await configure(null);
        const replacing = { ...POLICY, isReplacing: true };
        await fails(interrupted(() => configure(replacing)), QUERY_PLAN_KILLED);
    } finally {
        await configure(null);
    }
});

test('RNG-5: a policy may replace the filter, but not what it is decided by', async () => {
    await owning(async () => {
        const replacing = { ...POLICY, remainder: 1, isReplacing: true };
        const rows = await interrupted(() => configure(replacing));
        assert.deepEqual(rows, [0, 3, 6, ...idsWith(1).filter((id) => id > 6)]);
        await configure(POLICY);
        const byOther = { ...POLICY, paths: ['i'], isReplacing: true };
        await fails(interrupted(() => configure(byOther)), QUERY_PLAN_KILLED);
    });
});

test('RNG-5: what is refused after a yield fails so, and its cursor is gone', async () => {
    for (const code of [STALE_CONFIG, QUERY_PLAN_KILLED]) {
        await owning(async () => {
            const { cursor } = await node.db.command({ find: 'a', batchSize: 3 });
            await configure({ ...POLICY, refuseRestore: code });
            const more = { getMore: Long.fromValue(cursor.id), collection: 'a' };
            await fails(node.db.command(more), code);
            await fails(node.db.command(more), CURSOR_NOT_FOUND);
            await fails(a.find().toArray(), code);
            await fails(a.countDocuments({ t: 'abc' }), code);
            await fails(a.distinct('t'), code);
            await fails(a.aggregate([{ $group: { _id: '$t' } }]).toArray(), code);
            await fails(a.deleteMany({ nothing: 1 }), code);
            await fails(a.updateMany({ nothing: 1 }, { $set: { z: 1 } }), code);
            assert.equal((await a.find({ _id: 3 }).toArray()).length, 1, 'it did not yield');
        });
    }
});

test('RNG-5: who is refused at the beginning reads and writes nothing', async () => {
    const before = await stored(a);
    const other = node.db.collection('fb');
    const $lookup = { from: 'a', localField: 'n', foreignField: 'i', as: 'x' };
    const users = {
        find: () => a.find().toArray(),
        'find by _id': () => a.findOne({ _id: 3 }),
        count: () => a.estimatedDocumentCount(),
        distinct: () => a.distinct('k'),
        aggregate: () => a.aggregate([{ $count: 'n' }]).toArray(),
        $lookup: () => other.aggregate([{ $lookup }]).toArray(),
        $out: () => other.aggregate([{ $out: 'a' }]).toArray(),
        $merge: () => other.aggregate([{ $merge: 'a' }]).toArray(),
        insert: () => a.insertOne({ _id: 'new', k: 3 }),
        update: () => a.updateOne({ _id: 3 }, { $set: { z: 1 } }),
        upsert: () => a.updateOne({ _id: 'new' }, { $set: { k: 3 } }, { upsert: true }),
        delete: () => a.deleteMany({}),
        findAndModify: () => a.findOneAndDelete({}),
        explain: () => a.find().explain(),
    };
    await owning(
        async () => {
            for (const [name, run] of Object.entries(users)) {
                const error = await fails(run, STALE_CONFIG);
                assert.match(error.message, /refuseAttach/, name);
            }
        },
        { refuseAttach: STALE_CONFIG },
    );
    assert.deepEqual(await stored(a), before);
});

test('RNG-5: a tailable cursor passes over what is not owned', async () => {
    const c = await node.db.createCollection('capped', { capped: true, size: 1_000_000 });
    await c.insertMany(Array.from({ length: 50 }, (_, _id) => ({ _id, k: _id })));
    await owning(
        async () => {
            const options = { tailable: true, awaitData: true, maxAwaitTimeMS: 20_000 };
            const cursor = c.find({}, { ...options, batchSize: 4 });
            const seen = [];
            for (let id = 0; id < 50; id += 3) seen.push((await cursor.next())._id);
            const next = cursor.next(); // waits: the first that comes is not ours
            await c.insertOne({ _id: 100, k: 100 });
            await c.insertOne({ _id: 102, k: 102 });
            seen.push((await next)._id);
            assert.deepEqual(seen, [...Array.from({ length: 17 }, (_, i) => 3 * i), 102]);
            await cursor.close();
        },
        { ns: ['test.capped'] },
    );
});

/* ---- writes ---- */

test('RNG-5: an upsert meets what is not owned as a duplicate key, and leaves it', async () => {
    await ownership.refill(node.db);
    const before = await stored(a);
    const update = { $set: { z: 1 } };
    const moved = [{ $match: { _id: 3 } }, { $set: { _id: 4 } }, { $merge: 'a' }];
    await owning(async () => {
        await fails(a.updateOne({ _id: 4 }, update, { upsert: true }), DUPLICATE_KEY);
        await fails(a.findOneAndUpdate({ _id: 5 }, update, { upsert: true }), DUPLICATE_KEY);
        await fails(a.insertOne({ _id: 7, k: 9 }), DUPLICATE_KEY);
        await fails(a.aggregate(moved).toArray(), DUPLICATE_KEY);
    });
    assert.deepEqual(await stored(a), before);
});

test('RNG-5: an upsert is refused when the version has changed before it inserts', async () => {
    const data = { ...POLICY, refuseAttach: STALE_CONFIG };
    await node.withFailpoint('testOwnership', { skip: 1 }, data, () =>
        fails(a.updateOne({ _id: 'new' }, { $set: { k: 3 } }, { upsert: true }), STALE_CONFIG),
    );
    assert.equal(await a.findOne({ _id: 'new' }), null);
});

test('RNG-5: $out over a collection that is not owned as a whole is refused', async () => {
    const before = await stored(a);
    const overwrite = () => node.db.collection('b').aggregate([{ $out: 'a' }]).toArray();
    await owning(() => fails(overwrite, 28769));
    assert.deepEqual(await stored(a), before);
});

test('RNG-5: after a write conflict it is asked again who owns the document', async () => {
    await ownership.refill(node.db);
    const other = (await node.server.client()).db('test').collection('a');
    const conflict = 'WTWriteConflictException';
    const cases = [
        [{ _id: 3 }, {}],
        [{ _id: 6, k: { $exists: true } }, {}],
        [{ _id: 9 }, { hint: { $natural: 1 } }],
    ];
    for (const [filter, options] of cases) {
        const { _id } = filter;
        await owning(async () => {
            /* The update waits before it meets a conflict; meanwhile the document gets another
             * key. */
            const { count } = await node.admin.command({
                configureFailPoint: conflict,
                mode: { times: 1 },
                data: { blockTimeMS: 30_000 },
            });
            const update = a.updateOne(filter, { $set: { z: 'late' } }, options);
            await node.admin.command({
                waitForFailPoint: conflict,
                timesEntered: Number(count) + 1,
                maxTimeMS: 20_000,
            });
            /* Whoever owns less would be refused to give it away; the update that waits keeps its filter. */
            await node.admin.command({ configureFailPoint: 'testOwnership', mode: 'off' });
            await other.updateOne({ _id }, { $set: { k: 1 } });
            await node.admin.command({ configureFailPoint: conflict, mode: 'off' });
            assert.equal((await update).matchedCount, 0, text(filter));
        });
        assert.equal((await a.findOne({ _id })).z, undefined, text(filter));
    }
});

test('RTE-6: an update does not take a document away from its owner', async () => {
    await ownership.refill(node.db);
    await owning(async () => {
        for (const change of [{ $set: { k: 1 } }, [{ $set: { k: 1 } }]])
            await assert.rejects(a.updateOne({ _id: 3 }, change), (error) => error.code === 283);
        await assert.rejects(a.replaceOne({ _id: 3 }, { k: 1 }), (error) => error.code === 283);
        await assert.rejects(a.updateOne({ _id: 'new', k: 1 }, { $set: { z: 1 } }, { upsert: true }), (error) => error.code === 283);
        assert.notEqual((await a.findOne({ _id: 3 })).k, 1);
    });
});

/* ---- who is exempt ---- */

test('RNG-5: what looks at the storage sees all documents', async () => {
    await ownership.refill(node.db);
    const { db } = node;
    const look = async () => {
        const full = await db.command({ validate: 'a', full: true });
        const background = await db.command({ validate: 'a', background: true });
        const $collStats = { count: {}, storageStats: {} };
        const [stats] = await a.aggregate([{ $collStats }]).toArray();
        return {
            valid: [full.valid, background.valid, full.nrecords, full.keysPerIndex],
            hash: (await db.command({ dbHash: 1, collections: ['a'] })).collections,
            counts: [stats.count, stats.storageStats.count],
            collStats: (await db.command({ collStats: 'a' })).count,
            size: (await db.command({ dataSize: 'test.a' })).numObjects,
        };
    };
    const before = await look();
    assert.equal(before.size, DOCUMENTS);
    assert.deepEqual(await owning(look), before);
    const refusing = { refuseAttach: STALE_CONFIG, refuseRestore: STALE_CONFIG };
    assert.deepEqual(await owning(look, refusing), before);
});

test('RNG-5: an index built meanwhile has the keys of all documents, once its build was let begin', async () => {
    const build = () => a.createIndex({ when: 1 }, { name: 'built' });
    await assert.rejects(owning(build, { refuseAttach: STALE_CONFIG }), ({ code }) => code === STALE_CONFIG);
    assert.ok(!(await a.indexExists('built')));
    await owning(build, { refuseRestore: STALE_CONFIG });
    assert.equal((await a.find({}, { hint: 'built' }).toArray()).length, DOCUMENTS);
    assert.equal((await node.db.command({ validate: 'a', full: true })).valid, true);
    await a.dropIndex('built');
});

test('RNG-5: documents expire where they are owned', async () => {
    const c = node.db.collection('ttl');
    const at = new Date(Date.now() - 3_600_000);
    await c.insertMany(Array.from({ length: 90 }, (_, _id) => ({ _id, k: _id, at })));
    const passes = async () => (await node.admin.command({ serverStatus: 1 })).metrics.ttl.passes;
    await owning(
        async () => {
            await c.createIndex({ at: 1 }, { expireAfterSeconds: 1 });
            const patience = { timeoutMs: 20_000 };
            await waitFor(async () => (await c.countDocuments()) === 0, patience);
            const from = await passes();
            await waitFor(async () => (await passes()) >= from + 2, patience);
            assert.equal((await node.db.command({ collStats: 'ttl' })).count, 60);
        },
        { ns: ['test.ttl'] },
    );
    await c.drop();
});
