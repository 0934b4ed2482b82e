#include "sharding/route/cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pmap.h"
#include "base/round_thread.h"
#include "sharding/route/cluster_defaults.h"
#include "sharding/route/cluster_keys.h"
#include "sharding/route/collection_routes.h"
#include "sharding/route/remote.h"
#include "sharding/route/route_stats.h"

enum {
    REGISTRY_INTERVAL_US = 30 * 1000 * 1000,
    DEFAULTS_INTERVAL_US = 5 * 1000 * 1000,
    PING_INTERVAL_US = 10 * 1000 * 1000,
    PING_MS_MAX = 5000,
    HEARTBEAT_US = 10 * 1000 * 1000,
    SELECT_US_MAX = 15 * 1000 * 1000,
    SHARDS_MAX = 10000,
    CHUNK_BYTES_DEFAULT = 128 << 20,
    DATABASES_MAX = 10000,
    /* Cursors that are not killed end by their time-out. */
    KILLS_MAX = 10000,
    KILL_MS_MAX = 5000,
    /* A config time that is so far ahead of this node's clock is none: nobody has signed it. */
    CONFIG_TIME_AHEAD_SECS_MAX = 365 * 24 * 60 * 60,
};

struct Cluster {
    ServiceCtx *service;
    SetMonitors *monitors;
    ClusterFind find; /* on the config server; NULL elsewhere */
    Shard config;     /* the config server */
    CollectionRoutes *collections;
    /* Of a router, NULL otherwise. */
    ClusterKeys *keys;
    ClusterDefaults *defaults;
    RouteStats stats;
    int64_t created_ms;
    RoundThread rounds;
    OpCtx *op; /* of the thread */
    /* Atomic: each is a fact of its own, seeing an older one does no harm. */
    _Atomic uint64_t cluster_ts;  /* the newest $clusterTime of all replies */
    _Atomic uint64_t config_ts;   /* the newest time of the config server */
    _Atomic uint64_t topology_ts; /* the newest topologyTime */
    _Atomic int64_t chunk_bytes;
    Mutex mu;
    /* Guarded by mu. */
    ShardList *shards;
    PMap *databases; /* DatabaseRoute, by name */
    char *own_host;  /* set once; NULL: does not announce itself */
    char *version;
    List kills; /* CursorKill: not sent yet */
    uint32_t kill_count;
};

/* A cursor of another node that nobody needs any more. */
typedef struct CursorKill {
    ListNode node;
    char host[SET_HOST_SIZE];
    Ns ns;
    int64_t id;
} CursorKill;

/* Times only grow. */
static void advance(_Atomic uint64_t *time, uint64_t ts) {
    uint64_t known = atomic_load_explicit(time, memory_order_relaxed);
    while (ts > known && !atomic_compare_exchange_weak_explicit(
                             time, &known, ts, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- life ---- */

static void chores_run(void *arg);
static void read_chunk_size(Cluster *cluster, OpCtx *op);

ErrCode cluster_new(ServiceCtx *service, const ClusterSettings *settings, Cluster **ret_cluster,
                    Error *err) {
    Cluster *cluster = NEW(Cluster);
    cluster->service = service;
    mutex_init(&cluster->mu, LOCK_RANK_CLUSTER);
    round_thread_init(&cluster->rounds);
    list_init(&cluster->kills);
    const SetMonitorSettings monitor_settings = {
        .heartbeat_us = HEARTBEAT_US,
        .near_us = settings->near_us,
        .select_us_max = SELECT_US_MAX,
        .members_changed = settings->members_changed,
        .members_arg = settings->members_arg,
    };
    cluster->monitors = set_monitors_new(service->ops, service->clients, &monitor_settings);
    snprintf(cluster->config.name, sizeof(cluster->config.name), SHARD_NAME_CONFIG);
    cluster->find = settings->find;
    cluster->collections = collection_routes_new(cluster);
    if (settings->is_router) {
        cluster->keys = cluster_keys_new(cluster);
        cluster->defaults = cluster_defaults_new(cluster);
    }
    cluster->created_ms = clock_wall_ms();
    atomic_init(&cluster->chunk_bytes, CHUNK_BYTES_DEFAULT);
    /* None is known yet: a config server is asked before it has read its list. */
    ErrCode rc = shard_list_make(cluster->monitors, NULL, 0, &cluster->shards, err);
    if (rc == ERR_OK && settings->config_address != NULL)
        rc = set_monitors_watch(cluster->monitors, str_from(settings->config_address),
                                &cluster->config.set, err);
    if (rc != ERR_OK) {
        cluster_stop(cluster);
        cluster_free(cluster);
        return rc;
    }
    *ret_cluster = cluster;
    return ERR_OK;
}

ErrCode cluster_start(Cluster *cluster, OpCtx *op, Error *err) {
    TRY(cluster_reload_shards(cluster, op, err));
    read_chunk_size(cluster, op);
    if (cluster->keys != NULL)
        cluster_keys_try_read(cluster->keys, op);
    if (cluster->defaults != NULL)
        TRY(cluster_defaults_read(cluster->defaults, op, err));
    return round_thread_start(&cluster->rounds, "ClusterChores", chores_run, cluster, err);
}

void cluster_stop(Cluster *cluster) {
    if (cluster == NULL)
        return;
    round_thread_begin_stop(&cluster->rounds);
    mutex_lock(&cluster->mu);
    if (cluster->op != NULL)
        op_kill(cluster->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    mutex_unlock(&cluster->mu);
    round_thread_stop(&cluster->rounds);
    set_monitors_stop(cluster->monitors);
}

static void *route_ref(void *value) {
    DatabaseRoute *route = value;
    atomic_fetch_add_explicit(&route->refs, 1, memory_order_relaxed);
    return route;
}

void database_route_unref(DatabaseRoute *route) {
    if (route != NULL && atomic_fetch_sub_explicit(&route->refs, 1, memory_order_acq_rel) == 1)
        xfree(route);
}

static void route_unref(void *value) {
    database_route_unref(value);
}

static const PMapType ROUTES = {route_ref, route_unref};

void cluster_free(Cluster *cluster) {
    if (cluster == NULL)
        return;
    collection_routes_free(cluster->collections);
    cluster_keys_free(cluster->keys);
    cluster_defaults_free(cluster->defaults);
    set_monitors_free(cluster->monitors);
    shard_list_unref(cluster->shards);
    pmap_unref(cluster->databases, &ROUTES);
    LIST_FOR_EACH (&cluster->kills, node)
        xfree(CONTAINER_OF(node, CursorKill, node));
    xfree(cluster->own_host);
    xfree(cluster->version);
    round_thread_done(&cluster->rounds);
    mutex_done(&cluster->mu);
    xfree(cluster);
}

RouteStats *cluster_route_stats(Cluster *cluster) {
    return &cluster->stats;
}

uint32_t cluster_count_databases(Cluster *cluster) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    return (uint32_t)pmap_count(cluster->databases);
}

SetMonitors *cluster_monitors(const Cluster *cluster) {
    return cluster->monitors;
}

ClusterDefaults *cluster_defaults(const Cluster *cluster) {
    return cluster->defaults;
}

CollectionRoutes *cluster_collections(const Cluster *cluster) {
    return cluster->collections;
}

ClusterFind cluster_local_find(const Cluster *cluster) {
    return cluster->find;
}

const Shard *cluster_config_shard(const Cluster *cluster) {
    return &cluster->config;
}

/* ---- shards ---- */

ShardList *cluster_shards(Cluster *cluster) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    return shard_list_ref(cluster->shards);
}

bool cluster_is_old_list(Cluster *cluster, const ShardList *list) {
    return cluster_topology_time(cluster) > list->looked_topology_ts;
}

ErrCode cluster_newest_shards(Cluster *cluster, OpCtx *op, ShardList **ret_list, Error *err) {
    ShardList *list = cluster_shards(cluster);
    if (UNLIKELY(cluster_is_old_list(cluster, list))) {
        shard_list_unref(list);
        TRY(cluster_reload_shards(cluster, op, err));
        list = cluster_shards(cluster);
    }
    *ret_list = list;
    return ERR_OK;
}

/* Shards that were removed, or removed and added again. */
static void forget_left_shards(const ShardList *old, const ShardList *list) {
    for (uint32_t i = 0; i < old->count; i++) {
        const Shard *shard = &old->rows[i];
        const Shard *now = shard_list_find_set(list, str_from(watched_set_name(shard->set)));
        if (now == NULL || now->topology_ts != shard->topology_ts)
            watched_set_forget_elections(shard->set);
    }
}

ErrCode cluster_reload_shards(Cluster *cluster, OpCtx *op, Error *err) {
    Doc *docs;
    uint32_t count;
    ConfigQuery query = {.coll = "shards", .filter = DOC_EMPTY, .count_max = SHARDS_MAX};
    uint64_t looked_ts = cluster_topology_time(cluster);
    TRY(config_find(cluster, op, &query, &docs, &count, err));
    ShardList *list;
    TRY(shard_list_make(cluster->monitors, docs, count, &list, err));
    advance(&cluster->topology_ts, list->newest_topology_ts);
    list->looked_topology_ts =
        list->newest_topology_ts > looked_ts ? list->newest_topology_ts : looked_ts;
    mutex_lock(&cluster->mu);
    /* Two reloads may overtake each other: the one that saw more wins. */
    ShardList *old = NULL;
    if (list->looked_topology_ts >= cluster->shards->looked_topology_ts) {
        old = cluster->shards;
        cluster->shards = shard_list_ref(list);
    }
    mutex_unlock(&cluster->mu);
    if (old != NULL)
        forget_left_shards(old, list);
    shard_list_unref(old);
    shard_list_unref(list);
    return ERR_OK;
}

int64_t cluster_chunk_bytes(const Cluster *cluster) {
    return atomic_load_explicit(&cluster->chunk_bytes, memory_order_relaxed);
}

/* {_id: "chunksize", value: MB}; without it, or without an answer, it stays as it was. */
static void read_chunk_size(Cluster *cluster, OpCtx *op) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "_id", "chunksize");
    ConfigQuery query = {
        .coll = "settings", .filter = doc_builder_end(&b), .sort = DOC_NONE, .count_max = 1};
    Doc *docs;
    uint32_t count;
    CLEANUP(error_reset) Error err = {0};
    if (config_find(cluster, op, &query, &docs, &count, &err) != ERR_OK)
        return;
    Elem value = count == 1 ? doc_get_lit(docs[0], "value") : ELEM_MISSING;
    int64_t mb = elem_is_number(value) ? elem_as_i64(value) : 0;
    bool is_usable = mb >= 1 && mb <= 1024;
    atomic_store_explicit(&cluster->chunk_bytes, is_usable ? mb << 20 : CHUNK_BYTES_DEFAULT,
                          memory_order_relaxed);
}

ErrCode cluster_get_shard(Cluster *cluster, OpCtx *op, Str name, ShardList **ret_list,
                          const Shard **ret_shard, Error *err) {
    for (int attempt = 0;; attempt++) {
        ShardList *list = cluster_shards(cluster);
        const Shard *shard =
            str_is(name, SHARD_NAME_CONFIG) ? &cluster->config : shard_list_find(list, name);
        if (LIKELY(shard != NULL)) {
            *ret_list = list;
            *ret_shard = shard;
            return ERR_OK;
        }
        shard_list_unref(list);
        if (attempt == 1)
            return error_set(err, ERR_SHARD_NOT_FOUND, "there is no shard \"%.*s\" in this cluster",
                             (int)name.size, name.data);
        TRY(cluster_reload_shards(cluster, op, err));
    }
}

/* ---- the thread ---- */

void cluster_kill_cursor(Cluster *cluster, const char *host, const Ns *ns, int64_t cursor_id) {
    CursorKill *kill = NEW(CursorKill);
    snprintf(kill->host, sizeof(kill->host), "%s", host);
    kill->ns = *ns;
    kill->id = cursor_id;
    mutex_lock(&cluster->mu);
    bool is_taken = cluster->kill_count < KILLS_MAX;
    if (is_taken) {
        list_push_back(&cluster->kills, &kill->node);
        cluster->kill_count++;
    }
    mutex_unlock(&cluster->mu);
    if (is_taken)
        round_thread_wake(&cluster->rounds);
    else
        xfree(kill);
}

void cluster_announce(Cluster *cluster, const char *own_host, const char *version) {
    mutex_lock(&cluster->mu);
    cluster->own_host = xstrdup(own_host);
    cluster->version = xstrdup(version);
    mutex_unlock(&cluster->mu);
    round_thread_wake(&cluster->rounds);
}

static CursorKill *take_kill(Cluster *cluster) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    ListNode *first = list_first(&cluster->kills);
    if (first == NULL)
        return NULL;
    list_remove(first);
    cluster->kill_count--;
    return CONTAINER_OF(first, CursorKill, node);
}

/* One that fails is left to its time-out: the node is gone, or the cursor. */
static void send_kill(Cluster *cluster, OpCtx *op, const CursorKill *kill) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "killCursors", ns_coll(&kill->ns));
    size_t list = build_open_array(&b, "cursors");
    build_i64(&b, "0", kill->id);
    build_close(&b, list);
    remote_build_end(cluster, &b, ns_db(&kill->ns), NULL, ELEM_MISSING);
    ClientCommand command = {.body = doc_builder_end(&b)};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    CLEANUP(error_reset) Error err = {0};
    (void)!client_run(cluster->service->clients, op, kill->host, &command,
                      clock_deadline_ms(KILL_MS_MAX), &reply, &err);
}

/* {_id: "host:port", ping, up, ...} in config.mongos: who the routers are. One that fails is made
 * up for by the next. */
static void send_ping(Cluster *cluster, OpCtx *op) {
    int64_t now_ms = clock_wall_ms();
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "update", "mongos");
    size_t list = build_open_array(&b, "updates");
    size_t statement = build_open_doc(&b, "0");
    size_t filter = build_open_doc(&b, "q");
    build_cstr(&b, "_id", cluster->own_host);
    build_close(&b, filter);
    size_t update = build_open_doc(&b, "u");
    size_t fields = build_open_doc(&b, "$set");
    build_date(&b, "created", cluster->created_ms);
    build_cstr(&b, "mongoVersion", cluster->version);
    build_date(&b, "ping", now_ms);
    build_i64(&b, "up", (now_ms - cluster->created_ms) / 1000);
    build_bool(&b, "waiting", true);
    build_close(&b, fields);
    build_close(&b, update);
    build_bool(&b, "upsert", true);
    build_close(&b, statement);
    build_close(&b, list);
    remote_build_end(cluster, &b, STR("config"), NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = &cluster->config,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(PING_MS_MAX)};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    CLEANUP(error_reset) Error err = {0};
    (void)!remote_run(cluster, op, &request, &reply, NULL, &err);
}

/* When the next chores are due. */
typedef struct Chores {
    int64_t reload_us;
    int64_t ping_us;
    int64_t defaults_us; /* INT64_MAX: never */
} Chores;

static bool is_announced(Cluster *cluster) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    return cluster->own_host != NULL;
}

/* One that fails is made up for by the next. */
static void read_defaults(Cluster *cluster, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    (void)!cluster_defaults_read(cluster->defaults, op, &err);
}

static int64_t next_due_us(const Chores *due) {
    int64_t first_us = due->ping_us < due->reload_us ? due->ping_us : due->reload_us;
    return due->defaults_us < first_us ? due->defaults_us : first_us;
}

static void do_chores(Cluster *cluster, OpCtx *op, Chores *due) {
    for (CursorKill *kill; (kill = take_kill(cluster)) != NULL;) {
        send_kill(cluster, op, kill);
        xfree(kill);
    }
    bool is_first_ping = due->ping_us == INT64_MAX && is_announced(cluster);
    if (is_first_ping || clock_mono_us() >= due->ping_us) {
        send_ping(cluster, op);
        due->ping_us = clock_mono_us() + PING_INTERVAL_US;
    }
    if (clock_mono_us() >= due->defaults_us) {
        read_defaults(cluster, op);
        due->defaults_us = clock_mono_us() + DEFAULTS_INTERVAL_US;
    }
    bool is_due = clock_mono_us() >= due->reload_us;
    if (cluster->keys != NULL && (is_due || cluster_keys_are_missing(cluster->keys)))
        cluster_keys_try_read(cluster->keys, op);
    if (!is_due)
        return;
    due->reload_us = clock_mono_us() + REGISTRY_INTERVAL_US;
    read_chunk_size(cluster, op);
    CLEANUP(error_reset) Error err = {0};
    if (cluster_reload_shards(cluster, op, &err) != ERR_OK)
        LOG_WARN(LOG_SHARDING, 7400201, "Could not read the list of shards",
                 LOG_STR("error", error_message(&err)));
}

static void chores_run(void *arg) {
    Cluster *cluster = arg;
    log_set_thread_name("ClusterChores");
    OpCtx *op = op_ctx_new(cluster->service->ops, NULL, NULL);
    op->service = cluster->service;
    op->is_kill_exempt = true;
    mutex_lock(&cluster->mu);
    cluster->op = op;
    mutex_unlock(&cluster->mu);
    int64_t now_us = clock_mono_us();
    Chores due = {.reload_us = now_us + REGISTRY_INTERVAL_US,
                  .ping_us = INT64_MAX,
                  .defaults_us =
                      cluster->defaults != NULL ? now_us + DEFAULTS_INTERVAL_US : INT64_MAX};
    while (round_thread_wait(&cluster->rounds, next_due_us(&due))) {
        op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "ClusterChores"});
        /* A stop that came before op_begin had nothing to kill. */
        if (!round_thread_is_stopping(&cluster->rounds))
            do_chores(cluster, op, &due);
        op_end(op);
    }
    mutex_lock(&cluster->mu);
    cluster->op = NULL;
    mutex_unlock(&cluster->mu);
    op_ctx_free(op);
}

/* ---- databases ---- */

/* "admin" and "config" are on the config server and have no entry. */
static bool is_on_config_server(Str name) {
    return str_is(name, "admin") || str_is(name, "config");
}

static DatabaseRoute *route_new(Str name, Str shard, const DatabaseVersion *version) {
    DatabaseRoute *route = xcalloc(1, sizeof(DatabaseRoute) + name.size + 1);
    atomic_init(&route->refs, 1);
    memcpy(route->name, name.data, name.size);
    snprintf(route->shard, sizeof(route->shard), "%.*s", (int)shard.size, shard.data);
    route->version = *version;
    return route;
}

static DatabaseRoute *find_cached(Cluster *cluster, Str name) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    DatabaseRoute *route = pmap_get(cluster->databases, name.data, name.size);
    return route != NULL ? route_ref(route) : NULL;
}

/* Keeps the newer one if two threads have read it. */
static void remember(Cluster *cluster, DatabaseRoute *route) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    size_t size = strlen(route->name);
    const DatabaseRoute *known = pmap_get(cluster->databases, route->name, size);
    if (known != NULL &&
        database_version_compare(&route->version, &known->version) == VERSION_OLDER)
        return;
    PMap *old = cluster->databases;
    if (pmap_count(old) >= DATABASES_MAX) {
        pmap_unref(old, &ROUTES);
        old = NULL;
    }
    cluster->databases = pmap_put(old, &ROUTES, route->name, size, route);
    pmap_unref(old, &ROUTES);
}

static void forget_locked(Cluster *cluster, Str name) {
    PMap *old = cluster->databases;
    cluster->databases = pmap_remove(old, &ROUTES, name.data, name.size);
    pmap_unref(old, &ROUTES);
}

static ErrCode parse_route(Str name, Elem shard, Elem version, DatabaseRoute **ret_route,
                           Error *err) {
    if (elem_type(shard) != BT_STRING || elem_str(shard).size >= SHARD_NAME_SIZE)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "the entry of the database %.*s needs a string \"primary\"",
                         (int)name.size, name.data);
    DatabaseVersion parsed;
    TRY(database_version_parse(version, "version", &parsed, err));
    *ret_route = route_new(name, elem_str(shard), &parsed);
    return ERR_OK;
}

ErrCode cluster_find_database(Cluster *cluster, OpCtx *op, Str name, DatabaseRoute **ret_route,
                              Error *err) {
    *ret_route = find_cached(cluster, name);
    if (LIKELY(*ret_route != NULL))
        return ERR_OK;
    if (is_on_config_server(name)) {
        *ret_route = route_new(name, STR(SHARD_NAME_CONFIG), &(DatabaseVersion){0});
        remember(cluster, *ret_route);
        return ERR_OK;
    }
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", name);
    ConfigQuery query = {.coll = "databases", .filter = doc_builder_end(&b), .count_max = 1};
    Doc *docs;
    uint32_t count;
    TRY(config_find(cluster, op, &query, &docs, &count, err));
    if (count == 0)
        return ERR_OK;
    TRY(parse_route(name, doc_get_lit(docs[0], "primary"), doc_get_lit(docs[0], "version"),
                    ret_route, err));
    remember(cluster, *ret_route);
    return ERR_OK;
}

ErrCode cluster_ensure_database(Cluster *cluster, OpCtx *op, Str name, DatabaseRoute **ret_route,
                                Error *err) {
    TRY(cluster_find_database(cluster, op, name, ret_route, err));
    if (LIKELY(*ret_route != NULL))
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_configsvrCreateDatabase", name);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(config_run(cluster, op, &b, &reply, err));
    TRY(cluster_find_database(cluster, op, name, ret_route, err));
    if (*ret_route == NULL) /* dropped again at once */
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "database %.*s not found", (int)name.size,
                         name.data);
    return ERR_OK;
}

void cluster_note_stale_database(Cluster *cluster, const DatabaseRoute *used) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    if (pmap_get(cluster->databases, used->name, strlen(used->name)) == used)
        forget_locked(cluster, str_from(used->name));
}

void cluster_forget_database(Cluster *cluster, Str name) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    forget_locked(cluster, name);
}

void cluster_forget_databases(Cluster *cluster) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cluster->mu);
    pmap_unref(TAKE_PTR(cluster->databases), &ROUTES);
}

/* ---- times ---- */

static uint64_t cluster_time_of(Elem given) {
    Elem time =
        elem_type(given) == BT_DOC ? doc_get_lit(elem_doc(given), "clusterTime") : ELEM_MISSING;
    return elem_type(time) == BT_TIMESTAMP ? (uint64_t)elem_i64(time) : 0;
}

void cluster_learn_times(Cluster *cluster, Doc reply) {
    advance(&cluster->cluster_ts, cluster_time_of(doc_get_lit(reply, "$clusterTime")));
    cluster_learn_config_time(cluster, doc_get_lit(reply, "$configTime"));
    Elem topology = doc_get_lit(reply, "$topologyTime");
    if (elem_type(topology) == BT_TIMESTAMP)
        advance(&cluster->topology_ts, (uint64_t)elem_i64(topology));
}

/* It is a time of the cluster, too: who is asked for something as of it may not have reached it. */
void cluster_learn_config_time(Cluster *cluster, Elem time) {
    if (elem_type(time) != BT_TIMESTAMP)
        return;
    uint64_t ts = (uint64_t)elem_i64(time);
    if ((int64_t)ts_seconds(ts) > clock_wall_ms() / 1000 + CONFIG_TIME_AHEAD_SECS_MAX)
        return;
    advance(&cluster->config_ts, ts);
    advance(&cluster->cluster_ts, ts);
}

ErrCode cluster_take_time(Cluster *cluster, OpCtx *op, const SignedTime *time, Error *err) {
    bool is_proven = true;
    if (time->key_id != 0 && cluster->keys != NULL)
        TRY(cluster_keys_verify(cluster->keys, op, time, &is_proven, err));
    if (is_proven)
        advance(&cluster->cluster_ts, time->ts);
    return ERR_OK;
}

uint64_t cluster_time(const Cluster *cluster) {
    return atomic_load_explicit(&cluster->cluster_ts, memory_order_relaxed);
}

void cluster_build_cluster_time(Cluster *cluster, DocBuilder *b, Elem given) {
    uint64_t ts = cluster_time(cluster);
    uint64_t given_ts = cluster_time_of(given);
    if (given_ts > ts)
        ts = given_ts;
    if (ts == 0)
        return;
    TimeProof proof = {0};
    if (cluster->keys != NULL && !cluster_keys_sign(cluster->keys, ts, &proof))
        round_thread_wake(&cluster->rounds);
    build_signed_time(b, ts, &proof);
}

uint64_t cluster_topology_time(Cluster *cluster) {
    return atomic_load_explicit(&cluster->topology_ts, memory_order_relaxed);
}

uint64_t cluster_config_time(Cluster *cluster) {
    return atomic_load_explicit(&cluster->config_ts, memory_order_relaxed);
}
