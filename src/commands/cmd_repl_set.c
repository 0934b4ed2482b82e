/* cmd_repl_set.c - what operators ask of a member of a replica set (REP-1). */
#include "commands/core/command.h"
#include "commands/core/command_service.h"
#include "default_concerns/default_concerns.h"
#include "commands/support.h"
#include "params/params.h"
#include "repl/repl.h"
#include "sharding/route/remote.h"
#include "sharding/shard/shard_state.h"

enum {
    STEP_DOWN_SECS_DEFAULT = 60,
    CATCH_UP_SECS_DEFAULT = 10,
    OPLOG_MB_MIN = 990,
};
#define OPLOG_MB_MAX (INT64_C(1) << 30) /* a petabyte */

typedef struct ReplSetRequest {
    Elem first; /* the value of the command's own name */
    bool is_force;
    Elem catch_up_secs;
    bool skips_dry_run;
    bool has_commitment_status;
    bool is_newly_added_shown; /* for tests */
    Elem size;                 /* MB */
    Elem hours_min;
} ReplSetRequest;

static ErrCode initiate_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    if (service_is_standalone(ctx->service))
        return error_set(err, ERR_NO_REPLICATION_ENABLED,
                         "This node was not started with replication enabled.");
    Doc config = elem_type(request->first) == BT_DOC ? elem_doc(request->first) : DOC_NONE;
    bool is_default = !doc_is_present(config) || doc_is_empty(config);
    TRY(repl_initiate(ctx->service->repl, ctx->op, config, err));
    if (is_default) {
        build_cstr(ctx->reply, "info2",
                   "no configuration was given: this node is the only member of the set");
        build_cstr(ctx->reply, "me", repl_default_host(ctx->service->repl));
    }
    return ERR_OK;
}

/* Of a shard's cluster: only its config server knows. */
static bool has_cluster_concern(CommandCtx *ctx) {
    Cluster *cluster = shard_find_cluster(ctx->service->shard);
    if (cluster == NULL)
        return false;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_cstr(&b, "_id", "ReadWriteConcernDefaults");
    ConfigQuery query = {
        .coll = "settings", .filter = doc_builder_end(&b), .sort = DOC_NONE, .count_max = 1};
    Doc *docs;
    uint32_t count;
    CLEANUP(error_reset) Error ignored = {0};
    return config_find(cluster, ctx->op, &query, &docs, &count, &ignored) == ERR_OK && count == 1 &&
           elem_is_present(doc_get_lit(docs[0], "defaultWriteConcern"));
}

/* Is the implicit default write concern that of nobody? */
static bool has_default_concern(CommandCtx *ctx) {
    return param_bool(ctx->service, PARAM_ENABLE_CONCERN_CHANGE) ||
           default_concerns(ctx->op).has_w ||
           (ctx->service->role == ROLE_SHARD && has_cluster_concern(ctx));
}

static ErrCode reconfig_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    if (elem_type(request->first) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE, "no configuration specified");
    ReplDefaultConcern set = {
        .version = repl_default_concern_version(repl),
        .is_set = has_default_concern(ctx),
        .mode = str_from(arena_strdup(cmd_arena(ctx), default_concerns(ctx->op).mode))};
    return repl_reconfig(repl, ctx->op, elem_doc(request->first), request->is_force, &set, err);
}

static ErrCode step_down_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    int64_t secs = elem_is_number(request->first) ? elem_as_i64(request->first) : 0;
    if (secs == 0)
        secs = STEP_DOWN_SECS_DEFAULT;
    int64_t catch_up_secs = CATCH_UP_SECS_DEFAULT;
    if (elem_is_present(request->catch_up_secs) && !elem_is_number(request->catch_up_secs))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "secondaryCatchUpPeriodSecs must be a number, not %s",
                         bson_type_name(elem_type(request->catch_up_secs)));
    if (elem_is_number(request->catch_up_secs))
        catch_up_secs = elem_as_i64(request->catch_up_secs);
    else if (request->is_force)
        catch_up_secs = 0;
    if (catch_up_secs > secs)
        catch_up_secs = elem_is_number(request->catch_up_secs) ? catch_up_secs : secs;
    return repl_step_down(repl, ctx->op, secs, catch_up_secs, request->is_force, err);
}

static ErrCode step_up_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    return repl_step_up(repl, ctx->op, request->skips_dry_run, err);
}

static ErrCode freeze_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    return repl_freeze(repl, elem_as_i64(request->first), err);
}

static ErrCode maintenance_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    return repl_maintenance(repl, elem_is_truthy(request->first), err);
}

static ErrCode sync_from_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    if (elem_type(request->first) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "replSetSyncFrom needs the host as a string");
    const char *warning = NULL;
    char previous[REPL_HOST_SIZE] = "";
    TRY(repl_sync_from(repl, elem_str(request->first).data, &warning, previous, err));
    build_str(ctx->reply, "syncFromRequested", elem_str(request->first));
    if (warning != NULL)
        build_cstr(ctx->reply, "warning", warning);
    if (previous[0] != '\0')
        build_cstr(ctx->reply, "prevSyncTarget", previous);
    return ERR_OK;
}

static ErrCode abort_catch_up_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    return repl_abort_catch_up(repl, err);
}

typedef struct ConfigView {
    ReplConfig *config;
    bool is_committed;
} ConfigView;

static void inspect_config(void *arg, const ReplCore *core) {
    ConfigView *view = arg;
    const ReplConfig *config = repl_core_config(core);
    view->config = config != NULL ? repl_config_ref(config) : NULL;
    view->is_committed = config != NULL && repl_core_is_config_settled(core);
}

static ErrCode get_config_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    ConfigView view;
    repl_inspect(repl, inspect_config, &view);
    if (view.config == NULL)
        return error_set(err, ERR_NOT_YET_INITIALIZED, "no replset config has been received");
    Buffer buf;
    buffer_init_arena(&buf, cmd_arena(ctx), 1024, BUFFER_UNBOUNDED);
    build_doc(ctx->reply, "config",
              request->is_newly_added_shown ? view.config->doc
                                            : repl_config_build_for_user(&buf, view.config));
    if (request->has_commitment_status)
        build_bool(ctx->reply, "commitmentStatus", view.is_committed);
    repl_config_unref(view.config);
    return ERR_OK;
}

static ErrCode get_rbid_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    build_i32(ctx->reply, "rbid", repl_rollback_id(repl));
    return ERR_OK;
}

static ErrCode resize_oplog_run(CommandCtx *ctx, void *arg, Error *err) {
    ReplSetRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    double mb = elem_is_number(request->size) ? elem_as_f64(request->size) : 0;
    double hours = elem_is_number(request->hours_min) ? elem_as_f64(request->hours_min) : -1;
    if (elem_is_present(request->size) && (mb < OPLOG_MB_MIN || mb > OPLOG_MB_MAX))
        return error_set(err, (ErrCode)51024,
                         "BSON field 'size' value must be >= %d and <= %lld, actual value '%g'",
                         OPLOG_MB_MIN, (long long)OPLOG_MB_MAX, mb);
    if (elem_is_present(request->hours_min) && hours < 0)
        return error_set(err, (ErrCode)51024,
                         "BSON field 'minRetentionHours' value must be >= 0, actual value '%g'",
                         hours);
    return repl_resize_oplog(repl, ctx->op, (int64_t)(mb * 1024 * 1024), hours, err);
}

#define REPL_SET_COMMAND(symbol, command_name, text, function)                                     \
    static const FieldSpec symbol##_FIELDS[] = {                                                   \
        {command_name, FIELD_ELEM, FIELD_OPTIONAL, offsetof(ReplSetRequest, first)},               \
        {"force", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ReplSetRequest, is_force)},                 \
        {"secondaryCatchUpPeriodSecs", FIELD_ELEM, FIELD_OPTIONAL,                                 \
         offsetof(ReplSetRequest, catch_up_secs)},                                                 \
        {"skipDryRun", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ReplSetRequest, skips_dry_run)},       \
        {"commitmentStatus", FIELD_BOOL, FIELD_OPTIONAL,                                           \
         offsetof(ReplSetRequest, has_commitment_status)},                                         \
        {"$_internalIncludeNewlyAdded", FIELD_BOOL, FIELD_OPTIONAL,                                \
         offsetof(ReplSetRequest, is_newly_added_shown)},                                          \
        {"size", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ReplSetRequest, size)},                      \
        {"minRetentionHours", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ReplSetRequest, hours_min)},    \
    };                                                                                             \
    const CommandSpec symbol = {                                                                   \
        .name = command_name,                                                                      \
        .summary = text,                                                                           \
        .flags = CMD_ADMIN_ONLY | CMD_LOOSE,                                                       \
        .request = REQUEST_OF(ReplSetRequest, symbol##_FIELDS),                                    \
        .run = function,                                                                           \
    }

REPL_SET_COMMAND(CMD_REPL_SET_ABORT_PRIMARY_CATCH_UP, "replSetAbortPrimaryCatchUp",
                 "Makes a new primary take writes without what it has not fetched yet.",
                 abort_catch_up_run);
REPL_SET_COMMAND(CMD_REPL_SET_FREEZE, "replSetFreeze", "Keeps a member from becoming primary.",
                 freeze_run);
REPL_SET_COMMAND(CMD_REPL_SET_GET_CONFIG, "replSetGetConfig",
                 "Shows the configuration of the replica set.", get_config_run);
REPL_SET_COMMAND(CMD_REPL_SET_GET_RBID, "replSetGetRBID", "Shows how often a member rolled back.",
                 get_rbid_run);
REPL_SET_COMMAND(CMD_REPL_SET_INITIATE, "replSetInitiate", "Starts a replica set.", initiate_run);
REPL_SET_COMMAND(CMD_REPL_SET_MAINTENANCE, "replSetMaintenance",
                 "Takes a member out of service for a while.", maintenance_run);
REPL_SET_COMMAND(CMD_REPL_SET_RECONFIG, "replSetReconfig", "Changes the replica set.",
                 reconfig_run);
REPL_SET_COMMAND(CMD_REPL_SET_RESIZE_OPLOG, "replSetResizeOplog",
                 "Changes the size of this member's oplog.", resize_oplog_run);
REPL_SET_COMMAND(CMD_REPL_SET_STEP_DOWN, "replSetStepDown", "Makes the primary a secondary.",
                 step_down_run);
REPL_SET_COMMAND(CMD_REPL_SET_STEP_UP, "replSetStepUp", "Makes a secondary stand for election.",
                 step_up_run);
REPL_SET_COMMAND(CMD_REPL_SET_SYNC_FROM, "replSetSyncFrom", "Chooses where a member copies from.",
                 sync_from_run);
