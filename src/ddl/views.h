/*
 * views.h - views are rows of <db>.system.views: {_id: "db.view", viewOn, pipeline, collation?}.
 */
#pragma once

#include "ddl/ddl.h"

enum {
    VIEW_DEPTH_MAX = 20,
};

ErrCode view_drop(OpCtx *op, const Ns *ns, bool *ret_was_found, Error *err) MUST_CHECK;
/* Replaces viewOn and pipeline of an existing view; `collator` is the one it has. */
ErrCode view_modify(OpCtx *op, const Ns *ns, Str view_on, Doc pipeline, const Collator *collator,
                    Error *err) MUST_CHECK;
