#include "sharding/config/move_range.h"

#include "base/clock.h"
#include "bson/json.h"
#include "concurrency/service_ctx.h"
#include "sharding/config/chunk_moves.h"
#include "sharding/config/settings.h"
#include "sharding/config/shards.h"
#include "sharding/config/zones.h"

enum {
    CHUNK_BYTES_DEFAULT = 128 << 20,
};

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

static Doc build_order(OpCtx *op, const RangeMove *move, const CollectionEntry *entry) {
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
    build_i64(&b, "forceJumbo", move->force_jumbo);
    Elem bytes = doc_get_lit(entry->doc, "maxChunkSizeBytes");
    build_i64(&b, "maxChunkSizeBytes",
              elem_is_number(bytes) ? elem_as_i64(bytes) : CHUNK_BYTES_DEFAULT);
    remote_build_end(op->service->cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    return doc_builder_end(&b);
}

ErrCode config_move_range(OpCtx *op, const RangeMove *move, Error *err) {
    Cluster *cluster = op->service->cluster;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, ns_str(&move->ns), &entry, err));
    Doc recipient;
    TRY(shard_entry_get(op, move->to, &recipient, err));
    if (!doc_is_present(move->min) && !doc_is_present(move->max))
        return error_set(err, ERR_INVALID_OPTIONS, "a move needs 'min' or 'max'");
    Chunk chunk;
    TRY(find_chunk(op, &entry, move, &chunk, err));
    if (str_equal(chunk.shard, move->to))
        return ERR_OK;
    ShardList *list;
    const Shard *donor;
    TRY(cluster_get_shard(cluster, op, chunk.shard, &list, &donor, err));
    /* The donor joins the same move: asking again does no harm. */
    RemoteRequest request = {.shard = donor,
                             .body = build_order(op, move, &entry),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = INT64_MAX};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = remote_run(cluster, op, &request, &reply, NULL, err);
    shard_list_unref(list);
    return rc;
}
