/*
 * OPS-2: the helpers of mongosh for replica sets (rs.*) work unchanged. Method: nodes that know
 * nothing of each other become a set by the shell alone; each test is one or a few scripted runs.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { runShell } from '../lib/mongosh.mjs';
import { freePorts } from '../lib/replica_set.mjs';
import { Server, waitFor } from '../lib/server.mjs';

const NODES = 4;
const MS_MAX = 30_000;
const nodes = [];
const host = (i) => `127.0.0.1:${nodes[i].fixedPort}`;
const hosts = () => nodes.slice(0, 3).map((_, i) => host(i));

before(async () => {
    for (const port of await freePorts(NODES))
        nodes.push(new Server({ port, args: ['--replSet', 'shellSet', '--oplogSize', '50'] }));
    await Promise.all(nodes.map((node) => node.start()));
});
after(() => Promise.all(nodes.map((node) => node.remove())));

const shellOf = (i, ...statements) =>
    runShell({ uri: `${nodes[i].uri}`.replace('/?', '/test?'), home: nodes[i].root }, ...statements);

/* The value of an expression, or of a body with `return`. */
async function evalOn(i, code) {
    const expression = code.includes('return ') ? `(() => { ${code} })()` : `(${code})`;
    const out = await shellOf(i, `print('>>' + EJSON.stringify(${expression}))`);
    return JSON.parse(out.slice(out.indexOf('>>') + 2));
}

const primaryIndex = () =>
    waitFor(
        async () => {
            for (const [i, node] of nodes.entries()) {
                const client = await node.client();
                const hello = await client.db('admin').command({ hello: 1 });
                await node.closeClients();
                if (hello.isWritablePrimary) return i + 1;
            }
            return null;
        },
        { timeoutMs: MS_MAX, what: 'a primary' },
    ).then((found) => found - 1);

async function waitForStates(i, wanted) {
    const client = await nodes[i].client();
    await waitFor(
        async () => {
            const { members } = await client.db('admin').command({ replSetGetStatus: 1 });
            const states = members.map(({ stateStr }) => stateStr).sort();
            return JSON.stringify(states) === JSON.stringify([...wanted].sort());
        },
        { timeoutMs: MS_MAX, what: `states ${wanted}` },
    );
    await nodes[i].closeClients();
}

test('OPS-2: rs.status() and rs.conf() of a node without a set say so', async () => {
    const found = await evalOn(
        0,
        `const codes = [];
         try { rs.status() } catch (e) { codes.push(e.codeName) }
         try { rs.conf() } catch (e) { codes.push(e.codeName) }
         return codes`,
    );
    assert.deepEqual(found, ['NotYetInitialized', 'NotYetInitialized']);
});

test('a state that the driver knows already does not make it forget the server', async () => {
    const client = await nodes[0].client();
    const descriptions = [];
    client.on('serverDescriptionChanged', ({ newDescription }) => descriptions.push(newDescription));
    const error = await client
        .db('test')
        .collection('c')
        .findOne()
        .catch((e) => e);
    assert.equal(error.codeName, 'NotPrimaryOrSecondary');
    const hello = await client.db('admin').command({ hello: 1 });
    assert.deepEqual(error.errorResponse.topologyVersion, hello.topologyVersion);
    assert.deepEqual(descriptions, []);
    await nodes[0].closeClients();
});

test('OPS-2: rs.initiate() without and rs.add() with members makes a set', async () => {
    const initiated = await evalOn(0, 'rs.initiate()');
    assert.deepEqual([initiated.ok, initiated.me], [1, host(0)]);
    await waitForStates(0, ['PRIMARY']);
    const conf = await evalOn(0, 'rs.conf()');
    assert.equal(conf._id, 'shellSet');
    assert.deepEqual(
        conf.members.map((member) => member.host),
        [host(0)],
    );
    assert.equal((await evalOn(0, `rs.add('${host(1)}')`)).ok, 1);
    assert.equal((await evalOn(0, `rs.add({ host: '${host(2)}', priority: 0.5 })`)).ok, 1);
    await waitForStates(0, ['PRIMARY', 'SECONDARY', 'SECONDARY']);
    const config = await evalOn(0, 'rs.config()');
    assert.deepEqual(
        config.members.map((member) => member.host),
        hosts(),
    );
    assert.equal(config.members[2].priority, 0.5);
});

test('OPS-2: rs.status(), rs.hello(), rs.isMaster() and db.hello() show the set', async () => {
    const { status, rsHello, isMaster, hello } = await evalOn(
        0,
        '({ status: rs.status(), rsHello: rs.hello(), isMaster: rs.isMaster(), hello: db.hello() })',
    );
    assert.equal(status.set, 'shellSet');
    assert.equal(status.members.length, 3);
    assert.equal(status.members.filter(({ health }) => health === 1).length, 3);
    assert.equal(rsHello.isWritablePrimary, true);
    assert.equal(isMaster.ismaster, true);
    assert.deepEqual([...hello.hosts].sort(), hosts().sort());
    assert.equal(hello.primary, host(0));
});

test('OPS-2: rs.printReplicationInfo() and rs.printSecondaryReplicationInfo() print', async () => {
    const info = await shellOf(0, 'rs.printReplicationInfo()');
    assert.match(info, /configured oplog size\s+'50 MB'/);
    assert.match(info, /oplog first event time/);
    assert.match(info, /now/);
    const lag = await shellOf(0, 'rs.printSecondaryReplicationInfo()');
    for (const i of [1, 2]) assert.ok(lag.includes(host(i)), lag);
    assert.match(lag, /syncedTo/);
    assert.match(lag, /behind the (primary|freshest member)/);
    const found = await evalOn(0, 'db.getReplicationInfo()');
    assert.equal(found.configuredLogSizeMB, 50);
    assert.ok(found.usedMB >= 0);
    assert.ok(found.timeDiff >= 0);
});

test('OPS-2: rs.secondaryOk() and reads of a secondary', async () => {
    await evalOn(0, "db.getSiblingDB('test').seen.insertOne({ _id: 1 }, { writeConcern: { w: 3 } })");
    const out = await shellOf(
        1,
        'rs.secondaryOk()',
        `print('found ' + db.getMongo().setReadPref('secondaryPreferred') + db.seen.countDocuments())`,
    );
    assert.match(out, /found .*1/);
    assert.equal((await evalOn(1, 'db.hello()')).secondary, true);
});

test('OPS-2: rs.reconfig() changes the set, and a host twice is refused', async () => {
    const reply = await evalOn(
        0,
        `const conf = rs.conf();
         conf.members[1].tags = { where: 'here' };
         conf.settings.heartbeatTimeoutSecs = 9;
         return { ok: rs.reconfig(conf).ok, conf: rs.conf() }`,
    );
    assert.equal(reply.ok, 1);
    assert.deepEqual(reply.conf.members[1].tags, { where: 'here' });
    assert.equal(reply.conf.settings.heartbeatTimeoutSecs, 9);
    const forced = await evalOn(0, 'rs.reconfig(rs.conf(), { force: true })');
    assert.equal(forced.ok, 1);
    const code = await evalOn(
        0,
        `const conf = rs.conf();
         conf.members.push({ _id: 9, host: conf.members[0].host });
         try { rs.reconfig(conf); return null } catch (e) { return e.codeName }`,
    );
    assert.ok(['InvalidReplicaSetConfig', 'NewReplicaSetConfigurationIncompatible', 'BadValue'].includes(code), code);
});

test('OPS-2: rs.syncFrom() chooses a source', async () => {
    const reply = await evalOn(1, `rs.syncFrom('${host(2)}')`);
    assert.equal(reply.ok, 1);
    assert.equal(reply.syncFromRequested, host(2));
    await waitFor(
        async () => {
            const client = await nodes[1].client();
            const status = await client.db('admin').command({ replSetGetStatus: 1 });
            await nodes[1].closeClients();
            return status.syncSourceHost === host(2);
        },
        { timeoutMs: MS_MAX, what: 'the source that was asked for' },
    );
    const code = await evalOn(
        0,
        `try { rs.syncFrom('${host(2)}'); return null } catch (e) { return e.codeName }`,
    );
    assert.equal(code, 'NotSecondary');
});

test('OPS-2: rs.freeze() and rs.stepDown() move the office', async () => {
    assert.equal((await evalOn(2, 'rs.freeze(120)')).ok, 1);
    const refused = await evalOn(
        0,
        'try { rs.freeze(10); return null } catch (e) { return e.codeName }',
    );
    assert.equal(refused, 'NotSecondary');
    // Short, since it is to take over again before long (reconfigForPSASet below).
    assert.equal((await evalOn(0, 'rs.stepDown(8, 6)')).ok, 1);
    assert.equal(await primaryIndex(), 1, 'the one that is not frozen');
    assert.equal((await evalOn(2, 'rs.freeze(0)')).ok, 1);
    const code = await evalOn(2, 'try { rs.stepDown(1); return null } catch (e) { return e.codeName }');
    assert.equal(code, 'NotWritablePrimary');
});

test('OPS-2: rs.remove() takes a member out', async () => {
    const primary = await primaryIndex();
    assert.equal((await evalOn(primary, `rs.remove('${host(2)}')`)).ok, 1);
    await waitForStates(primary, ['PRIMARY', 'SECONDARY']);
    const text = await evalOn(
        primary,
        `try { rs.remove('${host(2)}'); return null } catch (e) { return e.message }`,
    );
    assert.match(text, /Couldn't find/);
});

test('OPS-2: rs.addArb() needs a default write concern first', async () => {
    const primary = await primaryIndex();
    const add = `try { return { ok: rs.addArb('${host(3)}').ok } } catch (e) { return { code: e.codeName, message: e.message } }`;
    const refused = await evalOn(primary, add);
    assert.equal(refused.code, 'NewReplicaSetConfigurationIncompatible');
    assert.match(refused.message, /default write concern/);
    await evalOn(
        primary,
        'db.adminCommand({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 1 } })',
    );
    assert.deepEqual(await evalOn(primary, add), { ok: 1 });
    await waitForStates(primary, ['PRIMARY', 'SECONDARY', 'ARBITER']);
});

test('OPS-2: rs.reconfigForPSASet() gives a member its vote and priority in two steps', async () => {
    const primary = await primaryIndex();
    const other = 1 - primary;
    const quiet = await evalOn(
        primary,
        `const conf = rs.conf();
         const member = conf.members.find((m) => m.host === '${host(other)}');
         member.votes = 0; member.priority = 0;
         return rs.reconfig(conf)`,
    );
    assert.equal(quiet.ok, 1);
    const out = await shellOf(
        primary,
        `const conf = rs.conf();
         const index = conf.members.findIndex((m) => m.host === '${host(other)}');
         conf.members[index].votes = 1; conf.members[index].priority = 2;
         print('>>' + EJSON.stringify(rs.reconfigForPSASet(index, conf)))`,
    );
    assert.match(out, /Running first reconfig/);
    assert.match(out, /Running second reconfig/);
    assert.equal(JSON.parse(out.slice(out.indexOf('>>') + 2)).ok, 1);
    await waitFor(async () => (await primaryIndex()) === other, {
        timeoutMs: 2 * MS_MAX, // it may have been told to step down for 30 s, a moment ago
        what: 'the take-over of the member with the higher priority',
    });
});
