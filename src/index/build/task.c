/*
 * task.c - a build is a task: a thread, an operation and the IndexBuild.
 *
 *     registered --start--> running --end--> ended, joined by a later call
 *                              |
 *                              +--shutdown while resuming, rollback--> stopped, kept to be saved
 *
 * An ended task has released its build (index_build_free); a stopped one still has it and stays
 * registered.
 *
 * A two-phase build waits for its verdict after the first drain. This node's own verdict is valid
 * only while it is primary: otherwise the build waits again, for the verdict of the next primary.
 * One that fails on a secondary waits too: only the primary can abort it for the set.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "concurrency/service_ctx.h"
#include "index/build/coordinator_internal.h"
#include "storage/engine.h"

enum {
    LOOK_INTERVAL_US = 500 * 1000, /* between two checks whether the quorum is met */
};

static void run_task(void *arg);
static ErrCode run_build(BuildTask *task, Error *err);
static bool abort_build(BuildTask *task, const Error *cause);
static void finish_task(BuildTask *task, Error *err);
static void join_ended(IndexBuilds *builds);
static void task_free(BuildTask *task);

/* ---- verdicts ---- */

static IndexBuildVerdict verdict_of(BuildTask *task, IndexBuildMembers *ret_members,
                                    bool *ret_is_stopping) {
    IndexBuilds *builds = task->builds;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    *ret_members = builds->members;
    *ret_is_stopping = builds->is_stopping || builds->is_halting;
    return task->build->active.verdict;
}

/* Returns when the build has to be committed; it is aborted by killing its operation. */
static ErrCode await_verdict(BuildTask *task, IndexBuildVerdict *ret_verdict, Error *err) {
    OpCtx *op = task->op;
    for (;;) {
        IndexBuildMembers members;
        bool is_stopping;
        *ret_verdict = verdict_of(task, &members, &is_stopping);
        if (ret_verdict->decision == INDEX_BUILD_COMMIT)
            return ERR_OK;
        int64_t until_us = INT64_MAX;
        if (task->is_two_phase && members.ready != NULL) {
            bool is_commit = false;
            CLEANUP(error_reset) Error why = {0};
            /* A failure is retried in the next round. */
            (void)members.ready(members.arg, op, task->build, &is_commit, &why);
            if (is_commit) {
                *ret_verdict = (IndexBuildVerdict){.decision = INDEX_BUILD_COMMIT};
                return ERR_OK;
            }
            until_us = clock_mono_us() + LOOK_INTERVAL_US;
        }
        bool is_timed_out;
        TRY(op_wait(op, until_us, &is_timed_out, err));
    }
}

/* Whether the build changes the catalog as primary or by an applied entry. */
static void act_by(BuildTask *task, const IndexBuildVerdict *verdict) {
    if (!task->is_two_phase)
        return;
    task->op->mode.is_unreplicated = task->op->mode.is_applying = verdict->is_applied;
    task->build->catalog_ts = verdict->apply_ts;
}

/* ---- tasks ---- */

/* What currentOp reports of the build. */
static OpDescription describe(const IndexBuild *build, OpCtx *op) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "createIndexes", ns_coll(&build->ns));
    size_t indexes = build_open_array(&b, "indexes");
    for (uint32_t i = 0; i < build->count; i++) {
        char name[INDEX_NAME_SIZE];
        build_doc(&b, index_name(i, name).data, build->items[i].index->spec);
    }
    build_close(&b, indexes);
    build_str(&b, "$db", ns_db(&build->ns));
    Doc command = doc_builder_end(&b);
    return (OpDescription){
        .op_type = "command", .ns = build->ns.text, .command = command.data, .desc = "IndexBuild"};
}

ErrCode index_builds_start(IndexBuilds *builds, IndexBuild *take_build,
                           const IndexBuildCatalog *catalog, IndexBuildWaiter *waiter, Error *err) {
    join_ended(builds);
    ServiceCtx *service = take_build->active.op->service;
    BuildTask *task = NEW(BuildTask);
    OpCtx *op = op_ctx_new(service->ops, NULL, NULL);
    *task = (BuildTask){.builds = builds,
                        .op = op,
                        .build = take_build,
                        .catalog = catalog,
                        .is_two_phase = take_build->is_two_phase,
                        .waiter = waiter};
    op->service = service;
    op->outlives_state_changes = true;
    /* Until the decision a two-phase build writes nothing that is replicated. */
    op->mode.is_unreplicated = task->is_two_phase || take_build->active.op->mode.is_unreplicated;
    op->mode.is_applying = !task->is_two_phase && take_build->active.op->mode.is_applying;
    take_build->catalog_ts = task->is_two_phase ? 0 : take_build->active.op->mode.apply_ts;
    op_attach_storage(op, service->storage);
    OpDescription desc = describe(take_build, op);
    op_begin(op, &desc); /* here, not on the thread: it can be killed from now on */
    mutex_lock(&builds->mu);
    take_build->active.op = op;
    /* The abort went to the operation that registered the build. */
    if (take_build->active.verdict.decision == INDEX_BUILD_ABORT)
        op_kill(op, ERR_INDEX_BUILD_ABORTED);
    list_push_back(&builds->tasks, &task->node);
    if (waiter != NULL)
        waiter->uuid = take_build->active.uuid;
    mutex_unlock(&builds->mu);
    ErrCode rc = thread_start(&task->thread, "IndexBuild", run_task, task, err);
    /* join_ended must not join (and free) the task before the thread handle has been stored. */
    mutex_lock(&builds->mu);
    task->is_launched = true;
    if (rc != ERR_OK)
        task->waiter = NULL;
    mutex_unlock(&builds->mu);
    if (rc != ERR_OK) {
        CLEANUP(error_reset) Error failure = {0};
        (void)error_set(&failure, rc, "%s", error_message(err));
        finish_task(task, &failure);
        join_ended(builds);
    }
    return rc;
}

static void run_task(void *arg) {
    BuildTask *task = arg;
    log_set_thread_name("IndexBuild");
    CLEANUP(error_reset) Error err = {0};
    (void)run_build(task, &err);
    task->op->admission_priority = ADMISSION_NORMAL;
    op_set_progress(task->op, NULL, 0, 0);
    finish_task(task, &err);
}

static ErrCode run_build(BuildTask *task, Error *err) {
    OpCtx *op = task->op;
    op->admission_priority = ADMISSION_LOW; /* clients are admitted first */
    TRY(index_build_fill(task->build, err));
    if (task->is_two_phase)
        index_build_log(task->build, "Index build: waits for the decision to commit it", 3856203,
                        err);
    for (;;) {
        IndexBuildVerdict verdict;
        TRY(await_verdict(task, &verdict, err));
        TRY(index_build_drain(task->build, err));
        op->admission_priority = ADMISSION_NORMAL;
        act_by(task, &verdict);
        ErrCode rc = task->catalog->commit(task->build, err);
        if (rc != ERR_NOT_WRITABLE_PRIMARY || !task->is_two_phase || verdict.is_applied)
            return rc;
        op->mode.is_unreplicated = true; /* another primary decides now */
        error_reset(err);
    }
}

/* Reports the reason given with the abort instead of the bare interruption. */
static void explain_abort(BuildTask *task, Error *err) {
    if (err->code != ERR_QUERY_PLAN_KILLED && err->code != ERR_INDEX_BUILD_ABORTED)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->builds->mu);
    const char *reason = task->build->active.abort_reason;
    if (reason[0] == '\0' && err->code == ERR_QUERY_PLAN_KILLED)
        reason = "the collection or the index was dropped";
    if (reason[0] == '\0')
        return;
    error_reset(err);
    (void)error_set(err, ERR_INDEX_BUILD_ABORTED, "%s", reason);
}

/* Shutdown and rollback are no verdict about the build. */
static bool is_to_be_saved(BuildTask *task, ErrCode code) {
    IndexBuilds *builds = task->builds;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    return (code == ERR_INTERRUPTED_AT_SHUTDOWN && builds->is_resuming) ||
           (code == ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE && builds->is_halting &&
            task->is_two_phase);
}

/* Ends the task by its result: removes the build from the catalog unless it is ready or to be
 * resumed, and notifies the waiter. is_over is set last, since the task may then be freed. */
static void finish_task(BuildTask *task, Error *err) {
    IndexBuilds *builds = task->builds;
    IndexBuild *build = task->build;
    explain_abort(task, err);
    bool is_stopped = is_to_be_saved(task, err->code);
    if (err->code == ERR_OK) {
        index_build_log(build, "Index build: completed successfully", 20663, err);
    } else if (!is_stopped) {
        index_build_log(build, "Index build: failed", 20649, err);
        is_stopped = task->is_lost = !abort_build(task, err);
    }
    if (!is_stopped) {
        IndexBuildMembers members;
        bool is_stopping;
        (void)verdict_of(task, &members, &is_stopping);
        /* In this order: a node that becomes primary in between either no longer finds the build,
         * or is seen as primary by `ended`. */
        index_builds_leave(builds, &build->active);
        if (task->is_two_phase && members.ended != NULL)
            members.ended(members.arg, task->op, &build->active.uuid);
        index_build_free(build);
        task->build = NULL;
        op_end(task->op);
    }
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    builds->stats.out_of_disk += err->code == ERR_OUT_OF_DISK_SPACE;
    if (task->waiter != NULL) {
        error_move(&task->waiter->result, err);
        task->waiter->last_optime = task->op->last_optime;
        task->waiter->is_ended = true;
        op_signal(task->waiter->op);
    }
    task->is_over = true;
}

/* Removes a failed build from the catalog. A two-phase build is aborted by the primary for all
 * members: until this node is primary, or receives the abort, it waits. False: the node stops or
 * rolls back before. */
static bool abort_build(BuildTask *task, const Error *cause) {
    OpCtx *op = task->op;
    index_build_log(task->build, "Index build: aborting", 4656003, cause);
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    /* The kill that ended the build must not end its cleanup. */
    op->mode.is_uninterruptible = true;
    bool is_stopping = false;
    for (;;) {
        CLEANUP(error_reset) Error err = {0};
        IndexBuildMembers members;
        IndexBuildVerdict verdict = verdict_of(task, &members, &is_stopping);
        if (is_stopping && task->is_two_phase && !verdict.is_applied)
            break;
        is_stopping = false;
        act_by(task, &verdict);
        ErrCode rc = task->catalog->abort(task->build, cause, &err);
        if (rc != ERR_NOT_WRITABLE_PRIMARY || !task->is_two_phase) {
            if (rc != ERR_OK)
                index_build_log(task->build, "Index build: could not be taken out of the catalog",
                                7100303, &err);
            break;
        }
        if (members.failed != NULL)
            members.failed(members.arg, op, task->build, cause);
        bool is_timed_out;
        error_reset(&err);
        if (op_wait(op, clock_mono_us() + LOOK_INTERVAL_US, &is_timed_out, &err) != ERR_OK)
            continue; /* irrelevant: check again at once */
    }
    return !is_stopping;
}

/* Joins threads that have nothing left to do. */
static void join_ended(IndexBuilds *builds) {
    List ended;
    list_init(&ended);
    mutex_lock(&builds->mu);
    LIST_FOR_EACH (&builds->tasks, node) {
        BuildTask *task = CONTAINER_OF(node, BuildTask, node);
        if (!task->is_launched || !task->is_over || task->build != NULL)
            continue;
        list_remove(node);
        list_push_back(&ended, node);
    }
    mutex_unlock(&builds->mu);
    LIST_FOR_EACH (&ended, node)
        task_free(CONTAINER_OF(node, BuildTask, node));
}

static void task_free(BuildTask *task) {
    thread_join(&task->thread);
    op_ctx_free(task->op);
    xfree(task);
}

/* ---- waiting ---- */

static bool is_ended(void *arg) {
    return ((const IndexBuildWaiter *)arg)->is_ended;
}

static ErrCode wait_until_ended(IndexBuilds *builds, IndexBuildWaiter *waiter, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    bool is_over;
    return op_wait_until(waiter->op, &builds->mu, is_ended, waiter, INT64_MAX, &is_over, err);
}

static void kill_build(IndexBuilds *builds, const Uuid *uuid, ErrCode code) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    ActiveBuild *build = builds_find_active(builds, uuid);
    if (build != NULL)
        op_kill(build->op, code);
}

static void forget_waiter(IndexBuilds *builds, const IndexBuildWaiter *waiter) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    LIST_FOR_EACH (&builds->tasks, node) {
        BuildTask *task = CONTAINER_OF(node, BuildTask, node);
        if (task->waiter == waiter)
            task->waiter = NULL;
    }
}

static void tell_going_on(IndexBuilds *builds, const IndexBuildWaiter *waiter, const Error *err) {
    char uuid[UUID_TEXT_SIZE];
    mutex_lock(&builds->mu);
    uuid_to_text(&waiter->uuid, uuid);
    mutex_unlock(&builds->mu);
    LOG_INFO(LOG_INDEX, 20444, "Index build: goes on without the client that began it",
             LOG_STR("buildUUID", uuid), LOG_STR("error", error_message(err)));
}

ErrCode index_builds_wait(IndexBuilds *builds, IndexBuildWaiter *waiter, Error *err) {
    OpCtx *op = waiter->op;
    ErrCode rc = wait_until_ended(builds, waiter, err);
    /* A killed client aborts its build. A shutdown or step-down does not: the build may be resumed,
     * or committed by the next primary. */
    bool goes_on =
        rc == ERR_INTERRUPTED_AT_SHUTDOWN || rc == ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE;
    if (goes_on)
        tell_going_on(builds, waiter, err);
    if (rc != ERR_OK && !goes_on) {
        kill_build(builds, &waiter->uuid, rc);
        CLEANUP(error_reset) Error ignored = {0};
        CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
        op->mode.is_uninterruptible = true;
        /* The waiter is on this stack: it must not be left while the task may write to it. */
        invariant(wait_until_ended(builds, waiter, &ignored) == ERR_OK);
    }
    forget_waiter(builds, waiter);
    if (rc == ERR_OK) {
        rc = waiter->result.code;
        if (rc == ERR_OK)
            op->last_optime = waiter->last_optime;
        else
            error_move(err, &waiter->result);
    }
    error_reset(&waiter->result);
    join_ended(builds);
    return rc;
}

/* ---- stop ---- */

static void save_and_free(BuildTask *task) {
    IndexBuild *build = task->build;
    CLEANUP(error_reset) Error err = {0};
    task->op->mode.is_uninterruptible = true;
    task->op->mode.is_unreplicated = true;
    if (!task->is_lost && index_build_save(build, &err) != ERR_OK)
        index_build_log(build, "Index build: could not be saved and will begin anew", 7100304,
                        &err);
    index_builds_leave(task->builds, &build->active);
    index_build_free(build);
    op_end(task->op);
}

static void interrupt_all(IndexBuilds *builds, ErrCode code) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    if (code == ERR_INTERRUPTED_AT_SHUTDOWN)
        builds->is_stopping = true;
    else
        builds->is_halting = true;
    LIST_FOR_EACH (&builds->tasks, node) {
        OpCtx *op = CONTAINER_OF(node, BuildTask, node)->op;
        op_kill(op, code);
        /* A task in abort_build is uninterruptible and does not notice the kill. */
        op_signal(op);
    }
}

static void join_all(IndexBuilds *builds) {
    for (;;) {
        mutex_lock(&builds->mu);
        ListNode *node = list_first(&builds->tasks);
        if (node != NULL)
            list_remove(node);
        mutex_unlock(&builds->mu);
        if (node == NULL)
            return;
        BuildTask *task = CONTAINER_OF(node, BuildTask, node);
        thread_join(&task->thread);
        if (task->build != NULL)
            save_and_free(task);
        task_free(task);
    }
}

void index_builds_interrupt(IndexBuilds *builds) {
    if (builds != NULL)
        interrupt_all(builds, ERR_INTERRUPTED_AT_SHUTDOWN);
}

void index_builds_stop(IndexBuilds *builds) {
    if (builds == NULL)
        return;
    index_builds_interrupt(builds); /* includes those started since */
    join_all(builds);
}

void index_builds_halt(IndexBuilds *builds) {
    if (builds == NULL)
        return;
    interrupt_all(builds, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    join_all(builds);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    builds->is_halting = false;
}
