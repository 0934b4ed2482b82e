/*
 * observer.c - stages the writes of a unit of work for the oplog.
 *
 * The writes of a unit of work are collected in the stage of its operation. Just before the commit
 * they become entries (unit_write.c): the write itself, or applyOps when there are several, so that
 * they have one timestamp and are applied together on other members. Inserts of many documents are
 * the exception (STX-6): each has its own entry and timestamp, assigned before it is written, so
 * that secondaries can apply them in parallel.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/json.h"
#include "catalog/document_key.h"
#include "catalog/write_observer.h"
#include "query/update/update_delta.h"
#include "repl/oplog/oplog_internal.h"
#include "storage/recovery_unit.h"
#include "txn/prepared.h"
#include "txn/retryable.h"
#include "txn/transaction.h"

static void stage_free(void *part) {
    OplogStage *stage = part;
    buffer_done(&stage->ops);
    images_done(&stage->images);
    xfree(stage);
}

OplogStage *oplog_stage_of(Oplog *oplog, OpCtx *op) {
    if (UNLIKELY(op->oplog_stage == NULL)) {
        OplogStage *stage = NEW(OplogStage);
        stage->oplog = oplog;
        buffer_init(&stage->ops, OPLOG_UNIT_BYTES_MAX);
        buffer_init(&stage->images.staged, OPLOG_UNIT_BYTES_MAX);
        op->oplog_stage = stage;
        op_keep_part(op, stage_free, stage);
    }
    return op->oplog_stage;
}

static bool is_told(const OpCtx *op, const Ns *ns) {
    return !op->mode.is_unreplicated && ns_is_replicated(ns);
}

/* Moving a document between shards is no change of it. */
static bool has_image(const OpCtx *op, const Collection *coll) {
    return coll->options.has_pre_images && !op->mode.is_from_migrate;
}

/* Memory that a large unit made grow is released: every worker has a stage. */
void oplog_stage_clear(OplogStage *stage) {
    stage->has_slot = stage->is_vectored = false;
    stage->count = 0;
    stage->records = stage->bytes = 0;
    buffer_clear(&stage->ops);
    if (UNLIKELY(stage->ops.capacity > OPLOG_STAGE_BYTES_KEPT)) {
        buffer_done(&stage->ops);
        buffer_init(&stage->ops, OPLOG_UNIT_BYTES_MAX);
    }
    if (UNLIKELY(stage->images.count > 0))
        images_clear(&stage->images);
}

static void build_head(DocBuilder *b, const OpCtx *op, const char *kind, const Ns *ns,
                       const Uuid *uuid) {
    build_cstr(b, "op", kind);
    if (kind[0] == 'c') {
        char text[DB_NAME_SIZE_MAX + 8];
        Str db = ns_db(ns);
        memcpy(text, db.data, db.size);
        memcpy(text + db.size, ".$cmd", 6);
        build_cstr(b, "ns", text);
    } else {
        build_str(b, "ns", ns_str(ns));
    }
    if (uuid != NULL)
        build_uuid(b, "ui", uuid);
    if (UNLIKELY(op->mode.is_from_migrate))
        build_bool(b, "fromMigrate", true);
}

/* Starts one more write of the unit; the caller appends o and o2. */
static DocBuilder *stage_op(Oplog *oplog, OpCtx *op, const char *kind, const Ns *ns,
                            const Uuid *uuid) {
    OplogStage *stage = oplog_stage_of(oplog, op);
    invariant(!stage->is_vectored);
    if (stage->count++ > 0)
        build_close(&stage->open, stage->open.start);
    else
        ru_request_commit_hook(op->ru);
    DocBuilder *b = &stage->open;
    doc_builder_init(b, &stage->ops);
    build_head(b, op, kind, ns, uuid);
    return b;
}

/* The number of the client's statement that the write is, if it is one. */
static void build_statement(OpCtx *op, SessionWriteKind kind, size_t i, Doc before, Doc after,
                            DocBuilder *b) {
    int32_t of_parent;
    if (session_write_is_on(op))
        session_write_build_statement(op, kind, i, before, after, b);
    else if (UNLIKELY(txn_has_statement(op, &of_parent)))
        build_i32(b, "stmtId", of_parent);
}

static void build_insert(DocBuilder *b, OpCtx *op, const Collection *coll, Doc doc) {
    build_doc(b, "o", doc);
    build_document_key(b, "o2", op, coll, doc);
}

static ErrCode before_inserts(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err) {
    (void)docs;
    if (!is_told(op, &coll->ns))
        return ERR_OK;
    OplogStage *stage = oplog_stage_of(arg, op);
    invariant(!stage->is_vectored); /* vectored inserts are alone in their unit of work */
    /* A capped collection may delete in the same unit of work, and a group has one timestamp:
     * neither can be vectored. */
    bool is_alone = count < 2 && LIKELY(!failpoint_is_set(FP_HANG_AFTER_INSERTS));
    if (is_alone || stage->count > 0 || coll->options.is_capped || op->write_group != NULL)
        return ERR_OK;
    stage->is_vectored = true;
    return oplog_reserve(arg, op, stage, count, err);
}

static ErrCode on_insert(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                         Error *err) {
    if (!is_told(op, &coll->ns))
        return ERR_OK;
    OplogStage *stage = oplog_stage_of(arg, op);
    if (!stage->is_vectored) {
        DocBuilder *single = stage_op(arg, op, "i", &coll->ns, &coll->uuid);
        build_insert(single, op, coll, doc);
        build_statement(op, SESSION_WRITE_INSERT, i, DOC_NONE, doc, single);
        return ERR_OK;
    }
    uint64_t ts = stage->first_ts + i;
    /* Before the document is written: WiredTiger stamps each write with the timestamp set at that
     * moment. */
    TRY(ru_set_commit_ts(op->ru, ts, err));
    buffer_clear(&stage->ops);
    DocBuilder b;
    doc_builder_init(&b, &stage->ops);
    build_head(&b, op, "i", &coll->ns, &coll->uuid);
    build_insert(&b, op, coll, doc);
    if (session_write_is_on(op)) {
        session_write_build_statement(op, SESSION_WRITE_INSERT, i, DOC_NONE, doc, &b);
        session_write_build_entry(op, (OpTime){ts, stage->last.term}, 1, /* is_last= */ true, &b);
    }
    oplog_build_tail(&b, ts, stage->last.term, stage->wall_ms);
    Doc entry;
    TRY(doc_builder_finish(&b, "the oplog entry of the insert", &entry, err));
    TRY(oplog_check_entry_size(entry, err));
    stage->bytes += doc_size(entry);
    stage->records++;
    return oplog_insert(arg, op, ts, entry, err);
}

static ErrCode on_update(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         const UpdateForm *form, Error *err) {
    (void)err;
    if (!is_told(op, &coll->ns))
        return ERR_OK;
    DocBuilder *b = stage_op(arg, op, "u", &coll->ns, &coll->uuid);
    Doc delta;
    /* A delta is idempotent: it names final values, so that re-applying it to newer data converges.
     * That of an update by operators tells what these did; any other is not taken where it would
     * be larger than the document. */
    bool has_delta =
        (form->program != NULL &&
         update_delta_of_operators(form->program, before, after, &op->arena, &delta)) ||
        (!form->is_replacement && update_delta_compute(before, after, &op->arena, &delta));
    if (has_delta)
        build_doc(b, "o", update_delta_entry(delta, &op->arena));
    else
        build_doc(b, "o", after);
    build_document_key(b, "o2", op, coll, before);
    build_statement(op, SESSION_WRITE_UPDATE, 0, before, after, b);
    if (UNLIKELY(has_image(op, coll)))
        images_stage(op->oplog_stage, coll, before);
    return ERR_OK;
}

static ErrCode on_delete(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err) {
    (void)err;
    if (!is_told(op, &coll->ns))
        return ERR_OK;
    DocBuilder *b = stage_op(arg, op, "d", &coll->ns, &coll->uuid);
    build_document_key(b, "o", op, coll, before);
    build_statement(op, SESSION_WRITE_DELETE, 0, before, DOC_NONE, b);
    if (UNLIKELY(has_image(op, coll)))
        images_stage(op->oplog_stage, coll, before);
    return ERR_OK;
}

/* One line for each change of the catalog, by which operators find who changed what and when. */
static void log_ddl(const OpCtx *op, const DdlEntry *entry) {
    static const struct {
        const char *command;
        int id;
        int id_in_txn;
        const char *msg;
    } LINES[] = {
        {"create", 7360103, 7360102, "Wrote oplog entry for create"},
        {"createIndexes", 7360101, 7360100, "Wrote oplog entry for createIndexes"},
        {"collMod", 7360104, 7360104, "Wrote oplog entry for collMod"},
        {"dropDatabase", 7360105, 7360105, "Wrote oplog entry for dropDatabase"},
        {"drop", 7360106, 7360106, "Wrote oplog entry for drop"},
        {"dropIndexes", 7360107, 7360107, "Wrote oplog entry for dropIndexes"},
        {"renameCollection", 7360108, 7360108, "Wrote oplog entry for renameCollection"},
    };
    DocIter iter = doc_iter(entry->o);
    Elem command;
    if (!doc_iter_next(&iter, &command))
        return;
    bool is_in_txn = op_txn_number(op) >= 0;
    for (size_t i = 0; i < ARRAY_LEN(LINES); i++) {
        if (!elem_name_is(command, str_from(LINES[i].command)))
            continue;
        CLEANUP(buffer_done) Buffer object;
        buffer_init(&object, BUFFER_UNBOUNDED);
        LOG_INFO(LOG_REPL, is_in_txn ? LINES[i].id_in_txn : LINES[i].id, LINES[i].msg,
                 LOG_STR("namespace", entry->ns->text), json_log_attr("object", entry->o, &object));
        return;
    }
}

static ErrCode on_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    (void)err;
    if (!is_told(op, entry->ns))
        return ERR_OK;
    DocBuilder *b = stage_op(arg, op, "c", entry->ns, entry->uuid);
    build_doc(b, "o", entry->o);
    if (doc_is_present(entry->o2))
        build_doc(b, "o2", entry->o2);
    log_ddl(op, entry);
    return ERR_OK;
}

void oplog_register_observer(Oplog *oplog) {
    write_observer_register(oplog->service->catalog,
                            &(WriteObserver){.arg = oplog,
                                             .before_inserts = before_inserts,
                                             .on_insert = on_insert,
                                             .on_update = on_update,
                                             .on_delete = on_delete,
                                             .on_ddl = on_ddl});
    if (oplog->service->sessions != NULL) {
        TxnLog log = oplog_txn_log(oplog);
        session_catalog_set_log(oplog->service->sessions, &log);
    }
    storage_set_hooks(oplog->engine, &(StorageHooks){.arg = oplog,
                                                     .before_commit = oplog_before_commit,
                                                     .after_unit = oplog_after_unit,
                                                     .before_flush = oplog_before_flush,
                                                     .after_flush = oplog_after_flush});
}
