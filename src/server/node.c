#include "server/node.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "catalog/catalog.h"
#include "catalog/test_ownership.h"
#include "commands/concerns.h"
#include "params/params.h"
#include "change_stream/hub.h"
#include "commands/stream_args.h"
#include "default_concerns/default_concerns.h"
#include "commands/node_commands.h"
#include "commands/param_hooks.h"
#include "bson/json.h"
#include "profiler/profiler.h"
#include "session_refresh/session_refresh.h"
#include "session_refresh/txn_expiry.h"
#include "storage/fsync_lock.h"
#include "concurrency/lock_manager.h"
#include "ddl/ddl.h"
#include "index/build/coordinator.h"
#include "cluster_params/cluster_params.h"
#include "cursor/cursor_table.h"
#include "preimages/purger.h"
#include "query/write/agg_sink.h"
#include "repl/repl.h"
#include "server/exit_codes.h"
#include "server/process.h"
#include "server/start_records.h"
#include "sharding/config/config_catalog.h"
#include "sharding/balancer/balancer.h"
#include "sharding/config/shard_hosts.h"
#include "sharding/shard/config_hosts.h"
#include "sharding/ddl/coordinator.h"
#include "sharding/migration/migrations.h"
#include "sharding/range_deletion/range_deleter.h"
#include "sharding/shard/refresh.h"
#include "sharding/shard/shard_state.h"
#include "sharding/shard/time_key_source.h"
#include "storage/engine.h"
#include "ttl/ttl.h"
#include "txn/session_cache.h"
#include "txn/session_catalog.h"
#include "txn/transaction.h"

enum {
    QUIESCE_US = 400 * 1000,
    NEAR_US = 15 * 1000, /* members of a shard, as seen from the config server */
};

typedef struct Node {
    Process process;
    OpCtx *start_op;
    Repl *restored; /* of a standalone node with recoverFromOplogAsStandalone */
} Node;

static NodeRole role_of(const Options *options);
static ErrCode node_start(Process *process, int *ret_exit_code, Error *err);
static void node_stop(Process *process);
static ErrCode check_restore(ServiceCtx *service, Error *err);
static ErrCode open_storage(Node *node, int *ret_exit_code, Error *err);
static ErrCode open_catalog(Node *node, Error *err);
static ErrCode open_repl(Node *node, OpCtx *op, Error *err);
static ErrCode open_restored(Node *node, OpCtx *op, Error *err);
static ErrCode open_config_catalog(Node *node, Error *err);
static ErrCode start_services(Node *node, Error *err);

static const ProgramSpec NODE_PROGRAM = {PARAM_HOOKS, role_of, node_start, node_stop};

int node_run(const Options *options, const char *process_name, int ready_fd) {
    Node node = {0};
    return process_run(&node.process, &NODE_PROGRAM, options, process_name, ready_fd);
}

/* ---- expiry of pre-images ---- */

static ErrCode purge_rules(OpCtx *op, PurgeRules *ret_rules, Error *err) {
    ServiceCtx *service = op->service;
    ret_rules->is_enabled = repl_is_writable(service->repl) || repl_is_readable(service->repl);
    if (!ret_rules->is_enabled)
        return ERR_OK;
    TRY(cluster_param_image_seconds(op, &ret_rules->expire_after_s, err));
    Doc first;
    TRY(oplog_read_first(repl_oplog(service->repl), op, &first, err));
    ret_rules->oldest_oplog_ts = doc_is_present(first) ? oplog_entry_optime(first).ts : 0;
    ret_rules->stable_ts = storage_stable_ts(service->storage);
    ret_rules->complete_ts = storage_oplog_visible_ts(service->storage);
    return ERR_OK;
}

/* Of members: timestamps in documents are of the clock of the set. */
static uint64_t tick(ServiceCtx *service) {
    return oplog_tick(repl_oplog(service->repl));
}

static uint64_t purge_newest_ts(ServiceCtx *service) {
    return oplog_cluster_time(repl_oplog(service->repl));
}

static int64_t purge_sleep_s(ServiceCtx *service) {
    return param_i64(service, PARAM_PREIMAGE_PURGE_SLEEP_SECS);
}

static const PurgeHooks PURGE_HOOKS = {purge_rules, purge_newest_ts, purge_sleep_s};

/* Whose config server has the record of sessions. */
static ErrCode find_cluster(OpCtx *op, Cluster **ret_cluster, Error *err) {
    *ret_cluster = NULL;
    ShardState *shard = op->service->shard;
    if (shard == NULL)
        return ERR_OK;
    TRY(shard_state_load(shard, op, err));
    return shard_has_identity(shard) ? shard_get_cluster(shard, op, ret_cluster, err) : ERR_OK;
}

/* ---- start ---- */

static NodeRole role_of(const Options *options) {
    if (option_text(options, OPTION_REPL_SET) == NULL)
        return ROLE_STANDALONE;
    static const NodeRole ROLES[] = {
        [CLUSTER_ROLE_NONE] = ROLE_MEMBER,
        [CLUSTER_ROLE_SHARD] = ROLE_SHARD,
        [CLUSTER_ROLE_CONFIG] = ROLE_CONFIG_SERVER,
    };
    return ROLES[options_cluster_role(options)];
}

/* Its storage engine works as that of a member. */
static bool is_restored(const ServiceCtx *service) {
    return service_is_standalone(service) && param_bool(service, PARAM_RECOVER_FROM_OPLOG);
}

static ErrCode check_restore(ServiceCtx *service, Error *err) {
    bool is_kept = param_bool(service, PARAM_CHECKPOINT_AT_STOP);
    bool is_without_history = param_bool(service, PARAM_RECOVERY_FOR_RESTORE);
    if (param_bool(service, PARAM_RECOVER_FROM_OPLOG) && !service_is_standalone(service))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "recoverFromOplogAsStandalone is for a standalone node: a member of a "
                         "replica set (--replSet) recovers from its oplog anyway");
    if (is_kept && !is_restored(service))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "takeUnstableCheckpointOnShutdown needs recoverFromOplogAsStandalone");
    if (is_without_history && !is_kept)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "startupRecoveryForRestore needs recoverFromOplogAsStandalone and "
                         "takeUnstableCheckpointOnShutdown");
    return ERR_OK;
}

static ErrCode node_start(Process *process, int *ret_exit_code, Error *err) {
    Node *node = CONTAINER_OF(process, Node, process);
    ServiceCtx *service = &process->service;
    TRY(check_restore(service, err));
    service->session_cache = session_cache_new();
    service->index_builds = index_builds_new(service_is_member(service) || is_restored(service) ||
                                             param_bool(service, PARAM_RESUME_INDEX_BUILDS));
    PARAM_HOOKS[PARAM_INDEX_BUILDS_ACTIVE_MAX].apply(service, PARAM_INDEX_BUILDS_ACTIVE_MAX);
    TRY(open_storage(node, ret_exit_code, err));
    TRY(open_catalog(node, err));
    TRY(open_config_catalog(node, err));
    TRY(storage_start_threads(service->storage, err));
    TRY(start_services(node, err));
    TRY(process_listen(process, ret_exit_code, err));
    if (!service_is_member(service))
        return ERR_OK;
    TRY(stream_hub_start(service->stream_hub, err));
    return repl_start(service->repl, err);
}

static ErrCode open_storage(Node *node, int *ret_exit_code, Error *err) {
    const Options *options = node->process.options;
    ServiceCtx *service = &node->process.service;
    StorageConfig config = {
        .dbpath = option_text(options, OPTION_DB_PATH),
        .cache_mb = (int64_t)(option_f64(options, OPTION_CACHE_SIZE_GB) * 1024),
        .journal_interval_ms = (int32_t)param_i64(service, PARAM_JOURNAL_COMMIT_INTERVAL),
        .checkpoint_interval_s = (int32_t)param_f64(service, PARAM_SYNCDELAY),
        .read_tickets = (int32_t)param_i64(service, PARAM_READ_TICKETS),
        .write_tickets = (int32_t)param_i64(service, PARAM_WRITE_TICKETS),
        .table_files_max = node->process.shares.table_files,
        .is_journal_loss_accepted = param_bool(service, PARAM_START_OVER_DAMAGED_JOURNAL),
        .engine_config_extra = option_text(options, OPTION_ENGINE_CONFIG),
        .is_replicated = service_is_member(service) || is_restored(service),
    };
    ErrCode rc = storage_open(&config, service->ops, &service->storage, err);
    if (rc == ERR_DATA_CORRUPTION_DETECTED || rc == ERR_UNKNOWN_ERROR)
        *ret_exit_code = EXIT_CODE_ABRUPT;
    if (rc == ERR_OK && storage_was_unclean(service->storage))
        LOG_WARN(LOG_STORAGE, 22271, "Detected unclean shutdown - the journal has been replayed",
                 LOG_STR("dbpath", config.dbpath));
    return rc;
}

static RangeDeleterSettings range_deleter_settings(ServiceCtx *service) {
    return (RangeDeleterSettings){
        .is_enabled =
            repl_is_writable(service->repl) && !param_bool(service, PARAM_DISABLE_RANGE_DELETER),
        .delay_s = param_i64(service, PARAM_ORPHAN_CLEANUP_DELAY_SECS),
        .is_delay_kept = param_bool(service, PARAM_ORPHAN_CLEANUP_KEEPS_DELAY),
        .batch_docs = param_i64(service, PARAM_RANGE_DELETER_BATCH_SIZE),
        .batch_pause_ms = param_i64(service, PARAM_RANGE_DELETER_BATCH_DELAY_MS),
    };
}

static MigrationSettings migration_settings(ServiceCtx *service) {
    return (MigrationSettings){
        .clone_threads = param_i64(service, PARAM_CHUNK_MIGRATION_CONCURRENCY),
        .writers_ms_max = param_i64(service, PARAM_MIGRATION_LOCK_WAIT_MS),
        .deletions_ms_max = param_i64(service, PARAM_RECEIVE_DELETER_WAIT_MS),
    };
}

static uint64_t read_floor(ServiceCtx *service, uint64_t applied_ts) {
    return service->shard != NULL ? placement_read_floor(service->shard, applied_ts) : 0;
}

static ErrCode open_catalog(Node *node, Error *err) {
    ServiceCtx *service = &node->process.service;
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
    if (rc == ERR_OK && service_is_standalone(service))
        rc = repl_find_stored_config(op, &service->has_data_of_member, err);
    if (rc == ERR_OK && service_is_member(service))
        rc = open_repl(node, op, err);
    if (rc == ERR_OK && is_restored(service))
        rc = open_restored(node, op, err);
    if (rc == ERR_OK && service->role == ROLE_SHARD) {
        service->hosts = primary_rounds_new(service, &CONFIG_HOSTS);
        service->shard = shard_state_new(service);
        shard_state_register(service->shard);
        ddl_coordinators_register(repl_tasks(service->repl), service->shard);
        service->migrations = migrations_new(service, migration_settings);
        migrations_register(service->migrations, repl_tasks(service->repl));
        service->range_deleter = range_deleter_new(service, range_deleter_settings);
    }
    if (rc == ERR_OK && param_bool(service, PARAM_ENABLE_TEST_COMMANDS))
        catalog_add_access_policy(service->catalog, &TEST_OWNERSHIP_POLICY);
    if (rc == ERR_OK && service_is_standalone(service) && !service->has_data_of_member)
        rc = agg_sink_clean_up(op, err);
    if (rc == ERR_OK)
        start_records_write(service, op, node->process.start_ms);
    op_end(op);
    op_ctx_free(TAKE_PTR(node->start_op));
    return rc;
}

/* A chunk that is merged forgets where it was: nobody must be able to ask for it any more. */
static BalancerTuning balancer_tuning(const ServiceCtx *service) {
    int64_t history_s = param_i64(service, PARAM_HISTORY_WINDOW_SECS);
    int64_t txn_s = param_i64(service, PARAM_TXN_LIFETIME_SECS);
    return (BalancerTuning){
        .pause_ms = param_i64(service, PARAM_BALANCER_MIGRATIONS_THROTTLING_MS),
        .merge_interval_s = param_i64(service, PARAM_AUTO_MERGER_INTERVAL_SECS),
        .merge_pause_ms = param_i64(service, PARAM_AUTO_MERGER_THROTTLING_MS),
        .defragment_pause_ms = param_i64(service, PARAM_CHUNK_DEFRAGMENTATION_THROTTLING_MS),
        .history_s = history_s > txn_s ? history_s : txn_s,
    };
}

static void on_members_changed(void *arg) {
    primary_rounds_wake(arg);
}

/* A config server knows its shards, to ask them what it needs for its decisions. */
static ErrCode open_config_catalog(Node *node, Error *err) {
    ServiceCtx *service = &node->process.service;
    if (service->role != ROLE_CONFIG_SERVER)
        return ERR_OK;
    service->config_catalog = config_catalog_new();
    service->hosts = primary_rounds_new(service, &SHARD_HOSTS);
    service->balancer = balancer_new(service, balancer_tuning);
    ClusterSettings settings = {.find = config_catalog_find,
                                .near_us = NEAR_US,
                                .members_changed = on_members_changed,
                                .members_arg = service->hosts};
    return cluster_new(service, &settings, &service->cluster, err);
}

static void on_topology_moves(ServiceCtx *service) {
    if (service->commands != NULL)
        topology_moves(service->commands);
}

static void on_topology_changed(ServiceCtx *service) {
    shard_state_note_change(service->shard);
    range_deleter_wake(service->range_deleter);
    balancer_note_state(service->balancer);
    if (service->commands != NULL)
        topology_changed(service->commands);
}

/* Clients that keep asking a node which is no longer part of their set would be served what it
 * happens to have: they look for the set anew. */
static void on_removed(ServiceCtx *service) {
    if (service->transport != NULL)
        transport_close_all(service->transport);
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
        .rollback_secs_max = param_i64(service, PARAM_ROLLBACK_SECS_MAX),
    };
}

static void on_committed(ServiceCtx *service) {
    stream_hub_committed(service->stream_hub);
}

static void count_transaction(ServiceCtx *service, int64_t duration_us) {
    if (service->commands != NULL)
        latency_add(&command_stats(service)->latencies, LATENCY_TRANSACTIONS, duration_us);
}

/* What entries of the oplog change besides documents. */
static void open_sessions(ServiceCtx *service) {
    service->sessions = session_catalog_new(service);
    txn_observe_ends(service->sessions, count_transaction);
    service->preimages = preimage_purger_new(service, &PURGE_HOOKS);
}

static ErrCode open_repl(Node *node, OpCtx *op, Error *err) {
    const Options *options = node->process.options;
    char host[300];
    process_own_host(&node->process, host, sizeof(host));
    ReplSettings settings = {
        .set_name = option_text(options, OPTION_REPL_SET),
        .host = host,
        .port = (uint16_t)option_i64(options, OPTION_PORT),
        .oplog_bytes = option_is_set(options, OPTION_OPLOG_SIZE)
                           ? option_i64(options, OPTION_OPLOG_SIZE) * 1024 * 1024
                           : 0,
        .oplog_hours_min = option_f64(options, OPTION_OPLOG_RETENTION),
        .has_test_service = param_bool(&node->process.service, PARAM_ENABLE_TEST_COMMANDS),
        .allows_arbiters = param_bool(&node->process.service, PARAM_ALLOW_MULTIPLE_ARBITERS),
        .allows_horizon_ips = param_bool(&node->process.service, PARAM_DISABLE_HORIZON_IP_CHECK),
    };
    open_sessions(&node->process.service);
    node->process.service.default_concerns = default_concerns_cache_new();
    node->process.service.tick = tick;
    node->process.service.stream_hub = stream_hub_new(&node->process.service);
    const ReplHooks hooks = {.topology_moves = on_topology_moves,
                             .topology_changed = on_topology_changed,
                             .removed = on_removed,
                             .committed = on_committed,
                             .flow_settings = flow_settings,
                             .initial_sync_settings = initial_sync_settings,
                             .tuning = repl_tuning,
                             .term_begins = start_records_begin_term,
                             .read_cluster_keys = shard_read_time_keys,
                             .read_floor = read_floor};
    return repl_open(op, &settings, &hooks, &node->process.service.repl, err);
}

static ErrCode open_restored(Node *node, OpCtx *op, Error *err) {
    const Options *options = node->process.options;
    ServiceCtx *service = &node->process.service;
    service->has_data_of_member = true;
    char host[300];
    process_own_host(&node->process, host, sizeof(host));
    open_sessions(service);
    const ReplSettings settings = {
        .set_name = "", .host = host, .port = (uint16_t)option_i64(options, OPTION_PORT)};
    const ReplRestore mode = {.is_kept = param_bool(service, PARAM_CHECKPOINT_AT_STOP),
                              .is_without_history =
                                  param_bool(service, PARAM_RECOVERY_FOR_RESTORE)};
    return repl_open_restored(op, &settings, mode, &node->restored, err);
}

/* ---- commands ---- */

static void attach_op(ServiceCtx *service, OpCtx *op) {
    op_attach_storage(op, service->storage);
}

static void on_disconnect(ServiceCtx *service, ClientState *client) {
    /* An exhaust cursor whose reader is gone would wait for its time-out. */
    if (client->streamed_cursor_id != 0)
        (void)cursor_kill(service->cursors, client->streamed_cursor_id);
    /* As a getMore that is interrupted: nobody will ask for this place of the stream again. */
    if (client->parked_cursor_id != 0)
        (void)cursor_kill(service->cursors, client->parked_cursor_id);
}

/* Cursors of a session that is gone are closed where sessions are refreshed. */
static int64_t cursor_timeout_ms(ServiceCtx *service, bool is_in_session) {
    return is_in_session && !param_bool(service, PARAM_ENABLE_SESSION_CURSOR_TIMEOUT)
               ? INT64_MAX
               : param_i64(service, PARAM_CURSOR_TIMEOUT_MILLIS);
}

static int64_t cursor_interval_s(ServiceCtx *service) {
    return param_i64(service, PARAM_CURSOR_MONITOR_FREQUENCY_SECS);
}

static TtlSettings ttl_settings(ServiceCtx *service) {
    return (TtlSettings){
        /* Deletes come to secondaries by the oplog. */
        .is_enabled = param_bool(service, PARAM_TTL_MONITOR_ENABLED) &&
                      (service_is_standalone(service) ? !service->has_data_of_member
                                                      : repl_is_writable(service->repl)),
        .is_batched = param_bool(service, PARAM_TTL_MONITOR_BATCH_DELETES),
        .sleep_s = param_i64(service, PARAM_TTL_MONITOR_SLEEP_SECS),
        .sub_pass_s = param_i64(service, PARAM_TTL_MONITOR_SUB_PASS_TARGET_SECS),
        .index_docs = param_i64(service, PARAM_TTL_INDEX_DELETE_TARGET_DOCS),
        .index_ms = param_i64(service, PARAM_TTL_INDEX_DELETE_TARGET_TIME_MS),
        .low_priority_sub_passes = param_i64(service, PARAM_TTL_LOW_PRIORITY_SUB_PASSES),
    };
}

/* A shard leaves documents that it does not own to the move that they belong to. */
static ErrCode ttl_prepare(ServiceCtx *service, OpCtx *op, const Ns *ns, Error *err) {
    return service->role == ROLE_SHARD ? placement_route_own_work(service->shard, op, ns, err)
                                       : ERR_OK;
}

static ErrCode open_profiler(Node *node, Error *err) {
    const Options *options = node->process.options;
    ProfileFilter *filter = NULL;
    const char *text = option_text(options, OPTION_PROFILE_FILTER);
    if (text != NULL && *text != '\0') {
        Doc spec;
        ErrCode rc = doc_from_json(text, &node->process.arena, &spec, err);
        if (rc == ERR_OK)
            rc = profile_filter_new(spec, &filter, err);
        if (rc != ERR_OK)
            return error_prefix(err, "operationProfiling.filter");
    }
    node->process.service.profiler =
        profiler_new(&node->process.service, (int32_t)option_i64(options, OPTION_PROFILE), filter);
    profile_filter_unref(filter);
    return ERR_OK;
}

static ErrCode start_services(Node *node, Error *err) {
    ServiceCtx *service = &node->process.service;
    const CommandHooks hooks = {
        .attach_op = attach_op,
        .before_run = concerns_before_run,
        .after_run = concerns_after_run,
        .wait_write_concern = concerns_wait_write,
        .confirm_no_txn = concerns_confirm_no_txn,
        .finish_reply = concerns_finish_reply,
        .on_disconnect = on_disconnect,
        .error_labels = stream_error_labels,
        .on_finished = profiler_on_finished,
        .is_logged = profiler_is_logged,
    };
    process_open_commands(&node->process, &NODE_COMMANDS, &hooks);
    TRY(open_profiler(node, err));

    service->fsync_lock = fsync_lock_new(service);
    service->cursors = cursor_table_new(service);
    TRY(cursor_table_start(service->cursors, cursor_timeout_ms, cursor_interval_s, err));
    TRY(ttl_monitor_start(service, ttl_settings, ttl_prepare, &service->ttl, err));
    if (service->role == ROLE_SHARD)
        TRY(range_deleter_start(service->range_deleter, err));
    if (service_is_member(service))
        TRY(preimage_purger_start(service->preimages, err));
    TRY(session_refresher_start(service, find_cluster, &service->session_refresher, err));
    if (service_is_member(service))
        TRY(txn_expiry_start(service, &service->txn_expiry, err));
    if (service->hosts != NULL)
        TRY(primary_rounds_start(service->hosts, err));
    if (service->balancer != NULL)
        TRY(balancer_start(service->balancer, err));
    return ERR_OK;
}

/* ---- run and stop ---- */

/* A member of a replica set goes on serving for a moment, so that clients hear from it that it is
 * going away, and who the new primary is. */
static void quiesce(ServiceCtx *service) {
    if (!service_is_member(service) || service->transport == NULL)
        return;
    int64_t timeout_ms = param_i64(service, PARAM_SHUTDOWN_TIMEOUT_MILLIS);
    int64_t deadline_us = clock_deadline_ms(timeout_ms);
    bool was_primary = repl_hand_over(service->repl, timeout_ms);
    int64_t quiesce_us = was_primary ? QUIESCE_US : QUIESCE_US / 4;
    LOG_INFO(LOG_REPL, 4695102, "Entering quiesce mode for shutdown",
             LOG_I64("quiesceTimeMillis", quiesce_us / 1000));
    repl_end_candidacy(service->repl); /* clients would come to a primary that is about to end */
    command_service_begin_quiesce(service->commands, deadline_us);
    failpoint_hang(FP_HANG_IN_QUIESCE);
    thread_sleep_us(quiesce_us < deadline_us - clock_mono_us() ? quiesce_us : 0);
}

/* What clients left open; nobody runs any more. */
static void end_transactions(ServiceCtx *service) {
    if (service->sessions == NULL)
        return;
    OpCtx *op = op_ctx_new(service->ops, NULL, NULL);
    op->service = service;
    op_attach_storage(op, service->storage);
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "shutdown"});
    txn_drop_all(service->sessions, op);
    op_end(op);
    op_ctx_free(op);
}

/* Stops whatever was started, in reverse. */
static void node_stop(Process *process) {
    Node *node = CONTAINER_OF(process, Node, process);
    ServiceCtx *service = &process->service;
    fsync_lock_end(service->fsync_lock); /* whoever is to end may be waiting for it */
    ttl_monitor_stop(service->ttl);
    range_deleter_stop(service->range_deleter);
    preimage_purger_stop(service->preimages);
    session_refresher_stop(service->session_refresher);
    txn_expiry_stop(service->txn_expiry);
    primary_rounds_stop(service->hosts);
    balancer_stop(service->balancer);
    quiesce(service);
    failpoint_end_blocking(); /* threads that are waited for may be in one */
    repl_stop(service->repl);
    stream_hub_stop(service->stream_hub);
    index_builds_interrupt(service->index_builds);
    process_end_clients(process);
    cluster_stop(service->cluster);
    shard_state_stop(service->shard);
    /* After the last writer: what it wrote aside belongs to what is saved. */
    index_builds_stop(service->index_builds);
    cursor_table_free(TAKE_PTR(service->cursors));
    ttl_monitor_free(TAKE_PTR(service->ttl));
    session_refresher_free(TAKE_PTR(service->session_refresher));
    txn_expiry_free(TAKE_PTR(service->txn_expiry));
    profiler_free(service->profiler);
    command_service_free(TAKE_PTR(service->commands));
    end_transactions(service);
    repl_end_restored(node->restored);
    op_ctx_free(TAKE_PTR(node->start_op));
    fsync_lock_free(TAKE_PTR(service->fsync_lock));
    index_builds_free(TAKE_PTR(service->index_builds));
    repl_free(TAKE_PTR(service->repl));
    repl_free(TAKE_PTR(node->restored));
    cluster_free(TAKE_PTR(service->cluster));
    range_deleter_free(TAKE_PTR(service->range_deleter));
    migrations_free(TAKE_PTR(service->migrations));
    balancer_free(TAKE_PTR(service->balancer));
    shard_state_free(TAKE_PTR(service->shard));
    primary_rounds_free(TAKE_PTR(service->hosts)); /* those who wake it are gone */
    config_catalog_free(TAKE_PTR(service->config_catalog));
    stream_hub_free(TAKE_PTR(service->stream_hub));
    preimage_purger_free(TAKE_PTR(service->preimages));
    default_concerns_cache_free(TAKE_PTR(service->default_concerns));
    session_catalog_free(TAKE_PTR(service->sessions));
    session_cache_free(TAKE_PTR(service->session_cache));
    catalog_service_free(TAKE_PTR(service->catalog));
    if (service->storage != NULL) {
        LOG_INFO(LOG_STORAGE, 4784930, "Shutting down the storage engine");
        storage_close(TAKE_PTR(service->storage));
    }
}
