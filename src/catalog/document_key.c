#include "catalog/document_key.h"

#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "catalog/catalog_internal.h"

void catalog_set_document_key_source(CatalogService *service, const DocumentKeySource *source) {
    service->document_keys = *source;
}

bool document_key_add(DocBuilder *b, const char *const *paths, size_t count, Doc doc) {
    bool has_id = false;
    for (size_t i = 0; i < count; i++) {
        Elem value = doc_get_path(doc, paths[i]);
        has_id |= strcmp(paths[i], "_id") == 0;
        if (elem_is_present(value))
            build_elem_as(b, str_from(paths[i]), value);
    }
    return has_id;
}

void build_document_key(DocBuilder *b, const char *name, OpCtx *op, const Collection *coll,
                        Doc doc) {
    size_t opened = build_open_doc(b, name);
    const DocumentKeySource *source = &op_catalog(op)->document_keys;
    bool has_id = source->add != NULL && source->add(source->arg, op, coll, doc, b);
    Elem id = has_id ? ELEM_MISSING : doc_get_lit(doc, "_id");
    if (elem_is_present(id))
        build_elem(b, id);
    build_close(b, opened);
}

/* ---- for tests ---- */

static bool test_add(void *arg, OpCtx *op, const Collection *coll, Doc doc, DocBuilder *b) {
    (void)arg;
    if (LIKELY(!FAILPOINT(OPLOG_DOCUMENT_KEY)))
        return false;
    FailpointConfig config = failpoint_config(FP_OPLOG_DOCUMENT_KEY);
    CLEANUP(xfree_ptr) uint8_t *data = config.data;
    Elem ns = data != NULL ? doc_get_lit((Doc){data}, "ns") : ELEM_MISSING;
    Elem fields = data != NULL ? doc_get_lit((Doc){data}, "fields") : ELEM_MISSING;
    if (elem_type(ns) != BT_STRING || elem_type(fields) != BT_ARRAY ||
        !str_equal(elem_str(ns), ns_str(&coll->ns)))
        return false;
    size_t count = 0;
    const char **paths = ARENA_ARRAY(&op->arena, const char *, doc_count(elem_doc(fields)));
    DocIter iter = doc_iter(elem_doc(fields));
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_type(field) == BT_STRING)
            paths[count++] = elem_str(field).data;
    return document_key_add(b, paths, count, doc);
}

const DocumentKeySource DOCUMENT_KEY_TEST_SOURCE = {NULL, test_add};
