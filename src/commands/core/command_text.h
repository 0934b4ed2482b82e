/*
 * command_text.h - long commands as currentOp and the profiler tell them.
 */
#pragma once

#include "base/arena.h"
#include "bson/doc.h"

enum {
    COMMAND_TOLD_BYTES_MAX = 50 * 1024, /* longer ones are cut */
};

/* {$truncated: text, comment?}: the beginning of the command as text, with long strings cut. In
 * arena memory. */
Doc command_cut(Doc command, Arena *arena);
