/*
 * backoff.h - how long to wait before a process that died is started again (pure).
 *
 * The first restart comes soon; a process that dies again and again waits twice as long each time,
 * up to a bound. One that lived for a minute has proved that it works, and begins anew.
 */
#pragma once

#include <stdint.h>

enum {
    BACKOFF_MS_MIN = 500,
    BACKOFF_MS_MAX = 30 * 1000,
    BACKOFF_FORGIVEN_MS = 60 * 1000,
};

typedef struct Backoff {
    int64_t next_ms; /* 0: never died */
} Backoff;

/* The delay after a death, when the process had lived for `lived_ms`. */
int64_t backoff_delay_ms(Backoff *backoff, int64_t lived_ms);
