/*
 * network.mjs - members in network namespaces of their own, joined by a bridge: any two can be
 * cut off from each other while clients still reach them. Needs root and `ip`.
 */
import { spawnSync } from 'node:child_process';
import { SHERD_BIN } from '../lib/server.mjs';

const IP = '/usr/sbin/ip';

/* Null when it worked, else why not. */
function ip(...args) {
    const { status, stderr, error } = spawnSync(IP, args, { encoding: 'utf8' });
    return status === 0 ? null : `ip ${args.join(' ')}: ${error?.message ?? stderr.trim()}`;
}

export class Network {
    #tag = `sh${process.pid % 1_000_000}`;
    #subnet = `10.213.${process.pid % 256}`;
    #count;
    #cuts = new Set(); // "i-j": i cannot send to j
    obstacle = null; // why there is no such network

    constructor(count) {
        this.#count = count;
        if (process.getuid() !== 0) this.obstacle = 'network namespaces need root';
        else this.obstacle = this.#build();
        process.on('exit', () => this.remove());
        if (this.obstacle !== null) this.remove();
    }

    #namespace = (i) => `${this.#tag}n${i}`;
    #inside = (i, ...args) => ip('-n', this.#namespace(i), ...args);
    host = (i) => `${this.#subnet}.${i + 1}`;

    #build() {
        const bridge = `${this.#tag}br`;
        let problem =
            ip('link', 'add', bridge, 'type', 'bridge') ??
            ip('address', 'add', `${this.#subnet}.254/24`, 'dev', bridge) ??
            ip('link', 'set', bridge, 'up');
        for (let i = 0; i < this.#count && problem === null; i++) {
            const [near, far] = [`${this.#tag}v${i}`, `${this.#tag}w${i}`];
            problem =
                ip('netns', 'add', this.#namespace(i)) ??
                ip('link', 'add', near, 'type', 'veth', 'peer', 'name', far) ??
                ip('link', 'set', far, 'netns', this.#namespace(i)) ??
                ip('link', 'set', near, 'master', bridge, 'up') ??
                this.#inside(i, 'address', 'add', `${this.host(i)}/24`, 'dev', far) ??
                this.#inside(i, 'link', 'set', 'lo', 'up') ??
                this.#inside(i, 'link', 'set', far, 'up');
        }
        return problem;
    }

    /* Options of the Server that is member `i`. */
    server = (i) => ({
        bin: IP,
        leading: ['netns', 'exec', this.#namespace(i), SHERD_BIN, 'serve'],
        host: this.host(i),
        args: ['--bind_ip', this.host(i)],
    });

    /* From now on member `i` cannot send to `j`: neither hears of the other, and who connects to `i`
     * waits for an answer. */
    cutPair(i, j) {
        if (this.#cuts.has(`${i}-${j}`)) return;
        this.#route('add', i, j);
        this.#cuts.add(`${i}-${j}`);
    }

    healPair(i, j) {
        if (this.#cuts.delete(`${i}-${j}`)) this.#route('del', i, j);
    }

    /* Member `i` and all others. */
    cut(i) {
        for (let other = 0; other < this.#count; other++) if (other !== i) this.cutPair(i, other);
    }

    heal() {
        for (const pair of [...this.#cuts]) this.healPair(...pair.split('-').map(Number));
    }

    #route(verb, from, to) {
        const problem = this.#inside(from, 'route', verb, 'blackhole', this.host(to));
        if (problem !== null) throw new Error(problem);
    }

    remove() {
        for (let i = 0; i < this.#count; i++) {
            // By name: a namespace may live on for a while, and its end of the link with it.
            ip('link', 'del', `${this.#tag}v${i}`);
            ip('netns', 'del', this.#namespace(i));
        }
        ip('link', 'del', `${this.#tag}br`);
    }
}
