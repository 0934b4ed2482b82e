/*
 * versions.mjs - the order of versions of each key, and what is wrong about single reads.
 */

/*
 * committed: the transactions that count. keys: Map of key to { order, writers, reads }: the values in
 * their order, Map of value to transaction, and [{ transaction, length }] of external reads.
 */
export function readVersions(transactions, final) {
    const anomalies = [];
    const report = (kind, text) => anomalies.push({ kind, text });
    const keys = new Map();
    const keyOf = (name) => {
        if (!keys.has(name)) keys.set(name, { name, order: [], writers: new Map(), reads: [] });
        return keys.get(name);
    };
    for (const transaction of transactions)
        for (const { append, value } of transaction.ops)
            if (append !== undefined) keyOf(append).writers.set(value, transaction);

    const lists = new Map(); // key -> [{ transaction or null, list }], committed ones
    const note = (key, transaction, list) => {
        if (!lists.has(key)) lists.set(key, []);
        lists.get(key).push({ transaction, list });
    };
    const committed = committedOnes(transactions, final, keys);
    let readCount = 0;
    for (const transaction of committed)
        for (const { key, list } of externalReads(transaction, report)) {
            readCount++;
            note(key, transaction, list);
            keyOf(key).reads.push({ transaction, length: list.length });
        }
    for (const [key, list] of final ?? []) note(key, null, list);

    const counts = new Set(committed);
    for (const [name, seen] of lists) {
        const key = keyOf(name);
        key.order = longestOf(name, seen, report);
        checkValues(key, seen, report);
    }
    for (const key of keys.values()) {
        const order = new Set(key.order);
        key.unseen = [...key.writers].filter(
            ([value, writer]) => counts.has(writer) && !order.has(value),
        );
        if (final === undefined) continue;
        for (const [value, writer] of key.unseen)
            report('lost', `${value} of ${describe(writer)} is not in ${key.name} in the end`);
    }
    return { committed, keys, anomalies, readCount };
}

export const describe = ({ id, session }) => `T${id} (session ${session})`;

/* Those that committed, and those of unknown outcome of which a trace was seen: by the end of it, by
 * one that committed, or by one that is known by its own traces. */
function committedOnes(transactions, final, keys) {
    const known = new Set(transactions.filter(({ outcome }) => outcome === 'committed'));
    const queue = [...known];
    const see = (key, list) => {
        for (const value of list) {
            const writer = keys.get(key)?.writers.get(value);
            if (writer?.outcome !== 'unknown' || known.has(writer)) continue;
            known.add(writer);
            queue.push(writer);
        }
    };
    for (const [key, list] of final ?? []) see(key, list);
    while (queue.length > 0)
        for (const { read, list } of queue.pop().ops) if (read !== undefined) see(read, list);
    return transactions.filter((transaction) => known.has(transaction));
}

/* The first read of each key, without what the transaction appended before. */
function externalReads(transaction, report) {
    const reads = new Map();
    const appended = new Map();
    const last = new Map(); // what a read must show now
    for (const { append, read, value, list } of transaction.ops) {
        if (append !== undefined) {
            appended.set(append, [...(appended.get(append) ?? []), value]);
            last.get(append)?.push(value);
            continue;
        }
        const own = appended.get(read) ?? [];
        const expected = last.get(read);
        const tail = own.length === 0 ? [] : list.slice(-own.length);
        const isRight = expected === undefined ? areEqual(tail, own) : areEqual(list, expected);
        if (!isRight)
            report(
                'internal',
                `${describe(transaction)} read ${show(list)} of ${read}, expected ` +
                    (expected === undefined ? `... ${show(own)}` : show(expected)),
            );
        last.set(read, [...list]);
        if (expected === undefined && isRight)
            reads.set(read, { key: read, list: list.slice(0, list.length - own.length) });
    }
    return reads.values();
}

function longestOf(name, seen, report) {
    const longest = seen.reduce((a, b) => (b.list.length > a.list.length ? b : a)).list;
    for (const { transaction, list } of seen) {
        const at = list.findIndex((value, i) => value !== longest[i]);
        if (at !== -1)
            report(
                'incompatible order',
                `${name} is ${show(list)} for ${whose(transaction)} and ${show(longest)} for others`,
            );
    }
    const values = new Set(longest);
    if (values.size < longest.length) report('duplicate', `${name} is ${show(longest)}`);
    return longest;
}

/* Aborted, intermediate and invented values; each once. */
function checkValues(key, seen, report) {
    const reported = new Set();
    const once = (kind, value, text) => {
        if (reported.has(`${kind} ${value}`)) return;
        reported.add(`${kind} ${value}`);
        report(kind, text);
    };
    for (const { transaction, list } of seen) {
        for (const value of list) {
            const writer = key.writers.get(value);
            const text = `${whose(transaction)} read ${value} in ${key.name}`;
            if (writer === undefined) once('unknown value', value, `${text}, which nobody appended`);
            else if (writer.outcome === 'aborted') once('G1a', value, `${text} of ${describe(writer)}`);
        }
        const last = list.at(-1);
        const writer = key.writers.get(last);
        if (writer === undefined || writer === transaction) continue;
        const own = writer.ops.filter(({ append }) => append === key.name).map(({ value }) => value);
        const missing = own.slice(own.indexOf(last) + 1);
        if (missing.length > 0 && !missing.some((value) => list.includes(value)))
            once('G1b', last, `${whose(transaction)} read ${last} of ${describe(writer)} without ${missing}`);
    }
}

const whose = (transaction) => (transaction === null ? 'the end' : describe(transaction));
const areEqual = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);
const show = (list) => `[${list.slice(-12).join(' ')}]`;
