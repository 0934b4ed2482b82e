/*
 * Goal (TXN-5): a transaction may be larger than an oplog entry, a message or a document; it commits on
 * all members, and takes memory in proportion to its size. One that is open and idle costs little.
 *
 * Method: inserts of 200 bytes in one transaction, the memory of each member before, at most and after.
 *
 * TXN_LARGE: how many inserts (100,000; the full measure is 1,000,000). TXN_OPEN: idle ones (1000).
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Long, UUID } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { RawConnection } from '../lib/wire.mjs';

const DOCUMENTS = Number(process.env.TXN_LARGE ?? 100_000);
const DOCUMENT_BYTES = 200;
const BATCH = 5000;
const OPEN = Number(process.env.TXN_OPEN ?? 1000);
const OPEN_BYTES_MAX = 64 * 1024;
const MB = 1024 * 1024;
/* What is not committed stays in the cache of the engine, beside the entries of the oplog that are
 * made of it, and the message they come from. */
const BYTES_PER_BYTE_MAX = 8;
const REST_MB_MAX = 150;
const REPLY_MS_MAX = 120_000;
const IS_SANITIZED = /asan|tsan/.test(process.env.SHERD_BIN ?? '');

function memoryOf(member, what = 'VmRSS') {
    const status = readFileSync(`/proc/${member.pid}/status`, 'utf8');
    return Number(new RegExp(`^${what}:\\s+(\\d+) kB`, 'm').exec(status)[1]) * 1024;
}

const connect = ({ host, port }) => RawConnection.open({ host, port });

describe('a large one', () => {
    let set;
    before(async () => {
        const cacheGB = Math.max(0.5, (DOCUMENTS * DOCUMENT_BYTES * 8) / (1024 * MB));
        set = await startReplicaSet({
            members: 3,
            args: ['--wiredTigerCacheSizeGB', String(cacheGB), '--oplogSize', '2000'],
        });
        const client = await set.client();
        await client.db('test').createCollection('large', { writeConcern: { w: 'majority' } });
    });
    after(() => set?.remove());

    test(`TXN-5: ${DOCUMENTS} inserts commit at once on all members, in bounded memory`, async () => {
        const primary = await set.waitForPrimary();
        const session = (await set.client({ socketTimeoutMS: REPLY_MS_MAX })).startSession();
        const collection = session.client.db('test').collection('large');
        const before_ = set.members.map((member) => memoryOf(member));
        const padding = 'p'.repeat(DOCUMENT_BYTES - 40);
        const begun = Date.now();
        // The driver would give up waiting for the majority after ten seconds.
        const writeConcern = { w: 'majority', wtimeoutMS: REPLY_MS_MAX };
        session.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern });
        for (let first = 0; first < DOCUMENTS; first += BATCH) {
            const count = Math.min(BATCH, DOCUMENTS - first);
            const documents = Array.from({ length: count }, (_, i) => ({ _id: first + i, padding }));
            await collection.insertMany(documents, { session });
        }
        const inserted = Date.now();
        assert.equal(await collection.countDocuments({}), 0, 'seen before the commit');
        await session.commitTransaction();
        const committed = Date.now();
        await session.endSession();
        await set.waitForReplication({ timeoutMs: REPLY_MS_MAX });
        for (const member of set.members) {
            const client = await set.direct(member);
            assert.equal(await client.db('test').collection('large').countDocuments({}), DOCUMENTS);
        }
        const size = DOCUMENTS * DOCUMENT_BYTES;
        for (const [i, member] of set.members.entries()) {
            const grown = memoryOf(member, 'VmHWM') - before_[i];
            const role = member === primary ? 'primary' : 'secondary';
            console.error(`${role}: +${(grown / MB).toFixed(0)} MB for ${(size / MB).toFixed(0)} MB`);
            if (!IS_SANITIZED) assert.ok(grown < BYTES_PER_BYTE_MAX * size + REST_MB_MAX * MB, `${role} grew by ${grown}`);
        }
        console.error(`inserts ${inserted - begun} ms, commit ${committed - inserted} ms`);
        await set.checkCollection('large');
    });

    test('TXN-5: a large one that is aborted leaves nothing', async () => {
        const session = (await set.client()).startSession();
        const collection = session.client.db('test').collection('aborted');
        await session.client.db('test').createCollection('aborted', { writeConcern: { w: 'majority' } });
        session.startTransaction();
        const padding = 'p'.repeat(DOCUMENT_BYTES);
        for (let first = 0; first < DOCUMENTS / 4; first += BATCH)
            await collection.insertMany(
                Array.from({ length: BATCH }, (_, i) => ({ _id: first + i, padding })),
                { session },
            );
        await session.abortTransaction();
        await session.endSession();
        assert.equal(await collection.countDocuments({}), 0);
        await collection.insertOne({ _id: 1 }, { writeConcern: { w: 'majority' } });
        await set.checkCollection('aborted');
    });
});

describe('many small ones', () => {
    let set, member, wire;
    before(async () => {
        set = await startReplicaSet({ members: 1 });
        [member] = set.members;
        wire = await connect(member);
    });
    after(async () => {
        wire?.close();
        await set?.remove();
    });

    const openOne = async (i, collection) => {
        const lsid = { id: new UUID() };
        const identity = { lsid, txnNumber: Long.fromNumber(1), autocommit: false };
        for (let k = 0; k < 10; k++) {
            const reply = await wire.command({
                insert: collection,
                documents: [{ _id: 10 * i + k, text: 'some text' }],
                ...identity,
                ...(k === 0 ? { startTransaction: true } : {}),
                $db: 'test',
            });
            assert.equal(reply.ok, 1, JSON.stringify(reply));
        }
        return identity;
    };

    test(`TXN-5: ${OPEN} that are open with 10 writes each cost at most 64 KB apiece`, async () => {
        const client = await set.client();
        for (const name of ['warm', 'open']) await client.db('test').createCollection(name);
        const end = async (command, opened) => {
            for (const identity of opened) {
                const reply = await wire.command({ [command]: 1, ...identity, $db: 'admin' });
                assert.equal(reply.ok, 1, JSON.stringify(reply));
            }
        };
        // What grows once only, does so before.
        const warm = [];
        for (let i = 0; i < 20; i++) warm.push(await openOne(i, 'warm'));
        await end('commitTransaction', warm);
        const before_ = memoryOf(member);
        const opened = [];
        for (let i = 0; i < OPEN; i++) opened.push(await openOne(i, 'open'));
        const each = (memoryOf(member) - before_) / OPEN;
        console.error(`an open transaction with 10 writes: ${(each / 1024).toFixed(1)} KB`);
        const status = await client.db('admin').command({ serverStatus: 1 });
        assert.equal(Number(status.transactions.currentOpen), OPEN);
        if (!IS_SANITIZED) assert.ok(each <= OPEN_BYTES_MAX, `${each} bytes`);
        await end('commitTransaction', opened.slice(0, OPEN / 2));
        await end('abortTransaction', opened.slice(OPEN / 2));
        assert.equal(await client.db('test').collection('open').countDocuments({}), 5 * OPEN);
        await set.checkCollection('open');
    });
});
