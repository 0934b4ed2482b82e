#include "commands/write_reply.h"

#include "catalog/own_collections.h"
#include "query/write/modify.h"
#include "repl/repl.h"
#include "txn/session_tables.h"

_Static_assert(WRITE_BATCH_STATEMENTS_MAX *WRITE_STATEMENT_BYTES + WRITE_REPLY_BYTES +
                       WRITE_ERROR_TEXT_BYTES_MAX <
                   BSON_DOC_SIZE_MAX_INTERNAL,
               "every error of the largest batch fits into the reply");

void write_errors_init(WriteErrors *errors, CommandCtx *ctx, uint32_t statement_count) {
    *errors = (WriteErrors){.ctx = ctx,
                            .builder = doc_builder_in_arena(cmd_arena(ctx)),
                            .bytes_left = BSON_DOC_SIZE_MAX_INTERNAL - WRITE_REPLY_BYTES -
                                          (size_t)statement_count * WRITE_STATEMENT_BYTES};
}

void write_errors_add(WriteErrors *errors, uint32_t index, const Error *err) {
    DocBuilder *b = &errors->builder;
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(b, index_name(errors->count++, name));
    build_i32(b, "index", (int32_t)index);
    build_i32(b, "code", (int32_t)err->code);
    size_t before = b->buf->size;
    Doc extra = {err->extra};
    if (doc_is_present(extra) && doc_size(extra) <= errors->bytes_left)
        build_all(b, extra);
    errors->bytes_left -= b->buf->size - before;
    before = b->buf->size;
    size_t room = WRITE_ERROR_TEXT_BYTES_MAX - errors->text_bytes;
    build_error_text(b, err, room < errors->bytes_left ? room : errors->bytes_left);
    size_t text_bytes = elem_str((Elem){b->buf->data + before, 6}).size;
    errors->text_bytes += text_bytes;
    errors->bytes_left -= text_bytes;
    build_close(b, row);
}

ErrCode write_errors_take_room(WriteErrors *errors, Elem value, Error *err) {
    size_t size = elem_value_size(value);
    if (size > errors->bytes_left)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                         "the reply cannot tell an _id of %zu bytes", size);
    errors->bytes_left -= size;
    return ERR_OK;
}

void write_errors_build(WriteErrors *errors) {
    Doc rows = doc_builder_end(&errors->builder);
    if (errors->count == 0)
        return;
    build_array(errors->ctx->reply, "writeErrors", rows);
    errors->ctx->has_write_errors = true;
}

void write_reply_build_optime(CommandCtx *ctx) {
    if (!service_is_member(ctx->service))
        return;
    /* One that changed nothing tells what it may have seen. */
    OpTime done = optime_is_none(ctx->op->last_optime)
                      ? oplog_applied(repl_oplog(ctx->service->repl))
                      : ctx->op->last_optime;
    Oid election_id = repl_election_id(done.term);
    build_oid(ctx->reply, "electionId", &election_id);
    build_optime(ctx->reply, "opTime", done);
}

bool write_batch_is_ordered(const CommandCtx *ctx, Elem ordered) {
    return !elem_is_present(ordered) || elem_is_truthy(ordered) || ctx->is_txn;
}

bool write_error_is_fatal(ErrCode rc) {
    return exec_is_fatal(rc) || rc == ERR_COMMAND_NOT_SUPPORTED_ON_VIEW ||
           rc == ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION || rc == ERR_TRANSACTION_TOO_OLD ||
           rc == ERR_INCOMPLETE_TRANSACTION_HISTORY ||
           rc == (ErrCode)LOCATION_UPDATE_RETRY_MISMATCH;
}

ErrCode write_ns_check(const CommandCtx *ctx, const Ns *ns, Error *err) {
    TRY(own_collections_check(ctx->op, ns, OWN_CHANGE_WRITE, err));
    if (UNLIKELY(elem_is_truthy(ctx->args.api_strict)) && str_is(ns_coll(ns), "system.js"))
        return error_set(err, ERR_API_STRICT_ERROR,
                         "Provided apiStrict:true, but the command %s attempts to write to "
                         "system.js",
                         ctx->spec->name);
    /* Such a write makes the sessions forget what they know: also the one it belongs to. */
    if (elem_is_present(ctx->args.lsid) && ns_equal(ns, &SESSION_TABLE_NS))
        return error_set(err, (ErrCode)40528,
                         "Direct writes against %s cannot be performed using a transaction or on a "
                         "session.",
                         ns->text);
    return ERR_OK;
}
