/*
 * list_sessions.h - which users' sessions $listSessions and $listLocalSessions tell of (SES-1).
 *
 * A session belongs to the digest of its user's name. Without access control all sessions belong to
 * nobody, the user with the empty name.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "bson/namespace.h"

enum {
    USER_DIGEST_SIZE = 32,
};

/* {}: the caller's own, {allUsers: true}, or {users: [{user, db}, ...]}. */
typedef struct SessionsWish {
    bool is_for_all;
    Doc users; /* an array; DOC_NONE: not given */
} SessionsWish;
ErrCode sessions_wish_parse(const char *stage, Doc spec, SessionsWish *ret_wish, Error *err)
    MUST_CHECK;
bool sessions_wish_has_nobody(const SessionsWish *wish);

/* A pipeline that begins with $listSessions begins with a $match instead. Other pipelines come back
 * as they are. Fails with ERR_INVALID_NAMESPACE on any collection but config.system.sessions. */
ErrCode list_sessions_rewrite(const Ns *ns, Doc stages, Arena *arena, Doc *ret_stages, Error *err)
    MUST_CHECK;
