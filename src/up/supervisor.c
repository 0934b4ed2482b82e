#include "up/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "up/setup.h"

enum {
    /* A node needs about a second, plus its last checkpoint. */
    STOP_MS_MAX = 60 * 1000,
};

static const int SIGNALS_WAITED_FOR[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};

ErrCode supervisor_init(Supervisor *supervisor, const Launcher *launcher, const Parts *parts,
                        const Events *events, Error *err) {
    *supervisor = (Supervisor){.launcher = launcher, .parts = parts, .events = events};
    signal(SIGPIPE, SIG_IGN); /* who read the events may leave */
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(SIGNALS_WAITED_FOR); i++)
        sigaddset(&set, SIGNALS_WAITED_FOR[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    supervisor->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (supervisor->signal_fd < 0)
        return error_set(err, ERR_INTERNAL_ERROR, "could not set up signal handling: %s",
                         strerror(errno));
    return ERR_OK;
}

void supervisor_done(Supervisor *supervisor) {
    if (supervisor->signal_fd > 0)
        close(supervisor->signal_fd);
}

static void wake_setup(Supervisor *supervisor) {
    if (supervisor->setup != NULL)
        setup_wake(supervisor->setup);
}

/* ---- starts and deaths ---- */

static void start_later(Supervisor *supervisor, uint32_t i, int64_t lived_ms) {
    Child *child = &supervisor->children[i];
    int64_t delay_ms = backoff_delay_ms(&child->backoff, lived_ms);
    child->start_us = clock_deadline_ms(delay_ms);
    events_tell(
        supervisor->events,
        &(Event){.kind = "restarting", .part = &supervisor->parts->rows[i], .delay_ms = delay_ms});
}

static void start(Supervisor *supervisor, uint32_t i) {
    CLEANUP(error_reset) Error err = {0};
    const Part *part = &supervisor->parts->rows[i];
    Child *child = &supervisor->children[i];
    pid_t pid;
    child->started_us = clock_mono_us();
    child->start_us = INT64_MAX;
    if (launch_part(supervisor->launcher, part, &pid, &err) != ERR_OK) {
        events_tell(supervisor->events,
                    &(Event){.kind = "problem", .part = part, .message = error_message(&err)});
        start_later(supervisor, i, /* lived_ms= */ 0);
        return;
    }
    events_tell(supervisor->events, &(Event){.kind = "starting", .part = part, .pid = pid});
    atomic_store(&supervisor->pids[i], pid);
    wake_setup(supervisor);
}

static void on_death(Supervisor *supervisor, uint32_t i, pid_t pid, int wait_status) {
    const Part *part = &supervisor->parts->rows[i];
    atomic_store(&supervisor->pids[i], 0);
    Event event = {
        .kind = "died", .part = part, .pid = pid, .has_ended = true, .wait_status = wait_status};
    if (supervisor->is_stopping) {
        event.kind = "stopped";
        events_tell(supervisor->events, &event);
        return;
    }
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    event.log = launch_log_path(supervisor->launcher->directory->path, part, &arena);
    events_tell(supervisor->events, &event);
    start_later(supervisor, i, (clock_mono_us() - supervisor->children[i].started_us) / 1000);
    wake_setup(supervisor);
}

static void reap(Supervisor *supervisor) {
    for (uint32_t i = 0; i < supervisor->parts->count; i++) {
        pid_t pid = atomic_load(&supervisor->pids[i]);
        int wait_status;
        if (pid != 0 && waitpid(pid, &wait_status, WNOHANG) == pid)
            on_death(supervisor, i, pid, wait_status);
    }
}

/* ---- signals ---- */

/* Waits for signals until `until_us` and takes those that came. */
static void take_signals(Supervisor *supervisor, int64_t until_us) {
    int64_t left_ms = until_us == INT64_MAX ? -1 : (until_us - clock_mono_us()) / 1000 + 1;
    struct pollfd fd = {.fd = supervisor->signal_fd, .events = POLLIN};
    poll(&fd, 1, until_us != INT64_MAX && left_ms < 0 ? 0 : (int)left_ms);
    struct signalfd_siginfo info;
    while (read(supervisor->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        supervisor->is_hurried = supervisor->is_stopping;
        supervisor->is_stopping = true;
    }
    reap(supervisor);
}

void supervisor_run(Supervisor *supervisor) {
    while (!supervisor->is_stopping) {
        int64_t now_us = clock_mono_us(), next_us = INT64_MAX;
        for (uint32_t i = 0; i < supervisor->parts->count; i++) {
            if (supervisor->children[i].start_us <= now_us)
                start(supervisor, i);
            if (supervisor->children[i].start_us < next_us)
                next_us = supervisor->children[i].start_us;
        }
        take_signals(supervisor, next_us);
    }
}

/* ---- the stop ---- */

static uint32_t signal_role(Supervisor *supervisor, PartRole role, int number) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < supervisor->parts->count; i++) {
        pid_t pid = atomic_load(&supervisor->pids[i]);
        if (supervisor->parts->rows[i].role != role || pid == 0)
            continue;
        if (number != 0)
            kill(pid, number);
        count++;
    }
    return count;
}

static void tell_stopping(Supervisor *supervisor, PartRole role) {
    for (uint32_t i = 0; i < supervisor->parts->count; i++) {
        const Part *part = &supervisor->parts->rows[i];
        pid_t pid = atomic_load(&supervisor->pids[i]);
        if (part->role == role && pid != 0)
            events_tell(supervisor->events, &(Event){.kind = "stopping", .part = part, .pid = pid});
    }
}

static void stop_role(Supervisor *supervisor, PartRole role) {
    tell_stopping(supervisor, role);
    int64_t until_us = clock_deadline_ms(STOP_MS_MAX);
    signal_role(supervisor, role, SIGTERM);
    while (signal_role(supervisor, role, 0) > 0) {
        if (supervisor->is_hurried || clock_mono_us() >= until_us) {
            supervisor->was_killed = true;
            signal_role(supervisor, role, SIGKILL);
            until_us = INT64_MAX;
        }
        take_signals(supervisor, until_us);
    }
}

bool supervisor_stop(Supervisor *supervisor) {
    static const PartRole ORDER[] = {PART_ROUTER, PART_SHARD, PART_CONFIG};
    supervisor->is_stopping = true;
    events_tell(supervisor->events, &(Event){.kind = "stopping"});
    for (size_t i = 0; i < ARRAY_LEN(ORDER); i++)
        stop_role(supervisor, ORDER[i]);
    events_tell(supervisor->events, &(Event){.kind = "stopped"});
    return !supervisor->was_killed;
}
