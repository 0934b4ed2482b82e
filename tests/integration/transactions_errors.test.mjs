/*
 * Goal (TXN-4, I15): every rule of the transaction protocol is kept, with the code and the labels that
 * drivers rely on; whatever is refused changes nothing and harms nobody.
 *
 * Method: one row per rule: commands as they go over the wire, each with what must come back. Before
 * and after each row the collections are as they were, unless the row says otherwise.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Int32, Long, Timestamp, UUID } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { explain, startServer } from '../lib/server.mjs';
import { RawConnection } from '../lib/wire.mjs';

const TRANSIENT = 'TransientTransactionError';
const TYPE_MISMATCH = 14;
const COMMAND_FAILED = 125;
const UNAUTHORIZED = 13;
const ILLEGAL_OPERATION = 20;
const NAMESPACE_EXISTS = 48;
const MAX_TIME = 50;
const INVALID_OPTIONS = 72;
const WRITE_CONFLICT = 112;
const CONFLICTING = 117;
const TOO_OLD = 225;
const NO_SUCH = 251;
const COMMITTED = 256;
const NOT_IMPLEMENTED = 238;
const NOT_SUPPORTED = 263;
const NOT_PRIMARY = 10107;
const DUPLICATE_KEY = 11000;
const UNKNOWN_FIELD = 40415;
const NO_NUMBER_HERE = 50768; // a number without autocommit: false on what is no retryable write

/* ---- commands ---- */

const number = (n) => ({ txnNumber: Long.fromNumber(n) });
const start = (command, n = 1) => ({ ...command, ...number(n), startTransaction: true, autocommit: false });
const more = (command, n = 1) => ({ ...command, ...number(n), autocommit: false });
const commit = (n = 1, extra = {}) => more({ commitTransaction: 1, $db: 'admin', ...extra }, n);
const abort = (n = 1, extra = {}) => more({ abortTransaction: 1, $db: 'admin', ...extra }, n);
const find = { find: 'c' };
const insert = { insert: 'c', documents: [{ _id: 3 }] };
const update = { update: 'c', updates: [{ q: { _id: 1 }, u: { $set: { n: 10 } } }] };

/* ---- what comes back ---- */

const ok = { code: undefined };
/* The code, and exactly these labels. */
const refused = (code) => ({ code, labels: [] });
const transient = (code) => ({ code, labels: [TRANSIENT] });
/* Only that it is refused, or that and the code. */
const refusedSomehow = { isRefused: true };
const refusedWith = (code) => ({ code });

const CONTENT = { c: [{ _id: 1, n: 1 }, { _id: 2, n: 2 }], capped: [{ _id: 1 }] };
const ADDED = { ...CONTENT, c: [...CONTENT.c, { _id: 3 }] };

/* name: [steps], or { steps, leaves }: [command, what comes back]; the session of a row is its own. */
const FIELDS = {
    'a number without a session': [[{ ...start(find), lsid: undefined }, refused(INVALID_OPTIONS)]],
    'startTransaction without a number': [
        [{ ...find, startTransaction: true, autocommit: false }, refused(INVALID_OPTIONS)],
    ],
    'autocommit without a number': [[{ ...find, autocommit: false }, refused(INVALID_OPTIONS)]],
    'startTransaction without autocommit': [
        [{ ...find, ...number(1), startTransaction: true }, refused(INVALID_OPTIONS)],
    ],
    'autocommit: true': [[{ ...start(find), autocommit: true }, refused(INVALID_OPTIONS)]],
    'autocommit: true on a later statement': [
        [start(find), ok],
        [{ ...more(find), autocommit: true }, refused(INVALID_OPTIONS)],
        [commit(), ok],
    ],
    'startTransaction: false': [[{ ...start(find), startTransaction: false }, refused(INVALID_OPTIONS)]],
    'a negative number': [[start(find, -1), refused(INVALID_OPTIONS)]],
    'a number that is no long': [[{ ...start(find), txnNumber: new Int32(1) }, refused(TYPE_MISMATCH)]],
    'a number that is a text': [[{ ...start(find), txnNumber: '1' }, refused(TYPE_MISMATCH)]],
    'autocommit that is no boolean': [[{ ...start(find), autocommit: 0 }, refused(TYPE_MISMATCH)]],
    'startTransaction that is no boolean': [[{ ...start(find), startTransaction: 1 }, refused(TYPE_MISMATCH)]],
    'a read with a number outside of a transaction': [[{ ...find, ...number(1) }, refused(NO_NUMBER_HERE)]],
    'a number on commands whose arguments are wrong as well': [
        [{ distinct: 'c', ...number(1) }, refused(NO_NUMBER_HERE)],
        [{ count: 1, ...number(1) }, refused(NO_NUMBER_HERE)],
        [{ find: 'c', wrong: 1, ...number(1) }, refused(NO_NUMBER_HERE)],
        [{ createIndexes: 'c', ...number(1) }, refused(NO_NUMBER_HERE)],
        [{ distinct: 'c' }, refused(40414)],
    ],
    'a number on commands that are refused by name': [
        [{ mapReduce: 'c', ...number(1) }, refused(NO_NUMBER_HERE)],
        [{ applyOps: 1, ...number(1) }, refused(NO_NUMBER_HERE)],
        [{ mapReduce: 'c' }, refused(NOT_IMPLEMENTED)],
    ],
    'a command with wrong arguments that is not allowed inside': [
        [start({ count: 1 }), refused(NOT_SUPPORTED)],
    ],
    'a commit without autocommit': [
        [{ commitTransaction: 1, $db: 'admin', ...number(1) }, refused(NO_NUMBER_HERE)],
    ],
    'an abort without autocommit': [
        [{ abortTransaction: 1, $db: 'admin', ...number(1) }, refused(NO_NUMBER_HERE)],
    ],
    'a commit without a number': [[{ commitTransaction: 1, $db: 'admin' }, refused(COMMAND_FAILED)]],
    'an abort without a number': [[{ abortTransaction: 1, $db: 'admin' }, refused(COMMAND_FAILED)]],
    'a commit with an unknown field': [
        [start(insert), ok],
        [commit(1, { wrong: 1 }), refused(UNKNOWN_FIELD)],
    ],
    'an abort with an unknown field': [
        [start(insert), ok],
        [abort(1, { wrong: 1 }), refused(UNKNOWN_FIELD)],
    ],
    'a commit of another database than admin': [
        [start(insert), ok],
        [{ ...commit(), $db: 'test' }, refused(UNAUTHORIZED)],
    ],
    'an abort of another database than admin': [
        [start(insert), ok],
        [{ ...abort(), $db: 'test' }, refused(UNAUTHORIZED)],
    ],
};

const ORDER = {
    'a statement without a start': [[more(find), transient(NO_SUCH)]],
    'a commit without a transaction': [[commit(), transient(NO_SUCH)]],
    'an abort without a transaction': [[abort(), transient(NO_SUCH)]],
    'an abort without a transaction, with a write concern': [
        [abort(1, { writeConcern: { w: 'majority' } }), transient(NO_SUCH)],
    ],
    'a statement of a number that has not begun': [
        [start(find, 1), ok],
        [more(find, 2), transient(NO_SUCH)],
        [commit(1), ok],
    ],
    'a commit of a number that has not begun': [
        [start(insert, 1), ok],
        [commit(2), transient(NO_SUCH)],
        [abort(1), ok],
    ],
    'a start of an older number': [
        [start(find, 5), ok],
        [start(find, 4), refused(TOO_OLD)],
        [commit(5), ok],
    ],
    'a statement of an older number': [
        [start(find, 5), ok],
        [more(find, 4), refused(TOO_OLD)],
        [commit(5), ok],
    ],
    'a commit of an older number': [
        [start(insert, 4), ok],
        [start(find, 5), ok],
        [commit(4), refused(TOO_OLD)],
        [commit(5), ok],
    ],
    'an abort of an older number': [
        [start(insert, 4), ok],
        [start(find, 5), ok],
        [abort(4), refused(TOO_OLD)],
        [commit(5), ok],
    ],
    'a transaction older than a retryable write': {
        steps: [
            [{ ...insert, ...number(9) }, ok],
            [start(find, 8), refused(TOO_OLD)],
        ],
        leaves: ADDED,
    },
    'a retryable write older than a transaction': [
        [start(find, 9), ok],
        [{ ...insert, ...number(8) }, refused(TOO_OLD)],
        [commit(9), ok],
    ],
    'a retryable write with the number of a transaction': [
        [start(find), ok],
        [{ ...insert, ...number(1) }, refusedSomehow],
    ],
    'a transaction with the number of a retryable write': {
        steps: [
            [{ ...insert, ...number(1) }, ok],
            [start(find), refused(CONFLICTING)],
        ],
        leaves: ADDED,
    },
    'a second start of the same number': [
        [start(insert), ok],
        [start(find), refused(CONFLICTING)],
    ],
    'a start of the number of a commit': {
        steps: [[start(insert), ok], [commit(), ok], [start(find), refused(CONFLICTING)]],
        leaves: ADDED,
    },
    'a start of the number of an abort': [
        [start(insert), ok],
        [abort(), ok],
        [start(find), refused(CONFLICTING)],
    ],
    'a second commit': {
        steps: [[start(insert), ok], [commit(), ok], [commit(), ok]],
        leaves: ADDED,
    },
    'a second commit of nothing but reads': [[start(find), ok], [commit(), ok], [commit(), ok]],
    'a statement after the commit': {
        steps: [[start(insert), ok], [commit(), ok], [more(find), refused(COMMITTED)]],
        leaves: ADDED,
    },
    'an abort after the commit': {
        steps: [[start(insert), ok], [commit(), ok], [abort(), refused(COMMITTED)]],
        leaves: ADDED,
    },
    'a commit after the abort': [[start(insert), ok], [abort(), ok], [commit(), transient(NO_SUCH)]],
    'a statement after the abort': [[start(insert), ok], [abort(), ok], [more(find), transient(NO_SUCH)]],
    'a second abort': [[start(insert), ok], [abort(), ok], [abort(), transient(NO_SUCH)]],
    'a new transaction in the middle of another one': [
        [start(insert, 1), ok],
        [start(find, 2), ok],
        [commit(2), ok],
    ],
    'statement numbers inside': {
        steps: [[start({ ...insert, stmtId: new Int32(0) }), ok], [commit(), ok]],
        leaves: ADDED,
    },
    'two databases in one transaction': {
        steps: [
            [start(insert), ok],
            [more({ insert: 'c', documents: [{ _id: 7 }], $db: 'other' }), ok],
            [commit(), ok],
        ],
        leaves: ADDED,
    },
    'a duplicate key, which ends it': [
        [start(insert), ok],
        [more({ insert: 'c', documents: [{ _id: 1 }] }), refused(DUPLICATE_KEY)],
        [commit(), transient(NO_SUCH)],
    ],
    'an update that fails, which ends it': [
        [start(insert), ok],
        [more({ update: 'c', updates: [{ q: { _id: 1 }, u: { $inc: { 'n.x': 1 } } }] }), refusedSomehow],
        [commit(), transient(NO_SUCH)],
    ],
    'an unordered batch with an error, which ends it': [
        [start({ insert: 'c', documents: [{ _id: 1 }, { _id: 8 }], ordered: false }), refused(DUPLICATE_KEY)],
        [commit(), transient(NO_SUCH)],
    ],
    'a statement that cannot be parsed first': [
        [start({ find: 'c', filter: { $wrong: 1 } }), refusedWith(2)],
        [commit(), transient(NO_SUCH)],
    ],
};

const CONCERNS = {
    'a read concern on a later statement': {
        steps: [
            [start({ ...insert, readConcern: { level: 'snapshot' } }), ok],
            [more({ ...find, readConcern: { level: 'snapshot' } }), refused(INVALID_OPTIONS)],
            [more({ ...find, readConcern: { level: 'local' } }), refused(INVALID_OPTIONS)],
            [more({ ...find, readConcern: { level: 'majority' } }), refused(INVALID_OPTIONS)],
            [more({ ...update, readConcern: { level: 'local' } }), refused(INVALID_OPTIONS)],
            [commit(), ok],
        ],
        leaves: ADDED,
    },
    'an empty read concern on a later statement': [
        [start(find), ok],
        [more({ ...find, readConcern: {} }), ok],
        [commit(), ok],
    ],
    'a write concern on the first statement': [
        [start({ ...insert, writeConcern: { w: 1 } }), refused(INVALID_OPTIONS)],
        [commit(), transient(NO_SUCH)],
        [start({ ...insert, writeConcern: { w: 'majority' } }, 2), refused(INVALID_OPTIONS)],
        [commit(2), transient(NO_SUCH)],
    ],
    'a write concern on a later statement': {
        steps: [
            [start(insert), ok],
            [more({ ...update, writeConcern: { w: 1 } }), refused(INVALID_OPTIONS)],
            [more({ ...update, writeConcern: { w: 'majority' } }), refused(INVALID_OPTIONS)],
            [commit(1, { writeConcern: { w: 'majority' } }), ok],
        ],
        leaves: ADDED,
    },
    'a read concern on the commit': [
        [start(insert), ok],
        [commit(1, { readConcern: { level: 'local' } }), refused(INVALID_OPTIONS)],
    ],
    'a level that is none': [
        [start({ ...find, readConcern: { level: 'bad' } }), refusedWith(9)],
        [more(find), transient(NO_SUCH)],
        [abort(), transient(NO_SUCH)],
    ],
    'atClusterTime without snapshot': [
        [
            start({ ...find, readConcern: { level: 'local', atClusterTime: new Timestamp({ t: 1, i: 1 }) } }),
            refusedWith(INVALID_OPTIONS),
        ],
    ],
    'create at snapshot': [
        [start({ create: 'new', readConcern: { level: 'snapshot' } }), refused(INVALID_OPTIONS)],
        [abort(), transient(NO_SUCH)],
    ],
    'createIndexes at snapshot': [
        [
            start({
                createIndexes: 'new',
                indexes: [{ key: { a: 1 }, name: 'a' }],
                readConcern: { level: 'snapshot' },
            }),
            refused(INVALID_OPTIONS),
        ],
        [abort(), transient(NO_SUCH)],
    ],
};
for (const level of ['linearizable', 'available'])
    CONCERNS[`read concern ${level}`] = [
        [start({ ...find, readConcern: { level } }), refused(INVALID_OPTIONS)],
        [more(find), transient(NO_SUCH)],
        [abort(), transient(NO_SUCH)],
    ];
for (const level of ['local', 'majority', 'snapshot'])
    CONCERNS[`read concern ${level}, which is allowed`] = [
        [start({ ...find, readConcern: { level } }), ok],
        [more(find), ok],
        [commit(), ok],
    ];

const PLACES = {
    'a write to a capped collection': [
        [start({ insert: 'capped', documents: [{ _id: 2 }] }), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ],
    'an update of a capped collection': [
        [start({ update: 'capped', updates: [{ q: { _id: 1 }, u: { $set: { n: 1 } } }] }), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ],
    'a read of a capped collection': [[start({ find: 'capped' }), ok], [commit(), ok]],
    'a read of system.views': [
        [start({ find: 'system.views' }), refusedWith(51071)],
        [abort(), transient(NO_SUCH)],
    ],
    'a read of system.profile': [
        [start({ find: 'system.profile' }), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ],
    'an insert into system.profile': [
        [start({ insert: 'system.profile', documents: [{ a: 1 }] }), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ],
    'create of a system collection': [
        [start({ create: 'system.js' }), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ],
    'an index on a system collection': [
        [start({ createIndexes: 'system.js', indexes: [{ key: { a: 1 }, name: 'a' }] }), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ],
    'create of what exists': [
        [start({ create: 'c' }), refused(NAMESPACE_EXISTS)],
        [abort(), transient(NO_SUCH)],
    ],
    'an index on a collection that has documents': [
        [start({ createIndexes: 'c', indexes: [{ key: { a: 1 }, name: 'a' }] }), refused(NOT_SUPPORTED)],
    ],
    'an index that is there already': [
        [start({ createIndexes: 'c', indexes: [{ key: { _id: 1 }, name: '_id_' }] }), ok],
        [commit(), ok],
    ],
};
for (const [what, command] of Object.entries({
    insert: { insert: 'system.js', documents: [{ _id: 1 }] },
    update: { update: 'system.js', updates: [{ q: {}, u: { $set: { a: 1 } } }] },
    upsert: { update: 'system.js', updates: [{ q: { _id: 7 }, u: { $set: { a: 1 } }, upsert: true }] },
    delete: { delete: 'system.js', deletes: [{ q: {}, limit: 1 }] },
    findAndModify: { findAndModify: 'system.js', query: {}, remove: true },
    'insert of a view': { insert: 'system.views', documents: [{ _id: 'test.v', viewOn: 'c', pipeline: [] }] },
}))
    PLACES[`${what} in a system collection`] = [
        [start(command), refusedWith(50791)],
        [abort(), transient(NO_SUCH)],
    ];
for (const $db of ['config', 'admin', 'local'])
    for (const [what, command] of Object.entries({
        find,
        insert,
        update,
        delete: { delete: 'c', deletes: [{ q: {}, limit: 1 }] },
        aggregate: { aggregate: 'c', pipeline: [], cursor: {} },
        distinct: { distinct: 'c', key: 'a' },
        findAndModify: { findAndModify: 'c', query: {}, remove: true },
    }))
        PLACES[`${what} in ${$db}`] = [
            [start({ ...command, $db }), refused(NOT_SUPPORTED)],
            [abort(), transient(NO_SUCH)],
        ];

/* First, and in the middle of a transaction, which then still can be aborted or is over. */
const BANNED = {
    count: { count: 'c' },
    drop: { drop: 'c' },
    dropDatabase: { dropDatabase: 1 },
    dropIndexes: { dropIndexes: 'c', index: '*' },
    listCollections: { listCollections: 1 },
    listIndexes: { listIndexes: 'c' },
    listDatabases: { listDatabases: 1, $db: 'admin' },
    explain: { explain: find },
    collMod: { collMod: 'c' },
    collStats: { collStats: 'c' },
    dbStats: { dbStats: 1 },
    renameCollection: { renameCollection: 'test.c', to: 'test.d', $db: 'admin' },
    validate: { validate: 'c' },
    convertToCapped: { convertToCapped: 'c', size: 4096 },
    ping: { ping: 1 },
    buildInfo: { buildInfo: 1 },
    serverStatus: { serverStatus: 1 },
    currentOp: { currentOp: 1, $db: 'admin' },
    fsync: { fsync: 1, $db: 'admin' },
    getParameter: { getParameter: 1, logLevel: 1, $db: 'admin' },
    listCommands: { listCommands: 1 },
    dbHash: { dbHash: 1 },
    replSetGetStatus: { replSetGetStatus: 1, $db: 'admin' },
    profile: { profile: -1 },
    endSessions: { endSessions: [] },
};
for (const stage of [
    { $out: 'd' },
    { $merge: { into: 'd' } },
    { $collStats: { count: {} } },
    { $indexStats: {} },
    { $planCacheStats: {} },
    { $changeStream: {} },
])
    BANNED[`aggregate with ${Object.keys(stage)[0]}`] = { aggregate: 'c', pipeline: [stage], cursor: {} };

const FIRST_ONLY = {
    'killCursors as the first statement': [
        [start({ killCursors: 'c', cursors: [Long.fromNumber(1)] }), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ],
    'killCursors as a later statement': [
        [start(find), ok],
        [more({ killCursors: 'c', cursors: [Long.fromNumber(1)] }), ok],
        [commit(), ok],
    ],
};
for (const [what, command] of Object.entries(BANNED)) {
    FIRST_ONLY[`${what} as the first statement`] = [
        [start(command), refused(NOT_SUPPORTED)],
        [abort(), transient(NO_SUCH)],
    ];
    FIRST_ONLY[`${what} as a later statement`] = [
        [start(insert), ok],
        [more(command), refused(NOT_SUPPORTED)],
    ];
}

/* ---- running them ---- */

let set, member, client, wire;

before(async () => {
    set = await startReplicaSet({ members: 1 });
    [member] = set.members;
    client = await set.client();
    wire = await connect(member);
    await restore();
});
after(async () => {
    wire?.close();
    await set?.remove();
});

const connect = ({ host, port }) => RawConnection.open({ host, port });

async function restore() {
    for (const [name, documents] of Object.entries(CONTENT)) {
        const collection = client.db('test').collection(name);
        await collection.drop().catch(() => {});
        if (name === 'capped') await client.db('test').createCollection(name, { capped: true, size: 8192 });
        await collection.insertMany(documents, { writeConcern: { w: 'majority' } });
    }
    await client.db('other').dropDatabase();
    await client.db('other').createCollection('c');
}

async function content() {
    const found = {};
    const names = await client.db('test').listCollections({}, { nameOnly: true }).toArray();
    for (const { name } of names.sort((a, b) => (a.name < b.name ? -1 : 1)))
        if (!name.startsWith('system.'))
            found[name] = await client.db('test').collection(name).find().sort({ _id: 1 }).toArray();
    return found;
}

/* What the reply says went wrong, at the top or of the first write. */
const codeOf = (reply) => (reply.ok === 1 ? reply.writeErrors?.[0].code : reply.code);

function checkReply(reply, { code, labels, isRefused }, where) {
    const { $clusterTime: _, operationTime: __, ...shown } = reply;
    const text = `${where}: ${JSON.stringify(shown)}`;
    if (isRefused) {
        assert.notEqual(codeOf(reply), undefined, text);
        return;
    }
    assert.equal(codeOf(reply), code, text);
    if (labels !== undefined) assert.deepEqual(reply.errorLabels ?? [], labels, text);
}

async function runSteps(connection, steps, id = new UUID()) {
    for (const [i, [command, expected]] of steps.entries()) {
        const { lsid = { id }, ...rest } = command;
        const request = { ...rest, $db: rest.$db ?? 'test' };
        if (!('lsid' in command) || command.lsid !== undefined) request.lsid = lsid;
        checkReply(await connection.command(request), expected, `step ${i + 1}`);
    }
}

/* Whatever is still open in the session is over. */
const forget = (id) =>
    wire.command({ killSessions: [{ id }], $db: 'admin' }).then(() => wire.command({ ping: 1 }));

/* A node that a row has ended must not spoil the next one. */
async function revive() {
    if (wire.isClosed && (await member.isEnding())) {
        await member.closeClients();
        await member.start();
        await set.waitForPrimary();
    }
    if (wire.isClosed) wire = await connect(member);
}

async function runRow(row) {
    const { steps, leaves = CONTENT } = Array.isArray(row) ? { steps: row } : row;
    const id = new UUID();
    try {
        await runSteps(wire, steps, id);
        await forget(id);
        assert.deepEqual(await content(), leaves);
    } catch (error) {
        throw explain(error, member.lastWords());
    } finally {
        await revive();
        await forget(id);
        await restore();
    }
    assert.equal((await wire.command({ ping: 1 })).ok, 1);
}

for (const [title, rows] of Object.entries({
    'fields of the protocol': FIELDS,
    'order of statements': ORDER,
    concerns: CONCERNS,
    places: PLACES,
    'commands that are not allowed inside': FIRST_ONLY,
}))
    describe(title, () => {
        for (const [name, row] of Object.entries(rows)) test(`TXN-4: ${name}`, () => runRow(row));
    });

describe('cursors', () => {
    const open = { find: 'c', batchSize: 1 };
    const getMore = (id) => ({ getMore: id, collection: 'c', $db: 'test' });
    const ask = async (command, lsid) => wire.command({ ...command, lsid, $db: command.$db ?? 'test' });
    const openOne = async (command, lsid) => {
        const reply = await ask(command, lsid);
        assert.equal(reply.ok, 1, JSON.stringify(reply));
        return BigInt(reply.cursor.id) === 0n ? assert.fail('no cursor') : Long.fromBigInt(BigInt(reply.cursor.id));
    };

    test('TXN-4: a cursor from outside is of no use inside', async () => {
        const lsid = { id: new UUID() };
        const id = await openOne(open, lsid);
        checkReply(await ask(start(find), lsid), ok);
        checkReply(await ask(more(getMore(id)), lsid), refusedWith(50739));
        await forget(lsid.id);
    });

    test('TXN-4: a cursor from inside is of no use outside', async () => {
        const lsid = { id: new UUID() };
        const id = await openOne(start(open), lsid);
        checkReply(await ask(getMore(id), lsid), refusedWith(50740));
        checkReply(await ask(more(getMore(id)), lsid), ok);
        checkReply(await ask(commit(), lsid), ok);
    });

    test('TXN-4: a cursor of one transaction is of no use in the next', async () => {
        const lsid = { id: new UUID() };
        const id = await openOne(start(open), lsid);
        checkReply(await ask(start(find, 2), lsid), ok);
        checkReply(await ask(more(getMore(id), 2), lsid), refusedSomehow);
        await forget(lsid.id);
    });

    test('TXN-4: the end of a transaction closes its cursors', async () => {
        const lsid = { id: new UUID() };
        const id = await openOne(start(open), lsid);
        checkReply(await ask(abort(), lsid), ok);
        checkReply(await ask(getMore(id), lsid), refusedSomehow);
        const { metrics } = await client.db('admin').command({ serverStatus: 1 });
        assert.equal(Number(metrics.cursor.open.total), 0);
    });
});

test('TXN-4: collections that are closed to transactions are so by their UUIDs as well', async () => {
    const db = client.db('closed');
    await db.createCollection('c');
    await db.createCollection('v', { viewOn: 'c', pipeline: [] });
    await db.command({ profile: 2 });
    await db.command({ profile: 0 });
    const uuids = {};
    for (const { name, info } of await db.listCollections().toArray()) uuids[name] = info.uuid;
    for (const [name, expected] of [['system.views', 51070], ['system.profile', NOT_SUPPORTED]]) {
        const steps = [[start({ find: uuids[name], $db: 'closed' }), refusedWith(expected)]];
        await runSteps(wire, [...steps, [abort(), transient(NO_SUCH)]]);
    }
    await runSteps(wire, [[start({ find: uuids.c, $db: 'closed' }), ok], [commit(), ok]]);
    await db.dropDatabase();
});

test('TXN-4: a write conflict ends the one who comes later, and is transient', async () => {
    const [first, second] = [new UUID(), new UUID()];
    await runSteps(wire, [[start(update), ok]], first);
    await runSteps(wire, [[start(update), transient(WRITE_CONFLICT)], [commit(), transient(NO_SUCH)]], second);
    await runSteps(wire, [[commit(), ok]], first);
    assert.deepEqual((await content()).c[0], { _id: 1, n: 10 });
    await restore();
});

test('TXN-4: a write outside waits for a transaction and then succeeds', async () => {
    const id = new UUID();
    const other = await connect(member);
    await runSteps(wire, [[start(update), ok]], id);
    let isOver = false;
    const outside = other
        .command({ update: 'c', updates: [{ q: { _id: 1 }, u: { $inc: { n: 1 } } }], $db: 'test' })
        .finally(() => (isOver = true));
    await runSteps(wire, [[more(find), ok]], id);
    assert.equal(isOver, false);
    await runSteps(wire, [[commit(), ok]], id);
    assert.equal((await outside).nModified, 1);
    assert.deepEqual((await content()).c[0], { _id: 1, n: 11 });
    other.close();
    await restore();
});

test('TXN-4: a statement that runs out of time ends its transaction', async () => {
    const id = new UUID();
    const heavy = {
        aggregate: 1,
        pipeline: [
            { $documents: [{ a: { $range: [0, 3000] } }] },
            { $unwind: '$a' },
            { $set: { b: { $range: [0, 3000] } } },
            { $unwind: '$b' },
            { $group: { _id: { $mod: [{ $multiply: ['$a', '$b'] }, 7] }, n: { $sum: 1 } } },
        ],
        cursor: {},
        maxTimeMS: 5,
    };
    await runSteps(wire, [[start(insert), ok], [more(heavy), refusedWith(MAX_TIME)], [commit(), transient(NO_SUCH)]], id);
    assert.deepEqual(await content(), CONTENT);
});

test('TXN-4: there are no transactions on a standalone node', async () => {
    const alone = await startServer();
    try {
        const connection = await connect(alone);
        await runSteps(connection, [
            [start(find), refused(ILLEGAL_OPERATION)],
            [start(insert), refused(ILLEGAL_OPERATION)],
        ]);
        connection.close();
    } finally {
        await alone.remove();
    }
});

test('TXN-4: there are no transactions on a secondary', async () => {
    const pair = await startReplicaSet({ members: [{}, { priority: 0, votes: 0 }] });
    try {
        const connection = await connect(pair.members[1]);
        for (const mode of ['secondary', 'primaryPreferred', 'primary'])
            await runSteps(connection, [
                [start({ ...find, $readPreference: { mode } }), refusedWith(NOT_PRIMARY)],
                [start(insert, 2), refusedWith(NOT_PRIMARY)],
                [abort(2), refusedWith(NOT_PRIMARY)],
                [commit(2), refusedWith(NOT_PRIMARY)],
            ]);
        connection.close();
    } finally {
        await pair.remove();
    }
});
