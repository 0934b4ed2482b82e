/*
 * Goal (invariant 1): what was acknowledged with j: true is not lost without a word when the
 * journal is damaged on disk. Method: a node is killed in the middle of writes; each test damages a
 * copy of its files. Damage in what was flushed is refused, with a message that says where and what
 * to do; what lies beyond the last flush, or before the last checkpoint, is no damage.
 *
 * JOURNAL_DAMAGES: how many random bytes are damaged (30). TEST_SEED: repeat a run.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { random, seedOfRun } from '../lib/expect.mjs';
import { makeTempDir, removeTempDir, runToEnd, Server } from '../lib/server.mjs';

const DAMAGES = Number(process.env.JOURNAL_DAMAGES ?? 30);
const RECORD_ALIGN = 128;
const seed = seedOfRun();
const rand = random(seed);
console.error(`journal damage: TEST_SEED=${seed}`);

let original; // data directory of the killed node
let copies = [];
let acknowledged; // number of documents, {_id: 0} and up
let mark; // {file, offset}: how far the journal was on disk
let checkpoint; // where replay begins

const fileName = (number) => `WiredTigerLog.${String(number).padStart(10, '0')}`;
const journalFile = (dbpath, number) => join(dbpath, 'journal', fileName(number));

before(async () => {
    const server = new Server({ args: ['--syncdelay', '0', '--wiredTigerCacheSizeGB', '0.25'] });
    await server.start();
    const client = await server.client({ retryWrites: false });
    const docs = client.db('damage').collection('c', { writeConcern: { w: 1, j: true } });
    let next = 0;
    const insert = () => docs.insertOne({ _id: next++, pad: randomBytes(60_000) });
    for (let i = 0; i < 20; i++) await insert();
    await client.db('admin').command({ fsync: 1 });
    // Enough for three files; by several at once, so that flushes are shared.
    const writer = async () => {
        while (next < 1200) await insert();
    };
    await Promise.all(Array.from({ length: 8 }, writer));
    acknowledged = next;
    await server.kill();
    original = server.dbpath;
    const bytes = fs.readFileSync(join(original, 'journal.mark'));
    mark = { file: bytes.readUInt32LE(4), offset: Number(bytes.readBigUInt64LE(8)) };
    const turtle = fs.readFileSync(join(original, 'WiredTiger.turtle'), 'latin1');
    const [, file, offset] = /checkpoint_lsn=\((\d+),(\d+)\)/.exec(turtle);
    checkpoint = { file: Number(file), offset: Number(offset) };
    assert.ok(mark.file >= 3);
    assert.equal(checkpoint.file, 1);
});

after(() => copies.forEach(removeTempDir));

/* A fresh copy, damaged by `damage(dbpath)`. */
function damaged(damage = () => {}) {
    copies.forEach(removeTempDir);
    copies = [makeTempDir()];
    const dbpath = join(copies[0], 'db');
    fs.cpSync(original, dbpath, { recursive: true });
    damage(dbpath);
    return dbpath;
}

function changeByte(path, offset) {
    const fd = fs.openSync(path, 'r+');
    const byte = Buffer.alloc(1);
    fs.readSync(fd, byte, 0, 1, offset);
    byte[0] ^= 1 << rand.below(8);
    fs.writeSync(fd, byte, 0, 1, offset);
    fs.closeSync(fd);
}

async function refusesStart(dbpath, text) {
    const { code, stdout, stderr } = await runToEnd(['serve', '--dbpath', dbpath, '--port', '0']);
    assert.ok(code > 0);
    assert.match(stdout + stderr, text);
    assert.match(stdout + stderr, /startOverDamagedJournal=true/);
}

/* Starts a node there; `use(docs, server)` looks at it. */
async function starts(dbpath, use, args = []) {
    const server = new Server({ dbpath, args });
    await server.start();
    try {
        const client = await server.client();
        await use(client.db('damage').collection('c'), server);
    } finally {
        await server.stop();
    }
}

const hasAll = (dbpath, more = () => {}) =>
    starts(dbpath, async (docs, server) => {
        assert.equal(await docs.countDocuments({}), acknowledged);
        more(server);
    });

const lineOf = (server, text) => server.log.find(({ msg }) => text.test(msg));

test('a journal that ends where the node was killed is replayed whole', async () => {
    await hasAll(damaged());
});

test('one damaged byte anywhere in what was flushed is refused', async () => {
    const dbpath = damaged();
    for (let i = 0; i < DAMAGES; i++) {
        const file = checkpoint.file + rand.below(mark.file - checkpoint.file + 1);
        const from = file === checkpoint.file ? checkpoint.offset : 0;
        const size = fs.statSync(journalFile(dbpath, file)).size;
        const until = file === mark.file ? mark.offset : size;
        const offset = from + rand.below(until - from);
        const bytes = fs.readFileSync(journalFile(dbpath, file));
        changeByte(journalFile(dbpath, file), offset);
        // A file whose header is damaged has nothing to be read at all.
        await refusesStart(dbpath, /WiredTigerLog\.\d+\\?" is (damaged|missing) at offset \d+/);
        fs.writeFileSync(journalFile(dbpath, file), bytes);
    }
    await hasAll(dbpath); // refusing changed nothing
});

test('a missing file is refused, be it in the middle or the last', async () => {
    for (const number of [2, mark.file]) {
        const dbpath = damaged((path) => fs.rmSync(journalFile(path, number)));
        await refusesStart(dbpath, new RegExp(`${fileName(number)}|is missing`));
    }
});

test('an empty journal is refused', async () => {
    const dbpath = damaged((path) => {
        for (const name of fs.readdirSync(join(path, 'journal')))
            fs.rmSync(join(path, 'journal', name));
    });
    await refusesStart(dbpath, /is missing/);
});

test('a file that was cut within what was flushed is refused', async () => {
    const offset = Math.floor(mark.offset / 2);
    await refusesStart(
        damaged((path) => fs.truncateSync(journalFile(path, mark.file), offset)),
        /although all was on disk up to file \d+ offset \d+/,
    );
});

test('what lies beyond the last flush does not matter', async () => {
    const garbage = damaged((path) => {
        const fd = fs.openSync(journalFile(path, mark.file), 'r+');
        fs.writeSync(fd, randomBytes(5000), 0, 5000, mark.offset);
        fs.closeSync(fd);
    });
    await hasAll(garbage);

    // A later thread's record may be on disk while an earlier one's is there in part.
    const gap = damaged((path) => {
        const fd = fs.openSync(journalFile(path, mark.file), 'r+');
        const record = Buffer.alloc(RECORD_ALIGN);
        fs.readSync(fd, record, 0, RECORD_ALIGN, RECORD_ALIGN);
        fs.writeSync(fd, randomBytes(500), 0, 500, mark.offset);
        fs.writeSync(fd, record, 0, RECORD_ALIGN, mark.offset + 4096);
        fs.closeSync(fd);
    });
    await hasAll(gap, (server) =>
        assert.equal(lineOf(server, /^The journal ends before records/).attr.records, 1),
    );
});

test('damage before the last checkpoint does not matter', async () => {
    await hasAll(damaged((path) => changeByte(journalFile(path, 1), checkpoint.offset - 1000)));
});

test('without the mark a readable record behind the damage tells', async () => {
    const forget = (path) => fs.rmSync(join(path, 'journal.mark'));
    await hasAll(damaged(forget));
    const dbpath = damaged((path) => {
        forget(path);
        changeByte(journalFile(path, 2), 1_000_000);
    });
    await refusesStart(dbpath, /0000000002\\?" is damaged/);
});

test('told to, a node starts with what was before the damage, and keeps the rest aside', async () => {
    for (const damage of [
        (path) => changeByte(journalFile(path, 2), 10_000_000),
        (path) => fs.rmSync(journalFile(path, 2)),
    ]) {
        const dbpath = damaged(damage);
        const accept = ['--setParameter', 'startOverDamagedJournal=true'];
        let left;
        await starts(
            dbpath,
            async (docs, server) => {
                const ids = (await docs.find({}, { projection: { _id: 1 } }).toArray())
                    .map(({ _id }) => _id)
                    .sort((a, b) => a - b);
                left = ids.length;
                assert.ok(left >= 20 && left < acknowledged);
                // Writers overtake each other by a few documents.
                assert.ok(ids[left - 1] < left + 8);
                const { attr } = lineOf(server, /^The journal is damaged; starting/);
                assert.ok(attr.recordsLost > 0);
                assert.ok(fs.readdirSync(join(dbpath, attr.keptIn)).length > 0);
                await docs.insertOne({ _id: 'after' }, { writeConcern: { j: true } });
                await server.kill();
                await server.start();
            },
            accept,
        );
        // From now on it is a journal as any other.
        await starts(dbpath, async (docs) =>
            assert.equal(await docs.countDocuments({}), left + 1),
        );
    }
});

test('a crash between cutting the journal and forgetting the mark loses nothing of what is kept', async () => {
    const dbpath = damaged((path) => changeByte(journalFile(path, 2), 10_000_000));
    const size = fs.statSync(journalFile(dbpath, 2)).size;
    const accept = ['--setParameter', 'startOverDamagedJournal=true'];
    const crash = JSON.stringify({ mode: 'alwaysOn', data: { crash: true } });
    const { code } = await runToEnd([
        ...['serve', '--dbpath', dbpath, '--port', '0', ...accept],
        ...['--setParameter', 'enableTestCommands=1', '--setParameter', `failpoint.journal.cut=${crash}`],
    ]);
    assert.equal(code, 137);
    await refusesStart(dbpath, /although all was on disk/);
    await starts(dbpath, async (docs) => assert.ok((await docs.countDocuments({})) >= 20), accept);
    assert.equal(fs.statSync(join(dbpath, 'journal.damaged', fileName(2))).size, size);
});
