#include "transport/client_resolver.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    ENTRIES_MAX = 4096,
    FAILURE_US_MAX = 1000 * 1000, /* how long a name that was not found is believed not to be */
};

typedef struct Entry {
    ListNode node;
    ListNode queue_node; /* linked: to be asked for */
    char host[CLIENT_HOST_SIZE];
    List waits;
    bool is_asked; /* the thread is at it; not to be removed */
    bool is_known; /* `rc` and `addresses` say something */
    int64_t until_us;
    ErrCode rc;
    ClientAddresses addresses;
    char message[ERROR_MESSAGE_INLINE];
} Entry;

struct ClientResolver {
    /* Set at init, then constant. */
    int64_t ttl_us;
    ResolveFn resolve;
    void *arg;

    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    List entries;
    List queue; /* Entry.queue_node, first come first served */
    uint32_t entry_count;
    uint32_t references;
    bool is_running; /* there is a thread */
    bool is_stopping;
};

static void resolver_run(void *resolver);
static void unref(ClientResolver *resolver);
static ErrCode resolve_name(const char *host, int flags, ClientAddresses *ret_addresses,
                            bool *ret_is_name, Error *err);

ClientResolver *client_resolver_new(int64_t ttl_us, ResolveFn resolve, void *arg) {
    ClientResolver *resolver = NEW(ClientResolver);
    resolver->ttl_us = ttl_us;
    resolver->resolve = resolve;
    resolver->arg = arg;
    resolver->references = 1;
    mutex_init(&resolver->mu, LOCK_RANK_CLIENT_RESOLVER);
    cond_init(&resolver->cond);
    list_init(&resolver->entries);
    list_init(&resolver->queue);
    return resolver;
}

void client_resolver_stop(ClientResolver *resolver) {
    mutex_lock(&resolver->mu);
    resolver->is_stopping = true;
    cond_signal(&resolver->cond);
    mutex_unlock(&resolver->mu);
    unref(resolver);
}

static void unref(ClientResolver *resolver) {
    mutex_lock(&resolver->mu);
    bool is_last = --resolver->references == 0;
    mutex_unlock(&resolver->mu);
    if (!is_last)
        return;
    LIST_FOR_EACH (&resolver->entries, node)
        xfree(CONTAINER_OF(node, Entry, node));
    cond_done(&resolver->cond);
    mutex_done(&resolver->mu);
    xfree(resolver);
}

/* ---- asking ---- */

static Entry *find_locked(ClientResolver *resolver, const char *host) {
    assert_held(&resolver->mu);
    LIST_FOR_EACH (&resolver->entries, node) {
        Entry *entry = CONTAINER_OF(node, Entry, node);
        if (strcmp(entry->host, host) == 0)
            return entry;
    }
    return NULL;
}

static void remove_locked(ClientResolver *resolver, Entry *entry) {
    list_remove(&entry->node);
    list_remove(&entry->queue_node);
    resolver->entry_count--;
    xfree(entry);
}

static bool is_idle(const Entry *entry) {
    return !entry->is_asked && list_is_empty(&entry->waits);
}

/* The oldest one that nobody needs makes room. */
static void make_room_locked(ClientResolver *resolver) {
    LIST_FOR_EACH (&resolver->entries, node) {
        Entry *entry = CONTAINER_OF(node, Entry, node);
        if (is_idle(entry)) {
            remove_locked(resolver, entry);
            return;
        }
    }
}

static ErrCode ask_locked(ClientResolver *resolver, Entry *entry, Error *err) {
    if (!resolver->is_running) {
        TRY(thread_start_detached("ClientNames", resolver_run, resolver, err));
        resolver->is_running = true;
        resolver->references++;
    }
    if (entry->queue_node.next == NULL && !entry->is_asked)
        list_push_back(&resolver->queue, &entry->queue_node);
    cond_signal(&resolver->cond);
    return ERR_OK;
}

static ErrCode begin_locked(ClientResolver *resolver, OpCtx *op, const char *host,
                            ResolveWait *wait, ClientAddresses **ret_addresses, Error *err) {
    Entry *entry = find_locked(resolver, host);
    if (entry == NULL) {
        if (resolver->entry_count >= ENTRIES_MAX)
            make_room_locked(resolver);
        entry = NEW(Entry);
        snprintf(entry->host, sizeof(entry->host), "%s", host);
        list_init(&entry->waits);
        list_push_back(&resolver->entries, &entry->node);
        resolver->entry_count++;
    }
    bool is_fresh = entry->is_known && clock_mono_us() < entry->until_us;
    if (!is_fresh)
        TRY(ask_locked(resolver, entry, err));
    if (entry->is_known && entry->rc == ERR_OK) {
        *ret_addresses = xmemdup(&entry->addresses, sizeof(entry->addresses));
        return ERR_OK;
    }
    if (is_fresh)
        return error_set(err, entry->rc, "%s", entry->message);
    wait->op = op;
    list_push_back(&entry->waits, &wait->node);
    return ERR_OK;
}

ErrCode client_resolve_begin(ClientResolver *resolver, OpCtx *op, const char *host,
                             ResolveWait *wait, ClientAddresses **ret_addresses, Error *err) {
    ClientAddresses literal;
    bool is_name = false;
    *wait = (ResolveWait){0};
    *ret_addresses = NULL;
    ErrCode rc = resolve_name(host, AI_NUMERICHOST, &literal, &is_name, err);
    if (rc == ERR_OK)
        *ret_addresses = xmemdup(&literal, sizeof(literal));
    if (!is_name)
        return rc;
    error_reset(err);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&resolver->mu);
    return begin_locked(resolver, op, host, wait, ret_addresses, err);
}

ErrCode client_resolve_end(ClientResolver *resolver, ResolveWait *wait,
                           ClientAddresses **ret_addresses, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&resolver->mu);
    *ret_addresses = NULL;
    if (!wait->is_over)
        return ERR_OK;
    if (wait->rc != ERR_OK)
        return error_set(err, wait->rc, "%s", wait->message);
    *ret_addresses = TAKE_PTR(wait->addresses);
    return ERR_OK;
}

void client_resolve_cancel(ClientResolver *resolver, ResolveWait *wait) {
    if (wait->op == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&resolver->mu);
    list_remove(&wait->node);
    xfree(TAKE_PTR(wait->addresses));
}

void client_resolver_forget(ClientResolver *resolver, const char *host) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&resolver->mu);
    Entry *entry = find_locked(resolver, host);
    if (entry != NULL && is_idle(entry))
        remove_locked(resolver, entry);
}

/* ---- the thread ---- */

static void answer_locked(ClientResolver *resolver, Entry *entry) {
    assert_held(&resolver->mu);
    LIST_FOR_EACH (&entry->waits, node) {
        ResolveWait *wait = CONTAINER_OF(node, ResolveWait, node);
        list_remove(node);
        wait->is_over = true;
        wait->rc = entry->rc;
        if (entry->rc == ERR_OK)
            wait->addresses = xmemdup(&entry->addresses, sizeof(entry->addresses));
        else
            memcpy(wait->message, entry->message, sizeof(wait->message));
        op_signal(wait->op); /* under the lock: it may be gone once the wait is over */
    }
}

static void ask(ClientResolver *resolver, Entry *entry) {
    char host[CLIENT_HOST_SIZE];
    memcpy(host, entry->host, sizeof(host));
    entry->is_asked = true;
    list_remove(&entry->queue_node);
    mutex_unlock(&resolver->mu);
    CLEANUP(error_reset) Error err = {0};
    ClientAddresses found = {0};
    bool is_name;
    ErrCode rc = resolver->resolve != NULL
                     ? resolver->resolve(resolver->arg, host, &found, &err)
                     : resolve_name(host, /* flags= */ 0, &found, &is_name, &err);
    mutex_lock(&resolver->mu);
    entry->is_asked = false;
    entry->is_known = true;
    entry->rc = rc;
    entry->addresses = found;
    snprintf(entry->message, sizeof(entry->message), "%s", error_message(&err));
    entry->until_us = clock_deadline_us(
        rc == ERR_OK || resolver->ttl_us < FAILURE_US_MAX ? resolver->ttl_us : FAILURE_US_MAX);
    answer_locked(resolver, entry);
}

static void resolver_run(void *arg) {
    ClientResolver *resolver = arg;
    mutex_lock(&resolver->mu);
    while (!resolver->is_stopping) {
        if (list_is_empty(&resolver->queue))
            cond_wait(&resolver->cond, &resolver->mu);
        else
            ask(resolver, CONTAINER_OF(list_first(&resolver->queue), Entry, queue_node));
    }
    mutex_unlock(&resolver->mu);
    unref(resolver);
}

/* ---- one name ---- */

static ErrCode split_host(const char *host, char ret_name[CLIENT_HOST_SIZE], const char **ret_port,
                          Error *err) {
    const char *colon = strrchr(host, ':');
    bool is_bracketed = host[0] == '[';
    size_t size = colon != NULL ? (size_t)(colon - host) : 0;
    if (colon == NULL || size >= CLIENT_HOST_SIZE || size == 0 ||
        (is_bracketed && (size < 3 || colon[-1] != ']')))
        return error_set(err, ERR_HOST_NOT_FOUND, "\"%s\" is not a host with a port", host);
    memcpy(ret_name, host + is_bracketed, size - 2 * (size_t)is_bracketed);
    ret_name[size - 2 * (size_t)is_bracketed] = '\0';
    *ret_port = colon + 1;
    return ERR_OK;
}

/* *ret_is_name: it is well formed, and was not found with these flags. */
static ErrCode resolve_name(const char *host, int flags, ClientAddresses *ret_addresses,
                            bool *ret_is_name, Error *err) {
    char name[CLIENT_HOST_SIZE];
    const char *port = NULL;
    *ret_is_name = false;
    TRY(split_host(host, name, &port, err));
    struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(name, port, &hints, &found);
    *ret_is_name = rc != 0;
    if (rc != 0)
        return error_set(err, ERR_HOST_NOT_FOUND, "could not find address for \"%s\": %s", host,
                         gai_strerror(rc));
    *ret_addresses = (ClientAddresses){0};
    for (struct addrinfo *at = found; at != NULL && ret_addresses->count < CLIENT_ADDRESSES_MAX;
         at = at->ai_next) {
        uint32_t i = ret_addresses->count++;
        ret_addresses->sizes[i] = at->ai_addrlen;
        memcpy(&ret_addresses->at[i], at->ai_addr, at->ai_addrlen);
    }
    freeaddrinfo(found);
    return ERR_OK;
}
