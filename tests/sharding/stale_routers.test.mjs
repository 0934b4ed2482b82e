/*
 * Goal (RTE-2, RTE-3, RTE-6, DDL-3): a router that knows nothing of what another one changes gives no wrong result, loses no write
 * and does not retry for ever.
 *
 * Method: one router shards, splits, merges, renames, drops and creates a collection again and again, some 500 changes of metadata;
 * clients of the other one write and read all the time. What was acknowledged while a collection lived is there, once, for both.
 *
 * STALE_ROUNDS: how many lives of the collection (40). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Long } from 'mongodb';
import { startCluster } from '../lib/cluster.mjs';
import { random, seedOfRun } from '../lib/expect.mjs';

const ROUNDS = Number(process.env.STALE_ROUNDS ?? 40);
const SPLITS = 8;
const WRITERS = 3;
const rand = random(seedOfRun());

let cluster;
let changer; // client of the router that changes metadata
let stale; // of the other one
let changes = 0;
before(async () => {
    cluster = await startCluster({ routers: 2 });
    changer = await cluster.client();
    stale = await cluster.client({ retryWrites: false }, cluster.routers[1]);
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
});
after(() => cluster?.remove());

async function change(command, db = 'admin') {
    const reply = await changer.db(db).command(command);
    changes++;
    return reply;
}

const chunksOf = async (ns) => {
    const { uuid } = await changer.db('config').collection('collections').findOne({ _id: ns });
    return changer.db('config').collection('chunks').find({ uuid }, { promoteLongs: false }).sort({ min: 1 }).toArray();
};

/* Splits and merges, which move nothing and must disturb nobody. */
async function reshape(ns, isHashed) {
    for (let i = 0; i < SPLITS; i++) {
        const hash = () => Long.fromBits(rand.below(2 ** 31), rand.below(2 ** 31) - 2 ** 30);
        const point = isHashed ? hash() : rand.below(1_000_000);
        const isTaken = (await chunksOf(ns)).some(({ min }) => String(min.k) === String(point));
        if (!isTaken) await change({ split: ns, middle: { k: point } });
    }
    const rows = await chunksOf(ns);
    for (let i = 0; i + 1 < rows.length; i++)
        if (rows[i].shard === rows[i + 1].shard && rand() < 0.7) {
            await change({ mergeChunks: ns, bounds: [rows[i].min, rows[i + 1].max] });
            i++;
        }
}

/* One writer through the stale router: inserts, and updates of what it has inserted. Its ledger is what was acknowledged. */
class Writer {
    ledger = new Map();
    constructor(coll, id) {
        Object.assign(this, { coll, id, count: 0, isStopping: false });
    }
    start() {
        this.running = this.#run();
    }
    async #run() {
        while (!this.isStopping) {
            const _id = `${this.id}-${this.count++}`;
            const k = rand.below(1_000_000);
            await this.coll.insertOne({ _id, k, n: 0 });
            this.ledger.set(_id, { k, n: 0 });
            if (rand() < 0.3) {
                const { matchedCount } = await this.coll.updateOne({ _id, k }, { $inc: { n: 1 } });
                assert.equal(matchedCount, 1, `${_id} is there for an update`);
                this.ledger.get(_id).n++;
            }
            if (rand() < 0.2) {
                const found = await this.coll.find({ k }).toArray();
                assert.equal(found.filter((doc) => doc._id === _id).length, 1, `${_id} is found once`);
            }
        }
    }
    async stop() {
        this.isStopping = true;
        await this.running;
    }
}

async function checkAll(clients, name, writers, where) {
    const wanted = new Map(writers.flatMap(({ ledger }) => [...ledger]));
    for (const [who, client] of Object.entries(clients)) {
        const coll = client.db('d').collection(name);
        const found = await coll.find().toArray();
        assert.equal(found.length, wanted.size, `${where}: ${who} sees as many`);
        for (const { _id, k, n } of found) assert.deepEqual({ k, n }, wanted.get(_id), `${where}: ${who} ${_id}`);
        assert.equal(await coll.countDocuments(), wanted.size, `${where}: ${who} counts`);
        const [sum] = await coll.aggregate([{ $group: { _id: null, n: { $sum: '$n' } } }]).toArray();
        assert.equal(sum?.n ?? 0, [...wanted.values()].reduce((all, { n }) => all + n, 0), `${where}: ${who} sums`);
    }
}

for (let round = 0; round < ROUNDS; round++)
    test(`RTE-3: a stale router, round ${round}`, { timeout: 60_000 }, async () => {
        await changer.db('d').collection('c').drop(); // what a failed round has left
        const isHashed = rand() < 0.6;
        const clients = { changer, stale };
        /* Sometimes it has documents before it is sharded, all of them written by the other router. */
        const writers = Array.from({ length: WRITERS }, (_, i) => new Writer(stale.db('d').collection('c'), `${round}-${i}`));
        const isFull = rand() < 0.5;
        if (isFull) {
            await changer.db('d').collection('c').createIndex({ k: isHashed ? 'hashed' : 1 });
            for (const writer of writers) writer.start();
        }
        await change({ shardCollection: 'd.c', key: { k: isHashed ? 'hashed' : 1 } });
        if (!isFull) for (const writer of writers) writer.start();
        await reshape('d.c', isHashed);
        await Promise.all(writers.map((writer) => writer.stop()));
        await checkAll(clients, 'c', writers, `round ${round}`);
        let name = 'c';
        if (rand() < 0.5) {
            await change({ renameCollection: 'd.c', to: 'd.renamed', dropTarget: true });
            name = 'renamed';
            await checkAll(clients, name, writers, `round ${round}, renamed`);
            assert.equal(await stale.db('d').collection('c').countDocuments(), 0);
        }
        await change({ drop: name }, 'd');
        assert.equal(await stale.db('d').collection(name).countDocuments(), 0, 'dropped');
        if (round === ROUNDS - 1) console.log(`${changes} changes of metadata`);
    });

test('RTE-3: nothing is left of all that', async () => {
    assert.ok(changes >= Math.min(500, ROUNDS * 10), `${changes} changes of metadata`);
    assert.equal(await changer.db('config').collection('chunks').countDocuments(), 0);
    for (const shard of cluster.shards) {
        const config = (await shard.direct(shard.members[0])).db('config');
        assert.equal(await config.collection('collection_critical_sections').countDocuments(), 0);
    }
});
