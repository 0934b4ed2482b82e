/*
 * api_stages.c - which stages are part of version 1 of the Stable API. All of them are looked at,
 * also in pipelines within others, before anything else that is wrong with them is told.
 */
#include "query/agg/agg_internal.h"

static ErrCode check_pipeline(Elem stages, uint32_t depth, Error *err);

static ErrCode check_stage(Elem stage, Error *err) {
    static const char *const UNSTABLE[] = {
        "$_internalDensify",   "$_internalSetWindowFields",
        "$currentOp",          "$indexStats",
        "$listCatalog",        "$listLocalSessions",
        "$listSampledQueries", "$listSearchIndexes",
        "$listSessions",       "$planCacheStats",
        "$queryStats",         "$search",
        "$searchMeta",         "$shardedDataDistribution",
        "$vectorSearch",
    };
    for (size_t i = 0; i < ARRAY_LEN(UNSTABLE); i++)
        if (str_is(elem_name_str(stage), UNSTABLE[i]))
            return error_set(err, ERR_API_STRICT_ERROR,
                             "stage %s is not allowed with 'apiStrict: true' in API Version 1",
                             UNSTABLE[i]);
    if (!elem_name_is(stage, STR("$collStats")) || elem_type(stage) != BT_DOC)
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(stage));
    for (Elem option; doc_iter_next(&iter, &option);)
        if (!elem_name_is(option, STR("count")))
            return error_set(err, ERR_API_STRICT_ERROR,
                             "only the 'count' option of $collStats is allowed with 'apiStrict: "
                             "true' in API Version 1");
    return ERR_OK;
}

static ErrCode check_inner(Elem stage, uint32_t depth, Error *err) {
    if (elem_type(stage) != BT_DOC)
        return ERR_OK;
    if (elem_name_is(stage, STR("$lookup")) || elem_name_is(stage, STR("$unionWith")))
        return check_pipeline(doc_get_lit(elem_doc(stage), "pipeline"), depth, err);
    if (!elem_name_is(stage, STR("$facet")))
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(stage));
    for (Elem facet; doc_iter_next(&iter, &facet);)
        TRY(check_pipeline(facet, depth, err));
    return ERR_OK;
}

static ErrCode check_pipeline(Elem stages, uint32_t depth, Error *err) {
    if (elem_type(stages) != BT_ARRAY || depth > PIPELINE_DEPTH_MAX)
        return ERR_OK;
    return agg_check_api(elem_doc(stages), depth, err);
}

ErrCode agg_check_api(Doc stages, uint32_t depth, Error *err) {
    DocIter iter = doc_iter(stages);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Elem stage;
        DocIter fields = doc_iter(elem_type(elem) == BT_DOC ? elem_doc(elem) : DOC_EMPTY);
        if (!doc_iter_next(&fields, &stage))
            continue;
        TRY(check_stage(stage, err));
        TRY(check_inner(stage, depth + 1, err));
    }
    return ERR_OK;
}
