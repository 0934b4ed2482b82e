#include "up/backoff.h"

#include "base/test.h"

TEST(backoff_doubles_up_to_its_bound) {
    static const int64_t DELAYS_MS[] = {500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    Backoff backoff = {0};
    for (size_t i = 0; i < ARRAY_LEN(DELAYS_MS); i++)
        EXPECT_EQ_I64(backoff_delay_ms(&backoff, /* lived_ms= */ 10), DELAYS_MS[i]);
}

TEST(backoff_forgives_after_a_minute_of_life) {
    Backoff backoff = {0};
    backoff_delay_ms(&backoff, 10);
    backoff_delay_ms(&backoff, 10);
    EXPECT_EQ_I64(backoff_delay_ms(&backoff, BACKOFF_FORGIVEN_MS - 1), 2000);
    EXPECT_EQ_I64(backoff_delay_ms(&backoff, BACKOFF_FORGIVEN_MS), 500);
    EXPECT_EQ_I64(backoff_delay_ms(&backoff, 10), 1000);
}
