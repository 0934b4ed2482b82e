/* LCK-3: the rule of flow control, its tickets and its samples. */
#include "repl/flow_control.h"

#include "base/alloc.h"
#include "base/test.h"

static const FlowSettings SETTINGS = {.is_enabled = true,
                                      .target_lag_s = 10,
                                      .threshold_part = 0.5,
                                      .tickets_min = 100,
                                      .decay = 0.5,
                                      .fudge = 0.95,
                                      .adder = 1000,
                                      .multiplier = 1.05};

TEST(flow_control_follows_its_formula) {
    static const struct {
        double before, lag_s, sustained, locks_per_entry, want;
    } ROWS[] = {
        {2000, 0, 0, 1, 3150},                /* (2000 + 1000) * 1.05 */
        {2000, 4.99, 0, 1, 3150},             /* just below the threshold */
        {2000, 5, 10000, 1, 9500},            /* at it: what was sustained, a little less */
        {2000, 10, 10000, 1, 4750},           /* once more beyond: half of that */
        {2000, 15, 10000, 2, 4750},           /* two locks for an entry */
        {2000, 100, 10000, 1, 100},           /* never below the least */
        {999999999.0, 0, 0, 1, 1000000000.0}, /* never above the most */
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        double got = flow_control_tickets(&SETTINGS, ROWS[i].before, ROWS[i].lag_s,
                                          ROWS[i].sustained, ROWS[i].locks_per_entry);
        EXPECT(got > ROWS[i].want - 1 && got < ROWS[i].want + 1);
    }
}

TEST(flow_control_counts_what_the_majority_has_applied) {
    FlowControl *flow = xcalloc(1, sizeof(*flow));
    flow_control_init(flow);
    for (uint64_t ts = 1; ts <= 10000; ts++)
        flow_control_note_entry(flow, ts);
    flow_control_refresh(flow, &SETTINGS, /* is_throttling= */ true, /* lag_s= */ 10, 4000);
    EXPECT_EQ_I64(flow->sustained, 4000);
    EXPECT(flow->is_lagged);
    EXPECT_EQ_I64(flow->lagged_count, 1);
    flow_control_refresh(flow, &SETTINGS, /* is_throttling= */ true, /* lag_s= */ 10, 6000);
    EXPECT_EQ_I64(flow->sustained, 2000);
    flow_control_refresh(flow, &SETTINGS, /* is_throttling= */ false, 0, 6000);
    EXPECT_EQ_I64(flow->rate, 1000000000);
    flow_control_done(flow);
    xfree(flow);
}
