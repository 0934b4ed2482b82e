/*
 * find_source.h - a plan over one collection as the source of a client cursor.
 */
#pragma once

#include "cursor/cursor_source.h"
#include "query/plan/planner.h"

/* A record id that outlives its row. */
typedef struct KeptRecordId {
    int64_t num;
    Buffer bytes; /* of a clustered collection */
} KeptRecordId;

/* A plan over one collection; the source owns both. */
typedef struct FindSource {
    CursorSource base;
    CollAccess access;
    PlanExecutor *exec;
    bool has_token;      /* the client requested a resume token */
    bool is_oplog;       /* whose tokens are timestamps */
    KeptRecordId last;   /* of the last row; none at first */
    KeptRecordId before; /* of the previous row, in case `last` does not fit into the batch */
} FindSource;

/* Opens the collection for reading, plans and attaches. When the name is a view, *ret_is_view is
 * set and there is no source. */
ErrCode find_source_open(OpCtx *op, const Ns *ns, const QuerySpec *spec, FindSource **ret_source,
                         bool *ret_is_view, Error *err) MUST_CHECK;
void find_source_free_ptr(FindSource **source); /* for CLEANUP */
