/*
 * public_tests.mjs - counts the results of one suite into tools/public_tests.txt; see public_tests.sh.
 *
 *     node tools/public_tests.mjs SUITE RESULTS.jsonl PUBLIC_TESTS.txt
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';

/* What stops a test, as its record tells it, and how that is called; the first that fits. */
const CAUSES = [
    [/^unrun/, 'not run yet'],
    [/^skip/, 'a feature that is off in 7.0'],
    [/shell: /, 'something of the old shell that the runner does not have'],
    [/\[failpoint|^needs +failpoint/, 'a failpoint of mongod'],
    [/analyzeShardKey|configureQueryAnalyzer|queryAnaly|query ?sampl/i, 'analyzing shard keys'],
    [/clearJumboFlag|balancerCollectionStatus|setAllowMigrations|Balancer hasn't run|chunks are moved by/, 'the balancer'],
    [/databases cannot be moved|movePrimary/, 'moving databases'],
    [/shard key of a collection cannot be changed|reshardCollection|refineCollectionShardKey/, 'changing a shard key'],
    [/transaction.*(several|other|another) shards?/i, 'transactions over several shards'],
    [/move a document|WouldChangeOwningShard/, 'updates that move a document'],
    [/change streams? /i, 'change streams over several shards'],
    [/mergeAllChunksOnShard/, 'the command `mergeAllChunksOnShard`'],
    [/time-?\s?series/i, 'time series'],
    [/JavaScript|mapReduce|\$where|\$function/, 'JavaScript in the server'],
    [/access control|authentication|keyFile|clusterAuthMode|createUser|\bauth\b/i, 'access control'],
    [/\btls|ssl\b/i, 'TLS'],
    [/text index|\$text|geo|2dsphere|\bnear\b/i, 'text and geo indexes'],
    [/fail ?point/i, 'a failpoint of mongod'],
    [/parameter/i, 'a server parameter of mongod'],
    [/unrecognised option|command line/, 'an option of the command line'],
    [/DefaultRWConcern/, 'default concerns through a router'],
    [/no such command: '(\w+)'/, (name) => `the command \`${name}\``],
    [/not supported|not available|NotImplemented/, 'something else that is refused by name'],
    [/^(timeout|hang)/, 'more time than the run gave it'],
];
const UNKNOWN = 'a behaviour that differs, or an inner detail of mongos';

function causeOf({ status, needs, differences = [], text = '' }) {
    const first = differences[0]?.text ?? text;
    const told = `${status} ${needs ?? ''} ${first.slice(0, 600)}`;
    for (const [pattern, cause] of CAUSES) {
        const match = pattern.exec(told);
        if (match !== null) return typeof cause === 'string' ? cause : cause(match[1]);
    }
    return UNKNOWN;
}

const [suite, resultsPath, tablePath] = process.argv.slice(2);
const name = { txns: 'core/txns' }[suite] ?? suite;
const records = readFileSync(resultsPath, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
const passed = records.filter(({ status }) => status === 'pass').length;
const others = records.filter(({ status }) => status !== 'pass');

const lines = readFileSync(tablePath, 'utf8').trimEnd().split('\n');
const isOfSuite = (line) => !line.startsWith('#') && line.split('\t')[1] === name;
const before = Number(lines.find((line) => isOfSuite(line) && line.startsWith('passed'))?.split('\t')[2] ?? 0);
console.log(`${name}: ${passed} of ${records.length} pass, ${before} did before`);
if (passed < before) {
    console.log(`FAIL ${name}: fewer tests pass than tools/public_tests.txt says`);
    process.exit(1);
}

/* A reason that somebody has written by hand stays while the test does not pass. */
const isOwn = (cause) => cause === UNKNOWN || cause.startsWith('the command `') || CAUSES.some(([, own]) => own === cause);
const known = new Map(
    lines
        .filter((line) => isOfSuite(line) && line.startsWith('other'))
        .map((line) => line.split('\t').slice(2))
        .filter(([, cause]) => !isOwn(cause)),
);
const rows = others
    .map((record) => [basename(record.file, '.js'), record])
    .map(([test, record]) => [test, known.get(test) ?? causeOf(record)])
    .sort(([test1, cause1], [test2, cause2]) => (cause1 + test1 < cause2 + test2 ? -1 : 1));
const written = [
    `passed\t${name}\t${passed}`,
    ...rows.map(([test, cause]) => `other\t${name}\t${test}\t${cause}`),
];
const at = lines.findIndex(isOfSuite);
const rest = lines.filter((line) => !isOfSuite(line));
rest.splice(at < 0 ? rest.length : at, 0, ...written);
writeFileSync(tablePath, `${rest.join('\n')}\n`);
