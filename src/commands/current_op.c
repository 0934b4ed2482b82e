#include "commands/current_op.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "params/params.h"
#include "concurrency/lock_manager.h"
#include "cursor/cursor_table.h"
#include "repl/repl.h"
#include "transport/server.h"
#include "txn/session_cache.h"
#include "txn/session_id.h"
#include "txn/transaction.h"

enum {
    CURRENT_OP_COMMAND_BYTES_MAX = 64 * 1024,
    /* Operations and connections that one answer can name. */
    CURRENT_OP_ROWS_MAX = 100000,
    CURRENT_OP_BYTES_MAX = 128 * 1024 * 1024,
};

/* As they are shown; the barrier of transactions is the server's own affair. */
typedef enum LockKind {
    LOCK_KIND_RSTL,
    LOCK_KIND_GLOBAL,
    LOCK_KIND_DATABASE,
    LOCK_KIND_COLLECTION,
    LOCK_KIND_MUTEX,
    LOCK_KIND_COUNT,
} LockKind;

static LockKind lock_kind(ResourceId resource) {
    static const LockKind KINDS[] = {[RESOURCE_DATABASE] = LOCK_KIND_DATABASE,
                                     [RESOURCE_COLLECTION] = LOCK_KIND_COLLECTION,
                                     [RESOURCE_MUTEX] = LOCK_KIND_MUTEX};
    if (resource_type(resource) != RESOURCE_GLOBAL)
        return KINDS[resource_type(resource)];
    return resource == RESOURCE_ID_RSTL     ? LOCK_KIND_RSTL
           : resource == RESOURCE_ID_GLOBAL ? LOCK_KIND_GLOBAL
                                            : LOCK_KIND_COUNT;
}

typedef struct PinnedCursor {
    int64_t id;
    size_t start; /* of {cursor: {...}} in Rows.cursors */
} PinnedCursor;

/* Rows are built while an operation cannot end, and handed out afterwards. */
typedef struct Rows {
    ServiceCtx *service;
    const CurrentOpQuery *query;
    Buffer bytes; /* documents back to back */
    size_t *starts;
    size_t count;
    size_t capacity;
    int64_t *busy_connections;
    size_t busy_count;
    size_t busy_capacity;
    char now_text[CLOCK_ISO8601_SIZE];
    DocBuilder task_row; /* the one that is open */
    /* What cursors that operations use are shown as; their operations are shown later. */
    PinnedCursor *pinned;
    size_t pinned_count;
    size_t pinned_capacity;
    Buffer cursors;
} Rows;

static void rows_done(Rows *rows) {
    buffer_done(&rows->bytes);
    buffer_done(&rows->cursors);
    xfree(rows->pinned);
    xfree(rows->starts);
    xfree(rows->busy_connections);
}

static void add_operation(void *arg, OpCtx *op);
static void add_tasks(Rows *rows);
static void add_cursor(const Rows *rows, const OpCtx *op, DocBuilder *b);
static void note_pinned(void *arg, const ClientCursor *cursor);
static void add_parked(void *arg, const ClientCursor *cursor);
static void add_idle_cursor(void *arg, const ClientCursor *cursor);
static void build_cursor(DocBuilder *b, const ClientCursor *cursor);
static void add_transaction(void *arg, const TxnInfo *info);
static void add_connection(void *arg, const Connection *conn);
static void build_operation(DocBuilder *b, const Rows *rows, const OpCtx *op);

const OpListing CURRENT_OPS = {current_op_for_each, current_sessions_for_each};

ErrCode current_sessions_for_each(ServiceCtx *service, OpRowVisit visit, void *arg, Error *err) {
    CLEANUP(session_changes_done) SessionChanges sessions;
    session_cache_list(service->session_cache, &sessions);
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    for (uint32_t i = 0; i < sessions.used_count; i++) {
        ArenaMark mark = arena_mark(&arena);
        DocBuilder b = doc_builder_in_arena(&arena);
        build_session_id(&b, "_id", &sessions.used[i].id);
        build_date(&b, "lastUse", sessions.used[i].last_use_ms);
        TRY(visit(arg, doc_builder_end(&b), err));
        arena_rewind(&arena, mark);
    }
    return ERR_OK;
}

ErrCode current_op_for_each(ServiceCtx *service, const CurrentOpQuery *query, OpRowVisit visit,
                            void *arg, Error *err) {
    CLEANUP(rows_done) Rows rows = {.service = service, .query = query};
    buffer_init(&rows.bytes, BUFFER_UNBOUNDED);   /* CURRENT_OP_BYTES_MAX and one row */
    buffer_init(&rows.cursors, BUFFER_UNBOUNDED); /* a bounded number of them, see note_pinned */
    clock_format_iso8601(clock_wall_ms(), rows.now_text);
    cursor_table_for_each(service->cursors, note_pinned, &rows);
    op_registry_for_each(service->ops, add_operation, &rows);
    if (service_is_member(service) && !query->is_own_only)
        add_tasks(&rows);
    cursor_table_for_each(service->cursors, add_parked, &rows);
    if (query->has_idle_cursors)
        cursor_table_for_each(service->cursors, add_idle_cursor, &rows);
    if (query->has_idle_sessions && service_is_member(service) && !query->is_own_only)
        txn_for_each(service->sessions, add_transaction, &rows);
    if (query->has_idle_connections && service->transport != NULL)
        transport_for_each_connection(service->transport, add_connection, &rows);
    if (rows.bytes.size > CURRENT_OP_BYTES_MAX)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                         "the list of operations is larger than the limit of %d bytes",
                         CURRENT_OP_BYTES_MAX);
    for (size_t i = 0; i < rows.count; i++)
        TRY(visit(arg, (Doc){rows.bytes.data + rows.starts[i]}, err));
    return ERR_OK;
}

static bool is_full(const Rows *rows) {
    return rows->count == CURRENT_OP_ROWS_MAX || rows->bytes.size > CURRENT_OP_BYTES_MAX;
}

static void begin_row_of(Rows *rows, const char *type, DocBuilder *b) {
    ARRAY_RESERVE(rows->starts, rows->count, rows->capacity);
    rows->starts[rows->count++] = rows->bytes.size;
    doc_builder_init(b, &rows->bytes);
    build_cstr(b, "type", type);
    build_cstr(b, "host", server_setup(rows->service)->host);
}

static void begin_row(Rows *rows, DocBuilder *b) {
    begin_row_of(rows, "op", b);
}

static void add_operation(void *arg, OpCtx *op) {
    Rows *rows = arg;
    if (!op->is_active || is_full(rows))
        return;
    int64_t connection_id = op->desc.connection_id;
    if (connection_id != 0) {
        ARRAY_RESERVE(rows->busy_connections, rows->busy_count, rows->busy_capacity);
        rows->busy_connections[rows->busy_count++] = connection_id;
    }
    if (rows->query->is_own_only && connection_id != rows->query->connection_id)
        return;
    DocBuilder b;
    begin_row(rows, &b);
    build_operation(&b, rows, op);
    add_cursor(rows, op, &b);
    doc_builder_end(&b);
}

/* {getMore: id, ...} is told with its cursor. */
static void add_cursor(const Rows *rows, const OpCtx *op, DocBuilder *b) {
    if (op->desc.command == NULL || rows->pinned_count == 0)
        return;
    DocIter iter = doc_iter((Doc){op->desc.command});
    Elem first;
    if (!doc_iter_next(&iter, &first) || elem_type(first) != BT_INT64 ||
        !elem_name_is(first, STR("getMore")))
        return;
    for (size_t i = 0; i < rows->pinned_count; i++)
        if (rows->pinned[i].id == elem_i64(first))
            build_all(b, (Doc){rows->cursors.data + rows->pinned[i].start});
}

static void note_pinned(void *arg, const ClientCursor *cursor) {
    Rows *rows = arg;
    if (cursor->pinned_by == NULL || rows->pinned_count == CURRENT_OP_ROWS_MAX ||
        rows->cursors.size > CURRENT_OP_BYTES_MAX)
        return;
    ARRAY_RESERVE(rows->pinned, rows->pinned_count, rows->pinned_capacity);
    rows->pinned[rows->pinned_count++] = (PinnedCursor){cursor->id, rows->cursors.size};
    DocBuilder b;
    doc_builder_init(&b, &rows->cursors);
    build_cursor(&b, cursor);
    doc_builder_end(&b);
}

/* Of each kind the strongest mode, what it waits for included. */
static void build_locks(DocBuilder *b, const ShownLock *rows, uint32_t count) {
    static const char *const NAMES[] = {
        [LOCK_KIND_RSTL] = "ReplicationStateTransition",
        [LOCK_KIND_GLOBAL] = "Global",
        [LOCK_KIND_DATABASE] = "Database",
        [LOCK_KIND_COLLECTION] = "Collection",
        [LOCK_KIND_MUTEX] = "Mutex",
    };
    LockMode modes[LOCK_KIND_COUNT];
    bool has[LOCK_KIND_COUNT] = {false};
    for (uint32_t i = 0; i < count; i++) {
        LockKind kind = lock_kind(rows[i].resource);
        if (kind == LOCK_KIND_COUNT)
            continue;
        modes[kind] = has[kind] && modes[kind] > rows[i].mode ? modes[kind] : rows[i].mode;
        has[kind] = true;
    }
    size_t locks = build_open_doc(b, "locks");
    for (int kind = 0; kind < LOCK_KIND_COUNT; kind++)
        if (has[kind])
            build_cstr(b, NAMES[kind], lock_mode_name(modes[kind]));
    build_close(b, locks);
}

static void build_client(DocBuilder *b, int64_t connection_id, const char *client,
                         const char *app_name, const uint8_t *metadata) {
    if (connection_id != 0) {
        build_count(b, "connectionId", connection_id);
        build_cstr(b, "client", client != NULL ? client : "");
    }
    if (app_name != NULL)
        build_cstr(b, "appName", app_name);
    if (metadata != NULL)
        build_doc(b, "clientMetadata", (Doc){metadata});
}

/* One that runs a statement is a row of that. */
static void add_transaction(void *arg, const TxnInfo *info) {
    Rows *rows = arg;
    if (info->is_active || is_full(rows))
        return;
    DocBuilder b;
    begin_row_of(rows, "idleSession", &b);
    build_cstr(&b, "desc",
               info->is_prepared ? "inactive prepared transaction" : "inactive transaction");
    build_session_id(&b, "lsid", &info->id);
    if (info->client->connection_id != 0)
        build_client(&b, info->client->connection_id, info->client->client, info->client->app_name,
                     info->client->metadata);
    build_bool(&b, "active", false);
    build_cstr(&b, "currentOpTime", rows->now_text);
    size_t transaction = build_open_doc(&b, "transaction");
    size_t parameters = build_open_doc(&b, "parameters");
    build_i64(&b, "txnNumber", info->number);
    build_bool(&b, "autocommit", false);
    build_close(&b, parameters);
    if (info->read_ts != 0)
        build_timestamp(&b, "readTimestamp", info->read_ts);
    char start[CLOCK_ISO8601_SIZE];
    clock_format_iso8601(info->start_wall_ms, start);
    build_cstr(&b, "startWallClockTime", start);
    int64_t now_us = clock_mono_us();
    int64_t open_us = now_us - info->start_us;
    /* The first statement began before the transaction did. */
    int64_t active_us = info->active_us < open_us ? info->active_us : open_us;
    build_i64(&b, "timeOpenMicros", open_us);
    build_i64(&b, "timeActiveMicros", active_us);
    build_i64(&b, "timeInactiveMicros", open_us - active_us);
    if (info->is_prepared)
        build_i64(&b, "timePreparedMicros", now_us - info->prepared_us);
    if (!info->is_prepared) {
        char expiry[CLOCK_ISO8601_SIZE];
        clock_format_iso8601(clock_wall_ms() + (info->expires_us - now_us) / 1000, expiry);
        build_cstr(&b, "expiryTime", expiry);
    }
    build_close(&b, transaction);
    build_bool(&b, "waitingForLock", false);
    build_locks(&b, info->locks, info->lock_count);
    doc_builder_end(&b);
}

static void add_connection(void *arg, const Connection *conn) {
    Rows *rows = arg;
    if (is_full(rows))
        return;
    int64_t id = (int64_t)conn->id;
    if (rows->query->is_own_only && id != rows->query->connection_id)
        return;
    for (size_t i = 0; i < rows->busy_count; i++)
        if (rows->busy_connections[i] == id)
            return;
    char desc[32];
    snprintf(desc, sizeof(desc), "conn%lld", (long long)id);
    DocBuilder b;
    begin_row(rows, &b);
    build_cstr(&b, "desc", desc);
    build_count(&b, "connectionId", id);
    build_cstr(&b, "client", conn->peer);
    build_bool(&b, "active", false);
    build_cstr(&b, "currentOpTime", rows->now_text);
    doc_builder_end(&b);
}

/* A getMore that waits for a change stream has no operation while it waits, but a client that
 * waits for it. */
static void add_parked(void *arg, const ClientCursor *cursor) {
    Rows *rows = arg;
    if (cursor->parked_on == 0 || is_full(rows))
        return;
    int64_t connection_id = (int64_t)cursor->parked_on;
    if (rows->query->is_own_only && connection_id != rows->query->connection_id)
        return;
    ARRAY_RESERVE(rows->busy_connections, rows->busy_count, rows->busy_capacity);
    rows->busy_connections[rows->busy_count++] = connection_id;
    char desc[32];
    snprintf(desc, sizeof(desc), "conn%lld", (long long)connection_id);
    DocBuilder b;
    begin_row(rows, &b);
    build_cstr(&b, "desc", desc);
    build_count(&b, "connectionId", connection_id);
    build_bool(&b, "active", true);
    build_cstr(&b, "currentOpTime", rows->now_text);
    int64_t waiting_us = clock_mono_us() - cursor->last_used_us;
    build_count(&b, "secs_running", waiting_us / 1000000);
    build_i64(&b, "microsecs_running", waiting_us);
    build_cstr(&b, "op", "getmore");
    build_str(&b, "ns", ns_str(&cursor->ns));
    size_t command = build_open_doc(&b, "command");
    build_i64(&b, "getMore", cursor->id);
    build_str(&b, "collection", ns_coll(&cursor->ns));
    build_close(&b, command);
    build_cursor(&b, cursor);
    doc_builder_end(&b);
}

static void build_cursor(DocBuilder *b, const ClientCursor *cursor) {
    int64_t idle_ms = (clock_mono_us() - cursor->last_used_us) / 1000;
    size_t shown = build_open_doc(b, "cursor");
    build_i64(b, "cursorId", cursor->id);
    build_date(b, "createdDate", cursor->created_wall_ms);
    int64_t used_ms = clock_wall_ms() - idle_ms;
    build_date(b, "lastAccessDate",
               used_ms > cursor->created_wall_ms ? used_ms : cursor->created_wall_ms);
    build_i64(b, "nDocsReturned", cursor->returned_count);
    build_i64(b, "nBatchesReturned", cursor->batch_count);
    build_bool(b, "noCursorTimeout", cursor->has_no_timeout);
    build_bool(b, "tailable", cursor->is_tailable);
    build_bool(b, "awaitData", cursor->is_await_data);
    if (cursor->command != NULL && doc_size((Doc){cursor->command}) <= CURRENT_OP_COMMAND_BYTES_MAX)
        build_doc(b, "originatingCommand", (Doc){cursor->command});
    build_close(b, shown);
}

/* The sessions of cursors have no user: access control is off. */
static void add_idle_cursor(void *arg, const ClientCursor *cursor) {
    Rows *rows = arg;
    if (cursor->parked_on != 0 || cursor->pinned_by != NULL || cursor->is_killed || is_full(rows) ||
        rows->query->is_own_only)
        return;
    DocBuilder b;
    begin_row_of(rows, "idleCursor", &b);
    build_str(&b, "ns", ns_str(&cursor->ns));
    if (!uuid_equal(&cursor->session, &(Uuid){{0}})) {
        SessionId lsid = session_id_of_nobody(&cursor->session);
        build_session_id(&b, "lsid", &lsid);
    }
    if (cursor->plan_summary != NULL)
        build_cstr(&b, "planSummary", cursor->plan_summary);
    build_cursor(&b, cursor);
    doc_builder_end(&b);
}

static DocBuilder *open_task(void *arg) {
    Rows *rows = arg;
    if (is_full(rows))
        return NULL;
    begin_row(rows, &rows->task_row);
    build_cstr(&rows->task_row, "currentOpTime", rows->now_text);
    return &rows->task_row;
}

static void close_task(void *arg) {
    Rows *rows = arg;
    doc_builder_end(&rows->task_row);
}

/* Tasks of the primary: rows of their own, since most of the time they wait and have no thread. */
static void add_tasks(Rows *rows) {
    const TaskRows sink = {rows, open_task, close_task};
    task_services_build_rows(repl_tasks(rows->service->repl), &sink);
}

static void build_operation(DocBuilder *b, const Rows *rows, const OpCtx *op) {
    const OpDescription *desc = &op->desc;
    build_cstr(b, "desc", desc->desc != NULL ? desc->desc : "");
    Uuid session;
    memcpy(session.bytes, desc->session, sizeof(session));
    if (!uuid_equal(&session, &(Uuid){{0}})) {
        SessionId lsid = session_id_of_nobody(&session);
        build_session_id(b, "lsid", &lsid);
    }
    build_client(b, desc->connection_id, desc->client, desc->app_name, desc->client_metadata);
    build_bool(b, "active", true);
    build_cstr(b, "currentOpTime", rows->now_text);
    build_bool(b, "threaded", true);
    build_count(b, "opid", op->op_id);
    int64_t running_us = clock_mono_us() - op->active_since_us;
    if (running_us < 0)
        running_us = 0;
    build_count(b, "secs_running", running_us / 1000000);
    build_i64(b, "microsecs_running", running_us);
    build_cstr(b, "op", desc->op_type != NULL ? desc->op_type : "none");
    build_cstr(b, "ns", desc->ns != NULL ? desc->ns : "");
    size_t command = build_open_doc(b, "command");
    if (desc->command != NULL && doc_size((Doc){desc->command}) <= CURRENT_OP_COMMAND_BYTES_MAX)
        build_all(b, (Doc){desc->command});
    else if (desc->command != NULL)
        build_cstr(b, "$truncated", elem_name((Elem){desc->command + 4, 0}));
    build_close(b, command);
    if (desc->plan_summary != NULL)
        build_cstr(b, "planSummary", desc->plan_summary);
    if (atomic_load_explicit(&op->kill_code, memory_order_relaxed) != ERR_OK)
        build_bool(b, "killPending", true);
    if (desc->failpoint_msg != NULL)
        build_cstr(b, "failpointMsg", desc->failpoint_msg);
    if (desc->progress_msg != NULL) {
        build_cstr(b, "msg", desc->progress_msg);
        size_t progress = build_open_doc(b, "progress");
        build_count(b, "done", desc->progress_done);
        build_count(b, "total", desc->progress_total);
        build_close(b, progress);
    }
    int64_t conflicts = atomic_load_explicit(&op->prepare_conflicts, memory_order_relaxed);
    if (conflicts > 0)
        build_i64(b, "prepareReadConflicts", conflicts);
    build_bool(b, "waitingForLock", op->is_waiting_for_lock);
    ShownLock held[LOCKS_SHOWN_MAX + 1];
    uint32_t held_count = lock_shown(op, held);
    if (op->is_waiting_for_lock)
        held[held_count++] = (ShownLock){lock_shown_id(op->waiting_resource), op->waiting_mode};
    build_locks(b, held, held_count);
    build_bool(b, "waitingForFlowControl", false);
    build_close(b, build_open_doc(b, "lockStats"));
}
