/*
 * target.h - which shards may have documents that a filter matches (RTE-6).
 *
 * The values a filter allows for each field of the shard key are intervals (query/interval), their
 * combinations are ranges of shard keys; branches of $or are taken one by one. The answer may have
 * a shard too many, never one too few. Strings compared under a collation other than simple
 * restrict nothing; nor do ranges of a hashed field, or of a field behind one that is not
 * restricted to points.
 *
 * Pure; any thread.
 */
#pragma once

#include "base/arena.h"
#include "query/match/match.h"
#include "sharding/meta/chunk_map.h"

enum {
    /* More combinations of points and branches than this are widened to ranges. */
    TARGET_RANGES_MAX = 4096,
};

typedef struct Target {
    ShardSet shards;    /* may be empty: no document can match */
    bool is_single_key; /* every document that matches has this one shard key */
    Doc key;            /* that key; DOC_NONE otherwise */
} Target;

/* `filter`: NULL matches all. `collator`: of the query; NULL: simple. `ts`: of a read at a cluster
 * time, 0: now. Fails with ERR_STALE_CHUNK_HISTORY if the map does not go back to `ts`. */
ErrCode target_filter(const ChunkMap *map, const MatchExpr *filter, const Collator *collator,
                      uint64_t ts, Arena *arena, Target *ret_target, Error *err) MUST_CHECK;
/* The target of a filter that need not be parsed for that: it has nothing but fields which equal
 * plain values, all of the shard key among them. As target_filter gives it for now, but for `key`.
 * False: parse the filter, and ask target_filter. */
bool target_try_values(const ChunkMap *map, Doc filter, const Collator *collator, Arena *arena,
                       Target *ret_target);
/* The owner of a document to be inserted; missing fields count as null. ERR_SHARD_KEY_NOT_FOUND: an
 * array on the path. */
ErrCode target_doc(const ChunkMap *map, Doc doc, KeyBuilder *kb, ShardIndex *ret_shard, Error *err)
    MUST_CHECK;
