/*
 * test_service.c - a service for tests: three phases that each leave a mark, so that a test can see
 * that every phase was done, whoever was primary.
 */
#include "repl/test_service.h"

#include "bson/builder.h"
#include "query/write/modify.h"
#include "repl/repl.h"

/* A mark of the phase: the same again changes nothing. */
static ErrCode leave_mark(PrimaryTask *task, OpCtx *op, const char *phase, Error *err) {
    Ns ns;
    TRY(ns_parse(STR("test.primaryServiceMarks"), &ns, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t filter = build_open_doc(&b, "f");
    size_t id = build_open_doc(&b, "_id");
    build_elem_as(&b, STR("task"), doc_get_lit(task_doc(task), "_id"));
    build_cstr(&b, "phase", phase);
    build_close(&b, id);
    build_close(&b, filter);
    size_t update = build_open_doc(&b, "u");
    size_t set = build_open_doc(&b, "$set");
    build_bool(&b, "isDone", true);
    build_close(&b, set);
    build_close(&b, update);
    Doc parts = doc_builder_end(&b);
    ModifyRequest request = {.kind = MODIFY_UPDATE,
                             .query = {.filter = elem_doc(doc_get_lit(parts, "f"))},
                             .is_upsert = true,
                             .update = doc_get_lit(parts, "u")};
    ModifyOutcome outcome;
    return exec_modify(op, &ns, &request, &outcome, err);
}

static ErrCode first(PrimaryTask *task, OpCtx *op, Error *err) {
    return leave_mark(task, op, "first", err);
}

static ErrCode second(PrimaryTask *task, OpCtx *op, Error *err) {
    return leave_mark(task, op, "second", err);
}

static ErrCode third(PrimaryTask *task, OpCtx *op, Error *err) {
    return leave_mark(task, op, "third", err);
}

static const TaskPhase PHASES[] = {
    {"first", first, "second"},
    {"second", second, "third"},
    {"third", third, NULL},
};

const PrimaryServiceSpec TEST_PRIMARY_SERVICE = {"TestService", "config.testPrimaryTasks", PHASES,
                                                 ARRAY_LEN(PHASES)};
