/*
 * run_file.h - records on disk, written once and then read once from the start: a run of a sorter
 * or of a spilled group.
 *
 * The file has no name from the moment it is open, so that nothing is left behind by a crash.
 *
 * Threading: one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct RunFile RunFile;

/* A new, empty one in `dir`, which is made when it is not there. Fails with ERR_OUT_OF_DISK_SPACE
 * or ERR_FILE_STREAM_FAILED, as the others do. `dir` is borrowed for messages. */
ErrCode run_file_new(const char *dir, RunFile **ret_run, Error *err) MUST_CHECK;
void run_file_free(RunFile *run); /* NULL is fine */

ErrCode run_file_append(RunFile *run, const void *record, size_t size, Error *err) MUST_CHECK;
/* No more records will be appended; reading starts. */
ErrCode run_file_finish(RunFile *run, Error *err) MUST_CHECK;
/* The next record as it was appended; valid until the next call. At the end the disk space is given
 * back. */
ErrCode run_file_next(RunFile *run, bool *ret_found, const uint8_t **ret_record, size_t *ret_size,
                      Error *err) MUST_CHECK;
