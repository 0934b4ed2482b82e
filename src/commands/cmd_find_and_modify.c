/* cmd_find_and_modify.c - findAndModify: changes or removes one document and returns it. */
#include "commands/core/command_service.h"
#include "commands/query_args.h"
#include "commands/sessions.h"
#include "commands/write_reply.h"
#include "query/write/modify.h"
#include "query/expr/doc_meta.h"
#include "query/project/project.h"
#include "request/write_requests.h"
#include "txn/retryable.h"

typedef struct ImageFields {
    ExprMatchHook expr_hook;
    MatchParseContext match;
    Projection *projection;
} ImageFields;

static ErrCode parse_fields(CommandCtx *ctx, const FindAndModifyRequest *request,
                            const QuerySpec *query, const Collator *collator, ImageFields *fields,
                            Error *err) {
    ExprParseContext expr = {
        .collator = collator, .let_values = query->let_values, .cluster_ts = query->cluster_ts};
    fields->expr_hook = (ExprMatchHook){.parse = expr, .now_ms = query->now_ms};
    fields->match =
        (MatchParseContext){.collator = collator, .expr_hook = expr_match_hook(&fields->expr_hook)};
    ProjectContext context = {.syntax = PROJECT_FIND, .expr = &expr, .match = &fields->match};
    return project_parse(request->fields, &context, cmd_arena(ctx), &fields->projection, err);
}

static bool has_fields(const FindAndModifyRequest *request) {
    return doc_is_present(request->fields) && !doc_is_empty(request->fields);
}

/* What is wrong with the fields to return is told before anything is written. */
static ErrCode check_fields(CommandCtx *ctx, const FindAndModifyRequest *request,
                            const QuerySpec *query, Error *err) {
    if (!has_fields(request))
        return ERR_OK;
    ImageFields fields;
    TRY(parse_fields(ctx, request, query, query->collator, &fields, err));
    uint32_t needed = project_needed_meta(fields.projection);
    if (doc_meta_has(needed, DOC_META_SORT_KEY))
        return error_set(err, ERR_BAD_VALUE,
                         "findAndModify cannot show $meta 'sortKey': it returns one document");
    if (needed != 0)
        return error_set(err, ERR_NOT_IMPLEMENTED, "$meta is not supported in findAndModify");
    if (request->is_new && project_needs_details(fields.projection))
        return error_set(err, ERR_BAD_VALUE,
                         "a positional projection is of the document that was found: it cannot be "
                         "used to return the new document");
    return ERR_OK;
}

/* The image with the requested fields. */
static ErrCode project_image(CommandCtx *ctx, const FindAndModifyRequest *request,
                             const QuerySpec *query, const ModifyOutcome *outcome, Doc *ret_doc,
                             Error *err) {
    Doc image = outcome->image;
    *ret_doc = image;
    if (!doc_is_present(image) || !has_fields(request))
        return ERR_OK;
    Arena *arena = cmd_arena(ctx);
    ImageFields fields;
    TRY(parse_fields(ctx, request, query, outcome->collator, &fields, err));
    MatchDetails details = MATCH_DETAILS_NONE;
    if (project_needs_details(fields.projection) && doc_is_present(request->query)) {
        MatchExpr *filter;
        TRY(match_parse(request->query, &fields.match, arena, &filter, err));
        match_doc(match_optimize(filter, arena), image, &details);
    }
    ExprEvalContext eval = {
        .scratch = arena, .now_ms = query->now_ms, .collator = outcome->collator};
    ProjectInput input = {.details = &details, .eval = &eval};
    Buffer *out = ARENA_NEW(arena, Buffer);
    buffer_init_arena(out, arena, doc_size(image) + 16, BSON_DOC_SIZE_MAX_INTERNAL);
    return project_apply(fields.projection, image, &input, out, ret_doc, err);
}

enum {
    LOCATION_RETRY_NOT_REMOVE = 40606,
    LOCATION_RETRY_NOT_UPSERT = 40608,
    LOCATION_RETRY_NOT_UPDATE = 40609,
    LOCATION_RETRY_WANTS_BEFORE = 40610,
    LOCATION_RETRY_WANTS_AFTER = 40611,
};

/* What the command did when it was executed: from its entry and the image that was kept. */
static ErrCode recall(CommandCtx *ctx, const FindAndModifyRequest *request, Doc entry, uint64_t ts,
                      ModifyOutcome *ret_outcome, Error *err) {
    Elem kind = doc_get_lit(entry, "op");
    char op = elem_type(kind) == BT_STRING ? elem_str(kind).data[0] : '\0';
    SessionImageKind kept = session_image_from_elem(doc_get_lit(entry, "needsRetryImage"));
    if (op == 'i') {
        if (!request->is_upsert)
            return retry_mismatch(ctx, LOCATION_RETRY_NOT_UPSERT, entry, err);
        Elem doc = doc_get_lit(entry, "o");
        if (request->is_new && elem_is_truthy(doc_get_lit(entry, "isCut")))
            return error_set(err, ERR_INCOMPLETE_TRANSACTION_HISTORY,
                             "the document was inserted before its range was moved to this shard, "
                             "and was too large for its history");
        ret_outcome->is_upserted = true;
        ret_outcome->upserted_id = doc_get_path(entry, "o._id");
        ret_outcome->image = request->is_new ? elem_doc(doc) : DOC_NONE;
        return ERR_OK;
    }
    if (op == 'd' && !request->is_remove)
        return retry_mismatch(ctx, LOCATION_RETRY_NOT_REMOVE, entry, err);
    if (op != 'd' && (op != 'u' || request->is_remove))
        return retry_mismatch(ctx, LOCATION_RETRY_NOT_UPDATE, entry, err);
    if (request->is_new && kept != SESSION_IMAGE_POST)
        return error_set(err, (ErrCode)LOCATION_RETRY_WANTS_AFTER,
                         "findAndModify retry request wants the document after update returned, "
                         "but only before update document is stored");
    if (!request->is_new && kept != SESSION_IMAGE_PRE)
        return error_set(err, (ErrCode)LOCATION_RETRY_WANTS_BEFORE,
                         "findAndModify retry request wants the document before update returned, "
                         "but only after update document is stored");
    ret_outcome->matched = ret_outcome->modified = 1;
    return retryable_image(ctx->op, entry, ts, &ret_outcome->image, err);
}

/* The write, unless it was executed before. */
static ErrCode run_once(CommandCtx *ctx, const Ns *ns, const FindAndModifyRequest *request,
                        const ModifyRequest *modify, Retries *retries, ModifyOutcome *ret_outcome,
                        Error *err) {
    if (retries->is_on) {
        bool is_executed;
        Doc entry;
        uint64_t ts;
        TRY(retryable_find(ctx->op, retries->ids[0], &is_executed, &entry, &ts, err));
        if (is_executed) {
            retries_add(retries, 0);
            return recall(ctx, request, entry, ts, ret_outcome, err);
        }
        retryable_set_statements(ctx->op, retries->ids, request->is_remove,
                                 request->is_new ? SESSION_IMAGE_POST : SESSION_IMAGE_PRE);
    }
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(ctx->op);
    ctx->op->mode.is_validation_bypassed = request->is_validation_bypassed;
    ctx->op->mode.is_empty_ts_kept = request->is_empty_ts_kept;
    TRY(modify_check_failpoint(ctx->op, FP_FAIL_ALL_FIND_AND_MODIFY, ns, err));
    return exec_modify(ctx->op, ns, modify, ret_outcome, err);
}

static ErrCode find_and_modify_run(CommandCtx *ctx, void *arg, Error *err) {
    FindAndModifyRequest *request = arg;
    TRY(find_and_modify_check(request, err));
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    TRY(write_ns_check(ctx, &ns, err));
    const size_t told_bytes_max = BSON_DOC_SIZE_MAX_INTERNAL - WRITE_REPLY_BYTES;
    ModifyRequest modify = {
        .kind = request->is_remove ? MODIFY_DELETE : MODIFY_UPDATE,
        .query = {.filter = request->query, .sort = request->sort, .hint = request->hint},
        .is_upsert = request->is_upsert,
        .update = request->update,
        .array_filters = request->array_filters,
        .image = request->is_new ? IMAGE_AFTER : IMAGE_BEFORE,
        .upsert_told_bytes_max = &told_bytes_max,
    };
    query_spec_defaults(ctx, &modify.query);
    TRY(request_collation(request->collation, &modify.query.has_collation, &modify.query.collator,
                          err));
    TRY(query_spec_let(ctx, request->let, &modify.query, err));
    TRY(check_fields(ctx, request, &modify.query, err));
    Retries retries;
    TRY(retries_begin(ctx, &request->statement, 1, &retries, err));
    ModifyOutcome outcome = {0};
    count_option(ctx->service, OPTION_METRIC_FIND_AND_MODIFY_PIPELINE,
                 elem_type(request->update) == BT_ARRAY);
    count_option(ctx->service, OPTION_METRIC_FIND_AND_MODIFY_ARRAY_FILTERS,
                 doc_is_present(request->array_filters));
    TRY(run_once(ctx, &ns, request, &modify, &retries, &outcome, err));
    Doc image;
    TRY(project_image(ctx, request, &modify.query, &outcome, &image, err));

    DocBuilder *b = ctx->reply;
    size_t last = build_open_doc(b, "lastErrorObject");
    build_count(b, "n", outcome.matched + outcome.is_upserted);
    if (!request->is_remove)
        build_bool(b, "updatedExisting", outcome.matched > 0);
    if (outcome.is_upserted)
        build_elem_as(b, STR("upserted"), outcome.upserted_id);
    build_close(b, last);
    if (doc_is_present(image))
        build_doc(b, "value", image);
    else
        build_null(b, "value");
    if (retries.retried_count > 0)
        build_i32(b, "retriedStmtId", retries.ids[0]);
    return ERR_OK;
}

const CommandSpec CMD_FIND_AND_MODIFY = {
    .name = "findAndModify",
    .alias = "findandmodify",
    .summary = "Changes or removes one document and returns it.",
    .flags = CMD_IN_TXN | CMD_WRITES | CMD_RETRYABLE | CMD_API_V1,
    .latency = LATENCY_WRITES,
    .request = &FIND_AND_MODIFY_REQUEST,
    .run = find_and_modify_run,
};
