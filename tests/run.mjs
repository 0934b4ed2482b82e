/*
 * run.mjs - runs test files and ends with one line: N passed, N failed.
 *
 *     node tests/run.mjs [--name PATTERN] [--verbose] [--router] [--except NAME,...] [--jobs N] FILE-OR-FOLDER...
 *
 * Files run two at a time (--jobs), each with nodes of its own. Folders stand for their *.test.mjs files.
 * --except: files of folders that are left out, without .test.mjs.
 * --router: through a router with sharded collections (lib/router_suite.mjs); no file: all that it lists.
 *
 * UNSTABLE_MAX=n (default 0): if no more than n files fail, each is run once more, alone. One that passes then is
 * reported as unstable, with its failure, and the run passes: whole runs on a machine that others use are not lost
 * for one late timer. What is unstable has a mistake nevertheless, in the product or in the test.
 */
import { setMaxListeners } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from 'node:test';
import { parseArgs } from 'node:util';
import { ROUTER_SUITE, rowsOf, whyLeftOut } from './lib/router_suite.mjs';

const SLOWEST_SHOWN = 6;
// Files that fail before the rest is not run: a node that cannot even start lets each of them wait for minutes.
const FAILED_FILES_MAX = 8;
const HERE = dirname(fileURLToPath(import.meta.url));
// Of a whole file; a long crash test may take what it needs.
const FILE_MS_MAX =
    600_000 +
    5_000 * Number(process.env.CRASH_ROUNDS ?? 0) +
    15_000 * Number(process.env.REPL_ROUNDS ?? 0) +
    15_000 * Number(process.env.PARTITION_ROUNDS ?? 0) +
    3_000 * Number(process.env.TXN_HISTORIES ?? 0) +
    150_000 * Number(process.env.TXN_TRANSFERS ?? 0) +
    300_000 * Number(process.env.TXN_PREPARED ?? 0) +
    15_000 * Number(process.env.STREAM_ROUNDS ?? 0) +
    Number(process.env.TXN_LARGE ?? 0) +
    (process.env.DDL_KILLS === 'all' ? 1_200_000 : 0) +
    300_000 * Number(process.env.MOVE_KILLS ?? 0) +
    3_000 * Number(process.env.RANDOM_MOVES ?? 0) +
    (process.env.MOVE_PARTITIONS === 'all' ? 1_200_000 : 0) +
    (process.env.STORAGE_FAULTS === 'deep' ? 10_800_000 : 0);

const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
        name: { type: 'string' },
        verbose: { type: 'boolean', default: false },
        router: { type: 'boolean', default: false },
        except: { type: 'string', default: '' },
        jobs: { type: 'string', default: '2' },
    },
});

function testFiles(path) {
    if (!statSync(path).isDirectory()) return [path];
    const leftOut = values.except.split(',').map((name) => `${name}.test.mjs`);
    const known = readdirSync(path).filter((name) => name.endsWith('.test.mjs'));
    for (const name of leftOut) if (values.except !== '' && !known.includes(name)) throw new Error(`there is no ${name} to leave out`);
    return known
        .filter((name) => !leftOut.includes(name))
        .sort()
        .map((name) => join(path, name));
}

if (values.router) process.env.FIXTURE = 'router';
if (values.router && positionals.length === 0)
    positionals.push(...Object.keys(ROUTER_SUITE).map((name) => join(HERE, 'integration', `${name}.test.mjs`)));
const files = positionals.flatMap((path) => testFiles(resolve(path)));
const started = Date.now();
// How the runner reports tests that --name leaves out.
const NOT_CHOSEN = /does not match pattern/;
const counts = new Map(); // file -> { passed, failed, skipped }; no row: nothing in it was run
const routerRows = new Set(values.router ? files.flatMap(rowsOf) : []); // that no test was for yet
const isFile = (data) => data.nesting === 0 && files.includes(data.name);

function count(file, outcome) {
    if (!counts.has(file)) counts.set(file, { passed: 0, failed: 0, skipped: 0 });
    counts.get(file)[outcome]++;
}

const durations = new Map(); // file -> seconds of its tests

function noteDuration(data) {
    if (data.nesting === 0) durations.set(data.file, (durations.get(data.file) ?? 0) + data.details.duration_ms / 1000);
}

function report(outcome, data) {
    if (data.details?.type === 'suite' || isFile(data)) return;
    for (const row of routerRows) if (row.isFor(data.name)) routerRows.delete(row);
    const leftOut = values.router ? whyLeftOut(data.file, data.name) : undefined;
    if (NOT_CHOSEN.test(data.skip) && leftOut === undefined) return;
    if (leftOut !== undefined) data.skip = leftOut;
    // A test whose `test` is called in another file could not be run again, and its own file would seem empty.
    if (data.file !== undefined && !files.includes(data.file)) throw new Error(`${data.file} calls test() for a test of another file: ${data.name}`);
    count(data.file, outcome);
    const file = relative(HERE, data.file ?? '');
    if (outcome === 'failed')
        console.log(`FAIL ${file}: ${data.name}\n${describe(data.details.error)}`);
    else if (outcome === 'skipped') console.log(`skip ${file}: ${data.name} (${data.skip})`);
    else if (values.verbose)
        console.log(`ok   ${file}: ${data.name} (${Math.round(data.details.duration_ms)} ms)`);
}

function describe(error) {
    const text = error?.cause?.stack ?? error?.cause ?? error?.stack ?? String(error);
    return String(text)
        .split('\n')
        .filter((line) => !/node:internal|\(node:/.test(line))
        .slice(0, 40)
        .map((line) => `    ${line.slice(0, 1000)}`)
        .join('\n');
}

/* Names of tests that run: this version of node can only be told those. */
function namePatterns() {
    if (values.name !== undefined) return [new RegExp(values.name, 'i')];
    const leftOut = [...routerRows].filter(({ isLeftOut }) => isLeftOut).map(({ tests }) => tests.source);
    // Tests below one that matches run, too: the root must not.
    const none = ['<root>', ...leftOut].map((source) => `(?:${source})`).join('|');
    return leftOut.length === 0 ? undefined : [new RegExp(`^(?!${none})`)];
}

const givenUp = new AbortController();
setMaxListeners(0, givenUp.signal); // one for each file

function giveUpIfHopeless() {
    if (givenUp.signal.aborted || failedFiles().length <= FAILED_FILES_MAX) return;
    console.log(`FAIL more than ${FAILED_FILES_MAX} files have failed: the others are not run`);
    givenUp.abort();
}

function runFiles(chosen, concurrency) {
    return new Promise((done) => {
        const { signal } = givenUp;
        const stream = run({ files: chosen, concurrency, timeout: FILE_MS_MAX, testNamePatterns: namePatterns(), signal });
        stream.on('test:pass', noteDuration);
        stream.on('test:fail', noteDuration);
        stream.on('test:pass', (data) => report(data.skip === undefined ? 'passed' : 'skipped', data));
        stream.on('test:fail', (data) => {
            const kind = data.details?.error?.failureType;
            // A file or suite fails because a test in it did, unless it could not even run.
            if (kind === 'subtestsFailed') return;
            if (isFile(data) || data.details?.type === 'suite') {
                count(data.file ?? data.name, 'failed');
                console.log(`FAIL ${data.name}: ${kind}\n${describe(data.details.error)}`);
                return;
            }
            report('failed', data);
            giveUpIfHopeless();
        });
        stream.on('test:stderr', (data) => process.stderr.write(data.message));
        stream.on('test:stdout', (data) => values.verbose && process.stdout.write(data.message));
        stream.on('end', done);
        stream.resume();
    });
}

const failedFiles = () => files.filter((file) => counts.get(file)?.failed > 0);

await runFiles(files, Number(values.jobs));
const again = failedFiles();
if (again.length <= Number(process.env.UNSTABLE_MAX ?? 0))
    for (const file of again) {
        counts.delete(file);
        await runFiles([file], 1);
        if (!failedFiles().includes(file)) console.log(`UNSTABLE ${relative(HERE, file)}: failed once, as said above, and passed alone`);
    }

// A file that tests nothing would pass for ever.
for (const file of values.name === undefined ? files : [])
    if (!counts.has(file)) {
        count(file, 'failed');
        console.log(`FAIL ${relative(HERE, file)}: no test was run`);
    }
for (const row of values.name === undefined ? routerRows : []) {
    count('lib/router_suite.mjs', 'failed');
    console.log(`FAIL lib/router_suite.mjs: no test is named ${row.tests}`);
}
const sum = (outcome) => [...counts.values()].reduce((total, row) => total + row[outcome], 0);
const slowest = [...durations].sort(([, a], [, b]) => b - a).slice(0, SLOWEST_SHOWN);
console.log(`slowest: ${slowest.map(([file, seconds]) => `${relative(HERE, file)} ${seconds.toFixed(0)} s`).join(', ')}`);
console.log(`${files.length} files in ${((Date.now() - started) / 1000).toFixed(1)} s`);
console.log(`${sum('passed')} passed, ${sum('failed')} failed, ${sum('skipped')} skipped`);
process.exitCode = sum('failed') === 0 ? 0 : 1;
