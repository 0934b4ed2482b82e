/*
 * collections.h - the entries of sharded collections: config.collections (DDL-2).
 *
 * Each change is the last step of a task on a shard, which asks for it again until it has an
 * answer.
 */
#pragma once

#include "sharding/config/config_catalog.h"
#include "sharding/meta/shard_key.h"
#include "sharding/meta/versions.h"

typedef struct CollectionEntry {
    Str name; /* "db.coll"; empty: there is none */
    Uuid uuid;
    Oid epoch;
    uint64_t timestamp;
    ShardKey *key;
    Doc doc; /* all of it, borrowed */
} CollectionEntry;

void collection_entry_done(CollectionEntry *entry);
ErrCode collection_entry_parse(Doc doc, CollectionEntry *ret_entry, Error *err) MUST_CHECK;
/* Into a zeroed entry; its name stays empty when there is none. */
ErrCode collection_entry_read(OpCtx *op, Str name, CollectionEntry *ret_entry, Error *err)
    MUST_CHECK;
/* ERR_NAMESPACE_NOT_SHARDED when there is none. */
ErrCode collection_entry_get(OpCtx *op, Str name, CollectionEntry *ret_entry, Error *err)
    MUST_CHECK;
/* ERR_INVALID_UUID when it has another one. */
ErrCode collection_entry_check_uuid(const CollectionEntry *entry, const Uuid *uuid, Error *err)
    MUST_CHECK;
/* Whether a collection, of whatever name, has this uuid. */
ErrCode collection_uuid_is_used(OpCtx *op, const Uuid *uuid, bool *ret_is_used, Error *err)
    MUST_CHECK;

typedef struct CollectionCreate {
    Str name;
    Uuid uuid;
    Doc key;
    bool is_unique;
    Doc collation; /* DOC_NONE: simple */
    Oid epoch;
    uint64_t timestamp;
    const Doc *chunks; /* documents of config.chunks */
    uint32_t chunk_count;
} CollectionCreate;

/* The entry and its chunks, which must cover all keys and lie on shards that exist. One of the same
 * uuid that is there already is left as it is; another one is
 * ERR_CONFLICTING_OPERATION_IN_PROGRESS. */
ErrCode collection_commit_create(OpCtx *op, const CollectionCreate *create,
                                 ChunkVersion *ret_version, Error *err) MUST_CHECK;
/* The entry of that uuid, its chunks, and the ranges of zones of that name. None is fine; another
 * one of that name is left alone, with its zones. */
ErrCode collection_commit_drop(OpCtx *op, Str name, const Uuid *uuid, Error *err) MUST_CHECK;

typedef struct CollectionRename {
    Str from;
    Str to;
    Uuid uuid;
    bool has_target; /* `to` is replaced: it has this uuid */
    Uuid target_uuid;
    Oid epoch; /* of the new generation */
    uint64_t timestamp;
} CollectionRename;

/* Moves entry and zones to the new name. Done already is fine. Fails with ERR_NAMESPACE_NOT_SHARDED
 * (no `from`) and ERR_CONFLICTING_OPERATION_IN_PROGRESS (one of the names has another uuid). */
ErrCode collection_commit_rename(OpCtx *op, const CollectionRename *rename, Error *err) MUST_CHECK;
/* Who says whether chunks may move: each has a field of its own, and they move if nobody forbids
 * it. */
typedef enum MoveVeto {
    MOVE_VETO_DDL,  /* allowMigrations: operations that change the collection */
    MOVE_VETO_USER, /* permitMigrations: setAllowMigrations */
} MoveVeto;
/* Whether chunks of the collection may move. A change by DDL is a new minor version, so that shards
 * notice it. `uuid` may be NULL; ERR_INVALID_UUID if it is another one. */
ErrCode collection_set_allow_migrations(OpCtx *op, Str name, const Uuid *uuid, MoveVeto veto,
                                        bool is_allowed, Error *err) MUST_CHECK;
/* By both of them; pure. */
bool collection_allows_moves(Doc entry);
