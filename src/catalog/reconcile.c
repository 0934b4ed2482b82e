/*
 * reconcile.c - start-up: the durable catalog and the tables are reconciled (CAT-6).
 *
 * Creating a collection or index is two steps (table first, then its entry), dropping is two steps
 * (entry first, then the table), so a crash can only leave tables without an entry. They are
 * dropped:
 *
 *     operation  steps                          crash in between leaves
 *     create     table made | entry written      a table without entry
 *     drop       entry removed | table dropped    a table without entry
 *
 * The reverse must not happen: a collection without its table is fatal. An index without its table
 * is logged and not used (its table may have been dropped by the reaper before a crash that lost
 * the catalog change). An index whose build had not finished is discarded: on a standalone node its
 * creation was never acknowledged. Or it is kept, and with it all tables of builds (internal-*),
 * for ddl/recover_builds.c, which resumes it and drops what is not needed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "bson/validate.h"
#include "catalog/catalog_internal.h"
#include "concurrency/lock_manager.h"
#include "storage/global_lock.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

typedef struct Idents {
    char **rows;
    size_t count;
} Idents;

static void idents_done(Idents *idents);
static ErrCode load_collections(OpCtx *op, CatalogService *service, const Catalog *old,
                                Catalog *version, Error *err);
static ErrCode discard_unfinished(OpCtx *op, CatalogService *service, Catalog *version,
                                  CatalogUnfinished unfinished, Error *err);
static ErrCode drop_unreferenced(CatalogService *service, const Catalog *version,
                                 CatalogUnfinished unfinished, Error *err);
static ErrCode load_views(OpCtx *op, Catalog *version, Error *err);
static void drop_forgotten(CatalogService *service, const Catalog *old);

ErrCode catalog_reconcile_and_load(OpCtx *op, CatalogService *service, CatalogUnfinished unfinished,
                                   Error *err) {
    TRY(op_lock_global(op, LOCK_X, err));
    Catalog *version = service->current; /* not shared with anybody yet */
    ErrCode rc = load_collections(op, service, NULL, version, err);
    /* The following steps write: they need a snapshot that sees the entries as they are now. */
    ru_abandon_snapshot(op->ru);
    if (rc == ERR_OK)
        /* Before drop_unreferenced, so that the tables of discarded indexes are dropped in the same
         * start. */
        rc = discard_unfinished(op, service, version, unfinished, err);
    if (rc == ERR_OK)
        rc = drop_unreferenced(service, version, unfinished, err);
    if (rc == ERR_OK)
        rc = storage_remove_stray_files(service->engine, err);
    if (rc == ERR_OK)
        rc = load_views(op, version, err);
    op_unlock_global(op);
    return rc;
}

ErrCode catalog_reload(OpCtx *op, Error *err) {
    CatalogService *service = op_catalog(op);
    invariant(lock_is_held(op, RESOURCE_ID_GLOBAL, LOCK_X));
    /* Kept until the end: unchanged collections keep their instance, so that open cursors, plan
     * caches and references of index builds stay valid. */
    Catalog *old = catalog_acquire(service);
    Catalog *version = catalog_version_empty();
    ErrCode rc = load_collections(op, service, old, version, err);
    if (rc == ERR_OK)
        rc = load_views(op, version, err);
    ru_abandon_snapshot(op->ru);
    if (rc == ERR_OK) {
        mutex_lock(&service->ddl_mu);
        catalog_publish(service, version);
        mutex_unlock(&service->ddl_mu);
        drop_forgotten(service, old);
    } else {
        catalog_release(version);
    }
    catalog_release(old);
    return rc;
}

static bool names_table(const Collection *coll, const char *ident) {
    if (coll == NULL || strcmp(record_store_ident(coll->records), ident) == 0)
        return coll != NULL;
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (strcmp(coll->indexes[i]->ident, ident) == 0)
            return true;
    return false;
}

typedef struct TableSearch {
    const char *ident;
    bool is_found;
} TableSearch;

static bool search_table(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    TableSearch *search = arg;
    search->is_found = names_table(value, search->ident);
    return !search->is_found;
}

static bool is_table_named(const void *arg, const char *ident) {
    TableSearch search = {.ident = ident};
    pmap_for_each_from(((const Catalog *)arg)->by_ns, "", 0, search_table, &search);
    return search.is_found;
}

typedef struct Forgotten {
    StorageEngine *engine;
    const Catalog *present;
} Forgotten;

/* A table belongs to one collection (UUID) for life, so only its current instance can reference
 * it. */
static bool drop_if_forgotten(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    const Forgotten *forgotten = arg;
    const Collection *coll = value;
    const Collection *present = catalog_find_uuid(forgotten->present, &coll->uuid);
    if (!names_table(present, record_store_ident(coll->records)))
        catalog_drop_records_later(forgotten->engine, coll->records);
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->store != NULL && !names_table(present, coll->indexes[i]->ident))
            catalog_drop_index_later(forgotten->engine, coll->indexes[i]);
    return true;
}

/* Changes after the stable timestamp are undone: no checkpoint references their tables, so they
 * need not wait for one. */
static void drop_forgotten(CatalogService *service, const Catalog *old) {
    Catalog *present = catalog_acquire(service);
    Forgotten forgotten = {service->engine, present};
    pmap_for_each_from(old->by_ns, "", 0, drop_if_forgotten, &forgotten);
    storage_forget_drops_after(service->engine, storage_stable_ts(service->engine), is_table_named,
                               present);
    catalog_release(present);
}

/* The data may have been used by a standalone node before, and by a member of a replica set now, or
 * the reverse. */
static ErrCode fit_tables(StorageEngine *engine, const Collection *coll, Error *err) {
    bool is_replicated = ns_is_replicated(&coll->ns);
    TRY(storage_fit_log_config(engine, record_store_ident(coll->records), is_replicated, err));
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->store != NULL)
            TRY(storage_fit_log_config(engine, coll->indexes[i]->ident, is_replicated, err));
    return ERR_OK;
}

/* The previous instance, if its durable entry is unchanged. */
static Collection *find_unchanged(const Catalog *old, int64_t catalog_id, Doc entry) {
    Elem options = doc_get_path(entry, "md.options");
    Uuid uuid;
    if (old == NULL || elem_type(options) != BT_DOC ||
        !uuid_from_elem(doc_get_lit(elem_doc(options), "uuid"), &uuid))
        return NULL;
    const Collection *coll = catalog_find_uuid(old, &uuid);
    if (coll == NULL || coll->catalog_id != catalog_id || !durable_entry_matches(coll, entry))
        return NULL;
    return collection_ref((Collection *)coll);
}

/* The counts on disk are those of the last checkpoint; the previous instance has newer ones, which
 * rollback then corrects for the undone writes. */
static void take_counts(const Catalog *old, Collection *coll) {
    const Collection *before = catalog_find_uuid(old, &coll->uuid);
    if (before != NULL && before->records != coll->records)
        record_store_set_counts(coll->records, record_store_count(before->records),
                                record_store_data_size(before->records));
}

static void warn_of_lost_tables(const Collection *coll) {
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->store == NULL && coll->indexes[i]->is_ready)
            LOG_WARN(LOG_STORAGE, 7100201, "Index has lost its table and is not used",
                     LOG_STR("namespace", coll->ns.text), LOG_STR("index", coll->indexes[i]->name),
                     LOG_STR("ident", coll->indexes[i]->ident));
}

typedef struct Loading {
    CatalogService *service;
    const Catalog *old; /* the previous version for a reload; NULL at start */
    Catalog *version;
} Loading;

static ErrCode load_collection(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)is_over;
    const Loading *loading = arg;
    StorageEngine *engine = loading->service->engine;
    TRY(doc_validate((const uint8_t *)data.data, data.size, BSON_DEPTH_MAX, VALIDATE_BASIC, err));
    Doc entry = {(const uint8_t *)data.data};
    ErrCode rc = ERR_OK;
    Collection *coll = find_unchanged(loading->old, rid.num, entry);
    if (coll == NULL) {
        if (durable_entry_parse(engine, rid.num, entry, &coll, err) != ERR_OK)
            return error_prefix(err, "could not load catalog entry %lld", (long long)rid.num);
        if (loading->old == NULL)
            rc = fit_tables(engine, coll, err);
        else
            take_counts(loading->old, coll);
        if (rc == ERR_OK)
            warn_of_lost_tables(coll);
    }
    if (rc == ERR_OK)
        catalog_version_put(loading->version, coll);
    collection_unref(coll);
    return rc;
}

static ErrCode load_collections(OpCtx *op, CatalogService *service, const Catalog *old,
                                Catalog *version, Error *err) {
    Loading loading = {service, old, version};
    return record_store_each(op, service->durable, /* is_forward= */ true, load_collection,
                             &loading, err);
}

typedef struct Unfinished {
    CatalogUnfinished what;
    Collection *rows[1024];
    size_t count;
} Unfinished;

/* A build without UUID cannot be resumed. */
static bool is_discarded(const IndexDesc *index, CatalogUnfinished unfinished) {
    return !index->is_ready && (unfinished == CATALOG_UNFINISHED_DISCARD || !index->has_build_uuid);
}

static bool collect_unfinished(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    Unfinished *found = arg;
    Collection *coll = value;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        if (is_discarded(coll->indexes[i], found->what) && found->count < ARRAY_LEN(found->rows)) {
            found->rows[found->count++] = collection_ref(coll);
            break;
        }
    }
    return true;
}

static ErrCode discard_one(OpCtx *op, CatalogService *service, Catalog *version,
                           CatalogUnfinished unfinished, Collection *old, Error *err) {
    Collection *coll = collection_clone(old);
    for (uint32_t i = coll->index_count; i-- > 0;) {
        if (!is_discarded(coll->indexes[i], unfinished))
            continue;
        LOG_INFO(LOG_INDEX, 7100202, "Discarding unfinished index build",
                 LOG_STR("namespace", coll->ns.text), LOG_STR("index", coll->indexes[i]->name));
        collection_remove_index(coll, i);
    }
    ErrCode rc;
    {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        rc = uow_begin(op, &uow, err);
        if (rc == ERR_OK)
            rc = durable_catalog_write(op, service, coll, /* is_new= */ false, err);
        if (rc == ERR_OK)
            rc = uow_commit(&uow, err);
    }
    if (rc == ERR_OK)
        catalog_version_put(version, coll);
    collection_unref(coll);
    return rc;
}

static ErrCode discard_unfinished(OpCtx *op, CatalogService *service, Catalog *version,
                                  CatalogUnfinished unfinished, Error *err) {
    /* In rounds of bounded size; each round removes what it found, so the loop ends. */
    for (;;) {
        Unfinished *found = NEW(Unfinished);
        found->what = unfinished;
        pmap_for_each_from(version->by_ns, "", 0, collect_unfinished, found);
        ErrCode rc = ERR_OK;
        size_t count = found->count;
        for (size_t i = 0; i < count; i++) {
            if (rc == ERR_OK)
                rc = discard_one(op, service, version, unfinished, found->rows[i], err);
            collection_unref(found->rows[i]);
        }
        xfree(found);
        if (rc != ERR_OK || count == 0)
            return rc;
    }
}

static int compare_idents(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool collect_referenced(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    Idents *referenced = arg;
    Collection *coll = value;
    referenced->rows = xrealloc(referenced->rows, (referenced->count + coll->index_count + 1) *
                                                      sizeof(*referenced->rows));
    referenced->rows[referenced->count++] = xstrdup(record_store_ident(coll->records));
    for (uint32_t i = 0; i < coll->index_count; i++)
        referenced->rows[referenced->count++] = xstrdup(coll->indexes[i]->ident);
    return true;
}

static bool is_own_table(const char *ident) {
    return strcmp(ident, DURABLE_CATALOG_IDENT) == 0 || strcmp(ident, "sizeStorer") == 0;
}

static bool is_unused(void *arg) {
    (void)arg;
    return true;
}
static void nothing(void *arg) {
    (void)arg;
}

static ErrCode drop_unreferenced(CatalogService *service, const Catalog *version,
                                 CatalogUnfinished unfinished, Error *err) {
    CLEANUP(idents_done) Idents tables = {0};
    CLEANUP(idents_done) Idents referenced = {0};
    TRY(storage_list_idents(service->engine, &tables.rows, &tables.count, err));
    pmap_for_each_from(version->by_ns, "", 0, collect_referenced, &referenced);
    if (referenced.count > 0)
        qsort(referenced.rows, referenced.count, sizeof(*referenced.rows), compare_idents);
    for (size_t i = 0; i < tables.count; i++) {
        const char *ident = tables.rows[i];
        bool is_referenced =
            referenced.count > 0 && bsearch(&ident, referenced.rows, referenced.count,
                                            sizeof(*referenced.rows), compare_idents) != NULL;
        bool is_of_build = strncmp(ident, "internal-", 9) == 0;
        if (is_referenced || is_own_table(ident) ||
            (is_of_build && unfinished == CATALOG_UNFINISHED_KEEP))
            continue;
        LOG_INFO(LOG_STORAGE, 22251, "Dropping unknown ident", LOG_STR("ident", ident));
        bool is_busy;
        TRY(storage_drop_table(service->engine, ident, &is_busy, err));
        if (is_busy) /* by WiredTiger's own threads: the monitor retries */
            storage_drop_later(service->engine, ident, is_unused, nothing, NULL);
    }
    return ERR_OK;
}

typedef struct ViewHomes {
    Collection **rows;
    size_t count;
    size_t capacity;
} ViewHomes;

static bool collect_view_homes(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    ViewHomes *homes = arg;
    Collection *coll = value;
    if (str_is(ns_coll(&coll->ns), "system.views")) {
        ARRAY_RESERVE(homes->rows, homes->count, homes->capacity);
        homes->rows[homes->count++] = coll;
    }
    return true;
}

typedef struct ViewLoading {
    const Collection *home;
    Catalog *version;
} ViewLoading;

static ErrCode load_view(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)rid, (void)is_over, (void)err;
    const ViewLoading *loading = arg;
    Doc definition = {(const uint8_t *)data.data};
    View *view = view_from_row(&loading->home->ns, doc_get_lit(definition, "_id"), definition);
    if (view->fault != NULL) /* not fatal: whoever wrote it must be able to repair it */
        LOG_WARN(LOG_STORAGE, 7100204, "View definition is not valid",
                 LOG_STR("namespace", loading->home->ns.text), LOG_STR("error", view->fault));
    catalog_version_put_view(loading->version, view);
    view_unref(view);
    return ERR_OK;
}

static ErrCode load_views(OpCtx *op, Catalog *version, Error *err) {
    ViewHomes homes = {0};
    pmap_for_each_from(version->by_ns, "", 0, collect_view_homes, &homes);
    ErrCode rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < homes.count; i++)
        rc = record_store_each(op, homes.rows[i]->records, /* is_forward= */ true, load_view,
                               &(ViewLoading){homes.rows[i], version}, err);
    xfree(homes.rows);
    return rc;
}

static void idents_done(Idents *idents) {
    for (size_t i = 0; i < idents->count; i++)
        xfree(idents->rows[i]);
    xfree(idents->rows);
}
