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
        EXPECT_OK(oplog_open(node->op, &node->oplog, &err), err);
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

/* Documents in the order of their _id, or of a capped collection as they are. Heap memory. */
static inline Doc *test_read_all(OpCtx *op, const Collection *coll, Arena *arena,
                                 size_t *ret_count) {
    CLEANUP(error_reset) Error err = {0};
    Doc *docs = NULL;
    size_t count = 0, capacity = 0;
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        EXPECT_OK(record_cursor_open(op, coll->records, /* is_forward= */ true, &cursor, &err),
                  err);
        for (;;) {
            bool is_found;
            RecordId rid;
            Str data;
            EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
            if (!is_found)
                break;
            ARRAY_RESERVE(docs, count, capacity);
            docs[count++] = doc_copy((Doc){(const uint8_t *)data.data}, arena);
        }
    }
    if (count > 0 && !coll->options.is_capped)
        qsort(docs, count, sizeof(*docs), test_compare_ids);
    *ret_count = count;
    return docs;
}
