/*
 * find_request.h - the arguments of find, shared with explain.
 */
#pragma once

#include "commands/query_args.h"

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
    bool is_allow_partial;
    Elem allow_disk_use;
    Doc min;
    Doc max;
    bool is_token_wanted;
    Doc resume_after; /* tokens of an earlier reply */
    Doc start_at;
} FindRequest;

#define FIND_REQUEST_FIELDS                                                                        \
    {"find", FIELD_COLL_OR_UUID, FIELD_REQUIRED, offsetof(FindRequest, coll)},                     \
        {"filter", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, filter)},                      \
        {"sort", FIELD_DOC, FIELD_NULL_IS_ABSENT, offsetof(FindRequest, sort)},                    \
        {"projection", FIELD_DOC, FIELD_NULL_IS_ABSENT, offsetof(FindRequest, projection)},        \
        {"hint", FIELD_ELEM, FIELD_NULL_IS_ABSENT, offsetof(FindRequest, hint)},                   \
        {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, collation)},               \
        {"let", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, let)},                            \
        {"skip", FIELD_COUNT, FIELD_OPTIONAL, offsetof(FindRequest, skip)},                        \
        {"limit", FIELD_COUNT, FIELD_OPTIONAL, offsetof(FindRequest, limit)},                      \
        {"batchSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, batch_size)},              \
        {"singleBatch", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_single_batch)},       \
        {"tailable", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_tailable)},              \
        {"awaitData", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_await_data)},           \
        {"noCursorTimeout", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, has_no_timeout)},    \
        {"showRecordId", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_show_record_id)},    \
        {"returnKey", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_return_key)},           \
        {"mirrored", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_mirrored)},              \
        {"allowPartialResults", FIELD_BOOL, FIELD_OPTIONAL,                                        \
         offsetof(FindRequest, is_allow_partial)},                                                 \
        {"allowDiskUse", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, allow_disk_use)},       \
        {"oplogReplay", FIELD_IGNORED, FIELD_OPTIONAL, 0},                                         \
        {"term", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, term)},                         \
        {"$_requestResumeToken", FIELD_BOOL, FIELD_OPTIONAL,                                       \
         offsetof(FindRequest, is_token_wanted)},                                                  \
        {"$_resumeAfter", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, resume_after)},         \
        {"$_startAt", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, start_at)},                 \
        {"min", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, min)}, {                          \
        "max", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, max)                               \
    }

ErrCode find_request_check(CommandCtx *ctx, const FindRequest *request, QuerySpec *ret_spec,
                           FirstBatchOptions *ret_batch, Error *err) MUST_CHECK;
/* A batchSize: a number >= 0. -1 when not given. */
ErrCode batch_size_parse(const char *command, Elem elem, int64_t *ret_size, Error *err) MUST_CHECK;
