/*
 * router_suite.mjs - the test files of a node that are run through a router as well (run.mjs --router),
 * and what is different there. Everything else has to give through a router what a node gives.
 *
 * Each file has a list of rows: whose tests (a name, or a pattern of names), what becomes of them, why.
 *   unsharded   they run through the router, with collections that are not sharded
 *   left out    they do not run
 */
const ONE_BY_KEY = 'updates, deletes and findAndModify of one document name it by the shard key or _id in MongoDB 7.0';
const UNIQUE = 'a unique index of a sharded collection begins with the shard key';
const EXPLAIN = 'explain of a router shows the plans of its shards, one by one';
const PER_SHARD = 'a router shows what each shard says, one by one';
const STANDALONE = 'it is about a standalone node';
const OF_NODES = 'it is about a node that has documents: its parameters, its log, its own order of documents';
const NOT_OF_MONGOS = 'a mongos has no such command';
const NOT_YET = 'refused by name behind a router';

/* Names begin with a text, or match a pattern. */
const patternOf = (tests) =>
    tests instanceof RegExp ? tests : new RegExp(`^${tests.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}`);
const row = (tests, isLeftOut, why) => {
    const pattern = patternOf(tests);
    return { tests: pattern, isLeftOut, why, isFor: (name) => pattern.test(name) };
};
const unsharded = (tests, why) => row(tests, false, why);
const leftOut = (tests, why) => row(tests, true, why);

export const ROUTER_SUITE = {
    admin: [
        leftOut('serverStatus has the sections monitors read', OF_NODES),
        leftOut('serverStatus counts operations and leaves out', OF_NODES),
        leftOut('cursors of a session whose record', OF_NODES),
        leftOut('serverStatus leaves out the counters', OF_NODES),
        leftOut('serverStatus tells how many plans', OF_NODES),
        leftOut('connectionStatus, whatsmyuri, getCmdLineOpts and ping', OF_NODES),
        leftOut('listCommands describes every command', NOT_OF_MONGOS),
        leftOut('DUR-5: validate finds a healthy collection valid', PER_SHARD),
        unsharded('dataSize measures a collection, or a range of it', 'ranges of a sharded collection are those of its shard key'),
        leftOut('currentOp shows running operations', 'its own operation is one of the router: router_status.test.mjs'),
        leftOut('fsync flushes', PER_SHARD),
        leftOut('OPS-2: fsync with lock keeps writers out', PER_SHARD),
        leftOut('MET-1: the profiler records', NOT_OF_MONGOS),
        leftOut('MET-1: the profiler tells the plans', NOT_OF_MONGOS),
        leftOut('MET-1: a filter decides what is profiled', 'a router has no profiler'),
        leftOut('applyOps runs writes', NOT_OF_MONGOS),
        leftOut('top counts', NOT_OF_MONGOS),
        leftOut('lockInfo lists locks', NOT_OF_MONGOS),
        leftOut('dbHash is equal for equal data', NOT_OF_MONGOS),
        leftOut('replica-set commands say that this is no replica set', NOT_OF_MONGOS),
        leftOut('commands that may only run on admin', NOT_OF_MONGOS),
    ],
    aggregate: [
        leftOut('stages out of scope are refused by name', STANDALONE),
        leftOut('CAT-2: $listCatalog of a collection', PER_SHARD),
        leftOut('CAT-2: $listCatalog on admin', PER_SHARD),
    ],
    collation: [
        unsharded('writes find documents and array elements', ONE_BY_KEY),
        leftOut('a collection passes its collation on', EXPLAIN),
        unsharded('unique indexes count equal strings', UNIQUE),
    ],
    collection_uuid: [leftOut('change streams take none', 'streams of a sharded collection are refused by name')],
    crud: [
        unsharded('a document with an _id that is an array', 'no shard key has an array, which is told first'),
        leftOut('write concerns that need other members', STANDALONE),
        unsharded('update tells matched and modified apart', ONE_BY_KEY),
        unsharded(/a replacement with multi/, 'sharded collections have another error for it'),
        unsharded('upsert inserts what the filter and the update say', ONE_BY_KEY),
        unsharded('concurrent upserts of one key', UNIQUE),
        unsharded('an update of many that fails tells none', 'a shard that did all of its part tells it'),
        unsharded('what is wrong with the fields of findAndModify', ONE_BY_KEY),
        unsharded('delete removes one with limit 1', ONE_BY_KEY),
        unsharded('findAndModify takes the first in sort order', ONE_BY_KEY),
        unsharded('findAndModify with a duplicate key', UNIQUE),
    ],
    cursors: [
        leftOut('with exhaustAllowed one getMore', 'a mongos answers a getMore once'),
        leftOut('an exhaust stream whose client goes away', 'a mongos answers a getMore once'),
        leftOut('$currentOp lists idle cursors', 'those of shards have other ids: router_status.test.mjs'),
    ],
    ddl: [
        leftOut('CAT-7: drop removes a collection and says', 'a mongos does not tell how many indexes there were'),
        leftOut('CAT-7: rename to another database copies', 'the databases may be on different shards'),
        leftOut('CAT-7: validationAction warn', OF_NODES),
        leftOut('CAT-7: only in "local" a collection can be', 'a router has no database of its own'),
        leftOut(/^CAT-7: .*system\.views/, NOT_OF_MONGOS),
        unsharded('CAP-1: convertToCapped keeps the newest', 'a sharded collection is not capped'),
        leftOut('CAP-1: cloneCollectionAsCapped copies', NOT_OF_MONGOS),
        unsharded('CLU-1: a clustered collection stores by _id', OF_NODES),
        unsharded('CLU-1: ids of all types are kept in order', OF_NODES),
        leftOut('CLU-1: a hint, min and max on the clustered key', EXPLAIN),
        unsharded('CLU-1: listIndexes and listCollections show the clustered', UNIQUE),
        unsharded('CAT-1: everything is there again', UNIQUE),
    ],
    expressions: [leftOut('a cluster time that is not there', STANDALONE)],
    extreme_numbers: [
        leftOut('skip and limit near the largest number', 'a mongos asks its shards for the sum of both'),
    ],
    find_and_modify: [unsharded(/^STX-3/, ONE_BY_KEY)],
    find_options: [
        leftOut('a sort beyond its memory fails', OF_NODES),
        unsharded('$natural gives insertion order', OF_NODES),
        leftOut('read concerns snapshot and linearizable', STANDALONE),
        leftOut('notablescan refuses collection scans only', OF_NODES),
        unsharded('$meta shows in a pipeline', NOT_YET),
        unsharded('$meta follows documents', NOT_YET),
        unsharded('$meta shows the sort key and the record id', ONE_BY_KEY),
        unsharded('a scan of a collection goes on after the token', NOT_YET),
        unsharded('a scan of a clustered one goes on after', NOT_YET),
        unsharded('a document that did not fit into a batch', NOT_YET),
        unsharded('resume tokens are checked', NOT_YET),
        leftOut('find and listIndexes take the UUID', 'a mongos takes names only'),
    ],
    index_kinds: [
        leftOut('a hashed index finds by equality', EXPLAIN),
        unsharded('a hashed index has no arrays', UNIQUE),
        leftOut('a wildcard index finds by any path', EXPLAIN),
        leftOut('a wildcard index is not used for', EXPLAIN),
        leftOut('a wildcard index keeps to its projection', EXPLAIN),
        leftOut('a compound wildcard index is searched', EXPLAIN),
        leftOut('updates move the keys of wildcard', EXPLAIN),
        unsharded('conflicts of options and of keys', UNIQUE),
        leftOut('a hidden index is kept up', EXPLAIN),
        unsharded('an index becomes unique in two steps', UNIQUE),
        unsharded('a preparation for unique', UNIQUE),
        leftOut('kinds and options of indexes last', EXPLAIN),
    ],
    indexes: [
        leftOut('createIndexes reports the number of indexes', PER_SHARD),
        unsharded('listIndexes shows each index as', UNIQUE),
        unsharded('the same keys with another option', UNIQUE),
        unsharded('of several new indexes all or none', UNIQUE),
        unsharded(/^IDX-1/, UNIQUE),
    ],
    json_schema: [unsharded('validators tell which rules', ONE_BY_KEY)],
    lookup: [
        leftOut('documents that sub-pipelines examine', NOT_OF_MONGOS),
        unsharded('sub-pipelines and $merge use', UNIQUE),
        leftOut('a pipeline reads no view of another collation', 'shards without documents of a collection do not read the others'),
    ],
    match: [],
    merge_out: [
        unsharded('$out replaces the documents', '$out does not go into a sharded collection'),
        unsharded('$out works on its own source and into another', '$out does not go into a sharded collection'),
        unsharded('an $out that fails leaves', '$out does not go into a sharded collection'),
        leftOut('$out is refused where it cannot be', NOT_YET),
        unsharded('$merge identifies documents by other', UNIQUE),
        unsharded('$merge gives an _id that is one of several', UNIQUE),
        unsharded('validation holds for $out', '$out does not go into a sharded collection'),
    ],
    mingo: [],
    nested_pipelines: [leftOut('AGG-5: many stages in nested', 'the innermost pipeline runs on the shards, not in it')],
    stages: [
        leftOut('$group, $sort and $bucketAuto over', OF_NODES),
        leftOut('explain shows the stages', EXPLAIN),
    ],
    strictness: [
        leftOut('retryable writes are refused on', STANDALONE),
        leftOut('transactions are refused on', STANDALONE),
        leftOut('commands that read take the UUID', 'a mongos takes names only'),
    ],
    ttl: [],
    update_indexes: [unsharded('random updates of all kinds', UNIQUE)],
    update_operators: [],
    wire: [],
};

/* Rows of a file, by its path. */
export const rowsOf = (file) => ROUTER_SUITE[file.replace(/^.*\//, '').replace(/\.test\.mjs$/, '')] ?? [];
/* Why the test does not run through a router; undefined: it does. */
export const whyLeftOut = (file, name) => rowsOf(file).find((one) => one.isLeftOut && one.isFor(name))?.why;
export const isUnsharded = (file, name) => rowsOf(file).some((one) => !one.isLeftOut && one.isFor(name));
