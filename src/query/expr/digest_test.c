#include "query/expr/digest.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"

enum {
    NUMBERS = 200 * 1000,
    PARTS = 4,
};

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double random_number(Prng *prng, int kind) {
    double unit = prng_unit(prng);
    switch (kind) {
    case 0:
        return unit;
    case 1: /* few large ones */
        return pow(unit, -3);
    default: /* many equal ones */
        return floor(unit * 50);
    }
}

/* How far the rank of `found` in the sorted numbers is from `rank`. */
static double rank_error(const double *sorted, double found, double rank) {
    size_t low = 0, high = NUMBERS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sorted[middle] < found)
            low = middle + 1;
        else
            high = middle;
    }
    size_t end = low;
    while (end < NUMBERS && sorted[end] == found)
        end++;
    if (rank >= (double)low && rank <= (double)end + 1)
        return 0;
    return fabs((double)low - rank);
}

TEST(agg_3_digests_of_parts_merge_to_percentiles_of_the_whole) {
    static const double RANKS[] = {0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999};
    Prng prng = prng_seeded(test_seed());
    for (int kind = 0; kind < 3; kind++) {
        double *numbers = xcalloc(NUMBERS, sizeof(double));
        Centroid *part = xcalloc(NUMBERS, sizeof(Centroid));
        Centroid *merged = xcalloc(NUMBERS, sizeof(Centroid));
        size_t merged_count = 0;
        for (size_t p = 0; p < PARTS; p++) {
            size_t count = 0;
            for (size_t i = p; i < NUMBERS; i += PARTS) {
                numbers[i] = random_number(&prng, kind);
                part[count++] = (Centroid){numbers[i], 1};
            }
            digest_sort(part, count);
            count = digest_compress(part, count);
            EXPECT(count <= 2 * DIGEST_DELTA);
            memcpy(merged + merged_count, part, count * sizeof(Centroid));
            merged_count += count;
        }
        digest_sort(merged, merged_count);
        merged_count = digest_compress(merged, merged_count);
        EXPECT(merged_count <= 2 * DIGEST_DELTA);
        EXPECT(digest_weight(merged, merged_count) == NUMBERS);
        qsort(numbers, NUMBERS, sizeof(double), compare_doubles);
        EXPECT(digest_at(merged, merged_count, 1) == numbers[0]);
        EXPECT(digest_at(merged, merged_count, NUMBERS) == numbers[NUMBERS - 1]);
        for (size_t r = 0; r < ARRAY_LEN(RANKS); r++) {
            double rank = ceil(RANKS[r] * NUMBERS);
            double found = digest_at(merged, merged_count, rank);
            double error = rank_error(numbers, found, rank) / NUMBERS;
            /* Means of equal numbers are those numbers; means of a few different ones lie between
             * two of them. */
            if (error > 0.004)
                test_fail(__FILE__, __LINE__, "kind %d, p %g: off by %g", kind, RANKS[r], error);
        }
        xfree(numbers);
        xfree(part);
        xfree(merged);
    }
}

TEST(agg_3_digests_keep_infinite_numbers_apart) {
    Centroid centroids[5000];
    for (size_t i = 0; i < ARRAY_LEN(centroids); i++)
        centroids[i] = (Centroid){i < 100 ? -INFINITY : i >= 4900 ? INFINITY : (double)i, 1};
    digest_sort(centroids, ARRAY_LEN(centroids));
    size_t count = digest_compress(centroids, ARRAY_LEN(centroids));
    EXPECT(count < ARRAY_LEN(centroids));
    for (size_t i = 0; i < count; i++)
        EXPECT(!isnan(centroids[i].mean));
    EXPECT(isinf(digest_at(centroids, count, 100)) && isinf(digest_at(centroids, count, 4950)));
    double middle = digest_at(centroids, count, 2500);
    EXPECT(middle > 2450 && middle < 2550);
}
