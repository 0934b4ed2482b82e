#include "commands/write_reply.h"

#include "catalog/own_collections.h"
#include "query/exec/modify.h"
#include "txn/session_tables.h"

void write_errors_init(WriteErrors *errors, CommandCtx *ctx) {
    errors->ctx = ctx;
    errors->count = 0;
    buffer_init_arena(&errors->buf, cmd_arena(ctx), 64, BSON_DOC_SIZE_MAX_INTERNAL);
    doc_builder_init(&errors->builder, &errors->buf);
}

void write_errors_add(WriteErrors *errors, uint32_t index, const Error *err) {
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(&errors->builder, index_name(errors->count++, name));
    build_i32(&errors->builder, "index", (int32_t)index);
    build_error_fields(&errors->builder, err, /* has_code_name= */ false);
    build_close(&errors->builder, row);
}

void write_errors_build(WriteErrors *errors) {
    Doc rows = doc_builder_end(&errors->builder);
    if (errors->count == 0)
        return;
    build_array(errors->ctx->reply, "writeErrors", rows);
    errors->ctx->has_write_errors = true;
}

ErrCode write_batch_check(uint32_t count, Error *err) {
    if (count == 0 || count > WRITE_BATCH_STATEMENTS_MAX)
        return error_set(err, ERR_INVALID_LENGTH,
                         "Write batch sizes must be between 1 and %d. Got %u operations.",
                         WRITE_BATCH_STATEMENTS_MAX, count);
    return ERR_OK;
}

bool write_error_is_fatal(ErrCode rc) {
    return exec_is_fatal(rc) || rc == ERR_COMMAND_NOT_SUPPORTED_ON_VIEW ||
           rc == ERR_TRANSACTION_TOO_OLD || rc == ERR_INCOMPLETE_TRANSACTION_HISTORY ||
           rc == (ErrCode)LOCATION_UPDATE_RETRY_MISMATCH;
}

ErrCode write_ns_check(const CommandCtx *ctx, const Ns *ns, Error *err) {
    TRY(own_collections_check(ctx->op, ns, OWN_CHANGE_WRITE, err));
    /* Such a write makes the sessions forget what they know: also the one it belongs to. */
    if (elem_is_present(ctx->args.lsid) && ns_equal(ns, &SESSION_TABLE_NS))
        return error_set(err, (ErrCode)40528,
                         "Direct writes against %s cannot be performed using a transaction or on a "
                         "session.",
                         ns->text);
    return ERR_OK;
}
