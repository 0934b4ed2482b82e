/* cmd_configure_fail_point.c - configureFailPoint and waitForFailPoint, for tests. */
#include "base/failpoint.h"
#include "commands/core/command.h"
#include "commands/fail_point_config.h"

typedef struct ConfigureRequest {
    Str name;
    Elem mode;
    Doc data;
} ConfigureRequest;

typedef struct WaitRequest {
    Str name;
    int64_t times_entered;
} WaitRequest;

enum {
    WAIT_POLL_US = 5000,
};

static ErrCode configure_run(CommandCtx *ctx, void *arg, Error *err) {
    const ConfigureRequest *request = arg;
    FailpointCounts counts;
    TRY(fail_point_configure(request->name, request->mode, request->data, &counts, err));
    build_count(ctx->reply, "count", counts.fired);
    build_count(ctx->reply, "entered", counts.entered);
    return ERR_OK;
}

static ErrCode wait_run(CommandCtx *ctx, void *arg, Error *err) {
    const WaitRequest *request = arg;
    FailpointId id = FP_COUNT;
    TRY(fail_point_find(request->name, &id, err));
    while (failpoint_fired_count(id) < request->times_entered)
        TRY(op_sleep_us(ctx->op, WAIT_POLL_US, err));
    return ERR_OK;
}

static const FieldSpec CONFIGURE_FIELDS[] = {
    {"configureFailPoint", FIELD_STRING, FIELD_REQUIRED, offsetof(ConfigureRequest, name)},
    {"mode", FIELD_ELEM, FIELD_REQUIRED, offsetof(ConfigureRequest, mode)},
    {"data", FIELD_DOC, FIELD_OPTIONAL, offsetof(ConfigureRequest, data)},
};

const CommandSpec CMD_CONFIGURE_FAIL_POINT = {
    .name = "configureFailPoint",
    .summary = "Makes a named place in the server fail or wait.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(ConfigureRequest, CONFIGURE_FIELDS),
    .run = configure_run,
};

static const FieldSpec WAIT_FIELDS[] = {
    {"waitForFailPoint", FIELD_STRING, FIELD_REQUIRED, offsetof(WaitRequest, name)},
    {"timesEntered", FIELD_COUNT, FIELD_REQUIRED, offsetof(WaitRequest, times_entered)},
};

const CommandSpec CMD_WAIT_FOR_FAIL_POINT = {
    .name = "waitForFailPoint",
    .summary = "Waits until a failpoint has fired so often since the start.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(WaitRequest, WAIT_FIELDS),
    .run = wait_run,
};
