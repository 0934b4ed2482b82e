/*
 * zones.h - names for groups of shards, and the ranges of shard keys that belong there (BAL-3):
 * config.shards.tags, config.tags.
 */
#pragma once

#include "sharding/config/config_catalog.h"

/* Both: ERR_SHARD_NOT_FOUND. The last shard of a zone that has ranges cannot leave it:
 * ERR_ZONE_STILL_IN_USE. */
ErrCode zone_add_shard(OpCtx *op, Str shard, Str zone, Error *err) MUST_CHECK;
ErrCode zone_remove_shard(OpCtx *op, Str shard, Str zone, Error *err) MUST_CHECK;
/* ERR_ZONE_STILL_IN_USE if one of the shard's zones has ranges, and no other shard. */
ErrCode zone_check_needed(OpCtx *op, Doc shard, Error *err) MUST_CHECK;

typedef struct ZoneKeyRange {
    Str ns;
    Doc min;
    Doc max;
    Str zone; /* empty: the range belongs to no zone any more */
} ZoneKeyRange;

/* Of a sharded collection the bounds are prefixes of the shard key, completed with MinKey
 * (ERR_SHARD_KEY_NOT_FOUND). ERR_ZONE_NOT_FOUND: no shard has the zone. ERR_RANGE_OVERLAP_CONFLICT:
 * a part of it belongs to a zone already. */
ErrCode zone_update_key_range(OpCtx *op, const ZoneKeyRange *range, Error *err) MUST_CHECK;

typedef struct ZoneRanges {
    ZoneKeyRange *rows; /* in the operation's arena, sorted, not overlapping */
    uint32_t count;
} ZoneRanges;
/* Of a collection. */
ErrCode zone_ranges_read(OpCtx *op, Str ns, ZoneRanges *ret_ranges, Error *err) MUST_CHECK;
/* `shard` (its document) is in every zone that has keys of [min, max), ERR_ILLEGAL_OPERATION
 * otherwise. */
ErrCode zone_check_shard(OpCtx *op, Str ns, Doc min, Doc max, Doc shard, Error *err) MUST_CHECK;
