#include "up/layout.h"

#include "base/test.h"

static const UpOptions NOTHING = {.dir = "d"};

static Layout sample(void) {
    return (Layout){.replicas = 2,
                    .routers = 2,
                    .router_port = 27017,
                    .set_count = 3,
                    .ports = {{1, 2}, {3, 4}, {5, 65535}}};
}

TEST(layout_is_the_same_after_the_state_file) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    Layout layout = sample(), read = {0};
    Buffer text;
    buffer_init_arena(&text, &arena, 256, BUFFER_UNBOUNDED);
    layout_to_json(&layout, &text);
    buffer_append_byte(&text, '\0');
    REQUIRE_OK(layout_from_json((const char *)text.data, &arena, &read, &err), err);
    EXPECT(memcmp(&layout, &read, sizeof(layout)) == 0);
}

TEST(layout_of_a_damaged_state_file_is_refused) {
    static const char *const TEXTS[] = {
        "",
        "{",
        "{}",
        "{'version': 2, 'replicas': 1, 'routers': 1, 'port': 1, 'sets': [[1], [2]]}",
        "{'version': 1, 'replicas': 8, 'routers': 1, 'port': 1, 'sets': [[1], [2]]}",
        "{'version': 1, 'replicas': 1, 'routers': 1, 'port': 0, 'sets': [[1], [2]]}",
        "{'version': 1, 'replicas': 1, 'routers': 1, 'port': 1, 'sets': [[1]]}",
        "{'version': 1, 'replicas': 1, 'routers': 1, 'port': 1, 'sets': [[1], [2, 3]]}",
        "{'version': 1, 'replicas': 1, 'routers': 1, 'port': 1, 'sets': [[1], [65536]]}",
        "{'version': 1, 'replicas': 1, 'routers': 1, 'port': 1, 'sets': [[1], ['2']]}",
        "{'version': 1, 'replicas': 1, 'routers': 1, 'port': 1, 'sets': [1, 2]}",
    };
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
        CLEANUP(error_reset) Error err = {0};
        Layout layout;
        EXPECT(layout_from_json(TEXTS[i], &arena, &layout, &err) != ERR_OK);
    }
}

TEST(layout_has_defaults_and_remembers) {
    CLEANUP(error_reset) Error err = {0};
    Layout layout, again;
    REQUIRE_OK(layout_plan(NULL, &NOTHING, &layout, &err), err);
    EXPECT_EQ_I64(layout.set_count, 3);
    EXPECT_EQ_I64(layout.replicas, 1);
    EXPECT_EQ_I64(layout.routers, 1);
    EXPECT_EQ_I64(layout.router_port, 27017);
    layout = sample();
    REQUIRE_OK(layout_plan(&layout, &NOTHING, &again, &err), err);
    EXPECT(memcmp(&layout, &again, sizeof(layout)) == 0);
}

TEST(layout_grows_by_shards_and_changes_routers) {
    CLEANUP(error_reset) Error err = {0};
    Layout old = sample(), layout;
    UpOptions options = {.dir = "d", .shards = 4, .routers = 1, .port = 4000};
    REQUIRE_OK(layout_plan(&old, &options, &layout, &err), err);
    EXPECT_EQ_I64(layout.set_count, 5);
    EXPECT_EQ_I64(layout.ports[2][1], 65535);
    EXPECT_EQ_I64(layout.ports[3][0], 0);
    EXPECT_EQ_I64(layout.routers, 1);
    EXPECT_EQ_I64(layout.router_port, 4000);
}

TEST(layout_refuses_what_cannot_be_changed) {
    CLEANUP(error_reset) Error err = {0};
    Layout old = sample(), layout;
    UpOptions fewer = {.dir = "d", .shards = 1};
    EXPECT(layout_plan(&old, &fewer, &layout, &err) == ERR_BAD_VALUE);
    EXPECT_STR(error_message(&err), "--shards 1: the cluster in \"d\" has 2 shards, and none of "
                                    "them can be taken away");
    error_reset(&err);
    UpOptions more = {.dir = "d", .replicas = 3};
    EXPECT(layout_plan(&old, &more, &layout, &err) == ERR_BAD_VALUE);
    EXPECT_STR(error_message(&err),
               "--replicas 3: the cluster in \"d\" has sets of 2, which cannot be changed");
    error_reset(&err);
    UpOptions high = {.dir = "d", .port = 65535};
    EXPECT(layout_plan(&old, &high, &layout, &err) == ERR_BAD_VALUE);
    EXPECT_STR(error_message(&err), "--port 65535 leaves no room for 2 routers");
}

TEST(layout_names_its_parts) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    Layout layout = sample();
    Parts parts;
    layout_parts(&layout, &parts);
    EXPECT_EQ_I64(parts.count, 8);
    EXPECT_STR(parts.rows[0].name, "config-0");
    EXPECT_STR(parts.rows[5].name, "shard1-1");
    EXPECT_EQ_I64(parts.rows[5].port, 65535);
    EXPECT_STR(parts.rows[7].name, "router1");
    EXPECT_EQ_I64(parts.rows[7].port, 27018);
    EXPECT_STR(layout_set_address(&layout, 1, &arena), "shard0/127.0.0.1:3,127.0.0.1:4");
    EXPECT_STR(layout_uri(&layout, &arena), "mongodb://127.0.0.1:27017,127.0.0.1:27018/");
}
