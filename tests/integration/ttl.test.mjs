/* Documents that expire: by an index on a date, or by the date in _id of a clustered collection. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails, ids } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer({ args: ['--setParameter', 'ttlMonitorSleepSecs=1'] });
const idsOf = async (cursor) =>
    ids(await cursor.toArray()).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
const create = (c, ...indexes) => node.db.command({ createIndexes: c.collectionName, indexes });
const ago = (seconds) => new Date(Date.now() - seconds * 1000);
/* Of all nodes that have documents: passes that each has made, the others together. */
async function metrics() {
    const all = await Promise.all(node.dataAdmins.map((admin) => admin.command({ serverStatus: 1 })));
    const values = (name) => all.map(({ metrics: { ttl } }) => Number(ttl[name]));
    const sum = (name) => values(name).reduce((a, b) => a + b);
    return {
        passes: Math.min(...values('passes')),
        subPasses: sum('subPasses'),
        deletedDocuments: sum('deletedDocuments'),
        invalidTTLIndexSkips: sum('invalidTTLIndexSkips'),
    };
}
const set = (parameter) => Promise.all(node.dataAdmins.map((admin) => admin.command({ setParameter: 1, ...parameter })));

/* Waits until a whole pass has begun and ended. */
async function onePass() {
    const from = Number((await metrics()).passes);
    for (let i = 0; i < 400; i++) {
        if (Number((await metrics()).passes) >= from + 2) return;
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.fail('no pass of the TTL monitor within 20 seconds');
}

test('what has expired goes, what has not stays', async () => {
    const c = await node.collection([
        { _id: 'old', at: ago(100) },
        { _id: 'young', at: ago(5) },
        { _id: 'future', at: ago(-100) },
        { _id: 'number', at: 5 },
        { _id: 'text', at: '2001-01-01' },
        { _id: 'null', at: null },
        { _id: 'none' },
        { _id: 'ancient', at: new Date(-1e12) },
        { _id: 'lowest', at: [ago(-50), ago(100), 'x'] },
        { _id: 'all young', at: [ago(1), ago(-50)] },
        { _id: 'empty', at: [] },
    ]);
    const before = await metrics();
    await create(c, { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 60 });
    await onePass();
    assert.deepEqual(await idsOf(c.find()), [
        'all young', 'empty', 'future', 'none', 'null', 'number', 'text', 'young',
    ]);
    const after = await metrics();
    assert.equal(Number(after.deletedDocuments) - Number(before.deletedDocuments), 3);
    assert.ok(after.subPasses >= after.passes);
    const report = await node.db.command({ validate: c.collectionName });
    assert.equal(report.valid, true);
});

test('descending, hidden and partial indexes expire too', async () => {
    const c = await node.collection([
        { _id: 1, at: ago(100), done: true },
        { _id: 2, at: ago(100), done: false },
        { _id: 3, at: ago(-100), done: true },
    ]);
    await create(c, {
        key: { at: -1 }, name: 'ttl', expireAfterSeconds: 0, hidden: true,
        partialFilterExpression: { done: true },
    });
    await onePass();
    assert.deepEqual(await idsOf(c.find()), [2, 3]);
});

test('collMod changes when documents expire', async () => {
    const c = await node.collection([{ _id: 1, at: ago(100) }]);
    await create(c, { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 3600 });
    await onePass();
    assert.equal(await c.countDocuments(), 1);
    const modify = (index) => node.db.command({ collMod: c.collectionName, index });
    const reply = await modify({ keyPattern: { at: 1 }, expireAfterSeconds: 10 });
    assert.deepEqual(
        [Number(reply.expireAfterSeconds_old), Number(reply.expireAfterSeconds_new)],
        [3600, 10],
    );
    await onePass();
    assert.equal(await c.countDocuments(), 0);
    await create(c, { key: { b: 1 }, name: 'plain' }, { key: { b: 1, c: 1 }, name: 'two' });
    const made = await modify({ name: 'plain', expireAfterSeconds: 5 });
    assert.deepEqual(
        [made.expireAfterSeconds_old, Number(made.expireAfterSeconds_new)],
        [undefined, 5],
    );
    await fails(modify({ name: 'two', expireAfterSeconds: 5 }), 72);
    await fails(modify({ name: '_id_', expireAfterSeconds: 5 }), 72);
    await fails(modify({ name: 'ttl', expireAfterSeconds: -1 }), 72);
    assert.equal((await c.indexes())[1].expireAfterSeconds, 10);
});

test('a clustered collection expires by the date in _id', async () => {
    const c = await node.collection([], {
        clusteredIndex: { key: { _id: 1 }, unique: true },
        expireAfterSeconds: 60,
    });
    await c.insertMany([{ _id: ago(100) }, { _id: ago(90), x: 1 }, { _id: ago(10) }, { _id: 5 }]);
    await onePass();
    assert.equal(await c.countDocuments(), 2);
    const [info] = await node.db.listCollections({ name: c.collectionName }).toArray();
    assert.equal(Number(info.options.expireAfterSeconds), 60);
    const modify = (expireAfterSeconds) =>
        node.db.command({ collMod: c.collectionName, expireAfterSeconds });
    await modify('off');
    await c.insertOne({ _id: ago(1000) });
    await onePass();
    assert.equal(await c.countDocuments(), 3);
    await modify(0);
    await onePass();
    assert.deepEqual(await idsOf(c.find()), [5]);
    const plain = await node.collection([{}]);
    await fails(node.db.command({ collMod: plain.collectionName, expireAfterSeconds: 5 }), 72);
    await fails(node.db.command({ create: node.newName(), expireAfterSeconds: 5 }), 72);
});

test('the monitor goes round its indexes, a part of each at a time', async () => {
    await set({ ttlMonitorEnabled: false });
    const few = await node.collection([{ at: ago(100) }]);
    const many = await node.collection();
    const docs = Array.from({ length: 3000 }, (_, i) => ({ at: ago(100 + i), pad: i }));
    await many.insertMany(docs);
    for (const c of [many, few])
        await create(c, { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 1 });
    await set({ ttlIndexDeleteTargetDocs: 100 });
    await set({ ttlMonitorEnabled: true });
    await onePass();
    assert.deepEqual([await few.countDocuments(), await many.countDocuments()], [0, 0]);
    await set({ ttlIndexDeleteTargetDocs: 50000 });
    await set({ ttlMonitorBatchDeletes: false });
    await many.insertMany(docs.slice(0, 50).map(({ at }) => ({ at })));
    await onePass();
    assert.equal(await many.countDocuments(), 0);
    await set({ ttlMonitorBatchDeletes: true });
});

test('nothing expires while the monitor is off', async () => {
    await set({ ttlMonitorEnabled: false });
    const c = await node.collection([{ at: ago(100) }]);
    await create(c, { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 1 });
    await new Promise((resolve) => setTimeout(resolve, 2500));
    assert.equal(await c.countDocuments(), 1);
    await set({ ttlMonitorEnabled: true });
    await onePass();
    assert.equal(await c.countDocuments(), 0);
});

test('TTL indexes have their rules', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const ttl = (expireAfterSeconds, key = { at: 1 }) =>
        create(c, { key, name: 'ttl', expireAfterSeconds });
    for (const bad of [-1, 2147483648, 'x', null]) await fails(ttl(bad), 67);
    await fails(ttl(1, { a: 1, b: 1 }), 67);
    await fails(create(c, { key: { _id: 1 }, name: '_id_', expireAfterSeconds: 1 }), 197);
    await ttl(NaN);
    assert.equal((await c.indexes())[1].expireAfterSeconds, 2147483647);
    const capped = await node.collection([], { capped: true, size: 4096 });
    await fails(create(capped, { key: { a: 1 }, name: 'ttl', expireAfterSeconds: 1 }), 67);
});

test('a document whose date is moved on in time is not deleted', async () => {
    /* Goal: a deletion looks at the document again in its own transaction.
     * Method: updates race with the monitor; what an update found must still be there. */
    await set({ ttlMonitorEnabled: false });
    const c = await node.collection();
    const count = 4000;
    await c.insertMany(Array.from({ length: count }, (_, i) => ({ _id: i, at: ago(1000 + i) })));
    await create(c, { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 1 });
    const passesBefore = Number((await metrics()).passes);
    await set({ ttlMonitorEnabled: true });
    const saved = [];
    const rescue = async (from) => {
        for (let i = from; i < count; i += 8) {
            const result = await c.updateOne({ _id: i }, { $set: { at: ago(-1000) } });
            if (result.modifiedCount === 1) saved.push(i);
        }
    };
    await Promise.all(Array.from({ length: 8 }, (_, i) => rescue(i)));
    while (Number((await metrics()).passes) <= passesBefore) await onePass();
    await onePass();
    assert.deepEqual(
        await idsOf(c.find()),
        saved.sort((a, b) => a - b),
    );
    const report = await node.db.command({ validate: c.collectionName });
    assert.equal(report.valid, true);
});
