/*
 * ports.h - free ports of the loopback address.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "up/layout.h"

bool port_is_free(uint16_t port);
/* Gives a free port to every member that has none yet. */
ErrCode ports_choose(Layout *layout, Error *err) MUST_CHECK;
/* Fails with ERR_SOCKET_EXCEPTION if one of them is taken. */
ErrCode ports_check(const Parts *parts, Error *err) MUST_CHECK;
