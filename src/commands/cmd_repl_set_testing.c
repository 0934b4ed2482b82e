/* cmd_repl_set_testing.c - replSetTest: waits until this member is in a certain state; for tests.
 */
#include "base/clock.h"
#include "commands/core/command.h"
#include "commands/support.h"
#include "concurrency/op_ctx.h"
#include "repl/repl.h"

enum {
    LOOK_INTERVAL_US = 10 * 1000,
};

typedef struct ReplSetTestRequest {
    Elem repl_set_test;
    Elem state;
    Elem timeout_ms;
    Elem drain_timeout_ms;
} ReplSetTestRequest;

typedef struct Wanted {
    bool is_drained; /* a primary that takes writes, or no primary; else a state */
    ReplState state;
    bool is_met;
} Wanted;

static void look(void *arg, const ReplCore *core) {
    Wanted *wanted = arg;
    ReplState state = repl_core_state(core);
    wanted->is_met = wanted->is_drained ? state != REPL_PRIMARY || repl_core_is_writable(core)
                                        : state == wanted->state;
}

static ErrCode wait_until(CommandCtx *ctx, Repl *repl, Wanted *wanted, int64_t timeout_ms,
                          Error *err) {
    int64_t deadline_us = clock_deadline_ms(timeout_ms);
    for (;;) {
        repl_inspect(repl, look, wanted);
        if (wanted->is_met)
            return ERR_OK;
        if (clock_mono_us() >= deadline_us)
            return error_set(err, ERR_EXCEEDED_TIME_LIMIT,
                             "this member did not come to the state within %lld ms",
                             (long long)timeout_ms);
        TRY(op_sleep_us(ctx->op, LOOK_INTERVAL_US, err));
    }
}

static ErrCode read_number(Elem elem, const char *name, int64_t max, int64_t *ret_value,
                           Error *err) {
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH, "replSetTest.%s is a number", name);
    *ret_value = elem_as_i64(elem);
    if (*ret_value < 0 || *ret_value > max)
        return error_set(err, ERR_BAD_VALUE, "replSetTest.%s is a number from 0 to %lld", name,
                         (long long)max);
    return ERR_OK;
}

static ErrCode repl_set_test_run(CommandCtx *ctx, void *arg, Error *err) {
    const ReplSetTestRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    int64_t state = 0, timeout_ms = 0;
    if (elem_is_present(request->state)) {
        TRY(read_number(request->state, "waitForMemberState", REPL_REMOVED, &state, err));
        TRY(read_number(request->timeout_ms, "timeoutMillis", INT32_MAX, &timeout_ms, err));
        return wait_until(ctx, repl, &(Wanted){.state = (ReplState)state}, timeout_ms, err);
    }
    if (elem_is_present(request->drain_timeout_ms)) {
        TRY(read_number(request->drain_timeout_ms, "waitForDrainFinish", INT32_MAX, &timeout_ms,
                        err));
        return wait_until(ctx, repl, &(Wanted){.is_drained = true}, timeout_ms, err);
    }
    return ERR_OK;
}

static const FieldSpec REPL_SET_TEST_FIELDS[] = {
    {"replSetTest", FIELD_ELEM, FIELD_REQUIRED, offsetof(ReplSetTestRequest, repl_set_test)},
    {"waitForMemberState", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ReplSetTestRequest, state)},
    {"timeoutMillis", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ReplSetTestRequest, timeout_ms)},
    {"waitForDrainFinish", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(ReplSetTestRequest, drain_timeout_ms)},
};

const CommandSpec CMD_REPL_SET_TEST = {
    .name = "replSetTest",
    .summary = "Waits until this member is in a certain state.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(ReplSetTestRequest, REPL_SET_TEST_FIELDS),
    .run = repl_set_test_run,
};
