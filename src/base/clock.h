/*
 * clock.h - the only way to ask what time it is.
 *
 * Wall time goes through an offset that tests can set (SHERD_CLOCK_OFFSET_MS at start, or
 * clock_set_wall_offset_ms), so that skewed and jumping clocks can be tried per process.
 */
#pragma once

#include <stdint.h>

int64_t clock_mono_us(void);
/* What this thread has computed so far. */
int64_t clock_thread_cpu_ns(void);
int64_t clock_wall_ms(void);
int64_t clock_wall_us(void);
/* CPU time of the calling thread. */
int64_t clock_thread_cpu_us(void);
void clock_set_wall_offset_ms(int64_t offset_ms);

/* Times given by clients may have any size: sums and products saturate at the largest value, which
 * means never. */
static inline int64_t clock_us_of_ms(int64_t ms) {
    int64_t us;
    return __builtin_mul_overflow(ms, INT64_C(1000), &us) ? (ms < 0 ? INT64_MIN : INT64_MAX) : us;
}
/* A deadline for waits; `us` from now. */
static inline int64_t clock_deadline_us(int64_t us) {
    int64_t at_us;
    return __builtin_add_overflow(clock_mono_us(), us, &at_us) ? INT64_MAX : at_us;
}
static inline int64_t clock_deadline_ms(int64_t ms) {
    return clock_deadline_us(clock_us_of_ms(ms));
}

enum {
    CLOCK_ISO8601_SIZE = 40,
};
/* "2026-11-15T12:00:00.000+00:00" */
void clock_format_iso8601(int64_t wall_ms, char out[CLOCK_ISO8601_SIZE]);
