/*
 * Goal (CST-2, RNG-5): in the oplog of a shard, and so in change streams, documents of a sharded collection are named by their shard key and
 * their _id, whoever wrote them; secondaries find them by the _id alone.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';

let cluster;
let client;
let shard;
let direct; // of the shard's primary

before(async () => {
    cluster = await startCluster({ shards: 1, members: 2 });
    client = await cluster.client();
    [shard] = cluster.shards;
    direct = await shard.direct(await shard.waitForPrimary());
});
after(() => cluster?.remove());

/* The entries of a collection, in their order. */
const entriesOf = (ns, query = {}) =>
    direct.db('local').collection('oplog.rs').find({ ns, op: { $ne: 'n' }, ...query }).sort({ $natural: 1 }).toArray();

const keyOf = ({ op, o, o2 }) => [op, Object.entries(op === 'd' ? o : o2)];

test('every write of a router is told with the whole key, the shard key first', async () => {
    await cluster.admin({ shardCollection: 'd.c', key: { region: 1, 'a.b': 1 } });
    const coll = client.db('d').collection('c', { writeConcern: { w: 2 } });
    const stream = direct.db('d').collection('c').watch();
    const events = [];
    await stream.tryNext(); // it is open
    await coll.insertOne({ _id: 1, region: 'eu', a: { b: 7 }, n: 0 });
    await coll.insertMany([{ _id: 2, region: 'us', a: { b: 1 } }, { _id: 3 }]);
    await coll.updateOne({ region: 'eu', 'a.b': 7 }, { $set: { n: 1 } });
    await coll.replaceOne({ region: 'eu', 'a.b': 7 }, { region: 'eu', a: { b: 7 }, n: 2 });
    await coll.findOneAndUpdate({ region: 'us', 'a.b': 1 }, { $set: { n: 1 } });
    await coll.updateMany({}, { $set: { all: 1 } });
    await coll.deleteOne({ region: 'us', 'a.b': 1 });
    const first = [['region', 'eu'], ['a.b', 7], ['_id', 1]];
    const second = [['region', 'us'], ['a.b', 1], ['_id', 2]];
    const third = [['_id', 3]]; // what it has not is left out
    const wanted = [
        ['i', first], ['i', second], ['i', third],
        ['u', first], ['u', first], ['u', second],
        ['u', first], ['u', second], ['u', third],
        ['d', second],
    ];
    assert.deepEqual((await entriesOf('d.c')).map(keyOf), wanted);
    while (events.length < wanted.length) events.push(await stream.next());
    assert.deepEqual(events.map(({ documentKey }) => Object.entries(documentKey)), wanted.map(([, key]) => key));
    await stream.close();
    await shard.checkCollection('c', 'd');
});

test('a shard key that has the _id names it where it stands; hashed keys are told as they are', async () => {
    await cluster.admin({ shardCollection: 'd.id', key: { _id: 1, x: 1 } });
    await cluster.admin({ shardCollection: 'd.hashed', key: { h: 'hashed' } });
    await client.db('d').collection('id').insertOne({ x: 5, _id: 'one' });
    await client.db('d').collection('hashed').insertOne({ _id: 2, h: 'text' });
    assert.deepEqual((await entriesOf('d.id')).map(keyOf), [['i', [['_id', 'one'], ['x', 5]]]]);
    assert.deepEqual((await entriesOf('d.hashed')).map(keyOf), [['i', [['h', 'text'], ['_id', 2]]]]);
});

test('a write that goes to the shard itself is told by what the shard knows', async () => {
    await direct.db('d').collection('c').insertOne({ _id: 10, region: 'asia', a: { b: 2 } });
    await direct.db('d').collection('plain').insertOne({ _id: 10, region: 'asia' });
    assert.deepEqual((await entriesOf('d.c', { 'o._id': 10 })).map(keyOf), [
        ['i', [['region', 'asia'], ['a.b', 2], ['_id', 10]]],
    ]);
    assert.deepEqual((await entriesOf('d.plain')).map(keyOf), [['i', [['_id', 10]]]]);
});

test('statements of a transaction are told likewise', async () => {
    const session = client.startSession();
    await session.withTransaction(async () => {
        const coll = client.db('d').collection('c');
        await coll.insertOne({ _id: 20, region: 'eu', a: { b: 9 } }, { session });
        await coll.deleteOne({ region: 'eu', 'a.b': 9 }, { session });
    });
    await session.endSession();
    const [{ o }] = await entriesOf('admin.$cmd', { 'o.applyOps.o._id': 20 });
    const key = [['region', 'eu'], ['a.b', 9], ['_id', 20]];
    assert.deepEqual(o.applyOps.map(keyOf), [['i', key], ['d', key]]);
});

test('a collection sharded anew, by another key, is told by that key', async () => {
    await client.db('d').collection('c').drop();
    await client.db('d').collection('c').insertOne({ _id: 30, region: 'eu', z: 1 });
    await client.db('d').collection('c').createIndex({ z: 1 });
    await cluster.admin({ shardCollection: 'd.c', key: { z: 1 } });
    await client.db('d').collection('c').updateOne({ z: 1 }, { $set: { n: 1 } });
    const entries = await entriesOf('d.c', { $or: [{ 'o._id': 30 }, { 'o2._id': 30 }] });
    assert.deepEqual(entries.map(keyOf), [
        ['i', [['_id', 30]]],
        ['u', [['z', 1], ['_id', 30]]],
    ]);
    await shard.checkCollection('c', 'd');
});

test('the members agree after a fail-over, and the new primary tells as the old one did', async () => {
    await shard.waitForSecondaries();
    await shard.stepDown();
    direct = await shard.direct(await shard.waitForPrimary());
    const coll = client.db('d').collection('c', { writeConcern: { w: 2 } });
    await coll.updateOne({ z: 1 }, { $set: { n: 2 } });
    const updates = await entriesOf('d.c', { op: 'u' });
    assert.deepEqual(keyOf(updates.at(-1)), ['u', [['z', 1], ['_id', 30]]]);
    await shard.checkCollection('c', 'd');
});
