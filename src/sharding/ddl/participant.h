/*
 * participant.h - what a shard does for a coordinator, on its primary.
 *
 * All of it may be asked for again. A coordinator of an earlier term is refused (ERR_STALE_TERM).
 */
#pragma once

#include "bson/uuid.h"
#include "sharding/shard/shard_state.h"

typedef struct DdlCaller {
    Str coordinator; /* its shard */
    int64_t term;
} DdlCaller;

/* "Writes", "ReadsAndWrites", "Unblock"; after the latter nothing is known of the placement. */
ErrCode participant_block(OpCtx *op, const DdlCaller *caller, const Ns *ns, Str type, Doc reason,
                          Error *err) MUST_CHECK;
/* An empty collection with that UUID and these indexes. ERR_NAMESPACE_EXISTS: another one is there,
 * with documents. */
ErrCode participant_create(OpCtx *op, const DdlCaller *caller, const Ns *ns, const Uuid *uuid,
                           Doc options, Doc indexes, Error *err) MUST_CHECK;
/* The same for who has made sure of that: the task of a move, on this shard. */
ErrCode participant_create_here(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc options, Doc indexes,
                                Error *err) MUST_CHECK;
/* For a move: which of these indexes are to be created here. ERR_CANNOT_CREATE_INDEX: the
 * collection is here, with documents, and lacks one, whose build would hold the move up. One that
 * is being built counts as there if this shard has chunks of the collection (`is_owner`): the build
 * is waited for by whoever asked all owners for it. */
ErrCode participant_choose_indexes(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc indexes,
                                   bool is_owner, Doc *ret_wanted, Error *err) MUST_CHECK;
/* `uuid` NULL: whatever has the name. `is_from_migrate`: change streams do not hear of it. */
ErrCode participant_drop(OpCtx *op, const DdlCaller *caller, const Ns *ns, const Uuid *uuid,
                         bool is_from_migrate, Error *err) MUST_CHECK;
ErrCode participant_drop_database(OpCtx *op, const DdlCaller *caller, Str db, bool is_from_migrate,
                                  Error *err) MUST_CHECK;
/* What has the name `from` and that UUID; whatever has the name `to` goes in any case. */
ErrCode participant_rename(OpCtx *op, const DdlCaller *caller, const Ns *from, const Ns *to,
                           const Uuid *uuid, bool is_from_migrate, Error *err) MUST_CHECK;
