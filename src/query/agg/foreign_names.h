/*
 * foreign_names.h - which other collections a pipeline names: what $lookup, $graphLookup and
 * $unionWith read, at any depth, and where $out or $merge write.
 *
 * Reads the stages as they are written; what is malformed is left to who parses them. Pure.
 */
#pragma once

#include "base/arena.h"
#include "bson/doc.h"

enum { FOREIGN_DEPTH_MAX = 200 }; /* of pipelines within pipelines that are looked into */

typedef struct ForeignName {
    Str db; /* empty: that of the pipeline */
    Str coll;
    bool is_sink;
} ForeignName;

typedef struct ForeignNames {
    Arena *arena;
    ForeignName *rows; /* each name once */
    uint32_t count;
    uint32_t capacity;
} ForeignNames;

/* Adds those of the stages, an array. Strings are borrowed. */
void foreign_names_add(ForeignNames *names, Doc stages);
