/*
 * stage_inhibit.c - $_internalInhibitOptimization: gives what it takes.
 *
 * Nothing moves past it, so that tests see the stages after it work.
 */
#include "query/agg/agg_internal.h"

static const AggStageClass INHIBIT = {
    .name = "$_internalInhibitOptimization",
    .exec_size = sizeof(AggStageExec),
    .next = agg_pull,
    .meta = AGG_META_KEPT,
    .runs = AGG_RUNS_ON_SHARDS,
};

ErrCode parse_inhibit(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC || !doc_is_empty(elem_doc(spec)))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$_internalInhibitOptimization takes an empty document");
    (void)agg_add_stage(p, &INHIBIT, sizeof(AggStage), spec);
    return ERR_OK;
}
