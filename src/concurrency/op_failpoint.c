#include "concurrency/op_failpoint.h"

#include <string.h>

#include "base/alloc.h"
#include "bson/doc.h"

enum {
    HANG_STEP_US = 5 * 1000,
};

/* Without a list of commands: all of them. */
static bool is_listed(Elem commands, const OpCtx *op) {
    if (elem_type(commands) != BT_ARRAY)
        return true;
    if (op->desc.command == NULL)
        return false;
    const char *name = elem_name((Elem){op->desc.command + 4, 0});
    DocIter iter = doc_iter(elem_doc(commands));
    for (Elem listed; doc_iter_next(&iter, &listed);)
        if (elem_type(listed) == BT_STRING && str_is(elem_str(listed), name))
            return true;
    return false;
}

static bool is_meant(Doc data, const OpCtx *op, const char *ns) {
    static const char *const NS_NAMES[] = {"ns", "nss", "namespace", "collectionNS"};
    for (size_t i = 0; i < ARRAY_LEN(NS_NAMES); i++) {
        Elem wanted = doc_get(data, str_from(NS_NAMES[i]));
        bool is_ns = elem_type(wanted) == BT_STRING && elem_str(wanted).size > 0;
        if (is_ns && (ns == NULL || !str_is(elem_str(wanted), ns)))
            return false;
    }
    return is_listed(doc_get_lit(data, "commands"), op);
}

/* *ret_checks: the wait ends with the operation. */
static bool take(OpCtx *op, FailpointId id, const char *ns, bool *ret_checks) {
    FailpointConfig config = failpoint_config(id);
    CLEANUP(xfree_ptr) uint8_t *bytes = config.data;
    *ret_checks = false;
    if (bytes != NULL) {
        if (!is_meant((Doc){bytes}, op, ns != NULL ? ns : op->desc.ns))
            return false;
        *ret_checks = elem_is_truthy(doc_get_lit((Doc){bytes}, "shouldCheckForInterrupt"));
    }
    return failpoint_enter(id);
}

bool op_failpoint_take_slow(OpCtx *op, FailpointId id, const char *ns) {
    bool has_checks;
    return take(op, id, ns, &has_checks);
}

static ErrCode hang(OpCtx *op, FailpointId id, bool has_checks, Error *err);

static const char *show(OpCtx *op, const char *msg) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&op->mu);
    const char *before = op->desc.failpoint_msg;
    op->desc.failpoint_msg = msg;
    return before;
}

ErrCode op_hang_slow(OpCtx *op, FailpointId id, const char *ns, bool *ret_is_hit, Error *err) {
    bool has_checks;
    *ret_is_hit = take(op, id, ns, &has_checks);
    return *ret_is_hit ? hang(op, id, has_checks, err) : ERR_OK;
}

ErrCode op_hang_until_killed(OpCtx *op, FailpointId id, const char *ns, Error *err) {
    return op_failpoint_take(op, id, ns) ? hang(op, id, /* has_checks= */ true, err) : ERR_OK;
}

static ErrCode hang(OpCtx *op, FailpointId id, bool has_checks, Error *err) {
    const char *before = show(op, failpoint_name(id));
    failpoint_tell_hang(id);
    ErrCode rc = ERR_OK;
    while (rc == ERR_OK && failpoint_is_on(id)) {
        if (has_checks) {
            rc = op_sleep_us(op, HANG_STEP_US, err);
        } else {
            op_block_begin(op);
            thread_sleep_us(HANG_STEP_US);
            op_block_end(op);
        }
    }
    (void)show(op, before);
    return rc;
}
