#include "commands/current_op.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "commands/core/params.h"
#include "concurrency/lock_manager.h"
#include "transport/server.h"
#include "txn/session_id.h"

enum {
    CURRENT_OP_COMMAND_BYTES_MAX = 64 * 1024,
    /* Operations and connections that one answer can name. */
    CURRENT_OP_ROWS_MAX = 100000,
    CURRENT_OP_BYTES_MAX = 128 * 1024 * 1024,
};

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
} Rows;

static void rows_done(Rows *rows) {
    buffer_done(&rows->bytes);
    xfree(rows->starts);
    xfree(rows->busy_connections);
}

static void add_operation(void *arg, OpCtx *op);
static void add_connection(void *arg, const Connection *conn);
static void build_operation(DocBuilder *b, const Rows *rows, const OpCtx *op);

ErrCode current_op_for_each(ServiceCtx *service, const CurrentOpQuery *query,
                            ErrCode (*visit)(void *arg, Doc row, Error *err), void *arg,
                            Error *err) {
    CLEANUP(rows_done) Rows rows = {.service = service, .query = query};
    buffer_init(&rows.bytes, BUFFER_UNBOUNDED); /* CURRENT_OP_BYTES_MAX and one row */
    clock_format_iso8601(clock_wall_ms(), rows.now_text);
    op_registry_for_each(service->ops, add_operation, &rows);
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

static void begin_row(Rows *rows, DocBuilder *b) {
    ARRAY_RESERVE(rows->starts, rows->count, rows->capacity);
    rows->starts[rows->count++] = rows->bytes.size;
    doc_builder_init(b, &rows->bytes);
    build_cstr(b, "type", "op");
    build_cstr(b, "host", server_setup(rows->service)->host);
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

static void build_operation(DocBuilder *b, const Rows *rows, const OpCtx *op) {
    const OpDescription *desc = &op->desc;
    build_cstr(b, "desc", desc->desc != NULL ? desc->desc : "");
    Uuid session;
    memcpy(session.bytes, desc->session, sizeof(session));
    if (!uuid_equal(&session, &(Uuid){{0}})) {
        SessionId lsid = session_id_of_nobody(&session);
        build_session_id(b, "lsid", &lsid);
    }
    if (desc->connection_id != 0) {
        build_count(b, "connectionId", desc->connection_id);
        build_cstr(b, "client", desc->client != NULL ? desc->client : "");
    }
    if (desc->app_name != NULL)
        build_cstr(b, "appName", desc->app_name);
    if (desc->client_metadata != NULL)
        build_doc(b, "clientMetadata", (Doc){desc->client_metadata});
    build_bool(b, "active", true);
    build_cstr(b, "currentOpTime", rows->now_text);
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
    if (desc->progress_msg != NULL) {
        build_cstr(b, "msg", desc->progress_msg);
        size_t progress = build_open_doc(b, "progress");
        build_count(b, "done", desc->progress_done);
        build_count(b, "total", desc->progress_total);
        build_close(b, progress);
    }
    build_bool(b, "waitingForLock", op->is_waiting_for_lock);
    size_t locks = build_open_doc(b, "locks");
    if (op->is_waiting_for_lock) {
        static const char *const NAMES[] = {"", "Global", "Database", "Collection", "Mutex"};
        build_cstr(b, NAMES[resource_type(op->waiting_resource)], lock_mode_name(op->waiting_mode));
    }
    build_close(b, locks);
    build_bool(b, "waitingForFlowControl", false);
    build_close(b, build_open_doc(b, "lockStats"));
}
