#include "router/read_target.h"

#include "base/clock.h"
#include "sharding/meta/target.h"

ErrCode read_query_parse(CommandCtx *ctx, Doc filter, Elem collation, Doc let, ReadQuery *ret_query,
                         Error *err) {
    *ret_query = (ReadQuery){.filter = filter,
                             .let_values = DOC_NONE,
                             .now_ms = clock_wall_ms(),
                             .cluster_ts = ctx->op->cluster_ts};
    TRY(request_collation(collation, &ret_query->has_collation, &ret_query->collator, err));
    if (!doc_is_present(let))
        return ERR_OK;
    return expr_eval_let(let, ret_query->now_ms, ret_query->cluster_ts, cmd_arena(ctx),
                         &ret_query->let_values, err);
}

ErrCode read_collator(Routing *routing, const ReadQuery *query, const Collator **ret_collator,
                      Error *err) {
    *ret_collator = query->collator;
    Doc collation = routing->collection->collation;
    if (query->has_collation || !routing_is_sharded(routing) || !doc_is_present(collation))
        return ERR_OK;
    return collator_parse(collation, ret_collator, err);
}

static ErrCode target_primary(Routing *routing, ReadTarget *ret_target, Error *err) {
    ret_target->shards = ARENA_ARRAY(cmd_arena(routing->ctx), const Shard *, 1);
    ret_target->count = 1;
    return routing_primary(routing, &ret_target->shards[0], err);
}

static ErrCode shards_of_target(Routing *routing, const Target *target, ReadTarget *ret_target,
                                Error *err) {
    if (shard_set_size(&target->shards) > 0)
        return routing_shards_of(routing, &target->shards, &ret_target->shards, &ret_target->count,
                                 err);
    TRY(routing_owners(routing, &ret_target->shards, &ret_target->count, err));
    ret_target->count = 1;
    return ERR_OK;
}

ErrCode read_target_parsed(Routing *routing, const MatchExpr *filter, const Collator *collator,
                           ReadTarget *ret_target, Error *err) {
    if (!routing_is_sharded(routing))
        return target_primary(routing, ret_target, err);
    CommandCtx *ctx = routing->ctx;
    Target target;
    TRY(target_filter(routing->collection->map, filter, collator, ctx->read_concern.at_cluster_ts,
                      cmd_arena(ctx), &target, err));
    return shards_of_target(routing, &target, ret_target, err);
}

ErrCode read_target(Routing *routing, const ReadQuery *query, ReadTarget *ret_target, Error *err) {
    if (!routing_is_sharded(routing))
        return target_primary(routing, ret_target, err);
    const Collator *collator;
    TRY(read_collator(routing, query, &collator, err));
    if (!doc_is_present(query->filter) || doc_is_empty(query->filter))
        return read_target_parsed(routing, /* filter= */ NULL, collator, ret_target, err);
    Arena *arena = cmd_arena(routing->ctx);
    Target target;
    if (routing->ctx->read_concern.at_cluster_ts == 0 &&
        target_try_values(routing->collection->map, query->filter, collator, arena, &target))
        return shards_of_target(routing, &target, ret_target, err);
    ExprMatchHook hook = {.parse = {.collator = collator,
                                    .let_values = query->let_values,
                                    .cluster_ts = query->cluster_ts},
                          .now_ms = query->now_ms};
    MatchParseContext parse = {.collator = collator, .expr_hook = expr_match_hook(&hook)};
    MatchExpr *filter;
    TRY(match_parse(query->filter, &parse, arena, &filter, err));
    return read_target_parsed(routing, match_optimize(filter, arena), collator, ret_target, err);
}

uint64_t read_choose_snapshot(CommandCtx *ctx) {
    if (ctx->read_concern.level != READ_CONCERN_SNAPSHOT || ctx->read_concern.at_cluster_ts != 0)
        return 0;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    cluster_build_cluster_time(ctx->service->cluster, &b, ctx->args.cluster_time);
    Elem time = doc_get_path(doc_builder_end(&b), "$clusterTime.clusterTime");
    return elem_type(time) == BT_TIMESTAMP ? (uint64_t)elem_i64(time) : 0;
}

void build_snapshot(DocBuilder *b, const CommandCtx *ctx, uint64_t at_ts) {
    if (at_ts == 0)
        return;
    size_t opened = build_open_doc(b, "readConcern");
    /* The time that was chosen is not before any that the client knows: not both. */
    DocIter iter = doc_iter(elem_doc(ctx->args.read_concern));
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_name_is(field, STR("afterClusterTime")))
            build_elem(b, field);
    build_timestamp(b, "atClusterTime", at_ts);
    build_close(b, opened);
}
