/*
 * record_store.h - a table of documents by record id.
 *
 * Ownership: reference-counted; every collection instance of the catalog holds one reference, and
 * the table is dropped for good only when the last is gone (CAT-5). Threading: any thread; cursors
 * belong to their operation.
 */
#pragma once

#include <stdatomic.h>

#include "base/error.h"
#include "bson/doc.h"
#include "bson/keystring.h"
#include "concurrency/op_ctx.h"
#include "storage/table_cursor.h"

typedef struct StorageEngine StorageEngine;
typedef struct RecordStore RecordStore;

/* Opens an existing table; `ident` is copied. */
ErrCode record_store_open(StorageEngine *engine, const char *ident, bool is_clustered,
                          RecordStore **ret_rs, Error *err) MUST_CHECK;
/* Creates a new table and opens it; a failure leaves none behind. */
ErrCode record_store_create(StorageEngine *engine, const char *ident, bool is_clustered,
                            const char *extra_config, RecordStore **ret_rs, Error *err) MUST_CHECK;
RecordStore *record_store_ref(RecordStore *rs);
void record_store_unref(RecordStore *rs);
bool record_store_is_shared(const RecordStore *rs); /* more than one reference */
const char *record_store_ident(const RecordStore *rs);
bool record_store_is_clustered(const RecordStore *rs);
/* Its record ids are timestamps of the oplog: forward cursors stop at storage_oplog_visible_ts.
 * Before it is used. */
void record_store_set_oplog(RecordStore *rs);
/* Removes the records from `first` to `last`, both included, in one step; the caller knows how many
 * and how large they are. */
ErrCode record_store_truncate_range(OpCtx *op, RecordStore *rs, RecordId first, RecordId last,
                                    int64_t count, int64_t bytes, Error *err) MUST_CHECK;

/* Fast counts: exact after a clean stop, nearly so after a crash. */
int64_t record_store_count(const RecordStore *rs);
int64_t record_store_data_size(const RecordStore *rs);
/* Counts with the changes of the operation's open unit of work. */
void record_store_counts_in_txn(const OpCtx *op, const RecordStore *rs, int64_t *ret_count,
                                int64_t *ret_data_size);
/* Sets counted values (validate); everything applied from now on is counted, too. */
void record_store_set_counts(RecordStore *rs, int64_t count, int64_t data_size);

/* A fresh record id, larger than all before. */
ErrCode record_store_next_id(OpCtx *op, RecordStore *rs, RecordId *ret_rid, Error *err) MUST_CHECK;

/* ---- writes, inside a unit of work ---- */

ErrCode record_insert(OpCtx *op, RecordStore *rs, RecordId rid, Str data, Error *err) MUST_CHECK;
/* For clustered tables: *ret_is_duplicate instead of overwriting. */
ErrCode record_insert_unique(OpCtx *op, RecordStore *rs, RecordId rid, Str data,
                             bool *ret_is_duplicate, Error *err) MUST_CHECK;
ErrCode record_update(OpCtx *op, RecordStore *rs, RecordId rid, Str data, size_t old_size,
                      Error *err) MUST_CHECK;
ErrCode record_delete(OpCtx *op, RecordStore *rs, RecordId rid, size_t old_size, Error *err)
    MUST_CHECK;
/* Removes all records in one step; counts become 0. */
ErrCode record_store_truncate(OpCtx *op, RecordStore *rs, Error *err) MUST_CHECK;

/* ---- reads ---- */

typedef struct RecordCursor {
    TableCursor base; /* its `place` holds rid.str of clustered tables while saved */
    RecordStore *rs;
    RecordId rid; /* of the place */
} RecordCursor;

/* Records in natural order, or backwards. */
ErrCode record_cursor_open(OpCtx *op, RecordStore *rs, bool is_forward, RecordCursor *ret_cursor,
                           Error *err) MUST_CHECK;
void record_cursor_done(RecordCursor *cursor);
/* The data is valid until the cursor moves, is saved, or is closed. */
ErrCode record_cursor_next(RecordCursor *cursor, bool *ret_found, RecordId *ret_rid, Str *ret_data,
                           Error *err) MUST_CHECK;
ErrCode record_cursor_seek_exact(RecordCursor *cursor, RecordId rid, bool *ret_found, Str *ret_data,
                                 Error *err) MUST_CHECK;
/* Places the cursor so that `next` returns the first record at or after `rid` (at or before, when
 * going backwards). */
ErrCode record_cursor_seek_near(RecordCursor *cursor, RecordId rid, Error *err) MUST_CHECK;
/* Positions the cursor so that `next` returns the record after `rid`, which may be gone. */
ErrCode record_cursor_seek_after(RecordCursor *cursor, RecordId rid, Error *err) MUST_CHECK;
/* Releases the WiredTiger cursor but remembers the position; restore finds it again, in a new
 * snapshot. *ret_is_kept is false when the record there is gone (capped cursors have lost their
 * position then; others continue with the next record). */
void record_cursor_save(RecordCursor *cursor);
ErrCode record_cursor_restore(RecordCursor *cursor, OpCtx *op, bool *ret_is_kept, Error *err)
    MUST_CHECK;

/* All records in natural order, or backwards, until `visit` sets *is_over. The data is valid during
 * the call. All in one snapshot, which `visit` must not give up: for what is small, or is to be
 * seen at once. */
typedef ErrCode (*RecordVisit)(void *arg, RecordId rid, Str data, bool *is_over, Error *err);
ErrCode record_store_each(OpCtx *op, RecordStore *rs, bool is_forward, RecordVisit visit, void *arg,
                          Error *err) MUST_CHECK;
/* A copy of one document; DOC_NONE: it is not there. Sees entries of the oplog that are not visible
 * yet. */
ErrCode record_read(OpCtx *op, RecordStore *rs, RecordId rid, Arena *arena, Doc *ret_doc,
                    Error *err) MUST_CHECK;
