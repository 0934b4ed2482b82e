/*
 * client_resolver.h - names to addresses, without blocking the caller.
 *
 * Literal addresses are answered at once, names from a cache, and the rest by one thread that calls
 * getaddrinfo, which may take as long as name servers do. An expired address is used once more
 * while the thread refreshes it, so that only the first use of a name waits.
 *
 * Ownership: the thread holds its own reference: shutdown does not wait for a name server.
 * Threading: any. Lock: LOCK_RANK_CLIENT_RESOLVER.
 */
#pragma once

#include <sys/socket.h>

#include "base/list.h"
#include "transport/client.h"

enum {
    CLIENT_ADDRESSES_MAX = 8,
};

struct ClientAddresses {
    uint32_t count;
    socklen_t sizes[CLIENT_ADDRESSES_MAX];
    struct sockaddr_storage at[CLIENT_ADDRESSES_MAX];
};

typedef struct ClientResolver ClientResolver;

/* A waiter for a name. Begin with {0}. */
typedef struct ResolveWait {
    ListNode node;
    OpCtx *op;
    ClientAddresses *addresses; /* heap; the answer */
    ErrCode rc;
    bool is_over;
    char message[ERROR_MESSAGE_INLINE];
} ResolveWait;

typedef ErrCode (*ResolveFn)(void *arg, const char *host, ClientAddresses *ret_addresses,
                             Error *err);

/* `resolve` NULL: getaddrinfo. */
ClientResolver *client_resolver_new(int64_t ttl_us, ResolveFn resolve, void *arg);
void client_resolver_stop(ClientResolver *resolver); /* and drops the caller's reference */

/* *ret_addresses (heap, the caller's) or, when it is NULL, `wait` is queued: the operation is
 * signaled when the answer is there, for client_resolve_end. */
ErrCode client_resolve_begin(ClientResolver *resolver, OpCtx *op, const char *host,
                             ResolveWait *wait, ClientAddresses **ret_addresses, Error *err)
    MUST_CHECK;
/* The answer; NULL: not yet. */
ErrCode client_resolve_end(ClientResolver *resolver, ResolveWait *wait,
                           ClientAddresses **ret_addresses, Error *err) MUST_CHECK;
/* Cancels the wait; no effect if it never began. */
void client_resolve_cancel(ClientResolver *resolver, ResolveWait *wait);
/* The address does not respond: resolve again next time. */
void client_resolver_forget(ClientResolver *resolver, const char *host);
