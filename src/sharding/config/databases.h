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
/* A database moves: its primary is `to` from now on, with the next version. Asked for again it
 * finds that done; by its present primary it is the same with that one, so that whoever goes by
 * `version` comes too late. *ret_entry is what holds then, whoever made it so.
 * ERR_NAMESPACE_NOT_FOUND, ERR_STALE_DB_VERSION, ERR_SHARD_NOT_FOUND (also one that is being
 * removed): it never happens. */
ErrCode database_commit_move(OpCtx *op, Str name, const DatabaseVersion *version, Str to,
                             DatabaseEntry *ret_entry, Error *err) MUST_CHECK;
/* Removes the entry of that version. None, or one that was created since, is fine: it is gone. One
 * that has moved since is ERR_STALE_DB_VERSION. */
ErrCode database_commit_drop(OpCtx *op, Str name, const DatabaseVersion *version, Error *err)
    MUST_CHECK;
