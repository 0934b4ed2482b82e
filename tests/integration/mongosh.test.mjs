/* OPS-2: mongosh works unchanged. Each test is one scripted run of the shell. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { useServer } from '../lib/fixture.mjs';
import { runShell } from '../lib/mongosh.mjs';

const node = useServer();
const shell = (...statements) =>
    runShell(
        { uri: `mongodb://127.0.0.1:${node.server.port}/shell`, home: node.server.root },
        ...statements,
    );
const json = async (expression) => JSON.parse(await shell(`print(EJSON.stringify(${expression}))`));

test('OPS-2: mongosh inserts, finds, updates and deletes', async () => {
    assert.deepEqual(
        await json(`(() => {
        db.pets.drop();
        db.pets.insertOne({ _id: 1, name: 'Rex' });
        db.pets.insertMany([{ _id: 2, name: 'Tom' }, { _id: 3, name: 'Kim' }]);
        db.pets.updateOne({ _id: 1 }, { $set: { age: 3 } });
        db.pets.deleteOne({ _id: 2 });
        return { all: db.pets.find().sort({ _id: 1 }).toArray(), count: db.pets.countDocuments() };
    })()`),
        {
            all: [
                { _id: 1, name: 'Rex', age: 3 },
                { _id: 3, name: 'Kim' },
            ],
            count: 2,
        },
    );
});

test('OPS-2: mongosh shows databases and collections', async () => {
    await node.client.db('shell').collection('seen').insertOne({});
    assert.match(await shell('show dbs'), /^shell\s+[\d.]+ [KMG]iB$/m);
    assert.match(await shell('show collections'), /^seen\s*$/m);
    assert.match(await shell('show tables'), /seen/);
});

test('OPS-2: db.stats(), collection stats and serverStatus print', async () => {
    await node.client
        .db('shell')
        .collection('stats')
        .insertMany([{ a: 1 }, { a: 2 }]);
    const stats = await json('db.stats()');
    assert.equal(stats.db, 'shell');
    assert.ok(stats.objects >= 2);
    const collection = await json("db.getCollection('stats').stats()");
    assert.equal(collection.count, 2);
    assert.equal(collection.ns, 'shell.stats');
    assert.equal((await json('db.serverStatus()')).ok, 1);
});

test('OPS-2: explain, indexes and aggregate in mongosh', async () => {
    const result = await json(`(() => {
        db.ix.insertMany([{ a: 1 }, { a: 2 }]);
        db.ix.createIndex({ a: 1 });
        return {
            stage: db.ix.find({ a: 1 }).explain().queryPlanner.winningPlan.inputStage.stage,
            indexes: db.ix.getIndexes().map((index) => index.name),
            sum: db.ix.aggregate([{ $group: { _id: null, s: { $sum: '$a' } } }]).toArray()[0].s,
        };
    })()`);
    assert.deepEqual(result, { stage: 'IXSCAN', indexes: ['_id_', 'a_1'], sum: 3 });
});

test('OPS-2: the helpers of mongosh for users and administrators', async () => {
    const result = await json(`({
        hello: db.hello().ok, version: db.version(), ops: db.currentOp().ok, host: db.hostInfo().ok,
        names: db.getCollectionNames().length >= 0, dbs: db.adminCommand({ listDatabases: 1 }).ok,
        log: db.adminCommand({ getLog: 'global' }).ok,
        parameters: db.adminCommand({ getParameter: '*' }).ok,
        profile: db.getProfilingStatus().ok,
        commands: Object.keys(db.runCommand({ listCommands: 1 }).commands).length > 10,
    })`);
    assert.deepEqual(result, {
        hello: 1,
        version: result.version,
        ops: 1,
        host: 1,
        names: true,
        dbs: 1,
        log: 1,
        parameters: 1,
        profile: 1,
        commands: true,
    });
    assert.match(result.version, /^7\.0/);
});

test('OPS-2: an error in mongosh names the code', async () => {
    const out = await shell(
        `db.dup.insertOne({ _id: 1 })`,
        `try { db.dup.insertOne({ _id: 1 }) } catch (e) { print(e.code, e.message) }`,
    );
    assert.match(out, /11000.*E11000 duplicate key error collection: shell.dup/);
});
