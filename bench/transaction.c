/*
 * transaction.c - the transactions of a connection: each of its requests is a statement, and after
 * the last one comes the commit. What is told to be transient is tried again from the start at
 * once, as drivers do.
 */
#include "bench.h"

enum {
    SUBTYPE_UUID = 4,
};

static bool is_transient(Doc reply);

void session_init(BenchSession *session) {
    *session = (BenchSession){.txn_number = 1};
    secure_random(session->id, sizeof(session->id));
}

/* Fields that every message of a transaction has. */
static void build_identity(const BenchSession *session, DocBuilder *b) {
    size_t lsid = build_open_doc(b, "lsid");
    build_binary(b, "id", SUBTYPE_UUID, session->id, sizeof(session->id));
    build_close(b, lsid);
    build_i64(b, "txnNumber", session->txn_number);
    build_bool(b, "autocommit", false);
}

void session_build_statement(const BenchSession *session, const TxnShape *txn, DocBuilder *b) {
    build_identity(session, b);
    if (session->step > 0)
        return;
    build_bool(b, "startTransaction", true);
    if (!txn->is_snapshot)
        return;
    size_t concern = build_open_doc(b, "readConcern");
    build_cstr(b, "level", "snapshot");
    build_close(b, concern);
}

void session_build_commit(const BenchSession *session, const BenchTarget *target, DocBuilder *b) {
    build_i32(b, "commitTransaction", 1);
    build_cstr(b, "$db", "admin");
    build_identity(session, b);
    bench_build_write_concern(target, b);
}

bool session_note_reply(BenchSession *session, const TxnShape *txn, Doc reply) {
    bool is_ok = elem_is_truthy(doc_get_lit(reply, "ok"));
    session->has_committed = is_ok && session->step == txn->statements;
    bool is_again = !is_ok && is_transient(reply);
    if (is_ok && !session->has_committed) {
        session->step++;
        return false;
    }
    session->retries += is_again;
    session->step = 0;
    session->txn_number++;
    return is_again;
}

static bool is_transient(Doc reply) {
    Elem labels = doc_get_lit(reply, "errorLabels");
    if (elem_type(labels) != BT_ARRAY)
        return false;
    DocIter it = doc_iter(elem_doc(labels));
    for (Elem label; doc_iter_next(&it, &label);)
        if (elem_type(label) == BT_STRING &&
            strcmp(elem_str(label).data, "TransientTransactionError") == 0)
            return true;
    return false;
}
