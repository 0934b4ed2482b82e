#!/usr/bin/env bash
# docs/compatibility.md is what the tables of the code say.
exec "$(dirname "$0")/../compatibility.sh" --check
