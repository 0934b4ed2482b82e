/*
 * validator.c - judging documents by their collection's validator, and telling what is wrong.
 */
#include "base/log.h"
#include "bson/json.h"
#include "index/collection_write.h"

enum {
    /* Of errInfo.details; what is larger is left out, since a batch may fail with many of them. */
    DETAILS_BYTES_MAX = 1024 * 1024,
    LOGGED_BYTES_MAX = 4096,
};

static void log_failure(const Collection *coll, Doc extra);
static bool is_valid(const Collection *coll, Doc doc);
static bool build_details(const Collection *coll, Doc doc, Buffer *buf, Doc *ret_details);

ErrCode collection_check_validator(OpCtx *op, const Collection *coll, Doc before, Doc after,
                                   Error *err) {
    if (LIKELY(coll->validator == NULL) || coll->options.validation_level == VALIDATION_OFF ||
        op->mode.is_validation_bypassed)
        return ERR_OK;
    if (is_valid(coll, after))
        return ERR_OK;
    /* Moderate: documents that were not valid before may stay so. */
    if (coll->options.validation_level == VALIDATION_MODERATE && doc_is_present(before) &&
        !is_valid(coll, before))
        return ERR_OK;
    CLEANUP(buffer_done) Buffer details;
    buffer_init(&details, DETAILS_BYTES_MAX);
    Doc shown;
    bool is_shown = build_details(coll, after, &details, &shown);
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED); /* of two parts that are bounded */
    DocBuilder b;
    doc_builder_init(&b, &buf);
    size_t info = build_open_doc(&b, "errInfo");
    Elem id = doc_get_lit(after, "_id");
    if (elem_is_present(id) && elem_size(id) <= DETAILS_BYTES_MAX)
        build_elem_as(&b, STR("failingDocumentId"), id);
    if (is_shown) {
        build_doc(&b, "details", shown);
    } else {
        size_t opened = build_open_doc(&b, "details");
        build_cstr(&b, "reason", "the details of the failure are too large to be shown");
        build_close(&b, opened);
    }
    build_close(&b, info);
    Doc extra = doc_builder_end(&b);
    if (coll->options.validation_action == VALIDATION_WARN) {
        log_failure(coll, extra);
        return ERR_OK;
    }
    (void)error_set(err, ERR_DOCUMENT_VALIDATION_FAILURE, "Document failed validation");
    error_set_extra(err, extra.data);
    return err->code;
}

static void log_failure(const Collection *coll, Doc extra) {
    CLEANUP(buffer_done) Buffer text;
    buffer_init(&text, 2 * LOGGED_BYTES_MAX);
    json_append_elem(&text, doc_get_lit(extra, "errInfo"), LOGGED_BYTES_MAX);
    buffer_append_byte(&text, '\0');
    /* Text that was cut is no JSON any more. */
    const char *info = (const char *)text.data;
    LOG_WARN(LOG_STORAGE, 20294, "Document would fail validation",
             LOG_STR("namespace", coll->ns.text),
             text.size <= LOGGED_BYTES_MAX ? LOG_JSON("errInfo", info) : LOG_STR("errInfo", info));
}

/* A validator that cannot be evaluated on a document is not fulfilled by it. */
static bool is_valid(const Collection *coll, Doc doc) {
    MatchDetails details = MATCH_DETAILS_NONE;
    return match_doc(coll->validator, doc, &details);
}

/* The tree in use is optimized; what the user wrote is told with a tree parsed anew. */
static bool build_details(const Collection *coll, Doc doc, Buffer *buf, Doc *ret_details) {
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error ignored = {0};
    DocBuilder b;
    doc_builder_init(&b, buf);
    MatchExpr *expr;
    if (collection_parse_validator(coll, &arena, &expr, &ignored) == ERR_OK)
        match_explain_failure(expr, doc, &b);
    arena_done(&arena);
    return doc_builder_try_finish(&b, ret_details);
}
