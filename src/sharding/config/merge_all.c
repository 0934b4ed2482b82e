#include "sharding/config/merge_all.h"

#include "concurrency/service_ctx.h"
#include "sharding/config/chunks_internal.h"
#include "sharding/config/shards.h"

enum {
    TXN_CHUNKS_MAX = 1000, /* merged in one transaction */
};

/* ---- pure ---- */

static bool may_merge(const Chunk *chunk, uint64_t before) {
    return !chunk->is_jumbo && chunk->since <= before;
}

static bool is_border(Doc bound, const ZoneKeyRange *zones, uint32_t zone_count) {
    for (uint32_t i = 0; i < zone_count; i++)
        if (shard_key_compare(zones[i].min, bound) == 0 ||
            shard_key_compare(zones[i].max, bound) == 0)
            return true;
    return false;
}

uint32_t merge_all_group_end(const Chunk *chunks, uint32_t count, uint32_t first, uint64_t before,
                             const ZoneKeyRange *zones, uint32_t zone_count) {
    uint32_t end = first + 1;
    if (!may_merge(&chunks[first], before))
        return end;
    while (end < count && may_merge(&chunks[end], before) &&
           shard_key_compare(chunks[end - 1].max, chunks[end].min) == 0 &&
           !is_border(chunks[end].min, zones, zone_count))
        end++;
    return end;
}

/* ---- one transaction ---- */

typedef struct Merged {
    Doc min;
    Doc max;
    uint32_t count;
} Merged;

typedef struct MergeRun {
    const MergeAll *merge;
    uint32_t chunks_max; /* of this transaction */
    ChunkVersions versions;
    Merged *groups; /* in the operation's arena */
    uint32_t group_count;
    uint32_t merged_count;
} MergeRun;

static ErrCode read_chunks(OpCtx *op, const Uuid *uuid, Str shard, ChunkList *ret_chunks,
                           Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "uuid", uuid);
    build_str(&b, "shard", shard);
    DocBuilder sort = doc_builder_in_arena(&op->arena);
    build_i32(&sort, "uuid", 1);
    build_i32(&sort, "shard", 1);
    build_i32(&sort, "min", 1);
    DocRows docs;
    TRY(config_catalog_find_all(op, &CONFIG_CHUNKS_NS, doc_builder_end(&b), doc_builder_end(&sort),
                                /* limit= */ 0, &docs, err));
    ChunkList chunks = {.rows = ARENA_ARRAY(&op->arena, Chunk, docs.count), .count = docs.count};
    for (uint32_t i = 0; i < docs.count; i++)
        TRY(chunk_parse(docs.rows[i], &chunks.rows[i], err));
    *ret_chunks = chunks;
    return ERR_OK;
}

static ErrCode merge_group(OpCtx *op, MergeRun *run, const CollectionEntry *entry,
                           const Chunk *chunks, uint32_t count, ChunkVersion *newest, Error *err) {
    Chunk merged;
    bool is_done;
    Doc min = chunks[0].min, max = chunks[count - 1].max;
    TRY(chunks_merge(entry->key, chunks, count, min, max, newest, &op->arena, &merged, &is_done,
                     err));
    chunk_version_set_number(newest, merged.version);
    TRY(chunks_delete(op, chunks + 1, count - 1, err));
    TRY(chunks_replace(op, &merged, err));
    run->groups[run->group_count++] = (Merged){min, max, count};
    run->merged_count += count;
    return ERR_OK;
}

static ErrCode merge_in_txn(void *arg, OpCtx *op, Error *err) {
    MergeRun *run = arg;
    const MergeAll *merge = run->merge;
    run->group_count = run->merged_count = 0;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, merge->ns, &entry, err));
    ZoneRanges zones;
    TRY(zone_ranges_read(op, merge->ns, &zones, err));
    ChunkList chunks;
    TRY(read_chunks(op, &entry.uuid, merge->shard, &chunks, err));
    ChunkVersion newest;
    TRY(chunks_newest(op, &entry, STR(""), &newest, err));
    run->groups = ARENA_ARRAY(&op->arena, Merged, run->chunks_max);
    for (uint32_t i = 0; i < chunks.count && run->merged_count + 2 <= run->chunks_max;) {
        uint32_t end = merge_all_group_end(chunks.rows, chunks.count, i, merge->before, zones.rows,
                                           zones.count);
        uint32_t room = run->chunks_max - run->merged_count;
        uint32_t count = end - i < room ? end - i : room;
        if (count > 1)
            TRY(merge_group(op, run, &entry, chunks.rows + i, count, &newest, err));
        i += count;
    }
    return chunks_read_versions(op, &entry, merge->shard, &run->versions, err);
}

static void log_groups(OpCtx *op, const MergeRun *run) {
    const MergeAll *merge = run->merge;
    for (uint32_t i = 0; i < run->group_count; i++) {
        DocBuilder b = doc_builder_in_arena(&op->arena);
        chunks_build_range(&b, "merged", run->groups[i].min, run->groups[i].max);
        build_i32(&b, "numChunks", (int32_t)run->groups[i].count);
        build_str(&b, "owningShard", merge->shard);
        chunk_version_build(&b, "mergedVersion", &run->versions.collection);
        config_catalog_log(op, "autoMerge",
                           arena_strndup(&op->arena, merge->ns.data, merge->ns.size),
                           doc_builder_end(&b));
    }
}

/* ---- all ---- */

ErrCode chunk_merge_all(OpCtx *op, const MergeAll *merge, ChunkVersions *ret_versions,
                        int64_t *ret_count, Error *err) {
    Doc shard;
    TRY(shard_entry_get(op, merge->shard, &shard, err));
    int64_t left = merge->chunks_max > 0 ? merge->chunks_max : INT64_MAX;
    *ret_count = 0;
    for (;;) {
        ArenaMark mark = arena_mark(&op->arena);
        MergeRun run = {.merge = merge,
                        .chunks_max = left < TXN_CHUNKS_MAX ? (uint32_t)left : TXN_CHUNKS_MAX};
        {
            CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
            TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
            TRY(config_catalog_change(op, "mergeAll", merge_in_txn, &run, err));
        }
        log_groups(op, &run);
        arena_rewind(&op->arena, mark);
        *ret_versions = run.versions;
        *ret_count += run.merged_count;
        left -= run.merged_count;
        if (run.merged_count == 0 || left < 2)
            return ERR_OK;
    }
}
