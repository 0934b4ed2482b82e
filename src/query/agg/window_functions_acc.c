/*
 * window_functions_acc.c - accumulators as window functions.
 *
 * A window that begins with the partition only grows: the accumulator's own state serves. For one
 * that moves, sums and extremes let go of what leaves; first, last and lists look at the documents
 * in the window; the rest accumulates anew per document.
 */
#include <math.h>

#include "base/alloc.h"
#include "query/agg/window.h"
#include "query/expr/number_sum.h"

typedef struct WindowRow {
    Str name;
    WindowParseFn *parse;
} WindowRow;

static const WindowRow ROWS[] = {
#define WINDOW_FUNCTION(name, parse) {STR(name), parse},
#include "query/agg/window_functions.def"
#undef WINDOW_FUNCTION
};

ErrCode window_fn_parse(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        if (elem_name_is(op, ROWS[i].name)) {
            fn->source = op;
            return ROWS[i].parse(wp, op, fn, err);
        }
    }
    return error_set(err, ERR_FAILED_TO_PARSE, "Unrecognized window function, %s", elem_name(op));
}

void *window_ring_push(WindowRing *ring, size_t item_size, size_t *bytes) {
    ring->item_size = item_size;
    if (ring->count == ring->capacity) {
        size_t capacity = ring->capacity == 0 ? 16 : ring->capacity * 2;
        uint8_t *items = xmalloc(capacity * item_size);
        for (size_t i = 0; i < ring->count; i++)
            memcpy(items + i * item_size, window_ring_at(ring, i), item_size);
        *bytes += (capacity - ring->capacity) * item_size;
        xfree(ring->items);
        ring->items = items;
        ring->capacity = capacity;
        ring->head = 0;
    }
    void *item = ring->items + ((ring->head + ring->count++) % ring->capacity) * item_size;
    memset(item, 0, item_size);
    return item;
}

void window_ring_done(WindowRing *ring) {
    xfree(ring->items);
    *ring = (WindowRing){0};
}

/* ---- any accumulator, by its own state ---- */

/* A state is made with the accumulator's functions, so it begins with its class; the state itself
 * has memory of its own, as sizes differ. */
typedef struct AccState {
    const Acc *acc;
    void *state;
} AccState;

static ErrCode acc_add(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                       Error *err) {
    AccState *s = state;
    if (s->state == NULL) {
        s->acc = &fn->acc;
        s->state = xcalloc(1, fn->acc.class->state_size);
        if (fn->acc.class->init != NULL)
            fn->acc.class->init(s->state);
    }
    Value value;
    TRY(window_eval(p, fn->acc.input, index, &value, err));
    return fn->acc.class->add(s->state, &fn->acc, value, &p->acc_ctx, err);
}

static ErrCode acc_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                          int64_t high, int64_t at, Value *ret, Error *err) {
    (void)low, (void)high, (void)at;
    AccState *s = state;
    if (s->state != NULL) {
        TRY(fn->acc.class->finish(s->state, &fn->acc, &p->base->scratch, ret, err));
        if (value_is_missing(*ret)) /* as in $group */
            *ret = VALUE_NULL;
        return ERR_OK;
    }
    /* An empty window. */
    void *empty = arena_zalloc(&p->base->scratch, fn->acc.class->state_size + ACC_STATE_ALIGN);
    empty = (void *)(((uintptr_t)empty + ACC_STATE_ALIGN - 1) & ~(uintptr_t)(ACC_STATE_ALIGN - 1));
    if (fn->acc.class->init != NULL)
        fn->acc.class->init(empty);
    ErrCode rc = fn->acc.class->finish(empty, &fn->acc, &p->base->scratch, ret, err);
    if (rc == ERR_OK)
        *ret = value_copy(*ret, &p->base->scratch);
    if (fn->acc.class->done != NULL)
        fn->acc.class->done(empty);
    return rc;
}

static void acc_done(void *state) {
    AccState *s = state;
    if (s->state == NULL)
        return;
    if (s->acc->class->done != NULL)
        s->acc->class->done(s->state);
    xfree(s->state);
    s->state = NULL;
}

static const WindowClass WINDOW_ACC = {
    .state_size = sizeof(AccState), .done = acc_done, .add = acc_add, .result = acc_result};

/* ---- $sum, $avg of a window that moves ---- */

/* The sum of what is in the window, with how many of each kind there are: that tells the type, and
 * what infinities and NaN would leave behind. Values are kept to be taken away again. */
typedef struct MovingSum {
    WindowRing values; /* Number; type BT_EOO for what is no number */
    __int128 integers;
    NumberSum doubles;
    Decimal128 decimals;
    int64_t int_count;
    int64_t long_count;
    int64_t double_count;
    int64_t decimal_count;
    int64_t odd_count[3]; /* doubles: +infinity, -infinity, NaN */
    int64_t odd_decimal_count;
} MovingSum;

static int odd_kind(double value) {
    return isnan(value) ? 2 : value > 0 ? 0 : 1;
}

static void moving_sum_change(MovingSum *s, Number number, int sign) {
    switch (number.type) {
    case BT_INT32:
        s->integers += sign * (__int128)number.i32;
        s->int_count += sign;
        break;
    case BT_INT64:
        s->integers += sign * (__int128)number.i64;
        s->long_count += sign;
        break;
    case BT_DOUBLE:
        s->double_count += sign;
        if (!isfinite(number.f64))
            s->odd_count[odd_kind(number.f64)] += sign;
        else
            number_sum_add(&s->doubles, number_f64(sign * number.f64));
        break;
    case BT_DECIMAL:
        s->decimal_count += sign;
        if (!isfinite(number_to_f64(number)))
            s->odd_decimal_count += sign;
        else
            s->decimals =
                sign > 0 ? dec_add(s->decimals, number.dec) : dec_subtract(s->decimals, number.dec);
        break;
    default:
        break;
    }
    /* Rounding errors do not outlive what caused them. */
    if (s->double_count == 0)
        number_sum_init(&s->doubles);
    if (s->decimal_count == 0)
        s->decimals = DECIMAL128_ZERO;
}

static ErrCode moving_sum_add(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                              Error *err) {
    MovingSum *s = state;
    Value value;
    TRY(window_eval(p, fn->acc.input, index, &value, err));
    Number *kept = window_ring_push(&s->values, sizeof(Number), &p->state_bytes);
    if (value_is_number(value)) {
        *kept = value_as_number(value);
        moving_sum_change(s, *kept, 1);
    }
    return ERR_OK;
}

static ErrCode moving_sum_remove(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                                 Error *err) {
    (void)fn, (void)p, (void)index, (void)err;
    MovingSum *s = state;
    moving_sum_change(s, *(Number *)window_ring_at(&s->values, 0), -1);
    window_ring_pop_front(&s->values);
    return ERR_OK;
}

/* The sum of all, as the widest type has it. */
static NumberSum moving_sum_total(const MovingSum *s) {
    NumberSum total = s->doubles;
    total.integers += s->integers;
    total.decimals = s->decimals;
    total.count = (uint64_t)(s->int_count + s->long_count + s->double_count + s->decimal_count);
    total.widest = s->decimal_count > 0  ? BT_DECIMAL
                   : s->double_count > 0 ? BT_DOUBLE
                   : s->long_count > 0   ? BT_INT64
                                         : BT_INT32;
    static const double ODD[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        if (s->odd_count[i] > 0) {
            number_sum_add(&total, number_f64(ODD[i]));
            total.count--;
        }
    }
    return total;
}

/* Decimals that are not finite are rare: then all is added up again. */
static NumberSum moving_sum_again(const MovingSum *s) {
    NumberSum total;
    number_sum_init(&total);
    for (size_t i = 0; i < s->values.count; i++) {
        const Number *number = window_ring_at(&s->values, i);
        if (number->type != BT_EOO)
            number_sum_add(&total, *number);
    }
    return total;
}

static ErrCode moving_sum_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                                 int64_t high, int64_t at, Value *ret, Error *err) {
    (void)low, (void)high, (void)at, (void)err;
    const MovingSum *s = state;
    NumberSum total = s->odd_decimal_count > 0 ? moving_sum_again(s) : moving_sum_total(s);
    if (fn->acc.class == &ACC_AVG)
        *ret = number_sum_average(&total, &p->base->scratch);
    else
        *ret = value_number(number_sum_total(&total), &p->base->scratch);
    return ERR_OK;
}

static void moving_sum_init(void *state) {
    MovingSum *s = state;
    number_sum_init(&s->doubles);
    s->decimals = DECIMAL128_ZERO;
}

static void moving_sum_done(void *state) {
    window_ring_done(&((MovingSum *)state)->values);
}

static const WindowClass WINDOW_SUM = {.state_size = sizeof(MovingSum),
                                       .init = moving_sum_init,
                                       .done = moving_sum_done,
                                       .add = moving_sum_add,
                                       .remove = moving_sum_remove,
                                       .result = moving_sum_result};

/* ---- $count ---- */

static ErrCode count_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                            int64_t high, int64_t at, Value *ret, Error *err) {
    (void)state, (void)fn, (void)p, (void)at, (void)err;
    *ret = value_count(high - low);
    return ERR_OK;
}

static const WindowClass WINDOW_COUNT = {.result = count_result};

/* ---- $stdDevPop, $stdDevSamp of a window that moves ---- */

typedef struct MovingDeviation {
    WindowRing values; /* double; NaN for what is no number */
    Deviation deviation;
    int64_t odd_count; /* numbers that are not finite */
} MovingDeviation;

/* Welford's step backwards. */
static void deviation_remove(Deviation *d, double number) {
    if (--d->count == 0) {
        *d = (Deviation){0};
        return;
    }
    double delta = number - d->mean;
    d->mean -= delta / (double)d->count;
    d->squares -= delta * (number - d->mean);
    /* By rounding: never below 0, and a number does not differ from itself. */
    if (d->squares < 0 || d->count == 1)
        d->squares = 0;
}

typedef struct MovingNumber {
    double number;
    bool is_number;
} MovingNumber;

static ErrCode moving_deviation_add(void *state, const WindowFn *fn, WindowPartition *p,
                                    int64_t index, Error *err) {
    MovingDeviation *s = state;
    Value value;
    TRY(window_eval(p, fn->acc.input, index, &value, err));
    MovingNumber *kept = window_ring_push(&s->values, sizeof(*kept), &p->state_bytes);
    kept->is_number = value_is_number(value);
    if (!kept->is_number)
        return ERR_OK;
    kept->number = number_to_f64(value_as_number(value));
    if (isfinite(kept->number))
        deviation_add(&s->deviation, kept->number);
    else
        s->odd_count++;
    return ERR_OK;
}

static ErrCode moving_deviation_remove(void *state, const WindowFn *fn, WindowPartition *p,
                                       int64_t index, Error *err) {
    (void)fn, (void)p, (void)index, (void)err;
    MovingDeviation *s = state;
    const MovingNumber *kept = window_ring_at(&s->values, 0);
    if (kept->is_number && isfinite(kept->number))
        deviation_remove(&s->deviation, kept->number);
    else if (kept->is_number)
        s->odd_count--;
    window_ring_pop_front(&s->values);
    return ERR_OK;
}

static ErrCode moving_deviation_result(void *state, const WindowFn *fn, WindowPartition *p,
                                       int64_t low, int64_t high, int64_t at, Value *ret,
                                       Error *err) {
    (void)p, (void)low, (void)high, (void)at, (void)err;
    const MovingDeviation *s = state;
    bool is_sample = fn->acc.class == &ACC_STD_DEV_SAMP;
    *ret = s->odd_count > 0 ? VALUE_NULL : deviation_result(&s->deviation, is_sample);
    return ERR_OK;
}

static void moving_deviation_done(void *state) {
    window_ring_done(&((MovingDeviation *)state)->values);
}

static const WindowClass WINDOW_DEVIATION = {.state_size = sizeof(MovingDeviation),
                                             .done = moving_deviation_done,
                                             .add = moving_deviation_add,
                                             .remove = moving_deviation_remove,
                                             .result = moving_deviation_result};

/* ---- $min, $max of a window that moves ---- */

/* Only values that can still become the extreme are kept: each is beaten by none that came after
 * it, so the first is the extreme of all. */
typedef struct Candidate {
    int64_t index;
    KeptValue value;
} Candidate;

typedef struct MovingExtreme {
    WindowRing candidates;
    size_t *bytes;
} MovingExtreme;

static ErrCode moving_extreme_add(void *state, const WindowFn *fn, WindowPartition *p,
                                  int64_t index, Error *err) {
    MovingExtreme *s = state;
    Value value;
    TRY(window_eval(p, fn->acc.input, index, &value, err));
    if (value_is_nullish(value))
        return ERR_OK;
    int direction = fn->acc.class == &ACC_MIN ? 1 : -1;
    while (s->candidates.count > 0) {
        Candidate *last = window_ring_at(&s->candidates, s->candidates.count - 1);
        if (direction * values_compare(last->value.value, value, p->acc_ctx.collator) <= 0)
            break;
        p->state_bytes -= last->value.capacity;
        kept_value_done(&last->value);
        window_ring_pop_back(&s->candidates);
    }
    Candidate *candidate = window_ring_push(&s->candidates, sizeof(*candidate), &p->state_bytes);
    candidate->index = index;
    kept_value_set(&candidate->value, value, &p->state_bytes);
    return ERR_OK;
}

static ErrCode moving_extreme_remove(void *state, const WindowFn *fn, WindowPartition *p,
                                     int64_t index, Error *err) {
    (void)fn, (void)err;
    MovingExtreme *s = state;
    if (s->candidates.count == 0)
        return ERR_OK;
    Candidate *first = window_ring_at(&s->candidates, 0);
    if (first->index != index)
        return ERR_OK;
    p->state_bytes -= first->value.capacity;
    kept_value_done(&first->value);
    window_ring_pop_front(&s->candidates);
    return ERR_OK;
}

static ErrCode moving_extreme_result(void *state, const WindowFn *fn, WindowPartition *p,
                                     int64_t low, int64_t high, int64_t at, Value *ret,
                                     Error *err) {
    (void)fn, (void)p, (void)low, (void)high, (void)at, (void)err;
    const MovingExtreme *s = state;
    *ret = s->candidates.count == 0
               ? VALUE_NULL
               : ((const Candidate *)window_ring_at(&s->candidates, 0))->value.value;
    return ERR_OK;
}

static void moving_extreme_done(void *state) {
    MovingExtreme *s = state;
    for (size_t i = 0; i < s->candidates.count; i++)
        kept_value_done(&((Candidate *)window_ring_at(&s->candidates, i))->value);
    window_ring_done(&s->candidates);
}

static const WindowClass WINDOW_EXTREME = {.state_size = sizeof(MovingExtreme),
                                           .done = moving_extreme_done,
                                           .add = moving_extreme_add,
                                           .remove = moving_extreme_remove,
                                           .result = moving_extreme_result};

/* ---- $first, $last, $firstN, $lastN, $push of a window that moves ---- */

static ErrCode edge_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                           int64_t high, int64_t at, Value *ret, Error *err) {
    (void)state, (void)at;
    *ret = VALUE_NULL;
    if (low == high)
        return ERR_OK;
    TRY(window_eval(p, fn->acc.input, fn->acc.class == &ACC_FIRST ? low : high - 1, ret, err));
    if (value_is_missing(*ret))
        *ret = VALUE_NULL;
    return ERR_OK;
}

static ErrCode list_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                           int64_t high, int64_t at, Value *ret, Error *err) {
    (void)state, (void)at;
    bool is_push = fn->acc.class == &ACC_PUSH;
    if (fn->acc.class == &ACC_FIRST_N && high - low > fn->acc.n)
        high = low + fn->acc.n;
    if (fn->acc.class == &ACC_LAST_N && high - low > fn->acc.n)
        low = high - fn->acc.n;
    ArrayBuilder array;
    array_builder_init(&array, &p->base->scratch);
    for (int64_t i = low; i < high; i++) {
        Value value;
        if ((i - low) % 128 == 127)
            TRY(check_hook_run(&p->base->ctx->check, err));
        TRY(window_eval(p, fn->acc.input, i, &value, err));
        if (!is_push || !value_is_missing(value))
            array_builder_add(&array, value);
    }
    return array_builder_end(&array, ret, err);
}

static const WindowClass WINDOW_EDGE = {.result = edge_result};
static const WindowClass WINDOW_LIST = {.result = list_result};

/* ---- which of them ---- */

static const WindowClass *moving_class(const AccClass *class) {
    static const struct {
        const AccClass *acc;
        const WindowClass *window;
    } CLASSES[] = {
        {&ACC_SUM, &WINDOW_SUM},
        {&ACC_AVG, &WINDOW_SUM},
        {&ACC_STD_DEV_POP, &WINDOW_DEVIATION},
        {&ACC_STD_DEV_SAMP, &WINDOW_DEVIATION},
        {&ACC_MIN, &WINDOW_EXTREME},
        {&ACC_MAX, &WINDOW_EXTREME},
        {&ACC_FIRST, &WINDOW_EDGE},
        {&ACC_LAST, &WINDOW_EDGE},
        {&ACC_FIRST_N, &WINDOW_LIST},
        {&ACC_LAST_N, &WINDOW_LIST},
        {&ACC_PUSH, &WINDOW_LIST},
    };
    for (size_t i = 0; i < ARRAY_LEN(CLASSES); i++)
        if (CLASSES[i].acc == class)
            return CLASSES[i].window;
    return &WINDOW_ACC;
}

ErrCode parse_window_acc(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    TRY(window_bounds_parse(wp, fn, err));
    TRY(acc_parse(fn->path.dotted, op, &wp->agg->ctx->expr, wp->agg->arena, &fn->acc, err));
    if (fn->acc.n_expr != NULL && fn->acc.n == 0)
        return error_set(err, (ErrCode)5787902,
                         "Value for 'n' must be of integral type: that of %s is no constant",
                         elem_name(op));
    if (fn->acc.class == &ACC_COUNT)
        fn->class = &WINDOW_COUNT;
    else
        fn->class = window_is_from_start(&fn->bounds) ? &WINDOW_ACC : moving_class(fn->acc.class);
    return ERR_OK;
}
