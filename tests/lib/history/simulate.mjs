/*
 * simulate.mjs - a small store with snapshot isolation, and clients that use it step by step in random
 * order: valid histories for the tests of the checker. Mistakes can be switched on one by one.
 *
 * Mistakes: `overwrites` (no conflict between writers), `readsLatest` (no snapshot), `readsDirty` (sees
 * what is not committed), `staleSnapshots` (a snapshot may be older than the newest commit that the
 * session knows), `forgets` (a commit that is acknowledged and not done), `repeats` (an append done
 * twice), `halves` (a commit of some keys now and of others later).
 */
import { random } from '../expect.mjs';

/* Lists with all their versions: per key [{ at, list }]. */
class Store {
    #versions = new Map();
    #owners = new Map(); // key -> open transaction that appended to it
    #clock = 0;
    #later = []; // what a commit left out, with the mistake `halves`

    constructor(mistakes, rand) {
        this.mistakes = mistakes;
        this.rand = rand;
    }

    #newest = (key) => this.#versions.get(key)?.at(-1) ?? { at: 0, list: [] };

    #at(key, instant) {
        const versions = this.#versions.get(key) ?? [];
        return versions.findLast(({ at }) => at <= instant)?.list ?? [];
    }

    begin() {
        const age = this.mistakes.staleSnapshots ? this.rand.below(4) : 0;
        return { snapshot: this.#clock - age, appends: new Map(), isOpen: true };
    }

    read(transaction, key) {
        let list = this.#at(key, transaction.snapshot);
        if (this.mistakes.readsLatest) ({ list } = this.#newest(key));
        const owner = this.#owners.get(key);
        if (this.mistakes.readsDirty && owner !== undefined && owner !== transaction)
            list = [...this.#newest(key).list, ...owner.appends.get(key)];
        return [...list, ...(transaction.appends.get(key) ?? [])];
    }

    /* False when somebody else was faster. */
    append(transaction, key, value) {
        const owner = this.#owners.get(key);
        const isTaken = owner !== undefined && owner !== transaction;
        const isNewer = this.#newest(key).at > transaction.snapshot;
        if (!this.mistakes.overwrites && (isTaken || isNewer)) return false;
        this.#owners.set(key, transaction);
        transaction.appends.set(key, [...(transaction.appends.get(key) ?? []), value]);
        return true;
    }

    end(transaction, isCommitted) {
        transaction.isOpen = false;
        for (const key of transaction.appends.keys())
            if (this.#owners.get(key) === transaction) this.#owners.delete(key);
        if (!isCommitted || (this.mistakes.forgets && this.rand() < 0.2)) return;
        this.#apply(this.#later);
        const all = [...transaction.appends];
        this.#later = this.mistakes.halves ? all.splice(1) : [];
        this.#apply(all);
    }

    #apply(appends) {
        const at = ++this.#clock;
        for (const [key, values] of appends) {
            const again = this.mistakes.repeats && this.rand() < 0.3 ? values : [];
            const list = [...this.#newest(key).list, ...values, ...again];
            if (!this.#versions.has(key)) this.#versions.set(key, []);
            this.#versions.get(key).push({ at, list });
        }
    }

    final() {
        this.#apply(this.#later);
        return new Map([...this.#versions.keys()].map((key) => [key, this.#newest(key).list]));
    }
}

/* { transactions, final } of sessions that take turns at random. */
export function simulate(seed, { sessions = 4, keys = 4, count = 30, opsMax = 4, mistakes = {} } = {}) {
    const rand = random(seed);
    const store = new Store(mistakes, rand);
    const transactions = [];
    const open = new Map(); // session -> { record, transaction, left }
    let now = 0;
    let value = 0;
    while (transactions.length < count || open.size > 0) {
        const session = rand.below(sessions);
        now++;
        if (!open.has(session)) {
            if (transactions.length >= count) continue;
            const record = { id: transactions.length, session, begin: now, ops: [] };
            transactions.push(record);
            open.set(session, { record, transaction: store.begin(), left: 1 + rand.below(opsMax) });
            continue;
        }
        const { record, transaction, left } = open.get(session);
        const finish = (outcome, isCommitted) => {
            store.end(transaction, isCommitted);
            Object.assign(record, { outcome, end: ++now });
            open.delete(session);
        };
        if (left === 0) {
            const luck = rand();
            if (luck < 0.1) finish('aborted', false);
            else if (luck < 0.2) finish('unknown', rand() < 0.5);
            else finish('committed', true);
            continue;
        }
        open.get(session).left--;
        const key = `k${rand.below(keys)}`;
        if (rand() < 0.5) {
            record.ops.push({ read: key, list: store.read(transaction, key) });
            continue;
        }
        record.ops.push({ append: key, value: ++value });
        if (!store.append(transaction, key, value)) finish('aborted', false);
    }
    return { transactions, final: store.final() };
}
