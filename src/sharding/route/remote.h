/*
 * remote.h - requests of a router to shards and to the config server.
 *
 * A request goes to a member of a set that the read preference allows. Failures that say that it
 * was the wrong member are tried again with another one, if sending the request twice does no harm.
 *
 * Threading: the calling thread, which blocks (transport/client.h).
 */
#pragma once

#include "base/error.h"
#include "request/read_preference.h"
#include "sharding/route/cluster.h"
#include "transport/client.h"

typedef enum RemoteRetry {
    REMOTE_ONCE,       /* it may have been executed when the connection broke: do not repeat */
    REMOTE_IDEMPOTENT, /* repeat after failures of the network, and of a member that is not primary
                        */
} RemoteRetry;

enum { REMOTE_ATTEMPTS_MAX = 4 };

typedef struct RemoteRequest {
    const Shard *shard;
    const ReadPreference *preference; /* NULL: the primary */
    const char *host;                 /* this member and no other, as a cursor needs; NULL: any */
    Doc body;                         /* with $db; see remote_build_end */
    const ClientSequence *sequences;
    uint32_t sequence_count;
    RemoteRetry retry;
    int64_t deadline_us; /* INT64_MAX: only that of the operation */
} RemoteRequest;

/* Ends the body of a request: $db, $readPreference, $clusterTime (that of the client may be newer),
 * $configTime (whoever gets it does not look at older metadata than the sender has seen). */
void remote_build_end(Cluster *cluster, DocBuilder *b, Str db, const ReadPreference *preference,
                      Elem cluster_time);

/* ret_host (SET_HOST_SIZE bytes, may be NULL): who answered. As client_run. */
ErrCode remote_run(Cluster *cluster, OpCtx *op, const RemoteRequest *request, ClientReply *reply,
                   char *ret_host, Error *err) MUST_CHECK;

/* For those who send by themselves: may a request that failed with `code` be sent again? */
bool remote_is_repeatable(RemoteRetry retry, ErrCode code);

/* ---- the config server ---- */

/* Runs a command on its primary, in "admin": `b` has its name and arguments, and is ended here.
 * Majority write concern. */
ErrCode config_run(Cluster *cluster, OpCtx *op, DocBuilder *b, ClientReply *reply, Error *err)
    MUST_CHECK;
/* Documents of the config server; at the newest config time this process knows, by majority. */
typedef struct ConfigQuery {
    const char *db; /* NULL: "config" */
    const char *coll;
    Doc filter;
    Doc sort;           /* DOC_NONE: any order */
    uint32_t count_max; /* more are an error; 0: any number */
    uint32_t limit;     /* no more are read; 0: all */
} ConfigQuery;
/* Entries of config.collections by name: of a database, of one collection ("db.coll"), of all
 * ("").
 */
Doc config_filter_scope(Str scope, Arena *arena);
/* Calls `visit` for each of them, in batches: a reader in the middle of a change sees some
 * documents before it and some after it. Documents are valid during the call. */
ErrCode config_each(Cluster *cluster, OpCtx *op, const ConfigQuery *query, ClusterVisit visit,
                    void *arg, Error *err) MUST_CHECK;
/* All at once, in the operation's arena. */
ErrCode config_find(Cluster *cluster, OpCtx *op, const ConfigQuery *query, Doc **ret_docs,
                    uint32_t *ret_count, Error *err) MUST_CHECK;
