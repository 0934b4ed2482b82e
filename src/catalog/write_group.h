/*
 * write_group.h - writes that form one unit in the oplog.
 *
 * The writes of a unit of work become entries just before its commit. Few and small ones fit into
 * one entry, {applyOps: [...]}; more become a chain of such entries:
 *
 *     {applyOps: [...], partialTxn: true}  prevOpTime: the entry before the chain, or none
 *     {applyOps: [...], partialTxn: true}  prevOpTime: the first one
 *     {applyOps: [...], count: n}          prevOpTime: the second one; n writes in all of them
 *
 * All of them are written in the storage transaction of the unit, with consecutive timestamps, and
 * its writes have the timestamp of the last one. A partial entry is never applied by itself: the
 * last one represents the whole, and applying it reads the others back (repl/oplog/unit.h).
 *
 * By a group an operation requests this form for its next unit of work and supplies the identity of
 * its entries: the writes of a transaction are always an applyOps with lsid and txnNumber, even a
 * single one, and its inserts have no timestamps of their own.
 */
#pragma once

#include "bson/builder.h"
#include "bson/optime.h"
#include "concurrency/op_ctx.h"

typedef struct WriteGroup {
    /* Appends what all entries of the group have in common: lsid and txnNumber. NULL: nothing. */
    void (*build_identity)(void *arg, DocBuilder *b);
    /* After the entries are written, in the same unit of work: what records them. NULL: nothing. */
    ErrCode (*store)(void *arg, OpCtx *op, int64_t wall_ms, Error *err);
    void *arg;
    /* The unit whose writes these are, if it is another one, which is about to be prepared; the
     * last entry says so. NULL: the operation's own. */
    struct OpUnit *prepared;
    OpTime previous; /* the entry before, of the same identity; OPTIME_NONE: none */
    /* Set by the commit of the unit of work; none: it has written nothing that is replicated. */
    OpTime first;
    OpTime last;
} WriteGroup;

/* From here to the end of the group all units of work of the operation are groups; one is meant.
 * Outside of a unit of work, both. `group` is borrowed until the end. */
void write_group_begin(OpCtx *op, WriteGroup *group);
void write_group_end(OpCtx *op);
static inline void write_group_end_ptr(OpCtx **op) { /* for CLEANUP */
    write_group_end(*op);
}

/* What an entry of the oplog is of a unit of work. */
typedef enum EntryPart {
    ENTRY_WHOLE,   /* the unit, or no unit at all */
    ENTRY_PARTIAL, /* not the last one of a chain: to be skipped */
    ENTRY_LAST,    /* the last one of a chain, which stands for all of it */
} EntryPart;
EntryPart entry_part(Doc entry);
