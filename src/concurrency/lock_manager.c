/*
 * lock_manager.c - see lock_manager.h.
 *
 * A resource that is held or waited for has a LockHead in one of the buckets. The three global
 * resources have permanent heads with an extra atomic word:
 *
 *     bit 63      slow: S or X is held or waited for; intents must go through the bucket
 *     bits 31-61  number of IX holders that took the fast path
 *     bits 0-30   number of IS holders that took the fast path
 *
 * Every operation takes the global locks, so a mutex for them would serialize the whole server.
 * Setting the slow bit and counting a fast holder are both read-modify-writes of the same word:
 * either the S/X request sees the holder's count, or the holder sees the slow bit and takes the
 * mutex.
 */
#include "concurrency/lock_manager.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "concurrency/tickets.h"

enum {
    BUCKET_COUNT = 256, /* a power of two; enough that unrelated collections rarely share a mutex */
    GLOBAL_HEAD_COUNT = 3,
};

#define FAST_SLOW_BIT (UINT64_C(1) << 63)
#define FAST_ONE_IS   UINT64_C(1)
#define FAST_ONE_IX   (UINT64_C(1) << 31)
#define FAST_MASK     ((UINT64_C(1) << 31) - 1)

typedef struct LockHead {
    ListNode node; /* in the bucket */
    ResourceId id;
    uint32_t granted[LOCK_MODE_COUNT]; /* holders that did not take the fast path */
    uint32_t compatible_first_count;
    List waiters;
} LockHead;

typedef struct Waiter {
    ListNode node;
    OpCtx *op;
    LockHead *head;
    LockMode mode;
    LockMode held; /* the mode it is raised from; LOCK_NONE: it is not held yet */
    LockFlags flags;
    bool is_granted; /* guarded by the bucket's mu */
} Waiter;

typedef struct Bucket {
    Mutex mu;
    /* Guarded by mu. */
    List heads;
    LockStats stats[RESOURCE_MUTEX + 1];
} Bucket;

typedef struct GlobalHead {
    LockHead head;
    _Alignas(64) _Atomic uint64_t fast;
    /* IS, IX; on the cache line that the fast path writes anyway. */
    _Atomic int64_t fast_acquired[2];
} GlobalHead;

struct LockManager {
    Bucket buckets[BUCKET_COUNT];
    GlobalHead global[GLOBAL_HEAD_COUNT];
};

static HeldLock *find_held(const Locker *locker, ResourceId id);
static void add_held(OpCtx *op, ResourceId id, LockMode mode, LockFlags flags, bool is_fast);
static GlobalHead *global_head(LockManager *manager, ResourceId id);
static GlobalHead *as_global(LockHead *head);
static Bucket *bucket_of(LockManager *manager, ResourceId id);
static LockHead *ensure_head_locked(LockManager *manager, Bucket *bucket, ResourceId id);
static void drop_head_if_idle_locked(LockHead *head);
static bool is_compatible_locked(LockHead *head, LockMode mode, LockMode own);
static ErrCode take_ticket_back(OpCtx *op, TicketPool *pool, ResourceId id, Error *err);
static void grant_waiters_locked(LockHead *head);
static bool covers(LockMode held, LockMode requested);
static ErrCode acquire_slow(OpCtx *op, ResourceId id, LockMode mode, LockFlags flags,
                            int64_t deadline_us, Error *err);
static ErrCode raise_held(OpCtx *op, HeldLock *held, LockMode mode, int64_t deadline_us,
                          Error *err);
static ErrCode wait_for_grant(OpCtx *op, Bucket *bucket, Waiter *waiter, int64_t deadline_us,
                              Error *err);
static void release_held(OpCtx *op, HeldLock *held);
static void grow(Locker *locker);
static void show_from(OpCtx *op, uint32_t first, uint32_t count);

LockManager *lock_manager_new(void) {
    LockManager *manager = aligned_alloc(64, (sizeof(LockManager) + 63) & ~(size_t)63);
    invariant(manager != NULL);
    memset(manager, 0, sizeof(*manager));
    for (int i = 0; i < BUCKET_COUNT; i++) {
        mutex_init(&manager->buckets[i].mu, LOCK_RANK_LOCK_BUCKET);
        list_init(&manager->buckets[i].heads);
    }
    for (int i = 0; i < GLOBAL_HEAD_COUNT; i++) {
        manager->global[i].head.id = RESOURCE_ID_GLOBAL + (ResourceId)i;
        list_init(&manager->global[i].head.waiters);
    }
    return manager;
}

void lock_manager_free(LockManager *manager) {
    for (int i = 0; i < BUCKET_COUNT; i++) {
        invariant(list_is_empty(&manager->buckets[i].heads));
        mutex_done(&manager->buckets[i].mu);
    }
    xfree(manager);
}

/* The type is in the upper bits, so that rising ids are also the order of the hierarchy. Two names
 * with the same 61 bits of hash share a lock, which is safe, only less concurrent. */
ResourceId resource_id(ResourceType type, const char *name, size_t name_size) {
    return (ResourceId)type << 61 | hash_bytes(name, name_size) >> 3;
}

ResourceType resource_type(ResourceId id) {
    return (ResourceType)(id >> 61);
}

bool lock_modes_are_compatible(LockMode held, LockMode requested) {
    static const bool COMPATIBLE[LOCK_MODE_COUNT][LOCK_MODE_COUNT] = {
        /* held:      requested: IS,    IX,    S,     X */
        [LOCK_IS] = {true, true, true, false},
        [LOCK_IX] = {true, true, false, false},
        [LOCK_S] = {true, false, true, false},
        [LOCK_X] = {false, false, false, false},
    };
    return COMPATIBLE[held][requested];
}

ErrCode lock_acquire(OpCtx *op, ResourceId id, LockMode mode, LockFlags flags, int64_t deadline_us,
                     Error *err) {
    HeldLock *held = find_held(&op->locker, id);
    if (held != NULL) {
        if (UNLIKELY(!covers(held->mode, mode)))
            TRY(raise_held(op, held, mode, deadline_us, err));
        if (held->is_release_deferred)
            /* The deferred release and this acquisition cancel out. */
            held->is_release_deferred = false;
        else
            held->count++;
        return ERR_OK;
    }
    /* The fast path ignores the queue: without the slow bit there is none that an intent could
     * conflict with. */
    GlobalHead *global = global_head(op->locker.manager, id);
    if (global != NULL && (mode == LOCK_IS || mode == LOCK_IX)) {
        uint64_t one = mode == LOCK_IS ? FAST_ONE_IS : FAST_ONE_IX;
        uint64_t word = atomic_load_explicit(&global->fast, memory_order_relaxed);
        while ((word & FAST_SLOW_BIT) == 0) {
            /* Acquire pairs with the release with which grant_waiters_locked clears the slow bit
             * after an S or X holder, so that we see what it did. */
            if (atomic_compare_exchange_weak_explicit(&global->fast, &word, word + one,
                                                      memory_order_acquire, memory_order_relaxed)) {
                atomic_fetch_add_explicit(&global->fast_acquired[mode], 1, memory_order_relaxed);
                add_held(op, id, mode, flags, /* is_fast= */ true);
                return ERR_OK;
            }
        }
    }
    return acquire_slow(op, id, mode, flags, deadline_us, err);
}

void lock_release(OpCtx *op, ResourceId id) {
    HeldLock *held = find_held(&op->locker, id);
    invariant(held != NULL);
    if (held->count > 1) {
        held->count--;
        return;
    }
    if (op->locker.unit_of_work_depth > 0) {
        held->is_release_deferred = true;
        return;
    }
    release_held(op, held);
}

void lock_release_now(OpCtx *op, ResourceId id) {
    HeldLock *held = find_held(&op->locker, id);
    if (held != NULL)
        release_held(op, held);
}

bool lock_is_held(const OpCtx *op, ResourceId id, LockMode mode) {
    const HeldLock *held = find_held(&op->locker, id);
    return held != NULL && covers(held->mode, mode);
}

void lock_unit_of_work_begin(OpCtx *op) {
    op->locker.unit_of_work_depth++;
}

void lock_unit_of_work_end(OpCtx *op) {
    Locker *locker = &op->locker;
    invariant(locker->unit_of_work_depth > 0);
    if (--locker->unit_of_work_depth > 0)
        return;
    /* Innermost resources first. release_held closes the gap in the array, so rows below `i` do not
     * move. */
    for (uint32_t i = locker->held_count; i-- > 0;)
        if (locker->held[i].is_release_deferred)
            release_held(op, &locker->held[i]);
}

void lock_for_each_waiter(LockManager *manager,
                          void (*visit)(void *arg, const LockWaiterInfo *info), void *arg) {
    for (int i = 0; i < BUCKET_COUNT; i++) {
        Bucket *bucket = &manager->buckets[i];
        LockWaiterInfo rows[64];
        size_t count = 0;
        mutex_lock(&bucket->mu);
        LIST_FOR_EACH (&bucket->heads, node) {
            LockHead *head = CONTAINER_OF(node, LockHead, node);
            LIST_FOR_EACH (&head->waiters, waiting) {
                Waiter *waiter = CONTAINER_OF(waiting, Waiter, node);
                if (count < ARRAY_LEN(rows))
                    rows[count++] = (LockWaiterInfo){head->id, waiter->op->op_id, waiter->mode};
            }
        }
        mutex_unlock(&bucket->mu);
        for (size_t r = 0; r < count; r++)
            visit(arg, &rows[r]);
    }
}

LockStats lock_stats(LockManager *manager, ResourceType type, ResourceId global_id) {
    LockStats sum = {0};
    if (type == RESOURCE_GLOBAL) {
        GlobalHead *global = global_head(manager, global_id);
        for (int m = 0; m < 2; m++)
            sum.acquired[m] = atomic_load_explicit(&global->fast_acquired[m], memory_order_relaxed);
    }
    for (int i = 0; i < BUCKET_COUNT; i++) {
        Bucket *bucket = &manager->buckets[i];
        if (type == RESOURCE_GLOBAL && bucket != bucket_of(manager, global_id))
            continue;
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&bucket->mu);
        for (int m = 0; m < LOCK_MODE_COUNT; m++) {
            sum.acquired[m] += bucket->stats[type].acquired[m];
            sum.waited[m] += bucket->stats[type].waited[m];
            sum.wait_us[m] += bucket->stats[type].wait_us[m];
        }
    }
    return sum;
}

const char *lock_mode_name(LockMode mode) {
    static const char *const NAMES[] = {"r", "w", "R", "W"};
    return mode < LOCK_MODE_COUNT ? NAMES[mode] : "";
}

static ErrCode acquire_slow(OpCtx *op, ResourceId id, LockMode mode, LockFlags flags,
                            int64_t deadline_us, Error *err) {
#ifndef NDEBUG
    for (uint32_t i = 0; i < op->locker.held_count; i++)
        if (resource_type(id) != RESOURCE_MUTEX && op->locker.request_us_max == 0)
            invariant(op->locker.held[i].resource < id ||
                      resource_type(op->locker.held[i].resource) == RESOURCE_MUTEX);
#endif
    /* A global S or X (step-down, fsyncLock, shutdown) goes to the front: until it is granted, new
     * intents queue behind it, so letting it wait longer only stalls the server longer. */
    bool is_exclusive = mode == LOCK_S || mode == LOCK_X;
    if (resource_type(id) == RESOURCE_GLOBAL && is_exclusive)
        flags |= LOCK_AT_FRONT;

    Bucket *bucket = bucket_of(op->locker.manager, id);
    mutex_lock(&bucket->mu);
    LockHead *head = ensure_head_locked(op->locker.manager, bucket, id);
    GlobalHead *global = global_head(op->locker.manager, id);
    /* From here on no intent takes the fast path; those that already did are in the count that
     * is_compatible_locked reads next. */
    if (global != NULL && is_exclusive)
        atomic_fetch_or_explicit(&global->fast, FAST_SLOW_BIT, memory_order_acq_rel);

    LockStats *stats = &bucket->stats[resource_type(id)];
    stats->acquired[mode]++;
    bool may_pass_queue = list_is_empty(&head->waiters) || head->compatible_first_count > 0 ||
                          (flags & LOCK_AT_FRONT) != 0;
    if (may_pass_queue && is_compatible_locked(head, mode, LOCK_NONE)) {
        head->granted[mode]++;
        head->compatible_first_count += (flags & LOCK_COMPATIBLE_FIRST) != 0;
        mutex_unlock(&bucket->mu);
    } else {
        stats->waited[mode]++;
        Waiter waiter = {.op = op, .head = head, .mode = mode, .held = LOCK_NONE, .flags = flags};
        if ((flags & LOCK_AT_FRONT) != 0)
            list_push_front(&head->waiters, &waiter.node);
        else
            list_push_back(&head->waiters, &waiter.node);
        TicketPool *pool = op->held_ticket;
        ticket_release(op);
        TRY(wait_for_grant(op, bucket, &waiter, deadline_us, err)); /* unlocks */
        add_held(op, id, mode, flags, /* is_fast= */ false);
        return take_ticket_back(op, pool, id, err);
    }
    add_held(op, id, mode, flags, /* is_fast= */ false);
    return ERR_OK;
}

/* The mode that covers both; S and IX together need X, for there is no SIX. */
static LockMode join_modes(LockMode a, LockMode b) {
    return covers(a, b) ? a : covers(b, a) ? b : LOCK_X;
}

static void set_held_mode(OpCtx *op, HeldLock *held, LockMode mode) {
    held->mode = mode;
    show_from(op, (uint32_t)(held - op->locker.held), op->locker.held_count);
}

/* Ahead of the queue: those in it wait for this holder anyway. Two that raise the same lock to X
 * block each other until the time limit of one of them. */
static ErrCode raise_held(OpCtx *op, HeldLock *held, LockMode mode, int64_t deadline_us,
                          Error *err) {
    ResourceId id = held->resource;
    invariant(!held->is_fast); /* the global locks of a transaction are final */
    mode = join_modes(held->mode, mode);
    Bucket *bucket = bucket_of(op->locker.manager, id);
    mutex_lock(&bucket->mu);
    LockHead *head = ensure_head_locked(op->locker.manager, bucket, id);
    bucket->stats[resource_type(id)].acquired[mode]++;
    if (is_compatible_locked(head, mode, held->mode)) {
        head->granted[held->mode]--;
        head->granted[mode]++;
        mutex_unlock(&bucket->mu);
        set_held_mode(op, held, mode);
        return ERR_OK;
    }
    bucket->stats[resource_type(id)].waited[mode]++;
    Waiter waiter = {.op = op, .head = head, .mode = mode, .held = held->mode};
    list_push_front(&head->waiters, &waiter.node);
    TicketPool *pool = op->held_ticket;
    ticket_release(op);
    TRY(wait_for_grant(op, bucket, &waiter, deadline_us, err)); /* unlocks */
    set_held_mode(op, held, mode);
    return pool != NULL ? ticket_acquire(pool, op, err) : ERR_OK;
}

/* After a wait. Without a ticket the operation must not go on; the lock is of no use to it then. */
static ErrCode take_ticket_back(OpCtx *op, TicketPool *pool, ResourceId id, Error *err) {
    if (pool == NULL)
        return ERR_OK;
    ErrCode rc = ticket_acquire(pool, op, err);
    if (rc != ERR_OK)
        release_held(op, find_held(&op->locker, id));
    return rc;
}

static bool is_lock_granted(void *arg) {
    return ((const Waiter *)arg)->is_granted;
}

static ErrCode wait_for_grant(OpCtx *op, Bucket *bucket, Waiter *waiter, int64_t deadline_us,
                              Error *err) {
    assert_held(&bucket->mu);
    ResourceId id = waiter->head->id;
    int64_t start_us = clock_mono_us();
    if (op->locker.request_us_max != 0 && start_us + op->locker.request_us_max < deadline_us)
        deadline_us = start_us + op->locker.request_us_max;
    mutex_lock(&op->mu);
    op->is_waiting_for_lock = true;
    op->waiting_resource = id;
    op->waiting_mode = waiter->mode;
    mutex_unlock(&op->mu);

    bool is_granted;
    ErrCode rc =
        op_wait_until(op, &bucket->mu, is_lock_granted, waiter, deadline_us, &is_granted, err);
    int64_t waited_us = clock_mono_us() - start_us;
    bucket->stats[resource_type(id)].wait_us[waiter->mode] += waited_us;
    op->metrics.lock_wait_us += waited_us;
    if (!is_granted) {
        list_remove(&waiter->node);
        /* Our request may have been what the ones behind it waited for. */
        grant_waiters_locked(waiter->head);
        drop_head_if_idle_locked(waiter->head);
        if (rc == ERR_OK)
            rc = error_set(err, ERR_LOCK_TIMEOUT, "could not get a lock in mode %s in time",
                           lock_mode_name(waiter->mode));
    }
    mutex_unlock(&bucket->mu);

    mutex_lock(&op->mu);
    op->is_waiting_for_lock = false;
    mutex_unlock(&op->mu);
    return rc;
}

static void release_held(OpCtx *op, HeldLock *held) {
    /* Removed from the locker first: once the bucket is updated another thread may act on it. */
    HeldLock row = *held;
    Locker *locker = &op->locker;
    uint32_t index = (uint32_t)(held - locker->held);
    memmove(held, held + 1, sizeof(HeldLock) * (locker->held_count - index - 1));
    locker->held_count--;
    show_from(op, index, locker->held_count + 1);
    if (row.resource == RESOURCE_ID_RSTL)
        atomic_store_explicit(&op->has_state_lock, false, memory_order_relaxed);

    Bucket *bucket = bucket_of(op->locker.manager, row.resource);
    if (row.is_fast) {
        GlobalHead *global = global_head(op->locker.manager, row.resource);
        uint64_t one = row.mode == LOCK_IS ? FAST_ONE_IS : FAST_ONE_IX;
        uint64_t before = atomic_fetch_sub_explicit(&global->fast, one, memory_order_acq_rel);
        /* Nobody waits for us. The bit cannot be set in between without the setter seeing the new
         * count. */
        if ((before & FAST_SLOW_BIT) == 0)
            return;
        mutex_lock(&bucket->mu);
        grant_waiters_locked(&global->head);
        mutex_unlock(&bucket->mu);
        return;
    }
    mutex_lock(&bucket->mu);
    LockHead *head = ensure_head_locked(op->locker.manager, bucket, row.resource);
    invariant(head->granted[row.mode] > 0);
    head->granted[row.mode]--;
    head->compatible_first_count -= row.is_compatible_first;
    grant_waiters_locked(head);
    drop_head_if_idle_locked(head);
    mutex_unlock(&bucket->mu);
}

static void grant_waiters_locked(LockHead *head) {
    LIST_FOR_EACH (&head->waiters, node) {
        Waiter *waiter = CONTAINER_OF(node, Waiter, node);
        if (!is_compatible_locked(head, waiter->mode, waiter->held)) {
            /* A compatible-first holder lets later compatible requests pass this one; otherwise the
             * queue is strictly in order. */
            if (head->compatible_first_count > 0)
                continue;
            break;
        }
        list_remove(&waiter->node);
        if (waiter->held != LOCK_NONE)
            head->granted[waiter->held]--;
        head->granted[waiter->mode]++;
        head->compatible_first_count += (waiter->flags & LOCK_COMPATIBLE_FIRST) != 0;
        waiter->is_granted = true;
        op_signal(waiter->op);
    }
    /* The fast path opens again only when neither a holder nor a waiter of S or X is left. */
    GlobalHead *global = as_global(head);
    if (global != NULL && list_is_empty(&head->waiters) && head->granted[LOCK_S] == 0 &&
        head->granted[LOCK_X] == 0)
        atomic_fetch_and_explicit(&global->fast, ~FAST_SLOW_BIT, memory_order_acq_rel);
}

/* `own` is the mode in which the requester holds it already; LOCK_NONE: not at all. */
static bool is_compatible_locked(LockHead *head, LockMode mode, LockMode own) {
    GlobalHead *global = as_global(head);
    uint64_t fast = global != NULL ? atomic_load_explicit(&global->fast, memory_order_acquire) : 0;
    uint64_t counts[LOCK_MODE_COUNT] = {
        [LOCK_IS] = head->granted[LOCK_IS] + (fast & FAST_MASK),
        [LOCK_IX] = head->granted[LOCK_IX] + (fast >> 31 & FAST_MASK),
        [LOCK_S] = head->granted[LOCK_S],
        [LOCK_X] = head->granted[LOCK_X],
    };
    if (own != LOCK_NONE)
        counts[own]--;
    for (int held = 0; held < LOCK_MODE_COUNT; held++)
        if (counts[held] > 0 && !lock_modes_are_compatible((LockMode)held, mode))
            return false;
    return true;
}

static LockHead *ensure_head_locked(LockManager *manager, Bucket *bucket, ResourceId id) {
    GlobalHead *global = global_head(manager, id);
    if (global != NULL) {
        /* Linked on first use, so that lock_for_each_waiter finds it like any other head. */
        if (global->head.node.next == NULL)
            list_push_back(&bucket->heads, &global->head.node);
        return &global->head;
    }
    LIST_FOR_EACH (&bucket->heads, node) {
        LockHead *head = CONTAINER_OF(node, LockHead, node);
        if (head->id == id)
            return head;
    }
    LockHead *head = NEW(LockHead);
    head->id = id;
    list_init(&head->waiters);
    list_push_front(&bucket->heads, &head->node);
    return head;
}

static void drop_head_if_idle_locked(LockHead *head) {
    for (int m = 0; m < LOCK_MODE_COUNT; m++)
        if (head->granted[m] > 0)
            return;
    if (!list_is_empty(&head->waiters))
        return;
    list_remove(&head->node);
    if (as_global(head) == NULL)
        xfree(head);
}

static GlobalHead *global_head(LockManager *manager, ResourceId id) {
    if (resource_type(id) != RESOURCE_GLOBAL)
        return NULL;
    return &manager->global[id - RESOURCE_ID_GLOBAL];
}

/* NULL: of another kind of resource. */
static GlobalHead *as_global(LockHead *head) {
    return resource_type(head->id) == RESOURCE_GLOBAL ? CONTAINER_OF(head, GlobalHead, head) : NULL;
}

static Bucket *bucket_of(LockManager *manager, ResourceId id) {
    return &manager->buckets[id & (BUCKET_COUNT - 1)];
}

void locker_init(Locker *locker, LockManager *manager) {
    *locker = (Locker){.manager = manager, .held_capacity = LOCKER_HELD_INLINE};
    locker->held = locker->held_inline;
}

void locker_done(Locker *locker) {
    invariant(locker->held_count == 0);
    if (locker->held != locker->held_inline)
        xfree(locker->held);
    locker->held = locker->held_inline;
    locker->held_capacity = LOCKER_HELD_INLINE;
}

void locker_swap(Locker *a, Locker *b) {
    Locker old = *a;
    bool is_a_inline = a->held == a->held_inline;
    *a = *b;
    if (b->held == b->held_inline)
        a->held = a->held_inline;
    *b = old;
    if (is_a_inline)
        b->held = b->held_inline;
}

static void grow(Locker *locker) {
    HeldLock *grown = xmalloc(sizeof(HeldLock) * locker->held_capacity * 2);
    memcpy(grown, locker->held, sizeof(HeldLock) * locker->held_count);
    if (locker->held != locker->held_inline)
        xfree(locker->held);
    locker->held = grown;
    locker->held_capacity *= 2;
}

/* Linear: an operation holds four or five locks, and the array is in one or two cache lines. */
static HeldLock *find_held(const Locker *locker, ResourceId id) {
    for (uint32_t i = 0; i < locker->held_count; i++)
        if (locker->held[i].resource == id)
            return (HeldLock *)&locker->held[i];
    return NULL;
}

static void add_held(OpCtx *op, ResourceId id, LockMode mode, LockFlags flags, bool is_fast) {
    Locker *locker = &op->locker;
    if (UNLIKELY(locker->held_count == locker->held_capacity))
        grow(locker);
    locker->held[locker->held_count++] =
        (HeldLock){.resource = id,
                   .mode = mode,
                   .count = 1,
                   .is_fast = is_fast,
                   .is_compatible_first = (flags & LOCK_COMPATIBLE_FIRST) != 0};
    show_from(op, locker->held_count - 1, locker->held_count);
    if (id == RESOURCE_ID_RSTL)
        atomic_store_explicit(&op->has_state_lock, true, memory_order_relaxed);
    op->metrics.lock_acquired[mode]++;
}

/* ---- what others see ---- */

/* The mode takes the place of two bits of the hash. */
#define SHOWN_MODE_SHIFT 59
#define SHOWN_MODE_BITS  (UINT64_C(3) << SHOWN_MODE_SHIFT)

/* Rows from `first` on have changed; `count` were shown until now. */
static void show_from(OpCtx *op, uint32_t first, uint32_t count) {
    const Locker *locker = &op->locker;
    for (uint32_t i = first; i < count && i < LOCKS_SHOWN_MAX; i++) {
        const HeldLock *held = &locker->held[i];
        uint64_t word = i < locker->held_count ? lock_shown_id(held->resource) |
                                                     (uint64_t)held->mode << SHOWN_MODE_SHIFT
                                               : 0;
        atomic_store_explicit(&op->shown_locks[i], word, memory_order_relaxed);
    }
}

void lock_show_all(OpCtx *op) {
    show_from(op, 0, LOCKS_SHOWN_MAX);
}

ResourceId lock_shown_id(ResourceId id) {
    return id & ~SHOWN_MODE_BITS;
}

uint32_t lock_shown(const OpCtx *op, ShownLock *ret_rows) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < LOCKS_SHOWN_MAX; i++) {
        uint64_t word = atomic_load_explicit(&op->shown_locks[i], memory_order_relaxed);
        if (word != 0)
            ret_rows[count++] = (ShownLock){
                lock_shown_id(word), (LockMode)((word & SHOWN_MODE_BITS) >> SHOWN_MODE_SHIFT)};
    }
    return count;
}

uint32_t locker_shown(const Locker *locker, ShownLock *ret_rows) {
    uint32_t count = locker->held_count < LOCKS_SHOWN_MAX ? locker->held_count : LOCKS_SHOWN_MAX;
    for (uint32_t i = 0; i < count; i++)
        ret_rows[i] = (ShownLock){lock_shown_id(locker->held[i].resource), locker->held[i].mode};
    return count;
}

static bool covers(LockMode held, LockMode requested) {
    static const bool COVERS[LOCK_MODE_COUNT][LOCK_MODE_COUNT] = {
        [LOCK_IS] = {true, false, false, false},
        [LOCK_IX] = {true, true, false, false},
        [LOCK_S] = {true, false, true, false},
        [LOCK_X] = {true, true, true, true},
    };
    return COVERS[held][requested];
}
