/*
 * session_refresh.h - carries the sessions in use to config.system.sessions, and ends what belongs
 * to those that are gone (SES-1).
 *
 * A round, every logicalSessionRefreshMillis on each member of a replica set, on routers, and on
 * standalone nodes, which are their own primary:
 *
 *  1. Sessions used since the last round are upserted, on the primary; those of routers and shards
 *     on that of the config server (session_record.h).
 *  2. Sessions that clients ended are deleted there; their operations and cursors end here.
 *  3. Cursors of sessions that expired are closed.
 *  4. On the primary, rows of config.transactions whose session is gone are deleted, with their
 *     images.
 *
 * Expiring itself is a TTL index of config.system.sessions, which the primary makes.
 *
 * Ownership: made by server/. Its thread ends before the operations' registry.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct SessionRefresher SessionRefresher;

/* The cluster whose config server has the record; *ret_cluster is NULL on nodes that have their
 * own. Asked in every round: a set may become a shard. */
typedef ErrCode (*FindCluster)(OpCtx *op, struct Cluster **ret_cluster, Error *err);

ErrCode session_refresher_start(ServiceCtx *service, FindCluster find_cluster,
                                SessionRefresher **ret_refresher, Error *err) MUST_CHECK;
void session_refresher_stop(SessionRefresher *refresher); /* NULL is fine */
void session_refresher_free(SessionRefresher *refresher); /* likewise */

/* The two halves of a round, at once; for tests. */
ErrCode session_refresh_now(SessionRefresher *refresher, OpCtx *op, Error *err) MUST_CHECK;
ErrCode session_reap_now(SessionRefresher *refresher, OpCtx *op, Error *err) MUST_CHECK;

/* The section logicalSessionRecordCache of serverStatus. */
void session_refresher_build_status(SessionRefresher *refresher, DocBuilder *b);
