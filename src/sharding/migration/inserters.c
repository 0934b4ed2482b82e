#include "sharding/migration/inserters.h"

#include <stdatomic.h>

#include "sharding/migration/beside.h"
#include "sharding/migration/range_writer.h"

enum {
    UNIT_DOCS_MAX = 500, /* of one storage transaction */
    UNIT_BYTES_MAX = 1 << 20,
    THREADS_MAX = 16,
};

typedef struct Unit {
    const Doc *docs;
    uint32_t count;
} Unit;

/* What the threads share. */
typedef struct Batch {
    const Move *move;
    Unit *units;
    uint32_t count;
    _Atomic uint32_t next; /* relaxed: units were there before the threads were */
} Batch;

static uint32_t count_rows(Doc array, InsertedCounts *counts) {
    uint32_t count = 0;
    DocIter iter = doc_iter(array);
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) != BT_DOC)
            continue;
        count++;
        counts->bytes += (int64_t)doc_size(elem_doc(row));
    }
    counts->docs += count;
    return count;
}

static void split(Doc array, uint32_t doc_count, Arena *arena, Batch *batch) {
    Doc *docs = ARENA_ARRAY(arena, Doc, doc_count + 1);
    batch->units = ARENA_ARRAY(arena, Unit, doc_count + 1);
    size_t bytes = 0;
    Unit unit = {.docs = docs};
    DocIter iter = doc_iter(array);
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) != BT_DOC)
            continue;
        *docs++ = elem_doc(row);
        bytes += doc_size(elem_doc(row));
        if (++unit.count < UNIT_DOCS_MAX && bytes < UNIT_BYTES_MAX)
            continue;
        batch->units[batch->count++] = unit;
        unit = (Unit){.docs = docs};
        bytes = 0;
    }
    if (unit.count > 0)
        batch->units[batch->count++] = unit;
}

/* Takes units until none is left. Whoever fails leaves none to the others. */
static ErrCode insert_units(void *arg, OpCtx *op, Error *err) {
    Batch *batch = arg;
    RangeWriter writer;
    range_writer_init(&writer, op, batch->move);
    ErrCode rc = ERR_OK;
    while (rc == ERR_OK) {
        uint32_t at = atomic_fetch_add_explicit(&batch->next, 1, memory_order_relaxed);
        if (at >= batch->count)
            break;
        rc = range_writer_insert(&writer, batch->units[at].docs, batch->units[at].count, err);
        if (rc == ERR_OK)
            rc = op_check_interrupt(op, err);
    }
    if (rc != ERR_OK)
        atomic_store_explicit(&batch->next, batch->count, memory_order_relaxed);
    range_writer_done(&writer);
    return rc;
}

static uint32_t helpers_of(const MoveRun *run, const Batch *batch) {
    int64_t threads = run->migrations->settings(run->op->service).clone_threads;
    int64_t wanted = threads < batch->count ? threads : batch->count;
    wanted = wanted < THREADS_MAX ? wanted : THREADS_MAX;
    return wanted > 1 ? (uint32_t)wanted - 1 : 0;
}

ErrCode insert_batch(MoveRun *run, Doc array, InsertedCounts *ret_counts, Error *err) {
    OpCtx *op = run->op;
    *ret_counts = (InsertedCounts){0};
    Batch batch = {.move = &run->move};
    split(array, count_rows(array, ret_counts), &op->arena, &batch);
    Beside helpers[THREADS_MAX];
    uint32_t helper_count = helpers_of(run, &batch);
    for (uint32_t i = 0; i < helper_count; i++)
        beside_start(&helpers[i], run, insert_units, &batch);
    ErrCode rc = insert_units(&batch, op, err);
    for (uint32_t i = 0; i < helper_count; i++) {
        CLEANUP(error_reset) Error helper_err = {0};
        ErrCode helper_rc = beside_join(&helpers[i], &helper_err);
        if (rc == ERR_OK && helper_rc != ERR_OK) {
            rc = helper_rc;
            error_move(err, &helper_err);
        }
        /* Whoever waits for a write concern waits for all of it. */
        op->last_optime = optime_max(op->last_optime, helpers[i].op->last_optime);
        beside_done(&helpers[i]);
    }
    return rc;
}
