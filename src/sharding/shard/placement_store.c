#include "sharding/shard/placement_store.h"

#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "ddl/ddl.h"
#include "query/write/modify.h"
#include "query/write/own_docs.h"

#define NS_OF(name, symbol_text)                                                                   \
    const Ns name = {.size = sizeof(symbol_text) - 1, .db_size = 6, .text = symbol_text}
NS_OF(CACHE_COLLECTIONS_NS, "config.cache.collections");
NS_OF(CACHE_DATABASES_NS, "config.cache.databases");

#define CHUNKS_PREFIX "cache.chunks."

enum {
    WRITE_BATCH_DOCS = 1000,
};

static ErrCode chunks_ns(OpCtx *op, const Ns *ns, Ns *ret_ns, Error *err) {
    const char *name = arena_printf(&op->arena, CHUNKS_PREFIX "%s", ns->text);
    return ns_make(STR("config"), str_from(name), ret_ns, err);
}

static ErrCode delete_docs(OpCtx *op, const Ns *ns, Doc filter, Error *err) {
    ModifyRequest request = {.kind = MODIFY_DELETE, .query = {.filter = filter}, .is_multi = true};
    ModifyOutcome outcome;
    return exec_modify(op, ns, &request, &outcome, err);
}

static Doc id_filter(OpCtx *op, Str id) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", id);
    return doc_builder_end(&b);
}

/* ---- collections: writing ---- */

static ErrCode write_entry(OpCtx *op, const CollectionRoute *route, bool is_refreshing,
                           Error *err) {
    ChunkVersion version = chunk_map_version(route->map);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", ns_str(&route->ns));
    build_uuid(&b, "uuid", &route->uuid);
    build_oid(&b, "epoch", &version.epoch);
    build_timestamp(&b, "timestamp", version.timestamp);
    build_doc(&b, "key", shard_key_pattern(chunk_map_key(route->map)));
    build_bool(&b, "unique", route->is_unique);
    if (doc_is_present(route->collation))
        build_doc(&b, "defaultCollation", route->collation);
    if (!route->allows_migrations)
        build_bool(&b, "allowMigrations", false);
    build_bool(&b, "refreshing", is_refreshing);
    if (!is_refreshing)
        build_timestamp(&b, "lastRefreshedCollectionVersion", chunk_version_number(&version));
    return own_doc_upsert(op, &CACHE_COLLECTIONS_NS, own_doc_id(op, ns_str(&route->ns)),
                          doc_builder_end(&b), err);
}

static bool is_outdated(Doc entry) {
    return elem_is_truthy(doc_get_lit(entry, "outdated"));
}

/* Up to which version chunks are stored; false: none that can be gone on with. */
static bool read_stored_version(Doc entry, const ChunkVersion *now, uint64_t *ret_number) {
    if (!doc_is_present(entry) || elem_is_truthy(doc_get_lit(entry, "refreshing")))
        return false;
    Elem epoch = doc_get_lit(entry, "epoch"), timestamp = doc_get_lit(entry, "timestamp");
    Elem number = doc_get_lit(entry, "lastRefreshedCollectionVersion");
    if (elem_type(epoch) != BT_OID || elem_type(timestamp) != BT_TIMESTAMP ||
        elem_type(number) != BT_TIMESTAMP)
        return false;
    *ret_number = (uint64_t)elem_i64(number);
    return memcmp(elem_oid(epoch), &now->epoch, sizeof(Oid)) == 0 &&
           (uint64_t)elem_i64(timestamp) == now->timestamp;
}

typedef struct ChunkWriter {
    OpCtx *op;
    const ChunkMap *map;
    Ns ns;
    bool has_older; /* what a chunk overlaps has to go first */
    Arena arena;    /* of one batch */
    Doc *docs;
    uint32_t count;
} ChunkWriter;

static void writer_done(ChunkWriter *writer) {
    arena_done(&writer->arena);
}

static ErrCode flush(ChunkWriter *writer, Error *err) {
    ErrCode rc = writer->count == 0
                     ? ERR_OK
                     : own_docs_insert(writer->op, &writer->ns, writer->docs, writer->count, err);
    failpoint_hit_at(FP_PLACEMENT_STORING, "batch");
    writer->count = 0;
    arena_reset(&writer->arena);
    return rc;
}

static ErrCode remove_overlapped(ChunkWriter *writer, Doc min, Doc max, Error *err) {
    DocBuilder b = doc_builder_in_arena(&writer->arena);
    size_t range = build_open_doc(&b, "_id");
    build_doc(&b, "$gte", min);
    build_doc(&b, "$lt", max);
    build_close(&b, range);
    return delete_docs(writer->op, &writer->ns, doc_builder_end(&b), err);
}

static ErrCode write_chunk(ChunkWriter *writer, ChunkAt at, Error *err) {
    const ChunkMap *map = writer->map;
    Chunk chunk = {
        .min = chunk_map_min(map, at, &writer->arena),
        .max = chunk_map_max(map, at, &writer->arena),
        .shard = chunk_map_shard_name(map, chunk_map_owner(map, at)),
        .version = chunk_map_chunk_version(map, at),
        .since = chunk_map_since(map, at),
        .history = chunk_map_history(map, at, &writer->arena),
    };
    if (writer->has_older)
        TRY(remove_overlapped(writer, chunk.min, chunk.max, err));
    failpoint_hit_at(FP_PLACEMENT_STORING, "chunk");
    DocBuilder b = doc_builder_in_arena(&writer->arena);
    chunk_build_cached(&b, &chunk);
    writer->docs[writer->count++] = doc_builder_end(&b);
    return writer->count == WRITE_BATCH_DOCS ? flush(writer, err) : ERR_OK;
}

static ErrCode write_chunks(OpCtx *op, const CollectionRoute *route, const Ns *ns, bool has_older,
                            uint64_t since, Error *err) {
    CLEANUP(writer_done)
    ChunkWriter writer = {.op = op, .map = route->map, .ns = *ns, .has_older = has_older};
    arena_init(&writer.arena, 64 * 1024);
    writer.docs = ARENA_ARRAY(&op->arena, Doc, WRITE_BATCH_DOCS);
    ChunkAt at = chunk_map_first(route->map);
    do {
        if (!has_older || chunk_map_chunk_version(route->map, at) > since)
            TRY(write_chunk(&writer, at, err));
    } while (chunk_map_next(route->map, &at));
    return flush(&writer, err);
}

static ErrCode drop_chunks(OpCtx *op, const Ns *ns, Error *err) {
    DropResult result;
    return ddl_drop(op, ns, NULL, &result, err);
}

/* Chunks without an entry belong to nobody. */
static ErrCode remove_entry(OpCtx *op, const Ns *ns, Error *err) {
    Ns chunks;
    TRY(chunks_ns(op, ns, &chunks, err));
    TRY(delete_docs(op, &CACHE_COLLECTIONS_NS, id_filter(op, ns_str(ns)), err));
    failpoint_hit_at(FP_PLACEMENT_STORING, "entryDeleted");
    TRY(drop_chunks(op, &chunks, err));
    failpoint_hit_at(FP_PLACEMENT_STORING, "chunksDropped");
    return ERR_OK;
}

ErrCode placement_store_write(OpCtx *op, const CollectionRoute *route, Error *err) {
    Doc entry;
    TRY(own_doc_read(op, &CACHE_COLLECTIONS_NS, own_doc_id(op, ns_str(&route->ns)), &entry, err));
    Ns ns;
    TRY(chunks_ns(op, &route->ns, &ns, err));
    if (route->map == NULL)
        return doc_is_present(entry) ? remove_entry(op, &route->ns, err) : ERR_OK;
    ChunkVersion now = chunk_map_version(route->map);
    uint64_t since = 0;
    bool is_going_on = read_stored_version(entry, &now, &since);
    if (is_going_on && since >= chunk_version_number(&now) && !is_outdated(entry))
        return ERR_OK;
    TRY(write_entry(op, route, /* is_refreshing= */ true, err));
    failpoint_hit_at(FP_PLACEMENT_STORING, "begun");
    if (!is_going_on)
        TRY(drop_chunks(op, &ns, err));
    failpoint_hit_at(FP_PLACEMENT_STORING, "cleared");
    TRY(write_chunks(op, route, &ns, is_going_on, since, err));
    failpoint_hit_at(FP_PLACEMENT_STORING, "chunksWritten");
    TRY(write_entry(op, route, /* is_refreshing= */ false, err));
    failpoint_hit_at(FP_PLACEMENT_STORING, "done");
    return ERR_OK;
}

/* ---- collections: reading ---- */

static ErrCode add_chunk(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over;
    Chunk chunk;
    TRY(chunk_parse_cached(doc, &chunk, err));
    chunk_map_maker_add(arg, &chunk);
    return ERR_OK;
}

/* The stored entry names some fields otherwise than config.collections does. */
static Doc as_catalog_entry(OpCtx *op, Doc entry) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    DocIter iter = doc_iter(entry);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_name_is(field, STR("epoch")))
            build_elem_as(&b, STR("lastmodEpoch"), field);
        else
            build_elem(&b, field);
    return doc_builder_end(&b);
}

static ErrCode read_map(OpCtx *op, const Ns *ns, CollectionRoute *route, const Oid *epoch,
                        uint64_t timestamp, ShardKey *key, Error *err) {
    Ns chunks;
    TRY(chunks_ns(op, ns, &chunks, err));
    ChunkMapMaker *maker = chunk_map_maker_new(key, epoch, timestamp);
    ErrCode rc = access_each(op, &chunks, /* is_forward= */ true, add_chunk, maker, err);
    if (rc != ERR_OK) {
        chunk_map_maker_free(maker);
        return rc;
    }
    return chunk_map_maker_finish(maker, &route->map, err);
}

ErrCode placement_store_read(OpCtx *op, const Ns *ns, CollectionRoute **ret_route, Error *err) {
    Doc entry, after;
    TRY(own_doc_read(op, &CACHE_COLLECTIONS_NS, own_doc_id(op, ns_str(ns)), &entry, err));
    if (!doc_is_present(entry)) {
        *ret_route = collection_route_unsharded(ns);
        return ERR_OK;
    }
    if (elem_is_truthy(doc_get_lit(entry, "refreshing")) || is_outdated(entry))
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "the routing table of %s is being written", ns->text);
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    Oid epoch;
    uint64_t timestamp;
    ShardKey *key;
    TRY(collection_route_parse(ns, as_catalog_entry(op, entry), &route, &epoch, &timestamp, &key,
                               err));
    ErrCode rc = read_map(op, ns, route, &epoch, timestamp, key, err);
    shard_key_unref(key);
    TRY(rc);
    TRY(own_doc_read(op, &CACHE_COLLECTIONS_NS, own_doc_id(op, ns_str(ns)), &after, err));
    if (!doc_is_present(after) || !doc_equal_bytes(entry, after))
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "the routing table of %s was written meanwhile", ns->text);
    *ret_route = TAKE_PTR(route);
    return ERR_OK;
}

static ErrCode find_local(OpCtx *op, const Ns *ns, bool *ret_found, Uuid *ret_uuid, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    *ret_found = access.coll != NULL;
    if (access.coll != NULL)
        *ret_uuid = access.coll->uuid;
    return ERR_OK;
}

ErrCode placement_store_read_alone(OpCtx *op, const Ns *ns, CollectionRoute **ret_route,
                                   Error *err) {
    bool is_found;
    Uuid uuid;
    TRY(find_local(op, ns, &is_found, &uuid, err));
    if (!is_found)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "%s is not known to this member", ns->text);
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(placement_store_read(op, ns, &route, err));
    if (route->map != NULL && !uuid_equal(&route->uuid, &uuid))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                         "what is stored of %s is about another collection", ns->text);
    *ret_route = TAKE_PTR(route);
    return ERR_OK;
}

/* ---- outdating ---- */

static ErrCode outdate_collection(OpCtx *op, const Ns *ns, Error *err) {
    Doc entry;
    TRY(own_doc_read(op, &CACHE_COLLECTIONS_NS, own_doc_id(op, ns_str(ns)), &entry, err));
    bool is_found;
    Uuid uuid;
    TRY(find_local(op, ns, &is_found, &uuid, err));
    if (!is_found)
        return doc_is_present(entry) ? remove_entry(op, ns, err) : ERR_OK;
    if (doc_is_present(entry) && is_outdated(entry))
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    if (doc_is_present(entry))
        build_all(&b, entry);
    else
        build_str(&b, "_id", ns_str(ns));
    build_bool(&b, "outdated", true);
    return own_doc_upsert(op, &CACHE_COLLECTIONS_NS, own_doc_id(op, ns_str(ns)),
                          doc_builder_end(&b), err);
}

ErrCode placement_store_outdate(OpCtx *op, const Ns *ns, Error *err) {
    return ns->size == ns->db_size
               ? placement_store_write_database(op, ns_str(ns), STR(""), /* version= */ NULL, err)
               : outdate_collection(op, ns, err);
}

/* ---- databases ---- */

ErrCode placement_store_write_database(OpCtx *op, Str name, Str primary,
                                       const DatabaseVersion *version, Error *err) {
    DatabaseVersion stored;
    bool is_stored;
    TRY(placement_store_read_database(op, name, &stored, &is_stored, err));
    if (version == NULL)
        return is_stored ? delete_docs(op, &CACHE_DATABASES_NS, id_filter(op, name), err) : ERR_OK;
    if (is_stored && database_version_equal(&stored, version))
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", name);
    build_str(&b, "primary", primary);
    build_bool(&b, "partitioned", false);
    database_version_build(&b, "version", version);
    return own_doc_upsert(op, &CACHE_DATABASES_NS, own_doc_id(op, name), doc_builder_end(&b), err);
}

ErrCode placement_store_read_database(OpCtx *op, Str name, DatabaseVersion *ret_version,
                                      bool *ret_found, Error *err) {
    Doc entry;
    TRY(own_doc_read(op, &CACHE_DATABASES_NS, own_doc_id(op, name), &entry, err));
    *ret_found = doc_is_present(entry);
    return *ret_found
               ? database_version_parse(doc_get_lit(entry, "version"), "version", ret_version, err)
               : ERR_OK;
}
