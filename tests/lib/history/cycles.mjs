/*
 * cycles.mjs - dependencies between transactions, and the cycles that snapshot isolation forbids.
 *
 * Forbidden closed walks, those without two neighbouring rw, are the cycles of a graph with two nodes
 * for each transaction: "came by rw" and "came otherwise". From the first no rw goes on.
 */
import { describe } from './versions.mjs';

const DEPENDENCY = ['ww', 'wr'];
/* From the plainest to the most general, so that a cycle gets the name that says most. */
const LEVELS = [
    { kind: 'G0', allowed: ['ww'], rwMax: 0 },
    { kind: 'G1c', allowed: DEPENDENCY, rwMax: 0 },
    { kind: 'G-single', allowed: DEPENDENCY, rwMax: 1 },
    { kind: 'G-nonadjacent', allowed: DEPENDENCY, rwMax: Infinity },
    { kind: 'G1c in a session', allowed: [...DEPENDENCY, 'so'], rwMax: 0 },
    { kind: 'G-single in a session', allowed: [...DEPENDENCY, 'so'], rwMax: 1 },
    { kind: 'G-nonadjacent in a session', allowed: [...DEPENDENCY, 'so'], rwMax: Infinity },
    { kind: 'G1c in real time', allowed: [...DEPENDENCY, 'so', 'rt'], rwMax: 0 },
    { kind: 'G-single in real time', allowed: [...DEPENDENCY, 'so', 'rt'], rwMax: 1 },
    { kind: 'G-nonadjacent in real time', allowed: [...DEPENDENCY, 'so', 'rt'], rwMax: Infinity },
];

export function findCycles(history, { session, realtime }) {
    const { committed } = history;
    const edges = committed.map(() => []); // [{ to, kind, key }]
    const number = new Map(committed.map((transaction, i) => [transaction, i]));
    const add = (from, to, kind, key) => {
        const [a, b] = [number.get(from), number.get(to)];
        if (a !== undefined && b !== undefined && a !== b) edges[a].push({ to: b, kind, key });
    };
    const anomalies = [];
    for (const key of history.keys.values()) {
        addVersionEdges(key, add);
        findLostUpdates(key, anomalies);
    }
    if (session) addSessionEdges(committed, add);
    if (realtime) addTimeEdges(committed, add);

    const isForbidden = new Set(); // transactions on a forbidden cycle
    for (const { kind, allowed, rwMax } of LEVELS) {
        const cycle = findCycle(edges, new Set(allowed), rwMax, isForbidden);
        if (cycle === null) continue;
        for (const { from } of cycle) isForbidden.add(from);
        const isKnown = kind === 'G-single' && anomalies.some((other) => other.kind === 'lost update');
        if (!isKnown) anomalies.push({ kind, text: tell(cycle, committed) });
    }
    const groups = components(edges.length, (i) => edges[i].map(({ to }) => to));
    const isAllowed = (group) => group.length > 1 && !group.some((i) => isForbidden.has(i));
    return { anomalies, writeSkews: groups.filter(isAllowed).length };
}

function addVersionEdges({ name, order, writers, reads, unseen }, add) {
    const writer = (i) => writers.get(order[i]);
    for (let i = 1; i < order.length; i++) add(writer(i - 1), writer(i), 'ww', name);
    // What nobody saw came after all that was seen.
    for (const [, later] of unseen)
        if (order.length > 0) add(writer(order.length - 1), later, 'ww', name);
    for (const { transaction, length } of reads) {
        if (length > 0) add(writer(length - 1), transaction, 'wr', name);
        // Its own append may be the next version: then what follows comes by ww.
        if (length < order.length) add(transaction, writer(length), 'rw', name);
        else for (const [, later] of unseen) add(transaction, later, 'rw', name);
    }
}

/* Two that read the same version and both appended: the second overlooked the first. */
function findLostUpdates({ name, order, writers, reads }, anomalies) {
    const authors = new Set(order.map((value) => writers.get(value)));
    const byVersion = new Map();
    for (const { transaction, length } of reads) {
        if (!authors.has(transaction)) continue;
        const other = byVersion.get(length);
        if (other === undefined) byVersion.set(length, transaction);
        else
            anomalies.push({
                kind: 'lost update',
                text: `${describe(other)} and ${describe(transaction)} both appended to ${name} of length ${length}`,
            });
    }
}

function addSessionEdges(committed, add) {
    const latest = new Map();
    for (const transaction of [...committed].sort((a, b) => a.begin - b.begin)) {
        const before = latest.get(transaction.session);
        if (before !== undefined) add(before, transaction, 'so');
        latest.set(transaction.session, transaction);
    }
}

/* From the newest that had ended; the others are reached through them. What ended in an error has no
 * instant at which its end was known. */
function addTimeEdges(committed, add) {
    const events = [];
    for (const transaction of committed) {
        events.push({ at: transaction.begin, transaction, isBegin: true });
        if (transaction.outcome === 'committed') events.push({ at: transaction.end, transaction });
    }
    // At the same instant begins come first: that claims less.
    events.sort((a, b) => a.at - b.at || Number(b.isBegin ?? 0) - Number(a.isBegin ?? 0));
    let ended = [];
    for (const { transaction, isBegin } of events)
        if (isBegin) for (const before of ended) add(before, transaction, 'rt');
        else {
            ended = ended.filter((before) => before.end >= transaction.begin);
            ended.push(transaction);
        }
}

/* ---- search ---- */

/* A short cycle of these kinds, with at most rwMax rw and none of them neighbours, that touches no
 * transaction of `spared`; null when there is none. As [{ from, to, kind, key }]. */
function findCycle(edges, allowed, rwMax, spared) {
    const next = (node) => {
        const cameByRw = node % 2 === 1;
        const from = node >> 1;
        const found = [];
        if (spared.has(from)) return found;
        for (const edge of edges[from]) {
            if (spared.has(edge.to)) continue;
            if (allowed.has(edge.kind)) found.push({ node: 2 * edge.to, from, ...edge });
            else if (edge.kind === 'rw' && rwMax > 0 && !cameByRw)
                found.push({ node: 2 * edge.to + 1, from, ...edge });
        }
        return found;
    };
    const groups = components(2 * edges.length, (node) => next(node).map((step) => step.node));
    let best = null;
    for (const group of groups) {
        if (group.length < 2) continue;
        const members = new Set(group);
        // A closed walk passes a node that was not reached by rw.
        for (const start of group.filter((node) => node % 2 === 0).slice(0, 64)) {
            const cycle = shortestBack(start, members, next);
            if (cycle === null || cycle.filter(({ kind }) => kind === 'rw').length > rwMax) continue;
            if (best === null || cycle.length < best.length) best = cycle;
        }
        if (best !== null) break;
    }
    return best;
}

function shortestBack(start, members, next) {
    const cameFrom = new Map([[start, null]]);
    let front = [start];
    while (front.length > 0) {
        const ahead = [];
        for (const node of front)
            for (const step of next(node)) {
                if (step.node === start) return pathTo(node, cameFrom).concat(step);
                if (!members.has(step.node) || cameFrom.has(step.node)) continue;
                cameFrom.set(step.node, { node, step });
                ahead.push(step.node);
            }
        front = ahead;
    }
    return null;
}

function pathTo(node, cameFrom) {
    const steps = [];
    for (let at = cameFrom.get(node); at !== null; at = cameFrom.get(at.node)) steps.unshift(at.step);
    return steps;
}

/* Strongly connected components (Tarjan), without recursion: histories may be long. */
function components(count, next) {
    const index = new Int32Array(count).fill(-1);
    const low = new Int32Array(count);
    const isOnStack = new Uint8Array(count);
    const stack = [];
    const groups = [];
    let time = 0;
    for (let root = 0; root < count; root++) {
        if (index[root] !== -1) continue;
        const calls = [];
        const enter = (node) => {
            index[node] = low[node] = time++;
            stack.push(node);
            isOnStack[node] = 1;
            calls.push({ node, edges: next(node), at: 0 });
        };
        enter(root);
        while (calls.length > 0) {
            const call = calls.at(-1);
            const { node } = call;
            if (call.at < call.edges.length) {
                const to = call.edges[call.at++];
                if (index[to] === -1) enter(to);
                else if (isOnStack[to]) low[node] = Math.min(low[node], index[to]);
                continue;
            }
            calls.pop();
            if (calls.length > 0) {
                const parent = calls.at(-1).node;
                low[parent] = Math.min(low[parent], low[node]);
            }
            if (low[node] !== index[node]) continue;
            const group = [];
            do {
                group.push(stack.at(-1));
                isOnStack[stack.at(-1)] = 0;
            } while (stack.pop() !== node);
            groups.push(group);
        }
    }
    return groups;
}

const tell = (cycle, committed) =>
    cycle
        .map(({ from, kind, key }) => `T${committed[from].id} -${kind}${key === undefined ? '' : ` ${key}`}->`)
        .join(' ') + ` T${committed[cycle.at(-1).to].id}`;
