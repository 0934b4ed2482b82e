/*
 * Goal (RTE-4): a shard is found by its name, its replica set, any of its members and its address; and config.shards follows the members of
 * its set, so that routers find it when none of those it was added with is left.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startCluster, startShard } from '../lib/cluster.mjs';
import { freePorts } from '../lib/replica_set.mjs';
import { Server, waitFor } from '../lib/server.mjs';

let cluster;
let client;
let shard;
const added = []; // members that the set did not begin with

before(async () => {
    cluster = await startCluster({ shards: 2 });
    client = await cluster.client();
    [, shard] = cluster.shards;
});
after(async () => {
    await cluster?.remove();
    await Promise.all(added.map((member) => member.remove()));
});

const failsWith = (promise, code) => assert.rejects(promise, (error) => error.code === code);
const nameOf = ({ host, fixedPort }) => `${host}:${fixedPort}`;
const entry = () => client.db('config').collection('shards').findOne({ _id: 'shard1' });
const addressOf = (members) => `shard1/${members.map(nameOf).sort().join(',')}`;

/* The set may change its configuration itself meanwhile: members that join become full ones. */
const reconfigure = (change, set = shard) =>
    waitFor(
        async () => {
            const primary = await set.waitForPrimary();
            const { config } = await set.command(primary, { replSetGetConfig: 1 });
            change(config.members);
            config.version++;
            return set.command(primary, { replSetReconfig: config }).catch((error) => {
                if (error.code !== 103) throw error;
                return false;
            });
        },
        { what: 'the new configuration' },
    );

test('a shard is found by its name, its set, a member and its address', async () => {
    const [{ address }] = cluster.shards;
    const host = address.split('/')[1];
    const forms = ['shard0', address, host];
    for (const [i, primaryShard] of forms.entries()) {
        await cluster.admin({ enableSharding: `by${i}`, primaryShard });
        const { primary } = await client.db('config').collection('databases').findOne({ _id: `by${i}` });
        assert.equal(primary, 'shard0', primaryShard);
    }
    await cluster.admin({ enableSharding: 'by0', primaryShard: address });
    for (const primaryShard of ['127.0.0.1:1', 'shard0/127.0.0.1:1', 'other'])
        await failsWith(cluster.admin({ enableSharding: 'none', primaryShard }), 70);
});

test('members that join are written down, and may not be added as another shard', async () => {
    const [port] = await freePorts(1);
    const member = await new Server({ port, args: ['--replSet', 'shard1', ...shard.args] }).start();
    added.push(member);
    await reconfigure((members) => members.push({ _id: 1, host: nameOf(member) }));
    shard.members.push(member);
    await shard.waitForSecondaries();
    const wanted = addressOf(shard.members);
    await waitFor(async () => (await entry()).host === wanted, { what: 'the new member in config.shards' });
    assert.equal((await entry()).state, 1); // and nothing else has changed
    assert.equal((await cluster.admin({ addShard: `shard1/${nameOf(member)}` })).shardAdded, 'shard1');
    for (const address of [nameOf(member), `other/${nameOf(member)}`])
        await failsWith(cluster.admin({ addShard: address }), 20);
    await waitFor(async () => (await cluster.admin({ getShardMap: 1 })).hosts[nameOf(member)] === 'shard1');
});

test('a config server that was away writes down what has changed meanwhile', async () => {
    const [config] = cluster.config.members;
    await config.stop();
    const [port] = await freePorts(1);
    const member = await new Server({ port, args: ['--replSet', 'shard1', ...shard.args] }).start();
    added.push(member);
    await reconfigure((members) => members.push({ _id: 2, host: nameOf(member) }));
    shard.members.push(member);
    await shard.waitForSecondaries();
    await config.start();
    await cluster.config.waitForPrimary();
    const wanted = addressOf(shard.members);
    await waitFor(async () => (await entry()).host === wanted, { timeoutMs: 30_000, what: 'both new members' });
});

test('a router that starts finds a shard of which the first member is gone', { timeout: 120_000 }, async () => {
    await cluster.admin({ enableSharding: 'd', primaryShard: 'shard1' });
    await client.db('d').collection('c').insertOne({ _id: 1 }, { writeConcern: { w: 'majority' } });
    const [seed, ...rest] = shard.members;
    if ((await shard.waitForPrimary()) === seed) await shard.stepDown();
    await shard.waitForPrimary({ other: seed });
    await reconfigure((members) => members.splice(members.findIndex(({ host }) => host === nameOf(seed)), 1));
    await waitFor(async () => (await entry()).host === addressOf(rest), { what: 'config.shards without the first member' });
    await seed.stop();
    const [router] = cluster.routers;
    await router.stop();
    await router.start();
    client = await cluster.client();
    assert.deepEqual(await client.db('d').collection('c').find().toArray(), [{ _id: 1 }]);
    await client.db('d').collection('c').insertOne({ _id: 2 });
});

test('a set of the same name as one that was removed is another one, whose terms begin anew', { timeout: 120_000 }, async () => {
    const first = await startShard('again');
    /* Its elections are later than all of the next one. */
    for (let i = 0; i < 3; i++) await first.command(await first.waitForPrimary(), { replSetStepDown: 1, force: true }).catch(() => {});
    await first.waitForPrimary();
    await cluster.admin({ addShard: first.address });
    await waitFor(async () => (await cluster.admin({ removeShard: 'again' })).state === 'completed', { what: 'the removal' });
    await first.remove();
    const second = await startShard('again');
    try {
        await cluster.admin({ addShard: second.address });
        await cluster.admin({ enableSharding: 'later', primaryShard: 'again' });
        await client.db('later').collection('c').insertOne({ _id: 1 });
        await cluster.admin({ movePrimary: 'later', to: 'shard0' });
        await waitFor(async () => (await cluster.admin({ removeShard: 'again' })).state === 'completed', { what: 'the removal' });
    } finally {
        await second.remove();
    }
});

test('shards and the config server tell of the sets that they watch', async () => {
    for (const set of [cluster.shards[0], cluster.config]) {
        const { replicaSets } = await set.command(await set.waitForPrimary(), { connPoolStats: 1 });
        assert.ok(replicaSets.shard0.hosts.some(({ ok, ismaster }) => ok && ismaster), JSON.stringify(replicaSets));
    }
});

test('a member may be given for a shard that is to be removed', async () => {
    const { host } = await entry();
    const { state, shard: name } = await cluster.admin({ removeShard: host.split(/[/,]/)[1] });
    assert.deepEqual([state, name], ['started', 'shard1']);
});

test('a shard notes the members of its config server, and finds it when none of the first ones is left', { timeout: 180_000 }, async () => {
    const [first] = cluster.shards;
    const config = cluster.config;
    const noted = async () => (await first.direct(first.members[0])).db('admin').collection('system.version').findOne({ _id: 'shardIdentity' });
    const addressOfConfig = (members) => `config/${members.map(nameOf).sort().join(',')}`;
    const [seed] = config.members;
    const before_ = await noted();
    const others = [];
    for (const port of await freePorts(2)) {
        const member = await new Server({ port, args: ['--replSet', 'config', ...config.args] }).start();
        added.push(member);
        others.push(member);
    }
    for (const [i, member] of others.entries()) {
        await reconfigure((members) => members.push({ _id: 10 + i, host: nameOf(member) }), config);
        config.members.push(member);
        await config.waitForSecondaries();
    }
    const has = (wanted) => async () => (await noted()).configsvrConnectionString.split(',').sort().join() === wanted.split(',').sort().join();
    await waitFor(has(addressOfConfig(config.members)), { timeoutMs: 45_000, what: 'the new members of the config server' });
    await config.stepDown();
    await config.waitForPrimary({ other: seed });
    await reconfigure((members) => members.splice(0, 1), config);
    await waitFor(has(addressOfConfig(others)), { timeoutMs: 45_000, what: 'the config server without its first member' });
    const { clusterId, shardName } = await noted();
    assert.deepEqual([clusterId, shardName], [before_.clusterId, before_.shardName]);
    await seed.stop();
    config.members.shift();
    await first.members[0].stop();
    await first.members[0].start();
    await first.waitForPrimary();
    /* Only the config server knows where a collection is that nobody has asked this member for. */
    await waitFor(() => first.command(first.members[0], { _flushRoutingTableCacheUpdates: 'd.nothing', syncFromConfig: true }).then(() => true, () => false), {
        timeoutMs: 45_000,
        what: 'the shard to find its config server',
    });
});
