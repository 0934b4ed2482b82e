/*
 * Goal (OPL-1, APP-2, DUR-2, DUR-3, INI-2): a unit of work of 40 MB is several entries of the oplog and
 * yet one thing: nobody sees half of it, on any member, whatever dies in the middle; and entries say
 * which document they are about by its whole key. Method: _testWriteUnit writes documents of two
 * collections with one value in one unit; whoever sees two values has seen half of one. Members are
 * killed at failpoints between the entries, start, copy and roll back from the middle of a chain.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { BSON, Long, Timestamp } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const COLLECTIONS = ['a', 'b'];
const DOCUMENTS = 20; // of each collection
const SIZE = 1 << 20;
const CRASHED = 137;
const NOT_THERE = new Timestamp(Long.fromInt(0));

let set = null;
before(async () => {
    set = await startReplicaSet({
        members: 3,
        /* A primary that is alone has time to write before it steps down. */
        settings: { electionTimeoutMillis: 10_000, heartbeatIntervalMillis: 200 },
        args: ['--syncdelay', '1', '--wiredTigerCacheSizeGB', '0.5'],
    });
    const db = (await set.client()).db('test');
    for (const name of COLLECTIONS) await db.createCollection(name, { writeConcern: { w: 3 } });
});
after(() => set?.remove());

let value = 0; // of the last unit that was committed
const others = (member) => set.members.filter((other) => other !== member);
const unit = (next, more = {}) => ({
    _testWriteUnit: 'a',
    also: 'b',
    count: DOCUMENTS,
    size: SIZE,
    value: Long.fromNumber(next),
    ...more,
});

/* A unit with the next value; `w` members have it then. */
async function writeUnit({ w = 3, ...more } = {}) {
    const primary = await set.waitForPrimary();
    const command = unit(value + 1, { writeConcern: { w, wtimeout: 60_000 }, ...more });
    const reply = await set.command(primary, command, 'test');
    assert.equal(reply.writeConcernError, undefined);
    value++;
    return reply;
}

/* The distinct values of a collection on one member, all as of one moment. */
async function valuesOf(client, name) {
    const cursor = client.db('test').collection(name).find({}, { projection: { value: 1 } });
    const documents = await cursor.toArray();
    return [...new Set(documents.map((document) => document.value))];
}

async function isEverywhere(expected) {
    await set.waitForSecondaries();
    await set.waitForReplication();
    for (const member of set.members) {
        const client = await set.direct(member);
        for (const name of COLLECTIONS) {
            assert.deepEqual(await valuesOf(client, name), [expected]);
            /* Also the count that is kept, which a kill may have made wrong, comes right again. */
            const found = client.db('test').collection(name).countDocuments({ _id: { $gte: 0 } });
            assert.equal(await found, DOCUMENTS);
        }
    }
    await set.checkCollection('a'); // the hash is that of both
    await Promise.all(set.members.map((member) => member.closeClients()));
}

/* The newest entries of a member's oplog, newest first. */
async function newest(member, limit) {
    const client = await set.direct(member);
    const cursor = client.db('local').collection('oplog.rs').find();
    return cursor.sort({ $natural: -1 }).limit(limit).toArray();
}

/* The secondary has applied at least so many entries of the next unit, but not the last one, and stays
 * there. */
async function stopWithin(secondary, write, least = 1) {
    await set.waitForReplication();
    let isThere = await set.hang(secondary, 'repl.batchApplied');
    const written = write();
    for (;;) {
        await isThere();
        const entries = await newest(secondary, least);
        if (entries.every(({ o }) => o.partialTxn)) return { written };
        assert.ok(!entries[0].o.count, 'it went on beyond the unit');
        /* Not enough, or a batch of something else: on to the next one. Set anew it lets this one go, and nothing slips through. */
        isThere = await set.hang(secondary, 'repl.batchApplied');
    }
}

test('a large unit is a chain of entries, each within 16 MB', async () => {
    const { firstTs, lastTs } = await writeUnit({ fromMigrate: true });
    for (const member of set.members) {
        const entries = (await newest(member, 10)).filter(
            ({ ts }) => ts.greaterThanOrEqual(firstTs) && ts.lessThanOrEqual(lastTs),
        );
        assert.equal(entries.length, 3);
        const [last, ...partial] = entries;
        assert.ok(last.ts.equals(lastTs) && entries.at(-1).ts.equals(firstTs));
        assert.equal(last.o.count, 2 * DOCUMENTS);
        assert.ok(!('partialTxn' in last.o));
        assert.ok(partial.every(({ o }) => o.partialTxn === true && !('count' in o)));
        for (const [i, { prevOpTime }] of entries.entries())
            assert.ok(prevOpTime.ts.equals(entries[i + 1]?.ts ?? NOT_THERE));
        const rows = entries.flatMap(({ o }) => o.applyOps);
        assert.equal(rows.length, 2 * DOCUMENTS);
        assert.ok(rows.every(({ op, fromMigrate }) => op === 'i' && fromMigrate === true));
        for (const entry of entries) assert.ok(BSON.calculateObjectSize(entry) <= 16 << 20);
    }
    await isEverywhere(value);
});

test('readers of a secondary never see half of a unit', async () => {
    const primary = await set.waitForPrimary();
    const secondary = others(primary)[0];
    const client = await secondary.client({ readPreference: 'secondaryPreferred' });
    let isOver = false;
    let reads = 0;
    const seen = new Set();
    const read = async (first, second) => {
        while (!isOver) {
            const before = await valuesOf(client, first);
            const behind = await valuesOf(client, second);
            assert.equal(before.length, 1, `half of a unit: ${before}`);
            assert.equal(behind.length, 1, `half of a unit: ${behind}`);
            assert.ok(behind[0] >= before[0], 'a unit in one collection, not in the other');
            seen.add(before[0]);
            reads++;
        }
    };
    const readers = [read('a', 'b'), read('b', 'a')];
    for (let i = 0; i < 4; i++) await writeUnit();
    isOver = true;
    await Promise.all(readers);
    assert.ok(reads > 4 && seen.size > 1, `${reads} reads of ${[...seen]}`);
    await isEverywhere(value);
});

test('a primary that dies between the entries of a unit has written nothing', async () => {
    const primary = await set.waitForPrimary();
    await set.crashAt(primary, 'oplog.unitEntryWritten', { skip: 1 });
    await assert.rejects(set.command(primary, unit(value + 1), 'test'));
    assert.equal((await primary.waitEnd()).code, CRASHED);
    await set.waitForSuccessor(primary);
    await primary.start();
    await isEverywhere(value);
    await writeUnit();
    await isEverywhere(value);
});

test('a secondary that dies while it applies a unit applies it anew', async () => {
    const primary = await set.waitForPrimary();
    const victim = others(primary)[1];
    await set.crashAt(victim, 'apply.unitPartApplied', { skip: 1 });
    await writeUnit({ w: 2 });
    assert.equal((await victim.waitEnd()).code, CRASHED);
    await victim.start();
    await isEverywhere(value);
});

test('a secondary stops between two batches of one unit: it shows nothing, and starts there', async () => {
    const primary = await set.waitForPrimary();
    const victim = others(primary)[0];
    const { written } = await stopWithin(victim, () => writeUnit({ w: 2 }));
    const client = await victim.client({ readPreference: 'secondaryPreferred' });
    for (const name of COLLECTIONS) assert.deepEqual(await valuesOf(client, name), [value]);
    await victim.kill();
    await written;
    await victim.start();
    await isEverywhere(value);
});

test('an initial sync from a member that is within a unit gets all of it', async () => {
    const primary = await set.waitForPrimary();
    const [source, copy] = others(primary);
    await copy.stop();
    /* More than one entry: with the newest alone the copy could not go on. The unit is twice as
     * large, so that it has enough of them. */
    const { written } = await stopWithin(source, () => writeUnit({ w: 1, size: 2 * SIZE }), 2);
    await written;
    rmSync(copy.dbpath, { recursive: true });
    primary.signal('SIGSTOP'); // only the other one can be copied from
    try {
        await copy.start();
        await copy.waitLog(({ msg }) => msg === 'Initial sync done', 30_000);
    } finally {
        primary.signal('SIGCONT');
    }
    const begun = copy.log.find(({ msg }) => msg === 'Starting initial sync');
    assert.equal(begun.attr.syncSource, `${source.host}:${source.fixedPort}`);
    await set.release(source, 'repl.batchApplied');
    await isEverywhere(value);
});

/* `primary` sleeps with what only it has, until the others have gone on without it. */
async function rollBack(primary) {
    primary.signal('SIGSTOP');
    try {
        await Promise.all(others(primary).map((member) => member.start()));
        await set.waitForSuccessor(primary);
    } finally {
        primary.log.length = 0;
        primary.signal('SIGCONT');
    }
    await primary.waitLog(({ msg }) => msg === 'Rollback done', 30_000);
    return primary.log.find(({ msg }) => msg === 'Rollback done').attr;
}

/* Documents that rollbacks have put into files. */
function removedDocuments(member) {
    const folder = join(member.dbpath, 'rollback');
    if (!existsSync(folder)) return [];
    const documents = [];
    for (const uuid of readdirSync(folder))
        for (const file of readdirSync(join(folder, uuid))) {
            const bytes = readFileSync(join(folder, uuid, file));
            for (let at = 0; at < bytes.length; at += bytes.readInt32LE(at))
                documents.push(BSON.deserialize(bytes.subarray(at, at + bytes.readInt32LE(at))));
        }
    return documents;
}

test('a unit that nobody else has is rolled back whole', async () => {
    const primary = await set.waitForPrimary();
    await set.waitForReplication();
    await Promise.all(others(primary).map((member) => member.kill()));
    await set.command(primary, unit(value + 1, { writeConcern: { w: 1 } }), 'test');
    const { entries } = await rollBack(primary);
    assert.ok(entries >= 3, `${entries} entries undone`);
    await isEverywhere(value);
    const removed = removedDocuments(primary).filter((document) => document.value === value + 1);
    assert.equal(removed.length, 2 * DOCUMENTS);
});

test('histories that part within a unit: it is rolled back whole, its first entries stay unused', async () => {
    const primary = await set.waitForPrimary();
    const rest = others(primary);
    const stops = [];
    await set.waitForReplication();
    /* Both at once: one unit stops both of them. */
    for (const member of rest) stops.push(await set.hang(member, 'repl.batchApplied'));
    await set.command(primary, unit(value + 50, { writeConcern: { w: 1 } }), 'test');
    for (const [i, member] of rest.entries()) {
        await stops[i]();
        const [entry] = await newest(member, 1);
        assert.equal(entry.o.partialTxn, true, 'stopped within the unit');
    }
    await Promise.all(rest.map((member) => member.kill()));
    const before = removedDocuments(primary).length;
    const { entries } = await rollBack(primary);
    assert.ok(entries >= 1 && entries <= 3, `${entries} entries undone`);
    const lost = removedDocuments(primary).slice(before);
    assert.equal(lost.filter((document) => document.value === value + 50).length, 2 * DOCUMENTS);
    await isEverywhere(value);
    const oplog = await newest(primary, 50);
    const partial = oplog.filter(({ o }) => o.partialTxn && o.applyOps[0].o.value === value + 50);
    assert.ok(partial.length > 0, 'its first entries are in the oplog');
    assert.ok(!oplog.some(({ o }) => o.count && o.applyOps[0].o.value === value + 50));
    await writeUnit();
    await isEverywhere(value);
});

test('entries name their document by its whole key, and the _id alone finds it', async () => {
    const primary = await set.waitForPrimary();
    await set.command(primary, {
        configureFailPoint: 'oplog.documentKey',
        mode: 'alwaysOn',
        data: { ns: 'test.k', fields: ['region', 'a.b'] },
    });
    const db = (await set.direct(primary, { retryWrites: true })).db('test');
    const k = db.collection('k', { writeConcern: { w: 3 } });
    const entry = async () => {
        const [found] = (await newest(primary, 20)).filter(({ ns }) => ns === 'test.k');
        return found;
    };
    await k.insertOne({ _id: 1, region: 'eu', a: { b: 7, c: 1 }, n: 0, pad: 'x'.repeat(200) });
    assert.deepEqual(Object.entries((await entry()).o2), [['region', 'eu'], ['a.b', 7], ['_id', 1]]);
    await k.updateOne({ _id: 1 }, { $set: { 'a.b': 8 }, $inc: { n: 1 } });
    assert.deepEqual((await entry()).o2, { region: 'eu', 'a.b': 7, _id: 1 });
    await k.updateOne({ _id: 1 }, { $unset: { region: 1 } });
    assert.deepEqual((await entry()).o2, { region: 'eu', 'a.b': 8, _id: 1 });
    const found = await k.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } });
    assert.deepEqual(found.n, 1);
    assert.deepEqual((await entry()).o2, { 'a.b': 8, _id: 1 }); // what is missing is left out
    await k.insertMany([{ _id: 2 }, { _id: 3, a: [{ b: 1 }] }]);
    await k.deleteOne({ _id: 3 });
    assert.deepEqual((await entry()).o, { _id: 3 });
    await k.insertOne({ _id: 4, region: 'us' });
    await k.deleteOne({ _id: 4 });
    assert.deepEqual((await entry()).o, { region: 'us', _id: 4 });

    await set.checkCollection('k'); // applied by others
    const secondary = others(primary)[0];
    await secondary.kill(); // and applied again
    await secondary.start();
    await set.waitForSecondaries();
    await set.checkCollection('k');

    /* And taken back: the files of the rollback have the document that the key names. */
    await Promise.all(others(primary).map((member) => member.kill()));
    const alone = db.collection('k', { writeConcern: { w: 1 } });
    await alone.updateOne({ _id: 1 }, { $set: { n: 'lost' } });
    await alone.deleteOne({ _id: 2 });
    await rollBack(primary);
    assert.ok(removedDocuments(primary).some(({ _id, n }) => _id === 1 && n === 'lost'));
    await set.checkCollection('k');
    const kept = await set.command(primary, { find: 'k', sort: { _id: 1 } }, 'test');
    assert.deepEqual(kept.cursor.firstBatch.map(({ _id, n }) => [_id, n]), [[1, 2], [2, undefined]]);
});

test('a trimmed collection may forget more than an entry holds', async () => {
    const primary = await set.waitForPrimary();
    const db = (await set.direct(primary)).db('test');
    await db.createCollection('capped', { capped: true, size: 20 << 20 });
    const capped = db.collection('capped', { writeConcern: { w: 3 } });
    /* Each entry of a delete is some 100 bytes beside its _id: 60,000 of them and 15.9 MB more. */
    for (let i = 0; i < 3; i++)
        await capped.insertMany(Array.from({ length: 30_000 }, () => ({ pad: 'x'.repeat(150) })));
    await capped.insertOne({ _id: 'large', pad: 'x'.repeat(16_600_000) });
    const [last] = (await newest(primary, 5)).filter(({ o }) => o.applyOps !== undefined);
    assert.ok(last.o.count > 30_000, `${last.o.count} writes`);
    await set.checkCollection('capped');
});
