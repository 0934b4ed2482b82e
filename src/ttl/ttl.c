#include "ttl/ttl.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
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
    Thread thread;
    OpCtx *op;        /* used by the thread; killed by ttl_monitor_free */
    TtlBehind behind; /* used by the thread */
    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    int64_t last_pass_us;
    /* Atomic. Set once, under mu; read without it between two turns. */
    _Atomic bool is_stopping;
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

ErrCode ttl_monitor_start(ServiceCtx *service, TtlSettingsFn settings, TtlMonitor **ret_monitor,
                          Error *err) {
    TtlMonitor *monitor = NEW(TtlMonitor);
    monitor->service = service;
    monitor->settings = settings;
    mutex_init(&monitor->mu, LOCK_RANK_LEAF);
    cond_init(&monitor->cond);
    monitor->last_pass_us = clock_mono_us();
    monitor->op = op_ctx_new(service->ops, NULL, NULL);
    monitor->op->service = service;
    op_attach_storage(monitor->op, service->storage);
    ErrCode rc = thread_start(&monitor->thread, "TTLMonitor", monitor_run, monitor, err);
    if (rc != ERR_OK) {
        ttl_monitor_free(monitor);
        return rc;
    }
    *ret_monitor = monitor;
    return ERR_OK;
}

void ttl_monitor_stop(TtlMonitor *monitor) {
    if (monitor == NULL || !monitor->thread.is_started)
        return;
    mutex_lock(&monitor->mu);
    atomic_store(&monitor->is_stopping, true);
    cond_broadcast(&monitor->cond);
    mutex_unlock(&monitor->mu);
    op_kill(monitor->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    thread_join(&monitor->thread);
}

void ttl_monitor_free(TtlMonitor *monitor) {
    if (monitor == NULL)
        return;
    ttl_monitor_stop(monitor);
    op_ctx_free(monitor->op);
    xfree(monitor->behind.rows);
    cond_done(&monitor->cond);
    mutex_done(&monitor->mu);
    xfree(monitor);
}

void ttl_monitor_wake(TtlMonitor *monitor) {
    if (monitor == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&monitor->mu);
    cond_broadcast(&monitor->cond);
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
    mutex_lock(&monitor->mu);
    while (!atomic_load(&monitor->is_stopping)) {
        TtlSettings settings = monitor->settings(monitor->service);
        int64_t due_us = monitor->last_pass_us + settings.sleep_s * 1000000;
        if (clock_mono_us() < due_us) {
            cond_wait_until(&monitor->cond, &monitor->mu, due_us);
            continue; /* the settings may have changed */
        }
        mutex_unlock(&monitor->mu);
        if (settings.is_enabled)
            run_pass(monitor);
        mutex_lock(&monitor->mu);
        monitor->last_pass_us = clock_mono_us();
    }
    mutex_unlock(&monitor->mu);
}

static void run_pass(TtlMonitor *monitor) {
    while (run_sub_pass(monitor))
        continue;
    if (!atomic_load(&monitor->is_stopping))
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
    while (row.count > 0 && !atomic_load(&monitor->is_stopping)) {
        if (settings.is_batched && clock_mono_us() >= end_us)
            break;
        if (!monitor->settings(monitor->service).is_enabled)
            row.count = 0; /* switched off meanwhile */
        else
            ttl_row_turn(&row, run_turn(monitor, &row.tasks[row.next], &settings));
    }
    ttl_behind_update(&monitor->behind, &row);
    bool is_left = row.count > 0 && !atomic_load(&monitor->is_stopping);
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
    if (atomic_load(&monitor->is_stopping)) { /* a kill before op_begin would be forgotten */
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
    RangeDeleteResult result;
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = exec_range_delete(op, &task->ns, &request, &result, &err);
    op_end(op);
    atomic_fetch_add_explicit(&monitor->deleted, result.deleted, memory_order_relaxed);
    if (rc != ERR_OK && !atomic_load(&monitor->is_stopping))
        LOG_WARN(LOG_INDEX, 5400703, "Error running TTL job on collection",
                 LOG_STR("namespace", task->ns.text), LOG_STR("error", error_message(&err)));
    else if (result.deleted > 0)
        LOG_DEBUG(LOG_INDEX, 5479200, "Deleted expired documents",
                  LOG_STR("namespace", task->ns.text), LOG_I64("numDeleted", result.deleted));
    return rc == ERR_OK && result.has_more;
}
