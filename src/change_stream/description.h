/*
 * description.h - updateDescription of an update event, from the delta of its oplog entry.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/builder.h"

/* Appends `updateDescription: {updatedFields, removedFields, truncatedArrays}`, and with
 * `is_expanded` disambiguatedPaths: the components of each path that reads in two ways, since a
 * name in it contains a dot or looks like an index. Fails with ERR_FAILED_TO_PARSE for a
 * malformed delta. */
ErrCode description_build(DocBuilder *b, Doc delta, bool is_expanded, Arena *arena, Error *err)
    MUST_CHECK;
