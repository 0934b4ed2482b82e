/* The log: JSON lines, slow operations, rotation, verbosity. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { hasShape } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { makeTempDir, removeTempDir, runToEnd, startServer, waitFor } from '../lib/server.mjs';

const node = useServer({ args: ['--slowms', '0'] });

test('OPS-3: every line is one JSON object with the members tools read', async () => {
    await node.admin.command({ ping: 1 });
    for (const line of node.server.log) {
        hasShape(line, {
            t: { $date: 'string' },
            s: 'string',
            c: 'string',
            id: 'number',
            ctx: 'string',
            msg: 'string',
        });
        assert.match(line.s, /^(F|E|W|I|D[1-5])$/);
        assert.ok(!Number.isNaN(Date.parse(line.t.$date)));
    }
});

test('MET-1: a slow operation leaves one line that tells what it did', async () => {
    const c = await node.collection([
        { _id: 1, a: 1 },
        { _id: 2, a: 2 },
    ]);
    await c.find({ a: { $gt: 0 } }, { comment: 'find me "quoted" \u0007' }).toArray();
    const line = await node.server.waitLog(
        ({ msg, attr }) => msg === 'Slow query' && attr.command?.find === c.collectionName,
    );
    assert.equal(line.id, 51803);
    assert.equal(line.c, 'COMMAND');
    hasShape(line.attr, {
        type: 'string',
        ns: 'string',
        command: 'object',
        planSummary: 'string',
        keysExamined: 'number',
        docsExamined: 'number',
        nreturned: 'number',
        reslen: 'number',
        protocol: 'string',
        remote: 'string',
        durationMillis: 'number',
    });
    assert.equal(line.attr.ns, `test.${c.collectionName}`);
    assert.equal(line.attr.planSummary, 'COLLSCAN');
    assert.deepEqual([line.attr.docsExamined, line.attr.nreturned], [2, 2]);
    assert.equal(line.attr.command.comment, 'find me "quoted" \u0007');
});

test('MET-1: failed operations are logged with their code', async () => {
    await node.db.command({ find: 'x', filter: { $nonsense: 1 } }).catch(() => {});
    const line = await node.server.waitLog(
        ({ msg, attr }) => msg === 'Slow query' && attr.command?.filter?.$nonsense === 1,
    );
    assert.equal(line.attr.errCode, 2);
    assert.equal(line.attr.errName, 'BadValue');
});

test('huge commands are cut in the log, and the line stays JSON', async () => {
    const c = await node.collection();
    await c.insertOne({ _id: 1, s: 'x'.repeat(100_000) });
    const ns = `test.${c.collectionName}`;
    const line = await node.server.waitLog(
        ({ msg, malformed, attr }) =>
            malformed?.includes(ns) ||
            (msg === 'Slow query' && attr.ns === ns && attr.type === 'insert'),
    );
    assert.equal(line.malformed, undefined, 'line is JSON');
    assert.ok(JSON.stringify(line).length < 50_000);
    assert.equal(line.attr.ninserted, 1);
});

test('with a verbosity of 1 every command is logged', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const { slowms } = await node.db.command({ profile: -1 });
    const seen = () => node.server.log.some(({ msg, attr }) => msg === 'Slow query' && attr.command?.comment === 'look at level 1');
    try {
        await node.db.command({ profile: 0, slowms: 100_000 });
        await node.admin.command({ setParameter: 1, logComponentVerbosity: { command: { verbosity: 1 } } });
        await c.find({}, { comment: 'look at level 1' }).toArray();
        await waitFor(seen, { what: 'the line' });
    } finally {
        await node.admin.command({ setParameter: 1, logComponentVerbosity: { command: { verbosity: -1 } } });
        await node.db.command({ profile: 0, slowms });
    }
});

test('a command that is too long for the log is cut, and the line says so', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const set = (maxLogSizeKB) => node.admin.command({ setParameter: 1, maxLogSizeKB });
    const { slowms } = await node.db.command({ profile: -1 });
    const filter = { a: { $in: Array.from({ length: 1500 }, (_, i) => i) } };
    const lineOf = async (comment) => {
        await c.find(filter, { comment }).toArray();
        return node.server.waitLog(({ msg, attr }) => msg === 'Slow query' && JSON.stringify(attr.command).includes(comment));
    };
    try {
        await node.db.command({ profile: 0, slowms: -1 });
        await set(100);
        const whole = await lineOf('long and whole');
        assert.equal(whole.attr.command.filter.a.$in.length, 1500);
        assert.equal(whole.truncated, undefined);
        await set(3);
        await c.find(filter).toArray();
        const cut = await node.server.waitLog(({ msg, attr, truncated }) => msg === 'Slow query' && truncated !== undefined && attr.ns === `test.${c.collectionName}`);
        assert.equal(cut.truncated.command.type, 'object');
        assert.ok(cut.truncated.command.size > 10_000 && cut.attr.command.length < 3 * 1024);
        assert.equal((await node.admin.command({ getParameter: 1, maxLogSizeKB: 1 })).maxLogSizeKB, 3);
    } finally {
        await set(10);
        await node.db.command({ profile: 0, slowms });
    }
});

test('connections and client metadata are logged', async () => {
    const client = await node.server.client({ appName: 'the app' });
    await client.db('admin').command({ ping: 1 });
    await node.server.waitLog(({ msg }) => msg === 'Connection accepted');
    const line = await node.server.waitLog(
        ({ msg, attr }) => msg === 'client metadata' && attr.doc?.application?.name === 'the app',
    );
    assert.equal(line.attr.doc.driver.name, 'nodejs');
    await client.close();
    await node.server.waitLog(({ msg }) => msg === 'Connection ended');
});

test('changes of the catalog are logged with what they are about', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    const { namespace, collectionName } = c;
    const told = (id, attr) =>
        node.server.log.some((line) => line.id === id && Object.entries(attr).every(([k, v]) => line.attr[k] === v));
    await c.createIndex({ a: 1 });
    await node.db.command({ collMod: collectionName, validationLevel: 'moderate' });
    await c.dropIndex('a_1');
    const to = `${collectionName}_renamed`;
    await c.rename(to);
    await node.db.collection(to).drop();
    const other = node.client.db(`${node.db.databaseName}_gone`);
    await other.createCollection('c');
    await other.dropDatabase();
    await node.db.collection('never').drop();
    await waitFor(() => told(20336, { db: other.databaseName }));
    assert.ok(told(20320, { namespace }));
    assert.ok(told(5324200, { namespace }));
    assert.ok(told(51806, { namespace, index: 'a_1' }));
    assert.ok(told(20400, { from: namespace, to: `${node.db.databaseName}.${to}` }));
    assert.ok(told(518070, { namespace: `${node.db.databaseName}.${to}` }));
    assert.ok(!told(518070, { namespace: `${node.db.databaseName}.never` }), 'nothing was dropped');
});

test('logLevel and logComponentVerbosity change what is logged', async () => {
    await node.admin.command({ setParameter: 1, logLevel: 2 });
    assert.equal((await node.admin.command({ getParameter: 1, logLevel: 1 })).logLevel, 2);
    await node.admin.command({ setParameter: 1, logLevel: 0 });
    await node.admin.command({
        setParameter: 1,
        logComponentVerbosity: { command: { verbosity: 1 } },
    });
    const { logComponentVerbosity } = await node.admin.command({
        getParameter: 1,
        logComponentVerbosity: 1,
    });
    assert.equal(logComponentVerbosity.command.verbosity, 1);
    await node.admin.command({
        setParameter: 1,
        logComponentVerbosity: { command: { verbosity: -1 }, replication: { verbosity: 0, election: 2 } },
    });
});

for (const mode of ['rename', 'reopen']) {
    test(`SIGUSR1 and logRotate with ${mode} start a new file without losing lines`, async () => {
        const directory = makeTempDir();
        const logPath = join(directory, 'node.log');
        const args = ['--logpath', logPath, '--logRotate', mode, '--slowms', '0'];
        if (mode === 'reopen') args.push('--logappend');
        const files = () =>
            readdirSync(directory)
                .filter((name) => name.startsWith('node.log'))
                .sort();
        const lines = (name) =>
            readFileSync(join(directory, name), 'utf8')
                .trim()
                .split('\n')
                .filter(Boolean)
                .map((l) => JSON.parse(l));
        const server = await forked(args, directory);
        try {
            if (mode === 'reopen') {
                const { renameSync } = await import('node:fs');
                renameSync(logPath, `${logPath}.old`);
            }
            process.kill(server.pid, 'SIGUSR1');
            await waitFor(() => files().length === 2 && existsSync(logPath), {
                what: 'second log file',
            });
            process.kill(server.pid, 'SIGTERM');
            await waitFor(() => readFileSync(logPath, 'utf8').includes('"exitCode":0'), {
                what: 'last line',
            });
            const [newest, older] = files();
            assert.ok(lines(older).some(({ msg }) => msg === 'Waiting for connections'));
            assert.ok(!lines(newest).some(({ msg }) => msg === 'Waiting for connections'));
        } finally {
            removeTempDir(directory);
        }
    });
}

/* A node in the background, which logs to a file. */
async function forked(args, directory) {
    const { code, stdout } = await runToEnd([
        'serve',
        '--dbpath',
        directory,
        '--port',
        '0',
        '--unixSocketPrefix',
        directory,
        '--fork',
        ...args,
    ]);
    assert.equal(code, 0, stdout);
    return { pid: Number(/forked process: (\d+)/.exec(stdout)[1]) };
}

test('a restart keeps the old log aside, with logappend continues it', async () => {
    const server = await startServer();
    await server.remove();
    const directory = makeTempDir();
    try {
        const logPath = join(directory, 'n.log');
        const once = async (...more) => {
            const { pid } = await forked(['--logpath', logPath, ...more], directory);
            process.kill(pid, 'SIGTERM');
            await waitFor(
                () => readFileSync(logPath, 'utf8').trimEnd().endsWith('"exitCode":0}}'),
                { what: 'end' },
            );
            await waitFor(() => {
                try {
                    process.kill(pid, 0);
                    return false;
                } catch {
                    return true;
                }
            });
        };
        const logs = () => readdirSync(directory).filter((name) => name.startsWith('n.log')).length;
        await once();
        assert.equal(logs(), 1);
        await once('--logappend');
        assert.equal(logs(), 1);
        await once();
        assert.equal(logs(), 2);
    } finally {
        removeTempDir(directory);
    }
});

test('MET-1: write conflicts are logged when traceWriteConflictExceptions is on', async () => {
    const c = await node.collection([]);
    const conflict = () => node.admin.command({ configureFailPoint: 'WTWriteConflictException', mode: { times: 1 } });
    const isOfConflict = ({ id, attr }) => id === 4640401 && attr.namespace.endsWith(c.collectionName);
    await conflict();
    await c.insertOne({});
    assert.ok(!node.server.log.some(isOfConflict));
    await node.admin.command({ setParameter: 1, traceWriteConflictExceptions: true });
    await conflict();
    await c.insertOne({});
    await node.server.waitLog(isOfConflict);
    await node.admin.command({ setParameter: 1, traceWriteConflictExceptions: false });
    assert.equal(await c.countDocuments({}), 2);
});
