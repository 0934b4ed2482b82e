/* cmd_plan_cache_filters.c - planCacheSetFilter, planCacheListFilters, planCacheClearFilters: which
 * indexes the planner considers for a shape of query. */
#include "catalog/access.h"
#include "commands/query_args.h"
#include "commands/support.h"
#include "query/plan/index_filters.h"
#include "query/plan/plan_cache.h"
#include "query/plan/planner.h"

typedef struct FilterRequest {
    Str coll;
    Elem query;
    Elem sort;
    Elem projection;
    Elem collation;
    Elem indexes;
} FilterRequest;

#define FILTER_FIELDS(command)                                                                     \
    {                                                                                              \
        {command, FIELD_COLL, FIELD_REQUIRED, offsetof(FilterRequest, coll)},                      \
            {"query", FIELD_ELEM, FIELD_NULL_COUNTS, offsetof(FilterRequest, query)},              \
            {"sort", FIELD_ELEM, FIELD_NULL_COUNTS, offsetof(FilterRequest, sort)},                \
            {"projection", FIELD_ELEM, FIELD_NULL_COUNTS, offsetof(FilterRequest, projection)},    \
            {"collation", FIELD_ELEM, FIELD_NULL_COUNTS, offsetof(FilterRequest, collation)},      \
            {"indexes", FIELD_ELEM, FIELD_NULL_COUNTS, offsetof(FilterRequest, indexes)},          \
    }
static const FieldSpec SET_FIELDS[] = FILTER_FIELDS("planCacheSetFilter");
static const FieldSpec LIST_FIELDS[] = FILTER_FIELDS("planCacheListFilters");
static const FieldSpec CLEAR_FIELDS[] = FILTER_FIELDS("planCacheClearFilters");

static ErrCode check_object(Elem given, const char *name, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_EMPTY;
    if (!elem_is_present(given))
        return ERR_OK;
    if (elem_type(given) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE, "optional field %s must be an object", name);
    *ret_doc = elem_doc(given);
    return ERR_OK;
}

static ErrCode check_indexes(Elem given, Error *err) {
    if (!elem_is_present(given))
        return error_set(err, ERR_BAD_VALUE, "required field indexes missing");
    if (elem_type(given) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE, "required field indexes must be an array");
    if (doc_is_empty(elem_doc(given)))
        return error_set(err, ERR_BAD_VALUE,
                         "required field indexes must contain at least one index");
    DocIter iter = doc_iter(elem_doc(given));
    for (Elem row; doc_iter_next(&iter, &row);) {
        BsonType type = elem_type(row);
        if (type != BT_STRING && type != BT_DOC)
            return error_set(err, ERR_BAD_VALUE,
                             "each item in indexes must be either an object or a string");
        if (type == BT_DOC && doc_is_empty(elem_doc(row)))
            return error_set(err, ERR_BAD_VALUE, "index key pattern cannot be empty");
    }
    return ERR_OK;
}

/* The parts of a request that make up a shape. */
static ErrCode parse_filter(CommandCtx *ctx, const FilterRequest *request, IndexFilter *ret_filter,
                            QuerySpec *ret_spec, Error *err) {
    if (elem_type(request->query) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE,
                         elem_is_present(request->query) ? "required field query must be an object"
                                                         : "required field query missing");
    *ret_filter = (IndexFilter){.query = elem_doc(request->query)};
    TRY(check_object(request->sort, "sort", &ret_filter->sort, err));
    TRY(check_object(request->projection, "projection", &ret_filter->projection, err));
    TRY(check_object(request->collation, "collation", &ret_filter->collation, err));
    *ret_spec = (QuerySpec){.filter = ret_filter->query,
                            .sort = ret_filter->sort,
                            .projection = ret_filter->projection};
    query_spec_defaults(ctx, ret_spec);
    TRY(request_collation(request->collation, &ret_spec->has_collation, &ret_spec->collator, err));
    ret_spec->has_collation = true; /* as it was given: the collection's is not inherited */
    return ERR_OK;
}

static ErrCode open_coll(CommandCtx *ctx, const FilterRequest *request, CollAccess *access,
                         Error *err) {
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    TRY(access_read(ctx->op, &ns, access, err));
    if (access->view != NULL)
        return cmd_refuse_view(&ns, err);
    return ERR_OK;
}

static ErrCode set_run(CommandCtx *ctx, void *arg, Error *err) {
    const FilterRequest *request = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_coll(ctx, request, &access, err));
    if (access.coll == NULL)
        return error_set(err, ERR_BAD_VALUE, "no such collection");
    TRY(check_indexes(request->indexes, err));
    IndexFilter filter;
    QuerySpec spec;
    TRY(parse_filter(ctx, request, &filter, &spec, err));
    filter.indexes = elem_doc(request->indexes);
    PlanShape shape;
    TRY(plan_query_shape(&access, &spec, cmd_arena(ctx), &shape, err));
    index_filters_set(access.coll, shape.query, &filter);
    (void)plan_cache_clear(access.coll, NULL);
    return ERR_OK;
}

static ErrCode list_run(CommandCtx *ctx, void *arg, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_coll(ctx, arg, &access, err));
    size_t filters = build_open_array(ctx->reply, "filters");
    if (access.coll != NULL)
        index_filters_to_bson(access.coll, ctx->reply);
    build_close(ctx->reply, filters);
    return ERR_OK;
}

static ErrCode clear_run(CommandCtx *ctx, void *arg, Error *err) {
    const FilterRequest *request = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_coll(ctx, request, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    if (!elem_is_present(request->query)) {
        if (elem_is_present(request->sort) || elem_is_present(request->projection) ||
            elem_is_present(request->collation))
            return error_set(err, ERR_BAD_VALUE,
                             "sort, projection, or collation provided without query");
        (void)index_filters_clear(access.coll, NULL);
        (void)plan_cache_clear(access.coll, NULL);
        return ERR_OK;
    }
    IndexFilter filter;
    QuerySpec spec;
    TRY(parse_filter(ctx, request, &filter, &spec, err));
    PlanShape shape;
    TRY(plan_query_shape(&access, &spec, cmd_arena(ctx), &shape, err));
    (void)index_filters_clear(access.coll, &shape.query);
    (void)plan_cache_clear(access.coll, NULL);
    return ERR_OK;
}

const CommandSpec CMD_PLAN_CACHE_CLEAR_FILTERS = {
    .name = "planCacheClearFilters",
    .summary = "Removes index filters of a collection.",
    .flags = CMD_READS | CMD_LOOSE,
    .request = REQUEST_OF(FilterRequest, CLEAR_FIELDS),
    .run = clear_run,
};
const CommandSpec CMD_PLAN_CACHE_LIST_FILTERS = {
    .name = "planCacheListFilters",
    .summary = "Lists the index filters of a collection.",
    .flags = CMD_READS | CMD_LOOSE,
    .request = REQUEST_OF(FilterRequest, LIST_FIELDS),
    .run = list_run,
};
const CommandSpec CMD_PLAN_CACHE_SET_FILTER = {
    .name = "planCacheSetFilter",
    .summary = "Sets which indexes are considered for a shape of query.",
    .flags = CMD_READS | CMD_LOOSE,
    .request = REQUEST_OF(FilterRequest, SET_FIELDS),
    .run = set_run,
};
