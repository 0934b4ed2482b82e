/*
 * task_services.c - the table of tasks, and what callers can ask of it: begin, join, wait, abort,
 * resume.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "repl/task/task_internal.h"

static const LockSet NO_LOCKS;

TaskServices *task_services_new(ServiceCtx *service, const TaskEnv *env) {
    TaskServices *services = NEW(TaskServices);
    services->service = service;
    services->env = *env;
    mutex_init(&services->mu, LOCK_RANK_TASKS);
    cond_init(&services->work);
    cond_init(&services->quiet);
    list_init(&services->tasks);
    named_locks_init(&services->locks);
    uint64_t seed;
    secure_random(&seed, sizeof(seed));
    services->prng = prng_seeded(seed);
    return services;
}

void task_services_free(TaskServices *services) {
    if (services == NULL)
        return;
    invariant(services->task_count == 0);
    cond_done(&services->work);
    cond_done(&services->quiet);
    mutex_done(&services->mu);
    xfree(services);
}

void task_services_register(TaskServices *services, const TaskServiceSpec *spec, void *arg) {
    invariant(services->row_count < TASK_SERVICES_MAX);
    const char *wrong = task_spec_check(spec);
    if (wrong != NULL)
        panic("the table of the service \"%s\": %s", spec->name, wrong);
    ServiceRow *row = &services->rows[services->row_count++];
    *row = (ServiceRow){.spec = spec, .arg = arg};
    CLEANUP(error_reset) Error err = {0};
    if (ns_parse(str_from(spec->ns), &row->ns, &err) != ERR_OK)
        panic("the namespace of the service \"%s\": %s", spec->name, error_message(&err));
}

static ServiceRow *get_row(TaskServices *services, const char *name) {
    ServiceRow *found = NULL;
    for (size_t i = 0; i < services->row_count; i++)
        if (strcmp(services->rows[i].spec->name, name) == 0)
            found = &services->rows[i];
    invariant(found != NULL);
    return found;
}

/* ---- tasks ---- */

static char *make_label(const ServiceRow *row, Elem id) {
    enum { ID_BYTES_MAX = 200 };
    Buffer text;
    buffer_init(&text, BUFFER_UNBOUNDED); /* the id is cut to ID_BYTES_MAX */
    json_append_elem(&text, id, ID_BYTES_MAX);
    char *label =
        xasprintf("%.*s of \"%s\"", (int)text.size, (const char *)text.data, row->spec->name);
    buffer_done(&text);
    return label;
}

Task *task_new(TaskServices *services, ServiceRow *row, Doc doc, const TaskParts *parts) {
    Task *task = NEW(Task);
    task->services = services;
    task->row = row;
    task->label = make_label(row, parts->id);
    if (parts->locks.count > 0)
        task->locks = xmemdup(&parts->locks, sizeof(parts->locks));
    task->keep_ms = parts->keep_ms;
    task->started_us = clock_mono_us();
    task->refs = 1;
    task->hold.set = task->locks != NULL ? task->locks : &NO_LOCKS;
    list_init(&task->waiters);
    task->doc = doc_copy_heap(doc);
    task->phase = task_spec_find(row->spec, parts->phase);
    task->result = doc_copy_heap(DOC_EMPTY);
    task->again_ms = -1;
    return task;
}

static void task_free(Task *task) {
    invariant(list_is_empty(&task->waiters));
    invariant(task->node.next == NULL && task->hold.node.next == NULL);
    error_reset(&task->abort);
    error_reset(&task->error);
    error_reset(&task->failure);
    xfree(task->label);
    xfree(task->locks);
    xfree(task->doc);
    xfree(task->next_fields);
    xfree(task->result);
    xfree(task);
}

void task_unref_locked(Task *task) {
    assert_held(&task->services->mu);
    invariant(task->refs > 0);
    if (--task->refs == 0)
        task_free(task);
}

void task_unref(Task *task) {
    if (task == NULL)
        return;
    TaskServices *services = task->services;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    task_unref_locked(task);
}

void task_wake_waiters_locked(Task *task) {
    assert_held(&task->services->mu);
    LIST_FOR_EACH (&task->waiters, node)
        op_signal(CONTAINER_OF(node, TaskWaiter, node)->op);
}

void task_note_failure_locked(Task *task, const Error *why) {
    task_error_copy(&task->failure, why);
}

static Task *holder_of(const LockHold *hold) {
    return CONTAINER_OF(hold, Task, hold);
}

void task_admit_locked(Task *task) {
    TaskServices *services = task->services;
    task->refs++;
    task->state = task->is_hold ? TASK_RUNNING : TASK_READY;
    task->due_us = 0;
    list_push_back(&services->tasks, &task->node);
    services->task_count++;
    /* Whoever waits in the queue with the same id can join this one instead. */
    LIST_FOR_EACH (&services->locks.waiting, node)
        task_wake_waiters_locked(holder_of(CONTAINER_OF(node, LockHold, node)));
    task_pool_kick_locked(services);
}

static void let_in_locked(TaskServices *services) {
    /* Admitted here and not by the caller, who may be about to give up waiting: a task that has its
     * locks goes on by itself, so no lock is ever held by somebody who is gone. */
    for (LockHold *hold; (hold = named_locks_grant(&services->locks)) != NULL;) {
        task_admit_locked(holder_of(hold));
        task_wake_waiters_locked(holder_of(hold));
    }
}

void task_release_locks_locked(Task *task) {
    named_locks_leave(&task->services->locks, &task->hold);
    let_in_locked(task->services);
}

void task_drop_locked(Task *task, ErrCode why) {
    assert_held(&task->services->mu);
    task->state = TASK_GONE;
    task->gone_code = why;
    named_locks_leave(&task->services->locks, &task->hold);
    task_wake_waiters_locked(task);
    if (task->node.next == NULL)
        return; /* QUEUED: its caller has the only reference */
    list_remove(&task->node);
    task->services->task_count--;
    task_unref_locked(task);
}

static Elem id_of(const Task *task) {
    return doc_get_lit((Doc){task->doc}, "_id");
}

static Task *find_locked(TaskServices *services, const ServiceRow *row, Elem id) {
    LIST_FOR_EACH (&services->tasks, node) {
        Task *task = CONTAINER_OF(node, Task, node);
        if (task->row == row && elem_equal(id_of(task), id, NULL))
            return task;
    }
    return NULL;
}

static ErrCode check_office_locked(const TaskServices *services, Error *err) {
    if (services->is_stopping)
        return error_set(err, ERR_INTERRUPTED_AT_SHUTDOWN, "interrupted at shutdown");
    if (!services->is_in_office)
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary");
    return ERR_OK;
}

/* ---- waiting ---- */

static ErrCode gone_error(const Task *task, Error *err) {
    return error_set(err, task->gone_code,
                     "task %s is not carried through by this node any more: ask the next primary",
                     task->label);
}

typedef struct TaskLook {
    const Task *task;
    bool (*is_met)(const Task *task);
} TaskLook;

static bool is_wait_over(void *arg) {
    const TaskLook *look = arg;
    return look->is_met(look->task) || look->task->state == TASK_GONE;
}

/* Waits until `is_met`, which is asked with mu held. */
static ErrCode wait_for(Task *task, OpCtx *op, bool (*is_met)(const Task *task), Error *err) {
    TaskServices *services = task->services;
    TaskWaiter waiter = {.op = op};
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    list_push_back(&task->waiters, &waiter.node);
    bool is_over;
    ErrCode rc = op_wait_until(op, &services->mu, is_wait_over, &(TaskLook){task, is_met},
                               INT64_MAX, &is_over, err);
    list_remove(&waiter.node); /* from here on nobody signals this operation any more */
    TRY(rc);
    return is_met(task) ? ERR_OK : gone_error(task, err);
}

static bool is_begun(const Task *task) {
    return task->is_stored || task->is_ended;
}

static bool is_ended(const Task *task) {
    return task->is_ended;
}

static bool is_abort_settled(const Task *task) {
    return task->is_ended || (task->phase != NULL && task->phase->kind == TASK_ABORTING);
}

ErrCode task_wait(Task *task, OpCtx *op, Doc *ret_result, Error *err) {
    TRY(wait_for(task, op, is_ended, err));
    /* The outcome is constant from here on, and the caller's reference keeps it. */
    if (task->error.code != ERR_OK) {
        task_error_copy(err, &task->error);
        return task->error.code;
    }
    *ret_result = doc_copy((Doc){task->result}, &op->arena);
    return ERR_OK;
}

/* ---- beginning ---- */

static ErrCode check_request(const TaskRequest *request, Error *err) {
    if (!elem_is_present(request->id))
        return error_set(err, ERR_BAD_VALUE, "a task needs an _id");
    if (doc_size(request->request) > TASK_REQUEST_BYTES_MAX)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                         "the request of a task has %u bytes, the limit is %d",
                         doc_size(request->request), TASK_REQUEST_BYTES_MAX);
    return ERR_OK;
}

static ErrCode check_same(const Task *task, Doc request, Error *err) {
    if (doc_equal_bytes(task_request(task), request))
        return ERR_OK;
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "task %s exists with another request", task->label);
}

/* The locks, or a place in the queue. */
static ErrCode take_locks_locked(Task *mine, bool waits, Error *err) {
    NamedLocks *locks = &mine->services->locks;
    const LockHold *blocker;
    const char *name;
    if (named_locks_try(locks, &mine->hold, &blocker, &name)) {
        task_admit_locked(mine);
        return ERR_OK;
    }
    if (!waits)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS, "\"%s\" is locked by task %s",
                         name, holder_of(blocker)->label);
    if (locks->waiting_count >= TASK_QUEUE_MAX)
        return error_set(err, ERR_LOCK_BUSY, "%d tasks wait for locks already", TASK_QUEUE_MAX);
    named_locks_wait(locks, &mine->hold);
    return ERR_OK;
}

/* Until `mine` is admitted, or there is another task with its id, which is *ret_task then. With mu
 * held, which is given up while waiting. */
static ErrCode enter_locked(Task *mine, OpCtx *op, const TaskRequest *request, Task **ret_task,
                            Error *err) {
    TaskServices *services = mine->services;
    for (;;) {
        *ret_task = mine;
        if (mine->is_ended) /* let in, done and removed, while this thread was waking up */
            return ERR_OK;
        TRY(check_office_locked(services, err));
        if (mine->state == TASK_GONE) /* stepped down and up again meanwhile */
            return gone_error(mine, err);
        Task *there = find_locked(services, mine->row, request->id);
        if (there != NULL) {
            *ret_task = there;
            return there == mine ? ERR_OK : check_same(there, request->request, err);
        }
        if (mine->hold.node.next == NULL) {
            if (services->task_count >= TASKS_MAX)
                return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT, "there are %d tasks already",
                                 TASKS_MAX);
            TRY(take_locks_locked(mine, request->waits_for_locks, err));
            continue;
        }
        mutex_unlock(&services->mu);
        bool is_timed_out;
        ErrCode rc = op_wait(op, INT64_MAX, &is_timed_out, err);
        mutex_lock(&services->mu);
        TRY(rc);
    }
}

static Task *make(TaskServices *services, OpCtx *op, const TaskRequest *request) {
    ServiceRow *row = get_row(services, request->service);
    TaskParts parts = {.id = request->id,
                       .phase = str_from(row->spec->phases[0].name),
                       .request = request->request,
                       .keep_ms = request->outcome_keep_ms};
    if (request->locks != NULL)
        parts.locks = *request->locks;
    return task_new(services, row, task_parts_build(&parts, &op->arena), &parts);
}

ErrCode task_begin(TaskServices *services, OpCtx *op, const TaskRequest *request, Task **ret_task,
                   Error *err) {
    TRY(check_request(request, err));
    Task *mine = make(services, op, request);
    Task *task = NULL;
    TaskWaiter waiter = {.op = op}; /* of the queue */
    op_clear_signal(op);
    mutex_lock(&services->mu);
    list_push_back(&mine->waiters, &waiter.node);
    ErrCode rc = task_pool_ensure_locked(services, err);
    if (rc == ERR_OK)
        rc = enter_locked(mine, op, request, &task, err);
    list_remove(&waiter.node);
    if (mine->node.next == NULL) { /* not admitted: perhaps still in the queue */
        mine->state = TASK_GONE;
        task_release_locks_locked(mine);
    }
    if (rc == ERR_OK)
        task->refs++;
    task_unref_locked(mine);
    mutex_unlock(&services->mu);
    TRY(rc);
    rc = wait_for(task, op, is_begun, err);
    if (rc != ERR_OK) {
        task_unref(task);
        return rc;
    }
    *ret_task = task;
    return ERR_OK;
}

ErrCode task_find(TaskServices *services, const char *service, Elem id, Task **ret_task,
                  Error *err) {
    const ServiceRow *row = get_row(services, service);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    TRY(check_office_locked(services, err));
    Task *task = find_locked(services, row, id);
    if (task == NULL)
        return error_set(err, ERR_NO_SUCH_KEY, "there is no such task of \"%s\"", service);
    task->refs++;
    *ret_task = task;
    return ERR_OK;
}

/* ---- locks alone ---- */

static ErrCode wait_for_hold_locked(Task *hold, OpCtx *op, Error *err) {
    TaskServices *services = hold->services;
    TRY(check_office_locked(services, err));
    if (services->task_count >= TASKS_MAX)
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT, "there are %d tasks already", TASKS_MAX);
    TRY(take_locks_locked(hold, /* waits= */ true, err));
    while (hold->state == TASK_QUEUED) {
        mutex_unlock(&services->mu);
        bool is_timed_out;
        ErrCode rc = op_wait(op, INT64_MAX, &is_timed_out, err);
        mutex_lock(&services->mu);
        TRY(rc);
    }
    return hold->state == TASK_GONE ? gone_error(hold, err) : ERR_OK;
}

ErrCode task_locks_hold(TaskServices *services, OpCtx *op, const char *service, const char *what,
                        const LockSet *locks, Task **ret_hold, Error *err) {
    Oid id = oid_new(); /* nobody else's */
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t opened = build_open_doc(&b, "_id");
    build_cstr(&b, "holder", what);
    build_oid(&b, "id", &id);
    build_close(&b, opened);
    Doc doc = doc_builder_end(&b);
    TaskParts parts = {.id = doc_get_lit(doc, "_id"), .phase = STR(""), .locks = *locks};
    Task *hold = task_new(services, get_row(services, service), doc, &parts);
    hold->is_hold = true;
    TaskWaiter waiter = {.op = op};
    op_clear_signal(op);
    mutex_lock(&services->mu);
    hold->op = op;
    list_push_back(&hold->waiters, &waiter.node);
    ErrCode rc = wait_for_hold_locked(hold, op, err);
    list_remove(&waiter.node);
    mutex_unlock(&services->mu);
    if (rc == ERR_OK)
        *ret_hold = hold;
    else
        task_locks_release(hold);
    return rc;
}

void task_locks_release(Task *hold) {
    if (hold == NULL)
        return;
    TaskServices *services = hold->services;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    hold->op = NULL;
    if (hold->state != TASK_GONE) {
        task_drop_locked(hold, ERR_OK);
        let_in_locked(services);
    }
    task_unref_locked(hold);
}

/* ---- interfering ---- */

static void run_now_locked(Task *task) {
    if (task->is_ended || (task->state != TASK_READY && task->state != TASK_STOPPED))
        return;
    task->state = TASK_READY;
    task->due_us = 0;
    task_pool_kick_locked(task->services);
}

/* Accepted or refused at one moment, under mu: an accepted abort is taken before the next phase is
 * chosen (task_run.c), so it always ends in the abort path. */
static ErrCode accept_abort_locked(Task *task, const Error *reason, Error *err) {
    const TaskServiceSpec *spec = task->row->spec;
    if (task->state == TASK_GONE && !task->is_ended)
        return gone_error(task, err);
    if (task->is_ended)
        return error_set(err, ERR_ILLEGAL_OPERATION, "task %s is over", task->label);
    if (task->is_abort_wanted)
        return ERR_OK;
    const TaskPhase *phase =
        task->chosen == NULL ? task->phase : task_spec_find(spec, str_from(task->chosen));
    if (phase == NULL || !task_phase_can_abort(spec, phase))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         spec->abort_phase == NULL
                             ? "task %s is of a kind that cannot be aborted"
                             : "task %s is past its point of no return and cannot be aborted",
                         task->label);
    task->is_abort_wanted = true;
    task_error_copy(&task->abort, reason);
    if (task->is_in_run)
        op_kill(task->op, ERR_INTERRUPTED);
    run_now_locked(task);
    return ERR_OK;
}

ErrCode task_abort(Task *task, OpCtx *op, const Error *reason, Error *err) {
    invariant(reason->code != ERR_OK);
    mutex_lock(&task->services->mu);
    ErrCode rc = accept_abort_locked(task, reason, err);
    mutex_unlock(&task->services->mu);
    TRY(rc);
    return wait_for(task, op, is_abort_settled, err);
}

void task_resume(Task *task) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    /* One whose phase is unknown to this version, or whose locks another has, cannot go on. */
    if (task->phase == NULL || (!task->hold.is_held && task->locks != NULL))
        return;
    task->is_kicked = true; /* for one that runs: no wake-up is lost */
    run_now_locked(task);
}

void task_acknowledge(Task *task) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    if (!task->is_ended || task->state == TASK_GONE)
        return;
    /* Whoever was told of the end may be here before the worker has left its step: that one looks
     * for what is due, next. */
    task->due_us = 0;
    task_pool_kick_locked(task->services);
}

/* ---- for phases ---- */

void *task_arg(const Task *task) {
    return task->row->arg;
}

Doc task_doc(const Task *task) {
    return (Doc){task->doc};
}

Doc task_request(const Task *task) {
    Elem part = doc_get_lit(task_doc(task), "task");
    Elem request =
        elem_type(part) == BT_DOC ? doc_get_lit(elem_doc(part), "request") : ELEM_MISSING;
    return elem_type(request) == BT_DOC ? elem_doc(request) : DOC_EMPTY;
}

void task_set_fields(Task *task, Doc fields) {
    xfree(task->next_fields);
    task->next_fields = doc_copy_heap(fields);
}

void task_go_to(Task *task, const char *phase) {
    invariant(task_phase_may_lead_to(task->phase, phase));
    /* The table's own text: the caller's may not live as long. */
    const TaskPhase *row = task_spec_find(task->row->spec, str_from(phase));
    task->go_to = row != NULL ? row->name : TASK_DONE;
}

void task_again(Task *task, int64_t ms) {
    task->again_ms = ms;
}

void task_set_result(Task *task, Doc result) {
    invariant(doc_size(result) <= TASK_RESULT_BYTES_MAX);
    uint8_t *copy = doc_copy_heap(result);
    xfree(task->result);
    task->result = copy;
}

void task_set_progress(Task *task, int64_t done, int64_t total) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    if (task->progress_since_us == 0)
        task->progress_since_us = clock_mono_us();
    task->progress_done = done;
    task->progress_total = total;
}

int64_t task_term(const Task *task) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    return task->services->term_start.term;
}

uint32_t task_failures(const Task *task) {
    return task->failures;
}

const char *task_abort_message(const Task *task) {
    return task->phase->kind == TASK_ABORTING ? error_message(&task->abort) : NULL;
}
