#include "index/build/build.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "concurrency/op_failpoint.h"
#include "index/build/build_internal.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

/* A temporary table is useless after a crash, so it is not journaled. A clean shutdown has it in
 * the final checkpoint. */
#define TEMP_TABLE_CONFIG "log=(enabled=false)"

static bool is_store_unused(void *arg) {
    return !record_store_is_shared(arg);
}
static void release_store(void *arg) {
    record_store_unref(arg);
}
static bool is_index_unused(void *arg) {
    return !ordered_index_is_shared(arg);
}
static void release_index(void *arg) {
    ordered_index_unref(arg);
}

IndexBuild *index_build_new(OpCtx *op, const Collection *coll, const Uuid *uuid) {
    IndexBuild *build = NEW(IndexBuild);
    build->active = (ActiveBuild){.uuid = *uuid, .coll_uuid = coll->uuid, .op = op};
    buffer_init(&build->position_str, RECORD_ID_STR_SIZE_MAX);
    build->ns = coll->ns;
    build->records = record_store_ref(coll->records);
    build->is_clustered = coll->options.is_clustered;
    return build;
}

static void drop_temp_table(const IndexBuild *build, RecordStore *take_store) {
    /* Kept tables are found again by their ident in the resume document. */
    if (take_store == NULL || build->is_kept)
        record_store_unref(take_store);
    else
        storage_drop_later(op_storage(build->active.op), record_store_ident(take_store),
                           is_store_unused, release_store, take_store);
}

void index_build_free(IndexBuild *build) {
    if (build == NULL)
        return;
    for (uint32_t i = 0; i < build->count; i++) {
        IndexBuildItem *item = &build->items[i];
        key_sorter_free(item->sorter);
        drop_temp_table(build, item->side_writes);
        drop_temp_table(build, item->duplicates);
        drop_temp_table(build, item->skipped);
        buffer_done(&item->pending_skipped);
        buffer_done(&item->pending_duplicates);
        index_desc_unref(item->index);
    }
    buffer_done(&build->position_str);
    record_store_unref(build->records);
    xfree(build);
}

void index_build_free_ptr(IndexBuild **build) {
    index_build_free(*build);
}

ErrCode build_temp_table(OpCtx *op, const char *prefix, RecordStore **ret_store, Error *err) {
    StorageEngine *engine = op_storage(op);
    CLEANUP(xfree_ptr) char *ident = storage_new_ident(engine, prefix);
    return record_store_create(engine, ident, /* is_clustered= */ false, TEMP_TABLE_CONFIG,
                               ret_store, err);
}

ErrCode index_build_add(IndexBuild *build, Doc spec, Error *err) {
    OpCtx *op = build->active.op;
    IndexDesc *index;
    TRY(index_desc_create(op_storage(op), &build->ns, spec, build->is_clustered,
                          /* is_ready= */ false, &index, err));
    IndexBuildItem *item = build_add_item(build, index);
    failpoint_hit(FP_INDEX_BUILD_TABLE);
    TRY(build_temp_table(op, TEMP_TABLE_PREFIX, &item->side_writes, err));
    index->side_writes = record_store_ref(item->side_writes);
    return index->is_unique ? build_temp_table(op, TEMP_TABLE_PREFIX, &item->duplicates, err)
                            : ERR_OK;
}

IndexBuildItem *build_add_item(IndexBuild *build, IndexDesc *take_index) {
    invariant(build->count < ARRAY_LEN(build->items));
    take_index->has_build_uuid = true;
    take_index->build_uuid = build->active.uuid;
    IndexBuildItem *item = &build->items[build->count++];
    item->index = take_index;
    /* Record ids begin with 1. */
    item->drained_to = 1;
    buffer_init(&item->pending_skipped, BUFFER_UNBOUNDED);
    buffer_init(&item->pending_duplicates, BUFFER_UNBOUNDED);
    return item;
}

void index_build_discard_tables(IndexBuild *build) {
    for (uint32_t i = 0; i < build->count; i++) {
        IndexDesc *index = build->items[i].index;
        if (index->store != NULL && !build->items[i].is_loaded)
            storage_drop_later(op_storage(build->active.op), index->ident, is_index_unused,
                               release_index, ordered_index_ref(index->store));
    }
}

int index_build_position(const IndexBuild *build, const IndexBuildItem *item,
                         const Collection *coll) {
    int position = collection_index_position(coll, str_from(item->index->name));
    if (position < 0)
        return -1;
    const IndexDesc *index = coll->indexes[position];
    /* By the build's UUID, not the name: the index may have been dropped and built again
     * meanwhile. */
    bool is_ours = !index->is_ready && index->has_build_uuid &&
                   uuid_equal(&index->build_uuid, &build->active.uuid);
    return is_ours ? position : -1;
}

bool index_build_is_installed(const IndexBuild *build, const Collection *coll) {
    if (coll == NULL || !uuid_equal(&coll->uuid, &build->active.coll_uuid))
        return false;
    for (uint32_t i = 0; i < build->count; i++)
        if (index_build_position(build, &build->items[i], coll) < 0)
            return false;
    return true;
}

ErrCode build_check_installed(const IndexBuild *build, const CollAccess *access, Error *err) {
    if (index_build_is_installed(build, access->coll))
        return ERR_OK;
    return error_set(err, ERR_INDEX_BUILD_ABORTED, "the collection or the index was dropped");
}

ErrCode index_build_check_disk(OpCtx *op, Error *err) {
    StorageStats stats;
    storage_stats(op_storage(op), &stats);
    int64_t wanted =
        atomic_load(&index_build_params(op_index_builds(op))->disk_mb_min) * 1024 * 1024;
    if (stats.disk_total_bytes > 0 && stats.disk_free_bytes < wanted)
        return error_set(err, ERR_OUT_OF_DISK_SPACE,
                         "available disk space of %lld bytes is less than required minimum of %lld",
                         (long long)stats.disk_free_bytes, (long long)wanted);
    return storage_check_disk(op_storage(op), err);
}

const char *index_build_phase_name(IndexBuildPhase phase) {
    static const char *const NAMES[] = {
        [INDEX_BUILD_INITIALIZED] = "initialized",
        [INDEX_BUILD_SCAN] = "collection scan",
        [INDEX_BUILD_LOAD] = "bulk load",
        [INDEX_BUILD_DRAIN] = "drain writes",
    };
    return NAMES[phase];
}

static void log_phase(const IndexBuild *build, const char *msg, int32_t id, int64_t since_us) {
    char uuid[UUID_TEXT_SIZE];
    uuid_to_text(&build->active.uuid, uuid);
    uint64_t keys = 0;
    uint32_t spills = 0;
    int64_t drained = 0;
    for (uint32_t i = 0; i < build->count; i++) {
        const IndexBuildItem *item = &build->items[i];
        keys += item->sorter != NULL ? key_sorter_count(item->sorter) : 0;
        spills += item->sorter != NULL ? key_sorter_spills(item->sorter) : 0;
        drained += item->drained_count;
    }
    LOG_INFO(LOG_INDEX, id, msg, LOG_STR("buildUUID", uuid), LOG_STR("namespace", build->ns.text),
             LOG_I64("keys", keys), LOG_I64("spills", spills), LOG_I64("sideWrites", drained),
             LOG_I64("durationMillis", (clock_mono_us() - since_us) / 1000));
}

void index_build_log(const IndexBuild *build, const char *msg, int32_t id, const Error *err) {
    char uuid[UUID_TEXT_SIZE];
    uuid_to_text(&build->active.uuid, uuid);
    if (err->code == ERR_OK)
        LOG_INFO(LOG_INDEX, id, msg, LOG_STR("buildUUID", uuid),
                 LOG_STR("namespace", build->ns.text), LOG_I64("indexes", build->count),
                 LOG_STR("phase", index_build_phase_name(build->phase)));
    else
        LOG_INFO(LOG_INDEX, id, msg, LOG_STR("buildUUID", uuid),
                 LOG_STR("namespace", build->ns.text), LOG_I64("indexes", build->count),
                 LOG_STR("phase", index_build_phase_name(build->phase)),
                 LOG_STR("error", error_message(err)));
}

/* Each phase is recorded before its first step, and can be entered again after a stop within it: a
 * resumed build continues with the phase it was saved in. */
ErrCode index_build_fill(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    const char *ns = build->ns.text;
    if (build->phase == INDEX_BUILD_INITIALIZED) {
        failpoint_hit(FP_INDEX_BUILD_STARTED);
        TRY(op_hang_until_killed(op, FP_HANG_AFTER_INITIALIZING_BUILD, ns, err));
        TRY(op_hang_until_killed(op, FP_HANG_AFTER_SETTING_UP_BUILD, ns, err));
        TRY(op_hang_until_killed(op, FP_HANG_AFTER_SETTING_UP_BUILD_UNLOCKED, ns, err));
    }
    TRY(op_check_interrupt_slow(op, err));
    TRY(build_await_stable(build, err));
    TRY(op_hang_until_killed(op, FP_HANG_BEFORE_BUILDING_INDEX, ns, err));
    int64_t begin_us = clock_mono_us();
    if (build->phase <= INDEX_BUILD_SCAN) {
        TRY(build_scan(build, err));
        log_phase(build, "Index build: collection scan done", 20391, begin_us);
        build->phase = INDEX_BUILD_LOAD;
        begin_us = clock_mono_us();
    }
    if (build->phase == INDEX_BUILD_LOAD) {
        TRY(build_load(build, err));
        log_phase(build, "Index build: inserted keys from external sorter into index", 20685,
                  begin_us);
        build->phase = INDEX_BUILD_DRAIN;
    }
    failpoint_hang(FP_HANG_AFTER_BULK_INSERTS);
    return build_drain_first(build, err);
}

ErrCode index_build_drain(IndexBuild *build, Error *err) {
    int64_t begin_us = clock_mono_us();
    /* From the decision on the newest state is drained, including writes that a rollback could
     * undo. */
    build->is_beyond_stable = true;
    TRY(build_drain_again(build, err));
    op_set_progress(build->active.op, NULL, 0, 0);
    log_phase(build, "Index build: drained side writes", 20689, begin_us);
    failpoint_hang(FP_HANG_AFTER_SECOND_DRAIN);
    failpoint_hang(FP_HANG_BEFORE_BUILD_COMMIT);
    return ERR_OK;
}

ErrCode index_build_finish_locked(IndexBuild *build, CollAccess *access, Error *err) {
    TRY(build_check_installed(build, access, err));
    TRY(build_drain_locked(build, err));
    failpoint_hit(FP_INDEX_BUILD_LAST_DRAIN);
    /* Skipped documents first: indexing them may add duplicates. */
    TRY(build_recheck_skipped(build, access, err));
    TRY(build_recheck_duplicates(build, access, err));
    /* The catalog write that follows needs a snapshot with the checks' own commits. */
    ru_abandon_snapshot(access->op->ru);
    return ERR_OK;
}
