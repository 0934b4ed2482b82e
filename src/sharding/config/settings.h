/*
 * settings.h - what operators have set for the whole cluster: config.settings.
 */
#pragma once

#include "sharding/config/config_catalog.h"

/* Whether chunks may be moved without being asked for: {_id: "balancer", mode, stopped}. Kept, also
 * while there is nothing to move. */
ErrCode balancer_setting_read(OpCtx *op, bool *ret_is_on, Error *err) MUST_CHECK;
ErrCode balancer_setting_write(OpCtx *op, bool is_on, Error *err) MUST_CHECK;
