/*
 * cmd_validate_db_metadata.c - validateDBMetadata: which views and indexes are not of a version of
 * the Stable API. Validators are not asked: all that they may hold is part of version 1.
 */
#include <string.h>

#include "commands/agg_args.h"
#include "commands/core/command_service.h"
#include "commands/support.h"

enum {
    /* What is left of the reply is named by `hasMoreErrors`. */
    ERRORS_BYTES_MAX = 8 * 1024 * 1024,
};

typedef struct ValidateDbMetadataRequest {
    Str db;   /* empty: all */
    Str coll; /* a collection or view; empty: all */
    Doc api;
} ValidateDbMetadataRequest;

static const FieldSpec VALIDATE_DB_METADATA_FIELDS[] = {
    {"validateDBMetadata", FIELD_IGNORED, FIELD_REQUIRED, 0},
    {"db", FIELD_STRING, FIELD_OPTIONAL, offsetof(ValidateDbMetadataRequest, db)},
    {"collection", FIELD_STRING, FIELD_OPTIONAL, offsetof(ValidateDbMetadataRequest, coll)},
    {"apiParameters", FIELD_DOC, FIELD_REQUIRED, offsetof(ValidateDbMetadataRequest, api)},
};

typedef struct ApiParameters {
    Str version;
    bool is_strict;
    bool is_deprecation_error; /* version 1 has nothing that is deprecated */
} ApiParameters;

static const FieldSpec API_PARAMETERS_FIELDS[] = {
    {"version", FIELD_STRING, FIELD_REQUIRED, offsetof(ApiParameters, version)},
    {"strict", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ApiParameters, is_strict)},
    {"deprecationErrors", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ApiParameters, is_deprecation_error)},
};

typedef struct Validation {
    CommandCtx *ctx;
    const ValidateDbMetadataRequest *request;
    const Catalog *catalog;
    bool is_strict;
    uint32_t count;
    size_t bytes;
    bool is_full;
} Validation;

static void add_error(Validation *v, const Ns *ns, const Error *err) {
    v->bytes += strlen(ns->text) + strlen(error_message(err)) + 128;
    v->is_full = v->bytes > ERRORS_BYTES_MAX;
    if (v->is_full)
        return;
    DocBuilder *b = v->ctx->reply;
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(b, index_name(v->count++, name));
    build_str(b, "ns", ns_str(ns));
    build_error_fields(b, err, /* has_code_name= */ true);
    build_close(b, row);
}

static bool is_wanted(const Validation *v, const Ns *ns) {
    return v->request->coll.size == 0 || str_equal(v->request->coll, ns_coll(ns));
}

static bool check_collection(void *arg, const Collection *coll) {
    Validation *v = arg;
    if (!is_wanted(v, &coll->ns))
        return true;
    for (uint32_t i = 0; i < coll->index_count && v->is_strict && !v->is_full; i++) {
        CLEANUP(error_reset) Error err = {0};
        const IndexDesc *index = coll->indexes[i];
        if (!elem_is_truthy(doc_get_lit(index->spec, "sparse")))
            continue;
        (void)error_set(&err, ERR_API_STRICT_ERROR, "the sparse index '%s' is not in API Version 1",
                        index->name);
        add_error(v, &coll->ns, &err);
    }
    return !v->is_full;
}

static bool check_view(void *arg, const View *view) {
    Validation *v = arg;
    if (!is_wanted(v, &view->ns))
        return true;
    CLEANUP(error_reset) Error err = {0};
    ArenaMark mark = arena_mark(cmd_arena(v->ctx));
    ErrCode rc = view->fault != NULL
                     ? error_set(&err, ERR_INVALID_VIEW_DEFINITION, "%s", view->fault)
                     : check_view_pipeline(v->ctx, view->pipeline, v->is_strict, &err);
    arena_rewind(cmd_arena(v->ctx), mark);
    if (rc != ERR_OK)
        add_error(v, &view->ns, &err);
    return !v->is_full;
}

static bool check_db(void *arg, Str db) {
    Validation *v = arg;
    if (v->request->db.size > 0 && !str_equal(v->request->db, db))
        return true;
    catalog_for_each_in_db(v->catalog, db, check_collection, v);
    if (!v->is_full)
        catalog_for_each_view_in_db(v->catalog, db, check_view, v);
    return !v->is_full;
}

static ErrCode validate_db_metadata_run(CommandCtx *ctx, void *arg, Error *err) {
    const ValidateDbMetadataRequest *request = arg;
    ApiParameters api = {0};
    TRY(request_parse(REQUEST_OF(ApiParameters, API_PARAMETERS_FIELDS), "apiParameters",
                      request->api, cmd_arena(ctx), &api, err));
    if (!str_is(api.version, "1"))
        return error_set(err, ERR_API_VERSION_ERROR, "API version must be \"1\"");
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    Validation validation = {
        .ctx = ctx, .request = request, .catalog = guard.catalog, .is_strict = api.is_strict};
    size_t errors = build_open_array(ctx->reply, "apiVersionErrors");
    catalog_for_each_db(guard.catalog, check_db, &validation);
    build_close(ctx->reply, errors);
    if (validation.is_full)
        build_bool(ctx->reply, "hasMoreErrors", true);
    return ERR_OK;
}

const CommandSpec CMD_VALIDATE_DB_METADATA = {
    .name = "validateDBMetadata",
    .summary = "Tells which views and indexes are not of a version of the Stable API.",
    .flags = CMD_READS,
    .request = REQUEST_OF(ValidateDbMetadataRequest, VALIDATE_DB_METADATA_FIELDS),
    .run = validate_db_metadata_run,
};
