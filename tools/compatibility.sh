#!/usr/bin/env bash
# Writes docs/compatibility.md from the tables in the code, so that it cannot drift: compatibility.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
target=docs/compatibility.md

# Names in quotes of the rows of a table whose macro matches a pattern, as `a`, `b`, ...
names() { # file, pattern of macros
    tr '\n' ' ' < "$1" | sed 's,/\*[^/]*\*/,,g' | grep -oE "\b($2)\([^\"]*\"[^\"]+\"" | grep -oE '"[^"]+"' | tr -d '"' |
        sort -u | sed 's/.*/`&`/' | paste -sd, | sed 's/,/, /g'
}
or_none() { [ -n "$1" ] && echo "$1" || echo "none"; }

build() {
    cat << 'TXT'
# What works, what is refused

Written by `tools/compatibility.sh` from the tables in the code. The baseline is MongoDB 7.0, a standalone node or a
replica set. What is not supported is refused by name with NotImplemented, never ignored; an unknown name gets MongoDB's own
error.

TXT
    echo "## Commands"
    echo
    grep -hoE '^    \.name = "[a-zA-Z]+"|^REPL_SET_COMMAND\([A-Z_]+, "[a-zA-Z]+"' src/commands/cmd_*.c | grep -oE '"[a-zA-Z]+"' |
        tr -d '"' | sort -u | sed 's/.*/`&`/' | paste -sd, | sed 's/,/, /g'
    echo
    echo "Refused by name: $(names src/commands/refused_commands.def 'REFUSED_COMMAND')."
    echo
    echo "On a standalone node transactions, change streams, retryable writes and the commands of replica sets answer as a"
    echo "standalone MongoDB does."
    echo
    local match=src/query/match/match_operators.def update=src/query/update/update_operators.def
    local stages=src/query/agg/agg_stages.def accumulators=src/query/agg/accumulators.def
    local expressions=src/query/expr/expr_operators.def sources
    sources=$(grep -oE '^    \{"\$[a-zA-Z]+"' src/commands/agg_sources.c | grep -oE '\$[a-zA-Z]+' | sort -u)
    echo "| table | supported | refused by name |"
    echo "|---|---|---|"
    echo "| query operators | $(grep -v match_op_refused $match | names /dev/stdin 'MATCH_(FIELD|TOP)_OPERATOR') | $(grep "match_op_refused," $match | names /dev/stdin 'MATCH_(FIELD|TOP)_OPERATOR') |"
    echo "| update operators | $(names $update 'UPDATE_OPERATOR') and pipelines | none |"
    local refused
    refused=$(names $stages 'AGG_REFUSED')
    for source in $sources; do refused=$(sed "s/\`\\$source\`, //;s/, \`\\$source\`\$//" <<< "$refused"); done
    echo "| stages | $(names $stages 'AGG_STAGE|AGG_ELSEWHERE'), $(echo "$sources" | sed 's/.*/`&`/' | paste -sd, | sed 's/,/, /g') | $refused |"
    echo "| accumulators | $(names $accumulators 'ACCUMULATOR') | $(or_none "$(names $accumulators 'ACCUMULATOR_REFUSED')") |"
    echo "| expressions | $(names $expressions 'EXPR_OPERATOR|EXPR_PARSED') | $(or_none "$(names $expressions 'EXPR_REFUSED')") |"
    cat << 'TXT'

## Also refused by name

- `$meta` other than `sortKey` (without a collation), `recordId` and `indexKey`; these also behind `$setWindowFields` and `$densify`,
  in `$match` and where a router merges.
- Indexes: text, geo, columnstore.
- `create`: time series, `encryptedFields`.
- `$changeStream`: `showMigrationEvents`, `allowToRunOnConfigDB`, `allowToRunOnSystemNS`.
- `returnKey` of an index with a collation; `allowPartialResults` and `mirrored` of `find` are taken and mean nothing on one node.
- `validate`: `logDiagnostics`.
- Indexes of `_id` with `v: 1` are kept and shown as such, but stored as those of version 2: decimals are not refused.
- Start-up: access control and TLS options.
- Behind a router: transactions over several shards, updates that move a document to another shard,
  resharding, change streams over sharded collections and of the whole cluster, the database `local`.

## Behind a router: what differs

- Writes to a database that is being moved (movePrimary) wait until that is over, instead of failing with MovePrimaryInProgress.
- A change stream that was opened through a router ends with ChangeStreamFatalError, which says why, when its database moves or is dropped, or its
  collection becomes sharded: what follows is on other shards, too, and streams over several shards are refused.

## Diagnostics: what is left out

- `serverStatus` has no sections about what this server does not have or count: `batchedDeletes`, `bucketCatalog`, `collectionCatalog`,
  `indexBulkBuilder`, `internalTransactions`, `mirroredReads`, `scramCache`, `security`, `tcmalloc`, `trafficRecording`, `transportSecurity`,
  `twoPhaseCommitCoordinator`; `metrics` no `aggStageCounters`, `apiVersions`, `dotsAndDollarsFields` and `operatorCounters`;
  `wiredTiger` what monitors read: `cache`, `log`, `session`, `transaction`, `concurrentTransactions`, `disk`.

## Transactions: what differs

- A write that meets a document of a prepared transaction by reading it waits for its end, up to maxTimeMS; one that meets only
  its key conflicts at once.
- `prepareTransaction` is for members of shards, and for tests. A transaction that has created a collection cannot be prepared.

## Change streams: what differs

- Resume tokens have the form and order of MongoDB's but are of our own encoding: they are not exchangeable between the two.
  Tokens of version 1 are refused.
- The drops of a dropDatabase have one `clusterTime`, that of the dropDatabase. Dropping a
  database that has had no collection since the start is no event.
- Events of a prepared transaction have the time of its commit entry.
- `explain` shows the stages and where the stream would begin.
- `serverStatus.changeStreams` counts open and waiting streams, entries read for those that wait, and wake-ups.
TXT
    echo
    echo "## MongoDB 7.0's own tests"
    echo
    echo "Of the public tests that \`../shared/jstests\` lists, about 60 % of each suite: \`core\` and \`aggregation\` on a single node, \`core/txns\` and"
    echo "\`change_streams\` on a replica set of one member, the others on what they start themselves; through a router, on one that looks like a node"
    echo "(\`tools/router_as_node.sh\`). \`tools/public_tests.sh\` counts, \`tools/public_tests.txt\` has the names:"
    echo
    echo "| suite | passed | others, by what they need that is not built |"
    echo "|---|---|---|"
    public_tests
}

# One row for each suite of tools/public_tests.txt, with the reasons in the order of the file; of many tests how many.
public_tests() {
    awk -F '\t' -v NAMED_MAX=8 '
        /^#/ { next }
        $1 == "passed" { suites[++suite_count] = $2; passed[$2] = $3 }
        $1 == "other" {
            others[$2]++
            key = $2 FS $4
            if (!(key in names)) reasons[$2, ++reason_count[$2]] = $4
            names[key] = names[key] (names[key] == "" ? "" : ", ") "`" $3 "`"
            counts[key]++
        }
        END {
            for (s = 1; s <= suite_count; s++) {
                suite = suites[s]
                text = ""
                for (r = 1; r <= reason_count[suite]; r++) {
                    reason = reasons[suite, r]
                    key = suite FS reason
                    text = text (r == 1 ? "" : "; ") reason ": " (counts[key] > NAMED_MAX ? counts[key] " tests" : names[key])
                }
                printf "| %s | %d of %d | %s |\n", suite, passed[suite], passed[suite] + others[suite], text
            }
        }' tools/public_tests.txt
}

if [ "${1:-}" = --check ]; then
    build | diff -q - $target > /dev/null || { echo "$target is not what tools/compatibility.sh writes"; exit 1; }
else
    build > $target
fi
