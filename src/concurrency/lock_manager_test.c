#include "concurrency/lock_manager.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/prng.h"
#include "base/test.h"
#include "concurrency/tickets.h"

typedef struct LockFixture {
    OpRegistry *registry;
    OpCtx *ops[8];
} LockFixture;

static void fixture_init(LockFixture *fx) {
    fx->registry = op_registry_new();
    for (size_t i = 0; i < ARRAY_LEN(fx->ops); i++) {
        fx->ops[i] = op_ctx_new(fx->registry, NULL, NULL);
        op_begin(fx->ops[i], &(OpDescription){.op_type = "none", .ns = ""});
    }
}

static void fixture_done(LockFixture *fx) {
    for (size_t i = 0; i < ARRAY_LEN(fx->ops); i++) {
        op_end(fx->ops[i]);
        op_ctx_free(fx->ops[i]);
    }
    op_registry_free(fx->registry);
}

static bool try_lock(OpCtx *op, ResourceId id, LockMode mode) {
    Error err = {0};
    ErrCode rc = lock_acquire(op, id, mode, LOCK_DEFAULT, clock_mono_us(), &err);
    EXPECT(rc == ERR_OK || rc == ERR_LOCK_TIMEOUT);
    error_reset(&err);
    return rc == ERR_OK;
}

TEST(locks_follow_the_compatibility_matrix) {
    /* Goal (LCK-1): for every pair of modes, on global and other resources, a second holder is
     * admitted exactly when the matrix of the design says so. */
    static const bool EXPECTED[4][4] = {
        [LOCK_IS] = {true, true, true, false},
        [LOCK_IX] = {true, true, false, false},
        [LOCK_S] = {true, false, true, false},
        [LOCK_X] = {false, false, false, false},
    };
    LockFixture fx;
    fixture_init(&fx);
    ResourceId ids[] = {
        RESOURCE_ID_GLOBAL, RESOURCE_ID_RSTL, resource_id(RESOURCE_DATABASE, "a", 1),
        resource_id(RESOURCE_COLLECTION, "a.b", 3), resource_id(RESOURCE_MUTEX, "m", 1)};
    for (size_t r = 0; r < ARRAY_LEN(ids); r++) {
        for (int held = 0; held < 4; held++) {
            for (int asked = 0; asked < 4; asked++) {
                EXPECT(try_lock(fx.ops[0], ids[r], (LockMode)held));
                bool is_granted = try_lock(fx.ops[1], ids[r], (LockMode)asked);
                EXPECT(is_granted == EXPECTED[held][asked]);
                if (is_granted)
                    lock_release(fx.ops[1], ids[r]);
                lock_release(fx.ops[0], ids[r]);
            }
        }
    }
    fixture_done(&fx);
}

typedef struct Waiting {
    OpCtx *op;
    ResourceId id;
    LockMode mode;
    LockFlags flags;
    _Atomic int *order;
    int position;
    ErrCode rc;
    Thread thread;
} Waiting;

static void wait_run(void *arg) {
    Waiting *w = arg;
    Error err = {0};
    w->rc = lock_acquire(w->op, w->id, w->mode, w->flags, INT64_MAX, &err);
    w->position = atomic_fetch_add(w->order, 1);
    if (w->rc == ERR_OK)
        lock_release(w->op, w->id);
    error_reset(&err);
}

static bool is_waiting(OpCtx *op) {
    mutex_lock(&op->mu);
    bool is = op->is_waiting_for_lock;
    mutex_unlock(&op->mu);
    return is;
}

static void start_waiting(Waiting *w) {
    Error err = {0};
    EXPECT_OK(thread_start(&w->thread, "locker", wait_run, w, &err), err);
    while (!is_waiting(w->op))
        thread_sleep_us(200);
}

TEST(others_see_which_locks_an_operation_holds) {
    /* Goal (LCK-1): whatever is acquired, raised or released, the list for others is the locker's.
     * Method: random requests of one operation, looked at after each. */
    LockFixture fx;
    fixture_init(&fx);
    OpCtx *op = fx.ops[0];
    op->locker.request_us_max = 1; /* any order, as transactions do */
    Prng prng = prng_seeded(7);
    uint32_t acquired[12] = {0};
    for (int round = 0; round < 5000; round++) {
        uint32_t i = (uint32_t)prng_below(&prng, ARRAY_LEN(acquired));
        char name[2] = {(char)('a' + i), '\0'};
        ResourceId id = i == 0 ? RESOURCE_ID_GLOBAL : resource_id(RESOURCE_COLLECTION, name, 1);
        if (acquired[i] > 0 && prng_below(&prng, 2) == 0) {
            lock_release(op, id);
            acquired[i]--;
        } else if (i != 0 || acquired[i] == 0) {
            LockMode mode = i == 0 ? LOCK_IX : (LockMode)prng_below(&prng, LOCK_MODE_COUNT);
            EXPECT(try_lock(op, id, mode));
            acquired[i]++;
        }
        ShownLock shown[LOCKS_SHOWN_MAX], held[LOCKS_SHOWN_MAX];
        uint32_t count = lock_shown(op, shown);
        EXPECT_EQ_U64(count, locker_shown(&op->locker, held));
        for (uint32_t k = 0; k < count; k++) {
            EXPECT_EQ_U64(shown[k].resource, held[k].resource);
            EXPECT_EQ_I64(shown[k].mode, held[k].mode);
        }
    }
    for (uint32_t i = 0; i < ARRAY_LEN(acquired); i++) {
        char name[2] = {(char)('a' + i), '\0'};
        for (; acquired[i] > 0; acquired[i]--)
            lock_release(op,
                         i == 0 ? RESOURCE_ID_GLOBAL : resource_id(RESOURCE_COLLECTION, name, 1));
    }
    ShownLock none[LOCKS_SHOWN_MAX];
    EXPECT_EQ_U64(lock_shown(op, none), 0);
    fixture_done(&fx);
}

TEST(locks_are_granted_in_order_of_arrival) {
    /* Goal: a reader that comes after a waiting X waits behind it, and at-front requests go first.
     * Method: op 0 holds S; X (1), IS (2) and an at-front X (3) queue up; release and look at the
     * order. */
    LockFixture fx;
    fixture_init(&fx);
    ResourceId id = resource_id(RESOURCE_COLLECTION, "a.b", 3);
    _Atomic int order = 0;
    EXPECT(try_lock(fx.ops[0], id, LOCK_S));
    Waiting x = {fx.ops[1], id, LOCK_X, LOCK_DEFAULT, &order, -1, ERR_OK, {0}};
    Waiting is = {fx.ops[2], id, LOCK_IS, LOCK_DEFAULT, &order, -1, ERR_OK, {0}};
    Waiting front = {fx.ops[3], id, LOCK_X, LOCK_AT_FRONT, &order, -1, ERR_OK, {0}};
    start_waiting(&x);
    start_waiting(&is);
    start_waiting(&front);
    lock_release(fx.ops[0], id);
    thread_join(&x.thread);
    thread_join(&is.thread);
    thread_join(&front.thread);
    EXPECT_EQ_I64(front.position, 0);
    EXPECT_EQ_I64(x.position, 1);
    EXPECT_EQ_I64(is.position, 2);
    fixture_done(&fx);
}

TEST(lock_wait_ends_when_the_operation_is_killed) {
    LockFixture fx;
    fixture_init(&fx);
    ResourceId id = RESOURCE_ID_GLOBAL;
    _Atomic int order = 0;
    EXPECT(try_lock(fx.ops[0], id, LOCK_X));
    Waiting w = {fx.ops[1], id, LOCK_IS, LOCK_DEFAULT, &order, -1, ERR_OK, {0}};
    start_waiting(&w);
    EXPECT(op_registry_kill(fx.registry, fx.ops[1]->op_id, ERR_INTERRUPTED));
    thread_join(&w.thread);
    EXPECT(w.rc == ERR_INTERRUPTED);
    lock_release(fx.ops[0], id);
    EXPECT(try_lock(fx.ops[2], id, LOCK_X));
    lock_release(fx.ops[2], id);
    fixture_done(&fx);
}

TEST(unit_of_work_keeps_locks_to_its_end) {
    LockFixture fx;
    fixture_init(&fx);
    ResourceId id = resource_id(RESOURCE_DATABASE, "a", 1);
    lock_unit_of_work_begin(fx.ops[0]);
    EXPECT(try_lock(fx.ops[0], id, LOCK_IX));
    lock_release(fx.ops[0], id);
    EXPECT(lock_is_held(fx.ops[0], id, LOCK_IX));
    EXPECT(!try_lock(fx.ops[1], id, LOCK_X));
    lock_unit_of_work_end(fx.ops[0]);
    EXPECT(!lock_is_held(fx.ops[0], id, LOCK_IS));
    EXPECT(try_lock(fx.ops[1], id, LOCK_X));
    lock_release(fx.ops[1], id);
    fixture_done(&fx);
}

typedef struct Stress {
    OpCtx *op;
    uint64_t seed;
    int64_t *shared; /* guarded by X on the global resource, read under the other modes */
    Thread thread;
} Stress;

static void stress_run(void *arg) {
    Stress *s = arg;
    Prng prng = prng_seeded(s->seed);
    for (int i = 0; i < 3000; i++) {
        static const LockMode MODES[] = {LOCK_IS, LOCK_IX, LOCK_IX, LOCK_S, LOCK_X};
        LockMode mode = MODES[prng_below(&prng, ARRAY_LEN(MODES))];
        Error err = {0};
        EXPECT_OK(lock_acquire(s->op, RESOURCE_ID_GLOBAL, mode, LOCK_DEFAULT, INT64_MAX, &err),
                  err);
        if (mode == LOCK_X) {
            /* Nobody else is inside: both halves change together. */
            s->shared[0]++;
            s->shared[1]++;
        } else {
            EXPECT_EQ_I64(s->shared[0], s->shared[1]);
        }
        lock_release(s->op, RESOURCE_ID_GLOBAL);
    }
}

TEST(exclusive_global_lock_excludes_the_fast_path) {
    /* Goal: the fast path of intent locks never lets a holder in beside X. Method: threads take
     * random modes; X holders change two counters, all others check that they are equal (also for
     * TSan). */
    LockFixture fx;
    fixture_init(&fx);
    int64_t shared[2] = {0, 0};
    Stress rows[4];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        rows[i] = (Stress){fx.ops[i], test_seed() + i, shared, {0}};
        Error err = {0};
        EXPECT_OK(thread_start(&rows[i].thread, "stress", stress_run, &rows[i], &err), err);
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        thread_join(&rows[i].thread);
    EXPECT(shared[0] > 0);
    fixture_done(&fx);
}

typedef struct TicketUser {
    OpCtx *op;
    TicketPool *pool;
    _Atomic int *inside;
    _Atomic int *most;
    Thread thread;
} TicketUser;

static void ticket_run(void *arg) {
    TicketUser *u = arg;
    for (int i = 0; i < 500; i++) {
        Error err = {0};
        EXPECT_OK(ticket_acquire(u->pool, u->op, &err), err);
        int now = 1 + atomic_fetch_add(u->inside, 1);
        int most = atomic_load(u->most);
        while (now > most && !atomic_compare_exchange_weak(u->most, &most, now))
            ;
        if (i % 16 == 0)
            thread_sleep_us(50);
        atomic_fetch_sub(u->inside, 1);
        ticket_release(u->op);
    }
}

typedef struct TicketTurn {
    OpCtx *op;
    TicketPool *pool;
    _Atomic int *turns;
    int turn; /* when it was let in */
    Thread thread;
} TicketTurn;

static void take_turn(void *arg) {
    TicketTurn *t = arg;
    Error err = {0};
    EXPECT_OK(ticket_acquire(t->pool, t->op, &err), err);
    t->turn = atomic_fetch_add(t->turns, 1);
    ticket_release(t->op);
}

static void wait_until_queued(TicketPool *pool, int32_t count) {
    while (ticket_stats(pool).queued < count)
        thread_sleep_us(100);
}

TEST(tickets_go_to_normal_priority_first_but_low_is_not_starved) {
    /* Goal (LCK-2): of waiters queued as low, normal, normal, normal, normal the low one comes
     * third with a threshold of two, and last without one; immediate priority does not wait. */
    for (int32_t threshold = 0; threshold <= 2; threshold += 2) {
        LockFixture fx;
        fixture_init(&fx);
        TicketPool *pool = ticket_pool_new("test", 1);
        ticket_pool_set_bypass_threshold(pool, threshold);
        Error err = {0};
        EXPECT_OK(ticket_acquire(pool, fx.ops[7], &err), err);
        _Atomic int turns = 0;
        TicketTurn waiters[5];
        for (int i = 0; i < 5; i++) {
            waiters[i] = (TicketTurn){.op = fx.ops[i], .pool = pool, .turns = &turns};
            fx.ops[i]->admission_priority = i == 0 ? ADMISSION_LOW : ADMISSION_NORMAL;
            EXPECT_OK(thread_start(&waiters[i].thread, "turn", take_turn, &waiters[i], &err), err);
            wait_until_queued(pool, i + 1);
        }
        fx.ops[6]->admission_priority = ADMISSION_IMMEDIATE;
        EXPECT_OK(ticket_acquire(pool, fx.ops[6], &err), err);
        ticket_release(fx.ops[6]);
        EXPECT_EQ_I64(ticket_stats(pool).exempt_total, 1);
        ticket_release(fx.ops[7]);
        for (int i = 0; i < 5; i++)
            thread_join(&waiters[i].thread);
        EXPECT_EQ_I64(waiters[0].turn, threshold == 0 ? 4 : 2);
        EXPECT_EQ_I64(ticket_stats(pool).low_expedited_total, threshold == 0 ? 0 : 1);
        ticket_pool_free(pool);
        fixture_done(&fx);
    }
}

TEST(tickets_bound_the_number_inside) {
    LockFixture fx;
    fixture_init(&fx);
    TicketPool *pool = ticket_pool_new("test", 3);
    _Atomic int inside = 0, most = 0;
    TicketUser users[8];
    for (size_t i = 0; i < ARRAY_LEN(users); i++) {
        users[i] = (TicketUser){fx.ops[i], pool, &inside, &most, {0}};
        Error err = {0};
        EXPECT_OK(thread_start(&users[i].thread, "tickets", ticket_run, &users[i], &err), err);
    }
    for (size_t i = 0; i < ARRAY_LEN(users); i++)
        thread_join(&users[i].thread);
    EXPECT(most <= 3);
    TicketStats stats = ticket_stats(pool);
    EXPECT_EQ_I64(stats.available, 3);
    EXPECT_EQ_I64(stats.queued, 0);
    EXPECT_EQ_I64(stats.finished_total, 8 * 500);
    EXPECT_EQ_I64(stats.normal.admitted_total, 8 * 500);
    ticket_pool_free(pool);
    fixture_done(&fx);
}
