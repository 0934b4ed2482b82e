/*
 * stage_sharded_data.c - $shardedDataDistribution, on a node: only routers can tell.
 */
#include "query/agg/agg_internal.h"

ErrCode parse_sharded_data(AggParser *p, Elem spec, Error *err) {
    (void)p;
    if (elem_type(spec) != BT_DOC || !doc_is_empty(elem_doc(spec)))
        return error_set(
            err, (ErrCode)6789100,
            "The $shardedDataDistribution stage specification must be an empty object");
    return error_set(err, (ErrCode)6789101,
                     "The $shardedDataDistribution stage can only be run on mongoS");
}
