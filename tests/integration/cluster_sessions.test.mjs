/*
 * Goal (SES-1): routers and shards have one record of the sessions that are in use, on the config server; what belongs to sessions that
 * are gone ends on routers as well. Method: real processes; rounds are run by hand.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Long } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { RawSession } from '../lib/raw_session.mjs';

describe('sessions of a cluster', () => {
    let cluster;
    let client;
    const refresh = { refreshLogicalSessionCacheNow: 1 };
    const record = () => client.db('config').collection('system.sessions');
    const isRecorded = async ({ lsid }) => (await record().findOne({ '_id.id': lsid.id })) !== null;

    before(async () => {
        cluster = await startCluster({ routers: 2, shardArgs: ['--setParameter', 'TransactionRecordMinimumLifetimeMinutes=-1'] });
        client = await cluster.client();
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
        await cluster.admin({ shardCollection: 'd.c', key: { k: 1 } });
        await client.db('d').collection('c').insertMany(Array.from({ length: 20 }, (_, k) => ({ k })));
    });
    after(() => cluster?.remove());

    test('SES-1: what is in use at any router or shard is recorded once, and shown by all routers', async () => {
        const sessions = [cluster.routers[0], cluster.routers[1], cluster.shards[1].members[0]].map((server) => new RawSession(server));
        for (const session of sessions) await session.run({ ping: 1 });
        for (const session of sessions) assert.equal(await isRecorded(session), false);
        for (const router of cluster.routers) await cluster.admin(refresh, router);
        await cluster.shards[1].command(cluster.shards[1].members[0], refresh);
        for (const session of sessions) assert.ok(await isRecorded(session));
        const listed = await (await cluster.client({}, cluster.routers[1])).db('config').collection('system.sessions')
            .aggregate([{ $listSessions: { allUsers: true } }]).toArray();
        for (const { lsid } of sessions) assert.equal(listed.filter(({ _id }) => _id.id.equals(lsid.id)).length, 1);
        await sessions[0].run({ endSessions: [sessions[0].lsid] });
        await cluster.admin(refresh);
        assert.deepEqual([await isRecorded(sessions[0]), await isRecorded(sessions[1])], [false, true]);
        const { logicalSessionRecordCache: status } = await cluster.admin({ serverStatus: 1 });
        assert.ok(status.sessionsCollectionJobCount >= 2 && status.activeSessionsCount > 0);
        for (const session of sessions) session.close();
    });

    test('SES-1: a cursor of a router is closed when its session is gone from the record, and not before', async () => {
        const session = new RawSession(cluster.routers[0]);
        const { cursor } = await session.run({ find: 'c', batchSize: 2 }, undefined, 'd');
        session.close();
        const more = async () => {
            const other = new RawSession(cluster.routers[0], session.lsid.id);
            const { code } = await other.run({ getMore: Long.fromBigInt(BigInt(cursor.id)), collection: 'c', batchSize: 2 }, undefined, 'd');
            other.close();
            return code;
        };
        await cluster.admin(refresh);
        await cluster.admin(refresh);
        assert.equal(await more(), undefined);
        await cluster.admin(refresh);
        await record().deleteOne({ '_id.id': session.lsid.id }); // as when it expires
        await cluster.admin(refresh);
        assert.equal(await more(), 43);
    });

    test('SES-1: a shard keeps the history of a session that is in use elsewhere', async () => {
        const [shard] = cluster.shards;
        const [member] = shard.members;
        const sessions = [new RawSession(cluster.routers[0]), new RawSession(cluster.routers[0])];
        for (const [i, session] of sessions.entries())
            await session.run({ insert: 'c', documents: [{ k: 100 + i }] }, 1, 'd');
        await cluster.admin(refresh);
        await record().deleteOne({ '_id.id': sessions[1].lsid.id });
        const rows = (await shard.direct(member)).db('config').collection('transactions');
        const has = async ({ lsid }) => (await rows.countDocuments({ '_id.id': lsid.id })) === 1;
        assert.deepEqual([await has(sessions[0]), await has(sessions[1])], [true, true]);
        await shard.command(member, { reapLogicalSessionCacheNow: 1 });
        assert.deepEqual([await has(sessions[0]), await has(sessions[1])], [true, false]);
        for (const session of sessions) session.close();
    });
});
