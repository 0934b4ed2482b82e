#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Atomic. Set by tests only; a stale read is a clock that jumped a moment later. */
static _Atomic int64_t wall_offset_us;

static int64_t now_us(clockid_t id) {
    struct timespec at;
    clock_gettime(id, &at);
    return (int64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

int64_t clock_mono_us(void) {
    return now_us(CLOCK_MONOTONIC);
}

int64_t clock_thread_cpu_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

int64_t clock_wall_us(void) {
    return now_us(CLOCK_REALTIME) + atomic_load_explicit(&wall_offset_us, memory_order_relaxed);
}

int64_t clock_wall_ms(void) {
    return clock_wall_us() / 1000;
}

int64_t clock_thread_cpu_us(void) {
    return now_us(CLOCK_THREAD_CPUTIME_ID);
}

void clock_set_wall_offset_ms(int64_t offset_ms) {
    atomic_store_explicit(&wall_offset_us, offset_ms * 1000, memory_order_relaxed);
}

void clock_format_iso8601(int64_t wall_ms, char out[CLOCK_ISO8601_SIZE]) {
    int64_t ms = ((wall_ms % 1000) + 1000) % 1000; /* also right before 1970 */
    time_t seconds = (time_t)((wall_ms - ms) / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    char date[24];
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out, CLOCK_ISO8601_SIZE, "%s.%03d+00:00", date, (int)ms);
}
