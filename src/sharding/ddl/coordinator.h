/*
 * coordinator.h - operations that change metadata and data of a cluster, on the primary shard of a
 * database (DDL-2, DDL-3).
 */
#pragma once

#include "concurrency/op_ctx.h"
#include "repl/task/task_service.h"
#include "sharding/shard/shard_state.h"

#define DDL_SERVICE_NAME "ShardingDDLCoordinator"
#define DDL_COORDINATORS "config.system.sharding_ddl_coordinators"

typedef enum DdlOperation {
    DDL_SHARD_COLLECTION,
    DDL_DROP_COLLECTION,
    DDL_DROP_DATABASE,
    DDL_RENAME_COLLECTION,
    DDL_COLL_MOD,
    DDL_DROP_INDEXES,
    DDL_MOVE_PRIMARY,
    DDL_OPERATION_COUNT,
} DdlOperation;

/* Registers the tasks; before the node serves. */
void ddl_coordinators_register(TaskServices *services, ShardState *state);

typedef struct DdlOrder {
    DdlOperation operation;
    Ns ns;         /* of a database: its name alone (section_database_ns) */
    const Ns *to;  /* of a rename; NULL: none */
    Doc arguments; /* of the operation */
} DdlOrder;

/* Does it, or joins whoever does the same at the moment; returns when it is over, with its result
 * in the operation's arena. Goes on without the caller. */
ErrCode ddl_coordinate(OpCtx *op, const DdlOrder *order, Doc *ret_result, Error *err) MUST_CHECK;
