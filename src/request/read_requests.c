#include "request/read_requests.h"

#include <string.h>

static const FieldSpec FIND_FIELDS[] = {
    {"find", FIELD_COLL_OR_UUID, FIELD_REQUIRED, offsetof(FindRequest, coll)},
    {"filter", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, filter)},
    {"sort", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, sort)},
    {"projection", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, projection)},
    {"hint", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, hint)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, collation)},
    {"let", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindRequest, let)},
    {"skip", FIELD_COUNT, FIELD_OPTIONAL, offsetof(FindRequest, skip)},
    {"limit", FIELD_COUNT, FIELD_OPTIONAL, offsetof(FindRequest, limit)},
    {"batchSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, batch_size)},
    {"singleBatch", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_single_batch)},
    {"tailable", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_tailable)},
    {"awaitData", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_await_data)},
    {"noCursorTimeout", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, has_no_timeout)},
    {"showRecordId", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_show_record_id)},
    {"returnKey", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_return_key)},
    {"mirrored", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_mirrored)},
    {"allowPartialResults", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_allow_partial)},
    {"allowDiskUse", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindRequest, allow_disk_use)},
    {"oplogReplay", FIELD_IGNORED, FIELD_UNSTABLE, 0},
    {"term", FIELD_ELEM, FIELD_UNSTABLE, offsetof(FindRequest, term)},
    {"$_requestResumeToken", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_token_wanted)},
    {"$_resumeAfter", FIELD_DOC, FIELD_UNSTABLE, offsetof(FindRequest, resume_after)},
    {"$_startAt", FIELD_DOC, FIELD_UNSTABLE, offsetof(FindRequest, start_at)},
    {"min", FIELD_DOC, FIELD_UNSTABLE, offsetof(FindRequest, min)},
    {"max", FIELD_DOC, FIELD_UNSTABLE, offsetof(FindRequest, max)},
    {"readOnce", FIELD_BOOL, FIELD_UNSTABLE, offsetof(FindRequest, is_read_once)},
    {"allowSpeculativeMajorityRead", FIELD_REFUSED, FIELD_UNSTABLE, 0},
    {"$_withSortKey", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindRequest, is_sort_key_wanted)},
    {"runtimeConstants", FIELD_DOC, FIELD_UNSTABLE, offsetof(FindRequest, runtime)},
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(FindRequest, collection_uuid)},
};
const RequestSpec FIND_REQUEST = REQUEST_SPEC(FindRequest, FIND_FIELDS);

static const FieldSpec GET_MORE_FIELDS[] = {
    {"getMore", FIELD_ELEM, FIELD_REQUIRED, offsetof(GetMoreRequest, id)},
    {"collection", FIELD_COLL, FIELD_REQUIRED, offsetof(GetMoreRequest, coll)},
    {"batchSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(GetMoreRequest, batch_size)},
    {"term", FIELD_ELEM, FIELD_OPTIONAL, offsetof(GetMoreRequest, term)},
    {"lastKnownCommittedOpTime", FIELD_ELEM, FIELD_UNSTABLE,
     offsetof(GetMoreRequest, known_commit)},
};
const RequestSpec GET_MORE_REQUEST = REQUEST_SPEC(GetMoreRequest, GET_MORE_FIELDS);

static const FieldSpec KILL_CURSORS_FIELDS[] = {
    {"killCursors", FIELD_ELEM, FIELD_REQUIRED, offsetof(KillCursorsRequest, coll)},
    {"cursors", FIELD_ARRAY, FIELD_REQUIRED, offsetof(KillCursorsRequest, cursors)},
};
const RequestSpec KILL_CURSORS_REQUEST = REQUEST_SPEC(KillCursorsRequest, KILL_CURSORS_FIELDS);

static const FieldSpec COUNT_FIELDS[] = {
    {"count", FIELD_COLL_OR_UUID, FIELD_REQUIRED, offsetof(CountRequest, coll)},
    {"query", FIELD_DOC, FIELD_OPTIONAL, offsetof(CountRequest, query)},
    {"limit", FIELD_I64, FIELD_OPTIONAL, offsetof(CountRequest, limit)},
    {"skip", FIELD_COUNT, FIELD_OPTIONAL, offsetof(CountRequest, skip)},
    {"hint", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CountRequest, hint)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CountRequest, collation)},
    {"fields", FIELD_IGNORED, FIELD_OPTIONAL, 0},
};
const RequestSpec COUNT_REQUEST = REQUEST_SPEC(CountRequest, COUNT_FIELDS);

static const FieldSpec DISTINCT_FIELDS[] = {
    {"distinct", FIELD_COLL_OR_UUID, FIELD_REQUIRED, offsetof(DistinctRequest, coll)},
    {"key", FIELD_STRING, FIELD_REQUIRED, offsetof(DistinctRequest, key)},
    {"query", FIELD_DOC, FIELD_OPTIONAL, offsetof(DistinctRequest, query)},
    {"hint", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DistinctRequest, hint)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DistinctRequest, collation)},
};
const RequestSpec DISTINCT_REQUEST = REQUEST_SPEC(DistinctRequest, DISTINCT_FIELDS);

static const FieldSpec AGGREGATE_FIELDS[] = {
    {"aggregate", FIELD_ELEM, FIELD_REQUIRED, offsetof(AggregateRequest, target)},
    {"pipeline", FIELD_ARRAY, FIELD_REQUIRED, offsetof(AggregateRequest, pipeline)},
    {"cursor", FIELD_DOC, FIELD_OPTIONAL, offsetof(AggregateRequest, cursor)},
    {"explain", FIELD_BOOL, FIELD_UNSTABLE, offsetof(AggregateRequest, is_explain)},
    {"allowDiskUse", FIELD_ELEM, FIELD_OPTIONAL, offsetof(AggregateRequest, allow_disk_use)},
    {"hint", FIELD_ELEM, FIELD_OPTIONAL, offsetof(AggregateRequest, hint)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(AggregateRequest, collation)},
    {"let", FIELD_DOC, FIELD_OPTIONAL, offsetof(AggregateRequest, let)},
    {"bypassDocumentValidation", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(AggregateRequest, is_validation_bypassed)},
    {"fromMongos", FIELD_BOOL, FIELD_UNSTABLE, offsetof(AggregateRequest, is_from_router)},
    {"runtimeConstants", FIELD_DOC, FIELD_UNSTABLE, offsetof(AggregateRequest, runtime)},
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(AggregateRequest, collection_uuid)},
    {"isMapReduceCommand", FIELD_REFUSED, FIELD_UNSTABLE, 0},
    {"needsMerge", FIELD_REFUSED, FIELD_UNSTABLE, 0},
    {"exchange", FIELD_REFUSED, FIELD_UNSTABLE, 0},
    {"passthroughToShard", FIELD_REFUSED, FIELD_UNSTABLE, 0},
    {"$_requestReshardingResumeToken", FIELD_REFUSED, FIELD_UNSTABLE, 0},
};
const RequestSpec AGGREGATE_REQUEST = REQUEST_SPEC(AggregateRequest, AGGREGATE_FIELDS);

static const FieldSpec EXPLAIN_FIELDS[] = {
    {"explain", FIELD_DOC, FIELD_REQUIRED, offsetof(ExplainRequest, command)},
    {"verbosity", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ExplainRequest, verbosity)},
};
const RequestSpec EXPLAIN_REQUEST = REQUEST_SPEC(ExplainRequest, EXPLAIN_FIELDS);

ErrCode find_name_check(Str coll, Error *err) {
    if (LIKELY(!str_has_char(coll, '$')) || str_is(coll, "oplog.$main"))
        return ERR_OK;
    return error_set(err, ERR_INVALID_NAMESPACE, "Invalid collection name: %.*s", (int)coll.size,
                     coll.data);
}

ErrCode batch_size_parse(const char *command, Elem elem, int64_t *ret_size, Error *err) {
    *ret_size = -1;
    if (!elem_is_present(elem))
        return ERR_OK;
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s.batchSize' is the wrong type '%s', expected types '[int, "
                         "decimal, double, long]'",
                         command, bson_type_name(elem_type(elem)));
    int64_t size = elem_as_i64(elem);
    if (size < 0)
        return error_set(err, (ErrCode)51024,
                         "BSON field 'batchSize' value must be >= 0, actual value '%lld'",
                         (long long)size);
    *ret_size = size;
    return ERR_OK;
}

ErrCode cursor_option_parse(Doc cursor, int64_t *ret_batch_size, Error *err) {
    *ret_batch_size = -1;
    DocIter iter = doc_iter(cursor);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!elem_name_is(elem, STR("batchSize")))
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field 'cursor.%s' is an unknown field.", elem_name(elem));
        TRY(batch_size_parse("aggregate.cursor", elem, ret_batch_size, err));
    }
    return ERR_OK;
}

void build_let(DocBuilder *b, Doc let_values) {
    if (!doc_is_present(let_values))
        return;
    size_t let = build_open_doc(b, "let");
    DocIter iter = doc_iter(let_values);
    for (Elem value; doc_iter_next(&iter, &value);) {
        size_t opened = build_open_doc_str(b, elem_name_str(value));
        build_elem_as(b, STR("$literal"), value);
        build_close(b, opened);
    }
    build_close(b, let);
}

void build_collation(DocBuilder *b, const Collator *collator) {
    if (collator != NULL) {
        build_doc(b, "collation", collator->spec);
        return;
    }
    size_t simple = build_open_doc(b, "collation");
    build_cstr(b, "locale", "simple");
    build_close(b, simple);
}

void build_runtime(DocBuilder *b, int64_t now_ms, uint64_t cluster_ts) {
    size_t runtime = build_open_doc(b, "runtimeConstants");
    build_date(b, "localNow", now_ms);
    build_timestamp(b, "clusterTime", cluster_ts);
    build_close(b, runtime);
}
