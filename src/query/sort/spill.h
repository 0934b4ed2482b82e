/*
 * spill.h - where a sorter puts what does not fit in memory: runs of records, written once and then
 * read once from the start, or read from anywhere while they are written. Implemented by a layer
 * that has files.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct Spill {
    void *arg;
    /* A new, empty run; they are numbered 0, 1, 2, ... by the callee. */
    ErrCode (*run_new)(void *arg, uint32_t *ret_run, Error *err);
    ErrCode (*run_append)(void *arg, uint32_t run, const void *record, size_t size, Error *err);
    /* No more records will be appended; reading starts. */
    ErrCode (*run_finish)(void *arg, uint32_t run, Error *err);
    /* The next record as it was appended; valid until the next call for the same run. */
    ErrCode (*run_next)(void *arg, uint32_t run, bool *ret_found, const uint8_t **ret_record,
                        size_t *ret_size, Error *err);
    /* Of runs that are not finished: where the next record will be, and the one that is there,
     * valid until the next call for the same run. */
    int64_t (*run_end)(void *arg, uint32_t run);
    ErrCode (*run_read)(void *arg, uint32_t run, int64_t at, const uint8_t **ret_record,
                        size_t *ret_size, Error *err);
    /* Gives its disk space back early. */
    void (*run_free)(void *arg, uint32_t run);
} Spill;
