#include "router/router_commands.h"

#include "commands/core/command_service.h"
#include "commands/core/refused.h"
#include "router/all_shards.h"
#include "router/check_commands.h"
#include "router/chunk_commands.h"
#include "router/client_cursors.h"
#include "router/cluster_commands.h"
#include "router/ddl_commands.h"
#include "router/defaults.h"
#include "router/forward.h"
#include "router/move_commands.h"
#include "router/op_commands.h"
#include "router/plan_cache_commands.h"
#include "router/router_txn.h"
#include "router/stats_commands.h"
#include "router/write_commands.h"

/* ---- forwards ---- */

/* Reads with a cursor. */
static ErrCode run_cursor(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    return forward_run(ctx, &(ForwardUse){.has_cursor = true}, err);
}

#define READ  (CMD_READS | CMD_LOOSE | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT)
#define WRITE (CMD_LOOSE | CMD_TAKES_WRITE_CONCERN)

#define FORWARD(symbol, text, kind, function, more)                                                \
    static const CommandSpec symbol = {.name = text,                                               \
                                       .summary = "Passed on to the shard that has the database.", \
                                       .flags = (kind),                                            \
                                       .run = (function),                                          \
                                       more}

FORWARD(LIST_COLLECTIONS, "listCollections", CMD_READS | CMD_LOOSE | CMD_API_V1, run_cursor, );

#define REFUSED_COMMAND(symbol, command, reason)                                                   \
    static const CommandSpec symbol = REFUSED_SPEC(command, reason);
#include "router/refused_commands.def"
#undef REFUSED_COMMAND

const CommandSpec *const ROUTER_SPECS[] = {
    &ROUTER_APPEND_OPLOG_NOTE,
    &ROUTER_COLL_MOD,
    &ROUTER_COLL_STATS,
    &ROUTER_CONVERT_TO_CAPPED,
    &ROUTER_CREATE,
    &ROUTER_CREATE_INDEXES,
    &ROUTER_DATA_SIZE,
    &ROUTER_DB_STATS,
    &ROUTER_DROP,
    &ROUTER_DROP_DATABASE,
    &ROUTER_DROP_INDEXES,
    &LIST_COLLECTIONS,
    &ROUTER_LIST_INDEXES,
    &ROUTER_PLAN_CACHE_CLEAR,
    &ROUTER_PLAN_CACHE_CLEAR_FILTERS,
    &ROUTER_PLAN_CACHE_LIST_FILTERS,
    &ROUTER_PLAN_CACHE_SET_FILTER,
    &ROUTER_VALIDATE,
    &ROUTER_AGGREGATE,
    &ROUTER_COUNT,
    &ROUTER_DISTINCT,
    &ROUTER_EXPLAIN,
    &ROUTER_FIND,
    &ROUTER_GET_MORE,
    &ROUTER_INSERT,
    &ROUTER_UPDATE,
    &ROUTER_DELETE,
    &ROUTER_FIND_AND_MODIFY,
    &ROUTER_COMMIT_TRANSACTION,
    &ROUTER_ABORT_TRANSACTION,
    &ROUTER_BALANCER_COLLECTION_STATUS,
    &ROUTER_BALANCER_START,
    &ROUTER_BALANCER_STOP,
    &ROUTER_BALANCER_STATUS,
    &ROUTER_GET_CLUSTER_PARAMETER,
    &ROUTER_SET_CLUSTER_PARAMETER,
    &ROUTER_CONFIGURE_COLLECTION_BALANCING,
    &ROUTER_ADD_SHARD,
    &ROUTER_ADD_SHARD_TO_ZONE,
    &ROUTER_REMOVE_SHARD,
    &ROUTER_REMOVE_SHARD_FROM_ZONE,
    &ROUTER_UPDATE_ZONE_KEY_RANGE,
    &ROUTER_GET_SHARD_MAP,
    &ROUTER_LIST_SHARDS,
    &ROUTER_MOVE_PRIMARY,
    &ROUTER_LIST_DATABASES,
    &ROUTER_ENABLE_SHARDING,
    &ROUTER_IS_DB_GRID,
    &ROUTER_GET_DEFAULT_RW_CONCERN,
    &ROUTER_SET_DEFAULT_RW_CONCERN,
    &ROUTER_RENAME_COLLECTION,
    &ROUTER_SET_ALLOW_MIGRATIONS,
    &ROUTER_SET_INDEX_COMMIT_QUORUM,
    &ROUTER_SHARD_COLLECTION,
    &ROUTER_SPLIT,
    &ROUTER_MERGE_ALL_CHUNKS,
    &ROUTER_MERGE_CHUNKS,
    &ROUTER_CLEAR_JUMBO_FLAG,
    &ROUTER_MOVE_CHUNK,
    &ROUTER_MOVE_RANGE,
    &ROUTER_GET_SHARD_VERSION,
    &ROUTER_GET_DATABASE_VERSION,
    &ROUTER_CHECK_METADATA_CONSISTENCY,
    &ROUTER_CURRENT_OP,
    &ROUTER_FSYNC,
    &ROUTER_FSYNC_UNLOCK,
    &ROUTER_VALIDATE_DB_METADATA,
    &ROUTER_KILL_OP,
#define REFUSED_COMMAND(symbol, command, reason) &(symbol),
#include "router/refused_commands.def"
#undef REFUSED_COMMAND
};
const size_t ROUTER_SPEC_COUNT = ARRAY_LEN(ROUTER_SPECS);
