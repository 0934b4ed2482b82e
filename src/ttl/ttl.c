#include "ttl/ttl.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "concurrency/op_ctx.h"
#include "query/write/range_delete.h"
#include "storage/engine.h"
#include "ttl/ttl_internal.h"

enum {
    BATCH_DOCS = 100, /* one unit of work */
};

struct TtlMonitor {
    ServiceCtx *service;
    TtlSettingsFn settings;
    TtlPrepareFn prepare;
    RoundThread rounds;
    /* Used by the thread. */
    OpCtx *op; /* killed by ttl_monitor_stop */
    TtlBehind behind;
    /* Atomic, counters. */
    _Atomic int64_t deleted;
    _Atomic int64_t passes;
    _Atomic int64_t sub_passes;
    _Atomic int64_t invalid_skips;
};

static void monitor_run(void *arg);
static void run_pass(TtlMonitor *monitor);
static bool run_sub_pass(TtlMonitor *monitor);
static bool run_turn(TtlMonitor *monitor, const TtlTask *task, const TtlSettings *settings);

ErrCode ttl_monitor_start(ServiceCtx *service, TtlSettingsFn settings, TtlPrepareFn prepare,
                          TtlMonitor **ret_monitor, Error *err) {
    TtlMonitor *monitor = NEW(TtlMonitor);
    monitor->service = service;
    monitor->settings = settings;
    monitor->prepare = prepare;
    round_thread_init(&monitor->rounds);
    monitor->op = op_ctx_new(service->ops, NULL, NULL);
    monitor->op->service = service;
    op_attach_storage(monitor->op, service->storage);
    ErrCode rc = round_thread_start(&monitor->rounds, "TTLMonitor", monitor_run, monitor, err);
    if (rc != ERR_OK) {
        ttl_monitor_free(monitor);
        return rc;
    }
    *ret_monitor = monitor;
    return ERR_OK;
}

void ttl_monitor_stop(TtlMonitor *monitor) {
    if (monitor == NULL || !round_thread_is_started(&monitor->rounds))
        return;
    round_thread_begin_stop(&monitor->rounds);
    op_kill(monitor->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&monitor->rounds);
}

void ttl_monitor_free(TtlMonitor *monitor) {
    if (monitor == NULL)
        return;
    ttl_monitor_stop(monitor);
    op_ctx_free(monitor->op);
    xfree(monitor->behind.rows);
    round_thread_done(&monitor->rounds);
    xfree(monitor);
}

void ttl_monitor_wake(TtlMonitor *monitor) {
    if (monitor != NULL)
        round_thread_wake(&monitor->rounds);
}

static int64_t count_of(const _Atomic int64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

TtlStats ttl_monitor_stats(const TtlMonitor *monitor) {
    if (monitor == NULL)
        return (TtlStats){0};
    return (TtlStats){count_of(&monitor->deleted), count_of(&monitor->passes),
                      count_of(&monitor->sub_passes), count_of(&monitor->invalid_skips)};
}

static void monitor_run(void *arg) {
    TtlMonitor *monitor = arg;
    log_set_thread_name("TTLMonitor");
    int64_t last_pass_us = clock_mono_us();
    while (!round_thread_is_stopping(&monitor->rounds)) {
        TtlSettings settings = monitor->settings(monitor->service);
        int64_t due_us = last_pass_us + settings.sleep_s * 1000000;
        if (clock_mono_us() < due_us) {
            (void)round_thread_wait(&monitor->rounds, due_us);
            continue; /* a change of the settings is what wakes it */
        }
        failpoint_hang(FP_HANG_TTL_BETWEEN_PASSES);
        if (settings.is_enabled)
            run_pass(monitor);
        last_pass_us = clock_mono_us();
    }
}

static void run_pass(TtlMonitor *monitor) {
    while (run_sub_pass(monitor))
        continue;
    if (!round_thread_is_stopping(&monitor->rounds))
        atomic_fetch_add_explicit(&monitor->passes, 1, memory_order_relaxed);
}

/* Returns whether something was left for another one. */
static bool run_sub_pass(TtlMonitor *monitor) {
    TtlSettings settings = monitor->settings(monitor->service);
    int64_t end_us = clock_mono_us() + settings.sub_pass_s * 1000000;
    Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    TtlRow row;
    int64_t invalid;
    Catalog *catalog = catalog_acquire(monitor->service->catalog);
    ttl_collect(catalog, &arena, &row, &invalid);
    catalog_release(catalog);
    atomic_fetch_add_explicit(&monitor->invalid_skips, invalid, memory_order_relaxed);
    while (row.count > 0 && !round_thread_is_stopping(&monitor->rounds)) {
        if (settings.is_batched && clock_mono_us() >= end_us)
            break;
        if (!monitor->settings(monitor->service).is_enabled)
            row.count = 0; /* switched off meanwhile */
        else
            ttl_row_turn(&row, run_turn(monitor, &row.tasks[row.next], &settings));
    }
    ttl_behind_update(&monitor->behind, &row);
    bool is_left = row.count > 0 && !round_thread_is_stopping(&monitor->rounds);
    arena_done(&arena);
    atomic_fetch_add_explicit(&monitor->sub_passes, 1, memory_order_relaxed);
    return is_left;
}

/* Deletes for as long as one index has its turn; returns whether it has more. What fails is left to
 * the next pass. */
static bool run_turn(TtlMonitor *monitor, const TtlTask *task, const TtlSettings *settings) {
    OpCtx *op = monitor->op;
    OpDescription desc = {.op_type = "remove", .ns = task->ns.text, .desc = "TTLMonitor"};
    op_begin(op, &desc);
    if (round_thread_is_stopping(
            &monitor->rounds)) { /* a kill before op_begin would be forgotten */
        op_end(op);
        return false;
    }
    op->admission_priority =
        ttl_behind_count(&monitor->behind, &task->uuid) < settings->low_priority_sub_passes
            ? ADMISSION_LOW
            : ADMISSION_NORMAL;
    RangeDelete request = {.uuid = task->uuid,
                           .ident = task->ident,
                           .batch_docs = settings->is_batched ? BATCH_DOCS : 1,
                           .docs_max = settings->is_batched ? settings->index_docs : 0,
                           .time_us_max = settings->is_batched ? settings->index_ms * 1000 : 0};
    request.filter = ttl_filter(task, clock_wall_ms(), &op->arena, &request.low, &request.high);
    RangeDeleteResult result = {0};
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = monitor->prepare(monitor->service, op, &task->ns, &err);
    if (rc == ERR_OK)
        rc = exec_range_delete(op, &task->ns, &request, &result, &err);
    op->routing = NULL;
    op_end(op);
    atomic_fetch_add_explicit(&monitor->deleted, result.deleted, memory_order_relaxed);
    if (rc != ERR_OK && !round_thread_is_stopping(&monitor->rounds))
        LOG_WARN(LOG_INDEX, 5400703, "Error running TTL job on collection",
                 LOG_STR("namespace", task->ns.text), LOG_STR("error", error_message(&err)));
    else if (result.deleted > 0)
        LOG_DEBUG(LOG_INDEX, 5479200, "Deleted expired documents",
                  LOG_STR("namespace", task->ns.text), LOG_I64("numDeleted", result.deleted));
    return rc == ERR_OK && result.has_more;
}
