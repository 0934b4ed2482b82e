/*
 * default_concerns.h - the read and write concern of operations that give none, for the whole set
 * (setDefaultRWConcern): a document of config.settings, replicated like any other.
 *
 * A node keeps what it read for a few seconds, so other members learn of a change a little later.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"

enum {
    DEFAULT_MODE_SIZE = 128,
};

typedef struct DefaultConcerns {
    bool has_w;
    bool is_majority;
    int32_t w;
    char mode[DEFAULT_MODE_SIZE]; /* "": none */
    bool is_journaled;
    int64_t wtimeout_ms;
    bool is_read_majority; /* reads without a level are majority reads */
} DefaultConcerns;

/* What this node remembers of it; made and freed by server/. */
typedef struct DefaultConcernsCache DefaultConcernsCache;
DefaultConcernsCache *default_concerns_cache_new(void);
void default_concerns_cache_free(DefaultConcernsCache *cache); /* NULL is fine */

/* What is set, from memory if it is fresh enough. A node that cannot read it has none. */
DefaultConcerns default_concerns(OpCtx *op);
/* Of the same, for every read: no lock while it is fresh. */
bool default_read_is_majority(OpCtx *op);
/* The document, DOC_NONE: none; in the operation's arena. */
ErrCode default_concerns_read(OpCtx *op, Doc *ret_doc, Error *err) MUST_CHECK;
/* Stores it; as primary. */
ErrCode default_concerns_store(OpCtx *op, Doc doc, Error *err) MUST_CHECK;
