/*
 * foreign_names_test.c - the collections that a pipeline names are found wherever they are written,
 * each once, and nothing else is taken for one.
 */
#include "query/agg/foreign_names.h"

#include "bson/json_docs_test.h"
#include "query/agg/query_stages.h"

/* "coll", "db.coll" of others, ">coll" of sinks; sorted as found. */
static const char *names_of(const char *stages, Arena *arena) {
    Doc doc = test_doc(arena_printf(arena, "{'s': %s}", stages), arena);
    ForeignNames names = {.arena = arena};
    foreign_names_add(&names, elem_doc(doc_get_lit(doc, "s")));
    const char *text = "";
    for (uint32_t i = 0; i < names.count; i++) {
        const ForeignName *row = &names.rows[i];
        text = arena_printf(arena, "%s%s%s%.*s%s%.*s", text, i > 0 ? " " : "",
                            row->is_sink ? ">" : "", (int)row->db.size, row->db.data,
                            row->db.size > 0 ? "." : "", (int)row->coll.size, row->coll.data);
    }
    return text;
}

TEST(foreign_names_are_found_at_any_depth_and_once) {
    static const struct {
        const char *stages, *names;
    } CASES[] = {
        {"[]", ""},
        {"[{'$match': {'$lookup': {'from': 'no'}}}, {'$project': {'from': 1}}]", ""},
        {"[{'$lookup': {'from': 'a', 'as': 'x'}}, {'$lookup': {'from': 'a', 'as': 'y'}}]", "a"},
        {"[{'$graphLookup': {'from': 'a'}}, {'$unionWith': 'b'}, {'$unionWith': {'coll': 'c'}}]",
         "a b c"},
        {"[{'$lookup': {'from': 'a', 'pipeline': [{'$unionWith': {'coll': 'b', 'pipeline': "
         "[{'$lookup': {'from': 'c'}}]}}]}}]",
         "a b c"},
        {"[{'$lookup': {'pipeline': [{'$documents': []}, {'$lookup': {'from': 'in'}}]}}]", "in"},
        {"[{'$facet': {'x': [{'$lookup': {'from': 'a'}}], 'y': [{'$unionWith': 'b'}]}}]", "a b"},
        {"[{'$out': 'o'}]", ">o"},
        {"[{'$out': {'db': 'd', 'coll': 'o'}}]", ">d.o"},
        {"[{'$lookup': {'from': 'o'}}, {'$merge': 'o'}]", "o >o"},
        {"[{'$merge': {'into': 'm', 'on': 'x'}}]", ">m"},
        {"[{'$merge': {'into': {'db': 'd', 'coll': 'm'}}}]", ">d.m"},
        /* What is malformed is somebody else's to refuse. */
        {"[1, {}, {'$lookup': 1}, {'$lookup': {'from': 1}}, {'$facet': 1}, {'$merge': 1}]", ""},
        {"[{'$lookup': {'pipeline': 1}}, {'$facet': {'x': 1}}, {'$unionWith': {'coll': 1}}]", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        EXPECT_STR(names_of(CASES[i].stages, &arena), CASES[i].names);
    }
}

TEST(a_query_becomes_the_stages_that_a_view_needs) {
    CLEANUP(arena_done) Arena arena = {0};
    QueryStages query = {
        .filter = test_doc("{'a': 1}", &arena),
        .sort = test_doc("{'b': -1}", &arena),
        .projection = DOC_EMPTY,
        .skip = 2,
        .limit = 3,
    };
    EXPECT_STR(test_json(query_stages(&query, &arena), &arena),
               test_json(test_doc("{'0': {'$match': {'a': 1}}, '1': {'$sort': {'b': -1}}, '2': "
                                  "{'$skip': {'$numberLong': '2'}}, '3': {'$limit': "
                                  "{'$numberLong': '3'}}}",
                                  &arena),
                         &arena));
    query = (QueryStages){.filter = DOC_NONE, .sort = DOC_NONE, .projection = DOC_NONE};
    EXPECT(doc_is_empty(query_stages(&query, &arena)));
    query.is_count = true;
    Doc count = query_stages(&query, &arena);
    EXPECT_STR(test_json(count, &arena),
               test_json(test_doc("{'0': {'$count': 'n'}}", &arena), &arena));
    Doc both = stages_concat(count, count, &arena);
    EXPECT_STR(test_json(both, &arena),
               test_json(test_doc("{'0': {'$count': 'n'}, '1': {'$count': 'n'}}", &arena), &arena));
}
