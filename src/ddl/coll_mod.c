/* coll_mod.c - changing options of a collection and of its indexes. */
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "concurrency/op_failpoint.h"
#include "ddl/ddl_internal.h"
#include "ddl/views.h"
#include "index/unique_check.h"
#include "storage/engine.h"

typedef struct CollModArgs {
    const Ns *ns;
    const CollModChange *change;
    CollModResult *result;
} CollModArgs;

static ErrCode apply_options(Collection *changed, const CollModChange *change, Arena *arena,
                             Error *err);
static ErrCode change_expiry(const Collection *coll, Elem given, Arena *arena, Doc *options,
                             Error *err);
static ErrCode change_pre_images(Elem given, Arena *arena, Doc *options, Error *err);
static ErrCode apply_index(OpCtx *op, Collection *changed, const CollModChange *change,
                           CollModResult *result, IndexDesc **ret_changed, Error *err);

static ErrCode coll_mod_attempt(void *arg, OpCtx *op, Error *err) {
    CollModArgs *args = arg;
    *args->result = (CollModResult){0};
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, args->ns, LOCK_X, &access, err));
    TRY(op_hang(op, FP_COLL_MOD_HANG_LOCKED, args->ns->text, err));
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "ns does not exist: %s", args->ns->text);
    if (elem_is_present(args->change->view_on) || elem_is_present(args->change->pipeline))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'viewOn' and 'pipeline' are only valid for views");
    Collection *changed = collection_clone(access.coll);
    ErrCode rc = apply_options(changed, args->change, &op->arena, err);
    IndexDesc *index = NULL;
    if (rc == ERR_OK && doc_is_present(args->change->index))
        rc = apply_index(op, changed, args->change, args->result, &index, err);
    if (rc != ERR_OK || args->change->is_dry_run) {
        collection_unref(changed);
        return rc;
    }
    CLEANUP(uow_done) UnitOfWork uow = {0};
    rc = uow_begin(op, &uow, err);
    if (rc == ERR_OK)
        rc = ddl_observe(op, args->ns, &changed->uuid,
                         ddl_entry_coll_mod(op, args->ns, args->change),
                         ddl_entry_coll_mod_before(op, access.coll, index), err);
    if (rc != ERR_OK) {
        collection_unref(changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, access.coll, changed, err));
    TRY(uow_commit(&uow, err));
    if (index != NULL && index->store != NULL && !index->is_id)
        ordered_index_set_unique(index->store, index->is_unique || index->is_prepare_unique);
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
    if (is_view && elem_is_present(change->pre_images))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "option 'changeStreamPreAndPostImages' is not supported on a view");
    if (is_view)
        return view_modify(op, ns, view_on, pipeline, collator, err);
    CollModArgs args = {ns, change, ret_result};
    TRY(op_run_with_retry(op, coll_mod_attempt, &args, err));
    LOG_INFO(LOG_STORAGE, 5324200, "Collection changed", LOG_STR("namespace", ns->text));
    return ERR_OK;
}

static ErrCode apply_options(Collection *changed, const CollModChange *change, Arena *arena,
                             Error *err) {
    static const char *const NAMES[] = {"validator", "validationLevel", "validationAction", "size",
                                        "max"};
    Doc options = changed->options.doc;
    TRY(change_expiry(changed, change->expire_after, arena, &options, err));
    TRY(change_pre_images(change->pre_images, arena, &options, err));
    const Elem values[] = {change->validator, change->validation_level, change->validation_action,
                           change->capped_size, change->capped_max};
    if ((elem_is_present(change->capped_size) || elem_is_present(change->capped_max)) &&
        !changed->options.is_capped)
        return error_set(err, ERR_INVALID_OPTIONS, "Collection must be capped.");
    bool is_any = elem_is_present(change->expire_after) || elem_is_present(change->pre_images);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        is_any |= elem_is_present(values[i]);
    if (!is_any)
        return ERR_OK;
    options = ddl_options_with(options, NAMES, values, ARRAY_LEN(NAMES), arena);
    return collection_set_options(changed, options, err);
}

/* One that is not enabled is not stored. */
static ErrCode change_pre_images(Elem given, Arena *arena, Doc *options, Error *err) {
    if (!elem_is_present(given))
        return ERR_OK;
    bool is_enabled;
    TRY(pre_images_parse(given, &is_enabled, err));
    static const char NAME[] = "changeStreamPreAndPostImages";
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(*options) + 64);
    DocIter iter = doc_iter(*options);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_name_is(elem, str_from(NAME)))
            build_elem(&b, elem);
    if (is_enabled)
        build_elem_as(&b, str_from(NAME), given);
    *options = doc_builder_end(&b);
    return ERR_OK;
}

/* The options with another expiry, or with "off" without one. */
static ErrCode change_expiry(const Collection *coll, Elem given, Arena *arena, Doc *options,
                             Error *err) {
    if (!elem_is_present(given))
        return ERR_OK;
    if (!coll->options.is_clustered)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'expireAfterSeconds' is only supported on time-series collections or "
                         "when the 'clusteredIndex' option is specified");
    bool is_off = elem_type(given) == BT_STRING && str_is(elem_str(given), "off");
    int64_t seconds = -1;
    if (!is_off)
        TRY(expire_after_parse(given, ERR_INVALID_OPTIONS, &seconds, err));
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(*options) + 64);
    DocIter iter = doc_iter(*options);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_name_is(elem, STR("expireAfterSeconds")))
            build_elem(&b, elem);
    if (seconds >= 0)
        build_i64(&b, "expireAfterSeconds", seconds);
    *options = doc_builder_end(&b);
    return ERR_OK;
}

/* *ret_position is -1 when there is none. */
static ErrCode find_index(const Collection *coll, Doc request, int *ret_position, Error *err) {
    *ret_position = -1;
    Elem name = doc_get_lit(request, "name");
    Elem pattern = doc_get_lit(request, "keyPattern");
    if (elem_type(name) == BT_STRING) {
        *ret_position = collection_index_position(coll, elem_str(name));
        return ERR_OK;
    }
    for (uint32_t i = 0; elem_type(pattern) == BT_DOC && i < coll->index_count; i++) {
        if (doc_compare(coll->indexes[i]->key_pattern, elem_doc(pattern), NULL) != 0)
            continue;
        if (*ret_position >= 0)
            return error_set(err, ERR_AMBIGUOUS_INDEX_KEY_PATTERN,
                             "the key pattern means several indexes, among them '%s' and '%s': "
                             "give the name",
                             coll->indexes[*ret_position]->name, coll->indexes[i]->name);
        *ret_position = (int)i;
    }
    return ERR_OK;
}

/* The clustered key is no index that could be found, and has nothing that could be changed. */
static ErrCode check_not_clustered_key(const Collection *coll, Doc request, Error *err) {
    Elem name = doc_get_lit(request, "name");
    Elem pattern = doc_get_lit(request, "keyPattern");
    bool is_named = elem_type(name) == BT_STRING
                        ? str_is(elem_str(name), coll->options.clustered_name)
                        : elem_type(pattern) == BT_DOC && doc_count(elem_doc(pattern)) == 1 &&
                              elem_is_present(doc_get_lit(elem_doc(pattern), "_id"));
    if (!is_named)
        return ERR_OK;
    return error_set(err, (ErrCode)6011800, "cannot modify the clustered index of \"%s\"",
                     coll->ns.text);
}

typedef struct IndexChange {
    Elem hidden;
    Elem expire_after;
    Elem unique;
    Elem prepare_unique;
} IndexChange;

static ErrCode parse_index_change(Doc request, IndexChange *ret_change, Error *err) {
    *ret_change = (IndexChange){ELEM_MISSING, ELEM_MISSING, ELEM_MISSING, ELEM_MISSING};
    const struct {
        const char *name;
        Elem *member;
    } MEMBERS[] = {
        {"name", NULL},
        {"keyPattern", NULL},
        {"hidden", &ret_change->hidden},
        {"expireAfterSeconds", &ret_change->expire_after},
        {"unique", &ret_change->unique},
        {"prepareUnique", &ret_change->prepare_unique},
    };
    bool is_any = false;
    DocIter iter = doc_iter(request);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        size_t i = 0;
        while (i < ARRAY_LEN(MEMBERS) && strcmp(elem_name(elem), MEMBERS[i].name) != 0)
            i++;
        if (i == ARRAY_LEN(MEMBERS))
            return error_set(err, (ErrCode)40415,
                             "BSON field 'collMod.index.%s' is an unknown "
                             "field.",
                             elem_name(elem));
        if (MEMBERS[i].member == NULL)
            continue;
        *MEMBERS[i].member = elem;
        is_any = true;
    }
    if (!is_any)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "no expireAfterSeconds, hidden, unique, or prepareUnique field");
    bool has_name = elem_is_present(doc_get_lit(request, "name"));
    if (has_name == elem_is_present(doc_get_lit(request, "keyPattern")))
        return error_set(err, ERR_INVALID_OPTIONS,
                         has_name ? "Cannot specify both key pattern and name."
                                  : "Must specify either index name or key pattern.");
    return ERR_OK;
}

static ErrCode check_index_change(const Collection *coll, const IndexDesc *index,
                                  const IndexChange *change, bool is_dry_run, Error *err) {
    if (index->is_id && elem_is_truthy(change->hidden))
        return error_set(err, ERR_BAD_VALUE, "can't hide _id index");
    if (elem_is_present(change->expire_after)) {
        int64_t seconds;
        if (index->is_id)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "the _id field does not support TTL indexes");
        if (coll->options.is_capped)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "TTL indexes are not supported for capped collections.");
        if (index->field_count > 1 || index->kind != INDEX_KIND_ORDERED)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "TTL indexes are single-field indexes, compound indexes do not "
                             "support TTL");
        if (!elem_is_number(change->expire_after))
            return error_set(
                err, ERR_TYPE_MISMATCH,
                "BSON field 'collMod.index.expireAfterSeconds' is the wrong type '%s', "
                "expected types '[long, int, decimal, double]'",
                bson_type_name(elem_type(change->expire_after)));
        TRY(expire_after_parse(change->expire_after, ERR_INVALID_OPTIONS, &seconds, err));
    }
    bool is_unique_asked =
        elem_is_present(change->unique) || elem_is_present(change->prepare_unique);
    if (is_unique_asked && (index->is_id || index->kind != INDEX_KIND_ORDERED))
        return error_set(err, ERR_INVALID_OPTIONS, "index \"%s\" cannot be converted to unique",
                         index->name);
    if (elem_is_present(change->unique) && !elem_is_truthy(change->unique))
        return error_set(err, ERR_BAD_VALUE, "Cannot make index non-unique");
    if (is_dry_run && !elem_is_present(change->unique))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "The 'dryRun' mode is only supported for converting an index to unique");
    if (elem_is_present(change->unique) && !is_dry_run && !index->is_unique &&
        !index->is_prepare_unique)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Cannot make index unique with 'prepareUnique=false'. Run collMod to set "
                         "it first.");
    return ERR_OK;
}

/* The spec with what the change says; tells in `result` what that is. */
static Doc changed_spec(const IndexDesc *old, const IndexChange *change, CollModResult *result,
                        Arena *arena) {
    bool is_unique = old->is_unique, is_prepare_unique = old->is_prepare_unique;
    bool is_hidden = old->is_hidden;
    int64_t expire_s = old->expire_after_s;
    if (elem_is_present(change->hidden)) {
        result->has_hidden_change = true;
        result->hidden_old = old->is_hidden;
        result->hidden_new = is_hidden = elem_is_truthy(change->hidden);
    }
    if (elem_is_present(change->expire_after)) {
        double seconds = elem_as_f64(change->expire_after);
        expire_s = seconds == seconds ? (int64_t)seconds : EXPIRE_AFTER_S_MAX;
        result->has_expire_change = true;
        result->expire_old = old->expire_after_s;
        result->expire_new = expire_s;
    }
    if (elem_is_present(change->prepare_unique) && !old->is_unique) {
        result->has_prepare_unique_change = true;
        result->prepare_unique_old = old->is_prepare_unique;
        result->prepare_unique_new = is_prepare_unique = elem_is_truthy(change->prepare_unique);
    }
    if (elem_is_present(change->unique) && !old->is_unique) {
        is_unique = result->is_made_unique = true;
        is_prepare_unique = false; /* has served its purpose */
    }
    static const char *const CHANGED[] = {"hidden", "expireAfterSeconds", "prepareUnique",
                                          "unique"};
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(old->spec);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        bool is_changed = false;
        for (size_t i = 0; i < ARRAY_LEN(CHANGED); i++)
            is_changed |= strcmp(elem_name(elem), CHANGED[i]) == 0;
        if (!is_changed)
            build_elem(&b, elem);
    }
    if (is_unique && !old->is_id)
        build_bool(&b, "unique", true);
    if (is_hidden)
        build_bool(&b, "hidden", true);
    if (expire_s >= 0)
        build_i32(&b, "expireAfterSeconds", (int32_t)expire_s);
    if (is_prepare_unique)
        build_bool(&b, "prepareUnique", true);
    return doc_builder_end(&b);
}

static ErrCode apply_index(OpCtx *op, Collection *changed, const CollModChange *change,
                           CollModResult *result, IndexDesc **ret_changed, Error *err) {
    IndexChange index_change;
    TRY(parse_index_change(change->index, &index_change, err));
    if (changed->options.is_clustered)
        TRY(check_not_clustered_key(changed, change->index, err));
    int position;
    TRY(find_index(changed, change->index, &position, err));
    if (position < 0 || !changed->indexes[position]->is_ready)
        return error_set(err, ERR_INDEX_NOT_FOUND, "cannot find index for ns %s", changed->ns.text);
    IndexDesc *old = changed->indexes[position];
    TRY(check_index_change(changed, old, &index_change, change->is_dry_run, err));
    if (elem_is_present(index_change.unique) && !old->is_unique && !op->mode.is_applying)
        TRY(index_check_unique(op, changed, old, err));
    Doc spec = changed_spec(old, &index_change, result, &op->arena);
    IndexDesc *made;
    TRY(index_desc_new(op_storage(op), spec, old->ident, changed->options.is_clustered,
                       old->is_ready, old->state, &made, err));
    /* Both descriptors must count as users of the same table, or its drop would not wait for the
     * other. */
    ordered_index_unref(made->store);
    made->store = old->store != NULL ? ordered_index_ref(old->store) : NULL;
    if (old->sort_key_version != NULL)
        made->sort_key_version = arena_strdup(&made->arena, old->sort_key_version);
    changed->indexes[position] = made;
    index_desc_unref(old);
    *ret_changed = made;
    return ERR_OK;
}
