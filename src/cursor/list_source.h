/*
 * list_source.h - documents in hand as the source of a cursor: the list commands.
 */
#pragma once

#include "cursor/cursor_source.h"

/* Copies the array, whose elements are documents. */
CursorSource *list_source_new(Doc array);
