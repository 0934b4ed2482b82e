/*
 * fail_command.h - the failpoint "failCommand": makes chosen commands fail, for the tests of
 * drivers.
 */
#pragma once

#include "commands/core/command.h"

/* Called before a command runs. With closeConnection it fails with ERR_SOCKET_EXCEPTION and
 * requests that the connection be closed without a reply. */
ErrCode fail_command_check(CommandCtx *ctx, Error *err) MUST_CHECK;
/* Called after a write: true when a writeConcernError was told in the reply, in the words of the
 * failpoint; its code is in *ret_code. */
bool fail_command_write_concern_error(CommandCtx *ctx, ErrCode *ret_code);
