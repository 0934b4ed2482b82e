/*
 * scatter.h - one request to each of several shards, at the same time.
 *
 * The calling thread sends all of them, then takes the replies as they come. Each is sent again to
 * another member if the one it went to turns out not to be usable, by the rules of
 * sharding/route/remote.h.
 */
#pragma once

#include "commands/core/command.h"
#include "sharding/route/remote.h"

typedef struct ShardCall {
    /* Set by the caller. */
    const Shard *shard;
    Doc body; /* for this shard, complete: routing_end_body */
    const ClientSequence *sequences;
    uint32_t sequence_count;
    /* Set by scatter_run. */
    ErrCode rc; /* as remote_run would have returned it, with `err` */
    Error err;
    ClientReply reply; /* its body is DOC_NONE if none came */
    char host[SET_HOST_SIZE];
} ShardCall;

typedef struct ScatterOptions {
    const ReadPreference *preference; /* NULL: primaries */
    RemoteRetry retry;
    bool stops_at_error; /* what is still under way when the first one fails is given up */
    int64_t ms_max;      /* how long a call may take; 0: as long as the operation */
} ScatterOptions;

/* Calls, zeroed, in the operation's arena; shard_calls_done releases what they got. */
typedef struct ShardCalls {
    ShardCall *rows;
    uint32_t count;
} ShardCalls;
ShardCalls shard_calls_new(CommandCtx *ctx, uint32_t count);
void shard_calls_done(ShardCalls *calls);

/* Fails only if the operation is interrupted, or is a statement of a transaction that cannot go to
 * these shards (router_txn.h); whatever else goes wrong is told by each call. Those
 * that were given up have rc ERR_CALLBACK_CANCELED. Operation times are learnt from all replies;
 * state errors of members are turned into ERR_HOST_UNREACHABLE. */
ErrCode scatter_run(CommandCtx *ctx, ShardCalls *calls, const ScatterOptions *options, Error *err)
    MUST_CHECK;
/* Moves out the error of the first call (in their order) that failed; ERR_OK: none. One that
 * another attempt with newer metadata can mend goes before all others. */
ErrCode shard_calls_check(ShardCalls *calls, Error *err) MUST_CHECK;

/* A client must not take it for this router's own state that a member of a shard is not primary, or
 * goes away: it would look for another router. What it should do is try again. */
ErrCode scatter_hide_state(ErrCode code);
/* The operation time of a shard is one of this reply. */
void scatter_learn_time(CommandCtx *ctx, Doc reply);
