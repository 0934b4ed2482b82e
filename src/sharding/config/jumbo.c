#include "sharding/config/jumbo.h"

#include "bson/json.h"
#include "concurrency/service_ctx.h"
#include "sharding/config/chunk_moves.h"
#include "sharding/config/chunks_internal.h"

typedef struct JumboRun {
    Str ns;
    const Uuid *uuid; /* to mark: of this collection */
    const Oid *epoch; /* to clear: of this generation */
    Doc min;
    Doc max;
} JumboRun;

static ErrCode mark_in_txn(void *arg, OpCtx *op, Error *err) {
    const JumboRun *run = arg;
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
    if (chunk.is_jumbo || shard_key_compare(chunk.min, run->min) != 0)
        return ERR_OK;
    chunk.is_jumbo = true;
    return chunks_replace(op, &chunk, err);
}

static ErrCode clear_in_txn(void *arg, OpCtx *op, Error *err) {
    const JumboRun *run = arg;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, run->ns, &entry, err));
    TRY(chunks_check_generation(&entry, run->epoch, /* timestamp= */ 0, err));
    TRY(shard_key_check_bound(entry.key, run->min, "min", err));
    TRY(shard_key_check_bound(entry.key, run->max, "max", err));
    Doc doc;
    TRY(chunk_find_at(op, &entry.uuid, run->min, &doc, err));
    Chunk chunk = {0};
    if (doc_is_present(doc))
        TRY(chunk_parse(doc, &chunk, err));
    if (!doc_is_present(doc) || shard_key_compare(chunk.min, run->min) != 0 ||
        shard_key_compare(chunk.max, run->max) != 0)
        return error_set(err, ERR_BAD_VALUE, "\"%.*s\" has no chunk from %s to %s",
                         (int)run->ns.size, run->ns.data, shell_text_of_doc(run->min, &op->arena),
                         shell_text_of_doc(run->max, &op->arena));
    if (!chunk.is_jumbo)
        return ERR_OK;
    ChunkVersion version;
    TRY(chunks_newest(op, &entry, STR(""), &version, err));
    TRY(chunk_version_next_major(&version, &version, err));
    chunk.version = chunk_version_number(&version);
    chunk.is_jumbo = false;
    return chunks_replace(op, &chunk, err);
}

static ErrCode change(OpCtx *op, const char *name, InternalTxnBody body, JumboRun *run,
                      Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
    return config_catalog_change(op, name, body, run, err);
}

ErrCode chunk_mark_jumbo(OpCtx *op, Str ns, const Uuid *uuid, Doc min, Error *err) {
    JumboRun run = {.ns = ns, .uuid = uuid, .min = min};
    return change(op, "markJumbo", mark_in_txn, &run, err);
}

ErrCode chunk_clear_jumbo(OpCtx *op, Str ns, const Oid *epoch, Doc min, Doc max, Error *err) {
    JumboRun run = {.ns = ns, .epoch = epoch, .min = min, .max = max};
    return change(op, "clearJumbo", clear_in_txn, &run, err);
}
