#include "session_refresh/session_refresh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "bson/json.h"
#include "params/params.h"
#include "cursor/cursor_table.h"
#include "query/write/modify.h"
#include "repl/repl.h"
#include "session_refresh/session_record.h"
#include "storage/engine.h"
#include "txn/retryable.h"
#include "txn/session_cache.h"

enum {
    REAP_BATCH = 1000,
    CURSOR_SESSIONS_MAX = 10000, /* looked at in one round */
    MS_PER_MINUTE = 60 * 1000,
};

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
    FindCluster find_cluster;
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

ErrCode session_refresher_start(ServiceCtx *service, FindCluster find_cluster,
                                SessionRefresher **ret_refresher, Error *err) {
    SessionRefresher *refresher = NEW(SessionRefresher);
    refresher->service = service;
    refresher->find_cluster = find_cluster;
    mutex_init(&refresher->mu, LOCK_RANK_LEAF);
    round_thread_init(&refresher->rounds);
    refresher->op = op_ctx_new(service->ops, NULL, NULL);
    refresher->op->service = service;
    if (service->storage != NULL)
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

/* ---- the record ---- */

static ErrCode find_record(const SessionRefresher *refresher, OpCtx *op, SessionRecord *ret_record,
                           Error *err) {
    *ret_record = (SessionRecord){.op = op};
    return refresher->find_cluster(op, &ret_record->cluster, err);
}

/* A standalone node on the data of a replica set writes nothing. */
static ErrCode write_changes(SessionRefresher *refresher, const SessionRecord *record,
                             const SessionChanges *changes, Error *err) {
    return refresher->service->has_data_of_member ? ERR_OK
                                                  : session_record_write(record, changes, err);
}

/* ---- what belongs to sessions that are gone ---- */

static int64_t end_session(SessionRefresher *refresher, OpCtx *op, const SessionId *id) {
    ServiceCtx *service = refresher->service;
    (void)op_registry_kill_session(service->ops, op, id->id.bytes, ERR_INTERRUPTED);
    return service->cursors != NULL ? cursor_kill_session(service->cursors, &id->id) : 0;
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

/* Whether the record has every session that was used here before this round. A shard was none
 * before it was added; a secondary's copy may lag. */
static bool is_record_complete(const ServiceCtx *service) {
    bool is_own = service->role == ROLE_MEMBER ||
                  (service_is_standalone(service) && !service->has_data_of_member);
    return service->role == ROLE_ROUTER || (is_own && is_writable(service));
}

/* Cursors whose session is gone: it was not used for long, here or elsewhere, or its record was
 * removed and it was not used since this round began. */
static ErrCode close_expired_cursors(SessionRefresher *refresher, const SessionRecord *record,
                                     int64_t round_ms, int64_t *ret_closed, Error *err) {
    ServiceCtx *service = refresher->service;
    OpCtx *op = record->op;
    CursorSessions found = {.ids = ARENA_ARRAY(&op->arena, Uuid, CURSOR_SESSIONS_MAX)};
    cursor_table_for_each(service->cursors, collect_cursor, &found);
    int64_t since_ms =
        is_record_complete(service) ? round_ms : clock_wall_ms() - timeout_ms(service);
    SessionId *unused = ARENA_ARRAY(&op->arena, SessionId, found.count + 1);
    bool *is_recorded = ARENA_ARRAY(&op->arena, bool, found.count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < found.count; i++) {
        unused[count] = session_id_of_nobody(&found.ids[i]);
        count += !session_cache_is_used(service->session_cache, &unused[count], since_ms);
    }
    TRY(session_record_find(record, unused, count, is_recorded, err));
    for (uint32_t i = 0; i < count; i++)
        if (!is_recorded[i])
            *ret_closed += end_session(refresher, op, &unused[i]);
    return ERR_OK;
}

ErrCode session_refresh_now(SessionRefresher *refresher, OpCtx *op, Error *err) {
    ServiceCtx *service = refresher->service;
    if (service_is_member(service) && !repl_is_readable(service->repl))
        return ERR_OK;
    SessionRecord record;
    TRY(find_record(refresher, op, &record, err));
    int64_t start_us = clock_mono_us();
    SessionChanges changes;
    int64_t round_ms = clock_wall_ms();
    session_cache_take(service->session_cache, clock_wall_ms() - timeout_ms(service), &changes);
    ErrCode rc = write_changes(refresher, &record, &changes, err);
    int64_t closed = 0;
    if (rc == ERR_OK) {
        for (uint32_t i = 0; i < changes.ended_count; i++)
            closed += end_session(refresher, op, &changes.ended[i].id);
        rc = close_expired_cursors(refresher, &record, round_ms, &closed, err);
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
    Doc docs[REAP_BATCH];
    SessionId ids[REAP_BATCH];
    bool is_recorded[REAP_BATCH];
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
            rows->docs[rows->count++] = doc_copy(doc, &op->arena);
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
    TRY(delete_row(op, &SESSION_TABLE_NS, row, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_elem(&b, doc_get_lit(row, "_id"));
    (*ret_removed)++;
    return delete_row(op, &SESSION_IMAGE_NS, doc_builder_end(&b), err);
}

/* Rows that cannot be read belong to no session. */
static ErrCode find_sessions(const SessionRecord *record, OldRows *rows, Error *err) {
    static const SessionId NONE;
    for (uint32_t i = 0; i < rows->count; i++) {
        CLEANUP(error_reset) Error unread = {0};
        if (session_id_parse(doc_get_lit(rows->docs[i], "_id"), &rows->ids[i], &unread) != ERR_OK)
            rows->ids[i] = NONE;
    }
    return session_record_find(record, rows->ids, rows->count, rows->is_recorded, err);
}

static ErrCode reap(const SessionRecord *record, int64_t before_ms, int64_t *ret_removed,
                    Error *err) {
    OpCtx *op = record->op;
    OldRows *rows = ARENA_NEW(&op->arena, OldRows);
    rows->last = RECORD_ID_NONE;
    while (!rows->is_at_end) {
        TRY(collect_old(op, before_ms, rows, err));
        TRY(find_sessions(record, rows, err));
        for (uint32_t i = 0; i < rows->count; i++) {
            ArenaMark mark = arena_mark(&op->arena);
            TRY(op_check_interrupt(op, err));
            if (!rows->is_recorded[i])
                TRY(reap_one(op, rows->docs[i], ret_removed, err));
            arena_rewind(&op->arena, mark);
        }
    }
    return ERR_OK;
}

ErrCode session_reap_now(SessionRefresher *refresher, OpCtx *op, Error *err) {
    ServiceCtx *service = refresher->service;
    if (!service_is_member(service) || !repl_is_writable(service->repl))
        return ERR_OK; /* retryable writes need a set */
    SessionRecord record;
    TRY(find_record(refresher, op, &record, err));
    int64_t start_us = clock_mono_us();
    int64_t lifetime_ms = param_i64(service, PARAM_TXN_RECORD_LIFETIME_MINUTES) * MS_PER_MINUTE;
    int64_t removed = 0;
    session_write_set_quiet(op, true);
    ErrCode rc = reap(&record, clock_wall_ms() - lifetime_ms, &removed, err);
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
