/*
 * accumulators.c - accumulators of one expression: sums, extremes, first and last, lists.
 */
#include <math.h>

#include "base/alloc.h"
#include "query/agg/accumulator.h"
#include "query/expr/number_sum.h"
#include "query/expr/value_set.h"

typedef struct AccRow {
    Str name;
    const AccClass *class; /* NULL: refused */
} AccRow;

static const AccRow ROWS[] = {
#define ACCUMULATOR(name, class)  {STR(name), &class},
#define ACCUMULATOR_REFUSED(name) {STR(name), NULL},
#include "query/agg/accumulators.def"
#undef ACCUMULATOR
#undef ACCUMULATOR_REFUSED
};

ErrCode acc_parse(Str field, Elem op, const ExprParseContext *ctx, Arena *arena, Acc *ret_acc,
                  Error *err) {
    const AccRow *row = NULL;
    for (size_t i = 0; i < ARRAY_LEN(ROWS) && row == NULL; i++)
        if (elem_name_is(op, ROWS[i].name))
            row = &ROWS[i];
    if (row == NULL)
        return error_set(err, (ErrCode)15952, "unknown group operator '%s'", elem_name(op));
    if (row->class == NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED, "accumulator %s is not supported yet",
                         elem_name(op));
    *ret_acc = (Acc){.class = row->class, .field = field, .source = op};
    if (row->class->parse != NULL)
        return row->class->parse(op, ctx, arena, ret_acc, err);
    if (elem_type(op) == BT_ARRAY)
        return error_set(err, (ErrCode)40237, "The %s accumulator is a unary operator",
                         elem_name(op));
    return expr_parse(op, ctx, arena, &ret_acc->input, err);
}

ErrCode acc_check_partial(const Acc *acc, Value partial, BsonType type, Error *err) {
    if (partial.type == type)
        return ERR_OK;
    return error_set(err, ERR_BAD_VALUE, "a partial result of %s must be of type %s, not %s",
                     elem_name(acc->source), bson_type_name(type), bson_type_name(partial.type));
}

ErrCode acc_merge_array(void *state, const Acc *acc, Value partial, AccContext *ctx, Error *err) {
    TRY(acc_check_partial(acc, partial, BT_ARRAY, err));
    DocIter iter = doc_iter(value_as_doc(partial));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        TRY(acc->class->add(state, acc, value_from_elem(elem), ctx, err));
    return ERR_OK;
}

void acc_to_bson(const Acc *acc, DocBuilder *b) {
    bool is_plain = acc->class->parse == NULL && acc->input != NULL;
    if (is_plain)
        expr_to_bson(acc->input, elem_name_str(acc->source), b);
    else
        build_elem(b, acc->source);
}

void kept_value_set(KeptValue *kept, Value value, size_t *bytes) {
    kept->is_set = true;
    kept->value = value;
    if (value_is_missing(value) || value_type_is_inline(value.type))
        return;
    uint32_t size = value_bytes_size(&value);
    if (size > kept->capacity) {
        *bytes += size - kept->capacity;
        xfree(kept->memory);
        kept->memory = xmalloc(size);
        kept->capacity = size;
    }
    if (size > 0)
        memcpy(kept->memory, value.bytes, size);
    kept->value.bytes = kept->memory;
}

void kept_value_done(KeptValue *kept) {
    xfree(kept->memory);
    kept->memory = NULL;
}

/* ---- $sum, $avg, $count ---- */

static void sum_init(void *state) {
    number_sum_init(state);
}

static ErrCode sum_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)ctx;
    (void)err;
    if (value.type == BT_INT32)
        number_sum_add_i32(state, value.i32);
    else if (value.type == BT_DOUBLE)
        number_sum_add_f64(state, value.f64);
    else if (value_is_number(value))
        number_sum_add(state, value_as_number(value));
    return ERR_OK;
}

static ErrCode sum_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)err;
    *ret = value_number(number_sum_total(state), arena);
    return ERR_OK;
}

static ErrCode avg_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)err;
    *ret = number_sum_average(state, arena);
    return ERR_OK;
}

static ErrCode sum_save(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)err;
    DocBuilder b = doc_builder_in_arena(arena);
    number_sum_save(state, &b);
    *ret = value_doc(doc_builder_end(&b));
    return ERR_OK;
}

static ErrCode sum_merge(void *state, const Acc *acc, Value partial, AccContext *ctx, Error *err) {
    (void)ctx;
    TRY(acc_check_partial(acc, partial, BT_DOC, err));
    return number_sum_merge(state, value_as_doc(partial), err);
}

/* {$count: {}} is {$sum: 1}. */
static ErrCode count_parse(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                           Error *err) {
    static const uint8_t ONE[] = {BT_INT32, 0, 1, 0, 0, 0};
    if (elem_type(operand) != BT_DOC || !doc_is_empty(elem_doc(operand)))
        return error_set(err, ERR_TYPE_MISMATCH, "$count takes no arguments, i.e. $count:{}");
    return expr_parse((Elem){ONE, 0}, ctx, arena, &acc->input, err);
}

#define SUM_CLASS(parse_fn, finish_fn)                                                             \
    {                                                                                              \
        .state_size = sizeof(NumberSum), .parse = (parse_fn), .init = sum_init, .add = sum_add,    \
        .finish = (finish_fn), .save = sum_save, .merge = sum_merge                                \
    }

const AccClass ACC_SUM = SUM_CLASS(NULL, sum_finish);
const AccClass ACC_AVG = SUM_CLASS(NULL, avg_finish);
const AccClass ACC_COUNT = SUM_CLASS(count_parse, sum_finish);

/* ---- $min, $max, $first, $last ---- */

static ErrCode min_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)err;
    KeptValue *kept = state;
    if (value_is_nullish(value))
        return ERR_OK;
    if (!kept->is_set || values_compare(value, kept->value, ctx->collator) < 0)
        kept_value_set(kept, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode max_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)err;
    KeptValue *kept = state;
    if (value_is_nullish(value))
        return ERR_OK;
    if (!kept->is_set || values_compare(value, kept->value, ctx->collator) > 0)
        kept_value_set(kept, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode first_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)err;
    KeptValue *kept = state;
    if (!kept->is_set)
        kept_value_set(kept, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode last_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)err;
    kept_value_set(state, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode kept_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)arena;
    (void)err;
    *ret = ((KeptValue *)state)->value;
    return ERR_OK;
}

static void kept_done(void *state) {
    kept_value_done(state);
}

const AccClass ACC_MIN = {
    .state_size = sizeof(KeptValue), .add = min_add, .finish = kept_finish, .done = kept_done};
const AccClass ACC_MAX = {
    .state_size = sizeof(KeptValue), .add = max_add, .finish = kept_finish, .done = kept_done};
const AccClass ACC_FIRST = {
    .state_size = sizeof(KeptValue), .add = first_add, .finish = kept_finish, .done = kept_done};
const AccClass ACC_LAST = {
    .state_size = sizeof(KeptValue), .add = last_add, .finish = kept_finish, .done = kept_done};

/* ---- $push ---- */

typedef struct PushState {
    Buffer buf;
    uint32_t count;
} PushState;

static void push_init(void *state) {
    PushState *push = state;
    buffer_init(&push->buf, VALUE_SIZE_MAX);
}

static ErrCode push_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    PushState *push = state;
    if (value_is_missing(value))
        return ERR_OK;
    size_t capacity_before = push->buf.capacity;
    DocBuilder b = {&push->buf, 0};
    if (push->count == 0)
        doc_builder_init(&b, &push->buf);
    char name[INDEX_NAME_SIZE];
    build_value_as(&b, index_name(push->count++, name), value);
    *ctx->bytes += push->buf.capacity - capacity_before;
    if (UNLIKELY(push->buf.overflowed))
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "$push would make an array of more than %d bytes, which cannot be kept on "
                         "disk in parts",
                         VALUE_SIZE_MAX);
    return ERR_OK;
}

static ErrCode push_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)arena;
    PushState *push = state;
    if (push->count == 0) {
        *ret = value_array(DOC_EMPTY);
        return ERR_OK;
    }
    DocBuilder b = {&push->buf, 0};
    Doc array;
    TRY(doc_builder_finish(&b, "$push result", &array, err));
    *ret = value_array(array);
    push->buf.size--; /* a window goes on to add behind the last element */
    return ERR_OK;
}

static void push_done(void *state) {
    buffer_done(&((PushState *)state)->buf);
}

const AccClass ACC_PUSH = {.state_size = sizeof(PushState),
                           .init = push_init,
                           .add = push_add,
                           .finish = push_finish,
                           .done = push_done,
                           .merge = acc_merge_array};

/* ---- $addToSet ---- */

typedef struct SetState {
    Arena arena;
    ValueSet set;
} SetState;

enum {
    SET_CHUNK_SIZE = 1024, /* many groups have small sets */
};

static void set_init(void *state) {
    SetState *s = state;
    arena_init(&s->arena, SET_CHUNK_SIZE);
}

static ErrCode set_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)err;
    SetState *s = state;
    if (value_is_missing(value))
        return ERR_OK;
    if (s->set.arena == NULL)
        value_set_init(&s->set, &s->arena, ctx->collator);
    size_t used_before = arena_used(&s->arena);
    value_set_add(&s->set, value, /* is_copied= */ true);
    *ctx->bytes += arena_used(&s->arena) - used_before;
    return ERR_OK;
}

static ErrCode set_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    const ValueSet *set = &((SetState *)state)->set;
    ArrayBuilder array;
    array_builder_init(&array, arena);
    for (uint32_t i = 0; i < set->count; i++)
        array_builder_add(&array, set->values[i]);
    return array_builder_end(&array, ret, err);
}

static void set_done(void *state) {
    arena_done(&((SetState *)state)->arena);
}

const AccClass ACC_ADD_TO_SET = {.state_size = sizeof(SetState),
                                 .init = set_init,
                                 .add = set_add,
                                 .finish = set_finish,
                                 .done = set_done,
                                 .merge = acc_merge_array};

/* ---- $mergeObjects ---- */

static ErrCode merge_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    KeptValue *kept = state;
    if (value_is_nullish(value))
        return ERR_OK;
    if (value.type != BT_DOC)
        return error_set(err, (ErrCode)40400,
                         "$mergeObjects requires object inputs, but input %s is of type %s",
                         value_to_text(value, ctx->eval->scratch), bson_type_name(value.type));
    if (kept->is_set) {
        Doc merged;
        TRY(doc_merge(value_as_doc(kept->value), value_as_doc(value), ctx->eval->scratch, &merged,
                      err));
        value = value_doc(merged);
    }
    kept_value_set(kept, value, ctx->bytes);
    return ERR_OK;
}

static ErrCode merge_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)arena;
    (void)err;
    const KeptValue *kept = state;
    *ret = kept->is_set ? kept->value : value_doc(DOC_EMPTY);
    return ERR_OK;
}

const AccClass ACC_MERGE_OBJECTS = {
    .state_size = sizeof(KeptValue), .add = merge_add, .finish = merge_finish, .done = kept_done};

/* ---- $stdDevPop, $stdDevSamp ---- */

static ErrCode std_dev_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)ctx;
    (void)err;
    if (value_is_number(value))
        deviation_add(state, number_to_f64(value_as_number(value)));
    return ERR_OK;
}

static ErrCode std_dev_pop_finish(void *state, const Acc *acc, Arena *arena, Value *ret,
                                  Error *err) {
    (void)acc;
    (void)arena;
    (void)err;
    *ret = deviation_result(state, /* is_sample= */ false);
    return ERR_OK;
}

static ErrCode std_dev_samp_finish(void *state, const Acc *acc, Arena *arena, Value *ret,
                                   Error *err) {
    (void)acc;
    (void)arena;
    (void)err;
    *ret = deviation_result(state, /* is_sample= */ true);
    return ERR_OK;
}

/* {n: count, mean, m2: sum of the squared differences from it} */
static ErrCode std_dev_save(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    (void)err;
    const Deviation *deviation = state;
    DocBuilder b = doc_builder_in_arena(arena);
    build_i64(&b, "n", (int64_t)deviation->count);
    build_f64(&b, "mean", deviation->mean);
    build_f64(&b, "m2", deviation->squares);
    *ret = value_doc(doc_builder_end(&b));
    return ERR_OK;
}

static ErrCode std_dev_merge(void *state, const Acc *acc, Value partial, AccContext *ctx,
                             Error *err) {
    (void)ctx;
    TRY(acc_check_partial(acc, partial, BT_DOC, err));
    Elem count = doc_get_lit(value_as_doc(partial), "n");
    Elem mean = doc_get_lit(value_as_doc(partial), "mean");
    Elem squares = doc_get_lit(value_as_doc(partial), "m2");
    if (elem_type(count) != BT_INT64 || elem_type(mean) != BT_DOUBLE ||
        elem_type(squares) != BT_DOUBLE)
        return error_set(err, ERR_BAD_VALUE, "not a partial result of %s", elem_name(acc->source));
    Deviation other = {(uint64_t)elem_i64(count), elem_as_f64(mean), elem_as_f64(squares)};
    deviation_merge(state, &other);
    return ERR_OK;
}

#define STD_DEV_CLASS(finish_fn)                                                                   \
    {                                                                                              \
        .state_size = sizeof(Deviation), .add = std_dev_add, .finish = (finish_fn),                \
        .save = std_dev_save, .merge = std_dev_merge                                               \
    }

const AccClass ACC_STD_DEV_POP = STD_DEV_CLASS(std_dev_pop_finish);
const AccClass ACC_STD_DEV_SAMP = STD_DEV_CLASS(std_dev_samp_finish);
