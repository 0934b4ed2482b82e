/*
 * ledger.mjs - writers that remember what the server acknowledged.
 *
 * For each _id the ledger keeps the states that may be found after a crash: one when the last write
 * was acknowledged (with j: true), two while a write is under way. A state is the document as text,
 * or null for "not there".
 */
import assert from 'node:assert/strict';
import { random } from '../lib/expect.mjs';

const WRITERS = 3;
const DOCUMENTS_MAX = 400; // deletes win from here on, which bounds the time of a check
const BUILT = ['x', 'tagsN', 'padU', 'failing'];
export const LEDGER_DB = 'ledger';
export const LEDGER_COLLECTION = 'w';

export class Ledger {
    #states = new Map(); // _id -> [text or null, ...]
    #nextId = 0;
    acknowledged = 0;

    #possible(_id) {
        return this.#states.get(_id) ?? [null];
    }

    /* Makes the collection and its indexes; once, before anything crashes. */
    static async prepare(client) {
        const collection = client.db(LEDGER_DB).collection(LEDGER_COLLECTION);
        const writeConcern = { w: 1, j: true };
        await collection.createIndex({ n: 1, _id: -1 }, { writeConcern });
        await collection.createIndex({ u: 1 }, { unique: true, writeConcern });
        await collection.createIndex({ tags: 1 }, { writeConcern });
    }

    /* Builds indexes that were not there, under the writers; with isFailing one that cannot be. */
    static async build(client, rand, isFailing) {
        const collection = client
            .db(LEDGER_DB)
            .collection(LEDGER_COLLECTION, { writeConcern: { w: 1, j: true } });
        const present = (await collection.indexes()).map(({ name }) => name);
        for (const name of BUILT.filter((name) => present.includes(name)))
            await collection.dropIndex(name);
        if (isFailing) {
            await collection
                .createIndexes([{ key: { x: 1 }, name: 'failing', unique: true }])
                .then(() => collection.dropIndex('failing')) // there were hardly any documents
                .catch((error) => {
                    if (error.code !== 11000) throw error;
                });
            return;
        }
        const specs = [
            { key: { x: 1 }, name: 'x' },
            { key: { tags: 1, n: -1 }, name: 'tagsN' },
            { key: { pad: 1, u: 1 }, name: 'padU', unique: true },
        ];
        await collection.createIndexes(specs.slice(rand.below(3)));
    }

    /* The same without pause until `isOver()` or until the server is gone. */
    static async buildOften(client, rand, isOver) {
        try {
            while (!isOver()) await Ledger.build(client, rand, rand() < 0.2);
        } catch (error) {
            if (!isConnectionLoss(error)) throw error;
        }
    }

    /* Writes until `isOver()` or until the server is gone. */
    async write(client, seed, isOver) {
        const collection = client
            .db(LEDGER_DB)
            .collection(LEDGER_COLLECTION, { writeConcern: { w: 1, j: true } });
        const ids = [...this.#states]
            .filter(([, states]) => states[0] !== null)
            .map(([_id]) => _id);
        const writers = Array.from({ length: WRITERS }, (_, i) =>
            this.#writer(
                collection,
                random(seed + i),
                ids.filter((_id) => _id % WRITERS === i),
                isOver,
            ),
        );
        await Promise.all(writers);
    }

    /* One writer; only it touches its ids, so each of them has at most one write under way. */
    async #writer(collection, rand, ids, isOver) {
        while (!isOver()) {
            const kind = rand();
            const isFull = ids.length * WRITERS > DOCUMENTS_MAX;
            const at = rand.below(ids.length);
            try {
                if (ids.length === 0 || (kind < 0.5 && !isFull))
                    ids.push(await this.#insert(collection, rand));
                else if (kind < 0.75) await this.#update(collection, ids[at], rand);
                else await this.#remove(collection, ids.splice(at, 1)[0]);
                this.acknowledged++;
            } catch (error) {
                if (isRefused(error)) continue;
                if (!isConnectionLoss(error)) throw error;
                return;
            }
        }
    }

    async #change(_id, after, operation) {
        const before = this.#possible(_id);
        this.#states.set(_id, [...before, after]);
        try {
            await operation();
        } catch (error) {
            if (isRefused(error)) this.#states.set(_id, before);
            throw error;
        }
        this.#states.set(_id, [after]);
    }

    async #insert(collection, rand) {
        const _id = this.#nextId++;
        const document = makeDocument(_id, rand);
        await this.#change(_id, JSON.stringify(document), () => collection.insertOne(document));
        return _id;
    }

    async #update(collection, _id, rand) {
        const document = makeDocument(_id, rand);
        const { _id: _, ...fields } = document;
        await this.#change(_id, JSON.stringify(document), () =>
            collection.replaceOne({ _id }, fields),
        );
    }

    async #remove(collection, _id) {
        await this.#change(_id, null, () => collection.deleteOne({ _id }));
    }

    /* Compares with what the server has; from then on that is what is known. */
    async check(client, where) {
        const found = new Map();
        for await (const document of client
            .db(LEDGER_DB)
            .collection(LEDGER_COLLECTION)
            .find()
            .hint({ $natural: 1 }))
            found.set(document._id, JSON.stringify(document));
        for (const [_id, states] of this.#states) {
            const text = found.get(_id) ?? null;
            assert.ok(
                states.includes(text),
                `${where}: document ${_id} is ${text}, expected ${states.join(' or ')}`,
            );
        }
        for (const _id of found.keys())
            assert.ok(this.#states.has(_id), `${where}: document ${_id} was never written`);
        this.#states = new Map([...found].map(([_id, text]) => [_id, [text]]));
    }
}

function makeDocument(_id, rand) {
    const tags = Array.from({ length: rand.below(4) }, () => rand.below(20));
    return {
        _id,
        n: rand.below(1000),
        u: `u${_id}`,
        tags,
        x: rand.below(50),
        pad: 'p'.repeat(rand.below(2000)),
    };
}

/* The driver has many names for "the server is gone". */
/* By the index that can only be built, for a moment, where there are hardly any documents. */
function isRefused(error) {
    return error.code === 11000 && error.message.includes('index: failing ');
}

const LOST =
    /Network|ServerSelection|PoolClear|PoolClosed|NotConnected|ClientClosed|TopologyClosed/;

export function isConnectionLoss(error) {
    return (
        LOST.test(error.name) ||
        ['ECONNRESET', 'EPIPE', 'ECONNREFUSED', 91, 11600].includes(error.code)
    );
}
