/*
 * session_cache.h - which logical sessions were used here, and when last (SES-1).
 *
 * Every command with a session records it here. Periodically the changes are flushed to
 * config.system.sessions, where unused sessions expire; session_refresh/ does that. Nothing here is
 * persistent: a crash only loses the last uses.
 *
 * Ownership: created by server/, hangs off the ServiceCtx.
 * Threading: any thread. Lock: LOCK_RANK_SESSION_CACHE, one of several by the session's hash.
 */
#pragma once

#include "base/error.h"
#include "txn/session_id.h"

typedef struct SessionCache SessionCache;

SessionCache *session_cache_new(void);
void session_cache_free(SessionCache *cache); /* NULL is fine */

/* The session is in use. Fails with ERR_TOO_MANY_LOGICAL_SESSIONS when it is a new one and there
 * are `sessions_max` already. */
ErrCode session_cache_use(SessionCache *cache, const SessionId *id, int64_t now_ms,
                          int64_t sessions_max, Error *err) MUST_CHECK;
/* Ended by its client. */
void session_cache_end(SessionCache *cache, const SessionId *id, int64_t now_ms);
/* Whether it was used at or after `since_ms`. */
bool session_cache_is_used(SessionCache *cache, const SessionId *id, int64_t since_ms);
int64_t session_cache_count(const SessionCache *cache);

typedef struct CachedSession {
    SessionId id;
    int64_t last_use_ms;
} CachedSession;

/* Changes since the last take. */
typedef struct SessionChanges {
    CachedSession *used;
    uint32_t used_count;
    uint32_t used_capacity;
    CachedSession *ended;
    uint32_t ended_count;
    uint32_t ended_capacity;
} SessionChanges;
/* Those that ended, or were not used since `idle_before_ms`, are removed here. */
void session_cache_take(SessionCache *cache, int64_t idle_before_ms, SessionChanges *ret_changes);
/* Read-only: `used` are all that have not ended. */
void session_cache_list(SessionCache *cache, SessionChanges *ret_changes);
/* They could not be written: they are returned again by the next take. */
void session_cache_put_back(SessionCache *cache, const SessionChanges *changes);
void session_changes_done(SessionChanges *changes);
