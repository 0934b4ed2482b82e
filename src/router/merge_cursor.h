/*
 * merge_cursor.h - the documents of cursors on several shards, as one source.
 *
 * Each shard's cursor has a batch here. When one runs out, getMores go to all whose batches have
 * run out, at the same time. Without a sort documents come batch by batch; with one they carry
 * their sort keys (query/sort) and are merged by them. An error of one shard ends all.
 *
 * Ownership: owns the cursors of the shards: those that are not at their end are killed when it is
 *            freed. Threading: whoever has it.
 */
#pragma once

#include "cursor/cursor_source.h"
#include "query/agg/pipeline.h"
#include "router/scatter.h"

typedef struct MergeCursor MergeCursor;

typedef struct MergeOptions {
    bool is_sorted;
    int64_t skip;
    int64_t limit;       /* applies after skip; 0: none */
    int64_t batch_size;  /* of getMores; 0 or less: as the shards like */
    bool allows_partial; /* a shard that cannot be reached is left out */
    Elem lsid;           /* the session its cursors belong to; missing: none */
    /* Where the present operation is found; NULL: it is told by attach. */
    OpCtx *const *op;
} MergeOptions;

/* Takes over the cursors that the calls have opened. Fails with the error of a call that failed;
 * then no cursor is left. */
ErrCode merge_cursor_open(CommandCtx *ctx, ShardCalls *calls, const MergeOptions *options,
                          MergeCursor **ret_cursor, Error *err) MUST_CHECK;
void merge_cursor_free(MergeCursor *cursor); /* NULL is fine */
CursorSource *merge_cursor_base(MergeCursor *cursor);
/* The same documents for a pipeline. */
DocSource merge_cursor_docs(MergeCursor *cursor);
/* Is a shard left out? */
bool merge_cursor_is_partial(const MergeCursor *cursor);
/* Kills the cursors that the calls have opened: for those who have no use for them. */
void shard_calls_kill_cursors(CommandCtx *ctx, const ShardCalls *calls);

/* {cursor: {id, ns, firstBatch or nextBatch}} of a shard's reply. */
typedef struct ReplyCursor {
    Doc doc;
    int64_t id; /* 0: at its end */
    Ns ns;
    Doc batch;
} ReplyCursor;
ErrCode reply_cursor_parse(Doc reply, ReplyCursor *ret_cursor, Error *err) MUST_CHECK;
