/*
 * modify.h - updates, deletes and findAndModify: find documents, change each in its own unit of
 * work.
 *
 * A document is found by a plan, then changed in the snapshot in which it was found. If another
 * writer was faster, the document is re-read in a new snapshot, matched against the filter again,
 * and changed or skipped. Between two documents of a multi-document write the operation yields.
 *
 * Crash: each document is all or nothing; a multi-document write is not.
 */
#pragma once

#include "base/error.h"
#include "bson/namespace.h"
#include "concurrency/op_failpoint.h"
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
    Doc constants;     /* further variables of a pipeline; DOC_NONE: none */
    Doc supplied;      /* what an upsert inserts instead of what the update makes; DOC_NONE: that */
    ModifyImage image;
    /* An upsert whose _id (and image after) are larger is refused, since its reply could not report
     * them; NULL: unlimited. */
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

/* What an update would do with a document, without doing it. In the operation's arena; borrows the
 * request. */
typedef struct ModifyTrial ModifyTrial;
ErrCode modify_trial_new(OpCtx *op, const ModifyRequest *request, const Collator *collator,
                         ModifyTrial **ret_trial, Error *err) MUST_CHECK;
ErrCode modify_trial_apply(ModifyTrial *trial, const MatchExpr *filter, Doc before,
                           bool *ret_is_changed, Error *err) MUST_CHECK;

/* Errors that end the whole command, not just one of its documents or statements: it was killed,
 * its deadline passed, or this node may no longer write. */
bool exec_is_fatal(ErrCode rc);
/* What a failpoint does to one statement of a client: fails it, or makes it wait. */
ErrCode modify_check_failpoint(OpCtx *op, FailpointId id, const Ns *ns, Error *err) MUST_CHECK;
ErrCode modify_pass_failpoints(OpCtx *op, const Ns *ns, ModifyKind kind, Error *err) MUST_CHECK;
/* A capped collection cannot be written in a transaction: its order is that of the commits. */
ErrCode modify_check_capped(const CollAccess *access, Error *err) MUST_CHECK;

/* Normalizes a document to its stored form: _id first (generated if missing), size and depth
 * checked, empty timestamps filled. In arena memory if it had to change. */
ErrCode document_prepare(OpCtx *op, Doc doc, Arena *arena, Doc *ret_doc, Error *err) MUST_CHECK;

/* Inserts in vectored units of work. Calls `on_error` for each document that failed (index in
 * `docs`); with `is_ordered` the first failure ends it. *ret_inserted counts. Fails itself only
 * when nothing can go on. */
typedef void (*InsertErrorFn)(void *arg, uint32_t index, const Error *err);
ErrCode exec_insert(OpCtx *op, const Ns *ns, const Doc *docs, uint32_t count, bool is_ordered,
                    bool is_validation_bypassed, InsertErrorFn on_error, void *arg,
                    int64_t *ret_inserted, Error *err) MUST_CHECK;
