/* cmd_explain.c - explain through a router. The shards explain their parts. */
#include <string.h>

#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"
#include "params/params.h"
#include "query/agg/query_stages.h"
#include "request/read_requests.h"
#include "request/write_requests.h"
#include "router/explain.h"
#include "router/forward.h"
#include "router/router_commands.h"
#include "router/write_target.h"

enum {
    END_SIZE = 1024, /* what comes after the command: times, ok */
};

typedef enum ExplainMerge { MERGE_READS, MERGE_WRITES } ExplainMerge;

/* What decides where a command goes is found in its fields: shards parse all of them. */
typedef struct Explainable {
    const char *name;
    const char *filter; /* its field; NULL: of its only statement */
    const char *statements;
    ExplainMerge merge;
    bool is_write;
} Explainable;

static const Explainable EXPLAINABLE[] = {
    {"find", "filter", NULL, MERGE_READS, false},
    {"count", "query", NULL, MERGE_READS, false},
    {"distinct", "query", NULL, MERGE_READS, false},
    {"findAndModify", "query", NULL, MERGE_READS, true},
    {"findandmodify", "query", NULL, MERGE_READS, true},
    {"update", NULL, "updates", MERGE_WRITES, true},
    {"delete", NULL, "deletes", MERGE_WRITES, true},
};

typedef struct Explaining {
    const Explainable *kind;
    Doc command;
    Str verbosity;
    ReadQuery query;
    ReadPreference preference;
} Explaining;

/* ---- requests to shards ---- */

/* The request around `inner`, with the fields of the client's. */
static Doc end_request(Routing *routing, const Shard *shard, Doc inner, Str verbosity,
                       const ReadPreference *preference) {
    /* The other fields are those of an aggregate with `explain: true`, unless it is an explain. */
    static const char *const OWN[] = {"explain",
                                      "verbosity",
                                      "aggregate",
                                      "pipeline",
                                      "cursor",
                                      "hint",
                                      "collation",
                                      "let",
                                      "allowDiskUse",
                                      "writeConcern",
                                      "bypassDocumentValidation",
                                      NULL};
    DocBuilder b = doc_builder_in_arena(cmd_arena(routing->ctx));
    build_doc(&b, "explain", inner);
    build_str(&b, "verbosity", verbosity);
    routing_copy_fields(routing->ctx, &b, OWN);
    return routing_end_body(routing, &b, shard, preference);
}

/* Several shards skip nothing and limit less. */
static Doc build_inner(Routing *routing, const Explaining *explaining, bool is_several) {
    if (!is_several || strcmp(explaining->kind->name, "find") != 0)
        return explaining->command;
    Elem skip = doc_get_lit(explaining->command, "skip");
    Elem limit = doc_get_lit(explaining->command, "limit");
    DocBuilder b = doc_builder_in_arena(cmd_arena(routing->ctx));
    DocIter iter = doc_iter(explaining->command);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_name_is(field, STR("skip")) && !elem_name_is(field, STR("limit")))
            build_elem(&b, field);
    int64_t skipped = elem_is_number(skip) ? elem_as_i64(skip) : 0;
    if (elem_is_number(limit) && elem_as_i64(limit) > 0 &&
        elem_as_i64(limit) <= INT64_MAX - skipped)
        build_i64(&b, "limit", elem_as_i64(limit) + skipped);
    return doc_builder_end(&b);
}

/* ---- replies ---- */

static const char *merge_stage(const Explaining *explaining, uint32_t count) {
    if (explaining->kind->merge == MERGE_WRITES)
        return "SHARD_WRITE";
    if (count == 1)
        return "SINGLE_SHARD";
    Elem sort = doc_get_lit(explaining->command, "sort");
    bool is_sorted = elem_type(sort) == BT_DOC && !doc_is_empty(elem_doc(sort)) &&
                     !elem_is_present(doc_get_lit(elem_doc(sort), "$natural"));
    return is_sorted ? "SHARD_MERGE_SORT" : "SHARD_MERGE";
}

static void build_shard_head(DocBuilder *b, const ShardCall *call) {
    build_cstr(b, "shardName", call->shard->name);
}

static Doc part_of(const ShardCall *call, const char *name) {
    Elem part = doc_get(call->reply.body, str_from(name));
    return elem_type(part) == BT_DOC ? elem_doc(part) : DOC_EMPTY;
}

static void build_plans(CommandCtx *ctx, const ShardCalls *calls, const char *stage) {
    DocBuilder *b = ctx->reply;
    size_t planner = build_open_doc(b, "queryPlanner");
    build_i32(b, "mongosPlannerVersion", 1);
    size_t winning = build_open_doc(b, "winningPlan");
    build_cstr(b, "stage", stage);
    size_t shards = build_open_array(b, "shards");
    for (uint32_t i = 0; i < calls->count; i++) {
        const ShardCall *call = &calls->rows[i];
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(i, name));
        build_shard_head(b, call);
        build_cstr(b, "connectionString", call->shard->address);
        build_doc(b, "serverInfo", part_of(call, "serverInfo"));
        build_all(b, part_of(call, "queryPlanner"));
        build_close(b, row);
    }
    build_close(b, shards);
    build_close(b, winning);
    build_close(b, planner);
}

typedef struct StatTotals {
    int64_t returned, keys, docs, ms_max, ms_sum;
} StatTotals;

static int64_t stat_of(const ShardCall *call, const char *name) {
    Elem stat = doc_get(part_of(call, "executionStats"), str_from(name));
    return elem_is_number(stat) ? elem_as_i64(stat) : 0;
}

static StatTotals sum_stats(const ShardCalls *calls) {
    StatTotals totals = {0};
    for (uint32_t i = 0; i < calls->count; i++) {
        const ShardCall *call = &calls->rows[i];
        totals.returned += stat_of(call, "nReturned");
        totals.keys += stat_of(call, "totalKeysExamined");
        totals.docs += stat_of(call, "totalDocsExamined");
        int64_t ms = stat_of(call, "executionTimeMillis");
        totals.ms_sum += ms;
        if (ms > totals.ms_max)
            totals.ms_max = ms;
    }
    return totals;
}

static void build_totals(DocBuilder *b, const StatTotals *totals) {
    build_count(b, "nReturned", totals->returned);
    build_count(b, "executionTimeMillis", totals->ms_max);
    build_count(b, "totalKeysExamined", totals->keys);
    build_count(b, "totalDocsExamined", totals->docs);
}

static void build_all_plans(DocBuilder *b, const ShardCalls *calls) {
    if (!elem_is_present(
            doc_get_lit(part_of(&calls->rows[0], "executionStats"), "allPlansExecution")))
        return;
    size_t array = build_open_array(b, "allPlansExecution");
    for (uint32_t i = 0; i < calls->count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(i, name));
        build_shard_head(b, &calls->rows[i]);
        build_elem_as(b, STR("allPlans"),
                      doc_get_lit(part_of(&calls->rows[i], "executionStats"), "allPlansExecution"));
        build_close(b, row);
    }
    build_close(b, array);
}

static void build_stats(CommandCtx *ctx, const ShardCalls *calls, const char *stage) {
    if (doc_is_empty(part_of(&calls->rows[0], "executionStats")))
        return;
    DocBuilder *b = ctx->reply;
    StatTotals totals = sum_stats(calls);
    size_t stats = build_open_doc(b, "executionStats");
    build_totals(b, &totals);
    size_t stages = build_open_doc(b, "executionStages");
    build_cstr(b, "stage", stage);
    build_totals(b, &totals);
    build_count(b, "totalChildMillis", totals.ms_sum);
    size_t shards = build_open_array(b, "shards");
    for (uint32_t i = 0; i < calls->count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(i, name));
        build_shard_head(b, &calls->rows[i]);
        DocIter iter = doc_iter(part_of(&calls->rows[i], "executionStats"));
        for (Elem field; doc_iter_next(&iter, &field);)
            if (!elem_name_is(field, STR("allPlansExecution")))
                build_elem(b, field);
        build_close(b, row);
    }
    build_close(b, shards);
    build_close(b, stages);
    build_all_plans(b, calls);
    build_close(b, stats);
}

/* Of this router; its version is that of the shards it can talk to. */
static void build_server_info(CommandCtx *ctx, const ShardCall *call) {
    const char *host = server_setup(ctx->service)->host;
    const char *colon = strrchr(host, ':');
    Doc of_shard = part_of(call, "serverInfo");
    size_t info = build_open_doc(ctx->reply, "serverInfo");
    build_str(ctx->reply, "host",
              (Str){host, colon != NULL ? (size_t)(colon - host) : strlen(host)});
    build_i32(ctx->reply, "port", (int32_t)transport_port(ctx->service->transport));
    DocIter iter = doc_iter(of_shard);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_name_is(field, STR("host")) && !elem_name_is(field, STR("port")))
            build_elem(ctx->reply, field);
    build_close(ctx->reply, info);
}

static void build_end(CommandCtx *ctx, const ShardCalls *calls, Doc command) {
    build_server_info(ctx, &calls->rows[0]);
    build_doc(ctx->reply, "serverParameters", part_of(&calls->rows[0], "serverParameters"));
    /* Plans may be as large as their command: both of them may not fit. */
    const DocBuilder *b = ctx->reply;
    if (b->buf->size - b->start + doc_size(command) + END_SIZE <= BSON_DOC_SIZE_MAX)
        build_doc(ctx->reply, "command", command);
    else
        build_cstr(ctx->reply, "warning", "the command is too large to be shown");
}

/* ---- commands with a filter ---- */

static ErrCode run_calls(CommandCtx *ctx, ShardCalls *calls, const ReadPreference *preference,
                         Error *err) {
    ScatterOptions how = {
        .preference = preference, .retry = REMOTE_IDEMPOTENT, .stops_at_error = true};
    TRY(scatter_run(ctx, calls, &how, err));
    return shard_calls_check(calls, err);
}

static Doc searching_part(const Explaining *explaining);

/* What is refused for want of a shard key is not explained either. */
static ErrCode check_write(const Routing *routing, const Explaining *explaining, Error *err) {
    const CollectionRoute *route = routing->collection;
    if (!explaining->kind->is_write || !routing_is_sharded(routing))
        return ERR_OK;
    Arena *arena = cmd_arena(routing->ctx);
    CLEANUP(write_targeter_done) WriteTargeter targeter = {0};
    TRY(write_targeter_init(&targeter, route->map, route->collation, err));
    Doc part = searching_part(explaining);
    const DocList list = {&part, 1};
    WriteTarget target;
    if (explaining->kind->statements == NULL) {
        Elem query = doc_get_lit(part, "query");
        FindAndModifyRequest request = {
            .query = elem_type(query) == BT_DOC ? elem_doc(query) : DOC_NONE,
            .collation = doc_get_lit(part, "collation"),
            .is_upsert = elem_is_truthy(doc_get_lit(part, "upsert")),
        };
        return write_target_modify(&targeter, &request, &target.shard, err);
    }
    if (strcmp(explaining->kind->name, "update") == 0) {
        UpdateStatement *update = ARENA_NEW(arena, UpdateStatement);
        TRY(update_statements_parse(&list, arena, update, err));
        return write_target_update(&targeter, update, &target, err);
    }
    DeleteStatement *delete = ARENA_NEW(arena, DeleteStatement);
    TRY(delete_statements_parse(&list, arena, delete, err));
    return write_target_delete(&targeter, delete, &target, err);
}

static ErrCode explain_on_shards(void *arg, Routing *routing, Error *err) {
    Explaining *explaining = arg;
    CommandCtx *ctx = routing->ctx;
    TRY(check_write(routing, explaining, err));
    ReadTarget target;
    TRY(read_target(routing, &explaining->query, &target, err));
    Doc inner = build_inner(routing, explaining, target.count > 1);
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, target.count);
    for (uint32_t i = 0; i < target.count; i++) {
        calls.rows[i].shard = target.shards[i];
        calls.rows[i].body = end_request(routing, target.shards[i], inner, explaining->verbosity,
                                         &explaining->preference);
    }
    TRY(run_calls(ctx, &calls, &explaining->preference, err));
    const char *stage = merge_stage(explaining, calls.count);
    build_cstr(ctx->reply, "explainVersion", "1");
    build_plans(ctx, &calls, stage);
    build_stats(ctx, &calls, stage);
    build_end(ctx, &calls, explaining->command);
    return ERR_OK;
}

/* ---- pipelines ---- */

typedef struct ExplainingAgg {
    AggRead *read;
    Doc command; /* of the client */
    Str verbosity;
    ReadPreference preference;
} ExplainingAgg;

/* A filter is shown in its parsed form, as shards show theirs; one with $expr as it was written. */
static void build_stage(CommandCtx *ctx, Doc stage, DocBuilder *b) {
    Elem filter = doc_get_lit(stage, "$match");
    MatchParseContext parse = {0};
    MatchExpr *match;
    CLEANUP(error_reset) Error err = {0};
    if (elem_type(filter) != BT_DOC ||
        match_parse(elem_doc(filter), &parse, cmd_arena(ctx), &match, &err) != ERR_OK) {
        build_all(b, stage);
        return;
    }
    size_t opened = build_open_doc(b, "$match");
    match_to_bson(match, b);
    build_close(b, opened);
}

static void build_stages(CommandCtx *ctx, Doc stages, uint32_t *count, DocBuilder *b) {
    char name[INDEX_NAME_SIZE];
    DocIter iter = doc_iter(stages);
    for (Elem stage; doc_iter_next(&iter, &stage);) {
        size_t row = build_open_doc(b, index_name((*count)++, name).data);
        build_stage(ctx, elem_doc(stage), b);
        build_close(b, row);
    }
}

/* The stages of the shards as MongoDB shows them: keys to merge by are not a stage there. */
static void build_shards_part(CommandCtx *ctx, const AggPlan *plan) {
    DocBuilder *b = ctx->reply;
    char name[INDEX_NAME_SIZE];
    uint32_t count = 0;
    size_t part = build_open_array(b, "shardsPart");
    DocIter iter = doc_iter(plan->split.shards);
    for (Elem stage; doc_iter_next(&iter, &stage);) {
        Doc doc = elem_doc(stage);
        Elem sort = doc_get_lit(doc, "$sort");
        if (elem_is_present(doc_get_lit(doc, "$_internalAddSortKey")))
            continue;
        size_t row = build_open_doc(b, index_name(count++, name).data);
        if (elem_is_present(sort)) {
            size_t opened = build_open_doc(b, "$sort");
            build_elem_as(b, STR("sortKey"), sort);
            build_close(b, opened);
        } else {
            build_stage(ctx, doc, b);
        }
        build_close(b, row);
    }
    build_close(b, part);
}

/* Begins with how what the shards give becomes one stream. */
static void build_merger_part(CommandCtx *ctx, const AggPlan *plan, const Ns *ns) {
    DocBuilder *b = ctx->reply;
    uint32_t count = 1;
    size_t part = build_open_array(b, "mergerPart");
    size_t first = build_open_doc(b, "0");
    size_t merge = build_open_doc(b, "$mergeCursors");
    if (doc_is_present(plan->split.sort))
        build_doc(b, "sort", plan->split.sort);
    build_bool(b, "compareWholeSortKey", false);
    build_cstr(b, "tailableMode", "normal");
    build_str(b, "nss", ns_str(ns));
    build_bool(b, "allowPartialResults", false);
    build_close(b, merge);
    build_close(b, first);
    build_stages(ctx, plan->split.merge, &count, b);
    build_close(b, part);
}

static void build_split(CommandCtx *ctx, const AggPlan *plan, const Ns *ns) {
    if (plan->is_whole) {
        build_null(ctx->reply, "splitPipeline");
        return;
    }
    build_cstr(ctx->reply, "mergeType", "mongos");
    size_t split = build_open_doc(ctx->reply, "splitPipeline");
    build_shards_part(ctx, plan);
    build_merger_part(ctx, plan, ns);
    build_close(ctx->reply, split);
}

/* What the shard says, but for what all say alike. */
static void build_shard_plan(DocBuilder *b, const ShardCall *call) {
    static const char *const COMMON[] = {"ok",           "command",          "serverInfo",
                                         "$clusterTime", "serverParameters", "operationTime",
                                         "$configTime",  "$topologyTime"};
    size_t row = build_open_doc(b, call->shard->name);
    build_cstr(b, "host", call->host);
    DocIter iter = doc_iter(call->reply.body);
    for (Elem field; doc_iter_next(&iter, &field);) {
        bool is_common = false;
        for (size_t i = 0; i < ARRAY_LEN(COMMON) && !is_common; i++)
            is_common = elem_name_is(field, str_from(COMMON[i]));
        if (!is_common)
            build_elem(b, field);
    }
    build_close(b, row);
}

/* A pipeline that no shard runs a part of. */
static void explain_here(CommandCtx *ctx, const AggPlan *plan, Doc command) {
    build_cstr(ctx->reply, "explainVersion", "1");
    build_null(ctx->reply, "splitPipeline");
    size_t mongos = build_open_doc(ctx->reply, "mongos");
    build_cstr(ctx->reply, "host", server_setup(ctx->service)->host);
    uint32_t count = 0;
    size_t stages = build_open_array(ctx->reply, "stages");
    build_stages(ctx, plan->split.merge, &count, ctx->reply);
    build_close(ctx->reply, stages);
    build_close(ctx->reply, mongos);
    build_doc(ctx->reply, "command", command);
}

static ErrCode explain_agg_on_shards(void *arg, Routing *routing, Error *err) {
    ExplainingAgg *explaining = arg;
    CommandCtx *ctx = routing->ctx;
    AggPlan plan;
    TRY(routed_agg_plan(routing, explaining->read, &plan, err));
    if (plan.target.count == 0) {
        explain_here(ctx, &plan, explaining->command);
        return ERR_OK;
    }
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    agg_build_part(explaining->read, &plan, &b);
    Doc inner = doc_builder_end(&b);
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, plan.target.count);
    for (uint32_t i = 0; i < calls.count; i++) {
        calls.rows[i].shard = plan.target.shards[i];
        calls.rows[i].body = end_request(routing, plan.target.shards[i], inner,
                                         explaining->verbosity, &explaining->preference);
    }
    TRY(run_calls(ctx, &calls, &explaining->preference, err));
    if (!routing_is_sharded(routing) && plan.is_whole) {
        forward_build_reply(ctx, calls.rows[0].reply.body, NULL);
        return ERR_OK;
    }
    build_cstr(ctx->reply, "explainVersion", "1");
    build_split(ctx, &plan, &routing->ns);
    size_t shards = build_open_doc(ctx->reply, "shards");
    for (uint32_t i = 0; i < calls.count; i++)
        build_shard_plan(ctx->reply, &calls.rows[i]);
    build_close(ctx->reply, shards);
    build_end(ctx, &calls, explaining->command);
    return ERR_OK;
}

static ErrCode explain_pipeline(CommandCtx *ctx, AggRead *read, Doc command, Str verbosity,
                                Error *err) {
    enum { ATTEMPTS_MAX = 20 };
    ExplainingAgg explaining = {.read = read, .command = command, .verbosity = verbosity};
    TRY(read_preference_parse(ctx->args.read_preference, &explaining.preference, err));
    /* Stages of the command's own and of the one around it: those of the first are in `inner`. */
    read->passed = read->passed_once = read->passed_writes = DOC_EMPTY;
    for (int attempt = 1;; attempt++) {
        ErrCode rc =
            routing_run(ctx, &read->ns, ROUTING_READS, explain_agg_on_shards, &explaining, err);
        if (rc != ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD || attempt == ATTEMPTS_MAX)
            return rc;
        TRY(agg_resolve_view(ctx, read, err));
    }
}

ErrCode router_explain_aggregate(CommandCtx *ctx, AggRead *read, Error *err) {
    return explain_pipeline(ctx, read, ctx->body, STR("queryPlanner"), err);
}

/* ---- the command ---- */

static Doc doc_field(Doc doc, const char *name) {
    Elem field = doc_get(doc, str_from(name));
    return elem_type(field) == BT_DOC ? elem_doc(field) : DOC_NONE;
}

/* The document with the filter and the collation. */
static Doc searching_part(const Explaining *explaining) {
    if (explaining->kind->statements == NULL)
        return explaining->command;
    Elem list = doc_get(explaining->command, str_from(explaining->kind->statements));
    Elem first = elem_type(list) == BT_ARRAY ? doc_get_lit(elem_doc(list), "0") : ELEM_MISSING;
    return elem_type(first) == BT_DOC ? elem_doc(first) : DOC_EMPTY;
}

/* A read that turned out to be one of a view: as the pipeline that it is then. */
static ErrCode explain_view(CommandCtx *ctx, const Ns *ns, const Explaining *explaining,
                            Error *err) {
    CLEANUP(error_reset) Error view = {0};
    error_move(&view, err);
    Doc command = explaining->command;
    AggRead read;
    TRY(agg_read_init(ctx, doc_get_lit(command, "collation"), doc_field(command, "let"), &read,
                      err));
    read.ns = *ns;
    read.hint =
        query_stages_hint(doc_get_lit(command, "hint"), doc_field(command, "sort"), cmd_arena(ctx));
    Elem skip = doc_get_lit(command, "skip"), limit = doc_get_lit(command, "limit");
    int64_t limit_docs = elem_is_number(limit) ? elem_as_i64(limit) : 0;
    QueryStages query = {
        .filter = doc_field(command, explaining->kind->filter),
        .sort = doc_field(command, "sort"),
        .projection = doc_field(command, "projection"),
        .skip = elem_is_number(skip) ? elem_as_i64(skip) : 0,
        .limit = limit_docs >= 0           ? limit_docs
                 : limit_docs == INT64_MIN ? INT64_MAX
                                           : -limit_docs,
        .is_count = strcmp(explaining->kind->name, "count") == 0,
    };
    read.stages = query_stages(&query, cmd_arena(ctx));
    error_move(err, &view);
    TRY(agg_resolve_view(ctx, &read, err));
    return explain_pipeline(ctx, &read, command, explaining->verbosity, err);
}

static ErrCode explain_search(CommandCtx *ctx, Explaining *explaining, const Ns *ns, Error *err) {
    Doc searching = searching_part(explaining);
    const char *filter = explaining->kind->filter != NULL ? explaining->kind->filter : "q";
    TRY(read_query_parse(ctx, doc_field(searching, filter), doc_get_lit(searching, "collation"),
                         doc_field(explaining->command, "let"), &explaining->query, err));
    TRY(read_preference_parse(ctx->args.read_preference, &explaining->preference, err));
    ErrCode rc = routing_run(ctx, ns, ROUTING_READS, explain_on_shards, explaining, err);
    if (rc != ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD)
        return rc;
    if (explaining->kind->is_write)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", ns->text);
    return explain_view(ctx, ns, explaining, err);
}

static ErrCode explain_inner_aggregate(CommandCtx *ctx, Doc command, Str verbosity, Error *err) {
    CommandCtx inner = *ctx;
    WireMessage message = *ctx->message;
    message.sequence_count = 0;
    inner.spec = &ROUTER_AGGREGATE;
    inner.body = command;
    inner.message = &message;
    void *request;
    TRY(command_parse(&inner, &request, err));
    AggRead read;
    TRY(router_aggregate_read(ctx, request, &read, err));
    return explain_pipeline(ctx, &read, command, verbosity, err);
}

static ErrCode explain_run(CommandCtx *ctx, void *arg, Error *err) {
    ExplainRequest *request = arg;
    Explaining explaining = {.command = request->command,
                             .verbosity = elem_type(request->verbosity) == BT_STRING
                                              ? elem_str(request->verbosity)
                                              : STR("allPlansExecution")};
    DocIter iter = doc_iter(request->command);
    Elem first = ELEM_MISSING;
    if (!doc_iter_next(&iter, &first))
        return error_set(err, ERR_FAILED_TO_PARSE, "explain command requires a nested object");
    if (elem_name_is(first, STR("aggregate")))
        return explain_inner_aggregate(ctx, request->command, explaining.verbosity, err);
    for (size_t i = 0; i < ARRAY_LEN(EXPLAINABLE); i++)
        if (str_is(elem_name_str(first), EXPLAINABLE[i].name))
            explaining.kind = &EXPLAINABLE[i];
    if (explaining.kind == NULL &&
        command_find(ctx->service->commands, elem_name_str(first)) == NULL)
        return error_set(err, ERR_COMMAND_NOT_FOUND, "Explain failed due to unknown command: %s",
                         elem_name(first));
    if (explaining.kind == NULL)
        return error_set(err, ERR_ILLEGAL_OPERATION, "Cannot explain cmd: %s", elem_name(first));
    if (elem_type(first) != BT_STRING)
        return error_set(err, ERR_INVALID_NAMESPACE, "collection name has invalid type %s",
                         bson_type_name(elem_type(first)));
    Ns ns;
    TRY(request_ns(ctx, elem_str(first), &ns, err));
    return explain_search(ctx, &explaining, &ns, err);
}

const CommandSpec ROUTER_EXPLAIN = {
    .name = "explain",
    .summary = "Shows how a command would run.",
    .flags = CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .request = &EXPLAIN_REQUEST,
    .run = explain_run,
};
