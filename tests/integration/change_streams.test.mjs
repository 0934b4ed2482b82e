/*
 * Goal (REP-5): change streams show every majority-committed change once and in order, on a
 * collection, a database and the deployment, can be resumed at any event, and cost no thread while
 * they wait. Method: the driver's watch() and raw commands against a set of one member, where a
 * majority is reached at once; change_streams_of_three.test.mjs has elections.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { Long, MongoClient, Timestamp } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

let set = null;
let client = null;
let db = null;
before(async () => {
    set = await startReplicaSet({ members: 1, args: ['--setParameter', 'enableTestCommands=1'] });
    client = await set.client();
    db = client.db('streams');
});
after(() => set?.remove());

let names = 0;
async function freshCollection(options) {
    const name = `c${names++}`;
    await db.createCollection(name, options);
    return db.collection(name);
}

/* A stream by commands, for what drivers do not show. */
class RawStream {
    static async open(target, { spec = {}, stages = [], of = db, cursor = {}, ...more } = {}) {
        const session = of.client.startSession();
        const pipeline = [{ $changeStream: spec }, ...stages];
        const reply = await of.command({ aggregate: target, pipeline, cursor, ...more }, { session });
        return new RawStream(of, target, reply.cursor, session);
    }
    constructor(of, target, cursor, session) {
        this.session = session;
        this.of = of;
        this.name = target === 1 ? '$cmd.aggregate' : target;
        this.id = cursor.id;
        this.token = cursor.postBatchResumeToken;
        this.first = cursor.firstBatch;
    }
    async more({ maxTimeMS = 100, ...options } = {}) {
        const command = { getMore: Long.fromBigInt(BigInt(this.id.toString())), collection: this.name };
        const { session } = this;
        const { cursor } = await this.of.command({ ...command, maxTimeMS, ...options }, { session });
        this.id = cursor.id;
        this.token = cursor.postBatchResumeToken;
        return cursor.nextBatch;
    }
    /* The next `count` events. */
    async take(count) {
        const events = this.first.splice(0, count);
        await waitFor(
            async () => {
                if (events.length < count) events.push(...(await this.more()));
                return events.length >= count;
            },
            { timeoutMs: 30_000, what: `${count} events` },
        );
        assert.equal(events.length, count);
        return events;
    }
    async close() {
        await this.of.command({ killCursors: this.name, cursors: [this.id] });
    }
}

const codeOf = async (promise) => {
    try {
        await promise;
    } catch (error) {
        return error.code;
    }
    return 0;
};
const kinds = (events) => events.map(({ operationType }) => operationType);
const strip = ({ _id, clusterTime, wallTime, ...event }) => {
    assert.match(_id._data, /^82[0-9A-F]+$/);
    assert.ok(clusterTime instanceof Timestamp);
    assert.ok(wallTime instanceof Date);
    return event;
};

test('REP-5: inserts, updates, replacements and deletes are shown in order with their fields', async () => {
    const c = await freshCollection();
    const stream = c.watch();
    await stream.tryNext();
    await c.insertOne({ _id: 1, a: 1, list: [1, 2, 3, 4, 'x'.repeat(100)] });
    await c.updateOne({ _id: 1 }, { $set: { 'b.c': 2 }, $unset: { a: '' } });
    await c.updateOne({ _id: 1 }, [{ $set: { list: { $slice: ['$list', 2] } } }]);
    await c.replaceOne({ _id: 1 }, { z: 1 });
    await c.deleteOne({ _id: 1 });
    const ns = { db: 'streams', coll: c.collectionName };
    const documentKey = { _id: 1 };
    const events = [];
    for (let i = 0; i < 5; i++) events.push(await stream.next());
    assert.deepEqual(Object.keys(events[0]), [
        '_id', 'operationType', 'clusterTime', 'wallTime', 'fullDocument', 'ns', 'documentKey',
    ]);
    assert.equal(events[0].fullDocument.a, 1);
    assert.deepEqual(strip(events[1]), {
        operationType: 'update', ns, documentKey,
        updateDescription: { updatedFields: { b: { c: 2 } }, removedFields: ['a'], truncatedArrays: [] },
    });
    assert.equal(events[2].operationType, 'update');
    assert.deepEqual(strip(events[3]), {
        operationType: 'replace', fullDocument: { _id: 1, z: 1 }, ns, documentKey,
    });
    assert.deepEqual(strip(events[4]), { operationType: 'delete', ns, documentKey });
    const tokens = events.map(({ _id }) => _id._data);
    assert.deepEqual([...tokens].sort(), tokens);
    await stream.close();
});

test('REP-5: an update by operators is told by the paths it gave, however small the document', async () => {
    const cases = [
        [{ a: 1, b: 1 }, { $unset: { b: 1, a: 1 } }, {}, ['a', 'b']],
        [{ a: 1, b: 1 }, { $set: { a: 2 }, $unset: { b: 1 } }, { a: 2 }, ['b']],
        [{ a: 1 }, { $rename: { a: 'c' } }, { c: 1 }, ['a']],
        [{ a: { b: 1 } }, { $set: { 'a.b': 2 } }, { 'a.b': 2 }],
        [{ a: { b: 1 } }, { $set: { a: { b: 2 } } }, { a: { b: 2 } }],
        [{ a: { b: 1 } }, { $unset: { 'a.b': 1 } }, {}, ['a.b']],
        [{ a: {} }, { $set: { 'a.b.c': 1 } }, { 'a.b': { c: 1 } }],
        [{ a: [1, 2] }, { $set: { 'a.1': 7 } }, { 'a.1': 7 }],
        [{ a: [] }, { $push: { a: 1 } }, { a: [1] }],
        [{ a: [1] }, { $push: { a: 2 } }, { 'a.1': 2 }],
        [{ a: [1, 2, 3] }, { $pull: { a: 2 } }, { a: [1, 3] }],
        [{ a: [1, 2] }, { $pop: { a: 1 } }, { a: [1] }],
        [{ a: [{ k: 1 }, { k: 2 }] }, { $set: { 'a.$[].k': 2 } }, { 'a.0.k': 2 }],
    ];
    const c = await freshCollection();
    const stream = await RawStream.open(c.collectionName);
    for (const [_id, [document, update]] of cases.entries()) {
        await c.insertOne({ _id, ...document });
        await c.updateOne({ _id }, update);
    }
    const updates = (await stream.take(2 * cases.length)).filter((_, i) => i % 2 === 1);
    for (const [i, [document, update, updatedFields, removedFields = []]] of cases.entries()) {
        const { operationType, updateDescription } = updates[i];
        const what = JSON.stringify([document, update]);
        assert.equal(operationType, 'update', what);
        assert.deepEqual(updateDescription, { updatedFields, removedFields, truncatedArrays: [] }, what);
    }
    await stream.close();
});

test('REP-5: fields that a pipeline removes are told from the end, then by name', async () => {
    const c = await freshCollection();
    const stream = await RawStream.open(c.collectionName);
    const kept = 'x'.repeat(500);
    await c.insertOne({ _id: 1, n: 1, m: 1, b: 1, kept, z: 1, a: 1 });
    await c.updateOne({ _id: 1 }, [{ $replaceWith: { _id: 1, kept } }]);
    const [, update] = await stream.take(2);
    assert.deepEqual(update.updateDescription.removedFields, ['z', 'a', 'b', 'm', 'n']);
    await stream.close();
});

test('REP-5: a stream on a database and one on the deployment show what belongs to them', async () => {
    const one = await freshCollection();
    const other = client.db('streams_other').collection('x');
    await other.insertOne({ _id: 0 });
    const ofDb = await RawStream.open(1);
    const ofAll = await RawStream.open(1, {
        of: client.db('admin'), spec: { allChangesForCluster: true },
    });
    await one.insertOne({ _id: 'db' });
    await other.insertOne({ _id: 'all' });
    await client.db('admin').collection('hidden').insertOne({ _id: 'no' });
    await one.insertOne({ _id: 'end' });
    const key = ({ documentKey }) => documentKey._id;
    assert.deepEqual((await ofDb.take(2)).map(key), ['db', 'end']);
    assert.deepEqual((await ofAll.take(3)).map(key), ['db', 'all', 'end']);
    await ofDb.close();
    await ofAll.close();
});

test('REP-5: a drop, a rename and a dropDatabase end the streams they concern', async () => {
    const dropped = await freshCollection();
    const renamed = await freshCollection();
    const ofDropped = await RawStream.open(dropped.collectionName);
    const ofRenamed = await RawStream.open(renamed.collectionName);
    await dropped.insertOne({ _id: 1 });
    await dropped.drop();
    await renamed.rename('renamed_away');
    assert.deepEqual(kinds(await ofDropped.take(3)), ['insert', 'drop', 'invalidate']);
    assert.equal(ofDropped.id.toString(), '0');
    const [rename, end] = await ofRenamed.take(2);
    assert.deepEqual(rename.to, { db: 'streams', coll: 'renamed_away' });
    assert.deepEqual(Object.keys(end), ['_id', 'operationType', 'clusterTime', 'wallTime']);
    const gone = client.db('streams_gone');
    await gone.collection('a').insertOne({ _id: 1 });
    const ofGone = await RawStream.open(1, { of: gone });
    await gone.dropDatabase();
    assert.deepEqual(kinds(await ofGone.take(3)), ['drop', 'dropDatabase', 'invalidate']);
    // The database is dropped also where its collections were before, once.
    await gone.collection('a').insertOne({ _id: 1 });
    await gone.collection('a').drop();
    const ofEmptied = await RawStream.open(1, { of: gone });
    const drop = () => gone.command({ dropDatabase: 1 });
    assert.equal((await drop()).dropped, 'streams_gone');
    assert.deepEqual(kinds(await ofEmptied.take(2)), ['dropDatabase', 'invalidate']);
    assert.equal((await drop()).dropped, undefined);
    // An end that is filtered out ends the stream as well, with its token.
    const hidden = await RawStream.open(1, {
        of: gone, spec: { resumeAfter: rename._id }, stages: [{ $match: { operationType: 'x' } }],
    }).catch((error) => error);
    assert.equal(hidden.code, 280); // the token is of another database
});

test('REP-5: after an invalidate only startAfter goes on', async () => {
    const c = await freshCollection();
    const name = c.collectionName;
    const stream = await RawStream.open(name);
    await c.insertOne({ _id: 1 });
    await c.drop();
    const [insert, drop, invalidate] = await stream.take(3);
    await db.createCollection(name);
    await c.insertOne({ _id: 2 });
    assert.equal(await codeOf(RawStream.open(name, { spec: { resumeAfter: invalidate._id } })), 260);
    const after = await RawStream.open(name, { spec: { startAfter: invalidate._id } });
    assert.equal((await after.take(1))[0].documentKey._id, 2);
    const again = await RawStream.open(name, { spec: { resumeAfter: insert._id } });
    assert.deepEqual(kinds(await again.take(2)), ['drop', 'invalidate']);
    const atDrop = await RawStream.open(name, { spec: { startAfter: drop._id } });
    assert.deepEqual((await atDrop.take(1))[0]._id, invalidate._id);
    const hidden = await RawStream.open(name, {
        spec: { resumeAfter: insert._id }, stages: [{ $match: { operationType: 'none' } }],
    });
    assert.equal(hidden.id.toString(), '0');
    assert.deepEqual(hidden.token, invalidate._id);
});

test('REP-5: a stream resumes strictly after any event, also within a unit of several entries', async () => {
    const of = client.db('test'); // where the command locks these two in order
    const a = await of.createCollection('a');
    await of.createCollection('b');
    const stream = await RawStream.open(1, { of });
    await of.command({
        _testWriteUnit: 'a', also: 'b',
        count: 12, size: 1 << 20, value: Long.fromNumber(1),
    });
    await a.insertOne({ _id: 'last' });
    const events = await stream.take(25);
    const keyOf = ({ ns, documentKey }) => `${ns.coll} ${documentKey._id}`;
    const all = events.map(keyOf);
    assert.equal(new Set(all).size, 25);
    assert.equal(new Set(events.slice(0, 24).map(({ clusterTime }) => clusterTime.toString())).size, 1);
    for (const i of [0, 7, 11, 12, 23]) {
        const resumed = await RawStream.open(1, { of, spec: { resumeAfter: events[i]._id } });
        assert.deepEqual((await resumed.take(24 - i)).map(keyOf), all.slice(i + 1));
        await resumed.close();
    }
    const at = await RawStream.open(1, { of, spec: { startAtOperationTime: events[3].clusterTime } });
    assert.deepEqual((await at.take(25)).map(keyOf), all);
    await at.close();
    await stream.close();
});

test('REP-5: tokens that were cut, changed or made up are refused', async () => {
    const c = await freshCollection();
    const name = c.collectionName;
    const stream = await RawStream.open(name);
    await c.insertOne({ _id: 1 });
    const [event] = await stream.take(1);
    const text = event._id._data;
    const resume = (token) => codeOf(RawStream.open(name, { spec: { resumeAfter: token } }));
    assert.equal(await resume({ _data: `${text}zz` }), 9);
    assert.equal(await resume({ _data: text.slice(0, -2) }), 15);
    assert.equal(await resume({ _data: text.slice(0, 30) }), 15);
    assert.equal(await resume({ _data: '' }), 40649);
    assert.equal(await resume({ _data: 5 }), 40647);
    assert.equal(await resume({}), 40647);
    assert.equal(await resume({ _data: text, _typeBits: 'x' }), 40648);
    assert.equal(await resume('x'), 14);
    const later = text.replace(/^82(.{8})/, (all, seconds) => `82${seconds}`).replace(/04$/, '04');
    assert.equal(await resume({ _data: later }), 0);
    // An event that the stream does not have.
    const other = await freshCollection();
    assert.equal(
        await codeOf(RawStream.open(other.collectionName, { spec: { resumeAfter: event._id } })), 280);
    assert.equal(await codeOf(RawStream.open(name, { spec: { resumeAfter: event._id, startAfter: event._id } })), 50865);
    assert.equal(
        await codeOf(RawStream.open(name, { spec: { resumeAfter: event._id, startAtOperationTime: event.clusterTime } })),
        40674);
});

test('REP-5: options, places and stages that do not fit are refused with their codes', async () => {
    const c = await freshCollection();
    const name = c.collectionName;
    const admin = client.db('admin');
    const open = (target, options) => codeOf(RawStream.open(target, options));
    assert.equal(await open(name, { spec: { what: 1 } }), 40415);
    assert.equal(await open(name, { spec: { fullDocument: 'never' } }), 2);
    assert.equal(await open(name, { spec: { showExpandedEvents: 1 } }), 14);
    assert.equal(await open(name, { spec: { allChangesForCluster: true } }), 72);
    assert.equal(await open('x', { of: admin }), 73);
    assert.equal(await open(1, { of: client.db('config') }), 73);
    assert.equal(await open('system.views'), 73);
    assert.equal(await open(name, { readConcern: { level: 'local' } }), 72);
    assert.equal(await open(name, { readConcern: { level: 'majority' } }), 0);
    assert.equal(await open(name, { stages: [{ $group: { _id: 1 } }] }), 20);
    assert.equal(await open(name, { stages: [{ $sort: { _id: 1 } }] }), 20);
    const { stages } = await db.command({
        explain: { aggregate: name, pipeline: [{ $changeStream: {} }, { $project: { ns: 1 } }], cursor: {} },
    });
    assert.deepEqual(stages.map((stage) => Object.keys(stage)[0]), ['$changeStream', '$project']);
    const session = client.startSession();
    session.startTransaction();
    assert.equal(
        await codeOf(db.collection(name).aggregate([{ $changeStream: {} }], { session }).toArray()), 263);
    await session.abortTransaction();
    await session.endSession();
    await db.command({ create: 'view', viewOn: name, pipeline: [] });
    assert.equal(await open('view'), 166);
    const aggregate = (pipeline) => codeOf(db.command({ aggregate: name, pipeline, cursor: {} }));
    assert.equal(await aggregate([{ $match: {} }, { $changeStream: {} }]), 40602);
    assert.equal(await aggregate([{ $facet: { a: [{ $changeStream: {} }] } }]), 40600);
    assert.equal(await aggregate([{ $changeStream: 1 }]), 50808);
    assert.equal(await aggregate([{ $lookup: { from: name, as: 'x', pipeline: [{ $changeStream: {} }] } }]), 51047);
    assert.equal(await aggregate([{ $unionWith: { coll: name, pipeline: [{ $changeStream: {} }] } }]), 31441);
    assert.equal(
        await codeOf(db.command({ create: 'v2', viewOn: name, pipeline: [{ $changeStream: {} }] })), 167);
});

test('REP-5: every batch has a resume token, which moves on while nothing happens here', async () => {
    const c = await freshCollection();
    const other = await freshCollection();
    const stream = await RawStream.open(c.collectionName, { cursor: { batchSize: 0 } });
    assert.equal(stream.first.length, 0);
    assert.ok(stream.token._data);
    let token = stream.token;
    for (let i = 0; i < 3; i++) {
        await other.insertMany([{}, {}]);
        await waitFor(async () => {
            assert.deepEqual(await stream.more({ maxTimeMS: 20 }), []);
            assert.ok(stream.token._data >= token._data);
            return stream.token._data > token._data;
        });
        token = stream.token;
    }
    await c.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    const resumed = await RawStream.open(c.collectionName, { spec: { resumeAfter: token } });
    assert.equal((await resumed.take(3)).length, 3);
    let batch = [];
    await waitFor(async () => (batch = await stream.more({ batchSize: 2 })).length > 0);
    assert.ok(batch.length <= 2);
    assert.deepEqual(stream.token, batch.at(-1)._id);
    await stream.close();
});

test('REP-5: stages behind a stream see its events and may not touch their _id', async () => {
    const c = await freshCollection();
    const open = (...stages) => RawStream.open(c.collectionName, { stages });
    const projected = await open({ $match: { 'fullDocument.n': { $gte: 2 } } }, { $project: { n: '$fullDocument.n' } });
    const broken = await open({ $project: { _id: 0 } });
    await c.insertMany([{ n: 1 }, { n: 2 }, { n: 3 }]);
    assert.deepEqual((await projected.take(2)).map(({ n }) => n), [2, 3]);
    assert.equal(await codeOf(broken.take(1)), 280);
});

test('REP-5: updateLookup shows the document as it is, or null when it is gone', async () => {
    const c = await freshCollection();
    await c.insertOne({ _id: 1, n: 0 });
    const stream = await RawStream.open(c.collectionName, { spec: { fullDocument: 'updateLookup' } });
    await c.updateOne({ _id: 1 }, { $set: { n: 1 } });
    assert.deepEqual((await stream.take(1))[0].fullDocument, { _id: 1, n: 1 });
    await c.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await c.deleteOne({ _id: 1 });
    const [update, remove] = await stream.take(2);
    assert.equal(update.fullDocument, null);
    assert.equal(remove.fullDocument, undefined);
    await stream.close();
});

test('REP-5: expanded events tell of collections, indexes and options', async () => {
    const name = `c${names++}`;
    const stream = await RawStream.open(1, { spec: { showExpandedEvents: true } });
    await db.createCollection(name);
    await db.collection(name).createIndex({ a: 1 });
    await db.collection(name).insertOne({ _id: 1, a: 1 });
    await db.collection(name).createIndex({ b: 1 });
    await db.collection(name).dropIndex('a_1');
    await db.command({ collMod: name, validationLevel: 'moderate' });
    await db.collection(name).drop();
    const events = await stream.take(7);
    assert.deepEqual(kinds(events), [
        'create', 'createIndexes', 'insert', 'createIndexes', 'dropIndexes', 'modify', 'drop',
    ]);
    assert.deepEqual(events[0].operationDescription, { idIndex: { v: 2, key: { _id: 1 }, name: '_id_' } });
    assert.deepEqual(events[1].operationDescription, { indexes: [{ v: 2, key: { a: 1 }, name: 'a_1' }] });
    assert.deepEqual(events[3].operationDescription.indexes[0].key, { b: 1 });
    assert.deepEqual(events[4].operationDescription, { indexes: [{ v: 2, key: { a: 1 }, name: 'a_1' }] });
    assert.ok(events[5].operationDescription.stateBeforeChange.collectionOptions);
    assert.ok(events.every(({ collectionUUID }) => collectionUUID));
    await stream.close();
});

test('REP-5: an event over 16 MB fails unless it may be split, and its fragments make it up', async () => {
    const c = await freshCollection();
    await c.insertOne({ _id: 1, a: 'a'.repeat(9 << 20) });
    const spec = { fullDocument: 'updateLookup' };
    const plain = await RawStream.open(c.collectionName, { spec });
    const split = await RawStream.open(c.collectionName, { spec, stages: [{ $changeStreamSplitLargeEvent: {} }] });
    await c.updateOne({ _id: 1 }, { $set: { a: 'b'.repeat(9 << 20) } });
    assert.equal(await codeOf(plain.take(1)), 10334);
    const fragments = await split.take(2);
    assert.deepEqual(fragments.map(({ splitEvent }) => splitEvent), [{ fragment: 1, of: 2 }, { fragment: 2, of: 2 }]);
    const whole = Object.assign({}, ...fragments);
    assert.equal(whole.fullDocument.a.length, 9 << 20);
    assert.equal(whole.updateDescription.updatedFields.a.length, 9 << 20);
    assert.ok(fragments[0]._id._data < fragments[1]._id._data);
    const resumed = await RawStream.open(c.collectionName, {
        spec: { ...spec, resumeAfter: fragments[0]._id }, stages: [{ $changeStreamSplitLargeEvent: {} }],
    });
    assert.deepEqual((await resumed.take(1))[0]._id, fragments[1]._id);
    assert.equal(await codeOf(RawStream.open(c.collectionName, { spec: { ...spec, resumeAfter: fragments[0]._id } })), 280);
    assert.notEqual(await codeOf(RawStream.open(c.collectionName, {
        stages: [{ $changeStreamSplitLargeEvent: {} }, { $match: {} }] })), 0);
});

const threadsOf = (pid) => readdirSync(`/proc/${pid}/task`).length;

test('REP-5: two hundred waiting streams cost no thread, and each is woken by its own change', async () => {
    const COUNT = 200;
    const member = set.members[0];
    const own = new MongoClient(member.uri, { maxPoolSize: COUNT + 10, directConnection: true });
    await own.connect();
    try {
        const of = own.db('parked');
        const streams = [];
        for (let i = 0; i < COUNT; i++) streams.push(await RawStream.open(`p${i}`, { of }));
        const before = threadsOf(member.pid);
        const waits = streams.map((stream) => stream.more({ maxTimeMS: 60_000 }));
        for (const wait of waits) wait.catch(() => {});
        const waiting = async () =>
            (await client.db('admin').command({ serverStatus: 1 })).changeStreams.waiting;
        await waitFor(async () => (await waiting()) >= COUNT, { timeoutMs: 20_000, what: 'parked streams' });
        assert.ok(threadsOf(member.pid) < before + 20, `${threadsOf(member.pid)} threads, ${before} before`);
        for (const i of [0, 99, 199]) {
            await client.db('parked').collection(`p${i}`).insertOne({ _id: i });
            const batch = await waits[i];
            assert.equal(batch[0].documentKey._id, i);
        }
        await waitFor(async () => (await waiting()) === COUNT - 3, { timeoutMs: 20_000, what: 'the others to wait on' });
        // A cursor that is killed ends its wait; one of a closed connection goes with it.
        await client.db('parked').command({ killCursors: 'p1', cursors: [streams[1].id] });
        assert.equal(await codeOf(waits[1]), 237);
        await client.db('parked').command({ killCursors: 'p2', cursors: [streams[2].id] });
        assert.equal(await codeOf(waits[2]), 237);
    } finally {
        await own.close(true);
    }
    await waitFor(
        async () => (await client.db('admin').command({ serverStatus: 1 })).changeStreams.waiting === 0,
        { timeoutMs: 20_000, what: 'parked streams to go with their connections' },
    );
});

test('REP-5: a stream resumes after a restart of its member', async () => {
    const c = await freshCollection();
    const stream = await RawStream.open(c.collectionName);
    await c.insertMany([{ _id: 1 }, { _id: 2 }], { writeConcern: { w: 'majority' } });
    const [first] = await stream.take(2);
    await set.members[0].kill();
    await set.members[0].start();
    await set.waitForPrimary();
    await c.insertOne({ _id: 3 });
    const resumed = await RawStream.open(c.collectionName, { spec: { resumeAfter: first._id } });
    assert.deepEqual((await resumed.take(2)).map(({ documentKey }) => documentKey._id), [2, 3]);
    await resumed.close();
});

test('REP-5: images before and after a change are shown as they were, or asked for in vain', async () => {
    const c = await freshCollection({ changeStreamPreAndPostImages: { enabled: true } });
    const plain = await freshCollection();
    await c.insertOne({ _id: 1, n: 0, pad: 'x'.repeat(100) });
    await plain.insertOne({ _id: 1, n: 0, pad: 'x'.repeat(100) });
    const open = (of, how) =>
        RawStream.open(of.collectionName, { spec: { fullDocument: how, fullDocumentBeforeChange: how } });
    const required = await open(c, 'required');
    const vain = await open(plain, 'required');
    const maybe = await open(plain, 'whenAvailable');
    for (const of of [c, plain]) {
        await of.updateOne({ _id: 1 }, { $set: { n: 1 } });
        await of.updateOne({ _id: 1 }, { $set: { n: 2 } });
        await of.replaceOne({ _id: 1 }, { n: 3 });
        await of.deleteOne({ _id: 1 });
    }
    const numbers = (events, field) => events.map((event) => event[field]?.n);
    const events = await required.take(4);
    assert.deepEqual(numbers(events, 'fullDocumentBeforeChange'), [0, 1, 2, 3]);
    assert.deepEqual(numbers(events, 'fullDocument'), [1, 2, 3, undefined]);
    assert.equal(await codeOf(vain.take(1)), 47);
    for (const event of await maybe.take(4)) assert.equal(event.fullDocumentBeforeChange, null);
});

test('REP-5: the writes of a transaction are shown together, with its identity, once it commits', async () => {
    const a = await freshCollection();
    const b = await freshCollection({ changeStreamPreAndPostImages: { enabled: true } });
    await b.insertOne({ _id: 1, n: 0 });
    const stream = await RawStream.open(1, { spec: { fullDocumentBeforeChange: 'whenAvailable' } });
    const session = client.startSession();
    session.startTransaction();
    await a.insertOne({ _id: 'gone' }, { session });
    await session.abortTransaction();
    session.startTransaction();
    await a.insertMany([{ _id: 1 }, { _id: 2 }], { session });
    await b.updateOne({ _id: 1 }, { $set: { n: 1 } }, { session });
    await b.deleteOne({ _id: 1 }, { session });
    await session.commitTransaction();
    /* Over 16 MB: a chain of entries. */
    session.startTransaction();
    for (let i = 10; i < 30; i++) await a.insertOne({ _id: i, pad: 'x'.repeat(1 << 20) }, { session });
    await session.commitTransaction();
    await a.insertOne({ _id: 'end' });
    const events = await stream.take(25);
    const small = events.slice(0, 4);
    assert.deepEqual(kinds(small), ['insert', 'insert', 'update', 'delete']);
    assert.deepEqual(small.map(({ fullDocumentBeforeChange: before }) => before?.n), [undefined, undefined, 0, 1]);
    for (const part of [small, events.slice(4, 24)]) {
        assert.equal(new Set(part.map(({ clusterTime, txnNumber }) => `${clusterTime} ${txnNumber}`)).size, 1);
        for (const { lsid } of part) assert.deepEqual(lsid.id.buffer, session.id.id.buffer);
    }
    assert.deepEqual(events.slice(4, 24).map(({ documentKey }) => documentKey._id), Array.from({ length: 20 }, (_, i) => i + 10));
    assert.equal(events[24].lsid, undefined);
    for (const i of [1, 3, 15]) {
        const resumed = await RawStream.open(1, { spec: { resumeAfter: events[i]._id } });
        assert.deepEqual((await resumed.take(24 - i)).map(({ _id }) => _id), events.slice(i + 1).map(({ _id }) => _id));
        await resumed.close();
    }
    await session.endSession();
});
