/*
 * create_indexes.c - createIndexes (index/build/README.md has the whole story of a build).
 *
 *     tables made | entry written, not ready | filled | entry written, ready
 *
 * Crash before the first entry: tables that nobody names. Between the two: the next start discards
 * the index. An empty collection needs no build: its indexes are ready with their only entry.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "ddl/ddl_internal.h"
#include "index/build/build.h"
#include "index/spec.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

/* What is to be done for one createIndexes, by the catalog as it was at a moment. */
typedef struct Plan {
    Collection *coll;
    Doc *specs; /* complete, of those that are missing */
    uint32_t count;
    uint32_t count_before;
    bool is_waiting; /* one of them is being built by somebody else */
    Uuid wait_for;
} Plan;

typedef struct Creation {
    const Ns *ns;
    const Doc *specs; /* checked */
    uint32_t spec_count;
    bool is_known_not_empty; /* whatever the fast count says */
    const Plan *plan;
    IndexBuild *build;
    IndexDesc *ready[COLLECTION_INDEXES_MAX]; /* what the indexes will be */
    bool is_changed;                          /* the catalog has moved on: plan again */
} Creation;

static ErrCode make_plan(Creation *creation, OpCtx *op, Plan *ret_plan, Error *err);
static ErrCode check_spec(const Plan *plan, const Ns *ns, Doc spec, bool *ret_exists, OpCtx *op,
                          Error *err);
static ErrCode create_on_empty(Creation *creation, OpCtx *op, Error *err);
static ErrCode create_by_build(Creation *creation, OpCtx *op, Error *err);
static ErrCode empty_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode start_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode commit_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode abort_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode open_for_start(Creation *creation, OpCtx *op, CollAccess *ret_access, Error *err);
static ErrCode stage_and_commit(OpCtx *op, const Collection *old, Collection *take_changed,
                                bool is_observed, Error *err);

static void plan_done(Plan *plan) {
    collection_unref(plan->coll);
}

ErrCode ddl_create_indexes(OpCtx *op, const Ns *ns, const Doc *specs, uint32_t count,
                           CreateIndexesResult *ret_result, Error *err) {
    Doc *checked = ARENA_ARRAY(&op->arena, Doc, count);
    for (uint32_t i = 0; i < count; i++) {
        ErrCode rc = index_spec_check(specs[i], &op->arena, &checked[i], err);
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
    Creation creation = {.ns = ns, .specs = checked, .spec_count = count};
    Uuid waited_for = {{0}};
    for (;;) {
        TRY(op_check_interrupt_slow(op, err));
        CLEANUP(plan_done) Plan plan = {0};
        TRY(make_plan(&creation, op, &plan, err));
        if (plan.is_waiting) {
            /* A build is over when its entry is: one that is still there could not be taken out. */
            if (uuid_equal(&waited_for, &plan.wait_for))
                return error_set(err, ERR_INDEX_BUILD_ALREADY_IN_PROGRESS,
                                 "an index of %s is left over from a build that failed", ns->text);
            TRY(index_builds_wait_end(op_index_builds(op), op, &plan.wait_for, err));
            waited_for = plan.wait_for;
            continue;
        }
        ret_result->count_before = plan.count_before;
        ret_result->count_after = plan.count_before + plan.count;
        if (plan.count == 0)
            return ERR_OK;
        creation.plan = &plan;
        creation.is_changed = false;
        bool is_empty = !creation.is_known_not_empty && record_store_count(plan.coll->records) == 0;
        TRY(is_empty ? create_on_empty(&creation, op, err) : create_by_build(&creation, op, err));
        if (!creation.is_changed)
            return ERR_OK;
    }
}

ErrCode ddl_check_no_build(const Collection *coll, Error *err) {
    for (uint32_t i = 0; coll != NULL && i < coll->index_count; i++) {
        if (coll->indexes[i]->is_ready)
            continue;
        char uuid[UUID_TEXT_SIZE];
        uuid_to_text(&coll->uuid, uuid);
        return error_set(err, ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE,
                         "cannot perform operation: an index build is currently running for "
                         "collection with UUID: %s",
                         uuid);
    }
    return ERR_OK;
}

/* ---- what is to be done ---- */

static ErrCode make_plan(Creation *creation, OpCtx *op, Plan *ret_plan, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, creation->ns);
    bool is_view = catalog_find_view(catalog, creation->ns) != NULL;
    if (coll != NULL)
        ret_plan->coll = collection_ref((Collection *)coll);
    catalog_release(catalog);
    if (coll == NULL && is_view)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", creation->ns->text);
    if (coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection %s was dropped meanwhile",
                         creation->ns->text);
    for (uint32_t i = 0; i < coll->index_count; i++)
        ret_plan->count_before += coll->indexes[i]->is_ready;
    ret_plan->specs = ARENA_ARRAY(&op->arena, Doc, creation->spec_count);
    for (uint32_t i = 0; i < creation->spec_count; i++) {
        Doc spec;
        TRY(index_spec_complete(creation->specs[i], coll->options.collator, &op->arena, &spec,
                                err));
        bool exists;
        TRY(check_spec(ret_plan, creation->ns, spec, &exists, op, err));
        if (!exists) {
            ret_plan->specs[ret_plan->count++] = spec;
            continue;
        }
        const IndexDesc *index = collection_find_index(coll, elem_str(doc_get_lit(spec, "name")));
        if (index != NULL && !index->is_ready && index->has_build_uuid) {
            ret_plan->is_waiting = true;
            ret_plan->wait_for = index->build_uuid;
        }
    }
    return ERR_OK;
}

/* Compares one spec with the indexes that are there and with the others of the command. */
static ErrCode check_spec(const Plan *plan, const Ns *ns, Doc spec, bool *ret_exists, OpCtx *op,
                          Error *err) {
    Str name = elem_str(doc_get_lit(spec, "name"));
    TRY(index_spec_find_conflict(plan->coll, spec, ret_exists, err));
    if (plan->coll->options.is_clustered && str_is(name, "_id_"))
        *ret_exists = true;
    for (uint32_t m = 0; !*ret_exists && m < plan->count; m++) {
        Doc other = plan->specs[m];
        Str other_name = elem_str(doc_get_lit(other, "name"));
        bool is_same_name = str_equal(name, other_name);
        if (is_same_name && doc_compare(other, spec, NULL) != 0)
            return error_set(err, ERR_INDEX_KEY_SPECS_CONFLICT,
                             "two different indexes named '%s' in one command", other_name.data);
        if (!is_same_name &&
            elem_equal(doc_get_lit(other, "key"), doc_get_lit(spec, "key"), NULL) &&
            elem_equal(doc_get_lit(other, "collation"), doc_get_lit(spec, "collation"), NULL))
            return error_set(err, ERR_INDEX_OPTIONS_CONFLICT,
                             "Index already exists with a different name: %s", other_name.data);
        *ret_exists = is_same_name;
    }
    if (!*ret_exists && plan->coll->index_count + plan->count >= COLLECTION_INDEXES_MAX)
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "add index fails, too many indexes for %s key:%s", ns->text,
                         shell_text_of_doc(elem_doc(doc_get_lit(spec, "key")), &op->arena));
    return ERR_OK;
}

/* Locks the collection in X; sets is_changed when the plan does not fit any more. */
static ErrCode open_for_start(Creation *creation, OpCtx *op, CollAccess *ret_access, Error *err) {
    const Plan *plan = creation->plan;
    creation->is_changed = false;
    TRY(access_write(op, creation->ns, LOCK_X, ret_access, err));
    const Collection *coll = ret_access->coll;
    if (coll == NULL || !uuid_equal(&coll->uuid, &plan->coll->uuid)) {
        creation->is_changed = true;
        return ERR_OK;
    }
    for (uint32_t i = 0; i < plan->count; i++) {
        bool exists;
        TRY(index_spec_find_conflict(coll, plan->specs[i], &exists, err));
        creation->is_changed |= exists;
    }
    creation->is_changed |= coll->index_count + plan->count > COLLECTION_INDEXES_MAX;
    return ERR_OK;
}

/* ---- an empty collection ---- */

static bool is_unused(void *arg) {
    return !ordered_index_is_shared(arg);
}
static void release_index(void *arg) {
    ordered_index_unref(arg);
}

static ErrCode create_on_empty(Creation *creation, OpCtx *op, Error *err) {
    StorageEngine *engine = op_storage(op);
    const Plan *plan = creation->plan;
    TRY(storage_check_disk(engine, err));
    ErrCode rc = ERR_OK;
    uint32_t made = 0;
    while (rc == ERR_OK && made < plan->count) {
        CLEANUP(xfree_ptr) char *ident = storage_new_ident(engine, "index");
        rc = storage_create_table(engine, ident, TABLE_INDEX,
                                  storage_log_config(engine, ns_is_replicated(creation->ns)), err);
        if (rc == ERR_OK)
            rc = index_desc_new(engine, plan->specs[made], ident, plan->coll->options.is_clustered,
                                /* is_ready= */ true, NULL, &creation->ready[made], err);
        made += rc == ERR_OK;
        failpoint_hit(FP_INDEX_BUILD_TABLE);
    }
    if (rc == ERR_OK)
        rc = op_run_with_retry(op, empty_attempt, creation, err);
    for (uint32_t i = 0; i < made; i++) {
        IndexDesc *index = creation->ready[i];
        if ((rc != ERR_OK || creation->is_changed) && index->store != NULL)
            storage_drop_later(engine, index->ident, is_unused, release_index,
                               ordered_index_ref(index->store));
        index_desc_unref(index);
    }
    return rc;
}

static ErrCode empty_attempt(void *arg, OpCtx *op, Error *err) {
    Creation *creation = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_for_start(creation, op, &access, err));
    if (creation->is_changed)
        return ERR_OK;
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        TRY(record_cursor_open(op, access.coll->records, /* is_forward= */ true, &cursor, err));
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &creation->is_known_not_empty, &rid, &data, err));
    }
    ru_abandon_snapshot(op->ru);
    if (creation->is_known_not_empty) {
        creation->is_changed = true;
        return ERR_OK;
    }
    Collection *changed = collection_clone(access.coll);
    for (uint32_t i = 0; i < creation->plan->count; i++)
        collection_add_index(changed, index_desc_ref(creation->ready[i]));
    TRY(stage_and_commit(op, access.coll, changed, /* is_observed= */ true, err));
    failpoint_hit(FP_INDEX_BUILD_COMMITTED);
    return ERR_OK;
}

/* ---- a build ---- */

static ErrCode make_ready_descs(Creation *creation, OpCtx *op, Error *err) {
    IndexBuild *build = creation->build;
    for (uint32_t i = 0; i < build->count; i++) {
        IndexDesc *index = build->items[i].index;
        IndexDesc *ready;
        TRY(index_desc_new(op_storage(op), index->spec, index->ident, build->is_clustered,
                           /* is_ready= */ true, index->state, &ready, err));
        /* Both descriptors must count as users of the same table, or its drop would not wait for
         * the other. */
        ordered_index_unref(ready->store);
        ready->store = index->store != NULL ? ordered_index_ref(index->store) : NULL;
        creation->ready[i] = ready;
    }
    return ERR_OK;
}

static void log_build(const IndexBuild *build, const char *msg, int32_t id, const Error *err) {
    char uuid[UUID_TEXT_SIZE];
    uuid_to_text(&build->active.uuid, uuid);
    if (err->code == ERR_OK)
        LOG_INFO(LOG_INDEX, id, msg, LOG_STR("buildUUID", uuid),
                 LOG_STR("namespace", build->ns.text), LOG_I64("indexes", build->count));
    else
        LOG_INFO(LOG_INDEX, id, msg, LOG_STR("buildUUID", uuid),
                 LOG_STR("namespace", build->ns.text), LOG_I64("indexes", build->count),
                 LOG_STR("error", error_message(err)));
}

/* The entry may only be missing because somebody dropped it: then they have dropped its table. */
static void abort_build(Creation *creation, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    bool was_uninterruptible = op->is_uninterruptible;
    op->is_uninterruptible = true;
    if (op_run_with_retry(op, abort_attempt, creation, &err) != ERR_OK)
        log_build(creation->build, "Index build: could not be taken out of the catalog", 7100303,
                  &err);
    op->is_uninterruptible = was_uninterruptible;
}

static ErrCode explain_failure(const IndexBuild *build, Error *err) {
    if (err->code == ERR_QUERY_PLAN_KILLED) {
        error_reset(err);
        (void)error_set(err, ERR_INDEX_BUILD_ABORTED, "the collection or the index was dropped");
    }
    char uuid[UUID_TEXT_SIZE], coll_uuid[UUID_TEXT_SIZE];
    uuid_to_text(&build->active.uuid, uuid);
    uuid_to_text(&build->active.coll_uuid, coll_uuid);
    return error_prefix(err, "Index build failed: %s: Collection %.60s ( %s ) :: caused by :", uuid,
                        build->ns.text, coll_uuid);
}

static ErrCode run_build(Creation *creation, OpCtx *op, Error *err) {
    IndexBuild *build = creation->build;
    for (uint32_t i = 0; i < creation->plan->count; i++) {
        ErrCode rc = index_build_add(build, creation->plan->specs[i], err);
        if (rc != ERR_OK) {
            index_build_discard_tables(build);
            return rc;
        }
    }
    ErrCode rc = op_run_with_retry(op, start_attempt, creation, err);
    if (rc != ERR_OK || creation->is_changed) {
        index_build_discard_tables(build);
        return rc;
    }
    failpoint_hit(FP_INDEX_BUILD_STARTED);
    log_build(build, "Index build: starting", 20384, err);
    rc = make_ready_descs(creation, op, err);
    if (rc == ERR_OK)
        rc = index_build_run(build, err);
    if (rc == ERR_OK)
        rc = op_run_with_retry(op, commit_attempt, creation, err);
    op_set_progress(op, NULL, 0, 0);
    if (rc == ERR_OK) {
        log_build(build, "Index build: completed successfully", 20663, err);
        return ERR_OK;
    }
    rc = explain_failure(build, err);
    log_build(build, "Index build: failed", 20649, err);
    abort_build(creation, op);
    return rc;
}

static ErrCode create_by_build(Creation *creation, OpCtx *op, Error *err) {
    TRY(index_build_check_disk(op, err));
    CLEANUP(index_build_free_ptr)
    IndexBuild *build = index_build_new(op, creation->plan->coll);
    creation->build = build;
    TRY(index_builds_enter(op_index_builds(op), &build->active, err));
    ErrCode rc = run_build(creation, op, err);
    index_builds_leave(op_index_builds(op), &build->active);
    for (uint32_t i = 0; i < build->count; i++) {
        index_desc_unref(creation->ready[i]);
        creation->ready[i] = NULL;
    }
    return rc;
}

static ErrCode start_attempt(void *arg, OpCtx *op, Error *err) {
    Creation *creation = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_for_start(creation, op, &access, err));
    if (creation->is_changed)
        return ERR_OK;
    Collection *changed = collection_clone(access.coll);
    for (uint32_t i = 0; i < creation->build->count; i++)
        collection_add_index(changed, index_desc_ref(creation->build->items[i].index));
    TRY(stage_and_commit(op, access.coll, changed, /* is_observed= */ false, err));
    failpoint_hit(FP_INDEX_BUILD_SIDE_TABLES);
    return ERR_OK;
}

/* Nobody has used the index yet: its array paths go to disk with the entry that makes it ready. */
static void note_persisted(const IndexDesc *index) {
    IndexState *state = index->state;
    for (uint32_t f = 0; f < index->field_count; f++)
        atomic_store(&state->persisted_paths[f], atomic_load(&state->multikey_paths[f]));
    atomic_store(&state->is_multikey_persisted, atomic_load(&state->is_multikey));
}

static ErrCode commit_attempt(void *arg, OpCtx *op, Error *err) {
    Creation *creation = arg;
    IndexBuild *build = creation->build;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, creation->ns, LOCK_X, &access, err));
    TRY(index_build_finish_locked(build, &access, err));
    Collection *changed = collection_clone(access.coll);
    for (uint32_t i = 0; i < build->count; i++) {
        int position = index_build_position(build, &build->items[i], changed);
        invariant(position >= 0);
        index_desc_unref(changed->indexes[position]);
        changed->indexes[position] = index_desc_ref(creation->ready[i]);
    }
    TRY(stage_and_commit(op, access.coll, changed, /* is_observed= */ true, err));
    for (uint32_t i = 0; i < build->count; i++)
        note_persisted(creation->ready[i]);
    failpoint_hit(FP_INDEX_BUILD_COMMITTED);
    return ERR_OK;
}

static ErrCode abort_attempt(void *arg, OpCtx *op, Error *err) {
    Creation *creation = arg;
    IndexBuild *build = creation->build;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, creation->ns, LOCK_X, &access, err));
    const Collection *coll = access.coll;
    if (coll == NULL || !uuid_equal(&coll->uuid, &build->active.coll_uuid))
        return ERR_OK;
    Collection *changed = collection_clone(coll);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    ErrCode rc = uow_begin(op, &uow, err);
    for (uint32_t i = 0; rc == ERR_OK && i < build->count; i++) {
        int position = index_build_position(build, &build->items[i], changed);
        if (position < 0)
            continue;
        catalog_drop_index_table_on_commit(op, changed->indexes[position]);
        collection_remove_index(changed, (uint32_t)position);
    }
    if (rc != ERR_OK || changed->index_count == coll->index_count) {
        collection_unref(changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, coll, changed, err));
    TRY(uow_commit(&uow, err));
    failpoint_hit(FP_INDEX_BUILD_ABORTED);
    return ERR_OK;
}

static ErrCode stage_and_commit(OpCtx *op, const Collection *old, Collection *take_changed,
                                bool is_observed, Error *err) {
    CLEANUP(uow_done) UnitOfWork uow = {0};
    ErrCode rc = uow_begin(op, &uow, err);
    for (uint32_t i = 0; is_observed && rc == ERR_OK && i < take_changed->index_count; i++) {
        const IndexDesc *index = take_changed->indexes[i];
        int before = collection_index_position(old, str_from(index->name));
        if (index->is_ready && (before < 0 || !old->indexes[before]->is_ready))
            rc = ddl_observe(op, &take_changed->ns, &take_changed->uuid,
                             ddl_entry_create_index(op, take_changed, index), DOC_NONE, err);
    }
    if (rc != ERR_OK) {
        collection_unref(take_changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, old, take_changed, err));
    return uow_commit(&uow, err);
}
