/* Goal: durations go into the buckets that MongoDB's histograms have. */
#include "base/test.h"
#include "commands/core/latency.h"

TEST(latency_buckets_are_powers_of_two_with_half_steps_between_2_ms_and_2_s) {
    static const struct {
        int64_t duration_us;
        int64_t bucket_min_us;
    } CASES[] = {
        {0, 0},
        {1, 0},
        {2, 2},
        {3, 2},
        {1024, 1024},
        {2047, 1024},
        {2048, 2048},
        {3071, 2048},
        {3072, 3072},
        {4096, 4096},
        {6143, 4096},
        {6144, 6144},
        {1048575, 786432},
        {1048576, 1048576},
        {1572864, 1572864},
        {2097152, 2097152},
        {4194303, 2097152},
        {4194304, 4194304},
        {(int64_t)1 << 40, (int64_t)1 << 40},
        {INT64_MAX, (int64_t)1 << 40},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        EXPECT_EQ_I64(latency_bucket_min_us(latency_bucket(CASES[i].duration_us)),
                      CASES[i].bucket_min_us);
    for (int bucket = 0; bucket < LATENCY_BUCKET_COUNT; bucket++)
        EXPECT_EQ_I64(latency_bucket(latency_bucket_min_us(bucket)), bucket);
}
