/*
 * collection_write.h - writing documents: record, index keys and observers in one storage
 * transaction.
 *
 * The functions are called inside a unit of work with the collection locked in IX (or X). On
 * failure the caller leaves the unit of work uncommitted; nothing of the document stays.
 */
#pragma once

#include "base/error.h"
#include "catalog/access.h"
#include "index/key_gen.h"

struct UpdateProgram;

/* Scratch memory for writes; one per statement, reused per document. */
typedef struct WriteScratch {
    KeySet before;
    KeySet after;
    KeyBuilder rid;
    Buffer side; /* one record of an index being built */
} WriteScratch;
void write_scratch_init(WriteScratch *scratch);
void write_scratch_done(WriteScratch *scratch);

/* Documents must have their _id (first field) and be validated BSON within the size limit. Vectored
 * (STX-6): one transaction, and for a replicated collection one timestamp per document. Fails with
 * ERR_DUPLICATE_KEY naming index and key. */
ErrCode collection_insert(OpCtx *op, const Collection *coll, const Doc *docs, size_t count,
                          WriteScratch *scratch, Error *err) MUST_CHECK;
/* The same in a unit of work of its own, which is retried: not inside of one. */
ErrCode collection_insert_unit(OpCtx *op, const Collection *coll, const Doc *docs, size_t count,
                               WriteScratch *scratch, Error *err) MUST_CHECK;
/* `before` is the present document of `rid`, read in this transaction's snapshot. */
ErrCode collection_update(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                          WriteScratch *scratch, Error *err) MUST_CHECK;
/* The same for an update by operators or a pipeline: observers can tell what these did. */
ErrCode collection_update_by(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                             const struct UpdateProgram *program, WriteScratch *scratch, Error *err)
    MUST_CHECK;
/* The same for an update by replacement: observers are notified of that. */
ErrCode collection_replace(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                           WriteScratch *scratch, Error *err) MUST_CHECK;
ErrCode collection_delete(OpCtx *op, const Collection *coll, RecordId rid, Doc before,
                          WriteScratch *scratch, Error *err) MUST_CHECK;

/* Checks a document against the collection's validator. `before` is DOC_NONE for inserts. */
ErrCode collection_check_validator(OpCtx *op, const Collection *coll, Doc before, Doc after,
                                   Error *err) MUST_CHECK;

/* The DuplicateKey error with keyPattern and keyValue. */
ErrCode duplicate_key_error(const Collection *coll, const IndexDesc *index, IndexKey key,
                            Error *err);
