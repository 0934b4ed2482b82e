#include "router/write_commands.h"

#include <string.h>

#include "commands/core/command_service.h"
#include "router/forward.h"
#include "router/router_txn.h"
#include "router/routing.h"
#include "router/scatter.h"
#include "router/uuid_names.h"
#include "router/write_batch.h"

enum {
    /* Rounds that brought nothing because of old metadata: then something else is wrong. */
    IDLE_ROUNDS_MAX = 5,
    /* Of a message, for what the router adds to the body. */
    BODY_ROOM_BYTES = 64 * 1024,
};

/* Shards that rounds have gone to. */
typedef struct TargetedShards {
    const char **names;
    uint32_t count;
} TargetedShards;

/* What an insert, an update and a delete have in common. */
typedef struct WriteCommand {
    CommandCtx *ctx;
    const char *list_name; /* "documents", "updates", "deletes" */
    DocList list;
    StatementArgs given_ids;
    Ns ns;
    WriteTargetFn target;
    WriteBatch batch;
    int32_t *ids;    /* of statements; NULL: not retryable */
    bool is_changed; /* `list` is not what the client sent any more */
    TargetedShards targeted;
    /* Parsed when they are needed first. */
    UpdateStatement *updates;
    DeleteStatement *deletes;
    /* Of the present metadata. */
    Routing *routing;
    WriteTargeter targeter;
    Error stale; /* the last refusal because of old metadata */
} WriteCommand;

static void write_command_done(WriteCommand *command) {
    write_batch_done(&command->batch);
    write_targeter_done(&command->targeter);
    error_reset(&command->stale);
}

static bool is_retryable(const CommandCtx *ctx) {
    return elem_is_present(ctx->args.txn_number) && !ctx->is_txn;
}

/* ---- sending ---- */

static ScatterOptions scatter_options(const CommandCtx *ctx) {
    return (ScatterOptions){.retry = is_retryable(ctx) ? REMOTE_IDEMPOTENT : REMOTE_ONCE};
}

/* The client's request as it came. */
static void make_whole_call(WriteCommand *command, const Shard *shard, ShardCall *call) {
    CommandCtx *ctx = command->ctx;
    DocBuilder b = doc_builder_in_arena_sized(cmd_arena(ctx), doc_size(ctx->body) + 512);
    routing_copy_fields(ctx, &b, NULL);
    call->shard = shard;
    call->body = routing_end_body(command->routing, &b, shard, NULL);
    if (ctx->message->sequence_count == 0)
        return;
    ClientSequence *sequence = ARENA_NEW(cmd_arena(ctx), ClientSequence);
    *sequence = (ClientSequence){command->list_name, command->list.docs, command->list.count};
    call->sequences = sequence;
    call->sequence_count = 1;
}

static void build_ids(const WriteCommand *command, const WritePart *part, DocBuilder *b) {
    if (command->ids == NULL)
        return;
    char name[INDEX_NAME_SIZE];
    size_t opened = build_open_array(b, "stmtIds");
    for (uint32_t i = 0; i < part->count; i++)
        build_i32(b, index_name(i, name).data, command->ids[part->statements[i]]);
    build_close(b, opened);
}

/* Some of its statements. A request that several shards get is right whatever each of them owns:
 * it would be executed twice if one of them refused it and all were asked again. */
static void make_part_call(WriteCommand *command, const WritePart *part, const Shard *shard,
                           ShardCall *call) {
    CommandCtx *ctx = command->ctx;
    const char *const without[] = {command->list_name, "stmtId", "stmtIds", NULL};
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    routing_copy_fields(ctx, &b, without);
    build_ids(command, part, &b);
    if (part->is_spread) {
        chunk_version_build(&b, "shardVersion", &VERSION_IGNORED);
        call->body = routing_end_body_unversioned(command->routing, &b, NULL);
    } else {
        call->body = routing_end_body(command->routing, &b, shard, NULL);
    }
    call->shard = shard;
    Doc *docs = arena_alloc(cmd_arena(ctx), part->count * sizeof(Doc));
    for (uint32_t i = 0; i < part->count; i++)
        docs[i] = command->list.docs[part->statements[i]];
    ClientSequence *sequence = ARENA_NEW(cmd_arena(ctx), ClientSequence);
    *sequence = (ClientSequence){command->list_name, docs, part->count};
    call->sequences = sequence;
    call->sequence_count = 1;
}

/* What is old is marked. */
static ErrCode note_stale(WriteCommand *command, Error *stale, Error *err) {
    bool is_repeatable = router_txn_may_repeat(command->ctx);
    error_move(is_repeatable ? &command->stale : err, stale);
    return err->code; /* inside of a transaction that cannot begin again */
}

/* Takes what one shard has answered to a part. */
static ErrCode take_answer(WriteCommand *command, const WritePart *part, ShardCall *call,
                           Error *ret_stale, Error *err) {
    const CommandCtx *ctx = command->ctx;
    CLEANUP(error_reset) Error stale = {0};
    /* The client sends all of it again, and each statement is executed once. */
    bool is_of_all = ctx->is_txn || (is_retryable(ctx) && error_is_retriable(call->rc));
    if (LIKELY(call->rc == ERR_OK)) {
        write_batch_take_reply(&command->batch, part, call->reply.body, &stale);
    } else if (routing_is_stale_error(call->rc)) {
        error_move(&stale, &call->err);
    } else if (is_of_all) {
        error_move(err, &call->err);
        return err->code;
    } else {
        write_batch_take_error(&command->batch, part, &call->err);
    }
    if (UNLIKELY(stale.code != ERR_OK)) {
        routing_mark_stale(command->routing, &stale, str_from(part->shard));
        error_move(ret_stale, &stale);
    }
    return ERR_OK;
}

/* ---- targets ---- */

/* A document gets its _id here if that is part of the shard key. */
static ErrCode target_insert(void *arg, uint32_t index, WriteTarget *ret_target, Error *err) {
    WriteCommand *command = arg;
    Doc doc = command->list.docs[index];
    const ChunkMap *map = command->targeter.map;
    if (UNLIKELY(shard_key_touches(chunk_map_key(map), STR("_id")) &&
                 !elem_is_present(doc_get_lit(doc, "_id")))) {
        Oid id = oid_new();
        DocBuilder b = doc_builder_in_arena_sized(&command->batch.arena, doc_size(doc) + 32);
        build_oid(&b, "_id", &id);
        build_all(&b, doc);
        doc = doc_builder_end(&b);
        ((Doc *)command->list.docs)[index] = doc; /* an array of this request's own */
        command->is_changed = true;
    }
    return write_target_insert(&command->targeter, doc, ret_target, err);
}

static ErrCode target_update(void *arg, uint32_t index, WriteTarget *ret_target, Error *err) {
    WriteCommand *command = arg;
    return write_target_update(&command->targeter, &command->updates[index], ret_target, err);
}

static ErrCode target_delete(void *arg, uint32_t index, WriteTarget *ret_target, Error *err) {
    WriteCommand *command = arg;
    return write_target_delete(&command->targeter, &command->deletes[index], ret_target, err);
}

/* Of a collection that is not sharded. */
static ErrCode target_primary(void *arg, uint32_t index, WriteTarget *ret_target, Error *err) {
    (void)arg, (void)index, (void)err;
    *ret_target = (WriteTarget){.is_single = true};
    return ERR_OK;
}

static ErrCode parse_statements(WriteCommand *command, Error *err) {
    Arena *arena = cmd_arena(command->ctx);
    const DocList *list = &command->list;
    if (command->target == target_update && command->updates == NULL) {
        UpdateStatement *updates = ARENA_ARRAY(arena, UpdateStatement, list->count + 1);
        TRY(update_statements_parse(list, arena, updates, err));
        command->updates = updates;
    }
    if (command->target == target_delete && command->deletes == NULL) {
        DeleteStatement *deletes = ARENA_ARRAY(arena, DeleteStatement, list->count + 1);
        TRY(delete_statements_parse(list, arena, deletes, err));
        command->deletes = deletes;
    }
    return ERR_OK;
}

static ErrCode parse_ids(WriteCommand *command, Error *err) {
    const StatementArgs *given = &command->given_ids;
    if (elem_is_present(given->first) && elem_is_present(given->all))
        return error_set(err, ERR_INVALID_OPTIONS, "May not specify both stmtId and stmtIds");
    if (!is_retryable(command->ctx) || command->ids != NULL)
        return ERR_OK;
    int32_t *ids = ARENA_ARRAY(cmd_arena(command->ctx), int32_t, command->list.count + 1);
    TRY(statement_ids_parse(given, command->ctx->spec->name, command->list.count, ids, err));
    command->ids = ids;
    return ERR_OK;
}

/* Before statements are told apart. */
static ErrCode prepare_parts(WriteCommand *command, Error *err) {
    const CollectionRoute *route = command->routing->collection;
    TRY(parse_ids(command, err));
    if (!routing_is_sharded(command->routing))
        return ERR_OK;
    TRY(parse_statements(command, err));
    return write_targeter_init(&command->targeter, route->map, route->collation, err);
}

/* ---- rounds ---- */

static ErrCode run_parts(WriteCommand *command, const WritePlan *plan, Error *ret_stale,
                         Error *err) {
    CommandCtx *ctx = command->ctx;
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, plan->count);
    for (uint32_t i = 0; i < plan->count; i++) {
        const Shard *shard;
        Str name = str_from(plan->parts[i].shard);
        TRY(routing_find_shard(command->routing, name, &shard, err));
        make_part_call(command, &plan->parts[i], shard, &calls.rows[i]);
    }
    ScatterOptions options = scatter_options(ctx);
    TRY(scatter_run(ctx, &calls, &options, err));
    for (uint32_t i = 0; i < plan->count; i++)
        TRY(take_answer(command, &plan->parts[i], &calls.rows[i], ret_stale, err));
    return ERR_OK;
}

/* Of one state of the metadata. Names are copied: they outlive it. */
static WritePlanner make_planner(WriteCommand *command) {
    const Routing *routing = command->routing;
    Arena *arena = cmd_arena(command->ctx);
    const ChunkMap *map = routing->collection->map;
    uint32_t owner_count = map != NULL ? chunk_map_shard_count(map) : 1;
    const char **owners = ARENA_ARRAY(arena, const char *, owner_count);
    for (ShardIndex i = 0; i < owner_count; i++) {
        Str name = map != NULL ? chunk_map_shard_name(map, i) : str_from(routing->database->shard);
        owners[i] = arena_strndup(arena, name.data, name.size);
    }
    const char **shards = ARENA_ARRAY(arena, const char *, routing->shards->count + 1);
    for (uint32_t i = 0; i < routing->shards->count; i++)
        shards[i] = arena_strdup(arena, routing->shards->rows[i].name);
    return (WritePlanner){.target = map != NULL ? command->target : target_primary,
                          .arg = command,
                          .owners = owners,
                          .owner_count = owner_count,
                          .shards = shards,
                          .shard_count = routing->shards->count};
}

static void add_targeted(TargetedShards *targeted, const WritePlan *plan) {
    for (uint32_t i = 0; i < plan->count; i++) {
        uint32_t at = 0;
        while (at < targeted->count && strcmp(targeted->names[at], plan->parts[i].shard) != 0)
            at++;
        if (at == targeted->count)
            targeted->names[targeted->count++] = plan->parts[i].shard;
    }
}

static void count_targeted(const WriteCommand *command, uint32_t shard_count) {
    TargetedCommand kind = command->target == target_insert   ? TARGETED_INSERT
                           : command->target == target_update ? TARGETED_UPDATE
                                                              : TARGETED_DELETE;
    routing_count_target(command->routing, kind, shard_count);
}

/* With room for those of one state of the metadata, besides those of older ones. */
static void keep_targeted(WriteCommand *command, const WritePlanner *planner) {
    TargetedShards *targeted = &command->targeted;
    const char **names = ARENA_ARRAY(cmd_arena(command->ctx), const char *,
                                     targeted->count + planner->shard_count + planner->owner_count);
    if (targeted->count > 0)
        memcpy(names, targeted->names, targeted->count * sizeof(*names));
    targeted->names = names;
}

static ErrCode begin_plans(WriteCommand *command, bool needs_list, WritePlanner *ret_planner,
                           Error *err) {
    if (needs_list)
        TRY(routing_load_shards(command->routing, err));
    *ret_planner = make_planner(command);
    keep_targeted(command, ret_planner);
    return ERR_OK;
}

static ErrCode run_round(WriteCommand *command, const WritePlanner *planner, bool *ret_needs_list,
                         Error *err) {
    /* What is kept of a round is in the batch; many rounds must not fill the arena. */
    ArenaMark mark = arena_mark(cmd_arena(command->ctx));
    CLEANUP(error_reset) Error stale = {0};
    WritePlan plan = write_batch_plan(&command->batch, planner, cmd_arena(command->ctx));
    *ret_needs_list = plan.needs_list;
    if (plan.count > 0)
        TRY(run_parts(command, &plan, &stale, err));
    add_targeted(&command->targeted, &plan);
    arena_rewind(cmd_arena(command->ctx), mark);
    return stale.code == ERR_OK ? ERR_OK : note_stale(command, &stale, err);
}

/* Until everything is done, or metadata turn out to be old: command->stale. */
static ErrCode run_rounds(WriteCommand *command, Error *err) {
    TRY(prepare_parts(command, err));
    WritePlanner planner;
    TRY(begin_plans(command, /* needs_list= */ false, &planner, err));
    while (write_batch_is_pending(&command->batch) && command->stale.code == ERR_OK) {
        bool needs_list;
        planner.is_list_old = routing_has_old_shards(command->routing);
        TRY(run_round(command, &planner, &needs_list, err));
        if (needs_list)
            TRY(begin_plans(command, needs_list, &planner, err));
    }
    if (command->targeted.count > 0 && command->stale.code == ERR_OK)
        count_targeted(command, command->targeted.count);
    return ERR_OK;
}

/* The shard that gets the whole request; NULL: it has to be taken apart. */
static ErrCode find_only_shard(WriteCommand *command, const Shard **ret_shard, Error *err) {
    Routing *routing = command->routing;
    *ret_shard = NULL;
    /* There must be room for what the router adds. */
    bool is_large = command->ctx->message->size > WIRE_MESSAGE_SIZE_MAX - BODY_ROOM_BYTES;
    if (command->is_changed || (is_large && command->list.count > 1))
        return ERR_OK;
    if (!routing_is_sharded(routing))
        return routing_primary(routing, ret_shard, err);
    if (command->list.count > 1)
        return ERR_OK;
    TRY(prepare_parts(command, err));
    WriteTarget target = {0};
    CLEANUP(error_reset) Error failed = {0};
    ErrCode rc = command->target(command, 0, &target, &failed);
    /* An error of the statement is reported by the rounds. */
    if (rc != ERR_OK || !target.is_single || command->is_changed)
        return ERR_OK;
    Str name = chunk_map_shard_name(routing->collection->map, target.shard);
    return routing_find_shard(routing, name, ret_shard, err);
}

/* Passes the request on as it came, and the reply back if nothing in it has to be done again.
 * *ret_is_over: the reply is there. */
static ErrCode run_whole(WriteCommand *command, const Shard *shard, bool *ret_is_over, Error *err) {
    CommandCtx *ctx = command->ctx;
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    ShardCall *call = &calls.rows[0];
    make_whole_call(command, shard, call);
    ScatterOptions options = scatter_options(ctx);
    TRY(scatter_run(ctx, &calls, &options, err));
    if (!routing_is_stale_error(call->rc))
        count_targeted(command, 1);
    if (call->rc == ERR_OK && !elem_is_present(doc_get_lit(call->reply.body, "writeErrors"))) {
        forward_build_reply(ctx, call->reply.body, NULL);
        *ret_is_over = true;
        return ERR_OK;
    }
    if (call->rc != ERR_OK && !routing_is_stale_error(call->rc)) {
        error_move(err, &call->err);
        return err->code;
    }
    CLEANUP(error_reset) Error stale = {0};
    WritePart part = write_batch_whole(&command->batch, shard->name);
    TRY(take_answer(command, &part, call, &stale, err));
    return stale.code == ERR_OK ? ERR_OK : note_stale(command, &stale, err);
}

/* By one state of the metadata. */
static ErrCode run_routed(WriteCommand *command, Routing *routing, bool *ret_is_over, Error *err) {
    command->routing = routing;
    error_reset(&command->stale);
    write_targeter_done(&command->targeter);
    write_batch_forget_targets(&command->batch);
    if (!command->batch.is_begun) {
        const Shard *shard;
        TRY(find_only_shard(command, &shard, err));
        if (shard != NULL)
            return run_whole(command, shard, ret_is_over, err);
        write_targeter_done(&command->targeter);
    }
    return run_rounds(command, err);
}

static ErrCode run_until_done(WriteCommand *command, bool *ret_is_over, Error *err) {
    bool is_repeat = false;
    for (int idle_rounds = 0;; is_repeat = true) {
        CLEANUP(routing_done) Routing routing = {0};
        TRY(routing_begin(command->ctx, &command->ns, ROUTING_CREATES, is_repeat, &routing, err));
        uint32_t before = command->batch.done_count;
        ErrCode rc = run_routed(command, &routing, ret_is_over, err);
        if (UNLIKELY(routing.is_outdated)) { /* and what was to be sent then was not */
            error_reset(err);
            continue;
        }
        TRY(rc);
        if (*ret_is_over || !write_batch_is_pending(&command->batch))
            return ERR_OK;
        idle_rounds = command->batch.done_count > before ? 0 : idle_rounds + 1;
        if (idle_rounds < IDLE_ROUNDS_MAX)
            continue;
        CLEANUP(error_reset) Error failed = {0};
        (void)error_set(&failed, ERR_NO_PROGRESS_MADE,
                        "no statement could be executed in %d rounds, %u are done: %s",
                        IDLE_ROUNDS_MAX, command->batch.done_count, error_message(&command->stale));
        write_batch_fail_rest(&command->batch, &failed);
        return ERR_OK;
    }
}

/* Statements of one request, beside the fields of its body. */
static size_t statement_bytes_max(const WriteCommand *command) {
    Elem list = doc_get(command->ctx->body, str_from(command->list_name));
    size_t body_size = doc_size(command->ctx->body);
    if (elem_is_present(list))
        body_size -= elem_size(list);
    return WIRE_MESSAGE_SIZE_MAX - body_size - BODY_ROOM_BYTES;
}

/* What one of the commands was asked for. */
typedef struct WriteRequest {
    Str coll;
    DocList list;
    Elem ordered;
    StatementArgs ids;
} WriteRequest;

typedef struct WriteKind {
    const char *list_name;
    WriteTargetFn target;
    OpCounter counter;
} WriteKind;

static void count_update_options(ServiceCtx *service, Doc statement) {
    count_option(service, OPTION_METRIC_UPDATE_MANY,
                 elem_is_truthy(doc_get_lit(statement, "multi")));
    count_option(service, OPTION_METRIC_UPDATE_PIPELINE,
                 elem_type(doc_get_lit(statement, "u")) == BT_ARRAY);
    count_option(service, OPTION_METRIC_UPDATE_ARRAY_FILTERS,
                 elem_type(doc_get_lit(statement, "arrayFilters")) == BT_ARRAY);
}

static void count_options(CommandCtx *ctx, const WriteKind *kind, const DocList *list) {
    for (uint32_t i = 0; i < list->count && kind->target != target_insert; i++) {
        if (kind->target == target_update)
            count_update_options(ctx->service, list->docs[i]);
        else
            count_option(ctx->service, OPTION_METRIC_DELETE_MANY,
                         !elem_is_truthy(doc_get_lit(list->docs[i], "limit")));
    }
}

/* All of them are about the same collection: one answer is enough. */
static void complete_errors(CommandCtx *ctx, WriteBatch *batch) {
    Doc complete = DOC_NONE;
    for (uint32_t i = 0; i < batch->docs.count; i++) {
        WriteStatement *statement = &batch->statements[i];
        if (statement->state != WRITE_FAILED || !uuid_names_is_missing(statement->error))
            continue;
        if (!doc_is_present(complete))
            complete = uuid_names_complete(ctx, statement->error);
        statement->error = complete;
    }
}

static ErrCode run_write(CommandCtx *ctx, const WriteKind *kind, const WriteRequest *request,
                         Error *err) {
    CLEANUP(write_command_done)
    WriteCommand command = {.ctx = ctx,
                            .list_name = kind->list_name,
                            .list = request->list,
                            .given_ids = request->ids,
                            .target = kind->target};
    TRY(write_batch_check(request->list.count, err));
    TRY(ns_make(ctx->args.db, request->coll, &command.ns, err));
    count_op(ctx->service, kind->counter, request->list.count);
    count_options(ctx, kind, &request->list);
    bool is_ordered =
        !elem_is_present(request->ordered) || elem_is_truthy(request->ordered) || ctx->is_txn;
    WriteBatch *batch = &command.batch;
    write_batch_init(batch, request->list, is_ordered);
    batch->bytes_max = statement_bytes_max(&command);
    batch->can_move = elem_is_present(ctx->args.txn_number);
    batch->has_modified = kind->target == target_update;
    bool is_over = false;
    TRY(run_until_done(&command, &is_over, err));
    if (is_over)
        return ERR_OK;
    if (elem_is_present(doc_get_lit(ctx->body, "collectionUUID")))
        complete_errors(ctx, batch);
    write_batch_build(batch, ctx->reply);
    ctx->has_write_errors |= batch->error_count > 0;
    return ERR_OK;
}

/* ---- commands ---- */

static ErrCode run_insert(CommandCtx *ctx, void *arg, Error *err) {
    static const WriteKind KIND = {"documents", target_insert, OP_COUNTER_INSERT};
    const InsertRequest *r = arg;
    WriteRequest request = {r->coll, r->documents, r->ordered, r->statements};
    return run_write(ctx, &KIND, &request, err);
}

static ErrCode run_update(CommandCtx *ctx, void *arg, Error *err) {
    static const WriteKind KIND = {"updates", target_update, OP_COUNTER_UPDATE};
    const UpdateRequest *r = arg;
    WriteRequest request = {r->coll, r->updates, r->ordered, r->statements};
    return run_write(ctx, &KIND, &request, err);
}

static ErrCode run_delete(CommandCtx *ctx, void *arg, Error *err) {
    static const WriteKind KIND = {"deletes", target_delete, OP_COUNTER_DELETE};
    const DeleteRequest *r = arg;
    WriteRequest request = {r->coll, r->deletes, r->ordered, r->statements};
    return run_write(ctx, &KIND, &request, err);
}

static ErrCode target_find_and_modify(Routing *routing, const FindAndModifyRequest *request,
                                      const Shard **ret_shard, Error *err) {
    if (!routing_is_sharded(routing))
        return routing_primary(routing, ret_shard, err);
    const CollectionRoute *route = routing->collection;
    CLEANUP(write_targeter_done) WriteTargeter targeter = {0};
    TRY(write_targeter_init(&targeter, route->map, route->collation, err));
    ShardIndex shard;
    TRY(write_target_modify(&targeter, request, &shard, err));
    return routing_find_shard(routing, chunk_map_shard_name(route->map, shard), ret_shard, err);
}

static ErrCode find_and_modify_routed(void *arg, Routing *routing, Error *err) {
    CommandCtx *ctx = routing->ctx;
    const Shard *shard;
    TRY(target_find_and_modify(routing, arg, &shard, err));
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    routing_copy_fields(ctx, &b, NULL);
    calls.rows[0].shard = shard;
    calls.rows[0].body = routing_end_body(routing, &b, shard, NULL);
    ScatterOptions options = scatter_options(ctx);
    TRY(scatter_run(ctx, &calls, &options, err));
    ErrCode rc = shard_calls_check(&calls, err);
    if (rc == ERR_WOULD_CHANGE_OWNING_SHARD)
        return write_refuse_move(elem_is_present(ctx->args.txn_number), err);
    TRY(rc);
    forward_build_reply(ctx, calls.rows[0].reply.body, NULL);
    return ERR_OK;
}

static ErrCode run_find_and_modify(CommandCtx *ctx, void *arg, Error *err) {
    const FindAndModifyRequest *request = arg;
    Ns ns;
    TRY(ns_make(ctx->args.db, request->coll, &ns, err));
    count_option(ctx->service, OPTION_METRIC_FIND_AND_MODIFY_PIPELINE,
                 elem_type(request->update) == BT_ARRAY);
    count_option(ctx->service, OPTION_METRIC_FIND_AND_MODIFY_ARRAY_FILTERS,
                 doc_is_present(request->array_filters));
    return routing_run(ctx, &ns, ROUTING_CREATES, find_and_modify_routed, arg, err);
}

#define WRITE_FLAGS (CMD_TAKES_WRITE_CONCERN | CMD_IN_TXN | CMD_RETRYABLE | CMD_API_V1)

const CommandSpec ROUTER_INSERT = {
    .name = "insert",
    .summary = "Adds documents to a collection.",
    .flags = WRITE_FLAGS,
    .op_type = "insert",
    .request = &INSERT_REQUEST,
    .run = run_insert,
};

const CommandSpec ROUTER_UPDATE = {
    .name = "update",
    .summary = "Changes documents of a collection.",
    .flags = WRITE_FLAGS,
    .op_type = "update",
    .request = &UPDATE_REQUEST,
    .run = run_update,
};

const CommandSpec ROUTER_DELETE = {
    .name = "delete",
    .summary = "Removes documents from a collection.",
    .flags = WRITE_FLAGS,
    .op_type = "remove",
    .request = &DELETE_REQUEST,
    .run = run_delete,
};

const CommandSpec ROUTER_FIND_AND_MODIFY = {
    .name = "findAndModify",
    .alias = "findandmodify",
    .summary = "Changes or removes one document, and returns it.",
    .flags = WRITE_FLAGS,
    .request = &FIND_AND_MODIFY_REQUEST,
    .run = run_find_and_modify,
};
