#include "sharding/config/settings.h"

#include "bson/json_docs_test.h"

typedef struct Row {
    const char *balancer;
    const char *chunk_size;
    const char *auto_merge;
    bool is_valid;
    bool is_on;
    int64_t chunk_mb;
    bool merges;
} Row;

TEST(settings_of_the_balancer_are_read_with_their_defaults) {
    static const Row ROWS[] = {
        {NULL, NULL, NULL, true, true, 128, true},
        {"{}", "{'value': 1}", "{'enabled': false}", true, true, 1, false},
        {"{'stopped': true}", "{'value': 1024}", "{}", true, false, 1024, true},
        {"{'mode': 'off', 'stopped': false}", NULL, NULL, true, false, 128, true},
        {"{'mode': 'autoSplitOnly'}", NULL, NULL, true, false, 128, true},
        {"{'mode': 'full', 'stopped': false}", NULL, NULL, true, true, 128, true},
        {NULL, "{'value': 0}", NULL, false, false, 0, false},
        {NULL, "{'value': 1025}", NULL, false, false, 0, false},
        {NULL, "{'value': 'x'}", NULL, false, false, 0, false},
        {"{'activeWindow': {'start': '1:00', 'stop': '25:00'}}", NULL, NULL, false, false, 0,
         false},
        {"{'activeWindow': {'start': '10:00'}}", NULL, NULL, false, false, 0, false},
        {"{'activeWindow': {'start': '10:00', 'stop': '10:00'}}", NULL, NULL, false, false, 0,
         false},
        {"{'activeWindow': {'start': '10:0x', 'stop': '11:00'}}", NULL, NULL, false, false, 0,
         false},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const Row *row = &ROWS[i];
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        BalancerSettings settings;
        ErrCode rc = balancer_settings_parse(
            row->balancer != NULL ? test_doc(row->balancer, &arena) : DOC_NONE,
            row->chunk_size != NULL ? test_doc(row->chunk_size, &arena) : DOC_NONE,
            row->auto_merge != NULL ? test_doc(row->auto_merge, &arena) : DOC_NONE, &settings,
            &err);
        EXPECT_EQ_I64(rc, row->is_valid ? ERR_OK : ERR_BAD_VALUE);
        if (rc != ERR_OK)
            continue;
        EXPECT(settings.is_on == row->is_on);
        EXPECT_EQ_I64(settings.chunk_bytes, row->chunk_mb << 20);
        EXPECT(settings.merges == row->merges);
    }
}

TEST(settings_of_a_window_may_go_over_midnight) {
    static const struct {
        const char *start, *stop;
        int inside, outside;
    } ROWS[] = {
        {"10:00", "12:30", 10 * 60, 12 * 60 + 30},
        {"10:00", "12:30", 12 * 60 + 29, 9 * 60 + 59},
        {"23:00", "6:00", 0, 6 * 60},
        {"23:00", "6:00", 23 * 60, 22 * 60 + 59},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        const char *json = arena_printf(&arena, "{'activeWindow': {'start': '%s', 'stop': '%s'}}",
                                        ROWS[i].start, ROWS[i].stop);
        BalancerSettings settings;
        REQUIRE_OK(
            balancer_settings_parse(test_doc(json, &arena), DOC_NONE, DOC_NONE, &settings, &err),
            err);
        EXPECT(balancer_settings_is_in_window(&settings, ROWS[i].inside));
        EXPECT(!balancer_settings_is_in_window(&settings, ROWS[i].outside));
    }
}
