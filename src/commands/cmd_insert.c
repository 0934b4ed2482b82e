/* cmd_insert.c - insert: adds documents. */
#include "commands/query_args.h"
#include "commands/write_reply.h"
#include "query/exec/modify.h"

typedef struct InsertRequest {
    Str coll;
    DocList documents;
    Elem ordered;
    bool is_validation_bypassed;
} InsertRequest;

static const FieldSpec INSERT_FIELDS[] = {
    {"insert", FIELD_COLL, FIELD_REQUIRED, offsetof(InsertRequest, coll)},
    {"documents", FIELD_DOCS, FIELD_REQUIRED, offsetof(InsertRequest, documents)},
    {"ordered", FIELD_ELEM, FIELD_OPTIONAL, offsetof(InsertRequest, ordered)},
    {"bypassDocumentValidation", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(InsertRequest, is_validation_bypassed)},
};

static void on_error(void *arg, uint32_t index, const Error *err) {
    write_errors_add(arg, index, err);
}

static ErrCode insert_run(CommandCtx *ctx, void *arg, Error *err) {
    InsertRequest *request = arg;
    TRY(write_batch_check(request->documents.count, err));
    TRY(write_ns_check(request->coll, err));
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    count_op(ctx->service, OP_COUNTER_INSERT, request->documents.count);
    WriteErrors errors;
    write_errors_init(&errors, ctx);
    bool is_ordered = !elem_is_present(request->ordered) || elem_is_truthy(request->ordered);
    int64_t inserted = 0;
    TRY(exec_insert(ctx->op, &ns, request->documents.docs, request->documents.count, is_ordered,
                    request->is_validation_bypassed, on_error, &errors, &inserted, err));
    build_count(ctx->reply, "n", inserted);
    write_errors_build(&errors);
    return ERR_OK;
}

const CommandSpec CMD_INSERT = {
    .name = "insert",
    .summary = "Adds documents to a collection.",
    .flags = CMD_WRITES | CMD_API_V1,
    .op_type = "insert",
    .fields = INSERT_FIELDS,
    .field_count = ARRAY_LEN(INSERT_FIELDS),
    .request_size = sizeof(InsertRequest),
    .run = insert_run,
};
