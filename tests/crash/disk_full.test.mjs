/*
 * Goal: a full disk is an error for writers, not the end: OutOfDiskSpace for writes, reads go on,
 * writes work again once there is room, the next start is clean. Method: a small ext4 of its own,
 * loop-mounted, with a ballast file that is deleted later. Needs root.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { Server, makeTempDir, removeTempDir, waitFor } from '../lib/server.mjs';
import { checkConsistency } from './consistency.mjs';

const DISK_MB = 384;
const BALLAST_MB = 96;
const FREE_AT_START_BYTES = 30 << 20;
const OUT_OF_DISK_SPACE = 14031;

const root = makeTempDir('sherd-disk-');
const mountPoint = join(root, 'mnt');
const ballast = join(mountPoint, 'ballast');
const moreBallast = join(mountPoint, 'more_ballast');
let server = null;
let client = null;

function run(program, ...args) {
    const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' });
    return status === 0 ? null : `${program}: ${stderr}`;
}

/* Null when the disk is there, else why it cannot be. */
function mountSmallDisk() {
    if (process.getuid() !== 0) return 'mounting a small disk needs root';
    mkdirSync(mountPoint);
    const image = join(root, 'disk.img');
    return (
        run('truncate', '-s', `${DISK_MB}M`, image) ??
        run('mkfs.ext4', '-q', '-m', '0', image) ??
        run('mount', '-o', 'loop', image, mountPoint)
    );
}

const obstacle = mountSmallDisk();
process.on('exit', () => obstacle === null && run('umount', '-l', mountPoint));

before(async () => {
    if (obstacle !== null) return;
    assert.equal(run('fallocate', '-l', `${BALLAST_MB}M`, ballast), null);
    server = new Server({
        dbpath: join(mountPoint, 'db'),
        args: ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '2'],
    });
    await server.start();
    client = await server.client();
});
after(async () => {
    await server?.remove();
    if (obstacle === null) assert.equal(run('umount', mountPoint), null);
    removeTempDir(root);
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
    const { bavail, bsize } = statfsSync(mountPoint);
    const size = bavail * bsize - FREE_AT_START_BYTES;
    if (size > 0) assert.equal(run('fallocate', '-l', String(size), moreBallast), null);
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
    rmSync(ballast);
    rmSync(moreBallast, { force: true });
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
    assert.equal(run('fallocate', '-l', `${BALLAST_MB}M`, ballast), null);
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
    rmSync(ballast);
    await server.start();
    client = await server.client();
    assert.equal(await collection().countDocuments(), kept + added);
    await checkConsistency(server, client, 'after the kill');
});
