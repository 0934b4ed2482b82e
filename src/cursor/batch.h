/*
 * batch.h - the batches in which a cursor's documents are sent.
 */
#pragma once

#include "cursor/cursor_source.h"

enum {
    FIRST_BATCH_DOCS = 101,
    BATCH_BYTES_MAX = 16 * 1024 * 1024,
};

typedef struct BatchResult {
    int64_t count;
    bool is_exhausted;
} BatchResult;

/* Appends documents as the array `field` until the batch is full or the source ends. */
ErrCode cursor_build_batch(CursorSource *source, DocBuilder *b, const char *field, int64_t docs_max,
                           BatchResult *ret_result, Error *err) MUST_CHECK;
