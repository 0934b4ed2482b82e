#include "query/write/own_docs.h"

#include "catalog/access.h"
#include "index/lookup.h"
#include "query/write/modify.h"

Elem own_doc_id(OpCtx *op, Str text) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", text);
    return doc_get_lit(doc_builder_end(&b), "_id");
}

ErrCode own_doc_read(OpCtx *op, const Ns *ns, Elem id, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    return lookup_document(op, access.coll, id, &op->arena, ret_doc, err);
}

ErrCode own_doc_upsert(OpCtx *op, const Ns *ns, Elem id, Doc update, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t filter = build_open_doc(&b, "q");
    build_elem_as(&b, STR("_id"), id);
    build_close(&b, filter);
    build_doc(&b, "u", update);
    Doc statement = doc_builder_end(&b);
    ModifyRequest request = {.kind = MODIFY_UPDATE,
                             .query = {.filter = elem_doc(doc_get_lit(statement, "q"))},
                             .is_upsert = true,
                             .update = doc_get_lit(statement, "u")};
    ModifyOutcome outcome;
    return exec_modify(op, ns, &request, &outcome, err);
}

ErrCode own_docs_update(OpCtx *op, const Ns *ns, Doc filter, Doc update, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "u", update);
    ModifyRequest request = {.kind = MODIFY_UPDATE,
                             .query = {.filter = filter},
                             .is_multi = true,
                             .update = doc_get_lit(doc_builder_end(&b), "u")};
    ModifyOutcome outcome;
    return exec_modify(op, ns, &request, &outcome, err);
}

ErrCode own_docs_delete(OpCtx *op, const Ns *ns, Doc filter, Error *err) {
    ModifyRequest request = {.kind = MODIFY_DELETE, .query = {.filter = filter}, .is_multi = true};
    ModifyOutcome outcome;
    return exec_modify(op, ns, &request, &outcome, err);
}

static void keep_error(void *arg, uint32_t index, const Error *cause) {
    (void)index;
    (void)error_set(arg, cause->code, "%s", error_message(cause));
}

ErrCode own_docs_insert(OpCtx *op, const Ns *ns, const Doc *docs, uint32_t count, Error *err) {
    int64_t inserted = 0;
    CLEANUP(error_reset) Error failed = {0};
    TRY(exec_insert(op, ns, docs, count, /* is_ordered= */ true, /* is_validation_bypassed= */ true,
                    keep_error, &failed, &inserted, err));
    if (failed.code != ERR_OK)
        error_move(err, &failed);
    return err->code;
}
