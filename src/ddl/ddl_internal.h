/*
 * ddl_internal.h - shared by the files of ddl/.
 */
#pragma once

#include "ddl/ddl.h"
#include "index/build/build.h"
#include "storage/unit_of_work.h"

/* A new, empty collection instance with its tables created; not in the catalog yet. */
ErrCode ddl_build_collection(OpCtx *op, const Ns *ns, Doc options, const Uuid *uuid,
                             bool has_v1_id_index, Collection **ret_coll, Error *err) MUST_CHECK;
/* Discards the tables of such an instance. */
void ddl_discard_collection(OpCtx *op, Collection *coll);
/* A database name that differs from an existing one only in case is refused. */
ErrCode ddl_check_db_case(OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;
/* Fails with ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE while an index of the collection is
 * being built; NULL is fine. */
ErrCode ddl_check_no_build(const Collection *coll, Error *err) MUST_CHECK;
/* All names in X; databases, then collections, each in ResourceId order, so that two operations
 * cannot wait for each other. */
enum {
    DDL_LOCK_NAMES_MAX = 3,
};
ErrCode ddl_lock_names(OpCtx *op, const Ns *const *names, size_t count, Error *err) MUST_CHECK;
void ddl_unlock_names(OpCtx *op, const Ns *const *names, size_t count);
ErrCode ddl_lock_two(OpCtx *op, const Ns *a, const Ns *b, Error *err) MUST_CHECK;
void ddl_unlock_two(OpCtx *op, const Ns *a, const Ns *b);
/* Notifies the observers: `o` is the command as an oplog entry, `o2` the previous state. */
ErrCode ddl_observe(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc o, Doc o2, Error *err)
    MUST_CHECK;
/* entries.c: those documents, in the operation's arena. */
Doc ddl_entry_create(OpCtx *op, const Collection *coll);
Doc ddl_entry_drop(OpCtx *op, const Ns *ns);
Doc ddl_entry_num_records(OpCtx *op, const Collection *coll); /* o2 of drop and rename */
Doc ddl_entry_drop_database(OpCtx *op);
/* o2 of dropDatabase, {collections: {name: uuid, ...}}: change streams show a drop of each. None if
 * there are too many to be listed. */
Doc ddl_entry_dropped(OpCtx *op, Doc dropped);
Doc ddl_entry_create_index(OpCtx *op, const Collection *coll, const IndexDesc *index);
/* startIndexBuild, commitIndexBuild or abortIndexBuild of the build whose unfinished indexes `coll`
 * has. `cause` of an abort; else NULL. */
Doc ddl_entry_index_build(OpCtx *op, const char *command, const Collection *coll,
                          const Uuid *build_uuid, const Error *cause);
Doc ddl_entry_drop_index(OpCtx *op, const Ns *ns, const IndexDesc *index);
Doc ddl_entry_coll_mod(OpCtx *op, const Ns *ns, const CollModChange *change);
/* {collectionOptions_old, indexOptions_old?}; `index` is NULL when none is changed. */
Doc ddl_entry_coll_mod_before(OpCtx *op, const Collection *coll, const IndexDesc *index);

typedef struct RenameArgs {
    const Ns *from;
    const Ns *to;
    bool is_drop_target;
    RenameCheck check;
    bool stays_temp;
} RenameArgs;
Doc ddl_entry_rename(OpCtx *op, const RenameArgs *args, const Uuid *dropped);
/* Checks whether the rename is allowed. Both names are locked. */
ErrCode ddl_check_rename(OpCtx *op, const Catalog *catalog, const RenameArgs *args,
                         const Collection **ret_source, const Collection **ret_target, Error *err)
    MUST_CHECK;
/* Within a database, without checking the kinds of names. */
ErrCode ddl_rename_here(OpCtx *op, const RenameArgs *args, Error *err) MUST_CHECK;
/* Skips the oldest `skip_bytes`. Both are locked; `to` is empty. */
ErrCode ddl_copy_documents(OpCtx *op, const Collection *from, const Collection *to,
                           int64_t skip_bytes, Error *err) MUST_CHECK;
/* A capped copy: of a collection that it replaces (convertToCapped, `to` is `from`), or beside it
 * (cloneCollectionAsCapped). */
typedef struct CappedArgs {
    const Ns *from;
    const Ns *to;
    int64_t size;
    bool is_temp;
} CappedArgs;
/* Fails with ERR_NAMESPACE_EXISTS if a copy beside it finds its name in use. */
ErrCode ddl_check_cappable(const Catalog *catalog, const CappedArgs *args, Error *err) MUST_CHECK;
/* For a capped copy: the collection in X, and how many bytes of it do not fit. */
ErrCode ddl_open_to_convert(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) MUST_CHECK;
int64_t ddl_capped_excess(const Collection *coll, int64_t size);
/* The options of such a copy. */
Doc ddl_capped_options(OpCtx *op, const Collection *coll, int64_t size, bool is_temp);
/* rename_by_steps.c: whether a change of that name is replicated. */
bool ddl_is_told(const OpCtx *op, const Ns *ns);
ErrCode ddl_rename_by_steps(OpCtx *op, const RenameArgs *args, Error *err) MUST_CHECK;
ErrCode ddl_cap_by_steps(OpCtx *op, const CappedArgs *args, Error *err) MUST_CHECK;
Doc ddl_options_without(Doc options, const char *name, Arena *arena);
/* Replaces, adds or removes (missing value) members of an options document. */
Doc ddl_options_with(Doc options, const char *const *names, const Elem *values, size_t count,
                     Arena *arena);

/* ---- index builds ---- */

/* Commits and aborts builds, for the coordinator. */
extern const IndexBuildCatalog DDL_INDEX_BUILD_CATALOG;

/* Starts a registered, empty build of these complete specs: creates the tables, writes the entry
 * (from then on writers record side writes) and hands the build to the coordinator, undecided.
 * `planned` is the collection for which the specs are missing; *ret_is_changed when they no longer
 * are, and then there is no build. Takes the build in any case. */
ErrCode ddl_start_index_build(IndexBuild *take_build, const Collection *planned, const Doc *specs,
                              uint32_t count, IndexBuildWaiter *waiter, bool *ret_is_changed,
                              Error *err) MUST_CHECK;
/* Locks the collection in X and checks that it is still the planned one without these indexes. */
ErrCode ddl_open_for_indexes(OpCtx *op, const Collection *planned, const Doc *specs, uint32_t count,
                             CollAccess *ret_access, bool *ret_is_changed, Error *err) MUST_CHECK;
/* Whether it is an unfinished index of this build. */
bool ddl_is_of_build(const IndexDesc *index, const Uuid *build_uuid);
/* Removes the unfinished indexes of the build from the catalog, drops their tables, and notifies
 * the observers of the cause. */
ErrCode ddl_discard_build(OpCtx *op, const Ns *ns, const Uuid *coll_uuid, const Uuid *build_uuid,
                          const Error *cause, Error *err) MUST_CHECK;
/* The catalog has the array paths of the index as they are now. */
void ddl_note_multikey_persisted(const IndexDesc *index);
/* One unit of work with the changed indexes. `entry` is for the observers; DOC_NONE: one of each
 * index that is new and ready. */
ErrCode ddl_commit_indexes(OpCtx *op, const Collection *old, Collection *take_changed, Doc entry,
                           Error *err) MUST_CHECK;
