/* Logical sessions and retryable writes, on replica sets of one and of three members. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Long, Timestamp, UUID } from 'mongodb';
import { fails, isClientClosed } from '../lib/expect.mjs';
import { RawSession, runBare } from '../lib/raw_session.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { startServer, waitFor } from '../lib/server.mjs';

/* Labels, as a list. */
const labels = (reply) => reply.errorLabels ?? [];

describe('one member', () => {
    let set, member, client, db, made = 0;
    const sessions = [];
    const newSession = (id) => {
        const session = new RawSession(member, id);
        sessions.push(session);
        return session;
    };
    const newName = () => `c${++made}`;

    before(async () => {
        set = await startReplicaSet({ members: 1 });
        member = set.members[0];
        client = await set.client();
        db = client.db('test');
    });
    after(async () => {
        for (const session of sessions) session.close();
        await set?.remove();
    });

    test('SES-3 an insert is done once, also in parts', async () => {
        const c = newName();
        const s = newSession();
        const insert = (...ids) => ({ insert: c, documents: ids.map((_id) => ({ _id })) });
        assert.deepEqual(await s.twice(insert(1, 2), 1), [
            { n: 2, ok: 1 },
            { n: 2, retriedStmtIds: [0, 1], ok: 1 },
        ]);
        // Statements are known by their number, not by what they say.
        assert.deepEqual(await s.run(insert(1, 2, 3, 4), 1), { n: 4, retriedStmtIds: [0, 1], ok: 1 });
        assert.equal(await db.collection(c).countDocuments(), 4);
        assert.deepEqual(await s.run({ ...insert(3), stmtId: 3 }, 1), {
            n: 1, retriedStmtIds: [3], ok: 1,
        });
        assert.deepEqual(await s.run({ ...insert(9, 10), stmtIds: [2, 7] }, 1), {
            n: 2, retriedStmtIds: [2], ok: 1,
        });
        assert.deepEqual(
            (await db.collection(c).find().sort({ _id: 1 }).toArray()).map((d) => d._id),
            [1, 2, 3, 4, 10],
        );
    });

    test('SES-3 what failed is tried again, what was done is not', async () => {
        const c = newName();
        const s = newSession();
        await db.collection(c).insertOne({ _id: 2 });
        const insert = (ordered) => ({
            insert: c, documents: [{ _id: 1 }, { _id: 2 }, { _id: 3 }], ordered,
        });
        const ordered = await s.run(insert(true), 1);
        assert.deepEqual([ordered.n, ordered.writeErrors.length], [1, 1]);
        const unordered = await s.run(insert(false), 1);
        assert.deepEqual(
            [unordered.n, unordered.retriedStmtIds, unordered.writeErrors[0].index],
            [2, [0], 1],
        );
        const last = await s.run(insert(true), 1);
        assert.deepEqual([last.n, last.retriedStmtIds, last.writeErrors[0].index], [1, [0], 1]);
        await db.collection(c).deleteOne({ _id: 2 });
        assert.deepEqual(await s.run(insert(true), 1), { n: 3, retriedStmtIds: [0, 2], ok: 1 });
    });

    test('SES-3 a capped collection keeps its retries', async () => {
        const c = newName();
        await db.createCollection(c, { capped: true, size: 4096, max: 3 });
        const s = newSession();
        const insert = { insert: c, documents: [1, 2, 3, 4, 5].map((_id) => ({ _id })) };
        const [first, second] = await s.twice(insert, 1);
        assert.deepEqual([first.n, second.n, second.retriedStmtIds], [5, 5, [0, 1, 2, 3, 4]]);
        assert.deepEqual((await db.collection(c).find().toArray()).map((d) => d._id), [3, 4, 5]);
    });

    test('SES-3 updates and deletes are done once', async () => {
        const c = newName();
        const s = newSession();
        await db.collection(c).insertMany([{ _id: 1, n: 0 }, { _id: 2 }, { _id: 3 }]);
        const update = {
            update: c,
            updates: [
                { q: { _id: 1 }, u: { $inc: { n: 1 } } },
                { q: { _id: 8 }, u: { $inc: { n: 1 } }, upsert: true },
                { q: { _id: 77 }, u: { $inc: { n: 1 } } },
            ],
        };
        const done = { n: 2, upserted: [{ index: 1, _id: 8 }], nModified: 1 };
        assert.deepEqual(await s.twice(update, 5), [
            { ...done, ok: 1 },
            { ...done, retriedStmtIds: [0, 1], ok: 1 },
        ]);
        const remove = { delete: c, deletes: [{ q: {}, limit: 1 }, { q: {}, limit: 1 }] };
        assert.deepEqual(await s.twice(remove, 6), [
            { n: 2, ok: 1 },
            { n: 2, retriedStmtIds: [0, 1], ok: 1 },
        ]);
        assert.deepEqual(await db.collection(c).find().toArray(), [{ _id: 3 }, { _id: 8, n: 1 }]);
    });

    test('SES-3 a findAndModify returns the same document again', async () => {
        const c = newName();
        const s = newSession();
        await db.collection(c).insertMany([{ _id: 1, n: 0, x: 'a' }, { _id: 2, n: 5 }]);
        const cases = [
            [{ query: { _id: 1 }, update: { $inc: { n: 1 } } }, { _id: 1, n: 0, x: 'a' }],
            [{ query: { _id: 1 }, update: { $inc: { n: 1 } }, new: true }, { _id: 1, n: 2, x: 'a' }],
            [{ query: { _id: 1 }, update: { $inc: { n: 1 } }, fields: { n: 1, _id: 0 } }, { n: 2 }],
            [{ query: { _id: 9 }, update: { $set: { n: 9 } }, upsert: true }, null],
            [
                { query: { _id: 10 }, update: { $set: { n: 9 } }, upsert: true, new: true },
                { _id: 10, n: 9 },
            ],
            [{ query: { n: 5 }, remove: true }, { _id: 2, n: 5 }],
            [{ query: { n: 12345 }, remove: true }, null],
        ];
        for (const [i, [rest, value]] of cases.entries()) {
            const [first, second] = await s.twice({ findAndModify: c, ...rest }, 10 + i);
            assert.deepEqual(first.value, value, JSON.stringify(rest));
            const { retriedStmtId, ...again } = second;
            assert.deepEqual(again, first);
            assert.equal(retriedStmtId, first.lastErrorObject.n === 1 ? 0 : undefined);
        }
        assert.deepEqual(await db.collection(c).findOne({ _id: 1 }), { _id: 1, n: 3, x: 'a' });
    });

    test('SES-3 a retry must be of the same kind', async () => {
        const c = newName();
        const s = newSession();
        await db.collection(c).insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
        const code = async (command, n) => (await s.run(command, n)).code;
        const modify = (rest) => ({ findAndModify: c, query: { _id: 1 }, ...rest });
        await s.run({ delete: c, deletes: [{ q: { _id: 3 }, limit: 1 }] }, 1);
        assert.equal(await code({ update: c, updates: [{ q: {}, u: { $inc: { n: 1 } } }] }, 1), 40638);
        assert.equal(await code(modify({ update: { n: 1 } }), 1), 40606);
        await s.run({ insert: c, documents: [{ _id: 4 }] }, 2);
        assert.equal(await code(modify({ update: { n: 1 } }), 2), 40608);
        await s.run(modify({ update: { $inc: { n: 1 } } }), 3);
        assert.equal(await code(modify({ remove: true }), 3), 40609);
        assert.equal(await code(modify({ update: { $inc: { n: 1 } }, new: true }), 3), 40611);
        await s.run(modify({ update: { $inc: { n: 1 } }, new: true }), 4);
        assert.equal(await code(modify({ update: { $inc: { n: 1 } } }), 4), 40610);
    });

    test('SES-2 rules of transaction numbers', async () => {
        const c = newName();
        const s = newSession();
        const insert = (_id) => ({ insert: c, documents: [{ _id }] });
        await s.run(insert(1), 7);
        const cases = [
            [insert(2), 6, 225],
            [{ find: c }, 8, 50768],
            [{ ping: 1 }, 8, 50768],
            [{ update: c, updates: [{ q: {}, u: { $set: { a: 1 } }, multi: true }] }, 8, 72],
            [{ delete: c, deletes: [{ q: {}, limit: 0 }] }, 8, 72],
            [{ ...insert(3), autocommit: false, startTransaction: true }, 8, 117],
            [{ ...insert(3), stmtIds: [1, 2] }, 9, 16],
            [{ ...insert(3), stmtId: 1, stmtIds: [1] }, 9, 72],
            [insert(3), -1, 72],
        ];
        for (const [command, number, code] of cases) {
            const reply = await s.run(command, number);
            const found = reply.code ?? reply.writeErrors?.[0].code;
            assert.equal(found, code, JSON.stringify([command, reply]));
        }
        const wrong = await s.run({ ...insert(3), txnNumber: 5 });
        assert.equal(wrong.code, 14);
        assert.equal(await db.collection(c).countDocuments({ a: 1 }), 0);
    });

    test('SES-3 what a session did survives kill -9', async () => {
        const c = newName();
        const s = newSession();
        await db.collection(c).insertOne({ _id: 0, n: 0 });
        const update = (statements) => ({
            update: c,
            updates: Array.from({ length: statements }, () => ({ q: { _id: 0 }, u: { $inc: { n: 1 } } })),
            writeConcern: { w: 'majority' },
        });
        const modify = { findAndModify: c, query: { _id: 0 }, update: { $inc: { n: 100 } } };
        await s.run(update(5), 1);
        const other = newSession();
        const first = await other.run({ ...modify, writeConcern: { w: 'majority' } }, 3);
        s.close();
        other.close();
        await member.kill();
        await member.start();
        await set.waitForPrimary();
        client = await set.client();
        db = client.db('test');
        const again = await s.run(update(7), 1);
        assert.deepEqual(again, { n: 7, nModified: 7, retriedStmtIds: [0, 1, 2, 3, 4], ok: 1 });
        const { retriedStmtId, ...second } = await other.run(modify, 3);
        assert.deepEqual([retriedStmtId, second], [0, first]);
        assert.equal((await db.collection(c).findOne()).n, 107);
        assert.equal((await s.run(update(1), 0)).code, 225);
    });

    test('SES-2 a client that writes to config.transactions is believed', async () => {
        const c = newName();
        const s = newSession();
        const insert = { insert: c, documents: [{ a: 1 }] };
        await s.run(insert, 5);
        const table = client.db('config').collection('transactions');
        const row = await table.findOne({ '_id.id': s.lsid.id });
        assert.deepEqual(Number(row.txnNum), 5);
        assert.ok(row.lastWriteDate instanceof Date && row.lastWriteOpTime.ts !== undefined);
        await fails(table.deleteOne({ _id: row._id }), 40528);
        await fails(table.updateOne({ _id: row._id }, { $set: { txnNum: 9 } }), 40528);
        await fails(table.insertOne({ _id: 1 }), 40528);
        const deletes = [{ q: { _id: row._id }, limit: 1 }];
        await runBare(member, { delete: 'transactions', deletes }, 'config');
        assert.deepEqual(await s.run(insert, 5), { n: 1, ok: 1 });
        await client.db('config').dropCollection('transactions');
        assert.deepEqual(await s.run(insert, 5), { n: 1, ok: 1 });
        assert.deepEqual(await s.run(insert, 5), { n: 1, retriedStmtIds: [0], ok: 1 });
        assert.equal(await db.collection(c).countDocuments(), 3);
        await client.db('config').dropCollection('image_collection');
        const modify = { findAndModify: c, query: {}, update: { $set: { b: 1 } } };
        await s.run(modify, 6);
        await client.db('config').collection('image_collection').deleteMany({});
        assert.equal((await s.run(modify, 6)).code, 217);
    });

    test('SES-2 the tables of sessions keep their form', async () => {
        const config = client.db('config');
        const commands = [
            { createIndexes: 'transactions', indexes: [{ key: { a: 1 }, name: 'a' }] },
            { collMod: 'image_collection', validator: { a: 1 } },
            { convertToCapped: 'transactions', size: 4096 },
            { create: 'transactions', viewOn: 'x', pipeline: [] },
        ];
        for (const command of commands) await fails(config.command(command), 20);
        const rename = { renameCollection: 'config.transactions', to: 'config.x' };
        await fails(client.db('admin').command(rename), 20);
    });

    test('SES-2 operations of one session follow each other', async () => {
        const c = newName();
        const id = new UUID();
        await db.collection(c).insertOne({ _id: 1, n: 0 });
        const update = { update: c, updates: [{ q: { _id: 1 }, u: { $inc: { n: 1 } } }] };
        const racers = Array.from({ length: 8 }, () => newSession(id));
        for (let round = 1; round <= 10; round++) {
            const replies = await Promise.all(racers.map((s) => s.run(update, round)));
            assert.equal(replies.filter((r) => r.retriedStmtIds === undefined).length, 1);
            assert.ok(replies.every((r) => r.n === 1 && r.nModified === 1));
        }
        assert.equal((await db.collection(c).findOne()).n, 10);
    });

    const admin = (command) => client.db('admin').command(command);
    const recorded = async (id) =>
        (await client.db('config').collection('system.sessions').findOne({ '_id.id': id })) !== null;

    test('SES-1 sessions in use are recorded, ended ones are not', async () => {
        const s = newSession();
        const { id, timeoutMinutes } = await s.run({ startSession: 1 });
        assert.equal(timeoutMinutes, 30);
        const refreshed = new UUID();
        await s.run({ refreshSessions: [{ id: refreshed }] });
        await admin({ refreshLogicalSessionCacheNow: 1 });
        for (const one of [s.lsid.id, id.id, refreshed]) assert.ok(await recorded(one), `${one}`);
        const indexes = await client.db('config').collection('system.sessions').indexes();
        const ttl = indexes.find((index) => index.name === 'lsidTTLIndex');
        assert.deepEqual([ttl.key, ttl.expireAfterSeconds], [{ lastUse: 1 }, 1800]);
        await s.run({ endSessions: [{ id: refreshed }] });
        await admin({ refreshLogicalSessionCacheNow: 1 });
        assert.equal(await recorded(refreshed), false);
        assert.ok(await recorded(s.lsid.id));
        const status = (await admin({ serverStatus: 1 })).logicalSessionRecordCache;
        assert.ok(status.activeSessionsCount > 0 && status.sessionsCollectionJobCount >= 2);
        assert.equal(status.lastSessionsCollectionJobEntriesEnded, 1);
    });

    test('SES-1 cursors of sessions that are gone are closed', async () => {
        const c = newName();
        const s = newSession();
        const documents = Array.from({ length: 10 }, (_, i) => ({ _id: i }));
        await db.collection(c).insertMany(documents);
        const open = async () => (await s.run({ find: c, batchSize: 2 })).cursor.id;
        const more = async (id) =>
            (await newSession(s.lsid.id).run({ getMore: Long.fromBigInt(BigInt(id)), collection: c })).code;
        const first = await open();
        await s.run({ endSessions: [s.lsid] });
        await admin({ refreshLogicalSessionCacheNow: 1 });
        assert.equal(await more(first), 43);
        const second = await open();
        await admin({ killSessions: [s.lsid] });
        assert.equal(await more(second), 43);
        const third = await open();
        await admin({ killAllSessionsByPattern: [{ lsid: { id: new UUID() } }] });
        assert.equal(await more(third), undefined);
        const fourth = await open();
        await admin({ killAllSessions: [] });
        assert.equal(await more(fourth), 43);
        const fifth = await open();
        await admin({ refreshLogicalSessionCacheNow: 1 });
        await client.db('config').collection('system.sessions').deleteMany({ '_id.id': s.lsid.id });
        await admin({ refreshLogicalSessionCacheNow: 1 });
        assert.equal(await more(fifth), 43, 'its record was removed');
    });

    test('SES-1 operations of killed sessions end', async () => {
        for (const kill of [
            (lsid) => ({ killSessions: [lsid] }),
            (lsid) => ({ killAllSessionsByPattern: [{ lsid }] }),
            () => ({ killAllSessions: [] }),
        ]) {
            const s = newSession();
            await admin({
                configureFailPoint: 'failCommand', mode: { times: 1 },
                data: { failCommands: ['count'], blockConnection: true, blockTimeMS: 20_000 },
            });
            const running = s.run({ count: 'x' });
            const isSeen = async () => {
                const { inprog } = await admin({ currentOp: 1, 'lsid.id': s.lsid.id });
                return inprog.length > 0;
            };
            await waitFor(isSeen, { what: 'the operation' });
            await admin(kill(s.lsid));
            assert.equal((await running).code, 11601);
        }
    });

    test('SES-1 rows of sessions that are gone are reaped, with their images', async () => {
        const c = newName();
        await db.collection(c).insertOne({ _id: 1 });
        const table = client.db('config').collection('transactions');
        const images = client.db('config').collection('image_collection');
        const [gone, alive, young] = [newSession(), newSession(), newSession()];
        const modify = { findAndModify: c, query: { _id: 1 }, update: { $inc: { n: 1 } } };
        for (const s of [gone, alive, young]) await s.run(modify, 1);
        await admin({ refreshLogicalSessionCacheNow: 1 });
        const old = new Date(Date.now() - 3600_000);
        const updates = [gone, alive].map((s) => ({
            q: { '_id.id': s.lsid.id },
            u: { $set: { lastWriteDate: old } },
        }));
        await runBare(member, { update: 'transactions', updates }, 'config');
        await client.db('config').collection('system.sessions')
            .deleteMany({ '_id.id': { $in: [gone.lsid.id, young.lsid.id] } });
        await admin({ reapLogicalSessionCacheNow: 1 });
        const left = async (collection, s) => collection.countDocuments({ '_id.id': s.lsid.id });
        assert.deepEqual([await left(table, gone), await left(images, gone)], [0, 0]);
        assert.deepEqual([await left(table, alive), await left(images, alive)], [1, 1]);
        assert.deepEqual([await left(table, young), await left(images, young)], [1, 1]);
        assert.equal((await young.run(modify, 1)).retriedStmtId, 0);
    });

    test('SES-3 entries of the oplog carry what a retry needs', async () => {
        const c = newName();
        const s = newSession();
        await s.run({ insert: c, documents: [{ _id: 1 }, { _id: 2 }] }, 3);
        await s.run({ findAndModify: c, query: { _id: 1 }, remove: true }, 4);
        const oplog = client.db('local').collection('oplog.rs');
        const entries = await oplog.find({ 'lsid.id': s.lsid.id }).toArray();
        assert.deepEqual(
            entries.map((e) => [e.op, e.stmtId, Number(e.txnNumber), e.needsRetryImage]),
            [['i', 0, 3, undefined], ['i', 1, 3, undefined], ['d', 0, 4, 'preImage']],
        );
        assert.equal(entries[0].prevOpTime.ts.toString(), '0');
        assert.ok(entries[1].prevOpTime.ts.equals(entries[0].ts));
        assert.equal(entries[2].prevOpTime.ts.toString(), '0');
        assert.equal(entries[0].lsid.uid.length(), 32);
        const { t, i } = entries[2].ts;
        assert.equal(await oplog.countDocuments({ ts: new Timestamp({ t, i: i - 1 }) }), 0);
        const image = await client.db('config').collection('image_collection')
            .findOne({ '_id.id': s.lsid.id });
        assert.deepEqual([image.image, image.imageKind, image.invalidated],
            [{ _id: 1 }, 'preImage', false]);
        assert.ok(image.ts.equals(entries[2].ts));
    });

    test('error labels tell drivers what may be sent again', async () => {
        const c = newName();
        const s = newSession();
        const insert = { insert: c, documents: [{ a: 1 }] };
        const failing = async (data, run) => {
            await client.db('admin').command({
                configureFailPoint: 'failCommand', mode: { times: 1 },
                data: { failCommands: ['insert'], ...data },
            });
            return run();
        };
        const retryable = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
        for (const [i, code] of retryable.entries()) {
            const reply = await failing({ errorCode: code }, () => s.run(insert, i));
            assert.deepEqual(labels(reply), ['RetryableWriteError', 'NoWritesPerformed'], `${code}`);
        }
        let reply = await failing({ errorCode: 10107 }, () => s.run(insert));
        assert.deepEqual(labels(reply), []);
        reply = await failing({ errorCode: 2 }, () => s.run(insert, 50));
        assert.deepEqual(labels(reply), []);
        reply = await failing({ errorCode: 10107, errorLabels: [] }, () => s.run(insert, 51));
        assert.deepEqual(labels(reply), []);
        reply = await failing({ errorCode: 2, errorLabels: ['Foo'] }, () => s.run(insert, 52));
        assert.deepEqual(labels(reply), ['Foo']);
        const concern = { writeConcernError: { code: 91, errmsg: 'x' } };
        reply = await failing(concern, () => s.run(insert, 53));
        assert.deepEqual([reply.ok, reply.n, labels(reply)], [1, 1, ['RetryableWriteError']]);
        reply = await failing({ writeConcernError: { code: 64, errmsg: 'x' } }, () => s.run(insert, 54));
        assert.deepEqual(labels(reply), []);
    });
});

/* Writers that keep a ledger of what they were told, until stopped. */
class Load {
    #isOver = false;
    errors = [];
    ledger = []; // one per writer: {inserted, failed, counted, maybeCounted}

    constructor(collection, writers) {
        this.collection = collection;
        this.done = Promise.all(Array.from({ length: writers }, (_, w) => this.#write(w)));
    }

    async #attempt(operation) {
        try {
            await operation();
            return true;
        } catch (error) {
            this.errors.push(error);
            this.#isOver ||= isClientClosed(error);
            return false;
        }
    }

    async #write(w) {
        const own = { inserted: [], failed: [], counted: 0, maybeCounted: 0, total: 0 };
        this.ledger[w] = own;
        await this.collection.insertOne({ _id: `counter${w}`, n: 0 });
        for (let i = 0; !this.#isOver; i++) {
            const ids = [`w${w}.${i}.a`, `w${w}.${i}.b`];
            const documents = ids.map((_id) => ({ _id, w }));
            const isDone = await this.#attempt(() => this.collection.insertMany(documents));
            (isDone ? own.inserted : own.failed).push(...ids);
            const filter = { _id: `counter${w}` };
            const isCounted = await this.#attempt(async () => {
                const before = await this.collection.findOneAndUpdate(filter, { $inc: { n: 1 } });
                assert.ok(before.n >= own.counted, 'the image is not older than what was seen');
            });
            own.counted += isCounted;
            own.maybeCounted += !isCounted;
        }
    }

    get writes() {
        return this.ledger.reduce((sum, own) => sum + own.inserted.length + own.counted, 0);
    }

    async waitForWrites(count) {
        const from = this.writes;
        await waitFor(() => this.writes > from + count, { timeoutMs: 30_000, what: 'writes' });
    }

    async stop() {
        this.#isOver = true;
        await this.done;
    }

    /* Everything that was acknowledged is there once, everything else at most once. */
    async check() {
        for (const [w, own] of this.ledger.entries()) {
            const found = new Set();
            for await (const { _id } of this.collection.find({ w })) found.add(_id);
            const lost = own.inserted.filter((id) => !found.has(id));
            assert.deepEqual(lost, [], 'acknowledged inserts that are gone');
            const known = new Set([...own.inserted, ...own.failed]);
            assert.deepEqual([...found].filter((id) => !known.has(id)), []);
            const { n } = await this.collection.findOne({ _id: `counter${w}` });
            assert.ok(
                n >= own.counted && n <= own.counted + own.maybeCounted,
                `counter ${w}: ${n}, acknowledged ${own.counted}, unknown ${own.maybeCounted}`,
            );
        }
    }
}

describe('three members', () => {
    let set;
    before(async () => {
        set = await startReplicaSet({ members: 3 });
    });
    after(async () => set?.remove());

    test('SES-3 a retry that goes to the next primary is answered by it', async () => {
        const primary = await set.waitForPrimary();
        const first = new RawSession(primary);
        const images = new RawSession(primary);
        const majority = { writeConcern: { w: 'majority' } };
        const insert = {
            insert: 'moved', documents: [1, 2, 3].map((_id) => ({ _id, n: 0 })), ...majority,
        };
        const modify = {
            findAndModify: 'moved', query: { _id: 1 }, update: { $inc: { n: 1 } }, new: true,
            ...majority,
        };
        assert.equal((await first.run(insert, 4)).n, 3);
        const original = await images.run(modify, 9);
        const next = await set.stepDown();
        const refused = await first.run({ ...insert, documents: [{ _id: 9 }] }, 5);
        assert.deepEqual([refused.ok, refused.code], [0, 10107]);
        assert.deepEqual(labels(refused), ['RetryableWriteError', 'NoWritesPerformed']);
        const second = new RawSession(next, first.lsid.id);
        const imagesAgain = new RawSession(next, images.lsid.id);
        assert.deepEqual(await second.run(insert, 4), { n: 3, retriedStmtIds: [0, 1, 2], ok: 1 });
        assert.deepEqual(await imagesAgain.run(modify, 9), { ...original, retriedStmtId: 0 });
        assert.equal((await second.run(insert, 3)).code, 225);
        for (const session of [first, images, second, imagesAgain]) session.close();
    });

    test('SES-3 a planned step-down under load: no error, every write once', async () => {
        const client = await set.client({ retryWrites: true, w: 'majority' });
        const load = new Load(client.db('test').collection('planned'), 6);
        try {
            for (let round = 0; round < 3; round++) {
                await load.waitForWrites(100);
                await set.stepDown();
            }
            await load.waitForWrites(100);
        } finally {
            await load.stop();
        }
        assert.deepEqual(load.errors.map((error) => error.message), []);
        await load.check();
    });

    test('SES-3 kill -9 of the primary under load: every write once', async () => {
        const client = await set.client({ retryWrites: true, w: 'majority' });
        const load = new Load(client.db('test').collection('killed'), 6);
        try {
            for (let round = 0; round < 2; round++) {
                await load.waitForWrites(100);
                const victim = await set.waitForPrimary();
                await victim.kill();
                await set.waitForPrimary({ other: victim });
                await victim.start();
                await set.waitForSecondaries();
            }
            await load.waitForWrites(100);
        } finally {
            await load.stop();
        }
        await load.check();
        await set.waitForReplication();
    });

    test('SES-1 a secondary has its sessions recorded by the primary', async () => {
        const [secondary] = await set.secondaries();
        const session = new RawSession(secondary);
        await session.run({ ping: 1 });
        await set.command(secondary, { refreshLogicalSessionCacheNow: 1 });
        session.close();
        const client = await set.client();
        const sessions = client.db('config').collection('system.sessions');
        assert.equal(await sessions.countDocuments({ '_id.id': session.lsid.id }), 1);
    });

    test('SES-3 rows of sessions and images are the same everywhere', async () => {
        await set.waitForReplication();
        const read = async (member, name) => {
            const client = await set.direct(member, { readPreference: 'secondaryPreferred' });
            return client.db('config').collection(name).find().sort({ _id: 1 }).toArray();
        };
        for (const name of ['transactions', 'image_collection']) {
            const all = await Promise.all(set.members.map((member) => read(member, name)));
            assert.ok(all[0].length > 0);
            assert.deepEqual(all[1], all[0], name);
            assert.deepEqual(all[2], all[0], name);
        }
    });
});

test('$listLocalSessions knows who has used the node, also a standalone one', async () => {
    const server = await startServer();
    let wire;
    try {
        const admin = (await server.client()).db('admin');
        const list = async (spec = {}) =>
            (await admin.aggregate([{ $listLocalSessions: spec }]).toArray()).map(({ _id }) => _id.id.toString());
        const { id } = await admin.command({ startSession: 1 });
        const session = new RawSession(server);
        assert.equal((await session.run({ ping: 1 })).ok, 1);
        wire = session.wire;
        const used = session.lsid.id.toString();
        assert.ok((await list()).includes(id.id.toString()));
        assert.ok((await list({ allUsers: true })).includes(used));
        assert.deepEqual(await list({ users: [] }), []);
        await fails(list({ foo: 1 }), 40415);
        await fails(list({ allUsers: 1 }), 14);
        await fails(list({ allUsers: true, users: [] }), 12);
        await admin.command({ refreshLogicalSessionCacheNow: 1 });
        const stored = await (await server.client()).db('config').collection('system.sessions').find().toArray();
        assert.ok(stored.some(({ _id }) => _id.id.toString() === used));
        await admin.command({ endSessions: [session.lsid] });
        assert.ok(!(await list()).includes(used));
        await admin.command({ refreshLogicalSessionCacheNow: 1 });
        const { logicalSessionRecordCache } = await admin.command({ serverStatus: 1 });
        assert.equal(logicalSessionRecordCache.lastSessionsCollectionJobEntriesEnded, 1);
    } finally {
        wire?.close();
        await server.remove();
    }
});
