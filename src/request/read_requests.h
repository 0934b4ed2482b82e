/*
 * read_requests.h - the arguments of the commands that read documents.
 */
#pragma once

#include "bson/builder.h"
#include "bson/collator.h"
#include "request/request.h"

typedef struct FindRequest {
    CollRef coll;
    Doc filter;
    Doc sort;
    Doc projection;
    Elem hint;
    Elem collation;
    Doc let;
    int64_t skip;
    int64_t limit;
    Elem batch_size;
    Elem term; /* of the member that reads the oplog */
    bool is_single_batch;
    bool is_tailable;
    bool is_await_data;
    bool has_no_timeout;
    bool is_show_record_id;
    bool is_return_key;
    bool is_mirrored;
    bool is_read_once; /* documents need not stay in the cache: nothing to do here */
    bool is_allow_partial;
    Elem allow_disk_use;
    Doc min;
    Doc max;
    bool is_token_wanted;
    Doc resume_after; /* tokens of an earlier reply */
    Doc start_at;
    bool is_sort_key_wanted; /* by a router: documents begin with their sort keys */
    Doc runtime;             /* of a router: {localNow}, the same on all shards */
    Elem collection_uuid;
} FindRequest;

typedef struct GetMoreRequest {
    Elem id;
    Str coll;
    Elem batch_size;
    Elem term;
    Elem known_commit;
} GetMoreRequest;

typedef struct KillCursorsRequest {
    Elem coll;
    Doc cursors;
} KillCursorsRequest;

typedef struct CountRequest {
    CollRef coll;
    Doc query;
    int64_t limit;
    int64_t skip;
    Elem hint;
    Elem collation;
} CountRequest;

typedef struct DistinctRequest {
    CollRef coll;
    Str key;
    Doc query;
    Elem hint;
    Elem collation;
} DistinctRequest;

typedef struct AggregateRequest {
    Elem target; /* a collection name, or 1 */
    Doc pipeline;
    Doc cursor;
    bool is_explain;
    Elem allow_disk_use;
    Elem hint;
    Elem collation;
    Doc let;
    bool is_validation_bypassed;
    bool is_from_router; /* may have stages that only nodes of a cluster send each other */
    Doc runtime;         /* of a router: {localNow}, the same on all shards */
    Elem collection_uuid;
} AggregateRequest;

typedef struct ExplainRequest {
    Doc command;
    Elem verbosity;
} ExplainRequest;

/* Fields of a request that another node is to run in this one's place, with the same results. */
/* `let` with the values. */
void build_let(DocBuilder *b, Doc let_values);
/* NULL: the simple one, whatever the collection says. */
void build_collation(DocBuilder *b, const Collator *collator);
/* runtimeConstants: $$NOW and $$CLUSTER_TIME. */
void build_runtime(DocBuilder *b, int64_t now_ms, uint64_t cluster_ts);

/* A batchSize: a number >= 0. -1 when not given. */
ErrCode batch_size_parse(const char *command, Elem elem, int64_t *ret_size, Error *err) MUST_CHECK;
/* The options of `cursor` of an aggregate. */
ErrCode cursor_option_parse(Doc cursor, int64_t *ret_batch_size, Error *err) MUST_CHECK;

extern const RequestSpec FIND_REQUEST;
/* No collection has such a name, and those of cursors of other commands cannot be read. */
ErrCode find_name_check(Str coll, Error *err) MUST_CHECK;
extern const RequestSpec GET_MORE_REQUEST;
extern const RequestSpec KILL_CURSORS_REQUEST;
extern const RequestSpec COUNT_REQUEST;
extern const RequestSpec DISTINCT_REQUEST;
extern const RequestSpec AGGREGATE_REQUEST;
extern const RequestSpec EXPLAIN_REQUEST;
