/*
 * path.h - dotted paths: parsed once, walked over many documents with the query language's rules
 * for arrays.
 *
 * A path reaches several elements when it passes through arrays:
 *   - in the middle of the path, the sub-documents of an array are entered, not nested arrays;
 *   - at its end, an array stands for each of its elements and then for itself;
 *   - a numeric component is both the name of a field and the index of an array element; an element
 *     reached by its index stands for itself alone, even if it is an array.
 *   - an empty component at the end ("a.") is the field of that name in a document, and nothing
 * more where the path has come to an array: "a." there is as good as "a". A document in which the
 * path ends early yields the missing element, once. An array without sub-documents in the middle of
 * the path yields nothing at all. Whether `null` matches rests on this difference.
 *
 * Ownership: a FieldPath borrows the text it was parsed from; its parts are in the arena.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"

enum {
    PATH_PARTS_MAX = BSON_DEPTH_MAX,
    /* Each numeric part can double the ways to reach an element of nested arrays and documents;
     * without a bound a small hostile document would keep a walk busy for years. */
    PATH_NUMERIC_PARTS_MAX = 16,
};

typedef struct PathPart {
    Str name;
    int32_t index; /* of the array element it can mean; -1 when not a number */
    /* The first eight bytes of the name with its NUL, and which of them count: lets a scan compare
     * most names with one load. */
    uint64_t word;
    uint64_t mask;
} PathPart;

typedef struct FieldPath {
    Str dotted;
    const PathPart *parts;
    uint32_t count;
} FieldPath;

/* Splits at dots; empty components are allowed and mean fields with empty names. Fails with
 * ERR_OVERFLOW over PATH_PARTS_MAX, ERR_BAD_VALUE over PATH_NUMERIC_PARTS_MAX. */
ErrCode path_parse(Str dotted, Arena *arena, FieldPath *ret_path, Error *err) MUST_CHECK;

/* The same for a path whose values refer to other documents ($lookup, $graphLookup): there a number
 * with leading zeros can mean an element of an array, too. */
ErrCode path_parse_reference(Str dotted, Arena *arena, FieldPath *ret_path, Error *err) MUST_CHECK;

PathPart path_part(Str name);

/* 0, 1, 2 ... without leading zeros; -1 for everything else. */
int32_t path_index_of(Str name);

/* The element of `array` that the component `name` of an index key or a sort means by its position;
 * missing when it is no number or the array is shorter. Fails with 16746 when a document in the
 * array has a field of that name too: such a path would have two values. */
ErrCode path_pick_position(Doc array, Str name, Elem *ret_elem, Error *err) MUST_CHECK;

/* The first field of that name, or the missing element. */
Elem path_find_field(Doc doc, const PathPart *part);

/* The element at the end of the path, which goes through documents only; else missing. */
Elem path_find_in_docs(const FieldPath *path, Doc doc);

typedef enum PathLeaf {
    PATH_LEAF_EXPAND, /* an array at the end: its elements, then itself */
    PATH_LEAF_WHOLE,  /* an array at the end: only itself */
} PathLeaf;

/* Called per element reached; `array_index` is the position in the outermost array that was passed
 * through implicitly, -1 if none was. Returns true to stop. */
typedef bool (*PathVisitFn)(void *ctx, Elem elem, int32_t array_index);

/* True when a visit asked to stop. */
bool path_walk(const FieldPath *path, Doc doc, PathLeaf leaf, PathVisitFn visit, void *ctx);

/* Continues a walk whose first component has already been resolved to `elem`. */
bool path_walk_from(const FieldPath *path, Elem elem, PathLeaf leaf, PathVisitFn visit, void *ctx);
