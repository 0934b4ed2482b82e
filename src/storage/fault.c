/*
 * fault.c - calls of WiredTiger that fail because a test wants it (failpoint storage.call).
 *
 * data is {call: n, error: "EIO" | "ENOSPC" | "WT_ROLLBACK", thread: prefix}. A call that fails so
 * is not made at all, as if WiredTiger had found out before it began.
 */
#include <errno.h>

#include "base/alloc.h"
#include "bson/doc.h"
#include "storage/storage_internal.h"

typedef struct Fault {
    const char *name;
    int rc;
} Fault;

static const Fault FAULTS[] = {
    {"EIO", EIO},
    {"ENOSPC", ENOSPC},
    {"WT_ROLLBACK", WT_ROLLBACK},
};

static int configured_fault(void) {
    FailpointConfig config = failpoint_config(FP_STORAGE_CALL);
    int rc = EIO;
    if (config.data != NULL) {
        Elem error = doc_get_lit((Doc){config.data}, "error");
        for (size_t i = 0; elem_type(error) == BT_STRING && i < ARRAY_LEN(FAULTS); i++)
            if (str_is(elem_str(error), FAULTS[i].name))
                rc = FAULTS[i].rc;
        xfree(config.data);
    }
    return rc;
}

int wt_fault_slow(bool can_conflict) {
    int rc = configured_fault();
    if (!can_conflict && rc == WT_ROLLBACK)
        return 0;
    return failpoint_enter_slow(FP_STORAGE_CALL, "") ? rc : 0;
}
