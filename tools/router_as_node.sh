#!/usr/bin/env bash
# A cluster of two shards that looks like one node: for runners of tests that start a server by
# `--port P --dbpath D` (tools/public_tests.sh with JSTESTS_SERVER), so that they go through a router.
set -euo pipefail
port= dir=
while [ $# -gt 0 ]; do
    case $1 in
    --port) port=$2 ;;
    --dbpath) dir=$2 ;;
    esac
    shift
done
exec "${SHERD:-$(dirname "$(readlink -f "$0")")/../build/sherd}" up --shards 2 --port "$port" --dir "$dir"
