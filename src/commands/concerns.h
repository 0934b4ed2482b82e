/*
 * concerns.h - read and write concerns, and what a member of a replica set may serve (REP-3).
 *
 * The functions are hooks of commands/core (command_service.h).
 */
#pragma once

#include "commands/core/command_service.h"

ErrCode concerns_before_run(CommandCtx *ctx, Error *err) MUST_CHECK;
ErrCode concerns_after_run(CommandCtx *ctx, ErrCode rc, Error *err) MUST_CHECK;
ErrCode concerns_wait_write(CommandCtx *ctx, const WriteConcern *concern, Error *err) MUST_CHECK;
/* This node is the primary, and what it knows now fulfils the request's write concern. */
ErrCode concerns_confirm_no_txn(CommandCtx *ctx, Error *err) MUST_CHECK;
void concerns_finish_reply(CommandCtx *ctx);
/* A later batch of a cursor reads where the first one did. */
void concerns_resume_read(CommandCtx *ctx, const ReadConcern *concern);
