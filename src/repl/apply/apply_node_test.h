/*
 * apply_node_test.h - a node without an oplog that applies the entries of another one.
 */
#pragma once

#include "repl/apply/apply.h"
#include "repl/oplog/node_test.h"

static inline void apply_node_open(TestNode *node, uint32_t threads) {
    test_node_open(node, /* has_oplog= */ false);
    Error err = {0};
    EXPECT_OK(applier_new(&node->fx.service, threads, &node->applier, &err), err);
}

static inline void apply_node_close(TestNode *node) {
    applier_free(node->applier);
    test_node_close(node);
}
