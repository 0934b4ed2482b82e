/*
 * Goal (MIG-4, I1, I2, I3, I7): whoever dies at whatever step of a move, it ends done or undone; nothing that was acknowledged is lost,
 * no document is on two shards or on none, nobody stays blocked, and the next move works.
 *
 * Method: clients write and scan through two routers; the donor, the recipient or the config server ends at each named point, before its
 * journal was flushed and after, and is started again.
 *
 * MOVE_KILLS=n: each point n times (1). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { random, seedOfRun } from '../lib/expect.mjs';
import { MOVE_POINTS, MoveLoad, checkMovesOver, checkPlaces, chooseMove } from '../lib/move_load.mjs';
import { waitFor } from '../lib/server.mjs';

const ATTEMPTS = 3;
const TIMES = Number(process.env.MOVE_KILLS ?? 1);
const seed = seedOfRun();
const rand = random(seed);
describe(`moves survive, TEST_SEED=${seed}`, () => {
    let cluster;
    let clients;
    let load;
    before(async () => {
        cluster = await startCluster({ routers: 2 });
        clients = [await cluster.client({}), await cluster.client({}, cluster.routers[1])];
        for (const shard of cluster.shards)
            await shard.command(shard.members[0], { setParameter: 1, orphanCleanupDelaySecs: 0 });
        await cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
        await cluster.admin({ shardCollection: 'd.c', key: { k: 1 } });
        load = new MoveLoad(clients, { rand, isLoose: true });
        load.start({ writers: 2, readers: 1 });
    });
    after(async () => {
        await load?.stop().catch(() => {});
        await cluster?.remove();
    });

    const shardOf = (name) => cluster.shards.find((shard) => shard.name === name);

    const placeOf = (point) => (point.startsWith('configChange') ? { at: 'move' } : {});

    /* The node ends itself at the point: what it wrote a moment ago is not in its journal yet. */
    async function crashAt(set, point) {
        const [member] = set.members;
        await set.command(member, { configureFailPoint: point, mode: { times: 1 }, data: { crash: true, ...placeOf(point) } });
        return () => waitFor(() => !member.isRunning(), { timeoutMs: 30_000, what: `a crash at ${point}` });
    }

    /* It is held at the point, and killed when everything it wrote is on disk. */
    async function killAfterFlushAt(set, point) {
        const [member] = set.members;
        const data = { blockTimeMS: 60_000, ...placeOf(point) };
        const { count } = await set.command(member, { configureFailPoint: point, mode: { times: 1 }, data });
        return async () => {
            await set.command(member, { waitForFailPoint: point, timesEntered: Number(count) + 1, maxTimeMS: 30_000 });
            await set.command(member, { fsync: 1 });
            await member.kill();
        };
    }

    async function restart(set, member) {
        await member.start();
        await set.waitForPrimary();
        if (set !== cluster.config) await set.command(member, { setParameter: 1, orphanCleanupDelaySecs: 0 });
    }

    const rows = Object.entries(MOVE_POINTS).flatMap(([who, points]) => points.map((point) => [who, point]));
    const ways = { 'at once': crashAt, 'after a flush': killAfterFlushAt };
    for (let time = 0; time < TIMES; time++)
        for (const [who, point] of rows)
            for (const [way, dieAt] of Object.entries(ways))
                test(`MIG-4: the ${who} dies at ${point}, ${way}${time > 0 ? `, time ${time + 1}` : ''}`, { timeout: 120_000 }, async () => {
                    const { command, from, to } = await chooseMove(clients[0], rand);
                    const set = who === 'config' ? cluster.config : shardOf(who === 'donor' ? from : to);
                    const [member] = set.members;
                    const death = await dieAt(set, point);
                    /* One that did not come so far is asked for again: writers may be in its way on a slow machine. */
                    const attempt = async () => {
                        for (let i = 0; i < ATTEMPTS && member.isRunning(); i++) {
                            const outcome = await cluster.admin(command).catch((error) => error.codeName ?? error.message);
                            if (outcome.ok === 1) return;
                        }
                    };
                    const outcome = attempt();
                    await death();
                    await restart(set, member);
                    await outcome;
                    await checkMovesOver(cluster, waitFor);
                    await load.scan(load.collection(0), point);
                });

    for (const point of ['mig.d.cloning', 'mig.d.critSecWrites'])
        test(`MIG-4: the router that has asked for the move dies at ${point}`, { timeout: 120_000 }, async () => {
            const { command, from } = await chooseMove(clients[0], rand);
            const set = shardOf(from);
            const [member] = set.members;
            const router = await cluster.addRouter();
            const hold = { configureFailPoint: point, mode: { times: 1 }, data: { blockTimeMS: 60_000 } };
            const { count } = await set.command(member, hold);
            const reached = set.command(member, { waitForFailPoint: point, timesEntered: Number(count) + 1, maxTimeMS: 30_000 });
            const outcome = cluster.admin(command, router).catch((error) => error);
            await reached;
            await router.kill();
            await set.command(member, { ...hold, mode: 'off' });
            assert.ok((await outcome) instanceof Error);
            await checkMovesOver(cluster, waitFor);
            await load.scan(load.collection(0), point);
        });

    test('MIG-4: after all of them nothing is lost, doubled or misplaced, and ranges still move', { timeout: 180_000 }, async () => {
        await load.stop([...cluster.routers, ...cluster.shards.map(({ members }) => members[0])]);
        await load.check(`seed ${seed}`);
        await checkPlaces(cluster, clients[0], 'd.c');
        const { command } = await chooseMove(clients[0], rand);
        await cluster.admin({ ...command, waitForDelete: true });
        await load.check(`seed ${seed}, moved once more`);
        await checkPlaces(cluster, clients[0], 'd.c');
        console.error(`${load.writes} writes, ${load.scans} scans, ${load.failures} of both failed`);
    });
});
