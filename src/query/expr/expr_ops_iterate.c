/*
 * expr_ops_iterate.c - operators that evaluate an expression per element, and $let: they bind
 * variables.
 */
#include <stdlib.h>

#include "query/expr/expr_internal.h"
#include "query/sort/sort_pattern.h"

typedef struct ArraySort { /* of $sortArray */
    SortPattern *pattern;  /* NULL: elements as a whole */
    int direction;
} ArraySort;

typedef struct SortItem {
    Value value;
    Str key; /* with a pattern */
    uint32_t index;
    int direction;
    const Collator *collator;
} SortItem;

static void rewind_keeping(Value *value, uint32_t size, const ExprLoop *loop, ExprEvalContext *ctx);
static ErrCode parse_as(Elem as, Str *ret_name, Error *err);
static ErrCode eval_filter_limit(const Expr *expr, ExprEvalContext *ctx, int64_t *ret, Error *err);
static int compare_items(const void *a, const void *b);

/* Arguments of $map and $filter: input, body, and for $filter the limit. */
ErrCode parse_map(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"input", 16880}, {"as", 0}, {"in", 16882}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 16878, 16879};
    Elem elems[ARRAY_LEN(ARGS)];
    TRY(expr_find_named(expr->op, operand, &SPEC, elems, err));
    expr_alloc_args(p, expr, 2);
    ExprScope scope = {.outer = p->scope};
    TRY(parse_as(elems[1], &scope.name, err));
    TRY(expr_parse_any(p, elems[0], &expr->args[0], err));
    p->scope = &scope;
    TRY(expr_parse_any(p, elems[2], &expr->args[1], err));
    p->scope = scope.outer;
    return ERR_OK;
}

ErrCode eval_map(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    if (value_is_nullish(input))
        return expr_null(ret);
    if (input.type != BT_ARRAY)
        return error_set(err, (ErrCode)16883, "input to $map must be an array not %s",
                         value_type_name(input));
    ExprLoop loop = expr_loop_begin(ctx);
    ArrayBuilder mapped;
    array_builder_init(&mapped, ctx->scratch);
    ExprBinding binding = {.outer = ctx->bindings};
    DocIter iter = doc_iter(value_as_doc(input));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        TRY(expr_step(ctx, err));
        binding.value = value_from_elem(elem);
        ctx->bindings = &binding;
        Value value;
        TRY(expr_eval_arg(expr, 1, ctx, &value, err));
        array_builder_add(&mapped, value);
        expr_loop_turn(&loop, ctx, &mapped);
    }
    ctx->bindings = binding.outer;
    return array_builder_end(&mapped, ret, err);
}

ErrCode parse_filter(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"input", 28648}, {"as", 0}, {"cond", 28650}, {"limit", 0}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 28646, 28647};
    Elem elems[ARRAY_LEN(ARGS)];
    TRY(expr_find_named(expr->op, operand, &SPEC, elems, err));
    expr_alloc_args(p, expr, 3);
    ExprScope scope = {.outer = p->scope};
    TRY(parse_as(elems[1], &scope.name, err));
    TRY(expr_parse_any(p, elems[0], &expr->args[0], err));
    if (elem_is_present(elems[3]))
        TRY(expr_parse_any(p, elems[3], &expr->args[2], err));
    p->scope = &scope;
    TRY(expr_parse_any(p, elems[2], &expr->args[1], err));
    p->scope = scope.outer;
    return ERR_OK;
}

ErrCode eval_filter(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    if (value_is_nullish(input))
        return expr_null(ret);
    if (input.type != BT_ARRAY)
        return error_set(err, (ErrCode)28651, "input to $filter must be an array not %s",
                         value_type_name(input));
    int64_t limit;
    TRY(eval_filter_limit(expr, ctx, &limit, err));
    ExprLoop loop = expr_loop_begin(ctx);
    ArrayBuilder kept;
    array_builder_init(&kept, ctx->scratch);
    ExprBinding binding = {.outer = ctx->bindings};
    DocIter iter = doc_iter(value_as_doc(input));
    for (Elem elem; kept.count < limit && doc_iter_next(&iter, &elem);) {
        TRY(expr_step(ctx, err));
        binding.value = value_from_elem(elem);
        ctx->bindings = &binding;
        Value verdict;
        TRY(expr_eval_arg(expr, 1, ctx, &verdict, err));
        if (value_is_truthy(verdict))
            array_builder_add(&kept, binding.value);
        expr_loop_turn(&loop, ctx, &kept);
    }
    ctx->bindings = binding.outer;
    return array_builder_end(&kept, ret, err);
}

/* Arguments: input, initialValue, in. */
ErrCode parse_reduce(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"input", 40077}, {"initialValue", 40078}, {"in", 40079}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 40075, 40076};
    Elem elems[ARRAY_LEN(ARGS)];
    TRY(expr_find_named(expr->op, operand, &SPEC, elems, err));
    expr_alloc_args(p, expr, 3);
    TRY(expr_parse_any(p, elems[0], &expr->args[0], err));
    TRY(expr_parse_any(p, elems[1], &expr->args[1], err));
    ExprScope this_scope = {STR("this"), p->scope};
    ExprScope value_scope = {STR("value"), &this_scope};
    p->scope = &value_scope;
    TRY(expr_parse_any(p, elems[2], &expr->args[2], err));
    p->scope = this_scope.outer;
    return ERR_OK;
}

ErrCode eval_reduce(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    if (value_is_nullish(input))
        return expr_null(ret);
    if (input.type != BT_ARRAY)
        return error_set(err, (ErrCode)40080,
                         "$reduce requires that 'input' be an array, found: %s",
                         value_to_text(input, ctx->scratch));
    ExprBinding this_binding = {.outer = ctx->bindings};
    ExprBinding value_binding = {.outer = &this_binding};
    TRY(expr_eval_arg(expr, 1, ctx, &value_binding.value, err));
    ExprLoop loop = expr_loop_begin(ctx);
    DocIter iter = doc_iter(value_as_doc(input));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        TRY(expr_step(ctx, err));
        this_binding.value = value_from_elem(elem);
        ctx->bindings = &value_binding;
        Value value;
        TRY(expr_eval_arg(expr, 2, ctx, &value, err));
        uint32_t size = value_type_is_inline(value.type) ? 0 : value_bytes_size(&value);
        if (UNLIKELY(expr_loop_is_full(&loop, ctx, size)))
            rewind_keeping(&value, size, &loop, ctx);
        value_binding.value = value;
    }
    ctx->bindings = this_binding.outer;
    *ret = value_binding.value;
    return ERR_OK;
}

static void rewind_keeping(Value *value, uint32_t size, const ExprLoop *loop,
                           ExprEvalContext *ctx) {
    if (size == 0)
        arena_rewind(ctx->scratch, loop->start);
    else
        value->bytes = arena_rewind_keeping(ctx->scratch, loop->start, value->bytes, size, size);
}

/* Arguments: the variables' values, then the body. */
ErrCode parse_let(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"vars", 16876}, {"in", 16877}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 16874, 16875};
    Elem elems[ARRAY_LEN(ARGS)];
    TRY(expr_find_named(expr->op, operand, &SPEC, elems, err));
    if (elem_type(elems[0]) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "invalid parameter: expected an object (vars)");
    uint32_t count = doc_count(elem_doc(elems[0]));
    expr_alloc_args(p, expr, count + 1);
    ExprScope *scopes = ARENA_ARRAY(p->arena, ExprScope, count);
    const ExprScope *outer = p->scope;
    DocIter iter = doc_iter(elem_doc(elems[0]));
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        TRY(expr_check_variable_name(elem_name_str(elem), err));
        TRY(expr_parse_any(p, elem, &expr->args[i], err)); /* does not see the other variables */
        scopes[i] = (ExprScope){elem_name_str(elem), i == 0 ? outer : &scopes[i - 1]};
    }
    if (count > 0)
        p->scope = &scopes[count - 1];
    TRY(expr_parse_any(p, elems[1], &expr->args[count], err));
    p->scope = outer;
    return ERR_OK;
}

ErrCode eval_let(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    uint32_t count = expr->arg_count - 1;
    if (count == 0)
        return expr_eval_arg(expr, 0, ctx, ret, err);
    ExprBinding *bindings = ARENA_ARRAY(ctx->scratch, ExprBinding, count);
    const ExprBinding *outer = ctx->bindings;
    for (uint32_t i = 0; i < count; i++) {
        TRY(expr_eval_arg(expr, i, ctx, &bindings[i].value, err));
        bindings[i].outer = i == 0 ? outer : &bindings[i - 1];
    }
    ctx->bindings = &bindings[count - 1];
    TRY(expr_eval_arg(expr, count, ctx, ret, err));
    ctx->bindings = outer;
    return ERR_OK;
}

/* Arguments: input arrays, then default values; `data` is a ZipShape. */
typedef struct ZipShape {
    uint32_t input_count;
    uint32_t default_count;
    bool is_longest;
} ZipShape;

ErrCode parse_zip(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        {"inputs", 34465}, {"defaults", 0}, {"useLongestLength", 0}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 34460, 34464};
    Elem elems[ARRAY_LEN(ARGS)];
    TRY(expr_find_named(expr->op, operand, &SPEC, elems, err));
    if (elem_type(elems[0]) != BT_ARRAY)
        return error_set(err, (ErrCode)34461, "inputs must be an array of expressions, found %s",
                         bson_type_name(elem_type(elems[0])));
    bool has_defaults = elem_is_present(elems[1]);
    if (has_defaults && elem_type(elems[1]) != BT_ARRAY)
        return error_set(err, (ErrCode)34462, "defaults must be an array of expressions, found %s",
                         bson_type_name(elem_type(elems[1])));
    if (elem_is_present(elems[2]) && elem_type(elems[2]) != BT_BOOL)
        return error_set(err, (ErrCode)34463, "useLongestLength must be a bool, found %s",
                         bson_type_name(elem_type(elems[2])));
    ZipShape *shape = ARENA_NEW(p->arena, ZipShape);
    shape->input_count = doc_count(elem_doc(elems[0]));
    shape->default_count = has_defaults ? doc_count(elem_doc(elems[1])) : 0;
    shape->is_longest = elem_is_present(elems[2]) && elem_bool(elems[2]);
    expr->data = shape;
    if (shape->input_count == 0)
        return error_set(err, (ErrCode)34465, "at least one input array must be specified");
    if (has_defaults && !shape->is_longest)
        return error_set(err, (ErrCode)34466,
                         "cannot specify defaults unless useLongestLength is true");
    if (has_defaults && shape->default_count != shape->input_count)
        return error_set(err, (ErrCode)34467, "defaults and inputs must have the same length");
    expr_alloc_args(p, expr, shape->input_count + shape->default_count);
    uint32_t index = 0;
    for (uint32_t list = 0; list < 1 + (uint32_t)has_defaults; list++) {
        DocIter iter = doc_iter(elem_doc(elems[list]));
        for (Elem elem; doc_iter_next(&iter, &elem);)
            TRY(expr_parse_any(p, elem, &expr->args[index++], err));
    }
    return ERR_OK;
}

ErrCode eval_zip(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    const ZipShape *shape = expr->data;
    uint32_t count = shape->input_count;
    DocIter *iters = ARENA_ARRAY(ctx->scratch, DocIter, count);
    Value *defaults = ARENA_ARRAY(ctx->scratch, Value, count);
    uint32_t length = shape->is_longest ? 0 : UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        Value array;
        TRY(expr_eval_arg(expr, i, ctx, &array, err));
        if (value_is_nullish(array))
            return expr_null(ret);
        if (array.type != BT_ARRAY)
            return error_set(err, (ErrCode)34468, "$zip found a non-array expression in input: %s",
                             value_to_text(array, ctx->scratch));
        uint32_t size = doc_count(value_as_doc(array));
        length = shape->is_longest == (size > length) ? size : length;
        iters[i] = doc_iter(value_as_doc(array));
        if (shape->default_count > 0)
            TRY(expr_eval_arg(expr, count + i, ctx, &defaults[i], err));
    }
    ExprLoop loop = expr_loop_begin(ctx);
    ArrayBuilder zipped;
    array_builder_init(&zipped, ctx->scratch);
    for (uint32_t row = 0; row < length; row++) {
        TRY(expr_step(ctx, err));
        ArrayBuilder tuple;
        array_builder_init(&tuple, ctx->scratch);
        for (uint32_t i = 0; i < count; i++) {
            Elem elem;
            bool has_elem = doc_iter_next(&iters[i], &elem);
            array_builder_add(&tuple, has_elem ? value_from_elem(elem) : defaults[i]);
        }
        Value value;
        TRY(array_builder_end(&tuple, &value, err));
        array_builder_add(&zipped, value);
        expr_loop_turn(&loop, ctx, &zipped);
    }
    return array_builder_end(&zipped, ret, err);
}

/* One argument, the input; `data` is an ArraySort. */
ErrCode parse_sort_array(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"input", 2942502}, {"sortBy", 2942503}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 2942500, 2942501};
    Elem elems[ARRAY_LEN(ARGS)];
    TRY(expr_find_named(expr->op, operand, &SPEC, elems, err));
    ArraySort *sort = ARENA_NEW(p->arena, ArraySort);
    expr->data = sort;
    if (elem_type(elems[1]) == BT_DOC) {
        TRY(sort_pattern_parse(elem_doc(elems[1]), SORT_SYNTAX_STAGE, p->arena, &sort->pattern,
                               err));
        sort->direction = 1;
    } else {
        double direction = elem_is_number(elems[1]) ? elem_as_f64(elems[1]) : 0;
        if (direction != 1 && direction != -1)
            return error_set(err, (ErrCode)2942507,
                             "$sortArray sort key must be 1, -1 or a sort pattern");
        sort->direction = (int)direction;
    }
    expr_alloc_args(p, expr, 1);
    return expr_parse_any(p, elems[0], &expr->args[0], err);
}

ErrCode eval_sort_array(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    const ArraySort *sort = expr->data;
    Value input;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    if (value_is_nullish(input))
        return expr_null(ret);
    if (input.type != BT_ARRAY)
        return error_set(err, (ErrCode)2942504,
                         "The input argument to $sortArray must be an array, but was of type: %s",
                         value_type_name(input));
    uint32_t count = doc_count(value_as_doc(input));
    if (count < 2) {
        *ret = input;
        return ERR_OK;
    }
    SortItem *items = ARENA_ARRAY(ctx->scratch, SortItem, count);
    DocIter iter = doc_iter(value_as_doc(input));
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        TRY(expr_step(ctx, err));
        items[i] = (SortItem){.value = value_from_elem(elem),
                              .index = i,
                              .direction = sort->direction,
                              .collator = ctx->collator};
        if (sort->pattern != NULL) {
            KeyBuilder key;
            key_builder_init_arena(&key, ctx->scratch);
            bool is_doc = elem_type(elem) == BT_DOC;
            TRY(sort_key_make(sort->pattern, is_doc ? elem_doc(elem) : DOC_EMPTY, ctx->collator,
                              &key, err));
            items[i].key = (Str){(const char *)key.key.data, key.key.size};
        }
    }
    qsort(items, count, sizeof(*items), compare_items);
    ArrayBuilder sorted;
    array_builder_init(&sorted, ctx->scratch);
    for (uint32_t i = 0; i < count; i++)
        array_builder_add(&sorted, items[i].value);
    return array_builder_end(&sorted, ret, err);
}

static ErrCode parse_as(Elem as, Str *ret_name, Error *err) {
    if (!elem_is_present(as)) {
        *ret_name = STR("this");
        return ERR_OK;
    }
    *ret_name = elem_type(as) == BT_STRING ? elem_str(as) : STR("");
    return expr_check_variable_name(*ret_name, err);
}

static ErrCode eval_filter_limit(const Expr *expr, ExprEvalContext *ctx, int64_t *ret, Error *err) {
    *ret = INT64_MAX;
    if (expr->args[2] == NULL)
        return ERR_OK;
    Value value;
    int32_t limit;
    TRY(expr_eval_arg(expr, 2, ctx, &value, err));
    if (value_is_nullish(value))
        return ERR_OK;
    if (!value_as_exact_i32(value, &limit))
        return error_set(err, (ErrCode)327391,
                         "$filter: limit must be represented as a 32-bit integral value: %s",
                         value_to_text(value, ctx->scratch));
    if (limit < 1)
        return error_set(err, (ErrCode)327392, "$filter: limit must be greater than 0: %d", limit);
    *ret = limit;
    return ERR_OK;
}

static int compare_items(const void *a_void, const void *b_void) {
    const SortItem *a = a_void;
    const SortItem *b = b_void;
    int order;
    if (a->key.data != NULL) {
        size_t common = a->key.size < b->key.size ? a->key.size : b->key.size;
        order = memcmp(a->key.data, b->key.data, common);
        order = order != 0 ? order : (a->key.size > b->key.size) - (a->key.size < b->key.size);
    } else {
        order = a->direction * values_compare(a->value, b->value, a->collator);
    }
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}
