/* cmd_create_indexes.c - createIndexes. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "index/spec.h"
#include "repl/index_votes.h"
#include "request/catalog_requests.h"

/* Text indexes and some options are not part of the Stable API. */
static ErrCode check_api(const CommandCtx *ctx, Doc spec, Error *err) {
    static const char *const UNSTABLE[] = {"background", "bucketSize", "sparse", "storageEngine"};
    if (!elem_is_truthy(ctx->args.api_strict))
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(UNSTABLE); i++)
        if (elem_is_present(doc_get(spec, str_from(UNSTABLE[i]))))
            return error_set(
                err, ERR_API_STRICT_ERROR,
                "BSON field 'createIndexes.indexes.%s' is not allowed with apiStrict:true",
                UNSTABLE[i]);
    Elem key = doc_get_lit(spec, "key");
    if (elem_type(key) != BT_DOC)
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(key));
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_type(field) == BT_STRING && str_is(elem_str(field), "text"))
            return error_set(err, ERR_API_STRICT_ERROR,
                             "an index of the kind \"text\" is not allowed with apiStrict:true");
    return ERR_OK;
}

static ErrCode create_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    const CreateIndexesRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_INDEXES, err));
    if (request->indexes.count == 0)
        return error_set(err, ERR_BAD_VALUE, "Must specify at least one index to create");
    Repl *repl = ctx->service->repl;
    bool has_quorum = elem_is_present(request->commit_quorum);
    if (has_quorum && service_is_standalone(ctx->service))
        return error_set(err, ERR_BAD_VALUE, "Standalones can't specify commitQuorum");
    if (has_quorum)
        TRY(repl_check_commit_quorum(repl, request->commit_quorum, err));
    Doc *specs = ARENA_ARRAY(cmd_arena(ctx), Doc, request->indexes.count);
    for (uint32_t i = 0; i < request->indexes.count; i++) {
        specs[i] = request->indexes.docs[i];
        TRY(check_api(ctx, specs[i], err));
        if (request->ignore_unknown_options)
            specs[i] = index_spec_known(specs[i], cmd_arena(ctx));
    }
    CreateIndexesResult result = {0};
    TRY(ddl_create_indexes_by(ctx->op, &ns, specs, request->indexes.count, request->commit_quorum,
                              &result, err));
    DocBuilder *b = ctx->reply;
    build_i32(b, "numIndexesBefore", (int32_t)result.count_before);
    build_i32(b, "numIndexesAfter", (int32_t)result.count_after);
    build_bool(b, "createdCollectionAutomatically", result.created_collection);
    if (has_quorum)
        build_elem_as(b, STR("commitQuorum"), request->commit_quorum);
    else if (service_is_member(ctx->service) && ns_is_replicated(&ns))
        build_cstr(b, "commitQuorum", REPL_COMMIT_QUORUM_DEFAULT);
    if (result.count_before == result.count_after)
        build_cstr(b, "note", "all indexes already exist");
    return ERR_OK;
}

const CommandSpec CMD_CREATE_INDEXES = {
    .name = "createIndexes",
    .summary = "Builds indexes on a collection.",
    .flags = CMD_IN_TXN | CMD_WRITES | CMD_API_V1,
    .request = &CREATE_INDEXES_REQUEST,
    .run = create_indexes_run,
};
