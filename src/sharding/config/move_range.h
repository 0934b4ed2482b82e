/*
 * move_range.h - a range is to go to another shard: whose it is, and asking that one.
 */
#pragma once

#include "sharding/config/config_catalog.h"

typedef struct RangeMove {
    Ns ns;
    const Uuid *uuid; /* of the collection, ERR_INVALID_UUID if it has another one; NULL: any */
    Str to;
    Doc min; /* DOC_NONE: not given; one of both is */
    Doc max;
    bool waits_for_delete;
    bool is_throttled;
    Doc throttle; /* each batch waits for this write concern; DOC_NONE: for two members */
    int64_t force_jumbo;
} RangeMove;

/* Returns when it has moved. ERR_NAMESPACE_NOT_SHARDED, ERR_SHARD_NOT_FOUND, ERR_ILLEGAL_OPERATION
 * (a zone does not allow it), and what the owner answers. One that is there already is fine. */
ErrCode config_move_range(OpCtx *op, const RangeMove *move, Error *err) MUST_CHECK;
