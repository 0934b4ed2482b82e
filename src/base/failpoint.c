#include "base/failpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/thread.h"

enum {
    CRASH_EXIT_CODE = 137,
    BLOCK_STEP_US = 5 * 1000,
};

typedef struct Failpoint {
    /* Guarded by mu. */
    FailpointConfig config;
    FailpointCounts counts;
} Failpoint;

static const char *const NAMES[FP_COUNT] = {
#define FAILPOINT_ROW(symbol, name) [FP_##symbol] = name,
#include "base/failpoints.def"
#undef FAILPOINT_ROW
};

_Atomic bool failpoint_armed[FP_COUNT];
static Failpoint failpoints[FP_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static Mutex mu;

static void init(void) {
    mutex_init(&mu, LOCK_RANK_FAILPOINT);
}

/* Atomic: how often each was set. Written under `mu`; read without it by those who are blocked, to
 * whom an old value means one more step. */
static _Atomic uint32_t settings[FP_COUNT];

static bool is_due_locked(Failpoint *fp, const char *place);
static void block(FailpointId id, int64_t block_ms, uint32_t setting);
static uint8_t *copy_data(const uint8_t *data);

bool failpoint_enter_slow(FailpointId id, const char *place) {
    pthread_once(&once, init);
    mutex_lock(&mu);
    Failpoint *fp = &failpoints[id];
    bool is_due = is_due_locked(fp, place);
    bool is_crash = fp->config.is_crash;
    int64_t block_ms = fp->config.is_block ? fp->config.block_ms : 0;
    uint32_t setting = atomic_load_explicit(&settings[id], memory_order_relaxed);
    mutex_unlock(&mu);
    if (!is_due)
        return false;
    if (is_crash)
        _exit(CRASH_EXIT_CODE);
    block(id, block_ms, setting);
    return true;
}

static _Atomic bool is_blocking_over;

void failpoint_end_blocking(void) {
    atomic_store(&is_blocking_over, true);
}

/* Until the time is over or the failpoint is set anew, also if only to block the next one: a test
 * that knows when need not guess. */
static void block(FailpointId id, int64_t block_ms, uint32_t setting) {
    int64_t until_us = clock_deadline_ms(block_ms);
    for (;;) {
        int64_t left_us = until_us - clock_mono_us();
        if (left_us <= 0 || atomic_load_explicit(&is_blocking_over, memory_order_relaxed) ||
            atomic_load_explicit(&settings[id], memory_order_relaxed) != setting)
            return;
        thread_sleep_us(left_us < BLOCK_STEP_US ? left_us : BLOCK_STEP_US);
    }
}

static const struct {
    FailpointId failpoint;
    int log_id;
    const char *before; /* the name */
} LINES[] = {
#define FAILPOINT_ROW(symbol, name)
#define FAILPOINT_LINE(symbol, id, before) {FP_##symbol, id, before},
#include "base/failpoints.def"
#undef FAILPOINT_ROW
};

void failpoint_tell_hang(FailpointId id) {
    int log_id = 7300310;
    const char *before = "";
    for (size_t i = 0; i < ARRAY_LEN(LINES); i++)
        if (LINES[i].failpoint == id) {
            log_id = LINES[i].log_id;
            before = LINES[i].before;
        }
    char text[FAILPOINT_TEXT_SIZE];
    snprintf(text, sizeof(text), "%s%s fail point enabled. Blocking until fail point is disabled",
             before, NAMES[id]);
    LOG_INFO(LOG_REPL, log_id, text);
}

void failpoint_hang(FailpointId id) {
    if (!failpoint_enter(id))
        return;
    failpoint_tell_hang(id);
    while (failpoint_is_set(id) && !atomic_load_explicit(&is_blocking_over, memory_order_relaxed))
        thread_sleep_us(BLOCK_STEP_US);
}

ErrCode failpoint_check(FailpointId id, Error *err) {
    return failpoint_check_at(id, "", err);
}

ErrCode failpoint_check_at(FailpointId id, const char *place, Error *err) {
    if (!failpoint_enter_at(id, place))
        return ERR_OK;
    FailpointConfig config = failpoint_config(id);
    xfree(config.data);
    if (config.error_code == ERR_OK)
        return ERR_OK;
    return error_set(err, config.error_code, "failpoint \"%s\" is active", NAMES[id]);
}

bool failpoint_is_on(FailpointId id) {
    pthread_once(&once, init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mu);
    return failpoints[id].config.mode != FAILPOINT_OFF &&
           !atomic_load_explicit(&is_blocking_over, memory_order_relaxed);
}

bool failpoint_take_firing(FailpointId id) {
    pthread_once(&once, init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mu);
    return is_due_locked(&failpoints[id], "");
}

FailpointConfig failpoint_config(FailpointId id) {
    pthread_once(&once, init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mu);
    FailpointConfig config = failpoints[id].config;
    config.data = copy_data(config.data);
    return config;
}

FailpointCounts failpoint_configure(FailpointId id, const FailpointConfig *take_config) {
    pthread_once(&once, init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mu);
    Failpoint *fp = &failpoints[id];
    xfree(fp->config.data);
    fp->config = *take_config;
    atomic_fetch_add_explicit(&settings[id], 1, memory_order_relaxed);
    atomic_store_explicit(&failpoint_armed[id], take_config->mode != FAILPOINT_OFF,
                          memory_order_relaxed);
    FailpointCounts counts = fp->counts;
    fp->counts.entered = 0;
    return counts;
}

int64_t failpoint_fired_count(FailpointId id) {
    pthread_once(&once, init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mu);
    return failpoints[id].counts.fired;
}

static const struct {
    FailpointId id;
    const char *name;
} SECOND_NAMES[] = {
#define FAILPOINT_ROW(symbol, name)
#define FAILPOINT_STAY(symbol, name) {FP_##symbol, name},
#include "base/failpoints.def"
#undef FAILPOINT_ROW
};

int failpoint_find(const char *name, bool *ret_stays) {
    *ret_stays = false;
    for (int i = 0; i < FP_COUNT; i++)
        if (strcmp(NAMES[i], name) == 0)
            return i;
    *ret_stays = true;
    for (size_t i = 0; i < ARRAY_LEN(SECOND_NAMES); i++)
        if (strcmp(SECOND_NAMES[i].name, name) == 0)
            return SECOND_NAMES[i].id;
    return -1;
}

bool failpoint_stays(FailpointId id) {
    if (!failpoint_is_set(id) || atomic_load_explicit(&is_blocking_over, memory_order_relaxed))
        return false;
    pthread_once(&once, init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mu);
    return failpoints[id].config.stays;
}

const char *failpoint_name(FailpointId id) {
    return NAMES[id];
}

static bool is_due_locked(Failpoint *fp, const char *place) {
    assert_held(&mu);
    FailpointConfig *config = &fp->config;
    bool is_due = false;
    if (strncmp(log_thread_name(), config->thread, strlen(config->thread)) != 0)
        return false;
    if (config->at[0] != '\0' && strcmp(place, config->at) != 0)
        return false;
    fp->counts.entered++;
    if (config->call != 0 && config->call != fp->counts.entered)
        return false;
    switch (config->mode) {
    case FAILPOINT_OFF:
        break;
    case FAILPOINT_ALWAYS_ON:
        is_due = true;
        break;
    case FAILPOINT_TIMES:
        is_due = config->count > 0;
        config->count--;
        if (config->count <= 0)
            config->mode = FAILPOINT_OFF;
        break;
    case FAILPOINT_SKIP:
        is_due = config->count <= 0;
        config->count--;
        break;
    case FAILPOINT_RANDOM: {
        uint64_t bits;
        secure_random(&bits, sizeof(bits));
        is_due = (double)(bits >> 11) * 0x1.0p-53 < config->probability;
        break;
    }
    }
    if (is_due)
        fp->counts.fired++;
    return is_due;
}

static uint8_t *copy_data(const uint8_t *data) {
    if (data == NULL)
        return NULL;
    int32_t size;
    memcpy(&size, data, sizeof(size));
    return xmemdup(data, (size_t)size);
}
