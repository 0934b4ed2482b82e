/* cmd_create.c - create: a collection, plain, capped or clustered, or a view. */
#include "bson/collator.h"
#include "bson/json.h"
#include "commands/agg_args.h"
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "preimages/preimage_store.h"
#include "request/catalog_requests.h"

/* The _id index is made anyway; only one that says the same may be given. */
static ErrCode check_id_index(Elem id_index, const Collator *coll_collator, Error *err) {
    if (!elem_is_present(id_index))
        return ERR_OK;
    if (elem_type(id_index) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "'idIndex' has to be a document.");
    if (doc_is_empty(elem_doc(id_index)))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The 'key' field is a required property of an index specification");
    DocIter iter = doc_iter(elem_doc(id_index));
    Elem elem;
    bool has_key = false;
    while (doc_iter_next(&iter, &elem)) {
        if (elem_name_is(elem, STR("key"))) {
            Elem id = elem_type(elem) == BT_DOC ? doc_get_lit(elem_doc(elem), "_id") : ELEM_MISSING;
            has_key = elem_is_number(id) && elem_as_i64(id) == 1 && doc_count(elem_doc(elem)) == 1;
        } else if (elem_name_is(elem, STR("collation"))) {
            const Collator *collator;
            TRY(collator_parse_elem(elem, "create.idIndex.collation", &collator, err));
            if (collator != coll_collator)
                return error_set(err, ERR_BAD_VALUE,
                                 "'idIndex' must have the same collation as the collection");
        } else if (elem_name_is(elem, STR("v"))) {
            if (!elem_is_number(elem))
                return error_set(err, ERR_TYPE_MISMATCH, "The field 'v' must be a number");
            if (elem_as_i64(elem) != 1 && elem_as_i64(elem) != 2)
                return error_set(err, ERR_CANNOT_CREATE_INDEX, "cannot create an index with v=%lld",
                                 (long long)elem_as_i64(elem));
        } else if (!elem_name_is(elem, STR("name")) && !elem_name_is(elem, STR("ns"))) {
            return error_set(err, ERR_INVALID_INDEX_SPECIFICATION_OPTION,
                             "The field '%s' is not valid for an _id index specification",
                             elem_name(elem));
        }
    }
    if (!has_key)
        return error_set(err, ERR_BAD_VALUE,
                         "The field 'key' for an _id index must be {_id: 1}, but got %s",
                         "another key");
    return ERR_OK;
}

static ErrCode check_request(const CommandCtx *ctx, const CreateRequest *request, Error *err) {
    const Collator *collator = NULL;
    if (elem_is_present(request->collation))
        TRY(collator_parse_elem(request->collation, "create.collation", &collator, err));
    if (elem_is_present(request->capped) && elem_type(request->capped) != BT_BOOL &&
        !elem_is_number(request->capped))
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "BSON field 'create.capped' is the wrong type '%s', expected types '[bool, long, "
            "int, decimal, double]'",
            bson_type_name(elem_type(request->capped)));
    TRY(capped_number_check("create", request->size, 1, err));
    TRY(capped_number_check("create", request->max, INT64_MIN, err));
    TRY(check_id_index(request->id_index, collator, err));
    if (elem_is_present(request->expire_after)) {
        int64_t seconds;
        TRY(expire_after_parse(request->expire_after, ERR_INVALID_OPTIONS, &seconds, err));
    }
    Elem clustered = request->clustered_index;
    if (elem_type(clustered) == BT_BOOL && elem_bool(clustered))
        return error_set(err, (ErrCode)5979703,
                         "clusteredIndex: true is for collections of the server's own, others say "
                         "their key");
    bool is_without_id =
        elem_is_present(request->auto_index_id) && !elem_is_truthy(request->auto_index_id);
    if (is_without_id && elem_is_truthy(clustered))
        return error_set(err, (ErrCode)6026501,
                         "autoIndexId:false is not allowed for clustered collections");
    if (is_without_id && elem_is_present(request->id_index))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'idIndex' is not allowed when 'autoIndexId' is false");
    if (is_without_id && !str_is(ctx->args.db, "local"))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "autoIndexId:false is not allowed for collections in this database");
    const Elem empty_only[] = {request->index_option_defaults, request->storage_engine};
    static const char *const NAMES[] = {"indexOptionDefaults", "storageEngine"};
    for (size_t i = 0; i < ARRAY_LEN(empty_only); i++)
        if (elem_is_present(empty_only[i]) &&
            (elem_type(empty_only[i]) != BT_DOC || !doc_is_empty(elem_doc(empty_only[i]))))
            return error_set(err, ERR_NOT_IMPLEMENTED, "'create.%s' is not supported yet",
                             NAMES[i]);
    return ERR_OK;
}

static ErrCode create_view(CommandCtx *ctx, const CreateRequest *request, const Ns *ns,
                           Error *err) {
    const struct {
        const char *name;
        Elem value;
    } NOT_FOR_VIEWS[] = {
        {"capped", request->capped},
        {"size", request->size},
        {"max", request->max},
        {"validator", request->validator},
        {"idIndex", request->id_index},
        {"autoIndexId", request->auto_index_id},
        {"clusteredIndex", request->clustered_index},
        {"expireAfterSeconds", request->expire_after},
        {"changeStreamPreAndPostImages", request->pre_images},
    };
    for (size_t i = 0; i < ARRAY_LEN(NOT_FOR_VIEWS); i++)
        if (elem_is_truthy(NOT_FOR_VIEWS[i].value))
            return error_set(err,
                             NOT_FOR_VIEWS[i].value.data == request->clustered_index.data
                                 ? (ErrCode)6026500
                                 : ERR_INVALID_OPTIONS,
                             "'%s' is not supported on a view", NOT_FOR_VIEWS[i].name);
    Doc pipeline = doc_is_present(request->pipeline) ? request->pipeline : DOC_EMPTY;
    TRY(check_view_pipeline(ctx, pipeline, elem_is_truthy(ctx->args.api_strict), err));
    return ddl_create_view(ctx->op, ns, request->view_on, pipeline, request->collation, err);
}

/* Absent options and those that mean nothing are not stored. */
static Doc build_options(CommandCtx *ctx, const CreateRequest *request, bool has_pre_images) {
    ArenaDoc doc;
    arena_doc_begin(&doc, cmd_arena(ctx));
    if (elem_is_truthy(request->capped))
        build_bool(&doc.b, "capped", true);
    if (elem_is_present(request->size))
        build_count(&doc.b, "size", elem_as_i64(request->size));
    if (elem_is_present(request->max) && elem_as_i64(request->max) > 0)
        build_count(&doc.b, "max", elem_as_i64(request->max));
    if (request->is_temp)
        build_bool(&doc.b, "temp", true);
    const Elem others[] = {request->collation, request->validator, request->validation_level,
                           request->validation_action};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (elem_is_present(others[i]))
            build_elem(&doc.b, others[i]);
    if (elem_is_present(request->clustered_index) &&
        !(elem_type(request->clustered_index) == BT_BOOL && !elem_bool(request->clustered_index)))
        build_elem(&doc.b, request->clustered_index);
    if (elem_is_number(request->expire_after))
        build_i64(&doc.b, "expireAfterSeconds", elem_as_i64(request->expire_after));
    if (has_pre_images)
        build_elem(&doc.b, request->pre_images);
    if (elem_is_present(request->auto_index_id) && !elem_is_truthy(request->auto_index_id))
        build_bool(&doc.b, "autoIndexId", false);
    if (elem_is_present(request->id_index))
        build_elem(&doc.b, request->id_index);
    return arena_doc_end(&doc);
}

/* Capped collections are not part of the stable API. */
static ErrCode check_api(const CommandCtx *ctx, const CreateRequest *request, Error *err) {
    if (elem_is_truthy(ctx->args.api_strict) && elem_is_truthy(request->capped) &&
        elem_is_present(request->size))
        return error_set(err, ERR_API_STRICT_ERROR,
                         "BSON field 'create.capped' is not allowed with apiStrict:true.");
    return ERR_OK;
}

static ErrCode create_run(CommandCtx *ctx, void *arg, Error *err) {
    const CreateRequest *request = arg;
    TRY(check_api(ctx, request, err));
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_CREATE, err));
    TRY(check_request(ctx, request, err));
    if (request->view_on.data != NULL && ctx->is_txn)
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "Cannot create a view in a multi-document transaction.");
    if (request->view_on.data != NULL)
        return create_view(ctx, request, &ns, err);
    if (doc_is_present(request->pipeline))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'pipeline' requires 'viewOn' to also be specified");
    bool has_pre_images = false;
    if (elem_is_present(request->pre_images))
        TRY(pre_images_parse(request->pre_images, &has_pre_images, err));
    if (has_pre_images)
        TRY(preimages_prepare(ctx->op, &ns, err));
    Doc options = build_options(ctx, request, has_pre_images);
    return ddl_create_collection(ctx->op, &ns, options, NULL, err);
}

const CommandSpec CMD_CREATE = {
    .name = "create",
    .summary = "Creates a collection or a view.",
    .flags = CMD_IN_TXN | CMD_WRITES | CMD_API_V1,
    .request = &CREATE_REQUEST,
    .run = create_run,
};
