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

/* An array of stages, in the arena. A sort by {$natural: ...} is none of them: it is a hint. */
Doc query_stages(const QueryStages *query, Arena *arena);
/* The hint of the pipeline: the query's own, else what its sort says of the natural order. */
Elem query_stages_hint(Elem hint, Doc sort, Arena *arena);
/* The stages of `first`, then those of `second`. */
Doc stages_concat(Doc first, Doc second, Arena *arena);
/* The name of the first one; empty: there is none. */
Str stages_first_name(Doc stages);
