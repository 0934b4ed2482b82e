/*
 * oplog.h - local.oplog.rs: the order of all replicated writes (OPL-1 to OPL-4).
 *
 * On a primary every unit of work that writes reserves its place in the order (a slot), writes its
 * entry in the same storage transaction and gives the slot back at its end. What lies before the
 * oldest open slot is complete: that is how far readers may go (the visible timestamp), and it is
 * the primary's "last applied". On a secondary entries come in batches, in order; the visible
 * timestamp moves with each applied batch.
 *
 * Ownership: made by repl/, freed after the last operation. Threading: any thread.
 * Locks:     LOCK_RANK_OPLOG, held for list work only.
 */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "bson/doc.h"
#include "bson/optime.h"
#include "catalog/catalog.h"
#include "concurrency/op_ctx.h"

typedef struct Oplog Oplog;

enum {
    OPLOG_VERSION = 2,
    /* What a larger entry says could be committed here and nowhere else: the reply that carries it
     * would be refused by every member that fetches it. Such a write fails before its commit. */
    OPLOG_ENTRY_BYTES_MAX = BSON_DOC_SIZE_MAX_CARRIED,
};

/* Told when the applied or the durable optime has moved on; any thread, no lock held. Must be
 * quick. */
typedef void (*OplogMovedFn)(void *arg, bool is_durable);

/* Looks for an existing oplog. No unit of work may have begun yet: registers the write observer and
 * the storage hooks. */
ErrCode oplog_open(OpCtx *op, Oplog **ret_oplog, Error *err) MUST_CHECK;
void oplog_free(Oplog *oplog); /* NULL is fine */
void oplog_set_moved(Oplog *oplog, OplogMovedFn fn, void *arg);

/* Makes local.oplog.rs when there is none; `bytes` 0: a twentieth of the disk, within bounds. */
ErrCode oplog_ensure(Oplog *oplog, OpCtx *op, int64_t bytes, Error *err) MUST_CHECK;
bool oplog_exists(const Oplog *oplog);
/* Borrowed; NULL: there is none. */
const Collection *oplog_collection(const Oplog *oplog);

/* ---- positions ---- */

/* All entries up to this one are complete and visible; none: the oplog is empty. */
OpTime oplog_applied(const Oplog *oplog);
typedef struct OplogEnds {
    OpTime applied;
    int64_t applied_wall_ms; /* wall clock of that entry, as far as known */
    OpTime durable;          /* entries up to this one survive a crash of this machine */
    int64_t durable_wall_ms;
} OplogEnds;
/* All of it as of one moment. */
OplogEnds oplog_ends(const Oplog *oplog);
/* Sets both anew: at start, after a batch, an initial sync or a rollback. */
void oplog_set_applied(Oplog *oplog, OpTime optime, int64_t wall_ms);
void oplog_set_durable(Oplog *oplog, OpTime optime, int64_t wall_ms);

/* Newest and oldest entry in the table, whole; DOC_NONE: empty. In the operation's arena. */
ErrCode oplog_read_last(Oplog *oplog, OpCtx *op, Doc *ret_entry, Error *err) MUST_CHECK;
ErrCode oplog_read_first(Oplog *oplog, OpCtx *op, Doc *ret_entry, Error *err) MUST_CHECK;
/* The entry of exactly this timestamp; DOC_NONE: none. */
ErrCode oplog_read_at(Oplog *oplog, OpCtx *op, uint64_t ts, Doc *ret_entry, Error *err) MUST_CHECK;
/* Optime and wall clock of an entry; fails with ERR_FAILED_TO_PARSE. */
ErrCode oplog_entry_position(Doc entry, OpTime *ret_optime, int64_t *ret_wall_ms, Error *err)
    MUST_CHECK;
/* Of an entry whose position was looked at before. */
OpTime oplog_entry_optime(Doc entry);

/* ---- the logical clock (ClusterTime) ---- */

uint64_t oplog_cluster_time(const Oplog *oplog);
/* Someone else's time; smaller ones are ignored. */
void oplog_advance_cluster_time(Oplog *oplog, uint64_t ts);

/* ---- writing, as primary ---- */

/* Entries are of this term from now on. With the RSTL in X: no write is under way. */
ErrCode oplog_begin_term(Oplog *oplog, OpCtx *op, int64_t term, Error *err) MUST_CHECK;
/* Not primary any more; likewise. */
void oplog_end_term(Oplog *oplog);
/* A no-op entry {op: "n", o: `message`} in a unit of work of its own. */
ErrCode oplog_write_noop(Oplog *oplog, OpCtx *op, Doc message, OpTime *ret_optime, Error *err)
    MUST_CHECK;

/* ---- writing, as secondary ---- */

/* Whole entries of others, in order, in one storage transaction: all of them or none survive a
 * crash. Visible only by oplog_set_applied. `after`: the entry before them where they come from,
 * OPTIME_NONE: none; unless it is the newest one here, and this member is no primary, they are
 * refused (ERR_OPLOG_OUT_OF_ORDER): they belong to another history. */
ErrCode oplog_append_batch(Oplog *oplog, OpCtx *op, OpTime after, const Doc *entries, size_t count,
                           Error *err) MUST_CHECK;
/* Later, and of no earlier primary. */
static inline bool oplog_may_follow(OpTime before, OpTime next) {
    return next.ts > before.ts && next.term >= before.term;
}
/* Removes all entries after `ts`. */
ErrCode oplog_truncate_after(Oplog *oplog, OpCtx *op, uint64_t ts, Error *err) MUST_CHECK;

/* ---- entries that may have gaps before them after a crash (OPL-4) ---- */

/* 0: there can be none. Kept on a primary at each journal flush. */
ErrCode oplog_read_truncate_after_point(Oplog *oplog, OpCtx *op, uint64_t *ret_ts, Error *err)
    MUST_CHECK;
ErrCode oplog_clear_truncate_after_point(Oplog *oplog, OpCtx *op, Error *err) MUST_CHECK;

/* ---- size (OPL-3, TRM-1): markers.c ---- */

typedef struct OplogLimits {
    int64_t bytes_max;
    double hours_min; /* 0: none */
} OplogLimits;
/* Looks how large the entries up to `until_ts` are, which were there at start; in the background.
 * Nothing is removed before. */
ErrCode oplog_measure(Oplog *oplog, OpCtx *op, uint64_t until_ts, Error *err) MUST_CHECK;
OplogLimits oplog_limits(const Oplog *oplog);
/* Persisted with the collection's options by the caller. */
void oplog_set_limits(Oplog *oplog, OplogLimits limits);
/* Removes whole markers from the old end while the oplog is too large; never entries at or after
 * `keep_from_ts`, which recovery, rollback or a lagging reader still needs. */
ErrCode oplog_trim(Oplog *oplog, OpCtx *op, uint64_t keep_from_ts, Error *err) MUST_CHECK;
