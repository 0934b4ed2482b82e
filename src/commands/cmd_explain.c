/* cmd_explain.c - explain: how a command would run, and with executionStats how it did. */
#include <string.h>

#include "base/clock.h"
#include "commands/agg_args.h"
#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"
#include "params/params.h"
#include "commands/explain.h"
#include "commands/stream_args.h"
#include "commands/find_args.h"
#include "commands/node_commands.h"
#include "commands/version.h"
#include "commands/view_query.h"
#include "request/read_requests.h"
#include "request/write_requests.h"

static ErrCode parse_verbosity(Elem elem, ExplainVerbosity *ret_verbosity, Error *err);
static ErrCode explain_find(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err);
static ErrCode explain_pipeline(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                Error *err);
static ErrCode explain_count(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err);
static ErrCode explain_distinct(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                Error *err);
static ErrCode explain_find_and_modify(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                       Error *err);
static ErrCode explain_update(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err);
static ErrCode explain_delete(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err);

static const struct {
    const char *name;
    ErrCode (*explain)(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err);
} EXPLAINABLE[] = {
    {"find", explain_find},
    {"aggregate", explain_pipeline},
    {"count", explain_count},
    {"distinct", explain_distinct},
    {"findAndModify", explain_find_and_modify},
    {"findandmodify", explain_find_and_modify},
    {"update", explain_update},
    {"delete", explain_delete},
};

static void build_server_info(CommandCtx *ctx) {
    const char *host = server_setup(ctx->service)->host;
    const char *colon = strrchr(host, ':');
    size_t size = colon != NULL ? (size_t)(colon - host) : strlen(host);
    build_str(ctx->reply, "host", (Str){host, size});
    build_i32(ctx->reply, "port", (int32_t)transport_port(ctx->service->transport));
    build_cstr(ctx->reply, "version", COMPAT_VERSION);
    build_cstr(ctx->reply, "gitVersion", SHERD_GIT_VERSION);
}

static ErrCode explain_run(CommandCtx *ctx, void *arg, Error *err) {
    ExplainRequest *request = arg;
    ExplainVerbosity verbosity;
    TRY(parse_verbosity(request->verbosity, &verbosity, err));
    if (doc_is_empty(request->command))
        return error_set(err, ERR_FAILED_TO_PARSE, "explain command requires a nested object");
    DocIter iter = doc_iter(request->command);
    Elem first = ELEM_MISSING;
    doc_iter_next(&iter, &first);
    for (size_t i = 0; i < ARRAY_LEN(EXPLAINABLE); i++) {
        if (!str_is(elem_name_str(first), EXPLAINABLE[i].name))
            continue;
        if (elem_type(first) == BT_STRING)
            ctx->ns_coll = elem_str(first);
        build_cstr(ctx->reply, "explainVersion", "1");
        TRY(EXPLAINABLE[i].explain(ctx, request->command, verbosity, err));
        build_doc(ctx->reply, "command", request->command);
        size_t info = build_open_doc(ctx->reply, "serverInfo");
        build_server_info(ctx);
        build_close(ctx->reply, info);
        size_t params = build_open_doc(ctx->reply, "serverParameters");
        build_i64(ctx->reply, "internalQueryMaxBlockingSortMemoryUsageBytes",
                  param_i64(ctx->service, PARAM_SORT_MEMORY_BYTES_MAX));
        build_i64(ctx->reply, "internalDocumentSourceGroupMaxMemoryBytes",
                  param_i64(ctx->service, PARAM_GROUP_MEMORY_BYTES_MAX));
        build_close(ctx->reply, params);
        return ERR_OK;
    }
    if (command_find(ctx->service->commands, elem_name_str(first)) == NULL)
        return error_set(err, ERR_COMMAND_NOT_FOUND, "Explain failed due to unknown command: %s",
                         elem_name(first));
    return error_set(err, ERR_ILLEGAL_OPERATION, "Cannot explain cmd: %s", elem_name(first));
}

ErrCode explain_query(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec, const char *outer,
                      ExplainVerbosity verbosity, Error *err) {
    CLEANUP(find_source_free_ptr) FindSource *source = NULL;
    bool is_view;
    QuerySpec shown = *spec;
    shown.is_explain = true;
    TRY(find_source_open(ctx->op, ns, &shown, &source, &is_view, err));
    if (is_view) {
        AggOptions options;
        view_options(ctx, &shown, &options);
        return explain_aggregate(ctx, ns, view_stages(ctx, &shown), &options, verbosity, err);
    }
    DocBuilder *b = ctx->reply;
    size_t planner = build_open_doc(b, "queryPlanner");
    plan_explain(source->exec, outer, b);
    build_close(b, planner);
    if (verbosity == EXPLAIN_QUERY_PLANNER)
        return ERR_OK;
    int64_t start_us = clock_mono_us(), returned = 0;
    for (;; returned++) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(source->exec, &is_found, &row, err));
        if (!is_found)
            break;
    }
    size_t stats = build_open_doc(b, "executionStats");
    plan_explain_stats(source->exec, outer, b, returned, (clock_mono_us() - start_us) / 1000);
    if (verbosity == EXPLAIN_ALL_PLANS)
        plan_explain_trials(source->exec, b);
    build_close(b, stats);
    return ERR_OK;
}

ErrCode explain_aggregate(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                          ExplainVerbosity verbosity, Error *err) {
    Ns target;
    Doc resolved;
    AggOptions with_view = *options;
    with_view.is_explain = true;
    TRY(view_resolve(ctx->op, ns, stages, cmd_arena(ctx), &with_view, &target, &resolved, err));
    if (is_routed(ctx) && !ns_equal(ns, &target))
        return view_tell_router(ctx, ns, options, err);
    AggCursorSource *source;
    TRY(agg_source_open(ctx->op, &target, resolved, &with_view, &source, err));
    CursorSource *base = agg_source_base(source);
    PlanExecutor *exec = agg_source_executor(source);
    int64_t start_us = clock_mono_us(), returned = 0;
    ErrCode rc = ERR_OK;
    bool is_found = verbosity != EXPLAIN_QUERY_PLANNER;
    while (rc == ERR_OK && is_found) {
        Doc doc;
        rc = base->ops->next(base, &is_found, &doc, err);
        returned += rc == ERR_OK && is_found;
    }
    DocBuilder *b = ctx->reply;
    int64_t duration_ms = (clock_mono_us() - start_us) / 1000;
    if (rc == ERR_OK && exec != NULL && pipeline_stage_count(agg_source_pipeline(source)) == 0) {
        /* The whole pipeline runs as a find: shown as one. */
        size_t planner = build_open_doc(b, "queryPlanner");
        plan_explain(exec, NULL, b);
        build_bool(b, "optimizedPipeline", true);
        build_close(b, planner);
        if (verbosity != EXPLAIN_QUERY_PLANNER) {
            size_t stats = build_open_doc(b, "executionStats");
            plan_explain_stats(exec, NULL, b, returned, duration_ms);
            build_close(b, stats);
        }
    } else if (rc == ERR_OK) {
        size_t list = build_open_array(b, "stages");
        uint32_t count = 0;
        char name[INDEX_NAME_SIZE];
        if (exec != NULL) {
            size_t row = build_open_doc_str(b, index_name(count++, name));
            size_t cursor = build_open_doc(b, "$cursor");
            size_t planner = build_open_doc(b, "queryPlanner");
            plan_explain(exec, NULL, b);
            build_close(b, planner);
            if (verbosity != EXPLAIN_QUERY_PLANNER) {
                size_t stats = build_open_doc(b, "executionStats");
                plan_explain_stats(exec, NULL, b, exec->root->returned, duration_ms);
                build_close(b, stats);
            }
            build_close(b, cursor);
            if (verbosity != EXPLAIN_QUERY_PLANNER) {
                build_i64(b, "nReturned", exec->root->returned);
                build_i64(b, "executionTimeMillisEstimate", duration_ms);
            }
            build_close(b, row);
        }
        DocBuilder rest = doc_builder_in_arena_sized(cmd_arena(ctx), 512);
        if (verbosity == EXPLAIN_QUERY_PLANNER || exec == NULL)
            pipeline_to_bson(agg_source_pipeline(source), &rest);
        else
            pipeline_exec_stats(agg_source_exec(source), &rest);
        DocIter iter = doc_iter(doc_builder_end(&rest));
        Elem stage;
        while (doc_iter_next(&iter, &stage))
            build_elem_as(b, index_name(count++, name), stage);
        build_close(b, list);
    }
    cursor_source_free(base);
    return rc;
}

static ErrCode parse_verbosity(Elem elem, ExplainVerbosity *ret_verbosity, Error *err) {
    static const char *const NAMES[] = {"queryPlanner", "executionStats", "allPlansExecution"};
    *ret_verbosity = EXPLAIN_ALL_PLANS;
    if (!elem_is_present(elem))
        return ERR_OK;
    for (size_t i = 0; elem_type(elem) == BT_STRING && i < ARRAY_LEN(NAMES); i++) {
        if (str_is(elem_str(elem), NAMES[i])) {
            *ret_verbosity = (ExplainVerbosity)i;
            return ERR_OK;
        }
    }
    return error_set(err, ERR_BAD_VALUE,
                     "'explain.verbosity' must be one of 'queryPlanner', 'executionStats' and "
                     "'allPlansExecution'");
}

/* The inner command is parsed as strictly as if it ran. */
static ErrCode parse_inner(CommandCtx *ctx, const CommandSpec *spec, Doc command,
                           void **ret_request, Error *err) {
    CommandCtx inner = *ctx;
    WireMessage message = *ctx->message;
    message.sequence_count = 0;
    inner.spec = spec;
    inner.body = command;
    inner.message = &message;
    return command_parse(&inner, ret_request, err);
}

static ErrCode explain_find(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_FIND, command, &arg, err));
    FindRequest *request = arg;
    Ns ns;
    TRY(request_ref_ns(ctx, &request->coll, &ns, err));
    QuerySpec spec;
    FirstBatchOptions batch;
    TRY(find_request_check(ctx, request, &spec, &batch, err));
    return explain_query(ctx, &ns, &spec, /* outer= */ NULL, verbosity, err);
}

static ErrCode explain_pipeline(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_AGGREGATE, command, &arg, err));
    AggregateRequest *request = arg;
    Ns ns;
    AggOptions options;
    FirstBatchOptions batch;
    TRY(aggregate_request_check(ctx, request, &ns, &options, &batch, err));
    if (is_stream_command(request->pipeline))
        return stream_explain(ctx, &ns, request->pipeline, &options, err);
    return explain_aggregate(ctx, &ns, request->pipeline, &options, verbosity, err);
}

/* The search for the documents of a command; `outer` is the stage that uses them, or NULL. Writes
 * are explained by their search alone; nothing is changed. */
static ErrCode explain_search(CommandCtx *ctx, Str coll, Elem collation, QuerySpec *spec,
                              const char *outer, ExplainVerbosity verbosity, Error *err) {
    query_spec_defaults(ctx, spec);
    TRY(request_collation(collation, &spec->has_collation, &spec->collator, err));
    Ns ns;
    TRY(request_ns(ctx, coll, &ns, err));
    return explain_query(ctx, &ns, spec, outer, verbosity, err);
}

static ErrCode explain_count(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_COUNT, command, &arg, err));
    const CountRequest *request = arg;
    QuerySpec spec = {.filter = request->query, .hint = request->hint, .is_count = true};
    return explain_search(ctx, request->coll, request->collation, &spec, "COUNT", verbosity, err);
}

static ErrCode explain_distinct(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_DISTINCT, command, &arg, err));
    const DistinctRequest *request = arg;
    PathSet needed = path_set(cmd_arena(ctx));
    path_set_add(&needed, request->key);
    QuerySpec spec = {.filter = request->query,
                      .hint = request->hint,
                      .needed_paths = &needed,
                      .is_distinct = true};
    return explain_search(ctx, request->coll, request->collation, &spec, /* outer= */ NULL,
                          verbosity, err);
}

static ErrCode explain_find_and_modify(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                       Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_FIND_AND_MODIFY, command, &arg, err));
    const FindAndModifyRequest *request = arg;
    QuerySpec spec = {.filter = request->query, .sort = request->sort, .hint = request->hint};
    return explain_search(ctx, request->coll, request->collation, &spec,
                          request->is_remove ? "DELETE" : "UPDATE", verbosity, err);
}

static ErrCode check_one_statement(const DocList *statements, Error *err) {
    if (statements->count != 1)
        return error_set(err, ERR_INVALID_LENGTH, "explained write batches must be of size 1");
    return ERR_OK;
}

static ErrCode explain_update(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                              Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_UPDATE, command, &arg, err));
    const UpdateRequest *request = arg;
    TRY(check_one_statement(&request->updates, err));
    UpdateStatement statement = {0};
    TRY(update_statements_parse(&request->updates, cmd_arena(ctx), &statement, err));
    QuerySpec spec = {.filter = statement.q, .hint = statement.hint};
    return explain_search(ctx, request->coll, statement.collation, &spec, "UPDATE", verbosity, err);
}

static ErrCode explain_delete(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                              Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_DELETE, command, &arg, err));
    const DeleteRequest *request = arg;
    TRY(check_one_statement(&request->deletes, err));
    DeleteStatement statement = {0};
    TRY(delete_statements_parse(&request->deletes, cmd_arena(ctx), &statement, err));
    QuerySpec spec = {.filter = statement.q, .hint = statement.hint};
    return explain_search(ctx, request->coll, statement.collation, &spec, "DELETE", verbosity, err);
}

const CommandSpec CMD_EXPLAIN = {
    .name = "explain",
    .summary = "Shows how a command would run.",
    .flags = CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .request = &EXPLAIN_REQUEST,
    .run = explain_run,
};
