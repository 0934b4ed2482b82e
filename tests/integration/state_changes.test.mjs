/*
 * Goal (REP-2, TXN-7): what clients notice while a member becomes primary or stops being it. Method: a
 * set of two, whose members change their state on request while clients wait for something there.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { RawSession } from '../lib/raw_session.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { RawConnection } from '../lib/wire.mjs';

const KILLED_BY_STATE_CHANGE = 11602;

let set;
before(async () => {
    set = await startReplicaSet({ members: 2, settings: { electionTimeoutMillis: 60_000, catchUpTimeoutMillis: 0 } });
});
after(() => set.remove());

/* On a connection that no driver looks after; null when it was closed. */
const ask = async (member, command, db = 'changes') => {
    const wire = await RawConnection.open({ host: member.host, port: member.port });
    try {
        return await wire.command({ ...command, $db: db });
    } catch {
        return null;
    } finally {
        wire.close();
    }
};
const findOther = async () => {
    const primary = await set.waitForPrimary();
    return [primary, set.members.find((member) => member !== primary)];
};
const transition = async (member) => (await set.command(member, { serverStatus: 1 })).metrics.repl.stateTransition;

test('TXN-1: a new primary makes the collections of sessions, so that a first transaction writes nothing until it ends', async () => {
    const [primary] = await findOther();
    const names = async () => {
        const { cursor } = await set.command(primary, { listCollections: 1 }, 'config');
        return cursor.firstBatch.map(({ name }) => name);
    };
    await waitFor(async () => (await names()).includes('image_collection'));
    assert.ok((await names()).includes('transactions'));
    await ask(primary, { create: 'first' });
    const session = new RawSession(primary);
    const before = (await ask(primary, { hello: 1 }, 'admin')).lastWrite.opTime.ts;
    const reply = await session.run({ insert: 'first', documents: [{}], startTransaction: true, autocommit: false }, 1, 'changes');
    assert.equal(reply.ok, 1, reply.errmsg);
    const { cursor } = await ask(primary, { find: 'oplog.rs', filter: { ts: { $gt: before }, op: { $ne: 'n' } } }, 'local');
    assert.deepEqual(cursor.firstBatch, []);
    await session.run({ abortTransaction: 1, autocommit: false }, 1, 'admin');
    session.close();
});

test('TXN-7: reads that wait for a prepared transaction are killed by a step-down, and by a step-up', async () => {
    const [primary, other] = await findOther();
    await ask(primary, { insert: 'held', documents: [{ _id: 1 }], writeConcern: { w: 2 } });
    const session = new RawSession(primary);
    const updates = [{ q: { _id: 1 }, u: { $set: { a: 1 } } }];
    await session.run({ update: 'held', updates, startTransaction: true, autocommit: false }, 1, 'changes');
    const prepare = { prepareTransaction: 1, autocommit: false, writeConcern: { w: 'majority' } };
    const { prepareTimestamp } = await session.run(prepare, 1, 'admin');
    const { operationTime } = await ask(primary, { insert: 'held', documents: [{}], writeConcern: { w: 2 } });
    const read = { find: 'held', filter: { _id: 1 }, readConcern: { afterClusterTime: operationTime }, $readPreference: { mode: 'secondaryPreferred' } };
    const reads = [primary, other].map((member) => ask(member, read));
    for (const member of [primary, other])
        await waitFor(async () => {
            const { inprog } = await set.command(member, { currentOp: 1, 'command.find': 'held' });
            return inprog.length === 1 && Number(inprog[0].prepareReadConflicts) > 0;
        }, { timeoutMs: 20_000, what: 'the read to meet the prepared transaction' });
    await set.command(other, { replSetStepUp: 1 });
    for (const reply of await Promise.all(reads)) assert.equal(reply.code, KILLED_BY_STATE_CHANGE, JSON.stringify(reply));
    await waitFor(async () => (await transition(other)).lastStateTransition === 'stepUp');
    await waitFor(async () => (await transition(primary)).lastStateTransition === 'stepDown');
    for (const member of [primary, other]) assert.equal(Number((await transition(member)).userOperationsKilled), 1);
    session.close();

    const again = new RawSession(other, session.lsid.id);
    await waitFor(async () => (await set.command(other, { hello: 1 })).isWritablePrimary);
    const commit = { commitTransaction: 1, commitTimestamp: prepareTimestamp, autocommit: false, writeConcern: { w: 2 } };
    const reply = await again.run(commit, 1, 'admin');
    assert.equal(reply.ok, 1, reply.errmsg);
    again.close();
});

/* What hello says each time that it has changed, up to the state that `isLast` accepts. */
const watch = async (member, isLast) => {
    const { topologyVersion: first } = await ask(member, { hello: 1 }, 'admin');
    const seen = (async () => {
        const steps = [];
        for (let topologyVersion = first; ; ) {
            const hello = await ask(member, { hello: 1, topologyVersion, maxAwaitTimeMS: 20_000 }, 'admin');
            assert.notDeepEqual(hello.topologyVersion.counter, topologyVersion.counter, 'in time');
            topologyVersion = hello.topologyVersion;
            steps.push(hello);
            if (isLast(hello)) return steps;
        }
    })();
    await waitFor(async () => Number((await set.command(member, { serverStatus: 1 })).connections.awaitingTopologyChanges) > 0);
    return () => seen;
};
const brief = ({ isWritablePrimary, secondary, primary, me }) =>
    `${isWritablePrimary ? 'writable' : secondary ? 'secondary' : 'neither'}${primary === me ? ', primary' : ''}`;

test('REP-3: clients see a primary that steps down refuse writes first, and be a secondary then', async () => {
    const [primary] = await findOther();
    const down = await watch(primary, (hello) => hello.secondary);
    const isThere = await set.hang(primary, 'repl.stepdownEnqueued');
    const stepped = set.command(primary, { replSetStepDown: 60, force: true });
    await isThere();
    await waitFor(async () => brief(await ask(primary, { hello: 1 }, 'admin')).startsWith('neither'));
    const stateNow = async () => (await set.command(primary, { replSetGetStatus: 1 })).myState;
    assert.equal(await stateNow(), 1);
    await set.command(primary, { configureFailPoint: 'repl.stepdownEnqueued', mode: 'off' });
    await stepped;
    assert.equal(await stateNow(), 2);
    const refused = (await down()).map(brief); // the next primary may be known before the end
    assert.deepEqual([refused[0], refused.at(-1)], ['neither, primary', 'secondary']);
    assert.ok(refused.slice(0, -1).every((step) => step.startsWith('neither')), `${refused}`);
    const next = await set.waitForPrimary();
    assert.notEqual(next, primary, 'handed over');
    await ask(next, { insert: 'c', documents: [{}], writeConcern: { w: 2 } });
    const up = await watch(primary, (hello) => hello.isWritablePrimary);
    await set.command(primary, { replSetFreeze: 0 });
    const isElected = await set.hang(primary, 'hangAfterReconfigOnDrainComplete');
    await set.command(primary, { replSetStepUp: 1 });
    await isElected();
    await waitFor(async () => brief(await ask(primary, { hello: 1 }, 'admin')) === 'secondary, primary');
    await set.command(primary, { configureFailPoint: 'hangAfterReconfigOnDrainComplete', mode: 'off' });
    const steps = (await up()).map(brief);
    assert.equal(steps.at(-1), 'writable, primary');
    assert.ok(steps.slice(0, -1).every((step) => step.startsWith('secondary')), `${steps}`);
});

test('REP-3: a step-down that finds nobody to follow is taken back, and clients hear of that, too', async () => {
    const [primary, other] = await findOther();
    await set.command(other, { configureFailPoint: 'stopReplProducer', mode: 'alwaysOn' });
    await ask(primary, { insert: 'c', documents: [{}], writeConcern: { w: 1 } });
    const back = await watch(primary, (hello) => hello.isWritablePrimary);
    const reply = await ask(primary, { replSetStepDown: 60, secondaryCatchUpPeriodSecs: 1 }, 'admin');
    assert.equal(reply.code, 262, JSON.stringify(reply));
    assert.deepEqual((await back()).map(brief), ['neither, primary', 'writable, primary']);
    await set.command(other, { configureFailPoint: 'stopReplProducer', mode: 'off' });
});
