#include "commands/core/command_service.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "bson/validate.h"
#include "commands/core/fail_command.h"
#include "commands/core/generic_args.h"
#include "commands/core/slow_log.h"
#include "commands/core/top.h"
#include "concurrency/op_failpoint.h"
#include "transport/client.h"

enum {
    COMMAND_TABLE_SIZE = 512, /* a power of two, well above the number of names */
    ERROR_TEXT_BYTES_MAX = 1024 * 1024,
};

typedef struct CommandRow {
    const CommandSpec *spec;
    const char *name;      /* the spec's name or alias */
    bool is_of_collection; /* its value names one */
    _Atomic int64_t *total;
    _Atomic int64_t *failed;
} CommandRow;

struct CommandService {
    ServiceCtx *service;
    CommandHooks hooks;
    const CommandTable *commands;
    CommandRow table[COMMAND_TABLE_SIZE];
    _Atomic int64_t *totals; /* of each command, as are the failures */
    _Atomic int64_t *failures;
    CommandStats stats;
    CommandSettings settings;
    TopTable *top;
    Oid process_id;
    _Atomic int64_t topology_counter;
    _Atomic int64_t quiesce_until_us;
};

/* Per worker. */
typedef struct WorkerState {
    OpCtx *op;
} WorkerState;

static CommandRow *find_row(CommandService *service, Str name);
static void add_name(CommandService *service, const char *name, size_t index);
static HandleResult run_message(CommandService *cs, CommandCtx *ctx);
static ErrCode end_reply(CommandService *cs, CommandCtx *ctx, ErrCode rc, Error *err);
static ErrCode run_command(CommandService *cs, CommandCtx *ctx, CommandRow **ret_row, Error *err);
static ErrCode find_command(CommandService *cs, CommandCtx *ctx, CommandRow **ret_row, Error *err);
static const char *join_ns(CommandCtx *ctx, Str coll);
static ErrCode finish_writes(CommandService *cs, CommandCtx *ctx, Error *err);
static void note_finished(CommandService *cs, CommandCtx *ctx, CommandRow *row, ErrCode rc,
                          const Error *err);
static OpDescription describe(const CommandCtx *ctx, const char *ns);
static void build_state_of_error(CommandService *cs, CommandCtx *ctx, ErrCode rc);
static uint32_t labels_of(const CommandCtx *ctx, ErrCode rc);

static void hook_block_begin(void *arg) {
    worker_block_begin(arg);
}
static void hook_block_end(void *arg) {
    worker_block_end(arg);
}
static void hook_long_running(void *arg) {
    worker_is_long_running(arg);
}
static bool hook_is_client_gone(void *arg, const OpCtx *op) {
    (void)arg;
    const ClientState *client = op->client;
    return client != NULL && transport_is_peer_gone(client->conn);
}
static bool hook_await_readable(void *arg, int fd) {
    return worker_await_readable(arg, fd);
}
static const BlockHooks WORKER_HOOKS = {hook_block_begin, hook_block_end, hook_long_running,
                                        hook_is_client_gone, hook_await_readable};

CommandService *command_service_new(ServiceCtx *service, const CommandTable *commands,
                                    const CommandHooks *hooks) {
    CommandService *cs = NEW(CommandService);
    cs->service = service;
    cs->hooks = *hooks;
    cs->commands = commands;
    cs->totals = xcalloc(commands->count, sizeof(*cs->totals));
    cs->failures = xcalloc(commands->count, sizeof(*cs->failures));
    cs->process_id = oid_new();
    cs->top = top_table_new();
    cs->settings.slow_ms = 100;
    cs->settings.slow_sample_rate = 1.0;
    for (size_t i = 0; i < commands->count; i++) {
        add_name(cs, commands->specs[i]->name, i);
        if (commands->specs[i]->alias != NULL)
            add_name(cs, commands->specs[i]->alias, i);
    }
    return cs;
}

void command_service_free(CommandService *service) {
    if (service == NULL)
        return;
    top_table_free(service->top);
    xfree(service->totals);
    xfree(service->failures);
    xfree(service);
}

const CommandSpec *command_find(CommandService *service, Str name) {
    CommandRow *row = find_row(service, name);
    return row != NULL ? row->spec : NULL;
}

size_t command_count(CommandService *service) {
    return service->commands->count;
}

void command_for_each(CommandService *service,
                      void (*visit)(void *arg, const CommandSpec *spec, int64_t total,
                                    int64_t failed),
                      void *arg) {
    for (size_t i = 0; i < service->commands->count; i++)
        if ((service->commands->specs[i]->flags & CMD_REFUSED) == 0)
            visit(arg, service->commands->specs[i], atomic_load(&service->totals[i]),
                  atomic_load(&service->failures[i]));
}

TopologyVersion topology_version(CommandService *service) {
    return (TopologyVersion){service->process_id, atomic_load(&service->topology_counter)};
}

void topology_moves(CommandService *service) {
    atomic_fetch_add(&service->topology_counter, 1);
}

void build_topology_version(DocBuilder *b, TopologyVersion version) {
    size_t opened = build_open_doc(b, "topologyVersion");
    build_oid(b, "processId", &version.process_id);
    build_i64(b, "counter", version.counter);
    build_close(b, opened);
}

void topology_changed(CommandService *service) {
    if (service->service->transport != NULL)
        transport_wake_parked(service->service->transport);
}

void command_service_begin_quiesce(CommandService *service, int64_t until_us) {
    atomic_store(&service->quiesce_until_us, until_us);
    topology_moves(service);
    topology_changed(service);
}

int64_t command_service_quiesce_until(CommandService *service) {
    return atomic_load(&service->quiesce_until_us);
}

static void raise_to(_Atomic int64_t *most, int64_t value) {
    int64_t known = atomic_load_explicit(most, memory_order_relaxed);
    while (value > known && !atomic_compare_exchange_weak_explicit(
                                most, &known, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

void count_many(ServiceCtx *service, int64_t docs, int64_t duration_us) {
    CommandStats *stats = command_stats(service);
    atomic_fetch_add_explicit(&stats->many_docs, docs, memory_order_relaxed);
    atomic_fetch_add_explicit(&stats->many_us, duration_us, memory_order_relaxed);
    raise_to(&stats->many_docs_most, docs);
    raise_to(&stats->many_us_most, duration_us);
}

CommandStats *command_stats(ServiceCtx *service) {
    return &service->commands->stats;
}

TopTable *command_top(ServiceCtx *service) {
    return service->commands->top;
}

CommandSettings *command_settings(ServiceCtx *service) {
    return &service->commands->settings;
}

/* ---- transport handler ---- */

static void *on_worker_start(void *arg, Worker *worker) {
    ServiceCtx *service = arg;
    WorkerState *state = NEW(WorkerState);
    state->op = op_ctx_new(service->ops, &WORKER_HOOKS, worker);
    state->op->service = service;
    service->commands->hooks.attach_op(service, state->op);
    return state;
}

static void on_worker_stop(void *arg, Worker *worker) {
    (void)arg;
    WorkerState *state = worker_user(worker);
    op_ctx_free(state->op);
    xfree(state);
}

static bool on_connect(void *arg, Connection *conn) {
    ServiceCtx *service = arg;
    ClientState *client = NEW(ClientState);
    client->conn = conn;
    snprintf(client->name, sizeof(client->name), "conn%llu", (unsigned long long)conn->id);
    conn->user = client;
    if (!atomic_load_explicit(&service->commands->settings.is_quiet, memory_order_relaxed))
        LOG_INFO(LOG_NETWORK, 22943, "Connection accepted", LOG_STR("remote", conn->peer),
                 LOG_I64("connectionId", conn->id));
    return true;
}

static void on_disconnect(void *arg, Connection *conn) {
    ServiceCtx *service = arg;
    ClientState *client = conn->user;
    service->commands->hooks.on_disconnect(service, client);
    if (!atomic_load_explicit(&service->commands->settings.is_quiet, memory_order_relaxed))
        LOG_INFO(LOG_NETWORK, 22944, "Connection ended", LOG_STR("remote", conn->peer),
                 LOG_I64("connectionId", conn->id));
    xfree(client->metadata);
    xfree(client->app_name);
    xfree(client);
}

/* There is no room for clients, but for other members, who say first that they are. */
static bool keep_member(ServiceCtx *service, Connection *conn, const WireMessage *message) {
    ClientState *client = conn->user;
    DocIter iter = doc_iter(message->body);
    Elem first;
    if (!client->is_member && service->transport != NULL && doc_iter_next(&iter, &first) &&
        elem_name_is(first, STR(CLIENT_GREETING))) {
        client->is_member = true;
        transport_keep_connection(service->transport, conn);
    }
    return client->is_member;
}

static HandleResult on_message(void *arg, Worker *worker, Connection *conn,
                               const WireMessage *message, Reply *reply) {
    ServiceCtx *service = arg;
    WorkerState *state = worker_user(worker);
    if (UNLIKELY(conn->is_extra) && !keep_member(service, conn, message))
        return HANDLE_CLOSE;
    DocBuilder builder;
    doc_builder_init(&builder, reply->buf);
    CommandCtx ctx = {
        .op = state->op,
        .service = service,
        .client = conn->user,
        .worker = worker,
        .message = message,
        .body = message->body,
        .reply = &builder,
        .wire_reply = reply,
    };
    return run_message(service->commands, &ctx);
}

static void on_bad_message(void *arg, Worker *worker, Connection *conn, const WireMessage *message,
                           const Error *why, Reply *reply) {
    (void)worker, (void)message;
    ServiceCtx *service = arg;
    atomic_fetch_add_explicit(&service->commands->stats.asserts_user, 1, memory_order_relaxed);
    LOG_DEBUG(LOG_NETWORK, 7100401, "Message could not be read", LOG_STR("remote", conn->peer),
              LOG_STR("error", error_message(why)));
    DocBuilder builder;
    doc_builder_init(&builder, reply->buf);
    build_error(&builder, why);
    Doc doc;
    bool is_whole = doc_builder_try_finish(&builder, &doc);
    invariant(is_whole); /* it has no details */
}

static void on_stop_deadline(void *arg) {
    ServiceCtx *service = arg;
    op_registry_kill_all(service->ops, NULL, ERR_INTERRUPTED_AT_SHUTDOWN);
}

TransportHandler command_service_handler(void) {
    return (TransportHandler){
        .worker_start = on_worker_start,
        .worker_stop = on_worker_stop,
        .on_connect = on_connect,
        .on_message = on_message,
        .on_bad_message = on_bad_message,
        .on_disconnect = on_disconnect,
        .on_stop_deadline = on_stop_deadline,
    };
}

/* ---- one message ---- */

/* Whoever does not wait for an answer would go on to write to a node that cannot write: a closed
 * connection is what tells it to look for the primary. */
static HandleResult end_unanswered(CommandService *cs, const CommandCtx *ctx, ErrCode rc) {
    bool is_write = ctx->spec != NULL && (ctx->spec->flags & CMD_WRITES) != 0;
    if (LIKELY(!is_write || !error_is_of_state(rc) || service_is_standalone(ctx->service)))
        return HANDLE_NO_REPLY;
    atomic_fetch_add_explicit(&cs->stats.unanswered_not_primary, 1, memory_order_relaxed);
    return HANDLE_CLOSE;
}

static HandleResult run_message(CommandService *cs, CommandCtx *ctx) {
    OpDescription desc = describe(ctx, "");
    op_begin(ctx->op, &desc);
    if (UNLIKELY(atomic_load_explicit(&cs->settings.profile_level, memory_order_relaxed) > 0))
        ctx->op->cpu_start_ns = clock_thread_cpu_ns();
    ctx->op->client = ctx->client;
    log_set_thread_name(ctx->client->name);

    Error err = {0};
    CommandRow *row = NULL;
    ErrCode rc = run_command(cs, ctx, &row, &err);

    HandleResult result = HANDLE_REPLY;
    Reply *reply = ctx->wire_reply;
    if (ctx->is_park_wanted) {
        result = HANDLE_PARK;
    } else if (reply->close_after && rc == ERR_SOCKET_EXCEPTION) {
        result = HANDLE_CLOSE; /* failCommand asked for a dropped connection */
    } else {
        rc = end_reply(cs, ctx, rc, &err);
        reply->more_to_come = ctx->is_more_to_come && rc == ERR_OK;
        reply->never_compress |= row != NULL && (row->spec->flags & CMD_HANDSHAKE) != 0;
        if (wire_is_fire_and_forget(ctx->message))
            result = end_unanswered(cs, ctx, rc);
    }
    if (result != HANDLE_PARK)
        note_finished(cs, ctx, row, rc, &err);
    error_reset(&err);
    op_end(ctx->op);
    return result;
}

/* False: the reply is larger than one may be. */
static bool close_reply(CommandService *cs, CommandCtx *ctx) {
    if (!service_is_standalone(ctx->service))
        cs->hooks.finish_reply(ctx);
    Doc doc;
    return doc_builder_try_finish(ctx->reply, &doc) && doc_size(doc) <= BSON_DOC_SIZE_MAX_INTERNAL;
}

static bool reply_with_error(CommandService *cs, CommandCtx *ctx, const Error *err) {
    wire_reply_begin(ctx->wire_reply->buf);
    doc_builder_init(ctx->reply, ctx->wire_reply->buf);
    build_error(ctx->reply, err);
    if (err->extra == NULL)
        build_state_of_error(cs, ctx, err->code);
    return close_reply(cs, ctx);
}

/* "No such transaction" tells the client that its transaction has not committed and never will, so
 * that it may begin anew. With a write concern that is only said once it is fulfilled: a primary
 * that was deposed without knowing it may have missed the commit. */
static void confirm_no_txn(CommandService *cs, CommandCtx *ctx, Error *err) {
    if (ctx->spec == NULL || (ctx->spec->flags & CMD_ENDS_TXN) == 0 || ctx->has_forced_error ||
        !ctx->write_concern.is_w_given || cs->hooks.confirm_no_txn == NULL ||
        service_is_standalone(ctx->service))
        return;
    CLEANUP(error_reset) Error wc_err = {0};
    if (cs->hooks.confirm_no_txn(ctx, &wc_err) == ERR_OK)
        return;
    ctx->has_concern_error = true;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    size_t opened = build_open_doc(&b, "writeConcernError");
    build_error_fields(&b, &wc_err, /* has_code_name= */ true);
    build_close(&b, opened);
    error_set_extra(err, doc_builder_end(&b).data);
}

/* Completes the reply, whatever its size: one that is too large becomes an error, and an error that
 * is too large loses its details. */
static ErrCode end_reply(CommandService *cs, CommandCtx *ctx, ErrCode rc, Error *err) {
    if (rc == ERR_OK) {
        build_f64(ctx->reply, "ok", 1.0);
        if (LIKELY(close_reply(cs, ctx)))
            return ERR_OK;
        rc = error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                       "the reply of %s is larger than the limit of %d bytes", ctx->spec->name,
                       BSON_DOC_SIZE_MAX_INTERNAL);
    }
    if (UNLIKELY(rc == ERR_NO_SUCH_TRANSACTION))
        confirm_no_txn(cs, ctx, err);
    err->labels |= labels_of(ctx, rc);
    if (ctx->spec != NULL && !ctx->has_forced_error && !service_is_standalone(ctx->service))
        err->labels |= cs->hooks.error_labels(ctx, rc);
    if (UNLIKELY(!reply_with_error(cs, ctx, err))) {
        xfree(err->extra);
        err->extra = NULL;
        bool is_whole = reply_with_error(cs, ctx, err);
        invariant(is_whole);
    }
    return rc;
}

/* A router's commands that write do so on shards, which have waited for the write concern; what is
 * left is what a failpoint says of it. */
static bool writes(const CommandCtx *ctx) {
    uint32_t of_router = ctx->service->role == ROLE_ROUTER ? CMD_TAKES_WRITE_CONCERN : 0;
    return (ctx->spec->flags & (CMD_WRITES | of_router)) != 0;
}

static ErrCode run_command(CommandService *cs, CommandCtx *ctx, CommandRow **ret_row, Error *err) {
    TRY(find_command(cs, ctx, ret_row, err));
    CommandRow *row = *ret_row;
    ctx->spec = row->spec;
    atomic_fetch_add_explicit(row->total, 1, memory_order_relaxed);
    void *request;
    TRY(command_parse(ctx, &request, err));
    if (ctx->message->opcode == WIRE_OP_QUERY) {
        /* The old handshake names the database in its collection name: "admin.$cmd". */
        size_t size = strcspn(ctx->message->query_ns, ".");
        ctx->args.db = (Str){ctx->message->query_ns, size};
    }
    if (ctx->args.db.size == 0)
        return error_set(err, (ErrCode)40571, "OP_MSG requests require a $db argument");
    if ((row->spec->flags & CMD_NEEDS_TEST_COMMANDS) != 0 &&
        !atomic_load_explicit(&cs->settings.is_test_commands_enabled, memory_order_relaxed))
        return error_set(err, ERR_COMMAND_NOT_FOUND,
                         "no such command: '%s' (start the server with --setParameter "
                         "enableTestCommands=1 to use it)",
                         row->spec->name);
    TRY(generic_args_check(ctx, err));

    Elem first = {ctx->body.data + 4, (uint32_t)strlen((const char *)ctx->body.data + 5)};
    bool has_coll = elem_type(first) == BT_STRING;
    ctx->ns_coll = has_coll ? elem_str(first) : (Str){"", 0};
    ctx->is_of_collection = row->is_of_collection;
    OpDescription desc =
        describe(ctx, has_coll && (row->spec->flags & CMD_NAMES_DB) != 0
                          ? arena_strndup(cmd_arena(ctx), ctx->ns_coll.data, ctx->ns_coll.size)
                          : join_ns(ctx, has_coll ? ctx->ns_coll : STR("$cmd")));
    if (elem_is_present(ctx->args.lsid)) {
        uint8_t subtype;
        Str id = elem_binary(doc_get_lit(elem_doc(ctx->args.lsid), "id"), &subtype);
        memcpy(desc.session, id.data, sizeof(desc.session)); /* 16 bytes: checked above */
    }
    op_describe(ctx->op, &desc);

    ctx->op->is_ended_with_client = (row->spec->flags & CMD_READS) != 0;
    TRY(fail_command_check(ctx, err));
    TRY(cs->hooks.before_run(ctx, err));
    ErrCode rc = row->spec->run(ctx, request, err);
    if (rc == ERR_OK && !ctx->is_park_wanted)
        rc = op_hang(ctx->op, FP_WAIT_AFTER_COMMAND, NULL, err);
    TRY(cs->hooks.after_run(ctx, rc, err));
    if (ctx->is_park_wanted)
        return ERR_OK;
    /* Of a transaction only the commit waits, for all of it. */
    if ((writes(ctx) && !ctx->is_txn) || ctx->is_writing)
        TRY(finish_writes(cs, ctx, err));
    return ERR_OK;
}

/* "db.coll", for those who look at running operations. */
static const char *join_ns(CommandCtx *ctx, Str coll) {
    Str db = ctx->args.db;
    char *ns = arena_alloc(cmd_arena(ctx), db.size + coll.size + 2);
    memcpy(ns, db.data, db.size);
    ns[db.size] = '.';
    memcpy(ns + db.size + 1, coll.data, coll.size);
    ns[db.size + 1 + coll.size] = '\0';
    return ns;
}

void command_show_comment(CommandCtx *ctx, Elem comment) {
    if (!elem_is_present(comment) || elem_is_present(doc_get_lit(ctx->body, "comment")))
        return;
    DocBuilder b = doc_builder_in_arena_sized(cmd_arena(ctx), doc_size(ctx->body) + 256);
    build_all(&b, ctx->body);
    build_elem(&b, comment);
    ctx->body = doc_builder_end(&b);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&ctx->op->mu);
    ctx->op->desc.command = ctx->body.data;
}

void command_set_coll(CommandCtx *ctx, Str coll) {
    ctx->ns_coll = coll;
    ctx->is_of_collection = true;
    op_set_ns(ctx->op, join_ns(ctx, coll));
}

static ErrCode find_command(CommandService *cs, CommandCtx *ctx, CommandRow **ret_row, Error *err) {
    if (doc_is_empty(ctx->body))
        return error_set(err, ERR_COMMAND_NOT_FOUND, "no such command: ''");
    Elem first = {ctx->body.data + 4, (uint32_t)strlen((const char *)ctx->body.data + 5)};
    Str name = elem_name_str(first);
    if (ctx->message->opcode == WIRE_OP_QUERY && str_is(name, "$query") &&
        elem_type(first) == BT_DOC) { /* an older wrapping of the same command */
        ctx->body = elem_doc(first);
        return find_command(cs, ctx, ret_row, err);
    }
    CommandRow *row = find_row(cs, name);
    if (row == NULL)
        return error_set(err, ERR_COMMAND_NOT_FOUND, "no such command: '%.*s'", (int)name.size,
                         name.data);
    if (ctx->message->opcode == WIRE_OP_QUERY && (row->spec->flags & CMD_HANDSHAKE) == 0)
        return error_set(
            err, ERR_UNSUPPORTED_OP_QUERY_COMMAND,
            "Unsupported OP_QUERY command: %s. The client driver may require an upgrade.",
            row->spec->name);
    *ret_row = row;
    return ERR_OK;
}

/* A failed write concern does not fail the command: the writes are done. */
static ErrCode finish_writes(CommandService *cs, CommandCtx *ctx, Error *err) {
    (void)err;
    Error wc_err = {0};
    ErrCode rc = ERR_OK;
    if (ctx->write_concern.is_journaled || !service_is_standalone(ctx->service))
        rc = cs->hooks.wait_write_concern(ctx, &ctx->write_concern, &wc_err);
    if (rc == ERR_OK && !fail_command_write_concern_error(ctx, &wc_err.code))
        return ERR_OK;
    if (rc != ERR_OK) {
        size_t opened = build_open_doc(ctx->reply, "writeConcernError");
        build_error_fields(ctx->reply, &wc_err, /* has_code_name= */ true);
        build_close(ctx->reply, opened);
    }
    build_error_labels(ctx->reply, labels_of(ctx, wc_err.code) & ERROR_LABEL_RETRYABLE_WRITE);
    build_state_of_error(ctx->service->commands, ctx, wc_err.code);
    error_reset(&wc_err);
    return ERR_OK;
}

static void count_documents(CommandStats *stats, const OpMetrics *metrics) {
    const struct {
        _Atomic int64_t *counter;
        int64_t by;
    } ROWS[] = {
        {&stats->keys_examined, metrics->keys_examined},
        {&stats->docs_examined, metrics->docs_examined},
        {&stats->scans, metrics->scans},
        {&stats->tailing_scans, metrics->tailing_scans},
        {&stats->docs_returned, metrics->docs_returned},
        {&stats->docs_inserted, metrics->docs_inserted},
        {&stats->docs_updated, metrics->docs_modified},
        {&stats->docs_deleted, metrics->docs_deleted},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        if (ROWS[i].by > 0)
            atomic_fetch_add_explicit(ROWS[i].counter, ROWS[i].by, memory_order_relaxed);
}

/* Of a transaction its first statement says it, whatever that is. */
static void count_read_concern(CommandStats *stats, const CommandCtx *ctx) {
    bool is_start = elem_is_present(ctx->args.start_transaction);
    bool is_read =
        ctx->spec->latency == LATENCY_READS && (ctx->spec->flags & CMD_CONTINUES_READ) == 0;
    if (ctx->is_txn ? !is_start : !is_read)
        return;
    static const ReadConcernCount GIVEN[] = {
        [READ_CONCERN_LOCAL] = READ_COUNT_LOCAL,
        [READ_CONCERN_AVAILABLE] = READ_COUNT_AVAILABLE,
        [READ_CONCERN_MAJORITY] = READ_COUNT_MAJORITY,
        [READ_CONCERN_LINEARIZABLE] = READ_COUNT_LINEARIZABLE,
        [READ_CONCERN_SNAPSHOT] = READ_COUNT_SNAPSHOT,
    };
    const ReadConcern *concern = &ctx->read_concern;
    ReadConcernCount count =
        concern->level == READ_CONCERN_MAJORITY ? READ_COUNT_NONE_MAJORITY : READ_COUNT_NONE_LOCAL;
    if (concern->is_given)
        count = GIVEN[concern->level];
    if (count == READ_COUNT_SNAPSHOT &&
        elem_is_present(doc_get_lit(elem_doc(ctx->args.read_concern), "atClusterTime")))
        count = READ_COUNT_SNAPSHOT_AT;
    atomic_fetch_add_explicit(&stats->read_concerns[ctx->is_txn][count], 1, memory_order_relaxed);
}

static void note_finished(CommandService *cs, CommandCtx *ctx, CommandRow *row, ErrCode rc,
                          const Error *err) {
    if (row == NULL) {
        atomic_fetch_add_explicit(&cs->stats.asserts_user, 1, memory_order_relaxed);
        return;
    }
    int64_t duration_us = clock_mono_us() - ctx->op->start_us;
    if (row->spec->op_type == NULL)
        count_op(cs->service, OP_COUNTER_COMMAND, 1);
    if (UNLIKELY(rc != ERR_OK || ctx->has_write_errors)) {
        atomic_fetch_add_explicit(row->failed, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&cs->stats.asserts_user, 1, memory_order_relaxed);
    }
    latency_add(&cs->stats.latencies, row->spec->latency, duration_us);
    count_documents(&cs->stats, &ctx->op->metrics);
    count_read_concern(&cs->stats, ctx);
    if (ctx->is_of_collection && ctx->ns_coll.size > 0)
        top_count(cs->top, ctx->op->desc.ns,
                  &(TopOp){.op_type = row->spec->op_type,
                           .latency = row->spec->latency,
                           .is_writing = (row->spec->flags & CMD_WRITES) != 0 || ctx->is_writing,
                           .duration_us = duration_us});
    if ((row->spec->flags & CMD_NOT_LOGGED_WHEN_SLOW) != 0)
        return;
    int32_t slow_ms = atomic_load_explicit(&cs->settings.slow_ms, memory_order_relaxed);
    bool is_logged = duration_us >= (int64_t)slow_ms * 1000 ||
                     UNLIKELY(log_is_enabled(LOG_COMMAND, LOG_SEV_DEBUG1));
    bool is_filtered =
        UNLIKELY(atomic_load_explicit(&cs->settings.has_profile_filters, memory_order_relaxed)) &&
        cs->hooks.is_logged(ctx, duration_us, rc, err, &is_logged);
    if (UNLIKELY(is_logged) && (is_filtered || slow_log_is_sampled(ctx)))
        slow_log_write(ctx, duration_us, rc, err);
    if (UNLIKELY(atomic_load_explicit(&cs->settings.profile_level, memory_order_relaxed) > 0))
        cs->hooks.on_finished(ctx, duration_us, rc, err);
}

static OpDescription describe(const CommandCtx *ctx, const char *ns) {
    return (OpDescription){
        .op_type = ctx->spec != NULL && ctx->spec->op_type != NULL ? ctx->spec->op_type : "command",
        .ns = ns,
        .command = ctx->body.data,
        .client = ctx->client->conn->peer,
        .desc = ctx->client->name,
        .app_name = ctx->client->app_name,
        .client_metadata = ctx->client->metadata,
        .connection_id = (int64_t)ctx->client->conn->id,
    };
}

/* ---- errors ---- */

/* A "not primary" error carries the topology version it belongs to: a driver that already knows of
 * that version need not mark the server unknown and monitor it anew. */
static void build_state_of_error(CommandService *cs, CommandCtx *ctx, ErrCode rc) {
    if (!service_is_standalone(ctx->service) && !ctx->has_forced_error && error_is_of_state(rc))
        build_topology_version(ctx->reply, topology_version(cs));
}

/* Error labels of a failed retryable write: whether a retry can help, and whether this attempt is
 * known to have written nothing. */
static uint32_t labels_of(const CommandCtx *ctx, ErrCode rc) {
    if (!elem_is_present(ctx->args.txn_number) || ctx->has_forced_labels)
        return 0;
    /* A commit or abort may be sent again by itself; anything else in a transaction only with the
     * whole of it. */
    bool is_end = ctx->spec != NULL && (ctx->spec->flags & CMD_ENDS_TXN) != 0;
    if (ctx->is_txn && error_is_transient(rc) && !(is_end && error_is_retriable(rc)) &&
        !ctx->has_concern_error)
        return ERROR_LABEL_TRANSIENT_TRANSACTION;
    if (!error_is_retriable(rc))
        return 0;
    if (ctx->service->role == ROLE_ROUTER) /* only the shard knows what it has written */
        return ERROR_LABEL_RETRYABLE_WRITE;
    return optime_is_none(ctx->op->last_optime)
               ? ERROR_LABEL_RETRYABLE_WRITE | ERROR_LABEL_NO_WRITES_PERFORMED
               : ERROR_LABEL_RETRYABLE_WRITE;
}

/* Messages quote what the client sent, which may be any bytes of any number; a reply must be UTF-8
 * and has a bound. */
void build_error_text(DocBuilder *b, const Error *err, size_t bytes_max) {
    Str text = utf8_cut(error_message(err), ERROR_TEXT_BYTES_MAX);
    const char *message = text.data;
    size_t size = text.size;
    if (LIKELY(utf8_is_valid((const uint8_t *)message, size))) {
        build_str(b, "errmsg", (Str){message, size <= bytes_max ? size : 0});
        return;
    }
    char *escaped = xmalloc(size * 4 + 1);
    size_t at = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)message[i];
        if (c < 0x80)
            escaped[at++] = (char)c;
        else
            at += (size_t)snprintf(escaped + at, 5, "\\x%02x", c);
    }
    build_str(b, "errmsg", (Str){escaped, at <= bytes_max ? at : 0});
    xfree(escaped);
}

void build_error(DocBuilder *b, const Error *err) {
    build_f64(b, "ok", 0.0);
    build_error_text(b, err, SIZE_MAX);
    build_i32(b, "code", (int32_t)err->code);
    char name[32];
    build_cstr(b, "codeName", error_code_name(err->code, name));
    if (err->extra != NULL)
        build_all(b, (Doc){err->extra});
    build_error_labels(b, err->labels);
}

void build_error_labels(DocBuilder *b, uint32_t labels) {
    if (labels == 0)
        return;
    size_t opened = build_open_array(b, "errorLabels");
    uint32_t at = 0;
    for (int i = 0; i < ERROR_LABEL_COUNT; i++) {
        char index[INDEX_NAME_SIZE];
        if ((labels & 1u << i) != 0)
            build_cstr(b, index_name(at++, index).data, error_label_name((ErrorLabel)(1u << i)));
    }
    build_close(b, opened);
}

void build_error_fields(DocBuilder *b, const Error *err, bool has_code_name) {
    build_i32(b, "code", (int32_t)err->code);
    if (has_code_name) {
        char name[32];
        build_cstr(b, "codeName", error_code_name(err->code, name));
    }
    if (err->extra != NULL)
        build_all(b, (Doc){err->extra});
    build_error_text(b, err, SIZE_MAX);
}

/* ---- table ---- */

/* Others take any value: {ping: "anything"}. */
static bool names_collection(const CommandSpec *spec, const char *name) {
    if (spec->latency == LATENCY_READS || spec->latency == LATENCY_WRITES ||
        (spec->flags & CMD_NAMES_DB) != 0)
        return true;
    for (size_t i = 0; spec->request != NULL && i < spec->request->field_count; i++) {
        const FieldSpec *field = &spec->request->fields[i];
        if (strcmp(field->name, name) == 0)
            return field->type == FIELD_COLL || field->type == FIELD_COLL_OR_UUID;
    }
    return false;
}

static void add_name(CommandService *service, const char *name, size_t index) {
    size_t at = hash_text(name) & (COMMAND_TABLE_SIZE - 1);
    while (service->table[at].spec != NULL) {
        invariant(strcmp(service->table[at].name, name) != 0);
        at = (at + 1) & (COMMAND_TABLE_SIZE - 1);
    }
    const CommandSpec *spec = service->commands->specs[index];
    service->table[at] = (CommandRow){spec, name, names_collection(spec, name),
                                      &service->totals[index], &service->failures[index]};
}

static CommandRow *find_row(CommandService *service, Str name) {
    size_t at = hash_bytes(name.data, name.size) & (COMMAND_TABLE_SIZE - 1);
    while (service->table[at].spec != NULL) {
        if (str_is(name, service->table[at].name))
            return &service->table[at];
        at = (at + 1) & (COMMAND_TABLE_SIZE - 1);
    }
    return NULL;
}
