/*
 * Goal (I1, I13, I14): a member whose disk is full pauses, says so, and goes on when there is room;
 * it neither ends nor stays a primary that cannot write. Method: one member of three on a small disk
 * with ballast. The node keeps 64 MB of such a disk free of clients' data, and stops its own work
 * at 48 MB.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { SmallDisk } from '../lib/small_disk.mjs';

const MB = 1 << 20;
const FOR_THE_NODE_BYTES = 57 * MB;
const FOR_NOBODY_BYTES = 40 * MB;
const OUT_OF_DISK_SPACE = 14031;
const TIMEOUT = { timeoutMs: 30_000 };
const disk = new SmallDisk(512);
const options = { skip: disk.obstacle ?? false };
let set = null;
let member = null; // the one with the small disk
let next = 0;
let fillers = 0;

before(async () => {
    if (disk.obstacle !== null) return;
    set = await startReplicaSet({
        members: [{}, {}, { priority: 0.5 }],
        settings: { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 200 },
        args: ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '60', '--oplogSize', '990'],
        server: (i) => (i === 2 ? { dbpath: disk.path('db') } : {}),
    });
    member = set.members[2];
});
after(async () => {
    await set?.remove();
    disk.remove();
});

async function write(w, wtimeoutMS = 20_000) {
    const client = await set.client();
    const collection = client.db('disk').collection('c');
    await collection.insertOne({ _id: next++, pad: 'p'.repeat(500) }, { writeConcern: { w, wtimeoutMS } });
}

const isSaid = (pattern) => member.log.some(({ msg }) => pattern.test(msg));
const waitForState = (name) =>
    waitFor(async () => (await set.hello(member))?.[name], { ...TIMEOUT, what: name });

test('a secondary applies while clients would be refused', options, async () => {
    await write(3);
    disk.leave('ballast', FOR_THE_NODE_BYTES);
    await waitFor(() => isSaid(/^Disk is nearly full/), { ...TIMEOUT, what: 'a word about it' });
    for (let i = 0; i < 10; i++) await write(3);
});

test('without any room it pauses and says so, and the majority goes on', options, async () => {
    const { pid } = member;
    disk.leave('more', FOR_NOBODY_BYTES);
    await waitFor(() => isSaid(/^Disk is full; applying/), { ...TIMEOUT, what: 'a word about it' });
    await write('majority');
    await fails(write(3, 1000), 64);
    assert.equal(member.pid, pid);
    assert.ok((await set.hello(member)).secondary);
});

test('it does not become a primary that cannot write', options, async () => {
    disk.free('more');
    await set.waitForReplication(); // else nobody votes for it
    member.log.length = 0;
    disk.leave('more', FOR_NOBODY_BYTES);
    await waitFor(() => isSaid(/^Disk is full; applying/), { ...TIMEOUT, what: 'a word about it' });
    await set.command(member, { replSetStepUp: 1 }).catch(() => {});
    await waitFor(() => isSaid(/^Could not take writes as primary/), { ...TIMEOUT, what: 'a try' });
    const isAnother = async () => ![null, member].includes(await set.findPrimary());
    await waitFor(isAnother, { ...TIMEOUT, what: 'another primary' });
    assert.ok((await set.hello(member)).secondary);
    await write('majority');
});

/* Starting gives journal files back: takes what room that makes, until the start has looked.
 * Resolves to an object with the promise of the start. */
async function startOnFullDisk() {
    const started = member.start();
    started.catch(() => {});
    const isFilled = () => {
        disk.leave(`more${fillers++}`, FOR_NOBODY_BYTES);
        return isSaid(/^Replaying the oplog/);
    };
    await waitFor(isFilled, { ...TIMEOUT, what: 'the begin of recovery' });
    return { started };
}

test('a start waits for room where it has to apply, and can be stopped', options, async () => {
    await member.kill();
    const { started } = await startOnFullDisk();
    member.signal('SIGTERM');
    await assert.rejects(started, /stopping/);
    const { code } = await member.waitEnd();
    assert.notEqual(code, 14);
});

test('it goes on when there is room', options, async () => {
    const { started } = await startOnFullDisk();
    assert.ok(!isSaid(/^Waiting for connections/));
    for (let i = 0; i < fillers; i++) disk.free(`more${i}`);
    disk.free('more');
    disk.free('ballast');
    await started;
    await waitForState('secondary');
    await write(3);
    await set.checkCollection('c', 'disk');
});

/* It takes over, and stays primary. */
async function preferAsPrimary(wanted) {
    const primary = await set.waitForPrimary();
    const { config } = await set.command(primary, { replSetGetConfig: 1 });
    config.version++;
    config.members[set.members.indexOf(wanted)].priority = 2;
    await set.command(primary, { replSetReconfig: config });
}

test('as primary of a nearly full disk it refuses clients, and nothing else', options, async () => {
    await preferAsPrimary(member);
    await waitForState('isWritablePrimary');
    member.log.length = 0;
    disk.leave('rest', FOR_THE_NODE_BYTES);
    await waitFor(() => isSaid(/^Disk is nearly full/), { ...TIMEOUT, what: 'a word about it' });
    const direct = (await set.direct(member)).db('disk').collection('c');
    await fails(direct.insertOne({ _id: 'x' }), OUT_OF_DISK_SPACE);
    disk.free('rest');
    await waitFor(() => direct.insertOne({ _id: 'x' }).then(() => true, () => false), TIMEOUT);
    await set.checkCollection('c', 'disk');
});
