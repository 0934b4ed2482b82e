#include "repl/repl.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/prng.h"
#include "catalog/document_key.h"
#include "catalog/catalog.h"
#include "cluster_time/signed_time.h"
#include "repl/repl_internal.h"

enum {
    APPLIER_THREADS_MAX = 16,
};

static void moved(void *repl, bool is_durable);

Repl *op_repl(const OpCtx *op) {
    return op->service->repl;
}

Oplog *repl_oplog(Repl *repl) {
    return repl->oplog;
}

/* What it says of this member holds for the entries that recovery applies. */
static ErrCode load_config(Repl *repl, OpCtx *op, ReplConfig **ret_config, ReplStart *start,
                           Error *err) {
    start->self_index = REPL_INDEX_NONE;
    TRY(local_load_config(op, ret_config, err));
    const ReplConfig *config = start->config = *ret_config;
    if (config == NULL)
        return ERR_OK;
    if (strcmp(config->set_name, repl->set_name) != 0)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "this node belongs to the replica set \"%s\", but was started with "
                         "--replSet %s",
                         config->set_name, repl->set_name);
    const char *ip = repl_config_find_horizon_ip(config);
    if (ip != NULL)
        log_startup_warning(7300241, "Found split horizon configuration using IP",
                            &LOG_STR("host", ip), 1);
    start->self_index = repl_find_self(repl, config);
    if (start->self_index >= 0)
        repl_note_indexes(repl, &config->members[start->self_index]);
    else
        LOG_WARN(LOG_REPL, 21405,
                 "The stored replica set config does not have this node; looks again when a member "
                 "sends a heartbeat",
                 LOG_I64("version", config->version));
    return ERR_OK;
}

ErrCode repl_load_rollback_id(Repl *repl, OpCtx *op, Error *err) {
    int32_t rollback_id;
    TRY(local_load_rollback_id(op, &rollback_id, err));
    /* Entries that were not on disk yet are lost, and so is what they wrote: whoever copied it from
     * here has to know. */
    if (storage_was_unclean(repl->engine) && oplog_exists(repl->oplog))
        TRY(local_store_rollback_id(op, ++rollback_id, err));
    atomic_store(&repl->rollback_id, rollback_id);
    return ERR_OK;
}

static ErrCode open_core(Repl *repl, OpCtx *op, ReplStart *start, Error *err) {
    start->set_name = repl->set_name;
    start->self_host =
        start->self_index >= 0 ? start->config->members[start->self_index].host : repl->host;
    start->last_applied = repl_own_positions(repl).applied;
    TRY(local_load_last_vote(op, &start->last_vote, err));
    TRY(repl_load_rollback_id(repl, op, err));
    secure_random(&start->seed, sizeof(start->seed));
    ReplOptions options = repl_options_default();
    repl->core = repl_core_new(start, &options, repl_now());
    atomic_store(&repl->state, (int)repl_core_state(repl->core));
    return ERR_OK;
}

/* For tasks: what they have written is there for good, on disks. */
static ErrCode wait_majority(void *arg, OpCtx *op, OpTime optime, Error *err) {
    const ReplWriteConcern majority = {.kind = REPL_W_MAJORITY};
    return repl_wait_write_concern(arg, op, &majority, /* is_journaled= */ true, optime, INT64_MAX,
                                   err);
}

Repl *repl_new(OpCtx *op, const ReplSettings *settings) {
    Repl *repl = NEW(Repl);
    repl->service = op->service;
    repl->engine = op_storage(op);
    repl->port = settings->port;
    repl->oplog_bytes = settings->oplog_bytes;
    repl->config_flags =
        (settings->allows_arbiters ? REPL_CONFIG_ALLOW_ARBITERS : REPL_CONFIG_PARSE_DEFAULT) |
        (settings->allows_horizon_ips ? REPL_CONFIG_ALLOW_HORIZON_IPS : REPL_CONFIG_PARSE_DEFAULT);
    snprintf(repl->set_name, sizeof(repl->set_name), "%s", settings->set_name);
    snprintf(repl->host, sizeof(repl->host), "%s", settings->host);
    mutex_init(&repl->mu, LOCK_RANK_REPL);
    cond_init(&repl->cond);
    repl_thread_init(&repl->maintenance);
    list_init(&repl->waiters);
    list_init(&repl->commit_readers);
    flow_control_init(&repl->flow);
    repl->messenger = messenger_new(repl);
    repl->sync = sync_new(repl);
    const TaskEnv task_env = {repl, wait_majority};
    repl->tasks = task_services_new(op->service, &task_env);
    repl->time_keys = time_keys_new(repl);
    repl->note_asker = note_asker_new(repl);
    return repl;
}

ErrCode repl_open_log(Repl *repl, OpCtx *op, double hours_min, Error *err) {
    TRY(oplog_open(op, hours_min, &repl->oplog, err));
    uint32_t threads = 2 * (uint32_t)thread_cpu_count();
    return applier_new(op->service, threads < APPLIER_THREADS_MAX ? threads : APPLIER_THREADS_MAX,
                       &repl->applier, err);
}

ErrCode repl_open(OpCtx *op, const ReplSettings *settings, const ReplHooks *hooks, Repl **ret_repl,
                  Error *err) {
    Repl *repl = repl_new(op, settings);
    repl->hooks = *hooks;
    if (settings->has_test_service)
        repl->test_service = test_service_new(op->service, repl->tasks);
    if (settings->has_test_service)
        catalog_set_document_key_source(op_catalog(op), &DOCUMENT_KEY_TEST_SOURCE);
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = true;
    ErrCode rc = repl_open_log(repl, op, settings->oplog_hours_min, err);
    if (rc == ERR_OK)
        rc = local_state_open(op, err);
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    ReplStart start = {0};
    if (rc == ERR_OK)
        rc = load_config(repl, op, &config, &start, err);
    if (rc == ERR_OK)
        rc = repl_recover(repl, op, err);
    if (rc == ERR_OK)
        rc = open_core(repl, op, &start, err);
    if (rc != ERR_OK) {
        repl_free(repl);
        return rc;
    }
    oplog_set_moved(repl->oplog, moved, repl);
    transition_set_policy(repl);
    index_votes_open(repl);
    *ret_repl = repl;
    return ERR_OK;
}

static void come_up(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)repl_core_set_follower_state(core, now, *(ReplState *)arg, actions);
}

ErrCode repl_start(Repl *repl, Error *err) {
    /* A member with data serves at once; one without has to copy them first. Who is not in the
     * configuration now serves once it is. */
    if (!sync_needs_copy(repl->sync)) {
        ReplState state = REPL_SECONDARY;
        repl_event(repl, come_up, &state);
    }
    repl->start_ts = oplog_applied(repl->oplog).ts;
    TRY(thread_start(&repl->coordinator, "ReplCoord", coordinator_run, repl, err));
    TRY(repl_thread_start(&repl->maintenance, repl, "ReplMaintenance", maintenance_run, repl, err));
    TRY(index_votes_start(repl, err));
    TRY(time_keys_start(repl->time_keys, err));
    TRY(note_asker_start(repl->note_asker, err));
    return sync_start(repl->sync, err);
}

static void shut_down(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)arg;
    repl_core_shut_down(core, now, actions);
}

void repl_end_candidacy(Repl *repl) {
    repl_event(repl, shut_down, NULL);
}

void repl_stop(Repl *repl) {
    if (repl == NULL || repl->core == NULL)
        return;
    task_services_begin_stop(repl->tasks);
    time_keys_stop(repl->time_keys);
    note_asker_stop(repl->note_asker);
    repl_event(repl, shut_down, NULL);
    index_votes_stop(repl);
    sync_stop(repl->sync);
    messenger_stop(repl->messenger);
    mutex_lock(&repl->mu);
    repl->is_stopping = true;
    cond_signal(&repl->cond);
    mutex_unlock(&repl->mu);
    thread_join(&repl->coordinator);
    task_services_stop(repl->tasks); /* nobody steps up any more now */
    repl_thread_stop(&repl->maintenance);
    OpCtx *op = repl_op_new(repl, "ReplStop");
    if (atomic_load(&repl->accepts_writes))
        transition_step_down(repl, op);
    /* Nobody writes any more, so the oplog has no gaps: a last flush says so. Otherwise the next
     * start would cut off what was written after the one before it, though the stop is clean. */
    CLEANUP(error_reset) Error err = {0};
    if (oplog_exists(repl->oplog) && storage_wait_durable(repl->engine, op, &err) != ERR_OK)
        LOG_WARN(LOG_REPL, 7300206, "Could not make the last writes durable",
                 LOG_STR("error", error_message(&err)));
    op_end(op);
    op_ctx_free(op);
}

void repl_free(Repl *repl) {
    if (repl == NULL)
        return;
    oplog_free(repl->oplog); /* first: from now on no flush of the journal comes back here */
    task_services_free(repl->tasks);
    test_service_free(repl->test_service);
    time_keys_free(repl->time_keys);
    note_asker_free(repl->note_asker);
    sync_free(repl->sync);
    index_votes_free(repl->index_votes);
    messenger_free(repl->messenger);
    applier_free(repl->applier);
    if (repl->core != NULL)
        repl_core_free(repl->core);
    repl_config_unref(repl->noted_config);
    flow_control_done(&repl->flow);
    repl_actions_done(&repl->heavy);
    repl_actions_done(&repl->scratch);
    cond_done(&repl->cond);
    repl_thread_done(&repl->maintenance);
    mutex_done(&repl->mu);
    xfree(repl);
}

/* By whoever wrote or flushed. A primary's own commits concern nobody but those who wait for them
 * to be applied. */
static void moved(void *arg, bool is_durable) {
    Repl *repl = arg;
    if (atomic_load_explicit(&repl->accepts_writes, memory_order_relaxed)) {
        if (!is_durable)
            flow_control_note_entry(&repl->flow, storage_oplog_visible_ts(repl->engine));
        bool is_waited_for =
            is_durable
                ? atomic_load_explicit(&repl->waiter_count, memory_order_relaxed) > 0
                : atomic_load_explicit(&repl->applied_waiter_count, memory_order_relaxed) > 0;
        if (is_waited_for)
            repl_feed_positions(repl);
        return;
    }
    if (repl->core == NULL)
        return;
    repl_feed_positions(repl);
    /* What is applied is flushed at once: one report for both, where the disk counts. */
    if (is_durable || !repl_is_majority_journaled(repl))
        sync_report_now(repl->sync);
}

/* ---- state ---- */

void repl_inspect(Repl *repl, void (*look)(void *arg, const ReplCore *core), void *arg) {
    repl_feed_positions(repl);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    look(arg, repl->core);
}

bool repl_is_implicit_majority(const Repl *repl) {
    return atomic_load_explicit(&repl->is_implicit_majority, memory_order_relaxed);
}

bool repl_is_majority_journaled(const Repl *repl) {
    return atomic_load_explicit(&repl->is_majority_journaled, memory_order_relaxed);
}

TaskServices *repl_tasks(Repl *repl) {
    return repl->tasks;
}

TimeKeys *repl_time_keys(Repl *repl) {
    return repl->time_keys;
}

FlowControl *repl_flow_control(Repl *repl) {
    return &repl->flow;
}

bool repl_is_writable(const Repl *repl) {
    return atomic_load_explicit(&repl->accepts_writes, memory_order_relaxed) &&
           atomic_load_explicit(&repl->is_core_writable, memory_order_relaxed);
}

bool repl_is_readable(const Repl *repl) {
    int state = atomic_load_explicit(&repl->state, memory_order_relaxed);
    return state == REPL_PRIMARY || state == REPL_SECONDARY;
}

bool repl_is_too_stale(const Repl *repl) {
    return atomic_load(&repl->is_too_stale) && atomic_load(&repl->state) == REPL_RECOVERING;
}

typedef struct ReadsLook {
    uint64_t ts;
    bool have_passed;
} ReadsLook;

static void look_at_reads(void *arg, const ReplCore *core) {
    ReadsLook *look = arg;
    look->have_passed = repl_core_have_reads_passed(core, look->ts);
}

bool repl_have_reads_passed(Repl *repl, uint64_t ts) {
    ReadsLook look = {.ts = ts};
    repl_inspect(repl, look_at_reads, &look);
    return look.have_passed;
}

int32_t repl_rollback_id(const Repl *repl) {
    return atomic_load(&repl->rollback_id);
}

/* ---- messages of other members ---- */

typedef struct Message {
    Repl *repl;
    union {
        ReplHeartbeat heartbeat;
        ReplVoteRequest vote_request;
        ReplUpdatePosition update;
    };
    bool has_data;
    Arena *arena; /* of the request: what the reply borrows of the core is copied there */
    ReplHeartbeatReply heartbeat_reply;
    ReplVoteReply vote_reply;
    bool must_persist;
    bool is_vote_refused; /* a test wants it */
    bool is_durable;
    ReplLastVote vote;
    bool is_news;
    ErrCode rc;
    Error *err;
} Message;

static void on_heartbeat(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Message *m = arg;
    m->rc = repl_core_on_heartbeat(core, now, &m->heartbeat, m->has_data, &m->heartbeat_reply,
                                   actions, m->err);
    /* The configuration may be replaced before the reply is built. */
    if (m->rc == ERR_OK && doc_is_present(m->heartbeat_reply.config))
        m->heartbeat_reply.config = doc_copy(m->heartbeat_reply.config, m->arena);
}

/* What a node makes for itself, a standalone one too, is nobody's data. */
static bool has_user_data(Repl *repl) {
    Catalog *catalog = catalog_acquire(repl->service->catalog);
    size_t local = 0;
    size_t total = catalog_collection_count(catalog);
    const char *names[] = {"local.system.replset",   "local.replset.election",
                           "local.replset.minvalid", "local.system.rollback.id",
                           "local.oplog.rs",         "local.replset.oplogTruncateAfterPoint",
                           "local.startup_log",      "local.replset.initialSyncId",
                           "admin.system.version",   "config.system.sessions"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        Ns ns;
        CLEANUP(error_reset) Error err = {0};
        if (ns_parse(str_from(names[i]), &ns, &err) == ERR_OK && catalog_find(catalog, &ns) != NULL)
            local++;
    }
    catalog_release(catalog);
    return total > local;
}

typedef struct FoundSelf {
    ReplConfig *config;
    int32_t self_index;
} FoundSelf;

static void inspect_config(void *arg, const ReplCore *core) {
    FoundSelf *found = arg;
    if (repl_core_config(core) != NULL && repl_core_self_index(core) == REPL_INDEX_NONE)
        found->config = repl_config_ref(repl_core_config(core));
}

static void found_self(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    FoundSelf *found = arg;
    repl_core_found_self(core, now, found->config, found->self_index, actions);
}

/* Somebody takes this node for a member, and it did not find itself in the configuration: a name
 * may not have been known when it started. */
static void look_for_self(Repl *repl) {
    if (LIKELY(atomic_load(&repl->state) != REPL_REMOVED))
        return;
    FoundSelf found = {NULL, REPL_INDEX_NONE};
    repl_inspect(repl, inspect_config, &found);
    if (found.config == NULL)
        return;
    found.self_index = repl_find_self(repl, found.config);
    if (found.self_index >= 0) {
        LOG_INFO(LOG_REPL, 7300215, "This node is a member of its configuration after all",
                 LOG_STR("host", found.config->members[found.self_index].host));
        repl_event(repl, found_self, &found);
    }
    repl_config_unref(found.config);
}

ErrCode repl_handle_heartbeat(Repl *repl, OpCtx *op, Doc request, DocBuilder *reply, Error *err) {
    Message *m = ARENA_NEW(&op->arena, Message);
    m->err = err;
    m->arena = &op->arena;
    TRY(parse_heartbeat(request, &m->heartbeat, err));
    m->has_data = m->heartbeat.is_empty_check && has_user_data(repl);
    repl_feed_positions(repl);
    repl_event(repl, on_heartbeat, m);
    TRY(m->rc);
    look_for_self(repl);
    /* After the position was read: a read that ends now has ended for it. */
    if (repl->hooks.read_floor != NULL)
        m->heartbeat_reply.read_floor_ts =
            repl->hooks.read_floor(repl->service, m->heartbeat_reply.applied.optime.ts);
    build_heartbeat_reply(reply, &m->heartbeat_reply);
    return ERR_OK;
}

static void on_vote_request(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Message *m = arg;
    repl_core_set_test_vote(core, m->is_vote_refused);
    m->rc = repl_core_on_vote_request(core, now, &m->vote_request, &m->vote_reply, &m->must_persist,
                                      &m->vote, actions, m->err);
}

static void on_vote_persisted(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)actions;
    Message *m = arg;
    repl_core_vote_persisted(core, now, m->vote, m->is_durable, &m->vote_reply);
}

ErrCode repl_handle_vote_request(Repl *repl, OpCtx *op, Doc request, DocBuilder *reply,
                                 Error *err) {
    Message *m = ARENA_NEW(&op->arena, Message);
    m->err = err;
    TRY(parse_vote_request(request, &m->vote_request, err));
    m->is_vote_refused =
        FAILPOINT(VOTE_NO) || (!m->vote_request.is_dry_run && FAILPOINT(VOTE_NO_AFTER_DRY_RUN));
    repl_feed_positions(repl);
    repl_event(repl, on_vote_request, m);
    TRY(m->rc);
    if (m->must_persist) {
        CLEANUP(error_reset) Error store_err = {0};
        m->is_durable = local_store_last_vote(op, m->vote, &store_err) == ERR_OK;
        repl_event(repl, on_vote_persisted, m);
    }
    build_vote_reply(reply, &m->vote_reply);
    return ERR_OK;
}

static void on_update_position(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Message *m = arg;
    OwnPositions own = repl_own_positions(m->repl);
    repl_core_on_own_position(core, now, own.applied, own.durable, actions);
    m->rc = repl_core_on_update_position(core, now, &m->update, &m->is_news, actions, m->err);
}

ErrCode repl_handle_update_position(Repl *repl, OpCtx *op, Doc request, Error *err) {
    Message *m = ARENA_NEW(&op->arena, Message);
    m->repl = repl;
    m->err = err;
    TRY(parse_update_position(request, &m->update, err));
    repl_event(repl, on_update_position, m);
    TRY(m->rc);
    if (m->is_news && !repl_is_writable(repl))
        sync_report_now(repl->sync);
    return ERR_OK;
}

void repl_build_cluster_time(Repl *repl, DocBuilder *b, uint64_t ts) {
    TimeProof proof;
    time_keys_sign(repl->time_keys, ts, &proof);
    build_signed_time(b, ts, &proof);
}

void repl_build_metadata(Repl *repl, DocBuilder *b, bool is_majority) {
    ReplMetadata metadata;
    mutex_lock(&repl->mu);
    repl_core_metadata(repl->core, &metadata);
    mutex_unlock(&repl->mu);
    /* The core may not have heard yet of the newest own write. */
    OpTime applied = oplog_applied(repl->oplog);
    metadata.last_visible = is_majority ? optime_min(metadata.commit_point, applied) : applied;
    build_repl_metadata(b, &metadata);
}

OpTime repl_build_oplog_metadata(Repl *repl, DocBuilder *b) {
    ReplOplogMetadata metadata;
    mutex_lock(&repl->mu);
    repl_core_oplog_metadata(repl->core, repl_rollback_id(repl), &metadata);
    mutex_unlock(&repl->mu);
    metadata.last_applied = oplog_applied(repl->oplog);
    build_oplog_metadata(b, &metadata);
    return metadata.commit_point;
}
