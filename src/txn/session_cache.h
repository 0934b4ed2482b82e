/*
 * session_cache.h - which logical sessions were used here since when (SES-1).
 *
 * Every command with a session notes it here. From time to time the notes are carried to
 * config.system.sessions, where sessions that nobody uses expire; who does that is above this
 * folder. Nothing here is stored.
 *
 * Ownership: made by server/, hangs off the ServiceCtx.
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
/* Its client does not use it any more. */
void session_cache_end(SessionCache *cache, const SessionId *id, int64_t now_ms);
/* Was it used at or after `since_ms`? */
bool session_cache_is_used(SessionCache *cache, const SessionId *id, int64_t since_ms);
int64_t session_cache_count(const SessionCache *cache);

typedef struct CachedSession {
    SessionId id;
    int64_t last_use_ms;
} CachedSession;

/* What happened since the last time. */
typedef struct SessionChanges {
    CachedSession *used;
    uint32_t used_count;
    uint32_t used_capacity;
    CachedSession *ended;
    uint32_t ended_count;
    uint32_t ended_capacity;
} SessionChanges;
/* Those that ended, or were not used since `idle_before_ms`, are forgotten here. */
void session_cache_take(SessionCache *cache, int64_t idle_before_ms, SessionChanges *ret_changes);
/* Only looks: `used` are all that have not ended. */
void session_cache_list(SessionCache *cache, SessionChanges *ret_changes);
/* They could not be carried away: they come again the next time. */
void session_cache_put_back(SessionCache *cache, const SessionChanges *changes);
void session_changes_done(SessionChanges *changes);
