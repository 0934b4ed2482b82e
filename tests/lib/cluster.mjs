/*
 * cluster.mjs - a sharded cluster of real processes: a config server, shards, routers.
 */
import { startReplicaSet } from './replica_set.mjs';
import { Server } from './server.mjs';

const small = (cacheGB = 0.25) => ['--wiredTigerCacheSizeGB', `${cacheGB}`, '--oplogSize', '100'];

export const startConfigServer = (options = {}) =>
    startReplicaSet({
        name: 'config',
        members: 1,
        config: { configsvr: true },
        ...options,
        args: ['--configsvr', ...small(), ...(options.args ?? [])],
    });

export const startShard = (name, { cacheGB, ...options } = {}) =>
    startReplicaSet({
        name,
        members: 1,
        ...options,
        args: ['--shardsvr', ...small(cacheGB), ...(options.args ?? [])],
    });

/* Not started yet. */
export const makeRouter = (configAddress, { args = [], ...options } = {}) =>
    new Server({
        leading: ['route'],
        hasData: false,
        args: ['--configdb', configAddress, ...args],
        ...options,
    });

export class Cluster {
    /* shards, routers: how many. members, cacheGB: of each shard. configMembers: of the config server. shardArgs, routerArgs: more
     * options. network: with sets of one member, the config server is in place 0 of it and shard i in place i + 1; routers are outside. */
    constructor({ shards = 2, members = 1, configMembers = 1, routers = 1, cacheGB, shardArgs = [], routerArgs = [], network } = {}) {
        Object.assign(this, { shardCount: shards, members, configMembers, routerCount: routers, cacheGB, shardArgs, routerArgs, network });
        this.shards = [];
        this.routers = [];
    }

    async start() {
        const names = Array.from({ length: this.shardCount }, (_, i) => `shard${i}`);
        [this.config, ...this.shards] = await Promise.all([
            startConfigServer({ members: this.configMembers, server: this.network?.server(0) }),
            ...names.map((name, i) =>
                startShard(name, { members: this.members, cacheGB: this.cacheGB, args: this.shardArgs, server: this.network?.server(i + 1) }),
            ),
        ]);
        for (let i = 0; i < this.routerCount; i++) await this.addRouter({ args: this.routerArgs });
        for (const shard of this.shards) await this.admin({ addShard: shard.address });
        return this;
    }

    async addRouter(options) {
        const router = makeRouter(this.config.address, options);
        this.routers.push(router);
        return router.start();
    }

    /* A client of a router. */
    client = (options = {}, router = this.routers[0]) => router.client(options);

    /* By a client of its own, which is closed: thousands of commands must not be thousands of connections. */
    async admin(command, router = this.routers[0]) {
        const client = await this.client({}, router);
        try {
            return await client.db('admin').command(command);
        } finally {
            await client.close();
        }
    }

    async remove() {
        const parts = [...this.routers, ...this.shards, this.config];
        const ends = await Promise.allSettled(parts.filter(Boolean).map((part) => part.remove()));
        const failed = ends.find(({ status }) => status === 'rejected');
        if (failed !== undefined) throw failed.reason;
    }
}

export const startCluster = (options) => new Cluster(options).start();
