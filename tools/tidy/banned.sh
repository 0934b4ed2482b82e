#!/usr/bin/env bash
# Functions with a wrapper in base/ are called only there (tests, fuzzers and benchmarks apart); no decimals of the compiler.
set -uo pipefail
cd "$(dirname "$0")/../.."
banned='(^|[^a-zA-Z0-9_>.])(malloc|calloc|realloc|free|strcpy|strcat|sprintf|atoi|rand|sleep|usleep|pthread_[a-z_]+) *\('
found=$(git ls-files --cached --others --exclude-standard 'src/*.c' 'src/*.h' |
    grep -Ev '^src/base/|_test\.c$|_fuzz\.c$|_bench\.c$' | xargs grep -nE "$banned" | grep -vE '^[^:]+:[0-9]+: *(/?\*|//)')
if [ -n "$found" ]; then
    echo "$found"
    echo "use the wrappers of base/ (xmalloc, thread.h, ...)"
    exit 1
fi
# What a node is, its role says (concurrency/service_ctx.h).
found=$(git ls-files --cached --others --exclude-standard 'src/*.c' 'src/*.h' |
    grep -Ev '^src/repl/' | xargs grep -nE '\brepl (==|!=) NULL')
if [ -n "$found" ]; then
    echo "$found"
    echo "ask for the role (service_is_member, service_is_standalone), not whether a part exists"
    exit 1
fi
# libgcc's functions behind these types have the names of those in the decimal library, not their parameters.
found=$(git ls-files --cached --others --exclude-standard 'src/*.c' 'src/*.h' 'bench/*.c' |
    xargs grep -nE '\b_Decimal(32|64|128)\b' | grep -vE '^[^:]+:[0-9]+: *(/?\*|//)')
[ -z "$found" ] && exit 0
echo "$found"
echo "decimals are bson/decimal128.h's"
exit 1
