/*
 * cmd_configsvr_balancer.c - the balancer, as routers ask for it: on, off, how it is; what it goes
 * by.
 */
#include "commands/configsvr.h"
#include "sharding/balancer/balancer.h"
#include "sharding/balancer/collection_status.h"
#include "sharding/config/balancing.h"
#include "sharding/config/jumbo.h"
#include "sharding/config/merge_all.h"
#include "sharding/config/shards.h"

/* ---- on and off ---- */

static ErrCode start_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    TRY(configsvr_check_role(ctx, err));
    TRY(balancer_setting_write(ctx->op, /* is_on= */ true, err));
    balancer_wake(ctx->service->balancer);
    return ERR_OK;
}

static ErrCode stop_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    TRY(configsvr_check_role(ctx, err));
    TRY(balancer_setting_write(ctx->op, /* is_on= */ false, err));
    return balancer_wait_idle(ctx->service->balancer, ctx->op, err);
}

static ErrCode status_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    TRY(configsvr_check_role(ctx, err));
    BalancerSettings settings;
    TRY(balancer_settings_read(ctx->op, &settings, err));
    BalancerStatus status = balancer_status(ctx->service->balancer);
    build_cstr(ctx->reply, "mode", settings.is_on ? "full" : "off");
    build_bool(ctx->reply, "inBalancerRound", status.is_in_round);
    build_i64(ctx->reply, "numBalancerRounds", status.round_count);
    return ERR_OK;
}

const CommandSpec CMD_CONFIGSVR_BALANCER_START = {
    .name = "_configsvrBalancerStart",
    .summary = "Internal: lets the balancer run.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .run = start_run,
};

const CommandSpec CMD_CONFIGSVR_BALANCER_STOP = {
    .name = "_configsvrBalancerStop",
    .summary = "Internal: stops the balancer.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .run = stop_run,
};

const CommandSpec CMD_CONFIGSVR_BALANCER_STATUS = {
    .name = "_configsvrBalancerStatus",
    .summary = "Internal: tells whether the balancer may run.",
    .flags = CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .run = status_run,
};

/* ---- one collection ---- */

typedef struct CollectionRequest {
    Str ns;
    Elem chunk_size;
    Elem defragments;
    Elem merges;
} CollectionRequest;

static ErrCode collection_status_run(CommandCtx *ctx, void *arg, Error *err) {
    const CollectionRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    Ns ns;
    TRY(ns_parse(request->ns, &ns, err));
    return balancer_collection_status(ctx->op, request->ns, ctx->reply, err);
}

static const FieldSpec COLLECTION_STATUS_FIELDS[] = {
    {"_configsvrBalancerCollectionStatus", FIELD_STRING, FIELD_REQUIRED,
     offsetof(CollectionRequest, ns)},
};
const CommandSpec CMD_CONFIGSVR_BALANCER_COLLECTION_STATUS = {
    .name = "_configsvrBalancerCollectionStatus",
    .summary = "Internal: tells whether a collection lies as it should.",
    .flags = CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .request = REQUEST_OF(CollectionRequest, COLLECTION_STATUS_FIELDS),
    .run = collection_status_run,
};

static ErrCode configure_run(CommandCtx *ctx, void *arg, Error *err) {
    const CollectionRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    Ns ns;
    TRY(ns_parse(request->ns, &ns, err));
    if (elem_is_present(request->chunk_size) && !elem_is_number(request->chunk_size))
        return error_set(err, ERR_TYPE_MISMATCH, "chunkSize has to be a number of megabytes");
    BalancingChange change = {
        .ns = request->ns,
        .has_chunk_size = elem_is_present(request->chunk_size),
        .chunk_mb = elem_as_i64(request->chunk_size),
        .has_merges = elem_is_present(request->merges),
        .merges = elem_is_truthy(request->merges),
        .has_defragments = elem_is_present(request->defragments),
        .defragments = elem_is_truthy(request->defragments),
    };
    TRY(collection_configure_balancing(ctx->op, &change, err));
    balancer_wake(ctx->service->balancer);
    return ERR_OK;
}

static const FieldSpec CONFIGURE_FIELDS[] = {
    {"_configsvrConfigureCollectionBalancing", FIELD_STRING, FIELD_REQUIRED,
     offsetof(CollectionRequest, ns)},
    {"chunkSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollectionRequest, chunk_size)},
    {"defragmentCollection", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollectionRequest, defragments)},
    {"enableAutoMerger", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollectionRequest, merges)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_CONFIGURE_BALANCING, "_configsvrConfigureCollectionBalancing",
                  "says how a collection is balanced.", CollectionRequest, CONFIGURE_FIELDS,
                  configure_run);

/* ---- _configsvrClearJumboFlag ---- */

typedef struct ClearJumboRequest {
    Str ns;
    Elem epoch;
    Doc min;
    Doc max;
} ClearJumboRequest;

static ErrCode clear_jumbo_run(CommandCtx *ctx, void *arg, Error *err) {
    const ClearJumboRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    Oid epoch;
    TRY(configsvr_oid(request->epoch, "epoch", &epoch, err));
    return chunk_clear_jumbo(ctx->op, request->ns, &epoch, request->min, request->max, err);
}

static const FieldSpec CLEAR_JUMBO_FIELDS[] = {
    {"_configsvrClearJumboFlag", FIELD_STRING, FIELD_REQUIRED, offsetof(ClearJumboRequest, ns)},
    {"epoch", FIELD_ELEM, FIELD_REQUIRED, offsetof(ClearJumboRequest, epoch)},
    {"minKey", FIELD_DOC, FIELD_REQUIRED, offsetof(ClearJumboRequest, min)},
    {"maxKey", FIELD_DOC, FIELD_REQUIRED, offsetof(ClearJumboRequest, max)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_CLEAR_JUMBO_FLAG, "_configsvrClearJumboFlag",
                  "says that a chunk may be moved again.", ClearJumboRequest, CLEAR_JUMBO_FIELDS,
                  clear_jumbo_run);

/* ---- _configsvrCommitMergeAllChunksOnShard ---- */

typedef struct MergeAllRequest {
    Str ns;
    Str shard;
    int64_t chunks_max;
} MergeAllRequest;

static ErrCode merge_all_run(CommandCtx *ctx, void *arg, Error *err) {
    MergeAllRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    if (request->chunks_max < 0 || request->chunks_max == 1)
        return error_set(err, ERR_INVALID_OPTIONS, "maxNumberOfChunksToMerge has to be 2 or more");
    TRY(shard_resolve_name(ctx->op, &request->shard, err));
    BalancerTuning tuning = balancer_tuning_now(ctx->service->balancer);
    MergeAll merge = {.ns = request->ns,
                      .shard = request->shard,
                      .before = balancer_merge_before(&tuning),
                      .chunks_max = request->chunks_max};
    ChunkVersions versions;
    int64_t count;
    TRY(chunk_merge_all(ctx->op, &merge, &versions, &count, err));
    chunk_version_build(ctx->reply, "shardVersion", &versions.shard);
    build_i64(ctx->reply, "numMergedChunks", count);
    return ERR_OK;
}

static const FieldSpec MERGE_ALL_FIELDS[] = {
    {"_configsvrCommitMergeAllChunksOnShard", FIELD_STRING, FIELD_REQUIRED,
     offsetof(MergeAllRequest, ns)},
    {"shard", FIELD_STRING, FIELD_REQUIRED, offsetof(MergeAllRequest, shard)},
    {"maxNumberOfChunksToMerge", FIELD_I64, FIELD_OPTIONAL, offsetof(MergeAllRequest, chunks_max)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_MERGE_ALL, "_configsvrCommitMergeAllChunksOnShard",
                  "merges all chunks of a shard that may be merged.", MergeAllRequest,
                  MERGE_ALL_FIELDS, merge_all_run);
