/*
 * run.mjs - the published driver specification tests against a node of ours.
 *
 *     node tests/spec/run.mjs [--json FILE] [--raise-floors] [SUITE...]
 *
 * "SUITE@rs" runs against a replica set of three members instead of a standalone node, "SUITE@sharded" through a router.
 *
 * Prints passes, failures and skips per suite, writes the reasons of failures to FILE (build/spec-
 * report.json), and fails when a suite has fewer passes than floors.json says: it can only get
 * better. --raise-floors writes the present numbers there. Needs the tests and their runner beside
 * the checkout, or at SPEC_DIR; where they are not, it says so and passes.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { startCluster } from '../lib/cluster.mjs';
import { startReplicaSet } from '../lib/replica_set.mjs';
import { makeTempDir, startServer } from '../lib/server.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const REPO = resolve(HERE, '..', '..');
const SPEC_DIR = process.env.SPEC_DIR ?? resolve(REPO, '..', 'shared');
const FLOORS = join(HERE, 'floors.json');
const SUITES = [
    'crud',
    'collection-management',
    'index-management',
    'run-command',
    'command-logging-and-monitoring',
    'bson-corpus',
    'gridfs',
    'retryable-reads',
    'sessions',
    'versioned-api',
    'unified-test-format',
    'server-discovery-and-monitoring',
    'read-write-concern',
    'retryable-writes@rs',
    'retryable-reads@rs',
    'sessions@rs',
    'read-write-concern@rs',
    'crud@rs',
    'change-streams@rs',
    'server-discovery-and-monitoring@rs',
    'transactions@rs',
    'transactions-convenient-api@rs',
    'crud@sharded',
    'retryable-writes@sharded',
    'run-command@sharded',
    'collection-management@sharded',
    'index-management@sharded',
    'prose@rs', // among others: connections survive a step-down
];
const ON_REPLICA_SET = '@rs';
const THROUGH_ROUTER = '@sharded';
const suiteOf = (name) => name.replace(ON_REPLICA_SET, '').replace(THROUGH_ROUTER, '');
const PROSE = 'prose'; // what the specifications describe in words only: a program of the runner
const DRIVER = '7'; // the runner's name for the driver that these tests have installed

const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
        json: { type: 'string', default: join(REPO, 'build', 'spec-report.json') },
        'raise-floors': { type: 'boolean', default: false },
    },
});

if (!existsSync(join(SPEC_DIR, 'spec-runner', 'run.mjs'))) {
    console.log('skipped: the specification tests are not beside this checkout (SPEC_DIR)');
    console.log('0 passed, 0 failed, 1 skipped');
    process.exit(0);
}

/* The runner works on a copy: its folder may be read-only and must find our driver. */
function copyRunner() {
    const runner = join(makeTempDir('sherd-spec-'), 'runner');
    cpSync(join(SPEC_DIR, 'spec-runner'), runner, { recursive: true });
    symlinkSync(join(HERE, '..', 'node_modules'), join(runner, 'node_modules'));
    return runner;
}

async function startFor(name) {
    if (name.endsWith(ON_REPLICA_SET)) return startReplicaSet({ settings: { electionTimeoutMillis: 10_000 } });
    if (!name.endsWith(THROUGH_ROUTER)) return startServer();
    const cluster = await startCluster();
    return { uri: cluster.routers[0].uri, remove: () => cluster.remove() };
}

async function runSuite(runner, name) {
    const suite = suiteOf(name);
    // A deployment per suite, so that one that dies does not fail the others.
    const server = await startFor(name);
    const report = join(runner, `${name}.json`);
    const args = ['--driver', DRIVER, '--uri', server.uri, '--json', report];
    if (suite === PROSE) {
        args.unshift(join(runner, 'prose.mjs'));
    } else {
        // By a list, so that files are named with their suite, as the runner's list of failings
        // of the driver itself wants them.
        const list = join(runner, `${suite}.list`);
        writeFileSync(list, `${suite}\n`);
        args.unshift(join(runner, 'run.mjs'));
        args.push('-q', '--list', list, join(SPEC_DIR, 'specs', 'source'));
    }
    try {
        const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
        await once(child, 'exit');
    } finally {
        await server.remove().catch((error) => console.log(`${suite}: ${error.message}`));
    }
    if (!existsSync(report)) return [];
    const { results } = JSON.parse(readFileSync(report, 'utf8'));
    if (suite === PROSE) return results.map(({ name: description, ...test }) => ({ description, ...test }));
    return results.flatMap(({ file, tests }) => tests.map((test) => ({ file, ...test })));
}

const floors = JSON.parse(readFileSync(FLOORS, 'utf8'));
const runner = copyRunner();
const failures = {};
let passed = 0;
let failed = 0;
let skipped = 0;
const isThere = (suite) =>
    suite === PROSE + ON_REPLICA_SET ||
    existsSync(join(SPEC_DIR, 'specs', 'source', suiteOf(suite)));
for (const suite of positionals.length > 0 ? positionals : SUITES) {
    if (!isThere(suite)) {
        console.log(`${suite}: skipped, there is no such suite`);
        skipped++;
        continue;
    }
    const tests = await runSuite(runner, suite);
    const count = (...statuses) => tests.filter(({ status }) => statuses.includes(status)).length;
    const passes = count('pass');
    const floor = floors[suite] ?? 0;
    failures[suite] = tests
        .filter(({ status }) => !['pass', 'skip'].includes(status))
        .map(({ file, description, status, reason }) => ({ file, description, status, reason }));
    const isBelow = passes < floor || passes === 0; // one that did not run shows nothing
    const verdict = isBelow ? `BELOW its floor of ${floor}` : `floor ${floor}`;
    const counts = `${passes} pass, ${failures[suite].length} fail, ${count('skip')} skip`;
    console.log(`${suite}: ${counts} (${verdict})`);
    if (isBelow) failed++;
    else passed++;
    if (values['raise-floors']) floors[suite] = Math.max(floor, passes);
}
mkdirSync(dirname(resolve(values.json)), { recursive: true });
writeFileSync(values.json, `${JSON.stringify(failures, null, 4)}\n`);
if (values['raise-floors']) writeFileSync(FLOORS, `${JSON.stringify(floors, null, 4)}\n`);
console.log(`reasons of failures: ${values.json}`);
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = failed === 0 ? 0 : 1;
