/*
 * plan_choice_test.c - what the planner decides beside the rows that come out.
 *
 * Method: one collection with a few indexes; each case is planned, and the operation and the plan
 * are looked at.
 */
#include "bson/json.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "query/exec/modify.h"
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
    EXPECT_OK(catalog_service_open(c->fx.op, &service, &err), err);
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
        {"{'filter': {'c.0': 1}}", true},
        {"{'filter': {'c.0': 1}, 'limit': 5}", false},
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
