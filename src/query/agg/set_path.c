/*
 * set_path.c - a document with a value put at a path, as $addFields puts it.
 */
#include "query/agg/agg_internal.h"

static void build_array_with_path(DocBuilder *b, const FieldPath *path, uint32_t at, Doc in,
                                  Value value);

/* Continues with component `at` in what an element holds. */
static void build_inner(DocBuilder *b, const FieldPath *path, uint32_t at, Str name, Elem elem,
                        Value value) {
    if (elem_type(elem) == BT_ARRAY) {
        size_t opened = build_open_array_str(b, name);
        build_array_with_path(b, path, at, elem_doc(elem), value);
        build_close(b, opened);
        return;
    }
    size_t opened = build_open_doc_str(b, name);
    Doc inner = elem_type(elem) == BT_DOC ? elem_doc(elem) : DOC_EMPTY;
    agg_build_with_path(b, path, at, inner, value);
    build_close(b, opened);
}

void agg_build_with_path(DocBuilder *b, const FieldPath *path, uint32_t at, Doc in, Value value) {
    const PathPart *part = &path->parts[at];
    bool is_last = at + 1 == path->count;
    bool is_set = false;
    DocIter iter = doc_iter(in);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (is_set || !elem_name_is(elem, part->name)) {
            build_elem(b, elem);
            continue;
        }
        is_set = true;
        if (is_last)
            build_value_as(b, part->name, value);
        else
            build_inner(b, path, at + 1, part->name, elem, value);
    }
    if (!is_set && is_last)
        build_value_as(b, part->name, value);
    else if (!is_set)
        build_inner(b, path, at + 1, part->name, ELEM_MISSING, value);
}

static void build_array_with_path(DocBuilder *b, const FieldPath *path, uint32_t at, Doc in,
                                  Value value) {
    DocIter iter = doc_iter(in);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        build_inner(b, path, at, elem_name_str(elem), elem, value);
}
