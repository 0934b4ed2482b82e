#include "query/match/path.h"

#include <assert.h>

typedef struct Walk {
    const PathPart *parts;
    uint32_t count;
    PathLeaf leaf;
    PathVisitFn visit;
    void *ctx;
} Walk;

static bool walk_doc(const Walk *walk, uint32_t at, Doc doc, int32_t array_index);
static bool walk_elem(const Walk *walk, uint32_t at, Elem elem, int32_t array_index);
static bool walk_array(const Walk *walk, uint32_t at, Elem array, int32_t array_index);
static bool walk_indexed(const Walk *walk, uint32_t at, Elem elem, int32_t array_index);
static bool visit_leaf(const Walk *walk, Elem elem, int32_t array_index);

static int32_t index_of_digits(Str name);
static ErrCode parse(Str dotted, bool is_reference, Arena *arena, FieldPath *ret_path, Error *err);

ErrCode path_parse(Str dotted, Arena *arena, FieldPath *ret_path, Error *err) {
    return parse(dotted, /* is_reference= */ false, arena, ret_path, err);
}

ErrCode path_parse_reference(Str dotted, Arena *arena, FieldPath *ret_path, Error *err) {
    return parse(dotted, /* is_reference= */ true, arena, ret_path, err);
}

static ErrCode parse(Str dotted, bool is_reference, Arena *arena, FieldPath *ret_path, Error *err) {
    size_t count = 1;
    for (size_t i = 0; i < dotted.size; i++)
        count += dotted.data[i] == '.';
    if (count > PATH_PARTS_MAX)
        return error_set(err, ERR_OVERFLOW, "field path has %zu components, at most %d are allowed",
                         count, PATH_PARTS_MAX);

    PathPart *parts = ARENA_ARRAY(arena, PathPart, count);
    size_t start = 0;
    uint32_t at = 0;
    uint32_t numeric_count = 0;
    for (size_t i = 0; i <= dotted.size; i++) {
        if (i < dotted.size && dotted.data[i] != '.')
            continue;
        parts[at] = path_part((Str){dotted.data + start, i - start});
        if (is_reference)
            parts[at].index = index_of_digits(parts[at].name);
        numeric_count += parts[at].index >= 0;
        start = i + 1;
        at++;
    }
    if (numeric_count > PATH_NUMERIC_PARTS_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "field path has %u numeric components, at most %d are allowed",
                         numeric_count, PATH_NUMERIC_PARTS_MAX);
    *ret_path = (FieldPath){dotted, parts, at};
    return ERR_OK;
}

PathPart path_part(Str name) {
    PathPart part = {.name = name, .index = path_index_of(name)};
    size_t counted = name.size < 8 ? name.size : 8;
    if (counted > 0)
        memcpy(&part.word, name.data, counted);
    /* A short name includes its terminating NUL, which keeps longer names apart. */
    size_t compared = name.size < 8 ? counted + 1 : 8;
    memset(&part.mask, 0xFF, compared);
    return part;
}

int32_t path_index_of(Str name) {
    return name.size > 1 && name.data[0] == '0' ? -1 : index_of_digits(name);
}

static int32_t index_of_digits(Str name) {
    enum { DIGITS_MAX = 9 }; /* below 2^31 whatever they are */
    if (name.size == 0 || name.size > DIGITS_MAX)
        return -1;
    int32_t index = 0;
    for (size_t i = 0; i < name.size; i++) {
        if (name.data[i] < '0' || name.data[i] > '9')
            return -1;
        index = index * 10 + (name.data[i] - '0');
    }
    return index;
}

ErrCode path_pick_position(Doc array, Str name, Elem *ret_elem, Error *err) {
    *ret_elem = ELEM_MISSING;
    int32_t index = path_index_of(name);
    if (index < 0)
        return ERR_OK;
    int32_t position = 0;
    bool is_also_field = false;
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem); position++) {
        if (position == index)
            *ret_elem = elem;
        is_also_field |=
            elem_type(elem) == BT_DOC && elem_is_present(doc_get(elem_doc(elem), name));
    }
    if (!is_also_field || !elem_is_present(*ret_elem))
        return ERR_OK;
    return error_set(err, (ErrCode)16746,
                     "Ambiguous field name found in array (do not use numeric field names in "
                     "embedded elements in an array), field: '%.*s'",
                     (int)name.size, name.data);
}

/* Offset of the lowest zero byte of a little-endian word, 8 if there is none. */
static inline uint32_t zero_byte_offset(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t found = (word - ones) & ~word & highs;
    return found == 0 ? 8 : (uint32_t)__builtin_ctzll(found) / 8;
}

/* Bytes of a name from its ninth on: one more load serves names of up to fifteen bytes. */
static inline uint32_t name_size_after(const uint8_t *at, const uint8_t *end) {
    if (UNLIKELY(end - at < 8))
        return (uint32_t)strlen((const char *)at);
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    uint32_t size = zero_byte_offset(word);
    return LIKELY(size < 8) ? size : 8 + (uint32_t)strlen((const char *)at + 8);
}

/* Runs once per predicate and scanned document. Names of up to seven bytes, nearly all, cost one
 * load for both the comparison and the length; strlen and memcmp calls would be half of the scan.
 */
Elem path_find_field(Doc doc, const PathPart *part) {
    const uint8_t *at = doc.data + 4;
    const uint8_t *end = doc.data + doc_size(doc);
    while (*at != BT_EOO) {
        uint32_t name_size;
        if (LIKELY(end - at >= 9)) {
            uint64_t word;
            memcpy(&word, at + 1, sizeof(word));
            name_size = zero_byte_offset(word);
            if (UNLIKELY(name_size == 8))
                name_size += name_size_after(at + 9, end);
            if ((word & part->mask) == part->word && name_size == part->name.size &&
                (name_size < 8 || memcmp(at + 1, part->name.data, name_size) == 0))
                return (Elem){at, name_size};
        } else {
            name_size = (uint32_t)strlen((const char *)at + 1);
            if (name_size == part->name.size &&
                (name_size == 0 || memcmp(at + 1, part->name.data, name_size) == 0))
                return (Elem){at, name_size};
        }
        const uint8_t *value = at + name_size + 2;
        at = value + value_size((BsonType)*at, value);
    }
    return ELEM_MISSING;
}

bool path_walk(const FieldPath *path, Doc doc, PathLeaf leaf, PathVisitFn visit, void *ctx) {
    Walk walk = {path->parts, path->count, leaf, visit, ctx};
    return walk_doc(&walk, 0, doc, -1);
}

bool path_walk_from(const FieldPath *path, Elem elem, PathLeaf leaf, PathVisitFn visit, void *ctx) {
    Walk walk = {path->parts, path->count, leaf, visit, ctx};
    return walk_elem(&walk, 0, elem, -1);
}

static bool walk_doc(const Walk *walk, uint32_t at, Doc doc, int32_t array_index) {
    assert(at < walk->count);
    return walk_elem(walk, at, path_find_field(doc, &walk->parts[at]), array_index);
}

/* `elem` is what component `at` has led to. */
static bool walk_elem(const Walk *walk, uint32_t at, Elem elem, int32_t array_index) {
    if (at + 1 == walk->count)
        return visit_leaf(walk, elem, array_index);
    switch (elem_type(elem)) {
    case BT_DOC:
        return walk_doc(walk, at + 1, elem_doc(elem), array_index);
    case BT_ARRAY:
        return walk_array(walk, at + 1, elem, array_index);
    default:
        return walk->visit(walk->ctx, ELEM_MISSING, array_index);
    }
}

/* An array in the middle of the path; component `at` comes after it. */
static bool walk_array(const Walk *walk, uint32_t at, Elem array, int32_t array_index) {
    if (UNLIKELY(at + 1 == walk->count && walk->parts[at].name.size == 0))
        return visit_leaf(walk, array, array_index);
    int32_t wanted = walk->parts[at].index;
    int32_t position = 0;
    DocIter iter = doc_iter(elem_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem); position++) {
        int32_t own_index = array_index >= 0 ? array_index : position;
        if (elem_type(elem) == BT_DOC && walk_doc(walk, at, elem_doc(elem), own_index))
            return true;
        if (position == wanted && walk_indexed(walk, at, elem, array_index))
            return true;
    }
    return false;
}

/* The array element that component `at` names by its index. The path chose it, not the search: the
 * array it is in has no matched position. */
static bool walk_indexed(const Walk *walk, uint32_t at, Elem elem, int32_t array_index) {
    if (at + 1 == walk->count)
        return walk->visit(walk->ctx, elem, array_index);
    switch (elem_type(elem)) {
    case BT_DOC:
        return walk_doc(walk, at + 1, elem_doc(elem), array_index);
    case BT_ARRAY:
        return walk_array(walk, at + 1, elem, array_index);
    default:
        return false;
    }
}

static bool visit_leaf(const Walk *walk, Elem elem, int32_t array_index) {
    if (elem_type(elem) == BT_ARRAY && walk->leaf == PATH_LEAF_EXPAND) {
        int32_t position = 0;
        DocIter iter = doc_iter(elem_doc(elem));
        for (Elem inner; doc_iter_next(&iter, &inner); position++)
            if (walk->visit(walk->ctx, inner, array_index >= 0 ? array_index : position))
                return true;
    }
    return walk->visit(walk->ctx, elem, array_index);
}

Elem path_find_in_docs(const FieldPath *path, Doc doc) {
    Elem elem = ELEM_MISSING;
    for (uint32_t i = 0; i < path->count; i++) {
        elem = path_find_field(doc, &path->parts[i]);
        if (i + 1 == path->count)
            break;
        if (elem_type(elem) != BT_DOC)
            return ELEM_MISSING;
        doc = elem_doc(elem);
    }
    return elem;
}
