/* plan_shape.h - a query without its values: its key in the plan cache. */
#pragma once

#include "bson/doc.h"

typedef struct PlanShape {
    Str bytes;           /* shape, then what decides about indexes */
    Str query;           /* the shape alone */
    uint32_t query_hash; /* of the shape alone; "queryHash" */
    uint32_t key_hash;   /* "planCacheKey" */
} PlanShape;
