/*
 * wildcard_test.c - which paths a wildcard index has.
 */
#include "catalog/wildcard.h"

#include "base/test.h"
#include "bson/json.h"

static const struct {
    const char *field;
    const char *projection; /* NULL: none */
    const char *path;
    WildcardReach reach;
} CASES[] = {
    {"$**", NULL, "a", WILDCARD_INSIDE},
    {"$**", NULL, "a.b.c", WILDCARD_INSIDE},
    {"$**", NULL, "_id", WILDCARD_OUTSIDE},
    {"$**", NULL, "_id.x", WILDCARD_OUTSIDE},
    {"$**", NULL, "_identity", WILDCARD_INSIDE},
    {"a.$**", NULL, "a", WILDCARD_INSIDE},
    {"a.$**", NULL, "a.b", WILDCARD_INSIDE},
    {"a.$**", NULL, "ab", WILDCARD_OUTSIDE},
    {"a.b.$**", NULL, "a", WILDCARD_ABOVE},
    {"a.b.$**", NULL, "a.c", WILDCARD_OUTSIDE},
    {"_id.$**", NULL, "_id.x", WILDCARD_INSIDE},
    {"$**", "{'a.b': 1}", "a", WILDCARD_ABOVE},
    {"$**", "{'a.b': 1}", "a.b.c", WILDCARD_INSIDE},
    {"$**", "{'a.b': 1}", "c", WILDCARD_OUTSIDE},
    {"$**", "{'a.b': 1}", "_id", WILDCARD_OUTSIDE},
    {"$**", "{'a': {'b': true}, '_id': 1}", "_id", WILDCARD_INSIDE},
    {"$**", "{'a': {'b': 0}}", "a", WILDCARD_ABOVE},
    {"$**", "{'a': {'b': 0}}", "a.b", WILDCARD_OUTSIDE},
    {"$**", "{'a': {'b': 0}}", "a.c", WILDCARD_INSIDE},
    {"$**", "{'a': 0}", "_id", WILDCARD_OUTSIDE},
    {"$**", "{'a': 0, '_id': 1}", "_id", WILDCARD_INSIDE},
    {"$**", "{'_id': 1}", "a", WILDCARD_OUTSIDE},
    {"$**", "{'_id': 0}", "a", WILDCARD_INSIDE},
};

TEST(a_wildcard_reaches_what_its_projection_says) {
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 1024);
        CLEANUP(error_reset) Error err = {0};
        Doc projection = DOC_NONE;
        if (CASES[i].projection != NULL)
            EXPECT_OK(doc_from_json(CASES[i].projection, &arena, &projection, &err), err);
        WildcardPaths *paths = NULL;
        EXPECT_OK(wildcard_paths_parse(str_from(CASES[i].field), projection, &arena, &paths, &err),
                  err);
        WildcardReach reach = wildcard_reach(paths, str_from(CASES[i].path));
        if (reach != CASES[i].reach)
            test_fail(__FILE__, __LINE__, "%s with %s: %s is %d", CASES[i].field,
                      CASES[i].projection, CASES[i].path, (int)reach);
        arena_done(&arena);
    }
}
