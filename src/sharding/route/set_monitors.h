/*
 * set_monitors.h - watches the replica sets this process talks to, and says whom to send a request
 * (RTE-5).
 *
 * One thread asks all members of all sets. A member answers a hello with the topology version it
 * gave last only when something has changed, so that a change is known at once and a quiet set
 * costs two small messages per member in ten seconds: one that waits, and one that measures the
 * round trip.
 *
 * Ownership: sets live as long as the SetMonitors. Threading: any. Lock: LOCK_RANK_SET_MONITORS;
 * not held over I/O or callbacks.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "request/read_preference.h"
#include "sharding/route/set_view.h"
#include "transport/client.h"

typedef struct SetMonitors SetMonitors;
typedef struct WatchedSet WatchedSet;

typedef struct SetMonitorSettings {
    int64_t heartbeat_us;  /* 10 s */
    int64_t near_us;       /* 15 ms */
    int64_t select_us_max; /* 15 s; how long set_select looks for a member */
    /* Called by the thread, with nothing held, when a set has other members than before, or a
     * primary that confirms them; NULL: nobody wants to know. */
    void (*members_changed)(void *arg);
    void *members_arg;
} SetMonitorSettings;

SetMonitors *set_monitors_new(OpRegistry *ops, ClientPool *clients,
                              const SetMonitorSettings *settings);
void set_monitors_stop(SetMonitors *monitors);
void set_monitors_free(SetMonitors *monitors); /* after _stop; NULL is fine */

/* The set of that name, watched from now on; `address` is where to find it if it is new. A set that
 * is watched already keeps what is known, unless none of its members can be reached: then those of
 * the address are asked as well. */
ErrCode set_monitors_watch(SetMonitors *monitors, Str address, WatchedSet **ret_set, Error *err)
    MUST_CHECK;

/* The cluster does not use the set (any more): one that is met under its name later may be another,
 * whose primaries are not to be taken for old ones. */
void watched_set_forget_elections(WatchedSet *set);
const char *watched_set_name(const WatchedSet *set);
SetView *watched_set_view(WatchedSet *set); /* a reference */

/* The host of a member for this read, waiting for one if need be: until the deadline of the
 * operation, `select_us_max` at most. Fails with ERR_FAILED_TO_SATISFY_READ_PREFERENCE. */
ErrCode set_select(WatchedSet *set, OpCtx *op, const ReadPreference *preference,
                   char ret_host[SET_HOST_SIZE], Error *err) MUST_CHECK;
/* A request to `host` failed with `code`: if that tells that it is gone or not primary any more it
 * is not chosen again before it has been asked. */
void set_note_failure(WatchedSet *set, const char *host, ErrCode code);
