/*
 * spec_same.h - whether two index specifications mean the same, however they are written.
 */
#pragma once

#include "bson/doc.h"

/* Their wildcardProjections have the same paths. Both specifications are checked. */
bool index_same_wildcard(Doc a, Doc b);
/* Their partialFilterExpressions have the same conditions, whose order does not matter, but for
 * those of the same operator on the same path. */
bool index_same_partial_filter(Doc a, Doc b);
