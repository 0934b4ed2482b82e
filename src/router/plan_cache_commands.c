#include "router/plan_cache_commands.h"

#include "router/forward.h"
#include "router/owners.h"

/* What the first shard says stands for all, since they were told the same; then each by its name.
 */
static ErrCode ask_owners(void *arg, Routing *routing, Error *err) {
    (void)arg;
    CommandCtx *ctx = routing->ctx;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(owners_ask(routing, /* preference= */ NULL, &calls, err));
    forward_build_reply(ctx, calls.rows[0].reply.body, NULL);
    for (uint32_t i = 0; i < calls.count; i++) {
        size_t row = build_open_doc(ctx->reply, calls.rows[i].shard->name);
        forward_build_reply(ctx, calls.rows[i].reply.body, NULL);
        build_f64(ctx->reply, "ok", 1.0);
        build_close(ctx->reply, row);
    }
    return ERR_OK;
}

static ErrCode plan_cache_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    DocIter iter = doc_iter(ctx->body);
    Elem name;
    if (!doc_iter_next(&iter, &name) || elem_type(name) != BT_STRING)
        return error_set(err, ERR_BAD_VALUE, "collection name has invalid type");
    Ns ns;
    TRY(ns_make(ctx->args.db, ctx->ns_coll, &ns, err));
    return routing_run(ctx, &ns, ROUTING_READS, ask_owners, NULL, err);
}

/* CMD_LOOSE: the shards parse it. */
#define PLAN_CACHE_COMMAND(symbol, text, words)                                                    \
    const CommandSpec symbol = {                                                                   \
        .name = text, .summary = words, .flags = CMD_LOOSE, .run = plan_cache_run}

PLAN_CACHE_COMMAND(ROUTER_PLAN_CACHE_CLEAR, "planCacheClear",
                   "Forgets which plans were best for the queries of a collection.");
PLAN_CACHE_COMMAND(ROUTER_PLAN_CACHE_CLEAR_FILTERS, "planCacheClearFilters",
                   "Removes index filters of a collection.");
PLAN_CACHE_COMMAND(ROUTER_PLAN_CACHE_LIST_FILTERS, "planCacheListFilters",
                   "Lists the index filters of a collection.");
PLAN_CACHE_COMMAND(ROUTER_PLAN_CACHE_SET_FILTER, "planCacheSetFilter",
                   "Says which indexes are considered for a shape of query.");
