/*
 * routed.mjs - a small cluster that stands in for the node of a test file: its router takes the
 * node's place, and collections are sharded as soon as they are made, where that is possible.
 * router_suite.mjs tells for which tests they are not.
 */
import { MaxKey, MinKey, ObjectId } from 'mongodb';
import { startCluster } from './cluster.mjs';
import { explain } from './server.mjs';

/* What cannot be sharded: views, capped collections, those with other unique indexes, or made too late. */
const NOT_SHARDABLE = new Set([2, 13, 20, 72, 73, 166]);

/*
 * Chunks change hands at these ids: the few documents of most tests lie on both shards, and so do
 * numbers, strings, and ids that clients make.
 */
const POINTS = [1, 2, 4, 5, 7, 10, 25, 60, 150, 400, 1000, 'a', 'm', new ObjectId('000000000000000000000000')];
const ZONES = ['even', 'odd'];

/* The router, with what fixture.mjs needs of a node. `args` are for the shards, too. */
export async function startRouted({ args = [] } = {}) {
    const cluster = await startCluster({ shards: ZONES.length, shardArgs: args, routerArgs: args });
    for (const [i, zone] of ZONES.entries()) await cluster.admin({ addShardToZone: `shard${i}`, zone });
    const router = cluster.routers[0];
    const shardClients = await Promise.all(cluster.shards.map((shard) => shard.direct(shard.members[0])));
    router.dataAdmins = shardClients.map((client) => client.db('admin'));
    const removeRouter = router.remove.bind(router);
    router.remove = async () => {
        cluster.routers = [];
        try {
            await removeRouter();
        } finally {
            await cluster.remove();
        }
    };
    return router;
}

/*
 * Makes the database shard its collections by _id, over both shards: those that it creates, and
 * others when documents are first inserted by their helpers. `isOn()`: shall it?
 */
export function shardCollections(client, name, isOn = () => true) {
    const db = client.db(name);
    const asked = new Map(); // name of a collection to the promise that it is sharded, or cannot be
    const shard = async (coll) => {
        if (!isOn()) return;
        if (!asked.has(coll)) asked.set(coll, shardOne(client, `${name}.${coll}`));
        await asked.get(coll);
    };
    const forget = (coll) => asked.delete(coll);
    const wrap = (object, verb, around) => {
        const plain = object[verb].bind(object);
        object[verb] = (...args) => around(plain, ...args);
    };
    db.shard = shard;
    wrap(db, 'createCollection', async (create, coll, options) => {
        const created = await create(coll, options);
        await shard(coll);
        return created;
    });
    wrap(db, 'dropCollection', (drop, coll, ...rest) => drop(coll, ...rest).finally(() => forget(coll)));
    wrap(db, 'collection', (open, coll, options) => {
        const collection = open(coll, options);
        for (const verb of ['insertOne', 'insertMany'])
            wrap(collection, verb, async (insert, ...args) => {
                await shard(coll);
                return insert(...args);
            });
        wrap(collection, 'drop', (drop, ...args) => drop(...args).finally(() => forget(coll)));
        return collection;
    });
    return db;
}

/* By ranges of _id, so that there is no index that a node alone would not have. */
async function shardOne(client, ns) {
    const bounds = [new MinKey(), ...POINTS, new MaxKey()].map((_id) => ({ _id }));
    const zones = bounds.slice(1).map((max, i) => ({
        _id: { ns, min: bounds[i] },
        ns,
        min: bounds[i],
        max,
        tag: ZONES[i % ZONES.length],
    }));
    const command = { shardCollection: ns, key: { _id: 1 }, collation: { locale: 'simple' } };
    const tags = client.db('config').collection('tags');
    await tags.insertMany(zones, { writeConcern: { w: 'majority' } });
    try {
        await client.db('admin').command(command);
    } catch (error) {
        await tags.deleteMany({ ns });
        if (!NOT_SHARDABLE.has(error.code)) throw explain(error, `shardCollection of ${ns}`);
    }
}
