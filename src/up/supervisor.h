/*
 * supervisor.h - the processes of a cluster as children: started, started again when they die,
 * stopped in order.
 *
 * Threading: the main thread. No signal handler runs code: signals are read from a descriptor.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "up/backoff.h"
#include "up/events.h"
#include "up/launch.h"
#include "up/layout.h"

typedef struct Setup Setup;

typedef struct Child {
    int64_t started_us;
    int64_t start_us; /* when to start it; INT64_MAX: runs, or is not wanted any more */
    Backoff backoff;
} Child;

typedef struct Supervisor {
    const Launcher *launcher;
    const Parts *parts;
    const Events *events;
    Setup *setup; /* woken by changes; NULL: none */
    int signal_fd;
    bool is_stopping;
    bool is_hurried; /* a second signal: kill all */
    bool was_killed; /* some child did not end by itself */
    Child children[LAYOUT_PARTS_MAX];
    _Atomic int pids[LAYOUT_PARTS_MAX]; /* 0: does not run; written by the main thread */
} Supervisor;

/* Blocks the signals, so that threads that are started later do not get them. */
ErrCode supervisor_init(Supervisor *supervisor, const Launcher *launcher, const Parts *parts,
                        const Events *events, Error *err) MUST_CHECK;
void supervisor_done(Supervisor *supervisor);

/* Starts everything and keeps it alive until a signal to stop comes. */
void supervisor_run(Supervisor *supervisor);
/* Stops everything: routers, shards, config server. False if a child had to be killed. */
bool supervisor_stop(Supervisor *supervisor);
