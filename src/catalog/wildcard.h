/*
 * wildcard.h - which paths of a document a wildcard index has.
 *
 * {"$**": 1} has all but _id, {"a.$**": 1} has `a` and what is below it, and a wildcardProjection
 * names what is in or what is out. Paths are dotted, without positions in arrays.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"

typedef enum WildcardReach {
    WILDCARD_OUTSIDE, /* neither the path nor anything below it */
    WILDCARD_ABOVE,   /* something below it, or not all that is below it */
    WILDCARD_INSIDE,  /* the path and all below it */
} WildcardReach;

typedef struct WildcardPaths {
    Str *paths;
    uint32_t count;
    bool is_exclusion; /* the paths are out; else they alone are in */
    bool has_id_rule;  /* _id is in or out whatever the paths say */
    bool is_id_in;
} WildcardPaths;

/* "$**", or a path that ends in ".$**". */
bool wildcard_is_field(Str path);

/* `field` is the name of the wildcard field, `projection` the wildcardProjection (DOC_NONE: none).
 * Fails with ERR_FAILED_TO_PARSE, or 31253 and 31254 when inclusion and exclusion are mixed. */
ErrCode wildcard_paths_parse(Str field, Doc projection, Arena *arena, WildcardPaths **ret_paths,
                             Error *err) MUST_CHECK;

WildcardReach wildcard_reach(const WildcardPaths *wildcard, Str path);
