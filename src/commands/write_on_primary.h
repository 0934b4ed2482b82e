/*
 * write_on_primary.h - $out and $merge of a pipeline that a secondary runs.
 *
 * The secondary reads; what it has to write it sends to the primary (query/agg/gather_sink.h).
 */
#pragma once

#include "commands/core/command.h"
#include "query/cursor/agg_source.h"

/* Who writes for a pipeline of this command: nobody else, unless this member is a secondary. */
AggWriter writer_of_pipeline(CommandCtx *ctx);
