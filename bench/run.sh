#!/usr/bin/env bash
# Runs a server, all workloads and their floors in one go, and prints how far apart they are.
#
#   [SHERD=build/sherd] [BENCH=build/sherd-bench] [SECONDS_EACH=3] [CONNECTIONS=8]
#   [DOCS=100000] [MANY_DOCS=1000000] [IDLE=10000] [PORT=random] bench/run.sh [results.json]
#
# Floors and workloads are measured minutes apart at most, on the same machine, so that their ratio
# means something even where the absolute numbers depend on the neighbours.
set -euo pipefail

cd "$(dirname "$0")/.."
SHERD=${SHERD:-build/sherd}
BENCH=${BENCH:-build/sherd-bench}
SECONDS_EACH=${SECONDS_EACH:-3}
CONNECTIONS=${CONNECTIONS:-8}
DOCS=${DOCS:-100000}
MANY_DOCS=${MANY_DOCS:-1000000} # of the query workloads
IDLE=${IDLE:-10000}
PORT=${PORT:-$(shuf -i 20000-30000 -n 1)}
START_BUDGET_S=30
RESULTS=${1:-}

for program in "$SHERD" "$BENCH"; do
    [ -x "$program" ] || { echo "bench: no program \"$program\"" >&2; exit 1; }
done

TEMP=$(mktemp -d)
SERVER_PID=
stop_server() {
    [ -n "$SERVER_PID" ] || return 0
    kill "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" 2>/dev/null || true
    SERVER_PID=
}
trap 'stop_server; rm -rf "$TEMP"' EXIT

now_ms() { echo $(($(date +%s%N) / 1000000)); }
rss_kb() { awk '/^VmRSS/ {print $2}' "/proc/$SERVER_PID/status"; }

# One workload; its JSON line goes to the results. LABEL=name: under another name.
measure() {
    local name=$1 label=${LABEL:-$1}
    shift
    local line
    if ! line=$("$BENCH" --workload "$name" --uri "mongodb://127.0.0.1:$PORT/bench" \
        --seconds "$SECONDS_EACH" --json "$@"); then
        echo "bench: workload \"$name\" failed" >&2
    fi
    [ -z "$line" ] || echo "${line/\"$name\"/\"$label\"}" | tee -a "$TEMP/results"
}

mkdir "$TEMP/db"
# The log line tells when it is ready; a ping proves it.
is_ready() {
    grep -qi "waiting for connections" "$TEMP/log" &&
        "$BENCH" --workload ping --uri "mongodb://127.0.0.1:$PORT" --connections 1 \
            --seconds 0.01 > /dev/null 2>&1
}
start_server() {
    : > "$TEMP/log"
    local started_ms
    started_ms=$(now_ms)
    "$SHERD" serve --dbpath "$TEMP/db" --port "$PORT" "$@" > "$TEMP/log" 2>&1 &
    SERVER_PID=$!
    until is_ready; do
        if ! kill -0 "$SERVER_PID" 2>/dev/null; then
            echo "bench: the server ended:" >&2
            tail -5 "$TEMP/log" >&2
            exit 1
        fi
        if [ $(($(now_ms) - started_ms)) -ge $((START_BUDGET_S * 1000)) ]; then
            echo "bench: the server did not start in $START_BUDGET_S s" >&2
            exit 1
        fi
        sleep 0.005
    done
    start_ms=$(($(now_ms) - started_ms))
}
start_server
stop_server
start_server # on an existing database
first_start_ms=$start_ms
sleep 1
idle_rss_kb=$(rss_kb)

# Before the updates: they leave versions behind that a scan has to pass, and the floor has none.
measure wt-scan --threads 1 --docs "$DOCS"
measure scan --connections 1 --docs "$DOCS"
# The floor is measured before and after; the better one counts.
measure echo --connections "$CONNECTIONS"
for name in ping point-read read-mostly update insert1 range-scan index-find; do
    measure "$name" --connections "$CONNECTIONS" $([ "$name" = insert1 ] || echo --docs "$DOCS")
done
measure echo --connections "$CONNECTIONS"
measure echo --connections 1
measure ping --connections 1
measure point-read --connections 1 --docs "$DOCS"
for name in sort count; do
    measure "$name" --connections 1 --docs "$DOCS"
done
measure wt-load --threads 2
measure load --connections "$CONNECTIONS"
before_idle_rss_kb=$(rss_kb)
measure point-read --connections "$CONNECTIONS" --docs "$DOCS" --idle "$IDLE" --server-pid "$SERVER_PID"

stop_server

# Queries over many documents, with their sorts in memory and then with a tenth of what they need.
sort_memory() { echo "internalQueryMaxBlockingSortMemoryUsageBytes=$1"; }
start_server --setParameter "$(sort_memory $((MANY_DOCS * 600)))"
LABEL=wt-scan-many measure wt-scan --threads 1 --docs "$MANY_DOCS"
LABEL=wt-index-many measure wt-index-scan --threads 1 --docs "$MANY_DOCS"
LABEL=scan-many measure scan --connections 1 --docs "$MANY_DOCS"
LABEL=group-many measure group --connections 1 --docs "$MANY_DOCS"
LABEL=pipeline-many measure pipeline --connections 1 --docs "$MANY_DOCS"
LABEL=sort-memory measure sort-all --connections 1 --docs "$MANY_DOCS"
LABEL=count-range-many measure count-range --connections 1 --docs "$MANY_DOCS"
stop_server
start_server --setParameter "$(sort_memory $((MANY_DOCS * 35)))"
LABEL=warm measure scan --connections 1 --docs "$MANY_DOCS"
LABEL=sort-disk measure sort-all --connections 1 --docs "$MANY_DOCS"
stop_server

python3 - "$TEMP/results" "$CONNECTIONS" "$first_start_ms" "$idle_rss_kb" "$before_idle_rss_kb" "$IDLE" "$RESULTS" <<'PYTHON'
import json, sys
path, conns, start_ms, idle_rss, before_rss, idle, out = sys.argv[1:]
rows = [json.loads(line) for line in open(path)]
conns = int(conns)

def best(name, connections=None, idle=False):
    found = [r for r in rows if r["workload"] == name and (connections is None or r["connections"] == connections)
             and ("idle_connections" in r) == idle]
    return max(found, key=lambda r: r["ops_per_s"]) if found else None

figures = []
def ratio(label, top, bottom, key="ops_per_s"):
    if top is None or bottom is None or not bottom.get(key):
        print(f"{label:28} not measured")
        return
    value = top[key] / bottom[key]
    figures.append({"figure": label, "value": round(value, 4), "measured": top[key], "floor": bottom[key]})
    print(f"{label:28} {value:8.3f}   {top[key]:14,.0f} / {bottom[key]:14,.0f}")

print(f"\n{'figure':28} {'ratio':>8}   {'measured':>14} / {'floor':>14}   per second")
echo = best("echo", conns)
for name in ("ping", "point-read", "read-mostly", "update", "insert1", "range-scan", "index-find"):
    ratio(f"{name}/echo", best(name, conns), echo)
for name in ("ping", "point-read"):
    ratio(f"{name}/echo, 1 connection", best(name, 1), best("echo", 1))
ratio("load/wt-load", best("load"), best("wt-load"), "docs_per_s")
ratio("scan/wt-scan", best("scan"), best("wt-scan"), "docs_per_s")
ratio("index-find/point-read", best("index-find", conns), best("point-read", conns))
ratio("scan/wt-scan, many", best("scan-many"), best("wt-scan-many"), "docs_per_s")
ratio("group/wt-scan, many", best("group-many"), best("wt-scan-many"), "docs_per_s")
ratio("sort in memory/scan", best("sort-memory"), best("scan-many"), "docs_per_s")
ratio("sort on disk/in memory", best("sort-disk"), best("sort-memory"), "docs_per_s")
ratio("pipeline/group", best("pipeline-many"), best("group-many"), "docs_per_s")
ratio("count-range/wt-index-scan", best("count-range-many"), best("wt-index-many"), "docs_per_s")
loaded = best("point-read", conns, idle=True)
ratio(f"point-read with {idle} idle/echo", loaded, echo)
print(f"{'start-up':28} {int(start_ms):8} ms")
print(f"{'memory, idle':28} {int(idle_rss) / 1024:8.1f} MB")
if loaded:
    grown = (loaded["server_rss_kb"] - int(before_rss)) / 1024
    print(f"{'memory, ' + idle + ' idle more':28} {grown:+8.1f} MB")
if out:
    json.dump({"results": rows, "figures": figures, "start_ms": int(start_ms), "idle_rss_kb": int(idle_rss),
               "loaded_rss_kb": loaded and loaded["server_rss_kb"]}, open(out, "w"), indent=1)
PYTHON

echo
"$(dirname "$BENCH")/client-bench"

if [ -d tests/node_modules ]; then
    echo
    SHERD=$SHERD BENCH=$BENCH DOCS=$MANY_DOCS node bench/index_build.mjs
    echo
    SHERD=$SHERD BENCH=$BENCH DOCS=$MANY_DOCS node bench/background.mjs
    echo
    SHERD=$SHERD BENCH=$BENCH node bench/replica_set.mjs
    echo
    SHERD=$SHERD BENCH=$BENCH node bench/transactions.mjs
    echo
    SHERD=$SHERD BENCH=$BENCH node bench/router.mjs
else
    echo "index builds, TTL, validate, replica sets, transactions and routers are measured once the npm packages of the tests are there (make test)"
fi
