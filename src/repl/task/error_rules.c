#include "repl/task/error_rules.h"

enum {
    BACK_OFF_US_MIN = 50 * 1000,
    BACK_OFF_US_MAX = 10 * 1000 * 1000,
    BACK_OFF_DOUBLINGS_MAX = 8, /* 50 ms * 2^8 is past the maximum */
};

typedef struct ClassRow {
    ErrCode code;
    TaskErrorClass of;
} ClassRow;

/* Codes of state are not here: error_is_of_state knows them. */
static const ClassRow CLASSES[] = {
    {ERR_HOST_UNREACHABLE, TASK_ERROR_NETWORK},
    {ERR_HOST_NOT_FOUND, TASK_ERROR_NETWORK},
    {ERR_NETWORK_TIMEOUT, TASK_ERROR_NETWORK},
    {ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT, TASK_ERROR_NETWORK},
    {ERR_SOCKET_EXCEPTION, TASK_ERROR_NETWORK},
    {ERR_MAX_TIME_MS_EXPIRED, TASK_ERROR_TIMEOUT},
    {ERR_EXCEEDED_TIME_LIMIT, TASK_ERROR_TIMEOUT},
    {ERR_LOCK_TIMEOUT, TASK_ERROR_TIMEOUT},
    {ERR_WRITE_CONCERN_FAILED, TASK_ERROR_TIMEOUT},
    {ERR_READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET, TASK_ERROR_TIMEOUT},
    {ERR_LOCK_BUSY, TASK_ERROR_CONFLICT},
    {ERR_LOCK_FAILED, TASK_ERROR_CONFLICT},
    {ERR_WRITE_CONFLICT, TASK_ERROR_CONFLICT},
    {ERR_CONFLICTING_OPERATION_IN_PROGRESS, TASK_ERROR_CONFLICT},
    {ERR_CONFIGURATION_IN_PROGRESS, TASK_ERROR_CONFLICT},
    {ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_DATABASE, TASK_ERROR_CONFLICT},
    {ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE, TASK_ERROR_CONFLICT},
    {ERR_BACKUP_CURSOR_OPEN_CONFLICT_WITH_CHECKPOINT, TASK_ERROR_CONFLICT},
    {ERR_QUERY_PLAN_KILLED, TASK_ERROR_CONFLICT},
    {ERR_CURSOR_NOT_FOUND, TASK_ERROR_CONFLICT},
    {ERR_INTERRUPTED, TASK_ERROR_CONFLICT}, /* killOp of what the phase had begun elsewhere */
    {ERR_MIGRATION_CONFLICT, TASK_ERROR_STALE},
    {ERR_STALE_CONFIG, TASK_ERROR_STALE},
    {ERR_STALE_CLUSTER_TIME, TASK_ERROR_STALE},
    {ERR_SNAPSHOT_TOO_OLD, TASK_ERROR_STALE},
    {ERR_SNAPSHOT_UNAVAILABLE, TASK_ERROR_STALE},
    {ERR_OUT_OF_DISK_SPACE, TASK_ERROR_RESOURCE},
    {ERR_EXCEEDED_MEMORY_LIMIT, TASK_ERROR_RESOURCE},
    {ERR_TOO_MANY_FILES_OPEN, TASK_ERROR_RESOURCE},
    {ERR_DATA_CORRUPTION_DETECTED, TASK_ERROR_DAMAGE},
};

TaskErrorClass task_error_class(ErrCode code) {
    if (error_is_of_state(code))
        return TASK_ERROR_NOT_PRIMARY;
    for (size_t i = 0; i < ARRAY_LEN(CLASSES); i++)
        if (CLASSES[i].code == code)
            return CLASSES[i].of;
    return TASK_ERROR_OTHER;
}

TaskErrorRule task_rule_of(const TaskErrorRules *rules, bool can_fail, ErrCode code) {
    static const TaskErrorRules DEFAULTS = {{
        [TASK_ERROR_NETWORK] = TASK_RETRY,
        [TASK_ERROR_NOT_PRIMARY] = TASK_RETRY,
        [TASK_ERROR_TIMEOUT] = TASK_RETRY,
        [TASK_ERROR_CONFLICT] = TASK_RETRY,
        [TASK_ERROR_STALE] = TASK_RETRY,
        [TASK_ERROR_RESOURCE] = TASK_RETRY,
        [TASK_ERROR_DAMAGE] = TASK_STOP,
        [TASK_ERROR_OTHER] = TASK_FAIL,
    }};
    TaskErrorClass of = task_error_class(code);
    TaskErrorRule rule = rules->of[of];
    if (rule == TASK_BY_DEFAULT)
        rule = DEFAULTS.of[of];
    return rule == TASK_FAIL && !can_fail ? TASK_RETRY : rule;
}

int64_t task_back_off_us(uint32_t failures, Prng *prng) {
    uint32_t doublings = failures > 0 ? failures - 1 : 0;
    if (doublings > BACK_OFF_DOUBLINGS_MAX)
        doublings = BACK_OFF_DOUBLINGS_MAX;
    int64_t us = (int64_t)BACK_OFF_US_MIN << doublings;
    if (us > BACK_OFF_US_MAX)
        us = BACK_OFF_US_MAX;
    return us - (int64_t)prng_below(prng, (uint64_t)us / 2);
}
