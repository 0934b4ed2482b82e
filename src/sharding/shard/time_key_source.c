#include "sharding/shard/time_key_source.h"

#include "sharding/route/remote.h"
#include "sharding/shard/shard_state.h"

ErrCode shard_read_time_keys(ServiceCtx *service, OpCtx *op, TimeKeyVisit visit, void *arg,
                             bool *ret_is_in_cluster, Error *err) {
    ShardState *state = service->shard;
    *ret_is_in_cluster = false;
    if (state == NULL)
        return ERR_OK;
    TRY(shard_state_load(state, op, err));
    *ret_is_in_cluster = shard_has_identity(state);
    if (!*ret_is_in_cluster)
        return ERR_OK;
    Cluster *cluster;
    TRY(shard_get_cluster(state, op, &cluster, err));
    ConfigQuery query = {
        .db = "admin", .coll = "system.keys", .filter = DOC_EMPTY, .sort = DOC_NONE};
    return config_each(cluster, op, &query, visit, arg, err);
}
