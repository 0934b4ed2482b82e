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
const STOP_MS_MAX = 60_000;

/* What operations of these nodes wait for. */
async function operationsOf(nodes) {
    const texts = [];
    for (const node of nodes) {
        const ask = async () => (await node.client()).db('admin').command({ currentOp: 1, $all: true });
        const { inprog } = await ask().catch((error) => ({ inprog: [error.message] }));
        texts.push(`${node.port}:`, ...inprog.map((op) => JSON.stringify(op)));
    }
    return texts.join('\n');
}

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

    /* Throws what a writer or reader has found, or what nodes do if one does not come to an end. */
    async stop(nodes = []) {
        this.#isOver = true;
        const late = new Promise((resolve) => setTimeout(resolve, STOP_MS_MAX, 'late').unref());
        const ends = await Promise.race([Promise.allSettled(this.#running), late]);
        if (ends === 'late') throw new Error(`operations that do not end:\n${await operationsOf(nodes)}`);
        for (const end of ends) if (end.status === 'rejected') throw end.reason;
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

/* Where a move can be stopped: who comes by, and the names of the points. */
export const MOVE_POINTS = {
    donor: [
        'mig.d.registered',
        'mig.d.coordDocWritten',
        'mig.d.rangeDelPendingWritten',
        'mig.d.recvChunkStartSent',
        'mig.d.cloning',
        'mig.d.readyForCritSec',
        'mig.d.critSecWrites',
        'mig.d.critSecSignalPersisted',
        'mig.d.recvChunkCommitSent',
        'mig.d.critSecReads',
        'mig.d.configCommitSent',
        'mig.d.configCommitReplied',
        'mig.d.recipientCritSecReleased',
        'mig.d.metadataRefreshed',
        'mig.d.decisionPersisted',
        'mig.d.txnNumBumped',
        'mig.d.recipientTaskDeleted',
        'mig.d.donorTaskReady',
        'mig.d.coordDocDeleted',
    ],
    recipient: [
        'mig.r.collCreated',
        'mig.r.rangeDelWritten',
        'mig.r.cloneBatchApplied',
        'mig.r.catchup',
        'mig.r.steady',
        'mig.r.sessionsApplied',
        'mig.r.recoveryDocWritten',
        'mig.r.critSecReleased',
    ],
    config: ['configChange.written', 'configChange.committed'],
};

/* A part of a chunk of d.c, its owner, and another of two shards. */
export async function chooseMove(client, rand) {
    const config = client.db('config');
    const { uuid } = await config.collection('collections').findOne({ _id: 'd.c' });
    const rows = await config.collection('chunks').find({ uuid }).toArray();
    const min = rand.below(KEYS - 200);
    const { shard, max } = rows.find((row) => !(row.min.k > min) && !(row.max.k <= min));
    const end = Math.min(min + 100 + rand.below(300), typeof max.k === 'number' ? max.k : KEYS);
    const to = shard === 'shard0' ? 'shard1' : 'shard0';
    return { command: { moveRange: 'd.c', min: { k: min }, max: { k: end }, toShard: to }, from: shard, to };
}
