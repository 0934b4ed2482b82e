/*
 * drain.c - side writes are applied to the index in the order in which they were made.
 *
 * Positions in the side table are assigned when a writer writes, and become visible when it
 * commits: a later position may be visible before an earlier one. Within one snapshot that does not
 * matter (two writers of one document conflict, so their positions are in commit order), but a
 * drain uses many: it must not skip a position that is still to come and apply a later one of the
 * same document. So it goes up to positions that were taken under a lock that excludes writers:
 * everything below is committed or never will be. Or all its snapshots are as of one stable
 * timestamp, so that it sees exactly what was committed by then.
 *
 * A side write is removed from the table in the transaction that applies it. So after a restart
 * everything in the table is still to be applied, and `drained_to` starts over, as do the positions
 * of an empty table.
 *
 * Crash: side tables are not journaled; the build restarts or is discarded (README.md).
 */
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "index/build/build_internal.h"
#include "index/side_writes.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

enum {
    /* One transaction: small, so that it does not pin much of the cache and a conflict costs
     * little. */
    BATCH_RECORDS_MAX = 500,
    BATCH_BYTES_MAX = 1024 * 1024,
    /* Positions that may be left for the drain under S: some milliseconds. */
    LOCKED_POSITIONS_MAX = 2000,
    /* After so many rounds the rest is drained under S even if writers are as fast as the drain:
     * otherwise the build might never end. */
    ROUNDS_MAX = 12,
};

typedef struct DrainUnit {
    IndexBuildItem *item;
    bool is_clustered;
    int64_t from;
    int64_t to;
    uint64_t read_ts; /* 0: the newest state */
    /* Set by the unit. */
    int64_t next;
    int64_t applied;
    bool is_at_end;
} DrainUnit;

static ErrCode drain_stable(IndexBuild *build, Error *err);
static ErrCode drain_to_ends(IndexBuild *build, const int64_t *ends, Error *err);
static ErrCode take_ends(IndexBuild *build, int64_t *ret_ends, bool *ret_is_little, Error *err);
static ErrCode drain_freely(IndexBuild *build, IndexBuildItem *item, int64_t to, uint64_t read_ts,
                            Error *err);
static ErrCode drain_here(IndexBuild *build, IndexBuildItem *item, int64_t from, int64_t to,
                          Error *err);
static ErrCode drain_unit(void *arg, OpCtx *op, Error *err);
static ErrCode apply_record(OpCtx *op, IndexBuildItem *item, Str record, bool is_clustered,
                            Error *err);

ErrCode build_drain_first(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    if (build_read_ts(build) != 0) {
        TRY(drain_stable(build, err));
    } else {
        int64_t ends[COLLECTION_INDEXES_MAX];
        {
            CLEANUP(access_done) CollAccess access = {0};
            TRY(access_write(op, &build->ns, LOCK_S, &access, err));
            TRY(build_check_installed(build, &access, err));
            bool is_little;
            TRY(take_ends(build, ends, &is_little, err));
        }
        TRY(drain_to_ends(build, ends, err));
    }
    failpoint_hit(FP_INDEX_BUILD_FIRST_DRAIN);
    failpoint_hang(FP_HANG_AFTER_FIRST_DRAIN);
    return op_check_interrupt_slow(op, err);
}

/* Drains everything that is stable now. Unstable positions may be in between, so `drained_to` does
 * not advance. */
static ErrCode drain_stable(IndexBuild *build, Error *err) {
    for (;;) {
        uint64_t read_ts = build_read_ts(build);
        ErrCode rc = ERR_OK;
        for (uint32_t i = 0; rc == ERR_OK && i < build->count; i++)
            rc = drain_freely(build, &build->items[i], INT64_MAX, read_ts, err);
        /* The history window has moved on: drain the rest as of a later time. */
        if (rc != ERR_SNAPSHOT_TOO_OLD)
            return rc;
        error_reset(err);
    }
}

ErrCode build_drain_again(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    for (int round = 0;; round++) {
        int64_t ends[COLLECTION_INDEXES_MAX];
        bool is_little;
        {
            CLEANUP(access_done) CollAccess access = {0};
            TRY(access_write(op, &build->ns, LOCK_S, &access, err));
            TRY(build_check_installed(build, &access, err));
            TRY(take_ends(build, ends, &is_little, err));
            for (uint32_t i = 0; (is_little || round == ROUNDS_MAX) && i < build->count; i++) {
                IndexBuildItem *item = &build->items[i];
                TRY(drain_here(build, item, item->drained_to, ends[i], err));
                item->drained_to = ends[i];
            }
        }
        if (is_little || round == ROUNDS_MAX)
            return ERR_OK;
        TRY(drain_to_ends(build, ends, err));
    }
}

/* With writers excluded: every position handed out is below the end, and its outcome is decided. */
static ErrCode take_ends(IndexBuild *build, int64_t *ret_ends, bool *ret_is_little, Error *err) {
    *ret_is_little = true;
    for (uint32_t i = 0; i < build->count; i++) {
        const IndexBuildItem *item = &build->items[i];
        /* Takes a position of its own, which stays empty: the cheapest way to read the counter. */
        RecordId end;
        TRY(record_store_next_id(build->active.op, item->side_writes, &end, err));
        ret_ends[i] = end.num;
        *ret_is_little &= end.num - item->drained_to <= LOCKED_POSITIONS_MAX;
    }
    return ERR_OK;
}

static ErrCode drain_to_ends(IndexBuild *build, const int64_t *ends, Error *err) {
    for (uint32_t i = 0; i < build->count; i++) {
        TRY(drain_freely(build, &build->items[i], ends[i], /* read_ts= */ 0, err));
        build->items[i].drained_to = ends[i];
    }
    return ERR_OK;
}

ErrCode build_drain_locked(IndexBuild *build, Error *err) {
    for (uint32_t i = 0; i < build->count; i++)
        TRY(drain_here(build, &build->items[i], build->items[i].drained_to, INT64_MAX, err));
    return ERR_OK;
}

static ErrCode run_unit(OpCtx *op, DrainUnit *unit, Error *err) {
    build_read_at(op, unit->read_ts);
    ErrCode rc = op_run_with_retry(op, drain_unit, unit, err);
    build_read_newest(op, unit->read_ts);
    TRY(rc);
    unit->item->drained_count += unit->applied;
    unit->from = unit->next;
    return ERR_OK;
}

/* Under IX, released after each batch, so that a drop or another X request is not held up. */
static ErrCode drain_freely(IndexBuild *build, IndexBuildItem *item, int64_t to, uint64_t read_ts,
                            Error *err) {
    OpCtx *op = build->active.op;
    DrainUnit unit = {.item = item,
                      .is_clustered = build->is_clustered,
                      .from = item->drained_to,
                      .to = to,
                      .read_ts = read_ts};
    int64_t begun_at = item->drained_count;
    while (!unit.is_at_end) {
        TRY(op_check_interrupt_slow(op, err));
        TRY(index_build_check_disk(op, err));
        op_set_progress(op, "Index Build: draining writes received during build",
                        item->drained_count - begun_at,
                        item->drained_count - begun_at + record_store_count(item->side_writes));
        CLEANUP(access_done) CollAccess access = {0};
        TRY(access_write(op, &build->ns, LOCK_IX, &access, err));
        TRY(build_check_installed(build, &access, err));
        TRY(run_unit(op, &unit, err));
    }
    return ERR_OK;
}

/* Under a lock held by the caller. */
static ErrCode drain_here(IndexBuild *build, IndexBuildItem *item, int64_t from, int64_t to,
                          Error *err) {
    OpCtx *op = build->active.op;
    DrainUnit unit = {.item = item, .is_clustered = build->is_clustered, .from = from, .to = to};
    while (!unit.is_at_end) {
        TRY(op_check_interrupt_slow(op, err));
        TRY(run_unit(op, &unit, err));
    }
    return ERR_OK;
}

static ErrCode drain_unit(void *arg, OpCtx *op, Error *err) {
    DrainUnit *unit = arg;
    IndexBuildItem *item = unit->item;
    unit->next = unit->from;
    unit->applied = 0;
    unit->is_at_end = false;
    buffer_clear(&item->pending_duplicates);
    /* Opened before the unit of work, which by itself would use the newest state. */
    if (unit->read_ts != 0)
        TRY(ru_open_snapshot(op->ru, err));
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, item->side_writes, /* is_forward= */ true, &cursor, err));
    TRY(record_cursor_seek_near(&cursor, record_id_num(unit->from), err));
    size_t bytes = 0;
    while (unit->applied < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX) {
        bool is_found;
        RecordId position;
        Str record;
        TRY(record_cursor_next(&cursor, &is_found, &position, &record, err));
        if (!is_found || position.num >= unit->to) {
            unit->is_at_end = true;
            break;
        }
        bytes += record.size;
        TRY(apply_record(op, item, record, unit->is_clustered, err));
        TRY(record_delete(op, item->side_writes, position, record.size, err));
        unit->next = position.num + 1;
        unit->applied++;
    }
    /* In the same transaction: a lost note would make a duplicate pass unnoticed. */
    TRY(build_write_duplicates(op, item, err));
    record_cursor_save(&cursor);
    TRY(uow_commit(&uow, err));
    buffer_clear(&item->pending_duplicates);
    return ERR_OK;
}

static ErrCode apply_record(OpCtx *op, IndexBuildItem *item, Str record, bool is_clustered,
                            Error *err) {
    OrderedIndex *store = item->index->store;
    SideReader reader;
    TRY(side_reader_open(&reader, record, is_clustered, err));
    SideOp side_op;
    IndexKey key;
    while (side_reader_next(&reader, &side_op, &key)) {
        bool is_found, is_duplicate;
        if (side_op == SIDE_REMOVE) {
            TRY(ordered_index_remove(op, store, key, reader.rid, &is_found, err));
            continue;
        }
        TRY(ordered_index_insert(op, store, key, reader.rid, /* is_dup_allowed= */ false,
                                 &is_duplicate, err));
        if (!is_duplicate)
            continue;
        /* Not an error yet: the other entry may be removed before the build ends
         * (constraints.c). */
        build_note_duplicate(item, key.key, key.type_bits);
        TRY(ordered_index_insert(op, store, key, reader.rid, /* is_dup_allowed= */ true,
                                 &is_duplicate, err));
    }
    return ERR_OK;
}
