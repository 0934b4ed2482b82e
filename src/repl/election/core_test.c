/* core_test.c - rules of the core one by one; their interplay is tested by repl/sim. */
#include "repl/election/core.h"

#include "base/test.h"
#include "bson/json.h"

typedef struct Fixture {
    ReplCore *core;
    ReplActions actions; /* of the last event */
    ReplNow now;
} Fixture;

#define TS(secs)        ((uint64_t)(secs) << 32 | 1)
#define AT(secs, term_) ((ReplPosition){{TS(secs), (term_)}, (secs)*1000LL})

static ReplConfig *config_of(const char *json) {
    CLEANUP(arena_done) Arena arena = {0};
    Error err = {0};
    Doc doc;
    ReplConfig *config = NULL;
    if (doc_from_json(json, &arena, &doc, &err) != ERR_OK ||
        repl_config_parse(doc, REPL_CONFIG_ALLOW_ARBITERS, &config, &err) != ERR_OK)
        panic("%s: %s", json, error_message(&err));
    return config;
}

static void fixture_done(Fixture *fx) {
    repl_core_free(fx->core);
    repl_actions_done(&fx->actions);
}

/* Member "h0:1" of the set, a secondary whose newest entry is of second 100 and that term. */
static Fixture fixture_in_term(const char *json, int64_t term) {
    ReplConfig *config = config_of(json);
    ReplStart start = {
        .set_name = "rs",
        .self_host = "h0:1",
        .config = config,
        .self_index = repl_config_find_host(config, "h0:1"),
        .last_vote = {term, 0},
        .last_applied = AT(100, term),
        .seed = 7,
    };
    ReplOptions options = repl_options_default();
    Fixture fx = {.now = {1000000, 1700000000000}};
    fx.core = repl_core_new(&start, &options, fx.now);
    repl_config_unref(config);
    repl_core_set_follower_state(fx.core, fx.now, REPL_SECONDARY, &fx.actions);
    return fx;
}

static Fixture fixture(const char *json) {
    return fixture_in_term(json, 1);
}

static void clear(Fixture *fx) {
    repl_actions_clear(&fx->actions);
}

static void tick(Fixture *fx, int64_t after_ms) {
    clear(fx);
    fx->now.mono_ms += after_ms;
    fx->now.wall_ms += after_ms;
    repl_core_tick(fx->core, fx->now, &fx->actions);
}

static const ReplAction *find(const Fixture *fx, ReplActionKind kind) {
    for (uint32_t i = 0; i < fx->actions.count; i++)
        if (fx->actions.items[i].kind == kind)
            return &fx->actions.items[i];
    return NULL;
}

static uint32_t count(const Fixture *fx, ReplActionKind kind) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < fx->actions.count; i++)
        found += fx->actions.items[i].kind == kind;
    return found;
}

static ReplHeartbeatReply reply_of(const Fixture *fx, ReplState state, ReplPosition position) {
    const ReplConfig *config = repl_core_config(fx->core);
    return (ReplHeartbeatReply){
        .set_name = "rs",
        .state = state,
        .config_version = config->version,
        .config_term = config->term,
        .term = repl_core_term(fx->core),
        .primary_id = -1,
        .is_electable = true,
        .applied = position,
        .durable = position,
        .commit_point = OPTIME_NONE,
    };
}

/* Sends what heartbeats are due and answers the one to `index`; the others stay open. */
static void answer_with(Fixture *fx, int32_t index, const ReplHeartbeatReply *reply, int64_t rtt) {
    if (count(fx, REPL_ACTION_HEARTBEAT) == 0)
        tick(fx, 2000);
    uint64_t token = 0;
    for (uint32_t i = 0; i < fx->actions.count; i++)
        if (fx->actions.items[i].kind == REPL_ACTION_HEARTBEAT &&
            fx->actions.items[i].member_index == index)
            token = fx->actions.items[i].token;
    repl_core_on_heartbeat_reply(fx->core, fx->now, token, reply, NULL, rtt, &fx->actions);
}

static void answer_all(Fixture *fx, ReplState state, ReplPosition position) {
    ReplHeartbeatReply reply = reply_of(fx, state, position);
    for (uint32_t i = 0; i < repl_core_config(fx->core)->member_count; i++)
        if ((int32_t)i != repl_core_self_index(fx->core))
            answer_with(fx, (int32_t)i, &reply, 10);
    clear(fx);
}

static void vote_all(Fixture *fx, bool is_granted) {
    uint64_t token = find(fx, REPL_ACTION_REQUEST_VOTE)->token;
    ReplVoteReply reply = {.term = repl_core_term(fx->core), .is_granted = is_granted};
    clear(fx);
    for (uint32_t i = 1; i < repl_core_config(fx->core)->member_count; i++)
        repl_core_on_vote_reply(fx->core, fx->now, token, (int32_t)i, &reply, &fx->actions);
}

/* Stands by the election timer and wins; writable at the end, term 2. */
static void become_primary(Fixture *fx) {
    tick(fx, 0);
    answer_all(fx, REPL_SECONDARY, AT(100, 1));
    fx->now.mono_ms = repl_core_election_deadline_ms(fx->core);
    tick(fx, 0);
    vote_all(fx, true);
    repl_core_own_vote_persisted(fx->core, fx->now, 2, true, &fx->actions);
    vote_all(fx, true);
    answer_all(fx, REPL_SECONDARY, AT(100, 1));
    repl_core_on_drained(fx->core, fx->now, 2, &fx->actions);
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = find(fx, REPL_ACTION_STORE_CONFIG)
                             ? repl_config_ref(find(fx, REPL_ACTION_STORE_CONFIG)->config)
                             : NULL;
    clear(fx);
    if (config != NULL)
        repl_core_config_stored(fx->core, fx->now, config, 0, &fx->actions);
    repl_core_on_own_position(fx->core, fx->now, AT(110, 2), AT(110, 2), &fx->actions);
    clear(fx);
}

#define MEMBER(id, more) "{'_id': " #id ", 'host': 'h" #id ":1'" more "}"
#define SET(members)     "{'_id': 'rs', 'version': 1, 'term': 1, 'members': [" members "]}"
#define THREE            SET(MEMBER(0, "") "," MEMBER(1, "") "," MEMBER(2, ""))

/* ---- elections ---- */

TEST(repl_core_single_member_elects_itself_at_once) {
    CLEANUP(fixture_done) Fixture fx = fixture(SET(MEMBER(0, "")));
    EXPECT(repl_core_next_tick_ms(fx.core) <= fx.now.mono_ms);
    tick(&fx, 0);
    const ReplAction *vote = find(&fx, REPL_ACTION_PERSIST_OWN_VOTE);
    REQUIRE(vote != NULL);
    EXPECT_EQ_I64(vote->last_vote.term, 2);
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_REQUEST_VOTE), 0);
    EXPECT(repl_core_state(fx.core) == REPL_SECONDARY);
    clear(&fx);
    repl_core_own_vote_persisted(fx.core, fx.now, 2, true, &fx.actions);
    EXPECT(find(&fx, REPL_ACTION_ELECTION_ENDED)->is_won);
    EXPECT(find(&fx, REPL_ACTION_START_DRAIN) != NULL);
    EXPECT(repl_core_state(fx.core) == REPL_PRIMARY);
    EXPECT(!repl_core_is_writable(fx.core));
    EXPECT(repl_core_hello(fx.core).is_secondary);
    clear(&fx);
    repl_core_on_drained(fx.core, fx.now, 2, &fx.actions);
    const ReplAction *store = find(&fx, REPL_ACTION_STORE_CONFIG);
    REQUIRE(store != NULL);
    EXPECT_EQ_I64(store->config->term, 2);
    EXPECT_EQ_I64(store->config->version, 1);
    const ReplAction *writable = find(&fx, REPL_ACTION_BECOME_WRITABLE);
    REQUIRE(writable != NULL);
    EXPECT(store < writable);
    /* The glue tells clients, once writes are taken. */
    EXPECT(find(&fx, REPL_ACTION_TOPOLOGY_CHANGED) == NULL);
    ReplHelloView hello = repl_core_hello(fx.core);
    EXPECT(hello.is_writable_primary && !hello.is_secondary && hello.has_election_id);
    EXPECT_EQ_I64(hello.election_id.bytes[0], 0x7f);
    EXPECT_EQ_I64(hello.election_id.bytes[11], 2);
    clear(&fx);
    repl_core_on_own_position(fx.core, fx.now, AT(110, 2), AT(100, 1), &fx.actions);
    EXPECT(find(&fx, REPL_ACTION_COMMIT_POINT) == NULL); /* not durable yet */
    repl_core_on_own_position(fx.core, fx.now, AT(110, 2), AT(110, 2), &fx.actions);
    REQUIRE(find(&fx, REPL_ACTION_COMMIT_POINT) != NULL);
    EXPECT_EQ_U64(find(&fx, REPL_ACTION_COMMIT_POINT)->optime.ts, TS(110));
}

TEST(repl_core_election_by_timeout_goes_through_dry_run_and_own_vote) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    int64_t wait_ms = repl_core_election_deadline_ms(fx.core) - fx.now.mono_ms;
    EXPECT(wait_ms >= 10000 && wait_ms <= 11500);
    tick(&fx, 0);
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_HEARTBEAT), 2);
    EXPECT_STR(repl_core_why_not_electable(fx.core, fx.now),
               "node cannot see a majority of the set's voting members");
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    EXPECT_STR(repl_core_why_not_electable(fx.core, fx.now), "");

    fx.now.mono_ms = repl_core_election_deadline_ms(fx.core);
    tick(&fx, 0);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_DRY_RUN);
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_REQUEST_VOTE), 2);
    const ReplVoteRequest *request = &find(&fx, REPL_ACTION_REQUEST_VOTE)->vote_request;
    EXPECT(request->is_dry_run);
    EXPECT_EQ_I64(request->term, 1); /* the dry run disturbs nobody */
    vote_all(&fx, true);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_OWN_VOTE);
    EXPECT_EQ_I64(repl_core_term(fx.core), 2);
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_REQUEST_VOTE), 0); /* not before it is durable */
    clear(&fx);
    repl_core_own_vote_persisted(fx.core, fx.now, 2, true, &fx.actions);
    request = &find(&fx, REPL_ACTION_REQUEST_VOTE)->vote_request;
    EXPECT(!request->is_dry_run);
    EXPECT_EQ_I64(request->term, 2);
    vote_all(&fx, true);
    EXPECT(repl_core_state(fx.core) == REPL_PRIMARY);
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_HEARTBEAT), 2); /* the news goes out at once */
    EXPECT(repl_core_metrics(fx.core)->successful[REPL_ELECTION_TIMEOUT] == 1);
}

TEST(repl_core_first_election_of_a_set_waits_for_a_majority_only) {
    CLEANUP(fixture_done)
    Fixture fx = fixture_in_term(
        "{'_id': 'rs', 'version': 1, 'term': 0, 'members': [" MEMBER(0, "") "," MEMBER(1, "") "," //
        MEMBER(2, "") "]}",
        REPL_CONFIG_TERM_INITIAL);
    tick(&fx, 0);
    ReplHeartbeatReply reply = reply_of(&fx, REPL_STARTUP, REPL_POSITION_NONE);
    reply.config_version = REPL_CONFIG_VERSION_NONE;
    answer_with(&fx, 1, &reply, 1);
    tick(&fx, 1);
    EXPECT(find(&fx, REPL_ACTION_REQUEST_VOTE) == NULL); /* it does not know of the set yet */

    /* When it does it says so with a heartbeat, and is looked at at once. */
    ReplHeartbeat heartbeat = {.set_name = "rs", .from = "h1:1", .from_id = 1, .primary_id = -1};
    heartbeat.config_version = repl_core_config(fx.core)->version;
    ReplHeartbeatReply own;
    Error err = {0};
    clear(&fx);
    EXPECT_OK(repl_core_on_heartbeat(fx.core, fx.now, &heartbeat, true, &own, &fx.actions, &err),
              err);
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_HEARTBEAT), 1);
    reply = reply_of(&fx, REPL_STARTUP2, REPL_POSITION_NONE);
    answer_with(&fx, 1, &reply, 1);
    tick(&fx, 1);
    EXPECT(find(&fx, REPL_ACTION_REQUEST_VOTE) != NULL);
}

TEST(repl_core_lost_dry_run_keeps_the_term) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    tick(&fx, 0);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    fx.now.mono_ms = repl_core_election_deadline_ms(fx.core);
    tick(&fx, 0);
    vote_all(&fx, false);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_FOLLOWER);
    EXPECT_EQ_I64(repl_core_term(fx.core), 1);
    EXPECT(repl_core_election_deadline_ms(fx.core) >= fx.now.mono_ms + 10000);
    const ReplAction *ended = find(&fx, REPL_ACTION_ELECTION_ENDED);
    EXPECT(ended != NULL && !ended->is_won);
    EXPECT_EQ_U64(repl_core_metrics(fx.core)->called[REPL_ELECTION_TIMEOUT], 0);
}

TEST(repl_core_votes_by_the_rules) {
    static const struct {
        ReplVoteRequest request;
        bool is_granted; /* a real one: after it is durable */
        const char *reason;
    } CASES[] = {
        {{"rs", true, 1, 1, 1, 1, {TS(100), 1}}, true, ""},
        {{"rs", true, 0, 1, 1, 1, {TS(100), 1}}, false, "lower than mine"},
        {{"rs", true, 1, 1, 0, 1, {TS(100), 1}}, false, "is older than mine"},
        {{"rs", true, 1, 1, 1, 0, {TS(100), 1}}, false, "is older than mine"},
        {{"rs", true, 1, 1, 2, 1, {TS(100), 1}}, true, ""},
        {{"xx", true, 1, 1, 1, 1, {TS(100), 1}}, false, "set name differs"},
        {{"rs", true, 1, 1, 1, 1, {TS(99), 1}}, false, "staler than mine"},
        {{"rs", true, 1, 1, 1, 1, {TS(200), 0}}, false, "staler than mine"},
        {{"rs", false, 1, 1, 1, 1, {TS(100), 1}}, false, "already voted"},
        {{"rs", false, 2, 1, 1, 1, {TS(100), 1}}, true, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(fixture_done) Fixture fx = fixture(THREE);
        CLEANUP(error_reset) Error err = {0};
        ReplVoteReply reply;
        bool must_persist;
        ReplLastVote vote;
        EXPECT_OK(repl_core_on_vote_request(fx.core, fx.now, &CASES[i].request, &reply,
                                            &must_persist, &vote, &fx.actions, &err),
                  err);
        bool is_real_grant = CASES[i].is_granted && !CASES[i].request.is_dry_run;
        EXPECT(must_persist == is_real_grant);
        EXPECT(strstr(reply.reason, CASES[i].reason) != NULL);
        if (is_real_grant) {
            EXPECT(!reply.is_granted); /* not yet */
            repl_core_vote_persisted(fx.core, fx.now, vote, true, &reply);
        }
        if (reply.is_granted != CASES[i].is_granted)
            test_fail(__FILE__, __LINE__, "vote case %zu: %s", i, reply.reason);
    }
}

TEST(repl_core_gives_one_vote_per_term_even_while_storing) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    CLEANUP(error_reset) Error err = {0};
    ReplVoteRequest request = {"rs", false, 2, 1, 1, 1, {TS(100), 1}};
    ReplVoteReply reply;
    bool must_persist;
    ReplLastVote vote;
    EXPECT_OK(repl_core_on_vote_request(fx.core, fx.now, &request, &reply, &must_persist, &vote,
                                        &fx.actions, &err),
              err);
    EXPECT(must_persist);
    bool other_must_persist;
    ReplLastVote other_vote;
    request.candidate_index = 2;
    EXPECT_OK(repl_core_on_vote_request(fx.core, fx.now, &request, &reply, &other_must_persist,
                                        &other_vote, &fx.actions, &err),
              err);
    EXPECT(!other_must_persist && !reply.is_granted);
    repl_core_vote_persisted(fx.core, fx.now, vote, false, &reply);
    EXPECT(!reply.is_granted); /* not durable, not granted */
    EXPECT_OK(repl_core_on_vote_request(fx.core, fx.now, &request, &reply, &other_must_persist,
                                        &other_vote, &fx.actions, &err),
              err);
    EXPECT(!other_must_persist); /* and used up */
}

TEST(repl_core_arbiter_keeps_a_primary_that_is_as_good) {
    CLEANUP(fixture_done)
    Fixture fx = fixture(SET(MEMBER(0, ", 'arbiterOnly': true") "," MEMBER(1, "") "," MEMBER(
        2, ", 'priority': 2") "," MEMBER(3, "")));
    EXPECT(repl_core_state(fx.core) == REPL_ARBITER);
    ReplHeartbeatReply primary = reply_of(&fx, REPL_PRIMARY, AT(100, 1));
    answer_with(&fx, 1, &primary, 5);
    EXPECT_EQ_I64(repl_core_primary_index(fx.core), 1);
    static const struct {
        int32_t candidate;
        bool is_granted;
    } CASES[] = {{2, true}, {3, false}};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        ReplVoteRequest request = {"rs", true, 1, CASES[i].candidate, 1, 1, {TS(100), 1}};
        ReplVoteReply reply;
        bool must_persist;
        ReplLastVote vote;
        EXPECT_OK(repl_core_on_vote_request(fx.core, fx.now, &request, &reply, &must_persist, &vote,
                                            &fx.actions, &err),
                  err);
        EXPECT(reply.is_granted == CASES[i].is_granted);
    }
    /* It never stands itself. */
    tick(&fx, 100000);
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_REQUEST_VOTE), 0);
    EXPECT_STR(repl_core_why_not_electable(fx.core, fx.now), "node is an arbiter");
}

TEST(repl_core_takes_over_by_priority_when_fresh) {
    static const struct {
        const char *json;
        int64_t primary_secs;
        int64_t delay_min_ms, delay_max_ms; /* 0: not at all */
    } CASES[] = {
        {SET(MEMBER(0, ", 'priority': 2") "," MEMBER(1, "") "," MEMBER(2, "")), 101, 10000, 11500},
        {SET(MEMBER(0, ", 'priority': 2") "," MEMBER(1, "") "," MEMBER(2, ", 'priority': 3")), 101,
         20000, 21500},
        {SET(MEMBER(0, ", 'priority': 2") "," MEMBER(1, "") "," MEMBER(2, "")), 110, 0, 0},
        {SET(MEMBER(0, "") "," MEMBER(1, "") "," MEMBER(2, "")), 101, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(fixture_done) Fixture fx = fixture(CASES[i].json);
        tick(&fx, 0);
        int64_t start_ms = 0;
        int64_t stood_ms = 0;
        for (uint32_t round = 0; round < 300 && stood_ms == 0; round++) {
            ReplHeartbeatReply primary = reply_of(&fx, REPL_PRIMARY, AT(CASES[i].primary_secs, 1));
            ReplHeartbeatReply secondary = reply_of(&fx, REPL_SECONDARY, AT(100, 1));
            if (count(&fx, REPL_ACTION_HEARTBEAT) > 0) {
                answer_with(&fx, 1, &primary, 5);
                answer_with(&fx, 2, &secondary, 5);
                if (start_ms == 0)
                    start_ms = fx.now.mono_ms;
            }
            tick(&fx, 100);
            if (repl_core_phase(fx.core) == REPL_PHASE_DRY_RUN)
                stood_ms = fx.now.mono_ms - start_ms;
        }
        bool is_right = CASES[i].delay_min_ms == 0 ? stood_ms == 0
                                                   : stood_ms >= CASES[i].delay_min_ms &&
                                                         stood_ms <= CASES[i].delay_max_ms + 200;
        if (!is_right)
            test_fail(__FILE__, __LINE__, "case %zu stood after %lld ms", i, (long long)stood_ms);
    }
}

TEST(repl_core_takes_over_from_a_primary_that_cannot_catch_up_if_nobody_has_more) {
    static const struct {
        int64_t other_secs;
        int64_t delay_min_ms, delay_max_ms; /* 0: not at all */
    } CASES[] = {{95, 30000, 33000}, {100, 30000, 33000}, {105, 0, 0}};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        /* However long an election time-out is. */
        CLEANUP(fixture_done)
        Fixture fx = fixture("{'_id': 'rs', 'version': 1, 'term': 1, 'members': [" MEMBER(
            0, "") "," MEMBER(1, "") "," MEMBER(2, "") "], 'settings': "
                                                       "{'electionTimeoutMillis': 86400000}}");
        tick(&fx, 0);
        int64_t start_ms = 0;
        int64_t stood_ms = 0;
        for (uint32_t round = 0; round < 500 && stood_ms == 0; round++) {
            ReplHeartbeatReply primary = reply_of(&fx, REPL_PRIMARY, AT(90, 1));
            ReplHeartbeatReply other = reply_of(&fx, REPL_SECONDARY, AT(CASES[i].other_secs, 1));
            primary.term = other.term = 2;
            if (count(&fx, REPL_ACTION_HEARTBEAT) > 0) {
                answer_with(&fx, 1, &primary, 5);
                answer_with(&fx, 2, &other, 5);
                if (start_ms == 0)
                    start_ms = fx.now.mono_ms;
            }
            tick(&fx, 100);
            if (repl_core_phase(fx.core) == REPL_PHASE_DRY_RUN)
                stood_ms = fx.now.mono_ms - start_ms;
        }
        bool is_right = CASES[i].delay_min_ms == 0 ? stood_ms == 0
                                                   : stood_ms >= CASES[i].delay_min_ms &&
                                                         stood_ms <= CASES[i].delay_max_ms + 200;
        if (!is_right)
            test_fail(__FILE__, __LINE__, "case %zu stood after %lld ms", i, (long long)stood_ms);
    }
}

/* ---- primaries ---- */

TEST(repl_core_higher_term_ends_a_primary_at_once) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    become_primary(&fx);
    EXPECT(repl_core_is_writable(fx.core));
    repl_core_on_term(fx.core, fx.now, 5, &fx.actions);
    const ReplAction *down = find(&fx, REPL_ACTION_STEP_DOWN);
    REQUIRE(down != NULL);
    EXPECT(down->step_down_reason == REPL_STEP_DOWN_HIGHER_TERM);
    EXPECT_EQ_I64(repl_core_term(fx.core), 5);
    EXPECT(repl_core_state(fx.core) == REPL_SECONDARY);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_STEPPING_DOWN);
    EXPECT_EQ_I64(repl_core_primary_index(fx.core), -1);
    EXPECT(repl_core_why_not_electable(fx.core, fx.now)[0] != '\0');
    EXPECT(find(&fx, REPL_ACTION_TOPOLOGY_CHANGED) != NULL);
    ReplHelloView hello = repl_core_hello(fx.core);
    EXPECT(!hello.is_writable_primary && !hello.is_secondary && !hello.has_election_id);
    EXPECT(hello.primary == hello.self);
    clear(&fx);
    repl_core_on_stepped_down(fx.core, fx.now, &fx.actions);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_FOLLOWER);
    EXPECT(find(&fx, REPL_ACTION_CHOOSE_SOURCE) != NULL);
    EXPECT(find(&fx, REPL_ACTION_TOPOLOGY_CHANGED) != NULL);
    hello = repl_core_hello(fx.core);
    EXPECT(hello.is_secondary && hello.primary == NULL);
}

TEST(repl_core_primary_without_a_majority_steps_down) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    become_primary(&fx);
    tick(&fx, 5000);
    EXPECT(repl_core_is_writable(fx.core));
    tick(&fx, 5000);
    const ReplAction *down = find(&fx, REPL_ACTION_STEP_DOWN);
    REQUIRE(down != NULL);
    EXPECT(down->step_down_reason == REPL_STEP_DOWN_NO_MAJORITY);
    EXPECT_EQ_I64(repl_core_term(fx.core), 2);
}

TEST(repl_core_primary_that_cannot_write_lets_others_try) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    become_primary(&fx);
    int64_t term = repl_core_term(fx.core);
    repl_core_cannot_write(fx.core, fx.now, term - 1, &fx.actions);
    EXPECT(find(&fx, REPL_ACTION_STEP_DOWN) == NULL);
    repl_core_cannot_write(fx.core, fx.now, term, &fx.actions);
    const ReplAction *down = find(&fx, REPL_ACTION_STEP_DOWN);
    REQUIRE(down != NULL);
    EXPECT(down->step_down_reason == REPL_STEP_DOWN_CANNOT_WRITE);
    clear(&fx);
    repl_core_cannot_write(fx.core, fx.now, term, &fx.actions); /* twice */
    EXPECT(find(&fx, REPL_ACTION_STEP_DOWN) == NULL);
    repl_core_on_stepped_down(fx.core, fx.now, &fx.actions);
    EXPECT(repl_core_why_not_electable(fx.core, fx.now)[0] != '\0');
}

static void report(Fixture *fx, int32_t member_id, ReplPosition position, int64_t term) {
    CLEANUP(error_reset) Error err = {0};
    static ReplUpdatePosition update;
    update = (ReplUpdatePosition){
        .positions = {{member_id, 1, position, position}},
        .count = 1,
        .has_metadata = true,
        .metadata = {.term = term},
    };
    bool is_news;
    EXPECT_OK(
        repl_core_on_update_position(fx->core, fx->now, &update, &is_news, &fx->actions, &err),
        err);
}

TEST(repl_core_positions_keep_a_primary_alive) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    become_primary(&fx);
    for (uint32_t i = 0; i < 10; i++) {
        report(&fx, 1, AT(110, 2), 2);
        tick(&fx, 5000);
        EXPECT(repl_core_is_writable(fx.core));
    }
}

TEST(repl_core_commits_by_majority_in_its_own_term_only) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    become_primary(&fx);
    /* All have second 100 of term 1, which is not enough in term 2. */
    EXPECT(optime_is_none(repl_core_commit_point(fx.core).optime));
    report(&fx, 1, AT(110, 2), 2);
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, TS(110));
    ReplWriteConcern majority = {.kind = REPL_W_MAJORITY};
    ReplWriteConcern three = {.kind = REPL_W_NUMBER, .number = 3};
    EXPECT(repl_core_is_concern_met(fx.core, &majority, true, (OpTime){TS(110), 2}));
    EXPECT(!repl_core_is_concern_met(fx.core, &majority, true, (OpTime){TS(111), 2}));
    EXPECT(!repl_core_is_concern_met(fx.core, &three, false, (OpTime){TS(110), 2}));
    report(&fx, 2, AT(110, 2), 2);
    EXPECT(repl_core_is_concern_met(fx.core, &three, false, (OpTime){TS(110), 2}));
    /* A report that carries a higher term commits nothing. */
    repl_core_on_own_position(fx.core, fx.now, AT(120, 2), AT(120, 2), &fx.actions);
    report(&fx, 1, AT(120, 2), 3);
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, TS(110));
    EXPECT(!repl_core_is_writable(fx.core));
}

TEST(repl_core_catches_up_to_the_newest_before_writing) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    tick(&fx, 0);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    CLEANUP(error_reset) Error err = {0};
    uint64_t token;
    REQUIRE_OK(
        repl_core_step_up(fx.core, fx.now, /* skips_dry_run= */ true, &token, &fx.actions, &err),
        err);
    repl_core_own_vote_persisted(fx.core, fx.now, 2, true, &fx.actions);
    vote_all(&fx, true);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_CATCH_UP);
    ReplHeartbeatReply newer = reply_of(&fx, REPL_SECONDARY, AT(105, 1));
    ReplHeartbeatReply same = reply_of(&fx, REPL_SECONDARY, AT(100, 1));
    answer_with(&fx, 1, &newer, 5);
    answer_with(&fx, 2, &same, 5);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_CATCH_UP);
    EXPECT_EQ_I64(repl_core_choose_sync_source(fx.core, fx.now, (OpTime){TS(100), 1}), 1);
    clear(&fx);
    repl_core_on_own_position(fx.core, fx.now, AT(105, 1), AT(100, 1), &fx.actions);
    EXPECT(find(&fx, REPL_ACTION_START_DRAIN) != NULL);
    EXPECT_EQ_U64(repl_core_metrics(fx.core)->catch_ups_succeeded, 1);
}

/* ---- step-down by command ---- */

TEST(repl_core_step_down_waits_for_a_successor_and_hands_off) {
    CLEANUP(fixture_done)
    Fixture fx = fixture(SET(MEMBER(0, ", 'priority': 9") "," MEMBER(1, "") "," MEMBER(
        2, ", 'priority': 5") "," MEMBER(3, ", 'priority': 0")));
    become_primary(&fx);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(repl_core_step_down(fx.core, fx.now, 60, 10, false, &fx.actions, &err), err);
    EXPECT(!repl_core_is_writable(fx.core));
    EXPECT_EQ_I64(repl_core_step_down(fx.core, fx.now, 60, 10, false, &fx.actions, &err),
                  ERR_CONFLICTING_OPERATION_IN_PROGRESS);
    report(&fx, 3, AT(110, 2), 2);
    report(&fx, 1, AT(110, 2), 2);
    /* A majority of three of four, one of them electable. */
    const ReplAction *hand_off = find(&fx, REPL_ACTION_HAND_OFF);
    REQUIRE(find(&fx, REPL_ACTION_STEP_DOWN) != NULL && hand_off != NULL);
    EXPECT_EQ_I64(hand_off->member_index, 1);
    clear(&fx);
    repl_core_on_stepped_down(fx.core, fx.now, &fx.actions);
    EXPECT(strstr(repl_core_why_not_electable(fx.core, fx.now), "step-down period") != NULL);
}

TEST(repl_core_step_down_fails_or_is_forced_when_time_is_up) {
    for (int is_force = 0; is_force <= 1; is_force++) {
        CLEANUP(fixture_done) Fixture fx = fixture(THREE);
        become_primary(&fx);
        CLEANUP(error_reset) Error err = {0};
        EXPECT_OK(repl_core_step_down(fx.core, fx.now, 60, 5, is_force, &fx.actions, &err), err);
        tick(&fx, 5000);
        EXPECT((find(&fx, REPL_ACTION_STEP_DOWN) != NULL) == is_force);
        EXPECT((find(&fx, REPL_ACTION_STEP_DOWN_FAILED) != NULL) == !is_force);
        EXPECT(repl_core_is_writable(fx.core) == !is_force);
    }
}

TEST(repl_core_commands_refuse_by_state) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_EQ_I64(repl_core_step_down(fx.core, fx.now, 60, 10, false, &fx.actions, &err),
                  ERR_NOT_WRITABLE_PRIMARY);
    EXPECT_EQ_I64(repl_core_set_maintenance(fx.core, fx.now, false, &fx.actions, &err),
                  ERR_OPERATION_FAILED);
    EXPECT_EQ_I64(repl_core_abort_catch_up(fx.core, fx.now, &fx.actions, &err),
                  ERR_ILLEGAL_OPERATION);
    EXPECT_OK(repl_core_set_maintenance(fx.core, fx.now, true, &fx.actions, &err), err);
    EXPECT(repl_core_state(fx.core) == REPL_RECOVERING);
    EXPECT_OK(repl_core_set_maintenance(fx.core, fx.now, false, &fx.actions, &err), err);
    EXPECT_OK(repl_core_freeze(fx.core, fx.now, 30, &fx.actions, &err), err);
    EXPECT(strstr(repl_core_why_not_electable(fx.core, fx.now), "frozen") != NULL);
    EXPECT_OK(repl_core_freeze(fx.core, fx.now, 0, &fx.actions, &err), err);
    error_reset(&err);
    become_primary(&fx);
    EXPECT_EQ_I64(repl_core_freeze(fx.core, fx.now, 1, &fx.actions, &err), ERR_NOT_SECONDARY);
    EXPECT_EQ_I64(repl_core_set_maintenance(fx.core, fx.now, true, &fx.actions, &err),
                  ERR_NOT_SECONDARY);
    EXPECT_EQ_I64(repl_core_step_down(fx.core, fx.now, 5, 10, false, &fx.actions, &err),
                  ERR_BAD_VALUE);
    EXPECT_EQ_I64(repl_core_step_down(fx.core, fx.now, -5, 0, false, &fx.actions, &err),
                  ERR_BAD_VALUE);
}

/* ---- heartbeats ---- */

TEST(repl_core_member_is_down_after_quick_retries) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    tick(&fx, 0);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    EXPECT(repl_core_member(fx.core, 1).is_up);
    tick(&fx, 2000);
    for (uint32_t attempt = 0; attempt < 3; attempt++) {
        EXPECT(repl_core_member(fx.core, 1).is_up);
        const ReplAction *action = NULL;
        for (uint32_t i = 0; i < fx.actions.count; i++)
            if (fx.actions.items[i].kind == REPL_ACTION_HEARTBEAT &&
                fx.actions.items[i].member_index == 1)
                action = &fx.actions.items[i];
        REQUIRE(action != NULL);
        uint64_t token = action->token;
        clear(&fx);
        repl_core_on_heartbeat_failure(fx.core, fx.now, token, ERR_HOST_UNREACHABLE, "refused",
                                       &fx.actions);
    }
    EXPECT_EQ_U64(count(&fx, REPL_ACTION_HEARTBEAT), 0);
    ReplMemberView view = repl_core_member(fx.core, 1);
    EXPECT(!view.is_up && view.state == REPL_DOWN);
    EXPECT_STR(view.message, "refused");
}

TEST(repl_core_ping_is_a_moving_average) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    ReplHeartbeatReply reply = reply_of(&fx, REPL_SECONDARY, AT(100, 1));
    tick(&fx, 0);
    answer_with(&fx, 1, &reply, 100);
    EXPECT_EQ_I64(repl_core_member(fx.core, 1).ping_ms, 100);
    tick(&fx, 2000);
    answer_with(&fx, 1, &reply, 50);
    EXPECT_EQ_I64(repl_core_member(fx.core, 1).ping_ms, 90);
}

TEST(repl_core_heartbeats_check_set_and_sender) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    static const struct {
        ReplHeartbeat heartbeat;
        bool has_data;
        int32_t code;
    } CASES[] = {
        {{"rs", 1, 1, "h1:1", 1, 1, -1, false}, true, 0},
        {{"xx", 1, 1, "h1:1", 1, 1, -1, false}, true, 108},
        {{"rs", 1, 1, "h9:1", 0, 1, -1, false}, true, 2},
        {{"rs", -2, -1, "h9:1", -1, 0, -1, true}, true, 110},
        {{"rs", -2, -1, "h9:1", -1, 0, -1, true}, false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        ReplHeartbeatReply reply;
        EXPECT_EQ_I64(repl_core_on_heartbeat(fx.core, fx.now, &CASES[i].heartbeat,
                                             CASES[i].has_data, &reply, &fx.actions, &err),
                      CASES[i].code);
        if (CASES[i].code == 0)
            EXPECT(doc_is_present(reply.config) == (CASES[i].heartbeat.config_version == -2));
    }
}

/* ---- the commit point of secondaries ---- */

TEST(repl_core_secondary_learns_commits_on_its_branch_only) {
    static const struct {
        OpTime heard;
        bool is_from_source;
        uint64_t result_ts; /* the own newest entry is of second 100, term 1 */
    } CASES[] = {
        {{TS(90), 1}, false, TS(90)},  {{TS(110), 1}, false, TS(110)}, /* one term, one history */
        {{TS(110), 2}, false, 0},                                      /* perhaps not our branch */
        {{TS(90), 0}, false, 0},       {{TS(90), 0}, true, TS(90)},
        {{TS(110), 2}, true, TS(100)}, /* ours is part of the source's history */
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(fixture_done) Fixture fx = fixture(THREE);
        ReplHeartbeatReply reply = reply_of(&fx, REPL_SECONDARY, AT(110, 1));
        tick(&fx, 0);
        if (!CASES[i].is_from_source)
            reply.commit_point = CASES[i].heard;
        answer_with(&fx, 1, &reply, 5);
        EXPECT_EQ_I64(repl_core_choose_sync_source(fx.core, fx.now, (OpTime){TS(100), 1}), 1);
        ReplOplogMetadata metadata = {.commit_point = CASES[i].heard, .primary_index = -1};
        if (CASES[i].is_from_source)
            repl_core_on_source_metadata(fx.core, fx.now, 1, 1, &metadata, &fx.actions);
        EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, CASES[i].result_ts);
    }
}

TEST(repl_core_commit_of_a_new_term_counts_from_its_first_entry_on) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    ReplHeartbeatReply reply = reply_of(&fx, REPL_SECONDARY, AT(130, 2));
    reply.commit_point = (OpTime){TS(120), 2};
    tick(&fx, 0);
    answer_with(&fx, 1, &reply, 5);
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, 0); /* perhaps not our branch */
    repl_core_on_own_position(fx.core, fx.now, AT(105, 1), AT(100, 1), &fx.actions);
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, 0);
    clear(&fx);
    repl_core_on_own_position(fx.core, fx.now, AT(110, 2), AT(105, 1), &fx.actions);
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, TS(120));
    EXPECT(find(&fx, REPL_ACTION_COMMIT_POINT) != NULL);
}

TEST(repl_core_rollback_stops_at_the_commit_point) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    ReplHeartbeatReply reply = reply_of(&fx, REPL_SECONDARY, AT(110, 1));
    reply.commit_point = (OpTime){TS(90), 1};
    tick(&fx, 0);
    answer_with(&fx, 1, &reply, 5);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_EQ_I64(repl_core_check_rollback(fx.core, (OpTime){TS(90), 1}, &err), ERR_OK);
    EXPECT_EQ_I64(repl_core_check_rollback(fx.core, (OpTime){TS(80), 1}, &err),
                  ERR_UNRECOVERABLE_ROLLBACK_ERROR);
}

/* ---- configurations ---- */

TEST(repl_core_newer_configuration_is_fetched_stored_then_used) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    tick(&fx, 0);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    CLEANUP(error_reset) Error err = {0};
    ReplHeartbeat heartbeat = {"rs", 2, 1, "h1:1", 1, 1, -1, false};
    ReplHeartbeatReply reply;
    EXPECT_OK(repl_core_on_heartbeat(fx.core, fx.now, &heartbeat, true, &reply, &fx.actions, &err),
              err);
    const ReplAction *ask = find(&fx, REPL_ACTION_HEARTBEAT);
    REQUIRE(ask != NULL);
    EXPECT_EQ_I64(ask->member_index, 1);
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = config_of(
        "{'_id': 'rs', 'version': 2, 'term': 1, 'members': [" MEMBER(0, "") "," MEMBER(1, "") "]}");
    ReplHeartbeatReply answer = reply_of(&fx, REPL_SECONDARY, AT(100, 1));
    uint64_t token = ask->token;
    clear(&fx);
    repl_core_on_heartbeat_reply(fx.core, fx.now, token, &answer, config, 1, &fx.actions);
    REQUIRE(find(&fx, REPL_ACTION_STORE_CONFIG) != NULL);
    EXPECT_EQ_I64(repl_core_config(fx.core)->version, 1); /* not before it is stored */
    EXPECT_EQ_I64(repl_core_begin_reconfig(fx.core, true, &err), ERR_CONFIGURATION_IN_PROGRESS);
    clear(&fx);
    repl_core_config_stored(fx.core, fx.now, config, 0, &fx.actions);
    EXPECT_EQ_I64(repl_core_config(fx.core)->version, 2);
    EXPECT(find(&fx, REPL_ACTION_TOPOLOGY_CHANGED) != NULL);
    EXPECT(repl_core_member(fx.core, 1).is_up); /* what was known stays known */
    /* An older one changes nothing. */
    CLEANUP(repl_config_unref_ptr) ReplConfig *older = config_of(THREE);
    repl_core_config_stored(fx.core, fx.now, older, 0, &fx.actions);
    EXPECT_EQ_I64(repl_core_config(fx.core)->version, 2);
    /* Removed. */
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *without =
        config_of("{'_id': 'rs', 'version': 3, 'term': 1, 'members': [" MEMBER(1, "") "]}");
    repl_core_config_stored(fx.core, fx.now, without, REPL_INDEX_NONE, &fx.actions);
    EXPECT(repl_core_state(fx.core) == REPL_REMOVED);
    EXPECT(!repl_core_hello(fx.core).is_member);
    tick(&fx, 100000);
    EXPECT_EQ_U64(fx.actions.count, 0);
}

TEST(repl_core_reconfig_needs_the_present_configuration_committed) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_EQ_I64(repl_core_begin_reconfig(fx.core, false, &err), ERR_NOT_WRITABLE_PRIMARY);
    become_primary(&fx);
    /* The others still say (1, 1). */
    EXPECT_EQ_I64(repl_core_begin_reconfig(fx.core, false, &err),
                  ERR_CURRENT_CONFIG_NOT_COMMITTED_YET);
    EXPECT(!repl_core_is_config_committed(fx.core));
    tick(&fx, 2000);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    EXPECT(repl_core_is_config_committed(fx.core));
    /* No entry of this term is committed yet. */
    EXPECT_EQ_I64(repl_core_begin_reconfig(fx.core, false, &err),
                  ERR_CURRENT_CONFIG_NOT_COMMITTED_YET);
    report(&fx, 1, AT(110, 2), 2);
    error_reset(&err);
    EXPECT_OK(repl_core_begin_reconfig(fx.core, false, &err), err);
    EXPECT_EQ_I64(repl_core_begin_reconfig(fx.core, false, &err), ERR_CONFIGURATION_IN_PROGRESS);
    repl_core_config_store_failed(fx.core);
    error_reset(&err);
    EXPECT_OK(repl_core_begin_reconfig(fx.core, false, &err), err);
}

TEST(repl_core_newly_added_member_counts_once_it_has_data) {
    CLEANUP(fixture_done)
    Fixture fx =
        fixture(SET(MEMBER(0, "") "," MEMBER(1, "") "," MEMBER(2, ", 'newlyAdded': true")));
    become_primary(&fx);
    EXPECT_EQ_U64(repl_core_config(fx.core)->voter_count, 2);
    tick(&fx, 2000);
    ReplHeartbeatReply syncing = reply_of(&fx, REPL_STARTUP2, REPL_POSITION_NONE);
    answer_with(&fx, 2, &syncing, 5);
    EXPECT(find(&fx, REPL_ACTION_REMOVE_NEWLY_ADDED) == NULL);
    tick(&fx, 2000);
    ReplHeartbeatReply done = reply_of(&fx, REPL_SECONDARY, AT(100, 1));
    answer_with(&fx, 2, &done, 5);
    const ReplAction *action = find(&fx, REPL_ACTION_REMOVE_NEWLY_ADDED);
    REQUIRE(action != NULL);
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = repl_core_config_for_newly_added(fx.core, action->member_id);
    REQUIRE(config != NULL);
    EXPECT_EQ_U64(config->voter_count, 3);
    EXPECT_EQ_I64(config->version, 2);
    EXPECT_EQ_I64(config->term, 2);
}

TEST(repl_core_few_data_members_commit_only_with_the_configuration_known) {
    CLEANUP(fixture_done)
    Fixture fx = fixture(SET(MEMBER(0, "") "," MEMBER(1, ", 'arbiterOnly': true")));
    become_primary(&fx);
    EXPECT(optime_is_none(repl_core_commit_point(fx.core).optime));
    tick(&fx, 2000);
    answer_all(&fx, REPL_ARBITER, REPL_POSITION_NONE); /* has the configuration of term 2 */
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, TS(110));
}

TEST(repl_core_new_voter_must_have_all_where_few_members_commit) {
    CLEANUP(fixture_done)
    Fixture fx = fixture(SET(MEMBER(0, "") "," MEMBER(1, ", 'arbiterOnly': true") "," MEMBER(
        2, ", 'newlyAdded': true")));
    become_primary(&fx);
    tick(&fx, 2000);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, TS(110));
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(repl_core_begin_reconfig(fx.core, false, &err), err);
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = repl_core_config_for_newly_added(fx.core, 2);
    REQUIRE(config != NULL);
    EXPECT_EQ_I64(repl_core_check_new_config(fx.core, config, &err),
                  ERR_CURRENT_CONFIG_NOT_COMMITTED_YET);
    /* The commit point stands still meanwhile, so that the new voter gets there. */
    repl_core_on_own_position(fx.core, fx.now, AT(120, 2), AT(120, 2), &fx.actions);
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, TS(110));
    report(&fx, 2, AT(110, 2), 2);
    error_reset(&err);
    EXPECT_OK(repl_core_check_new_config(fx.core, config, &err), err);
    repl_core_config_store_failed(fx.core);
    report(&fx, 2, AT(111, 2), 2);
    EXPECT_EQ_U64(repl_core_commit_point(fx.core).optime.ts, TS(120));
}

TEST(repl_core_new_configuration_ends_an_election) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    tick(&fx, 0);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    fx.now.mono_ms = repl_core_election_deadline_ms(fx.core);
    tick(&fx, 0);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_DRY_RUN);
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = config_of(
        "{'_id': 'rs', 'version': 2, 'term': 1, 'members': [" MEMBER(0, "") "," MEMBER(1, "") "]}");
    repl_core_config_stored(fx.core, fx.now, config, 0, &fx.actions);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_FOLLOWER);
    EXPECT(find(&fx, REPL_ACTION_ELECTION_ENDED) != NULL);
}

TEST(repl_core_goes_on_when_catching_up_would_need_a_rollback) {
    CLEANUP(fixture_done) Fixture fx = fixture(THREE);
    tick(&fx, 0);
    answer_all(&fx, REPL_SECONDARY, AT(100, 1));
    CLEANUP(error_reset) Error err = {0};
    uint64_t token;
    REQUIRE_OK(
        repl_core_step_up(fx.core, fx.now, /* skips_dry_run= */ true, &token, &fx.actions, &err),
        err);
    repl_core_own_vote_persisted(fx.core, fx.now, 2, true, &fx.actions);
    vote_all(&fx, true);
    EXPECT(repl_core_phase(fx.core) == REPL_PHASE_CATCH_UP);
    clear(&fx);
    repl_core_catch_up_failed(fx.core, fx.now, &fx.actions);
    EXPECT(find(&fx, REPL_ACTION_START_DRAIN) != NULL);
    EXPECT_EQ_U64(repl_core_metrics(fx.core)->catch_ups_failed_with_error, 1);
}
