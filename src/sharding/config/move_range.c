#include "sharding/config/move_range.h"

#include "base/clock.h"
#include "bson/json.h"
#include "concurrency/service_ctx.h"
#include "repl/oplog/oplog.h"
#include "repl/repl.h"
#include "sharding/config/balancing.h"
#include "sharding/config/chunk_moves.h"
#include "sharding/config/shards.h"
#include "sharding/config/zones.h"

/* The chunk that is meant; by its upper bound if only that is given. */
static ErrCode find_chunk(OpCtx *op, const CollectionEntry *entry, const RangeMove *move,
                          Chunk *ret_chunk, Error *err) {
    Doc doc;
    if (doc_is_present(move->min)) {
        TRY(shard_key_check_bound(entry->key, move->min, "'min'", err));
        TRY(chunk_find_at(op, &entry->uuid, move->min, &doc, err));
    } else {
        TRY(shard_key_check_bound(entry->key, move->max, "'max'", err));
        DocBuilder b = doc_builder_in_arena(&op->arena);
        build_uuid(&b, "uuid", &entry->uuid);
        size_t min = build_open_doc(&b, "min");
        build_doc(&b, "$lt", move->max);
        build_close(&b, min);
        DocBuilder sort = doc_builder_in_arena(&op->arena);
        build_i32(&sort, "uuid", -1);
        build_i32(&sort, "min", -1);
        TRY(config_catalog_find_first(op, &CONFIG_CHUNKS_NS, doc_builder_end(&b),
                                      doc_builder_end(&sort), &doc, err));
    }
    if (!doc_is_present(doc))
        return error_set(err, ERR_INVALID_OPTIONS, "%s has no chunk there", move->ns.text);
    return chunk_parse(doc, ret_chunk, err);
}

static Doc build_order(OpCtx *op, const RangeMove *move, const CollectionEntry *entry,
                       const BalancerSettings *settings) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_shardsvrMoveRange", ns_str(&move->ns));
    build_str(&b, "toShard", move->to);
    if (doc_is_present(move->min))
        build_doc(&b, "min", move->min);
    if (doc_is_present(move->max))
        build_doc(&b, "max", move->max);
    build_oid(&b, "epoch", &entry->epoch);
    build_bool(&b, "waitForDelete", move->waits_for_delete);
    build_bool(&b, "secondaryThrottle", move->is_throttled);
    if (doc_is_present(move->throttle))
        build_doc(&b, "throttleConcern", move->throttle);
    build_i64(&b, "forceJumbo", move->force_jumbo);
    build_i64(&b, "maxChunkSizeBytes", collection_chunk_bytes(entry->doc, settings));
    remote_build_end(op->service->cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    return doc_builder_end(&b);
}

/* Whoever gets a request of this config server is to see what this one has seen. */
static void note_time(OpCtx *op) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_timestamp(&b, "t", oplog_applied(repl_oplog(op->service->repl)).ts);
    cluster_learn_config_time(op->service->cluster, doc_get_lit(doc_builder_end(&b), "t"));
}

/* `account`: what is known of how it went; DOC_NONE: nothing. `note`, `error` NULL: none. */
static void log_move(OpCtx *op, const char *what, const RangeMove *move, const Chunk *chunk,
                     Doc account, const char *note, const Error *error) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "min", doc_is_present(move->min) ? move->min : chunk->min);
    if (doc_is_present(move->max)) /* else the donor chooses it: moveChunk.commit has it */
        build_doc(&b, "max", move->max);
    if (doc_is_present(account))
        build_all(&b, account);
    build_str(&b, "from", chunk->shard);
    build_str(&b, "to", move->to);
    if (note != NULL)
        build_cstr(&b, "note", note);
    if (error != NULL)
        build_cstr(&b, "errmsg", error_message(error));
    config_catalog_log(op, what, move->ns.text, doc_builder_end(&b));
}

static Doc part_of(Doc reply, const char *path) {
    Elem part = doc_is_present(reply) ? doc_get_path(reply, path) : ELEM_MISSING;
    return elem_type(part) == BT_DOC ? elem_doc(part) : DOC_NONE;
}

/* sh.status() counts the entries moveChunk.from of the last day. `reply` is the donor's. */
static void log_end(OpCtx *op, const RangeMove *move, const Chunk *chunk, Doc reply, ErrCode rc,
                    const Error *error) {
    if (rc == ERR_OK) {
        Doc recipient = part_of(reply, "recipient.steps");
        log_move(op, "moveChunk.from", move, chunk, part_of(reply, "donor"), "success",
                 /* error= */ NULL);
        if (doc_is_present(recipient))
            log_move(op, "moveChunk.to", move, chunk, recipient, "success", /* error= */ NULL);
    } else if (!error_is_of_state(rc) && op_check_interrupt_slow(op, &(Error){0}) == ERR_OK) {
        log_move(op, "moveChunk.error", move, chunk, DOC_NONE, /* note= */ NULL, error);
        log_move(op, "moveChunk.from", move, chunk, DOC_NONE, "aborted", error);
    }
}

static ErrCode ask_donor(OpCtx *op, Str name, Doc order, Doc *ret_reply, Error *err) {
    Cluster *cluster = op->service->cluster;
    ShardList *list;
    const Shard *donor;
    TRY(cluster_get_shard(cluster, op, name, &list, &donor, err));
    /* The donor joins the same move: asking again does no harm. */
    RemoteRequest request = {
        .shard = donor, .body = order, .retry = REMOTE_IDEMPOTENT, .deadline_us = INT64_MAX};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = remote_run(cluster, op, &request, &reply, NULL, err);
    shard_list_unref(list);
    if (rc == ERR_OK)
        *ret_reply = doc_copy(reply.body, &op->arena);
    return rc;
}

ErrCode config_move_range(OpCtx *op, const RangeMove *move, Error *err) {
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, ns_str(&move->ns), &entry, err));
    if (move->uuid != NULL)
        TRY(collection_entry_check_uuid(&entry, move->uuid, err));
    Doc recipient;
    TRY(shard_entry_get(op, move->to, &recipient, err));
    if (!doc_is_present(move->min) && !doc_is_present(move->max))
        return error_set(err, ERR_INVALID_OPTIONS, "a move needs 'min' or 'max'");
    Chunk chunk;
    TRY(find_chunk(op, &entry, move, &chunk, err));
    if (str_equal(chunk.shard, move->to))
        return ERR_OK;
    /* The commit says no, too; but a whole range need not be copied to hear that. */
    if (!collection_allows_moves(entry.doc))
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "chunks of \"%s\" must not move at the moment", move->ns.text);
    TRY(chunk_check_recipient(op, move->to, &recipient, err));
    TRY(zone_check_shard(op, ns_str(&move->ns), doc_is_present(move->min) ? move->min : chunk.min,
                         doc_is_present(move->max) ? move->max : chunk.max, recipient, err));
    BalancerSettings settings;
    TRY(balancer_settings_read(op, &settings, err));
    note_time(op);
    log_move(op, "moveChunk.start", move, &chunk, DOC_NONE, /* note= */ NULL, /* error= */ NULL);
    Doc reply = DOC_NONE;
    ErrCode rc = ask_donor(op, chunk.shard, build_order(op, move, &entry, &settings), &reply, err);
    log_end(op, move, &chunk, reply, rc, err);
    return rc;
}
