/*
 * unit.h - a unit of work of several entries (catalog/write_group.h), read back from the own oplog.
 *
 * The last entry represents the whole. Its earlier entries precede it in the oplog of every member
 * that has it: they are fetched in order, an initial sync begins no later than the first of them,
 * and trimming stops before a unit that is still needed. They are read one at a time, since a unit
 * may be too large to be in memory as a whole.
 *
 * The node's oplog is looked up by name: callers have no Oplog object.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "bson/optime.h"
#include "concurrency/op_ctx.h"

typedef struct OplogUnit {
    Doc last;
    uint64_t *times; /* of the entries before the last one, oldest first; in the arena */
    size_t count;    /* of all entries, the last one included */
} OplogUnit;

/* Finds the entries of the unit that `last` ends (ENTRY_LAST). Fails with ERR_FAILED_TO_PARSE when
 * they do not add up to what it says, ERR_OPLOG_START_MISSING when one is not there. */
ErrCode oplog_unit_find(OpCtx *op, Doc last, OplogUnit *ret_unit, Error *err) MUST_CHECK;
/* Entry `i` of it, in the operation's arena. */
ErrCode oplog_unit_read(OpCtx *op, const OplogUnit *unit, size_t i, Doc *ret_entry, Error *err)
    MUST_CHECK;

/* The entry of that time, in the operation's arena; DOC_NONE: there is none. */
ErrCode oplog_entry_read(OpCtx *op, uint64_t ts, Doc *ret_entry, Error *err) MUST_CHECK;

/* For a unit that is incomplete at `ts`: the timestamp of its first entry; `ts` itself if no unit
 * extends beyond it. Entries of a unit are consecutive, so the newest entry up to `ts` decides. */
ErrCode oplog_unit_begin_of(OpCtx *op, uint64_t ts, uint64_t *ret_begin_ts, Error *err) MUST_CHECK;
