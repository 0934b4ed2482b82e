#include "sharding/route/set_monitors.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"

enum {
    /* A member that did not answer is not asked again sooner. */
    RETRY_US = 500 * 1000,
    CONNECT_US_MAX = 10 * 1000 * 1000,
};

/* The conversation with one member; of the thread alone. */
typedef struct Check {
    WatchedSet *set;
    char host[SET_HOST_SIZE];
    uint32_t call_id;   /* 0: none is under way */
    bool is_awaiting;   /* that call is answered when something changes */
    bool is_await_next; /* the last answer came at once: now wait for a change */
    int64_t sent_us;
    int64_t due_us;
} Check;

struct WatchedSet {
    SetMonitors *monitors;
    char name[SET_NAME_SIZE];
    SetView *view; /* guarded by mu; only the thread replaces it, but for failures that are noted */
    List waiters;  /* Waiter; guarded by mu */
    Check *checks[SET_MEMBERS_MAX];
    uint32_t check_count;
};

typedef struct Waiter {
    ListNode node;
    OpCtx *op;
    WatchedSet *set;
    const SelectRules *rules;
    char *host;
} Waiter;

struct SetMonitors {
    OpRegistry *ops;
    ClientPool *clients;
    SetMonitorSettings settings;
    Thread thread;
    Mutex mu;
    /* Guarded by mu. */
    WatchedSet **sets; /* never removed */
    uint32_t set_count;
    uint32_t set_capacity;
    OpCtx *op; /* of the thread, while it runs */
    Prng prng;
    bool is_stopping;
};

static void monitors_run(void *arg);

SetMonitors *set_monitors_new(OpRegistry *ops, ClientPool *clients,
                              const SetMonitorSettings *settings) {
    SetMonitors *monitors = NEW(SetMonitors);
    monitors->ops = ops;
    monitors->clients = clients;
    monitors->settings = *settings;
    monitors->prng = prng_seeded((uint64_t)clock_mono_us());
    mutex_init(&monitors->mu, LOCK_RANK_SET_MONITORS);
    return monitors;
}

void set_monitors_stop(SetMonitors *monitors) {
    if (monitors == NULL)
        return;
    mutex_lock(&monitors->mu);
    monitors->is_stopping = true;
    if (monitors->op != NULL)
        op_signal(monitors->op);
    mutex_unlock(&monitors->mu);
    if (monitors->thread.is_started)
        thread_join(&monitors->thread);
    monitors->thread.is_started = false;
}

void set_monitors_free(SetMonitors *monitors) {
    if (monitors == NULL)
        return;
    for (uint32_t i = 0; i < monitors->set_count; i++) {
        WatchedSet *set = monitors->sets[i];
        for (uint32_t k = 0; k < set->check_count; k++)
            xfree(set->checks[k]);
        set_view_unref(set->view);
        xfree(set);
    }
    xfree(monitors->sets);
    mutex_done(&monitors->mu);
    xfree(monitors);
}

/* ---- for those who send ---- */

static WatchedSet *find_locked(SetMonitors *monitors, const char *name) {
    for (uint32_t i = 0; i < monitors->set_count; i++)
        if (strcmp(monitors->sets[i]->name, name) == 0)
            return monitors->sets[i];
    return NULL;
}

static ErrCode ensure_thread_locked(SetMonitors *monitors, Error *err) {
    if (monitors->is_stopping)
        return error_set(err, ERR_SHUTDOWN_IN_PROGRESS, "this process is shutting down");
    if (monitors->thread.is_started)
        return ERR_OK;
    return thread_start(&monitors->thread, "SetMonitors", monitors_run, monitors, err);
}

/* With mu held: publishes a view, and wakes those who may go on with it. */
static void publish_locked(WatchedSet *set, SetView *take_view) {
    set_view_unref(set->view);
    set->view = take_view;
    LIST_FOR_EACH (&set->waiters, node)
        op_signal(CONTAINER_OF(node, Waiter, node)->op);
}

ErrCode set_monitors_watch(SetMonitors *monitors, Str address, WatchedSet **ret_set, Error *err) {
    SetView *view;
    TRY(set_view_parse(address, &view, err));
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&monitors->mu);
    WatchedSet *set = find_locked(monitors, view->name);
    if (set != NULL) {
        SetView *next = set_view_with_seeds(set->view, view);
        set_view_unref(view);
        bool is_new = next != set->view;
        publish_locked(set, next);
        if (is_new && monitors->op != NULL)
            op_signal(monitors->op);
        *ret_set = set;
        return ERR_OK;
    }
    ErrCode rc = ensure_thread_locked(monitors, err);
    if (rc != ERR_OK) {
        set_view_unref(view);
        return rc;
    }
    set = NEW(WatchedSet);
    set->monitors = monitors;
    snprintf(set->name, sizeof(set->name), "%s", view->name);
    set->view = view;
    list_init(&set->waiters);
    ARRAY_RESERVE(monitors->sets, monitors->set_count, monitors->set_capacity);
    monitors->sets[monitors->set_count++] = set;
    if (monitors->op != NULL)
        op_signal(monitors->op);
    *ret_set = set;
    return ERR_OK;
}

void watched_set_forget_elections(WatchedSet *set) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&set->monitors->mu);
    publish_locked(set, set_view_without_elections(set->view));
}

const char *watched_set_name(const WatchedSet *set) {
    return set->name;
}

SetView *watched_set_view(WatchedSet *set) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&set->monitors->mu);
    return set_view_ref(set->view);
}

static bool try_select_locked(void *arg) {
    Waiter *waiter = arg;
    const SetView *view = waiter->set->view;
    int index = set_view_select(view, waiter->rules, &waiter->set->monitors->prng);
    if (index >= 0)
        memcpy(waiter->host, view->members[index].host, SET_HOST_SIZE);
    return index >= 0;
}

ErrCode set_select(WatchedSet *set, OpCtx *op, const ReadPreference *preference,
                   char ret_host[SET_HOST_SIZE], Error *err) {
    SetMonitors *monitors = set->monitors;
    SelectRules rules = {preference, monitors->settings.near_us, monitors->settings.heartbeat_us};
    Waiter waiter = {.op = op, .set = set, .rules = &rules, .host = ret_host};
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&monitors->mu);
    if (LIKELY(try_select_locked(&waiter)))
        return ERR_OK;
    list_push_back(&set->waiters, &waiter.node);
    if (monitors->op != NULL)
        op_signal(monitors->op);
    bool is_met = false;
    int64_t deadline_us = clock_mono_us() + monitors->settings.select_us_max;
    ErrCode rc =
        op_wait_until(op, &monitors->mu, try_select_locked, &waiter, deadline_us, &is_met, err);
    list_remove(&waiter.node);
    TRY(rc);
    if (!is_met)
        return error_set(err, ERR_FAILED_TO_SATISFY_READ_PREFERENCE,
                         "no member of the replica set \"%s\" could be found for the read "
                         "preference \"%s\" within %lld ms",
                         set->name, read_mode_name(preference->mode),
                         (long long)(monitors->settings.select_us_max / 1000));
    return ERR_OK;
}

static bool is_about_member(ErrCode code) {
    return client_is_network_error(code) || error_is_of_state(code);
}

void set_note_failure(WatchedSet *set, const char *host, ErrCode code) {
    SetMonitors *monitors = set->monitors;
    if (!is_about_member(code))
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&monitors->mu);
    publish_locked(set, set_view_with_failure(set->view, host));
    if (monitors->op != NULL)
        op_signal(monitors->op);
}

/* ---- the thread ---- */

static Check *ensure_check(WatchedSet *set, const char *host) {
    for (uint32_t i = 0; i < set->check_count; i++)
        if (strcmp(set->checks[i]->host, host) == 0)
            return set->checks[i];
    if (set->check_count == SET_MEMBERS_MAX)
        return NULL;
    Check *check = NEW(Check);
    check->set = set;
    snprintf(check->host, sizeof(check->host), "%s", host);
    return set->checks[set->check_count++] = check;
}

/* Members that the view does not have any more are not asked any more. */
static void drop_checks(WatchedSet *set, const SetView *view, ClientCalls *calls) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->check_count; i++) {
        Check *check = set->checks[i];
        if (set_view_find(view, check->host) >= 0) {
            set->checks[kept++] = check;
            continue;
        }
        if (check->call_id != 0)
            client_calls_cancel(calls, check->call_id);
        xfree(check);
    }
    set->check_count = kept;
}

static void ask(SetMonitors *monitors, ClientCalls *calls, OpCtx *op, const SetMember *member,
                Check *check) {
    check->is_awaiting = check->is_await_next && member->counter >= 0;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "hello", 1);
    int64_t timeout_us = CONNECT_US_MAX;
    if (check->is_awaiting) {
        size_t version = build_open_doc(&b, "topologyVersion");
        build_oid(&b, "processId", &member->process_id);
        build_i64(&b, "counter", member->counter);
        build_close(&b, version);
        build_i64(&b, "maxAwaitTimeMS", monitors->settings.heartbeat_us / 1000);
        timeout_us += monitors->settings.heartbeat_us;
    }
    build_cstr(&b, "$db", "admin");
    ClientCommand command = {.body = doc_builder_end(&b)};
    check->sent_us = clock_mono_us();
    check->call_id =
        client_calls_add(calls, check->host, &command, check->sent_us + timeout_us, check);
    arena_reset(&op->arena);
}

/* Sees to it that every member of the set is being asked, or will be; returns when the next is due.
 */
static int64_t ask_members(SetMonitors *monitors, WatchedSet *set, ClientCalls *calls, OpCtx *op) {
    SetView *view = watched_set_view(set);
    drop_checks(set, view, calls);
    int64_t next_us = INT64_MAX, now_us = clock_mono_us();
    for (uint32_t i = 0; i < view->count; i++) {
        const SetMember *member = &view->members[i];
        Check *check = ensure_check(set, member->host);
        if (check == NULL)
            continue;
        if (check->call_id != 0 && check->is_awaiting && member->kind == SET_MEMBER_UNKNOWN) {
            /* Somebody found it gone: what it will say when something changes is too late. */
            client_calls_cancel(calls, check->call_id);
            check->call_id = 0;
            check->is_await_next = false;
        }
        if (check->call_id != 0)
            continue;
        if (check->due_us <= now_us)
            ask(monitors, calls, op, member, check);
        else if (check->due_us < next_us)
            next_us = check->due_us;
    }
    set_view_unref(view);
    return next_us;
}

static void take_answer(SetMonitors *monitors, const ClientCallEnd *end, OpCtx *op) {
    Check *check = end->user;
    WatchedSet *set = check->set;
    int64_t now_us = clock_mono_us();
    int64_t rtt_us = check->is_awaiting ? -1 : now_us - check->sent_us;
    check->call_id = 0;
    /* A plain answer measures; then wait for a change; then measure again. */
    check->is_await_next = end->rc == ERR_OK && !check->is_awaiting;
    check->due_us = end->rc == ERR_OK ? 0 : check->sent_us + RETRY_US;
    mutex_lock(&monitors->mu);
    const char *old_hosts = set_view_text(set->view, &op->arena);
    SetView *view = end->rc == ERR_OK ? set_view_with_hello(set->view, check->host, end->reply,
                                                            rtt_us, clock_wall_ms())
                                      : set_view_with_failure(set->view, check->host);
    bool has_new_primary = set_view_primary(view) >= 0 && set_view_primary(set->view) < 0;
    publish_locked(set, set_view_ref(view));
    mutex_unlock(&monitors->mu);
    int index = set_view_find(view, check->host);
    if (index >= 0 && view->members[index].counter < 0 && check->due_us == 0)
        /* It says nothing that could change, so there is nothing to wait for. */
        check->due_us = now_us + (view->members[index].kind == SET_MEMBER_UNKNOWN
                                      ? RETRY_US
                                      : monitors->settings.heartbeat_us);
    const char *hosts = set_view_text(view, &op->arena);
    set_view_unref(view);
    bool is_changed = strcmp(hosts, old_hosts) != 0;
    if (is_changed)
        LOG_INFO(LOG_NETWORK, 7400101, "Members of a replica set have changed",
                 LOG_STR("before", old_hosts), LOG_STR("now", hosts));
    arena_reset(&op->arena);
    if ((is_changed || has_new_primary) && monitors->settings.members_changed != NULL)
        monitors->settings.members_changed(monitors->settings.members_arg);
}

/* NULL: there are no more. */
static WatchedSet *set_at(SetMonitors *monitors, uint32_t index) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&monitors->mu);
    return index < monitors->set_count ? monitors->sets[index] : NULL;
}

static bool is_stopping(SetMonitors *monitors) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&monitors->mu);
    return monitors->is_stopping;
}

static ErrCode monitor_round(SetMonitors *monitors, ClientCalls *calls, OpCtx *op, Error *err) {
    int64_t next_us = INT64_MAX;
    WatchedSet *set;
    for (uint32_t i = 0; (set = set_at(monitors, i)) != NULL; i++) {
        int64_t due_us = ask_members(monitors, set, calls, op);
        if (due_us < next_us)
            next_us = due_us;
    }
    bool is_there = false;
    if (client_calls_count(calls) == 0)
        return op_wait(op, next_us, &is_there, err);
    ClientCallEnd end;
    TRY(client_calls_next(calls, next_us, &end, &is_there, err));
    if (is_there)
        take_answer(monitors, &end, op);
    return ERR_OK;
}

static void monitors_run(void *arg) {
    SetMonitors *monitors = arg;
    log_set_thread_name("SetMonitors");
    OpCtx *op = op_ctx_new(monitors->ops, NULL, NULL);
    op->is_kill_exempt = true;
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "SetMonitors"});
    ClientCalls *calls = client_calls_new(monitors->clients, op);
    mutex_lock(&monitors->mu);
    monitors->op = op;
    mutex_unlock(&monitors->mu);
    while (!is_stopping(monitors)) {
        CLEANUP(error_reset) Error err = {0};
        if (monitor_round(monitors, calls, op, &err) == ERR_OK)
            continue;
        LOG_WARN(LOG_NETWORK, 7400102, "Could not watch replica sets",
                 LOG_STR("error", error_message(&err)));
        thread_sleep_us(RETRY_US);
    }
    mutex_lock(&monitors->mu);
    monitors->op = NULL;
    mutex_unlock(&monitors->mu);
    client_calls_free(calls);
    op_end(op);
    op_ctx_free(op);
}
