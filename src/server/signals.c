#include "server/signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "server/exit_codes.h"

static const int SIGNALS_WAITED_FOR[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

ErrCode signals_open(Signals *signals, Error *err) {
    signal(SIGPIPE, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(SIGNALS_WAITED_FOR); i++)
        sigaddset(&set, SIGNALS_WAITED_FOR[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signals->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    signals->request_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals->signal_fd < 0 || signals->request_fd < 0)
        return error_set(err, ERR_INTERNAL_ERROR, "could not set up signal handling: %s",
                         strerror(errno));
    return ERR_OK;
}

void signals_close(Signals *signals) {
    close(signals->signal_fd);
    close(signals->request_fd);
}

SignalEvent signals_wait(Signals *signals, SignalInfo *ret_info) {
    for (;;) {
        struct pollfd fds[] = {
            {.fd = signals->signal_fd, .events = POLLIN},
            {.fd = signals->request_fd, .events = POLLIN},
        };
        if (poll(fds, ARRAY_LEN(fds), -1) < 0)
            continue;
        struct signalfd_siginfo info;
        if (read(signals->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            *ret_info = (SignalInfo){(int)info.ssi_signo, (pid_t)info.ssi_pid, (uid_t)info.ssi_uid};
            return info.ssi_signo == SIGUSR1 ? SIGNAL_EVENT_ROTATE : SIGNAL_EVENT_STOP;
        }
        eventfd_t count;
        if (eventfd_read(signals->request_fd, &count) == 0) {
            *ret_info = (SignalInfo){0};
            return SIGNAL_EVENT_REQUEST;
        }
    }
}

void signals_request_stop(Signals *signals) {
    eventfd_write(signals->request_fd, 1);
}

/* Changed by the handler alone once it is set: only one thread gets these signals. */
static volatile sig_atomic_t spared_signals;

static void kill_now(int number) {
    (void)number;
    if (spared_signals-- > 0)
        return;
    _exit(EXIT_CODE_KILLED);
}

void signals_arm_kill(int spared) {
    spared_signals = spared;
    struct sigaction action = {.sa_handler = kill_now, .sa_flags = SA_RESTART};
    sigset_t set;
    sigemptyset(&set);
    signal(SIGTERM, SIG_IGN); /* supervisors repeat it; the stop is under way */
    sigaction(SIGINT, &action, NULL);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}
