/*
 * Goal (RTE-6, OPS-1): the read and write concern of a whole cluster are set and shown through any router, kept by the config server, and
 * applied by all routers to commands that give none; a router has no profiler, but takes the settings of slow operations.
 *
 * Method: shards tell by a write concern that cannot be satisfied, and by their profiler, what they were sent.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';
import { waitFor } from '../lib/server.mjs';

const BAD_VALUE = 2;
const TYPE_MISMATCH = 14;
const FAILED_TO_PARSE = 9;
const ILLEGAL_OPERATION = 20;
const NOT_ON_SHARD = 51301;
const CANNOT_SATISFY = 100; // the shards have one member each

let cluster;
let client;
let db;

before(async () => {
    cluster = await startCluster({ shards: 2, routers: 2 });
    client = await cluster.client();
    db = client.db('d');
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    await cluster.admin({ shardCollection: 'd.spread', key: { k: 'hashed' } });
    await db.collection('spread').insertMany([...Array(20).keys()].map((k) => ({ k })));
});
after(() => cluster?.remove());

const set = (concerns, router) => cluster.admin({ setDefaultRWConcern: 1, ...concerns }, router);
const get = (more = {}, router) => cluster.admin({ getDefaultRWConcern: 1, ...more }, router);
const onShard = async (i) => cluster.shards[i].direct(await cluster.shards[i].waitForPrimary());

/* What shard0 was sent, by its profiler. */
async function sentTo(comment, run) {
    const shard = (await onShard(0)).db('d');
    await shard.command({ profile: 2 });
    try {
        await run();
    } finally {
        await shard.command({ profile: 0 });
    }
    return (await shard.collection('system.profile').findOne({ 'command.comment': comment }))?.command;
}

describe('default concerns through routers', () => {
    test('are implicit at first', async () => {
        const reply = await get();
        assert.equal(reply.defaultReadConcernSource, 'implicit');
        assert.equal(reply.defaultWriteConcernSource, 'implicit');
        assert.deepEqual(reply.defaultReadConcern, { level: 'local' });
        assert.equal(reply.defaultWriteConcern.w, 'majority');
        assert.ok(reply.localUpdateWallClockTime instanceof Date);
        assert.equal(reply.updateOpTime, undefined);
        assert.equal((await get({ inMemory: true })).inMemory, true);
        const sent = await sentTo('plain', () => db.collection('c').insertOne({}, { comment: 'plain' }));
        assert.equal(sent.writeConcern, undefined);
    });

    test('are refused as a node would', async () => {
        await fails(get({ inMemory: 'true' }), TYPE_MISMATCH);
        await fails(set({}), BAD_VALUE);
        await fails(set({ defaultWriteConcern: 1 }), TYPE_MISMATCH);
        await fails(set({ defaultWriteConcern: { w: 0 } }), BAD_VALUE);
        await fails(set({ defaultReadConcern: 1 }), TYPE_MISMATCH);
        await fails(set({ defaultReadConcern: { level: 'dummy' } }), FAILED_TO_PARSE);
        await fails(set({ defaultReadConcern: { level: 'snapshot' } }), BAD_VALUE);
        await fails(set({ defaultReadConcern: { level: 'local', provenance: 'clientSupplied' } }), BAD_VALUE);
        const shard = (await onShard(0)).db('admin');
        await fails(shard.command({ getDefaultRWConcern: 1 }), NOT_ON_SHARD);
        await fails(shard.command({ setDefaultRWConcern: 1, defaultReadConcern: { level: 'local' } }), NOT_ON_SHARD);
    });

    test('a write concern applies to writes that give none, of whatever kind', async () => {
        const reply = await set({ defaultWriteConcern: { w: 2 } });
        assert.equal(reply.defaultWriteConcern.w, 2);
        assert.equal(reply.defaultWriteConcernSource, 'global');
        assert.ok(reply.updateOpTime && reply.updateWallClockTime instanceof Date);
        const stored = await client.db('config').collection('settings').findOne({ _id: 'ReadWriteConcernDefaults' });
        assert.equal(stored.defaultWriteConcern.w, 2);
        const commands = [
            { insert: 'c', documents: [{}] },
            { insert: 'spread', documents: [{ k: 1 }, { k: 2 }, { k: 3 }, { k: 4 }] },
            { update: 'spread', updates: [{ q: {}, u: { $set: { a: 1 } }, multi: true }] },
            { delete: 'c', deletes: [{ q: { never: 1 }, limit: 1 }] },
            { findAndModify: 'c', query: {}, update: { $set: { a: 1 } } },
            { aggregate: 'c', pipeline: [{ $out: 'made' }], cursor: {} },
        ];
        for (const command of commands) {
            const told = await db.command(command).then(
                ({ writeConcernError }) => writeConcernError?.code,
                (error) => error.code ?? error.errorResponse?.code,
            );
            assert.equal(told, CANNOT_SATISFY, JSON.stringify(command));
            await db.command({ ...command, writeConcern: { w: 1 } });
        }
        /* What is given besides `w` stays as it was given. */
        const sent = await sentTo('some', () =>
            db.command({ insert: 'c', documents: [{}], comment: 'some', writeConcern: { wtimeout: 1234 } }).catch(() => {}),
        );
        assert.equal(sent.writeConcern.w, 2);
        assert.equal(sent.writeConcern.wtimeout, 1234);
        assert.equal(sent.writeConcern.provenance, 'customDefault');
    });

    test('other routers follow within seconds; a write concern is not unset', async () => {
        const [, other] = cluster.routers;
        const there = (await cluster.client({}, other)).db('d');
        await waitFor(
            async () => (await there.command({ insert: 'c', documents: [{}] }).catch((error) => error)).code === CANNOT_SATISFY,
            { timeoutMs: 15_000, what: 'the default on another router' },
        );
        await fails(set({ defaultWriteConcern: {} }, other), ILLEGAL_OPERATION);
        await set({ defaultWriteConcern: { w: 1 } }, other);
        assert.equal((await get({ inMemory: true }, other)).defaultWriteConcern.w, 1);
        assert.equal((await get()).defaultWriteConcern.w, 1);
        assert.equal((await there.command({ insert: 'c', documents: [{}] })).ok, 1);
    });

    test('a read concern applies to reads that give none, and is unset', async () => {
        await set({ defaultReadConcern: { level: 'majority' } });
        const level = async (comment, more = {}) =>
            (await sentTo(comment, () => db.command({ find: 'spread', comment, ...more }))).readConcern?.level;
        assert.equal(await level('default'), 'majority');
        assert.equal(await level('given', { readConcern: { level: 'local' } }), 'local');
        const counted = await sentTo('count', () => db.command({ count: 'spread', comment: 'count' }));
        assert.equal(counted.readConcern.level, 'majority');
        await set({ defaultReadConcern: { level: 'available' } });
        assert.equal(await level('available'), 'available');
        /* A transaction has no such level; its statements have no write concern. */
        const session = client.startSession();
        await session.withTransaction(async () => {
            await db.collection('c').insertOne({ a: 1 }, { session });
            await db.collection('c').findOne({}, { session });
        });
        await session.endSession();
        const reply = await set({ defaultReadConcern: {} });
        assert.equal(reply.defaultReadConcernSource, 'implicit');
        assert.equal(await level('unset'), undefined);
    });

    test('a router that starts has them at once', async () => {
        await set({ defaultWriteConcern: { w: 2 } });
        const router = await cluster.addRouter();
        const there = (await cluster.client({}, router)).db('d');
        await fails(there.command({ insert: 'c', documents: [{}] }).then((reply) => {
            if (reply.writeConcernError) throw Object.assign(new Error('told'), reply.writeConcernError);
        }), CANNOT_SATISFY);
        await set({ defaultWriteConcern: { w: 1 } });
    });
});

describe('profile', () => {
    test('a router has levels 0 and -1 only, and the settings of slow operations', async () => {
        const first = await db.command({ profile: -1 });
        assert.equal(first.was, 0);
        assert.equal(first.slowms, 100);
        await fails(db.command({ profile: 1 }), BAD_VALUE);
        await fails(db.command({ profile: 2 }), BAD_VALUE);
        await db.command({ profile: 0, slowms: 77, sampleRate: 0.5 });
        const changed = await db.command({ profile: -1 });
        assert.equal(changed.slowms, 77);
        assert.equal(changed.sampleRate, 0.5);
        assert.equal((await (await onShard(0)).db('d').command({ profile: -1 })).slowms, 100, 'shards have their own');
        await db.command({ profile: 0, slowms: 100, sampleRate: 1 });
    });
});
