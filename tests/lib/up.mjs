/*
 * up.mjs - a cluster that `sherd up` runs, with the events that it tells.
 *
 * Whatever happens to the test, it is ended when the test's process exits, and its processes with
 * it.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MongoClient } from 'mongodb';
import { SHERD_BIN, explain, makeTempDir, removeTempDir, runToEnd, waitFor } from './server.mjs';

const READY_MS_MAX = 90_000; // much of it for sanitizers
const END_MS_MAX = 90_000;

const running = new Set(); // child processes
process.on('exit', () => {
    for (const child of running) child.kill('SIGKILL');
});

async function canListen(port) {
    const listener = createServer();
    const isFree = await new Promise((done) => {
        listener.once('error', () => done(false));
        listener.listen(port, '127.0.0.1', () => done(true));
    });
    await new Promise((done) => listener.close(done));
    return isFree;
}

/* The first of `count` ports in a row that nobody uses now. */
export async function freeRange(count) {
    for (;;) {
        const first = 10_000 + Math.floor(Math.random() * 9_000);
        const ports = Array.from({ length: count }, (_, i) => first + i);
        const free = await Promise.all(ports.map(canListen));
        if (free.every(Boolean)) return first;
    }
}

/* Orphans that nobody has reaped yet are dead, too. */
export const isAlive = (pid) => {
    try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
        return !['Z', 'X'].includes(stat.slice(stat.lastIndexOf(')') + 2)[0]);
    } catch {
        return false;
    }
};

export class Up {
    #child = null;
    #ended = null; // promise of {code, signal}
    #clients = new Set();

    /* args: more arguments, besides port and directory. */
    constructor(args = []) {
        this.args = args;
        this.root = makeTempDir();
        this.dir = join(this.root, 'cluster');
        this.events = []; // since the last start
        this.stderr = '';
    }

    /* Does not wait for anything. */
    async spawn() {
        this.port ??= await freeRange(4);
        this.events = [];
        this.stderr = '';
        const args = ['up', '--port', String(this.port), '--dir', this.dir, ...this.args];
        const child = spawn(SHERD_BIN, args, { stdio: ['ignore', 'pipe', 'pipe'] });
        this.#child = child;
        running.add(child);
        child.stderr.on('data', (data) => (this.stderr += data));
        createInterface({ input: child.stdout }).on('line', (line) => this.events.push(JSON.parse(line)));
        this.#ended = once(child, 'close').then(([code, signal]) => {
            running.delete(child);
            return { code, signal };
        });
        return this;
    }

    async start() {
        await this.spawn();
        this.ready = await this.waitEvent(({ event, role }) => event === 'ready' && role === 'cluster');
        return this;
    }

    get pid() {
        return this.#child.pid;
    }

    isRunning() {
        return this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null;
    }

    /* The first event, from the index `from` on, that `wanted` accepts. */
    async waitEvent(wanted, from = 0) {
        const find = () => this.events.slice(from).find(wanted);
        try {
            return await waitFor(() => find() ?? !this.isRunning(), {
                timeoutMs: READY_MS_MAX,
                what: `event ${wanted}`,
            }).then((found) => {
                if (found === true) throw new Error(`sherd up has ended before the event ${wanted}`);
                return found;
            });
        } catch (error) {
            const newest = this.events.slice(-8).map((event) => JSON.stringify(event));
            throw explain(error, [this.stderr, ...newest].join('\n'));
        }
    }

    /* Waits until what follows the event number `from` is a cluster that is ready. */
    waitReady = (from = 0) => this.waitEvent(({ event, role }) => event === 'ready' && role === 'cluster', from);

    /* The process id of a part, as the newest event says. */
    pidOf(name) {
        return this.events.findLast((event) => event.event === 'starting' && event.name === name)?.pid;
    }

    get pids() {
        return this.events.filter(({ event }) => event === 'starting').map(({ pid }) => pid);
    }

    /* A client of a router; closed by stop, kill and remove. */
    async client(router = 0) {
        const uri = `mongodb://127.0.0.1:${this.port + router}/`;
        const client = new MongoClient(uri, { serverSelectionTimeoutMS: 30_000 });
        this.#clients.add(client);
        return client.connect();
    }

    async closeClients() {
        const clients = [...this.#clients];
        this.#clients.clear();
        await Promise.all(clients.map((client) => client.close().catch(() => {})));
    }

    async waitEnd() {
        const timer = setTimeout(() => this.#child.kill('SIGKILL'), END_MS_MAX);
        const end = await this.#ended;
        clearTimeout(timer);
        return end;
    }

    async signal(name) {
        await this.closeClients();
        process.kill(this.pid, name);
        return this.waitEnd();
    }

    /* Another run of the program in the same directory. */
    run = (...args) => runToEnd(['up', '--dir', this.dir, ...args], { timeoutMs: END_MS_MAX });

    async remove() {
        await this.closeClients();
        if (this.isRunning()) await this.signal('SIGKILL');
        await waitFor(() => !this.pids.some(isAlive), { timeoutMs: END_MS_MAX, what: 'the end of all parts' });
        removeTempDir(this.root);
    }
}
