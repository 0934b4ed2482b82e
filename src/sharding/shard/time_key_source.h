/*
 * time_key_source.h - the keys that sign cluster times, from the config server (SES-6).
 */
#pragma once

#include "repl/time_keys.h"

/* For ReplHooks (repl/repl.h). */
ErrCode shard_read_time_keys(ServiceCtx *service, OpCtx *op, TimeKeyVisit visit, void *arg,
                             bool *ret_is_in_cluster, Error *err) MUST_CHECK;
