#include "sharding/migration/move_protocol.h"

#include "base/failpoint.h"
#include "repl/task/phase_table.h"

enum {
    READY_MS = 60 * 1000, /* the donor wakes it */
};

static const StepRow DONOR_ROWS[] = {
    {"begin", .step = DONOR_CHOOSE, .shown = 1, .next = "prepare", .otherwise = TASK_DONE,
     .after = STEP_POINT(MIG_D_REGISTERED)},

    {"prepare", .step = DONOR_ADD_RANGE_TASK, .shown = 2,
     .before = STEP_POINT(MIG_D_COORD_DOC_WRITTEN),
     .after = STEP_POINT(MIG_D_RANGE_DEL_PENDING_WRITTEN)},
    {"prepare", .step = DONOR_START_RECIPIENT, .shown = 3, .next = "clone",
     .after = STEP_POINT(MIG_D_RECV_CHUNK_START_SENT)},

    {"clone", .step = DONOR_ASK_STATUS, .shown = 4, .next = "commit",
     .before = STEP_POINT(MIG_D_CLONING), .after = STEP_POINT(MIG_D_READY_FOR_CRIT_SEC)},

    /* An earlier run of this phase, or an earlier primary, may have come to any place of it. */
    {"commit", .step = DONOR_ASK_OWNER, .otherwise_step = DONOR_UNBLOCK},
    {"commit", .step = DONOR_BLOCK_WRITES, .errors = ERRORS_REFUSE,
     .after = STEP_POINT(MIG_D_CRIT_SEC_WRITES)},
    {"commit", .step = DONOR_CHECK_DEFINITION, .errors = ERRORS_REFUSE,
     .after = STEP_POINT(MIG_D_CRIT_SEC_SIGNAL_PERSISTED)},
    {"commit", .step = DONOR_DRAIN, .shown = 5, .errors = ERRORS_REFUSE,
     .after = STEP_POINT(MIG_D_RECV_CHUNK_COMMIT_SENT)},
    {"commit", .step = DONOR_BLOCK_READS, .errors = ERRORS_REFUSE,
     .after = STEP_POINT(MIG_D_CRIT_SEC_READS)},
    {"commit", .step = DONOR_COMMIT, .errors = ERRORS_MAY_REFUSE,
     .before = STEP_POINT(MIG_D_CONFIG_COMMIT_SENT),
     .after = STEP_POINT(MIG_D_CONFIG_COMMIT_REPLIED)},
    /* It is done. These two belong to the next phase, and are done here as well, before that is
     * stored, because clients wait for them; and those of the donor do not wait for a recipient
     * that hangs. */
    {"commit", .step = DONOR_UNBLOCK, .after = STEP_POINT(MIG_D_METADATA_REFRESHED)},
    {"commit", .step = DONOR_RELEASE_RECIPIENT, .shown = 6, .errors = ERRORS_PASS,
     .next = "committed", .after = STEP_POINT(MIG_D_RECIPIENT_CRIT_SEC_RELEASED)},

    {"committed", .step = DONOR_UNBLOCK, .before = STEP_POINT(MIG_D_DECISION_PERSISTED)},
    {"committed", .step = DONOR_RELEASE_RECIPIENT, .after = STEP_POINT(MIG_D_TXN_NUM_BUMPED)},
    {"committed", .step = DONOR_MAKE_DELETABLE, .next = TASK_DONE,
     .before = STEP_POINT(MIG_D_RECIPIENT_TASK_DELETED),
     .after = STEP_POINT(MIG_D_DONOR_TASK_READY)},

    /* A commit may still be under way, of this primary or of one before it. */
    {"refused", .step = DONOR_FENCE_COMMIT},
    {"refused", .step = DONOR_ASK_OWNER, .otherwise = "committed"},
    {"refused", .step = DONOR_UNBLOCK}, /* first of all: the recipient may hang */
    {"refused", .step = DONOR_ABORT_RECIPIENT},
    {"refused", .step = DONOR_REMOVE_RANGE_TASK, .next = TASK_DONE},

    {"undo", .step = DONOR_ABORT_RECIPIENT, .otherwise = TASK_DONE},
    {"undo", .step = DONOR_REMOVE_RANGE_TASK},
    {"undo", .step = DONOR_UNBLOCK, .next = TASK_DONE},
};

static const StepRow RECIPIENT_ROWS[] = {
    {"prepare", .step = RECIPIENT_CHECK_OWNER},
    {"prepare", .step = RECIPIENT_AWAIT_DELETIONS, .shown = 1},
    {"prepare", .step = RECIPIENT_CREATE, .shown = 2, .after = STEP_POINT(MIG_R_COLL_CREATED)},
    {"prepare", .step = RECIPIENT_ADD_RANGE_TASK, .shown = 3, .next = "clone",
     .after = STEP_POINT(MIG_R_RANGE_DEL_WRITTEN)},

    {"clone", .step = RECIPIENT_CLONE, .shown = 4, .next = "catchUp"},

    {"catchUp", .step = RECIPIENT_RECEIVE_HISTORY},
    {"catchUp", .step = RECIPIENT_PULL, .after = STEP_POINT(MIG_R_CATCHUP)},
    {"catchUp", .step = RECIPIENT_VERIFY},
    {"catchUp", .step = RECIPIENT_PULL, .shown = 5},
    {"catchUp", .step = RECIPIENT_BE_STEADY, .after = STEP_POINT(MIG_R_STEADY)},
    {"catchUp", .step = RECIPIENT_DRAIN, .shown = 6, .after = STEP_POINT(MIG_R_SESSIONS_APPLIED)},
    /* Stored with the next phase: a majority has both. */
    {"catchUp", .step = RECIPIENT_BLOCK_WRITES, .next = "ready"},

    {"ready", .step = RECIPIENT_READ_OUTCOME, .again_ms = READY_MS,
     .before = STEP_POINT(MIG_R_RECOVERY_DOC_WRITTEN)},
    {"ready", .step = RECIPIENT_SETTLE_RANGE_TASK},
    {"ready", .step = RECIPIENT_UNBLOCK, .shown = 7, .next = TASK_DONE,
     .after = STEP_POINT(MIG_R_CRIT_SEC_RELEASED)},

    {"undo", .step = RECIPIENT_GIVE_UP},
    {"undo", .step = RECIPIENT_SETTLE_RANGE_TASK},
    {"undo", .step = RECIPIENT_UNBLOCK, .next = TASK_DONE,
     .after = STEP_POINT(MIG_R_CRIT_SEC_RELEASED)},
};

_Static_assert(FP_COUNT < UINT16_MAX, "failpoints of steps fit into their fields");

const StepTable DONOR_STEPS = {DONOR_ROWS, ARRAY_LEN(DONOR_ROWS), "refused"};
const StepTable RECIPIENT_STEPS = {RECIPIENT_ROWS, ARRAY_LEN(RECIPIENT_ROWS), NULL};

const StepRow *step_table_first(const StepTable *table, Str phase) {
    for (size_t i = 0; i < table->count; i++)
        if (str_is(phase, table->rows[i].phase))
            return &table->rows[i];
    panic("no steps of the phase \"%.*s\"", (int)phase.size, phase.data);
}

static StepThen then_ok(const StepRow *row) {
    return row->next != NULL ? (StepThen){.phase = row->next} : (StepThen){.row = row + 1};
}

static StepThen then_otherwise(const StepRow *row) {
    if (row->otherwise != NULL)
        return (StepThen){.phase = row->otherwise};
    const StepRow *to = row + 1;
    while (to->step != row->otherwise_step)
        to++;
    return (StepThen){.row = to};
}

static StepThen then_failed(const StepTable *table, const StepRow *row, bool is_certain) {
    bool is_refused =
        row->errors == ERRORS_REFUSE || (row->errors == ERRORS_MAY_REFUSE && is_certain);
    if (is_refused)
        return (StepThen){.phase = table->refused, .is_refused = true};
    return row->errors == ERRORS_PASS ? then_ok(row) : (StepThen){.is_error = true};
}

StepThen step_then(const StepTable *table, const StepRow *row, StepAnswer answer) {
    switch (answer) {
    case STEP_OK:
        return then_ok(row);
    case STEP_OTHERWISE:
        return then_otherwise(row);
    case STEP_NOT_YET:
        return (StepThen){.is_again = true};
    case STEP_UNCERTAIN:
    case STEP_FAILED:
        break;
    }
    return then_failed(table, row, answer == STEP_FAILED);
}
