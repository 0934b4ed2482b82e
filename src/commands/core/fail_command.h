/*
 * fail_command.h - the failpoint "failCommand": makes chosen commands fail, for the tests of
 * drivers.
 */
#pragma once

#include "commands/core/command.h"

/* Before a command runs. With closeConnection it fails with ERR_SOCKET_EXCEPTION and asks for the
 * connection to be closed without a reply. */
ErrCode fail_command_check(CommandCtx *ctx, Error *err) MUST_CHECK;
/* After a write: true when a writeConcernError is to be reported, filled into `wc_err`. */
bool fail_command_write_concern_error(CommandCtx *ctx, Error *wc_err);
