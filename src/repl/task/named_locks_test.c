#include "repl/task/named_locks.h"

#include "base/prng.h"
#include "base/test.h"

typedef struct Request {
    LockSet set;
    LockHold hold;
} Request;

/* "db", "db.c!": an exclusive one ends in "!". */
static void want(Request *request, const char *const *names) {
    *request = (Request){0};
    request->hold.set = &request->set;
    for (; *names != NULL; names++) {
        CLEANUP(error_reset) Error err = {0};
        Str name = str_from(*names);
        bool is_exclusive = name.data[name.size - 1] == '!';
        name.size -= is_exclusive;
        EXPECT_OK(lock_set_add(&request->set, name, is_exclusive, &err), err);
    }
}
#define WANT(request, ...) want((request), (const char *const[]){__VA_ARGS__, NULL})

static bool try_lock(NamedLocks *locks, Request *request) {
    const LockHold *blocker;
    const char *name;
    return named_locks_try(locks, &request->hold, &blocker, &name);
}

TEST(lock_set_is_sorted_and_keeps_the_stronger_mode) {
    Request r;
    WANT(&r, "b", "a.b", "a", "b!", "a.b");
    REQUIRE(r.set.count == 3);
    EXPECT_STR(r.set.locks[0].name, "a");
    EXPECT_STR(r.set.locks[1].name, "a.b");
    EXPECT_STR(r.set.locks[2].name, "b");
    EXPECT(!r.set.locks[1].is_exclusive);
    EXPECT(r.set.locks[2].is_exclusive);
}

TEST(lock_set_refuses_what_has_no_bound) {
    LockSet set = {0};
    CLEANUP(error_reset) Error err = {0};
    char name[NAMED_LOCK_NAME_SIZE + 1];
    memset(name, 'x', sizeof(name));
    EXPECT(lock_set_add(&set, (Str){name, 0}, true, &err) == ERR_BAD_VALUE);
    EXPECT(lock_set_add(&set, (Str){name, NAMED_LOCK_NAME_SIZE}, true, &err) == ERR_BAD_VALUE);
    EXPECT_OK(lock_set_add(&set, (Str){name, NAMED_LOCK_NAME_SIZE - 1}, true, &err), err);
    for (size_t i = 1; i < NAMED_LOCKS_PER_SET_MAX; i++)
        EXPECT_OK(lock_set_add(&set, (Str){name, i}, true, &err), err);
    EXPECT(lock_set_add(&set, STR("one more"), true, &err) == ERR_BAD_VALUE);
    EXPECT_OK(lock_set_add(&set, (Str){name, 1}, true, &err), err); /* is there already */
}

TEST(named_locks_share_a_database_and_exclude_a_collection) {
    NamedLocks locks;
    named_locks_init(&locks);
    Request a, b, c, whole;
    WANT(&a, "db", "db.a!");
    WANT(&b, "db", "db.b!");
    WANT(&c, "db", "db.a");
    WANT(&whole, "db!");
    EXPECT(try_lock(&locks, &a));
    EXPECT(try_lock(&locks, &b));
    const LockHold *blocker;
    const char *name;
    EXPECT(!named_locks_try(&locks, &c.hold, &blocker, &name));
    EXPECT(blocker == &a.hold);
    EXPECT_STR(name, "db.a");
    EXPECT(!try_lock(&locks, &whole));
    named_locks_leave(&locks, &a.hold);
    EXPECT(!try_lock(&locks, &whole));
    named_locks_leave(&locks, &b.hold);
    EXPECT(try_lock(&locks, &whole));
    EXPECT(!try_lock(&locks, &c));
}

TEST(named_locks_queue_in_order_and_let_nobody_overtake) {
    NamedLocks locks;
    named_locks_init(&locks);
    Request holder, exclusive, shared, other;
    WANT(&holder, "x");
    WANT(&exclusive, "x!", "y!");
    WANT(&shared, "x");
    WANT(&other, "z!");
    EXPECT(try_lock(&locks, &holder));
    named_locks_wait(&locks, &exclusive.hold);
    /* "x" is only shared now, but an exclusive one waits for it; "y" is even free. */
    EXPECT(!try_lock(&locks, &shared));
    named_locks_wait(&locks, &shared.hold);
    EXPECT(try_lock(&locks, &other)); /* conflicts with nobody */
    EXPECT(named_locks_grant(&locks) == NULL);
    named_locks_leave(&locks, &holder.hold);
    EXPECT(named_locks_grant(&locks) == &exclusive.hold);
    EXPECT(named_locks_grant(&locks) == NULL);
    named_locks_leave(&locks, &exclusive.hold);
    EXPECT(named_locks_grant(&locks) == &shared.hold);
    EXPECT_EQ_U64(locks.waiting_count, 0);
}

TEST(named_locks_a_waiter_that_leaves_lets_those_behind_it_in) {
    NamedLocks locks;
    named_locks_init(&locks);
    Request holder, exclusive, shared;
    WANT(&holder, "x");
    WANT(&exclusive, "x!");
    WANT(&shared, "x");
    EXPECT(try_lock(&locks, &holder));
    named_locks_wait(&locks, &exclusive.hold);
    named_locks_wait(&locks, &shared.hold);
    EXPECT(named_locks_grant(&locks) == NULL);
    named_locks_leave(&locks, &exclusive.hold);
    named_locks_leave(&locks, &exclusive.hold); /* twice is harmless */
    EXPECT(named_locks_grant(&locks) == &shared.hold);
    EXPECT_EQ_U64(locks.waiting_count, 0);
}

/* Goal: whatever the order, no two holders conflict, and everybody gets through once.
 * Method: random sets over few names, random releases, checked after each step. */
TEST(named_locks_random_requests_never_conflict_and_all_get_through) {
    enum { REQUESTS = 200 };
    static Request requests[REQUESTS];
    static const char *const NAMES[] = {"a", "b", "c", "d"};
    Prng prng = prng_seeded(test_seed());
    NamedLocks locks;
    named_locks_init(&locks);
    size_t next = 0, released = 0;
    for (int step = 0; released < REQUESTS && step < 100 * REQUESTS; step++) {
        if (next < REQUESTS && prng_below(&prng, 2) == 0) {
            Request *r = &requests[next++];
            *r = (Request){.hold = {.set = &r->set}};
            for (uint64_t i = 0, n = prng_below(&prng, 4); i < n; i++) {
                CLEANUP(error_reset) Error err = {0};
                EXPECT_OK(lock_set_add(&r->set, str_from(NAMES[prng_below(&prng, 4)]),
                                       prng_below(&prng, 2) == 0, &err),
                          err);
            }
            if (!try_lock(&locks, r))
                named_locks_wait(&locks, &r->hold);
        } else {
            size_t count = 0, chosen = 0;
            LIST_FOR_EACH (&locks.held, node)
                count++;
            if (count == 0)
                continue;
            chosen = prng_below(&prng, count);
            LIST_FOR_EACH (&locks.held, node)
                if (chosen-- == 0) {
                    named_locks_leave(&locks, CONTAINER_OF(node, LockHold, node));
                    break;
                }
            released++;
            while (named_locks_grant(&locks) != NULL) {
            }
        }
        LIST_FOR_EACH (&locks.held, node)
            LIST_FOR_EACH (&locks.held, other)
                if (node != other)
                    EXPECT(lock_set_conflict(CONTAINER_OF(node, LockHold, node)->set,
                                             CONTAINER_OF(other, LockHold, node)->set) == NULL);
    }
    EXPECT_EQ_U64(released, REQUESTS);
    EXPECT_EQ_U64(locks.waiting_count, 0);
}
