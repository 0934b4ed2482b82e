#include "sharding/meta/chunk_change.h"

#include "bson/json.h"
#include "sharding/meta/name_table.h"

enum {
    INITIAL_CHUNKS_MAX = 1000000,
    INITIAL_CHUNKS_PER_SHARD_MAX = 8192,
};

/* First chunks, growing. */
typedef struct FirstList {
    const FirstChunks *first;
    Arena *arena;
    ChunkList list;
    uint32_t capacity;
    Doc end; /* of the last chunk */
} FirstList;

static ErrCode check_first(const FirstChunks *first, Error *err);
static ErrCode cover_zones(FirstList *out, Error *err);
static ErrCode check_presplit(const FirstChunks *first, Arena *arena, Error *err);
static void cover_hashed(FirstList *out);

/* ---- first chunks ---- */

/* Which field is hashed; the number of fields if none is. */
static uint32_t hashed_field(const ShardKey *key) {
    uint32_t count, f = 0;
    const ShardKeyField *fields = shard_key_fields(key, &count);
    while (f < count && !fields[f].is_hashed)
        f++;
    return f;
}

static void add_chunk(FirstList *out, Doc max, Str shard) {
    const FirstChunks *first = out->first;
    if (out->list.count == out->capacity) {
        out->capacity = out->capacity == 0 ? 16 : out->capacity * 2;
        Chunk *rows = ARENA_ARRAY(out->arena, Chunk, out->capacity);
        if (out->list.count > 0)
            memcpy(rows, out->list.rows, out->list.count * sizeof(*rows));
        out->list.rows = rows;
    }
    ChunkVersion version = {.major = 1, .minor = out->list.count};
    Str name = {arena_strndup(out->arena, shard.data, shard.size), shard.size};
    out->list.rows[out->list.count++] = (Chunk){
        .id = oid_new(),
        .uuid = first->uuid,
        .min = out->end,
        .max = max,
        .shard = name,
        .version = chunk_version_number(&version),
        .since = first->now,
        .history = chunk_history_of(first->now, name, out->arena),
    };
    out->end = max;
}

ErrCode chunks_first(const FirstChunks *first, Arena *arena, ChunkList *ret_chunks, Error *err) {
    TRY(check_first(first, err));
    FirstList out = {
        .first = first,
        .arena = arena,
        .end = shard_key_min(first->key, arena),
    };
    bool is_hashed_first = hashed_field(first->key) == 0;
    if (first->is_empty && first->zone_count > 0)
        TRY(cover_zones(&out, err));
    else if (first->is_empty && is_hashed_first)
        cover_hashed(&out);
    else
        add_chunk(&out, shard_key_max(first->key, arena), first->primary_shard);
    *ret_chunks = out.list;
    return ERR_OK;
}

static ErrCode check_first(const FirstChunks *first, Error *err) {
    if (first->shard_count == 0)
        return error_set(err, ERR_ILLEGAL_OPERATION, "there is no shard for the chunks");
    if (first->presplit_hashed_zones &&
        (!first->is_empty || first->zone_count == 0 || !shard_key_has_hashed(first->key)))
        return error_set(err, ERR_PRESPLIT_NEEDS_ZONES,
                         "presplitHashedZones needs an empty collection with zones and a hashed "
                         "field in its shard key");
    if (first->initial_count == 0)
        return ERR_OK;
    bool is_hashed_first = hashed_field(first->key) == 0;
    if (!first->is_empty || (!is_hashed_first && !first->presplit_hashed_zones))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "numInitialChunks needs an empty collection and a shard key that begins "
                         "with a hashed field, or presplitHashedZones");
    uint64_t most = (uint64_t)first->shard_count * INITIAL_CHUNKS_PER_SHARD_MAX;
    if (most > INITIAL_CHUNKS_MAX)
        most = INITIAL_CHUNKS_MAX;
    if (first->initial_count > most)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "numInitialChunks is %u, more than %d per shard or %d in all",
                         first->initial_count, INITIAL_CHUNKS_PER_SHARD_MAX, INITIAL_CHUNKS_MAX);
    return ERR_OK;
}

/* The i-th of the points (0 < i < count) that cut the hashes into `count` parts: symmetrical around
 * 0, and a little short of the ends, as clients know them. */
static int64_t hash_point(uint32_t i, uint32_t count) {
    int64_t step = INT64_MAX / count * 2;
    int64_t from_middle = 2 * (int64_t)i - count; /* in half steps */
    return from_middle % 2 == 0 ? from_middle / 2 * step
                                : (from_middle - (from_middle > 0 ? 1 : -1)) / 2 * step +
                                      (from_middle > 0 ? step / 2 : -(step / 2));
}

/* {<fields before the hashed one as in `prefix`>, hashed: hash, rest: MinKey} */
static Doc hash_bound(const ShardKey *key, Doc prefix, int64_t hash, Arena *arena) {
    uint32_t count, hashed = hashed_field(key);
    const ShardKeyField *fields = shard_key_fields(key, &count);
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(prefix);
    Elem elem;
    for (uint32_t f = 0; f < hashed && doc_iter_next(&iter, &elem); f++)
        build_elem(&b, elem);
    memcpy(build_value(&b, BT_INT64, fields[hashed].path, sizeof(hash)), &hash, sizeof(hash));
    for (uint32_t f = hashed + 1; f < count; f++)
        build_value(&b, BT_MIN_KEY, fields[f].path, 0);
    return doc_builder_end(&b);
}

/* Neighbours go to the same shard, as far as they are even. */
static void cover_hashed(FirstList *out) {
    const FirstChunks *first = out->first;
    uint32_t count = first->initial_count > 0 ? first->initial_count
                                              : first->shard_count * INITIAL_CHUNKS_PER_SHARD;
    for (uint32_t i = 1; i <= count; i++) {
        Doc max = i < count ? hash_bound(first->key, DOC_EMPTY, hash_point(i, count), out->arena)
                            : shard_key_max(first->key, out->arena);
        add_chunk(out, max, first->shards[(uint64_t)(i - 1) * first->shard_count / count]);
    }
}

/* How many chunks of each zone range each of its shards gets when zones are split in advance. */
typedef struct Presplit {
    NameTable shards;
    uint32_t *range_counts; /* per shard: how many ranges it takes part in */
    uint32_t chunks_per_shard;
} Presplit;

static void presplit_done(Presplit *plan) {
    name_table_done(&plan->shards);
}

static void plan_presplit(const FirstChunks *first, Arena *arena, Presplit *plan) {
    for (uint32_t z = 0; z < first->zone_count; z++)
        for (uint32_t s = 0; s < first->zones[z].shard_count; s++)
            name_table_add(&plan->shards, first->zones[z].shards[s]);
    plan->range_counts = ARENA_ARRAY(arena, uint32_t, plan->shards.count);
    for (uint32_t z = 0; z < first->zone_count; z++)
        for (uint32_t s = 0; s < first->zones[z].shard_count; s++)
            plan->range_counts[name_table_add(&plan->shards, first->zones[z].shards[s])]++;
    uint32_t shard_count = plan->shards.count;
    uint32_t total =
        first->initial_count > 0 ? first->initial_count : shard_count * INITIAL_CHUNKS_PER_SHARD;
    plan->chunks_per_shard = (total + shard_count - 1) / shard_count;
}

static uint32_t presplit_count(Presplit *plan, Str shard) {
    uint32_t range_count = plan->range_counts[name_table_add(&plan->shards, shard)];
    return (plan->chunks_per_shard + range_count - 1) / range_count;
}

/* One range in chunks of equal parts of the hashes, some for each of its shards. */
static void cover_presplit(FirstList *out, const ZoneRange *zone, Presplit *plan) {
    uint32_t total = 0, done = 0;
    for (uint32_t s = 0; s < zone->shard_count; s++)
        total += presplit_count(plan, zone->shards[s]);
    for (uint32_t s = 0; s < zone->shard_count; s++) {
        uint32_t end = done + presplit_count(plan, zone->shards[s]);
        while (done++ < end) {
            Doc max = zone->max;
            if (done < total)
                max = hash_bound(out->first->key, zone->min, hash_point(done, total), out->arena);
            add_chunk(out, max, zone->shards[s]);
        }
        done = end;
    }
}

static ErrCode check_zones(const FirstChunks *first, Error *err) {
    for (uint32_t z = 0; z < first->zone_count; z++) {
        const ZoneRange *zone = &first->zones[z];
        TRY(shard_key_check_bound(first->key, zone->min, "the min of a zone", err));
        TRY(shard_key_check_bound(first->key, zone->max, "the max of a zone", err));
        if (shard_key_compare(zone->min, zone->max) >= 0)
            return error_set(err, ERR_INVALID_OPTIONS, "a zone must have its min below its max");
        if (z > 0 && shard_key_compare(zone[-1].max, zone->min) > 0)
            return error_set(err, ERR_INVALID_OPTIONS, "the ranges of zones overlap");
        if (zone->shard_count == 0)
            return error_set(err, ERR_ZONE_HAS_NO_SHARD, "zone \"%.*s\" has no shard",
                             (int)zone->zone.size, zone->zone.data);
    }
    return ERR_OK;
}

/* A chunk for each zone range, or several, and one for each hole. The ranges of a zone go to its
 * shards in turn, holes to all shards in turn. */
static ErrCode cover_zones(FirstList *out, Error *err) {
    const FirstChunks *first = out->first;
    TRY(check_zones(first, err));
    CLEANUP(presplit_done) Presplit plan = {0};
    if (first->presplit_hashed_zones) {
        TRY(check_presplit(first, out->arena, err));
        plan_presplit(first, out->arena, &plan);
    }
    CLEANUP(name_table_done) NameTable zones = {0};
    uint32_t *turns = ARENA_ARRAY(out->arena, uint32_t, first->zone_count);
    uint32_t hole_turn = 0;
    for (uint32_t z = 0; z <= first->zone_count; z++) {
        const ZoneRange *zone = z < first->zone_count ? &first->zones[z] : NULL;
        Doc next = zone != NULL ? zone->min : shard_key_max(first->key, out->arena);
        if (shard_key_compare(out->end, next) < 0)
            add_chunk(out, next, first->shards[hole_turn++ % first->shard_count]);
        if (zone != NULL && first->presplit_hashed_zones)
            cover_presplit(out, zone, &plan);
        else if (zone != NULL)
            add_chunk(
                out, zone->max,
                zone->shards[turns[name_table_add(&zones, zone->zone)]++ % zone->shard_count]);
    }
    return ERR_OK;
}

/* Ranges can be cut by hashes where they are all hashes of some values in front: those must differ,
 * and from the hashed field on there must be MinKeys. A key that begins with the hash needs one
 * zone for everything. */
static ErrCode check_presplit(const FirstChunks *first, Arena *arena, Error *err) {
    uint32_t hashed = hashed_field(first->key);
    if (hashed == 0) {
        const ZoneRange *zone = &first->zones[0];
        if (first->zone_count != 1 ||
            shard_key_compare(zone->min, shard_key_min(first->key, arena)) != 0 ||
            shard_key_compare(zone->max, shard_key_max(first->key, arena)) != 0)
            return error_set(err, ERR_PRESPLIT_NEEDS_ONE_ZONE,
                             "presplitHashedZones with a shard key that begins with a hashed field "
                             "needs one zone from all MinKey to all MaxKey");
        return ERR_OK;
    }
    for (uint32_t z = 0; z < first->zone_count; z++) {
        const Doc bounds[] = {first->zones[z].min, first->zones[z].max};
        bool is_fine = true, is_prefix_same = true;
        DocIter iters[] = {doc_iter(bounds[0]), doc_iter(bounds[1])};
        Elem low, high;
        for (uint32_t f = 0; doc_iter_next(&iters[0], &low) && doc_iter_next(&iters[1], &high);
             f++) {
            if (f < hashed)
                is_prefix_same &= elem_compare(low, high, NULL) == 0;
            else
                is_fine &= elem_type(low) == BT_MIN_KEY && elem_type(high) == BT_MIN_KEY;
        }
        if (is_prefix_same || !is_fine)
            return error_set(err, ERR_PRESPLIT_ZONE_BOUNDS,
                             "presplitHashedZones needs zones with different values in front of "
                             "the hashed field and MinKey from there on, not %s to %s",
                             shell_text_of_doc(bounds[0], arena),
                             shell_text_of_doc(bounds[1], arena));
    }
    return ERR_OK;
}

/* ---- splits ---- */

ErrCode chunk_split(const ShardKey *key, const Chunk *chunk, const Doc *points, uint32_t count,
                    const ChunkVersion *newest, Arena *arena, ChunkList *ret_pieces, Error *err) {
    if (count == 0 || count > SPLIT_POINTS_MAX)
        return error_set(err, ERR_INVALID_OPTIONS, "a split needs 1 to %d points, not %u",
                         SPLIT_POINTS_MAX, count);
    ChunkList pieces = {.rows = ARENA_ARRAY(arena, Chunk, count + 1)};
    ChunkVersion version = *newest;
    Doc min = doc_copy(chunk->min, arena), max = doc_copy(chunk->max, arena);
    Str shard = {arena_strndup(arena, chunk->shard.data, chunk->shard.size), chunk->shard.size};
    Doc history = doc_is_present(chunk->history) ? doc_copy(chunk->history, arena) : DOC_NONE;
    for (uint32_t i = 0; i <= count; i++) {
        Doc end = max;
        if (i < count) {
            TRY(shard_key_check_bound(key, points[i], "split point", err));
            end = doc_copy(points[i], arena);
        }
        if (shard_key_compare(min, end) >= 0)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "split points must rise and lie inside of the chunk: %s is not below "
                             "%s",
                             shell_text_of_doc(min, arena), shell_text_of_doc(end, arena));
        TRY(chunk_version_next_minor(&version, &version, err));
        pieces.rows[pieces.count++] = (Chunk){
            .id = i == 0 ? chunk->id : oid_new(),
            .uuid = chunk->uuid,
            .min = min,
            .max = end,
            .shard = shard,
            .version = chunk_version_number(&version),
            .since = chunk->since,
            .history = history,
        };
        min = end;
    }
    *ret_pieces = pieces;
    return ERR_OK;
}

/* ---- merges ---- */

static ErrCode cannot_merge(const char *why, Doc min, Doc max, Error *err) {
    CLEANUP(arena_done) Arena arena = {0};
    return error_set(err, ERR_ILLEGAL_OPERATION, "could not merge the chunks from %s to %s: %s",
                     shell_text_of_doc(min, &arena), shell_text_of_doc(max, &arena), why);
}

ErrCode chunks_merge(const ShardKey *key, const Chunk *chunks, uint32_t count, Doc min, Doc max,
                     const ChunkVersion *newest, Arena *arena, Chunk *ret_merged, bool *ret_is_done,
                     Error *err) {
    TRY(shard_key_check_bound(key, min, "min", err));
    TRY(shard_key_check_bound(key, max, "max", err));
    if (shard_key_compare(min, max) >= 0)
        return cannot_merge("min is not below max", min, max, err);
    if (count == 0)
        return cannot_merge("there are none", min, max, err);
    Doc end = min;
    uint64_t since = 0;
    bool is_jumbo = false;
    for (uint32_t i = 0; i < count; i++) {
        if (shard_key_compare(chunks[i].min, end) != 0)
            return cannot_merge("they do not begin there, or have a hole", min, max, err);
        if (!str_equal(chunks[i].shard, chunks[0].shard))
            return cannot_merge("they are on several shards", min, max, err);
        end = chunks[i].max;
        since = chunks[i].since > since ? chunks[i].since : since;
        is_jumbo |= chunks[i].is_jumbo;
    }
    if (shard_key_compare(end, max) != 0)
        return cannot_merge("they do not end there", min, max, err);
    *ret_is_done = count == 1;
    if (count == 1) {
        *ret_merged = chunks[0];
        return ERR_OK;
    }
    ChunkVersion version;
    TRY(chunk_version_next_minor(newest, &version, err));
    Str shard = {arena_strndup(arena, chunks[0].shard.data, chunks[0].shard.size),
                 chunks[0].shard.size};
    *ret_merged = (Chunk){
        .id = chunks[0].id,
        .uuid = chunks[0].uuid,
        .min = doc_copy(chunks[0].min, arena),
        .max = doc_copy(end, arena),
        .shard = shard,
        .version = chunk_version_number(&version),
        .since = since,
        .history = since != 0 ? chunk_history_of(since, shard, arena) : DOC_NONE,
        .is_jumbo = is_jumbo,
    };
    return ERR_OK;
}

/* ---- moves ---- */

/* The new owner in front of the history so far, of which the first entry at or before `after` is
 * the last one that a read in the past can need. */
static Doc moved_history(const ChunkMove *move, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    char name[INDEX_NAME_SIZE];
    uint32_t count = 0;
    size_t first = build_open_doc_str(&b, index_name(count++, name));
    build_timestamp(&b, "validAfter", move->now);
    build_str(&b, "shard", move->to);
    build_close(&b, first);
    if (!doc_is_present(move->chunk->history))
        return doc_builder_end(&b);
    DocIter iter = doc_iter(move->chunk->history);
    for (Elem row; doc_iter_next(&iter, &row);) {
        build_elem_as(&b, index_name(count++, name), row);
        Elem since = doc_get_lit(elem_doc(row), "validAfter");
        if ((uint64_t)elem_i64(since) <= move->history_after)
            break;
    }
    return doc_builder_end(&b);
}

static ErrCode add_moved(ChunkList *list, const Chunk *model, Doc min, Doc max, bool is_new,
                         ChunkVersion *version, Arena *arena, Error *err) {
    Chunk *chunk = &list->rows[list->count];
    *chunk = *model;
    if (is_new)
        chunk->id = oid_new();
    chunk->min = doc_copy(min, arena);
    chunk->max = doc_copy(max, arena);
    chunk->shard.data = arena_strndup(arena, model->shard.data, model->shard.size);
    if (doc_is_present(model->history))
        chunk->history = doc_copy(model->history, arena);
    /* The first one has the new major as it is. */
    if (list->count > 0)
        TRY(chunk_version_next_minor(version, version, err));
    chunk->version = chunk_version_number(version);
    list->count++;
    return ERR_OK;
}

ErrCode chunk_move(const ShardKey *key, const ChunkMove *move, const ChunkVersion *newest,
                   Arena *arena, ChunkList *ret_chunks, Error *err) {
    const Chunk *chunk = move->chunk;
    TRY(shard_key_check_bound(key, move->min, "min", err));
    TRY(shard_key_check_bound(key, move->max, "max", err));
    int left = shard_key_compare(chunk->min, move->min);
    int right = shard_key_compare(move->max, chunk->max);
    if (left > 0 || right > 0 || shard_key_compare(move->min, move->max) >= 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the range from %s to %s is not inside of the chunk from %s to %s",
                         shell_text_of_doc(move->min, arena), shell_text_of_doc(move->max, arena),
                         shell_text_of_doc(chunk->min, arena),
                         shell_text_of_doc(chunk->max, arena));
    if (move->now <= chunk->since)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "the chunk from %s has been on its shard since a later time than now",
                         shell_text_of_doc(chunk->min, arena));
    ChunkList list = {.rows = ARENA_ARRAY(arena, Chunk, 4)};
    ChunkVersion version;
    TRY(chunk_version_next_major(newest, &version, err));
    Chunk moved = *chunk;
    moved.shard = move->to;
    moved.since = move->now;
    moved.history = moved_history(move, arena);
    moved.is_jumbo = false;
    TRY(add_moved(&list, &moved, move->min, move->max, /* is_new= */ left < 0, &version, arena,
                  err));
    if (left < 0)
        TRY(add_moved(&list, chunk, chunk->min, move->min, /* is_new= */ false, &version, arena,
                      err));
    if (right < 0)
        TRY(add_moved(&list, chunk, move->max, chunk->max, /* is_new= */ true, &version, arena,
                      err));
    if (list.count == 1 && move->control != NULL)
        TRY(add_moved(&list, move->control, move->control->min, move->control->max,
                      /* is_new= */ false, &version, arena, err));
    *ret_chunks = list;
    return ERR_OK;
}
