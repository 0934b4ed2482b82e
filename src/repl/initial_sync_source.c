/*
 * initial_sync_source.c - the source of an initial sync: connections that are re-established after
 * an outage, and the requests sent over them.
 *
 * Work is divided into steps that can be restarted at any time. A step that fails because the
 * source is unreachable is retried on a new connection, for up to
 * initialSyncTransientErrorRetryPeriodSeconds. The source may have restarted meanwhile; entries are
 * applied idempotently, so newer data do no harm. But it must not have lost writes that were
 * copied: its rollback id shows that, which also changes after an unclean shutdown. Nor may its
 * data have been replaced: then positions are meaningless, and the id of its own initial sync
 * differs.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "catalog/write_group.h"
#include "repl/initial_sync_internal.h"

enum {
    CONNECT_TIMEOUT_US = 10 * 1000 * 1000,
    COMMAND_TIMEOUT_US = 120 * 1000 * 1000,
    PAUSE_US_MIN = 100 * 1000,
    PAUSE_US_MAX = 5 * 1000 * 1000,
};

/* ---- asking ---- */

ErrCode source_ask(SourceLine *line, DocBuilder *b, Str db, Doc *ret_reply, Error *err) {
    build_str(b, "$db", db);
    size_t preference = build_open_doc(b, "$readPreference");
    build_cstr(b, "mode", "secondaryPreferred");
    build_close(b, preference);
    TRY(client_conn_run(line->conn, line->op, doc_builder_end(b),
                        clock_mono_us() + COMMAND_TIMEOUT_US, ret_reply, err));
    if (UNLIKELY(line->outage_us != 0)) {
        int64_t outage_us = clock_mono_us() - line->outage_us;
        status_add_retry(line->attempt->sync->initial_sync, outage_us);
        LOG_INFO(LOG_REPL, 7300264, "Initial sync goes on after an outage of its source",
                 LOG_STR("syncSource", line->attempt->host),
                 LOG_I64("outageMillis", outage_us / 1000));
        line->outage_us = 0;
    }
    return ERR_OK;
}

Doc reply_rows(Doc reply, const char *name) {
    Elem cursor = doc_get_lit(reply, "cursor");
    Elem batch =
        elem_type(cursor) == BT_DOC ? doc_get(elem_doc(cursor), str_from(name)) : ELEM_MISSING;
    return elem_type(batch) == BT_ARRAY ? elem_doc(batch) : DOC_EMPTY;
}

int64_t reply_cursor_id(Doc reply) {
    Elem cursor = doc_get_lit(reply, "cursor");
    Elem id = elem_type(cursor) == BT_DOC ? doc_get_lit(elem_doc(cursor), "id") : ELEM_MISSING;
    return elem_is_number(id) ? elem_as_i64(id) : 0;
}

/* ---- who it is ---- */

static ErrCode read_identity(SourceLine *line, SourceIdentity *ret_identity, Error *err) {
    Doc reply;
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    build_i32(&b, "replSetGetRBID", 1);
    TRY(source_ask(line, &b, STR("admin"), &reply, err));
    SourceIdentity identity = {.rollback_id = elem_as_i64(doc_get_lit(reply, "rbid"))};
    b = doc_builder_in_arena(&line->op->arena);
    build_cstr(&b, "find", "replset.initialSyncId");
    build_i32(&b, "limit", 1);
    TRY(source_ask(line, &b, STR("local"), &reply, err));
    DocIter iter = doc_iter(reply_rows(reply, "firstBatch"));
    Elem row;
    if (doc_iter_next(&iter, &row) && elem_type(row) == BT_DOC)
        identity.has_sync_id = uuid_from_elem(doc_get_lit(elem_doc(row), "_id"), &identity.sync_id);
    *ret_identity = identity;
    return ERR_OK;
}

static ErrCode check_identity(SourceLine *line, void *arg, Error *err) {
    (void)arg;
    SourceIdentity now;
    const SourceIdentity *then = &line->attempt->source;
    TRY(read_identity(line, &now, err));
    if (now.rollback_id != then->rollback_id)
        return error_set(err, ERR_INITIAL_SYNC_FAILURE,
                         "the source %s has lost writes while its data were copied: its rollback "
                         "id was %lld and is %lld",
                         line->attempt->host, (long long)then->rollback_id,
                         (long long)now.rollback_id);
    bool is_same = now.has_sync_id == then->has_sync_id &&
                   (!now.has_sync_id || uuid_equal(&now.sync_id, &then->sync_id));
    if (!is_same)
        return error_set(err, ERR_INITIAL_SYNC_FAILURE,
                         "the source %s was itself synced anew while its data were copied",
                         line->attempt->host);
    return ERR_OK;
}

ErrCode source_check_identity(SourceLine *line, Error *err) {
    return source_run(line, check_identity, NULL, err);
}

/* ---- connections ---- */

static ErrCode connect_line(SourceLine *line, Error *err) {
    ClientConn *conn;
    TRY(client_conn_open(line->attempt->repl->service->clients, line->op, line->attempt->host,
                         clock_mono_us() + CONNECT_TIMEOUT_US, &conn, err));
    line->conn = conn;
    sync_set_conn(line->attempt->sync, line->place, conn);
    return ERR_OK;
}

ErrCode source_line_open(SourceLine *line, Error *err) {
    TRY(connect_line(line, err));
    TRY(read_identity(line, &line->attempt->source, err));
    status_set_source(line->attempt->sync->initial_sync, line->attempt->source.rollback_id);
    return ERR_OK;
}

void source_line_close(SourceLine *line) {
    if (line->conn == NULL)
        return;
    sync_set_conn(line->attempt->sync, line->place, NULL);
    client_conn_free(line->conn);
    line->conn = NULL;
}

/* Transient errors: the source cannot be reached, restarts, changes its state, or has closed the
 * cursor. */
static bool is_transient(ErrCode rc) {
    static const ErrCode CODES[] = {
        ERR_HOST_UNREACHABLE,
        ERR_HOST_NOT_FOUND,
        ERR_NETWORK_TIMEOUT,
        ERR_SOCKET_EXCEPTION,
        ERR_SHUTDOWN_IN_PROGRESS,
        ERR_INTERRUPTED_AT_SHUTDOWN,
        ERR_INTERRUPTED,
        ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
        ERR_NOT_PRIMARY_OR_SECONDARY,
        ERR_NOT_PRIMARY_NO_SECONDARY_OK,
        ERR_NOT_WRITABLE_PRIMARY,
        ERR_PRIMARY_STEPPED_DOWN,
        ERR_NOT_YET_INITIALIZED,
        ERR_CURSOR_NOT_FOUND,
        ERR_CURSOR_KILLED,
        ERR_QUERY_PLAN_KILLED,
        ERR_CAPPED_POSITION_LOST,
    };
    for (size_t i = 0; i < ARRAY_LEN(CODES); i++)
        if (CODES[i] == rc)
            return true;
    return false;
}

typedef struct MemberQuestion {
    const char *host;
    bool is_member;
} MemberQuestion;

static void look_for_member(void *arg, const ReplCore *core) {
    MemberQuestion *question = arg;
    const ReplConfig *config = repl_core_config(core);
    for (uint32_t i = 0; config != NULL && i < config->member_count; i++)
        question->is_member |= strcmp(config->members[i].host, question->host) == 0;
}

/* After a failure: decides whether to retry, and when. */
static ErrCode wait_for_source(SourceLine *line, Error *err) {
    Attempt *attempt = line->attempt;
    CLEANUP(error_reset) Error end = {0};
    if (atomic_load(&line->is_ended))
        return err->code;
    if (attempt_check(attempt, &end) != ERR_OK) {
        error_reset(err);
        error_move(err, &end);
        return err->code;
    }
    int64_t now_us = clock_mono_us();
    if (line->outage_us == 0) {
        line->outage_us = now_us;
        line->pause_us = PAUSE_US_MIN;
        LOG_INFO(LOG_REPL, 7300263, "The source of the initial sync is away; trying again",
                 LOG_STR("syncSource", attempt->host), LOG_STR("error", error_message(err)));
    }
    MemberQuestion question = {.host = attempt->host};
    repl_inspect(attempt->repl, look_for_member, &question);
    if (!question.is_member)
        return error_prefix(err, "the source is no member of the set any more");
    if (now_us - line->outage_us >= attempt->settings.retry_secs * 1000 * 1000)
        return error_prefix(err, "the source was away for too long");
    error_reset(err);
    sync_idle(attempt->sync, line->pause_us);
    line->pause_us = line->pause_us * 2 < PAUSE_US_MAX ? line->pause_us * 2 : PAUSE_US_MAX;
    return attempt_check(attempt, err);
}

static ErrCode run_once(SourceLine *line, SourceStep step, void *arg, Error *err) {
    if (line->conn != NULL && client_conn_is_broken(line->conn))
        source_line_close(line);
    if (line->conn == NULL) {
        TRY(connect_line(line, err));
        /* After every new connection, before anything is read over it. */
        TRY(check_identity(line, NULL, err));
    }
    return step(line, arg, err);
}

ErrCode source_run(SourceLine *line, SourceStep step, void *arg, Error *err) {
    for (;;) {
        ArenaMark mark = arena_mark(&line->op->arena);
        ErrCode rc = run_once(line, step, arg, err);
        bool is_broken = line->conn == NULL || client_conn_is_broken(line->conn);
        if (rc == ERR_OK || (!is_transient(rc) && !is_broken))
            return rc;
        arena_rewind(&line->op->arena, mark);
        TRY(wait_for_source(line, err));
    }
}

/* ---- its newest entry ---- */

typedef struct SourceEnd {
    OpTime optime;
    int64_t wall_ms;
    Doc entry;
} SourceEnd;

static ErrCode find_entry(SourceLine *line, uint64_t ts, Doc *ret_reply, Error *err) {
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    build_cstr(&b, "find", "oplog.rs");
    if (ts != 0) {
        size_t filter = build_open_doc(&b, "filter");
        build_timestamp(&b, "ts", ts);
        build_close(&b, filter);
    }
    build_i32(&b, "limit", 1);
    build_i64(&b, "term", OPTIME_TERM_NONE);
    return source_ask(line, &b, STR("local"), ret_reply, err);
}

/* The source reports which entry that is, since its newest one in the table may have gaps before
 * it. */
static ErrCode read_end(SourceLine *line, void *arg, Error *err) {
    SourceEnd *end = arg;
    Doc reply;
    TRY(find_entry(line, 0, &reply, err));
    bool is_found;
    ReplOplogMetadata metadata;
    TRY(parse_oplog_metadata(reply, &is_found, &metadata, err));
    if (is_found && !optime_is_none(metadata.last_applied))
        TRY(find_entry(line, metadata.last_applied.ts, &reply, err));
    DocIter iter = doc_iter(reply_rows(reply, "firstBatch"));
    Elem entry;
    if (!is_found || !doc_iter_next(&iter, &entry) || elem_type(entry) != BT_DOC)
        return error_set(err, ERR_INITIAL_SYNC_OPLOG_SOURCE_MISSING, "the source has no oplog");
    end->entry = doc_copy(elem_doc(entry), &line->op->arena);
    return oplog_entry_position(end->entry, &end->optime, &end->wall_ms, err);
}

/* The writes of a transaction that is prepared there are not copied; they come with its commit,
 * which needs its first entry. Asked after the end was read: one that has ended since is complete
 * in what follows that end, or its prepare is. */
static ErrCode go_back_to_prepared(SourceLine *line, SourceEnd *begin, Error *err) {
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    build_cstr(&b, "find", "transactions");
    size_t filter = build_open_doc(&b, "filter");
    build_cstr(&b, "state", "prepared");
    build_close(&b, filter);
    size_t sort = build_open_doc(&b, "sort");
    build_i32(&b, "startOpTime", 1);
    build_close(&b, sort);
    build_i32(&b, "limit", 1);
    build_bool(&b, "singleBatch", true);
    Doc reply;
    TRY(source_ask(line, &b, STR("config"), &reply, err));
    DocIter iter = doc_iter(reply_rows(reply, "firstBatch"));
    Elem row;
    OpTime start;
    if (!doc_iter_next(&iter, &row) || elem_type(row) != BT_DOC ||
        !optime_from_elem(doc_get_lit(elem_doc(row), "startOpTime"), &start) ||
        start.ts >= begin->optime.ts)
        return ERR_OK;
    TRY(find_entry(line, start.ts, &reply, err));
    iter = doc_iter(reply_rows(reply, "firstBatch"));
    if (!doc_iter_next(&iter, &row) || elem_type(row) != BT_DOC)
        return error_set(err, ERR_INITIAL_SYNC_OPLOG_SOURCE_MISSING,
                         "the source has no entry of a transaction that is prepared there");
    begin->entry = doc_copy(elem_doc(row), &line->op->arena);
    return oplog_entry_position(begin->entry, &begin->optime, &begin->wall_ms, err);
}

/* A secondary's newest entry may be part of a unit of several: the last one, when it arrives, needs
 * all of them. They are consecutive. */
static ErrCode read_begin(SourceLine *line, void *arg, Error *err) {
    SourceEnd *begin = arg;
    TRY(read_end(line, begin, err));
    TRY(go_back_to_prepared(line, begin, err));
    Doc entry = begin->entry;
    while (entry_part(entry) == ENTRY_PARTIAL) {
        begin->entry = entry;
        OpTime previous;
        if (!optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) || previous.ts == 0)
            break;
        Doc reply;
        TRY(find_entry(line, previous.ts, &reply, err));
        DocIter iter = doc_iter(reply_rows(reply, "firstBatch"));
        Elem found;
        if (!doc_iter_next(&iter, &found) || elem_type(found) != BT_DOC)
            break; /* trimmed, so it was not part of the unit: those are kept */
        entry = doc_copy(elem_doc(found), &line->op->arena);
    }
    return oplog_entry_position(begin->entry, &begin->optime, &begin->wall_ms, err);
}

ErrCode source_read_begin(SourceLine *line, OpTime *ret_optime, int64_t *ret_wall_ms,
                          Doc *ret_entry, Error *err) {
    SourceEnd begin;
    TRY(source_run(line, read_begin, &begin, err));
    *ret_optime = begin.optime;
    *ret_wall_ms = begin.wall_ms;
    *ret_entry = begin.entry;
    return ERR_OK;
}

ErrCode source_read_end(SourceLine *line, OpTime *ret_optime, int64_t *ret_wall_ms, Doc *ret_entry,
                        Error *err) {
    SourceEnd end;
    TRY(source_run(line, read_end, &end, err));
    *ret_optime = end.optime;
    *ret_wall_ms = end.wall_ms;
    *ret_entry = end.entry;
    return ERR_OK;
}
