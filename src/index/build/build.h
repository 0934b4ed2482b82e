/*
 * build.h - building indexes while the collection is read and written (IDX-3).
 *
 * README.md tells the whole story. A caller (ddl/create_indexes.c) makes a build, adds its indexes,
 * puts them into the catalog as not ready, runs the build, and makes them ready under the X lock
 * once index_build_finish_locked agrees:
 *
 *     index_build_new, index_build_add ...      tables, nothing in the catalog
 *     (catalog: ready: false)                   writers write aside from now on
 *     index_build_run                           scan, sort, load, drain under IX and S
 *     index_build_finish_locked                 last drain under X, constraints
 *     (catalog: ready: true)
 *     index_build_free                          temporary tables go
 *
 * Ownership: a build belongs to the operation that made it. Threading: that operation's thread.
 */
#pragma once

#include "base/error.h"
#include "catalog/access.h"
#include "index/build/key_sorter.h"
#include "index/build/registry.h"

/* One index of a build. */
typedef struct IndexBuildItem {
    IndexDesc *index;         /* not ready */
    RecordStore *side_writes; /* what writers did to it since the start */
    RecordStore *duplicates; /* keys that were there twice at some time; NULL: they do not matter */
    RecordStore *skipped;    /* documents that had no keys at scan time; NULL: none so far */
    KeySorter *sorter;       /* NULL before the scan and after the load */
    int64_t drained_to;      /* every side write below it has been applied */
    Buffer pending_skipped;  /* record ids, not in the table yet */
    Buffer pending_duplicates;
    int64_t drained_count;
} IndexBuildItem;

typedef struct IndexBuild {
    ActiveBuild active; /* uuids and operation */
    Ns ns;
    RecordStore *records;
    IndexBuildItem items[COLLECTION_INDEXES_MAX];
    uint32_t count;
    bool is_clustered;
} IndexBuild;

/* Of the collection as it is now; no lock need be held. */
IndexBuild *index_build_new(OpCtx *op, const Collection *coll);
void index_build_free(IndexBuild *build); /* NULL is fine; drops the temporary tables */
void index_build_free_ptr(IndexBuild **build);

/* Makes the tables of one more index. `spec` is complete. */
ErrCode index_build_add(IndexBuild *build, Doc spec, Error *err) MUST_CHECK;
/* The index tables are not wanted after all, and the catalog has never named them. */
void index_build_discard_tables(IndexBuild *build);

/* True when all indexes of the build are in this instance, not ready. */
bool index_build_is_installed(const IndexBuild *build, const Collection *coll);
/* Position of one of them; -1: not there. */
int index_build_position(const IndexBuild *build, const IndexBuildItem *item,
                         const Collection *coll);

/* Fills the indexes up to a rest of side writes. Takes its locks itself. Fails with
 * ERR_INDEX_BUILD_ABORTED when the collection or one of the indexes was dropped meanwhile. */
ErrCode index_build_run(IndexBuild *build, Error *err) MUST_CHECK;

/* Under X: applies the rest of the side writes, then looks again at all that was put off. Fails
 * with ERR_DUPLICATE_KEY, ERR_CANNOT_INDEX_PARALLEL_ARRAYS and the like. May be repeated. */
ErrCode index_build_finish_locked(IndexBuild *build, CollAccess *access, Error *err) MUST_CHECK;

/* Fails with ERR_OUT_OF_DISK_SPACE when there is less room than builds want. */
ErrCode index_build_check_disk(OpCtx *op, Error *err) MUST_CHECK;
