#include "sharding/config/balancing.h"

#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"
#include "sharding/config/defragmentation.h"

int64_t collection_chunk_bytes(Doc entry, const BalancerSettings *settings) {
    Elem bytes = doc_get_lit(entry, "maxChunkSizeBytes");
    return elem_is_number(bytes) && elem_as_i64(bytes) > 0 ? elem_as_i64(bytes)
                                                           : settings->chunk_bytes;
}

bool collection_is_balanced(Doc entry) {
    return !elem_is_truthy(doc_get_lit(entry, "noBalance")) && collection_allows_moves(entry) &&
           defrag_phase_of(entry) == DEFRAG_NONE;
}

bool collection_is_merged(Doc entry) {
    Elem merges = doc_get_lit(entry, "enableAutoMerge");
    return !elem_is_present(merges) || elem_is_truthy(merges);
}

static ErrCode configure_in_txn(void *arg, OpCtx *op, Error *err) {
    const BalancingChange *change = arg;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, change->ns, &entry, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t set = build_open_doc(&b, "$set");
    if (change->has_chunk_size && change->chunk_mb > 0)
        build_i64(&b, "maxChunkSizeBytes", change->chunk_mb << 20);
    if (change->has_merges)
        build_bool(&b, "enableAutoMerge", change->merges);
    DefragPhase phase = defrag_phase_of(entry.doc);
    bool is_ending = phase == DEFRAG_NONE || phase == DEFRAG_MERGE;
    if (change->has_defragments && change->defragments == is_ending)
        defrag_build_phase(&b, change->defragments ? DEFRAG_MEASURE : DEFRAG_MERGE);
    build_close(&b, set);
    if (change->has_chunk_size && change->chunk_mb == 0) {
        size_t unset = build_open_doc(&b, "$unset");
        build_cstr(&b, "maxChunkSizeBytes", "");
        build_close(&b, unset);
    }
    return own_docs_update(op, &CONFIG_COLLECTIONS_NS, config_filter_str(op, "_id", change->ns),
                           doc_builder_end(&b), err);
}

ErrCode collection_configure_balancing(OpCtx *op, const BalancingChange *change, Error *err) {
    if (change->has_chunk_size && (change->chunk_mb < 0 || change->chunk_mb > CHUNK_MB_MAX))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the chunkSize of a collection has to be 1 to %d megabytes, or 0 for that "
                         "of the cluster",
                         CHUNK_MB_MAX);
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
    return config_catalog_change(op, "balancing", configure_in_txn, (void *)change, err);
}
