/*
 * move_protocol.h - what the donor and the recipient of a move do, step by step, and what follows
 * from how a step came out. Pure: tables, and the function that reads them.
 *
 * donor.c and recipient.c do the steps for real; move_model_test.c does them on a model of a
 * cluster, in every order, with crashes and lost messages in between. Which step follows which is
 * decided here alone.
 *
 * The tables are finer than those of phases (phase_table.h): a phase is what is stored, and runs
 * from its first step again after an interruption.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bson/doc.h"

typedef enum DonorStep {
    DONOR_CHOOSE,            /* checks, bounds, time; otherwise: the recipient has the range */
    DONOR_ADD_RANGE_TASK,    /* pending */
    DONOR_START_RECIPIENT,   /* or joins what it has begun */
    DONOR_ASK_STATUS,        /* not yet: the recipient is not steady */
    DONOR_ASK_OWNER,         /* of the config server; otherwise: it is the recipient */
    DONOR_BLOCK_WRITES,      /* and waits until a majority has that */
    DONOR_CHECK_DEFINITION,  /* is the collection still as the recipient was told? */
    DONOR_DRAIN,             /* the recipient has everything, and is in its section */
    DONOR_BLOCK_READS,       /* as with writes */
    DONOR_COMMIT,            /* on the config server */
    DONOR_RELEASE_RECIPIENT, /* tells it that the range is its own; it ends */
    DONOR_UNBLOCK,           /* leaves the section, and so forgets where the collection is */
    DONOR_MAKE_DELETABLE,    /* its range deletion task is ready */
    DONOR_FENCE_COMMIT,      /* a commit that is under way comes too late from now on */
    DONOR_ABORT_RECIPIENT,   /* tells it that the move is given up; otherwise: there was none */
    DONOR_REMOVE_RANGE_TASK,
    DONOR_STEP_COUNT,
} DonorStep;

typedef enum RecipientStep {
    RECIPIENT_CHECK_OWNER,     /* the range belongs to the donor */
    RECIPIENT_AWAIT_DELETIONS, /* of an earlier stay of the range */
    RECIPIENT_CREATE,          /* collection and indexes */
    RECIPIENT_ADD_RANGE_TASK,  /* pending */
    RECIPIENT_CLONE,
    RECIPIENT_RECEIVE_HISTORY, /* of sessions */
    RECIPIENT_PULL,            /* modifications, until few are left */
    RECIPIENT_VERIFY,          /* digests of both sides */
    RECIPIENT_BE_STEADY,       /* tells so */
    RECIPIENT_DRAIN,           /* pulls until the donor says where it ended, and up to that */
    RECIPIENT_BLOCK_WRITES,
    RECIPIENT_READ_OUTCOME,      /* as the donor said; not yet: it has not */
    RECIPIENT_GIVE_UP,           /* the outcome is that there is no move */
    RECIPIENT_SETTLE_RANGE_TASK, /* removed if the range is its own by now, ready otherwise */
    RECIPIENT_UNBLOCK,
    RECIPIENT_STEP_COUNT,
} RecipientStep;

typedef enum StepAnswer {
    STEP_OK,
    STEP_OTHERWISE, /* done, and it is the other case: see the steps */
    STEP_NOT_YET,   /* the phase is run again after a while */
    STEP_UNCERTAIN, /* failed; it may have happened, or still happen */
    STEP_FAILED,    /* failed; it has not happened and will not */
} StepAnswer;

/* Of the steps that users see (StepRow.shown), how many. */
enum {
    DONOR_STEPS_SHOWN = 6,
    RECIPIENT_STEPS_SHOWN = 7,
    STEPS_SHOWN_MAX = RECIPIENT_STEPS_SHOWN,
};

/* What an error of a step means to the move. */
typedef enum StepErrors {
    ERRORS_BY_RULE,    /* what the phase says (error_rules.h): again, or given up */
    ERRORS_REFUSE,     /* the end of it: nobody has been asked to commit */
    ERRORS_MAY_REFUSE, /* the end of it if it is certain; otherwise by rule */
    ERRORS_PASS,       /* nothing: a later phase does the same once more */
} StepErrors;

typedef struct StepRow {
    const char *phase;
    uint8_t step;
    uint8_t errors;         /* StepErrors */
    const char *next;       /* the phase that follows; NULL: the next row */
    const char *otherwise;  /* the phase that follows then; NULL: a step of the same phase, */
    uint8_t otherwise_step; /* this one, further down */
    int32_t again_ms;       /* how long "not yet" waits, if nobody wakes it */
    uint16_t before, after; /* failpoints there, as STEP_POINT; 0: none */
    uint8_t shown;          /* the number of the step that users see end with this one; 0: none */
} StepRow;

#define STEP_POINT(name) (1 + FP_##name)

typedef struct StepTable {
    const StepRow *rows;
    size_t count;
    const char *refused; /* the phase of a move that is refused */
} StepTable;

extern const StepTable DONOR_STEPS;
extern const StepTable RECIPIENT_STEPS;

/* The first row of a phase. */
const StepRow *step_table_first(const StepTable *table, Str phase);

/* What follows: one of these. */
typedef struct StepThen {
    const StepRow *row; /* the next step of the phase */
    const char *phase;  /* it is over, and this one is stored */
    bool is_again;      /* it is over, and run again */
    bool is_refused;    /* with `phase`: because of the error */
    bool is_error;      /* it is over, and its rules decide what becomes of the error */
} StepThen;
StepThen step_then(const StepTable *table, const StepRow *row, StepAnswer answer);
