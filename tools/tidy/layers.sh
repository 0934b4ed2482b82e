#!/usr/bin/env bash
# Includes go downward only: checks every #include "..." of src/ against layers.txt. Also: only storage/ may
# include WiredTiger, *_internal.h stays in its folder, and layers.txt itself must not allow a circle.
set -uo pipefail
cd "$(dirname "$0")/../.."
awk '
    FILENAME == ARGV[1] {
        if ($0 ~ /^#/ || NF == 0) next
        folder = $1; sub(/:$/, "", folder); known[folder] = 1
        for (i = 2; i <= NF; i++) allowed[folder, $i] = 1
        next
    }
    /^#include "/ {
        folder = FILENAME; sub(/^src\//, "", folder); sub(/\/[^\/]*$/, "", folder)
        target = $2; gsub(/"/, "", target); file = target; sub(/\/[^\/]*$/, "", target)
        if (!(folder in known)) { print FILENAME ": folder \"" folder "\" is not in layers.txt"; bad = 1 }
        if (target != folder && !((folder, target) in allowed)) {
            print FILENAME ":" FNR ": " folder " may not include " file; bad = 1
        }
        if (file ~ /_internal\.h$/ && target != folder) {
            print FILENAME ":" FNR ": " file " is private to " target; bad = 1
        }
    }
    /^#include <wiredtiger.h>/ {
        if (FILENAME !~ /^src\/storage\//) { print FILENAME ":" FNR ": only storage/ includes WiredTiger"; bad = 1 }
    }
    # Takes away folders that include none of those left; what cannot be taken away is in a circle.
    END {
        for (taken = 1; taken;) {
            taken = 0
            for (f in known) {
                is_free = 1
                for (g in known) if (g != f && ((f, g) in allowed)) is_free = 0
                if (is_free) { delete known[f]; taken = 1; break }
            }
        }
        for (f in known) { print "layers.txt: \"" f "\" is in a circle, or above one"; bad = 1 }
        exit bad
    }
' tools/tidy/layers.txt $(git ls-files --cached --others --exclude-standard 'src/*.c' 'src/*.h' 'src/*.def')
