/*
 * Goal (I1, REP-2): entries that a member asked for before it was elected, and that arrive when it
 * is primary, do not become part of its history. Method: the fetcher of a member is held between
 * the choice of its source, the primary, and the connection to it. The primary is cut off and
 * writes alone, the member is elected and writes too, then the link is back and the fetcher goes on.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { Network } from '../lib/network.mjs';

const FAILPOINT = 'repl.fetch.sourceChosen';
const network = new Network(3);
let set = null;

before(async () => {
    if (network.obstacle !== null) return;
    set = await startReplicaSet({
        members: 3,
        settings: { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 200 },
        server: network.server,
    });
});
after(async () => {
    if (network.obstacle === null) network.heal();
    await set?.remove();
    network.remove();
});

const hostOf = ({ host, fixedPort }) => `${host}:${fixedPort}`;

for (let round = 0; round < 3; round++)
    test(
        `a new primary takes nothing over from the old one (round ${round})`,
        { skip: network.obstacle ?? false },
        async () => {
            const old = await set.waitForPrimary();
            const heir = (await set.secondaries())[round % 2];
            const { pid } = heir;
            const name = `c${round}`;
            const alone = (await set.direct(old, { retryWrites: false })).db('late');
            await alone.collection(name).insertOne({ _id: 'before' }, { writeConcern: { w: 3 } });

            const isHanging = await set.hang(heir, FAILPOINT);
            await set.command(heir, { replSetSyncFrom: hostOf(old) });
            await isHanging();
            network.cut(set.members.indexOf(old));
            const lost = Array.from({ length: 20 }, (_, i) => ({ _id: `lost${i}` }));
            await alone.collection(name).insertMany(lost, { writeConcern: { w: 1 } });
            await waitFor(
                async () => {
                    await set.command(heir, { replSetStepUp: 1 }).catch(() => {});
                    return (await set.hello(heir))?.isWritablePrimary;
                },
                { timeoutMs: 20_000, what: 'the heir as primary' },
            );
            const kept = Array.from({ length: 20 }, (_, i) => ({ _id: `kept${i}` }));
            const written = (await set.direct(heir)).db('late').collection(name);
            await written.insertMany(kept, { writeConcern: { w: 'majority' } });
            network.heal();
            await set.release(heir, FAILPOINT);
            await written.insertOne({ _id: 'after' }, { writeConcern: { w: 'majority' } });

            await old.waitLog(({ msg }) => msg === 'Rollback done', 30_000);
            await set.waitForSecondaries();
            await set.checkCollection(name, 'late');
            assert.ok(heir.isRunning() && heir.pid === pid, 'the heir ended');
            const ids = (await written.find().toArray()).map(({ _id }) => _id).sort();
            assert.deepEqual(ids, ['after', 'before', ...kept.map(({ _id }) => _id).sort()]);
            await Promise.all(set.members.map((member) => member.closeClients()));
            old.log.length = 0;
        },
    );
