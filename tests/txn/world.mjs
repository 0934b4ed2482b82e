/*
 * world.mjs - a replica set of three for tests of transactions, and what can happen to it.
 *
 * TXN_KEEP: a folder for logs and data of a set that failed.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { checkAgreement, waitForCalm } from '../repl/agreement.mjs';
import { DB, isExpected } from '../repl/load.mjs';

export { DB };
export const MEMBERS = 3;
const HIT_MS_MAX = 20_000;
const KEEP = process.env.TXN_KEEP;

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class World {
    #network;
    #since = null; // the oplogs are equal up to here
    #oldLogs = new Map();

    /* network: of tests/lib/network.mjs, or null for none. */
    constructor(network = null, { args = [] } = {}) {
        this.#network = network?.obstacle === null ? network : null;
        this.args = args;
    }

    async start() {
        this.set = await startReplicaSet({
            members: MEMBERS,
            settings: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
            args: ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '2', '--oplogSize', '990', ...this.args],
            server: this.#network === null ? {} : this.#network.server,
        });
        return this;
    }

    get members() {
        return this.set.members;
    }

    others = (member) => this.members.filter((other) => other !== member);
    primary = () => this.set.waitForPrimary();

    /* Of the whole set. Nothing is tried again behind our back, except commits, as drivers must. */
    connect(options = {}) {
        return this.set.client({
            retryWrites: false,
            retryReads: false,
            serverSelectionTimeoutMS: 2500,
            socketTimeoutMS: 4000,
            waitQueueTimeoutMS: 4000,
            ...options,
        });
    }

    async restart(member) {
        this.#keepLog(member);
        await member.start();
    }

    #keepLog(member) {
        this.#oldLogs.set(member, [...(this.#oldLogs.get(member) ?? []), ...member.log]);
    }

    async restartDead() {
        for (const member of this.members) if (!member.isRunning()) await this.restart(member);
    }

    /* ---- faults ---- */

    async killPrimary(rand) {
        const primary = await this.primary();
        await primary.kill();
        await pause(300 + rand.below(1200));
        await this.restart(primary);
    }

    async killSecondary(rand) {
        const secondary = rand.pick(this.others(await this.primary()));
        await secondary.kill();
        await pause(rand.below(500));
        await this.restart(secondary);
    }

    /* May be refused where nobody has caught up in time. */
    async stepDown() {
        const primary = await this.primary();
        await this.set
            .command(primary, { replSetStepDown: 2, secondaryCatchUpPeriodSecs: 1 })
            .catch((error) => {
                if (!isExpected(error) && ![50, 262].includes(error.code)) throw error;
            });
        await this.primary();
    }

    /* A primary that sleeps and wakes up when there is another one. */
    async pausePrimary() {
        const primary = await this.primary();
        primary.signal('SIGSTOP');
        try {
            await this.set.waitForSuccessor(primary);
        } finally {
            primary.signal('SIGCONT');
        }
    }

    async pauseSecondary(rand) {
        const secondary = rand.pick(this.others(await this.primary()));
        secondary.signal('SIGSTOP');
        await pause(200 + rand.below(800));
        secondary.signal('SIGCONT');
    }

    /* Clients reach it, the other members do not. */
    async cutPrimary(rand) {
        const primary = await this.primary();
        this.#network.cut(this.members.indexOf(primary));
        try {
            await this.set.waitForSuccessor(primary);
            await pause(rand.below(500));
        } finally {
            this.#network.heal();
        }
    }

    async cutSecondary(rand) {
        this.#network.cut(this.members.indexOf(rand.pick(this.others(await this.primary()))));
        await pause(300 + rand.below(1000));
        this.#network.heal();
    }

    /* Indexes that come and go below open transactions; one becomes multikey by their writes. */
    async buildIndexes(rand) {
        const client = await this.connect();
        const end = Date.now() + 500 + rand.below(1000);
        while (Date.now() < end)
            for (const { name } of await client.db(DB).listCollections({}, { nameOnly: true }).toArray()) {
                const indexes = [{ key: { list: 1 }, name: 'list' }, { key: { by: 1, _id: -1 }, name: 'by' }];
                await client.db(DB).command({ createIndexes: name, indexes, writeConcern: { w: 1 } });
                await client.db(DB).command({ dropIndexes: name, index: rand.pick(['list', 'by', '*']), writeConcern: { w: 1 } });
            }
    }

    /* Whatever is open on the primary is over, again and again. */
    async killSessions(rand) {
        const primary = await this.primary();
        for (let left = 3 + rand.below(5); left > 0; left--) {
            await this.set.command(primary, { killAllSessions: [] });
            await pause(rand.below(200));
        }
    }

    async nothing(rand) {
        await pause(300 + rand.below(500));
    }

    /* What `alone(primary)` writes, the others never get: they are dead meanwhile, and elect another one
     * while the primary sleeps. Resolves to its result once the primary has rolled back; tried again
     * where it stepped down before `alone` was through (then it resolves to null). */
    rollBack(alone) {
        const tryOnce = async () => {
            const primary = await this.primary();
            const others = this.others(primary);
            const countDone = () => primary.log.filter(({ msg }) => msg === 'Rollback done').length;
            const before = countDone();
            await Promise.all(others.map((member) => member.kill()));
            const result = await alone(primary);
            primary.signal('SIGSTOP');
            try {
                await this.restartDead();
                await this.set.waitForSuccessor(primary);
            } finally {
                primary.signal('SIGCONT');
            }
            if (result === null) return null;
            await waitFor(() => countDone() > before, { timeoutMs: HIT_MS_MAX, what: 'a rollback' });
            return { result };
        };
        return waitFor(tryOnce, { timeoutMs: 60_000, what: 'a primary that writes alone' }).then(({ result }) => result);
    }

    /* Names of the faults above that are possible here. */
    get faults() {
        const all = ['killPrimary', 'killSecondary', 'stepDown', 'pausePrimary', 'pauseSecondary', 'buildIndexes',
            'killSessions', 'nothing'];
        return this.#network === null ? all : [...all, 'cutPrimary', 'cutSecondary'];
    }

    /* From now on the member ends at the failpoint, after `skip` others came by. */
    arm = (member, failpoint, { skip = 0 } = {}) =>
        this.set.crashAt(member, failpoint, skip === 0 ? 'alwaysOn' : { skip });

    async waitForCrash(member, failpoint) {
        const what = `a crash at ${failpoint}`;
        await waitFor(() => !member.isRunning(), { timeoutMs: HIT_MS_MAX, what });
        const { code, signal } = await member.waitEnd();
        assert.equal(code, 137, `ended with ${signal ?? code}: ${member.stderr}`);
        await member.closeClients();
    }

    /* ---- ends ---- */

    calm = () => waitForCalm(this.set);

    /* All members have the same data, the same oplog, and sound indexes. */
    async checkAgreement(where) {
        await this.calm();
        this.#since = await checkAgreement(this.set, { where, trusted: new Set(), since: this.#since });
    }

    /* Without a failure members stop cleanly, so that leaks of a sanitized build are seen. */
    async discard(hasFailed) {
        if (hasFailed && KEEP !== undefined) this.#keep();
        for (const member of hasFailed ? this.members : [])
            if (member.isRunning()) {
                member.signal('SIGCONT');
                await member.kill();
            }
        await this.set.remove();
    }

    #keep() {
        const folder = join(KEEP, `${process.pid}-${Date.now()}`);
        mkdirSync(folder, { recursive: true });
        for (const member of this.members) if (member.isRunning()) member.signal('SIGSTOP');
        for (const [i, member] of this.members.entries()) {
            this.#keepLog(member);
            const lines = this.#oldLogs.get(member).map((line) => JSON.stringify(line));
            writeFileSync(join(folder, `${i}.log`), [...lines, member.stderr].join('\n'));
            cpSync(member.dbpath, join(folder, `${i}.db`), { recursive: true });
        }
        console.error(`kept in ${folder}`);
    }
}
