/*
 * agreement.mjs - what must hold on all members of a set once they have caught up: same data, same
 * oplog, nothing that `validate` complains about, right counts.
 */
import assert from 'node:assert/strict';
import { waitFor } from '../lib/server.mjs';
import { DB } from './load.mjs';

const CATCH_UP_MS_MAX = 40_000;

/* Members run, one of them is primary, the others have all it has, and it stays so: index builds
 * that go on without those who asked for them are over, too. */
export async function waitForCalm(set) {
    await set.waitForPrimary({ timeoutMs: CATCH_UP_MS_MAX });
    await set.waitForSecondaries({ timeoutMs: CATCH_UP_MS_MAX });
    await waitFor(
        async () => {
            const primary = await set.findPrimary();
            if (primary === null) return false;
            return (await set.buildCount(primary)) === 0;
        },
        { timeoutMs: CATCH_UP_MS_MAX, what: 'the end of all index builds' },
    );
    await set.waitForReplication({ timeoutMs: CATCH_UP_MS_MAX });
}

/* `trusted`: members whose counts must be right before validate corrects them. `since`: where the
 * oplogs were found to be equal last time; resolves to where they are now. */
export async function checkAgreement(set, { where, trusted, since }) {
    const clients = await Promise.all(set.members.map((member) => set.direct(member)));
    try {
        await checkHashes(clients, where);
        const newest = await checkOplogs(clients, since, where);
        for (const [i, client] of clients.entries())
            await checkCollections(client, trusted.has(set.members[i]), `${where}, member ${i}`);
        return newest;
    } finally {
        await Promise.all(set.members.map((member) => member.closeClients()));
    }
}

/* A member may be shown before its newest batch: a few attempts are fair. */
async function checkHashes(clients, where) {
    let hashes = [];
    const areEqual = async () => {
        hashes = await Promise.all(clients.map((client) => client.db(DB).command({ dbHash: 1 })));
        return hashes.every(({ md5 }) => md5 === hashes[0].md5);
    };
    await waitFor(areEqual, { timeoutMs: 3000 }).catch(() => {
        const collections = hashes.map((hash) => JSON.stringify(hash.collections));
        assert.fail(`${where}: dbHash differs: ${collections.join(' ')}`);
    });
}

/* Byte by byte over what all of them have. */
async function checkOplogs(clients, since, where) {
    const oplogs = await Promise.all(
        clients.map(async (client) => {
            const filter = since === null ? {} : { ts: { $gte: since } };
            const entries = await client
                .db('local')
                .collection('oplog.rs')
                .find(filter, { promoteLongs: false })
                .project({ ts: 1, t: 1, op: 1, ns: 1, ui: 1, o: 1, o2: 1, wall: 1 })
                .toArray();
            assert.ok(entries.length > 0, `${where}: an oplog is empty`);
            return new Map(entries.map((entry) => [`${entry.ts}`, entry]));
        }),
    );
    const ends = oplogs.map((oplog) => [...oplog.values()]);
    const first = ends
        .map((entries) => entries[0].ts)
        .reduce((a, b) => (a.greaterThan(b) ? a : b));
    const last = ends
        .map((entries) => entries.at(-1).ts)
        .reduce((a, b) => (a.lessThan(b) ? a : b));
    const common = ends.map((entries) =>
        entries.filter(({ ts }) => ts.greaterThanOrEqual(first) && ts.lessThanOrEqual(last)),
    );
    for (const [i, entries] of common.entries()) {
        if (i === 0) continue;
        for (let k = 0; k < Math.max(entries.length, common[0].length); k++)
            assert.equal(
                JSON.stringify(entries[k]),
                JSON.stringify(common[0][k]),
                `${where}: oplogs of members 0 and ${i} differ at ${k} of ${common[0].length}`,
            );
    }
    return last;
}

async function checkCollections(client, isTrusted, where) {
    const db = client.db(DB);
    for (const { name } of await db.listCollections({}, { nameOnly: true }).toArray()) {
        const { n: before } = await db.command({ count: name });
        const report = await db.command({ validate: name, full: true });
        assert.ok(report.valid, `${where}: ${name} is not valid: ${report.errors}`);
        const records = Number(report.nrecords);
        if (isTrusted) assert.equal(before, records, `${where}: count of ${name}`);
        const { n: after } = await db.command({ count: name });
        assert.equal(after, records, `${where}: count of ${name} after validate`);
        const documents = await db.collection(name).countDocuments({});
        assert.equal(documents, records, `${where}: documents of ${name}`);
    }
    const builds = await client
        .db('config')
        .collection('system.indexBuilds')
        .countDocuments()
        .catch(() => 0);
    assert.equal(builds, 0, `${where}: unfinished index builds`);
}
