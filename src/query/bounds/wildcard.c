#include "query/bounds/wildcard.h"

#include <stdlib.h>
#include <string.h>

#include "bson/builder.h"
#include "index/key_gen.h"
#include "query/match/path.h"

enum {
    PATH_NUMBERS_MAX = 8, /* each of them doubles the places to look at */
};

typedef struct PathList {
    const IndexDesc *index;
    Arena *arena;
    Str *paths; /* WILDCARD_VIEWS_MAX of them */
    uint32_t count;
} PathList;

static void collect_paths(PathList *list, const MatchExpr *expr, Str prefix);
static void add_path(PathList *list, Str prefix, Str path);
static bool may_have_number(const MatchExpr *expr, Str prefix);
static IndexDesc *make_view(IndexDesc *index, Str path, Arena *arena);
static IndexDesc *make_prefix_view(IndexDesc *index, Arena *arena);
static ErrCode find_arrays(OpCtx *op, IndexDesc *view, Error *err);
static ErrCode find_entry_paths(OpCtx *op, IndexDesc *view, Arena *arena, Error *err);
static uint32_t count_numbers(Str path);

/* ---- which conditions ---- */

/* Documents and arrays are stored by their parts, except empty ones. */
static bool is_stored_value(Elem value) {
    switch (elem_type(value)) {
    case BT_DOC:
    case BT_ARRAY:
        return doc_is_empty(elem_doc(value));
    case BT_NULL:
    case BT_UNDEFINED:
    case BT_REGEX:
    case BT_MIN_KEY:
    case BT_MAX_KEY:
        return false;
    default:
        return true;
    }
}

bool wildcard_has_predicate(Predicate predicate) {
    const MatchExpr *expr = predicate.expr;
    if (predicate.is_negated)
        return false;
    switch (expr->kind) {
    case MATCH_EQ:
        return is_stored_value(expr->operand);
    case MATCH_LTE: /* of {} means {} */
        return elem_type(expr->operand) != BT_ARRAY && is_stored_value(expr->operand);
    case MATCH_LT:
    case MATCH_GT:
    case MATCH_GTE:
        return elem_type(expr->operand) != BT_DOC && elem_type(expr->operand) != BT_ARRAY &&
               is_stored_value(expr->operand);
    case MATCH_IN:
        for (uint32_t i = 0; i < expr->in.value_count; i++)
            if (!is_stored_value(expr->in.values[i]))
                return false;
        return true;
    case MATCH_ELEM_MATCH_VALUE:
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (expr->children[i]->kind < MATCH_EQ || expr->children[i]->kind == MATCH_EXISTS ||
                expr->children[i]->kind == MATCH_TYPE ||
                !wildcard_has_predicate((Predicate){.expr = expr->children[i]}))
                return false;
        return true;
    case MATCH_EXISTS:
    case MATCH_TYPE:
    case MATCH_REGEX:
    case MATCH_MOD:
        return true;
    default:
        return false;
    }
}

bool wildcard_is_of_subtree(Predicate predicate) {
    uint32_t stored_by_parts = 1u << BT_DOC | 1u << BT_ARRAY;
    return predicate.expr->kind == MATCH_EXISTS ||
           (predicate.expr->kind == MATCH_TYPE &&
            (predicate.expr->type_set & stored_by_parts) != 0);
}

/* ---- which paths ---- */

uint32_t wildcard_paths(const IndexDesc *index, const MatchExpr *filter, Arena *arena,
                        Str ret_paths[WILDCARD_VIEWS_MAX]) {
    if (filter == NULL)
        return 0;
    PathList list = {.index = index, .arena = arena, .paths = ret_paths};
    collect_paths(&list, filter, STR(""));
    if (list.count == 0 && index->special_field > 0)
        ret_paths[list.count++] = STR("");
    return list.count;
}

ErrCode wildcard_view(OpCtx *op, IndexDesc *index, Str path, Arena *arena, IndexDesc **ret_view,
                      Error *err) {
    *ret_view = path.size == 0 ? make_prefix_view(index, arena) : make_view(index, path, arena);
    if (path.size == 0 || !index_is_multikey(index))
        return ERR_OK;
    return count_numbers(path) > 0 ? find_entry_paths(op, *ret_view, arena, err)
                                   : find_arrays(op, *ret_view, err);
}

Str wildcard_view_path(const IndexDesc *view) {
    return view->special_field == WILDCARD_FIELD_NONE
               ? STR("")
               : str_from(view->fields[view->special_field + 1].path);
}

ErrCode wildcard_views(OpCtx *op, IndexDesc *index, const MatchExpr *filter, Arena *arena,
                       IndexDesc *ret_views[WILDCARD_VIEWS_MAX], uint32_t *ret_count, Error *err) {
    Str paths[WILDCARD_VIEWS_MAX];
    *ret_count = wildcard_paths(index, filter, arena, paths);
    for (uint32_t i = 0; i < *ret_count; i++)
        TRY(wildcard_view(op, index, paths[i], arena, &ret_views[i], err));
    return ERR_OK;
}

static void collect_paths(PathList *list, const MatchExpr *expr, Str prefix) {
    if (expr->kind == MATCH_AND) {
        for (uint32_t i = 0; i < expr->child_count; i++)
            collect_paths(list, expr->children[i], prefix);
    } else if (expr->kind == MATCH_ELEM_MATCH_OBJECT && prefix.size == 0) {
        collect_paths(list, expr->children[0], expr->path.dotted);
    } else if (expr->kind >= MATCH_EQ && expr->kind != MATCH_ELEM_MATCH_OBJECT &&
               wildcard_has_predicate((Predicate){.expr = expr}) && may_have_number(expr, prefix)) {
        add_path(list, prefix, expr->path.dotted);
    }
}

/* ---- numbers in paths ---- */

/* A number behind the first part may be a position in an array, and paths of the index do not have
 * those: the entry of {a: [{b: 1}]} is at "a.b", where "a.0.b" finds the document. */
static Str next_part(Str path, size_t *at) {
    size_t start = *at;
    while (*at < path.size && path.data[*at] != '.')
        (*at)++;
    Str part = {path.data + start, *at - start};
    if (*at < path.size)
        (*at)++;
    return part;
}

/* How many numbers; UINT32_MAX: two of them in a row, which means arrays in arrays, whose elements
 * have no entries. */
static uint32_t count_numbers(Str path) {
    uint32_t count = 0;
    size_t at = 0;
    (void)next_part(path, &at);
    for (bool was_number = false; at < path.size;) {
        bool is_number = path_index_of(next_part(path, &at)) >= 0;
        if (is_number && was_number)
            return UINT32_MAX;
        count += is_number;
        was_number = is_number;
    }
    return count;
}

/* The path without those numbers that `left_out` has a bit for. */
static Str leave_out(Str path, uint32_t left_out, Arena *arena) {
    char *text = arena_alloc(arena, path.size + 1);
    size_t at = 0, size = 0;
    for (uint32_t part_count = 0, number = 0; at < path.size; part_count++) {
        Str part = next_part(path, &at);
        if (part_count > 0 && path_index_of(part) >= 0 && (left_out >> number++ & 1) != 0)
            continue;
        if (part_count > 0)
            text[size++] = '.';
        memcpy(text + size, part.data, part.size);
        size += part.size;
    }
    text[size] = '\0';
    return (Str){text, size};
}

/* Does the index have all the paths under which there may be entries? */
static bool is_inside(const WildcardPaths *wildcard, Str path, Arena *arena) {
    uint32_t numbers = count_numbers(path);
    if (numbers > PATH_NUMBERS_MAX)
        return false;
    for (uint32_t left_out = 0; left_out < UINT32_C(1) << numbers; left_out++)
        if (wildcard_reach(wildcard, leave_out(path, left_out, arena)) != WILDCARD_INSIDE)
            return false;
    return true;
}

/* Like the match itself: what a position in an array has is one value, not the array's own. */
static bool may_have_number(const MatchExpr *expr, Str prefix) {
    size_t at = 0;
    Str path = expr->path.dotted, first = next_part(path, &at);
    bool is_below_number =
        prefix.size > 0 && (path_index_of(first) >= 0 || count_numbers(prefix) > 0);
    if (count_numbers(path) == 0 && !is_below_number)
        return true;
    return prefix.size == 0 && expr->kind != MATCH_ELEM_MATCH_VALUE && !expr->matches_missing &&
           !wildcard_is_of_subtree((Predicate){.expr = expr});
}

static void add_path(PathList *list, Str prefix, Str path) {
    if (path.size == 0 || list->count == WILDCARD_VIEWS_MAX)
        return;
    if (prefix.size > 0) {
        const char *text = arena_printf(list->arena, "%.*s.%.*s", (int)prefix.size, prefix.data,
                                        (int)path.size, path.data);
        path = str_from(text);
    }
    for (uint32_t i = 0; i < list->count; i++)
        if (str_equal(list->paths[i], path))
            return;
    if (str_has_char(path, WILDCARD_DOT) || !is_inside(list->index->wildcard, path, list->arena))
        return;
    list->paths[list->count++] = path;
}

/* ---- views ---- */

static void split_path(Str dotted, Arena *arena, IndexField *field) {
    field->path = arena_strndup(arena, dotted.data, dotted.size);
    field->part_count = 1;
    for (size_t i = 0; i < dotted.size; i++)
        field->part_count += dotted.data[i] == '.';
    field->parts = ARENA_ARRAY(arena, Str, field->part_count);
    const char *at = field->path;
    for (uint32_t p = 0; p < field->part_count; p++) {
        field->parts[p] = (Str){at, strcspn(at, ".")};
        at += field->parts[p].size + 1;
    }
}

static IndexDesc *make_view(IndexDesc *index, Str path, Arena *arena) {
    IndexDesc *view = ARENA_NEW(arena, IndexDesc);
    memcpy(view, index, sizeof(*view));
    view->whole = index;
    view->field_count = index->field_count + 1;
    view->fields = ARENA_ARRAY(arena, IndexField, view->field_count);
    view->state = ARENA_NEW(arena, IndexState);
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(index->key_pattern);
    Elem elem;
    for (uint32_t f = 0; doc_iter_next(&iter, &elem); f++) {
        uint32_t place = f + (f > index->special_field);
        if (f != index->special_field) {
            view->fields[place] = index->fields[f];
            atomic_init(&view->state->multikey_paths[place], index_multikey_paths(index, f));
            build_elem(&b, elem);
            continue;
        }
        split_path(STR("$_path"), arena, &view->fields[place]);
        split_path(path, arena, &view->fields[place + 1]);
        view->fields[place + 1].is_descending = index->fields[f].is_descending;
        build_i32(&b, "$_path", 1);
        build_elem_as(&b, path, elem);
    }
    view->key_pattern = doc_builder_end(&b);
    for (uint32_t f = 0; f < view->field_count; f++)
        if (atomic_load(&view->state->multikey_paths[f]) != 0)
            atomic_store(&view->state->is_multikey, true);
    return view;
}

/* The fields before the wildcard alone, which every document has: entries of all paths are read. */
static IndexDesc *make_prefix_view(IndexDesc *index, Arena *arena) {
    IndexDesc *view = ARENA_NEW(arena, IndexDesc);
    memcpy(view, index, sizeof(*view));
    view->whole = index;
    view->field_count = index->special_field;
    view->special_field = WILDCARD_FIELD_NONE;
    view->state = ARENA_NEW(arena, IndexState);
    for (uint32_t f = 0; f < view->field_count; f++) {
        uint32_t bits = index_multikey_paths(index, f);
        atomic_init(&view->state->multikey_paths[f], bits);
        if (bits != 0)
            atomic_store(&view->state->is_multikey, true);
    }
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(index->key_pattern);
    Elem elem;
    for (uint32_t f = 0; f < view->field_count && doc_iter_next(&iter, &elem); f++)
        build_elem(&b, elem);
    build_i32(&b, "$_path", 1);
    view->key_pattern = doc_builder_end(&b);
    return view;
}

/* Reads the marks of arrays that a wildcard index has. */
typedef struct MarkReader {
    const IndexDesc *view;
    OpCtx *op;
    IndexCursor cursor;
    KeyBuilder kb;
} MarkReader;

static ErrCode mark_reader_open(OpCtx *op, const IndexDesc *view, MarkReader *ret_reader,
                                Error *err) {
    *ret_reader = (MarkReader){.view = view, .op = op};
    key_builder_init(&ret_reader->kb);
    return index_cursor_open(op, view->store, /* is_forward= */ true, &ret_reader->cursor, err);
}

static void mark_reader_done(MarkReader *reader) {
    index_cursor_done(&reader->cursor);
    key_builder_done(&reader->kb);
}

/* Is there an array at the path in any document? */
static ErrCode mark_reader_look(MarkReader *reader, Str path, bool *ret_is_array, Error *err) {
    static const uint8_t MIN_KEY[] = {BT_MIN_KEY, 0};
    static const int32_t MARK = 1;
    const IndexDesc *view = reader->view;
    KeyBuilder *kb = &reader->kb;
    key_builder_reset(kb, view->order);
    for (uint32_t f = 0; f < view->special_field; f++)
        key_append_elem(kb, (Elem){MIN_KEY, 0}, NULL);
    key_append_value(kb, BT_INT32, (const uint8_t *)&MARK, NULL);
    uint8_t *text = arena_alloc(&reader->op->arena, path.size + 5);
    int32_t stored = (int32_t)path.size + 1;
    memcpy(text, &stored, sizeof(stored));
    memcpy(text + 4, path.data, path.size);
    text[4 + path.size] = '\0';
    key_append_value(kb, BT_STRING, text, NULL);
    size_t fields_size = kb->key.size;
    key_append_end(kb, KEY_END_BEFORE);
    TRY(index_cursor_seek(&reader->cursor, (Str){(const char *)kb->key.data, kb->key.size}, err));
    bool is_found;
    IndexEntry entry;
    TRY(index_cursor_next(&reader->cursor, &is_found, &entry, err));
    *ret_is_array = is_found && entry.key.size > fields_size &&
                    memcmp(entry.key.data, kb->key.data, fields_size) == 0;
    return ERR_OK;
}

static void set_arrays(IndexDesc *view, uint32_t bits) {
    atomic_store(&view->state->multikey_paths[view->special_field + 1], bits);
    if (bits != 0)
        atomic_store(&view->state->is_multikey, true);
}

/* Asks the index for the marks of arrays on the path and each part in front of it. */
static ErrCode find_arrays(OpCtx *op, IndexDesc *view, Error *err) {
    const IndexField *field = &view->fields[view->special_field + 1];
    CLEANUP(mark_reader_done) MarkReader reader;
    TRY(mark_reader_open(op, view, &reader, err));
    uint32_t bits = 0;
    for (uint32_t p = 0; p < field->part_count; p++) {
        Str path = {field->path,
                    (size_t)(field->parts[p].data + field->parts[p].size - field->path)};
        bool is_array;
        TRY(mark_reader_look(&reader, path, &is_array, err));
        if (is_array)
            bits |= UINT32_C(1) << (p < INDEX_PATH_PARTS_MAX ? p : INDEX_PATH_PARTS_MAX - 1);
    }
    set_arrays(view, bits);
    return ERR_OK;
}

static int compare_paths(const void *a, const void *b) {
    const Str *x = a, *y = b;
    int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

/* Part by part: behind a path that has arrays a number may be a position in one or a name, else it
 * is a name. How the values lie in arrays is not looked at: any of the parts may have some. */
static ErrCode find_entry_paths(OpCtx *op, IndexDesc *view, Arena *arena, Error *err) {
    const IndexField *field = &view->fields[view->special_field + 1];
    CLEANUP(mark_reader_done) MarkReader reader;
    TRY(mark_reader_open(op, view, &reader, err));
    Str *paths = ARENA_ARRAY(arena, Str, UINT32_C(2) << PATH_NUMBERS_MAX);
    Str *outer = ARENA_ARRAY(arena, Str, UINT32_C(1) << PATH_NUMBERS_MAX);
    uint32_t count = 1, outer_count = 0;
    paths[0] = field->parts[0];
    for (uint32_t p = 1; p < field->part_count; p++) {
        bool is_number = path_index_of(field->parts[p]) >= 0;
        for (uint32_t i = 0, before = count; i < before; i++) {
            bool is_array = false;
            if (is_number)
                TRY(mark_reader_look(&reader, paths[i], &is_array, err));
            if (is_array) {
                outer[outer_count++] = paths[i]; /* of arrays in it, with all that is in those */
                paths[count++] = paths[i];
            }
            paths[i] = str_from(arena_printf(arena, "%.*s.%.*s", (int)paths[i].size, paths[i].data,
                                             (int)field->parts[p].size, field->parts[p].data));
        }
    }
    memcpy(paths + count, outer, outer_count * sizeof(*outer));
    count += outer_count;
    qsort(paths, count, sizeof(*paths), compare_paths);
    view->entry_paths = paths;
    view->entry_path_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || !str_equal(paths[i], paths[i - 1]))
            paths[view->entry_path_count++] = paths[i];
    set_arrays(view, UINT32_MAX);
    return ERR_OK;
}
