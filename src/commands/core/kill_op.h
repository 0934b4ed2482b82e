/* kill_op.h - killOp of this process, the same on every kind of node. */
#pragma once

#include "commands/core/command.h"

/* Asks the operation with that number to end, and replies. */
ErrCode kill_op_here(CommandCtx *ctx, int64_t op_id, Error *err) MUST_CHECK;
