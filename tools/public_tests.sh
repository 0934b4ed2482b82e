#!/usr/bin/env bash
# Runs a suite of MongoDB 7.0's own public tests and brings tools/public_tests.txt and docs/compatibility.md up to date:
#
#     JSTESTS_RUNNER=DIR JSTESTS_SOURCE=GITDIR tools/public_tests.sh SUITE [OPTION-OF-THE-RUNNER...]
#
#     JSTESTS_RUNNER   the folder of the runner (its run.mjs); it is not part of this project
#     JSTESTS_SOURCE   a git directory of MongoDB's public repository, where the runner takes the tests from
#     JSTESTS_SERVER   the program (default build/sherd)
#     JSTESTS_RESULTS  count this results.jsonl of an earlier run instead
#
# A count never falls: if fewer tests pass than the file says, it is left as it is, and this fails.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:?usage: tools/public_tests.sh SUITE [OPTION-OF-THE-RUNNER...]}
shift
results=${JSTESTS_RESULTS:-}
if [ -z "$results" ]; then
    if [ -z "${JSTESTS_RUNNER:-}" ] || [ ! -f "$JSTESTS_RUNNER/run.mjs" ]; then
        echo "JSTESTS_RUNNER has to name the folder of the runner (with run.mjs)" >&2
        exit 2
    fi
    if [ -z "${JSTESTS_SOURCE:-}" ] || ! git --git-dir="$JSTESTS_SOURCE" rev-parse > /dev/null 2>&1; then
        echo "JSTESTS_SOURCE has to name a git directory of MongoDB's public repository" >&2
        exit 2
    fi
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    # That tests fail is no failure of the run: which of them did is counted below.
    node "$JSTESTS_RUNNER/run.mjs" --source "$JSTESTS_SOURCE" --server "${JSTESTS_SERVER:-$PWD/build/sherd}" \
        --suite "$suite" --out "$out" "$@" || true
    results=$out/results.jsonl
fi
node tools/public_tests.mjs "$suite" "$results" tools/public_tests.txt
tools/compatibility.sh
