/*
 * chunk.h - one chunk: a range of shard keys, its owner and its version.
 *
 * Two forms on disk: config.chunks (with _id, uuid, min) on the config server, and
 * config.cache.chunks.<ns> (min is the _id) on shards. The generation is not in the document: it
 * comes from the collection's entry.
 *
 * A Chunk borrows the document it was parsed from.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "bson/uuid.h"
#include "sharding/meta/versions.h"

typedef struct Chunk {
    Oid id;    /* zero in the form of shards */
    Uuid uuid; /* of the collection; zero likewise */
    Doc min;
    Doc max;
    Str shard;
    uint64_t version; /* chunk_version_number */
    uint64_t since;   /* onCurrentShardSince; 0: not known */
    Doc history;      /* array as a document: [{validAfter, shard}], newest first; DOC_NONE: none */
    bool is_jumbo;
} Chunk;

/* Unknown further fields are ignored. Refuses chunks whose min is not below max, whose history does
 * not begin with the owner, or is not in order. The fields of bounds are not checked: that needs
 * the shard key. */
ErrCode chunk_parse(Doc doc, Chunk *ret_chunk, Error *err) MUST_CHECK;        /* config.chunks */
ErrCode chunk_parse_cached(Doc doc, Chunk *ret_chunk, Error *err) MUST_CHECK; /* cache.chunks.* */
/* Append the fields to an open document. */
void chunk_build(DocBuilder *b, const Chunk *chunk);
void chunk_build_cached(DocBuilder *b, const Chunk *chunk);

/* The history of a chunk that has had one owner. */
Doc chunk_history_of(uint64_t since, Str shard, Arena *arena);
