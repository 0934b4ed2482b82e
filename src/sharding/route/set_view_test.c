#include "sharding/route/set_view.h"

#include "base/test.h"
#include "bson/json.h"

static Arena arena; /* of the running test */

static Doc json(const char *text) {
    CLEANUP(error_reset) Error err = {0};
    Doc doc = DOC_EMPTY;
    EXPECT_OK(doc_from_json(text, &arena, &doc, &err), err);
    return doc;
}

static SetView *parse(const char *text) {
    CLEANUP(error_reset) Error err = {0};
    SetView *view = NULL;
    EXPECT_OK(set_view_parse(str_from(text), &view, &err), err);
    return view;
}

/* The view after `host` has said `hello`; takes the old one. */
static SetView *heard(SetView *take_view, const char *host, const char *hello, int64_t rtt_us) {
    SetView *next = set_view_with_hello(take_view, host, json(hello), rtt_us, 1000000);
    set_view_unref(take_view);
    return next;
}

#define ELECTION(n) "'electionId': {'$oid': '7fffffff00000000000000" #n "'}"
#define HOSTS       "'hosts': ['a:1', 'b:1', 'c:1']"
#define PRIMARY(n)                                                                                 \
    "{'ok': 1, 'setName': 'rs', 'isWritablePrimary': true, 'setVersion': 1, " ELECTION(            \
        n) ", " HOSTS "}"
#define SECONDARY "{'ok': 1, 'setName': 'rs', 'secondary': true, " HOSTS "}"

static int choose(const SetView *view, const char *preference) {
    CLEANUP(error_reset) Error err = {0};
    ReadPreference parsed;
    Doc doc = json(preference);
    EXPECT_OK(read_preference_parse(doc_get_lit(doc, "p"), &parsed, &err), err);
    Prng prng = prng_seeded(1);
    SelectRules rules = {&parsed, .near_us = 15000, .heartbeat_us = 10 * 1000000};
    return set_view_select(view, &rules, &prng);
}

TEST(set_view_addresses_are_names_and_hosts) {
    arena_init(&arena, 4096);
    SetView *view = parse("rs/b:2,a:1");
    EXPECT_EQ_U64(view->count, 2);
    EXPECT_STR(set_view_text(view, &arena), "rs/a:1,b:2");
    EXPECT_EQ_I64(set_view_primary(view), -1);
    set_view_unref(view);
    static const char *const BAD[] = {"", "rs", "/a:1", "rs/", "rs/a:1,", "rs/,a:1"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        CLEANUP(error_reset) Error err = {0};
        EXPECT_EQ_I64(set_view_parse(str_from(BAD[i]), &view, &err), ERR_FAILED_TO_PARSE);
    }
    arena_done(&arena);
}

TEST(set_view_follows_the_list_of_the_primary) {
    arena_init(&arena, 4096);
    SetView *view = parse("rs/x:1,a:1");
    view = heard(view, "a:1", SECONDARY, 100);
    EXPECT_STR(set_view_text(view, &arena),
               "rs/a:1,b:1,c:1,x:1"); /* all that are named are asked */
    view = heard(view, "b:1", PRIMARY(01), 100);
    EXPECT_STR(set_view_text(view, &arena), "rs/a:1,b:1,c:1");
    EXPECT_EQ_I64(set_view_primary(view), set_view_find(view, "b:1"));
    /* One that is not a member any more changes nothing. */
    view = heard(view, "x:1", PRIMARY(09), 100);
    EXPECT_EQ_I64(set_view_primary(view), set_view_find(view, "b:1"));
    set_view_unref(view);
    arena_done(&arena);
}

TEST(set_view_does_not_believe_a_primary_of_an_older_election) {
    arena_init(&arena, 4096);
    SetView *view = heard(parse("rs/a:1,b:1,c:1"), "a:1", PRIMARY(02), 100);
    view = heard(view, "b:1", PRIMARY(01), 100);
    EXPECT_EQ_I64(set_view_primary(view), set_view_find(view, "a:1"));
    EXPECT_EQ_I64(view->members[set_view_find(view, "b:1")].kind, SET_MEMBER_UNKNOWN);
    view = heard(view, "b:1", PRIMARY(03), 100);
    EXPECT_EQ_I64(set_view_primary(view), set_view_find(view, "b:1"));
    EXPECT_EQ_I64(view->members[set_view_find(view, "a:1")].kind, SET_MEMBER_UNKNOWN);
    set_view_unref(view);
    arena_done(&arena);
}

TEST(set_view_of_another_set_or_a_failed_member_knows_nothing) {
    arena_init(&arena, 4096);
    SetView *view = heard(parse("rs/a:1"), "a:1", PRIMARY(01), 100);
    view = heard(view, "a:1", "{'ok': 1, 'setName': 'other', 'isWritablePrimary': true}", 100);
    EXPECT_EQ_I64(set_view_primary(view), -1);
    view = heard(view, "a:1", PRIMARY(01), 100);
    EXPECT(set_view_primary(view) >= 0);
    SetView *failed = set_view_with_failure(view, "a:1");
    EXPECT_EQ_I64(set_view_primary(failed), -1);
    EXPECT(set_view_primary(view) >= 0); /* the old view is what it was */
    set_view_unref(failed);
    set_view_unref(view);
    arena_done(&arena);
}

TEST(set_view_ignores_news_that_are_older_than_what_the_member_said) {
    arena_init(&arena, 4096);
#define VERSION(n)                                                                                 \
    "'topologyVersion': {'processId': {'$oid': '000000000000000000000001'}, 'counter': "           \
    "{'$numberLong': '" #n "'}}"
    SetView *view = heard(parse("rs/a:1"), "a:1",
                          "{'ok': 1, 'setName': 'rs', 'secondary': true, " VERSION(7) "}", 100);
    view = heard(view, "a:1",
                 "{'ok': 1, 'setName': 'rs', 'isWritablePrimary': true, " VERSION(6) "}", 100);
    EXPECT_EQ_I64(view->members[0].kind, SET_MEMBER_SECONDARY);
    view = heard(view, "a:1",
                 "{'ok': 1, 'setName': 'rs', 'isWritablePrimary': true, " VERSION(8) "}", 100);
    EXPECT_EQ_I64(view->members[0].kind, SET_MEMBER_PRIMARY);
    set_view_unref(view);
    arena_done(&arena);
}

TEST(set_view_chooses_by_mode_tags_distance_and_staleness) {
    arena_init(&arena, 4096);
    SetView *view = heard(parse("rs/a:1,b:1,c:1"), "a:1",
                          "{'ok': 1, 'setName': 'rs', 'isWritablePrimary': true, " HOSTS
                          ", 'lastWrite': {'lastWriteDate': {'$date': {'$numberLong': '999000'}}}}",
                          1000);
    int a = set_view_find(view, "a:1"), b = set_view_find(view, "b:1"),
        c = set_view_find(view, "c:1");
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'secondary'}}"), -1);
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'secondaryPreferred'}}"), a);
    view = heard(view, "b:1",
                 "{'ok': 1, 'setName': 'rs', 'secondary': true, 'tags': {'dc': 'east'}, " HOSTS
                 ", 'lastWrite': {'lastWriteDate': {'$date': {'$numberLong': '800000'}}}}",
                 1000);
    view = heard(view, "c:1",
                 "{'ok': 1, 'setName': 'rs', 'secondary': true, 'tags': {'dc': 'west'}, " HOSTS
                 ", 'lastWrite': {'lastWriteDate': {'$date': {'$numberLong': '998000'}}}}",
                 90000);
    EXPECT_EQ_I64(choose(view, "{}"), a);
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'secondary'}}"), b); /* c is too far */
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'secondary', 'tags': [{'dc': 'west'}]}}"), c);
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'secondary', 'tags': [{'dc': 'north'}]}}"), -1);
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'secondary', 'tags': [{'dc': 'north'}, {}]}}"), b);
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'secondary', 'maxStalenessSeconds': 100}}"), c);
    EXPECT_EQ_I64(choose(view, "{'p': {'mode': 'primaryPreferred'}}"), a);
    SetView *without = set_view_with_failure(view, "a:1");
    EXPECT_EQ_I64(choose(without, "{'p': {'mode': 'primary'}}"), -1);
    EXPECT_EQ_I64(choose(without, "{'p': {'mode': 'primaryPreferred'}}"), b);
    EXPECT_EQ_I64(choose(without, "{'p': {'mode': 'secondary', 'maxStalenessSeconds': 100}}"), c);
    set_view_unref(without);
    set_view_unref(view);
    arena_done(&arena);
}

TEST(read_preferences_are_refused_where_they_make_no_sense) {
    arena_init(&arena, 4096);
    static const struct {
        const char *text;
        ErrCode code;
    } CASES[] = {
        {"{'p': 1}", ERR_TYPE_MISMATCH},
        {"{'p': {}}", ERR_TYPE_MISMATCH},
        {"{'p': {'mode': 'both'}}", ERR_FAILED_TO_PARSE},
        {"{'p': {'mode': 'primary', 'tags': [{'a': 'b'}]}}", ERR_BAD_VALUE},
        {"{'p': {'mode': 'primary', 'maxStalenessSeconds': 120}}", ERR_BAD_VALUE},
        {"{'p': {'mode': 'nearest', 'tags': {'a': 'b'}}}", ERR_TYPE_MISMATCH},
        {"{'p': {'mode': 'nearest', 'tags': [1]}}", ERR_TYPE_MISMATCH},
        {"{'p': {'mode': 'nearest', 'maxStalenessSeconds': 'x'}}", ERR_TYPE_MISMATCH},
        {"{'p': {'mode': 'nearest', 'maxStalenessSeconds': 89}}", ERR_MAX_STALENESS_OUT_OF_RANGE},
        {"{'p': {'mode': 'nearest', 'maxStalenessSeconds': -1}}", ERR_BAD_VALUE},
        {"{'p': {'mode': 'nearest', 'maxStalenessSeconds': 0}}", ERR_OK},
        {"{'p': {'mode': 'primary', 'tags': []}}", ERR_OK},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        ReadPreference preference;
        ErrCode rc =
            read_preference_parse(doc_get_lit(json(CASES[i].text), "p"), &preference, &err);
        if (rc != CASES[i].code)
            test_fail(__FILE__, __LINE__, "%s: %d", CASES[i].text, rc);
    }
    arena_done(&arena);
}

TEST(set_view_takes_seeds_only_when_nobody_is_there) {
    arena_init(&arena, 4096);
    SetView *seeds = parse("rs/b:1,x:1,y:1");
    SetView *view = heard(parse("rs/a:1,b:1"), "a:1", SECONDARY, 100);
    SetView *same = set_view_with_seeds(view, seeds);
    EXPECT(same == view);
    set_view_unref(same);
    SetView *gone = set_view_with_failure(view, "a:1");
    SetView *next = set_view_with_seeds(gone, seeds);
    EXPECT_STR(set_view_text(next, &arena), "rs/a:1,b:1,c:1,x:1,y:1");
    SetView *again = set_view_with_seeds(next, seeds);
    EXPECT(again == next);
    set_view_unref(again);
    next = heard(next, "x:1", PRIMARY(01), 100); /* who says what the set is */
    EXPECT_STR(set_view_text(next, &arena), "rs/a:1,b:1,c:1");
    set_view_unref(next);
    set_view_unref(gone);
    set_view_unref(view);
    set_view_unref(seeds);
    arena_done(&arena);
}
