/*
 * window_functions_series.c - window functions that depend on the order of documents: ranks,
 * shifts, slopes and areas over the sort value, moving averages, covariance, and the filling of
 * gaps.
 */
#include <math.h>

#include "base/alloc.h"
#include "query/agg/window.h"

static ErrCode parse_named_input(const WindowParser *wp, Elem op, WindowFn *fn, Error *err);
static ErrCode refuse_window(Elem op, const WindowFn *fn, Error *err);
static ErrCode time_of(const WindowFn *fn, WindowPartition *p, int64_t index, Number *ret,
                       Error *err);

/* ---- $rank, $denseRank, $documentNumber ---- */

/* Documents are equal when their sort keys are: an array counts by its least element. */
typedef struct RankState {
    Buffer last_key;
    bool has_last;
    int64_t rank;
    int64_t number;
} RankState;

static void rank_init(void *state) {
    buffer_init(&((RankState *)state)->last_key, BUFFER_UNBOUNDED);
}

static ErrCode rank_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                           int64_t high, int64_t at, Value *ret, Error *err) {
    (void)low, (void)high;
    RankState *s = state;
    KeyBuilder *key = p->acc_ctx.key;
    Doc doc;
    TRY(window_doc(p, at, &doc, err));
    TRY(sort_key_make(p->sort_by, doc, p->acc_ctx.collator, key, err));
    bool is_equal = s->has_last && s->last_key.size == key->key.size &&
                    memcmp(s->last_key.data, key->key.data, key->key.size) == 0;
    s->number++;
    if (!is_equal) {
        s->rank = fn->is_dense ? s->rank + 1 : s->number;
        s->has_last = true;
        buffer_clear(&s->last_key);
        buffer_append(&s->last_key, key->key.data, key->key.size);
    }
    *ret = value_count(s->rank);
    return ERR_OK;
}

static void rank_done(void *state) {
    RankState *s = state;
    if (s->last_key.size_max > 0) /* initialised */
        buffer_done(&s->last_key);
}

static ErrCode document_number_result(void *state, const WindowFn *fn, WindowPartition *p,
                                      int64_t low, int64_t high, int64_t at, Value *ret,
                                      Error *err) {
    (void)state, (void)fn, (void)p, (void)low, (void)high, (void)err;
    *ret = value_count(at + 1);
    return ERR_OK;
}

static const WindowClass WINDOW_RANK = {
    .state_size = sizeof(RankState), .init = rank_init, .done = rank_done, .result = rank_result};
static const WindowClass WINDOW_DOCUMENT_NUMBER = {.result = document_number_result};

ErrCode parse_window_rank(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    bool is_number = elem_name_is(op, STR("$documentNumber"));
    if (elem_is_present(fn->window))
        return error_set(err, (ErrCode)5371601,
                         "Rank style window functions take no other "
                         "arguments");
    if (elem_type(op) != BT_DOC || !doc_is_empty(elem_doc(op)))
        return error_set(err, (ErrCode)5371603,
                         "(None) %s must be specified with '{}' as the value", elem_name(op));
    if (window_sort_count(wp) != 1)
        return error_set(err, (ErrCode)5371602,
                         "%s must be specified with a top level sortBy expression with exactly one "
                         "element",
                         elem_name(op));
    fn->is_dense = elem_name_is(op, STR("$denseRank"));
    fn->class = is_number ? &WINDOW_DOCUMENT_NUMBER : &WINDOW_RANK;
    return ERR_OK;
}

/* ---- $shift ---- */

static ErrCode shift_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                            int64_t high, int64_t at, Value *ret, Error *err) {
    (void)state, (void)low, (void)high;
    int64_t index = at + fn->shift_by;
    *ret = VALUE_MISSING;
    if (index >= 0 && index < p->end)
        TRY(window_eval(p, fn->input, index, ret, err));
    if (value_is_missing(*ret))
        *ret = fn->shift_default;
    return ERR_OK;
}

static ErrCode shift_look_ahead(void *state, const WindowFn *fn, WindowPartition *p, int64_t at,
                                Error *err) {
    (void)state;
    bool ignored;
    return fn->shift_by <= 0 ? ERR_OK : window_fetch(p, at + fn->shift_by, &ignored, err);
}

static const WindowClass WINDOW_SHIFT = {.look_ahead = shift_look_ahead, .result = shift_result};

ErrCode parse_window_shift(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    TRY(refuse_window(op, fn, err));
    if (wp->sort_by == NULL)
        return error_set(err, ERR_FAILED_TO_PARSE, "$shift requires a sortBy");
    if (elem_type(op) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Argument to $shift must be an object, but got %s",
                         bson_type_name(elem_type(op)));
    Elem by = ELEM_MISSING;
    fn->shift_default = VALUE_NULL;
    DocIter iter = doc_iter(elem_doc(op));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("output"))) {
            TRY(expr_parse(elem, &wp->agg->ctx->expr, wp->agg->arena, &fn->input, err));
        } else if (elem_name_is(elem, STR("by"))) {
            by = elem;
        } else if (elem_name_is(elem, STR("default"))) {
            Expr *expr;
            TRY(expr_parse(elem, &wp->agg->ctx->expr, wp->agg->arena, &expr, err));
            if (!expr_is_literal(expr, &fn->shift_default))
                return error_set(err, ERR_FAILED_TO_PARSE,
                                 "'$shift:default' expression must yield a constant value.");
        } else {
            return error_set(err, ERR_FAILED_TO_PARSE, "Unknown argument in $shift");
        }
    }
    int32_t offset = 0;
    if (fn->input == NULL || !elem_is_present(by))
        return error_set(err, ERR_FAILED_TO_PARSE, "$shift requires an '%s' argument.",
                         fn->input == NULL ? "output" : "by");
    if (!value_as_exact_i32(value_from_elem(by), &offset))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "'$shift:by' field must be an integer, but got "
                         "%s",
                         value_to_text(value_from_elem(by), wp->agg->arena));
    fn->shift_by = offset;
    fn->class = &WINDOW_SHIFT;
    return ERR_OK;
}

/* ---- $derivative ---- */

typedef struct Point {
    double time;
    double value;
    bool is_null; /* there is no value */
    bool is_decimal;
    bool is_date;       /* so is the time */
    bool is_value_date; /* then the value is in milliseconds */
} Point;

/* The first point is kept for windows that begin with the partition, whose documents go. */
typedef struct DerivativeState {
    Point first;
    bool has_first;
} DerivativeState;

static ErrCode point_at(const WindowFn *fn, WindowPartition *p, int64_t index, Point *ret,
                        Error *err) {
    Number time;
    Value value;
    TRY(time_of(fn, p, index, &time, err));
    TRY(window_eval(p, fn->input, index, &value, err));
    *ret = (Point){.time = number_to_f64(time), .is_null = value_is_nullish(value)};
    Value sort_value;
    TRY(window_sort_value(p, index, &sort_value, err));
    ret->is_date = sort_value.type == BT_DATE;
    if (ret->is_null)
        return ERR_OK;
    ret->is_value_date = value.type == BT_DATE;
    if (!value_is_number(value) && !ret->is_value_date)
        return error_set(err, ERR_TYPE_MISMATCH, "%s requires numeric 'input', but found %s",
                         elem_name(fn->source), bson_type_name(value.type));
    ret->value = ret->is_value_date ? (double)value.i64 : number_to_f64(value_as_number(value));
    ret->is_decimal = value.type == BT_DECIMAL || time.type == BT_DECIMAL;
    return ERR_OK;
}

static Value value_of_double(double number, bool is_decimal, Arena *arena) {
    return is_decimal ? value_number(number_decimal(number_to_decimal(number_f64(number))), arena)
                      : value_f64(number);
}

static ErrCode derivative_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                                 int64_t high, int64_t at, Value *ret, Error *err) {
    (void)at;
    DerivativeState *s = state;
    *ret = VALUE_NULL;
    if (high == low)
        return ERR_OK;
    bool is_from_start = window_is_from_start(&fn->bounds);
    Point first = s->first;
    if (!is_from_start || !s->has_first) {
        TRY(point_at(fn, p, low, &first, err));
        s->first = first;
        s->has_first = true;
    }
    if (high - low < 2)
        return ERR_OK;
    Point last;
    TRY(point_at(fn, p, high - 1, &last, err));
    if (first.is_null || last.is_null || first.time == last.time)
        return ERR_OK;
    if (first.is_value_date != last.is_value_date)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "%s cannot take the difference of a date and a number",
                         elem_name(fn->source));
    double time = (last.time - first.time) / (fn->has_unit ? (double)fn->unit_ms : 1);
    *ret = value_of_double((last.value - first.value) / time, first.is_decimal || last.is_decimal,
                           &p->base->scratch);
    return ERR_OK;
}

static const WindowClass WINDOW_DERIVATIVE = {.state_size = sizeof(DerivativeState),
                                              .result = derivative_result};

/* {input: ..., unit: ...}, with a window. */
static ErrCode parse_over_time(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    if (elem_type(op) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "%s expects an object, but got a %s",
                         elem_name(op), bson_type_name(elem_type(op)));
    if (window_sort_count(wp) != 1 || wp->sort_by->count != 1)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "%s requires a sortBy with exactly one element, a field", elem_name(op));
    TRY(window_bounds_parse(wp, fn, err));
    DocIter iter = doc_iter(elem_doc(op));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("input"))) {
            TRY(expr_parse(elem, &wp->agg->ctx->expr, wp->agg->arena, &fn->input, err));
            continue;
        }
        if (!elem_name_is(elem, STR("unit")))
            return error_set(err, ERR_FAILED_TO_PARSE, "%s got unexpected argument: %s",
                             elem_name(op), elem_name(elem));
        TimeUnit unit;
        if (elem_type(elem) != BT_STRING || !time_unit_parse(elem_str(elem), &unit))
            return error_set(err, (ErrCode)5490704,
                             "unit must be a string that names a unit of "
                             "time");
        fn->has_unit = true;
        fn->unit_ms = time_unit_ms(unit);
        if (fn->unit_ms == 0) /* months and more have no length */
            return error_set(err, (ErrCode)5490710, "unit must be 'week' or smaller");
    }
    if (fn->input == NULL)
        return error_set(err, ERR_FAILED_TO_PARSE, "%s requires an 'input' expression",
                         elem_name(op));
    return ERR_OK;
}

ErrCode parse_window_derivative(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    TRY(parse_over_time(wp, op, fn, err));
    if (!fn->bounds.is_given)
        return error_set(err, ERR_FAILED_TO_PARSE, "%s requires explicit window bounds",
                         elem_name(op));
    fn->class = &WINDOW_DERIVATIVE;
    return ERR_OK;
}

/* ---- $integral ---- */

/* Trapezoids between the points of the window; their sum is kept with what rounding loses. */
typedef struct IntegralState {
    WindowRing points; /* Point; only the last when none ever leaves */
    double sum;
    double lost;
    int64_t decimal_count;
} IntegralState;

static void integral_change(IntegralState *s, const Point *a, const Point *b, double sign) {
    double area = sign * (b->time - a->time) * (a->value + b->value) / 2 - s->lost;
    double sum = s->sum + area;
    s->lost = isfinite(sum) ? (sum - s->sum) - area : 0;
    s->sum = sum;
}

static ErrCode integral_add(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                            Error *err) {
    IntegralState *s = state;
    Point point;
    TRY(point_at(fn, p, index, &point, err));
    if (point.is_null || point.is_value_date)
        return error_set(err, (ErrCode)5423900, "%s requires numeric 'input', but found %s",
                         elem_name(fn->source), point.is_null ? "null" : "date");
    if (s->points.count > 0)
        integral_change(s, window_ring_at(&s->points, s->points.count - 1), &point, 1);
    s->decimal_count += point.is_decimal;
    if (s->points.count > 0 && window_is_from_start(&fn->bounds))
        window_ring_pop_front(&s->points);
    *(Point *)window_ring_push(&s->points, sizeof(Point), &p->state_bytes) = point;
    return ERR_OK;
}

static ErrCode integral_remove(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                               Error *err) {
    (void)fn, (void)p, (void)index, (void)err;
    IntegralState *s = state;
    Point first = *(Point *)window_ring_at(&s->points, 0);
    s->decimal_count -= first.is_decimal;
    window_ring_pop_front(&s->points);
    if (s->points.count > 0)
        integral_change(s, &first, window_ring_at(&s->points, 0), -1);
    if (s->points.count < 2) /* rounding errors do not outlive what caused them */
        s->sum = s->lost = 0;
    return ERR_OK;
}

static ErrCode integral_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                               int64_t high, int64_t at, Value *ret, Error *err) {
    (void)at, (void)err;
    const IntegralState *s = state;
    *ret = low == high ? VALUE_NULL
                       : value_of_double(s->sum / (fn->has_unit ? (double)fn->unit_ms : 1),
                                         s->decimal_count > 0, &p->base->scratch);
    return ERR_OK;
}

static void integral_done(void *state) {
    window_ring_done(&((IntegralState *)state)->points);
}

static const WindowClass WINDOW_INTEGRAL = {.state_size = sizeof(IntegralState),
                                            .done = integral_done,
                                            .add = integral_add,
                                            .remove = integral_remove,
                                            .result = integral_result};

ErrCode parse_window_integral(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    fn->class = &WINDOW_INTEGRAL;
    return parse_over_time(wp, op, fn, err);
}

/* ---- $covariancePop, $covarianceSamp ---- */

typedef struct Pair {
    double x;
    double y;
    bool is_counted; /* both were numbers */
    bool is_decimal;
} Pair;

typedef struct CovarianceState {
    WindowRing pairs; /* only when they can leave */
    int64_t count;
    int64_t decimal_count;
    double mean_x;
    double mean_y;
    double products; /* of the distances from the means */
} CovarianceState;

static ErrCode covariance_add(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                              Error *err) {
    CovarianceState *s = state;
    Value x;
    Value y;
    TRY(window_eval(p, fn->input, index, &x, err));
    TRY(window_eval(p, fn->input2, index, &y, err));
    Pair pair = {.is_counted = value_is_number(x) && value_is_number(y)};
    if (pair.is_counted) {
        pair.x = number_to_f64(value_as_number(x));
        pair.y = number_to_f64(value_as_number(y));
        pair.is_decimal = x.type == BT_DECIMAL || y.type == BT_DECIMAL;
        s->count++;
        s->decimal_count += pair.is_decimal;
        double delta_x = pair.x - s->mean_x;
        s->mean_x += delta_x / (double)s->count;
        s->mean_y += (pair.y - s->mean_y) / (double)s->count;
        s->products += delta_x * (pair.y - s->mean_y);
    }
    if (!window_is_from_start(&fn->bounds))
        *(Pair *)window_ring_push(&s->pairs, sizeof(Pair), &p->state_bytes) = pair;
    return ERR_OK;
}

static ErrCode covariance_remove(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                                 Error *err) {
    (void)fn, (void)p, (void)index, (void)err;
    CovarianceState *s = state;
    Pair pair = *(Pair *)window_ring_at(&s->pairs, 0);
    window_ring_pop_front(&s->pairs);
    if (!pair.is_counted)
        return ERR_OK;
    s->decimal_count -= pair.is_decimal;
    if (--s->count == 0) {
        s->mean_x = s->mean_y = s->products = 0;
        return ERR_OK;
    }
    double delta_y = pair.y - s->mean_y;
    s->mean_x -= (pair.x - s->mean_x) / (double)s->count;
    s->mean_y -= delta_y / (double)s->count;
    s->products -= (pair.x - s->mean_x) * delta_y;
    return ERR_OK;
}

static ErrCode covariance_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                                 int64_t high, int64_t at, Value *ret, Error *err) {
    (void)low, (void)high, (void)at, (void)err;
    const CovarianceState *s = state;
    int64_t divisor = fn->is_sample ? s->count - 1 : s->count;
    *ret = divisor <= 0 ? VALUE_NULL
                        : value_of_double(s->products / (double)divisor, s->decimal_count > 0,
                                          &p->base->scratch);
    return ERR_OK;
}

static void covariance_done(void *state) {
    window_ring_done(&((CovarianceState *)state)->pairs);
}

static const WindowClass WINDOW_COVARIANCE = {.state_size = sizeof(CovarianceState),
                                              .done = covariance_done,
                                              .add = covariance_add,
                                              .remove = covariance_remove,
                                              .result = covariance_result};

ErrCode parse_window_covariance(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    TRY(window_bounds_parse(wp, fn, err));
    if (elem_type(op) != BT_ARRAY || doc_count(elem_doc(op)) != 2)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "%s expects an array of two expressions as its argument", elem_name(op));
    DocIter iter = doc_iter(elem_doc(op));
    Elem elem;
    doc_iter_next(&iter, &elem);
    TRY(expr_parse(elem, &wp->agg->ctx->expr, wp->agg->arena, &fn->input, err));
    doc_iter_next(&iter, &elem);
    TRY(expr_parse(elem, &wp->agg->ctx->expr, wp->agg->arena, &fn->input2, err));
    fn->is_sample = elem_name_is(op, STR("$covarianceSamp"));
    fn->class = &WINDOW_COVARIANCE;
    return ERR_OK;
}

/* ---- $expMovingAvg ---- */

typedef struct MovingAvgState {
    Decimal128 decimal;
    double binary;
    bool has_value;
    bool is_decimal; /* once one was seen */
} MovingAvgState;

static ErrCode exp_moving_avg_result(void *state, const WindowFn *fn, WindowPartition *p,
                                     int64_t low, int64_t high, int64_t at, Value *ret,
                                     Error *err) {
    (void)low, (void)high;
    MovingAvgState *s = state;
    Value value;
    TRY(window_eval(p, fn->input, at, &value, err));
    if (value_is_number(value)) {
        Number number = value_as_number(value);
        if (number.type == BT_DECIMAL && !s->is_decimal) {
            s->is_decimal = true;
            s->decimal = number_to_decimal(number_f64(s->binary));
        }
        if (s->is_decimal) {
            Decimal128 alpha = value_as_number(fn->alpha).dec;
            Decimal128 decimal = number_to_decimal(number);
            Decimal128 rest = dec_subtract(dec_from_i64(1), alpha);
            s->decimal = s->has_value
                             ? dec_add(dec_multiply(decimal, alpha), dec_multiply(s->decimal, rest))
                             : decimal;
        } else {
            double alpha = number_to_f64(value_as_number(fn->alpha));
            double binary = number_to_f64(number);
            s->binary = s->has_value ? binary * alpha + s->binary * (1 - alpha) : binary;
        }
        s->has_value = true;
    }
    *ret = !s->has_value   ? VALUE_NULL
           : s->is_decimal ? value_number(number_decimal(s->decimal), &p->base->scratch)
                           : value_f64(s->binary);
    return ERR_OK;
}

static const WindowClass WINDOW_EXP_MOVING_AVG = {.state_size = sizeof(MovingAvgState),
                                                  .result = exp_moving_avg_result};

ErrCode parse_window_exp_moving_avg(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    static const char *const FORM =
        "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an "
        "'N' field or an 'alpha' field";
    TRY(refuse_window(op, fn, err));
    if (wp->sort_by == NULL)
        return error_set(err, ERR_FAILED_TO_PARSE, "$expMovingAvg requires an explicit 'sortBy'");
    if (elem_type(op) != BT_DOC || doc_count(elem_doc(op)) != 2)
        return error_set(err, ERR_FAILED_TO_PARSE, "%s", FORM);
    Elem input = doc_get_lit(elem_doc(op), "input");
    Elem n = doc_get_lit(elem_doc(op), "N");
    Elem alpha = doc_get_lit(elem_doc(op), "alpha");
    if (!elem_is_present(input) || elem_is_present(n) == elem_is_present(alpha))
        return error_set(err, ERR_FAILED_TO_PARSE, "%s", FORM);
    TRY(expr_parse(input, &wp->agg->ctx->expr, wp->agg->arena, &fn->input, err));
    fn->class = &WINDOW_EXP_MOVING_AVG;
    if (elem_is_present(alpha)) {
        if (!elem_is_number(alpha))
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "'alpha' field must be a number, but found "
                             "type %s",
                             bson_type_name(elem_type(alpha)));
        Number weight = number_decimal(number_to_decimal(number_from_elem(alpha)));
        fn->alpha = value_number(weight, wp->agg->arena);
        if (number_compare(weight, number_i32(0)) <= 0 ||
            number_compare(weight, number_i32(1)) >= 0)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "'alpha' must be between 0 and 1 (exclusive), found alpha: %s",
                             value_to_text(value_from_elem(alpha), wp->agg->arena));
        return ERR_OK;
    }
    int64_t count;
    if (!elem_is_number(n) || !number_is_exact_i64(number_from_elem(n), &count))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "'N' field must be an integer, but found type %s",
                         bson_type_name(elem_type(n)));
    if (count <= 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "'N' must be greater than zero. Got %lld",
                         (long long)count);
    Decimal128 divisor = dec_add(dec_from_i64(count), dec_from_i64(1));
    fn->alpha = value_number(number_decimal(dec_divide(dec_from_i64(2), divisor)), wp->agg->arena);
    return ERR_OK;
}

/* ---- $locf ---- */

static ErrCode locf_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                           int64_t high, int64_t at, Value *ret, Error *err) {
    (void)low, (void)high;
    KeptValue *last = state;
    Value value;
    TRY(window_eval(p, fn->input, at, &value, err));
    if (!value_is_nullish(value))
        kept_value_set(last, value, &p->state_bytes);
    *ret = last->is_set ? last->value : VALUE_NULL;
    return ERR_OK;
}

static void locf_done(void *state) {
    kept_value_done(state);
}

static const WindowClass WINDOW_LOCF = {
    .state_size = sizeof(KeptValue), .done = locf_done, .result = locf_result};

ErrCode parse_window_locf(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    TRY(refuse_window(op, fn, err));
    fn->class = &WINDOW_LOCF;
    return parse_named_input(wp, op, fn, err);
}

/* ---- $linearFill ---- */

/* A gap lies between the last known point and the next one. The next is looked for once per gap,
 * so that all of it costs one pass. */
typedef struct FillState {
    Point last;
    bool has_last;
    Point next;
    int64_t next_index; /* up to here everything is known; no point there if !has_next */
    bool has_next;
    double last_time;
    bool has_last_time;
} FillState;

/* Looks for the next point when the current document is in a gap that is not known yet. */
static ErrCode linear_fill_look_ahead(void *state, const WindowFn *fn, WindowPartition *p,
                                      int64_t at, Error *err) {
    FillState *s = state;
    Point point;
    TRY(point_at(fn, p, at, &point, err));
    if (!point.is_null || !s->has_last || s->next_index > at)
        return ERR_OK;
    bool found = true;
    int64_t i = at;
    while (found && point.is_null) {
        TRY(window_fetch(p, ++i, &found, err));
        ArenaMark mark = arena_mark(&p->base->scratch);
        if (found)
            TRY(point_at(fn, p, i, &point, err));
        arena_rewind(&p->base->scratch, mark);
    }
    s->next = point;
    s->next_index = i;
    s->has_next = found;
    return ERR_OK;
}

static ErrCode linear_fill_result(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                                  int64_t high, int64_t at, Value *ret, Error *err) {
    (void)low, (void)high;
    FillState *s = state;
    Point point;
    TRY(point_at(fn, p, at, &point, err));
    if (s->has_last_time && s->last_time == point.time)
        return error_set(err, (ErrCode)6050106,
                         "There can be no repeated values in the sort field");
    s->has_last_time = true;
    s->last_time = point.time;
    if (!point.is_null) {
        s->last = point;
        s->has_last = true;
        return window_eval(p, fn->input, at, ret, err);
    }
    *ret = VALUE_NULL;
    if (!s->has_last)
        return ERR_OK;
    if (!s->has_next)
        return ERR_OK;
    if (s->next.is_date != s->last.is_date)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "$linearFill cannot mix dates and numbers in the sortBy field");
    double slope = (s->next.value - s->last.value) / (s->next.time - s->last.time);
    *ret = value_of_double(s->last.value + slope * (point.time - s->last.time),
                           s->last.is_decimal || s->next.is_decimal, &p->base->scratch);
    return ERR_OK;
}

static const WindowClass WINDOW_LINEAR_FILL = {.state_size = sizeof(FillState),
                                               .look_ahead = linear_fill_look_ahead,
                                               .result = linear_fill_result};

ErrCode parse_window_linear_fill(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    TRY(refuse_window(op, fn, err));
    if (window_sort_count(wp) != 1 || wp->sort_by->count != 1)
        return error_set(err, (ErrCode)605001,
                         "$linearFill must be specified with a top level sortBy expression with "
                         "exactly one element");
    fn->class = &WINDOW_LINEAR_FILL;
    return parse_named_input(wp, op, fn, err);
}

/* ---- shared ---- */

static ErrCode parse_named_input(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) {
    return expr_parse(op, &wp->agg->ctx->expr, wp->agg->arena, &fn->input, err);
}

static ErrCode refuse_window(Elem op, const WindowFn *fn, Error *err) {
    if (elem_is_present(fn->window))
        return error_set(err, ERR_FAILED_TO_PARSE, "%s does not accept a 'window' field",
                         elem_name(op));
    return ERR_OK;
}

/* The sort value: a number, or with a unit a date as milliseconds. $linearFill takes both. */
static ErrCode time_of(const WindowFn *fn, WindowPartition *p, int64_t index, Number *ret,
                       Error *err) {
    Value value;
    TRY(window_sort_value(p, index, &value, err));
    bool takes_both = fn->class == &WINDOW_LINEAR_FILL;
    if (value.type == BT_DATE && (fn->has_unit || takes_both)) {
        *ret = number_i64(value.i64);
        return ERR_OK;
    }
    if (value_is_number(value) && (!fn->has_unit || takes_both)) {
        *ret = value_as_number(value);
        return ERR_OK;
    }
    if (takes_both)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "$linearFill requires the sortBy field to be a number or a date, but it "
                         "was %s",
                         bson_type_name(value.type));
    bool is_integral = fn->class == &WINDOW_INTEGRAL;
    if (fn->has_unit)
        return error_set(err, is_integral ? (ErrCode)5423901 : (ErrCode)5624900,
                         "%s with 'unit' expects the sortBy field to be a Date, but it was %s",
                         elem_name(fn->source), bson_type_name(value.type));
    return error_set(err, is_integral ? (ErrCode)5423902 : (ErrCode)5624901,
                     "%s (with no 'unit') expects the sortBy field to be numeric, but it was %s",
                     elem_name(fn->source), bson_type_name(value.type));
}
