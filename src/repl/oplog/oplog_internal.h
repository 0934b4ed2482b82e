/*
 * oplog_internal.h - shared by the files of repl/oplog.
 */
#pragma once

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/thread.h"
#include "bson/builder.h"
#include "catalog/catalog.h"
#include "repl/oplog/oplog.h"
#include "storage/engine.h"

enum {
    OPLOG_STAGE_BYTES_KEPT = 64 * 1024, /* kept in an operation's stage between units of work */
};
/* What one unit of work may write: a bound for memory, far beyond what fits into the cache. */
#define OPLOG_UNIT_BYTES_MAX ((size_t)4 << 30)

/* A range of allocated timestamps, in order of allocation. */
typedef struct OplogSlot {
    uint64_t first;
    uint64_t last;
    int64_t wall_ms;
    enum { SLOT_OPEN, SLOT_COMMITTED, SLOT_ABORTED } state;
} OplogSlot;

/* What documents of the unit were before its writes (images.c); unused memory is none. */
typedef struct OplogImages {
    Buffer staged; /* of each an ImageHead and the document */
    uint32_t count;
    size_t at;        /* the first one that is not written yet */
    Catalog *catalog; /* pinned to the end of the unit: the collection is written without a lock */
    struct WriteScratch *scratch; /* NULL: not used yet */
} OplogImages;

/* The staged entries of one unit of work; belongs to its operation and is reused. */
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
    OplogImages images;
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
    OplogTrimStats stats;
    /* Atomic: everything up to here may be gone; stored before it goes. Readers of history load it
     * after their read. */
    _Atomic uint64_t truncating_to;
} OplogMarkers;

struct Oplog {
    ServiceCtx *service;
    StorageEngine *engine;
    Collection *_Atomic coll;            /* NULL: there is none yet; set once */
    RecordStore *_Atomic truncate_point; /* of local.replset.oplogTruncateAfterPoint */
    OpCtx *flush_op;              /* writes the truncate point; used by one flusher at a time */
    _Atomic uint64_t noted_point; /* the truncate point written by the last flush */
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
    OpTime flushing; /* what the current journal flush covers */
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
void oplog_after_unit(void *oplog, OpCtx *op, bool is_committed);
/* The unit of work is over. */
void oplog_stage_clear(OplogStage *stage);

/* unit_write.c */
ErrCode oplog_before_commit(void *oplog, OpCtx *op, Error *err);
struct TxnLog oplog_txn_log(Oplog *oplog);
/* Fails with ERR_BSON_OBJECT_TOO_LARGE. */
ErrCode oplog_check_entry_size(Doc entry, Error *err) MUST_CHECK;

/* images.c */
/* `before` belongs to the write staged last. */
void images_stage(OplogStage *stage, const Collection *coll, Doc before);
/* Writes those of the `count` writes from `first` on, which are the entry `ts`. */
ErrCode images_write(OplogStage *stage, OpCtx *op, uint32_t first, uint32_t count, uint64_t ts,
                     Error *err) MUST_CHECK;
/* They are committed: counted for their expiry. */
void images_note(const OplogStage *stage, const OpCtx *op);
/* The unit of work is over. */
void images_clear(OplogImages *images);
void images_done(OplogImages *images);

/* truncate_point.c */
/* For a new primary, before its first write: records the point durably. */
ErrCode truncate_point_begin(Oplog *oplog, OpCtx *op, Error *err) MUST_CHECK;
ErrCode truncate_point_open(Oplog *oplog, OpCtx *op, Error *err) MUST_CHECK;
uint64_t oplog_before_flush(void *oplog);
void oplog_after_flush(void *oplog, uint64_t token);

/* markers.c */
void markers_init(OplogMarkers *markers);
void markers_done(OplogMarkers *markers);
void markers_add(OplogMarkers *markers, uint64_t last_ts, int64_t records, int64_t bytes,
                 int64_t wall_ms);
/* All entries after `ts` were removed: this many. */
void markers_forget_after(OplogMarkers *markers, uint64_t ts, int64_t records, int64_t bytes);
