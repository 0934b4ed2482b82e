/*
 * test_service.c - phases that leave marks, so that a test can see what was done, whoever was
 * primary.
 *
 *     first --> second (steps times) --> third | point of no return before it | --> done
 *       |         ^
 *       +-detour--+            abort, final error: undo --> done
 *
 * Request: {branch: "detour", steps: 3, hold: true, sleepMS: 100, block: "db.c",
 *           errors: [{phase: "second", code: 6, times: 2, info: {...}}]}
 *
 * A mark is a document {_id: {task, phase}, runs} of test.primaryServiceMarks: there once however
 * often the phase ran. `hold` waits in "second" for the mark of a phase "release", which a client
 * inserts; `sleepMS` sleeps there with its thread. `block` refuses writes to a collection from
 * "first" to the end, and the result tells how many documents there were at both ends.
 */
#include "repl/task/test_service.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/json.h"
#include "catalog/access.h"
#include "catalog/write_observer.h"
#include "index/lookup.h"
#include "query/write/modify.h"

enum {
    BLOCKS_MAX = 64,
    HOLD_LOOK_MS = 20,
};

struct TestService {
    /* Atomic: what a write looks at when nothing is blocked. Written under mu. Relaxed suffices:
     * whoever blocks takes the collection in X afterwards, whoever writes holds it in IX. */
    _Atomic int blocked_count;
    Mutex mu;
    /* Guarded by mu. */
    Ns blocked[BLOCKS_MAX];
};

static const Ns MARKS_NS = {.size = sizeof("test.primaryServiceMarks") - 1,
                            .db_size = 4,
                            .text = "test.primaryServiceMarks"};

/* ---- what tasks block ---- */

static int find_block_locked(const TestService *test, const Ns *ns) {
    int count = atomic_load_explicit(&test->blocked_count, memory_order_relaxed);
    for (int i = 0; i < count; i++)
        if (ns_equal(&test->blocked[i], ns))
            return i;
    return -1;
}

/* Twice is the same as once: "first" may run again. */
static ErrCode block(TestService *test, const Ns *ns, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&test->mu);
    int count = atomic_load_explicit(&test->blocked_count, memory_order_relaxed);
    if (find_block_locked(test, ns) >= 0)
        return ERR_OK;
    if (count == BLOCKS_MAX)
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT, "%d collections are blocked", BLOCKS_MAX);
    test->blocked[count] = *ns;
    atomic_store_explicit(&test->blocked_count, count + 1, memory_order_relaxed);
    return ERR_OK;
}

static void unblock(TestService *test, const Ns *ns) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&test->mu);
    int at = find_block_locked(test, ns);
    if (at < 0)
        return;
    int last = atomic_load_explicit(&test->blocked_count, memory_order_relaxed) - 1;
    test->blocked[at] = test->blocked[last];
    atomic_store_explicit(&test->blocked_count, last, memory_order_relaxed);
}

static ErrCode check(void *arg, const OpCtx *op, const Ns *ns, Error *err) {
    TestService *test = arg;
    /* What another primary decided is applied whatever is blocked here. */
    if (LIKELY(atomic_load_explicit(&test->blocked_count, memory_order_relaxed) == 0) ||
        op->mode.is_unreplicated || op->mode.is_applying)
        return ERR_OK;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&test->mu);
    if (find_block_locked(test, ns) < 0)
        return ERR_OK;
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "writes to \"%s\" are blocked by a task", ns->text);
}

static ErrCode before_inserts(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err) {
    (void)docs, (void)count;
    return check(arg, op, &coll->ns, err);
}

static ErrCode on_insert(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                         Error *err) {
    (void)arg, (void)op, (void)coll, (void)doc, (void)i, (void)err;
    return ERR_OK;
}

static ErrCode on_update(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         const UpdateForm *form, Error *err) {
    (void)before, (void)after, (void)form;
    return check(arg, op, &coll->ns, err);
}

static ErrCode on_delete(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err) {
    (void)before;
    return check(arg, op, &coll->ns, err);
}

static ErrCode on_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    return check(arg, op, entry->ns, err);
}

static bool blocks(Doc request, Ns *ret_ns) {
    CLEANUP(error_reset) Error err = {0};
    Elem name = doc_get_lit(request, "block");
    return elem_type(name) == BT_STRING && ns_parse(elem_str(name), ret_ns, &err) == ERR_OK;
}

static Doc request_of(Doc doc) {
    Elem request = doc_get_path(doc, "task.request");
    return elem_type(request) == BT_DOC ? elem_doc(request) : DOC_EMPTY;
}

static void reset(void *arg) {
    TestService *test = arg;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&test->mu);
    atomic_store_explicit(&test->blocked_count, 0, memory_order_relaxed);
}

/* In every phase but the first, which has not promised anything yet. */
static ErrCode rebuild(void *arg, OpCtx *op, Doc doc, Error *err) {
    (void)op;
    Ns ns;
    Elem phase = doc_get_lit(doc, "phase");
    bool is_first = elem_type(phase) == BT_STRING && str_is(elem_str(phase), "first");
    return !is_first && blocks(request_of(doc), &ns) ? block(arg, &ns, err) : ERR_OK;
}

static void ended(void *arg, Doc doc) {
    Ns ns;
    if (blocks(request_of(doc), &ns))
        unblock(arg, &ns);
}

/* ---- parts of phases ---- */

static Doc mark_id(Task *task, OpCtx *op, const char *phase) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t id = build_open_doc(&b, "_id");
    build_elem_as(&b, STR("task"), doc_get_lit(task_doc(task), "_id"));
    build_cstr(&b, "phase", phase);
    build_close(&b, id);
    return doc_builder_end(&b);
}

/* The same again changes nothing but the number of runs. */
static ErrCode leave_mark(Task *task, OpCtx *op, const char *phase, Error *err) {
    Doc update;
    TRY(doc_from_json("{'u': {'$inc': {'runs': 1}}}", &op->arena, &update, err));
    ModifyRequest request = {.kind = MODIFY_UPDATE,
                             .query = {.filter = mark_id(task, op, phase)},
                             .is_upsert = true,
                             .update = doc_get_lit(update, "u")};
    ModifyOutcome outcome;
    return exec_modify(op, &MARKS_NS, &request, &outcome, err);
}

static ErrCode is_released(Task *task, OpCtx *op, bool *ret_is, Error *err) {
    *ret_is = false;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &MARKS_NS, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    Doc mark;
    TRY(lookup_document(op, access.coll, doc_get_lit(mark_id(task, op, "release"), "_id"),
                        &op->arena, &mark, err));
    *ret_is = doc_is_present(mark);
    return ERR_OK;
}

/* The failure that the request wants here, as often as it wants it. */
static ErrCode inject(Task *task, const char *phase, Error *err) {
    Elem errors = doc_get_lit(task_request(task), "errors");
    if (elem_type(errors) != BT_ARRAY)
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(errors));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Doc row = elem_type(elem) == BT_DOC ? elem_doc(elem) : DOC_EMPTY;
        Elem name = doc_get_lit(row, "phase");
        Elem times = doc_get_lit(row, "times");
        int64_t count = elem_is_number(times) ? elem_as_i64(times) : 1;
        if (elem_type(name) != BT_STRING || !str_is(elem_str(name), phase) ||
            (int64_t)task_failures(task) >= count)
            continue;
        ErrCode rc = error_set(err, (ErrCode)elem_as_i64(doc_get_lit(row, "code")),
                               "wanted by the request, time %u", task_failures(task) + 1);
        Elem info = doc_get_lit(row, "info");
        if (elem_type(info) == BT_DOC)
            error_set_extra(err, elem_doc(info).data);
        return rc;
    }
    return ERR_OK;
}

static ErrCode count_one(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)doc, (void)is_over, (void)err;
    (*(int64_t *)arg)++;
    return ERR_OK;
}

static ErrCode count_documents(OpCtx *op, const Ns *ns, int64_t *ret_count, Error *err) {
    *ret_count = 0;
    return access_each(op, ns, /* is_forward= */ true, count_one, ret_count, err);
}

static ErrCode block_writes(Task *task, OpCtx *op, const Ns *ns, Error *err) {
    TRY(block(task_arg(task), ns, err));
    /* Writers that looked before the block are through once the collection was had in X. */
    CollAccess access = {0};
    TRY(access_write(op, ns, LOCK_X, &access, err));
    access_done(&access);
    int64_t count;
    TRY(count_documents(op, ns, &count, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i64(&b, "countAtBlock", count);
    task_set_fields(task, doc_builder_end(&b));
    return ERR_OK;
}

/* ---- phases ---- */

static ErrCode first(Task *task, OpCtx *op, Error *err) {
    TRY(inject(task, "first", err));
    TRY(leave_mark(task, op, "first", err));
    Ns ns;
    if (blocks(task_request(task), &ns))
        TRY(block_writes(task, op, &ns, err));
    Elem branch = doc_get_lit(task_request(task), "branch");
    if (elem_type(branch) == BT_STRING && str_is(elem_str(branch), "detour"))
        task_go_to(task, "detour");
    return ERR_OK;
}

static ErrCode detour(Task *task, OpCtx *op, Error *err) {
    TRY(inject(task, "detour", err));
    return leave_mark(task, op, "detour", err);
}

static ErrCode second(Task *task, OpCtx *op, Error *err) {
    int64_t steps = elem_as_i64(doc_get_lit(task_request(task), "steps"));
    int64_t done = elem_as_i64(doc_get_lit(task_doc(task), "stepsDone")) + 1;
    if (steps > 0)
        task_set_progress(task, done - 1, steps);
    TRY(inject(task, "second", err));
    bool is_free = true;
    if (elem_is_truthy(doc_get_lit(task_request(task), "hold")))
        TRY(is_released(task, op, &is_free, err));
    if (!is_free) {
        task_again(task, HOLD_LOOK_MS);
        return ERR_OK;
    }
    TRY(op_sleep_us(op, clock_us_of_ms(elem_as_i64(doc_get_lit(task_request(task), "sleepMS"))),
                    err));
    TRY(leave_mark(task, op, "second", err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    Elem count = doc_get_lit(task_doc(task), "countAtBlock");
    if (elem_is_present(count))
        build_elem(&b, count);
    build_i64(&b, "stepsDone", done);
    task_set_fields(task, doc_builder_end(&b));
    task_go_to(task, done < steps ? "second" : "third");
    return ERR_OK;
}

static ErrCode third(Task *task, OpCtx *op, Error *err) {
    TRY(inject(task, "third", err));
    TRY(leave_mark(task, op, "third", err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_elem_as(&b, STR("steps"), doc_get_lit(task_doc(task), "stepsDone"));
    build_i64(&b, "term", task_term(task));
    Ns ns;
    if (blocks(task_request(task), &ns)) {
        int64_t count;
        TRY(count_documents(op, &ns, &count, err));
        build_elem(&b, doc_get_lit(task_doc(task), "countAtBlock"));
        build_i64(&b, "countAtEnd", count);
    }
    task_set_result(task, doc_builder_end(&b));
    return ERR_OK;
}

static ErrCode undo(Task *task, OpCtx *op, Error *err) {
    TRY(inject(task, "undo", err));
    return leave_mark(task, op, "undo", err);
}

static const TaskPhase PHASES[] = {
    {"first", TASK_OPEN, first, {"second", "detour"}, {{0}}},
    {"detour", TASK_OPEN, detour, {"second"}, {{[TASK_ERROR_STALE] = TASK_FAIL}}},
    {"second", TASK_OPEN, second, {"third", "second"}, {{0}}},
    {"third", TASK_COMMITTED, third, {TASK_DONE}, {{[TASK_ERROR_RESOURCE] = TASK_STOP}}},
    {"undo", TASK_ABORTING, undo, {TASK_DONE}, {{0}}},
};

static const TaskServiceSpec TEST_SERVICE = {
    .name = TEST_SERVICE_NAME,
    .ns = "config.testPrimaryTasks",
    .phases = PHASES,
    .phase_count = ARRAY_LEN(PHASES),
    .abort_phase = "undo",
    .threads_max = 4,
    .reset = reset,
    .rebuild = rebuild,
    .ended = ended,
};

TestService *test_service_new(ServiceCtx *service, TaskServices *services) {
    TestService *test = NEW(TestService);
    mutex_init(&test->mu, LOCK_RANK_LEAF);
    task_services_register(services, &TEST_SERVICE, test);
    WriteObservers *observers = catalog_write_observers(service->catalog);
    invariant(observers->count < WRITE_OBSERVERS_MAX);
    observers->rows[observers->count++] = (WriteObserver){.arg = test,
                                                          .before_inserts = before_inserts,
                                                          .on_insert = on_insert,
                                                          .on_update = on_update,
                                                          .on_delete = on_delete,
                                                          .on_ddl = on_ddl};
    return test;
}

void test_service_free(TestService *test) {
    if (test == NULL)
        return;
    mutex_done(&test->mu);
    xfree(test);
}
