/*
 * Goal (REP-5): a change stream that a router has opened on the one shard which has all of what is watched ends with an error, by name, as soon as
 * that is not so any more: the collection is sharded, its database moves or goes. It never misses events silently.
 *
 * Method: raw commands, so that no driver resumes by itself. Streams are on primaries and, where a primary is killed, on secondaries.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Long } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { fails } from '../lib/expect.mjs';

const FATAL = 280;
const HISTORY_LOST = 286;
const NOT_IMPLEMENTED = 238;
const majority = { writeConcern: { w: 'majority' } };

class Stream {
    constructor(db, target, { stages = [], options = {}, readPreference = 'primary' } = {}) {
        const session = db.client.startSession();
        Object.assign(this, { db, target, stages, options, readPreference, session });
    }
    async open() {
        const reply = await this.db.command(
            { aggregate: this.target, pipeline: [{ $changeStream: this.options }, ...this.stages], cursor: {} },
            { readPreference: this.readPreference, session: this.session },
        );
        this.id = Long.fromValue(reply.cursor.id);
        this.collection = reply.cursor.ns.slice(reply.cursor.ns.indexOf('.') + 1);
        this.token = reply.cursor.postBatchResumeToken;
        this.early = reply.cursor.firstBatch;
        return this;
    }
    async more(maxTimeMS = 20_000) {
        const { cursor } = await this.db.command({ getMore: this.id, collection: this.collection, maxTimeMS }, { session: this.session });
        this.id = Long.fromValue(cursor.id);
        this.token = cursor.postBatchResumeToken ?? this.token;
        return cursor.nextBatch;
    }
    ended = (message) => fails(this.more(), FATAL, { message, labels: ['NonResumableChangeStreamError'] });
    /* A getMore that is under way: it waits, and is answered as soon as there is something. */
    wait() {
        const outcome = this.more().then((batch) => ({ batch }), (error) => ({ error }));
        return async (message) => {
            const { batch, error } = await outcome;
            assert.equal(batch, undefined);
            assert.equal(error.code, FATAL, error.message);
            assert.match(error.message, message);
        };
    }
}

const types = (events) => events.map(({ operationType }) => operationType);

describe('streams through routers', () => {
    let cluster;
    let db;
    let stale; // the same database through a router that is not told
    let number = 0;
    before(async () => {
        cluster = await startCluster({ members: 2, routers: 2 });
    });
    after(() => cluster?.remove());
    beforeEach(async () => {
        const name = `d${number++}`;
        await cluster.admin({ enableSharding: name, primaryShard: 'shard0' });
        db = (await cluster.client()).db(name);
        stale = (await cluster.client({}, cluster.routers[1])).db(name);
        await db.collection('c').insertOne({ _id: 0 }, majority);
        await stale.collection('c').findOne();
    });

    const now = async () => (await db.command({ find: 'c' })).operationTime;
    const open = (target = 'c', use = {}, on = db) => new Stream(on, target, use).open();
    const shard = (coll) => cluster.admin({ shardCollection: `${db.databaseName}.${coll}`, key: { _id: 1 } });
    const move = (to = 'shard1') => cluster.admin({ movePrimary: db.databaseName, to });

    test('one of a collection that is sharded gives what happened before, and ends', async () => {
        const stream = await open();
        await db.collection('c').insertMany([{ _id: 1 }, { _id: 2 }], majority);
        await shard('c');
        await db.collection('c').insertOne({ _id: 3 }, majority);
        assert.deepEqual(types(await stream.more()), ['insert', 'insert']);
        await stream.ended(/has been sharded/);
        await fails(open(), NOT_IMPLEMENTED);
        await fails(open('c', { options: { resumeAfter: stream.token } }), NOT_IMPLEMENTED);
    });

    test('one that waits, or that shows nothing, ends at once, also of the database', async () => {
        const waiting = (await open()).wait();
        const picky = (await open('c', { stages: [{ $match: { operationType: 'none' } }] })).wait();
        const ofDatabase = (await open(1)).wait();
        const secondary = (await open('c', { readPreference: 'secondary' })).wait();
        const other = await open('other');
        await shard('c');
        for (const ended of [waiting, picky, ofDatabase, secondary]) await ended(/has been sharded/);
        await db.collection('other').insertOne({}, majority);
        assert.deepEqual(types(await other.more()), ['insert']);
    });

    test('after a drop the name may be watched anew, but not across the time when it was sharded', async () => {
        const before = await now();
        await db.collection('c').insertOne({ _id: 1 }, majority);
        await shard('c');
        await db.collection('c').drop();
        const operationTime = await now();
        await db.collection('c').insertOne({ _id: 2 }, majority);
        const since = await open('c', { options: { startAtOperationTime: operationTime } });
        assert.deepEqual(types([...since.early, ...(since.early.length > 0 ? [] : await since.more())]), ['insert']);
        const across = await open('c', { options: { startAtOperationTime: before } });
        if (across.early.length === 0) assert.deepEqual(types(await across.more()), ['insert']);
        await across.ended(/has been sharded/);
    });

    test('one of a database that moves ends; it goes on anew where the database is, not from before', async () => {
        const streams = [await open(), await open(1), await open('c', { readPreference: 'secondary' })];
        await db.collection('c').insertOne({ _id: 1 }, majority);
        const waiting = [];
        for (const stream of streams) {
            assert.deepEqual(types(await stream.more()), ['insert']);
            waiting.push(stream.wait());
        }
        const operationTime = await now();
        await move();
        for (const ended of waiting) await ended(/has moved/);
        await fails(open('c', { options: { resumeAfter: streams[0].token } }), HISTORY_LOST);
        await fails(open('c', { options: { startAtOperationTime: operationTime } }), HISTORY_LOST);
        for (const on of [db, stale]) {
            const anew = await open('c', {}, on);
            await db.collection('c').insertOne({}, majority);
            assert.deepEqual(types(await anew.more()), ['insert']);
        }
        await move('shard0');
        const back = await open();
        await db.collection('c').insertOne({}, majority);
        assert.deepEqual(types(await back.more()), ['insert']);
    });

    test('one of a collection that never was ends when its database is dropped, since that may be elsewhere afterwards', async () => {
        const waiting = (await open('later')).wait();
        await db.dropDatabase();
        await waiting(/has been dropped/);
        await cluster.admin({ enableSharding: db.databaseName, primaryShard: 'shard1' });
        const anew = await open('later');
        await db.collection('later').insertOne({}, majority);
        assert.deepEqual(types(await anew.more()), ['insert']);
    });

    test('a dropped database is told by events, and a stream starts after them', async () => {
        const stream = await open(1);
        await db.dropDatabase();
        const events = [];
        while (!stream.id.isZero()) events.push(...(await stream.more()));
        assert.deepEqual(types(events), ['drop', 'dropDatabase', 'invalidate']);
        await cluster.admin({ enableSharding: db.databaseName, primaryShard: 'shard0' });
        await db.collection('c').insertOne({}, majority);
        const next = await open(1, { options: { startAfter: events.at(-1)._id } });
        const found = [...next.early];
        if (found.length === 0) found.push(...(await next.more()));
        assert.deepEqual(types(found), ['insert']);
    });

    test('a router that does not know that a collection was sharded opens none', async () => {
        await open('c', {}, stale);
        await shard('c');
        await fails(open('c', {}, stale), NOT_IMPLEMENTED);
        await fails(open(1, {}, stale), NOT_IMPLEMENTED);
    });

    test('one whose shard cannot be reached says that it can be resumed', async () => {
        const RESUMABLE = ['ResumableChangeStreamError'];
        const [set] = cluster.shards;
        const primary = await set.waitForPrimary();
        const breaks = (mode, failCommands) =>
            set.command(primary, {
                configureFailPoint: 'failCommand',
                mode,
                ...(mode !== 'off' && { data: { failCommands, closeConnection: true, failInternalCommands: true } }),
            });
        const stream = await open('c');
        const session = db.client.startSession();
        const { cursor } = await db.command({ find: 'c', batchSize: 0 }, { session });
        await breaks('alwaysOn', ['getMore', 'aggregate']);
        await fails(stream.more(), 6, { labels: RESUMABLE });
        await fails(open('c'), 6, { labels: RESUMABLE });
        await fails(db.command({ getMore: Long.fromValue(cursor.id), collection: 'c' }, { session }), 6, { lacks: RESUMABLE });
        await fails(db.command({ aggregate: 'c', pipeline: [], cursor: {} }), 6, { lacks: RESUMABLE });
        await breaks('off');
        const router = (mode, errorCode) => cluster.admin({ configureFailPoint: 'failGetMoreAfterCursorCheckout', mode, ...(errorCode && { data: { errorCode } }) });
        for (const [code, what] of [[91, 'labels'], [9, 'lacks']]) {
            const other = await open('c');
            await router('alwaysOn', code);
            await fails(other.more(), code, { [what]: RESUMABLE });
            await router('off');
        }
    });

    test('one that a client of the node has opened goes on', async () => {
        const node = await cluster.shards[0].direct(await cluster.shards[0].waitForPrimary());
        const stream = await open('c', {}, node.db(db.databaseName));
        await shard('c');
        await db.collection('c').insertOne({ _id: 1 }, majority);
        assert.deepEqual(types(await stream.more()), ['insert']);
    });

    for (const [name, run, message] of [
        ['shardCollection', () => shard('c'), /has been sharded/],
        ['movePrimary', () => move(), /has moved/],
        ['dropDatabase', () => db.dropDatabase(), /has been dropped/],
    ])
        for (const point of ['ddl.marked', 'task.afterRun'])
            test(`a primary that dies at ${point} of ${name} leaves no stream that goes on`, async () => {
                const [set] = cluster.shards;
                const primary = await set.waitForPrimary();
                const target = name === 'dropDatabase' ? 'later' : 'c';
                const waiting = (await open(target, { readPreference: 'secondary' })).wait();
                const at = { shardCollection: 'create.commit', movePrimary: 'movePrimary.commit', dropDatabase: 'dbdrop.commit' }[name];
                await set.command(primary, {
                    configureFailPoint: point,
                    mode: { times: 1 },
                    data: { crash: true, ...(point === 'task.afterRun' && { at }) },
                });
                const outcome = run().catch((error) => error);
                await primary.waitEnd();
                await primary.start();
                await waiting(message);
                await outcome;
                await set.waitForPrimary();
                await set.waitForSecondaries();
            });
});
