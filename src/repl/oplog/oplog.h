/*
 * oplog.h - local.oplog.rs: the order of all replicated writes (OPL-1 to OPL-4).
 *
 * On a primary every unit of work that writes reserves its position in the order (a slot), writes
 * its entry in the same storage transaction and closes the slot at its end. Everything before the
 * oldest open slot is complete: that is how far readers may go (the visible timestamp), and it is
 * the primary's "last applied". On a secondary entries arrive in batches, in order; the visible
 * timestamp advances with each applied batch.
 *
 * Ownership: created by repl/, freed after the last operation. Threading: any thread.
 * Locks:     LOCK_RANK_OPLOG, held for list operations only.
 * Crash:     truncate_point.c and README.md "Crash and failover".
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
    /* A larger entry could be committed here and nowhere else: the reply that carries it would be
     * refused by every member that fetches it. Such a write fails before its commit. */
    OPLOG_ENTRY_BYTES_MAX = BSON_DOC_SIZE_MAX_CARRIED,
};

/* Called when the applied or the durable optime has advanced; any thread, no lock held. Must be
 * quick. */
typedef void (*OplogMovedFn)(void *arg, bool is_durable);

/* Opens an existing oplog, if any. No unit of work may have begun yet: registers the write observer
 * and the storage hooks. `hours_min`: of its limits (below). */
ErrCode oplog_open(OpCtx *op, double hours_min, Oplog **ret_oplog, Error *err) MUST_CHECK;
void oplog_free(Oplog *oplog); /* NULL is fine */
void oplog_set_moved(Oplog *oplog, OplogMovedFn fn, void *arg);

/* Creates local.oplog.rs if there is none; `bytes` 0: a twentieth of the disk, within bounds. */
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
/* Consistent: all of it as of one moment. */
OplogEnds oplog_ends(const Oplog *oplog);
/* Sets both, possibly backwards: at start, after a batch, an initial sync or a rollback. No slot
 * may be open. */
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
/* Of an entry whose position was validated before. */
OpTime oplog_entry_optime(Doc entry);

/* ---- the logical clock (ClusterTime) ---- */

uint64_t oplog_cluster_time(const Oplog *oplog);
/* One step further: a time later than all seen before, earlier than all entries written from now
 * on. */
uint64_t oplog_tick(Oplog *oplog);
/* A time received from elsewhere; smaller ones are ignored. */
void oplog_advance_cluster_time(Oplog *oplog, uint64_t ts);

/* ---- writing, as primary ---- */

/* Entries are of this term from now on. Requires the RSTL in X: no write is in progress. */
ErrCode oplog_begin_term(Oplog *oplog, OpCtx *op, int64_t term, Error *err) MUST_CHECK;
/* No longer primary; likewise. */
/* Of the entries this node writes; OPTIME_TERM_NONE: it is not primary. */
int64_t oplog_term(const Oplog *oplog);
void oplog_end_term(Oplog *oplog);
/* A no-op entry {op: "n", o: `message`} in a unit of work of its own. */
ErrCode oplog_write_noop(Oplog *oplog, OpCtx *op, Doc message, OpTime *ret_optime, Error *err)
    MUST_CHECK;
/* The same with `what` as o2: something of that name has changed which is no write, for readers of
 * the oplog. */
ErrCode oplog_write_mark(Oplog *oplog, OpCtx *op, const Ns *ns, Doc message, Doc what,
                         OpTime *ret_optime, Error *err) MUST_CHECK;
/* A statement of the operation's session (txn/retryable.h) that another shard has executed: a no-op
 * with its write as o2, fromMigrate. */
ErrCode oplog_write_statement(Oplog *oplog, OpCtx *op, Doc write, OpTime *ret_optime, Error *err)
    MUST_CHECK;

/* ---- writing, as secondary ---- */

/* Fetched entries, in order, in one storage transaction: all or none of them survive a crash. They
 * become visible only by oplog_set_applied. `after`: their predecessor on the source, OPTIME_NONE:
 * none. Unless it is the newest entry here, and this member is not primary, they are refused
 * (ERR_OPLOG_OUT_OF_ORDER): they belong to another history. */
ErrCode oplog_append_batch(Oplog *oplog, OpCtx *op, OpTime after, const Doc *entries, size_t count,
                           Error *err) MUST_CHECK;
/* Later, and of no earlier term. */
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
/* Since the start. */
typedef struct OplogTrimStats {
    int64_t measure_us;
    int64_t trim_us;
    int64_t trims;
} OplogTrimStats;
OplogTrimStats oplog_trim_stats(const Oplog *oplog);
/* Entries up to this one were removed from the old end since the start; 0: none. Set before they
 * go: a reader that asks after its read knows whether it missed some. */
uint64_t oplog_truncated_to(const Oplog *oplog);
/* Persisted with the collection's options by the caller. */
void oplog_set_limits(Oplog *oplog, OplogLimits limits);
/* Removes whole markers from the old end while the oplog is too large; never entries at or after
 * `keep_from_ts`, which recovery, rollback or a lagging reader still needs. */
ErrCode oplog_trim(Oplog *oplog, OpCtx *op, uint64_t keep_from_ts, Error *err) MUST_CHECK;
