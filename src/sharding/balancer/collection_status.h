/*
 * collection_status.h - does a collection lie as it should? (balancerCollectionStatus)
 */
#pragma once

#include "bson/builder.h"
#include "sharding/config/config_catalog.h"

/* Appends balancerCompliant, firstComplianceViolation, details.decisions, chunkSize to `reply`.
 * ERR_NAMESPACE_NOT_SHARDED. */
ErrCode balancer_collection_status(OpCtx *op, Str ns, DocBuilder *reply, Error *err) MUST_CHECK;
