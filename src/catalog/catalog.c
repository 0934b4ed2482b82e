#include "catalog/catalog.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/collator.h"
#include "catalog/catalog_internal.h"
#include "storage/recovery_unit.h"

typedef struct StagedChange {
    Collection *before;
    Collection *after;
    bool is_view;
    Ns view_ns;
    View *view; /* NULL: removed */
} StagedChange;

/* All catalog changes of one unit of work; published together. Hangs off the operation. */
typedef struct CatalogStage {
    StagedChange *changes;
    uint32_t count;
    uint32_t capacity;
    bool is_pending_marked;
} Stage;

static Catalog *version_clone(const Catalog *version);
static void publish(CatalogService *service, Catalog *take_version);
static Stage *stage_of(OpCtx *op);
static StagedChange *stage_add(OpCtx *op);
static ErrCode mark_pending(void *arg, OpCtx *op, Error *err);
static void publish_stage(void *arg, OpCtx *op, uint64_t commit_ts);
static void discard_stage(void *arg, OpCtx *op, uint64_t commit_ts);
static void remember_past(const Catalog *old, Catalog *next, const Stage *stage, uint64_t commit_ts,
                          uint64_t oldest_ts);
static void stage_free(OpCtx *op, Stage *stage);
static void drop_tables_of(StorageEngine *engine, Collection *coll, uint64_t commit_ts);
static void drop_index_table(void *arg, OpCtx *op, uint64_t commit_ts);
static void keep_index_table(void *arg, OpCtx *op, uint64_t commit_ts);
static void db_key(const Collection *coll, uint8_t out[DB_NAME_SIZE_MAX + 17], size_t *ret_size);

static void *ref_collection(void *value) {
    return collection_ref(value);
}
static void unref_collection(void *value) {
    collection_unref(value);
}
static void *ref_view(void *value) {
    atomic_fetch_add_explicit(&((View *)value)->refs, 1, memory_order_relaxed);
    return value;
}
static void unref_view(void *value) {
    view_unref(value);
}
static void *ref_pending(void *value) {
    atomic_fetch_add_explicit(&((Pending *)value)->refs, 1, memory_order_relaxed);
    return value;
}
static void unref_pending(void *value) {
    Pending *pending = value;
    if (atomic_fetch_sub_explicit(&pending->refs, 1, memory_order_acq_rel) > 1)
        return;
    collection_unref(pending->before);
    collection_unref(pending->after);
    xfree(pending);
}

/* The by_db map needs keys that live in the value; this little row holds one. */
typedef struct DbRow {
    _Atomic int32_t refs;
    Collection *coll;
    size_t key_size;
    uint8_t key[DB_NAME_SIZE_MAX + 17];
} DbRow;
static void *ref_db_row(void *value) {
    atomic_fetch_add_explicit(&((DbRow *)value)->refs, 1, memory_order_relaxed);
    return value;
}
static void unref_db_row(void *value) {
    DbRow *row = value;
    if (atomic_fetch_sub_explicit(&row->refs, 1, memory_order_acq_rel) > 1)
        return;
    collection_unref(row->coll);
    xfree(row);
}

static const PMapType COLLECTIONS = {ref_collection, unref_collection};
static const PMapType DB_ROWS = {ref_db_row, unref_db_row};
static const PMapType VIEWS = {ref_view, unref_view};
static const PMapType PENDINGS = {ref_pending, unref_pending};

ErrCode catalog_service_open(OpCtx *op, CatalogService **ret_service, Error *err) {
    StorageEngine *engine = op_storage(op);
    CatalogService *service = NEW(CatalogService);
    service->service = op->service;
    service->engine = engine;
    mutex_init(&service->ddl_mu, LOCK_RANK_DDL);
    mutex_init(&service->mu, LOCK_RANK_CATALOG_INSTANCE);
    service->current = catalog_version_empty();
    op->service->catalog = service;

    ErrCode rc = ERR_OK;
    if (!storage_has_table(engine, DURABLE_CATALOG_IDENT))
        rc = storage_create_table(engine, DURABLE_CATALOG_IDENT, TABLE_RECORDS, NULL, err);
    if (rc == ERR_OK)
        rc = record_store_open(engine, DURABLE_CATALOG_IDENT, /* is_clustered= */ false,
                               &service->durable, err);
    if (rc == ERR_OK)
        rc = catalog_reconcile_and_load(op, service, err);
    if (rc != ERR_OK) {
        op->service->catalog = NULL;
        catalog_service_free(service);
        return rc;
    }
    *ret_service = service;
    return ERR_OK;
}

void catalog_service_free(CatalogService *service) {
    if (service == NULL)
        return;
    /* The stores go with the catalog, and their counts with them. */
    Error err = {0};
    if (storage_flush_counts(service->engine, &err) != ERR_OK)
        LOG_WARN(LOG_STORAGE, 7100205, "Could not write record counts",
                 LOG_STR("error", error_message(&err)));
    error_reset(&err);
    catalog_release(service->current);
    record_store_unref(service->durable);
    mutex_done(&service->mu);
    mutex_done(&service->ddl_mu);
    xfree(service);
}

Catalog *catalog_acquire(CatalogService *service) {
    mutex_lock(&service->mu);
    Catalog *current = service->current;
    atomic_fetch_add_explicit(&current->refs, 1, memory_order_relaxed);
    mutex_unlock(&service->mu);
    return current;
}

void catalog_release(Catalog *catalog) {
    if (catalog == NULL || atomic_fetch_sub_explicit(&catalog->refs, 1, memory_order_acq_rel) > 1)
        return;
    pmap_unref(catalog->by_ns, &COLLECTIONS);
    pmap_unref(catalog->by_uuid, &COLLECTIONS);
    pmap_unref(catalog->by_db, &DB_ROWS);
    pmap_unref(catalog->views, &VIEWS);
    pmap_unref(catalog->pending, &PENDINGS);
    history_unref(catalog->past_by_ns);
    history_unref(catalog->past_by_uuid);
    xfree(catalog);
}

CatalogService *op_catalog(const OpCtx *op) {
    return op->service->catalog;
}

WriteObservers *catalog_write_observers(CatalogService *service) {
    return &service->observers;
}

const Collection *catalog_find(const Catalog *catalog, const Ns *ns) {
    return pmap_get(catalog->by_ns, ns->text, ns->size);
}

const Collection *catalog_find_uuid(const Catalog *catalog, const Uuid *uuid) {
    return pmap_get(catalog->by_uuid, uuid->bytes, sizeof(uuid->bytes));
}

const View *catalog_find_view(const Catalog *catalog, const Ns *ns) {
    return pmap_get(catalog->views, ns->text, ns->size);
}

ErrCode catalog_find_in_snapshot(OpCtx *op, const Catalog *catalog, const Ns *ns,
                                 const Collection **ret_coll, Error *err) {
    uint64_t read_ts = ru_read_ts(op->ru);
    if (read_ts != 0 && history_find(catalog->past_by_ns, ns->text, ns->size, read_ts, ret_coll))
        return ERR_OK;
    const Pending *pending = pmap_get(catalog->pending, ns->text, ns->size);
    if (LIKELY(pending == NULL)) {
        *ret_coll = catalog_find(catalog, ns);
        return ERR_OK;
    }
    /* The change has or has not committed in our snapshot: the durable entry, read there, tells. */
    const Collection *candidates[] = {pending->after, pending->before};
    for (size_t i = 0; i < ARRAY_LEN(candidates); i++) {
        const Collection *coll = candidates[i];
        if (coll == NULL)
            continue;
        Doc entry;
        TRY(catalog_read_entry(op, coll->catalog_id, &op->arena, &entry, err));
        if (doc_is_present(entry) && durable_entry_matches(coll, entry)) {
            *ret_coll = coll;
            return ERR_OK;
        }
    }
    *ret_coll = NULL;
    return ERR_OK;
}

const Collection *catalog_find_uuid_in_snapshot(const OpCtx *op, const Catalog *catalog,
                                                const Uuid *uuid) {
    uint64_t read_ts = ru_read_ts(op->ru);
    const Collection *coll;
    if (read_ts != 0 &&
        history_find(catalog->past_by_uuid, uuid->bytes, sizeof(uuid->bytes), read_ts, &coll))
        return coll;
    return catalog_find_uuid(catalog, uuid);
}

void catalog_trim_history(CatalogService *service) {
    uint64_t oldest_ts = storage_oldest_ts(service->engine);
    mutex_lock(&service->ddl_mu);
    Catalog *next = version_clone(service->current);
    size_t changed = history_trim(&next->past_by_ns, oldest_ts);
    changed += history_trim(&next->past_by_uuid, oldest_ts);
    if (changed > 0)
        publish(service, next);
    else
        catalog_release(next);
    mutex_unlock(&service->ddl_mu);
}

typedef struct DbVisit {
    Str db;
    bool (*visit)(void *arg, const Collection *coll);
    void *arg;
} DbVisit;

static bool visit_db_row(void *arg, const void *key, size_t key_size, void *value) {
    DbVisit *visit = arg;
    if (key_size <= visit->db.size || memcmp(key, visit->db.data, visit->db.size) != 0 ||
        ((const uint8_t *)key)[visit->db.size] != '\0')
        return false;
    return visit->visit(visit->arg, ((DbRow *)value)->coll);
}

void catalog_for_each_in_db(const Catalog *catalog, Str db,
                            bool (*visit)(void *arg, const Collection *coll), void *arg) {
    uint8_t from[DB_NAME_SIZE_MAX + 1];
    invariant(db.size <= DB_NAME_SIZE_MAX);
    memcpy(from, db.data, db.size);
    from[db.size] = '\0';
    DbVisit state = {db, visit, arg};
    pmap_for_each_from(catalog->by_db, from, db.size + 1, visit_db_row, &state);
}

typedef struct ViewVisit {
    Str db;
    bool (*visit)(void *arg, const View *view);
    void *arg;
} ViewVisit;

static bool visit_view_row(void *arg, const void *key, size_t key_size, void *value) {
    ViewVisit *visit = arg;
    (void)key, (void)key_size;
    const View *view = value;
    if (!str_equal(ns_db(&view->ns), visit->db))
        return false;
    return visit->visit(visit->arg, view);
}

void catalog_for_each_view_in_db(const Catalog *catalog, Str db,
                                 bool (*visit)(void *arg, const View *view), void *arg) {
    char from[DB_NAME_SIZE_MAX + 1];
    memcpy(from, db.data, db.size);
    from[db.size] = '.';
    ViewVisit state = {db, visit, arg};
    pmap_for_each_from(catalog->views, from, db.size + 1, visit_view_row, &state);
}

typedef struct DbNames {
    const Catalog *catalog;
    char last[DB_NAME_SIZE_MAX + 2];
    size_t last_size;
    bool is_found;
} DbNames;

static bool first_db(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    DbNames *names = arg;
    Str db = ns_db(&((DbRow *)value)->coll->ns);
    memcpy(names->last, db.data, db.size);
    names->last_size = db.size;
    names->is_found = true;
    return false;
}

void catalog_for_each_db(const Catalog *catalog, bool (*visit)(void *arg, Str db), void *arg) {
    /* Jumps from one database to the next: the cost is by databases, not by collections. */
    DbNames names = {.catalog = catalog};
    char from[DB_NAME_SIZE_MAX + 2] = "";
    size_t from_size = 0;
    for (;;) {
        names.is_found = false;
        pmap_for_each_from(catalog->by_db, from, from_size, first_db, &names);
        if (!names.is_found || !visit(arg, (Str){names.last, names.last_size}))
            return;
        memcpy(from, names.last, names.last_size);
        from[names.last_size] = 1; /* just above "db" NUL ... */
        from_size = names.last_size + 1;
    }
}

static bool set_true(void *arg, const Collection *coll) {
    (void)coll;
    *(bool *)arg = true;
    return false;
}

bool catalog_has_db(const Catalog *catalog, Str db) {
    bool is_found = false;
    catalog_for_each_in_db(catalog, db, set_true, &is_found);
    return is_found;
}

typedef struct CaseSearch {
    Str db;
    char *ret_name;
    bool is_found;
} CaseSearch;

static bool compare_case(void *arg, Str db) {
    CaseSearch *search = arg;
    if (db.size == search->db.size && strncasecmp(db.data, search->db.data, db.size) == 0 &&
        !str_equal(db, search->db)) {
        memcpy(search->ret_name, db.data, db.size);
        search->ret_name[db.size] = '\0';
        search->is_found = true;
    }
    return !search->is_found;
}

bool catalog_find_db_ignoring_case(const Catalog *catalog, Str db, char ret_name[64]) {
    CaseSearch search = {db, ret_name, false};
    catalog_for_each_db(catalog, compare_case, &search);
    return search.is_found;
}

size_t catalog_collection_count(const Catalog *catalog) {
    return pmap_count(catalog->by_ns);
}

/* ---- staging ---- */

ErrCode catalog_stage_create(OpCtx *op, Collection *take_coll, Error *err) {
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
    ru_on_commit(op->ru, drop_index_table, index_desc_ref((IndexDesc *)index));
    ru_on_rollback(op->ru, keep_index_table, (IndexDesc *)index);
}

ErrCode catalog_stage_view(OpCtx *op, const Ns *ns, Doc definition, Error *err) {
    View *view = NULL;
    if (doc_is_present(definition)) {
        view = view_from_definition(ns, definition, err);
        if (view == NULL)
            return err->code;
    }
    StagedChange *change = stage_add(op);
    change->is_view = true;
    change->view_ns = *ns;
    change->view = view;
    return ERR_OK;
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

ErrCode catalog_set_multikey(OpCtx *op, const Collection *coll, const IndexDesc *index,
                             const uint32_t *paths, Error *err) {
    IndexState *state = index->state;
    bool is_persisted = atomic_load(&state->is_multikey_persisted);
    for (uint32_t f = 0; f < index->field_count; f++)
        is_persisted &= (paths[f] & ~atomic_load(&state->persisted_paths[f])) == 0;
    if (is_persisted)
        return ERR_OK;
    /* Visible before the commit: a reader that sees the document must see the bits. If the unit of
     * work rolls back they stay, which only makes plans more careful. */
    for (uint32_t f = 0; f < index->field_count; f++)
        atomic_fetch_or_explicit(&state->multikey_paths[f], paths[f], memory_order_release);
    atomic_store_explicit(&state->is_multikey, true, memory_order_release);

    MultikeyChange *change = NEW(MultikeyChange);
    change->state = state; /* lives as long as the collection, which is locked */
    change->field_count = index->field_count;
    memcpy(change->paths, paths, sizeof(uint32_t) * index->field_count);
    ru_on_commit(op->ru, multikey_persisted, change);
    ru_on_rollback(op->ru, multikey_discarded, change);
    return durable_catalog_write(op, op_catalog(op), coll, /* is_new= */ false, err);
}

/* ---- versions ---- */

Catalog *catalog_version_empty(void) {
    Catalog *version = NEW(Catalog);
    version->refs = 1;
    return version;
}

static void replace_map(PMap **map, PMap *take_next, const PMapType *type) {
    pmap_unref(*map, type);
    *map = take_next;
}

void catalog_version_put(Catalog *version, Collection *coll) {
    replace_map(&version->by_ns,
                pmap_put(version->by_ns, &COLLECTIONS, coll->ns.text, coll->ns.size, coll),
                &COLLECTIONS);
    replace_map(
        &version->by_uuid,
        pmap_put(version->by_uuid, &COLLECTIONS, coll->uuid.bytes, sizeof(coll->uuid.bytes), coll),
        &COLLECTIONS);
    DbRow *row = NEW(DbRow);
    row->refs = 1;
    row->coll = collection_ref(coll);
    db_key(coll, row->key, &row->key_size);
    replace_map(&version->by_db, pmap_put(version->by_db, &DB_ROWS, row->key, row->key_size, row),
                &DB_ROWS);
    unref_db_row(row);
}

void catalog_version_remove(Catalog *version, const Collection *coll) {
    replace_map(&version->by_ns,
                pmap_remove(version->by_ns, &COLLECTIONS, coll->ns.text, coll->ns.size),
                &COLLECTIONS);
    replace_map(
        &version->by_uuid,
        pmap_remove(version->by_uuid, &COLLECTIONS, coll->uuid.bytes, sizeof(coll->uuid.bytes)),
        &COLLECTIONS);
    uint8_t key[DB_NAME_SIZE_MAX + 17];
    size_t key_size;
    db_key(coll, key, &key_size);
    replace_map(&version->by_db, pmap_remove(version->by_db, &DB_ROWS, key, key_size), &DB_ROWS);
}

void catalog_version_put_view(Catalog *version, View *view) {
    replace_map(&version->views,
                pmap_put(version->views, &VIEWS, view->ns.text, view->ns.size, view), &VIEWS);
}

View *view_from_definition(const Ns *ns, Doc definition, Error *err) {
    Elem view_on = doc_get_lit(definition, "viewOn");
    Elem pipeline = doc_get_lit(definition, "pipeline");
    Ns on;
    if (elem_type(view_on) != BT_STRING || elem_type(pipeline) != BT_ARRAY) {
        (void)error_set(err, ERR_INVALID_VIEW_DEFINITION, "view \"%s\" needs viewOn and pipeline",
                        ns->text);
        return NULL;
    }
    if (ns_make(ns_db(ns), elem_str(view_on), &on, err) != ERR_OK)
        return NULL;
    View *view = NEW(View);
    view->refs = 1;
    arena_init(&view->arena, 1024);
    view->ns = *ns;
    view->view_on = on;
    view->definition = doc_copy(definition, &view->arena);
    view->pipeline = elem_doc(doc_get_lit(view->definition, "pipeline"));
    Elem collation = doc_get_lit(view->definition, "collation");
    if (elem_is_present(collation) &&
        collator_parse_elem(collation, "collation", &view->collator, err) != ERR_OK) {
        view_unref(view);
        return NULL;
    }
    view->collation = view->collator != NULL ? view->collator->spec : DOC_NONE;
    return view;
}

void view_unref(View *view) {
    if (view == NULL || atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) > 1)
        return;
    arena_done(&view->arena);
    xfree(view);
}

static Catalog *version_clone(const Catalog *version) {
    Catalog *copy = catalog_version_empty();
    copy->by_ns = pmap_ref(version->by_ns);
    copy->by_uuid = pmap_ref(version->by_uuid);
    copy->by_db = pmap_ref(version->by_db);
    copy->views = pmap_ref(version->views);
    copy->pending = pmap_ref(version->pending);
    copy->past_by_ns = pmap_ref(version->past_by_ns);
    copy->past_by_uuid = pmap_ref(version->past_by_uuid);
    return copy;
}

static void publish(CatalogService *service, Catalog *take_version) {
    assert_held(&service->ddl_mu);
    mutex_lock(&service->mu);
    Catalog *old = service->current;
    service->current = take_version;
    mutex_unlock(&service->mu);
    catalog_release(old);
}

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

static void put_pending(Catalog *version, const Ns *ns, Collection *before, Collection *after) {
    Pending *pending = NEW(Pending);
    pending->refs = 1;
    pending->ns = *ns;
    pending->before = before != NULL ? collection_ref(before) : NULL;
    pending->after = after != NULL ? collection_ref(after) : NULL;
    Pending *present = pmap_get(version->pending, ns->text, ns->size);
    if (present != NULL) { /* one change takes the name away, another gives it: both sides count */
        if (pending->before == NULL && present->before != NULL)
            pending->before = collection_ref(present->before);
        if (pending->after == NULL && present->after != NULL)
            pending->after = collection_ref(present->after);
    }
    replace_map(&version->pending,
                pmap_put(version->pending, &PENDINGS, pending->ns.text, pending->ns.size, pending),
                &PENDINGS);
    unref_pending(pending);
}

/* First phase: the storage transaction is about to commit. */
static ErrCode mark_pending(void *arg, OpCtx *op, Error *err) {
    (void)arg, (void)err;
    CatalogService *service = op_catalog(op);
    Stage *stage = op->catalog_stage;
    mutex_lock(&service->ddl_mu);
    Catalog *next = version_clone(service->current);
    for (uint32_t i = 0; i < stage->count; i++) {
        StagedChange *change = &stage->changes[i];
        if (change->is_view)
            continue;
        if (change->before != NULL && change->after != NULL &&
            ns_equal(&change->before->ns, &change->after->ns)) {
            put_pending(next, &change->before->ns, change->before, change->after);
            continue;
        }
        if (change->before != NULL)
            put_pending(next, &change->before->ns, change->before, NULL);
        if (change->after != NULL)
            put_pending(next, &change->after->ns, NULL, change->after);
    }
    publish(service, next);
    mutex_unlock(&service->ddl_mu);
    stage->is_pending_marked = true;
    return ERR_OK;
}

static void clear_pending(Catalog *version, const Stage *stage) {
    for (uint32_t i = 0; i < stage->count; i++) {
        const StagedChange *change = &stage->changes[i];
        const Collection *sides[] = {change->before, change->after};
        for (size_t s = 0; s < ARRAY_LEN(sides); s++)
            if (sides[s] != NULL)
                replace_map(
                    &version->pending,
                    pmap_remove(version->pending, &PENDINGS, sides[s]->ns.text, sides[s]->ns.size),
                    &PENDINGS);
    }
}

/* `old` and `next` are the versions before and after the commit. */
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

/* Second phase: committed; all changes become visible as one version. */
static void publish_stage(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)arg;
    CatalogService *service = op_catalog(op);
    Stage *stage = op->catalog_stage;
    mutex_lock(&service->ddl_mu);
    Catalog *next = version_clone(service->current);
    for (uint32_t i = 0; i < stage->count; i++)
        if (stage->changes[i].before != NULL)
            catalog_version_remove(next, stage->changes[i].before);
    for (uint32_t i = 0; i < stage->count; i++) {
        StagedChange *change = &stage->changes[i];
        if (change->after != NULL) {
            change->after->min_valid_ts = commit_ts;
            catalog_version_put(next, change->after);
        }
        if (change->is_view && change->view != NULL)
            catalog_version_put_view(next, change->view);
        else if (change->is_view)
            replace_map(
                &next->views,
                pmap_remove(next->views, &VIEWS, change->view_ns.text, change->view_ns.size),
                &VIEWS);
    }
    if (commit_ts != 0)
        remember_past(service->current, next, stage, commit_ts, storage_oldest_ts(service->engine));
    clear_pending(next, stage);
    publish(service, next);
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
        Catalog *next = version_clone(service->current);
        clear_pending(next, stage);
        publish(service, next);
        mutex_unlock(&service->ddl_mu);
    }
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

static void drop_tables_of(StorageEngine *engine, Collection *coll, uint64_t commit_ts) {
    storage_drop_later(engine, record_store_ident(coll->records), commit_ts, records_unused,
                       records_done, record_store_ref(coll->records));
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->store != NULL)
            storage_drop_later(engine, coll->indexes[i]->ident, commit_ts, index_unused, index_done,
                               ordered_index_ref(coll->indexes[i]->store));
}

static void drop_index_table(void *arg, OpCtx *op, uint64_t commit_ts) {
    IndexDesc *index = arg;
    failpoint_hit(FP_DROP_INDEX_CATALOG);
    if (index->store != NULL)
        storage_drop_later(op_storage(op), index->ident, commit_ts, index_unused, index_done,
                           ordered_index_ref(index->store));
    index_desc_unref(index);
}

static void keep_index_table(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    index_desc_unref(arg);
}

static void db_key(const Collection *coll, uint8_t out[DB_NAME_SIZE_MAX + 17], size_t *ret_size) {
    Str db = ns_db(&coll->ns);
    memcpy(out, db.data, db.size);
    out[db.size] = '\0';
    memcpy(out + db.size + 1, coll->uuid.bytes, sizeof(coll->uuid.bytes));
    *ret_size = db.size + 17;
}
