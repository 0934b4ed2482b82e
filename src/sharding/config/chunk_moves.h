/*
 * chunk_moves.h - a range of a collection gets another owner: the commit of a move (MIG-2).
 */
#pragma once

#include "sharding/config/chunks.h"

typedef struct ChunkMoveCommit {
    Str ns;
    Str from;
    Str to;
    Oid epoch;
    uint64_t timestamp;
    uint64_t version; /* of the chunk when the move began: chunk_version_number */
    Doc min;
    Doc max;
    Doc counts; /* of what was moved, for the changelog; DOC_NONE: the donor does not know */
} ChunkMoveCommit;

/* Gives [min, max) to `to`; `to` having it already is fine. ret_versions->shard is that of `from`.
 * ERR_SHARD_NOT_FOUND: `to` is gone or draining. ERR_STALE_EPOCH: another generation.
 * ERR_CONFLICTING_OPERATION_IN_PROGRESS: chunks may not move, or this one is not as it was. */
ErrCode chunk_commit_move(OpCtx *op, const ChunkMoveCommit *move, ChunkVersions *ret_versions,
                          Error *err) MUST_CHECK;

/* Afterwards a commit of a move that began with `version` is refused: the chunk that begins at
 * `min` has a newer one. A collection that is gone is fine. */
ErrCode chunk_ensure_newer(OpCtx *op, Str ns, const Uuid *uuid, Doc min, uint64_t version,
                           Error *err) MUST_CHECK;

/* The document of a shard that may get something; ERR_SHARD_NOT_FOUND: it is gone or draining. */
ErrCode chunk_check_recipient(OpCtx *op, Str name, Doc *ret_shard, Error *err) MUST_CHECK;

/* The chunk that has the key `bound`; DOC_NONE: none. In a transaction or not. */
ErrCode chunk_find_at(OpCtx *op, const Uuid *uuid, Doc bound, Doc *ret_doc, Error *err) MUST_CHECK;
