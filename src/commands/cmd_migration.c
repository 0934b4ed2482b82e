/*
 * cmd_migration.c - what shards ask each other during a move, and the config server of the donor.
 */
#include "commands/configsvr.h"
#include "commands/support.h"
#include "request/request.h"
#include "sharding/migration/donor.h"
#include "sharding/migration/modifications.h"
#include "sharding/migration/range_digest.h"
#include "sharding/migration/recipient.h"
#include "sharding/migration/session_history.h"

/* ---- the donor, asked by the config server ---- */

typedef struct MoveRangeRequest {
    Str ns;
    Str to;
    Doc min;
    Doc max;
    Elem epoch;
    bool waits_for_delete;
    bool is_throttled;
    Doc throttle;
    int64_t force_jumbo;
    int64_t chunk_bytes_max;
} MoveRangeRequest;

static ErrCode move_range_run(CommandCtx *ctx, void *arg, Error *err) {
    MoveRangeRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    MoveOrder order = {
        .to = request->to,
        .min = request->min,
        .max = request->max,
        .has_epoch = elem_is_present(request->epoch),
        .waits_for_delete = request->waits_for_delete,
        .is_throttled = request->is_throttled,
        .throttle = request->throttle,
        .is_jumbo_forced = request->force_jumbo != 0,
        .chunk_bytes_max = request->chunk_bytes_max,
    };
    TRY(ns_parse(request->ns, &order.ns, err));
    if (order.has_epoch)
        TRY(configsvr_oid(request->epoch, "epoch", &order.epoch, err));
    /* The donor has to know the chunks that the config server has decided by. */
    Cluster *cluster;
    TRY(shard_get_cluster(ctx->service->shard, ctx->op, &cluster, err));
    cluster_learn_config_time(cluster, ctx->args.config_time);
    Doc account;
    TRY(donor_move(ctx->service->migrations, ctx->op, &order, &account, err));
    build_all(ctx->reply, account);
    return ERR_OK;
}

static const FieldSpec MOVE_RANGE_FIELDS[] = {
    {"_shardsvrMoveRange", FIELD_STRING, FIELD_REQUIRED, offsetof(MoveRangeRequest, ns)},
    {"toShard", FIELD_STRING, FIELD_REQUIRED, offsetof(MoveRangeRequest, to)},
    {"min", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, min)},
    {"max", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, max)},
    {"epoch", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MoveRangeRequest, epoch)},
    {"waitForDelete", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveRangeRequest, waits_for_delete)},
    {"secondaryThrottle", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveRangeRequest, is_throttled)},
    {"throttleConcern", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, throttle)},
    {"forceJumbo", FIELD_I64, FIELD_OPTIONAL, offsetof(MoveRangeRequest, force_jumbo)},
    {"maxChunkSizeBytes", FIELD_I64, FIELD_OPTIONAL, offsetof(MoveRangeRequest, chunk_bytes_max)},
};
const CommandSpec CMD_SHARDSVR_MOVE_RANGE = {
    .name = "_shardsvrMoveRange",
    .summary = "Internal: moves a range of this shard to another one.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(MoveRangeRequest, MOVE_RANGE_FIELDS),
    .run = move_range_run,
};

/* ---- between the two ---- */

typedef struct MovePartRequest {
    Str ns;
    Elem id;
    Doc move;
    Doc options;
    Doc indexes;
    Doc ids;
    Elem after;
    Elem until;
    Elem up_to;
    Elem at;
    Doc from;
    int64_t wait_ms;
    Str coordinator;
    int64_t term;
} MovePartRequest;

static ErrCode start_run(CommandCtx *ctx, void *arg, Error *err) {
    MovePartRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    MoveCaller caller = {request->coordinator, request->term};
    return recipient_start(ctx->service->migrations, ctx->op, &caller, request->move,
                           request->options, request->indexes, err);
}

static ErrCode part_begin(CommandCtx *ctx, const MovePartRequest *request, Uuid *ret_id,
                          Error *err) {
    TRY(cmd_check_shard(ctx, err));
    return configsvr_uuid(request->id, "migrationId", ret_id, err);
}

static void build_counts(DocBuilder *b, const Receiving *receiving) {
    size_t counts = build_open_doc(b, "counts");
    build_i64(b, "cloned", receiving->cloned);
    build_i64(b, "clonedBytes", receiving->cloned_bytes);
    build_i64(b, "documents", receiving->documents);
    build_i64(b, "catchup", receiving->caught_up);
    build_i64(b, "steady", receiving->steady);
    build_close(b, counts);
}

static ErrCode status_run(CommandCtx *ctx, void *arg, Error *err) {
    MovePartRequest *request = arg;
    Uuid id;
    TRY(part_begin(ctx, request, &id, err));
    Receiving receiving;
    TRY(recipient_status(ctx->service->migrations, ctx->op, &id, request->wait_ms, &receiving,
                         err));
    build_bool(ctx->reply, "active", true);
    build_cstr(ctx->reply, "state", receive_state_name(receiving.state));
    build_counts(ctx->reply, &receiving);
    return ERR_OK;
}

static ErrCode commit_run(CommandCtx *ctx, void *arg, Error *err) {
    MovePartRequest *request = arg;
    Uuid id;
    uint64_t ts;
    TRY(part_begin(ctx, request, &id, err));
    TRY(configsvr_timestamp(request->up_to, "upTo", &ts, err));
    int64_t documents;
    TRY(recipient_commit(ctx->service->migrations, ctx->op, &id, ts, &documents, err));
    build_i64(ctx->reply, "documents", documents);
    Migrations *migrations = ctx->service->migrations;
    Receiving receiving = migrations_receiving(migrations);
    size_t account = build_open_doc(ctx->reply, "account");
    if (uuid_equal(&receiving.id, &id))
        build_counts(ctx->reply, &receiving);
    size_t steps = build_open_doc(ctx->reply, "steps");
    migrations_build_account(migrations, &id, RECIPIENT_STEPS_SHOWN, ctx->reply);
    build_close(ctx->reply, steps);
    build_close(ctx->reply, account);
    return ERR_OK;
}

static ErrCode end_as(CommandCtx *ctx, const MovePartRequest *request, MoveOutcome outcome,
                      Error *err) {
    Uuid id;
    TRY(part_begin(ctx, request, &id, err));
    return recipient_end(ctx->service->migrations, ctx->op, &id, outcome, err);
}

static ErrCode release_run(CommandCtx *ctx, void *arg, Error *err) {
    return end_as(ctx, arg, MOVE_COMMITTED, err);
}

static ErrCode abort_run(CommandCtx *ctx, void *arg, Error *err) {
    return end_as(ctx, arg, MOVE_ABORTED, err);
}

/* ---- the donor, asked by the recipient ---- */

static ErrCode mods_run(CommandCtx *ctx, void *arg, Error *err) {
    MovePartRequest *request = arg;
    Uuid id;
    TRY(part_begin(ctx, request, &id, err));
    CLEANUP(move_done) Move move = {0};
    TRY(donor_find(ctx->service->migrations, ctx->op, &id, &move, err));
    ModificationsQuery query = {.move = &move, .ids = request->ids};
    TRY(configsvr_timestamp(request->after, "after", &query.after_ts, err));
    TRY(configsvr_timestamp(request->until, "until", &query.until_ts, err));
    return modifications_build(ctx->op, &query, ctx->reply, err);
}

static ErrCode sessions_run(CommandCtx *ctx, void *arg, Error *err) {
    MovePartRequest *request = arg;
    Uuid id;
    TRY(part_begin(ctx, request, &id, err));
    CLEANUP(move_done) Move move = {0};
    TRY(donor_find(ctx->service->migrations, ctx->op, &id, &move, err));
    return session_history_build(ctx->op, &move, request->from, ctx->reply, err);
}

static ErrCode digest_run(CommandCtx *ctx, void *arg, Error *err) {
    MovePartRequest *request = arg;
    Uuid id;
    uint64_t at_ts;
    TRY(part_begin(ctx, request, &id, err));
    TRY(configsvr_timestamp(request->at, "at", &at_ts, err));
    CLEANUP(move_done) Move move = {0};
    TRY(donor_find(ctx->service->migrations, ctx->op, &id, &move, err));
    Doc from = doc_is_present(request->from) ? request->from : move.min;
    RangeDigest digest;
    Doc next;
    TRY(range_digest_part(ctx->op, &move, from, at_ts, &digest, &next, err));
    build_i64(ctx->reply, "count", digest.count);
    build_i64(ctx->reply, "bytes", digest.bytes);
    build_i64(ctx->reply, "sum", (int64_t)digest.sum);
    if (doc_is_present(next))
        build_doc(ctx->reply, "next", next);
    return ERR_OK;
}

#define PART_COMMAND(symbol, text, function, words)                                                \
    static const FieldSpec symbol##_FIELDS[] = {                                                   \
        {text, FIELD_STRING, FIELD_REQUIRED, offsetof(MovePartRequest, ns)},                       \
        {"migrationId", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MovePartRequest, id)},                \
        {"move", FIELD_DOC, FIELD_OPTIONAL, offsetof(MovePartRequest, move)},                      \
        {"options", FIELD_DOC, FIELD_OPTIONAL, offsetof(MovePartRequest, options)},                \
        {"indexes", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(MovePartRequest, indexes)},              \
        {"ids", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(MovePartRequest, ids)},                      \
        {"after", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MovePartRequest, after)},                   \
        {"until", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MovePartRequest, until)},                   \
        {"upTo", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MovePartRequest, up_to)},                    \
        {"at", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MovePartRequest, at)},                         \
        {"from", FIELD_DOC, FIELD_OPTIONAL, offsetof(MovePartRequest, from)},                      \
        {"waitMs", FIELD_I64, FIELD_OPTIONAL, offsetof(MovePartRequest, wait_ms)},                 \
        {"coordinator", FIELD_STRING, FIELD_REQUIRED, offsetof(MovePartRequest, coordinator)},     \
        {"term", FIELD_I64, FIELD_REQUIRED, offsetof(MovePartRequest, term)},                      \
    };                                                                                             \
    const CommandSpec symbol = {                                                                   \
        .name = text,                                                                              \
        .summary = "Internal: " words,                                                             \
        .flags = CMD_ADMIN_ONLY | CMD_WRITES,                                                      \
        .request = REQUEST_OF(MovePartRequest, symbol##_FIELDS),                                   \
        .run = function,                                                                           \
    }

PART_COMMAND(CMD_RECV_CHUNK_START, "_recvChunkStart", start_run,
             "begins to receive a range of another shard.");
PART_COMMAND(CMD_RECV_CHUNK_STATUS, "_recvChunkStatus", status_run,
             "tells how much of a range was received.");
PART_COMMAND(CMD_RECV_CHUNK_COMMIT, "_recvChunkCommit", commit_run,
             "receives the last modifications of a range.");
PART_COMMAND(CMD_RECV_CHUNK_RELEASE, "_recvChunkReleaseCritSec", release_run,
             "the range that was received belongs to this shard.");
PART_COMMAND(CMD_RECV_CHUNK_ABORT, "_recvChunkAbort", abort_run,
             "gives up a range that was to be received.");
PART_COMMAND(CMD_TRANSFER_MODS, "_transferMods", mods_run,
             "tells what was written to a range that is being moved.");
PART_COMMAND(CMD_GET_NEXT_SESSION_MODS, "_getNextSessionMods", sessions_run,
             "tells what sessions have executed in a range that is being moved.");
PART_COMMAND(CMD_MIGRATION_DIGEST, "_migrationDigest", digest_run,
             "sums up the documents of a range that is being moved.");
