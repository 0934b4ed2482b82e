/*
 * Goal (MIG-2, BAL-2, I1, I2, I3): moves, splits and merges at full rate, in any order, under clients of two routers: a scan sees every
 * document exactly once at all times, and nothing that was acknowledged is lost.
 *
 * RANDOM_MOVES: how many moves (60). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { random, seedOfRun } from '../lib/expect.mjs';
import { KEYS, MoveLoad, checkMovesOver, checkPlaces } from '../lib/move_load.mjs';
import { waitFor } from '../lib/server.mjs';

const MOVES = Number(process.env.RANDOM_MOVES ?? 60);
const CHUNKS_MAX = 40; // above that they are merged rather than split
const SHARDS = 3;
/* What a moment may refuse: another move or change is under way, or chunks are not what they were. */
const REFUSED = ['ConflictingOperationInProgress', 'OperationFailed', 'ExceededTimeLimit', 'StaleConfig', 'LockBusy', 'StaleEpoch', 'CommandFailed'];
const seed = seedOfRun();
const rand = random(seed);

let cluster;
let clients;
before(async () => {
    cluster = await startCluster({ routers: 2, shards: SHARDS });
    clients = [await cluster.client(), await cluster.client({}, cluster.routers[1])];
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    await cluster.admin({ shardCollection: 'd.c', key: { k: 1 } });
});
after(() => cluster?.remove());

const chunks = async () => {
    const config = clients[0].db('config');
    const { uuid } = await config.collection('collections').findOne({ _id: 'd.c' });
    return config.collection('chunks').find({ uuid }).sort({ min: 1 }).toArray();
};
const lowOf = ({ min }) => (typeof min.k === 'number' ? min.k : 0);
const highOf = ({ max }) => (typeof max.k === 'number' ? max.k : KEYS);

async function moveOne(rows) {
    const row = rand.pick(rows);
    const to = rand.pick(cluster.shards.map(({ name }) => name).filter((name) => name !== row.shard));
    const isPart = rand() < 0.3 && highOf(row) - lowOf(row) > 2;
    const min = isPart ? { k: lowOf(row) + 1 } : row.min;
    await cluster.admin({ moveRange: 'd.c', min, max: row.max, toShard: to }, rand.pick(cluster.routers));
    return 'moves';
}

async function splitOne(rows) {
    const row = rand.pick(rows.filter((one) => highOf(one) - lowOf(one) > 2));
    if (row === undefined) return 'none';
    const middle = lowOf(row) + 1 + rand.below(highOf(row) - lowOf(row) - 1);
    await cluster.admin({ split: 'd.c', middle: { k: middle } }, rand.pick(cluster.routers));
    return 'splits';
}

/* Two neighbours of one shard. */
async function mergeTwo(rows) {
    const pairs = rows.slice(1).flatMap((row, i) => (rows[i].shard === row.shard ? [[rows[i], row]] : []));
    if (pairs.length === 0) return 'none';
    const [{ min }, { max }] = rand.pick(pairs);
    await cluster.admin({ mergeChunks: 'd.c', bounds: [min, max] }, rand.pick(cluster.routers));
    return 'merges';
}

async function act() {
    const rows = await chunks();
    const kind = rand();
    if (kind < 0.6) return moveOne(rows);
    return kind < 0.8 && rows.length < CHUNKS_MAX ? splitOne(rows) : mergeTwo(rows);
}

test(`MIG-2: a random balancer, TEST_SEED=${seed}`, { timeout: 120_000 + 3000 * MOVES }, async () => {
    const load = new MoveLoad(clients, { rand });
    const counts = { moves: 0, splits: 0, merges: 0, none: 0, refused: 0 };
    load.start({ writers: 3, readers: 2 });
    try {
        for (let i = 0; counts.moves < MOVES && i < 6 * MOVES; i++) {
            const what = await act().catch((error) => {
                assert.ok(REFUSED.includes(error.codeName), `${error.codeName}: ${error.message}`);
                return 'refused';
            });
            counts[what]++;
        }
    } finally {
        await load.stop([...cluster.routers, ...cluster.shards.map(({ members }) => members[0])]);
    }
    assert.equal(counts.moves, MOVES, JSON.stringify(counts));
    await load.check(`seed ${seed}`);
    await checkMovesOver(cluster, waitFor);
    await checkPlaces(cluster, clients[0], 'd.c');
    await load.check(`seed ${seed}, after all deletions`);
    console.error(`${JSON.stringify(counts)}, ${load.writes} writes, ${load.scans} scans`);
});
