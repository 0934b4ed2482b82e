/*
 * inserters.h - a batch of a clone, inserted by several threads.
 */
#pragma once

#include "sharding/migration/migrations.h"

typedef struct InsertedCounts {
    int64_t docs;
    int64_t bytes;
} InsertedCounts;

/* All documents of the array `batch`; by as many threads as chunkMigrationConcurrency says, this
 * one among them. After a failure some of them may be there. */
ErrCode insert_batch(MoveRun *run, Doc batch, InsertedCounts *ret_counts, Error *err) MUST_CHECK;
