/*
 * observer.c - from writes to entries.
 *
 * A unit of work tells its writes one by one; they are kept in the stage of its operation. Just
 * before the commit they become one entry: the write itself, or an applyOps when there are several,
 * so that they have one timestamp and are applied together elsewhere. Inserts of many documents are
 * the exception (STX-6): each has an entry and a timestamp of its own, given before it is written.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "catalog/write_observer.h"
#include "query/update/update_delta.h"
#include "repl/oplog/oplog_internal.h"
#include "storage/recovery_unit.h"
#include "txn/retryable.h"

/* Told to whoever writes more than the other members could ever read. */
static const char ENTRY_TEXT[] = "the oplog entry of the operation";

OplogStage *oplog_stage_of(Oplog *oplog, OpCtx *op) {
    if (UNLIKELY(op->oplog_stage == NULL)) {
        OplogStage *stage = NEW(OplogStage);
        stage->oplog = oplog;
        buffer_init(&stage->ops, OPLOG_ENTRY_BYTES_MAX);
        op->oplog_stage = stage;
    }
    return op->oplog_stage;
}

void oplog_stage_free(OplogStage *stage) {
    buffer_done(&stage->ops);
    xfree(stage);
}

static bool is_told(const OpCtx *op, const Ns *ns) {
    return !op->is_unreplicated && ns_is_replicated(ns);
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
    return b;
}

static void build_document_key(DocBuilder *b, const char *name, Doc doc) {
    size_t opened = build_open_doc(b, name);
    Elem id = doc_get_lit(doc, "_id");
    if (elem_is_present(id))
        build_elem(b, id);
    build_close(b, opened);
}

static void build_insert(DocBuilder *b, Doc doc) {
    build_doc(b, "o", doc);
    build_document_key(b, "o2", doc);
}

static ErrCode before_inserts(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err) {
    (void)docs;
    if (!is_told(op, &coll->ns))
        return ERR_OK;
    OplogStage *stage = oplog_stage_of(arg, op);
    invariant(!stage->is_vectored); /* those are alone in their unit of work */
    /* A capped collection deletes in the same unit of work: told together. */
    if (count < 2 || stage->count > 0 || coll->options.is_capped)
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
        build_insert(single, doc);
        if (session_write_is_on(op))
            session_write_build_statement(op, SESSION_WRITE_INSERT, i, DOC_NONE, doc, single);
        return ERR_OK;
    }
    uint64_t ts = stage->first_ts + i;
    TRY(ru_set_commit_ts(op->ru, ts, err));
    buffer_clear(&stage->ops);
    DocBuilder b;
    doc_builder_init(&b, &stage->ops);
    build_cstr(&b, "op", "i");
    build_str(&b, "ns", ns_str(&coll->ns));
    build_uuid(&b, "ui", &coll->uuid);
    build_insert(&b, doc);
    if (session_write_is_on(op)) {
        session_write_build_statement(op, SESSION_WRITE_INSERT, i, DOC_NONE, doc, &b);
        session_write_build_entry(op, (OpTime){ts, stage->last.term}, &b);
    }
    oplog_build_tail(&b, ts, stage->last.term, stage->wall_ms);
    Doc entry;
    TRY(doc_builder_finish(&b, ENTRY_TEXT, &entry, err));
    stage->bytes += doc_size(entry);
    stage->records++;
    return oplog_insert(arg, op, ts, entry, err);
}

static ErrCode on_update(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         bool is_replacement, Error *err) {
    (void)err;
    if (!is_told(op, &coll->ns))
        return ERR_OK;
    DocBuilder *b = stage_op(arg, op, "u", &coll->ns, &coll->uuid);
    Doc delta;
    if (!is_replacement && update_delta_compute(before, after, &op->arena, &delta))
        build_doc(b, "o", update_delta_entry(delta, &op->arena));
    else
        build_doc(b, "o", after);
    build_document_key(b, "o2", before);
    if (session_write_is_on(op))
        session_write_build_statement(op, SESSION_WRITE_UPDATE, 0, before, after, b);
    return ERR_OK;
}

static ErrCode on_delete(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err) {
    (void)err;
    if (!is_told(op, &coll->ns))
        return ERR_OK;
    DocBuilder *b = stage_op(arg, op, "d", &coll->ns, &coll->uuid);
    build_document_key(b, "o", before);
    if (session_write_is_on(op))
        session_write_build_statement(op, SESSION_WRITE_DELETE, 0, before, DOC_NONE, b);
    return ERR_OK;
}

static ErrCode on_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    (void)err;
    bool is_database = entry->ns->size == entry->ns->db_size;
    bool is_replicated =
        is_database ? !str_is(ns_db(entry->ns), "local") : ns_is_replicated(entry->ns);
    if (op->is_unreplicated || !is_replicated)
        return ERR_OK;
    DocBuilder *b = stage_op(arg, op, "c", entry->ns, entry->uuid);
    build_doc(b, "o", entry->o);
    if (doc_is_present(entry->o2))
        build_doc(b, "o2", entry->o2);
    return ERR_OK;
}

void oplog_register_observer(Oplog *oplog) {
    WriteObservers *observers = catalog_write_observers(oplog->service->catalog);
    invariant(observers->count < WRITE_OBSERVERS_MAX);
    observers->rows[observers->count++] = (WriteObserver){.arg = oplog,
                                                          .before_inserts = before_inserts,
                                                          .on_insert = on_insert,
                                                          .on_update = on_update,
                                                          .on_delete = on_delete,
                                                          .on_ddl = on_ddl};
    op_oplog_stage_free_hook = oplog_stage_free;
    storage_set_hooks(oplog->engine, &(StorageHooks){.arg = oplog,
                                                     .before_commit = oplog_before_commit,
                                                     .after_unit = oplog_after_unit,
                                                     .before_flush = oplog_before_flush,
                                                     .after_flush = oplog_after_flush});
}

/* {op: "c", ns: "admin.$cmd", o: {applyOps: [...]}} of all writes in the stage. */
static ErrCode group(OplogStage *stage, OpCtx *op, Doc *ret_entry, Error *err) {
    build_close(&stage->open, stage->open.start);
    TRY(buffer_check(&stage->ops, ENTRY_TEXT, err));
    Arena *arena = &op->arena;
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, stage->ops.size + 1024, OPLOG_ENTRY_BYTES_MAX);
    DocBuilder *b = &stage->open;
    doc_builder_init(b, buf);
    build_cstr(b, "op", "c");
    build_cstr(b, "ns", "admin.$cmd");
    size_t o = build_open_doc(b, "o");
    size_t rows = build_open_array(b, "applyOps");
    size_t at = 0;
    for (uint32_t i = 0; i < stage->count; i++) {
        Doc row = {stage->ops.data + at};
        char name[INDEX_NAME_SIZE];
        build_doc(b, index_name(i, name).data, row);
        at += doc_size(row);
    }
    build_close(b, rows);
    build_close(b, o);
    if (session_write_has_statements(op))
        session_write_build_entry(op, stage->last, b);
    oplog_build_tail(b, stage->last.ts, stage->last.term, stage->wall_ms);
    return doc_builder_finish(b, ENTRY_TEXT, ret_entry, err);
}

ErrCode oplog_before_commit(void *arg, OpCtx *op, Error *err) {
    Oplog *oplog = arg;
    OplogStage *stage = op->oplog_stage;
    bool has_statements = session_write_has_statements(op);
    if (stage->count == 0) /* vectored: all is written */
        return has_statements ? session_write_store(op, stage->wall_ms, err) : ERR_OK;
    TRY(oplog_reserve(oplog, op, stage, session_write_needs_image(op) ? 2 : 1, err));
    TRY(ru_set_commit_ts(op->ru, stage->last.ts, err));
    Doc entry;
    if (stage->count == 1) {
        if (has_statements)
            session_write_build_entry(op, stage->last, &stage->open);
        oplog_build_tail(&stage->open, stage->last.ts, stage->last.term, stage->wall_ms);
        TRY(doc_builder_finish(&stage->open, ENTRY_TEXT, &entry, err));
    } else {
        TRY(group(stage, op, &entry, err));
    }
    stage->records = 1;
    stage->bytes = doc_size(entry);
    TRY(oplog_insert(oplog, op, stage->last.ts, entry, err));
    return has_statements ? session_write_store(op, stage->wall_ms, err) : ERR_OK;
}
