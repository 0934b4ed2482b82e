#include "sharding/balancer/look.h"

#include <string.h>

#include "base/clock.h"
#include "concurrency/service_ctx.h"
#include "sharding/meta/chunk.h"

enum {
    ASK_MS_MAX = 10 * 1000,
};

/* ---- shards ---- */

static void parse_zones(OpCtx *op, Doc doc, BalanceShard *shard) {
    Elem tags = doc_get_lit(doc, "tags");
    if (elem_type(tags) != BT_ARRAY)
        return;
    Str *zones = ARENA_ARRAY(&op->arena, Str, doc_count(elem_doc(tags)));
    DocIter iter = doc_iter(elem_doc(tags));
    for (Elem tag; doc_iter_next(&iter, &tag);)
        if (elem_type(tag) == BT_STRING)
            zones[shard->zone_count++] = elem_str(tag);
    shard->zones = zones;
}

ErrCode look_at_shards(OpCtx *op, ShardsLook *ret_shards, Error *err) {
    DocRows docs;
    TRY(config_catalog_find_all(op, &CONFIG_SHARDS_NS, DOC_EMPTY, DOC_NONE, /* limit= */ 0, &docs,
                                err));
    ShardsLook shards = {.rows = ARENA_ARRAY(&op->arena, BalanceShard, docs.count)};
    for (uint32_t i = 0; i < docs.count; i++) {
        Elem name = doc_get_lit(docs.rows[i], "_id");
        if (elem_type(name) != BT_STRING)
            return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                             "a document of config.shards needs a string as \"_id\"");
        BalanceShard *shard = &shards.rows[shards.count++];
        shard->name = elem_str(name);
        shard->is_draining = elem_is_truthy(doc_get_lit(docs.rows[i], "draining"));
        parse_zones(op, docs.rows[i], shard);
    }
    *ret_shards = shards;
    return ERR_OK;
}

/* ---- collections and their sizes ---- */

ErrCode look_at_entry(OpCtx *op, Doc entry, const ShardsLook *shards, CollectionLook *ret_coll,
                      Error *err) {
    Elem name = doc_get_lit(entry, "_id");
    CollectionLook coll = {.entry = entry,
                           .bytes = ARENA_ARRAY(&op->arena, int64_t, shards->count)};
    if (elem_type(name) != BT_STRING || !uuid_from_elem(doc_get_lit(entry, "uuid"), &coll.uuid))
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "a document of config.collections needs \"_id\" and \"uuid\"");
    coll.name = elem_str(name);
    for (uint32_t i = 0; i < shards->count; i++)
        coll.bytes[i] = -1;
    *ret_coll = coll;
    return ERR_OK;
}

static Doc build_sizes_request(OpCtx *op, const CollectionLook *colls, uint32_t count) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "_shardsvrGetStatsForBalancing", 1);
    size_t list = build_open_array(&b, "collections");
    for (uint32_t i = 0; i < count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(&b, index_name(i, name));
        build_str(&b, "ns", colls[i].name);
        build_uuid(&b, "UUID", &colls[i].uuid);
        build_close(&b, row);
    }
    build_close(&b, list);
    build_i32(&b, "scaleFactor", 1);
    remote_build_end(op->service->cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    return doc_builder_end(&b);
}

/* In the order of the request. */
static void take_sizes(Doc reply, uint32_t shard, CollectionLook *colls, uint32_t count) {
    Elem stats = doc_get_lit(reply, "stats");
    if (elem_type(stats) != BT_ARRAY)
        return;
    DocIter iter = doc_iter(elem_doc(stats));
    Elem row;
    for (uint32_t i = 0; i < count && doc_iter_next(&iter, &row); i++) {
        Elem size =
            elem_type(row) == BT_DOC ? doc_get_lit(elem_doc(row), "collSize") : ELEM_MISSING;
        if (elem_is_number(size))
            colls[i].bytes[shard] = elem_as_i64(size);
    }
}

ErrCode look_ask_shard(OpCtx *op, Str name, Doc body, ClientReply *reply, Error *err) {
    Cluster *cluster = op->service->cluster;
    ShardList *list;
    const Shard *shard;
    TRY(cluster_get_shard(cluster, op, name, &list, &shard, err));
    RemoteRequest request = {.shard = shard,
                             .body = body,
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(ASK_MS_MAX)};
    ErrCode rc = remote_run(cluster, op, &request, reply, NULL, err);
    shard_list_unref(list);
    return rc;
}

ErrCode look_at_sizes(OpCtx *op, const ShardsLook *shards, CollectionLook *colls, uint32_t count,
                      Error *err) {
    Doc body = build_sizes_request(op, colls, count);
    for (uint32_t i = 0; i < shards->count; i++) {
        CLEANUP(client_reply_done) ClientReply reply = {0};
        CLEANUP(error_reset) Error unreachable = {0};
        if (look_ask_shard(op, shards->rows[i].name, body, &reply, &unreachable) == ERR_OK)
            take_sizes(reply.body, i, colls, count);
        TRY(op_check_interrupt_slow(op, err));
    }
    return ERR_OK;
}

/* ---- zones and chunks ---- */

ErrCode look_at_zones(OpCtx *op, const CollectionLook *coll, const BalancerSettings *settings,
                      BalanceCollection *ret_input, Error *err) {
    ZoneRanges ranges;
    TRY(zone_ranges_read(op, coll->name, &ranges, err));
    BalanceZone *zones = ARENA_ARRAY(&op->arena, BalanceZone, ranges.count);
    for (uint32_t i = 0; i < ranges.count; i++)
        zones[i] = (BalanceZone){ranges.rows[i].min, ranges.rows[i].max, ranges.rows[i].zone};
    *ret_input = (BalanceCollection){
        .bytes = coll->bytes,
        .zones = zones,
        .zone_count = ranges.count,
        .chunk_bytes = collection_chunk_bytes(coll->entry, settings),
        .moves_jumbo = settings->moves_jumbo,
    };
    return ERR_OK;
}

typedef struct ChunkRead {
    OpCtx *op;
    const ShardsLook *shards;
    BalanceChunk *rows;
    uint32_t count;
    uint32_t capacity;
    bool is_whole;
} ChunkRead;

static uint32_t find_shard(const ChunkRead *read, Str name) {
    uint32_t i = 0;
    while (i < read->shards->count && !str_equal(read->shards->rows[i].name, name))
        i++;
    return i;
}

static ErrCode add_chunk(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over;
    ChunkRead *read = arg;
    Arena *arena = &read->op->arena;
    Chunk chunk;
    TRY(chunk_parse(doc, &chunk, err));
    if (read->count == read->capacity) {
        uint32_t capacity = read->capacity * 2 + 64;
        BalanceChunk *grown = ARENA_ARRAY(arena, BalanceChunk, capacity);
        if (read->count > 0)
            memcpy(grown, read->rows, read->count * sizeof(*grown));
        read->rows = grown;
        read->capacity = capacity;
    }
    Elem bytes = doc_get_lit(doc, "estimatedDataSizeBytes");
    Doc end = read->count > 0 ? read->rows[read->count - 1].max : DOC_NONE;
    bool follows = doc_is_present(end) && doc_equal_bytes(end, chunk.min);
    read->is_whole &= follows || read->count == 0;
    read->rows[read->count++] = (BalanceChunk){
        .min = follows ? end : doc_copy(chunk.min, arena),
        .max = doc_copy(chunk.max, arena),
        .shard = find_shard(read, chunk.shard),
        .is_jumbo = chunk.is_jumbo,
        .bytes = elem_is_number(bytes) ? elem_as_i64(bytes) : -1,
    };
    return ERR_OK;
}

ErrCode look_at_chunks(OpCtx *op, const CollectionLook *coll, const ShardsLook *shards,
                       BalanceCollection *input, bool *ret_is_whole, Error *err) {
    DocBuilder sort = doc_builder_in_arena(&op->arena);
    build_i32(&sort, "uuid", 1);
    build_i32(&sort, "min", 1);
    ChunkRead read = {.op = op, .shards = shards, .is_whole = true};
    TRY(config_catalog_query(op, &CONFIG_CHUNKS_NS, config_filter_uuid(op, &coll->uuid),
                             doc_builder_end(&sort), /* limit= */ 0, add_chunk, &read, err));
    input->chunks = read.rows;
    input->chunk_count = read.count;
    *ret_is_whole = read.is_whole && read.count > 0;
    return ERR_OK;
}
