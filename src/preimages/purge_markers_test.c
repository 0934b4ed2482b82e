#include "preimages/purge_markers.h"

#include "base/prng.h"
#include "base/test.h"

static const Uuid A = {{1}}, B = {{2}};
static const int64_t S = 1000;

static PurgeLimits by_age(int64_t before_wall_ms) {
    return (PurgeLimits){.before_wall_ms = before_wall_ms, .until_ts = UINT64_MAX};
}

TEST(purge_markers_remove_a_partial_stretch_only_when_its_newest_image_is_expired) {
    PurgeMarkers m = {0};
    purge_markers_add(&m, &A, 10, 100 * S, 1, 50);
    purge_markers_add(&m, &A, 20, 105 * S, 1, 60);
    Uuid found;
    PurgeMarker due;
    PurgeLimits limits = by_age(102 * S);
    EXPECT(!purge_markers_find_due(&m, &limits, &found, &due));
    limits = by_age(106 * S);
    EXPECT(purge_markers_find_due(&m, &limits, &found, &due));
    EXPECT_EQ_I64(due.records, 2);
    EXPECT_EQ_I64(due.bytes, 110);
    EXPECT_EQ_U64(due.last_ts, 20);
    /* It grows while it is removed: what came meanwhile stays. */
    purge_markers_add(&m, &A, 30, 106 * S, 1, 70);
    purge_markers_drop(&m, &A, &due);
    limits = by_age(200 * S);
    EXPECT(purge_markers_find_due(&m, &limits, &found, &due));
    EXPECT_EQ_I64(due.records, 1);
    EXPECT_EQ_I64(due.bytes, 70);
    purge_markers_drop(&m, &A, &due);
    EXPECT_EQ_I64(m.count, 0);
    purge_markers_clear(&m);
}

TEST(purge_markers_keep_what_may_be_rolled_back_and_what_the_oplog_has) {
    PurgeMarkers m = {0};
    purge_markers_add(&m, &A, 10, 100 * S, 1, 50);
    purge_markers_add(&m, &B, 50, 100 * S, 1, 50);
    Uuid found;
    PurgeMarker due;
    PurgeLimits limits = {.before_ts = 10, .before_wall_ms = INT64_MIN, .until_ts = 100};
    EXPECT(!purge_markers_find_due(&m, &limits, &found, &due));
    limits.before_ts = 11;
    EXPECT(purge_markers_find_due(&m, &limits, &found, &due));
    EXPECT(uuid_equal(&found, &A));
    purge_markers_drop(&m, &found, &due);
    EXPECT(!purge_markers_find_due(&m, &limits, &found, &due));
    limits = (PurgeLimits){.before_ts = 1000, .before_wall_ms = INT64_MAX, .until_ts = 49};
    EXPECT(!purge_markers_find_due(&m, &limits, &found, &due));
    purge_markers_clear(&m);
}

TEST(purge_markers_lose_no_image_however_many_there_are) {
    /* Goal: whatever is added is removed again, in few stretches, also when what was there before
     * is measured later. */
    Prng prng = prng_seeded(7);
    PurgeMarkers older = {0}, newer = {0};
    int64_t added = 0, removed = 0;
    for (uint64_t ts = 1; ts <= 60000; ts++) {
        int64_t bytes = (int64_t)prng_below(&prng, 4000) + 1;
        purge_markers_add(ts <= 30000 ? &older : &newer, prng_below(&prng, 2) == 0 ? &A : &B, ts,
                          (int64_t)ts * S, 1, bytes);
        added += bytes;
    }
    purge_markers_put_before(&newer, &older);
    uint32_t stretches = 0;
    uint64_t last[2] = {0, 0};
    Uuid found;
    PurgeMarker due;
    PurgeLimits limits = by_age(INT64_MAX);
    while (purge_markers_find_due(&newer, &limits, &found, &due)) {
        uint64_t *before = &last[uuid_equal(&found, &A) ? 0 : 1];
        EXPECT(due.last_ts > *before);
        *before = due.last_ts;
        removed += due.bytes;
        stretches++;
        purge_markers_drop(&newer, &found, &due);
    }
    EXPECT_EQ_I64(removed, added);
    EXPECT(stretches <= 2 * 1025);
    EXPECT_EQ_I64(newer.count, 0);
    purge_markers_clear(&newer);
}
