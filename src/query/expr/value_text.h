/*
 * value_text.h - values as strings, the way $toString and its kin write them.
 */
#pragma once

#include "query/expr/value.h"

/* False for types that have no text: documents, arrays, null, ... */
bool value_to_string(Value value, Arena *arena, Str *ret_text);
