#!/usr/bin/env bash
# Runs every rule of this folder; each is one small script. Ends with: N passed, N failed.
set -uo pipefail
cd "$(dirname "$0")"
passed=0
failed=0
for rule in format layers headers banned builders docs; do
    if output=$(./$rule.sh 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "tidy: $rule failed"
        echo "$output" | head -40
    fi
done
echo "tidy: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
