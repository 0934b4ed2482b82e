/*
 * forward.h - one command of a client, one shard, one reply.
 */
#pragma once

#include "commands/core/command.h"
#include "request/read_preference.h"
#include "sharding/route/remote.h"

/* Where a command goes. Keeps the list of shards alive: forward_target_done. */
typedef struct ForwardTarget {
    ShardList *list;
    const Shard *shard;      /* NULL: the database does not exist */
    DatabaseRoute *database; /* by which it goes there; NULL: it goes for another reason */
    bool is_write;           /* although the command normally reads: to the primary, and once */
} ForwardTarget;

void forward_target_done(ForwardTarget *target);

/* The primary shard of the database; `creates`: one that does not exist is created. */
ErrCode forward_to_database(CommandCtx *ctx, Str db, bool creates, ForwardTarget *ret_target,
                            Error *err) MUST_CHECK;

typedef struct ForwardReply {
    ClientReply reply;
    char host[SET_HOST_SIZE]; /* who answered */
} ForwardReply;
void forward_reply_done(ForwardReply *reply);

/* Sends the client's command, as it came, to the shard. */
ErrCode forward_send(CommandCtx *ctx, const ForwardTarget *target, ForwardReply *ret_reply,
                     Error *err) MUST_CHECK;
/* Appends all fields of a shard's reply to that of the client, but those that each node makes
 * itself, and the one named (NULL: none). */
void forward_build_reply(CommandCtx *ctx, Doc reply, const char *without);

/* A shard's writeConcernError as the client sees it. */
void forward_build_write_concern_error(DocBuilder *b, Doc error);

/* What a command does to the database it goes to. */
typedef struct ForwardUse {
    bool creates; /* makes it, if need be */
    bool writes;  /* although its command normally reads */
    bool has_cursor;
} ForwardUse;
/* Sends the command, as it came, to the primary shard of its database, and passes the reply on. */
ErrCode forward_run(CommandCtx *ctx, const ForwardUse *use, Error *err) MUST_CHECK;
