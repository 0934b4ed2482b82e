/*
 * client_cursors.h - the cursors that this router's clients have: their first batches, and getMore.
 */
#pragma once

#include "commands/core/command.h"
#include "cursor/cursor_table.h"

typedef struct OpenedCursor {
    int64_t limit;          /* documents that it may give in all; 0: any number */
    int64_t returned_count; /* in its first batch */
    uint64_t snapshot_ts;   /* told with each batch; 0: nothing, or its batches have it */
} OpenedCursor;
/* Keeps the source, which is detached, for getMore under the name `ns`; returns the cursor's id. */
int64_t register_source(CommandCtx *ctx, const Ns *ns, CursorSource *take_source,
                        const OpenedCursor *opened);

typedef struct FirstBatch {
    int64_t batch_size; /* -1: the default */
    int64_t limit;      /* of all batches together; 0: none */
    bool is_single_batch;
    bool is_partial;      /* a shard is left out: the client is told */
    uint64_t snapshot_ts; /* at which shards read, told to the client; 0: that of its request */
} FirstBatch;
/* Appends {cursor: {firstBatch, id, ns}} and keeps the rest as a client cursor. Takes the source,
 * also when it fails. */
ErrCode reply_with_source(CommandCtx *ctx, const Ns *ns, CursorSource *take_source,
                          const FirstBatch *options, Error *err) MUST_CHECK;

extern const CommandSpec ROUTER_GET_MORE;

/* Does the command open a change stream, or read on in one? */
bool is_of_change_stream(const CommandCtx *ctx);
