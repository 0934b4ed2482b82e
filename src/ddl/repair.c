/* repair.c - what a repair locks. */
#include "ddl/ddl_internal.h"
#include "index/validate.h"

ErrCode ddl_lock_for_repair(OpCtx *op, const Ns *ns, RepairLock *ret_lock, Error *err) {
    *ret_lock = (RepairLock){.ns = *ns};
    for (;;) {
        Catalog *catalog = catalog_acquire(op_catalog(op));
        const Collection *coll = catalog_find(catalog, ns);
        bool is_found = coll != NULL;
        Uuid uuid = is_found ? coll->uuid : (Uuid){{0}};
        catalog_release(catalog);
        if (!is_found)
            return ERR_OK;
        TRY(lost_and_found_ns(&uuid, &ret_lock->lost_and_found, err));
        TRY(ddl_lock_two(op, ns, &ret_lock->lost_and_found, err));
        ret_lock->op = op;
        /* The name may have gone to another collection before it was locked. */
        catalog = catalog_acquire(op_catalog(op));
        coll = catalog_find(catalog, ns);
        bool is_same = coll != NULL && uuid_equal(&coll->uuid, &uuid);
        catalog_release(catalog);
        if (is_same)
            return ERR_OK;
        repair_lock_done(ret_lock);
    }
}

void repair_lock_done(RepairLock *lock) {
    if (lock->op == NULL)
        return;
    ddl_unlock_two(lock->op, &lock->ns, &lock->lost_and_found);
    lock->op = NULL;
}
