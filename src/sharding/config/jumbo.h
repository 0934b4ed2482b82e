/*
 * jumbo.h - the mark of chunks that were too large to be moved (BAL-2).
 */
#pragma once

#include "sharding/config/chunks.h"

/* The chunk that begins at `min`, if the collection is still this one and there is such a chunk.
 * Routers and shards need not know: no version changes. */
ErrCode chunk_mark_jumbo(OpCtx *op, Str ns, const Uuid *uuid, Doc min, Error *err) MUST_CHECK;
/* Of the chunk [min, max); one that has no mark is fine, and stays as it is. The chunk gets the
 * next major version. ERR_STALE_EPOCH: another generation; ERR_BAD_VALUE: no such chunk. */
ErrCode chunk_clear_jumbo(OpCtx *op, Str ns, const Oid *epoch, Doc min, Doc max, Error *err)
    MUST_CHECK;
