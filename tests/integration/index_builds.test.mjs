/*
 * Goal (IDX-3, IDX-6): indexes are built while the collection is written to, agree with it when
 * they are ready, and a build ends cleanly whatever ends it. Method: writers insert, update and
 * delete without pause while indexes of all kinds are built and dropped over and over; then
 * validation and a comparison of every index with a collection scan. Failpoints hold single builds
 * in a phase for what must be seen inside it.
 *
 * INDEX_BUILDS: how many builds of the stress test (200). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { fails, random, seedOfRun } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { waitFor } from '../lib/server.mjs';

const BUILDS = Number(process.env.INDEX_BUILDS ?? 200);
const seed = seedOfRun();
const rand = random(seed);
console.error(`index builds: ${BUILDS} builds, TEST_SEED=${seed}`);
const node = useServer({});

const DUPLICATE_KEY = 11000;
const INDEX_BUILD_ABORTED = 276;
const BUILD_IN_PROGRESS = 12587;
const PARALLEL_ARRAYS = 171;

/* ---- stress ---- */

const KINDS = [
    { key: { a: 1 }, name: 'plain' },
    { key: { a: -1, s: 1 }, name: 'compound' },
    { key: { u: 1 }, name: 'unique', unique: true },
    { key: { maybe: 1 }, name: 'sparse', sparse: true },
    { key: { a: 1, u: 1 }, name: 'partial', partialFilterExpression: { a: { $gte: 50 } } },
    { key: { list: 1 }, name: 'multikey' },
    { key: { list: 1, a: 1 }, name: 'multikeyCompound' },
    { key: { s: 1 }, name: 'collated', collation: { locale: 'en', strength: 2 } },
    { key: { 'sub.x': 1 }, name: 'dotted' },
    { key: { a: 'hashed' }, name: 'hashed' },
    { key: { 'sub.$**': 1 }, name: 'wildcard' },
    // Sometimes two documents have the same v: such a build may fail, and must do so cleanly.
    { key: { v: 1 }, name: 'uniqueOrNot', unique: true },
];
const KEYS = 3000;

function newDocument(r, _id) {
    return {
        _id,
        u: `u${_id}`,
        v: r.below(KEYS / 2) === 0 ? _id - 1 : _id,
        a: r.below(100),
        s: `${r.pick(['Ab', 'aB', 'ab', 'é', 'Z'])}${r.below(50)}`,
        ...(r.below(3) === 0 && { maybe: r.below(10) }),
        list: Array.from({ length: r.below(4) }, () => r.below(30)),
        sub: r.below(2) === 0 ? { x: r.below(9) } : [{ x: 1 }, { x: r.below(9) }],
    };
}

async function write(c, r, isOver) {
    let done = 0;
    while (!isOver()) {
        const _id = r.below(KEYS);
        const what = r.below(10);
        if (what < 3) {
            await c.replaceOne({ _id }, newDocument(r, _id), { upsert: true }).catch(passDuplicate);
        } else if (what < 7) {
            const { _id: _, ...fields } = newDocument(r, _id);
            await c.updateOne({ _id }, { $set: fields }).catch(passDuplicate);
        } else if (what < 8) {
            await c.updateMany({ a: r.below(100) }, { $inc: { a: 1 } });
        } else {
            await c.deleteOne({ _id });
        }
        done++;
    }
    return done;
}

function passDuplicate(error) {
    if (error.code !== DUPLICATE_KEY) throw error;
}

async function checkIndexes(c) {
    const found = await node.db.command({ validate: c.collectionName, full: true });
    assert.ok(found.valid, `seed ${seed}: ${JSON.stringify({ ...found, errors: found.errors })}`);
    const text = (documents) => documents.map((d) => JSON.stringify(d)).sort();
    for (const spec of await c.indexes()) {
        if (spec.name === '_id_') continue;
        const filter = { ...spec.partialFilterExpression };
        if (spec.sparse) filter.maybe = { $exists: true };
        const options = spec.collation ? { collation: spec.collation } : {};
        if (spec.name === 'wildcard') filter['sub.x'] = { $gte: 0 };
        const scanned = await c.find(filter, options).hint({ $natural: 1 }).toArray();
        const indexed = await c.find(filter, options).hint(spec.name).toArray();
        assert.deepEqual(text(indexed), text(scanned), `seed ${seed}, index ${spec.name}`);
    }
}

/* One build of some missing indexes, after the drop of another; how many there were and failed. */
async function buildSome(c) {
    const present = (await c.indexes()).map(({ name }) => name);
    const missing = KINDS.filter(
        ({ name }) =>
            !present.includes(name) && (name !== 'uniqueOrNot' || rand.below(4) === 0),
    );
    const dropped = rand.pick(present.filter((name) => name !== '_id_'));
    if (dropped !== undefined && (missing.length < 3 || rand.below(3) === 0))
        await c.dropIndex(dropped);
    if (missing.length === 0) return [0, 0];
    const first = rand.below(missing.length);
    const specs = missing.slice(first, first + 1 + rand.below(3));
    const mode = rand.below(4) === 0 ? 'alwaysOn' : 'off'; // spills
    await node.admin.command({ configureFailPoint: 'indexBuild.smallMemory', mode });
    try {
        await c.createIndexes(specs);
        return [specs.length, 0];
    } catch (error) {
        passDuplicate(error);
        assert.ok(specs.some(({ name }) => name === 'uniqueOrNot'), error.message);
        return [specs.length, 1];
    }
}

test(`IDX-3: ${BUILDS} builds under writers leave indexes that agree with the collection`, async () => {
    const c = await node.collection(Array.from({ length: KEYS }, (_, i) => newDocument(rand, i)));
    let [builds, failed, written] = [0, 0, 0];
    while (builds < BUILDS) {
        let isOver = false;
        const writers = Array.from({ length: 4 }, () =>
            write(c, random(rand.below(2 ** 30)), () => isOver),
        );
        try {
            for (const enough = builds + 25; builds < enough; ) {
                const [more, moreFailed] = await buildSome(c);
                builds += more;
                failed += moreFailed;
            }
        } finally {
            isOver = true;
        }
        for (const done of await Promise.all(writers)) written += done;
        await checkIndexes(c);
    }
    await node.admin.command({ configureFailPoint: 'indexBuild.smallMemory', mode: 'off' });
    assert.ok(written > BUILDS, `only ${written} writes`);
    const building = (await c.aggregate([{ $indexStats: {} }]).toArray()).filter((i) => i.building);
    assert.deepEqual(building, []);
    console.error(`index builds: ${builds} builds, ${failed} failed, ${written} writes`);
});

test('IDX-3: builds on one collection and on several run at once', async () => {
    const documents = () => Array.from({ length: 5000 }, (_, i) => newDocument(rand, i));
    const collections = [await node.collection(documents()), await node.collection(documents())];
    const kinds = KINDS.filter(({ name }) => name !== 'uniqueOrNot');
    let isOver = false;
    const writers = collections.map((c) => write(c, random(rand.below(2 ** 30)), () => isOver));
    await Promise.all(collections.flatMap((c) => kinds.map((spec) => c.createIndexes([spec]))));
    isOver = true;
    await Promise.all(writers);
    for (const c of collections) {
        await checkIndexes(c);
        assert.equal((await c.indexes()).length, kinds.length + 1);
    }
});

/* ---- single builds, held in a phase ---- */

/* Starts a build that stays in the phase of the failpoint until `body` returns. */
async function during(failpoint, c, specs, body) {
    let result;
    await node.withFailpoint(failpoint, 'alwaysOn', { blockTimeMS: 300 }, async () => {
        // Not by the driver's helper, which drops options that it does not know.
        const indexes = specs.map(({ key, ...rest }) => ({
            key,
            name: Object.entries(key).flat().join('_'),
            ...rest,
        }));
        const build = node.client
            .db(c.dbName)
            .command({ createIndexes: c.collectionName, indexes })
            .then(
                () => ({ names: indexes.map(({ name }) => name) }),
                (error) => ({ error }),
            );
        await waitFor(async () => (await c.indexes()).length > 1);
        result = await body();
        await node.admin.command({ configureFailPoint: failpoint, mode: 'off' });
        result = { ...(await build), body: result };
    });
    return result;
}

const many = (count = 2000) => Array.from({ length: count }, (_, _id) => ({ _id, a: _id, b: 1 }));

/* No table of a build is left once the reaper has been there. */
async function noTemporaryTables() {
    await waitFor(
        () => !readdirSync(node.server.dbpath).some((name) => name.startsWith('internal-')),
        { timeoutMs: 15_000, what: 'drop of temporary tables' },
    );
}

test('IDX-3: reads and writes go on during a build; queries do not use the index', async () => {
    const c = await node.collection(many());
    const { names, body } = await during('indexBuild.scanning', c, [{ key: { a: 1 } }], async () => {
        await c.insertOne({ _id: -1, a: [1, 2] });
        await c.updateOne({ _id: 5 }, { $set: { a: 'five' } });
        await c.deleteOne({ _id: 6 });
        const plan = await c.find({ a: 7 }).explain();
        await fails(c.find({ a: 7 }).hint('a_1').toArray(), 2);
        const listed = await node.db.command({
            listIndexes: c.collectionName,
            includeIndexBuildInfo: true,
        });
        return { plan, listed: listed.cursor.firstBatch };
    });
    assert.deepEqual(names, ['a_1']);
    assert.equal(body.plan.queryPlanner.winningPlan.stage, 'COLLSCAN');
    assert.ok(body.listed.some(({ indexBuildInfo }) => indexBuildInfo?.buildUUID !== undefined));
    for (const [a, expected] of [
        ['five', [5]],
        [2, [-1, 2]],
        [6, []],
        [5, []],
    ]) {
        const found = await c.find({ a }).hint('a_1').toArray();
        assert.deepEqual(found.map(({ _id }) => _id).sort(), expected, `a: ${a}`);
    }
    assert.ok((await node.db.command({ validate: c.collectionName, full: true })).valid);
    await noTemporaryTables();
});

test('IDX-6: currentOp shows the progress of a build', async () => {
    const c = await node.collection(many());
    const { names, body } = await during('indexBuild.scanning', c, [{ key: { a: 1 } }], () =>
        waitFor(async () => {
            const { inprog } = await node.admin.command({ currentOp: 1, active: true });
            return inprog.find(({ msg }) => msg?.startsWith('Index Build'));
        }),
    );
    assert.deepEqual(names, ['a_1']);
    assert.equal(body.msg, 'Index Build: scanning collection');
    assert.equal(Number(body.progress.total), 2000);
    assert.equal(body.command.createIndexes, c.collectionName);
});

test('a build that a test holds up after its scan is seen as one that scans', async () => {
    const c = await node.collection(Array.from({ length: 50 }, (_, i) => ({ _id: i, a: i })));
    const where = 'hangAfterStartingIndexBuild';
    const { count } = await node.admin.command({ configureFailPoint: where, mode: 'alwaysOn' });
    const built = c.createIndex({ a: 1 });
    try {
        await node.admin.command({ waitForFailPoint: where, timesEntered: Number(count) + 1, maxTimeMS: 20_000 });
        const { inprog } = await node.admin.command({ currentOp: 1, 'command.createIndexes': c.collectionName, progress: { $exists: true } });
        assert.equal(inprog.length, 1);
        assert.match(inprog[0].msg, /^Index Build: scanning collection/);
        assert.deepEqual([Number(inprog[0].progress.done), Number(inprog[0].progress.total)], [50, 50]);
    } finally {
        await node.admin.command({ configureFailPoint: where, mode: 'off' });
    }
    await built;
});

test('IDX-3: a duplicate that is gone at the end is no duplicate, one that comes is', async () => {
    const c = await node.collection([...many(), { _id: 'twin', a: 7 }]);
    const spec = [{ key: { a: 1 }, unique: true }];
    const error = await fails(c.createIndexes(spec), DUPLICATE_KEY);
    assert.match(error.message, /^Index build failed: .*caused by :: E11000 duplicate key error/);
    assert.deepEqual(error.keyValue, { a: 7 });
    const fixed = await during('indexBuild.firstDrain', c, spec, () =>
        c.deleteOne({ _id: 'twin' }),
    );
    assert.deepEqual(fixed.names, ['a_1']);
    await fails(c.insertOne({ a: 7 }), DUPLICATE_KEY);
    await c.dropIndex('a_1');
    const late = await during('indexBuild.firstDrain', c, spec, () => c.insertOne({ a: 8 }));
    assert.equal(late.error?.code, DUPLICATE_KEY);
    assert.equal((await c.indexes()).length, 1);
    await noTemporaryTables();
});

test('IDX-2: duplicates do not matter to a build with prepareUnique', async () => {
    const c = await node.collection([...many(), { _id: 'twin', a: 7 }]);
    const { names } = await during(
        'indexBuild.firstDrain',
        c,
        [{ key: { a: 1 }, prepareUnique: true }],
        () => c.insertOne({ _id: 'late twin', a: 8 }),
    );
    assert.deepEqual(names, ['a_1']);
    await fails(c.insertOne({ a: 9 }), DUPLICATE_KEY);
    assert.equal(await c.countDocuments({ a: { $in: [7, 8] } }, { hint: 'a_1' }), 4);
    assert.ok((await node.db.command({ validate: c.collectionName, full: true })).valid);
});

test('IDX-3: a document that cannot be indexed matters only if it is there at the end', async () => {
    const c = await node.collection([...many(), { _id: 'bad', a: [1, 2], b: [3, 4] }]);
    const spec = [{ key: { a: 1, b: 1 } }];
    await fails(c.createIndexes(spec), PARALLEL_ARRAYS);
    const fixed = await during('indexBuild.firstDrain', c, spec, async () => {
        await fails(c.insertOne({ a: [1, 2], b: [3, 4] }), PARALLEL_ARRAYS);
        await c.updateOne({ _id: 'bad' }, { $set: { b: 5 } });
    });
    assert.deepEqual(fixed.names, ['a_1_b_1']);
    const found = await c.find({ a: 2, b: 5 }).hint('a_1_b_1').toArray();
    assert.deepEqual(found, [{ _id: 'bad', a: [1, 2], b: 5 }]);
    assert.ok((await node.db.command({ validate: c.collectionName, full: true })).valid);
});

test('IDX-3: the same index is waited for, another one of that name is refused', async () => {
    const c = await node.collection(many());
    let second;
    const { names } = await during('indexBuild.scanning', c, [{ key: { a: 1 } }], async () => {
        second = node.db.command({
            createIndexes: c.collectionName,
            indexes: [{ key: { a: 1 }, name: 'a_1' }],
        });
        await fails(c.createIndex({ b: 1 }, { name: 'a_1' }), 86);
    });
    assert.deepEqual(names, ['a_1']);
    assert.equal((await second).note, 'all indexes already exist');
});

const ENDERS = {
    dropIndexes: (c) => c.dropIndex('a_1'),
    'dropIndexes *': (c) => c.dropIndexes(),
    drop: (c) => c.drop(),
    dropDatabase: (c) => node.client.db(c.dbName).dropDatabase(),
};
for (const [what, end] of Object.entries(ENDERS)) {
    for (const failpoint of ['indexBuild.scanning', 'indexBuild.firstDrain']) {
        test(`IDX-6: ${what} ends a build that is at ${failpoint}`, async () => {
            const c = node.client.db(node.newName('ended')).collection('c');
            await c.insertMany(many());
            const { error } = await during(failpoint, c, [{ key: { a: 1 } }], () => end(c));
            assert.equal(error?.code, INDEX_BUILD_ABORTED, `${error}`);
            if (what.startsWith('dropIndexes')) {
                assert.equal((await c.indexes()).length, 1);
                await c.createIndex({ a: 1 });
                await c.insertOne({ a: 1 });
            }
            await noTemporaryTables();
        });
    }
}

test('IDX-6: killOp and maxTimeMS end a build', async () => {
    const c = await node.collection(many());
    const { error } = await during('indexBuild.scanning', c, [{ key: { a: 1 } }], async () => {
        // The index is in the catalog a moment before the build shows its progress.
        const { opid } = await waitFor(async () => {
            const { inprog } = await node.admin.command({ currentOp: 1, active: true });
            return inprog.find(({ msg }) => msg?.startsWith('Index Build'));
        });
        await node.admin.command({ killOp: 1, op: opid });
    });
    assert.equal(error?.code, 11601);
    const ofWaiter = await during('indexBuild.scanning', c, [{ key: { a: 1 } }], async () => {
        const { inprog } = await node.admin.command({ currentOp: 1, active: true });
        const { opid, msg } = inprog.find((op) => op.command.createIndexes && op.connectionId);
        assert.equal(msg, undefined);
        await node.admin.command({ killOp: 1, op: opid });
    });
    assert.equal(ofWaiter.error?.code, 11601);
    assert.match(ofWaiter.error.message, /^Index build failed: .* :: caused by ::/);
    await node.withFailpoint('indexBuild.scanning', 'alwaysOn', { blockTimeMS: 200 }, () =>
        fails(c.createIndex({ a: 1 }, { maxTimeMS: 100 }), 50),
    );
    assert.equal((await c.indexes()).length, 1);
    await noTemporaryTables();
});

test('IDX-6: a kill ends a build that is held before or after its scan, and the log tells so', async () => {
    const c = await node.collection(many());
    const points = ['hangAfterInitializingIndexBuild', 'hangAfterSettingUpIndexBuild', 'hangBeforeBuildingIndex', 'hangAfterStartingIndexBuild'];
    for (const point of points)
        await node.withFailpoint(point, 'alwaysOn', {}, async () => {
            const ended = c.createIndex({ a: 1 }).then(() => null, (error) => error);
            const isOfBuild = ({ command, connectionId, failpointMsg }) => command?.createIndexes && !connectionId && failpointMsg === point;
            const { opid } = await waitFor(async () => (await node.admin.command({ currentOp: 1, $all: true })).inprog.find(isOfBuild), { what: point });
            const before = node.server.log.length;
            await node.admin.command({ killOp: 1, op: opid });
            assert.equal((await ended)?.code, 11601, point); // while the failpoint is still on
            assert.ok(node.server.log.slice(before).some(({ id }) => id === 4656003), point);
        });
    assert.equal((await c.indexes()).length, 1);
    await noTemporaryTables();
});

test('IDX-3: what cannot be done to a collection while an index is built is refused', async () => {
    const c = await node.collection(many());
    const specs = [{ key: { a: 1 } }, { key: { b: 1 } }];
    const { names } = await during('indexBuild.scanning', c, specs, async () => {
        await fails(c.rename(node.newName()), BUILD_IN_PROGRESS);
        await fails(c.dropIndex('a_1'), BUILD_IN_PROGRESS);
        await fails(
            node.db.command({ collMod: c.collectionName, index: { name: 'a_1', hidden: true } }),
            27,
        );
    });
    assert.deepEqual(names, ['a_1', 'b_1']);
});

test('IDX-6: a build waits while maxNumActiveUserIndexBuilds are running', async () => {
    const [one, two] = [await node.collection(many()), await node.collection(many())];
    await node.admin.command({ setParameter: 1, maxNumActiveUserIndexBuilds: 1 });
    try {
        let second;
        await during('indexBuild.scanning', one, [{ key: { a: 1 } }], async () => {
            second = two.createIndex({ a: 1 });
            await new Promise((done) => setTimeout(done, 100));
            assert.equal((await two.indexes()).length, 1);
        });
        assert.equal(await second, 'a_1');
    } finally {
        await node.admin.command({ setParameter: 1, maxNumActiveUserIndexBuilds: 3 });
    }
});

test('IDX-6: a build neither starts nor ends with too little disk, an empty collection needs none', async () => {
    const c = await node.collection(many());
    const counts = async () => (await node.admin.command({ serverStatus: 1 })).indexBuilds;
    const before = await counts();
    await node.admin.command({ setParameter: 1, indexBuildMinAvailableDiskSpaceMB: 8388608 });
    try {
        await fails(c.createIndex({ a: 1 }), 14031);
        await (await node.collection([], {})).createIndex({ a: 1 });
        await node.admin.command({ setParameter: 1, indexBuildMinAvailableDiskSpaceMB: 500 });
        const { error } = await during('indexBuild.scanning', c, [{ key: { a: 1 } }], () =>
            node.admin.command({ setParameter: 1, indexBuildMinAvailableDiskSpaceMB: 8388608 }),
        );
        assert.equal(error?.code, 14031, `${error}`);
        assert.equal((await c.indexes()).length, 1);
        const after = await counts();
        assert.equal(Number(after.total), Number(before.total) + 1);
        assert.equal(Number(after.killedDueToInsufficientDiskSpace), Number(before.killedDueToInsufficientDiskSpace) + 1);
    } finally {
        await node.admin.command({ setParameter: 1, indexBuildMinAvailableDiskSpaceMB: 500 });
    }
});

test('IDX-3: clustered and capped collections', async () => {
    const clustered = await node.collection(many(), {
        clusteredIndex: { key: { _id: 1 }, unique: true },
    });
    const capped = await node.collection(many(), { capped: true, size: 200_000 });
    for (const c of [clustered, capped]) {
        let next = 10_000;
        const { names } = await during('indexBuild.scanning', c, [{ key: { a: 1 } }], async () => {
            for (let i = 0; i < 50; i++) await c.insertOne({ _id: next, a: next++, b: 2 });
            await c.updateOne({ a: 1990 }, { $set: { a: 7777 } });
        });
        assert.deepEqual(names, ['a_1']);
        assert.equal(await c.countDocuments({ a: 7777 }, { hint: 'a_1' }), 1);
        assert.ok((await node.db.command({ validate: c.collectionName, full: true })).valid);
    }
});

test('IDX-6: a clean stop ends a build; the next start knows nothing of it', async () => {
    const c = await node.collection(many());
    // Left on: the client is closed before the node is told to stop, and must not end the delay.
    await node.admin.command({
        configureFailPoint: 'indexBuild.scanning',
        mode: 'alwaysOn',
        data: { blockTimeMS: 20_000 },
    });
    const build = c.createIndex({ a: 1 });
    build.catch(() => {});
    await waitFor(async () => (await c.indexes()).length > 1);
    await node.server.stop();
    await assert.rejects(build);
    await node.server.closeClients();
    await node.server.start();
    node.client = await node.server.client();
    node.admin = node.client.db('admin');
    node.db = node.client.db('test');
    assert.equal((await node.db.collection(c.collectionName).indexes()).length, 1);
    await noTemporaryTables();
});
