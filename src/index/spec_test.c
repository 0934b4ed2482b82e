/*
 * spec_test.c - collations of index specifications.
 */
#include "index/spec.h"

#include "base/test.h"
#include "bson/collator.h"
#include "bson/json.h"

static Doc json(const char *text, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc doc = DOC_EMPTY;
    EXPECT_OK(doc_from_json(text, arena, &doc, &err), err);
    return doc;
}

static const Collator *collator_of(const char *text, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    const Collator *collator = NULL;
    EXPECT_OK(collator_parse(json(text, arena), &collator, &err), err);
    return collator;
}

static const struct {
    const char *spec;
    const char *coll_collation;
    int code;
    const char *locale; /* of the index; NULL: simple */
} COLLATIONS[] = {
    {"{'key': {'a': 1}, 'name': 'x'}", "{'locale': 'simple'}", 0, NULL},
    {"{'key': {'a': 1}, 'name': 'x'}", "{'locale': 'fr'}", 0, "fr"},
    {"{'key': {'a': 1}, 'name': 'x', 'collation': {'locale': 'de'}}", "{'locale': 'fr'}", 0, "de"},
    {"{'key': {'a': 1}, 'name': 'x', 'collation': {'locale': 'simple'}}", "{'locale': 'fr'}", 0,
     NULL},
    {"{'key': {'_id': 1}, 'name': '_id_'}", "{'locale': 'fr'}", 0, "fr"},
    {"{'key': {'_id': 1}, 'name': '_id_', 'collation': {'locale': 'fr'}}", "{'locale': 'fr'}", 0,
     "fr"},
    {"{'key': {'_id': 1}, 'name': '_id_', 'collation': {'locale': 'de'}}", "{'locale': 'fr'}",
     ERR_BAD_VALUE, NULL},
    {"{'key': {'_id': 1}, 'name': '_id_', 'collation': {'locale': 'simple'}}", "{'locale': 'fr'}",
     ERR_BAD_VALUE, NULL},
    {"{'key': {'a': 1}, 'name': 'x', 'collation': {}}", "{'locale': 'fr'}", ERR_BAD_VALUE, NULL},
    {"{'key': {'a': 1}, 'name': 'x', 'collation': 'fr'}", "{'locale': 'fr'}", ERR_TYPE_MISMATCH,
     NULL},
    {"{'key': {'a': 1}, 'name': 'x', 'collation': {'locale': 'nonsense'}}", "{'locale': 'fr'}",
     ERR_BAD_VALUE, NULL},
};

TEST(indexes_inherit_the_collation_of_their_collection) {
    for (size_t i = 0; i < ARRAY_LEN(COLLATIONS); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        Doc spec = DOC_EMPTY;
        int rc = (int)index_spec_check(json(COLLATIONS[i].spec, &arena), &arena, &spec, &err);
        if (rc == 0)
            rc = (int)index_spec_complete(spec, collator_of(COLLATIONS[i].coll_collation, &arena),
                                          &arena, &spec, &err);
        if (rc != COLLATIONS[i].code)
            test_fail(__FILE__, __LINE__, "%s gives %d %s", COLLATIONS[i].spec, rc,
                      error_message(&err));
        Elem collation = rc == 0 ? doc_get_lit(spec, "collation") : ELEM_MISSING;
        if (COLLATIONS[i].locale == NULL) {
            EXPECT(!elem_is_present(collation));
        } else {
            REQUIRE(elem_type(collation) == BT_DOC);
            EXPECT_STR(elem_str(doc_get_lit(elem_doc(collation), "locale")).data,
                       COLLATIONS[i].locale);
            EXPECT_STR(elem_str(doc_get_lit(elem_doc(collation), "version")).data,
                       COLLATION_VERSION);
        }
        arena_done(&arena);
    }
}
