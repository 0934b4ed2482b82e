/*
 * databases.h - which databases there are, and on which shard (DDL-1).
 */
#pragma once

#include "sharding/config/config_catalog.h"
#include "sharding/meta/versions.h"

typedef struct DatabaseEntry {
    Str name;
    Str primary;
    DatabaseVersion version;
} DatabaseEntry;

Doc database_entry_build(const DatabaseEntry *entry, Arena *arena);
/* *ret_entry is in the operation's arena; its name is empty when there is none. */
ErrCode database_entry_read(OpCtx *op, Str name, DatabaseEntry *ret_entry, Error *err) MUST_CHECK;
/* Creates the database on `primary`, or, if that is empty, on the shard with the least data. One
 * that exists is returned; it is ERR_NAMESPACE_EXISTS if another primary was asked for,
 * ERR_DATABASE_DIFFER_CASE if its name differs in case only. */
ErrCode database_create(OpCtx *op, Str name, Str primary, DatabaseEntry *ret_entry, Error *err)
    MUST_CHECK;
/* Removes the entry of that version. None, or one that was created since, is fine: it is gone. One
 * that has moved since is ERR_STALE_DB_VERSION. */
ErrCode database_commit_drop(OpCtx *op, Str name, const DatabaseVersion *version, Error *err)
    MUST_CHECK;
