/*
 * settings.h - what operators have set for the whole cluster: config.settings.
 */
#pragma once

#include "sharding/config/config_catalog.h"

enum {
    CHUNK_MB_DEFAULT = 128,
    CHUNK_MB_MAX = 1024,
};

typedef struct BalancerSettings {
    /* {_id: "balancer", mode, stopped, activeWindow, ...} */
    bool is_on;
    bool has_window;      /* it works between these times of the day only */
    int16_t start_minute; /* of the day, local time; a window may go over midnight */
    int16_t stop_minute;
    bool is_throttled;     /* _secondaryThrottle */
    bool waits_for_delete; /* _waitForDelete */
    bool moves_jumbo;      /* attemptToBalanceJumboChunks */
    /* {_id: "chunksize", value: <MB>} */
    int64_t chunk_bytes;
    /* {_id: "automerge", enabled} */
    bool merges;
} BalancerSettings;

/* Documents may be DOC_NONE: nothing was set. ERR_BAD_VALUE: what was set makes no sense. Pure. */
ErrCode balancer_settings_parse(Doc balancer, Doc chunk_size, Doc auto_merge,
                                BalancerSettings *ret_settings, Error *err) MUST_CHECK;
/* Pure. */
bool balancer_settings_is_in_window(const BalancerSettings *settings, int minute_of_day);

/* Makes the collection, which refuses what the balancer could not read. */
ErrCode balancer_settings_prepare(OpCtx *op, Error *err) MUST_CHECK;

ErrCode balancer_settings_read(OpCtx *op, BalancerSettings *ret_settings, Error *err) MUST_CHECK;
/* Whether chunks may be moved without being asked for. */
ErrCode balancer_setting_write(OpCtx *op, bool is_on, Error *err) MUST_CHECK;
