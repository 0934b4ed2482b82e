/*
 * world.mjs - a model of a few collections that are created, renamed, indexed and dropped while the
 * node is killed. The model says what the catalog may look like afterwards: as before the operation
 * under way, or as after it.
 */
import assert from 'node:assert/strict';
import { isConnectionLoss } from './ledger.mjs';

export const WORLD_DBS = ['world', 'other'];
const NAMES = WORLD_DBS.flatMap((db) => ['a', 'b', 'c'].map((name) => `${db}.${name}`));
const DURABLE = { writeConcern: { w: 1, j: true } };
const INDEX_KEYS = { a_1: { a: 1 }, b_1: { b: 1 }, u_1: { u: 1 } };

/*
 * A world maps a namespace to {ids, indexes, validator}; nothing in it is ever changed in place. An
 * operation is {kind, run(client), after}: `after` is the world once it is done; `isGradual` when a
 * part of it may be done.
 */
const OPERATIONS = {
    create(world, rand) {
        const ns = rand.pick(NAMES.filter((name) => !(name in world)));
        return (
            ns && {
                run: (client) => command(client, ns, (coll) => ({ create: coll })),
                after: { ...world, [ns]: { ids: [], indexes: ['_id_'], validator: null } },
            }
        );
    },
    insert(world, rand) {
        const ns = pickExisting(world, rand);
        if (ns === undefined) return undefined;
        const { ids, ...rest } = world[ns];
        const first = ids.length === 0 ? 0 : Math.max(...ids) + 1;
        const added = Array.from({ length: 1 + rand.below(20) }, (_, i) => first + i);
        const documents = added.map((_id) => ({
            _id,
            a: _id % 7,
            b: [_id, -_id],
            u: `${ns} ${_id}`,
        }));
        return {
            run: (client) => command(client, ns, (coll) => ({ insert: coll, documents })),
            after: { ...world, [ns]: { ...rest, ids: [...ids, ...added] } },
        };
    },
    drop(world, rand) {
        const ns = pickExisting(world, rand);
        return (
            ns && {
                run: (client) => command(client, ns, (coll) => ({ drop: coll })),
                after: without(world, ns),
            }
        );
    },
    createIndexes(world, rand) {
        const ns = pickExisting(world, rand);
        const missing = Object.keys(INDEX_KEYS).filter(
            (name) => !world[ns]?.indexes.includes(name),
        );
        if (ns === undefined || missing.length === 0) return undefined;
        const names = missing.slice(0, 1 + rand.below(2));
        const specs = names.map((name) => ({
            key: INDEX_KEYS[name],
            name,
            ...(name === 'u_1' && { unique: true }),
        }));
        return {
            run: (client) =>
                command(client, ns, (coll) => ({ createIndexes: coll, indexes: specs })),
            after: {
                ...world,
                [ns]: { ...world[ns], indexes: [...world[ns].indexes, ...names].sort() },
            },
        };
    },
    dropIndexes(world, rand) {
        const ns = rand.pick(Object.keys(world).filter((name) => world[name].indexes.length > 1));
        if (ns === undefined) return undefined;
        const name = rand.pick(world[ns].indexes.filter((index) => index !== '_id_'));
        return {
            run: (client) => command(client, ns, (coll) => ({ dropIndexes: coll, index: name })),
            after: {
                ...world,
                [ns]: {
                    ...world[ns],
                    indexes: world[ns].indexes.filter((index) => index !== name),
                },
            },
        };
    },
    collMod(world, rand) {
        const ns = pickExisting(world, rand);
        const validator = { a: { $gte: -rand.below(1000) } };
        return (
            ns && {
                run: (client) => command(client, ns, (coll) => ({ collMod: coll, validator })),
                after: { ...world, [ns]: { ...world[ns], validator: JSON.stringify(validator) } },
            }
        );
    },
    rename: (world, rand) => renameBetween(world, rand, /* isCrossDb= */ false),
    renameAcross: (world, rand) => renameBetween(world, rand, /* isCrossDb= */ true),
    dropDatabase(world, rand) {
        const db = rand.pick(
            WORLD_DBS.filter((name) => Object.keys(world).some((ns) => ns.startsWith(`${name}.`))),
        );
        return (
            db && {
                run: (client) => client.db(db).command({ dropDatabase: 1, ...DURABLE }),
                after: Object.fromEntries(
                    Object.entries(world).filter(([ns]) => !ns.startsWith(`${db}.`)),
                ),
                isGradual: true,
            }
        );
    },
};

const pickExisting = (world, rand) => rand.pick(Object.keys(world));

function without(world, ns) {
    const { [ns]: _, ...rest } = world;
    return rest;
}

function command(client, ns, build) {
    const [db, coll] = ns.split('.');
    return client.db(db).command({ ...build(coll), ...DURABLE });
}

function renameBetween(world, rand, isCrossDb) {
    const from = pickExisting(world, rand);
    if (from === undefined) return undefined;
    const isOther = (ns) => ns.split('.')[0] !== from.split('.')[0];
    const to = rand.pick(NAMES.filter((ns) => ns !== from && isOther(ns) === isCrossDb));
    return {
        run: (client) =>
            client
                .db('admin')
                .command({ renameCollection: from, to, dropTarget: true, ...DURABLE }),
        after: { ...without(world, from), [to]: world[from] },
    };
}

export class World {
    #now = {};
    #next = null; // the operation under way

    /* One operation of this kind, or of any; false when there is nothing it could be done to. */
    async step(client, rand, kind = rand.pick(Object.keys(OPERATIONS))) {
        const operation = OPERATIONS[kind](this.#now, rand);
        if (operation === undefined) return false;
        this.#next = { kind, ...operation };
        await operation.run(client);
        this.#now = operation.after;
        this.#next = null;
        return true;
    }

    /* Steps until `isOver()` or until the server is gone. */
    async run(client, rand, isOver) {
        try {
            while (!isOver())
                if (!(await this.step(client, rand))) await this.step(client, rand, 'create');
        } catch (error) {
            if (!isConnectionLoss(error)) throw error;
        }
    }

    /* Enough collections for every kind of operation. */
    async fill(client, rand) {
        while (Object.keys(this.#now).length < 3) await this.step(client, rand, 'create');
        for (let i = 0; i < 4; i++) await this.step(client, rand, 'insert');
        await this.step(client, rand, 'createIndexes');
    }

    /* For when an operation finds nothing to work on: some collections make way for new ones. */
    async renew(client, rand) {
        await this.step(client, rand, 'drop');
        await this.fill(client, rand);
    }

    async check(client, where) {
        const actual = await readWorld(client);
        const worlds = [this.#now, ...(this.#next === null ? [] : [this.#next.after])];
        const isExpected =
            worlds.some((world) => isSame(actual, world)) ||
            (this.#next?.isGradual && isBetween(actual, this.#now, this.#next.after));
        assert.ok(
            isExpected,
            `${where}: after ${this.#next?.kind ?? 'nothing'} there are\n${show(actual)}\n` +
                `expected ${worlds.map((world) => `\n${show(world)}`).join('\nor')}`,
        );
        this.#now = actual;
        this.#next = null;
    }
}

async function readWorld(client) {
    const world = {};
    for (const db of WORLD_DBS) {
        for (const { name, options } of await client.db(db).listCollections().toArray()) {
            const collection = client.db(db).collection(name);
            const documents = await collection
                .find()
                .hint({ $natural: 1 })
                .project({ _id: 1 })
                .toArray();
            world[`${db}.${name}`] = {
                ids: documents.map(({ _id }) => _id),
                indexes: (await collection.indexes()).map((index) => index.name).sort(),
                validator:
                    options.validator === undefined ? null : JSON.stringify(options.validator),
            };
        }
    }
    return world;
}

const canonical = ({ ids, indexes, validator }) =>
    JSON.stringify([[...ids].sort((a, b) => a - b), indexes, validator]);
const isSame = (one, two) =>
    JSON.stringify(Object.keys(one).sort()) === JSON.stringify(Object.keys(two).sort()) &&
    Object.keys(one).every((ns) => canonical(one[ns]) === canonical(two[ns]));
/* Each collection is as in `before`, or gone as in `after`. */
const isBetween = (actual, before, after) =>
    Object.keys(actual).every(
        (ns) => ns in before && canonical(actual[ns]) === canonical(before[ns]),
    ) && Object.keys(after).every((ns) => ns in actual);
const show = (world) =>
    Object.entries(world)
        .map(
            ([ns, { ids, indexes, validator }]) =>
                `  ${ns}: ${ids.length} documents, ${indexes.join(' ')}, ${validator}`,
        )
        .sort()
        .join('\n');
