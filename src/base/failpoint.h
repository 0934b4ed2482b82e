/*
 * failpoint.h - named points at which tests make the server fail, pause or die.
 *
 * configureFailPoint sets a mode (off, alwaysOn, {times: n}, {skip: n}, {activationProbability: p})
 * and data, a document whose meaning depends on the failpoint. Some members of data mean the same
 * everywhere: `crash: true` ends the process at once with _exit(137), `blockTimeMS` or
 * `waitForMillis` delays, at most until the failpoint is set anew or turned off, or the node stops,
 * `errorCode` fails failpoint_check, `thread` restricts it to threads whose name begins so, `at` to
 * one place where a failpoint stands for many (the phases of a task), `call: n` to the n-th call
 * since the failpoint was set, once.
 *
 * Threading: any thread. An unarmed failpoint costs one relaxed load and a predicted branch.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum FailpointId {
#define FAILPOINT_ROW(symbol, name) FP_##symbol,
#include "base/failpoints.def"
#undef FAILPOINT_ROW
    FP_COUNT,
} FailpointId;

typedef enum FailpointMode {
    FAILPOINT_OFF,
    FAILPOINT_ALWAYS_ON,
    FAILPOINT_TIMES,
    FAILPOINT_SKIP,
    FAILPOINT_RANDOM,
} FailpointMode;

enum {
    FAILPOINT_THREAD_SIZE = 16,
    FAILPOINT_AT_SIZE = 32,
    FAILPOINT_TEXT_SIZE = 160, /* of a line of the log with a name */
};

typedef struct FailpointConfig {
    FailpointMode mode;
    int64_t count;      /* of FAILPOINT_TIMES and FAILPOINT_SKIP */
    double probability; /* of FAILPOINT_RANDOM */
    bool stays;         /* set by its second name: whoever is there waits until it is off */
    bool is_crash;
    bool is_block; /* blocks for block_ms */
    int64_t block_ms;
    ErrCode error_code;                 /* ERR_OK: none */
    int64_t call;                       /* 0: every one */
    char thread[FAILPOINT_THREAD_SIZE]; /* "": any */
    char at[FAILPOINT_AT_SIZE];         /* "": any */
    uint8_t *data; /* heap copy of the whole data document; owned by the failpoint */
} FailpointConfig;

/* Atomic, relaxed: a test that arms a failpoint orders itself by the command's reply. */
extern _Atomic bool failpoint_armed[FP_COUNT];

bool failpoint_enter_slow(FailpointId id, const char *place);

/* True when the failpoint fires; crash and block have taken effect by then. `place`: for `at`. */
static inline bool failpoint_enter_at(FailpointId id, const char *place) {
    if (LIKELY(!atomic_load_explicit(&failpoint_armed[id], memory_order_relaxed)))
        return false;
    return failpoint_enter_slow(id, place);
}

static inline bool failpoint_enter(FailpointId id) {
    return failpoint_enter_at(id, "");
}

#define FAILPOINT(symbol) failpoint_enter(FP_##symbol)

/* For points that only crash or block. */
static inline void failpoint_hit(FailpointId id) {
    (void)failpoint_enter(id);
}

static inline void failpoint_hit_at(FailpointId id, const char *place) {
    (void)failpoint_enter_at(id, place);
}

/* Tests find in the log that something hangs in a failpoint. */
void failpoint_tell_hang(FailpointId id);
/* Stays here as long as the failpoint is on, or until the node stops. */
void failpoint_hang(FailpointId id);

/* Is it set? Does not fire; for places that must not wait. */
static inline bool failpoint_is_set(FailpointId id) {
    return UNLIKELY(atomic_load_explicit(&failpoint_armed[id], memory_order_relaxed));
}

/* Fails with the configured errorCode when the failpoint fires. */
ErrCode failpoint_check_at(FailpointId id, const char *place, Error *err) MUST_CHECK;
ErrCode failpoint_check(FailpointId id, Error *err) MUST_CHECK;

/* As failpoint_is_set, but not when it has fired as often as it should. */
bool failpoint_is_on(FailpointId id);

/* Decides by the mode whether a firing is due, without acting: for failCommand, whose conditions
 * are checked before a firing is counted. */
bool failpoint_take_firing(FailpointId id);

/* A copy of the present configuration; `data` is a heap copy to be freed, or NULL. */
FailpointConfig failpoint_config(FailpointId id);

typedef struct FailpointCounts {
    int64_t fired;   /* since the start */
    int64_t entered; /* by threads it was for, since it was set */
} FailpointCounts;

/* Takes ownership of config->data. Returns the previous counts. */
FailpointCounts failpoint_configure(FailpointId id, const FailpointConfig *take_config);
/* Ends all delays: the node is shutting down. */
void failpoint_end_blocking(void);
int64_t failpoint_fired_count(FailpointId id);
/* -1: none of that name. *ret_stays: it is a second one. */
int failpoint_find(const char *name, bool *ret_stays);
/* After it has fired: is one to stay here? Places whose waits can be interrupted ask again and
 * again.
 */
bool failpoint_stays(FailpointId id);
const char *failpoint_name(FailpointId id);
