/*
 * node_test.h - a member of a replica set without its network: storage, catalog and, as wanted, an
 * oplog. For the tests of this folder and of repl/apply.
 */
#pragma once

#include <stdlib.h>

#include "base/alloc.h"
#include "bson/compare.h"
#include "index/build/coordinator.h"
#include "repl/oplog/oplog.h"
#include "storage/fixture_test.h"

typedef struct TestNode {
    StorageFixture fx;
    OpCtx *op; /* fx.op */
    Oplog *oplog;
    struct Applier *applier; /* for repl/apply */
} TestNode;

/* In a directory that may have data already. */
static inline void test_node_reopen(TestNode *node, bool has_oplog) {
    fixture_open(&node->fx);
    node->op = node->fx.op;
    node->fx.service.index_builds = index_builds_new(/* is_resuming= */ false);
    Error err = {0};
    CatalogService *catalog;
    EXPECT_OK(catalog_service_open(node->op, CATALOG_UNFINISHED_DISCARD, &catalog, &err), err);
    if (has_oplog) {
        EXPECT_OK(oplog_open(node->op, /* hours_min= */ 0, &node->oplog, &err), err);
        EXPECT_OK(oplog_ensure(node->oplog, node->op, INT64_C(64) << 20, &err), err);
    }
}

static inline void test_node_open(TestNode *node, bool has_oplog) {
    *node = (TestNode){.fx.is_replicated = true};
    snprintf(node->fx.dir, sizeof(node->fx.dir), "%s", test_temp_dir());
    test_node_reopen(node, has_oplog);
}

static inline void test_node_close(TestNode *node) {
    index_builds_stop(node->fx.service.index_builds);
    oplog_free(node->oplog);
    node->oplog = NULL;
    catalog_service_free(node->fx.service.catalog);
    node->fx.service.catalog = NULL;
    fixture_close(&node->fx);
    index_builds_free(node->fx.service.index_builds);
}

static inline int test_compare_ids(const void *a, const void *b) {
    return elem_compare(doc_get_lit(*(const Doc *)a, "_id"), doc_get_lit(*(const Doc *)b, "_id"),
                        NULL);
}

static inline Ns test_ns(const char *text) {
    CLEANUP(error_reset) Error err = {0};
    Ns ns = {0};
    EXPECT_OK(ns_parse(str_from(text), &ns, &err), err);
    return ns;
}

typedef struct TestDocs {
    Doc *docs; /* heap */
    size_t count;
    size_t capacity;
    Arena *arena;
} TestDocs;

static inline ErrCode test_add_doc(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)rid, (void)is_over, (void)err;
    TestDocs *all = arg;
    ARRAY_RESERVE(all->docs, all->count, all->capacity);
    all->docs[all->count++] = doc_copy((Doc){(const uint8_t *)data.data}, all->arena);
    return ERR_OK;
}

/* Documents in the order of their _id, or of a capped collection as they are. Heap memory. */
static inline Doc *test_read_all(OpCtx *op, const Collection *coll, Arena *arena,
                                 size_t *ret_count) {
    CLEANUP(error_reset) Error err = {0};
    TestDocs all = {.arena = arena};
    EXPECT_OK(
        record_store_each(op, coll->records, /* is_forward= */ true, test_add_doc, &all, &err),
        err);
    if (all.count > 0 && !coll->options.is_capped)
        qsort(all.docs, all.count, sizeof(*all.docs), test_compare_ids);
    *ret_count = all.count;
    return all.docs;
}
