#include "query/expr/number_sum.h"

#include <math.h>

static void add_double(NumberSum *sum, double value);
static double double_total(const NumberSum *sum);
static Decimal128 decimal_of_integer(__int128 value);

void number_sum_init(NumberSum *sum) {
    *sum = (NumberSum){.decimals = DECIMAL128_ZERO, .widest = BT_INT32};
}

void number_sum_add(NumberSum *sum, Number number) {
    sum->count++;
    switch (number.type) {
    case BT_INT32:
        sum->integers += number.i32;
        break;
    case BT_INT64:
        sum->integers += number.i64;
        if (sum->widest == BT_INT32)
            sum->widest = BT_INT64;
        break;
    case BT_DOUBLE:
        add_double(sum, number.f64);
        if (sum->widest != BT_DECIMAL)
            sum->widest = BT_DOUBLE;
        break;
    default:
        sum->decimals = dec_add(sum->decimals, number.dec);
        sum->widest = BT_DECIMAL;
    }
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
    case BT_DOUBLE:
        return number_f64(double_total(sum));
    default: {
        Decimal128 total = dec_add(sum->decimals, decimal_of_integer(sum->integers));
        if (sum->high != 0)
            total = dec_add(total, dec_from_f64(sum->high));
        if (sum->low != 0 && isfinite(sum->low))
            total = dec_add(total, dec_from_f64(sum->low));
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
    double total = sum->widest == BT_DOUBLE ? double_total(sum) : (double)sum->integers;
    return value_f64(total / (double)sum->count);
}

void deviation_add(Deviation *deviation, double number) {
    double delta = number - deviation->mean;
    deviation->count++;
    deviation->mean += delta / (double)deviation->count;
    deviation->squares += delta * (number - deviation->mean);
}

Value deviation_result(const Deviation *deviation, bool is_sample) {
    if (deviation->count < (is_sample ? 2 : 1))
        return VALUE_NULL;
    double divisor = (double)(deviation->count - (is_sample ? 1 : 0));
    return value_f64(sqrt(deviation->squares / divisor));
}

/* What rounding loses in high + value is kept in low. Infinities and NaN have no such rest. */
static void add_double(NumberSum *sum, double value) {
    double total = sum->high + value;
    if (!isfinite(total)) {
        sum->high = total;
        sum->low = 0;
        return;
    }
    double of_value = total - sum->high;
    sum->low += (sum->high - (total - of_value)) + (value - of_value);
    sum->high = total;
}

static double double_total(const NumberSum *sum) {
    NumberSum with_integers = *sum;
    add_double(&with_integers, (double)sum->integers);
    return with_integers.high + with_integers.low;
}

/* In two steps, as no more than 64 bits are converted. */
static Decimal128 decimal_of_integer(__int128 value) {
    const int64_t step = INT64_C(1000000000000000000);
    Decimal128 high = dec_from_i64((int64_t)(value / step));
    Decimal128 low = dec_from_i64((int64_t)(value % step));
    return dec_add(dec_multiply(high, dec_from_i64(step)), low);
}
