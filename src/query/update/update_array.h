/*
 * update_array.h - arrays taken apart into lists of elements and put together again; internal to
 * query/update.
 */
#pragma once

#include "query/update/update_internal.h"

typedef struct ElemList {
    Elem *items;
    size_t count;
} ElemList;

/* The elements of an array (none if it is missing), with room for `extra` more. */
ElemList update_list_of(Elem array, size_t extra, Arena *arena);

/* An array of the items, renumbered. Fails with ERR_BSON_OBJECT_TOO_LARGE. */
ErrCode update_list_to_value(UpdateRun *run, const Elem *items, size_t count,
                             UpdateValue *ret_value, Error *err) MUST_CHECK;
