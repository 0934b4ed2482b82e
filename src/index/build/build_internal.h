/*
 * build_internal.h - shared by the files of index/build/.
 */
#pragma once

#include "index/build/build.h"

enum {
    BUILD_SLICE_US = 10 * 1000, /* between two yields, as queries */
};

/* Fails with ERR_INDEX_BUILD_ABORTED unless the build is still wanted. */
ErrCode build_check_installed(const IndexBuild *build, const CollAccess *access, Error *err)
    MUST_CHECK;

/* What the build reads until it is decided (stable.c): a timestamp; 0: the newest state. The latter
 * two are put around a snapshot. */
ErrCode build_await_stable(IndexBuild *build, Error *err) MUST_CHECK;
uint64_t build_read_ts(const IndexBuild *build);
void build_read_at(OpCtx *op, uint64_t read_ts);
void build_read_newest(OpCtx *op, uint64_t read_ts);
/* Fails when a rollback, or the next start, may take back what the build has seen. */
ErrCode build_check_stable(const IndexBuild *build, Error *err) MUST_CHECK;

/* Scans the collection into the sorters. */
ErrCode build_scan(IndexBuild *build, Error *err) MUST_CHECK;
/* From the sorters into the empty index tables. */
ErrCode build_load(IndexBuild *build, Error *err) MUST_CHECK;

/* Where the sorters' files are (in arena memory), and how much memory each sorter of a build has.
 */
const char *build_sorter_dir(OpCtx *op);
size_t build_sorter_bytes(OpCtx *op, uint32_t index_count);

/* Applies all side writes there are. */
ErrCode build_drain_first(IndexBuild *build, Error *err) MUST_CHECK;
/* Again, and the last of them under S, so that only what comes after the return is left. */
ErrCode build_drain_again(IndexBuild *build, Error *err) MUST_CHECK;
/* Applies the rest, with the collection locked in X. */
ErrCode build_drain_locked(IndexBuild *build, Error *err) MUST_CHECK;

/* Keeps a key that is in the table twice, for the check at the end. */
void build_note_duplicate(IndexBuildItem *item, Str key, Str type_bits);
/* Writes what was noted into the table; in a unit of work. */
ErrCode build_write_duplicates(OpCtx *op, IndexBuildItem *item, Error *err) MUST_CHECK;
void build_note_skipped(IndexBuildItem *item, RecordId rid);
/* Writes what was noted into the table, which is made with the first; takes its locks itself. */
ErrCode build_flush_skipped(IndexBuild *build, Error *err) MUST_CHECK;
/* Documents that had no keys: gone, or with keys now. */
ErrCode build_recheck_skipped(IndexBuild *build, CollAccess *access, Error *err) MUST_CHECK;
/* Keys that were there twice must not be any more. */
ErrCode build_recheck_duplicates(IndexBuild *build, CollAccess *access, Error *err) MUST_CHECK;
/* A new, empty temporary table; the ident begins with `prefix`. */
#define TEMP_TABLE_PREFIX   "internal"
#define RESUME_TABLE_PREFIX TEMP_TABLE_PREFIX "-resumable"
ErrCode build_temp_table(OpCtx *op, const char *prefix, RecordStore **ret_store, Error *err)
    MUST_CHECK;
/* One more item of the build, complete but for its tables. Takes the reference. */
IndexBuildItem *build_add_item(IndexBuild *build, IndexDesc *take_index);
