#include "server/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "bson/json.h"
#include "catalog/catalog.h"
#include "commands/concerns.h"
#include "commands/core/command_service.h"
#include "commands/core/params.h"
#include "commands/default_concerns.h"
#include "commands/fail_point_config.h"
#include "commands/node_commands.h"
#include "commands/param_hooks.h"
#include "commands/profiler.h"
#include "commands/session_refresh.h"
#include "commands/version.h"
#include "concurrency/lock_manager.h"
#include "ddl/ddl.h"
#include "index/build/coordinator.h"
#include "query/cursor/cursor_table.h"
#include "query/write/agg_sink.h"
#include "query/expr/time_zone.h"
#include "repl/repl.h"
#include "server/descriptors.h"
#include "server/exit_codes.h"
#include "server/signals.h"
#include "server/start_records.h"
#include "storage/engine.h"
#include "transport/client.h"
#include "transport/server.h"
#include "ttl/ttl.h"
#include "txn/session_cache.h"
#include "txn/session_catalog.h"

/* Of the names by which --setParameter sets failpoints. */
#define FAIL_POINT_PREFIX "failpoint."

enum {
    BIND_ADDRESSES_MAX = 32,
    /* Requests that run when the stop begins may go on for so long; then they are killed. */
    STOP_GRACE_US = 1000 * 1000,
    OPEN_FILES_WANTED = 64000,
    QUIESCE_US = 400 * 1000,
};

typedef struct Node {
    const Options *options;
    ServiceCtx service;
    Signals signals;
    Arena arena; /* what lives as long as the node */
    OpCtx *start_op;
    int64_t start_ms;
    bool has_pid_file;
    const char *addresses[BIND_ADDRESSES_MAX];
    uint32_t address_count;
    uint32_t unix_permissions;
    uint64_t descriptors; /* the limit of the process */
    DescriptorShares shares;
} Node;

static ErrCode node_start(Node *node, int *ret_exit_code, Error *err);
static void node_stop(Node *node);
static void wait_for_stop(Node *node);
static void open_clients(Node *node);
static ErrCode open_log(const Options *options, Error *err);
static ErrCode set_parameters(Node *node, Error *err);
/* A machine without the database can do without, until somebody names a zone; a directory that was
 * asked for must be there. */
static ErrCode use_time_zones(const Options *options, Error *err) {
    const char *directory = option_text(options, OPTION_TIME_ZONE_INFO);
    if (option_is_set(options, OPTION_TIME_ZONE_INFO) && access(directory, R_OK | X_OK) != 0)
        return error_set(err, ERR_BAD_VALUE, "--timeZoneInfo '%s' cannot be read", directory);
    time_zone_set_directory(directory);
    return ERR_OK;
}

static ErrCode fill_setup(Node *node, const char *process_name, Error *err);
static ErrCode open_storage(Node *node, int *ret_exit_code, Error *err);
static ErrCode open_catalog(Node *node, Error *err);
static ErrCode open_repl(Node *node, OpCtx *op, Error *err);
static ErrCode start_transport(Node *node, int *ret_exit_code, Error *err);
static ErrCode read_network_options(Node *node, Error *err);
static ErrCode bind_addresses(Node *node, Error *err);
static ErrCode write_pid_file(Node *node, Error *err);
static void log_start(Node *node);
static void warn_at_start(Node *node);

static void request_shutdown(ServiceCtx *service) {
    signals_request_stop(&CONTAINER_OF(service, Node, service)->signals);
}

int node_run(const Options *options, const char *process_name, int ready_fd) {
    Node node = {.options = options, .start_ms = clock_wall_ms()};
    arena_init(&node.arena, ARENA_CHUNK_SIZE_DEFAULT);
    CLEANUP(error_reset) Error err = {0};
    int exit_code = EXIT_CODE_BAD_OPTIONS;
    log_set_thread_name("initandlisten");
    node.service.start_wall_ms = clock_wall_ms();
    node.service.start_mono_us = clock_mono_us();
    node.service.request_shutdown = request_shutdown;
    node.service.params = server_params_new(PARAM_HOOKS);

    ErrCode rc = signals_open(&node.signals, &err);
    if (rc == ERR_OK)
        rc = set_parameters(&node, &err);
    if (rc == ERR_OK)
        rc = fill_setup(&node, process_name, &err);
    if (rc == ERR_OK)
        rc = read_network_options(&node, &err);
    if (rc == ERR_OK) {
        exit_code = EXIT_CODE_STARTUP;
        rc = open_log(options, &err);
    }
    if (rc == ERR_OK)
        rc = node_start(&node, &exit_code, &err);
    if (rc == ERR_OK) {
        exit_code = EXIT_CODE_CLEAN;
        if (ready_fd >= 0) {
            dup2(STDOUT_FILENO, STDERR_FILENO); /* the terminal belongs to others from now on */
            if (write(ready_fd, "", 1) != 1)
                LOG_WARN(LOG_CONTROL, 7200401, "The starting process is gone");
            close(ready_fd);
        }
        wait_for_stop(&node);
    } else {
        LOG_ERROR(LOG_CONTROL, 20557, "DBException in initAndListen, terminating",
                  LOG_STR("error", error_message(&err)));
        fprintf(stderr, "%s: %s\n", options->program, error_message(&err));
    }
    node_stop(&node);
    LOG_INFO(LOG_CONTROL, 23138, "Shutting down", LOG_I64("exitCode", exit_code));
    server_params_free(node.service.params);
    signals_close(&node.signals);
    arena_done(&node.arena);
    return exit_code;
}

/* ---- start ---- */

static ErrCode node_start(Node *node, int *ret_exit_code, Error *err) {
    ServiceCtx *service = &node->service;
    node->descriptors = descriptors_raise_limit();
    node->shares =
        descriptors_share(node->descriptors, (uint64_t)option_i64(node->options, OPTION_MAX_CONNS));
    log_start(node);
    TRY(write_pid_file(node, err));
    lock_manager_install();
    service->ops = op_registry_new();
    service->session_cache = session_cache_new();
    open_clients(node);
    bool is_member = option_text(node->options, OPTION_REPL_SET) != NULL;
    service->index_builds =
        index_builds_new(is_member || param_bool(service, PARAM_RESUME_INDEX_BUILDS));
    PARAM_HOOKS[PARAM_INDEX_BUILDS_ACTIVE_MAX].apply(service, PARAM_INDEX_BUILDS_ACTIVE_MAX);
    TRY(open_storage(node, ret_exit_code, err));
    TRY(open_catalog(node, err));
    TRY(storage_start_threads(service->storage, err));
    TRY(start_transport(node, ret_exit_code, err));
    return service->repl != NULL ? repl_start(service->repl, err) : ERR_OK;
}

/* Threads and connections come with the first use. */
static void open_clients(Node *node) {
    ServiceCtx *service = &node->service;
    service->clients = client_pool_new(&(ClientPoolConfig){
        .name = "cluster",
        .ops = service->ops,
        .driver_name = "Sherd Internal Client",
        .driver_version = SHERD_VERSION,
        .app_name = server_setup(service)->process,
        .is_member = true,
        .wire_version_min = COMPAT_WIRE_VERSION_MIN,
        .wire_version_max = COMPAT_WIRE_VERSION_MAX,
        .compressors = server_setup(service)->compressors,
    });
}

static ErrCode open_log(const Options *options, Error *err) {
    log_set_verbosity(LOG_DEFAULT, (int)option_i64(options, OPTION_VERBOSE));
    const char *path = option_text(options, OPTION_LOG_PATH);
    if (path == NULL)
        return ERR_OK;
    /* A log that is there already is kept aside unless it is to be continued. */
    if (!option_bool(options, OPTION_LOG_APPEND) && access(path, F_OK) == 0) {
        TRY(log_open_file(path, /* is_append= */ true, err));
        return log_rotate(/* is_reopen= */ false, err);
    }
    return log_open_file(path, option_bool(options, OPTION_LOG_APPEND), err);
}

static ErrCode set_parameters(Node *node, Error *err) {
    const Options *options = node->options;
    ServerParams *params = node->service.params;
    param_set_number(params, PARAM_SYNCDELAY, option_f64(options, OPTION_SYNCDELAY));
    param_set_number(params, PARAM_JOURNAL_COMMIT_INTERVAL,
                     (double)option_i64(options, OPTION_JOURNAL_COMMIT_INTERVAL));
    param_set_number(params, PARAM_LOG_LEVEL, (double)option_i64(options, OPTION_VERBOSE));
    param_set_number(params, PARAM_QUIET, option_bool(options, OPTION_QUIET));
    const OptionValue *list = &options->values[OPTION_SET_PARAMETER];
    const char *needs_tests = NULL;
    for (uint32_t i = 0; i < list->list_count; i++) {
        const char *pair = list->list[i];
        size_t size = strcspn(pair, "=");
        if (pair[size] == '\0')
            return error_set(err, ERR_BAD_VALUE,
                             "Illegal option assignment: \"%s\" (--setParameter takes name=value)",
                             pair);
        const char *name = arena_strndup(&node->arena, pair, size);
        ParamId id;
        if (strncmp(name, FAIL_POINT_PREFIX, sizeof(FAIL_POINT_PREFIX) - 1) == 0) {
            TRY(fail_point_configure_text(name + sizeof(FAIL_POINT_PREFIX) - 1, pair + size + 1,
                                          err));
            needs_tests = name;
        } else {
            TRY(param_set_text(params, name, pair + size + 1, err));
            if (param_find(str_from(name), &id) && (param_spec(id)->flags & PARAM_TEST) != 0)
                needs_tests = name;
        }
    }
    if (needs_tests != NULL && !param_bool(&node->service, PARAM_ENABLE_TEST_COMMANDS))
        return error_set(err, ERR_BAD_VALUE,
                         "--setParameter '%s' can only be used with enableTestCommands=1",
                         needs_tests);
    return ERR_OK;
}

static ErrCode parse_compressors(const char *text, uint32_t *ret_bits, Error *err) {
    uint32_t bits = 0;
    if (strcmp(text, "disabled") == 0)
        text = "";
    while (*text != '\0') {
        Str name = {text, strcspn(text, ",")};
        WireCompressor compressor = wire_compressor_from_name(name);
        if (compressor == WIRE_COMPRESSOR_NONE || compressor == WIRE_COMPRESSOR_NOOP)
            return error_set(err, ERR_BAD_VALUE,
                             "Invalid network message compressor specified: '%.*s'", (int)name.size,
                             name.data);
        bits |= WIRE_COMPRESSOR_BIT(compressor);
        text += name.size + (text[name.size] == ',');
    }
    *ret_bits = bits;
    return ERR_OK;
}

static ErrCode fill_setup(Node *node, const char *process_name, Error *err) {
    ServerSetup *setup = server_setup(&node->service);
    const Options *options = node->options;
    char name[256];
    if (gethostname(name, sizeof(name)) != 0)
        snprintf(name, sizeof(name), "localhost");
    name[sizeof(name) - 1] = '\0';
    snprintf(setup->host, sizeof(setup->host), "%s:%d", name,
             (int)option_i64(options, OPTION_PORT));
    setup->process = process_name;
    setup->is_log_reopened = strcmp(option_text(options, OPTION_LOG_ROTATE), "reopen") == 0;
    setup->argv = options_argv_doc(options, &node->arena);
    setup->parsed = options_parsed_doc(options, &node->arena);
    TRY(use_time_zones(options, err));
    return parse_compressors(option_text(options, OPTION_COMPRESSORS), &setup->compressors, err);
}

static ErrCode open_storage(Node *node, int *ret_exit_code, Error *err) {
    const Options *options = node->options;
    ServiceCtx *service = &node->service;
    StorageConfig config = {
        .dbpath = option_text(options, OPTION_DB_PATH),
        .cache_mb = (int64_t)(option_f64(options, OPTION_CACHE_SIZE_GB) * 1024),
        .journal_interval_ms = (int32_t)param_i64(service, PARAM_JOURNAL_COMMIT_INTERVAL),
        .checkpoint_interval_s = (int32_t)param_f64(service, PARAM_SYNCDELAY),
        .read_tickets = (int32_t)param_i64(service, PARAM_READ_TICKETS),
        .write_tickets = (int32_t)param_i64(service, PARAM_WRITE_TICKETS),
        .table_files_max = node->shares.table_files,
        .is_journal_loss_accepted = param_bool(service, PARAM_START_OVER_DAMAGED_JOURNAL),
        .engine_config_extra = option_text(options, OPTION_ENGINE_CONFIG),
        .is_replicated = option_text(options, OPTION_REPL_SET) != NULL,
    };
    ErrCode rc = storage_open(&config, service->ops, &service->storage, err);
    if (rc == ERR_DATA_CORRUPTION_DETECTED || rc == ERR_UNKNOWN_ERROR)
        *ret_exit_code = EXIT_CODE_ABRUPT;
    if (rc == ERR_OK && storage_was_unclean(service->storage))
        LOG_WARN(LOG_STORAGE, 22271, "Detected unclean shutdown - the journal has been replayed",
                 LOG_STR("dbpath", config.dbpath));
    return rc;
}

static ErrCode open_catalog(Node *node, Error *err) {
    ServiceCtx *service = &node->service;
    node->start_op = op_ctx_new(service->ops, NULL, NULL);
    OpCtx *op = node->start_op;
    op->service = service;
    op_attach_storage(op, service->storage);
    OpDescription desc = {.op_type = "none", .ns = "", .desc = "initandlisten"};
    op_begin(op, &desc);
    ErrCode rc = catalog_service_open(op,
                                      index_builds_is_resuming(service->index_builds)
                                          ? CATALOG_UNFINISHED_KEEP
                                          : CATALOG_UNFINISHED_DISCARD,
                                      &service->catalog, err);
    if (rc == ERR_OK)
        rc = ddl_recover_index_builds(op, err);
    if (rc == ERR_OK && option_text(node->options, OPTION_REPL_SET) != NULL)
        rc = open_repl(node, op, err);
    if (rc == ERR_OK && service->repl == NULL)
        rc = agg_sink_clean_up(op, err);
    if (rc == ERR_OK)
        start_records_write(service, op, node->start_ms);
    op_end(op);
    op_ctx_free(TAKE_PTR(node->start_op));
    return rc;
}

static void on_topology_moves(ServiceCtx *service) {
    if (service->commands != NULL)
        topology_moves(service->commands);
}

static void on_topology_changed(ServiceCtx *service) {
    if (service->commands != NULL)
        topology_changed(service->commands);
}

static FlowSettings flow_settings(ServiceCtx *service) {
    return (FlowSettings){
        .is_enabled = param_bool(service, PARAM_ENABLE_FLOW_CONTROL),
        .target_lag_s = (double)param_i64(service, PARAM_FLOW_CONTROL_TARGET_LAG_SECS),
        .threshold_part = param_f64(service, PARAM_FLOW_CONTROL_THRESHOLD),
        .tickets_min = (double)param_i64(service, PARAM_FLOW_CONTROL_TICKETS_MIN),
        .decay = param_f64(service, PARAM_FLOW_CONTROL_DECAY),
        .fudge = param_f64(service, PARAM_FLOW_CONTROL_FUDGE),
        .adder = (double)param_i64(service, PARAM_FLOW_CONTROL_ADDER),
        .multiplier = param_f64(service, PARAM_FLOW_CONTROL_MULTIPLIER),
    };
}

static InitialSyncSettings initial_sync_settings(ServiceCtx *service) {
    return (InitialSyncSettings){
        .attempts_max = param_i64(service, PARAM_INITIAL_SYNC_ATTEMPTS),
        .retry_secs = param_i64(service, PARAM_INITIAL_SYNC_RETRY_SECS),
        .batch_docs = param_i64(service, PARAM_CLONER_BATCH_SIZE),
    };
}

static ReplTuning repl_tuning(ServiceCtx *service) {
    return (ReplTuning){
        .key_rotation_secs = param_i64(service, PARAM_KEYS_ROTATION_SECS),
        .history_secs = param_i64(service, PARAM_HISTORY_WINDOW_SECS),
    };
}

/* How others reach this node: by its name, or, where it listens only to itself, by that address. */
static void own_host(Node *node, char *host, size_t size) {
    bool is_local = true;
    for (uint32_t i = 0; i < node->address_count; i++)
        is_local &=
            strncmp(node->addresses[i], "127.", 4) == 0 || strcmp(node->addresses[i], "::1") == 0;
    if (is_local)
        snprintf(host, size, "127.0.0.1:%d", (int)option_i64(node->options, OPTION_PORT));
    else
        snprintf(host, size, "%s", server_setup(&node->service)->host);
}

static ErrCode open_repl(Node *node, OpCtx *op, Error *err) {
    const Options *options = node->options;
    char host[300];
    own_host(node, host, sizeof(host));
    ReplSettings settings = {
        .set_name = option_text(options, OPTION_REPL_SET),
        .host = host,
        .port = (uint16_t)option_i64(options, OPTION_PORT),
        .oplog_bytes = option_is_set(options, OPTION_OPLOG_SIZE)
                           ? option_i64(options, OPTION_OPLOG_SIZE) * 1024 * 1024
                           : 0,
        .has_test_service = param_bool(&node->service, PARAM_ENABLE_TEST_COMMANDS),
    };
    node->service.sessions = session_catalog_new(&node->service);
    server_setup(&node->service)->default_concerns = default_concerns_cache_new();
    const ReplHooks hooks = {.topology_moves = on_topology_moves,
                             .topology_changed = on_topology_changed,
                             .flow_settings = flow_settings,
                             .initial_sync_settings = initial_sync_settings,
                             .tuning = repl_tuning,
                             .term_begins = start_records_begin_term};
    return repl_open(op, &settings, &hooks, &node->service.repl, err);
}

/* ---- commands ---- */

static void attach_op(ServiceCtx *service, OpCtx *op) {
    op_attach_storage(op, service->storage);
}

static void on_disconnect(ServiceCtx *service, ClientState *client) {
    /* An exhaust cursor whose reader is gone would wait for its time-out. */
    if (client->streamed_cursor_id != 0)
        (void)cursor_kill(service->cursors, client->streamed_cursor_id);
}

static int64_t cursor_timeout_ms(ServiceCtx *service) {
    return param_i64(service, PARAM_CURSOR_TIMEOUT_MILLIS);
}

static int64_t cursor_interval_s(ServiceCtx *service) {
    return param_i64(service, PARAM_CURSOR_MONITOR_FREQUENCY_SECS);
}

static TtlSettings ttl_settings(ServiceCtx *service) {
    return (TtlSettings){
        /* Deletes come to secondaries by the oplog. */
        .is_enabled = param_bool(service, PARAM_TTL_MONITOR_ENABLED) &&
                      (service->repl == NULL || repl_is_writable(service->repl)),
        .is_batched = param_bool(service, PARAM_TTL_MONITOR_BATCH_DELETES),
        .sleep_s = param_i64(service, PARAM_TTL_MONITOR_SLEEP_SECS),
        .sub_pass_s = param_i64(service, PARAM_TTL_MONITOR_SUB_PASS_TARGET_SECS),
        .index_docs = param_i64(service, PARAM_TTL_INDEX_DELETE_TARGET_DOCS),
        .index_ms = param_i64(service, PARAM_TTL_INDEX_DELETE_TARGET_TIME_MS),
        .low_priority_sub_passes = param_i64(service, PARAM_TTL_LOW_PRIORITY_SUB_PASSES),
    };
}

static void note_from_transport(void *ctx, const char *text) {
    (void)ctx;
    LOG_WARN(LOG_NETWORK, 7200402, "Network event", LOG_STR("event", text));
}

static ErrCode start_transport(Node *node, int *ret_exit_code, Error *err) {
    ServiceCtx *service = &node->service;
    const Options *options = node->options;
    const CommandHooks hooks = {
        .attach_op = attach_op,
        .before_run = concerns_before_run,
        .after_run = concerns_after_run,
        .wait_write_concern = concerns_wait_write,
        .finish_reply = concerns_finish_reply,
        .on_disconnect = on_disconnect,
        .on_finished = profiler_on_finished,
    };
    service->commands = command_service_new(service, &NODE_COMMANDS, &hooks);
    params_apply_all(service);
    CommandSettings *settings = command_settings(service);
    settings->slow_ms = (int32_t)option_i64(options, OPTION_SLOW_MS);
    settings->slow_sample_rate = option_f64(options, OPTION_SLOW_SAMPLE_RATE);
    server_setup(service)->profiler =
        profiler_new(service, (int32_t)option_i64(options, OPTION_PROFILE));

    service->cursors = cursor_table_new(service);
    TRY(cursor_table_start(service->cursors, cursor_timeout_ms, cursor_interval_s, err));
    TRY(ttl_monitor_start(service, ttl_settings, &server_setup(service)->ttl, err));
    TRY(session_refresher_start(service, &server_setup(service)->session_refresher, err));

    TransportConfig config = {
        .addresses = node->addresses,
        .address_count = node->address_count,
        .port = (uint16_t)option_i64(options, OPTION_PORT),
        .has_unix_socket = !option_bool(options, OPTION_NO_UNIX_SOCKET),
        .unix_prefix = option_text(options, OPTION_UNIX_SOCKET_PREFIX),
        .unix_permissions = node->unix_permissions,
        .connections_max = node->shares.connections,
        .extra_connections_max = service->repl != NULL ? node->shares.members : 0,
        .compressors = server_setup(service)->compressors,
        .handler = command_service_handler(),
        .ctx = service,
        .note = note_from_transport,
    };
    warn_at_start(node);
    *ret_exit_code = EXIT_CODE_NETWORK;
    bool is_in_use = false;
    if (transport_start(&config, &service->transport, &is_in_use, err) != ERR_OK) {
        if (is_in_use) {
            error_reset(err);
            return error_set(err, ERR_SOCKET_EXCEPTION,
                             "Failed to set up listener: SocketException: Address already in use "
                             "(port %u)",
                             config.port);
        }
        return error_prefix(err, "Failed to set up listener: SocketException");
    }
    if (config.port == 0) { /* chosen by the system */
        ServerSetup *setup = server_setup(service);
        char *colon = strrchr(setup->host, ':');
        snprintf(colon, sizeof(setup->host) - (size_t)(colon - setup->host), ":%u",
                 transport_port(service->transport));
    }
    for (uint32_t i = 0; i < config.address_count; i++)
        LOG_INFO(LOG_NETWORK, 23015, "Listening on", LOG_STR("address", node->addresses[i]));
    if (transport_unix_path(service->transport) != NULL)
        LOG_INFO(LOG_NETWORK, 23015, "Listening on",
                 LOG_STR("address", transport_unix_path(service->transport)));
    LOG_INFO(LOG_NETWORK, 23016, "Waiting for connections",
             LOG_I64("port", transport_port(service->transport)), LOG_STR("ssl", "off"));
    return ERR_OK;
}

static ErrCode read_network_options(Node *node, Error *err) {
    const char *permissions = option_text(node->options, OPTION_FILE_PERMISSIONS);
    char *end;
    unsigned long bits = strtoul(permissions, &end, 8);
    if (*permissions == '\0' || *end != '\0' || bits == 0 || bits > 0777)
        return error_set(err, ERR_BAD_VALUE,
                         "--filePermissions has to be an octal number from 1 to 0777, not \"%s\"",
                         permissions);
    node->unix_permissions = (uint32_t)bits;
    return bind_addresses(node, err);
}

static ErrCode add_address(Node *node, const char *address, Error *err) {
    if (node->address_count == BIND_ADDRESSES_MAX)
        return error_set(err, ERR_BAD_VALUE, "more than %d addresses in --bind_ip",
                         BIND_ADDRESSES_MAX);
    if (address[0] == '/')
        return error_set(err, ERR_BAD_VALUE,
                         "--bind_ip does not take paths of unix sockets (\"%s\"); use "
                         "--unixSocketPrefix",
                         address);
    if (strchr(address, ':') != NULL && !option_bool(node->options, OPTION_IPV6))
        return error_set(err, ERR_BAD_VALUE, "the address \"%s\" of --bind_ip needs --ipv6",
                         address);
    for (uint32_t i = 0; i < node->address_count; i++)
        if (strcmp(node->addresses[i], address) == 0)
            return ERR_OK;
    node->addresses[node->address_count++] = address;
    return ERR_OK;
}

static ErrCode bind_addresses(Node *node, Error *err) {
    const Options *options = node->options;
    bool is_ipv6 = option_bool(options, OPTION_IPV6);
    const char *text = option_text(options, OPTION_BIND_IP);
    if (option_bool(options, OPTION_BIND_IP_ALL))
        text = "*";
    else if (text == NULL || *text == '\0')
        text = "localhost";
    while (*text != '\0') {
        size_t size = strcspn(text, ",");
        char *one = arena_strndup(&node->arena, text, size);
        text += size + (text[size] == ',');
        one += strspn(one, " ");
        one[strcspn(one, " ")] = '\0';
        if (*one == '\0')
            continue;
        bool is_all = strcmp(one, "*") == 0;
        if (is_all || strcmp(one, "localhost") == 0) {
            TRY(add_address(node, is_all ? "0.0.0.0" : "127.0.0.1", err));
            if (is_ipv6)
                TRY(add_address(node, is_all ? "::" : "::1", err));
        } else {
            TRY(add_address(node, one, err));
        }
    }
    return ERR_OK;
}

static ErrCode write_pid_file(Node *node, Error *err) {
    const char *path = option_text(node->options, OPTION_PID_FILE);
    if (path == NULL)
        return ERR_OK;
    FILE *file = fopen(path, "we");
    if (file == NULL || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file) != 0)
        return error_set(err, ERR_FILE_NOT_OPEN, "could not write process id to \"%s\": %s", path,
                         strerror(errno));
    node->has_pid_file = true;
    return ERR_OK;
}

static void log_start(Node *node) {
    const ServerSetup *setup = server_setup(&node->service);
    Buffer text;
    buffer_init_arena(&text, &node->arena, 1024, LOG_LINE_BYTES_MAX);
    json_append_doc(&text, setup->parsed, LOG_LINE_BYTES_MAX / 2);
    buffer_append_byte(&text, '\0');
    LOG_INFO(LOG_CONTROL, 4615611, "Sherd starting", LOG_I64("pid", getpid()),
             LOG_I64("port", option_i64(node->options, OPTION_PORT)),
             LOG_STR("dbPath", option_text(node->options, OPTION_DB_PATH)),
             LOG_STR("architecture", "64-bit"), LOG_STR("host", setup->host));
    LOG_INFO(LOG_CONTROL, 23403, "Build Info", LOG_STR("version", SHERD_VERSION),
             LOG_STR("compatibleWith", COMPAT_VERSION), LOG_STR("gitVersion", SHERD_GIT_VERSION));
    LOG_INFO(LOG_CONTROL, 21951, "Options set by command line",
             LOG_JSON("options", (const char *)text.data));
}

#define WARN_AT_START(id, msg, ...)                                                                \
    do {                                                                                           \
        const LogAttr attrs_[] = {__VA_ARGS__};                                                    \
        log_startup_warning((id), (msg), attrs_, ARRAY_LEN(attrs_));                               \
    } while (0)

static void warn_at_start(Node *node) {
    WARN_AT_START(22120,
                  "Access control is not enabled for the database. Read and write access to "
                  "data and configuration is unrestricted",
                  (LogAttr){0});
    if (geteuid() == 0)
        WARN_AT_START(22138,
                      "You are running this process as the root user, which is not recommended",
                      (LogAttr){0});
    if (!option_is_set(node->options, OPTION_BIND_IP) &&
        !option_bool(node->options, OPTION_BIND_IP_ALL))
        WARN_AT_START(22140,
                      "This server is bound to localhost. Remote systems will be unable to "
                      "connect to this server. Start the server with --bind_ip <address> to "
                      "specify which IP addresses it should serve responses from, or with "
                      "--bind_ip_all to bind to all interfaces",
                      (LogAttr){0});
    if (node->descriptors < OPEN_FILES_WANTED)
        WARN_AT_START(22184, "Soft rlimits for open file descriptors too low",
                      LOG_I64("currentValue", (int64_t)node->descriptors),
                      LOG_I64("recommendedMinimum", OPEN_FILES_WANTED));
}

/* ---- run and stop ---- */

static void wait_for_stop(Node *node) {
    for (;;) {
        SignalInfo info;
        SignalEvent event = signals_wait(&node->signals, &info);
        log_set_thread_name("SignalHandler");
        if (event == SIGNAL_EVENT_ROTATE) {
            CLEANUP(error_reset) Error err = {0};
            if (log_rotate(server_setup(&node->service)->is_log_reopened, &err) != ERR_OK)
                LOG_ERROR(LOG_CONTROL, 23168, "Unable to rotate logs",
                          LOG_STR("error", error_message(&err)));
            continue;
        }
        if (event == SIGNAL_EVENT_STOP) {
            LOG_INFO(LOG_CONTROL, 23377, "Received signal", LOG_I64("signal", info.number),
                     LOG_STR("error", strsignal(info.number)));
            LOG_INFO(LOG_CONTROL, 23378, "Signal was sent by kill(2)",
                     LOG_I64("pid", info.sender_pid), LOG_I64("uid", info.sender_uid));
            LOG_INFO(LOG_CONTROL, 23381, "Will terminate after current cmd ends");
        }
        return;
    }
}

/* A member of a replica set goes on serving for a moment, so that clients hear from it that it is
 * going away, and who the new primary is. */
static void quiesce(ServiceCtx *service) {
    if (service->repl == NULL || service->transport == NULL)
        return;
    int64_t timeout_ms = param_i64(service, PARAM_SHUTDOWN_TIMEOUT_MILLIS);
    int64_t deadline_us = clock_deadline_ms(timeout_ms);
    bool was_primary = repl_hand_over(service->repl, timeout_ms);
    int64_t quiesce_us = was_primary ? QUIESCE_US : QUIESCE_US / 4;
    LOG_INFO(LOG_REPL, 4695102, "Entering quiesce mode for shutdown",
             LOG_I64("quiesceTimeMillis", quiesce_us / 1000));
    command_service_begin_quiesce(service->commands, deadline_us);
    thread_sleep_us(quiesce_us < deadline_us - clock_mono_us() ? quiesce_us : 0);
}

/* Stops whatever was started, in reverse. */
static void node_stop(Node *node) {
    ServiceCtx *service = &node->service;
    signals_arm_kill();
    ttl_monitor_stop(server_setup(service)->ttl);
    session_refresher_stop(server_setup(service)->session_refresher);
    quiesce(service);
    repl_stop(service->repl);
    index_builds_interrupt(service->index_builds);
    failpoint_end_blocking();
    if (service->transport != NULL) {
        int64_t deadline_us = clock_mono_us() + STOP_GRACE_US;
        LOG_INFO(LOG_NETWORK, 20562, "Shutdown: going to close listening sockets");
        transport_stop_accepting(service->transport);
        command_service_begin_quiesce(service->commands, deadline_us);
        LOG_INFO(LOG_COMMAND, 4784908, "Shutting down all open connections");
        transport_stop(service->transport, deadline_us);
    }
    Transport *transport = TAKE_PTR(service->transport);
    if (transport != NULL)
        transport_free(transport);
    /* After the last writer: what it wrote aside belongs to what is saved. */
    index_builds_stop(service->index_builds);
    cursor_table_free(TAKE_PTR(service->cursors));
    ttl_monitor_free(TAKE_PTR(server_setup(service)->ttl));
    session_refresher_free(TAKE_PTR(server_setup(service)->session_refresher));
    profiler_free(server_setup(service)->profiler);
    command_service_free(TAKE_PTR(service->commands));
    op_ctx_free(TAKE_PTR(node->start_op));
    index_builds_free(TAKE_PTR(service->index_builds));
    repl_free(TAKE_PTR(service->repl));
    client_pool_free(TAKE_PTR(service->clients));
    default_concerns_cache_free(TAKE_PTR(server_setup(service)->default_concerns));
    session_catalog_free(TAKE_PTR(service->sessions));
    session_cache_free(TAKE_PTR(service->session_cache));
    catalog_service_free(TAKE_PTR(service->catalog));
    if (service->storage != NULL) {
        LOG_INFO(LOG_STORAGE, 4784930, "Shutting down the storage engine");
        storage_close(TAKE_PTR(service->storage));
    }
    if (service->ops != NULL) {
        op_registry_free(TAKE_PTR(service->ops));
        lock_manager_uninstall();
    }
    if (node->has_pid_file)
        unlink(option_text(node->options, OPTION_PID_FILE));
}
