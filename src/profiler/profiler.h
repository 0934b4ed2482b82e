/*
 * profiler.h - keeps documents about operations in <database>.system.profile.
 *
 * Each database has its own level (0: nothing, 1: slow operations, 2: all); the threshold and the
 * sample rate are those of the slow log. A database may have a filter, which decides in their
 * place, for level 1 and for the slow log; without one of its own it has that of the configuration
 * file, if there is one. Levels and filters are forgotten when the server stops.
 *
 * Ownership: made by server/, hangs off the ServerSetup.
 * Threading: any thread. Lock: LOCK_RANK_PARAMETERS.
 */
#pragma once

#include "commands/core/command.h"
#include "profiler/profile_filter.h"

typedef struct Profiler Profiler;

/* Of databases for which nothing was set. `default_filter` may be NULL; it keeps a reference. */
Profiler *profiler_new(ServiceCtx *service, int32_t default_level, ProfileFilter *default_filter);
void profiler_free(Profiler *profiler);

int32_t profiler_level(Profiler *profiler, Str db);
void profiler_set_level(Profiler *profiler, Str db, int32_t level);
/* NULL: none. The caller gets a reference. */
ProfileFilter *profiler_filter(Profiler *profiler, Str db);
void profiler_set_filter(Profiler *profiler, Str db, ProfileFilter *filter);
/* The database was dropped: back to the default. */
void profiler_forget_level(Profiler *profiler, Str db);
/* Creates system.profile, if it is not there. */
ErrCode profiler_ensure_collection(OpCtx *op, Str db, Error *err) MUST_CHECK;

/* Hook of the command service: writes the document if one is due. What goes wrong is logged, since
 * the operation itself is done. */
void profiler_on_finished(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err);

/* Hook of the command service, where some database has a filter: false if that of the operation has
 * none, so that its duration decides. */
bool profiler_is_logged(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err,
                        bool *ret_is_logged);
