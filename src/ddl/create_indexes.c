/*
 * create_indexes.c - createIndexes: what is missing, and how it is made. An empty collection needs
 * no build: its indexes are ready with their only entry. Others are built (index_builds.c), and the
 * client waits.
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

enum {
    LOCATION_CLUSTERED_BY_INDEX = 6100900,
};

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
    Elem commit_quorum;      /* missing: the usual */
    bool is_of_build;        /* of another member: `specs` are what it has stored */
    bool is_known_not_empty; /* whatever the fast count says */
    const Plan *plan;
    IndexDesc *ready[COLLECTION_INDEXES_MAX]; /* what the indexes will be */
    bool is_changed;                          /* the catalog has moved on: plan again */
} Creation;

static ErrCode make_plan(Creation *creation, OpCtx *op, Plan *ret_plan, Error *err);
static ErrCode check_spec(const Plan *plan, const Ns *ns, Doc spec, bool *ret_exists, OpCtx *op,
                          Error *err);
static ErrCode create_on_empty(Creation *creation, OpCtx *op, Error *err);
static ErrCode create_by_build(Creation *creation, OpCtx *op, Error *err);
static ErrCode empty_attempt(void *arg, OpCtx *op, Error *err);

static void plan_done(Plan *plan) {
    collection_unref(plan->coll);
}

ErrCode ddl_create_indexes(OpCtx *op, const Ns *ns, const Doc *specs, uint32_t count,
                           CreateIndexesResult *ret_result, Error *err) {
    return ddl_create_indexes_by(op, ns, specs, count, ELEM_MISSING, ret_result, err);
}

ErrCode ddl_create_indexes_by(OpCtx *op, const Ns *ns, const Doc *specs, uint32_t count,
                              Elem commit_quorum, CreateIndexesResult *ret_result, Error *err) {
    Doc *checked = ARENA_ARRAY(&op->arena, Doc, count);
    for (uint32_t i = 0; i < count; i++) {
        ErrCode rc = index_spec_check(specs[i], &op->arena, &checked[i], err);
        if (rc != ERR_OK)
            return error_prefix(err, "Error in specification %s",
                                shell_text_of_doc(specs[i], &op->arena));
    }
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *known = catalog_find_staged(op, catalog, ns);
    ErrCode known_rc = access_check_expected(op, catalog, ns, known, err);
    bool exists = known != NULL;
    bool is_clustered = exists && known->options.is_clustered;
    catalog_release(catalog);
    TRY(known_rc);
    for (uint32_t i = 0; i < count && !is_clustered; i++)
        if (elem_is_truthy(doc_get_lit(specs[i], "clustered")))
            return error_set(
                err, (ErrCode)(exists ? INDEX_LOCATION_NOT_CLUSTERED : LOCATION_CLUSTERED_BY_INDEX),
                "the index option 'clustered' does not make a clustered collection of "
                "\"%s\"",
                ns->text);
    *ret_result = (CreateIndexesResult){.created_collection = !exists};
    if (!exists)
        TRY(ddl_ensure_collection(op, ns, err));
    Creation creation = {
        .ns = ns, .specs = checked, .spec_count = count, .commit_quorum = commit_quorum};
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
        /* Inside of a transaction only that: a build would see neither its snapshot nor its
         * writes. */
        bool is_empty = op->txn_catalog != NULL || (!creation.is_known_not_empty &&
                                                    record_store_count(plan.coll->records) == 0);
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
    const Collection *coll = catalog_find_staged(op, catalog, creation->ns);
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
        TRY(index_spec_complete(creation->specs[i], coll->options.collator,
                                /* is_stored= */ creation->is_of_build || op->mode.is_applying,
                                &op->arena, &spec, err));
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
        rc = index_desc_create(engine, creation->ns, plan->specs[made],
                               plan->coll->options.is_clustered, /* is_ready= */ true,
                               &creation->ready[made], err);
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
    TRY(ddl_open_for_indexes(op, creation->plan->coll, creation->plan->specs, creation->plan->count,
                             &access, &creation->is_changed, err));
    if (creation->is_changed)
        return ERR_OK;
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        TRY(record_cursor_open(op, access.coll->records, /* is_forward= */ true, &cursor, err));
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &creation->is_known_not_empty, &rid, &data, err));
    }
    if (op->txn_catalog == NULL)
        ru_abandon_snapshot(op->ru);
    else if (creation->is_known_not_empty || catalog_stage_find(op, creation->ns) == NULL)
        return error_set(
            err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            "a transaction can only index collections that it has created: %s is not one, "
            "or is not empty",
            creation->ns->text);
    if (creation->is_known_not_empty) {
        creation->is_changed = true;
        return ERR_OK;
    }
    Collection *changed = collection_clone(access.coll);
    for (uint32_t i = 0; i < creation->plan->count; i++)
        collection_add_index(changed, index_desc_ref(creation->ready[i]));
    TRY(ddl_commit_indexes(op, access.coll, changed, DOC_NONE, err));
    failpoint_hit(FP_INDEX_BUILD_COMMITTED);
    return ERR_OK;
}

/* ---- a build ---- */

ErrCode ddl_start_index_build_of(OpCtx *op, const Ns *ns, const Uuid *uuid, const Doc *specs,
                                 uint32_t count, Error *err) {
    IndexBuilds *builds = op_index_builds(op);
    if (index_builds_is_active(builds, uuid)) /* resumed, when the oplog is applied again */
        return ERR_OK;
    Doc *checked = ARENA_ARRAY(&op->arena, Doc, count);
    for (uint32_t i = 0; i < count; i++)
        TRY(index_spec_check(specs[i], &op->arena, &checked[i], err));
    Creation creation = {.ns = ns,
                         .specs = checked,
                         .spec_count = count,
                         .is_of_build = true,
                         .commit_quorum = ELEM_MISSING};
    CLEANUP(plan_done) Plan plan = {0};
    TRY(make_plan(&creation, op, &plan, err));
    if (plan.count == 0)
        return ERR_OK;
    IndexBuild *build = index_build_new(op, plan.coll, uuid);
    build->is_two_phase = true;
    TRY(index_builds_enter(builds, &build->active, /* is_limited= */ false, err));
    bool is_changed;
    return ddl_start_index_build(build, plan.coll, plan.specs, plan.count, /* waiter= */ NULL,
                                 &is_changed, err);
}

ErrCode ddl_end_index_build(OpCtx *op, const Ns *ns, const Uuid *uuid, bool is_commit, Error *err) {
    TRY(index_builds_apply_decision(op_index_builds(op), op, uuid,
                                    is_commit ? INDEX_BUILD_COMMIT : INDEX_BUILD_ABORT, err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, ns);
    bool is_found = coll != NULL;
    Uuid coll_uuid = is_found ? coll->uuid : (Uuid){{0}};
    catalog_release(catalog);
    return is_found ? ddl_discard_build(op, ns, &coll_uuid, uuid, /* cause= */ NULL, err) : ERR_OK;
}

static ErrCode explain_failure(const Ns *ns, const Uuid *build_uuid, const Uuid *coll_uuid,
                               Error *err) {
    char uuid[UUID_TEXT_SIZE], coll_text[UUID_TEXT_SIZE];
    uuid_to_text(build_uuid, uuid);
    uuid_to_text(coll_uuid, coll_text);
    return error_prefix(err, "Index build failed: %s: Collection %.60s ( %s ) :: caused by :", uuid,
                        ns->text, coll_text);
}

/* The members must know of the build when the first of them votes. */
static ErrCode start_told(Creation *creation, IndexBuild *take_build, IndexBuildWaiter *waiter,
                          Error *err) {
    const Plan *plan = creation->plan;
    OpCtx *op = take_build->active.op;
    Uuid uuid = take_build->active.uuid;
    IndexBuilds *builds = op_index_builds(op);
    IndexBuildMembers members;
    bool is_told = take_build->is_two_phase && index_builds_get_members(builds, &members);
    ErrCode rc = is_told ? members.begin(members.arg, op, take_build, plan->specs, plan->count,
                                         creation->commit_quorum, err)
                         : ERR_OK;
    if (rc != ERR_OK) {
        index_builds_leave(builds, &take_build->active);
        index_build_free(take_build);
        return rc;
    }
    rc = ddl_start_index_build(take_build, plan->coll, plan->specs, plan->count, waiter,
                               &creation->is_changed, err);
    if (is_told && (rc != ERR_OK || creation->is_changed))
        members.ended(members.arg, op, &uuid);
    else if (!is_told && rc == ERR_OK)
        index_builds_commit(builds, &uuid);
    return rc;
}

/* Starts it and waits for its end. */
static ErrCode create_by_build(Creation *creation, OpCtx *op, Error *err) {
    const Plan *plan = creation->plan;
    IndexBuilds *builds = op_index_builds(op);
    /* Its table has another form than those that builds fill. */
    for (uint32_t i = 0; i < plan->count; i++)
        if (str_is(elem_str(doc_get_lit(plan->specs[i], "name")), "_id_"))
            return error_set(err, ERR_NOT_IMPLEMENTED,
                             "an index on _id can be added to an empty collection only; \"%s\" has "
                             "documents",
                             creation->ns->text);
    TRY(index_build_check_disk(op, err));
    Uuid uuid = uuid_new();
    IndexBuild *build = index_build_new(op, plan->coll, &uuid);
    build->is_two_phase = ddl_is_told(op, creation->ns);
    ErrCode rc = index_builds_enter(builds, &build->active, /* is_limited= */ true, err);
    if (rc != ERR_OK) {
        index_build_free(build);
        return rc;
    }
    IndexBuildWaiter waiter = {.op = op};
    rc = start_told(creation, build, &waiter, err);
    if (rc != ERR_OK || creation->is_changed)
        return rc;
    rc = index_builds_wait(builds, &waiter, err);
    return rc == ERR_OK ? ERR_OK : explain_failure(creation->ns, &uuid, &plan->coll->uuid, err);
}
