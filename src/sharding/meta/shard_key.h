/*
 * shard_key.h - the fields of a document that decide which shard it is on.
 *
 * A pattern has up to KEYSTRING_FIELDS_MAX fields, each 1 or "hashed", at most one hashed. A shard
 * key is a document of that pattern with the values (hashes where hashed); as a KeyString it is
 * compared with bounds of chunks. Missing fields count as null. Arrays on the path of a shard key
 * are not allowed in a document: it has no key then.
 *
 * Ownership: a ShardKey is heap memory, counted, immutable. Threading: any.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "bson/keystring.h"
#include "query/match/match.h"

typedef struct ShardKey ShardKey;

typedef struct ShardKeyField {
    Str path; /* dotted */
    bool is_hashed;
} ShardKeyField;

/* {a: 1, "b.c": "hashed"}: refuses other values than 1 and "hashed" (also -1, 0, text, geo),
 * two hashed fields, none at all, empty or $-names, a path twice or below another one; with the
 * codes of 7.0. */
ErrCode shard_key_parse(Doc pattern, ShardKey **ret_key, Error *err) MUST_CHECK;
ShardKey *shard_key_ref(ShardKey *key);
void shard_key_unref(ShardKey *key);      /* NULL is fine */
void shard_key_unref_ptr(ShardKey **key); /* for CLEANUP */

Doc shard_key_pattern(const ShardKey *key);
const ShardKeyField *shard_key_fields(const ShardKey *key, uint32_t *ret_count);
bool shard_key_has_hashed(const ShardKey *key);
/* Is `path` a field of the key, above or below one? An update of it may change the key. */
bool shard_key_touches(const ShardKey *key, Str path);
bool shard_key_equal(const ShardKey *a, const ShardKey *b);
/* The same fields, and more: what refining allows. */
bool shard_key_extends(const ShardKey *longer, const ShardKey *shorter);

/* ---- keys ---- */

/* Appends the key of a stored document to `kb` (reset by this function, ended with KEY_END_EXACT as
 * chunk bounds are); false: it has none (an array on a path). No allocation beyond kb's. */
bool shard_key_of_doc(const ShardKey *key, Doc doc, KeyBuilder *kb);
/* The same as a document, with the dotted paths as names; false likewise. */
bool shard_key_extract(const ShardKey *key, Doc doc, Arena *arena, Doc *ret_key);
/* The key that every document which matches must have: all fields, or documents above them, are
 * compared for equality, in conjunctions, $eq, $in with one value. Values that equal others count
 * as none: null (also undefined), text under `collator` (of the query; NULL: simple). `filter` may
 * be NULL. False: there is no such key. */
bool shard_key_of_filter(const ShardKey *key, const MatchExpr *filter, const Collator *collator,
                         Arena *arena, Doc *ret_key);

/* ---- bounds ---- */

/* A bound as users give it: exactly the fields of the pattern, in order (ERR_SHARD_KEY_NOT_FOUND),
 * hashed ones as int64 or MinKey or MaxKey (ERR_INVALID_OPTIONS); no arrays, no $-names inside.
 * `what` names it in errors. */
ErrCode shard_key_check_bound(const ShardKey *key, Doc bound, const char *what, Error *err)
    MUST_CHECK;
/* A prefix of the fields, completed with MinKey or MaxKey: how zones and refined keys are
 * extended. */
ErrCode shard_key_extend_bound(const ShardKey *key, Doc bound, bool with_max_key, const char *what,
                               Arena *arena, Doc *ret_bound, Error *err) MUST_CHECK;
Doc shard_key_min(const ShardKey *key, Arena *arena); /* {a: MinKey, ...} */
Doc shard_key_max(const ShardKey *key, Arena *arena);
/* A bound or a key, as a KeyString ended with KEY_END_EXACT. */
void shard_key_encode(Doc bound, KeyBuilder *kb);
/* Of two bounds or keys, in the same order. */
int shard_key_compare(Doc a, Doc b);

/* ---- indexes ---- */

typedef struct ShardKeyIndex {
    Doc key;
    bool is_sparse, is_partial, is_hidden, is_multikey, has_collation;
    bool is_plain; /* a b-tree or hashed index */
} ShardKeyIndex;

/* What keeps the index from finding ranges of the key, in words; NULL: nothing. It must begin with
 * the key's fields in order (1, "hashed" alike), with the simple collation, not sparse, not
 * partial, not hidden, not multikey. */
const char *shard_key_index_problem(const ShardKey *key, const ShardKeyIndex *index);
/* A unique index must begin with the shard key's fields, so that each shard can check it alone;
 * one that begins with `_id` is exempt. */
bool shard_key_allows_unique(const ShardKey *key, Doc index_key);
