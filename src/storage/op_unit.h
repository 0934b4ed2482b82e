/*
 * op_unit.h - what an operation holds of storage: its transaction, its locks, and what layers above
 * have staged for the commit; apart from the operation.
 *
 * A transaction of a client lasts longer than each of its statements. Between them its unit is off:
 * it belongs to no operation, thread or worker and holds no ticket. A statement puts it on, in
 * place of the operation's own, works as if the unit of work had been begun by itself, and takes it
 * off again.
 *
 * Ownership:  whoever made it. Threading: one thread at a time; that it is off when another thread
 *             puts it on is the owner's care (txn/: the session is checked out).
 * Crash:      gone, as every open storage transaction.
 */
#pragma once

#include "concurrency/op_ctx.h"
#include "storage/engine.h"

typedef struct OpUnit {
    RecoveryUnit *ru;
    Locker locker;
    OpParts parts;
    struct CatalogStage *catalog_stage;
    struct OplogStage *oplog_stage;
    struct SessionWrite *session_write;
    struct WriteGroup *write_group;
    uint8_t observers_heard;
} OpUnit;

OpUnit *op_unit_new(StorageEngine *engine, OpRegistry *registry);
void op_unit_free(OpUnit *unit); /* no unit of work is open, no lock held; NULL is fine */

/* The operation holds no lock. */
void op_unit_put_on(OpCtx *op, OpUnit *unit);
/* Also returns the ticket, and closes the cursors of writes: their positions would keep pages in
 * the cache. */
void op_unit_take_off(OpCtx *op, OpUnit *unit);
/* Exchanges the two for a moment, whatever both hold; called again, it puts them back. */
void op_unit_swap(OpCtx *op, OpUnit *unit);
