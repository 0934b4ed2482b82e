/*
 * ddl_kills.mjs - tests that end a process at each border of an operation on the cluster; ddl_kills.test.mjs and
 * move_primary_kills.test.mjs have them run side by side, each on a cluster of its own.
 *
 * Goal (DDL-2, DDL-3, I7): whoever dies at whatever border of an operation on the cluster, it ends done or undone: the
 * routing table, the collections of all shards and their critical sections agree, and the same operation works afterwards.
 *
 * Method: one row per operation, border and phase: the coordinating shard, or the config server, ends there by a failpoint and
 * is started again; or the router is killed while the coordinator is held there.
 *
 * DDL_KILLS=all: at every border of each phase, not only after its work and before that is noted.
 */
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { startCluster } from '../lib/cluster.mjs';
import { waitFor } from '../lib/server.mjs';

const SETTLE_MS_MAX = 30_000;
const BORDERS =
    process.env.DDL_KILLS === 'all' ? ['task.beforeRun', 'task.afterRun', 'task.written'] : ['task.afterRun'];
const isSharded = (world, ns) => world.config.collection('collections').findOne({ _id: ns });

/* What each operation needs, does, and how its outcome is told. */
export const OPERATIONS = {
    shardCollection: {
        prepare: async () => {},
        command: { shardCollection: 'd.c', key: { k: 'hashed' } },
        isDone: async (world) => (await isSharded(world, 'd.c')) !== null,
        phases: ['begin', 'create.block', 'create.build', 'create.participants', 'create.commit', 'create.release'],
        configPoints: ['create'],
    },
    drop: {
        prepare: (world) => world.shard('d.c'),
        command: { drop: 'c' },
        db: 'd',
        isDone: async (world) => (await isSharded(world, 'd.c')) === null && (await world.hasNowhere('c')),
        phases: ['begin', 'drop.block', 'drop.commit', 'drop.data', 'drop.release'],
        configPoints: ['drop', 'removeChunks'],
    },
    rename: {
        prepare: async (world) => {
            await world.shard('d.c');
            await world.shard('d.t');
        },
        command: { renameCollection: 'd.c', to: 'd.t', dropTarget: true },
        isDone: async (world) => (await isSharded(world, 'd.c')) === null && (await world.hasNowhere('c')),
        phases: ['begin', 'rename.block', 'rename.data', 'rename.commit', 'rename.release'],
        configPoints: ['rename'],
    },
    dropDatabase: {
        prepare: async (world) => {
            await world.shard('d.c');
            await world.client.db('d').collection('plain').insertOne({});
        },
        command: { dropDatabase: 1 },
        db: 'd',
        isDone: async (world) =>
            (await world.config.collection('databases').findOne({ _id: 'd' })) === null && (await world.hasNowhere('c')),
        phases: ['begin', 'dbdrop.next', 'dbdrop.one', 'dbdrop.block', 'dbdrop.data', 'dbdrop.commit', 'dbdrop.release'],
        configPoints: ['dropDatabase'],
    },
    movePrimary: {
        prepare: async (world) => {
            await world.shard('d.c');
            const d = world.client.db('d');
            await d.collection('plain').insertMany(Array.from({ length: 500 }, (_, i) => ({ _id: i, a: i })));
            await d.collection('plain').createIndex({ a: 1 }, { unique: true });
            await d.createCollection('capped', { capped: true, size: 10_000 });
            await d.collection('capped').insertMany(Array.from({ length: 20 }, (_, i) => ({ _id: 100 - i })));
            await d.createCollection('view', { viewOn: 'plain', pipeline: [{ $match: { a: { $lt: 10 } } }] });
        },
        command: { movePrimary: 'd', to: 'shard1' },
        /* Done or not: all of it is in one place, and the same; and can be written. */
        isDone: async (world) => {
            const { primary } = await world.config.collection('databases').findOne({ _id: 'd' });
            const [other] = world.cluster.shards.filter(({ name }) => name !== primary);
            const found = await (await world.direct(other)).db('d').listCollections({}, { nameOnly: true }).toArray();
            assert.deepEqual(
                found.map(({ name }) => name),
                ['c'],
                `collections of ${other.name}, which is not the primary`,
            );
            const d = world.client.db('d');
            assert.equal(await d.collection('plain').countDocuments({ a: { $gte: 0 } }), 500);
            assert.deepEqual(
                (await d.collection('capped').find().toArray()).map(({ _id }) => 100 - _id),
                Array.from({ length: 20 }, (_, i) => i),
            );
            assert.equal(await d.collection('view').countDocuments(), 10);
            await d.collection('written').insertOne({});
            await d.collection('written').drop();
            const { cursor } = await d.command({ checkMetadataConsistency: 1 });
            assert.deepEqual(cursor.firstBatch, []);
            return primary === 'shard1';
        },
        phases: [
            'begin',
            'movePrimary.block',
            'movePrimary.clone',
            'movePrimary.catchup',
            'movePrimary.enterCritSec',
            'movePrimary.commit',
            'movePrimary.clean',
            'movePrimary.exitCritSec',
        ],
        configPoints: ['movePrimary'],
        /* Within phases: [which shard, failpoint, after how many times]. */
        points: [
            [0, 'movePrimary.enterCritSec', 0],
            [0, 'movePrimary.enterCritSec', 1],
            [0, 'movePrimary.clone', 1],
            [1, 'movePrimary.copyInserted', 1],
            [0, 'movePrimary.catchup', 0],
            [0, 'movePrimary.commit', 0],
            [0, 'movePrimary.clean', 0],
            [0, 'movePrimary.exitCritSec', 0],
        ],
    },
};

class World {
    async start() {
        this.cluster = await startCluster();
        this.client = await this.cluster.client({ retryWrites: false });
        this.config = this.client.db('config');
        await this.cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    }

    shard = (ns) => this.cluster.admin({ shardCollection: ns, key: { k: 'hashed' } });
    direct = async (shard) => shard.direct(shard.members[0]);

    async hasNowhere(name) {
        for (const shard of this.cluster.shards) {
            const found = await (await this.direct(shard)).db('d').listCollections({ name }).toArray();
            if (found.length > 0) return false;
        }
        return true;
    }

    run = ({ command, db = 'admin' }) => this.client.db(db).command(command);

    /* Until no coordinator is left; then nobody may be in a section. */
    async settle() {
        for (const shard of this.cluster.shards) {
            await shard.waitForPrimary();
            const config = (await this.direct(shard)).db('config');
            const coordinators = config.collection('system.sharding_ddl_coordinators');
            await waitFor(async () => (await coordinators.find().toArray()).length === 0, {
                timeoutMs: SETTLE_MS_MAX,
                what: `the coordinators of ${shard.name} to end`,
            });
        }
        for (const shard of this.cluster.shards) {
            const sections = (await this.direct(shard)).db('config').collection('collection_critical_sections');
            assert.deepEqual(await sections.find().toArray(), [], `sections of ${shard.name}`);
        }
    }

    /* The routing table names collections that its owners have, with the same UUID; no chunk belongs to none. */
    async check() {
        const entries = await this.config.collection('collections').find().toArray();
        const chunks = await this.config.collection('chunks').find().toArray();
        for (const { _id, uuid } of entries) {
            const own = chunks.filter((chunk) => chunk.uuid.equals(uuid));
            assert.ok(own.length > 0, `${_id} has chunks`);
            for (const owner of new Set(own.map((chunk) => chunk.shard))) {
                const shard = this.cluster.shards.find(({ name }) => name === owner);
                const name = _id.slice(_id.indexOf('.') + 1);
                const [found] = await (await this.direct(shard)).db('d').listCollections({ name }).toArray();
                assert.ok(found !== undefined && found.info.uuid.equals(uuid), `${_id} on ${owner}`);
            }
        }
        for (const chunk of chunks)
            assert.ok(entries.some(({ uuid }) => uuid.equals(chunk.uuid)), 'a chunk of no collection');
    }

    async reset() {
        await this.client.db('d').dropDatabase();
        await this.cluster.admin({ enableSharding: 'd', primaryShard: 'shard0' });
    }
}

/*
 * The deaths that each of the named operations meets, as tests of [name, body]; call it within a `describe`, which runs them:
 * a test counts for the file that calls `test`.
 */
export function killDuring(...names) {
    const world = new World();
    const deaths = [];
    const test = (name, body) => deaths.push([name, body]);
    before(() => world.start());
    after(() => world.cluster?.remove());

    /* However it ended: whole, and it can be done (again). */
    async function checkOutcome(operation, where) {
        await world.settle();
        await world.check();
        if (!(await operation.isDone(world))) await world.run(operation);
        await world.settle();
        assert.ok(await operation.isDone(world), where);
        await world.check();
        await world.reset();
    }

    async function crashAt(set, point, at, mode = { times: 1 }) {
        const [member] = set.members;
        const data = at === undefined ? { crash: true } : { at, crash: true };
        await set.command(member, { configureFailPoint: point, mode, data });
        return async () => {
            await waitFor(() => !member.isRunning(), { timeoutMs: 20_000, what: `a crash at ${point} ${at}` });
            const { code } = await member.waitEnd();
            assert.equal(code, 137);
            await member.start();
            await set.waitForPrimary();
        };
    }

    /* Begins the operation, and holds its coordinator before that phase. */
    async function runUpTo(shard, operation, phase) {
        const data = { at: phase, blockTimeMS: 60_000 };
        const hold = { configureFailPoint: 'task.beforeRun', mode: 'alwaysOn', data };
        const { count } = await shard.command(shard.members[0], hold);
        const outcome = world.run(operation).catch(() => {});
        const timesEntered = Number(count) + 1;
        await shard.command(shard.members[0], { waitForFailPoint: 'task.beforeRun', timesEntered, maxTimeMS: 20_000 });
        return [outcome];
    }

    for (const name of names) {
        const operation = OPERATIONS[name];
        for (const phase of operation.phases)
            for (const border of BORDERS)
                test(`DDL-2: ${name}: the coordinator dies at ${border} of ${phase}`, async () => {
                    await operation.prepare(world);
                    const recover = await crashAt(world.cluster.shards[0], border, phase);
                    const outcome = world.run(operation).catch(() => {});
                    await recover();
                    await outcome;
                    await checkOutcome(operation, `${name} ${border} ${phase}`);
                });
        for (const [i, point, skip] of operation.points ?? [])
            test(`DDL-2: ${name}: shard${i} dies at ${point}, after ${skip} times`, async () => {
                await operation.prepare(world);
                const recover = await crashAt(world.cluster.shards[i], point, undefined, { skip });
                const outcome = world.run(operation).catch(() => {});
                await recover();
                await outcome;
                await checkOutcome(operation, `${name} ${point}`);
            });
        for (const at of operation.configPoints)
            for (const point of ['configChange.written', 'configChange.committed'])
                test(`DDL-2: ${name}: the config server dies at ${point} of ${at}`, async () => {
                    await operation.prepare(world);
                    const recover = await crashAt(world.cluster.config, point, at);
                    const outcome = world.run(operation).catch(() => {});
                    await recover();
                    await outcome;
                    await checkOutcome(operation, `${name} ${point} ${at}`);
                });
        for (const phase of operation.phases.slice(1))
            test(`DDL-2: ${name}: another shard is dead during ${phase}`, async () => {
                await operation.prepare(world);
                const [shard, other] = world.cluster.shards;
                const [outcome] = await runUpTo(shard, operation, phase);
                await other.members[0].kill();
                await shard.release(shard.members[0], 'task.beforeRun');
                await other.members[0].start();
                await outcome;
                await checkOutcome(operation, `${name} ${phase} without a shard`);
            });
        test(`DDL-2: ${name}: the router dies while it is under way`, async () => {
            await operation.prepare(world);
            const shard = world.cluster.shards[0];
            const [router] = world.cluster.routers;
            const [outcome] = await runUpTo(shard, operation, operation.phases[2]);
            await router.kill();
            await outcome;
            await shard.release(shard.members[0], 'task.beforeRun');
            await router.start();
            world.client = await world.cluster.client({ retryWrites: false });
            world.config = world.client.db('config');
            await checkOutcome(operation, `${name} without its router`);
        });
    }
    return { world, deaths, runUpTo, crashAt, checkOutcome };
}
