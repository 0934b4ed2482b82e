/*
 * fixture.mjs - one node per test file, with a client and fresh collections.
 */
import { after, before, beforeEach } from 'node:test';
import assert from 'node:assert/strict';
import { shardCollections, startRouted } from './routed.mjs';
import { isUnsharded } from './router_suite.mjs';
import { startServer } from './server.mjs';

/* FIXTURE=router: a router with two shards stands in for the node, and collections are sharded. */
export const IS_ROUTED = process.env.FIXTURE === 'router';

/*
 * Registers the hooks of the calling file and returns an object whose members are set once they
 * ran: server, client, admin (database), db (database "test"). `prepare(node)` and `clean(node)`
 * run after the start and before the end.
 */
export function useServer(options, { prepare, clean } = {}) {
    const node = { server: null, client: null, admin: null, db: null };
    let made = 0;
    let isSharding = true;
    if (IS_ROUTED) beforeEach(({ name }) => (isSharding = !isUnsharded(process.argv[1], name)));
    before(async () => {
        node.server = await (IS_ROUTED ? startRouted(options) : startServer(options));
        node.client = await node.server.client();
        node.admin = node.client.db('admin');
        node.dataAdmins = node.server.dataAdmins ?? [node.admin]; // of the nodes that have the documents
        node.db = IS_ROUTED ? shardCollections(node.client, 'test', () => isSharding) : node.client.db('test');
        await prepare?.(node);
    });
    after(async () => {
        if (node.server === null) return;
        if (!node.server.isRunning()) {
            const { code, signal } = await node.server.waitEnd();
            const why = `the node ended with ${signal ?? code}: ${node.server.stderr}`;
            await node.server.remove();
            assert.equal(code, 0, why);
            return;
        }
        await clean?.(node);
        const malformed = node.server.log
            .filter((entry) => entry.malformed !== undefined)
            .map((entry) => entry.malformed.slice(0, 200));
        await node.server.remove();
        assert.deepEqual(malformed, [], 'every log line is JSON');
    });
    /* A name nobody used yet. */
    node.newName = (prefix = 'c') => `${prefix}${++made}`;
    /* A new collection with these documents, made with `create` when there are options. */
    node.collection = async (documents = [], createOptions) => {
        const name = node.newName();
        if (createOptions !== undefined) await node.db.createCollection(name, createOptions);
        const collection = node.db.collection(name);
        await node.db.shard?.(name);
        if (documents.length > 0) await collection.insertMany(documents);
        return collection;
    };
    /* Sets a failpoint for the time of `body`. */
    node.withFailpoint = async (name, mode, data, body) => {
        await node.admin.command({ configureFailPoint: name, mode, ...(data && { data }) });
        try {
            return await body();
        } finally {
            await node.admin.command({ configureFailPoint: name, mode: 'off' });
        }
    };
    return node;
}
