#include "sharding/config/shard_hosts.h"

#include <string.h>

#include "base/log.h"
#include "query/write/own_docs.h"
#include "sharding/config/config_catalog.h"

enum {
    /* Without a change: shards that another primary has added are watched from then on. */
    ROUND_INTERVAL_US = 30 * 1000 * 1000,
    RETRY_INTERVAL_US = 1000 * 1000,
};

typedef struct NewHosts {
    Str shard;
    Str set_name;
    const char *address;
    bool is_written;
} NewHosts;

/* The shard may have been removed meanwhile, and its name given to another set. */
static ErrCode write_in_txn(void *arg, OpCtx *op, Error *err) {
    NewHosts *hosts = arg;
    hosts->is_written = false;
    Doc doc;
    TRY(own_doc_read(op, &CONFIG_SHARDS_NS, own_doc_id(op, hosts->shard), &doc, err));
    Elem host = doc_is_present(doc) ? doc_get_lit(doc, "host") : ELEM_MISSING;
    size_t name_size = hosts->set_name.size;
    if (elem_type(host) != BT_STRING || elem_str(host).size <= name_size ||
        elem_str(host).data[name_size] != '/' ||
        memcmp(elem_str(host).data, hosts->set_name.data, name_size) != 0)
        return ERR_OK;
    hosts->is_written = true;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&b, "$set");
    build_cstr(&b, "host", hosts->address);
    build_close(&b, fields);
    return own_docs_update(op, &CONFIG_SHARDS_NS, config_filter_str(op, "_id", hosts->shard),
                           doc_builder_end(&b), err);
}

static ErrCode write_hosts(OpCtx *op, const Shard *shard, const char *address, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->shards, op, &lock, err));
    NewHosts hosts = {.shard = str_from(shard->name),
                      .set_name = str_from(watched_set_name(shard->set)),
                      .address = address};
    TRY(config_catalog_change(op, "shardHosts", write_in_txn, &hosts, err));
    if (hosts.is_written)
        LOG_INFO(LOG_SHARDING, 7400410, "The members of a shard are written down",
                 LOG_STR("shard", shard->name), LOG_STR("before", shard->address),
                 LOG_STR("now", address));
    return ERR_OK;
}

/* What the set is made of as its primary says; NULL: not known, or what is written already. */
static const char *find_new_hosts(OpCtx *op, const Shard *shard) {
    SetView *view = watched_set_view(shard->set);
    const char *address = set_view_primary(view) >= 0 ? set_view_text(view, &op->arena) : NULL;
    set_view_unref(view);
    return address == NULL || shard_has_address(shard, str_from(address)) ? NULL : address;
}

static ErrCode write_all(OpCtx *op, Error *err) {
    Cluster *cluster = op->service->cluster;
    TRY(cluster_reload_shards(cluster, op, err)); /* watches those that are new */
    CLEANUP(shard_list_done) ShardList *list = cluster_shards(cluster);
    bool is_changed = false;
    for (uint32_t i = 0; i < list->count; i++) {
        const char *address = find_new_hosts(op, &list->rows[i]);
        if (address == NULL)
            continue;
        TRY(write_hosts(op, &list->rows[i], address, err));
        is_changed = true;
    }
    return is_changed ? cluster_reload_shards(cluster, op, err) : ERR_OK;
}

const PrimaryRoundsSpec SHARD_HOSTS = {
    .name = "ShardHosts",
    .interval_us = ROUND_INTERVAL_US,
    .retry_us = RETRY_INTERVAL_US,
    .run = write_all,
};
