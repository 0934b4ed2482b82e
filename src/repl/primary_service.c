#include "repl/primary_service.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "catalog/access.h"
#include "query/write/modify.h"
#include "repl/repl.h"
#include "storage/engine.h"

enum {
    SERVICES_MAX = 16,
    RETRY_US = 500 * 1000,
};

struct PrimaryTask {
    ListNode node;
    PrimaryServices *services;
    const PrimaryServiceSpec *spec;
    Ns ns;
    uint8_t *doc; /* heap */
    Thread thread;
    OpCtx *op;
    /* Guarded by the services' mu. */
    bool is_ended;
};

struct PrimaryServices {
    ServiceCtx *service;
    const PrimaryServiceSpec *specs[SERVICES_MAX];
    size_t spec_count;
    Thread finder;

    Mutex mu;
    /* Guarded by mu. */
    List tasks;
    bool is_in_office; /* this node is primary */
    bool is_primary;   /* and what ran before has ended: tasks may start */
    bool is_stopping;
};

static void task_run(void *task);

PrimaryServices *primary_services_new(ServiceCtx *service) {
    PrimaryServices *services = NEW(PrimaryServices);
    services->service = service;
    mutex_init(&services->mu, LOCK_RANK_PRIMARY_SERVICES);
    list_init(&services->tasks);
    return services;
}

void primary_services_free(PrimaryServices *services) {
    if (services == NULL)
        return;
    mutex_done(&services->mu);
    xfree(services);
}

void primary_services_register(PrimaryServices *services, const PrimaryServiceSpec *spec) {
    invariant(services->spec_count < SERVICES_MAX);
    services->specs[services->spec_count++] = spec;
}

Doc task_doc(const PrimaryTask *task) {
    return (Doc){task->doc};
}

void task_set_doc(PrimaryTask *task, Doc doc) {
    uint8_t *copy = doc_copy_heap(doc);
    xfree(task->doc);
    task->doc = copy;
}

/* ---- documents ---- */

static ErrCode ns_of(const PrimaryServiceSpec *spec, Ns *ret_ns, Error *err) {
    return ns_parse(str_from(spec->ns), ret_ns, err);
}

/* `state` with another phase. */
static Doc with_phase(OpCtx *op, Doc state, const char *phase) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    DocIter iter = doc_iter(state);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_name_is(elem, STR("phase")))
            build_elem(&b, elem);
    build_cstr(&b, "phase", phase);
    return doc_builder_end(&b);
}

/* Replaces (or removes, with DOC_NONE) the document and waits for a majority. */
static ErrCode store(PrimaryServices *services, OpCtx *op, const Ns *ns, Elem id, Doc doc,
                     bool is_new, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t filter = build_open_doc(&b, "f");
    build_elem_as(&b, STR("_id"), id);
    build_close(&b, filter);
    if (doc_is_present(doc))
        build_doc(&b, "u", doc);
    Doc parts = doc_builder_end(&b);
    ModifyRequest request = {.kind = doc_is_present(doc) ? MODIFY_UPDATE : MODIFY_DELETE,
                             .query = {.filter = elem_doc(doc_get_lit(parts, "f"))},
                             .is_upsert = is_new,
                             .update = doc_get_lit(parts, "u")};
    ModifyOutcome outcome;
    TRY(exec_modify(op, ns, &request, &outcome, err));
    ReplWriteConcern majority = {.kind = REPL_W_MAJORITY};
    return repl_wait_write_concern(services->service->repl, op, &majority,
                                   /* is_journaled= */ true, op->last_optime, INT64_MAX, err);
}

/* ---- tasks ---- */

static const TaskPhase *find_phase(const PrimaryServiceSpec *spec, Doc doc) {
    Elem name = doc_get_lit(doc, "phase");
    for (size_t i = 0; elem_type(name) == BT_STRING && i < spec->phase_count; i++)
        if (str_is(elem_str(name), spec->phases[i].name))
            return &spec->phases[i];
    return NULL;
}

static bool is_over(PrimaryServices *services) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    return services->is_stopping || !services->is_primary;
}

/* One phase and the step to the next. *ret_is_done: there is no next one. */
static ErrCode advance(PrimaryTask *task, OpCtx *op, bool *ret_is_done, Error *err) {
    const TaskPhase *phase = find_phase(task->spec, task_doc(task));
    if (phase == NULL)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "a task of \"%s\" is in a phase this version does not know",
                         task->spec->name);
    TRY(phase->run(task, op, err));
    failpoint_hit(FP_PRIMARY_SERVICE_PHASE_DONE);
    Elem id = doc_get_lit(task_doc(task), "_id");
    *ret_is_done = phase->next == NULL;
    if (*ret_is_done)
        return store(task->services, op, &task->ns, id, DOC_NONE, /* is_new= */ false, err);
    Doc next = with_phase(op, task_doc(task), phase->next);
    TRY(store(task->services, op, &task->ns, id, next, /* is_new= */ false, err));
    task_set_doc(task, next);
    failpoint_hit(FP_PRIMARY_SERVICE_PHASE_STORED);
    return ERR_OK;
}

static void task_run(void *arg) {
    PrimaryTask *task = arg;
    PrimaryServices *services = task->services;
    log_set_thread_name(task->spec->name);
    OpCtx *op = task->op;
    bool is_done = false;
    while (!is_done && !is_over(services)) {
        CLEANUP(error_reset) Error err = {0};
        if (advance(task, op, &is_done, &err) != ERR_OK) {
            if (!is_over(services))
                LOG_WARN(LOG_REPL, 7300260, "A task failed and will be tried again",
                         LOG_STR("service", task->spec->name),
                         LOG_STR("error", error_message(&err)));
            is_done = false;
            error_reset(&err);
            if (op_sleep_us(op, RETRY_US, &err) != ERR_OK)
                break; /* killed: the primary's time is over */
        }
        arena_reset(&op->arena);
    }
    mutex_lock(&services->mu);
    task->is_ended = true;
    mutex_unlock(&services->mu);
}

static void free_task(PrimaryTask *task) {
    thread_join(&task->thread);
    op_end(task->op);
    op_ctx_free(task->op);
    xfree(task->doc);
    xfree(task);
}

/* Takes tasks that have ended off the list; all of them, if told so, and then waits for them. */
static void collect(PrimaryServices *services, bool is_all) {
    List ended;
    list_init(&ended);
    mutex_lock(&services->mu);
    LIST_FOR_EACH (&services->tasks, node) {
        PrimaryTask *task = CONTAINER_OF(node, PrimaryTask, node);
        if (!is_all && !task->is_ended)
            continue;
        list_remove(node);
        list_push_back(&ended, node);
    }
    mutex_unlock(&services->mu);
    LIST_FOR_EACH (&ended, node) {
        list_remove(node);
        free_task(CONTAINER_OF(node, PrimaryTask, node));
    }
}

static bool is_running(PrimaryServices *services, const PrimaryServiceSpec *spec, Elem id) {
    LIST_FOR_EACH (&services->tasks, node) {
        PrimaryTask *task = CONTAINER_OF(node, PrimaryTask, node);
        if (task->spec == spec && !task->is_ended &&
            elem_equal(doc_get_lit(task_doc(task), "_id"), id, NULL))
            return true;
    }
    return false;
}

static ErrCode start_task(PrimaryServices *services, const PrimaryServiceSpec *spec, const Ns *ns,
                          Doc doc, Error *err) {
    PrimaryTask *task = NEW(PrimaryTask);
    task->services = services;
    task->spec = spec;
    task->ns = *ns;
    task->doc = doc_copy_heap(doc);
    task->op = op_ctx_new(services->service->ops, NULL, NULL);
    task->op->service = services->service;
    op_attach_storage(task->op, services->service->storage);
    op_begin(task->op, &(OpDescription){.op_type = "none", .ns = spec->ns, .desc = spec->name});
    mutex_lock(&services->mu);
    bool is_wanted = services->is_primary && !services->is_stopping &&
                     !is_running(services, spec, doc_get_lit(doc, "_id"));
    ErrCode rc =
        is_wanted ? thread_start(&task->thread, "PrimaryTask", task_run, task, err) : ERR_OK;
    if (is_wanted && rc == ERR_OK)
        list_push_back(&services->tasks, &task->node);
    mutex_unlock(&services->mu);
    if (!is_wanted || rc != ERR_OK)
        free_task(task);
    return rc;
}

/* ---- step-up ---- */

typedef struct FoundTasks {
    PrimaryServices *services;
    const PrimaryServiceSpec *spec;
    Ns ns;
} FoundTasks;

static ErrCode start_found(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over;
    const FoundTasks *found = arg;
    return start_task(found->services, found->spec, &found->ns, doc, err);
}

static ErrCode start_all_of(PrimaryServices *services, OpCtx *op, const PrimaryServiceSpec *spec,
                            Error *err) {
    FoundTasks found = {.services = services, .spec = spec};
    TRY(ns_of(spec, &found.ns, err));
    return access_each(op, &found.ns, /* is_forward= */ true, start_found, &found, err);
}

static void find_tasks(void *arg) {
    PrimaryServices *services = arg;
    log_set_thread_name("PrimaryServices");
    collect(services, /* is_all= */ true); /* those of an earlier time in office */
    OpCtx *op = op_ctx_new(services->service->ops, NULL, NULL);
    op->service = services->service;
    op->is_kill_exempt = true;
    op_attach_storage(op, services->service->storage);
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "PrimaryServices"});
    mutex_lock(&services->mu);
    services->is_primary = services->is_in_office && !services->is_stopping;
    mutex_unlock(&services->mu);
    for (size_t i = 0; i < services->spec_count; i++) {
        CLEANUP(error_reset) Error err = {0};
        if (start_all_of(services, op, services->specs[i], &err) != ERR_OK)
            LOG_ERROR(LOG_REPL, 7300261, "Could not find the tasks of a service",
                      LOG_STR("service", services->specs[i]->name),
                      LOG_STR("error", error_message(&err)));
    }
    op_end(op);
    op_ctx_free(op);
}

void primary_services_step_up(PrimaryServices *services) {
    CLEANUP(error_reset) Error err = {0};
    thread_join(&services->finder); /* of the last time */
    mutex_lock(&services->mu);
    services->is_in_office = true;
    mutex_unlock(&services->mu);
    if (thread_start(&services->finder, "PrimaryServices", find_tasks, services, &err) != ERR_OK)
        LOG_ERROR(LOG_REPL, 7300262, "No thread to find tasks with",
                  LOG_STR("error", error_message(&err)));
}

static void interrupt(PrimaryServices *services, ErrCode why) {
    services->is_primary = services->is_in_office = false;
    LIST_FOR_EACH (&services->tasks, node)
        op_kill(CONTAINER_OF(node, PrimaryTask, node)->op, why);
}

void primary_services_step_down(PrimaryServices *services) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    interrupt(services, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
}

void primary_services_begin_stop(PrimaryServices *services) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    services->is_stopping = true;
    interrupt(services, ERR_INTERRUPTED_AT_SHUTDOWN);
}

void primary_services_stop(PrimaryServices *services) {
    thread_join(&services->finder);
    collect(services, /* is_all= */ true);
}

ErrCode primary_services_begin(PrimaryServices *services, OpCtx *op, const char *service_name,
                               Doc state, Error *err) {
    const PrimaryServiceSpec *spec = NULL;
    for (size_t i = 0; i < services->spec_count; i++)
        if (strcmp(services->specs[i]->name, service_name) == 0)
            spec = services->specs[i];
    invariant(spec != NULL);
    Ns ns;
    TRY(ns_of(spec, &ns, err));
    collect(services, /* is_all= */ false);
    Elem id = doc_get_lit(state, "_id");
    if (!elem_is_present(id))
        return error_set(err, ERR_BAD_VALUE, "a task needs an _id");
    mutex_lock(&services->mu);
    bool is_there = is_running(services, spec, id);
    mutex_unlock(&services->mu);
    if (is_there)
        return ERR_OK;
    Doc first = with_phase(op, state, spec->phases[0].name);
    TRY(store(services, op, &ns, id, first, /* is_new= */ true, err));
    return start_task(services, spec, &ns, first, err);
}
