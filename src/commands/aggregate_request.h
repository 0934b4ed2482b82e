/*
 * aggregate_request.h - the arguments of aggregate, shared with explain.
 */
#pragma once

#include "commands/agg_args.h"

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
} AggregateRequest;

#define AGGREGATE_REQUEST_FIELDS                                                                   \
    {"aggregate", FIELD_ELEM, FIELD_REQUIRED, offsetof(AggregateRequest, target)},                 \
        {"pipeline", FIELD_ARRAY, FIELD_REQUIRED, offsetof(AggregateRequest, pipeline)},           \
        {"cursor", FIELD_DOC, FIELD_OPTIONAL, offsetof(AggregateRequest, cursor)},                 \
        {"explain", FIELD_BOOL, FIELD_OPTIONAL, offsetof(AggregateRequest, is_explain)},           \
        {"allowDiskUse", FIELD_ELEM, FIELD_OPTIONAL, offsetof(AggregateRequest, allow_disk_use)},  \
        {"hint", FIELD_ELEM, FIELD_NULL_IS_ABSENT, offsetof(AggregateRequest, hint)},              \
        {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(AggregateRequest, collation)},          \
        {"let", FIELD_DOC, FIELD_OPTIONAL, offsetof(AggregateRequest, let)}, {                     \
        "bypassDocumentValidation", FIELD_BOOL, FIELD_OPTIONAL,                                    \
            offsetof(AggregateRequest, is_validation_bypassed)                                     \
    }

ErrCode aggregate_request_check(CommandCtx *ctx, const AggregateRequest *request, Ns *ret_ns,
                                AggOptions *ret_options, FirstBatchOptions *ret_batch, Error *err)
    MUST_CHECK;
