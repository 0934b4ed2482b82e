/*
 * Goal (IDX-4, IDX-5): on a replica set an index is ready on all members or on none, whoever dies,
 * steps down or restarts while it is built, and it is right. Method: failpoints hold builds in a
 * phase while clients write and members come and go; then every member is validated and compared.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, test } from 'node:test';
import { UUID } from 'mongodb';
import { isClientClosed } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';

const DOCUMENTS = 5000;
const KEYS = { key: { a: 1 }, name: 'a_1' };
const INTERRUPTED_DUE_TO_REPL_STATE_CHANGE = 11602;
const INDEX_BUILD_ABORTED = 276;
const UNSATISFIABLE_COMMIT_QUORUM = 278;
const UNKNOWN_REPL_WRITE_CONCERN = 79;

const sets = [];
after(async () => {
    for (const set of sets) await set.remove();
});

/* Two members are in the east, where one of them is alone in its rack. */
async function startSet() {
    const set = await startReplicaSet({
        members: ['east', 'east', 'west'].map((region, i) => ({
            tags: { region, rack: `${i}`, ...(i === 0 ? { east: 'only' } : {}) },
        })),
        settings: {
            electionTimeoutMillis: 1000,
            heartbeatIntervalMillis: 200,
            getLastErrorModes: { regions: { region: 2 }, racks: { rack: 3 }, never: { east: 2 } },
        },
    });
    sets.push(set);
    const client = await set.client({ retryWrites: true });
    set.db = client.db('test');
    set.builds = client.db('config').collection('system.indexBuilds');
    return set;
}

async function fill(set) {
    await set.db.collection('c').drop().catch(() => {});
    const documents = Array.from({ length: DOCUMENTS }, (_, i) => ({ _id: i, a: i % 97, u: i }));
    await set.db.collection('c').insertMany(documents, { writeConcern: { w: 3 } });
}

const failpoint = (set, member, name, what) =>
    set.command(member, { configureFailPoint: name, ...what });

/* The result of a createIndexes that is not waited for: 0 or the code. */
const create = (set, indexes = [KEYS], more = {}) =>
    set.db.command({ createIndexes: 'c', indexes, ...more }).then(
        () => 0,
        (error) => error.code ?? error.message,
    );

async function hang(set, member, name, blockTimeMS = 3000) {
    const what = { mode: 'alwaysOn', data: { blockTimeMS } };
    const { count } = await failpoint(set, member, name, what);
    return () =>
        set.command(member, {
            waitForFailPoint: name,
            timesEntered: Number(count) + 1,
            maxTimeMS: 20_000,
        });
}
const release = (set, member, name) => failpoint(set, member, name, { mode: 'off' });

/* Names of the indexes of a member: ready ones, and "name..." for those that are being built. */
async function indexesOf(set, member) {
    const command = { listIndexes: 'c', includeBuildUUIDs: true };
    const reply = await set.command(member, command, 'test');
    return reply.cursor.firstBatch.map(({ name, spec, buildUUID }) => (buildUUID ? `${spec.name}...` : name));
}

async function everywhere(set, expected) {
    let seen;
    await waitFor(
        async () => {
            seen = [];
            for (const member of set.members)
                if (member.isRunning()) seen.push((await indexesOf(set, member)).join());
            return seen.every((names) => names === ['_id_', ...expected].join());
        },
        { timeoutMs: 30_000, what: `indexes ${expected} everywhere` },
    ).catch((error) => {
        throw new Error(`${error.message}: ${JSON.stringify(seen)}`);
    });
    await set.waitForReplication();
    for (const member of set.members) {
        const db = (await set.direct(member)).db('test');
        const found = await db.command({ validate: 'c', full: true });
        assert.ok(found.valid, JSON.stringify(found));
        const all = await db.collection('c').find().hint({ $natural: 1 }).toArray();
        for (const name of expected) {
            const indexed = await db.collection('c').find().hint(name).toArray();
            assert.equal(indexed.length, all.length, `${name} has all documents`);
        }
    }
    assert.deepEqual(await set.builds.find().toArray(), []);
}

async function entriesOf(set, member) {
    const oplog = (await set.direct(member)).db('local').collection('oplog.rs');
    const entries = await oplog
        .find({ op: 'c', ns: 'test.$cmd', 'o.indexBuildUUID': { $exists: true } })
        .toArray();
    return entries.map(({ o }) => o);
}

/* Writes of all kinds until it is told to stop. */
function startWriter(set) {
    const writer = { isStopping: false, count: 0 };
    const c = set.db.collection('c');
    writer.ended = (async () => {
        for (let i = 0; !writer.isStopping; i++) {
            try {
                await c.insertOne({ _id: DOCUMENTS + i, a: i % 13, u: DOCUMENTS + i });
                await c.updateOne({ _id: i % DOCUMENTS }, { $set: { a: [i, i + 1] } });
                if (i % 3 === 0) await c.deleteOne({ _id: DOCUMENTS + i });
                writer.count++;
            } catch (error) {
                if (isClientClosed(error)) return;
                if (error.code === undefined || error.code === 11000) continue;
                if (![10107, 11602, 189, 91, 13435].includes(error.code)) throw error;
            }
        }
    })();
    writer.stop = async () => {
        writer.isStopping = true;
        await writer.ended;
    };
    return writer;
}

let set; // shared by the tests that leave it as they find it

test('an index is built on all members, in two phases', async () => {
    set = await startSet();
    await fill(set);
    const writer = startWriter(set);
    const reply = await set.db.command({ createIndexes: 'c', indexes: [KEYS] });
    assert.equal(reply.commitQuorum, 'votingMembers');
    await writer.stop();
    assert.ok(writer.count > 0);
    await everywhere(set, ['a_1']);
    for (const member of set.members) {
        const entries = await entriesOf(set, member);
        assert.deepEqual(
            entries.map((o) => Object.keys(o)),
            [
                ['startIndexBuild', 'indexBuildUUID', 'indexes'],
                ['commitIndexBuild', 'indexBuildUUID', 'indexes'],
            ],
        );
        for (const o of entries) assert.deepEqual(o.indexes, [{ v: 2, ...KEYS }]);
        assert.equal(`${entries[0].indexBuildUUID}`, `${entries[1].indexBuildUUID}`);
    }
});

test('an index that cannot be unique is aborted on all members', async () => {
    await fill(set);
    await set.db.collection('c').insertOne({ _id: -1, u: 7 });
    assert.equal(await create(set, [{ key: { u: 1 }, name: 'u_1', unique: true }]), 11000);
    await everywhere(set, []);
    const last = (await entriesOf(set, set.members[0])).at(-1);
    assert.equal(last.cause.code, 11000);
    assert.equal(last.cause.codeName, 'DuplicateKey');
    assert.equal(last.cause.ok, 0);
});

test('dropIndexes and killOp abort a build on all members', async () => {
    await fill(set);
    const primary = await set.findPrimary();
    for (const end of ['dropIndexes', 'killOp']) {
        const [secondary] = await set.secondaries();
        const isHanging = await hang(set, secondary, 'indexBuild.firstDrain');
        const ended = create(set);
        await isHanging();
        if (end === 'dropIndexes') {
            await set.db.command({ dropIndexes: 'c', index: 'a_1' });
        } else {
            const { inprog } = await set.command(primary, { currentOp: 1, desc: 'IndexBuild' });
            assert.equal(inprog.length, 1);
            await set.command(primary, { killOp: 1, op: inprog[0].opid });
        }
        assert.ok([INDEX_BUILD_ABORTED, 11601].includes(await ended));
        await release(set, secondary, 'indexBuild.firstDrain');
        await everywhere(set, []);
    }
});

test('drop and dropDatabase abort a build on all members', async () => {
    for (const end of [{ drop: 'c' }, { dropDatabase: 1 }]) {
        await fill(set);
        const [secondary] = await set.secondaries();
        const isHanging = await hang(set, secondary, 'indexBuild.firstDrain', 60_000);
        const ended = create(set);
        await isHanging();
        await set.db.command(end);
        assert.equal(await ended, INDEX_BUILD_ABORTED);
        await release(set, secondary, 'indexBuild.firstDrain');
        await set.waitForReplication();
        for (const member of set.members)
            await assert.rejects(indexesOf(set, member), { code: 26 }, JSON.stringify(end));
        await waitFor(async () => (await set.builds.countDocuments()) === 0, {
            timeoutMs: 10_000,
            what: 'no document of the build',
        });
        await fill(set);
        assert.equal(await create(set), 0);
        await everywhere(set, ['a_1']);
    }
});

test('a member that cannot build an index has it aborted for all', async () => {
    await fill(set);
    const [secondary] = await set.secondaries();
    const limit = (indexBuildMinAvailableDiskSpaceMB) =>
        set.command(secondary, { setParameter: 1, indexBuildMinAvailableDiskSpaceMB });
    await limit(8388608);
    const why = new RegExp(
        `'voteAbortIndexBuild' received from '127.0.0.1:${secondary.fixedPort}': available disk space`,
    );
    await assert.rejects(set.db.command({ createIndexes: 'c', indexes: [KEYS] }), (error) => {
        assert.equal(error.code, INDEX_BUILD_ABORTED);
        assert.match(error.message, why);
        return true;
    });
    await limit(500);
    await everywhere(set, []);
    for (const member of set.members) {
        const { abortIndexBuild, cause } = (await entriesOf(set, member)).at(-1);
        assert.equal(abortIndexBuild, 'c');
        assert.equal(cause.code, INDEX_BUILD_ABORTED);
        assert.match(cause.errmsg, why);
    }
    assert.equal(await create(set), 0);
    await everywhere(set, ['a_1']);
    /* A build that nobody knows. */
    const [build, hostAndPort] = [new UUID().toBinary(), '127.0.0.1:1'];
    await set.command(await set.findPrimary(), {
        voteAbortIndexBuild: build,
        hostAndPort,
        reason: 'none',
    });
    await assert.rejects(
        set.command(secondary, { voteAbortIndexBuild: build, hostAndPort, reason: 'none' }),
        { code: 10107 },
    );
});

test('a commit quorum is checked, kept and met', async () => {
    await fill(set);
    assert.equal(await create(set, [KEYS], { commitQuorum: 4 }), UNSATISFIABLE_COMMIT_QUORUM);
    assert.equal(
        await create(set, [KEYS], { commitQuorum: 'nowhere' }),
        UNKNOWN_REPL_WRITE_CONCERN,
    );
    assert.equal(await create(set, [KEYS], { commitQuorum: -1 }), 9);
    assert.equal(await create(set, [KEYS], { commitQuorum: true }), 9);
    assert.equal(await create(set, [KEYS], { commitQuorum: 'never' }), UNSATISFIABLE_COMMIT_QUORUM);
    for (const commitQuorum of ['majority', 'votingMembers', 0, 1, 3, 'regions', 'racks']) {
        assert.equal(await create(set, [KEYS], { commitQuorum }), 0, `${commitQuorum}`);
        await everywhere(set, ['a_1']);
        await set.db.command({ dropIndexes: 'c', index: 'a_1' });
    }
    await assert.rejects(
        set.db.command({ setIndexCommitQuorum: 'c', indexNames: ['a_1'], commitQuorum: 1 }),
        { code: 27 },
    );
});

test('a member that is down holds a build of all voters, until the quorum is changed', async () => {
    await fill(set);
    const [secondary] = await set.secondaries();
    await secondary.stop();
    assert.equal(await create(set, [KEYS], { commitQuorum: 2 }), 0);
    const ended = create(set, [{ key: { u: 1 }, name: 'u_1', unique: true }]);
    await waitFor(async () => (await set.builds.findOne())?.commitReadyMembers?.length === 2, {
        timeoutMs: 20_000,
        what: 'two votes',
    });
    const [build] = await set.builds.find().toArray();
    assert.deepEqual(build.indexNames, ['u_1']);
    assert.equal(build.commitQuorum, 'votingMembers');
    const change = (commitQuorum, indexNames = ['u_1']) =>
        set.db.command({ setIndexCommitQuorum: 'c', indexNames, commitQuorum });
    for (const [commitQuorum, code] of [
        [4, UNSATISFIABLE_COMMIT_QUORUM],
        ['never', UNSATISFIABLE_COMMIT_QUORUM],
        ['nowhere', UNKNOWN_REPL_WRITE_CONCERN],
        [0, 2],
        [-1, 9],
        ['', 9],
        [{}, 9],
    ])
        await assert.rejects(change(commitQuorum), { code }, JSON.stringify(commitQuorum));
    for (const names of [['a_1'], ['u_1', 'a_1'], ['x'], []])
        await assert.rejects(change(2, names), { code: 27 }, `${names}`);
    await change('votingMembers');
    await change(3);
    await change('racks');
    assert.equal((await set.builds.findOne()).commitQuorum, 'racks');
    await change('majority');
    assert.equal(await ended, 0);
    await secondary.start();
    await everywhere(set, ['a_1', 'u_1']);
});

test('a build outlives the step-down of its primary, who waits for it does not', async () => {
    for (const name of ['indexBuild.scanning', 'indexBuild.firstDrain']) {
        await fill(set);
        const primary = await set.findPrimary();
        const isHanging = await hang(set, primary, name);
        const ended = create(set);
        await isHanging();
        await set.stepDown();
        assert.equal(await ended, INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
        await primary.waitLog(({ id }) => id === 20444); // that it goes on
        const writer = startWriter(set);
        await waitFor(async () => writer.count > 20, { timeoutMs: 20_000, what: 'writes' });
        await release(set, primary, name);
        await endsEverywhere(set, writer);
        for (const member of set.members) await member.waitLog(({ id }) => id === 3856203); // was ready
    }
});

async function endsEverywhere(which, writer) {
    await waitFor(
        async () => (await indexesOf(which, await which.waitForPrimary())).includes('a_1'),
        { timeoutMs: 30_000, what: 'the end of the build' },
    );
    await writer.stop();
    await everywhere(which, ['a_1']);
}

test('a build outlives the death of its primary', async () => {
    for (const name of ['indexBuild.firstDrain', 'indexBuild.quorumReached']) {
        await fill(set);
        const primary = await set.findPrimary();
        const isHanging = await hang(set, primary, name);
        const ended = create(set);
        await isHanging();
        const writer = startWriter(set);
        await primary.kill();
        await ended;
        await set.waitForPrimary({ other: primary });
        await primary.start();
        await endsEverywhere(set, writer);
    }
});

test('a secondary goes on with a build after a stop in each phase', async () => {
    for (const name of ['indexBuild.scanning', 'indexBuild.bulkLoading', 'indexBuild.firstDrain']) {
        await fill(set);
        const [secondary] = await set.secondaries();
        const isHanging = await hang(set, secondary, name, /* blockTimeMS */ 1500);
        const ended = create(set);
        await isHanging();
        await secondary.stop();
        await set.db.collection('c').insertOne({ _id: 'meanwhile', a: 1 });
        await secondary.start();
        assert.equal(await ended, 0);
        await everywhere(set, ['a_1']);
        assert.ok(secondary.log.some(({ msg }) => msg === 'Index build: resuming'));
    }
});

test('a secondary begins a build anew after a kill', async () => {
    await fill(set);
    const [secondary] = await set.secondaries();
    const isHanging = await hang(set, secondary, 'indexBuild.firstDrain', 60_000);
    const ended = create(set);
    await isHanging();
    await waitFor(async () => (await indexesOf(set, secondary)).includes('a_1...'));
    await set.command(secondary, { fsync: 1 });
    await secondary.kill();
    await set.db.collection('c').insertOne({ _id: 'meanwhile', a: 1 });
    await secondary.start();
    assert.equal(await ended, 0);
    await everywhere(set, ['a_1']);
    assert.ok(!secondary.log.some(({ msg }) => msg === 'Index build: resuming'));
});

test('a member that is added while an index is built takes part', async () => {
    await fill(set);
    const [secondary] = await set.secondaries();
    const isHanging = await hang(set, secondary, 'indexBuild.firstDrain', 60_000);
    const ended = create(set);
    await isHanging();
    const other = (await set.secondaries()).find((member) => member !== secondary);
    await other.stop();
    rmSync(other.dbpath, { recursive: true });
    await other.start();
    await set.waitForSecondaries();
    assert.deepEqual(await indexesOf(set, other), ['_id_', 'a_1...']);
    await release(set, secondary, 'indexBuild.firstDrain');
    assert.equal(await ended, 0);
    await everywhere(set, ['a_1']);
});

test('builds that start, commit and abort while a member copies the data are there or not', async () => {
    await fill(set);
    await set.db.collection('c').insertOne({ _id: -1, u: 7 });
    const [other] = await set.secondaries();
    const hanging = JSON.stringify({ mode: 'alwaysOn', data: { blockTimeMS: 60_000 } });
    const usual = other.args;
    await other.stop();
    rmSync(other.dbpath, { recursive: true });
    other.args = [...usual, '--setParameter', `failpoint.initialSync.clonedN=${hanging}`];
    await other.start();
    other.args = usual;
    await set.command(other, { waitForFailPoint: 'initialSync.clonedN', timesEntered: 1 });
    assert.equal(await create(set, [KEYS], { commitQuorum: 2 }), 0);
    const unique = { key: { u: 1 }, name: 'u_1', unique: true };
    assert.equal(await create(set, [unique], { commitQuorum: 2 }), 11000);
    const ended = create(set, [{ key: { u: 1, a: 1 }, name: 'u_1_a_1' }]);
    const isReady = async () => (await set.builds.findOne())?.commitReadyMembers?.length === 2;
    await waitFor(isReady, { timeoutMs: 20_000, what: 'two votes' });
    await release(set, other, 'initialSync.clonedN');
    assert.equal(await ended, 0);
    await set.waitForSecondaries();
    await everywhere(set, ['a_1', 'u_1_a_1']);
});
