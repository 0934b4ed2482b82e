/*
 * build.h - filling new indexes from the documents that are there.
 *
 * This first form of a build runs under the collection's X lock: scan, sort, bulk load. Reads go on
 * (they take no collection lock), writes to that collection wait.
 */
#pragma once

#include "base/error.h"
#include "catalog/access.h"

/* Fills `indexes` (fresh tables, not in the catalog yet) from all documents of the collection,
 * which is locked in X. One scan for all of them. Fails with ERR_DUPLICATE_KEY, parallel arrays and
 * the like; then the tables are the caller's to drop. Multikey bits are set in the indexes' states.
 */
ErrCode index_build_fill(CollAccess *access, IndexDesc *const *indexes, uint32_t count, Error *err)
    MUST_CHECK;
