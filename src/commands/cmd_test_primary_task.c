/* cmd_test_primary_task.c - testPrimaryTask: begins a task of the service for tests (REP-4). */
#include "commands/core/command.h"
#include "commands/support.h"
#include "repl/repl.h"

typedef struct TestTaskRequest {
    Elem id;
} TestTaskRequest;

static ErrCode test_primary_task_run(CommandCtx *ctx, void *arg, Error *err) {
    TestTaskRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_elem_as(&b, STR("_id"), request->id);
    return primary_services_begin(repl_primary_services(repl), ctx->op, "TestService",
                                  doc_builder_end(&b), err);
}

static const FieldSpec TEST_TASK_FIELDS[] = {
    {"testPrimaryTask", FIELD_ELEM, FIELD_REQUIRED, offsetof(TestTaskRequest, id)},
};

const CommandSpec CMD_TEST_PRIMARY_TASK = {
    .name = "testPrimaryTask",
    .summary = "For tests: begins a task that the primary, whoever it is, carries through.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES | CMD_NEEDS_TEST_COMMANDS,
    .fields = TEST_TASK_FIELDS,
    .field_count = ARRAY_LEN(TEST_TASK_FIELDS),
    .request_size = sizeof(TestTaskRequest),
    .run = test_primary_task_run,
};
