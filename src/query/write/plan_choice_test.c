/*
 * plan_choice_test.c - what the planner decides beside the rows that come out.
 *
 * Method: one collection with a few indexes; each case is planned, and the operation and the plan
 * are looked at.
 */
#include "bson/json.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "query/write/modify.h"
#include "query/plan/planner.h"
#include "storage/fixture_test.h"

typedef struct Chooser {
    StorageFixture fx;
    Arena arena;
    Ns ns;
} Chooser;

static Doc json(Chooser *c, const char *text) {
    Error err = {0};
    Doc doc;
    EXPECT_OK(doc_from_json(text, &c->arena, &doc, &err), err);
    return doc;
}

static void chooser_init(Chooser *c, const char *const *specs, size_t spec_count) {
    fixture_init(&c->fx);
    arena_init(&c->arena, 4096);
    Error err = {0};
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(c->fx.op, CATALOG_UNFINISHED_DISCARD, &service, &err), err);
    EXPECT_OK(ns_parse(STR("db.choices"), &c->ns, &err), err);
    EXPECT_OK(ddl_create_collection(c->fx.op, &c->ns, DOC_EMPTY, NULL, &err), err);
    for (size_t i = 0; i < spec_count; i++) {
        Doc spec = json(c, specs[i]);
        CreateIndexesResult result;
        EXPECT_OK(ddl_create_indexes(c->fx.op, &c->ns, &spec, 1, &result, &err), err);
    }
}

static void chooser_done(Chooser *c) {
    catalog_service_free(c->fx.service.catalog);
    c->fx.service.catalog = NULL;
    arena_done(&c->arena);
    fixture_close(&c->fx);
}

TEST(scans_from_end_to_end_have_low_priority) {
    static const char *const INDEXES[] = {"{'key': {'a': 1, 'b': 1}, 'name': 'ab'}",
                                          "{'key': {'$**': 1}, 'name': 'all'}"};
    static const struct {
        const char *spec; /* filter, sort, hint, min, limit, count, distinct */
        bool is_low;
    } CASES[] = {
        {"{'filter': {'c.0.0': 1}}", true},
        {"{'filter': {'c.0.0': 1}, 'limit': 5}", false},
        {"{'sort': {'a': 1}}", true},
        {"{'sort': {'a': 1}, 'limit': 5}", false},
        {"{'filter': {'b': {'$ne': 3}}, 'hint': 'ab'}", true},
        {"{'filter': {'a': {'$gt': 3}}, 'hint': 'ab'}", false},
        {"{'filter': {'a': {'$in': [1, 2]}}, 'sort': {'b': 1}, 'hint': 'ab'}", false},
        {"{'hint': 'ab', 'min': {'a': 1, 'b': 1}}", false},
        {"{'hint': 'ab', 'count': true}", true},
        {"{'filter': {'c': 4}}", false},
        {"{'filter': {'_id': 4}}", false},
    };
    Chooser c = {0};
    chooser_init(&c, INDEXES, ARRAY_LEN(INDEXES));
    for (size_t i = 0; i < ARRAY_LEN(CASES) * 2; i++) {
        bool is_asked = i % 2 == 0; /* without the setting nothing has */
        Doc wanted = json(&c, CASES[i / 2].spec);
        Elem filter = doc_get_lit(wanted, "filter"), sort = doc_get_lit(wanted, "sort");
        Elem min = doc_get_lit(wanted, "min"), limit = doc_get_lit(wanted, "limit");
        QuerySpec spec = {.filter = elem_is_present(filter) ? elem_doc(filter) : DOC_NONE,
                          .sort = elem_is_present(sort) ? elem_doc(sort) : DOC_NONE,
                          .min = elem_is_present(min) ? elem_doc(min) : DOC_NONE,
                          .hint = doc_get_lit(wanted, "hint"),
                          .limit = elem_is_present(limit) ? elem_as_i64(limit) : 0,
                          .is_count = elem_is_present(doc_get_lit(wanted, "count")),
                          .is_scan_deprioritized = is_asked,
                          .is_index_scan_deprioritized = is_asked};
        OpCtx *op = c.fx.op;
        Error err = {0};
        op->admission_priority = ADMISSION_NORMAL;
        CollAccess access = {0};
        PlanExecutor *exec = NULL;
        EXPECT_OK(access_read(op, &c.ns, &access, &err), err);
        EXPECT_OK(plan_query(&access, &spec, &exec, &err), err);
        bool is_low = op->admission_priority == ADMISSION_LOW;
        if (is_low != (CASES[i / 2].is_low && is_asked))
            test_fail(__FILE__, __LINE__, "%s with the plan %s has %s priority", CASES[i / 2].spec,
                      exec->summary, is_low ? "low" : "normal");
        /* The next batch is another operation. */
        executor_save(exec);
        access_done(&access);
        op->admission_priority = ADMISSION_NORMAL;
        EXPECT_OK(access_read(op, &c.ns, &access, &err), err);
        EXPECT_OK(executor_restore(exec, &access, &err), err);
        EXPECT((op->admission_priority == ADMISSION_LOW) == is_low);
        executor_free(exec);
        access_done(&access);
    }
    chooser_done(&c);
}

/* Plans and throws away; what is remembered stays. */
static void plan_once(Chooser *c, const char *filter, bool *ret_is_cached, const char **ret_plan) {
    QuerySpec spec = {.filter = json(c, filter), .yields = {.period_us = 1000000}};
    Error err = {0};
    CLEANUP(access_done) CollAccess access = {0};
    CLEANUP(executor_free_ptr) PlanExecutor *exec = NULL;
    EXPECT_OK(access_read(c->fx.op, &c->ns, &access, &err), err);
    EXPECT_OK(plan_query(&access, &spec, &exec, &err), err);
    *ret_is_cached = exec->cached_works > 0;
    *ret_plan = arena_strdup(&c->arena, exec->summary);
}

static void no_error(void *arg, uint32_t index, const Error *err) {
    (void)arg, (void)index;
    test_fail(__FILE__, __LINE__, "%s", error_message(err));
}

TEST(plans_by_wildcard_indexes_are_remembered_with_their_path) {
    /* Method: of the fields only `few` restricts much; each filter is planned twice, the second
     * time with other values. */
    static const char *const INDEXES[] = {"{'key': {'$**': 1}, 'name': 'all'}",
                                          "{'key': {'many': 1}, 'name': 'many'}"};
#define LONG_NAME                                                                                  \
    "long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_"   \
    "long_long_long_long_long_long_long_long"
    static const struct {
        const char *first;
        const char *second;
        const char *plan; /* of the second */
        bool is_cached;
    } CASES[] = {
        {"{'few': 3, 'many': 1}", "{'few': 4, 'many': 0}", "IXSCAN { $_path: 1, few: 1 }", true},
        {"{'few': {'$lt': 3}, 'same': 1}", "{'few': {'$lt': 2}, 'same': 0}",
         "IXSCAN { $_path: 1, few: 1 }", true},
        {"{'many': {'$in': [1]}, 'few': {'$in': [3]}}",
         "{'many': {'$in': [1]}, 'few': {'$in': [null]}}", "IXSCAN { ", false},
        {"{'many': 1, '" LONG_NAME "': {'$gte': 7}}", "{'many': 0, '" LONG_NAME "': {'$gte': 8}}",
         "IXSCAN { $_path: 1, long_", false},
    };
    Chooser c = {0};
    chooser_init(&c, INDEXES, ARRAY_LEN(INDEXES));
    Doc docs[200];
    for (uint32_t i = 0; i < ARRAY_LEN(docs); i++) {
        const char *text = arena_printf(
            &c.arena, "{'_id': %u, 'few': %u, 'many': %u, 'same': 1, '" LONG_NAME "': %u}", i,
            i % 100, i % 2, i % 100 == 7 ? 7 : 0);
        docs[i] = json(&c, text);
    }
    int64_t inserted;
    Error err = {0};
    EXPECT_OK(exec_insert(c.fx.op, &c.ns, docs, ARRAY_LEN(docs), /* is_ordered= */ true,
                          /* is_validation_bypassed= */ false, no_error, NULL, &inserted, &err),
              err);
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        bool is_cached;
        const char *plan;
        for (int trial = 0; trial < 2; trial++) { /* the second makes the entry active */
            plan_once(&c, CASES[i].first, &is_cached, &plan);
            EXPECT(!is_cached);
        }
        plan_once(&c, CASES[i].second, &is_cached, &plan);
        if (is_cached != CASES[i].is_cached || strstr(plan, CASES[i].plan) == NULL)
            test_fail(__FILE__, __LINE__, "%s is %s, %s", CASES[i].second, plan,
                      is_cached ? "from the cache" : "planned anew");
    }
    chooser_done(&c);
}
