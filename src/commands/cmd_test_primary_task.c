/*
 * cmd_test_primary_task.c - _testPrimaryTask: tasks of the service for tests (REP-4); what a
 * request can say is in repl/task/test_service.c.
 *
 *     {_testPrimaryTask: <id>, branch, steps, hold, sleepMS, block, errors,   what the task does
 *      locks: [{name: "db"}, {name: "db.c", exclusive: true}], queue: true,
 *      keepOutcomeMS: 60000, wait: true}
 *     {_testPrimaryTask: <id>, action: "wait" | "abort" | "resume" | "acknowledge", code, reason}
 */
#include "commands/core/command.h"
#include "commands/support.h"
#include "repl/repl.h"
#include "repl/task/test_service.h"

typedef struct TestTaskRequest {
    Elem id;
    Str action;
    Str branch;
    int64_t steps;
    bool hold;
    int64_t sleep_ms;
    Str block;
    Doc errors;
    Doc locks;
    bool queue;
    bool wait;
    int64_t keep_ms;
    int32_t code;
    Str reason;
} TestTaskRequest;

static ErrCode parse_locks(Doc array, LockSet *set, Error *err) {
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Elem name = elem_type(elem) == BT_DOC ? doc_get_lit(elem_doc(elem), "name") : ELEM_MISSING;
        if (elem_type(name) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH, "'locks' has to be {name, exclusive} each");
        bool is_exclusive = elem_is_truthy(doc_get_lit(elem_doc(elem), "exclusive"));
        TRY(lock_set_add(set, elem_str(name), is_exclusive, err));
    }
    return ERR_OK;
}

/* What says what is to be done, in one order however the client wrote it. */
static Doc request_part(CommandCtx *ctx) {
    static const Str NAMES[] = {STR("branch"),  STR("steps"), STR("hold"),
                                STR("sleepMS"), STR("block"), STR("errors")};
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        Elem elem = doc_get(ctx->body, NAMES[i]);
        if (elem_is_present(elem))
            build_elem(&b, elem);
    }
    return doc_builder_end(&b);
}

static ErrCode wait_for_end(CommandCtx *ctx, Task *task, Error *err) {
    Doc result;
    TRY(task_wait(task, ctx->op, &result, err));
    build_doc(ctx->reply, "result", result);
    return ERR_OK;
}

static ErrCode begin(CommandCtx *ctx, TaskServices *services, const TestTaskRequest *request,
                     Error *err) {
    LockSet locks = {0};
    if (doc_is_present(request->locks))
        TRY(parse_locks(request->locks, &locks, err));
    TaskRequest wanted = {.service = TEST_SERVICE_NAME,
                          .id = request->id,
                          .request = request_part(ctx),
                          .locks = &locks,
                          .waits_for_locks = request->queue,
                          .outcome_keep_ms = request->keep_ms};
    Task *task;
    TRY(task_begin(services, ctx->op, &wanted, &task, err));
    ErrCode rc = request->wait ? wait_for_end(ctx, task, err) : ERR_OK;
    task_unref(task);
    return rc;
}

static ErrCode abort_task(CommandCtx *ctx, Task *task, const TestTaskRequest *request, Error *err) {
    CLEANUP(error_reset) Error reason = {0};
    error_set(&reason, request->code > 0 ? (ErrCode)request->code : ERR_INTERRUPTED, "%.*s",
              (int)request->reason.size, request->reason.size > 0 ? request->reason.data : "");
    return task_abort(task, ctx->op, &reason, err);
}

static ErrCode act(CommandCtx *ctx, TaskServices *services, const TestTaskRequest *request,
                   Error *err) {
    static const char *const ACTIONS[] = {"wait", "abort", "resume", "acknowledge"};
    size_t action = 0;
    while (action < ARRAY_LEN(ACTIONS) && !str_is(request->action, ACTIONS[action]))
        action++;
    if (action == ARRAY_LEN(ACTIONS))
        return error_set(err, ERR_BAD_VALUE, "unknown action \"%s\"", request->action.data);
    Task *task;
    TRY(task_find(services, TEST_SERVICE_NAME, request->id, &task, err));
    ErrCode rc = ERR_OK;
    if (action == 0)
        rc = wait_for_end(ctx, task, err);
    else if (action == 1)
        rc = abort_task(ctx, task, request, err);
    else if (action == 2)
        task_resume(task);
    else
        task_acknowledge(task);
    task_unref(task);
    return rc;
}

static ErrCode test_primary_task_run(CommandCtx *ctx, void *arg, Error *err) {
    const TestTaskRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    TaskServices *services = repl_tasks(repl);
    return request->action.size > 0 ? act(ctx, services, request, err)
                                    : begin(ctx, services, request, err);
}

static const FieldSpec TEST_TASK_FIELDS[] = {
    {"_testPrimaryTask", FIELD_ELEM, FIELD_REQUIRED, offsetof(TestTaskRequest, id)},
    {"action", FIELD_STRING, FIELD_OPTIONAL, offsetof(TestTaskRequest, action)},
    {"branch", FIELD_STRING, FIELD_OPTIONAL, offsetof(TestTaskRequest, branch)},
    {"steps", FIELD_COUNT, FIELD_OPTIONAL, offsetof(TestTaskRequest, steps)},
    {"hold", FIELD_BOOL, FIELD_OPTIONAL, offsetof(TestTaskRequest, hold)},
    {"sleepMS", FIELD_COUNT, FIELD_OPTIONAL, offsetof(TestTaskRequest, sleep_ms)},
    {"block", FIELD_STRING, FIELD_OPTIONAL, offsetof(TestTaskRequest, block)},
    {"errors", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(TestTaskRequest, errors)},
    {"locks", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(TestTaskRequest, locks)},
    {"queue", FIELD_BOOL, FIELD_OPTIONAL, offsetof(TestTaskRequest, queue)},
    {"wait", FIELD_BOOL, FIELD_OPTIONAL, offsetof(TestTaskRequest, wait)},
    {"keepOutcomeMS", FIELD_COUNT, FIELD_OPTIONAL, offsetof(TestTaskRequest, keep_ms)},
    {"code", FIELD_I32, FIELD_OPTIONAL, offsetof(TestTaskRequest, code)},
    {"reason", FIELD_STRING, FIELD_OPTIONAL, offsetof(TestTaskRequest, reason)},
};

const CommandSpec CMD_TEST_PRIMARY_TASK = {
    .name = "_testPrimaryTask",
    .summary = "For tests: begins a task that the primary, whoever it is, carries through.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(TestTaskRequest, TEST_TASK_FIELDS),
    .run = test_primary_task_run,
};
