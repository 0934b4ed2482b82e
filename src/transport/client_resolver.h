/*
 * client_resolver.h - names to addresses, without holding up the one who asks.
 *
 * Literal addresses are answered at once, names from a cache, and what is not in it by one thread
 * that calls getaddrinfo, which may take as long as name servers do. An address that is past its
 * time is used once more while the thread asks anew, so that only the first use of a name waits.
 *
 * Ownership: the thread holds a reference of its own: nobody waits for a name server at shutdown.
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

/* One who waits for a name. Begin with {0}. */
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
/* Gives up waiting; fine for one that never did. */
void client_resolve_cancel(ClientResolver *resolver, ResolveWait *wait);
/* Nobody answers there any more: ask anew next time. */
void client_resolver_forget(ClientResolver *resolver, const char *host);
