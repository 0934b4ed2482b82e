/*
 * op_metrics.h - what one operation used: for the slow log, the profiler and currentOp (MET-1).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct OpMetrics {
    int64_t keys_examined;
    int64_t docs_examined;
    int64_t docs_returned;
    int64_t scans; /* of whole collections, and those of them that tail */
    int64_t tailing_scans;
    int64_t docs_inserted;
    int64_t docs_matched;
    int64_t docs_modified;
    int64_t docs_deleted;
    int64_t keys_inserted;
    int64_t keys_deleted;
    int64_t write_conflicts;
    int64_t temporarily_unavailable;
    int64_t yields;
    int64_t lock_wait_us;
    int64_t ticket_wait_us;
    int64_t storage_bytes_read;
    int64_t storage_bytes_written;
    int64_t cursor_id;
    int64_t lock_acquired[4]; /* by mode: IS, IX, S, X; of database and collection locks */
    uint32_t check_count;     /* calls of op_check_interrupt */
    /* Of a plan that was remembered and failed or found nothing for long, so that all were tried
     * again. */
    int64_t replan_works_expected;
    int64_t replan_works;     /* 0: there was none */
    const char *replan_error; /* as it failed, in the operation's arena; NULL: it did not */
    bool has_sort_stage;
    bool is_from_trial; /* its plan won a trial of several */
    bool used_disk;
    bool is_cursor_exhausted;
} OpMetrics;

enum {
    REPLAN_REASON_SIZE = 320,
};

/* As the profiler and the slow log tell it. */
static inline const char *op_replan_reason(const OpMetrics *m, char text[REPLAN_REASON_SIZE]) {
    if (m->replan_error != NULL)
        snprintf(text, REPLAN_REASON_SIZE, "cached plan returned: %s", m->replan_error);
    else
        snprintf(
            text, REPLAN_REASON_SIZE,
            "cached plan was less efficient than expected: no result after %lld works, where its "
            "trial had taken %lld",
            (long long)m->replan_works, (long long)m->replan_works_expected);
    return text;
}
