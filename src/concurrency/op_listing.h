/*
 * op_listing.h - running operations as documents: what is asked for, and who makes them.
 *
 * The documents tell of every part of a node, so they are made above all of them
 * (commands/current_op.c). Code below finds the function by its ServiceCtx.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "concurrency/service_ctx.h"

typedef struct CurrentOpQuery {
    bool has_idle_connections;
    bool has_idle_sessions; /* transactions between two statements */
    bool has_idle_cursors;  /* cursors between two batches */
    bool is_own_only;       /* those of `connection_id` */
    int64_t connection_id;
} CurrentOpQuery;

/* `row` is valid during the call. */
typedef ErrCode (*OpRowVisit)(void *arg, Doc row, Error *err);

typedef struct OpListing {
    /* Calls back with one document per operation of this process. Stops at the first failure and
     * returns it. No lock is held during the calls. */
    ErrCode (*for_each)(ServiceCtx *service, const CurrentOpQuery *query, OpRowVisit visit,
                        void *arg, Error *err);
    /* The same with {_id, lastUse} of each logical session that this process has in use. */
    ErrCode (*for_each_session)(ServiceCtx *service, OpRowVisit visit, void *arg, Error *err);
} OpListing;
