#!/usr/bin/env bash
# Builds and runs the libFuzzer targets beside the code: fuzz.sh [name]. RUNS executions each (default 50,000),
# starting from tests/fuzz_corpus/<name>; new finds of interest stay in build-fuzz/corpus.
# Ends with: N passed, N failed.
set -uo pipefail
cd "$(dirname "$0")/.."
only=${1:-}
runs=${RUNS:-50000}
out=build-fuzz
mkdir -p $out/obj $out/corpus
cflags="-std=gnu17 -D_GNU_SOURCE -O1 -g -Isrc $(pkg-config --cflags libbson-1.0)"

# The folders a fuzzer may reach: pure ones, the codec of transport, and tokens of change streams.
sources=$(ls src/base/*.c src/bson/*.c src/query/{match,update,expr,project,sort,agg,interval}/*.c \
    src/sharding/meta/*.c src/repl/election/*.c src/transport/{wire,wire_build,compression,crc32c}.c src/change_stream/token.c 2> /dev/null | grep -Ev '_test\.c$|_fuzz\.c$|_bench\.c$|test_main\.c$')

compile() {
    local source=$1 object
    object=$out/obj/$(echo "$source" | tr / _).o
    [ "$object" -nt "$source" ] && [ -z "$(find src -name '*.h' -newer "$object" -print -quit)" ] && return 0
    clang $cflags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
        -Wno-everything -c "$source" -o "$object"
}
objects() { tr / _ | sed "s,^,$out/obj/,;s,\$,.o,"; }
libs="-lsnappy -lzstd -lz -lpcre2-8 -licui18n -licuuc -lcrypto -lbson-1.0 -l:libbidgcc000.a -lm -lpthread"
export -f compile
export cflags out
echo "$sources" | xargs -P "$(nproc)" -I{} bash -c 'compile {}' || exit 1

# One target after the other on each processor; what it prints comes in one piece.
fuzz() {
    local target=$1 name sources_of
    name=$(basename "$target" .c)
    compile "$target" || return 1
    mkdir -p "$out/corpus/$name" "tests/fuzz_corpus/$name"
    mapfile -t sources_of < <(echo "$target" "$sources" | tr ' ' '\n' | objects)
    clang -fsanitize=fuzzer,address,undefined "${sources_of[@]}" -o "$out/$name" $libs || return 1
    if "$out/$name" -runs="$runs" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        "$out/corpus/$name" "tests/fuzz_corpus/$name" > "$out/$name.log" 2>&1; then
        echo "fuzz: $name, $runs executions, nothing found"
    else
        echo "fuzz: $name FAILED"$'\n'"$(tail -30 "$out/$name.log")"
        return 1
    fi
}
export -f fuzz objects
export sources libs runs

results=$out/results
rm -rf $results && mkdir $results
for target in src/*/*_fuzz.c src/*/*/*_fuzz.c; do
    name=$(basename "$target" .c)
    [ -n "$only" ] && [ "$only" != "$name" ] && [ "$only" != "${name%_fuzz}" ] && continue
    echo "$target"
done | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}; echo $? > '$results'/$(basename {})'
passed=$(grep -lx 0 $results/* 2> /dev/null | wc -l)
failed=$(grep -Lx 0 $results/* 2> /dev/null | wc -l)
echo "fuzz: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
