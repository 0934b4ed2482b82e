/*
 * silent_clients.mjs - connections that send nothing, held by a process of their own: a process has
 * only so many descriptors, and those of the test are not to be used up.
 *
 * As a program: node silent_clients.mjs PORT COUNT ADDRESS. It says {"open", "closed"} in JSON
 * lines while that changes, and ends with its input.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { waitFor } from './server.mjs';

const AT_ONCE = 200;

/* Opens `count` connections from `address`; a connection the node closes is counted as closed. */
export class SilentClients {
    constructor(port, count, address = '127.0.0.1') {
        this.count = count;
        this.open = 0;
        this.closed = 0;
        const args = [fileURLToPath(import.meta.url), String(port), String(count), address];
        this.child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
        this.ended = once(this.child, 'exit');
        createInterface({ input: this.child.stdout }).on('line', (line) => {
            Object.assign(this, JSON.parse(line));
        });
    }

    /* All of them are open, or were closed by the node. */
    async waitTried(timeoutMs = 10_000) {
        await waitFor(() => this.open + this.closed === this.count, {
            timeoutMs,
            what: 'silent connections',
        });
    }

    async end() {
        this.child.stdin.end();
        await this.ended;
    }
}

async function hold(port, count, address) {
    let open = 0;
    let closed = 0;
    let said = '';
    const say = () => {
        const line = JSON.stringify({ open, closed });
        if (line !== said) console.log((said = line));
    };
    setInterval(say, 20);
    process.stdin.on('end', () => process.exit(0)).resume();
    const one = () =>
        new Promise((done) => {
            let isOpen = false;
            const socket = connect({ port, host: '127.0.0.1', localAddress: address });
            socket.on('connect', () => {
                isOpen = true;
                open++;
                done();
            });
            socket.on('error', () => {});
            socket.on('close', () => {
                if (isOpen) open--;
                closed++;
                done();
            });
            socket.resume();
        });
    for (let left = count; left > 0; left -= AT_ONCE)
        await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, one));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const [port, count, address] = process.argv.slice(2);
    await hold(Number(port), Number(count), address);
}
