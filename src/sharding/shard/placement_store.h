/*
 * placement_store.h - the copy of the routing table that a shard's primary keeps for its
 * secondaries: config.cache.collections, config.cache.chunks.<namespace>, config.cache.databases.
 */
#pragma once

#include "sharding/shard/placement.h"

extern const Ns CACHE_COLLECTIONS_NS;
extern const Ns CACHE_DATABASES_NS;

/* On the primary, before a section ends: what is stored is older than what comes after it, and is
 * not to be used before it has been read anew. Of a collection that this shard does not have
 * nothing stays. `ns` may be a database. */
ErrCode placement_store_outdate(OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;

/* On the primary: what has changed since the version that is stored; all of it if that is of
 * another generation. One that is not sharded has no entry. */
ErrCode placement_store_write(OpCtx *op, const CollectionRoute *route, Error *err) MUST_CHECK;
/* ERR_CONFLICTING_OPERATION_IN_PROGRESS: it is being written, or outdated. One without an entry is
 * not sharded, if the primary has just been told to look. */
ErrCode placement_store_read(OpCtx *op, const Ns *ns, CollectionRoute **ret_route, Error *err)
    MUST_CHECK;
/* The same without a primary: only of a collection that this member has, and that is the one the
 * entry speaks of. One without an entry is not sharded: no section of it has ended here since it
 * was created. */
ErrCode placement_store_read_alone(OpCtx *op, const Ns *ns, CollectionRoute **ret_route, Error *err)
    MUST_CHECK;

/* `version` NULL: there is no such database any more. */
ErrCode placement_store_write_database(OpCtx *op, Str name, Str primary,
                                       const DatabaseVersion *version, Error *err) MUST_CHECK;
ErrCode placement_store_read_database(OpCtx *op, Str name, DatabaseVersion *ret_version,
                                      bool *ret_found, Error *err) MUST_CHECK;
