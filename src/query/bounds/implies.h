/*
 * implies.h - does every document that matches one filter match another? For the use of partial
 * indexes.
 */
#pragma once

#include "query/match/match.h"

/* True only when it is sure; false means "cannot tell" as well. */
bool match_implies(const MatchExpr *query, const MatchExpr *wanted);
