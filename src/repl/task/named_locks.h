/*
 * named_locks.h - locks by name that are held for as long as a task lives.
 *
 * A task names everything it needs at once, and gets all of it or nothing: nobody holds one lock
 * while waiting for another, so there is no deadlock whatever the order. Names are plain strings;
 * whoever wants a hierarchy names both levels: {"db", shared}, {"db.coll", exclusive}.
 *
 *     named_locks_try --> held --------------------------> named_locks_leave
 *           |                ^                                   |
 *           v (declined)     | named_locks_grant                 | may let others in
 *     named_locks_wait --> waiting -----------------------> named_locks_leave
 *
 * First come, first served: a request that conflicts with one that waits already waits behind it,
 * even if its locks are free. Otherwise shared holders that overlap could keep an exclusive one out
 * for ever.
 *
 * Pure: no memory of its own, no mutex, no waiting. Threading: the caller's lock.
 */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "bson/doc.h"

enum {
    NAMED_LOCKS_PER_SET_MAX = 16,
    NAMED_LOCK_NAME_SIZE = 256, /* with the terminating NUL; a namespace fits */
};

typedef struct NamedLock {
    char name[NAMED_LOCK_NAME_SIZE];
    bool is_exclusive;
} NamedLock;

/* Sorted by name, each name once: two sets are compared in one pass, and shown alike whoever made
 * them. */
typedef struct LockSet {
    size_t count;
    NamedLock locks[NAMED_LOCKS_PER_SET_MAX];
} LockSet;

/* Adds a name; one that is there already keeps the stronger mode. Fails with ERR_BAD_VALUE for an
 * empty or too long name, or one too many. */
ErrCode lock_set_add(LockSet *set, Str name, bool is_exclusive, Error *err) MUST_CHECK;
/* The first name that both want and cannot share; NULL: none. */
const char *lock_set_conflict(const LockSet *a, const LockSet *b);

/* Who wants or has a set. In the caller's memory, which must not move while it is in a table. */
typedef struct LockHold {
    ListNode node;
    const LockSet *set;
    bool is_held;
} LockHold;

typedef struct NamedLocks {
    List held;
    List waiting; /* oldest first */
    size_t waiting_count;
} NamedLocks;

void named_locks_init(NamedLocks *locks);
/* Takes the whole set if nobody has, or waits for, something that conflicts. Otherwise declines and
 * says who is in the way and over which name. */
bool named_locks_try(NamedLocks *locks, LockHold *hold, const LockHold **ret_blocker,
                     const char **ret_name);
/* Whom a hold that waits has to wait for; NULL: nobody. */
const LockHold *named_locks_blocker(const NamedLocks *locks, const LockHold *hold,
                                    const char **ret_name);
/* Enters the queue. */
void named_locks_wait(NamedLocks *locks, LockHold *hold);
/* Moves the oldest one that can go on from the queue to the holders; NULL: none can. Call until it
 * is NULL after every named_locks_leave: one that leaves may let several in. */
LockHold *named_locks_grant(NamedLocks *locks);
/* Gives the locks back, or leaves the queue; nothing for one that is in neither. */
void named_locks_leave(NamedLocks *locks, LockHold *hold);
