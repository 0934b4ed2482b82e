#include "commands/find_args.h"

#include "bson/number.h"

/* {$natural: 1} */
static bool is_natural(Doc doc) {
    Elem natural = doc_get_lit(doc, "$natural");
    return doc_count(doc) == 1 && elem_is_number(natural) && elem_as_f64(natural) == 1;
}

/* {$recordId: ...} as an earlier reply told it; null: nothing was read. */
static ErrCode parse_token(const char *name, Doc token, RecordId *ret_rid, Error *err) {
    Elem value = doc_get_lit(token, "$recordId");
    BsonType type = elem_type(value);
    uint8_t subtype;
    Str bytes = type == BT_BINARY ? elem_binary(value, &subtype) : (Str){0};
    bool is_good = type == BT_NULL || (type == BT_INT64 && elem_i64(value) > 0) || bytes.size > 0;
    if (doc_count(token) != 1 || !is_good)
        return error_set(err, ERR_BAD_VALUE,
                         "Malformed resume token: the '%s' object must contain exactly one field "
                         "named '$recordId', of type NumberLong, BinData or jstNULL.",
                         name);
    *ret_rid = RECORD_ID_NONE;
    if (type == BT_INT64)
        *ret_rid = record_id_num(elem_i64(value));
    else if (type == BT_BINARY)
        *ret_rid = (RecordId){0, (const uint8_t *)bytes.data, (uint32_t)bytes.size};
    return ERR_OK;
}

static ErrCode check_tokens(const FindRequest *request, QuerySpec *spec, Error *err) {
    bool is_resumed = doc_is_present(request->resume_after) || doc_is_present(request->start_at);
    if (LIKELY(!request->is_token_wanted && !is_resumed))
        return ERR_OK;
    if (!request->is_token_wanted)
        return error_set(err, ERR_BAD_VALUE,
                         "'requestResumeToken' must be true if 'resumeAfter' is specified");
    if (elem_type(request->hint) != BT_DOC || !is_natural(elem_doc(request->hint)))
        return error_set(err, ERR_BAD_VALUE,
                         "hint must be {$natural:1} if 'requestResumeToken' is enabled");
    if (doc_is_present(request->sort) && !doc_is_empty(request->sort) && !is_natural(request->sort))
        return error_set(err, ERR_BAD_VALUE,
                         "sort must be unset or {$natural:1} if 'requestResumeToken' is enabled");
    if (doc_is_present(request->resume_after) && doc_is_present(request->start_at))
        return error_set(err, ERR_BAD_VALUE,
                         "only one of '$_resumeAfter' and '$_startAt' is allowed");
    if (request->is_tailable && is_resumed)
        return error_set(err, ERR_BAD_VALUE, "a tailable cursor cannot begin at a resume token");
    spec->has_token = true;
    if (doc_is_present(request->resume_after))
        TRY(parse_token("_resumeAfter", request->resume_after, &spec->start_after, err));
    if (doc_is_present(request->start_at))
        TRY(parse_token("_startAt", request->start_at, &spec->start_at, err));
    return ERR_OK;
}

/* Keys are for routers, which take them off again. */
static ErrCode check_sort_key(const CommandCtx *ctx, const FindRequest *request, Error *err) {
    if (LIKELY(!request->is_sort_key_wanted))
        return ERR_OK;
    if (!is_routed(ctx))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "'$_withSortKey' is for requests of routers alone");
    if (!doc_is_present(request->sort) || doc_is_empty(request->sort))
        return error_set(err, ERR_BAD_VALUE, "'$_withSortKey' needs a sort");
    return ERR_OK;
}

ErrCode find_request_check(CommandCtx *ctx, const FindRequest *request, QuerySpec *ret_spec,
                           FirstBatchOptions *ret_batch, Error *err) {
    bool has_min = doc_is_present(request->min) && !doc_is_empty(request->min);
    bool has_max = doc_is_present(request->max) && !doc_is_empty(request->max);
    if ((has_min || has_max) && !elem_is_present(request->hint))
        return error_set(err, (ErrCode)51173,
                         "When using min()/max() a hint of which index to use must be provided");
    if (request->is_await_data && !request->is_tailable)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Cannot set 'awaitData' without also setting 'tailable'");
    if (request->is_read_once && ctx->op->txn != NULL)
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "the readOnce query option is not supported within a transaction");
    if (request->is_tailable && request->is_single_batch)
        return error_set(err, ERR_BAD_VALUE,
                         "cannot use tailable option with the 'singleBatch' option");
    *ret_spec = (QuerySpec){
        .filter = request->filter,
        .sort = request->sort,
        .projection = request->projection,
        .hint = request->hint,
        .skip = request->skip,
        .limit = request->limit,
        .is_tailable = request->is_tailable,
        .min = has_min ? request->min : DOC_NONE,
        .max = has_max ? request->max : DOC_NONE,
        .is_return_key = request->is_return_key,
        .is_show_record_id = request->is_show_record_id,
        .is_read_once = request->is_read_once,
    };
    TRY(check_tokens(request, ret_spec, err));
    TRY(check_sort_key(ctx, request, err));
    ret_spec->is_sort_key_wanted = request->is_sort_key_wanted;
    query_spec_defaults(ctx, ret_spec);
    runtime_take(request->runtime, &ret_spec->now_ms, &ret_spec->cluster_ts);
    TRY(request_collation(request->collation, &ret_spec->has_collation, &ret_spec->collator, err));
    if (elem_is_present(request->allow_disk_use))
        ret_spec->spill_dir = elem_is_truthy(request->allow_disk_use) ? spill_dir(ctx) : NULL;
    TRY(query_spec_let(ctx, request->let, ret_spec, err));
    *ret_batch = (FirstBatchOptions){
        .limit = request->limit,
        .is_single_batch = request->is_single_batch,
        .is_tailable = request->is_tailable,
        .is_await_data = request->is_await_data,
        .has_no_timeout = request->has_no_timeout,
    };
    return batch_size_parse("find", request->batch_size, &ret_batch->batch_size, err);
}
