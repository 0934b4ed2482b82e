/* Start-up errors and exit codes, options, configuration file, the name mongod. */
import assert from 'node:assert/strict';
import {
    chmodSync,
    copyFileSync,
    existsSync,
    mkdirSync,
    readFileSync,
    statSync,
    symlinkSync,
    unlinkSync,
    writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import {
    SHERD_BIN,
    Server,
    makeTempDir,
    removeTempDir,
    runToEnd,
    startServer,
    waitFor,
} from '../lib/server.mjs';

const NOBODY = 65534;
const root = makeTempDir();
chmodSync(root, 0o755); // nobody looks into it, too
after(() => removeTempDir(root));
let made = 0;
function newDir() {
    const directory = join(root, `d${++made}`);
    mkdirSync(directory);
    return directory;
}
const serve = (...args) => runToEnd(['serve', '--unixSocketPrefix', root, ...args]);

test('files are for their owner alone, unless parameters say otherwise', async () => {
    const before = process.umask(0o002);
    try {
        for (const [args, mode] of [
            [[], 0o600],
            [['--setParameter', 'honorSystemUmask=true'], 0o664],
            [['--setParameter', 'processUmask=027'], 0o640],
        ]) {
            const server = await startServer({ args });
            for (const file of ['WiredTiger', 'WiredTiger.wt', 'journal/WiredTigerLog.0000000001'])
                assert.equal(statSync(join(server.dbpath, file)).mode & 0o777, mode, `${args} ${file}`);
            await server.remove();
        }
        const { code, stderr } = await serve('--dbpath', newDir(), '--setParameter', 'honorSystemUmask=true', '--setParameter', 'processUmask=022');
        assert.equal(code, 2);
        assert.match(stderr, /processUmask/);
        assert.equal((await serve('--dbpath', newDir(), '--setParameter', 'processUmask=89')).code, 2);
    } finally {
        process.umask(before);
    }
});

test('OPS-3: a second server on the same directory ends with 100 and says why', async () => {
    const server = await startServer();
    try {
        const second = await serve('--dbpath', server.dbpath, '--port', '0');
        assert.equal(second.code, 100);
        assert.match(second.stdout + second.stderr, /DBPathInUse|in use by another/i);
        assert.equal((await (await server.client()).db('admin').command({ ping: 1 })).ok, 1);
    } finally {
        await server.remove();
    }
});

test('OPS-3: a missing data directory ends with 100 and is named', async () => {
    const path = join(root, 'not', 'there');
    const { code, stdout, stderr } = await serve('--dbpath', path, '--port', '0');
    assert.equal(code, 100);
    assert.ok((stdout + stderr).includes(path));
});

test('OPS-3: a data directory without permission ends with 100 and is named', async () => {
    const directory = newDir();
    const isRoot = process.getuid() === 0;
    chmodSync(directory, isRoot ? 0o700 : 0o500);
    // Root may write everywhere, so it starts the node as nobody.
    const user = isRoot ? { uid: NOBODY, gid: NOBODY } : {};
    const { code, stdout, stderr } = await runToEnd(
        ['serve', '--dbpath', directory, '--port', '0', '--nounixsocket'],
        user,
    );
    assert.equal(code, 100, stderr);
    assert.ok((stdout + stderr).includes(directory));
});

test('OPS-3: a file in place of the data directory ends with 100', async () => {
    const path = join(root, 'file');
    writeFileSync(path, '');
    assert.equal((await serve('--dbpath', path, '--port', '0')).code, 100);
});

test('OPS-3: a port in use ends with 48 and names the address', async () => {
    const listener = createServer().listen(0, '127.0.0.1');
    await new Promise((done) => listener.once('listening', done));
    try {
        const { code, stdout, stderr } = await serve(
            '--dbpath',
            newDir(),
            '--port',
            String(listener.address().port),
        );
        assert.equal(code, 48);
        assert.match(stdout + stderr, /in use|SocketException|could not listen|bind/i);
    } finally {
        listener.close();
    }
});

for (const args of [
    ['--nonsense'],
    ['--port', 'x'],
    ['--port', '70000'],
    ['--port'],
    ['stray'],
    ['--setParameter', 'nonsense=1'],
    ['--setParameter', 'syncdelay'],
    ['--setParameter', 'journalCommitInterval=9999'],
    ['--shardsvr'],
    ['--tlsMode', 'requireTLS'],
    ['--auth'],
    ['--storageEngine', 'mmapv1'],
    ['--networkMessageCompressors', 'nonsense'],
    ['--port', '1', '--port', '2'],
]) {
    test(`OPS-3: ${args.join(' ')} ends with 2 and is named`, async () => {
        const { code, stderr } = await serve('--dbpath', newDir(), ...args);
        assert.equal(code, 2);
        assert.ok(stderr.length > 0);
        const named = args[0] === '--setParameter' ? args[1].split('=')[0] : args[0];
        assert.ok(stderr.includes(named.replace(/^--/, '')) || stderr.includes(args[1]), stderr);
    });
}

const CONFIG = (directory, more = '') => `
storage:
  dbPath: ${directory}
net:
  port: 0
  bindIp: 127.0.0.1
  unixDomainSocket:
    pathPrefix: ${root}
${more}`;

function configFile(text) {
    const path = join(root, `config${++made}.yaml`);
    writeFileSync(path, text);
    return path;
}

const BAD_CONFIGS = [
    ['that is no YAML', 'storage: [unclosed'],
    ['with an unknown option', 'storage:\n  nonsense: 1\n'],
    ['with a wrong type', 'net:\n  port: x\n'],
    ['with a list for a value', 'net:\n  port: [1]\n'],
    ['with an option twice', 'net:\n  port: 1\n  port: 2\n'],
];
for (const [what, text] of BAD_CONFIGS) {
    test(`OPS-3: a configuration file ${what} ends with 2`, async () => {
        const { code, stderr } = await serve('--config', configFile(text));
        assert.equal(code, 2, stderr);
    });
}

test('OPS-3: a missing configuration file ends with 2', async () => {
    assert.equal((await serve('--config', join(root, 'missing.yaml'))).code, 2);
});

test('OPS-3: a filter of the configuration file decides what is profiled, until a database has its own', async () => {
    const directory = newDir();
    const logPath = join(directory, 'node.log');
    const config = (filter) => configFile(CONFIG(directory, `
systemLog:
  destination: file
  path: ${logPath}
operationProfiling:
  mode: slowOp
  filter: "${filter}"
`));
    const server = await spawnWithLog(['serve', '-f', config("{op: 'query', nreturned : {$gt: 1}}")], logPath);
    try {
        const client = await server.client();
        const db = client.db('t');
        assert.deepEqual((await db.command({ profile: -1 })).filter, { op: 'query', nreturned: { $gt: 1 } });
        await db.collection('c').insertMany([{ _id: 1 }, { _id: 2 }]);
        const asked = async () => {
            await db.collection('c').find({ _id: 1 }).toArray();
            await db.collection('c').find().toArray();
            return (await db.collection('system.profile').find({ ns: 't.c' }).toArray()).map(({ nreturned }) => nreturned);
        };
        assert.deepEqual(await asked(), [2]);
        await db.command({ profile: 1, filter: 'unset' });
        assert.deepEqual(await asked(), [2], 'nothing is that slow');
        await client.close();
    } finally {
        await server.end();
    }
    const { code, stderr } = await serve('--config', config('{$nothing: 1}'));
    assert.notEqual(code, 0);
    assert.match(stderr + readFileSync(logPath, 'utf8'), /operationProfiling.filter/);
});

test('OPS-3: a node follows its configuration file; the command line wins', async () => {
    const directory = newDir();
    const logPath = join(directory, 'node.log');
    const pidPath = join(directory, 'node.pid');
    const path = configFile(
        CONFIG(
            directory,
            `
systemLog:
  destination: file
  path: ${logPath}
  logAppend: true
processManagement:
  pidFilePath: ${pidPath}
operationProfiling:
  slowOpThresholdMs: 7
setParameter:
  enableTestCommands: 1
  cursorTimeoutMillis: 1234
`,
        ),
    );
    const server = await spawnWithLog(['serve', '-f', path, '--slowms', '9'], logPath);
    try {
        const client = await server.client();
        assert.equal(
            (await client.db('admin').command({ getParameter: 1, cursorTimeoutMillis: 1 }))
                .cursorTimeoutMillis,
            1234,
        );
        assert.equal((await client.db('t').command({ profile: -1 })).slowms, 9);
        assert.equal(Number(readFileSync(pidPath, 'utf8')), server.pid);
        const { parsed } = await client.db('admin').command({ getCmdLineOpts: 1 });
        assert.equal(parsed.systemLog.path, logPath);
        assert.equal(parsed.config, path);
        await client.close();
    } finally {
        await server.end();
    }
    assert.ok(!existsSync(pidPath), 'the pid file is gone after the stop');
});

/* A node that logs to a file: ready when the file says so. */
async function spawnWithLog(args, logPath) {
    const { spawn } = await import('node:child_process');
    const { once } = await import('node:events');
    const { MongoClient } = await import('mongodb');
    const child = spawn(SHERD_BIN, args, { stdio: 'ignore' });
    const ended = once(child, 'exit');
    const line = await waitFor(
        () =>
            existsSync(logPath) &&
            readFileSync(logPath, 'utf8')
                .split('\n')
                .filter(Boolean)
                .map((text) => JSON.parse(text))
                .find(({ msg }) => msg === 'Waiting for connections'),
        { what: 'ready node', timeoutMs: 20_000 },
    ).catch((error) => {
        child.kill('SIGKILL');
        throw error;
    });
    return {
        pid: child.pid,
        client: () =>
            new MongoClient(
                `mongodb://127.0.0.1:${line.attr.port}/?directConnection=true`,
            ).connect(),
        async end() {
            child.kill('SIGTERM');
            assert.deepEqual(await ended, [0, null]);
        },
    };
}

test('OPS-3: --help and --version answer with 0', async () => {
    for (const args of [['--help'], ['--version'], ['serve', '--help'], ['serve', '--version']]) {
        const { code, stdout } = await runToEnd(args);
        assert.equal(code, 0, args.join(' '));
        assert.ok(stdout.length > 10);
    }
    assert.equal((await runToEnd(['nonsense'])).code, 2);
});

test('OPS-2: called as mongod it takes the flags of mongod and shows its version', async () => {
    const mongod = join(root, 'mongod');
    symlinkSync(SHERD_BIN, mongod);
    const { code, stdout } = await runToEnd(['--version'], { bin: mongod });
    assert.equal(code, 0);
    assert.match(stdout, /^db version v7\.0\.\d+\nBuild Info: \{/);
    JSON.parse(stdout.slice(stdout.indexOf('{')));
    const server = new Server({ bin: mongod, leading: [] });
    await server.start();
    try {
        const status = await (await server.client()).db('admin').command({ serverStatus: 1 });
        assert.equal(status.process, 'mongod');
    } finally {
        await server.remove();
    }
});

test('OPS-2: called as mongos it is a router, which needs a config server', async () => {
    const mongos = join(root, 'mongos');
    symlinkSync(SHERD_BIN, mongos);
    const version = await runToEnd(['--version'], { bin: mongos });
    assert.match(version.stdout, /^mongos version v7\.0\.\d+\nBuild Info: \{/);
    for (const [args, message] of [
        [[], /a router needs --configdb/],
        [['--configdb', 'x'], /"x" is not the address of a replica set/],
        [['--configdb', 'a/b:1', '--dbpath', '/x'], /unrecognised option '--dbpath'/],
    ]) {
        const { code, stderr } = await runToEnd(args, { bin: mongos });
        assert.equal(code, 2, stderr);
        assert.match(stderr, message);
    }
});

test('OPS-3: flags of mongod that name a parameter, a limit, or what there is not', async () => {
    const args = ['--notablescan', '--noscripting', '--upgrade', '--noMoveParanoia', '--configExpand', 'none', '--oplogMinRetentionHours', '1.5'];
    const set = await startReplicaSet({ members: 1, args });
    try {
        const [member] = set.members;
        const admin = (await set.client()).db('admin');
        assert.equal((await admin.command({ getParameter: 1, notablescan: 1 })).notablescan, true);
        const { parsed } = await admin.command({ getCmdLineOpts: 1 });
        assert.deepEqual([parsed.storage.oplogMinRetentionHours, parsed.security.javascriptEnabled], [1.5, false]);
        await admin.command({ replSetResizeOplog: 1, size: 990 });
        const { attr } = await member.waitLog(({ msg }) => msg === 'replSetResizeOplog success');
        assert.equal(attr.minRetentionHours, 1.5);
    } finally {
        await set.remove();
    }
    for (const flag of ['--redactClientLogData', '--outputConfig', '--restore', '--queryableBackupMode']) {
        const { code, stderr, stdout } = await serve('--dbpath', newDir(), flag);
        assert.equal(code, 2);
        assert.match(stderr + stdout, new RegExp(`option '${flag}' is refused`));
    }
});

test('OPS-3: --fork returns when clients are served and leaves a running node', async () => {
    const directory = newDir();
    const logPath = join(directory, 'node.log');
    const { code, stdout } = await serve(
        '--dbpath',
        directory,
        '--port',
        '0',
        '--fork',
        '--logpath',
        logPath,
    );
    assert.equal(code, 0, stdout);
    const pid = Number(/forked process: (\d+)/.exec(stdout)[1]);
    assert.match(stdout, /child process started successfully/);
    process.kill(pid, 'SIGTERM');
    await waitFor(
        () => {
            try {
                process.kill(pid, 0);
                return false;
            } catch {
                return true;
            }
        },
        { what: 'end of the forked node' },
    );
    assert.match(readFileSync(logPath, 'utf8'), /"exitCode":0/);
    assert.equal((await serve('--dbpath', directory, '--port', '0', '--fork')).code, 2);
});

test('NOD-2: SIGINT is a clean stop as well', async () => {
    const server = await startServer();
    try {
        server.signal('SIGINT');
        assert.deepEqual(await server.waitEnd(), { code: 0, signal: null });
    } finally {
        await server.remove();
    }
});

test('CAT-6: a collection without its table is fatal with a clear message', async () => {
    const server = await startServer();
    try {
        const client = await server.client();
        await client.db('t').collection('c').insertOne({ _id: 1 });
        const [entry] = await client
            .db('admin')
            .aggregate([{ $listCatalog: {} }, { $match: { ns: 't.c' } }])
            .toArray();
        await server.stop();
        unlinkSync(join(server.dbpath, `${entry.ident}.wt`));
        const { code, stdout, stderr } = await runToEnd(
            ['serve', '--dbpath', server.dbpath, '--port', '0', '--nounixsocket'],
            { timeoutMs: 5000 },
        );
        assert.ok(code === 100 || code === 14, `ended with ${code}`);
        assert.match(stdout + stderr, /t\.c|collection-/);
    } finally {
        await server.remove();
    }
});

test('--timeZoneInfo names the directory that time zones are read from', async () => {
    const zones = newDir();
    mkdirSync(join(zones, 'Here'));
    copyFileSync('/usr/share/zoneinfo/Asia/Tokyo', join(zones, 'Here', 'Too'));
    const server = await startServer({ args: ['--timeZoneInfo', zones] });
    try {
        const db = (await server.client()).db('test');
        const hour = async (timezone) => {
            const date = new Date('2025-01-01T12:00:00Z');
            const pipeline = [{ $documents: [{}] }, { $set: { h: { $hour: { date, timezone } } } }];
            return (await db.aggregate(pipeline).toArray())[0].h;
        };
        assert.equal(await hour('Here/Too'), 21);
        assert.equal(await hour('+01:00'), 13);
        await assert.rejects(hour('Asia/Tokyo'), { code: 40485 });
        removeTempDir(zones);
        await assert.rejects(hour('Here/Three'), { code: 96, message: /tzdata/ });
        assert.equal(await hour('Here/Too'), 21, 'what was read stays');
    } finally {
        await server.remove();
    }
    const { code, stderr, stdout } = await serve('--timeZoneInfo', zones, '--dbpath', newDir());
    assert.notEqual(code, 0);
    assert.ok((stdout + stderr).includes('--timeZoneInfo'));
});

test('a fresh node has admin, config and local, its version, and a record of its start', async () => {
    const server = await startServer();
    try {
        let client = await server.client();
        const { databases } = await client.db('admin').command({ listDatabases: 1, nameOnly: true });
        assert.deepEqual(databases.map(({ name }) => name).sort(), ['admin', 'config', 'local']);
        const version = { _id: 'featureCompatibilityVersion', version: '7.0' };
        const documents = () => client.db('admin').collection('system.version').find().toArray();
        assert.deepEqual(await documents(), [version]);

        const log = () => client.db('local').collection('startup_log');
        const [start] = await log().find().toArray();
        assert.equal(start._id, `${start.hostname}-${start.startTime.getTime()}`);
        assert.ok(Math.abs(Date.now() - start.startTime) < 60_000);
        assert.match(start.startTimeLocal, /^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d\.\d{3}$/);
        assert.equal(Number(start.pid), server.pid);
        assert.equal(start.cmdLine.storage.dbPath, server.dbpath);
        assert.equal(start.buildinfo.version, '7.0.14');
        const [{ options }] = await client.db('local').listCollections({ name: 'startup_log' }).toArray();
        assert.deepEqual(options, { capped: true, size: 10 * 1024 * 1024 });

        await client.db('local').dropDatabase();
        await server.restart();
        client = await server.client();
        assert.equal(await log().countDocuments(), 1);
        await server.restart();
        client = await server.client();
        assert.equal(await log().countDocuments(), 2);
        assert.deepEqual(await documents(), [version]);
    } finally {
        await server.remove();
    }
});

test('the document of the version can be neither removed nor spoiled', async () => {
    const server = await startServer();
    try {
        const admin = (await server.client()).db('admin');
        const c = admin.collection('system.version');
        const _id = 'featureCompatibilityVersion';
        await assert.rejects(c.deleteOne({ _id }), { code: 40670 });
        await assert.rejects(c.deleteMany({}), { code: 40670 });
        await assert.rejects(c.findOneAndDelete({}), { code: 40670 });
        await assert.rejects(c.updateOne({ _id }, { $set: { version: '4.4' } }), { code: 4926900 });
        await assert.rejects(c.replaceOne({ _id }, {}), { code: 4926900 });
        await assert.rejects(admin.command({ drop: 'system.version' }), { code: 20 });
        await assert.rejects(admin.command({ renameCollection: 'admin.system.version', to: 'admin.system.users' }), { code: 20 });
        await assert.rejects(admin.command({ dropDatabase: 1 }), { code: 20 });
        await c.insertOne({ _id: 'authSchema', currentVersion: 5 });
        await c.deleteOne({ _id: 'authSchema' });
        assert.deepEqual(await c.find().toArray(), [{ _id, version: '7.0' }]);
    } finally {
        await server.remove();
    }
});
