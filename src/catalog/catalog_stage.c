/*
 * catalog_stage.c - changes of the catalog: staged in a unit of work, pending while it commits,
 * published as one version; and the two-phase drop of tables (CAT-4, CAT-5).
 *
 *     stage_add | before_commit: mark_pending | storage commit | on_commit: publish_stage
 *                                             \_ failed: discard_stage takes the marks back
 *
 * Storage commit and publication cannot be one atomic step. Between them a reader may have a
 * snapshot from after the commit and a catalog version from before it (or the reverse). The pending
 * mark makes such readers consult the durable entry in their own snapshot, which is always right.
 * Crash: the durable entries commit with the transaction; everything here is in memory only.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "catalog/catalog_internal.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

typedef struct StagedChange {
    Collection *before;
    Collection *after;
    View *view; /* NULL: none */
    bool is_view_removed;
} StagedChange;

/* All catalog changes of one unit of work; published together. Hangs off the operation. */
typedef struct CatalogStage {
    StagedChange *changes;
    uint32_t count;
    uint32_t capacity;
    bool is_pending_marked;
} Stage;

static Stage *stage_of(OpCtx *op);
static StagedChange *stage_add(OpCtx *op);
static ErrCode mark_pending(void *arg, OpCtx *op, Error *err);
static void publish_stage(void *arg, OpCtx *op, uint64_t commit_ts);
static void discard_stage(void *arg, OpCtx *op, uint64_t commit_ts);
static void stage_free(OpCtx *op, Stage *stage);
static void drop_tables_of(StorageEngine *engine, Collection *coll, uint64_t commit_ts);
static void drop_new_tables(StorageEngine *engine, const StagedChange *change);
static void drop_index_table(void *arg, OpCtx *op, uint64_t commit_ts);
static void keep_index_table(void *arg, OpCtx *op, uint64_t commit_ts);

ErrCode catalog_stage_create(OpCtx *op, Collection *take_coll, Error *err) {
    /* Staged before the write: if that fails, discarding the stage releases the reference. */
    stage_add(op)->after = take_coll;
    return durable_catalog_write(op, op_catalog(op), take_coll, /* is_new= */ true, err);
}

ErrCode catalog_stage_replace(OpCtx *op, const Collection *old, Collection *take_new, Error *err) {
    StagedChange *change = stage_add(op);
    change->before = collection_ref((Collection *)old);
    change->after = take_new;
    return durable_catalog_write(op, op_catalog(op), take_new, /* is_new= */ false, err);
}

ErrCode catalog_stage_drop(OpCtx *op, const Collection *coll, Error *err) {
    stage_add(op)->before = collection_ref((Collection *)coll);
    return durable_catalog_remove(op, op_catalog(op), coll->catalog_id, err);
}

void catalog_drop_index_table_on_commit(OpCtx *op, const IndexDesc *index) {
    /* One reference, consumed by whichever of the two handlers runs. */
    ru_on_commit(op->ru, drop_index_table, index_desc_ref((IndexDesc *)index));
    ru_on_rollback(op->ru, keep_index_table, (IndexDesc *)index);
}

void catalog_stage_view(OpCtx *op, const Ns *home, Elem id, Doc definition) {
    StagedChange *change = stage_add(op);
    change->view = view_from_row(home, id, definition);
    change->is_view_removed = !doc_is_present(definition);
}

const Collection *catalog_stage_find(const OpCtx *op, const Ns *ns) {
    const Stage *stage = op->catalog_stage;
    if (LIKELY(stage == NULL))
        return NULL;
    for (uint32_t i = stage->count; i-- > 0;) /* the newest counts */
        if (stage->changes[i].after != NULL && ns_equal(&stage->changes[i].after->ns, ns))
            return stage->changes[i].after;
    return NULL;
}

const Collection *catalog_find_staged(const OpCtx *op, const Catalog *catalog, const Ns *ns) {
    const Collection *staged = catalog_stage_find(op, ns);
    return UNLIKELY(staged != NULL) ? staged : catalog_find(catalog, ns);
}

typedef struct MultikeyChange {
    IndexState *state;
    uint32_t field_count;
    uint32_t paths[INDEX_FIELDS_MAX];
} MultikeyChange;

static void multikey_persisted(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    MultikeyChange *change = arg;
    for (uint32_t f = 0; f < change->field_count; f++)
        atomic_fetch_or(&change->state->persisted_paths[f], change->paths[f]);
    atomic_store(&change->state->is_multikey_persisted, true);
    xfree(change);
}

static void multikey_discarded(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    xfree(arg);
}

static void note_multikey(MultikeyNotes *notes, const Uuid *uuid) {
    /* Backwards: consecutive writes mostly concern the same collection. */
    for (uint32_t i = notes->count; i-- > 0;)
        if (uuid_equal(&notes->rows[i], uuid))
            return;
    ARRAY_RESERVE(notes->rows, notes->count, notes->capacity);
    notes->rows[notes->count++] = *uuid;
}

ErrCode catalog_set_multikey(OpCtx *op, const Collection *coll, const IndexDesc *index,
                             const uint32_t *paths, Error *err) {
    IndexState *state = index->state;
    bool is_persisted = atomic_load(&state->is_multikey_persisted);
    for (uint32_t f = 0; f < index->field_count; f++)
        is_persisted &= (paths[f] & ~atomic_load(&state->persisted_paths[f])) == 0;
    if (is_persisted)
        return ERR_OK;
    /* Visible before the commit: a reader that sees the document must see the bits, or it would use
     * bounds that miss keys. If the unit of work rolls back they stay, which only makes plans more
     * conservative. */
    for (uint32_t f = 0; f < index->field_count; f++)
        atomic_fetch_or_explicit(&state->multikey_paths[f], paths[f], memory_order_release);
    atomic_store_explicit(&state->is_multikey, true, memory_order_release);

    if (op->mode.multikey_notes != NULL) {
        note_multikey(op->mode.multikey_notes, &coll->uuid);
        return ERR_OK;
    }
    MultikeyChange *change = NEW(MultikeyChange);
    change->state = state; /* outlives the unit of work: the collection is locked */
    change->field_count = index->field_count;
    memcpy(change->paths, paths, sizeof(uint32_t) * index->field_count);
    ru_on_commit(op->ru, multikey_persisted, change);
    ru_on_rollback(op->ru, multikey_discarded, change);
    return durable_catalog_write(op, op_catalog(op), coll, /* is_new= */ false, err);
}

static ErrCode persist_of(OpCtx *op, const Collection *coll, Error *err) {
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        uint32_t paths[INDEX_FIELDS_MAX];
        for (uint32_t f = 0; f < index->field_count; f++)
            paths[f] = index_multikey_paths(index, f);
        if (index_is_multikey(index))
            TRY(catalog_set_multikey(op, coll, index, paths, err));
    }
    return ERR_OK;
}

/* Found by UUID in the newest version: the collection may have been renamed or dropped since the
 * run. */
static ErrCode persist_attempt(void *arg, OpCtx *op, Error *err) {
    const Uuid *uuid = arg;
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find_uuid(catalog, uuid);
    Ns ns = coll != NULL ? coll->ns : (Ns){0};
    catalog_release(catalog);
    if (coll == NULL)
        return ERR_OK;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &ns, LOCK_IX, &access, err));
    if (access.coll == NULL || !uuid_equal(&access.coll->uuid, uuid))
        return ERR_OK; /* dropped meanwhile */
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(persist_of(op, access.coll, err));
    return uow_commit(&uow, err);
}

ErrCode catalog_persist_multikey_in_unit(OpCtx *op, MultikeyNotes *notes, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.multikey_notes = NULL;
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < notes->count; i++) {
        const Collection *coll = catalog_find_uuid(catalog, &notes->rows[i]);
        if (coll != NULL)
            rc = persist_of(op, coll, err);
    }
    catalog_release(catalog);
    notes->count = 0;
    return rc;
}

ErrCode catalog_persist_multikey(OpCtx *op, MultikeyNotes *notes, Error *err) {
    invariant(op->mode.multikey_notes == NULL);
    for (uint32_t i = 0; i < notes->count; i++)
        TRY(op_run_with_retry(op, persist_attempt, &notes->rows[i], err));
    notes->count = 0;
    return ERR_OK;
}

/* ---- publication in two phases ---- */

static Stage *stage_of(OpCtx *op) {
    if (op->catalog_stage == NULL) {
        invariant(ru_is_in_unit_of_work(op->ru));
        op->catalog_stage = NEW(Stage);
        ru_before_commit(op->ru, mark_pending, NULL);
        ru_on_commit(op->ru, publish_stage, NULL);
        ru_on_rollback(op->ru, discard_stage, NULL);
    }
    return op->catalog_stage;
}

static StagedChange *stage_add(OpCtx *op) {
    Stage *stage = stage_of(op);
    ARRAY_RESERVE(stage->changes, stage->count, stage->capacity);
    StagedChange *change = &stage->changes[stage->count++];
    *change = (StagedChange){0};
    return change;
}

static bool removes(const Stage *stage, const Collection *coll) {
    for (uint32_t i = 0; i < stage->count; i++)
        if (stage->changes[i].before == coll)
            return true;
    return false;
}

/* Collections are created without an exclusive lock: the first commit wins. From its pending mark
 * on the others know. A rename over an existing one removes that in the same stage. */
static const Ns *find_taken_locked(CatalogService *service, const Stage *stage) {
    assert_held(&service->ddl_mu);
    const Catalog *current = service->current;
    for (uint32_t i = 0; i < stage->count; i++) {
        const Collection *after = stage->changes[i].after;
        if (stage->changes[i].before != NULL || after == NULL)
            continue;
        const Collection *present = catalog_find(current, &after->ns);
        if ((present != NULL && !removes(stage, present)) ||
            catalog_find_view(current, &after->ns) != NULL ||
            pmap_get(current->pending, after->ns.text, after->ns.size) != NULL)
            return &after->ns;
    }
    return NULL;
}

/* First phase: the storage transaction is about to commit. Must be the last before_commit handler
 * that can matter to readers; a version with the marks is published before any snapshot can contain
 * the change. */
static ErrCode mark_pending(void *arg, OpCtx *op, Error *err) {
    (void)arg;
    CatalogService *service = op_catalog(op);
    Stage *stage = op->catalog_stage;
    mutex_lock(&service->ddl_mu);
    const Ns *taken = find_taken_locked(service, stage);
    if (UNLIKELY(taken != NULL)) {
        mutex_unlock(&service->ddl_mu);
        return error_set(err, ERR_WRITE_CONFLICT,
                         "Collection '%s' was created by another operation meanwhile; please retry "
                         "the operation",
                         taken->text);
    }
    Catalog *next = catalog_version_clone(service->current);
    for (uint32_t i = 0; i < stage->count; i++) {
        StagedChange *change = &stage->changes[i];
        if (change->view != NULL)
            continue;
        /* A rename concerns two names: each gets a mark of its own. */
        if (change->before != NULL && change->after != NULL &&
            ns_equal(&change->before->ns, &change->after->ns)) {
            catalog_version_put_pending(next, &change->before->ns, change->before, change->after);
            continue;
        }
        if (change->before != NULL)
            catalog_version_put_pending(next, &change->before->ns, change->before, NULL);
        if (change->after != NULL)
            catalog_version_put_pending(next, &change->after->ns, NULL, change->after);
    }
    catalog_publish(service, next);
    mutex_unlock(&service->ddl_mu);
    stage->is_pending_marked = true;
    return ERR_OK;
}

static void clear_pending(Catalog *version, const Stage *stage) {
    for (uint32_t i = 0; i < stage->count; i++) {
        const Collection *sides[] = {stage->changes[i].before, stage->changes[i].after};
        for (size_t s = 0; s < ARRAY_LEN(sides); s++)
            if (sides[s] != NULL)
                catalog_version_clear_pending(version, &sides[s]->ns);
    }
}

/* `old` and `next` are the versions before and after the commit. Looked up by name instead of taken
 * from the change, since several changes of one commit may concern the same name. */
static void remember_past(const Catalog *old, Catalog *next, const Stage *stage, uint64_t commit_ts,
                          uint64_t oldest_ts) {
    for (uint32_t i = 0; i < stage->count; i++) {
        const Collection *sides[] = {stage->changes[i].before, stage->changes[i].after};
        for (size_t s = 0; s < ARRAY_LEN(sides); s++) {
            if (sides[s] == NULL)
                continue;
            const Ns *ns = &sides[s]->ns;
            history_add(&next->past_by_ns, ns->text, ns->size, (Collection *)catalog_find(old, ns),
                        (Collection *)catalog_find(next, ns), commit_ts, oldest_ts);
            const Uuid *uuid = &sides[s]->uuid;
            history_add(&next->past_by_uuid, uuid->bytes, sizeof(uuid->bytes),
                        (Collection *)catalog_find_uuid(old, uuid),
                        (Collection *)catalog_find_uuid(next, uuid), commit_ts, oldest_ts);
        }
    }
}

/* Second phase: committed; all changes become visible as one version. Cannot fail: the change is
 * durable. */
static void publish_stage(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)arg;
    CatalogService *service = op_catalog(op);
    Stage *stage = op->catalog_stage;
    mutex_lock(&service->ddl_mu);
    Catalog *next = catalog_version_clone(service->current);
    for (uint32_t i = 0; i < stage->count; i++) {
        /* All removals before all additions: a rename over an existing target removes and adds one
         * name. */
        const Collection *before = stage->changes[i].before;
        if (before == NULL)
            continue;
        catalog_version_remove(next, before);
        if (stage->changes[i].after == NULL && str_is(ns_coll(&before->ns), "system.views"))
            catalog_version_remove_views_of(next, ns_db(&before->ns));
    }
    for (uint32_t i = 0; i < stage->count; i++) {
        StagedChange *change = &stage->changes[i];
        if (change->after != NULL) {
            change->after->min_valid_ts = commit_ts;
            catalog_version_put(next, change->after);
        }
        if (change->view != NULL && !change->is_view_removed)
            catalog_version_put_view(next, change->view);
        else if (change->view != NULL)
            catalog_version_remove_view(next, change->view);
    }
    /* Without timestamps there are no reads in the past. */
    if (commit_ts != 0)
        remember_past(service->current, next, stage, commit_ts, storage_oldest_ts(service->engine));
    clear_pending(next, stage);
    for (uint32_t i = 0; i < stage->count; i++)
        if (stage->changes[i].before != NULL)
            catalog_note_emptied_locked(service, next, ns_db(&stage->changes[i].before->ns));
    catalog_publish(service, next);
    mutex_unlock(&service->ddl_mu);

    for (uint32_t i = 0; i < stage->count; i++) {
        StagedChange *change = &stage->changes[i];
        if (change->before != NULL && change->after == NULL) {
            failpoint_hit(FP_DROP_COLL_CATALOG);
            collection_capped_notify(change->before, /* is_dropped= */ true);
            drop_tables_of(service->engine, change->before, commit_ts);
        }
    }
    stage_free(op, stage);
}

static void discard_stage(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)arg, (void)commit_ts;
    CatalogService *service = op_catalog(op);
    Stage *stage = op->catalog_stage;
    if (stage->is_pending_marked) { /* the storage commit failed after the first phase */
        mutex_lock(&service->ddl_mu);
        Catalog *next = catalog_version_clone(service->current);
        clear_pending(next, stage);
        catalog_publish(service, next);
        mutex_unlock(&service->ddl_mu);
    }
    /* A statement of a transaction has made them, and is over: nobody else remembers them. */
    for (uint32_t i = 0; op->txn_catalog != NULL && i < stage->count; i++)
        drop_new_tables(service->engine, &stage->changes[i]);
    stage_free(op, stage);
}

static void stage_free(OpCtx *op, Stage *stage) {
    for (uint32_t i = 0; i < stage->count; i++) {
        collection_unref(stage->changes[i].before);
        collection_unref(stage->changes[i].after);
        view_unref(stage->changes[i].view);
    }
    xfree(stage->changes);
    xfree(stage);
    op->catalog_stage = NULL;
}

/* ---- two-phase drop: the reaper keeps the last reference and waits until it is the only one ----
 */

static bool records_unused(void *arg) {
    return !record_store_is_shared(arg);
}
static void records_done(void *arg) {
    record_store_unref(arg);
}
static bool index_unused(void *arg) {
    return !ordered_index_is_shared(arg);
}
static void index_done(void *arg) {
    ordered_index_unref(arg);
}

/* Storage drops a table when this reference is the last one: readers of older versions still use
 * it. */
static void drop_tables_of(StorageEngine *engine, Collection *coll, uint64_t commit_ts) {
    storage_drop_named(engine, record_store_ident(coll->records), commit_ts, records_unused,
                       records_done, record_store_ref(coll->records));
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->store != NULL)
            storage_drop_named(engine, coll->indexes[i]->ident, commit_ts, index_unused, index_done,
                               ordered_index_ref(coll->indexes[i]->store));
}

static bool has_index(const Collection *coll, const IndexDesc *index) {
    for (uint32_t i = 0; coll != NULL && i < coll->index_count; i++)
        if (strcmp(coll->indexes[i]->ident, index->ident) == 0)
            return true;
    return false;
}

/* Those that came with the change, which is not going to be. */
static void drop_new_tables(StorageEngine *engine, const StagedChange *change) {
    const Collection *after = change->after;
    if (after == NULL)
        return;
    if (change->before == NULL)
        catalog_drop_records_later(engine, after->records);
    for (uint32_t i = 0; i < after->index_count; i++)
        if (after->indexes[i]->store != NULL && !has_index(change->before, after->indexes[i]))
            catalog_drop_index_later(engine, after->indexes[i]);
}

void catalog_drop_records_later(StorageEngine *engine, RecordStore *records) {
    storage_drop_later(engine, record_store_ident(records), records_unused, records_done,
                       record_store_ref(records));
}

void catalog_drop_index_later(StorageEngine *engine, const IndexDesc *index) {
    storage_drop_later(engine, index->ident, index_unused, index_done,
                       ordered_index_ref(index->store));
}

static void drop_index_table(void *arg, OpCtx *op, uint64_t commit_ts) {
    IndexDesc *index = arg;
    failpoint_hit(FP_DROP_INDEX_CATALOG);
    if (index->store != NULL)
        storage_drop_named(op_storage(op), index->ident, commit_ts, index_unused, index_done,
                           ordered_index_ref(index->store));
    index_desc_unref(index);
}

static void keep_index_table(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    index_desc_unref(arg);
}
