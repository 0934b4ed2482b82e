#include "sharding/config/chunk_moves.h"

#include "base/failpoint.h"
#include "bson/json.h"
#include "concurrency/service_ctx.h"
#include "sharding/config/chunks_internal.h"
#include "sharding/config/shards.h"

enum {
    HISTORY_S = 300, /* minSnapshotHistoryWindowInSeconds: reads of the past go back so far */
};

ErrCode chunk_find_at(OpCtx *op, const Uuid *uuid, Doc bound, Doc *ret_doc, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "uuid", uuid);
    size_t min = build_open_doc(&b, "min");
    build_doc(&b, "$lte", bound);
    build_close(&b, min);
    DocBuilder sort = doc_builder_in_arena(&op->arena);
    build_i32(&sort, "uuid", -1);
    build_i32(&sort, "min", -1);
    return config_catalog_find_first(op, &CONFIG_CHUNKS_NS, doc_builder_end(&b),
                                     doc_builder_end(&sort), ret_doc, err);
}

typedef struct MoveRun {
    const ChunkMoveCommit *move;
    uint64_t now;
    ChunkVersions versions;
    bool is_done; /* by an earlier request */
} MoveRun;

static ErrCode changed(const MoveRun *run, OpCtx *op, const char *why, Error *err) {
    const ChunkMoveCommit *move = run->move;
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "could not move the range of \"%.*s\" from %s to %s: %s", (int)move->ns.size,
                     move->ns.data, shell_text_of_doc(move->min, &op->arena),
                     shell_text_of_doc(move->max, &op->arena), why);
}

ErrCode chunk_check_recipient(OpCtx *op, Str name, Doc *ret_shard, Error *err) {
    TRY(shard_entry_get(op, name, ret_shard, err));
    if (!elem_is_truthy(doc_get_lit(*ret_shard, "draining")))
        return ERR_OK;
    return error_set(err, ERR_SHARD_NOT_FOUND,
                     "the shard \"%.*s\" is being removed: nothing moves there", (int)name.size,
                     name.data);
}

/* Any other chunk of the donor. */
static ErrCode find_control(OpCtx *op, const Chunk *chunk, Doc *ret_doc, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "uuid", &chunk->uuid);
    build_str(&b, "shard", chunk->shard);
    size_t min = build_open_doc(&b, "min");
    build_doc(&b, "$ne", chunk->min);
    build_close(&b, min);
    return config_catalog_find_first(op, &CONFIG_CHUNKS_NS, doc_builder_end(&b), DOC_NONE, ret_doc,
                                     err);
}

static ErrCode write_move(OpCtx *op, MoveRun *run, const CollectionEntry *entry, const Chunk *chunk,
                          Error *err) {
    const ChunkMoveCommit *move = run->move;
    Doc other;
    Chunk control;
    TRY(find_control(op, chunk, &other, err));
    if (doc_is_present(other))
        TRY(chunk_parse(other, &control, err));
    ChunkVersion newest;
    TRY(chunks_newest(op, entry, STR(""), &newest, err));
    ChunkMove change = {
        .chunk = chunk,
        .min = move->min,
        .max = move->max,
        .to = move->to,
        .control = doc_is_present(other) ? &control : NULL,
        .now = run->now,
        .history_after = run->now - ((uint64_t)HISTORY_S << 32),
    };
    ChunkList chunks;
    TRY(chunk_move(entry->key, &change, &newest, &op->arena, &chunks, err));
    for (uint32_t i = 0; i < chunks.count; i++)
        TRY(chunks_replace(op, &chunks.rows[i], err));
    return ERR_OK;
}

static ErrCode move_in_txn(void *arg, OpCtx *op, Error *err) {
    MoveRun *run = arg;
    const ChunkMoveCommit *move = run->move;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, move->ns, &entry, err));
    TRY(chunks_check_generation(&entry, &move->epoch, move->timestamp, err));
    TRY(shard_key_check_bound(entry.key, move->min, "min", err));
    TRY(shard_key_check_bound(entry.key, move->max, "max", err));
    Doc doc;
    Chunk chunk;
    TRY(chunk_find_at(op, &entry.uuid, move->min, &doc, err));
    if (!doc_is_present(doc))
        return changed(run, op, "there is no such chunk", err);
    TRY(chunk_parse(doc, &chunk, err));
    bool is_inside = shard_key_compare(move->max, chunk.max) <= 0;
    run->is_done = is_inside && str_equal(chunk.shard, move->to);
    if (run->is_done)
        return chunks_read_versions(op, &entry, move->from, &run->versions, err);
    Doc recipient;
    TRY(chunk_check_recipient(op, move->to, &recipient, err));
    if (!collection_allows_moves(entry.doc))
        return changed(run, op, "chunks of the collection must not move at the moment", err);
    if (!is_inside || !str_equal(chunk.shard, move->from) || chunk.version > move->version)
        return changed(run, op, "its chunk was changed meanwhile", err);
    TRY(write_move(op, run, &entry, &chunk, err));
    return chunks_read_versions(op, &entry, move->from, &run->versions, err);
}

ErrCode chunk_commit_move(OpCtx *op, const ChunkMoveCommit *move, ChunkVersions *ret_versions,
                          Error *err) {
    MoveRun run = {.move = move};
    if (FAILPOINT(MIGRATION_COMMIT_VERSION_ERROR))
        return error_set(err, ERR_STALE_EPOCH, "a failpoint finds the collection sharded anew");
    if (FAILPOINT(MIGRATE_COMMIT_NO_CHUNK))
        return error_set(err, ERR_UPDATE_OPERATION_FAILED, "a failpoint does not find the chunk");
    {
        CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
        TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
        /* Before the transaction, and so before its own time: whoever reads at a time after this
         * one has seen everything up to the donor's last write. */
        run.now = service_next_ts(op->service);
        TRY(config_catalog_change(op, "move", move_in_txn, &run, err));
    }
    *ret_versions = run.versions;
    if (run.is_done)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "min", move->min);
    build_doc(&b, "max", move->max);
    build_str(&b, "from", move->from);
    build_str(&b, "to", move->to);
    if (doc_is_present(move->counts))
        build_doc(&b, "counts", move->counts);
    config_catalog_log(op, "moveChunk.commit",
                       arena_strndup(&op->arena, move->ns.data, move->ns.size),
                       doc_builder_end(&b));
    return ERR_OK;
}

/* ---- a commit that comes too late ---- */

typedef struct EnsureRun {
    Str ns;
    const Uuid *uuid;
    Doc min;
    uint64_t version;
} EnsureRun;

static ErrCode ensure_in_txn(void *arg, OpCtx *op, Error *err) {
    const EnsureRun *run = arg;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_read(op, run->ns, &entry, err));
    if (entry.name.size == 0 || !uuid_equal(&entry.uuid, run->uuid))
        return ERR_OK;
    Doc doc;
    Chunk chunk;
    TRY(chunk_find_at(op, run->uuid, run->min, &doc, err));
    if (!doc_is_present(doc))
        return ERR_OK;
    TRY(chunk_parse(doc, &chunk, err));
    if (chunk.version > run->version)
        return ERR_OK;
    ChunkVersion version;
    TRY(chunks_newest(op, &entry, STR(""), &version, err));
    TRY(chunk_version_next_major(&version, &version, err));
    chunk.version = chunk_version_number(&version);
    return chunks_replace(op, &chunk, err);
}

ErrCode chunk_ensure_newer(OpCtx *op, Str ns, const Uuid *uuid, Doc min, uint64_t version,
                           Error *err) {
    EnsureRun run = {ns, uuid, min, version};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
    return config_catalog_change(op, "ensureNewer", ensure_in_txn, &run, err);
}
