/* cmd_cleanup_orphaned.c - cleanupOrphaned: waits until a shard has no document that it does not
 * own. */
#include "catalog/access.h"
#include "commands/core/command.h"
#include "commands/support.h"
#include "sharding/range_deletion/range_deleter.h"
#include "sharding/shard/placement.h"
#include "sharding/shard/refresh.h"

typedef struct CleanupRequest {
    Str ns;
    Doc start; /* startingFromKey: checked, and of no use: everything is waited for */
} CleanupRequest;

static ErrCode check_start(CommandCtx *ctx, const Ns *ns, Doc start, Error *err) {
    if (!doc_is_present(start) || doc_is_empty(start))
        return ERR_OK;
    ShardState *shard = ctx->service->shard;
    CLEANUP(collection_route_done) CollectionRoute *route = placement_find(shard, ns);
    if (route == NULL) {
        TRY(refresh_collection(shard, ctx->op, ns, err));
        route = placement_find(shard, ns);
    }
    if (route == NULL || route->map == NULL)
        return ERR_OK;
    return shard_key_check_bound(chunk_map_key(route->map), start, "startingFromKey", err);
}

static ErrCode cleanup_run(CommandCtx *ctx, void *arg, Error *err) {
    CleanupRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns ns;
    Uuid uuid;
    TRY(ns_parse(request->ns, &ns, err));
    {
        CLEANUP(access_done) CollAccess access = {0};
        TRY(access_read(ctx->op, &ns, &access, err));
        if (access.coll == NULL)
            return ERR_OK;
        uuid = access.coll->uuid;
    }
    TRY(check_start(ctx, &ns, request->start, err));
    return range_deleter_wait_collection(ctx->service->range_deleter, ctx->op, &uuid, err);
}

static const FieldSpec CLEANUP_FIELDS[] = {
    {"cleanupOrphaned", FIELD_STRING, FIELD_REQUIRED, offsetof(CleanupRequest, ns)},
    {"startingFromKey", FIELD_DOC, FIELD_OPTIONAL, offsetof(CleanupRequest, start)},
};

const CommandSpec CMD_CLEANUP_ORPHANED = {
    .name = "cleanupOrphaned",
    .summary = "Waits until documents that have moved to other shards are deleted here.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(CleanupRequest, CLEANUP_FIELDS),
    .run = cleanup_run,
};
