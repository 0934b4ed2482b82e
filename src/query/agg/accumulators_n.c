/*
 * accumulators_n.c - accumulators that keep the first few of an order: $firstN, $lastN, $minN,
 * $maxN, $top(N), $bottom(N).
 */
#include "base/alloc.h"
#include "query/agg/accumulator.h"

/* Kept values in the order of the result, or, for $lastN, a ring. */
typedef struct NItem {
    KeptValue value;
    uint8_t *key; /* $top and its kin: sort key */
    uint32_t key_size;
} NItem;

typedef struct NState {
    NItem *items;
    uint32_t count;
    uint32_t capacity;
    uint32_t oldest; /* $lastN */
    int64_t n;       /* 0: not known yet */
} NState;

static ErrCode parse_n(Elem n_elem, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                       Error *err) {
    TRY(expr_parse(n_elem, ctx, arena, &acc->n_expr, err));
    Value value;
    if (expr_is_literal(acc->n_expr, &value))
        return expr_check_n(value, arena, &acc->n, err);
    return ERR_OK;
}

/* `n` of a state: constant, or computed from the group's key when the first value comes. */
static ErrCode ensure_n(NState *s, const Acc *acc, AccContext *ctx, Error *err) {
    if (LIKELY(s->n > 0))
        return ERR_OK;
    s->n = acc->n;
    if (s->n > 0)
        return ERR_OK;
    ExprEvalContext eval = *ctx->eval;
    eval.root = ctx->group_id.type == BT_DOC ? value_as_doc(ctx->group_id) : DOC_EMPTY;
    Value value;
    TRY(expr_eval(acc->n_expr, &eval, &value, err));
    return expr_check_n(value, eval.scratch, &s->n, err);
}

/* $firstN and $lastN, which take documents as they come. */
static bool is_of_order(const char *name) {
    return strcmp(name, "$firstN") == 0 || strcmp(name, "$lastN") == 0;
}

/* {n: ..., input: ...} */
static ErrCode parse_n_input(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                             Error *err) {
    if (elem_type(operand) != BT_DOC)
        return error_set(err, is_of_order(elem_name(operand)) ? (ErrCode)5787801 : (ErrCode)5787900,
                         "specification must be an object; found %s: %s", elem_name(operand),
                         bson_type_name(elem_type(operand)));
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("n"))) {
            TRY(parse_n(elem, ctx, arena, acc, err));
        } else if (elem_name_is(elem, STR("input"))) {
            TRY(expr_parse(elem, ctx, arena, &acc->input, err));
        } else {
            return error_set(err, (ErrCode)5787901, "Unknown argument to %s: %s",
                             elem_name(operand), elem_name(elem));
        }
    }
    if (acc->n_expr == NULL)
        return error_set(err, (ErrCode)5787906, "Missing value for 'n'");
    if (acc->input == NULL)
        return error_set(err, (ErrCode)5787907, "Missing value for 'input'");
    return ERR_OK;
}

/* {sortBy: ..., output: ...}, and n for $topN and $bottomN. */
static ErrCode parse_sorted(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                            bool has_n, Error *err) {
    if (elem_type(operand) != BT_DOC)
        return error_set(err, (ErrCode)5788001, "specification must be an object; found %s: %s",
                         elem_name(operand), bson_type_name(elem_type(operand)));
    acc->n = has_n ? 0 : 1;
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (has_n && elem_name_is(elem, STR("n"))) {
            TRY(parse_n(elem, ctx, arena, acc, err));
        } else if (elem_name_is(elem, STR("output"))) {
            TRY(expr_parse(elem, ctx, arena, &acc->input, err));
        } else if (elem_name_is(elem, STR("sortBy"))) {
            if (elem_type(elem) != BT_DOC)
                return error_set(err, (ErrCode)10065,
                                 "invalid parameter: expected an object (sortBy) in %s",
                                 elem_name(operand));
            TRY(sort_pattern_parse(elem_doc(elem), SORT_SYNTAX_STAGE, arena, &acc->sort_by, err));
        } else {
            return error_set(err, (ErrCode)5788002, "Unknown argument to %s: %s",
                             elem_name(operand), elem_name(elem));
        }
    }
    if (has_n && acc->n_expr == NULL)
        return error_set(err, (ErrCode)5788003, "Missing value for 'n'");
    if (acc->input == NULL)
        return error_set(err, (ErrCode)5788004, "Missing value for 'output'");
    if (acc->sort_by == NULL)
        return error_set(err, (ErrCode)5788005, "Missing value for 'sortBy'");
    return ERR_OK;
}

static ErrCode parse_one_sorted(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                                Error *err) {
    return parse_sorted(operand, ctx, arena, acc, /* has_n= */ false, err);
}

static ErrCode parse_n_sorted(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                              Error *err) {
    return parse_sorted(operand, ctx, arena, acc, /* has_n= */ true, err);
}

static NItem *append_item(NState *s, AccContext *ctx) {
    size_t capacity_before = s->capacity;
    ARRAY_RESERVE(s->items, s->count, s->capacity);
    *ctx->bytes += (s->capacity - capacity_before) * sizeof(NItem);
    s->items[s->count] = (NItem){0};
    return &s->items[s->count++];
}

static ErrCode first_n_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    NState *s = state;
    TRY(ensure_n(s, acc, ctx, err));
    if (s->count < s->n)
        kept_value_set(&append_item(s, ctx)->value, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode last_n_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    NState *s = state;
    TRY(ensure_n(s, acc, ctx, err));
    if (s->count < s->n) {
        kept_value_set(&append_item(s, ctx)->value, value, ctx->bytes);
        return ERR_OK;
    }
    kept_value_set(&s->items[s->oldest].value, value, ctx->bytes);
    s->oldest = (s->oldest + 1) % s->count;
    return ERR_OK;
}

/* The place of `value` among the sorted items: after equal ones, so that the first stays first. */
static uint32_t find_place(const NState *s, Value value, int direction, const Collator *collator) {
    uint32_t low = 0;
    uint32_t high = s->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (direction * values_compare(value, s->items[middle].value.value, collator) < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Makes room at `place`; the last item's memory is used again when there are n already. */
static NItem *insert_item(NState *s, uint32_t place, AccContext *ctx) {
    if (s->count < s->n)
        append_item(s, ctx);
    NItem last = s->items[s->count - 1];
    memmove(&s->items[place + 1], &s->items[place], (s->count - 1 - place) * sizeof(NItem));
    s->items[place] = last;
    return &s->items[place];
}

static ErrCode extreme_n_add(void *state, const Acc *acc, Value value, AccContext *ctx,
                             int direction, Error *err) {
    NState *s = state;
    TRY(ensure_n(s, acc, ctx, err));
    if (value_is_nullish(value))
        return ERR_OK;
    uint32_t place = find_place(s, value, direction, ctx->collator);
    if (place < s->n)
        kept_value_set(&insert_item(s, place, ctx)->value, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode min_n_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    return extreme_n_add(state, acc, value, ctx, 1, err);
}

static ErrCode max_n_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    return extreme_n_add(state, acc, value, ctx, -1, err);
}

static int compare_bytes(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size) {
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

/* Items are sorted by key, for $bottom from the end. */
static ErrCode sorted_add_key(NState *s, const Acc *acc, Str key, Value value, AccContext *ctx,
                              bool is_bottom, Error *err) {
    TRY(ensure_n(s, acc, ctx, err));
    uint32_t low = 0;
    uint32_t high = s->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const NItem *item = &s->items[middle];
        int order = compare_bytes((const uint8_t *)key.data, key.size, item->key, item->key_size);
        /* Equal keys: $top keeps the earlier before the later, and so, read from its end, must
         * $bottom, where a later one is nearer to the end. */
        bool goes_before = is_bottom ? order >= 0 : order < 0;
        if (goes_before)
            high = middle;
        else
            low = middle + 1;
    }
    if (low >= s->n)
        return ERR_OK;
    NItem *item = insert_item(s, low, ctx);
    *ctx->bytes += key.size;
    *ctx->bytes -= item->key_size;
    xfree(item->key);
    item->key = xmemdup(key.data, key.size);
    item->key_size = (uint32_t)key.size;
    kept_value_set(&item->value, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode sorted_add(NState *s, const Acc *acc, Value value, AccContext *ctx, bool is_bottom,
                          Error *err) {
    TRY(sort_key_make(acc->sort_by, ctx->eval->root, ctx->collator, ctx->key, err));
    Str key = {(const char *)ctx->key->key.data, ctx->key->key.size};
    return sorted_add_key(s, acc, key, value, ctx, is_bottom, err);
}

static ErrCode top_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    return sorted_add(state, acc, value, ctx, /* is_bottom= */ false, err);
}

static ErrCode bottom_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    return sorted_add(state, acc, value, ctx, /* is_bottom= */ true, err);
}

static ErrCode n_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    const NState *s = state;
    ArrayBuilder array;
    array_builder_init(&array, arena);
    for (uint32_t i = 0; i < s->count; i++)
        array_builder_add(&array, s->items[(s->oldest + i) % s->count].value.value);
    return array_builder_end(&array, ret, err);
}

static ErrCode n_finish_reversed(void *state, const Acc *acc, Arena *arena, Value *ret,
                                 Error *err) {
    (void)acc;
    const NState *s = state;
    ArrayBuilder array;
    array_builder_init(&array, arena);
    for (uint32_t i = s->count; i-- > 0;)
        array_builder_add(&array, s->items[i].value.value);
    return array_builder_end(&array, ret, err);
}

static ErrCode one_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)arena;
    (void)err;
    const NState *s = state;
    *ret = s->count == 0 ? VALUE_NULL : s->items[0].value.value;
    return ERR_OK;
}

/* [{k: sort key, v: value; absent when missing}, ...], in the order in which adding them again
 * gives the same: of equal keys the earlier first. */
static ErrCode sorted_save(const NState *s, Arena *arena, bool is_bottom, Value *ret, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (uint32_t i = 0; i < s->count; i++) {
        const NItem *item = &s->items[is_bottom ? s->count - 1 - i : i];
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc_str(&b, index_name(i, name));
        build_binary(&b, "k", 0, item->key, item->key_size);
        build_value_as(&b, STR("v"), item->value.value);
        build_close(&b, opened);
    }
    Doc array;
    TRY(doc_builder_finish(&b, "partial result", &array, err));
    *ret = value_array(array);
    return ERR_OK;
}

static ErrCode top_save(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    return sorted_save(state, arena, /* is_bottom= */ false, ret, err);
}

static ErrCode bottom_save(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    return sorted_save(state, arena, /* is_bottom= */ true, ret, err);
}

static ErrCode sorted_merge(NState *s, const Acc *acc, Value partial, AccContext *ctx,
                            bool is_bottom, Error *err) {
    TRY(acc_check_partial(acc, partial, BT_ARRAY, err));
    DocIter iter = doc_iter(value_as_doc(partial));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Elem key = elem_type(elem) == BT_DOC ? doc_get_lit(elem_doc(elem), "k") : ELEM_MISSING;
        if (elem_type(key) != BT_BINARY)
            return error_set(err, ERR_BAD_VALUE, "not a partial result of %s",
                             elem_name(acc->source));
        uint8_t subtype;
        Str bytes = elem_binary(key, &subtype);
        Value value = value_from_elem(doc_get_lit(elem_doc(elem), "v"));
        TRY(sorted_add_key(s, acc, bytes, value, ctx, is_bottom, err));
    }
    return ERR_OK;
}

static ErrCode top_merge(void *state, const Acc *acc, Value partial, AccContext *ctx, Error *err) {
    return sorted_merge(state, acc, partial, ctx, /* is_bottom= */ false, err);
}

static ErrCode bottom_merge(void *state, const Acc *acc, Value partial, AccContext *ctx,
                            Error *err) {
    return sorted_merge(state, acc, partial, ctx, /* is_bottom= */ true, err);
}

static void n_done(void *state) {
    NState *s = state;
    for (uint32_t i = 0; i < s->count; i++) {
        kept_value_done(&s->items[i].value);
        xfree(s->items[i].key);
    }
    xfree(s->items);
}

#define N_CLASS(add_fn)                                                                            \
    {                                                                                              \
        .state_size = sizeof(NState), .parse = parse_n_input, .add = (add_fn), .finish = n_finish, \
        .done = n_done, .merge = acc_merge_array                                                   \
    }
#define SORTED_CLASS(parse_fn, finish_fn, which)                                                   \
    {                                                                                              \
        .state_size = sizeof(NState), .parse = (parse_fn), .add = which##_add,                     \
        .finish = (finish_fn), .done = n_done, .save = which##_save, .merge = which##_merge        \
    }

const AccClass ACC_FIRST_N = N_CLASS(first_n_add);
const AccClass ACC_LAST_N = N_CLASS(last_n_add);
const AccClass ACC_MIN_N = N_CLASS(min_n_add);
const AccClass ACC_MAX_N = N_CLASS(max_n_add);
const AccClass ACC_TOP = SORTED_CLASS(parse_one_sorted, one_finish, top);
const AccClass ACC_TOP_N = SORTED_CLASS(parse_n_sorted, n_finish, top);
const AccClass ACC_BOTTOM = SORTED_CLASS(parse_one_sorted, one_finish, bottom);
const AccClass ACC_BOTTOM_N = SORTED_CLASS(parse_n_sorted, n_finish_reversed, bottom);
