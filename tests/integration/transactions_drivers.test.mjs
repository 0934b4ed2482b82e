/* OPS-2, SES-4, REP-5: the transaction helpers and change streams of pymongo, libmongoc and mongoose. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import mongoose from 'mongoose';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { makeTempDir, runToEnd } from '../lib/server.mjs';

const SMOKE = join(dirname(fileURLToPath(import.meta.url)), '..', 'smoke');
const PYTHON = '/usr/bin/python3'; // Debian's, which has python3-pymongo
let set;

before(async () => {
    set = await startReplicaSet({ members: 3 });
});
after(() => set?.remove());

test('OPS-2: with_transaction and watch of pymongo', async () => {
    const { code, stdout, stderr } = await runToEnd([join(SMOKE, 'pymongo_txn.py'), set.uri], { bin: PYTHON });
    assert.equal(code, 0, stdout + stderr);
});

test('OPS-2: with_transaction of libmongoc', async () => {
    const directory = makeTempDir();
    try {
        const pkg = spawnSync('pkg-config', ['--cflags', '--libs', 'libmongoc-1.0'], { encoding: 'utf8' });
        assert.equal(pkg.status, 0, pkg.stderr);
        const program = join(directory, 'mongoc_txn');
        const flags = ['-Wall', '-Wextra', '-Werror', ...pkg.stdout.trim().split(/\s+/)];
        const cc = await runToEnd([join(SMOKE, 'mongoc_txn.c'), '-o', program, ...flags], { bin: 'cc' });
        assert.equal(cc.code, 0, cc.stderr);
        const { code, stdout, stderr } = await runToEnd([set.uri], { bin: program });
        assert.equal(code, 0, stdout + stderr);
    } finally {
        rmSync(directory, { recursive: true });
    }
});

test('OPS-2: transactions and watch of mongoose', async () => {
    const connection = await mongoose.createConnection(set.uri, { dbName: 'goose_txn' }).asPromise();
    try {
        const Account = connection.model('Account', new mongoose.Schema({ name: String, n: Number }));
        await Account.init();
        const [a, b] = await Account.create([{ name: 'a', n: 10 }, { name: 'b', n: 0 }]);
        const stream = Account.watch([{ $match: { operationType: 'update' } }]);
        const changes = [];
        const both = new Promise((resolve, reject) => {
            stream.on('change', (change) => changes.push(change) === 2 && resolve());
            stream.on('error', reject);
        });
        await new Promise((resolve) => stream.once('ready', resolve));
        await connection.transaction(async (session) => {
            a.n -= 1;
            b.n += 1;
            await a.save({ session });
            await b.save({ session });
        });
        await both;
        await stream.close();
        assert.deepEqual(changes.map(({ documentKey }) => String(documentKey._id)), [a.id, b.id]);
        assert.equal(String(changes[0].clusterTime), String(changes[1].clusterTime));
        await assert.rejects(
            connection.transaction(async (session) => {
                await Account.updateOne({ name: 'b' }, { n: 100 }, { session });
                throw new Error('changed its mind');
            }),
            /changed its mind/,
        );
        assert.deepEqual((await Account.find().sort({ name: 1 })).map(({ n }) => n), [9, 1]);
    } finally {
        await connection.close();
    }
});
