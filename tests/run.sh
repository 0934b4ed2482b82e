#!/usr/bin/env bash
# Runs all tests and ends with one line: N passed, N failed.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0
failed=0

# Adds the "N passed, N failed" line that a part printed to the total; a part that died counts as failed.
part() {
    local name=$1 log status counts
    shift
    log=$(mktemp)
    echo "== $name"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    counts=$(grep -Eo '[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
    rm -f "$log"
    if [ -z "$counts" ]; then
        [ "$status" -eq 0 ] && passed=$((passed + 1)) || failed=$((failed + 1))
        return
    fi
    passed=$((passed + $(cut -d' ' -f1 <<< "$counts")))
    local bad
    bad=$(cut -d' ' -f3 <<< "$counts")
    [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    failed=$((failed + bad))
}

make --no-print-directory build || exit 1
part "unit tests" build/unit_tests ${T:+"$T"}

echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
