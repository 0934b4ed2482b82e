#include "catalog/catalog.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/log.h"
#include "catalog/catalog_internal.h"
#include "storage/recovery_unit.h"

ErrCode catalog_service_open(OpCtx *op, CatalogUnfinished unfinished, CatalogService **ret_service,
                             Error *err) {
    StorageEngine *engine = op_storage(op);
    CatalogService *service = NEW(CatalogService);
    service->service = op->service;
    service->engine = engine;
    mutex_init(&service->ddl_mu, LOCK_RANK_DDL);
    mutex_init(&service->mu, LOCK_RANK_CATALOG_INSTANCE);
    service->current = catalog_version_empty();
    op->service->catalog = service;

    bool is_there = false;
    ErrCode rc = storage_find_table(engine, DURABLE_CATALOG_IDENT, &is_there, err);
    if (rc == ERR_OK && !is_there)
        rc = storage_create_table(engine, DURABLE_CATALOG_IDENT, TABLE_RECORDS,
                                  storage_log_config(engine, /* is_replicated= */ true), err);
    else if (rc == ERR_OK)
        rc = storage_fit_log_config(engine, DURABLE_CATALOG_IDENT, /* is_replicated= */ true, err);
    if (rc == ERR_OK)
        rc = record_store_open(engine, DURABLE_CATALOG_IDENT, /* is_clustered= */ false,
                               &service->durable, err);
    if (rc == ERR_OK)
        rc = catalog_reconcile_and_load(op, service, unfinished, err);
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

Catalog *catalog_ref(Catalog *catalog) {
    atomic_fetch_add_explicit(&catalog->refs, 1, memory_order_relaxed);
    return catalog;
}

CatalogService *op_catalog(const OpCtx *op) {
    return op->service->catalog;
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
    Catalog *next = catalog_version_clone(service->current);
    size_t changed = history_trim(&next->past_by_ns, oldest_ts);
    changed += history_trim(&next->past_by_uuid, oldest_ts);
    if (changed > 0)
        catalog_publish(service, next);
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
