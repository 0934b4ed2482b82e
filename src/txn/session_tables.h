/*
 * session_tables.h - what is stored of sessions.
 *
 *     config.transactions      {_id: lsid, txnNum, lastWriteOpTime: {ts, t}, lastWriteDate}
 *     config.image_collection  {_id: lsid, txnNum, ts, imageKind, image, invalidated}
 *
 * Both are clustered by _id and replicated, but their rows have no entries of their own: a row is
 * written with the write it tells of, on every member. Rows are therefore always written with
 * `is_unreplicated`, and without a lock on the collection when another one is locked already: its
 * users hold a version of the catalog instead, and what they write to a collection that is dropped
 * meanwhile is as good as dropped with it.
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

/* Makes both where they are missing; replicated, so on a primary only. */
ErrCode session_tables_ensure(OpCtx *op, Error *err) MUST_CHECK;

typedef struct SessionRow {
    SessionId id;
    int64_t txn_number;
    OpTime last_write;
    int64_t wall_ms;
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

/* *ret_found is false when there is none. Fails with ERR_FAILED_TO_PARSE for one that a client
 * wrote and nobody can read. */
ErrCode session_row_read(OpCtx *op, const SessionId *id, bool *ret_found, SessionRow *ret_row,
                         Error *err) MUST_CHECK;
/* The image of the entry `ts`, in the operation's arena. Fails with
 * ERR_INCOMPLETE_TRANSACTION_HISTORY when it is not there any more or never was. */
ErrCode session_image_read(OpCtx *op, const SessionId *id, int64_t txn_number, uint64_t ts,
                           Doc *ret_image, Error *err) MUST_CHECK;
