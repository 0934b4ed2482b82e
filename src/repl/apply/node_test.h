/*
 * node_test.h - a member of a replica set without its network: storage, catalog and, as wanted, an
 * oplog to write to or an applier.
 */
#pragma once

#include "index/build/coordinator.h"
#include "repl/apply/apply.h"
#include "repl/oplog/oplog.h"
#include "storage/fixture_test.h"

typedef struct TestNode {
    StorageFixture fx;
    OpCtx *op; /* fx.op */
    Oplog *oplog;
    Applier *applier;
} TestNode;

static inline void test_node_open(TestNode *node, bool has_oplog, uint32_t apply_threads) {
    *node = (TestNode){.fx.is_replicated = true};
    snprintf(node->fx.dir, sizeof(node->fx.dir), "%s", test_temp_dir());
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
    if (apply_threads > 0)
        EXPECT_OK(applier_new(&node->fx.service, apply_threads, &node->applier, &err), err);
}

static inline void test_node_close(TestNode *node) {
    applier_free(node->applier);
    op_ctx_free(node->fx.other); /* what it staged for the oplog goes before the oplog does */
    node->fx.other = fixture_op(&node->fx);
    oplog_free(node->oplog);
    catalog_service_free(node->fx.service.catalog);
    node->fx.service.catalog = NULL;
    fixture_close(&node->fx);
    index_builds_free(node->fx.service.index_builds);
}
