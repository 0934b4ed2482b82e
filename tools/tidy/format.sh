#!/usr/bin/env bash
# clang-format leaves nothing to do, and no line is longer than 100 columns but for long texts.
set -uo pipefail
cd "$(dirname "$0")/../.."
git ls-files --cached --others --exclude-standard 'src/*.c' 'src/*.h' 'bench/*.c' 'bench/*.h' |
    xargs -P "$(nproc)" -n 16 clang-format --dry-run --Werror
