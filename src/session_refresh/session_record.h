/*
 * session_record.h - the record of sessions: config.system.sessions of this set or node, or, for
 * the routers and shards of a cluster, that of its config server.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"
#include "txn/session_cache.h"

struct Cluster;

typedef struct SessionRecord {
    OpCtx *op;
    struct Cluster *cluster; /* NULL: it is this set's own */
} SessionRecord;

/* Uses are upserted, ended sessions deleted. */
ErrCode session_record_write(const SessionRecord *record, const SessionChanges *changes, Error *err)
    MUST_CHECK;
/* Which of `count` sessions are in it. What session_record_write wrote of a cluster is seen. */
ErrCode session_record_find(const SessionRecord *record, const SessionId *ids, uint32_t count,
                            bool *ret_found, Error *err) MUST_CHECK;

/* The collection, with the index by which sessions expire: made if it is not there. */
ErrCode session_collection_ensure(ServiceCtx *service, OpCtx *op, Error *err) MUST_CHECK;
