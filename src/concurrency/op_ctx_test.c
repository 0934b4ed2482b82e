#include "concurrency/op_ctx.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"
#include "base/thread.h"

static rlim_t set_descriptor_limit(rlim_t count) {
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = count;
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return before;
}

static void kill_soon(void *arg) {
    usleep(20 * 1000);
    op_kill(arg, ERR_INTERRUPTED);
}

TEST(operation_without_a_descriptor_still_waits) {
    /* Goal (NET-1): with no descriptor left to be woken by, a wait still sees data, its deadline
     * and a kill; so a process without descriptors goes on with the connections that it has. */
    OpRegistry *registry = op_registry_new();
    OpCtx *op = op_ctx_new(registry, NULL, NULL);
    op_begin(op, &(OpDescription){.op_type = "none", .ns = ""});
    int ends[2];
    EXPECT(pipe(ends) == 0);
    rlim_t limit = set_descriptor_limit(3);
    CLEANUP(error_reset) Error err = {0};
    struct pollfd fds[2] = {{.fd = ends[0], .events = POLLIN}};

    int64_t deadline_us = clock_deadline_ms(30);
    while (clock_mono_us() < deadline_us) {
        EXPECT_OK(op_poll(op, fds, 1, deadline_us, &err), err);
        EXPECT(fds[0].revents == 0);
    }
    EXPECT(write(ends[1], "x", 1) == 1);
    EXPECT_OK(op_poll(op, fds, 1, INT64_MAX, &err), err);
    EXPECT(fds[0].revents == POLLIN);

    char byte;
    EXPECT(read(ends[0], &byte, 1) == 1);
    Thread killer = {0};
    EXPECT_OK(thread_start(&killer, "killer", kill_soon, op, &err), err);
    ErrCode rc = ERR_OK;
    while (rc == ERR_OK)
        rc = op_poll(op, fds, 1, INT64_MAX, &err);
    EXPECT(rc == ERR_INTERRUPTED);
    thread_join(&killer);

    set_descriptor_limit(limit);
    close(ends[0]);
    close(ends[1]);
    op_end(op);
    op_ctx_free(op);
    op_registry_free(registry);
}
