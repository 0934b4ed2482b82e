/*
 * Goal (TXN-3): transactions that conflict all the time still get on: somebody commits soon, and
 * nobody is left out. Method: connections that increment one document in transactions and try again at
 * once, as drivers do.
 *
 * CONFLICT_SECONDS: for how long (4).
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Long, UUID } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { RawConnection } from '../lib/wire.mjs';

const MS = 1000 * Number(process.env.CONFLICT_SECONDS ?? 4);
const WRITE_CONFLICT = 112;
const GAP_MS_MAX = 50;
// Where one alone takes long (a machine that is busy, a node with sanitizers), several may take more.
const GAP_PER_LONE_WAIT = 10;
// Of an equal share of all commits.
const SHARE_MIN = 0.2;

let set, member;
before(async () => {
    set = await startReplicaSet({ members: 1 });
    [member] = set.members;
});
after(() => set?.remove());

/* Increments until the time is over; every attempt is a transaction of two messages. */
async function contender(collection, end, note) {
    const wire = await RawConnection.open({ host: member.host, port: member.port });
    const lsid = { id: new UUID() };
    const waits = [];
    let number = 0;
    let retries = 0;
    while (Date.now() < end) {
        const begun = performance.now();
        for (;;) {
            const identity = { lsid, txnNumber: Long.fromNumber(++number), autocommit: false };
            const updates = [{ q: { _id: 1 }, u: { $inc: { n: 1 } } }];
            const done = await wire.command({ update: collection, updates, ...identity, startTransaction: true, $db: 'test' });
            if (done.ok === 1) {
                assert.equal(done.nModified, 1);
                const reply = await wire.command({ commitTransaction: 1, ...identity, writeConcern: { w: 1 }, $db: 'admin' });
                assert.equal(reply.ok, 1, JSON.stringify(reply));
                break;
            }
            assert.equal(done.code, WRITE_CONFLICT, JSON.stringify(done));
            assert.deepEqual(done.errorLabels, ['TransientTransactionError']);
            retries++;
        }
        waits.push(performance.now() - begun);
        note();
    }
    wire.close();
    return { waits, retries };
}

/* How long one takes who is alone. */
async function measureAlone(client) {
    await client.db('test').collection('alone').replaceOne({ _id: 1 }, { n: 0 }, { upsert: true });
    const { waits } = await contender('alone', Date.now() + MS / 4, () => {});
    return percentile(waits, 0.99);
}

const percentile = (list, share) => [...list].sort((a, b) => a - b)[Math.floor(share * (list.length - 1))];

for (const count of [2, 8])
    test(`TXN-3: of ${count} that always conflict one commits within ${GAP_MS_MAX} ms, and none starves`, async () => {
        const collection = `c${count}`;
        const client = await set.client();
        await client.db('test').collection(collection).insertOne({ _id: 1, n: 0 });
        const gapMax = Math.max(GAP_MS_MAX, GAP_PER_LONE_WAIT * (await measureAlone(client)));
        const commits = [];
        const note = () => commits.push(performance.now());
        const end = Date.now() + MS;
        const contenders = await Promise.all(
            Array.from({ length: count }, () => contender(collection, end, note)),
        );
        const gaps = commits.slice(1).map((at, i) => at - commits[i]);
        const waits = contenders.flatMap((one) => one.waits);
        const shares = contenders.map((one) => one.waits.length / commits.length);
        const retries = contenders.reduce((sum, one) => sum + one.retries, 0);
        console.error(
            `${count} contenders: ${commits.length} commits, ${retries} conflicts, gap p99 ` +
                `${percentile(gaps, 0.99).toFixed(1)} ms, wait p99 ${percentile(waits, 0.99).toFixed(1)} ms, longest ` +
                `${Math.max(...waits).toFixed(1)} ms, shares ${shares.map((share) => share.toFixed(2))}`,
        );
        const { n } = await client.db('test').collection(collection).findOne();
        assert.equal(n, commits.length, 'each commit counts once');
        assert.ok(commits.length > 50);
        assert.ok(percentile(gaps, 0.99) <= gapMax, `somebody commits within ${gapMax} ms`);
        for (const share of shares) assert.ok(share >= SHARE_MIN / count, `shares: ${shares}`);
    });
