/* cmd_sleep.c - sleep: for tests, an operation that takes time and perhaps holds a lock. */
#include "commands/core/command_service.h"
#include "storage/global_lock.h"

enum {
    SLEEP_MS_DEFAULT = 10 * 1000,
    LOCATION_TWO_LOCKS = 34346,
    LOCATION_UNKNOWN_LOCK = 34347,
};

typedef struct SleepRequest {
    Elem sleep;
    Elem lock;      /* "none", "ir", "iw", "r" or "w" */
    Elem is_writer; /* the old name of {lock: "w"} */
    Elem target;    /* a database or a collection; "RSTL"; missing: all there is */
    Elem secs;
    Elem seconds;
    Elem millis;
} SleepRequest;

static const struct {
    const char *name;
    LockMode mode;
} MODES[] = {{"ir", LOCK_IS}, {"iw", LOCK_IX}, {"r", LOCK_S}, {"w", LOCK_X}};

static ErrCode parse_mode(const SleepRequest *request, bool *ret_is_locking, LockMode *ret_mode,
                          Error *err) {
    if (elem_is_present(request->lock) && elem_is_present(request->is_writer))
        return error_set(err, (ErrCode)LOCATION_TWO_LOCKS,
                         "Only one of 'w' and 'lock' may be set, and 'w' is deprecated.");
    *ret_is_locking = true;
    *ret_mode = elem_is_truthy(request->is_writer) ? LOCK_X : LOCK_S;
    if (!elem_is_present(request->lock))
        return ERR_OK;
    Str name = elem_type(request->lock) == BT_STRING ? elem_str(request->lock) : STR("?");
    if (str_is(name, "none")) {
        *ret_is_locking = false;
        return ERR_OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(MODES); i++) {
        if (str_is(name, MODES[i].name)) {
            *ret_mode = MODES[i].mode;
            return ERR_OK;
        }
    }
    return error_set(err, (ErrCode)LOCATION_UNKNOWN_LOCK,
                     "'lock' must be one of 'ir', 'iw', 'r', 'w', 'none'.");
}

/* Of negative times no time is left. */
static int64_t sleep_us(const SleepRequest *request) {
    static const int64_t MS_MAX = INT64_C(1) << 50;
    if (!elem_is_number(request->secs) && !elem_is_number(request->seconds) &&
        !elem_is_number(request->millis))
        return SLEEP_MS_DEFAULT * INT64_C(1000);
    double ms = 0;
    ms += elem_is_number(request->secs) ? elem_as_f64(request->secs) * 1000 : 0;
    ms += elem_is_number(request->seconds) ? elem_as_f64(request->seconds) * 1000 : 0;
    ms += elem_is_number(request->millis) ? elem_as_f64(request->millis) : 0;
    return !(ms > 0) ? 0 : ms > (double)MS_MAX ? MS_MAX * 1000 : (int64_t)(ms * 1000);
}

/* Sleeps with the lock of the first of `count` resources in that mode; with those above it in the
 * intent. */
static ErrCode sleep_locked(OpCtx *op, const ResourceId *resources, size_t count, LockMode mode,
                            int64_t us, Error *err) {
    if (count == 0)
        return op_sleep_us(op, us, err);
    LockMode here = count == 1 ? mode : (mode == LOCK_IS || mode == LOCK_S ? LOCK_IS : LOCK_IX);
    TRY(lock_acquire(op, resources[0], here, LOCK_DEFAULT, INT64_MAX, err));
    ErrCode rc = sleep_locked(op, resources + 1, count - 1, mode, us, err);
    lock_release(op, resources[0]);
    return rc;
}

static ErrCode sleep_run(CommandCtx *ctx, void *arg, Error *err) {
    const SleepRequest *request = arg;
    OpCtx *op = ctx->op;
    bool is_locking;
    LockMode mode;
    TRY(parse_mode(request, &is_locking, &mode, err));
    int64_t us = sleep_us(request);
    if (!is_locking)
        return op_sleep_us(op, us, err);
    Str target = elem_type(request->target) == BT_STRING ? elem_str(request->target) : STR("");
    ResourceId below[2];
    size_t count = 0;
    if (str_is(target, "RSTL")) {
        below[count++] = RESOURCE_ID_RSTL;
    } else if (target.size > 0) {
        Str db = {target.data, strcspn(target.data, ".")};
        below[count++] = db_resource(db);
        if (db.size < target.size)
            below[count++] = resource_id(RESOURCE_COLLECTION, target.data, target.size);
    }
    bool is_reading = mode == LOCK_IS || mode == LOCK_S;
    TRY(op_lock_global(op, count == 0 ? mode : is_reading ? LOCK_IS : LOCK_IX, err));
    ErrCode rc = sleep_locked(op, below, count, mode, us, err);
    op_unlock_global(op);
    return rc;
}

static const FieldSpec SLEEP_FIELDS[] = {
    {"sleep", FIELD_ELEM, FIELD_REQUIRED, offsetof(SleepRequest, sleep)},
    {"lock", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SleepRequest, lock)},
    {"w", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SleepRequest, is_writer)},
    {"lockTarget", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SleepRequest, target)},
    {"secs", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SleepRequest, secs)},
    {"seconds", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SleepRequest, seconds)},
    {"millis", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SleepRequest, millis)},
};

const CommandSpec CMD_SLEEP = {
    .name = "sleep",
    .summary = "For tests: takes time, with or without a lock.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS | CMD_LOOSE,
    .request = REQUEST_OF(SleepRequest, SLEEP_FIELDS),
    .run = sleep_run,
};
