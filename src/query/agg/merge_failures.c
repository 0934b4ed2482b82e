#include "query/agg/merge_failures.h"

enum { MERGE_BATCH_DOCS_MAX = 1000 };

/* A failure of one document, which does not keep others from being merged. */
static bool is_of_document(ErrCode code) {
    return code == ERR_DUPLICATE_KEY || code == ERR_DOCUMENT_VALIDATION_FAILURE ||
           code == ERR_MERGE_STAGE_NO_MATCHING_DOCUMENT || code == ERR_IMMUTABLE_FIELD ||
           code == ERR_BAD_VALUE || code == ERR_TYPE_MISMATCH;
}

ErrCode merge_failures_add(MergeFailures *failures, ErrCode rc, Error *err) {
    if (rc != ERR_OK && !is_of_document(rc))
        return rc;
    if (rc != ERR_OK && !failures->has_failed) {
        failures->has_failed = true;
        error_move(&failures->first, err);
    }
    error_reset(err);
    return ++failures->batch_count == MERGE_BATCH_DOCS_MAX ? merge_failures_end(failures, err)
                                                           : ERR_OK;
}

ErrCode merge_failures_end(MergeFailures *failures, Error *err) {
    failures->batch_count = 0;
    if (!failures->has_failed)
        return ERR_OK;
    failures->has_failed = false;
    error_move(err, &failures->first);
    return err->code;
}

void merge_failures_done(MergeFailures *failures) {
    error_reset(&failures->first);
}

static bool is_on_fields(const FieldPath *on, uint32_t on_count, Doc pattern) {
    uint32_t found_count = 0;
    for (uint32_t i = 0; i < on_count; i++)
        found_count += elem_is_present(doc_get(pattern, on[i].dotted));
    return found_count == on_count && doc_count(pattern) == found_count;
}

ErrCode merge_explain_duplicate(const AggSinkSpec *spec, const FieldPath *on, uint32_t on_count,
                                Error *err) {
    Elem pattern = err->extra == NULL ? ELEM_MISSING : doc_get_lit((Doc){err->extra}, "keyPattern");
    bool is_of_on = elem_type(pattern) == BT_DOC && is_on_fields(on, on_count, elem_doc(pattern));
    if (is_of_on && spec->when_matched == MERGE_FAIL)
        return error_prefix(err, "$merge with whenMatched: fail found an existing document with "
                                 "the same values for the 'on' fields :: caused by :");
    return error_prefix(err, "$merge failed due to a DuplicateKey error :: caused by :");
}

ErrCode merge_explain_update(Error *err) {
    if (err->code != ERR_IMMUTABLE_FIELD)
        return err->code;
    return error_prefix(err, "$merge failed to update the matching document, did you attempt "
                             "to modify the _id or the shard key?");
}
