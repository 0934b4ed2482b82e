/*
 * range_scan.h - the documents of a range of shard keys, in the order of an index that begins with
 * the key. Without an ownership filter: also those that this shard does not own.
 */
#pragma once

#include "catalog/access.h"
#include "query/plan/planner.h"
#include "sharding/meta/shard_key.h"

/* The bounds that a find by `index` has for [min, max) of the key: values of all fields of the
 * index. `max` is DOC_NONE for a range that ends at MaxKey, which is a value that documents may
 * have: the last range has no upper end. */
typedef struct RangeBounds {
    const char *index; /* its name: the hint */
    Doc min;
    Doc max;
} RangeBounds;
RangeBounds range_bounds(const IndexDesc *index, const ShardKey *key, Doc min, Doc max,
                         Arena *arena);

typedef struct RangeScan {
    CollAccess access;
    PlanExecutor *exec;
} RangeScan;

/* Reads by the read source that is set; yields now and then. ERR_NAMESPACE_NOT_FOUND: there is no
 * such collection, or the name is another one's by now. ERR_INDEX_NOT_FOUND: none supports it. */
ErrCode range_scan_open(OpCtx *op, const Ns *ns, const Uuid *uuid, const ShardKey *key, Doc min,
                        Doc max, RangeScan *ret_scan, Error *err) MUST_CHECK;
/* The same, but documents have the fields of the key alone: read out of the index, where that has
 * their values, which is much faster. */
ErrCode range_scan_open_keys(OpCtx *op, const Ns *ns, const Uuid *uuid, const ShardKey *key,
                             Doc min, Doc max, RangeScan *ret_scan, Error *err) MUST_CHECK;
/* The document is valid until the next call. */
ErrCode range_scan_next(RangeScan *scan, bool *ret_found, Doc *ret_doc, Error *err) MUST_CHECK;
void range_scan_done(RangeScan *scan);

/* Is the key of the document in [min, max)? One without a key is not. */
typedef struct RangeKeys {
    const ShardKey *key;
    bool is_last; /* it ends at MaxKey, which belongs to it */
    KeyBuilder min;
    KeyBuilder max;
    KeyBuilder probe;
} RangeKeys;
void range_keys_init(RangeKeys *keys, const ShardKey *key, Doc min, Doc max);
void range_keys_done(RangeKeys *keys);
bool range_has_doc(RangeKeys *keys, Doc doc);
