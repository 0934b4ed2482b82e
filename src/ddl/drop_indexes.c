/*
 * drop_indexes.c - dropIndexes: one catalog change; the tables are dropped when unused. An index
 * that is being built can be dropped, too: its build notices and ends.
 */
#include <string.h>

#include "base/log.h"
#include "bson/compare.h"
#include "ddl/ddl_internal.h"
#include "index/build/coordinator.h"

#define DROP_INDEXES_REASON "dropIndexes command"

typedef struct DropIndexesArgs {
    const Ns *ns;
    Elem which;
    uint32_t count_before;
} DropIndexesArgs;

static ErrCode drop_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode select_by_name(const Collection *coll, Str name, bool *selected, Error *err);
static ErrCode tell(OpCtx *op, const Collection *coll, uint32_t i, Error *err);
static ErrCode check_builds(const Collection *coll, const bool *selected, Error *err);

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
    TRY(ddl_select_indexes(access.coll, args->which, selected, err));
    bool is_any = false;
    for (uint32_t i = 0; i < access.coll->index_count; i++)
        is_any |= selected[i];
    if (!is_any)
        return ERR_OK;
    TRY(check_builds(access.coll, selected, err));

    Collection *changed = collection_clone(access.coll);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    ErrCode rc = uow_begin(op, &uow, err);
    for (uint32_t i = access.coll->index_count; i-- > 0;) {
        if (!selected[i])
            continue;
        const IndexDesc *index = access.coll->indexes[i];
        catalog_drop_index_table_on_commit(op, index);
        if (rc == ERR_OK)
            rc = tell(op, access.coll, i, err);
        collection_remove_index(changed, i);
    }
    if (rc != ERR_OK) {
        collection_unref(changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, access.coll, changed, err));
    TRY(uow_commit(&uow, err));
    for (uint32_t i = 0; i < access.coll->index_count; i++)
        if (selected[i])
            LOG_INFO(LOG_INDEX, 51806, "Index dropped", LOG_STR("namespace", args->ns->text),
                     LOG_STR("index", access.coll->indexes[i]->name));
    for (uint32_t i = 0; i < access.coll->index_count; i++)
        if (selected[i] && !access.coll->indexes[i]->is_ready)
            index_builds_abort(op_index_builds(op), &access.coll->indexes[i]->build_uuid,
                               DROP_INDEXES_REASON);
    return ERR_OK;
}

/* A build is told once, with its first index. */
static ErrCode tell(OpCtx *op, const Collection *coll, uint32_t i, Error *err) {
    const IndexDesc *index = coll->indexes[i];
    if (index->is_ready)
        return ddl_observe(op, &coll->ns, &coll->uuid, ddl_entry_drop_index(op, &coll->ns, index),
                           index->spec, err);
    for (uint32_t k = 0; k < i; k++)
        if (ddl_is_of_build(coll->indexes[k], &index->build_uuid))
            return ERR_OK;
    CLEANUP(error_reset) Error cause = {0};
    (void)error_set(&cause, ERR_INDEX_BUILD_ABORTED, DROP_INDEXES_REASON);
    return ddl_observe(
        op, &coll->ns, &coll->uuid,
        ddl_entry_index_build(op, "abortIndexBuild", coll, &index->build_uuid, &cause), DOC_NONE,
        err);
}

/* A build is dropped with all its indexes or not at all. */
static ErrCode check_builds(const Collection *coll, const bool *selected, Error *err) {
    for (uint32_t i = 0; i < coll->index_count; i++) {
        for (uint32_t k = 0; k < coll->index_count; k++) {
            const IndexDesc *dropped = coll->indexes[i], *other = coll->indexes[k];
            if (selected[i] && !selected[k] && !dropped->is_ready && !other->is_ready &&
                uuid_equal(&dropped->build_uuid, &other->build_uuid))
                return ddl_check_no_build(coll, err);
        }
    }
    return ERR_OK;
}

bool ddl_is_all_indexes(Elem which) {
    if (elem_type(which) == BT_ARRAY && doc_count(elem_doc(which)) == 1) {
        DocIter iter = doc_iter(elem_doc(which));
        (void)doc_iter_next(&iter, &which); /* a list of one name is that name */
    }
    return elem_type(which) == BT_STRING && str_is(elem_str(which), "*");
}

ErrCode ddl_select_indexes(const Collection *coll, Elem which, bool *selected, Error *err) {
    if (ddl_is_all_indexes(which)) {
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
    Elem id = doc_get_lit(elem_doc(which), "_id");
    if (coll->options.is_clustered && doc_count(elem_doc(which)) == 1 && elem_is_number(id) &&
        elem_as_f64(id) == 1)
        return select_by_name(coll, str_from(coll->options.clustered_name), selected, err);
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
