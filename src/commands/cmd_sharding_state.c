/* cmd_sharding_state.c - shardingState: which cluster this node is a shard of. */
#include "catalog/fcv.h"
#include "commands/core/command.h"
#include "query/write/own_docs.h"
#include "sharding/shard/shard_state.h"

static const Ns VERSION_NS = {.size = sizeof(FCV_NS_TEXT) - 1, .db_size = 5, .text = FCV_NS_TEXT};

static ErrCode state_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    ShardState *state = ctx->service->shard;
    bool is_shard = false;
    if (state != NULL) {
        TRY(shard_state_load(state, ctx->op, err));
        is_shard = shard_has_identity(state);
    }
    build_bool(ctx->reply, "enabled", is_shard);
    if (!is_shard)
        return ERR_OK;
    const char *name;
    TRY(shard_get_name(state, ctx->op, &name, err));
    build_cstr(ctx->reply, "configServer", shard_config_address(state));
    build_cstr(ctx->reply, "shardName", name);
    Doc identity;
    TRY(own_doc_read(ctx->op, &VERSION_NS, own_doc_id(ctx->op, STR("shardIdentity")), &identity,
                     err));
    if (doc_is_present(identity))
        build_elem(ctx->reply, doc_get_lit(identity, "clusterId"));
    return ERR_OK;
}

const CommandSpec CMD_SHARDING_STATE = {
    .name = "shardingState",
    .summary = "Tells which cluster this node is a shard of.",
    .flags = CMD_ADMIN_ONLY,
    .run = state_run,
};
