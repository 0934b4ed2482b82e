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

typedef struct WriteObserver {
    void *arg;
    /* One call per unit of work for vectored inserts; `count` documents in order. May set a commit
     * timestamp per document through ru_set_commit_ts before each is written: it is called first.
     */
    ErrCode (*before_insert)(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                             size_t count, Error *err);
    ErrCode (*on_update)(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         Doc update, Error *err);
    ErrCode (*on_delete)(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err);
    /* DDL: "create", "drop", "renameCollection", "collMod", "createIndexes", "dropIndexes"; `o` is
     * the command in the form of an oplog entry. */
    ErrCode (*on_ddl)(void *arg, OpCtx *op, const Ns *ns, const Uuid *uuid, Doc o, Error *err);
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
