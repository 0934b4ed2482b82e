/*
 * spec.h - index specifications: validation, completion, and conflicts with existing indexes.
 */
#pragma once

#include "base/error.h"
#include "catalog/collection.h"

enum {
    INDEX_LOCATION_NOT_CLUSTERED = 6243700, /* `clustered`, but not the key of such a collection */
};

/* Checks a specification from createIndexes and normalizes it to the stored form {v, key, name,
 * ...}. Kinds and options that are not supported are refused by name. */
ErrCode index_spec_check(Doc spec, Arena *arena, Doc *ret_spec, Error *err) MUST_CHECK;

/* What of it index_spec_check knows, whether supported or not. In arena memory. */
Doc index_spec_known(Doc spec, Arena *arena);

/* Completes a checked specification with its collation: its own, otherwise the collection's; the
 * simple one is not stored, so that of another member (`is_stored`) says all, and gets none. Fails
 * with ERR_BAD_VALUE when an _id index would have another one than the collection. */
ErrCode index_spec_complete(Doc spec, const Collator *coll_collator, bool is_stored, Arena *arena,
                            Doc *ret_spec, Error *err) MUST_CHECK;

/* "a_1_b_-1". In arena memory. */
char *index_default_name(Doc key, Arena *arena);

/* Compares with the collection's indexes: *ret_exists if an identical index exists; fails with
 * ERR_INDEX_OPTIONS_CONFLICT or ERR_INDEX_KEY_SPECS_CONFLICT if a different one conflicts. */
ErrCode index_spec_find_conflict(const Collection *coll, Doc spec, bool *ret_exists, Error *err)
    MUST_CHECK;

/* The stored form of the _id index, which has the collection's collation. */
Doc index_id_spec(const Collator *coll_collator, bool is_v1, Arena *arena);
