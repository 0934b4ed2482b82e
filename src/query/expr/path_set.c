#include "query/expr/path_set.h"

void path_set_add(PathSet *set, Str dotted) {
    if (path_set_covers(set, dotted))
        return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->count; i++)
        if (!path_is_prefix(dotted, set->paths[i]))
            set->paths[kept++] = set->paths[i];
    set->count = kept;
    if (set->count == PATH_SET_COUNT_MAX) {
        path_set_add_all(set);
        return;
    }
    if (set->count == set->capacity) {
        uint32_t capacity = set->capacity == 0 ? 8 : set->capacity * 2;
        Str *paths = ARENA_ARRAY(set->arena, Str, capacity);
        if (set->count > 0)
            memcpy(paths, set->paths, set->count * sizeof(Str));
        set->paths = paths;
        set->capacity = capacity;
    }
    set->paths[set->count++] = dotted;
}

void path_set_add_places(PathSet *set, Str dotted) {
    for (size_t i = 0; i + 1 < dotted.size; i++)
        if (dotted.data[i] == '.' && dotted.data[i + 1] >= '0' && dotted.data[i + 1] <= '9')
            dotted.size = i;
    path_set_add(set, dotted);
}

void path_set_add_all(PathSet *set) {
    set->is_all = true;
    set->count = 0;
}

bool path_set_covers(const PathSet *set, Str dotted) {
    if (set->is_all)
        return true;
    for (uint32_t i = 0; i < set->count; i++)
        if (path_is_prefix(set->paths[i], dotted))
            return true;
    return false;
}

bool path_is_prefix(Str a, Str b) {
    if (a.size > b.size || (a.size > 0 && memcmp(a.data, b.data, a.size) != 0))
        return false;
    return a.size == b.size || b.data[a.size] == '.';
}

Str path_first_part(Str dotted) {
    const char *dot = memchr(dotted.data, '.', dotted.size);
    return dot == NULL ? dotted : (Str){dotted.data, (size_t)(dot - dotted.data)};
}
