/*
 * prepared.c - entries of prepared transactions (txn/prepared.h).
 *
 *     steady state   prepare: applied and prepared in storage; commit, abort: ends that
 *     recovery       prepare: skipped; commit: prepared and committed at once, from the entry that
 *                    its prevOpTime names; abort: skipped
 *     initial sync   likewise, without timestamps
 *     afterwards     every row that is still "prepared" is prepared again
 *
 * During recovery the prepare is skipped since its end may come soon, and because data may be ahead
 * of the entries: a prepared write in their way could not be overwritten.
 */
#include "base/failpoint.h"
#include "base/log.h"
#include "catalog/access.h"
#include "catalog/write_group.h"
#include "repl/apply/apply_internal.h"
#include "repl/oplog/unit.h"
#include "txn/history.h"
#include "txn/prepared.h"

typedef struct EndEntry {
    bool is_commit;
    uint64_t commit_ts;
    OpTime prepare;
} EndEntry;

/* The first field of its command; missing: it is none. */
static Elem command_of(Doc entry) {
    Elem kind = doc_get_lit(entry, "op");
    Elem o = doc_get_lit(entry, "o");
    Elem first = ELEM_MISSING;
    if (elem_type(kind) == BT_STRING && elem_str(kind).data[0] == 'c' && elem_type(o) == BT_DOC) {
        DocIter iter = doc_iter(elem_doc(o));
        if (!doc_iter_next(&iter, &first))
            return ELEM_MISSING;
    }
    return first;
}

static bool is_prepare(Doc entry) {
    Elem first = command_of(entry);
    return elem_is_present(first) && elem_name_is(first, STR("applyOps")) &&
           elem_is_truthy(doc_get_path(entry, "o.prepare"));
}

static bool is_end(Doc entry) {
    Elem first = command_of(entry);
    return elem_is_present(first) && (elem_name_is(first, STR("commitTransaction")) ||
                                      elem_name_is(first, STR("abortTransaction")));
}

bool apply_is_of_prepared(Doc entry) {
    return is_prepare(entry) || is_end(entry);
}

static ErrCode parse_row(Doc entry, SessionRow *ret_row, Error *err) {
    return history_row_of_entry(entry, ret_row)
               ? ERR_OK
               : error_set(err, ERR_FAILED_TO_PARSE,
                           "oplog entry of a transaction without its session and number");
}

static ErrCode parse_end(Doc entry, EndEntry *ret_end, Error *err) {
    *ret_end = (EndEntry){.is_commit = elem_name_is(command_of(entry), STR("commitTransaction"))};
    if (!optime_from_elem(doc_get_lit(entry, "prevOpTime"), &ret_end->prepare) ||
        ret_end->prepare.ts == 0)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "oplog entry of the end of a transaction without its prepare");
    Elem ts = doc_get_path(entry, "o.commitTimestamp");
    if (ret_end->is_commit && (elem_type(ts) != BT_TIMESTAMP || elem_i64(ts) == 0))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "oplog entry: 'commitTransaction' needs a 'commitTimestamp'");
    ret_end->commit_ts = ret_end->is_commit ? (uint64_t)elem_i64(ts) : 0;
    return ERR_OK;
}

/* ---- the writes of a prepare ---- */

typedef struct Writes {
    ApplyWriter *writer;
    ApplyMode mode;
    OplogUnit unit;
    uint64_t ts; /* of the last entry */
} Writes;

/* Fills in the first entry of `row`, too. */
static ErrCode find_writes(OpCtx *op, ApplyWriter *writer, Doc prepare, ApplyMode mode,
                           Writes *ret_writes, SessionRow *row, Error *err) {
    *ret_writes = (Writes){.writer = writer, .mode = mode, .ts = row->last_write.ts};
    row->start = row->last_write;
    if (entry_part(prepare) == ENTRY_LAST) {
        TRY(oplog_unit_find(op, prepare, &ret_writes->unit, err));
        if (ret_writes->unit.count > 1)
            row->start.ts = ret_writes->unit.times[0];
    } else {
        ret_writes->unit = (OplogUnit){.last = prepare, .count = 1};
    }
    return ERR_OK;
}

static ErrCode make_writes(void *arg, OpCtx *op, Error *err) {
    const Writes *writes = arg;
    for (size_t i = 0; i < writes->unit.count; i++) {
        ArenaMark mark = arena_mark(&op->arena);
        Doc part;
        TRY(oplog_unit_read(op, &writes->unit, i, &part, err));
        Elem rows = doc_get_path(part, "o.applyOps");
        if (elem_type(rows) != BT_ARRAY)
            return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'applyOps' must be an array");
        TRY(apply_rows(op, writes->writer, elem_doc(rows), writes->ts, apply_place_of(part),
                       writes->mode, /* depth= */ 0, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

static ErrCode prepare(OpCtx *op, ApplyWriter *writer, Doc entry, bool is_again, Error *err) {
    SessionRow row;
    TRY(parse_row(entry, &row, err));
    Writes writes;
    TRY(find_writes(op, writer, entry, APPLY_PREPARED, &writes, &row, err));
    return prepared_apply(op->service->sessions, op, &row, is_again, make_writes, &writes, err);
}

/* Not in memory: the prepare was skipped, or belongs to the time before this start. */
static ErrCode commit_skipped(OpCtx *op, ApplyWriter *writer, const SessionRow *row,
                              const EndEntry *end, ApplyMode mode, Error *err) {
    Doc entry;
    TRY(oplog_entry_read(op, end->prepare.ts, &entry, err));
    if (!doc_is_present(entry) || !is_prepare(entry))
        return error_set(err, ERR_OPLOG_START_MISSING,
                         "the oplog has no entry (%u, %u), which prepared a transaction that is to "
                         "be committed",
                         ts_seconds(end->prepare.ts), (uint32_t)end->prepare.ts);
    if (mode != APPLY_INITIAL_SYNC) {
        TRY(prepare(op, writer, entry, /* is_again= */ true, err));
        bool is_found;
        return prepared_apply_end(op->service->sessions, op, row, end->commit_ts, &is_found, err);
    }
    SessionRow prepared;
    TRY(parse_row(entry, &prepared, err));
    Writes writes;
    TRY(find_writes(op, writer, entry, mode, &writes, &prepared, err));
    return make_writes(&writes, op, err);
}

ErrCode apply_prepared(OpCtx *op, ApplyWriter *writer, Doc entry, ApplyMode mode, Error *err) {
    if (is_prepare(entry))
        return mode == APPLY_STEADY ? prepare(op, writer, entry, /* is_again= */ false, err)
                                    : ERR_OK;
    SessionRow row;
    EndEntry end;
    TRY(parse_row(entry, &row, err));
    TRY(parse_end(entry, &end, err));
    bool is_found = false;
    if (mode != APPLY_INITIAL_SYNC)
        TRY(prepared_apply_end(op->service->sessions, op, &row, end.commit_ts, &is_found, err));
    return is_found || !end.is_commit ? ERR_OK : commit_skipped(op, writer, &row, &end, mode, err);
}

/* ---- after a start, a rollback or an initial sync ---- */

typedef struct Found {
    OpCtx *op;
    uint64_t *times; /* of the prepare entries; in the arena */
    size_t count;
    size_t capacity;
} Found;

static ErrCode note_prepared(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    Found *found = arg;
    Elem state = doc_get_lit(doc, "state");
    OpTime last;
    if (elem_type(state) != BT_STRING || !str_is(elem_str(state), "prepared") ||
        !optime_from_elem(doc_get_lit(doc, "lastWriteOpTime"), &last))
        return ERR_OK;
    if (found->count == found->capacity) {
        found->capacity = found->capacity * 2 + 16;
        uint64_t *grown = ARENA_ARRAY(&found->op->arena, uint64_t, found->capacity);
        if (found->count > 0)
            memcpy(grown, found->times, found->count * sizeof(*grown));
        found->times = grown;
    }
    found->times[found->count++] = last.ts;
    return ERR_OK;
}

ErrCode apply_prepared_again(OpCtx *op, ApplyWriter *writer, Error *err) {
    Found found = {.op = op};
    TRY(access_each(op, &SESSION_TABLE_NS, /* is_forward= */ true, note_prepared, &found, err));
    for (size_t i = 0; i < found.count; i++) {
        ArenaMark mark = arena_mark(&op->arena);
        Doc entry;
        TRY(oplog_entry_read(op, found.times[i], &entry, err));
        if (!doc_is_present(entry) || !is_prepare(entry))
            return error_set(err, ERR_OPLOG_START_MISSING,
                             "the oplog has no entry (%u, %u), of a transaction that is prepared",
                             ts_seconds(found.times[i]), (uint32_t)found.times[i]);
        TRY(prepare(op, writer, entry, /* is_again= */ true, err));
        arena_rewind(&op->arena, mark);
    }
    if (found.count > 0)
        LOG_INFO(LOG_REPL, 7300290, "Transactions are prepared again",
                 LOG_I64("count", (int64_t)found.count));
    return ERR_OK;
}
