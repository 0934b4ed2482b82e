/*
 * query_stages.h - what a find or count asks, as the stages of a pipeline: for views.
 */
#pragma once

#include "base/arena.h"
#include "bson/doc.h"

typedef struct QueryStages {
    Doc filter; /* each DOC_NONE or empty: none */
    Doc sort;
    Doc projection;
    int64_t skip;  /* 0: none */
    int64_t limit; /* 0: none; applies after skip */
    bool is_count; /* one document {n}, none for 0 */
} QueryStages;

/* An array of stages, in the arena. */
Doc query_stages(const QueryStages *query, Arena *arena);
/* The stages of `first`, then those of `second`. */
Doc stages_concat(Doc first, Doc second, Arena *arena);
