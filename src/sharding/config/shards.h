/*
 * shards.h - replica sets become shards (BAL-3).
 */
#pragma once

#include "sharding/config/config_catalog.h"

/* Its document of config.shards, in the operation's arena. ERR_SHARD_NOT_FOUND. */
ErrCode shard_entry_get(OpCtx *op, Str name, Doc *ret_doc, Error *err) MUST_CHECK;
/* The name of the shard that an administrator means: by name, address, member or replica set; in
 * the operation's arena. What is none of them is left as it is. */
ErrCode shard_resolve_name(OpCtx *op, Str *name, Error *err) MUST_CHECK;
/* Adds the replica set "name/host:port,..." under `name` (empty: that of the set), with the
 * databases it has. One that is a shard already is fine. *ret_name is in the operation's arena. */
ErrCode shard_add(OpCtx *op, Str address, Str name, const char **ret_name, Error *err) MUST_CHECK;
