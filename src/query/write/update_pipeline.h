/*
 * update_pipeline.h - updates written as pipelines: [{$set: ...}, {$unset: ...}].
 */
#pragma once

#include "query/update/update.h"

typedef struct PipelineUpdateHook {
    UpdatePipelineHook base;
    Doc let_values; /* DOC_NONE: none */
    int64_t now_ms;
    uint64_t cluster_ts;
    const Collator *collator; /* NULL: simple */
} PipelineUpdateHook;

/* Fills in `base` and returns it; the hook must live as long as the programs parsed with it. */
const UpdatePipelineHook *pipeline_update_hook(PipelineUpdateHook *hook);
