/*
 * expect.mjs - the assertions that most tests of a node share.
 */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';

/* The operation fails with this code (and code name or message, when given); returns the error. */
export async function fails(operation, code, { name, message, labels, lacks } = {}) {
    let result;
    try {
        result = await (typeof operation === 'function' ? operation() : operation);
    } catch (error) {
        const text = `${error.codeName ?? ''} ${error.message}`;
        assert.equal(error.code, code, `wrong code: ${error.code} ${text}`);
        if (name !== undefined) assert.equal(error.codeName, name, text);
        if (message !== undefined) assert.match(error.message, message);
        for (const label of labels ?? [])
            assert.ok(error.hasErrorLabel(label), `no label ${label}: ${text}`);
        for (const label of lacks ?? [])
            assert.ok(!error.hasErrorLabel(label), `label ${label}: ${text}`);
        return error;
    }
    assert.fail(`expected error ${code}, got ${inspect(result, { depth: 1 }).slice(0, 300)}`);
}

/* The reply, or the error as a reply: drivers throw for ok: 0 only, this never does. */
export async function replyOf(db, command, options) {
    try {
        return await db.command(command, options);
    } catch (error) {
        if (error.errorResponse === undefined) throw error;
        return error.errorResponse;
    }
}

/* Each key of `shape` is there with that BSON-ish type. */
export function hasShape(document, shape, where = '') {
    for (const [key, want] of Object.entries(shape)) {
        const at = where === '' ? key : `${where}.${key}`;
        assert.ok(document !== null && key in document, `${at} is missing`);
        if (typeof want === 'object') hasShape(document[key], want, at);
        else assert.equal(typeName(document[key]), want, `type of ${at}`);
    }
}

function typeName(value) {
    if (value === null) return 'null';
    if (Array.isArray(value)) return 'array';
    if (value instanceof Date) return 'date';
    if (value._bsontype !== undefined)
        return ['Double', 'Int32', 'Long'].includes(value._bsontype) ? 'number' : value._bsontype;
    return typeof value;
}

export const ids = (documents) => documents.map((document) => document._id);
export const sortedIds = (documents) => ids(documents).sort((a, b) => a - b);

/* A small generator with a seed, so that a failure can be repeated (mulberry32). */
export function random(seed) {
    let state = seed >>> 0;
    const next = () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = state;
        t = Math.imul(t ^ (t >>> 15), t | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    next.below = (limit) => Math.floor(next() * limit);
    next.pick = (list) => list[next.below(list.length)];
    return next;
}

/* The seed of this run: TEST_SEED, or a new one. Printed by the tests that use it. */
export const seedOfRun = () => Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

/* The test is over and has closed the client. Whoever writes on whatever happens has to stop then: after a failure
 * nobody else tells it, and a loop of operations that fail at once lets nothing else run. */
export const isClientClosed = ({ name }) => /^Mongo(NotConnected|ClientClosed|TopologyClosed)Error$/.test(name);
