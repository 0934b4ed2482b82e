/*
 * views.h - views are rows of <db>.system.views: {_id: "db.view", viewOn, pipeline, collation?}.
 */
#pragma once

#include "ddl/ddl.h"

enum {
    VIEW_DEPTH_MAX = 20,
};

/* view_graph.c: checks a view definition, with the lock that changes of views take. Fails with
 * ERR_GRAPH_CONTAINS_CYCLE when it would refer to itself, through whatever views and stages, and
 * with ERR_VIEW_DEPTH_LIMIT_EXCEEDED when some view would be deeper than VIEW_DEPTH_MAX. */
ErrCode view_graph_check(OpCtx *op, const Catalog *catalog, const Ns *ns, Str view_on, Doc pipeline,
                         Error *err) MUST_CHECK;

/* The same of a pipeline that is run: what its stages read is one level deeper. Without this, views
 * that refer to the next one in several stages could be opened more often than a lifetime allows.
 */
ErrCode view_graph_check_pipeline(OpCtx *op, const Catalog *catalog, Str db, Doc pipeline,
                                  Error *err) MUST_CHECK;

ErrCode view_drop(OpCtx *op, const Ns *ns, bool *ret_was_found, Error *err) MUST_CHECK;
/* Replaces viewOn and pipeline of an existing view; `collator` is the one it has. */
ErrCode view_modify(OpCtx *op, const Ns *ns, Str view_on, Doc pipeline, const Collator *collator,
                    Error *err) MUST_CHECK;
