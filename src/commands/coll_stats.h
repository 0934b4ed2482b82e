/* coll_stats.h - the statistics of a collection, for collStats and $collStats. */
#pragma once

#include "bson/builder.h"
#include "catalog/collection.h"
#include "concurrency/op_ctx.h"

typedef struct CollStatsForm {
    int64_t scale;
    bool is_numeric_only; /* without texts */
} CollStatsForm;

/* Appends size, count, ... to the open document. NULL: a collection that does not exist, all zero.
 */
ErrCode build_collection_stats(DocBuilder *b, OpCtx *op, const Collection *coll,
                               const CollStatsForm *form, Error *err) MUST_CHECK;
