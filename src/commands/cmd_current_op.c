/*
 * cmd_current_op.c - currentOp: what runs now. Fields other than $all and $ownOps filter the rows.
 */
#include "params/params.h"
#include "commands/current_op.h"
#include "commands/support.h"

typedef struct CurrentOpRequest {
    bool all;
    bool own_ops;
    bool truncate_ops;
} CurrentOpRequest;

typedef struct RowState {
    CommandCtx *ctx;
    const MatchExpr *filter;
    uint32_t count;
} RowState;

/* What is neither an option nor an argument of any command belongs to the filter. */
static Doc filter_of(CommandCtx *ctx) {
    static const char *const NOT_FILTER[] = {
        "$all",         "$ownOps",    "$truncateOps", "$db",
        "lsid",         "comment",    "maxTimeMS",    "$readPreference",
        "$clusterTime", "apiVersion", "apiStrict",    "apiDeprecationErrors",
        "readConcern"};
    ArenaDoc doc;
    arena_doc_begin(&doc, cmd_arena(ctx));
    DocIter iter = doc_iter(ctx->body);
    Elem elem;
    doc_iter_next(&iter, &elem); /* currentOp itself */
    while (doc_iter_next(&iter, &elem)) {
        bool is_filter = true;
        for (size_t i = 0; i < ARRAY_LEN(NOT_FILTER) && is_filter; i++)
            is_filter = !str_is(elem_name_str(elem), NOT_FILTER[i]);
        if (is_filter)
            build_elem(&doc.b, elem);
    }
    return arena_doc_end(&doc);
}

static ErrCode add_row(void *arg, Doc row, Error *err) {
    RowState *state = arg;
    bool is_match;
    TRY(cmd_filter_matches(state->filter, row, &is_match, err));
    char name[INDEX_NAME_SIZE];
    if (is_match)
        build_doc(state->ctx->reply, index_name(state->count++, name).data, row);
    return ERR_OK;
}

static ErrCode current_op_run(CommandCtx *ctx, void *arg, Error *err) {
    const CurrentOpRequest *request = arg;
    MatchExpr *filter;
    TRY(cmd_parse_filter(ctx, filter_of(ctx), &filter, err));
    CurrentOpQuery query = {
        .has_idle_connections = request->all,
        .has_idle_sessions = request->all,
        .is_own_only = request->own_ops,
        .connection_id = (int64_t)ctx->client->conn->id,
    };
    RowState state = {.ctx = ctx, .filter = filter};
    size_t opened = build_open_array(ctx->reply, "inprog");
    TRY(current_op_for_each(ctx->service, &query, add_row, &state, err));
    build_close(ctx->reply, opened);
    return ERR_OK;
}

static const FieldSpec CURRENT_OP_FIELDS[] = {
    {"$all", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CurrentOpRequest, all)},
    {"$ownOps", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CurrentOpRequest, own_ops)},
    {"$truncateOps", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CurrentOpRequest, truncate_ops)},
};

const CommandSpec CMD_CURRENT_OP = {
    .name = "currentOp",
    .summary = "Lists the operations that run now.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .request = REQUEST_OF(CurrentOpRequest, CURRENT_OP_FIELDS),
    .run = current_op_run,
};
