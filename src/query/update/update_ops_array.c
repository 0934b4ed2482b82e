/*
 * update_ops_array.c - operators on arrays other than $push: $addToSet, $pop, $pull, $pullAll.
 */
#include "bson/json.h"
#include "query/update/update_array.h"

enum {
    /* Comparisons for which building a hash table does not pay. */
    ADD_TO_SET_PLAIN_MAX = 256,
};

typedef struct PullArgs {
    MatchExpr *expr; /* NULL: equality with the operand */
    bool is_object;  /* the expression is a filter for documents, else for values */
} PullArgs;

/* An open-addressing table of elements. */
typedef struct ElemSet {
    Elem *slots;
    size_t mask;
    const Collator *collator;
} ElemSet;

static ElemSet elem_set_new(size_t count_max, const Collator *collator, Arena *arena);
static size_t elem_set_find(const ElemSet *set, Elem elem);
static bool elem_set_has(const ElemSet *set, Elem elem);
static bool elem_set_add(ElemSet *set, Elem elem);
static bool is_value_condition(Doc operand);
static bool list_contains(const Elem *items, size_t count, Elem elem, const Collator *collator);

/* ---- shared with $push ---- */

ElemList update_list_of(Elem array, size_t extra, Arena *arena) {
    ElemList list = {0};
    size_t capacity = extra;
    if (elem_is_present(array))
        capacity += doc_count(elem_doc(array));
    list.items = ARENA_ARRAY(arena, Elem, capacity);
    if (!elem_is_present(array))
        return list;
    DocIter iter = doc_iter(elem_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        list.items[list.count++] = elem;
    return list;
}

ErrCode update_list_to_value(UpdateRun *run, const Elem *items, size_t count,
                             UpdateValue *ret_value, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, run->arena, 64 + count * 16, BSON_DOC_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (size_t i = 0; i < count; i++) {
        char buffer[INDEX_NAME_SIZE];
        build_elem_as(&b, index_name((uint32_t)i, buffer), items[i]);
    }
    Doc array;
    if (!doc_builder_try_finish(&b, &array))
        return update_too_large(run->ctx, err);
    *ret_value = (UpdateValue){BT_ARRAY, array.data, doc_size(array)};
    return ERR_OK;
}

/* ---- $addToSet ---- */

ErrCode update_parse_add_to_set(UpdateParser *p, UpdateNode *node, Error *err) {
    node->depth_added++;
    if (elem_type(node->operand) != BT_DOC)
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(node->operand));
    Elem each, other;
    if (!doc_iter_next(&iter, &each) || !elem_name_is(each, STR("$each")))
        return ERR_OK;
    if (elem_type(each) != BT_ARRAY)
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "The argument to $each in $addToSet must be an array but it was of type %s",
            bson_type_name(elem_type(each)));
    if (doc_iter_next(&iter, &other))
        return error_set(err, ERR_BAD_VALUE, "Found unexpected fields after $each in $addToSet: %s",
                         shell_text_of_doc(elem_doc(node->operand), p->arena));
    node->depth_added--;
    node->args = elem_doc(each).data;
    return ERR_OK;
}

ErrCode update_apply_add_to_set(UpdateRun *run, const UpdateNode *node, Elem old,
                                UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    if (elem_is_present(old) && elem_type(old) != BT_ARRAY)
        return error_set(
            err, ERR_BAD_VALUE,
            "Cannot apply $addToSet to non-array field. Field named '%s' has non-array "
            "type %s",
            elem_name(old), bson_type_name(elem_type(old)));
    const Collator *collator = run->program->collator;
    Doc each = {node->args};
    size_t added_max = doc_is_present(each) ? doc_count(each) : 1;
    ElemList list = update_list_of(old, added_max, run->arena);
    size_t old_count = list.count;

    bool is_hashed = added_max * (old_count + added_max) > ADD_TO_SET_PLAIN_MAX;
    ElemSet set = {0};
    if (is_hashed) {
        set = elem_set_new(old_count + added_max, collator, run->arena);
        for (size_t i = 0; i < old_count; i++)
            elem_set_add(&set, list.items[i]);
    }
    DocIter iter = doc_iter(doc_is_present(each) ? each : DOC_EMPTY);
    Elem elem = node->operand;
    while (!doc_is_present(each) || doc_iter_next(&iter, &elem)) {
        bool is_new = is_hashed ? elem_set_add(&set, elem)
                                : !list_contains(list.items, list.count, elem, collator);
        if (is_new)
            list.items[list.count++] = elem;
        if (!doc_is_present(each))
            break;
    }
    if (elem_is_present(old) && list.count == old_count)
        return ERR_OK;
    *ret_outcome = UPDATE_VALUE;
    return update_list_to_value(run, list.items, list.count, ret_value, err);
}

static ElemSet elem_set_new(size_t count_max, const Collator *collator, Arena *arena) {
    size_t slots = 16;
    while (slots < 2 * (count_max + 1))
        slots *= 2;
    return (ElemSet){ARENA_ARRAY(arena, Elem, slots), slots - 1, collator};
}

/* Where the element is, or the empty slot where it would go. */
static size_t elem_set_find(const ElemSet *set, Elem elem) {
    size_t at = elem_hash(elem, set->collator) & set->mask;
    while (elem_is_present(set->slots[at]) && !elem_equal(set->slots[at], elem, set->collator))
        at = (at + 1) & set->mask;
    return at;
}

static bool elem_set_has(const ElemSet *set, Elem elem) {
    return elem_is_present(set->slots[elem_set_find(set, elem)]);
}

/* False when it was there before. */
static bool elem_set_add(ElemSet *set, Elem elem) {
    size_t at = elem_set_find(set, elem);
    if (elem_is_present(set->slots[at]))
        return false;
    set->slots[at] = elem;
    return true;
}

static bool list_contains(const Elem *items, size_t count, Elem elem, const Collator *collator) {
    for (size_t i = 0; i < count; i++)
        if (elem_equal(items[i], elem, collator))
            return true;
    return false;
}

/* ---- $pop ---- */

ErrCode update_parse_pop(UpdateParser *p, UpdateNode *node, Error *err) {
    if (!elem_is_number(node->operand))
        return error_set(err, ERR_FAILED_TO_PARSE, "Expected a number in: %s: %s",
                         elem_name(node->operand), shell_text_of_elem(node->operand, p->arena));
    double value = elem_as_f64(node->operand);
    if (value != 1 && value != -1) {
        if (value != (double)elem_as_i64(node->operand))
            return error_set(err, ERR_FAILED_TO_PARSE, "Expected an integer: %s: %s",
                             elem_name(node->operand), shell_text_of_elem(node->operand, p->arena));
        return error_set(err, ERR_FAILED_TO_PARSE, "$pop expects 1 or -1, found: %lld",
                         (long long)elem_as_i64(node->operand));
    }
    node->number = (int64_t)value;
    return ERR_OK;
}

ErrCode update_apply_pop(UpdateRun *run, const UpdateNode *node, Elem old,
                         UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    if (elem_type(old) != BT_ARRAY)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "Path '%s' contains an element of non-array type '%s'",
                         update_current_path(run), bson_type_name(elem_type(old)));
    ElemList list = update_list_of(old, 0, run->arena);
    if (list.count == 0)
        return ERR_OK;
    *ret_outcome = UPDATE_VALUE;
    return update_list_to_value(run, node->number < 0 ? list.items + 1 : list.items, list.count - 1,
                                ret_value, err);
}

/* ---- $pull, $pullAll ---- */

/* {$gt: 1} is a condition on values, {a: 1} one on documents, anything else is equality. */
ErrCode update_parse_pull(UpdateParser *p, UpdateNode *node, Error *err) {
    PullArgs *args = ARENA_NEW(p->arena, PullArgs);
    node->args = args;
    node->depth_added = 0;
    Elem operand = node->operand;
    BsonType type = elem_type(operand);
    if (type != BT_DOC && type != BT_REGEX)
        return ERR_OK;

    MatchParseContext ctx = *p->ctx->match;
    ctx.expr_hook = NULL;
    Doc filter;
    args->is_object = type == BT_DOC && !is_value_condition(elem_doc(operand));
    if (args->is_object) {
        filter = elem_doc(operand);
    } else {
        /* A filter on the field with the empty name; elements are presented under that name. */
        Buffer buf;
        buffer_init_arena(&buf, p->arena, 64 + elem_value_size(operand),
                          BSON_DOC_SIZE_MAX_INTERNAL);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        build_elem_as(&b, STR(""), operand);
        TRY(doc_builder_finish(&b, "$pull condition", &filter, err));
    }
    TRY(match_parse(filter, &ctx, p->arena, &args->expr, err));
    args->expr = match_optimize(args->expr, p->arena);
    return ERR_OK;
}

static bool is_value_condition(Doc operand) {
    static const char *const TOP_LEVEL[] = {"$and", "$or", "$nor", "$expr", "$comment", "$where"};
    DocIter iter = doc_iter(operand);
    Elem first;
    if (!doc_iter_next(&iter, &first) || elem_name(first)[0] != '$')
        return false;
    for (size_t i = 0; i < ARRAY_LEN(TOP_LEVEL); i++)
        if (str_is(elem_name_str(first), TOP_LEVEL[i]))
            return false;
    return true;
}

static bool is_pulled(UpdateRun *run, const UpdateNode *node, Elem elem, MatchDetails *details) {
    const PullArgs *args = node->args;
    if (args->expr == NULL)
        return elem_equal(elem, node->operand, run->program->collator);
    if (!args->is_object)
        return match_elem(args->expr, STR(""), elem, details);
    return elem_type(elem) == BT_DOC && match_doc(args->expr, elem_doc(elem), details);
}

ErrCode update_apply_pull(UpdateRun *run, const UpdateNode *node, Elem old,
                          UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    if (elem_type(old) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE, "Cannot apply $pull to a non-array value");
    ElemList list = update_list_of(old, 0, run->arena);
    size_t kept = 0;
    for (size_t i = 0; i < list.count; i++) {
        MatchDetails details = MATCH_DETAILS_NONE;
        details.err = err;
        bool is_match = is_pulled(run, node, list.items[i], &details);
        TRY(details.rc);
        if (!is_match)
            list.items[kept++] = list.items[i];
    }
    if (kept == list.count)
        return ERR_OK;
    *ret_outcome = UPDATE_VALUE;
    return update_list_to_value(run, list.items, kept, ret_value, err);
}

ErrCode update_parse_pull_all(UpdateParser *p, UpdateNode *node, Error *err) {
    (void)p;
    node->depth_added = 0;
    if (elem_type(node->operand) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE,
                         "$pullAll requires an array argument but was given a %s",
                         bson_type_name(elem_type(node->operand)));
    return ERR_OK;
}

ErrCode update_apply_pull_all(UpdateRun *run, const UpdateNode *node, Elem old,
                              UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    if (elem_type(old) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE, "Cannot apply $pullAll to a non-array value");
    ElemList list = update_list_of(old, 0, run->arena);
    ElemList pulled = update_list_of(node->operand, 0, run->arena);
    const Collator *collator = run->program->collator;
    bool is_hashed = pulled.count * list.count > ADD_TO_SET_PLAIN_MAX;
    ElemSet set = {0};
    if (is_hashed) {
        set = elem_set_new(pulled.count, collator, run->arena);
        for (size_t i = 0; i < pulled.count; i++)
            elem_set_add(&set, pulled.items[i]);
    }
    size_t kept = 0;
    for (size_t i = 0; i < list.count; i++) {
        bool is_pulled_elem =
            is_hashed ? elem_set_has(&set, list.items[i])
                      : list_contains(pulled.items, pulled.count, list.items[i], collator);
        if (!is_pulled_elem)
            list.items[kept++] = list.items[i];
    }
    if (kept == list.count)
        return ERR_OK;
    *ret_outcome = UPDATE_VALUE;
    return update_list_to_value(run, list.items, kept, ret_value, err);
}
