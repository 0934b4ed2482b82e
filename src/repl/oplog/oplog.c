#include "repl/oplog/oplog.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/compare.h"
#include "catalog/write_group.h"
#include "ddl/ddl.h"
#include "repl/oplog/oplog_internal.h"
#include "storage/global_lock.h"
#include "storage/unit_of_work.h"
#include "txn/retryable.h"

enum {
    SLOTS_INITIAL = 256,
};
#define OPLOG_BYTES_MIN (INT64_C(990) << 20)
#define OPLOG_BYTES_MAX (INT64_C(50) << 30)

static const Ns OPLOG_NS = {.size = 14, .db_size = 5, .text = "local.oplog.rs"};

static void take_collection(Oplog *oplog);
static bool drop_finished(Oplog *oplog);
static ErrCode read_end(Oplog *oplog, OpCtx *op, bool is_forward, Doc *ret_entry, Error *err);

ErrCode oplog_open(OpCtx *op, double hours_min, Oplog **ret_oplog, Error *err) {
    Oplog *oplog = NEW(Oplog);
    oplog->service = op->service;
    oplog->engine = op_storage(op);
    oplog->term = OPTIME_TERM_NONE;
    oplog->applied = oplog->durable = OPTIME_NONE;
    mutex_init(&oplog->mu, LOCK_RANK_OPLOG);
    oplog->slots = xcalloc(SLOTS_INITIAL, sizeof(*oplog->slots));
    oplog->slot_capacity = SLOTS_INITIAL;
    markers_init(&oplog->markers);
    oplog_register_observer(oplog);
    oplog_set_limits(oplog, (OplogLimits){.hours_min = hours_min});
    take_collection(oplog);
    ErrCode rc = ERR_OK;
    if (oplog->coll != NULL)
        rc = truncate_point_open(oplog, op, err);
    if (rc != ERR_OK) {
        oplog_free(oplog);
        return rc;
    }
    *ret_oplog = oplog;
    return ERR_OK;
}

void oplog_free(Oplog *oplog) {
    if (oplog == NULL)
        return;
    storage_set_hooks(oplog->engine, &(StorageHooks){0});
    op_ctx_free(oplog->flush_op);
    collection_unref(oplog->coll);
    record_store_unref(oplog->truncate_point);
    markers_done(&oplog->markers);
    mutex_done(&oplog->mu);
    xfree(oplog->slots);
    xfree(oplog);
}

void oplog_set_moved(Oplog *oplog, OplogMovedFn fn, void *arg) {
    oplog->moved_arg = arg;
    oplog->moved = fn;
}

static void take_collection(Oplog *oplog) {
    Catalog *catalog = catalog_acquire(oplog->service->catalog);
    const Collection *coll = catalog_find(catalog, &OPLOG_NS);
    if (coll != NULL) {
        oplog->coll = collection_ref((Collection *)coll);
        OplogLimits limits = oplog_limits(oplog);
        limits.bytes_max = coll->options.capped_size;
        oplog_set_limits(oplog, limits);
    }
    catalog_release(catalog);
}

static int64_t default_bytes(StorageEngine *engine) {
    StorageStats stats;
    storage_stats(engine, &stats);
    int64_t bytes = stats.disk_free_bytes / 20;
    if (bytes < OPLOG_BYTES_MIN)
        return OPLOG_BYTES_MIN;
    return bytes > OPLOG_BYTES_MAX ? OPLOG_BYTES_MAX : bytes;
}

ErrCode oplog_ensure(Oplog *oplog, OpCtx *op, int64_t bytes, Error *err) {
    if (oplog->coll != NULL)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_bool(&b, "capped", true);
    build_i64(&b, "size", bytes > 0 ? bytes : default_bytes(oplog->engine));
    TRY(ddl_create_collection(op, &OPLOG_NS, doc_builder_end(&b), NULL, err));
    take_collection(oplog);
    TRY(truncate_point_open(oplog, op, err));
    /* The catalog is not journaled: after a crash journaled entries must not be in a table that the
     * catalog does not know. */
    return storage_checkpoint(oplog->engine, err);
}

bool oplog_exists(const Oplog *oplog) {
    return oplog->coll != NULL;
}

const Collection *oplog_collection(const Oplog *oplog) {
    return oplog->coll;
}

/* ---- positions ---- */

OpTime oplog_applied(const Oplog *oplog) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&((Oplog *)oplog)->mu);
    return oplog->applied;
}

OplogEnds oplog_ends(const Oplog *oplog) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&((Oplog *)oplog)->mu);
    return (OplogEnds){oplog->applied, oplog->applied_wall_ms, oplog->durable,
                       oplog->durable_wall_ms};
}

/* The visible timestamp is that of the last entry applied, set under the same mutex: set later,
 * that of an earlier advance could overtake it and hide entries that a majority is already known to
 * have, and a reader up to the commit point would pass over them for good. */
static void set_visible_locked(Oplog *oplog) {
    assert_held(&oplog->mu);
    storage_set_oplog_visible_ts(oplog->engine, oplog->applied.ts);
}

/* After the entries are visible: tailing readers that are notified must find them. Without the
 * mutex, since the callbacks take other locks. */
static void announce(Oplog *oplog) {
    if (oplog->coll != NULL)
        collection_capped_notify(oplog->coll, /* is_dropped= */ false);
    if (oplog->moved != NULL)
        oplog->moved(oplog->moved_arg, /* is_durable= */ false);
}

void oplog_set_applied(Oplog *oplog, OpTime optime, int64_t wall_ms) {
    mutex_lock(&oplog->mu);
    invariant(oplog->slot_first == oplog->slot_next);
    oplog->applied = optime;
    oplog->applied_wall_ms = wall_ms;
    /* A new primary continues after the entries of its predecessor, whatever its own clock says. */
    oplog->last_reserved = optime.ts;
    oplog_advance_cluster_time(oplog, optime.ts);
    set_visible_locked(oplog);
    mutex_unlock(&oplog->mu);
    announce(oplog);
}

void oplog_set_durable(Oplog *oplog, OpTime optime, int64_t wall_ms) {
    mutex_lock(&oplog->mu);
    oplog->durable = optime;
    oplog->durable_wall_ms = wall_ms;
    mutex_unlock(&oplog->mu);
    if (oplog->moved != NULL)
        oplog->moved(oplog->moved_arg, /* is_durable= */ true);
}

/* ---- reading ---- */

ErrCode oplog_entry_position(Doc entry, OpTime *ret_optime, int64_t *ret_wall_ms, Error *err) {
    Elem ts = doc_get_lit(entry, "ts");
    Elem term = doc_get_lit(entry, "t");
    Elem wall = doc_get_lit(entry, "wall");
    if (elem_type(ts) != BT_TIMESTAMP || !elem_is_number(term) || elem_type(wall) != BT_DATE)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "an oplog entry needs a timestamp 'ts', a number 't' and a date 'wall'");
    *ret_optime = (OpTime){(uint64_t)elem_i64(ts), elem_as_i64(term)};
    *ret_wall_ms = elem_i64(wall);
    return ERR_OK;
}

OpTime oplog_entry_optime(Doc entry) {
    return (OpTime){(uint64_t)elem_i64(doc_get_lit(entry, "ts")),
                    elem_as_i64(doc_get_lit(entry, "t"))};
}

ErrCode oplog_read_last(Oplog *oplog, OpCtx *op, Doc *ret_entry, Error *err) {
    return read_end(oplog, op, /* is_forward= */ false, ret_entry, err);
}

ErrCode oplog_read_first(Oplog *oplog, OpCtx *op, Doc *ret_entry, Error *err) {
    return read_end(oplog, op, /* is_forward= */ true, ret_entry, err);
}

typedef struct ReadArgs {
    const Oplog *oplog;
    bool is_forward;
    uint64_t ts; /* 0: the end */
    Doc *ret_entry;
} ReadArgs;

static ErrCode read_locked(OpCtx *op, const ReadArgs *args, Error *err) {
    RecordStore *records = args->oplog->coll->records;
    if (args->ts != 0)
        return record_read(op, records, record_id_num((int64_t)args->ts), &op->arena,
                           args->ret_entry, err);
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, records, args->is_forward, &cursor, err));
    bool is_found;
    RecordId rid;
    Str data;
    TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
    *args->ret_entry =
        is_found ? doc_copy((Doc){(const uint8_t *)data.data}, &op->arena) : DOC_NONE;
    return ERR_OK;
}

static ErrCode read_one(OpCtx *op, const ReadArgs *args, Error *err) {
    *args->ret_entry = DOC_NONE;
    if (args->oplog->coll == NULL)
        return ERR_OK;
    TRY(op_lock_global(op, LOCK_IS, err));
    ErrCode rc = read_locked(op, args, err);
    op_unlock_global(op);
    return rc;
}

static ErrCode read_end(Oplog *oplog, OpCtx *op, bool is_forward, Doc *ret_entry, Error *err) {
    return read_one(op, &(ReadArgs){oplog, is_forward, 0, ret_entry}, err);
}

ErrCode oplog_read_at(Oplog *oplog, OpCtx *op, uint64_t ts, Doc *ret_entry, Error *err) {
    return read_one(op, &(ReadArgs){oplog, /* is_forward= */ true, ts, ret_entry}, err);
}

/* ---- the logical clock ---- */

uint64_t oplog_cluster_time(const Oplog *oplog) {
    return atomic_load_explicit(&oplog->cluster_time, memory_order_acquire);
}

void oplog_advance_cluster_time(Oplog *oplog, uint64_t ts) {
    uint64_t seen = atomic_load_explicit(&oplog->cluster_time, memory_order_relaxed);
    while (seen < ts && !atomic_compare_exchange_weak(&oplog->cluster_time, &seen, ts))
        continue;
}

/* ---- slots ---- */

ErrCode oplog_begin_term(Oplog *oplog, OpCtx *op, int64_t term, Error *err) {
    atomic_store(&oplog->term, term); /* first: see truncate_point.c */
    ErrCode rc = truncate_point_begin(oplog, op, err);
    if (rc != ERR_OK)
        atomic_store(&oplog->term, OPTIME_TERM_NONE);
    return rc;
}

int64_t oplog_term(const Oplog *oplog) {
    return atomic_load_explicit(&oplog->term, memory_order_relaxed);
}

void oplog_end_term(Oplog *oplog) {
    atomic_store(&oplog->term, OPTIME_TERM_NONE);
}

static void grow_slots(Oplog *oplog) {
    uint64_t capacity = oplog->slot_capacity * 2;
    OplogSlot *slots = xcalloc(capacity, sizeof(*slots));
    for (uint64_t n = oplog->slot_first; n < oplog->slot_next; n++)
        slots[n & (capacity - 1)] = oplog->slots[n & (oplog->slot_capacity - 1)];
    xfree(oplog->slots);
    oplog->slots = slots;
    oplog->slot_capacity = capacity;
}

/* Hybrid clock: after every timestamp that this node has seen or handed out, and not before the
 * wall clock. */
static uint64_t next_ts_locked(const Oplog *oplog, int64_t wall_ms) {
    uint64_t wall_ts = (uint64_t)(wall_ms / 1000) << 32 | 1;
    uint64_t seen = atomic_load_explicit(&oplog->cluster_time, memory_order_relaxed);
    uint64_t next = (seen > oplog->last_reserved ? seen : oplog->last_reserved) + 1;
    return next < wall_ts ? wall_ts : next;
}

uint64_t oplog_tick(Oplog *oplog) {
    int64_t wall_ms = clock_wall_ms();
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&oplog->mu);
    uint64_t ts = next_ts_locked(oplog, wall_ms);
    oplog_advance_cluster_time(oplog, ts);
    return ts;
}

ErrCode oplog_reserve(Oplog *oplog, OpCtx *op, OplogStage *stage, uint64_t count, Error *err) {
    int64_t term = atomic_load_explicit(&oplog->term, memory_order_relaxed);
    if (UNLIKELY(term == OPTIME_TERM_NONE || oplog->coll == NULL))
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary");
    /* The snapshot first: of two writers of one document the second conflicts with the first unless
     * its snapshot is from after that commit. So if both succeed, the later one also has the later
     * time. */
    TRY(ru_open_snapshot(op->ru, err));
    int64_t wall_ms = clock_wall_ms();
    mutex_lock(&oplog->mu);
    uint64_t first = next_ts_locked(oplog, wall_ms);
    uint64_t last = first + count - 1;
    oplog->last_reserved = last;
    /* As many slots as concurrent units of work, bounded by the write tickets; a ring that rarely
     * grows. */
    if (oplog->slot_next - oplog->slot_first == oplog->slot_capacity)
        grow_slots(oplog);
    stage->slot = oplog->slot_next++;
    oplog->slots[stage->slot & (oplog->slot_capacity - 1)] =
        (OplogSlot){first, last, wall_ms, SLOT_OPEN};
    oplog_advance_cluster_time(oplog, last);
    mutex_unlock(&oplog->mu);

    stage->has_slot = true;
    stage->first_ts = first;
    stage->last = (OpTime){last, term};
    stage->wall_ms = wall_ms;
    ru_request_commit_hook(op->ru);
    return ERR_OK;
}

/* Everything before the oldest open slot is complete. Returns whether the end advanced. Aborted
 * slots leave gaps in the timestamps, which are harmless. */
static bool drop_finished(Oplog *oplog) {
    assert_held(&oplog->mu);
    bool is_moved = false;
    while (oplog->slot_first < oplog->slot_next) {
        const OplogSlot *slot = &oplog->slots[oplog->slot_first & (oplog->slot_capacity - 1)];
        if (slot->state == SLOT_OPEN)
            break;
        if (slot->state == SLOT_COMMITTED) {
            oplog->applied = (OpTime){slot->last, atomic_load(&oplog->term)};
            oplog->applied_wall_ms = slot->wall_ms;
            is_moved = true;
        }
        oplog->slot_first++;
    }
    return is_moved;
}

void oplog_after_unit(void *arg, OpCtx *op, bool is_committed) {
    Oplog *oplog = arg;
    OplogStage *stage = op->oplog_stage;
    if (stage->has_slot) {
        mutex_lock(&oplog->mu);
        oplog->slots[stage->slot & (oplog->slot_capacity - 1)].state =
            is_committed ? SLOT_COMMITTED : SLOT_ABORTED;
        bool is_moved = drop_finished(oplog);
        if (is_moved)
            set_visible_locked(oplog);
        mutex_unlock(&oplog->mu);
        if (is_committed) {
            op->last_optime = stage->last;
            markers_add(&oplog->markers, stage->last.ts, stage->records, stage->bytes,
                        stage->wall_ms);
        }
        if (is_moved)
            announce(oplog);
    }
    /* Also those of a prepared unit, whose entries have their slot in another one. */
    if (UNLIKELY(stage->images.count > 0) && is_committed)
        images_note(stage, op);
    if (UNLIKELY(op->write_group != NULL) && !is_committed)
        op->write_group->first = op->write_group->last = OPTIME_NONE;
    if (session_write_has_statements(op))
        session_write_end_unit(op, is_committed);
    oplog_stage_clear(stage);
}

/* ---- writing ---- */

void oplog_build_tail(DocBuilder *b, uint64_t ts, int64_t term, int64_t wall_ms) {
    build_timestamp(b, "ts", ts);
    build_i64(b, "t", term);
    build_i64(b, "v", OPLOG_VERSION);
    build_date(b, "wall", wall_ms);
}

ErrCode oplog_insert(Oplog *oplog, OpCtx *op, uint64_t ts, Doc entry, Error *err) {
    Str bytes = {(const char *)entry.data, doc_size(entry)};
    return record_insert(op, oplog->coll->records, record_id_num((int64_t)ts), bytes, err);
}

typedef struct NoopArgs {
    Oplog *oplog;
    Doc message;
    Doc o2;
    const char *ns; /* NULL: none */
} NoopArgs;

static ErrCode stage_noop(void *arg, OpCtx *op, Error *err) {
    (void)err;
    NoopArgs *args = arg;
    OplogStage *stage = oplog_stage_of(args->oplog, op);
    DocBuilder *b = &stage->open;
    stage->count = 1;
    doc_builder_init(b, &stage->ops);
    build_cstr(b, "op", "n");
    build_cstr(b, "ns", args->ns != NULL ? args->ns : "");
    if (UNLIKELY(op->mode.is_from_migrate))
        build_bool(b, "fromMigrate", true);
    build_doc(b, "o", args->message);
    if (doc_is_present(args->o2))
        build_doc(b, "o2", args->o2);
    if (session_write_is_on(op))
        session_write_build_statement(op, SESSION_WRITE_INSERT, 0, DOC_NONE, DOC_NONE, b);
    ru_request_commit_hook(op->ru);
    return ERR_OK;
}

static ErrCode write_noop(NoopArgs args, OpCtx *op, OpTime *ret_optime, Error *err) {
    TRY(op_lock_global(op, LOCK_IX, err));
    ErrCode rc = op_write_with_retry(op, stage_noop, &args, err);
    op_unlock_global(op);
    TRY(rc);
    *ret_optime = oplog_stage_of(args.oplog, op)->last;
    return ERR_OK;
}

ErrCode oplog_write_noop(Oplog *oplog, OpCtx *op, Doc message, OpTime *ret_optime, Error *err) {
    return write_noop((NoopArgs){.oplog = oplog, .message = message, .o2 = DOC_NONE}, op,
                      ret_optime, err);
}

ErrCode oplog_write_mark(Oplog *oplog, OpCtx *op, const Ns *ns, Doc message, Doc what,
                         OpTime *ret_optime, Error *err) {
    return write_noop((NoopArgs){oplog, message, what, ns->text}, op, ret_optime, err);
}

ErrCode oplog_write_statement(Oplog *oplog, OpCtx *op, Doc write, OpTime *ret_optime, Error *err) {
    return write_noop((NoopArgs){.oplog = oplog, .message = DOC_EMPTY, .o2 = write}, op, ret_optime,
                      err);
}

typedef struct BatchArgs {
    Oplog *oplog;
    OpTime after;
    const Doc *entries;
    size_t count;
} BatchArgs;

/* Checked in the table itself, in the writing transaction: whatever went wrong before, two
 * histories are never merged. */
static ErrCode check_end(const BatchArgs *args, OpCtx *op, Error *err) {
    if (atomic_load(&args->oplog->term) != OPTIME_TERM_NONE)
        return error_set(err, ERR_OPLOG_OUT_OF_ORDER,
                         "a primary takes no oplog entries of other members");
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, args->oplog->coll->records, /* is_forward= */ false, &cursor, err));
    bool is_found;
    RecordId rid;
    Str data;
    TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
    OpTime end = is_found ? oplog_entry_optime((Doc){(const uint8_t *)data.data}) : OPTIME_NONE;
    if (optime_equal(end, args->after))
        return ERR_OK;
    return error_set(err, ERR_OPLOG_OUT_OF_ORDER,
                     "oplog entries that follow (%u, %u) of term %lld were to be written behind "
                     "(%u, %u) of term %lld: they belong to another history",
                     ts_seconds(args->after.ts), (uint32_t)args->after.ts,
                     (long long)args->after.term, ts_seconds(end.ts), (uint32_t)end.ts,
                     (long long)end.term);
}

static ErrCode append_entries(void *arg, OpCtx *op, Error *err) {
    BatchArgs *args = arg;
    TRY(check_end(args, op, err));
    for (size_t i = 0; i < args->count; i++) {
        Elem ts = doc_get_lit(args->entries[i], "ts");
        TRY(oplog_insert(args->oplog, op, (uint64_t)elem_i64(ts), args->entries[i], err));
    }
    return ERR_OK;
}

ErrCode oplog_append_batch(Oplog *oplog, OpCtx *op, OpTime after, const Doc *entries, size_t count,
                           Error *err) {
    if (count == 0)
        return ERR_OK;
    BatchArgs args = {oplog, after, entries, count};
    OpTime last = after;
    int64_t wall_ms = 0, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        OpTime optime;
        TRY(oplog_entry_position(entries[i], &optime, &wall_ms, err));
        /* Checked before anything is written; check_end then ties the first entry to the table. */
        if (!oplog_may_follow(last, optime))
            return error_set(err, ERR_OPLOG_OUT_OF_ORDER, "oplog entries are out of order");
        last = optime;
        bytes += doc_size(entries[i]);
    }
    TRY(op_lock_global(op, LOCK_IX, err));
    ErrCode rc = op_write_with_retry(op, append_entries, &args, err);
    op_unlock_global(op);
    if (rc == ERR_OK)
        markers_add(&oplog->markers, last.ts, (int64_t)count, bytes, wall_ms);
    return rc;
}

typedef struct CutArgs {
    Oplog *oplog;
    uint64_t ts;
    int64_t count; /* what was cut */
    int64_t bytes;
} CutArgs;

static ErrCode cut_entries(void *arg, OpCtx *op, Error *err) {
    CutArgs *args = arg;
    RecordStore *records = args->oplog->coll->records;
    args->count = args->bytes = 0;
    RecordId first = RECORD_ID_NONE, last = RECORD_ID_NONE;
    {
        /* Backwards: also removes entries that are not visible yet. */
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        TRY(record_cursor_open(op, records, /* is_forward= */ false, &cursor, err));
        for (;;) {
            bool is_found;
            RecordId rid;
            Str data;
            TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
            if (!is_found || (uint64_t)rid.num <= args->ts)
                break;
            first = rid;
            if (args->count++ == 0)
                last = rid;
            args->bytes += (int64_t)data.size;
        }
    }
    if (args->count > 0)
        TRY(record_store_truncate_range(op, records, first, last, args->count, args->bytes, err));
    return ERR_OK;
}

ErrCode oplog_truncate_after(Oplog *oplog, OpCtx *op, uint64_t ts, Error *err) {
    CutArgs args = {.oplog = oplog, .ts = ts};
    TRY(op_lock_global(op, LOCK_IX, err));
    ErrCode rc = op_write_with_retry(op, cut_entries, &args, err);
    op_unlock_global(op);
    if (rc == ERR_OK)
        markers_forget_after(&oplog->markers, ts, args.count, args.bytes);
    return rc;
}
