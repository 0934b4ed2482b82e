/*
 * document_key.h - identifies a document in the oplog: its _id, preceded in a sharded collection by
 * the fields of the shard key.
 *
 * Consumers of the oplog learn from it which shard a document belongs to; applying uses the _id
 * alone. The fields before it are supplied per collection by a source; without one, as on every
 * node that is not a shard, the key is {_id}.
 */
#pragma once

#include "bson/builder.h"
#include "catalog/collection.h"
#include "concurrency/op_ctx.h"

struct CatalogService;

typedef struct DocumentKeySource {
    void *arg;
    /* Appends the fields before _id by document_key_add, and returns what that does; false: there
     * are none. */
    bool (*add)(void *arg, OpCtx *op, const Collection *coll, Doc doc, DocBuilder *b);
} DocumentKeySource;
/* Before any write; constant afterwards. */
void catalog_set_document_key_source(struct CatalogService *service,
                                     const DocumentKeySource *source);
/* For tests: paths from the failpoint oplog.documentKey, {ns: "db.coll", fields: ["a.b", ...]}. */
extern const DocumentKeySource DOCUMENT_KEY_TEST_SOURCE;

/* Appends the values of these paths ("a.b"), in their order. True: _id is one of them. */
bool document_key_add(DocBuilder *b, const char *const *paths, size_t count, Doc doc);
/* The document key of `doc` as element `name`. A nested value has its whole path as name; a missing
 * one is left out, as is one inside of an array. */
void build_document_key(DocBuilder *b, const char *name, OpCtx *op, const Collection *coll,
                        Doc doc);
