/*
 * Goal (REP-1, IDX-1): what a configuration says of single members: those without indexes, and names
 * by which other clients reach them. Method: sets of real nodes, each member asked by itself.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const UNSATISFIABLE_COMMIT_QUORUM = 278;

describe('a member with buildIndexes: false', () => {
    let set, client, db, bare;
    before(async () => {
        set = await startReplicaSet({ members: [{}, { priority: 0 }, { priority: 0, buildIndexes: false }] });
        client = await set.client();
        db = client.db('bare');
        bare = set.members[2];
    });
    after(() => set.remove());

    const indexes = async (member, coll) => {
        const reader = await set.direct(member);
        const found = await reader.db('bare').collection(coll).indexes();
        return found.map(({ name }) => name).sort();
    };
    const isBack = () =>
        waitFor(async () => (await set.command(bare, { hello: 1 })).secondary, {
            timeoutMs: 60_000,
            what: 'the member to be a secondary',
        });
    /* Everything written so far is on all members. */
    const settle = () => db.collection('settled').insertOne({}, { writeConcern: { w: 3, wtimeout: 60_000 } });

    test('REP-1: hello tells it, and only of that member', async () => {
        assert.equal((await set.command(bare, { hello: 1 })).buildIndexes, false);
        assert.equal((await set.command(set.members[1], { hello: 1 })).buildIndexes, undefined);
    });

    test('IDX-1: it builds no index but that on _id, however the index comes about', async () => {
        await db.collection('empty').createIndex({ a: 1 }, { commitQuorum: 2 });
        await db.collection('full').insertMany(Array.from({ length: 50 }, (_, i) => ({ a: i })));
        await db.collection('full').createIndex({ a: 1 }, { commitQuorum: 'majority' });
        const session = client.startSession();
        await session.withTransaction(async () => {
            await db.createCollection('made', { session });
            await db.collection('made').createIndex({ a: 1 }, { session });
        });
        await session.endSession();
        await settle();
        for (const coll of ['empty', 'full', 'made']) {
            assert.deepEqual(await indexes(set.members[1], coll), ['_id_', 'a_1'], coll);
            assert.deepEqual(await indexes(bare, coll), ['_id_'], coll);
        }
        const reader = await set.direct(bare);
        assert.equal(await reader.db('bare').collection('full').countDocuments({ a: { $lt: 10 } }), 10);
    });

    test('IDX-1: changes of an index it does not have, and drops of one, do not stop it', async () => {
        await db.command({ collMod: 'full', index: { name: 'a_1', hidden: true }, validationLevel: 'moderate' });
        await settle();
        const reader = await set.direct(bare);
        const [{ options }] = await reader.db('bare').listCollections({ name: 'full' }).toArray();
        assert.equal(options.validationLevel, 'moderate'); // the rest of the change has happened
        await db.collection('full').dropIndex('a_1');
        await settle();
        assert.deepEqual(await indexes(bare, 'full'), ['_id_']);
    });

    test('IDX-1: a commit quorum that needs it is refused, one that does not is not', async () => {
        const create = (commitQuorum) =>
            db.command({
                createIndexes: 'full',
                indexes: [{ key: { b: 1 }, name: 'b_1' }],
                ...(commitQuorum === undefined ? {} : { commitQuorum }),
            });
        await fails(() => create(), UNSATISFIABLE_COMMIT_QUORUM); // votingMembers
        await fails(() => create('votingMembers'), UNSATISFIABLE_COMMIT_QUORUM);
        await fails(() => create(3), UNSATISFIABLE_COMMIT_QUORUM);
        assert.deepEqual(await indexes(set.members[0], 'full'), ['_id_']);
        await create(2);
    });

    test('DUR-2: a crash, and the oplog that is applied again after it, make no index', async () => {
        const coll = db.collection('crash');
        await coll.insertOne({ a: 1 });
        await coll.createIndex({ a: 1 }, { commitQuorum: 1 });
        await settle();
        await bare.kill();
        await bare.start();
        await isBack();
        await settle();
        assert.deepEqual(await indexes(bare, 'crash'), ['_id_']);
    });

    test('REP-2: nor does an initial sync', async () => {
        await bare.stop();
        rmSync(bare.dbpath, { recursive: true });
        await bare.start();
        await isBack();
        await settle();
        assert.deepEqual(await indexes(bare, 'crash'), ['_id_']);
        assert.deepEqual(await indexes(bare, 'empty'), ['_id_']);
    });

    test('REP-1: it cannot be elected, and a member does not change', async () => {
        const { config } = await set.command(set.members[0], { replSetGetConfig: 1 });
        const change = (edit) => {
            const next = structuredClone({ ...config, version: config.version + 1 });
            next.settings.replicaSetId = config.settings.replicaSetId;
            edit(next.members);
            return () => set.command(set.members[0], { replSetReconfig: next });
        };
        await fails(change((members) => (members[2].priority = 1)), 93);
        await fails(change((members) => (members[2].buildIndexes = true)), 103);
        await fails(change((members) => (members[1].buildIndexes = false)), 103);
    });
});

describe('split horizons', () => {
    const horizons = (...names) => names.map((outside) => ({ horizons: { outside } }));

    test('REP-1: they are part of the configuration; who came without TLS is told the hosts', async () => {
        const [member] = horizons('a.example:27018');
        const set = await startReplicaSet({ members: [member] });
        const { config } = await set.command(set.members[0], { replSetGetConfig: 1 });
        assert.deepEqual(config.members[0].horizons, { outside: 'a.example:27018' });
        const hello = await set.command(set.members[0], { hello: 1 });
        assert.deepEqual(hello.hosts, [config.members[0].host]);
        assert.equal(hello.me, config.members[0].host);
        const next = { ...config, version: config.version + 1 };
        next.members[0].horizons = { outside: '127.0.0.1:5' };
        await fails(() => set.command(set.members[0], { replSetReconfig: next }), 93);
        next.members[0].horizons = {};
        await fails(() => set.command(set.members[0], { replSetReconfig: next }), 93);
        delete next.members[0].horizons;
        await set.command(set.members[0], { replSetReconfig: next });
        await set.remove();
    });

    test('REP-1: one that is an address is warned of at the next start, and used', async () => {
        const set = await startReplicaSet({
            members: horizons('10.0.0.1:5'),
            args: ['--setParameter', 'disableSplitHorizonIPCheck=true'],
        });
        const [member] = set.members;
        const warned = async () => {
            const { log } = await set.command(member, { getLog: 'startupWarnings' });
            return log.some((line) => line.includes('Found split horizon configuration using IP'));
        };
        assert.equal(await warned(), false);
        await member.stop();
        await member.start();
        await set.waitForPrimary();
        assert.equal(await warned(), true);
        await set.remove();
    });
});
