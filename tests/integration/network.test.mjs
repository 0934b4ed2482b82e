/* Listening: addresses, IPv6, unix socket, limits; compression with each compressor. */
import assert from 'node:assert/strict';
import { existsSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { useServer } from '../lib/fixture.mjs';
import { startServer } from '../lib/server.mjs';
import { RawConnection, msg } from '../lib/wire.mjs';

const node = useServer({ args: ['--ipv6', '--bind_ip', '127.0.0.1,::1'] });

test('a client connects over IPv6', async () => {
    const client = await node.server.client(
        {},
        `mongodb://[::1]:${node.server.port}/?directConnection=true`,
    );
    assert.match((await client.db('admin').command({ whatsmyuri: 1 })).you, /^\[?::1\]?:\d+$/);
    await client.close();
});

test('a client connects over the unix socket', async () => {
    const path = encodeURIComponent(node.server.socketPath);
    const client = await node.server.client({}, `mongodb://${path}/?directConnection=true`);
    assert.equal((await client.db('admin').command({ ping: 1 })).ok, 1);
    await client.close();
    assert.equal(statSync(node.server.socketPath).mode & 0o777, 0o700);
});

test('the unix socket is gone after the stop and replaced after a crash', async () => {
    const server = await startServer();
    try {
        await server.kill();
        await server.start();
        const path = server.socketPath;
        assert.ok(existsSync(path));
        await server.stop();
        assert.ok(!existsSync(path));
    } finally {
        await server.remove();
    }
});

test('--nounixsocket makes none', async () => {
    const server = await startServer({ args: ['--nounixsocket'] });
    try {
        assert.ok(!existsSync(server.socketPath));
    } finally {
        await server.remove();
    }
});

test('OPS-4: nothing listens beyond loopback unless told', async () => {
    const others = Object.values(networkInterfaces())
        .flat()
        .filter(({ internal, family }) => !internal && family === 'IPv4');
    for (const { address } of others) {
        const outcome = await new Promise((done) => {
            const socket = connect(node.server.port, address);
            socket.once('connect', () => done('connected'));
            socket.once('error', ({ code }) => done(code));
        });
        assert.notEqual(outcome, 'connected', address);
    }
});

test('maxConns refuses connections beyond the limit and serves those it has', async () => {
    const server = await startServer({ args: ['--maxConns', '5'] });
    const address = { host: '127.0.0.1', port: server.port };
    const held = [];
    try {
        let refused = 0;
        for (let i = 0; i < 12; i++) {
            const connection = await RawConnection.open(address);
            const reply = await connection
                .roundTrip(msg({ ping: 1, $db: 'admin' }))
                .catch(() => null);
            if (reply === null) refused++;
            else held.push(connection);
        }
        assert.equal(held.length, 5);
        assert.equal(refused, 7);
        assert.equal((await held[0].command({ ping: 1 })).ok, 1);
    } finally {
        held.forEach((connection) => connection.close());
        await server.remove();
    }
});

for (const compressor of ['snappy', 'zlib']) {
    test(`a driver works with ${compressor} compression`, async () => {
        const client = await node.server.client({ compressors: [compressor] });
        const c = client.db('test').collection(`with_${compressor}`);
        const documents = Array.from({ length: 500 }, (_, _id) => ({
            _id,
            s: `text ${_id} `.repeat(50),
        }));
        await c.insertMany(documents);
        assert.deepEqual(await c.find().sort({ _id: 1 }).toArray(), documents);
        const { network } = await node.admin.command({ serverStatus: 1 });
        const { compressor: sent, decompressor: received } = network.compression[compressor];
        assert.ok(Number(sent.bytesIn) > Number(sent.bytesOut), 'replies were compressed');
        assert.ok(Number(received.bytesOut) > Number(received.bytesIn), 'requests were compressed');
        await client.close();
    });
}

test('hello offers only compressors both sides know, in the order of the client', async () => {
    const connection = await RawConnection.open({ host: '127.0.0.1', port: node.server.port });
    const offered = async (compression) =>
        (await connection.command({ hello: 1, compression })).compression;
    assert.deepEqual(await offered(['zlib', 'nonsense', 'snappy']), ['zlib', 'snappy']);
    assert.deepEqual(await offered(['zstd']), ['zstd']);
    assert.ok(!((await offered(['nonsense']))?.length > 0));
    connection.close();
});

test('--networkMessageCompressors disabled offers none', async () => {
    const server = await startServer({ args: ['--networkMessageCompressors', 'disabled'] });
    try {
        const connection = await RawConnection.open({ host: '127.0.0.1', port: server.port });
        const reply = await connection.command({
            hello: 1,
            compression: ['zlib', 'snappy', 'zstd'],
        });
        assert.ok(!(reply.compression?.length > 0));
        connection.close();
    } finally {
        await server.remove();
    }
});

test('a hundred clients at once are served', async () => {
    const connections = await Promise.all(
        Array.from({ length: 100 }, () =>
            RawConnection.open({ host: '127.0.0.1', port: node.server.port }),
        ),
    );
    const replies = await Promise.all(
        connections.map(async (connection, i) => {
            await connection.command({ insert: 'crowd', documents: [{ _id: i }], $db: 'test' });
            return connection.command({ find: 'crowd', filter: { _id: i }, $db: 'test' });
        }),
    );
    replies.forEach((reply, i) => assert.deepEqual(reply.cursor.firstBatch, [{ _id: i }]));
    connections.forEach((connection) => connection.close());
});
