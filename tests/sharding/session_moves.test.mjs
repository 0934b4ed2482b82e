/*
 * Goal (MIG-3, SES-3): a retryable write that is sent again after its range has moved is answered by the new owner as it was answered
 * before, and is not executed a second time; whenever it was executed, before the move or during it, and however often the range moves.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Long, Timestamp } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { RawSession, runBare } from '../lib/raw_session.mjs';
import { waitFor } from '../lib/server.mjs';

const INCOMPLETE_HISTORY = 217;

let cluster;
let client;
const sessions = [];
before(async () => {
    cluster = await startCluster({ routers: 2, shards: 3 });
    client = await cluster.client();
    for (const shard of cluster.shards)
        await shard.command(shard.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
});
after(async () => {
    for (const session of sessions) session.close();
    await cluster?.remove();
});

/* Through either router: the second one learns of a move by being refused. */
function newSession(i = 0) {
    const session = new RawSession(cluster.routers[i]);
    sessions.push(session);
    return session;
}
const move = (coll, toShard, more = {}) =>
    cluster.admin({ moveRange: `d.${coll}`, min: { k: 0 }, max: { k: 100 }, toShard, waitForDelete: true, ...more });
const shardOf = (name) => cluster.shards.find((shard) => shard.name === name);
const chunksOf = async (coll) => {
    const config = client.db('config');
    const { uuid } = await config.collection('collections').findOne({ _id: `d.${coll}` });
    return config.collection('chunks').find({ uuid }, { promoteLongs: false }).toArray();
};
/* All chunks that are not there yet. */
async function moveAll(coll, toShard) {
    for (const { min, max, shard } of await chunksOf(coll))
        if (shard !== toShard) await move(coll, toShard, { min, max });
    assert.ok((await chunksOf(coll)).every(({ shard }) => shard === toShard));
}

/* Without what says that it was a repetition. */
function outcome({ retriedStmtIds: _, retriedStmtId: __, ...reply }) {
    assert.equal(reply.ok, 1, reply.errmsg);
    assert.equal(reply.writeErrors, undefined);
    return reply;
}

const WRITES = {
    'an insert': (c) => ({ insert: c, documents: [{ _id: 'i', k: 1 }] }),
    'an insert of many, some of other ranges': (c) => ({
        insert: c,
        ordered: false,
        documents: Array.from({ length: 40 }, (_, i) => ({ _id: `many${i}`, k: i * 5 })),
    }),
    'an update': (c) => ({ update: c, updates: [{ q: { _id: 'u', k: 2 }, u: { $inc: { n: 1 } } }] }),
    'a replacement': (c) => ({ update: c, updates: [{ q: { _id: 'u', k: 2 }, u: { k: 2, n: 50 } }] }),
    'several updates, one an upsert': (c) => ({
        update: c,
        updates: [
            { q: { _id: 'u', k: 2 }, u: { $inc: { n: 1 } } },
            { q: { _id: 'up', k: 3 }, u: { $inc: { n: 1 } }, upsert: true },
            { q: { _id: 'u', k: 2 }, u: { $push: { list: 1 } } },
        ],
    }),
    'a delete': (c) => ({ delete: c, deletes: [{ q: { k: 4 }, limit: 1 }] }),
    'findAndModify, the document before': (c) => ({ findAndModify: c, query: { _id: 'f', k: 5 }, update: { $inc: { n: 1 } } }),
    'findAndModify, the document after': (c) => ({ findAndModify: c, query: { _id: 'f', k: 5 }, update: { $inc: { n: 1 } }, new: true }),
    'findAndModify that removes': (c) => ({ findAndModify: c, query: { k: 6 }, remove: true }),
    'findAndModify that upserts': (c) => ({ findAndModify: c, query: { _id: 'fu', k: 7 }, update: { $inc: { n: 1 } }, upsert: true, new: true }),
};

async function fill(coll, key = { k: 1 }) {
    await cluster.admin({ shardCollection: `d.${coll}`, key });
    await client.db('d').collection(coll).insertMany([
        { _id: 'u', k: 2, n: 0 },
        { _id: 'd1', k: 4 },
        { _id: 'd2', k: 4 },
        { _id: 'f', k: 5, n: 0 },
        { _id: 'r1', k: 6 },
        { _id: 'r2', k: 6 },
    ]);
}
const contents = (coll) => client.db('d').collection(coll).find().sort({ _id: 1 }).toArray();

async function runAll(coll) {
    const runs = [];
    for (const [name, make] of Object.entries(WRITES)) {
        const session = newSession(runs.length % 2);
        runs.push({ name, session, command: make(coll), reply: outcome(await session.run(make(coll), 7, 'd')) });
    }
    return runs;
}

/* All of them again: nothing changes, the answers are the same. */
async function repeatAll(coll, runs, where) {
    const before = await contents(coll);
    for (const { name, session, command, reply } of runs) {
        const again = await session.run(command, 7, 'd');
        assert.ok(again.retriedStmtIds?.length > 0 || again.retriedStmtId !== undefined, `${name}, ${where}: ${JSON.stringify(again)}`);
        assert.deepEqual(outcome(again), reply, `${name}, ${where}`);
    }
    assert.deepEqual(await contents(coll), before, where);
}

for (const [coll, key] of Object.entries({ ranged: { k: 1 }, hashed: { k: 'hashed' } }))
    test(`MIG-3: every kind of write, repeated after each move: ${coll}`, { timeout: 120_000 }, async () => {
        await fill(coll, key);
        const runs = await runAll(coll);
        await repeatAll(coll, runs, 'not moved yet');
        for (const shard of ['shard1', 'shard2', 'shard0']) {
            await moveAll(coll, shard);
            await repeatAll(coll, runs, `moved to ${shard}`);
        }
    });

test('MIG-3: writes made while the range moves', async () => {
    await fill('during');
    const before = await runAll('during');
    const recipient = shardOf('shard1');
    const hold = { configureFailPoint: 'mig.r.catchup', mode: { times: 1 }, data: { blockTimeMS: 60_000 } };
    const { count } = await recipient.command(recipient.members[0], hold);
    const moving = move('during', 'shard1');
    const entered = { waitForFailPoint: 'mig.r.catchup', timesEntered: Number(count) + 1, maxTimeMS: 60_000 };
    await recipient.command(recipient.members[0], entered);
    const [session, image] = [newSession(), newSession(1)];
    const increment = { update: 'during', updates: [{ q: { _id: 'u', k: 2 }, u: { $inc: { n: 1 } } }] };
    const modify = { findAndModify: 'during', query: { _id: 'f', k: 5 }, update: { $inc: { n: 1 } } };
    const reply = outcome(await session.run(increment, 1, 'd'));
    const value = outcome(await image.run(modify, 1, 'd'));
    await recipient.command(recipient.members[0], { ...hold, mode: 'off' });
    await moving;
    await repeatAll('during', before, 'before the move');
    const kept = await contents('during');
    assert.deepEqual(outcome(await session.run(increment, 1, 'd')), reply);
    assert.deepEqual(outcome(await image.run(modify, 1, 'd')), value);
    assert.deepEqual(await contents('during'), kept);
    /* The session goes on. */
    assert.equal(outcome(await session.run(increment, 2, 'd')).nModified, 1);
});

test('MIG-3: what was received survives the death of the new owner', async () => {
    await fill('restart');
    const runs = await runAll('restart');
    await move('restart', 'shard1');
    const [member] = shardOf('shard1').members;
    await member.kill('SIGKILL');
    await member.start();
    await shardOf('shard1').waitForPrimary();
    await waitFor(() => contents('restart').then(() => true, () => false), { timeoutMs: 20_000, what: 'the shard to answer' });
    await repeatAll('restart', runs, 'after a restart');
});

test('MIG-3: a history larger than one answer', { timeout: 120_000 }, async () => {
    await fill('long');
    const session = newSession();
    const documents = Array.from({ length: 20_000 }, (_, i) => ({ _id: `${i}`.padEnd(300, 'x'), k: i % 100 }));
    const insert = { insert: 'long', documents };
    assert.equal(outcome(await session.run(insert, 3, 'd')).n, documents.length);
    await move('long', 'shard1');
    assert.deepEqual(outcome(await session.run(insert, 3, 'd')), { n: documents.length, ok: 1 });
    assert.equal(await client.db('d').collection('long').countDocuments({ k: { $gte: 0 } }), documents.length + 6);
});

test('MIG-3: what is too large for a history is not executed again either', async () => {
    await fill('large');
    const session = newSession();
    const pad = 'x'.repeat(2 * 1024 * 1024);
    const upsert = { findAndModify: 'large', query: { _id: 'big', k: 9 }, update: { $set: { pad }, $inc: { n: 1 } }, upsert: true, new: true };
    outcome(await session.run(upsert, 1, 'd'));
    const withImage = newSession();
    const modify = { findAndModify: 'large', query: { _id: 'big', k: 9 }, update: { $inc: { n: 1 } } };
    outcome(await withImage.run(modify, 1, 'd'));
    await move('large', 'shard1');
    assert.equal((await session.run(upsert, 1, 'd')).code, INCOMPLETE_HISTORY);
    assert.equal((await withImage.run(modify, 1, 'd')).code, INCOMPLETE_HISTORY);
    assert.equal((await client.db('d').collection('large').findOne({ k: 9 })).n, 2);
});

test('MIG-3: of a history that the donor has only a part of, nothing is executed a second time', async () => {
    await fill('trimmed');
    const session = newSession();
    const insert = (_id, number) => session.run({ insert: 'trimmed', documents: [{ _id, k: 1 }] }, number, 'd');
    /* As if the oplog had lost the entries of number 5. */
    outcome(await insert('first', 5));
    const [donor] = shardOf('shard0').members;
    const rows = (await shardOf('shard0').direct(donor)).db('config').collection('transactions');
    const row = (await rows.find({}).toArray()).find(({ _id }) => _id.id.toHexString() === session.lsid.id.toHexString());
    const lastWriteOpTime = { ts: new Timestamp({ t: 1, i: 1 }), t: Long.fromNumber(1) };
    await runBare(donor, { update: 'transactions', updates: [{ q: { _id: row._id }, u: { $set: { lastWriteOpTime } } }] }, 'config');
    await move('trimmed', 'shard1');
    const refused = await insert('second', 5);
    assert.equal(refused.code ?? refused.writeErrors?.[0].code, INCOMPLETE_HISTORY, JSON.stringify(refused));
    assert.equal(outcome(await insert('third', 6)).n, 1);
});

test('MIG-3: a session that has gone on elsewhere keeps its newer number', async () => {
    await fill('older');
    const session = newSession();
    const insert = (_id, k, number) => session.run({ insert: 'older', documents: [{ _id, k }] }, number, 'd');
    await move('older', 'shard1', { min: { k: 200 }, max: { k: 300 } });
    outcome(await insert('a', 1, 4));
    outcome(await insert('b', 250, 5)); // on shard1
    await move('older', 'shard1');
    outcome(await insert('b', 250, 5));
    assert.equal((await insert('a', 1, 4)).codeName, 'TransactionTooOld');
    assert.equal(await client.db('d').collection('older').countDocuments({ _id: { $in: ['a', 'b'] } }), 2);
});
