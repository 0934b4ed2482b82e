/*
 * change_reader_test.c - units, chains and prepared transactions come apart in order, from the
 * oplog alone; nothing is given before it is majority-committed.
 */
#include "change_stream/change_reader.h"

#include "base/test.h"
#include "bson/json_docs_test.h"
#include "repl/oplog/node_test.h"
#include "storage/engine.h"

#define DELETE(ns, id)   "{'op': 'd', 'ns': '" ns "', 'o': {'_id': " #id "}}"
#define COMMAND(o, more) "{'op': 'c', 'ns': 'admin.$cmd', 'o': {" o "}" more "}"
#define SESSION          ", 'lsid': {'id': 'mine'}, 'txnNumber': 5"
#define TIME(i)          "{'$timestamp': {'t': 0, 'i': " #i "}}"
#define FIRST            SESSION ", 'prevOpTime': {'ts': " TIME(0) ", 't': -1}"
#define AFTER(i)         SESSION ", 'prevOpTime': {'ts': " TIME(i) ", 't': 7}"

/* Entry i has the time 100 + i. */
static const char *const HISTORY[] = {
    DELETE("d.c", 0),
    "{'op': 'n', 'ns': '', 'o': {'msg': 'x'}}",
    /* 102 to 104: a chain of three, as a transaction. */
    COMMAND("'applyOps': [" DELETE("d.c", 1) "," DELETE("d.e", 2) "], 'partialTxn': true", FIRST),
    COMMAND("'applyOps': [" DELETE("d.e", 3) "], 'partialTxn': true", AFTER(102)),
    COMMAND("'applyOps': [" DELETE("d.c", 4) "], 'count': 4", AFTER(103)),
    /* 105, 106: prepared in two entries; 107: another one, which is aborted; 109 commits. */
    COMMAND("'applyOps': [" DELETE("d.c", 5) "], 'partialTxn': true", FIRST),
    COMMAND("'applyOps': [" DELETE("d.c", 6) "], 'prepare': true, 'count': 2", AFTER(105)),
    COMMAND("'applyOps': [" DELETE("d.c", 7) "], 'prepare': true", FIRST),
    DELETE("d.c", 8),
    COMMAND("'commitTransaction': 1, 'commitTimestamp': " TIME(107), AFTER(106)),
    COMMAND("'abortTransaction': 1", AFTER(107)),
    /* 111: a unit that is no transaction. */
    COMMAND("'applyOps': [" DELETE("d.c", 9) "," DELETE("d.c", 10) "]", ""),
    /* 112: a database with its collections. */
    "{'op': 'c', 'ns': 'd.$cmd', 'o': {'dropDatabase': 1}, 'o2': {'collections': {'c': {'$uuid': "
    "'00000000-0000-4000-8000-000000000001'}}}}",
};

static void write_history(TestNode *node, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc entries[ARRAY_LEN(HISTORY)];
    for (size_t i = 0; i < ARRAY_LEN(HISTORY); i++) {
        DocBuilder b = doc_builder_in_arena(arena);
        build_all(&b, test_doc(HISTORY[i], arena));
        build_timestamp(&b, "ts", 100 + i);
        build_i64(&b, "t", 7);
        build_i64(&b, "v", 2);
        build_date(&b, "wall", 5);
        entries[i] = doc_builder_end(&b);
    }
    EXPECT_OK(
        oplog_append_batch(node->oplog, node->op, OPTIME_NONE, entries, ARRAY_LEN(HISTORY), &err),
        err);
    oplog_set_applied(node->oplog, (OpTime){100 + ARRAY_LEN(HISTORY) - 1, 7}, 5);
}

/* "time.index type _id" of all changes up to the commit point. */
static const char *read_all(ChangeReader *reader, OpCtx *op, Arena *arena) {
    Buffer text;
    buffer_init_arena(&text, arena, 512, BUFFER_UNBOUNDED);
    for (;;) {
        CLEANUP(error_reset) Error err = {0};
        bool is_found;
        StreamChange change;
        ChangePlace place;
        ErrCode rc = change_reader_next(reader, op, &is_found, &change, &place, &err);
        EXPECT_OK(rc, err);
        if (rc != ERR_OK || !is_found)
            break;
        Elem key = change_document_key(&change);
        buffer_printf(&text, "%llu.%lld %s", (unsigned long long)place.ts,
                      (long long)place.op_index, change_kind_name(change.kind));
        if (elem_is_present(key))
            buffer_printf(&text, " %lld%s",
                          (long long)elem_as_i64(doc_get_lit(elem_doc(key), "_id")),
                          elem_is_present(place.txn_number) ? " txn" : "");
        buffer_printf(&text, ", ");
    }
    buffer_append_byte(&text, '\0');
    return (const char *)text.data;
}

TEST(units_and_transactions_come_apart_in_the_order_of_their_commits) {
    CLEANUP(arena_done) Arena arena = {0};
    TestNode node;
    test_node_open(&node, /* has_oplog= */ true);
    write_history(&node, &arena);
    StreamFilter filter = {.scope = SCOPE_COLLECTION, .ns = test_ns("d.c")};
    ChangeReader reader;
    change_reader_init(&reader, node.oplog, &filter, 99);
    EXPECT_STR(read_all(&reader, node.op, &arena), "");
    storage_set_majority_ts(node.fx.engine, 103);
    EXPECT_STR(read_all(&reader, node.op, &arena), "100.0 delete 0, ");
    EXPECT_EQ_U64(reader.done_ts, 103);
    storage_set_majority_ts(node.fx.engine, 112);
    EXPECT_STR(read_all(&reader, node.op, &arena),
               "104.0 delete 1 txn, 104.3 delete 4 txn, 108.0 delete 8, 109.0 delete 5 txn, "
               "109.1 delete 6 txn, 111.0 delete 9, 111.1 delete 10, 112.0 drop, ");
    EXPECT_EQ_U64(reader.done_ts, 112);
    change_reader_done(&reader);

    /* From the middle, of the database. */
    filter.scope = SCOPE_DATABASE;
    change_reader_init(&reader, node.oplog, &filter, 102);
    EXPECT_STR(read_all(&reader, node.op, &arena),
               "104.0 delete 1 txn, 104.1 delete 2 txn, 104.2 delete 3 txn, 104.3 delete 4 txn, "
               "108.0 delete 8, 109.0 delete 5 txn, 109.1 delete 6 txn, 111.0 delete 9, 111.1 "
               "delete 10, 112.0 drop, 112.1 dropDatabase, ");
    change_reader_done(&reader);
    test_node_close(&node);
}
