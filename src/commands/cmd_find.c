/* cmd_find.c - find: reads documents of a collection or view. */
#include "base/alloc.h"
#include "commands/support.h"
#include "commands/core/command_service.h"
#include "commands/find_args.h"
#include "commands/view_query.h"
#include "concurrency/op_failpoint.h"

enum {
    OPEN_TRIES_MAX = 3,
};

/* A collection that is given by its UUID may get another name before it is opened, or still have it
 * in the snapshot. */
static ErrCode open_source(CommandCtx *ctx, const FindRequest *request, const QuerySpec *spec,
                           Ns *ns, FindSource **ret_source, bool *ret_is_view, Error *err) {
    if (LIKELY(!request->coll.has_uuid))
        return find_source_open(ctx->op, ns, spec, ret_source, ret_is_view, err);
    for (int i = 0; i < OPEN_TRIES_MAX; i++) {
        CLEANUP(find_source_free_ptr) FindSource *source = NULL;
        TRY(find_source_open(ctx->op, ns, spec, &source, ret_is_view, err));
        if (source != NULL && source->exec->has_coll &&
            uuid_equal(&source->exec->uuid, &request->coll.uuid)) {
            *ret_source = TAKE_PTR(source);
            return ERR_OK;
        }
        TRY(request_ref_ns(ctx, &request->coll, ns, err));
    }
    return error_set(err, ERR_QUERY_PLAN_KILLED, "collection renamed: '%s'", ns->text);
}

static ErrCode find_run(CommandCtx *ctx, void *arg, Error *err) {
    FindRequest *request = arg;
    count_op(ctx->service, OP_COUNTER_QUERY, 1);
    Ns ns;
    TRY(request_ref_ns(ctx, &request->coll, &ns, err));
    TRY(find_name_check(request->coll.name, err));
    if (UNLIKELY(request->coll.has_uuid))
        op_set_ns(ctx->op, arena_strdup(cmd_arena(ctx), ns.text));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    ctx->has_oplog_reader = elem_is_present(request->term) && ns_is_oplog(&ns);
    QuerySpec spec;
    FirstBatchOptions batch;
    TRY(find_request_check(ctx, request, &spec, &batch, err));
    FindSource *source;
    bool is_view;
    TRY(open_source(ctx, request, &spec, &ns, &source, &is_view, err));
    if (is_view)
        return view_find(ctx, &ns, &spec, &batch, err);
    note_plan(ctx, source->exec);
    if (spec.is_tailable)
        batch.tailable_exec = source->exec;
    ErrCode rc = op_hang(ctx->op, FP_FIND_WAIT_BEFORE_BATCH, ns.text, err);
    if (UNLIKELY(rc != ERR_OK)) {
        find_source_free_ptr(&source);
        return rc;
    }
    return reply_with_cursor(ctx, &ns, &source->base, &batch, err);
}

const CommandSpec CMD_FIND = {
    .name = "find",
    .summary = "Reads documents of a collection.",
    .flags = CMD_IN_TXN | CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .op_type = "query",
    .latency = LATENCY_READS,
    .request = &FIND_REQUEST,
    .run = find_run,
};
