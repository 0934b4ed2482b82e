/* cmd_explain.c - explain: how a command would run, and with executionStats how it did. */
#include <string.h>

#include "base/clock.h"
#include "catalog/access.h"
#include "commands/agg_args.h"
#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"
#include "params/params.h"
#include "commands/core/generic_args.h"
#include "commands/explain.h"
#include "commands/stream_args.h"
#include "commands/find_args.h"
#include "commands/node_commands.h"
#include "commands/version.h"
#include "commands/view_query.h"
#include "repl/repl.h"
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
    command_show_comment(ctx, doc_get_lit(request->command, "comment"));
    Elem db = doc_get_lit(request->command, "$db");
    if (elem_is_present(db) &&
        (elem_type(db) != BT_STRING || !str_equal(elem_str(db), ctx->args.db)))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "Mismatched $db in explain command. Expected %.*s", (int)ctx->args.db.size,
                         ctx->args.db.data);
    for (size_t i = 0; i < ARRAY_LEN(EXPLAINABLE); i++) {
        if (!str_is(elem_name_str(first), EXPLAINABLE[i].name))
            continue;
        if (elem_type(first) == BT_BINARY)
            return error_set(err, ERR_INVALID_NAMESPACE,
                             "collection name has invalid type binData");
        if (elem_type(first) == BT_STRING)
            command_set_coll(ctx, elem_str(first));
        build_cstr(ctx->reply, "explainVersion", "1");
        TRY(EXPLAINABLE[i].explain(ctx, request->command, verbosity, err));
        const DocBuilder *b = ctx->reply;
        if (b->buf->size - b->start + doc_size(request->command) <= BSON_DOC_SIZE_MAX)
            build_doc(ctx->reply, "command", request->command);
        else
            build_cstr(ctx->reply, "warning", "the command is too large to be shown");
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

/* Documents go through the command's own stage, until it needs no more. */
static ErrCode run_plan(FindSource *source, Explained *what, int64_t *ret_returned, Error *err) {
    PlanExecutor *exec = source->exec;
    *ret_returned = 0;
    if (what != NULL && what->outer.is_alone)
        return ERR_OK;
    for (;;) {
        bool is_found, is_enough = false;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found)
            return ERR_OK;
        if (what != NULL)
            TRY(what->take(what, exec, &row, &is_enough, err));
        else
            ++*ret_returned;
        if (is_enough)
            return ERR_OK;
    }
}

ErrCode explain_query(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec, Explained *what,
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
    /* A collection that does not exist has nothing to write. */
    bool is_nothing = what != NULL && what->is_write && !source->exec->has_coll;
    const PlanOuter *outer = what != NULL && !is_nothing ? &what->outer : NULL;
    size_t planner = build_open_doc(b, "queryPlanner");
    plan_explain(source->exec, outer, /* is_whole_pipeline= */ false, b);
    build_close(b, planner);
    if (verbosity == EXPLAIN_QUERY_PLANNER)
        return ERR_OK;
    int64_t start_us = clock_mono_us();
    PlanRun run = {0};
    run.rc = run_plan(source, what, &run.returned, err);
    if (what != NULL)
        run.returned = what->outer.returned;
    if (run.rc != ERR_OK && (exec_is_fatal(run.rc) || source->exec->access == NULL))
        return run.rc;
    run.duration_ms = (clock_mono_us() - start_us) / 1000;
    run.error_text = run.rc != ERR_OK ? error_message(err) : NULL;
    size_t stats = build_open_doc(b, "executionStats");
    plan_explain_stats(source->exec, outer, &run, b);
    if (verbosity == EXPLAIN_ALL_PLANS)
        plan_explain_trials(source->exec, b);
    build_close(b, stats);
    if (run.rc != ERR_OK)
        error_reset(err);
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
    ctx->read_coll = str_from(arena_strdup(cmd_arena(ctx), ns_coll(&target).data));
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
        plan_explain(exec, NULL, /* is_whole_pipeline= */ true, b);
        build_close(b, planner);
        if (verbosity != EXPLAIN_QUERY_PLANNER) {
            PlanRun run = {.returned = returned, .duration_ms = duration_ms};
            size_t stats = build_open_doc(b, "executionStats");
            plan_explain_stats(exec, NULL, &run, b);
            if (verbosity == EXPLAIN_ALL_PLANS)
                plan_explain_trials(exec, b);
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
            plan_explain(exec, NULL, /* is_whole_pipeline= */ false, b);
            build_close(b, planner);
            if (verbosity != EXPLAIN_QUERY_PLANNER) {
                PlanRun run = {.returned = exec->root->returned, .duration_ms = duration_ms};
                size_t stats = build_open_doc(b, "executionStats");
                plan_explain_stats(exec, NULL, &run, b);
                if (verbosity == EXPLAIN_ALL_PLANS)
                    plan_explain_trials(exec, b);
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
    if (elem_is_present(doc_get_lit(command, "writeConcern")))
        return error_set(err, ERR_INVALID_OPTIONS, "explain does not take a write concern");
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
    return explain_query(ctx, &ns, &spec, /* what= */ NULL, verbosity, err);
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
    TRY(generic_args_check_explained(ctx, command, err));
    if (is_stream_command(request->pipeline))
        return stream_explain(ctx, &ns, request->pipeline, &options, err);
    return explain_aggregate(ctx, &ns, request->pipeline, &options, verbosity, err);
}

/* The search for the documents of a command, and what it does with them (NULL: gives them back).
 * Nothing is changed. */
static ErrCode explain_search(CommandCtx *ctx, Str coll, Elem collation, QuerySpec *spec,
                              Explained *what, ExplainVerbosity verbosity, Error *err) {
    query_spec_defaults(ctx, spec);
    TRY(request_collation(collation, &spec->has_collation, &spec->collator, err));
    Ns ns;
    TRY(request_ns(ctx, coll, &ns, err));
    return explain_query(ctx, &ns, spec, what, verbosity, err);
}

/* ---- count and distinct ---- */

typedef struct ExplainedCount {
    Explained base;
    int64_t counted;
    int64_t skip;
    int64_t skipped;
    int64_t limit; /* 0: none */
} ExplainedCount;

static ErrCode take_counted(Explained *what, const PlanExecutor *exec, const PlanRow *row,
                            bool *ret_is_enough, Error *err) {
    (void)exec, (void)row, (void)err;
    ExplainedCount *count = (ExplainedCount *)what;
    if (count->skipped < count->skip)
        count->skipped++;
    else
        count->counted++;
    *ret_is_enough = count->limit > 0 && count->counted == count->limit;
    return ERR_OK;
}

static void build_count_stats(const PlanOuter *outer, DocBuilder *b) {
    const ExplainedCount *count = (const ExplainedCount *)outer;
    build_count(b, "nCounted", count->counted);
    build_count(b, "nSkipped", count->skipped);
}

/* A count of all documents is that of the collection's counter. */
static ErrCode take_fast_count(CommandCtx *ctx, const Ns *ns, ExplainedCount *count, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read_owned(ctx->op, ns, &access, err));
    if (access.coll == NULL || access.is_filtered)
        return ERR_OK;
    count->base.outer.name = "RECORD_STORE_FAST_COUNT";
    count->base.outer.is_alone = true;
    int64_t all = record_store_count(access.coll->records);
    count->skipped = all < count->skip ? all : count->skip;
    count->counted = all - count->skipped;
    if (count->limit > 0 && count->counted > count->limit)
        count->counted = count->limit;
    return ERR_OK;
}

static ErrCode explain_count(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity, Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_COUNT, command, &arg, err));
    const CountRequest *request = arg;
    QuerySpec spec = {.filter = request->query, .hint = request->hint, .is_count = true};
    int64_t limit = request->limit;
    ExplainedCount count = {
        .base = {{"COUNT", false, build_count_stats, 0}, take_counted, false},
        .skip = request->skip,
        .limit = limit >= 0           ? limit
                 : limit == INT64_MIN ? INT64_MAX
                                      : -limit,
    };
    bool is_all = is_unconditional(request->query);
    if (is_all && !elem_is_present(request->hint)) {
        Ns ns;
        TRY(request_ns(ctx, request->coll.name, &ns, err));
        TRY(take_fast_count(ctx, &ns, &count, err));
    }
    return explain_search(ctx, request->coll.name, request->collation, &spec, &count.base,
                          verbosity, err);
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
                      .distinct_path = request->key,
                      .is_distinct_of_elements = true};
    return explain_search(ctx, request->coll.name, request->collation, &spec, /* what= */ NULL,
                          verbosity, err);
}

/* ---- writes ---- */

typedef struct ExplainedWrite {
    Explained base;
    CommandCtx *ctx;
    ModifyRequest request;
    ModifyTrial *trial; /* once there is a document to update */
    int64_t matched;
    int64_t changed;
} ExplainedWrite;

static ErrCode take_written(Explained *what, const PlanExecutor *exec, const PlanRow *row,
                            bool *ret_is_enough, Error *err) {
    ExplainedWrite *write = (ExplainedWrite *)what;
    write->matched++;
    what->outer.returned += write->request.image != IMAGE_NONE;
    *ret_is_enough = !write->request.is_multi;
    if (write->request.kind == MODIFY_DELETE)
        return ERR_OK;
    if (write->trial == NULL)
        TRY(modify_trial_new(write->ctx->op, &write->request, exec->collator, &write->trial, err));
    bool is_changed;
    TRY(modify_trial_apply(write->trial, exec->filter, row->doc, &is_changed, err));
    write->changed += is_changed;
    return ERR_OK;
}

static void build_delete_stats(const PlanOuter *outer, DocBuilder *b) {
    build_count(b, "nWouldDelete", ((const ExplainedWrite *)outer)->matched);
}

static void build_update_stats(const PlanOuter *outer, DocBuilder *b) {
    const ExplainedWrite *write = (const ExplainedWrite *)outer;
    build_count(b, "nMatched", write->matched);
    build_count(b, "nWouldModify", write->changed);
    build_count(b, "nWouldUpsert", write->matched == 0 && write->request.is_upsert);
}

static ErrCode explain_write(CommandCtx *ctx, Str coll, Elem collation, ModifyRequest *request,
                             ExplainVerbosity verbosity, Error *err) {
    if (service_is_member(ctx->service) && !str_is(ctx->args.db, "local") &&
        !repl_is_writable(ctx->service->repl))
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary: a write is explained there");
    ExplainedWrite write = {.ctx = ctx};
    const char *deletes = request->is_multi ? "BATCHED_DELETE" : "DELETE";
    write.base = request->kind == MODIFY_DELETE
                     ? (Explained){{deletes, false, build_delete_stats, 0}, take_written, true}
                     : (Explained){{"UPDATE", false, build_update_stats, 0}, take_written, true};
    QuerySpec spec = request->query;
    write.request = *request;
    /* What is wrong with an update is told, whether a document matches or not. */
    if (request->kind == MODIFY_UPDATE) {
        const Collator *collator;
        bool is_given;
        TRY(request_collation(collation, &is_given, &collator, err));
        TRY(modify_trial_new(ctx->op, &write.request, collator, &write.trial, err));
        write.trial = NULL; /* the collection's collation is known later */
    }
    return explain_search(ctx, coll, collation, &spec, &write.base, verbosity, err);
}

static ErrCode explain_find_and_modify(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                                       Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_FIND_AND_MODIFY, command, &arg, err));
    const FindAndModifyRequest *given = arg;
    TRY(find_and_modify_check(given, err));
    ModifyRequest request = {
        .kind = given->is_remove ? MODIFY_DELETE : MODIFY_UPDATE,
        .query = {.filter = given->query, .sort = given->sort, .hint = given->hint},
        .is_upsert = given->is_upsert,
        .update = given->update,
        .array_filters = given->array_filters,
        .image = given->is_new ? IMAGE_AFTER : IMAGE_BEFORE,
    };
    if (doc_is_present(given->sort) && !doc_is_empty(given->sort))
        request.query.limit = 1;
    TRY(query_spec_let(ctx, given->let, &request.query, err));
    return explain_write(ctx, given->coll, given->collation, &request, verbosity, err);
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
    const UpdateRequest *given = arg;
    TRY(check_one_statement(&given->updates, err));
    UpdateStatement statement = {0};
    TRY(update_statements_parse(&given->updates, cmd_arena(ctx), &statement, err));
    ModifyRequest request = {
        .kind = MODIFY_UPDATE,
        .query = {.filter = statement.q, .hint = statement.hint},
        .is_multi = statement.is_multi,
        .is_upsert = statement.is_upsert,
        .update = statement.u,
        .array_filters = statement.array_filters,
        .constants = statement.c,
    };
    TRY(query_spec_let(ctx, given->let, &request.query, err));
    return explain_write(ctx, given->coll, statement.collation, &request, verbosity, err);
}

static ErrCode explain_delete(CommandCtx *ctx, Doc command, ExplainVerbosity verbosity,
                              Error *err) {
    void *arg;
    TRY(parse_inner(ctx, &CMD_DELETE, command, &arg, err));
    const DeleteRequest *given = arg;
    TRY(check_one_statement(&given->deletes, err));
    DeleteStatement statement = {0};
    TRY(delete_statements_parse(&given->deletes, cmd_arena(ctx), &statement, err));
    ModifyRequest request = {
        .kind = MODIFY_DELETE,
        .query = {.filter = statement.q, .hint = statement.hint},
        .is_multi = statement.limit == 0,
    };
    TRY(query_spec_let(ctx, given->let, &request.query, err));
    return explain_write(ctx, given->coll, statement.collation, &request, verbosity, err);
}

const CommandSpec CMD_EXPLAIN = {
    .name = "explain",
    .summary = "Shows how a command would run.",
    .flags = CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT | CMD_NEEDS_SECONDARY_OK,
    .request = &EXPLAIN_REQUEST,
    .run = explain_run,
};
