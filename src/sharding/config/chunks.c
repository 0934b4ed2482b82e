#include "sharding/config/chunks_internal.h"

#include "bson/json.h"
#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"

enum {
    REMOVE_BATCH_DOCS = 1000,
};

/* ---- reading ---- */

static Doc sort_of(OpCtx *op, const char *field, int32_t direction) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "uuid", direction);
    build_i32(&b, field, direction);
    return doc_builder_end(&b);
}

ErrCode chunks_find_newest(OpCtx *op, const Uuid *uuid, Str shard, Doc *ret_doc, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "uuid", uuid);
    if (shard.size > 0)
        build_str(&b, "shard", shard);
    return config_catalog_find_first(op, &CONFIG_CHUNKS_NS, doc_builder_end(&b),
                                     sort_of(op, "lastmod", -1), ret_doc, err);
}

ErrCode chunks_newest(OpCtx *op, const CollectionEntry *entry, Str shard, ChunkVersion *ret_version,
                      Error *err) {
    ChunkVersion version = {.epoch = entry->epoch, .timestamp = entry->timestamp};
    Doc doc;
    TRY(chunks_find_newest(op, &entry->uuid, shard, &doc, err));
    if (doc_is_present(doc)) {
        Chunk chunk;
        TRY(chunk_parse(doc, &chunk, err));
        chunk_version_set_number(&version, chunk.version);
    }
    *ret_version = version;
    return ERR_OK;
}

ErrCode chunks_read_versions(OpCtx *op, const CollectionEntry *entry, Str shard,
                             ChunkVersions *ret_versions, Error *err) {
    TRY(chunks_newest(op, entry, shard, &ret_versions->shard, err));
    return chunks_newest(op, entry, STR(""), &ret_versions->collection, err);
}

/* The chunks that begin in [min, max), by their lower bounds. */
static ErrCode read_range(OpCtx *op, const Uuid *uuid, Doc min, Doc max, int64_t limit,
                          ChunkList *ret_chunks, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "uuid", uuid);
    size_t range = build_open_doc(&b, "min");
    build_doc(&b, "$gte", min);
    build_doc(&b, "$lt", max);
    build_close(&b, range);
    DocRows docs;
    TRY(config_catalog_find_all(op, &CONFIG_CHUNKS_NS, doc_builder_end(&b), sort_of(op, "min", 1),
                                limit, &docs, err));
    ChunkList chunks = {.rows = ARENA_ARRAY(&op->arena, Chunk, docs.count), .count = docs.count};
    for (uint32_t i = 0; i < docs.count; i++)
        TRY(chunk_parse(docs.rows[i], &chunks.rows[i], err));
    *ret_chunks = chunks;
    return ERR_OK;
}

/* ---- writing ---- */

Doc chunks_doc(OpCtx *op, const Chunk *chunk) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    chunk_build(&b, chunk);
    return doc_builder_end(&b);
}

ErrCode chunks_replace(OpCtx *op, const Chunk *chunk, Error *err) {
    Doc doc = chunks_doc(op, chunk);
    return own_doc_upsert(op, &CONFIG_CHUNKS_NS, doc_get_lit(doc, "_id"), doc, err);
}

/* {_id: {$in: ids}} */
static Doc filter_ids(OpCtx *op, const Oid *ids, uint32_t count) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t id = build_open_doc(&b, "_id");
    size_t list = build_open_array(&b, "$in");
    for (uint32_t i = 0; i < count; i++) {
        char name[INDEX_NAME_SIZE];
        build_oid(&b, index_name(i, name).data, &ids[i]);
    }
    build_close(&b, list);
    build_close(&b, id);
    return doc_builder_end(&b);
}

ErrCode chunks_delete(OpCtx *op, const Chunk *chunks, uint32_t count, Error *err) {
    Oid *ids = ARENA_ARRAY(&op->arena, Oid, count);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = chunks[i].id;
    return own_docs_delete(op, &CONFIG_CHUNKS_NS, filter_ids(op, ids, count), err);
}

ErrCode chunks_bump(OpCtx *op, const CollectionEntry *entry, Error *err) {
    Doc doc;
    TRY(chunks_find_newest(op, &entry->uuid, STR(""), &doc, err));
    if (!doc_is_present(doc))
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "the collection \"%.*s\" has no chunk", (int)entry->name.size,
                         entry->name.data);
    Chunk chunk;
    TRY(chunk_parse(doc, &chunk, err));
    ChunkVersion version = {.epoch = entry->epoch, .timestamp = entry->timestamp};
    chunk_version_set_number(&version, chunk.version);
    TRY(chunk_version_next_minor(&version, &version, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&b, "$set");
    build_timestamp(&b, "lastmod", chunk_version_number(&version));
    build_close(&b, fields);
    return own_docs_update(op, &CONFIG_CHUNKS_NS, filter_ids(op, &chunk.id, 1), doc_builder_end(&b),
                           err);
}

typedef struct Removal {
    const Uuid *uuid;
    bool is_over;
} Removal;

static ErrCode remove_in_txn(void *arg, OpCtx *op, Error *err) {
    Removal *removal = arg;
    /* A rename keeps the uuid: late requests about the old name must not harm the new one. */
    TRY(collection_uuid_is_used(op, removal->uuid, &removal->is_over, err));
    if (removal->is_over)
        return ERR_OK;
    DocRows docs;
    TRY(config_catalog_find_all(op, &CONFIG_CHUNKS_NS, config_filter_uuid(op, removal->uuid),
                                DOC_NONE, REMOVE_BATCH_DOCS, &docs, err));
    removal->is_over = docs.count < REMOVE_BATCH_DOCS;
    Oid *ids = ARENA_ARRAY(&op->arena, Oid, docs.count);
    for (uint32_t i = 0; i < docs.count; i++) {
        Elem id = doc_get_lit(docs.rows[i], "_id");
        if (elem_type(id) != BT_OID)
            return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                             "a document of config.chunks needs an ObjectId as \"_id\"");
        ids[i] = *elem_oid(id);
    }
    return docs.count == 0
               ? ERR_OK
               : own_docs_delete(op, &CONFIG_CHUNKS_NS, filter_ids(op, ids, docs.count), err);
}

ErrCode chunks_remove(OpCtx *op, const Uuid *uuid, Error *err) {
    Removal removal = {.uuid = uuid};
    OpTime changed = op->last_optime;
    while (!removal.is_over) {
        ArenaMark mark = arena_mark(&op->arena);
        TRY(config_catalog_change(op, "removeChunks", remove_in_txn, &removal, err));
        arena_rewind(&op->arena, mark);
    }
    /* A last transaction that found nothing has written nothing. */
    if (optime_is_none(op->last_optime))
        op->last_optime = changed;
    return ERR_OK;
}

/* ---- changes ---- */

ErrCode chunks_check_generation(const CollectionEntry *entry, const Oid *epoch, uint64_t timestamp,
                                Error *err) {
    bool is_same = epoch == NULL || memcmp(epoch, &entry->epoch, sizeof(Oid)) == 0;
    if (is_same && (timestamp == 0 || timestamp == entry->timestamp))
        return ERR_OK;
    return error_set(err, ERR_STALE_EPOCH,
                     "the collection \"%.*s\" was dropped or sharded anew since",
                     (int)entry->name.size, entry->name.data);
}

void chunks_build_range(DocBuilder *b, const char *name, Doc min, Doc max) {
    size_t range = build_open_doc(b, name);
    build_doc(b, "min", min);
    build_doc(b, "max", max);
    build_close(b, range);
}

typedef struct SplitRun {
    const ChunkSplit *split;
    ChunkVersions versions;
    ChunkList pieces; /* empty: it was split already */
} SplitRun;

/* Are these the pieces that the split makes? */
static bool is_split(const ChunkSplit *split, const ChunkList *chunks) {
    if (chunks->count != split->point_count + 1)
        return false;
    for (uint32_t i = 0; i < chunks->count; i++) {
        const Chunk *chunk = &chunks->rows[i];
        Doc min = i == 0 ? split->min : split->points[i - 1];
        Doc max = i == split->point_count ? split->max : split->points[i];
        if (!str_equal(chunk->shard, split->shard) || shard_key_compare(chunk->min, min) != 0 ||
            shard_key_compare(chunk->max, max) != 0)
            return false;
    }
    return true;
}

static ErrCode write_pieces(OpCtx *op, const ChunkList *pieces, Error *err) {
    TRY(chunks_replace(op, &pieces->rows[0], err));
    Doc *docs = ARENA_ARRAY(&op->arena, Doc, pieces->count - 1);
    for (uint32_t i = 1; i < pieces->count; i++)
        docs[i - 1] = chunks_doc(op, &pieces->rows[i]);
    return own_docs_insert(op, &CONFIG_CHUNKS_NS, docs, pieces->count - 1, err);
}

static ErrCode split_in_txn(void *arg, OpCtx *op, Error *err) {
    SplitRun *run = arg;
    const ChunkSplit *split = run->split;
    run->pieces = (ChunkList){0};
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, split->ns, &entry, err));
    TRY(chunks_check_generation(&entry, &split->epoch, split->timestamp, err));
    TRY(shard_key_check_bound(entry.key, split->min, "min", err));
    TRY(shard_key_check_bound(entry.key, split->max, "max", err));
    ChunkList chunks;
    TRY(read_range(op, &entry.uuid, split->min, split->max, (int64_t)split->point_count + 2,
                   &chunks, err));
    if (is_split(split, &chunks))
        return chunks_read_versions(op, &entry, split->shard, &run->versions, err);
    const Chunk *chunk = chunks.rows;
    if (chunks.count != 1 || !str_equal(chunk->shard, split->shard) ||
        shard_key_compare(chunk->min, split->min) != 0 ||
        shard_key_compare(chunk->max, split->max) != 0)
        return error_set(
            err, ERR_BAD_VALUE, "the shard \"%.*s\" has no chunk of \"%.*s\" from %s to %s",
            (int)split->shard.size, split->shard.data, (int)split->ns.size, split->ns.data,
            shell_text_of_doc(split->min, &op->arena), shell_text_of_doc(split->max, &op->arena));
    ChunkVersion newest;
    TRY(chunks_newest(op, &entry, STR(""), &newest, err));
    TRY(chunk_split(entry.key, chunk, split->points, split->point_count, &newest, &op->arena,
                    &run->pieces, err));
    TRY(write_pieces(op, &run->pieces, err));
    return chunks_read_versions(op, &entry, split->shard, &run->versions, err);
}

static void log_split(OpCtx *op, const SplitRun *run) {
    const ChunkSplit *split = run->split;
    const ChunkList *pieces = &run->pieces;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    chunks_build_range(&b, "before", split->min, split->max);
    if (pieces->count == 2) {
        chunks_build_range(&b, "left", pieces->rows[0].min, pieces->rows[0].max);
        chunks_build_range(&b, "right", pieces->rows[1].min, pieces->rows[1].max);
    } else {
        build_i32(&b, "of", (int32_t)pieces->count);
    }
    build_str(&b, "owningShard", split->shard);
    chunk_version_build(&b, "lastmod", &run->versions.collection);
    config_catalog_log(op, pieces->count == 2 ? "split" : "multi-split",
                       arena_strndup(&op->arena, split->ns.data, split->ns.size),
                       doc_builder_end(&b));
}

ErrCode chunk_commit_split(OpCtx *op, const ChunkSplit *split, ChunkVersions *ret_versions,
                           Error *err) {
    if (split->point_count == 0 || split->point_count > SPLIT_POINTS_MAX)
        return error_set(err, ERR_INVALID_OPTIONS, "a split needs 1 to %d points, not %u",
                         SPLIT_POINTS_MAX, split->point_count);
    SplitRun run = {.split = split};
    {
        CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
        TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
        TRY(config_catalog_change(op, "split", split_in_txn, &run, err));
    }
    if (run.pieces.count > 0)
        log_split(op, &run);
    *ret_versions = run.versions;
    return ERR_OK;
}

typedef struct MergeRun {
    const ChunkMerge *merge;
    ChunkVersions versions;
    uint32_t merged_count; /* 0: it was merged already */
} MergeRun;

static ErrCode merge_in_txn(void *arg, OpCtx *op, Error *err) {
    MergeRun *run = arg;
    const ChunkMerge *merge = run->merge;
    run->merged_count = 0;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, merge->ns, &entry, err));
    TRY(collection_entry_check_uuid(&entry, &merge->uuid, err));
    TRY(chunks_check_generation(&entry, merge->has_epoch ? &merge->epoch : NULL, merge->timestamp,
                                err));
    ChunkList chunks;
    TRY(read_range(op, &entry.uuid, merge->min, merge->max, /* limit= */ 0, &chunks, err));
    for (uint32_t i = 0; i < chunks.count; i++)
        if (!str_equal(chunks.rows[i].shard, merge->shard))
            return error_set(err, ERR_ILLEGAL_OPERATION,
                             "could not merge chunks of \"%.*s\": one is on the shard \"%.*s\"",
                             (int)merge->ns.size, merge->ns.data, (int)chunks.rows[i].shard.size,
                             chunks.rows[i].shard.data);
    ChunkVersion newest;
    TRY(chunks_newest(op, &entry, STR(""), &newest, err));
    Chunk merged;
    bool is_done;
    TRY(chunks_merge(entry.key, chunks.rows, chunks.count, merge->min, merge->max, &newest,
                     &op->arena, &merged, &is_done, err));
    if (!is_done) {
        TRY(chunks_delete(op, chunks.rows + 1, chunks.count - 1, err));
        TRY(chunks_replace(op, &merged, err));
        run->merged_count = chunks.count;
    }
    return chunks_read_versions(op, &entry, merge->shard, &run->versions, err);
}

ErrCode chunk_commit_merge(OpCtx *op, const ChunkMerge *merge, ChunkVersions *ret_versions,
                           Error *err) {
    MergeRun run = {.merge = merge};
    {
        CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
        TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
        TRY(config_catalog_change(op, "merge", merge_in_txn, &run, err));
    }
    if (run.merged_count > 0) {
        DocBuilder b = doc_builder_in_arena(&op->arena);
        chunks_build_range(&b, "merged", merge->min, merge->max);
        build_i32(&b, "of", (int32_t)run.merged_count);
        build_str(&b, "owningShard", merge->shard);
        chunk_version_build(&b, "mergedVersion", &run.versions.collection);
        config_catalog_log(op, "merge", arena_strndup(&op->arena, merge->ns.data, merge->ns.size),
                           doc_builder_end(&b));
    }
    *ret_versions = run.versions;
    return ERR_OK;
}
