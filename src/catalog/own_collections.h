/*
 * own_collections.h - the node's internal collections, and what clients may not do to them.
 *
 * A member of a replica set whose oplog, configuration or vote is dropped or renamed while it runs
 * cannot continue, or breaks a promise it has made to other members (a vote). On a node started
 * without a replica set the same collections are ordinary data, so that they can be repaired.
 *
 * Checked by commands only: internal operations are not restricted.
 */
#pragma once

#include "bson/namespace.h"
#include "concurrency/op_ctx.h"

/* Bits: of the table they can be combined, of a question there is one. */
typedef enum OwnChange {
    OWN_CHANGE_WRITE = 1 << 0, /* insert, update, delete */
    OWN_CHANGE_DROP = 1 << 1,
    OWN_CHANGE_RENAME = 1 << 2, /* from it or to it */
    OWN_CHANGE_CREATE = 1 << 3, /* by name; also a view */
    OWN_CHANGE_OPTIONS = 1 << 4,
    OWN_CHANGE_CAPPED = 1 << 5, /* convertToCapped */
    OWN_CHANGE_INDEXES = 1 << 6,
    OWN_CHANGE_FORM = OWN_CHANGE_OPTIONS | OWN_CHANGE_CAPPED | OWN_CHANGE_INDEXES,
} OwnChange;

/* Fails with ERR_ILLEGAL_OPERATION, or whatever code clients know for it, when the collection is
 * one of the node's own and the change is refused. */
ErrCode own_collections_check(const OpCtx *op, const Ns *ns, OwnChange change, Error *err)
    MUST_CHECK;
/* The same for dropDatabase. */
ErrCode own_databases_check_drop(const OpCtx *op, Str db, Error *err) MUST_CHECK;
