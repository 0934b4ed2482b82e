#include "catalog/access.h"

#include <string.h>

#include "base/alloc.h"
#include "catalog/access_policy.h"
#include "catalog/catalog_internal.h"
#include "concurrency/op_failpoint.h"
#include "storage/global_lock.h"

static void choose_read_source(CollAccess *access);
static ErrCode open_consistent_read(CollAccess *access, Error *err);
static ErrCode open_snapshot(OpCtx *op, CollAccess *access, Catalog **ret_catalog, Error *err);
static ErrCode open_read_in_txn(CollAccess *access, Error *err);
static ErrCode find_in_txn(OpCtx *op, const Ns *ns, const Collection **ret_coll, Error *err);
static ErrCode check_unchanged_in_txn(const CollAccess *access, Error *err);
static ErrCode take_write_locks(CollAccess *access, Error *err);
static void release_locks(CollAccess *access);
static ErrCode attach(CollAccess *access, Error *err);
static ErrCode restore(CollAccess *access, Error *err);
static void release_filters(CollAccess *access);

/* ---- which collection ---- */

void access_expect(OpCtx *op, const Ns *ns, const Uuid *uuid) {
    ExpectedCollection *expected = ARENA_NEW(&op->arena, ExpectedCollection);
    *expected = (ExpectedCollection){*ns, *uuid, op->expected};
    op->expected = expected;
}

static ErrCode refuse_other(OpCtx *op, const Catalog *catalog, const ExpectedCollection *expected,
                            Error *err) {
    (void)error_set(err, ERR_COLLECTION_UUID_MISMATCH,
                    "Collection UUID does not match that specified");
    const Collection *meant = catalog_find_uuid(catalog, &expected->uuid);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "db", ns_db(&expected->ns));
    build_uuid(&b, "collectionUUID", &expected->uuid);
    build_str(&b, "expectedCollection", ns_coll(&expected->ns));
    if (meant != NULL && str_equal(ns_db(&meant->ns), ns_db(&expected->ns)))
        build_str(&b, "actualCollection", ns_coll(&meant->ns));
    else
        build_null(&b, "actualCollection");
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

ErrCode access_check_expected(OpCtx *op, const Catalog *catalog, const Ns *ns,
                              const Collection *coll, Error *err) {
    for (const ExpectedCollection *expected = op->expected; UNLIKELY(expected != NULL);
         expected = expected->next)
        if (ns_equal(&expected->ns, ns) &&
            (coll == NULL || !uuid_equal(&coll->uuid, &expected->uuid)))
            return refuse_other(op, catalog, expected, err);
    return ERR_OK;
}

static ErrCode check_expected(const CollAccess *access, Error *err) {
    return access_check_expected(access->op, access->catalog, &access->ns, access->coll, err);
}

ErrCode access_read(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) {
    *ret_access = (CollAccess){.ns = *ns};
    TRY(op_lock_global(op, LOCK_IS, err));
    ret_access->op = op;
    ErrCode rc = op->txn_catalog == NULL ? open_consistent_read(ret_access, err)
                                         : open_read_in_txn(ret_access, err);
    if (rc == ERR_OK)
        rc = check_expected(ret_access, err);
    if (rc != ERR_OK)
        access_done(ret_access);
    return rc;
}

static ErrCode begin_write(OpCtx *op, CollAccess *access, Error *err) {
    TRY(op_lock_global(op, LOCK_IX, err));
    access->op = op;
    ErrCode rc = take_write_locks(access, err);
    if (rc != ERR_OK) {
        access->op = NULL;
        op_unlock_global(op);
        return rc;
    }
    rc = check_expected(access, err);
    if (rc != ERR_OK)
        access_done(access);
    return rc;
}

ErrCode access_write(OpCtx *op, const Ns *ns, LockMode mode, CollAccess *ret_access, Error *err) {
    *ret_access = (CollAccess){
        .ns = *ns, .is_write = true, .db_mode = LOCK_IX, .coll_mode = mode, .is_coll_locked = true};
    return begin_write(op, ret_access, err);
}

ErrCode access_create(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) {
    *ret_access = (CollAccess){.ns = *ns,
                               .is_write = true,
                               .db_mode = LOCK_IX,
                               .coll_mode = LOCK_IX,
                               .is_coll_locked = true,
                               .is_creating = true};
    TRY(begin_write(op, ret_access, err));
    return attach(ret_access, err);
}

ErrCode access_read_owned(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) {
    TRY(access_read(op, ns, ret_access, err));
    return attach(ret_access, err);
}

ErrCode access_write_owned(OpCtx *op, const Ns *ns, LockMode mode, CollAccess *ret_access,
                           Error *err) {
    TRY(access_write(op, ns, mode, ret_access, err));
    return attach(ret_access, err);
}

ErrCode access_database(OpCtx *op, Str db, CollAccess *ret_access, Error *err) {
    *ret_access = (CollAccess){.is_write = true, .db_mode = LOCK_X};
    memcpy(ret_access->ns.text, db.data, db.size);
    ret_access->ns.size = ret_access->ns.db_size = (uint16_t)db.size;
    return begin_write(op, ret_access, err);
}

typedef struct DocVisit {
    AccessVisit visit;
    void *arg;
} DocVisit;

static ErrCode visit_doc(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)rid;
    DocVisit *visit = arg;
    return visit->visit(visit->arg, (Doc){(const uint8_t *)data.data}, is_over, err);
}

ErrCode access_each(OpCtx *op, const Ns *ns, bool is_forward, AccessVisit visit, void *arg,
                    Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    return record_store_each(op, access.coll->records, is_forward, visit_doc,
                             &(DocVisit){visit, arg}, err);
}

void access_done(CollAccess *access) {
    access_suspend(access);
    if (UNLIKELY(access->is_held))
        release_filters(access);
}

void access_suspend(CollAccess *access) {
    OpCtx *op = access->op;
    if (op == NULL)
        return;
    if (access->is_write)
        release_locks(access);
    access->op = NULL;
    op_unlock_global(op);
    if (access->is_source_chosen && ru_snapshot_id(op->ru) == 0)
        ru_set_read_source(op->ru, READ_LATEST, 0);
    catalog_release(access->catalog);
    access->catalog = NULL;
    access->coll = NULL;
}

/* Not a yield: the operation that continues is a different one, on another thread. The filters are
 * kept from the first batch (rule 10 of the README). */
ErrCode access_resume(OpCtx *op, CollAccess *access, Error *err) {
    CollAccess resumed;
    TRY(access_read(op, &access->ns, &resumed, err));
    resumed.is_owned = access->is_owned;
    resumed.is_held = access->is_held;
    resumed.is_filtered = access->is_filtered;
    memcpy(resumed.filters, access->filters, sizeof(resumed.filters));
    *access = resumed;
    ErrCode rc = restore(access, err);
    if (rc != ERR_OK)
        access_suspend(access);
    return rc;
}

ErrCode access_yield(CollAccess *access, Error *err) {
    OpCtx *op = access->op;
    /* Compared by UUID afterwards: a collection dropped and re-created meanwhile has the same
     * name. */
    bool had_coll = access->coll != NULL;
    Uuid uuid = had_coll ? access->coll->uuid : (Uuid){{0}};
    /* Checked before anything is released: an interrupted operation must not wait for a ticket
     * first. */
    TRY(op_check_interrupt_slow(op, err));
    if (op->txn_catalog != NULL) /* its statements see one snapshot and keep their locks */
        return ERR_OK;
    op->metrics.yields++;

    if (access->is_write)
        release_locks(access);
    op_unlock_global(op);
    Catalog *old = access->catalog;
    access->catalog = NULL;
    access->coll = NULL;
    ErrCode rc = op_hang(op, FP_YIELD_HANG, access->ns.text, err);
    if (rc == ERR_OK)
        rc = op_lock_global(op, access->is_write ? LOCK_IX : LOCK_IS, err);
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
    return restore(access, err);
}

/* ---- policies ---- */

static ErrCode attach(CollAccess *access, Error *err) {
    access->is_owned = true;
    const AccessPolicies *policies = &op_catalog(access->op)->policies;
    if (LIKELY(!policies->is_asked))
        return ERR_OK;
    ErrCode rc = policies_attach(policies, access, err);
    if (rc != ERR_OK)
        access_done(access);
    return rc;
}

static ErrCode restore(CollAccess *access, Error *err) {
    const AccessPolicies *policies = &op_catalog(access->op)->policies;
    return LIKELY(!policies->is_asked || !access->is_owned)
               ? ERR_OK
               : policies_restore(policies, access, err);
}

static void release_filters(CollAccess *access) {
    access->is_held = access->is_filtered = false;
    for (uint32_t i = 0; i < ACCESS_POLICIES_MAX; i++)
        ownership_unref(TAKE_PTR(access->filters[i]));
}

/* ---- snapshots and locks ---- */

static void choose_read_source(CollAccess *access) {
    OpCtx *op = access->op;
    const AccessPolicies *policies = &op_catalog(op)->policies;
    /* A source set by the caller (a read concern) wins; one chosen here is chosen again after a
     * yield. */
    if (policies->count == 0 || op->mode.is_unreplicated ||
        (ru_read_source(op->ru) != READ_LATEST && !access->is_source_chosen))
        return;
    ReadSource source = ns_is_replicated(&access->ns)
                            ? policies_read_source(policies, op, &access->ns)
                            : READ_LATEST;
    access->is_source_chosen = true;
    ru_set_read_source(op->ru, source, 0);
}

/* A catalog version and a consistent snapshot: no version was published while the snapshot was
 * opened. Retried otherwise; DDL is rare enough that the loop ends. This is what lets reads do
 * without collection locks. `access` NULL: the read source is chosen already. */
static ErrCode open_snapshot(OpCtx *op, CollAccess *access, Catalog **ret_catalog, Error *err) {
    CatalogService *service = op_catalog(op);
    bool has_snapshot =
        ru_snapshot_id(op->ru) != 0; /* nested inside a read that already has both */
    for (;;) {
        Catalog *before = catalog_acquire(service);
        if (!has_snapshot && access != NULL)
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
            *ret_catalog = after;
            return ERR_OK;
        }
        catalog_release(after);
        ru_abandon_snapshot(op->ru);
    }
}

/* Only where there is no collection of that name. What is not made for a client, as when entries of
 * the oplog are applied, goes on whatever system.views holds. */
static ErrCode find_view(CollAccess *access, Error *err) {
    access->view = NULL;
    if (LIKELY(access->coll != NULL))
        return ERR_OK;
    access->view = catalog_find_view(access->catalog, &access->ns);
    if (access->view != NULL || access->op->mode.is_applying || ns_is_system(&access->ns))
        return ERR_OK;
    return catalog_check_views(access->catalog, ns_db(&access->ns), err);
}

static ErrCode open_consistent_read(CollAccess *access, Error *err) {
    TRY(open_snapshot(access->op, access, &access->catalog, err));
    /* A change may be pending in this very version, or the read may be in the past. */
    TRY(catalog_find_in_snapshot(access->op, access->catalog, &access->ns, &access->coll, err));
    return find_view(access, err);
}

/* Also decides for accesses that lock only a database. */
static bool is_replicated(const CollAccess *access) {
    return access->is_coll_locked ? ns_is_replicated(&access->ns)
                                  : !str_is(ns_db(&access->ns), "local");
}

static ErrCode take_write_locks(CollAccess *access, Error *err) {
    OpCtx *op = access->op;
    /* Before the policy is consulted: with the RSTL held the node cannot step down, so "may write"
     * remains true until the lock is released. */
    TRY(lock_acquire(op, RESOURCE_ID_RSTL, LOCK_IX, LOCK_DEFAULT, INT64_MAX, err));
    const AccessPolicies *policies = &op_catalog(op)->policies;
    ErrCode rc = ERR_OK;
    if (policies->count > 0 && !op->mode.is_unreplicated && is_replicated(access))
        rc = policies_check_write(policies, op, &access->ns, err);
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
    /* Only with the collection locked: before it, the version could change under us. */
    access->catalog = catalog_acquire(op_catalog(op));
    if (!access->is_coll_locked)
        return ERR_OK;
    access->coll = catalog_find_staged(op, access->catalog, &access->ns);
    rc = find_view(access, err);
    if (LIKELY(rc == ERR_OK && op->txn_catalog == NULL))
        return ERR_OK;
    if (rc == ERR_OK)
        rc = access->is_creating ? find_in_txn(op, &access->ns, &access->coll, err)
                                 : check_unchanged_in_txn(access, err);
    if (rc != ERR_OK) {
        catalog_release(TAKE_PTR(access->catalog));
        access->coll = NULL;
        release_locks(access);
    }
    return rc;
}

/* ---- transactions ---- */

static ErrCode open_txn_locked(OpCtx *op, Catalog **ret_catalog, Error *err) {
    const AccessPolicies *policies = &op_catalog(op)->policies;
    static const Ns ANY = {.size = 10, .db_size = 5, .text = "admin.$cmd"};
    if (policies->count > 0 && !op->mode.is_unreplicated)
        TRY(policies_check_write(policies, op, &ANY, err));
    return open_snapshot(op, NULL, ret_catalog, err);
}

ErrCode access_open_txn(OpCtx *op, Catalog **ret_catalog, Error *err) {
    TRY(op_lock_global(op, LOCK_IX, err));
    ErrCode rc = lock_acquire(op, RESOURCE_ID_RSTL, LOCK_IX, LOCK_DEFAULT, INT64_MAX, err);
    if (rc == ERR_OK) {
        rc = open_txn_locked(op, ret_catalog, err);
        if (rc != ERR_OK)
            lock_release(op, RESOURCE_ID_RSTL);
    }
    if (rc != ERR_OK)
        op_unlock_global(op);
    return rc;
}

static ErrCode find_in_txn(OpCtx *op, const Ns *ns, const Collection **ret_coll, Error *err) {
    *ret_coll = catalog_stage_find(op, ns);
    return *ret_coll != NULL ? ERR_OK
                             : catalog_find_in_snapshot(op, op->txn_catalog, ns, ret_coll, err);
}

/* The locks are kept to the end of the transaction, so that no one drops what it has read. */
static ErrCode open_read_in_txn(CollAccess *access, Error *err) {
    OpCtx *op = access->op;
    ResourceId db = db_resource(ns_db(&access->ns));
    TRY(lock_acquire(op, db, LOCK_IS, LOCK_DEFAULT, INT64_MAX, err));
    lock_release(op, db); /* deferred */
    ResourceId coll = ns_resource(&access->ns);
    TRY(lock_acquire(op, coll, LOCK_IS, LOCK_DEFAULT, INT64_MAX, err));
    lock_release(op, coll);
    access->catalog = catalog_ref(op->txn_catalog);
    TRY(find_in_txn(op, &access->ns, &access->coll, err));
    return find_view(access, err);
}

/* A collection that was created, dropped or changed after the snapshot cannot be written in it:
 * keys of a new index would be missing, or documents be judged by an old rule. */
static ErrCode check_unchanged_in_txn(const CollAccess *access, Error *err) {
    const Collection *then;
    TRY(find_in_txn(access->op, &access->ns, &then, err));
    if (LIKELY(then == access->coll))
        return ERR_OK;
    return error_set(err, ERR_WRITE_CONFLICT,
                     "collection '%s' has changed since the transaction began; please retry the "
                     "transaction",
                     access->ns.text);
}

static void release_locks(CollAccess *access) {
    OpCtx *op = access->op;
    if (access->is_coll_locked)
        lock_release(op, ns_resource(&access->ns));
    lock_release(op, db_resource(ns_db(&access->ns)));
    lock_release(op, RESOURCE_ID_RSTL);
}
