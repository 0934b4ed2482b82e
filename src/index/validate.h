/*
 * validate.h - does a collection agree with its indexes, and is it sound? (DUR-5)
 *
 * One pass over the records adds each expected key to a table of counters, hashed; one pass over
 * each index takes each entry away. A counter that is not zero at the end points to missing or
 * extra entries; a second pass over only those buckets names them, and repair mends them.
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
    bool is_repair; /* mends what it can; needs the X lock */
    /* Makes a collection if there is none: for documents that cannot get their key in a unique
     * index. Where it is NULL, or lost_and_found_ns is not locked in X, they stay and are told. */
    ErrCode (*ensure_collection)(OpCtx *op, const Ns *ns, Error *err);
} ValidateOptions;

/* Where a repair puts such documents of the collection with that uuid. */
ErrCode lost_and_found_ns(const Uuid *uuid, Ns *ret_ns, Error *err) MUST_CHECK;

/* Validates access->coll in the operation's snapshot and appends the report's fields. Under an X
 * lock the fast counts are set right. */
ErrCode collection_validate(CollAccess *access, const ValidateOptions *options, bool is_locked,
                            DocBuilder *b, Error *err) MUST_CHECK;
