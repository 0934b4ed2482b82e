/*
 * Goal: `sherd up` is a whole cluster: it starts with one command, survives the death of any of its
 * processes, stops cleanly, and goes on with the same data whatever happened to it.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { makeTempDir, removeTempDir, runToEnd, waitFor } from '../lib/server.mjs';
import { Up, freeRange, isAlive } from '../lib/up.mjs';

const allGone = (pids) =>
    waitFor(() => !pids.some(isAlive), { timeoutMs: 30_000, what: 'the end of all processes' });

/* What was inserted is there, and more can be written, in databases of several shards. */
async function checkWorks(up, key) {
    const client = await up.client();
    for (const name of ['a', 'b', 'c']) {
        const collection = client.db(name).collection('c');
        const before = await collection.countDocuments();
        await collection.insertOne({ _id: key }, { writeConcern: { w: 'majority' } });
        assert.equal(await collection.countDocuments(), before + 1);
    }
    return client;
}

describe('a cluster of two shards', () => {
    const up = new Up(['--shards', '2']);
    let keys = 0;
    before(() => up.start());
    after(() => up.remove());

    test('OPS-1: one command starts a sharded cluster', async () => {
        const roles = up.events.filter(({ event }) => event === 'starting').map(({ role }) => role);
        assert.deepEqual(roles, ['config', 'shard', 'shard', 'router']);
        const ready = up.events.filter(({ event }) => event === 'ready');
        assert.equal(ready.length, 5);
        assert.equal(ready.at(-1).uri, `mongodb://127.0.0.1:${up.port}/`);
        assert.ok(ready.at(-1).ms > 0);
        const client = await checkWorks(up, keys++);
        const { shards } = await client.db('admin').command({ listShards: 1 });
        assert.deepEqual(shards.map(({ _id }) => _id).sort(), ['shard0', 'shard1']);
    });

    test('OPS-1: --status shows every process, its state and its memory', async () => {
        const { code, stdout } = await up.run('--status');
        assert.equal(code, 0);
        assert.match(stdout, new RegExp(`pid ${up.pid}\nmongodb://127.0.0.1:${up.port}/`));
        assert.match(stdout, new RegExp(`router0 +127.0.0.1:${up.port} +ready +pid ${up.pidOf('router0')} +\\d+ MB`));
        for (const name of ['shard0-0', 'shard1-0', 'config-0'])
            assert.match(stdout, new RegExp(`${name} +127.0.0.1:\\d+ +PRIMARY +pid ${up.pidOf(name)} +\\d+ MB`));
    });

    test('OPS-1: a second cluster in the same directory is refused', async () => {
        const { code, stderr } = await up.run();
        assert.equal(code, 100);
        assert.match(stderr, new RegExp(`a cluster already runs in ".*" \\(process ${up.pid}\\)`));
    });

    for (const name of ['shard0-0', 'router0', 'config-0'])
        test(`OPS-1: ${name} is started again after kill -9`, async () => {
            const from = up.events.length;
            const pid = up.pidOf(name);
            await up.closeClients();
            process.kill(pid, 'SIGKILL');
            const died = await up.waitEvent((event) => event.event === 'died', from);
            assert.deepEqual([died.name, died.pid, died.signal], [name, pid, 9]);
            const restarting = await up.waitEvent((event) => event.event === 'restarting', from);
            assert.ok(restarting.delayMs >= 500);
            await up.waitReady(from);
            assert.notEqual(up.pidOf(name), pid);
            await checkWorks(up, keys++);
        });

    test('OPS-1: a part that is down is shown as down', async () => {
        const from = up.events.length;
        process.kill(up.pidOf('router0'), 'SIGKILL');
        await up.waitEvent(({ event }) => event === 'died', from);
        const { code, stdout } = await up.run('--status');
        assert.equal(code, 0);
        // On a slow machine it may be back already.
        if (!up.events.slice(from).some(({ event }) => event === 'starting'))
            assert.match(stdout, new RegExp(`router0 +127.0.0.1:${up.port} +down`));
        await up.waitReady(from);
    });

    test('OPS-1: SIGTERM stops routers, shards and config server in this order', async () => {
        const pids = up.pids;
        const state = readFileSync(join(up.dir, 'cluster.json'), 'utf8');
        assert.deepEqual(await up.signal('SIGTERM'), { code: 0, signal: null });
        assert.deepEqual(pids.filter(isAlive), []);
        const stopped = up.events.filter(({ event }) => event === 'stopped');
        assert.deepEqual(
            stopped.map(({ role }) => role),
            ['router', 'shard', 'shard', 'config', 'cluster'],
        );
        assert.ok(stopped.slice(0, -1).every(({ exitCode }) => exitCode === 0));
        const { code, stdout, stderr } = await up.run('--status');
        assert.equal(code, 3);
        assert.equal(stdout, '');
        assert.match(stderr, /no cluster runs in/);
        await up.start();
        assert.equal(readFileSync(join(up.dir, 'cluster.json'), 'utf8'), state);
        await checkWorks(up, keys++);
    });

    test('OPS-1: after kill -9 of sherd up its processes are gone, and the next start works', async () => {
        const pids = up.pids;
        await up.signal('SIGKILL');
        await up.start(); // does not wait for them: the program does
        assert.deepEqual(pids.filter(isAlive), []);
        await checkWorks(up, keys++);
    });

    test('OPS-1: a second signal ends everything at once', async () => {
        const pids = up.pids;
        const from = up.events.length;
        await up.closeClients();
        const shard = up.pidOf('shard0-0');
        process.kill(shard, 'SIGSTOP'); // it will not end by itself
        process.kill(up.pid, 'SIGTERM');
        await up.waitEvent(({ event, name }) => event === 'stopping' && name === 'shard0-0', from);
        process.kill(up.pid, 'SIGTERM');
        assert.deepEqual(await up.waitEnd(), { code: 12, signal: null });
        assert.deepEqual(pids.filter(isAlive), []);
    });

    test('OPS-1: shards can be added at a later start, but not taken away', async () => {
        const fewer = await up.run('--shards', '1');
        assert.equal(fewer.code, 2);
        assert.match(fewer.stderr, /--shards 1: the cluster in ".*" has 2 shards, and none of them can be taken away/);
        const replicas = await up.run('--replicas', '3');
        assert.equal(replicas.code, 2);
        assert.match(replicas.stderr, /--replicas 3: .* cannot be changed/);
        up.args = ['--shards', '3', '--routers', '2'];
        await up.start();
        const client = await checkWorks(up, keys++);
        const { shards } = await client.db('admin').command({ listShards: 1 });
        assert.deepEqual(shards.map(({ _id }) => _id).sort(), ['shard0', 'shard1', 'shard2']);
        const other = await up.client(1);
        assert.equal(await other.db('a').collection('c').countDocuments(), keys);
        assert.equal((await up.signal('SIGINT')).code, 0);
    });
});

describe('a start that is interrupted', () => {
    const moments = {
        'the first process starts': ({ event }) => event === 'starting',
        'a member is ready': ({ event, role }) => event === 'ready' && role !== 'router',
        'the router is ready': ({ event, role }) => event === 'ready' && role === 'router',
    };
    const up = new Up(['--shards', '2']);
    after(() => up.remove());

    for (const [what, isMoment] of Object.entries(moments))
        test(`OPS-1: kill -9 when ${what} leaves nothing that the next start could not complete`, async () => {
            await up.spawn();
            await up.waitEvent(isMoment);
            const pids = up.pids;
            await up.signal('SIGKILL');
            await allGone(pids);
        });

    test('OPS-1: the start after all of them is a cluster', async () => {
        await up.start();
        const client = await checkWorks(up, 0);
        const { shards } = await client.db('admin').command({ listShards: 1 });
        assert.equal(shards.length, 2);
    });
});

describe('sets of three members', () => {
    const up = new Up(['--shards', '1', '--replicas', '3']);
    before(() => up.start());
    after(() => up.remove());

    test('OPS-1: each set has one primary and two secondaries, and lives on without one of them', async () => {
        await checkWorks(up, 0);
        const { stdout } = await up.run('--status');
        assert.equal(stdout.match(/PRIMARY/g).length, 2);
        assert.equal(stdout.match(/SECONDARY/g).length, 4);
        const [, name] = stdout.match(/(shard0-\d) .* PRIMARY/);
        const from = up.events.length;
        process.kill(up.pidOf(name), 'SIGKILL');
        await up.waitEvent(({ event }) => event === 'died', from);
        await up.waitReady(from);
        await checkWorks(up, 1);
        assert.equal((await up.signal('SIGTERM')).code, 0);
    });
});

describe('what cannot be started', () => {
    const root = makeTempDir();
    after(() => removeTempDir(root));
    const run = (...args) => runToEnd(['up', ...args]);
    const isOneLine = (text) => assert.match(text, /^[^\n]+\n$/);

    test('OPS-1: wrong arguments are named in one line', async () => {
        for (const [args, message] of [
            [['--shards', '0'], /--shards has to be a number from 1 to 64, not "0"/],
            [['--replicas', '8'], /--replicas has to be a number from 1 to 7, not "8"/],
            [['--port', 'x'], /--port has to be a number from 1 to 65535, not "x"/],
            [['--port', '65535', '--routers', '2', '--dir', join(root, 'a')], /--port 65535 leaves no room for 2 routers/],
            [['--shards'], /--shards needs a value/],
            [['--size', '3'], /unknown option "--size"/],
            [['here'], /unexpected argument "here"/],
        ]) {
            const { code, stdout, stderr } = await run(...args);
            assert.equal(code, 2, stderr);
            assert.equal(stdout, '');
            assert.match(stderr, message);
            isOneLine(stderr);
        }
    });

    test('OPS-1: --help tells the options', async () => {
        const { code, stdout } = await run('--help');
        assert.equal(code, 0);
        for (const flag of ['--shards', '--replicas', '--routers', '--port', '--dir', '--status'])
            assert.ok(stdout.includes(flag), flag);
    });

    test('OPS-1: a port that is in use is named', async () => {
        const port = await freeRange(1);
        const listener = createServer();
        await new Promise((done) => listener.listen(port, '127.0.0.1', done));
        const { code, stderr } = await run('--port', String(port), '--dir', join(root, 'b'));
        await new Promise((done) => listener.close(done));
        assert.equal(code, 48);
        assert.match(stderr, new RegExp(`port ${port}, which router0 needs, is in use`));
        isOneLine(stderr);
    });

    test('OPS-1: directories that cannot be used are named', async () => {
        const file = join(root, 'file');
        writeFileSync(file, '');
        const ofFile = await run('--dir', file);
        assert.equal(ofFile.code, 100);
        isOneLine(ofFile.stderr);
        const lost = join(root, 'lost');
        mkdirSync(join(lost, 'config-0'), { recursive: true });
        const ofLost = await run('--dir', lost);
        assert.equal(ofLost.code, 100);
        assert.match(ofLost.stderr, /has the data of a cluster, but its "cluster.json" is missing/);
        writeFileSync(join(lost, 'cluster.json'), '{"version": 1}');
        const ofDamaged = await run('--dir', lost);
        assert.equal(ofDamaged.code, 100);
        assert.match(ofDamaged.stderr, /cluster.json" is damaged: "replicas" has to be a number from 1 to 7/);
    });

    test('OPS-1: --status of a directory without a cluster says so', async () => {
        const { code, stderr } = await run('--status', '--dir', join(root, 'none'));
        assert.equal(code, 3);
        assert.match(stderr, /no cluster runs in ".*none"/);
        isOneLine(stderr);
    });
});
