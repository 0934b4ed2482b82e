/*
 * session_catalog.h - the sessions that do retryable writes here (SES-2, SES-3).
 *
 * What a session has done is stored: its row of config.transactions names the last entry of the
 * oplog, each entry the one before it. In memory there is a copy of that for sessions in use: the
 * newest transaction number and which of its statements are executed. The copy is made at the first
 * check-out, kept up by the session's writes, and may be forgotten at any time in between.
 *
 * An operation checks its session out before it looks or writes, so that operations of one session
 * follow each other.
 *
 * Ownership: made by server/, hangs off the ServiceCtx, freed after the last operation.
 * Threading: any thread. Lock: LOCK_RANK_SESSIONS, for table work only.
 */
#pragma once

#include "base/error.h"
#include "bson/optime.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "txn/session_id.h"

typedef struct SessionCatalog SessionCatalog;
typedef struct Session Session;

/* Also registers the observer that notices writes of clients to config.transactions; the catalog of
 * collections must be open. */
SessionCatalog *session_catalog_new(ServiceCtx *service);
void session_catalog_free(SessionCatalog *catalog); /* NULL is fine */

/* Waits until nobody else has the session. Fails when the operation is interrupted. */
ErrCode session_check_out(SessionCatalog *catalog, OpCtx *op, const SessionId *id,
                          Session **ret_session, Error *err) MUST_CHECK;
void session_check_in(SessionCatalog *catalog, Session *session);

/* What was read before may not be true any more: the member's place in the set changes, storage
 * went back, or somebody wrote to config.transactions. Sessions are read anew at their next use,
 * and whoever has one now does not trust it any more. NULL is fine. */
void session_catalog_invalidate(SessionCatalog *catalog);

typedef struct SessionCatalogStats {
    int64_t sessions;
    int64_t bytes;
} SessionCatalogStats;
SessionCatalogStats session_catalog_stats(SessionCatalog *catalog);
