#include "sharding/migration/session_history.h"

#include <string.h>

#include "base/alloc.h"
#include "change_stream/change.h"
#include "index/key_gen.h"
#include "repl/oplog/oplog.h"
#include "repl/repl.h"
#include "storage/record_store.h"
#include "txn/history.h"
#include "txn/retryable.h"

enum {
    ASK_MS_MAX = 60 * 1000,
    SESSIONS_MAX = 1000,         /* of one answer */
    ANSWER_BYTES = 4 << 20,      /* it ends after the entry that makes it so large */
    ANSWER_BYTES_MAX = 15 << 20, /* never reached: what is kept of an entry is small */
    DETAIL_BYTES_MAX = 1 << 20,  /* of the document that a statement inserted, or of its image */
    INCOMPLETE_STATEMENT = -1,   /* no statement has this number */
};

static const char INCOMPLETE[] = "$incompleteOplogHistory";

/* ---- donor ---- */

void statements_init(StatementList *list, OpCtx *op, const Move *move, RangeKeys *keys) {
    *list = (StatementList){.op = op, .move = move, .keys = keys};
    buffer_init(&list->buf, ANSWER_BYTES_MAX);
    doc_builder_init(&list->rows, &list->buf);
}

void statements_done(StatementList *list) {
    buffer_done(&list->buf);
}

size_t statements_bytes(const StatementList *list) {
    return list->buf.size;
}

ErrCode statements_build(StatementList *list, DocBuilder *b, Error *err) {
    Doc rows;
    TRY(doc_builder_finish(&list->rows, "the history of sessions", &rows, err));
    build_array(b, "statements", rows);
    return ERR_OK;
}

/* Unknown counts as yes: a document key may lack the shard key (it was written before the
 * collection was sharded), and has nested fields under their whole path. Knowing too much does no
 * harm: the statement was executed. */
static bool may_be_in_range(RangeKeys *keys, const StreamChange *change) {
    if (change->kind == CHANGE_INSERT)
        return range_has_doc(keys, elem_doc(change->o));
    Doc key = elem_doc(change_document_key(change));
    uint32_t count;
    const ShardKeyField *fields = shard_key_fields(keys->key, &count);
    for (uint32_t i = 0; i < count; i++)
        if (str_has_char(fields[i].path, '.') || !elem_is_present(doc_get(key, fields[i].path)))
            return true;
    return range_has_doc(keys, key);
}

/* A part of `write`, by its name. */
static void build_part(DocBuilder *b, Doc write, const char *name) {
    Elem part = doc_get(write, str_from(name));
    if (elem_is_present(part))
        build_elem(b, part);
}

static Doc without_all_but_id(Doc doc, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_part(&b, doc, "_id");
    return doc_builder_end(&b);
}

/* Of an insert the document, which is what a findAndModify may have to return; others tell their
 * document keys only. */
static void build_object(StatementList *list, const StreamChange *change, bool is_alone,
                         DocBuilder *b) {
    Doc o = elem_doc(change->o);
    if (change->kind == CHANGE_DELETE) {
        build_doc(b, "o", o);
    } else if (change->kind != CHANGE_INSERT) {
        build_doc(b, "o", DOC_EMPTY);
    } else if (is_alone && doc_size(o) <= DETAIL_BYTES_MAX) {
        build_doc(b, "o", o);
        build_part(b, change->write, "isCut");
    } else {
        build_doc(b, "o", without_all_but_id(o, &list->op->arena));
        build_bool(b, "isCut", true);
    }
}

/* What a findAndModify has returned. If it is not there any more, the recipient will say so. */
static ErrCode build_image(StatementList *list, const SessionId *session, int64_t txn_number,
                           uint64_t ts, Doc write, DocBuilder *b, Error *err) {
    Elem kind = doc_get_lit(write, "needsRetryImage");
    if (!elem_is_present(kind))
        return ERR_OK;
    build_elem(b, kind);
    Elem brought = doc_get_lit(write, "image"); /* it has moved before */
    if (elem_is_present(brought)) {
        build_elem(b, brought);
        return ERR_OK;
    }
    Doc image;
    ErrCode rc = session_image_read(list->op, session, txn_number, ts, &image, err);
    if (rc == ERR_OK && doc_size(image) <= DETAIL_BYTES_MAX)
        build_doc(b, "image", image);
    if (rc != ERR_INCOMPLETE_TRANSACTION_HISTORY)
        return rc;
    error_reset(err);
    return ERR_OK;
}

static size_t open_row(StatementList *list, const SessionId *session, int64_t txn_number,
                       int32_t statement) {
    char name[INDEX_NAME_SIZE];
    DocBuilder *b = &list->rows;
    size_t row = build_open_doc_str(b, index_name(list->count++, name));
    build_session_id(b, "lsid", session);
    build_i64(b, "txnNumber", txn_number);
    build_i32(b, "stmtId", statement);
    return row;
}

ErrCode statements_add(StatementList *list, const SessionId *session, int64_t txn_number,
                       int32_t statement, uint64_t ts, Doc write, bool is_alone, Error *err) {
    StreamChange change;
    change_read(write, /* shows_views= */ false, &change);
    Uuid uuid;
    bool is_sent = change_is_of_document(change.kind) && uuid_from_elem(change.uuid, &uuid) &&
                   uuid_equal(&uuid, &list->move->uuid) && may_be_in_range(list->keys, &change);
    migrations_count_statements(list->op->service->migrations, is_sent, /* is_recorded= */ false);
    if (!is_sent)
        return ERR_OK;
    DocBuilder *b = &list->rows;
    size_t row = open_row(list, session, txn_number, statement);
    size_t part = build_open_doc(b, "write");
    build_part(b, write, "op");
    build_part(b, write, "ns");
    build_part(b, write, "ui");
    build_object(list, &change, is_alone, b);
    build_part(b, write, "o2");
    TRY(build_image(list, session, txn_number, ts, write, b, err));
    build_close(b, part);
    build_close(b, row);
    return ERR_OK;
}

static void add_incomplete(StatementList *list, const SessionRow *session) {
    DocBuilder *b = &list->rows;
    size_t row = open_row(list, &session->id, session->txn_number, INCOMPLETE_STATEMENT);
    size_t write = build_open_doc(b, "write");
    build_i32(b, INCOMPLETE, 1);
    build_close(b, write);
    build_close(b, row);
}

/* How far answers have come: all sessions up to this one; of its own number, if it still has that,
 * the entries up to `ts` are left (0: none). */
typedef struct Place {
    bool is_begin;
    SessionId session;
    int64_t txn_number;
    uint64_t ts;
} Place;

static void build_place(DocBuilder *b, const SessionRow *row, uint64_t ts) {
    size_t place = build_open_doc(b, "next");
    build_session_id(b, "lsid", &row->id);
    build_i64(b, "txnNumber", row->txn_number);
    build_timestamp(b, "ts", ts);
    build_close(b, place);
}

static ErrCode parse_place(Doc from, Place *ret_place, Error *err) {
    *ret_place = (Place){.is_begin = !doc_is_present(from)};
    if (ret_place->is_begin)
        return ERR_OK;
    Elem number = doc_get_lit(from, "txnNumber"), ts = doc_get_lit(from, "ts");
    if (!elem_is_number(number) || elem_type(ts) != BT_TIMESTAMP)
        return error_set(err, ERR_BAD_VALUE, "'from' has to be a document {lsid, txnNumber, ts}");
    ret_place->txn_number = elem_as_i64(number);
    ret_place->ts = (uint64_t)elem_i64(ts);
    return session_id_parse(doc_get_lit(from, "lsid"), &ret_place->session, err);
}

static ErrCode seek_place(RecordCursor *cursor, const Place *place, Arena *arena, Error *err) {
    if (place->is_begin)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(arena);
    build_session_id(&b, "_id", &place->session);
    KeyBuilder kb;
    key_builder_init(&kb);
    RecordId rid;
    ErrCode rc = clustered_record_id(doc_builder_end(&b), NULL, &kb, &rid, err);
    if (rc == ERR_OK)
        rc = place->ts != 0 ? record_cursor_seek_near(cursor, rid, err)
                            : record_cursor_seek_after(cursor, rid, err);
    key_builder_done(&kb);
    return rc;
}

typedef struct Sessions {
    SessionRow *rows; /* heap */
    uint32_t count;
    uint32_t capacity;
    bool is_all; /* there are no more */
} Sessions;

static void sessions_done(Sessions *sessions) {
    xfree(sessions->rows);
}

/* A row that a client has written, and nobody can read, is of no use, here or there. Transactions
 * and children have no statements that could be sent again one by one. */
static bool is_wanted(Doc doc, SessionRow *ret_row) {
    CLEANUP(error_reset) Error err = {0};
    return session_row_parse(doc, ret_row, &err) == ERR_OK &&
           ret_row->state == SESSION_ROW_RETRYABLE && !session_id_is_child(&ret_row->id);
}

/* The next sessions with retryable writes. */
static ErrCode read_sessions(OpCtx *op, const Place *place, Sessions *sessions, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &SESSION_TABLE_NS, &access, err));
    sessions->is_all = true;
    if (access.coll == NULL)
        return ERR_OK;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, access.coll->records, /* is_forward= */ true, &cursor, err));
    TRY(seek_place(&cursor, place, &op->arena, err));
    while (sessions->count < SESSIONS_MAX) {
        TRY(op_check_interrupt(op, err));
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            return ERR_OK;
        SessionRow row;
        if (!is_wanted((Doc){(const uint8_t *)data.data}, &row))
            continue;
        if (place->ts != 0 && session_id_equal(&row.id, &place->session) &&
            row.txn_number == place->txn_number)
            row.last_write.ts = place->ts;
        ARRAY_RESERVE(sessions->rows, sessions->count, sessions->capacity);
        sessions->rows[sessions->count++] = row;
    }
    sessions->is_all = false;
    return ERR_OK;
}

typedef struct Walk {
    StatementList *list;
    const SessionRow *row;
} Walk;

static ErrCode add_statement(void *arg, const HistoryStatement *statement, bool *is_over,
                             Error *err) {
    const Walk *walk = arg;
    *is_over = statements_bytes(walk->list) >= ANSWER_BYTES;
    return statements_add(walk->list, &walk->row->id, walk->row->txn_number, statement->id,
                          statement->ts, statement->write, statement->is_alone, err);
}

static ErrCode build_history(StatementList *list, const Place *from, DocBuilder *b, Error *err) {
    CLEANUP(sessions_done) Sessions sessions = {0};
    TRY(read_sessions(list->op, from, &sessions, err));
    HistoryEnd end = {0};
    uint32_t done = 0;
    while (done < sessions.count && statements_bytes(list) < ANSWER_BYTES) {
        const SessionRow *row = &sessions.rows[done++];
        TRY(history_walk(list->op, row, add_statement, &(Walk){list, row}, &end, err));
        if (end.is_incomplete)
            add_incomplete(list, row);
    }
    TRY(statements_build(list, b, err));
    if (done > 0 && (end.next_ts != 0 || done < sessions.count || !sessions.is_all))
        build_place(b, &sessions.rows[done - 1], end.next_ts);
    return ERR_OK;
}

ErrCode session_history_build(OpCtx *op, const Move *move, Doc from, DocBuilder *b, Error *err) {
    Place place;
    TRY(parse_place(from, &place, err));
    RangeKeys keys;
    range_keys_init(&keys, move->key, move->min, move->max);
    StatementList list;
    statements_init(&list, op, move, &keys);
    ru_set_read_source(op->ru, READ_MAJORITY, 0);
    ErrCode rc = build_history(&list, &place, b, err);
    ru_set_read_source(op->ru, READ_LATEST, 0);
    statements_done(&list);
    range_keys_done(&keys);
    return rc;
}

/* ---- recipient ---- */

typedef struct Statement {
    SessionId session;
    int64_t txn_number;
    int32_t id;
    Doc write;
} Statement;

static ErrCode parse_statement(Elem row, Statement *ret_statement, Error *err) {
    Doc doc = elem_type(row) == BT_DOC ? elem_doc(row) : DOC_EMPTY;
    Elem number = doc_get_lit(doc, "txnNumber"), id = doc_get_lit(doc, "stmtId");
    Elem write = doc_get_lit(doc, "write");
    if (!elem_is_number(number) || !elem_is_number(id) || elem_type(write) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "the donor sent no statement of a session");
    ret_statement->txn_number = elem_as_i64(number);
    ret_statement->id = (int32_t)elem_as_i64(id);
    ret_statement->write = elem_doc(write);
    return session_id_parse(doc_get_lit(doc, "lsid"), &ret_statement->session, err);
}

/* The session is checked out. */
static ErrCode record_if_new(OpCtx *op, const Statement *statement, Error *err) {
    bool is_executed;
    ErrCode rc = retryable_is_executed(op, statement->id, &is_executed, err);
    if (rc == ERR_INCOMPLETE_TRANSACTION_HISTORY) {
        /* Not among those that are known; that some are not is known already. */
        error_reset(err);
        rc = ERR_OK;
        is_executed = statement->id == INCOMPLETE_STATEMENT;
    }
    TRY(rc);
    if (is_executed)
        return ERR_OK;
    retryable_set_statements(op, &statement->id, /* is_delete= */ false, SESSION_IMAGE_NONE);
    OpTime optime;
    TRY(oplog_write_statement(repl_oplog(op->service->repl), op, statement->write, &optime, err));
    if (statement->id == INCOMPLETE_STATEMENT)
        retryable_set_incomplete(op);
    else
        migrations_count_statements(op->service->migrations, /* is_sent= */ false,
                                    /* is_recorded= */ true);
    return ERR_OK;
}

static ErrCode record(OpCtx *op, const Statement *statement, Error *err) {
    ErrCode rc =
        retryable_begin(op->service->sessions, op, &statement->session, statement->txn_number, err);
    /* The client has gone on, or uses the number for a transaction here: it will not repeat it. */
    if (rc == ERR_TRANSACTION_TOO_OLD || rc == ERR_INVALID_OPTIONS) {
        error_reset(err);
        return ERR_OK;
    }
    TRY(rc);
    rc = record_if_new(op, statement, err);
    (void)retryable_end(op);
    return rc;
}

ErrCode session_history_record(OpCtx *op, Doc answer, Error *err) {
    Elem rows = doc_get_lit(answer, "statements");
    if (elem_type(rows) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "the donor sent no \"statements\"");
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = true;
    DocIter iter = doc_iter(elem_doc(rows));
    for (Elem row; doc_iter_next(&iter, &row);) {
        ArenaMark mark = arena_mark(&op->arena);
        Statement statement;
        TRY(parse_statement(row, &statement, err));
        TRY(record(op, &statement, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

ErrCode session_history_receive(MoveRun *run, Error *err) {
    Doc from = DOC_NONE;
    do {
        DocBuilder b = doc_builder_in_arena(&run->op->arena);
        build_str(&b, "_getNextSessionMods", ns_str(&run->move.ns));
        build_uuid(&b, "migrationId", &run->move.id);
        if (doc_is_present(from))
            build_doc(&b, "from", from);
        CLEANUP(client_reply_done) ClientReply reply = {0};
        TRY(move_run_ask(run, run->move.from, &b, ASK_MS_MAX, &reply, err));
        TRY(session_history_record(run->op, reply.body, err));
        Elem next = doc_get_lit(reply.body, "next");
        from = elem_type(next) == BT_DOC ? doc_copy(elem_doc(next), &run->op->arena) : DOC_NONE;
    } while (doc_is_present(from));
    return ERR_OK;
}
