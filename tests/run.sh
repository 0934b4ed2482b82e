#!/usr/bin/env bash
# Runs all tests and ends with one line: N passed, N failed.
#
#     T=name          only tests whose name contains it, in the release build
#     CRASH_ROUNDS=n  rounds of the crash test (default 60)
#     REPL_ROUNDS=n   rounds of the replica set faults (default 25)
#     PARTITION_ROUNDS=n  rounds of partitions and step-downs (default 25)
#     STALE_ROUNDS=n  lives of a collection that one router changes and another uses (default 40)
#     MOVE_ROUNDS=n   moves of ranges under load (default 12); MOVE_KILLS=n: kills at each of their steps (default 1)
#     RANDOM_MOVES=n  moves of a random balancer (default 60)
#     MOVE_PARTITIONS=n  broken links at their steps (default 8), or "all"
#     DDL_KILLS=all   kills at every border of the operations on a cluster, not only one per phase
#     TXN_HISTORIES=n histories of transactions that are checked (default 60)
#     RELEASE=all     the integration tests also in the release build (default: those that are left out with sanitizers)
#     UNSTABLE_MAX=n  files of a part that may fail once and pass alone (default 0; run.mjs)
#     RUNS=n          executions of each fuzzer (default 50,000)
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0
failed=0
skipped=0
begun=$SECONDS

# Adds the last "N passed, N failed" (", N skipped") that a part printed to the total. A part that died, or that
# tested nothing at all, counts as failed; with T= parts without a test of that name are fine.
part() {
    local name=$1 log status counts good bad left_out
    shift
    log=$(mktemp)
    echo "== $name"
    local start=$SECONDS
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    counts=$(grep -Eo '[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?' "$log" | tail -1)
    rm -f "$log"
    good=0 bad=0 left_out=0
    if [ -n "$counts" ]; then
        good=$(cut -d' ' -f1 <<< "$counts")
        bad=$(cut -d' ' -f3 <<< "$counts")
        left_out=$(cut -d' ' -f5 <<< "$counts")
    fi
    [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    if [ -z "${T:-}" ] && [ $((good + bad + ${left_out:-0})) -eq 0 ]; then
        echo "FAIL $name: nothing was tested"
        bad=1
    fi
    skipped=$((skipped + ${left_out:-0}))
    passed=$((passed + good))
    failed=$((failed + bad))
    echo "   ($((SECONDS - start)) s)"
}

npm_packages() {
    local stamp=tests/node_modules/.installed
    if [ ! -f "$stamp" ] || [ tests/package-lock.json -nt "$stamp" ]; then
        (cd tests && npm ci --no-audit --no-fund --loglevel=error) > /dev/null || return 1
        touch "$stamp"
    fi
}

integration() { node tests/run.mjs ${T:+--name "$T"} "$@"; }

make --no-print-directory build || exit 1
npm_packages || { echo "npm packages could not be installed"; exit 1; }

if [ -n "${T:-}" ]; then
    part "unit tests" build/unit_tests "$T"
    part "integration tests" integration tests/integration tests/smoke
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
fi

part "tidy" tools/tidy/run.sh
part "unit tests" build/unit_tests
# The integration tests run once, with sanitizers (below). Those that wait most of their time, or have a driver work, cost minutes
# there, and little of the nodes' code is theirs alone: they run here, in the release build.
RELEASE_ONLY=index_build_resume,initial_sync,mingo,mongosh,mongosh_replica_set,mongoose,nested_pipelines,size_limits,up
if [ "${RELEASE:-}" = all ]; then
    part "integration tests" integration tests/integration
else
    mapfile -t files < <(tr , '\n' <<< "$RELEASE_ONLY" | sed 's|.*|tests/integration/&.test.mjs|')
    part "integration tests in the release build" integration --jobs 3 "${files[@]}"
fi
part "integration tests through a router" integration --router
part "crash tests" integration tests/crash
# Nodes that are down or wait for elections leave the processors to others.
part "replica set faults" integration --jobs 3 tests/repl
part "transactions under faults" integration --jobs 3 tests/txn
part "clusters under faults" integration --jobs 3 tests/sharding
part "driver specifications" node tests/spec/run.mjs

make --no-print-directory asan || exit 1
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
part "unit tests with address and undefined behaviour sanitizers" build-asan/unit_tests
SHERD_BIN=$PWD/build-asan/sherd part "integration tests with those sanitizers" integration --except "$RELEASE_ONLY" tests/integration
SHERD_BIN=$PWD/build-asan/sherd REPL_ROUNDS=6 part "replica set faults with those sanitizers" \
    integration tests/repl/faults.test.mjs
SHERD_BIN=$PWD/build-asan/sherd part "moves with those sanitizers" integration tests/sharding/moves.test.mjs

make --no-print-directory tsan || exit 1
export TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp
# Of repl: not the simulator, which has one thread, nor units of many MB, which take minutes with this sanitizer.
for tests in base/fiber base/round_thread concurrency/ transport/ storage/ ddl/ txn/ repl/oplog/oplog_test repl/oplog/sessions_test \
    repl/apply/apply_ repl/task/ repl/flow cluster_time/; do
    part "threaded tests of $tests with the thread sanitizer" build-tsan/unit_tests "src/$tests"
done

# A race ends the node that had it, and so its test.
export SHERD_BIN=$PWD/build-tsan/sherd TSAN_OPTIONS=$TSAN_OPTIONS:halt_on_error=1:report_thread_leaks=0
part "a replica set with the thread sanitizer" integration tests/integration/replica_set.test.mjs \
    tests/integration/tasks.test.mjs
STALE_ROUNDS=8 MOVE_LARGE=1000000 part "a cluster with the thread sanitizer" integration tests/integration/sharded_cluster.test.mjs \
    tests/integration/shard_secondaries.test.mjs tests/sharding/stale_routers.test.mjs tests/sharding/moves.test.mjs
# Of the transactions under faults these two: between them they prepare, decide, stream, kill, replay and roll back.
STREAM_ROUNDS=8 part "transactions under faults with the thread sanitizer" integration tests/txn/streams.test.mjs \
    tests/txn/prepared_transfers.test.mjs
unset SHERD_BIN

part "fuzzers" tools/fuzz.sh

echo
echo "all tests took $((SECONDS - begun)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
