/*
 * access.h - acquiring a collection for reading or writing.
 *
 * Reads take no collection lock (STX-4): they take the global lock in IS, a catalog version and a
 * storage snapshot that are consistent with each other, and keep both. Writes lock the collection
 * (or more) and use the newest version.
 *
 * Inside of a transaction all statements share its snapshot and the catalog version that belongs to
 * it. Reads lock their collections, too, all locks are kept to its end, and nothing yields.
 *
 * An access is plain or owned. A plain one sees all documents: for internal work, and for commands
 * that read no documents. An owned one is for users: the policies are consulted (access_policy.h),
 * may refuse it, and supply filters that define which documents the node owns. A plan over it
 * applies them by itself; code that reads records without a plan calls access_owns.
 *
 * Ownership: a CollAccess lives on the caller's stack, released by access_done. Threading: it
 * belongs to its operation.
 */
#pragma once

#include "base/error.h"
#include "catalog/catalog.h"
#include "catalog/ownership.h"
#include "concurrency/lock_manager.h"
#include "concurrency/op_ctx.h"
#include "storage/recovery_unit.h"

enum {
    ACCESS_POLICIES_MAX = 4,
};

typedef struct CollAccess {
    OpCtx *op; /* NULL: nothing held, or only filters (access_suspend) */
    Catalog *catalog;
    const Collection *coll; /* NULL: there is no such collection */
    const View *view;       /* set when the name is a view */
    Ns ns;
    bool is_write;
    LockMode db_mode;
    LockMode coll_mode;
    bool is_coll_locked;
    bool is_creating;      /* see access_create */
    bool is_source_chosen; /* the read source was chosen by a policy and is reset at the end */
    bool is_owned;         /* the policies are consulted, now and after each yield */
    bool is_held;          /* there are filters, perhaps of a node that owns everything */
    bool is_filtered;      /* some of them are not */
    OwnershipFilter *filters[ACCESS_POLICIES_MAX]; /* of the policy of that row; NULL: none */
} CollAccess;

/* Lock-free read access. */
ErrCode access_read(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) MUST_CHECK;
/* Write access: global, RSTL and database in intent mode, the collection in `mode`: IX, X, or S by
 * who only waits until writers have ended. */
ErrCode access_write(OpCtx *op, const Ns *ns, LockMode mode, CollAccess *ret_access, Error *err)
    MUST_CHECK;
/* For creating it: in IX, since a transaction may hold the lock for long; the commit finds out
 * whose is the first (catalog_stage.c). What others have created since a transaction's snapshot is
 * not looked at. The policies are consulted: whether it may be made here. */
ErrCode access_create(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) MUST_CHECK;
/* The whole database in X; no collection. */
ErrCode access_database(OpCtx *op, Str db, CollAccess *ret_access, Error *err) MUST_CHECK;
/* The same for users. Both fail with the error of a policy, for example StaleConfig. */
ErrCode access_read_owned(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) MUST_CHECK;
ErrCode access_write_owned(OpCtx *op, const Ns *ns, LockMode mode, CollAccess *ret_access,
                           Error *err) MUST_CHECK;
void access_done(CollAccess *access);

/* Opens the snapshot of a transaction, by the read source that is set, and returns the catalog
 * version that belongs to it. Takes the global lock and the RSTL in IX, and fails if the node must
 * not write; after a failure neither is held. */
ErrCode access_open_txn(OpCtx *op, Catalog **ret_catalog, Error *err) MUST_CHECK;

/* Whether the node owns the document; always true without filters. */
static inline bool access_owns(const CollAccess *access, Doc doc) {
    if (LIKELY(!access->is_filtered))
        return true;
    for (uint32_t i = 0; i < ACCESS_POLICIES_MAX; i++) {
        const OwnershipFilter *filter = access->filters[i];
        if (filter != NULL && !filter->owns(filter, doc))
            return false;
    }
    return true;
}

/* A read between the batches of its cursor: holds its filters and nothing else, and resumes with
 * them under a new snapshot, if the policies agree. A failure leaves it suspended. */
void access_suspend(CollAccess *access);
ErrCode access_resume(OpCtx *op, CollAccess *access, Error *err) MUST_CHECK;

/* A client says by its UUID which collection it means: if the name has become another one's, or
 * nobody's, opening it fails with ERR_COLLECTION_UUID_MISMATCH, whose extra tells the name that the
 * collection has now. */
typedef struct ExpectedCollection {
    Ns ns;
    Uuid uuid;
    const struct ExpectedCollection *next;
} ExpectedCollection;
/* For this operation, until its end; more than one namespace may have such a claim. */
void access_expect(OpCtx *op, const Ns *ns, const Uuid *uuid);
/* The same for who looks a collection up without opening it; `coll` NULL: there is none. */
ErrCode access_check_expected(OpCtx *op, const Catalog *catalog, const Ns *ns,
                              const Collection *coll, Error *err) MUST_CHECK;

/* All documents of a small internal collection, in record order; none if there is no such
 * collection. `visit` sets *is_over to stop; documents are valid during the call. */
typedef ErrCode (*AccessVisit)(void *arg, Doc doc, bool *is_over, Error *err);
ErrCode access_each(OpCtx *op, const Ns *ns, bool is_forward, AccessVisit visit, void *arg,
                    Error *err) MUST_CHECK;

/* Releases everything briefly so that others can proceed, then re-acquires it with a new snapshot.
 * Cursors must be saved before and restored after. Fails with ERR_QUERY_PLAN_KILLED when the
 * collection was dropped or re-created meanwhile, and with the error of a policy. */
ErrCode access_yield(CollAccess *access, Error *err) MUST_CHECK;
