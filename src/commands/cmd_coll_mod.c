/* cmd_coll_mod.c - collMod: changes options of a collection, an index or a view. */
#include "commands/agg_args.h"
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "preimages/preimage_store.h"
#include "request/catalog_requests.h"

/* Conversion of an index to a unique one is not part of the Stable API. */
static ErrCode check_api(const CommandCtx *ctx, const CollModRequest *request, Error *err) {
    static const char *const UNSTABLE[] = {"unique", "prepareUnique"};
    if (LIKELY(!elem_is_truthy(ctx->args.api_strict)) || !doc_is_present(request->change.index))
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(UNSTABLE); i++)
        if (elem_is_present(doc_get(request->change.index, str_from(UNSTABLE[i]))))
            return error_set(err, ERR_API_STRICT_ERROR,
                             "BSON field 'collMod.index.%s' is not allowed with apiStrict:true.",
                             UNSTABLE[i]);
    return ERR_OK;
}

/* A view has no options but what it is made of. */
static ErrCode check_view(CommandCtx *ctx, const Ns *ns, const CollModChange *change, Error *err) {
    const struct {
        const char *name;
        bool is_given;
    } OF_COLLECTIONS[] = {
        {"index", doc_is_present(change->index)},
        {"validator", elem_is_present(change->validator)},
        {"validationLevel", elem_is_present(change->validation_level)},
        {"validationAction", elem_is_present(change->validation_action)},
        {"expireAfterSeconds", elem_is_present(change->expire_after)},
        {"cappedSize", elem_is_present(change->capped_size)},
        {"cappedMax", elem_is_present(change->capped_max)},
    };
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    if (catalog_find_view(guard.catalog, ns) == NULL)
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(OF_COLLECTIONS); i++)
        if (OF_COLLECTIONS[i].is_given)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "option '%s' is of collections, and '%s' is a view",
                             OF_COLLECTIONS[i].name, ns->text);
    return ERR_OK;
}

static ErrCode check_type(const char *name, Elem given, BsonType type, Error *err) {
    if (!elem_is_present(given) || elem_type(given) == type || elem_type(given) == BT_NULL)
        return ERR_OK;
    return error_set(err, ERR_TYPE_MISMATCH,
                     "BSON field 'collMod.%s' is the wrong type '%s', expected type '%s'", name,
                     bson_type_name(elem_type(given)), bson_type_name(type));
}

static ErrCode coll_mod_run(CommandCtx *ctx, void *arg, Error *err) {
    const CollModRequest *request = arg;
    Ns ns;
    TRY(check_api(ctx, request, err));
    TRY(capped_number_check("collMod", request->change.capped_size, 1, err));
    TRY(capped_number_check("collMod", request->change.capped_max, INT64_MIN, err));
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_OPTIONS, err));
    TRY(check_type("pipeline", request->change.pipeline, BT_ARRAY, err));
    TRY(check_type("viewOn", request->change.view_on, BT_STRING, err));
    TRY(check_view(ctx, &ns, &request->change, err));
    if (elem_type(request->change.pipeline) == BT_ARRAY)
        TRY(check_view_pipeline(ctx, elem_doc(request->change.pipeline),
                                elem_is_truthy(ctx->args.api_strict), err));
    if (request->change.is_dry_run && !doc_is_present(request->change.index))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "The 'dryRun' mode is only supported for converting an index to unique");
    bool has_pre_images = false;
    if (elem_is_present(request->change.pre_images))
        TRY(pre_images_parse(request->change.pre_images, &has_pre_images, err));
    if (has_pre_images)
        TRY(preimages_prepare(ctx->op, &ns, err));
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

const CommandSpec CMD_COLL_MOD = {
    .name = "collMod",
    .summary = "Changes options of a collection, an index or a view.",
    .flags = CMD_WRITES | CMD_API_V1,
    .request = &COLL_MOD_REQUEST,
    .run = coll_mod_run,
};
