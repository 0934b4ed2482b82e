/*
 * write_observer.h - callbacks for writes, inside the same storage transaction.
 *
 * Replication (the oplog entry), sharding (migration, range deletion) and others implement this; a
 * standalone node registers none. A failing observer fails the write.
 *
 * An observer with on_commit or on_abort gets exactly one of them for each unit of work in which it
 * was called for a write, whether that write failed, the commit did, or an inner unit was left;
 * never one for an inner unit alone.
 *
 * Threading: called by the thread that writes. Registered at start, constant afterwards.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "catalog/collection.h"
#include "concurrency/op_ctx.h"
#include "storage/recovery_unit.h"

/* A change of the catalog in the form of an oplog entry. */
typedef struct DdlEntry {
    const Ns *ns;
    const Uuid *uuid; /* of the collection; NULL: none */
    Doc o;            /* the command: {create: "c", ...} */
    Doc o2;           /* previous state; DOC_NONE: none */
} DdlEntry;

/* How an update was given. */
typedef struct UpdateForm {
    bool is_replacement;                 /* as a whole document, not as changes of the one before */
    const struct UpdateProgram *program; /* that made the changes; NULL: not known */
} UpdateForm;

typedef struct WriteObserver {
    void *arg;
    /* Before the documents of one insert are written, all of them in one unit of work. */
    ErrCode (*before_inserts)(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err);
    /* Before document `i` of them: the place to set a commit timestamp of its own. */
    ErrCode (*on_insert)(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                         Error *err);
    ErrCode (*on_update)(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         const UpdateForm *form, Error *err);
    ErrCode (*on_delete)(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err);
    ErrCode (*on_ddl)(void *arg, OpCtx *op, const DdlEntry *entry, Error *err);

    /* The end of the unit of work; each may be NULL. The locks of the unit are still held and
     * storage has committed or rolled back: nothing can fail any more. Observers are called in the
     * order of their registration, for an abort in reverse, so that dependents are undone before
     * what they depend on. `commit_ts` is that of the unit's last write, 0 on a node without
     * timestamps. */
    void (*on_commit)(void *arg, OpCtx *op, uint64_t commit_ts);
    void (*on_abort)(void *arg, OpCtx *op);
    /* The unit is prepared (ru_prepare); a commit or an abort follows, maybe much later. */
    void (*on_prepare)(void *arg, OpCtx *op, uint64_t prepare_ts);
} WriteObserver;

enum {
    WRITE_OBSERVERS_MAX = 8,
};

/* Registered at start, before any write; constant afterwards. */
typedef struct WriteObservers {
    WriteObserver rows[WRITE_OBSERVERS_MAX];
    size_t count;
    uint8_t with_ends; /* bit i: rows[i] is notified of the end */
    RuListener listener;
} WriteObservers;

struct CatalogService;
WriteObservers *catalog_write_observers(struct CatalogService *service);
void write_observer_register(struct CatalogService *service, const WriteObserver *observer);

/* Called before observer `i` is notified of a write: registers it for the end of the unit of
 * work. */
void write_observer_note(WriteObservers *observers, OpCtx *op, size_t i);
static inline void write_observer_heard(WriteObservers *observers, OpCtx *op, size_t i) {
    if (UNLIKELY((observers->with_ends >> i & 1) != 0))
        write_observer_note(observers, op, i);
}
