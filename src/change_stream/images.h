/*
 * images.h - the whole documents of an event: as they are now, as they were after the change and
 * as they were before it.
 */
#pragma once

#include "change_stream/change.h"
#include "change_stream/event.h"
#include "change_stream/stream_spec.h"
#include "concurrency/op_ctx.h"

/* `row_ts` and `row_index` name the write in the oplog: how pre-images are found. The documents
 * are in the arena. Fails with ERR_NO_MATCHING_DOCUMENT when one is required and not kept. */
ErrCode images_find(OpCtx *op, const StreamSpec *spec, const StreamChange *change, uint64_t row_ts,
                    int64_t row_index, Arena *arena, EventImages *ret_images, Error *err)
    MUST_CHECK;
