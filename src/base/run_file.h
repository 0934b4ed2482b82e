/*
 * run_file.h - records on disk, written once and then read once from the start: a run of a sorter
 * or of a spilled group. Or read from anywhere while they are written: documents of a window.
 *
 * Crash: most are unlinked as soon as they are open, so that nothing is left behind. Those that the
 * next process needs (runs of an index build) keep a name, and the start removes the ones that are
 * no longer needed (run_files_sweep).
 *
 * Threading: one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct RunFile RunFile;

enum {
    RUN_FILE_NAME_SIZE = 80,
};

/* Identifies a kept file. */
typedef struct RunFileMark {
    char name[RUN_FILE_NAME_SIZE]; /* in its directory */
    int64_t size;
    uint32_t checksum; /* CRC-32C of all its bytes */
} RunFileMark;

/* A new, empty one in `dir`, which is created if missing. Fails with ERR_OUT_OF_DISK_SPACE or
 * ERR_FILE_STREAM_FAILED, as the others do. `dir` is borrowed. */
ErrCode run_file_new(const char *dir, RunFile **ret_run, Error *err) MUST_CHECK;
/* The same with a name, "<prefix>-<six characters>", until it is freed. */
ErrCode run_file_new_named(const char *dir, const char *prefix, RunFile **ret_run, Error *err)
    MUST_CHECK;
void run_file_free(RunFile *run);              /* NULL is fine */
const char *run_file_name(const RunFile *run); /* NULL: none */

ErrCode run_file_append(RunFile *run, const void *record, size_t size, Error *err) MUST_CHECK;
/* No more records will be appended; reading starts. */
ErrCode run_file_finish(RunFile *run, Error *err) MUST_CHECK;
/* The next record as it was appended; valid until the next call. At the end the disk space of a
 * file without a name is released. */
ErrCode run_file_next(RunFile *run, bool *ret_found, const uint8_t **ret_record, size_t *ret_size,
                      Error *err) MUST_CHECK;

/* Where the next record will be. */
int64_t run_file_end(const RunFile *run);
/* The record there, of a file that is not finished; valid until the next call. */
ErrCode run_file_read(RunFile *run, int64_t at, const uint8_t **ret_record, size_t *ret_size,
                      Error *err) MUST_CHECK;

/* Makes a finished, named file durable and leaves it on disk when it is freed. */
ErrCode run_file_keep(RunFile *run, RunFileMark *ret_mark, Error *err) MUST_CHECK;
/* Opens a kept file for reading from its start, after a look at all its bytes. Fails with
 * ERR_DATA_CORRUPTION_DETECTED when they are not those that were kept. It goes with the RunFile,
 * as any other. */
ErrCode run_file_open(const char *dir, const RunFileMark *mark, RunFile **ret_run, Error *err)
    MUST_CHECK;
/* Removes every file of `dir`, which need not be there, but those that `is_wanted` names. */
void run_files_sweep(const char *dir, bool (*is_wanted)(void *arg, const char *name), void *arg);
