/*
 * What a member of a replica set needs of its own cannot be taken from it while it runs: its oplog,
 * configuration, vote, keys. Started alone the same data can be repaired.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { Server } from '../lib/server.mjs';

const OWN = [
    'local.oplog.rs',
    'local.system.replset',
    'local.system.rollback.id',
    'local.replset.election',
    'local.replset.minvalid',
    'local.replset.oplogTruncateAfterPoint',
    'local.replset.initialSyncId',
    'admin.system.keys',
    'config.system.indexBuilds',
];

let set, client, admin;
before(async () => {
    set = await startReplicaSet({ members: 1 });
    client = await set.client();
    admin = client.db('admin');
});
after(() => set.remove());

const split = (ns) => [ns.slice(0, ns.indexOf('.')), ns.slice(ns.indexOf('.') + 1)];

test('REP-1: the collections of a member cannot be dropped or renamed', async () => {
    for (const ns of OWN) {
        const [db, name] = split(ns);
        await fails(client.db(db).command({ drop: name }), 20, ns);
        const away = name.startsWith('system.') ? `${db}.system.js` : `${db}.elsewhere`;
        await fails(admin.command({ renameCollection: ns, to: away }), 20, ns);
        await client.db(db).collection(split(away)[1]).insertOne({ a: 1 });
        const onto = { renameCollection: away, to: ns, dropTarget: true };
        await fails(admin.command(onto), 20, ns);
        await client.db(db).collection(split(away)[1]).drop();
        await fails(client.db(db).command({ convertToCapped: name, size: 4096 }), 20, ns);
    }
    await fails(client.db('local').command({ dropDatabase: 1 }), 20);
    await fails(admin.command({ dropDatabase: 1 }), 20);
    await fails(admin.command({ drop: 'system.version' }), 20);
});

test('OPL-1: the live oplog is written by the node alone', async () => {
    const oplog = client.db('local').collection('oplog.rs');
    await fails(oplog.insertOne({ _id: 1 }), 73);
    await fails(oplog.deleteMany({}), 73);
    await fails(oplog.updateMany({}, { $set: { a: 1 } }), 73);
    await fails(oplog.findOneAndDelete({}), 73);
    await fails(oplog.createIndex({ a: 1 }), 67);
    const local = client.db('local');
    await fails(local.command({ collMod: 'oplog.rs', cappedSize: 1024 * 1024 }), 72);
});

test('REP-1: the member goes on, also after another start', async () => {
    await client.db('test').collection('c').insertOne({ _id: 1 }, { writeConcern: { w: 1, j: true } });
    const [member] = set.members;
    await member.stop();
    await member.start();
    await set.waitForPrimary();
    client = await set.client();
    assert.equal(await client.db('test').collection('c').countDocuments({ _id: 1 }), 1);
});

test('OPS-2: a node started alone may repair them', async () => {
    const [member] = set.members;
    await member.stop();
    const alone = new Server({ dbpath: member.dbpath });
    try {
        await alone.start();
        const local = (await alone.client()).db('local');
        const changed = await local
            .collection('system.replset')
            .updateOne({}, { $set: { 'settings.heartbeatTimeoutSecs': 11 } });
        assert.equal(changed.modifiedCount, 1);
        await local.collection('replset.initialSyncId').drop();
        await fails(local.command({ drop: 'oplog.rs' }), 20);
        await local.dropDatabase();
        assert.deepEqual(await local.listCollections().toArray(), []);
    } finally {
        await alone.remove();
    }
});
