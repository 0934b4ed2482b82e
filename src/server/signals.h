/*
 * signals.h - signals become events that the main thread waits for.
 *
 * All are blocked before any thread starts, so that no other code ever runs inside of a signal
 * handler. The one exception comes last: while the server stops, a further SIGTERM or SIGINT ends
 * it on the spot.
 */
#pragma once

#include <sys/types.h>

#include "base/error.h"

typedef enum SignalEvent {
    SIGNAL_EVENT_STOP,    /* SIGTERM, SIGINT, SIGHUP */
    SIGNAL_EVENT_ROTATE,  /* SIGUSR1 */
    SIGNAL_EVENT_REQUEST, /* signals_request_stop */
} SignalEvent;

typedef struct Signals {
    int signal_fd;
    int request_fd; /* eventfd */
} Signals;

typedef struct SignalInfo {
    int number;
    pid_t sender_pid;
    uid_t sender_uid;
} SignalInfo;

/* Blocks the signals for this thread and those started after. */
ErrCode signals_open(Signals *signals, Error *err) MUST_CHECK;
void signals_close(Signals *signals);
SignalEvent signals_wait(Signals *signals, SignalInfo *ret_info);
/* Wakes signals_wait; any thread. */
void signals_request_stop(Signals *signals);
/* From now on SIGINT ends the process at once, but for so many of them; SIGTERM means nothing new.
 */
void signals_arm_kill(int spared);
