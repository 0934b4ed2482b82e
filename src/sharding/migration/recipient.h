/*
 * recipient.h - a range comes to this shard: what the donor asks for.
 *
 *     prepare --> clone --> catchUp --> ready --> done      (committed or aborted, as the donor
 * says)
 *        \----------+---------+--> undo --> done
 *
 * All of it may be asked again. A move is begun only for the newest primary of the donor
 * (ERR_STALE_TERM): the end of one that has begun is decided by what a majority of the donor has,
 * so whoever tells it is right.
 */
#pragma once

#include "sharding/migration/migrations.h"

typedef struct MoveCaller {
    Str shard; /* the donor */
    int64_t term;
} MoveCaller;

/* Begins, or joins the move if it has begun. `options` and `indexes` are those of the collection.
 * ERR_CONFLICTING_OPERATION_IN_PROGRESS: this shard takes part in another move. */
ErrCode recipient_start(Migrations *migrations, OpCtx *op, const MoveCaller *caller, Doc move,
                        Doc options, Doc indexes, Error *err) MUST_CHECK;
/* The state, after waiting up to `wait_ms` for it to be steady. ERR_NO_SUCH_KEY: this shard does
 * not receive that move (any more). */
ErrCode recipient_status(Migrations *migrations, OpCtx *op, const Uuid *id, int64_t wait_ms,
                         Receiving *ret_receiving, Error *err) MUST_CHECK;
/* Everything up to the donor's last write, `commit_ts`; returns when all of it is here and this
 * shard is in its critical section, and how many documents that are. */
ErrCode recipient_commit(Migrations *migrations, OpCtx *op, const Uuid *id, uint64_t commit_ts,
                         int64_t *ret_documents, Error *err) MUST_CHECK;
/* How the move has ended; returns when this shard has done what follows from that. */
ErrCode recipient_end(Migrations *migrations, OpCtx *op, const Uuid *id, MoveOutcome outcome,
                      Error *err) MUST_CHECK;
