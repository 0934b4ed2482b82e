#include "commands/txn_rules.h"

#include "commands/core/command_service.h"
#include "commands/node_commands.h"
#include "repl/repl.h"
#include "txn/transaction.h"

enum {
    LOCATION_SYSTEM_VIEWS_IN_TXN = 51071,
    LOCATION_SYSTEM_VIEWS_BY_UUID_IN_TXN = 51070,
    LOCATION_SYSTEM_WRITE_IN_TXN = 50791,
    PIPELINE_DEPTH_MAX = 20, /* deeper ones are refused when they are parsed */
};

static ErrCode refuse_collection(const CommandCtx *ctx, int code, Error *err) {
    return error_set(err, (ErrCode)code,
                     "Cannot run '%s' against the collection '%.*s.%.*s' in a multi-document "
                     "transaction.",
                     ctx->spec->name, (int)ctx->args.db.size, ctx->args.db.data,
                     (int)ctx->ns_coll.size, ctx->ns_coll.data);
}

static ErrCode check_collection(const CommandCtx *ctx, Error *err) {
    Str coll = ctx->ns_coll;
    if (coll.size < 7 || memcmp(coll.data, "system.", 7) != 0)
        return ERR_OK;
    bool is_profile = str_is(coll, "system.profile");
    if (is_profile || ctx->spec == &CMD_CREATE || ctx->spec == &CMD_CREATE_INDEXES)
        return refuse_collection(ctx, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION, err);
    if ((ctx->spec->flags & CMD_WRITES) != 0)
        return refuse_collection(ctx, LOCATION_SYSTEM_WRITE_IN_TXN, err);
    return str_is(coll, "system.views") ? refuse_collection(ctx, LOCATION_SYSTEM_VIEWS_IN_TXN, err)
                                        : ERR_OK;
}

/* A shard that counts what is not in a journal as committed could lose a part of what others have
 * committed too. Tests may. */
static ErrCode check_journaled(const CommandCtx *ctx, Error *err) {
    if (LIKELY(ctx->service->role != ROLE_SHARD) ||
        repl_is_majority_journaled(ctx->service->repl) ||
        atomic_load(&command_settings(ctx->service)->is_test_commands_enabled))
        return ERR_OK;
    return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                     "Transactions are not allowed on shard servers when "
                     "writeConcernMajorityJournalDefault is false");
}

ErrCode txn_rules_check(const CommandCtx *ctx, Error *err) {
    TRY(check_journaled(ctx, err));
    return check_collection(ctx, err);
}

ErrCode txn_rules_check_uuid(const CommandCtx *ctx, const Ns *ns, Error *err) {
    bool is_profile = str_is(ns_coll(ns), "system.profile");
    if (!ctx->is_txn || (!is_profile && !str_is(ns_coll(ns), "system.views")))
        return ERR_OK;
    return error_set(err,
                     is_profile ? ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION
                                : (ErrCode)LOCATION_SYSTEM_VIEWS_BY_UUID_IN_TXN,
                     "Cannot run '%s' against the collection '%s' in a multi-document transaction.",
                     ctx->spec->name, ns->text);
}

ErrCode txn_rules_check_open(const CommandCtx *ctx, Error *err) {
    bool is_ddl = ctx->spec == &CMD_CREATE || ctx->spec == &CMD_CREATE_INDEXES;
    /* The new collection would be younger than the snapshot. */
    if (is_ddl && txn_is_at_time(ctx->op))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Command %s does not support this readConcern: a transaction that creates "
                         "needs the level 'local' or 'majority'",
                         ctx->spec->name);
    return ERR_OK;
}

/* ---- pipelines ---- */

static ErrCode check_stages(Doc stages, int depth, Error *err);

/* Those that read something else than documents, or write. */
static bool is_refused(Elem stage) {
    static const char *const REFUSED[] = {
        "$changeStream",
        "$collStats",
        "$currentOp",
        "$indexStats",
        "$listCatalog",
        "$listLocalSessions",
        "$listSessions",
        "$merge",
        "$out",
        "$planCacheStats",
        "$changeStreamSplitLargeEvent",
    };
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
        if (strcmp(elem_name(stage), REFUSED[i]) == 0)
            return true;
    return false;
}

/* $lookup and $unionWith have a `pipeline`; of $facet every field is one. */
static ErrCode check_inner(Elem stage, int depth, Error *err) {
    if (elem_type(stage) != BT_DOC)
        return ERR_OK;
    bool is_facet = elem_name_is(stage, STR("$facet"));
    DocIter iter = doc_iter(elem_doc(stage));
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_type(field) == BT_ARRAY && (is_facet || elem_name_is(field, STR("pipeline"))))
            TRY(check_stages(elem_doc(field), depth + 1, err));
    return ERR_OK;
}

static ErrCode check_stages(Doc stages, int depth, Error *err) {
    if (depth > PIPELINE_DEPTH_MAX)
        return ERR_OK;
    DocIter iter = doc_iter(stages);
    for (Elem row; doc_iter_next(&iter, &row);) {
        DocIter fields = elem_type(row) == BT_DOC ? doc_iter(elem_doc(row)) : doc_iter(DOC_EMPTY);
        Elem stage;
        if (!doc_iter_next(&fields, &stage))
            continue;
        if (is_refused(stage))
            return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                             "Stage not supported inside of a multi-document transaction: %s",
                             elem_name(stage));
        TRY(check_inner(stage, depth, err));
    }
    return ERR_OK;
}

ErrCode txn_rules_check_pipeline(Doc stages, Error *err) {
    return check_stages(stages, 0, err);
}
