/*
 * cmd_configsvr_chunks.c - changes of chunks, as shards ask for them.
 */
#include "commands/configsvr.h"
#include "request/request.h"
#include "sharding/config/chunks.h"

static void build_versions(CommandCtx *ctx, const ChunkVersions *versions) {
    chunk_version_build(ctx->reply, "shardVersion", &versions->shard);
    chunk_version_build(ctx->reply, "collectionVersion", &versions->collection);
}

/* ---- _configsvrCommitChunkSplit ---- */

typedef struct SplitRequest {
    Str ns;
    Str shard;
    Elem epoch;
    Elem timestamp;
    Doc min;
    Doc max;
    DocList points;
} SplitRequest;

static ErrCode split_run(CommandCtx *ctx, void *arg, Error *err) {
    SplitRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    ChunkSplit split = {.ns = request->ns,
                        .shard = request->shard,
                        .min = request->min,
                        .max = request->max,
                        .points = request->points.docs,
                        .point_count = request->points.count};
    TRY(configsvr_oid(request->epoch, "collEpoch", &split.epoch, err));
    TRY(configsvr_timestamp(request->timestamp, "collTimestamp", &split.timestamp, err));
    ChunkVersions versions;
    TRY(chunk_commit_split(ctx->op, &split, &versions, err));
    build_versions(ctx, &versions);
    return ERR_OK;
}

static const FieldSpec SPLIT_FIELDS[] = {
    {"_configsvrCommitChunkSplit", FIELD_STRING, FIELD_REQUIRED, offsetof(SplitRequest, ns)},
    {"shard", FIELD_STRING, FIELD_REQUIRED, offsetof(SplitRequest, shard)},
    {"collEpoch", FIELD_ELEM, FIELD_REQUIRED, offsetof(SplitRequest, epoch)},
    {"collTimestamp", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SplitRequest, timestamp)},
    {"min", FIELD_DOC, FIELD_REQUIRED, offsetof(SplitRequest, min)},
    {"max", FIELD_DOC, FIELD_REQUIRED, offsetof(SplitRequest, max)},
    {"splitPoints", FIELD_DOCS, FIELD_REQUIRED, offsetof(SplitRequest, points)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_CHUNK_SPLIT, "_configsvrCommitChunkSplit",
                  "cuts a chunk into several.", SplitRequest, SPLIT_FIELDS, split_run);

/* ---- _configsvrCommitChunksMerge ---- */

typedef struct MergeRequest {
    Str ns;
    Str shard;
    Elem uuid;
    Doc range;
    Elem epoch;
    Elem timestamp;
} MergeRequest;

typedef struct RangeRequest {
    Doc min;
    Doc max;
} RangeRequest;

static const FieldSpec RANGE_FIELDS[] = {
    {"min", FIELD_DOC, FIELD_REQUIRED, offsetof(RangeRequest, min)},
    {"max", FIELD_DOC, FIELD_REQUIRED, offsetof(RangeRequest, max)},
};

static ErrCode merge_run(CommandCtx *ctx, void *arg, Error *err) {
    MergeRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    RangeRequest range = {0};
    TRY(fields_parse(RANGE_FIELDS, ARRAY_LEN(RANGE_FIELDS),
                     "_configsvrCommitChunksMerge.chunkRange", request->range, cmd_arena(ctx),
                     &range, err));
    ChunkMerge merge = {.ns = request->ns,
                        .shard = request->shard,
                        .has_epoch = elem_is_present(request->epoch),
                        .min = range.min,
                        .max = range.max};
    TRY(configsvr_uuid(request->uuid, "collUUID", &merge.uuid, err));
    if (merge.has_epoch)
        TRY(configsvr_oid(request->epoch, "epoch", &merge.epoch, err));
    TRY(configsvr_timestamp(request->timestamp, "timestamp", &merge.timestamp, err));
    ChunkVersions versions;
    TRY(chunk_commit_merge(ctx->op, &merge, &versions, err));
    build_versions(ctx, &versions);
    return ERR_OK;
}

static const FieldSpec MERGE_FIELDS[] = {
    {"_configsvrCommitChunksMerge", FIELD_STRING, FIELD_REQUIRED, offsetof(MergeRequest, ns)},
    {"shard", FIELD_STRING, FIELD_REQUIRED, offsetof(MergeRequest, shard)},
    {"collUUID", FIELD_ELEM, FIELD_REQUIRED, offsetof(MergeRequest, uuid)},
    {"chunkRange", FIELD_DOC, FIELD_REQUIRED, offsetof(MergeRequest, range)},
    {"epoch", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MergeRequest, epoch)},
    {"timestamp", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MergeRequest, timestamp)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_CHUNKS_MERGE, "_configsvrCommitChunksMerge",
                  "makes one chunk of several.", MergeRequest, MERGE_FIELDS, merge_run);
