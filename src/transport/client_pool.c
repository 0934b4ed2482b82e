/*
 * client_pool.c - the connections to each host: who has one, who may open one, who waits.
 *
 * Connections in use, idle and being opened together are at most `connections_max` per host, and at
 * most `connecting_max` are being opened: a host that comes back after an outage must not be hit by
 * hundreds of handshakes at once. Other callers queue: a returned connection, or the right to open
 * one, goes to the first. There are idle connections only if nobody waits. The one used last is
 * used next, so that surplus ones age and are closed.
 *
 * A host has a generation. A network error on a connection of the current one begins the next: idle
 * connections of the old one are closed, those in use when they are returned. One broken connection
 * usually means that all to that host are.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "transport/client_internal.h"

enum {
    BUCKETS = 256,
    CONNECTIONS_MAX_DEFAULT = 256,
    CONNECTING_MAX_DEFAULT = 8,
    /* Idle for longer: checked before use, for the price of one recv. */
    SURELY_FRESH_US = 10 * 1000,
};

#define SECONDS_US INT64_C(1000000)

struct ClientHost {
    ClientHost *next; /* of the bucket */
    char name[CLIENT_HOST_SIZE];
    /* Guarded by the pool's mu. */
    List idle; /* ClientConn.node, the one used last in front */
    uint32_t idle_count;
    uint32_t in_use;
    uint32_t connecting;
    List waits; /* PlaceWait.node, first come first served */
    uint32_t wait_count;
    uint64_t generation;
    int64_t used_us;       /* when it was last requested */
    ClientHostStats stats; /* the part that only counts up */
};

struct ClientPool {
    /* Set at init, then constant. */
    ClientPoolConfig config;
    ClientResolver *resolver;

    Mutex mu;
    /* Guarded by mu. */
    ClientHost *buckets[BUCKETS];
    ClientKeeper *keeper; /* NULL: not started yet */
    bool is_keeper_starting;
    bool is_stopping;
    uint32_t own_count;
};

static void close_all(List *conns);
static void serve_locked(ClientPool *pool, ClientHost *host);

ClientPool *client_pool_new(const ClientPoolConfig *config) {
    ClientPool *pool = NEW(ClientPool);
    ClientPoolConfig *c = &pool->config;
    *c = *config;
    if (c->connections_max == 0)
        c->connections_max = CONNECTIONS_MAX_DEFAULT;
    if (c->connections_min > c->connections_max)
        c->connections_min = c->connections_max;
    if (c->connecting_max == 0)
        c->connecting_max = CONNECTING_MAX_DEFAULT;
    c->idle_us_max = c->idle_us_max > 0 ? c->idle_us_max : 300 * SECONDS_US;
    c->connect_us_max = c->connect_us_max > 0 ? c->connect_us_max : 10 * SECONDS_US;
    c->keep_interval_us = c->keep_interval_us > 0 ? c->keep_interval_us : SECONDS_US;
    c->name_us_max = c->name_us_max > 0 ? c->name_us_max : 30 * SECONDS_US;
    pool->resolver = client_resolver_new(c->name_us_max, c->resolve, c->resolve_arg);
    mutex_init(&pool->mu, LOCK_RANK_CLIENT_POOL);
    return pool;
}

const ClientPoolConfig *pool_config(const ClientPool *pool) {
    return &pool->config;
}

ClientResolver *pool_resolver(const ClientPool *pool) {
    return pool->resolver;
}

const char *host_name(const ClientHost *host) {
    return host->name;
}

const char *client_pool_name(const ClientPool *pool) {
    return pool->config.name;
}

/* ---- hosts ---- */

static ClientHost **bucket_of(ClientPool *pool, const char *host) {
    return &pool->buckets[hash_text(host) % BUCKETS];
}

static ClientHost *find_locked(ClientPool *pool, const char *name) {
    assert_held(&pool->mu);
    ClientHost *host = *bucket_of(pool, name);
    while (host != NULL && strcmp(host->name, name) != 0)
        host = host->next;
    return host;
}

static ErrCode add_locked(ClientPool *pool, const char *name, ClientHost **ret_host, Error *err) {
    if (strlen(name) >= CLIENT_HOST_SIZE)
        return error_set(err, ERR_HOST_NOT_FOUND, "the name of a host is too long");
    ClientHost *host = NEW(ClientHost);
    snprintf(host->name, sizeof(host->name), "%s", name);
    list_init(&host->idle);
    list_init(&host->waits);
    ClientHost **bucket = bucket_of(pool, name);
    host->next = *bucket;
    *bucket = host;
    *ret_host = host;
    return ERR_OK;
}

static bool is_unused(const ClientHost *host) {
    return host->idle_count + host->in_use + host->connecting + host->wait_count == 0;
}

/* Moves the idle connections to `closed`, to be closed without the mutex: close is a system
 * call. */
static void take_idle_locked(ClientHost *host, List *closed) {
    LIST_FOR_EACH (&host->idle, node) {
        ClientConn *conn = CONTAINER_OF(node, ClientConn, node);
        host->stats.never_used += conn->use_count == 0;
        list_remove(node);
        list_push_back(closed, node);
    }
    host->idle_count = 0;
}

static void next_generation_locked(ClientHost *host, List *closed) {
    host->generation++;
    host->stats.dropped += host->idle_count;
    take_idle_locked(host, closed);
}

static void close_all(List *conns) {
    LIST_FOR_EACH (conns, node) {
        list_remove(node);
        client_conn_free(CONTAINER_OF(node, ClientConn, node));
    }
}

/* ---- the line ---- */

static bool has_room(const ClientPool *pool, const ClientHost *host) {
    return host->idle_count + host->in_use + host->connecting < pool->config.connections_max &&
           host->connecting < pool->config.connecting_max;
}

static void leave_line_locked(ClientHost *host, PlaceWait *wait) {
    list_remove(&wait->node);
    host->wait_count--;
    uint64_t waited_us = (uint64_t)(clock_mono_us() - wait->since_us);
    host->stats.wait_us += waited_us;
    if (waited_us > host->stats.wait_us_max)
        host->stats.wait_us_max = waited_us;
}

/* Ends a wait. The operation is signaled under the mutex: once it has seen the state it may be
 * freed. */
static void end_wait_locked(ClientHost *host, PlaceWait *wait, PlaceState state) {
    leave_line_locked(host, wait);
    wait->state = state;
    op_signal(wait->op);
}

static void fail_waits_locked(ClientHost *host, ErrCode rc, const char *message) {
    LIST_FOR_EACH (&host->waits, node) {
        PlaceWait *wait = CONTAINER_OF(node, PlaceWait, node);
        wait->rc = rc;
        snprintf(wait->message, sizeof(wait->message), "%s", message);
        end_wait_locked(host, wait, PLACE_FAILED);
    }
}

/* Grants rights to open connections, as far as available, to the longest waiting. */
static void serve_locked(ClientPool *pool, ClientHost *host) {
    assert_held(&pool->mu);
    while (!list_is_empty(&host->waits) && has_room(pool, host)) {
        host->connecting++;
        end_wait_locked(host, CONTAINER_OF(list_first(&host->waits), PlaceWait, node), PLACE_OPEN);
    }
}

/* Hands a ready connection to the first waiter, or makes it idle. */
static void offer_locked(ClientHost *host, ClientConn *conn, int64_t now_us) {
    ListNode *first = list_first(&host->waits);
    if (first == NULL) {
        conn->idle_since_us = now_us;
        list_push_front(&host->idle, &conn->node);
        host->idle_count++;
        return;
    }
    PlaceWait *wait = CONTAINER_OF(first, PlaceWait, node);
    wait->conn = conn;
    host->in_use++;
    end_wait_locked(host, wait, PLACE_CONN);
}

static void ask_locked(ClientPool *pool, OpCtx *op, ClientHost *host, PlaceWait *wait,
                       int64_t now_us) {
    wait->conn = NULL;
    wait->node = (ListNode){0};
    wait->op = op;
    host->used_us = now_us;
    ListNode *idle = list_first(&host->idle);
    if (LIKELY(idle != NULL)) {
        list_remove(idle);
        host->idle_count--;
        host->in_use++;
        wait->conn = CONTAINER_OF(idle, ClientConn, node);
        wait->state = PLACE_CONN;
        /* Not past the queue: those who wait come first. */
    } else if (list_is_empty(&host->waits) && has_room(pool, host)) {
        host->connecting++;
        wait->state = PLACE_OPEN;
    } else {
        wait->since_us = now_us;
        wait->state = PLACE_QUEUED;
        host->wait_count++;
        host->stats.waits++;
        list_push_back(&host->waits, &wait->node);
    }
}

/* Started on first use, by one of the callers: a node that never calls others needs no thread. */
static ErrCode ensure_keeper(ClientPool *pool, Error *err) {
    mutex_lock(&pool->mu);
    bool is_mine = pool->keeper == NULL && !pool->is_keeper_starting && !pool->is_stopping;
    pool->is_keeper_starting |= is_mine;
    mutex_unlock(&pool->mu);
    if (!is_mine)
        return ERR_OK;
    ClientKeeper *keeper = NULL;
    ErrCode rc = keeper_start(pool, &keeper, err);
    mutex_lock(&pool->mu);
    pool->keeper = keeper;
    pool->is_keeper_starting = false;
    mutex_unlock(&pool->mu);
    return rc;
}

static ErrCode ask(ClientPool *pool, OpCtx *op, const char *name, int64_t now_us, PlaceWait *wait,
                   ClientHost **ret_host, PlaceState *ret_state, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    if (UNLIKELY(pool->is_stopping))
        return error_set(err, ERR_SHUTDOWN_IN_PROGRESS, "this node is shutting down");
    ClientHost *host = find_locked(pool, name);
    if (UNLIKELY(host == NULL))
        TRY(add_locked(pool, name, &host, err));
    ask_locked(pool, op, host, wait, now_us);
    *ret_host = host;
    *ret_state = wait->state;
    return ERR_OK;
}

ErrCode pool_ask(ClientPool *pool, OpCtx *op, const char *name, PlaceWait *wait,
                 ClientHost **ret_host, PlaceState *ret_state, Error *err) {
    for (;;) {
        int64_t now_us = clock_mono_us();
        TRY(ask(pool, op, name, now_us, wait, ret_host, ret_state, err));
        if (UNLIKELY(*ret_state != PLACE_CONN)) {
            ErrCode rc = ensure_keeper(pool, err);
            if (rc != ERR_OK)
                pool_cancel(pool, *ret_host, wait);
            return rc;
        }
        if (LIKELY(now_us - wait->conn->idle_since_us < SURELY_FRESH_US) ||
            !conn_is_stale(wait->conn))
            return ERR_OK;
        pool_give_back(pool, wait->conn, /* is_reusable= */ false);
    }
}

PlaceState pool_place_state(ClientPool *pool, PlaceWait *wait) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    return wait->state;
}

void pool_cancel(ClientPool *pool, ClientHost *host, PlaceWait *wait) {
    mutex_lock(&pool->mu);
    PlaceState state = wait->state;
    wait->state = PLACE_NONE;
    if (state == PLACE_QUEUED) {
        leave_line_locked(host, wait);
    } else if (state == PLACE_OPEN) {
        host->connecting--;
        serve_locked(pool, host);
    }
    mutex_unlock(&pool->mu);
    if (state == PLACE_CONN)
        pool_give_back(pool, wait->conn, /* is_reusable= */ true);
}

/* ---- connections ---- */

ClientConn *pool_conn_new(ClientPool *pool, ClientHost *host) {
    ClientConn *conn = conn_new(pool, host->name);
    conn->place = host;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    conn->generation = host->generation;
    host->stats.created++;
    return conn;
}

void pool_opened(ClientPool *pool, ClientConn *conn) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    ClientHost *host = conn->place;
    host->connecting--;
    host->in_use++;
    host->stats.refreshed++;
    serve_locked(pool, host);
}

void pool_give_back(ClientPool *pool, ClientConn *conn, bool is_reusable) {
    ClientHost *host = conn->place;
    /* Unrequested bytes would be taken for the next reply. */
    is_reusable = is_reusable && !client_conn_is_broken(conn) && conn->in.size == conn->consumed;
    if (is_reusable)
        conn_trim(conn);
    int64_t now_us = clock_mono_us();
    mutex_lock(&pool->mu);
    host->in_use--;
    bool is_kept = is_reusable && conn->generation == host->generation && !pool->is_stopping;
    if (LIKELY(is_kept)) {
        offer_locked(host, conn, now_us);
    } else {
        host->stats.dropped++;
        host->stats.never_used += conn->use_count == 0;
        serve_locked(pool, host);
    }
    mutex_unlock(&pool->mu);
    if (!is_kept)
        client_conn_free(conn);
}

void pool_open_failed(ClientPool *pool, ClientHost *host, ClientConn *conn, const Error *cause) {
    List closed;
    list_init(&closed);
    mutex_lock(&pool->mu);
    host->connecting--;
    if (cause != NULL) {
        host->stats.failed++;
        /* An error of an older generation has been acted on already. */
        if (conn == NULL || conn->generation == host->generation)
            next_generation_locked(host, &closed);
        fail_waits_locked(host, cause->code, error_message(cause));
    }
    serve_locked(pool, host);
    mutex_unlock(&pool->mu);
    client_conn_free(conn);
    close_all(&closed);
}

void pool_suspect(ClientPool *pool, ClientConn *conn) {
    List closed;
    list_init(&closed);
    mutex_lock(&pool->mu);
    if (conn->generation == conn->place->generation)
        next_generation_locked(conn->place, &closed);
    serve_locked(pool, conn->place);
    mutex_unlock(&pool->mu);
    close_all(&closed);
}

void client_pool_drop(ClientPool *pool, const char *name) {
    List closed;
    list_init(&closed);
    mutex_lock(&pool->mu);
    ClientHost *host = find_locked(pool, name);
    if (host != NULL) {
        next_generation_locked(host, &closed);
        fail_waits_locked(host, ERR_POOLED_CONNECTIONS_DROPPED, "pooled connections dropped");
    }
    mutex_unlock(&pool->mu);
    close_all(&closed);
}

void pool_count_own(ClientPool *pool, int change) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    pool->own_count += (uint32_t)change;
}

/* ---- upkeep ---- */

static void close_old_locked(ClientPool *pool, ClientHost *host, int64_t now_us, List *closed) {
    /* From the end of the list: the oldest first. */
    for (ListNode *node = host->idle.head.prev; node != &host->idle.head;) {
        ClientConn *conn = CONTAINER_OF(node, ClientConn, node);
        node = node->prev;
        bool is_in_use = now_us - host->used_us < pool->config.idle_us_max;
        uint32_t kept = is_in_use ? pool->config.connections_min : 0;
        if (now_us - conn->idle_since_us < pool->config.idle_us_max ||
            host->idle_count + host->in_use + host->connecting <= kept)
            return;
        host->stats.never_used += conn->use_count == 0;
        list_remove(&conn->node);
        host->idle_count--;
        list_push_back(closed, &conn->node);
    }
}

void pool_tidy(ClientPool *pool) {
    List closed;
    list_init(&closed);
    int64_t now_us = clock_mono_us();
    mutex_lock(&pool->mu);
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (ClientHost **at = &pool->buckets[i]; *at != NULL;) {
            ClientHost *host = *at;
            close_old_locked(pool, host, now_us, &closed);
            if (!is_unused(host) || now_us - host->used_us < 2 * pool->config.idle_us_max) {
                at = &host->next;
                continue;
            }
            *at = host->next;
            xfree(host);
        }
    mutex_unlock(&pool->mu);
    close_all(&closed);
}

ClientHost *pool_find_lack(ClientPool *pool, PlaceWait *wait) {
    int64_t now_us = clock_mono_us();
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    for (uint32_t i = 0; i < BUCKETS && !pool->is_stopping; i++)
        for (ClientHost *host = pool->buckets[i]; host != NULL; host = host->next) {
            uint32_t count = host->idle_count + host->in_use + host->connecting;
            if (count >= pool->config.connections_min || !has_room(pool, host) ||
                now_us - host->used_us >= pool->config.idle_us_max)
                continue;
            host->connecting++;
            *wait = (PlaceWait){.state = PLACE_OPEN};
            return host;
        }
    return NULL;
}

uint32_t client_pool_own_count(ClientPool *pool) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    return pool->own_count;
}

uint32_t client_pool_read_stats(ClientPool *pool, ClientHostStats *ret_stats, uint32_t count_max) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    uint32_t count = 0;
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (ClientHost *host = pool->buckets[i]; host != NULL; host = host->next) {
            if (count++ >= count_max)
                continue;
            ClientHostStats *stats = &ret_stats[count - 1];
            *stats = host->stats;
            memcpy(stats->host, host->name, sizeof(stats->host));
            stats->in_use = host->in_use;
            stats->available = host->idle_count;
            stats->refreshing = host->connecting;
            stats->waiting = host->wait_count;
            stats->generation = host->generation;
        }
    return count;
}

/* ---- the end ---- */

void client_pool_stop(ClientPool *pool) {
    List closed;
    list_init(&closed);
    mutex_lock(&pool->mu);
    pool->is_stopping = true;
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (ClientHost *host = pool->buckets[i]; host != NULL; host = host->next) {
            take_idle_locked(host, &closed);
            fail_waits_locked(host, ERR_SHUTDOWN_IN_PROGRESS, "this node is shutting down");
        }
    ClientKeeper *keeper = TAKE_PTR(pool->keeper);
    mutex_unlock(&pool->mu);
    close_all(&closed);
    keeper_stop(keeper);
}

void client_pool_free(ClientPool *pool) {
    if (pool == NULL)
        return;
    client_pool_stop(pool);
    invariant(pool->own_count == 0);
    for (uint32_t i = 0; i < BUCKETS; i++)
        while (pool->buckets[i] != NULL) {
            ClientHost *host = pool->buckets[i];
            invariant(is_unused(host));
            pool->buckets[i] = host->next;
            xfree(host);
        }
    client_resolver_stop(pool->resolver);
    mutex_done(&pool->mu);
    xfree(pool);
}
