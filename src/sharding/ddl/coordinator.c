#include "sharding/ddl/coordinator.h"

#include <string.h>

#include "base/failpoint.h"
#include "repl/repl.h"
#include "sharding/ddl/coordinator_internal.h"

enum {
    REASON_BYTES_MAX = 4096, /* of what is noted of a refusal */
};

typedef struct OperationRow {
    const char *name;  /* operationType */
    const char *shown; /* currentOp's `desc` */
    ErrCode (*begin)(DdlRun *run, Error *err);
    bool is_of_database;
} OperationRow;

static const OperationRow OPERATIONS[] = {
    [DDL_SHARD_COLLECTION] = {"createCollection_V3", "CreateCollectionCoordinator", create_begin,
                              false},
    [DDL_DROP_COLLECTION] = {"dropCollection_V2", "DropCollectionCoordinator", drop_begin, false},
    [DDL_DROP_DATABASE] = {"dropDatabase_V2", "DropDatabaseCoordinator", drop_database_begin, true},
    [DDL_RENAME_COLLECTION] = {"renameCollection_V2", "RenameCollectionCoordinator", rename_begin,
                               false},
    [DDL_COLL_MOD] = {"collMod_V3", "CollModCoordinator", apply_begin, false},
    [DDL_DROP_INDEXES] = {"dropIndexes", "DropIndexesCoordinator", apply_begin, false},
    [DDL_MOVE_PRIMARY] = {"movePrimary", "MovePrimaryCoordinator", move_primary_begin, true},
};

/* ---- phases ---- */

static const OperationRow *operation_of(const DdlRun *run) {
    Elem name = doc_get_lit(ddl_request(run), "operation");
    for (size_t i = 0; i < ARRAY_LEN(OPERATIONS); i++)
        if (elem_type(name) == BT_STRING && str_is(elem_str(name), OPERATIONS[i].name))
            return &OPERATIONS[i];
    return NULL;
}

/* currentOp tells which operation it is, and of what. */
static void show(const DdlRun *run) {
    const OperationRow *row = operation_of(run);
    Elem ns = doc_get_lit(ddl_request(run), "ns");
    if (row == NULL || elem_type(ns) != BT_STRING)
        return;
    Str text = elem_str(ns);
    op_describe(run->op,
                &(OpDescription){.op_type = "command",
                                 .ns = arena_strndup(&run->op->arena, text.data, text.size),
                                 .desc = row->shown});
}

static ErrCode run_phase(Task *task, OpCtx *op, DdlPhase phase, Error *err) {
    CLEANUP(ddl_run_done) DdlRun run = {0};
    TRY(ddl_run_begin(task, op, &run, err));
    show(&run);
    return phase(&run, err);
}

#define PHASE(name)                                                                                \
    static ErrCode run_##name(Task *task, OpCtx *op, Error *err) {                                 \
        return run_phase(task, op, name, err);                                                     \
    }
DDL_PHASES(PHASE)
#undef PHASE

static Str database_of(const DdlRun *run) {
    Str ns = elem_str(doc_get_lit(ddl_request(run), "ns"));
    const char *dot = memchr(ns.data, '.', ns.size);
    return (Str){ns.data, dot != NULL ? (size_t)(dot - ns.data) : ns.size};
}

/* With the locks in hand: the database may have moved while they were waited for. The id is stored
 * with whatever the operation stores when it begins, before anything is done under it. */
static ErrCode begin(DdlRun *run, Error *err) {
    const OperationRow *row = operation_of(run);
    if (row == NULL)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "a coordinator has no operation that this version knows");
    failpoint_hang(FP_HANG_BEFORE_DDL);
    TRY(ddl_check_primary(run, database_of(run), err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    Uuid id = uuid_new();
    build_uuid(&b, "operationId", &id);
    ddl_set_fields(run, &b);
    return row->begin(run, err);
}

static ErrCode run_begin(Task *task, OpCtx *op, Error *err) {
    return run_phase(task, op, begin, err);
}

/* What may have been done, not what was noted. */
static ErrCode undo(DdlRun *run, Error *err) {
    const OperationRow *row = operation_of(run);
    if (row == NULL || !elem_is_present(ddl_field(run, "operationId")))
        return ERR_OK;
    if (row->begin == move_primary_begin)
        return move_primary_undo(run, err);
    Ns ns, to;
    TRY(ddl_ns(run, &ns, err));
    if (row->begin == create_begin)
        TRY(create_undo(run, err));
    Elem target = doc_get_lit(ddl_request(run), "to");
    if (elem_type(target) == BT_STRING) {
        TRY(ns_parse(elem_str(target), &to, err));
        TRY(ddl_block_all(run, &to, "Unblock", err));
    }
    return ddl_block_all(run, &ns, "Unblock", err);
}

static ErrCode run_undo(Task *task, OpCtx *op, Error *err) {
    return run_phase(task, op, undo, err);
}

static const TaskPhase PHASES[] = {
    {"begin",
     TASK_OPEN,
     run_begin,
     {TASK_DONE, "create.block", "drop.block", "drop.data", "dbdrop.next", "rename.block",
      "rename.local", "apply.primary", "movePrimary.block"},
     {{0}}},
    {"create.block", TASK_OPEN, run_create_block, {"create.build"}, {{0}}},
    {"create.build", TASK_OPEN, run_create_build, {"create.participants"}, {{0}}},
    {"create.participants", TASK_OPEN, run_create_participants, {"create.commit"}, {{0}}},
    {"create.commit", TASK_COMMITTED, run_create_commit, {"create.release"}, {{0}}},
    {"create.release", TASK_COMMITTED, run_create_release, {TASK_DONE}, {{0}}},
    {"drop.block", TASK_OPEN, run_drop_block, {"drop.commit"}, {{0}}},
    {"drop.commit", TASK_COMMITTED, run_drop_commit, {"drop.data"}, {{0}}},
    {"drop.data", TASK_COMMITTED, run_drop_data, {"drop.release", TASK_DONE}, {{0}}},
    {"drop.release", TASK_COMMITTED, run_drop_release, {TASK_DONE}, {{0}}},
    {"dbdrop.next", TASK_COMMITTED, run_drop_database_next, {"dbdrop.one", "dbdrop.block"}, {{0}}},
    {"dbdrop.one", TASK_COMMITTED, run_drop_database_one, {"dbdrop.next"}, {{0}}},
    {"dbdrop.block", TASK_COMMITTED, run_drop_database_block, {"dbdrop.data"}, {{0}}},
    {"dbdrop.data", TASK_COMMITTED, run_drop_database_data, {"dbdrop.commit"}, {{0}}},
    {"dbdrop.commit", TASK_COMMITTED, run_drop_database_commit, {"dbdrop.release"}, {{0}}},
    {"dbdrop.release", TASK_COMMITTED, run_drop_database_release, {TASK_DONE}, {{0}}},
    {"rename.block", TASK_OPEN, run_rename_block, {"rename.data"}, {{0}}},
    {"rename.local", TASK_COMMITTED, run_rename_local, {TASK_DONE}, {{0}}},
    {"rename.data", TASK_COMMITTED, run_rename_data, {"rename.commit"}, {{0}}},
    {"rename.commit", TASK_COMMITTED, run_rename_commit, {"rename.release"}, {{0}}},
    {"rename.release", TASK_COMMITTED, run_rename_release, {TASK_DONE}, {{0}}},
    {"apply.primary", TASK_OPEN, run_apply_primary, {"apply.others", TASK_DONE}, {{0}}},
    {"apply.others", TASK_COMMITTED, run_apply_others, {TASK_DONE}, {{0}}},
    {"movePrimary.block", TASK_OPEN, run_move_primary_block, {"movePrimary.clone"}, {{0}}},
    {"movePrimary.clone", TASK_OPEN, run_move_primary_clone, {"movePrimary.catchup"}, {{0}}},
    {"movePrimary.catchup",
     TASK_OPEN,
     run_move_primary_catch_up,
     {"movePrimary.enterCritSec"},
     {{0}}},
    {"movePrimary.enterCritSec", TASK_OPEN, run_move_primary_enter, {"movePrimary.commit"}, {{0}}},
    {"movePrimary.commit",
     TASK_COMMITTED,
     run_move_primary_commit,
     {"movePrimary.clean", "movePrimary.refused"},
     {{0}}},
    {"movePrimary.clean",
     TASK_COMMITTED,
     run_move_primary_clean,
     {"movePrimary.exitCritSec"},
     {{0}}},
    {"movePrimary.exitCritSec", TASK_COMMITTED, run_move_primary_exit, {TASK_DONE}, {{0}}},
    {"movePrimary.refused",
     TASK_COMMITTED,
     run_move_primary_refused,
     {TASK_DONE, "movePrimary.clean"},
     {{0}}},
    {"undo", TASK_ABORTING, run_undo, {TASK_DONE}, {{0}}},
};

static const TaskServiceSpec SERVICE = {
    .name = DDL_SERVICE_NAME,
    .ns = DDL_COORDINATORS,
    .phases = PHASES,
    .phase_count = ARRAY_LEN(PHASES),
    .abort_phase = "undo",
    .threads_max = 8,
};

void ddl_coordinators_register(TaskServices *services, ShardState *state) {
    task_services_register(services, &SERVICE, state);
}

/* ---- results ---- */

void ddl_build_refused(DocBuilder *b, const Error *err) {
    size_t refused = build_open_doc(b, "refused");
    build_i32(b, "code", (int32_t)err->code);
    Str text = str_from(error_message(err));
    build_str(b, "errmsg",
              (Str){text.data, text.size < REASON_BYTES_MAX ? text.size : REASON_BYTES_MAX});
    build_close(b, refused);
}

static ErrCode check_result(Doc result, Error *err) {
    Elem refused = doc_get_lit(result, "refused");
    if (LIKELY(elem_type(refused) != BT_DOC))
        return ERR_OK;
    Elem code = doc_get_lit(elem_doc(refused), "code"),
         text = doc_get_lit(elem_doc(refused), "errmsg");
    return error_set(err, (ErrCode)elem_as_i64(code), "%s", elem_str(text).data);
}

/* ---- asking ---- */

static ErrCode add_locks(const DdlOrder *order, LockSet *locks, Error *err) {
    bool is_of_database = OPERATIONS[order->operation].is_of_database;
    TRY(lock_set_add(locks, ns_db(&order->ns), is_of_database, err));
    if (is_of_database)
        return ERR_OK;
    TRY(lock_set_add(locks, ns_str(&order->ns), /* is_exclusive= */ true, err));
    if (order->to == NULL)
        return ERR_OK;
    TRY(lock_set_add(locks, ns_db(order->to), /* is_exclusive= */ false, err));
    return lock_set_add(locks, ns_str(order->to), /* is_exclusive= */ true, err);
}

static Doc build_id(OpCtx *op, const DdlOrder *order) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t id = build_open_doc(&b, "_id");
    build_str(&b, "namespace", ns_str(&order->ns));
    build_cstr(&b, "operationType", OPERATIONS[order->operation].name);
    build_close(&b, id);
    return doc_builder_end(&b);
}

static Doc build_request(OpCtx *op, const DdlOrder *order) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "operation", OPERATIONS[order->operation].name);
    build_str(&b, "ns", ns_str(&order->ns));
    if (order->to != NULL)
        build_str(&b, "to", ns_str(order->to));
    build_doc(&b, "arguments", order->arguments);
    return doc_builder_end(&b);
}

ErrCode ddl_coordinate(OpCtx *op, const DdlOrder *order, Doc *ret_result, Error *err) {
    LockSet locks = {0};
    TRY(add_locks(order, &locks, err));
    Doc id = build_id(op, order);
    TaskRequest request = {.service = DDL_SERVICE_NAME,
                           .id = doc_get_lit(id, "_id"),
                           .request = build_request(op, order),
                           .locks = &locks,
                           .waits_for_locks = true};
    Task *task;
    TRY(task_begin(repl_tasks(op->service->repl), op, &request, &task, err));
    ErrCode rc = task_wait(task, op, ret_result, err);
    task_unref(task);
    TRY(rc);
    return check_result(*ret_result, err);
}
