/*
 * ddl.h - creates, drops and changes collections, views and indexes on this node (CAT-5, CAT-7).
 *
 * Each function is one operation: it acquires its locks, stages catalog changes in one unit of work
 * and retries conflicts. Observers (replication) are notified inside the same unit of work.
 *
 * Threading: any thread with an operation that holds no lock.
 * Crash:     tables are created before, and dropped after, the one commit that decides; what a
 *            crash leaves behind is found by catalog/reconcile.c.
 */
#pragma once

#include "base/error.h"
#include "catalog/access.h"
#include "request/catalog_requests.h"

/* Fails with ERR_NAMESPACE_EXISTS, unless the collection exists with the same options. `options` is
 * checked by the catalog, and may have `idIndex`, whose version counts; `uuid` may be NULL. */
ErrCode ddl_create_collection(OpCtx *op, const Ns *ns, Doc options, const Uuid *uuid, Error *err)
    MUST_CHECK;
/* Creates the collection if it does not exist: for writes to new names. Fails for views. */
ErrCode ddl_ensure_collection(OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;
/* The same for one of the node's own, clustered by _id. Fails with ERR_NAMESPACE_EXISTS if another
 * operation creates it at the same time with other options. */
ErrCode ddl_ensure_clustered(OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;
ErrCode ddl_create_view(OpCtx *op, const Ns *ns, Str view_on, Doc pipeline, Elem collation,
                        Error *err) MUST_CHECK;
/* Writes the row of system.views (`home`) with this _id as it is given, be it a view or not;
 * DOC_NONE removes it. `is_only_replaced`: does nothing unless there is one. */
ErrCode ddl_write_view_row(OpCtx *op, const Ns *home, Elem id, Doc row, bool is_only_replaced,
                           bool *ret_was_there, Error *err) MUST_CHECK;

typedef struct DropResult {
    bool was_found;
    bool was_view;
    uint32_t index_count;
    Uuid uuid; /* of a collection */
} DropResult;
ErrCode ddl_drop(OpCtx *op, const Ns *ns, const Uuid *expected_uuid, DropResult *ret_result,
                 Error *err) MUST_CHECK;
/* All collections and views of the database; *ret_existed is false when there was none. */
ErrCode ddl_drop_database(OpCtx *op, Str db, bool *ret_existed, Error *err) MUST_CHECK;

/* Called with both names locked, before anything changes: a failure keeps the target as it is.
 * `target` is NULL when there is none. */
typedef struct RenameCheck {
    ErrCode (*check)(void *arg, const Collection *target, Error *err); /* NULL: nothing to ask */
    void *arg;
} RenameCheck;
ErrCode ddl_rename(OpCtx *op, const Ns *from, const Ns *to, bool is_drop_target, Error *err)
    MUST_CHECK;
/* A temporary collection stays one: it is dropped by the next primary. */
ErrCode ddl_rename_as_temp(OpCtx *op, const Ns *from, const Ns *to, bool is_drop_target, Error *err)
    MUST_CHECK;
ErrCode ddl_rename_if(OpCtx *op, const Ns *from, const Ns *to, RenameCheck check, Error *err)
    MUST_CHECK; /* drops the target */
/* An unused name for an intermediate collection: "tmp<random>.<suffix>". */
ErrCode ddl_temp_ns(OpCtx *op, Str db, const char *suffix, Ns *ret_ns, Error *err) MUST_CHECK;
/* Drops collections marked as temporary, left over from such operations by a crash. For a primary
 * that begins its term, before any other write. */
ErrCode ddl_drop_temporary(OpCtx *op, Error *err) MUST_CHECK;
/* Copies the newest documents that fit into a capped collection of that size, which then replaces
 * it. */
ErrCode ddl_convert_to_capped(OpCtx *op, const Ns *ns, int64_t size, Error *err) MUST_CHECK;
/* The same, under a new name beside it. */
ErrCode ddl_clone_as_capped(OpCtx *op, const Ns *from, const Ns *to, int64_t size, bool is_temp,
                            Error *err) MUST_CHECK;

typedef struct CollModResult {
    bool has_hidden_change;
    bool hidden_old;
    bool hidden_new;
    bool has_expire_change;
    int64_t expire_old; /* -1: it did not expire */
    int64_t expire_new;
    bool has_prepare_unique_change;
    bool prepare_unique_old;
    bool prepare_unique_new;
    bool is_made_unique;
} CollModResult;
/* Fails with ERR_CANNOT_CONVERT_INDEX_TO_UNIQUE and {violations: [{ids: [...]}, ...]} when an index
 * to be made unique has duplicates. */
ErrCode ddl_coll_mod(OpCtx *op, const Ns *ns, const CollModChange *change,
                     CollModResult *ret_result, Error *err) MUST_CHECK;

typedef struct CreateIndexesResult {
    uint32_t count_before;
    uint32_t count_after;
    bool created_collection;
} CreateIndexesResult;
/* `specs` as given by the user. */
ErrCode ddl_create_indexes(OpCtx *op, const Ns *ns, const Doc *specs, uint32_t count,
                           CreateIndexesResult *ret_result, Error *err) MUST_CHECK;

/* The same with a validated commit quorum; missing: the default. */
ErrCode ddl_create_indexes_by(OpCtx *op, const Ns *ns, const Doc *specs, uint32_t count,
                              Elem commit_quorum, CreateIndexesResult *ret_result, Error *err)
    MUST_CHECK;
/* For oplog entries: starts a build of those indexes that are missing, without waiting. */
ErrCode ddl_start_index_build_of(OpCtx *op, const Ns *ns, const Uuid *uuid, const Doc *specs,
                                 uint32_t count, Error *err) MUST_CHECK;
/* Delivers the decision of the primary to that build, and waits for its end. Whatever remains
 * unfinished then is removed, even if it should have been committed. */
ErrCode ddl_end_index_build(OpCtx *op, const Ns *ns, const Uuid *uuid, bool is_commit, Error *err)
    MUST_CHECK;

/* At start, before any write is possible: index builds that the last process left unfinished are
 * reconstructed and continue in the background, after a clean shutdown where they were, otherwise
 * from the beginning. Their obsolete files and tables are removed. Without index_builds_is_resuming
 * there are none: the catalog has discarded them. */
ErrCode ddl_recover_index_builds(OpCtx *op, Error *err) MUST_CHECK;
/* After a rollback, on the current catalog: the unfinished builds, from where index_builds_halt
 * saved them, otherwise from the beginning. */
ErrCode ddl_restart_index_builds(OpCtx *op, Error *err) MUST_CHECK;

/* `which` is "*", a name, an array of names, or a key pattern. */
ErrCode ddl_drop_indexes(OpCtx *op, const Ns *ns, Elem which, uint32_t *ret_count_before,
                         Error *err) MUST_CHECK;
/* Which indexes that would be: selected[i] for each of the collection's, COLLECTION_INDEXES_MAX,
 * false at first. */
ErrCode ddl_select_indexes(const Collection *coll, Elem which, bool *selected, Error *err)
    MUST_CHECK;
/* "*", alone or in a list of one: all but that of _id. */
bool ddl_is_all_indexes(Elem which);

/* Makes all indexes anew, on a standalone node; *ret_specs is an array of them. */
ErrCode ddl_reindex(OpCtx *op, const Ns *ns, Doc *ret_specs, uint32_t *ret_count, Error *err)
    MUST_CHECK;

/* For a repair: the collection and the one for documents that it cannot keep (lost_and_found_ns),
 * both names in X. The former is then opened as usual, which only increments the lock count. A
 * collection that does not exist is not locked. */
typedef struct RepairLock {
    OpCtx *op; /* NULL: nothing held */
    Ns ns;
    Ns lost_and_found;
} RepairLock;
ErrCode ddl_lock_for_repair(OpCtx *op, const Ns *ns, RepairLock *ret_lock, Error *err) MUST_CHECK;
void repair_lock_done(RepairLock *lock);
