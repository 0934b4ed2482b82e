#include "catalog/access.h"

#include <string.h>

#include "catalog/catalog_internal.h"
#include "storage/global_lock.h"

static void choose_read_source(CollAccess *access);
static ErrCode open_consistent_read(CollAccess *access, Error *err);
static ErrCode take_write_locks(CollAccess *access, Error *err);
static void release_locks(CollAccess *access);

void catalog_set_access_policy(CatalogService *service, const AccessPolicy *policy) {
    service->policy = *policy;
}

ErrCode access_read(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) {
    *ret_access = (CollAccess){.ns = *ns};
    TRY(op_lock_global(op, LOCK_IS, err));
    ret_access->op = op;
    ErrCode rc = open_consistent_read(ret_access, err);
    if (rc != ERR_OK)
        access_done(ret_access);
    return rc;
}

ErrCode access_write(OpCtx *op, const Ns *ns, LockMode mode, CollAccess *ret_access, Error *err) {
    *ret_access = (CollAccess){
        .ns = *ns, .is_write = true, .db_mode = LOCK_IX, .coll_mode = mode, .is_coll_locked = true};
    TRY(op_lock_global(op, LOCK_IX, err));
    ret_access->op = op;
    ErrCode rc = take_write_locks(ret_access, err);
    if (rc != ERR_OK) {
        ret_access->op = NULL;
        op_unlock_global(op);
    }
    return rc;
}

ErrCode access_database(OpCtx *op, Str db, CollAccess *ret_access, Error *err) {
    *ret_access = (CollAccess){.is_write = true, .db_mode = LOCK_X};
    memcpy(ret_access->ns.text, db.data, db.size);
    ret_access->ns.size = ret_access->ns.db_size = (uint16_t)db.size;
    TRY(op_lock_global(op, LOCK_IX, err));
    ret_access->op = op;
    ErrCode rc = take_write_locks(ret_access, err);
    if (rc != ERR_OK) {
        ret_access->op = NULL;
        op_unlock_global(op);
    }
    return rc;
}

ErrCode access_each(OpCtx *op, const Ns *ns, bool is_forward, AccessVisit visit, void *arg,
                    Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, access.coll->records, is_forward, &cursor, err));
    for (bool is_over = false; !is_over;) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            break;
        TRY(visit(arg, (Doc){(const uint8_t *)data.data}, &is_over, err));
    }
    return ERR_OK;
}

void access_done(CollAccess *access) {
    OpCtx *op = access->op;
    if (op == NULL)
        return;
    access->op = NULL;
    if (access->is_write)
        release_locks(
            &(CollAccess){.op = op, .ns = access->ns, .is_coll_locked = access->is_coll_locked});
    op_unlock_global(op);
    if (access->is_source_chosen && ru_snapshot_id(op->ru) == 0)
        ru_set_read_source(op->ru, READ_LATEST, 0);
    catalog_release(access->catalog);
    access->catalog = NULL;
    access->coll = NULL;
}

ErrCode access_yield(CollAccess *access, Error *err) {
    OpCtx *op = access->op;
    bool had_coll = access->coll != NULL;
    Uuid uuid = had_coll ? access->coll->uuid : (Uuid){{0}};
    op->metrics.yields++;
    TRY(op_check_interrupt_slow(op, err));

    if (access->is_write)
        release_locks(access);
    op_unlock_global(op);
    Catalog *old = access->catalog;
    access->catalog = NULL;
    access->coll = NULL;
    ErrCode rc = op_lock_global(op, access->is_write ? LOCK_IX : LOCK_IS, err);
    if (rc != ERR_OK) {
        access->op = NULL;
        catalog_release(old);
        return rc;
    }
    rc = access->is_write ? take_write_locks(access, err) : open_consistent_read(access, err);
    if (rc != ERR_OK) {
        access->op = NULL;
        op_unlock_global(op);
        catalog_release(access->catalog);
        access->catalog = NULL;
        catalog_release(old);
        return rc;
    }
    /* The old version is released last: plans borrow the collection and its indexes from it until
     * they have been restored against the new one. */
    bool is_same = access->coll != NULL && had_coll && uuid_equal(&access->coll->uuid, &uuid);
    catalog_release(old);
    if (had_coll && !is_same)
        return error_set(err, ERR_QUERY_PLAN_KILLED, "collection dropped or renamed: '%s'",
                         access->ns.text);
    return ERR_OK;
}

static void choose_read_source(CollAccess *access) {
    OpCtx *op = access->op;
    const AccessPolicy *policy = &op_catalog(op)->policy;
    if (policy->read_source == NULL || op->is_unreplicated ||
        (ru_read_source(op->ru) != READ_LATEST && !access->is_source_chosen))
        return;
    ReadSource source = ns_is_replicated(&access->ns)
                            ? policy->read_source(policy->arg, op, &access->ns)
                            : READ_LATEST;
    access->is_source_chosen = true;
    ru_set_read_source(op->ru, source, 0);
}

/* A version and a snapshot that belong together: no version was published while the snapshot
 * opened. */
static ErrCode open_consistent_read(CollAccess *access, Error *err) {
    OpCtx *op = access->op;
    CatalogService *service = op_catalog(op);
    bool has_snapshot =
        ru_snapshot_id(op->ru) != 0; /* nested inside a read that has both already */
    for (;;) {
        Catalog *before = catalog_acquire(service);
        if (!has_snapshot)
            choose_read_source(access);
        ErrCode rc = ru_open_snapshot(op->ru, err);
        if (rc != ERR_OK) {
            catalog_release(before);
            return rc;
        }
        Catalog *after = catalog_acquire(service);
        bool is_same = before == after;
        catalog_release(before);
        if (is_same || has_snapshot) {
            access->catalog = after;
            break;
        }
        catalog_release(after);
        ru_abandon_snapshot(op->ru);
    }
    TRY(catalog_find_in_snapshot(op, access->catalog, &access->ns, &access->coll, err));
    access->view = access->coll == NULL ? catalog_find_view(access->catalog, &access->ns) : NULL;
    return ERR_OK;
}

/* Also where only the database is named. */
static bool is_replicated(const CollAccess *access) {
    return access->is_coll_locked ? ns_is_replicated(&access->ns)
                                  : !str_is(ns_db(&access->ns), "local");
}

static ErrCode take_write_locks(CollAccess *access, Error *err) {
    OpCtx *op = access->op;
    TRY(lock_acquire(op, RESOURCE_ID_RSTL, LOCK_IX, LOCK_DEFAULT, INT64_MAX, err));
    const AccessPolicy *policy = &op_catalog(op)->policy;
    ErrCode rc = ERR_OK;
    if (policy->check_write != NULL && !op->is_unreplicated && is_replicated(access))
        rc = policy->check_write(policy->arg, op, &access->ns, err);
    if (rc == ERR_OK)
        rc = lock_acquire(op, db_resource(ns_db(&access->ns)), access->db_mode, LOCK_DEFAULT,
                          INT64_MAX, err);
    if (rc != ERR_OK) {
        lock_release(op, RESOURCE_ID_RSTL);
        return rc;
    }
    if (access->is_coll_locked) {
        rc = lock_acquire(op, ns_resource(&access->ns), access->coll_mode, LOCK_DEFAULT, INT64_MAX,
                          err);
        if (rc != ERR_OK) {
            lock_release(op, db_resource(ns_db(&access->ns)));
            lock_release(op, RESOURCE_ID_RSTL);
            return rc;
        }
    }
    access->catalog = catalog_acquire(op_catalog(op));
    if (access->is_coll_locked) {
        access->coll = catalog_find(access->catalog, &access->ns);
        access->view =
            access->coll == NULL ? catalog_find_view(access->catalog, &access->ns) : NULL;
    }
    return ERR_OK;
}

static void release_locks(CollAccess *access) {
    OpCtx *op = access->op;
    if (access->is_coll_locked)
        lock_release(op, ns_resource(&access->ns));
    lock_release(op, db_resource(ns_db(&access->ns)));
    lock_release(op, RESOURCE_ID_RSTL);
}
