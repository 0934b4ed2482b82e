/*
 * unique_check.h - whether an index that was not unique so far has duplicates.
 */
#pragma once

#include "base/error.h"
#include "catalog/collection.h"
#include "concurrency/op_ctx.h"

/* Reads the whole index; writers of the collection must be excluded. Fails with
 * ERR_CANNOT_CONVERT_INDEX_TO_UNIQUE when several documents share a key; the error's extra fields
 * are {violations: [{ids: [<_id>, ...]}, ...]}, one for each such key, as far as they fit into a
 * reply. */
ErrCode index_check_unique(OpCtx *op, const Collection *coll, const IndexDesc *index, Error *err)
    MUST_CHECK;
