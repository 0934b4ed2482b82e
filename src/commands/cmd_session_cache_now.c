/* cmd_session_cache_now.c - a round of the record of sessions at once, for tests. */
#include "commands/core/command.h"
#include "commands/core/params.h"
#include "commands/session_refresh.h"

static ErrCode refresher_of(CommandCtx *ctx, SessionRefresher **ret_refresher, Error *err) {
    *ret_refresher = server_setup(ctx->service)->session_refresher;
    if (*ret_refresher == NULL)
        return error_set(err, ERR_NO_REPLICATION_ENABLED,
                         "this node is not a member of a replica set and keeps no record of "
                         "sessions");
    return ERR_OK;
}

static ErrCode refresh_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    SessionRefresher *refresher;
    TRY(refresher_of(ctx, &refresher, err));
    return session_refresh_now(refresher, ctx->op, err);
}

static ErrCode reap_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    SessionRefresher *refresher;
    TRY(refresher_of(ctx, &refresher, err));
    return session_reap_now(refresher, ctx->op, err);
}

const CommandSpec CMD_REFRESH_LOGICAL_SESSION_CACHE_NOW = {
    .name = "refreshLogicalSessionCacheNow",
    .summary = "Carries the sessions in use to config.system.sessions at once.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .run = refresh_run,
};

const CommandSpec CMD_REAP_LOGICAL_SESSION_CACHE_NOW = {
    .name = "reapLogicalSessionCacheNow",
    .summary = "Removes what is stored of sessions that are gone at once.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .run = reap_run,
};
