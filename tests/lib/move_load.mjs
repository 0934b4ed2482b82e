/*
 * move_load.mjs - clients that write and read a sharded collection {k: 1} through several routers while its ranges move, and what
 * they were told.
 *
 * Invariants: a scan has every document whose insert was acknowledged before it began, once, unless its delete was asked for; the
 * counters of a document are what was acknowledged, or one more if the last reply was lost.
 */
import assert from 'node:assert/strict';
import { isExpected } from '../repl/load.mjs';

export const KEYS = 1000;

export class MoveLoad {
    documents = new Map(); // _id -> {k, n, unsure, isDeleting}
    #count = 0;
    #isOver = false;
    #running = [];
    scans = 0;
    writes = 0;
    failures = 0;

    /* clients: of different routers. pad: bytes of a document, at most. isLoose: nodes die meanwhile, replies may be lost. */
    constructor(clients, { db = 'd', coll = 'c', pad = 200, rand, isLoose = false }) {
        Object.assign(this, { clients, db, coll, pad, rand, isLoose });
    }

    collection = (i) => this.clients[i % this.clients.length].db(this.db).collection(this.coll, { writeConcern: { w: 'majority' } });

    start({ writers = 3, readers = 1 } = {}) {
        for (let i = 0; i < writers; i++) this.#running.push(this.#write(this.collection(i)));
        for (let i = 0; i < readers; i++) this.#running.push(this.#read(this.collection(i + 1)));
    }

    /* Throws what a writer or reader has found. */
    async stop() {
        this.#isOver = true;
        for (const end of await Promise.allSettled(this.#running)) if (end.status === 'rejected') throw end.reason;
    }

    async #try(what) {
        try {
            await what();
            return true;
        } catch (error) {
            if (!this.isLoose || !isExpected(error)) throw error;
            this.failures++;
            await new Promise((resolve) => setTimeout(resolve, 20));
            return false;
        }
    }

    async #insert(coll) {
        const _id = `d${this.#count++}`;
        const document = { k: this.rand.below(KEYS), n: 0, unsure: 0, isKnown: false, isDeleting: false };
        this.documents.set(_id, document);
        document.isKnown = await this.#try(() => coll.insertOne({ _id, k: document.k, n: 0, pad: 'x'.repeat(this.rand.below(this.pad)) }));
    }

    async #increment(coll, [_id, document]) {
        document.isBusy = true;
        let matched = 0;
        const isTold = await this.#try(async () => {
            ({ matchedCount: matched } = await coll.updateOne({ _id, k: document.k }, { $inc: { n: 1 } }));
        });
        document.isBusy = false;
        if (!isTold) document.unsure++;
        else {
            assert.equal(matched, 1, `${_id} is there for an update`);
            document.n++;
        }
    }

    async #remove(coll, [_id, document]) {
        document.isDeleting = true;
        let deleted = 0;
        const isTold = await this.#try(async () => {
            ({ deletedCount: deleted } = await coll.deleteOne({ _id, k: document.k }));
        });
        if (isTold && document.unsureDelete !== true) assert.equal(deleted, 1, `${_id} is there for a delete`);
        document.isGone = isTold;
        document.unsureDelete = !isTold;
    }

    async #write(coll) {
        while (!this.#isOver) {
            const free = [...this.documents].filter(([, d]) => d.isKnown && !d.isDeleting && !d.isBusy);
            const kind = this.rand();
            if (free.length < 50 || kind < 0.4) await this.#insert(coll);
            else if (kind < 0.9) await this.#increment(coll, free[this.rand.below(free.length)]);
            else await this.#remove(coll, free[this.rand.below(free.length)]);
            this.writes++;
        }
    }

    async #read(coll) {
        while (!this.#isOver)
            await this.#try(async () => {
                await this.scan(coll, 'a scan meanwhile');
            });
    }

    /* One scan, compared with what was known before it began. */
    async scan(coll, where) {
        const wanted = [...this.documents].filter(([, d]) => d.isKnown && !d.isDeleting).map(([_id]) => _id);
        const found = await coll.find({}, { batchSize: 40 }).toArray();
        this.scans++;
        const seen = new Set();
        for (const { _id } of found) {
            assert.ok(!seen.has(_id), `${where}: ${_id} is there twice`);
            seen.add(_id);
        }
        const missing = wanted.filter((_id) => !seen.has(_id) && !this.documents.get(_id).isDeleting);
        assert.deepEqual(missing, [], `${where}: of ${wanted.length} documents these are missing`);
        return found;
    }

    /* When nobody writes any more: everything is what was acknowledged. */
    async check(where) {
        for (let i = 0; i < this.clients.length; i++) {
            const coll = this.collection(i);
            const found = await this.scan(coll, `${where}, router ${i}`);
            for (const { _id, k, n } of found) {
                const document = this.documents.get(_id);
                assert.equal(k, document.k, _id);
                assert.ok(!document.isGone, `${where}: ${_id} was deleted`);
                assert.ok(n >= document.n && n <= document.n + document.unsure, `${where}: ${_id} has ${n}, not ${document.n}`);
            }
            assert.equal(await coll.countDocuments(), found.length, `${where}: counted`);
        }
    }
}

/* Nothing of any move is left, on any shard. */
export async function checkMovesOver(cluster, waitFor) {
    const PLACES = ['migrationCoordinators', 'migrationRecipients', 'collection_critical_sections', 'rangeDeletions'];
    for (const shard of cluster.shards) {
        const direct = await shard.direct(await shard.waitForPrimary());
        for (const name of PLACES)
            await waitFor(async () => (await direct.db('config').collection(name).countDocuments()) === 0, {
                timeoutMs: 60_000,
                what: `${shard.name} to have nothing in config.${name}`,
            });
    }
}

/* Every document is on the shard that owns it, and nowhere else. */
export async function checkPlaces(cluster, client, ns) {
    const [db, coll] = ns.split('.');
    const { uuid } = await client.db('config').collection('collections').findOne({ _id: ns });
    const chunks = await client.db('config').collection('chunks').find({ uuid }).toArray();
    const isIn = (k, { min, max }) => !(min.k._bsontype === undefined && k < min.k) && !(max.k._bsontype === undefined && k >= max.k);
    for (const shard of cluster.shards) {
        const direct = await shard.direct(await shard.waitForPrimary());
        for (const { _id, k } of await direct.db(db).collection(coll).find().toArray()) {
            const { shard: owner } = chunks.find((chunk) => isIn(k, chunk));
            assert.equal(owner, shard.name, `${_id} of ${owner} is on ${shard.name}`);
        }
    }
}
