/*
 * Goal (IDX-5): with resumeIndexBuildsOnStandalone an index build survives a clean stop in each of its
 * phases, and a crash by beginning anew; what was written before the stop, or after the start, is in
 * the index; nothing is left on disk. Method: a failpoint holds the build in a phase while clients
 * write; the node is stopped and started, with a failpoint that holds the build again while others
 * write; then the index is compared with the collection.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Server, waitFor } from '../lib/server.mjs';

const RESUME = ['--setParameter', 'resumeIndexBuildsOnStandalone=true'];
const DOCUMENTS = 40_000; // some slices of the scan
const BLOCK = { mode: 'alwaysOn', data: { blockTimeMS: 20_000 } };
const DUPLICATE_KEY = 11000;
const SHUTDOWN = [11600, 91];

const servers = [];
after(async () => {
    for (const server of servers) await server.remove();
});

/* A node, and a way to restart it with other options. */
async function startNode(args = RESUME) {
    const node = { server: new Server({ args }) };
    servers.push(node.server);
    node.start = async (more = []) => {
        node.server.args = [...args, ...more];
        await node.server.start();
        node.client = await node.server.client();
        node.admin = node.client.db('admin');
        node.db = node.client.db('test');
    };
    node.failpoint = (name, what) =>
        node.admin.command({ configureFailPoint: name, ...what });
    await node.start();
    return node;
}

const failpointAtStart = (name, what = BLOCK) => [
    '--setParameter',
    `failpoint.${name}=${JSON.stringify(what)}`,
];
const newDocument = (i) => ({ _id: i, a: i % 1000, u: i, list: [i % 7, `x${i % 11}`] });

async function fill(node, options) {
    const c = options ? await node.db.createCollection('c', options) : node.db.collection('c');
    for (let first = 0; first < DOCUMENTS; first += 10_000)
        await c.insertMany(Array.from({ length: 10_000 }, (_, i) => newDocument(first + i)));
}

const INDEXES = [
    { key: { a: 1, list: 1 }, name: 'plain' },
    { key: { u: 1 }, name: 'unique', unique: true },
];

/* Starts a build and returns when it hangs in the failpoint; `ended` is its code, or none when the
 * connection was closed. */
async function hang(node, failpoint, indexes = INDEXES) {
    const { count } = await node.failpoint(failpoint, BLOCK);
    const ended = node.db.command({ createIndexes: 'c', indexes }).then(
        () => 0,
        (error) => error.code,
    );
    const timesEntered = Number(count) + 1;
    await node.admin.command({ waitForFailPoint: failpoint, timesEntered });
    return { ended };
}

/* Every kind of write, each time on other documents. */
async function write(node, round) {
    const c = node.db.collection('c');
    const at = 100 * round;
    await c.insertMany(Array.from({ length: 50 }, (_, i) => newDocument(DOCUMENTS + at + i)));
    await c.updateMany({ _id: { $gte: at, $lt: at + 30 } }, { $set: { a: `round ${round}` } });
    await c.updateOne({ _id: at + 31 }, { $set: { list: [], u: -1 - at } });
    await c.deleteMany({ _id: { $gte: at + 40, $lt: at + 60 } });
    // At the end, so that a record id is given out twice if the node forgets the last one.
    await c.deleteMany({ _id: { $gte: DOCUMENTS + at + 45 } });
}

const temporaryTables = (node) =>
    readdirSync(node.server.dbpath).filter((name) => name.startsWith('internal-'));
function temporaryFiles(node) {
    const directory = join(node.server.dbpath, '_tmp');
    return existsSync(directory) ? readdirSync(directory) : [];
}

async function nothingIsLeft(node) {
    await waitFor(() => temporaryTables(node).length === 0, {
        timeoutMs: 15_000,
        what: 'drop of temporary tables',
    });
    assert.deepEqual(temporaryFiles(node), []);
    const listing = { aggregate: 1, pipeline: [{ $listCatalog: {} }], cursor: {} };
    const entries = (await node.db.admin().command(listing)).cursor.firstBatch;
    const named = entries.flatMap(({ ident, idxIdent }) => [ident, ...Object.values(idxIdent)]);
    const isTable = (name) => /^(collection|index)-.*\.wt$/.test(name);
    await waitFor(
        () => readdirSync(node.server.dbpath).filter(isTable).length === named.length,
        { timeoutMs: 15_000, what: 'only tables that the catalog names' },
    );
}

async function indexesAreRight(node, names = ['plain', 'unique']) {
    const c = node.db.collection('c');
    await waitFor(
        async () => {
            const stats = await c.aggregate([{ $indexStats: {} }]).toArray();
            return stats.every(({ building }) => !building);
        },
        { timeoutMs: 30_000, what: 'the end of the build' },
    );
    assert.deepEqual((await c.indexes()).map(({ name }) => name).sort(), ['_id_', ...names].sort());
    const found = await node.db.command({ validate: 'c', full: true });
    assert.ok(found.valid, JSON.stringify(found.errors));
    const text = (documents) => documents.map((d) => JSON.stringify(d)).sort();
    const scanned = text(await c.find().hint({ $natural: 1 }).toArray());
    for (const name of names)
        assert.deepEqual(text(await c.find().hint(name).toArray()), scanned, name);
}

const resumedIn = (node) =>
    node.server.log
        .filter(({ msg }) => msg === 'Index build: resuming')
        .map(({ attr }) => attr.phase);
const restarted = (node) =>
    node.server.log.filter(({ msg }) => msg === 'Index build: restarting from the beginning').length;

/* Where a failpoint holds the build, what phase that is, and where it is held after the start. */
const PHASES = [
    ['indexBuild.startEntryWritten', 'initialized', 'indexBuild.scanning'],
    ['indexBuild.scanning', 'collection scan', 'indexBuild.scanning'],
    ['indexBuild.bulkLoading', 'bulk load', 'indexBuild.bulkLoading'],
    ['indexBuild.firstDrain', 'drain writes', 'indexBuild.firstDrain'],
];
const CLUSTERED = { clusteredIndex: { key: { _id: 1 }, unique: true } };
const CASES = [
    ...PHASES.map((row) => [...row, {}]),
    [...PHASES[1], { options: CLUSTERED, what: ', clustered' }],
    [...PHASES[1], { isSpilling: true, what: ', spilling' }],
    [...PHASES[2], { isSpilling: true, what: ', spilling' }],
];

for (const [failpoint, phase, later, { options, isSpilling, what = '' }] of CASES) {
    test(`IDX-5: a build stopped in phase "${phase}"${what} is resumed`, async () => {
        const node = await startNode();
        await fill(node, options);
        if (isSpilling) await node.failpoint('indexBuild.smallMemory', { mode: { times: 2 } });
        const { ended } = await hang(node, failpoint);
        await write(node, 1);
        await node.server.stop();
        const code = await ended;
        assert.ok(code === undefined || SHUTDOWN.includes(code), `${code}`);
        assert.ok(temporaryTables(node).some((name) => name.includes('-resumable-')));

        await node.start(failpointAtStart(later));
        assert.deepEqual(resumedIn(node), [phase]);
        assert.ok(!temporaryTables(node).some((name) => name.includes('-resumable-')));
        await write(node, 2);
        assert.equal((await node.db.collection('c').indexes()).length, 3);

        // Once more, wherever it is by now.
        await node.server.stop();
        await node.start(failpointAtStart(later));
        assert.equal(resumedIn(node).length, 1);
        await write(node, 3);
        await node.failpoint(later, { mode: 'off' });
        await indexesAreRight(node);
        assert.equal(restarted(node), 0);
        await nothingIsLeft(node);
        await node.server.remove();
    });
}

for (const [failpoint, phase] of PHASES) {
    test(`IDX-5: a duplicate written before a stop in phase "${phase}" ends the build`, async () => {
        const node = await startNode();
        await fill(node);
        await hang(node, failpoint);
        await node.db.collection('c').insertOne({ u: 7, twin: true });
        await node.server.stop();
        await node.start();
        assert.deepEqual(resumedIn(node), [phase]);
        const { attr } = await node.server.waitLog(({ msg }) => msg === 'Index build: failed', 20_000);
        assert.match(attr.error, /E11000 duplicate key error/);
        await indexesAreRight(node, []);
        await nothingIsLeft(node);
        // It can be asked for again, and a duplicate is refused once it is there.
        await node.db.collection('c').deleteOne({ twin: true });
        await node.db.command({ createIndexes: 'c', indexes: INDEXES });
        await assert.rejects(node.db.collection('c').insertOne({ u: 7 }), { code: DUPLICATE_KEY });
        await node.server.remove();
    });
}

test('IDX-5: documents without keys and array paths are remembered over a stop', async () => {
    const node = await startNode();
    await fill(node);
    const c = node.db.collection('c');
    await c.insertOne({ _id: -1, a: [1, 2], list: [3, 4] }); // scanned first or last
    await hang(node, 'indexBuild.bulkLoading', [{ key: { a: 1, list: 1 }, name: 'plain' }]);
    await c.updateOne({ _id: 5 }, { $set: { a: [8, 9], list: 1 } });
    await node.server.stop();
    await node.start(failpointAtStart('indexBuild.firstDrain'));
    await node.db.collection('c').updateOne({ _id: -1 }, { $set: { list: 5 } });
    await node.failpoint('indexBuild.firstDrain', { mode: 'off' });
    await indexesAreRight(node, ['plain']);
    const found = await node.db.collection('c').find({ a: 9 }).hint('plain').toArray();
    assert.ok(found.some(({ _id }) => _id === 5));
    await nothingIsLeft(node);
    await node.server.remove();
});

const DAMAGES = {
    'a run file is shorter': {
        afterStop: (node) => {
            const [file] = temporaryFiles(node);
            truncateSync(join(node.server.dbpath, '_tmp', file), 100);
        },
        error: /temporary file .* has not the size or the checksum/,
    },
    'a run file is gone': {
        afterStop: (node) => {
            const [file] = temporaryFiles(node);
            rmSync(join(node.server.dbpath, '_tmp', file));
        },
        error: /could not open temporary file/,
    },
    'saving it failed and its tables are gone': {
        beforeStop: (node) =>
            node.failpoint('indexBuild.resumeInfoWritten', {
                mode: 'alwaysOn',
                data: { errorCode: 14031 },
            }),
        error: /table "internal-.*" is missing/,
    },
};
for (const [what, { beforeStop, afterStop, error }] of Object.entries(DAMAGES)) {
    test(`IDX-5: a build begins anew when ${what}`, async () => {
        const node = await startNode();
        await fill(node);
        await hang(node, 'indexBuild.bulkLoading');
        await write(node, 1);
        await beforeStop?.(node);
        await node.server.stop();
        afterStop?.(node);
        await node.start(failpointAtStart('indexBuild.scanning'));
        assert.deepEqual(resumedIn(node), []);
        assert.equal(restarted(node), 1);
        const { attr } = await node.server.waitLog(
            ({ msg }) => msg === 'Index build: cannot be resumed',
        );
        assert.match(attr.error, error);
        await write(node, 2);
        await node.failpoint('indexBuild.scanning', { mode: 'off' });
        await indexesAreRight(node);
        await nothingIsLeft(node);
        await node.server.remove();
    });
}

test('IDX-5: after a crash a build begins anew', async () => {
    for (const [failpoint] of PHASES) {
        const node = await startNode();
        await fill(node);
        await hang(node, failpoint);
        await node.db.collection('c').insertOne({ u: -5 }, { writeConcern: { j: true } });
        await node.server.kill();
        await node.start(failpointAtStart('indexBuild.scanning'));
        assert.equal(restarted(node), 1, failpoint);
        await write(node, 2);
        await node.failpoint('indexBuild.scanning', { mode: 'off' });
        await indexesAreRight(node);
        await nothingIsLeft(node);
        await node.server.remove();
    }
});

test('IDX-5: a resumed build is dropped, and killed, as any other', async () => {
    for (const end of [
        (node) => node.db.collection('c').dropIndexes(),
        (node) => node.db.collection('c').drop(),
        async (node) => {
            const { inprog } = await node.admin.command({ currentOp: 1 });
            const { opid, command } = inprog.find(({ msg }) => msg?.startsWith('Index Build'));
            assert.equal(command.createIndexes, 'c');
            await node.admin.command({ killOp: 1, op: opid });
        },
    ]) {
        const node = await startNode();
        await fill(node);
        await hang(node, 'indexBuild.scanning');
        await node.server.stop();
        await node.start(failpointAtStart('indexBuild.scanning'));
        await node.admin.command({ waitForFailPoint: 'indexBuild.scanning', timesEntered: 1 });
        await end(node);
        await node.failpoint('indexBuild.scanning', { mode: 'off' });
        await node.server.waitLog(({ msg }) => msg === 'Index build: failed', 10_000);
        await waitFor(() => temporaryTables(node).length === 0, { timeoutMs: 15_000 });
        assert.deepEqual(temporaryFiles(node), []);
        await node.server.remove();
    }
});

test('IDX-5: without the parameter what a stop has kept is discarded', async () => {
    const node = await startNode();
    await fill(node);
    await hang(node, 'indexBuild.bulkLoading');
    await node.server.stop();
    assert.ok(temporaryFiles(node).length > 0);
    node.server.args = [];
    await node.server.start();
    node.client = await node.server.client();
    node.db = node.client.db('test');
    await indexesAreRight(node, []);
    await nothingIsLeft(node);
    await node.server.remove();
});

test('the parameter and failpoints at start need enableTestCommands', async () => {
    for (const args of [RESUME, failpointAtStart('indexBuild.resumed')]) {
        const server = new Server({ args, testCommands: false });
        servers.push(server);
        await assert.rejects(server.start(), /enableTestCommands/);
    }
});
