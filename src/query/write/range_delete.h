/*
 * range_delete.h - deletes a range of values in batches: for background work that removes many
 * documents and must not disturb clients.
 *
 * The range is searched in an index, or in the record ids of a clustered collection. Each batch is
 * one unit of work that re-reads its documents and deletes those that still match the filter.
 * Between batches locks and ticket are released.
 *
 * Crash: whole batches are deleted or not; the caller repeats the request.
 */
#pragma once

#include "base/error.h"
#include "bson/uuid.h"
#include "bson/namespace.h"
#include "concurrency/op_ctx.h"

typedef struct RangeDelete {
    Uuid uuid;         /* of the collection: another one of the same name is left alone */
    const char *ident; /* table of the index to search by its first field; NULL: record ids */
    Elem low;          /* inclusive */
    Elem high;         /* inclusive */
    /* Instead of low and high, if it is there: values of the first fields of the index, `max`
     * excluded. DOC_NONE for `max`: to the end. */
    Doc min;
    Doc max;
    Doc filter;
    /* What else decides; NULL: nothing. */
    bool (*is_taken)(void *arg, Doc doc);
    void *arg;
    uint32_t batch_docs;
    int64_t docs_max; /* stops after so many; 0: no limit */
    int64_t time_us_max;
    bool is_ownership_ignored; /* includes documents that the node does not own */
} RangeDelete;

typedef struct RangeDeleteResult {
    int64_t deleted;
    int64_t deleted_bytes;
    bool has_more; /* stopped by a limit */
} RangeDeleteResult;

/* A missing collection or index is not an error: there is nothing to delete. */
ErrCode exec_range_delete(OpCtx *op, const Ns *ns, const RangeDelete *request,
                          RangeDeleteResult *ret_result, Error *err) MUST_CHECK;
