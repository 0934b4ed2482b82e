/* cmd_coll_mod.c - collMod: changes options of a collection, an index or a view. */
#include "commands/agg_args.h"
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"

typedef struct CollModRequest {
    Str coll;
    CollModChange change;
} CollModRequest;

static ErrCode coll_mod_run(CommandCtx *ctx, void *arg, Error *err) {
    const CollModRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_OPTIONS, err));
    if (elem_type(request->change.pipeline) == BT_ARRAY)
        TRY(check_view_pipeline(ctx, elem_doc(request->change.pipeline), err));
    if (request->change.is_dry_run && !doc_is_present(request->change.index))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "The 'dryRun' mode is only supported for converting an index to unique");
    CollModResult result = {0};
    TRY(ddl_coll_mod(ctx->op, &ns, &request->change, &result, err));
    if (result.has_hidden_change) {
        build_bool(ctx->reply, "hidden_old", result.hidden_old);
        build_bool(ctx->reply, "hidden_new", result.hidden_new);
    }
    if (request->change.is_dry_run)
        return ERR_OK;
    if (result.has_expire_change) {
        if (result.expire_old >= 0)
            build_i64(ctx->reply, "expireAfterSeconds_old", result.expire_old);
        build_i64(ctx->reply, "expireAfterSeconds_new", result.expire_new);
    }
    if (result.has_prepare_unique_change) {
        build_bool(ctx->reply, "prepareUnique_old", result.prepare_unique_old);
        build_bool(ctx->reply, "prepareUnique_new", result.prepare_unique_new);
    }
    if (result.is_made_unique)
        build_bool(ctx->reply, "unique_new", true);
    return ERR_OK;
}

#define CHANGE(name, type, member)                                                                 \
    { name, type, FIELD_OPTIONAL, offsetof(CollModRequest, change.member) }

static const FieldSpec COLL_MOD_FIELDS[] = {
    {"collMod", FIELD_COLL, FIELD_REQUIRED, offsetof(CollModRequest, coll)},
    CHANGE("validator", FIELD_ELEM, validator),
    CHANGE("validationLevel", FIELD_ELEM, validation_level),
    CHANGE("validationAction", FIELD_ELEM, validation_action),
    CHANGE("cappedSize", FIELD_ELEM, capped_size),
    CHANGE("cappedMax", FIELD_ELEM, capped_max),
    CHANGE("viewOn", FIELD_ELEM, view_on),
    CHANGE("pipeline", FIELD_ELEM, pipeline),
    CHANGE("index", FIELD_DOC, index),
    CHANGE("expireAfterSeconds", FIELD_ELEM, expire_after),
    CHANGE("dryRun", FIELD_BOOL, is_dry_run),
    {"changeStreamPreAndPostImages", FIELD_REFUSED, FIELD_OPTIONAL, 0},
    {"timeseries", FIELD_REFUSED, FIELD_OPTIONAL, 0},
};

const CommandSpec CMD_COLL_MOD = {
    .name = "collMod",
    .summary = "Changes options of a collection, an index or a view.",
    .flags = CMD_WRITES | CMD_API_V1,
    .fields = COLL_MOD_FIELDS,
    .field_count = ARRAY_LEN(COLL_MOD_FIELDS),
    .request_size = sizeof(CollModRequest),
    .run = coll_mod_run,
};
