/*
 * spec_test.c - collations of index specifications; what each kind of index may be.
 */
#include "index/spec.h"

#include "base/test.h"
#include "bson/collator.h"
#include "bson/json_docs_test.h"

static const Collator *collator_of(const char *text, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    const Collator *collator = NULL;
    EXPECT_OK(collator_parse(test_doc(text, arena), &collator, &err), err);
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
    {"{'v': 1, 'key': {'a': 1}, 'name': 'x'}", "{'locale': 'fr'}", 0, NULL},
    {"{'v': 1, 'key': {'a': 1}, 'name': 'x', 'collation': {'locale': 'de'}}", "{'locale': 'fr'}",
     ERR_CANNOT_CREATE_INDEX, NULL},
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
        int rc = (int)index_spec_check(test_doc(COLLATIONS[i].spec, &arena), &arena, &spec, &err);
        if (rc == 0)
            rc = (int)index_spec_complete(spec, collator_of(COLLATIONS[i].coll_collation, &arena),
                                          /* is_stored= */ false, &arena, &spec, &err);
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

TEST(stored_indexes_inherit_no_collation_but_that_on_id) {
    static const struct {
        const char *spec;
        bool has_collation;
    } CASES[] = {{"{'key': {'a': 1}, 'name': 'x'}", false},
                 {"{'key': {'a': 1}, 'name': 'x', 'collation': {'locale': 'fr'}}", true},
                 {"{'key': {'_id': 1}, 'name': '_id_'}", true}};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        Doc spec = DOC_EMPTY;
        REQUIRE_OK(index_spec_check(test_doc(CASES[i].spec, &arena), &arena, &spec, &err), err);
        REQUIRE_OK(index_spec_complete(spec, collator_of("{'locale': 'fr'}", &arena),
                                       /* is_stored= */ true, &arena, &spec, &err),
                   err);
        EXPECT(elem_is_present(doc_get_lit(spec, "collation")) == CASES[i].has_collation);
        arena_done(&arena);
    }
}

static const struct {
    const char *spec;
    int code;
} KINDS[] = {
    {"{'key': {'a': 'hashed'}, 'name': 'x'}", 0},
    {"{'key': {'a': 1, 'b': 'hashed'}, 'name': 'x'}", 0},
    {"{'key': {'a': 'hashed', 'b': 'hashed'}, 'name': 'x'}", 31303},
    {"{'key': {'a': 'hashed'}, 'name': 'x', 'unique': true}", 16764},
    {"{'key': {'a': 'nonsense'}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a': 'text'}, 'name': 'x'}", ERR_NOT_IMPLEMENTED},
    {"{'key': {'$**': 1}, 'name': 'x'}", 0},
    {"{'key': {'$**': -1}, 'name': 'x'}", 0},
    {"{'key': {'a.b.$**': 1}, 'name': 'x'}", 0},
    {"{'key': {'a.$**.b': 1}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'$**.b': 1}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a$**': 1}, 'name': 'x'}", 0}, /* a field of that name */
    {"{'key': {'$a': 1}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'$**': 'hashed'}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'$**': 1}, 'name': 'x', 'unique': true}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'$**': 1}, 'name': 'x', 'sparse': true}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'$**': 1}, 'name': 'x', 'expireAfterSeconds': 1}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 1}}", 0},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 1, '_id': 0}}", 0},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 0, '_id': 1}}", 0},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 0, 'b': 1}}", 31253},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 1, 'b': 0}}", 31254},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': {}}", ERR_FAILED_TO_PARSE},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 1, 'b': 'c'}}", 51271},
    {"{'key': {'$**': 1}, 'name': 'x', 'v': 1}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'_id': 1}, 'name': 'x', 'clustered': true, 'unique': true}", 0},
    {"{'key': {'_id': 1}, 'name': 'x', 'clustered': false}", 6492800},
    {"{'key': {'a': 1}, 'name': 'x', 'clustered': true}", 6243700},
    {"{'key': {'$**': 1}, 'name': 'x', 'wildcardProjection': 1}", ERR_TYPE_MISMATCH},
    {"{'key': {'a.$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 1}}", ERR_FAILED_TO_PARSE},
    {"{'key': {'a': 1}, 'name': 'x', 'wildcardProjection': {'a': 1}}", ERR_BAD_VALUE},
    {"{'key': {'a': 1, 'b.$**': 1}, 'name': 'x'}", 0},
    {"{'key': {'b.c': 1, 'b.$**': 1}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a': 1, '$**': 1}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a': 1, '$**': 1}, 'name': 'x', 'wildcardProjection': {'a': 0}}", 0},
    {"{'key': {'a.$**': 1, 'b.$**': 1}, 'name': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a': 1}, 'name': 'x', 'expireAfterSeconds': 0}", 0},
    {"{'key': {'a': 1}, 'name': 'x', 'expireAfterSeconds': 2147483647}", 0},
    {"{'key': {'a': 1}, 'name': 'x', 'expireAfterSeconds': 2147483648}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a': 1}, 'name': 'x', 'expireAfterSeconds': -1}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a': 1}, 'name': 'x', 'expireAfterSeconds': 'x'}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'a': 1, 'b': 1}, 'name': 'x', 'expireAfterSeconds': 1}", ERR_CANNOT_CREATE_INDEX},
    {"{'key': {'_id': 1}, 'name': '_id_', 'expireAfterSeconds': 1}",
     ERR_INVALID_INDEX_SPECIFICATION_OPTION},
    {"{'key': {'a': 1}, 'name': 'x', 'prepareUnique': true}", 0},
    {"{'key': {'a': 1}, 'name': 'x', 'storageEngine': {'wiredTiger': {}}}", 0},
    {"{'key': {'a': 1}, 'name': 'x', 'storageEngine': {'wiredTiger': {'configString': 'x=1'}}}",
     ERR_NOT_IMPLEMENTED},
    {"{'key': {'a': 1}, 'name': 'x', 'storageEngine': {'other': {}}}", ERR_NOT_IMPLEMENTED},
};

TEST(each_kind_of_index_has_its_rules) {
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        Doc spec;
        int rc = (int)index_spec_check(test_doc(KINDS[i].spec, &arena), &arena, &spec, &err);
        if (rc != KINDS[i].code)
            test_fail(__FILE__, __LINE__, "%s gives %d %s, expected %d", KINDS[i].spec, rc,
                      error_message(&err), KINDS[i].code);
        arena_done(&arena);
    }
}

TEST(a_ttl_index_of_no_number_never_expires) {
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error err = {0};
    Doc spec = DOC_EMPTY;
    EXPECT_OK(index_spec_check(test_doc("{'key': {'a': 1}, 'name': 'x', 'expireAfterSeconds': "
                                        "{'$numberDouble': 'NaN'}}",
                                        &arena),
                               &arena, &spec, &err),
              err);
    EXPECT_EQ_I64(elem_as_i64(doc_get_lit(spec, "expireAfterSeconds")), INT32_MAX);
    arena_done(&arena);
}
