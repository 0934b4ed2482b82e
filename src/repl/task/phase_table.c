#include "repl/task/phase_table.h"

enum {
    PHASES_MAX = 64, /* bits of the set of those that are reached */
};

static bool is_done(const char *name) {
    return strcmp(name, TASK_DONE) == 0;
}

const TaskPhase *task_spec_find(const TaskServiceSpec *spec, Str name) {
    for (size_t i = 0; i < spec->phase_count; i++)
        if (str_is(name, spec->phases[i].name))
            return &spec->phases[i];
    return NULL;
}

bool task_phase_may_lead_to(const TaskPhase *phase, const char *next) {
    for (size_t i = 0; i < TASK_NEXT_MAX && phase->next[i] != NULL; i++)
        if (strcmp(phase->next[i], next) == 0)
            return true;
    return false;
}

bool task_phase_can_abort(const TaskServiceSpec *spec, const TaskPhase *phase) {
    return spec->abort_phase != NULL && phase->kind == TASK_OPEN;
}

static const char *check_names(const TaskServiceSpec *spec) {
    for (size_t i = 0; i < spec->phase_count; i++) {
        const char *name = spec->phases[i].name;
        if (name == NULL || name[0] == '\0' || strlen(name) >= TASK_PHASE_NAME_SIZE)
            return "a phase has no name, or too long a one";
        if (is_done(name))
            return "\"done\" is not a phase that can be run";
        if (task_spec_find(spec, str_from(name)) != &spec->phases[i])
            return "two phases have the same name";
        if (spec->phases[i].run == NULL)
            return "a phase has no function";
    }
    return NULL;
}

static const char *check_step(const TaskServiceSpec *spec, const TaskPhase *phase,
                              const char *next) {
    if (is_done(next))
        return NULL;
    const TaskPhase *row = task_spec_find(spec, str_from(next));
    if (row == NULL)
        return "a phase leads to one that there is not";
    /* An open phase that leads to an abort by itself would have no error to end with: it fails
     * instead. */
    if (phase->kind == TASK_OPEN && row->kind == TASK_ABORTING)
        return "an open phase leads to the abort path other than by failing";
    if (phase->kind != TASK_OPEN && row->kind != phase->kind)
        return "a phase leads back over the point of no return, or out of the abort path";
    return NULL;
}

static const char *check_steps(const TaskServiceSpec *spec, const TaskPhase *phase) {
    if (phase->next[0] == NULL)
        return "a phase leads nowhere";
    for (size_t i = 0; i < TASK_NEXT_MAX && phase->next[i] != NULL; i++) {
        const char *wrong = check_step(spec, phase, phase->next[i]);
        if (wrong != NULL)
            return wrong;
    }
    for (size_t i = 0; phase->kind != TASK_OPEN && i < TASK_ERROR_CLASS_COUNT; i++)
        if (phase->on_error.of[i] == TASK_FAIL)
            return "a phase that cannot be given up has a rule to fail";
    return NULL;
}

static uint64_t bit_of(const TaskServiceSpec *spec, const char *name) {
    const TaskPhase *row = task_spec_find(spec, str_from(name));
    return row == NULL ? 0 : UINT64_C(1) << (row - spec->phases);
}

/* From the first phase and the abort phase every row must be reached: one that is not is a mistake
 * in somebody's `next`. */
static const char *check_reached(const TaskServiceSpec *spec) {
    uint64_t reached = 1;
    if (spec->abort_phase != NULL)
        reached |= bit_of(spec, spec->abort_phase);
    for (uint64_t before = 0; before != reached;) {
        before = reached;
        for (size_t i = 0; i < spec->phase_count; i++)
            for (size_t n = 0; (reached >> i & 1) != 0 && n < TASK_NEXT_MAX; n++)
                if (spec->phases[i].next[n] != NULL)
                    reached |= bit_of(spec, spec->phases[i].next[n]);
    }
    bool is_all =
        reached ==
        (spec->phase_count == PHASES_MAX ? UINT64_MAX : (UINT64_C(1) << spec->phase_count) - 1);
    return is_all ? NULL : "a phase cannot be reached";
}

const char *task_spec_check(const TaskServiceSpec *spec) {
    if (spec->phase_count == 0 || spec->phase_count > PHASES_MAX)
        return "a service has 1 to 64 phases";
    if (spec->threads_max == 0)
        return "a service without threads would never do anything";
    const char *wrong = check_names(spec);
    if (wrong != NULL)
        return wrong;
    if (spec->abort_phase != NULL) {
        const TaskPhase *abort = task_spec_find(spec, str_from(spec->abort_phase));
        if (abort == NULL || abort->kind != TASK_ABORTING)
            return "the abort phase is none of the phases that abort";
    }
    if (spec->phases[0].kind == TASK_ABORTING)
        return "tasks begin with an abort";
    for (size_t i = 0; i < spec->phase_count; i++) {
        wrong = check_steps(spec, &spec->phases[i]);
        if (wrong != NULL)
            return wrong;
    }
    return check_reached(spec);
}
