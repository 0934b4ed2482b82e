#include "txn/retryable.h"

#include "base/alloc.h"
#include "base/failpoint.h"
#include "txn/history.h"
#include "txn/session_internal.h"

enum {
    PENDING_KEPT = 1024, /* capacity for statements that is kept between units of work */
};

static ErrCode use_session(SessionWrite *write, OpCtx *op, Error *err);

static void session_write_free(void *part) {
    SessionWrite *write = part;
    write_scratch_done(&write->scratch);
    xfree(write->pending);
    xfree(write);
}

/* ---- commands ---- */

static SessionWrite *session_write_of(OpCtx *op) {
    if (op->session_write == NULL) {
        op->session_write = NEW(SessionWrite);
        write_scratch_init(&op->session_write->scratch);
        op_keep_part(op, session_write_free, op->session_write);
    }
    return op->session_write;
}

ErrCode retryable_begin(SessionCatalog *catalog, OpCtx *op, const SessionId *id, int64_t txn_number,
                        Error *err) {
    /* Before the session is checked out and any lock is held: creating a collection takes its own
     * locks. */
    TRY(session_ensure_tables(catalog, op, err));
    SessionWrite *write = session_write_of(op);
    Session *session;
    bool has_waited;
    do {
        TRY(session_check_out(catalog, op, id, &session, err));
        TRY(session_wait_for_prepared(catalog, op, session, txn_number, &has_waited, err));
    } while (has_waited);
    write->catalog = catalog;
    write->session = session;
    write->txn_number = txn_number;
    ErrCode rc = use_session(write, op, err);
    if (rc != ERR_OK)
        (void)retryable_end(op);
    return rc;
}

bool retryable_end(OpCtx *op) {
    SessionWrite *write = op->session_write;
    if (write == NULL || write->session == NULL)
        return true;
    invariant(write->pending_count == 0);
    write->statements = NULL;
    session_check_in(write->catalog, op, TAKE_PTR(write->session));
    bool is_answered = !write->is_close_wanted;
    write->is_close_wanted = false;
    return is_answered;
}

/* Loads the session if necessary, and makes the transaction number its newest. */
static ErrCode use_session(SessionWrite *write, OpCtx *op, Error *err) {
    Session *session = write->session;
    TRY(session_ensure_loaded(write->catalog, op, session, err));
    if (write->txn_number < session->txn_number)
        return session_too_old(session, write->txn_number, err);
    /* A newer number: the client has given up retrying the older ones. */
    if (write->txn_number > session->txn_number)
        return session_begin_number(write->catalog, op, session, write->txn_number, err);
    if (session->txn_state == TXN_STATE_NONE)
        return ERR_OK;
    return error_set(err, ERR_INVALID_OPTIONS,
                     "the transaction number %lld of the session is that of a transaction: a "
                     "retryable write needs a newer one",
                     (long long)write->txn_number);
}

static ErrCode find_statement(OpCtx *op, int32_t id, const SessionStatement **ret_statement,
                              Error *err) {
    SessionWrite *write = op->session_write;
    /* Again for each statement: a step-down between two statements of a batch invalidates the
     * session. */
    TRY(use_session(write, op, err));
    const SessionStatement *statement = session_find_statement(write->session, id);
    /* Part of the history was trimmed: the statement may have been executed, so it must not be
     * repeated. */
    if (statement == NULL && write->session->is_incomplete) {
        char text[SESSION_ID_TEXT_SIZE];
        session_id_to_text(&write->session->id, text);
        return error_set(err, ERR_INCOMPLETE_TRANSACTION_HISTORY,
                         "Incomplete history detected for transaction %lld on session %s",
                         (long long)write->txn_number, text);
    }
    *ret_statement = statement;
    return ERR_OK;
}

ErrCode retryable_is_executed(OpCtx *op, int32_t statement, bool *ret_is_executed, Error *err) {
    const SessionStatement *found = NULL;
    TRY(find_statement(op, statement, &found, err));
    *ret_is_executed = found != NULL;
    return ERR_OK;
}

ErrCode retryable_find(OpCtx *op, int32_t statement, bool *ret_is_executed, Doc *ret_entry,
                       uint64_t *ret_ts, Error *err) {
    const SessionStatement *found = NULL;
    TRY(find_statement(op, statement, &found, err));
    *ret_is_executed = found != NULL;
    if (found == NULL)
        return ERR_OK;
    *ret_ts = found->ts;
    return history_read_statement(op, found->ts, statement, ret_entry, err);
}

ErrCode retryable_image(OpCtx *op, Doc write, uint64_t ts, Doc *ret_image, Error *err) {
    const SessionWrite *session_write = op->session_write;
    /* A statement that came with a migrated range has brought it along. */
    Elem image = doc_get_lit(write, "image");
    if (elem_type(image) == BT_DOC) {
        *ret_image = elem_doc(image);
        return ERR_OK;
    }
    return session_image_read(op, &session_write->session->id, session_write->txn_number, ts,
                              ret_image, err);
}

void retryable_set_incomplete(OpCtx *op) {
    op->session_write->session->is_incomplete = true;
}

void retryable_set_statements(OpCtx *op, const int32_t *statements, bool is_delete,
                              SessionImageKind image) {
    SessionWrite *write = op->session_write;
    if (write == NULL || write->session == NULL)
        return;
    write->statements = statements;
    write->first = 0;
    write->is_delete = is_delete;
    write->wanted_image = image;
}

void retryable_set_first(OpCtx *op, uint32_t first) {
    if (op->session_write != NULL)
        op->session_write->first = first;
}

/* ---- the oplog ---- */

void session_write_build_statement(OpCtx *op, SessionWriteKind kind, size_t i, Doc before,
                                   Doc after, DocBuilder *b) {
    SessionWrite *write = op->session_write;
    if (kind == SESSION_WRITE_DELETE && !write->is_delete)
        return; /* the trimming of a capped collection is not a statement of the client */
    if (write->pending_count == 0)
        /* The chain is extended on a copy: the session changes only when the unit has committed. */
        write->last = write->session->last_write;
    int32_t id = write->statements[write->first + i];
    build_i32(b, "stmtId", id);
    ARRAY_RESERVE(write->pending, write->pending_count, write->pending_capacity);
    write->pending[write->pending_count++] = (SessionStatement){id, 0};
    /* An upsert: the entry contains the whole document, so no image is needed. */
    if (kind == SESSION_WRITE_INSERT)
        return;
    write->image_kind = write->wanted_image;
    write->image = write->wanted_image == SESSION_IMAGE_POST ? after : before;
}

bool session_write_has_statements(const OpCtx *op) {
    return op->session_write != NULL && op->session_write->pending_count > 0;
}

bool session_write_needs_image(const OpCtx *op) {
    return session_write_has_statements(op) && op->session_write->image_kind != SESSION_IMAGE_NONE;
}

void session_write_build_entry(OpCtx *op, OpTime optime, uint32_t statements, bool is_last,
                               DocBuilder *b) {
    SessionWrite *write = op->session_write;
    build_session_id(b, "lsid", &write->session->id);
    build_i64(b, "txnNumber", write->txn_number);
    build_optime(b, "prevOpTime", write->last);
    if (is_last && write->image_kind != SESSION_IMAGE_NONE)
        build_cstr(b, "needsRetryImage", session_image_name(write->image_kind));
    invariant(statements <= write->pending_count - write->pending_timed);
    while (statements-- > 0)
        write->pending[write->pending_timed++].ts = optime.ts;
    write->last = optime;
}

/* For driver tests: the write is committed or not, and the client cannot tell. */
static ErrCode fail_if_wanted(SessionWrite *write, Error *err) {
    if (LIKELY(!FAILPOINT(ON_PRIMARY_TRANSACTIONAL_WRITE)))
        return ERR_OK;
    FailpointConfig config = failpoint_config(FP_ON_PRIMARY_TRANSACTIONAL_WRITE);
    CLEANUP(xfree_ptr) uint8_t *data = config.data;
    Elem close = data != NULL ? doc_get_lit((Doc){data}, "closeConnection") : ELEM_MISSING;
    Elem code =
        data != NULL ? doc_get_lit((Doc){data}, "failBeforeCommitExceptionCode") : ELEM_MISSING;
    write->is_close_wanted = !elem_is_present(close) || elem_is_truthy(close);
    if (!elem_is_number(code))
        return ERR_OK;
    return error_set(err, (ErrCode)elem_as_i64(code),
                     "Failing a retryable write due to the failpoint onPrimaryTransactionalWrite");
}

ErrCode session_write_store(OpCtx *op, int64_t wall_ms, Error *err) {
    SessionWrite *write = op->session_write;
    TRY(fail_if_wanted(write, err));
    /* Pinned to the end of the unit: the tables are written without a lock on their collection
     * (rule 7). */
    write->held_catalog = catalog_acquire(op_catalog(op));
    SessionRow row = {.id = write->session->id,
                      .txn_number = write->txn_number,
                      .last_write = write->last,
                      .wall_ms = wall_ms};
    write->is_storing = true;
    ErrCode rc = session_row_store(op, catalog_find(write->held_catalog, &SESSION_TABLE_NS), &row,
                                   &write->scratch, err);
    if (rc == ERR_OK && write->image_kind != SESSION_IMAGE_NONE) {
        SessionImage image = {.id = row.id,
                              .txn_number = row.txn_number,
                              .ts = row.last_write.ts,
                              .kind = write->image_kind,
                              .image = write->image};
        rc = session_image_store(op, catalog_find(write->held_catalog, &SESSION_IMAGE_NS), &image,
                                 &write->scratch, err);
    }
    write->is_storing = false;
    return rc;
}

void session_write_end_unit(OpCtx *op, bool is_committed) {
    SessionWrite *write = op->session_write;
    if (is_committed) {
        write->session->last_write = write->last;
        write->session->row_ts = write->last.ts;
        for (uint32_t i = 0; i < write->pending_count; i++)
            session_add_statement(write->session, write->pending[i].id, write->pending[i].ts);
    }
    if (write->held_catalog != NULL)
        catalog_release(TAKE_PTR(write->held_catalog));
    invariant(!is_committed || write->pending_timed == write->pending_count);
    write->pending_count = write->pending_timed = 0;
    if (UNLIKELY(write->pending_capacity > PENDING_KEPT)) { /* every worker has one of these */
        xfree(TAKE_PTR(write->pending));
        write->pending_capacity = 0;
    }
    write->image_kind = SESSION_IMAGE_NONE;
    write->image = DOC_NONE;
}

bool session_write_is_storing(const OpCtx *op) {
    return op->session_write != NULL && op->session_write->is_storing;
}

void session_write_set_quiet(OpCtx *op, bool is_quiet) {
    session_write_of(op)->is_storing = is_quiet;
}
