/*
 * validate.h - checks a collection against its indexes, and both for corruption (DUR-5).
 *
 * One pass over the records adds each expected key to a table of counters, hashed; one pass over
 * each index subtracts each entry. A counter that is not zero at the end points to missing or extra
 * entries; a second pass over only those buckets identifies them, and repair fixes them. So the
 * memory of a validation does not depend on the size of the collection.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "catalog/access.h"

typedef struct ValidateOptions {
    bool is_metadata_only; /* the catalog entry and the specifications of indexes, no data */
    bool is_full;          /* also WiredTiger's own check of the files */
    bool is_conformance;   /* also UTF-8 and repeated field names */
    bool is_fast_count_enforced;
    bool is_repair; /* fixes what it can; needs the X lock */
    /* Creates a collection if it does not exist: for documents that cannot get their key in a
     * unique index. If it is NULL, or lost_and_found_ns is not locked in X, they stay and are
     * reported. */
    ErrCode (*ensure_collection)(OpCtx *op, const Ns *ns, Error *err);
} ValidateOptions;

/* Where a repair puts such documents of the collection with that uuid. */
ErrCode lost_and_found_ns(const Uuid *uuid, Ns *ret_ns, Error *err) MUST_CHECK;

/* Validates access->coll in the operation's snapshot and appends the report's fields. Under an X
 * lock the fast counts are set right. */
ErrCode collection_validate(CollAccess *access, const ValidateOptions *options, bool is_locked,
                            DocBuilder *b, Error *err) MUST_CHECK;
