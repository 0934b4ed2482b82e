/*
 * error_rules.h - what a task does after a failure: classes of errors, the rule of each phase, and
 * how long to wait before trying again. Pure.
 */
#pragma once

#include "base/error.h"
#include "base/prng.h"

typedef enum TaskErrorClass {
    TASK_ERROR_NETWORK,     /* a node could not be reached, or did not answer */
    TASK_ERROR_NOT_PRIMARY, /* another node is not in the state it should be in, or goes away */
    TASK_ERROR_TIMEOUT,     /* time was up: of a call, a lock, a write concern */
    TASK_ERROR_CONFLICT,    /* somebody else was in the way */
    TASK_ERROR_STALE,       /* what was known of the cluster was out of date */
    TASK_ERROR_RESOURCE,    /* no room on a disk, no memory, no descriptors */
    TASK_ERROR_DAMAGE,      /* data are not as they can be: nobody but an operator can tell why */
    TASK_ERROR_OTHER,       /* everything else: the work itself is refused */
    TASK_ERROR_CLASS_COUNT,
} TaskErrorClass;

TaskErrorClass task_error_class(ErrCode code);

typedef enum TaskErrorRule {
    TASK_BY_DEFAULT, /* of the class and the kind of phase; see task_rule_of */
    TASK_RETRY,      /* again after a while that doubles; for ever */
    TASK_FAIL,       /* final: the abort path, or the end if the service has none */
    TASK_STOP,       /* stays where it is, with all it holds, until an operator says go on */
} TaskErrorRule;

/* A row of rules by class; what it leaves out is by default. */
typedef struct TaskErrorRules {
    TaskErrorRule of[TASK_ERROR_CLASS_COUNT];
} TaskErrorRules;

/* `can_fail`: the phase may be given up. One that may not (past the point of no return, or already
 * on the abort path) retries instead of failing: half of its work is visible to others, so there is
 * no end but completion. */
TaskErrorRule task_rule_of(const TaskErrorRules *rules, bool can_fail, ErrCode code);

/* How long to wait after the `failures`-th failure in a row (1 is the first): doubles from 50 ms up
 * to 10 s, of which a random part of up to a half is taken off, so that tasks that failed together
 * (a shard went away) do not come back together. */
int64_t task_back_off_us(uint32_t failures, Prng *prng);
