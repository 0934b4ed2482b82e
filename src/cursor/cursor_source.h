/*
 * cursor_source.h - what a client cursor draws its documents from.
 *
 * A node has find plans and pipelines (query/cursor); a list in memory is here (list_source.h); a
 * router will have the cursors of its shards.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"

typedef struct CursorSource CursorSource;

/* How a source that never ends by itself waits for more without occupying a thread: its request is
 * parked (transport/server.h), and the source sees to it that it runs again. */
typedef struct CursorWaitOps {
    /* After a batch that was empty. True: the request of that ticket is woken once there may be
     * something. False: there may be something already; read again. */
    bool (*try_wait)(CursorSource *source, uint64_t ticket);
    /* The request runs again, or never will. */
    void (*end_wait)(CursorSource *source);
    /* It has given all it ever will. */
    bool (*is_over)(const CursorSource *source);
} CursorWaitOps;

typedef struct CursorSourceOps {
    /* The document is valid until the next call. */
    ErrCode (*next)(CursorSource *source, bool *ret_found, Doc *ret_doc, Error *err);
    /* The document just got did not fit: it comes again. */
    void (*give_back)(CursorSource *source, Doc doc);
    /* Between batches a source holds no locks and no snapshot. */
    void (*detach)(CursorSource *source);
    ErrCode (*attach)(CursorSource *source, OpCtx *op, Error *err);
    void (*free)(CursorSource *source);
    /* Keys and documents looked at so far. */
    void (*examined)(const CursorSource *source, int64_t *ret_keys, int64_t *ret_docs);
    /* Appends postBatchResumeToken if the client wanted it; NULL: this kind has none. */
    void (*build_token)(const CursorSource *source, DocBuilder *b);
    const CursorWaitOps *wait; /* NULL: it does not wait, or its reader blocks */
} CursorSourceOps;

struct CursorSource {
    const CursorSourceOps *ops;
};

static inline void cursor_source_free(CursorSource *source) { /* NULL is fine */
    if (source != NULL)
        source->ops->free(source);
}
