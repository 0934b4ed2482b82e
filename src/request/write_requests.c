#include "request/write_requests.h"

#include "bson/number.h"

#define STATEMENT_FIELDS_OF(type, member)                                                          \
    {"stmtId", FIELD_ELEM, FIELD_OPTIONAL, offsetof(type, member.first)}, {                        \
        "stmtIds", FIELD_ELEM, FIELD_OPTIONAL, offsetof(type, member.all)                          \
    }

static const FieldSpec INSERT_FIELDS[] = {
    {"insert", FIELD_COLL, FIELD_REQUIRED, offsetof(InsertRequest, coll)},
    {"documents", FIELD_DOCS, FIELD_REQUIRED, offsetof(InsertRequest, documents)},
    {"ordered", FIELD_BOOL_ELEM, FIELD_OPTIONAL, offsetof(InsertRequest, ordered)},
    {"bypassDocumentValidation", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(InsertRequest, is_validation_bypassed)},
    {"bypassEmptyTsReplacement", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(InsertRequest, is_empty_ts_kept)},
    STATEMENT_FIELDS_OF(InsertRequest, statements),
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(InsertRequest, collection_uuid)},
};
const RequestSpec INSERT_REQUEST = REQUEST_SPEC(InsertRequest, INSERT_FIELDS);

static const FieldSpec UPDATE_FIELDS[] = {
    {"update", FIELD_COLL, FIELD_REQUIRED, offsetof(UpdateRequest, coll)},
    {"updates", FIELD_DOCS, FIELD_REQUIRED, offsetof(UpdateRequest, updates)},
    {"ordered", FIELD_BOOL_ELEM, FIELD_OPTIONAL, offsetof(UpdateRequest, ordered)},
    {"let", FIELD_DOC, FIELD_OPTIONAL, offsetof(UpdateRequest, let)},
    {"bypassDocumentValidation", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(UpdateRequest, is_validation_bypassed)},
    {"bypassEmptyTsReplacement", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(UpdateRequest, is_empty_ts_kept)},
    STATEMENT_FIELDS_OF(UpdateRequest, statements),
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(UpdateRequest, collection_uuid)},
};
const RequestSpec UPDATE_REQUEST = REQUEST_SPEC(UpdateRequest, UPDATE_FIELDS);

static const FieldSpec UPDATE_STATEMENT_FIELDS[] = {
    {"q", FIELD_DOC, FIELD_REQUIRED, offsetof(UpdateStatement, q)},
    {"u", FIELD_ELEM, FIELD_REQUIRED, offsetof(UpdateStatement, u)},
    {"c", FIELD_DOC, FIELD_OPTIONAL, offsetof(UpdateStatement, c)},
    {"multi", FIELD_BOOL, FIELD_OPTIONAL, offsetof(UpdateStatement, is_multi)},
    {"upsert", FIELD_BOOL, FIELD_OPTIONAL, offsetof(UpdateStatement, is_upsert)},
    {"upsertSupplied", FIELD_BOOL, FIELD_OPTIONAL, offsetof(UpdateStatement, is_upsert_supplied)},
    {"arrayFilters", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(UpdateStatement, array_filters)},
    {"hint", FIELD_ELEM, FIELD_OPTIONAL, offsetof(UpdateStatement, hint)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(UpdateStatement, collation)},
};
const RequestSpec UPDATE_STATEMENT = REQUEST_SPEC(UpdateStatement, UPDATE_STATEMENT_FIELDS);

static const FieldSpec DELETE_FIELDS[] = {
    {"delete", FIELD_COLL, FIELD_REQUIRED, offsetof(DeleteRequest, coll)},
    {"deletes", FIELD_DOCS, FIELD_REQUIRED, offsetof(DeleteRequest, deletes)},
    {"ordered", FIELD_BOOL_ELEM, FIELD_OPTIONAL, offsetof(DeleteRequest, ordered)},
    {"let", FIELD_DOC, FIELD_OPTIONAL, offsetof(DeleteRequest, let)},
    {"bypassDocumentValidation", FIELD_IGNORED, FIELD_OPTIONAL, 0},
    STATEMENT_FIELDS_OF(DeleteRequest, statements),
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(DeleteRequest, collection_uuid)},
};
const RequestSpec DELETE_REQUEST = REQUEST_SPEC(DeleteRequest, DELETE_FIELDS);

static const FieldSpec DELETE_STATEMENT_FIELDS[] = {
    {"q", FIELD_DOC, FIELD_REQUIRED, offsetof(DeleteStatement, q)},
    {"limit", FIELD_I64, FIELD_REQUIRED, offsetof(DeleteStatement, limit)},
    {"hint", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DeleteStatement, hint)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DeleteStatement, collation)},
};
const RequestSpec DELETE_STATEMENT = REQUEST_SPEC(DeleteStatement, DELETE_STATEMENT_FIELDS);

static const FieldSpec FIND_AND_MODIFY_FIELDS[] = {
    {"findAndModify", FIELD_COLL, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, coll)},
    {"findandmodify", FIELD_COLL, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, coll)},
    {"query", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, query)},
    {"sort", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, sort)},
    {"fields", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, fields)},
    {"update", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, update)},
    {"arrayFilters", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, array_filters)},
    {"hint", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, hint)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, collation)},
    {"let", FIELD_DOC, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, let)},
    {"remove", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, is_remove)},
    {"new", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, is_new)},
    {"upsert", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, is_upsert)},
    {"bypassDocumentValidation", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(FindAndModifyRequest, is_validation_bypassed)},
    {"bypassEmptyTsReplacement", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(FindAndModifyRequest, is_empty_ts_kept)},
    {"stmtId", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FindAndModifyRequest, statement.first)},
};
const RequestSpec FIND_AND_MODIFY_REQUEST =
    REQUEST_SPEC(FindAndModifyRequest, FIND_AND_MODIFY_FIELDS);

ErrCode find_and_modify_check(const FindAndModifyRequest *request, Error *err) {
    bool has_update = elem_is_present(request->update);
    if (request->is_remove && has_update)
        return error_set(err, ERR_FAILED_TO_PARSE, "Cannot specify both an update and remove=true");
    if (request->is_remove && request->is_upsert)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Cannot specify both upsert=true and remove=true");
    if (request->is_remove && request->is_new)
        return error_set(
            err, ERR_FAILED_TO_PARSE,
            "Cannot specify both new=true and remove=true; 'remove' always returns the "
            "deleted document");
    if (request->is_remove && doc_is_present(request->array_filters))
        return error_set(err, ERR_FAILED_TO_PARSE, "Cannot specify arrayFilters and remove=true");
    if (!request->is_remove && !has_update)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Either an update or remove=true must be specified");
    if (has_update && elem_type(request->update) != BT_DOC &&
        elem_type(request->update) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Update argument must be either an object or an array");
    return ERR_OK;
}

/* ---- batches ---- */

ErrCode write_batch_check(uint32_t count, Error *err) {
    if (count == 0 || count > WRITE_BATCH_STATEMENTS_MAX)
        return error_set(err, ERR_INVALID_LENGTH,
                         "Write batch sizes must be between 1 and %d. Got %u operations.",
                         WRITE_BATCH_STATEMENTS_MAX, count);
    return ERR_OK;
}

static ErrCode parse_id(const char *command, Elem elem, int32_t *ret_id, Error *err) {
    int64_t id;
    if (!elem_is_number(elem) || !number_is_exact_i64(number_from_elem(elem), &id) ||
        id < INT32_MIN || id > INT32_MAX)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s.stmtId' is the wrong type '%s', expected type 'int'",
                         command, bson_type_name(elem_type(elem)));
    *ret_id = (int32_t)id;
    return ERR_OK;
}

ErrCode statement_ids_parse(const StatementArgs *args, const char *command, uint32_t count,
                            int32_t *ids, Error *err) {
    if (elem_is_present(args->all)) {
        if (elem_type(args->all) != BT_ARRAY || doc_count(elem_doc(args->all)) != count)
            return error_set(err, ERR_INVALID_LENGTH,
                             "Number of statement ids must match the number of batch entries");
        DocIter iter = doc_iter(elem_doc(args->all));
        uint32_t at = 0;
        for (Elem elem; doc_iter_next(&iter, &elem);)
            TRY(parse_id(command, elem, &ids[at++], err));
        return ERR_OK;
    }
    int32_t first = 0;
    if (elem_is_present(args->first))
        TRY(parse_id(command, args->first, &first, err));
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)((uint32_t)first + i);
    return ERR_OK;
}

static ErrCode check_constants(const UpdateStatement *statement, Error *err) {
    if (doc_is_present(statement->c) && elem_type(statement->u) != BT_ARRAY)
        return error_set(err, (ErrCode)51198, "constants are for updates that are pipelines");
    if (!statement->is_upsert_supplied)
        return ERR_OK;
    if (!statement->is_upsert)
        return error_set(err, ERR_FAILED_TO_PARSE, "upsertSupplied needs an upsert");
    Elem supplied = doc_is_present(statement->c) ? doc_get_lit(statement->c, "new") : ELEM_MISSING;
    if (elem_type(supplied) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "upsertSupplied needs the document to insert as the constant 'new'");
    return ERR_OK;
}

ErrCode update_statements_parse(const DocList *list, Arena *arena, UpdateStatement *statements,
                                Error *err) {
    for (uint32_t i = 0; i < list->count; i++) {
        UpdateStatement *statement = &statements[i];
        TRY(request_parse(&UPDATE_STATEMENT, "update.updates", list->docs[i], arena, statement,
                          err));
        TRY(request_collation(statement->collation, &statement->has_collation, &statement->collator,
                              err));
        if (elem_type(statement->u) != BT_DOC && elem_type(statement->u) != BT_ARRAY)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "Update argument must be either an object or an array");
        TRY(check_constants(statement, err));
    }
    return ERR_OK;
}

ErrCode delete_statements_parse(const DocList *list, Arena *arena, DeleteStatement *statements,
                                Error *err) {
    for (uint32_t i = 0; i < list->count; i++) {
        DeleteStatement *statement = &statements[i];
        TRY(request_parse(&DELETE_STATEMENT, "delete.deletes", list->docs[i], arena, statement,
                          err));
        TRY(request_collation(statement->collation, &statement->has_collation, &statement->collator,
                              err));
        if (statement->limit != 0 && statement->limit != 1)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "The limit field in delete objects must be 0 or 1. Got %lld",
                             (long long)statement->limit);
    }
    return ERR_OK;
}

static const FieldSpec COMMIT_TRANSACTION_FIELDS[] = {
    {"commitTransaction", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(CommitTransactionRequest, commit_transaction)},
    {"commitTimestamp", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(CommitTransactionRequest, commit_timestamp)},
    {"recoveryToken", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(CommitTransactionRequest, recovery_token)},
};
const RequestSpec COMMIT_TRANSACTION_REQUEST =
    REQUEST_SPEC(CommitTransactionRequest, COMMIT_TRANSACTION_FIELDS);

static const FieldSpec ABORT_TRANSACTION_FIELDS[] = {
    {"abortTransaction", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(AbortTransactionRequest, abort_transaction)},
    {"recoveryToken", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(AbortTransactionRequest, recovery_token)},
};
const RequestSpec ABORT_TRANSACTION_REQUEST =
    REQUEST_SPEC(AbortTransactionRequest, ABORT_TRANSACTION_FIELDS);

static const FieldSpec PREPARE_TRANSACTION_FIELDS[] = {
    {"prepareTransaction", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(PrepareTransactionRequest, prepare_transaction)},
    {"coordinatorId", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(PrepareTransactionRequest, coordinator_id)},
};
const RequestSpec PREPARE_TRANSACTION_REQUEST =
    REQUEST_SPEC(PrepareTransactionRequest, PREPARE_TRANSACTION_FIELDS);
