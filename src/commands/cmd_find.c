/* cmd_find.c - find: reads documents of a collection or view. */
#include "commands/core/command_service.h"
#include "commands/find_request.h"
#include "commands/view_query.h"

static const FieldSpec FIND_FIELDS[] = {
    FIND_REQUEST_FIELDS,
};

static ErrCode find_run(CommandCtx *ctx, void *arg, Error *err) {
    FindRequest *request = arg;
    count_op(ctx->service, OP_COUNTER_QUERY, 1);
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    ctx->has_oplog_reader = elem_is_present(request->term) && ns_is_oplog(&ns);
    QuerySpec spec;
    FirstBatchOptions batch;
    TRY(find_request_check(ctx, request, &spec, &batch, err));
    FindSource *source;
    bool is_view;
    TRY(find_source_open(ctx->op, &ns, &spec, &source, &is_view, err));
    if (is_view)
        return view_find(ctx, &ns, &spec, &batch, err);
    note_plan(ctx, source->exec);
    if (spec.is_tailable)
        batch.tailable_exec = source->exec;
    return reply_with_cursor(ctx, &ns, &source->base, &batch, err);
}

const CommandSpec CMD_FIND = {
    .name = "find",
    .summary = "Reads documents of a collection.",
    .flags = CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .op_type = "query",
    .fields = FIND_FIELDS,
    .field_count = ARRAY_LEN(FIND_FIELDS),
    .request_size = sizeof(FindRequest),
    .run = find_run,
};
