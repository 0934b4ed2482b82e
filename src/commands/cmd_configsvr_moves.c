/*
 * cmd_configsvr_moves.c - moves of ranges: asked for by routers, committed for donors.
 */
#include "commands/configsvr.h"
#include "request/request.h"
#include "sharding/config/chunk_moves.h"
#include "sharding/config/move_range.h"
#include "sharding/config/shards.h"

/* ---- _configsvrCommitChunkMigration ---- */

typedef struct CommitRequest {
    Str ns;
    Str from;
    Str to;
    Doc chunk;
    Elem version;
    Doc counts;
} CommitRequest;

typedef struct MovedChunk {
    Elem version;
    Doc min;
    Doc max;
} MovedChunk;

static const FieldSpec CHUNK_FIELDS[] = {
    {"lastmod", FIELD_ELEM, FIELD_REQUIRED, offsetof(MovedChunk, version)},
    {"min", FIELD_DOC, FIELD_REQUIRED, offsetof(MovedChunk, min)},
    {"max", FIELD_DOC, FIELD_REQUIRED, offsetof(MovedChunk, max)},
};

static ErrCode commit_run(CommandCtx *ctx, void *arg, Error *err) {
    CommitRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    MovedChunk chunk = {0};
    TRY(fields_parse(CHUNK_FIELDS, ARRAY_LEN(CHUNK_FIELDS),
                     "_configsvrCommitChunkMigration.migratedChunk", request->chunk, cmd_arena(ctx),
                     &chunk, err));
    ChunkVersion version;
    TRY(chunk_version_parse(chunk.version, "lastmod", &version, err));
    ChunkMoveCommit move = {
        .ns = request->ns,
        .from = request->from,
        .to = request->to,
        .epoch = version.epoch,
        .timestamp = version.timestamp,
        .version = chunk_version_number(&version),
        .min = chunk.min,
        .max = chunk.max,
        .counts = request->counts,
    };
    ChunkVersions versions;
    TRY(chunk_commit_move(ctx->op, &move, &versions, err));
    chunk_version_build(ctx->reply, "shardVersion", &versions.shard);
    return ERR_OK;
}

static const FieldSpec COMMIT_FIELDS[] = {
    {"_configsvrCommitChunkMigration", FIELD_STRING, FIELD_REQUIRED, offsetof(CommitRequest, ns)},
    {"fromShard", FIELD_STRING, FIELD_REQUIRED, offsetof(CommitRequest, from)},
    {"toShard", FIELD_STRING, FIELD_REQUIRED, offsetof(CommitRequest, to)},
    {"migratedChunk", FIELD_DOC, FIELD_REQUIRED, offsetof(CommitRequest, chunk)},
    {"fromShardCollectionVersion", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CommitRequest, version)},
    {"counts", FIELD_DOC, FIELD_OPTIONAL, offsetof(CommitRequest, counts)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_CHUNK_MIGRATION, "_configsvrCommitChunkMigration",
                  "gives a range to another shard.", CommitRequest, COMMIT_FIELDS, commit_run);

/* ---- _configsvrEnsureChunkVersionIsGreaterThan ---- */

typedef struct EnsureRequest {
    Elem one;
    Str ns;
    Elem uuid;
    Doc min;
    Doc max;
    Elem version;
} EnsureRequest;

static ErrCode ensure_run(CommandCtx *ctx, void *arg, Error *err) {
    EnsureRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    Uuid uuid;
    ChunkVersion version;
    TRY(configsvr_uuid(request->uuid, "collectionUUID", &uuid, err));
    TRY(chunk_version_parse(request->version, "version", &version, err));
    return chunk_ensure_newer(ctx->op, request->ns, &uuid, request->min,
                              chunk_version_number(&version), err);
}

static const FieldSpec ENSURE_FIELDS[] = {
    {"_configsvrEnsureChunkVersionIsGreaterThan", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(EnsureRequest, one)},
    {"nss", FIELD_STRING, FIELD_REQUIRED, offsetof(EnsureRequest, ns)},
    {"collectionUUID", FIELD_ELEM, FIELD_REQUIRED, offsetof(EnsureRequest, uuid)},
    {"minKey", FIELD_DOC, FIELD_REQUIRED, offsetof(EnsureRequest, min)},
    {"maxKey", FIELD_DOC, FIELD_REQUIRED, offsetof(EnsureRequest, max)},
    {"version", FIELD_ELEM, FIELD_REQUIRED, offsetof(EnsureRequest, version)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_ENSURE_CHUNK_VERSION, "_configsvrEnsureChunkVersionIsGreaterThan",
                  "makes sure that a commit of a move comes too late.", EnsureRequest,
                  ENSURE_FIELDS, ensure_run);

/* ---- _configsvrMoveRange ---- */

typedef struct MoveRangeRequest {
    Str ns;
    Str to;
    Doc min;
    Doc max;
    bool waits_for_delete;
    bool is_throttled;
    Doc throttle;
    int64_t force_jumbo;
} MoveRangeRequest;

static ErrCode move_run(CommandCtx *ctx, void *arg, Error *err) {
    MoveRangeRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    TRY(shard_resolve_name(ctx->op, &request->to, err));
    RangeMove move = {
        .to = request->to,
        .min = request->min,
        .max = request->max,
        .waits_for_delete = request->waits_for_delete,
        .is_throttled = request->is_throttled,
        .throttle = request->throttle,
        .force_jumbo = request->force_jumbo,
    };
    TRY(ns_parse(request->ns, &move.ns, err));
    return config_move_range(ctx->op, &move, err);
}

static const FieldSpec MOVE_FIELDS[] = {
    {"_configsvrMoveRange", FIELD_STRING, FIELD_REQUIRED, offsetof(MoveRangeRequest, ns)},
    {"toShard", FIELD_STRING, FIELD_REQUIRED, offsetof(MoveRangeRequest, to)},
    {"min", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, min)},
    {"max", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, max)},
    {"waitForDelete", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveRangeRequest, waits_for_delete)},
    {"secondaryThrottle", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveRangeRequest, is_throttled)},
    {"throttleConcern", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, throttle)},
    {"forceJumbo", FIELD_I64, FIELD_OPTIONAL, offsetof(MoveRangeRequest, force_jumbo)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_MOVE_RANGE, "_configsvrMoveRange",
                  "has a range moved by the shard that owns it.", MoveRangeRequest, MOVE_FIELDS,
                  move_run);
