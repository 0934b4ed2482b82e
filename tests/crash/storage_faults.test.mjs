/*
 * Goal: every single call of the storage engine may fail, in the middle of anything: the client gets a
 * clear error or does not notice, nothing is half done, and the node goes on or ends with a reason.
 * Method: for each operation and each error, the 1st, 2nd, 3rd ... call fails, until the operation
 * does not come so far any more. After each: the state is that of before or of after, `validate` finds
 * nothing, and the operation works.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { replyOf } from '../lib/expect.mjs';
import { Server, waitFor } from '../lib/server.mjs';
import * as faults from '../lib/storage_faults.mjs';
import { checkConsistency } from './consistency.mjs';

const DB = 'faults';
/* A node that met a full disk looks again within a second: fewer of those. */
const CALLS = {
    EIO: { all: 30, stride: 4 },
    ENOSPC: { all: 1, stride: 19 },
    WT_ROLLBACK: { all: 30, stride: 4 },
};
const DURABLE_INSERT = { insert: 'c', documents: [{}], writeConcern: { w: 1, j: true } };
const NETWORK = Symbol('the connection broke');
const doc = (n, more = {}) => ({ _id: n, a: n % 3, u: n, ...more });
const DOCS = [1, 2, 3, 4, 5].map((n) => doc(n));
const INDEXES = [
    { key: { a: 1 }, name: 'a_1' },
    { key: { u: 1 }, name: 'u_1', unique: true },
];

async function basics(db) {
    await db.command({ createIndexes: 'c', indexes: INDEXES });
    await db.command({ insert: 'c', documents: DOCS });
}
async function twoCollections(db) {
    await basics(db);
    await db.command({ insert: 'd', documents: [doc(9)] });
    await db.command({ createIndexes: 'd', indexes: [{ key: { z: 1 }, name: 'z_1' }] });
}
async function capped(db) {
    await db.command({ create: 'c', capped: true, size: 4096, max: 3 });
    await db.command({ insert: 'c', documents: [doc(1), doc(2), doc(3)] });
}

/*
 * prepare: of a database that is empty. command: what is done. isByDocument: each document is written
 * for itself, so some may be new and others old. isByCollection: the same of collections. mayLeave: the
 * collection that is made for the write may be left, empty. thread: who makes the calls, if it is not
 * the client's. isRead: nothing to conflict with.
 */
const OPERATIONS = {
    insert: { prepare: basics, command: { insert: 'c', documents: [doc(10)] } },
    'insert, creating the collection': {
        command: { insert: 'c', documents: [doc(1)] },
        mayLeave: 'c',
    },
    'insert many': {
        prepare: basics,
        command: { insert: 'c', documents: [doc(10), doc(11), doc(12)] },
        isByDocument: true,
    },
    'insert, durable': {
        prepare: basics,
        command: { insert: 'c', documents: [doc(10)], writeConcern: { w: 1, j: true } },
    },
    'insert into a capped collection': {
        prepare: capped,
        command: { insert: 'c', documents: [doc(4)] },
    },
    'update by _id': {
        prepare: basics,
        command: { update: 'c', updates: [{ q: { _id: 2 }, u: { $set: { a: 7, u: 70 } } }] },
    },
    'update multi': {
        prepare: basics,
        command: { update: 'c', updates: [{ q: {}, u: { $inc: { a: 10 } }, multi: true }] },
        isByDocument: true,
    },
    'update through an index': {
        prepare: basics,
        command: { update: 'c', updates: [{ q: { a: 1 }, u: { $set: { a: 0 } }, multi: true }] },
        isByDocument: true,
    },
    delete: { prepare: basics, command: { delete: 'c', deletes: [{ q: { _id: 3 }, limit: 1 }] } },
    'delete all': {
        prepare: basics,
        command: { delete: 'c', deletes: [{ q: {}, limit: 0 }] },
        isByDocument: true,
    },
    'findAndModify, upsert': {
        prepare: basics,
        command: { findAndModify: 'c', query: { _id: 20 }, update: doc(20), upsert: true },
    },
    create: { command: { create: 'c', validator: { a: { $gte: 0 } } } },
    'create, clustered': {
        command: { create: 'c', clusteredIndex: { key: { _id: 1 }, unique: true } },
    },
    'create a view': {
        prepare: basics,
        command: { create: 'v', viewOn: 'c', pipeline: [] },
        mayLeave: 'system.views',
    },
    'createIndexes of an empty collection': {
        prepare: (db) => db.command({ create: 'c' }),
        command: { createIndexes: 'c', indexes: INDEXES },
    },
    createIndexes: {
        prepare: (db) => db.command({ insert: 'c', documents: DOCS }),
        command: { createIndexes: 'c', indexes: INDEXES },
    },
    'createIndexes, the build': {
        prepare: (db) => db.command({ insert: 'c', documents: DOCS }),
        command: { createIndexes: 'c', indexes: INDEXES },
        thread: 'IndexBuild',
    },
    dropIndexes: { prepare: basics, command: { dropIndexes: 'c', index: '*' } },
    drop: { prepare: basics, command: { drop: 'c' } },
    renameCollection: {
        prepare: basics,
        command: { renameCollection: `${DB}.c`, to: `${DB}.e` },
        db: 'admin',
    },
    'renameCollection with dropTarget': {
        prepare: twoCollections,
        command: { renameCollection: `${DB}.c`, to: `${DB}.d`, dropTarget: true },
        db: 'admin',
    },
    collMod: {
        prepare: basics,
        command: { collMod: 'c', validator: { a: { $gte: 0 } }, index: { name: 'a_1', hidden: true } },
    },
    dropDatabase: { prepare: twoCollections, command: { dropDatabase: 1 }, isByCollection: true },
    find: { prepare: basics, command: { find: 'c', filter: { a: 1 } }, isRead: true },
    aggregate: {
        prepare: twoCollections,
        command: {
            aggregate: 'c',
            pipeline: [{ $lookup: { from: 'd', localField: 'a', foreignField: '_id', as: 'x' } }],
            cursor: {},
        },
        isRead: true,
    },
};

/* What is in the database, without what differs each time: {name: {options, indexes, documents}}. */
async function stateOf(db) {
    const state = {};
    const infos = await db.listCollections().toArray();
    for (const { name, type, options } of infos.sort((a, b) => (a.name < b.name ? -1 : 1))) {
        const documents = await db.collection(name).find().sort({ _id: 1 }).toArray();
        const indexes = type === 'view' ? [] : await db.collection(name).indexes();
        indexes.sort((a, b) => (a.name < b.name ? -1 : 1));
        state[name] = { type, options, indexes, documents };
    }
    return state;
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/* Every document is one of before or one of after; those that are in both must be there. */
function isMixOf(now, before, after) {
    const versions = (state, _id) => state.documents.filter((one) => one._id === _id);
    const ids = [...before.documents, ...after.documents, ...now.documents].map(({ _id }) => _id);
    return [...new Set(ids)].every((_id) => {
        const found = versions(now, _id);
        return same(found, versions(before, _id)) || same(found, versions(after, _id));
    });
}

function isAllowed({ isByDocument, isByCollection, mayLeave }, now, before, after) {
    if (same(now, before) || same(now, after)) return true;
    if (isByDocument)
        return Object.keys(now).every((name) => isMixOf(now[name], before[name], after[name]));
    if (mayLeave !== undefined) {
        const { [mayLeave]: left, ...rest } = now;
        return same(rest, before) && left.documents.length === 0 && left.indexes.length === 1;
    }
    const names = Object.keys({ ...before, ...after, ...now });
    return (
        isByCollection === true &&
        names.every((name) => [before, after].some((part) => same(part[name], now[name])))
    );
}

/* A batch stops at its first error: as many as the reply says, from the first on. */
function checkInserted({ insert, documents }, reply, before, now, where) {
    if (insert === undefined || reply.n === undefined) return;
    const old = before[insert]?.documents.map(({ _id }) => _id) ?? [];
    const added = now[insert]?.documents.map(({ _id }) => _id).filter((_id) => !old.includes(_id));
    const told = documents.slice(0, reply.n).map(({ _id }) => _id);
    assert.deepEqual(added ?? [], told, `${where}: inserted, and said to be`);
}

class Sweep {
    constructor(error) {
        this.error = error;
        this.server = new Server({ args: ['--wiredTigerCacheSizeGB', '0.25'] });
    }

    async start() {
        await this.server.start();
        const client = await this.server.client();
        this.client = client;
        this.admin = client.db('admin');
        this.db = client.db(DB);
    }

    async prepare({ prepare }) {
        await replyOf(this.db, { dropDatabase: 1 });
        await prepare?.(this.db);
        await this.client.db('other').command(DURABLE_INSERT); // and all before it
    }

    run({ command, db }) {
        return replyOf(db === undefined ? this.db : this.client.db(db), command).catch((error) => {
            if (!/^MongoNetwork|^MongoServerSelection|PoolCleared/.test(error.name)) throw error;
            return NETWORK;
        });
    }

    /* After a full disk the node refuses writes until it has looked again. */
    async waitForRoom() {
        const other = this.client.db('other');
        const hasRoom = async () => faults.errorIn(await replyOf(other, DURABLE_INSERT)) === null;
        await waitFor(hasRoom, { what: 'room on the disk' });
    }

    /* Resolves to whether the call was reached. */
    async failAt(operation, call, after) {
        const where = `${this.error} at call ${call}`;
        await this.prepare(operation);
        const before = await stateOf(this.db);
        const armed = await faults.arm(this.admin, this.error, call, operation.thread ?? 'conn');
        const reply = await this.run(operation);
        const hasEnded = reply === NETWORK;
        let hasFired = true;
        if (hasEnded) await this.restart(where);
        else ({ hasFired } = await faults.disarm(this.admin, armed));
        const error = hasEnded ? null : faults.errorIn(reply);
        if (error !== null) this.checkError(error, hasFired, where);
        const now = await stateOf(this.db);
        if (!hasEnded && error === null) assert.deepEqual(now, after, `${where}: state after success`);
        assert.ok(
            isAllowed(operation, now, before, after),
            `${where}: half done (${error?.errmsg}): ${JSON.stringify(now)}`,
        );
        if (!hasEnded) {
            checkInserted(operation.command, reply, before, now, where);
            await this.checkCounts(now, where);
        }
        await this.checkValid(now, where);
        if (hasFired && this.error === 'ENOSPC') await this.waitForRoom();
        if (hasFired && same(now, before)) await this.checkGoesOn(operation, after, where);
        return hasFired;
    }

    checkError(error, hasFired, where) {
        const text = `${where}: ${JSON.stringify(error)}`;
        const expected = faults.FAULTS[this.error];
        assert.ok(hasFired, `failed without a fault: ${text}`);
        assert.ok(expected !== null, `a conflict is to be tried again: ${text}`);
        assert.equal(error.code, expected.code, text);
        assert.match(error.errmsg, expected.message, text);
    }

    async checkValid(state, where) {
        for (const [name, { type, indexes, documents }] of Object.entries(state)) {
            if (type === 'view') continue;
            const report = await this.db.command({ validate: name, full: true });
            assert.ok(report.valid, `${where}: ${name} is not valid: ${JSON.stringify(report)}`);
            assert.equal(Number(report.nrecords), documents.length, `${where}: nrecords of ${name}`);
            const clustered = indexes.filter((index) => index.clustered).length;
            assert.equal(Number(report.nIndexes), indexes.length - clustered, `${where}: nIndexes`);
        }
    }

    /* Before validate sets them right. */
    async checkCounts(state, where) {
        for (const [name, { documents }] of Object.entries(state)) {
            const { n } = await this.db.command({ count: name });
            assert.equal(n, documents.length, `${where}: count of ${name}`);
        }
    }

    async checkGoesOn(operation, after, where) {
        const reply = await this.run(operation);
        assert.notEqual(reply, NETWORK, `${where}: the node ended afterwards`);
        assert.equal(faults.errorIn(reply), null, `${where}, then again: ${JSON.stringify(reply)}`);
        assert.deepEqual(await stateOf(this.db), after, `${where}, then again`);
    }

    /* The node has ended: it said why, and comes back. */
    async restart(where) {
        const { code, signal } = await this.server.waitEnd();
        assert.equal(code, faults.EXIT_ABRUPT, `${where}: ${signal} ${this.server.lastWords()}`);
        assert.ok(
            this.server.log.some(({ s, msg }) => s === 'F' && faults.ABRUPT.test(msg)),
            `${where}: ended without a reason: ${this.server.lastWords()}`,
        );
        await this.server.closeClients();
        await this.start();
    }

    async sweep(operation) {
        await this.prepare(operation);
        const reply = await this.run(operation);
        assert.equal(faults.errorIn(reply), null, JSON.stringify(reply));
        const after = await stateOf(this.db);
        let fired = 0;
        for (const call of faults.callNumbers(CALLS[this.error])) {
            if (!(await this.failAt(operation, call, after))) break;
            fired++;
        }
        assert.ok(fired > 0, 'no call of the storage engine was seen');
        return fired;
    }

    async finish() {
        await replyOf(this.db, { dropDatabase: 1 });
        await this.server.closeClients();
        const client = await this.server.client();
        await checkConsistency(this.server, client, 'at the end');
    }
}

describe('a failing call of the storage engine', { concurrency: 3 }, () => {
    for (const error of Object.keys(faults.FAULTS))
        describe(error, { concurrency: 1 }, () => {
            const sweep = new Sweep(error);
            test('start', () => sweep.start());
            const isMeant = ([, { isRead }]) => !isRead || error !== 'WT_ROLLBACK';
            for (const [name, operation] of Object.entries(OPERATIONS).filter(isMeant))
                test(`${error}: ${name}`, async (t) => {
                    if (!sweep.server.isRunning()) await sweep.start();
                    const fired = await sweep.sweep(operation);
                    t.diagnostic(`${fired} calls`);
                });
            test('the node is whole at the end', () => sweep.finish());
            after(() => sweep.server.remove());
        });
});
