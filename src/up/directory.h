/*
 * directory.h - the directory of a cluster: who uses it, and what it remembers.
 *
 *     up.lock        locked by the `sherd up` that runs here; holds its process id
 *     children.lock  locked as long as one of its children lives: they inherit the descriptor
 *     cluster.json   the layout, replaced as a whole
 *     up.log         what the connections of `sherd up` have to say
 *     <part>/        data, log and process id of each part
 *
 * Locks belong to open descriptions of files, so that the kernel releases them however the last
 * holder ends.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"
#include "up/layout.h"

typedef struct Directory {
    char path[PATH_MAX];
    int lock_fd;
    int children_fd;
} Directory;

/* Makes the directory if need be and takes its locks. Children of a `sherd up` that was killed are
 * waited for. */
ErrCode directory_open(Directory *directory, const char *path, Error *err) MUST_CHECK;
void directory_close(Directory *directory); /* zeroed is fine */

/* The process that runs a cluster there; 0: none. */
pid_t directory_find_owner(const char *path);

ErrCode directory_find_layout(const char *path, Arena *arena, bool *ret_found, Layout *ret_layout,
                              Error *err) MUST_CHECK;
/* Returns when it is on disk. */
ErrCode directory_write_layout(const char *path, const Layout *layout, Error *err) MUST_CHECK;
