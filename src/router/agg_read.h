/*
 * agg_read.h - pipelines over collections that are on one shard or on several.
 *
 * A pipeline that one shard can run alone is sent to it as it is. Others are split (query/agg,
 * "Splitting"): the shards run their parts, this router runs the rest over what they give. Stages
 * of that rest that read other collections are answered by pipelines that are routed themselves.
 *
 * A view is known to the primary shard of its database alone, which answers with what the view is
 * made of; that is then read in its place.
 */
#pragma once

#include "cursor/cursor_source.h"
#include "router/client_cursors.h"
#include "router/read_target.h"
#include "router/scatter.h"
#include "query/agg/pipeline.h"

typedef struct AggRead {
    Ns ns; /* "db.$cmd.aggregate" if it is collectionless */
    bool is_collectionless;
    Doc stages;
    ReadQuery query; /* collation, let and time; it has no filter */
    Elem hint;
    int64_t batch_size; /* of the cursors of shards; -1: as they like */
    Doc passed;         /* fields of the client's command for every request that follows from it */
    Doc passed_once;    /* and those for the requests that begin it */
    Doc passed_writes;  /* and those for what it writes */
    Elem lsid;
    Elem read_preference;
    uint64_t at_cluster_ts;
    uint32_t depth; /* pipelines around this one */
    uint32_t stages_around;
    bool is_strict;   /* apiStrict: checked as a whole, before stages are split */
    bool needs_merge; /* a shard said that it cannot run it alone */
} AggRead;

/* Fills in what comes from the command that is being run: all but namespace and stages. */
ErrCode agg_read_init(CommandCtx *ctx, Elem collation, Doc let, AggRead *ret_read, Error *err)
    MUST_CHECK;

typedef struct AggPlan {
    ReadTarget target;
    bool is_whole; /* the one shard runs all of it */
    bool is_writing;
    bool is_about_nodes; /* of every shard, whatever it owns */
    const Collator *collator;
    PipelineSplit split; /* unless it is whole */
} AggPlan;

ErrCode routed_agg_plan(Routing *routing, const AggRead *read, AggPlan *ret_plan, Error *err)
    MUST_CHECK;
/* Appends the aggregate command for the shards of the plan, without what ends a body. */
void agg_build_part(const AggRead *read, const AggPlan *plan, DocBuilder *b);

/* The error says that the name is a view: *read becomes what it is made of, and is to be tried
 * again. */
ErrCode agg_resolve_view(CommandCtx *ctx, AggRead *read, Error *err) MUST_CHECK;

/* Runs the pipeline and replies with its cursor, whose name is `shown`. *read is changed if it is a
 * view. */
ErrCode routed_agg_reply(CommandCtx *ctx, AggRead *read, const Ns *shown, const FirstBatch *batch,
                         Error *err) MUST_CHECK;
/* The documents that it gives. */
ErrCode routed_agg_open(CommandCtx *ctx, AggRead *read, CursorSource **ret_source, Error *err)
    MUST_CHECK;
