/*
 * background.c - the checkpointer, and the monitor: disk space, pending drops.
 */
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "storage/storage_internal.h"

enum {
    MONITOR_INTERVAL_US = 1000 * 1000,
    /* Of the disk, within the two bounds below. What a checkpoint needs beyond the dirty bytes
     * (pages are written anew before the old blocks are freed) has to fit into it. */
    DISK_RESERVE_PERCENT = 5,
    DISK_OWN_QUARTERS = 3, /* of the reserve: where internal work stops, too */
    BUSY_COUNT_REPORTED = 4,
};
#define DISK_RESERVE_BYTES_MIN (INT64_C(64) << 20) /* two journal files */
#define DISK_RESERVE_BYTES_MAX (INT64_C(512) << 20)

typedef struct PendingDrop {
    ListNode node;
    char *ident;
    uint64_t drop_ts;
    int64_t checkpoint_seq; /* the last checkpoint that may not contain the change; -1: any does */
    /* How often WiredTiger returned EBUSY although no reference of ours was left. */
    uint32_t busy_count;
    bool (*is_unused)(void *arg);
    void (*done)(void *arg);
    void *arg;
} PendingDrop;

static void add_drop(StorageEngine *engine, PendingDrop init);
static void free_drop(PendingDrop *drop);

void checkpointer_run(void *arg) {
    StorageEngine *engine = arg;
    log_set_thread_name("Checkpointer");
    int64_t last_us = clock_mono_us();
    for (;;) {
        int64_t interval_us = (int64_t)atomic_load(&engine->checkpoint_interval_s) * 1000000;
        int64_t due_us = interval_us > 0 ? last_us + interval_us : INT64_MAX;
        /* The interval is a run-time parameter. */
        int64_t look_us = clock_mono_us() + MONITOR_INTERVAL_US;
        if (!round_thread_wait(&engine->checkpointer, due_us < look_us ? due_us : look_us))
            break;
        if (clock_mono_us() < due_us)
            continue;
        Error err = {0};
        if (storage_checkpoint(engine, &err) != ERR_OK)
            LOG_ERROR(LOG_WTCHKPT, 7100106, "Checkpoint failed",
                      LOG_STR("error", error_message(&err)));
        error_reset(&err);
        last_us = clock_mono_us();
    }
}

void monitor_run(void *arg) {
    StorageEngine *engine = arg;
    log_set_thread_name("StorageMonitor");
    while (round_thread_wait(&engine->monitor, clock_mono_us() + MONITOR_INTERVAL_US)) {
        disk_space_check(engine);
        storage_reap_idents(engine);
    }
}

static void say_client_room(bool is_full, int64_t available, int64_t dirty, int64_t reserve) {
    if (is_full)
        LOG_WARN(LOG_STORAGE, 7100107, "Disk is nearly full; writes are refused",
                 LOG_I64("availableBytes", available), LOG_I64("dirtyBytes", dirty),
                 LOG_I64("reserveBytes", reserve));
    else
        LOG_INFO(LOG_STORAGE, 7100108, "Disk has room again; writes are accepted",
                 LOG_I64("availableBytes", available));
}

static void say_own_room(bool is_exhausted, int64_t available, int64_t dirty, int64_t reserve) {
    if (is_exhausted)
        LOG_ERROR(
            LOG_STORAGE, 7100120,
            "Disk is full; applying the oplog, initial sync and recovery pause until there is "
            "room",
            LOG_I64("availableBytes", available), LOG_I64("dirtyBytes", dirty),
            LOG_I64("neededBytes", reserve));
    else
        LOG_INFO(LOG_STORAGE, 7100121, "Disk has room again; what paused goes on",
                 LOG_I64("availableBytes", available));
}

/* WiredTiger panics when it cannot write its journal or a page, so writes are refused before the
 * disk is really full; reads continue. Dirty bytes in the cache will be written sooner or later and
 * count as used. Called by the monitor and by committers: the log lines appear only on a change. */
void disk_space_check(StorageEngine *engine) {
    atomic_store(&engine->bytes_written, 0);
    struct statvfs fs;
    if (statvfs(engine->dbpath, &fs) != 0)
        return;
    int64_t total = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
    int64_t available = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    int64_t dirty = storage_dirty_bytes(engine);
    int64_t reserve = total / 100 * DISK_RESERVE_PERCENT;
    if (reserve < DISK_RESERVE_BYTES_MIN)
        reserve = DISK_RESERVE_BYTES_MIN;
    if (reserve > DISK_RESERVE_BYTES_MAX)
        reserve = DISK_RESERVE_BYTES_MAX;
    atomic_store(&engine->disk_free_bytes, available);
    atomic_store(&engine->disk_total_bytes, total);
    bool is_full = available - dirty < reserve;
    if (atomic_exchange(&engine->is_disk_full, is_full) != is_full)
        say_client_room(is_full, available, dirty, reserve);
    int64_t own_reserve = reserve / 4 * DISK_OWN_QUARTERS;
    bool is_exhausted = available - dirty < own_reserve;
    if (atomic_exchange(&engine->is_disk_exhausted, is_exhausted) != is_exhausted)
        say_own_room(is_exhausted, available, dirty, own_reserve);
}

bool storage_has_room(const StorageEngine *engine) {
    return !atomic_load_explicit(&engine->is_disk_exhausted, memory_order_relaxed);
}

bool storage_recheck_room(StorageEngine *engine) {
    disk_space_check(engine);
    return storage_has_room(engine);
}

ErrCode storage_check_disk(StorageEngine *engine, Error *err) {
    if (LIKELY(!atomic_load_explicit(&engine->is_disk_full, memory_order_relaxed)))
        return ERR_OK;
    return error_set(err, ERR_OUT_OF_DISK_SPACE,
                     "the disk of \"%s\" is nearly full: writes are refused until there is room",
                     engine->dbpath);
}

void storage_drop_later(StorageEngine *engine, const char *ident, bool (*is_unused)(void *arg),
                        void (*done)(void *arg), void *arg) {
    add_drop(engine, (PendingDrop){.ident = xstrdup(ident),
                                   .checkpoint_seq = -1,
                                   .is_unused = is_unused,
                                   .done = done,
                                   .arg = arg});
}

static bool always_unused(void *arg) {
    (void)arg;
    return true;
}
static void nothing(void *arg) {
    (void)arg;
}

void storage_discard_table(StorageEngine *engine, const char *ident) {
    storage_drop_later(engine, ident, always_unused, nothing, NULL);
}

void storage_drop_named(StorageEngine *engine, const char *ident, uint64_t drop_ts,
                        bool (*is_unused)(void *arg), void (*done)(void *arg), void *arg) {
    add_drop(engine, (PendingDrop){.ident = xstrdup(ident),
                                   .drop_ts = drop_ts,
                                   .checkpoint_seq = engine->is_replicated && drop_ts == 0
                                                         ? atomic_load(&engine->checkpoint_started)
                                                         : -1,
                                   .is_unused = is_unused,
                                   .done = done,
                                   .arg = arg});
}

void storage_forget_drops_after(StorageEngine *engine, uint64_t stable_ts,
                                bool (*is_named)(const void *arg, const char *ident),
                                const void *arg) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->reaper_mu);
    while (engine->reaping_count > 0)
        cond_wait(&engine->reaper_cond, &engine->reaper_mu);
    LIST_FOR_EACH (&engine->pending_drops, node) {
        PendingDrop *drop = CONTAINER_OF(node, PendingDrop, node);
        if (drop->drop_ts <= stable_ts)
            continue;
        /* The timestamp belongs to a history that no longer exists; waiting for it could take
         * forever. */
        drop->drop_ts = 0;
        if (is_named(arg, drop->ident)) {
            list_remove(node);
            free_drop(drop);
        }
    }
}

static void add_drop(StorageEngine *engine, PendingDrop init) {
    PendingDrop *drop = xmemdup(&init, sizeof(init));
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->reaper_mu);
    list_push_back(&engine->pending_drops, &drop->node);
}

static bool is_due(StorageEngine *engine, const PendingDrop *drop) {
    if (!drop->is_unused(drop->arg))
        return false;
    /* The checkpoint must contain the catalog change, and no reader at a timestamp may be able to
     * reach the table any more. */
    if (drop->drop_ts != 0)
        return storage_checkpoint_ts(engine) > drop->drop_ts &&
               storage_oldest_ts(engine) > drop->drop_ts;
    return atomic_load(&engine->checkpoint_done) > drop->checkpoint_seq;
}

static void free_drop(PendingDrop *drop) {
    drop->done(drop->arg);
    xfree(drop->ident);
    xfree(drop);
}

size_t storage_reap_idents(StorageEngine *engine) {
    /* Taken off the list for one round, so that no mutex is held during the drops themselves. */
    List round;
    list_init(&round);
    mutex_lock(&engine->reaper_mu);
    engine->reaping_count++;
    LIST_FOR_EACH (&engine->pending_drops, node) {
        list_remove(node);
        list_push_back(&round, node);
    }
    mutex_unlock(&engine->reaper_mu);

    /* The catalog change that made a table unused may still be in the journal's buffer, while
     * dropping a table is durable at once: a crash in between would leave an entry without its
     * table. */
    Error flush_err = {0};
    bool is_durable =
        list_is_empty(&round) || storage_wait_durable(engine, NULL, &flush_err) == ERR_OK;
    error_reset(&flush_err);

    size_t left = 0;
    LIST_FOR_EACH (&round, node) {
        PendingDrop *drop = CONTAINER_OF(node, PendingDrop, node);
        list_remove(node);
        bool is_busy = true;
        Error err = {0};
        if (is_durable && is_due(engine, drop)) {
            /* A table cannot be dropped while a checkpoint runs (EBUSY). If both happen once a
             * second they could collide every time, and the drop would never succeed. */
            mutex_lock(&engine->checkpoint_mu);
            ErrCode rc = storage_drop_table(engine, drop->ident, &is_busy, &err);
            mutex_unlock(&engine->checkpoint_mu);
            if (rc != ERR_OK) {
                LOG_WARN(LOG_STORAGE, 7100109, "Could not drop table; will try again",
                         LOG_STR("ident", drop->ident), LOG_STR("error", error_message(&err)));
                is_busy = true;
            }
            if (is_busy && ++drop->busy_count % BUSY_COUNT_REPORTED == 0)
                LOG_WARN(LOG_STORAGE, 7100112, "Table is busy and cannot be dropped yet",
                         LOG_STR("ident", drop->ident), LOG_I64("tries", drop->busy_count));
        }
        error_reset(&err);
        if (!is_busy) {
            failpoint_hit(FP_DROP_COLL_IDENT);
            free_drop(drop);
            continue;
        }
        left++;
        mutex_lock(&engine->reaper_mu);
        list_push_back(&engine->pending_drops, &drop->node);
        mutex_unlock(&engine->reaper_mu);
    }
    mutex_lock(&engine->reaper_mu);
    engine->reaping_count--;
    cond_broadcast(&engine->reaper_cond);
    mutex_unlock(&engine->reaper_mu);
    return left;
}

void reaper_forget_all(StorageEngine *engine) {
    LIST_FOR_EACH (&engine->pending_drops, node) {
        list_remove(node);
        free_drop(CONTAINER_OF(node, PendingDrop, node));
    }
}
