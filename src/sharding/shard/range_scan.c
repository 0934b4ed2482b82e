#include "sharding/shard/range_scan.h"

#include "base/clock.h"
#include "sharding/shard/support_index.h"

enum {
    YIELD_US = 10 * 1000,
};

/* Before everything in the index that begins with `bound`: what the index has besides the key is at
 * the lower end of its order. */
static Doc index_bound(const IndexDesc *index, Doc bound, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_all(&b, bound);
    for (uint32_t f = (uint32_t)doc_count(bound); f < index->field_count; f++)
        (void)build_value(&b, index->fields[f].is_descending ? BT_MAX_KEY : BT_MIN_KEY,
                          str_from(index->fields[f].path), 0);
    return doc_builder_end(&b);
}

RangeBounds range_bounds(const IndexDesc *index, const ShardKey *key, Doc min, Doc max,
                         Arena *arena) {
    RangeBounds bounds = {.index = index->name, .min = index_bound(index, min, arena)};
    if (shard_key_compare(max, shard_key_max(key, arena)) != 0)
        bounds.max = index_bound(index, max, arena);
    return bounds;
}

/* A projection of the fields of the key, and nothing else. */
static Doc key_fields(const ShardKey *key, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    bool has_id = false;
    DocIter iter = doc_iter(shard_key_pattern(key));
    for (Elem field; doc_iter_next(&iter, &field);) {
        has_id |= elem_name_is(field, STR("_id"));
        build_i32(&b, elem_name(field), 1);
    }
    if (!has_id)
        build_i32(&b, "_id", 0);
    return doc_builder_end(&b);
}

static ErrCode plan_range(RangeScan *scan, const ShardKey *key, Doc min, Doc max, bool is_of_keys,
                          Error *err) {
    OpCtx *op = scan->access.op;
    const Collection *coll = scan->access.coll;
    const IndexDesc *index = support_index_find(coll, key);
    if (index == NULL)
        return error_set(err, ERR_INDEX_NOT_FOUND, "%s has no index that begins with its shard key",
                         coll->ns.text);
    RangeBounds bounds = range_bounds(index, key, min, max, &op->arena);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "hint", bounds.index);
    QuerySpec spec = {
        .hint = doc_get_lit(doc_builder_end(&b), "hint"),
        .min = bounds.min,
        .max = bounds.max,
        .projection = is_of_keys ? key_fields(key, &op->arena) : DOC_NONE,
        .yields = {.period_us = YIELD_US},
        .now_ms = clock_wall_ms(),
    };
    return plan_query(&scan->access, &spec, &scan->exec, err);
}

static ErrCode open_scan(OpCtx *op, const Ns *ns, const Uuid *uuid, const ShardKey *key, Doc min,
                         Doc max, bool is_of_keys, RangeScan *ret_scan, Error *err) {
    TRY(access_read(op, ns, &ret_scan->access, err));
    const Collection *coll = ret_scan->access.coll;
    ErrCode rc = ERR_OK;
    if (coll == NULL || !uuid_equal(&coll->uuid, uuid))
        rc = error_set(err, ERR_NAMESPACE_NOT_FOUND, "the collection %s was dropped", ns->text);
    else
        rc = plan_range(ret_scan, key, min, max, is_of_keys, err);
    if (rc != ERR_OK)
        range_scan_done(ret_scan);
    return rc;
}

ErrCode range_scan_open(OpCtx *op, const Ns *ns, const Uuid *uuid, const ShardKey *key, Doc min,
                        Doc max, RangeScan *ret_scan, Error *err) {
    return open_scan(op, ns, uuid, key, min, max, /* is_of_keys= */ false, ret_scan, err);
}

ErrCode range_scan_open_keys(OpCtx *op, const Ns *ns, const Uuid *uuid, const ShardKey *key,
                             Doc min, Doc max, RangeScan *ret_scan, Error *err) {
    return open_scan(op, ns, uuid, key, min, max, /* is_of_keys= */ true, ret_scan, err);
}

ErrCode range_scan_next(RangeScan *scan, bool *ret_found, Doc *ret_doc, Error *err) {
    PlanRow row;
    TRY(executor_next(scan->exec, ret_found, &row, err));
    if (*ret_found)
        *ret_doc = row.doc;
    return ERR_OK;
}

void range_scan_done(RangeScan *scan) {
    executor_free(scan->exec);
    access_done(&scan->access);
    *scan = (RangeScan){0};
}

void range_keys_init(RangeKeys *keys, const ShardKey *key, Doc min, Doc max) {
    keys->key = key;
    key_builder_init(&keys->min);
    key_builder_init(&keys->max);
    key_builder_init(&keys->probe);
    shard_key_encode(min, &keys->min);
    shard_key_encode(max, &keys->max);
    CLEANUP(arena_done) Arena arena = {0};
    keys->is_last = shard_key_compare(max, shard_key_max(key, &arena)) == 0;
}

void range_keys_done(RangeKeys *keys) {
    key_builder_done(&keys->min);
    key_builder_done(&keys->max);
    key_builder_done(&keys->probe);
}

static int compare_keys(const KeyBuilder *a, const KeyBuilder *b) {
    return str_compare((Str){(const char *)a->key.data, a->key.size},
                       (Str){(const char *)b->key.data, b->key.size});
}

bool range_has_doc(RangeKeys *keys, Doc doc) {
    if (!shard_key_of_doc(keys->key, doc, &keys->probe))
        return false;
    return compare_keys(&keys->min, &keys->probe) <= 0 &&
           (keys->is_last || compare_keys(&keys->probe, &keys->max) < 0);
}
