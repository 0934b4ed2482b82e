/*
 * admin.c - what operators ask of a member: initiate, reconfigure, step down and up, freeze.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/prng.h"
#include "ddl/ddl.h"
#include "repl/repl_internal.h"
#include "transport/client.h"

enum {
    QUORUM_CHECK_MS = 10 * 1000,
    STOP_STEP_DOWN_SECS = 60,
    RECONFIG_RETRY_US = 100 * 1000,
};

typedef struct AdminRequest {
    Repl *repl;
    const ReplConfig *config;
    int32_t self_index;
    int64_t term;
    int64_t secs;
    int64_t catch_up_secs;
    bool is_force;
    bool is_on;
    bool skips_dry_run;
    const char *host;
    const char **ret_warning;
    char *ret_previous;
    ReplWaiter *waiter;
    ErrCode rc;
    Error *err;
} AdminRequest;

/* ---- initiate ---- */

static ErrCode ask_member(Repl *repl, OpCtx *op, const ReplConfig *config, uint32_t index,
                          Error *err) {
    const char *host = config->members[index].host;
    int64_t deadline_us = clock_mono_us() + (int64_t)QUORUM_CHECK_MS * 1000;
    ReplHeartbeat *heartbeat = ARENA_NEW(&op->arena, ReplHeartbeat);
    *heartbeat = (ReplHeartbeat){.config_version = 1,
                                 .config_term = REPL_CONFIG_TERM_NONE,
                                 .from_id = -1,
                                 .term = OPTIME_TERM_NONE,
                                 .primary_id = -1,
                                 .is_empty_check = true};
    snprintf(heartbeat->set_name, sizeof(heartbeat->set_name), "%s", repl->set_name);
    snprintf(heartbeat->from, sizeof(heartbeat->from), "%s", repl->host);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_heartbeat(&b, heartbeat);
    build_cstr(&b, "$db", "admin");
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return client_run(repl->service->clients, op, host,
                      &(ClientCommand){.body = doc_builder_end(&b)}, deadline_us, &reply, err);
}

/* All members must be there, and without data of their own. */
static ErrCode check_members(Repl *repl, OpCtx *op, const ReplConfig *config, int32_t self,
                             Error *err) {
    for (uint32_t i = 0; i < config->member_count; i++) {
        if ((int32_t)i == self)
            continue;
        CLEANUP(error_reset) Error failed = {0};
        if (ask_member(repl, op, config, i, &failed) != ERR_OK)
            return error_set(
                err,
                failed.code == ERR_CANNOT_INITIALIZE_NODE_WITH_DATA ? failed.code
                                                                    : ERR_NODE_NOT_FOUND,
                "replSetInitiate quorum check failed because not all proposed set members "
                "responded affirmatively: %s failed with %s",
                config->members[i].host, error_message(&failed));
    }
    return ERR_OK;
}

/* The first configuration need not say that it is the first, nor what this node was started as. */
static Doc with_defaults(const Repl *repl, OpCtx *op, Doc doc) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_all(&b, doc);
    if (!elem_is_present(doc_get_lit(doc, "version")))
        build_i32(&b, "version", 1);
    if (repl->service->role == ROLE_CONFIG_SERVER &&
        !elem_is_present(doc_get_lit(doc, "configsvr")))
        build_bool(&b, "configsvr", true);
    return doc_builder_end(&b);
}

static ErrCode parse_initiate(Repl *repl, OpCtx *op, Doc doc, ReplConfig **ret_config,
                              int32_t *ret_self, Error *err) {
    Oid set_id = oid_new();
    if (!doc_is_present(doc) || doc_is_empty(doc)) {
        CLEANUP(repl_config_unref_ptr) ReplConfig *one = NULL;
        TRY(repl_config_for_one(repl->set_name, repl->host, &one, err));
        ReplConfigEdit edit = {
            .version = 1, .term = REPL_CONFIG_TERM_NONE, .replica_set_id = &set_id};
        *ret_config = repl_config_edit(one, &edit);
        *ret_self = 0;
        return ERR_OK;
    }
    doc = with_defaults(repl, op, doc);
    CLEANUP(repl_config_unref_ptr) ReplConfig *given = NULL;
    ErrCode rc = repl_config_parse(doc, REPL_CONFIG_FROM_USER | repl->config_flags, &given, err);
    if (rc != ERR_OK) {
        err->code = ERR_INVALID_REPLICA_SET_CONFIG;
        return err->code;
    }
    *ret_self = repl_find_self(repl, given);
    if (*ret_self < 0)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "No host described in new configuration with {version: 1, term: 0} for "
                         "replica set %s maps to this node",
                         repl->set_name);
    return repl_config_for_initiate(doc, repl->set_name, given->members[*ret_self].host, &set_id,
                                    REPL_CONFIG_FROM_USER | repl->config_flags, ret_config, err);
}

/* The first entry: from here on there is a history. */
static ErrCode begin_history(Repl *repl, OpCtx *op, Error *err) {
    TRY(oplog_ensure(repl->oplog, op, repl->oplog_bytes, err));
    int64_t wall_ms = clock_wall_ms();
    OpTime first = {(uint64_t)(wall_ms / 1000) << 32 | 1, OPTIME_TERM_NONE};
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "op", "n");
    build_cstr(&b, "ns", "");
    size_t o = build_open_doc(&b, "o");
    build_cstr(&b, "msg", "initiating set");
    build_close(&b, o);
    build_timestamp(&b, "ts", first.ts);
    build_i64(&b, "t", first.term);
    build_i64(&b, "v", OPLOG_VERSION);
    build_date(&b, "wall", wall_ms);
    Doc entry = doc_builder_end(&b);
    TRY(oplog_append_batch(repl->oplog, op, OPTIME_NONE, &entry, 1, err));
    TRY(storage_wait_durable(repl->engine, op, err));
    oplog_set_applied(repl->oplog, first, wall_ms);
    oplog_set_durable(repl->oplog, first, wall_ms);
    storage_set_last_applied_ts(repl->engine, first.ts);
    repl->oldest_ts_min = first.ts;
    return storage_set_stable_and_oldest(repl->engine, first.ts, first.ts, err);
}

static void use_first_config(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    AdminRequest *request = arg;
    OwnPositions own = repl_own_positions(request->repl);
    repl_core_config_stored(core, now, request->config, request->self_index, actions);
    repl_core_reset_own_position(core, now, own.applied, own.durable, actions);
    (void)repl_core_set_follower_state(core, now, REPL_SECONDARY, actions);
}

static ErrCode initiate(Repl *repl, OpCtx *op, Doc doc, Error *err) {
    mutex_lock(&repl->mu);
    bool is_initialized = repl_core_config(repl->core) != NULL;
    mutex_unlock(&repl->mu);
    if (is_initialized)
        return error_set(err, ERR_ALREADY_INITIALIZED, "already initialized");
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    int32_t self = REPL_INDEX_NONE;
    TRY(parse_initiate(repl, op, doc, &config, &self, err));
    TRY(check_members(repl, op, config, self, err));
    TRY(begin_history(repl, op, err));
    TRY(local_renew_initial_sync_id(op, err));
    TRY(local_store_config(op, config, err));
    TRY(repl_first_checkpoint(repl, repl->oldest_ts_min, err));
    AdminRequest request = {.repl = repl, .config = config, .self_index = self};
    repl_event(repl, use_first_config, &request);
    LOG_INFO(LOG_REPL, 21356, "replSetInitiate config now in use",
             LOG_STR("replSet", repl->set_name), LOG_I64("members", config->member_count));
    return ERR_OK;
}

const char *repl_default_host(const Repl *repl) {
    return repl->host;
}

ErrCode repl_initiate(Repl *repl, OpCtx *op, Doc config, Error *err) {
    if (atomic_exchange(&repl->is_initiating, true))
        return error_set(err, ERR_ALREADY_INITIALIZED,
                         "another replSetInitiate is being carried out");
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = true;
    ErrCode rc = initiate(repl, op, config, err);
    atomic_store(&repl->is_initiating, false);
    return rc;
}

/* ---- reconfigure ---- */

static void begin_reconfig(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)now, (void)actions;
    AdminRequest *request = arg;
    request->rc = repl_core_begin_reconfig(core, request->is_force, request->err);
    if (request->rc == ERR_OK)
        request->config = repl_config_ref(repl_core_config(core));
    request->term = repl_core_term(core);
}

/* Still the same primary, and nothing speaks against this very configuration? */
static void check_new_config(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)now, (void)actions;
    AdminRequest *request = arg;
    if (repl_core_term(core) != request->term || !repl_core_is_writable(core))
        request->rc = error_set(request->err, ERR_NOT_WRITABLE_PRIMARY,
                                "not the primary any more that began this reconfiguration");
    else
        request->rc = repl_core_check_new_config(core, request->config, request->err);
}

/* The present configuration, and what was committed before it, must be on a majority first: a few
 * heartbeats from now it will be. Waits as long as the operation may. */
static ErrCode ask_until_committed(Repl *repl, OpCtx *op, ReplEventFn ask, AdminRequest *request) {
    for (;;) {
        repl_feed_positions(repl);
        repl_event(repl, ask, request);
        if (request->rc != ERR_CURRENT_CONFIG_NOT_COMMITTED_YET)
            return request->rc;
        CLEANUP(error_reset) Error late = {0};
        if (op_sleep_us(op, RECONFIG_RETRY_US, &late) != ERR_OK)
            return request->rc; /* says what it waited for */
        error_reset(request->err);
    }
}

static void forget_reconfig(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)arg, (void)now, (void)actions;
    repl_core_config_store_failed(core);
}

static ErrCode check_default_concern(const ReplConfig *a, const ReplConfig *b, Error *err) {
    if (repl_config_implicit_write_concern(a).kind == repl_config_implicit_write_concern(b).kind)
        return ERR_OK;
    return error_set(
        err, ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE,
        "Reconfig attempted to install a config that would change the implicit default "
        "write concern. Use the setDefaultRWConcern command to set a cluster-wide "
        "write concern and try the reconfig again");
}

ErrCode repl_begin_default_concern(Repl *repl, Str mode, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    if (repl->is_modes_changing)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "a reconfiguration is changing the modes of write concerns");
    const ReplConfig *config = repl_core_config(repl->core);
    ReplWriteConcern concern = {.kind = REPL_W_MODE, .mode = mode};
    if (mode.size > 0 && config != NULL)
        TRY(repl_config_check_write_concern(config, &concern, err));
    repl->default_concern_changes++;
    return ERR_OK;
}

void repl_end_default_concern(Repl *repl) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    repl->default_concern_changes--;
    repl->default_concern_version++;
}

uint64_t repl_default_concern_version(Repl *repl) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    return repl->default_concern_version;
}

static ErrCode begin_modes(Repl *repl, const ReplConfig *old, const ReplConfig *made,
                           const ReplDefaultConcern *set, Error *err) {
    Elem before = doc_get_path(old->doc, "settings.getLastErrorModes");
    Elem after = doc_get_path(made->doc, "settings.getLastErrorModes");
    if (elem_compare(before, after, NULL) == 0)
        return ERR_OK;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    if (repl->default_concern_changes > 0 || repl->default_concern_version != set->version)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "the default write concern is being changed: it may name a mode that this "
                         "reconfiguration changes");
    repl->is_modes_changing = true;
    return ERR_OK;
}

static void end_modes(Repl *repl) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    repl->is_modes_changing = false;
}

/* An entry of the oplog tells when it was. Who is primary no longer needs none. */
static ErrCode note_reconfig(Repl *repl, OpCtx *op, const ReplConfig *config, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "msg", "Reconfig set");
    build_i32(&b, "version", (int32_t)config->version);
    ErrCode rc = repl_append_note(repl, op, doc_builder_end(&b), UINT64_MAX, err);
    if (rc != ERR_NOT_WRITABLE_PRIMARY)
        return rc;
    error_reset(err);
    return ERR_OK;
}

static ErrCode check_mode_stays(const ReplConfig *config, Str mode, Error *err) {
    ReplWriteConcern concern = {.kind = REPL_W_MODE, .mode = mode};
    CLEANUP(error_reset) Error why = {0};
    if (mode.size == 0 || repl_config_check_write_concern(config, &concern, &why) == ERR_OK)
        return ERR_OK;
    return error_set(
        err, ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE,
        "the default write concern of the set is \"%.*s\", which the new configuration "
        "does not define",
        (int)mode.size, mode.data);
}

ErrCode repl_reconfig(Repl *repl, OpCtx *op, Doc doc, bool is_force, const ReplDefaultConcern *set,
                      Error *err) {
    AdminRequest request = {.repl = repl, .is_force = is_force, .err = err};
    /* What is to be committed first may only wait for the next flush of the journal. */
    TRY(storage_wait_durable(repl->engine, op, err));
    TRY(ask_until_committed(repl, op, begin_reconfig, &request));
    CLEANUP(repl_config_unref_ptr) ReplConfig *old = (ReplConfig *)request.config;
    int32_t self = repl_find_self(repl, old);
    ReplReconfig reconfig = {.old_config = old,
                             .self_host = self >= 0 ? old->members[self].host : repl->host,
                             .term = request.term,
                             .is_force = is_force,
                             .marks_new_voters = !is_force,
                             .flags = REPL_CONFIG_FROM_USER | repl->config_flags};
    secure_random(&reconfig.random, sizeof(reconfig.random));
    CLEANUP(repl_config_unref_ptr) ReplConfig *made = NULL;
    ErrCode rc = repl_config_for_reconfig(doc, &reconfig, &made, err);
    if (rc == ERR_OK && !is_force)
        rc = set->is_set ? check_mode_stays(made, set->mode, err)
                         : check_default_concern(old, made, err);
    if (rc == ERR_OK && !is_force) {
        request.config = made;
        rc = ask_until_committed(repl, op, check_new_config, &request);
    }
    if (rc == ERR_OK && !is_force)
        rc = begin_modes(repl, old, made, set, err);
    if (rc != ERR_OK) {
        repl_event(repl, forget_reconfig, NULL);
        return rc;
    }
    {
        CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
        op->mode.is_unreplicated = true;
        rc = repl_install_config(repl, op, made, err);
    }
    end_modes(repl); /* nobody else reconfigures meanwhile */
    if (rc != ERR_OK || is_force)
        return rc;
    TRY(note_reconfig(repl, op, made, err));
    ReplWaiter waiter = {.kind = WAIT_CONFIG, .op = op};
    bool is_timed_out;
    TRY(repl_wait(repl, &waiter, INT64_MAX, &is_timed_out, err));
    return waiter.is_good ? ERR_OK : error_set(err, waiter.rc, "%s", waiter.why);
}

/* ---- step down, step up ---- */

static void begin_step_down(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    AdminRequest *request = arg;
    OwnPositions own = repl_own_positions(request->repl);
    repl_core_on_own_position(core, now, own.applied, own.durable, actions);
    request->rc = repl_core_step_down(core, now, request->secs, request->catch_up_secs,
                                      request->is_force, actions, request->err);
}

static void cancel_step_down(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)arg;
    repl_core_step_down_cancelled(core, now, actions);
}

ErrCode repl_step_down(Repl *repl, OpCtx *op, int64_t secs, int64_t catch_up_secs, bool is_force,
                       Error *err) {
    AdminRequest request = {.repl = repl,
                            .secs = secs,
                            .catch_up_secs = catch_up_secs,
                            .is_force = is_force,
                            .err = err};
    /* In the list before the event: its outcome may be there at once. */
    ReplWaiter waiter = {.kind = WAIT_STEP_DOWN, .op = op, .rc = ERR_EXCEEDED_TIME_LIMIT};
    repl_waiter_enter(repl, &waiter);
    repl_event(repl, begin_step_down, &request);
    if (request.rc != ERR_OK) {
        repl_waiter_leave(repl, &waiter);
        return request.rc;
    }
    bool is_timed_out;
    ErrCode rc = repl_wait_entered(repl, &waiter, INT64_MAX, &is_timed_out, err);
    if (rc != ERR_OK) {
        repl_event(repl, cancel_step_down, NULL);
        return rc;
    }
    return waiter.is_good ? ERR_OK
                          : error_set(err, waiter.rc, "%s",
                                      waiter.why != NULL ? waiter.why : "could not step down");
}

static void begin_step_up(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    AdminRequest *request = arg;
    request->rc = repl_core_step_up(core, now, request->skips_dry_run, &request->waiter->token,
                                    actions, request->err);
}

ErrCode repl_step_up(Repl *repl, OpCtx *op, bool skips_dry_run, Error *err) {
    ReplWaiter waiter = {.kind = WAIT_ELECTION, .op = op, .rc = ERR_COMMAND_FAILED};
    AdminRequest request = {
        .repl = repl, .skips_dry_run = skips_dry_run, .waiter = &waiter, .err = err};
    repl_waiter_enter(repl, &waiter);
    repl_event(repl, begin_step_up, &request);
    bool is_primary = request.rc == ERR_OK && waiter.token == 0;
    if (request.rc != ERR_OK || is_primary) {
        repl_waiter_leave(repl, &waiter);
        return request.rc;
    }
    LOG_INFO(LOG_REPL, 4615660, "Starting an election due to step up request",
             LOG_BOOL("skipDryRun", skips_dry_run));
    bool is_timed_out;
    TRY(repl_wait_entered(repl, &waiter, INT64_MAX, &is_timed_out, err));
    return waiter.is_good
               ? ERR_OK
               : error_set(err, ERR_COMMAND_FAILED, "Election failed.%s%s",
                           waiter.why != NULL ? " " : "", waiter.why != NULL ? waiter.why : "");
}

/* ---- small ones ---- */

static void freeze(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    AdminRequest *request = arg;
    request->rc = repl_core_freeze(core, now, request->secs, actions, request->err);
}

ErrCode repl_freeze(Repl *repl, int64_t secs, Error *err) {
    AdminRequest request = {.secs = secs, .err = err};
    repl_event(repl, freeze, &request);
    return request.rc;
}

static void maintenance(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    AdminRequest *request = arg;
    request->rc = repl_core_set_maintenance(core, now, request->is_on, actions, request->err);
}

ErrCode repl_maintenance(Repl *repl, bool is_on, Error *err) {
    AdminRequest request = {.is_on = is_on, .err = err};
    repl_event(repl, maintenance, &request);
    return request.rc;
}

static void sync_from(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    AdminRequest *request = arg;
    request->rc = repl_core_sync_from(core, now, request->host, request->ret_warning,
                                      request->ret_previous, actions, request->err);
}

ErrCode repl_sync_from(Repl *repl, const char *host, const char **ret_warning,
                       char ret_previous_host[REPL_HOST_SIZE], Error *err) {
    AdminRequest request = {
        .host = host, .ret_warning = ret_warning, .ret_previous = ret_previous_host, .err = err};
    repl_event(repl, sync_from, &request);
    return request.rc;
}

static void abort_catch_up(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    AdminRequest *request = arg;
    request->rc = repl_core_abort_catch_up(core, now, actions, request->err);
}

ErrCode repl_abort_catch_up(Repl *repl, Error *err) {
    AdminRequest request = {.err = err};
    repl_event(repl, abort_catch_up, &request);
    return request.rc;
}

/* ---- before a stop ---- */

static void find_heir(void *arg, const ReplCore *core) {
    const ReplConfig *config = repl_core_config(core);
    bool *ret_has_heir = arg;
    for (uint32_t i = 0; config != NULL && i < config->member_count; i++) {
        ReplMemberView member = repl_core_member(core, i);
        *ret_has_heir |= !member.is_self && member.is_up && config->members[i].is_electable &&
                         member.state == REPL_SECONDARY;
    }
}

bool repl_has_heir(Repl *repl) {
    bool has_heir = false;
    repl_inspect(repl, find_heir, &has_heir);
    return has_heir;
}

bool repl_hand_over(Repl *repl, int64_t timeout_ms) {
    if (repl == NULL || !repl_is_writable(repl))
        return false;
    bool has_heir = repl_has_heir(repl);
    OpCtx *op = repl_op_new(repl, "ReplStop");
    CLEANUP(error_reset) Error err = {0};
    int64_t catch_up_secs = has_heir ? (timeout_ms + 999) / 1000 : 0;
    if (repl_step_down(repl, op, STOP_STEP_DOWN_SECS, catch_up_secs, /* is_force= */ true, &err) !=
        ERR_OK)
        LOG_WARN(LOG_REPL, 4784900, "Could not step down before the stop",
                 LOG_STR("error", error_message(&err)));
    op_end(op);
    op_ctx_free(op);
    return true;
}

/* ---- the oplog's size ---- */

/* The size is an option of the collection, whose entry is not journaled: a checkpoint keeps it. */
static ErrCode store_size(Repl *repl, OpCtx *op, int64_t bytes, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i64(&b, "size", bytes);
    CollModChange change = {.capped_size = doc_get_lit(doc_builder_end(&b), "size")};
    CollModResult result;
    TRY(ddl_coll_mod(op, &oplog_collection(repl->oplog)->ns, &change, &result, err));
    return storage_checkpoint(repl->engine, err);
}

ErrCode repl_resize_oplog(Repl *repl, OpCtx *op, int64_t bytes, double hours_min, Error *err) {
    if (!oplog_exists(repl->oplog))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "oplog does not exist");
    OplogLimits limits = oplog_limits(repl->oplog);
    if (bytes > 0) {
        TRY(store_size(repl, op, bytes, err));
        limits.bytes_max = bytes;
    }
    if (hours_min >= 0)
        limits.hours_min = hours_min;
    oplog_set_limits(repl->oplog, limits);
    LOG_INFO(LOG_REPL, 20497, "replSetResizeOplog success", LOG_I64("bytes", limits.bytes_max),
             LOG_F64("minRetentionHours", limits.hours_min));
    return ERR_OK;
}
