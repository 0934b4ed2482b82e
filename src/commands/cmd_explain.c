/* cmd_explain.c - explain: how a command would run, and with executionStats how it did. */
#include <string.h>

#include "base/clock.h"
#include "commands/aggregate_request.h"
#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"
#include "commands/core/params.h"
#include "commands/explain.h"
#include "commands/find_request.h"
#include "commands/node_commands.h"
#include "commands/version.h"
#include "commands/view_query.h"

typedef struct ExplainRequest {
    Doc command;
    Elem verbosity;
} ExplainRequest;

static const FieldSpec EXPLAIN_FIELDS[] = {
    {"explain", FIELD_DOC, FIELD_REQUIRED, offsetof(ExplainRequest, command)},
    {"verbosity", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ExplainRequest, verbosity)},
};

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
    AggCursorSource *source;
    TRY(agg_source_open(ctx->op, &target, resolved, &with_view, &source, err));
    CursorSource *base = agg_source_base(source);
    PlanExecutor *exec = agg_source_executor(source);
    if (verbosity != EXPLAIN_QUERY_PLANNER && pipeline_is_writing(agg_source_pipeline(source))) {
        cursor_source_free(base);
        return error_set(err, (ErrCode)51029,
                         "explain of a pipeline with $out or $merge is only possible with "
                         "verbosity 'queryPlanner'");
    }
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
    return explain_aggregate(ctx, &ns, request->pipeline, &options, verbosity, err);
}

/* The commands below have their filter under one name or another. */
static ErrCode explain_filter(CommandCtx *ctx, Doc command, const char *filter_name,
                              const char *outer, ExplainVerbosity verbosity, Error *err) {
    Elem filter = doc_get(command, str_from(filter_name));
    Elem sort = doc_get_lit(command, "sort");
    QuerySpec spec = {
        .filter = elem_type(filter) == BT_DOC ? elem_doc(filter) : DOC_NONE,
        .sort = elem_type(sort) == BT_DOC ? elem_doc(sort) : DOC_NONE,
        .hint = doc_get_lit(command, "hint"),
    };
    spec.is_count = outer != NULL && strcmp(outer, "COUNT") == 0;
    PathSet needed = path_set(cmd_arena(ctx));
    Elem key = doc_get_lit(command, "key");
    if (outer == NULL && elem_type(key) == BT_STRING) {
        path_set_add(&needed, elem_str(key));
        spec.needed_paths = &needed;
        spec.is_distinct = true;
    }
    query_spec_defaults(ctx, &spec);
    TRY(request_collation(doc_get_lit(command, "collation"), &spec.has_collation, &spec.collator,
                          err));
    Ns ns;
    TRY(request_ns(ctx, ctx->ns_coll, &ns, err));
    return explain_query(ctx, &ns, &spec, outer, verbosity, err);
}

static ErrCode explain_count(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err) {
    void *request;
    TRY(parse_inner(ctx, &CMD_COUNT, command, &request, err));
    return explain_filter(ctx, command, "query", "COUNT", verbosity, err);
}

static ErrCode explain_distinct(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                Error *err) {
    void *request;
    TRY(parse_inner(ctx, &CMD_DISTINCT, command, &request, err));
    return explain_filter(ctx, command, "query", /* outer= */ NULL, verbosity, err);
}

static ErrCode explain_find_and_modify(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                       Error *err) {
    void *request;
    TRY(parse_inner(ctx, &CMD_FIND_AND_MODIFY, command, &request, err));
    bool is_remove = elem_is_truthy(doc_get_lit(command, "remove"));
    return explain_filter(ctx, command, "query", is_remove ? "DELETE" : "UPDATE", verbosity, err);
}

/* Writes are explained by the search for their documents; nothing is changed. */
static ErrCode explain_statement(CommandCtx *ctx, Doc command, const char *list_name,
                                 const char *outer, ExplainVerbosity verbosity, Error *err) {
    Elem list = doc_get(command, str_from(list_name));
    if (elem_type(list) != BT_ARRAY || doc_count(elem_doc(list)) != 1)
        return error_set(err, ERR_INVALID_LENGTH, "explained write batches must be of size 1");
    DocIter iter = doc_iter(elem_doc(list));
    Elem statement = ELEM_MISSING;
    doc_iter_next(&iter, &statement);
    if (elem_type(statement) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "the statement to explain must be an object");
    return explain_filter(ctx, elem_doc(statement), "q", outer, verbosity, err);
}

static ErrCode explain_update(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                              Error *err) {
    void *request;
    TRY(parse_inner(ctx, &CMD_UPDATE, command, &request, err));
    return explain_statement(ctx, command, "updates", "UPDATE", verbosity, err);
}

static ErrCode explain_delete(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                              Error *err) {
    void *request;
    TRY(parse_inner(ctx, &CMD_DELETE, command, &request, err));
    return explain_statement(ctx, command, "deletes", "DELETE", verbosity, err);
}

const CommandSpec CMD_EXPLAIN = {
    .name = "explain",
    .summary = "Shows how a command would run.",
    .flags = CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .fields = EXPLAIN_FIELDS,
    .field_count = ARRAY_LEN(EXPLAIN_FIELDS),
    .request_size = sizeof(ExplainRequest),
    .run = explain_run,
};
