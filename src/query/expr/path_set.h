/*
 * path_set.h - which parts of its input a computation needs: a set of dotted paths, or everything.
 *
 * What is above a path covers it: after "a" is in the set, "a.b" adds nothing.
 */
#pragma once

#include "base/arena.h"
#include "bson/doc.h"

enum {
    /* Past it the set becomes "everything": looking paths up would cost more than it saves. */
    PATH_SET_COUNT_MAX = 256,
};

typedef struct PathSet {
    Arena *arena;
    Str *paths; /* text borrowed from whoever added it */
    uint32_t count;
    uint32_t capacity;
    bool is_all;
} PathSet;

static inline PathSet path_set(Arena *arena) {
    return (PathSet){.arena = arena};
}

void path_set_add(PathSet *set, Str dotted);
/* The path as a filter, a sort or a $lookup reads it, to whom a number can mean a position in an
 * array: what is above the first number. */
void path_set_add_places(PathSet *set, Str dotted);
void path_set_add_all(PathSet *set);

/* Does the set hold the path or one above it? */
bool path_set_covers(const PathSet *set, Str dotted);

/* True when a equals b or is above it: "a.b" is above "a.b.c". */
bool path_is_prefix(Str a, Str b);

/* The part before the first dot. */
Str path_first_part(Str dotted);
