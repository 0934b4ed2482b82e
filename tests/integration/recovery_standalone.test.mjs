/*
 * Goal (DUR-2): a standalone node on the data of a member sees what the checkpoint has; one with
 * recoverFromOplogAsStandalone sees what the oplog has, too, and changes nothing unless it is told to
 * keep it. Method: a member whose stable timestamp stands still, restarted in turn as each of them.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { RawSession } from '../lib/raw_session.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { makeTempDir, runToEnd, removeTempDir, Server } from '../lib/server.mjs';

const ILLEGAL_OPERATION = 20;
const MAX_TIME_MS_EXPIRED = 50;
const SNAPSHOT_TOO_OLD = 239;
const RECOVER = ['--setParameter', 'recoverFromOplogAsStandalone=true'];
const KEEP = [...RECOVER, '--setParameter', 'takeUnstableCheckpointOnShutdown=true'];
const RESTORE = [...KEEP, '--setParameter', 'startupRecoveryForRestore=true'];

describe('the data of a member', () => {
    let set, member, secondary, asMember, prepared, commitTimestamp, early;
    before(async () => {
        set = await startReplicaSet({ members: [{}, { priority: 0 }] });
        [member, secondary] = set.members;
        asMember = member.args;
        const client = await set.client();
        await client.db('admin').command({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 1 } });
        const db = client.db('restored');
        await db.collection('c').insertMany([{ _id: 1 }, { _id: 2 }], { writeConcern: { w: 'majority' } });
        await client.db('other').collection('c').insertOne({ _id: 1 }, { writeConcern: { w: 'majority' } });
        await db.collection('open').insertOne({ _id: 1, n: 0 }, { writeConcern: { w: 'majority' } });
        await member.stop();
        await member.start();
        await set.waitForPrimary();
        await set.command(secondary, { configureFailPoint: 'stopReplProducer', mode: 'alwaysOn' });
        const again = (await set.client()).db('restored');
        early = (await again.command({ insert: 'c', documents: [{ _id: 3 }] })).operationTime;
        await again.collection('c').createIndex({ a: 1 }, { commitQuorum: 1 });
        await again.collection('later').insertOne({ _id: 'later' });
        prepared = new RawSession(member);
        const updates = [{ q: { _id: 1 }, u: { $inc: { n: 1 } } }];
        await prepared.run({ update: 'open', updates, startTransaction: true, autocommit: false }, 1, 'restored');
        const reply = await prepared.run({ prepareTransaction: 1, autocommit: false, writeConcern: { w: 1 } }, 1, 'admin');
        assert.equal(reply.ok, 1, reply.errmsg);
        commitTimestamp = reply.prepareTimestamp;
        prepared.close();
    });
    after(() => set.remove());

    const startAs = async (args) => {
        await member.stop();
        member.args = args;
        await member.start();
        return (await member.client()).db('restored');
    };
    const ids = async (db, coll = 'c') => (await db.collection(coll).find().sort({ _id: 1 }).toArray()).map(({ _id }) => _id);

    const sawAll = async (db) => {
        assert.deepEqual(await ids(db), [1, 2, 3]);
        assert.deepEqual(await ids(db, 'later'), ['later']);
        assert.deepEqual((await db.collection('open').find().toArray()), [{ _id: 1, n: 0 }]);
        /* The prepared transaction is there. */
        const updates = [{ q: { _id: 1 }, u: { $inc: { n: 10 } } }];
        await fails(() => db.command({ update: 'open', updates, maxTimeMS: 300 }), MAX_TIME_MS_EXPIRED);
    };

    test('DUR-2: a standalone node sees what the last stable checkpoint has', async () => {
        const db = await startAs([]);
        assert.deepEqual(await ids(db), [1, 2]);
        assert.deepEqual(await ids(db, 'later'), []);
    });

    test('DUR-2: one that recovers from the oplog sees all, each time, and refuses every write', async () => {
        for (let round = 0; round < 2; round++) {
            const db = await startAs(RECOVER);
            await sawAll(db);
            const refused = [
                { insert: 'c', documents: [{ _id: 4 }] },
                { insert: 'new', documents: [{ _id: 4 }] },
                { update: 'c', updates: [{ q: { _id: 3 }, u: { $set: { a: 1 } } }] },
                { delete: 'c', deletes: [{ q: { _id: 3 }, limit: 1 }] },
                { create: 'new' },
                { drop: 'c' },
                { collMod: 'c', validationLevel: 'moderate' },
                { createIndexes: 'c', indexes: [{ key: { b: 1 }, name: 'b_1' }] },
                { dropIndexes: 'c', index: '*' },
            ];
            for (const command of refused) {
                const { writeErrors, ...reply } = await db.command(command).catch((error) => error);
                assert.equal(writeErrors?.[0].code ?? reply.code, ILLEGAL_OPERATION, JSON.stringify(command));
            }
            await fails(() => db.client.db('other').command({ dropDatabase: 1 }), ILLEGAL_OPERATION);
            assert.deepEqual(await ids(db), [1, 2, 3]);
            assert.equal((await db.command({ validate: 'c' })).valid, true);
            for (const name of ['recoverFromOplogAsStandalone', 'takeUnstableCheckpointOnShutdown'])
                await assert.rejects(db.admin().command({ setParameter: 1, [name]: false }));
        }
    });

    test('DUR-2: nothing of it stays, a kill included', async () => {
        await startAs(RECOVER);
        await member.kill();
        member.args = [];
        await member.start();
        const db = (await member.client()).db('restored');
        assert.deepEqual(await ids(db), [1, 2]);
    });

    test('DUR-2: what is kept is there for every later start, and as a member the prepared transaction can be committed', async () => {
        for (const args of [KEEP, RESTORE, [], RECOVER]) {
            const db = await startAs(args);
            assert.deepEqual(await ids(db), [1, 2, 3], args.join(' '));
            if (args.length > 0) await sawAll(db);
        }
        await startAs(asMember);
        await set.waitForPrimary();
        await set.command(secondary, { configureFailPoint: 'stopReplProducer', mode: 'off' });
        const db = (await set.client()).db('restored');
        const readConcern = { level: 'snapshot', atClusterTime: early };
        await fails(() => db.command({ find: 'c', readConcern }), SNAPSHOT_TOO_OLD);
        const commit = { commitTransaction: 1, commitTimestamp, autocommit: false, writeConcern: { w: 'majority' } };
        assert.equal((await prepared.run(commit, 1, 'admin')).ok, 1);
        prepared.close();
        await db.collection('c').insertOne({ _id: 4 }, { writeConcern: { w: 2 } });
        for (const each of set.members) {
            const reader = (await set.direct(each)).db('restored');
            assert.deepEqual(await reader.collection('open').find().toArray(), [{ _id: 1, n: 1 }]);
            assert.deepEqual(await ids(reader), [1, 2, 3, 4]);
            assert.deepEqual((await reader.collection('c').indexes()).map(({ name }) => name), ['_id_', 'a_1']);
        }
    });
});

test('recoverFromOplogAsStandalone needs an oplog, and a node that is no member; the others need it', async () => {
    const dbpath = makeTempDir();
    const set = (name) => ['--setParameter', `${name}=true`];
    const refused = [
        [RECOVER, /no oplog/],
        [[...RECOVER, '--replSet', 'rs0'], /standalone/],
        [set('takeUnstableCheckpointOnShutdown'), /needs recoverFromOplogAsStandalone/],
        [[...RECOVER, ...set('startupRecoveryForRestore')], /takeUnstableCheckpointOnShutdown/],
    ];
    for (const [args, why] of refused) {
        const { code, stderr } = await runToEnd(['serve', '--dbpath', dbpath, '--port', '0', ...args]);
        assert.notEqual(code, 0);
        assert.match(stderr, why);
    }
    const node = await new Server({ dbpath }).start(); // nothing was left behind
    await node.remove();
    removeTempDir(dbpath);
});
