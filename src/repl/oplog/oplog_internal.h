/*
 * oplog_internal.h - shared by the files of repl/oplog.
 */
#pragma once

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/thread.h"
#include "bson/builder.h"
#include "repl/oplog/oplog.h"
#include "storage/engine.h"

/* A run of timestamps given out, in the order they were. */
typedef struct OplogSlot {
    uint64_t first;
    uint64_t last;
    int64_t wall_ms;
    enum { SLOT_OPEN, SLOT_COMMITTED, SLOT_ABORTED } state;
} OplogSlot;

/* What one unit of work will write; hangs off its operation and is used again. */
typedef struct OplogStage {
    Oplog *oplog;
    Buffer ops; /* documents back to back, the last one still open */
    DocBuilder open;
    uint32_t count;
    bool is_vectored; /* inserts that have their own timestamps, written one by one */
    bool has_slot;
    uint64_t slot; /* its number */
    uint64_t first_ts;
    OpTime last;
    int64_t wall_ms;
    int64_t bytes; /* of the entries written */
    int64_t records;
} OplogStage;

typedef struct OplogMarker {
    uint64_t last_ts;
    int64_t records;
    int64_t bytes;
    int64_t wall_ms;
} OplogMarker;

typedef struct OplogMarkers {
    Mutex mu;
    /* Guarded by mu. Oldest first, a ring. */
    OplogMarker *rows;
    uint32_t first;
    uint32_t count;
    uint32_t capacity;
    OplogMarker partial; /* of the newest entries, not full yet */
    int64_t marker_bytes;
    OplogLimits limits;
    uint64_t truncated_to; /* everything up to here is gone */
} OplogMarkers;

struct Oplog {
    ServiceCtx *service;
    StorageEngine *engine;
    Collection *_Atomic coll;            /* NULL: there is none yet; set once */
    RecordStore *_Atomic truncate_point; /* of local.replset.oplogTruncateAfterPoint */
    OpCtx *flush_op;              /* writes the truncate point; used by one flusher at a time */
    _Atomic uint64_t noted_point; /* what the truncate point is, by the last flush that noted it */
    OplogMovedFn moved;
    void *moved_arg;

    _Atomic int64_t term; /* OPTIME_TERM_NONE: not primary */
    _Atomic uint64_t cluster_time;

    Mutex mu;
    /* Guarded by mu. */
    OplogSlot *slots; /* ring: slot n is at n % slot_capacity, which is a power of two */
    uint64_t slot_capacity;
    uint64_t slot_first; /* the oldest one that is open */
    uint64_t slot_next;
    uint64_t last_reserved;
    OpTime applied;
    int64_t applied_wall_ms;
    OpTime durable;
    int64_t durable_wall_ms;
    OpTime flushing; /* what the present flush of the journal covers */
    int64_t flushing_wall_ms;

    OplogMarkers markers;
};

/* Reserves `count` timestamps for the stage; the operation's snapshot must be open. */
ErrCode oplog_reserve(Oplog *oplog, OpCtx *op, OplogStage *stage, uint64_t count, Error *err)
    MUST_CHECK;
/* One entry into the table, in the operation's unit of work. */
ErrCode oplog_insert(Oplog *oplog, OpCtx *op, uint64_t ts, Doc entry, Error *err) MUST_CHECK;
/* Appends ts, t, v and wall. */
void oplog_build_tail(DocBuilder *b, uint64_t ts, int64_t term, int64_t wall_ms);
OplogStage *oplog_stage_of(Oplog *oplog, OpCtx *op);

/* observer.c */
void oplog_register_observer(Oplog *oplog);
ErrCode oplog_before_commit(void *oplog, OpCtx *op, Error *err);
void oplog_after_unit(void *oplog, OpCtx *op, bool is_committed);
void oplog_stage_free(struct OplogStage *stage);

/* truncate_point.c */
/* Of a new primary, before its first write: the point is noted, and in the journal. */
ErrCode truncate_point_begin(Oplog *oplog, OpCtx *op, Error *err) MUST_CHECK;
ErrCode truncate_point_open(Oplog *oplog, OpCtx *op, Error *err) MUST_CHECK;
uint64_t oplog_before_flush(void *oplog);
void oplog_after_flush(void *oplog, uint64_t token);

/* markers.c */
void markers_init(OplogMarkers *markers);
void markers_done(OplogMarkers *markers);
void markers_add(OplogMarkers *markers, uint64_t last_ts, int64_t records, int64_t bytes,
                 int64_t wall_ms);
/* All after `ts` is gone: so many entries. */
void markers_forget_after(OplogMarkers *markers, uint64_t ts, int64_t records, int64_t bytes);
