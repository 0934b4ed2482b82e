/*
 * server.mjs - a Sherd node of its own for a test: starts it on a free port in a fresh directory,
 * waits for the log line that says it is ready, stops, kills and restarts it, and removes
 * everything.
 *
 * Whatever happens to the test, its nodes are ended (by process id) and its directories removed
 * when the test's process exits.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { MongoClient } from 'mongodb';

const REPO = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');
export const SHERD_BIN = process.env.SHERD_BIN ?? join(REPO, 'build', 'sherd');

const START_MS_MAX = 90_000; // a sanitized build may have a minute of oplog to apply again
const STOP_MS_MAX = 30_000;
const ENDING_MS_MAX = 5000;
const READY = 'Waiting for connections';

const running = new Set(); // child processes
const directories = new Set();

process.on('exit', () => {
    for (const child of running) child.kill('SIGKILL');
    for (const directory of directories) rmSync(directory, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1));

/* A directory that is removed when the process exits. */
export function makeTempDir(prefix = 'sherd-test-') {
    const directory = mkdtempSync(join(tmpdir(), prefix));
    directories.add(directory);
    return directory;
}

export function removeTempDir(directory) {
    rmSync(directory, { recursive: true, force: true });
    directories.delete(directory);
}

/* Starts the program and returns what became of it: for starts that are expected to fail. */
export async function runToEnd(args, { bin = SHERD_BIN, timeoutMs = START_MS_MAX, ...rest } = {}) {
    const child = spawn(bin, args, { stdio: ['ignore', 'pipe', 'pipe'], ...rest });
    running.add(child);
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (data) => (stdout += data));
    child.stderr.on('data', (data) => (stderr += data));
    const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
    const [code, signal] = await once(child, 'close');
    clearTimeout(timer);
    running.delete(child);
    return { code, signal, stdout, stderr };
}

export class Server {
    #child = null;
    #ended = null; // promise of {code, signal}
    #clients = new Set();
    #stacks = '';

    /*
     * args: more options of the program. dbpath: use this directory, which is then the caller's to
     * remove. bin, leading: the program and what stands before the options, normally `sherd serve`.
     * port: a fixed one, also after a restart; 0: any that is free. host: where clients find it.
     * hasData: false for a router.
     */
    constructor({
        args = [],
        dbpath,
        testCommands = true,
        bin = SHERD_BIN,
        leading = ['serve'],
        port = 0,
        host = '127.0.0.1',
        hasData = true,
    } = {}) {
        this.root = makeTempDir();
        this.dbpath = dbpath ?? join(this.root, 'db');
        this.args = args;
        this.fixedPort = port;
        this.host = host;
        this.testCommands = testCommands;
        this.bin = bin;
        this.leading = leading;
        this.hasData = hasData;
        this.log = []; // parsed lines since the last start
        this.stderr = '';
    }

    get pid() {
        return this.#child?.pid;
    }

    get uri() {
        return `mongodb://${this.host}:${this.port}/?directConnection=true`;
    }

    get socketPath() {
        return join(this.root, `mongodb-${this.port}.sock`);
    }

    async start() {
        if (!existsSync(this.bin))
            throw new Error(`no server program at ${this.bin}: build it or set SHERD_BIN`);
        mkdirSync(this.dbpath, { recursive: true });
        const args = [...this.leading];
        if (this.hasData) args.push('--dbpath', this.dbpath);
        args.push('--port', String(this.fixedPort));
        args.push('--unixSocketPrefix', this.root);
        if (this.testCommands) args.push('--setParameter', 'enableTestCommands=1');
        args.push(...this.args);
        this.log = [];
        this.stderr = '';
        const child = spawn(this.bin, args, { stdio: ['ignore', 'pipe', 'pipe'] });
        this.#child = child;
        running.add(child);
        child.stderr.on('data', (data) => (this.stderr += data));
        this.#ended = once(child, 'exit').then(([code, signal]) => {
            running.delete(child);
            this.#noteDeath(signal);
            return { code, signal };
        });
        this.port = await this.#waitReady(child);
        return this;
    }

    async #waitReady(child) {
        return new Promise((done, fail) => {
            const giveUp = (why) =>
                fail(
                    new Error(`node ${why}: ${this.stderr} ${JSON.stringify(this.log.slice(-5))}`),
                );
            const timer = setTimeout(() => giveUp('not ready in time'), START_MS_MAX);
            timer.unref();
            createInterface({ input: child.stdout }).on('line', (line) => {
                const entry = parseLogLine(line);
                this.log.push(entry);
                if (entry.msg !== READY) return;
                clearTimeout(timer);
                done(entry.attr.port);
            });
            child.once('error', fail);
            this.#ended.then(({ code, signal }) => {
                clearTimeout(timer);
                giveUp(`ended with ${signal ?? code} before it was ready`);
            });
        });
    }

    /* A connected client of the npm driver; closed by stop, kill and remove. */
    async client(options = {}, uri = this.uri) {
        const client = new MongoClient(uri, { serverSelectionTimeoutMS: 5000, ...options });
        this.#clients.add(client);
        return client.connect();
    }

    async closeClients() {
        const clients = [...this.#clients];
        this.#clients.clear();
        await Promise.all(clients.map((client) => client.close().catch(() => {})));
    }

    isRunning() {
        return (
            this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null
        );
    }

    /* Resolves to {code, signal} once the process is gone. */
    async waitEnd() {
        const timer = setTimeout(() => {
            this.#look();
            this.#child.kill('SIGKILL');
        }, STOP_MS_MAX);
        const end = await this.#ended;
        clearTimeout(timer);
        return end;
    }

    /* After a broken connection: whether the node is ending. Its sockets close before its end is seen. */
    async isEnding() {
        const isOver = waitFor(() => !this.isRunning(), { timeoutMs: ENDING_MS_MAX, what: 'its end' });
        return isOver.then(() => true, () => false);
    }

    /* "" while it runs, else how it ended and what it said last: for messages of failures. */
    lastWords() {
        if (this.#child === null || this.isRunning()) return '';
        const { exitCode, signalCode } = this.#child;
        const end = `the node on port ${this.port} has ended with ${signalCode ?? exitCode}`;
        return [end, this.stderr.trim(), this.#newestLines()].filter((text) => text !== '').join('\n');
    }

    /* A node that nobody has ended is told of at once: the test that fails knows only a closed connection. */
    #noteDeath(signal) {
        if (signal === 'SIGKILL' || (signal === null && !/Sanitizer|runtime error/.test(this.stderr))) return;
        process.stderr.write(`${this.lastWords()}\n`);
    }

    /* Where the threads of a node are that does not end; nothing where there is no debugger. */
    #look() {
        const gdb = ['-p', String(this.pid), '-batch', '-ex', 'thread apply all bt 12'];
        const { stdout } = spawnSync('gdb', gdb, { encoding: 'utf8', timeout: 20_000 });
        this.#stacks = (stdout ?? '').split('\n').filter((line) => /^(#|Thread)/.test(line)).join('\n');
    }

    #newestLines(count = 8) {
        return this.log
            .slice(-count)
            .map((entry) => JSON.stringify(entry))
            .join('\n');
    }

    signal(name) {
        process.kill(this.pid, name);
    }

    /* Clean stop; anything but exit code 0 is an error. */
    async stop() {
        await this.closeClients();
        if (!this.isRunning()) return;
        this.signal('SIGTERM');
        const { code, signal } = await this.waitEnd();
        if (code !== 0)
            throw explain(
                new Error(`node ended with ${signal ?? code} on SIGTERM: ${this.stderr}`),
                [this.#newestLines(), this.#stacks].filter((text) => text !== '').join('\n'),
            );
    }

    /* kill -9 */
    async kill() {
        if (this.isRunning()) this.signal('SIGKILL');
        await this.waitEnd();
        await this.closeClients();
    }

    async restart() {
        await this.stop();
        return this.start();
    }

    /* Stops the node if it runs and removes its files; the error of an unclean stop comes last. */
    async remove() {
        try {
            await this.stop();
        } finally {
            if (this.isRunning()) await this.kill();
            removeTempDir(this.root);
        }
    }

    /* The first log line, old or new, that `wanted` accepts. */
    async waitLog(wanted, timeoutMs = 5000) {
        try {
            return await waitFor(() => this.log.find(wanted), { timeoutMs, what: `log line ${wanted}` });
        } catch (error) {
            throw explain(error, this.lastWords() || `the newest lines:\n${this.#newestLines()}`);
        }
    }
}

export async function startServer(options) {
    const server = new Server(options);
    try {
        return await server.start();
    } catch (error) {
        removeTempDir(server.root);
        throw error;
    }
}

/* Adds to the message of an error, and to the text that is shown of it. */
export function explain(error, text) {
    if (text === '') return error;
    error.message += `; ${text}`;
    const frames = (error.stack ?? '').split('\n').filter((line) => /^ *at /.test(line));
    error.stack = [`${error.name}: ${error.message}`, ...frames].join('\n');
    return error;
}

function parseLogLine(line) {
    try {
        return JSON.parse(line);
    } catch {
        return { msg: null, malformed: line };
    }
}

/* Polls until `condition` yields something true; fails after the budget. */
export async function waitFor(condition, { timeoutMs = 5000, what = 'condition' } = {}) {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
        const value = await condition();
        if (value) return value;
        if (Date.now() > deadline) throw new Error(`${what}: not reached within ${timeoutMs} ms`);
        await new Promise((done) => setTimeout(done, 5));
    }
}
