/*
 * session_tables.h - the persistent state of sessions.
 *
 *     config.transactions      {_id: lsid, txnNum, lastWriteOpTime: {ts, t}, lastWriteDate,
 *                               startOpTime?: {ts, t}, state?}
 *     config.image_collection  {_id: lsid, txnNum, ts, imageKind, image, invalidated}
 *
 * Both are clustered by _id and replicated, but their rows have no oplog entries of their own: a
 * row is written with the write it records, on every member. Rows are therefore always written with
 * `is_unreplicated`, and without a lock on the collection if another one is locked already, since
 * that would violate the lock order: writers pin a catalog version instead, and a row written to a
 * collection that is dropped meanwhile is lost with it.
 */
#pragma once

#include "bson/optime.h"
#include "catalog/catalog.h"
#include "index/collection_write.h"
#include "txn/session_id.h"

extern const Ns SESSION_TABLE_NS;
extern const Ns SESSION_IMAGE_NS;
bool session_tables_is_one(const Ns *ns);
bool session_tables_is_named(Str ns);

/* Creates both if missing; replicated, so on a primary only. */
ErrCode session_tables_ensure(OpCtx *op, Error *err) MUST_CHECK;

/* What the number of a session is, as far as the table knows. */
typedef enum SessionRowState {
    SESSION_ROW_RETRYABLE, /* of retryable writes: the row has no `state` */
    SESSION_ROW_PREPARED,
    SESSION_ROW_COMMITTED,
    SESSION_ROW_ABORTED,
} SessionRowState;

typedef struct SessionRow {
    SessionId id;
    int64_t txn_number;
    OpTime last_write;
    int64_t wall_ms;
    SessionRowState state;
    OpTime start; /* of a prepared transaction: its first entry, which the oplog must keep; else
                     none */
} SessionRow;

typedef enum SessionImageKind {
    SESSION_IMAGE_NONE,
    SESSION_IMAGE_PRE,
    SESSION_IMAGE_POST,
} SessionImageKind;
const char *session_image_name(SessionImageKind kind); /* "preImage", "postImage" */
SessionImageKind session_image_from_elem(Elem elem);   /* of needsRetryImage */

typedef struct SessionImage {
    SessionId id;
    int64_t txn_number;
    uint64_t ts; /* of the entry */
    SessionImageKind kind;
    Doc image;                      /* DOC_NONE: none, then there is a reason */
    const char *invalidated_reason; /* NULL: it is good */
} SessionImage;

/* Inside of a unit of work. `coll` NULL: nothing happens. */
ErrCode session_row_store(OpCtx *op, const Collection *coll, const SessionRow *row,
                          WriteScratch *scratch, Error *err) MUST_CHECK;
/* A newer image is left alone: entries of one session may be applied out of order. */
ErrCode session_image_store(OpCtx *op, const Collection *coll, const SessionImage *image,
                            WriteScratch *scratch, Error *err) MUST_CHECK;

/* Of a document of config.transactions. Fails with ERR_FAILED_TO_PARSE for one that a client wrote
 * and nobody can read. */
ErrCode session_row_parse(Doc doc, SessionRow *ret_row, Error *err) MUST_CHECK;
/* *ret_found is false when there is none. */
ErrCode session_row_read(OpCtx *op, const SessionId *id, bool *ret_found, SessionRow *ret_row,
                         Error *err) MUST_CHECK;
/* The image of the entry `ts`, in the operation's arena. Fails with
 * ERR_INCOMPLETE_TRANSACTION_HISTORY when it is not there any more or never was. */
ErrCode session_image_read(OpCtx *op, const SessionId *id, int64_t txn_number, uint64_t ts,
                           Doc *ret_image, Error *err) MUST_CHECK;
