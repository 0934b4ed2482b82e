/*
 * stream_source.h - a change stream as the source of a cursor.
 *
 * Ownership: owns its pipeline and everything it read; freed with its cursor.
 * Threading: one request at a time; the hub reads its filter while it waits.
 */
#pragma once

#include "bson/namespace.h"
#include "change_stream/stream_spec.h"
#include "cursor/cursor_source.h"
#include "query/agg/pipeline.h"

typedef struct StreamOptions {
    bool is_collectionless; /* {aggregate: 1} */
    const Collator *collator;
    Doc let_values;
    int64_t now_ms;
    size_t stage_memory_bytes;
    /* Of a stream that a router opens; see StreamFilter. DOC_NONE: no router does. */
    Doc database_version;
    uint64_t arrived_ts; /* the database has come to this shard then; 0: it was always here */
} StreamOptions;

/* Whether the pipeline begins with $changeStream. */
bool stream_is_wanted(Doc stages);

/* `stages` is the whole pipeline. Fails with ERR_ILLEGAL_OPERATION for stages that may not follow,
 * ERR_CHANGE_STREAM_HISTORY_LOST when its beginning is no longer in the oplog. */
ErrCode stream_source_open(OpCtx *op, const Ns *ns, Doc stages, const StreamOptions *options,
                           CursorSource **ret_source, Error *err) MUST_CHECK;

/* For explain: appends the stages as they run, one document per stage. */
void stream_source_explain(const CursorSource *source, DocBuilder *array);
