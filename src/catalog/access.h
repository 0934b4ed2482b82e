/*
 * access.h - getting hold of a collection for reading or writing.
 *
 * Reads take no collection lock (STX-4): they take the global lock in IS, a catalog version and a
 * storage snapshot that belong together, and keep both. Writes lock the collection (or more) and
 * use the newest version.
 */
#pragma once

#include "base/error.h"
#include "catalog/catalog.h"
#include "concurrency/lock_manager.h"
#include "concurrency/op_ctx.h"
#include "storage/recovery_unit.h"

typedef struct CollAccess {
    OpCtx *op; /* NULL: nothing held */
    Catalog *catalog;
    const Collection *coll; /* NULL: there is no such collection */
    const View *view;       /* set when the name is a view */
    Ns ns;
    bool is_write;
    LockMode db_mode;
    LockMode coll_mode;
    bool is_coll_locked;
    bool is_source_chosen; /* the read source is the policy's, to be taken back */
} CollAccess;

/* What the node's place in a replica set allows. A standalone node has none. */
typedef struct AccessPolicy {
    void *arg;
    /* Asked for each write access to something replicated, with the RSTL held: the answer holds as
     * long as the access does. Not for operations with `is_unreplicated`. */
    ErrCode (*check_write)(void *arg, OpCtx *op, const Ns *ns, Error *err);
    /* Where a read begins that has no wish of its own (READ_LATEST). */
    ReadSource (*read_source)(void *arg, OpCtx *op, const Ns *ns);
} AccessPolicy;
/* Before any access; constant afterwards. */
void catalog_set_access_policy(CatalogService *service, const AccessPolicy *policy);

/* Lock-free read access. */
ErrCode access_read(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) MUST_CHECK;
/* Write access: global, RSTL and database in intent mode, the collection in `mode` (IX or X). */
ErrCode access_write(OpCtx *op, const Ns *ns, LockMode mode, CollAccess *ret_access, Error *err)
    MUST_CHECK;
/* The whole database in X; no collection. */
ErrCode access_database(OpCtx *op, Str db, CollAccess *ret_access, Error *err) MUST_CHECK;
void access_done(CollAccess *access);

/* All documents of a small collection of the node's own, in the order of their records; none if
 * there is no such collection. `visit` sets *is_over when it has seen enough; documents are valid
 * during the call. */
typedef ErrCode (*AccessVisit)(void *arg, Doc doc, bool *is_over, Error *err);
ErrCode access_each(OpCtx *op, const Ns *ns, bool is_forward, AccessVisit visit, void *arg,
                    Error *err) MUST_CHECK;

/* Gives everything up for a moment so that others get through, then takes it again with a new
 * snapshot. Cursors must be saved before and restored after. Fails with ERR_QUERY_PLAN_KILLED when
 * the collection was dropped or changed its identity meanwhile. */
ErrCode access_yield(CollAccess *access, Error *err) MUST_CHECK;
