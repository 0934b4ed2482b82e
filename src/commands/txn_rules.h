/*
 * txn_rules.h - what a command may do inside of a transaction (SES-4), beyond what its arguments
 * show (core/generic_args).
 */
#pragma once

#include "bson/namespace.h"
#include "commands/core/command.h"

/* Before the statement begins: collections that are closed to transactions, and read concerns that
 * a command does not take there. */
ErrCode txn_rules_check(const CommandCtx *ctx, Error *err) MUST_CHECK;
/* The same for a collection that was given by its UUID. */
ErrCode txn_rules_check_uuid(const CommandCtx *ctx, const Ns *ns, Error *err) MUST_CHECK;
/* When it has begun: what its read concern does not allow. */
ErrCode txn_rules_check_open(const CommandCtx *ctx, Error *err) MUST_CHECK;
/* Stages that a transaction cannot have, also inside of others. */
ErrCode txn_rules_check_pipeline(Doc stages, Error *err) MUST_CHECK;
