/*
 * bounds_test.c - the bounds of hashed and wildcard indexes, as explain shows them.
 *
 * That bounds find what they must is the business of exec/plan_diff_test.c; here it is about how
 * narrow they are.
 */
#include "query/bounds/bounds.h"

#include "base/test.h"
#include "query/bounds/wildcard.h"
#include "storage/fixture_test.h"
#include "bson/json_docs_test.h"

static const struct {
    const char *key;
    const char *filter;
    const char *bounds; /* NULL: the index is of no use */
} CASES[] = {
    {"{'a': 'hashed'}", "{'a': 1}", "{ a: [ \"[5902408780260971510, 5902408780260971510]\" ] }"},
    {"{'a': 'hashed'}", "{'a': {'$in': [1, 1.5]}}",
     "{ a: [ \"[5902408780260971510, 5902408780260971510]\" ] }"},
    {"{'a': 'hashed'}", "{'a': {'$gte': 1, '$lte': 1}}",
     "{ a: [ \"[5902408780260971510, 5902408780260971510]\" ] }"},
    {"{'a': 'hashed'}", "{'a': {'$gt': 1}}", NULL},
    {"{'a': 'hashed'}", "{'a': {'$ne': 1}}", NULL},
    {"{'a': 'hashed'}", "{'a': {'$regex': '^x'}}", NULL},
    {"{'a': 'hashed', 'b': 1}", "{'a': 1, 'b': {'$gt': 2}}",
     "{ a: [ \"[5902408780260971510, 5902408780260971510]\" ], b: [ \"(2, inf.0]\" ] }"},
    {"{'b': 1, 'a': 'hashed'}", "{'b': 3, 'a': {'$gt': 1}}",
     "{ b: [ \"[3, 3]\" ], a: [ \"[MinKey, MaxKey]\" ] }"},
    {"{'$**': 1}", "{'a': 5}", "{ $_path: [ \"[\\\"a\\\", \\\"a\\\"]\" ], a: [ \"[5, 5]\" ] }"},
    {"{'$**': -1}", "{'a.b': {'$lt': 5}}",
     "{ $_path: [ \"[\\\"a.b\\\", \\\"a.b\\\"]\" ], a.b: [ \"(5, -inf.0]\" ] }"},
    {"{'$**': 1}", "{'a': {'$exists': true}}",
     "{ $_path: [ \"[\\\"a\\\", \\\"a\\\"]\", \"[\\\"a.\\\", \\\"a/\\\")\" ], a: [ \"[MinKey, "
     "MaxKey]\" ] }"},
    {"{'$**': 1}", "{'a': {'$exists': true, '$gt': 5}}",
     "{ $_path: [ \"[\\\"a\\\", \\\"a\\\"]\" ], a: [ \"(5, inf.0]\" ] }"},
    {"{'$**': 1}", "{'a': {'$in': [1, null]}}", NULL},
    {"{'$**': 1}", "{'a': {'$elemMatch': {'$gt': 1, '$lt': 3}}}",
     "{ $_path: [ \"[\\\"a\\\", \\\"a\\\"]\" ], a: [ \"(1, 3)\" ] }"},
    {"{'$**': 1}", "{'a': {'$elemMatch': {'$ne': 1}}}", NULL},
    {"{'$**': 1}", "{'a': {'$elemMatch': {'b': 1}}}",
     "{ $_path: [ \"[\\\"a.b\\\", \\\"a.b\\\"]\" ], a.b: [ \"[1, 1]\" ] }"},
    {"{'$**': 1}", "{'a.0': 5}",
     "{ $_path: [ \"[\\\"a.0\\\", \\\"a.0\\\"]\" ], a.0: [ \"[5, 5]\" ] }"},
    {"{'$**': 1}", "{'a.0.1': 5}", NULL},
    {"{'$**': 1}", "{'_id': {'$gt': 5}}", NULL},
    {"{'x': 1, 'a.$**': 1}", "{'x': 1, 'a.b': 2}",
     "{ x: [ \"[1, 1]\" ], $_path: [ \"[\\\"a.b\\\", \\\"a.b\\\"]\" ], a.b: [ \"[2, 2]\" ] }"},
    {"{'x': 1, 'a.$**': 1}", "{'x': {'$gt': 1}}",
     "{ x: [ \"(1, inf.0]\" ], $_path: [ \"[MinKey, MinKey]\", \"[\\\"\\\", {})\" ] }"},
    {"{'$**': 1}", "{'a': {}}", "{ $_path: [ \"[\\\"a\\\", \\\"a\\\"]\" ], a: [ \"[{}, {}]\" ] }"},
    {"{'$**': 1}", "{'a': {'$gte': {}}}", NULL},
    {"{'$**': 1}", "{'a': {'$type': 'object'}}",
     "{ $_path: [ \"[\\\"a\\\", \\\"a\\\"]\", \"[\\\"a.\\\", \\\"a/\\\")\" ], a: [ \"[MinKey, "
     "MaxKey]\" ] }"},
    {"{'x': 1, 'a.$**': 1}", "{'a.b': 2}", NULL},
    {"{'a': 1}", "{'a': {'$_internalExprGt': 5}}", "{ a: [ \"(5, MaxKey]\" ] }"},
    {"{'a': 1}", "{'a': {'$_internalExprLt': null}}", "{ a: [ \"[MinKey, null]\" ] }"},
    {"{'$**': 1}", "{'a': {'$_internalExprGt': 5}}", NULL},
};

/* Of the index, or of the first view that the filter has of a wildcard index. */
static const char *bounds_of(StorageFixture *fx, const char *key, const char *filter_text,
                             Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc spec = test_doc(arena_printf(arena, "{'v': 2, 'key': %s, 'name': 'x'}", key), arena);
    IndexDesc *index = NULL;
    EXPECT_OK(index_desc_new(fx->engine, spec, "none", false, true, NULL, &index, &err), err);
    MatchExpr *filter;
    MatchParseContext ctx = {0};
    EXPECT_OK(match_parse(test_doc(filter_text, arena), &ctx, arena, &filter, &err), err);
    filter = match_optimize(filter, arena);
    IndexDesc *used = index;
    if (index->kind == INDEX_KIND_WILDCARD) {
        IndexDesc *views[WILDCARD_VIEWS_MAX];
        uint32_t count = 0;
        EXPECT_OK(wildcard_views(fx->op, index, filter, arena, views, &count, &err), err);
        used = count > 0 ? views[0] : NULL;
    }
    const char *text = NULL;
    IndexBounds bounds;
    if (used != NULL &&
        bounds_for_index(filter, used, NULL, /* is_null_told= */ true, arena, &bounds)) {
        DocBuilder b = doc_builder_in_arena(arena);
        bounds_to_bson(&bounds, used, /* is_forward= */ true, arena, &b);
        text = shell_text_of_doc(doc_builder_end(&b), arena);
    }
    index_desc_unref(index);
    return text;
}

TEST(bounds_of_hashed_and_wildcard_indexes) {
    StorageFixture fx;
    fixture_init(&fx);
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 8192);
        const char *bounds = bounds_of(&fx, CASES[i].key, CASES[i].filter, &arena);
        bool is_same = bounds == NULL || CASES[i].bounds == NULL
                           ? bounds == CASES[i].bounds
                           : strcmp(bounds, CASES[i].bounds) == 0;
        if (!is_same)
            test_fail(__FILE__, __LINE__, "%s on %s gives %s, expected %s", CASES[i].filter,
                      CASES[i].key, bounds, CASES[i].bounds);
        arena_done(&arena);
    }
    fixture_close(&fx);
}
