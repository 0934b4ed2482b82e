/*
 * query_args.h - what the commands that read share: their common options and the building of
 * batches.
 */
#pragma once

#include "commands/core/command.h"
#include "commands/core/generic_args.h"
#include "cursor/batch.h"
#include "query/cursor/find_source.h"
#include "cursor/cursor_table.h"

/* request_ns of a collection that may be given by its UUID: fails with ERR_NAMESPACE_NOT_FOUND. It
 * may be renamed by the time it is opened, so the UUID has to be looked at again. */
ErrCode request_ref_ns(const CommandCtx *ctx, const CollRef *coll, Ns *ret_ns, Error *err)
    MUST_CHECK;

/* Where sorts put what does not fit in memory. In the operation's arena. */
const char *spill_dir(const CommandCtx *ctx);

/* Settings of the server that a query needs. */
YieldPolicy yield_policy(const ServiceCtx *service);
void query_spec_defaults(const CommandCtx *ctx, QuerySpec *spec);

/* Does the filter let every document through: is it empty, but for a comment? */
bool is_unconditional(Doc filter);

/* As min or max of a query: before everything in the index that begins with `bound`. What the index
 * has besides is at the lower end of its order. */
Doc query_index_bound(const IndexDesc *index, Doc bound, Arena *arena);

/* Does a router send the command? It says by which metadata. */
static inline bool is_routed(const CommandCtx *ctx) {
    return elem_is_present(ctx->args.shard_version);
}
/* $$NOW and $$CLUSTER_TIME, if a router has chosen them for all shards: {localNow, clusterTime}. */
void runtime_take(Doc runtime, int64_t *now_ms, uint64_t *cluster_ts);

/* Evaluates `let` into spec->let_values. */
ErrCode query_spec_let(CommandCtx *ctx, Doc let, QuerySpec *spec, Error *err) MUST_CHECK;

/* Appends documents to the array `field` of the reply until the batch is full or the source ends.
 */
ErrCode build_batch(CommandCtx *ctx, CursorSource *source, const char *field, int64_t docs_max,
                    BatchResult *ret_result, Error *err) MUST_CHECK;

typedef struct FirstBatchOptions {
    int64_t batch_size; /* -1: the default */
    int64_t limit;      /* of all batches together; 0: none */
    bool is_single_batch;
    bool is_tailable;
    bool is_await_data;
    bool has_no_timeout;
    bool is_writing;                   /* the next batch writes, with the command's concern */
    const PlanExecutor *tailable_exec; /* to tell an empty collection from one without matches */
} FirstBatchOptions;
/* Appends {cursor: {firstBatch, id, ns}} and keeps the rest as a client cursor. Takes the source,
 * also when it fails. `ns` is shown to the client. */
ErrCode reply_with_cursor(CommandCtx *ctx, const Ns *ns, CursorSource *take_source,
                          const FirstBatchOptions *options, Error *err) MUST_CHECK;

/* The plan goes to the operation's description, for currentOp and the logs. */
void note_plan(CommandCtx *ctx, const PlanExecutor *exec);

/* "atClusterTime", when the operation reads at a time of its own: clients take it for the next
 * reads of a snapshot session. */
void build_snapshot_time(CommandCtx *ctx, DocBuilder *b);
