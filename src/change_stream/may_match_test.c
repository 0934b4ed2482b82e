/*
 * may_match_test.c - judging a $match on raw entries never changes what a stream shows.
 *
 * Random entries and random filters over the fields of events, of other fields and of none: an
 * event that matches is never dropped before it is built, and a good part of those that do not
 * match is.
 */
#include "change_stream/event.h"

#include "base/prng.h"
#include "base/test.h"
#include "bson/json_docs_test.h"

static const char *const ENTRIES[] = {
    "{'op': 'i', 'ns': 'd.c', 'o': {'_id': 1, 'a': 1}, 'o2': {'_id': 1}}",
    "{'op': 'i', 'ns': 'd.e', 'o': {'_id': [1, 2], 'a': [1, {'b': 2}]}, 'o2': {'_id': [1, 2]}}",
    "{'op': 'i', 'ns': 'd.c', 'o': {'_id': {'x': 1}, 'a': null}, 'o2': {'_id': {'x': 1}}}",
    "{'op': 'u', 'ns': 'd.c', 'o': {'_id': 2, 'a': 'text'}, 'o2': {'_id': 2}}",
    "{'op': 'u', 'ns': 'd.c', 'o': {'$v': 2, 'diff': {'u': {'a': 2}}}, 'o2': {'_id': 1}}",
    "{'op': 'd', 'ns': 'd.c', 'o': {'_id': 1}}",
    "{'op': 'c', 'ns': 'd.$cmd', 'o': {'drop': 'c'}}",
    "{'op': 'c', 'ns': 'd.$cmd', 'o': {'renameCollection': 'd.c', 'to': 'd.e'}}",
    "{'op': 'c', 'ns': 'd.$cmd', 'o': {'create': 'e'}}",
    "{'op': 'c', 'ns': 'd.$cmd', 'o': {'dropDatabase': 1}}",
};

static const char *const PATHS[] = {
    "operationType",
    "ns",
    "ns.db",
    "ns.coll",
    "to",
    "to.coll",
    "documentKey",
    "documentKey._id",
    "documentKey._id.x",
    "fullDocument",
    "fullDocument.a",
    "fullDocument.a.b",
    "fullDocument.0",
    "clusterTime",
    "updateDescription",
    "updateDescription.updatedFields.a",
    "nothing",
    "_id",
    "wallTime",
    "fullDocument._id",
};

static const char *const OPERANDS[] = {
    "'insert'",
    "'update'",
    "'drop'",
    "'d'",
    "'c'",
    "'e'",
    "1",
    "2",
    "null",
    "'text'",
    "{'%eq': 1}",
    "{'%ne': 'insert'}",
    "{'%in': ['insert', 'delete', null]}",
    "{'%nin': ['replace', 2]}",
    "{'%exists': true}",
    "{'%exists': false}",
    "{'%gt': 0}",
    "{'%lte': 'd'}",
    "{'%type': 'object'}",
    "{'%regex': '^u'}",
    "{'%not': {'%gt': 1}}",
    "{'%elemMatch': {'b': 2}}",
    "{'%size': 2}",
    "{'db': 'd', 'coll': 'c'}",
    "{'_id': 1}",
    "[1, 2]",
    "{'%mod': [2, 1]}",
};

static const char *random_filter(Prng *prng, Arena *arena, int depth) {
    static const char *const LISTS[] = {"%and", "%or", "%nor"};
    if (depth > 0 && prng_below(prng, 3) == 0)
        return arena_printf(arena, "{'%s': [%s, %s]}", LISTS[prng_below(prng, 3)],
                            random_filter(prng, arena, depth - 1),
                            random_filter(prng, arena, depth - 1));
    return arena_printf(arena, "{'%s': %s}", PATHS[prng_below(prng, ARRAY_LEN(PATHS))],
                        OPERANDS[prng_below(prng, ARRAY_LEN(OPERANDS))]);
}

TEST(an_event_that_matches_is_never_dropped_before_it_is_built) {
    Prng prng = prng_seeded(3);
    int64_t dropped = 0, unmatched = 0;
    for (int i = 0; i < 60000; i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        const char *text = random_filter(&prng, &arena, 2);
        MatchExpr *match;
        MatchParseContext parse = {0};
        if (match_parse(test_query(text, &arena), &parse, &arena, &match, &err) != ERR_OK)
            continue;
        if (prng_below(&prng, 2) == 0)
            match = match_optimize(match, &arena);
        StreamChange change;
        const char *entry = ENTRIES[prng_below(&prng, ARRAY_LEN(ENTRIES))];
        change_read(test_query(entry, &arena), /* shows_views= */ false, &change);
        StreamFilter filter = {.scope = SCOPE_CLUSTER,
                               .shows_expanded = true,
                               .has_documents = prng_below(&prng, 2) == 0,
                               .match = match};
        ChangePlace place = {.ts = 7, .lsid = ELEM_MISSING, .txn_number = ELEM_MISSING};
        StreamToken token = event_token(&change, &place, &arena);
        EventImages images = {.document = DOC_NONE};
        if (filter.has_documents && change.kind == CHANGE_UPDATE) {
            images.has_document = true;
            if (prng_below(&prng, 2) == 0)
                images.document = test_doc("{'_id': 1, 'a': 2}", &arena);
        }
        EventOptions options = {.is_expanded = prng_below(&prng, 2) == 0};
        Doc event;
        REQUIRE_OK(event_build(&change, &place, token_encode(&token, &arena), &options, &images,
                               &arena, &event, &err),
                   err);
        bool is_match = match_doc(match, event, NULL);
        DocBuilder b = doc_builder_in_arena(&arena);
        DocIter iter = doc_iter(event);
        for (Elem elem; doc_iter_next(&iter, &elem);)
            if (elem_name_is(elem, STR("_id")) || elem_name_is(elem, STR("clusterTime")) ||
                elem_name_is(elem, STR("wallTime")))
                build_elem(&b, elem);
        Doc head = prng_below(&prng, 2) == 0 ? doc_builder_end(&b) : DOC_NONE;
        bool may_match = filter_may_match(&filter, &change, head);
        if (is_match && !may_match)
            test_fail(__FILE__, __LINE__, "%s drops %s", text, entry);
        unmatched += !is_match;
        dropped += !may_match;
    }
    EXPECT(dropped * 3 > unmatched);
}
