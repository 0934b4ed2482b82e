/*
 * build.h - building indexes while the collection is read and written (IDX-3).
 *
 * README.md has the whole story. ddl/index_builds.c creates a build, adds its indexes, enters them
 * in the catalog as not ready, and hands the build to the coordinator, whose thread runs it:
 *
 *     index_build_new, index_build_add ...      tables, nothing in the catalog
 *     (catalog: ready: false)                   writers record side writes from now on
 *     index_build_fill                          scan, sort, load, first drain under IX
 *     (the coordinator waits for a decision)
 *     index_build_drain                         all but a rest, under IX and S
 *     index_build_finish_locked                 last drain under X, constraints
 *     (catalog: ready: true)
 *     index_build_free                          temporary tables are dropped
 *
 * With a clean shutdown or a rollback in between: index_build_save; afterwards index_build_resume
 * instead of new and add, or new and add once more to restart.
 *
 * Ownership: a build belongs to its creator, then to the coordinator. Threading: one thread at a
 * time.
 */
#pragma once

#include "base/error.h"
#include "catalog/access.h"
#include "index/build/key_sorter.h"
#include "index/build/coordinator.h"

typedef enum IndexBuildPhase {
    INDEX_BUILD_INITIALIZED, /* in the catalog, nothing read yet */
    INDEX_BUILD_SCAN,
    INDEX_BUILD_LOAD,
    INDEX_BUILD_DRAIN, /* to the end */
} IndexBuildPhase;

/* One index of a build. */
typedef struct IndexBuildItem {
    IndexDesc *index;         /* not ready */
    RecordStore *side_writes; /* writes to it since the start */
    RecordStore *duplicates;  /* keys that were duplicated at some time; NULL: irrelevant */
    RecordStore *skipped;   /* documents that could not be indexed by the scan; NULL: none so far */
    KeySorter *sorter;      /* NULL before the scan and after the load */
    bool is_loaded;         /* its table contains the sorter's keys */
    int64_t drained_to;     /* every side write before it has been applied */
    Buffer pending_skipped; /* record ids, not in the table yet */
    Buffer pending_duplicates;
    int64_t drained_count;
} IndexBuildItem;

struct IndexBuild {
    ActiveBuild active; /* uuids and operation */
    Ns ns;
    IndexBuildPhase phase;
    bool is_kept; /* saved: its tables and files survive it */
    /* Of a replicated collection: its start has been replicated to the other members, who build
     * too, and so will its end be. Set before it is started, then constant. */
    bool is_two_phase;
    uint64_t catalog_ts; /* timestamp of its next change of the catalog; 0: that of its own entry */
    /* Of two phases: when writers began to write aside; 0: before all that is not stable. */
    uint64_t start_ts;
    bool is_beyond_stable; /* has taken in, or will, what a rollback may take back */
    RecordStore *records;
    IndexBuildItem items[COLLECTION_INDEXES_MAX];
    uint32_t count;
    bool is_clustered;
    /* Of the scan: everything up to and with this record is in the sorters. */
    bool has_position;
    int64_t position_num;
    Buffer position_str; /* of clustered collections */
    int64_t scanned_count;
};

/* Of the collection as it is now; no lock need be held. */
IndexBuild *index_build_new(OpCtx *op, const Collection *coll, const Uuid *uuid);
void index_build_free(IndexBuild *build); /* NULL is fine; drops the temporary tables */
void index_build_free_ptr(IndexBuild **build);

/* Makes the tables of one more index. `spec` is complete. */
ErrCode index_build_add(IndexBuild *build, Doc spec, Error *err) MUST_CHECK;
/* The index tables are not wanted after all, and the catalog has never named them: those of a build
 * that did not come to be, but for what a resumed one found loaded. */
void index_build_discard_tables(IndexBuild *build);

/* True when all indexes of the build are in this instance, not ready. */
bool index_build_is_installed(const IndexBuild *build, const Collection *coll);
/* Position of one of them; -1: not there. */
int index_build_position(const IndexBuild *build, const IndexBuildItem *item,
                         const Collection *coll);

/* Goes on from the build's phase to the end of the first drain. Takes its locks itself, as the next
 * one. Both fail with ERR_INDEX_BUILD_ABORTED when the collection or one of the indexes was dropped
 * meanwhile. When they are interrupted, the build can be saved. */
ErrCode index_build_fill(IndexBuild *build, Error *err) MUST_CHECK;
/* Drains up to a rest that is little enough for an X lock. */
ErrCode index_build_drain(IndexBuild *build, Error *err) MUST_CHECK;

/* Under X: applies the rest of the side writes, then looks again at all that was put off. Fails
 * with ERR_DUPLICATE_KEY, ERR_CANNOT_INDEX_PARALLEL_ARRAYS and the like. May be repeated. */
ErrCode index_build_finish_locked(IndexBuild *build, CollAccess *access, Error *err) MUST_CHECK;

/* Fails with ERR_OUT_OF_DISK_SPACE when there is less room than builds want. */
ErrCode index_build_check_disk(OpCtx *op, Error *err) MUST_CHECK;

/* ---- over a restart ---- */

/* The resume document of a build that was saved; its memory belongs to whoever read it. */
typedef struct ResumeDoc ResumeDoc;

/* Writes down how far the build is, in a table of its own. What it has on disk stays there when it
 * is freed. */
ErrCode index_build_save(IndexBuild *build, Error *err) MUST_CHECK;
/* All resume documents that can be read, in arena memory; none unless they are trusted: the tables
 * are as they say. Their own tables are gone when this returns: a crash from now on leaves builds
 * that can only begin anew. */
ErrCode index_builds_read_resume(OpCtx *op, bool is_trusted, ResumeDoc ***ret_docs,
                                 uint32_t *ret_count, Error *err) MUST_CHECK;
const Uuid *resume_doc_build_uuid(const ResumeDoc *doc);
/* The build as it was, with the collection's unfinished indexes, those of them that were not loaded
 * yet with new, empty tables. Fails when anything is not as it was. */
ErrCode index_build_resume(OpCtx *op, const Collection *coll, const ResumeDoc *doc,
                           IndexBuild **ret_build, Error *err) MUST_CHECK;
/* Drops the temporary tables and files of a build that was saved and will not be resumed. */
ErrCode index_build_discard_saved(OpCtx *op, const ResumeDoc *doc, Error *err) MUST_CHECK;
/* At start, when all builds that are to go on have been made: drops the temporary tables and files
 * of all others. */
ErrCode index_builds_sweep(OpCtx *op, IndexBuild *const *builds, uint32_t count, Error *err)
    MUST_CHECK;

const char *index_build_phase_name(IndexBuildPhase phase);
void index_build_log(const IndexBuild *build, const char *msg, int32_t id, const Error *err);
