/*
 * Goal (REP-5): a stream of a set of three shows every acknowledged change once and in order and
 * nothing else, over step-downs, kills and rollbacks, resumed by its token. Method: a writer with
 * w: majority keeps a ledger; a driver's stream and one that is resumed by hand on changing
 * members are compared with it.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { isClientClosed } from '../lib/expect.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';

const BUDGET_MS = 120_000;
let set = null;
before(async () => {
    set = await startReplicaSet({
        members: 3,
        args: ['--setParameter', 'enableTestCommands=1'],
        settings: { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 200 },
    });
});
after(() => set?.remove());

const others = (member) => set.members.filter((other) => other !== member);

/* Inserts rising numbers until it is stopped; knows which were acknowledged. */
class Ledger {
    acknowledged = [];
    #isStopping = false;
    constructor(collection) {
        this.done = this.#run(collection);
    }
    async #run(collection) {
        for (let n = 0; !this.#isStopping; n++) {
            try {
                await collection.insertOne({ _id: n }, { writeConcern: { w: 'majority' } });
                this.acknowledged.push(n);
            } catch (error) {
                // It may be there or not: the stream decides.
                if (isClientClosed(error)) return;
            }
        }
    }
    async stop() {
        this.#isStopping = true;
        await this.done;
        return this.acknowledged;
    }
}

/* All events up to the one of `last`; the driver resumes by itself. */
async function collect(stream, last) {
    const seen = [];
    await waitFor(
        async () => {
            const event = await stream.tryNext();
            if (event) seen.push(event.documentKey._id);
            return event?.documentKey._id === last;
        },
        { timeoutMs: BUDGET_MS, what: `the event of ${last}` },
    );
    return seen;
}

function checkAgainst(ledger, seen) {
    assert.equal(new Set(seen).size, seen.length, 'an event came twice');
    assert.deepEqual([...seen].sort((a, b) => a - b), seen, 'events came out of order');
    const shown = new Set(seen);
    assert.deepEqual(ledger.filter((n) => !shown.has(n)), [], 'acknowledged and not shown');
}

test('REP-5: a stream goes on over step-downs and the kill of a primary, with nothing missing or twice', async () => {
    const client = await set.client({ retryWrites: true });
    const collection = client.db('three').collection('ledger');
    await collection.insertOne({ _id: -1 }, { writeConcern: { w: 'majority' } });
    const stream = collection.watch([], { maxAwaitTimeMS: 100 });
    await stream.tryNext();
    const ledger = new Ledger(collection);
    const grown = async (count) => {
        const start = ledger.acknowledged.length;
        await waitFor(() => ledger.acknowledged.length >= start + count, {
            timeoutMs: BUDGET_MS, what: 'writes to go on',
        });
    };
    const seen = [];
    const reading = (async () => {
        for (;;) {
            const event = await stream.next();
            seen.push(event.documentKey._id);
            if (event.documentKey._id === 'end') return;
        }
    })();
    await grown(50);
    const first = await set.waitForPrimary();
    await set.command(first, { replSetStepDown: 10, force: true }).catch(() => {});
    await grown(50);
    const second = await set.waitForPrimary();
    await second.kill();
    await grown(50);
    await second.start();
    await grown(20);
    const acknowledged = await ledger.stop();
    await collection.insertOne({ _id: 'end' }, { writeConcern: { w: 'majority' } });
    await reading;
    assert.equal(seen.pop(), 'end');
    checkAgainst(acknowledged, seen);
    await stream.close();
});

test('REP-5: an event that is rolled back was never shown, and a token resumes on every member', async () => {
    await set.waitForSecondaries();
    const primary = await set.waitForPrimary();
    const client = await set.client();
    const collection = client.db('three').collection('rolled');
    await collection.insertOne({ _id: 'base' }, { writeConcern: { w: 3 } });
    const direct = await set.direct(primary);
    const stream = direct.db('three').collection('rolled').watch([], { maxAwaitTimeMS: 100 });
    await stream.tryNext();
    await collection.insertOne({ _id: 'kept' }, { writeConcern: { w: 3 } });
    const kept = await stream.next();
    assert.equal(kept.documentKey._id, 'kept');
    /* Alone, the primary still takes writes that no one else gets. */
    for (const member of others(primary)) await member.kill();
    await direct.db('three').collection('rolled').insertOne({ _id: 'lost' }, { writeConcern: { w: 1 } });
    assert.equal(await stream.tryNext(), null);
    assert.equal(await stream.tryNext(), null);
    await stream.close().catch(() => {});
    await primary.kill();
    await Promise.all(others(primary).map((member) => member.start()));
    await set.waitForPrimary();
    await collection.insertOne({ _id: 'after' }, { writeConcern: { w: 'majority' } });
    await primary.start();
    await set.waitForSecondaries();
    await set.waitForReplication();
    for (const member of set.members) {
        const on = await set.direct(member, { readPreference: 'secondaryPreferred' });
        const resumed = on.db('three').collection('rolled').watch([], { resumeAfter: kept._id, maxAwaitTimeMS: 100 });
        assert.deepEqual(await collect(resumed, 'after'), ['after']);
        await resumed.close();
    }
});
