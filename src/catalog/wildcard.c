#include "catalog/wildcard.h"

#include <string.h>

#include "base/alloc.h"

typedef struct ProjectionWalk {
    WildcardPaths *wildcard;
    uint32_t capacity;
    Arena *arena;
    bool is_kind_known; /* inclusion or exclusion */
} ProjectionWalk;

enum {
    PROJECTION_DEPTH_MAX = 100,
};

static ErrCode add_projection(ProjectionWalk *walk, Str prefix, Doc projection, uint32_t depth,
                              Error *err);
static void add_path(ProjectionWalk *walk, Str path);

bool wildcard_is_field(Str path) {
    static const char SUFFIX[] = ".$**";
    size_t size = sizeof(SUFFIX) - 1;
    return str_is(path, "$**") ||
           (path.size > size && memcmp(path.data + path.size - size, SUFFIX, size) == 0);
}

ErrCode wildcard_paths_parse(Str field, Doc projection, Arena *arena, WildcardPaths **ret_paths,
                             Error *err) {
    WildcardPaths *wildcard = ARENA_NEW(arena, WildcardPaths);
    ProjectionWalk walk = {.wildcard = wildcard, .arena = arena};
    if (!str_is(field, "$**")) {
        add_path(&walk, (Str){field.data, field.size - 4});
        *ret_paths = wildcard;
        return ERR_OK;
    }
    wildcard->has_id_rule = true;
    if (!doc_is_present(projection)) {
        wildcard->is_exclusion = true;
    } else {
        TRY(add_projection(&walk, STR(""), projection, 0, err));
        if (!walk.is_kind_known) /* of _id alone: {_id: 1} shows it, {_id: 0} the rest */
            wildcard->is_exclusion = !wildcard->is_id_in;
    }
    *ret_paths = wildcard;
    return ERR_OK;
}

/* Is `path` equal to `top`, or below it? */
static bool is_within(Str path, Str top) {
    return path.size >= top.size && memcmp(path.data, top.data, top.size) == 0 &&
           (path.size == top.size || path.data[top.size] == '.');
}

WildcardReach wildcard_reach(const WildcardPaths *wildcard, Str path) {
    if (wildcard->has_id_rule && is_within(path, STR("_id")))
        return wildcard->is_id_in ? WILDCARD_INSIDE : WILDCARD_OUTSIDE;
    WildcardReach reach = wildcard->is_exclusion ? WILDCARD_INSIDE : WILDCARD_OUTSIDE;
    for (uint32_t i = 0; i < wildcard->count; i++) {
        if (is_within(path, wildcard->paths[i]))
            return wildcard->is_exclusion ? WILDCARD_OUTSIDE : WILDCARD_INSIDE;
        if (is_within(wildcard->paths[i], path))
            reach = WILDCARD_ABOVE;
    }
    return reach;
}

static void add_path(ProjectionWalk *walk, Str path) {
    WildcardPaths *wildcard = walk->wildcard;
    if (wildcard->count == walk->capacity) {
        Str *old = wildcard->paths;
        walk->capacity = walk->capacity == 0 ? 8 : walk->capacity * 2;
        wildcard->paths = ARENA_ARRAY(walk->arena, Str, walk->capacity);
        for (uint32_t i = 0; i < wildcard->count; i++)
            wildcard->paths[i] = old[i];
    }
    wildcard->paths[wildcard->count++] =
        (Str){arena_strndup(walk->arena, path.data, path.size), path.size};
}

static ErrCode add_one(ProjectionWalk *walk, Str path, Elem elem, Error *err) {
    if (!elem_is_number(elem) && elem_type(elem) != BT_BOOL)
        return error_set(err, (ErrCode)51271,
                         "wildcardProjection can only include or exclude fields, but \"%.*s\" is "
                         "of type %s",
                         (int)path.size, path.data, bson_type_name(elem_type(elem)));
    bool is_in = elem_is_truthy(elem);
    if (str_is(path, "_id")) { /* may be said beside either kind */
        walk->wildcard->is_id_in = is_in;
        return ERR_OK;
    }
    if (walk->is_kind_known && walk->wildcard->is_exclusion == is_in)
        return error_set(err, (ErrCode)(is_in ? 31253 : 31254),
                         is_in ? "Cannot do inclusion on field %.*s in exclusion projection"
                               : "Cannot do exclusion on field %.*s in inclusion projection",
                         (int)path.size, path.data);
    walk->is_kind_known = true;
    walk->wildcard->is_exclusion = !is_in;
    add_path(walk, path);
    return ERR_OK;
}

static ErrCode add_projection(ProjectionWalk *walk, Str prefix, Doc projection, uint32_t depth,
                              Error *err) {
    if (depth > PROJECTION_DEPTH_MAX)
        return error_set(err, ERR_FAILED_TO_PARSE, "wildcardProjection is nested too deep");
    DocIter iter = doc_iter(projection);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Str name = elem_name_str(elem);
        if (name.size == 0 || name.data[0] == '.' || name.data[name.size - 1] == '.' ||
            name.data[0] == '$' || strstr(name.data, "..") != NULL)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "wildcardProjection has a field name that is not valid: \"%s\"",
                             name.data);
        char *text = prefix.size == 0 ? arena_strdup(walk->arena, name.data)
                                      : arena_printf(walk->arena, "%.*s.%s", (int)prefix.size,
                                                     prefix.data, name.data);
        Str path = {text, strlen(text)};
        if (elem_type(elem) == BT_DOC && !doc_is_empty(elem_doc(elem)))
            TRY(add_projection(walk, path, elem_doc(elem), depth + 1, err));
        else
            TRY(add_one(walk, path, elem, err));
    }
    return ERR_OK;
}
