/*
 * scan.c - feeds the collection through the key generator into the sorters, and from there into the
 * indexes.
 *
 * The scan works in slices: each has its own snapshot, so that it does not pin old versions for
 * long. Changes to a document between its slice and the end are in the side writes, which began
 * before the first slice. The scan can be interrupted between two slices: the sorters then have
 * exactly the documents up to the build's position.
 */
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "concurrency/op_failpoint.h"
#include "index/build/build_internal.h"
#include "index/key_gen.h"
#include "index/side_writes.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

enum {
    /* Reading the clock per document would be visible in the profile. */
    DOCS_PER_CLOCK = 64,
    PENDING_BYTES_MAX = 1024 * 1024, /* of notes in one slice: they are buffered until its end */
};

typedef struct Scan {
    IndexBuild *build;
    RecordCursor cursor;
    KeySet keys;
    KeyBuilder rid;
    bool is_open;
    bool is_at_end;
} Scan;

static ErrCode scan_slice(Scan *scan, Error *err);
static ErrCode scan_snapshot(Scan *scan, Error *err);
static ErrCode collect(IndexBuildItem *item, Doc doc, RecordId rid, Str rid_bytes, KeySet *keys,
                       Error *err);
static ErrCode load_one(IndexBuild *build, IndexBuildItem *item, CollAccess *access, Error *err);

static void scan_done(Scan *scan) {
    if (scan->is_open)
        record_cursor_done(&scan->cursor);
    key_set_done(&scan->keys);
    key_builder_done(&scan->rid);
}

const char *build_sorter_dir(OpCtx *op) {
    return arena_printf(&op->arena, "%s/_tmp", storage_dbpath(op_storage(op)));
}

size_t build_sorter_bytes(OpCtx *op, uint32_t index_count) {
    const IndexBuildParams *params = index_build_params(op_index_builds(op));
    return (size_t)atomic_load(&params->memory_mb_max) * 1024 * 1024 / index_count;
}

ErrCode build_scan(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    build->phase = INDEX_BUILD_SCAN;
    for (uint32_t i = 0; i < build->count; i++)
        if (build->items[i].sorter == NULL) /* unless resumed */
            build->items[i].sorter =
                key_sorter_new(build_sorter_dir(op), build->items[i].index->ident,
                               build_sorter_bytes(op, build->count));
    CLEANUP(scan_done) Scan scan = {.build = build};
    key_set_init(&scan.keys);
    key_builder_init(&scan.rid);
    while (!scan.is_at_end) {
        TRY(op_check_interrupt_slow(op, err));
        TRY(index_build_check_disk(op, err));
        op_set_progress(op, "Index Build: scanning collection", build->scanned_count,
                        record_store_count(build->records));
        TRY(scan_slice(&scan, err));
        TRY(build_flush_skipped(build, err));
        failpoint_hit(FP_INDEX_BUILD_SCANNING);
    }
    if (UNLIKELY(failpoint_is_set(FP_HANG_AFTER_STARTING_INDEX_BUILD))) {
        /* Seen in currentOp as a scan that is nearly done. */
        op_set_progress(op, "Index Build: scanning collection", build->scanned_count,
                        record_store_count(build->records));
        TRY(op_hang_until_killed(op, FP_HANG_AFTER_STARTING_INDEX_BUILD, build->ns.text, err));
    }
    return op_check_interrupt_slow(op, err);
}

static bool is_slice_over(int64_t count, int64_t until_us) {
    return count % DOCS_PER_CLOCK == 0 &&
           (clock_mono_us() >= until_us || FAILPOINT(INDEX_BUILD_SHORT_SLICES));
}

static ErrCode scan_documents(Scan *scan, Error *err) {
    IndexBuild *build = scan->build;
    int64_t until_us = clock_mono_us() + BUILD_SLICE_US;
    size_t noted_bytes = 0;
    while (noted_bytes < PENDING_BYTES_MAX) {
        RecordId rid;
        Str data;
        bool is_found;
        TRY(record_cursor_next(&scan->cursor, &is_found, &rid, &data, err));
        if (!is_found) {
            scan->is_at_end = true;
            return ERR_OK;
        }
        key_builder_reset(&scan->rid, 0);
        key_append_record_id(&scan->rid, rid);
        Str rid_bytes = {(const char *)scan->rid.key.data, scan->rid.key.size};
        noted_bytes = 0;
        for (uint32_t i = 0; i < build->count; i++) {
            IndexBuildItem *item = &build->items[i];
            TRY(collect(item, (Doc){(const uint8_t *)data.data}, rid, rid_bytes, &scan->keys, err));
            noted_bytes += item->pending_skipped.size;
        }
        if (is_slice_over(++build->scanned_count, until_us))
            return ERR_OK;
    }
    return ERR_OK;
}

/* Continues after the last document whose keys are in the sorters, whether it still exists or
 * not. */
static ErrCode open_cursor(Scan *scan, Error *err) {
    IndexBuild *build = scan->build;
    TRY(record_cursor_open(build->active.op, build->records, /* is_forward= */ true, &scan->cursor,
                           err));
    if (!build->has_position)
        return ERR_OK;
    RecordId rid = record_id_num(build->position_num);
    if (build->is_clustered)
        rid = (RecordId){0, build->position_str.data, (uint32_t)build->position_str.size};
    return record_cursor_seek_after(&scan->cursor, rid, err);
}

static void note_position(IndexBuild *build, const RecordCursor *cursor) {
    if (!cursor->base.is_positioned)
        return;
    build->has_position = true;
    build->position_num = cursor->rid.num;
    buffer_clear(&build->position_str);
    if (build->is_clustered)
        buffer_append(&build->position_str, cursor->rid.str, cursor->rid.str_size);
}

/* By the current catalog: the slice may read at a timestamp from before a drop. */
static ErrCode check_wanted(const IndexBuild *build, Error *err) {
    CollAccess present = {.catalog = catalog_acquire(op_catalog(build->active.op))};
    present.coll = catalog_find(present.catalog, &build->ns);
    ErrCode rc = build_check_installed(build, &present, err);
    catalog_release(present.catalog);
    return rc;
}

static ErrCode scan_slice(Scan *scan, Error *err) {
    OpCtx *op = scan->build->active.op;
    uint64_t read_ts = build_read_ts(scan->build);
    build_read_at(op, read_ts);
    ErrCode rc = scan_snapshot(scan, err);
    build_read_newest(op, read_ts);
    return rc;
}

static ErrCode scan_snapshot(Scan *scan, Error *err) {
    OpCtx *op = scan->build->active.op;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &scan->build->ns, &access, err));
    TRY(check_wanted(scan->build, err));
    if (scan->is_open) {
        bool is_kept;
        TRY(record_cursor_restore(&scan->cursor, op, &is_kept, err));
    } else {
        scan->is_open = true;
        TRY(open_cursor(scan, err));
    }
    ErrCode rc = scan_documents(scan, err);
    record_cursor_save(&scan->cursor);
    /* The sorters have the documents up to here: a resumed scan must not add them twice. */
    note_position(scan->build, &scan->cursor);
    return rc;
}

static ErrCode collect(IndexBuildItem *item, Doc doc, RecordId rid, Str rid_bytes, KeySet *keys,
                       Error *err) {
    if (index_keys_of(item->index, doc, keys, err) != ERR_OK) {
        /* Not an error yet: the document may be deleted or changed by the end (constraints.c). */
        error_reset(err);
        build_note_skipped(item, rid);
        return ERR_OK;
    }
    /* In memory; persisted with the catalog entry of the commit. */
    index_note_multikey(item->index, keys);
    for (uint32_t k = 0; k < keys->count; k++)
        TRY(key_sorter_add(item->sorter, key_set_get(keys, k), rid_bytes, err));
    return ERR_OK;
}

/* ---- bulk load ---- */

ErrCode build_load(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &build->ns, LOCK_IX, &access, err));
    TRY(build_check_installed(build, &access, err));
    for (uint32_t i = 0; i < build->count; i++)
        if (!build->items[i].is_loaded)
            TRY(load_one(build, &build->items[i], &access, err));
    return ERR_OK;
}

static ErrCode write_duplicates(void *arg, OpCtx *op, Error *err) {
    return build_write_duplicates(op, arg, err);
}

static ErrCode flush_duplicates(OpCtx *op, IndexBuildItem *item, Error *err) {
    if (item->pending_duplicates.size == 0)
        return ERR_OK;
    TRY(op_write_with_retry(op, write_duplicates, item, err));
    buffer_clear(&item->pending_duplicates);
    return ERR_OK;
}

static ErrCode load_keys(IndexBuild *build, IndexBuildItem *item, IndexBulk *bulk,
                         CollAccess *access, Error *err) {
    OpCtx *op = build->active.op;
    int64_t total = (int64_t)key_sorter_count(item->sorter);
    int64_t until_us = clock_mono_us() + BUILD_SLICE_US;
    bool was_duplicate = false;
    for (int64_t done = 0;; done++) {
        bool is_found, is_duplicate;
        SortedKey key;
        TRY(key_sorter_next(item->sorter, &is_found, &key, err));
        if (!is_found)
            return flush_duplicates(op, item, err);
        TRY(index_bulk_add(bulk, key.whole, key.key_size, key.type_bits, &is_duplicate, err));
        if (UNLIKELY(is_duplicate && !was_duplicate)) /* one note for a run of equal keys */
            build_note_duplicate(item, (Str){key.whole.data, key.key_size}, key.type_bits);
        was_duplicate = is_duplicate;
        if (!is_slice_over(done, until_us) && item->pending_duplicates.size < PENDING_BYTES_MAX)
            continue;
        op_set_progress(op, "Index Build: inserting keys from external sorter into index", done,
                        total);
        TRY(flush_duplicates(op, item, err));
        TRY(index_build_check_disk(op, err));
        /* The bulk cursor is outside of the operation's transaction and survives the yield. */
        TRY(access_yield(access, err));
        TRY(build_check_installed(build, access, err));
        failpoint_hit(FP_INDEX_BUILD_LOADING);
        until_us = clock_mono_us() + BUILD_SLICE_US;
    }
}

static ErrCode load_one(IndexBuild *build, IndexBuildItem *item, CollAccess *access, Error *err) {
    TRY(key_sorter_finish(item->sorter, err));
    IndexBulk *bulk;
    TRY(index_bulk_open(build->active.op, item->index->store, &bulk, err));
    ErrCode rc = load_keys(build, item, bulk, access, err);
    failpoint_hit(FP_INDEX_BUILD_LOADING);
    if (rc == ERR_OK)
        rc = op_check_interrupt_slow(build->active.op, err);
    if (rc == ERR_OK)
        rc = index_bulk_finish(bulk, err);
    index_bulk_free(bulk);
    if (rc != ERR_OK)
        return rc; /* the sorter still has all keys for a repeated load */
    key_sorter_free(item->sorter);
    item->sorter = NULL;
    item->is_loaded = true;
    return ERR_OK;
}
