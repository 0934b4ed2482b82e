/*
 * recover_builds.c - index builds that the last process, or a rollback, left unfinished (IDX-5).
 *
 *     1. resume documents read, their tables dropped
 *     2. each build recreated in memory, its new tables in the catalog; writers record side writes
 *     3. temporary tables and files that belong to no build dropped
 *     4. the builds' threads started
 *
 * A crash anywhere here is an unclean shutdown: the next start knows only the catalog entries, and
 * restarts the builds. Tables that were created here and are not in the catalog are then dropped.
 */
#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "ddl/ddl_internal.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

typedef struct Recovery {
    OpCtx *op;
    ResumeDoc **docs; /* NULL: its build was resumed */
    uint32_t doc_count;
    /* Collections with unfinished indexes. */
    Collection **colls;
    size_t coll_count;
    size_t coll_capacity;
    IndexBuild **builds; /* registered; NULL once the coordinator has it */
    size_t count;
    size_t capacity;
    const Catalog *catalog; /* while collecting */
} Recovery;

static ErrCode recover_all(Recovery *recovery, bool is_trusted, Error *err);
static void collect_unfinished(Recovery *recovery);
static ErrCode recover_collection(Recovery *recovery, const Collection *coll, Error *err);
static ErrCode recover_build(Recovery *recovery, const Collection *coll, const Uuid *uuid,
                             Error *err);
static ErrCode start_builds(Recovery *recovery, Error *err);

static void recovery_done(Recovery *recovery) {
    for (size_t i = 0; i < recovery->coll_count; i++)
        collection_unref(recovery->colls[i]);
    xfree(recovery->colls);
    for (size_t i = 0; i < recovery->count; i++) {
        if (recovery->builds[i] == NULL)
            continue;
        index_builds_leave(op_index_builds(recovery->op), &recovery->builds[i]->active);
        index_build_free(recovery->builds[i]);
    }
    xfree(recovery->builds);
}

ErrCode ddl_recover_index_builds(OpCtx *op, Error *err) {
    CLEANUP(recovery_done) Recovery recovery = {.op = op};
    if (index_builds_is_resuming(op_index_builds(op)))
        TRY(recover_all(&recovery, /* is_trusted= */ !storage_was_unclean(op_storage(op)), err));
    TRY(index_builds_sweep(op, recovery.builds, (uint32_t)recovery.count, err));
    return start_builds(&recovery, err);
}

ErrCode ddl_restart_index_builds(OpCtx *op, Error *err) {
    CLEANUP(recovery_done) Recovery recovery = {.op = op};
    TRY(recover_all(&recovery, /* is_trusted= */ true, err));
    for (uint32_t i = 0; i < recovery.doc_count; i++)
        if (recovery.docs[i] != NULL)
            TRY(index_build_discard_saved(op, recovery.docs[i], err));
    return start_builds(&recovery, err);
}

static ErrCode recover_all(Recovery *recovery, bool is_trusted, Error *err) {
    TRY(index_builds_read_resume(recovery->op, is_trusted, &recovery->docs, &recovery->doc_count,
                                 err));
    collect_unfinished(recovery);
    for (size_t i = 0; i < recovery->coll_count; i++)
        TRY(recover_collection(recovery, recovery->colls[i], err));
    return ERR_OK;
}

/* ---- which ---- */

static bool collect_coll(void *arg, const Collection *coll) {
    Recovery *recovery = arg;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        if (coll->indexes[i]->is_ready)
            continue;
        ARRAY_RESERVE(recovery->colls, recovery->coll_count, recovery->coll_capacity);
        recovery->colls[recovery->coll_count++] = collection_ref((Collection *)coll);
        break;
    }
    return true;
}

static bool collect_db(void *arg, Str db) {
    catalog_for_each_in_db(((Recovery *)arg)->catalog, db, collect_coll, arg);
    return true;
}

static void collect_unfinished(Recovery *recovery) {
    Catalog *catalog = catalog_acquire(op_catalog(recovery->op));
    recovery->catalog = catalog;
    catalog_for_each_db(catalog, collect_db, recovery);
    catalog_release(catalog);
}

/* Recovers each build of the collection once, at its first index. */
static ErrCode recover_collection(Recovery *recovery, const Collection *coll, Error *err) {
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->is_ready)
            continue;
        uint32_t first = 0;
        while (!ddl_is_of_build(coll->indexes[first], &index->build_uuid))
            first++;
        if (first == i)
            TRY(recover_build(recovery, coll, &index->build_uuid, err));
    }
    return ERR_OK;
}

/* ---- one build ---- */

static void log_recovery(const Collection *coll, const Uuid *build_uuid, const char *msg,
                         int32_t id, const Error *why) {
    char uuid[UUID_TEXT_SIZE];
    uuid_to_text(build_uuid, uuid);
    LOG_WARN(LOG_INDEX, id, msg, LOG_STR("buildUUID", uuid), LOG_STR("namespace", coll->ns.text),
             LOG_STR("error", error_message(why)));
}

static ErrCode begin_anew(OpCtx *op, const Collection *coll, const Uuid *uuid,
                          IndexBuild **ret_build, Error *err) {
    IndexBuild *build = index_build_new(op, coll, uuid);
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < coll->index_count; i++)
        if (ddl_is_of_build(coll->indexes[i], uuid))
            rc = index_build_add(build, coll->indexes[i]->spec, err);
    if (rc != ERR_OK) {
        index_build_discard_tables(build);
        index_build_free(build);
        return rc;
    }
    *ret_build = build;
    return ERR_OK;
}

/* The build's descriptors replace those that were loaded. */
static ErrCode adopt_attempt(void *arg, OpCtx *op, Error *err) {
    IndexBuild *build = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &build->ns, LOCK_X, &access, err));
    Collection *changed = collection_clone(access.coll);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    ErrCode rc = uow_begin(op, &uow, err);
    for (uint32_t i = 0; rc == ERR_OK && i < build->count; i++) {
        IndexDesc *index = build->items[i].index;
        int position = index_build_position(build, &build->items[i], changed);
        invariant(position >= 0);
        IndexDesc *old = changed->indexes[position];
        if (!str_is(str_from(index->ident), old->ident))
            catalog_drop_index_table_on_commit(op, old);
        changed->indexes[position] = index_desc_ref(index);
        index_desc_unref(old);
    }
    if (rc != ERR_OK) {
        collection_unref(changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, access.coll, changed, err));
    return uow_commit(&uow, err);
}

static ErrCode adopt(Recovery *recovery, IndexBuild *take_build, Error *err) {
    ErrCode rc = op_run_with_retry(recovery->op, adopt_attempt, take_build, err);
    if (rc == ERR_OK)
        rc = index_builds_enter(op_index_builds(recovery->op), &take_build->active,
                                /* is_limited= */ false, err);
    if (rc != ERR_OK) {
        index_build_discard_tables(take_build);
        index_build_free(take_build);
        return rc;
    }
    ARRAY_RESERVE(recovery->builds, recovery->count, recovery->capacity);
    recovery->builds[recovery->count++] = take_build;
    return ERR_OK;
}

static ErrCode recover_build(Recovery *recovery, const Collection *coll, const Uuid *uuid,
                             Error *err) {
    OpCtx *op = recovery->op;
    CLEANUP(error_reset) Error why = {0};
    Error none = {0};
    IndexBuild *build = NULL;
    for (uint32_t i = 0; build == NULL && i < recovery->doc_count; i++) {
        const ResumeDoc *doc = recovery->docs[i];
        if (doc == NULL || !uuid_equal(resume_doc_build_uuid(doc), uuid))
            continue;
        if (index_build_resume(op, coll, doc, &build, &why) == ERR_OK) {
            index_build_log(build, "Index build: resuming", 4841700, &none);
            recovery->docs[i] = NULL;
        } else {
            log_recovery(coll, uuid, "Index build: cannot be resumed", 7100306, &why);
        }
        error_reset(&why);
    }
    if (build == NULL && begin_anew(op, coll, uuid, &build, &why) == ERR_OK)
        index_build_log(build, "Index build: restarting from the beginning", 20660, &none);
    if (build != NULL) {
        build->is_two_phase = storage_is_replicated(op_storage(op)) && ns_is_replicated(&coll->ns);
        return adopt(recovery, build, err);
    }
    log_recovery(coll, uuid, "Index build: cannot be started again and is discarded", 7100307,
                 &why);
    return ddl_discard_build(op, &coll->ns, &coll->uuid, uuid, &why, err);
}

/* ---- their threads ---- */

static ErrCode start_builds(Recovery *recovery, Error *err) {
    IndexBuilds *builds = op_index_builds(recovery->op);
    for (size_t i = 0; i < recovery->count; i++) {
        failpoint_hit(FP_INDEX_BUILD_RESUMED);
        Uuid uuid = recovery->builds[i]->active.uuid;
        /* Decided by votes or by the oplog. */
        bool is_two_phase = recovery->builds[i]->is_two_phase;
        TRY(index_builds_start(builds, TAKE_PTR(recovery->builds[i]), &DDL_INDEX_BUILD_CATALOG,
                               /* waiter= */ NULL, err));
        if (!is_two_phase)
            index_builds_commit(builds, &uuid);
    }
    return ERR_OK;
}
