/*
 * update_ops_push.c - $push with its clauses: insert at $position, then $sort, then $slice.
 */
#include <stdlib.h>

#include "bson/json.h"
#include "bson/number.h"
#include "query/update/update_array.h"

typedef struct SortField {
    FieldPath path;
    bool is_descending;
} SortField;

typedef struct PushArgs {
    Doc each; /* DOC_NONE: push the operand itself */
    bool has_position;
    bool has_slice;
    bool has_sort;
    bool is_descending; /* sort of whole elements */
    int64_t position;
    int64_t slice;
    SortField *sort_fields; /* NULL: whole elements */
    uint32_t sort_field_count;
} PushArgs;

typedef struct SortContext {
    const PushArgs *args;
    const Collator *collator;
} SortContext;

/* An element with its old place, which makes the sort stable. */
typedef struct SortItem {
    Elem elem;
    size_t place;
} SortItem;

static ErrCode parse_clause(UpdateParser *p, PushArgs *args, Elem clause, Error *err);
static ErrCode parse_integer_clause(Elem clause, const char *message, int64_t *ret_value,
                                    Error *err);
static ErrCode parse_sort(UpdateParser *p, PushArgs *args, Elem sort, Error *err);
static ErrCode parse_sort_direction(Elem elem, bool *ret_is_descending, Error *err);
static ErrCode append_one(UpdateRun *run, Elem old, Elem item, UpdateValue *ret_value, Error *err);
static void insert_items(ElemList *list, const PushArgs *args, size_t each_count);
static void sort_items(UpdateRun *run, ElemList *list, const PushArgs *args);
static void slice_items(ElemList *list, int64_t slice);

ErrCode update_parse_push(UpdateParser *p, UpdateNode *node, Error *err) {
    PushArgs *args = ARENA_NEW(p->arena, PushArgs);
    node->args = args;
    node->depth_added++;
    if (elem_type(node->operand) != BT_DOC)
        return ERR_OK;
    Elem each = doc_get_lit(elem_doc(node->operand), "$each");
    if (!elem_is_present(each))
        return ERR_OK;
    if (elem_type(each) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE,
                         "The argument to $each in $push must be an array but it was of type: %s",
                         bson_type_name(elem_type(each)));
    args->each = elem_doc(each);
    node->depth_added = update_elem_depth(each);
    DocIter iter = doc_iter(elem_doc(node->operand));
    for (Elem clause; doc_iter_next(&iter, &clause);)
        TRY(parse_clause(p, args, clause, err));
    return ERR_OK;
}

static ErrCode parse_clause(UpdateParser *p, PushArgs *args, Elem clause, Error *err) {
    Str name = elem_name_str(clause);
    if (str_is(name, "$each"))
        return ERR_OK;
    if (str_is(name, "$slice")) {
        args->has_slice = true;
        return parse_integer_clause(clause,
                                    "The value for $slice must be an integer value but was given "
                                    "type: ",
                                    &args->slice, err);
    }
    if (str_is(name, "$position")) {
        args->has_position = true;
        return parse_integer_clause(clause,
                                    "The value for $position must be an integer value, not of "
                                    "type: ",
                                    &args->position, err);
    }
    if (str_is(name, "$sort")) {
        args->has_sort = true;
        return parse_sort(p, args, clause, err);
    }
    return error_set(err, ERR_BAD_VALUE, "Unrecognized clause in $push: %s", elem_name(clause));
}

static ErrCode parse_integer_clause(Elem clause, const char *message, int64_t *ret_value,
                                    Error *err) {
    if (!elem_is_number(clause) || !number_is_exact_i64(number_from_elem(clause), ret_value))
        return error_set(err, ERR_BAD_VALUE, "%s%s", message, bson_type_name(elem_type(clause)));
    return ERR_OK;
}

static ErrCode parse_sort(UpdateParser *p, PushArgs *args, Elem sort, Error *err) {
    if (elem_type(sort) != BT_DOC)
        return parse_sort_direction(sort, &args->is_descending, err);
    Doc pattern = elem_doc(sort);
    if (doc_is_empty(pattern))
        return error_set(err, ERR_BAD_VALUE,
                         "The $sort pattern is empty when it should be a set of fields.");
    args->sort_fields = ARENA_ARRAY(p->arena, SortField, doc_count(pattern));
    DocIter iter = doc_iter(pattern);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        SortField *field = &args->sort_fields[args->sort_field_count++];
        Str name = elem_name_str(elem);
        if (name.size == 0)
            return error_set(err, ERR_BAD_VALUE, "The $sort field cannot be empty");
        bool has_empty_part = name.data[0] == '.' || name.data[name.size - 1] == '.';
        for (size_t i = 1; i < name.size; i++)
            has_empty_part |= name.data[i] == '.' && name.data[i - 1] == '.';
        if (has_empty_part)
            return error_set(err, ERR_BAD_VALUE,
                             "The $sort field is a dotted field but has an empty part: %s",
                             elem_name(elem));
        TRY(parse_sort_direction(elem, &field->is_descending, err));
        TRY(path_parse(name, p->arena, &field->path, err));
    }
    return ERR_OK;
}

static ErrCode parse_sort_direction(Elem elem, bool *ret_is_descending, Error *err) {
    double value = elem_is_number(elem) ? elem_as_f64(elem) : 0;
    if (value != 1 && value != -1)
        return error_set(err, ERR_BAD_VALUE,
                         "The $sort is invalid: use 1/-1 to sort the whole element, or "
                         "{field:1/-1} to sort embedded fields");
    *ret_is_descending = value < 0;
    return ERR_OK;
}

ErrCode update_apply_push(UpdateRun *run, const UpdateNode *node, Elem old,
                          UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    if (elem_is_present(old) && elem_type(old) != BT_ARRAY)
        return error_set(
            err, ERR_BAD_VALUE, "The field '%s' must be an array but is of type %s in document %s",
            update_current_path(run), bson_type_name(elem_type(old)), update_id_text(run));
    const PushArgs *args = node->args;
    *ret_outcome = UPDATE_VALUE;
    if (!doc_is_present(args->each))
        return append_one(run, old, node->operand, ret_value, err);

    size_t each_count = doc_count(args->each);
    ElemList list = update_list_of(old, each_count, run->arena);
    insert_items(&list, args, each_count);
    if (args->has_sort)
        sort_items(run, &list, args);
    if (args->has_slice)
        slice_items(&list, args->slice);
    return update_list_to_value(run, list.items, list.count, ret_value, err);
}

/* The common case: the old bytes and one more element. */
static ErrCode append_one(UpdateRun *run, Elem old, Elem item, UpdateValue *ret_value, Error *err) {
    Doc array = elem_is_present(old) ? elem_doc(old) : DOC_EMPTY;
    uint32_t body_size = doc_size(array) - BSON_DOC_SIZE_MIN;
    Buffer buf;
    buffer_init_arena(&buf, run->arena,
                      doc_size(array) + elem_value_size(item) + INDEX_NAME_SIZE + 2,
                      BSON_DOC_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    buffer_append(&buf, array.data + 4, body_size);
    char buffer[INDEX_NAME_SIZE];
    build_elem_as(&b, index_name(doc_count(array), buffer), item);
    Doc longer;
    if (!doc_builder_try_finish(&b, &longer))
        return update_too_large(run->ctx, err);
    *ret_value = (UpdateValue){BT_ARRAY, longer.data, doc_size(longer)};
    return ERR_OK;
}

static void insert_items(ElemList *list, const PushArgs *args, size_t each_count) {
    size_t at = list->count;
    if (args->has_position) {
        /* Negative positions count from the end; both sides are clamped. */
        uint64_t distance =
            args->position < 0 ? 0 - (uint64_t)args->position : (uint64_t)args->position;
        if (args->position < 0)
            at = distance > list->count ? 0 : list->count - distance;
        else if (distance < list->count)
            at = distance;
    }
    memmove(list->items + at + each_count, list->items + at,
            (list->count - at) * sizeof(*list->items));
    DocIter iter = doc_iter(args->each);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        list->items[at++] = elem;
    list->count += each_count;
}

/* The value a sort pattern sees: through documents, and through arrays by index. */
static Elem sort_key(Elem elem, const FieldPath *path) {
    for (uint32_t i = 0; i < path->count; i++) {
        if (elem_type(elem) != BT_DOC && elem_type(elem) != BT_ARRAY)
            return ELEM_MISSING;
        elem = path_find_field(elem_doc(elem), &path->parts[i]);
    }
    return elem;
}

/* Missing keys sort as null. */
static int compare_keys(Elem a, Elem b, const Collator *collator) {
    static const uint8_t NULL_ELEM[] = {BT_NULL, 0};
    Elem null = {NULL_ELEM, 0};
    return elem_compare(elem_is_present(a) ? a : null, elem_is_present(b) ? b : null, collator);
}

static int compare_sort_items(const void *a, const void *b, void *ctx) {
    const SortItem *x = a, *y = b;
    const SortContext *sort = ctx;
    const PushArgs *args = sort->args;
    if (args->sort_fields == NULL) {
        int order = elem_compare(x->elem, y->elem, sort->collator);
        if (order != 0)
            return args->is_descending ? -order : order;
    }
    for (uint32_t i = 0; i < args->sort_field_count; i++) {
        const SortField *field = &args->sort_fields[i];
        int order = compare_keys(sort_key(x->elem, &field->path), sort_key(y->elem, &field->path),
                                 sort->collator);
        if (order != 0)
            return field->is_descending ? -order : order;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static void sort_items(UpdateRun *run, ElemList *list, const PushArgs *args) {
    if (list->count < 2)
        return;
    SortItem *items = ARENA_ARRAY(run->arena, SortItem, list->count);
    for (size_t i = 0; i < list->count; i++)
        items[i] = (SortItem){list->items[i], i};
    SortContext ctx = {args, run->program->collator};
    qsort_r(items, list->count, sizeof(*items), compare_sort_items, &ctx);
    for (size_t i = 0; i < list->count; i++)
        list->items[i] = items[i].elem;
}

/* The first `slice` elements, or the last ones when negative. */
static void slice_items(ElemList *list, int64_t slice) {
    uint64_t keep = slice < 0 ? 0 - (uint64_t)slice : (uint64_t)slice;
    if (keep >= list->count)
        return;
    if (slice < 0)
        list->items += list->count - keep;
    list->count = keep;
}
