/*
 * refresh.h - reads anew where a collection or database is.
 */
#pragma once

#include "sharding/shard/placement.h"

/* After a request was refused: waits for what it was refused for, or reads it. A failure is not the
 * request's: it is sent again in any case, and refused again. */
void refresh_after(ShardState *state, OpCtx *op, const OpRouting *routing, bool is_in_txn);

/* A pipeline is going to read, or write, that collection besides its own: sees to it that it is
 * known where that is. If that fails the access is refused. */
void refresh_beside(ShardState *state, OpCtx *op, const Ns *ns);

/* A primary: from the config server; stores what it read. A secondary: what its primary stored, at
 * its request. The placement is installed. */
ErrCode refresh_collection(ShardState *state, OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;
/* For writes of this shard's own accord to whatever it owns of a collection, such as the removal of
 * expired documents: the operation is checked and filtered as one that a router sends to all
 * shards. */
ErrCode placement_route_own_work(ShardState *state, OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;
ErrCode refresh_database(ShardState *state, OpCtx *op, Str name, Error *err) MUST_CHECK;
