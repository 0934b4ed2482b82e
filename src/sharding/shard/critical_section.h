/*
 * critical_section.h - keeps requests away from a collection, or a database, while its data and
 * metadata change together.
 *
 * Crash: a section is a replicated document; it stays until it is left.
 */
#pragma once

#include "concurrency/op_mutex.h"
#include "sharding/shard/shard_state.h"

typedef enum SectionKind {
    SECTION_WRITES,           /* blocks writes */
    SECTION_READS_AND_WRITES, /* both */
    /* The same of a database, but for its sharded collections: they are not where it is. */
    SECTION_UNSHARDED_WRITES,
    SECTION_UNSHARDED_READS_AND_WRITES,
} SectionKind;

/* `ns`: a collection, or a database whose name is the whole text (db_size == size). `reason` tells
 * who it is: entering again with the same one is fine, and may block more than before; another one
 * is ERR_CONFLICTING_OPERATION_IN_PROGRESS. Returns when writers that had passed the check are
 * through. Durable with the write concern of the caller (op->last_optime). */
ErrCode section_enter(OpCtx *op, const Ns *ns, SectionKind kind, Doc reason, Error *err) MUST_CHECK;
/* ERR_CONFLICTING_OPERATION_IN_PROGRESS: somebody is in one of that name. */
ErrCode section_check_free(OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;
/* One that is not there is fine; one of another reason is left alone. */
ErrCode section_leave(OpCtx *op, const Ns *ns, Doc reason, Error *err) MUST_CHECK;

/* Remembers that the primary of `coordinator` in `term` is active; ERR_STALE_TERM: a later one has
 * been seen. Durable likewise. As long as the lock is held nobody else passes for that name: what
 * is done under it cannot come after what a later primary does there. */
ErrCode fence_pass(OpCtx *op, Str name, Str coordinator, int64_t term, OpMutexLock *ret_lock,
                   Error *err) MUST_CHECK;

/* A name of a database as that of a section. */
ErrCode section_database_ns(Str db, Ns *ret_ns, Error *err) MUST_CHECK;
