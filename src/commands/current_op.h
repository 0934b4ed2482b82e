/*
 * current_op.h - running operations as documents, for currentOp and $currentOp.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct CurrentOpQuery {
    bool has_idle_connections;
    bool has_idle_sessions; /* transactions between two statements */
    bool is_own_only;       /* those of `connection_id` */
    int64_t connection_id;
} CurrentOpQuery;

/* Calls back with one document per operation; `row` is valid during the call. Stops at the first
 * failure and returns it. No lock is held during the calls. */
ErrCode current_op_for_each(ServiceCtx *service, const CurrentOpQuery *query,
                            ErrCode (*visit)(void *arg, Doc row, Error *err), void *arg, Error *err)
    MUST_CHECK;
