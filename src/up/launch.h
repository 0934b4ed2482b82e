/*
 * launch.h - starts one part of a cluster as a process of this same program.
 */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"
#include "up/directory.h"
#include "up/layout.h"

typedef struct Launcher {
    char program[PATH_MAX];
    const Directory *directory;
    const Layout *layout;
    double cache_gb; /* of each member */
} Launcher;

ErrCode launcher_init(Launcher *launcher, const Directory *directory, const Layout *layout,
                      Error *err) MUST_CHECK;

/* By the main thread alone: the kernel ends the child when the thread that made it ends. */
ErrCode launch_part(const Launcher *launcher, const Part *part, pid_t *ret_pid, Error *err)
    MUST_CHECK;

/* Files of a part, in arena memory. */
const char *launch_log_path(const char *directory, const Part *part, Arena *arena);
const char *launch_pid_path(const char *directory, const Part *part, Arena *arena);
