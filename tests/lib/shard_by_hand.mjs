/*
 * shard_by_hand.mjs - a sharded collection whose chunks are where a test wants them.
 */
import { MaxKey, MinKey, ObjectId, Timestamp, UUID } from 'mongodb';

/*
 * Makes `ns` a sharded collection with the shard key `key`, cut at `points` (key documents, rising);
 * owners[i] is the name of the shard that has the i-th chunk. `options` are those of the collection
 * ({collation}). The database is made on the first shard unless it is there.
 */
export async function shardByHand(cluster, ns, { key, points = [], owners, collation, options = {}, unique = false }) {
    if (collation !== undefined) options = { ...options, collation };
    const simple = options.collation === undefined ? {} : { collation: { locale: 'simple' } };
    const dot = ns.indexOf('.');
    const [db, coll] = [ns.slice(0, dot), ns.slice(dot + 1)];
    await cluster.admin({ enableSharding: db });
    for (const shard of cluster.shards.filter(({ name }) => owners.includes(name))) {
        const direct = await shard.direct(await shard.waitForPrimary());
        await direct.db(db).createCollection(coll, options);
        await direct.db(db).collection(coll).createIndex(key, simple);
    }
    const config = (await cluster.config.direct(await cluster.config.waitForPrimary())).db('config');
    const uuid = new UUID();
    const timestamp = new Timestamp({ t: Math.floor(Date.now() / 1000), i: 1 });
    const limit = (value) => Object.fromEntries(Object.keys(key).map((name) => [name, value]));
    const bounds = [limit(new MinKey()), ...points, limit(new MaxKey())];
    const majority = { writeConcern: { w: 'majority' } };
    await config.collection('chunks').insertMany(
        owners.map((shard, i) => ({
            _id: new ObjectId(),
            uuid,
            min: bounds[i],
            max: bounds[i + 1],
            shard,
            lastmod: new Timestamp({ t: 1, i }),
            onCurrentShardSince: timestamp,
            history: [{ validAfter: timestamp, shard }],
        })),
        majority,
    );
    await config.collection('collections').insertOne(
        {
            _id: ns,
            lastmodEpoch: new ObjectId(),
            lastmod: new Date(),
            timestamp,
            uuid,
            key,
            unique,
            noBalance: false,
            ...(options.collation && { defaultCollation: options.collation }),
        },
        majority,
    );
    for (const router of cluster.routers) await cluster.admin({ flushRouterConfig: 1 }, router);
}
