/*
 * range_writer.h - writes documents of a range that this shard receives. One that is here already
 * is replaced, if it is in the range: so everything may be repeated.
 *
 * Threading: one thread, that of its operation, whose mode says that documents move.
 */
#pragma once

#include "index/collection_write.h"
#include "sharding/migration/move.h"
#include "sharding/shard/range_scan.h"

typedef struct RangeWriter {
    OpCtx *op;
    const Move *move;
    RangeKeys keys;
    WriteScratch scratch;
    Arena arena;  /* of one document */
    int64_t more; /* documents than there were, by _put */
} RangeWriter;

void range_writer_init(RangeWriter *writer, OpCtx *op, const Move *move);
void range_writer_done(RangeWriter *writer);

/* Documents that are new here, all in one unit; one by one where some are not. */
ErrCode range_writer_insert(RangeWriter *writer, const Doc *docs, uint32_t count, Error *err)
    MUST_CHECK;
/* What the document with that _id is now; DOC_NONE: there is none. */
ErrCode range_writer_put(RangeWriter *writer, Elem id, Doc doc, Error *err) MUST_CHECK;
