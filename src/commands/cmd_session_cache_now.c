/* cmd_session_cache_now.c - a round of the record of sessions at once, for tests. */
#include "commands/core/command.h"
#include "params/params.h"
#include "session_refresh/session_refresh.h"

static ErrCode refresh_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    return session_refresh_now(ctx->service->session_refresher, ctx->op, err);
}

static ErrCode reap_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    return session_reap_now(ctx->service->session_refresher, ctx->op, err);
}

const CommandSpec CMD_REFRESH_LOGICAL_SESSION_CACHE_NOW = {
    .name = "refreshLogicalSessionCacheNow",
    .summary = "Carries the sessions in use to config.system.sessions at once.",
    .flags = CMD_NEEDS_TEST_COMMANDS,
    .run = refresh_run,
};

const CommandSpec CMD_REAP_LOGICAL_SESSION_CACHE_NOW = {
    .name = "reapLogicalSessionCacheNow",
    .summary = "Removes what is stored of sessions that are gone at once.",
    .flags = CMD_NEEDS_TEST_COMMANDS,
    .run = reap_run,
};
