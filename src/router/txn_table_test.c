/*
 * txn_table_test.c - the newest transaction of each session is remembered, within bounds.
 */
#include "router/txn_table.h"

#include "bson/json_docs_test.h"

static void table_done(TxnTable **table) {
    txn_table_free(*table);
}

static RouterTxn txn_of(uint8_t session, int64_t number, const char *shard) {
    RouterTxn txn = {.session = {{session}},
                     .number = number,
                     .state = ROUTER_TXN_OPEN,
                     .read_concern = DOC_NONE};
    snprintf(txn.shard, sizeof(txn.shard), "%s", shard);
    return txn;
}

TEST(a_session_has_one_transaction_the_newest) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(table_done) TxnTable *table = txn_table_new(10);
    RouterTxn txn = txn_of(1, 5, ""), found;
    EXPECT(!txn_table_find(table, &txn.session, &arena, &found));
    txn.read_concern = test_doc("{'level': 'snapshot'}", &arena);
    txn_table_put(table, &txn, 100, 0);
    txn = txn_of(1, 5, "A"); /* its read concern stays */
    txn_table_put(table, &txn, 101, 0);
    REQUIRE(txn_table_find(table, &txn.session, &arena, &found));
    EXPECT_STR(found.shard, "A");
    EXPECT_STR(test_json(found.read_concern, &arena), "{\"level\":\"snapshot\"}");
    txn = txn_of(1, 4, "B"); /* late */
    txn_table_put(table, &txn, 102, 0);
    REQUIRE(txn_table_find(table, &txn.session, &arena, &found));
    EXPECT_EQ_I64(found.number, 5);
    txn = txn_of(1, 6, "");
    txn_table_put(table, &txn, 103, 0);
    REQUIRE(txn_table_find(table, &txn.session, &arena, &found));
    EXPECT_EQ_I64(found.number, 6);
    EXPECT_STR(found.shard, "");
    EXPECT(!doc_is_present(found.read_concern));
    EXPECT_EQ_U64(txn_table_count(table), 1);
}

TEST(old_transactions_are_forgotten) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(table_done) TxnTable *table = txn_table_new(4);
    for (uint8_t i = 0; i < 4; i++) {
        RouterTxn txn = txn_of(i, 1, "A");
        txn_table_put(table, &txn, 100 + i, 0);
    }
    RouterTxn found, txn = txn_of(0, 1, "A"); /* used again */
    txn_table_put(table, &txn, 200, 0);
    txn = txn_of(9, 1, "A"); /* too many */
    txn_table_put(table, &txn, 201, 0);
    EXPECT_EQ_U64(txn_table_count(table), 4);
    EXPECT(txn_table_find(table, &(Uuid){{0}}, &arena, &found));
    EXPECT(!txn_table_find(table, &(Uuid){{1}}, &arena, &found));
    txn = txn_of(10, 1, "A"); /* too old */
    txn_table_put(table, &txn, 300, 201);
    EXPECT_EQ_U64(txn_table_count(table), 2);
    EXPECT(txn_table_find(table, &(Uuid){{9}}, &arena, &found));
    EXPECT(!txn_table_find(table, &(Uuid){{0}}, &arena, &found));
}
