#include "sharding/migration/migrations.h"

#include <stdio.h>

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "catalog/access.h"
#include "repl/repl.h"
#include "sharding/shard/critical_section.h"
#include "sharding/shard/placement.h"

const char *receive_state_name(ReceiveState state) {
    static const char *const NAMES[] = {"none",    "ready",  "clone",
                                        "catchup", "steady", "enteredCritSec"};
    return NAMES[state];
}

Migrations *migrations_new(ServiceCtx *service, MigrationSettingsFn settings) {
    Migrations *migrations = NEW(Migrations);
    migrations->service = service;
    migrations->settings = settings;
    mutex_init(&migrations->mu, LOCK_RANK_MIGRATIONS);
    list_init(&migrations->waiters);
    return migrations;
}

void migrations_register(Migrations *migrations, TaskServices *services) {
    task_services_register(services, &MOVE_DONOR_SERVICE, migrations);
    task_services_register(services, &MOVE_RECIPIENT_SERVICE, migrations);
}

void migrations_free(Migrations *migrations) {
    if (migrations == NULL)
        return;
    xfree(migrations->shown.doc);
    mutex_done(&migrations->mu);
    xfree(migrations);
}

/* ---- what is received ---- */

typedef struct Waiter {
    ListNode node;
    OpCtx *op;
} Waiter;

void migrations_change(Migrations *migrations, ReceivingChange change, void *arg) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    change(&migrations->receiving, arg);
    LIST_FOR_EACH (&migrations->waiters, node)
        op_signal(CONTAINER_OF(node, Waiter, node)->op);
}

Receiving migrations_receiving(Migrations *migrations) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    return migrations->receiving;
}

void migrations_note_given_up(Migrations *migrations, const Uuid *id, const char *why) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    migrations->given_up.id = *id;
    snprintf(migrations->given_up.why, GIVEN_UP_SIZE, "the recipient has given the move up: %s",
             why != NULL ? why : "it does not know why");
}

GivenUp migrations_given_up(Migrations *migrations) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    return migrations->given_up;
}

/* ---- what is shown ---- */

enum {
    SHOWN_BOUNDS_BYTES_MAX = 64 * 1024, /* serverStatus is asked for often */
};

static uint8_t *build_shown(const Move *move, bool is_donor, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_str(&b, "source", move->from);
    build_str(&b, "destination", move->to);
    build_bool(&b, "isDonorShard", is_donor);
    if (doc_size(move->min) + doc_size(move->max) <= SHOWN_BOUNDS_BYTES_MAX) {
        size_t chunk = build_open_doc(&b, "chunk");
        build_doc(&b, "min", move->min);
        build_doc(&b, "max", move->max);
        build_close(&b, chunk);
    }
    build_str(&b, "collection", ns_str(&move->ns));
    Doc doc = doc_builder_end(&b);
    return xmemdup(doc.data, doc_size(doc));
}

static void show_move(const MoveRun *run, bool is_donor) {
    const Move *move = &run->move;
    Migrations *migrations = run->migrations;
    if (move->key == NULL) /* nothing was chosen yet */
        return;
    uint8_t *doc = build_shown(move, is_donor, &run->op->arena);
    {
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
        ShownMove *shown = &migrations->shown;
        if (shown->doc == NULL || !uuid_equal(&shown->id, &move->id)) {
            uint8_t *old = shown->doc;
            *shown = (ShownMove){.id = move->id, .doc = doc};
            doc = old;
        }
    }
    xfree(doc);
}

void migrations_hide(Migrations *migrations) {
    uint8_t *doc;
    {
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
        doc = TAKE_PTR(migrations->shown.doc);
    }
    xfree(doc);
}

/* ---- how it went ---- */

static void note_step(const MoveRun *run, uint8_t shown) {
    Migrations *migrations = run->migrations;
    int64_t now_us = clock_mono_us();
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    MoveAccount *account = &migrations->account;
    if (!uuid_equal(&account->id, &run->move.id))
        *account = (MoveAccount){.id = run->move.id, .mark_us = run->begun_us};
    account->step_us[shown - 1] += now_us - account->mark_us;
    account->mark_us = now_us;
}

void migrations_note_blocked(Migrations *migrations, const Uuid *id, int64_t writes_us,
                             int64_t reads_us) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    MoveAccount *account = &migrations->account;
    if (!uuid_equal(&account->id, id))
        return;
    account->writes_blocked_us = writes_us;
    account->reads_blocked_us = reads_us;
}

void migrations_forget_account(Migrations *migrations) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    migrations->account = (MoveAccount){0};
}

void migrations_build_account(Migrations *migrations, const Uuid *id, uint32_t count,
                              DocBuilder *b) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    const MoveAccount *account = &migrations->account;
    if (!uuid_equal(&account->id, id))
        return;
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "step %u of %u", i + 1, count);
        if (account->step_us[i] > 0)
            build_i64(b, name, account->step_us[i] / 1000);
    }
    if (account->writes_blocked_us > 0) {
        build_i64(b, "criticalSectionTimeMillis", account->writes_blocked_us / 1000);
        build_i64(b, "criticalSectionCommitTimeMillis", account->reads_blocked_us / 1000);
    }
}

void migrations_note_uncommitted(Migrations *migrations, const Uuid *id) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    migrations->uncommitted = id != NULL ? *id : (Uuid){0};
}

bool migrations_is_uncommitted(Migrations *migrations, const Uuid *id) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    return uuid_equal(&migrations->uncommitted, id);
}

void migrations_count_statements(Migrations *migrations, bool is_sent, bool is_recorded) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    ShownMove *shown = &migrations->shown;
    shown->statements_sent += is_sent;
    shown->statements_skipped += !is_sent && !is_recorded;
    shown->statements_recorded += is_recorded;
}

void migrations_build_shown(Migrations *migrations, DocBuilder *b) {
    if (!repl_is_writable(migrations->service->repl)) /* what it was in before */
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    const ShownMove *shown = &migrations->shown;
    if (shown->doc == NULL)
        return;
    Doc doc = {shown->doc};
    size_t migrations_part = build_open_doc(b, "migrations");
    build_all(b, doc);
    if (elem_is_truthy(doc_get_lit(doc, "isDonorShard"))) {
        build_i64(b, "sessionOplogEntriesToBeMigratedSoFar", shown->statements_sent);
        build_i64(b, "sessionOplogEntriesSkippedSoFarLowerBound", shown->statements_skipped);
    } else {
        build_i64(b, "sessionOplogEntriesMigrated", shown->statements_recorded);
    }
    build_close(b, migrations_part);
}

typedef struct Wanted {
    const Receiving *receiving;
    ReceivingCondition is_met;
    void *arg;
} Wanted;

static bool is_wanted(void *arg) {
    const Wanted *wanted = arg;
    return wanted->is_met(wanted->receiving, wanted->arg);
}

ErrCode migrations_wait(Migrations *migrations, OpCtx *op, ReceivingCondition is_met, void *arg,
                        int64_t deadline_us, bool *ret_is_met, Error *err) {
    Wanted wanted = {&migrations->receiving, is_met, arg};
    Waiter waiter = {.op = op};
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&migrations->mu);
    list_push_back(&migrations->waiters, &waiter.node);
    ErrCode rc =
        op_wait_until(op, &migrations->mu, is_wanted, &wanted, deadline_us, ret_is_met, err);
    list_remove(&waiter.node);
    return rc;
}

/* ---- runs of phases ---- */

static ErrCode move_run_begin(Task *task, OpCtx *op, MoveRun *ret_run, Error *err) {
    Migrations *migrations = task_arg(task);
    MoveRun run = {
        .task = task,
        .op = op,
        .migrations = migrations,
        .shard = migrations->service->shard,
        .begun_us = clock_mono_us(),
    };
    TRY(shard_get_name(run.shard, op, &run.self, err));
    TRY(shard_get_cluster(run.shard, op, &run.cluster, err));
    Elem move = doc_get_lit(task_doc(task), "move");
    if (elem_type(move) != BT_DOC)
        move = doc_get_lit(task_request(task), "move");
    if (elem_type(move) == BT_DOC)
        TRY(move_parse(elem_doc(move), &run.move, err));
    run.shards = cluster_shards(run.cluster);
    *ret_run = run;
    return ERR_OK;
}

static void move_run_done(MoveRun *run) {
    move_done(&run->move);
    shard_list_unref(run->shards);
    *run = (MoveRun){0};
}

enum {
    PAUSE_US = 10 * 1000, /* between two looks at a failpoint that keeps one there */
};

static ErrCode hit(OpCtx *op, uint16_t point, Error *err) {
    if (point == 0 || !failpoint_enter((FailpointId)(point - 1)))
        return ERR_OK;
    FailpointId id = (FailpointId)(point - 1);
    if (failpoint_stays(id))
        failpoint_tell_hang(id);
    while (failpoint_stays(id))
        TRY(op_sleep_us(op, PAUSE_US, err));
    return ERR_OK;
}

/* Tells that a step has ended, and stays there as long as its failpoint is on. */
static ErrCode show_step(const MoveRun *run, const MoveSide *side, uint8_t shown, Error *err) {
    if (shown == 0)
        return ERR_OK;
    OpCtx *op = run->op;
    note_step(run, shown);
    op_set_progress(op, side->step_texts[shown - 1], shown, side->step_count);
    FailpointId pause = side->first_pause + (FailpointId)(shown - 1);
    if (!failpoint_enter(pause))
        return ERR_OK;
    failpoint_tell_hang(pause);
    while (failpoint_is_set(pause))
        TRY(op_sleep_us(op, PAUSE_US, err));
    return ERR_OK;
}

/* Is it certain that what was asked for has not happened, and will not? */
static StepAnswer answer_of(ErrCode code) {
    switch (task_error_class(code)) {
    case TASK_ERROR_CONFLICT:
    case TASK_ERROR_STALE:
    case TASK_ERROR_OTHER:
        return STEP_FAILED;
    default:
        return STEP_UNCERTAIN;
    }
}

ErrCode move_run_phase(Task *task, OpCtx *op, const MoveSide *side, Error *err) {
    CLEANUP(move_run_done) MoveRun run = {0};
    TRY(move_run_begin(task, op, &run, err));
    show_move(&run, side->table == &DONOR_STEPS);
    const StepRow *row =
        step_table_first(side->table, elem_str(doc_get_lit(task_doc(task), "phase")));
    StepThen then = {.row = row};
    while (then.row != NULL) {
        row = then.row;
        TRY(hit(op, row->before, err));
        StepAnswer answer = STEP_OK;
        ErrCode rc = side->steps[row->step](&run, &answer, err);
        if (rc != ERR_OK) {
            /* The node steps down or stops: the next primary runs the phase again. */
            if (op_check_interrupt_slow(op, &(Error){0}) != ERR_OK)
                return rc;
            answer = answer_of(rc);
        }
        then = step_then(side->table, row, answer);
        if (then.is_error)
            return rc;
        if (then.is_refused)
            side->note_refused(&run, err);
        error_reset(err);
        if (!then.is_refused && answer != STEP_OTHERWISE && answer != STEP_NOT_YET) {
            TRY(hit(op, row->after, err));
            TRY(show_step(&run, side, row->shown, err));
        }
    }
    if (then.is_again)
        task_again(task, row->again_ms);
    else
        task_go_to(task, then.phase);
    return ERR_OK;
}

ErrCode move_run_shard(MoveRun *run, Str name, const Shard **ret_shard, Error *err) {
    *ret_shard = shard_list_find(run->shards, name);
    if (*ret_shard != NULL)
        return ERR_OK;
    TRY(cluster_reload_shards(run->cluster, run->op, err));
    shard_list_unref(run->shards);
    run->shards = cluster_shards(run->cluster);
    *ret_shard = shard_list_find(run->shards, name);
    if (*ret_shard == NULL)
        return error_set(err, ERR_SHARD_NOT_FOUND, "there is no shard \"%.*s\" in this cluster",
                         (int)name.size, name.data);
    return ERR_OK;
}

ErrCode move_run_ask(MoveRun *run, Str shard, DocBuilder *b, int64_t ms_max, ClientReply *reply,
                     Error *err) {
    const Shard *to;
    TRY(move_run_shard(run, shard, &to, err));
    build_cstr(b, "coordinator", run->self);
    build_i64(b, "term", task_term(run->task));
    size_t concern = build_open_doc(b, "writeConcern");
    build_cstr(b, "w", "majority");
    build_close(b, concern);
    remote_build_end(run->cluster, b, STR("admin"), NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = to,
                             .body = doc_builder_end(b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(ms_max)};
    ErrCode rc = remote_run(run->cluster, run->op, &request, reply, NULL, err);
    if (rc == ERR_OK)
        rc = client_check_writes(reply->body, err);
    return rc == ERR_OK ? ERR_OK : error_prefix(err, "shard \"%.*s\"", (int)shard.size, shard.data);
}

static Str key_text(Doc bound, KeyBuilder *kb) {
    key_builder_init(kb);
    shard_key_encode(bound, kb);
    return (Str){(const char *)kb->key.data, kb->key.size};
}

ErrCode move_run_route(MoveRun *run, CollectionRoute **ret_route, Error *err) {
    CollectionRoute *base = placement_find_any(run->shard, &run->move.ns);
    ErrCode rc = collection_route_read(run->cluster, run->op, &run->move.ns, base, ret_route, err);
    collection_route_unref(base);
    return rc;
}

ErrCode move_run_owner(MoveRun *run, bool *ret_is_owned, Str *ret_owner, Error *err) {
    const Move *move = &run->move;
    *ret_is_owned = false;
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(move_run_route(run, &route, err));
    if (route->map == NULL || !uuid_equal(&route->uuid, &move->uuid))
        return ERR_OK;
    KeyBuilder min, max;
    Str low = key_text(move->min, &min), high = key_text(move->max, &max);
    ShardIndex owner = chunk_map_owner(route->map, chunk_map_find(route->map, low));
    *ret_is_owned = chunk_map_owns_range(route->map, owner, low, high);
    Str name = chunk_map_shard_name(route->map, owner);
    *ret_owner = (Str){arena_strndup(&run->op->arena, name.data, name.size), name.size};
    key_builder_done(&min);
    key_builder_done(&max);
    return ERR_OK;
}

ErrCode move_run_block_writes(MoveRun *run, Error *err) {
    OpCtx *op = run->op;
    Doc reason = move_section_reason(&run->move, &op->arena);
    int64_t deadline_us = op->deadline_us;
    int64_t ms_max = run->migrations->settings(op->service).writers_ms_max;
    op_set_max_time(op, ms_max > 0 ? ms_max : 1); /* 0 would be no limit */
    ErrCode rc = section_enter(op, &run->move.ns, SECTION_WRITES, reason, err);
    op->deadline_us = deadline_us;
    if (rc != ERR_MAX_TIME_MS_EXPIRED)
        return rc;
    error_reset(err);
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "could not move the range: writers of %s, perhaps transactions, did not end "
                     "within %lld ms",
                     run->move.ns.text, (long long)ms_max);
}

/* ---- stopping ---- */

enum {
    STOPPED_MAX = 16, /* of one collection; a shard takes part in one move at a time */
};

typedef struct StopLook {
    OpCtx *op;
    const Ns *ns;
    Doc ids[STOPPED_MAX]; /* {_id} */
    uint32_t count;
} StopLook;

/* The collection, or one of the database. */
static bool is_of(const Ns *ns, Str name) {
    if (ns->size != ns->db_size)
        return str_equal(name, ns_str(ns));
    return name.size > ns->size && name.data[ns->size] == '.' &&
           memcmp(name.data, ns->text, ns->size) == 0;
}

static ErrCode note_move(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    StopLook *look = arg;
    Elem move = doc_get_path(doc, "move.nss");
    if (!elem_is_present(move))
        move = doc_get_path(doc, "task.request.move.nss");
    if (!elem_is_present(move))
        move = doc_get_path(doc, "task.request.ns");
    if (elem_type(move) != BT_STRING || !is_of(look->ns, elem_str(move)) ||
        look->count == STOPPED_MAX)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&look->op->arena);
    build_elem(&b, doc_get_lit(doc, "_id"));
    look->ids[look->count++] = doc_builder_end(&b);
    return ERR_OK;
}

static ErrCode stop_task(TaskServices *services, OpCtx *op, const char *service, Elem id,
                         Error *err) {
    Task *task;
    if (task_find(services, service, id, &task, err) != ERR_OK) {
        if (err->code != ERR_NO_SUCH_KEY)
            return err->code;
        error_reset(err);
        return ERR_OK;
    }
    Error reason = {0};
    (void)error_set(&reason, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                    "the move was given up: another operation changes the collection");
    ErrCode rc = task_abort(task, op, &reason, err);
    error_reset(&reason);
    if (rc == ERR_OK || rc == ERR_ILLEGAL_OPERATION) { /* about to commit: that ends soon */
        error_reset(err);
        Doc result;
        rc = task_wait(task, op, &result, err);
        /* Its own error is none of ours. */
        if (rc != ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE &&
            op_check_interrupt_slow(op, &(Error){0}) == ERR_OK) {
            error_reset(err);
            rc = ERR_OK;
        }
    }
    task_unref(task);
    return rc;
}

ErrCode migrations_stop(Migrations *migrations, OpCtx *op, const Ns *ns, Error *err) {
    static const TaskServiceSpec *const SERVICES[] = {&MOVE_DONOR_SERVICE, &MOVE_RECIPIENT_SERVICE};
    for (size_t i = 0; i < ARRAY_LEN(SERVICES); i++) {
        Ns docs;
        TRY(ns_parse(str_from(SERVICES[i]->ns), &docs, err));
        StopLook look = {.op = op, .ns = ns};
        TRY(access_each(op, &docs, /* is_forward= */ true, note_move, &look, err));
        for (uint32_t k = 0; k < look.count; k++)
            TRY(stop_task(repl_tasks(migrations->service->repl), op, SERVICES[i]->name,
                          doc_get_lit(look.ids[k], "_id"), err));
    }
    return ERR_OK;
}
