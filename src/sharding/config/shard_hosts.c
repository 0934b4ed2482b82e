#include "sharding/config/shard_hosts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "query/write/own_docs.h"
#include "repl/repl.h"
#include "sharding/config/config_catalog.h"
#include "storage/engine.h"

enum {
    /* Without a change: shards that another primary has added are watched from then on. */
    ROUND_INTERVAL_US = 30 * 1000 * 1000,
    RETRY_INTERVAL_US = 1000 * 1000,
};

struct ShardHosts {
    ServiceCtx *service;
    RoundThread rounds;
    OpCtx *op; /* used by the thread; killed by shard_hosts_stop */
};

/* ---- life ---- */

ShardHosts *shard_hosts_new(ServiceCtx *service) {
    ShardHosts *hosts = NEW(ShardHosts);
    hosts->service = service;
    round_thread_init(&hosts->rounds);
    hosts->op = op_ctx_new(service->ops, NULL, NULL);
    hosts->op->service = service;
    op_attach_storage(hosts->op, service->storage);
    return hosts;
}

void shard_hosts_stop(ShardHosts *hosts) {
    if (hosts == NULL || !round_thread_is_started(&hosts->rounds))
        return;
    round_thread_begin_stop(&hosts->rounds);
    op_kill(hosts->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&hosts->rounds);
}

void shard_hosts_free(ShardHosts *hosts) {
    if (hosts == NULL)
        return;
    op_ctx_free(hosts->op);
    round_thread_done(&hosts->rounds);
    xfree(hosts);
}

void shard_hosts_wake(ShardHosts *hosts) {
    if (hosts != NULL)
        round_thread_wake(&hosts->rounds);
}

/* ---- one round ---- */

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

static void hosts_run(void *arg) {
    ShardHosts *hosts = arg;
    OpCtx *op = hosts->op;
    log_set_thread_name("ShardHosts");
    for (int64_t due_us = 0; round_thread_wait(&hosts->rounds, due_us);) {
        due_us = clock_mono_us() + ROUND_INTERVAL_US;
        if (!repl_is_writable(hosts->service->repl))
            continue;
        op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "ShardHosts"});
        CLEANUP(error_reset) Error err = {0};
        /* A stop that came before op_begin had nothing to kill. */
        if (!round_thread_is_stopping(&hosts->rounds) && write_all(op, &err) != ERR_OK) {
            due_us = clock_mono_us() + RETRY_INTERVAL_US;
            if (!round_thread_is_stopping(&hosts->rounds) && !error_is_of_state(err.code))
                LOG_WARN(LOG_SHARDING, 7400411, "Could not write down the members of a shard",
                         LOG_STR("error", error_message(&err)));
        }
        op_end(op);
    }
}

ErrCode shard_hosts_start(ShardHosts *hosts, Error *err) {
    return round_thread_start(&hosts->rounds, "ShardHosts", hosts_run, hosts, err);
}
