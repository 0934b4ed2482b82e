#!/usr/bin/env bash
# A builder into a bounded buffer ends with doc_builder_finish or doc_builder_try_finish: within a
# function, doc_builder_end of one stops the process (bson/builder.h). Buffers that come from elsewhere
# are found by the first test that gets there.
set -euo pipefail
cd "$(dirname "$0")/../.."
find src bench -name '*.[ch]' -print0 | xargs -0 awk '
    FNR == 1 || /^}/ { delete bounded; delete builder }
    match($0, /buffer_init(_arena)?\(&?[a-z_]+,/) {
        name = substr($0, RSTART, RLENGTH)
        sub(/^buffer_init(_arena)?\(&?/, "", name)
        sub(/,$/, "", name)
        call = $0
        while (call !~ /;/ && (getline line) > 0) call = call line
        if (call !~ /BUFFER_UNBOUNDED/) bounded[name] = 1
    }
    match($0, /doc_builder_init\(&[a-z_]+, &?[a-z_]+\)/) {
        split(substr($0, RSTART + 18, RLENGTH - 19), parts, /, &?/)
        if (parts[2] in bounded) builder[parts[1]] = 1
    }
    match($0, /doc_builder_end\(&[a-z_]+\)/) {
        name = substr($0, RSTART + 17, RLENGTH - 18)
        if (name in builder) {
            print FILENAME ":" FNR ": the buffer of " name " has a bound: doc_builder_finish"
            failed = 1
        }
    }
    END { exit failed }'
