/*
 * current_op.h - running operations as documents, for currentOp and $currentOp.
 */
#pragma once

#include "concurrency/op_listing.h"
#include "concurrency/service_ctx.h"

/* OpListing.for_each */
ErrCode current_op_for_each(ServiceCtx *service, const CurrentOpQuery *query, OpRowVisit visit,
                            void *arg, Error *err) MUST_CHECK;
/* OpListing.for_each_session */
ErrCode current_sessions_for_each(ServiceCtx *service, OpRowVisit visit, void *arg, Error *err)
    MUST_CHECK;
extern const OpListing CURRENT_OPS;
