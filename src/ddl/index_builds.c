/*
 * index_builds.c - the catalog's part of an index build (index/build/README.md has the whole
 * story).
 *
 *     tables created | entry written, not ready | filled | entry written, ready
 *
 * Crash before the first entry: unreferenced tables. Between the two: the next start discards the
 * index, or restarts its build. After a clean shutdown between the two it may be resumed
 * (recover_builds.c).
 */
#include "base/failpoint.h"
#include "ddl/ddl_internal.h"
#include "index/build/build.h"
#include "index/spec.h"
#include "storage/engine.h"

static ErrCode start_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode commit_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode abort_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode commit_build(IndexBuild *build, Error *err);
static ErrCode abort_build(IndexBuild *build, const Error *cause, Error *err);

const IndexBuildCatalog DDL_INDEX_BUILD_CATALOG = {commit_build, abort_build};

ErrCode ddl_open_for_indexes(OpCtx *op, const Collection *planned, const Doc *specs, uint32_t count,
                             CollAccess *ret_access, bool *ret_is_changed, Error *err) {
    *ret_is_changed = false;
    /* A transaction indexes only what it has created itself. An index has a key for each document,
     * owned or not; the policies are consulted for whether the request was sent to the right
     * place. */
    TRY(access_write_owned(op, &planned->ns, op->txn_catalog != NULL ? LOCK_IX : LOCK_X, ret_access,
                           err));
    const Collection *coll = ret_access->coll;
    /* The specifications were checked against a version without lock; the caller plans again. */
    if (coll == NULL || !uuid_equal(&coll->uuid, &planned->uuid)) {
        *ret_is_changed = true;
        return ERR_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        bool exists;
        TRY(index_spec_find_conflict(coll, specs[i], &exists, err));
        *ret_is_changed |= exists;
    }
    *ret_is_changed |= coll->index_count + count > COLLECTION_INDEXES_MAX;
    return ERR_OK;
}

/* ---- start ---- */

typedef struct Start {
    IndexBuild *build;
    const Collection *planned;
    const Doc *specs;
    uint32_t count;
    bool is_changed;
} Start;

static ErrCode make_tables(Start *start, Error *err) {
    for (uint32_t i = 0; i < start->count; i++)
        TRY(index_build_add(start->build, start->specs[i], err));
    return ERR_OK;
}

ErrCode ddl_start_index_build(IndexBuild *take_build, const Collection *planned, const Doc *specs,
                              uint32_t count, IndexBuildWaiter *waiter, bool *ret_is_changed,
                              Error *err) {
    OpCtx *op = take_build->active.op;
    IndexBuilds *builds = op_index_builds(op);
    Start start = {.build = take_build, .planned = planned, .specs = specs, .count = count};
    ErrCode rc = make_tables(&start, err);
    if (rc == ERR_OK)
        rc = op_run_with_retry(op, start_attempt, &start, err);
    /* From here on writers record side writes. */
    take_build->start_ts = op->mode.apply_ts != 0 ? op->mode.apply_ts : op->last_optime.ts;
    *ret_is_changed = start.is_changed;
    if (rc != ERR_OK || start.is_changed) {
        index_build_discard_tables(take_build);
        index_builds_leave(builds, &take_build->active);
        index_build_free(take_build);
        return rc;
    }
    index_build_log(take_build, "Index build: starting", 20384, err);
    return index_builds_start(builds, take_build, &DDL_INDEX_BUILD_CATALOG, waiter, err);
}

static ErrCode start_attempt(void *arg, OpCtx *op, Error *err) {
    Start *start = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(ddl_open_for_indexes(op, start->planned, start->specs, start->count, &access,
                             &start->is_changed, err));
    if (start->is_changed)
        return ERR_OK;
    Collection *changed = collection_clone(access.coll);
    for (uint32_t i = 0; i < start->build->count; i++)
        collection_add_index(changed, index_desc_ref(start->build->items[i].index));
    Doc entry = ddl_entry_index_build(op, "startIndexBuild", changed, &start->build->active.uuid,
                                      /* cause= */ NULL);
    TRY(ddl_commit_indexes(op, access.coll, changed, entry, err));
    failpoint_hit(FP_INDEX_BUILD_SIDE_TABLES);
    return ERR_OK;
}

/* ---- commit ---- */

typedef struct Commit {
    IndexBuild *build;
    IndexDesc *ready[COLLECTION_INDEXES_MAX]; /* the descriptors after the commit */
} Commit;

static void commit_done(Commit *commit) {
    for (uint32_t i = 0; i < commit->build->count; i++)
        index_desc_unref(commit->ready[i]);
}

static ErrCode make_ready_descs(Commit *commit, OpCtx *op, Error *err) {
    IndexBuild *build = commit->build;
    for (uint32_t i = 0; i < build->count; i++) {
        IndexDesc *index = build->items[i].index;
        IndexDesc *ready;
        TRY(index_desc_new(op_storage(op), index->spec, index->ident, build->is_clustered,
                           /* is_ready= */ true, index->state, &ready, err));
        /* Both descriptors must hold references to the same table object, or its drop would not
         * wait for the other one. */
        ordered_index_unref(ready->store);
        ready->store = index->store != NULL ? ordered_index_ref(index->store) : NULL;
        commit->ready[i] = ready;
    }
    return ERR_OK;
}

static ErrCode commit_build(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    CLEANUP(commit_done) Commit commit = {.build = build};
    /* Before the X lock: opening tables is I/O. */
    TRY(make_ready_descs(&commit, op, err));
    return op_run_with_retry(op, commit_attempt, &commit, err);
}

/* The index has not been used yet: its array paths are persisted with the entry that makes it
 * ready. */
void ddl_note_multikey_persisted(const IndexDesc *index) {
    IndexState *state = index->state;
    for (uint32_t f = 0; f < index->field_count; f++)
        atomic_store(&state->persisted_paths[f], atomic_load(&state->multikey_paths[f]));
    atomic_store(&state->is_multikey_persisted, atomic_load(&state->is_multikey));
}

static ErrCode commit_attempt(void *arg, OpCtx *op, Error *err) {
    Commit *commit = arg;
    IndexBuild *build = commit->build;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &build->ns, LOCK_X, &access, err));
    TRY(index_build_finish_locked(build, &access, err));
    Doc entry = ddl_entry_index_build(op, "commitIndexBuild", access.coll, &build->active.uuid,
                                      /* cause= */ NULL);
    Collection *changed = collection_clone(access.coll);
    for (uint32_t i = 0; i < build->count; i++) {
        int position = index_build_position(build, &build->items[i], changed);
        invariant(position >= 0);
        index_desc_unref(changed->indexes[position]);
        changed->indexes[position] = index_desc_ref(commit->ready[i]);
    }
    {
        CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
        op->mode.apply_ts = build->catalog_ts;
        TRY(ddl_commit_indexes(op, access.coll, changed, entry, err));
    }
    for (uint32_t i = 0; i < build->count; i++)
        ddl_note_multikey_persisted(commit->ready[i]);
    failpoint_hit(FP_INDEX_BUILD_COMMITTED);
    return ERR_OK;
}

/* ---- abort ---- */

typedef struct Abort {
    const Ns *ns;
    const Uuid *coll_uuid;
    const Uuid *build_uuid;
    const Error *cause;
} Abort;

/* If the entry is missing, the index was dropped: that operation has dropped its table and logged
 * it, also on a secondary, where this node could not. */
static bool is_in_catalog(const IndexBuild *build) {
    Catalog *catalog = catalog_acquire(op_catalog(build->active.op));
    const Collection *coll = catalog_find_uuid(catalog, &build->active.coll_uuid);
    bool is_there = false;
    for (uint32_t i = 0; coll != NULL && i < coll->index_count; i++)
        is_there |= ddl_is_of_build(coll->indexes[i], &build->active.uuid);
    catalog_release(catalog);
    return is_there;
}

static ErrCode abort_build(IndexBuild *build, const Error *cause, Error *err) {
    OpCtx *op = build->active.op;
    if (!is_in_catalog(build))
        return ERR_OK;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.apply_ts = build->catalog_ts;
    return ddl_discard_build(op, &build->ns, &build->active.coll_uuid, &build->active.uuid, cause,
                             err);
}

ErrCode ddl_discard_build(OpCtx *op, const Ns *ns, const Uuid *coll_uuid, const Uuid *build_uuid,
                          const Error *cause, Error *err) {
    Abort args = {ns, coll_uuid, build_uuid, cause};
    return op_run_with_retry(op, abort_attempt, &args, err);
}

bool ddl_is_of_build(const IndexDesc *index, const Uuid *build_uuid) {
    return !index->is_ready && index->has_build_uuid && uuid_equal(&index->build_uuid, build_uuid);
}

static ErrCode abort_attempt(void *arg, OpCtx *op, Error *err) {
    const Abort *args = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, args->ns, LOCK_X, &access, err));
    const Collection *coll = access.coll;
    if (coll == NULL || !uuid_equal(&coll->uuid, args->coll_uuid))
        return ERR_OK;
    Collection *changed = collection_clone(coll);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    ErrCode rc = uow_begin(op, &uow, err);
    for (uint32_t i = changed->index_count; rc == ERR_OK && i-- > 0;) {
        if (!ddl_is_of_build(changed->indexes[i], args->build_uuid))
            continue;
        catalog_drop_index_table_on_commit(op, changed->indexes[i]);
        collection_remove_index(changed, i);
    }
    bool is_any = changed->index_count != coll->index_count;
    if (rc == ERR_OK && is_any)
        rc = ddl_observe(
            op, &coll->ns, &coll->uuid,
            ddl_entry_index_build(op, "abortIndexBuild", coll, args->build_uuid, args->cause),
            DOC_NONE, err);
    if (rc != ERR_OK || !is_any) {
        collection_unref(changed);
        return rc;
    }
    TRY(catalog_stage_replace(op, coll, changed, err));
    TRY(uow_commit(&uow, err));
    failpoint_hit(FP_INDEX_BUILD_ABORTED);
    return ERR_OK;
}

/* ---- all of them ---- */

ErrCode ddl_commit_indexes(OpCtx *op, const Collection *old, Collection *take_changed, Doc entry,
                           Error *err) {
    CLEANUP(uow_done) UnitOfWork uow = {0};
    ErrCode rc = uow_begin(op, &uow, err);
    bool is_each = !doc_is_present(entry);
    if (rc == ERR_OK && !is_each)
        rc = ddl_observe(op, &take_changed->ns, &take_changed->uuid, entry, DOC_NONE, err);
    for (uint32_t i = 0; is_each && rc == ERR_OK && i < take_changed->index_count; i++) {
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
