/*
 * own_docs.h - single documents of collections that the server keeps for itself: settings, entries
 * of catalogs, identities.
 *
 * For one collection whose documents are found by their _id; access_each (catalog/access.h) has all
 * of them.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "bson/namespace.h"
#include "concurrency/op_ctx.h"

/* In the operation's arena; DOC_NONE: there is none, or no such collection. */
ErrCode own_doc_read(OpCtx *op, const Ns *ns, Elem id, Doc *ret_doc, Error *err) MUST_CHECK;
/* Updates, or inserts, the document with that _id; `update` as in a command: operators, or a
 * document to replace it. */
ErrCode own_doc_upsert(OpCtx *op, const Ns *ns, Elem id, Doc update, Error *err) MUST_CHECK;
/* All of them, or fails with the error of the first that could not be inserted. */
ErrCode own_docs_insert(OpCtx *op, const Ns *ns, const Doc *docs, uint32_t count, Error *err)
    MUST_CHECK;
/* All that match: as update and delete commands with multi. */
ErrCode own_docs_update(OpCtx *op, const Ns *ns, Doc filter, Doc update, Error *err) MUST_CHECK;
ErrCode own_docs_delete(OpCtx *op, const Ns *ns, Doc filter, Error *err) MUST_CHECK;
/* {_id: text}'s _id. */
Elem own_doc_id(OpCtx *op, Str text);
