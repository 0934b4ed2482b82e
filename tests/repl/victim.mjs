/*
 * victim.mjs - a replica set of three under load, and all that is known about its content.
 *
 * REPL_KEEP: a folder for logs and data of a set that failed.
 */
import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BSON } from 'mongodb';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { waitFor } from '../lib/server.mjs';
import { checkAgreement, waitForCalm } from './agreement.mjs';
import { Load } from './load.mjs';

export const MEMBERS = 3;
export const HIT_MS_MAX = 20_000;
const KEEP = process.env.REPL_KEEP;

export class Victim {
    #network;
    #seed;
    load = new Load();
    since = null; // the oplogs are equal up to here
    trusted = new Set(); // members whose counts must be right
    oldLogs = new Map(); // member -> log lines of earlier runs
    isRollbackExact = false; // what is lost must be in files

    constructor(network, seed) {
        this.#network = network;
        this.#seed = seed;
    }

    async start() {
        this.set = await startReplicaSet({
            members: MEMBERS,
            settings: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
            args: ['--wiredTigerCacheSizeGB', '0.25', '--syncdelay', '2', '--oplogSize', '990'],
            server: this.#network.obstacle === null ? this.#network.server : {},
        });
        await Load.prepare(await this.connect());
        await this.set.closeClients();
        for (const member of this.members) this.trusted.add(member);
        return this;
    }

    get members() {
        return this.set.members;
    }

    /* Of the whole set. No retries: a write whose outcome is unknown must stay so. */
    connect() {
        return this.set.client({
            retryWrites: false,
            retryReads: false,
            serverSelectionTimeoutMS: 2000,
            socketTimeoutMS: 4000,
        });
    }

    indexOf = (member) => this.members.indexOf(member);
    others = (member) => this.members.filter((other) => other !== member);
    primary = () => this.set.waitForPrimary();

    async kill(member) {
        this.trusted.delete(member);
        await member.kill();
    }

    /* `args`: more options for this start only. */
    async restart(member, ...args) {
        if (member.isRunning()) await member.stop();
        this.#keepLog(member);
        const usual = member.args;
        member.args = [...usual, ...args];
        try {
            await member.start();
        } finally {
            member.args = usual;
        }
    }

    #keepLog(member) {
        this.oldLogs.set(member, [...(this.oldLogs.get(member) ?? []), ...member.log]);
    }

    async restartDead() {
        for (const member of this.members) if (!member.isRunning()) await this.restart(member);
    }

    /* Makes the member end at a failpoint while `cause` goes on, and starts it again. */
    async crashAt(member, failpoint, cause, mode = 'alwaysOn') {
        await this.set.crashAt(member, failpoint, mode);
        await Promise.all([cause(), this.waitForCrash(member, failpoint)]);
    }

    async waitForCrash(member, failpoint) {
        const what = `a crash at ${failpoint}`;
        await waitFor(() => !member.isRunning(), { timeoutMs: HIT_MS_MAX, what });
        const { code, signal } = await member.waitEnd();
        assert.equal(code, 137, `ended with ${signal ?? code}: ${member.stderr}`);
        this.trusted.delete(member);
        await this.restart(member);
    }

    async stop(where) {
        await this.load.stop();
        await this.set.closeClients();
        await waitForCalm(this.set);
        const client = await this.connect();
        const lost = await this.load.check(client, where);
        this.checkRemoved(lost, where);
        this.since = await checkAgreement(this.set, {
            where,
            trusted: this.trusted,
            since: this.since,
        });
        for (const member of this.members) this.trusted.add(member); // validate corrected them
        await this.set.closeClients();
    }

    /* Documents that a rollback took away are in files of the member that had them. */
    checkRemoved(lost, where) {
        if (!this.isRollbackExact) return;
        this.isRollbackExact = false;
        const removed = new Set();
        for (const member of this.members)
            for (const document of readRemoved(join(member.dbpath, 'rollback')))
                removed.add(JSON.stringify(document));
        for (const [key, text] of lost)
            assert.ok(removed.has(text), `${where}: ${key} was removed and is in no file: ${text}`);
    }

    async discard(hasFailed) {
        if (hasFailed && KEEP !== undefined) this.#keep();
        await this.load.stop().catch(() => {});
        for (const member of this.members)
            if (member.isRunning()) {
                member.signal('SIGCONT');
                await member.kill();
            }
        await this.set.remove();
    }

    #keep() {
        const folder = join(KEEP, `${this.#seed}-${Date.now()}`);
        mkdirSync(folder, { recursive: true });
        for (const member of this.members) if (member.isRunning()) member.signal('SIGSTOP');
        for (const [i, member] of this.members.entries()) {
            this.#keepLog(member);
            const lines = this.oldLogs.get(member).map((line) => JSON.stringify(line));
            writeFileSync(join(folder, `${i}.log`), [...lines, member.stderr].join('\n'));
            cpSync(member.dbpath, join(folder, `${i}.db`), { recursive: true });
        }
        console.error(`kept in ${folder}`);
    }
}

function readRemoved(folder) {
    if (!existsSync(folder)) return [];
    const documents = [];
    for (const name of readdirSync(folder, { recursive: true })) {
        if (!name.endsWith('.bson')) continue;
        const bytes = readFileSync(join(folder, name));
        for (let at = 0; at < bytes.length; at += bytes.readInt32LE(at))
            documents.push(BSON.deserialize(bytes.subarray(at, at + bytes.readInt32LE(at))));
    }
    return documents;
}
