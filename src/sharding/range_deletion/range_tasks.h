/*
 * range_tasks.h - documents of config.rangeDeletions: ranges whose documents this shard has, or may
 * get, and does not own (RNG-1).
 *
 * Written before the first such document can be there, so that none is forgotten by a crash.
 */
#pragma once

#include "base/error.h"
#include "bson/namespace.h"
#include "bson/uuid.h"
#include "concurrency/op_ctx.h"
#include "sharding/meta/shard_key.h"

extern const Ns RANGE_DELETIONS_NS;

typedef struct RangeTask {
    Uuid id; /* of the move */
    Ns ns;
    Uuid uuid; /* of the collection */
    Str donor;
    Doc min;
    Doc max;
    Doc key;          /* the pattern; DOC_NONE: not known */
    bool is_pending;  /* the outcome of the move is not known yet */
    bool is_delayed;  /* whenToClean: after reads on secondaries had time to end */
    int64_t orphans;  /* numOrphanDocs: about how many documents of the range are here */
    uint64_t made_ts; /* 0: not known */
} RangeTask;

/* Borrows from the document. */
ErrCode range_task_parse(Doc doc, RangeTask *ret_task, Error *err) MUST_CHECK;

/* One that is there already is left as it is. */
ErrCode range_task_add(OpCtx *op, const RangeTask *task, Error *err) MUST_CHECK;
/* The documents are to be deleted: `now`, or after the delay. One that is gone is fine. */
ErrCode range_task_make_ready(OpCtx *op, const Uuid *id, bool is_delayed, Error *err) MUST_CHECK;
ErrCode range_task_set_orphans(OpCtx *op, const Uuid *id, int64_t orphans, Error *err) MUST_CHECK;
ErrCode range_task_remove(OpCtx *op, const Uuid *id, Error *err) MUST_CHECK;
/* All of a collection that is gone. */
ErrCode range_tasks_remove(OpCtx *op, const Uuid *uuid, Error *err) MUST_CHECK;

/* Whether a task, pending or not, other than `except`, has keys of [min, max). */
ErrCode range_tasks_overlap(OpCtx *op, const Uuid *uuid, Doc min, Doc max, const Uuid *except,
                            bool *ret_is_found, Error *err) MUST_CHECK;

/* How many documents of the collection this shard has and does not own, by its tasks. */
ErrCode range_tasks_count_orphans(OpCtx *op, const Uuid *uuid, int64_t *ret_orphans, Error *err)
    MUST_CHECK;

/* All of them; `task` is valid during the call. */
typedef ErrCode (*RangeTaskVisit)(void *arg, const RangeTask *task, Error *err);
ErrCode range_tasks_each(OpCtx *op, RangeTaskVisit visit, void *arg, Error *err) MUST_CHECK;
