/*
 * modifications.h - what was written to a range since a time: the donor's answer to the recipient.
 *
 * The oplog tells which documents; what they are now is read by their _id. Everything is as a
 * majority has it.
 */
#pragma once

#include "concurrency/op_ctx.h"
#include "sharding/migration/move.h"

typedef struct ModificationsQuery {
    const Move *move;
    uint64_t after_ts;
    uint64_t until_ts; /* waits for the commit of everything up to this time; 0: does not */
    Doc ids;           /* an array: instead of the oplog, these documents; DOC_NONE: none */
} ModificationsQuery;

/* Appends {reload: [documents], deleted: [{_id}], rest: [{_id}], statements, upTo}: documents of
 * the range; ids of those that are not there, or not in the range any more; ids for which there was
 * no room, to be asked for again, few at a time; statements of retryable writes
 * (session_history.h); the time up to which this is everything. ERR_CHANGE_STREAM_HISTORY_LOST: the
 * oplog does not reach back so far. */
ErrCode modifications_build(OpCtx *op, const ModificationsQuery *query, DocBuilder *b, Error *err)
    MUST_CHECK;
