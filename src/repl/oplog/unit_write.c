/*
 * unit_write.c - turns the writes of one unit of work into entries, just before its commit.
 *
 *     one write            its own entry
 *     several, or a group  {applyOps: [...]}
 *     too much for one     a chain of those (catalog/write_group.h)
 *
 * The number of entries is determined first: their timestamps are reserved together, so they are
 * consecutive, without another unit's entry between them, in one slot. No reader sees a part of the
 * chain here, and a crash keeps all of it or nothing, since it is one storage transaction.
 */
#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/thread.h"
#include "catalog/write_group.h"
#include "concurrency/op_failpoint.h"
#include "repl/oplog/oplog_internal.h"
#include "storage/op_unit.h"
#include "storage/recovery_unit.h"
#include "txn/prepared.h"
#include "txn/retryable.h"

enum {
    /* An applyOps entry without its writes: lsid, prevOpTime and the other fields. */
    ENTRY_FRAME_BYTES_MAX = 1024,
    /* A chain is split where an entry would exceed this; a single write may be as large as
     * OPLOG_ENTRY_BYTES_MAX with its frame. */
    ENTRY_BYTES_TARGET = BSON_DOC_SIZE_MAX,
    LOCATION_CREATE_FAILPOINT = 51267,
    SLEEP_BEFORE_COMMIT_US = 100 * 1000, /* of a failpoint */
    ROW_FRAME_BYTES_MAX = 1 + INDEX_NAME_SIZE,
};

/* Names the object in the error for a write that other members could not read. */
static const char ENTRY_TEXT[] = "the oplog entry of the operation";

/* Position in the stage while its writes become entries. */
typedef struct UnitWriter {
    Oplog *oplog;
    OpCtx *op;
    OplogStage *stage;  /* has the place in the oplog */
    OplogStage *writes; /* has the writes: the same, or that of a unit to be prepared */
    uint32_t entry_count;
    uint32_t entry; /* the present one */
    uint32_t write; /* its first write */
    size_t at;      /* where that is in the stage */
    OpTime previous;
} UnitWriter;

static Doc write_at(const OplogStage *stage, size_t at) {
    return (Doc){stage->ops.data + at};
}

/* How many of the writes from `write` on go into one entry; at least one. */
static uint32_t writes_of_entry(const OplogStage *stage, uint32_t write, size_t at) {
    size_t bytes = ENTRY_FRAME_BYTES_MAX;
    uint32_t count = 0;
    while (write + count < stage->count) {
        size_t size = doc_size(write_at(stage, at));
        bytes += size + ROW_FRAME_BYTES_MAX;
        if (count > 0 && bytes > ENTRY_BYTES_TARGET)
            break;
        at += size;
        count++;
    }
    return count;
}

static uint32_t count_entries(const OplogStage *stage) {
    uint32_t entries = 0;
    size_t at = 0;
    for (uint32_t write = 0; write < stage->count; entries++) {
        uint32_t count = writes_of_entry(stage, write, at);
        write += count;
        while (count-- > 0)
            at += doc_size(write_at(stage, at));
    }
    return entries;
}

/* The identity of the entry (session, transaction), and its predecessor. */
static void build_identity(UnitWriter *w, OpTime optime, uint32_t statements, DocBuilder *b) {
    const WriteGroup *group = w->op->write_group;
    bool is_last = w->entry + 1 == w->entry_count;
    if (group != NULL && group->build_identity != NULL) {
        group->build_identity(group->arg, b);
        build_optime(b, "prevOpTime", w->previous);
    } else if (session_write_has_statements(w->op)) {
        session_write_build_entry(w->op, optime, statements, is_last, b);
    } else if (w->entry_count > 1) {
        build_optime(b, "prevOpTime", w->previous);
    }
}

/* {op: "c", ns: "admin.$cmd", o: {applyOps: [...]}} of the next writes. */
static ErrCode build_group(UnitWriter *w, OpTime optime, Doc *ret_entry, Error *err) {
    const OplogStage *writes = w->writes;
    Arena *arena = &w->op->arena;
    uint32_t count = writes_of_entry(writes, w->write, w->at);
    size_t end = w->at;
    for (uint32_t i = 0; i < count; i++)
        end += doc_size(write_at(writes, end));
    Buffer *buf = ARENA_NEW(arena, Buffer);
    size_t frames = ENTRY_FRAME_BYTES_MAX + (size_t)count * ROW_FRAME_BYTES_MAX;
    buffer_init_arena(buf, arena, end - w->at + frames, OPLOG_ENTRY_BYTES_MAX);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "op", "c");
    build_cstr(&b, "ns", "admin.$cmd");
    size_t o = build_open_doc(&b, "o");
    size_t rows = build_open_array(&b, "applyOps");
    uint32_t statements = 0;
    for (uint32_t i = 0; i < count; i++) {
        Doc row = write_at(writes, w->at);
        char name[INDEX_NAME_SIZE];
        build_doc(&b, index_name(i, name).data, row);
        if (UNLIKELY(session_write_has_statements(w->op)))
            statements += elem_is_present(doc_get_lit(row, "stmtId"));
        w->at += doc_size(row);
    }
    w->write += count;
    build_close(&b, rows);
    const WriteGroup *group = w->op->write_group;
    bool is_last = w->entry + 1 == w->entry_count;
    if (!is_last)
        build_bool(&b, "partialTxn", true);
    else if (UNLIKELY(group != NULL && group->prepared != NULL))
        build_bool(&b, "prepare", true);
    if (is_last && w->entry_count > 1)
        build_i64(&b, "count", writes->count);
    build_close(&b, o);
    build_identity(w, optime, statements, &b);
    oplog_build_tail(&b, optime.ts, optime.term, w->stage->wall_ms);
    return doc_builder_finish(&b, ENTRY_TEXT, ret_entry, err);
}

/* Into the unit that has the writes: they are undone with it. */
static ErrCode write_images(UnitWriter *w, uint32_t first, uint64_t ts, Error *err) {
    WriteGroup *group = w->op->write_group;
    bool is_other = group != NULL && group->prepared != NULL;
    if (is_other)
        op_unit_swap(w->op, group->prepared);
    ErrCode rc = images_write(w->writes, w->op, first, w->write - first, ts, err);
    if (is_other)
        op_unit_swap(w->op, group->prepared);
    return rc;
}

/* Writes all entries of the unit. The last one has the last timestamp; if an image needs the
 * timestamp before it, that one is left free. */
static ErrCode write_groups(UnitWriter *w, Error *err) {
    OplogStage *stage = w->stage;
    TRY(buffer_check(&w->writes->ops, ENTRY_TEXT, err));
    WriteGroup *group = w->op->write_group;
    w->previous = group != NULL ? group->previous : OPTIME_NONE;
    w->entry_count = count_entries(w->writes);
    if (w->entry_count == 0)
        w->entry_count = 1; /* a transaction that has only read is prepared all the same */
    uint64_t spare = session_write_needs_image(w->op) ? 1 : 0;
    TRY(oplog_reserve(w->oplog, w->op, stage, w->entry_count + spare, err));
    TRY(ru_set_commit_ts(w->op->ru, stage->last.ts, err));
    /* Images belong to these entries, whichever unit they are written in. */
    w->writes->last = stage->last;
    w->writes->wall_ms = stage->wall_ms;
    for (w->entry = 0; w->entry < w->entry_count; w->entry++) {
        bool is_last = w->entry + 1 == w->entry_count;
        uint64_t ts = is_last ? stage->last.ts : stage->first_ts + w->entry;
        OpTime optime = {ts, stage->last.term};
        ArenaMark mark = arena_mark(&w->op->arena);
        Doc entry;
        uint32_t first = w->write;
        TRY(build_group(w, optime, &entry, err));
        TRY(oplog_insert(w->oplog, w->op, ts, entry, err));
        stage->records++;
        stage->bytes += doc_size(entry);
        arena_rewind(&w->op->arena, mark); /* entries have up to 16 MB: keep one at a time */
        if (UNLIKELY(w->writes->images.count > 0))
            TRY(write_images(w, first, ts, err));
        w->previous = optime;
        if (group != NULL && w->entry == 0)
            group->first = optime;
        failpoint_hit(FP_OPLOG_UNIT_ENTRY_WRITTEN);
    }
    invariant(w->write == w->writes->count);
    if (group != NULL)
        group->last = stage->last;
    return ERR_OK;
}

/* The place in the oplog that it had remains empty. */
static ErrCode fail_create(OpCtx *op, Doc entry, Error *err) {
    Elem ns = doc_get_lit(entry, "ns"), name = doc_get_path(entry, "o.create");
    if (elem_type(ns) != BT_STRING || elem_type(name) != BT_STRING)
        return ERR_OK;
    char text[NS_TEXT_SIZE];
    snprintf(text, sizeof(text), "%.*s.%s", (int)strcspn(elem_str(ns).data, "."), elem_str(ns).data,
             elem_str(name).data);
    bool is_hit;
    TRY(op_hang_slow(op, FP_CREATE_HANG_WITH_OPTIME, text, &is_hit, err));
    return is_hit ? error_set(err, (ErrCode)LOCATION_CREATE_FAILPOINT,
                              "a failpoint fails the creation of %s", text)
                  : ERR_OK;
}

static ErrCode write_single(UnitWriter *w, Error *err) {
    OplogStage *stage = w->stage;
    uint64_t count = session_write_needs_image(w->op) ? 2 : 1;
    TRY(oplog_reserve(w->oplog, w->op, stage, count, err));
    failpoint_hit(FP_SLEEP_AFTER_OPTIME);
    TRY(ru_set_commit_ts(w->op->ru, stage->last.ts, err));
    if (session_write_has_statements(w->op))
        session_write_build_entry(w->op, stage->last, 1, /* is_last= */ true, &stage->open);
    oplog_build_tail(&stage->open, stage->last.ts, stage->last.term, stage->wall_ms);
    Doc entry;
    TRY(doc_builder_finish(&stage->open, ENTRY_TEXT, &entry, err));
    TRY(oplog_check_entry_size(entry, err));
    stage->records = 1;
    stage->bytes = doc_size(entry);
    TRY(oplog_insert(w->oplog, w->op, stage->last.ts, entry, err));
    if (UNLIKELY(failpoint_is_set(FP_CREATE_HANG_WITH_OPTIME)))
        TRY(fail_create(w->op, entry, err));
    return LIKELY(stage->images.count == 0) ? ERR_OK
                                            : images_write(stage, w->op, 0, 1, stage->last.ts, err);
}

ErrCode oplog_check_entry_size(Doc entry, Error *err) {
    if (LIKELY(doc_size(entry) <= OPLOG_ENTRY_BYTES_MAX))
        return ERR_OK;
    return error_set(err, ERR_BSON_OBJECT_TOO_LARGE, "%s is larger than the limit of %d bytes",
                     ENTRY_TEXT, OPLOG_ENTRY_BYTES_MAX);
}

ErrCode oplog_before_commit(void *arg, OpCtx *op, Error *err) {
    OplogStage *stage = op->oplog_stage;
    UnitWriter w = {.oplog = arg, .op = op, .stage = stage, .writes = stage};
    if (stage->count == 1 && op->write_group == NULL) {
        TRY(write_single(&w, err));
    } else if (stage->count > 0) { /* otherwise vectored: already written */
        build_close(&stage->open, stage->open.start);
        TRY(write_groups(&w, err));
    }
    if (UNLIKELY(op->write_group != NULL) && op->write_group->store != NULL)
        TRY(op->write_group->store(op->write_group->arg, op, stage->wall_ms, err));
    if (session_write_has_statements(op))
        TRY(session_write_store(op, stage->wall_ms, err));
    if (FAILPOINT(SLEEP_BEFORE_COMMIT))
        thread_sleep_us(SLEEP_BEFORE_COMMIT_US);
    return ERR_OK;
}

/* ---- the two phases of a transaction (txn/prepared.h) ---- */

static ErrCode write_prepare(void *arg, OpCtx *op, int64_t *ret_wall_ms, Error *err) {
    OplogStage *stage = oplog_stage_of(arg, op);
    OplogStage *writes = op->write_group->prepared->oplog_stage;
    if (writes == NULL)
        writes = stage; /* nothing was written */
    else if (writes->count > 0)
        build_close(&writes->open, writes->open.start);
    UnitWriter w = {.oplog = arg, .op = op, .stage = stage, .writes = writes};
    TRY(write_groups(&w, err));
    *ret_wall_ms = stage->wall_ms;
    return ERR_OK;
}

static ErrCode write_end(void *arg, OpCtx *op, Doc o, uint64_t after_ts, int64_t *ret_wall_ms,
                         Error *err) {
    OplogStage *stage = oplog_stage_of(arg, op);
    WriteGroup *group = op->write_group;
    oplog_advance_cluster_time(arg, after_ts);
    TRY(oplog_reserve(arg, op, stage, 1, err));
    TRY(ru_set_commit_ts(op->ru, stage->last.ts, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "op", "c");
    build_cstr(&b, "ns", "admin.$cmd");
    build_doc(&b, "o", o);
    group->build_identity(group->arg, &b);
    build_optime(&b, "prevOpTime", group->previous);
    oplog_build_tail(&b, stage->last.ts, stage->last.term, stage->wall_ms);
    Doc entry = doc_builder_end(&b);
    TRY(oplog_insert(arg, op, stage->last.ts, entry, err));
    stage->records = 1;
    stage->bytes = doc_size(entry);
    group->first = group->last = stage->last;
    *ret_wall_ms = stage->wall_ms;
    return ERR_OK;
}

TxnLog oplog_txn_log(Oplog *oplog) {
    return (TxnLog){oplog, write_prepare, write_end};
}
