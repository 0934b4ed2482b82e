/*
 * truncate_point.c - local.replset.oplogTruncateAfterPoint (OPL-4).
 *
 * Writers of a primary commit in another order than that of their timestamps, and the journal has
 * them in commit order: after a crash an entry may exist while an earlier one does not. So before
 * each journal flush a primary records up to where everything is complete; at the next start the
 * oplog is truncated after that point. What lies beyond it was never reported as durable.
 *
 * The point precedes all later writes in the journal, so it survives whenever they do. A secondary
 * writes whole batches in order and needs none: it clears its point before it reports anything as
 * durable.
 *
 * Only flushes write the point, one at a time, depending on whether this member is primary at that
 * moment. So a new primary first sets its term and then requests a flush, before it writes
 * anything: the point of an earlier flush cannot come after its own. If the point cannot be
 * written, nothing new is durable.
 */
#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/builder.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "repl/oplog/oplog_internal.h"
#include "storage/unit_of_work.h"

static const Ns POINT_NS = {
    .size = 37, .db_size = 5, .text = "local.replset.oplogTruncateAfterPoint"};

static Doc point_doc(uint64_t ts, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "_id", "oplogTruncateAfterPoint");
    build_timestamp(&b, "oplogTruncateAfterPoint", ts);
    return doc_builder_end(&b);
}

static ErrCode insert_point(OpCtx *op, const Collection *coll, Error *err) {
    Doc doc = point_doc(0, &op->arena);
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    return collection_insert_unit(op, coll, &doc, 1, &scratch, err);
}

static ErrCode first_record(OpCtx *op, RecordStore *rs, bool *ret_found, RecordId *ret_rid,
                            Doc *ret_doc, Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, rs, /* is_forward= */ true, &cursor, err));
    Str data;
    TRY(record_cursor_next(&cursor, ret_found, ret_rid, &data, err));
    *ret_doc = *ret_found ? doc_copy((Doc){(const uint8_t *)data.data}, &op->arena) : DOC_NONE;
    return ERR_OK;
}

ErrCode truncate_point_open(Oplog *oplog, OpCtx *op, Error *err) {
    TRY(ddl_ensure_collection(op, &POINT_NS, err));
    RecordStore *records;
    {
        CLEANUP(access_done) CollAccess access = {0};
        TRY(access_write(op, &POINT_NS, LOCK_IX, &access, err));
        bool is_found;
        RecordId rid;
        Doc doc;
        TRY(first_record(op, access.coll->records, &is_found, &rid, &doc, err));
        ru_abandon_snapshot(op->ru);
        if (!is_found)
            TRY(insert_point(op, access.coll, err));
        records = record_store_ref(access.coll->records);
    }
    oplog->flush_op = op_ctx_new(oplog->service->ops, NULL, NULL);
    oplog->flush_op->service = oplog->service;
    oplog->flush_op->mode.is_uninterruptible = true;
    oplog->flush_op->is_kill_exempt = true;
    oplog->flush_op->mode.is_unreplicated = true;
    op_attach_storage(oplog->flush_op, oplog->engine);
    /* Last, with release: a concurrent flush checks this pointer first and must find the rest in
     * place. */
    atomic_store_explicit(&oplog->truncate_point, records, memory_order_release);
    return ERR_OK;
}

typedef struct PointArgs {
    Oplog *oplog;
    uint64_t ts;
} PointArgs;

static ErrCode update_point(void *arg, OpCtx *op, Error *err) {
    PointArgs *args = arg;
    RecordStore *rs = args->oplog->truncate_point;
    bool is_found;
    RecordId rid;
    Doc before;
    TRY(first_record(op, rs, &is_found, &rid, &before, err));
    if (!is_found)
        return error_set(err, ERR_NO_SUCH_KEY, "\"%s\" has lost its document", POINT_NS.text);
    Doc after = point_doc(args->ts, &op->arena);
    Str data = {(const char *)after.data, doc_size(after)};
    return record_update(op, rs, rid, data, doc_size(before), err);
}

static ErrCode write_point(Oplog *oplog, OpCtx *op, uint64_t ts, Error *err) {
    PointArgs args = {oplog, ts};
    return op_write_with_retry(op, update_point, &args, err);
}

ErrCode oplog_read_truncate_after_point(Oplog *oplog, OpCtx *op, uint64_t *ret_ts, Error *err) {
    *ret_ts = 0;
    if (oplog->truncate_point == NULL)
        return ERR_OK;
    bool is_found;
    RecordId rid;
    Doc doc;
    TRY(first_record(op, oplog->truncate_point, &is_found, &rid, &doc, err));
    ru_abandon_snapshot(op->ru);
    Elem ts = is_found ? doc_get_lit(doc, "oplogTruncateAfterPoint") : ELEM_MISSING;
    if (elem_type(ts) == BT_TIMESTAMP)
        *ret_ts = (uint64_t)elem_i64(ts);
    return ERR_OK;
}

ErrCode oplog_clear_truncate_after_point(Oplog *oplog, OpCtx *op, Error *err) {
    if (oplog->truncate_point == NULL)
        return ERR_OK;
    TRY(write_point(oplog, op, 0, err));
    atomic_store(&oplog->noted_point, 0);
    return ERR_OK;
}

ErrCode truncate_point_begin(Oplog *oplog, OpCtx *op, Error *err) {
    uint64_t applied_ts = oplog_applied(oplog).ts;
    TRY(storage_wait_durable(oplog->engine, op, err));
    /* The flush above ran with the new term set, so it has recorded the point unless that
     * failed. */
    if (atomic_load(&oplog->noted_point) == applied_ts)
        return ERR_OK;
    return error_set(err, ERR_OPERATION_FAILED,
                     "could not note up to where the oplog is complete, as a primary has to before "
                     "it writes; the log tells why");
}

/* Called by the leader of a journal flush, one at a time. The position is read before the flush
 * begins: what is applied during it may not be covered. */
uint64_t oplog_before_flush(void *arg) {
    Oplog *oplog = arg;
    mutex_lock(&oplog->mu);
    OpTime applied = oplog->applied;
    oplog->flushing = applied;
    oplog->flushing_wall_ms = oplog->applied_wall_ms;
    mutex_unlock(&oplog->mu);
    uint64_t point = atomic_load(&oplog->term) != OPTIME_TERM_NONE ? applied.ts : 0;
    /* Unchanged (an idle primary, or a secondary without a point): no extra write per flush. */
    if (oplog->truncate_point == NULL || point == atomic_load(&oplog->noted_point))
        return applied.ts;
    OpCtx *op = oplog->flush_op;
    CLEANUP(error_reset) Error err = {0};
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "JournalFlusher"});
    ErrCode rc = failpoint_check(FP_OPLOG_POINT_NOTING, &err);
    if (rc == ERR_OK)
        rc = write_point(oplog, op, point, &err);
    if (rc == ERR_OK)
        atomic_store(&oplog->noted_point, point);
    else
        LOG_ERROR(LOG_REPL, 7300101,
                  "Could not note up to where the oplog is complete; nothing new is durable",
                  LOG_STR("error", error_message(&err)));
    op_end(op);
    failpoint_hit(FP_OPLOG_POINT_NOTED);
    return rc == ERR_OK ? applied.ts : 0;
}

void oplog_after_flush(void *arg, uint64_t token) {
    Oplog *oplog = arg;
    mutex_lock(&oplog->mu);
    /* Token 0: the point could not be written, so nothing new counts as durable. Durable never
     * moves back here, only by oplog_set_durable. */
    bool is_moved = oplog->flushing.ts == token && token != 0 &&
                    optime_compare(oplog->flushing, oplog->durable) > 0;
    if (is_moved) {
        oplog->durable = oplog->flushing;
        oplog->durable_wall_ms = oplog->flushing_wall_ms;
    }
    mutex_unlock(&oplog->mu);
    if (is_moved && oplog->moved != NULL)
        oplog->moved(oplog->moved_arg, /* is_durable= */ true);
}
