#include "commands/find_request.h"

#include "bson/number.h"

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
    };
    query_spec_defaults(ctx, ret_spec);
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
