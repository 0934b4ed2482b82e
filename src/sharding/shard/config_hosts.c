#include "sharding/shard/config_hosts.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "cluster_params/cluster_params.h"
#include "query/write/own_docs.h"
#include "repl/repl.h"
#include "sharding/route/remote.h"
#include "sharding/shard/shard_internal.h"
#include "storage/engine.h"

enum {
    /* Without a change: a shard that was added meanwhile knows its config server from then on. */
    ROUND_INTERVAL_US = 30 * 1000 * 1000,
    RETRY_INTERVAL_US = 5 * 1000 * 1000, /* the config server may be away for long */
};

struct ConfigHosts {
    ServiceCtx *service;
    RoundThread rounds;
    OpCtx *op; /* used by the thread; killed by config_hosts_stop */
};

/* ---- life ---- */

ConfigHosts *config_hosts_new(ServiceCtx *service) {
    ConfigHosts *hosts = NEW(ConfigHosts);
    hosts->service = service;
    round_thread_init(&hosts->rounds);
    hosts->op = op_ctx_new(service->ops, NULL, NULL);
    hosts->op->service = service;
    op_attach_storage(hosts->op, service->storage);
    return hosts;
}

void config_hosts_stop(ConfigHosts *hosts) {
    if (hosts == NULL || !round_thread_is_started(&hosts->rounds))
        return;
    round_thread_begin_stop(&hosts->rounds);
    op_kill(hosts->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&hosts->rounds);
}

void config_hosts_free(ConfigHosts *hosts) {
    if (hosts == NULL)
        return;
    op_ctx_free(hosts->op);
    round_thread_done(&hosts->rounds);
    xfree(hosts);
}

void config_hosts_wake(ConfigHosts *hosts) {
    if (hosts != NULL)
        round_thread_wake(&hosts->rounds);
}

/* ---- one round ---- */

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

static void hosts_run(void *arg) {
    ConfigHosts *hosts = arg;
    OpCtx *op = hosts->op;
    log_set_thread_name("ConfigHosts");
    for (int64_t due_us = 0; round_thread_wait(&hosts->rounds, due_us);) {
        due_us = clock_mono_us() + ROUND_INTERVAL_US;
        if (!repl_is_writable(hosts->service->repl))
            continue;
        op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "ConfigHosts"});
        CLEANUP(error_reset) Error err = {0};
        /* A stop that came before op_begin had nothing to kill. */
        if (!round_thread_is_stopping(&hosts->rounds) && run_round(op, &err) != ERR_OK) {
            due_us = clock_mono_us() + RETRY_INTERVAL_US;
            if (!round_thread_is_stopping(&hosts->rounds) && !error_is_of_state(err.code))
                LOG_WARN(LOG_SHARDING, 7400413,
                         "Could not write down the members of the config server",
                         LOG_STR("error", error_message(&err)));
        }
        op_end(op);
    }
}

ErrCode config_hosts_start(ConfigHosts *hosts, Error *err) {
    return round_thread_start(&hosts->rounds, "ConfigHosts", hosts_run, hosts, err);
}
