/*
 * oplog_changes.mjs - the changes of documents that an oplog tells of, in the order in which they
 * became visible: those of a transaction at its commit.
 */

/* [{ type, coll, id, ts, isTransaction }] of a database, later than `after`. */
export async function changesOf(client, dbName, after) {
    const entries = await client
        .db('local')
        .collection('oplog.rs')
        .find({ ts: { $gt: after } }, { promoteLongs: false })
        .sort({ $natural: 1 })
        .toArray();
    const changes = [];
    const open = new Map(); // transaction -> its operations so far
    for (const entry of entries) {
        const { op, o, ts } = entry;
        const isTransaction = entry.txnNumber !== undefined && op === 'c';
        const name = isTransaction ? `${entry.lsid?.id.toString('hex')} ${entry.txnNumber}` : `${ts}`;
        if (op !== 'c') {
            push(changes, dbName, entry, ts, false);
            continue;
        }
        if (o.applyOps !== undefined) {
            const operations = [...(open.get(name) ?? []), ...o.applyOps];
            open.set(name, operations);
            if (o.partialTxn || o.prepare) continue;
        } else if (o.abortTransaction !== undefined) {
            open.delete(name);
            continue;
        } else if (o.commitTransaction === undefined) {
            continue;
        }
        for (const operation of open.get(name) ?? []) push(changes, dbName, operation, ts, isTransaction);
        open.delete(name);
    }
    return changes;
}

const TYPES = { i: 'insert', d: 'delete' };

function push(changes, dbName, { op, ns, o, o2 }, ts, isTransaction) {
    const [db, ...coll] = (ns ?? '').split('.');
    if (db !== dbName || !'iud'.includes(op)) return;
    const type = TYPES[op] ?? (o._id === undefined ? 'update' : 'replace');
    changes.push({ type, coll: coll.join('.'), id: (o2 ?? o)._id, ts, isTransaction });
}
