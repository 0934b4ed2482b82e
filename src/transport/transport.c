/*
 * transport.c - starting, stopping and counting.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/transport_internal.h"

enum {
    CONNECTIONS_MAX_DEFAULT = 1000000,
    WORKERS_MAX_DEFAULT = 1024,
    WORKERS_TARGET_MIN = 2,
    SEND_STALL_US_DEFAULT = 60 * 1000 * 1000,
    SPARE_IDLE_US_DEFAULT = 10 * 1000 * 1000,
    DRAIN_LOOK_US = 1000,
};

static void apply_defaults(TransportConfig *config);
static void work_pool_init(WorkPool *work, const TransportConfig *config);
static ErrCode open_epoll(Transport *t, Error *err);
static uint64_t connection_count(Transport *t);

ErrCode transport_start(const TransportConfig *config, Transport **ret_transport, bool *ret_in_use,
                        Error *err) {
    *ret_in_use = false;
    invariant(config->handler.on_message != NULL);
    invariant(config->handler.on_bad_message != NULL);

    Transport *t = NEW(Transport);
    t->config = *config;
    t->epoll_fd = t->runnable_fd = t->stop_fd = -1;
    apply_defaults(&t->config);
    slot_table_init(&t->table, t->config.connections_max + t->config.extra_connections_max);
    work_pool_init(&t->work, &t->config);

    /* Before the first thread starts: handlers may ask for the transport through what they were
     * given. */
    *ret_transport = t;
    ErrCode rc = open_epoll(t, err);
    if (rc == ERR_OK)
        rc = listeners_open(t, ret_in_use, err);
    if (rc == ERR_OK)
        rc = workers_start(t, err);
    if (rc == ERR_OK)
        rc = listener_thread_start(t, err);
    if (rc != ERR_OK) {
        transport_stop(t, /* deadline_us= */ 0);
        transport_free(t);
        *ret_transport = NULL;
    }
    return rc;
}

uint16_t transport_port(const Transport *t) {
    return t->port;
}

const char *transport_unix_path(const Transport *t) {
    return t->unix_path[0] != '\0' ? t->unix_path : NULL;
}

void transport_stop_accepting(Transport *t) {
    listeners_close(t);
}

void transport_stop(Transport *t, int64_t deadline_us) {
    transport_stop_accepting(t);
    atomic_store_explicit(&t->is_draining, true, memory_order_relaxed);
    bool is_late = false;
    for (;;) {
        /* Looked at again and again, because a worker that did not see the flag yet may leave one
         * more connection idle. */
        connections_close_idle(t);
        if (connection_count(t) == 0)
            break;
        if (!is_late && clock_mono_us() >= deadline_us) {
            is_late = true;
            if (t->config.handler.on_stop_deadline != NULL)
                t->config.handler.on_stop_deadline(t->config.ctx);
            connections_shut_down(t);
        }
        thread_sleep_us(DRAIN_LOOK_US);
    }
    workers_stop(t);
}

void transport_free(Transport *t) {
    if (t == NULL)
        return;
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    if (t->runnable_fd >= 0)
        close(t->runnable_fd);
    if (t->stop_fd >= 0)
        close(t->stop_fd);
    xfree(t->work.awaits);
    xfree(t->work.await_free);
    cond_done(&t->work.governor_wake);
    mutex_done(&t->work.mu);
    slot_table_done(&t->table);
    xfree(t);
}

void transport_read_stats(Transport *t, TransportStats *ret_stats) {
    TransportStats stats = {0};
    mutex_lock(&t->table.mu);
    stats.connections_current = t->table.current_count;
    stats.connections_created = t->table.next_id - 1 - t->table.extra_refused_count;
    stats.connections_refused = t->table.refused_count;
    mutex_unlock(&t->table.mu);
    if (stats.connections_current < t->config.connections_max)
        stats.connections_available = t->config.connections_max - stats.connections_current;

    WorkerStats sum = {0};
    mutex_lock(&t->work.mu);
    worker_stats_add(&sum, &t->work.ended_stats);
    LIST_FOR_EACH (&t->work.workers, node) {
        const Worker *w = CONTAINER_OF(node, Worker, in_all);
        worker_stats_add(&sum, &w->stats);
    }
    LIST_FOR_EACH (&t->work.carriers, node) {
        const Carrier *carrier = CONTAINER_OF(node, Carrier, in_pool);
        stats.connections_active +=
            atomic_load_explicit(&carrier->sequence, memory_order_relaxed) & 1;
    }
    stats.connections_active += atomic_load_explicit(&t->work.awaiting, memory_order_relaxed);
    stats.workers = t->work.carrier_count;
    stats.connections_parked = t->work.parked_count;
    mutex_unlock(&t->work.mu);
    int32_t unblocked = atomic_load_explicit(&t->work.unblocked, memory_order_relaxed);
    stats.workers_unblocked = unblocked > 0 ? (uint32_t)unblocked : 0;

    stats.requests = sum.requests;
    stats.bytes_in = sum.bytes_in;
    stats.bytes_out = sum.bytes_out;
    stats.physical_bytes_in = sum.physical_bytes_in;
    stats.physical_bytes_out = sum.physical_bytes_out;
    for (int c = 0; c < WIRE_COMPRESSOR_COUNT; c++) {
        for (int side = 0; side < 2; side++) {
            stats.packed[c][side] = sum.packed[c][side];
            stats.unpacked[c][side] = sum.unpacked[c][side];
        }
    }
    *ret_stats = stats;
}

static void apply_defaults(TransportConfig *config) {
    if (config->connections_max == 0)
        config->connections_max = CONNECTIONS_MAX_DEFAULT;
    if (config->workers_target == 0) {
        int cpus = thread_cpu_count();
        config->workers_target = cpus < WORKERS_TARGET_MIN ? WORKERS_TARGET_MIN : (uint32_t)cpus;
    }
    if (config->workers_max == 0)
        config->workers_max = WORKERS_MAX_DEFAULT;
    if (config->workers_max < config->workers_target)
        config->workers_max = config->workers_target;
    if (config->send_stall_us_max == 0)
        config->send_stall_us_max = SEND_STALL_US_DEFAULT;
    if (config->spare_idle_us_max == 0)
        config->spare_idle_us_max = SPARE_IDLE_US_DEFAULT;
}

static void work_pool_init(WorkPool *work, const TransportConfig *config) {
    mutex_init(&work->mu, LOCK_RANK_WORKERS);
    cond_init(&work->governor_wake);
    list_init(&work->carriers);
    list_init(&work->ended);
    list_init(&work->spare);
    list_init(&work->workers);
    list_init(&work->idle);
    list_init(&work->resumable);
    list_init(&work->parked);
    list_init(&work->runnable);
    work->parked_deadline_us_min = INT64_MAX;
    work->target = config->workers_target;
    atomic_store_explicit(&work->retire_above, (int32_t)config->workers_target,
                          memory_order_relaxed);
    work->carriers_max = config->workers_max;
    /* One for each thread, and as many that await something. */
    work->workers_max = 2 * config->workers_max;
    work->awaits = xcalloc(work->workers_max, sizeof(*work->awaits));
    work->await_free = xcalloc(work->workers_max, sizeof(*work->await_free));
}

static ErrCode open_epoll(Transport *t, Error *err) {
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->runnable_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = EVENT_RUNNABLE};
    if (t->epoll_fd < 0 || t->runnable_fd < 0 || t->stop_fd < 0 ||
        epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->runnable_fd, &event) != 0)
        return error_set(err, ERR_INTERNAL_ERROR, "could not set up epoll: %s", strerror(errno));
    return ERR_OK;
}

static uint64_t connection_count(Transport *t) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->table.mu);
    return t->table.current_count;
}
