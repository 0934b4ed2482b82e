/*
 * consistency.h - looks for data and metadata that do not fit together (DDL-3).
 *
 * The primary shard of a database asks all shards, with the locks that operations on the names
 * take: what is under way is not taken for damage. Indexes are created without these locks, so
 * whatever was found is looked for a second time.
 *
 * Types are those of MongoDB 7.0 and of later versions. Our own: StrayCriticalSection,
 * StrayCoordinator, CachedMetadataMismatch, MoreInconsistencies.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "concurrency/op_ctx.h"

typedef struct ConsistencyScope {
    Str name; /* of a database, or "db.coll" */
    Str db;
    Str primary; /* the primary shard of the database */
    bool with_indexes;
} ConsistencyScope;

/* `primary` empty: this shard. */
ErrCode consistency_scope_parse(Str name, Str primary, bool with_indexes,
                                ConsistencyScope *ret_scope, Error *err) MUST_CHECK;

/* On the primary shard: appends {inconsistencies: [{type, description, details}, ...]}. */
ErrCode consistency_check(OpCtx *op, const ConsistencyScope *scope, DocBuilder *reply, Error *err)
    MUST_CHECK;
/* What a shard sees of itself: appends the same, and {collections: [{namespace, options, indexes},
 * ...]}, sorted, of what it owns: for others to compare. */
ErrCode consistency_check_local(OpCtx *op, const ConsistencyScope *scope, DocBuilder *reply,
                                Error *err) MUST_CHECK;

/* A list of inconsistencies in an open array. */
enum {
    FOUND_COUNT_MAX = 1000,
    FOUND_BYTES_MAX = 4 << 20,
};
typedef struct FoundList {
    DocBuilder *b;
    size_t start;
    uint32_t count;
    size_t opened[3]; /* the array; the inconsistency and its details, while it is written */
} FoundList;
FoundList found_list_open(DocBuilder *b);
void found_list_close(FoundList *list);
/* Opens its details; false: there is no room left, which the list says itself. */
bool found_list_begin(FoundList *list, const char *type, const char *description, Str ns);
void found_list_end(FoundList *list);
void found_list_add(FoundList *list, Doc found);
