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
    echo "Transactions of several documents and change streams are refused, on a set too. On a standalone node retryable"
    echo "writes and the commands of replica sets answer as a standalone MongoDB does."
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
    echo "| stages | $(names $stages 'AGG_STAGE'), $(echo "$sources" | sed 's/.*/`&`/' | paste -sd, | sed 's/,/, /g') | $refused |"
    echo "| accumulators | $(names $accumulators 'ACCUMULATOR') | $(or_none "$(names $accumulators 'ACCUMULATOR_REFUSED')") |"
    echo "| expressions | $(names $expressions 'EXPR_OPERATOR|EXPR_PARSED') | $(or_none "$(names $expressions 'EXPR_REFUSED')") |"
    cat << 'TXT'

## Also refused by name

- `$meta` other than `sortKey` and `recordId` in find; `encrypt` in `$jsonSchema`.
- Indexes: text, geo, columnstore.
- `create`: time series, `changeStreamPreAndPostImages`, `encryptedFields`.
- `$meta: "indexKey"`; `returnKey` where the keys of the index do not answer alone; `allowPartialResults` and `mirrored` of `find` are taken and mean nothing on one node.
- `validate`: `logDiagnostics`; `fsync {lock: true}`; ranges of `dataSize`.
- Start-up: sharding, access control and TLS options. Members of a set with `buildIndexes: false`.
TXT
}

if [ "${1:-}" = --check ]; then
    build | diff -q - $target > /dev/null || { echo "$target is not what tools/compatibility.sh writes"; exit 1; }
else
    build > $target
fi
