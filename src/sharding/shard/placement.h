/*
 * placement.h - by which metadata a request was sent, and whether this member has the same.
 */
#pragma once

#include "catalog/access_policy.h"
#include "catalog/document_key.h"
#include "sharding/meta/versions.h"
#include "sharding/route/collection_routes.h"
#include "sharding/shard/shard_state.h"

/* What a request says of the metadata it was sent by. In the arena of its operation, which points
 * to it (OpCtx.routing). */
typedef struct OpRouting {
    Ns ns;
    bool has_collection;
    bool has_version;
    bool has_database_version;
    ChunkVersion version;
    DatabaseVersion database_version;
    bool is_pipeline; /* that names other collections */
    /* Found by checks. */
    const Ns *beside;       /* the other collection that is blocked; NULL: its own, or none is */
    bool is_blocked;        /* by a critical section */
    bool is_stale;          /* the placement of the collection is old here, or not known */
    bool is_database_stale; /* likewise */
    bool is_write;          /* the access that was refused */
    bool is_sharded;        /* the collection, as far as sections of its database are concerned */
} OpRouting;

/* The check of a request that does not open the collection for users; and before it does, so that
 * what is refused anyway costs nothing. */
ErrCode placement_check(ShardState *state, OpRouting *routing, bool is_write, Error *err)
    MUST_CHECK;

/* What this member knows; NULL: nothing. A reference. */
CollectionRoute *placement_find(ShardState *state, const Ns *ns);
/* The same, or what it was before something changed: to read what differs from it. */
CollectionRoute *placement_find_any(ShardState *state, const Ns *ns);
/* Unless documents of the state have changed since `seen` (ShardState.change_count): false. */
bool placement_try_install(ShardState *state, CollectionRoute *route, uint64_t seen);
/* `version` NULL: there is no such database. */
bool placement_try_install_database(ShardState *state, Str name, const DatabaseVersion *version,
                                    uint64_t seen);
/* Does a read that is still open own a part of [min, max), by a placement that this member does not
 * go by any more? */
bool placement_is_range_read(ShardState *state, const Ns *ns, Doc min, Doc max);
/* For ReplHooks: the times before which reads began that go by a placement of the past. */
uint64_t placement_read_floor(ShardState *state, uint64_t applied_ts);
/* Is it the version that this member knows? */
bool placement_find_database(ShardState *state, Str name, DatabaseVersion *ret_version);
AccessPolicy placement_policy(ShardState *state);
/* Oplog entries of sharded collections name documents by shard key and _id. A write that was not
 * checked does so if this member knows the placement. */
DocumentKeySource placement_document_keys(ShardState *state);
