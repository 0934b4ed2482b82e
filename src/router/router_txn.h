/*
 * router_txn.h - transactions through a router, as long as they stay on one shard (SES-3).
 *
 * The first statement that is sent to a shard begins the transaction there; the router remembers
 * which shard that is, and what goes to another one is refused. Whoever sends something does not
 * have to know: routing.h, scatter.h and forward.h ask here.
 *
 *     bodies       routing_copy_fields leaves out what router_txn_is_own_field names;
 *                  router_txn_build appends it where it belongs
 *     before send  router_txn_check
 *     stale        router_txn_may_repeat: only what the transaction began with can be sent again
 *
 * Any failure ends a transaction, here and on its shard. Every reply to a statement has a recovery
 * token, by which another router can commit it.
 */
#pragma once

#include "commands/core/command.h"
#include "router/txn_table.h"

/* ---- around every command ---- */

ErrCode router_txn_begin(CommandCtx *ctx, Error *err) MUST_CHECK;
/* After a statement: one that failed has ended its transaction. */
void router_txn_end(CommandCtx *ctx, bool is_failed);
/* recoveryToken. */
void router_txn_build_reply(CommandCtx *ctx);

/* ---- for those who send ---- */

/* The statement is about to be sent to these shards. Fails with ERR_NOT_IMPLEMENTED if the
 * transaction would be on more than one. */
ErrCode router_txn_check(CommandCtx *ctx, const Shard *const *shards, uint32_t count, Error *err)
    MUST_CHECK;
/* In a transaction these fields of the client's command are not copied to a shard. */
bool router_txn_is_own_field(const CommandCtx *ctx, Str name);
/* Appends startTransaction, and the read concern of the transaction, if its shard has not seen it
 * yet. */
void router_txn_build(const CommandCtx *ctx, DocBuilder *b);
/* May the command be sent again after its shard, or the router, had old metadata? */
bool router_txn_may_repeat(CommandCtx *ctx);
/* A statement of a transaction is sent once: a second one would be executed twice. */
bool router_txn_is_statement(const CommandCtx *ctx);

extern const CommandSpec ROUTER_COMMIT_TRANSACTION;
extern const CommandSpec ROUTER_ABORT_TRANSACTION;
