/* stage_ownership.c - SHARDING_FILTER: lets only those documents through that the node owns. */
#include "query/exec/executor.h"

typedef struct OwnershipStage {
    PlanStage base;
    int64_t skipped;
} OwnershipStage;

/* The filters are the access's of this moment, not those of the plan: after a yield the policy may
 * have replaced them. The input counts ticks, so a long run of foreign documents yields, too. */
static ErrCode ownership_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    OwnershipStage *filter = (OwnershipStage *)stage;
    for (;;) {
        TRY(stage_next(stage->input, ret_found, ret_row, err));
        if (!*ret_found || access_owns(stage->exec->access, ret_row->doc))
            return ERR_OK;
        filter->skipped++;
    }
}

static void ownership_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    if (has_stats)
        build_count(b, "chunkSkips", ((OwnershipStage *)stage)->skipped);
}

static const PlanStageOps OWNERSHIP_OPS = {
    "SHARDING_FILTER", ownership_next, NULL, NULL, NULL, ownership_explain, NULL};

PlanStage *stage_ownership(PlanExecutor *exec, PlanStage *input) {
    OwnershipStage *filter = ARENA_NEW(&exec->arena, OwnershipStage);
    filter->base = (PlanStage){.ops = &OWNERSHIP_OPS, .exec = exec, .input = input};
    return &filter->base;
}
