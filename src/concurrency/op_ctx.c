#include "concurrency/op_ctx.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "concurrency/lock_manager.h"

enum {
    /* How often an operation that does not block reports itself to the thread pool and checks its
     * client. */
    LONG_RUNNING_US = 10 * 1000,
    /* How long op_poll sleeps at most if nothing can wake it. */
    BLIND_POLL_US = 10 * 1000,
    ARENA_MB_MAX_DEFAULT = 512,
};

struct OpRegistry {
    Mutex mu;
    /* Guarded by mu. */
    List ops;
    /* Atomic, only counts up. */
    _Atomic uint32_t last_op_id;
    LockManager *locks; /* of these operations */
};

OpCtx *op_ctx_new(OpRegistry *registry, const BlockHooks *hooks, void *hooks_arg) {
    OpCtx *op = NEW(OpCtx);
    arena_init(&op->arena, ARENA_CHUNK_SIZE_DEFAULT);
    buffer_init(&op->plan_text, BUFFER_UNBOUNDED);
    buffer_init(&op->plan_stats, BUFFER_UNBOUNDED);
    op->deadline_us = INT64_MAX;
    op->hooks = hooks;
    op->hooks_arg = hooks_arg;
    op->registry = registry;
    locker_init(&op->locker, registry->locks);
    op->size_max_arena_mb = ARENA_MB_MAX_DEFAULT;
    op->wake_fd = -1;
    op->receiving_fd = -1;
    mutex_init(&op->mu, LOCK_RANK_OP_CTX);
    cond_init(&op->cond);
    mutex_lock(&registry->mu);
    list_push_back(&registry->ops, &op->registry_node);
    mutex_unlock(&registry->mu);
    return op;
}

void op_ctx_free(OpCtx *op) {
    if (op == NULL)
        return;
    mutex_lock(&op->registry->mu);
    list_remove(&op->registry_node);
    mutex_unlock(&op->registry->mu);
    op_parts_free(&op->parts);
    locker_done(&op->locker);
    buffer_done(&op->plan_text);
    buffer_done(&op->plan_stats);
    arena_done(&op->arena);
    if (op->wake_fd >= 0)
        close(op->wake_fd);
    cond_done(&op->cond);
    mutex_done(&op->mu);
    xfree(op);
}

void op_keep_part(OpCtx *op, void (*free)(void *part), void *part) {
    OpParts *parts = &op->parts;
    invariant(parts->count < OP_PARTS_MAX);
    parts->rows[parts->count].free = free;
    parts->rows[parts->count++].part = part;
}

void op_parts_free(OpParts *parts) {
    while (parts->count > 0) {
        parts->count--;
        parts->rows[parts->count].free(parts->rows[parts->count].part);
    }
}

void op_begin(OpCtx *op, const OpDescription *desc) {
    op->start_us = clock_mono_us();
    op->deadline_us = INT64_MAX;
    op->is_ended_with_client = false;
    op->admission_priority = ADMISSION_NORMAL;
    op->last_optime = OPTIME_NONE;
    op->routing = NULL;
    op->expected = NULL;
    op->cpu_start_ns = 0;
    op->next_check_us = op->start_us + LONG_RUNNING_US;
    memset(&op->metrics, 0, sizeof(op->metrics));
    uint32_t op_id =
        1 + atomic_fetch_add_explicit(&op->registry->last_op_id, 1, memory_order_relaxed);
    mutex_lock(&op->mu);
    assert(!op->is_active);
    atomic_store_explicit(&op->kill_code, ERR_OK, memory_order_relaxed);
    atomic_store_explicit(&op->prepare_conflicts, 0, memory_order_relaxed);
    op->is_signaled = false;
    op->is_active = true;
    op->op_id = op_id;
    op->active_since_us = op->start_us;
    op->desc = *desc;
    mutex_unlock(&op->mu);
}

void op_end(OpCtx *op) {
    invariant(op->locker.held_count == 0);
    invariant(op->held_ticket == NULL);
    invariant(op->write_group == NULL);
    invariant(op->txn == NULL);
    mutex_lock(&op->mu);
    op->is_active = false;
    op->desc = (OpDescription){0};
    mutex_unlock(&op->mu);
    arena_reset(&op->arena);
}

void op_describe(OpCtx *op, const OpDescription *desc) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    op->desc = *desc;
}

void op_set_ns(OpCtx *op, const char *ns) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    op->desc.ns = ns;
}

void op_set_progress(OpCtx *op, const char *msg, int64_t done, int64_t total) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    op->desc.progress_msg = msg;
    op->desc.progress_done = done;
    op->desc.progress_total = total;
}

void op_set_max_time(OpCtx *op, int64_t max_time_ms) {
    int64_t deadline_us = clock_deadline_ms(max_time_ms);
    if (deadline_us < op->deadline_us)
        op->deadline_us = deadline_us;
}

static bool is_out_of_time(const OpCtx *op, int64_t now_us) {
    if (UNLIKELY(FAILPOINT(MAX_TIME_ALWAYS)))
        return true;
    return now_us >= op->deadline_us && LIKELY(!FAILPOINT(MAX_TIME_NEVER));
}

ErrCode op_check_interrupt_slow(OpCtx *op, Error *err) {
    if (op->mode.is_uninterruptible)
        return ERR_OK;
    int kill_code = atomic_load_explicit(&op->kill_code, memory_order_acquire);
    if (kill_code != ERR_OK)
        return error_set(err, (ErrCode)kill_code,
                         kill_code == ERR_INTERRUPTED_AT_SHUTDOWN ? "interrupted at shutdown"
                                                                  : "operation was interrupted");
    int64_t now_us = clock_mono_us();
    if (op->deadline_us != INT64_MAX && is_out_of_time(op, now_us))
        return error_set(err, ERR_MAX_TIME_MS_EXPIRED, "operation exceeded time limit");
    if (now_us >= op->next_check_us) {
        op->next_check_us = now_us + LONG_RUNNING_US;
        if (op->hooks != NULL) {
            op->hooks->long_running(op->hooks_arg);
            if (op->is_ended_with_client && op->hooks->is_client_gone(op->hooks_arg, op))
                return error_set(err, ERR_CLIENT_DISCONNECT,
                                 "operation was interrupted because the client disconnected");
        }
    }
    if (arena_used(&op->arena) >> 20 > op->size_max_arena_mb)
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT, "operation uses more than %u MB of memory",
                         op->size_max_arena_mb);
    return ERR_OK;
}

/* Until when an operation waits that would wait until `deadline_us`. */
static int64_t wait_end(const OpCtx *op, int64_t deadline_us) {
    bool is_limited = !op->mode.is_uninterruptible && op->deadline_us < deadline_us &&
                      LIKELY(!failpoint_is_set(FP_MAX_TIME_NEVER));
    return is_limited ? op->deadline_us : deadline_us;
}

ErrCode op_wait(OpCtx *op, int64_t deadline_us, bool *ret_timed_out, Error *err) {
    int64_t until_us = wait_end(op, deadline_us);

    op_block_begin(op);
    bool is_in_time = true;
    mutex_lock(&op->mu);
    while (!op->is_signaled && is_in_time) {
        if (!op->mode.is_uninterruptible &&
            atomic_load_explicit(&op->kill_code, memory_order_relaxed) != ERR_OK)
            break;
        is_in_time = cond_wait_until(&op->cond, &op->mu, until_us);
    }
    bool was_signaled = op->is_signaled;
    op->is_signaled = false;
    mutex_unlock(&op->mu);
    op_block_end(op);

    /* A signal wins over an interruption: the caller re-checks its condition first
     * (op_wait_until). */
    if (!was_signaled)
        TRY(op_check_interrupt_slow(op, err));
    *ret_timed_out = !was_signaled && !is_in_time;
    return ERR_OK;
}

/* Ends the wait of the operation's thread, in op_wait or op_poll. The eventfd is written once per
 * poll at most; without a poller there is no system call. */
static void wake_locked(OpCtx *op) {
    assert_held(&op->mu);
    cond_signal(&op->cond);
    if (UNLIKELY(op->is_polling) && !op->is_wake_pending) {
        uint64_t one = 1;
        op->is_wake_pending = write(op->wake_fd, &one, sizeof(one)) == sizeof(one);
    }
}

void op_signal(OpCtx *op) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    op->is_signaled = true;
    wake_locked(op);
}

void op_clear_signal(OpCtx *op) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    op->is_signaled = false;
}

static struct timespec time_until(int64_t until_us) {
    int64_t left_us = until_us - clock_mono_us();
    if (left_us < 0)
        left_us = 0;
    return (struct timespec){.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
}

/* See op_ctx.h. An op_signal between the unlock and op_wait is not lost: is_signaled is sticky. */
ErrCode op_wait_until(OpCtx *op, Mutex *mu, OpCondition is_met, void *arg, int64_t deadline_us,
                      bool *ret_is_met, Error *err) {
    assert_held(mu);
    ErrCode rc = ERR_OK;
    bool is_timed_out = false;
    while (!(*ret_is_met = is_met(arg)) && rc == ERR_OK && !is_timed_out) {
        mutex_unlock(mu);
        rc = op_wait(op, deadline_us, &is_timed_out, err);
        mutex_lock(mu);
    }
    if (!*ret_is_met || rc == ERR_OK)
        return rc;
    error_reset(err);
    return ERR_OK;
}

/* False: a signal or a kill has already arrived. Checked and announced under one hold of the mutex:
 * a signal after it writes to wake_fd. */
static bool begin_poll(OpCtx *op) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    if (UNLIKELY(op->wake_fd < 0))
        op->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool is_killed = atomic_load_explicit(&op->kill_code, memory_order_relaxed) != ERR_OK;
    bool must_wait = !op->is_signaled && (op->mode.is_uninterruptible || !is_killed);
    op->is_polling = must_wait && op->wake_fd >= 0;
    return must_wait;
}

static void end_poll(OpCtx *op) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    op->is_polling = false;
    op->is_signaled = false;
    if (UNLIKELY(op->is_wake_pending)) {
        uint64_t count;
        op->is_wake_pending = read(op->wake_fd, &count, sizeof(count)) != sizeof(count);
    }
}

ErrCode op_poll(OpCtx *op, struct pollfd *fds, uint32_t count, int64_t deadline_us, Error *err) {
    int64_t until_us = wait_end(op, deadline_us);
    for (uint32_t i = 0; i < count; i++)
        fds[i].revents = 0;
    int ready = 0;
    if (begin_poll(op)) {
        /* With no descriptor left to be woken by, the caller looks around often instead: what it
         * waits for is there, and has only to be waited for. */
        if (UNLIKELY(op->wake_fd < 0) && clock_deadline_us(BLIND_POLL_US) < until_us)
            until_us = clock_deadline_us(BLIND_POLL_US);
        struct timespec left = {0};
        if (until_us != INT64_MAX)
            left = time_until(until_us);
        fds[count] = (struct pollfd){.fd = op->wake_fd, .events = POLLIN};
        op_block_begin(op);
        ready = ppoll(fds, count + 1, until_us != INT64_MAX ? &left : NULL, NULL);
        op_block_end(op);
    }
    end_poll(op);
    if (LIKELY(ready > 0))
        return op_check_interrupt(op, err);
    for (uint32_t i = 0; i < count; i++)
        fds[i].revents = 0;
    return op_check_interrupt_slow(op, err);
}

/* Announces (or with -1 withdraws) the socket that a kill has to shut down. False: already killed.
 * Under the mutex, so that a kill either sees the descriptor or is seen here. */
static bool set_receiving(OpCtx *op, int fd) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    op->receiving_fd = op->mode.is_uninterruptible ? -1 : fd;
    return op->mode.is_uninterruptible ||
           atomic_load_explicit(&op->kill_code, memory_order_relaxed) == ERR_OK;
}

/* Without a thread that sleeps for it; false: it has to. */
static bool await_readable(OpCtx *op, int fd) {
    if (op->hooks == NULL || op->hooks->await_readable == NULL)
        return false;
    int64_t left_ns = op->cpu_start_ns != 0 ? clock_thread_cpu_ns() : 0;
    if (!op->hooks->await_readable(op->hooks_arg, fd))
        return false;
    if (UNLIKELY(op->cpu_start_ns != 0)) /* the thread has worked for others, or is another one */
        op->cpu_start_ns += clock_thread_cpu_ns() - left_ns;
    return true;
}

ErrCode op_receive(OpCtx *op, int fd, void *data, size_t size, ssize_t *ret_count, Error *err) {
    *ret_count = -1;
    if (LIKELY(set_receiving(op, fd))) {
        if (LIKELY(await_readable(op, fd))) {
            *ret_count = recv(fd, data, size, MSG_DONTWAIT);
        } else {
            op_block_begin(op);
            *ret_count = recv(fd, data, size, 0);
            op_block_end(op);
        }
    }
    if (LIKELY(set_receiving(op, -1)))
        return ERR_OK;
    return op_check_interrupt_slow(op, err);
}

ErrCode op_sleep_us(OpCtx *op, int64_t us, Error *err) {
    int64_t until_us = clock_deadline_us(us);
    bool is_timed_out = false;
    while (!is_timed_out)
        TRY(op_wait(op, until_us, &is_timed_out, err));
    return ERR_OK;
}

void op_block_begin(OpCtx *op) {
    if (op->hooks != NULL)
        op->hooks->begin(op->hooks_arg);
}

void op_block_end(OpCtx *op) {
    if (op->hooks != NULL)
        op->hooks->end(op->hooks_arg);
}

static void kill_locked(OpCtx *op, ErrCode code) {
    assert_held(&op->mu);
    int alive = ERR_OK;
    /* The first reason is kept: a shutdown must not turn a step-down error into another one. */
    atomic_compare_exchange_strong_explicit(&op->kill_code, &alive, (int)code, memory_order_release,
                                            memory_order_relaxed);
    wake_locked(op);
    /* A thread in recv cannot be woken otherwise. */
    if (op->receiving_fd >= 0)
        shutdown(op->receiving_fd, SHUT_RDWR);
}

void op_kill(OpCtx *op, ErrCode code) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    if (op->is_active)
        kill_locked(op, code);
}

OpRegistry *op_registry_new(void) {
    OpRegistry *registry = NEW(OpRegistry);
    registry->locks = lock_manager_new();
    mutex_init(&registry->mu, LOCK_RANK_OP_REGISTRY);
    list_init(&registry->ops);
    return registry;
}

void op_registry_free(OpRegistry *registry) {
    if (registry == NULL)
        return;
    invariant(list_is_empty(&registry->ops));
    lock_manager_free(registry->locks);
    mutex_done(&registry->mu);
    xfree(registry);
}

LockManager *op_registry_locks(OpRegistry *registry) {
    return registry->locks;
}

bool op_registry_kill(OpRegistry *registry, uint32_t op_id, ErrCode code) {
    bool is_found = false;
    mutex_lock(&registry->mu);
    LIST_FOR_EACH (&registry->ops, node) {
        OpCtx *op = CONTAINER_OF(node, OpCtx, registry_node);
        mutex_lock(&op->mu);
        if (op->is_active && op->op_id == op_id && !op->is_kill_exempt) {
            kill_locked(op, code);
            is_found = true;
        }
        mutex_unlock(&op->mu);
    }
    mutex_unlock(&registry->mu);
    return is_found;
}

static bool is_any(const OpCtx *op) {
    (void)op;
    return true;
}

static bool holds_state(const OpCtx *op) {
    return !op->outlives_state_changes &&
           atomic_load_explicit(&op->has_state_lock, memory_order_relaxed);
}

static bool awaits_prepared(const OpCtx *op) {
    return !op->outlives_state_changes &&
           atomic_load_explicit(&op->awaits_prepared, memory_order_relaxed);
}

static int kill_all(OpRegistry *registry, OpCtx *self, bool (*is_meant)(const OpCtx *op),
                    ErrCode code) {
    int count = 0;
    /* The registry's mutex keeps the operations from being freed during the walk. */
    mutex_lock(&registry->mu);
    LIST_FOR_EACH (&registry->ops, node) {
        OpCtx *op = CONTAINER_OF(node, OpCtx, registry_node);
        mutex_lock(&op->mu);
        if (op != self && op->is_active && !op->is_kill_exempt && is_meant(op)) {
            kill_locked(op, code);
            count++;
        }
        mutex_unlock(&op->mu);
    }
    mutex_unlock(&registry->mu);
    return count;
}

int op_registry_kill_all(OpRegistry *registry, OpCtx *self, ErrCode code) {
    return kill_all(registry, self, is_any, code);
}

int op_registry_kill_state_holders(OpRegistry *registry, OpCtx *self, ErrCode code) {
    return kill_all(registry, self, holds_state, code);
}

int op_registry_kill_prepared_waiters(OpRegistry *registry, OpCtx *self, ErrCode code) {
    return kill_all(registry, self, awaits_prepared, code);
}

void op_registry_kill_connection(OpRegistry *registry, int64_t connection_id, ErrCode code) {
    mutex_lock(&registry->mu);
    LIST_FOR_EACH (&registry->ops, node) {
        OpCtx *op = CONTAINER_OF(node, OpCtx, registry_node);
        mutex_lock(&op->mu);
        if (op->is_active && op->desc.connection_id == connection_id)
            kill_locked(op, code);
        mutex_unlock(&op->mu);
    }
    mutex_unlock(&registry->mu);
}

int op_registry_kill_session(OpRegistry *registry, OpCtx *self, const uint8_t session[16],
                             ErrCode code) {
    int count = 0;
    mutex_lock(&registry->mu);
    LIST_FOR_EACH (&registry->ops, node) {
        OpCtx *op = CONTAINER_OF(node, OpCtx, registry_node);
        mutex_lock(&op->mu);
        if (op != self && op->is_active && !op->is_kill_exempt &&
            memcmp(op->desc.session, session, sizeof(op->desc.session)) == 0) {
            kill_locked(op, code);
            count++;
        }
        mutex_unlock(&op->mu);
    }
    mutex_unlock(&registry->mu);
    return count;
}

void op_registry_for_each(OpRegistry *registry, void (*visit)(void *arg, OpCtx *op), void *arg) {
    mutex_lock(&registry->mu);
    LIST_FOR_EACH (&registry->ops, node) {
        OpCtx *op = CONTAINER_OF(node, OpCtx, registry_node);
        mutex_lock(&op->mu);
        visit(arg, op);
        mutex_unlock(&op->mu);
    }
    mutex_unlock(&registry->mu);
}
