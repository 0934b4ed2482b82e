/*
 * versions.h - as of when a router or a shard knows where data are.
 *
 *     ChunkVersion     of a chunk, a shard or a collection: {e: epoch, t: timestamp, v: number}
 *     DatabaseVersion  of a database: {uuid, timestamp, lastMod}
 *
 * Epoch and timestamp name the generation of the collection; they change together. Within a
 * generation major and minor grow; across generations the timestamp does.
 *
 * Pure values.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "bson/uuid.h"

typedef struct ChunkVersion {
    Oid epoch;
    uint64_t timestamp;
    uint32_t major;
    uint32_t minor;
} ChunkVersion;

typedef enum VersionOrder {
    VERSION_OLDER = -1,
    VERSION_SAME = 0,
    VERSION_NEWER = 1,
    VERSION_INCOMPARABLE = 2, /* one of them is a constant below, or they contradict each other */
} VersionOrder;

/* The collection is not sharded, or does not exist: all zero. */
extern const ChunkVersion VERSION_UNSHARDED;
/* Do not check: for requests that are right whatever the placement. */
extern const ChunkVersion VERSION_IGNORED;

bool chunk_version_is_unsharded(const ChunkVersion *v);
bool chunk_version_is_ignored(const ChunkVersion *v);
/* Of a sharded collection, but the shard it belongs to owns no chunk: 0|0 in its generation. */
bool chunk_version_is_empty(const ChunkVersion *v);
bool chunk_version_is_same_generation(const ChunkVersion *a, const ChunkVersion *b);
bool chunk_version_equal(const ChunkVersion *a, const ChunkVersion *b);
/* Of `a` to `b`. */
VersionOrder chunk_version_compare(const ChunkVersion *a, const ChunkVersion *b);
/* May a request routed by `received` be executed where `wanted` is current? Same generation and
 * same major; the constants only with themselves, IGNORED with everything. */
bool chunk_version_is_compatible(const ChunkVersion *received, const ChunkVersion *wanted);

/* Major and minor as one number, the way config.chunks has them. */
uint64_t chunk_version_number(const ChunkVersion *v);
void chunk_version_set_number(ChunkVersion *v, uint64_t number);
/* The next one of the same generation. Fails when the number is used up
 * (ERR_CHUNK_VERSION_MAJOR_EXHAUSTED, ERR_CHUNK_VERSION_MINOR_EXHAUSTED). */
ErrCode chunk_version_next_major(const ChunkVersion *v, ChunkVersion *ret_next, Error *err)
    MUST_CHECK;
ErrCode chunk_version_next_minor(const ChunkVersion *v, ChunkVersion *ret_next, Error *err)
    MUST_CHECK;

/* {e, t, v}; unknown further fields are ignored. `what` names it in errors. */
ErrCode chunk_version_parse(Elem elem, const char *what, ChunkVersion *ret_version, Error *err)
    MUST_CHECK;
void chunk_version_build(DocBuilder *b, const char *name, const ChunkVersion *v);
enum { CHUNK_VERSION_TEXT_SIZE = 96 };
/* "1|0||<epoch>||Timestamp(1, 2)" */
const char *chunk_version_text(const ChunkVersion *v, char text[CHUNK_VERSION_TEXT_SIZE]);

typedef struct DatabaseVersion {
    Uuid uuid;
    uint64_t timestamp;
    int32_t last_mod;
} DatabaseVersion;

/* Of "admin" and "config", which have no entry: last_mod 0. */
bool database_version_is_fixed(const DatabaseVersion *v);
bool database_version_equal(const DatabaseVersion *a, const DatabaseVersion *b);
VersionOrder database_version_compare(const DatabaseVersion *a, const DatabaseVersion *b);
ErrCode database_version_parse(Elem elem, const char *what, DatabaseVersion *ret_version,
                               Error *err) MUST_CHECK;
void database_version_build(DocBuilder *b, const char *name, const DatabaseVersion *v);
