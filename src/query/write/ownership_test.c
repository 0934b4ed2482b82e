/*
 * ownership_test.c - deletes by range and what the node owns.
 *
 * Method: twelve documents, of which the test policy owns every third; the range holds all.
 */
#include "base/alloc.h"
#include "base/failpoint.h"
#include "bson/builder.h"
#include "bson/json.h"
#include "catalog/test_ownership.h"
#include "ddl/ddl.h"
#include "query/write/modify.h"
#include "query/write/range_delete.h"
#include "storage/fixture_test.h"

enum {
    DOCUMENTS = 12,
};

static void no_error(void *arg, uint32_t index, const Error *err) {
    (void)arg, (void)index;
    EXPECT_STR(error_message(err), "");
}

static Doc json(OpCtx *op, const char *text) {
    Error err = {0};
    Doc doc;
    EXPECT_OK(doc_from_json(text, &op->arena, &doc, &err), err);
    return doc;
}

static void fill(OpCtx *op, const Ns *ns) {
    Error err = {0};
    Doc docs[DOCUMENTS];
    for (int32_t i = 0; i < DOCUMENTS; i++) {
        DocBuilder b = doc_builder_in_arena(&op->arena);
        build_i32(&b, "_id", i);
        docs[i] = doc_builder_end(&b);
    }
    int64_t inserted;
    EXPECT_OK(exec_insert(op, ns, docs, DOCUMENTS, /* is_ordered= */ true,
                          /* is_validation_bypassed= */ false, no_error, NULL, &inserted, &err),
              err);
    EXPECT_EQ_I64(inserted, DOCUMENTS);
}

/* Deletes from -1 to 100 by the index of _id; returns how many. */
static int64_t delete_range(OpCtx *op, const Ns *ns, bool is_ownership_ignored) {
    Error err = {0};
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, ns);
    Doc bounds = json(op, "{'low': -1, 'high': 100}");
    RangeDelete request = {.uuid = coll->uuid,
                           .ident = collection_id_index(coll)->ident,
                           .low = doc_get_lit(bounds, "low"),
                           .high = doc_get_lit(bounds, "high"),
                           .filter = DOC_EMPTY,
                           .batch_docs = 5,
                           .is_ownership_ignored = is_ownership_ignored};
    RangeDeleteResult result;
    EXPECT_OK(exec_range_delete(op, ns, &request, &result, &err), err);
    catalog_release(catalog);
    return result.deleted;
}

TEST(range_delete_takes_what_is_owned_or_on_request_all) {
    StorageFixture fx = {0};
    fixture_init(&fx);
    Error err = {0};
    OpCtx *op = fx.op;
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(op, CATALOG_UNFINISHED_DISCARD, &service, &err), err);
    catalog_add_access_policy(service, &TEST_OWNERSHIP_POLICY);
    Ns ns;
    EXPECT_OK(ns_parse(STR("db.owned"), &ns, &err), err);
    fill(op, &ns);
    failpoint_configure(
        FP_TEST_OWNERSHIP,
        &(FailpointConfig){
            .mode = FAILPOINT_ALWAYS_ON,
            .data = doc_copy_heap(json(op, "{'ns': ['db.owned'], 'paths': ['_id'], 'modulus': 3, "
                                           "'remainder': 1}"))});
    EXPECT_EQ_I64(delete_range(op, &ns, /* is_ownership_ignored= */ false), DOCUMENTS / 3);
    EXPECT_EQ_I64(delete_range(op, &ns, /* is_ownership_ignored= */ false), 0);
    EXPECT_EQ_I64(delete_range(op, &ns, /* is_ownership_ignored= */ true), DOCUMENTS * 2 / 3);
    failpoint_configure(FP_TEST_OWNERSHIP, &(FailpointConfig){.mode = FAILPOINT_OFF});
    catalog_service_free(fx.service.catalog);
    fx.service.catalog = NULL;
    fixture_close(&fx);
}
