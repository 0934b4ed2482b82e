#include "sharding/shard/config_hosts.h"

#include "base/log.h"
#include "cluster_params/cluster_params.h"
#include "query/write/own_docs.h"
#include "sharding/route/remote.h"
#include "sharding/shard/shard_internal.h"

enum {
    /* Without a change: a shard that was added meanwhile knows its config server from then on. */
    ROUND_INTERVAL_US = 30 * 1000 * 1000,
    RETRY_INTERVAL_US = 5 * 1000 * 1000, /* the config server may be away for long */
};

/* What the config server is made of as its primary says; NULL: not known. */
static const char *find_hosts(const Cluster *cluster, OpCtx *op) {
    SetView *view = watched_set_view(cluster_config_shard(cluster)->set);
    const char *address = set_view_primary(view) >= 0 ? set_view_text(view, &op->arena) : NULL;
    set_view_unref(view);
    return address;
}

/* Only if it still says what it said: another cluster may have been joined meanwhile, after all. */
static ErrCode write_hosts(OpCtx *op, Elem known, const char *now, Error *err) {
    DocBuilder filter = doc_builder_in_arena(&op->arena);
    build_cstr(&filter, "_id", IDENTITY_ID);
    build_elem(&filter, known);
    DocBuilder update = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&update, "$set");
    build_cstr(&update, "configsvrConnectionString", now);
    build_close(&update, fields);
    TRY(own_docs_update(op, &VERSION_NS, doc_builder_end(&filter), doc_builder_end(&update), err));
    LOG_INFO(LOG_SHARDING, 7400412, "The members of the config server are written down",
             LOG_STR("before", elem_str(known).data), LOG_STR("now", now));
    return ERR_OK;
}

/* What this shard was not told when it was set. */
static ErrCode adopt_parameters(Cluster *cluster, OpCtx *op, Error *err) {
    enum { PARAMETERS_MAX = 1000 };
    ConfigQuery query = {
        .coll = "clusterParameters", .filter = DOC_EMPTY, .count_max = PARAMETERS_MAX};
    Doc *docs;
    uint32_t count;
    TRY(config_find(cluster, op, &query, &docs, &count, err));
    for (uint32_t i = 0; i < count; i++)
        TRY(cluster_param_adopt(op, docs[i], err));
    return ERR_OK;
}

static ErrCode run_round(OpCtx *op, Error *err) {
    ShardState *state = op->service->shard;
    TRY(shard_state_load(state, op, err));
    if (!shard_has_identity(state))
        return ERR_OK; /* not a part of any cluster yet */
    Cluster *cluster;
    TRY(shard_get_cluster(state, op, &cluster, err));
    TRY(adopt_parameters(cluster, op, err));
    const char *now = find_hosts(cluster, op);
    if (now == NULL)
        return ERR_OK;
    Doc identity;
    TRY(own_doc_read(op, &VERSION_NS, own_doc_id(op, STR(IDENTITY_ID)), &identity, err));
    Elem known = doc_is_present(identity) ? doc_get_lit(identity, "configsvrConnectionString")
                                          : ELEM_MISSING;
    if (elem_type(known) != BT_STRING)
        return ERR_OK;
    Shard written = {.address = arena_strdup(&op->arena, elem_str(known).data)};
    return shard_has_address(&written, str_from(now)) ? ERR_OK : write_hosts(op, known, now, err);
}

const PrimaryRoundsSpec CONFIG_HOSTS = {
    .name = "ConfigHosts",
    .interval_us = ROUND_INTERVAL_US,
    .retry_us = RETRY_INTERVAL_US,
    .run = run_round,
};
