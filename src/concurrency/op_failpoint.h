/*
 * op_failpoint.h - failpoints at which operations wait, and that a test restricts to some of them.
 *
 * An operation that waits shows the failpoint's name in currentOp, as `failpointMsg`. Members of
 * the failpoint's data that choose: `ns`, `nss`, `namespace` or `collectionNS` an operation's
 * namespace, `commands` its command. `shouldCheckForInterrupt: true` lets a kill or a deadline end
 * the wait; else it ends only with the failpoint, or when the node stops.
 */
#pragma once

#include "base/failpoint.h"
#include "concurrency/op_ctx.h"

bool op_failpoint_take_slow(OpCtx *op, FailpointId id, const char *ns);
/* *ret_is_hit: it was for this operation, which has waited. */
ErrCode op_hang_slow(OpCtx *op, FailpointId id, const char *ns, bool *ret_is_hit, Error *err)
    MUST_CHECK;

/* The same, where a kill ends the wait in any case. */
ErrCode op_hang_until_killed(OpCtx *op, FailpointId id, const char *ns, Error *err) MUST_CHECK;

/* Does it fire for this operation? `ns` NULL: the one that the operation shows. */
static inline bool op_failpoint_take(OpCtx *op, FailpointId id, const char *ns) {
    return failpoint_is_set(id) && op_failpoint_take_slow(op, id, ns);
}

/* Waits as long as the failpoint is on. */
static inline ErrCode op_hang(OpCtx *op, FailpointId id, const char *ns, Error *err) {
    bool is_hit;
    return failpoint_is_set(id) ? op_hang_slow(op, id, ns, &is_hit, err) : ERR_OK;
}
