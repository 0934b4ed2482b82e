/*
 * range_delete.h - deletes what is found under a range of values, in batches: for background work
 * that removes much and must not be in the way.
 *
 * The range is searched in an index, or in the record ids of a clustered collection. Each batch is
 * one unit of work that reads its documents again and deletes those that still match the filter.
 * Between batches others get through.
 */
#pragma once

#include "base/error.h"
#include "bson/uuid.h"
#include "catalog/namespace.h"
#include "concurrency/op_ctx.h"

typedef struct RangeDelete {
    Uuid uuid;         /* of the collection: another one of the same name is left alone */
    const char *ident; /* table of the index to search by its first field; NULL: record ids */
    Elem low;          /* inclusive */
    Elem high;         /* inclusive */
    Doc filter;
    uint32_t batch_docs;
    int64_t docs_max; /* stops after so many; 0: no limit */
    int64_t time_us_max;
} RangeDelete;

typedef struct RangeDeleteResult {
    int64_t deleted;
    bool has_more; /* stopped by a limit */
} RangeDeleteResult;

/* A collection or an index that is gone is nothing to delete from. */
ErrCode exec_range_delete(OpCtx *op, const Ns *ns, const RangeDelete *request,
                          RangeDeleteResult *ret_result, Error *err) MUST_CHECK;
