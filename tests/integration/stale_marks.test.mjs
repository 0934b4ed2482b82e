/*
 * Goal (RTE-2): that one shard refuses a request because of old metadata makes the router read them again for requests to that shard; others
 * go on meanwhile.
 *
 * Method: a shard refuses one request by a failpoint, and the config server hangs when it is asked for the routing table.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { ObjectId, Timestamp } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';

const STALE_CONFIG = 13388;
const HANG_MS = 3000;

let cluster;
let coll;
let own; // a key of each shard

before(async () => {
    cluster = await startCluster();
    const client = await cluster.client();
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    await cluster.admin({ shardCollection: 'd.c', key: { k: 'hashed' } });
    coll = client.db('d').collection('c');
    await coll.insertMany(Array.from({ length: 50 }, (_, k) => ({ k })));
    own = [];
    for (const shard of cluster.shards) {
        const direct = await shard.direct(shard.members[0]);
        own.push((await direct.db('d').collection('c').findOne()).k);
    }
    await find(0);
    await find(1);
});
after(() => cluster?.remove());

const find = (i) => coll.findOne({ k: own[i] });
const update = (i) => coll.updateOne({ k: own[i] }, { $inc: { n: 1 } });

const failCommand = (set, mode, data) =>
    set.command(set.members[0], {
        configureFailPoint: 'failCommand',
        mode,
        ...(data && { data: { ...data, failInternalCommands: true } }),
    });

/* The next command of that name is refused by shard0, once; `extra`: what the error says besides. */
const refuse = (command, extra) =>
    failCommand(cluster.shards[0], { times: 1 }, {
        failCommands: [command],
        errorCode: STALE_CONFIG,
        errorExtraInfo: { ns: 'd.c', shardId: 'shard0', ...extra },
    });

const hangConfig = () =>
    failCommand(cluster.config, 'alwaysOn', {
        failCommands: ['find'],
        namespace: 'config.collections',
        blockConnection: true,
        blockTimeMS: HANG_MS,
    });

/* Resolves to the ms it took. */
async function timed(promise) {
    const start = performance.now();
    await promise;
    return performance.now() - start;
}

beforeEach(() => failCommand(cluster.config, 'off'));

for (const [command, run] of [['find', find], ['update', update]])
    test(`a refused ${command} reads the routing table again, and requests to the other shard go on`, async () => {
        await hangConfig();
        await refuse(command);
        const refused = timed(run(0)); // reads the table
        let others = 0;
        let isOver = false;
        void refused.then(() => (isOver = true));
        const joined = timed((async () => {
            await new Promise((done) => setTimeout(done, 500));
            await run(0);
        })());
        while (!isOver) {
            await find(1);
            await update(1);
            if (!isOver) others++;
        }
        assert.ok((await refused) >= HANG_MS * 0.9, `the refused one took ${await refused} ms`);
        assert.ok((await joined) >= HANG_MS * 0.8, `the one that joined took ${await joined} ms`);
        assert.ok(others >= 3, `${others} rounds of others`);
        await failCommand(cluster.config, 'off');
        assert.ok((await timed(run(0))) < HANG_MS / 2, 'and then it is fresh for everybody');
    });

test('requests to all shards wait for the table', async () => {
    await hangConfig();
    await refuse('find');
    const refused = timed(find(0));
    await new Promise((done) => setTimeout(done, 500));
    const all = timed(coll.find({}).toArray());
    assert.ok((await refused) >= HANG_MS * 0.9);
    assert.ok((await all) >= HANG_MS * 0.7);
});

test('a shard that knows another generation makes the table old for all', async () => {
    await hangConfig();
    const vWanted = { e: new ObjectId(), t: new Timestamp({ t: 5, i: 1 }), v: new Timestamp({ t: 1, i: 0 }) };
    await refuse('find', { vWanted });
    const refused = timed(find(0));
    await new Promise((done) => setTimeout(done, 500));
    const other = timed(find(1));
    assert.ok((await refused) >= HANG_MS * 0.9);
    assert.ok((await other) >= HANG_MS * 0.5);
});
