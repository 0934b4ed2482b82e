/*
 * placement_store.h - the copy of the routing table that a shard's primary keeps for its
 * secondaries: config.cache.collections, config.cache.chunks.<namespace>, config.cache.databases.
 */
#pragma once

#include "sharding/shard/placement.h"

extern const Ns CACHE_COLLECTIONS_NS;
extern const Ns CACHE_DATABASES_NS;

/* On the primary: what has changed since the version that is stored; all of it if that is of
 * another generation. One that is not sharded has no entry. */
ErrCode placement_store_write(OpCtx *op, const CollectionRoute *route, Error *err) MUST_CHECK;
/* ERR_CONFLICTING_OPERATION_IN_PROGRESS: it is being written. */
ErrCode placement_store_read(OpCtx *op, const Ns *ns, CollectionRoute **ret_route, Error *err)
    MUST_CHECK;

/* `version` NULL: there is no such database any more. */
ErrCode placement_store_write_database(OpCtx *op, Str name, Str primary,
                                       const DatabaseVersion *version, Error *err) MUST_CHECK;
ErrCode placement_store_read_database(OpCtx *op, Str name, DatabaseVersion *ret_version,
                                      bool *ret_found, Error *err) MUST_CHECK;
