#include "storage/global_lock.h"

#include "storage/engine.h"
#include "storage/recovery_unit.h"

ErrCode op_lock_global(OpCtx *op, LockMode mode, Error *err) {
    if (op->held_ticket == NULL)
        TRY(ticket_acquire(storage_tickets(op_storage(op), mode != LOCK_IS && mode != LOCK_S), op,
                           err));
    ErrCode rc = lock_acquire(op, RESOURCE_ID_GLOBAL, mode, LOCK_DEFAULT, INT64_MAX, err);
    /* A nested call must not release the ticket of the outer one. */
    if (rc != ERR_OK && op->locker.held_count == 0)
        ticket_release(op);
    return rc;
}

void op_unlock_global(OpCtx *op) {
    lock_release(op, RESOURCE_ID_GLOBAL);
    /* Inside of a transaction the lock stays, and with it snapshot and ticket. */
    if (lock_is_held(op, RESOURCE_ID_GLOBAL, LOCK_IS))
        return;
    /* Reads end their snapshot with the last global lock: an idle operation must not pin old
     * versions. */
    ru_abandon_snapshot(op->ru);
    ticket_release(op);
}
