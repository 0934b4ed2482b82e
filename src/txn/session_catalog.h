/*
 * session_catalog.h - the sessions with retryable writes on this node (SES-2, SES-3).
 *
 * What a session has executed is persistent: its row of config.transactions refers to the last
 * oplog entry, each entry to the previous one. In memory there is a copy of that for sessions in
 * use: the newest transaction number and which of its statements are executed. The copy is loaded
 * at the first check-out, maintained by the session's writes, and may be evicted whenever it is not
 * checked out.
 *
 * An operation checks its session out before it reads or writes, so that operations of one session
 * are serialized.
 *
 * Ownership: created by server/, hangs off the ServiceCtx, freed after the last operation.
 * Threading: any thread. Lock: LOCK_RANK_SESSIONS, for table operations only.
 * Crash:     in memory only; loaded again from row and oplog.
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
/* No transaction is open (txn_abort_where). NULL is fine. */
void session_catalog_free(SessionCatalog *catalog);

/* Waits until the session is not checked out by another operation. Fails when interrupted. */
ErrCode session_check_out(SessionCatalog *catalog, OpCtx *op, const SessionId *id,
                          Session **ret_session, Error *err) MUST_CHECK;
/* `op` is the one that has it. */
void session_check_in(SessionCatalog *catalog, OpCtx *op, Session *session);

/* Loaded state may be stale: the member's state changes, storage was rolled back, or a client wrote
 * to config.transactions. Sessions are reloaded at their next use; one that is checked out reloads
 * before its next statement. NULL is allowed. */
void session_catalog_invalidate(SessionCatalog *catalog);

typedef struct SessionCatalogStats {
    int64_t sessions;
    int64_t bytes;
} SessionCatalogStats;
SessionCatalogStats session_catalog_stats(SessionCatalog *catalog);
