#include "server/router.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "commands/current_op.h"
#include "commands/node_commands.h"
#include "commands/param_hooks.h"
#include "commands/sessions.h"
#include "commands/version.h"
#include "cursor/cursor_table.h"
#include "params/params.h"
#include "router/hooks.h"
#include "router/router_commands.h"
#include "router/txn_table.h"
#include "server/exit_codes.h"
#include "server/process.h"
#include "session_refresh/session_refresh.h"
#include "sharding/route/cluster.h"
#include "txn/session_cache.h"

enum {
    /* The config server may be started after its routers. */
    START_RETRY_US = 200 * 1000,
    SPECS_MAX = 256,
};

typedef struct Router {
    Process process;
    const CommandSpec *specs[SPECS_MAX];
    CommandTable commands;
} Router;

/* Commands that are the same on every kind of node: they concern the process alone. */
static const CommandSpec *const SHARED_SPECS[] = {
    &CMD_BUILD_INFO,
    &CMD_CONFIGURE_FAIL_POINT,
    &CMD_CONNECTION_STATUS,
    &CMD_CONN_POOL_STATS,
    &CMD_FLUSH_ROUTER_CONFIG,
    &CMD_GET_CMD_LINE_OPTS,
    &CMD_GET_LOG,
    &CMD_GET_PARAMETER,
    &CMD_HASH_BSON_ELEMENT,
    &CMD_HELLO,
    &CMD_HOST_INFO,
    &CMD_IS_MASTER,
    &CMD_KILL_ALL_SESSIONS,
    &CMD_KILL_ALL_SESSIONS_BY_PATTERN,
    &CMD_KILL_SESSIONS,
    &CMD_KILL_CURSORS,
    &CMD_LIST_COMMANDS,
    &CMD_LOG_ROTATE,
    &CMD_PING,
    &CMD_PROFILE,
    &CMD_REAP_LOGICAL_SESSION_CACHE_NOW,
    &CMD_REFRESH_LOGICAL_SESSION_CACHE_NOW,
    &CMD_SERVER_STATUS,
    &CMD_SET_PARAMETER,
    &CMD_TEST_DEPRECATION,
    &CMD_TEST_DEPRECATION_IN_VERSION_2,
    &CMD_TEST_REMOVAL,
    &CMD_TEST_VERSION_2,
    &CMD_TEST_VERSIONS_1_AND_2,
    &CMD_START_SESSION,
    &CMD_END_SESSIONS,
    &CMD_REFRESH_SESSIONS,
    &CMD_WAIT_FOR_FAIL_POINT,
    &CMD_WHATS_MY_URI,
};

static NodeRole role_of(const Options *options) {
    (void)options;
    return ROLE_ROUTER;
}

static void attach_op(ServiceCtx *service, OpCtx *op) {
    (void)service, (void)op;
}

static void on_disconnect(ServiceCtx *service, ClientState *client) {
    (void)service, (void)client;
}

static void on_finished(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err) {
    (void)ctx, (void)duration_us, (void)rc, (void)err;
}

static int64_t cursor_timeout_ms(ServiceCtx *service) {
    return param_i64(service, PARAM_CURSOR_TIMEOUT_MILLIS);
}

static int64_t cursor_interval_s(ServiceCtx *service) {
    return param_i64(service, PARAM_CURSOR_MONITOR_FREQUENCY_SECS);
}

static void make_commands(Router *router) {
    uint32_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(SHARED_SPECS); i++)
        router->specs[count++] = SHARED_SPECS[i];
    for (size_t i = 0; i < ROUTER_SPEC_COUNT; i++)
        router->specs[count++] = ROUTER_SPECS[i];
    invariant(count <= SPECS_MAX);
    router->commands = (CommandTable){router->specs, count};
}

/* Waits for the config server: as long as it takes, or until this process is told to stop. */
static ErrCode wait_for_cluster(Router *router, OpCtx *op, Error *err) {
    ServiceCtx *service = &router->process.service;
    for (;;) {
        error_reset(err);
        ErrCode rc = cluster_start(service->cluster, op, err);
        if (rc == ERR_OK || thread_is_stop_pending())
            return rc;
        LOG_WARN(LOG_SHARDING, 7400301, "Waiting for the config server",
                 LOG_STR("error", error_message(err)));
        error_reset(err);
        TRY(op_sleep_us(op, START_RETRY_US, err));
    }
}

/* Whose config server has the record of sessions. */
static ErrCode find_cluster(OpCtx *op, Cluster **ret_cluster, Error *err) {
    (void)err;
    *ret_cluster = op->service->cluster;
    return ERR_OK;
}

static ErrCode before_run(CommandCtx *ctx, Error *err) {
    TRY(sessions_note_use(ctx, err));
    return router_before_run(ctx, err);
}

static ErrCode router_start(Process *process, int *ret_exit_code, Error *err) {
    Router *router = CONTAINER_OF(process, Router, process);
    ServiceCtx *service = &process->service;
    service->session_cache = session_cache_new();
    service->router_txns = txn_table_new(TXN_TABLE_ENTRIES_MAX);
    service->op_listing = &CURRENT_OPS;
    ClusterSettings settings = {
        .config_address = option_text(process->options, OPTION_CONFIG_DB),
        .near_us = option_i64(process->options, OPTION_LOCAL_THRESHOLD) * 1000,
        .is_router = true,
    };
    *ret_exit_code = EXIT_CODE_BAD_OPTIONS;
    TRY(cluster_new(service, &settings, &service->cluster, err));
    *ret_exit_code = EXIT_CODE_STARTUP;
    OpCtx *op = op_ctx_new(service->ops, NULL, NULL);
    op->service = service;
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "initandlisten"});
    ErrCode rc = wait_for_cluster(router, op, err);
    op_end(op);
    op_ctx_free(op);
    TRY(rc);
    static const CommandHooks HOOKS = {
        .attach_op = attach_op,
        .before_run = before_run,
        .after_run = router_after_run,
        .wait_write_concern = router_wait_write_concern,
        .finish_reply = router_finish_reply,
        .on_disconnect = on_disconnect,
        .error_labels = router_error_labels,
        .on_finished = on_finished,
    };
    make_commands(router);
    process_open_commands(process, &router->commands, &HOOKS);
    service->cursors = cursor_table_new(service);
    TRY(cursor_table_start(service->cursors, cursor_timeout_ms, cursor_interval_s, err));
    TRY(session_refresher_start(service, find_cluster, &service->session_refresher, err));
    TRY(process_listen(process, ret_exit_code, err));
    char own_host[300];
    process_own_host(process, own_host, sizeof(own_host));
    cluster_announce(service->cluster, own_host, COMPAT_VERSION);
    return ERR_OK;
}

static void router_stop(Process *process) {
    ServiceCtx *service = &process->service;
    session_refresher_stop(service->session_refresher);
    failpoint_end_blocking();
    process_end_clients(process);
    cursor_table_free(TAKE_PTR(service->cursors));
    session_refresher_free(TAKE_PTR(service->session_refresher));
    command_service_free(TAKE_PTR(service->commands));
    cluster_stop(service->cluster);
    cluster_free(TAKE_PTR(service->cluster));
    txn_table_free(TAKE_PTR(service->router_txns));
    session_cache_free(TAKE_PTR(service->session_cache));
}

int router_run(const Options *options, const char *process_name, int ready_fd) {
    static const ProgramSpec ROUTER_PROGRAM = {ROUTER_PARAM_HOOKS, role_of, router_start,
                                               router_stop};
    alloc_share_heaps(); /* measured: 19 MB instead of 21 after loads, and nothing lost */
    Router router = {0};
    return process_run(&router.process, &ROUTER_PROGRAM, options, process_name, ready_fd);
}
