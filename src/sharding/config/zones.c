#include "sharding/config/zones.h"

#include "bson/json.h"
#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"
#include "sharding/config/collections.h"
#include "sharding/config/shards.h"

static ErrCode lock_shards(OpCtx *op, OpMutexLock *lock, Error *err) {
    return op_mutex_lock(&op->service->config_catalog->shards, op, lock, err);
}

/* ---- shards of a zone ---- */

static ErrCode update_tags(OpCtx *op, Str shard, const char *operator, Str zone, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, operator, config_filter_str(op, "tags", zone));
    return own_docs_update(op, &CONFIG_SHARDS_NS, config_filter_str(op, "_id", shard),
                           doc_builder_end(&b), err);
}

typedef struct ShardAndZone {
    Str shard;
    Str zone;
} ShardAndZone;

static ErrCode add_shard_in_txn(void *arg, OpCtx *op, Error *err) {
    const ShardAndZone *pair = arg;
    Doc doc;
    TRY(shard_entry_get(op, pair->shard, &doc, err));
    return update_tags(op, pair->shard, "$addToSet", pair->zone, err);
}

ErrCode zone_add_shard(OpCtx *op, Str shard, Str zone, Error *err) {
    if (zone.size == 0)
        return error_set(err, ERR_BAD_VALUE, "a zone needs a name");
    ShardAndZone pair = {.shard = shard, .zone = zone};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(lock_shards(op, &lock, err));
    return config_catalog_change(op, "addToZone", add_shard_in_txn, &pair, err);
}

/* Has the zone ranges, but no shard beside this one? */
static ErrCode check_not_last(OpCtx *op, Str shard, Str zone, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "tags", zone);
    size_t id = build_open_doc(&b, "_id");
    build_str(&b, "$ne", shard);
    build_close(&b, id);
    Doc other, range;
    TRY(config_catalog_find_first(op, &CONFIG_SHARDS_NS, doc_builder_end(&b), DOC_NONE, &other,
                                  err));
    if (doc_is_present(other))
        return ERR_OK;
    TRY(config_catalog_find_first(op, &CONFIG_TAGS_NS, config_filter_str(op, "tag", zone), DOC_NONE,
                                  &range, err));
    if (!doc_is_present(range))
        return ERR_OK;
    return error_set(err, ERR_ZONE_STILL_IN_USE,
                     "the shard \"%.*s\" is the only one of the zone \"%.*s\", which has ranges",
                     (int)shard.size, shard.data, (int)zone.size, zone.data);
}

static Doc zones_of(Doc shard) {
    Elem tags = doc_get_lit(shard, "tags");
    return elem_type(tags) == BT_ARRAY ? elem_doc(tags) : DOC_EMPTY;
}

static bool has_zone(Doc shard, Str zone) {
    DocIter iter = doc_iter(zones_of(shard));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (elem_type(elem) == BT_STRING && str_equal(elem_str(elem), zone))
            return true;
    return false;
}

ErrCode zone_check_needed(OpCtx *op, Doc shard, Error *err) {
    Str name = elem_str(doc_get_lit(shard, "_id"));
    DocIter iter = doc_iter(zones_of(shard));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (elem_type(elem) == BT_STRING)
            TRY(check_not_last(op, name, elem_str(elem), err));
    return ERR_OK;
}

static ErrCode remove_shard_in_txn(void *arg, OpCtx *op, Error *err) {
    const ShardAndZone *pair = arg;
    Doc doc;
    TRY(shard_entry_get(op, pair->shard, &doc, err));
    if (!has_zone(doc, pair->zone))
        return ERR_OK;
    TRY(check_not_last(op, pair->shard, pair->zone, err));
    return update_tags(op, pair->shard, "$pull", pair->zone, err);
}

ErrCode zone_remove_shard(OpCtx *op, Str shard, Str zone, Error *err) {
    ShardAndZone pair = {.shard = shard, .zone = zone};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(lock_shards(op, &lock, err));
    return config_catalog_change(op, "removeFromZone", remove_shard_in_txn, &pair, err);
}

/* ---- ranges of a zone ---- */

/* Bounds of a collection that is not sharded are taken as they are, if they can be compared. */
static ErrCode check_fields(Doc min, Doc max, Error *err) {
    DocIter low_iter = doc_iter(min), high_iter = doc_iter(max);
    bool has_low, has_high;
    for (;;) {
        Elem low, high;
        has_low = doc_iter_next(&low_iter, &low);
        has_high = doc_iter_next(&high_iter, &high);
        if (!has_low || !has_high || !elem_name_is(low, elem_name_str(high)))
            break;
    }
    if (!has_low && !has_high && !doc_is_empty(min))
        return ERR_OK;
    return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                     "the bounds of a range need the same fields, in the same order");
}

static ErrCode complete_bounds(OpCtx *op, ZoneKeyRange *range, Error *err) {
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_read(op, range->ns, &entry, err));
    TRY(check_fields(range->min, range->max, err));
    if (entry.name.size > 0) {
        TRY(shard_key_extend_bound(entry.key, range->min, /* with_max_key= */ false, "min",
                                   &op->arena, &range->min, err));
        TRY(shard_key_extend_bound(entry.key, range->max, /* with_max_key= */ false, "max",
                                   &op->arena, &range->max, err));
    }
    if (shard_key_compare(range->min, range->max) < 0)
        return ERR_OK;
    return error_set(err, ERR_FAILED_TO_PARSE, "the min %s of a range must be below its max %s",
                     shell_text_of_doc(range->min, &op->arena),
                     shell_text_of_doc(range->max, &op->arena));
}

static ErrCode check_zone(OpCtx *op, Str zone, Error *err) {
    Doc shard;
    TRY(config_catalog_find_first(op, &CONFIG_SHARDS_NS, config_filter_str(op, "tags", zone),
                                  DOC_NONE, &shard, err));
    if (doc_is_present(shard))
        return ERR_OK;
    return error_set(err, ERR_ZONE_NOT_FOUND, "no shard has the zone \"%.*s\"", (int)zone.size,
                     zone.data);
}

ErrCode zone_ranges_read(OpCtx *op, Str ns, ZoneRanges *ret_ranges, Error *err) {
    DocBuilder sort = doc_builder_in_arena(&op->arena);
    build_i32(&sort, "ns", 1);
    build_i32(&sort, "min", 1);
    DocRows docs;
    TRY(config_catalog_find_all(op, &CONFIG_TAGS_NS, config_filter_str(op, "ns", ns),
                                doc_builder_end(&sort), /* limit= */ 0, &docs, err));
    ZoneRanges ranges = {.rows = ARENA_ARRAY(&op->arena, ZoneKeyRange, docs.count),
                         .count = docs.count};
    for (uint32_t i = 0; i < docs.count; i++) {
        Elem min = doc_get_lit(docs.rows[i], "min"), max = doc_get_lit(docs.rows[i], "max");
        Elem zone = doc_get_lit(docs.rows[i], "tag");
        if (elem_type(min) != BT_DOC || elem_type(max) != BT_DOC || elem_type(zone) != BT_STRING)
            return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                             "a document of config.tags needs \"min\", \"max\" and \"tag\"");
        ranges.rows[i] = (ZoneKeyRange){ns, elem_doc(min), elem_doc(max), elem_str(zone)};
    }
    *ret_ranges = ranges;
    return ERR_OK;
}

static bool overlaps(const ZoneKeyRange *range, Doc min, Doc max) {
    return shard_key_compare(range->min, max) < 0 && shard_key_compare(min, range->max) < 0;
}

/* *ret_is_there: exactly this range belongs to this zone. */
static ErrCode check_overlaps(OpCtx *op, const ZoneKeyRange *range, bool *ret_is_there,
                              Error *err) {
    *ret_is_there = false;
    ZoneRanges ranges;
    TRY(zone_ranges_read(op, range->ns, &ranges, err));
    for (uint32_t i = 0; i < ranges.count; i++) {
        const ZoneKeyRange *known = &ranges.rows[i];
        if (!overlaps(known, range->min, range->max))
            continue;
        *ret_is_there = shard_key_compare(known->min, range->min) == 0 &&
                        shard_key_compare(known->max, range->max) == 0 &&
                        str_equal(known->zone, range->zone);
        if (!*ret_is_there)
            return error_set(err, ERR_RANGE_OVERLAP_CONFLICT,
                             "the range from %s to %s overlaps one of the zone \"%.*s\"",
                             shell_text_of_doc(range->min, &op->arena),
                             shell_text_of_doc(range->max, &op->arena), (int)known->zone.size,
                             known->zone.data);
    }
    return ERR_OK;
}

static bool shard_has_zone(Doc shard, Str zone) {
    Elem tags = doc_get_lit(shard, "tags");
    if (elem_type(tags) != BT_ARRAY)
        return false;
    DocIter iter = doc_iter(elem_doc(tags));
    for (Elem tag; doc_iter_next(&iter, &tag);)
        if (elem_type(tag) == BT_STRING && str_equal(elem_str(tag), zone))
            return true;
    return false;
}

ErrCode zone_check_shard(OpCtx *op, Str ns, Doc min, Doc max, Doc shard, Error *err) {
    ZoneRanges ranges;
    TRY(zone_ranges_read(op, ns, &ranges, err));
    for (uint32_t i = 0; i < ranges.count; i++) {
        const ZoneKeyRange *range = &ranges.rows[i];
        if (overlaps(range, min, max) && !shard_has_zone(shard, range->zone))
            return error_set(err, ERR_ILLEGAL_OPERATION,
                             "the range from %s to %s has keys of the zone \"%.*s\", which the "
                             "shard is not in",
                             shell_text_of_doc(min, &op->arena), shell_text_of_doc(max, &op->arena),
                             (int)range->zone.size, range->zone.data);
    }
    return ERR_OK;
}

static ErrCode insert_range(OpCtx *op, const ZoneKeyRange *range, Error *err) {
    Oid id = oid_new();
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_oid(&b, "_id", &id);
    build_str(&b, "ns", range->ns);
    build_str(&b, "tag", range->zone);
    build_doc(&b, "min", range->min);
    build_doc(&b, "max", range->max);
    Doc doc = doc_builder_end(&b);
    return own_docs_insert(op, &CONFIG_TAGS_NS, &doc, 1, err);
}

static ErrCode delete_range(OpCtx *op, const ZoneKeyRange *range, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "ns", range->ns);
    const struct {
        const char *name;
        Doc bound;
    } bounds[] = {{"min", range->min}, {"max", range->max}};
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        size_t equal = build_open_doc(&b, bounds[i].name);
        build_doc(&b, "$eq", bounds[i].bound);
        build_close(&b, equal);
    }
    return own_docs_delete(op, &CONFIG_TAGS_NS, doc_builder_end(&b), err);
}

static ErrCode update_range_in_txn(void *arg, OpCtx *op, Error *err) {
    ZoneKeyRange range = *(const ZoneKeyRange *)arg;
    bool is_removal = range.zone.size == 0;
    if (!is_removal)
        TRY(check_zone(op, range.zone, err));
    TRY(complete_bounds(op, &range, err));
    if (is_removal)
        return delete_range(op, &range, err);
    bool is_there;
    TRY(check_overlaps(op, &range, &is_there, err));
    return is_there ? ERR_OK : insert_range(op, &range, err);
}

ErrCode zone_update_key_range(OpCtx *op, const ZoneKeyRange *range, Error *err) {
    Ns ns;
    TRY(ns_parse(range->ns, &ns, err));
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(lock_shards(op, &lock, err));
    /* The collection must not get another name, or shard key, meanwhile. */
    CLEANUP(op_mutex_unlock) OpMutexLock chunks = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &chunks, err));
    return config_catalog_change(op, "zoneRange", update_range_in_txn, (void *)range, err);
}
