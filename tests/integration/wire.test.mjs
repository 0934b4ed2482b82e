/*
 * Bad input on the wire. Goal: the server answers or closes the connection, stays alive, and never
 * returns bytes of another request. Method: each message goes out on a connection of its own, right
 * after other requests left a marker in the server's buffers; then the server must still answer a
 * ping.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BSON } from 'mongodb';
import { random, seedOfRun } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { waitFor } from '../lib/server.mjs';
import {
    CHECKSUM_PRESENT,
    MORE_TO_COME,
    OP_COMPRESSED,
    OP_MSG,
    OP_QUERY,
    OP_REPLY,
    RawConnection,
    bodySection,
    compressed,
    frame,
    int32,
    msg,
    msgWithChecksum,
    query,
    sequenceSection,
} from '../lib/wire.mjs';

let watcher; // stays connected all the time: it must never lose its connection
const node = useServer(
    {},
    {
        prepare: async () => (watcher = await open()),
        clean: () => watcher.close(),
    },
);
const MARKER = 'SECRET-OF-ANOTHER-REQUEST';
const PING = { ping: 1, $db: 'admin' };

const open = () => RawConnection.open({ host: '127.0.0.1', port: node.server.port });

/* Fills buffers of the server with the marker. */
async function leaveMarker() {
    const s = MARKER.repeat(40);
    await Promise.all([1, 2, 3].map(() => node.db.collection('marker').insertOne({ s })));
}

async function withConnection(body) {
    const connection = await open();
    try {
        return await body(connection);
    } finally {
        connection.close();
    }
}

/* Sends the bytes; the answer, or null when the server closed. Checks that the server lives on. */
async function provoke(bytes, { end = false } = {}) {
    await leaveMarker();
    const reply = await withConnection(async (connection) => {
        connection.write(bytes);
        if (end) connection.socket.end();
        return connection.receive();
    });
    if (reply !== null)
        assert.ok(!reply.raw.includes(MARKER), 'reply holds bytes of another request');
    assert.equal((await watcher.command({ ping: 1 })).ok, 1);
    return reply;
}

const closes = async (bytes, options) => assert.equal(await provoke(bytes, options), null);

async function answersWith(code, bytes) {
    const reply = await provoke(bytes);
    assert.notEqual(reply, null, 'connection closed instead of an error');
    assert.equal(reply.document.ok, 0);
    assert.equal(reply.document.code, code, reply.document.errmsg);
    return reply;
}

/* Either is right: an error, or the end of the connection. Success is not. */
async function refuses(bytes, options) {
    const reply = await provoke(bytes, options);
    if (reply !== null)
        assert.equal(reply.document.ok, 0, JSON.stringify(reply.document).slice(0, 300));
}

/* ---- frames ---- */

for (const length of [0, 1, 15, 16, 19, -1, -2147483648, 48_000_001, 2147483647]) {
    test(`a message that claims ${length} bytes is refused`, () =>
        refuses(frame(OP_MSG, Buffer.alloc(5), { lengthSaid: length }), { end: true }));
}

test('a message that ends early leads to nothing but the end of the connection', () =>
    closes(msg(PING).subarray(0, 20), { end: true }));

test('a message that comes byte by byte is answered', () =>
    withConnection(async (connection) => {
        connection.socket.setNoDelay(true);
        for (const byte of msg(PING)) {
            connection.write(Buffer.from([byte]));
            await new Promise((done) => setImmediate(done));
        }
        assert.equal((await connection.receive()).document.ok, 1);
    }));

test('requests sent in one go are answered in order', () =>
    withConnection(async (connection) => {
        const messages = Array.from({ length: 50 }, (_, i) => msg(PING, { requestId: 5000 + i }));
        connection.write(Buffer.concat(messages));
        for (let i = 0; i < 50; i++)
            assert.equal((await connection.receive()).responseTo, 5000 + i);
    }));

for (const opCode of [
    0,
    2,
    1000,
    2001,
    2002,
    2003,
    2005,
    2006,
    2007,
    2010,
    2011,
    2014,
    -1,
    OP_REPLY,
]) {
    test(`opcode ${opCode} is refused`, () => refuses(frame(opCode, Buffer.alloc(32))));
}

/* ---- sections and flags ---- */

test('an unknown required flag is answered with IllegalOpMsgFlag and ends the connection', () =>
    withConnection(async (connection) => {
        const reply = await connection.roundTrip(msg(PING, { flags: 1 << 5 }));
        assert.equal(reply?.document.code ?? 223, 223);
        assert.equal(await connection.receive(), null);
    }));

test('an unknown optional flag is ignored', async () => {
    const reply = await provoke(msg(PING, { flags: 1 << 20 }));
    assert.equal(reply.document.ok, 1);
});

test('a right checksum is accepted and answered with a checksum or without', async () => {
    const reply = await provoke(msgWithChecksum(PING));
    assert.equal(reply.document.ok, 1);
});

test('a wrong checksum ends the connection', () =>
    withConnection(async (connection) => {
        const reply = await connection.roundTrip(msgWithChecksum(PING, 1));
        assert.equal(reply?.document.code ?? 288, 288);
        assert.equal(await connection.receive(), null);
    }));

test('a checksum flag without room for a checksum is refused', () =>
    refuses(frame(OP_MSG, int32(CHECKSUM_PRESENT))));

const document = (value) => Buffer.from(BSON.serialize(value));
function damaged(value, at, byte) {
    const bytes = document(value);
    bytes[at < 0 ? bytes.length + at : at] = byte;
    return bytes;
}
const withLength = (value, length) => Buffer.concat([int32(length), document(value).subarray(4)]);

const BAD_MESSAGES = {
    'no section': [],
    'two bodies': [bodySection(PING), bodySection(PING)],
    'a section of unknown kind': [Buffer.from([7]), document(PING)],
    'a body longer than the message': [bodySection(withLength(PING, 4000))],
    'a body of negative length': [bodySection(withLength(PING, -5))],
    'a body of length 4': [bodySection(withLength(PING, 4))],
    'a body without its last zero': [bodySection(damaged(PING, -1, 9))],
    'an unknown BSON type': [bodySection(damaged(PING, 4, 0x42))],
    'a string with a lying length': [bodySection(damaged({ ping: 'x', $db: 'admin' }, 10, 200))],
    'a string of length 0': [bodySection(damaged({ ping: 'x', $db: 'admin' }, 10, 0))],
    'a sequence longer than the message': [
        bodySection(PING),
        sequenceSection('documents', [{}], 5000),
    ],
    'a sequence of negative size': [bodySection(PING), sequenceSection('documents', [{}], -3)],
    'a sequence shorter than its name': [bodySection(PING), sequenceSection('documents', [{}], 6)],
    'a sequence that cuts a document': [
        bodySection(PING),
        sequenceSection('documents', [{ a: 1 }], 18),
    ],
    'a sequence alone': [sequenceSection('documents', [{}])],
    'an unended sequence name': [bodySection(PING), Buffer.from([1]), int32(6), Buffer.from('xx')],
    'bytes behind the last section': [bodySection(PING), Buffer.from([0, 1])],
    'a security token': [bodySection(PING), Buffer.from([2]), document({})],
};
for (const [what, sections] of Object.entries(BAD_MESSAGES))
    test(`a message with ${what} is refused`, () => refuses(msg(sections)));

test('a field given both in the body and as a sequence is refused', () =>
    refuses(
        msg([
            bodySection({ insert: 'c', documents: [{}], $db: 'test' }),
            sequenceSection('documents', [{}]),
        ]),
    ));

test('the same sequence twice is refused', () =>
    refuses(
        msg([
            bodySection({ insert: 'c', $db: 'test' }),
            sequenceSection('documents', [{}]),
            sequenceSection('documents', [{}]),
        ]),
    ));

test('a sequence may stand before the body', async () => {
    const reply = await provoke(
        msg([
            sequenceSection('documents', [{ _id: 1 }]),
            bodySection({ insert: 'before', $db: 'test' }),
        ]),
    );
    assert.equal(reply.document.n, 1);
});

test('a request without $db is refused', () => answersWith(40571, msg({ ping: 1 })));

test('an empty body is refused', () => refuses(msg({})));

function deep(depth, inner = {}) {
    let bytes = document(inner);
    for (let i = 0; i < depth; i++) {
        const size = 4 + 1 + 2 + bytes.length + 1;
        bytes = Buffer.concat([
            int32(size),
            Buffer.from([3]),
            Buffer.from('a\0'),
            bytes,
            Buffer.from([0]),
        ]);
    }
    return bytes;
}
function insertOf(bytes) {
    return msg([
        bodySection({ insert: 'deep', $db: 'test' }),
        sequenceSection('documents', [bytes]),
    ]);
}

test('documents nested 250, 10,000 and 2,000,000 levels deep are refused', async () => {
    for (const depth of [250, 10_000]) {
        const reply = await provoke(insertOf(deep(depth)));
        assert.ok(
            reply === null || reply.document.ok === 0 || reply.document.writeErrors?.length === 1,
        );
    }
    // Built backwards in one buffer: a chain of 2,000,000 openings, whose lengths lie.
    const opening = Buffer.concat([int32(0x7ffffff), Buffer.from([3]), Buffer.from('a\0')]);
    const bytes = Buffer.alloc(opening.length * 2_000_000, opening);
    await refuses(
        msg([bodySection({ insert: 'deep', $db: 'test' }), sequenceSection('documents', [bytes])]),
    );
});

test('a filter nested 190 levels deep is judged or refused, without harm', async () => {
    let filter = { a: 1 };
    for (let i = 0; i < 95; i++) filter = { $or: [filter] };
    const reply = await provoke(msg({ find: 'deep', filter, $db: 'test' }));
    assert.ok(reply !== null);
});

test('a document of 17 MB is refused and the connection of others lives on', () =>
    refuses(
        msg([
            bodySection({ insert: 'big', $db: 'test' }),
            sequenceSection('documents', [document({ s: 'x'.repeat(17 << 20) })]),
        ]),
    ));

test('a message of just under 48 MB is taken', async () => {
    const documents = Array.from({ length: 3 }, (_, _id) =>
        document({ _id, s: 'x'.repeat(15 << 20) }),
    );
    const reply = await provoke(
        msg([bodySection({ insert: 'big', $db: 'test' }), sequenceSection('documents', documents)]),
    );
    assert.equal(reply.document.n, 3, reply.document.errmsg);
    await node.db.collection('big').drop();
});

test('moreToCome writes are done and not answered', () =>
    withConnection(async (connection) => {
        connection.write(
            msg(
                { insert: 'fire', documents: [{ _id: 1 }], writeConcern: { w: 0 }, $db: 'test' },
                { flags: MORE_TO_COME },
            ),
        );
        connection.write(
            msg(
                { insert: 'fire', documents: [{ _id: 1 }], writeConcern: { w: 0 }, $db: 'test' },
                { flags: MORE_TO_COME },
            ),
        );
        const reply = await connection.roundTrip(
            msg({ count: 'fire', $db: 'test' }, { requestId: 99 }),
        );
        assert.equal(reply.responseTo, 99);
        assert.equal(reply.document.n, 1);
    }));

test('an unacknowledged write that fails to parse is not answered either', () =>
    withConnection(async (connection) => {
        connection.write(
            msg({ insert: 'fire', nonsense: 1, $db: 'test' }, { flags: MORE_TO_COME }),
        );
        const reply = await connection.roundTrip(msg(PING, { requestId: 98 }));
        assert.equal(reply.responseTo, 98);
    }));

/* ---- OP_QUERY ---- */

for (const name of ['isMaster', 'ismaster', 'hello']) {
    test(`the handshake ${name} works with OP_QUERY`, async () => {
        const reply = await provoke(query({ [name]: 1 }));
        assert.equal(reply.opCode, OP_REPLY);
        assert.equal(reply.document.ok, 1);
        assert.equal(reply.document.maxWireVersion, 21);
        assert.ok('ismaster' in reply.document || 'isWritablePrimary' in reply.document);
    });
}

test('other commands over OP_QUERY fail with UnsupportedOpQueryCommand', () =>
    answersWith(352, query({ ping: 1 })));

test('a query of a collection over OP_QUERY fails', () =>
    refuses(query({ a: 1 }, { ns: 'test.c' })));

const QUERY_BODIES = {
    nothing: Buffer.alloc(0),
    'flags alone': int32(0),
    'an unended namespace': Buffer.concat([int32(0), Buffer.from('admin.$cmd')]),
    'no document': Buffer.concat([int32(0), Buffer.from('admin.$cmd\0'), int32(0, -1)]),
    'a document with a lying length': Buffer.concat([
        int32(0),
        Buffer.from('admin.$cmd\0'),
        int32(0, -1, 500),
        Buffer.from([0]),
    ]),
    'an empty namespace': Buffer.concat([
        int32(0),
        Buffer.from('\0'),
        int32(0, -1),
        document({ hello: 1 }),
    ]),
};
for (const [what, body] of Object.entries(QUERY_BODIES))
    test(`OP_QUERY with ${what} is refused`, () => refuses(frame(OP_QUERY, body)));

/* ---- OP_COMPRESSED ---- */

test('a compressed request is answered, compressed or not', () =>
    withConnection(async (connection) => {
        const hello = await connection.command({ hello: 1, compression: ['zlib'] });
        assert.deepEqual(hello.compression, ['zlib']);
        let reply = await connection.roundTrip(compressed(msg(PING, { requestId: 321 })));
        assert.equal(reply.document.ok, 1);
        assert.equal(reply.responseTo, 321);
        // Tiny replies may come as they are; one that gains from it is compressed.
        reply = await connection.roundTrip(compressed(msg({ listCommands: 1, $db: 'admin' })));
        assert.equal(reply.document.ok, 1);
        assert.equal(reply.raw.readInt32LE(12), OP_COMPRESSED);
    }));

test('compressed requests are answered with and without negotiation, or refused', async () => {
    const reply = await provoke(compressed(msg(PING)));
    assert.ok(reply === null || 'ok' in reply.document);
});

const inner = msg(PING).length - 16;
const COMPRESSED = {
    'a size that is too large': { size: inner + 100 },
    'a size that is too small': { size: inner - 10 },
    'a negative size': { size: -1 },
    'size 0': { size: 0 },
    'a size of 2 GB': { size: 2147483647 },
    'an unknown compressor': { compressor: 9 },
    'garbage as data': { data: Buffer.from('this is no zlib stream at all') },
    'no data': { data: Buffer.alloc(0) },
    'snappy data that lie about their length': {
        compressor: 1,
        data: Buffer.from([0xff, 0xff, 0xff, 0x0f, 0]),
    },
    'zstd garbage': {
        compressor: 3,
        data: Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 1, 2, 3]),
    },
    'another compressed message inside': { opCode: OP_COMPRESSED },
    'an unknown opcode inside': { opCode: 4711 },
    'noop data shorter than said': { compressor: 0, data: Buffer.alloc(5), size: 4000 },
};
for (const [what, parts] of Object.entries(COMPRESSED))
    test(`a compressed message with ${what} is refused`, () =>
        refuses(compressed(msg(PING), parts)));

test('a compressed message without its own header is refused', () =>
    refuses(frame(OP_COMPRESSED, Buffer.alloc(5))));

test('lying lengths inside a compressed message are refused', async () => {
    await refuses(compressed(msg([bodySection(withLength(PING, 4000))])));
    await refuses(compressed(msg([bodySection(PING), sequenceSection('documents', [{}], 5000)])));
    await refuses(compressed(msg([bodySection(damaged({ ping: 'x', $db: 'admin' }, 10, 200))])));
});

test('a compressed bomb is not inflated beyond the limit', async () => {
    const { deflateSync } = await import('node:zlib');
    const data = deflateSync(Buffer.alloc(200 << 20));
    await refuses(compressed(msg(PING), { data, size: 40_000_000 }));
    await refuses(compressed(msg(PING), { data, size: 200 << 20 }));
});

/* ---- random damage ---- */

test('random damage of good messages never harms the server or others', async () => {
    const seed = seedOfRun();
    const rand = random(seed);
    const good = [
        msg(PING),
        msg({ find: 'marker', filter: { s: { $in: ['a', /b/] }, x: { $gt: 1 } }, $db: 'test' }),
        msg([
            bodySection({ insert: 'noise', $db: 'test' }),
            sequenceSection('documents', [{ a: 1 }, { b: 'x' }]),
        ]),
        msg({
            update: 'noise',
            updates: [{ q: { a: 1 }, u: { $set: { 'b.c': [1, 2] } } }],
            $db: 'test',
        }),
        msg({ aggregate: 'noise', pipeline: [{ $group: { _id: '$a' } }], cursor: {}, $db: 'test' }),
        compressed(msg(PING)),
        query({ hello: 1 }),
    ];
    await leaveMarker();
    for (let round = 0; round < 400; round++) {
        const bytes = Buffer.from(rand.pick(good));
        for (let i = 1 + rand.below(4); i > 0; i--)
            bytes[4 + rand.below(bytes.length - 4)] = rand.below(256);
        await withConnection(async (connection) => {
            connection.write(bytes);
            connection.socket.end();
            const reply = await connection.receive().catch((error) => {
                assert.fail(`seed ${seed}, round ${round}: ${error.message}`);
            });
            const isFind = bytes.includes('marker');
            assert.ok(isFind || !reply?.raw.includes(MARKER), `seed ${seed}, round ${round}`);
        });
    }
    assert.equal((await watcher.command({ ping: 1 })).ok, 1, `seed ${seed}`);
});

test('connections that say nothing or half a header cost nothing and are let go', async () => {
    const idle = await Promise.all(Array.from({ length: 200 }, open));
    for (const connection of idle.slice(0, 100)) connection.write(Buffer.from([16, 0, 0]));
    assert.equal((await watcher.command({ ping: 1 })).ok, 1);
    for (const connection of idle) connection.close();
    await waitFor(
        async () => (await node.admin.command({ serverStatus: 1 })).connections.current < 50,
        { what: 'closed connections' },
    );
});
