#include "sharding/balancer/balancer_internal.h"

#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "repl/repl.h"
#include "storage/engine.h"

enum {
    ROUND_US = 10 * 1000 * 1000, /* after a round that moved nothing */
    STOP_MS_MAX =
        25 * 1000, /* balancerStop waits so long for a round to end: routers wait for 30 s */
};

/* ---- life ---- */

Balancer *balancer_new(ServiceCtx *service, BalancerTuningFn tuning) {
    Balancer *balancer = NEW(Balancer);
    balancer->service = service;
    balancer->tuning = tuning;
    round_thread_init(&balancer->rounds);
    mutex_init(&balancer->mu, LOCK_RANK_BALANCER);
    list_init(&balancer->movers);
    list_init(&balancer->waiters);
    balancer->op = op_ctx_new(service->ops, NULL, NULL);
    balancer->op->service = service;
    op_attach_storage(balancer->op, service->storage);
    return balancer;
}

static void interrupt(Balancer *balancer, ErrCode code) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
    balancer->is_interrupted = true;
    op_kill(balancer->op, code);
    LIST_FOR_EACH (&balancer->movers, node)
        op_kill(CONTAINER_OF(node, RoundMove, node)->op, code);
}

void balancer_stop(Balancer *balancer) {
    if (balancer == NULL || !round_thread_is_started(&balancer->rounds))
        return;
    round_thread_begin_stop(&balancer->rounds);
    interrupt(balancer, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&balancer->rounds);
}

void balancer_free(Balancer *balancer) {
    if (balancer == NULL)
        return;
    op_ctx_free(balancer->op);
    rests_clear(&balancer->rests);
    auto_merger_done(&balancer->merger);
    round_thread_done(&balancer->rounds);
    mutex_done(&balancer->mu);
    xfree(balancer);
}

/* ---- others ---- */

void balancer_wake(Balancer *balancer) {
    if (balancer == NULL)
        return;
    atomic_store(&balancer->is_wanted, true);
    round_thread_wake(&balancer->rounds);
}

void balancer_note_state(Balancer *balancer) {
    if (balancer == NULL)
        return;
    if (!repl_is_writable(balancer->service->repl))
        interrupt(balancer, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    balancer_wake(balancer);
}

BalancerStatus balancer_status(Balancer *balancer) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
    return (BalancerStatus){balancer->is_in_round, balancer->round_count};
}

typedef struct Waiter {
    ListNode node;
    OpCtx *op;
    const Balancer *balancer;
    int64_t round; /* that is waited for */
} Waiter;

static bool has_ended(void *arg) {
    const Waiter *waiter = arg;
    const Balancer *balancer = waiter->balancer;
    return !balancer->is_in_round || balancer->round_count != waiter->round;
}

ErrCode balancer_wait_idle(Balancer *balancer, OpCtx *op, Error *err) {
    Waiter waiter = {.op = op, .balancer = balancer};
    bool is_over;
    {
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
        waiter.round = balancer->round_count;
        list_push_back(&balancer->waiters, &waiter.node);
        ErrCode rc = op_wait_until(op, &balancer->mu, has_ended, &waiter,
                                   clock_deadline_ms(STOP_MS_MAX), &is_over, err);
        list_remove(&waiter.node);
        TRY(rc);
    }
    if (is_over)
        return ERR_OK;
    return error_set(
        err, ERR_EXCEEDED_TIME_LIMIT,
        "the round of the balancer that is under way takes longer than %d s; it is the "
        "last one",
        STOP_MS_MAX / 1000);
}

/* ---- rounds ---- */

bool balancer_may_go_on(Balancer *balancer) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
    return !balancer->is_interrupted;
}

static void note_round(Balancer *balancer, bool is_in_round) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
    balancer->is_in_round = is_in_round;
    balancer->round_count += !is_in_round;
    LIST_FOR_EACH (&balancer->waiters, node)
        op_signal(CONTAINER_OF(node, Waiter, node)->op);
}

/* Whether this member is primary, and may begin something. */
static bool is_in_office(Balancer *balancer) {
    {
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
        balancer->is_interrupted = false;
    }
    /* A change that comes after this look interrupts. */
    bool is_primary =
        !round_thread_is_stopping(&balancer->rounds) && repl_is_writable(balancer->service->repl);
    if (is_primary && !balancer->was_primary) {
        rests_clear(&balancer->rests);
        auto_merger_reset(&balancer->merger);
        balancer->last_refusals = 0;
    }
    balancer->was_primary = is_primary;
    return is_primary;
}

/* For tests: {intervalMs}. */
static int64_t round_us(void) {
    if (LIKELY(!failpoint_enter(FP_OVERRIDE_ROUND_INTERVAL)))
        return ROUND_US;
    FailpointConfig config = failpoint_config(FP_OVERRIDE_ROUND_INTERVAL);
    Elem ms = config.data != NULL ? doc_get_lit((Doc){config.data}, "intervalMs") : ELEM_MISSING;
    int64_t us = elem_is_number(ms) ? clock_us_of_ms(elem_as_i64(ms)) : ROUND_US;
    xfree(config.data);
    return us;
}

static int local_minute(void) {
    time_t seconds = clock_wall_ms() / 1000;
    struct tm tm;
    localtime_r(&seconds, &tm);
    return tm.tm_hour * 60 + tm.tm_min;
}

static bool is_allowed_now(const BalancerSettings *settings) {
    return settings->is_on && balancer_settings_is_in_window(settings, local_minute());
}

/* A round that finds that it may do nothing is one, too: as of 7.0, whoever waits for a round to
 * pass need not know the settings. */
static ErrCode begin_round(Balancer *balancer, bool *ret_is_changed, Error *err) {
    BalancerSettings settings;
    TRY(balancer_settings_read(balancer->op, &settings, err));
    return is_allowed_now(&settings) ? round_run(balancer, &settings, ret_is_changed, err) : ERR_OK;
}

static ErrCode work(Balancer *balancer, const BalancerTuning *tuning, Error *err) {
    bool is_wanted = atomic_exchange(&balancer->is_wanted, false);
    if (!is_wanted && clock_mono_us() < balancer->round_due_us)
        return ERR_OK;
    bool is_changed = false;
    note_round(balancer, /* is_in_round= */ true);
    ErrCode rc = begin_round(balancer, &is_changed, err);
    note_round(balancer, /* is_in_round= */ false);
    balancer->round_due_us =
        is_changed ? clock_deadline_ms(tuning->pause_ms) : clock_deadline_us(round_us());
    return rc;
}

static ErrCode merge(Balancer *balancer, const BalancerTuning *tuning, int64_t *ret_due_us,
                     Error *err) {
    BalancerSettings settings;
    TRY(balancer_settings_read(balancer->op, &settings, err));
    *ret_due_us = is_allowed_now(&settings) && settings.merges
                      ? auto_merger_run(&balancer->merger, balancer->op, tuning)
                      : INT64_MAX;
    return ERR_OK;
}

static ErrCode run_due(Balancer *balancer, int64_t *ret_due_us, Error *err) {
    BalancerTuning tuning = balancer->tuning(balancer->service);
    TRY(work(balancer, &tuning, err));
    int64_t merge_due_us;
    TRY(merge(balancer, &tuning, &merge_due_us, err));
    *ret_due_us = merge_due_us < balancer->round_due_us ? merge_due_us : balancer->round_due_us;
    return ERR_OK;
}

static void balancer_run(void *arg) {
    Balancer *balancer = arg;
    OpCtx *op = balancer->op;
    log_set_thread_name("Balancer");
    for (int64_t due_us = 0; round_thread_wait(&balancer->rounds, due_us);) {
        due_us = clock_deadline_us(ROUND_US);
        if (!is_in_office(balancer))
            continue;
        op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "Balancer"});
        CLEANUP(error_reset) Error err = {0};
        if (balancer_may_go_on(balancer) && run_due(balancer, &due_us, &err) != ERR_OK &&
            balancer_may_go_on(balancer) && !error_is_of_state(err.code))
            LOG_WARN(LOG_SHARDING, 21882, "A round of the balancer failed",
                     LOG_STR("error", error_message(&err)));
        op_end(op);
    }
}

ErrCode balancer_start(Balancer *balancer, Error *err) {
    return round_thread_start(&balancer->rounds, "Balancer", balancer_run, balancer, err);
}

BalancerTuning balancer_tuning_now(const Balancer *balancer) {
    return balancer->tuning(balancer->service);
}

uint64_t balancer_merge_before(const BalancerTuning *tuning) {
    int64_t seconds = clock_wall_ms() / 1000 - tuning->history_s;
    return (uint64_t)seconds << 32;
}
