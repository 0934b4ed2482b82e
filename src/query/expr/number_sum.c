#include "query/expr/number_sum.h"

#include <math.h>

enum {
    UNUSUAL_NAN = 1 << 0,
    UNUSUAL_PLUS = 1 << 1, /* infinity */
    UNUSUAL_MINUS = 1 << 2,
    TERMS_MAX = NUMBER_SUM_PARTS + 8,
};

#define HUGE_UNIT 0x1p1022

/* Doubles of rising size that do not overlap: their sum is exact. */
typedef struct Expansion {
    double terms[TERMS_MAX];
    uint32_t count;
} Expansion;

static void add_double(NumberSum *sum, double value);
static void add_unusual(NumberSum *sum, double value);
static void add_to_last_parts(NumberSum *sum, double rest);
static double double_total(const NumberSum *sum, double *ret_rest);
static void add_decimal(NumberSum *sum, Decimal128 value);
static Decimal128 decimal_total(const NumberSum *sum);
static Decimal128 decimal_of_integer(__int128 value);

void number_sum_init(NumberSum *sum) {
    *sum = (NumberSum){
        .decimals = DECIMAL128_ZERO, .decimals_rest = DECIMAL128_ZERO, .widest = BT_INT32};
}

void number_sum_add(NumberSum *sum, Number number) {
    switch (number.type) {
    case BT_INT32:
        number_sum_add_i32(sum, number.i32);
        break;
    case BT_INT64:
        sum->count++;
        sum->integers += number.i64;
        if (sum->widest == BT_INT32)
            sum->widest = BT_INT64;
        break;
    case BT_DOUBLE:
        number_sum_add_f64(sum, number.f64);
        break;
    default:
        sum->count++;
        add_decimal(sum, number.dec);
        sum->widest = BT_DECIMAL;
    }
}

void number_sum_add_f64(NumberSum *sum, double number) {
    sum->count++;
    if (sum->widest != BT_DECIMAL)
        sum->widest = BT_DOUBLE;
    add_double(sum, number);
}

Number number_sum_total(const NumberSum *sum) {
    switch (sum->widest) {
    case BT_INT32:
    case BT_INT64:
        if (sum->integers < INT64_MIN || sum->integers > INT64_MAX)
            return number_f64((double)sum->integers);
        if (sum->widest == BT_INT32 && sum->integers >= INT32_MIN && sum->integers <= INT32_MAX)
            return number_i32((int32_t)sum->integers);
        return number_i64((int64_t)sum->integers);
    case BT_DOUBLE: {
        double rest;
        return number_f64(double_total(sum, &rest));
    }
    default: {
        NumberSum doubles = *sum;
        doubles.integers = 0;
        double rest;
        double high = double_total(&doubles, &rest);
        Decimal128 total = dec_add(decimal_total(sum), decimal_of_integer(sum->integers));
        if (high != 0)
            total = dec_add(total, dec_from_f64(high));
        if (rest != 0)
            total = dec_add(total, dec_from_f64(rest));
        return number_decimal(total);
    }
    }
}

Value number_sum_average(const NumberSum *sum, Arena *arena) {
    if (sum->count == 0)
        return VALUE_NULL;
    if (sum->widest == BT_DECIMAL)
        return value_number(number_decimal(dec_divide(number_sum_total(sum).dec,
                                                      dec_from_i64((int64_t)sum->count))),
                            arena);
    double rest;
    double total = sum->widest == BT_DOUBLE ? double_total(sum, &rest) : (double)sum->integers;
    return value_f64(total / (double)sum->count);
}

void deviation_add(Deviation *deviation, double number) {
    double delta = number - deviation->mean;
    deviation->count++;
    deviation->mean += delta / (double)deviation->count;
    deviation->squares += delta * (number - deviation->mean);
}

/* Chan, Golub and LeVeque's formula. */
void deviation_merge(Deviation *deviation, const Deviation *other) {
    if (other->count == 0)
        return;
    if (deviation->count == 0) {
        *deviation = *other;
        return;
    }
    double left = (double)deviation->count;
    double right = (double)other->count;
    double delta = other->mean - deviation->mean;
    deviation->count += other->count;
    deviation->mean += delta * (right / (left + right));
    deviation->squares += other->squares + delta * delta * (left * (right / (left + right)));
}

Value deviation_result(const Deviation *deviation, bool is_sample) {
    if (deviation->count < (is_sample ? 2 : 1))
        return VALUE_NULL;
    double divisor = (double)(deviation->count - (is_sample ? 1 : 0));
    return value_f64(sqrt(deviation->squares / divisor));
}

/* ---- sums of doubles ---- */

/* What rounding loses in a + b; exact as long as nothing overflows. */
static inline double two_sum_rest(double a, double b, double sum) {
    double of_b = sum - a;
    return (a - (sum - of_b)) + (b - of_b);
}

/* Each part takes over what rounding lost in the one before it. For numbers of like size two parts
 * hold everything. */
static void add_double(NumberSum *sum, double value) {
    double *parts = sum->parts;
    double total = parts[0] + value;
    if (UNLIKELY(!(fabs(total) < HUGE_UNIT))) {
        add_unusual(sum, value);
        return;
    }
    double rest = two_sum_rest(parts[0], value, total);
    parts[0] = total;
    double before = parts[1];
    total = before + rest;
    parts[1] = total;
    /* The larger of the two can be taken away again without rounding, whichever it is: if both come
     * back, nothing was lost. */
    bool is_exact = (total - before == rest) & (total - rest == before);
    if (UNLIKELY(!is_exact))
        add_to_last_parts(sum, two_sum_rest(before, rest, total));
}

/* Infinities and NaN are only remembered; what would overflow goes down by HUGE_UNIT first, which
 * is exact. */
static void add_unusual(NumberSum *sum, double value) {
    if (!isfinite(value)) {
        sum->unusual |= isnan(value) ? UNUSUAL_NAN : value > 0 ? UNUSUAL_PLUS : UNUSUAL_MINUS;
        return;
    }
    while (fabs(value) >= HUGE_UNIT) {
        sum->huge += value > 0 ? 1 : -1;
        value -= copysign(HUGE_UNIT, value);
    }
    double total = sum->parts[0] + value;
    double rest = two_sum_rest(sum->parts[0], value, total);
    if (fabs(total) >= HUGE_UNIT) {
        sum->huge += total > 0 ? 1 : -1;
        total -= copysign(HUGE_UNIT, total);
    }
    sum->parts[0] = total;
    if (rest != 0)
        add_double(sum, rest);
}

static void expansion_add(Expansion *e, double value) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        double total = value + e->terms[i];
        double rest = two_sum_rest(value, e->terms[i], total);
        if (rest != 0)
            e->terms[count++] = rest;
        value = total;
    }
    if (value != 0)
        e->terms[count++] = value;
    e->count = count;
}

static Expansion expansion_of(const NumberSum *sum) {
    Expansion e = {0};
    for (uint32_t i = NUMBER_SUM_PARTS; i-- > 0;)
        expansion_add(&e, sum->parts[i]);
    return e;
}

static void add_to_last_parts(NumberSum *sum, double rest) {
    for (uint32_t i = 2; i < NUMBER_SUM_PARTS; i++) {
        double total = sum->parts[i] + rest;
        rest = two_sum_rest(sum->parts[i], rest, total);
        sum->parts[i] = total;
        if (rest == 0)
            return;
    }
    /* The parts overlap, so that one more is needed than there are: put them apart. */
    Expansion e = {0};
    expansion_add(&e, rest);
    for (uint32_t i = NUMBER_SUM_PARTS; i-- > 0;)
        expansion_add(&e, sum->parts[i]);
    uint32_t first = e.count > NUMBER_SUM_PARTS ? e.count - NUMBER_SUM_PARTS : 0;
    for (uint32_t i = 0; i < first; i++)
        e.terms[first] += e.terms[i]; /* rounded: the one place where bits are lost */
    for (uint32_t i = 0; i < NUMBER_SUM_PARTS; i++)
        sum->parts[i] = i < e.count ? e.terms[e.count - 1 - i] : 0;
}

/* The nearest double. Once adding the next lower term is not exact, the terms below it can matter
 * only when it is half-way between two doubles. */
static double expansion_round(const Expansion *e) {
    if (e->count == 0)
        return 0;
    uint32_t at = e->count - 1;
    double high = e->terms[at];
    double low = 0;
    while (at > 0 && low == 0) {
        double next = e->terms[--at];
        double total = high + next;
        low = two_sum_rest(high, next, total);
        high = total;
    }
    if (at > 0 && (low < 0) == (e->terms[at - 1] < 0)) {
        double twice = 2 * low;
        double away = high + twice;
        if (away - high == twice)
            high = away;
    }
    return high;
}

/* The terms and `huge` are worked on a sixteenth of their size, where nothing overflows. */
static double huge_total(const NumberSum *sum, const Expansion *exact) {
    if (sum->huge > 6 || sum->huge < -6)
        return sum->huge > 0 ? INFINITY : -INFINITY;
    Expansion scaled = {0};
    for (uint32_t i = 0; i < exact->count; i++)
        expansion_add(&scaled, exact->terms[i] / 16);
    expansion_add(&scaled, (double)sum->huge * (HUGE_UNIT / 16));
    return expansion_round(&scaled) * 16;
}

/* Integers and doubles, and what is left after rounding, rounded. */
static double double_total(const NumberSum *sum, double *ret_rest) {
    *ret_rest = 0;
    if (sum->unusual != 0)
        return sum->unusual == UNUSUAL_PLUS    ? INFINITY
               : sum->unusual == UNUSUAL_MINUS ? -INFINITY
                                               : NAN;
    bool is_short = sum->parts[2] == 0 && sum->parts[3] == 0 && sum->integers == 0;
    if (LIKELY(is_short && sum->huge == 0)) {
        double both = sum->parts[0] + sum->parts[1];
        *ret_rest = two_sum_rest(sum->parts[0], sum->parts[1], both);
        return both;
    }
    Expansion e = expansion_of(sum);
    for (__int128 left = sum->integers; left != 0;) {
        double piece = (double)left;
        expansion_add(&e, piece);
        left -= (__int128)piece;
    }
    if (sum->huge != 0)
        return huge_total(sum, &e);
    double total = expansion_round(&e);
    expansion_add(&e, -total);
    *ret_rest = expansion_round(&e);
    return total;
}

/* ---- sums of decimals ---- */

static inline bool is_decimal_finite(Decimal128 value) {
    return (value.high & UINT64_C(0x7800000000000000)) != UINT64_C(0x7800000000000000);
}

/* Has all 34 digits: only then can the value have been rounded, or its scale be another than the
 * smallest of what was added. */
static inline bool is_decimal_full(Decimal128 value) {
    const uint64_t high_of_1e33 = UINT64_C(0x314dc6448d93);
    return (value.high & UINT64_C(0x1ffffffffffff)) >= high_of_1e33;
}

static void add_decimal(NumberSum *sum, Decimal128 value) {
    Decimal128 total = dec_add(sum->decimals, value);
    if (LIKELY(!sum->is_long && !is_decimal_full(total))) {
        sum->decimals = total;
        return;
    }
    if (!is_decimal_finite(total)) {
        sum->decimals = total;
        sum->decimals_rest = DECIMAL128_ZERO;
        return;
    }
    sum->is_long = true;
    /* As two_sum_rest, which holds for any base. */
    Decimal128 of_value = dec_subtract(total, sum->decimals);
    Decimal128 rest = dec_add(dec_subtract(sum->decimals, dec_subtract(total, of_value)),
                              dec_subtract(value, of_value));
    sum->decimals = total;
    sum->decimals_rest = dec_add(sum->decimals_rest, rest);
}

static Decimal128 decimal_total(const NumberSum *sum) {
    return sum->is_long ? dec_add(sum->decimals, sum->decimals_rest) : sum->decimals;
}

/* In two steps, as no more than 64 bits are converted. */
static Decimal128 decimal_of_integer(__int128 value) {
    const int64_t step = INT64_C(1000000000000000000);
    Decimal128 high = dec_from_i64((int64_t)(value / step));
    Decimal128 low = dec_from_i64((int64_t)(value % step));
    return dec_add(dec_multiply(high, dec_from_i64(step)), low);
}

/* ---- the saved form ----
 *
 *     t  int32      widest type
 *     n  int64      how many numbers
 *     i  int64      integers; [high int64, low int64] when they need 128 bits
 *     d  doubles    array of the parts; absent when all are 0
 *     h  int64      huge; absent when 0
 *     u  int32      unusual; absent when 0
 *     m  decimal    absent unless a decimal was added
 *     r  decimal    decimals_rest; absent unless is_long
 */

/* Far above what 2^64 numbers of 32 bits, or 2^62 of 64 bits give. */
#define INTEGERS_MAX ((__int128)1 << 125)

static void build_decimal(DocBuilder *b, Str name, Decimal128 value) {
    uint8_t *at = build_value(b, BT_DECIMAL, name, sizeof(value));
    if (at != NULL)
        memcpy(at, &value, sizeof(value));
}

void number_sum_save(const NumberSum *sum, DocBuilder *b) {
    build_i32(b, "t", (int32_t)sum->widest);
    build_i64(b, "n", (int64_t)sum->count);
    if (sum->integers >= INT64_MIN && sum->integers <= INT64_MAX) {
        build_i64(b, "i", (int64_t)sum->integers);
    } else {
        size_t array = build_open_array(b, "i");
        build_i64(b, "0", (int64_t)(sum->integers >> 64));
        build_i64(b, "1", (int64_t)(uint64_t)sum->integers);
        build_close(b, array);
    }
    uint32_t count = NUMBER_SUM_PARTS;
    while (count > 0 && sum->parts[count - 1] == 0)
        count--;
    if (count > 0) {
        size_t array = build_open_array(b, "d");
        for (uint32_t i = 0; i < count; i++) {
            char name[INDEX_NAME_SIZE];
            build_f64(b, index_name(i, name).data, sum->parts[i]);
        }
        build_close(b, array);
    }
    if (sum->huge != 0)
        build_i64(b, "h", sum->huge);
    if (sum->unusual != 0)
        build_i32(b, "u", sum->unusual);
    if (sum->widest == BT_DECIMAL)
        build_decimal(b, STR("m"), sum->decimals);
    if (sum->is_long)
        build_decimal(b, STR("r"), sum->decimals_rest);
}

static bool load_integers(Elem elem, __int128 *ret) {
    if (elem_type(elem) == BT_INT64) {
        *ret = elem_as_i64(elem);
        return true;
    }
    if (elem_type(elem) != BT_ARRAY)
        return false;
    Elem high = doc_get_lit(elem_doc(elem), "0");
    Elem low = doc_get_lit(elem_doc(elem), "1");
    if (elem_type(high) != BT_INT64 || elem_type(low) != BT_INT64)
        return false;
    *ret = (__int128)elem_as_i64(high) * ((__int128)1 << 64) + (uint64_t)elem_as_i64(low);
    return *ret > -INTEGERS_MAX && *ret < INTEGERS_MAX;
}

static bool merge_doubles(NumberSum *sum, Elem array) {
    if (elem_type(array) != BT_ARRAY)
        return !elem_is_present(array);
    DocIter iter = doc_iter(elem_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOUBLE || !isfinite(elem_as_f64(elem)))
            return false;
        add_double(sum, elem_as_f64(elem));
    }
    return true;
}

static bool merge_decimals(NumberSum *sum, Elem decimals, Elem rest) {
    bool is_valid = (!elem_is_present(decimals) || elem_type(decimals) == BT_DECIMAL) &&
                    (!elem_is_present(rest) || elem_type(rest) == BT_DECIMAL);
    if (is_valid && elem_is_present(decimals))
        add_decimal(sum, number_from_elem(decimals).dec);
    if (is_valid && elem_is_present(rest)) {
        sum->is_long = true;
        add_decimal(sum, number_from_elem(rest).dec);
    }
    return is_valid;
}

/* Which of two types a sum of both has. */
static int width_of(BsonType type) {
    return type == BT_INT32 ? 0 : type == BT_INT64 ? 1 : type == BT_DOUBLE ? 2 : 3;
}

ErrCode number_sum_merge(NumberSum *sum, Doc saved, Error *err) {
    Elem type = doc_get_lit(saved, "t");
    Elem count = doc_get_lit(saved, "n");
    Elem huge = doc_get_lit(saved, "h");
    Elem unusual = doc_get_lit(saved, "u");
    __int128 integers = 0;
    bool is_valid = elem_type(type) == BT_INT32 && type_is_number((BsonType)elem_as_i64(type)) &&
                    elem_type(count) == BT_INT64 &&
                    load_integers(doc_get_lit(saved, "i"), &integers) &&
                    merge_doubles(sum, doc_get_lit(saved, "d")) &&
                    (!elem_is_present(huge) || elem_type(huge) == BT_INT64) &&
                    (!elem_is_present(unusual) || elem_type(unusual) == BT_INT32) &&
                    merge_decimals(sum, doc_get_lit(saved, "m"), doc_get_lit(saved, "r"));
    sum->integers += is_valid ? integers : 0;
    if (!is_valid || sum->integers <= -INTEGERS_MAX || sum->integers >= INTEGERS_MAX)
        return error_set(err, ERR_BAD_VALUE, "not a partial sum");
    sum->count += (uint64_t)elem_as_i64(count);
    if (elem_is_present(huge))
        sum->huge = (int64_t)((uint64_t)sum->huge + (uint64_t)elem_as_i64(huge));
    if (elem_is_present(unusual))
        sum->unusual |=
            (uint8_t)elem_as_i64(unusual) & (UNUSUAL_NAN | UNUSUAL_PLUS | UNUSUAL_MINUS);
    BsonType widest = (BsonType)elem_as_i64(type);
    if (width_of(widest) > width_of(sum->widest))
        sum->widest = widest;
    return ERR_OK;
}
