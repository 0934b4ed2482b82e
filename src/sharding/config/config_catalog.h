/*
 * config_catalog.h - the collections of the cluster's catalog, on the config server.
 *
 * Threading: any; changes on the primary only. Crash: README.md.
 */
#pragma once

#include "base/error.h"
#include "bson/namespace.h"
#include "bson/uuid.h"
#include "catalog/access.h"
#include "concurrency/op_ctx.h"
#include "concurrency/op_mutex.h"
#include "sharding/route/remote.h"
#include "txn/internal_txn.h"

extern const Ns CONFIG_SHARDS_NS;
extern const Ns CONFIG_DATABASES_NS;
extern const Ns CONFIG_COLLECTIONS_NS;
extern const Ns CONFIG_CHUNKS_NS;
extern const Ns CONFIG_TAGS_NS;

/* A new primary of the config server: makes collections and indexes that are missing, and the id of
 * the cluster. */
ErrCode config_catalog_prepare(OpCtx *op, Error *err) MUST_CHECK;
/* Prepares the catalog if nobody has yet. */
ErrCode config_catalog_cluster_id(OpCtx *op, Oid *ret_id, Error *err) MUST_CHECK;
/* For cluster.h on a config server: reads its own collections. */
ErrCode config_catalog_find(OpCtx *op, const ConfigQuery *query, ClusterVisit visit, void *arg,
                            Error *err) MUST_CHECK;
/* The documents that match, in that order (`sort` DOC_NONE: any), `limit` at most (0: all). Between
 * two of them others may write, unless this is in a transaction. `visit` must not read or write. */
ErrCode config_catalog_query(OpCtx *op, const Ns *ns, Doc filter, Doc sort, int64_t limit,
                             AccessVisit visit, void *arg, Error *err) MUST_CHECK;
/* The first of them, in the operation's arena; DOC_NONE: there is none. */
ErrCode config_catalog_find_first(OpCtx *op, const Ns *ns, Doc filter, Doc sort, Doc *ret_doc,
                                  Error *err) MUST_CHECK;
typedef struct DocRows {
    Doc *rows; /* in the operation's arena */
    uint32_t count;
    uint32_t capacity;
} DocRows;
/* All of them, `limit` at most (0: all). */
ErrCode config_catalog_find_all(OpCtx *op, const Ns *ns, Doc filter, Doc sort, int64_t limit,
                                DocRows *ret_rows, Error *err) MUST_CHECK;

/* {field: value}, {uuid: uuid} */
Doc config_filter_str(OpCtx *op, const char *field, Str value);
Doc config_filter_uuid(OpCtx *op, const Uuid *uuid);

/* A change in one transaction: `body` reads what it decides by, and writes. `name` is the `at` of
 * the failpoints before and after its commit. */
ErrCode config_catalog_change(OpCtx *op, const char *name, InternalTxnBody body, void *arg,
                              Error *err) MUST_CHECK;
/* An entry of config.changelog; a failure is logged and no more, for what it tells of has happened.
 */
void config_catalog_log(OpCtx *op, const char *what, const char *ns, Doc details);
/* The same for config.actionlog: what the config server does by itself. */
void config_catalog_log_action(OpCtx *op, const char *what, Doc details);

/* Of a config server; hangs off the ServiceCtx. Changes of a kind happen one at a time. Whoever
 * needs several takes them in this order. */
typedef struct ConfigCatalog {
    OpMutex shards; /* and their zones, and ranges of zones */
    OpMutex databases;
    OpMutex chunks; /* and entries of collections */
} ConfigCatalog;
ConfigCatalog *config_catalog_new(void);
void config_catalog_free(ConfigCatalog *catalog); /* NULL is fine */
