/*
 * Goal: the networks of tests that run beside each other, or that were left behind by one that was killed, have
 * addresses of their own. Method: two networks made by one process, a listener in each at the same place.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { Network } from '../lib/network.mjs';

const networks = [new Network(1), new Network(1)];
const skip = networks.find(({ obstacle }) => obstacle !== null)?.obstacle ?? false;
after(() => networks.forEach((network) => network.remove()));

test('networks that stand beside each other do not mix', { skip }, async () => {
    assert.notEqual(networks[0].host(0), networks[1].host(0));
    const sets = [];
    try {
        for (const [i, network] of networks.entries()) {
            const set = await startReplicaSet({ members: 1, name: `set${i}`, server: network.server });
            sets.push(set);
        }
        for (const [i, set] of sets.entries())
            assert.equal((await set.hello(set.members[0])).setName, `set${i}`);
    } finally {
        await Promise.all(sets.map((set) => set.remove()));
    }
});
