/*
 * range_deleter.h - removes documents that this shard no longer owns (RNG-2, RNG-3, RNG-4).
 *
 * After a move commits, the donor still has the moved documents; after one that was given up, the
 * recipient has what it had got. Queries do not see them, but cursors opened before may still be
 * reading them: so removal waits, and then goes in batches.
 *
 * Ownership:  hangs off the ServiceCtx of members with --shardsvr.
 * Threading:  a thread of its own; any thread may wait or read statistics.
 *             Lock: LOCK_RANK_RANGE_DELETER.
 * Durability: tasks are documents (range_tasks.h): whoever is primary goes on.
 */
#pragma once

#include "bson/uuid.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct RangeDeleter RangeDeleter;

/* Asked for before each use, so that changes count at once. */
typedef struct RangeDeleterSettings {
    bool is_enabled;    /* this member is primary, and nobody has switched it off */
    int64_t delay_s;    /* for reads on secondaries */
    bool is_delay_kept; /* also if they say that there are none */
    int64_t batch_docs; /* 0: no limit of its own */
    int64_t batch_pause_ms;
} RangeDeleterSettings;
typedef RangeDeleterSettings (*RangeDeleterSettingsFn)(ServiceCtx *service);

typedef struct RangeDeleterStats {
    int64_t deleted_docs;
    int64_t deleted_bytes;
    int64_t tasks; /* seen in the last round, pending ones too */
    int64_t tasks_done;
} RangeDeleterStats;

RangeDeleter *range_deleter_new(ServiceCtx *service, RangeDeleterSettingsFn settings);
ErrCode range_deleter_start(RangeDeleter *deleter, Error *err) MUST_CHECK;
void range_deleter_stop(RangeDeleter *deleter); /* NULL is fine */
void range_deleter_free(RangeDeleter *deleter); /* after _stop; NULL is fine */

/* A task is ready, or something else that it goes by has changed: the state of the member, a
 * setting. It looks by itself every few seconds. NULL is fine. */
void range_deleter_wake(RangeDeleter *deleter);

/* Waits until that task is gone. */
ErrCode range_deleter_wait_task(RangeDeleter *deleter, OpCtx *op, const Uuid *id, Error *err)
    MUST_CHECK;
/* Waits until the collection has no task, pending ones too. */
ErrCode range_deleter_wait_collection(RangeDeleter *deleter, OpCtx *op, const Uuid *uuid,
                                      Error *err) MUST_CHECK;
RangeDeleterStats range_deleter_stats(RangeDeleter *deleter);
