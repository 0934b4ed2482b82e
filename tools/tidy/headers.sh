#!/usr/bin/env bash
# Every header compiles by itself.
set -uo pipefail
cd "$(dirname "$0")/../.."
flags="-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Isrc $(pkg-config --cflags libbson-1.0)"
git ls-files --cached --others --exclude-standard 'src/*.h' |
    xargs -P "$(nproc)" -I{} sh -c 'echo "#include \"$(echo {} | sed s,^src/,,)\"" | gcc '"$flags"' -fsyntax-only -x c - || { echo "{}: does not compile alone"; exit 1; }'
