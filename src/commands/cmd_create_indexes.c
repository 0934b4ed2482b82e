/* cmd_create_indexes.c - createIndexes. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "repl/index_votes.h"

typedef struct CreateIndexesRequest {
    Str coll;
    DocList indexes;
    Elem commit_quorum;
    bool ignore_unknown_options;
} CreateIndexesRequest;

static ErrCode create_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    const CreateIndexesRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_INDEXES, err));
    if (request->indexes.count == 0)
        return error_set(err, ERR_BAD_VALUE, "Must specify at least one index to create");
    Repl *repl = ctx->service->repl;
    bool has_quorum = elem_is_present(request->commit_quorum);
    if (has_quorum && repl == NULL)
        return error_set(err, ERR_BAD_VALUE, "Standalones can't specify commitQuorum");
    if (has_quorum)
        TRY(repl_check_commit_quorum(repl, request->commit_quorum, err));
    if (request->ignore_unknown_options)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "'createIndexes.ignoreUnknownIndexOptions' is not supported yet");
    CreateIndexesResult result = {0};
    TRY(ddl_create_indexes_by(ctx->op, &ns, request->indexes.docs, request->indexes.count,
                              request->commit_quorum, &result, err));
    DocBuilder *b = ctx->reply;
    build_i32(b, "numIndexesBefore", (int32_t)result.count_before);
    build_i32(b, "numIndexesAfter", (int32_t)result.count_after);
    build_bool(b, "createdCollectionAutomatically", result.created_collection);
    if (has_quorum)
        build_elem_as(b, STR("commitQuorum"), request->commit_quorum);
    else if (repl != NULL && ns_is_replicated(&ns))
        build_cstr(b, "commitQuorum", REPL_COMMIT_QUORUM_DEFAULT);
    if (result.count_before == result.count_after)
        build_cstr(b, "note", "all indexes already exist");
    return ERR_OK;
}

static const FieldSpec CREATE_INDEXES_FIELDS[] = {
    {"createIndexes", FIELD_COLL, FIELD_REQUIRED, offsetof(CreateIndexesRequest, coll)},
    {"indexes", FIELD_DOCS, FIELD_REQUIRED, offsetof(CreateIndexesRequest, indexes)},
    {"commitQuorum", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateIndexesRequest, commit_quorum)},
    {"ignoreUnknownIndexOptions", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(CreateIndexesRequest, ignore_unknown_options)},
};

const CommandSpec CMD_CREATE_INDEXES = {
    .name = "createIndexes",
    .summary = "Builds indexes on a collection.",
    .flags = CMD_WRITES | CMD_API_V1,
    .fields = CREATE_INDEXES_FIELDS,
    .field_count = ARRAY_LEN(CREATE_INDEXES_FIELDS),
    .request_size = sizeof(CreateIndexesRequest),
    .run = create_indexes_run,
};
