#include "repl/task/named_locks.h"

ErrCode lock_set_add(LockSet *set, Str name, bool is_exclusive, Error *err) {
    if (name.size == 0 || name.size >= NAMED_LOCK_NAME_SIZE)
        return error_set(err, ERR_BAD_VALUE, "the name of a lock has 1 to %d bytes, not %zu",
                         NAMED_LOCK_NAME_SIZE - 1, name.size);
    size_t at = 0;
    int order = -1;
    for (; at < set->count; at++) {
        Str there = str_from(set->locks[at].name);
        size_t size = there.size < name.size ? there.size : name.size;
        order = memcmp(there.data, name.data, size);
        if (order == 0)
            order = there.size < name.size ? -1 : there.size > name.size;
        if (order >= 0)
            break;
    }
    if (at < set->count && order == 0) {
        set->locks[at].is_exclusive |= is_exclusive;
        return ERR_OK;
    }
    if (set->count == NAMED_LOCKS_PER_SET_MAX)
        return error_set(err, ERR_BAD_VALUE, "a task can have at most %d locks",
                         NAMED_LOCKS_PER_SET_MAX);
    memmove(&set->locks[at + 1], &set->locks[at], (set->count - at) * sizeof(set->locks[0]));
    NamedLock *lock = &set->locks[at];
    memcpy(lock->name, name.data, name.size);
    lock->name[name.size] = '\0';
    lock->is_exclusive = is_exclusive;
    set->count++;
    return ERR_OK;
}

const char *lock_set_conflict(const LockSet *a, const LockSet *b) {
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        int order = strcmp(a->locks[i].name, b->locks[j].name);
        if (order == 0 && (a->locks[i].is_exclusive || b->locks[j].is_exclusive))
            return a->locks[i].name;
        i += order <= 0;
        j += order >= 0;
    }
    return NULL;
}

void named_locks_init(NamedLocks *locks) {
    list_init(&locks->held);
    list_init(&locks->waiting);
    locks->waiting_count = 0;
}

const LockHold *named_locks_blocker(const NamedLocks *locks, const LockHold *hold,
                                    const char **ret_name) {
    LIST_FOR_EACH (&locks->held, node) {
        const LockHold *other = CONTAINER_OF(node, LockHold, node);
        *ret_name = lock_set_conflict(hold->set, other->set);
        if (*ret_name != NULL)
            return other;
    }
    /* The queue only up to the one that asks: those behind it came later. */
    LIST_FOR_EACH (&locks->waiting, node) {
        const LockHold *other = CONTAINER_OF(node, LockHold, node);
        if (other == hold)
            break;
        *ret_name = lock_set_conflict(hold->set, other->set);
        if (*ret_name != NULL)
            return other;
    }
    return NULL;
}

static void hold(NamedLocks *locks, LockHold *granted) {
    granted->is_held = true;
    list_push_back(&locks->held, &granted->node);
}

bool named_locks_try(NamedLocks *locks, LockHold *wanted, const LockHold **ret_blocker,
                     const char **ret_name) {
    invariant(wanted->node.next == NULL);
    *ret_blocker = named_locks_blocker(locks, wanted, ret_name);
    if (*ret_blocker != NULL)
        return false;
    hold(locks, wanted);
    return true;
}

void named_locks_wait(NamedLocks *locks, LockHold *wanted) {
    invariant(wanted->node.next == NULL);
    wanted->is_held = false;
    list_push_back(&locks->waiting, &wanted->node);
    locks->waiting_count++;
}

LockHold *named_locks_grant(NamedLocks *locks) {
    LIST_FOR_EACH (&locks->waiting, node) {
        LockHold *waiting = CONTAINER_OF(node, LockHold, node);
        const char *name;
        if (named_locks_blocker(locks, waiting, &name) != NULL)
            continue;
        list_remove(node);
        locks->waiting_count--;
        hold(locks, waiting);
        return waiting;
    }
    return NULL;
}

void named_locks_leave(NamedLocks *locks, LockHold *leaving) {
    if (leaving->node.next == NULL)
        return;
    if (!leaving->is_held)
        locks->waiting_count--;
    leaving->is_held = false;
    list_remove(&leaving->node);
}
