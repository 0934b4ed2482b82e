/*
 * modify.h - updates, deletes and findAndModify: find documents, change each in its own unit of
 * work.
 *
 * A document is found by a plan, then changed in the snapshot it was found in. If another writer
 * was faster, the document is read again in a new snapshot, checked against the filter again, and
 * changed or passed over. Between two documents of a multi-document write others get through.
 */
#pragma once

#include "base/error.h"
#include "catalog/namespace.h"
#include "concurrency/op_ctx.h"
#include "query/plan/planner.h"
#include "query/update/update.h"

typedef enum ModifyKind { MODIFY_UPDATE, MODIFY_DELETE } ModifyKind;
typedef enum ModifyImage { IMAGE_NONE, IMAGE_BEFORE, IMAGE_AFTER } ModifyImage;

typedef struct ModifyRequest {
    ModifyKind kind;
    QuerySpec query; /* filter, sort, hint, let; limit is set here */
    bool is_multi;
    bool is_upsert;
    Elem update;       /* document or pipeline */
    Doc array_filters; /* DOC_NONE: none */
    ModifyImage image;
    /* An upsert whose _id (and image after) are larger is refused, since its reply could not tell
     * them; NULL: no matter. */
    const size_t *upsert_told_bytes_max;
} ModifyRequest;

typedef struct ModifyOutcome {
    int64_t matched;
    int64_t modified; /* updated or deleted */
    bool is_upserted;
    Elem upserted_id; /* in the operation's arena */
    Doc image;        /* in the operation's arena; DOC_NONE: none */
    const Collator *collator;
} ModifyOutcome;

ErrCode exec_modify(OpCtx *op, const Ns *ns, const ModifyRequest *request,
                    ModifyOutcome *ret_outcome, Error *err) MUST_CHECK;

/* Errors that end the command, not just one of its documents or statements: it was killed, its time
 * is up, or this node may not write any more. */
bool exec_is_fatal(ErrCode rc);

/* Brings a document into stored form: _id first (made if missing), size and depth checked, empty
 * timestamps filled. In arena memory when it had to change. */
ErrCode document_prepare(Doc doc, Arena *arena, Doc *ret_doc, Error *err) MUST_CHECK;

/* Inserts in vectored units of work. Calls `on_error` for each document that failed (index in
 * `docs`); with `is_ordered` the first failure ends it. *ret_inserted counts. Fails itself only
 * when nothing can go on. */
typedef void (*InsertErrorFn)(void *arg, uint32_t index, const Error *err);
ErrCode exec_insert(OpCtx *op, const Ns *ns, const Doc *docs, uint32_t count, bool is_ordered,
                    bool is_validation_bypassed, InsertErrorFn on_error, void *arg,
                    int64_t *ret_inserted, Error *err) MUST_CHECK;
