/*
 * hooks.h - what happens around every command of a router (commands/core/command_service.h).
 */
#pragma once

#include "commands/core/command_service.h"

ErrCode router_before_run(CommandCtx *ctx, Error *err);
ErrCode router_after_run(CommandCtx *ctx, ErrCode rc, Error *err);
ErrCode router_wait_write_concern(CommandCtx *ctx, const WriteConcern *concern, Error *err);
/* $clusterTime, operationTime. */
void router_finish_reply(CommandCtx *ctx);
uint32_t router_error_labels(const CommandCtx *ctx, ErrCode rc);
