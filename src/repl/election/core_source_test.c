/* core_source_test.c - whom to copy from, as a table of worlds. */
#include "base/test.h"
#include "bson/json.h"
#include "repl/election/core.h"

#define TS(secs) ((uint64_t)(secs) << 32 | 1)

/* One other member, as heard by heartbeat. */
typedef struct Other {
    ReplState state; /* REPL_DOWN: never heard of */
    int64_t secs;
    int64_t term;
    int64_t ping_ms;
} Other;

typedef struct World {
    const char *json;
    Other others[4]; /* members 1, 2, ... */
} World;

static ReplNow now = {1000000, 1700000000000};

static ReplCore *core_of(const World *world, ReplActions *actions) {
    CLEANUP(arena_done) Arena arena = {0};
    Error err = {0};
    Doc doc;
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    if (doc_from_json(world->json, &arena, &doc, &err) != ERR_OK ||
        repl_config_parse(doc, REPL_CONFIG_ALLOW_ARBITERS, &config, &err) != ERR_OK)
        panic("%s: %s", world->json, error_message(&err));
    ReplStart start = {
        .set_name = "rs",
        .self_host = "h0:1",
        .config = config,
        .self_index = 0,
        .last_vote = {5, 0},
        .last_applied = {{TS(100), 5}, 100000},
        .seed = 1,
    };
    ReplOptions options = repl_options_default();
    ReplCore *core = repl_core_new(&start, &options, now);
    repl_core_set_follower_state(core, now, REPL_SECONDARY, actions);
    repl_core_tick(core, now, actions);
    for (uint32_t i = 0; i < actions->count; i++) {
        if (actions->items[i].kind != REPL_ACTION_HEARTBEAT)
            continue;
        const Other *other = &world->others[actions->items[i].member_index - 1];
        if (other->state == REPL_DOWN)
            continue;
        ReplPosition position = {{TS(other->secs), other->term}, other->secs * 1000};
        ReplHeartbeatReply reply = {.set_name = "rs",
                                    .state = other->state,
                                    .config_version = 1,
                                    .config_term = 1,
                                    .term = 5,
                                    .primary_id = -1,
                                    .applied = position,
                                    .durable = position,
                                    .commit_point = OPTIME_NONE};
        ReplActions unused = {0};
        repl_core_on_heartbeat_reply(core, now, actions->items[i].token, &reply, NULL,
                                     other->ping_ms, &unused);
        repl_actions_done(&unused);
    }
    return core;
}

#define MEMBER(id, more) "{'_id': " #id ", 'host': 'h" #id ":1'" more "}"
#define SET(members)     "{'_id': 'rs', 'version': 1, 'term': 1, 'members': [" members "]}"
#define PLAIN            SET(MEMBER(0, "") "," MEMBER(1, "") "," MEMBER(2, "") "," MEMBER(3, ""))
#define UNCHAINED                                                                                  \
    "{'_id': 'rs', 'version': 1, 'term': 1, 'members': [" MEMBER(0, "") "," MEMBER(                \
        1, "") "," MEMBER(2, "") "], 'settings': {'chainingAllowed': false}}"
#define NOBODY                                                                                     \
    { REPL_DOWN, 0, 0, 0 }

TEST(repl_sync_source_choice) {
    static const struct {
        const char *what;
        World world;
        int32_t chosen;
    } CASES[] = {
        {"nearest that is ahead",
         {PLAIN, {{REPL_PRIMARY, 110, 5, 30}, {REPL_SECONDARY, 109, 5, 10}, NOBODY}},
         2},
        {"nobody ahead",
         {PLAIN, {{REPL_PRIMARY, 100, 5, 30}, {REPL_SECONDARY, 99, 5, 10}, NOBODY}},
         -1},
        {"an older term is not ahead, whatever its clock",
         {PLAIN, {{REPL_SECONDARY, 900, 4, 1}, {REPL_SECONDARY, 101, 5, 10}, NOBODY}},
         2},
        {"recovering members are no sources",
         {PLAIN, {{REPL_RECOVERING, 110, 5, 1}, {REPL_SECONDARY, 109, 5, 10}, NOBODY}},
         2},
        {"one that lags behind the primary only if there is no other",
         {PLAIN, {{REPL_PRIMARY, 200, 5, 90}, {REPL_SECONDARY, 110, 5, 1}, NOBODY}},
         1},
        {"hidden ones are for the second pass",
         {SET(MEMBER(0, "") "," MEMBER(1, ", 'hidden': true, 'priority': 0") "," MEMBER(2, "")),
          {{REPL_SECONDARY, 110, 5, 1}, {REPL_SECONDARY, 110, 5, 50}}},
         2},
        {"but then they serve",
         {SET(MEMBER(0, "") "," MEMBER(1, ", 'hidden': true, 'priority': 0") "," MEMBER(2, "")),
          {{REPL_SECONDARY, 110, 5, 1}, NOBODY}},
         1},
        {"voters rather copy from voters",
         {SET(MEMBER(0, "") "," MEMBER(1, ", 'votes': 0, 'priority': 0") "," MEMBER(2, "")),
          {{REPL_SECONDARY, 110, 5, 1}, {REPL_SECONDARY, 110, 5, 50}}},
         2},
        {"delayed ones only for the delayed",
         {SET(MEMBER(0, "") "," MEMBER(1, ", 'secondaryDelaySecs': 5, 'priority': 0") "," MEMBER(
              2, "")),
          {{REPL_SECONDARY, 110, 5, 1}, {REPL_SECONDARY, 110, 5, 50}}},
         2},
        {"never from one that builds no indexes",
         {SET(MEMBER(0, "") "," MEMBER(1, ", 'buildIndexes': false, 'priority': 0")),
          {{REPL_SECONDARY, 110, 5, 1}}},
         -1},
        {"never from an arbiter",
         {SET(MEMBER(0, "") "," MEMBER(1, ", 'arbiterOnly': true")), {{REPL_ARBITER, 110, 5, 1}}},
         -1},
        {"without chaining from the primary",
         {UNCHAINED, {{REPL_PRIMARY, 110, 5, 90}, {REPL_SECONDARY, 110, 5, 1}}},
         1},
        {"or nobody", {UNCHAINED, {{REPL_SECONDARY, 110, 5, 90}, {REPL_SECONDARY, 110, 5, 1}}}, -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        ReplActions actions = {0};
        ReplCore *core = core_of(&CASES[i].world, &actions);
        int32_t chosen = repl_core_choose_sync_source(core, now, (OpTime){TS(100), 5});
        if (chosen != CASES[i].chosen)
            test_fail(__FILE__, __LINE__, "%s: %d", CASES[i].what, chosen);
        repl_core_free(core);
        repl_actions_done(&actions);
    }
}

static const World BOTH_AHEAD = {
    PLAIN, {{REPL_PRIMARY, 110, 5, 30}, {REPL_SECONDARY, 110, 5, 10}, NOBODY}};

TEST(repl_sync_source_denied_for_a_while) {
    ReplActions actions = {0};
    ReplCore *core = core_of(&BOTH_AHEAD, &actions);
    OpTime last = {TS(100), 5};
    EXPECT_EQ_I64(repl_core_choose_sync_source(core, now, last), 2);
    repl_core_deny_source(core, now, "h2:1", REPL_DENY_NETWORK_MS);
    EXPECT_EQ_I64(repl_core_choose_sync_source(core, now, last), 1);
    ReplNow later = {now.mono_ms + REPL_DENY_NETWORK_MS, now.wall_ms};
    EXPECT_EQ_I64(repl_core_choose_sync_source(core, later, last), 2);
    repl_core_free(core);
    repl_actions_done(&actions);
}

TEST(repl_sync_source_without_chaining_when_there_is_no_primary_for_long) {
    static const World ORPHANED = {UNCHAINED,
                                   {{REPL_SECONDARY, 110, 5, 90}, {REPL_SECONDARY, 110, 5, 1}}};
    ReplActions actions = {0};
    ReplCore *core = core_of(&ORPHANED, &actions);
    OpTime last = {TS(100), 5};
    ReplNow later = {now.mono_ms + 9999, now.wall_ms};
    EXPECT_EQ_I64(repl_core_choose_sync_source(core, later, last), -1);
    later.mono_ms++;
    EXPECT_EQ_I64(repl_core_choose_sync_source(core, later, last), 2);
    repl_core_free(core);
    repl_actions_done(&actions);
}

TEST(repl_sync_source_wishes) {
    static const struct {
        const char *host;
        int32_t code;
    } CASES[] = {
        {"h1:1", 0},
        {"h0:1", ERR_INVALID_OPTIONS},
        {"h9:1", ERR_NODE_NOT_FOUND},
        {"h3:1", ERR_HOST_UNREACHABLE},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        ReplActions actions = {0};
        ReplCore *core = core_of(&BOTH_AHEAD, &actions);
        OpTime last = {TS(100), 5};
        EXPECT_EQ_I64(repl_core_choose_sync_source(core, now, last), 2);
        CLEANUP(error_reset) Error err = {0};
        const char *warning = NULL;
        char previous[REPL_HOST_SIZE];
        EXPECT_EQ_I64(
            repl_core_sync_from(core, now, CASES[i].host, &warning, previous, &actions, &err),
            CASES[i].code);
        ReplOplogMetadata metadata = {.last_applied = {TS(110), 5}, .source_index = 1};
        const char *reason = "";
        bool is_change = repl_core_should_change_source(core, now, last, &metadata, &reason);
        EXPECT(is_change == (CASES[i].code == 0));
        if (CASES[i].code == 0) {
            EXPECT_STR(previous, "h2:1");
            EXPECT_EQ_I64(repl_core_choose_sync_source(core, now, last), 1);
        }
        repl_core_free(core);
        repl_actions_done(&actions);
    }
}

TEST(repl_sync_source_is_changed_for_a_reason) {
    static const struct {
        const char *reason; /* part of it; "" when there is none */
        World world;
        int32_t source;
        ReplOplogMetadata metadata;
        int64_t last_secs;
        int64_t after_ms;
    } CASES[] = {
        {"", BOTH_AHEAD, 2, {.last_applied = {TS(110), 5}, .source_index = 1}, 105, 0},
        {"is behind", BOTH_AHEAD, 2, {.last_applied = {TS(104), 5}, .source_index = 1}, 105, 0},
        {"no source",
         BOTH_AHEAD,
         2,
         {.last_applied = {TS(105), 5}, .source_index = -1, .primary_index = -1},
         105,
         0},
        {"copies from this member",
         BOTH_AHEAD,
         2,
         {.last_applied = {TS(105), 5}, .source_index = 0, .source_host = "h0:1"},
         105,
         0},
        {"nothing new",
         {PLAIN, {{REPL_PRIMARY, 110, 5, 30}, {REPL_SECONDARY, 105, 5, 10}, NOBODY}},
         2,
         {.last_applied = {TS(105), 5}, .source_index = 3, .source_host = "h3:1"},
         105,
         10000},
        {"",
         {PLAIN, {{REPL_PRIMARY, 110, 5, 30}, {REPL_SECONDARY, 105, 5, 10}, NOBODY}},
         2,
         {.last_applied = {TS(105), 5}, .source_index = 3, .source_host = "h3:1"},
         105,
         9000},
        {"further ahead",
         {PLAIN, {{REPL_PRIMARY, 200, 5, 30}, {REPL_SECONDARY, 110, 5, 10}, NOBODY}},
         2,
         {.last_applied = {TS(110), 5}, .source_index = 1, .source_host = "h1:1"},
         105,
         0},
        {"closer",
         {PLAIN, {{REPL_PRIMARY, 110, 5, 4}, {REPL_SECONDARY, 110, 5, 10}, NOBODY}},
         2,
         {.last_applied = {TS(110), 5}, .source_index = 1, .source_host = "h1:1"},
         105,
         0},
        {"",
         {PLAIN, {{REPL_PRIMARY, 110, 5, 5}, {REPL_SECONDARY, 110, 5, 10}, NOBODY}},
         2,
         {.last_applied = {TS(110), 5}, .source_index = 1, .source_host = "h1:1"},
         105,
         0},
        {"chaining",
         {UNCHAINED, {{REPL_PRIMARY, 110, 5, 5}, {REPL_SECONDARY, 110, 5, 1}}},
         2,
         {.last_applied = {TS(110), 5}, .source_index = 1, .source_host = "h1:1"},
         105,
         0},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        ReplActions actions = {0};
        CLEANUP(error_reset) Error err = {0};
        ReplCore *core = core_of(&CASES[i].world, &actions);
        const char *warning;
        char previous[REPL_HOST_SIZE];
        char host[REPL_HOST_SIZE] = "h0:1";
        host[1] = (char)('0' + CASES[i].source);
        OpTime last = {TS(CASES[i].last_secs), 5};
        EXPECT_OK(repl_core_sync_from(core, now, host, &warning, previous, &actions, &err), err);
        EXPECT_EQ_I64(repl_core_choose_sync_source(core, now, last), CASES[i].source);
        const char *reason = "";
        ReplNow later = {now.mono_ms + CASES[i].after_ms, now.wall_ms};
        bool is_change =
            repl_core_should_change_source(core, later, last, &CASES[i].metadata, &reason);
        if (is_change != (CASES[i].reason[0] != '\0') || strstr(reason, CASES[i].reason) == NULL)
            test_fail(__FILE__, __LINE__, "case %zu (%s): \"%s\"", i, CASES[i].reason, reason);
        repl_core_free(core);
        repl_actions_done(&actions);
    }
}

TEST(repl_sync_source_changes_for_ping_are_few) {
    static const World CLOSE = {PLAIN,
                                {{REPL_PRIMARY, 110, 5, 1}, {REPL_SECONDARY, 110, 5, 50}, NOBODY}};
    ReplActions actions = {0};
    ReplCore *core = core_of(&CLOSE, &actions);
    CLEANUP(error_reset) Error err = {0};
    OpTime last = {TS(105), 5};
    ReplOplogMetadata metadata = {.last_applied = {TS(110), 5}, .source_index = 1};
    const char *warning;
    const char *reason;
    char previous[REPL_HOST_SIZE];
    for (uint32_t change = 1; change <= 5; change++) {
        repl_core_clear_sync_source(core);
        EXPECT_OK(repl_core_sync_from(core, now, "h2:1", &warning, previous, &actions, &err), err);
        EXPECT_EQ_I64(repl_core_choose_sync_source(core, now, last), 2);
        EXPECT(repl_core_should_change_source(core, now, last, &metadata, &reason) == (change < 3));
    }
    ReplNow later = {now.mono_ms + 3600 * 1000, now.wall_ms};
    EXPECT(repl_core_should_change_source(core, later, last, &metadata, &reason));
    repl_core_free(core);
    repl_actions_done(&actions);
}
