/* chunks_internal.h - what changes of chunks have in common, for the files of this folder. */
#pragma once

#include "sharding/config/chunks.h"
#include "sharding/meta/chunk_change.h"

/* The newest chunk of the collection, on that shard if one is named; DOC_NONE: there is none. */
ErrCode chunks_find_newest(OpCtx *op, const Uuid *uuid, Str shard, Doc *ret_doc, Error *err)
    MUST_CHECK;
ErrCode chunks_read_versions(OpCtx *op, const CollectionEntry *entry, Str shard,
                             ChunkVersions *ret_versions, Error *err) MUST_CHECK;
/* Writes the chunk, over the one of the same _id if there is one. */
ErrCode chunks_replace(OpCtx *op, const Chunk *chunk, Error *err) MUST_CHECK;
ErrCode chunks_delete(OpCtx *op, const Chunk *chunks, uint32_t count, Error *err) MUST_CHECK;
/* ERR_STALE_EPOCH: the entry is of another generation. `epoch` NULL, `timestamp` 0: not given. */
ErrCode chunks_check_generation(const CollectionEntry *entry, const Oid *epoch, uint64_t timestamp,
                                Error *err) MUST_CHECK;
void chunks_build_range(DocBuilder *b, const char *name, Doc min, Doc max);
