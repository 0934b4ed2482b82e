/*
 * flow_control.h - a primary that is faster than the majority of its set is slowed down (LCK-3).
 *
 * So many writes may begin per second; the number is found anew each second from the lag of the
 * commit point. Below a threshold of the target lag it grows; above it it follows what the member
 * that sustains the commit point has applied, less the more the lag is beyond the threshold:
 *
 *     base * decay ^ ((lag - threshold) / threshold) * fudge * (writes begun per entry)
 *
 * Threading: any thread; flow_control_refresh by one.
 */
#pragma once

#include <stdatomic.h>

#include "base/error.h"
#include "base/thread.h"
#include "bson/builder.h"
#include "concurrency/op_ctx.h"

typedef struct FlowSettings {
    bool is_enabled;
    double target_lag_s;
    double threshold_part; /* of the target lag */
    double tickets_min;
    double decay;
    double fudge;
    double adder;
    double multiplier;
} FlowSettings;

/* The rule alone: tickets of the next second. `sustained` and `locks_per_entry` are those of the
 * last one. */
double flow_control_tickets(const FlowSettings *settings, double tickets_before, double lag_s,
                            double sustained, double locks_per_entry);

enum {
    FLOW_SAMPLES_MAX = 4096,
};

typedef struct FlowSample {
    uint64_t ts;
    int64_t entries; /* written up to there, since start */
} FlowSample;

typedef struct FlowControl {
    _Atomic int64_t tickets; /* left in this second */
    _Atomic int64_t granted; /* since start */
    _Atomic int64_t entries; /* written since start */
    _Atomic int64_t waited_us;
    Mutex mu;
    /* Guarded by mu. */
    FlowSample samples[FLOW_SAMPLES_MAX]; /* a ring */
    uint64_t sample_count;                /* ever taken */
    int64_t rate;                         /* tickets per second */
    int64_t sustained;
    double locks_per_entry;
    bool is_lagged;
    int64_t lagged_count;
    int64_t lagged_us;
    int64_t granted_before;
    int64_t entries_before;
    int64_t committed_before;
    bool is_enabled;
} FlowControl;

void flow_control_init(FlowControl *flow);
void flow_control_done(FlowControl *flow);

/* One more write may begin; waits for the next second when there are no more tickets. Call it
 * without locks. */
ErrCode flow_control_acquire(FlowControl *flow, OpCtx *op, Error *err) MUST_CHECK;
/* An entry was written, with this timestamp. */
void flow_control_note_entry(FlowControl *flow, uint64_t ts);
/* Once a second. `is_throttling` false: this node is no primary, or its set cannot lag. */
void flow_control_refresh(FlowControl *flow, const FlowSettings *settings, bool is_throttling,
                          double lag_s, uint64_t commit_ts);
/* serverStatus.flowControl */
void flow_control_build_status(FlowControl *flow, DocBuilder *b);
