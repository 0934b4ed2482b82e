/*
 * events.h - what happens, told to whoever started the cluster: lines to read on a terminal, lines
 * of JSON elsewhere.
 *
 * Threading: any thread; a line is one write(2).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "up/layout.h"

typedef struct Events {
    bool is_terminal;
    const char *dir; /* the name of the cluster */
} Events;

/* What is 0, NULL or false is not told. */
typedef struct Event {
    const char *kind; /* "starting", "ready", "died", "restarting", "stopping", "stopped",
                         "problem" */
    const Part *part; /* NULL: the cluster */
    pid_t pid;
    const char *state;
    bool has_ended;
    int wait_status; /* how, as of waitpid */
    int64_t delay_ms;
    int64_t after_ms; /* how long it took */
    const char *uri;
    const char *log;
    const char *message;
} Event;

void events_init(Events *events, const char *dir);
void events_tell(const Events *events, const Event *event);
