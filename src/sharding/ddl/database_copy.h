/*
 * database_copy.h - the copy of a database that moves to this shard (movePrimary): what the new
 * primary shard does for the coordinator, on its primary.
 *
 * All of it may be asked for again. A coordinator of an earlier term is refused (ERR_STALE_TERM).
 * Change streams do not hear of it.
 */
#pragma once

#include "catalog/access.h"
#include "query/plan/planner.h"
#include "sharding/ddl/participant.h"

/* Inserts documents in their order; those that are there already are passed over.
 * ERR_DUPLICATE_KEY: another one has that _id, or a key of a unique index. */
ErrCode database_copy_insert(OpCtx *op, const DdlCaller *caller, const Ns *ns, const Uuid *uuid,
                             const Doc *docs, uint32_t count, Error *err) MUST_CHECK;
/* Makes these all views of the database; their definitions are as in system.views. */
ErrCode database_copy_views(OpCtx *op, const DdlCaller *caller, Str db, const Doc *views,
                            uint32_t count, Error *err) MUST_CHECK;

/* What a collection has; whatever the order of its documents. */
typedef struct CollectionDigest {
    int64_t count;
    int64_t bytes;
    uint64_t sum; /* of hashes */
    int64_t index_count;
} CollectionDigest;
/* *ret_found is false when there is no such collection. Reads without a lock, and yields. */
ErrCode collection_digest(OpCtx *op, const Ns *ns, const Uuid *uuid, bool *ret_found,
                          CollectionDigest *ret_digest, Error *err) MUST_CHECK;

/* All documents of a collection in their natural order, between which others may write. */
typedef struct CollectionScan {
    CollAccess access;
    PlanExecutor *exec;
} CollectionScan;
ErrCode collection_scan_open(OpCtx *op, const Ns *ns, const Uuid *uuid, bool *ret_found,
                             CollectionScan *ret_scan, Error *err) MUST_CHECK;
ErrCode collection_scan_next(CollectionScan *scan, bool *ret_found, Doc *ret_doc, Error *err)
    MUST_CHECK;
/* Holds nothing of the storage until it is resumed. */
void collection_scan_suspend(CollectionScan *scan);
ErrCode collection_scan_resume(OpCtx *op, CollectionScan *scan, Error *err) MUST_CHECK;
void collection_scan_done(CollectionScan *scan);
