/*
 * number_sum_test.c - sums do not depend on order or division, nor deviations more than rounding.
 */
#include "query/expr/number_sum.h"

#include <math.h>

#include "base/prng.h"
#include "base/test.h"

static double random_double(Prng *prng) {
    double mantissa = (double)prng_u64(prng) / 0x1p63 - 1;
    return ldexp(mantissa, (int)prng_below(prng, 120) - 60);
}

static void add_all(NumberSum *sum, const Number *numbers, size_t count) {
    number_sum_init(sum);
    for (size_t i = 0; i < count; i++)
        number_sum_add(sum, numbers[i]);
}

static bool is_same_sum(const NumberSum *a, const NumberSum *b) {
    CLEANUP(arena_done) Arena arena = {0};
    Value x[] = {value_number(number_sum_total(a), &arena), number_sum_average(a, &arena)};
    Value y[] = {value_number(number_sum_total(b), &arena), number_sum_average(b, &arena)};
    for (int i = 0; i < 2; i++)
        if (x[i].type != y[i].type ||
            memcmp(value_bytes(&x[i]), value_bytes(&y[i]), value_bytes_size(&x[i])) != 0)
            return false;
    return true;
}

TEST(sums_of_doubles_are_exact_up_to_the_last_rounding) {
    static const struct {
        double numbers[6];
        double total;
    } CASES[] = {
        {{0.1, 0.2, 0.3}, 0.6},
        {{1e100, 1, -1e100}, 1},
        {{1e100, 1e50, 1, 1e-50, -1e100, -1e50}, 1},
        {{1, 0x1p-53}, 1},                                   /* a tie: to even */
        {{1, 0x1p-53, 0x1p-110}, 1 + 0x1p-52},               /* just above it */
        {{1, 0x1p-53, -0x1p-110}, 1},                        /* just below */
        {{1 + 0x1p-52, 0x1p-53, -0x1p-110}, 1 + 0x1p-52},    /* below a tie that goes up */
        {{0x1.8p1023, 0x1.8p1023, -0x1.8p1023}, 0x1.8p1023}, /* no overflow in between */
        {{0x1.8p1023, 0x1.8p1023, -0x1.8p1023, -0x1.8p1023}, 0},
        {{-0x1.8p1023, -0x1.8p1023}, -INFINITY},
        {{INFINITY, 0x1.8p1023, -0x1.8p1023}, INFINITY},
        {{INFINITY, -INFINITY, 1}, NAN},
        {{NAN, 1}, NAN},
        {{5e-324, 5e-324, -5e-324}, 5e-324},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Number numbers[6];
        for (int at = 0; at < 6; at++)
            numbers[at] = number_f64(CASES[i].numbers[at]);
        for (int turn = 0; turn < 6; turn++) { /* every rotation */
            NumberSum sum;
            add_all(&sum, numbers, 6);
            double total = number_sum_total(&sum).f64;
            if (total != CASES[i].total && !(isnan(total) && isnan(CASES[i].total)))
                test_fail(__FILE__, __LINE__, "case %zu, turn %d gives %a", i, turn, total);
            Number first = numbers[0];
            memmove(numbers, numbers + 1, 5 * sizeof(*numbers));
            numbers[5] = first;
        }
    }
}

/* Up to 18 digits and an exponent around 0. */
static Number random_decimal(Prng *prng, int exponent_max) {
    char text[48];
    Number number = number_decimal(DECIMAL128_ZERO);
    snprintf(text, sizeof(text), "%lldE%d", (long long)prng_u64(prng) / 16,
             (int)prng_below(prng, 2 * (uint64_t)exponent_max + 1) - exponent_max);
    EXPECT(dec_from_text(str_from(text), &number.dec));
    return number;
}

TEST(sums_do_not_depend_on_order_or_division) {
    /* Goal: the same bits however numbers are dealt out to sums that are then merged.
     * Method: random numbers of all types, unusual ones and cancelling ones among them. */
    Prng prng = prng_seeded(test_seed());
    static const double UNUSUAL[] = {INFINITY, -INFINITY, NAN, 0x1.fp1023, -0x1.fp1023, 5e-324};
    enum { ROUNDS = 3000, COUNT = 40 };
    for (int round = 0; round < ROUNDS; round++) {
        Number numbers[COUNT];
        bool has_decimals = round % 4 == 1;
        bool has_integers = round % 2 == 1;
        bool has_unusual = round % 8 == 6;
        bool is_decimal = round % 16 == 9; /* sums of more than 34 digits, which cancel */
        for (int i = 0; i < COUNT; i++) {
            uint64_t choice = prng_below(&prng, 10);
            numbers[i] = number_f64(random_double(&prng));
            if (choice == 0 && has_integers)
                numbers[i] = number_i64((int64_t)prng_u64(&prng));
            else if (choice < 4 && has_integers)
                numbers[i] = number_i32((int32_t)prng_u64(&prng));
            else if (choice == 4 && has_decimals)
                numbers[i] = random_decimal(&prng, round % 8 == 1 ? 12 : 2);
            else if (choice == 5 && has_unusual)
                numbers[i] = number_f64(UNUSUAL[prng_below(&prng, ARRAY_LEN(UNUSUAL))]);
            else if (choice == 6 && i > 0 && numbers[i - 1].type == BT_DOUBLE)
                numbers[i] = number_f64(-numbers[i - 1].f64);
            if (is_decimal)
                numbers[i] =
                    choice < 4 && i > 0
                        ? number_decimal(dec_negate(numbers[prng_below(&prng, (uint64_t)i)].dec))
                        : random_decimal(&prng, 20);
        }
        NumberSum whole;
        add_all(&whole, numbers, COUNT);
        NumberSum parts[4];
        for (int i = 0; i < 4; i++)
            number_sum_init(&parts[i]);
        for (int left = COUNT; left > 0; left--) {
            uint64_t at = prng_below(&prng, (uint64_t)left);
            number_sum_add(&parts[prng_below(&prng, 4)], numbers[at]);
            numbers[at] = numbers[left - 1];
        }
        NumberSum merged;
        number_sum_init(&merged);
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        for (int i = 0; i < 4; i++) {
            DocBuilder b = doc_builder_in_arena(&arena);
            number_sum_save(&parts[i], &b);
            EXPECT_OK(number_sum_merge(&merged, doc_builder_end(&b), &err), err);
        }
        if (!is_same_sum(&whole, &merged))
            test_fail(__FILE__, __LINE__, "round %d: %a is not %a", round,
                      number_to_f64(number_sum_total(&merged)),
                      number_to_f64(number_sum_total(&whole)));
    }
}

TEST(deviations_merge_as_well_as_they_add) {
    /* Both against two passes in higher precision, also where the mean is far from zero. */
    Prng prng = prng_seeded(test_seed());
    enum { COUNT = 1000 };
    for (int round = 0; round < 50; round++) {
        double numbers[COUNT];
        double far = ldexp(1, (int)prng_below(&prng, 12));
        long double mean = 0, squares = 0;
        for (int i = 0; i < COUNT; i++) {
            numbers[i] = far + (double)prng_below(&prng, 1 << 20) / (1 << 20);
            mean += numbers[i] / (long double)COUNT;
        }
        for (int i = 0; i < COUNT; i++)
            squares += (numbers[i] - mean) * (numbers[i] - mean);
        double expected = (double)sqrtl(squares / COUNT);
        Deviation all = {0}, parts[4] = {0}, merged = {0};
        for (int i = 0; i < COUNT; i++) {
            deviation_add(&all, numbers[i]);
            deviation_add(&parts[prng_below(&prng, 4)], numbers[i]);
        }
        for (int i = 0; i < 4; i++)
            deviation_merge(&merged, &parts[i]);
        EXPECT_EQ_U64(merged.count, COUNT);
        double one_pass = deviation_result(&all, false).f64;
        double merging = deviation_result(&merged, false).f64;
        if (fabs(one_pass - expected) > 1e-12 * expected ||
            fabs(merging - expected) > 1e-12 * expected)
            test_fail(__FILE__, __LINE__, "%.17g and %.17g, expected %.17g", one_pass, merging,
                      expected);
    }
}
