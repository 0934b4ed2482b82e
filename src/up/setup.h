/*
 * setup.h - makes one cluster out of the processes: initiates the sets, adds the shards, and finds
 * out when everything works.
 *
 * A thread of its own goes in rounds: it looks at the state of every part and does what is missing,
 * until nothing is. Each step may have been done before, by this process or by one that was killed,
 * so that a round needs to know nothing about the past. It sleeps while all is well; whoever starts
 * or loses a process wakes it.
 *
 * Threading: setup_wake from any thread; the rest by one.
 */
#pragma once

#include <stdatomic.h>

#include "base/error.h"
#include "up/events.h"
#include "up/layout.h"

typedef struct Setup Setup;

typedef struct SetupConfig {
    const Layout *layout;
    const Parts *parts;
    const _Atomic int *pids; /* of the parts; 0: does not run */
    const Events *events;
    int64_t begun_us; /* from when to measure the start */
} SetupConfig;

Setup *setup_new(const SetupConfig *config);
ErrCode setup_start(Setup *setup, Error *err) MUST_CHECK;
void setup_wake(Setup *setup);
void setup_free(Setup *setup); /* NULL is fine; stops it at once */
