#include "query/bounds/wildcard.h"

#include <string.h>

#include "bson/builder.h"
#include "index/key_gen.h"

typedef struct PathList {
    const IndexDesc *index;
    Arena *arena;
    Str *paths; /* WILDCARD_VIEWS_MAX of them */
    uint32_t count;
} PathList;

static void collect_paths(PathList *list, const MatchExpr *expr, Str prefix);
static void add_path(PathList *list, Str prefix, Str path);
static IndexDesc *make_view(IndexDesc *index, Str path, Arena *arena);
static IndexDesc *make_prefix_view(IndexDesc *index, Arena *arena);
static ErrCode find_arrays(OpCtx *op, IndexDesc *view, Error *err);

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
    return path.size > 0 && index_is_multikey(index) ? find_arrays(op, *ret_view, err) : ERR_OK;
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
               wildcard_has_predicate((Predicate){.expr = expr})) {
        add_path(list, prefix, expr->path.dotted);
    }
}

/* A number in a path may be a position in an array, which paths of the index do not have. */
static bool has_number(Str path) {
    bool is_part_start = true;
    for (size_t i = 0; i < path.size; i++) {
        if (is_part_start && path.data[i] >= '0' && path.data[i] <= '9')
            return true;
        is_part_start = path.data[i] == '.';
    }
    return false;
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
    if (has_number(path) || str_has_char(path, WILDCARD_DOT) ||
        wildcard_reach(list->index->wildcard, path) != WILDCARD_INSIDE)
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

/* Asks the index for the marks of arrays on the path and each part in front of it. */
static ErrCode find_arrays(OpCtx *op, IndexDesc *view, Error *err) {
    static const uint8_t MIN_KEY[] = {BT_MIN_KEY, 0};
    static const int32_t MARK = 1;
    const IndexField *field = &view->fields[view->special_field + 1];
    CLEANUP(index_cursor_done) IndexCursor cursor = {0};
    TRY(index_cursor_open(op, view->store, /* is_forward= */ true, &cursor, err));
    CLEANUP(key_builder_done) KeyBuilder kb;
    key_builder_init(&kb);
    uint32_t bits = 0;
    for (uint32_t p = 0; p < field->part_count; p++) {
        int32_t size = (int32_t)(field->parts[p].data + field->parts[p].size - field->path);
        key_builder_reset(&kb, view->order);
        for (uint32_t f = 0; f < view->special_field; f++)
            key_append_elem(&kb, (Elem){MIN_KEY, 0}, NULL);
        key_append_value(&kb, BT_INT32, (const uint8_t *)&MARK, NULL);
        uint8_t *text = arena_alloc(&op->arena, (size_t)size + 5);
        int32_t stored = size + 1;
        memcpy(text, &stored, sizeof(stored));
        memcpy(text + 4, field->path, (size_t)size);
        text[4 + size] = '\0';
        key_append_value(&kb, BT_STRING, text, NULL);
        size_t fields_size = kb.key.size;
        key_append_end(&kb, KEY_END_BEFORE);
        TRY(index_cursor_seek(&cursor, (Str){(const char *)kb.key.data, kb.key.size}, err));
        bool is_found;
        IndexEntry entry;
        TRY(index_cursor_next(&cursor, &is_found, &entry, err));
        if (is_found && entry.key.size > fields_size &&
            memcmp(entry.key.data, kb.key.data, fields_size) == 0)
            bits |= UINT32_C(1) << (p < INDEX_PATH_PARTS_MAX ? p : INDEX_PATH_PARTS_MAX - 1);
    }
    atomic_store(&view->state->multikey_paths[view->special_field + 1], bits);
    if (bits != 0)
        atomic_store(&view->state->is_multikey, true);
    return ERR_OK;
}
