#include "sharding/migration/recipient.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "repl/repl.h"
#include "sharding/ddl/participant.h"
#include "sharding/migration/receive.h"
#include "sharding/migration/session_history.h"
#include "sharding/range_deletion/range_deleter.h"
#include "sharding/range_deletion/range_tasks.h"
#include "sharding/shard/critical_section.h"

enum {
    PULL_MS = 10,    /* how often modifications are asked for while nothing else is wanted */
    OVERLAP_MS = 50, /* between two looks whether a range deletion has ended */
    COMMIT_MS_MAX = 5 * 1000, /* the donor blocks its writes meanwhile */
    FEW_MODIFICATIONS = 100,  /* so many are written in some milliseconds */
};

/* ---- what others see ---- */

typedef struct StateChange {
    const Uuid *id;
    ReceiveState state;
} StateChange;

static void set_state(Receiving *receiving, void *arg) {
    const StateChange *change = arg;
    /* The first phase of this move that runs in this process. */
    if (!uuid_equal(&receiving->id, change->id))
        *receiving = (Receiving){.id = *change->id};
    receiving->state = change->state;
}

static void enter_state(const MoveRun *run, ReceiveState state) {
    StateChange change = {&run->move.id, state};
    migrations_change(run->migrations, set_state, &change);
}

static void forget(Receiving *receiving, void *arg) {
    if (uuid_equal(&receiving->id, arg))
        *receiving = (Receiving){0};
}

/* ---- steps ---- */

/* Does the range still belong to the donor, and to the collection that it belonged to? */
static ErrCode check_owner(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    enter_state(run, RECEIVE_PREPARE);
    TRY(section_check_free(run->op, &run->move.ns, err));
    bool is_owned;
    Str owner;
    TRY(move_run_owner(run, &is_owned, &owner, err));
    if (is_owned && str_equal(owner, run->move.from))
        return ERR_OK;
    return error_set(err, ERR_STALE_EPOCH, "the range of %s does not belong to the shard \"%.*s\"",
                     run->move.ns.text, (int)run->move.from.size, run->move.from.data);
}

/* Documents of an earlier move that are still to be deleted would be taken for this one's. */
static ErrCode await_deletions(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    int64_t begun_us = clock_mono_us();
    for (;;) {
        bool is_found;
        TRY(range_tasks_overlap(run->op, &move->uuid, move->min, move->max, &move->id, &is_found,
                                err));
        if (!is_found)
            return ERR_OK;
        int64_t ms_max = run->migrations->settings(run->op->service).deletions_ms_max;
        if (clock_mono_us() - begun_us >= ms_max * 1000)
            break;
        TRY(op_sleep_us(run->op, (int64_t)OVERLAP_MS * 1000, err));
    }
    return error_set(err, ERR_EXCEEDED_TIME_LIMIT,
                     "this shard still has documents of %s in that range, which are to be deleted",
                     move->ns.text);
}

static ErrCode owns_chunks(MoveRun *run, bool *ret_is_owner, Error *err) {
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(move_run_route(run, &route, err));
    ShardIndex own;
    *ret_is_owner = route->map != NULL && uuid_equal(&route->uuid, &run->move.uuid) &&
                    chunk_map_find_shard(route->map, str_from(run->self), &own) &&
                    chunk_map_chunks_of(route->map, own) > 0;
    return ERR_OK;
}

static ErrCode create(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    Doc request = task_request(run->task);
    Doc indexes = elem_doc(doc_get_lit(request, "indexes"));
    failpoint_hang(FP_HANG_RECIPIENT_BEFORE_BUILDS);
    bool is_owner;
    TRY(owns_chunks(run, &is_owner, err));
    TRY(participant_choose_indexes(run->op, &move->ns, &move->uuid, indexes, is_owner, &indexes,
                                   err));
    return participant_create_here(run->op, &move->ns, &move->uuid,
                                   elem_doc(doc_get_lit(request, "options")), indexes, err);
}

static ErrCode add_range_task(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    RangeTask task = {
        .id = move->id,
        .ns = move->ns,
        .uuid = move->uuid,
        .donor = move->from,
        .min = move->min,
        .max = move->max,
        .key = shard_key_pattern(move->key),
        .is_pending = true,
    };
    TRY(range_task_add(run->op, &task, err));
    atomic_fetch_add(&run->migrations->stats.recipient_started, 1);
    return ERR_OK;
}

static ErrCode clone_range(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    enter_state(run, RECEIVE_CLONE);
    int64_t begun_us = clock_mono_us();
    TRY(receive_clone(run, err));
    atomic_fetch_add(&run->migrations->stats.recipient_clone_us, clock_mono_us() - begun_us);
    return ERR_OK;
}

static bool is_commit_wanted(const Receiving *receiving, void *arg) {
    (void)arg;
    return receiving->commit_ts != 0;
}

static void count_caught_up(Receiving *receiving, void *arg) {
    int64_t count = *(int64_t *)arg;
    if (receiving->state == RECEIVE_STEADY)
        receiving->steady += count;
    else
        receiving->caught_up += count;
}

/* `until_ts` 0: whatever there is. */
static ErrCode pull_once(MoveRun *run, uint64_t until_ts, int64_t *ret_count, Error *err) {
    TRY(receive_modifications(run, &run->pulled_ts, until_ts, ret_count, err));
    if (*ret_count > 0)
        migrations_change(run->migrations, count_caught_up, ret_count);
    return ERR_OK;
}

/* Until no more is left than a critical section can wait for. */
static ErrCode pull(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    int64_t count;
    do
        TRY(pull_once(run, 0, &count, err));
    while (count > FEW_MODIFICATIONS);
    return ERR_OK;
}

static ErrCode receive_history(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    if (FAILPOINT(FAIL_MIGRATION_ON_RECIPIENT))
        return error_set(err, ERR_COMMAND_FAILED, "a failpoint ends the move behind its clone");
    enter_state(run, RECEIVE_CATCH_UP);
    run->pulled_ts = run->move.start_ts;
    return session_history_receive(run, err);
}

/* Each part as of now, so that the donor need not look far into the past. */
static ErrCode verify(MoveRun *run, StepAnswer *answer, Error *err) {
    Verification verification = {0};
    while (!verification.is_over) {
        TRY(pull(run, answer, err));
        TRY(receive_verify(run, run->pulled_ts, &verification, err));
    }
    return ERR_OK;
}

static ErrCode be_steady(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer, (void)err;
    enter_state(run, RECEIVE_STEADY);
    return ERR_OK;
}

static ErrCode drain(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    for (bool is_wanted = false; !is_wanted;) {
        TRY(migrations_wait(run->migrations, run->op, is_commit_wanted, NULL,
                            clock_deadline_ms(PULL_MS), &is_wanted, err));
        uint64_t until_ts = is_wanted ? migrations_receiving(run->migrations).commit_ts : 0;
        int64_t count;
        TRY(pull_once(run, until_ts, &count, err));
    }
    return ERR_OK;
}

static ErrCode block_writes(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    return move_run_block_writes(run, err);
}

static ErrCode read_outcome(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)err;
    enter_state(run, RECEIVE_READY);
    run->outcome = migrations_receiving(run->migrations).outcome;
    if (run->outcome == MOVE_UNDECIDED)
        *answer = STEP_NOT_YET;
    return ERR_OK;
}

static ErrCode give_up(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer, (void)err;
    migrations_note_given_up(run->migrations, &run->move.id, task_abort_message(run->task));
    run->outcome = MOVE_ABORTED;
    return ERR_OK;
}

static ErrCode settle_range_task(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    if (run->outcome == MOVE_COMMITTED)
        return range_task_remove(run->op, &move->id, err);
    Receiving receiving = migrations_receiving(run->migrations);
    int64_t orphans = receiving.documents > 0 ? receiving.documents : receiving.cloned;
    if (uuid_equal(&receiving.id, &move->id))
        TRY(range_task_set_orphans(run->op, &move->id, orphans, err));
    return range_task_make_ready(run->op, &move->id, /* is_delayed= */ false, err);
}

static ErrCode unblock(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    TRY(section_leave(run->op, &move->ns, move_section_reason(move, &run->op->arena), err));
    /* Nothing is read anew before somebody asks: there is no refresh that this could make fail. */
    failpoint_hit(FP_MIG_R_POST_COMMIT_REFRESH);
    range_deleter_wake(run->op->service->range_deleter);
    migrations_change(run->migrations, forget, (void *)&move->id);
    return ERR_OK;
}

static const MoveStep STEPS[RECIPIENT_STEP_COUNT] = {
    [RECIPIENT_CHECK_OWNER] = check_owner,
    [RECIPIENT_AWAIT_DELETIONS] = await_deletions,
    [RECIPIENT_CREATE] = create,
    [RECIPIENT_ADD_RANGE_TASK] = add_range_task,
    [RECIPIENT_CLONE] = clone_range,
    [RECIPIENT_RECEIVE_HISTORY] = receive_history,
    [RECIPIENT_PULL] = pull,
    [RECIPIENT_VERIFY] = verify,
    [RECIPIENT_BE_STEADY] = be_steady,
    [RECIPIENT_DRAIN] = drain,
    [RECIPIENT_BLOCK_WRITES] = block_writes,
    [RECIPIENT_READ_OUTCOME] = read_outcome,
    [RECIPIENT_GIVE_UP] = give_up,
    [RECIPIENT_SETTLE_RANGE_TASK] = settle_range_task,
    [RECIPIENT_UNBLOCK] = unblock,
};

static ErrCode run_phase(Task *task, OpCtx *op, Error *err) {
    static const char *const TEXTS[] = {"step 1 of 7", "step 2 of 7", "step 3 of 7", "step 4 of 7",
                                        "step 5 of 7", "step 6 of 7", "step 7 of 7"};
    static const MoveSide RECIPIENT = {.table = &RECIPIENT_STEPS,
                                       .steps = STEPS,
                                       .step_texts = TEXTS,
                                       .step_count = ARRAY_LEN(TEXTS),
                                       .first_pause = FP_MIGRATE_THREAD_HANG_1};
    _Static_assert(FP_MIGRATE_THREAD_HANG_7 - FP_MIGRATE_THREAD_HANG_1 + 1 == ARRAY_LEN(TEXTS) &&
                       ARRAY_LEN(TEXTS) == RECIPIENT_STEPS_SHOWN,
                   "a failpoint for each");
    return move_run_phase(task, op, &RECIPIENT, err);
}

static const TaskPhase PHASES[] = {
    {"prepare", TASK_OPEN, run_phase, {"clone"}, MOVE_FAILS_AT_ONCE},
    {"clone", TASK_OPEN, run_phase, {"catchUp"}, {{[TASK_ERROR_RESOURCE] = TASK_FAIL}}},
    {"catchUp",
     TASK_OPEN,
     run_phase,
     {"ready"},
     {{[TASK_ERROR_RESOURCE] = TASK_FAIL, [TASK_ERROR_CONFLICT] = TASK_FAIL}}},
    {"ready", TASK_COMMITTED, run_phase, {TASK_DONE}, {{0}}},
    {"undo", TASK_ABORTING, run_phase, {TASK_DONE}, {{0}}},
};

static void ended(void *arg, Doc doc) {
    (void)doc;
    migrations_hide(arg);
}

const TaskServiceSpec MOVE_RECIPIENT_SERVICE = {
    .name = MOVE_RECIPIENTS,
    .shown_as = "migrateThread",
    .ns = "config.migrationRecipients",
    .phases = PHASES,
    .phase_count = ARRAY_LEN(PHASES),
    .abort_phase = "undo",
    .threads_max = 2,
    .ended = ended,
};

/* ---- requests ---- */

static Elem id_elem(OpCtx *op, const Uuid *id) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "_id", id);
    return doc_get_lit(doc_builder_end(&b), "_id");
}

static ErrCode find_task(Migrations *migrations, OpCtx *op, const Uuid *id, Task **ret_task,
                         Error *err) {
    return task_find(repl_tasks(migrations->service->repl), MOVE_RECIPIENTS, id_elem(op, id),
                     ret_task, err);
}

/* The same for the donor, who wants to know what has become of it. */
static ErrCode find_or_tell(Migrations *migrations, OpCtx *op, const Uuid *id, Task **ret_task,
                            Error *err) {
    ErrCode rc = find_task(migrations, op, id, ret_task, err);
    GivenUp given_up = migrations_given_up(migrations);
    if (rc != ERR_NO_SUCH_KEY || !uuid_equal(&given_up.id, id))
        return rc;
    error_reset(err);
    return error_set(err, ERR_OPERATION_FAILED, "%s", given_up.why);
}

ErrCode recipient_start(Migrations *migrations, OpCtx *op, const MoveCaller *caller, Doc move,
                        Doc options, Doc indexes, Error *err) {
    Move parsed = {0};
    TRY(move_parse(move, &parsed, err));
    Uuid id = parsed.id;
    Ns ns = parsed.ns;
    move_done(&parsed);
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, ns_str(&ns), caller->shard, caller->term, &lock, err));
    Task *task;
    if (find_task(migrations, op, &id, &task, err) == ERR_OK) {
        task_unref(task);
        return ERR_OK;
    }
    if (err->code != ERR_NO_SUCH_KEY)
        return err->code;
    error_reset(err);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "move", move);
    build_doc(&b, "options", options);
    build_array(&b, "indexes", indexes);
    LockSet locks = {0};
    TRY(lock_set_add(&locks, STR(MIGRATION_LOCK), /* is_exclusive= */ true, err));
    TaskRequest request = {.service = MOVE_RECIPIENTS,
                           .id = id_elem(op, &id),
                           .request = doc_builder_end(&b),
                           .locks = &locks};
    TRY(task_begin(repl_tasks(migrations->service->repl), op, &request, &task, err));
    task_unref(task);
    return ERR_OK;
}

typedef struct Look {
    const Uuid *id;
    ReceiveState state;
} Look;

/* Or it is over, which the caller finds out. */
static bool has_come_to(const Receiving *receiving, void *arg) {
    const Look *look = arg;
    return !uuid_equal(&receiving->id, look->id) || receiving->state >= look->state;
}

ErrCode recipient_status(Migrations *migrations, OpCtx *op, const Uuid *id, int64_t wait_ms,
                         Receiving *ret_receiving, Error *err) {
    Look look = {id, RECEIVE_STEADY};
    bool is_met;
    TRY(migrations_wait(migrations, op, has_come_to, &look, clock_deadline_ms(wait_ms), &is_met,
                        err));
    *ret_receiving = migrations_receiving(migrations);
    if (uuid_equal(&ret_receiving->id, id))
        return ERR_OK;
    *ret_receiving = (Receiving){.id = *id}; /* begun, but not by this primary, or not yet */
    Task *task;
    TRY(find_or_tell(migrations, op, id, &task, err));
    task_unref(task);
    return op_sleep_us(op, (int64_t)PULL_MS * 1000, err);
}

typedef struct CommitWish {
    const Uuid *id;
    uint64_t ts;
} CommitWish;

static void wish_commit(Receiving *receiving, void *arg) {
    const CommitWish *wish = arg;
    if (uuid_equal(&receiving->id, wish->id))
        receiving->commit_ts = wish->ts;
}

ErrCode recipient_commit(Migrations *migrations, OpCtx *op, const Uuid *id, uint64_t commit_ts,
                         int64_t *ret_documents, Error *err) {
    Task *task;
    TRY(find_or_tell(migrations, op, id, &task, err));
    CommitWish wish = {id, commit_ts};
    Look look = {id, RECEIVE_READY};
    bool is_met = false;
    migrations_change(migrations, wish_commit, &wish);
    ErrCode rc = migrations_wait(migrations, op, has_come_to, &look,
                                 clock_deadline_ms(COMMIT_MS_MAX), &is_met, err);
    if (rc == ERR_OK) {
        Receiving now = migrations_receiving(migrations);
        *ret_documents = now.documents;
        if (uuid_equal(&now.id, id) && now.state == RECEIVE_READY)
            rc = ERR_OK;
        else if (!is_met)
            rc =
                error_set(err, ERR_EXCEEDED_TIME_LIMIT,
                          "the last modifications have not come within %d s", COMMIT_MS_MAX / 1000);
        else
            rc = error_set(err, ERR_OPERATION_FAILED, "this shard has given the move up");
    }
    task_unref(task);
    return rc;
}

typedef struct OutcomeWish {
    const Uuid *id;
    MoveOutcome outcome;
} OutcomeWish;

static void wish_outcome(Receiving *receiving, void *arg) {
    const OutcomeWish *wish = arg;
    /* Not known here yet: the primary is new. The task asks for it when it comes to it. */
    if (!uuid_equal(&receiving->id, wish->id))
        *receiving = (Receiving){.id = *wish->id};
    receiving->outcome = wish->outcome;
}

ErrCode recipient_end(Migrations *migrations, OpCtx *op, const Uuid *id, MoveOutcome outcome,
                      Error *err) {
    Task *task;
    if (find_task(migrations, op, id, &task, err) != ERR_OK) {
        if (err->code != ERR_NO_SUCH_KEY)
            return err->code;
        error_reset(err); /* it is over */
        return ERR_OK;
    }
    if (outcome == MOVE_ABORTED) {
        Error reason = {0};
        (void)error_set(&reason, ERR_OPERATION_FAILED, "the donor has given the move up");
        ErrCode rc = task_abort(task, op, &reason, err);
        error_reset(&reason);
        if (rc != ERR_OK && rc != ERR_ILLEGAL_OPERATION) {
            task_unref(task);
            return rc;
        }
        error_reset(err); /* past that: it is told the outcome */
    }
    OutcomeWish wish = {id, outcome};
    migrations_change(migrations, wish_outcome, &wish);
    task_resume(task);
    Doc result;
    ErrCode rc = task_wait(task, op, &result, err);
    task_unref(task);
    if (rc == ERR_OK || rc == ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE ||
        op_check_interrupt_slow(op, &(Error){0}) != ERR_OK)
        return rc;
    error_reset(err); /* the error that it was given up for */
    return ERR_OK;
}
