/*
 * defragmentation.h - how far the defragmentation of a collection has come (BAL-2): fields of its
 * entry, and of its chunks.
 *
 *     defragmentCollection     true as long as it goes on
 *     defragmentationPhase     see below
 *     estimatedDataSizeBytes   of a chunk, once it was measured; a chunk that was split, merged or
 *                              moved since then has lost it
 */
#pragma once

#include "sharding/config/config_catalog.h"

typedef enum DefragPhase {
    DEFRAG_NONE,    /* it is not being defragmented */
    DEFRAG_MEASURE, /* "mergeAndMeasureChunks" */
    DEFRAG_MOVE,    /* "moveAndMergeChunks" */
    DEFRAG_MERGE,   /* "mergeChunks": the last one, also if it is to stop */
} DefragPhase;
const char *defrag_phase_text(DefragPhase phase);

/* Pure. A phase of another version is where it began: to do it again does no harm. */
DefragPhase defrag_phase_of(Doc entry);

/* Appends to the $set of a collection's entry. */
void defrag_build_phase(DocBuilder *set, DefragPhase phase);
/* Of the collection with that uuid; nothing if it is gone, or in another phase than `from`.
 * DEFRAG_NONE: it is over, and leaves nothing behind. */
ErrCode defrag_change_phase(OpCtx *op, const Uuid *uuid, DefragPhase from, DefragPhase to,
                            Error *err) MUST_CHECK;
/* Nothing if the shard has no such chunk any more. */
ErrCode defrag_note_size(OpCtx *op, const Uuid *uuid, Str shard, Doc min, Doc max, int64_t bytes,
                         Error *err) MUST_CHECK;
