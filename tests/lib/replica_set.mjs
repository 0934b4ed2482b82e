/*
 * replica_set.mjs - a replica set of its own for a test.
 *
 *     const set = await startReplicaSet({ members: 3 });
 *     const client = await set.client();          // finds the primary by itself
 *     await (await set.findPrimary()).kill();     // kill -9
 *     await set.waitForPrimary();
 *     await set.remove();
 *
 * Members are Servers (server.mjs) on fixed ports, so that they keep their names over a restart.
 */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { MongoClient } from 'mongodb';
import { Server, explain, waitFor } from './server.mjs';

const ELECTION_MS_MAX = 30_000;
const EXCEEDED_TIME_LIMIT = 262;

/* Ports nobody uses now. They are given back before the members start: somebody else may be
 * faster, which is rare enough for tests. */
export async function freePorts(count) {
    const listeners = [];
    for (let i = 0; i < count; i++) {
        const listener = createServer();
        await new Promise((done, fail) => {
            listener.once('error', fail);
            listener.listen(0, '127.0.0.1', done);
        });
        listeners.push(listener);
    }
    const ports = listeners.map((listener) => listener.address().port);
    await Promise.all(listeners.map((listener) => new Promise((done) => listener.close(done))));
    return ports;
}

export class ReplicaSet {
    #clients = new Set();

    /*
     * members: how many, or one object per member that goes into the configuration (priority, votes,
     * arbiterOnly, ...). args: more options of every member. settings: of the configuration. config:
     * more of the configuration. server: options of every Server, or a function of the member's index
     * that yields them.
     */
    constructor({ members = 3, name = 'rs0', args = [], settings = {}, config = {}, server = {} } = {}) {
        this.name = name;
        this.config = config;
        this.memberOptions =
            typeof members === 'number' ? Array.from({ length: members }, () => ({})) : members;
        this.args = args;
        this.settings = { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 500, ...settings };
        this.serverOptions = server;
        this.members = []; // Server
    }

    /* Starts all members, initiates the set and waits for a primary. */
    async start() {
        const ports = await freePorts(this.memberOptions.length);
        this.members = ports.map((port, i) => {
            const { args = [], ...options } =
                typeof this.serverOptions === 'function'
                    ? this.serverOptions(i)
                    : this.serverOptions;
            return new Server({
                ...options,
                port,
                args: ['--replSet', this.name, ...this.args, ...args],
            });
        });
        await Promise.all(this.members.map((member) => member.start()));
        const config = {
            _id: this.name,
            version: 1,
            members: ports.map((port, i) => ({
                _id: i,
                host: `${this.members[i].host}:${port}`,
                ...this.memberOptions[i],
            })),
            settings: this.settings,
            ...this.config,
        };
        await this.command(this.members[0], { replSetInitiate: config });
        await this.waitForPrimary();
        await this.waitForSecondaries();
        return this;
    }

    /* As shards and routers name it. */
    get address() {
        const hosts = this.members.map(({ host, fixedPort }) => `${host}:${fixedPort}`);
        return `${this.name}/${hosts.join(',')}`;
    }

    /* For drivers: finds the primary, follows fail-overs. */
    get uri() {
        const hosts = this.members.map(({ host, fixedPort }) => `${host}:${fixedPort}`).join(',');
        return `mongodb://${hosts}/?replicaSet=${this.name}`;
    }

    /* A client of the whole set; closed by remove. */
    async client(options = {}) {
        const client = new MongoClient(this.uri, {
            serverSelectionTimeoutMS: ELECTION_MS_MAX,
            heartbeatFrequencyMS: 500,
            ...options,
        });
        this.#clients.add(client);
        return client.connect();
    }

    /* A client of one member, whatever its state. */
    async direct(member, options = {}) {
        return member.client({ readPreference: 'primaryPreferred', ...options });
    }

    /* One command on "admin" of one member, through a connection of its own. */
    async command(member, command, db = 'admin') {
        const client = new MongoClient(member.uri, { serverSelectionTimeoutMS: 5000 });
        try {
            await client.connect();
            return await client.db(db).command(command);
        } catch (error) {
            throw explain(error, member.lastWords());
        } finally {
            await client.close();
        }
    }

    /* Whoever comes to the failpoint waits there. Resolves to a function that waits for somebody. */
    async hang(member, failpoint, blockTimeMS = 60_000) {
        const { count } = await this.command(member, {
            configureFailPoint: failpoint,
            mode: 'alwaysOn',
            data: { blockTimeMS },
        });
        return () =>
            this.command(member, {
                waitForFailPoint: failpoint,
                timesEntered: Number(count) + 1,
                maxTimeMS: 20_000,
            });
    }

    /* From now on the member ends at the failpoint; so soon, perhaps, that nobody hears its answer to this. */
    async crashAt(member, failpoint, mode = 'alwaysOn') {
        const command = { configureFailPoint: failpoint, mode, data: { crash: true } };
        await this.command(member, command).catch(async (error) => {
            if (!(await member.isEnding())) throw error;
        });
    }

    async release(member, failpoint) {
        await this.command(member, { configureFailPoint: failpoint, mode: 'off' });
    }

    async hello(member) {
        if (!member.isRunning()) return null;
        try {
            return await this.command(member, { hello: 1 });
        } catch {
            return null;
        }
    }

    /* The member that is primary and takes writes, or null. */
    async findPrimary() {
        for (const member of this.members)
            if ((await this.hello(member))?.isWritablePrimary) return member;
        return null;
    }

    async waitForPrimary({ other, timeoutMs = ELECTION_MS_MAX } = {}) {
        return this.#wait(
            async () => {
                const primary = await this.findPrimary();
                return primary !== null && primary !== other ? primary : null;
            },
            { timeoutMs, what: 'a primary' },
        );
    }

    /* A failure tells of members that have ended: they may be its reason. */
    async #wait(condition, options) {
        try {
            return await waitFor(condition, options);
        } catch (error) {
            for (const member of this.members) explain(error, member.lastWords());
            throw error;
        }
    }

    /* Makes somebody else primary, until a majority without `old` has an entry of its term: from
     * now on what only `old` has cannot come back, however late it wakes up. */
    async waitForSuccessor(old) {
        const note = { appendOplogNote: 1, data: { msg: 'successor' }, writeConcern: { w: 'majority' } };
        const heirs = this.members.filter((member) => member !== old);
        let turn = 0;
        const isSure = async () => {
            for (const member of heirs) {
                if (!(await this.hello(member))?.isWritablePrimary) continue;
                return this.command(member, { ...note, maxTimeMS: 5000 }).then(
                    ({ writeConcernError }) => writeConcernError === undefined,
                    () => false,
                );
            }
            const heir = heirs[turn++ % heirs.length]; // nobody waits for an election time-out
            await this.command(heir, { replSetStepUp: 1 }).catch(() => {});
            return false;
        };
        await this.#wait(isSure, { timeoutMs: ELECTION_MS_MAX, what: 'a new primary and its majority' });
    }

    async secondaries() {
        const found = [];
        for (const member of this.members)
            if ((await this.hello(member))?.secondary) found.push(member);
        return found;
    }

    /* Until every running member is primary, secondary or arbiter. */
    async waitForSecondaries({ timeoutMs = ELECTION_MS_MAX } = {}) {
        await this.#wait(
            async () => {
                for (const member of this.members) {
                    if (!member.isRunning()) continue;
                    const hello = await this.hello(member);
                    if (!(hello?.isWritablePrimary || hello?.secondary || hello?.arbiterOnly))
                        return false;
                }
                return true;
            },
            { timeoutMs, what: 'all members in a serving state' },
        );
    }

    /* A planned fail-over; returns the new primary. Tried again while nobody can take over: members
     * that stepped down themselves may not for `secs`. */
    async stepDown({ secs = 5, force = false } = {}) {
        const primary = await this.waitForPrimary();
        const isDown = async () => {
            try {
                await this.command(primary, { replSetStepDown: secs, force });
            } catch (error) {
                if (error.code === EXCEEDED_TIME_LIMIT) return false;
                /* The connection may go with the step-down. */
                if (error.code !== undefined) throw error;
            }
            return true;
        };
        await this.#wait(isDown, { timeoutMs: ELECTION_MS_MAX, what: 'step-down' });
        return this.waitForPrimary({ other: this.members.length > 1 ? primary : undefined });
    }

    /* All members have the same, and their indexes fit; also no index build is left over. */
    async checkCollection(collection, dbName = 'test') {
        await this.waitForReplication();
        const hashes = new Set();
        for (const member of this.members) {
            const found = await this.command(member, { validate: collection, full: true }, dbName);
            assert.ok(found.valid, JSON.stringify(found));
            hashes.add((await this.command(member, { dbHash: 1 }, dbName)).md5);
        }
        assert.equal(hashes.size, 1, 'dbHash');
        const primary = await this.waitForPrimary();
        await this.#wait(async () => (await this.buildCount(primary)) === 0, {
            timeoutMs: 10_000,
            what: 'no documents of builds',
        });
    }

    /* Index builds that a member knows of. By a filter: the count that is kept may be wrong after a
     * kill. */
    async buildCount(member) {
        const count = { count: 'system.indexBuilds', query: { _id: { $exists: true } } };
        return (await this.command(member, count, 'config')).n;
    }

    /* Until the members that run have applied what the primary has now. */
    async waitForReplication({ timeoutMs = ELECTION_MS_MAX } = {}) {
        const primary = await this.waitForPrimary();
        const opTimeOf = async (member) => (await this.hello(member))?.lastWrite?.opTime;
        const target = await opTimeOf(primary);
        /* By the term first: one that has to roll back may have later timestamps. */
        const isBehind = ({ ts, t }) => t < target.t || (t === target.t && ts.lessThan(target.ts));
        await this.#wait(
            async () => {
                for (const member of this.members) {
                    if (!member.isRunning()) continue;
                    const at = await opTimeOf(member);
                    if (at === undefined || isBehind(at)) return false;
                }
                return true;
            },
            { timeoutMs, what: 'replication to all members' },
        );
    }

    async closeClients() {
        const clients = [...this.#clients];
        this.#clients.clear();
        await Promise.all(clients.map((client) => client.close().catch(() => {})));
    }

    /* Ends all members and removes their files. */
    async remove() {
        await this.closeClients();
        const ends = await Promise.allSettled(this.members.map((member) => member.remove()));
        const failed = ends.find((end) => end.status === 'rejected');
        if (failed !== undefined) throw failed.reason;
    }
}

export async function startReplicaSet(options) {
    const set = new ReplicaSet(options);
    try {
        return await set.start();
    } catch (error) {
        await set.remove().catch(() => {});
        throw error;
    }
}
