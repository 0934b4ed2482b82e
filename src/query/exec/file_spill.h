/*
 * file_spill.h - the Spill of sort/spill.h on files: data that does not fit in memory goes to
 * <dbpath>/_tmp.
 *
 * Crash: files are unlinked as soon as they are open, so that nothing is left behind.
 * Ownership: belongs to one query; freed with it.
 */
#pragma once

#include "query/sort/spill.h"

typedef struct FileSpill FileSpill;

/* `dir` is copied; it is made when the first run is. */
FileSpill *file_spill_new(const char *dir);
void file_spill_free(FileSpill *spill); /* NULL is fine */
const Spill *file_spill_interface(FileSpill *spill);
bool file_spill_is_used(const FileSpill *spill); /* something went to disk; NULL: no */
