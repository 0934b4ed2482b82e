/*
 * Goal: a full disk is an error for writers, not the end: OutOfDiskSpace for writes, reads go on,
 * writes work again once there is room, the next start is clean. Method: a small ext4 of its own,
 * loop-mounted, with a ballast file that is deleted later. Needs root.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { Server, waitFor } from '../lib/server.mjs';
import { SmallDisk } from '../lib/small_disk.mjs';
import { checkConsistency } from './consistency.mjs';

const DISK_MB = 384;
const BALLAST_MB = 96;
const FREE_AT_START_BYTES = 30 << 20;
const OUT_OF_DISK_SPACE = 14031;

const disk = new SmallDisk(DISK_MB);
const { obstacle } = disk;
let server = null;
let client = null;

before(async () => {
    if (obstacle !== null) return;
    disk.fill('ballast', BALLAST_MB << 20);
    server = new Server({
        dbpath: disk.path('db'),
        args: ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '2'],
    });
    await server.start();
    client = await server.client();
});
after(async () => {
    await server?.remove();
    disk.remove();
});

const options = { skip: obstacle ?? false };
const collection = () => client.db('disk').collection('c', { writeConcern: { w: 1, j: true } });
let stored = 0;

/* Not compressible, so that the disk fills as fast as it looks. */
function noise(size) {
    const bytes = Buffer.alloc(size);
    for (let at = 0; at < size; at += 4)
        bytes.writeUInt32LE(Math.floor(Math.random() * 2 ** 32), at);
    return bytes;
}

test('inserts into a full disk fail with OutOfDiskSpace', options, async () => {
    await collection().createIndex({ n: 1 });
    const error = await (async () => {
        for (;;) {
            try {
                await collection().insertOne({ _id: stored, n: stored % 10, b: noise(500_000) });
                stored++;
            } catch (refusal) {
                return refusal;
            }
        }
    })();
    assert.equal(error.code, OUT_OF_DISK_SPACE, String(error));
    assert.ok(stored > 20, `${stored} stored`);
    assert.ok(server.isRunning());
});

test('reads go on while the disk is full', options, async () => {
    assert.equal(await collection().countDocuments(), stored);
    assert.equal(
        (await collection().find({ n: 3 }).toArray()).every(({ n }) => n === 3),
        true,
    );
    await fails(collection().insertOne({ _id: 'x' }), OUT_OF_DISK_SPACE);
    await fails(collection().updateMany({}, { $set: { y: 1 } }), OUT_OF_DISK_SPACE);
    await fails(client.db('disk').createCollection('other'), OUT_OF_DISK_SPACE);
});

test('a node starts on a full disk and serves reads', options, async () => {
    await server.stop();
    // The stop gave some room back: take all but what the node keeps in reserve.
    disk.leave('more_ballast', FREE_AT_START_BYTES);
    await server.start();
    client = await server.client();
    assert.equal(await collection().countDocuments(), stored);
    // The start may have given journal files back: then there is room for this one, else it says so.
    await collection()
        .insertOne({ _id: 'x' })
        .then(
            () => stored++,
            (error) => assert.equal(error.code, OUT_OF_DISK_SPACE, String(error)),
        );
});

test('writes work again once there is room, without a restart', options, async () => {
    rmSync(disk.path('ballast'));
    rmSync(disk.path('more_ballast'), { force: true });
    await waitFor(
        () =>
            collection()
                .insertOne({ _id: 'again' })
                .then(
                    () => true,
                    (error) => {
                        assert.equal(error.code, OUT_OF_DISK_SPACE, String(error));
                        return false;
                    },
                ),
        { timeoutMs: 15_000, what: 'accepted write' },
    );
    assert.equal(await collection().countDocuments(), stored + 1);
});

test('documents can be removed and the next start finds everything', options, async () => {
    await collection().deleteMany({ n: { $gte: 5 } });
    const left = await collection().countDocuments();
    await server.restart();
    client = await server.client();
    assert.equal(await collection().countDocuments(), left);
    await checkConsistency(server, client, 'after the restart');
});

test('a kill while the disk is full loses nothing', options, async () => {
    disk.fill('ballast', BALLAST_MB << 20);
    const kept = await collection().countDocuments();
    let added = 0;
    for (;;) {
        try {
            await collection().insertOne({ _id: `late${added}`, n: 1, b: noise(500_000) });
            added++;
        } catch (error) {
            assert.equal(error.code, OUT_OF_DISK_SPACE, String(error));
            break;
        }
    }
    await server.kill();
    rmSync(disk.path('ballast'));
    await server.start();
    client = await server.client();
    assert.equal(await collection().countDocuments(), kept + added);
    await checkConsistency(server, client, 'after the kill');
});
