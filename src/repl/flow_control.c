#include "repl/flow_control.h"

#include <math.h>

#include "base/clock.h"

enum {
    TICKETS_UNLIMITED = 1000 * 1000 * 1000,
    /* One entry in a thousand takes the mutex; the rest cost one atomic increment. */
    SAMPLE_PERIOD = 1000,
    WAIT_US = 50 * 1000, /* between two attempts to get a ticket */
    PERIOD_US = 1000 * 1000,
};

double flow_control_tickets(const FlowSettings *settings, double tickets_before, double lag_s,
                            double sustained, double locks_per_entry) {
    double threshold_s = settings->target_lag_s * settings->threshold_part;
    double tickets;
    /* No lag: open up exponentially. Lag: the rate that the majority has sustained, reduced the
     * further it is behind. */
    if (lag_s < threshold_s || threshold_s <= 0) {
        tickets = (tickets_before + settings->adder) * settings->multiplier;
    } else {
        double beyond = (lag_s - threshold_s) / threshold_s;
        tickets = sustained * pow(settings->decay, beyond) * settings->fudge * locks_per_entry;
    }
    if (tickets < settings->tickets_min)
        return settings->tickets_min;
    return tickets > TICKETS_UNLIMITED ? TICKETS_UNLIMITED : tickets;
}

void flow_control_init(FlowControl *flow) {
    mutex_init(&flow->mu, LOCK_RANK_LEAF);
    flow->tickets = TICKETS_UNLIMITED;
    flow->rate = TICKETS_UNLIMITED;
    flow->locks_per_entry = 1;
}

void flow_control_done(FlowControl *flow) {
    mutex_done(&flow->mu);
}

ErrCode flow_control_acquire(FlowControl *flow, OpCtx *op, Error *err) {
    if (LIKELY(atomic_fetch_sub_explicit(&flow->tickets, 1, memory_order_relaxed) > 0)) {
        atomic_fetch_add_explicit(&flow->granted, 1, memory_order_relaxed);
        return ERR_OK;
    }
    int64_t start_us = clock_mono_us();
    ErrCode rc = ERR_OK;
    do {
        atomic_fetch_add_explicit(&flow->tickets, 1, memory_order_relaxed);
        rc = op_sleep_us(op, WAIT_US, err);
    } while (rc == ERR_OK &&
             atomic_fetch_sub_explicit(&flow->tickets, 1, memory_order_relaxed) <= 0);
    atomic_fetch_add_explicit(&flow->waited_us, clock_mono_us() - start_us, memory_order_relaxed);
    if (rc == ERR_OK)
        atomic_fetch_add_explicit(&flow->granted, 1, memory_order_relaxed);
    return rc;
}

void flow_control_note_entry(FlowControl *flow, uint64_t ts) {
    int64_t entries = 1 + atomic_fetch_add_explicit(&flow->entries, 1, memory_order_relaxed);
    if (LIKELY(entries % SAMPLE_PERIOD != 0))
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&flow->mu);
    flow->samples[flow->sample_count++ % FLOW_SAMPLES_MAX] = (FlowSample){ts, entries};
}

/* How many entries there were up to `ts`: by the newest sample that is not later. */
static int64_t entries_up_to(const FlowControl *flow, uint64_t ts) {
    uint64_t kept = flow->sample_count < FLOW_SAMPLES_MAX ? flow->sample_count : FLOW_SAMPLES_MAX;
    for (uint64_t i = 0; i < kept; i++) {
        const FlowSample *sample = &flow->samples[(flow->sample_count - 1 - i) % FLOW_SAMPLES_MAX];
        if (sample->ts <= ts)
            return sample->entries;
    }
    return 0;
}

void flow_control_refresh(FlowControl *flow, const FlowSettings *settings, bool is_throttling,
                          double lag_s, uint64_t commit_ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&flow->mu);
    int64_t granted = atomic_load(&flow->granted), entries = atomic_load(&flow->entries);
    int64_t committed = entries_up_to(flow, commit_ts);
    int64_t new_entries = entries - flow->entries_before;
    flow->sustained = committed - flow->committed_before;
    /* Tickets are counted per lock acquisition, the sustained rate in entries: this is the
     * conversion. */
    if (new_entries > 0)
        flow->locks_per_entry = (double)(granted - flow->granted_before) / (double)new_entries;
    flow->granted_before = granted;
    flow->entries_before = entries;
    flow->committed_before = committed;
    flow->is_enabled = settings->is_enabled;
    bool is_lagged = is_throttling && lag_s >= settings->target_lag_s * settings->threshold_part;
    flow->lagged_count += is_lagged && !flow->is_lagged;
    flow->lagged_us += is_lagged ? PERIOD_US : 0;
    flow->is_lagged = is_lagged;
    if (!settings->is_enabled || !is_throttling)
        flow->rate = TICKETS_UNLIMITED;
    else
        flow->rate = (int64_t)flow_control_tickets(settings, (double)flow->rate, lag_s,
                                                   (double)flow->sustained, flow->locks_per_entry);
    atomic_store(&flow->tickets, flow->rate);
}

void flow_control_build_status(FlowControl *flow, DocBuilder *b) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&flow->mu);
    build_bool(b, "enabled", flow->is_enabled);
    build_count(b, "targetRateLimit", flow->rate);
    build_count(b, "timeAcquiringMicros", atomic_load(&flow->waited_us));
    build_f64(b, "locksPerKiloOp", flow->locks_per_entry * 1000);
    build_count(b, "sustainerRate", flow->sustained);
    build_bool(b, "isLagged", flow->is_lagged);
    build_count(b, "isLaggedCount", flow->lagged_count);
    build_count(b, "isLaggedTimeMicros", flow->lagged_us);
}
