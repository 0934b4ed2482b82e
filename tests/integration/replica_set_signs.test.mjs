/*
 * Goal (REP-1, MET-1, OPS-3): what operators and tools read of a replica set besides its data: lines of
 * the log, counters, documents of "local"; two sets of one name. Method: sets of real nodes.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { RawConnection, msg } from '../lib/wire.mjs';

const CURSOR_NOT_FOUND = 43;

describe('a set of two members', () => {
    let set, client, db;
    before(async () => {
        set = await startReplicaSet({ members: [{}, { priority: 0 }] });
        client = await set.client();
        db = client.db('signs');
    });
    after(() => set.remove());

    const lineOf = (member, wantedId, command) =>
        member.waitLog(
            ({ id, attr }) =>
                id === wantedId &&
                (attr.namespace ?? attr.oplogEntry.ns).startsWith('signs') &&
                Object.keys(attr.object ?? attr.oplogEntry.o)[0] === command,
        );

    test('OPS-3: every change of the catalog leaves a line on the primary and on a secondary', async () => {
        const [primary, secondary] = set.members;
        await db.createCollection('c');
        await db.collection('c').createIndex({ x: 1 });
        await db.command({ collMod: 'c', index: { keyPattern: { x: 1 }, hidden: true } });
        await db.collection('c').dropIndex('x_1');
        await db.collection('c').rename('d');
        await db.collection('d').drop();
        await db.createCollection('e');
        await db.dropDatabase();
        const session = client.startSession();
        await session.withTransaction(async () => {
            await db.createCollection('f', { session });
            await db.collection('f').createIndex({ x: 1 }, { session });
        });
        await session.endSession();
        const lines = [
            [7360103, 'create'],
            [7360101, 'createIndexes'],
            [7360104, 'collMod'],
            [7360107, 'dropIndexes'],
            [7360108, 'renameCollection'],
            [7360106, 'drop'],
            [7360105, 'dropDatabase'],
            [7360102, 'create'],
            [7360100, 'createIndexes'],
        ];
        for (const [id, command] of lines) await lineOf(primary, id, command);
        for (const [, command] of lines) {
            await lineOf(secondary, 7360109, command);
            await lineOf(secondary, 7360110, command);
        }
    });

    test('SES-4: an abort waits for no other member, whatever its write concern', async () => {
        const [, secondary] = set.members;
        await db.collection('aborted').insertOne({ _id: 1 }, { writeConcern: { w: 2 } });
        await set.command(secondary, { configureFailPoint: 'stopReplProducer', mode: 'alwaysOn' });
        const session = client.startSession({ causalConsistency: false });
        try {
            await db.collection('aborted').updateOne({ _id: 1 }, { $set: { x: 1 } }, { writeConcern: { w: 1 } });
            session.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority', wtimeoutMS: 20_000 } });
            await db.collection('aborted').updateOne({ _id: 1 }, { $set: { x: 2 } }, { session });
            const begun = Date.now();
            await session.abortTransaction();
            assert.ok(Date.now() - begun < 10_000);
            assert.equal((await db.collection('aborted').findOne({ _id: 1 })).x, 1);
        } finally {
            await set.command(secondary, { configureFailPoint: 'stopReplProducer', mode: 'off' });
            await session.endSession();
        }
    });

    test('MET-1: a secondary counts the writes it applies by kind, not among those of clients; a primary counts how long writes are waited for', async () => {
        const [primary, secondary] = set.members;
        const status = (member) => set.command(member, { serverStatus: 1 });
        const kinds = ['insert', 'query', 'update', 'delete', 'getmore'];
        const counts = (doc) => kinds.map((kind) => Number(doc[kind]));
        const [applied, own, waits] = [await status(secondary), await status(secondary), await status(primary)];
        const both = { writeConcern: { w: 2 } };
        const coll = db.collection('kinds');
        await coll.insertMany([1, 2, 3].map((_id) => ({ _id })), both);
        await coll.updateMany({ _id: { $lt: 3 } }, { $set: { x: 1 } }, both);
        await coll.deleteOne({ _id: 3 }, both);
        await fails(coll.insertOne({}, { writeConcern: { w: 3, wtimeout: 1 } }), 100); // no such member: refused, not waited for
        const now = await status(secondary);
        const grown = counts(now.opcountersRepl).map((count, i) => count - counts(applied.opcountersRepl)[i]);
        assert.deepEqual([grown[1], grown[4]], [0, 0]);
        for (const [i, least] of [[0, 3], [2, 2], [3, 1]]) assert.ok(grown[i] >= least, `${kinds[i]}: ${grown[i]}`);
        assert.ok(Number(now.opcountersRepl.command) > Number(applied.opcountersRepl.command)); // the collection
        for (const i of [0, 2, 3]) assert.equal(counts(now.opcounters)[i], counts(own.opcounters)[i], kinds[i]);

        const { getLastError: before } = waits.metrics;
        await set.command(secondary, { configureFailPoint: 'stopReplProducer', mode: 'alwaysOn' });
        try {
            await fails(coll.insertOne({}, { writeConcern: { w: 2, wtimeout: 50 } }), 64);
        } finally {
            await set.command(secondary, { configureFailPoint: 'stopReplProducer', mode: 'off' });
        }
        const { getLastError: after } = (await status(primary)).metrics;
        assert.ok(Number(after.wtime.num) >= Number(before.wtime.num) + 4);
        assert.ok(Number(after.wtime.totalMillis) >= Number(before.wtime.totalMillis) + 49);
        assert.equal(Number(after.wtimeouts), Number(before.wtimeouts) + 1);
        assert.equal(Number(after.default.wtimeouts), Number(before.default.wtimeouts));
    });

    test('MET-1: a secondary counts what it fetches and applies', async () => {
        const read = async () => (await set.command(set.members[1], { serverStatus: 1 })).metrics.repl;
        const one = await read();
        await db.collection('counted').insertOne({});
        await db.collection('counted').insertMany([{}, {}], { writeConcern: { w: 2 } });
        await db.collection('counted').insertOne({}, { writeConcern: { w: 'majority' } });
        await waitFor(async () => {
            const two = await read();
            const grew = (...path) => {
                const at = (doc) => Number(path.reduce((part, name) => part[name], doc));
                return at(two) > at(one);
            };
            return (
                grew('network', 'ops') &&
                grew('network', 'bytes') &&
                grew('network', 'getmores', 'num') &&
                grew('network', 'getmores', 'numEmptyBatches') &&
                grew('apply', 'ops') &&
                grew('apply', 'batches', 'num') &&
                Number(two.network.readersCreated) >= 1
            );
        });
    });

    test('MET-1: the last change of state is told, and how many operations it ended', async () => {
        const transition = async (member) =>
            (await set.command(member, { serverStatus: 1 })).metrics.repl.stateTransition;
        assert.equal((await transition(set.members[0])).lastStateTransition, 'stepUp');
        assert.equal((await transition(set.members[1])).lastStateTransition, '');
        await set.command(set.members[0], { replSetStepDown: 60, force: true });
        const { lastStateTransition, userOperationsKilled } = await transition(set.members[0]);
        assert.deepEqual([lastStateTransition, Number(userOperationsKilled)], ['stepDown', 0]);
        assert.ok(set.members[0].log.some(({ id }) => id === 21343));
        await set.command(set.members[0], { replSetFreeze: 0 });
        await set.waitForPrimary();
    });

    test('REP-2: after an initial sync minvalid tells where it ended', async () => {
        const { cursor } = await set.command(set.members[1], { find: 'replset.minvalid' }, 'local');
        const [{ ts, t }] = cursor.firstBatch;
        const first = await client.db('local').collection('oplog.rs').findOne({ ts });
        assert.equal(Number(first.t), Number(t));
        assert.ok(set.members[0].log.some(({ msg }) => msg === 'Triggering the first stable checkpoint'));
    });

    test('SES-1: a cursor goes with the record of its session', async () => {
        await db.collection('read').insertMany([{}, {}, {}]);
        const session = client.startSession();
        const cursor = db.collection('read').find({}, { session, batchSize: 1 });
        await cursor.next();
        const id = cursor.id;
        const config = client.db('config');
        await client.db('admin').command({ refreshLogicalSessionCacheNow: 1 });
        await config.command({ getMore: 1 }).catch(() => {}); // another session, which stays
        await config.collection('system.sessions').deleteMany({ '_id.id': session.id.id });
        await client.db('admin').command({ refreshLogicalSessionCacheNow: 1 });
        await fails(() => db.command({ getMore: id, collection: 'read' }), CURSOR_NOT_FOUND);
        await cursor.close();
        await session.endSession();
    });

    test('REP-1: a member that is recovering tells nothing of its catalog, either', async () => {
        const [, secondary] = set.members;
        const connection = await RawConnection.open({ port: secondary.port, host: '127.0.0.1' });
        const run = async (command, $db) => (await connection.roundTrip(msg({ ...command, $db }))).document;
        const commands = [
            [{ listDatabases: 1 }, 'admin'],
            [{ listCollections: 1 }, 'signs'],
            [{ listIndexes: 'read' }, 'signs'],
            [{ dbStats: 1 }, 'signs'],
            [{ collStats: 'read' }, 'signs'],
        ];
        await run({ replSetMaintenance: true }, 'admin');
        for (const [command, db] of commands) assert.equal((await run(command, db)).code, 13436, JSON.stringify(command));
        assert.equal((await run({ listCollections: 1 }, 'local')).ok, 1); // is its own
        assert.equal((await run({ dataSize: 'signs.read' }, 'signs')).ok, 1); // as in 7.0
        assert.equal((await run({ validateDBMetadata: 1, apiParameters: { version: '1', strict: true } }, 'signs')).code, 13436);
        await run({ replSetMaintenance: false }, 'admin');
        for (const [command, db] of commands) assert.equal((await run(command, db)).ok, 1, JSON.stringify(command));
        connection.socket.destroy();
    });

    test('REP-1: settings.protocolVersion, which old tools write, is taken and not kept', async () => {
        const { config } = await set.command(set.members[0], { replSetGetConfig: 1 });
        const next = { ...config, version: config.version + 1 };
        next.settings.protocolVersion = 1;
        await set.command(set.members[0], { replSetReconfig: next });
        const { config: now } = await set.command(set.members[0], { replSetGetConfig: 1 });
        assert.equal(now.settings.protocolVersion, undefined);
    });
});

test('REP-1: a member of another set with the same name is no member: it is down, and the log says why', async () => {
    const sets = await Promise.all([0, 1].map(() => startReplicaSet({ members: 1, name: 'same' })));
    const [[a], [b]] = sets.map(({ members }) => members);
    try {
        const { config } = await sets[0].command(a, { replSetGetConfig: 1 });
        config.version++;
        config.members.push({ _id: 1, host: `${b.host}:${b.fixedPort}`, votes: 0, priority: 0 });
        await sets[0].command(a, { replSetReconfig: config, force: true });
        await a.waitLog(({ attr }) => /^replica set IDs do not match/.test(attr?.error ?? ''));
        const stateOfB = async () => (await sets[0].command(a, { replSetGetStatus: 1 })).members[1].stateStr;
        await waitFor(async () => (await stateOfB()) === '(not reachable/healthy)', { timeoutMs: 30_000 });
        assert.equal(Number((await sets[1].command(b, { replSetGetConfig: 1 })).config.version), 1);
    } finally {
        for (const set of sets) await set.remove();
    }
});

test('REP-3: a member that is going away does not stand for election, and a second SIGTERM means nothing', async () => {
    const set = await startReplicaSet({ members: 3 });
    try {
        const [, secondary] = set.members;
        const connection = await RawConnection.open({ port: secondary.port, host: '127.0.0.1' });
        const run = async (command) => (await connection.roundTrip(msg({ ...command, $db: 'admin' }))).document;
        const failpoint = { configureFailPoint: 'hangDuringQuiesceMode' };
        await run({ ...failpoint, mode: 'alwaysOn' });
        secondary.signal('SIGTERM');
        await run({ waitForFailPoint: 'hangDuringQuiesceMode', timesEntered: 1, maxTimeMS: 20_000 });
        assert.equal((await run({ replSetStepUp: 1 })).code, 125);
        secondary.signal('SIGTERM');
        assert.equal((await run({ ping: 1 })).ok, 1);
        await run({ ...failpoint, mode: 'off' });
        assert.deepEqual(await secondary.waitEnd(), { code: 0, signal: null });
        connection.socket.destroy();
    } finally {
        await set.remove();
    }
});
