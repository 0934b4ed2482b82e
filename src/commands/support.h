/*
 * support.h - small things that several commands share.
 */
#pragma once

#include "base/error.h"
#include "catalog/catalog.h"
#include "bson/namespace.h"
#include "commands/core/command.h"
#include "query/match/match.h"

/* The namespace of the request's database and `coll`. */
ErrCode cmd_ns(CommandCtx *ctx, Str coll, Ns *ret_ns, Error *err) MUST_CHECK;

/* `uuid` as a client gave it (collectionUUID), or missing: the namespace stands for that collection
 * only (access_expect). */
ErrCode cmd_expect_uuid(CommandCtx *ctx, const Ns *ns, Elem uuid, Error *err) MUST_CHECK;

/* The replica set this node is a member of; fails with ERR_NO_REPLICATION_ENABLED. */
ErrCode cmd_repl(CommandCtx *ctx, struct Repl **ret_repl, Error *err) MUST_CHECK;

/* Holds the present catalog version for a command that only looks: CLEANUP(catalog_guard_done). */
typedef struct CatalogGuard {
    Catalog *catalog;
} CatalogGuard;
CatalogGuard cmd_catalog(CommandCtx *ctx);
/* Fails with ERR_NO_SHARDING_ENABLED on a node that is no shard. */
ErrCode cmd_check_shard(const CommandCtx *ctx, Error *err) MUST_CHECK;
/* ERR_COMMAND_NOT_SUPPORTED_ON_VIEW. */
ErrCode cmd_refuse_view(const Ns *view, Error *err);
void catalog_guard_done(CatalogGuard *guard);

/* ---- {cursor: {firstBatch: [...], id, ns}} of a list in memory ---- */

typedef struct ListReply {
    CommandCtx *ctx;
    Buffer buf;
    DocBuilder builder;
    DocBuilder *b;
    uint32_t count;
} ListReply;
void list_reply_begin(ListReply *list, CommandCtx *ctx);
/* Opens the next document; close it with build_close. */
size_t list_reply_open(ListReply *list);
void list_reply_add(ListReply *list, Doc doc);
/* Replies with the first batch; `cursor` is the command's {batchSize}, which may be absent: then as
 * much as fits. The rest stays in a client cursor named `ns`. */
ErrCode list_reply_end(ListReply *list, const Ns *ns, Doc cursor, Error *err) MUST_CHECK;

/* ---- filters of list commands ---- */

/* NULL when `filter` is absent or empty. */
ErrCode cmd_parse_filter(CommandCtx *ctx, Doc filter, MatchExpr **ret_expr, Error *err) MUST_CHECK;
ErrCode cmd_filter_matches(const MatchExpr *expr, Doc doc, bool *ret_is_match, Error *err)
    MUST_CHECK;

/* A fresh builder over arena memory. */
typedef struct ArenaDoc {
    DocBuilder b;
} ArenaDoc;
void arena_doc_begin(ArenaDoc *doc, Arena *arena);
Doc arena_doc_end(ArenaDoc *doc);

/* ---- sizes ---- */

typedef struct CollectionSizes {
    int64_t count;
    int64_t data_bytes;
    int64_t storage_bytes;
    int64_t reusable_bytes;
    int64_t index_bytes;
} CollectionSizes;
CollectionSizes collection_sizes(ServiceCtx *service, const Collection *coll);

/* Numbers as MongoDB's statistics show them: divided by the scale, int32 if they fit. */
void build_scaled(DocBuilder *b, const char *name, int64_t value, int64_t scale);
/* The scale option of statistics: a number >= 1; absent: 1. */
ErrCode cmd_parse_scale(Elem elem, int64_t *ret_scale, Error *err) MUST_CHECK;
