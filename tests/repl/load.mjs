/*
 * load.mjs - writers on a replica set that remember what was acknowledged.
 *
 * For each document of the majority writers the ledger keeps the states that may be found later:
 * one when the last write was acknowledged by a majority, two while its outcome is unknown. A
 * document whose outcome is unknown is left alone until the next check, since its write may still
 * be under way on a node that sleeps. A state is the document as text, or null for "not there".
 *
 * Beside them others write with w: 1: theirs may be lost, but then on all members.
 */
import assert from 'node:assert/strict';
import { random } from '../lib/expect.mjs';

export const DB = 'faults';
export const COLLECTIONS = ['a', 'b', 'c'];
const MAJORITY_WRITERS = 4;
const LOCAL_WRITERS = 2;
const DOCUMENTS_MAX = 150; // of a writer; deletes win from here on, which bounds the time of a check
const PAUSE_MS = 30;
/* The node did not even begin: NotWritablePrimary, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary. */
const NOTHING_DONE = [10107, 13435, 13436];
/* What a fault may answer to a write: anything else is a mistake of the node. */
const EXPECTED = [
    6, // HostUnreachable
    64, // WriteConcernFailed
    89, // NetworkTimeout
    91, // ShutdownInProgress
    112, // WriteConflict
    189, // PrimarySteppedDown
    11600, // InterruptedAtShutdown
    11602, // InterruptedDueToReplStateChange
    ...NOTHING_DONE,
];
const LOST =
    /Network|ServerSelection|PoolClear|PoolClosed|NotConnected|ClientClosed|TopologyClosed|Timeout/;

export function isExpected(error) {
    return (
        LOST.test(error.name) ||
        ['ECONNRESET', 'EPIPE', 'ECONNREFUSED', ...EXPECTED].includes(error.code)
    );
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function makeDocument(_id, rand) {
    return {
        _id,
        n: rand.below(1000),
        count: 0,
        u: `u${_id}`,
        tags: Array.from({ length: rand.below(4) }, () => rand.below(20)),
        pad: 'p'.repeat(rand.below(800)),
    };
}

/* Runs a write; throws unless it succeeded in every respect. */
async function run(db, command) {
    const reply = await db.command(command);
    const problem = reply.writeErrors?.[0] ?? reply.writeConcernError;
    if (problem !== undefined)
        throw Object.assign(new Error(problem.errmsg), {
            code: problem.code,
            isDone: reply.writeErrors === undefined,
        });
    return reply;
}

export class Load {
    states = new Map(); // "collection/_id" -> [text or null, ...]
    localInserts = new Map(); // "collection/_id" -> text, acknowledged with w: 1 and not touched again
    acknowledged = 0;
    #nextId = 0;
    #isOver = true;
    #work = [];

    /* Makes the collections and their indexes, once. */
    static async prepare(client) {
        for (const name of COLLECTIONS) {
            const collection = client.db(DB).collection(name, { writeConcern: { w: 'majority' } });
            await collection.createIndex({ n: 1, _id: -1 });
            await collection.createIndex({ u: 1 }, { unique: true });
            await collection.createIndex({ tags: 1 });
        }
    }

    /* Starts the writers; with hasDdl also builds of indexes, collections made and dropped. */
    start(client, seed, { hasDdl = false } = {}) {
        assert.ok(this.#isOver);
        this.#isOver = false;
        const db = client.db(DB);
        for (let i = 0; i < MAJORITY_WRITERS; i++)
            this.#work.push(this.#majorityWriter(db, random(seed + i), i));
        for (let i = 0; i < LOCAL_WRITERS; i++)
            this.#work.push(this.#localWriter(db, random(seed + 100 + i)));
        if (hasDdl) this.#work.push(this.#ddlWriter(db, random(seed + 200)));
        // Looked at by stop(): until then a failure must not end the process.
        for (const work of this.#work) work.catch(() => {});
    }

    async stop() {
        this.#isOver = true;
        const ends = await Promise.allSettled(this.#work);
        this.#work = [];
        const failed = ends.find(({ status }) => status === 'rejected');
        if (failed !== undefined) throw failed.reason;
    }

    async #change(key, after, operation) {
        const before = this.states.get(key) ?? [null];
        this.states.set(key, [...before, after]);
        try {
            await operation();
        } catch (error) {
            if (NOTHING_DONE.includes(error.code) && !error.isDone) this.states.set(key, before);
            throw error;
        }
        this.states.set(key, [after]);
        this.acknowledged++;
    }

    /* Only this writer touches its documents, so each has at most one write under way. */
    async #majorityWriter(db, rand, index) {
        const mine = [...this.states.keys()].filter(
            (key) =>
                this.states.get(key)[0] !== null &&
                Number(key.split('/')[1]) % MAJORITY_WRITERS === index,
        );
        while (!this.#isOver) {
            const kind = rand();
            const at = rand.below(mine.length);
            const isInsert = mine.length === 0 || (kind < 0.4 && mine.length < DOCUMENTS_MAX);
            try {
                if (isInsert) mine.push(await this.#insert(db, rand, index));
                else if (kind < 0.55) await this.#increment(db, mine[at], rand);
                else if (kind < 0.7) await this.#modify(db, mine[at], rand);
                else if (kind < 0.8) await this.#replace(db, mine[at], rand);
                else await this.#remove(db, mine.splice(at, 1)[0]);
            } catch (error) {
                if (!isExpected(error)) throw error;
                if (!isInsert) mine.splice(at, 1);
                await pause(PAUSE_MS);
            }
        }
    }

    async #insert(db, rand, index) {
        const _id = MAJORITY_WRITERS * this.#nextId++ + index;
        const name = rand.pick(COLLECTIONS);
        const document = makeDocument(_id, rand);
        await this.#change(`${name}/${_id}`, JSON.stringify(document), () =>
            run(db, { insert: name, documents: [document], writeConcern: { w: 'majority' } }),
        );
        return `${name}/${_id}`;
    }

    async #update(db, key, change, u, andThen) {
        const [name, id] = key.split('/');
        const after = change(JSON.parse(this.states.get(key)[0]));
        await this.#change(key, JSON.stringify(after), async () => {
            const reply = await run(db, andThen(name, Number(id), u));
            assert.equal(reply.n ?? reply.lastErrorObject.n, 1, `${key} was not found`);
        });
    }

    #increment(db, key) {
        return this.#update(
            db,
            key,
            (document) => ({ ...document, count: document.count + 1 }),
            { $inc: { count: 1 } },
            (name, _id, u) => ({
                update: name,
                updates: [{ q: { _id }, u }],
                writeConcern: { w: 'majority' },
            }),
        );
    }

    #modify(db, key, rand) {
        const tag = rand.below(20);
        return this.#update(
            db,
            key,
            (document) => ({
                ...document,
                n: document.n + 3,
                tags: [...document.tags.slice(-3), tag],
            }),
            { $inc: { n: 3 }, $push: { tags: { $each: [tag], $slice: -4 } } },
            (name, _id, update) => ({
                findAndModify: name,
                query: { _id },
                update,
                writeConcern: { w: 'majority' },
            }),
        );
    }

    #replace(db, key, rand) {
        const document = makeDocument(Number(key.split('/')[1]), rand);
        return this.#update(
            db,
            key,
            () => document,
            document,
            (name, _id, u) => ({
                update: name,
                updates: [{ q: { _id }, u }],
                writeConcern: { w: 'majority' },
            }),
        );
    }

    async #remove(db, key) {
        const [name, id] = key.split('/');
        await this.#change(key, null, async () => {
            const reply = await run(db, {
                delete: name,
                deletes: [{ q: { _id: Number(id) }, limit: 1 }],
                writeConcern: { w: 'majority' },
            });
            assert.equal(reply.n, 1, `${key} was not found`);
        });
    }

    /* Batches of inserts, updates of many, deletes of many; all with w: 1. */
    async #localWriter(db, rand) {
        while (!this.#isOver) {
            const kind = rand();
            try {
                if (kind < 0.5) await this.insertLocally(db, rand);
                else
                    await run(db, {
                        ...(kind < 0.8
                            ? {
                                  update: rand.pick(COLLECTIONS),
                                  updates: [
                                      {
                                          q: { local: rand.below(20) },
                                          u: { $inc: { count: 1 }, $push: { tags: 21 } },
                                          multi: true,
                                      },
                                  ],
                              }
                            : {
                                  delete: rand.pick(COLLECTIONS),
                                  deletes: [{ q: { local: rand.below(20) }, limit: 0 }],
                              }),
                        writeConcern: { w: 1 },
                    });
            } catch (error) {
                if (!isExpected(error)) throw error;
            }
            await pause(PAUSE_MS / 3);
        }
    }

    /* Some documents with w: 1. isKept: nobody touches them again, and they are remembered. */
    async insertLocally(db, rand, { isKept = false } = {}) {
        const name = rand.pick(COLLECTIONS);
        const documents = Array.from({ length: 1 + rand.below(5) }, () => ({
            ...makeDocument(`local${this.#nextId++}`, rand),
            ...(isKept ? {} : { local: rand.below(20) }),
        }));
        await run(db, { insert: name, documents, writeConcern: { w: 1 } });
        if (!isKept) return;
        for (const document of documents)
            this.localInserts.set(`${name}/${document._id}`, JSON.stringify(document));
    }

    /* Indexes and collections that come and go. Their failures are of no interest, except that a
     * command must not fail for reasons of its own. */
    async #ddlWriter(db, rand) {
        const writeConcern = { w: 1 };
        const steps = [
            () => ({
                createIndexes: rand.pick(COLLECTIONS),
                indexes: [
                    { key: { tags: 1, n: -1 }, name: 'tagsN' },
                    { key: { pad: 1, u: 1 }, name: 'padU', unique: true },
                ],
                writeConcern,
            }),
            () => ({
                createIndexes: rand.pick(COLLECTIONS),
                indexes: [{ key: { count: 1 }, name: 'count' }],
                writeConcern,
            }),
            () => ({ dropIndexes: rand.pick(COLLECTIONS), index: 'tagsN', writeConcern }),
            () => ({ dropIndexes: rand.pick(COLLECTIONS), index: 'padU', writeConcern }),
            () => ({ dropIndexes: rand.pick(COLLECTIONS), index: 'count', writeConcern }),
            () => ({ create: `x${rand.below(3)}`, writeConcern }),
            () => ({ drop: `x${rand.below(3)}`, writeConcern }),
            () => ({
                insert: `x${rand.below(3)}`,
                documents: [{ at: this.#nextId++ }],
                writeConcern,
            }),
        ];
        // NamespaceNotFound, IndexNotFound, NamespaceExists, IndexBuildAborted, BackgroundOperation-...
        const harmless = [26, 27, 48, 276, 12587, 11601, 51, 117];
        while (!this.#isOver) {
            try {
                await run(db, rand.pick(steps)());
            } catch (error) {
                if (!isExpected(error) && !harmless.includes(error.code)) throw error;
            }
            await pause(PAUSE_MS);
        }
    }

    /* Compares with what the set has; from then on that is what is known. Resolves to the documents
     * written with w: 1, to be kept, that are not there. */
    async check(client, where) {
        const found = new Map();
        for (const name of COLLECTIONS)
            for await (const document of client
                .db(DB)
                .collection(name)
                .find({}, { readConcern: { level: 'majority' } })
                .hint({ $natural: 1 })) {
                const key = `${name}/${document._id}`;
                assert.ok(!found.has(key), `${where}: ${key} is there twice`);
                found.set(key, JSON.stringify(document));
            }
        for (const [key, states] of this.states) {
            const text = found.get(key) ?? null;
            assert.ok(
                states.includes(text),
                `${where}: ${key} is ${text}, expected ${states.join(' or ')}`,
            );
        }
        const majorityKeys = [...found.keys()].filter((key) => !key.includes('/local'));
        for (const key of majorityKeys)
            assert.ok(this.states.has(key), `${where}: ${key} was never written`);
        this.states = new Map(majorityKeys.map((key) => [key, [found.get(key)]]));
        const lost = [...this.localInserts].filter(([key]) => !found.has(key));
        this.localInserts.clear();
        return new Map(lost);
    }
}
