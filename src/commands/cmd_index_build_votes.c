/*
 * cmd_index_build_votes.c - voteCommitIndexBuild and voteAbortIndexBuild, which members of a
 * replica set send to their primary, and setIndexCommitQuorum.
 */
#include "commands/support.h"
#include "repl/index_votes.h"

typedef struct VoteRequest {
    Elem build;
    Str host;
    Str reason;
} VoteRequest;

typedef struct QuorumRequest {
    Str coll;
    Doc names;
    Elem quorum;
} QuorumRequest;

static ErrCode parse_vote(CommandCtx *ctx, const VoteRequest *request, Repl **ret_repl,
                          Uuid *ret_build, Error *err) {
    TRY(cmd_repl(ctx, ret_repl, err));
    if (!uuid_from_elem(request->build, ret_build))
        return error_set(err, ERR_TYPE_MISMATCH, "the index build must be given by its UUID");
    return ERR_OK;
}

static ErrCode vote_commit_run(CommandCtx *ctx, void *arg, Error *err) {
    const VoteRequest *request = arg;
    Repl *repl;
    Uuid build;
    TRY(parse_vote(ctx, request, &repl, &build, err));
    return repl_vote_commit_build(repl, ctx->op, &build, request->host, err);
}

static ErrCode vote_abort_run(CommandCtx *ctx, void *arg, Error *err) {
    const VoteRequest *request = arg;
    Repl *repl;
    Uuid build;
    TRY(parse_vote(ctx, request, &repl, &build, err));
    return repl_vote_abort_build(repl, &build, request->host, request->reason, err);
}

/* The build that has exactly these indexes. */
static ErrCode find_build(const Collection *coll, Doc names, Uuid *ret_build, Error *err) {
    uint32_t count = 0, build_count = 0;
    DocIter iter = doc_iter(names);
    for (Elem name; doc_iter_next(&iter, &name); count++) {
        if (elem_type(name) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH, "'indexNames' must hold strings");
        const IndexDesc *index = collection_find_index(coll, elem_str(name));
        if (index == NULL || index->is_ready || !index->has_build_uuid ||
            (count > 0 && !uuid_equal(&index->build_uuid, ret_build)))
            return error_set(err, ERR_INDEX_NOT_FOUND,
                             "Index build not found. No index build is running for index '%.*s' of "
                             "collection '%s' with those others",
                             (int)elem_str(name).size, elem_str(name).data, coll->ns.text);
        *ret_build = index->build_uuid;
    }
    for (uint32_t i = 0; count > 0 && i < coll->index_count; i++)
        build_count +=
            !coll->indexes[i]->is_ready && uuid_equal(&coll->indexes[i]->build_uuid, ret_build);
    if (count == 0 || count != build_count)
        return error_set(err, ERR_INDEX_NOT_FOUND,
                         "Index build not found. 'indexNames' must name all indexes of the build");
    return ERR_OK;
}

static ErrCode set_quorum_run(CommandCtx *ctx, void *arg, Error *err) {
    const QuorumRequest *request = arg;
    Repl *repl = ctx->op->service->repl;
    if (service_is_standalone(ctx->service))
        return error_set(err, ERR_BAD_VALUE, "Standalones can't specify commitQuorum");
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    Uuid build;
    {
        CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
        const Collection *coll = catalog_find(guard.catalog, &ns);
        if (coll == NULL)
            return error_set(err, ERR_NAMESPACE_NOT_FOUND, "ns does not exist: %s", ns.text);
        TRY(find_build(coll, request->names, &build, err));
    }
    return repl_set_commit_quorum(repl, ctx->op, &build, request->quorum, err);
}

static const FieldSpec VOTE_COMMIT_FIELDS[] = {
    {"voteCommitIndexBuild", FIELD_ELEM, FIELD_REQUIRED, offsetof(VoteRequest, build)},
    {"hostAndPort", FIELD_STRING, FIELD_REQUIRED, offsetof(VoteRequest, host)},
};

const CommandSpec CMD_VOTE_COMMIT_INDEX_BUILD = {
    .name = "voteCommitIndexBuild",
    .summary = "Between members: an index build is ready to be committed.",
    .flags = CMD_WRITES | CMD_ADMIN_ONLY | CMD_NOT_LOGGED_WHEN_SLOW,
    .request = REQUEST_OF(VoteRequest, VOTE_COMMIT_FIELDS),
    .run = vote_commit_run,
};

static const FieldSpec VOTE_ABORT_FIELDS[] = {
    {"voteAbortIndexBuild", FIELD_ELEM, FIELD_REQUIRED, offsetof(VoteRequest, build)},
    {"hostAndPort", FIELD_STRING, FIELD_REQUIRED, offsetof(VoteRequest, host)},
    {"reason", FIELD_STRING, FIELD_REQUIRED, offsetof(VoteRequest, reason)},
};

const CommandSpec CMD_VOTE_ABORT_INDEX_BUILD = {
    .name = "voteAbortIndexBuild",
    .summary = "Between members: an index build cannot be finished.",
    .flags = CMD_WRITES | CMD_ADMIN_ONLY,
    .request = REQUEST_OF(VoteRequest, VOTE_ABORT_FIELDS),
    .run = vote_abort_run,
};

static const FieldSpec SET_QUORUM_FIELDS[] = {
    {"setIndexCommitQuorum", FIELD_COLL, FIELD_REQUIRED, offsetof(QuorumRequest, coll)},
    {"indexNames", FIELD_ARRAY, FIELD_REQUIRED, offsetof(QuorumRequest, names)},
    {"commitQuorum", FIELD_ELEM, FIELD_REQUIRED, offsetof(QuorumRequest, quorum)},
};

const CommandSpec CMD_SET_INDEX_COMMIT_QUORUM = {
    .name = "setIndexCommitQuorum",
    .summary = "Changes how many members must have an index build ready before it is committed.",
    .flags = CMD_WRITES,
    .request = REQUEST_OF(QuorumRequest, SET_QUORUM_FIELDS),
    .run = set_quorum_run,
};
