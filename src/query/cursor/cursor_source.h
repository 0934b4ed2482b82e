/*
 * cursor_source.h - what a client cursor draws its documents from: a find plan or a pipeline.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"
#include "query/plan/planner.h"

typedef struct CursorSource CursorSource;

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
} CursorSourceOps;

struct CursorSource {
    const CursorSourceOps *ops;
};

/* A record id that outlives its row. */
typedef struct KeptRecordId {
    int64_t num;
    Buffer bytes; /* of a clustered collection */
} KeptRecordId;

/* A plan over one collection; the source owns both. */
typedef struct FindSource {
    CursorSource base;
    CollAccess access;
    PlanExecutor *exec;
    bool has_token;      /* the client wants to know how far it got */
    KeptRecordId last;   /* of the row got last; none at first */
    KeptRecordId before; /* of the one before it, until `last` turns out to fit */
} FindSource;

/* Opens the collection for reading, plans and attaches. When the name is a view, *ret_is_view is
 * set and there is no source. */
ErrCode find_source_open(OpCtx *op, const Ns *ns, const QuerySpec *spec, FindSource **ret_source,
                         bool *ret_is_view, Error *err) MUST_CHECK;
void cursor_source_free(CursorSource *source);
void find_source_free_ptr(FindSource **source); /* for CLEANUP */
