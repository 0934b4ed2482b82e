/*
 * network.mjs - members in network namespaces of their own, joined by a bridge: any two can be
 * cut off from each other while clients still reach them. Needs root and `ip`.
 */
import { spawnSync } from 'node:child_process';
import { SHERD_BIN } from './server.mjs';

const IP = '/usr/sbin/ip';

/* Null when it worked, else why not. */
function ip(...args) {
    const { status, stderr, error } = spawnSync(IP, args, { encoding: 'utf8' });
    return status === 0 ? null : `ip ${args.join(' ')}: ${error?.message ?? stderr.trim()}`;
}

const NETWORKS = 250;

/* Networks of other tests stand beside this one, also what a test that was killed left behind. Their numbers are in
 * the names of their bridges, and no two links have one name: who can add the link owns the number, its names and
 * its addresses. */
function claimNumber() {
    for (let i = 0; i < NETWORKS; i++) {
        const number = (process.pid + i) % NETWORKS;
        const problem = ip('link', 'add', bridgeName(number), 'type', 'bridge');
        if (problem === null) return { number };
        if (!problem.includes('File exists')) return { problem };
    }
    return { problem: `all ${NETWORKS} test networks are taken: remove links "sherd*br" that nobody uses` };
}

const bridgeName = (number) => `sherd${number}br`;

export class Network {
    #number;
    #count;
    #cuts = new Set(); // "i-j": i cannot send to j
    obstacle = null; // why there is no such network

    constructor(count) {
        this.#count = count;
        if (process.getuid() !== 0) {
            this.obstacle = 'network namespaces need root';
            return;
        }
        const { number, problem } = claimNumber();
        this.#number = number;
        this.obstacle = problem ?? this.#build();
        process.on('exit', () => this.remove());
        if (this.obstacle !== null) this.remove();
    }

    #namespace = (i) => `sherd${this.#number}n${i}`;
    #near = (i) => `sherd${this.#number}v${i}`;
    #inside = (i, ...args) => ip('-n', this.#namespace(i), ...args);
    #address = (last) => `10.213.${this.#number}.${last}`;
    host = (i) => this.#address(i + 1);

    #build() {
        const bridge = bridgeName(this.#number);
        let problem =
            ip('address', 'add', `${this.#address(254)}/24`, 'dev', bridge) ??
            ip('link', 'set', bridge, 'up');
        for (let i = 0; i < this.#count && problem === null; i++) {
            const [near, far] = [this.#near(i), `sherd${this.#number}w${i}`];
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
        if (this.#number === undefined) return;
        for (let i = 0; i < this.#count; i++) {
            // By name: a namespace may live on for a while, and its end of the link with it.
            ip('link', 'del', this.#near(i));
            ip('netns', 'del', this.#namespace(i));
        }
        ip('link', 'del', bridgeName(this.#number)); // last: then the number is free
        this.#number = undefined;
    }
}
