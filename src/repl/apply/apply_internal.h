/*
 * apply_internal.h - shared by the files of repl/apply.
 */
#pragma once

#include <stdatomic.h>

#include "base/thread.h"
#include "bson/uuid.h"
#include "index/collection_write.h"
#include "repl/apply/apply.h"
#include "txn/session_tables.h"

enum {
    APPLY_SHARES_MAX = 32,
    /* Fewer than this many writes in a share are not worth waking a thread for. */
    APPLY_SHARE_OPS_MIN = 32,
    /* Inserts of one storage transaction. */
    APPLY_GROUP_DOCS_MAX = 64,
    APPLY_GROUP_BYTES_MAX = 256 * 1024,
    APPLY_NESTING_MAX = 10, /* applyOps within applyOps */
};

typedef enum ApplyKind {
    APPLY_INSERT = 'i',
    APPLY_UPDATE = 'u',
    APPLY_DELETE = 'd',
    APPLY_COMMAND = 'c',
    APPLY_NOOP = 'n',
} ApplyKind;

/* Where in the oplog a write is, which is the id of its pre-image (preimages/). */
typedef struct ApplyPlace {
    uint64_t entry_ts; /* in a unit of several entries: of the one that holds it */
    int64_t wall_ms;
    int64_t index; /* inside of an applyOps; otherwise 0 */
} ApplyPlace;

/* One checked entry, or one of those inside an applyOps. Points into the entry. */
typedef struct ApplyOp {
    ApplyKind kind;
    bool is_upsert;
    bool has_uuid;
    uint32_t next; /* position + 1 of the next one of the same collection and share; 0: last */
    Uuid uuid;
    uint64_t ts; /* of the whole entry */
    Str ns;
    Doc o;
    Doc o2;                 /* DOC_NONE: none */
    Elem id;                /* of the document: writes only */
    SessionImageKind image; /* image to store for a retry of the write */
    bool is_from_migrate;
    ApplyPlace place;
    Doc entry; /* the whole */
} ApplyOp;

/* ---- entry.c ---- */

/* Fails with ERR_FAILED_TO_PARSE, ERR_BAD_VALUE or ERR_INVALID_NAMESPACE. Those inside an applyOps
 * have the timestamp of the whole, `outer_ts`; 0: the entry has its own. */
ErrCode apply_parse(Doc entry, uint64_t outer_ts, ApplyOp *ret_op, Error *err) MUST_CHECK;
/* The place of a whole entry. */
ApplyPlace apply_place_of(Doc entry);
/* Whether it changes the catalog and therefore must run alone. */
bool apply_is_alone(Doc entry);
/* The array of an applyOps that only writes documents: they can be partitioned over the workers,
 * since no reader sees the middle of a run. DOC_NONE: it is something else. */
Doc apply_writes_of(Doc entry);
/* Whether these rows of an applyOps are such writes. */
bool apply_are_writes(Doc rows);
bool apply_is_views(Str ns); /* <db>.system.views */

/* ---- crud.c ---- */

/* Scratch state of one thread that writes documents. */
typedef struct ApplyWriter {
    WriteScratch scratch;
    KeyBuilder key;
    MultikeyNotes multikey;
    uint64_t copied_ts;         /* see applier_set_copied_ts */
    _Atomic bool skips_indexes; /* see applier_set_skips_indexes */
} ApplyWriter;
void apply_writer_init(ApplyWriter *writer);
void apply_writer_done(ApplyWriter *writer);

/* All with the collection locked in IX, or X for views. */
typedef struct ApplyTarget {
    OpCtx *op;
    ApplyWriter *writer;
    const Collection *coll;
    ApplyMode mode;
} ApplyTarget;
ErrCode apply_write(const ApplyTarget *target, const ApplyOp *write, Error *err) MUST_CHECK;
/* Inserts of one collection in one storage transaction. */
ErrCode apply_inserts(const ApplyTarget *target, const ApplyOp *const *inserts, size_t count,
                      Error *err) MUST_CHECK;
/* One write alone: finds and locks its collection. */
ErrCode apply_write_alone(OpCtx *op, ApplyWriter *writer, const ApplyOp *write, ApplyMode mode,
                          Error *err) MUST_CHECK;
/* The collection of a write; NULL: it does not exist, and the mode takes that for "dropped
 * later". */
ErrCode apply_find_collection(const Catalog *catalog, const ApplyOp *write, ApplyMode mode,
                              const Collection **ret_coll, Error *err) MUST_CHECK;

ErrCode apply_command(OpCtx *op, ApplyWriter *writer, const ApplyOp *command, ApplyMode mode,
                      int depth, Error *err) MUST_CHECK;
/* ---- prepared.c ---- */

bool apply_is_of_prepared(Doc entry);
ErrCode apply_prepared(OpCtx *op, ApplyWriter *writer, Doc entry, ApplyMode mode, Error *err)
    MUST_CHECK;
ErrCode apply_prepared_again(OpCtx *op, ApplyWriter *writer, Error *err) MUST_CHECK;

/* ---- commands.c ---- */

/* Whether writes have the timestamps of their entries. */
static inline bool apply_has_timestamps(ApplyMode mode) {
    return mode != APPLY_INITIAL_SYNC && mode != APPLY_PREPARED;
}
/* Rows of an applyOps one after the other, all with one timestamp; `place` is that of the entry. */
ErrCode apply_rows(OpCtx *op, ApplyWriter *writer, Doc rows, uint64_t ts, ApplyPlace place,
                   ApplyMode mode, int depth, Error *err) MUST_CHECK;
