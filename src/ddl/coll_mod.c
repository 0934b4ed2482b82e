/* coll_mod.c - changing a collection's options and an index's visibility. */
#include <string.h>

#include "base/failpoint.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "ddl/ddl_internal.h"
#include "ddl/views.h"
#include "storage/engine.h"

typedef struct CollModArgs {
    const Ns *ns;
    const CollModChange *change;
    CollModResult *result;
} CollModArgs;

static ErrCode apply_options(Collection *changed, const CollModChange *change, Arena *arena,
                             Error *err);
static ErrCode apply_index(OpCtx *op, Collection *changed, Doc request, CollModResult *result,
                           Error *err);

static ErrCode coll_mod_attempt(void *arg, OpCtx *op, Error *err) {
    CollModArgs *args = arg;
    *args->result = (CollModResult){0};
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, args->ns, LOCK_X, &access, err));
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "ns does not exist: %s", args->ns->text);
    if (elem_is_present(args->change->view_on) || elem_is_present(args->change->pipeline))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'viewOn' and 'pipeline' are only valid for views");
    Collection *changed = collection_clone(access.coll);
    ErrCode rc = apply_options(changed, args->change, &op->arena, err);
    if (rc == ERR_OK && doc_is_present(args->change->index))
        rc = apply_index(op, changed, args->change->index, args->result, err);
    if (rc != ERR_OK) {
        collection_unref(changed);
        return rc;
    }
    CLEANUP(uow_done) UnitOfWork uow = {0};
    rc = uow_begin(op, &uow, err);
    if (rc == ERR_OK)
        rc = ddl_observe(op, args->ns, &changed->uuid, ddl_simple_entry(op, "collMod", args->ns),
                         err);
    if (rc != ERR_OK) {
        collection_unref(changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, access.coll, changed, err));
    TRY(uow_commit(&uow, err));
    failpoint_hit(FP_COLL_MOD_COMMIT);
    return ERR_OK;
}

ErrCode ddl_coll_mod(OpCtx *op, const Ns *ns, const CollModChange *change,
                     CollModResult *ret_result, Error *err) {
    *ret_result = (CollModResult){0};
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const View *view = catalog_find_view(catalog, ns);
    bool is_view = view != NULL;
    Str view_on = {"", 0};
    Doc pipeline = DOC_NONE;
    const Collator *collator = is_view ? view->collator : NULL;
    if (is_view) {
        view_on = elem_type(change->view_on) == BT_STRING
                      ? elem_str(change->view_on)
                      : (Str){arena_strndup(&op->arena, ns_coll(&view->view_on).data,
                                            ns_coll(&view->view_on).size),
                              ns_coll(&view->view_on).size};
        pipeline = elem_type(change->pipeline) == BT_ARRAY ? elem_doc(change->pipeline)
                                                           : doc_copy(view->pipeline, &op->arena);
    }
    catalog_release(catalog);
    if (is_view)
        return view_modify(op, ns, view_on, pipeline, collator, err);
    CollModArgs args = {ns, change, ret_result};
    return op_run_with_retry(op, coll_mod_attempt, &args, err);
}

static ErrCode apply_options(Collection *changed, const CollModChange *change, Arena *arena,
                             Error *err) {
    static const char *const NAMES[] = {"validator", "validationLevel", "validationAction", "size",
                                        "max"};
    const Elem values[] = {change->validator, change->validation_level, change->validation_action,
                           change->capped_size, change->capped_max};
    if ((elem_is_present(change->capped_size) || elem_is_present(change->capped_max)) &&
        !changed->options.is_capped)
        return error_set(err, ERR_INVALID_OPTIONS, "Collection must be capped.");
    bool is_any = false;
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        is_any |= elem_is_present(values[i]);
    if (!is_any)
        return ERR_OK;
    Doc options = ddl_options_with(changed->options.doc, NAMES, values, ARRAY_LEN(NAMES), arena);
    return collection_set_options(changed, options, err);
}

static int find_index(const Collection *coll, Doc request) {
    Elem name = doc_get_lit(request, "name");
    Elem pattern = doc_get_lit(request, "keyPattern");
    if (elem_type(name) == BT_STRING)
        return collection_index_position(coll, elem_str(name));
    for (uint32_t i = 0; elem_type(pattern) == BT_DOC && i < coll->index_count; i++)
        if (doc_compare(coll->indexes[i]->key_pattern, elem_doc(pattern), NULL) == 0)
            return (int)i;
    return -1;
}

static ErrCode apply_index(OpCtx *op, Collection *changed, Doc request, CollModResult *result,
                           Error *err) {
    DocIter iter = doc_iter(request);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        const char *name = elem_name(elem);
        if (strcmp(name, "name") == 0 || strcmp(name, "keyPattern") == 0 ||
            strcmp(name, "hidden") == 0)
            continue;
        return error_set(err, ERR_NOT_IMPLEMENTED, "collMod option 'index.%s' is not supported yet",
                         name);
    }
    Elem hidden = doc_get_lit(request, "hidden");
    if (!elem_is_present(hidden))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "no expireAfterSeconds, hidden, unique, or prepareUnique field");
    int position = find_index(changed, request);
    if (position < 0 || !changed->indexes[position]->is_ready)
        return error_set(err, ERR_INDEX_NOT_FOUND, "cannot find index for ns %s", changed->ns.text);
    IndexDesc *old = changed->indexes[position];
    if (old->is_id && elem_is_truthy(hidden))
        return error_set(err, ERR_BAD_VALUE, "can't hide _id index");
    result->has_hidden_change = true;
    result->hidden_old = old->is_hidden;
    result->hidden_new = elem_is_truthy(hidden);

    Buffer buf;
    buffer_init_arena(&buf, &op->arena, 256, BSON_DOC_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    iter = doc_iter(old->spec);
    while (doc_iter_next(&iter, &elem))
        if (!elem_name_is(elem, STR("hidden")))
            build_elem(&b, elem);
    if (result->hidden_new)
        build_bool(&b, "hidden", true);
    IndexDesc *made;
    TRY(index_desc_new(op_storage(op), doc_builder_end(&b), old->ident,
                       changed->options.is_clustered, old->is_ready, old->state, &made, err));
    /* Both descriptors must count as users of the same table, or its drop would not wait for the
     * other. */
    ordered_index_unref(made->store);
    made->store = old->store != NULL ? ordered_index_ref(old->store) : NULL;
    if (old->sort_key_version != NULL)
        made->sort_key_version = arena_strdup(&made->arena, old->sort_key_version);
    changed->indexes[position] = made;
    index_desc_unref(old);
    return ERR_OK;
}
