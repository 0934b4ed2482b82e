/*
 * indexes.c - createIndexes and dropIndexes.
 *
 *     tables made | filled | entry written, ready       crash before the last step: unreferenced
 * tables
 */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "ddl/ddl_internal.h"
#include "index/build/build.h"
#include "index/spec.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

typedef struct CreateIndexesArgs {
    const Ns *ns;
    Doc *specs; /* checked */
    uint32_t count;
    CreateIndexesResult *result;
} CreateIndexesArgs;

static ErrCode create_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode make_indexes(CollAccess *access, const CreateIndexesArgs *args, IndexDesc **made,
                            uint32_t *made_count, Error *err);
static ErrCode commit_indexes(CollAccess *access, IndexDesc **made, uint32_t made_count,
                              Error *err);
static void discard_indexes(OpCtx *op, IndexDesc **made, uint32_t made_count);
static ErrCode drop_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode select_for_drop(const Collection *coll, Elem which, bool *selected, Error *err);
static ErrCode select_by_name(const Collection *coll, Str name, bool *selected, Error *err);

ErrCode ddl_create_indexes(OpCtx *op, const Ns *ns, const Doc *specs, uint32_t count,
                           CreateIndexesResult *ret_result, Error *err) {
    CreateIndexesArgs args = {.ns = ns, .count = count, .result = ret_result};
    args.specs = ARENA_ARRAY(&op->arena, Doc, count);
    for (uint32_t i = 0; i < count; i++) {
        ErrCode rc = index_spec_check(specs[i], &op->arena, &args.specs[i], err);
        if (rc != ERR_OK)
            return error_prefix(err, "Error in specification %s",
                                shell_text_of_doc(specs[i], &op->arena));
    }
    Catalog *catalog = catalog_acquire(op_catalog(op));
    bool exists = catalog_find(catalog, ns) != NULL;
    catalog_release(catalog);
    *ret_result = (CreateIndexesResult){.created_collection = !exists};
    if (!exists)
        TRY(ddl_ensure_collection(op, ns, err));
    return op_run_with_retry(op, create_attempt, &args, err);
}

static ErrCode create_attempt(void *arg, OpCtx *op, Error *err) {
    CreateIndexesArgs *args = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, args->ns, LOCK_X, &access, err));
    if (access.view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", args->ns->text);
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection %s was dropped meanwhile",
                         args->ns->text);
    args->result->count_before = access.coll->index_count;
    IndexDesc **made = ARENA_ARRAY(&op->arena, IndexDesc *, args->count);
    uint32_t made_count = 0;
    ErrCode rc = make_indexes(&access, args, made, &made_count, err);
    if (rc == ERR_OK && made_count > 0)
        rc = index_build_fill(&access, made, made_count, err);
    if (rc == ERR_OK && made_count > 0) {
        failpoint_hit(FP_INDEX_BUILD_SCANNED);
        ru_abandon_snapshot(op->ru);
        rc = commit_indexes(&access, made, made_count, err);
    }
    if (rc != ERR_OK)
        discard_indexes(op, made, made_count);
    for (uint32_t i = 0; i < made_count; i++)
        index_desc_unref(made[i]);
    args->result->count_after = args->result->count_before + (rc == ERR_OK ? made_count : 0);
    return rc;
}

/* Tables and descriptors for those of the specs that are not there yet. */
static ErrCode make_indexes(CollAccess *access, const CreateIndexesArgs *args, IndexDesc **made,
                            uint32_t *made_count, Error *err) {
    StorageEngine *engine = op_storage(access->op);
    TRY(storage_check_disk(engine, err));
    for (uint32_t i = 0; i < args->count; i++) {
        Doc spec;
        TRY(index_spec_complete(args->specs[i], access->coll->options.collator, &access->op->arena,
                                &spec, err));
        bool exists;
        TRY(index_spec_find_conflict(access->coll, spec, &exists, err));
        if (access->coll->options.is_clustered &&
            str_is(elem_str(doc_get_lit(spec, "name")), "_id_"))
            exists = true;
        for (uint32_t m = 0; !exists && m < *made_count; m++) {
            bool is_same_name = str_is(elem_str(doc_get_lit(spec, "name")), made[m]->name);
            bool is_same_spec = doc_compare(made[m]->spec, spec, NULL) == 0;
            if (is_same_name && !is_same_spec)
                return error_set(err, ERR_INDEX_KEY_SPECS_CONFLICT,
                                 "two different indexes named '%s' in one command", made[m]->name);
            if (!is_same_name &&
                doc_compare(made[m]->key_pattern, elem_doc(doc_get_lit(spec, "key")), NULL) == 0 &&
                elem_equal(doc_get_lit(made[m]->spec, "collation"), doc_get_lit(spec, "collation"),
                           NULL))
                return error_set(err, ERR_INDEX_OPTIONS_CONFLICT,
                                 "Index already exists with a different name: %s", made[m]->name);
            exists = is_same_name;
        }
        if (exists)
            continue;
        if (access->coll->index_count + *made_count >= COLLECTION_INDEXES_MAX)
            return error_set(
                err, ERR_CANNOT_CREATE_INDEX, "add index fails, too many indexes for %s key:%s",
                args->ns->text,
                shell_text_of_doc(elem_doc(doc_get_lit(spec, "key")), &access->op->arena));
        CLEANUP(xfree_ptr) char *ident = storage_new_ident(engine, "index");
        TRY(storage_create_table(engine, ident, TABLE_INDEX, NULL, err));
        TRY(index_desc_new(engine, spec, ident, access->coll->options.is_clustered,
                           /* is_ready= */ true, NULL, &made[*made_count], err));
        ++*made_count;
        failpoint_hit(FP_INDEX_BUILD_TABLE);
    }
    return ERR_OK;
}

static ErrCode commit_indexes(CollAccess *access, IndexDesc **made, uint32_t made_count,
                              Error *err) {
    OpCtx *op = access->op;
    Collection *changed = collection_clone(access->coll);
    for (uint32_t i = 0; i < made_count; i++)
        collection_add_index(changed, index_desc_ref(made[i]));
    {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        ErrCode rc = uow_begin(op, &uow, err);
        if (rc == ERR_OK)
            rc = ddl_observe(op, &changed->ns, &changed->uuid,
                             ddl_simple_entry(op, "createIndexes", &changed->ns), err);
        if (rc != ERR_OK) {
            collection_unref(changed);
            return rc;
        }
        TRY(catalog_stage_replace(op, access->coll, changed, err));
        TRY(uow_commit(&uow, err));
    }
    for (uint32_t i = 0; i < made_count; i++) {
        IndexState *state = made[i]->state;
        for (uint32_t f = 0; f < made[i]->field_count; f++)
            atomic_store(&state->persisted_paths[f], atomic_load(&state->multikey_paths[f]));
        atomic_store(&state->is_multikey_persisted, atomic_load(&state->is_multikey));
    }
    failpoint_hit(FP_INDEX_BUILD_COMMIT);
    return ERR_OK;
}

static bool is_unused(void *arg) {
    return !ordered_index_is_shared(arg);
}
static void release_index(void *arg) {
    ordered_index_unref(arg);
}

static void discard_indexes(OpCtx *op, IndexDesc **made, uint32_t made_count) {
    for (uint32_t i = 0; i < made_count; i++)
        if (made[i]->store != NULL)
            storage_drop_later(op_storage(op), made[i]->ident, 0, is_unused, release_index,
                               ordered_index_ref(made[i]->store));
}

/* ---- dropIndexes ---- */

typedef struct DropIndexesArgs {
    const Ns *ns;
    Elem which;
    uint32_t count_before;
} DropIndexesArgs;

ErrCode ddl_drop_indexes(OpCtx *op, const Ns *ns, Elem which, uint32_t *ret_count_before,
                         Error *err) {
    DropIndexesArgs args = {ns, which, 0};
    TRY(op_run_with_retry(op, drop_attempt, &args, err));
    *ret_count_before = args.count_before;
    return ERR_OK;
}

static ErrCode drop_attempt(void *arg, OpCtx *op, Error *err) {
    DropIndexesArgs *args = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, args->ns, LOCK_X, &access, err));
    if (access.view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", args->ns->text);
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "ns not found %s", args->ns->text);
    args->count_before = access.coll->index_count;
    bool selected[COLLECTION_INDEXES_MAX] = {0};
    TRY(select_for_drop(access.coll, args->which, selected, err));
    bool is_any = false;
    for (uint32_t i = 0; i < access.coll->index_count; i++)
        is_any |= selected[i];
    if (!is_any)
        return ERR_OK;

    Collection *changed = collection_clone(access.coll);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    for (uint32_t i = access.coll->index_count; i-- > 0;) {
        if (!selected[i])
            continue;
        catalog_drop_index_table_on_commit(op, access.coll->indexes[i]);
        collection_remove_index(changed, i);
    }
    ErrCode rc = ddl_observe(op, args->ns, &changed->uuid,
                             ddl_simple_entry(op, "dropIndexes", args->ns), err);
    if (rc != ERR_OK) {
        collection_unref(changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, access.coll, changed, err));
    return uow_commit(&uow, err);
}

static ErrCode select_for_drop(const Collection *coll, Elem which, bool *selected, Error *err) {
    if (elem_type(which) == BT_STRING && str_is(elem_str(which), "*")) {
        for (uint32_t i = 0; i < coll->index_count; i++)
            selected[i] = !coll->indexes[i]->is_id;
        return ERR_OK;
    }
    if (elem_type(which) == BT_STRING)
        return select_by_name(coll, elem_str(which), selected, err);
    if (elem_type(which) == BT_ARRAY) {
        DocIter iter = doc_iter(elem_doc(which));
        Elem name;
        while (doc_iter_next(&iter, &name)) {
            if (elem_type(name) != BT_STRING)
                return error_set(err, ERR_TYPE_MISMATCH,
                                 "dropIndexes {index: [...]} has non-string element");
            TRY(select_by_name(coll, elem_str(name), selected, err));
        }
        return ERR_OK;
    }
    if (elem_type(which) != BT_DOC)
        return error_set(err, ERR_INDEX_NOT_FOUND, "invalid index name spec");
    int found = -1;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        if (doc_compare(coll->indexes[i]->key_pattern, elem_doc(which), NULL) != 0)
            continue;
        if (found >= 0)
            return error_set(err, ERR_AMBIGUOUS_INDEX_KEY_PATTERN,
                             "several indexes have this key pattern: drop by name");
        found = (int)i;
    }
    if (found < 0)
        return error_set(err, ERR_INDEX_NOT_FOUND, "can't find index with the given key pattern");
    return select_by_name(coll, str_from(coll->indexes[found]->name), selected, err);
}

static ErrCode select_by_name(const Collection *coll, Str name, bool *selected, Error *err) {
    int position = collection_index_position(coll, name);
    if (coll->options.is_clustered && str_is(name, coll->options.clustered_name))
        return error_set(err, (ErrCode)5979800, "It is illegal to drop the clusteredIndex");
    if (position < 0)
        return error_set(err, ERR_INDEX_NOT_FOUND, "index not found with name [%.*s]",
                         (int)name.size, name.data);
    if (coll->indexes[position]->is_id)
        return error_set(err, ERR_INVALID_OPTIONS, "cannot drop _id index");
    selected[position] = true;
    return ERR_OK;
}
