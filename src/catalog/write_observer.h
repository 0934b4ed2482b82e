/*
 * write_observer.h - who wants to know about writes, inside the same storage transaction.
 *
 * Replication (the oplog entry), sharding (migration, range deletion) and others implement this; a
 * standalone node registers none. A failing observer fails the write.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "catalog/collection.h"
#include "concurrency/op_ctx.h"

/* A change of the catalog in the form of an oplog entry. */
typedef struct DdlEntry {
    const Ns *ns;
    const Uuid *uuid; /* of the collection; NULL: none */
    Doc o;            /* the command: {create: "c", ...} */
    Doc o2;           /* what was before; DOC_NONE: nothing to tell */
} DdlEntry;

typedef struct WriteObserver {
    void *arg;
    /* Before the documents of one insert are written, all of them in one unit of work. */
    ErrCode (*before_inserts)(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err);
    /* Before document `i` of them: the place to set a commit timestamp of its own. */
    ErrCode (*on_insert)(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                         Error *err);
    /* `is_replacement`: given as a whole document, not as changes of the one before. */
    ErrCode (*on_update)(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         bool is_replacement, Error *err);
    ErrCode (*on_delete)(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err);
    ErrCode (*on_ddl)(void *arg, OpCtx *op, const DdlEntry *entry, Error *err);
} WriteObserver;

enum {
    WRITE_OBSERVERS_MAX = 8,
};

/* Registered at start, before any write; constant afterwards. */
typedef struct WriteObservers {
    WriteObserver rows[WRITE_OBSERVERS_MAX];
    size_t count;
} WriteObservers;

struct CatalogService;
WriteObservers *catalog_write_observers(struct CatalogService *service);
