#include "storage/op_unit.h"

#include "base/alloc.h"
#include "concurrency/lock_manager.h"
#include "concurrency/tickets.h"
#include "storage/storage_internal.h"

OpUnit *op_unit_new(StorageEngine *engine, OpRegistry *registry) {
    OpUnit *unit = NEW(OpUnit);
    unit->ru = ru_new(engine);
    locker_init(&unit->locker, op_registry_locks(registry));
    return unit;
}

void op_unit_free(OpUnit *unit) {
    if (unit == NULL)
        return;
    op_parts_free(&unit->parts);
    ru_free(unit->ru);
    locker_done(&unit->locker);
    xfree(unit);
}

#define SWAP(a, b)                                                                                 \
    do {                                                                                           \
        __typeof__(a) swapped_ = (a);                                                              \
        (a) = (b);                                                                                 \
        (b) = swapped_;                                                                            \
    } while (0)

void op_unit_swap(OpCtx *op, OpUnit *unit) {
    SWAP(op->ru, unit->ru);
    SWAP(op->parts, unit->parts);
    SWAP(op->catalog_stage, unit->catalog_stage);
    SWAP(op->oplog_stage, unit->oplog_stage);
    SWAP(op->session_write, unit->session_write);
    SWAP(op->write_group, unit->write_group);
    SWAP(op->observers_heard, unit->observers_heard);
    locker_swap(&op->locker, &unit->locker);
    lock_show_all(op);
    op->ru->op = op;
    unit->ru->op = NULL;
    /* A change of the node's state finds those that it must end by this mark. */
    atomic_store_explicit(&op->has_state_lock, lock_is_held(op, RESOURCE_ID_RSTL, LOCK_IS),
                          memory_order_relaxed);
}

void op_unit_put_on(OpCtx *op, OpUnit *unit) {
    invariant(op->ru->snapshot_id == 0 && op->ru->depth == 0 && op->locker.held_count == 0);
    op_unit_swap(op, unit);
}

void op_unit_take_off(OpCtx *op, OpUnit *unit) {
    if (op->ru->prepare_ts == 0)
        ru_close_write_cursors(op->ru);
    ticket_release(op);
    op_unit_swap(op, unit);
    invariant(op->ru->snapshot_id == 0 && op->ru->depth == 0 && op->locker.held_count == 0);
}
