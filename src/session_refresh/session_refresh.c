#include "session_refresh/session_refresh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "bson/json.h"
#include "params/params.h"
#include "ddl/ddl.h"
#include "index/lookup.h"
#include "cursor/cursor_table.h"
#include "query/write/modify.h"
#include "repl/ask_primary.h"
#include "storage/engine.h"
#include "transport/client.h"
#include "txn/retryable.h"
#include "txn/session_cache.h"

enum {
    BATCH_SESSIONS = 500,
    REAP_BATCH = 1000,
    CURSOR_SESSIONS_MAX = 10000, /* looked at in one round */
    PRIMARY_TIMEOUT_US = 20 * 1000 * 1000,
    MS_PER_MINUTE = 60 * 1000,
};

static const Ns SESSIONS_NS = {.size = 22, .db_size = 6, .text = "config.system.sessions"};

typedef struct RoundStats {
    int64_t count;
    int64_t last_wall_ms;
    int64_t last_ms;
    int64_t refreshed;
    int64_t ended;
    int64_t cursors_closed;
    int64_t removed; /* by the reaper */
} RoundStats;

struct SessionRefresher {
    ServiceCtx *service;
    RoundThread rounds;
    OpCtx *op; /* the thread's */
    Mutex mu;
    /* Guarded by mu. */
    RoundStats refresh;
    RoundStats reap;
};

static void refresher_run(void *refresher);

static bool is_writable(const ServiceCtx *service) {
    return service_is_standalone(service) || repl_is_writable(service->repl);
}

static int64_t timeout_ms(const ServiceCtx *service) {
    return param_i64(service, PARAM_SESSION_TIMEOUT_MINUTES) * MS_PER_MINUTE;
}

ErrCode session_refresher_start(ServiceCtx *service, SessionRefresher **ret_refresher, Error *err) {
    SessionRefresher *refresher = NEW(SessionRefresher);
    refresher->service = service;
    mutex_init(&refresher->mu, LOCK_RANK_LEAF);
    round_thread_init(&refresher->rounds);
    refresher->op = op_ctx_new(service->ops, NULL, NULL);
    refresher->op->service = service;
    op_attach_storage(refresher->op, service->storage);
    ErrCode rc =
        round_thread_start(&refresher->rounds, "SessionRefresh", refresher_run, refresher, err);
    if (rc != ERR_OK) {
        session_refresher_free(refresher);
        return rc;
    }
    *ret_refresher = refresher;
    return ERR_OK;
}

void session_refresher_stop(SessionRefresher *refresher) {
    if (refresher == NULL || !round_thread_is_started(&refresher->rounds))
        return;
    round_thread_begin_stop(&refresher->rounds);
    op_kill(refresher->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&refresher->rounds);
}

void session_refresher_free(SessionRefresher *refresher) {
    if (refresher == NULL)
        return;
    session_refresher_stop(refresher);
    op_ctx_free(refresher->op);
    round_thread_done(&refresher->rounds);
    mutex_done(&refresher->mu);
    xfree(refresher);
}

static void note_failure(const char *what, const Error *err) {
    LOG_INFO(LOG_CONTROL, 20714,
             "Failed to refresh session cache, will try again at the next "
             "refresh interval",
             LOG_STR("while", what), LOG_STR("error", error_message(err)));
}

static void refresher_run(void *arg) {
    SessionRefresher *refresher = arg;
    log_set_thread_name("LogicalSessionCache");
    int64_t period_us = param_i64(refresher->service, PARAM_SESSION_REFRESH_MILLIS) * 1000;
    bool is_disabled = param_bool(refresher->service, PARAM_DISABLE_SESSION_REFRESH);
    int64_t due_us = is_disabled ? INT64_MAX : clock_mono_us() + period_us;
    while (round_thread_wait(&refresher->rounds, due_us)) {
        OpCtx *op = refresher->op;
        op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "SessionRefresh"});
        CLEANUP(error_reset) Error err = {0};
        if (session_refresh_now(refresher, op, &err) != ERR_OK)
            note_failure("refreshing", &err);
        error_reset(&err);
        if (session_reap_now(refresher, op, &err) != ERR_OK)
            note_failure("reaping", &err);
        op_end(op);
        due_us = clock_mono_us() + period_us;
    }
}

/* ---- config.system.sessions ---- */

ErrCode session_collection_ensure(ServiceCtx *service, OpCtx *op, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, &SESSIONS_NS);
    bool is_there = coll != NULL && collection_find_index(coll, STR("lsidTTLIndex")) != NULL;
    catalog_release(catalog);
    if (is_there)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t key = build_open_doc(&b, "key");
    build_i32(&b, "lastUse", 1);
    build_close(&b, key);
    build_cstr(&b, "name", "lsidTTLIndex");
    build_i32(&b, "expireAfterSeconds", (int32_t)(timeout_ms(service) / 1000));
    Doc spec = doc_builder_end(&b);
    CreateIndexesResult result;
    return ddl_create_indexes(op, &SESSIONS_NS, &spec, 1, &result, err);
}

static void build_filter(DocBuilder *b, const char *name, const SessionId *id) {
    size_t filter = build_open_doc(b, name);
    build_session_id(b, "_id", id);
    build_close(b, filter);
}

/* {q: {_id: lsid}, u: {$set: {lastUse: ...}}, upsert: true}, or {q, limit: 1}. */
static void build_statement(DocBuilder *b, const CachedSession *session, bool is_delete) {
    build_filter(b, "q", &session->id);
    if (is_delete) {
        build_i32(b, "limit", 1);
        return;
    }
    size_t update = build_open_doc(b, "u");
    size_t set = build_open_doc(b, "$set");
    build_date(b, "lastUse", session->last_use_ms);
    build_close(b, set);
    build_close(b, update);
    build_bool(b, "upsert", true);
}

static ErrCode write_here(OpCtx *op, const CachedSession *sessions, uint32_t count, bool is_delete,
                          Error *err) {
    for (uint32_t i = 0; i < count; i++) {
        ArenaMark mark = arena_mark(&op->arena);
        DocBuilder b = doc_builder_in_arena(&op->arena);
        build_statement(&b, &sessions[i], is_delete);
        Doc statement = doc_builder_end(&b);
        ModifyRequest modify = {.kind = is_delete ? MODIFY_DELETE : MODIFY_UPDATE,
                                .query.filter = elem_doc(doc_get_lit(statement, "q")),
                                .is_upsert = !is_delete,
                                .update = doc_get_lit(statement, "u")};
        ModifyOutcome outcome;
        TRY(exec_modify(op, &SESSIONS_NS, &modify, &outcome, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

static ErrCode write_there(OpCtx *op, const char *primary, const CachedSession *sessions,
                           uint32_t count, bool is_delete, Error *err) {
    CLEANUP(client_reply_done) ClientReply reply = {0};
    for (uint32_t from = 0; from < count; from += BATCH_SESSIONS) {
        TRY(op_check_interrupt_slow(op, err));
        ArenaMark mark = arena_mark(&op->arena);
        DocBuilder b = doc_builder_in_arena_sized(&op->arena, 4096);
        build_cstr(&b, is_delete ? "delete" : "update", "system.sessions");
        build_bool(&b, "ordered", false);
        size_t rows = build_open_array(&b, is_delete ? "deletes" : "updates");
        for (uint32_t i = from; i < count && i < from + BATCH_SESSIONS; i++) {
            char name[INDEX_NAME_SIZE];
            size_t row = build_open_doc_str(&b, index_name(i - from, name));
            build_statement(&b, &sessions[i], is_delete);
            build_close(&b, row);
        }
        build_close(&b, rows);
        size_t concern = build_open_doc(&b, "writeConcern");
        build_i32(&b, "w", 1);
        build_close(&b, concern);
        build_cstr(&b, "$db", "config");
        TRY(client_run(op->service->clients, op, primary,
                       &(ClientCommand){.body = doc_builder_end(&b)},
                       clock_mono_us() + PRIMARY_TIMEOUT_US, &reply, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

/* A standalone node on the data of a replica set writes nothing. */
static ErrCode is_of_set(const ServiceCtx *service, OpCtx *op, bool *ret_is_of_set, Error *err) {
    *ret_is_of_set = false;
    return service_is_standalone(service) ? repl_find_stored_config(op, ret_is_of_set, err)
                                          : ERR_OK;
}

static ErrCode write_changes(SessionRefresher *refresher, OpCtx *op, const SessionChanges *changes,
                             Error *err) {
    Repl *repl = refresher->service->repl;
    bool is_foreign;
    TRY(is_of_set(refresher->service, op, &is_foreign, err));
    if (is_foreign)
        return ERR_OK;
    if (is_writable(refresher->service)) {
        TRY(session_collection_ensure(refresher->service, op, err));
        TRY(write_here(op, changes->used, changes->used_count, /* is_delete= */ false, err));
        return write_here(op, changes->ended, changes->ended_count, /* is_delete= */ true, err);
    }
    if (changes->used_count == 0 && changes->ended_count == 0)
        return ERR_OK;
    char primary[REPL_HOST_SIZE];
    if (!repl_find_primary(repl, primary))
        return error_set(err, ERR_NOT_YET_INITIALIZED, "no primary is known");
    TRY(write_there(op, primary, changes->used, changes->used_count, /* is_delete= */ false, err));
    return write_there(op, primary, changes->ended, changes->ended_count, /* is_delete= */ true,
                       err);
}

/* ---- what belongs to sessions that are gone ---- */

static int64_t end_session(SessionRefresher *refresher, OpCtx *op, const SessionId *id) {
    ServiceCtx *service = refresher->service;
    (void)op_registry_kill_session(service->ops, op, id->id.bytes, ERR_INTERRUPTED);
    return service->cursors != NULL ? cursor_kill_session(service->cursors, &id->id) : 0;
}

static ErrCode is_recorded(OpCtx *op, const SessionId *id, bool *ret_is_recorded, Error *err) {
    ArenaMark mark = arena_mark(&op->arena);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_session_id(&b, "_id", id);
    Elem wanted = doc_get_lit(doc_builder_end(&b), "_id");
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &SESSIONS_NS, &access, err));
    Doc doc = DOC_NONE;
    if (access.coll != NULL)
        TRY(lookup_document(op, access.coll, wanted, &op->arena, &doc, err));
    *ret_is_recorded = doc_is_present(doc);
    arena_rewind(&op->arena, mark);
    return ERR_OK;
}

typedef struct CursorSessions {
    Uuid *ids;
    uint32_t count;
} CursorSessions;

static void collect_cursor(void *arg, const ClientCursor *cursor) {
    static const Uuid NONE;
    CursorSessions *found = arg;
    if (found->count < CURSOR_SESSIONS_MAX && !cursor->is_killed &&
        !uuid_equal(&cursor->session, &NONE))
        found->ids[found->count++] = cursor->session;
}

/* Whether config.system.sessions has, here and now, every session that was used before this round.
 * Elsewhere it may lag, or be spread over shards. */
static ErrCode is_record_complete(const ServiceCtx *service, OpCtx *op, bool *ret, Error *err) {
    bool is_foreign;
    TRY(is_of_set(service, op, &is_foreign, err));
    *ret = !is_foreign && (service->role == ROLE_MEMBER || service_is_standalone(service)) &&
           is_writable(service);
    return ERR_OK;
}

/* Cursors whose session is gone: it was not used for long, here or elsewhere, or its record was
 * removed and it was not used since this round began. */
static ErrCode close_expired_cursors(SessionRefresher *refresher, OpCtx *op, int64_t round_ms,
                                     int64_t *ret_closed, Error *err) {
    ServiceCtx *service = refresher->service;
    CursorSessions found = {.ids = ARENA_ARRAY(&op->arena, Uuid, CURSOR_SESSIONS_MAX)};
    cursor_table_for_each(service->cursors, collect_cursor, &found);
    bool is_complete = false;
    TRY(is_record_complete(service, op, &is_complete, err));
    int64_t since_ms = is_complete ? round_ms : clock_wall_ms() - timeout_ms(service);
    for (uint32_t i = 0; i < found.count; i++) {
        SessionId id = session_id_of_nobody(&found.ids[i]);
        bool is_recorded_there;
        if (session_cache_is_used(service->session_cache, &id, since_ms))
            continue;
        TRY(is_recorded(op, &id, &is_recorded_there, err));
        if (!is_recorded_there)
            *ret_closed += end_session(refresher, op, &id);
    }
    return ERR_OK;
}

ErrCode session_refresh_now(SessionRefresher *refresher, OpCtx *op, Error *err) {
    ServiceCtx *service = refresher->service;
    if (service_is_member(service) && !repl_is_readable(service->repl))
        return ERR_OK;
    int64_t start_us = clock_mono_us();
    SessionChanges changes;
    int64_t round_ms = clock_wall_ms();
    session_cache_take(service->session_cache, clock_wall_ms() - timeout_ms(service), &changes);
    ErrCode rc = write_changes(refresher, op, &changes, err);
    int64_t closed = 0;
    if (rc == ERR_OK) {
        for (uint32_t i = 0; i < changes.ended_count; i++)
            closed += end_session(refresher, op, &changes.ended[i].id);
        rc = close_expired_cursors(refresher, op, round_ms, &closed, err);
    } else {
        session_cache_put_back(service->session_cache, &changes);
    }
    mutex_lock(&refresher->mu);
    refresher->refresh = (RoundStats){.count = refresher->refresh.count + 1,
                                      .last_wall_ms = clock_wall_ms(),
                                      .last_ms = (clock_mono_us() - start_us) / 1000,
                                      .refreshed = changes.used_count,
                                      .ended = changes.ended_count,
                                      .cursors_closed = closed};
    mutex_unlock(&refresher->mu);
    session_changes_done(&changes);
    return rc;
}

/* ---- rows of config.transactions ---- */

typedef struct OldRows {
    Doc ids[REAP_BATCH]; /* {_id: lsid} */
    uint32_t count;
    RecordId last; /* where the next batch begins */
    bool is_at_end;
} OldRows;

/* The next rows that were not written since `before_ms`, after those of the last call. */
static ErrCode collect_old(OpCtx *op, int64_t before_ms, OldRows *rows, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &SESSION_TABLE_NS, &access, err));
    rows->count = 0;
    rows->is_at_end = access.coll == NULL;
    if (access.coll == NULL)
        return ERR_OK;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, access.coll->records, /* is_forward= */ true, &cursor, err));
    if (!record_id_is_none(rows->last))
        TRY(record_cursor_seek_after(&cursor, rows->last, err));
    while (rows->count < REAP_BATCH) {
        TRY(op_check_interrupt(op, err));
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        rows->is_at_end = !is_found;
        if (!is_found)
            return ERR_OK;
        Doc doc = {(const uint8_t *)data.data};
        Elem date = doc_get_lit(doc, "lastWriteDate");
        if (elem_type(date) == BT_DATE && elem_i64(date) < before_ms)
            rows->ids[rows->count++] = doc_copy(doc, &op->arena);
        rows->last = rid;
        if (rid.str != NULL)
            rows->last.str = arena_memdup(&op->arena, rid.str, rid.str_size);
    }
    return ERR_OK;
}

static ErrCode delete_row(OpCtx *op, const Ns *ns, Doc filter, Error *err) {
    ModifyRequest modify = {.kind = MODIFY_DELETE, .query.filter = filter};
    ModifyOutcome outcome;
    return exec_modify(op, ns, &modify, &outcome, err);
}

/* Only if it is as it was read: the session may be back. */
static ErrCode reap_one(OpCtx *op, Doc row, int64_t *ret_removed, Error *err) {
    SessionId id;
    CLEANUP(error_reset) Error unread = {0};
    bool is_recorded_there = false;
    if (session_id_parse(doc_get_lit(row, "_id"), &id, &unread) == ERR_OK)
        TRY(is_recorded(op, &id, &is_recorded_there, err));
    if (is_recorded_there)
        return ERR_OK;
    TRY(delete_row(op, &SESSION_TABLE_NS, row, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_elem(&b, doc_get_lit(row, "_id"));
    (*ret_removed)++;
    return delete_row(op, &SESSION_IMAGE_NS, doc_builder_end(&b), err);
}

static ErrCode reap(OpCtx *op, int64_t before_ms, int64_t *ret_removed, Error *err) {
    OldRows *rows = ARENA_NEW(&op->arena, OldRows);
    rows->last = RECORD_ID_NONE;
    while (!rows->is_at_end) {
        TRY(collect_old(op, before_ms, rows, err));
        for (uint32_t i = 0; i < rows->count; i++) {
            ArenaMark mark = arena_mark(&op->arena);
            TRY(op_check_interrupt(op, err));
            TRY(reap_one(op, rows->ids[i], ret_removed, err));
            arena_rewind(&op->arena, mark);
        }
    }
    return ERR_OK;
}

ErrCode session_reap_now(SessionRefresher *refresher, OpCtx *op, Error *err) {
    ServiceCtx *service = refresher->service;
    if (service_is_standalone(service) ||
        !repl_is_writable(service->repl)) /* retryable writes need a set */
        return ERR_OK;
    int64_t start_us = clock_mono_us();
    int64_t lifetime_ms = param_i64(service, PARAM_TXN_RECORD_LIFETIME_MINUTES) * MS_PER_MINUTE;
    int64_t removed = 0;
    session_write_set_quiet(op, true);
    ErrCode rc = reap(op, clock_wall_ms() - lifetime_ms, &removed, err);
    session_write_set_quiet(op, false);
    mutex_lock(&refresher->mu);
    refresher->reap = (RoundStats){.count = refresher->reap.count + 1,
                                   .last_wall_ms = clock_wall_ms(),
                                   .last_ms = (clock_mono_us() - start_us) / 1000,
                                   .removed = removed};
    mutex_unlock(&refresher->mu);
    return rc;
}

/* ---- status ---- */

void session_refresher_build_status(SessionRefresher *refresher, DocBuilder *b) {
    RoundStats refresh = {0}, reaping = {0};
    ServiceCtx *service = refresher != NULL ? refresher->service : NULL;
    if (refresher != NULL) {
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&refresher->mu);
        refresh = refresher->refresh;
        reaping = refresher->reap;
    }
    build_count(b, "activeSessionsCount",
                service != NULL ? session_cache_count(service->session_cache) : 0);
    build_count(b, "sessionsCollectionJobCount", refresh.count);
    build_count(b, "lastSessionsCollectionJobDurationMillis", refresh.last_ms);
    build_date(b, "lastSessionsCollectionJobTimestamp", refresh.last_wall_ms);
    build_count(b, "lastSessionsCollectionJobEntriesRefreshed", refresh.refreshed);
    build_count(b, "lastSessionsCollectionJobEntriesEnded", refresh.ended);
    build_count(b, "lastSessionsCollectionJobCursorsClosed", refresh.cursors_closed);
    build_count(b, "transactionReaperJobCount", reaping.count);
    build_count(b, "lastTransactionReaperJobDurationMillis", reaping.last_ms);
    build_date(b, "lastTransactionReaperJobTimestamp", reaping.last_wall_ms);
    build_count(b, "lastTransactionReaperJobEntriesCleanedUp", reaping.removed);
    build_count(b, "sessionCatalogSize",
                service != NULL && service->sessions != NULL
                    ? session_catalog_stats(service->sessions).sessions
                    : 0);
}
