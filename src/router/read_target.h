/*
 * read_target.h - which shards a read goes to.
 */
#pragma once

#include "router/routing.h"
#include "query/expr/expr.h"

/* What a request says that decides it. */
typedef struct ReadQuery {
    Doc filter;         /* DOC_NONE: everything */
    bool has_collation; /* else the default of the collection counts */
    const Collator *collator;
    Doc let_values; /* evaluated; DOC_NONE: none */
    int64_t now_ms;
    uint64_t cluster_ts; /* $$CLUSTER_TIME */
} ReadQuery;

typedef struct ReadTarget {
    const Shard **shards; /* at least one: the answer for no document is that of a shard, too */
    uint32_t count;
} ReadTarget;

/* `collation`, `let` as they are in the request; the results are in the operation's arena. */
ErrCode read_query_parse(CommandCtx *ctx, Doc filter, Elem collation, Doc let, ReadQuery *ret_query,
                         Error *err) MUST_CHECK;
/* The collation of the query on this collection. NULL: simple, or not known here: that of an
 * unsharded one. */
ErrCode read_collator(Routing *routing, const ReadQuery *query, const Collator **ret_collator,
                      Error *err) MUST_CHECK;

/* The primary shard of an unsharded collection; else those that may have matching documents. */
ErrCode read_target(Routing *routing, const ReadQuery *query, ReadTarget *ret_target, Error *err)
    MUST_CHECK;
/* The same with a filter that is parsed already; NULL: everything. */
ErrCode read_target_parsed(Routing *routing, const MatchExpr *filter, const Collator *collator,
                           ReadTarget *ret_target, Error *err) MUST_CHECK;

/* Read concern "snapshot" of a request that does not say when: the time at which all shards are to
 * read. 0: each reads when it wants, or the request says it. */
uint64_t read_choose_snapshot(CommandCtx *ctx);
/* The read concern of the request, with that time; appends nothing if it is 0. */
void build_snapshot(DocBuilder *b, const CommandCtx *ctx, uint64_t at_ts);
