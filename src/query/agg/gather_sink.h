/*
 * gather_sink.h - $out and $merge of a pipeline that runs where their collection cannot be written.
 *
 * The results are gathered in a temporary collection on a node that may write, which then runs the
 * stage over them, with all that it checks.
 *
 * Crash: the collection is made with `temp`, so that the next primary drops what nobody has
 * dropped. All that is said about it names its UUID: after such a drop the pipeline fails, rather
 * than go on with a part of its results.
 */
#pragma once

#include "bson/namespace.h"
#include "query/agg/pipeline.h"

/* A command about a collection, for a node that may write. */
typedef struct GatherRequest {
    const Ns *ns;
    Doc command;
    bool is_clean_up; /* is to be tried also when the operation was killed, but not for long */
} GatherRequest;

typedef struct GatherSinkOptions {
    Ns ns;        /* where the documents go */
    Elem written; /* the stage; outlives the sink */
    Doc fields;   /* of the command that runs the stage, besides its pipeline; copied */
    /* The reply is copied into the arena. Fails also for write errors. */
    ErrCode (*run)(void *arg, const GatherRequest *request, Arena *arena, Doc *ret_reply,
                   Error *err);
    void (*free)(void *arg); /* NULL: nothing to free */
    void *arg;
} GatherSinkOptions;

enum {
    GATHER_CLEAN_UP_MS_MAX = 5000, /* how long a request of that kind may take */
};

/* The argument is the sink's from now on, also when this fails. */
ErrCode gather_sink_open(const GatherSinkOptions *options, AggSink *ret_sink, Error *err)
    MUST_CHECK;
