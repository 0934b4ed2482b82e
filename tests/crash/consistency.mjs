/*
 * consistency.mjs - what must hold on any node after any start: indexes agree with their
 * collections, `validate` finds nothing, and the files are those the catalog names.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { waitFor } from '../lib/server.mjs';

const OWN_FILES = /^(WiredTiger.*|_mdb_catalog|sizeStorer)\.wt$/;

export async function checkConsistency(server, client, where) {
    const entries = await client
        .db('admin')
        .aggregate([{ $listCatalog: {} }])
        .toArray();
    for (const entry of entries.filter(({ type }) => type !== 'view'))
        await checkCollection(client.db(entry.db), entry, where);
    await checkFiles(server, client, where);
}

/* Reading through each index gives the same documents as reading the collection. */
async function checkCollection(db, entry, where) {
    const collection = db.collection(entry.name);
    const read = async (hint) => {
        const documents = await collection.find().hint(hint).toArray();
        return documents.map((document) => JSON.stringify(document)).sort();
    };
    const documents = await read({ $natural: 1 });
    for (const { spec, ready } of entry.md.indexes) {
        const what = `${where}: index ${spec.name} of ${entry.ns}`;
        assert.ok(ready, `${what} is not ready`);
        assert.deepEqual(await read(spec.name), documents, `${what} differs from its collection`);
    }
    const { valid, errors, nrecords } = await db.command({ validate: entry.name, full: true });
    assert.ok(valid, `${where}: ${entry.ns} is not valid: ${errors}`);
    assert.equal(Number(nrecords), documents.length, `${where}: nrecords of ${entry.ns}`);
}

/* No table without a catalog entry, no entry without a table. A table that was busy at the start is dropped
 * within seconds. */
async function checkFiles(server, client, where) {
    let difference = '';
    await waitFor(
        async () => {
            const entries = await client
                .db('admin')
                .aggregate([{ $listCatalog: {} }])
                .toArray();
            const named = entries
                .filter(({ type }) => type !== 'view')
                .flatMap(({ ident, idxIdent }) => [ident, ...Object.values(idxIdent ?? {})])
                .map((ident) => `${ident}.wt`);
            const files = readdirSync(server.dbpath).filter(
                (name) => name.endsWith('.wt') && !OWN_FILES.test(name),
            );
            const extra = files.filter((name) => !named.includes(name));
            const missing = named.filter((name) => !files.includes(name));
            difference = `extra files ${extra}, missing files ${missing}`;
            return extra.length === 0 && missing.length === 0;
        },
        { timeoutMs: 10_000 },
    ).catch(() => assert.fail(`${where}: ${difference}`));
}
