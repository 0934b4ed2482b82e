/* cmd_coll_mod.c - collMod: changes options of a collection, an index or a view. */
#include "commands/agg_args.h"
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
    if (elem_type(request->change.pipeline) == BT_ARRAY)
        TRY(check_view_pipeline(ctx, elem_doc(request->change.pipeline), err));
    CollModResult result = {0};
    TRY(ddl_coll_mod(ctx->op, &ns, &request->change, &result, err));
    if (result.has_hidden_change) {
        build_bool(ctx->reply, "hidden_old", result.hidden_old);
        build_bool(ctx->reply, "hidden_new", result.hidden_new);
    }
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
    {"expireAfterSeconds", FIELD_REFUSED, FIELD_OPTIONAL, 0},
    {"changeStreamPreAndPostImages", FIELD_REFUSED, FIELD_OPTIONAL, 0},
    {"timeseries", FIELD_REFUSED, FIELD_OPTIONAL, 0},
    {"dryRun", FIELD_REFUSED, FIELD_OPTIONAL, 0},
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
