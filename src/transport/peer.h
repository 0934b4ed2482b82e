/*
 * peer.h - a connection to another server, on which this one is the client.
 *
 * Blocking, with a deadline for every call. Used by one thread at a time; peer_interrupt alone may
 * come from another. After a network error the connection is of no use any more: free it and
 * connect again. There is no pool: whoever talks to another server for long keeps its own.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"

/* The command that every connection of a peer begins with. */
#define PEER_GREETING "_isSelf"

typedef struct Peer Peer;

/* "name:port", "127.0.0.1:27017", "[::1]:27017". Fails with ERR_HOST_NOT_FOUND,
 * ERR_HOST_UNREACHABLE, ERR_NETWORK_TIMEOUT. */
ErrCode peer_connect(const char *host, int64_t deadline_us, Peer **ret_peer, Error *err) MUST_CHECK;
void peer_free(Peer *peer); /* NULL is fine */
void peer_free_ptr(Peer **peer);
const char *peer_host(const Peer *peer);
bool peer_is_broken(const Peer *peer);
/* Makes the call that runs in another thread, and all further ones, fail. */
void peer_interrupt(Peer *peer);

/* Sends `command`, which must have $db, and waits for the reply, which is valid until the next
 * call. {ok: 0} fails with the code of the reply; only ERR_HOST_UNREACHABLE, ERR_NETWORK_TIMEOUT
 * and ERR_PROTOCOL_ERROR break the connection. */
ErrCode peer_run(Peer *peer, Doc command, int64_t deadline_us, Doc *ret_reply, Error *err)
    MUST_CHECK;

/* The two halves of the same. With `is_exhaust` the server may go on with further replies, as long
 * as *ret_more_to_come says so. */
ErrCode peer_send(Peer *peer, Doc command, bool is_exhaust, int64_t deadline_us, Error *err)
    MUST_CHECK;
ErrCode peer_receive(Peer *peer, int64_t deadline_us, bool *ret_more_to_come, Doc *ret_reply,
                     Error *err) MUST_CHECK;
/* {ok: 0} as an error. */
ErrCode peer_check_reply(Doc reply, Error *err) MUST_CHECK;
