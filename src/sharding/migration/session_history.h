/*
 * session_history.h - statements of retryable writes move along with the documents they wrote
 * (MIG-3, SES-3): one that is sent again after the move is answered by the recipient, not executed
 * a second time.
 *
 * Two sources, as for the documents themselves: what sessions have executed before, out of their
 * rows and chains of entries, and what is written while the range moves, out of the oplog
 * (modifications.h). A statement that both tell is recorded once.
 *
 * On its way a statement is {lsid, txnNumber, stmtId, write: {op, ns, ui, o, o2?, needsRetryImage?,
 * image?, isCut?}}: no more of its entry than a repetition is answered with. The recipient keeps it
 * as a no-op of its own oplog, so its secondaries have it, too, and it moves on with the range.
 */
#pragma once

#include "base/buffer.h"
#include "bson/builder.h"
#include "sharding/migration/migrations.h"
#include "sharding/shard/range_scan.h"
#include "txn/session_id.h"

/* ---- donor ---- */

typedef struct StatementList {
    OpCtx *op;
    const Move *move;
    RangeKeys *keys;
    Buffer buf; /* heap */
    DocBuilder rows;
    uint32_t count;
} StatementList;

void statements_init(StatementList *list, OpCtx *op, const Move *move, RangeKeys *keys);
void statements_done(StatementList *list);
size_t statements_bytes(const StatementList *list);
/* Appends {statements: [...]}; nothing can be added afterwards. */
ErrCode statements_build(StatementList *list, DocBuilder *b, Error *err) MUST_CHECK;

/* A write of the entry `ts`, if it is a statement and its document may be in the range. `is_alone`:
 * the entry has no other writes. */
ErrCode statements_add(StatementList *list, const SessionId *session, int64_t txn_number,
                       int32_t statement, uint64_t ts, Doc write, bool is_alone, Error *err)
    MUST_CHECK;

/* Appends {statements, next?}: what sessions have executed in the range, as far as there is room;
 * `next` is where to go on, what the next question has as `from` (DOC_NONE: the beginning); without
 * it that was all. */
ErrCode session_history_build(OpCtx *op, const Move *move, Doc from, DocBuilder *b, Error *err)
    MUST_CHECK;

/* ---- recipient ---- */

/* Records the statements of an answer, those of them that are not known here. */
ErrCode session_history_record(OpCtx *op, Doc answer, Error *err) MUST_CHECK;
/* All that the donor's sessions have executed in the range so far. May be repeated. */
ErrCode session_history_receive(MoveRun *run, Error *err) MUST_CHECK;
