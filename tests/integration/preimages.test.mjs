/*
 * Goal (TRM-1, REP-5): every member keeps what documents were before their changes, at the same
 * places, through restarts, kills, fail-overs, rollbacks and initial syncs; and expired images go
 * away. Method: a check that rebuilds the images from the oplog and compares them over members.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { EJSON } from 'bson';
import { Long } from 'mongodb';
import { fails, isClientClosed } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { startServer, waitFor } from '../lib/server.mjs';

const ON = { changeStreamPreAndPostImages: { enabled: true } };
const OFF = { changeStreamPreAndPostImages: { enabled: false } };
const PURGE = ['--setParameter', 'expiredChangeStreamPreImageRemovalJobSleepSecs=1'];
const EVERYWHERE = { writeConcern: { w: 3 } };

const text = (value) => EJSON.stringify(value, { relaxed: false });
const imagesIn = (client) => client.db('config').collection('system.preimages');
const imagesOf = (client, uuid) =>
    imagesIn(client).find({ '_id.nsUUID': uuid }, { promoteLongs: false }).sort({ _id: 1 }).toArray();
const countOf = (client) => imagesIn(client).countDocuments();
const uuidOf = async (db, name) => (await db.listCollections({ name }).next()).info.uuid;
const optionsOf = async (db, name) => (await db.listCollections({ name }).next()).options;

/* The documents before their changes as the oplog tells them, by the place of each write. */
async function fromOplog(client, uuid) {
    const docs = new Map();
    const images = new Map();
    const take = (row, ts, index) => {
        if (String(row.ui) !== String(uuid) || !['i', 'u', 'd'].includes(row.op)) return;
        const id = text(row.op === 'u' ? row.o2._id : row.o._id);
        if (row.op !== 'i' && docs.has(id)) images.set(`${ts.toBigInt()}:${index}`, text(docs.get(id)));
        if (row.op === 'd') docs.delete(id);
        else if (row.op === 'i' || row.o._id !== undefined) docs.set(id, row.o);
        else docs.set(id, { ...docs.get(id), ...row.o.diff.u, ...row.o.diff.i });
    };
    for await (const entry of client.db('local').collection('oplog.rs').find({}, { promoteLongs: false }))
        if (entry.o.applyOps === undefined) take(entry, entry.ts, 0);
        else entry.o.applyOps.forEach((row, i) => take(row, entry.ts, i));
    return images;
}

const oldestOf = async (client) =>
    (await client.db('local').collection('oplog.rs').find().sort({ $natural: 1 }).limit(1).next()).ts.toBigInt();

/* All members have the same images of the collection, those of the oplog; but a member may have
 * dropped those from before its own oplog begins. Returns those of the primary. */
async function check(set, db, name, { whole = true } = {}) {
    await set.waitForReplication();
    const uuid = await uuidOf(db, name);
    const primary = await set.direct(await set.waitForPrimary());
    const wanted = await fromOplog(primary, uuid);
    const all = await imagesOf(primary, uuid);
    for (const { _id, preImage, operationTime } of all) {
        assert.ok(operationTime instanceof Date);
        assert.ok(_id.applyOpsIndex instanceof Long);
        assert.equal(text(preImage), wanted.get(`${_id.ts.toBigInt()}:${_id.applyOpsIndex}`));
    }
    if (whole) assert.equal(all.length, wanted.size, 'none is missing');
    for (const member of set.members) {
        const direct = await set.direct(member);
        const oldest = await oldestOf(direct);
        const since = (images) => text(images.filter(({ _id }) => _id.ts.toBigInt() >= oldest));
        assert.equal(since(await imagesOf(direct, uuid)), since(all), 'the same on all members');
        const validated = await set.command(member, { validate: 'system.preimages' }, 'config');
        assert.ok(validated.valid, text(validated));
        await direct.close();
    }
    return all;
}

describe('three members', () => {
    let set, client, db;
    before(async () => {
        set = await startReplicaSet();
        client = await set.client();
        db = client.db('test');
    });
    after(async () => await set?.remove());

    test('REP-5: updates, replacements and deletes leave what was there before on every member', async () => {
        await db.createCollection('kept', ON);
        const coll = db.collection('kept');
        await coll.insertMany([{ _id: 1, v: 1 }, { _id: 2, v: 1 }, { _id: 3, v: 1 }]);
        await coll.updateOne({ _id: 1 }, { $set: { v: 2 } });
        await coll.replaceOne({ _id: 1 }, { v: 3 });
        await coll.findOneAndUpdate({ _id: 2 }, { $set: { w: 1 } });
        await coll.updateMany({}, { $set: { x: 1 } });
        await coll.findOneAndDelete({ _id: 2 });
        await coll.updateOne({ _id: 9 }, { $set: { v: 1 } }, { upsert: true });
        await coll.updateOne({ _id: 9 }, { $set: { v: 1 } }); // changes nothing
        await coll.deleteMany({}, EVERYWHERE);
        const images = await check(set, db, 'kept');
        assert.equal(images.length, 3 + 3 + 1 + 3);
        assert.deepEqual(Object.keys(images[0]), ['_id', 'operationTime', 'preImage']);
        assert.deepEqual(Object.keys(images[0]._id), ['nsUUID', 'ts', 'applyOpsIndex']);
        await db.createCollection('plain');
        await db.collection('plain').insertOne({ _id: 1 });
        await db.collection('plain').deleteOne({ _id: 1 }, EVERYWHERE);
        assert.equal(await countOf(client), images.length);
    });

    test('REP-5: the writes of one unit, in one entry or a chain, have an image each', async () => {
        await db.createCollection('units', ON);
        await db.createCollection('also', ON);
        const unit = { _testWriteUnit: 'units', also: 'also', first: 0, writeConcern: { w: 3 } };
        await db.command({ ...unit, count: 10, size: 10, value: 1 });
        await db.command({ ...unit, count: 10, size: 10, value: 2 });
        await db.command({ ...unit, count: 10, size: 1_000_000, value: 3 });
        await db.command({ ...unit, count: 10, size: 1_000_000, value: 4 });
        const own = [...(await check(set, db, 'units')), ...(await check(set, db, 'also'))];
        assert.equal(own.length, 60);
        assert.ok(new Set(own.map(({ _id }) => text(_id.ts))).size > 4, 'a chain has several entries');
        await db.collection('also').drop();
    });

    test('SES-4: the writes of a transaction have images, in the order of its statements', async () => {
        for (const name of ['txn1', 'txn2']) await db.createCollection(name, ON);
        await db.createCollection('txnPlain');
        const colls = ['txn1', 'txn2', 'txnPlain'].map((name) => db.collection(name));
        const docs = Array.from({ length: 12 }, (_, _id) => ({ _id, n: 0, pad: 'x'.repeat(10) }));
        for (const coll of colls) await coll.insertMany(docs);
        const known = await countOf(client);
        const run = async (pad, end) => {
            const session = client.startSession();
            session.startTransaction({ writeConcern: { w: 3 } });
            for (const coll of colls) {
                await coll.updateMany({ _id: { $lt: 10 } }, { $set: { pad } }, { session });
                await coll.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
                await coll.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
                await coll.deleteOne({ _id: 10 }, { session });
                await coll.insertOne({ _id: 10, n: 0 }, { session });
                await coll.replaceOne({ _id: 10 }, { n: 5, pad }, { session });
            }
            await session[end]();
            await session.endSession();
        };
        await run('y', 'abortTransaction');
        assert.equal(await countOf(client), known);
        await run('z', 'commitTransaction');
        assert.equal(await countOf(client), known + 2 * 14);
        await run('Z'.repeat(600_000), 'commitTransaction'); // a chain of entries
        assert.equal(await countOf(client), known + 4 * 14);
        await check(set, db, 'txn1');
        await check(set, db, 'txn2');
        for (const coll of colls) await coll.drop();
    });

    test('SES-5: the writes of a prepared transaction have images with the place and time of its prepare', async () => {
        const coll = await db.createCollection('preparedImages', ON);
        await coll.insertMany([{ _id: 1, n: 0 }, { _id: 2, n: 0 }], { writeConcern: { w: 3 } });
        const session = client.startSession();
        const ask = (command) =>
            client.db('admin').command({ ...command, writeConcern: { w: 'majority' } }, { session });
        session.startTransaction();
        await coll.updateOne({ _id: 1 }, { $set: { n: 1 } }, { session });
        await coll.deleteOne({ _id: 2 }, { session });
        const { prepareTimestamp } = await ask({ prepareTransaction: 1 });
        await ask({ commitTransaction: 1, commitTimestamp: prepareTimestamp });
        await session.commitTransaction(); // the driver is to know, too; the answer is the same
        await session.endSession();
        const images = await check(set, db, 'preparedImages');
        assert.equal(images.length, 2);
        for (const { _id, operationTime } of images) {
            assert.ok(_id.ts.equals(prepareTimestamp));
            assert.ok(Math.abs(operationTime - prepareTimestamp.t * 1000) < 60_000, String(operationTime));
        }
        await coll.drop();
    });

    test('CAT-7: collMod turns images on and off, and the catalog of every member says so', async () => {
        await db.createCollection('switched');
        const coll = db.collection('switched');
        const change = async () => {
            await coll.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { upsert: true, ...EVERYWHERE });
        };
        const count = () => countOf(client);
        await change();
        const none = await count();
        await change();
        assert.equal(await count(), none);
        await db.command({ collMod: 'switched', ...ON, writeConcern: { w: 3 } });
        assert.deepEqual(await optionsOf(db, 'switched'), ON);
        await change();
        assert.equal(await count(), none + 1);
        await db.command({ collMod: 'switched', validationLevel: 'off' });
        await db.command({ collMod: 'switched', validator: { n: { $gt: 0 } } });
        assert.deepEqual((await optionsOf(db, 'switched')).changeStreamPreAndPostImages, { enabled: true });
        for (const member of set.members) {
            const direct = await set.direct(member);
            await set.waitForReplication();
            const { changeStreamPreAndPostImages } = await optionsOf(direct.db('test'), 'switched');
            assert.deepEqual(changeStreamPreAndPostImages, { enabled: true });
        }
        await db.command({ collMod: 'switched', ...OFF });
        assert.equal((await optionsOf(db, 'switched')).changeStreamPreAndPostImages, undefined);
        await change();
        assert.equal(await count(), none + 1);
        await db.createCollection('never', OFF);
        assert.deepEqual(await optionsOf(db, 'never'), {});
    });

    test('CAT-7: images are refused where MongoDB refuses them', async () => {
        for (const name of ['admin', 'config', 'local']) {
            await fails(() => client.db(name).createCollection('imaged', ON), 72);
            await client.db(name).createCollection('plain');
            await fails(() => client.db(name).command({ collMod: 'plain', ...ON }), 72);
            await client.db(name).collection('plain').drop();
        }
        await fails(() => db.createCollection('view', { viewOn: 'kept', pipeline: [], ...ON }), 72);
        await db.createCollection('view', { viewOn: 'kept', pipeline: [] });
        await fails(() => db.command({ collMod: 'view', ...ON }), 72);
        await fails(() => db.createCollection('bad', { changeStreamPreAndPostImages: true }), 14);
        await fails(() => db.createCollection('bad', { changeStreamPreAndPostImages: {} }), 40414);
        await fails(() => db.createCollection('bad', { changeStreamPreAndPostImages: { enabled: 1 } }), 14);
        await fails(() => db.createCollection('bad', { changeStreamPreAndPostImages: { enabled: true, x: 1 } }), 40415);
        const images = client.db('config').collection('system.preimages');
        await fails(() => images.insertOne({ _id: 1 }), 73);
        await fails(() => images.deleteMany({}), 73);
        const indexes = [{ key: { a: 1 }, name: 'a_1' }];
        await fails(() => client.db('config').command({ createIndexes: 'system.preimages', indexes }), 20);
    });

    test('REP-5: a fail-over under load loses and doubles no image', { timeout: 120_000 }, async () => {
        await db.createCollection('load', ON);
        const coll = db.collection('load', EVERYWHERE);
        await coll.insertMany(Array.from({ length: 20 }, (_, _id) => ({ _id, n: 0 })));
        let isOver = false;
        const writer = async (_id) => {
            while (!isOver)
                await coll
                    .updateOne({ _id }, { $inc: { n: 1 }, $set: { v: Math.random() } }, { writeConcern: { w: 1 } })
                    .catch((error) => (isOver ||= isClientClosed(error)));
        };
        const writers = Array.from({ length: 4 }, (_, i) => writer(i));
        const many = async () => waitFor(async () => (await countOf(client)) > 300, { timeoutMs: 30_000, what: 'images' });
        await many();
        await set.stepDown({ secs: 1 });
        const primary = await set.waitForPrimary();
        await primary.kill(); // what only it had is rolled back when it returns
        await set.waitForPrimary({ other: primary });
        await primary.start();
        await set.waitForSecondaries();
        isOver = true;
        await Promise.all(writers);
        await check(set, db, 'load');
    });

    test('DUR-3: images of writes that are rolled back go with them', { timeout: 180_000 }, async () => {
        await db.createCollection('undone', ON);
        const docs = Array.from({ length: 50 }, (_, _id) => ({ _id, n: 0 }));
        await db.collection('undone').insertMany(docs, EVERYWHERE);
        await db.collection('undone').updateMany({}, { $set: { n: 1 } }, EVERYWHERE);
        /* A primary without the others writes until its election time-out, and then has to sleep
         * while they elect another one. */
        const writeAlone = async () => {
            const primary = await set.waitForPrimary();
            const others = set.members.filter((member) => member !== primary);
            const alone = await set.direct(primary, { retryWrites: false, socketTimeoutMS: 2000 });
            await alone.db('test').command({ ping: 1 });
            await Promise.all(others.map((member) => member.kill()));
            const update = { q: {}, u: { $inc: { n: 100 } }, multi: true };
            const isWritten = await alone.db('test').command({ update: 'undone', updates: [update], writeConcern: { w: 1 } })
                .then(() => true, () => false);
            primary.log.length = 0;
            primary.signal('SIGSTOP');
            try {
                await Promise.all(others.map((member) => member.start()));
                await set.waitForSuccessor(primary);
            } finally {
                primary.signal('SIGCONT');
            }
            if (isWritten) await primary.waitLog(({ msg }) => msg === 'Rollback done', 60_000);
            return isWritten;
        };
        await waitFor(writeAlone, { timeoutMs: 90_000, what: 'a primary that writes alone' });
        await set.waitForSecondaries();
        /* A driver does not repeat it by itself, and may still take the old primary for the present one. */
        const change = () => db.collection('undone').updateMany({ _id: { $lt: 10 } }, { $set: { n: 2 } }, EVERYWHERE);
        const isNotPrimary = ({ code }) => code === 10107;
        await waitFor(() => change().then(() => true, (error) => (isNotPrimary(error) ? false : Promise.reject(error))), {
            what: 'the driver to find the new primary',
        });
        const images = await check(set, db, 'undone');
        assert.ok(images.every(({ preImage }) => !(preImage.n >= 100 && preImage._id < 50 && preImage.v === undefined)));
        for (const member of set.members) {
            const { count } = await set.command(member, { collStats: 'system.preimages' }, 'config');
            const { n } = await set.command(member, { count: 'system.preimages', query: { _id: { $exists: true } } }, 'config');
            assert.equal(count, n, 'the count follows');
        }
    });

    test('REP-5: a member that starts with nothing has the same images', { timeout: 120_000 }, async () => {
        await db.createCollection('copied', ON);
        const coll = db.collection('copied');
        await coll.insertMany(Array.from({ length: 500 }, (_, _id) => ({ _id, n: 0 })), EVERYWHERE);
        await coll.updateMany({}, { $set: { n: 1 } }, EVERYWHERE);
        const [member] = await set.secondaries();
        await member.stop();
        rmSync(member.dbpath, { recursive: true });
        let isOver = false;
        const writer = (async () => {
            for (let i = 0; !isOver; i = (i + 7) % 500) {
                await coll.updateOne({ _id: i }, { $set: { n: i, r: Math.random() } }, { upsert: true });
                if (i % 5 === 0) await coll.deleteOne({ _id: (i + 1) % 500 });
            }
        })();
        const usual = member.args;
        const slow = JSON.stringify({ mode: 'alwaysOn', data: { blockTimeMS: 20 } });
        member.args = [...usual, '--setParameter', 'collectionClonerBatchSize=50',
            '--setParameter', `failpoint.initialSync.batchStored=${slow}`];
        await member.start();
        member.args = usual;
        await set.waitForSecondaries({ timeoutMs: 90_000 });
        isOver = true;
        await writer;
        await check(set, db, 'copied'); // the new member's own oplog begins later
    });
});

describe('one member', () => {
    let set, client, db, admin;
    before(async () => {
        set = await startReplicaSet({ members: 1, args: PURGE });
        client = await set.client();
        db = client.db('test');
        admin = client.db('admin');
    });
    after(async () => await set?.remove());

    const setSeconds = (expireAfterSeconds) =>
        admin.command({ setClusterParameter: { changeStreamOptions: { preAndPostImages: { expireAfterSeconds } } } });
    const job = async () => (await admin.command({ serverStatus: 1 })).changeStreamPreImages.purgingJob;
    const countIs = (count) =>
        waitFor(async () => (await countOf(client)) === count, { timeoutMs: 60_000, what: `${count} images` });

    test('REP-5: a kill keeps the images of acknowledged writes, and no others', { timeout: 120_000 }, async () => {
        await db.createCollection('killed', ON);
        const coll = db.collection('killed', { writeConcern: { w: 'majority' } });
        await coll.insertMany(Array.from({ length: 10 }, (_, _id) => ({ _id, n: 0 })));
        for (let round = 0; round < 3; round++) {
            const known = await countOf(client);
            let isOver = false;
            let acknowledged = 0;
            const writers = Array.from({ length: 4 }, async (_, _id) => {
                while (!isOver)
                    await coll.updateOne({ _id }, { $inc: { n: 1 } }).then(() => acknowledged++, () => (isOver = true));
            });
            await waitFor(() => acknowledged > 50, { timeoutMs: 30_000, what: 'writes' });
            await set.members[0].kill();
            isOver = true;
            await set.members[0].start();
            await set.waitForPrimary();
            await Promise.all(writers);
            assert.ok((await countOf(client)) >= known + acknowledged);
            await check(set, db, 'killed');
        }
        await set.members[0].stop();
        await set.members[0].start();
        await set.waitForPrimary();
        await check(set, db, 'killed');
        const { count } = await client.db('config').command({ collStats: 'system.preimages' });
        assert.equal(count, await countOf(client));
    });

    test('TRM-1: images expire by their age, also after a restart, and the count follows', { timeout: 180_000 }, async () => {
        await db.collection('killed').drop();
        await db.createCollection('aging', ON);
        const coll = db.collection('aging');
        await coll.insertOne({ _id: 1, n: 0 });
        for (let n = 0; n < 100; n++) await coll.updateOne({ _id: 1 }, { $set: { n } });
        const had = await countOf(client);
        assert.ok(had > 200);
        const passes = async () => Number((await job()).totalPass);
        const start = await passes();
        await waitFor(async () => (await passes()) > start + 2, { timeoutMs: 30_000, what: 'passes' });
        assert.equal(await countOf(client), had, 'off by default');
        await set.members[0].stop(); // those of before are measured, not counted
        await set.members[0].start();
        await set.waitForPrimary();
        for (let n = 0; n < 50; n++) await coll.updateOne({ _id: 1 }, { $set: { m: n } });
        await setSeconds(1);
        await countIs(0);
        const { docsDeleted, bytesDeleted, totalPass } = await job();
        assert.equal(Number(docsDeleted), had + 50);
        assert.ok(bytesDeleted > had * 50 && totalPass > 0);
        const { count, size } = await client.db('config').command({ collStats: 'system.preimages' });
        assert.deepEqual({ count, size }, { count: 0, size: 0 });
        await setSeconds('off');
        await coll.updateOne({ _id: 1 }, { $set: { n: -1 } });
        const again = await passes();
        await waitFor(async () => (await passes()) > again + 3, { timeoutMs: 30_000, what: 'passes' });
        assert.equal(await countOf(client), 1);
        await check(set, db, 'aging', { whole: false });
    });

    test('REP-5: the collection of images is made again when it was dropped', async () => {
        await client.db('config').collection('system.preimages').drop();
        await db.collection('aging').updateOne({ _id: 1 }, { $set: { n: 7 } }); // without an image
        await db.createCollection('later', ON);
        await db.collection('later').insertOne({ _id: 1 });
        await db.collection('later').deleteOne({ _id: 1 });
        assert.equal(await countOf(client), 1);
        const options = await optionsOf(client.db('config'), 'system.preimages');
        assert.deepEqual(options.clusteredIndex.key, { _id: 1 });
        assert.equal(options.clusteredIndex.unique, true);
        /* What was known of the one that is gone does not count for this one. */
        await db.collection('later').insertOne({ _id: 1 });
        await setSeconds(1);
        await countIs(0);
        await db.collection('later').deleteOne({ _id: 1 });
        await countIs(0);
        const { count, size } = await client.db('config').command({ collStats: 'system.preimages' });
        assert.deepEqual({ count, size }, { count: 0, size: 0 });
    });
});

test('TRM-1: images go with their oplog entries, also those of dropped collections', { timeout: 300_000 }, async () => {
    const set = await startReplicaSet({ members: 1, args: [...PURGE, '--oplogSize', '1', '--syncdelay', '1'] });
    try {
        const client = await set.client();
        const db = client.db('test');
        await db.createCollection('gone', ON);
        await db.collection('gone').insertOne({ _id: 1, n: 0 });
        for (let n = 0; n < 50; n++) await db.collection('gone').updateOne({ _id: 1 }, { $set: { n } });
        await db.collection('gone').drop();
        await db.createCollection('kept', ON);
        const pad = 'x'.repeat(100_000);
        const isTrimmed = async () => {
            for (let i = 0; i < 20; i++) await db.collection('filler').insertOne({ pad });
            return (await countOf(client)) === 0;
        };
        await waitFor(isTrimmed, { timeoutMs: 240_000, what: 'the images to go with the oplog' });
        await db.collection('kept').insertOne({ _id: 1 });
        await db.collection('kept').deleteOne({ _id: 1 });
        assert.equal(await countOf(client), 1);
    } finally {
        await set.remove();
    }
});

test('REP-5: a standalone node keeps the option and writes no images', async () => {
    const server = await startServer();
    try {
        const client = await server.client();
        const db = client.db('test');
        await db.createCollection('c', ON);
        assert.deepEqual(await optionsOf(db, 'c'), ON);
        await db.collection('c').insertOne({ _id: 1 });
        await db.collection('c').deleteOne({ _id: 1 });
        assert.equal(await countOf(client), 0);
    } finally {
        await server.remove();
    }
});
