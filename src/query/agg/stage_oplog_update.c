/*
 * stage_oplog_update.c - $_internalApplyOplogUpdate: changes documents as the update of an oplog
 * entry says.
 *
 * Read from an oplog, or from a change stream that shows raw updates, such an update can so be made
 * of another collection's document.
 */
#include "query/agg/agg_internal.h"
#include "query/update/update_delta.h"

typedef struct OplogUpdateStage {
    AggStage base;
    Doc delta;
} OplogUpdateStage;

static ErrCode oplog_update_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err);

static const AggStageClass OPLOG_UPDATE = {
    .name = "$_internalApplyOplogUpdate",
    .exec_size = sizeof(AggStageExec),
    .next = oplog_update_next,
    .is_one_to_one = true,
    .runs = AGG_RUNS_ON_SHARDS,
};

ErrCode parse_oplog_update(AggParser *p, Elem spec, Error *err) {
    Elem update =
        elem_type(spec) == BT_DOC ? doc_get_lit(elem_doc(spec), "oplogUpdate") : ELEM_MISSING;
    if (elem_type(update) != BT_DOC || doc_count(elem_doc(spec)) != 1)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$_internalApplyOplogUpdate takes {oplogUpdate: <document>} alone");
    Doc delta = update_delta_of_entry(elem_doc(update));
    if (!doc_is_present(delta))
        return error_set(err, (ErrCode)4772604,
                         "$_internalApplyOplogUpdate only supports updates that are told as "
                         "differences ($v: 2)");
    OplogUpdateStage *stage = agg_add_stage(p, &OPLOG_UPDATE, sizeof(*stage), spec);
    stage->delta = delta;
    return ERR_OK;
}

static ErrCode oplog_update_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    const OplogUpdateStage *stage = (const OplogUpdateStage *)exec->stage;
    Doc doc;
    TRY(agg_pull(exec, ret_found, &doc, err));
    if (!*ret_found)
        return ERR_OK;
    agg_begin_doc(exec, doc);
    return update_delta_apply(doc, stage->delta, &exec->scratch, ret_doc, err);
}
